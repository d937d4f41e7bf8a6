"""How many Python functions, in how many files of the project, `init_state` and a step run through.

    python benchmarks/step_calls.py [--part 20] [--offset 0] [--show 3]

The first table has the steps of `json` at places that were never visited: every twentieth schema of the sample of
JSONSchemaBench and the ids of Tekken, as `benchmarks/json_schema.py` takes them, with the valid instances and a chain
of one row. A place is new if the step asks the constraint for a mask for the first time. The second table has `load`
and `init_state` of `json` for a schema of an object with two members, and a step of a chain of `temperature`, `top_k`
and `top_p`, without and with compiled kernels.

Calls and files are those of the project's own Python functions; depth is the number of such calls within one another.
`within` counts the files that run inside the constraint: `advance`, `allowed` and `may_end`. `--show` lists the
functions that are called most often, per step, and the files by the share of steps that run through them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from json_schema import Tokenizer, sample, tekken

import logitloom
from logitloom import Context, Vocabulary, processors
from logitloom.errors import LogitloomError
from logitloom.masks.kernels import load_kernels
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint
from tests.plugins.json_schema.serialisation import serialise

ROOT = str(Path(logitloom.__file__).parents[2])
BENCHMARKS = str(Path(__file__).parent)
MOST_TOKENS = 200
#: The methods by which a chain asks the constraint of `json`.
ENTRIES = frozenset(
    method.__code__ for method in (SchemaConstraint.advance, SchemaConstraint.allowed, SchemaConstraint.may_end)
)
ORDINARY = ("temperature", ("top_k", {"k": 50}), ("top_p", {"p": 0.9}))
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}


class Trace:
    """The project's functions that a call runs through.

    Attributes:
        calls: how often each function was called.
        within: the files that run inside the constraint.
        depth: the most calls within one another.
    """

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.within: set[str] = set()
        self.depth = 0

    @property
    def files(self) -> set[str]:
        """The files that run."""
        return {code.co_filename for code in self.calls}

    def run(self, call: Callable[[], Any]) -> Any:
        """The result of a call, which is traced."""
        open_calls = inside = 0

        def note(frame: FrameType, event: str, _: object) -> None:
            nonlocal open_calls, inside
            code = frame.f_code
            if event not in ("call", "return") or not code.co_filename.startswith(ROOT):
                return
            if code.co_filename.startswith(BENCHMARKS):
                return
            change = 1 if event == "call" else -1
            open_calls += change
            inside += change * (code in ENTRIES)
            if event == "call":
                self.calls[code] += 1
                self.depth = max(self.depth, open_calls)
                if inside:
                    self.within.add(code.co_filename)

        sys.setprofile(note)
        try:
            return call()
        finally:
            sys.setprofile(None)


def traced(call: Callable[[], Any]) -> tuple[Any, Trace]:
    """The result of a call, and what it ran through."""
    trace = Trace()
    return trace.run(call), trace


def second_table(vocabulary: Vocabulary) -> Iterator[tuple[str, Trace]]:
    """The beginning of `json`, and a step of an ordinary chain; everything has run once before."""
    logits = np.random.default_rng(0).normal(0, 3, (1, vocabulary.size)).astype(np.float32)
    context = Context.start(logits, vocabulary=vocabulary)
    for last, schema in ((False, SCHEMA), (True, {**SCHEMA, "required": ["age"]})):
        asked = ("json", {"schema": schema, "engine": "table"})
        loaded, loading = traced(lambda asked=asked: processors.load(asked, tokenizer=vocabulary))  # type: ignore[misc]
        _, beginning = traced(lambda loaded=loaded: loaded.init_state(context))  # type: ignore[misc]
        if last:
            yield "`load` of `json`", loading
            yield "`init_state` of `json`", beginning
    for kernels in ("NumPy", "compiled kernels"):
        if kernels != "NumPy":
            load_kernels()
        chain = processors.load(*ORDINARY)
        state = chain.init_state(context)
        chain.process(logits, state, context)
        trace = traced(lambda step=(logits, state, context): chain.process(*step))[1]  # type: ignore[misc]  # noqa: B023
        yield f"step of `temperature`, `top_k`, `top_p`, {kernels}", trace


def new_places(schema: Any, texts: list[list[int]], vocabulary: Vocabulary) -> Iterator[tuple[bytes, Trace]]:
    """The last token and the trace of each step that visits a place for the first time."""
    chain = processors.load(("json", {"schema": schema, "engine": "table"}), tokenizer=vocabulary)
    logits = np.zeros((1, vocabulary.size), dtype=np.float32)
    for ids in texts:
        context = Context.start(logits, vocabulary=vocabulary)
        state = chain.init_state(context)
        for token in [None, *ids]:
            if token is not None:
                context = context.accept([token])
            step = (logits, state, context)
            (_, state), trace = traced(lambda step=step: chain.process(*step))  # type: ignore[misc]
            if trace.calls[SchemaConstraint.allowed.__code__]:
                yield b"" if token is None else vocabulary.token_bytes[token], trace


def kind_of(text: bytes) -> str:
    """Which kind of token leads to a place."""
    if not text:
        return "first"
    if text.strip(b' \n\t\r{}[]:,"') == b"":
        return "structural"
    return "digits" if text.isdigit() else "other"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=20, help="take every n-th schema")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="list so many functions, and all files")
    given = parser.parse_args()
    vocabulary = tekken()
    tokenize = Tokenizer(vocabulary)
    found: dict[str, list[tuple[int, int, int]]] = {"all": []}
    functions: Counter[CodeType] = Counter()
    files: Counter[str] = Counter()
    # What a vocabulary needs once belongs to no step.
    list(new_places({"type": "object"}, [tokenize(b'{"a":"b"}')], vocabulary))
    for row in sample()[given.offset :: given.part]:
        try:
            machine = compile_schema(row["schema"])
        except LogitloomError:
            continue
        valid = [serialise(machine, test["data"]) for test in row["tests"] if test["valid"]]
        texts = [tokenize(text.encode())[:MOST_TOKENS] for text in valid]
        for text, trace in new_places(row["schema"], texts, vocabulary):
            counted = trace.calls.total(), len(trace.files), len(trace.within)
            found["all"].append(counted)
            found.setdefault(kind_of(text), []).append(counted)
            functions.update(trace.calls)
            files.update(trace.files)
    print("| token before | new places | calls p50 | p90 | max | files p50 | p90 | within p50 | p90 |")
    print("| --- " * 9 + "|")
    for kind, counts in found.items():
        columns = [np.quantile(column, (0.5, 0.9)) for column in zip(*counts, strict=True)]
        (half, most), (middle, more), (inner, outer) = columns
        highest = max(calls for calls, _, _ in counts)
        line = f"{half:.0f} | {most:.0f} | {highest} | {middle:.0f} | {more:.0f} | {inner:.0f} | {outer:.0f}"
        print(f"| {kind} | {len(counts)} | {line} |")
    print("\n| what | calls | files | depth |\n" + "| --- " * 4 + "|")
    for what, trace in second_table(vocabulary):
        print(f"| {what} | {trace.calls.total()} | {len(trace.files)} | {trace.depth} |")
    for code, count in functions.most_common(given.show):
        print(f"{count / len(found['all']):7.2f}  {Path(code.co_filename).name}:{code.co_qualname}")
    for file, count in files.most_common() if given.show else ():
        print(f"{count / len(found['all']):7.2f}  {Path(file).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
