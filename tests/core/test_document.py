"""A chain as TOML or JSON, there and back."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Processor, errors, option, processors
from logitloom.document import VERSION, from_document, load, to_document, to_json, to_toml
from logitloom.host import registry


class Mode(Enum):
    FAST = "fast"
    EXACT = "exact"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Side(StrEnum):
    LEFT = "left"
    RIGHT = "right"


class Span(Enum):
    SHORT = (0, 1)
    LONG = (0, 9)


@dataclass(frozen=True)
class Rich(Processor):
    """Options of every kind a document can hold."""

    count: int = option(3, help="A count.")
    ratio: float = option(0.5, help="A ratio.")
    flag: bool = option(False, help="A switch.")
    text: str = option("", help="A text.")
    ids: tuple[int, ...] = option((), help="Ids.")
    groups: tuple[tuple[int, ...], ...] = option((), help="Lists of ids.")
    bias: dict[int, float] = option({}, help="A table.")
    path: Path | None = option(None, help="A file.")
    limit: int | None = option(None, help="A limit.")
    chosen: frozenset[int] = option(frozenset(), help="A set.")
    words: set[str] = option(set(), help="A set of texts.")
    mode: Mode = option(Mode.FAST, help="An enumeration.")
    level: Level = option(Level.LOW, help="An enumeration of integers.")
    side: Side | None = option(None, help="An enumeration of texts.")
    span: Span = option(Span.SHORT, help="An enumeration of pairs.")
    levels: frozenset[Level] = option(frozenset(), help="Members.")
    by_mode: dict[Mode, float] = option({}, help="A table by members.")
    by_level: dict[Level, Side] = option({}, help="A table by integers.")

    def process(self, logits):
        return logits


@pytest.fixture(autouse=True)
def _rich():
    registry.register("rich", Rich)
    yield
    registry.unregister("rich")


finite = st.floats(allow_nan=False, allow_infinity=True, width=32)
integers = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
rich_options = st.fixed_dictionaries(
    {},
    optional={
        "count": integers,
        "ratio": finite,
        "flag": st.booleans(),
        "text": texts,
        "ids": st.lists(integers, max_size=4),
        "groups": st.lists(st.lists(integers, max_size=3), max_size=3),
        "bias": st.dictionaries(integers, finite, max_size=3),
        "path": st.text("abc/.", min_size=1, max_size=8),
        "limit": integers,
        "chosen": st.frozensets(integers, max_size=3),
        "words": st.sets(texts, max_size=3),
        "mode": st.sampled_from(Mode),
        "level": st.sampled_from(Level),
        "side": st.sampled_from(Side),
        "span": st.sampled_from(Span),
        "levels": st.frozensets(st.sampled_from(Level)),
        "by_mode": st.dictionaries(st.sampled_from(Mode), finite),
        "by_level": st.dictionaries(st.sampled_from(Level), st.sampled_from(Side)),
    },
)
specs = st.lists(
    st.one_of(
        rich_options.map(lambda options: ("rich", options)),
        st.floats(0.01, 100).map(lambda t: ("temperature", {"temperature": t})),
        st.integers(1, 1000).map(lambda k: ("top_k", {"k": k})),
        st.just("temperature"),
        st.just("top_k"),
    ),
    max_size=4,
)


@given(specs)
def test_chains_survive_toml_and_json(given_specs):
    chain = processors.load(*given_specs)
    for document in (tomllib.loads(to_toml(chain)), json.loads(to_json(chain)), to_document(chain)):
        again = from_document(document)
        assert again.labels == chain.labels
        assert [link.processor for link in again.links] == [link.processor for link in chain.links]
        assert again.missing == chain.missing
        assert to_document(again) == to_document(chain)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"b": {"type": "integer"}, "a": True}, "required": ["a", "b"]},
        {
            "prefixItems": [{"properties": {"x y": {}, 'q"\n': {"const": [1, {"c": {}, "d": "\u00e9"}]}}}, True],
            "title": "",
        },
    ],
)
def test_tables_keep_their_order(schema):
    chain = processors.load(("json", {"schema": schema}))
    for again in (from_document(tomllib.loads(to_toml(chain))), load(to_toml(chain)), load(to_json(chain))):
        assert json.dumps(again["json"].schema) == json.dumps(schema)


def test_a_document_says_only_what_differs_from_the_defaults():
    chain = processors.load(("top_k", {"k": 40}), ("temperature", {"temperature": 1.0}), ("rich", {"count": 3}))
    assert to_document(chain) == {
        "logitloom": VERSION,
        "processor": [{"use": "top_k", "options": {"k": 40}}, {"use": "temperature"}, {"use": "rich"}],
    }


def test_the_documented_form_is_read():
    chain = from_document(tomllib.loads('logitloom = 1\n[[processor]]\nuse = "top_k"\noptions = { k = 40 }\n'))
    assert chain["top_k"].k == 40


def test_objects_and_classes_of_installed_plugins_are_named():
    from logitloom_plugins.processors.temperature import Temperature
    from logitloom_plugins.processors.top_k import TopK

    chain = processors.load(Temperature(0.5), TopK, (TopK, {"k": 3}))
    assert to_document(chain)["processor"] == [
        {"use": "temperature", "options": {"temperature": 0.5}},
        {"use": "top_k"},
        {"use": "top_k", "options": {"k": 3}},
    ]


def test_objects_with_settings_that_are_no_options_are_refused():
    class Made(Processor):
        def __init__(self, amount=0.5):
            self.amount = amount

        def process(self, logits):
            return logits * self.amount

    registry.register("made", Made)
    try:
        assert to_document(processors.load("made"))["processor"] == [{"use": "made"}]
        with pytest.raises(
            errors.ChainDocumentError, match=r"'Made' takes amount, but declares no options, .*option\)"
        ):
            to_document(processors.load(Made(2.0)))
        with pytest.raises(
            errors.UnknownOption, match=r"'made' has no option 'amount'.* '__init__' takes 'amount', but"
        ):
            processors.load(("made", {"amount": 2.0}))
    finally:
        registry.unregister("made")


def test_a_registered_object_is_named_without_options():
    registry.register("ready", Rich(count=9))
    try:
        chain = processors.load("ready")
        assert to_document(chain)["processor"] == [{"use": "ready"}]
        assert from_document(to_document(chain))["ready"] == Rich(count=9)
        assert to_document(processors.load(Rich(count=4)))["processor"] == [{"use": "rich", "options": {"count": 4}}]
    finally:
        registry.unregister("ready")


def test_the_chosen_distribution_is_kept(installed):
    installed("duplicate_name")
    chain = processors.load("twin@loom-twin-b")
    assert to_document(chain)["processor"] == [{"use": "twin@loom-twin-b"}]


def test_functions_have_no_place_in_a_document():
    with pytest.raises(errors.ChainDocumentError, match=r"'<lambda>' is not an installed or registered plug-in"):
        to_document(processors.load(lambda logits: logits))


def test_values_without_plain_form_are_refused():
    @dataclass(frozen=True)
    class Odd(Processor):
        value: object = option(None, help="Anything.")
        mode: Mode | None = option(None, help="A mode.")

        def process(self, logits):
            return logits

    registry.register("odd", Odd)
    try:
        with pytest.raises(errors.ChainDocumentError, match=r"Option odd.value is a bytes"):
            to_document(processors.load(("odd", {"value": b"x"})))
        assert to_document(processors.load(("odd", {"mode": Mode.FAST})))["processor"][0]["options"] == {"mode": "fast"}
    finally:
        registry.unregister("odd")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, "starts with logitloom = 1; this one has None. Write 'logitloom = 1' in its first line"),
        ({"logitloom": 2}, "this one has 2"),
        ({"logitloom": 1, "processors": []}, "alone, but this one has 'processors'"),
        ({"logitloom": 1, "processor": {"use": "top_k"}}, r"is a list: write \[\[processor\]\]"),
        ({"logitloom": 1, "processor": ["top_k"]}, "Processor 1 of the chain document must have 'use'"),
        ({"logitloom": 1, "processor": [{"use": "top_k", "k": 3}]}, "Processor 1"),
        ({"logitloom": 1, "processor": [{"use": "top_k"}, {"use": 5}]}, "Processor 2"),
        ({"logitloom": 1, "processor": [{"use": "top_k", "options": 5}]}, "Processor 1"),
    ],
)
def test_documents_of_another_form_are_refused(document, text):
    with pytest.raises(errors.ChainDocumentError, match=text):
        from_document(document)


def test_names_and_options_in_documents_are_checked_like_any_other():
    with pytest.raises(errors.UnknownPlugin, match="'top_k'"):
        from_document({"logitloom": 1, "processor": [{"use": "topk"}]})
    with pytest.raises(errors.UnknownOption):
        from_document({"logitloom": 1, "processor": [{"use": "top_k", "options": {"kk": 1}}]})
    with pytest.raises(errors.PluginBlocked):
        from_document({"logitloom": 1, "processor": [{"use": "top_k"}]}, block=["top_k"])


@pytest.mark.parametrize(("suffix", "write"), [(".toml", to_toml), (".json", to_json)])
def test_files_are_read_by_their_suffix(tmp_path, suffix, write):
    path = tmp_path / f"chain{suffix}"
    path.write_text(write(processors.load(("rich", {"text": "ä\n\"'\\"}))), encoding="utf-8")
    assert load(path)["rich"].text == "ä\n\"'\\"


@pytest.mark.parametrize(("suffix", "write"), [(".toml", to_toml), (".json", to_json)])
def test_files_may_begin_with_a_byte_order_mark(tmp_path, suffix, write):
    path = tmp_path / f"chain{suffix}"
    path.write_text(write(processors.load(("rich", {"text": "ä"}))), encoding="utf-8-sig")
    assert load(path)["rich"].text == "ä"


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.toml", "not toml", "could not be read"),
        ("a.json", "{", "could not be read"),
        ("a.json", "[]", "holds a list"),
        ("a.toml", "", r"a.toml' describes no chain. A chain document starts with logitloom = 1"),
        ("a.toml", "logitloom = 1\n[[processor]]\nname = 'top_k'", r"a.toml' describes no chain. Processor 1"),
    ],
)
def test_unreadable_files_are_named(tmp_path, name, content, text):
    (tmp_path / name).write_text(content)
    with pytest.raises(errors.ChainDocumentError, match=text) as caught:
        load(tmp_path / name)
    assert name in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(errors.ChainDocumentError, match="'.*nowhere.toml' could not be read: .* Check the path"):
        load(tmp_path / "nowhere.toml")


def test_a_text_and_a_table_are_loaded_as_a_file_is():
    chain = processors.load(("rich", {"text": "a"}))
    for source in (to_toml(chain), to_json(chain), to_document(chain), "logitloom = 1\n"):
        expected = to_document(chain)["processor"] if source != "logitloom = 1\n" else []
        assert to_document(load(source))["processor"] == expected
    with pytest.raises(errors.ChainDocumentError, match="The chain document could not be read"):
        load("{")
    for text in ('[{"use": "top_k", "options": {"k": 5}}]', '[\n  {"use": "top_k"}\n]'):
        with pytest.raises(errors.ChainDocumentError, match="The chain document holds a list, not a table"):
            load(text)
    for text in ("", " \n"):
        with pytest.raises(errors.ChainDocumentError, match="The chain document describes no chain"):
            load(text)
    with pytest.raises(errors.ChainDocumentError, match="'source' must be"):
        load(3)


def test_links_of_a_chain_are_loaded_in_another_order_with_their_options():
    chain = processors.load(("top_k", {"k": 3}), ("temperature", {"temperature": 0.5}), ("top_k", {"k": 2}))
    turned = processors.load(*reversed(chain.links))
    assert turned.labels == ("top_k", "temperature", "top_k#2")
    assert [turned["top_k"].k, turned["top_k#2"].k] == [2, 3]
    fewer = processors.load(chain.links[1], (chain.links[0], {"k": 7}), options={"temperature": {"temperature": 0.2}})
    assert (fewer["temperature"].temperature, fewer["top_k"].k) == (0.2, 7)
    with pytest.raises(errors.InvalidSignature, match="already configured"):
        processors.load((processors.load(fewer["top_k"]).links[0], {"k": 1}))
