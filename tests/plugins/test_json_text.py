"""Partial values: at every prefix consistent with the whole, however the text is cut into pieces."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Vocabulary, processors
from logitloom.errors import GenerationError
from logitloom.generation import Generator, Multinomial
from logitloom.generation.partial_values import Partial, Path
from logitloom_contrib.llama import random_model
from logitloom_plugins.json_text.json_reader import JsonReader
from tests.cases import examples

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(), part, max_size=4))
TEXTS = st.builds(
    lambda value, ascii, indent: json.dumps(value, ensure_ascii=ascii, indent=indent),
    VALUES,
    st.booleans(),
    st.sampled_from([None, 2]),
)


def parts(value: Any, path: Path = ()) -> dict[Path, Any]:
    """All parts of a value by their paths."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {path: value}
    for key, part in items:
        found |= parts(part, (*path, key))
    return found


def same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)


def check_consistent(partial: Partial, whole: dict[Path, Any], completed: set[Path]) -> None:
    if partial.path is None and not partial.complete:
        assert partial.value is None
        return
    opened = {partial.path[:n] for n in range(len(partial.path) + 1)} if partial.path is not None else set()
    assert not opened & completed
    found = parts(partial.value) if (partial.value is not None or () in completed) else {}
    for path, part in found.items():
        if path in completed:
            assert same(part, whole[path])
        else:
            assert path in opened, "what is not complete is being written"
            assert type(part) is type(whole[path])
            if isinstance(part, str):
                assert whole[path].startswith(part)
            elif isinstance(part, list):
                assert len(part) <= len(whole[path])
            else:
                assert list(part) == list(whole[path])[: len(part)]
    assert completed <= set(found)


@given(TEXTS, st.data())
@examples(40)
def test_every_prefix_is_consistent_with_the_whole(text: str, data: st.DataObject) -> None:
    value = json.loads(text)
    whole = parts(value)
    reader, completed, after = JsonReader(), set[Path](), []
    for character in text:
        partial = reader.add(character)
        assert not completed & set(partial.completed), "each part is completed once"
        completed |= set(partial.completed)
        check_consistent(partial, whole, completed)
        after.append((partial.value, partial.path, partial.complete, len(completed)))
    last = reader.end()
    assert last.complete
    assert same(last.value, value)
    assert completed | set(last.completed) == set(whole)
    # Longer pieces give the same.
    pieces, count, place = JsonReader(), 0, 0
    while place < len(text):
        end = data.draw(st.integers(place + 1, len(text)))
        partial = pieces.add(text[place:end])
        count += len(partial.completed)
        assert (partial.value, partial.path, partial.complete, count) == after[end - 1]
        place = end


def test_values_of_earlier_pieces_stay_as_they_were() -> None:
    reader = JsonReader()
    values = [reader.add(character).value for character in '{"a": [1, 2], "b": "xy"}']
    assert values[0] == {}
    assert values[9] == {"a": [1]}
    assert values[-1] == {"a": [1, 2], "b": "xy"}


@pytest.mark.parametrize(
    ("text", "value", "path"),
    [
        ("", None, None),
        (" ", None, None),
        ("1", None, ()),
        ("[", [], ()),
        ("[1", [], (0,)),
        ("[1,", [1], (1,)),
        ('["a', ["a"], (0,)),
        ('{"a', {}, ()),
        ('{"a"', {}, ("a",)),
        ('{"a": {"b": [tru', {"a": {"b": []}}, ("a", "b", 0)),
        ('{"a": 1', {}, ("a",)),
        ('{"a": 1 ', {"a": 1}, ()),
        ('"\\ud83', "", ()),
        ('"\\ud83d', "", ()),
        ('"\\ud83d\\', "", ()),
        ('"\\ud83d\\ude0', "", ()),
        ('"\\ud83d\\ude00', "😀", ()),
        ('"\\ud83dx', "\ud83dx", ()),
        ('"\\ud83d\\u0041', "\ud83dA", ()),
    ],
)
def test_only_what_is_certain_is_there(text: str, value: Any, path: Path | None) -> None:
    found = JsonReader().add(text)
    assert (found.value, found.path) == (value, path)


def test_a_number_alone_is_complete_at_the_end_of_the_text() -> None:
    reader = JsonReader()
    assert reader.add("12") == Partial(None, ())
    assert reader.end() == Partial(12, None, ((),), True)
    assert not JsonReader().end().complete


@pytest.mark.parametrize(
    ("text", "place"),
    [("{1", 1), ("[,", 1), ("[1}", 2), ('{"a"]', 4), ("nul1", 0), ("1 2", 2), ('"\n', 1), ('"\\x', 1), ('"\\u12g', 1),
     ("[1.]", 1), ("[]]", 2), ('{"a":1]', 6)],
)  # fmt: skip
def test_what_is_no_json_is_an_error_that_names_the_character(text: str, place: int) -> None:
    for pieces in ([text + " "], [*text, " "]):
        with pytest.raises(GenerationError, match=f"no JSON: .* at character {place} cannot stand there. Read texts"):
            deque(map(JsonReader().add, pieces))


WORDS = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}, "required": ["name"]}


@pytest.mark.parametrize("max_tokens", [60, 9])
def test_a_stream_under_json_has_the_value_so_far(max_tokens: int) -> None:
    chain = processors.load(("json", {"schema": SCHEMA, "finish_within": 0}), tokenizer=WORDS)
    model = random_model("numpy", vocab=WORDS.size, tied=False)
    pieces = list(Generator(model, chain, Multinomial(), max_tokens=max_tokens).stream([[1, 2]], seed=3))
    reader, text = JsonReader(), ""
    for piece in pieces:
        partial = reader.add(piece.text)
        assert piece.partial == partial
        text += piece.text
    last = pieces[-1]
    if last.finish == "eos":
        assert last.partial is not None
        assert last.partial.complete
        assert last.partial.value == json.loads(text)
    else:
        assert not last.partial.complete  # type: ignore[union-attr]


def test_a_stream_completes_a_number_at_its_end() -> None:
    chain = processors.load(("json", {"schema": {"const": 12}}), tokenizer=WORDS)
    model = random_model("numpy", vocab=WORDS.size, tied=False)
    *_, before, last = Generator(model, chain, skip_forced=False).stream([[1, 2]])
    assert before.partial == Partial(None, ())
    assert last.partial == Partial(12, None, ((),), True)


def test_a_stream_without_such_a_processor_has_no_values() -> None:
    chain = processors.load(("choice", {"choices": ["12"]}), tokenizer=WORDS)
    model = random_model("numpy", vocab=WORDS.size, tied=False)
    assert {piece.partial for piece in Generator(model, chain).stream([[1, 2]])} == {None}
