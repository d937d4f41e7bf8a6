"""Log-probabilities of given sequences under a chain, over all positions at once."""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

import numpy as np

from logitloom.backend import Array
from logitloom.context import Context
from logitloom.errors import IllegalToken
from logitloom.renumbering import Renumbering
from logitloom.score_arguments import Tokens
from logitloom.score_parts import Passage, Run, ScoredChain, among_survivors, changes_only_seen
from logitloom.score_program import ScoreProgram
from logitloom.survivors import split, survivors_of

__all__ = ["Parts", "score"]

#: Most positions of a sequence that are processed at a time, so that their logits stay in the cache (``_MOST_BYTES``);
#: and the least, because with fewer the calls cost more than the passes over memory.
_MOST_POSITIONS: Final = 256
_LEAST_POSITIONS: Final = 16
_MOST_BYTES: Final = 1 << 23


class Parts(NamedTuple):
    """A chain in parts, the last of which needs to see only what is left of a row.

    Attributes:
        chain: all of it.
        first: the processors that see the whole vocabulary.
        groups: the same, as neighbours that change only logits of tokens that were seen, and the others between them.
        rest: sees survivors, in order of their ids.
        highest: the survivors are the so many highest logits, with those that tie; None: all that are not -inf.
        program: the chain, or its last processors, as a compiled loop over positions; None if it has none.
    """

    chain: ScoredChain
    first: ScoredChain
    groups: tuple[ScoredChain, ...]
    rest: ScoredChain | None
    highest: int | None
    program: ScoreProgram | None

    @classmethod
    def of(cls, chain: ScoredChain) -> Parts:
        """Those of a chain."""
        count, highest = split(chain.links, ids_as_well=True)
        first, rest = chain.part(chain.links[:count]), chain.links[count:]
        return cls(
            chain, first, _grouped(first), chain.part(rest) if rest else None, highest, ScoreProgram.of(chain, _grouped)
        )


def _grouped(chain: ScoredChain) -> tuple[ScoredChain, ...]:
    groups = itertools.groupby(chain.links, lambda link: link.declared("changes_only_seen"))
    return tuple(chain.part(list(group)) for _, group in groups)


def score(parts: Parts, logits: Array, taken: Tokens, context: Context) -> Array:
    """See :meth:`logitloom.Chain.score`, which checks the arguments.

    A position is a row of its own, so whatever processors do, they do it for many positions at once, and it is what
    they do in decoding. Processors that go by the survivors of a truncation get those alone, and those that change only
    logits of tokens that a sequence has had get the columns of these tokens.
    """
    context = context.with_fields(donate=False, donate_state=False, pool=None)
    backend, xp = context.backend, context.backend.xp
    if not taken.size:
        return backend.asarray(np.zeros(taken.shape, dtype=np.float32))
    if parts.chain.sees_every_step:
        return _one_by_one(parts.chain, logits, taken, context)
    passage = None if parts.program is None else parts.program.passage(logits, taken, context)
    logprob = None if passage is None else _passed(passage, logits, taken, context)
    if logprob is None:
        logprob = _passed(_uncompiled(parts, taken, context, logits.shape[2]), logits, taken, context)
        assert logprob is not None
    return xp.where(backend.asarray(taken) >= 0, logprob, xp.zeros_like(logprob))


def _passed(passage: Passage, logits: Array, taken: Tokens, context: Context) -> Array | None:
    """The log-probabilities of all tokens, ``[batch, time]``; None where the passage gives up."""
    backend, xp, (batch, time, vocab) = context.backend, context.backend.xp, logits.shape
    runs = (*passage.first, *passage.behind)
    width = min(time, _MOST_POSITIONS) if runs else time
    if passage.goes_over_rows:
        width = min(width, max(_MOST_BYTES // (4 * batch * vocab), _LEAST_POSITIONS))
    found: list[Array] = []
    memory: Array | None = None
    for start in range(0, time, width):
        end = min(start + width, time)
        try:
            for run in runs:
                # The last token is no position's past in this round. It is in the next.
                run.go_on(start, end, end < time)
            lines = xp.permute_dims(logits[:, start:end, :], (1, 0, 2))
            own = backend.copied(lines, memory) if passage.writes else None
            memory = own if memory is None else memory
            lines, donate = (lines, False) if own is None else (own, True)
            for run in passage.first:
                lines, donate = run.process(lines, donate)
            logprob = passage.scored(lines, donate, start, end)
        except IllegalToken as error:
            position, row = divmod(error.row, batch)
            raise IllegalToken(f"Sequence {row}, before its position {start + position}: {error}", row=row) from error
        if logprob is None:
            return None
        found.append(xp.reshape(logprob, (end - start, batch)))
    return xp.permute_dims(xp.concat(found, axis=0), (1, 0))


def _uncompiled(parts: Parts, taken: Tokens, context: Context, vocab: int) -> Passage:
    """The passage of the processors themselves."""
    backend, numbered = context.backend, None
    if any(map(changes_only_seen, parts.groups)):
        numbered = Renumbering.of(taken, context, vocab)
    chosen = (parts.first,) if numbered is None else parts.groups
    first = [Run(chain, taken, context, numbered if changes_only_seen(chain) else None) for chain in chosen]
    rest = None if parts.rest is None else Run(parts.rest, taken, context)

    def scored(lines: Array, donate: bool, start: int, end: int) -> Array:
        chosen = np.maximum(taken[:, start:end].T, 0).reshape(-1, 1)
        flat = backend.xp.reshape(lines, (-1, vocab))
        found = None if rest is None else survivors_of(backend, flat, parts.highest)
        if rest is None or found is None:
            if rest is not None:
                flat, _ = rest.process_rows(flat, donate)
            return backend.log_probability(flat, backend.asarray(chosen))
        left = rest.process_survivors(found, flat, donate)
        return among_survivors(backend, backend.to_numpy(found.ids), left, chosen)

    behind = [] if rest is None else [rest]
    writes = len(parts.first.links) > 0 or (rest is not None and any(rest.by_ids))
    return Passage(first, behind, scored, goes_over_rows=True, writes=writes)


def _one_by_one(chain: ScoredChain, logits: Array, taken: Tokens, context: Context) -> Array:
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
