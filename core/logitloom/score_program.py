"""A chain that is scored as a compiled loop over the positions of sequences in host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import state as rows
from logitloom.backend import Array
from logitloom.context import Context
from logitloom.errors import IllegalToken
from logitloom.link import Link
from logitloom.masks.kernels import KernelFailed, MaskKernels, host_kernels
from logitloom.renumbering import Renumbering
from logitloom.row_operations import ADD_LISTED, DIVIDE, KEEP_HIGHEST, RowOperation
from logitloom.score_arguments import Tokens
from logitloom.score_parts import Part, Run, among_survivors, where_illegal
from logitloom.survivors import Survivors, may_see_survivors

__all__ = ["ScoreProgram"]

#: Most positions whose rows are copied or shown to processors at a time, and most bytes of whole rows.
_MOST_POSITIONS: Final = 256
_MOST_BYTES: Final = 1 << 23
#: Room for survivors: so many more than twice those of a truncation to a number of tokens, or so many.
_MORE: Final = 64
_MOST_SURVIVORS: Final = 4096


class _Operations(NamedTuple):
    """Operations that the loop goes by.

    Attributes:
        kinds, operands: read-only.
    """

    kinds: NDArray[np.int64]
    operands: NDArray[np.float64]

    @classmethod
    def of(cls, operations: Sequence[RowOperation]) -> _Operations:
        """Those of some links."""
        kinds = np.array([operation.kind for operation in operations], dtype=np.int64)
        return cls(_read_only(kinds), _read_only(np.array([float(one.value) for one in operations])))


class ScoreProgram(NamedTuple):
    """A chain in parts. Each is given what the one before made of the logits; most are empty in most chains.

    Attributes:
        first: processors that see whole rows.
        seen: processors that change only logits of tokens that were seen, and get the columns of these.
        before: the operations with tables before them, as a part, and as operations.
        behind: those behind them.
        plain: the operations without tables.
        operations: both of these as operations.
        listed, added: tokens, and what is added to their logits between operations with and without tables.
        room: how many survivors a row may have, if there is a rest.
        rest: processors that see survivors.
    """

    first: tuple[Part, ...]
    seen: Part | None
    before: tuple[Part, _Operations]
    behind: Part
    plain: Part
    operations: _Operations
    listed: NDArray[np.int64]
    added: NDArray[np.float32]
    room: int
    rest: Part | None

    @classmethod
    def of(
        cls,
        links: Sequence[Link],
        part: Callable[[Sequence[Link]], Part],
        grouped: Callable[[Sequence[Link]], tuple[Part, ...]],
    ) -> ScoreProgram | None:
        """The program of a chain; None if the loop would do nothing for it.

        Args:
            links: of the chain.
            part: makes a part of neighbouring links.
            grouped: makes parts of them, each of which changes only logits of tokens that were seen, or does not.
        """
        operations: list[RowOperation | None] = [link.declared("row_operation") for link in links]
        if (span := _span(links, operations)) is None:
            return None
        start, end = span
        seen = start
        while seen and _with_table(operations[seen - 1]):
            seen -= 1
        first = seen
        while first and links[first - 1].declared("changes_only_seen"):
            first -= 1
        lead = first
        while lead < seen and _with_table(operations[lead]):
            lead += 1
        known = [operation for operation in operations[start:end] if operation is not None]
        pairs = [pair for operation in known for pair in operation.listed]
        plain = [operation for operation in known if operation.kind != ADD_LISTED]
        tables = [operation for operation in operations[seen:start] if operation is not None]
        leading = [operation for operation in operations[first:lead] if operation is not None]
        highest = next((operation for operation in plain if operation.kind != DIVIDE), None)
        room = _MOST_SURVIVORS
        if highest is not None and highest.kind == KEEP_HIGHEST:
            room = 2 * int(highest.value) + _MORE
        return cls(
            grouped(links[:first]),
            part(links[lead:seen]) if lead < seen else None,
            (part(links[first:lead]), _Operations.of(leading)),
            part(links[seen:start]),
            part(links[start:end]),
            _Operations.of([*tables, *plain]),
            _read_only(np.array([token for token, _ in pairs], dtype=np.int64)),
            _read_only(np.array([number for _, number in pairs], dtype=np.float32)),
            room if end < len(links) else 0,
            part(links[end:]) if end < len(links) else None,
        )

    def run(self, logits: Array, tokens: Tokens, context: Context) -> NDArray[np.float32] | None:
        """The log-probabilities of the tokens, in host memory; None where the loop cannot work on the logits.

        Args:
            logits: ``[batch, time, vocab]``.
            tokens: ``[batch, time]``, -1 behind the end.
            context: of the start.

        Raises:
            IllegalToken: as for :func:`logitloom.scoring.score`.
        """
        kernels = host_kernels()
        self.plain.chain.init_state(context)  # which says what does not fit, such as listed tokens beyond the logits
        if kernels is None or context.backend.address(logits, "float32") is None:
            return None
        if tokens.max(initial=-1) >= logits.shape[2]:
            return None
        goes_by_columns = self.seen is not None or bool(self.behind.steps)
        numbered = Renumbering.of(tokens, context, logits.shape[2], 0) if goes_by_columns else None
        if goes_by_columns and numbered is None:
            return None
        try:
            return _Passage(self, kernels, logits, tokens, context, numbered).scores()
        except KernelFailed:
            return None


class _Passage:
    """The passage of a program over the positions of some sequences.

    Args:
        program: the program.
        kernels: with the compiled loops.
        logits, tokens, context: as for :meth:`ScoreProgram.run`.
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
        #: Memory for copies of whole rows, and for rows that survivors are spread in.
        self._copies: Array | None = None
        self._spread: Array | None = None
        narrow = {id(part): numbered if part.changes_only_seen else None for part in program.first}
        self._first = [Run(part, tokens, context, narrow[id(part)]) for part in program.first]
        self._seen = None if program.seen is None else Run(program.seen, tokens, context, numbered)
        self._rest = None if program.rest is None else Run(program.rest, tokens, context)
        batch, time = tokens.shape
        width = 0 if numbered is None else numbered.width
        ids, numbers = np.full((batch, width), -1, dtype=np.int64), np.full((time, batch), -1, dtype=np.int32)
        if numbered is not None:
            for row, known in enumerate(numbered.ids):
                ids[row, : len(known)] = known
            numbers[1:] = numbered.tokens[:, :-1].T
        self._ids, self._numbers = _read_only(ids), _read_only(numbers)
        self._before = _tables(program.before[0], numbered, batch, width)
        self._behind = _tables(program.behind, numbered, batch, width)

    def scores(self) -> NDArray[np.float32] | None:
        """See :meth:`ScoreProgram.run`."""
        (batch, time), vocab = self._tokens.shape, self._logits.shape[2]
        runs = [run for run in (*self._first, self._seen, self._rest) if run is not None]
        width = time
        if runs:
            width = min(time, _MOST_POSITIONS)
        if any(run.part.steps for run in self._first) or (self._rest is not None and any(self._rest.part.by_ids)):
            width = min(width, max(_MOST_BYTES // (4 * batch * vocab), 16))
        found = np.empty((time, batch), dtype=np.float32)
        for start in range(0, time, width):
            end = min(start + width, time)
            try:
                for run in runs:
                    # The last token is no position's past in this round. It is in the next.
                    run.go_on(start, end, end < time)
                given, apart = self._rows(start, end)
                address = self._backend.address(given, "float32")
                if address is None:
                    return None
                lines = address + apart[2], end - start, batch, vocab, *apart[:2]
                scored = self._scored(lines, start, end)
            except IllegalToken as error:
                raise where_illegal(error, start, batch) from error
            if scored is None:
                return None
            found[start:end] = scored
        return np.where(self._tokens >= 0, found.T, np.float32(0))

    def _rows(self, start: int, end: int) -> tuple[Array, tuple[int, int, int]]:
        """An array that holds the rows of some positions after the first processors.

        Returns:
            The array, and how many bytes two positions, two sequences, and the first row and the array's begin are
            apart.
        """
        batch, time, vocab = self._logits.shape
        row = 4 * vocab
        if not any(run.part.steps for run in self._first):
            return self._logits, (row, time * row, start * row)
        lines = self._backend.xp.permute_dims(self._logits[:, start:end, :], (1, 0, 2))
        own = self._backend.copied(lines, self._copies)
        self._copies = own if self._copies is None else self._copies
        given, donate = (lines, False) if own is None else (own, True)
        for run in self._first:
            given, donate = run.process(given, donate)
        return given, (batch * row, row, 0)

    def _scored(self, lines: tuple[int, ...], start: int, end: int) -> NDArray[np.float32] | None:
        """The log-probabilities at some positions, ``[positions, batch]``."""
        program, backend, count = self._program, self._backend, (end - start) * len(self._tokens)
        numbers = self._numbers[start:end]
        own: NDArray[np.float32] = np.empty((0, self._ids.shape[1]), dtype=np.float32)
        if self._seen is not None:
            own = np.empty((count, self._ids.shape[1]), dtype=np.float32)
            self._kernels.own_logits(lines, self._ids, numbers, *program.before[1], self._before, own)
            columns, _ = self._seen.process_rows(backend.asarray(own), True)
            own = np.ascontiguousarray(backend.to_numpy(columns), dtype=np.float32)
        chosen = np.maximum(self._tokens[:, start:end].T, 0).astype(np.int64).reshape(-1)
        logprob = np.empty(count, dtype=np.float32)
        ids, left = (np.empty((count, min(program.room, lines[3])), kind) for kind in (np.int64, np.float32))
        most = self._kernels.score(
            lines, self._ids, numbers, *program.operations, self._behind, _read_only(own), program.listed,
            program.added, _read_only(chosen), logprob, ids, left,
        )  # fmt: skip
        if most < 0:
            return None
        if self._rest is not None:
            found = Survivors(backend.asarray(ids[:, :most]), backend.asarray(left[:, :most]))
            after = self._rest.process_survivors(found, self._wide(count), True)
            logprob = backend.to_numpy(among_survivors(backend, ids[:, :most], after, chosen[:, None]))
        return logprob.reshape(end - start, -1)

    def _wide(self, count: int) -> Array | None:
        """Rows to spread survivors in, for processors that go by ids."""
        assert self._rest is not None
        if not any(self._rest.part.by_ids):
            return None
        if self._spread is None:
            self._spread = self._backend.xp.empty((count, self._logits.shape[2]), dtype=self._logits.dtype)
        return self._spread[:count]


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


def _with_table(operation: RowOperation | None) -> bool:
    return operation is not None and operation.has_table


def _tables(part: Part, numbered: Renumbering | None, batch: int, width: int) -> NDArray[np.float32]:
    """The tables of operations at the start, ``[operations, batch, width]``: how often each token occurred."""
    tables = np.zeros((len(part.steps), batch, width), dtype=np.float32)
    if numbered is not None:
        states = part.chain.init_state(numbered.context).processors
        for table, state in zip(tables, states, strict=True):
            leaf = next(leaf for _, leaf in rows.leaves(state))
            table[:] = numbered.context.backend.to_numpy(leaf)
    return tables


def _read_only(x: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to: kernels are compiled for such arrays."""
    x = x.view()
    x.flags.writeable = False
    return x
