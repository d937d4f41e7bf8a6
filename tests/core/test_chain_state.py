"""States as bytes and as pickles: what comes back, and what is refused."""

from __future__ import annotations

import copy
import enum
import hashlib
import pickle
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from logitloom import Backend, ChainState, Context, Vocabulary, load_backend, processors
from logitloom.automata import TokenAutomaton, compile_pattern
from logitloom.chain.state import _MAGIC, ChainFingerprint
from logitloom.constraints import Constraint, ConstraintProcessor
from logitloom.errors import StateMismatch
from logitloom.host.fingerprint import fingerprint_of
from logitloom.processor import Processor
from logitloom.rows.tree import Rows, concat
from logitloom.rows.tree_format import decode, encode
from tests.plugins.processors.constraining import WORDS

HERE = __name__.partition(".")[0]


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Place(NamedTuple):
    line: int
    column: Any


class Counted:
    """A class of states with parts."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted) and self.n == other.n

    def __hash__(self) -> int:
        return self.n

    def state_parts(self) -> tuple[int]:
        return (self.n,)

    @staticmethod
    def from_state_parts(n: int) -> Counted:
        return Counted(n)


@dataclass(frozen=True)
class Walk(Processor):
    """A processor whose states are values of any kind."""

    value: Any = None

    def init_state(self, context: Context) -> Any:
        return Rows([self.value] * context.batch)

    def process(self, logits: Any, state: Any) -> Any:
        return logits, state


VALUES = [
    None, True, False, 0, -1, 2**80, -(2**63), 0.5, float("inf"), Decimal("-1.50E+7"), Fraction(-2, 3),
    "é\ud800", b"\0\xff", (), (1, (2, (3, ()))),
    frozenset({1, 2, (3, frozenset({4}))}), Colour.BLUE, Place(1, Place(2, "x")), Counted(7), (Counted(1), Counted(1)),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_of_every_kind_come_back(value: Any) -> None:
    (found,) = decode(encode(Rows([value])), load_backend("numpy"), packages=[HERE])
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16", "bool", "bfloat16", "uint32"])
def test_arrays_come_back_with_their_dtype(backend: Backend, dtype: str) -> None:
    if dtype == "bfloat16" and backend.name == "numpy":
        pytest.skip("numpy has no bfloat16")
    if dtype == "uint32" and backend.name == "torch":
        pytest.skip("torch hardly has uint32")
    array = backend.asarray(np.arange(6).reshape(2, 3) % 2, dtype)
    tree = {"a": (array, ()), "b": backend.asarray(np.zeros((0, 4)), "float32")}
    found = decode(encode(tree), backend, packages=())
    assert found["a"][0].dtype == array.dtype
    assert found["a"][1] == ()
    assert np.array_equal(backend.to_numpy(found["a"][0]), backend.to_numpy(array))
    assert tuple(found["b"].shape) == (0, 4)


def test_equal_states_are_equal_bytes_and_what_is_shared_is_written_once() -> None:
    letters = [frozenset(order) for order in ("abc", "cab")]
    assert encode(Rows([letters[0]])) == encode(Rows([letters[1]]))
    long: Any = ()
    for n in range(1000):
        long = (n, long)
    once, twice = (len(encode(Rows([long] * n))) for n in (1, 2))
    assert twice - once < 10


def test_a_hostile_document_makes_no_object_of_its_choice() -> None:
    class_name = b"pathlib:Path"
    for code, count in ((b"o", 1), (b"n", 1)):
        parts = b"s" + len(b"/x").to_bytes(4, "little") + b"/x"
        data = parts + code + len(class_name).to_bytes(4, "little") + class_name + count.to_bytes(4, "little")
        with pytest.raises(StateMismatch, match="'pathlib:Path', which is not .* of the packages"):
            decode(data, load_backend("numpy"), packages=["logitloom"])
        with pytest.raises(StateMismatch, match="which is not"):
            decode(data, load_backend("numpy"), packages=["pathlib"])  # a class, but not one of states
    doubled = b"N" + b"".join(b"g" + n.to_bytes(4, "little") * 1 for n in ()) + b"t\1\0\0\0"
    for n in range(40):
        doubled += b"g" + n.to_bytes(4, "little") + b"t\2\0\0\0"
    with pytest.raises(StateMismatch, match="which is too much"):
        decode(doubled, load_backend("numpy"), packages=())
    with pytest.raises(StateMismatch, match="nested 5001 deep"):
        decode(b"N" + b"t\1\0\0\0" * 6000, load_backend("numpy"), packages=())


def started(chain: Any, rows: int = 2) -> tuple[Context, Any]:
    context = Context.start(np.zeros((rows, WORDS.size), np.float32), prompt=[[]] * rows, max_length=20)
    return context, chain.init_state(context)


def test_any_damage_is_noticed() -> None:
    chain = processors.load(("no_repeat_ngram", {"n": 2}))
    context, at = started(chain)
    data = chain.save_state(at)
    assert chain.save_state(chain.load_state(data, context)) == data
    for place in range(0, len(data), 7):
        damaged = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        with pytest.raises(StateMismatch, match="damaged|no saved state"):
            chain.load_state(damaged, context)
    for cut in (0, 3, len(data) // 2, len(data) - 1):
        with pytest.raises(StateMismatch, match="damaged|no saved state"):
            chain.load_state(data[:cut], context)
    content = b"\xff\xff\xff\x7f{"
    forged = _MAGIC + hashlib.blake2b(content, digest_size=16).digest() + content
    with pytest.raises(StateMismatch, match="no header that can be read"):
        chain.load_state(forged, context)


REGEX = ("regex", {"pattern": "[ab]+"})
OTHERS: dict[str, tuple[Any, str]] = {
    "options": ([("regex", {"pattern": "[ab]*"}), ("top_k", {"k": 3})], r"Its processor 'regex' has other options"),
    "number": ([REGEX], r"It has the processors regex, top_k, this one regex"),
    "order": ([("top_k", {"k": 3}), REGEX], r"Its processor number 1 is 'regex', and here it is 'top_k'"),
    "kind": ([REGEX, ("top_p", {"p": 0.3})], r"Its processor number 2 is 'top_k', and here it is 'top_p'"),
}


@pytest.mark.parametrize("label", OTHERS)
def test_a_chain_that_is_not_equal_refuses_by_name(label: str) -> None:
    chain = processors.load(REGEX, ("top_k", {"k": 3}), tokenizer=WORDS)
    specs, message = OTHERS[label]
    other = processors.load(*specs, tokenizer=WORDS)
    context, at = started(chain)
    with pytest.raises(StateMismatch, match=message):
        other.load_state(chain.save_state(at), context)
    for state in (at, pickle.loads(pickle.dumps(at))):
        message = message if label != "number" else "belongs to a chain of 2 processors"
        with pytest.raises(StateMismatch, match=message):
            other.process(np.zeros((2, WORDS.size), np.float32), state, context)


def test_another_vocabulary_is_refused() -> None:
    chain = processors.load(REGEX, tokenizer=WORDS)
    context, at = started(chain)
    data = chain.save_state(at)
    words = Vocabulary([b"", *WORDS.token_bytes[1:-1], b"zz"], eos=[0])
    with pytest.raises(StateMismatch, match="another vocabulary"):
        processors.load(REGEX, tokenizer=words).load_state(data, context)
    without = processors.load(REGEX)
    assert without.load_state(data, load_backend("numpy")).processors[0].tolist() == at.processors[0].tolist()
    with pytest.raises(StateMismatch, match="another vocabulary"):
        without.load_state(data, context.with_fields(vocabulary=words))


@dataclass(frozen=True)
class Versioned(ConstraintProcessor):
    """A constraint that another version of its distribution compiles otherwise, with the same options."""

    version: ClassVar[str] = "[ab]+"

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        return TokenAutomaton(compile_pattern(self.version), vocabulary, vocab_size)


@pytest.mark.parametrize("around", [False, True])
def test_another_constraint_with_equal_options_is_refused(around: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Versioned, "version", "[ab]+")
    processor: Any = ("until", {"trigger": ";", "inner": Versioned()}) if around else Versioned()
    chain = processors.load(processor, tokenizer=WORDS)
    context, at = started(chain)
    pickled, saved, bare = pickle.dumps(at), chain.save_state(at), processors.load(processor)
    blank = np.zeros((2, WORDS.size), np.float32)
    expected = chain.process(blank, at, context)[0]
    with_words = context.with_fields(vocabulary=WORDS)
    for state in (chain.load_state(saved, context), pickle.loads(pickled)):
        assert np.array_equal(chain.process(blank, state, context)[0], expected)
    late = bare.load_state(saved, context.backend)  # without a vocabulary the first step looks
    assert np.array_equal(bare.process(blank, late, with_words)[0], expected)

    monkeypatch.setattr(Versioned, "version", "[ab]*a")
    processor = ("until", {"trigger": ";", "inner": Versioned()}) if around else Versioned()
    other, bare = processors.load(processor, tokenizer=WORDS), processors.load(processor)
    message = rf"processor '{other.labels[0]}' has another constraint, although the options are equal"
    with pytest.raises(StateMismatch, match=message):
        other.load_state(saved, context)
    with pytest.raises(StateMismatch, match=message):
        other.load_state(saved, context.backend)
    with pytest.raises(StateMismatch, match=message):
        other.process(blank, pickle.loads(pickled), context)
    with pytest.raises(StateMismatch, match=message):
        bare.process(blank, bare.load_state(saved, context.backend), with_words)


def test_a_state_goes_on_with_logits_that_are_padded_otherwise() -> None:
    chain = processors.load(REGEX, tokenizer=WORDS)
    _, at = started(chain)
    wider = Context.start(np.zeros((2, WORDS.size + 3), np.float32), prompt=[[]] * 2, max_length=20)
    state = processors.load(REGEX, tokenizer=WORDS).load_state(chain.save_state(at), wider)
    assert state.processors[0].tolist() == at.processors[0].tolist()


@pytest.mark.parametrize("back", [False, True])
def test_a_state_with_a_limit_goes_on_on_another_backend(backend: Backend, back: bool) -> None:
    """On a device the tokens that are left are an array, on the host a list."""
    numpy, logits = load_backend("numpy"), np.zeros((2, WORDS.size), dtype=np.float32)
    chain = processors.load(("regex", {"pattern": "(ab)+"}), tokenizer=WORDS)
    first, second = [
        Context.start(made.asarray(logits), vocabulary=WORDS, max_new_tokens=(5, 8))
        for made in ((backend, numpy) if back else (numpy, backend))
    ]
    state = chain.init_state(first)
    expected, _ = chain.process(first.backend.asarray(logits), state, first)
    moved = chain.load_state(chain.save_state(state, first), second)
    found, moved = chain.process(second.backend.asarray(logits), moved, second)
    assert (second.backend.to_numpy(found) == first.backend.to_numpy(expected)).all()
    assert chain.forced_tokens(moved, second) == chain.forced_tokens(state, first)


@pytest.mark.parametrize("limits", [(5, None), (None, 5)])
def test_rows_with_and_without_a_limit_are_not_joined(limits: tuple[int | None, int | None]) -> None:
    chain, logits = processors.load(("regex", {"pattern": "(ab)+"})), np.zeros((1, WORDS.size), dtype=np.float32)
    begun = [chain.init_state(Context.start(logits, vocabulary=WORDS, max_new_tokens=limit)) for limit in limits]
    with pytest.raises(StateMismatch, match="begun with max_new_tokens= for all rows or for none"):
        concat(begun)


def test_equal_chains_are_equal_whatever_object_they_are() -> None:
    first, second = (processors.load(REGEX, ("top_k", {"k": 3}), tokenizer=WORDS) for _ in range(2))
    assert first.fingerprint == second.fingerprint == pickle.loads(pickle.dumps(first)).fingerprint
    context, at = started(first)
    found, after = second.process(np.zeros((2, WORDS.size), np.float32), at, context)
    assert np.array_equal(found, first.process(np.zeros((2, WORDS.size), np.float32), at, context)[0])
    assert second.fingerprint.difference(first.fingerprint) is None
    assert type(after) is not type(at)


def test_states_are_copied_and_pickled_as_what_they_are() -> None:
    chain = processors.load(REGEX, ("no_repeat_ngram", {"n": 2}), tokenizer=WORDS)
    _, at = started(chain)
    copied = copy.deepcopy(at)
    assert isinstance(at, ChainState)
    assert type(copied) is type(at)
    assert copied.processors[0] is not at.processors[0]
    assert copy.copy(at) is at
    twice = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(at))))
    assert type(twice).owner() == ChainFingerprint.now(chain)
    assert twice.processors[0].tolist() == at.processors[0].tolist()


def test_what_has_no_form_is_refused_by_its_type() -> None:
    chain = processors.load(Walk(object()))
    context, at = started(chain)
    with pytest.raises(StateMismatch, match=r"value of processor 'Walk' is a builtins:object, which has no f"):
        chain.save_state(at)
    # Nothing is known against a chain of this process.
    processors.load(Walk(chain["Walk"].value)).process(np.zeros((2, WORDS.size), np.float32), at, context)
    with pytest.raises(StateMismatch, match=r"A state holds a builtins\.object, which cannot be saved"):
        encode(Rows([object()]))


def test_fingerprints_tell_options_apart(tmp_path: Path) -> None:
    def one(x: Any) -> Any:
        return x

    def two(x: Any) -> Any:
        return x + 1

    values = [
        None, 0, False, "0", b"0", 0.0, (), [1], ["1"], {"a": 1, "b": 2}, {"b": 2, "a": 1}, {1, 2}, {1, 3}, Colour,
        Colour.RED, Colour.BLUE, Place, one, two, len, max, np.zeros(2), np.zeros(3), np.zeros(2, np.int32), Walk(1),
        Walk(2), tmp_path, "one".upper, Counted(1), Counted(2), WORDS,
    ]  # fmt: skip
    found = [fingerprint_of(value, "option") for value in values]
    assert len(set(found)) == len(values)
    assert found == [fingerprint_of(value, "option") for value in values]
    assert fingerprint_of({3, 1, 2}, "option") == fingerprint_of(frozenset([2, 3, 1]), "option")


@pytest.mark.parametrize("kind", [pytest.param("grammar", marks=pytest.mark.extras), "json"])
def test_files_count_by_what_was_read_from_them(tmp_path: Path, kind: str) -> None:
    if kind == "grammar":
        pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    texts = ['root ::= "a"', 'root ::= "b"'] if kind == "grammar" else ['{"const": "a"}', '{"const": "b"}']
    option = {"grammar": "grammar", "json": "schema"}[kind]
    made = []
    for name, text in (("one", texts[0]), ("two", texts[0]), ("one", texts[1])):
        path = tmp_path / f"{name}.{'gbnf' if kind == 'grammar' else 'json'}"
        path.write_text(text, encoding="utf-8")
        made.append(processors.load((kind, {option: path})))
    assert made[0].fingerprint == made[1].fingerprint
    assert "other options" in str(made[0].fingerprint.difference(made[2].fingerprint))
