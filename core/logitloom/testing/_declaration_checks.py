"""Checks of what a processor says about itself: declarations, documentation, options."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from logitloom import errors, processors
from logitloom.arrays.backend import NEG_INF, Backend
from logitloom.chain import Chain
from logitloom.context import Context
from logitloom.document import from_document, to_toml
from logitloom.effect import Effect
from logitloom.errors import IllegalToken
from logitloom.host import options as opts
from logitloom.host import registry
from logitloom.host.plugin_manager import HOOKS
from logitloom.processor import NEEDS, STAGES, Processor
from logitloom.testing._subject import STEPS, TOLERANCE, ProcessorSubject
from logitloom.testing.conformance import host, same
from logitloom.testing.row_operations import entered, operated
from logitloom.testing.stories import Story, StoryRun, accepting, stacked


class DeclarationChecks(ProcessorSubject):
    """Declarations are true."""

    def _pairs(self, backend: Backend, case: str, kind: str) -> list[tuple[Any, Any]]:
        """Logits before and after, over all stories and steps."""
        chain = self.chain(case, backend)
        run, pairs = self.run(chain, backend, self.stories(case)[:4], kind=kind), []
        for _ in range(STEPS + 1):
            before = host(backend, run.logits())
            pairs.append((before, host(backend, run.step())))
        return pairs

    def _steps(self, backend: Backend, case: str) -> Iterator[Probe]:
        """Some steps of the stories, at which logits of all shapes can be tried."""
        chain = self.chain(case, backend)
        run = self.run(chain, backend, self.stories(case)[:4])
        for age in range(STEPS + 1):
            if age in (0, 1, STEPS):
                yield Probe(chain, backend, run.state, run.step_context(), self.vocab_size, len(run.stories))
            run.step()

    def _effect(self, case: str) -> Effect:
        """The declared effect; the check is skipped for a processor that takes several rows of logits per sequence."""
        effect: Effect = self.declared(case, "effect")
        if self.declared(case, "branches") > 1:
            pytest.skip("logits of several branches have no entry that corresponds to one of the result")
        return effect

    def test_it_writes_what_it_declares(self, backend: Backend, case: str) -> None:
        """Logits change in the way that ``effect.writes`` says: some become -inf, or numbers are added, or they scale.

        Troubleshooting: correct the processor, or declare another ``writes``; ``replaces`` is true of everything.
        """
        writes = self._effect(case).writes
        if writes == "replaces":
            pytest.skip("the processor may write anything")
        for step in self._steps(backend, case):
            for shape, before in lines(step.count, step.width):
                after, legal = step.on(before), before > NEG_INF
                told = f"The processor declares writes={writes!r}, but of {shape} logits"
                if writes == "forbids":
                    assert ((after == before) | (after == NEG_INF)).all(), f"{told} one became another number."
                    continue
                assert np.isfinite(after[legal]).all(), f"{told} a possible one became impossible."
                if writes == "scales":
                    same_sign = (np.sign(after) == np.sign(before)) | (after == 0)
                    assert same_sign[legal].all(), f"{told} one changed its sign."

    def test_it_reads_no_more_than_it_declares(self, backend: Backend, case: str) -> None:
        """The result for a token depends only on the inputs that ``effect.reads`` names.

        Troubleshooting: add the input that the message names to ``reads``, or do not use this input.
        """
        effect = self._effect(case)
        reads, dice = effect.reads, np.random.default_rng(1)
        for step in self._steps(backend, case):
            for shape, before in lines(step.count, step.width):
                after = step.on(before)
                if "logit" not in reads and shape != "steep":
                    shifted = host(backend, backend.softmax(backend.asarray(step.on(before + np.float32(4.0)))))
                    wanted = host(backend, backend.softmax(backend.asarray(after)))
                    same(shifted, wanted, f"Probabilities of {shape} logits without reads='logit', shifted", 1e-4)
                if "distribution" not in reads:
                    for other, kept in _with_others(before, "higher" in reads, dice):
                        wanted = np.where(kept, after, 0.0)
                        what = f"Tokens of {shape} logits without reads='distribution', among other less likely ones"
                        same(np.where(kept, step.on(other), 0.0), wanted, what, TOLERANCE)

    def test_ids_make_a_difference_only_where_that_is_declared(self, backend: Backend, case: str) -> None:
        """Without ``ids`` in ``effect.reads``, other ids make no difference, nor do forbidden tokens that are left out.

        Troubleshooting: the id of a token, the size of the vocabulary or the number of forbidden tokens plays a part.
        """
        effect = self._effect(case)
        if "ids" in effect.reads or "chosen_logprob" in self.declared(case, "needs"):
            pytest.skip("the processor goes by ids, or by probabilities that are made up of them here")
        chain, stories = self.chain(case, backend), self.stories(case)[:4]
        moved = np.random.default_rng(2).permutation(self.vocab_size)
        ours = self.run(chain, backend, stories)
        theirs = self.run(chain, backend, [_moved(story, moved) for story in stories])
        for age in range(STEPS + 1):
            for shape, before in lines(len(stories), self.vocab_size):
                after = Probe.of(ours).on(before)
                other = before[:, np.argsort(moved)]
                if shape != "ties":  # of equals, the one with the lower id may be taken
                    what = f"Step {age}: {shape} logits of tokens with other ids"
                    same(Probe.of(theirs).on(other)[:, moved], after, what, TOLERANCE)
                if effect.ignores_ids:
                    left = [np.flatnonzero(line > NEG_INF) for line in before]
                    few = np.full((len(before), max(map(len, left)) + 1), NEG_INF, dtype=np.float32)
                    for line, row, ids in zip(few, before, left, strict=True):
                        line[: len(ids)] = row[ids]
                    for line, row, ids in zip(Probe.of(ours).on(few), after, left, strict=True):
                        same(line[: len(ids)], row[ids], f"{shape} logits of the possible tokens alone", TOLERANCE)
                        assert (line[len(ids) :] == NEG_INF).all(), "What belongs to no token became possible."
            usual = backend.asarray(host(backend, ours.logits())[:, np.argsort(moved)])
            theirs.state = chain.process(usual, theirs.state, theirs.step_context())[1]
            theirs.age += 1
            ours.step()

    def test_seen_tokens_make_a_difference_only_where_that_is_declared(self, backend: Backend, case: str) -> None:
        """Without ``seen`` in ``effect.reads``, texts make no difference; with it alone, unseen tokens stay.

        Troubleshooting: add ``seen`` to ``reads``, and ``ids`` if logits of tokens change that the row never had.
        """
        effect, stories = self._effect(case), self.stories(case)[:4]
        chain, dice = self.chain(case, backend), np.random.default_rng(3)
        run = self.run(chain, backend, stories)
        others = [_moved(story, np.roll(np.arange(self.vocab_size), 1)) for story in stories]
        other = self.run(chain, backend, others)
        for age in range(STEPS + 1):
            before = dice.normal(scale=2.5, size=(len(stories), self.vocab_size)).astype(np.float32)
            after = Probe.of(run).on(before)
            if "seen" not in effect.reads:
                try:
                    found = Probe.of(other).on(before)
                    other.step()
                except IllegalToken:
                    pytest.skip("the processor forbids the tokens of other texts")
                same(found, after, f"Step {age} after other tokens without reads='seen'", TOLERANCE)
            elif not {"ids", "distribution", "higher"} & set(effect.reads):
                unseen = np.ones(before.shape, dtype=bool)
                for row, story in enumerate(stories):
                    unseen[row, [*story.prompt, *story.until(age).tokens]] = False
                what = f"Step {age}: tokens that the row never had, with reads='seen' alone"
                same(np.where(unseen, after, 0.0), np.where(unseen, before, 0.0), what, 0.0)
            run.step()

    def test_it_keeps_what_it_declares(self, backend: Backend, case: str) -> None:
        """``effect.keeps`` and ``effect.at_most`` are true: the order, what was forbidden, the last token, the number.

        Troubleshooting: a chain and its engines rely on it. Correct the processor, or do not promise it.
        """
        effect = self._effect(case)
        for step in self._steps(backend, case):
            for shape, before in lines(step.count, step.width):
                after, told = step.on(before), f"The processor declares that it keeps {{}}, but of {shape} logits"
                if "forbidden" in effect.keeps:
                    assert (after[before == NEG_INF] == NEG_INF).all(), told.format("'forbidden'") + " one was allowed."
                if "last" in effect.keeps:
                    lost = (after.max(-1) == NEG_INF) & (before.max(-1) > NEG_INF)
                    assert not lost.any(), told.format("'last'") + " none is possible."
                if "order" in effect.keeps:
                    rising = np.take_along_axis(after, np.lexsort((after, before), axis=-1), axis=-1)
                    wrong = rising[:, 1:] < rising[:, :-1]
                    assert not wrong.any(), told.format("'order'") + " one came below one that was less likely."
                if effect.at_most is not None and effect.at_most < step.width:
                    least = -np.sort(-before, axis=-1)[:, effect.at_most - 1 : effect.at_most]
                    most = told.format(f"at most {effect.at_most} tokens")
                    assert (after[before < least] == NEG_INF).all(), most + " a less likely one is left."

    def test_a_declared_operation_is_what_process_does(self, backend: Backend, case: str) -> None:
        """A processor that declares an ``operation`` does just this operation to float32 logits, and to its table.

        NumPy's views of another library's arrays give the same, for such a processor may be given these views.

        Troubleshooting: the definitions are in :func:`logitloom.testing.row_operations.operated` and ``entered``. A
        subclass that does something else declares an effect without an operation.
        """
        chain, operation = self.chain(case, backend), self.declared(case, "effect").operation
        if operation is None:
            pytest.skip("the processor declares no operation")
        run, table = self.run(chain, backend, self.stories(case)[:4], kind="holes"), None
        twice = [
            self.run(self.chain(case, backend, times=2, debug=debug), backend, self.stories(case)[:4])
            for debug in (False, True)
        ]
        for age in range(STEPS + 1):
            before, context = host(backend, run.logits()), run.step_context().with_fields(donate_state=False)
            if operation.has_table:
                earlier = host(backend, run.state.processors[0][0])
                table = host(backend, chain.links[0].processor.next_state(run.state.processors[0], context)[0])
                if context.tokens is not None:
                    wanted = entered(operation, earlier, host(backend, context.tokens))
                    same(table, wanted, f"The table at step {age} by the definition of the operation", 0.0)
            wanted = operated(operation, before, table)
            same(host(backend, run.step()), wanted, f"Step {age} by the definition of the operation", TOLERANCE)
            found, wanted = (host(backend, each.step()) for each in twice)
            same(found, wanted, f"Step {age} of two such processors, by whatever way the chain takes", TOLERANCE)

    def test_tokens_alone_tell_the_state_unless_every_step_must_be_seen(self, backend: Backend, case: str) -> None:
        """Other logits in earlier steps change nothing, or the processor declares ``sees_every_step``, not in vain.

        Troubleshooting: a state that depends on logits or on ``context.chosen_logprob`` cannot be rebuilt from tokens
        and does not bear that forced tokens skip the model: declare ``sees_every_step``. If the check says that
        past logits make no difference, delete the declaration, or choose options under which they do.
        """
        chain = self.chain(case, backend)
        differs = self._differs_after(chain, case, backend, other=True)
        if chain.sees_every_step:
            assert differs, "The processor declares sees_every_step, but logits of past steps make no difference to it."
        elif differs:
            assert not self._differs_after(chain, case, backend, other=False), (
                "The processor gave other logits when it was given the same past once more: it keeps something outside "
                "of its state, changes its inputs, or draws numbers that no seed decides."
            )
            raise AssertionError(
                "Logits of past steps make a difference to the processor, so its state cannot be rebuilt from tokens. "
                "Declare sees_every_step = True."
            )

    def _differs_after(self, chain: Chain, case: str, backend: Backend, *, other: bool) -> bool:
        """Whether a step gives something else after past steps with other logits, or with the same ones once more."""
        stories = self.stories(case)[:4]
        run = self.run(chain, backend, stories)
        state, differs = run.state, False
        for age in range(STEPS + 1):
            context = run.step_context()
            expected = host(backend, chain.process(run.logits(), state, context)[0])
            found = host(backend, run.step())
            differs = differs or bool((np.abs(np.exp(found) - np.exp(expected)) > TOLERANCE).any())
            past = [Story(story.prompt, story.seed + int(other), story.until(age).blocks) for story in stories]
            if age:
                context = accepting(chain, run.context, [story.block(age - 1) for story in stories], other=other)
            state = chain.process(stacked(backend, past, self.vocab_size, chain.branches), state, context)[1]
        return differs

    def test_forced_tokens_are_the_only_legal_ones(self, backend: Backend, case: str) -> None:
        """Each token of a run that ``forced_tokens`` returns is the only token that ``process`` allows.

        Troubleshooting: tell a shorter run, or ``[]``.
        """
        chain = self.chain(case, backend)
        if not hasattr(chain.links[0].processor, "forced_tokens"):
            pytest.skip("the processor does not force tokens")
        for story in self.stories(case):
            run = self.run(chain, backend, [story])
            for _ in range(STEPS):
                runs = chain.forced_tokens(run.state, run.step_context())
                self._check_run(run, list(runs[0]) if runs else [])
                run.step()

    def _check_run(self, run: StoryRun, forced: list[int]) -> None:
        chain, context, state = run.chain, run.step_context(), run.state
        blank = run.backend.asarray(np.zeros((chain.branches, self.vocab_size), dtype=np.float32))
        for token in forced[:4]:
            out, state = chain.process(blank, state, context)
            legal = np.flatnonzero(host(run.backend, out)[0] > NEG_INF).tolist()
            assert legal == [token], f"Token {token} was told to be forced, but {legal[:5]} are legal."
            context = accepting(chain, run.context, [[token]])

    def test_the_processor_does_something(self, case: str) -> None:
        """Some logits change in the stories of each case: checks of a processor that does nothing prove nothing.

        Configuration: choose options, or override ``choose``; ``has_effect = False`` if there is none to see.
        """
        if not self.has_effect:
            pytest.skip("the suite says that there is no effect to see")
        backend = registry.load_backend("numpy")
        if self.declared(case, "branches") > 1:
            pytest.skip("logits of several branches are always changed")
        changed = any((before != after).any() for before, after in self._pairs(backend, case, "plain"))
        assert changed, f"With the options of case {case!r} nothing was changed in any story."

    def test_needs_are_declared(self, backend: Backend, case: str) -> None:
        """The processor runs with exactly the fields that it declares in ``needs``, and all its declarations are known.

        No name is nearly that of a hook or of a declaration.
        Troubleshooting: a field of the context is ``None`` unless ``needs`` asks for it.
        """
        chain = self.chain(case, backend)
        link = chain.links[0]
        for name, meant in _misspelt(type(link.processor)):
            raise AssertionError(f"{name!r} is read by nobody. Write {meant!r}, or begin its name with '_'.")
        needs = set(link.declared("needs"))
        assert needs <= set(NEEDS), f"Unknown needs {sorted(needs - set(NEEDS))}; there are {', '.join(NEEDS)}."
        assert link.declared("stage") in STAGES, f"Unknown stage {link.declared('stage')!r}."
        bare = processors.load(link.processor, debug=False)
        give: dict[str, Any] = {"prompt": None, "max_length": None}
        if "prompt" in needs:
            del give["prompt"]
        if "history" in needs:
            give["max_length"] = self.max_length
        if "vocabulary" in needs:
            give["vocabulary"] = self.vocabulary
        if "model" in needs:
            give["model"] = self.model(backend)
        run = self.run(bare, backend, self.stories(case)[:4], **give)
        for _ in range(3):
            run.step()


def _misspelt(kind: type) -> Iterator[tuple[str, str]]:
    """The attributes of a class that differ from a hook or a declaration in case, underscores or a plural only."""

    def plainly(name: str) -> str:
        return name.lower().replace("_", "").rstrip("s")

    known = {plainly(name): name for name in (*HOOKS, *Processor.__annotations__)}
    own = {name for base in kind.__mro__ if base not in (Processor, object) for name in vars(base)}
    for name in sorted(own - {option.name for option in opts.declared(kind)}):
        meant = known.get(plainly(name), name)
        if not name.startswith("_") and meant not in own:
            yield name, meant


class OptionChecks(ProcessorSubject):
    """Options are documented, checked, and survive being written to a file."""

    def _class(self) -> Any:
        found = self.processor
        return registry.load_plugin("processors", found) if isinstance(found, str) else found

    def test_the_processor_is_documented(self) -> None:
        """The processor has a docstring whose first line is a sentence, and every option has a sentence of help."""
        doc = inspect.cleandoc(self._class().__doc__ or "")
        first = doc.partition("\n")[0]
        # Python gives a dataclass without a docstring its signature as docstring.
        own = first and not first.startswith(f"{getattr(self._class(), '__name__', '')}(")
        assert own, "The processor has no docstring; its first line is what 'logitloom plugins NAME' shows."
        assert first.rstrip().endswith("."), f"The first line of the docstring is no sentence: {first!r}."
        for option in opts.declared(self._class()):
            assert option.help.endswith("."), f"Option {option.name!r} has no sentence of help: {option.help!r}."

    def test_options_are_checked(self, case: str) -> None:
        """Unknown options, wrong types and values out of range are refused with an ``OptionError``.

        Troubleshooting: declare options with ``logitloom.option``, with their ranges, and derive from ``Processor``
        (or call ``logitloom.host.options.check``).
        """
        given = dict(self.options(case, registry.load_backend("numpy")))
        declared = opts.declared(self._class())
        for option in declared:
            assert not isinstance(option.type, str), (
                f"The type of option {option.name!r}, {option.type}, is not known at run time, so nothing is checked. "
                f"Import it outside of TYPE_CHECKING."
            )
            for wrong in _outside(option):
                self._refused({**given, option.name: wrong}, f"{option.name} = {wrong!r}")
        if declared:
            self._refused({**given, "no_such_option": 1}, "an option that does not exist")

    def _refused(self, options: Mapping[str, Any], what: str) -> None:
        try:
            processors.load([self.processor, options])
        except errors.OptionError:
            return
        except errors.LogitloomError as error:
            raise AssertionError(f"{what} was refused with {type(error).__name__} instead of OptionError.") from error
        raise AssertionError(f"{what} was accepted.")

    def test_a_chain_document_gives_the_processor_back(self, case: str) -> None:
        """The processor, written as TOML and read again, has the same options.

        Configuration: ``in_documents = False`` if an option is an object that no document can hold.
        """
        if not self.in_documents:
            pytest.skip("the suite says that an option cannot stand in a document")
        temporary = not isinstance(self.processor, str)
        name = self.processor if isinstance(self.processor, str) else "under_conformance_test"
        if temporary:
            registry.register(name, self.processor)
        try:
            chain = processors.load([name, dict(self.cases[case])], debug=False)
            again = from_document(tomllib.loads(to_toml(chain)))
            before, after = chain.links[0], again.links[0]
            for option in opts.declared(self._class()):
                one, other = (getattr(link.processor, option.name) for link in (before, after))
                assert one == other or one != one, f"Option {option.name!r} was {one!r} and came back as {other!r}."
        finally:
            if temporary:
                registry.unregister(name)


def _outside(option: opts.Option) -> list[Any]:
    """Values that an option must refuse: just beyond each end of its range, and of another type."""
    wrong: list[Any] = []
    # A list: the arguments of a Callable are a list, which has no hash.
    kinds = [option.type, *get_args(option.type)]
    is_number = int in kinds or float in kinds
    if is_number:
        just: dict[str, Callable[[float], float]] = {
            ">=": lambda bound: bound - 1, ">": lambda bound: bound, "<=": lambda bound: bound + 1,
            "<": lambda bound: bound,
        }  # fmt: skip
        for sign, bound in option.bounds:
            value = just[sign](bound)
            if np.isfinite(value):
                wrong.append(int(value) if float in kinds or float(value).is_integer() else value)
        if option.bounds and float in kinds:
            wrong.append(float("nan"))
    if option.choices is not None:
        wrong.append(object())
    known = {int, float, bool, str, bytes}
    if option.type in known:
        wrong.append(object())
    return wrong


@dataclass(frozen=True)
class Probe:
    """A step of a batch that can be tried on any logits.

    Attributes:
        chain, backend, state, context: of the step.
        width, count: of its logits.
    """

    chain: Chain
    backend: Backend
    state: Any
    context: Context
    width: int
    count: int

    @classmethod
    def of(cls, run: StoryRun) -> Probe:
        """The next step of a run."""
        return cls(run.chain, run.backend, run.state, run.step_context(), run.vocab, len(run.stories))

    def on(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The processed logits, ``[rows, n]``."""
        context = self.context.with_fields(vocab_size=logits.shape[1], donate=False, donate_state=False)
        processed, _ = self.chain.process(self.backend.asarray(logits), self.state, context)
        return host(self.backend, processed)


def lines(count: int, width: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Logits of many shapes, ``[count, width]`` float32, each with its name."""
    for name, scale in (("flat", 0.05), ("ordinary", 2.5), ("steep", 12.0)):
        yield name, np.random.default_rng(len(name)).normal(scale=scale, size=(count, width)).astype(np.float32)
    dice = np.random.default_rng(7)
    yield "ties", np.round(dice.normal(scale=1.2, size=(count, width))).astype(np.float32)
    holes = dice.normal(scale=2.5, size=(count, width)).astype(np.float32)
    holes[dice.random(holes.shape) < 0.4] = NEG_INF
    holes[:, 0] = 0.25
    yield "partly forbidden", holes
    # A few tokens of nearly equal probability, and a long tail: the most typical tokens are not the most likely ones.
    tail = dice.normal(scale=0.1, size=(count, width)).astype(np.float32)
    tail[:, : max(width // 6, 1)] += np.float32(4.0)
    tail[:, width // 2] += np.float32(5.0)
    yield "peaked", tail
    for first in range(0, width, max(width // 6, 1)):
        alone = np.full((count, width), NEG_INF, dtype=np.float32)
        alone[np.arange(count), (first + np.arange(count)) % width] = dice.normal(size=count)
        yield "all but one forbidden", alone


def _with_others(
    before: NDArray[np.float32], higher: bool, dice: np.random.Generator
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
    """The logits with changed values in some columns, and a mask of the unchanged columns: the most likely, or any."""
    for part in (0.2, 0.6):
        if higher:
            least = np.quantile(np.where(before > NEG_INF, before, -1e9), 1.0 - part, axis=-1, keepdims=True)
            kept = before >= least
            other = np.where(kept, before, before - np.float32(dice.uniform(0.5, 3.0)))
            other[(~kept) & (dice.random(before.shape) < 0.5)] = NEG_INF
        else:
            kept = dice.random(before.shape) < part
            other = np.where(kept, before, dice.normal(scale=2.5, size=before.shape))
        yield other.astype(np.float32), kept


def _moved(story: Story, ids: NDArray[np.int64]) -> Story:
    """The story with other ids."""
    blocks = tuple(tuple(int(ids[token]) if token >= 0 else token for token in block) for block in story.blocks)
    return Story(tuple(int(ids[token]) for token in story.prompt), story.seed, blocks)
