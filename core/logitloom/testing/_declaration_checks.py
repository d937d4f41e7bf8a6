"""Checks of what a processor says about itself: declarations, documentation, options."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
import pytest

from logitloom import errors, processors, registry
from logitloom import options as opts
from logitloom.backend import NEG_INF, Backend
from logitloom.context import padded
from logitloom.document import from_document, to_toml
from logitloom.processor import NEEDS, STAGES
from logitloom.renumbering import Renumbering
from logitloom.testing._subject import STEPS, TOLERANCE, ProcessorSubject
from logitloom.testing.conformance import host, same
from logitloom.testing.row_operations import entered, operated
from logitloom.testing.stories import Run, Story, accepting, stacked


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

    def test_declarations_hold(self, backend: Backend, case: str) -> None:
        """``mask_only``, ``preserves_masked`` and ``argmax_invariant`` are true of all that comes out.

        Troubleshooting: correct the processor, or what it declares: a chain and its engines rely on it.
        """
        told = {name: self.declared(case, name) for name in ("mask_only", "preserves_masked", "argmax_invariant")}
        if self.declared(case, "branches") > 1:
            pytest.skip("logits of several branches have no entry that corresponds to one of the result")
        for kind in ("ties", "holes"):
            for before, after in self._pairs(backend, case, kind):
                if told["preserves_masked"]:
                    assert (after[before == NEG_INF] == NEG_INF).all(), (
                        "The processor declares preserves_masked, but allowed what came in forbidden."
                    )
                if told["mask_only"]:
                    assert ((after == before) | (after == NEG_INF)).all(), (
                        "The processor declares mask_only, but changed a logit to something else than -inf."
                    )
                if told["argmax_invariant"]:
                    assert (after.argmax(-1) == before.argmax(-1)).all(), (
                        "The processor declares argmax_invariant, but changed which token is the most likely."
                    )

    def test_the_only_legal_token_is_kept_where_that_is_declared(self, backend: Backend, case: str) -> None:
        """A processor that declares ``keeps_last`` never forbids the one token of a row that is still legal."""
        if not self.declared(case, "keeps_last"):
            pytest.skip("the processor does not declare keeps_last")
        chain = self.chain(case, backend)
        run = self.run(chain, backend, self.stories(case)[:4])
        run.step()
        dice = np.random.default_rng(0)
        for first in range(0, min(self.vocab_size, 64), 4):
            lines = np.full((4 * chain.branches, self.vocab_size), NEG_INF, dtype=np.float32)
            for index in range(len(lines)):
                lines[index, (first + index) % self.vocab_size] = dice.normal()
            out, _ = chain.process(backend.asarray(lines), run.state, run.step_context())
            assert (host(backend, out) > NEG_INF).any(-1).all(), (
                f"The processor declares keeps_last, but forbade one of the tokens {first} to {first + 3} where it was "
                f"the only legal one."
            )

    def test_a_shift_changes_no_distribution_where_that_is_declared(self, backend: Backend, case: str) -> None:
        """A processor that declares ``shift_invariant`` gives the same distribution if all logits of a row are shifted.

        Troubleshooting: what asks for the sign or the size of a logit is not shift-invariant.
        """
        if not self.declared(case, "shift_invariant"):
            pytest.skip("the processor does not declare shift_invariant")
        chain = self.chain(case, backend)
        run = self.run(chain, backend, self.stories(case)[:4])
        for _ in range(3):
            state, context, lines = run.state, run.step_context(), host(backend, run.logits())
            expected = host(backend, backend.softmax(run.step()))
            shifted, _ = chain.process(backend.asarray(lines + np.float32(4.0)), state, context)
            found = host(backend, backend.softmax(shifted))
            same(found, expected, "Probabilities after all logits of a row were shifted", 1e-4)

    def test_columns_of_seen_tokens_are_enough_where_that_is_declared(self, backend: Backend, case: str) -> None:
        """A processor that declares ``changes_only_seen`` makes the same of the columns of seen tokens alone.

        Troubleshooting: it changes the logit of a token that the row never had, or the id of a token plays a part.
        """
        if not self.declared(case, "changes_only_seen"):
            pytest.skip("the processor does not declare changes_only_seen")
        chain, stories = self.chain(case, backend), self.stories(case)[:4]
        run, text = self.run(chain, backend, stories), padded([story.tokens for story in stories])
        numbered = Renumbering.of(text, run.context, self.vocab_size, least_saved=0)
        assert numbered is not None
        each = [dict(zip(a.tolist(), b.tolist(), strict=True)) for a, b in zip(text, numbered.tokens, strict=True)]
        state = chain.init_state(numbered.context)
        for age in range(STEPS + 1):
            blocks = [story.block(age - 1) if age else () for story in stories]
            now = [[known.get(token, -1) for token in block] for known, block in zip(each, blocks, strict=True)]
            context = accepting(chain, numbered.context, now) if age else numbered.context
            before = run.logits()
            narrow = numbered.columns(backend, before[None, :, :])
            found, state = chain.process(narrow, state, context)
            wanted = host(backend, run.step())
            whole = numbered.restored(backend, before[None, :, :], found, False)
            same(host(backend, whole)[0], wanted, f"Step {age} with the columns of seen tokens", TOLERANCE)

    def test_logits_are_written_last_where_that_is_declared(self, backend: Backend, case: str) -> None:
        """A processor that declares ``writes_last`` leaves donated logits alone if an operation of the backend fails.

        Troubleshooting: it writes to the logits before it calls another operation.
        """
        if not self.declared(case, "writes_last"):
            pytest.skip("the processor does not declare writes_last")
        chain = self.chain(case, backend)
        run, calls = self.run(chain, backend, self.stories(case)[:4]), 0
        run.step()
        interrupted = _Interrupted(backend)
        context = run.step_context().with_fields(donate=True, donate_state=False, backend=interrupted.backend)
        while True:
            interrupted.left, logits = calls, run.logits()
            before = host(backend, logits).copy()
            try:
                chain.process(logits, run.state, context)
            except _Interruption:
                same(host(backend, logits), before, f"Logits after the backend's operation {calls + 1} failed", 0.0)
                calls += 1
            else:
                return

    def test_survivors_are_enough_where_that_is_declared(self, backend: Backend, case: str) -> None:
        """A processor that declares ``ignores_ids`` makes of the possible tokens alone what it makes of the whole row.

        ``keeps_order`` and ``keeps_at_most`` are true, too.

        Troubleshooting: the size of the vocabulary, the number of forbidden tokens or the id of a token plays a part.
        """
        chain = self.chain(case, backend)
        if not self.declared(case, "ignores_ids"):
            pytest.skip("the processor does not declare ignores_ids")
        most = self.declared(case, "keeps_at_most")
        for kind in ("holes", "ties"):
            run = self.run(chain, backend, self.stories(case)[:4], kind=kind)
            for _ in range(3):
                before, state, context = host(backend, run.logits()), run.state, run.step_context()
                after = host(backend, run.step())
                left = [np.flatnonzero(line > NEG_INF) for line in before]
                few = np.full((len(before), max(map(len, left)) + 1), NEG_INF, dtype=np.float32)
                for line, row, ids in zip(few, before, left, strict=True):
                    line[: len(ids)] = row[ids]
                narrow = context.with_fields(vocab_size=few.shape[1])
                found = host(backend, chain.process(backend.asarray(few), state, narrow)[0])
                for line, row, ids in zip(found, after, left, strict=True):
                    same(line[: len(ids)], row[ids], "Logits of the possible tokens alone", TOLERANCE)
                    assert (line[len(ids) :] == NEG_INF).all(), "An entry that belongs to no token became possible."
                if self.declared(case, "keeps_order"):
                    order = np.argsort(before, axis=-1, kind="stable")
                    sorted_after = np.take_along_axis(after, order, axis=-1)
                    assert (sorted_after[:, 1:] >= sorted_after[:, :-1]).all(), (
                        "The processor declares keeps_order, but put a token above one that was likelier."
                    )
                if most is not None and most < before.shape[1]:
                    least = -np.sort(-before, axis=-1)[:, most - 1 : most]
                    assert (after[before < least] == NEG_INF).all(), (
                        f"The processor declares that it keeps at most {most} tokens, but kept a less likely one."
                    )

    def test_views_of_numpy_are_enough_where_that_is_declared(self, backend: Backend, case: str) -> None:
        """A processor that declares ``any_library`` makes of NumPy's views of arrays what it makes of the arrays.

        Troubleshooting: it uses a function of one library, or one whose results differ from library to library.
        """
        if not self.declared(case, "any_library"):
            pytest.skip("the processor does not declare any_library")
        # A chain of one processor may be given the arrays themselves.
        viewing, plain = (self.chain(case, backend, times=2, debug=debug) for debug in (False, True))
        run, expected = (self.run(chain, backend, self.stories(case)[:4]) for chain in (viewing, plain))
        if backend.shared_memory(run.logits()) is None:
            pytest.skip("the library shares no memory with NumPy")
        for age in range(STEPS + 1):
            found, wanted = host(backend, run.step()), host(backend, expected.step())
            same(found, wanted, f"Step {age} on NumPy's views", 0.0)

    def test_a_declared_operation_is_what_process_does(self, backend: Backend, case: str) -> None:
        """A processor that declares a ``row_operation`` does just that to float32 logits, and to its table.

        Troubleshooting: the definitions are in :func:`logitloom.testing.row_operations.operated` and ``entered``. A
        subclass that does something else declares ``row_operation = None``.
        """
        chain = self.chain(case, backend)
        operation = self.declared(case, "row_operation")
        if operation is None:
            pytest.skip("the processor does not declare row_operation")
        run, table = self.run(chain, backend, self.stories(case)[:4], kind="holes"), None
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

    def test_tokens_alone_tell_the_state_unless_every_step_must_be_seen(self, backend: Backend, case: str) -> None:
        """Other logits in earlier steps change nothing, or the processor declares ``sees_every_step``, not in vain.

        Troubleshooting: a state that depends on logits or on ``context.chosen_logprob`` cannot be rebuilt from tokens
        and does not bear that forced tokens skip the model: declare ``sees_every_step``. If the check says that it is
        declared in vain, delete the declaration, or choose options under which past logits matter.
        """
        chain, stories = self.chain(case, backend), self.stories(case)[:4]
        run = self.run(chain, backend, stories)
        state, differs = run.state, False
        for age in range(STEPS + 1):
            context, told = run.step_context(), [story.until(age) for story in stories]
            expected = host(backend, chain.process(run.logits(), state, context)[0])
            found = host(backend, run.step())
            differs = differs or bool((np.abs(np.exp(found) - np.exp(expected)) > TOLERANCE).any())
            other = [Story(story.prompt, story.seed + 1, story.blocks) for story in told]
            blocks = [story.block(age - 1) for story in stories]
            if age:
                context = accepting(chain, run.context, blocks, other=True)
            state = chain.process(stacked(backend, other, self.vocab_size, chain.branches), state, context)[1]
        if chain.sees_every_step:
            assert differs, "The processor declares sees_every_step, but logits of past steps make no difference to it."
        else:
            assert not differs, (
                "Logits of past steps make a difference to the processor, so its state cannot be rebuilt from tokens. "
                "Declare sees_every_step = True."
            )

    def test_forced_tokens_are_the_only_legal_ones(self, backend: Backend, case: str) -> None:
        """Where ``forced_tokens`` tells a run, each of its tokens is the one that ``process`` allows.

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

    def _check_run(self, run: Run, forced: list[int]) -> None:
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
        """With exactly what it declares in ``needs`` the processor runs, and its declarations are known ones."""
        chain = self.chain(case, backend)
        link = chain.links[0]
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


class OptionChecks(ProcessorSubject):
    """Options are documented, checked, and survive being written to a file."""

    def _class(self) -> Any:
        found = self.processor
        return registry.load_plugin("processors", found) if isinstance(found, str) else found

    def test_the_processor_is_documented(self) -> None:
        """It has a docstring whose first line is a sentence, and every option has a sentence of help."""
        doc = inspect.getdoc(self._class()) or ""
        first = doc.partition("\n")[0]
        # A dataclass without a docstring has its signature for one.
        own = first and not first.startswith(f"{getattr(self._class(), '__name__', '')}(")
        assert own, "The processor has no docstring; its first line is what 'logitloom plugins NAME' shows."
        assert first.rstrip().endswith("."), f"The first line of the docstring is no sentence: {first!r}."
        for option in opts.declared(self._class()):
            assert option.help.endswith("."), f"Option {option.name!r} has no sentence of help: {option.help!r}."

    def test_options_are_checked(self, case: str) -> None:
        """Unknown options, wrong types and values out of range are refused with an ``OptionError``.

        Troubleshooting: declare options with ``logitloom.option``, with their ranges, and derive from ``Processor``
        (or call ``logitloom.options.check``).
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
            processors.load((self.processor, options))
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
            chain = processors.load((name, dict(self.cases[case])), debug=False)
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


class _Interruption(Exception):
    """An operation failed on purpose."""


class _Interrupted:
    """A backend whose operations fail after a number of calls.

    Attributes:
        backend: a copy of the given one.
        left: how many calls are left.
    """

    def __init__(self, backend: Backend) -> None:
        self.left = 0
        self.backend: Any = object.__new__(type(backend))  # a copy would be the very backend, which all share
        vars(self.backend).update(vars(backend))
        for name, function in inspect.getmembers(type(backend), inspect.isfunction):
            if not name.startswith("_"):
                vars(self.backend)[name] = functools.partial(self._counted, function)

    def _counted(self, function: Callable[..., Any], *given: Any, **more: Any) -> Any:
        if not self.left:
            raise _Interruption
        self.left -= 1
        return function(self.backend, *given, **more)
