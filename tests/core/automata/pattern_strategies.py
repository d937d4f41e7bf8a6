"""Random regular expressions and random texts, for comparison with Python's ``re``."""

from __future__ import annotations

import re

from hypothesis import strategies as st

ALPHABET = ["a", "b", "A", "\n", " ", "1", "_", "-", "\r", "é", "K", "s", "\u017f", "\u212a", "😀", "€", "Я", "я", "٣"]
_ATOMS = [
    "a", "b", ".", r"\n", "\n", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", "[ab]", "[^a]", "[a-zé]", "é", "€", "k", "S",
    r"[^\wé]", "\u212a", "\u017f", "😀", "[А-я]", "[^\n]", r"[\s\d]", "", r"\u20ac", "[\U0001f600-\U0001f64f]", r"\x41",
]  # fmt: skip
_ANCHORS = ["^", "$", r"\A", r"\Z", r"\b", r"\B"]
_QUANTIFIERS = ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "??", "{1,2}?", "*+", "++", "?+"]
_FLAGS = ["i", "s", "m", "a", "ims", "-i", "i-s", "x"]

TEXTS = st.text(st.sampled_from(ALPHABET), max_size=7)
FLAGS = st.sampled_from(
    [0, re.IGNORECASE, re.DOTALL, re.MULTILINE, re.ASCII, re.MULTILINE | re.IGNORECASE, re.ASCII | re.IGNORECASE]
)


def patterns(anchors: bool) -> st.SearchStrategy[str]:
    """Regular expressions, with or without anchors; most are valid."""
    atoms = st.sampled_from(_ATOMS + _ANCHORS * 2 if anchors else _ATOMS)

    def larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(parts, parts).map("".join),
            st.tuples(parts, parts).map(lambda two: f"(?:{two[0]}|{two[1]})"),
            st.tuples(parts, parts, parts).map(lambda three: f"({'|'.join(three)})"),
            st.tuples(parts, st.sampled_from(_QUANTIFIERS)).map(lambda t: f"(?:{t[0]}){t[1]}"),
            st.tuples(st.sampled_from(_FLAGS), parts).map(lambda t: f"(?{t[0]}:{t[1]})"),
            parts.map(lambda part: f"(?>{part})"),
        )

    return st.recursive(atoms, larger, max_leaves=8)
