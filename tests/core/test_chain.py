"""Chains: assembled once, called as plain functions, immutable; order, needs, donation, rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import MASK, PENALTY, Chain, Context, Effect, Processor, Vocabulary, errors, hookimpl, option, processors
from logitloom.automata import compile_pattern
from logitloom.generation.dead_ends import closing_processor
from logitloom.rows import tree as state
from tests.cases import examples

VOCAB = 7
NEG_INF = float("-inf")


@dataclass(frozen=True)
class Counting(Processor):
    """Adds to the logit of each token how often the row has seen it; rows are independent."""

    stage = "penalty"
    effect = PENALTY
    weight: float = option(1.0, help="Per occurrence.")

    def init_state(self, context):
        return context.backend.asarray(np.zeros((context.batch, context.vocab_size), dtype=np.float32))

    def process(self, logits, state, context):
        if context.tokens is not None:
            state = context.backend.add_at(state, context.tokens, 1.0, context.donate_state)
        return context.backend.add(logits, state * self.weight, context.donate), state


@dataclass(frozen=True)
class Forbid(Processor):
    """A constraint that forbids one token."""

    stage = "constraint"
    effect = MASK
    token: int = option(help="Which.", ge=0)

    def process(self, logits, context):
        mask = context.backend.arange(logits.shape[-1])[None, :] == self.token
        return context.backend.masked_fill(logits, mask, NEG_INF, context.donate)


@dataclass(frozen=True)
class Guide(Processor):
    """Guidance over two branches: the mean of both."""

    stage = "guidance"
    branches = 2

    def process(self, logits):
        half = logits.shape[0] // 2
        return (logits[:half] + logits[half:]) / 2


class OneBranchGuide(Processor):
    stage = "guidance"

    def process(self, logits):
        return logits + 1


def start(batch=2, dtype=np.float32, **more):
    logits = np.arange(batch * VOCAB, dtype=dtype).reshape(batch, VOCAB)
    return logits, Context.start(logits, **more)


# -- calling conventions ----------------------------------------------------------------------------


def test_a_function_of_logits_is_a_stateless_processor():
    logits, context = start()
    chain = processors.load(lambda logits: logits * 2)
    out, after = chain.process(logits, chain.init_state(context), context)
    np.testing.assert_array_equal(out, logits * 2)
    assert after.processors == ((),)


def test_a_function_of_logits_and_context_gets_the_context():
    logits, context = start()
    chain = processors.load(lambda logits, context: logits + context.batch)
    np.testing.assert_array_equal(chain.process(logits, chain.init_state(context), context)[0], logits + 2)


class Doubled:
    """A callable object that names none of its parameters, as numpy.tanh does and modules of PyTorch do."""

    def __call__(self, *args, **kwargs):
        return 2 * args[0]


def test_a_callable_object_that_names_no_parameter_is_a_processor():
    logits, context = start()
    chain = processors.load(Doubled())
    np.testing.assert_array_equal(chain.process(logits, chain.init_state(context), context)[0], 2 * logits)


def test_a_numpy_function_is_a_processor():
    logits, context = start()
    chain = processors.load(np.tanh)
    np.testing.assert_array_equal(chain.process(logits, chain.init_state(context), context)[0], np.tanh(logits))


@pytest.mark.parametrize(
    "function",
    [
        lambda input_ids, logits: logits,
        lambda logits, state, context: logits,
        lambda logits, state: logits,
        lambda logits, tokens: logits,
        lambda scores, input_ids: scores,
        lambda context, logits: logits,
        lambda: None,
        lambda logits, *, context: logits,
    ],
)
def test_functions_of_something_else_are_refused_with_the_remedy(function):
    with pytest.raises(errors.InvalidSignature, match=r"takes \(logits\) or \(logits, context\).*write a class"):
        processors.load(function)


def test_arguments_with_defaults_are_left_alone():
    logits, context = start()

    def scaled(logits, factor=3.0):
        return logits * factor

    chain = processors.load(scaled)
    np.testing.assert_array_equal(chain.process(logits, chain.init_state(context), context)[0], logits * 3)


def test_hooks_take_fewer_arguments_in_any_order():
    seen = []

    class ContextFirst:
        def init_state(self):
            return (np.zeros((2, 1), dtype=np.int32),)

        def process(self, context, state, logits):
            seen.append((context.batch, state[0].shape, logits.shape))
            return logits + 1, (state[0] + 1,)

    class NoState:
        def process(self, context, logits):
            return logits * context.batch

    logits, context = start()
    chain = processors.load(ContextFirst(), NoState())
    out, after = chain.process(logits, chain.init_state(context), context)
    np.testing.assert_array_equal(out, (logits + 1) * 2)
    assert seen == [(2, (2, 1), (2, VOCAB))]
    np.testing.assert_array_equal(after.processors[0][0], [[1], [1]])


def test_hook_arguments_with_defaults_are_given_too():
    class Defaults:
        def process(self, logits, state=None, context=None, scale=2.0):
            assert context is not None
            return logits * scale, state

    logits, context = start()
    chain = processors.load(Defaults())
    np.testing.assert_array_equal(chain.process(logits, chain.init_state(context), context)[0], logits * 2)


def test_the_marker_is_optional_and_harmless():
    class Marked:
        @hookimpl
        def init_state(self, context):
            return (np.zeros((context.batch, 1)),)

        @hookimpl
        def process(self, logits, state):
            return logits + 1, state

    logits, context = start()
    chain = processors.load(Marked())
    np.testing.assert_array_equal(chain.process(logits, chain.init_state(context), context)[0], logits + 1)


def test_a_module_is_a_plugin(register):
    import types

    module = types.ModuleType("a_module")
    exec("def process(logits):\n    return logits * 5\n", module.__dict__)
    register("five", module)
    logits, context = start()
    chain = processors.load("five")
    np.testing.assert_array_equal(chain.process(logits, chain.init_state(context), context)[0], logits * 5)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("too_many", r"'too_many': process\(logits, state, context, temperature\).*Unknown arguments: temperature"),
        ("misspelt", r"Unknown arguments: sate.*takes any of the hook's arguments, by name"),
        ("marked", r"'marked' marks the method 'init_sate' as a hook.*Did you mean 'init_state'"),
        ("marked_module", r"'marked_module' marks the .*'init_sate' as a hook.*Did you mean 'init_state'"),
        ("no_process", r"'no_process' \(NoProcess\) has no method 'process'. Add: def process\(self, logits, state"),
    ],
)
def test_wrong_signatures_are_refused_when_loading(installed, name, text):
    installed("wrong_signature")
    with pytest.raises(errors.InvalidSignature, match=text):
        processors.load(name)


@pytest.mark.parametrize(
    ("method", "shown"),
    [
        (lambda self, *arguments: None, "(*arguments)"),
        (lambda self, **arguments: None, "(**arguments)"),
        (lambda self, *, logits: None, "(*, logits)"),
        (lambda self, logits, scale=2.0, context=None: None, "(logits, scale=2.0, context=None)"),
    ],
)
def test_arguments_that_cannot_be_given_by_place_are_refused(method, shown):
    cls = type("Odd", (), {"process": method})
    with pytest.raises(errors.InvalidSignature, match=rf"process{re.escape(shown)} does not fit the hook process"):
        processors.load(cls())


@pytest.mark.parametrize("spec", [5, ("top_k", 5), ["a", "b"], None])
def test_what_is_no_processor_is_refused_with_what_would_be(spec):
    with pytest.raises(errors.InvalidSignature, match=r"is no processor\..* Give a name, a pair"):
        processors.load(spec)


def test_a_configured_processor_takes_no_options():
    with pytest.raises(errors.InvalidSignature, match="already configured"):
        processors.load((Counting(), {"weight": 2.0}))
    with pytest.raises(errors.UnknownOption, match="no option 'wait'"):
        processors.load((Counting(), {"wait": 2.0}))


# -- shapes and dtypes -------------------------------------------------------------------------------


def test_one_row_without_batch_axis_comes_back_without_it():
    logits, _ = start(1)
    context = Context.start(logits[0])
    chain = processors.load(("top_k", {"k": 1}), Counting())
    out, after = chain.process(logits[0], chain.init_state(context), context)
    assert out.shape == (VOCAB,)
    assert state.row_count(after) == 1
    batched, _ = chain.process(logits, chain.init_state(context), context)
    np.testing.assert_array_equal(out, batched[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_dtype_of_the_logits_stays(dtype):
    logits, context = start(dtype=dtype)
    chain = processors.load(("temperature", {"temperature": 0.7}), ("top_k", {"k": 3}), Counting())
    out, _ = chain.process(logits, chain.init_state(context), context.accept([1, 2]))
    assert out.dtype == dtype


def test_an_empty_chain_changes_nothing():
    logits, context = start()
    chain = processors.load()
    out, after = chain.process(logits, chain.init_state(context), context)
    assert out is logits
    assert after == ((), ())
    assert (len(chain), repr(chain)) == (0, "<Chain (empty)>")


def test_a_chain_is_a_processor():
    inner = processors.load(Counting(), ("temperature", {"temperature": 0.5}))
    nested = processors.load(inner, Counting())
    assert nested.labels == ("Chain", "Counting")
    logits, context = start()
    out, _ = nested.process(logits, nested.init_state(context), context.accept([1, 1]))
    expected = (logits + np.eye(VOCAB, dtype=np.float32)[1]) / 0.5 + np.eye(VOCAB, dtype=np.float32)[1]
    np.testing.assert_allclose(out, expected)


# -- donation ----------------------------------------------------------------------------------------


def overwriting(logits, context):
    """What a processor does that takes every permission."""
    if context.donate:
        logits *= 2
        return logits
    return logits * 2


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_callers_logits_are_never_overwritten_unless_given_up(count):
    logits, context = start()
    kept = logits.copy()
    chain = processors.load(*[overwriting] * count)
    out, _ = chain.process(logits, chain.init_state(context), context)
    np.testing.assert_array_equal(logits, kept)
    np.testing.assert_array_equal(out, kept * 2**count)


def test_given_up_logits_are_overwritten():
    logits, context = start(donate=True)
    kept = logits.copy()
    chain = processors.load(overwriting)
    out, _ = chain.process(logits, chain.init_state(context), context)
    assert out is logits
    np.testing.assert_array_equal(out, kept * 2)


def test_a_processor_that_returns_its_input_does_not_give_it_away():
    logits, context = start()
    kept = logits.copy()
    chain = processors.load(lambda logits: logits, overwriting)
    chain.process(logits, chain.init_state(context), context)
    np.testing.assert_array_equal(logits, kept)


def test_a_function_that_returns_a_view_of_its_input_does_not_give_it_away():
    logits, context = start()
    kept = logits.copy()
    chain = processors.load(lambda logits: logits[:], overwriting)
    out, _ = chain.process(logits, chain.init_state(context), context)
    np.testing.assert_array_equal(logits, kept)
    np.testing.assert_array_equal(out, kept * 2)


def test_earlier_states_survive_donated_logits():
    logits, context = start()
    chain = processors.load(("temperature", {"temperature": 0.5}), Counting(), Counting(), max_length_probe)
    context = Context.start(logits, prompt=[[1], [2, 3]], max_length=6)
    first = chain.init_state(context)
    kept = [leaf.copy() for _, leaf in state.leaves(first)]
    for _ in range(2):
        chain.process(logits.copy(), first, context.accept([4, 5], donate=True))
    for (path, leaf), before in zip(state.leaves(first), kept, strict=True):
        np.testing.assert_array_equal(leaf, before, err_msg=path)


class _HistoryProbe(Processor):
    needs = frozenset({"history"})

    def process(self, logits, context):
        assert context.sequence is not None
        return logits


max_length_probe = _HistoryProbe()


# -- what a constraint forbade -----------------------------------------------------------------------------


def test_what_a_constraint_forbade_stays_forbidden_after_processors_that_do_not_promise_it():
    logits, context = start()
    chain = processors.load(("top_k", {"k": 7}), Forbid(token=3), lambda logits: np.where(logits < 0, 0, logits) + 1)
    out, _ = chain.process(logits, chain.init_state(context), context)
    assert (out[:, 3] == NEG_INF).all()
    np.testing.assert_array_equal(np.delete(out, 3, axis=1), np.delete(logits + 1, 3, axis=1))


def test_what_was_forbidden_before_is_restored_even_if_overwritten_in_place():
    logits, context = start()

    def revive(logits, context):
        if context.donate:
            logits[...] = 5.0
            return logits
        return np.full_like(logits, 5.0)

    chain = processors.load(Forbid(token=3), revive)
    out, _ = chain.process(logits, chain.init_state(context), context)
    assert (out[:, 3] == NEG_INF).all()
    assert (np.delete(out, 3, axis=1) == 5.0).all()


def test_before_a_constraint_nothing_is_restored():
    logits, context = start()
    logits[:, 2] = NEG_INF
    chain = processors.load(lambda logits: np.zeros_like(logits), Forbid(token=3))
    out, _ = chain.process(logits, chain.init_state(context), context)
    assert (out[:, 2] == 0).all()
    assert (out[:, 3] == NEG_INF).all()


# -- order ---------------------------------------------------------------------------------------------


def test_guidance_after_another_processor_is_refused_and_the_right_order_printed():
    with pytest.raises(errors.StageOrderError) as caught:
        processors.load("temperature", OneBranchGuide(), ("top_k", {"k": 1}))
    assert "The right order is 'OneBranchGuide', 'temperature', 'top_k'" in str(caught.value)
    assert "'OneBranchGuide' stands after 'temperature'" in str(caught.value)


def test_the_printed_order_is_accepted():
    assert processors.load(OneBranchGuide(), "temperature", ("top_k", {"k": 1})).labels[0] == "OneBranchGuide"


def test_a_processor_of_several_branches_is_the_very_first():
    with pytest.raises(errors.StageOrderError, match="'Guide' takes several rows.*must be the very first"):
        processors.load(OneBranchGuide(), Guide())


def test_an_unknown_stage_is_refused():
    class Odd:
        stage = "final"

        def process(self, logits):
            return logits

    with pytest.raises(errors.StageOrderError, match="declares the stage 'final'"):
        processors.load(Odd())


def test_several_branches_become_one_row_per_sequence():
    logits = np.arange(4 * VOCAB, dtype=np.float32).reshape(4, VOCAB)
    context = Context.start(logits, branches=2)
    chain = processors.load(Guide(), Counting(), debug=True)
    out, after = chain.process(logits, chain.init_state(context), context)
    np.testing.assert_array_equal(out, (logits[:2] + logits[2:]) / 2)
    assert (context.batch, state.row_count(after), chain.branches) == (2, 2, 2)


# -- labels, configuration, needs ----------------------------------------------------------------------------


def test_labels_number_repeated_names():
    chain = processors.load(("top_k", {"k": 5}), "temperature", "top_k", options={"top_k#2": {"k": 2}})
    assert chain.labels == ("top_k", "temperature", "top_k#2")
    assert (chain["top_k"].k, chain["top_k#2"].k) == (5, 2)
    with pytest.raises(errors.UnknownPlugin, match="no processor 'top_p'; it has top_k, temperature, top_k#2"):
        chain["top_p"]


def test_configure_makes_a_new_chain():
    chain = processors.load("top_k", "temperature")
    assert chain.missing == {"top_k": ("k",)}
    ready = chain.configure(top_k={"k": 3}).configure(temperature={"temperature": 2.0})
    assert (ready["top_k"].k, ready["temperature"].temperature) == (3, 2.0)
    assert chain.missing == {"top_k": ("k",)}
    assert chain["temperature"].temperature == 1.0


def test_configure_changes_only_what_it_names():
    chain = processors.load(("top_k", {"k": 3}), ("temperature", {"temperature": 2.0}))
    assert chain.configure(top_k={"k": 4})["temperature"].temperature == 2.0


def test_configure_refuses_strange_labels_objects_and_options():
    chain = processors.load("top_k", Counting())
    with pytest.raises(errors.UnknownPlugin, match="no processor 'regex'; it has top_k, Counting"):
        chain.configure(regex={"pattern": "a"})
    with pytest.raises(errors.UnknownPlugin, match="'Counting' was given as an object"):
        chain.configure(Counting={"weight": 2.0})
    with pytest.raises(errors.UnknownOption, match="no option 'kk'"):
        chain.configure(top_k={"kk": 2})


def test_an_incomplete_chain_is_not_started_and_lists_everything_missing():
    _, context = start()
    with pytest.raises(errors.ChainIncomplete) as caught:
        processors.load("top_k", "temperature", "top_k").init_state(context)
    text = str(caught.value)
    assert "top_k: k; top_k#2: k" in text
    assert "chain.configure(" in text


def test_the_remedy_for_an_incomplete_chain_is_python():
    _, context = start()
    with pytest.raises(errors.ChainIncomplete) as caught:
        processors.load(("top_k", {"k": 1}), "top_k").init_state(context)
    call = str(caught.value).split("Give them: ")[1].rstrip(".")
    compile(call, "remedy", "eval")


@dataclass(frozen=True)
class Needy(Processor):
    needs = frozenset({"prompt", "history", "vocabulary", "model"})

    def process(self, logits):
        return logits


def test_needs_are_checked_when_a_generation_starts():
    _, context = start()
    with pytest.raises(errors.NeedsNotMet) as caught:
        processors.load(Needy()).init_state(context)
    for need in ("prompt", "history", "vocabulary", "model"):
        assert f"'Needy' needs {need}" in str(caught.value)
    assert "max_length" in str(caught.value)


def test_needs_are_met_by_the_chain_or_the_context():
    vocabulary = Vocabulary([b"a"])
    seen = []

    @dataclass(frozen=True)
    class Sees(Needy):
        def process(self, logits, context):
            seen.append((context.vocabulary, context.model))
            return logits

    chain = processors.load(Sees(), tokenizer=vocabulary, model="a model")
    logits, context = start(prompt=[[1], [2]], max_length=4)
    chain.process(logits, chain.init_state(context), context)
    other = processors.load(Sees()).configure(tokenizer=vocabulary, model="another")
    other.process(logits, other.init_state(context), context)
    assert seen == [(vocabulary, "a model"), (vocabulary, "another")]


def test_an_engine_that_gives_too_little_is_told_when_the_chain_is_bound():
    with pytest.raises(errors.NeedsNotMet, match="the engine X cannot run this chain: 'Needy' needs history"):
        processors.load(Needy()).require({"prompt", "vocabulary", "model"}, engine="the engine X")
    processors.load(Needy()).require({"prompt", "history", "vocabulary", "model"}, engine="X")


def test_an_unknown_need_is_refused():
    class Odd:
        needs = frozenset({"gpu"})

        def process(self, logits):
            return logits

    with pytest.raises(errors.InvalidSignature, match=r"'Odd' declares the needs \['gpu'\]; known are"):
        processors.load(Odd())


@pytest.mark.parametrize(
    ("declarations", "text"),
    [
        ({"needs": "history"}, r"the needs 'history', which is no set of names. Write frozenset\(\{'history'\}\)"),
        ({"needs": None}, "the needs None, which is no set of names. Write frozenset"),
        ({"effect": "forbids"}, "the effect 'forbids', which is no logitloom.Effect. Give a preset, such as MASK"),
        ({"effect": None}, "the effect None, which is no logitloom.Effect"),
        ({"effect": Effect}, "the effect <class .*>, which is no logitloom.Effect"),
        ({"branches": "2"}, "'2' branches, but must take a whole number of rows of at least 1"),
        ({"branches": 0}, "0 branches, but must take a whole number of rows of at least 1"),
    ],
)
@pytest.mark.parametrize("called", [True, False])
def test_a_declaration_of_another_type_is_refused_with_the_remedy(declarations, text, called):
    cls = type("Odd", (Processor,), {"process": lambda self, logits: logits, **declarations})
    with pytest.raises(errors.InvalidSignature, match=f"'Odd' declares {text}"):
        processors.load(cls() if called else cls)


def test_options_of_a_class_that_is_no_dataclass_are_refused_when_loading():
    class Odd(Processor):
        amount: float = option(1.0, help="How much.")

        def process(self, logits):
            return logits - self.amount

    for spec in (Odd, Odd(), (Odd, {"amount": 2.0})):
        with pytest.raises(errors.InvalidSignature, match="'amount' in .*Odd'"):
            processors.load(spec)


@pytest.mark.parametrize(
    ("change", "when"),
    [
        (
            lambda logits, context: logits - context.length[:, None],
            "length is None unless the processor declares needs = frozenset({'length'}).",
        ),
        (
            lambda logits, context: context.backend.add_at(logits, context.sequence, -1.0),
            "sequence is None unless the processor declares needs = frozenset({'history'}).",
        ),
        (
            lambda logits, context: context.backend.add_at(logits, context.tokens, -1.0),
            "tokens is None in the first call.",
        ),
    ],
)
def test_a_field_of_the_context_that_is_none_is_named_in_a_note(change, when):
    class Unasked(Processor):
        def process(self, logits, context):
            return change(logits, context)

    logits, context = start()
    chain = processors.load(Unasked())
    with pytest.raises(TypeError) as caught:
        chain.process(logits, chain.init_state(context), context)
    (note,) = caught.value.__notes__
    assert note.endswith(f"before the first token. context.{when}")


@pytest.mark.parametrize("answer", [[1], [[1]], True, [], [[1], [2], [3]]])
@pytest.mark.parametrize(
    ("hook", "ask", "each"),
    [("forced_tokens", Chain.forced_tokens, "a list of token ids"), ("text_end", Chain.text_ends, "a TextEnd")],
)
def test_answers_that_are_no_list_of_rows_are_refused(hook, ask, each, answer):
    hooks = {"process": lambda self, logits: logits, hook: lambda self, state, context: answer}
    needing = {"needs": frozenset({"length"})}  # the chain's own state tells the number of rows
    chain = processors.load(type("Odd", (Processor,), {**hooks, **needing})())
    _, context = start()
    with pytest.raises(errors.InvalidResult, match=f"'Odd' answered '{hook}' with .*with {each}.* for each of the 2 "):
        ask(chain, chain.init_state(context), context)


def test_a_method_without_self_is_refused_with_the_remedy():
    class Selfless(Processor):
        def process(logits, state, context):
            return logits, state

    with pytest.raises(errors.InvalidSignature, match=r"'Selfless': the first argument .* def process\(self, logits, "):
        processors.load(Selfless())


def test_host_objects_are_refused_in_compiled_loops():
    @dataclass(frozen=True)
    class OnHost(Processor):
        compilable = False

        def process(self, logits):
            return logits

    _, context = start(compiled=True)
    with pytest.raises(errors.NeedsNotMet, match="in this chain OnHost. Call the chain outside"):
        processors.load(OnHost()).init_state(context)


def test_a_large_pattern_on_the_host_is_told_how_to_run_in_compiled_loops():
    pattern = ".{0,20}a.{0,20}b.{0,20}"
    words = Vocabulary([b"", b"a", b"b"], eos=[0])
    lazy = processors.load(("regex", {"pattern": pattern}), tokenizer=words)
    context = Context.start(np.zeros((1, 3), np.float32), compiled=True)
    with pytest.raises(errors.NeedsNotMet, match=r"in this chain regex\..*logitloom\.automata\.compile_pattern builds"):
        lazy.init_state(context)
    whole = processors.load(("fsm", {"automaton": compile_pattern(pattern)}), tokenizer=words)
    assert whole.compilable
    whole.init_state(context)


def test_declarations_of_a_chain_are_those_of_all_its_processors():
    masks = processors.load(("top_k", {"k": 1}), Forbid(token=1))
    assert masks.effect.forbids_only
    assert not masks.effect.keeps_order
    warps = processors.load(("top_k", {"k": 1}), "temperature")
    assert warps.effect.keeps_order
    assert not warps.effect.forbids_only
    assert processors.load(lambda logits: logits, max_length_probe).needs == {"history"}


# -- debug checks -----------------------------------------------------------------------------------------


class Pair(NamedTuple):
    count: Any
    seen: Any


def returning(change):
    class Changing:
        def init_state(self, context):
            return Pair(np.zeros((context.batch,), np.int32), {"a": np.zeros((context.batch, 2), np.float32)})

        def process(self, logits, state):
            return change(logits, state)

    return Changing()


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            lambda x, s: (x, s._replace(count=s.count[:1])),
            errors.StateMismatch,
            r"state.count is int32\[1\].*int32\[2\]",
        ),
        (lambda x, s: (x, s._replace(count=s.count * 1.5)), errors.StateMismatch, r"state.count is float64\[2\]"),
        (lambda x, s: (x, s._replace(seen={"b": s.seen["a"]})), errors.StateMismatch, r"state.seen\['b'\]"),
        (lambda x, s: (x, (s.count, s.seen)), errors.StateMismatch, r"state\[0\]"),
        (lambda x, s: (x, Pair(s.count, {})), errors.StateMismatch, "1 leaves, where init_state made 2"),
        (lambda x, s: x, errors.InvalidSignature, r"must return \(logits, state\), but returned ndarray"),
        (lambda x, s: (x[:, :3], s), errors.InvalidSignature, r"got logits \[2, 7\] and returned \[2, 3\]"),
        (lambda x, s: (x[0], s), errors.InvalidSignature, r"returned \[7\]"),
        (lambda x, s: (x.astype(np.float64), s), errors.InvalidSignature, "got float32 logits and returned float64"),
        (
            lambda x, s: (x, s._replace(count=np.append(s.count, 1).astype(np.int32))),
            errors.StateMismatch,
            r"state.count is int32\[3\], where init_state made state.count int32\[2\]",
        ),
        (lambda x, s: (x, None), errors.StateMismatch, "state is NoneType"),
        (lambda x, s: None, errors.InvalidSignature, r"must return \(logits, state\), but returned NoneType"),
        (lambda x, s: (None, s), errors.InvalidSignature, "got logits of numpy and returned NoneType"),
        (lambda x, s: (x.tolist(), s), errors.InvalidSignature, "got logits of numpy and returned list"),
        (
            lambda x, s: (np.where(np.arange(7) == 3, np.float32("nan"), x), s),
            errors.InvalidResult,
            r"not-a-number for the token 3 of row 0, .* \(2 in all\)",
        ),
        (
            lambda x, s: (np.multiply(x, 2, out=x), s),
            errors.InvalidResult,
            "changed the logits .* unless context.donate ",
        ),
        (
            lambda x, s: (x * 2, s._replace(count=np.add(s.count, 1, out=s.count))),
            errors.InvalidResult,
            r"changed state\.count .* unless context\.donate_state is true",
        ),
    ],
)
def test_debugging_finds_what_breaks_the_contract(change, error, text):
    logits, context = start()
    chain = processors.load(returning(change), debug=True)
    with pytest.raises(error, match=text) as caught:
        chain.process(logits, chain.init_state(context), context)
    assert "'Changing'" in str(caught.value)


def _infinite(x, s):
    return np.where(np.arange(7) == 3, np.float32("inf"), x), s


def test_debugging_finds_infinite_logits():
    logits, context = start()
    chain = processors.load(returning(_infinite), debug=True)
    with pytest.raises(
        errors.InvalidResult, match=r"'Changing' returned \+inf for the token 3 of row 0, .* \(2 in all\)"
    ):
        chain.process(logits, chain.init_state(context), context)


@pytest.mark.parametrize("later", [(), (("temperature", {"temperature": 0.5}),), (("top_k", {"k": 2}),)])
@pytest.mark.parametrize("first", [(), (Forbid(token=1),)], ids=["alone", "behind a constraint"])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x, s: x, r"must return \(logits, state\), but returned ndarray"),
        (lambda x, s: None, r"must return \(logits, state\), but returned NoneType"),
        (lambda x, s: (None, s), "got logits of numpy and returned NoneType"),
        (lambda x, s: (x.tolist(), s), "got logits of numpy and returned list"),
        (lambda x, s: (x[:, :3], s), r"got logits \[2, 7\] and returned \[2, 3\]"),
        (lambda x, s: (x[:1], s), r"got logits \[2, 7\] and returned \[1, 7\]"),
        (lambda x, s: (x[0], s), r"returned \[7\]"),
        (lambda x, s: (x.astype(np.float64), s), "got float32 logits and returned float64"),
        (lambda x, s: (x > 0, s), "got float32 logits and returned bool"),
    ],
)
@pytest.mark.long
def test_logits_of_another_form_are_found_without_debugging(change, text, first, later):
    logits, context = start()
    chain = processors.load(*first, returning(change), *later, debug=False)
    with pytest.raises(errors.InvalidSignature, match=text) as caught:
        chain.process(logits, chain.init_state(context), context)
    assert "'Changing'" in str(caught.value)


def test_debugging_finds_changed_tokens():
    class Forgetting:
        def process(self, logits, state, context):
            if context.tokens is not None:
                context.tokens[...] = -1
            return logits, state

    logits, context = start()
    chain = processors.load(Forgetting(), debug=True)
    state = chain.process(logits, chain.init_state(context), context)[1]
    with pytest.raises(errors.InvalidResult, match="'Forgetting' changed the tokens .* as they were: make a new array"):
        chain.process(logits, state, context.accept([[1], [2]]))


def test_debugging_finds_a_state_that_is_made_and_never_taken():
    class Forgetful:
        def init_state(self, context):
            return np.zeros((context.batch,), np.int32)

        def process(self, logits):
            return logits

    _, context = start()
    assert processors.load(Forgetful(), debug=False).init_state(context).processors[0].shape == (2,)
    with pytest.raises(errors.InvalidSignature, match="'Forgetful' makes a state in 'init_state', but"):
        processors.load(Forgetful(), debug=True).init_state(context)


def test_debugging_accepts_what_is_allowed():
    def in_place_if_donated(logits, context):
        return np.multiply(logits, 2, out=logits) if context.donate else logits * 2

    logits, context = start()
    broken = np.where(np.arange(7) == 3, np.float32("nan"), logits)
    chain = processors.load(in_place_if_donated, in_place_if_donated, debug=True)
    for values in (logits, broken):
        for donate in (False, True):
            step = context.with_fields(donate=donate)
            out, _ = chain.process(values.copy(), chain.init_state(context), step)
            np.testing.assert_array_equal(out, values * 4)


def test_logits_alone_for_two_rows_are_not_taken_for_logits_and_a_state():
    class Forgetting:
        def process(self, logits, state):
            return logits

    logits, context = start()
    chain = processors.load("temperature", Forgetting(), debug=False)
    with pytest.raises(errors.InvalidSignature, match=r"'Forgetting' must return .* but returned ndarray"):
        chain.process(logits, chain.init_state(context), context)


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("0", False), ("", False), ("true", True)])
def test_the_environment_switches_debugging_on(monkeypatch, value, expected):
    monkeypatch.setenv("LOGITLOOM_DEBUG", value)
    assert processors.load("temperature").debug is expected
    assert processors.load("temperature", debug=not expected).debug is not expected


@pytest.mark.parametrize("state_made", [5, [np.zeros(2)], (np.float32(1.0),), None, (np.zeros((3, 2)),)])
def test_states_that_are_no_row_trees_are_refused_at_the_start(state_made):
    class Odd:
        def init_state(self):
            return state_made

        def process(self, logits, state):
            return logits, state

    _, context = start()
    with pytest.raises(errors.StateMismatch, match="'Odd': state"):
        processors.load(Odd()).init_state(context)


# -- the whole: rows, replay, closing --------------------------------------------------------------------------


def everything():
    return processors.load(
        Counting(weight=0.5),
        Forbid(token=0),
        ("temperature", {"temperature": 0.5}),
        ("top_k", {"k": 4}),
        max_length_probe,
    )


@examples(40)
@given(st.data())
def test_rows_in_any_order_are_processed_as_each_alone(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    batch = data.draw(st.integers(1, 4))
    chain = everything()
    prompts = [rng.integers(0, VOCAB, rng.integers(0, 3)).tolist() for _ in range(batch)]
    histories: list[list[int]] = [[] for _ in range(batch)]
    context = Context.start(np.zeros((batch, VOCAB), np.float32), prompt=prompts, max_length=12)
    lived = chain.init_state(context)
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.lists(st.integers(0, len(prompts) - 1), min_size=1, max_size=4))
        lived = state.take(lived, index)
        prompts, histories = [prompts[i] for i in index], [histories[i] for i in index]
        tokens = [rng.integers(0, VOCAB, rng.integers(0, 3)).tolist() for _ in index]
        histories = [h + t for h, t in zip(histories, tokens, strict=True)]
        logits = rng.normal(size=(len(index), VOCAB)).astype(np.float32)
        out, lived = chain.process(logits, lived, context.accept(tokens))
        for row in range(len(index)):
            alone = Context.start(logits[row : row + 1], prompt=[prompts[row]], max_length=12)
            expected, _ = chain.process(logits[row : row + 1], chain.init_state(alone), alone.accept([histories[row]]))
            np.testing.assert_array_equal(out[row], expected[0])


def test_a_replayed_state_equals_the_lived_one():
    chain = everything()
    logits, context = start(prompt=[[1], [2, 3]], max_length=9)
    lived = chain.init_state(context)
    _, lived = chain.process(logits, lived, context)
    for tokens in ([[1], [2]], [[3, 4], []], [[5], [6]]):
        _, lived = chain.process(logits, lived, context.accept(tokens))
    replayed = chain.replay([[1, 3, 4, 5], [2, 6]], context)
    for (path, a), (_, b) in zip(state.leaves(lived), state.leaves(replayed), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=path)
    started = chain.replay([np.array([], dtype=int), np.array([], dtype=int)], context)
    state.check_like(started, chain.init_state(context), "chain")
    state.check_like(chain.replay([np.array([1, 3]), np.array([2, 6])], context), started, "chain")


def test_the_processor_that_closes_a_row_is_found():
    everything_forbidden = processors.load("temperature", *[Forbid(token=t) for t in range(VOCAB)], ("top_k", {"k": 2}))
    logits, context = start()
    before = everything_forbidden.init_state(context)
    assert closing_processor(everything_forbidden, logits, before, context, 1) == f"Forbid#{VOCAB}"
    assert closing_processor(everything(), *start_of(everything()), 0) is None


def start_of(chain):
    logits, context = start(prompt=[[1], [2]], max_length=9)
    return logits, chain.init_state(context), context


def test_the_state_of_another_chain_is_refused():
    logits = np.zeros((1, 4), dtype=np.float32)
    context = Context.start(logits)
    state = processors.load("temperature").init_state(context)
    with pytest.raises(errors.StateMismatch, match="chain of 1 processors, but this one has 2"):
        processors.load("temperature", ("top_k", {"k": 1})).process(logits, state, context)


def test_a_chain_is_made_of_plain_functions():
    chain = processors.load("temperature", debug=False)
    assert isinstance(chain, Chain)
    assert chain._steps[0] == chain["temperature"].process


@pytest.mark.parametrize(
    ("handle", "instead"), [([], "a tuple"), (set(), "a frozenset"), ({}, "a tuple of pairs"), (bytearray(), "bytes")]
)
@pytest.mark.parametrize("at_start", [True, False])
def test_host_objects_that_can_be_changed_in_place_are_found_by_debug(handle, instead, at_start):
    class Mutable(Processor):
        compilable = False

        def init_state(self, context):
            return state.Rows([None] * (context.batch - 1) + [handle if at_start else None])

        def process(self, logits, state):
            return logits, type(state)([*state[:-1], handle])

    logits, context = start()
    chain = processors.load(Mutable(), debug=True)
    with pytest.raises(errors.StateMismatch, match=f"'Mutable'.* a {type(handle).__name__} for row 1.*Keep {instead},"):
        chain.process(logits, chain.init_state(context), context)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, :],
        lambda x: x.reshape(-1).reshape(x.shape),
        lambda x: x.detach() if hasattr(x, "detach") else x[...],
    ],
)
def test_the_logits_of_the_caller_stay_though_a_processor_returns_a_view_of_them(backend, view):
    class Same(Processor):
        def process(self, logits):
            return view(logits)

    chain = processors.load(Same(), ("temperature", {"temperature": 0.5}), ("top_k", {"k": 1}))
    logits = backend.asarray(np.array([[1.0, 2.0, 3.0]], dtype=np.float32))
    context = Context.start(logits)
    out, _ = chain.process(logits, chain.init_state(context), context)
    assert backend.to_numpy(out).tolist() == [[-np.inf, -np.inf, 6.0]]
    assert backend.to_numpy(logits).tolist() == [[1.0, 2.0, 3.0]]


def test_arrays_of_derived_types_are_of_the_library(backend):
    if backend.name not in ("numpy", "torch"):
        pytest.skip("no types are derived from the library's arrays")
    plain = backend.asarray(np.array([[1.0, 3.0, 2.0]], dtype=np.float32))
    derived = type("Derived", (type(plain),), {})
    logits = plain.view(derived) if backend.name == "numpy" else plain.as_subclass(derived)
    for spec in (("temperature", {"temperature": 0.5}), ("top_k", {"k": 2}), ("min_p", {"p": 0.5})):
        chain = processors.load(spec)
        context = Context.start(logits)
        found, expected = (chain.process(given, chain.init_state(context), context)[0] for given in (logits, plain))
        assert backend.to_numpy(found).tolist() == backend.to_numpy(expected).tolist()


def test_a_processor_of_several_branches_may_stand_before_one_that_forces_tokens():
    class Apart(Processor):
        stage = "guidance"
        branches = 2

        def process(self, logits):
            return 2 * logits[: len(logits) // 2] - logits[len(logits) // 2 :]

        def branch_prompts(self, context):
            return [[[0]] * context.batch]

    words = Vocabulary([b"", b"a", b"b"], eos=[0])
    chain = processors.load(Apart(), ("regex", {"pattern": "ab"}), tokenizer=words)
    context = Context.start(np.zeros((2, 3), dtype=np.float32), branches=2, prompt=[[0]], vocabulary=words)
    alone = processors.load(chain.links[1], tokenizer=words)
    expected = alone.forced_tokens(alone.init_state(context), context)
    assert expected == chain.forced_tokens(chain.init_state(context), context) == [[1, 2, 0]]


def test_what_might_forbid_a_forced_token_finds_it_alone() -> None:
    """A forced token is the only legal one, so what leaves the likeliest token leaves the forced token."""

    def likeliest(logits: Any) -> Any:
        chosen = logits.argmax(axis=-1, keepdims=True)
        return np.where(np.arange(logits.shape[-1]) == chosen, logits, -np.inf)

    words = Vocabulary([b"", b"a", b"b", b"c"], eos=[0])
    alone = processors.load(("choice", {"choices": ["abc"]}), tokenizer=words)
    chain = processors.load(("choice", {"choices": ["abc"]}), likeliest, tokenizer=words)
    context = Context.start(np.zeros((1, 4), dtype=np.float32))
    expected = alone.forced_tokens(alone.init_state(context), context)
    assert chain.forced_tokens(chain.init_state(context), context) == expected == [[1, 2, 3, 0]]
