"""Options: declared once, converted without loss, checked with the value and the remedy in the message."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Processor, errors, option, processors
from logitloom.host.options import check, declared, missing


class Side(Enum):
    LEFT = 1
    RIGHT = 2


@dataclass(frozen=True)
class Everything(Processor):
    """One option of each type."""

    count: int = option(help="A count.", ge=1, le=9, unit="tokens")
    ratio: float = option(0.5, help="A ratio.", gt=0.0, lt=1.0)
    flag: bool = option(False, help="A switch.")
    text: str = option("", help="A text.")
    mode: Literal["fast", "exact"] = option("fast", help="A mode.")
    level: int = option(1, help="A level.", choices=(1, 2, 4))
    ids: tuple[int, ...] = option((), help="Ids.", ge=0)
    pair: tuple[int, str] = option((0, ""), help="A pair.")
    bias: dict[int, float] = option({}, help="A table.", ge=-100.0, le=100.0)
    path: Path | None = option(None, help="A file.")
    number: float | int = option(1, help="Either.", gt=0.0)
    half: int = option(1, help="An integer with a fractional bound.", ge=0.5)
    names: list[str] = option([], help="Names.")
    call: Callable[[int], int] | None = option(None, help="A function.")
    anything: Any = option(None, help="Whatever.")
    side: Side = option(Side.LEFT, help="An enumeration.")
    sides: dict[Side, set[int]] | None = option(None, help="Sets by members.")

    def process(self, logits):
        return logits


def checked(**values):
    return check(Everything, values, "everything")


# -- objects --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unchecking(Processor):
    """Has a ``__post_init__`` of its own, which leaves out that of the base class."""

    factor: float = option(2.0, help="A factor.", ge=1.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "half", self.factor / 2)

    def process(self, logits):
        return logits * self.half


@dataclass(frozen=True)
class Underived:
    factor: float = option(2.0, help="A factor.", ge=1.0)

    def process(self, logits):
        return logits * self.factor


@dataclass(frozen=True)
class OwnInit(Processor):
    factor: float = option(help="A factor.", ge=1.0)

    def __init__(self, factor: float | None = None) -> None:
        if factor is not None:
            object.__setattr__(self, "factor", factor)

    def process(self, logits):
        return logits * self.factor


@pytest.mark.parametrize("kind", [Unchecking, Underived, OwnInit])
def test_the_options_of_an_object_are_checked_when_it_comes_into_a_chain(kind):
    chain = processors.load(kind(4.0))
    assert chain.links[0].processor.factor == 4.0
    with pytest.raises(errors.OptionError, match=f"Option 'factor' of '{kind.__name__}' must be >= 1, but is -5.0"):
        processors.load(kind(-5.0))


@pytest.mark.parametrize("wrong", [3, True, "LEFT", [1], None, object()])
def test_the_members_of_an_enumeration_are_listed_where_a_value_is_none_of_them(wrong):
    with pytest.raises(errors.OptionTypeError, match=r"'side' of 'everything' must be Side \(members 1, 2\), but is "):
        checked(side=wrong)
    with pytest.raises(errors.OptionTypeError, match=r"must be dict\[.*\] \| None \(members 1, 2\), but is .*3"):
        checked(sides={3: [1]})


def test_an_option_that_a_constructor_left_out_is_named():
    with pytest.raises(errors.InvalidSignature, match="'factor' of OwnInit has no value.*'__init__' of its own"):
        processors.load(OwnInit())


# -- conversions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given_value", "expected"),
    [
        ("count", 3.0, 3),
        ("count", np.int64(3), 3),
        ("count", np.float32(3), 3),
        ("count", np.array(3), 3),
        ("flag", np.True_, True),
        ("level", np.array(2), 2),
        ("ratio", np.array(0.25), 0.25),
        ("number", np.int64(2), 2),
        ("ids", [np.float32(1), np.int8(2)], (1, 2)),
        ("ratio", np.float32(0.25), 0.25),
        ("number", 1, 1),
        ("number", 1.5, 1.5),
        ("half", 1, 1),
        ("ids", [1, 2], (1, 2)),
        ("ids", np.array([1, 2]), (1, 2)),
        ("pair", [3, "x"], (3, "x")),
        ("bias", {"5": 1, "7": -2.5}, {5: 1.0, 7: -2.5}),
        ("path", "a/b", Path("a/b")),
        ("path", None, None),
        ("mode", "exact", "exact"),
        ("names", ("a", "b"), ["a", "b"]),
        ("anything", {1: [2]}, {1: [2]}),
        ("side", Side.RIGHT, Side.RIGHT),
        ("side", np.int64(2), Side.RIGHT),
        ("sides", {"1": [3, 4], Side.RIGHT: ()}, {Side.LEFT: {3, 4}, Side.RIGHT: set()}),
    ],
)
def test_values_are_converted_to_the_declared_type(name, given_value, expected):
    value = checked(**{name: given_value})[name]
    assert value == expected
    assert type(value) is type(expected)


def test_a_refused_array_is_told_on_one_line():
    with pytest.raises(errors.OptionTypeError) as caught:
        checked(count=np.eye(2))
    assert "\n" not in str(caught.value)


def test_an_integer_for_a_float_becomes_a_float():
    value = check(Ratio, {"ratio": 1}, "ratio")["ratio"]
    assert value == 1.0
    assert type(value) is float


@dataclass(frozen=True)
class Ratio:
    ratio: float = option(0.5, help="A ratio.")


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("count", "3", "int"),
        ("count", 3.5, "int"),
        ("count", True, "int"),
        ("count", None, "int"),
        ("ratio", "half", "float"),
        ("ratio", True, "float"),
        ("flag", 1, "bool"),
        ("text", 5, "str"),
        ("text", b"bytes", "str"),
        ("mode", "slow", "fast"),
        ("ids", 3, "tuple[int, ...]"),
        ("ids", "12", "tuple[int, ...]"),
        ("ids", [1, "x"], "tuple[int, ...]"),
        ("pair", [1], "tuple[int, str]"),
        ("bias", [1], "dict[int, float]"),
        ("bias", {"five": 1.0}, "dict[int, float]"),
        ("call", 5, "Callable"),
    ],
)
def test_a_value_of_another_type_is_refused_with_name_place_type_and_value(name, value, kind):
    with pytest.raises(errors.OptionTypeError) as caught:
        checked(**{name: value})
    text = str(caught.value)
    assert f"Option {name!r} of 'everything' must be" in text
    assert kind in text
    assert repr(value) in text
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("bias", [{"5": 1.0, 5: 2.0}, {"5": 1.0, "05": 2.0}])
def test_a_key_of_a_table_that_comes_as_a_number_and_as_a_text_is_refused(bias):
    with pytest.raises(errors.OptionError, match=r"'bias' of 'everything' has a key twice"):
        checked(bias=bias)


MANY = list(range(200))


@pytest.mark.parametrize(
    ("name", "value", "entry"),
    [
        ("ids", [*MANY, "x", *MANY], "entry [200] is 'x' (str)"),
        ("ids", [*MANY, -7, *MANY], "entry [200] is -7 (int)"),
        ("ids", [*MANY, 1 << 40], f"entry [200] is {1 << 40} (int)"),
        ("bias", {n: "x" if n == 150 else 0.0 for n in MANY}, "entry [150] is 'x' (str)"),
        ("bias", {n: math.nan if n == 150 else 0.0 for n in MANY}, "entry [150] is nan (float)"),
        ("names", [*map(str, MANY), 5], "entry [200] is 5 (int)"),
        ("sides", {1: MANY, 2: [*MANY, "x"]}, "entry [2][200] is 'x' (str)"),
    ],
)
def test_the_wrong_entry_of_a_long_list_or_table_is_named(name, value, entry):
    with pytest.raises(errors.OptionError, match=re.escape(f", in which {entry}.")):
        checked(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("ids", 3), ("names", "a")])
def test_one_value_in_place_of_several_is_refused_with_the_list_to_give(name, value):
    with pytest.raises(errors.OptionTypeError, match=re.escape(f"Give a list: [{value!r}].")):
        checked(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("count", 0, "must be >= 1, <= 9 tokens, but is 0"),
        ("count", 10, "must be >= 1, <= 9 tokens, but is 10"),
        ("ratio", 0.0, "must be > 0, < 1, but is 0.0"),
        ("ratio", 1, "must be > 0, < 1, but is 1"),
        ("ratio", float("nan"), "but is nan"),
        ("level", 3, "must be one of 1, 2, 4, but is 3"),
        ("ids", [1, -1], "must be >= 0"),
        ("bias", {3: 101.0}, "must be >= -100, <= 100"),
        ("number", 0, "must be > 0, but is 0"),
        ("half", 0, "must be >= 0.5, but is 0"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(name, value, text):
    with pytest.raises(errors.OptionError) as caught:
        checked(**{name: value})
    assert text in str(caught.value)
    assert isinstance(caught.value, ValueError)


@given(st.integers(-20, 20))
def test_exactly_the_declared_range_is_accepted(value):
    if 1 <= value <= 9:
        assert checked(count=value) == {"count": value}
    else:
        with pytest.raises(errors.OptionError):
            checked(count=value)


@given(st.floats(-1, 2))
def test_open_bounds_exclude_their_ends(value):
    if 0 < value < 1:
        assert checked(ratio=value) == {"ratio": value}
    else:
        with pytest.raises(errors.OptionError):
            checked(ratio=value)


# -- names --------------------------------------------------------------------------------------------


def test_an_unknown_option_comes_with_a_near_match_and_all_options():
    with pytest.raises(errors.UnknownOption, match=r"'everything' has no option 'rato'. Did you mean 'ratio'\?") as e:
        checked(rato=1)
    assert "Its options are count, ratio, flag" in str(e.value)


def test_a_processor_without_options_says_so():
    with pytest.raises(errors.UnknownOption, match="'plain' has no option 'x'. It has no options."):
        check(object, {"x": 1}, "plain")


def test_missing_options_are_those_without_default():
    assert missing(Everything, {}) == ("count",)
    assert missing(Everything, {"count": 1}) == ()


def test_arguments_of_load_that_are_options_or_misspelt_are_named():
    with pytest.raises(
        errors.UnknownOption, match=r"no argument k=5\. Options stand .*load\(\('top_k', \{'k': 5\}\)\)"
    ):
        processors.load("top_k", k=5)
    for name in ("vocabulary", "tokeniser"):
        with pytest.raises(errors.UnknownOption, match=f"no argument {name}=.* stand in tokenizer="):
            processors.load("json", **{name: "words"})


def test_an_unknown_option_is_refused_when_loading():
    with pytest.raises(errors.UnknownOption, match="'top_k' has no option 'kk'. Did you mean 'k'"):
        processors.load(("top_k", {"kk": 3}))
    with pytest.raises(errors.UnknownOption, match="'top_k' has no option 'kk'"):
        processors.load("top_k", options={"top_k": {"kk": 3}})


def test_options_for_a_processor_outside_the_chain_are_refused():
    with pytest.raises(errors.UnknownPlugin, match="given for 'topk', but the chain has top_k. Options do not add"):
        processors.load("top_k", options={"topk": {"k": 3}})


@pytest.mark.parametrize("options", [{"top_k": 5}, {"top_k": [("k", 5)]}])
def test_options_that_are_no_table_are_refused(options):
    with pytest.raises(errors.OptionTypeError, match=r"options of 'top_k' must be a table"):
        processors.load("top_k", options=options)
    with pytest.raises(errors.OptionTypeError, match="must be a table"):
        processors.load("top_k").configure(**options)


# -- direct construction ----------------------------------------------------------------------------------


def test_a_processor_built_directly_is_checked_and_converted_too():
    built = Everything(count=3.0, ids=[1, 2])
    assert (built.count, built.ids) == (3, (1, 2))
    with pytest.raises(errors.OptionError, match="'count' of 'Everything' must be >= 1"):
        Everything(count=0)


def test_configured_processors_are_immutable():
    with pytest.raises(AttributeError):
        Everything(count=1).count = 2


def test_default_tables_are_not_shared_between_processors():
    first, second = Everything(count=1), Everything(count=1)
    first.names.append("x")
    assert second.names == []
    assert Everything(count=2).bias == {}


# -- what is told about options -----------------------------------------------------------------------------


def test_declared_options_tell_type_range_default_and_unit():
    by_name = {o.name: o for o in declared(Everything)}
    count, ratio, mode = by_name["count"], by_name["ratio"], by_name["mode"]
    assert (count.required, count.type_text, count.range_text, count.unit) == (True, "int", ">= 1, <= 9", "tokens")
    assert (ratio.required, ratio.default, ratio.signature) == (False, 0.5, "ratio: float = 0.5")
    assert "fast" in mode.type_text
    assert by_name["path"].type_text == "Path | None"
    assert by_name["level"].range_text == "one of 1, 2, 4"
    assert list(by_name) == list(Everything.__dataclass_fields__)


def test_anything_but_a_dataclass_has_no_options():
    assert declared(object()) == ()
    assert declared(lambda logits: logits) == ()


def test_options_of_a_class_that_is_no_dataclass_are_refused_with_the_remedy():
    class Undecorated:
        count: int = option(1, help="How many.")

    class Derived(Everything):
        more: int = option(1, help="How many more.")

    for cls, name in ((Undecorated, "count"), (Derived, "more")):
        with pytest.raises(
            errors.InvalidSignature, match=f"{name!r} in {cls.__qualname__!r}.*@dataclass\\(frozen=True\\)"
        ):
            declared(cls)


def test_types_that_only_a_type_checker_imports_are_told_as_written():
    namespace: dict[str, Any] = {}
    code = """
from __future__ import annotations
from dataclasses import dataclass
from logitloom import option

@dataclass(frozen=True)
class Lazy:
    table: OnlyForTypeCheckers = option(help="Imported under TYPE_CHECKING.")
    count: int = option(1, help="A count.", ge=1)
"""
    exec(code, namespace)
    by_name = {o.name: o for o in declared(namespace["Lazy"])}
    assert by_name["table"].type_text == "OnlyForTypeCheckers"
    assert check(namespace["Lazy"], {"table": 5, "count": 2.0}, "lazy") == {"table": 5, "count": 2}


@pytest.mark.parametrize("name", ["ratio", "bias", "number"])
@pytest.mark.parametrize("number", [1e39, 10**400])
def test_numbers_outside_the_range_of_logits_are_refused_where_an_option_is_a_number(name: str, number: float) -> None:
    with pytest.raises(errors.OptionError, match="32-bit floating numbers|must be within"):
        check(Everything, {name: {1: number} if name == "bias" else number}, "everything")


def test_numbers_inside_a_value_of_any_type_are_its_own() -> None:
    schema = {"maximum": 1e39, "enum": [1e300, 10**400]}
    assert check(Everything, {"anything": schema}, "everything") == {"anything": schema}


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(re.compile("a+"), "'a\\+'"), (re.compile("a+", re.IGNORECASE | re.DOTALL), r"'\(\?is\)a\+'")],
)
def test_a_compiled_pattern_is_refused_with_the_text_to_give(pattern: re.Pattern[str], text: str) -> None:
    with pytest.raises(errors.OptionTypeError, match=rf"but is re.compile.* \(Pattern\)\. Give its text: {text}\.$"):
        processors.load(("regex", {"pattern": pattern}))
