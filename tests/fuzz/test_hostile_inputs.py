"""Random hostile inputs, with fixed seeds: options, tensors, states, combinators, requests, files and grammars.

Each input is taken, or refused with an error of logitloom. Anything else is a fault: ``raw`` (another exception) or
``wrong`` (a row was ruined, a forbidden processor was reached, a damaged file was used). ``LOGITLOOM_FUZZ_SECONDS``
says how long each domain is tried, and then the counts are printed. The default run tries few.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.automata import AutomatonCache
from logitloom.errors import LogitloomError
from logitloom.rows import tree as rows
from tests.contrib.engines.vllm.conftest import engine_of, params_of
from tests.fuzz.extreme_options import BUILT_INS, extreme_options
from tests.plugins.processors.test_grammar_budget import made_up

SECONDS = float(os.environ.get("LOGITLOOM_FUZZ_SECONDS", "0"))
FEWEST = 40
WORDS = Vocabulary([b"", *[bytes([97 + i]) for i in range(15)]], eos=[0])
WIDTH = 16

VALUES: list[Any] = [
    None, True, -1, 0, 1, 2, 7, 2**31, 2**64, 0.5, 1e-45, 1e300, -1e300, float("nan"), float("inf"), "", "a", "[a-e]+",
    "(", "\ud800", b"a", [], ["a", "b"], [1], {}, {"1": 2.0}, {"use": "top_k", "options": {"k": 2}},
    ["regex", {"pattern": "a+"}], (1, 2), object(),
]  # fmt: skip
#: Processors of the chains of several; ``extreme_options`` probes each built-in by itself.
NAMES = [
    "after", "all_of", "bad_words", "between", "budget", "choice", "dry", "epsilon_cutoff", "eta_cutoff",
    "force_tokens", "frequency_penalty", "logit_bias", "min_p", "min_tokens", "no_repeat_ngram", "presence_penalty",
    "regex", "repetition_penalty", "stop", "suppress_tokens", "temperature", "top_k", "top_n_sigma", "top_p",
    "typical_p", "until", "xtc",
]  # fmt: skip


def pick(draw: Any, items: Any) -> Any:
    return items[int(draw.integers(len(items)))]


def chain_of(draw: Any) -> Any:
    """A chain of random processors with random options; most are refused."""
    specs = []
    for _ in range(int(draw.integers(1, 4))):
        name = pick(draw, NAMES)
        declared = processors.describe(name).options
        given = {o.name: pick(draw, VALUES) for o in declared if o.required or draw.random() < 0.2}
        specs.append((name, given))
    return processors.load(*specs, tokenizer=WORDS)


def sound(out: Any, before: Any) -> bool:
    """Whether a row came out as logits: no NaN, no +inf, and what was forbidden still is."""
    return not np.isnan(out).any() and not np.isposinf(out).any() and bool(np.isneginf(out[np.isneginf(before)]).all())


def options(draw: Any, folder: Path) -> bool:
    del folder
    chain = chain_of(draw)
    logits = draw.normal(size=(2, WIDTH)).astype(np.float32) * 5
    logits[:, 3] = -np.inf
    context = Context.start(logits, prompt=[[1], [2, 3]], max_length=40, vocabulary=WORDS)
    out, _ = chain.process(logits.copy(), chain.init_state(context), context)
    return sound(out, logits)


CHAINS = [
    [("temperature", {"temperature": 0.7})], [("regex", {"pattern": "[a-e]+"})], [("stop", {"strings": ["ab"]})],
    [("frequency_penalty", {"penalty": 0.5}), ("no_repeat_ngram", {"n": 2})],
    [("after", {"trigger": "a", "inner": ["choice", {"choices": ["bc", "d"]}]})],
    [("until", {"trigger": "b", "inner": ["top_k", {"k": 3}]}), ("top_p", {"p": 0.9})],
]  # fmt: skip


def tensors(draw: Any, folder: Path) -> bool:
    del folder
    chain = processors.load(*pick(draw, CHAINS), tokenizer=WORDS)
    good = np.zeros((2, WIDTH), dtype=np.float32)
    context = Context.start(good, prompt=[[1], [2]], max_length=40, vocabulary=WORDS)
    state = chain.init_state(context)
    shape = pick(draw, [(2, WIDTH), (1, WIDTH), (3, WIDTH), (2, 7), (WIDTH,), (), (2, 2, WIDTH), (0, WIDTH)])
    dtype = pick(draw, ["float32", "float32", "float16", "float64", "int32", "bool", "complex64", "object", "U1"])
    given: Any = np.zeros(shape, dtype=dtype)
    if draw.random() < 0.1:
        given = given.tolist()
    tokens = pick(draw, [None, [[1], [2]], [[1]], [[], [4]], [[99], [1]], [[-5], [1]], [["a"], [1]], [[1.5]], "ab", 5])
    if draw.random() < 0.2:
        state = pick(draw, [None, (), rows.take(state, [0]), rows.repeat(state, 2), 5])
    step = context if tokens is None else context.accept(tokens)
    out, _ = chain.process(given, state, step)
    return out.shape == given.shape and not np.isnan(out.astype(np.float64)).any()


def mutated(draw: Any, value: Any, depth: int = 0) -> Any:
    """A JSON value with parts replaced, dropped or nested."""
    if draw.random() < 0.12:
        return pick(draw, [None, -1, 2**62, 1e308, "", "x" * 300, "/etc/passwd", "http://x/", [], {}, ["a"], "\ud800"])
    if isinstance(value, dict):
        return {k: mutated(draw, v, depth + 1) for k, v in value.items() if draw.random() > 0.05}
    if isinstance(value, list):
        return [mutated(draw, v, depth + 1) for v in value]
    return value


REQUESTS = [
    [{"use": "regex", "options": {"pattern": "[a-e]{2,4}"}}, {"use": "top_k", "options": {"k": 5}}],
    [{"use": "json", "options": {"schema": {"properties": {"a": {"enum": [1, "x"]}}}, "engine": "table"}}],
    [{"use": "choice", "options": {"choices": ["red", "blue"]}}],
    [{"use": "after", "options": {"trigger": "a", "inner": ["grammar", {"grammar": "/etc/passwd"}]}}],
    [{"use": "after", "options": {"trigger": "a", "inner": ["after", {"trigger": "b", "inner": ["top_k", {"k": 2}]}]}}],
    [{"use": "after", "options": {"trigger": "a", "inner": [["after", {"trigger": "b", "inner": ["grammar", {}]}]]}}],
    {"logitloom": 1, "processor": [{"use": "logit_bias", "options": {"bias": {"5": -1.0}}}]},
]  # fmt: skip
_ENGINE = engine_of(additional_config={"logitloom": {"allow": ["+after"], "seconds": 0.5, "states": 2000}})


def requests(draw: Any, folder: Path) -> bool:
    del folder
    given = mutated(draw, pick(draw, REQUESTS))
    text = json.dumps(given)
    if draw.random() < 0.3:
        cut = int(draw.integers(len(text) + 1))
        given = text[:cut] + pick(draw, ["", "]", "{", "\\u0000", "NaN"]) + text[cut:]
    try:
        _ENGINE.admit(params_of(given))
    except ValueError as error:
        # What vLLM answers with HTTP 400; LogitloomErrors are what is told apart from raw ones.
        if "root:" in str(error):
            return False
        raise LogitloomError(str(error)) from error
    return '"grammar"' not in json.dumps(given)


PATTERN = "[a-e]+f|g{2,5}"


def files(draw: Any, folder: Path) -> bool:
    store = folder / "automata"
    expected = AutomatonCache(directory=store).pattern(PATTERN, WORDS)
    (path,) = store.glob("*.automaton")
    content = bytearray(path.read_bytes())
    for _ in range(int(draw.integers(1, 6))):
        content[int(draw.integers(len(content)))] = int(draw.integers(256))
    cut = int(draw.integers(len(content))) if draw.random() < 0.2 else len(content)
    path.write_bytes(bytes(content[:cut]))
    found = AutomatonCache(directory=store).pattern(PATTERN, WORDS)
    return all(np.array_equal(a, b) for a, b in zip(found.tables(), expected.tables(), strict=True))


SAVED: list[Any] = [
    (("regex", {"pattern": "[a-e]+f|g{2,5}"}), ("frequency_penalty", {"penalty": 0.5})),
    (("regex", {"pattern": "(?:[ab]*a[ab]{12}c){2}"}), ("no_repeat_ngram", {"n": 3})),
    (("until", {"trigger": "c", "inner": ["choice", {"choices": ["aba", "b"]}]}),),
]


def saved_states(draw: Any, folder: Path) -> bool:
    """Damaged bytes of a state are refused; undamaged ones are the state again."""
    del folder
    chain = processors.load(*pick(draw, SAVED), tokenizer=WORDS)
    logits = np.zeros((2, WIDTH), dtype=np.float32)
    context = Context.start(logits, prompt=[[1], [2]], max_length=30, vocabulary=WORDS)
    _, state = chain.process(logits.copy(), chain.init_state(context), context)
    content = chain.save_state(state)
    damaged = bytearray(content)
    for _ in range(int(draw.integers(0, 5))):
        damaged[int(draw.integers(len(damaged)))] = int(draw.integers(256))
    if draw.random() < 0.2:
        damaged = damaged[: int(draw.integers(len(damaged)))]
    again = chain.load_state(bytes(damaged), context)
    expected, _ = chain.process(logits.copy(), state, context)
    found, _ = chain.process(logits.copy(), again, context)
    return bytes(damaged) == content and np.array_equal(found, expected)


def grammars(draw: Any, folder: Path) -> bool:
    """Random grammars, some damaged, on both engines: a constraint, or a sentence."""
    del folder
    text = made_up(random.Random(int(draw.integers(2**31))))
    if draw.random() < 0.5:
        cut = int(draw.integers(len(text) + 1))
        text = text[:cut] + pick(draw, ["", ")", "(", '"', "[", "{9}", "\\", " ::= ", "\ud800", "\0", "#"]) + text[cut:]
    given = {"grammar": text, "engine": pick(draw, ["llguidance", "xgrammar"]), "max_seconds": 0.3, "syntax": "gbnf"}
    made = processors.load(("grammar", given))["grammar"].constraint(WORDS, WIDTH)
    found = made.allowed(made.start()).listed(WIDTH)
    return bool(len(found) or made.may_end(made.start())) and 0 not in found


@pytest.mark.parametrize(
    "domain",
    [
        options, extreme_options, tensors, requests, files, saved_states,
        pytest.param(grammars, marks=pytest.mark.extras),
    ],
    ids=lambda domain: domain.__name__,
)  # fmt: skip
def test_hostile_inputs_are_taken_or_refused(
    domain: Callable[[Any, Path], bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for needed in ("llguidance", "xgrammar") if domain is grammars else ():
        pytest.importorskip(needed, reason=f"the package {needed} is not installed")
    draw = np.random.default_rng(20261123)
    counts: Counter[str] = Counter(tried=0, refused=0, wrong=0, raw=0)
    faults: list[str] = []
    end = time.monotonic() + SECONDS
    while counts["tried"] < FEWEST or time.monotonic() < end:
        counts["tried"] += 1
        before = draw.bit_generator.state["state"]["state"]
        try:
            with np.errstate(all="ignore"):
                right = domain(draw, tmp_path)
        except LogitloomError:
            counts["refused"] += 1
        except Exception as error:
            counts["raw"] += 1
            faults.append(f"raw, generator at {before}: {type(error).__name__}: {error!s:.200}")
        else:
            if not right:
                counts["wrong"] += 1
                faults.append(f"wrong, generator at {before}")
    with capsys.disabled():
        if SECONDS:
            print(f"\n{domain.__name__}: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    assert not faults, faults[:10]


@pytest.mark.extras
def test_every_built_in_is_probed() -> None:
    """Grammar engines and models included."""
    assert sorted(r.name for r in processors.available() if r.distribution == "logitloom") == BUILT_INS
