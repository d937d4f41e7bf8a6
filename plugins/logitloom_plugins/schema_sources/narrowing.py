"""Schemas of Python types, narrowed to the texts that the types' libraries read.

The libraries describe some types with schemas that other texts satisfy, too: pydantic says of a ``Decimal`` that it may
be any string, and nothing of the keys of a ``dict[int, str]``; ``datetime`` has no leap seconds, which the format
``date-time`` has. A text that satisfies a narrowed schema is read as an object of the type.

References:
    RFC 3339, "Date and Time on the Internet: Timestamps", 2002 (leap seconds, years).
    RFC 4648, "The Base16, Base32, and Base64 Data Encodings", 2006.
"""

from __future__ import annotations

import datetime
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from logitloom.errors import OptionError
from logitloom_plugins.schema_sources.networks import NETWORKS
from logitloom_plugins.schema_sources.number_patterns import names_of_numbers, whole_numbers
from logitloom_plugins.schema_sources.regexes import narrow_pattern

__all__ = [
    "DATE",
    "FORMATS_OF_CLASSES",
    "TIME",
    "ZONE",
    "finite_numbers",
    "narrowed_format",
    "pattern_of_base64",
    "pydantic_generator",
]

_HEX: Final = "[0-9a-fA-F]"
#: An address that a library writes as it was given: with a path, and without a port, dots for folders, or escapes.
_AS_GIVEN: Final = r"[^:]+://[^/:?#]+(?:/|(?:/[\w~-][\w.~-]*)+/?)(?:\?[\w.~=&-]*)?(?:#[\w.~-]*)?$"
_LABEL: Final = "[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*"
_HOST: Final = rf"{_LABEL}(?:\.{_LABEL})*"
_SCHEME: Final = "[A-Za-z][A-Za-z0-9+.-]*"
_HOSTLESS: Final = "data|mailto|news|tel|urn"
#: Formats of bytes as text -> the letters that stand for six bits each.
_BASE64: Final = {"base64": "[A-Za-z0-9+/]", "base64url": "[A-Za-z0-9_-]"}
_LEAP_YEAR: Final = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DAY: Final = "(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31"
DATE: Final = rf"(?!0000)(?:[0-9]{{4}}-(?:{_DAY})|{_LEAP_YEAR}-02-29)"
_HOUR: Final = "(?:[01][0-9]|2[0-3])"
_CLOCK: Final = f"{_HOUR}:[0-5][0-9]:[0-5][0-9]"
TIME: Final = rf"{_CLOCK}(?:\.[0-9]{{1,6}})?"
ZONE: Final = f"(?:Z|[+-]{_HOUR}:[0-5][0-9])"
#: In place of formats. Python has neither the year 0 nor leap seconds, whose format is a large automaton.
_INSTEAD: Final[dict[str, dict[str, Any]]] = {
    "date": {"pattern": f"^(?:{DATE})$"},
    "date-time": {"pattern": f"^(?:{DATE}T{TIME}{ZONE})$"},
    "time": {"pattern": f"^(?:{TIME}{ZONE})$"},
    "ipvanyaddress": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
    **NETWORKS,
    **{
        f"uuid{version}": {"format": "uuid", "pattern": f"^{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-[89abAB]"}
        for version in range(1, 9)
    },
}
#: Beside formats. A ``timedelta`` has neither years nor months.
_BESIDE: Final[dict[str, str]] = {
    "duration": "^P(?:[0-9]{1,6}D)?(?:T(?:[0-9]{1,6}H)?(?:[0-9]{1,6}M)?(?:[0-9]{1,6}S)?)?$",
    "decimal": r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?$",
    "fraction": "^-?(?:0|[1-9][0-9]*)(?:/[1-9][0-9]*)?$",
    "email": rf"^[A-Za-z0-9]+(?:[._+-][A-Za-z0-9]+)*@(?:{_LABEL}\.)+[A-Za-z]{{2,}}$",
}
#: Formats that libraries write in the schemas of classes, and that are no formats of JSON Schema.
FORMATS_OF_CLASSES: Final = frozenset((*_INSTEAD, *_BESIDE, *_BASE64))
#: Numbers between these bounds are finite where a library reads them as 64-bit floats.
_FINITE: Final = {"minimum": -1e300, "maximum": 1e300}
_PART: Final = r"(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,16})?"
_COMPLEX: Final = f"^-?{_PART}(?:[+-]{_PART}j)?$"
#: In place of a pattern of pydantic, that of ``ByteSize``, which allows any word as the unit.
_BYTE_SIZE: Final = r"^\s*(\d*\.?\d+)\s*(\w+)?"
_SIZE: Final = r"^(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,3})? ?(?:[Bb]|[KkMmGgTtPpEe]i?[Bb])?$"
#: The whitespace that pydantic strips from texts.
_NO_SPACE: Final = r"[^\s\x85]"
_STRIPPED: Final = rf"^(?:{_NO_SPACE}(?:[\s\S]*{_NO_SPACE})?)?$"
#: Keywords of keys that say nothing of names, or that pydantic writes elsewhere.
_OF_KEYS: Final = frozenset(("pattern", "title", "type"))
_ADDRESSES: Final = ("multi-host-uri", "uri")
_LENGTHS: Final = ("minLength", "maxLength")
_FIELDS: Final = ("dataclass-args", "model-fields", "typed-dict")
_WITH_FIELDS: Final = ("dataclass", "model", "typed-dict")
#: Keywords of bounds.
_BOUNDS: Final = ("ge", "gt", "le", "lt")
#: Their keywords in schemas, and the whole numbers that say the same of whole numbers.
_WHOLE: Final = (
    ("ge", "minimum", math.ceil), ("gt", "exclusiveMinimum", math.floor),
    ("le", "maximum", math.floor), ("lt", "exclusiveMaximum", math.ceil),
)  # fmt: skip
_SECOND: Final = datetime.timedelta(seconds=1)
_DAY_SECONDS: Final = 24 * 60 * 60 - 1
_ALL_SECONDS: Final = (datetime.datetime.max - datetime.datetime.min) // _SECOND
#: The units of durations, their seconds, and how many of them pydantic reads: days, and seconds within 32 bits.
_UNITS: Final = (
    ("P{}D", 24 * 60 * 60, 10**9 - 1), ("PT{}H", 60 * 60, 10**6), ("PT{}M", 60, 10**7), ("PT{}S", 1, 2**32 - 1)
)  # fmt: skip
#: Letters of addresses are not counted so far: with a count, a name or a string without quotes has too many states.
_LONG_ADDRESS: Final = 1000
#: A 64-bit float, through which pydantic reads a ``Decimal`` with digits after its point, keeps so many digits.
_EXACT_DIGITS: Final = 15
#: The most digits after a point where the type gives no number, or a large one.
_MOST_PLACES: Final = 10


def narrowed_format(schema: dict[str, Any]) -> None:
    """Narrow the strings of a subschema with a format, or with a pattern that stands for one, in place.

    Example:
        >>> schema = {"type": "string", "format": "uuid4"}
        >>> narrowed_format(schema)
        >>> sorted(schema), schema["format"]
        (['format', 'pattern', 'type'], 'uuid')
    """
    if schema.get("pattern") == _BYTE_SIZE:
        schema["pattern"] = _SIZE
    name = schema.get("format") or schema.get("contentEncoding")
    if schema.get("type", "string") != "string" or not isinstance(name, str):
        return
    if name in _INSTEAD:
        schema.pop("format", None)
        _add(schema, _INSTEAD[name])
    elif name in _BESIDE:
        _add(schema, {"pattern": _BESIDE[name]})
    elif name in _BASE64:
        least, most = (schema.pop(keyword, None) if "format" in schema else None for keyword in _LENGTHS)
        _add(schema, {"pattern": pattern_of_base64(least or 0, most, name)})
    elif name in _ADDRESSES and ("maxLength" in schema or schema.get("minLength", 1) > 1) and "pattern" in schema:
        # The lengths are those of the address as pydantic writes it.
        schema["pattern"] = f"^(?={_AS_GIVEN}){schema['pattern'].removeprefix('^')}"


def pattern_of_base64(least: int, most: int | None, form: str = "base64") -> str:
    """The pattern of the texts of bytes in base64, with padding and without trailing bits.

    Args:
        least: the least number of bytes.
        most: the largest number of bytes; ``None`` for no bound.
        form: ``base64`` or ``base64url``.

    Example:
        >>> pattern_of_base64(1, 2)
        '^(?:(?:[A-Za-z0-9+/]{4}){0,0}[A-Za-z0-9+/][AQgw]==|(?:[A-Za-z0-9+/]{4}){0,0}[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)$'
    """
    letter, ways = _BASE64[form], []
    for beyond, end in enumerate(("", f"{letter}[AQgw]==", f"{letter}{{2}}[AEIMQUYcgkosw048]=")):
        first = max(0, -(-(least - beyond) // 3))
        last = None if most is None else (most - beyond) // 3
        if last is None or first <= last:
            ways.append(f"(?:{letter}{{4}}){{{first},{'' if last is None else last}}}{end}")
    return f"^(?:{'|'.join(ways)})$"


def finite_numbers(schema: dict[str, Any]) -> None:
    """Bound the numbers of a subschema, in place, for libraries that refuse what a 64-bit float cannot hold.

    Example:
        >>> schema = {"type": "number", "minimum": 0}
        >>> finite_numbers(schema)
        >>> schema["minimum"], schema["maximum"]
        (0, 1e+300)
    """
    if schema.get("type") == "number":
        schema.update({**_FINITE, **schema})


def _add(schema: dict[str, Any], more: dict[str, Any]) -> None:
    """Add keywords to a schema: in ``allOf`` if it has one of them, else outside, as strict mode refuses ``allOf``."""
    if schema.keys().isdisjoint(more):
        schema.update(more)
    else:
        schema["allOf"] = [*schema.get("allOf", []), more]


def _generator_of_times() -> Any:
    """The class with which pydantic makes schemas whose dates and times are narrowed."""
    from pydantic.json_schema import GenerateJsonSchema

    class NarrowedTimes(GenerateJsonSchema):  # type: ignore[misc]
        def date_schema(self, schema: Any) -> Any:
            return _days(super().date_schema(schema), schema, "", 0)

        def datetime_schema(self, schema: Any) -> Any:
            # In another zone it may be the day before or after, for both of two times.
            return _days(super().datetime_schema(schema), schema, f"T{TIME}{_zone(schema)}", 2)

        def time_schema(self, schema: Any) -> Any:
            return _clock(super().time_schema(schema), schema)

        def timedelta_schema(self, schema: Any) -> Any:
            return _duration(super().timedelta_schema(schema), schema)

    return NarrowedTimes


def _generator_of_keys() -> Any:
    """The class with which pydantic makes schemas whose dates, times and names are narrowed."""

    class NarrowedKeys(_generator_of_times()):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            #: The names that are read as members of an enum of numbers, by the reference to the enum.
            self.members: dict[str, list[str]] = {}

        def generate_inner(self, schema: Any) -> Any:
            if schema["type"] in _WITH_FIELDS:
                _check_aliases(schema)
            return super().generate_inner(schema)

        def definitions_schema(self, schema: Any) -> Any:
            # Classes with fields last, because their fields may be dicts whose keys have types among the others.
            ordered = sorted(schema["definitions"], key=lambda each: each["type"] in _WITH_FIELDS)
            return super().definitions_schema({**schema, "definitions": ordered})

        def enum_schema(self, schema: Any) -> Any:
            if schema.get("sub_type") in ("float", "int"):
                _, reference = self.get_cache_defs_ref_schema(schema["ref"])
                self.members[reference["$ref"]] = [str(member.value) for member in schema["members"]]
            return super().enum_schema(schema)

        def dict_schema(self, schema: Any) -> Any:
            return _named(self, super().dict_schema(schema), schema)

        def frozendict_schema(self, schema: Any) -> Any:
            return _named(self, super().frozendict_schema(schema), schema)

        def ordered_dict_schema(self, schema: Any) -> Any:
            return _named(self, super().ordered_dict_schema(schema), schema)

        def counter_schema(self, schema: Any) -> Any:
            return _named(self, super().counter_schema(schema), schema)

    return NarrowedKeys


@functools.cache
def pydantic_generator() -> Any:
    """The class with which pydantic makes narrowed schemas."""

    class NarrowedSchemas(_generator_of_keys()):  # type: ignore[misc]
        def decimal_schema(self, schema: Any) -> Any:
            return _decimal(super().decimal_schema(schema), schema)

        def float_schema(self, schema: Any) -> Any:
            found = super().float_schema(schema)
            return {**_FINITE, **found} if schema.get("allow_inf_nan") is False else found

        def str_schema(self, schema: Any) -> Any:
            found = super().str_schema(schema)
            narrowed_format(found)
            narrow_pattern(found, (schema.get("regex_engine") or self._config.regex_engine) != "python-re")
            if schema.get("strip_whitespace", self._config.str_strip_whitespace):
                _add(found, {"pattern": _STRIPPED})
            return found

        def complex_schema(self, schema: Any) -> Any:
            return {**super().complex_schema(schema), "pattern": _COMPLEX}

        def fraction_schema(self, schema: Any) -> Any:
            return _fraction(super().fraction_schema(schema), schema)

        def bytes_schema(self, schema: Any) -> Any:
            found = super().bytes_schema(schema)
            least, most = schema.get("min_length") or 0, schema.get("max_length")
            if self._config.val_json_bytes == "base64":
                return {"type": "string", "pattern": pattern_of_base64(least, most, "base64url")}
            if self._config.val_json_bytes == "hex":
                return {"type": "string", "pattern": f"^(?:{_HEX}{{2}}){{{least},{'' if most is None else most}}}$"}
            if "maxLength" in found and found.get("format") == "binary":  # it counts bytes, and letters here
                _add(found, {"pattern": r"^[\x00-\x7f]*$"})
            return found

        def url_schema(self, schema: Any) -> Any:
            return _url(super().url_schema(schema), schema)

        def multi_host_url_schema(self, schema: Any) -> Any:
            return _url(super().multi_host_url_schema(schema), schema)

        def union_schema(self, schema: Any) -> Any:
            return _with_sets(super().union_schema(schema))

    return NarrowedSchemas


def _check_aliases(schema: dict[str, Any]) -> None:
    """Refuse a class with a field that is read from a path alone; pydantic's schema has the field's own name."""
    config, held = schema.get("config", {}), schema
    while "schema" in held and held["type"] not in _FIELDS:
        held = held["schema"]
    fields = held.get("fields", {}) if held["type"] in _FIELDS else {}
    if config.get("populate_by_name") or config.get("validate_by_name"):
        return
    for name, field in fields.items() if isinstance(fields, dict) else ((each["name"], each) for each in fields):
        alias = field.get("validation_alias")
        if isinstance(alias, list) and not any(isinstance(way, list) and len(way) == 1 for way in alias):
            raise OptionError(
                f"The field {name!r} of the class {schema['cls'].__name__} has the alias {alias!r:.80}, a path, and a "
                f"member of a JSON object has a name. Give the field a name beside the path (AliasChoices), or allow "
                f"its own name (populate_by_name=True)."
            )


def _named(generator: Any, found: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The objects of a type of dicts, with the names that are read as its keys."""
    if "patternProperties" in found:
        found.setdefault("additionalProperties", False)
    if "keys_schema" in schema:
        keys = generator.generate_inner(schema["keys_schema"])
        names = _names(generator, keys)
        # Before pydantic 2.10 nothing is said of any keys but those with a pattern.
        if names is None and "propertyNames" not in found:
            names = {keyword: each for keyword, each in keys.items() if keyword not in _OF_KEYS}
        if names:
            found["propertyNames"] = names
    return found


def _fraction(found: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The numbers and texts of a ``Fraction``; with bounds its numbers, because a string would not be held to them."""
    number, text = found["anyOf"]
    number = {**_FINITE, **number}
    return {"anyOf": [number, text]} if {"ge", "gt", "le", "lt"}.isdisjoint(schema) else number


def _decimal(found: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a ``Decimal``; a string would not be held to its bounds.

    Args:
        found: pydantic's schema, a number or a string.
        schema: the type, with at most ``max_digits`` digits and ``decimal_places`` of them after the point.
    """
    number = next((part for part in found.get("anyOf", ()) if part.get("type") == "number"), None)
    if number is None:
        return found
    digits, places = schema.get("max_digits"), schema.get("decimal_places")
    number = {**_FINITE, **number}
    every: Iterable[int]
    if places is not None and (places <= _EXACT_DIGITS // 2 or (digits or math.inf) <= _EXACT_DIGITS):
        every = (places if digits is None else min(places, digits),)
    elif places is not None or digits is not None:
        every = range(min(places or _MOST_PLACES, digits or _MOST_PLACES, _MOST_PLACES) + 1)
    elif "multipleOf" in number:
        every = (len(f"{Decimal(str(number['multipleOf'])):f}".partition(".")[2]),)
    else:
        return number
    ways = []
    for after in every:
        scaled = Fraction(str(number.get("multipleOf", f"1e-{after}"))) * 10**after
        way = {**number, "multipleOf": float(Fraction(scaled.numerator, 10**after))}
        if not after:  # pydantic reads whole numbers exactly
            way |= {keyword: whole(schema[name]) for name, keyword, whole in _WHOLE if schema.get(name) is not None}
            way["type"] = "integer"
        # Each place counts as a digit, also the zeros directly behind the point.
        before = math.inf if digits is None else digits - (after if places is None else min(places, digits))
        bound = float(f"1e{min(before, _EXACT_DIGITS - after if after else 300)}")
        # The zero before a point is no digit, but the number 0 is one.
        apart = [(-bound, 0), (0, bound)] if places is not None and not before else [(-bound, bound)]
        for low, high in apart:
            low, high = max(low, way.get("exclusiveMinimum", low)), min(high, way.get("exclusiveMaximum", high))
            ways.append({**way, "exclusiveMinimum": low, "exclusiveMaximum": high})
    return ways[0] if len(ways) == 1 else {"anyOf": ways}


def _days(found: dict[str, Any], schema: dict[str, Any], rest: str, apart: int) -> dict[str, Any]:
    """The dates, or times, between the bounds of a type. The order of dates is the order of their texts.

    Args:
        found: pydantic's schema.
        schema: the type.
        rest: the pattern of what follows the date.
        apart: so many days lie between a text and a bound.
    """
    if found.get("format") not in ("date", "date-time"):
        return found
    today, now, end = datetime.date.today().toordinal(), schema.get("now_op"), datetime.date.max.toordinal()
    least = [schema[name].toordinal() + more for name, more in (("ge", 0), ("gt", 1)) if schema.get(name)]
    most = [schema[name].toordinal() - less for name, less in (("le", 0), ("lt", 1)) if schema.get(name)]
    first = max(least + [today + 1] * (now == "future"), default=1 - apart) + apart
    last = min(most + [today - 1] * (now == "past"), default=end + apart) - apart
    if not first <= last:  # the bounds are too close for whole days
        return found if schema.get("now_op") or not apart else _moments(found, schema)
    from_first, to_last = (datetime.date.fromordinal(max(day, 1)).isoformat() for day in (first, last))
    ahead = _ahead(from_first if first > 1 else None, to_last if last < end else None)
    return {"type": "string", "pattern": f"^{ahead}(?:{DATE}){rest}$"}


def _zone(schema: dict[str, Any]) -> str:
    """The pattern of the zones that may be written behind the times of a type."""
    zones = {None: f"{ZONE}?", "naive": ""}
    return zones.get(schema.get("tz_constraint"), ZONE)


def _moments(found: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The whole seconds between two bounds that are less than some days apart, in UTC if the bounds have a zone."""
    bounds = [schema[name] for name in _BOUNDS if schema.get(name)]
    aware, zone = {bound.tzinfo is not None for bound in bounds}, schema.get("tz_constraint")
    if len(aware) > 1 or zone not in (None, "naive", "aware") or (True in aware and zone == "naive"):
        return found

    def since(bound: datetime.datetime) -> datetime.timedelta:
        return (bound.astimezone(datetime.UTC) if bound.tzinfo else bound).replace(tzinfo=None) - datetime.datetime.min

    first, last = _whole_seconds(schema, since)
    first, last = first or 0, _ALL_SECONDS if last is None else last
    if not 0 <= first <= last <= _ALL_SECONDS:
        return found
    texts = ((datetime.datetime.min + second * _SECOND).isoformat() for second in (first, last))
    behind = "" if zone == "naive" else "Z"
    return {"type": "string", "pattern": f"^{_ahead(*texts)}(?:{DATE}T{_CLOCK}){behind}$"}


def _clock(found: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The times of day of a type; between bounds in whole seconds, and in the zone of the bounds."""
    bounds = [schema[name] for name in _BOUNDS if schema.get(name) is not None]
    if not bounds:
        return {"type": "string", "pattern": f"^(?:{TIME}){_zone(schema)}$"}
    zones = {bound.isoformat().removeprefix(bound.replace(tzinfo=None).isoformat()) for bound in bounds}
    if len(zones) > 1 or schema.get("tz_constraint") == "aware":
        return found

    def since(bound: datetime.time) -> datetime.timedelta:
        return datetime.datetime.combine(datetime.date.min, bound.replace(tzinfo=None)) - datetime.datetime.min

    first, last = _whole_seconds(schema, since)
    if not (first or 0) <= (_DAY_SECONDS if last is None else last):
        return found
    texts = (None if second is None else (datetime.datetime.min + second * _SECOND).time().isoformat()
             for second in (first, last))  # fmt: skip
    return {"type": "string", "pattern": f"^{_ahead(*texts)}(?:{_CLOCK}){re.escape(*zones)}$"}


def _duration(found: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The durations between the bounds of a type, as a number of one unit; between close bounds one duration."""
    first, last = _whole_seconds(schema, lambda bound: bound)
    if found.get("format") != "duration" or (first is None and last is None):
        return found
    sign, low, high = "", first or 0, last
    if last is not None and last < 0:
        sign, low, high = "-", -last, None if first is None else -first
    ways = []
    for letters, unit, largest in _UNITS:
        most = largest if high is None else min(high // unit, largest)
        numbers = "|".join(whole_numbers(-(-max(low, 0) // unit), most))
        ways += [sign + letters.format(f"(?:{numbers})")] if numbers else []
    if not ways:
        first, last = _whole_seconds(schema, lambda bound: bound, datetime.timedelta(microseconds=1))
        some = first if first is not None else last or 0
        ways = [f"{'-' * (some < 0)}PT{abs(some) // 10**6}\\.{abs(some) % 10**6:06d}S"]
    return {"type": "string", "pattern": f"^(?:{'|'.join(ways)})$"}


def _whole_seconds(
    schema: dict[str, Any], since: Callable[[Any], datetime.timedelta], unit: datetime.timedelta = _SECOND
) -> tuple[int | None, int | None]:
    """The first and the last whole second between the bounds of a type; ``None`` for a bound that is not there."""
    spans = {name: since(schema[name]) for name in _BOUNDS if schema.get(name) is not None}
    least = [-(-spans[name] // unit) if name == "ge" else spans[name] // unit + 1
             for name in ("ge", "gt") if name in spans]  # fmt: skip
    most = [spans[name] // unit if name == "le" else -(-spans[name] // unit) - 1
            for name in ("le", "lt") if name in spans]  # fmt: skip
    return max(least, default=None), min(most, default=None)


def _ahead(first: str | None, last: str | None) -> str:
    """A lookahead that keeps dates or times between two bounds; texts of one form sort in chronological order."""
    beyond = "|".join([*_beyond(first or "", 0), *_beyond(last or "", 9)])
    return f"(?!{beyond})" if beyond else ""


def _beyond(text: str, extreme: int) -> Iterator[str]:
    """The beginnings of texts of dates or times before one (``extreme`` 0) or after it (9)."""
    for place, digit in enumerate(text):
        if digit.isdigit() and digit != str(extreme):
            ends = sorted((extreme, int(digit) + (1 if extreme else -1)))
            yield text[:place] + "[{}-{}]".format(*ends)


def _url(found: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The addresses of a type, with a host; in some usual schemes also those without a host, where any may come."""
    if found.get("maxLength", 0) >= _LONG_ADDRESS:
        del found["maxLength"]
    schemes = schema.get("allowed_schemes")
    scheme = "|".join(map(re.escape, schemes)) if schemes else _SCHEME
    more = "" if schemes or schema.get("host_required") else f"|(?:{_HOSTLESS}):"
    _add(found, {"pattern": rf"^(?:(?:{scheme})://{_HOST}(?::[1-9][0-9]{{0,3}})?(?:[/?#]|$){more})"})
    return found


def _with_sets(found: dict[str, Any]) -> dict[str, Any]:
    """A union in which a set beside other arrays may repeat items, which pydantic drops.

    That items differ cannot be enforced where the text may become another kind of array.
    """
    arrays = [part for part in found.get("anyOf", ()) if part.get("type") == "array"]
    if len(arrays) > 1:
        for part in arrays:
            if not part.get("minItems"):
                part.pop("uniqueItems", None)
    return found


def _names(generator: Any, keys: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of the names that are read as keys of a type; ``None`` where pydantic's own schema is kept."""
    if "$ref" in keys:
        if keys["$ref"] in generator.members:
            return {"enum": generator.members[keys["$ref"]]}
        return _names(generator, generator.get_schema_from_definitions(keys["$ref"]) or {})
    if "enum" in keys or "const" in keys:
        values = keys["enum"] if "enum" in keys else [keys["const"]]
        return {"enum": [value for value in values if isinstance(value, str)]}
    if "anyOf" in keys:
        parts = [_names(generator, part) for part in keys["anyOf"]]
        return {"anyOf": [part or own for part, own in zip(parts, keys["anyOf"], strict=True)]}
    kind = keys.get("type")
    if kind == "boolean":
        return {"enum": ["true", "false"]}
    if kind in ("null", "array", "object"):  # no text is read as one
        return {"enum": []}
    return names_of_numbers(keys) if kind in ("integer", "number") else None
