"""The verdicts of llguidance and xgrammar on a text, byte by byte: each byte is one token."""

from __future__ import annotations

import json
from typing import Any, Protocol

import pytest

from logitloom.errors import LogitloomError
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.json_schema.folds.machine import Machine, accepts
from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema

BYTES = Vocabulary([*[bytes([byte]) for byte in range(256)], b""], eos=[256], name="bytes")


class Judge(Protocol):
    """A compiler of schemas; ``compiled`` gives ``None`` for a schema that is refused."""

    name: str

    def compiled(self, schema: Any) -> Any: ...

    def accepts(self, compiled: Any, text: str) -> bool: ...


class Ours:
    name = "logitloom"

    def compiled(self, schema: Any) -> Machine | None:
        try:
            # As JSON Schema reads integers.
            return compile_schema(schema, SchemaOptions(integers="any"))
        except LogitloomError:
            return None

    def accepts(self, compiled: Machine, text: str) -> bool:
        return accepts(compiled, text)


class LLGuidance:
    name = "llguidance"

    def __init__(self) -> None:
        pytest.importorskip("llguidance", reason="the package llguidance is not installed")
        from logitloom_plugins.grammars.llguidance import LLGuidance as Engine

        self.engine = Engine()

    def compiled(self, schema: Any) -> Any:
        try:
            return self.engine.json_schema(schema).bind(BYTES, BYTES.size)
        except LogitloomError:
            return None

    def accepts(self, compiled: Any, text: str) -> bool:
        state = compiled.start()
        for byte in text.encode():
            state = compiled.advance(state, byte)
            if state is None:
                return False
        return bool(compiled.may_end(state))


class XGrammar:
    name = "xgrammar"

    def __init__(self) -> None:
        xgrammar = pytest.importorskip("xgrammar", reason="the package xgrammar is not installed")
        self.xgrammar = xgrammar
        info = xgrammar.TokenizerInfo([*[bytes([b]) for b in range(256)], b"</s>"], stop_token_ids=[256])
        self.compiler = xgrammar.GrammarCompiler(info, cache_enabled=False)

    def compiled(self, schema: Any) -> Any:
        try:
            return self.compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, strict_mode=False)
        except Exception:  # its errors have no common base class
            return None

    def accepts(self, compiled: Any, text: str) -> bool:
        matcher = self.xgrammar.GrammarMatcher(compiled)
        return bool(matcher.accept_string(text) and matcher.accept_token(256))
