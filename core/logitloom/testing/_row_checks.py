"""Checks of a processor's rows: nothing but its own story decides what a row gets."""

from __future__ import annotations

import pickle
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from logitloom.arrays.backend import Backend
from logitloom.chain import Chain
from logitloom.chain.links import Link
from logitloom.errors import StateMismatch
from logitloom.processor import Processor
from logitloom.rows import tree as row_state
from logitloom.testing._subject import STEPS, TOLERANCE, ProcessorSubject
from logitloom.testing.conformance import host, same
from logitloom.testing.stories import accepting, logits_of, siblings, stacked

#: Rows of every batch that is processed; fewer shapes compile fewer times on libraries that compile each.
ROWS = 4
#: The ways to move rows between two steps: another order, copies of the first row, and rows that leave. They are one
#: list, because each choice that Hypothesis makes for an example costs about as much as a step.
MOVES = [
    tuple(order[0] if copied else row for row, copied in zip(order, copies, strict=True))[:stay]
    for stay in (4, 4, 3, 2, 0)
    for order in permutations(range(ROWS))
    for copies in product((False, True), repeat=ROWS)
]


class _Unchanged(Processor):
    """A processor that does nothing."""

    def process(self, logits: Any, state: Any, context: Any) -> Any:
        del context
        return logits, state


class RowChecks(ProcessorSubject):
    """Purity, row independence, rollback, replay, any number of tokens."""

    def test_same_input_gives_same_output(self, backend: Backend, case: str) -> None:
        """Two calls with the same arguments give the same results: nothing is remembered, nothing is drawn.

        Troubleshooting: keep what varies in the state; draw random numbers with ``logitloom.arrays.rng``.
        """
        chain = self.chain(case, backend)
        run = self.run(chain, backend, self.stories(case)[:ROWS])
        for _ in range(STEPS + 1):
            logits, context, state = run.logits(), run.step_context(), run.state
            once, one = chain.process(logits, state, context)
            again, other = chain.process(logits, state, context)
            same(host(backend, again), host(backend, once), "The same call gave other logits the second time")
            self._same_states(backend, other, one, "The same call gave another state the second time")
            run.step()

    def test_interleaved_generations_do_not_meet(self, backend: Backend, case: str) -> None:
        """Two generations that run in turns on the same chain give what each gives alone.

        Troubleshooting: something varies on ``self`` or in a module.
        """
        chain, stories = self.chain(case, backend), self.stories(case)
        parts = stories[:ROWS], stories[-ROWS:]
        together = [self.run(chain, backend, part) for part in parts]
        found = [[host(backend, run.step()) for run in together] for _ in range(STEPS + 1)]
        for which, part in enumerate(parts):
            alone = self.run(self.chain(case, backend), backend, part)
            for step, both in enumerate(found):
                what = f"Step {step} of a generation that ran in turns with another one"
                same(both[which], host(backend, alone.step()), what, TOLERANCE)

    def test_rows_are_independent(self, backend: Backend, case: str) -> None:
        """Rows that are permuted, duplicated, dropped and joined get the logits that each row gets alone.

        Troubleshooting: a result uses the index of a row, other rows (a maximum without ``axis=-1``),
        ``context.batch``, or something that is not in the state.
        """
        chain, stories = self.chain(case, backend), self.stories(case)
        known: dict[int, list[Any]] = {}

        def expected(story: int, age: int) -> Any:
            if story not in known:
                known[story] = self.alone(chain, backend, stories[story])
            return known[story][age]

        @settings(
            max_examples=4 if backend.compiles else 7, derandomize=True, deadline=None, database=None,
            phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(data=st.data())
        def check(data: st.DataObject) -> None:
            self._check_schedule(data, case, chain, backend, expected)

        check()

    def _check_schedule(self, data: st.DataObject, case: str, chain: Chain, backend: Backend, expected: Any) -> None:
        stories = self.stories(case)
        numbers = st.integers(0, len(stories) - 1)
        # Different stories from the first example on: equal rows would hide what they take from each other.
        rows = [(story, 0) for story in data.draw(st.permutations(range(len(stories))), label="stories")[:ROWS]]
        start = self.run(chain, backend, [stories[story] for story, _ in rows])
        context, at = start.context, start.state
        for _ in range(data.draw(st.integers(2, STEPS + 1), label="steps")):
            kept = data.draw(st.sampled_from(MOVES), label="rows that stay, in their new order")
            at, rows = row_state.take(at, kept), [rows[i] for i in kept]
            guests = [data.draw(numbers, label="guest") for _ in range(ROWS - len(rows))]
            if guests:
                # Always as many rows as elsewhere: another number would compile the processor for another shape.
                several = [stories[guest] for guest in (*guests, *range(ROWS))][:ROWS]
                theirs = row_state.take(self.run(chain, backend, several).state, range(len(guests)))
                at, rows = row_state.concat([at, theirs]), [*rows, *((guest, 0) for guest in guests)]
            # Copies of a row may go on differently, as far as there is another story with its beginning.
            choices = [siblings(stories, story, max(age - 1, 0)) for story, age in rows]
            picked = [data.draw(st.sampled_from(each)) if len(each) > 1 else each[0] for each in choices]
            rows = [(story, age) for story, (_, age) in zip(picked, rows, strict=True)]
            blocks = [list(stories[s].block(age - 1)) if age else [] for s, age in rows]
            told = [stories[s].until(age) for s, age in rows]
            logits = stacked(backend, told, self.vocab_size, chain.branches)
            processed, at = chain.process(logits, at, accepting(chain, context, blocks))
            together = host(backend, processed)
            for index, (story, age) in enumerate(rows):
                what = f"Row {index} of a batch whose rows were moved, compared with the same row alone"
                same(together[index], expected(story, age), what, TOLERANCE)
            rows = [(s, age + 1) for s, age in rows]

    def test_rolling_back_equals_replaying(self, backend: Backend, case: str) -> None:
        """Each row goes back to a step of its own and on from there, as if its tokens were replayed.

        A processor that must see every step goes back to states that were kept, and is not replayed.

        Troubleshooting: the state lacks something, or an earlier state was written to.
        """
        chain, stories = self.chain(case, backend), self.stories(case)[:ROWS]
        run = self.run(chain, backend, stories)
        states = [run.state]
        for _ in range(STEPS):
            run.step()
            states.append(run.state)
        expected = [self.alone(chain, backend, story) for story in stories]
        for shift in range(STEPS):
            ages = [(row + shift) % STEPS + 1 for row in range(len(stories))]
            told = [story.until(age) for story, age in zip(stories, ages, strict=True)]
            logits = stacked(backend, told, self.vocab_size, chain.branches)
            blocks = [story.block(age - 1) for story, age in zip(stories, ages, strict=True)]
            context = accepting(chain, run.context, blocks)
            rolled, _ = chain.process(logits, row_state.select(states, ages), context)
            before = [story.until(age - 1).tokens for story, age in zip(stories, ages, strict=True)]
            for row, age in enumerate(ages):
                what = f"Row {row} after going back to step {age}"
                same(host(backend, rolled)[row], expected[row][age], what, TOLERANCE)
            if chain.sees_every_step:
                continue
            replayed, _ = chain.process(logits, chain.replay(before, run.context), context)
            for row, age in enumerate(ages):
                what = f"Row {row} after replaying {age} steps"
                same(host(backend, replayed)[row], expected[row][age], what, TOLERANCE)

    def test_any_number_of_tokens_may_come_at_once(self, backend: Backend, case: str) -> None:
        """Tokens in one call, one by one, ragged and with gaps lead to the same logits; no tokens change nothing.

        Troubleshooting: ``context.tokens`` is ``[rows, n]``, -1 stands for nothing, anywhere in a row.
        """
        chain, stories = self.chain(case, backend), self.stories(case)[:ROWS]
        if chain.sees_every_step:
            pytest.skip("the processor must see the logits before every token")
        run = self.run(chain, backend, stories)
        start, logits, tokens = run.state, run.logits(), [story.tokens for story in stories]
        longest = max(map(len, tokens))
        one_by_one = start
        for n in range(longest):
            step = [row[n : n + 1] for row in tokens]
            _, one_by_one = chain.process(logits, one_by_one, run.context.accept(step))
        gaps = start
        for n in range(0, longest, 2):
            step = [[-1, *row[n : n + 1], -1, *row[n + 1 : n + 2]] for row in tokens]
            _, gaps = chain.process(logits, gaps, run.context.accept(step))
        none: list[list[int]] = [[] for _ in tokens]
        expected, _ = chain.process(logits, one_by_one, run.context.accept(none))
        at_once, _ = chain.process(logits, start, run.context.accept(tokens))
        with_gaps, after = chain.process(logits, gaps, run.context.accept(none))
        nothing, _ = chain.process(logits, after, run.context.accept([[-1, -1] for _ in tokens]))
        for found, what in (
            (at_once, "All tokens in one call"),
            (with_gaps, "Tokens with gaps"),
            (nothing, "A call without tokens"),
        ):
            what = f"{what}, compared with one by one"
            same(host(backend, found), host(backend, expected), what, TOLERANCE)

    def test_sequences_score_as_they_are_decoded(self, backend: Backend, case: str) -> None:
        """``chain.score`` gives the log-probabilities of decoding, step by step.

        Troubleshooting: if the processor has ``states_after``, compare its result with that of ``process`` for no
        token, one token, and so on; if its effect reads no ids, see the check of that.
        """
        chain, stories = self.chain(case, backend), self.stories(case)[:ROWS]
        if chain.branches > 1:
            pytest.skip("sequences are scored with one row of logits each")
        tokens = [story.tokens for story in stories]
        lines = [
            [logits_of(story.until(n), self.vocab_size) for story in stories] for n in range(max(map(len, tokens)))
        ]
        logits = np.stack([np.concatenate(line) for line in lines], axis=1)
        run = self.run(chain, backend, stories)
        found = host(backend, chain.score(backend.asarray(logits), tokens, run.context))
        state, context = run.state, run.context
        for n in range(logits.shape[1]):
            out, state = chain.process(backend.asarray(np.ascontiguousarray(logits[:, n])), state, context)
            now = [row[n : n + 1] for row in tokens]
            expected = host(backend, backend.log_softmax(out))
            told = [[float(line[t]) for t in row] for line, row in zip(expected, now, strict=True)]
            for row, one in enumerate(told):
                same(found[row, n], one[0] if one else 0.0, f"The score of token {n} of row {row}", TOLERANCE)
            context = run.context.accept(now, chosen_logprob=told if "chosen_logprob" in chain.needs else None)

    def test_states_mean_the_same_in_an_equal_chain(self, backend: Backend, case: str) -> None:
        """A state that was saved or pickled goes on in an equal chain as in its own, and in no other chain.

        Troubleshooting: the state holds a number of something that this processor object has counted (an index of a
        table that is filled while texts are read), or an object that only this process knows. Let the state be the
        value itself: a number that does not depend on what was visited, a tuple, or a class with ``state_parts`` and
        ``from_state_parts`` (see :mod:`.rows.tree_format`). An option that is an object needs a ``fingerprint``.
        """
        chain, other, stories = self.chain(case, backend), self.chain(case, backend), self.stories(case)[:ROWS]
        # The other chain has visited other states than this chain.
        self.alone(other, backend, self.stories(case)[-1])
        run = self.run(chain, backend, stories)
        for age in range(STEPS):
            logits, context = run.logits(), run.step_context()
            data = chain.save_state(run.state)
            pickled = pickle.dumps(run.state) if backend.on_host else None
            wanted, _ = chain.process(logits, run.state, context)
            states = {"saved": other.load_state(data, context)}
            if pickled is not None:
                states["pickled"] = pickle.loads(pickled)
            for how, state in states.items():
                found, _ = other.process(logits, state, context)
                what = f"Step {age} in an equal chain, from a state that was {how}"
                same(host(backend, found), host(backend, wanted), what, TOLERANCE)
            run.step()
        links = (*chain.links, Link("other", None, None, processor=_Unchanged()))
        longer = Chain(links, vocabulary=chain.vocabulary, model=chain.model)
        with pytest.raises(StateMismatch, match="another chain"):
            longer.load_state(data, run.context)

    def _same_states(self, backend: Backend, state: Any, wanted: Any, what: str) -> None:
        for (path, a), (_, b) in zip(row_state.leaves(state), row_state.leaves(wanted), strict=True):
            if hasattr(a, "dtype"):
                same(host(backend, a), host(backend, b), f"{what} ({path})")
