"""The texts of networks and interfaces: an address that may have a number of bits behind it.

References:
    RFC 4632, "Classless Inter-domain Routing (CIDR)", 2006.
    RFC 4291, "IP Version 6 Addressing Architecture", 2006.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from logitloom_plugins.schema_sources.number_patterns import whole_numbers

__all__ = ["NETWORKS"]

_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_GROUP: Final = "[0-9a-fA-F]{1,4}"
_IPV6: Final = f"(?:{_GROUP}(?::{_GROUP}){{7}}|(?:{_GROUP}(?::{_GROUP}){{0,3}})?::(?:{_GROUP}(?::{_GROUP}){{0,2}})?)"


def _bits(least: int, most: int) -> str:
    """The pattern of a slash and a number."""
    return f"/(?:{'|'.join(whole_numbers(least, most))})"


def _ipv4_networks() -> Iterator[str]:
    """Patterns of the networks, by the number of bits behind which all bits are 0."""
    yield rf"{_IPV4}(?:/32)?|0\.0\.0\.0/0"
    for bits in range(1, 32):
        before, within = divmod(bits - 1, 8)
        last = "|".join(map(str, range(0, 256, 128 >> within)))
        yield rf"(?:{_BYTE}\.){{{before}}}(?:{last})(?:\.0){{{3 - before}}}/{bits}"


def _ipv6_networks() -> Iterator[str]:
    """Patterns of networks that end in ``::``, with at least the bits of the groups before it."""
    for groups in range(8):
        yield f"(?:{_GROUP}:){{{groups}}}{':' if groups else '::'}{_bits(16 * groups, 128)}"


_NETWORK_4: Final[dict[str, Any]] = {"pattern": f"^(?:{'|'.join(_ipv4_networks())})$"}
_NETWORK_6: Final[dict[str, Any]] = {"anyOf": [{"format": "ipv6"}, {"pattern": f"^(?:{'|'.join(_ipv6_networks())})$"}]}
_INTERFACE_4: Final[dict[str, Any]] = {"pattern": f"^{_IPV4}(?:{_bits(0, 32)})?$"}
_INTERFACE_6: Final[dict[str, Any]] = {"anyOf": [{"format": "ipv6"}, {"pattern": f"^{_IPV6}{_bits(0, 128)}$"}]}
#: Formats of pydantic -> the schema of their texts.
NETWORKS: Final = {
    "ipv4interface": _INTERFACE_4,
    "ipv4network": _NETWORK_4,
    "ipv6interface": _INTERFACE_6,
    "ipv6network": _NETWORK_6,
    "ipvanyinterface": {"anyOf": [_INTERFACE_4, *_INTERFACE_6["anyOf"]]},
    "ipvanynetwork": {"anyOf": [_NETWORK_4, *_NETWORK_6["anyOf"]]},
}
