"""Checks of the arguments of public functions: the converted value, or an error that names argument and value.

Each function takes the value, the name of the argument, and the class of the error that it raises.
"""

from __future__ import annotations

import math
import numbers
import operator
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from logitloom.errors import LogitloomError

__all__ = [
    "MOST_ROWS",
    "about_messages",
    "flag",
    "id_lists",
    "ids",
    "instance",
    "names",
    "number",
    "number_of",
    "optional_ids",
    "printable",
    "seeds",
    "shown",
    "whole",
]

T = TypeVar("T")
Error = type[LogitloomError]
#: The largest integer that stands for a number of things, and the largest seed.
_MOST: Final = 2**63 - 1
#: More rows than any batch has.
MOST_ROWS: Final = 1 << 20


def shown(value: Any) -> str:
    """A value for a message, on one line, cut to 80 characters.

    Example:
        >>> shown([1, 2])
        '[1, 2]'
    """
    try:
        text = re.sub(r"\s*\n\s*", " ", f"{value!r:.80}")
        text.encode()
        return text
    except (RecursionError, ValueError):  # nested too deeply; an integer of thousands of digits
        return f"a {type(value).__name__}"


def printable(text: str) -> str:
    """A text with what no reader can see, or what would steer a terminal, written out.

    Example:
        >>> printable("a\\x1b[2Jb")
        'a\\\\x1b[2Jb'
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def whole(value: Any, name: str, error: Error, *, least: int | None = None, most: int = _MOST) -> int:
    """A whole number of a range; a truth value is none.

    Example:
        >>> from logitloom.errors import GenerationError
        >>> whole(3, "beams", GenerationError, least=1)
        3
        >>> whole("x", "beams", GenerationError, least=1)
        Traceback (most recent call last):
        logitloom.errors.GenerationError: The argument 'beams' must be a whole number of at least 1, but is 'x'.
    """
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    low = -_MOST - 1 if least is None else least
    if found is None or not low <= found <= most:
        limits = "" if least is None else f" of at least {least}"
        limits += f", at most {most}" if most < _MOST or (found is not None and found > most) else ""
        raise error(f"The argument {name!r} must be a whole number{limits}, but is {shown(value)}.")
    return found


def number(value: Any, name: str, error: Error) -> float:
    """A finite number, as a float."""
    found = math.nan
    if isinstance(value, numbers.Real):
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
    if not math.isfinite(found):
        raise error(f"The argument {name!r} must be a finite number, but is {shown(value)}.")
    return found


def flag(value: Any, name: str, error: Error) -> bool:
    """The truth of a value. A text has none, because "no" would be true, and an array of several numbers has none."""
    try:
        truth = None if isinstance(value, (str, bytes)) else bool(value)
    except (TypeError, ValueError):
        truth = None
    if truth is None:
        raise error(f"The argument {name!r} must be True or False, but is {shown(value)}.")
    return truth


def ids(value: Any, name: str, error: Error) -> tuple[int, ...]:
    """Token ids: a collection of whole numbers below 2**31."""
    listed = getattr(value, "tolist", None)
    found = listed() if callable(listed) and not isinstance(value, type) else value
    if isinstance(found, Iterable) and not isinstance(found, (str, bytes, Mapping)):
        tokens = _whole_numbers(list(found))
        if tokens is not None and (not tokens or (min(tokens) >= -(2**31) and max(tokens) < 2**31)):
            return tokens
    raise error(
        f"The argument {name!r} must be token ids, whole numbers below 2**31, but is {shown(value)}."
        f"{about_messages(value)}"
    )


def _whole_numbers(values: list[Any]) -> tuple[int, ...] | None:
    for read in (operator.index, lambda value: operator.index(number_of(value))):
        with suppress(TypeError):
            return tuple(map(read, values))
    return None


def number_of(value: Any) -> Any:
    """The number that a scalar or an array without axes is; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and callable(getattr(value, "item", None)) else value


def about_messages(value: Any) -> str:
    """The remedy, if what should be a prompt is what a tokenizer returns, or begins with a chat message; else empty.

    Example:
        >>> about_messages([{"role": "user", "content": "hi"}])[:45]
        ' Chat messages become a prompt with the token'
    """
    if isinstance(value, Mapping) and "input_ids" in value:
        return " Of what a tokenizer returns give the 'input_ids', one list per prompt and without padding."
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    if not isinstance(value, Mapping) or "role" not in value:
        return ""
    return (
        " Chat messages become a prompt with the tokenizer's chat template: "
        "tokenizer.apply_chat_template(messages, add_generation_prompt=True), in transformers also return_dict=False."
    )


def optional_ids(value: Any, name: str, error: Error) -> tuple[int, ...] | None:
    """Token ids, or ``None``."""
    return None if value is None else ids(value, name, error)


def id_lists(value: Any, name: str, error: Error) -> tuple[tuple[int, ...], ...]:
    """Token ids per row."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping, type)):
        raise error(f"The argument {name!r} must be a list of lists of token ids, but is {shown(value)}.")
    try:
        rows = list(value)
    except TypeError:  # an array without axes
        rows = [value]
    return tuple([ids(row, f"{name}[{n}]", error) for n, row in enumerate(rows)])


def seeds(value: Any, name: str, error: Error, *, least: int | None = None, most: int = _MOST) -> int | tuple[int, ...]:
    """A seed, or another whole number of a range, or one per row."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        return tuple([whole(seed, f"{name}[{n}]", error, least=least, most=most) for n, seed in enumerate(value)])
    return whole(value, name, error, least=least, most=most)


def names(value: Any, name: str, error: Error) -> tuple[str, ...]:
    """The texts of a collection, as a tuple; a single text is no collection."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, type)):
        found = list(value)
        if all(isinstance(text, str) for text in found):
            return tuple(found)
    raise error(f"The argument {name!r} must be a list of texts, but is {shown(value)}.")


def instance(value: Any, kind: type[T] | tuple[type[T], ...], name: str, error: Error, remedy: str = "") -> T:
    """An object of a class; ``remedy`` is a sentence for the message, but not if the value is the class itself."""
    if not isinstance(value, kind):
        if isinstance(value, type) and issubclass(value, kind):
            remedy = f"Make one: {value.__name__}(...)."
        kinds = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise error(f"The argument {name!r} must be a {kinds}, but is {shown(value)}. {remedy}".rstrip())
    return value
