"""A chain that is scored as a compiled loop over the positions of sequences in host memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import state as rows
from logitloom.backend import Array
from logitloom.context import Context
from logitloom.link import Link
from logitloom.masks.kernels import KernelFailed, MaskKernels, host_kernels
from logitloom.renumbering import Renumbering
from logitloom.row_operations import ADD_LISTED, DIVIDE, KEEP_HIGHEST, RowOperation, as_arrays
from logitloom.score_arguments import Tokens
from logitloom.score_parts import Passage, Run, ScoredChain, among_survivors, changes_only_seen
from logitloom.survivors import Survivors, may_see_survivors

__all__ = ["ScoreProgram"]

#: Room for survivors: so many more than twice those of a truncation to a number of tokens, or so many.
_MORE: Final = 64
_MOST_SURVIVORS: Final = 4096

_Operations = tuple[NDArray[np.int64], NDArray[np.float64]]


class ScoreProgram(NamedTuple):
    """A chain in parts. Each is given what the one before made of the logits; most are empty in most chains.

    Attributes:
        first: processors that see whole rows.
        before: operations with tables.
        seen: processors that change only logits of tokens that were seen, and get the columns of these.
        behind: operations with tables.
        plain: operations without tables.
        leading, operations: those before ``seen``, and the others, as arrays.
        listed, added: tokens, and what is added to their logits between operations with and without tables.
        room: how many survivors a row may have, if there is a rest.
        rest: processors that see survivors.
    """

    first: tuple[ScoredChain, ...]
    before: ScoredChain
    seen: ScoredChain
    behind: ScoredChain
    plain: ScoredChain
    leading: _Operations
    operations: _Operations
    listed: NDArray[np.int64]
    added: NDArray[np.float32]
    room: int
    rest: ScoredChain

    @classmethod
    def of(cls, chain: ScoredChain, grouped: Callable[[ScoredChain], tuple[ScoredChain, ...]]) -> ScoreProgram | None:
        """The program of a chain; None if the loop would do nothing for it.

        Args:
            chain: the chain.
            grouped: divides a chain into neighbours that change only logits of tokens that were seen, and others.
        """
        links = chain.links
        operations: list[RowOperation | None] = [link.declared("row_operation") for link in links]
        if (span := _span(links, operations)) is None:
            return None
        start, end = span
        tabled = [operation is not None and operation.has_table for operation in operations]
        seen = start
        while seen and tabled[seen - 1]:
            seen -= 1
        first = seen
        while first and links[first - 1].declared("changes_only_seen"):
            first -= 1
        lead = first
        while lead < seen and tabled[lead]:
            lead += 1
        known = _known(operations[start:end])
        pairs = [pair for operation in known for pair in operation.listed]
        plain = [operation for operation in known if operation.kind != ADD_LISTED]
        highest = next((operation for operation in plain if operation.kind != DIVIDE), None)
        room = _MOST_SURVIVORS
        if highest is not None and highest.kind == KEEP_HIGHEST:
            room = 2 * int(highest.value) + _MORE
        borders = (first, lead, seen, start, end, len(links))
        before, changed, behind, last, rest = (chain.part(links[a:b]) for a, b in itertools.pairwise(borders))
        return cls(
            grouped(chain.part(links[:first])),
            before,
            changed,
            behind,
            last,
            as_arrays(_known(operations[first:lead])),
            as_arrays([*_known(operations[seen:start]), *plain]),
            _read_only(np.array([token for token, _ in pairs], dtype=np.int64)),
            _read_only(np.array([number for _, number in pairs], dtype=np.float32)),
            room if rest.links else 0,
            rest,
        )

    def passage(self, logits: Array, tokens: Tokens, context: Context) -> Passage | None:
        """The passage of the program over sequences; None where the loop cannot work on the logits.

        Args:
            logits: ``[batch, time, vocab]``.
            tokens: ``[batch, time]``, -1 behind the end.
            context: of the start.
        """
        kernels = host_kernels(math.prod(logits.shape))
        self.plain.init_state(context)  # which says what does not fit, such as listed tokens beyond the logits
        if kernels is None or context.backend.address(logits, "float32") is None:
            return None
        if tokens.max(initial=-1) >= logits.shape[2]:
            return None
        goes_by_columns = bool(self.seen.links or self.behind.links)
        numbered = Renumbering.of(tokens, context, logits.shape[2], 0) if goes_by_columns else None
        if goes_by_columns and numbered is None:
            return None
        loop = _Loop(self, kernels, logits, tokens, context, numbered)
        goes_over_rows = any(chain.links for chain in self.first) or (loop.rest is not None and any(loop.rest.by_ids))
        behind = [run for run in (loop.seen, loop.rest) if run is not None]
        return Passage(loop.first, behind, loop.scored, goes_over_rows, writes=bool(self.first))


class _Loop:
    """The compiled loop over the positions of some sequences.

    Args:
        program: the program.
        kernels: with the compiled loops.
        logits, tokens, context: as for :meth:`ScoreProgram.passage`.
        numbered: the numbers of the sequences' own tokens, where the program goes by their columns.
    """

    def __init__(
        self,
        program: ScoreProgram,
        kernels: MaskKernels,
        logits: Array,
        tokens: Tokens,
        context: Context,
        numbered: Renumbering | None,
    ) -> None:
        self._program, self._kernels, self._logits, self._tokens = program, kernels, logits, tokens
        self._backend = context.backend
        #: Memory for rows that survivors are spread in.
        self._wide: Array | None = None
        self.first = [
            Run(part, tokens, context, numbered if changes_only_seen(part) else None) for part in program.first
        ]
        self.seen = Run(program.seen, tokens, context, numbered) if program.seen.links else None
        self.rest = Run(program.rest, tokens, context) if program.rest.links else None
        batch, time = tokens.shape
        width = 0 if numbered is None else numbered.width
        ids, numbers = np.full((batch, width), -1, dtype=np.int64), np.full((time, batch), -1, dtype=np.int32)
        if numbered is not None:
            for row, known in enumerate(numbered.ids):
                ids[row, : len(known)] = known
            numbers[1:] = numbered.tokens[:, :-1].T
        self._ids, self._numbers = _read_only(ids), _read_only(numbers)
        self._before = _tables(program.before, numbered, batch, width)
        self._behind = _tables(program.behind, numbered, batch, width)

    def scored(self, given: Array, donate: bool, start: int, end: int) -> Array | None:
        """See :class:`Passage`."""
        try:
            return self._scored(given, start, end)
        except KernelFailed:
            return None

    def _scored(self, given: Array, start: int, end: int) -> Array | None:
        program, backend, count = self._program, self._backend, (end - start) * len(self._tokens)
        batch, time, vocab = self._logits.shape
        row = 4 * vocab
        if self.first:
            address, apart = backend.address(given, "float32"), (batch * row, row)
        else:  # the logits themselves, which lie otherwise
            address, apart = backend.address(self._logits, "float32"), (row, time * row)
        if address is None:
            return None
        lines = address + (0 if self.first else start * row), end - start, batch, vocab, *apart
        numbers = self._numbers[start:end]
        own: NDArray[np.float32] = np.empty((0, self._ids.shape[1]), dtype=np.float32)
        if self.seen is not None:
            own = np.empty((count, self._ids.shape[1]), dtype=np.float32)
            self._kernels.own_logits(lines, self._ids, numbers, *program.leading, self._before, own)
            columns, _ = self.seen.process_rows(backend.asarray(own), True)
            own = np.ascontiguousarray(backend.to_numpy(columns), dtype=np.float32)
        chosen = np.maximum(self._tokens[:, start:end].T, 0).astype(np.int64).reshape(-1)
        logprob = np.empty(count, dtype=np.float32)
        ids, left = (np.empty((count, min(program.room, vocab)), kind) for kind in (np.int64, np.float32))
        most = self._kernels.score(
            lines, self._ids, numbers, *program.operations, self._behind, _read_only(own), program.listed,
            program.added, _read_only(chosen), logprob, ids, left,
        )  # fmt: skip
        if most < 0:
            return None
        if self.rest is None:
            return backend.asarray(logprob)
        if any(self.rest.by_ids) and self._wide is None:
            self._wide = backend.xp.empty((count, vocab), dtype=self._logits.dtype)
        wide = None if self._wide is None else self._wide[:count]
        found = Survivors(backend.asarray(ids[:, :most]), backend.asarray(left[:, :most]))
        after = self.rest.process_survivors(found, wide, True)
        return among_survivors(backend, ids[:, :most], after, chosen[:, None])


def _known(operations: Sequence[RowOperation | None]) -> list[RowOperation]:
    return [operation for operation in operations if operation is not None]


def _span(links: Sequence[Link], operations: Sequence[RowOperation | None]) -> tuple[int, int] | None:
    """Where the operations without tables that the loop goes by begin and end; None if there is nothing to do for it.

    They end the chain, or there is a truncation among them, and those behind see survivors.
    """
    least, start = may_see_survivors(links), 0
    while start < len(links):
        kinds: list[int] = []
        for operation in operations[start:]:
            # Numbers are added before all else.
            if operation is None or operation.has_table:
                break
            if operation.kind == ADD_LISTED and any(kind != ADD_LISTED for kind in kinds):
                break
            kinds.append(operation.kind)
        end = start + len(kinds)
        truncates = any(kind not in (ADD_LISTED, DIVIDE) for kind in kinds)
        if kinds and (end == len(links) or (truncates and end >= least)):
            return start, end
        start = max(end, start + 1)
    return (start, start) if links and links[-1].declared("changes_only_seen") else None


def _tables(chain: ScoredChain, numbered: Renumbering | None, batch: int, width: int) -> NDArray[np.float32]:
    """The tables of operations at the start, ``[operations, batch, width]``: how often each token occurred."""
    tables = np.zeros((len(chain.links), batch, width), dtype=np.float32)
    if numbered is not None:
        states = chain.init_state(numbered.context).processors
        for table, state in zip(tables, states, strict=True):
            leaf = next(leaf for _, leaf in rows.leaves(state))
            table[:] = numbered.context.backend.to_numpy(leaf)
    return tables


def _read_only(x: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to: kernels are compiled for such arrays."""
    x = x.view()
    x.flags.writeable = False
    return x
