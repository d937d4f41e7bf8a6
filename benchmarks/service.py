"""A service: 64 rows, each with its own fresh schema, that arrive one by one over 500 steps.

    python benchmarks/service.py [--rows 64] [--steps 500] [--offset 0] [--kinds far limits first]

A row follows the valid instances of its schema, in turn, from its arrival to the end. Measured is the constraint time
of every step: compiling what arrives, accepting a token in each row, all masks, and applying them to float32 logits of
131,072 ids. logitloom runs as its adapter for vLLM, llguidance with its parallel executor, xgrammar with its batched
matcher, each with the threads that it takes by default. The logits of a step are written anew before it, outside the
time. The same schemas arrive at the same steps for all.

``far``: every request may take 32,768 tokens. ``limits``: a request may take as many tokens as clients ask for, 256 to
2,048, at least 1.2 times the tokens of its texts. ``first``: limits, and each engine serves in a new process, so it
meets each format for the first time; every second schema has a format.

What exists when the service begins is frozen for Python's garbage collector, as vLLM does when it has started.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from comparison import Comparison, table
from conditions import heading
from json_schema import Tokenizer, sample
from vllm_adapter import engine_of

from logitloom import Vocabulary
from logitloom.errors import LogitloomError
from logitloom_contrib.engines.vllm.runner_v1 import RunnerV1
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from tests.core.automata.vocabularies import tekken
from tests.plugins.json_schema.serialisation import serialise

LONGEST = 400
#: Limits that clients set.
LIMITS = (256, 512, 1024, 2048)
FAR = 1 << 15
KINDS = {
    "far": "a step of up to {rows} rows, each with its own fresh schema",
    "limits": "the same, where requests have limits of 256 to 2,048 tokens",
    "first": "the same in a new process, every second schema with a format",
}


class Request(NamedTuple):
    """What one client asks for."""

    schema: str
    #: The tokens of valid instances, one after another.
    texts: list[list[int]]

    def limit(self, row: int) -> int:
        """A limit of those that clients set, in turn over the rows, with room for the texts."""
        enough = [limit for limit in LIMITS if limit >= 1.2 * max(map(len, self.texts))]
        return enough[row % len(enough)]


class Ours:
    """The adapter for model runner V1, as vLLM calls it."""

    name = "logitloom"

    def __init__(self, vocabulary: Vocabulary, rows: int) -> None:
        self.runner = RunnerV1(engine_of(vocabulary, max_length=1 << 16))
        self.outputs: list[list[int]] = []
        self.update: Any = None

    def join(self, row: int, schema: str, limit: int) -> None:
        extra = {"logitloom": [{"use": "json", "options": {"schema": schema}}]}
        ends = {"stop_token_ids": [], "all_stop_token_ids": {2}}
        params = SimpleNamespace(extra_args=extra, seed=row, max_tokens=limit, **ends)
        output: list[int] = []
        if row < len(self.outputs):  # a text has ended, and the next one takes its row
            self.outputs[row] = output
        else:
            self.outputs.append(output)
        joined = (*(self.update.added if self.update else ()), (row, params, [5, 6, 7], output))
        self.update = SimpleNamespace(batch_size=len(self.outputs), removed=[], added=list(joined), moved=[])

    def step(self, logits: torch.Tensor) -> None:
        self.runner.update_state(self.update)
        self.runner.apply(logits)
        self.update = None

    def accept(self, tokens: Sequence[int | None]) -> None:
        for output, token in zip(self.outputs, tokens, strict=True):
            if token is not None:
                output.append(token)

    def check(self) -> None:
        failures = [request.failure for request in self.runner.requests.values() if request.failure]
        assert not failures, failures


class LLGuidance:
    """A matcher per row, masks by the parallel executor."""

    name = "llguidance"

    def __init__(self, vocabulary: Vocabulary, rows: int) -> None:
        import llguidance
        import llguidance.torch as kernels

        from logitloom_plugins.grammars.llguidance import engine_tokenizer

        self.library, self.kernels = llguidance, kernels
        self.tokenizer = engine_tokenizer(vocabulary, vocabulary.size)
        self.executor = llguidance.LLExecutor()
        self.bits = kernels.allocate_token_bitmask(rows, vocabulary.size)
        self.matchers: list[Any] = []

    def join(self, row: int, schema: str, limit: int) -> None:
        grammar = self.library.LLMatcher.grammar_from_json_schema(schema)
        matcher = self.library.LLMatcher(self.tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        self.matchers[row : row + 1] = [matcher]

    def step(self, logits: torch.Tensor) -> None:
        bits = self.bits[: len(self.matchers)]
        self.kernels.fill_next_token_bitmask_par(
            self.executor, [(matcher, row) for row, matcher in enumerate(self.matchers)], bits
        )
        self.kernels.apply_token_bitmask_inplace(logits, bits)

    def accept(self, tokens: Sequence[int | None]) -> None:
        taken = [(m, token) for m, token in zip(self.matchers, tokens, strict=True) if token is not None]
        if not all(self.kernels.consume_token_par(self.executor, taken)):
            raise ValueError("rejected a token")

    def check(self) -> None:
        assert not any(matcher.is_error() for matcher in self.matchers)


class XGrammar:
    """A matcher per row, masks by the batched matcher."""

    name = "xgrammar"

    def __init__(self, vocabulary: Vocabulary, rows: int) -> None:
        import xgrammar

        texts = [text if text else f"<|{i}|>".encode() for i, text in enumerate(vocabulary.token_bytes)]
        info = xgrammar.TokenizerInfo(texts, stop_token_ids=list(vocabulary.eos))
        self.library = xgrammar
        self.compiler = xgrammar.GrammarCompiler(info, cache_enabled=False)
        self.batch = xgrammar.BatchGrammarMatcher()
        self.bits = xgrammar.allocate_token_bitmask(rows, info.vocab_size)
        self.matchers: list[Any] = []

    def join(self, row: int, schema: str, limit: int) -> None:
        compiled = self.compiler.compile_json_schema(schema, any_whitespace=True, strict_mode=False)
        self.matchers[row : row + 1] = [self.library.GrammarMatcher(compiled)]

    def step(self, logits: torch.Tensor) -> None:
        bits = self.bits[: len(self.matchers)]
        self.batch.batch_fill_next_token_bitmask(self.matchers, bits)
        self.library.apply_token_bitmask_inplace(logits, bits)

    def accept(self, tokens: Sequence[int | None]) -> None:
        taken = [(m, token) for m, token in zip(self.matchers, tokens, strict=True) if token is not None]
        if not all(self.batch.batch_accept_token([m for m, _ in taken], [token for _, token in taken])):
            raise ValueError("rejected a token")

    def check(self) -> None:
        return


def requests(
    vocabulary: Vocabulary, count: int, offset: int, engines: Sequence[type], formats: bool = False
) -> list[Request]:
    """Schemas that every engine takes, with their valid instances; with ``formats``, every second one has a format."""
    tokenize, found = Tokenizer(vocabulary), []
    tried = [engine(vocabulary, 1) for engine in engines]
    for row in sample()[offset :: 1 if formats else 3]:
        if formats and len(found) % 2 == 0 and '"format": "' not in json.dumps(row["schema"]):
            continue
        try:
            machine = compile_schema(row["schema"])
            texts = [serialise(machine, test["data"]) for test in row["tests"] if test["valid"]]
            walks = [ids for ids in (tokenize(text.encode()) for text in texts) if 1 < len(ids) <= LONGEST]
            for engine in tried:
                for ids in walks[:1]:
                    engine.join(0, json.dumps(row["schema"]), FAR)
                    for token in ids:
                        engine.step(torch.zeros((1, vocabulary.size)))
                        engine.accept([token])
                    engine.step(torch.zeros((1, vocabulary.size)))
                    engine.check()
        except (LogitloomError, ValueError, RuntimeError, AssertionError):
            continue
        if walks:
            found.append(Request(json.dumps(row["schema"]), walks))
        if len(found) == count:
            break
    return found


def serve(
    engine: Any, asked: Sequence[Request], rows: int, steps: int, width: int, limited: bool = False
) -> list[float]:
    """Milliseconds of constraint time of each step."""
    limits = [request.limit(row) if limited else FAR for row, request in enumerate(asked)]
    logits, times = torch.zeros((rows, width)), []
    walks: list[list[int]] = []
    texts_at: list[list[int]] = []  # per row: which text of its schema, and how far
    gc.collect()
    gc.freeze()
    for step in range(steps):
        logits.fill_(0.5)
        due = len(walks) < rows and step * rows >= len(walks) * steps
        begin = time.perf_counter()
        for row, (text, at) in enumerate(texts_at):
            if at == len(walks[row]):
                schema, texts = asked[row]
                texts_at[row], walks[row] = [text + 1, 0], texts[(text + 1) % len(texts)]
                engine.join(row, schema, limits[row])
        if due:
            schema, texts = asked[len(walks)]
            engine.join(len(walks), schema, limits[len(walks)])
            texts_at.append([0, 0])
            walks.append(texts[0])
        engine.step(logits[: len(walks)])
        spent = time.perf_counter() - begin
        tokens = [walk[at] for walk, (_, at) in zip(walks, texts_at, strict=True)]
        begin = time.perf_counter()
        engine.accept(tokens)
        times.append(1e3 * (spent + time.perf_counter() - begin))
        for state in texts_at:
            state[1] += 1
    gc.unfreeze()
    engine.check()
    return times


ENGINES = (Ours, LLGuidance, XGrammar)


def serve_first(name: str, asked: Sequence[Request], rows: int, steps: int) -> list[float]:
    """``serve`` of the engine of this name, with limits, for a process that has done nothing before."""
    vocabulary = tekken()
    kind = next(kind for kind in ENGINES if kind.name == name)
    return serve(kind(vocabulary, rows), asked, rows, steps, vocabulary.size, limited=True)


def comparisons(rows: int = 64, steps: int = 500, offset: int = 0, kind: str = "far") -> Iterator[Comparison]:
    """Our adapter beside both peers, in one of the ``KINDS``."""
    vocabulary = tekken()
    asked = requests(vocabulary, rows, offset, ENGINES, formats=kind == "first")
    if len(asked) < rows:
        raise SystemExit(f"only {len(asked)} schemas are taken by all engines")
    times = {}
    for engine in ENGINES:
        if kind == "first":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                times[engine.name] = pool.apply(serve_first, (engine.name, asked, rows, steps))
            continue
        # Process-wide memories of ours know these schemas from the trial; what serves is a new engine.
        serve(engine(vocabulary, rows), asked[:2], 2, 20, vocabulary.size)
        limited = kind == "limits"
        times[engine.name] = serve(engine(vocabulary, rows), asked, rows, steps, vocabulary.size, limited)
    for peer in ("llguidance", "xgrammar"):
        work = f"service: {KINDS[kind].format(rows=rows)}"
        yield Comparison(work, peer, "ms", times["logitloom"], times[peer], "service.py")
        mean = [[float(np.mean(times[name]))] for name in ("logitloom", peer)]
        yield Comparison(f"{work}: the mean", peer, "ms", *mean, "service.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    given = parser.parse_args()
    print(heading("numba", "torch", "llguidance", "xgrammar", "mistral-common"))
    found = [c for kind in given.kinds for c in comparisons(given.rows, given.steps, given.offset, kind)]
    print(table(found))


if __name__ == "__main__":
    main()
