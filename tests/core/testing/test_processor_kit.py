"""Each check of the processor suite fails for a processor that breaks just that, and passes for one that does not."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitloom import BIAS, MASK, PENALTY, SCALE, TRUNCATION, Array, Context, Effect, Processor, load_backend, option
from logitloom.arrays.backend import NEG_INF
from logitloom.arrays.row_operations import DIVIDE, RowOperation
from logitloom.rows.tree import Rows
from logitloom.testing import ProcessorConformance
from tests.core.testing.failing import SKIPPED, checks_of, failure


@dataclass(frozen=True)
class Sound(Processor):
    """Lower the logit of each token by how often the row has written it."""

    stage = "penalty"
    effect = PENALTY

    amount: float = option(0.5, help="What is taken per occurrence.", ge=0.0)

    def init_state(self, context: Context) -> Array:
        return context.backend.asarray(np.zeros((context.batch, context.vocab_size), dtype=np.float32))

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        backend = context.backend
        if context.tokens is not None:
            state = backend.add_at(state, context.tokens, 1.0, context.donate_state)
        return backend.add(logits, backend.scale(state, -self.amount), context.donate), state


class OfSound(ProcessorConformance):
    processor = Sound


def run(check: str, processor: Any, library: str = "numpy", **arguments: Any) -> BaseException | None:
    suite = type("OfBroken", (ProcessorConformance,), {"processor": processor})
    wanted = inspect.signature(getattr(suite, check)).parameters
    given = {"backend": load_backend(library), "case": "default", "dtype": "float32", "width": 300} | arguments
    return failure(suite, check, **{name: given[name] for name in wanted if name != "self"})


@pytest.mark.parametrize(
    "check",
    sorted(
        set(checks_of(OfSound))
        - {
            "test_a_declared_operation_is_what_process_does",
            "test_forced_tokens_are_the_only_legal_ones",
        }
    ),
)
def test_a_sound_processor_passes(check: str) -> None:
    assert run(check, Sound) is None


# -- broken processors --------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[str, Callable[[], Any], dict[str, Any]]] = {}


def breaks(check: str, **arguments: Any) -> Callable[[Any], Any]:
    """Note a class as one that a check must find."""

    def note(kind: Any) -> Any:
        BROKEN[kind.__name__] = (check, kind, arguments)
        return kind

    return note


@breaks("test_tokens_alone_tell_the_state_unless_every_step_must_be_seen")
class FeedbackUndeclared(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return logits + state, state * 0.5 + logits


@breaks("test_tokens_alone_tell_the_state_unless_every_step_must_be_seen")
class FeedbackDeclaredInVain(Sound):
    sees_every_step = True


@breaks("test_same_input_gives_same_output")
class Remembering(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        calls = self.__dict__.get("calls", 0) + 1
        self.__dict__["calls"] = calls
        return logits * calls, state


@breaks("test_same_input_gives_same_output")
class Drawing(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return logits + np.random.default_rng().normal(size=logits.shape).astype(logits.dtype), state


_LAST: dict[str, Any] = {}


@breaks("test_interleaved_generations_do_not_meet")
class Shared(Sound):
    def init_state(self, context: Context) -> Array:
        _LAST["sum"] = np.zeros((context.vocab_size,), dtype=np.float32)
        return super().init_state(context)

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        if context.tokens is not None:
            _LAST["sum"] = _LAST["sum"] + context.tokens.sum()
        return logits + _LAST["sum"].astype(logits.dtype), state


@breaks("test_rows_are_independent")
class Mixing(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return logits - logits.max(), state


@breaks("test_rows_are_independent")
class Placed(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        places = np.arange(logits.shape[0], dtype=logits.dtype)
        return logits + places[:, None] * np.eye(1, logits.shape[1], dtype=logits.dtype), state


@breaks("test_rows_are_independent")
class BeginningAtTheSameTime(Sound):
    """Takes the newest row to be as old as the others."""

    def init_state(self, context: Context) -> Array:
        return context.backend.asarray(np.zeros((context.batch, 1), dtype=np.float32))

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        state = state * 0 + state.max(initial=0) + 1
        return logits * state, state


@breaks("test_rolling_back_equals_replaying")
class Hidden(Sound):
    """Half of its state is not in the state."""

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        seen = self.__dict__.setdefault("seen", {})
        key = logits.shape[0]
        seen[key] = seen.get(key, 0) + (0 if context.tokens is None else 1)
        return logits + np.float32(seen[key]) * np.eye(1, logits.shape[1], dtype=logits.dtype), state


@breaks("test_any_number_of_tokens_may_come_at_once")
class OnlyTheFirst(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        if context.tokens is not None:
            context = context.with_fields(tokens=context.tokens[:, :1])
        return super().process(logits, state, context)


@breaks("test_any_number_of_tokens_may_come_at_once")
class CountingCalls(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return logits + state * 0.1, state + 1


@breaks("test_any_number_of_tokens_may_come_at_once")
class TakingGapsForTokens(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        if context.tokens is not None:
            context = context.with_fields(tokens=np.abs(context.tokens))
        return super().process(logits, state, context)


@breaks("test_a_declared_operation_is_what_process_does")
class OfAnotherOperation(Sound):
    effect = PENALTY.but(operation=RowOperation(DIVIDE, 2.0))


@breaks("test_a_declared_operation_is_what_process_does", library="torch")
class OfOneLibrary(Processor):
    effect = SCALE.but(operation=RowOperation(DIVIDE, 2.0))

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        return logits / (2.0 if context.backend.name == "torch" else 3.0), state


@breaks("test_sequences_score_as_they_are_decoded")
class StatesOfOtherPositions(Sound):
    def states_after(self, state: Array, context: Context) -> Array:
        assert context.tokens is not None
        return np.repeat(state, context.tokens.shape[1] + 1, axis=0)  # that before any token, at every position


@breaks("test_logits_keep_shape_dtype_device_and_library")
class Shortening(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return logits[:, 1:], state


@breaks("test_logits_keep_shape_dtype_device_and_library", dtype="float16")
class Widening(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return logits + state, state


@breaks("test_logits_keep_shape_dtype_device_and_library", dtype="float16")
class Overflowing(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            return logits * logits.dtype.type(60000) / logits.dtype.type(60000), state


@breaks("test_logits_keep_shape_dtype_device_and_library", library="torch")
class ToNumpy(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return np.tanh(context.backend.to_numpy(logits)), state


@breaks("test_logits_keep_shape_dtype_device_and_library")
class Holding(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        out = logits * 2
        return out, out if out.dtype == np.float32 else state


@breaks("test_inputs_stay_untouched")
class WritingInPlace(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        logits -= 1
        return logits, state


@breaks("test_inputs_stay_untouched")
class WritingIntoTheState(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        state += 1
        return logits, state


@breaks("test_inputs_stay_untouched")
class WritingIntoTheTokens(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        if context.tokens is not None:
            context.tokens[:] = -1
        return logits, state


@breaks("test_donation_changes_no_result")
class UsingWhatItGaveAway(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        cooler = context.backend.scale(logits, 0.5, context.donate)
        return cooler + np.where(np.isfinite(logits), logits, 0), state


@breaks("test_the_structure_of_the_state_is_fixed")
class Growing(Sound):
    def init_state(self, context: Context) -> Array:
        return context.backend.asarray(np.zeros((context.batch, 0), dtype=np.int32))

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return logits, state if context.tokens is None else np.concatenate([state, context.tokens], axis=1)


@breaks("test_states_mean_the_same_in_an_equal_chain")
class Numbering(Sound):
    """Its state is a place in a list of what this object has seen."""

    def init_state(self, context: Context) -> Array:
        return context.backend.asarray(np.full(context.batch, self._place(()), dtype=np.int32))

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        seen = self.__dict__["seen"]
        rows = [[]] * len(state) if context.tokens is None else context.tokens.tolist()
        texts = [(*seen[i], *(t for t in row if t >= 0)) for i, row in zip(state.tolist(), rows, strict=True)]
        lowered = np.stack([np.bincount(text, minlength=logits.shape[1]) if text else np.zeros(logits.shape[1])
                            for text in texts])  # fmt: skip
        places = context.backend.asarray(np.array([self._place(text) for text in texts], dtype=np.int32))
        return logits - lowered.astype(logits.dtype) / 2, places

    def _place(self, text: tuple[int, ...]) -> int:
        seen: list[tuple[int, ...]] = self.__dict__.setdefault("seen", [])
        if text not in seen:
            seen.append(text)
        return seen.index(text)


@breaks("test_the_structure_of_the_state_is_fixed")
class SharedState(Sound):
    """Its state has no row per sequence."""

    def init_state(self, context: Context) -> Array:
        return context.backend.asarray(np.zeros(context.vocab_size, dtype=np.float32))


@breaks("test_compiled_equals_eager", library="torch")
class Deciding(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return (logits * 2 if float(logits.max()) > 0 else logits), state


@breaks("test_compiled_equals_eager")
class OtherwiseInLoops(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return (logits * 2 if context.compiled else logits), state


@breaks("test_no_value_is_read_back")
class SlowHostCopy(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        plain = context.backend.to_numpy(logits)
        return context.backend.asarray(plain - plain.max(axis=-1, keepdims=True)), state


@breaks("test_forbidden_entries_and_dead_rows_are_taken")
class NotANumber(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        with np.errstate(invalid="ignore"):
            return logits - logits.min(axis=-1, keepdims=True), state


@breaks("test_forbidden_entries_and_dead_rows_are_taken")
class Raising(Sound):
    """Allows something in a row that came in without any legal token."""

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        dead = (logits == NEG_INF).all(axis=-1, keepdims=True)
        return np.where(dead, logits.dtype.type(0), logits), state


@breaks("test_batches_of_one_and_of_none_are_taken")
class NeedingARow(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return logits - logits[0].max(initial=0), state


# -- false effects ------------------------------------------------------------------------------------------


class Stateless(Processor):
    """Subclasses change a row of NumPy's."""

    stage = "warp"

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        with np.errstate(all="ignore"):
            return self.changed(logits).astype(logits.dtype), state

    def changed(self, x: Array) -> Array:
        raise NotImplementedError


@breaks("test_it_writes_what_it_declares")
class LoweringCallsItForbidding(Sound):
    effect = MASK


@breaks("test_it_writes_what_it_declares")
class ForbiddingCallsItAdding(Stateless):
    effect = BIAS

    def changed(self, x: Array) -> Array:
        return np.where(np.arange(x.shape[-1]) == 3, NEG_INF, x)


@breaks("test_it_writes_what_it_declares")
class AddingCallsItScaling(Stateless):
    effect = SCALE

    def changed(self, x: Array) -> Array:
        return x + 1


@breaks("test_it_reads_no_more_than_it_declares")
class AskingForTheSign(Stateless):
    effect = BIAS

    def changed(self, x: Array) -> Array:
        return np.where(x > 0, x + 1, x)


@breaks("test_it_reads_no_more_than_it_declares")
class GoingByTheSumCallsItHigher(Stateless):
    """A nucleus that is said to go by more likely tokens alone."""

    effect = TRUNCATION.but(reads=("higher",))

    def changed(self, x: Array) -> Array:
        p = np.exp(x - x.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        before = np.stack([(line[None, :] * (line[None, :] > line[:, None])).sum(-1) for line in p])
        return np.where(before < 0.9, x, NEG_INF)


@breaks("test_it_reads_no_more_than_it_declares")
class GoingByTheHighestCallsItOwn(Stateless):
    effect = Effect("adds", reads=("logit",))

    def changed(self, x: Array) -> Array:
        return x - x.max(-1, keepdims=True)


@breaks("test_ids_make_a_difference_only_where_that_is_declared")
class GoingByIds(Stateless):
    effect = PENALTY.but(reads=())

    def changed(self, x: Array) -> Array:
        return x - 0.5 * (np.arange(x.shape[-1]) % 3)


@breaks("test_ids_make_a_difference_only_where_that_is_declared")
class GoingByTheNumberOfTokens(Stateless):
    effect = SCALE

    def changed(self, x: Array) -> Array:
        return x / np.log(x.shape[-1])


@breaks("test_ids_make_a_difference_only_where_that_is_declared")
class GoingByTheNumberOfForbiddenTokens(Stateless):
    effect = SCALE.but(reads=("distribution",))

    def changed(self, x: Array) -> Array:
        return x * (1 + (x == NEG_INF).sum(-1, keepdims=True))


@breaks("test_seen_tokens_make_a_difference_only_where_that_is_declared")
class GoingByTexts(Sound):
    effect = BIAS.but(reads=("ids",))


@breaks("test_seen_tokens_make_a_difference_only_where_that_is_declared")
class ChangingUnseenTokens(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        logits, state = super().process(logits, state, context)
        return logits + state.sum(axis=-1, keepdims=True), state


@breaks("test_it_keeps_what_it_declares")
class Reviving(Stateless):
    effect = Effect(keeps=("forbidden",))

    def changed(self, x: Array) -> Array:
        return np.where(x == NEG_INF, -50, x)


@breaks("test_it_keeps_what_it_declares")
class Flipping(Stateless):
    effect = Effect(keeps=("order",))

    def changed(self, x: Array) -> Array:
        return np.where(x > 0, -x, x)


@breaks("test_it_keeps_what_it_declares")
class ForbiddingTheUnusual(Stateless):
    """Keeps what is about as likely as the mean surprise says, which the most likely token is not always."""

    effect = TRUNCATION

    def changed(self, x: Array) -> Array:
        p = np.exp(x - x.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        surprise = -np.log(np.maximum(p, 1e-30))
        apart = np.abs(surprise - (p * surprise).sum(-1, keepdims=True))
        return np.where(apart <= np.quantile(apart, 0.5, axis=-1, keepdims=True), x, NEG_INF)


@breaks("test_it_keeps_what_it_declares")
class Banning(Stateless):
    effect = MASK.but(keeps=("last",))

    def changed(self, x: Array) -> Array:
        return np.where(np.arange(x.shape[-1]) == 7, NEG_INF, x)


@breaks("test_it_keeps_what_it_declares")
class KeepingMore(Stateless):
    effect = TRUNCATION.but(at_most=3)

    def changed(self, x: Array) -> Array:
        return np.where(x >= -np.sort(-x, axis=-1)[:, 3:4], x, NEG_INF)


@breaks("test_forced_tokens_are_the_only_legal_ones")
class Forcing(Sound):
    def forced_tokens(self, context: Context) -> list[list[int]]:
        return [[3]]


@breaks("test_the_processor_does_something")
class Idle(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return logits, state


@breaks("test_needs_are_declared")
class NeedingSilently(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        assert context.sequence is not None
        return logits, state


@breaks("test_needs_are_declared")
class OfAMisspeltHook(Sound):
    def text_ends(self, state: Array, context: Context) -> None:
        """Nobody asks."""


@breaks("test_needs_are_declared")
class OfAMisspeltDeclaration(Sound):
    need = frozenset({"history"})


@breaks("test_logits_keep_shape_dtype_device_and_library")
class MakingCertain(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return np.where(np.arange(logits.shape[-1]) == 2, np.float32("inf"), logits), state


@breaks("test_the_structure_of_the_state_is_fixed")
class KeepingSets(Sound):
    compilable = False

    def init_state(self, context: Context) -> Any:
        return Rows([set() for _ in range(context.batch)])

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        return context.backend.add(logits, -self.amount), state


@breaks("test_needs_are_declared")
class OfNoStage(Sound):
    stage = "afterwards"  # type: ignore[assignment]


@breaks("test_the_processor_is_documented")
@dataclass(frozen=True)
class Undocumented(Sound):
    """No sentence"""


@breaks("test_the_processor_is_documented")
class DocumentedByItsBase(Sound):
    pass


@breaks("test_the_processor_is_documented")
@dataclass(frozen=True)
class WithoutHelp(Sound):
    """A sentence."""

    more: int = option(1, help="")


@breaks("test_options_are_checked")
@dataclass(frozen=True)
class Unchecked(Sound):
    """Nobody knows the type of an option when it is given."""

    more: Unknown = option(1, help="Of what.")  # type: ignore[name-defined]  # noqa: F821


@breaks("test_a_chain_document_gives_the_processor_back")
class Scaling(Sound):
    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", self.__class__.drift(self.amount))

    counted = itertools.count(1)

    @classmethod
    def drift(cls, amount: float) -> float:
        return amount + next(cls.counted)


def counting_columns(ids: Any, tokens: Any, state: Any) -> Any:
    """The counts, with ids and tokens of some type."""
    for column in range(tokens.shape[1]):
        token = tokens[:, column : column + 1]
        state = state + ((ids[None, :] == token) & (token >= 0)).astype(np.float32)
    return state


@breaks("test_neighbouring_ids_of_wide_vocabularies_are_told_apart", width=70_000)
class IdsInHalfPrecision(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        if context.tokens is not None:
            ids = np.arange(logits.shape[-1]).astype(np.float16)
            state = counting_columns(ids, context.tokens.astype(np.float16), state)
        return context.backend.add(logits, state * -self.amount), state


@breaks("test_neighbouring_ids_of_wide_vocabularies_are_told_apart", width=70_000)
class IdsInTheTypeOfTheLogits(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        if context.tokens is not None:
            ids = np.minimum(np.arange(logits.shape[-1]), 60_000).astype(logits.dtype)
            state = counting_columns(ids, np.minimum(context.tokens, 60_000).astype(logits.dtype), state)
        return context.backend.add(logits, state * -self.amount), state


@breaks("test_neighbouring_ids_of_wide_vocabularies_are_told_apart", width=300)
class IdsInOneByte(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        if context.tokens is not None:
            ids = np.arange(logits.shape[-1]).astype(np.uint8)
            state = counting_columns(ids, np.where(context.tokens < 0, 255, context.tokens).astype(np.uint8), state)
        return context.backend.add(logits, state * -self.amount), state


@breaks("test_no_check_was_replaced")
class Unused(Sound):
    pass


@pytest.mark.extras
@pytest.mark.parametrize("name", [name for name in BROKEN if name != "Unused"])
def test_a_broken_processor_is_found(name: str) -> None:
    check, kind, arguments = BROKEN[name]
    if "library" in arguments:
        pytest.importorskip(arguments["library"], reason=f"needs {arguments['library']}")
    assert run(check, kind, **arguments) is not None


def test_cases_that_are_no_table_are_told_when_tests_are_collected() -> None:
    suite = type("OfList", (OfSound,), {"cases": [{"amount": 1.0}]})
    metafunc = SimpleNamespace(cls=suite, fixturenames=["case"])
    with pytest.raises(AssertionError, match=r"OfList\.cases is \[\{'amount': 1.0\}\], but must be a table, such as"):
        suite().pytest_generate_tests(metafunc)


def test_every_check_is_proven_able_to_fail() -> None:
    assert {check for check, _, _ in BROKEN.values()} == set(checks_of(ProcessorConformance))


def test_a_check_is_not_silently_replaced() -> None:
    class Cheating(OfSound):
        def test_rows_are_independent(self) -> None:  # type: ignore[override]
            pass

    class Excused(OfSound):
        @pytest.mark.skip(reason="rows meet in a lottery")
        def test_rows_are_independent(self) -> None:  # type: ignore[override]
            pass

    assert "test_rows_are_independent" in str(failure(Cheating, "test_no_check_was_replaced"))
    assert failure(Excused, "test_no_check_was_replaced") is None


def test_failures_say_what_where_and_what_to_expect() -> None:
    message = str(run("test_rows_are_independent", Mixing)).partition("\n")[0]
    assert message.startswith("Row ")
    assert "compared with the same row alone: " in message
    assert " instead of " in message


class DrawingAnew(Sound):
    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        return logits + np.random.default_rng().random(dtype=np.float32), state


def test_a_processor_that_draws_anew_is_not_told_to_see_every_step() -> None:
    message = str(run("test_tokens_alone_tell_the_state_unless_every_step_must_be_seen", DrawingAnew))
    assert "when it was given the same past once more" in message
    assert "sees_every_step" not in message.partition("\n")[0]


def test_a_missing_processor_is_named() -> None:
    with pytest.raises((AssertionError, SKIPPED), match=r"Set OfBroken\.processor"):
        raise run("test_inputs_stay_untouched", None) or SKIPPED("passed")
