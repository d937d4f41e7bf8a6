"""The suite for engine adapters: whatever an engine does with its rows, each row gets the logits that it gets alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from logitloom import processors
from logitloom.arrays.backend import Array
from logitloom.chain import Chain
from logitloom.context import Context
from logitloom.effect import BIAS
from logitloom.processor import Processor
from logitloom.testing.conformance import Conformance, same

__all__ = ["Call", "EngineConformance", "Follow"]

#: One call of an engine: ids of each row (prompt first) and logits ``[rows, vocab]``; gives processed logits.
Call = Callable[[Sequence[Sequence[int]], NDArray[np.float32]], NDArray[np.float32]]

_VOCAB = 16


@dataclass(frozen=True)
class Follow(Processor):
    """Add numbers that depend on every token a row accepted, and on their order."""

    stage = "penalty"
    effect = BIAS

    def init_state(self, context: Context) -> Array:
        """A rolling hash of each row, ``[rows] int32``."""
        return context.backend.asarray(np.ones(context.batch, dtype=np.int32))

    def process(self, logits: Array, state: Array, context: Context) -> tuple[Array, Array]:
        """One step of the hash per token."""
        backend, xp = context.backend, context.backend.xp
        if context.tokens is not None:
            for n in range(context.tokens.shape[1]):
                token = context.tokens[:, n]
                state = xp.where(token >= 0, (state * 31 + token + 1) % 9973, state)
        spread = (state[:, None] * (backend.arange(logits.shape[-1])[None, :] + 3)) % 101
        return backend.add(logits, backend.cast(spread, "float32") * 0.01), state


class EngineConformance(Conformance):
    """Tests of an engine adapter: the identity of rows.

    Attributes:
        engine: the name of the plug-in.
        rows: most rows of a call.
        moves: what the engine does with rows between calls: of ``reorder``, ``leave``, ``join``, ``drafts``.

    Override ``open``.
    """

    kind = "engines"
    _named_by = "engine"

    engine: ClassVar[str] = ""
    rows: ClassVar[int] = 4
    moves: ClassVar[Collection[str]] = ("reorder", "leave", "join", "drafts")

    def open(self, chain: Chain) -> Call:
        """The adapter for a chain, as a function of the ids of all rows, prompts included, and logits on the host."""
        raise NotImplementedError(f"{type(self).__name__} must define open(chain).")

    def _start(self) -> tuple[Callable[[list[list[int]]], None], list[list[int]], Any]:
        """A function that makes one call and compares its result, prompts for the rows, and a random generator."""
        call = self.open(processors.load(Follow(), debug=False))
        dice = np.random.default_rng(0)
        prompts = [[1 + row, 2, *range(3, 3 + row)] for row in range(self.rows)]
        if self.rows > 1:
            width = max(map(len, prompts))
            prompts = [[9] * (width - len(prompt)) + prompt for prompt in prompts]
        origin = {tuple(prompt): len(prompt) for prompt in prompts}

        def compare(rows: list[list[int]]) -> None:
            logits = dice.normal(size=(len(rows), _VOCAB)).astype(np.float32)
            found = call([list(row) for row in rows], logits.copy())
            for index, row in enumerate(rows):
                begun = next(n for prompt, n in origin.items() if tuple(row[:n]) == prompt)
                expected = self._alone(row[:begun], row[begun:], logits[index : index + 1])
                same(found[index], expected, f"Row {index} with the ids {row}, compared with it alone", 1e-5)

        return compare, prompts, dice

    def _alone(self, prompt: list[int], tokens: list[int], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        chain = processors.load(Follow(), debug=False)
        context = Context.start(logits, prompt=[prompt])
        processed, _ = chain.process(logits, chain.replay([tokens], context), context)
        alone: NDArray[np.float32] = np.asarray(processed)[0]
        return alone

    def _grown(self, rows: list[list[int]], dice: Any) -> list[list[int]]:
        return [[*row, int(dice.integers(0, 8))] for row in rows]

    def test_rows_that_grow_keep_their_states(self) -> None:
        """Plain decoding, one token per row and call; the prompt is not among the accepted tokens."""
        compare, rows, dice = self._start()
        for _ in range(5):
            compare(rows)
            rows = self._grown(rows, dice)

    def test_reordered_rows_keep_their_states(self) -> None:
        """Beam search: rows are reordered and duplicated, each with a new token."""
        self._require("reorder")
        compare, rows, dice = self._start()
        compare(rows)
        for _ in range(4):
            rows = self._grown([rows[i] for i in dice.integers(0, len(rows), len(rows))], dice)
            compare(rows)

    def test_rows_that_leave_do_not_disturb_the_others(self) -> None:
        """Rows end and are gone from the batch."""
        self._require("leave")
        compare, rows, dice = self._start()
        compare(rows)
        while len(rows) > 1:
            rows = self._grown(rows[1:] if len(rows) % 2 else rows[:-1], dice)
            compare(rows)

    def test_rows_that_join_begin_anew(self) -> None:
        """Continuous batching: new rows join rows that have accepted tokens already."""
        self._require("join")
        compare, prompts, dice = self._start()
        rows: list[list[int]] = []
        for prompt in prompts:
            rows = [*self._grown(rows, dice), prompt]
            compare(rows)

    def test_rejected_drafts_are_forgotten(self) -> None:
        """Speculation: an engine asks about longer rows, and then again about shorter ones."""
        self._require("drafts")
        compare, rows, dice = self._start()
        rows = rows[:1]
        compare(rows)
        for _ in range(3):
            ahead = rows
            for _ in range(3):
                ahead = self._grown(ahead, dice)
                compare(ahead)
            rows = self._grown(rows, dice)
            compare(rows)

    def test_two_generations_do_not_meet(self) -> None:
        """A second generation on the same adapter begins with a state of its own."""
        compare, rows, dice = self._start()
        for _ in range(2):
            grown = rows
            for _ in range(3):
                compare(grown)
                grown = self._grown(grown, dice)

    def _require(self, move: str) -> None:
        if move not in self.moves:
            pytest.skip(f"the engine never does this: {move}")
