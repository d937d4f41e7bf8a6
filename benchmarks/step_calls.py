"""How many Python functions one step of `json` runs through at a place that was never visited.

    python benchmarks/step_calls.py [--part 20] [--offset 0] [--show 3]

Takes every twentieth schema of the sample of JSONSchemaBench and the ids of Tekken, as `benchmarks/json_schema.py`
does, and follows the valid instances with a chain of one row. Of each step that asks the constraint for a mask it had
not been asked for, it counts the calls of Python functions and the files that they stand in, with `sys.setprofile`
(functions written in C are not counted). `--show` lists the functions that are called most often, per step.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from json_schema import Tokenizer, sample, tekken

from logitloom import Context, Vocabulary, processors
from logitloom.errors import LogitloomError
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint
from tests.plugins.json_schema.serialisation import serialise

MOST_TOKENS = 200
Calls = Counter[CodeType]


def profiled(call: Any) -> tuple[Any, Calls]:
    """What a call returns, and the Python functions that it calls."""
    calls: Calls = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        # The benchmark's own function is no part of the step.
        if event == "call" and frame.f_code is not call.__code__:
            calls[frame.f_code] += 1

    sys.setprofile(count)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, calls


def new_places(schema: Any, texts: list[list[int]], vocabulary: Vocabulary) -> Iterator[tuple[bytes, Calls]]:
    """The last token and the calls of each step that visits a place for the first time."""
    asked = SchemaConstraint.allowed.__code__
    chain = processors.load(("json", {"schema": schema, "engine": "table"}), tokenizer=vocabulary)
    logits = np.zeros((1, vocabulary.size), dtype=np.float32)
    for ids in texts:
        context = Context.start(logits, vocabulary=vocabulary)
        state = chain.init_state(context)
        for token in [None, *ids]:
            if token is not None:
                context = context.accept([token])
            step = (logits, state, context)
            (_, state), calls = profiled(lambda step=step: chain.process(*step))  # type: ignore[misc]
            if calls[asked]:
                yield b"" if token is None else vocabulary.token_bytes[token], calls


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
    parser.add_argument("--show", type=int, default=0, help="list so many of the functions called most")
    given = parser.parse_args()
    vocabulary = tekken()
    tokenize = Tokenizer(vocabulary)
    found: dict[str, list[tuple[int, int]]] = {"all": []}
    every: Calls = Counter()
    # What a vocabulary needs once belongs to no step.
    list(new_places({"type": "object"}, [tokenize(b'{"a":"b"}')], vocabulary))
    for row in sample()[given.offset :: given.part]:
        try:
            machine = compile_schema(row["schema"])
        except LogitloomError:
            continue
        valid = [serialise(machine, test["data"]) for test in row["tests"] if test["valid"]]
        texts = [tokenize(text.encode())[:MOST_TOKENS] for text in valid]
        for text, calls in new_places(row["schema"], texts, vocabulary):
            # The constructors of named tuples have no file.
            counted = calls.total(), len({code.co_filename for code in calls} - {"<string>"})
            found["all"].append(counted)
            found.setdefault(kind_of(text), []).append(counted)
            every.update(calls)
    print("| token before | new places | calls p50 | p90 | max | files p50 | p90 |\n" + "| --- " * 7 + "|")
    for kind, counts in found.items():
        (half, most), (files, more) = (np.quantile(column, (0.5, 0.9)) for column in zip(*counts, strict=True))
        highest = max(calls for calls, _ in counts)
        print(f"| {kind} | {len(counts)} | {half:.0f} | {most:.0f} | {highest} | {files:.0f} | {more:.0f} |")
    for code, count in every.most_common(given.show):
        print(f"{count / len(found['all']):7.2f}  {Path(code.co_filename).name}:{code.co_qualname}")


if __name__ == "__main__":
    main()
