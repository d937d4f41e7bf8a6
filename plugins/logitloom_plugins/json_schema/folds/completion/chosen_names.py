"""The names that completions choose in objects in which no name may come twice, and the names that do not affect them.

A completion writes the first name of a list that the object does not have yet. A name outside these lists does not
affect the text after the name. An unfinished name that can become neither a listed name nor a name that has come is
completed like any other such name in the same state of the name automaton.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from logitloom_plugins.json_schema.folds.completion.completion_memory import ENTRY
from logitloom_plugins.json_schema.folds.completion.local_texts import LocalTexts
from logitloom_plugins.json_schema.folds.value_reader import characters_of
from logitloom_plugins.json_schema.grammar.contexts import NameContext
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame, most_needed

__all__ = ["can_be_chosen", "chosen_of"]

#: If more names than this have come or may be needed, every name is taken to make a difference.
_MOST_NEEDED: Final = 1 << 8


def chosen_of(texts: LocalTexts, frame: ObjectFrame, names: frozenset[str]) -> frozenset[str]:
    """The names already in an object that affect which further names a completion chooses."""
    if not frame.tracked or not names:
        return frozenset()
    chosen = _chosen(texts, frame, len(names) + most_needed(frame))
    if chosen is None:
        return names
    return frozenset([name for name in names if (text := name.encode()) in _at_or_after(chosen, text)])


def can_be_chosen(texts: LocalTexts, context: NameContext, names: Iterable[str], written: bytes) -> bool:
    """Whether an unfinished name can become a name that has come, or a name that a completion may choose.

    Args:
        texts: the short texts of states.
        context: the name, which must not come twice.
        names: the names that have come.
        written: the beginning of the name, as it is written.
    """
    begun = characters_of(written)
    earlier = [name.encode() for name in names]
    if any(name.startswith(begun) for name in earlier):
        return True
    chosen = _chosen(texts, context.frame, len(earlier) + 1 + context.most_needed)
    return chosen is None or any(name.startswith(begun) for name in _at_or_after(chosen, begun))


def _at_or_after(names: list[bytes], text: bytes) -> list[bytes]:
    """The first of some names, ascending, that is no less than a text, if any: it begins with the text if one does."""
    at = bisect_left(names, text)
    return names[at : at + 1]


def _chosen(texts: LocalTexts, frame: ObjectFrame, needed: int) -> list[bytes] | None:
    """All names that completions of an object may choose, ascending; ``None`` if ``needed`` is large.

    Args:
        texts: the short texts of states.
        frame: the object.
        needed: the number of names that have come and may be needed.
    """
    if needed > _MOST_NEEDED:
        return None
    keys, memory, tries = frame.plan.keys, texts.memory, 1 << needed.bit_length()
    key = keys, frame.plan.names, tries
    known = memory.chosen_names.get(key)
    if known is None:
        labels = sum([bit for label, bit in keys.bit.items() if not frame.plan.declares(label)])
        lists = memory.uncounted(lambda: texts.contents.names_of_labels(keys, labels, tries))
        known = memory.chosen_names[key] = sorted({name for names in lists.values() for name in names})
        memory.remembered += ENTRY + sum(map(len, known))
    return known
