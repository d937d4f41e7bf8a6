"""Short contents of strings, names and numbers from any state of their automata on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from logitloom_plugins.json_schema.folds.completion.completion_memory import CompletionMemory, Texts
from logitloom_plugins.json_schema.folds.completion.nearest_ends import NearestEnds, text_to_end
from logitloom_plugins.json_schema.folds.completion.short_contents import (
    Canonical,
    canonical,
    columns_of,
    names_of_labels,
    representatives,
    several,
)
from logitloom_plugins.json_schema.grammar.keys import Keys, Label
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import Output

__all__ = ["ContentTexts", "is_plain"]

#: Pairs of a state of a content and a number of characters, of which the nearest ends are remembered.
_MOST_PAIRS: Final = 1 << 16
#: The same where characters are not counted: the table of next states is that of the content itself.
_MOST_STATES: Final = 1 << 17
#: Above so many pairs the ends of a content with few outputs are found for one output at a time, without pairs.
_MANY_PAIRS: Final = 1 << 12
_FEW_OUTPUTS: Final = 8
#: The work of a byte that is found by nearest ends.
_STEP: Final = 8
#: Repeating a byte so often takes as long as examining one byte.
_REPEATED: Final = 1 << 12


class ContentTexts:
    """The short contents of one schema.

    Args:
        escapes: how characters may be written: ``any``, ``minimal`` or ``ascii``.
        memory: what was found.
    """

    def __init__(self, escapes: str, memory: CompletionMemory) -> None:
        self._ascii_only = escapes == "ascii"
        self._memory = memory

    def texts(self, content: Content, content_state: int, count: int, labels: Iterable[Output]) -> Texts:
        """By output, of some outputs, the rest of a short content, without escapes."""
        nearest = None if content.counts and content.free else self.nearest_ends(content)
        near = None if nearest is None else nearest.outputs(content_state, count)
        asked = labels if near is None else [label for label in near if label in labels]
        found = {label: self._rest(content, (content_state, count), label) for label in asked}
        return {label: rests[0] for label, rests in found.items() if rests}

    def name(
        self, keys: Keys, content_state: int, label: Label, taken: frozenset[str], already: bytes = b""
    ) -> bytes | None:
        """The rest of a short name that has a label and is none of some names; ``None`` if there is none.

        Args:
            keys: the key automaton of the object.
            content_state: the state of the key automaton after the written part of the name.
            label: the label.
            taken: the names that must not come again.
            already: the written part of the name.
        """
        if not keys.bit[label] & keys.below[content_state]:
            return None
        if label[0] == "name" and not taken:
            # The name itself, if it begins with the text that was written.
            encoded, at, next_state = label[1].encode(), keys.automaton.start, keys.automaton.walk
            for size in range(len(encoded) + 1):
                if at == content_state:
                    rest: bytes = encoded[size:]
                    return rest
                at = next_state(encoded[size : size + 1], at)
        others = {name.encode() for name in taken}
        # More names than must not come again, rounded up to a power of two, so that few lists are made.
        for tries in (1, 1 << len(others).bit_length()):
            for text in self.names(keys, content_state, label, tries):
                if already + text not in others:
                    return text
        return None

    def names(self, keys: Keys, content_state: int, label: Label, tries: int) -> list[bytes]:
        """The rests of ``tries`` short names with a label; of all such names if there are fewer."""

        def find() -> tuple[list[bytes], int]:
            nearest = self._nearest(Content(keys.automaton), (content_state, 0), label) if tries == 1 else None
            if nearest is not None:
                return nearest
            found = names_of_labels(keys, keys.bit[label], tries, content_state)
            return found.names[label], found.work

        return self._memory.recalled(self._memory.contents, (keys, content_state, label, tries), find)

    def names_of_labels(self, keys: Keys, labels: int, tries: int) -> dict[Label, list[bytes]]:
        """:meth:`names` of some labels, given as bits, from the start on."""
        start = keys.automaton.start
        found, left, _ = names_of_labels(keys, labels, tries, start)
        return found | {label: self.names(keys, start, label, tries) for label in keys.listed(left)}

    def _rest(self, content: Content, begun: tuple[int, int], label: Output) -> list[bytes]:
        """The rest of a short content, if there is one.

        Args:
            content: the content.
            begun: the state of its automaton, and the number of characters so far.
            label: the output that is asked for.
        """

        def find() -> tuple[list[bytes], int]:
            if content.counts and content.free:
                text = self._free_rest(content, *begun, label)
                # A character is repeated, which takes next to no time.
                return [] if text is None else [text], len(text or b"") // _REPEATED
            nearest = self._nearest(content, begun, label)
            if nearest is not None:
                return nearest
            only = self._only(content, label) if content.counts else None
            if only is not None and _tells_ends(only):
                columns = self._memory.columns.get(only.automaton)
                if columns is None:
                    columns = self._memory.columns[only.automaton] = columns_of(only.automaton)
                text = text_to_end(only, columns, *begun)
                return [] if text is None else [text], len(text or b"") * len(columns)
            work = [0]
            found = [text for text, _ in several(content, begun[0], 1, begun[1], label, work)]
            return found, work[0]

        return self._memory.recalled(self._memory.contents, (content, begun, label), find)

    def _nearest(self, content: Content, begun: tuple[int, int], label: Output) -> tuple[list[bytes], int] | None:
        """The result of :meth:`_rest` and the work, from the nearest ends of the content; ``None`` if it has none."""
        nearest = self.nearest_ends(content)
        if nearest is None:
            return None
        text = nearest.text(label, *begun)
        return [] if text is None else [text], _STEP * len(text or b"")

    def _free_rest(self, content: Content, state: int, count: int, label: Output) -> bytes | None:
        """The rest of a short content in which any character may come; ``None`` if there is none.

        A character that has begun is finished first. Further characters are all alike.
        """
        automaton, start, begun = content.automaton, content.automaton.start, b""
        if state != start:
            [begun] = self._rest(Content(automaton), (state, 0), automaton.outputs[start])
        return next((begun + text for text, _ in several(content, start, 1, count, label, [0])), None)

    def nearest_ends(self, content: Content) -> NearestEnds | None:
        """The nearest ends of the contents with each output; ``None`` if there are too many, or none are needed."""
        nearest = self._memory.nearest
        if content not in nearest:
            pairs = content.automaton.states * (content.points[-1] + 1 if content.counts else 1)
            others_tell = _tells_ends(content) or (pairs > _MANY_PAIRS and self._each_tells_ends(content))
            most = _MOST_PAIRS if content.counts else _MOST_STATES
            nearest[content] = None if pairs > most or others_tell else NearestEnds(content)
        return nearest[content]

    def farthest_end(self, content: Content) -> int:
        """An upper bound on the bytes, or the characters, to the end of a short content, from any state on."""
        nearest = self.nearest_ends(content)
        farthest = None if nearest is None else nearest.farthest()
        if farthest is not None:
            return farthest
        if len(content.found) > _FEW_OUTPUTS:
            # Up to the last bound each character is counted; after it a shortest text comes to no state twice.
            return content.points[-1] + content.longest_way
        # A character that has begun is not counted.
        return 1 + max([self._only(content, label).farthest_end for label in content.found], default=0)

    def _each_tells_ends(self, content: Content) -> bool:
        """Whether the content has few outputs, and :func:`_tells_ends` holds for the content with each of them."""
        return (
            content.counts
            and not content.free
            and len(content.found) <= _FEW_OUTPUTS
            and all(_tells_ends(self._only(content, label)) for label in content.found)
        )

    def _only(self, content: Content, label: Output) -> Content:
        """The content with one output only, on the same states."""
        if content.found == {label}:
            return content
        only = self._memory.only.get((content, label))
        if only is None:
            only = self._memory.only[content, label] = content.restricted(lambda output: bool(output == label))
        return only

    def short_values(self, content: Content, quoted: bool, tries: int) -> list[tuple[Output, bytes, Canonical]]:
        """``tries`` short strings or numbers with each output; all of them if there are fewer.

        Each entry has the output, the text, and the canonical form, which equal values share. Of the paths to one
        state ``tries`` are followed.
        """
        key = content, tries
        known = self._memory.short_values.get(key)
        if known is None:
            first: dict[tuple[Output, Canonical], bytes] = {}
            missing = dict.fromkeys(content.found, tries)
            for text, label in several(content, content.automaton.start, tries, 0, None, [0]):
                written = b'"%b"' % self.escaped(text) if quoted else text
                value = label, canonical(written)
                if missing.get(label) and value not in first:
                    first[value] = written
                    missing[label] -= 1
                    if not any(missing.values()):
                        break
            known = [(label, text, value) for (label, value), text in first.items()]
            self._memory.short_values[key] = known
        return known

    def escaped(self, text: bytes) -> bytes:
        """Characters as JSON writes them. The first bytes may be the rest of a character that has been begun."""
        rest = text.lstrip(bytes(range(0x80, 0xC0)))
        begun = text[: len(text) - len(rest)]
        return begun + json.dumps(rest.decode(), ensure_ascii=self._ascii_only)[1:-1].encode()


def _tells_ends(content: Content) -> bool:
    """Whether a short text of a content that counts characters can be read off the distances to ends."""
    has_one_output = content.counts and not content.free and len(content.found) == 1
    return has_one_output and content.exact_spans is not None


def is_plain(content: Content) -> bool:
    """Whether all characters of short contents stand for themselves in JSON."""
    return all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in representatives(content.automaton))
