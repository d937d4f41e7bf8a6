"""Each check of the suites for backends, readers, candidate generators and engines fails for what breaks just that."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary, load_backend, option
from logitloom.arrays import rng
from logitloom.arrays.backend import HostTable
from logitloom.generation import candidates, draw
from logitloom.generation.candidates import Configured, Drafts
from logitloom.testing import BackendConformance, CandidateConformance, EngineConformance, VocabularyConformance
from logitloom.testing.array_namespace import DTYPES, FUNCTIONS
from logitloom_plugins.backends.numpy import NumpyBackend
from tests.core.testing.failing import checks_of, failure
from tests.core.testing.test_seeded_faults import BACKENDS, PROCESSORS

#: The check every suite has, proven for processors.
SHARED = {"test_no_check_was_replaced"}


# -- backends -----------------------------------------------------------------------------------------------


def broken(**methods: Any) -> Any:
    return type("Broken", (NumpyBackend,), methods)()


def with_namespace(lacking: Sequence[str] = (), **functions: Any) -> Any:
    """An ``__init__`` that gives the backend another namespace."""

    def init(self: NumpyBackend, device: Any = None) -> None:
        super(type(self), self).__init__(device)
        names = {name: getattr(self.xp, name) for name in [*FUNCTIONS, *DTYPES] if hasattr(self.xp, name)}
        self.xp = SimpleNamespace(**{name: f for name, f in {**names, **functions}.items() if name not in lacking})

    return init


def along_axis_alike(x: Any, index: Any, axis: int) -> Any:
    """``take_along_axis`` of a library that takes an index of length 1 for a choice of that length."""
    return np.take_along_axis(x[tuple(slice(0, n) if a != axis % x.ndim else slice(None)
                                      for a, n in enumerate(index.shape))], index, axis=axis)  # fmt: skip


def with_long_integers(self: Any, host: Any, dtype: str | None = None) -> Any:
    made = np.array(host, dtype=dtype)
    return made.astype(np.int64) if made.dtype == np.int32 else made


def softmax_over_the_second_axis(self: Any, x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


OPERATIONS = {
    "test_the_namespace_has_every_name": ({"__init__": with_namespace(["take", "where"])}, {}),
    "test_functions_of_the_namespace_give_what_the_standard_says": (
        {"__init__": with_namespace(take_along_axis=along_axis_alike)},
        {"function": "take_along_axis"},
    ),
    "test_operators_of_arrays_give_what_the_standard_says": (
        {"asarray": with_long_integers},
        {"operator": "integers"},
    ),
    "test_a_tiny_model_gives_its_logits": ({"softmax": softmax_over_the_second_axis}, {}),
    "test_the_backend_knows_its_arrays": ({"at": lambda self, device: NumpyBackend()}, {}),
    "test_arrays_can_be_assigned_to_where_that_is_declared": (
        {"asarray": lambda self, host, dtype=None: np.broadcast_to(host, np.shape(host))},
        {},
    ),
    "test_dtypes_are_told_and_changed": ({"cast": lambda self, x, dtype: x.astype(dtype)}, {}),
    "test_tables_are_uploaded_once": ({"asarray": lambda self, host, dtype=None: np.zeros_like(host)}, {}),
    "test_probabilities_survive_large_logits": (
        {"softmax": lambda self, x: np.exp(np.minimum(x, 80)) / np.exp(np.minimum(x, 80)).sum(-1, keepdims=True)},
        {},
    ),
    "test_the_nucleus_is_the_least_set_of_its_mass": (
        {"nucleus_threshold": lambda self, x, p: x.max(-1, keepdims=True) - 2},
        {},
    ),
    "test_writes_take_empty_and_single_batches": (
        {"fill_columns": lambda self, x, columns, value, donate=False: np.full_like(x, value)},
        {},
    ),
    "test_token_rows_are_masked_as_by_hand": (
        {"apply_token_rows": lambda self, x, rows, donate=False, pool=None: x},
        {"dtype": "float32"},
    ),
    "test_class_masks_are_masked_as_by_hand": (
        {"apply_class_mask": lambda self, x, allowed, classes, donate=False: np.where(allowed[:, classes], -np.inf, x)},
        {"dtype": "float32"},
    ),
    "test_marked_entries_are_updated": (
        {"update_where": lambda self, x, table, function, donate=False: x},
        {"dtype": "float32", "batch": 4},
    ),
    "test_survivors_are_the_highest": (
        {"survivors": lambda self, x, highest: np.argsort(-x, axis=-1)[:, : (highest or 5)].astype(np.int32)},
        {"dtype": "float32", "batch": 4},
    ),
    "test_the_border_of_a_mass_is_found": (
        {"mass_threshold": lambda self, keys, mass, p: keys.max(-1, keepdims=True)},
        {"dtype": "float32", "batch": 4},
    ),
    "test_values_are_spread_over_a_row": (
        {"spread": lambda self, values, ids, like, donate=False, pool=None: np.full_like(like, -np.inf)},
        {"dtype": "float32", "batch": 4},
    ),
    "test_native_equals_agnostic": (
        {"concat_rows": lambda self, arrays: np.concatenate(arrays)[::-1]},
        {"dtype": "float32", "operation": "concat_rows"},
    ),
    "test_every_operation_equals_numpy": ({"gather": lambda self, x, index: x[:, :2]}, {"operation": "gather"}),
    "test_compiled_equals_eager": (
        {"compiles": True, "compile": lambda self, function: lambda *a: function(*a) * 2},
        {"operation": "scale"},
    ),
}  # fmt: skip


#: Function of the namespace -> one that differs from it in one respect.
FUNCTION_FAULTS: dict[str, Callable[..., Any]] = {
    "take_along_axis": along_axis_alike,
    "argmax": lambda x, axis: x.shape[axis] - 1 - np.argmax(np.flip(x, axis), axis),  # the last of equal values
    "argsort": lambda x, axis, stable: np.flip(np.argsort(np.flip(-x, axis), axis=axis, kind="stable"), axis),
    "bitwise_right_shift": lambda x, y: (x.view(np.uint32) >> y.astype(np.uint32)).view(np.int32),  # logical
    "clip": lambda x, least, most: np.clip(x, least or 0.0, most),  # no bound is taken for 0
    "concat": lambda arrays, axis: np.concatenate([a.astype(np.float32) for a in arrays], axis=axis),
    "cumulative_sum": lambda x, axis: np.cumsum(x, axis=axis) - x,  # without the value itself
    "log": lambda x: np.log(np.maximum(x, 1e-30)),  # 0 gives a number
    "max": lambda x, axis, keepdims=False: np.max(x, axis=axis),  # keepdims is not heard
    "sort": lambda x, axis: np.sort(np.where(np.isfinite(x), x, 0), axis=axis) if x.dtype.kind == "f" else np.sort(x),
    "where": lambda m, x, y: np.where(m, x, np.float64(y) if np.ndim(y) == 0 else y),  # a number widens
}


@pytest.mark.parametrize("check", OPERATIONS)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_broken_backends_are_found(check: str) -> None:
    methods, more = OPERATIONS[check]
    assert failure(BackendConformance, check, backend=broken(**methods), **more) is not None
    if check != "test_compiled_equals_eager":
        assert failure(BackendConformance, check, backend=load_backend("numpy"), **more) is None


def test_all_names_that_a_namespace_lacks_are_told_at_once() -> None:
    lacking = broken(__init__=with_namespace(["take", "where", "int32"]))
    told = failure(BackendConformance, "test_the_namespace_has_every_name", backend=lacking)
    assert "The namespace of 'numpy' lacks 3 names: int32, take, where." in str(told)


@pytest.mark.parametrize(("function", "fault"), FUNCTION_FAULTS.items(), ids=FUNCTION_FAULTS)
def test_faults_in_functions_of_the_namespace_are_found(function: str, fault: Any) -> None:
    faulty = broken(__init__=with_namespace(**{function: fault}))
    check = "test_functions_of_the_namespace_give_what_the_standard_says"
    assert failure(BackendConformance, check, backend=faulty, function=function) is not None
    assert failure(BackendConformance, check, backend=load_backend("numpy"), function=function) is None


def test_at_least_70_faults_are_sown_each_with_a_control() -> None:
    assert len(PROCESSORS) + len(BACKENDS) + len(FUNCTION_FAULTS) >= 70


def test_a_device_whose_arrays_are_elsewhere_is_found() -> None:
    suite = type("Devices", (BackendConformance,), {"devices": ("elsewhere",)})
    check = "test_other_devices_have_backends_of_their_own"
    assert failure(suite, check, backend=load_backend("numpy")) is not None
    assert failure(BackendConformance, check, backend=load_backend("numpy")) is None


def test_every_check_of_backends_is_proven_able_to_fail() -> None:
    seeded = {fault.check for _, fault in BACKENDS}
    proven = seeded | set(OPERATIONS) | SHARED | {"test_other_devices_have_backends_of_their_own"}
    assert proven == set(checks_of(BackendConformance))
    assert HostTable(np.zeros(1)).on(load_backend("numpy")) is not None


# -- tokenizer readers --------------------------------------------------------------------------------------

TEXTS = [b"a", b"b", b"ab", b"\xc3", b"\xa9", b""]


class Letters(list[str]):
    """A tokenizer of its own kind."""


def reading(tokens: Sequence[bytes] = TEXTS, eos: Sequence[int] = (5,)) -> Any:
    class Reader:
        def vocabulary(self, tokenizer: Any) -> Vocabulary | None:
            return Vocabulary(tokens, eos=eos) if isinstance(tokenizer, Letters) else None

    return Reader


class OfLetters(VocabularyConformance):
    reader = reading()
    texts = ("abba", "é")

    def tokenizer(self) -> Letters:
        return Letters()

    def encode(self, tokenizer: Any, text: str) -> list[int]:
        return [TEXTS.index(bytes([byte])) for byte in text.encode()]

    def decode(self, tokenizer: Any, ids: Sequence[int]) -> str:
        return b"".join(TEXTS[i] for i in ids).decode("utf-8", "replace")


class Greedy:
    def vocabulary(self, tokenizer: Any) -> Vocabulary:
        return Vocabulary(TEXTS, eos=[5])


class Importing:
    def vocabulary(self, tokenizer: Any) -> None:
        sys.modules["imported_to_decline"] = ModuleType("imported_to_decline")


class Changing:
    def __init__(self) -> None:
        self.times = 0

    def vocabulary(self, tokenizer: Any) -> Vocabulary:
        self.times = Changing.read = getattr(Changing, "read", 0) + 1  # type: ignore[attr-defined]
        return Vocabulary([*TEXTS, b"x" * self.times], eos=[5])


class Unspecial(Vocabulary):
    def __init__(self) -> None:
        super().__init__(TEXTS, eos=[5])
        self.token_bytes = (*self.token_bytes[:5], b"</s>")


READERS = {
    "test_tokenizers_of_other_kinds_are_declined_and_cost_nothing": [Greedy, Importing],
    "test_reading_again_gives_the_same": [Changing],
    "test_special_ids_have_no_bytes": [type("R", (), {"vocabulary": lambda self, tokenizer: Unspecial()})],
    "test_texts_come_back": [reading([b"b", b"a", *TEXTS[2:]])],
    "test_tokens_agree_with_decode": [reading([*TEXTS[:2], b"ba", *TEXTS[3:]])],
}


@pytest.mark.parametrize("check", READERS)
def test_broken_readers_are_found(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imported_to_decline", ModuleType("x"))
    monkeypatch.delitem(sys.modules, "imported_to_decline")
    assert failure(OfLetters, check) is None
    for reader in READERS[check]:
        assert failure(type("Broken", (OfLetters,), {"reader": reader}), check) is not None
        sys.modules.pop("imported_to_decline", None)


def test_every_check_of_readers_is_proven_able_to_fail() -> None:
    assert set(READERS) | SHARED == set(checks_of(VocabularyConformance))


# -- candidate generators -----------------------------------------------------------------------------------


class Guessing(Configured):
    """Draft the last token again."""

    def init_state(self, context: Any) -> tuple[()]:
        return ()

    def propose(self, state: Any, request: Any) -> tuple[Drafts, Any]:
        return Drafts([[row[-1]][:limit] for row, limit in zip(request.sequences, request.limits, strict=True)]), state

    def update(self, state: Any, accepted: Sequence[int]) -> Any:
        return state


class TooLong(Guessing):
    def propose(self, state: Any, request: Any) -> tuple[Drafts, Any]:
        return Drafts([[1] * (limit + 1) for limit in request.limits]), state


class Random(Guessing):
    def propose(self, state: Any, request: Any) -> tuple[Drafts, Any]:
        draw = np.random.default_rng().integers(0, 14, (len(request.limits), 1)).tolist()
        return Drafts([row[:limit] for row, limit in zip(draw, request.limits, strict=True)]), state


class FewRows(Guessing):
    def propose(self, state: Any, request: Any) -> tuple[Drafts, Any]:
        return Drafts([[]]), state


class Foreign(Guessing):
    """Drafts ids of another vocabulary."""

    def propose(self, state: Any, request: Any) -> tuple[Drafts, Any]:
        return Drafts([[999][:limit] for limit in request.limits]), state


class Drawing(Guessing):
    """Draws two tokens, each from a distribution that the token before decides."""

    def drawn_from(self, logits: Any) -> Any:
        return load_backend("numpy").softmax(logits)

    def told(self, probs: list[Any]) -> list[Any]:
        return probs

    def kept(self, draft: list[int]) -> list[int]:
        return draft

    def propose(self, state: Any, request: Any) -> tuple[Drafts, Any]:
        backend, last = request.context.backend, np.asarray([row[-1] for row in request.sequences])
        table = np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32)
        probs, drawn = [], []
        for n in range(2):
            places = np.asarray([len(row) + n for row in request.sequences], dtype=np.int32)
            uniform = rng.uniform(np, request.seeds, places, 0x7E57)
            probs.append(backend.softmax(table[last]))
            last = draw(backend, self.drawn_from(table[last]), uniform)
            drawn.append(last.tolist())
        drafts = [self.kept(list(draft[:limit])) for *draft, limit in zip(*drawn, request.limits, strict=True)]
        return Drafts(drafts, self.told(probs)), state


class Colder(Drawing):
    def drawn_from(self, logits: Any) -> Any:
        return super().drawn_from(logits / 0.6)


class OfAnotherPosition(Drawing):
    def told(self, probs: list[Any]) -> list[Any]:
        return probs[::-1]


class Uniform(Guessing):
    """Tells of its one guess that all ids were as likely."""

    def propose(self, state: Any, request: Any) -> tuple[Drafts, Any]:
        drafts, state = super().propose(state, request)
        return drafts._replace(probs=[np.full((len(request.limits), 16), 1 / 16)]), state


class Cut(Drawing):
    """Leaves out tokens that were drawn, and what follows them."""

    def kept(self, draft: list[int]) -> list[int]:
        return draft[: next((n for n, token in enumerate(draft) if token % 3 == 0), None)]


def _helpless() -> Any:
    import dataclasses

    return dataclasses.make_dataclass("Helpless", [("n", int, option(1, help=""))], bases=(Guessing,), frozen=True)


DRAFTING = {
    "test_drafts_change_no_text": [Foreign],
    "test_drafts_are_within_what_is_asked": [TooLong, Random, FewRows],
    "test_drafted_tokens_follow_their_probabilities": [Colder, OfAnotherPosition, Uniform, Cut],
    "test_options_are_documented": [_helpless()],
}


@pytest.mark.parametrize("check", DRAFTING)
def test_broken_generators_are_found(check: str) -> None:
    def run(kind: Any) -> BaseException | None:
        suite = type("OfGuessing", (CandidateConformance,), {"candidates": kind})
        given = {"backend": load_backend("numpy"), "case": "default"}
        wanted = inspect.signature(getattr(suite, check)).parameters
        return failure(suite, check, **{name: given[name] for name in wanted if name != "self"})

    assert run(Guessing) is None
    assert run(Drawing) is None
    for kind in DRAFTING[check]:
        assert run(kind) is not None
    assert candidates.load("prompt_lookup") is not None


def test_every_check_of_generators_is_proven_able_to_fail() -> None:
    assert set(DRAFTING) | SHARED == set(checks_of(CandidateConformance))


# -- engines ------------------------------------------------------------------------------------------------


def followed(known: Callable[[list[list[int]], int], Sequence[int]]) -> type[EngineConformance]:
    """An adapter that is told which tokens each row's state has seen."""

    class Adapter(EngineConformance):
        def open(self, chain: Any) -> Any:
            calls: list[list[list[int]]] = []

            def call(rows: Sequence[Sequence[int]], logits: Any) -> Any:
                calls.append([list(row) for row in rows])
                out = np.empty_like(logits)
                for place in range(len(rows)):
                    prompt, tokens = known(calls, place)
                    out[place] = self._alone(list(prompt), list(tokens), logits[place : place + 1])
                return out

            return call

    return Adapter


def begun(calls: Any, place: int) -> int:
    """The length of a row's prompt: it is what it was when it first came."""
    row = calls[-1][place]
    return next(len(r) for call in calls for r in call if row[: len(r)] == r)


SOUND = followed(
    lambda calls, place: (calls[-1][place][: begun(calls, place)], calls[-1][place][begun(calls, place) :])
)
PROMPT_COUNTS = followed(lambda calls, place: ([], calls[-1][place]))


def by_place(calls: Any, place: int) -> Any:
    """Hidden state per row index: what the row at this place has accepted since the first call."""
    own = [call[place] if place < len(call) else call[-1] for call in calls]
    return own[0], [row[-1] for row in own[1:]]


BY_PLACE = followed(by_place)
ENGINES = {
    "test_rows_that_grow_keep_their_states": PROMPT_COUNTS,
    "test_reordered_rows_keep_their_states": BY_PLACE,
    "test_rows_that_leave_do_not_disturb_the_others": BY_PLACE,
    "test_rows_that_join_begin_anew": BY_PLACE,
    "test_rejected_drafts_are_forgotten": BY_PLACE,
    "test_two_generations_do_not_meet": BY_PLACE,
}


@pytest.mark.parametrize("check", ENGINES)
@pytest.mark.long
def test_broken_adapters_are_found(check: str) -> None:
    assert failure(SOUND, check) is None
    assert failure(ENGINES[check], check) is not None


def test_every_check_of_engines_is_proven_able_to_fail() -> None:
    assert set(ENGINES) | SHARED == set(checks_of(EngineConformance))
