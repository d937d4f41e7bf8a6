"""What one token may write of several parts of a text: brackets, names, and the rest of an escape."""

from __future__ import annotations

import re
from typing import Final

from logitloom import Vocabulary
from logitloom.vocabulary import kept_with_vocabulary

__all__ = ["SURROGATES", "Brackets", "begin_names", "names_at_once", "opened_at_once", "rest_of_escapes"]

#: The bytes of the rest of an escape, without and with a second surrogate.
_ESCAPE, SURROGATES = 5, 11
#: The rest of a string, up to its closing quote, for a token that begins inside the string; and the lexemes of JSON,
#: where a string may be unfinished.
_REST_OF_STRING: Final = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
_LEXEME: Final = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],:]|[-+.0-9eEtruefalsn]+', re.DOTALL)
_BLANKS: Final = b" \t\r\n"
#: The comma or bracket, the whitespace and the quote before the name of a member, and the first byte of the name.
_BEGINS_NAME: Final = re.compile(rb'[,{][ \t\r\n]*".', re.DOTALL)

Brackets = frozenset[bytes]


@kept_with_vocabulary
def rest_of_escapes(vocabulary: Vocabulary) -> int:
    """The most bytes of an escape that a token may leave to be written."""
    halves = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{0,2}\Z|\\u[dD]\Z")
    tokens = vocabulary.tokens_with(vocabulary.flat_bytes == ord("\\")).tolist()
    return SURROGATES if any(halves.search(vocabulary.token_bytes[token]) for token in tokens) else _ESCAPE


@kept_with_vocabulary
def begin_names(vocabulary: Vocabulary) -> bool:
    """Whether some token may begin a member of an object and write a part of its name, after other text."""
    tokens = vocabulary.tokens_with(vocabulary.flat_bytes == ord('"')).tolist()
    return any(_BEGINS_NAME.search(vocabulary.token_bytes[token]) for token in tokens)


@kept_with_vocabulary
def names_at_once(vocabulary: Vocabulary) -> int:
    """The most names of members that one token may end."""
    tokens = vocabulary.tokens_with(vocabulary.flat_bytes == ord('"')).tolist()
    return max([vocabulary.token_bytes[token].count(b'"') for token in tokens], default=0)


@kept_with_vocabulary
def opened_at_once(vocabulary: Vocabulary) -> Brackets:
    """The brackets of nested objects and arrays that one token can open and leave open, the outermost first.

    For example ``b"[{"``; the beginnings of all such texts are listed, too. A token may begin outside strings, in a
    string, or after a backslash.
    """
    flat = vocabulary.flat_bytes
    found = set[bytes]()
    for token in vocabulary.tokens_with((flat == ord("{")) | (flat == ord("["))).tolist():
        text = vocabulary.token_bytes[token]
        within = [_REST_OF_STRING.match(text), _REST_OF_STRING.match(text, 1)]
        for begin in (0, *[match.end() for match in within if match]):
            opened = _left_open(text[begin:])
            found.update([opened[:size] for size in range(1, len(opened) + 1)])
    return frozenset(found)


def _left_open(text: bytes) -> bytes:
    """The brackets that a text opens outside strings and does not close; none if the text is no part of JSON."""
    opened, before, at = b"", b"", 0
    while at < len(text):
        if text[at] in _BLANKS:
            at += 1
            continue
        lexeme = _LEXEME.match(text, at)
        if lexeme is None or (before == b"{" and lexeme[0][:1] not in b'"}'):
            return b""
        before, at = lexeme[0], lexeme.end()
        if before in (b"{", b"["):
            opened += before
        elif before in (b"}", b"]"):
            opened = opened[:-1]
    return opened
