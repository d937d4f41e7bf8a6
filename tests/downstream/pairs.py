"""Chains of built-in constraints, and the same chains of constraints from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from logitloom import Chain, Vocabulary, processors

#: A processor of ours, and one from elsewhere that says the same: name and options.
PAIRS: dict[str, tuple[Any, Any]] = {
    name: ((name, options), (f"their_{name}", options))
    for name, options in {
        "bad_words": {"phrases": ["ab", "c-"]},
        "stop": {"strings": ["bc", "y"]},
        "regex": {"pattern": "(ab|c)+x*"},
    }.items()
}

#: Each combinator around a processor, with strings that it shares with texts of the processors.
AROUND: dict[str, Callable[[Any], Any]] = {
    "until": lambda inner: ("until", {"trigger": "-", "inner": inner}),
    "after": lambda inner: ("after", {"trigger": "xy", "inner": inner}),
    "all_of": lambda inner: ("all_of", {"inner": inner}),
    "between": lambda inner: ("between", {"open": "x", "close": "y", "inner": inner}),
    "budget": lambda inner: ("budget", {"n": 3, "text": "-", "inner": inner}),
}

#: No combinator, each of them, and each within each.
NESTINGS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda inner: inner,
    **AROUND,
    **{f"{one} of {other}": (lambda inner, f=AROUND[one], g=AROUND[other]: f([*g([*inner])]))
       for one, other in product(AROUND, AROUND)},
}  # fmt: skip


def loaded(name: str, nesting: str, vocabulary: Vocabulary) -> tuple[Chain, Chain]:
    """The chain with the built-in, and that with the one from elsewhere."""
    ours, theirs = (processors.load(NESTINGS[nesting]([*one]), tokenizer=vocabulary) for one in PAIRS[name])
    return ours, theirs
