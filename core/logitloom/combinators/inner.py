"""What a combinator wraps: one processor or a chain of them, started anew wherever its part of a text begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from logitloom import processors
from logitloom import state as rows
from logitloom.backend import NEG_INF, Array
from logitloom.chain import Chain
from logitloom.context import Context
from logitloom.errors import ChainIncomplete, NeedsNotMet, OptionError, StageOrderError
from logitloom.hookspecs import TextEnd
from logitloom.link import Link

__all__ = ["Inner", "Permission", "specs_of"]


def specs_of(given: Any) -> list[Any]:
    """The processors that an option names, as :func:`logitloom.processors.load` takes them.

    Args:
        given: a name, ``[name, options]``, a table ``{use = name, options = {...}}``, a processor, a chain, or a list
            of these; empty or ``None`` for nothing.

    Example:
        >>> specs_of(["top_k", {"k": 5}]), specs_of(["typical_p", {"use": "top_k", "options": {"k": 5}}])
        ([('top_k', {'k': 5})], ['typical_p', ('top_k', {'k': 5})])
    """
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return []
    if isinstance(given, Chain):
        return list(given.links)
    if isinstance(given, Mapping):
        if not isinstance(given.get("use"), str) or set(given) - {"use", "options"}:
            raise OptionError(
                f"A processor inside another is written as a table with 'use' (a name) and 'options': {dict(given)!r}."
            )
        return [(given["use"], given.get("options", {}))]
    if isinstance(given, (list, tuple)):
        pair = len(given) == 2 and isinstance(given[0], (str, type)) and isinstance(given[1], Mapping)
        if pair and "use" not in given[1]:
            return [(given[0], given[1])]
        return [spec for part in given for spec in specs_of(part)]
    return [given]


class Permission(Protocol):
    """What the constraints of an inner allow in one row."""

    ends: bool
    only_ends: bool

    def allows(self, token: int) -> bool:
        """Whether the token is allowed."""
        ...


class _Listed:
    """From the rows of automata, none of which is written out."""

    def __init__(self, kinds: Sequence[tuple[bool, NDArray[Any]]], eos: Sequence[int]) -> None:
        self._kinds = kinds
        self._eos = set(eos)
        self.ends = any(self.allows(token) for token in eos)
        self.only_ends = self.ends and any(allowed and self._eos.issuperset(ids.tolist()) for allowed, ids in kinds)

    def allows(self, token: int) -> bool:
        return all(bool((ids == token).any()) == allowed for allowed, ids in self._kinds)


class _Written:
    """From a row of logits."""

    def __init__(self, row: NDArray[Any], eos: Sequence[int]) -> None:
        self._row = row > NEG_INF
        self.ends = bool(self._row[list(eos)].any())
        self.only_ends = self.ends and int(np.count_nonzero(self._row)) == int(
            np.count_nonzero(self._row[sorted(set(eos))])
        )

    def allows(self, token: int) -> bool:
        return 0 <= token < len(self._row) and bool(self._row[token])


class _Part(NamedTuple):
    """Neighbours of a chain that are all constraints, or all not.

    Attributes:
        chain: the processors.
        constrains: whether their stage is ``constraint``.
        restores: whether what came in as -inf must be restored after them.
    """

    chain: Chain
    constrains: bool
    restores: bool


class Inner:
    """Processors inside a combinator.

    Their text begins where the combinator says; they know the prompt, and of what was generated only their own part.

    Args:
        given: as for :func:`specs_of`.
        owner: name of the combinator, for messages.
        written: a text that counts as written already when the part begins.

    Raises:
        StageOrderError: for guidance, which belongs to the beginning of the outermost chain.
        ChainIncomplete: if options are missing.
    """

    def __init__(self, given: Any, owner: str, *, written: str = "") -> None:
        self.owner, self.written = owner, written
        links = [part for spec in specs_of(given) for part in _links_of(spec)]
        for link in links:
            if link.declared("stage") == "guidance" or link.declared("branches") > 1:
                raise StageOrderError(
                    f"Guidance cannot work inside {owner!r}: {link.label!r} mixes rows of logits, and has to do so at "
                    f"every step, before everything else. Put it first in the outermost chain."
                )
            if link.sees_every_step:
                raise NeedsNotMet(
                    f"{owner!r} runs processors in a part of the text only, but {link.label!r} must see every step of "
                    f"a sequence. Put it into the outermost chain."
                )
            if link.missing:
                raise ChainIncomplete(
                    f"Processor {link.label!r} inside {owner!r} misses options: {', '.join(link.missing)}."
                )
        self.links = tuple(links)
        self._parts: list[_Part] = []
        constrained = False
        for link in links:
            constrains = link.declared("stage") == "constraint"
            keeps = link.declared("mask_only") or link.declared("preserves_masked")
            if self._parts and self._parts[-1].constrains == constrains:
                last = self._parts.pop()
                chain, restores = Chain([*last.chain.links, link]), last.restores
            else:
                chain, restores = Chain([link]), False
            self._parts.append(_Part(chain, constrains, restores or (constrained and not keeps)))
            constrained = constrained or constrains

    def declared(self, name: str) -> list[Any]:
        """A declaration of each of the processors."""
        return [link.declared(name) for link in self.links]

    @property
    def forces(self) -> bool:
        """Whether its processors may know tokens that must come next."""
        return sum(part.constrains for part in self._parts) == 1 and all(
            part.constrains or all(link.declared("keeps_last") for link in part.chain.links) for part in self._parts
        )

    def rules_the_end(self, context: Context) -> bool:
        """Whether some processor may forbid a text to end: all constraints but those that only watch."""
        for link in self.links:
            if link.declared("stage") != "constraint":
                continue
            found = link.processor
            if not hasattr(found, "constraint_for"):
                return True
            constraint = found.constraint_for(context)
            if constraint.restricts or constraint.ends_texts:
                return True
        return False

    def init_state(self, context: Context) -> Any:
        """The state at the beginning of its part: a row tree."""
        state = tuple(part.chain.init_state(context) for part in self._parts)
        if not self.written or not context.batch:
            return state
        run = _written_with(self.written, context, self.owner)
        blank = _blank(context, context.batch)
        return self.process(blank, state, context.with_fields(pool=None).accept([run] * context.batch))[1]

    def process(
        self, logits: Array, state: Any, context: Context, exempt: Sequence[Sequence[int]] | None = None
    ) -> tuple[Array, Any]:
        """As a chain does, but tokens of ``exempt`` (per row) are not forbidden by the constraints."""
        backend = context.backend
        index = values = None
        width = max((len(row) for row in exempt or ()), default=0)
        if width and exempt is not None:
            host = np.full((len(exempt), width), -1, dtype=np.int32)
            for line, tokens in zip(host, exempt, strict=True):
                line[: len(tokens)] = tokens
            index, valid = backend.asarray(host), backend.asarray(np.maximum(host, 0))
        after = []
        for part, before in zip(self._parts, state, strict=True):
            given = logits
            if index is not None and part.constrains:
                values = backend.gather(logits, valid)
            forbidden = logits == NEG_INF if part.restores else None
            logits, new = part.chain.process(given, before, context)
            if forbidden is not None:
                logits = backend.masked_fill(logits, forbidden, NEG_INF)
            if logits is not given:
                context = context.with_fields(donate=True)
            if index is not None and part.constrains:
                assert values is not None
                logits = backend.write_at(logits, index, values, context.donate)
                context = context.with_fields(donate=True)
            after.append(new)
        return logits, tuple(after)

    def permissions(self, state: Any, context: Context) -> list[Permission]:
        """Per row what the constraints allow after the context's tokens."""
        vocabulary = context.vocabulary
        eos = vocabulary.eos if vocabulary is not None else ()
        kinds: list[list[tuple[bool, NDArray[Any]]]] = []
        for part, before in zip(self._parts, state, strict=True):
            for place, link in enumerate(part.chain.links if part.constrains else ()):
                found = link.processor
                if not hasattr(found, "constraint_for"):
                    return self._permissions_written(state, context, eos)
                memory = found.memory(context)
                reached = found.host_states(before.processors[place], context)
                kinds.append([(row.allowed, row.ids) for row in (memory.mask(memory.node(at)) for at in reached)])
        return [_Listed(row, eos) for row in zip(*kinds, strict=True)]

    def _permissions_written(self, state: Any, context: Context, eos: Sequence[int]) -> list[Permission]:
        logits = _blank(context, rows.row_count(state) or 1)
        for part, before in zip(self._parts, state, strict=True):
            if part.constrains:
                logits, _ = part.chain.process(logits, before, context)
        return [_Written(row, eos) for row in context.backend.to_numpy(logits)]

    def forced_tokens(self, state: Any, context: Context) -> list[list[int]] | None:
        """Per row the tokens that must come next, as far as the constraints know."""
        if not self.forces:
            return None
        place = next(i for i, part in enumerate(self._parts) if part.constrains)
        return self._parts[place].chain.forced_tokens(state[place], context)

    def text_ends(self, state: Any, context: Context) -> list[TextEnd] | None:
        """Per row where the text ends; ``None`` if no processor ends texts."""
        found = [
            ends
            for part, before in zip(self._parts, state, strict=True)
            if (ends := part.chain.text_ends(before, context)) is not None
        ]
        if not found:
            return None
        return [max(row, key=lambda end: (end.finished, end.hold)) for row in zip(*found, strict=True)]


def _links_of(spec: Any) -> tuple[Link, ...]:
    return (spec,) if isinstance(spec, Link) else processors.load(spec).links


def _blank(context: Context, count: int) -> Array:
    return context.backend.asarray(np.zeros((count, context.vocab_size), dtype=np.float32))


def _written_with(text: str, context: Context, owner: str) -> list[int]:
    """The tokens that write a text, the longest ones first."""
    from logitloom.combinators.watcher import Watched, Watcher

    assert context.vocabulary is not None
    watcher = Watcher([Watched(text.encode())], context.vocabulary, context.vocab_size, owner=owner)
    run: list[int] = []
    place = 0
    while place < len(watcher.strings[0].text):
        token = next(t for t in watcher.spelling(place) if watcher.data(t))
        run.append(token)
        place += len(watcher.data(token))
    return run
