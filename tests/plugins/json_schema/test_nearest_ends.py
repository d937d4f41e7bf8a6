"""The nearest ends of strings and their short contents are those that searches find."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from logitloom.automata import BudgetTracker
from logitloom.automata.deterministic.reach import reachable, steps_to
from logitloom_plugins.json_schema.folds.completion import content_texts, short_contents
from logitloom_plugins.json_schema.folds.completion.completion_memory import CompletionMemory
from logitloom_plugins.json_schema.folds.completion.content_texts import ContentTexts
from logitloom_plugins.json_schema.folds.completion.nearest_ends import NearestEnds, text_to_end
from logitloom_plugins.json_schema.folds.completion.position_texts import Completions
from logitloom_plugins.json_schema.folds.completion.short_contents import (
    FoundNames,
    canonical,
    columns_of,
    longest_path,
    names_of_labels,
    several,
)
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.grammar.keys import Keys
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame, member
from logitloom_plugins.json_schema.values.content import Content
from logitloom_plugins.json_schema.values.moore_machine import Output
from tests.cases import some

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


LENGTHS = [*BOUNDS, {"not": {"minLength": 3, "maxLength": 4}}, {"oneOf": [{"minLength": 3}, {"maxLength": 6}]}]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_ends_of_strings_of_any_characters_take_no_search(lengths: dict[str, object]) -> None:
    content = content_of({"type": "string", **lengths})
    assert content is not None
    assert content.free
    texts, nearest = ContentTexts("any", CompletionMemory()), NearestEnds(content)
    for state in range(content.automaton.states):
        for count in range(content.points[-1] + 1):
            expected = {output: nearest.text(output, state, count) for output in content.found}
            found = texts.texts(content, state, count, content.found)
            assert found == {output: text for output, text in expected.items() if text is not None}
    assert texts.nearest_ends(Content(content.automaton)) is not None
    assert content not in texts._memory.nearest


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.long
def test_no_end_is_nearer(pattern: str, bounds: dict[str, int]) -> None:
    content, dice = content_of({"type": "string", "pattern": pattern, **bounds}), random.Random(pattern)
    if content is None:
        return
    (label,) = content.found
    for _ in range(some(12)):
        state, count = visited(content, dice)
        searched = next((text for text, _ in several(content, state, 1, count, label, [0])), None)
        found = text_to_end(content, columns_of(content.automaton), state, count)
        assert (found is None) == (searched is None)
        assert len(found or b"") == len(searched or b"")
        at, characters = state, count
        for byte in found or b"":
            characters = content.counted(characters + content.automaton.boundaries[at])
            at = int(content.automaton.next[at, content.automaton.byte_class[byte]])
        assert found is None or content.ends(at, characters) == label


@pytest.mark.parametrize(
    "listed", ["ba", ["é", "zz", "ab"], ["a\n", 'a"', "a\\"], ["\ud800", "xyz"], ["", "a"]], ids=ascii
)
def test_the_shortest_string_of_a_list_is_that_of_its_automaton(listed: list[str]) -> None:
    schema = {"enum": [*listed]}
    content, automaton = content_of(schema), SchemaAutomaton(compile_schema(schema))
    assert content is not None
    found = json.loads(automaton.completion(automaton.start()) or b"")
    assert found.encode() == NearestEnds(content).text((), content.automaton.start, 0)


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.long
def test_the_farthest_end_is_that_of_some_state(pattern: str, bounds: dict[str, int]) -> None:
    content = content_of({"type": "string", "pattern": pattern, **bounds})
    if content is None:
        return
    places = [(state, count) for state in range(content.automaton.states) for count in range(content.points[-1] + 1)]
    assert content.farthest_end == max((way[0] for place in places if (way := content.way_to_end(*place))), default=0)


@pytest.mark.parametrize("schema", [
    *({"pattern": pattern} for pattern in PATTERNS[:4]),
    {"enum": ["alpha", "alps", "beta", "b"]},
    {"anyOf": [{"enum": [f"word {number}" for number in range(40)]}, {"type": "string", "minLength": 3}]},
], ids=str)  # fmt: skip
def test_no_shortest_path_is_longer_than_the_longest_way(schema: dict[str, object]) -> None:
    content = content_of(schema)
    assert content is not None
    steps = [{*row[row >= 0].tolist()} for row in content.automaton.next]
    longest = 0
    for start in range(len(steps)):
        distance, reached = {start: 0}, [start]
        for state in reached:
            reached += sorted(steps[state] - distance.keys())
            distance |= {after: distance[state] + 1 for after in steps[state] if after not in distance}
        longest = max(longest, *distance.values())
    assert longest <= content.longest_way <= len(steps)


def test_the_way_out_of_a_list_is_no_longer_than_its_longest_value() -> None:
    listed = [f"{number} is the number of this value" for number in range(300)]
    content = content_of({"anyOf": [{"enum": listed}, {"type": "string", "minLength": 1}]})
    assert content is not None
    assert max(map(len, listed)) <= content.longest_way < max(map(len, listed)) + 12


@pytest.mark.parametrize("pattern", ["^(\\w+ ){0,40}$", "^(ab|cde)*$", "^é{3,}x", ".{10}"])
@pytest.mark.long
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
        searched = next((text for text, _ in several(content, state, 1, count, label, [0])), None)
        assert found == searched


@pytest.mark.parametrize("bounds", [*BOUNDS, {}], ids=str)
@pytest.mark.parametrize("pattern", [*PATTERNS, "", "a|b"])
@pytest.mark.long
def test_contents_end_alike_after_numbers_of_characters_that_are_alike(pattern: str, bounds: dict[str, int]) -> None:
    content, dice = content_of({"type": "string", "pattern": pattern, **bounds}), random.Random(pattern)
    if content is None:
        return
    (label,) = content.found
    nearest = NearestEnds(content)
    for _ in range(30):
        state, count = visited(content, dice)
        more = dice.choice([0, 3, 12])
        alike = content.alike(count, more)
        assert alike <= count
        for further in range(more + 1):
            here, there = (content.counted(each + further) for each in (count, alike))
            assert content.alive(state, here) == content.alive(state, there)
            assert nearest.text(label, state, here) == nearest.text(label, state, there)


def test_far_from_bounds_all_numbers_of_characters_are_alike() -> None:
    content = content_of({"type": "string", "minLength": 3, "maxLength": 200})
    assert content is not None
    assert [content.alike(count, 9) for count in (0, 2, 3, 4, 190, 191, 192, 200)] == [0, 2, 3, 3, 3, 3, 192, 200]


@pytest.mark.parametrize("tries", [1, 2, 4, 16])
@pytest.mark.parametrize("schema", [{"pattern": "^[ab]{0,3}c?$"}, {"enum": [*"abcd"]}, {"maxLength": 2}], ids=str)
def test_short_values_are_the_first_ones_of_all(schema: dict[str, object], tries: int) -> None:
    content = content_of({"type": "string", **schema})
    assert content is not None
    (label,) = content.found
    found = ContentTexts("any", CompletionMemory()).short_values(content, True, tries)
    every = [text for text, _ in several(content, content.automaton.start, 64, 0, None, [0])]
    assert len(found) == min(tries, len(every))
    assert [(end, value) for end, _, value in found] == [
        (label, canonical(b'"%b"' % text)) for text in every[: len(found)]
    ]


def test_the_longest_path_is_the_longest_of_all() -> None:
    dice = random.Random(0)
    for _ in range(200):
        states = dice.randrange(1, 8)
        following = np.array([[dice.randrange(-1, states) for _ in range(2)] for _ in range(states)], dtype=np.int32)
        if dice.random() < 0.7:
            # Without loops, but for steps from a state to itself.
            following = np.maximum(following, np.where(following < 0, -1, np.arange(states)[:, None]))

        def longest(at: int, seen: frozenset[int], following: np.ndarray = following) -> float:
            targets = [int(each) for each in following[at] if each >= 0 and each != at]
            if seen.intersection(targets):
                return np.inf
            return max([1 + longest(target, seen | {target}) for target in targets], default=0)

        expected = max(longest(at, frozenset([at])) for at in range(states))
        assert longest_path(following) == (None if expected == np.inf else expected)


def _content_with_several_outputs(longest: int) -> Content:
    """The content of a member whose alternative is told by a later member."""
    kinds = ["alpha", "beta", "gamma", "delta"]
    alternatives: list[dict[str, object]] = [
        {"properties": {"kind": {"const": kind}, "name": {"enum": [f"{kind * 9}{number}" for number in range(30)]}}}
        for kind in kinds
    ]
    others = {"kind": {"not": {"enum": kinds}}, "name": {"maxLength": longest, "pattern": "^[a-é]*$"}}
    names = {"name": {"type": "string"}, "kind": {"type": "string"}}
    machine = compile_schema({"type": "object", "properties": names, "oneOf": [*alternatives, {"properties": others}]})
    (frame,) = Completions(machine).parts.openings(machine.values.root)[2]
    assert isinstance(frame, ObjectFrame)
    name = member(machine.values, frame, ("name", "name"))
    assert name is not None
    return machine.values.content(machine.values.of_type(name.demand, "string"))


def test_ends_with_several_outputs_need_no_pairs_of_states_and_lengths() -> None:
    content, dice = _content_with_several_outputs(40), random.Random(1)
    contents, nearest = ContentTexts("any", CompletionMemory()), NearestEnds(content)
    assert len(content.found) == 6
    assert contents.nearest_ends(content) is None
    farthest = contents.farthest_end(content)
    for _ in range(200):
        state, count = visited(content, dice)
        found = contents.texts(content, state, count, content.found)
        texts = {output: nearest.text(output, state, count) for output in content.found}
        assert {output: len(text) for output, text in texts.items() if text is not None} == {
            output: len(text) for output, text in found.items()
        }
        assert max(map(len, found.values())) <= farthest
        for output, text in found.items():
            at, characters = state, count
            for byte in text:
                characters = content.counted(characters + content.automaton.boundaries[at])
                at = int(content.automaton.next[at, content.automaton.byte_class[byte]])
            assert content.ends(at, characters) == output


def test_few_pairs_of_states_and_lengths_are_listed() -> None:
    contents, content = ContentTexts("any", CompletionMemory()), _content_with_several_outputs(2)
    nearest = contents.nearest_ends(content)
    assert nearest is not None
    assert contents.farthest_end(content) == nearest.farthest()


NAMED = [
    (("a", "ab", "日本", ""), ()),
    ((), ("^a[0-9]_", "^a1", "_$")),
    (("a1_", "b"), ("^[a-c]{2}$", "^(ab|b)+$", "^.{3}$")),
    ((), tuple(f"^a{each}_" for each in range(30))),
    ((), ("^[\\x00-\\x1f]{2}$", "^é{2}", "^(日|x)$")),
]


@pytest.mark.parametrize(("names", "patterns"), NAMED, ids=str)
def test_labels_below_a_state_are_those_of_the_states_that_can_be_reached(
    names: tuple[str, ...], patterns: tuple[str, ...]
) -> None:
    keys = Keys(names, patterns, {}, BudgetTracker())
    for state, below in enumerate(keys.below):
        ends = reachable(keys.automaton.next, state).nonzero()[0].tolist()
        labels = {keys.automaton.outputs[end] for end in ends} - {None}
        assert below == sum([keys.bit[label] for label in labels])


@pytest.mark.parametrize(("names", "patterns"), [*NAMED, ((), ()), (("a", "é日b", "\U0001f600"), ())], ids=str)
def test_the_longest_rest_of_a_name_is_the_farthest_end(names: tuple[str, ...], patterns: tuple[str, ...]) -> None:
    keys = Keys(names, patterns, {}, BudgetTracker())
    automaton = keys.automaton
    distances = steps_to(automaton.next, automaton.accepting).tolist()
    between = [size for size, is_whole in zip(distances, automaton.boundaries, strict=True) if is_whole]
    assert keys.longest_rest == (max(distances), max(between))


@pytest.mark.parametrize("tries", [2, 8, 64])
@pytest.mark.parametrize(("names", "patterns"), NAMED, ids=str)
def test_names_of_labels_are_those_that_a_search_through_all_names_finds(
    names: tuple[str, ...], patterns: tuple[str, ...], tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Keys(names, patterns, {}, BudgetTracker())
    start, every, searched = keys.automaton.start, sum(keys.bit.values()), {label: list[bytes]() for label in keys.bit}
    with monkeypatch.context() as unbounded:
        unbounded.setattr(short_contents, "_MOST_SEARCHED", 1 << 24)
        for text, label in several(Content(keys.automaton), start, tries, 0, None, [0]):
            searched[label] += [text] if len(searched[label]) < tries else []
    assert any(len(found) > 1 for found in searched.values())
    found = names_of_labels(keys, every, tries, start)
    assert (found.names, found.left) == (searched, 0)
    some_labels = [*keys.bit][::2]
    found = names_of_labels(keys, sum(keys.bit[label] for label in some_labels), tries, start)
    assert found.names == {label: searched[label] for label in some_labels}
    # What a search of little work does not find together is found label by label.
    with monkeypatch.context() as bounded:
        bounded.setattr(short_contents, "_MOST_SEARCHED", 1000)
        begun = names_of_labels(keys, every, tries, start)

    def found_in_part(keys: Keys, labels: int, most: int, start: int) -> FoundNames:
        return begun if labels == every else names_of_labels(keys, labels, most, start)

    monkeypatch.setattr(content_texts, "names_of_labels", found_in_part)
    assert ContentTexts("any", CompletionMemory()).names_of_labels(keys, every, tries) == searched


def test_ends_of_numbers_with_many_states_take_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers have no more lengths than states, so that there is no table of pairs."""
    schema = {"type": "integer", "allOf": [{"multipleOf": 77}, {"not": {"multipleOf": 104}}, {"multipleOf": 9}]}
    found = SchemaAutomaton(compile_schema(schema))
    monkeypatch.setattr(content_texts, "several", None)
    for begun in (b"1", b"-7", b"1040"):
        rest = found.completion(found.read(found.start(), begun))
        assert rest is not None
        number = int(begun + rest)
        assert number % 693 == 0 != number % 104
        shorter = [int(begun + b"%0*d" % (size, each)) for size in range(1, len(rest)) for each in range(10**size)]
        assert not [each for each in [int(begun), *shorter] if each % 693 == 0 != each % 104]
