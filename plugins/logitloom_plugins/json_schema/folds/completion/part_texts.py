"""Short texts of parts of a schema, wherever the parts stand. Bounds on the length of completions are made of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.folds.completion.completion_memory import MOST_SEARCHED
from logitloom_plugins.json_schema.folds.completion.content_texts import is_plain
from logitloom_plugins.json_schema.folds.completion.local_texts import LocalTexts
from logitloom_plugins.json_schema.folds.completion.required_texts import (
    all_contained,
    is_simple,
    only_contained,
    required_items,
    required_members,
)
from logitloom_plugins.json_schema.folds.completion.short_contents import longest_path
from logitloom_plugins.json_schema.folds.completion.strings_that_differ import TRIED, most_to_differ
from logitloom_plugins.json_schema.folds.completion.value_texts import contents_of, short_values, values_in_order
from logitloom_plugins.json_schema.grammar import objects
from logitloom_plugins.json_schema.grammar.arrays import ArrayFrame, item
from logitloom_plugins.json_schema.grammar.keys import Keys, Label
from logitloom_plugins.json_schema.grammar.layout import COMPACT
from logitloom_plugins.json_schema.grammar.least_solution import TakesLong
from logitloom_plugins.json_schema.grammar.members import ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame
from logitloom_plugins.json_schema.grammar.satisfiability import Frame
from logitloom_plugins.json_schema.grammar.states import state_in
from logitloom_plugins.json_schema.schema.formula import Formula
from logitloom_plugins.json_schema.values.content import Content

__all__ = ["PartTexts"]

_LONGEST_ESCAPE: Final = len("\\u0000")
_QUOTE: Final = len('"')
#: The bytes of the rest of an escape with two surrogates and a quote.
_REST_OF_ESCAPE: Final = 12
#: The brackets of an object, and what stands around the name of a member beside its value.
_BRACKETS, _AROUND_NAME = len("{}"), len(',"":')
#: How many letters the search tries at a place of a name.
_LETTERS: Final = 26
#: Strings of any characters whose lengths differ by so much are many.
_MANY: Final = 8
#: How deeply objects and arrays are looked at. Those below may need nothing but their brackets, which are counted where
#: they are open.
_DEPTH: Final = 3
_NAMES_END: Final = "How far away the next name is depends on the names that have come."
_LONG_NAMES: Final = "The next name that has not come may be long."
_TOO_MANY: Final = "There are too many members for all of them to be looked at."


@dataclass
class _BegunEnds:
    """The ends of a frame that are being found.

    Attributes:
        frames: the reachable frames that have not been looked at.
        texts: the ends of the others.
        count: how many these are.
        work: of finding their ends.
    """

    frames: Iterator[Frame]
    texts: dict[bytes, None] = field(default_factory=dict)
    count: int = 0
    work: int = 0


class PartTexts:
    """The short texts of values, objects, arrays and contents of one schema.

    Args:
        texts: the short texts of states.
    """

    def __init__(self, texts: LocalTexts) -> None:
        self._texts, self._values = texts, texts.values
        self._begun: dict[tuple[Frame, int], _BegunEnds] = {}
        #: By key automaton, number of names and labels, as bits: the most bytes of so many short names of a label.
        self._longest_names: dict[tuple[Keys, int, int], int] = {}

    def stop_at(self, seconds: float) -> None:
        """Let searches raise :class:`.TakesLong` from some processor time of this thread on, in seconds.

        What they have found for certain is kept. No result may depend on the time.
        """
        self._texts.memory.values.deadline = self._values.solution.deadline = seconds

    # --- values -----------------------------------------------------------------------------------------------------

    def value(self, demand: ValueConstraint) -> dict[tuple[bool, ...], bytes]:
        """By truth vector a short value."""
        return short_values(self._texts, demand)

    def openings(self, demand: ValueConstraint) -> tuple[list[tuple[Content, bool]], list[bytes], list[Frame]]:
        """What a value can be.

        Returns:
            The contents of the strings (``True``) and numbers, a short text for each truth vector, and the frames of
            the objects and arrays.

        Raises:
            BudgetExceeded: if no short text is found.
        """
        values, texts = self._values, self.value(demand)
        if not texts and values.possible(demand):
            raise BudgetExceeded("No short value was found.")
        formulas = [(kind, values.of_type(demand, kind)) for kind in ("object", "array")]
        frames = [values.opened(kind, formula, frozenset(texts)) for kind, formula in formulas if formula]
        contents = [*contents_of(self._texts, demand)]
        return contents, [*texts.values()], [frame for frame in frames if values.lives(frame)]

    def kinds(self, demand: ValueConstraint) -> tuple[list[tuple[Content, bool]], bool, list[Frame]]:
        """What a value can be, without a search for short texts.

        Args:
            demand: a constraint that asks for no truth vectors.

        Returns:
            The contents and the frames as of :meth:`openings`, and between them whether it may be a literal.
        """
        values = self._values
        found = {kind: values.of_type(demand, kind) for kind in values.kinds(demand)}
        literal = any(found.get(kind) for kind in ("null", "false", "true"))
        opened = [(kind, found[kind]) for kind in ("object", "array") if found.get(kind)]
        frames = [values.opened(kind, formulas, frozenset([()])) for kind, formulas in opened]
        return [*contents_of(self._texts, demand)], literal, [frame for frame in frames if values.lives(frame)]

    def different(self, demand: ValueConstraint, others: int, more: int) -> tuple[list[bytes], int] | None:
        """More than ``others`` short values, and the most bytes that end an unfinished value as a value not taken.

        Whichever ``others`` values are taken, one of the short values is not taken, if any value is not. ``None`` if
        the number of bytes is not known.

        Args:
            demand: the constraint on the values.
            others: how many values are taken.
            more: how many values must still come after the unfinished one.
        """
        texts, ending = [*self.value(demand).values(), b"false"], 0
        for frame in self.openings(demand)[2]:
            # Further objects are taken from a list.
            texts += [text for _, text, _ in values_in_order(self._texts, demand, 1 << others.bit_length())]
            if demand.extras or (more and len({*texts}) <= others):
                return None
            size = self._most_to_end_differently(frame, others, _DEPTH)
            if size is None:
                return None
            ending = max(ending, size + more * (max(map(len, texts)) - min(map(len, texts))))
        for content, quoted in contents_of(self._texts, demand):
            automaton = content.automaton
            short = self._texts.contents.short_values(content, quoted, 1 << others.bit_length())
            texts += [text for _, text, _ in short]
            added = most_to_differ(content, others) if quoted else None
            if added is not None:
                # The search may lengthen this value to shorten those after it.
                sizes = [len(text) for _, text, _ in short]
                ending = max(ending, added + _QUOTE + more * (max(sizes) - min(sizes)))
                continue
            if content.counts and not content.free:
                return None
            longest = longest_path(automaton.next)
            # If loops make no further values, all values are found without loops. Otherwise each turn of a loop makes
            # one more value.
            added = (longest or automaton.states * others) + others
            plain = not quoted or is_plain(content)
            ending = max(ending, (1 if plain else _LONGEST_ESCAPE) * added + quoted)
        return texts, ending

    def rests(self, content: Content, quoted: bool) -> set[tuple[bytes, bool]]:
        """The rests of short contents from any state on, as they are written, and whether a character has begun."""
        contents, boundaries = self._texts.contents, content.automaton.boundaries
        found = {
            (text, not boundaries[state])
            for state in range(content.automaton.states)
            for text in contents.texts(content, state, 0, content.found).values()
        }
        return {(contents.escaped(text), is_begun) for text, is_begun in found} if quoted else found

    def farthest_end(self, content: Content) -> int:
        """An upper bound on the bytes, or the characters, of the rest of a short content, from any state on."""
        return self._texts.contents.farthest_end(content)

    def longest_rest(self, content: Content, quoted: bool) -> int:
        """An upper bound on the bytes with which the rest of a short content is written, from any state on."""
        plain = not quoted or is_plain(content)
        return self.farthest_end(content) * (1 if plain else 2 * _LONGEST_ESCAPE)

    # --- objects and arrays -----------------------------------------------------------------------------------------

    def required_texts(self, frame: Frame) -> list[bytes] | None:
        """The texts of the members that an object still needs, or of the items that an open ``contains`` still needs.

        ``None`` if they are not known.
        """
        if isinstance(frame, ArrayFrame):
            return None if only_contained(frame) is None else required_items(self._texts, frame, ())
        if not is_simple(frame) or frame.tracked:
            return None
        return required_members(self._texts, frame)

    def contained(self, frame: Frame) -> tuple[int, list[bytes]] | None:
        """The most bytes of the items that an array still needs if several formulas count them, now and after any item.

        Returns:
            The bytes with commas, and the short texts of all items; ``None`` of other arrays and of objects.
        """
        parts, one = all_contained(frame), item(frame) if isinstance(frame, ArrayFrame) else None
        if len(parts) < 2 or one is None:
            return None
        values, asked = self.value(one.demand), one.demand.extras
        sizes = {truth: len(text) + 1 for truth, text in values.items()}
        longest, more = max(sizes.values(), default=0), max(frame.plan.least - frame.length, 0)
        if frame.plan.most is not None or any(most is not None for _, _, _, most in parts):
            if any(least for _, _, least, _ in parts) and not self._texts.of(
                state_in(frame, "open", COMPACT), frame.wanted
            ):
                return None
            # Which items may come is not known. Without any of them, a text would lack an item or a match.
            return (more + sum([least for _, _, least, _ in parts])) * longest, [*values.values()]
        shortest = min(sizes.values(), default=0)
        matching: dict[Formula, int] = {}
        for truth, size in sorted(sizes.items(), key=lambda each: -each[1]):
            matching.update([(child, size) for child, bit in zip(asked, truth, strict=True) if bit])
        needed = [(least, matching.get(child, 0 if child in asked else shortest)) for _, child, least, _ in parts]
        if not all(size for _, size in needed):
            return None
        return more * shortest + sum([least * size for least, size in needed]), [*values.values()]

    def with_member(self, frame: ObjectFrame) -> list[bytes]:
        """Short texts that end an open object with one more member at least."""
        return [*self._texts.of(state_in(frame, "comma", COMPACT), frame.wanted).values()]

    def ends(self, frame: Frame, names: int, most: int, check: Callable[[], None]) -> tuple[list[bytes], int]:
        """Short texts that end an open object or array, now or after more members, and how many frames were visited.

        Args:
            frame: the object or array.
            names: more than the number of names that an object can already have, if no name may come twice in it.
            most: the most members.
            check: a function that is called for each frame. If it raises, the next call goes on with the same frame.

        Raises:
            BudgetExceeded: if there are more than ``most`` members, if names can run out, or if it takes too long.
            TakesLong: as :meth:`stop_at` says. The next call goes on with the same frame.
        """
        memory, key = self._texts.memory, (frame, names)
        begun = self._begun.pop(key, None) or _BegunEnds(iter(self.reachable(frame)))
        while True:
            try:
                check()
            except Exception:
                self._begun[key] = begun
                raise
            reached = next(begun.frames, None)
            if reached is None:
                return [*begun.texts], begun.count
            if self.names_run_out(reached, names):
                raise BudgetExceeded(_NAMES_END)
            # The work for each frame counts as if it were the first, wherever an earlier call has stopped.
            memory.begin_counting()
            try:
                texts = self._texts.of(state_in(reached, "open", COMPACT), frame.wanted)
            except TakesLong:
                begun.frames = itertools.chain([reached], begun.frames)
                self._begun[key] = begun
                raise
            begun.texts.update(dict.fromkeys(texts.values()))
            begun.count += 1
            begun.work += memory.work
            if begun.count > most or begun.work > MOST_SEARCHED:
                raise BudgetExceeded(_TOO_MANY)

    def longest_name(self, frame: ObjectFrame, names: int, check: Callable[[], None]) -> int:
        """The most bytes of an undeclared name that an object needs.

        Args:
            frame: an object in which no name may come twice.
            names: more than the number of names that the object can already have. Whichever names these are, a
                completion chooses another name.
            check: a function that is called if nothing is known of the labels. It may raise.

        Raises:
            BudgetExceeded: if names are long.
        """
        keys, contents = frame.plan.keys, self._texts.contents
        key = keys, 1 << names.bit_length(), sum([keys.bit[label] for label, _ in self._undeclared(frame, names)])
        if key not in self._longest_names:
            check()
            _, tries, labels = key
            lists = contents.names_of_labels(keys, labels, tries).values()
            self._longest_names[key] = max([0, *[len(contents.escaped(name)) for short in lists for name in short]])
        return self._longest_names[key]

    def longest_rest_of_name(self, frame: ObjectFrame, names: int) -> int:
        """The most bytes of the rest of an undeclared name that has begun, with its quote; as :meth:`longest_name`."""
        rest = max([0, *[more for _, more in self._undeclared(frame, names)]])
        return self._size_of_names(frame.plan.keys) * rest + _QUOTE

    def _undeclared(self, frame: ObjectFrame, names: int) -> list[tuple[Label, int]]:
        """The labels of undeclared names, each with the most bytes of the rest of a name; see :meth:`longest_name`."""
        keys, found = frame.plan.keys, list[tuple[Label, int]]()
        sizes = dict(zip(keys.bit, keys.longest(names)[0], strict=True))
        for label in frame.plan.undeclared(keys.bit):
            size = sizes[label]
            if size is None:
                raise BudgetExceeded(_LONG_NAMES)
            found.append((label, size))
        return found

    def names_run_out(self, frame: Frame, names: int) -> bool:
        """Whether no name may come twice in an object, and so many names may have come that none with a label is left.

        Then a completion chooses names with other labels than :meth:`ends` does. Beside open formulas it is enough that
        names can run out at all, because there the ends of many frames would have to be found.

        Args:
            frame: the object; an array has no names.
            names: as in :meth:`longest_name`.
        """
        if not isinstance(frame, ObjectFrame) or not frame.tracked:
            return False
        plan, keys = frame.plan, frame.plan.keys
        asked = keys.listed(keys.longest(names)[1]) if frame.only_hard else [*keys.bit]
        few = sum([keys.bit[label] for label in plan.undeclared(asked)])
        if not few:
            return False
        context = self._texts.grammar.name_context(frame, self._texts.grammar.whitespace.start)
        return context.scarce and bool(few & context.mask)

    def members(self, frame: Frame, most: int, escape: int) -> tuple[int, list[tuple[bytes, ValueConstraint]]]:
        """The most bytes of a name that the schema does not list, or of its rest, with the quote; and the constraints
        on the members that may come in an open object or array, each with the name as it is written.

        Args:
            frame: the object or array.
            most: the most members.
            escape: the most bytes of an escape of which a part may have been written.

        Raises:
            BudgetExceeded: if there are more than ``most`` members.
        """
        other = 0
        found: dict[tuple[bytes, ValueConstraint], None] = {}
        for reached in self.reachable(frame):
            if isinstance(reached, ArrayFrame):
                lengths = range(reached.plan.varied + 1) if frame.only_hard else [reached.length]
                items = [item(reached._replace(length=length)) for length in lengths]
                found.update(dict.fromkeys([(b"", one.demand) for one in items if one is not None]))
            else:
                keys = reached.plan.keys
                if frame.only_hard:
                    every = [(label, ValueConstraint(reached.plan.hard_child(label))) for label in keys.bit]
                    next_ones = [(label, one) for label, one in every if self._values.possible(one)]
                else:
                    # Frames in which more names are left out are reachable, too, and have the names after these.
                    next_ones = [(label, one.demand) for label, one in objects.members_here(self._values, reached)]
                longest, named = self.named(keys, next_ones, escape)
                other = max(other, longest)
                found.update(dict.fromkeys(named))
            if len(found) > most:
                raise BudgetExceeded(_TOO_MANY)
        return other, [*found]

    def named(
        self, keys: Keys, demands: Sequence[tuple[Label, ValueConstraint]], escape: int = 0
    ) -> tuple[int, list[tuple[bytes, ValueConstraint]]]:
        """The results of :meth:`members` for some labels of names with the constraints on their values."""
        named = [(self._name_of(label), demand) for label, demand in demands]
        if len(named) == sum(label[0] == "name" for label, _ in demands):
            return 0, named
        size, (farthest, between) = self._size_of_names(keys), keys.longest_rest
        # No escape begins within a character.
        return max(size * farthest, escape + size * between) + _QUOTE, named

    def _size_of_names(self, keys: Keys) -> int:
        """The most bytes with which a byte of a name that the schema does not list is written."""
        # Where any character may follow in such a name, a completion chooses a character that needs no escape.
        return 1 if keys.plain_names and not keys.is_slow else _LONGEST_ESCAPE

    def reachable(self, frame: Frame) -> Iterable[Frame]:
        """The frames of an open object or array now and after more members, if they can be completed.

        If no formula is open, the frame itself stands for all these frames; if several formulas count items, the frame
        itself and the frame without these formulas do.
        """
        if len(all_contained(frame)) > 1:
            return [frame, frame._replace(soft=True)]
        if frame.only_hard:
            return [frame] if self._values.lives(frame) else []
        return self._values.explored(frame)

    def _name_of(self, label: Label) -> bytes:
        """The name of a member; of a name that the schema does not list, a name of two characters."""
        return json.dumps(label[1], ensure_ascii=False).encode() if label[0] == "name" else b'"aa"'

    # --- objects and arrays that must differ -------------------------------------------------------------------------

    def _most_to_end_differently(self, frame: Frame, taken: int, depth: int) -> int | None:
        """The most bytes, without whitespace, that end a begun object or array so that it differs from others.

        Some text with these bytes is always found, written with bytes that the search tries: one more item or one more
        member with a free name can come, or a declared member is written to the end whose values are many. Behind the
        last such member each member has few values, and those of any object that differs are written. ``None`` for
        other objects and arrays.

        Args:
            frame: the object or array before its first member.
            taken: the number of the others.
            depth: levels of objects and arrays within it that are looked at.
        """
        memory = self._texts.memory.endings
        if (frame, taken, depth) not in memory:
            memory[frame, taken, depth] = self._find_most_to_end_differently(frame, taken, depth)
        return memory[frame, taken, depth]

    def _find_most_to_end_differently(self, frame: Frame, taken: int, depth: int) -> int | None:
        size = self._most_to_end(frame, _DEPTH) if depth else None
        if size is None:
            return None
        if isinstance(frame, ArrayFrame):
            one = item(frame._replace(length=frame.plan.varied)) if frame.plan.most is None else None
            # The further item has not begun, so a string or a number is enough where both may come.
            ways = [] if one is None else self._ways_to_differ(one.demand, taken, depth - 1)
            return min([size + len(b",") + way for way in ways if way is not None], default=None)
        plan = frame.plan
        others = plan.undeclared(plan.keys.others)
        if others and plan.keys.plain_names:
            names = taken + len(plan.names)
            letters = next(count for count in range(1, 64) if _LETTERS**count > names)
            values = self.value(ValueConstraint(plan.hard_child(others[0]))).values()
            return size + _AROUND_NAME + letters + max(map(len, values)) if values else None
        return None if others else self._most_to_end_declared(frame, size, taken, depth)

    def _most_to_end_declared(self, frame: ObjectFrame, size: int, taken: int, depth: int) -> int | None:
        """The same for an object without other members; ``size`` is the most bytes that end it in any way."""
        plan = frame.plan
        for place in range(len(plan.names) - 1, -1, -1):
            name = plan.names[place]
            demand, written = ValueConstraint(plan.hard_child(("name", name))), json.dumps(name, ensure_ascii=False)
            size += _AROUND_NAME + len(written.encode())
            if place in plan.required or {*written.encode()} <= {*TRIED}:
                differ = self._most_to_differ(demand, taken, depth - 1)
                if differ is not None:
                    return size + differ
            longest = self._longest_of_few(demand)
            if longest is None:
                return None
            size += longest
        return size if plan.names else None

    def _most_to_differ(self, demand: ValueConstraint, taken: int, depth: int) -> int | None:
        """The most bytes that make a value, which may have begun, differ from others; ``None`` if values are few."""
        ways = [*self._ways_to_differ(demand, taken, depth)]
        return None if None in ways else max([way for way in ways if way is not None], default=None)

    def _ways_to_differ(self, demand: ValueConstraint, taken: int, depth: int) -> Iterator[int | None]:
        """Per kind of value the result of :meth:`_most_to_differ`."""
        for content, quoted in contents_of(self._texts, demand):
            loops = _longest_text(content) is None
            is_long = content.most is None or content.most >= content.least + _MANY
            if not loops or (content.counts and not (content.free and is_long)):
                yield None
                continue
            # Each turn of a loop of a number makes one more number.
            added = most_to_differ(content, taken) if quoted else (content.automaton.states + 1) * taken
            yield None if added is None else added + _REST_OF_ESCAPE
        for frame in self.openings(demand)[2]:
            yield self._most_to_end_differently(frame, taken, depth)

    def _longest_of_few(self, demand: ValueConstraint) -> int | None:
        """The most bytes of a value; ``None`` if values are objects, arrays, or not few."""
        most = len(b"false")
        if self.openings(demand)[2]:
            return None
        for content, quoted in contents_of(self._texts, demand):
            steps = _longest_text(content)
            if content.counts or steps is None:
                return None
            most = max(most, (_LONGEST_ESCAPE * steps + 2) if quoted else steps)
        return most

    def _most_to_end(self, frame: Frame, depth: int) -> int | None:
        """The most bytes that end an object or array after any byte; ``None`` if they are not known."""
        if isinstance(frame, ArrayFrame):
            return self._most_to_end_array(frame, depth)
        if not is_simple(frame) or frame.tracked or frame.plan.keys.is_slow:
            return None
        required, keys = required_members(self._texts, frame), frame.plan.keys
        if required is None or not depth:
            return None if required is None or required else _BRACKETS
        longest = _LONGEST_ESCAPE * sum(keys.longest_rest)
        begun = 0
        for label in keys.bit:
            demand = ValueConstraint(frame.plan.hard_child(label))
            if self._values.possible(demand):
                value = self._most_to_end_value(demand, depth - 1)
                if value is None:
                    return None
                name = max(longest, len(self._name_of(label)))
                begun = max(begun, _AROUND_NAME + name + _REST_OF_ESCAPE + value)
        return _BRACKETS + sum(len(text) + 1 for text in required) + begun

    def _most_to_end_array(self, frame: ArrayFrame, depth: int) -> int | None:
        if not frame.only_hard or frame.plan.distinct:
            return None
        if not depth:
            return None if frame.plan.least else _BRACKETS
        longest = begun = 0
        for index in range(frame.plan.varied + 1):
            one = item(frame._replace(length=index))
            if one is not None:
                value = self._most_to_end_value(one.demand, depth - 1)
                if value is None:
                    return None
                begun = max(begun, value)
                longest = max([longest, *map(len, self.value(one.demand).values())])
        return _BRACKETS + frame.plan.least * (longest + 1) + begun

    def _most_to_end_value(self, demand: ValueConstraint, depth: int) -> int | None:
        """The most bytes that end a value that has begun, or write one."""
        contents, texts, frames = self.openings(demand)
        most = max(map(len, texts), default=0)
        for content, quoted in contents:
            size = 1 if not quoted or is_plain(content) else _LONGEST_ESCAPE
            most = max(most, size * self.farthest_end(content) + _REST_OF_ESCAPE)
        for frame in frames:
            ends = self._most_to_end(frame, depth)
            if ends is None:
                return None
            most = max(most, ends)
        return most


def _longest_text(content: Content) -> int | None:
    """The most bytes of a content, bounds on its length left out; ``None`` if a loop allows any number."""
    following = content.automaton.next
    return None if (following == np.arange(len(following))[:, None]).any() else longest_path(following)
