"""Faults sown into the built-in processors and backends, each a change of one line: the kit finds them all."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from logitloom import load_backend
from logitloom.host import registry
from logitloom.masks import kernels
from logitloom.testing import BackendConformance, ProcessorConformance
from logitloom_plugins.conformance import processors as suites
from tests.core.testing.failing import failure


class Fault(NamedTuple):
    """A line that is changed, and the check that must fail.

    Attributes:
        module: where the line is.
        line: a part of the source that occurs there once.
        changed: what stands there instead.
        check: of the suite.
        case: with which options of the built-in's own suite.
        more: further arguments of the check.
    """

    module: str
    line: str
    changed: str
    check: str
    case: str = ""
    more: dict[str, Any] = {}  # noqa: RUF012 - read only


P = "logitloom_plugins.processors."
OCCURRENCES = "logitloom_plugins.occurrences"
HELD = "context.donate), state"
OVERWRITTEN = "True), state"

#: Built-in -> faults in its module, or in a module that it uses.
PROCESSORS: list[tuple[str, Fault]] = [
    ("top_k", Fault(P + "top_k", "logits < threshold", "logits <= threshold",
                    "test_it_keeps_what_it_declares", "one")),
    ("top_k", Fault(P + "top_k", "kth_largest(logits, k)", "xp.min(context.backend.kth_largest(logits, k))",
                    "test_rows_are_independent", "half")),
    ("top_k", Fault(P + "top_k", "NEG_INF, " + HELD, "-1e9, " + HELD, "test_it_writes_what_it_declares", "half")),
    ("top_k", Fault(P + "top_k", "How many tokens to keep.", "", "test_the_processor_is_documented")),
    ("top_k", Fault(P + "top_k", "k = min(self.k, logits.shape[-1])", "k = logits.shape[-1]",
                    "test_the_processor_does_something", "half")),
    ("top_p", Fault(P + "top_p", "logits < threshold", "logits <= threshold",
                    "test_it_keeps_what_it_declares", "p")),
    ("top_p", Fault(P + "top_p", HELD, OVERWRITTEN, "test_inputs_stay_untouched", "p")),
    ("min_p", Fault(P + "min_p", "xp.max(logits, axis=-1, keepdims=True)", "xp.max(logits)",
                    "test_rows_are_independent", "p")),
    ("min_p", Fault(P + "min_p", "logits < threshold", "logits > threshold", "test_it_keeps_what_it_declares", "p")),
    ("typical_p", Fault(P + "typical_p", "closeness < threshold", "closeness <= threshold",
                        "test_it_keeps_what_it_declares", "p")),
    ("top_n_sigma", Fault(P + "top_n_sigma", "xp.max(wide, axis=-1, keepdims=True)", "xp.max(wide)",
                          "test_batches_of_one_and_of_none_are_taken", "n")),
    ("temperature", Fault(P + "temperature", "in_dtype_of(logits, context.backend, lowered_to_fit(",
                          "(lambda wide: wide)(lowered_to_fit(",
                          "test_logits_keep_shape_dtype_device_and_library", "cool", {"dtype": "float16"})),
    ("temperature", Fault(P + "temperature", "self.temperature, context.donate)", "self.temperature, True)",
                          "test_inputs_stay_untouched", "cool")),
    ("xtc", Fault(P + "xtc", "context.length, _STREAM", "context.length * 0 + state.seed.shape[0], _STREAM",
                  "test_rows_are_independent", "half")),
    ("xtc", Fault(P + "xtc", "rng.uniform(backend.xp, state.seed, context.length, _STREAM)",
                  "__import__('numpy').random.default_rng().random(logits.shape[0])",
                  "test_same_input_gives_same_output", "half")),
    ("frequency_penalty", Fault(OCCURRENCES, "context.tokens, 1.0, context.donate_state",
                                "context.tokens, 1.0, True", "test_inputs_stay_untouched", "all")),
    ("frequency_penalty", Fault(OCCURRENCES, "state.table, context.tokens, 1.0", "state.table, "
                                "context.tokens[:, -1:], 1.0", "test_any_number_of_tokens_may_come_at_once", "all")),
    ("frequency_penalty", Fault(OCCURRENCES, "if tokens.shape[1] == 1:", "if tokens.shape[1] >= 1:",
                                "test_the_structure_of_the_state_is_fixed", "window")),
    ("presence_penalty", Fault(P + "presence_penalty", "state = self.next_state(", "self.next_state(",
                               "test_the_processor_does_something", "all")),
    ("repetition_penalty", Fault(P + "repetition_penalty", "state = self.next_state(state, context)\n",
                                 "before, state = state, self.next_state(state, context)\n        state = state if "
                                 "context.compiled else before\n", "test_compiled_equals_eager", "window")),
    ("eta_cutoff", Fault(P + "eta_cutoff", "backend.log_softmax(logits)", "backend.cast(logits, 'float32')",
                         "test_it_reads_no_more_than_it_declares", "epsilon")),
    ("dry", Fault(P + "dry", "xp.where(token < 0, match, longer)", "longer",
                  "test_any_number_of_tokens_may_come_at_once", "all")),
    ("xtc", Fault(P + "xtc", "XtcState(context.backend.asarray(context.row_seeds()))", "self.__dict__.setdefault("
                  "'state', XtcState(context.backend.asarray(context.row_seeds())))",
                  "test_interleaved_generations_do_not_meet", "half")),
    ("no_repeat_ngram", Fault(P + "no_repeat_ngram", 'frozenset({"prompt", "history"})', 'frozenset({"prompt"})',
                              "test_needs_are_declared", "pairs")),
    ("force_tokens", Fault(P + "force_tokens", "self.tokens.get(position + len(run))",
                           "self.tokens.get(position + 1 + len(run))",
                           "test_forced_tokens_are_the_only_legal_ones", "positions")),
    ("force_tokens", Fault(P + "force_tokens", "position = context.step",
                           "position = backend.asarray(backend.to_numpy(context.step))",
                           "test_no_value_is_read_back", "positions")),
    ("cfg", Fault(P + "_branch", "branch.cache.crop(lengths) if shorter else branch.cache", "branch.cache",
                  "test_any_number_of_tokens_may_come_at_once", "two passes")),
    ("cfg", Fault(P + "_branch", "return _placed(logits, model.backend, backend), Branch(cache, tails)\n    # At the",
                  "return _placed(logits, model.backend, backend), Branch(branch.cache, tails)\n    # At the",
                  "test_rows_are_independent", "two passes")),
    ("frequency_penalty", Fault(OCCURRENCES, "add(before, line, out=line)", "add(line, 0, out=line)",
                                "test_sequences_score_as_they_are_decoded", "all")),
    ("top_k", Fault(P + "top_k", "at_most=self.k,", "at_most=self.k - 1,", "test_it_keeps_what_it_declares", "half")),
    ("regex", Fault("logitloom.constraints.constraint_processor", "xp.where(token >= 0, after, state)", "after",
                    "test_compiled_equals_eager", "text")),
    ("regex", Fault("logitloom.constraints.constraint_processor",
                    "nodes = _reached(memory, unlimited(state), context)\n",
                    "nodes = _reached(memory, unlimited(state), context.with_fields(tokens=None))\n",
                    "test_forced_tokens_are_the_only_legal_ones", "longest")),
    ("quadratic", Fault(P + "quadratic", "xp.max(x, axis=-1, keepdims=True)", "xp.max(x)",
                        "test_rows_are_independent", "square")),
    ("quadratic", Fault(P + "quadratic",
                        "in_dtype_of(logits, backend, xp.clip(top - self.factor * bent, lowest, None))",
                        "xp.clip(top - self.factor * bent, lowest, None)",
                        "test_logits_keep_shape_dtype_device_and_library", "square", {"dtype": "float16"})),
    ("p_less", Fault(P + "p_less", "p < threshold", "p <= threshold",
                     "test_it_keeps_what_it_declares", "plain")),
    ("p_less", Fault(P + "p_less", "xp.sum(p * p, axis=-1, keepdims=True)", "xp.sum(p * p)",
                     "test_rows_are_independent", "plain")),
    ("mirostat_v2", Fault(P + "mirostat_v2", "xp.max(logprob, axis=-1, keepdims=True)", "xp.max(logprob)",
                          "test_rows_are_independent", "own")),
    ("mirostat_v2", Fault(P + "mirostat_v2", "NEG_INF, context.donate)", "NEG_INF, True)",
                          "test_inputs_stay_untouched", "own")),
    ("suppress_tokens", Fault(P + "suppress_tokens", "fill_columns(logits, ids, NEG_INF, context.donate)",
                              "fill_columns(logits, ids, NEG_INF, True)", "test_inputs_stay_untouched", "always")),
    ("suppress_tokens", Fault(P + "suppress_tokens", "fill_columns(logits, ids, NEG_INF,",
                              "fill_columns(logits, ids, -1e9,", "test_it_writes_what_it_declares", "always")),
    ("logit_bias", Fault(P + "logit_bias", "backend.add(logits, table, context.donate), state",
                         "backend.add(logits, table, True), state",
                         "test_inputs_stay_untouched", "bias")),
    ("logit_bias", Fault(P + "logit_bias", "saturated(backend, logits, backend.add(logits, table))",
                         "backend.add(backend.cast(logits, 'float32'), table)",
                         "test_logits_keep_shape_dtype_device_and_library", "bias", {"dtype": "float16"})),
    ("min_tokens", Fault(P + "min_tokens", "set_at(logits, index, NEG_INF,", "set_at(logits, index, -1e9,",
                         "test_it_writes_what_it_declares", "ids")),
    ("min_tokens", Fault(P + "min_tokens", "else context.step", "else context.step * 0 + logits.shape[0]",
                         "test_rows_are_independent", "ids")),
    ("epsilon_cutoff", Fault(P + "epsilon_cutoff", "backend.softmax(logits) < self.epsilon", "logits < self.epsilon",
                             "test_it_reads_no_more_than_it_declares", "epsilon")),
    ("epsilon_cutoff", Fault(P + "_row_blocks", "NEG_INF, context.donate)", "NEG_INF, True)",
                             "test_inputs_stay_untouched", "epsilon")),
    ("watermark_gumbel", Fault(P + "watermark_gumbel", "xp.argmax(perturbed, axis=-1)[:, None]", "xp.argmax(perturbed)",
                               "test_rows_are_independent", "pair")),
]  # fmt: skip

B = "logitloom_plugins.backends."
BACKENDS: list[tuple[str, Fault]] = [
    ("numpy", Fault(B + "numpy", "np.where(mask, x.dtype.type(value), x)", "np.where(mask, np.float64(value), x)",
                    "test_arithmetic_keeps_the_dtype", more={"dtype": "float16", "batch": 4})),
    ("numpy", Fault(B + "numpy", "np.multiply(x, x.dtype.type(factor), out=x if donate else None)",
                    "np.multiply(x, x.dtype.type(factor), out=x)", "test_arithmetic_keeps_the_dtype",
                    more={"dtype": "float32", "batch": 4})),
    ("numpy", Fault(B + "numpy", "e = x - _finite_top(x)", "e = x - x.max(axis=-1, keepdims=True)",
                    "test_probabilities_are_float32", more={"dtype": "float32", "batch": 4})),
    ("numpy", Fault(B + "numpy", "return kth_largest(x, k)", "return kth_largest(x, min(k + 1, x.shape[-1]))",
                    "test_order_is_stable", more={"dtype": "float32", "batch": 4})),
    ("numpy", Fault(B + "numpy", "line == threshold[row])[: k - len(above)]", "line == threshold[row])[-k:]",
                    "test_top_k_of_a_wide_row_of_ties_takes_the_first")),
    ("numpy", Fault(B + "numpy", "np.add.at(x, (row, tokens[row, column]), x.dtype.type(value))",
                    "x[row, tokens[row, column]] += x.dtype.type(value)",
                    "test_scattered_writes_skip_what_is_no_token", more={"dtype": "float32", "tokens": "duplicates"})),
    ("numpy", Fault(B + "numpy", "valid = (index >= 0) & (index < x.shape[-1])",
                    "valid = index < x.shape[-1]", "test_scattered_writes_skip_what_is_no_token",
                    more={"dtype": "float32", "tokens": "ragged"})),
    ("numpy", Fault(B + "numpy", "values[row, column]\n", "values[row, 0]\n",
                    "test_scattered_writes_skip_what_is_no_token", more={"dtype": "float32", "tokens": "ragged"})),
    ("numpy", Fault(B + "numpy", 'bitorder="little"', 'bitorder="big"', "test_token_masks_of_any_width",
                    more={"dtype": "float32"})),
    ("numpy", Fault(B + "numpy", "return np.array(host, dtype=dtype)", "return np.asarray(host, dtype=dtype)",
                    "test_uploads_are_copies_of_their_dtype")),
    ("numpy", Fault(B + "numpy", "return np.take_along_axis(x, index, axis=-1)\n",
                    "return np.take_along_axis(x, index - 1, axis=-1)\n",
                    "test_rows_move", more={"dtype": "float32"})),
    ("torch", Fault(B + "torch", "self._mend_dead_rows(torch.softmax(x, -1, dtype=_wide(x)), x, 0.0)",
                    "torch.softmax(x, -1, dtype=_wide(x))", "test_probabilities_are_float32",
                    more={"dtype": "float32", "batch": 4})),
    ("torch", Fault(B + "torch", "return torch.from_numpy(kth_largest(x.numpy(), k))",
                    "return torch.from_numpy(kth_largest(x.numpy(), min(k + 1, x.shape[-1])))",
                    "test_order_is_stable", more={"dtype": "float32", "batch": 4})),
    ("torch", Fault(B + "torch", "x.div_(divisor) if donate and _writable(x)",
                    "x.div_(divisor) if _writable(x)", "test_arithmetic_keeps_the_dtype",
                    more={"dtype": "float32", "batch": 4})),
    ("torch", Fault(B + "torch", "x.add_(y) if donate", "x.add_(2 * y) if donate",
                    "test_donation_changes_no_value", more={"dtype": "float32", "donating": "add"})),
    ("mlx", Fault(B + "mlx", "mx.where(total == NEG_INF, 0.0, total)", "total", "test_probabilities_are_float32",
                  more={"dtype": "float32", "batch": 4})),
    ("mlx", Fault(B + "mlx", "amount = mx.where(valid, value, mx.zeros((), dtype=x.dtype))", "amount = value",
                  "test_scattered_writes_skip_what_is_no_token", more={"dtype": "float32", "tokens": "ragged"})),
    ("jax", Fault(B + "jax", "return x * factor", "return x * jnp.float32(factor)", "test_arithmetic_keeps_the_dtype",
                  more={"dtype": "float16", "batch": 4})),
    ("jax", Fault(B + "jax", "x.at[:, columns].set(value)", "x.at[columns].set(value)",
                  "test_writes_take_empty_and_single_batches")),
]  # fmt: skip


def changed(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> ModuleType:
    """The module with the changed line, in the place of the module."""
    original = importlib.import_module(fault.module)
    source = inspect.getsource(original)
    assert source.count(fault.line) == 1, f"{fault.line!r} stands {source.count(fault.line)} times in {fault.module}"
    return executed(monkeypatch, original, source.replace(fault.line, fault.changed))


def executed(monkeypatch: pytest.MonkeyPatch, original: ModuleType, source: str) -> ModuleType:
    """A module made of some source, for everything that is imported from now on in the place of the original."""
    module = ModuleType(original.__name__)
    module.__file__ = original.__file__
    package, _, name = original.__name__.rpartition(".")
    monkeypatch.setitem(sys.modules, original.__name__, module)
    monkeypatch.setattr(sys.modules[package], name, module)
    exec(compile(source, str(original.__file__), "exec"), module.__dict__)
    for public, value in vars(original).items():  # what the package exports of it
        if not public.startswith("_") and vars(sys.modules[package]).get(public) is value and public in vars(module):
            monkeypatch.setattr(sys.modules[package], public, vars(module)[public])
    return module


def suite_of(name: str) -> type[ProcessorConformance]:
    found = [getattr(suites, n) for n in suites.__all__ if getattr(suites, n).processor == name]
    return found[0]


def call(suite: Any, fault: Fault, backend: Any) -> BaseException | None:
    given = {"backend": backend, "case": fault.case, **fault.more}
    wanted = inspect.signature(getattr(suite, fault.check)).parameters
    return failure(suite, fault.check, **{name: given[name] for name in wanted if name != "self"})


def names(faults: list[tuple[str, Fault]]) -> list[str]:
    return [f"{name}-{fault.check.removeprefix('test_')}" for name, fault in faults]


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiled loops would do in their own way what the changed line does."""
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_wanted", False)
        kernels.look_for_kernels_again()
        yield
    kernels.look_for_kernels_again()


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize(("name", "fault"), PROCESSORS, ids=names(PROCESSORS))
@pytest.mark.long
def test_faults_in_processors_are_found(monkeypatch: pytest.MonkeyPatch, name: str, fault: Fault) -> None:
    suite, plugin = suite_of(name), registry.load_plugin("processors", name)
    own = importlib.import_module(plugin.__module__)

    def outcome(changed_to: str) -> BaseException | None:
        with monkeypatch.context() as patch:
            module = changed(patch, fault._replace(changed=changed_to))
            if fault.module != own.__name__:
                module = executed(patch, own, inspect.getsource(own))
            made_of_source = type("MadeOfSource", (suite,), {"processor": getattr(module, plugin.__name__)})
            return call(made_of_source, fault, load_backend("numpy"))

    assert outcome(fault.changed) is not None
    assert outcome(fault.line) is None, "the check fails without the fault, too"


@pytest.mark.extras
@pytest.mark.parametrize(("name", "fault"), BACKENDS, ids=names(BACKENDS))
def test_faults_in_backends_are_found(monkeypatch: pytest.MonkeyPatch, name: str, fault: Fault) -> None:
    if name != "numpy":
        pytest.importorskip(name, reason=f"needs {name}")
    sound = load_backend(name)
    faulty = getattr(changed(monkeypatch, fault), type(sound).__name__)()
    assert call(BackendConformance, fault, faulty) is not None
    assert call(BackendConformance, fault, sound) is None


def test_no_fault_is_sown_twice() -> None:
    assert len({(fault.module, fault.line, fault.changed) for _, fault in PROCESSORS + BACKENDS}) == len(
        PROCESSORS + BACKENDS
    )
