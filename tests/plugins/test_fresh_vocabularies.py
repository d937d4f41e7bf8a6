"""Vocabularies that nobody uses any more are given back, whatever they were used for."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.automata.cache import default_cache

#: Caches that are bounded by a number of vocabularies keep at most so many.
_MOST_KEPT = 8
SPECS: dict[str, Any] = {
    "regex": ("regex", {"pattern": "[a-z]{3,9}[0-9]+"}),
    "regex visited lazily": ("regex", {"pattern": r".{0,100} Darwin/\d.{0,100}\(Mac.{0,100}x"}),
    "json": ("json", {"schema": {"properties": {"a": {"type": "string", "pattern": "^[a-z]+$"}}}}),
    "until": ("until", {"trigger": "zz", "inner": ["regex", {"pattern": "[a-z]+"}]}),
    "tool_call": ("tool_call", {"tools": [{"name": "f", "parameters": {"type": "object"}}], "choice": "required"}),
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.long
def test_vocabularies_out_of_use_are_given_back(name: str) -> None:
    alive: list[weakref.ref[Vocabulary]] = []
    for number in range(3 * _MOST_KEPT):
        words = [b"", *[bytes([byte]) for byte in range(256)], b'{"', b'":', b"zz", b"unlike %d" % number]
        vocabulary = Vocabulary(words, eos=[0], name=f"vocabulary {number}")
        alive.append(weakref.ref(vocabulary))
        chain = processors.load(SPECS[name], tokenizer=vocabulary)
        logits = np.zeros((1, vocabulary.size), dtype=np.float32)
        context = Context.start(logits, vocabulary=vocabulary, prompt=[[1]], max_new_tokens=400)
        state = chain.init_state(context)
        for _ in range(3):
            out, state = chain.process(logits, state, context)
            context = context.accept([[int(np.isfinite(out[0]).nonzero()[0][-1])]])
        del vocabulary, chain, context, state, out
    default_cache().clear()  # which is bounded in bytes
    gc.collect()
    assert sum(reference() is not None for reference in alive) <= _MOST_KEPT
