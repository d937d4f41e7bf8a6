"""Memory: bytes of a schema and of a live row beside llguidance and xgrammar, and whether a service stays flat.

    python benchmarks/footprint.py [--schemas 150] [--requests 20000]

Each engine runs in a process of its own, and what is resident is read from ``/proc`` (Linux). Bytes of a schema: growth
while all schemas of the sample are compiled and kept, each with its first mask, per schema. Bytes of a live row: growth
while each of them follows an instance to its end and keeps its state, per row. Flat: the growth of logitloom's process
over the second half of many requests, each of which loads a chain for one of the schemas, changed a little so that none
comes twice, and takes three steps.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from comparison import Comparison, table
from conditions import heading
from fsm import resident
from json_schema import LLGuidance, Ours, Tokenizer, XGrammar, sample

from logitloom import Context, processors
from logitloom.errors import LogitloomError
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from tests.core.automata.vocabularies import tekken
from tests.plugins.json_schema.serialisation import serialise

ENGINES = {engine.name: engine for engine in (Ours, LLGuidance, XGrammar)}


def kibibytes() -> float:
    """What is resident when all that is free went back to the system: otherwise what follows would fill it first."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return resident("VmRSS") * 1024


def grown(name: str, count: int) -> dict[str, float]:
    """KiB of a schema and of a live row, in this process."""
    vocabulary = tekken()
    tokenize = Tokenizer(vocabulary)
    work = []
    for row in sample()[:count]:
        try:
            machine = compile_schema(row["schema"])
            texts = [serialise(machine, test["data"]) for test in row["tests"] if test["valid"]]
        except LogitloomError:
            continue
        work += [(row["schema"], tokenize(text.encode())) for text in texts[:1]]
    engine: Any = ENGINES[name](vocabulary)
    for schema, ids in work[:3]:
        run = engine.start(schema)
        for token in ids:
            engine.mask(run)
            engine.advance(run, token)
    before, kept = kibibytes(), []
    for schema, ids in work:
        try:
            run = engine.start(schema)
        except (ValueError, RuntimeError):
            continue
        engine.mask(run)
        kept.append((run, ids))
    compiled, rows = kibibytes(), []
    for run, ids in kept:
        state = engine.restart(run)
        for token in ids:
            engine.mask(state)
            if not engine.advance(state, token):
                break
        rows.append(state)
    live = kibibytes()
    return {"schema": (compiled - before) / len(kept), "row": (live - compiled) / len(rows)}


def service(requests: int) -> list[float]:
    """MiB that are resident after each twentieth of many requests."""
    vocabulary, schemas = tekken(), [row["schema"] for row in sample()]
    schemas = [schema for schema in schemas if isinstance(schema, dict) and len(json.dumps(schema)) < 2000]
    logits, seen = np.zeros((1, vocabulary.size), dtype=np.float32), []
    for number in range(requests):
        schema = {**schemas[number % len(schemas)], "title": f"request {number}"}
        schema = {"type": "object", "properties": {f"of{number}": schema}, "required": [f"of{number}"]}
        try:
            chain = processors.load(("json", {"schema": schema}), tokenizer=vocabulary, debug=False)
            context = Context.start(logits, vocabulary=vocabulary)
            state = chain.init_state(context)
            for _ in range(3):
                out, state = chain.process(logits, state, context)
                context = context.accept(np.isfinite(out).argmax(-1)[:, None])
        except LogitloomError:
            continue
        finally:
            if (number + 1) % max(1, requests // 20) == 0:
                seen.append(kibibytes() / 1024)
    return seen


def child(*arguments: str) -> Any:
    """What a part printed in a process of its own."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def comparisons(schemas: int = 150, requests: int = 20_000) -> Iterator[Comparison]:
    """Growth per schema and row beside the peers', and the service's two halves."""
    found = {name: child("--grown", name, "--schemas", str(schemas)) for name in ENGINES}
    for what in ("schema", "row"):
        for peer in ("llguidance", "xgrammar"):
            figures = [[max(found[name][what], 0.1)] for name in ("logitloom", peer)]
            work = f"memory of a {'compiled schema' if what == 'schema' else 'live row at its end'}"
            yield Comparison(work, peer, "KiB", *figures, "footprint.py")
    seen = child("--service", "--requests", str(requests))
    half = len(seen) // 2
    work = f"resident memory over {requests:,} requests, the second half"
    yield Comparison(
        work, "the end of the first half", "MiB", seen[half:], [seen[half - 1]] * (len(seen) - half), "footprint.py"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--schemas", type=int, default=150)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--grown", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--service", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.grown:
        print(json.dumps(grown(given.grown, given.schemas)))
    elif given.service:
        print(json.dumps(service(given.requests)))
    else:
        print(heading("numba", "llguidance", "xgrammar", "mistral-common"))
        print(table(list(comparisons(given.schemas, given.requests))))


if __name__ == "__main__":
    main()
