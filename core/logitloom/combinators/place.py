"""Where one row is among the sections of a combinator, and how a token moves it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom.automata import DEAD
from logitloom.combinators.characters import missing_after, missing_by_token
from logitloom.combinators.inner import Permission
from logitloom.combinators.section import Section
from logitloom.combinators.watcher import Watched, Watcher
from logitloom.context import Context
from logitloom.errors import IllegalToken
from logitloom.masks.mask_row import MaskRow
from logitloom.vocabulary import Vocabulary

__all__ = ["Place", "Plan"]

#: What holds in a section: its rules; the inner text is over and the exit that was begun must be completed;
#: end-of-sequence came; the budget is spent and an exit must be written.
RULED: Final = 0
CLOSING: Final = 1
ENDED: Final = 2
FORCED: Final = 3

_BITS: Final = 31
_FIELDS: Final = 5


class Place:
    """Where a row is.

    Attributes:
        row: its number in the batch.
        section: number of the section.
        mode: one of ``RULED``, ``CLOSING``, ``ENDED``, ``FORCED``.
        node: of the section's watcher.
        depths: at borders: how much of an exit has been written, for each that began rightly.
        spent: tokens in the section.
        missing: bytes that the last character lacks.
        entered: whether the section began with the tokens that were read just now.
        fed: the tokens that the inner processors have not seen yet.
    """

    __slots__ = ("depths", "entered", "fed", "missing", "mode", "node", "row", "section", "spent")

    def __init__(self, row: int, packed: Sequence[int]) -> None:
        self.row = row
        self.section, self.mode, self.node, self.spent, self.missing = packed[:_FIELDS]
        self.depths = frozenset(
            word * _BITS + bit
            for word, bits in enumerate(packed[_FIELDS:])
            if bits
            for bit in range(_BITS)
            if bits >> bit & 1
        )
        self.entered = False
        self.fed: list[int] = []

    def packed(self, words: int) -> list[int]:
        """The numbers that the state holds."""
        bits = [0] * words
        for depth in self.depths:
            bits[depth // _BITS] |= 1 << depth % _BITS
        return [self.section, self.mode, self.node, self.spent, self.missing, *bits]


class Plan:
    """The sections of a combinator over one vocabulary.

    Args:
        sections: the sections.
        context: has the vocabulary.
        name: the combinator's, for messages.
    """

    def __init__(self, sections: Sequence[Section], context: Context, name: str) -> None:
        vocabulary = context.vocabulary
        assert vocabulary is not None
        self.sections, self.name = tuple(sections), name
        self.vocabulary: Vocabulary = vocabulary
        self.vocab_size = context.vocab_size
        self.eos = frozenset(vocabulary.eos)
        known: dict[Any, Watcher] = {}
        self.watchers: list[Watcher | None] = []
        for section in self.sections:
            if not section.exits:
                self.watchers.append(None)
                continue
            ruled = section.inner is not None and section.inner.rules_the_end(context)
            strings = tuple(Watched(e.string.encode(), e.at_start) for e in section.exits)
            if (strings, ruled) not in known:
                known[strings, ruled] = Watcher(strings, vocabulary, self.vocab_size, at_borders=ruled, owner=name)
            self.watchers.append(known[strings, ruled])
        longest = [w.longest_string for w in self.watchers if w is not None and w.at_borders]
        self.words = max(longest, default=-1) // _BITS + 1
        self._masks: dict[Any, MaskRow] = {}
        self._lock = threading.Lock()

    @cached_property
    def _missing(self) -> NDArray[np.int8] | None:
        return missing_by_token(self.vocabulary)

    def start(self, row: int, section: int) -> Place:
        """The place of a row that begins with a section."""
        place = Place(row, [section, RULED, 0, 0, 0])
        self._enter(place, section)
        return place

    # -- moving ---------------------------------------------------------------------------------------------

    def rules(self, place: Place) -> bool:
        """Whether the inner processors of the section are in force."""
        return self.sections[place.section].inner is not None and place.mode in (RULED, ENDED)

    def take(self, place: Place, token: int, permission: Callable[[Place], Permission]) -> None:
        """Move a row by one token.

        Args:
            place: of the row; it is changed.
            token: the token, never negative.
            permission: what the inner processors of a row allow at its place.

        Raises:
            IllegalToken: naming the row, the token and the section.
        """
        section, watcher = self.sections[place.section], self.watchers[place.section]
        if place.mode == ENDED:
            self._feed(place, token)
            return
        if token in self.eos:
            if place.mode != RULED or not (section.may_end or section.ends):
                raise self._illegal(place, token, "the text may not end there")
            self._feed(place, token)
            place.mode, place.node, place.depths, place.spent, place.missing = ENDED, 0, frozenset(), 0, 0
            return
        if section.ends:
            raise self._illegal(place, token, "the text must end there")
        data = self.vocabulary.token_bytes[token] if token < self.vocabulary.size else b""
        done = -1
        if place.mode == FORCED:
            assert watcher is not None
            depths, done = watcher.follow(place.node, [watcher.forced_depth(place.node)], token)
            if done < 0 and not depths:
                raise self._illegal(place, token, f"one of {self._shown(watcher)} must come there")
            if done < 0:
                place.node = watcher.dfa.walk(data, place.node)
        elif watcher is None:
            self._feed(place, token)
        elif watcher.at_borders:
            done = self._take_at_borders(place, token, data, watcher, permission)
        else:
            node, done = watcher.advance(place.node, token)
            if node == DEAD:
                raise self._illegal(place, token, f"it runs over the end of one of {self._shown(watcher)}")
            place.node = node
            self._feed(place, token)
        if done >= 0:
            self._enter(place, section.exits[done].section)
            return
        place.missing = missing_after(place.missing, data)
        place.spent += section.budget is not None
        self._leave_if_spent(place)

    def _take_at_borders(
        self, place: Place, token: int, data: bytes, watcher: Watcher, permission: Callable[[Place], Permission]
    ) -> int:
        allowed: Permission | None = None
        depths, done = watcher.follow(place.node, place.depths, token)
        if done < 0 and place.mode == RULED and watcher.begins(place.node, token):
            allowed = permission(place)
            if allowed.ends or watcher.at_start:
                begun, done = watcher.follow(place.node, [0], token)
                depths |= begun
        if done >= 0:
            return done
        if not data and place.mode == RULED:  # what writes no text changes nothing
            self._feed(place, token)
            return -1
        if place.mode == CLOSING:
            if not depths:
                raise self._illegal(place, token, f"one of {self._shown(watcher)} was begun and must be completed")
        elif depths and not (allowed or permission(place)).allows(token):
            place.mode, place.fed = CLOSING, []
        else:
            self._feed(place, token)
        node = watcher.dfa.walk(data, place.node)
        if node < 0:
            raise self._illegal(place, token, f"it completes one of {self._shown(watcher)} inside the text")
        place.node, place.depths = node, depths
        return -1

    def _feed(self, place: Place, token: int) -> None:
        if self.sections[place.section].inner is not None:
            place.fed.append(token)

    def _enter(self, place: Place, section: int) -> None:
        place.section, place.mode, place.node, place.depths = section, RULED, 0, frozenset()
        place.spent, place.missing, place.entered, place.fed = 0, 0, True, []
        self._leave_if_spent(place)

    def _leave_if_spent(self, place: Place) -> None:
        section = self.sections[place.section]
        if section.budget is None or place.spent < section.budget or place.missing or place.mode != RULED:
            return
        if section.exits:
            place.mode, place.depths, place.spent, place.fed = FORCED, frozenset(), 0, []
        else:
            assert section.after is not None
            self._enter(place, section.after)

    def _shown(self, watcher: Watcher) -> str:
        return ", ".join(repr(s.text.decode(errors="replace")) for s in watcher.strings)

    def _illegal(self, place: Place, token: int, why: str) -> IllegalToken:
        return IllegalToken(
            f"{self.name}: row {place.row} accepted token {token} ({self.vocabulary.describe(token)}), but {why}. "
            f"Sample from the processed logits, or roll the row back.",
            row=place.row,
        )

    # -- masks ---------------------------------------------------------------------------------------------------

    def mask(self, place: Place, permission: Permission | None) -> tuple[MaskRow | None, list[int]]:
        """What may come next in a row, apart from what its inner processors say.

        Args:
            place: of the row.
            permission: of its inner processors, if :meth:`asks` says that it is needed.

        Returns:
            The mask (``None`` to forbid nothing), and the tokens that the inner processors must not forbid.
        """
        section, watcher = self.sections[place.section], self.watchers[place.section]
        if place.mode == ENDED:
            return None, []
        if section.ends:
            return self._known(("ends",), True, lambda: sorted(self.eos)), []
        if place.mode == FORCED:
            assert watcher is not None
            tokens = watcher.continuations(place.node, [watcher.forced_depth(place.node)], longest=True)
            return self._known(("only", *tokens), True, lambda: tokens), []
        if place.mode == CLOSING:
            assert watcher is not None
            tokens = watcher.continuations(place.node, place.depths, longest=True)
            return self._known(("only", *tokens), True, lambda: tokens), []
        exempt: list[int] = []
        if permission is not None and watcher is not None:
            depths = place.depths | {0} if permission.ends or watcher.at_start else place.depths
            if permission.only_ends and not section.may_end:
                exempt = watcher.continuations(place.node, depths, longest=True)
                return self._known(("only", *exempt), True, lambda: exempt), exempt
            exempt = watcher.continuations(place.node, depths)
        limit = self._missing_limit(place, section)
        if watcher is None and limit is None and section.may_end:
            return None, []
        key = (place.section, place.node, *exempt, "missing", place.missing, limit)
        return self._known(key, False, lambda: self._forbidden(place, exempt, limit)), exempt

    def asks(self, place: Place) -> bool:
        """Whether :meth:`mask` needs to know what the inner processors allow."""
        watcher = self.watchers[place.section]
        return watcher is not None and watcher.at_borders and place.mode == RULED

    def _missing_limit(self, place: Place, section: Section) -> int | None:
        """How many bytes a character may lack after the next token, so that it is whole when the budget is spent."""
        if section.budget is None or (section.inner is not None and "constraint" in section.inner.declared("stage")):
            return None
        left = section.budget - place.spent
        if left > 3 or self._missing is None:
            return None
        return left - 1 if left > 0 else place.missing - 1

    def _forbidden(self, place: Place, exempt: list[int], limit: int | None) -> list[int]:
        section, watcher = self.sections[place.section], self.watchers[place.section]
        found = set() if watcher is None else set(watcher.forbidden(place.node).tolist())
        found.difference_update(exempt)
        if limit is not None and self._missing is not None:
            found.update((self._missing[place.missing] > limit).nonzero()[0].tolist())
            if place.missing > limit:  # ids beyond the vocabulary write nothing
                found.update(range(self.vocabulary.size, self.vocab_size))
        if not section.may_end:
            found |= self.eos
        return sorted(found)

    def _known(self, key: Any, allowed: bool, ids: Callable[[], list[int]]) -> MaskRow:
        mask = self._masks.get(key)
        if mask is None:
            with self._lock:
                if len(self._masks) >= 4096:
                    self._masks.clear()
                mask = self._masks[key] = MaskRow(allowed, np.asarray(ids(), dtype=np.int32), self.vocab_size)
        return mask
