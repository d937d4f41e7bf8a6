"""The engine llguidance: an Earley parser over lexemes, driven through copy-on-write handles.

References:
    M. Moskal et al., "LLGuidance: making structured outputs go brrr", 2025; https://github.com/guidance-ai/llguidance.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final

import llguidance
import numpy as np
from numpy.typing import NDArray

from logitloom.errors import UnsupportedSchema, VocabularyError
from logitloom.vocabulary import Vocabulary

__all__ = ["Handle", "LLGuidance", "LLGuidanceGrammar"]

_TOKENIZERS: weakref.WeakKeyDictionary[Vocabulary, dict[int, Any]] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()
_LONGEST_RUN: Final = 256


class Handle:
    """A matcher that has read some tokens and is never advanced again."""

    __slots__ = ("__weakref__", "children", "finished", "matcher")

    def __init__(self, matcher: Any, finished: bool = False) -> None:
        self.matcher = matcher
        self.finished = finished
        self.children: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()


class LLGuidance:
    """The engine plug-in."""

    def json_schema(self, schema: Any, *, whitespace: str = "flexible", formats: bool = True) -> LLGuidanceGrammar:
        """The grammar of a JSON Schema.

        Args:
            schema: a JSON value.
            whitespace: ``flexible``, ``compact`` or ``one_space``.
            formats: whether ``format`` is enforced; the engine can do no other, so ``False`` removes the keyword.

        Raises:
            UnsupportedSchema: with the engine's own words.
        """
        options: dict[str, Any] = {"whitespace_flexible": whitespace == "flexible", "lenient": False}
        if whitespace != "flexible":
            space = " " if whitespace == "one_space" else ""
            options |= {"item_separator": "," + space, "key_separator": ":" + space}
        text = json.dumps(schema if isinstance(schema, dict) else {} if schema else {"not": {}})
        grammar = llguidance.LLMatcher.grammar_from_json_schema(text, overrides=options)
        return self._checked(grammar, "schema")

    def lark(self, text: str) -> LLGuidanceGrammar:
        """The grammar that a text in the syntax of Lark describes."""
        return self._checked(llguidance.LLMatcher.grammar_from_lark(text), "grammar")

    def _checked(self, grammar: str, what: str) -> LLGuidanceGrammar:
        wrong = llguidance.LLMatcher.validate_grammar(grammar)
        if wrong and not wrong.startswith("WARNING"):
            raise UnsupportedSchema(
                f"The engine llguidance {llguidance.__version__} refuses the {what}: {wrong.strip()}"
            )
        if wrong:
            raise UnsupportedSchema(
                f"The engine llguidance {llguidance.__version__} would not enforce all of the {what}: {wrong.strip()}"
            )
        return LLGuidanceGrammar(grammar)


class LLGuidanceGrammar:
    """A grammar that the engine has accepted."""

    def __init__(self, grammar: str) -> None:
        self.grammar = grammar

    def bind(self, vocabulary: Vocabulary, vocab_size: int) -> _Bound:
        """The grammar for a vocabulary and a width of logits."""
        return _Bound(self.grammar, vocabulary, vocab_size)


class _Wrapped:
    """A vocabulary as the engine reads tokenizers."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos[0]
        self.bos_token_id = None
        # Ids without text must look special to the engine: an empty token would be allowed everywhere.
        self.tokens = [
            text if text else b"\xff" + f"<|{token}|>".encode() for token, text in enumerate(vocabulary.token_bytes)
        ]
        self.special_token_ids = [token for token, text in enumerate(vocabulary.token_bytes) if not text]
        longest: dict[bytes, int] = {}
        for token, text in enumerate(vocabulary.token_bytes):
            if text:
                longest.setdefault(text, token)
        self._ids = longest
        self._longest = max(map(len, longest))

    def __call__(self, text: bytes | str) -> list[int]:
        data = text.encode() if isinstance(text, str) else bytes(text)
        ids = []
        while data:
            for size in range(min(len(data), self._longest), 0, -1):
                token = self._ids.get(data[:size])
                if token is not None:
                    ids.append(token)
                    data = data[size:]
                    break
            else:
                data = data[1:]
        return ids


def _tokenizer(vocabulary: Vocabulary, vocab_size: int) -> Any:
    with _LOCK:
        known = _TOKENIZERS.setdefault(vocabulary, {})
        if vocab_size not in known:
            if not vocabulary.eos:
                raise VocabularyError(
                    f"{vocabulary.name} has no end-of-sequence id, so no text could ever end. Use Vocabulary.with_eos."
                )
            wrapper = llguidance.TokenizerWrapper(_Wrapped(vocabulary))
            known[vocab_size] = llguidance.LLTokenizer(wrapper, n_vocab=vocab_size, eos_token=list(vocabulary.eos))
        return known[vocab_size]


class _Bound:
    def __init__(self, grammar: str, vocabulary: Vocabulary, vocab_size: int) -> None:
        self.vocabulary = vocabulary
        self.vocab_size = vocab_size
        self._eos = frozenset(vocabulary.eos)
        self._tokenizer = _tokenizer(vocabulary, vocab_size)
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise UnsupportedSchema(f"The engine llguidance cannot run the grammar: {matcher.get_error().strip()}")
        self._start = Handle(matcher)
        self._executor = llguidance.LLExecutor()
        self._words = (vocab_size + 31) // 32
        self._buffers = threading.local()
        self._ended = np.zeros(self._words, dtype=np.int32)
        ended = self._ended.view(np.uint32)
        for token in vocabulary.eos:
            ended[token // 32] |= np.uint32(1 << token % 32)

    def start(self) -> Handle:
        return self._start

    def advance(self, handle: Handle, token: int) -> Handle | None:
        if handle.finished:
            return handle
        known = handle.children.get(token)
        if known is not None:
            return known
        if token in self._eos:
            return Handle(handle.matcher, True) if handle.matcher.is_accepting() else None
        if not 0 <= token < self.vocabulary.size or not self.vocabulary.token_bytes[token]:
            return None
        matcher = handle.matcher.deep_copy()
        if matcher.try_consume_tokens([token]) != 1:
            return None
        following = Handle(matcher)
        handle.children[token] = following
        return following

    def bits(self, handles: Sequence[Handle]) -> NDArray[np.int32]:
        # Rows that share a handle (beams that have just split) share its mask.
        distinct = list({id(handle): handle for handle in handles}.values())
        buffer = getattr(self._buffers, "bits", None)
        if buffer is None or len(buffer) < len(distinct):
            buffer = self._buffers.bits = np.zeros((len(distinct), self._words), dtype=np.int32)
        work = [(handle.matcher, i) for i, handle in enumerate(distinct) if not handle.finished]
        if len(work) == 1:
            row = buffer[work[0][1]]
            work[0][0].unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        elif work:
            self._executor.unsafe_compute_mask_ptr(work, buffer.ctypes.data, 4 * self._words, len(buffer))
        for i, handle in enumerate(distinct):
            if handle.finished:
                buffer[i] = self._ended
            elif handle.matcher.is_error():
                raise UnsupportedSchema(f"The engine llguidance failed: {handle.matcher.get_error().strip()}")
        if len(distinct) == len(handles):
            return buffer[: len(distinct)]
        place = {id(handle): i for i, handle in enumerate(distinct)}
        return buffer[[place[id(handle)] for handle in handles]]

    def forced(self, handle: Handle) -> list[int]:
        run: list[int] = []
        while len(run) < _LONGEST_RUN:
            words = self.bits([handle])[0].view(np.uint32)
            used = words.nonzero()[0]
            if len(used) != 1 or (word := int(words[used[0]])) & (word - 1):
                break
            run.append(32 * int(used[0]) + word.bit_length() - 1)
            following = None if run[-1] in self._eos else self.advance(handle, run[-1])
            if following is None:
                break
            handle = following
        return run
