"""A chain: processors in order, assembled through pluggy once and then called as plain functions."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import id_lists, shown
from logitloom.arrays.backend import NEG_INF, Array, Backend
from logitloom.chain import positions, scoring
from logitloom.chain.direct_use import call_directly
from logitloom.chain.links import FunctionProcessor, Link, check_declarations, check_order
from logitloom.chain.plan import Segment, WholeRows
from logitloom.chain.planning import planned
from logitloom.chain.score_arguments import checked, masked
from logitloom.chain.state import ChainFingerprint, ChainState, check_owner, load_state, save_state, state_type
from logitloom.chain.step_checks import check_answer, check_step, note, writable
from logitloom.chain.steps import Step, check_state_is_taken, checking_results, restoring_forbidden
from logitloom.context import Context
from logitloom.display.html_table import html_table
from logitloom.display.progress import waiting
from logitloom.effect import Effect
from logitloom.errors import (
    ChainIncomplete,
    InvalidContext,
    InvalidSignature,
    NeedsNotMet,
    OptionError,
    StateMismatch,
    UnknownPlugin,
)
from logitloom.host.hookspecs import TextEnd
from logitloom.host.plugin_manager import implementations
from logitloom.host.registry import read_vocabulary
from logitloom.processor import NEEDS, Processor
from logitloom.rows import tree as rows
from logitloom.vocabulary import Vocabulary

__all__ = ["Chain", "ChainState"]

#: Hooks that are asked between two steps, by the indices of the processors in the chain.
_Questions = dict[int, Callable[[Any, Context], Any]]


def _debug_by_default() -> bool:
    """What the environment variable ``LOGITLOOM_DEBUG`` says.

    Raises:
        OptionError: it says neither yes nor no.
    """
    value = os.environ.get("LOGITLOOM_DEBUG", "")
    if value.lower() in ("", "0", "false", "no", "off"):
        return False
    if value.lower() in ("1", "true", "yes", "on"):
        return True
    raise OptionError(f"The environment variable LOGITLOOM_DEBUG is {value!r:.100}. Set it to 1 or 0, or unset it.")


class Chain:
    """Processors in order, as one processor. Immutable; make one with :func:`logitloom.processors.load`.

    Args:
        links: the processors.
        vocabulary: for processors that need one, if the context brings none.
        model: a model adapter for processors that need one, if the context brings none.
        debug: check the result of every processor, and that no processor changes its inputs.

    Raises:
        StageOrderError: if a guidance processor is not first; prints the right order.
        InvalidSignature: if a processor's methods do not fit the hooks.
    """

    def __init__(
        self,
        links: Sequence[Link],
        *,
        vocabulary: Vocabulary | None = None,
        model: Any = None,
        debug: bool | None = None,
    ) -> None:
        self.links = tuple(links)
        self.vocabulary = vocabulary
        self.model = model
        self.debug = _debug_by_default() if debug is None else debug
        check_declarations(self.links)
        check_order(self.links)
        self.needs: frozenset[str] = frozenset().union(*(link.declared("needs") for link in self.links))
        self.guided: bool = any(link.declared("stage") == "guidance" for link in self.links)
        self.branches: int = max((link.declared("branches") for link in self.links), default=1)
        self.compilable: bool = all(link.declared("compilable") for link in self.links)
        self.sees_every_step: bool = any(link.sees_every_step for link in self.links)
        self._tracked = positions.tracked(self.needs)
        self._own_resources = vocabulary is not None or model is not None
        self._state_type = state_type(self)
        self._assemble()

    def _assemble(self) -> None:
        """Find the hooks of the processors whose required options are all given."""
        links = [link for link in self.links if link.processor is not None]
        hooks = [implementations(link.processor, link.label, required="process") for link in links]
        steps: list[Step] = []
        fresh: list[bool] = []
        constrained = False
        for link, found in zip(links, hooks, strict=True):
            if self.vocabulary is not None and isinstance(link.processor, Processor):
                link.processor.check_vocabulary(self.vocabulary)
            restored = constrained and not link.effect.keeps_forbidden
            steps.append(restoring_forbidden(found["process"], link) if restored else found["process"])
            fresh.append(restored or _returns_fresh(link.processor))
            constrained = constrained or link.declared("stage") == "constraint"
        self._fresh = tuple(fresh)
        #: Whether a processor may compute with logits.
        self._computes = not all(link.effect.ignores_logits for link in links)
        self._inits: tuple[Callable[[Context], Any], ...] = tuple(
            found.get("init_state") or _stateless for found in hooks
        )
        self._afters = tuple(found.get("states_after") for found in hooks)
        self._forced = {i: found["forced_tokens"] for i, found in enumerate(hooks) if "forced_tokens" in found}
        self._ends = {i: found["text_end"] for i, found in enumerate(hooks) if "text_end" in found}
        self._branches = hooks[0].get("branch_prompts") if hooks and self.branches > 1 else None
        # A processor that forces tokens is asked for its own forced run; only the other processors can object to the
        # run.
        asked = self._forced if len(self._forced) == 1 else ()
        self._vetoes = tuple(
            (i, step)
            for i, (link, step) in enumerate(zip(links, steps, strict=True))
            if not link.effect.keeps_last and i not in asked
        )
        if self.debug:
            steps = [checking_results(step, link) for link, step in zip(links, steps, strict=True)]
        self._steps: tuple[Step, ...] = tuple(steps)
        self._plan_steps()

    def _plan_steps(self, *, loops: bool = True) -> None:
        """Plan how the steps run; where the result of each is checked, each sees whole rows."""
        links = tuple(link for link in self.links if link.processor is not None)
        self._whole = WholeRows(links, self._steps, self._fresh)
        shortened = not self.debug and len(links) == len(self.links)
        self._plan: Segment = planned(self._whole, loops=loops) if shortened else self._whole

    # -- what the chain is ---------------------------------------------------------------------------

    @functools.cached_property
    def effect(self) -> Effect:
        """The joint effect of the processors on a row."""
        return Effect.of(link.effect for link in self.links)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the processors, in order."""
        return tuple(link.label for link in self.links)

    @property
    def missing(self) -> dict[str, tuple[str, ...]]:
        """Label -> required options that were not given yet."""
        return {link.label: link.missing for link in self.links if link.missing}

    def __len__(self) -> int:
        return len(self.links)

    def __getitem__(self, label: str) -> Any:
        """The configured processor with that label."""
        for link in self.links if isinstance(label, str) else ():
            if link.label == label:
                return link.processor
        raise UnknownPlugin(f"The chain has no processor {shown(label)}; it has {', '.join(self.labels) or 'none'}.")

    def __repr__(self) -> str:
        told = []
        for link in self.links:
            options = ", ".join(f"{name}={value}" for name, value in link.told_options.items())
            told.append(f"{link.label}({options})" if options else link.label)
        return f"<Chain {' -> '.join(told) or '(empty)'}>"

    def _repr_html_(self) -> str:
        """The processors with their options, as notebooks show the chain."""
        rows = [
            (number, link.label, ", ".join(f"{name}={value}" for name, value in link.told_options.items()))
            for number, link in enumerate(self.links, 1)
        ]
        return html_table(["", "processor", "options"], rows)

    def _ipython_key_completions_(self) -> list[str]:
        """The keys that ``chain[...]`` takes, for the completion of notebooks."""
        return list(self.labels)

    def __iter__(self) -> Iterator[Chain]:
        """The chain itself: engines iterate over the processors that they are given, and call each."""
        yield self

    def __call__(self, *given: Any, **more: Any) -> Any:
        """Refuse to be called as an engine's own processor, naming the adapter that makes one.

        In llama-cpp-python, which would print the error and go on without the chain, the chain runs.

        Raises:
            NeedsNotMet: everywhere else.
        """
        return call_directly(self, given, more)

    # -- making other chains -------------------------------------------------------------------------

    def configure(self, *, tokenizer: Any = None, model: Any = None, **options: dict[str, Any]) -> Chain:
        """A new chain with more (or other) options and resources.

        Args:
            tokenizer: a tokenizer of any library, or a Vocabulary.
            model: a model adapter.
            options: by label: ``chain.configure(regex={"pattern": "a+"})``; ``**{"top_k#2": {...}}`` for the
                second ``top_k``. Options not named stay.

        Raises:
            UnknownPlugin: if the chain has no such label.
            OptionError: as in :func:`logitloom.processors.load`.
        """
        unknown = [label for label in options if label not in self.labels]
        if unknown:
            raise UnknownPlugin(f"The chain has no processor {unknown[0]!r}; it has {', '.join(self.labels)}.")
        links = []
        for link in self.links:
            if link.label in options:
                if link.factory is None:
                    raise UnknownPlugin(
                        f"Processor {link.label!r} was given as an object, so it is configured where it was made."
                    )
                link = link.given(options[link.label])
            links.append(link)
        vocabulary = self.vocabulary
        if tokenizer is not None:
            vocabulary = read_vocabulary(tokenizer)
        return Chain(links, vocabulary=vocabulary, model=model if model is not None else self.model, debug=self.debug)

    def require(self, gives: Collection[str], *, engine: str, setting: Callable[[str, str], str] | None = None) -> None:
        """Check, when the chain is bound to an engine, that the engine gives everything the processors need.

        Args:
            gives: the names of :data:`logitloom.processor.NEEDS` that the engine gives. An engine that compiles looks
                at :attr:`compilable` itself.
            engine: its name, for the message.
            setting: how an option is given to the engine, from the label of its processor and its name, for the
                message; default: with :meth:`configure`.

        Raises:
            ChainIncomplete: options are missing; lists them all.
            NeedsNotMet: naming each processor and need.
        """
        if self.missing:
            listed = "; ".join(f"{label}: {', '.join(names)}" for label, names in self.missing.items())
            if setting is None:
                tables = (f"{x}={{...}}" if x.isidentifier() else f"**{{{x!r}: {{...}}}}" for x in self.missing)
                told = f"chain.configure({', '.join(tables)})"
            else:
                told = " ".join(setting(label, name) for label, names in self.missing.items() for name in names)
            raise ChainIncomplete(f"The chain misses options ({listed}). Give them: {told}.")
        have = set(gives) | ({"vocabulary"} if self.vocabulary else set()) | ({"model"} if self.model else set())
        lacking = [
            f"{link.label!r} needs {need} ({NEEDS[need]})"
            for link in self.links
            for need in sorted(link.declared("needs"))
            if need not in have
        ]
        if lacking:
            raise NeedsNotMet(f"{engine} cannot run this chain: {'; '.join(lacking)}.")

    def __reduce__(self) -> Any:
        """Pickled are the processors, by their options, and the chain's vocabulary and model. A state belongs to its
        own chain.
        """
        with_all = functools.partial(Chain, vocabulary=self.vocabulary, model=self.model, debug=self.debug)
        return with_all, (self.links,)

    def __deepcopy__(self, memo: Any) -> Chain:
        """Itself: it never changes."""
        return self

    # -- running ------------------------------------------------------------------------------------

    def init_state(self, context: Context) -> ChainState:
        """The state of a new generation.

        Args:
            context: without ``tokens``; see :meth:`Context.start`.

        Returns:
            A row tree with ``context.batch`` rows.

        Raises:
            ChainIncomplete: options are missing; lists them all.
            NeedsNotMet: the context lacks what a processor needs.
        """
        if not isinstance(context, Context):
            raise InvalidContext(f"A state begins with a Context, but this is {shown(context)}. Use Context.start.")
        context = self._equipped(context)
        if context.compiled and not self.compilable:
            hosts = [link for link in self.links if not link.declared("compilable")]
            tables = (
                " A constraint runs there if its automaton is built whole, which large ones are not. "
                "logitloom.automata.compile_pattern builds that of any pattern, within a budget."
            )
            raise NeedsNotMet(
                f"A compiled loop cannot run what works on host objects, in this chain "
                f"{', '.join(link.label for link in hosts)}. Call the chain outside of the loop, or leave it out there."
                f"{tables if any(link.is_constraint for link in hosts) else ''}"
            )
        position: Any = ()
        if self._tracked:
            position = positions.start(context, self._tracked)
            context = positions.describe(context, position)
        states: list[Any] = []
        for link, init in zip(self.links, self._inits, strict=True):
            try:
                with waiting(f"compiling {link.label!r}"):
                    states.append(init(context))
            except Exception as error:
                note(error, link.label, "init_state", context)
                raise
            rows.check_rows(states[-1], context.batch, link.label)
            if self.debug:
                check_state_is_taken(link.processor, states[-1], link.label)
                rows.check_handles(states[-1], link.label)
        return self.state(position, tuple(states))

    def branch_prompts(self, context: Context) -> list[list[list[int]]]:
        """The prompts of the branches that a loop feeds beside the rows' own, for guidance in one pass.

        Args:
            context: of the start.

        Returns:
            Per further branch, per row, token ids; empty for a chain that takes one row of logits per sequence.

        Raises:
            InvalidSignature: if a processor declares branches and does not tell their prompts.
        """
        if self.branches == 1:
            return []
        label = next(link.label for link in self.links if link.declared("branches") > 1)
        if self._branches is None:
            raise InvalidSignature(
                f"Processor {label!r} takes {self.branches} rows of logits per sequence, but has no method "
                f"'branch_prompts', so a loop cannot know what to feed. Add: def branch_prompts(self, context)."
            )
        found: list[list[list[int]]] = self._branches(self._equipped(context))
        if [len(rows) for rows in found] != [context.batch] * (self.branches - 1):
            raise InvalidSignature(
                f"Processor {label!r} returned prompts for branches of {[len(rows) for rows in found]} rows, but "
                f"declares {self.branches} branches (one of them the rows' own), and there are {context.batch} "
                f"sequences."
            )
        return found

    def process(self, logits: Array, state: ChainState, context: Context) -> tuple[Array, ChainState]:
        """Advance the state by the newly accepted tokens and process the logits.

        Args:
            logits: ``[rows, vocab]``, or ``[vocab]`` for one row (``[branches * rows, vocab]`` with
                guidance that takes several branches).
            state: from :meth:`init_state` or an earlier call.
            context: with ``tokens``, the tokens each row accepted since the state was made.

        Returns:
            The logits, of the same rank, library, dtype and device, and the new state.

        Raises:
            InvalidContext: the logits are no floating array of the generation's width, or the tokens have another
                number of rows. (Inside compiled loops nothing is checked.)
            StateMismatch: the state is of a chain that is not equal to this one, or has another number of rows.
            NeedsNotMet: if a step was left out that a processor must see, or the context does not tell how likely the
                tokens were, and a processor needs that.
        """
        position, states, context = self._opened(logits, state, context)
        single = logits.ndim == 1
        if single:
            logits = logits[None]
        plan = self._plan
        if plan is not self._whole and (context.compiled or not context.backend.has_values(logits)):
            plan = self._whole
        if self._computes and isinstance(logits, np.ndarray):
            logits, after = _run_on_numpy(plan, logits, states, context)
        else:
            logits, after = plan.run(logits, states, context)
        # The same as self.state(...), without a call.
        new_state = tuple.__new__(self._state_type, (position, tuple(after)))
        if context.backend.lazy and not context.compiled:
            held = [leaf for _, leaf in rows.leaves(new_state) if isinstance(leaf, type(logits))]
            context.backend.synchronize(logits, *held)
        return (logits[0] if single else logits), new_state

    def _opened(self, logits: Array, state: Any, context: Context) -> tuple[Any, tuple[Any, ...], Context]:
        """The position, the processor states and the context of a step, after a check that they belong together."""
        position, states = self._parts(state, context)
        if not context.compiled:
            check_step(logits, state, context, self.branches)
            if context.donate and not writable(logits):
                context = context.with_fields(donate=False)
        if self.sees_every_step and context.tokens is not None:
            self._check_step(context)
        if self._own_resources:
            context = self.with_resources(context)
        if self._tracked:
            position = positions.advance(position, context)
            context = positions.describe(context, position)
        if len(states) != len(self._steps):
            raise StateMismatch(
                f"The state belongs to a chain of {len(states)} processors, but this one has {len(self._steps)}: "
                f"{', '.join(self.labels)}. Take the state from this chain's init_state or process."
            )
        return position, states, context

    def _parts(self, state: Any, context: Context) -> tuple[Any, tuple[Any, ...]]:
        """The position and the processors' states in a state of this chain."""
        if not isinstance(context, Context):
            raise InvalidContext(f"A step has a Context, but this is {shown(context)}. Use Context.start.")
        if type(state) is self._state_type:
            return state
        check_owner(self, state, context)
        if not isinstance(state, tuple) or len(state) != 2 or not isinstance(state[1], tuple):
            raise StateMismatch(
                f"The state is a {type(state).__name__}, and no state of a chain. Take it from this chain's "
                f"init_state or process."
            )
        return state

    def score(
        self,
        logits: Array,
        tokens: Sequence[Sequence[int]] | NDArray[np.int32],
        context: Context,
        *,
        kept: Array | None = None,
    ) -> Array:
        """The log-probabilities of given sequences after the chain, in one pass over all positions.

        Decoding with the same logits samples from these probabilities, so a policy gradient can use the result. If the
        logits require gradients, the result is differentiable.

        Args:
            logits: ``[batch, time, vocab]``: the logits from which each token was chosen.
            tokens: per sequence its tokens, ragged, or ``[batch, time]`` with -1 behind the end.
            context: of the start: prompts, seeds, vocabulary as in decoding.
            kept: which tokens were left when the sequences were sampled: ``[batch, time, vocab] bool``, or
                ``[batch, time, ceil(vocab / 32)] int32`` bits as in :meth:`Backend.apply_token_mask`. With ``kept``,
                processors that only mask do not run: ``kept`` has their masks. Recomputed logits may differ a little,
                and then truncations may differ, too.

        Returns:
            ``[batch, time] float32`` (float64 for such logits), 0 behind the end of a sequence.

        Raises:
            InvalidContext: if shapes do not fit together.
            NeedsNotMet: the chain takes several rows of logits per sequence.
            IllegalToken: a constraint forbids a token that others follow; names sequence and position.
                (On devices, constraints read no values back; there a forbidden token scores -inf instead, as the last
                token of a sequence and tokens behind end-of-sequence do everywhere.)

        Example:
            >>> from logitloom import processors
            >>> chain = processors.load(("temperature", {"temperature": 0.5}), ("top_k", {"k": 2}))
            >>> logits = np.log(np.array([[[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]], dtype=np.float32))
            >>> chain.score(logits, [[0, 2]], Context.start(logits[:, 0])).round(2)
            array([[-0.31, -0.08]], dtype=float32)
        """
        if self.branches > 1:
            raise NeedsNotMet(
                f"The chain takes {self.branches} rows of logits per sequence, and sequences are scored with one. "
                f"Configure its guidance with form='two_pass'."
            )
        taken = checked(logits, tokens, context, kept)
        if kept is None:
            return scoring.score(self, self._over_positions, logits, taken, context)
        rest = self.part([link for link in self.links if not link.effect.forbids_only])
        return rest.score(masked(logits, kept, context.backend), taken, context)

    @functools.cached_property
    def _over_positions(self) -> Segment:
        """The plan for rows that are positions of sequences."""
        late = [after is None for after in self._afters]
        steps = [scoring.told_late(step) if told else step for step, told in zip(self._steps, late, strict=True)]
        whole = WholeRows(self.links, tuple(steps), self._fresh)
        tabled = [link.effect.operation is not None and link.effect.operation.has_table for link in self.links]
        loops = not any(table and told for table, told in zip(tabled, late, strict=True))
        return whole if self.debug else planned(whole, loops=loops)

    @property
    def unrecorded(self) -> Chain:
        """The chain without a link that records what the others do: itself, but for chains of ``logitloom.trace``."""
        return self

    def part(self, links: Sequence[Link]) -> Chain:
        """A chain of some, or other, links with the same resources."""
        return Chain(links, vocabulary=self.vocabulary, model=self.model, debug=self.debug)

    def state(self, position: Any, processors: tuple[Any, ...]) -> ChainState:
        """A state of this chain, made of a position and the states of its processors."""
        return tuple.__new__(self._state_type, (position, processors))

    @functools.cached_property
    def fingerprint(self) -> ChainFingerprint:
        """Equal for chains of equal processors in equal order, with equal options and vocabularies, in every process.

        Raises:
            StateMismatch: if an option's value cannot be told from others; names the processor.
        """
        return ChainFingerprint.of(self.links, self.vocabulary)

    def save_state(self, state: ChainState, context: Context | None = None) -> bytes:
        """A state as bytes, for :meth:`load_state` of an equal chain in whatever process, on whatever backend.

        The bytes hold a version, the chain's fingerprint, a checksum over everything, and arrays and plain values; a
        reader executes nothing that they say (see :mod:`logitloom.rows.tree_format`).

        Args:
            state: from :meth:`init_state` or :meth:`process`, after any movement of rows.
            context: for chains without a vocabulary of their own.

        Raises:
            StateMismatch: if the state belongs to another chain, or holds a value that has no form there.

        Example:
            >>> from logitloom import processors
            >>> chain = processors.load(("no_repeat_ngram", {"n": 2}))
            >>> context = Context.start(np.zeros((2, 3), dtype=np.float32), prompt=[[], []], max_length=4)
            >>> data = chain.save_state(chain.replay([[1], [2, 0]], context))
            >>> chain.load_state(data, context).position.length
            array([1, 2], dtype=int32)
        """
        return save_state(self, state, context)

    def load_state(self, data: bytes, context: Context | Backend) -> ChainState:
        """The state that :meth:`save_state` wrote.

        Args:
            data: the bytes. Bytes from an unknown source are safe to read: damaged bytes are refused; hostile bytes can
                only take time and memory, or give a state that no text leads to.
            context: the context of the generation, or a backend; arrays go there.

        Raises:
            StateMismatch: if the bytes are damaged, of another version, or of a chain that is not equal to this one;
                names the first differing processor. If the context is one for compiled steps and the state has leaves
                that are no arrays.
        """
        return load_state(self, data, context)

    def replay(self, tokens: Sequence[Sequence[int]], context: Context) -> ChainState:
        """The state after each row accepted the given tokens: the same as having lived through them.

        Args:
            tokens: accepted tokens per row, ragged, prompts not included.
            context: the context of the start.

        Raises:
            NeedsNotMet: if there are tokens, and a processor must see every step: tokens do not tell its state.
        """
        state = self.init_state(context)
        tokens = id_lists(tokens, "tokens", InvalidContext)
        if not any(len(row) for row in tokens):
            return state
        if self.sees_every_step:
            raise NeedsNotMet(
                f"The state of {self._watchful()} cannot be rebuilt from tokens: it depends on the logits, or on the "
                f"probabilities, of every step. Keep the states of all rows that may come back, or leave the processor "
                f"out of the chain."
            )
        blank = context.backend.asarray(np.zeros((self.branches * context.batch, context.vocab_size), np.float32))
        return self.process(blank, state, context.accept([list(row) for row in tokens]))[1]

    def forced_tokens(self, state: ChainState, context: Context) -> list[list[int]] | None:
        """Per row the tokens that must come next, as far as the constraints of the chain know; else None.

        A token that one constraint forces is the only legal token, whatever biases and warpers say. A forced token is
        returned only if no other processor forbids it; processors that might forbid it are run on it.

        Args:
            state: from :meth:`init_state` or :meth:`process`.
            context: with the tokens accepted since.
        """
        if not self._forced:
            return None
        context = self._between_steps(state, context)
        answers = self._answers(self._forced, "forced_tokens", state, context)
        found: list[list[int]] = [max(runs, key=len) for runs in zip(*answers, strict=True)]
        if not any(found):
            return None
        return [self._legal_prefix(row, run, state, context) for row, run in enumerate(found)]

    def text_ends(self, state: ChainState, context: Context) -> list[TextEnd] | None:
        """Where the text of each row ends, from the processors that end texts; None if the chain has no such processor.

        Args:
            state: from :meth:`init_state` or :meth:`process`.
            context: with the tokens accepted since.
        """
        if not self._ends:
            return None
        context = self._between_steps(state, context)
        answers = [*self._answers(self._ends, "text_end", state, context)]
        # A finished end counts before an unfinished one; otherwise the end that holds back more bytes counts.
        return [max(ends) for ends in zip(*answers, strict=True)] if answers else None

    def _answers(self, hooks: _Questions, hook: str, state: ChainState, context: Context) -> Iterator[Any]:
        """The answers of the processors that implement a hook, between two steps; ``None`` is left out."""
        for i, ask in hooks.items():
            try:
                found = ask(state.processors[i], context)
            except Exception as error:
                note(error, self.labels[i], hook, context)
                raise
            if found is not None:
                check_answer(found, hook, self.labels[i], rows.row_count(state))
                yield found

    def _between_steps(self, state: ChainState, context: Context) -> Context:
        self._parts(state, context)
        if self._own_resources:
            context = self.with_resources(context)
        if self._tracked:
            kept = context.with_fields(donate_state=False)
            context = positions.describe(context, positions.advance(state.position, kept))
        return context

    def _legal_prefix(self, row: int, run: list[int], state: ChainState, context: Context) -> list[int]:
        """The part of a forced run that no other processor of the chain forbids."""
        if not run or not self._vetoes:
            return run
        backend = context.backend
        before = [] if context.tokens is None else [t for t in backend.to_numpy(context.tokens[row]).tolist() if t >= 0]
        alone = rows.take(state, [row])
        for n, token in enumerate(run):
            step = context.with_fields(batch=1, donate=False, donate_state=False, pool=None).accept([before + run[:n]])
            if self._tracked:
                step = positions.describe(step, positions.advance(alone.position, step))
            for i, veto in self._vetoes:
                branches = self.links[i].declared("branches")
                # A forced token is the only legal one. Guidance comes before what forbids, so its branches know
                # nothing of that.
                given = np.full((branches, context.vocab_size), NEG_INF if branches == 1 else 0.0, np.float32)
                given[:, token] = 0.0
                logits, _ = veto(backend.asarray(given), alone.processors[i], step)
                if float(logits[0, token]) == NEG_INF:
                    return run[:n]
        return run

    def _check_step(self, context: Context) -> None:
        """Raise if the context contradicts the declared needs of the chain's processors."""
        tokens = context.tokens
        assert tokens is not None
        if not tokens.shape[1]:
            return
        if "chosen_logprob" in self.needs and context.chosen_logprob is None:
            raise NeedsNotMet(
                f"The context tells which tokens were accepted, but not how likely they were, which "
                f"{self._watchful()} needs. Give context.accept(tokens, chosen_logprob=...)."
            )
        if tokens.shape[1] == 1 or context.compiled:
            return
        counts = (context.backend.to_numpy(tokens) >= 0).sum(axis=1)
        if counts.max(initial=0) > 1:
            row = int(counts.argmax())
            raise NeedsNotMet(
                f"Row {row} accepted {counts[row]} tokens since the last step, but {self._watchful()} must see every "
                f"step. Process the logits before each token, or leave the processor out of the chain."
            )

    def _watchful(self) -> str:
        """The processors that tokens alone are not enough for, for messages."""
        return ", ".join(repr(link.label) for link in self.links if link.sees_every_step)

    def _equipped(self, context: Context) -> Context:
        """The context of a start with the chain's own resources, after checking that nothing is lacking."""
        if self._own_resources:
            context = self.with_resources(context)
        self.require(_given_by(context), engine="This context")
        return context

    def with_resources(self, context: Context) -> Context:
        """The context, with the chain's vocabulary and model where the context has none."""
        vocabulary = context.vocabulary if context.vocabulary is not None else self.vocabulary
        model = context.model if context.model is not None else self.model
        if vocabulary is context.vocabulary and model is context.model:
            return context
        return context.with_fields(vocabulary=vocabulary, model=model)


@np.errstate(under="ignore")
def _run_on_numpy(plan: Segment, logits: Array, states: Sequence[Any], context: Context) -> tuple[Array, list[Any]]:
    """Run a plan. Probabilities that a float cannot hold are 0, whatever the caller has NumPy do about such numbers."""
    return plan.run(logits, states, context)


def _returns_fresh(processor: Any) -> bool:
    """Whether logits that are not the very input are an array of our own. A function may return a view."""
    if isinstance(processor, Chain):
        return all(processor._fresh)
    return not isinstance(processor, FunctionProcessor)


def _given_by(context: Context) -> set[str]:
    fields = {"prompt": "prompt", "history": "max_length", "vocabulary": "vocabulary", "model": "model"}
    return {"length", "chosen_logprob", *(need for need, name in fields.items() if getattr(context, name) is not None)}


def _stateless(context: Context) -> tuple[()]:
    return ()
