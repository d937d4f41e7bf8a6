"""The nearest end of a string by distances is as near as the end that a breadth-first search finds."""

from __future__ import annotations

import random

import pytest

from logitloom_plugins.json_schema.folds.completion.nearest_ends import NearestEnds, text_to_end
from logitloom_plugins.json_schema.folds.completion.short_contents import columns_of, several
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.values.moore_machine import Output
from logitloom_plugins.json_schema.values.strings import Content

PATTERNS = [r"^(\w+ ){0,40}$", "(a|b)*a(a|b){5}", r"^\S+@\S+\.\w{2,9}$", "^é{3,}x", "^(?:[A-Za-z0-9+/]{4})*$"]
PATTERNS += [".{10}", "^a+$", "[^x]{65}", "^(ab|cde)*$", "^(日本|x){2,9}$"]
BOUNDS = [{"maxLength": 30}, {"minLength": 12}, {"minLength": 5, "maxLength": 25}, {"minLength": 40, "maxLength": 90}]


def content_of(schema: dict[str, object]) -> Content | None:
    machine = compile_schema(schema)
    if not machine.satisfiable:
        return None
    return machine.values.content(machine.values.of_type(machine.values.root, "string"))


def visited(content: Content, dice: random.Random) -> tuple[int, int]:
    """A state and a number of characters after a few random bytes."""
    automaton, state, count = content.automaton, content.automaton.start, 0
    for _ in range(dice.randrange(20)):
        following = content.counted(count + automaton.boundaries[state])
        targets = [int(automaton.next[state, column]) for _, column in columns_of(automaton)]
        alive = [target for target in targets if target >= 0 and content.alive(target, following)]
        if not alive:
            break
        state, count = dice.choice(alive), following
    return state, count


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_end_is_nearer(pattern: str, bounds: dict[str, int]) -> None:
    content, dice = content_of({"type": "string", "pattern": pattern, **bounds}), random.Random(pattern)
    if content is None:
        return
    (label,) = content.found
    for _ in range(12):
        state, count = visited(content, dice)
        searched = next((text for text, _ in several(content, state, 1, 1, None, count, label, [0])), None)
        found = text_to_end(content, columns_of(content.automaton), state, count)
        assert (found is None) == (searched is None)
        assert len(found or b"") == len(searched or b"")
        at, characters = state, count
        for byte in found or b"":
            characters = content.counted(characters + content.automaton.boundaries[at])
            at = int(content.automaton.next[at, content.automaton.byte_class[byte]])
        assert found is None or content.ends(at, characters) == label


@pytest.mark.parametrize("pattern", ["^(\\w+ ){0,40}$", "^(ab|cde)*$", "^é{3,}x", ".{10}"])
def test_a_text_is_read_off_the_states_without_a_question_for_each_byte(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, dice = (
        content_of({"type": "string", "pattern": pattern, "minLength": 60, "maxLength": 90}),
        random.Random(1),
    )
    assert content is not None
    (label,) = content.found
    nearest, asked, distance = NearestEnds(content), list[int](), NearestEnds._distance

    def counted(ends: NearestEnds, at: int, output: Output) -> int:
        asked.append(at)
        return distance(ends, at, output)

    monkeypatch.setattr(NearestEnds, "_distance", counted)
    for _ in range(12):
        state, count = visited(content, dice)
        asked.clear()
        found = nearest.text(label, state, count)
        assert len(asked) == 1
        searched = next((text for text, _ in several(content, state, 1, 1, None, count, label, [0])), None)
        assert found == searched
