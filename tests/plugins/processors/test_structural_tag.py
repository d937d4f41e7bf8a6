"""structural_tag: accepts what xgrammar accepts, with masks that are exact, and names what is wrong."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from logitloom import Vocabulary, processors
from logitloom.constraints import Constraint
from logitloom.errors import OptionError, UnsupportedPattern
from logitloom_plugins.processors.structural_tag import StructuralTag

BYTES = Vocabulary([bytes([byte]) for byte in range(256)] + [b""], eos=[256])
#: Tokens of several bytes that cross the borders of the formats below.
CROSSING = Vocabulary(
    [*BYTES.token_bytes, b"ab", b"a>", b"><", b"<a", b'{"', b'":', b"}<", b"1}", b"}{", b"</", b"<f=", b"=a>", b"x<"],
    eos=[256],
)
OBJECT = {"type": "object", "properties": {"a": {"enum": [1, 12]}}, "required": ["a"]}


def const(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def tag(begin: str, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(*elements: Any) -> dict[str, Any]:
    return {"type": "sequence", "elements": list(elements)}


JSON = {"type": "json_schema", "json_schema": OBJECT}
TEXT: dict[str, Any] = {"type": "any_text"}
LETTERS = {"type": "regex", "pattern": "[ab]+"}
TAGS = [tag("<f=a>", JSON, "</f>"), tag("<f=b>", const("x"), ["</f>", ">"])]
TRIGGERED = {"type": "triggered_tags", "triggers": ["<f="], "tags": TAGS}
SEPARATED = {"type": "tags_with_separator", "tags": TAGS, "separator": ","}
DISPATCH = {"type": "dispatch", "rules": [["<f>", const("x")], ["<g>", JSON]]}

FORMATS: dict[str, dict[str, Any]] = {
    "json": JSON,
    "text": TEXT,
    "text without a phrase": {**TEXT, "excludes": ["ab"]},
    "short text": {**TEXT, "max_chars": 2},
    "text in a tag": tag("<", TEXT, ">"),
    "text with two ends": tag("<", TEXT, [">", "ab"]),
    "text in a tag without a phrase": tag("<", {**TEXT, "excludes": ["aa"]}, ">"),
    "short text in a tag": tag("<", {**TEXT, "max_chars": 2}, ">"),
    "text, then a string": sequence(TEXT, const("ab")),
    "text, then an object": sequence(TEXT, JSON),
    "two objects": sequence(JSON, JSON),
    "letters, then an object": sequence(LETTERS, JSON),
    "letters twice": sequence(LETTERS, LETTERS),
    "text in a tag, then a string": tag("<", sequence(TEXT, const("ab")), ">"),
    "texts in a tag, any number": tag("<", {"type": "star", "content": sequence(const("a"), TEXT, const("b"))}, ">"),
    "text in a tag in a tag": tag("<o>", sequence(tag("<", TEXT, ">"), const("x")), "</o>"),
    "a choice in a tag": tag("<", {"type": "or", "elements": [sequence(TEXT, const("b")), const("x")]}, ">"),
    "triggers in a tag, then a string": tag("<o>", sequence(TRIGGERED, const("ab")), "</o>"),
    "digits and letters": {"type": "regex", "pattern": r"\d|\w{2}"},
    "a pattern that may go on": tag("<", {"type": "regex", "pattern": "[a>]+"}, ">"),
    "triggers": TRIGGERED,
    "at least one": {**TRIGGERED, "at_least_one": True},
    "the first only": {**TRIGGERED, "stop_after_first": True},
    "exactly one": {**TRIGGERED, "at_least_one": True, "stop_after_first": True},
    "triggers without a phrase": {**TRIGGERED, "excludes": ["ab"]},
    "triggers in a tag": tag("<o>", TRIGGERED, "</o>"),
    "triggers, then a string": sequence({**TRIGGERED, "stop_after_first": True}, const("ab")),
    "reasoning, then triggers": sequence(tag("<t>", TEXT, "</t>"), TRIGGERED),
    "separated": SEPARATED,
    "separated, at least one": {**SEPARATED, "at_least_one": True},
    "separated by nothing": {**SEPARATED, "separator": ""},
    "separated, one": {**SEPARATED, "stop_after_first": True},
    "rules": DISPATCH,
    "rules once": {**DISPATCH, "loop": False},
    "a choice": {"type": "or", "elements": [const("a"), const("ab"), JSON, sequence(const("a"), JSON)]},
    "optional parts": sequence(const("a"), {"type": "optional", "content": const("b")}, JSON),
    "any number": {"type": "star", "content": tag("<", LETTERS, ">")},
    "one or more": {"type": "plus", "content": JSON},
    "one to three": {"type": "repeat", "min": 1, "max": 3, "content": const("ab")},
    "two or more": {"type": "repeat", "min": 2, "max": -1, "content": LETTERS},
    "nothing, any number of times": {"type": "star", "content": {"type": "optional", "content": const("a")}},
    "nothing": const(""),
}
PARTS = [
    "a", "b", "ab", "x", "<", ">", "<f=a>", "<f=b>", "</f>", ",", "<o>", "</o>", "<t>", "</t>", "<f>", "<g>", "<f=",
    '{"a": 1}', '{"a":12}', '{"a"', "{}", "é", "",
]  # fmt: skip
#: Texts that random parts hardly ever are.
MORE = {
    "1", "\u0967", "\u0967a", "éa", "_1", "<aab>", "<a>ab>", "<abab>", "<aab>x>", "<b>", "<ab>", "<abab>ab>", "<acbab>",
    "<x>", "<>b>", "<o><a>x</o>", "<o></o>x</o>", "<o><</o>>x</o>", "<o>xab</o>", "<o><f=b>x</f>ab</o>",
    "<o>a</o>ab</o>",
}  # fmt: skip


class EveryToken(StructuralTag):
    """Where a string is forced, every token is allowed that continues it, rather than the longest alone."""

    forces_longest = False


@cache
def constraint(label: str, vocabulary: Vocabulary = BYTES) -> Constraint:
    given = {"type": "structural_tag", "format": FORMATS[label]}
    return EveryToken(tag=given, json={"whitespace": "flexible"}).constraint(vocabulary, vocabulary.size)


def accepts(one: Constraint, text: str) -> bool:
    state: Any = one.start()
    for byte in text.encode():
        state = one.advance(state, byte)
        if state is None:
            return False
    return one.may_end(state)


def walked(one: Constraint, draw: random.Random) -> str:
    """A random text that a constraint allows."""
    state, text = one.start(), b""
    while len(text) < 60:
        ids = [token for token in one.allowed(state).listed(257).tolist() if 32 <= token < 127]
        likely = [token for token in ids if chr(token) in 'abx<>/f=,{}":12ogt']
        if not ids or (one.may_end(state) and draw.random() < 0.2):
            break
        token = draw.choice(likely or ids)
        state, text = one.advance(state, token), text + bytes([token])  # type: ignore[assignment]
    return text.decode()


@pytest.mark.extras
@pytest.mark.parametrize("label", FORMATS)
def test_texts_are_accepted_as_xgrammar_accepts_them(label: str) -> None:
    xgrammar = pytest.importorskip("xgrammar", reason="the package xgrammar is not installed")
    info = xgrammar.TokenizerInfo(
        BYTES.token_bytes, vocab_type=xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[256]
    )
    whole = {"type": "structural_tag", "format": FORMATS[label]}
    compiled = xgrammar.GrammarCompiler(info).compile_structural_tag(json.dumps(whole))

    def theirs(text: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled)
        return all(matcher.accept_token(token) for token in [*text.encode(), 256])

    draw, ours = random.Random(label), constraint(label)
    texts = {"".join(draw.choices(PARTS, k=draw.randrange(7))) for _ in range(300)}
    texts |= {walked(ours, draw) for _ in range(30)} | MORE
    found = {text: (accepts(ours, text), theirs(text)) for text in texts}
    assert {text: pair for text, pair in found.items() if pair[0] != pair[1]} == {}
    assert any(pair[0] for pair in found.values())


@pytest.mark.parametrize("label", FORMATS)
@pytest.mark.long
def test_masks_have_the_tokens_that_can_follow(label: str) -> None:
    plain, crossing = constraint(label), constraint(label, CROSSING)
    draw = random.Random(label)
    for _ in range(4):
        text = walked(plain, draw)
        text = text[: draw.randrange(len(text) + 1)]
        state: Any = crossing.start()
        for byte in text.encode():
            state = crossing.advance(state, byte)
        wanted = []
        for token, data in enumerate(CROSSING.token_bytes):
            after: Any = plain.start()
            for byte in text.encode() + data:
                after = None if after is None else plain.advance(after, byte)
            if after is not None and data:
                wanted.append(token)
        assert crossing.allowed(state).listed(CROSSING.size).tolist() == wanted
        assert [token for token in wanted if crossing.advance(state, token) is None] == []


def test_the_older_form_is_the_same() -> None:
    structures = [{"begin": "<f=a>", "schema": OBJECT, "end": "</f>"}]
    old = {"type": "structural_tag", "structures": structures, "triggers": ["<f="]}
    new = {**TRIGGERED, "tags": TAGS[:1]}
    made = [
        processors.load(("structural_tag", {"tag": given}))["structural_tag"].constraint(BYTES, 257).fingerprint
        for given in (old, json.dumps(old), {"type": "structural_tag", "format": new}, new)
    ]
    assert made == [made[0]] * 4


def test_what_must_come_is_forced() -> None:
    given = {**TRIGGERED, "tags": TAGS[:1], "at_least_one": True}
    made = processors.load(("structural_tag", {"tag": given, "json": {"whitespace": "compact"}}))["structural_tag"]
    one = made.constraint(BYTES, BYTES.size)
    assert BYTES.decode(one.forced(one.start())) == '<f=a>{"a":1'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, r"Option 'tag' of 'structural_tag' is 7. Give \{'type': 'structural_tag'"),
        ("{", "given as option 'tag' of 'structural_tag' is no JSON"),
        ({"type": "token", "token": 3}, "^format of a structural tag is .*Supported are the types any_text.*tool_call"),
        ({"type": "regex"}, "^format of a structural tag, of the type 'regex', lacks the entry 'pattern'. It needs"),
        (sequence(JSON, {**LETTERS, "flags": 1}), "^format/elements/1 .* has the entry 'flags'.*nothing else"),
        ({**LETTERS, "pattern": 1}, "^format/pattern of a structural tag is 1. Give a text"),
        ({**TEXT, "excludes": "ab"}, "^format/excludes of a structural tag is 'ab'. Give a list of texts"),
        ({**JSON, "style": "qwen_xml"}, "^format/style .* cannot be enforced. Leave it out; the processor 'tool_call'"),
        ({**JSON, "any_order": True}, "^format/any_order of a structural tag is True, which cannot be enforced"),
        (tag("<", JSON, []), r"^format of a structural tag begins with '<' and ends with \[\]. Give texts"),
        ({**TRIGGERED, "triggers": ["<g"]}, "^format/tags/0/begin .*'<f=a>', which begins with none or with several"),
        ({**TRIGGERED, "tags": []}, "^format/tags of a structural tag is empty"),
        ({**DISPATCH, "rules": [["", JSON]]}, r"^format/rules/0 .*Give \[text, format\]"),
        ({"type": "repeat", "min": 3, "max": 2, "content": JSON}, "repeated 3 to 2 times. Give 0 <= min <= max"),
        ({"type": "repeat", "min": 9999, "max": -1, "content": JSON}, "needs more than 4096 sections. Repeat less"),
        (sequence(TRIGGERED, JSON), "^format/elements/0 of a structural tag is free text, and what follows it begins"),
        ({"structures": [{"begin": "<"}]}, "^structures/0 of a structural tag is .*needs 'begin', 'schema' and 'end'"),
        (sequence({"type": ["regex"]}), "^format/elements/0 of a structural tag is .*Supported are the types any_text"),
        (sequence(const("a"), {"type": "or", "elements": []}), "^format/elements/1/elements .*is empty. Give at least"),
        ({**TRIGGERED, "triggers": ["<f=", ""]}, r"^format/triggers .*\['<f=', ''\], .*empty text.*Leave it out"),
        ({**SEPARATED, "tags": [TAGS[0], TEXT]}, "^format/tags/1 .*type 'any_text'.*Give a format of the type 'tag'"),
        ({**TEXT, "max_chars": -1}, "^format/max_chars of a structural tag is -1. Give an integer, at least 0"),
        ({**TEXT, "max_tokens": 1.5}, "^format/max_tokens of a structural tag is 1.5. Give an integer, at least 0"),
        (sequence(tag("<", JSON, ["\ud800"])), r"^format/elements/0/end .*'\\ud800'.*half a surrogate pair"),
        ({**DISPATCH, "rules": [["\ud800", JSON]]}, r"^format/rules/0 .*half a surrogate pair"),
    ],
    ids=range(25),
)  # fmt: skip
def test_errors_name_the_place_and_the_remedy(given: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        processors.load(("structural_tag", {"tag": given}))


def others(given: Any) -> Iterator[Any]:
    """A format with one value anywhere in it replaced by another."""
    yield from ([], "", -1, 1.5, True, {}, [""], TEXT)
    for key, value in given.items() if isinstance(given, dict) else enumerate(given) if isinstance(given, list) else ():
        if key in ("json_schema", "excludes"):  # no schema, and no excluded phrase, is a matter of xgrammar alone
            continue
        for other in others(value):
            changed = copy.copy(given)
            changed[key] = other
            yield changed


@pytest.mark.extras
@pytest.mark.long
@pytest.mark.parametrize("label", ["triggers, then a string", "separated", "rules once", "short text in a tag",
                                   "two or more", "a choice"])  # fmt: skip
def test_what_xgrammar_refuses_is_refused(label: str) -> None:
    xgrammar = pytest.importorskip("xgrammar", reason="the package xgrammar is not installed")
    taken = []
    for given in others(FORMATS[label]):
        try:
            xgrammar.Grammar.from_structural_tag({"type": "structural_tag", "format": given})
        except Exception:
            with contextlib.suppress(OptionError, UnsupportedPattern):
                StructuralTag(tag={"type": "structural_tag", "format": given})
                taken.append(given)
    assert taken == []


def test_a_wrong_pattern_is_quoted_as_it_was_given() -> None:
    with pytest.raises(UnsupportedPattern, match=r"^Pattern 'a\[' is no .* at position 1"):
        processors.load(("structural_tag", {"tag": {**LETTERS, "pattern": "a["}}))
