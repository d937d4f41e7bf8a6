"""The search for the strings that end a section, compared with a search of the whole text."""

from __future__ import annotations

import itertools
import random

import pytest

from logitloom.errors import OptionError
from logitloom_plugins.combinators.triggers import TriggerMatcher, check_triggers


@pytest.mark.parametrize("seed", range(12))
def test_strings_are_found_where_they_first_end(seed: int) -> None:
    draw = random.Random(seed)
    strings = list({bytes(draw.choices(b"ab;", k=draw.randint(1, 4))): None for _ in range(draw.randint(1, 6))})
    at_start = [draw.random() < 0.3 for _ in strings]
    matcher = TriggerMatcher(strings, at_start)
    for text in map(bytes, itertools.product(b"ab;", repeat=6)):
        node = matcher.start
        for size in range(1, len(text) + 1):
            read = text[:size]
            ends = [string for string, first in zip(strings, at_start, strict=True) if read.endswith(string)
                    and (not first or read == string)]  # fmt: skip
            node, done = matcher.step(node, text[size - 1])
            assert (strings[done] if done >= 0 else b"") == max(ends, key=len, default=b"")
            if done >= 0:
                break
            rests = {(i, n) for i, string in enumerate(strings) for n in range(len(string)) if read.endswith(string[:n])
                     and (not at_start[i] or n == size)}  # fmt: skip
            assert set(matcher.rests(node)) == rests


@pytest.mark.parametrize("seed", range(12))
def test_strings_of_which_one_contains_another_are_refused(seed: int) -> None:
    draw = random.Random(seed)
    texts = [*{"".join(draw.choices("aé;", k=draw.randint(1, 4))): None for _ in range(draw.randint(1, 4))}]
    hidden = [(one, other) for one in texts for other in texts if other in one[:-1]]
    if not hidden:
        check_triggers(texts, "until")
        return
    with pytest.raises(OptionError, match="contains") as refused:
        check_triggers(texts, "until")
    assert any(f"{one!r} of 'until' contains {other!r}" in str(refused.value) for one, other in hidden)
