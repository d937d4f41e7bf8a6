"""Tokens that rows accepted although the chain had forbidden them: found, tolerated, or told of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from logitloom import Chain, ChainState, Context
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import IllegalToken, NoLegalToken
from logitloom.generation.dead_ends import closing_processor, truncations
from logitloom.rows import tree as row_state
from logitloom_contrib.row_tracking.calls import Call, CallMatch
from logitloom_contrib.row_tracking.row_ends import RowEnds

__all__ = ["ForbiddenTokens"]


class ForbiddenTokens:
    """The judge of the tokens that rows accept.

    Args:
        chain: the processors.
        ends: ids at which rows end.
        context: fields of the chain's context that do not come from the engine.
    """

    def __init__(self, chain: Chain, ends: RowEnds, context: dict[str, Any]) -> None:
        self._chain, self._ends = chain, ends
        self._vocabulary = context.get("vocabulary") or chain.vocabulary
        #: Whether a processor may leave a row no token, be it together with what the engine itself forbids.
        closing = [link for link in chain.links if not link.effect.keeps_last]
        self.guarded = bool(closing)
        #: Whether processors of the chain that contradict each other can leave a row no token; a single processor
        #: reports this itself.
        self.may_contradict = len(closing) > 1 or bool(truncations(chain.links))
        told = all(link.is_constraint for link in closing)
        self._told = self.guarded and told and not context.get("compiled")

    def seen_in_logits(self, context: Context) -> bool:
        """Whether forbidden tokens are looked for in the logits returned before, which are kept for this purpose.

        Constraints in host memory report a forbidden token by themselves, when it is fed to them.
        """
        return self.guarded and not (self._told and context.backend.on_host)

    def reject_unlikely(
        self, match: CallMatch, call: Call, tokens: list[list[int]], tolerated: Callable[[], bool], state: ChainState
    ) -> None:
        """Reject rows whose only new token was -inf in the last call's logits, without running the chain on it."""
        generation = call.generation
        if generation.returned is None or len(match.calls) != 1 or match.calls[0] is not generation.calls[-1]:
            return
        # Rows without exactly one new token are looked up as well, but the result is ignored.
        one = [len(taken) == 1 for taken in tokens]
        if not any(one):
            return
        backend, returned = generation.base.backend, generation.returned
        width = returned.shape[1]
        new = np.asarray([taken[0] if single else 0 for taken, single in zip(tokens, one, strict=True)], dtype=np.int64)
        new = new.clip(0, width - 1)
        if match.grown is not None:
            scores = backend.to_numpy(backend.gather(returned, backend.asarray(new[:, None])))[:, 0]
        else:
            # One row of the last call may be continued by several rows, with different tokens.
            found = backend.take_rows(backend.xp.reshape(returned, (-1,)), match.rows * width + new)
            scores = backend.to_numpy(found)
        for row in np.flatnonzero(one & (scores == NEG_INF)).tolist():
            self._reject(call, row, tokens, tolerated, state, None)

    def reject_fed(
        self,
        error: IllegalToken,
        call: Call,
        tokens: list[list[int]],
        tolerated: Callable[[], bool],
        state: ChainState,
    ) -> None:
        """Reject the row of an error that the chain raised, and all other rows with the same error.

        Raises:
            IllegalToken, NoLegalToken: unless it is tolerated.
        """
        if not tokens[error.row]:
            raise error
        # All rows of the error, so that the chain is run once more and not once for each.
        for row in sorted({row for row in error.rows if tokens[row]}):
            self._reject(call, row, tokens, tolerated, state, error)

    def _reject(
        self,
        call: Call,
        row: int,
        tokens: list[list[int]],
        tolerated: Callable[[], bool],
        state: ChainState,
        error: IllegalToken | None,
    ) -> None:
        token = tokens[row][-1]
        if len(tokens[row]) == 1 and token in self._ends.padding and token not in self._ends.eos:
            call.ended[row] = True  # ended by the engine's own criterion, and padded since
        elif tolerated():
            call.dead[row] = True
        else:
            raise self._illegal(call, row, token, state, error)
        tokens[row] = []

    def _illegal(self, call: Call, row: int, token: int, state: ChainState, error: IllegalToken | None) -> Exception:
        ids, vocabulary = call.asked.row(row), self._vocabulary
        taken = ids[len(call.origin[row].prompt) : len(ids) - 1].tolist()
        so_far = f"Its text so far is {vocabulary.decode(taken)!r}." if vocabulary else f"Its tokens so far: {taken}."
        base, labels = call.generation.base, ", ".join(self._chain.labels)
        blank = base.backend.asarray(np.zeros((1, base.vocab_size), dtype=np.float32))
        label = closing_processor(self._chain, blank, row_state.take(state, [row]), base, 0)
        if label is not None:
            return NoLegalToken(
                f"Processor {label!r} left row {row} without any legal token at position {len(ids) - 1}, and the "
                f"engine went on with token {token}. {so_far} Chain: {labels}. Loosen one of its constraints."
            )
        shown = f" ({vocabulary.describe(token)})" if vocabulary else ""
        said = error or f"Row {row} accepted token {token}{shown}, which the chain ({labels}) had forbidden."
        return IllegalToken(
            f"{said} {so_far} Another processor or the engine overrode the chain, or left it no legal token.", row
        )
