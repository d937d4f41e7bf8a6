"""The nearest ends of contents with many outputs: equal to a search from each state, listed by state or not."""

from __future__ import annotations

import numpy as np
import pytest

from logitloom_plugins.json_schema.folds.completion import nearest_ends
from logitloom_plugins.json_schema.folds.completion.nearest_ends import NearestEnds
from logitloom_plugins.json_schema.values.moore_machine import MooreMachine
from logitloom_plugins.json_schema.values.strings import Content

LETTERS = b"abc"


def machine(states: int, outputs: int, seed: int) -> MooreMachine:
    """A machine over three letters, whose states lead to later ones, or also to earlier ones where the seed is odd."""
    rng = np.random.default_rng(seed)
    byte_class = np.zeros(256, dtype=np.uint8)
    byte_class[list(LETTERS)] = [1, 2, 3]
    table = np.full((states, 4), -1, dtype=np.int32)
    for state in range(states):
        first = 0 if seed % 2 else state + 1
        for column in range(1, 4):
            if first < states and rng.random() < 0.6:
                table[state, column] = rng.integers(first, states)
    ends = [int(rng.integers(outputs)) if rng.random() < 0.7 else None for _ in range(states)]
    return MooreMachine(byte_class, table, ends)


def searched(content: Content, begun: tuple[int, int]) -> dict[int, bytes]:
    """By output a shortest text after a state and a number of characters."""
    automaton, found, seen, level = content.automaton, {}, {begun}, [(begun, b"")]
    while level:
        for (state, count), text in level:
            output = content.ends(state, count)
            if output is not None:
                found.setdefault(output, text)
        following = []
        for (state, count), text in level:
            for letter in LETTERS:
                target = int(automaton.next[state, automaton.byte_class[letter]])
                pair = target, content.counted(count + 1) if content.counts else count
                if target >= 0 and content.alive(*pair) and pair not in seen:
                    seen.add(pair)
                    following.append((pair, text + bytes([letter])))
        level = following
    return found


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "one output at a time"])
@pytest.mark.parametrize("outputs", [2, 20])
@pytest.mark.parametrize("seed", range(6))
def test_the_nearest_ends_are_those_of_a_search(
    monkeypatch: pytest.MonkeyPatch, seed: int, outputs: int, listed: bool
) -> None:
    if not listed:
        monkeypatch.setattr(nearest_ends, "_MOST_LISTED", 10)
    content = Content(machine(40, outputs, seed))
    nearest = NearestEnds(content, range(256))
    for state in range(40):
        expected = searched(content, (state, 0))
        near = nearest.outputs(state, 0)
        assert near is None or set(near) == set(expected)
        for output in range(outputs):
            text = nearest.text(output, state, 0)
            # Several texts may be as short: the first letter that leads on is taken.
            assert (text is None) == (output not in expected)
            assert text is None or len(text) == len(expected[output])
    lengths = [len(text) for state in range(40) for text in searched(content, (state, 0)).values()]
    assert nearest.farthest() == max(lengths)
    assert (nearest.outputs(0, 0) is not None) == (listed and len(content.found) >= nearest_ends._FEW)
