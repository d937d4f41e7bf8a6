"""Common texts are accepted by all automata, and the rest of one is a common text of the next tuple."""

from __future__ import annotations

import itertools
import random
from typing import cast

import pytest

from logitloom.automata import DenseAutomaton, IntersectedAutomaton, compile_pattern
from logitloom.automata.deterministic.common_texts import CommonTexts, States
from logitloom.errors import OptionError
from tests.cases import first

PATTERNS = (
    "(ab)*;?", "[ab;]{1,9}", "(?:[^b]|b[^a])*b?", "a+(;a+){2,4}", ".*;.*", ".*b.*", "[ab]{3}.*", "(;|ab|b)+", ".{4,6}",
    "(aa|b;)*", "[^;]*;[^;]*",
)  # fmt: skip


@pytest.mark.parametrize("seed", first(12, range(120)))
def test_the_rest_of_a_common_text_is_one_again(seed: int) -> None:
    draw = random.Random(seed)
    automata = [DenseAutomaton(compile_pattern(one)) for one in draw.sample(PATTERNS, draw.choice((2, 2, 3)))]
    try:
        both = IntersectedAutomaton(automata)
    except OptionError:
        return
    texts = CommonTexts(automata, both._stepped, both._bytes)
    queue = [cast(States, both.start())]
    for states in itertools.islice(queue, 60):
        found = texts.completions(states)
        assert found or not texts.common(states)
        for text in found:
            reached = states
            for length, byte in enumerate(text, 1):
                after = both._stepped(reached, byte)
                assert after is not None, (states, text)
                reached = after
                assert text[length:] in texts.completions(reached), (states, text)
            assert both.accepts(reached)
        for byte in b"ab;x":
            after = both._stepped(states, byte)
            if after is not None and after not in queue:
                queue.append(after)
        byte, is_dead = texts.nearby(states)
        if is_dead and not texts.common(states):
            assert byte is None
            assert not both._can_end(states)
