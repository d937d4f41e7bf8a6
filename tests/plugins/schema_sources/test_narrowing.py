"""Each text of a Python type's schema is read as an object of the type: the types' own libraries are the oracle."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Required, TypedDict, TypeVar

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.document import to_document
from logitloom.errors import OptionError, UnsupportedPattern, UnsupportedSchema
from logitloom.generation import read_value
from logitloom_plugins.schema_sources.sources import schema_of
from tests.cases import some

pydantic = pytest.importorskip("pydantic", reason="needs pydantic")
typing_extensions = pytest.importorskip("typing_extensions", reason="pydantic needs it")
pytestmark = pytest.mark.extras

T = TypeVar("T")
_BYTES = [bytes([byte]) for byte in range(256)]
_WORDS = [*b'2024-02-29 0000- T10:20: :60 1e99 http :// -5 ": "} true @b.c'.split(), b" a "]
WORDS = Vocabulary([*_BYTES, *_WORDS, b""], eos=[256 + len(_WORDS)])


class Side(enum.Enum):
    """A value of either type."""

    LEFT = "left"
    TWO = 2


class Level(enum.IntEnum):
    """An integer."""

    LOW = 1
    HIGH = -20


class Share(float, enum.Enum):
    """A number."""

    HALF = 0.5
    ALL = 1.0


@dataclasses.dataclass
class Visit:
    """A value that holds others of its type."""

    at: datetime.datetime
    more: dict[int, Visit] = dataclasses.field(default_factory=dict)


class Pair(NamedTuple):
    """An array of two items."""

    first: int
    second: decimal.Decimal


def _field(kind: Any, **bounds: Any) -> Any:
    return Annotated[kind, pydantic.Field(**bounds)]


def _text(**bounds: Any) -> Any:
    return Annotated[str, pydantic.StringConstraints(**bounds)]


class Stripped(pydantic.BaseModel):
    """Texts whose whitespace is stripped before their length is looked at."""

    model_config = pydantic.ConfigDict(str_strip_whitespace=True)
    text: _field(str, min_length=1)


class InBase64(pydantic.BaseModel):
    """Bytes that are written in base64."""

    model_config = pydantic.ConfigDict(val_json_bytes="base64")
    data: bytes


class InHex(pydantic.BaseModel):
    """Bytes that are written in hexadecimal digits."""

    model_config = pydantic.ConfigDict(val_json_bytes="hex")
    data: bytes


class ShortInBase64(pydantic.BaseModel):
    """The same of some bytes."""

    model_config = pydantic.ConfigDict(val_json_bytes="base64")
    data: _field(bytes, min_length=2, max_length=4)


class ShortInHex(pydantic.BaseModel):
    """The same in hexadecimal digits."""

    model_config = pydantic.ConfigDict(val_json_bytes="hex")
    data: _field(bytes, min_length=2, max_length=4)


class OfRe(pydantic.BaseModel, Generic[T]):
    """A text with a pattern in the syntax of re."""

    model_config = pydantic.ConfigDict(regex_engine="python-re")
    text: T


class Counted(pydantic.BaseModel):
    """A dict whose keys are of a type that other fields have, too."""

    by_level: dict[Level, int]
    level: Level


class Counts(pydantic.BaseModel):
    """The same in a class that is held twice."""

    first: Counted
    second: Counted
    last: dict[Level | None, Literal["a"]]


class Texts(pydantic.BaseModel):
    """A set before what tells it apart from another class."""

    items: set[str]
    kind: Literal["texts"]


class Numbers(pydantic.BaseModel):
    """Another set of the same name."""

    items: set[int] | None
    kind: Literal["numbers"]


class Open(pydantic.BaseModel, extra="allow"):
    """A class whose objects may have a member of the same name."""

    count: int


class Marked(pydantic.BaseModel):
    """A set behind what may be left out."""

    kind: Literal["marked"] = "marked"
    items: set[str]


class Lines(pydantic.BaseModel):
    """A list of the same name, whose items may be equal."""

    items: list[str]


#: In the syntax of Rust's regex, where ECMA-262 reads other texts.
PATTERNS = (
    r"\Aab\z", r"^[[:alpha:]]{2}$", r"^\x{e9}\a\U0001F600$", r"^\W\D\S$", r"^[^\w]{3}$", r"^\s\S$",
    r"\bab\b", r"^[^\s]$", r"^[\s\S]é$", r"^[\W\D]$", r"^[^\W\d_]+$", r"^ä\W$",
)  # fmt: skip
PATTERNS_OF_RE = (r"\Aab\Z", r"^\W\S\s$", r"^\U0001F600[^\d]$")
NOON = datetime.datetime(2020, 2, 29, 12, tzinfo=datetime.UTC)
YEAR = datetime.datetime(2020, 1, 1)
EAST = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
TYPES: dict[str, Any] = {
    "date": datetime.date,
    "datetime": datetime.datetime,
    "datetime without a zone": pydantic.NaiveDatetime,
    "datetime with a zone": pydantic.AwareDatetime,
    "date in the past": pydantic.PastDate,
    # pydantic 2.9 takes the seventh century for the future.
    "datetime in the past": _field(pydantic.PastDatetime, ge=datetime.datetime(1900, 1, 1, tzinfo=datetime.UTC)),
    "date in the future": pydantic.FutureDate,
    "datetime in the future": pydantic.FutureDatetime,
    "date between two": _field(datetime.date, ge=datetime.date(2019, 10, 31), lt=datetime.date(2021, 3, 1)),
    "date on one of two days": _field(datetime.date, gt=datetime.date(2020, 2, 27), le=datetime.date(2020, 2, 29)),
    "datetime behind another": _field(datetime.datetime, gt=datetime.datetime(2019, 12, 31, 23)),
    "datetime within a year": _field(pydantic.AwareDatetime, ge=NOON, lt=NOON + datetime.timedelta(hours=9999)),
    "datetime within an hour": _field(datetime.datetime, ge=datetime.datetime(2019, 12, 31, 23, 30, 0, 5), lt=YEAR),
    "datetime without a zone within an hour": _field(pydantic.NaiveDatetime, gt=YEAR, le=YEAR.replace(hour=1)),
    "datetime with a zone within an hour": _field(
        pydantic.AwareDatetime, gt=NOON, lt=NOON.astimezone(EAST) + datetime.timedelta(hours=1)
    ),
    "time": datetime.time,
    "time between two": _field(datetime.time, ge=datetime.time(9), lt=datetime.time(17, 30)),
    "time behind another": _field(datetime.time, gt=datetime.time(21, 59, 59, 999)),
    "time before another": _field(datetime.time, le=datetime.time(2, 0, 30)),
    "time of a zone": _field(datetime.time, ge=datetime.time(9, tzinfo=EAST), lt=datetime.time(17, tzinfo=EAST)),
    "time in UTC": _field(datetime.time, gt=datetime.time(20, tzinfo=datetime.UTC)),
    "time in the morning": _field(datetime.time, ge=datetime.time(0), lt=datetime.time(12)),
    "time from midnight on": _field(datetime.time, ge=datetime.time(0)),
    "time on a day": _field(datetime.time, ge=datetime.time.min, le=datetime.time.max),
    "date on any day": _field(datetime.date, ge=datetime.date.min, le=datetime.date.max),
    "last date": _field(datetime.date, ge=datetime.date.max),
    "last datetimes": _field(datetime.datetime, gt=datetime.datetime.max - datetime.timedelta(minutes=1)),
    "first datetimes": _field(pydantic.NaiveDatetime, lt=datetime.datetime.min + datetime.timedelta(minutes=1)),
    "timedelta between two": _field(datetime.timedelta, ge=datetime.timedelta(hours=1), lt=datetime.timedelta(days=2)),
    "timedelta above another": _field(datetime.timedelta, gt=datetime.timedelta(0)),
    "timedelta below another": _field(datetime.timedelta, le=datetime.timedelta(minutes=2)),
    "timedelta above centuries": _field(datetime.timedelta, ge=datetime.timedelta(days=10**5)),
    "timedelta": datetime.timedelta,
    "Decimal": decimal.Decimal,
    "Decimal with bounds": _field(decimal.Decimal, ge=0, lt=100),
    "Decimal of money": _field(decimal.Decimal, max_digits=6, decimal_places=2),
    "Decimal of some digits": _field(decimal.Decimal, max_digits=4),
    "Decimal of some places": _field(decimal.Decimal, decimal_places=3),
    "finite float": pydantic.FiniteFloat,
    "address of a page": pydantic.HttpUrl,
    "address of a database": pydantic.PostgresDsn,
    "any address": pydantic.AnyUrl,
    "short address of a page": _field(pydantic.HttpUrl, max_length=20),
    "short address of a database": _field(pydantic.PostgresDsn, max_length=30),
    "dict of short addresses": dict[_field(pydantic.AnyUrl, max_length=30), int],
    "uuid": uuid.UUID,
    "uuid of a version": pydantic.UUID4,
    "address of a host": pydantic.IPvAnyAddress,
    "network": ipaddress.IPv4Network,
    "network of IPv6": ipaddress.IPv6Network,
    "network of either": pydantic.IPvAnyNetwork,
    "interface": ipaddress.IPv4Interface,
    "interface of IPv6": ipaddress.IPv6Interface,
    "interface of either": pydantic.IPvAnyInterface,
    "dict of networks": dict[ipaddress.IPv4Network, int],
    "base64": pydantic.Base64Bytes,
    "base64 for addresses": pydantic.Base64UrlBytes,
    "stripped text": _text(strip_whitespace=True, min_length=2, max_length=9),
    "stripped text with a pattern": _text(strip_whitespace=True, pattern="a"),
    "stripped by the model": Stripped,
    "dict of int": dict[int, str],
    "dict of positive int": dict[pydantic.PositiveInt, bool],
    "dict of few int": dict[_field(int, gt=-2, lt=4), int],
    "dict of addresses": dict[pydantic.HttpUrl, int],
    "short bytes": _field(bytes, min_length=2, max_length=4),
    "dict of ports": dict[_field(int, ge=1024, le=65535), bool],
    "dict of negative int": dict[_field(int, lt=-7), bool],
    "dict of multiples": dict[_field(int, ge=5, multiple_of=7), bool],
    "dict of shares": dict[_field(float, gt=-2.5, le=3), bool],
    "dict of float": dict[float, int],
    "dict of bool": dict[bool, int],
    "dict of Decimal": dict[decimal.Decimal, int],
    "dict of literals": dict[Literal["a", 1], int],
    "dict of an enum": dict[Side, int],
    "dict of several": dict[int | None, int],
    "dict of an enum of int": dict[Level, int],
    "dict of an enum of float": dict[Share, int],
    "dict of an enum or a text": dict[Level | Literal["a"], int],
    "dicts of an enum of several fields": Counts,
    "dict of a named type": dict[typing_extensions.TypeAliasType("Port", _field(int, ge=1, le=99)), int],
    "dict of money": dict[_field(decimal.Decimal, max_digits=3, decimal_places=1), int],
    "dict of money above zero": dict[_field(decimal.Decimal, gt=0, le=50, max_digits=4, decimal_places=2), int],
    "dict of Decimal of some digits": dict[_field(decimal.Decimal, max_digits=2), int],
    "dict of Decimal between two": dict[_field(decimal.Decimal, ge=0, lt=100), int],
    "dict of Decimal in halves": dict[_field(decimal.Decimal, multiple_of=decimal.Decimal("0.5")), int],
    "dict of probabilities": dict[_field(float, gt=0, lt=1), int],
    "dict of float between fractions": dict[_field(float, ge=-0.05, le=2.75), int],
    "dict of large float": dict[_field(float, gt=1e9, lt=1e11), int],
    "dict of float in tenths": dict[_field(float, ge=1, multiple_of=0.1), int],
    "dict of names": dict[_text(pattern="^[a-z]{1,3}$"), int],
    "dict of dates": dict[datetime.date, int],
    "counter": Counter[str],
    "ordered dict": OrderedDict[int, int],
    "set or list": set[int] | list[str],
    "classes with sets": _field(Texts | Numbers, discriminator="kind"),
    "class with a set or with a list": list[Texts | Lines],
    "class with a set behind a mark": Marked | Texts,
    "class with a set or without": Texts | Stripped,
    "class with a set or an open one": Texts | Open,
    "class with a set or dict": Texts | dict[str, list[int]],
    "tuple": Pair,
    "list": list[dict[int, datetime.date] | decimal.Decimal],
    "complex": complex,
    "size": pydantic.ByteSize,
    "timedelta within a second": _field(datetime.timedelta, gt=datetime.timedelta(0), lt=datetime.timedelta(seconds=1)),
    "negative timedelta": _field(datetime.timedelta, lt=datetime.timedelta(0)),
    "timedelta between negative ones": _field(
        datetime.timedelta, ge=datetime.timedelta(-2), lt=datetime.timedelta(hours=-1)
    ),
    "Decimal in halves": _field(decimal.Decimal, multiple_of=decimal.Decimal("0.5"), max_digits=4, decimal_places=1),
    "Decimal in steps of 2.5": _field(decimal.Decimal, multiple_of=decimal.Decimal("2.5"), decimal_places=2),
    "Decimal in steps of three tenths": _field(decimal.Decimal, multiple_of=decimal.Decimal("0.3")),
    "large Decimal": _field(decimal.Decimal, ge=decimal.Decimal(99999999999999990), max_digits=17),
    "Decimal of many digits": _field(decimal.Decimal, max_digits=30),
    "Decimal of many digits and places": _field(decimal.Decimal, max_digits=30, decimal_places=18),
    "Decimal of many places": _field(decimal.Decimal, decimal_places=18, gt=1),
    "Decimal below one": _field(decimal.Decimal, max_digits=3, decimal_places=3),
    "Decimal of more places than digits": _field(decimal.Decimal, max_digits=1, decimal_places=2),
    "dict of tuples": dict[tuple[int, int], int],
    "address with a host": Annotated[pydantic.AnyUrl, pydantic.UrlConstraints(host_required=True)],
    "bytes in base64": InBase64,
    "bytes in base 16": InHex,
    "short bytes in base64": ShortInBase64,
    "short bytes in base 16": ShortInHex,
    "short base64": _field(pydantic.Base64Bytes, min_length=1, max_length=2),
    "long base64 for addresses": _field(pydantic.Base64UrlBytes, min_length=4),
    **{f"pattern {pattern}": _field(str, pattern=pattern) for pattern in PATTERNS},
    **{f"pattern {pattern} of re": OfRe[_field(str, pattern=pattern)] for pattern in PATTERNS_OF_RE},
}
if "fraction_schema" in vars(pydantic.json_schema.GenerateJsonSchema):  # newer ones
    TYPES |= {"fraction": fractions.Fraction, "positive fraction": _field(fractions.Fraction, gt=0, le=2)}
    TYPES |= {"long address of a page": _field(pydantic.HttpUrl, min_length=25)}


def _texts(processor: Any, count: int, limit: int = 120) -> Iterator[bytes]:
    """Random texts of a processor, each complete within a limit."""
    chain = processors.load(processor, tokenizer=WORDS)
    start = Context.start(np.zeros((1, WORDS.size), dtype=np.float32), vocabulary=WORDS, max_new_tokens=limit)
    for seed in range(count):
        context, random, text = start, np.random.default_rng(seed), b""
        state = chain.init_state(context)
        for _ in range(limit):
            logits = random.normal(size=(1, WORDS.size)).astype(np.float32)
            # Ends and long tokens are likelier than most single bytes.
            logits[0, 256:] += 2.0
            logits, state = chain.process(logits, state, context)
            token = int(logits.argmax())
            if token in WORDS.eos:
                break
            text += WORDS.token_bytes[token]
            context = context.accept([[token]])
        else:
            raise AssertionError(text)
        yield text


@pytest.mark.long
@pytest.mark.parametrize("name", TYPES)
def test_each_text_of_a_type_is_read_as_an_object(name: str) -> None:
    adapter = pydantic.TypeAdapter(TYPES[name])
    for text in _texts(("json", {"schema": adapter}), some(12)):
        adapter.validate_json(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Decimal of many digits", "12345678901234567.25"),
        ("Decimal of many digits and places", "123456789.0123456789"),
        ("Decimal of many places", "12345678901234567.5"),
    ],
)
def test_a_decimal_of_more_digits_than_pydantic_reads_is_not_written(name: str, text: str) -> None:
    adapter = pydantic.TypeAdapter(TYPES[name])
    assert adapter.validate_json(text) != decimal.Decimal(text)
    constraint = processors.load(("json", {"schema": adapter}))["json"].constraint(WORDS, WORDS.size)
    state: Any = constraint.start()
    for byte in text.encode():
        state = None if state is None else constraint.advance(state, byte)
    assert state is None or not constraint.may_end(state)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("date", '"2024-02-29"'),
        ("date in the past", '"2020-02-29"'),
        ("date in the future", '"3026-01-01"'),
        ("date between two", '"2019-10-31"'),
        ("date between two", '"2021-02-28"'),
        ("date on one of two days", '"2020-02-28"'),
        ("datetime within a year", '"2021-01-01T00:00:00Z"'),
        ("datetime within an hour", '"2019-12-31T23:59:59Z"'),
        ("datetime without a zone within an hour", '"2020-01-01T01:00:00"'),
        ("datetime with a zone within an hour", '"2020-02-29T12:00:01Z"'),
        ("time between two", '"09:00:00"'),
        ("time between two", '"17:29:59"'),
        ("time behind another", '"22:00:00"'),
        ("time", '"10:20:30"'),
        ("datetime", '"2000-02-29T23:59:59"'),
        ("datetime behind another", '"2020-02-29T12:00:00"'),
        ("time of a zone", '"09:00:00+05:30"'),
        ("time in UTC", '"20:00:01+00:00"'),
        ("time in the morning", '"00:00:00"'),
        ("time in the morning", '"11:59:59"'),
        ("time from midnight on", '"23:59:59"'),
        ("time on a day", '"00:00:00"'),
        ("time on a day", '"23:59:59"'),
        ("date on any day", '"0001-01-01"'),
        ("last date", '"9999-12-31"'),
        ("first datetimes", '"0001-01-01T00:00:00"'),
        ("timedelta between two", '"PT3600S"'),
        ("timedelta between two", '"PT172799S"'),
        ("timedelta between two", '"PT47H"'),
        ("timedelta below another", '"PT2M"'),
        ("timedelta above centuries", '"P100000D"'),
        ("datetime", '"2000-02-29T23:59:59.5+05:30"'),
        ("datetime without a zone", '"2026-12-31T00:00:00"'),
        ("time", '"10:20:30Z"'),
        ("timedelta", '"P3DT12H30M5S"'),
        ("Decimal", "-12.50"),
        ("Decimal of money", "9999.99"),
        ("address of a page", '"https://www.example.com:8080/a/b?c=d#e"'),
        ("short address of a page", '"https://example.com/"'),
        ("network", '"10.0.0.0/8"'),
        ("network", '"172.16.0.0/12"'),
        ("network", '"192.168.1.128/25"'),
        ("network", '"0.0.0.0/0"'),
        ("network of IPv6", '"2001:db8::/32"'),
        ("network of either", '"::/0"'),
        ("interface", '"10.0.0.1/8"'),
        ("interface of IPv6", '"fe80::1/64"'),
        ("interface of either", '"10.0.0.1"'),
        ("dict of networks", '{"10.1.0.0/16": 1}'),
        ("any address", '"mailto:a@b.cd"'),
        ("stripped text", '"a b"'),
        ("dict of int", '{"-12": "a", "0": "b"}'),
        ("dict of names", '{"abc": 1}'),
        ("dict of an enum of int", '{"1": 1, "-20": 2}'),
        ("dict of an enum of float", '{"0.5": 1}'),
        ("dict of an enum or a text", '{"-20": 1, "a": 2}'),
        (
            "dicts of an enum of several fields",
            '{"first": {"by_level": {"1": 0}, "level": 1}, "second": {"by_level": {}, "level": 1}, "last": {"1": "a"}}',
        ),
        ("dict of a named type", '{"99": 1}'),
        ("dict of money", '{"10.5": 1, "-99.9": 2, "0": 3}'),
        ("dict of money above zero", '{"0.05": 1, "49.99": 2, "50": 3}'),
        ("dict of Decimal of some digits", '{"0.25": 1, "2.5": 2, "25": 3}'),
        ("dict of Decimal between two", '{"0.25": 1, "99.99": 2}'),
        ("dict of Decimal in halves", '{"-0.5": 1, "12": 2}'),
        ("dict of probabilities", '{"0.5": 1, "0.000001": 2, "0.999": 3}'),
        ("dict of float between fractions", '{"-0.05": 1, "-0.01": 2, "1.125": 3, "2.75": 4}'),
        ("dict of float in tenths", '{"1": 1, "2.5": 2}'),
        ("Decimal in halves", "-12.5"),
        ("Decimal in steps of 2.5", "1000007.5"),
        ("Decimal in steps of three tenths", "-0.6"),
        ("large Decimal", "99999999999999993"),
        ("Decimal of many digits", "12345678901234567891"),
        ("Decimal of many digits", "123456789012.125"),
        ("Decimal of many digits and places", "12345.12345"),
        ("Decimal of many places", "1.0000000001"),
        ("dict of ports", '{"1024": true, "8080": true, "65535": false}'),
        ("dict of negative int", '{"-8": true, "-1000": true}'),
        ("dict of multiples", '{"7": true, "770": true}'),
        ("complex", '"1.5-2j"'),
        ("complex", '"-3"'),
        ("size", '"1.5 MiB"'),
        ("size", '"200"'),
        ("size", "4096"),
        ("timedelta within a second", '"PT0.000001S"'),
        ("negative timedelta", '"-P2D"'),
        ("timedelta between negative ones", '"-PT47H"'),
        ("Decimal below one", "-0.125"),
        ("Decimal of more places than digits", "0.5"),
        ("dict of tuples", "{}"),
        ("address with a host", '"ssh://host"'),
        ("bytes in base 16", '{"data": "00fF"}'),
        ("bytes in base64", '{"data": "YWI="}'),
        ("short bytes in base64", '{"data": "YWJjZA=="}'),
        ("short bytes in base 16", '{"data": "00fFaa"}'),
        ("short base64", '"YWI="'),
        (r"pattern \Aab\z", '"ab"'),
        (r"pattern ^\W\D\S$", '"-+!"'),
        (r"pattern ^\x{e9}\a\U0001F600$", '"é\\u0007😀"'),
        ("dict of shares", '{"-1.25": true, "2.999": true, "3": true}'),
    ],
)
def test_ordinary_texts_of_a_type_are_allowed(name: str, text: str) -> None:
    adapter = pydantic.TypeAdapter(TYPES[name])
    adapter.validate_json(text)
    chain = processors.load(("json", {"schema": adapter}), tokenizer=WORDS)
    constraint = chain["json"].constraint(WORDS, WORDS.size)
    state = constraint.start()
    for byte in text.encode():
        state = constraint.advance(state, byte)
        assert state is not None, text
    assert constraint.may_end(state)


@pytest.mark.parametrize(
    "make",
    [lambda struct: struct, lambda struct: {"type": "json_schema", "json_schema": {"name": "a", "schema": struct}}],
    ids=["the class", "in a response_format"],
)
def test_texts_of_a_struct_are_read_by_msgspec(make: Callable[[Any], Any]) -> None:
    msgspec = pytest.importorskip("msgspec", reason="needs msgspec")
    fields = [
        ("day", datetime.date),
        ("span", datetime.timedelta),
        ("price", decimal.Decimal),
        ("data", bytes),
        ("rate", float),
    ]
    struct = msgspec.defstruct("Offer", fields)
    for text in _texts(("json", {"schema": make(struct)}), 12):
        msgspec.json.decode(text, type=struct)


def of_msgspec() -> dict[str, tuple[Any, str]]:
    """Types that msgspec's own schemas describe loosely, each with an ordinary text."""
    from msgspec import Meta, defstruct

    cat = defstruct("Cat", [("born", datetime.time)], tag=True)
    dog = defstruct("Dog", [("born", dict[datetime.date, int])], tag=True, rename="upper")
    row = defstruct("Row", [("day", datetime.date), ("keys", dict[uuid.UUID, int])], array_like=True, tag=True)
    key = "00000000-0000-4000-8000-000000000000"
    return {
        "datetime": (datetime.datetime, '"2026-12-31T00:00:00"'),
        "datetime with a zone": (Annotated[datetime.datetime, Meta(tz=True)], '"2026-12-31T00:00:00Z"'),
        "datetime without a zone": (Annotated[datetime.datetime, Meta(tz=False)], '"2026-12-31T00:00:00"'),
        "time": (datetime.time, '"10:20:30+01:00"'),
        "time without a zone": (Annotated[datetime.time, Meta(tz=False)], '"10:20:30"'),
        "short bytes": (Annotated[bytes, Meta(min_length=1, max_length=4)], '"YWJjZA=="'),
        "dict of int": (dict[int, int], '{"-12": 1}'),
        "dict of probabilities": (dict[Annotated[float, Meta(gt=0, lt=1)], int], '{"0.125": 1}'),
        "dict of float in halves": (dict[Annotated[float, Meta(multiple_of=0.5)], int], '{"-1.5": 1}'),
        "dict of ids": (dict[uuid.UUID, bool], f'{{"{key}": true}}'),
        "dict of times": (dict[datetime.datetime, int], '{"2026-12-31T00:00:00": 1}'),
        "dict of Decimal": (dict[decimal.Decimal, int], '{"-1.5": 1}'),
        "dict of an enum": (dict[enum.IntEnum("Level", "LOW HIGH"), int], '{"2": 1}'),  # type: ignore[misc]
        "dict of literals": (dict[Literal["a", 1], int], '{"1": 2, "a": 1}'),
        "dict of several": (dict[int | datetime.date, int], '{"5": 1, "2026-12-31": 2}'),
        "dict of bool": (dict[bool, int], "{}"),
        "dict of text": (dict[int | str, int], '{"any": 1}'),
        "union": (list[int] | dict[int, datetime.date] | bytes | None, '{"7": "2026-12-31"}'),
        "union of structs": (cat | dog | None, '{"type": "Dog", "BORN": {"2026-12-31": 1}}'),
        "union of rows": (row | bytes | int, f'["Row", "2026-12-31", {{"{key}": 1}}]'),
        "a class in itself": (Visit, '{"at": "2026-12-31T00:00:00", "more": {"3": {"at": "2026-01-01T00:00:00Z"}}}'),
        "tuple": (tuple[dict[int, int], datetime.time], '[{"1": 1}, "10:20:30"]'),
        "named tuple": (Pair, '[2, "1.5"]'),
    }


def test_texts_of_types_of_msgspec_are_read_by_it_and_ordinary_texts_are_allowed() -> None:
    msgspec = pytest.importorskip("msgspec", reason="needs msgspec")
    for name, (kind, ordinary) in of_msgspec().items():
        struct = msgspec.defstruct("Held", [("value", kind)])
        for text in [*_texts(("json", {"schema": struct}), some(8), 200), b'{"value": ' + ordinary.encode() + b"}"]:
            msgspec.json.decode(text, type=struct)
        chain = processors.load(("json", {"schema": struct}), tokenizer=WORDS)
        constraint = chain["json"].constraint(WORDS, WORDS.size)
        state = constraint.start()
        for byte in text:
            state = constraint.advance(state, byte)
            assert state is not None, (name, text)


@pytest.mark.parametrize("kind", [datetime.date, datetime.datetime, pydantic.AwareDatetime, pydantic.NaiveDatetime])
def test_dates_without_bounds_compare_nothing(kind: Any) -> None:
    assert schema_of(pydantic.TypeAdapter(kind))["pattern"].count("(?!") == 1


def test_a_network_has_no_bits_behind_its_number_of_bits() -> None:
    constraint = processors.load(("json", {"schema": ipaddress.IPv4Network}))["json"].constraint(WORDS, WORDS.size)
    for address in ("0.0.0.0", "10.0.0.1", "172.31.0.0", "128.0.0.0", "192.168.4.0", "255.255.255.254"):
        for bits in range(33):
            state: Any = constraint.start()
            for byte in f'"{address}/{bits}"'.encode():
                state = None if state is None else constraint.advance(state, byte)
            zeros = (1 << 32 - bits) - 1
            assert (state is not None) == (int(ipaddress.IPv4Address(address)) & zeros == 0), (address, bits)


def lost(part: Lost) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Names a type that does not exist."""


def listed(*parts: int, **named: int) -> None:
    """Takes arguments without and with names."""


def test_an_object_in_place_of_its_class_is_refused_with_what_to_give() -> None:
    with pytest.raises(OptionError, match=r"Visit\(at=.* cannot be read as a JSON Schema\. Give a dict.* a dataclass"):
        schema_of(Visit(datetime.datetime(2026, 1, 1)))


def test_a_function_that_cannot_be_a_tool_is_refused_with_the_reason() -> None:
    for function, part in (
        (lost, "name 'Lost' is not defined"),
        (listed, "positional-only and keyword-only arguments"),
    ):
        with pytest.raises(OptionError, match=f"cannot be read as a JSON Schema by pydantic: .*{part}.*Give"):
            processors.load(("tool_call", {"tools": [function]}))


def test_items_of_a_set_differ_where_classes_are_told_apart_before() -> None:
    class Words(pydantic.BaseModel):
        kind: Literal["words"]
        items: set[str]

    class Counts(pydantic.BaseModel):
        kind: Literal["counts"]
        items: set[int]

    schema = schema_of(pydantic.TypeAdapter(_field(Words | Counts, discriminator="kind")))
    assert all(part["properties"]["items"]["uniqueItems"] for part in schema["$defs"].values())
    late = schema_of(pydantic.TypeAdapter(_field(Texts | Numbers, discriminator="kind")))
    assert "uniqueItems" not in late["$defs"]["Texts"]["properties"]["items"]


def test_a_size_has_a_unit_that_there_is() -> None:
    constraint = processors.load(("json", {"schema": pydantic.ByteSize}))["json"].constraint(WORDS, WORDS.size)
    for text, ends in ((b'"3 KiB"', True), (b'"3 Bodies"', False), (b'" 3"', False)):
        state: Any = constraint.start()
        for byte in text:
            state = None if state is None else constraint.advance(state, byte)
        assert (state is not None and constraint.may_end(state)) == ends


def test_a_class_of_which_pydantic_makes_no_schema_is_refused_with_the_reason() -> None:
    class Handler(pydantic.BaseModel):
        call: Callable[[int], int]

    with pytest.raises(OptionError, match=r"cannot be read as a JSON Schema by pydantic: .*Callable.* Give"):
        processors.load(("json", {"schema": Handler}))


class Held(TypedDict, total=False):
    """A member that may be left out, and one that may not."""

    size: Annotated[int, pydantic.Field(ge=7, le=9)]
    name: Required[_text(max_length=2)]


class Bounded(Held):
    """Another member."""

    count: NotRequired[Annotated[int, pydantic.Field(lt=0)]]


def test_types_that_hold_classes_of_msgspec_or_attrs_are_read_by_msgspec() -> None:
    msgspec = pytest.importorskip("msgspec", reason="needs msgspec")
    attrs = pytest.importorskip("attrs", reason="needs attrs")
    cat, dog = (msgspec.defstruct(name, [("born", datetime.date)], tag=True) for name in ("Cat", "Dog"))
    sized = attrs.make_class("Sized", {"size": attrs.field(type=decimal.Decimal)})
    for kind in (list[cat], cat | dog, dict[int, dog | None], Annotated[cat, msgspec.Meta(title="a")], list[sized]):
        for text in _texts(("json", {"schema": kind}), 4, 200):
            msgspec.json.decode(text, type=kind)


def test_a_method_in_place_of_its_schema_is_refused_with_the_remedy() -> None:
    for method in (Texts.model_json_schema, pydantic.TypeAdapter(int).json_schema):
        with pytest.raises(OptionError, match=r"given as a method \(<bound method .* or call the method"):
            schema_of(method)


def test_members_of_a_typed_dict_keep_their_bounds() -> None:
    class Same(pydantic.BaseModel):
        size: _field(int, ge=7, le=9) = 7
        name: _text(max_length=2)
        count: _field(int, lt=0) = -1

    for text in _texts(("json", {"schema": Bounded}), 12):
        Same.model_validate_json(text)


PATH = pydantic.Field(validation_alias=pydantic.AliasPath("person", "age"))


def test_a_field_that_is_read_from_a_path_is_refused_with_the_class_and_the_remedy() -> None:
    class Flat(pydantic.BaseModel):
        years: int = PATH

    @pydantic.dataclasses.dataclass
    class Data:
        years: Annotated[int, PATH]

    for kind in (Flat, Data, list[Flat]):
        name = "Data" if kind is Data else "Flat"
        with pytest.raises(
            OptionError, match=rf"The field 'years' of the class {name} has the alias \['person', 'age'\].*AliasChoices"
        ):
            schema_of(pydantic.TypeAdapter(kind))


def test_a_field_with_a_path_has_the_name_that_is_read_beside_the_path() -> None:
    class Choices(pydantic.BaseModel):
        years: int = pydantic.Field(validation_alias=pydantic.AliasChoices(pydantic.AliasPath("ages", 0), "age"))

    class Named(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(populate_by_name=True)
        years: int = PATH

    for kind in (Choices, Named):
        for text in _texts(("json", {"schema": kind}), 3):
            kind.model_validate_json(text)


def test_operations_on_sets_in_patterns_of_a_class_are_refused() -> None:
    class Word(pydantic.BaseModel):
        text: _field(str, pattern="^[a-z&&[^aeiou]]+$")

    with pytest.raises(
        UnsupportedPattern, match=r"operations on sets in '\[a-z&&\[\^aeiou\]'.* Write the set as a list"
    ):
        processors.load(("json", {"schema": Word}))


def test_all_characters_outside_a_named_set_are_refused_in_patterns_of_a_class() -> None:
    class Word(pydantic.BaseModel):
        text: _field(str, pattern="^[[:^alpha:]]+$")

    with pytest.raises(UnsupportedPattern, match=r"operations on sets in '\[\[:\^alpha:\]\]'"):
        processors.load(("json", {"schema": Word}))


def test_a_type_that_names_an_unknown_type_is_refused_with_the_name() -> None:
    msgspec = pytest.importorskip("msgspec", reason="needs msgspec")
    with pytest.raises(OptionError, match="Torn.* cannot be read as a JSON Schema by msgspec: name 'Lost' is not def"):
        schema_of(msgspec.defstruct("Torn", [("part", "Lost")]))


def test_the_schema_of_a_class_keeps_the_rules_of_strict_mode() -> None:
    class Meeting(pydantic.BaseModel):
        at: datetime.datetime
        lasts: datetime.timedelta
        key: pydantic.UUID4
        page: pydantic.HttpUrl
        host: pydantic.IPvAnyAddress
        price: _field(decimal.Decimal, max_digits=6)
        title: _text(strip_whitespace=True, min_length=1)
        short: _field(pydantic.HttpUrl, max_length=60)

    given = {"name": "meeting", "strict": True, "schema": Meeting}
    assert schema_of(given) == schema_of(Meeting)


def test_a_format_that_is_no_text_is_refused_as_in_any_schema() -> None:
    class Odd(pydantic.BaseModel):
        odd: _field(str, json_schema_extra={"format": ["date"]})

    with pytest.raises(UnsupportedSchema, match="format"):
        processors.load(("json", {"schema": Odd}), tokenizer=WORDS)


def test_a_schema_that_is_given_as_a_dict_stays_as_it_is() -> None:
    schema = pydantic.TypeAdapter(dict[int, datetime.time]).json_schema()
    assert schema_of(schema) == schema


def test_a_schema_that_a_class_makes_itself_is_taken() -> None:
    class Own(pydantic.BaseModel):
        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            return {"type": "object", "properties": {"a": {"const": 1}}}

    assert schema_of(Own) == {"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": False}


def weather(city: str, day: datetime.date, days: Annotated[int, pydantic.Field(ge=1, le=9)] = 3) -> None:
    """Tell the weather."""


def pay(amount: decimal.Decimal, shares: dict[int, bool], *, at: datetime.datetime | None = None) -> None:
    """Pay an amount."""


def fetch(url: pydantic.HttpUrl) -> None:
    """Fetch a page."""


@pytest.mark.parametrize("form", ["hermes", "qwen3_coder", "pythonic"])
def test_a_call_of_a_function_has_arguments_that_the_function_takes(form: str) -> None:
    options = {"tools": [weather, pay, fetch], "format": form, "choice": "required"}
    chain = processors.load(("tool_call", options), tokenizer=WORDS)
    functions = {each.__name__: pydantic.validate_call(each) for each in (weather, pay, fetch)}
    called = set()
    for text in _texts(("tool_call", options), 12, 300):
        for call in read_value(chain, text.decode(errors="replace")):
            functions[call["name"]](**call["arguments"])
            called.add(call["name"])
    assert called == set(functions)


def test_a_function_is_written_to_a_document_with_its_schema() -> None:
    chain = processors.load(("tool_call", {"tools": [weather]}), tokenizer=WORDS)
    (one,) = to_document(chain)["processor"]
    (tool,) = json.loads(one["options"]["tools"])
    assert (tool["name"], tool["parameters"]["required"]) == ("weather", ["city", "day"])


def test_a_function_whose_arguments_have_no_names_is_refused() -> None:
    with pytest.raises(OptionError, match=r"Arguments of a function of Python must have names"):
        processors.load(("tool_call", {"tools": [lambda *numbers: numbers]}), tokenizer=WORDS)
