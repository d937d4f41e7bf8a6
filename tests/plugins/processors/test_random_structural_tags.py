"""Random structural tags: what one of logitloom and xgrammar writes, the other accepts."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from logitloom.constraints import Constraint
from logitloom.errors import OptionError
from tests.cases import first
from tests.plugins.processors.test_structural_tag import BYTES, TEXT, EveryToken, accepts, const, sequence, tag

SCHEMAS = [
    {"type": "object", "properties": {"a": {"enum": [1, 12]}}, "required": ["a"]},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    {"type": "string"},
]
BEGINNINGS = ["<tool>", "<think>", "[", "<a ", "(", "<<"]
ENDS = ["</f>", "]", "/>", ")", "b", ">>"]
USUAL = set(b'ab<>/f=)]:,1xyes"{}')


def content(draw: random.Random, depth: int) -> Any:
    kind = draw.randrange(6)
    if kind == 0:
        return {"type": "json_schema", "json_schema": draw.choice(SCHEMAS)}
    if kind == 1:
        return {"type": "regex", "pattern": draw.choice([r"[ab]+", r"[a-z ]{1,6}", r"\d{2}:\w"])}
    if kind == 2:
        return const(draw.choice(["x", "yes", "/"]))
    if kind == 3:
        return {**TEXT, "excludes": [draw.choice(["ab", "<"])]}
    return form(draw, depth - 1) if depth and kind == 4 else TEXT


def tags(draw: random.Random) -> list[Any]:
    begins = draw.sample(["<f=a>", "<f=b>", "<f=c"], draw.choice([1, 2]))
    return [tag(begin, content(draw, 1), draw.choice(ENDS)) for begin in begins]


def form(draw: random.Random, depth: int) -> Any:
    flags = {name: draw.random() < 0.4 for name in ("at_least_one", "stop_after_first")}
    match draw.randrange(6):
        case 0:
            ends = draw.choice(ENDS) if draw.random() < 0.8 else draw.sample(ENDS, 2)
            inner = content(draw, depth) if draw.random() < 0.5 else sequence(TEXT, content(draw, depth))
            return tag(draw.choice(BEGINNINGS), inner, ends)
        case 1:
            return {"type": "triggered_tags", "triggers": ["<f="], "tags": tags(draw), **flags}
        case 2:
            separator = draw.choice([",", "\n", ""])
            return {"type": "tags_with_separator", "tags": tags(draw), "separator": separator, **flags}
        case 3:
            return {"type": "or", "elements": [content(draw, depth) for _ in range(draw.choice([2, 3]))]}
        case 4:
            kind = draw.choice(["optional", "star", "plus"])
            return {"type": kind, "content": tag(draw.choice(BEGINNINGS), content(draw, 0), draw.choice(ENDS))}
    return sequence(*(content(draw, depth) for _ in range(draw.choice([2, 3]))))


class Ours:
    """A text that a constraint writes."""

    def __init__(self, constraint: Constraint) -> None:
        self.constraint, self.state = constraint, constraint.start()

    def allowed(self) -> list[int]:
        """The bytes that may come next, and 256 if the text may end."""
        end = [256] if self.constraint.may_end(self.state) else []
        return [*self.constraint.allowed(self.state).listed(257).tolist(), *end]

    def accept(self, byte: int) -> None:
        after = self.constraint.advance(self.state, byte)
        assert after is not None
        self.state = after


class Theirs:
    """A text that a compiled grammar of xgrammar writes."""

    def __init__(self, xgrammar: Any, compiled: Any) -> None:
        self.matcher, self.bits = xgrammar.GrammarMatcher(compiled), xgrammar.allocate_token_bitmask(1, 257)

    def allowed(self) -> list[int]:
        """The bytes that may come next, and 256 if the text may end."""
        self.matcher.fill_next_token_bitmask(self.bits)
        return np.flatnonzero(np.unpackbits(self.bits.numpy().view(np.uint8), bitorder="little")[:257]).tolist()

    def accept(self, byte: int) -> None:
        assert self.matcher.accept_token(byte)


def written(draw: random.Random, writer: Ours | Theirs) -> str | None:
    """A random text; ``None`` if it has no end, or characters that the two escape differently."""
    text = bytearray()
    for _ in range(draw.choice([6, 30, 80])):
        found = writer.allowed()
        byte = 256 if 256 in found and draw.random() < 0.25 else draw.choice(found)
        usual = [one for one in found if one in USUAL]
        if byte == 256:
            break
        byte = draw.choice(usual) if usual and draw.random() < 0.95 else byte
        writer.accept(byte)
        text.append(byte)
    return text.decode() if 256 in writer.allowed() and b"\\" not in text and text.isascii() else None


@pytest.mark.extras
@pytest.mark.parametrize("part", first(1, range(8)))
def test_each_accepts_what_the_other_writes(part: int) -> None:
    xgrammar = pytest.importorskip("xgrammar", reason="the package xgrammar is not installed")
    info = xgrammar.TokenizerInfo(
        BYTES.token_bytes, vocab_type=xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[256]
    )
    compiler, compared = xgrammar.GrammarCompiler(info), 0
    for seed in range(50 * part, 50 * part + 50):
        draw = random.Random(seed)
        whole = {"type": "structural_tag", "format": form(draw, 2)}
        try:
            ours = EveryToken(tag=whole, json={"whitespace": "flexible"}).constraint(BYTES, BYTES.size)
        except OptionError:  # free text whose end could not be found
            continue
        compiled = compiler.compile_structural_tag(json.dumps(whole))
        for turn in range(6):
            text = written(draw, Theirs(xgrammar, compiled) if turn % 2 else Ours(ours))
            if text is None:
                continue
            compared += 1
            matcher = xgrammar.GrammarMatcher(compiled)
            found = all(matcher.accept_token(token) for token in [*text.encode(), 256])
            assert (accepts(ours, text), found) == (True, True), (whole["format"], text)
    assert compared > 100
