"""Every public entry of a chain x every kind of wrong value: a sentence, never a traceback of something inside."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.errors import InvalidContext, LogitloomError, OptionError, StateMismatch

WORDS = Vocabulary([b"", *[bytes([97 + i]) for i in range(15)]], eos=[0])
WIDTH = 16
CHAINS = {
    "nothing": (),
    "temperature": (("temperature", {"temperature": 0.7}),),
    "regex": (("regex", {"pattern": "[a-e]+"}),),
    "stop": (("stop", {"strings": ["ab"]}),),
    "json": (("json", {"schema": {"enum": ["a"]}, "engine": "table"}),),
    "counts": (("frequency_penalty", {"penalty": 0.5}), ("no_repeat_ngram", {"n": 2})),
    "combinator": (("after", {"trigger": "a", "inner": ["top_k", {"k": 2}]}),),
    "several": (("logit_bias", {"bias": {1: 1.0}}), ("choice", {"choices": ["ab", "b"]}), ("top_p", {"p": 0.9})),
}
JSON_WORDS = Vocabulary([b"", b'"', b"a"] + [bytes([98 + i]) for i in range(13)], eos=[0])


def chain_of(name: str) -> Any:
    return processors.load(*CHAINS[name], tokenizer=JSON_WORDS if name == "json" else WORDS)


def begun(name: str, count: int = 2) -> tuple[Any, np.ndarray[Any, Any], Any, Context]:
    chain = chain_of(name)
    logits = np.zeros((count, WIDTH), dtype=np.float32)
    context = Context.start(logits, prompt=[[1]] * count, max_length=30, vocabulary=chain.vocabulary)
    return chain, logits, chain.init_state(context), context


LOGITS = {
    "a list": ([[0.0] * WIDTH] * 2, "must be an array"),
    "a number": (1.0, "must be an array"),
    "nothing": (None, "must be an array"),
    "a text": ("logits", "must be an array"),
    "integers": (np.zeros((2, WIDTH), dtype=np.int32), "must be floating numbers"),
    "64-bit integers": (np.zeros((2, WIDTH), dtype=np.int64), "must be floating numbers"),
    "bools": (np.ones((2, WIDTH), dtype=np.bool_), "must be floating numbers"),
    "complex numbers": (np.zeros((2, WIDTH), dtype=np.complex64), "must be floating numbers"),
    "objects": (np.zeros((2, WIDTH), dtype=object), "must be floating numbers"),
    "texts": (np.full((2, WIDTH), "x"), "must be floating numbers"),
    "another byte order": (np.zeros((2, WIDTH), np.dtype(np.float32).newbyteorder()), "byte order of this machine"),
    "no axis": (np.float32(1.0), "have shape"),
    "three axes": (np.zeros((1, 2, WIDTH), dtype=np.float32), "have shape"),
    "fewer columns": (np.zeros((2, WIDTH - 1), dtype=np.float32), "columns"),
    "more columns": (np.zeros((2, WIDTH + 1), dtype=np.float32), "columns"),
    "no columns": (np.zeros((2, 0), dtype=np.float32), "columns"),
}
ROWS = {"fewer rows": 1, "more rows": 3, "no rows": 0}


@pytest.mark.parametrize("wrong", LOGITS)
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.long
def test_wrong_logits_are_refused(name: str, wrong: str) -> None:
    chain, _, state, context = begun(name)
    given, part = LOGITS[wrong]
    with pytest.raises(InvalidContext, match=part):
        chain.process(given, state, context)
    with pytest.raises(InvalidContext, match=part):
        chain.process(given, state, context.accept([[1], [2]]))


@pytest.mark.parametrize("wrong", [name for name, (_, part) in LOGITS.items() if part != "columns"])
def test_a_generation_cannot_begin_with_wrong_logits(wrong: str) -> None:
    given, part = LOGITS[wrong]
    with pytest.raises(InvalidContext, match=part):
        Context.start(given)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", [name for name in CHAINS if name not in ("nothing", "temperature")])
def test_another_number_of_rows_than_the_states_is_refused(name: str, rows: str) -> None:
    chain, _, state, context = begun(name)
    with pytest.raises(StateMismatch, match=r"The state has 2 rows, but there are logits for \d sequences"):
        chain.process(np.zeros((ROWS[rows], WIDTH), dtype=np.float32), state, context)


@pytest.mark.parametrize("tokens", [[[1]], [[1], [2], [3]], [], [1], np.array([1]), np.zeros((3, 1), dtype=np.int32)])
@pytest.mark.parametrize("name", CHAINS)
def test_tokens_for_another_number_of_rows_are_refused(name: str, tokens: Any) -> None:
    chain, logits, state, context = begun(name)
    with pytest.raises(InvalidContext, match=r"Tokens were accepted for \d rows"):
        chain.process(logits, state, context.accept(tokens))


IDS = {
    "too large": [[WIDTH], [1]], "much too large": [[2**31 - 1], [1]], "beyond 32 bits": [[2**40], [1]],
    "negative": [[-2], [1]], "very negative": [[-(2**40)], [1]], "half": [[1.5], [1]], "a text": [["a"], [1]],
    "texts": ["ab", "c"], "one text": "ab", "one number": 5, "nothing": [None, [1]], "nested": [[[1]], [1]],
}  # fmt: skip


@pytest.mark.parametrize("wrong", IDS)
def test_ids_that_the_logits_do_not_have_are_refused(wrong: str) -> None:
    _, _, _, context = begun("regex")
    with pytest.raises(InvalidContext, match=r"accepted|Accepted"):
        context.accept(IDS[wrong])


@pytest.mark.parametrize(
    "tokens",
    [
        np.array([[WIDTH], [1]]),
        np.array([[-7], [1]]),
        np.array([[WIDTH], [1]], dtype=np.int32),
        np.array([[-2], [1]], dtype=np.int32),
        np.array([[2**31 - 1] * 100] * 2, dtype=np.int32),
        np.array([[1.0], [2.0]]),
        np.array([[True], [False]]),
        np.array([["a"], ["b"]]),
        np.zeros((2, 1, 1), dtype=np.int64),
    ],
)
def test_arrays_that_are_no_tokens_are_refused(tokens: Any) -> None:
    _, _, _, context = begun("regex")
    with pytest.raises(InvalidContext, match=r"accepted|Accepted"):
        context.accept(tokens)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("tokens", "dtype"),
    [
        *(([[WIDTH], [1]], dtype) for dtype in ("int8", "int16", "int32", "int64")),
        *(([[-2], [1]], dtype) for dtype in ("int8", "int16", "int32", "int64")),
        *(([WIDTH, 1], dtype) for dtype in ("int8", "int16", "int32", "int64")),
        ([[2**40], [1]], "int64"), ([[-(2**40)], [1]], "int64"), ([[1.0], [2.0]], "float32"), ([[1], [2]], "float16"),
        ([[True], [False]], "bool"), ([[1], [2]], "complex64"), ([[[1]], [[2]]], "int32"), (5, "int32"),
    ],
)  # fmt: skip
def test_tensors_that_are_no_tokens_are_refused(tokens: Any, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    context = Context.start(torch.zeros((2, WIDTH)))
    with pytest.raises(InvalidContext, match=r"accepted|Accepted"):
        context.accept(torch.tensor(tokens, dtype=getattr(torch, dtype)))


@pytest.mark.torch
@pytest.mark.parametrize("wrong", [*IDS, "an array of another library"])
def test_what_is_no_tensor_of_tokens_is_refused(wrong: str) -> None:
    torch = pytest.importorskip("torch")
    context = Context.start(torch.zeros((2, WIDTH)))
    with pytest.raises(InvalidContext, match=r"accepted|Accepted"):
        context.accept(IDS.get(wrong, np.array([[1.5], [1.0]])))


TENSORS = {
    "integers": ("zeros", "int32", (2, WIDTH), "must be floating numbers"),
    "bools": ("ones", "bool", (2, WIDTH), "must be floating numbers"),
    "complex numbers": ("zeros", "complex64", (2, WIDTH), "must be floating numbers"),
    "8 bits": ("zeros", "float8_e5m2", (2, WIDTH), "of 16 bits or more"),
    "no axis": ("zeros", "float32", (), "have shape"),
    "three axes": ("zeros", "float32", (1, 2, WIDTH), "have shape"),
    "fewer columns": ("zeros", "float32", (2, WIDTH - 1), "columns"),
    "no columns": ("zeros", "float32", (2, 0), "columns"),
}


@pytest.mark.torch
@pytest.mark.parametrize("wrong", TENSORS)
@pytest.mark.parametrize("name", CHAINS)
def test_wrong_tensors_are_refused(name: str, wrong: str) -> None:
    torch = pytest.importorskip("torch")
    make, dtype, shape, part = TENSORS[wrong]
    chain = chain_of(name)
    context = Context.start(torch.zeros((2, WIDTH)), prompt=[[1]] * 2, max_length=30, vocabulary=chain.vocabulary)
    given = getattr(torch, make)(shape, dtype=getattr(torch, dtype))
    with pytest.raises(InvalidContext, match=part):
        chain.process(given, chain.init_state(context), context)


@pytest.mark.torch
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", [name for name in CHAINS if name not in ("nothing", "temperature")])
def test_another_number_of_tensor_rows_than_the_states_is_refused(name: str, rows: str) -> None:
    torch = pytest.importorskip("torch")
    chain = chain_of(name)
    context = Context.start(torch.zeros((2, WIDTH)), prompt=[[1]] * 2, max_length=30, vocabulary=chain.vocabulary)
    state = chain.init_state(context)
    with pytest.raises(StateMismatch, match=r"The state has 2 rows"):
        chain.process(torch.zeros((ROWS[rows], WIDTH)), state, context)
    with pytest.raises(InvalidContext, match=r"Tokens were accepted for \d rows"):
        chain.process(torch.zeros((2, WIDTH)), state, context.accept(torch.ones((ROWS[rows], 1), dtype=torch.int32)))


@pytest.mark.parametrize("wrong", [None, 5, "state", (), ((), (), ()), [1], {"a": 1}])
@pytest.mark.parametrize("name", CHAINS)
def test_what_is_no_state_is_refused(name: str, wrong: Any) -> None:
    chain, logits, _, context = begun(name)
    with pytest.raises((StateMismatch, InvalidContext)):
        chain.process(logits, wrong, context)


@pytest.mark.parametrize("name", CHAINS)
def test_arrays_that_may_not_be_written_are_not_written_to(name: str) -> None:
    chain, logits, state, context = begun(name)
    expected, _ = chain.process(logits.copy(), state, context)
    logits.flags.writeable = False
    out, _ = chain.process(logits, state, context.with_fields(donate=True))
    assert np.array_equal(out, expected)
    assert not logits.any()


class Breaking:
    """A third party's processor that fails when told to."""

    def __init__(self, where: str) -> None:
        self.where = where

    def init_state(self, context: Context) -> Any:
        if self.where == "init_state":
            raise ZeroDivisionError("of the third party")
        return (context.backend.asarray(np.zeros(context.batch, dtype=np.int32)),)

    def process(self, logits: Any, state: Any, context: Context) -> tuple[Any, Any]:
        if self.where == "process" and context.tokens is not None:
            raise ZeroDivisionError("of the third party")
        return logits, state


@pytest.mark.parametrize("where", ["init_state", "process"])
def test_an_exception_of_a_third_party_says_whose_it_is_and_when(where: str) -> None:
    chain = processors.load(("no_repeat_ngram", {"n": 2}), Breaking(where))
    logits = np.zeros((1, WIDTH), dtype=np.float32)
    context = Context.start(logits, prompt=[[1, 2, 3]], max_length=20)
    with pytest.raises(ZeroDivisionError, match="of the third party") as caught:
        _three_steps(chain, logits, context)
    (note,) = caught.value.__notes__
    when = "at step 0" if where == "init_state" else "at step 1"
    assert note == f"Raised by {where} of the processor 'Breaking', {when}."


def _three_steps(chain: Any, logits: Any, context: Context) -> None:
    _, state = chain.process(logits, chain.init_state(context), context)
    _, state = chain.process(logits, state, context.accept([[4]]))


# -- options ----------------------------------------------------------------------------------------------

TEXTS = {
    "regex": "pattern", "stop": "strings", "bad_words": "phrases", "choice": "choices", "grammar": "grammar",
    "after": "trigger", "until": "trigger", "budget": "text", "between": "open", "thinking": "open", "dry": "breakers",
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_half_a_surrogate_pair_is_refused(name: str) -> None:
    kind = next(option.type_text for option in processors.describe(name).options if option.name == TEXTS[name])
    value: Any = ["a\ud800"] if kind.startswith("tuple") else "a\ud800"
    with pytest.raises(LogitloomError, match=r"surrogate"):
        processors.load((name, {TEXTS[name]: value}))


def nested(levels: int, key: Any = None) -> Any:
    """A list in a list, or a table in a table."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if key is None else {key: value}
    return value


VALUES: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 10**400, -(10**400), 0.5, float("nan"), float("inf"), float("-inf"), 1e300, 5e-324,
    "", "x", "a\ud800", b"x", [], [[]], [None], ["x"], [-1], [2**70], {}, {"a": {}}, {-1: 1}, {"1": float("nan")},
    object(), len, {"use": "top_k"}, {"use": 5}, ["top_k", {"k": 0}], np.zeros(3), np.float32(1), (1, 2), {1, 2},
    range(3), type, Exception(), nested(3000), nested(3000, "items"), nested(450, "not"), nested(900),
    '{"items": ' * 3000 + "{}" + "}" * 3000, "(" * 3000 + ")" * 3000,
]  # fmt: skip


def options_of_all() -> list[tuple[str, str]]:
    return [
        (record.name, option.name)
        for record in processors.available()
        if record.distribution == "logitloom" and record.installed
        for option in processors.describe(record.name).options
    ]


@pytest.mark.parametrize(("name", "option"), options_of_all())
@pytest.mark.long
def test_any_value_of_any_option_is_taken_or_refused_with_a_sentence(name: str, option: str) -> None:
    for value in VALUES:
        try:
            processors.load((name, {option: value}), tokenizer=WORDS)
        except LogitloomError as error:
            told = str(error)
        else:
            continue
        assert re.search(r"[a-z]{2,} .*", told), (type(value), told[:500])


@pytest.mark.parametrize("options", [5, "x", [1], {"top_k": 5}, {"top_k": [1]}, {"other": {}}, {"top_k": {5: 5}}])
def test_options_that_are_no_tables_are_refused(options: Any) -> None:
    with pytest.raises(LogitloomError, match=r"\w+ .*\."):
        processors.load("top_k", options=options)


SPECS: list[Any] = [None, 5, (), ("top_k",), ("top_k", 5), b"top_k", "", "@", "top_k@", "a@b@c", "\ud800", [], {}]


@pytest.mark.parametrize("spec", SPECS)
def test_what_is_no_processor_is_refused(spec: Any) -> None:
    with pytest.raises(LogitloomError, match=r"\w+ .*\."):
        processors.load(spec)


@pytest.mark.parametrize("spec", [["top_k", "temperature"], [("top_k", {"k": 3}), ("temperature", {})]])
def test_a_list_of_processors_is_refused_with_the_remedy(spec: Any) -> None:
    with pytest.raises(LogitloomError, match="Give several processors as several arguments"):
        processors.load(spec)


# -- values that ruin a row -------------------------------------------------------------------------------

EXTREMES = [
    5e-324, 1e-300, 1e-45, 1e-38, 1e-8, 1e-4, 0.01, 0.0, 1.0, -1.0, -1e-45, 100.0, -100.0, 1e4, 1e38, 3.4e38, 3.5e38,
    1e300, -1e300, 1.7e308, -1.7e308, float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
BASE: dict[str, dict[str, Any]] = {
    "regex": {"pattern": "[a-z]*"}, "choice": {"choices": ["a", "b"]}, "top_k": {"k": 3}, "top_p": {"p": 0.9},
    "min_p": {"p": 0.1}, "typical_p": {"p": 0.9}, "epsilon_cutoff": {"epsilon": 1e-3}, "eta_cutoff": {"epsilon": 1e-3},
    "frequency_penalty": {"penalty": 0.5}, "presence_penalty": {"penalty": 0.5}, "repetition_penalty": {"penalty": 1.2},
    "logit_bias": {"bias": {1: 1.0}}, "no_repeat_ngram": {"n": 2}, "suppress_tokens": {"tokens": [1]},
    "encoder_repetition_penalty": {"penalty": 1.2}, "eos_above": {"p": 0.5}, "quadratic": {"factor": 0.5},
    "exponential_decay_length_penalty": {"start": 1, "factor": 1.1}, "whisper_no_speech": {"token": 4, "eos": 0},
    "sequence_bias": {"sequences": [[1], [2, 1]], "biases": [1.0, 1.0]},
}  # fmt: skip


#: Processors whose numbers are probed.
CHECKED = {
    *BASE, "adaptive_p", "dry", "dynamic_temperature", "mirostat", "mirostat_v2", "temperature", "top_h", "top_n_sigma",
    "watermark_greenlist", "xtc",
}  # fmt: skip
#: Those that see every step: tokens come one by one.
STEPWISE = {"adaptive_p", "mirostat", "mirostat_v2", "whisper_no_speech"}
#: A number, among the neighbours in its option's type that it needs.
GIVEN: dict[str, Any] = {"logit_bias": lambda value: {1: value}, "sequence_bias": lambda value: [value, value]}


def numbers_of_all() -> list[tuple[str, str]]:
    return [
        (record.name, option.name)
        for record in processors.available()
        if record.distribution == "logitloom" and record.name in CHECKED
        for option in processors.describe(record.name).options
        if "float" in option.type_text and "seconds" not in option.name
    ]


@pytest.mark.parametrize("seconds", [5e-324, 1e-300, 3.4e38, 3.5e38, 1e300, 1.7e308, float("inf"), float("nan"), -1.0])
@pytest.mark.parametrize("name", ["regex", "json"])
def test_any_number_of_seconds_is_taken_or_refused_in_a_sentence(name: str, seconds: float) -> None:
    options = {"pattern": "[a-z]+"} if name == "regex" else {"schema": {"enum": [1]}, "engine": "table"}
    given, words = (name, {**options, "max_seconds": seconds}), Vocabulary([b"", b"a", b"1"], eos=[0])
    if 1 < seconds < 3.401e38:
        processors.load(given, tokenizer=words)
    elif seconds != float("inf"):
        with pytest.raises(LogitloomError, match="seconds"):
            processors.load(given, tokenizer=words)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("name", "option"), numbers_of_all())
@pytest.mark.long
def test_no_number_that_an_option_takes_ruins_a_row(name: str, option: str, dtype: Any) -> None:
    taken = 0
    for value in EXTREMES:
        given = GIVEN.get(name, float)(value)
        try:
            chain = processors.load((name, {**BASE.get(name, {}), option: given}), tokenizer=WORDS)
        except OptionError:
            continue
        taken += 1
        logits = (np.random.default_rng(1).normal(size=(2, WIDTH)) * 5).astype(dtype)
        logits[:, 3] = -np.inf
        context = Context.start(logits, prompt=[[1, 2], [4]], max_length=30, vocabulary=WORDS)
        state = chain.init_state(context)
        first = None if name in STEPWISE else [[1, 2, 1], [2, 1, 2]]
        for tokens in (first, [[1], [2]], [[1], [2]]):
            out, state = chain.process(logits.copy(), state, context.accept(tokens) if tokens else context)
            assert not np.isnan(out).any(), (value, out)
            assert not np.isposinf(out).any(), (value, out)
            assert np.isfinite(out).any(axis=1).all(), (value, out)
            assert np.isneginf(out[:, 3]).all(), (value, out)
    assert taken


HOSTILE: dict[str, dict[str, Any]] = {
    "dynamic_temperature": {"low": 1e-4, "high": 1e-4},
    "exponential_decay_length_penalty": {"start": 0, "factor": 100.0, "eos": [0]},
    "quadratic": {"factor": 100.0, "curve": 1.0},
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", HOSTILE)
def test_the_strongest_options_do_not_ruin_the_largest_logits(name: str, dtype: Any) -> None:
    chain = processors.load((name, HOSTILE[name]))
    most = float(np.finfo(dtype).max) / 2
    logits = np.array([[most, -most, 0.0, -np.inf], [-np.inf, 5.0, 4.0, -5.0], [0.0, -most, 1.0, most]], dtype=dtype)
    context = Context.start(logits)
    out, _ = chain.process(logits.copy(), chain.init_state(context), context.accept([[1] * 3000] * 3))
    assert not np.isnan(out).any()
    assert not np.isposinf(out).any()
    assert np.isfinite(out.max(axis=1)).all()
    assert np.isneginf(out[np.isneginf(logits)]).all()
    if name != "exponential_decay_length_penalty":
        assert out.argmax(axis=1).tolist() == [0, 1, 3]


def test_a_bias_of_a_sequence_is_a_number_that_logits_have_or_forbids() -> None:
    for wrong in (-1e5, -1e30):
        with pytest.raises(OptionError, match=r"must hold numbers from -10000 to 10000, or -inf .* but has -1"):
            processors.load(("sequence_bias", {"sequences": [[1]], "biases": [wrong]}))


@pytest.mark.parametrize("name", sorted({name for name, _ in numbers_of_all()} | {"top_k", "no_repeat_ngram"}))
def test_a_row_that_is_not_a_number_stays_so_and_its_neighbours_do_not_notice(name: str) -> None:
    chain = processors.load((name, BASE.get(name, {})), tokenizer=WORDS)
    logits = (np.random.default_rng(2).normal(size=(2, WIDTH))).astype(np.float32)
    context = Context.start(logits, prompt=[[1, 2], [4]], max_length=30, vocabulary=WORDS)
    sound, _ = chain.process(logits.copy(), chain.init_state(context), context)
    logits[0] = np.nan
    with np.errstate(invalid="ignore"):
        out, _ = chain.process(logits.copy(), chain.init_state(context), context)
    assert np.isnan(out[0]).any()
    assert not np.isfinite(out[0]).any()
    assert np.array_equal(out[1], sound[1])
