"""Log-probabilities of given sequences under a chain, over all positions at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from logitloom.backend import Array
from logitloom.context import Context
from logitloom.errors import IllegalToken
from logitloom.renumbering import Renumbering
from logitloom.score_arguments import Tokens, check_arguments, checked
from logitloom.score_parts import Part, Run, Scores, among_survivors, where_illegal
from logitloom.score_program import ScoreProgram
from logitloom.survivors import survivors_of

__all__ = ["Parts", "check_arguments", "score"]

#: Most positions of a sequence that are processed at a time, so that their logits stay in the cache (``_MOST_BYTES``);
#: and the least, because with fewer the calls cost more than the passes over memory.
_MOST_POSITIONS: Final = 256
_LEAST_POSITIONS: Final = 16
_MOST_BYTES: Final = 1 << 23


class Parts(NamedTuple):
    """A chain in parts, the last of which needs to see only what is left of a row.

    Attributes:
        whole: all of the first parts, as one.
        first: those that see the whole vocabulary, of which some change only logits of tokens that were seen.
        rest: sees survivors, in order of their ids.
        highest: the survivors are the so many highest logits, with those that tie; None: all that are not -inf.
        program: the chain, or its last processors, as a compiled loop over positions; None if it has none.
    """

    whole: Part
    first: tuple[Part, ...]
    rest: Part | None
    highest: int | None
    program: ScoreProgram | None


def score(parts: Parts, logits: Array, tokens: Sequence[Sequence[int]] | Tokens, context: Context) -> Array:
    """The log-probabilities with which a sampler chooses the tokens from what the chain makes of the logits.

    A position is a row of its own, so whatever processors do, they do it for many positions at once, and it is what
    they do in decoding. Processors that go by the survivors of a truncation get those alone, and those that change only
    logits of tokens that a sequence has had get the columns of these tokens.

    Args:
        parts: the processors.
        logits: ``[batch, time, vocab]``: those that each token was chosen from.
        tokens: per sequence its tokens, ragged, or ``[batch, time]`` with -1 behind the end.
        context: of the start.

    Returns:
        ``[batch, time] float32`` (float64 for such logits), 0 behind the end of a sequence.

    Raises:
        InvalidContext: if shapes do not fit together.
        IllegalToken: a token is one that a constraint forbids; names sequence and position.
            (Constraints on devices read nothing back to find it; there it scores -inf.)
    """
    taken = checked(logits, tokens, context)
    context = context.with_fields(donate=False, donate_state=False, pool=None)
    if not logits.shape[1]:
        return context.backend.asarray(np.zeros((len(taken), 0), dtype=np.float32))
    if parts.whole.chain.sees_every_step:
        return _one_by_one(parts.whole.chain, logits, taken, context)
    xp, (batch, time, vocab) = context.backend.xp, logits.shape
    if parts.program is not None:
        host = parts.program.run(logits, taken, context)
        if host is not None:
            return context.backend.asarray(host)
    fitting = max(_MOST_BYTES // max(4 * batch * vocab, 1), _LEAST_POSITIONS)
    width = min(fitting, _MOST_POSITIONS, time)
    first, rest = _runs(parts, taken, context, vocab)
    writes = any(run.part.steps for run in first) or (rest is not None and any(rest.part.by_ids))
    found: list[Array] = []
    memory: Array | None = None
    for start in range(0, time, width):
        end = min(start + width, time)
        try:
            for run in (*first, *([rest] if rest is not None else [])):
                # The last token is no position's past in this round. It is in the next.
                run.go_on(start, end, end < time)
            lines = xp.permute_dims(logits[:, start:end, :], (1, 0, 2))
            own = context.backend.copied(lines, memory) if writes else None
            memory = own if memory is None else memory
            here = taken[:, start:end].T
            given = lines if own is None else own
            found.append(xp.reshape(_chosen(parts, first, rest, given, own is not None, here), here.shape))
        except IllegalToken as error:
            raise where_illegal(error, start, batch) from error
    logprob = xp.permute_dims(xp.concat(found, axis=0), (1, 0))
    return xp.where(context.backend.asarray(taken) >= 0, logprob, xp.zeros_like(logprob))


def _runs(parts: Parts, taken: Tokens, context: Context, vocab: int) -> tuple[list[Run], Run | None]:
    """The parts on their way: those that see whole rows, and the one that sees survivors."""
    numbered = None
    if any(part.changes_only_seen for part in parts.first):
        numbered = Renumbering.of(taken, context, vocab)
    chosen = (parts.whole,) if numbered is None else parts.first
    first = [Run(part, taken, context, numbered if part.changes_only_seen else None) for part in chosen]
    return first, None if parts.rest is None else Run(parts.rest, taken, context)


def _one_by_one(chain: Scores, logits: Array, taken: Tokens, context: Context) -> Array:
    """The scores of a chain whose states see what came before along with the logits, as in decoding."""
    backend, state, given = context.backend, chain.init_state(context), context
    found: list[Array] = []
    for position in range(logits.shape[1]):
        here = taken[:, position : position + 1]
        if position:
            before = np.where(here >= 0, taken[:, position - 1 : position], -1)
            told = backend.xp.where(backend.asarray(before) >= 0, found[-1], backend.xp.zeros_like(found[-1]))
            given = context.accept(before, chosen_logprob=told)
        processed, state = chain.process(logits[:, position, :], state, given)
        logprob = backend.log_probability(processed, backend.asarray(np.maximum(here, 0)))
        found.append(backend.xp.where(backend.asarray(here) >= 0, logprob, backend.xp.zeros_like(logprob)))
    return backend.xp.concat(found, axis=1)


def _chosen(parts: Parts, first: list[Run], rest: Run | None, lines: Array, donate: bool, here: Tokens) -> Array:
    """The log-probabilities of the tokens at some positions, ``[positions * batch, 1]``.

    Args:
        parts: the processors.
        first: the parts that see whole rows.
        rest: the part that sees survivors.
        lines: ``[positions, batch, vocab]``, the logits.
        donate: whether they may be overwritten.
        here: ``[positions, batch]``, the tokens.
    """
    backend = first[0].backend
    chosen = np.maximum(here, 0).reshape(-1, 1)
    for run in first:
        lines, donate = run.process(lines, donate)
    flat = backend.xp.reshape(lines, (-1, lines.shape[-1]))
    found = None if rest is None else survivors_of(backend, flat, parts.highest)
    if rest is None or found is None:
        if rest is not None:
            flat, _ = rest.process_rows(flat, donate)
        return backend.log_probability(flat, backend.asarray(chosen))
    left = rest.process_survivors(found, flat, donate)
    return among_survivors(backend, backend.to_numpy(found.ids), left, chosen)
