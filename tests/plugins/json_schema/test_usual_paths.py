"""Where a walk of tokens need not look: checked against the automata, character by character."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom.automata import Budget, any_text
from logitloom.automata.above_ascii import _above_ascii
from logitloom.automata.budget import Meter
from logitloom.automata.char_sets import category
from logitloom.automata.trie import HIGH_OTHER, HIGH_PARTIAL, HIGH_WORD, MALFORMED
from logitloom.masks.kernels import host_kernels
from logitloom_plugins.json_schema.structure.compilation import compile_schema
from logitloom_plugins.json_schema.tokens.self_loops import HIGH_SPECIAL, LOW_SPECIAL, marks_together, together
from logitloom_plugins.json_schema.values.ecma_pattern import compile_ecma
from logitloom_plugins.json_schema.values.formats import format_automaton
from logitloom_plugins.json_schema.values.moore_machine import Labelled, joint
from tests.core.automata.vocabularies import small
from tests.plugins.json_schema.numbered_tokens import NumberedTokens

PATTERNS = ["^[a-z]+$", "a.*b", "^[^x]{3,5}$", ".*", "[é-ü]x", "^[\\u0080-\\uffff]*$", "^(?!a).*", "[\\u0800-\\u0fff]z"]
EVERY = [(0x80, 0xD7FF), (0xE000, 0x10FFFF)]

_WORDS, _OTHERS = (
    np.concatenate([np.arange(low, high + 1) for low, high in category(letter, 0).high.ranges]) for letter in "wW"
)


def automata() -> list[Labelled]:
    alone = [any_text(), *map(compile_ecma, PATTERNS), *map(format_automaton, ("iri", "idn-email", "date"))]
    beside = [
        joint([compile_ecma(pattern)], any_text(), lambda members: members, Meter(Budget(), "a test"))
        for pattern in PATTERNS
    ]
    labels: list[Any] = [[() if end else None for end in dfa.accepting.tolist()] for dfa in alone]
    return [
        *(Labelled(dfa.byte_class, dfa.next, label, dfa.start) for dfa, label in zip(alone, labels, strict=True)),
        *beside,
    ]


@pytest.mark.parametrize("labelled", automata())
def test_where_every_character_above_ascii_leads_is_what_its_ranges_say(labelled: Labelled) -> None:
    itself = np.arange(labelled.states)
    found = _above_ascii(labelled.next, labelled.byte_class, itself)
    for state in range(labelled.states):
        ranges = [(max(low, 0x80), high, end) for low, high, end in labelled.intervals(state) if high >= 0x80]
        ends = {end for _, _, end in ranges}
        covered = sum(high - low + 1 for low, high, _ in ranges)
        everywhere = len(ends) == 1 and covered in (sum(b - a + 1 for a, b in EVERY), 0x10FFFF - 0x7F)
        assert (found[state] >= 0) == everywhere
        assert not everywhere or found[state] in ends


@pytest.mark.parametrize("labelled", automata())
def test_characters_that_are_not_excluded_lead_from_one_of_the_states_to_another(labelled: Labelled) -> None:
    inside, low, high = together(labelled.next, labelled.byte_class)
    marks = marks_together(labelled.next, labelled.byte_class, inside)
    excluded = int(low) | int(high) << 64
    for state in inside.nonzero()[0].tolist():
        reached = np.full(0x110000, -1)
        for first, last, target in labelled.intervals(state):
            reached[first : last + 1] = target
        stays = np.append(inside, False)[reached]
        assert all(stays[point] for point in range(0x80) if not excluded >> point & 1)
        if not marks & HIGH_WORD:
            assert stays[_WORDS].all()
        if not marks & HIGH_OTHER:
            assert stays[_OTHERS].all()


def test_any_text_may_follow_beside_a_pattern_but_not_within_one() -> None:
    within = compile_ecma("^[a-z]+$")
    assert not together(within.next, within.byte_class)[0].any()
    beside = joint([within], any_text(), lambda members: members, Meter(Budget(), "a test"))
    inside, low, high = together(beside.next, beside.byte_class)
    marks = marks_together(beside.next, beside.byte_class, inside)
    assert inside[beside.start]
    assert (low, high, marks) == (LOW_SPECIAL, HIGH_SPECIAL, MALFORMED)
    # All but the ends of lines, of which some are above ASCII.
    dots = compile_ecma("^.*[.]txt$")
    inside, low, high = together(dots.next, dots.byte_class)
    assert inside[dots.start]
    assert (low, high) == (LOW_SPECIAL, HIGH_SPECIAL)
    marks = marks_together(dots.next, dots.byte_class, inside)
    # Without compiled loops no more is known than that some are.
    assert marks == MALFORMED | HIGH_OTHER | HIGH_PARTIAL | (HIGH_WORD if host_kernels() is None else 0)


@pytest.mark.parametrize("schema", [
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
    {"type": "array", "items": {"type": "object", "minProperties": 2, "maxProperties": 2}},
    {"anyOf": [{"minProperties": 3, "type": "object"}, {"type": "object", "required": ["b"], "maxProperties": 2}]},
])  # fmt: skip
def test_names_that_begin_and_end_within_one_token_are_not_written_twice(schema: Any) -> None:
    words = ['{"a":1', '{"a":1,"a', '{"a":1,"b', ',"a":1', '":2', "}", "[", "]", ",", '[{"a":', "3", '{"b":1,"b":', '"']
    vocabulary = small(*words, '{"', "a", "b", ":", '"a":1,"c":1}', "{")
    tokens = NumberedTokens(compile_schema(schema), vocabulary)
    seen, queue = {tokens.start}, [tokens.start]
    for state in queue:  # grows on the way
        allowed = tokens.mask(state).nonzero()[0].tolist()
        reached = {token: tokens.advance(state, token) for token in range(vocabulary.size)}
        assert allowed == [token for token, after in reached.items() if after != -1]
        for after in reached.values():
            if after >= 0 and after not in seen and len(seen) < 400:
                seen.add(after)
                queue.append(after)
    assert len(seen) > 10
