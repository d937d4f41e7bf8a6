"""Patterns of the texts of numbers between bounds, and of the names that are read as numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

__all__ = ["names_of_numbers", "whole_numbers"]

#: The most multiples that are listed as names, the largest whole number as a name, and the most digits after a point
#: where the type gives no number.
_MOST_KEYS: Final = 1000
_LARGEST: Final = 10**15 - 1
_MOST_PLACES: Final = 6
#: From this magnitude on, 64-bit floats do not distinguish all numbers with so many digits after a point.
_COARSE: Final = 10**9
_BOUNDS: Final = ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum")


def names_of_numbers(keys: dict[str, Any]) -> dict[str, Any]:
    """The schema of the names that are read as numbers.

    Args:
        keys: the schema of the numbers, with ``type`` ``integer`` or ``number``.

    Example:
        >>> names_of_numbers({"type": "integer", "minimum": 8, "maximum": 10})
        {'pattern': '^(?:[8-9]|10)$'}
        >>> names_of_numbers({"type": "number", "exclusiveMinimum": 0, "maximum": 0.3, "multipleOf": 0.1})
        {'pattern': '^(?:0\\\\.[1-3])$'}
    """
    step = Fraction(str(keys.get("multipleOf", Fraction(1, 10**_MOST_PLACES))))
    if keys["type"] == "integer":
        step = Fraction(step.numerator)
    places = len(str(step.denominator)) - 1
    least, most = _multiples(keys, step)
    if step != Fraction(1, 10**places):
        listed = range(max(least, -_MOST_KEYS // 2), most + 1)[:_MOST_KEYS]
        return {"enum": [f"{Decimal(each * step.numerator) / step.denominator:f}" for each in listed]}
    ways = [*_decimals(max(least, 0), most, places)]
    if least < 0:
        ways += [f"-{way}" for way in _decimals(max(-most, 0 if places else 1), -least, places)]
    return {"pattern": f"^(?:{'|'.join(ways)})$"} if ways else {"enum": []}


def _multiples(keys: dict[str, Any], step: Fraction) -> tuple[int, int]:
    """The first and the last multiple of a step that a schema of numbers allows, as numbers of steps."""
    bounds = {keyword: Fraction(str(value)) for keyword, value in keys.items() if keyword in _BOUNDS}
    least, most = [-_LARGEST // step], [_LARGEST // step]
    if "minimum" in bounds:
        least.append(math.ceil(bounds["minimum"] / step))
    if "exclusiveMinimum" in bounds:
        least.append(_behind(bounds["exclusiveMinimum"], step))
    if "maximum" in bounds:
        most.append(bounds["maximum"] // step)
    if "exclusiveMaximum" in bounds:
        most.append(-_behind(-bounds["exclusiveMaximum"], step))
    return max(least), min(most)


def _behind(bound: Fraction, step: Fraction) -> int:
    """The first multiple of a step behind a bound that a 64-bit float distinguishes from the bound, in steps."""
    apart = step if abs(bound) < _COARSE else max(step, Fraction(1))
    return math.ceil((bound // apart + 1) * apart / step)


def _decimals(least: int, most: int, places: int) -> Iterator[str]:
    """Patterns of the numbers with at most so many digits after a point.

    Args:
        least: the first number, not negative, in units of the last place.
        most: the last number.
        places: of digits after the point.

    Example:
        >>> [*_decimals(25, 200, 2)]
        ['[1-2]', '1\\\\.[0-9]{1,2}', '0\\\\.[3-9]', '0\\\\.(?:2[5-9]|[3-9][0-9]{1})']
    """
    unit = 10**places
    first, last = -(-least // unit), most // unit
    yield from whole_numbers(first, last)
    if not places:
        return
    yield from (rf"{way}\.[0-9]{{1,{places}}}" for way in whole_numbers(first, min(last - 1, _LARGEST // 10)))
    # Beside a bound that is not whole, or in front of the last whole number.
    for whole in sorted({bound // unit for bound in (least, most) if bound % unit}):
        for digits in range(1, places + 1):
            begin, rest = whole * 10**digits, 10 ** (places - digits)
            low, high = max(-(-least // rest) - begin, 0), min(most // rest - begin, 10**digits - 1)
            if low <= high:
                yield rf"{whole}\.{_of_equal_length(f'{low:0{digits}d}', f'{high:0{digits}d}')}"


def whole_numbers(least: int, most: int) -> Iterator[str]:
    """Patterns of the numbers from ``least``, which is not negative, to ``most``.

    Example:
        >>> [*whole_numbers(7, 12345)]
        ['[7-9]', '[1-9][0-9]{1,3}', '1(?:[0-1][0-9]{3}|2(?:[0-2][0-9]{2}|3(?:[0-3][0-9]{1}|4[0-5])))']
    """
    while least <= most:
        digits, whole = len(str(least)), len(str(most + 1)) - 1
        if least == 10 ** (digits - 1) and digits <= whole:
            yield f"[1-9][0-9]{{{digits - 1},{whole - 1}}}"
            least = 10**whole
        else:
            last = min(most, 10**digits - 1)
            yield _of_equal_length(str(least), str(last))
            least = last + 1


def _of_equal_length(least: str, most: str) -> str:
    """The pattern of the numbers between two of as many digits.

    Example:
        >>> _of_equal_length("305", "999")
        '(?:3(?:0[5-9]|[1-9][0-9]{1})|[4-9][0-9]{2})'
    """
    if not least:
        return ""
    if least[0] == most[0]:
        return least[0] + _of_equal_length(least[1:], most[1:])
    rest, first, last = len(least) - 1, int(least[0]), int(most[0])
    begin, end = [], []
    if least[1:] != "0" * rest:
        begin, first = [least[0] + _of_equal_length(least[1:], "9" * rest)], first + 1
    if most[1:] != "9" * rest:
        end, last = [most[0] + _of_equal_length("0" * rest, most[1:])], last - 1
    between = [f"[{first}-{last}]" + (f"[0-9]{{{rest}}}" if rest else "")] if first <= last else []
    ways = begin + between + end
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"
