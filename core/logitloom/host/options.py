"""Options that a plug-in declares as dataclass fields: parsed, checked, documented from one place."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import math
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass
from enum import Enum
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from logitloom.arguments import number_of, shown
from logitloom.errors import InvalidSignature, MissingOption, OptionError, OptionTypeError, UnknownOption
from logitloom.host.entry_points import PluginName
from logitloom.host.loading import rules

__all__ = ["Option", "arguments_of", "check", "check_object", "declared", "missing", "option", "settle", "values"]

Value = TypeVar("Value")
_REQUIRED: Any = MISSING


def option(
    default: Value = _REQUIRED,
    *,
    help: str,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: tuple[Any, ...] | None = None,
    unit: str | None = None,
    remedy: str = "",
    kw_only: bool | None = None,
) -> Value:
    """Declare an option as a field of a (frozen) dataclass.

    Args:
        default: value if none is given; left out, the option is required.
        help: one sentence for people.
        ge, gt, le, lt: range of a number, or of each number in a list or table.
        choices: the allowed values.
        unit: what the number counts, for the documentation.
        remedy: a sentence for values outside the range: what to do instead.
        kw_only: whether the option is given by name alone, and comes after the others, for classes that others derive
            from; default: as the dataclass says.

    Example:
        >>> @dataclass(frozen=True)
        ... class Halve:
        ...     times: int = option(1, help="How often.", ge=1, unit="times")
        >>> [o.signature for o in declared(Halve)]
        ['times: int = 1']
    """
    metadata = {"help": help, "ge": ge, "gt": gt, "le": le, "lt": lt, "choices": choices, "unit": unit}
    metadata["remedy"] = remedy
    by_name: Any = MISSING if kw_only is None else kw_only
    if isinstance(default, (list, dict, set)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata, kw_only=by_name)
    return dataclasses.field(default=default, metadata=metadata, kw_only=by_name)


@dataclass(frozen=True)
class Option:
    """One declared option, as ``describe`` and the documentation show it."""

    name: str
    type: Any
    required: bool
    default: Any
    help: str
    bounds: tuple[tuple[str, float], ...] = ()
    choices: tuple[Any, ...] | None = None
    unit: str | None = None
    remedy: str = ""

    @property
    def type_text(self) -> str:
        """The type as it is written in Python."""
        return _type_text(self.type)

    @property
    def range_text(self) -> str:
        """The range in signs, such as ``> 0, <= 1``; empty if there is none."""
        if self.choices is not None:
            return "one of " + ", ".join(repr(c) for c in self.choices)
        members = _members(self.type)
        if members:
            return "members " + ", ".join(repr(value) for value in members)
        return ", ".join(f"{sign} {bound:g}" for sign, bound in self.bounds)

    @property
    def signature(self) -> str:
        """``name: type = default``."""
        return f"{self.name}: {self.type_text}" + ("" if self.required else f" = {self.default!r}")


_SIGNS = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))


def declared(plugin: Any) -> tuple[Option, ...]:
    """The options of a plug-in class (or instance), in order. Anything but a dataclass has none.

    Raises:
        InvalidSignature: options are declared in a class that was not made a dataclass.
    """
    return _declared(plugin if isinstance(plugin, type) else type(plugin))


def values(plugin: Any) -> dict[str, Any]:
    """The options of a configured plug-in by name.

    Raises:
        InvalidSignature: a constructor of its own left one out.
    """
    for option in declared(plugin):
        if not hasattr(plugin, option.name):
            raise InvalidSignature(
                f"The option {option.name!r} of {PluginName(type(plugin))} has no value, because the class has an "
                f"'__init__' of its own. Leave it to the dataclass, and write '__post_init__' for what follows."
            )
    return {option.name: getattr(plugin, option.name) for option in declared(plugin)}


@functools.lru_cache(maxsize=512)
def _declared(cls: type) -> tuple[Option, ...]:
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if isinstance(value, dataclasses.Field):  # a dataclass puts the default in its place
                raise InvalidSignature(
                    f"The option {name!r} in {base.__qualname__!r} has no effect, because the class is no dataclass. "
                    f"Write @dataclass(frozen=True) above the class."
                )
    if not dataclasses.is_dataclass(cls):
        return ()
    hints = _type_hints(cls)
    found = []
    for field in sorted(dataclasses.fields(cls), key=lambda field: field.kw_only is True):
        if not field.init:
            continue
        meta = field.metadata
        default = field.default if field.default_factory is MISSING else field.default_factory()
        found.append(
            Option(
                name=field.name,
                type=hints[field.name],
                required=default is MISSING,
                default=None if default is MISSING else default,
                help=meta.get("help", ""),
                bounds=tuple((sign, meta[key]) for key, sign in _SIGNS if meta.get(key) is not None),
                choices=meta.get("choices"),
                unit=meta.get("unit"),
                remedy=meta.get("remedy", ""),
            )
        )
    return tuple(found)


def _type_hints(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields; one that only a type checker can see stays text and is not checked."""
    try:
        return typing.get_type_hints(cls)
    except NameError:
        hints: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            namespace = vars(sys.modules[base.__module__])
            for name, annotation in inspect.get_annotations(base).items():
                try:
                    hints[name] = eval(annotation, namespace) if isinstance(annotation, str) else annotation
                except NameError:
                    hints[name] = annotation
        return hints


def missing(plugin: Any, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of required options that ``values`` does not give."""
    return tuple(o.name for o in declared(plugin) if o.required and o.name not in values)


def arguments_of(plugin: Any) -> tuple[str, ...]:
    """The arguments with which a class, or the class of an object, is made; none if they are not known."""
    try:
        return tuple(inspect.signature(plugin if isinstance(plugin, type) else type(plugin)).parameters)
    except (TypeError, ValueError):
        return ()


def check(plugin: Any, values: Mapping[str, Any], owner: str | PluginName) -> dict[str, Any]:
    """The values, converted to the declared types and checked; missing options are not reported here.

    Conversions never lose anything: int to float, list to tuple and set, text to Path, the value of a member of an
    enumeration to the member, text keys to integer keys and members (as TOML and JSON need), scalars and arrays without
    axes to the number that they are.

    Raises:
        UnknownOption: with near matches.
        OptionTypeError: with the declared type; or if ``values`` is no table.
        OptionError: if a value is outside its range, or nested too deeply.
    """
    if not isinstance(values, Mapping):
        raise OptionTypeError(
            f"The options of {owner!r} must be a table, name to value, but are {shown(values)} "
            f"({type(values).__name__})."
        )
    by_name = {o.name: o for o in declared(plugin)}
    checked = {}
    for name, value in values.items():
        if name not in by_name:
            near = difflib.get_close_matches(str(name), by_name, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            have = f"Its options are {', '.join(by_name)}." if by_name else "It has no options."
            if not dataclasses.is_dataclass(plugin) and name in arguments_of(plugin):
                have += (
                    f" '__init__' takes {name!r}, but options are the fields of a frozen dataclass: {name}: float = "
                    f"option(...), for example."
                )
            raise UnknownOption(f"{owner!r} has no option {name!r}.{hint} {have}")
        try:
            checked[name] = _check_one(by_name[name], value, owner)
        except RecursionError:
            raise OptionError(f"Option {name!r} of {owner!r} is nested too deeply. Nest it less.") from None
    return checked


def settle(plugin: Any, owner: str | PluginName) -> None:
    """Check the options of an object and give it the converted values; for its constructor.

    Raises:
        OptionTypeError, OptionError: as :func:`check`.
    """
    given = values(plugin)
    for name, value in check(plugin, given, owner).items():
        if value is not given[name]:
            object.__setattr__(plugin, name, value)
    object.__setattr__(plugin, "_settled", True)


def check_object(plugin: Any, owner: str | PluginName) -> None:
    """Check the options of an object whose constructor did not.

    Raises:
        InvalidSignature: as :func:`values`.
        OptionTypeError, OptionError: as :func:`check`.
    """
    if not getattr(plugin, "_settled", False):
        check(plugin, values(plugin), owner)


def require(plugin: Any, values: Mapping[str, Any], owner: str | PluginName) -> None:
    """Raise if a required option is not given.

    Raises:
        MissingOption: naming all that are missing.
    """
    absent = missing(plugin, values)
    if absent:
        by_name = {o.name: o for o in declared(plugin)}
        listed = "; ".join(f"{by_name[n].signature} ({by_name[n].help})" for n in absent)
        raise MissingOption(
            f"{owner!r} needs {'these options' if len(absent) > 1 else 'the option'}: {listed}. Give a value."
        )


def _instead(o: Option, value: Any) -> str:
    """The remedy for one value in place of several, and for a compiled pattern in place of its text."""
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str) and "str" in o.type_text:
        flags = "".join(letter for letter in "aimsx" if value.flags & re.RegexFlag[letter.upper()])
        return f" Give its text: {(flags and f'(?{flags})') + value.pattern!r:.100}."
    with suppress(TypeError, ValueError, OverflowError):
        _convert(o.type, [value])
        return f" Give a list: {[value]!r:.60}."
    return ""


def _check_one(o: Option, value: Any, owner: str | PluginName) -> Any:
    try:
        converted = _convert(o.type, value)
    except OverflowError as error:
        entry = _wrong_entry(o.type, value)
        raise OptionError(f"Option {o.name!r} of {owner!r} must be {error}, but is {value!s:.100}{entry}.") from None
    except (TypeError, ValueError):
        members = f" ({o.range_text})" if _members(o.type) else ""
        raise OptionTypeError(
            f"Option {o.name!r} of {owner!r} must be {o.type_text}{members}, but is {shown(value)} "
            f"({type(value).__name__}){_wrong_entry(o.type, value)}."
            f"{_instead(o, value)}"
        ) from None
    if converted is None:
        return converted
    if isinstance(converted, Mapping) and len(converted) < len(value):
        wrong = f"Option {o.name!r} of {owner!r} has a key twice, in two forms: {value!r:.100}."
        raise OptionError(f"{wrong} Give each key once.")
    if rules().guard is not None and any(isinstance(leaf, Path) for _, leaf in _leaves(converted)):
        raise OptionError(f"Option {o.name!r} of {owner!r} is a path, and a request may not name files.")
    if not _encodable(converted):
        raise OptionError(
            f"Option {o.name!r} of {owner!r} holds half a surrogate pair, which is no character: {value!r:.100}. Give "
            f"whole characters."
        )
    if o.choices is not None and converted not in o.choices:
        raise OptionError(f"Option {o.name!r} of {owner!r} must be {o.range_text}, but is {value!r:.100}.")
    for place, number in _leaves(converted) if o.bounds else ():
        if isinstance(number, (int, float)) and not isinstance(number, bool) and not _within(number, o.bounds):
            unit = f" {o.unit}" if o.unit else ""
            entry = _entry(place, number) if place else ""
            wrong = f"Option {o.name!r} of {owner!r} must be {o.range_text}{unit}, but is {value!r:.100}{entry}."
            raise OptionError(f"{wrong} {o.remedy}".rstrip())
    return converted


_COMPARE = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


def _within(number: float, bounds: tuple[tuple[str, float], ...]) -> bool:
    if math.isnan(number):
        return False
    return all(_COMPARE[sign](number, bound) for sign, bound in bounds)


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """What lists and tables hold at any depth, keys left out, each with its place, as ``[3][0]``; anything else itself,
    without a place.
    """
    if isinstance(value, (Mapping, *_COLLECTIONS)):
        for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(part, f"{place}[{key!r}]")
    else:
        yield place, value


def _entry(place: str, part: Any) -> str:
    """The end of a sentence that names a part of a list or table."""
    return f", in which entry {place} is {shown(part)} ({type(part).__name__})"


def _wrong_entry(kind: Any, value: Any, place: str = "") -> str:
    """The end of a sentence that names the first part of a value that has another type than it should have."""
    for key, inner, part in _parts(kind, value):
        try:
            _convert(inner, part)
        except (TypeError, ValueError, OverflowError):
            return _wrong_entry(inner, part, f"{place}[{key!r}]")
    return _entry(place, value) if place else ""


def _parts(kind: Any, value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The keys, declared types and values of what a list or table holds, if its type says what it should hold."""
    kinds = [each for each in get_args(kind) if each is not types.NoneType]
    if get_origin(kind) in (Union, types.UnionType):
        yield from _parts(kinds[0], value) if len(kinds) == 1 else ()
    elif get_origin(kind) is dict and isinstance(value, Mapping):
        yield from ((key, kinds[1], part) for key, part in value.items())
    elif get_origin(kind) in _COLLECTIONS and isinstance(value, _COLLECTIONS):
        yield from ((place, kinds[0], part) for place, part in enumerate(value) if kinds[1:] in ([], [...]))


def _encodable(value: Any) -> bool:
    """Whether texts in a value have only whole characters. Schemas and other chains check their own texts."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    elif isinstance(value, Mapping):
        return all(isinstance(part, (Mapping, list)) or _encodable(part) for pair in value.items() for part in pair)
    elif isinstance(value, (tuple, set, frozenset)):
        return all(map(_encodable, value))
    return True


#: Whole numbers are below it, as counts and ids are: arrays hold them in 32 bits.
_WHOLE = 1 << 31
#: The largest 32-bit floating number, as logits are computed in.
_LARGEST = float.fromhex("0x1.fffffep127")

#: Types that a list becomes.
_COLLECTIONS = (tuple, list, set, frozenset)
#: Types whose values need no conversion; most options have one of these types.
_PLAIN = (bool, str)


def _convert(kind: Any, value: Any) -> Any:
    if kind in _PLAIN and type(value) is kind:
        return value
    if kind in _SIMPLE:
        return _SIMPLE[kind](number_of(value))
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any or isinstance(kind, str):
        return value
    if origin is Literal:
        if number_of(value) not in args:
            raise ValueError(value)
        return number_of(value)
    if origin in (Union, types.UnionType):
        return _one_of(args, value)
    if origin in _COLLECTIONS or kind in _COLLECTIONS:
        return _sequence(origin or kind, args, value)
    if origin is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
        key_type, value_type = args
        return {_convert_key(key_type, k): _convert(value_type, v) for k, v in _only(Mapping, value).items()}
    if isinstance(kind, type):
        return _member(kind, value) if issubclass(kind, Enum) else _only(kind, value)
    if origin is type:
        return _subclass(args[0], value)
    if callable(value) or origin is None:
        return value
    return _only(origin, value)


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    # An exact fit first, so that 1 stays an int for "float | int" and None a None.
    for kind in sorted(kinds, key=lambda a: a is not type(number_of(value))):
        try:
            return _convert(kind, value)
        except (TypeError, ValueError):
            continue
    raise TypeError(value)


def _subclass(kind: Any, value: Any) -> Any:
    if not isinstance(value, type) or (isinstance(kind, type) and kind is not Any and not issubclass(value, kind)):
        raise TypeError(value)
    return value


def _only(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise TypeError(value)
    if isinstance(value, (int, float)) or hasattr(value, "__index__"):
        number = int(value) if isinstance(value, float) else operator.index(value)
        if not -_WHOLE <= number < _WHOLE:
            raise OverflowError(f"within {-_WHOLE} and {_WHOLE - 1}")
        return number
    raise TypeError(value)


def _real(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError(value)
    if _LARGEST < abs(_only(Real, value)) < math.inf:
        raise OverflowError(f"within {-_LARGEST:g} and {_LARGEST:g}, the range of 32-bit floating numbers")
    return float(value)


#: Conversions to types without arguments.
_SIMPLE: dict[Any, Callable[[Any], Any]] = {
    None: functools.partial(_only, types.NoneType),
    types.NoneType: functools.partial(_only, types.NoneType),
    bool: functools.partial(_only, bool),
    int: _integer,
    float: _real,
    Path: lambda value: Path(_only((str, Path), value)),
}


def _convert_key(kind: Any, key: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        key = next((member for member in kind if str(member.value) == key), key)
    return int(key) if kind is int and isinstance(key, str) else _convert(kind, key)


def _member(kind: type[Enum], value: Any) -> Enum:
    """The member of an enumeration that a value is, or that has the value."""
    if isinstance(value, kind):
        return value
    value = tuple(value) if isinstance(value, list) else number_of(value)
    found = kind(value)
    if type(found.value) is not type(value):  # True is no 1
        raise TypeError(value)
    return found


def _members(kind: Any) -> tuple[Any, ...]:
    """The values of the members of the enumerations in a type."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(member.value for member in kind)
    return tuple(value for part in get_args(kind) if get_origin(kind) is not type for value in _members(part))


def _sequence(kind: type, args: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise TypeError(value)
    items = list(value)
    if kind is tuple and args and args[-1] is not Ellipsis:
        if len(items) != len(args):
            raise TypeError(value)
        return tuple(_convert(a, v) for a, v in zip(args, items, strict=True))
    item_type = args[0] if args else Any
    return kind(_convert(item_type, v) for v in items)


def _type_text(kind: Any) -> str:
    if kind is type(None):
        return "None"
    if get_origin(kind) in (Union, types.UnionType):
        return " | ".join(_type_text(a) for a in get_args(kind))
    if isinstance(kind, type) and not get_args(kind):
        return kind.__name__
    return str(kind).replace("typing.", "").replace("pathlib.", "")
