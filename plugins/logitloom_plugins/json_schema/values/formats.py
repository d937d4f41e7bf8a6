"""The formats of JSON Schema as automata.

References:
    G. Klyne, C. Newman, "Date and Time on the Internet: Timestamps", RFC 3339, 2002.
    T. Berners-Lee, R. Fielding, L. Masinter, "Uniform Resource Identifier (URI): Generic Syntax", RFC 3986, 2005.
    J. Klensin, "Simple Mail Transfer Protocol", RFC 5321, 2008, section 4.1.2.
    R. Hinden, S. Deering, "IP Version 6 Addressing Architecture", RFC 4291, 2006, section 2.2.
    P. Bryan (ed.), "JavaScript Object Notation (JSON) Pointer", RFC 6901, 2013.
    J. Gregorio et al., "URI Template", RFC 6570, 2012.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import DEAD, Dfa, compile_pattern, difference
from logitloom_plugins.json_schema.values.times_of_day import times_of_day

__all__ = ["IRREGULAR", "compiled_formats", "format_automaton", "most_characters", "write_tables"]

_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4: Final = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16: Final = "[0-9A-Fa-f]{1,4}"
_LS32: Final = f"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6: Final = "(?:" + "|".join(
    [
        f"(?:{_H16}:){{6}}{_LS32}",
        f"::(?:{_H16}:){{5}}{_LS32}",
        f"(?:{_H16})?::(?:{_H16}:){{4}}{_LS32}",
        f"(?:(?:{_H16}:){{0,1}}{_H16})?::(?:{_H16}:){{3}}{_LS32}",
        f"(?:(?:{_H16}:){{0,2}}{_H16})?::(?:{_H16}:){{2}}{_LS32}",
        f"(?:(?:{_H16}:){{0,3}}{_H16})?::{_H16}:{_LS32}",
        f"(?:(?:{_H16}:){{0,4}}{_H16})?::{_LS32}",
        f"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
        f"(?:(?:{_H16}:){{0,6}}{_H16})?::",
    ]
) + ")"  # fmt: skip

_YEAR: Final = "[0-9]{4}"
_LEAP: Final = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE: Final = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = rf"{_LABEL}(?:\.{_LABEL})*"
_ATEXT: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_QUOTED: Final = r'"(?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\[\x20-\x7e])*"'
_UNRESERVED: Final = r"[A-Za-z0-9._~-]"
_ESCAPED: Final = "%[0-9A-Fa-f]{2}"
_SUB: Final = r"[!$&'()*+,;=]"
_UCS: Final = (
    r"\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
    + "".join(rf"\U000{plane:x}0000-\U000{plane:x}fffd" for plane in range(1, 0xE))
    + r"\U000e1000-\U000efffd"
)
_PRIVATE: Final = r"\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"


def _uri(reference: bool, international: bool) -> str:
    extra = _UCS if international else ""
    plain = f"(?:[A-Za-z0-9._~{extra}-]|{_ESCAPED}|{_SUB}"
    char = f"{plain}|[:@])"
    userinfo = f"{plain}|:)*"
    name = f"{plain})*"
    literal = rf"\[(?:{_IPV6}|[vV][0-9A-Fa-f]+\.(?:{_UNRESERVED}|{_SUB}|:)+)\]"
    authority = f"(?:{userinfo}@)?(?:{literal}|{name})(?::[0-9]*)?"
    rooted = f"//{authority}(?:/{char}*)*"
    absolute = f"/(?:{char}+(?:/{char}*)*)?"
    rootless = f"{char}+(?:/{char}*)*"
    private = _PRIVATE if international else ""
    query = rf"(?:\?(?:{char}|[/?{private}])*)?"
    end = f"{query}(?:#(?:{char}|[/?])*)?"
    scheme = "[A-Za-z][A-Za-z0-9+.-]*:"
    if not reference:
        return f"{scheme}(?:{rooted}|{absolute}|{rootless}|){end}"
    # Most may follow a scheme or not, and is written once.
    first = f"{plain}|@)+"
    return f"(?:(?:{scheme})?(?:{rooted}|{absolute}|)|{scheme}{rootless}|{first}(?:/{char}*)*){end}"


_DAYS: Final = "[0-9]+D"
_TIME_PART: Final = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DURATION: Final = (
    f"P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:{_DAYS})?)?|[0-9]+M(?:{_DAYS})?|{_DAYS})(?:{_TIME_PART})?|{_TIME_PART})"
)
_POINTER: Final = r"(?:/(?:[^~/]|~[01])*)*"
_VARNAME: Final = f"(?:[A-Za-z0-9_]|{_ESCAPED})(?:\\.?(?:[A-Za-z0-9_]|{_ESCAPED}))*"
_VARSPEC: Final = rf"{_VARNAME}(?::[1-9][0-9]{{0,3}}|\*)?"
_TEMPLATE: Final = (
    rf"(?:[\x21\x23-\x24\x26-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e{_UCS}{_PRIVATE}]|{_ESCAPED}"
    rf"|\{{[+#./;?&=,!@|]?{_VARSPEC}(?:,{_VARSPEC})*\}})*"
)
_UQUOTED: Final = r'"(?:[\x20-\x21\x23-\x5b\x5d-\x7e\u0080-\U0010ffff]|\\[\x20-\x7e])*"'
_UATEXT: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\U0010ffff-]"
_ULABEL: Final = r"[A-Za-z0-9\u0080-\U0010ffff](?:[A-Za-z0-9\u0080-\U0010ffff-]*[A-Za-z0-9\u0080-\U0010ffff])?"

_PATTERNS: Final = {
    "date": _DATE,
    "duration": _DURATION,
    "email": rf"(?:{_ATEXT}+(?:\.{_ATEXT}+)*|{_QUOTED})@(?:{_DOMAIN}|\[(?:{_IPV4}|IPv6:{_IPV6})\])",
    "idn-email": rf"(?:{_UATEXT}+(?:\.{_UATEXT}+)*|{_UQUOTED})@{_ULABEL}(?:\.{_ULABEL})*",
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "iri": _uri(False, True),
    "iri-reference": _uri(True, True),
    "json-pointer": f"(?s:{_POINTER})",
    "relative-json-pointer": f"(?s:(?:0|[1-9][0-9]*)(?:#|{_POINTER}))",
    "uri": _uri(False, False),
    "uri-reference": _uri(True, False),
    "uri-template": _TEMPLATE,
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
}

#: Formats of the specification that are not regular, and why.
IRREGULAR: Final = {
    "idn-hostname": "which labels are valid depends on tables of contexts",
    "regex": "brackets nest",
}


#: The most characters for which the longest text of a format is found. All formats with a longest text are in ASCII.
_MOST_CHARACTERS: Final = 64
#: The file with the results of :func:`_as_numbers` for the formats in ``_PATTERNS`` and for ``hostname``.
_TABLES: Final = Path(__file__).with_name("format_tables.npz")


@cache
def format_automaton(name: str) -> Dfa:
    """The automaton of the texts that have a regular format of JSON Schema.

    Example:
        >>> format_automaton("date").fullmatch("2023-02-29"), format_automaton("date").fullmatch("2024-02-29")
        (False, True)
    """
    if name == "time":
        return times_of_day()
    if name == "date-time":
        return _followed(compile_pattern(_DATE + "[tT]", minimal=True), times_of_day())
    with np.load(_TABLES) as tables:
        return _from_numbers(tables[name])


@cache
def most_characters(name: str) -> int | None:
    """The characters of the longest text that has a regular format; ``None`` if there is no bound, or a large one.

    Example:
        >>> most_characters("ipv4"), most_characters("ipv6"), most_characters("uri")
        (15, 45, None)
    """
    automaton = format_automaton(name)
    reached = np.array([automaton.start])
    for length in range(_MOST_CHARACTERS + 1):
        following = np.unique(automaton.next[reached])
        reached = following[following >= 0]
        if not len(reached):
            return length
    return None


def compiled_formats() -> dict[str, Dfa]:
    """The automata of the formats whose tables are read from a file, made from their patterns."""
    found = {name: compile_pattern(pattern, minimal=True) for name, pattern in _PATTERNS.items()}
    # Labels with hyphens as third and fourth character are left out: such labels are A-labels or reserved, and no
    # automaton can tell whether an A-label decodes to a valid name. The length is bounded by an atom of its own.
    found["hostname"] = difference(compile_pattern(_DOMAIN), compile_pattern(r"(?:.*\.)?[^.]{2}--.*"))
    return found


def write_tables(path: Path = _TABLES) -> None:
    """Write the file of tables. Needed after a pattern has changed.

    Args:
        path: the path of the file; default: the file that :func:`format_automaton` reads.
    """
    # The function takes the arrays by name beside an argument of another type, so ``Any``.
    tables: Mapping[str, Any] = {name: _as_numbers(dfa) for name, dfa in compiled_formats().items()}
    np.savez_compressed(path, **tables)


def _as_numbers(dfa: Dfa) -> NDArray[np.int16]:
    """An automaton as ``[n] int16``: start, states, classes, the class of each byte, which states accept, the table."""
    sizes = np.array([dfa.start, *dfa.next.shape])
    numbers = np.concatenate([sizes, dfa.byte_class, dfa.accepting, dfa.next.ravel()])
    return np.asarray(numbers, dtype=np.int16)


def _from_numbers(numbers: NDArray[np.int16]) -> Dfa:
    start, states, classes = numbers[:3].tolist()
    byte_class, accepting, table = np.split(numbers[3:], [256, 256 + states])
    return Dfa(byte_class, table.reshape(states, classes), accepting != 0, start, trim=True)


def _followed(first: Dfa, second: Dfa) -> Dfa:
    """A text of ``first``, of which no longer text begins with it, and then a text of ``second``."""
    classes = np.stack([first.byte_class, second.byte_class])
    _, representative, byte_class = np.unique(classes, axis=1, return_index=True, return_inverse=True)
    # The second text begins where the first ends, so the accepting states of the first automaton are left out.
    inside = ~first.accepting
    count = int(inside.sum())
    number = np.append(np.where(inside, inside.cumsum() - 1, count + second.start), DEAD)
    before = number[first.next[inside][:, first.byte_class[representative]]]
    after = second.next[:, second.byte_class[representative]]
    after = np.where(after >= 0, after + count, after)
    accepting = np.append(np.zeros(count, dtype=bool), second.accepting)
    return Dfa(byte_class.ravel(), np.concatenate([before, after]), accepting, int(number[first.start]), trim=True)
