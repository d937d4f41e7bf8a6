"""JSON Schema on JSONSchemaBench: this library, llguidance and xgrammar in one process, on one vocabulary.

    python benchmarks/json_schema.py [--part 4] [--offset 0] [--engines logitloom llguidance xgrammar] [--clock wall]

Takes every fourth schema of the sample (``../shared/data`` or ``LOGITLOOM_TEST_DATA``) and the 131,072 ids of Tekken
(bundled with ``mistral-common``). Per engine: schemas that compile, instances judged wrongly, time from the schema
to the first mask, time per mask along the valid instances, and time per row and step (mask, applied to float32 logits
in place, advance) for 1, 8 and 64 rows that follow the instances of one schema. *New* is the first visit of a place in
a schema, *again* the second pass over the same instances. Instances are written in the order of members that
this library documents, for all engines. Tables of the vocabulary and buffers are made before, by every engine.

On a busy machine ``--clock cpu`` measures the processor time of all threads instead of wall-clock time.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from conditions import heading

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from logitloom import Context, Vocabulary, processors  # noqa: E402
from logitloom.errors import LogitloomError  # noqa: E402
from logitloom.masks.logits_pool import LogitsPool  # noqa: E402
from logitloom_plugins.json_schema.folds.schema_automaton import SchemaAutomaton  # noqa: E402
from logitloom_plugins.json_schema.folds.schema_compilation import compile_schema  # noqa: E402
from logitloom_plugins.json_schema.tokens.schema_constraint import SchemaConstraint  # noqa: E402
from tests.plugins.json_schema.serialisation import serialise  # noqa: E402


def sample() -> list[dict[str, Any]]:
    base = Path(os.environ.get("LOGITLOOM_TEST_DATA", ROOT.parent / "shared" / "data"))
    with gzip.open(base / "jsonschemabench" / "sample.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Tokenizer:
    """Longest match; what counts here is that all engines get the same tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.ids = {text: i for i, text in reversed(list(enumerate(vocabulary.token_bytes))) if text}
        self.longest = max(map(len, self.ids))

    def __call__(self, data: bytes) -> list[int]:
        ids, at = [], 0
        while at < len(data):
            size = next(n for n in range(min(self.longest, len(data) - at), 0, -1) if data[at : at + n] in self.ids)
            ids.append(self.ids[data[at : at + size]])
            at += size
        return ids


class Ours:
    name = "logitloom"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.pool = LogitsPool()

    def start(self, schema: Any) -> Any:
        constraint = SchemaConstraint(SchemaAutomaton(compile_schema(schema)), self.vocabulary)
        return [constraint, constraint.start()]

    def restart(self, run: Any) -> Any:
        return [run[0], run[0].start()]

    def mask(self, run: Any) -> None:
        run[0].allowed(run[1])

    def advance(self, run: Any, token: int) -> bool:
        run[1] = run[0].advance(run[1], token)
        return run[1] is not None

    def ends(self, run: Any) -> bool:
        return bool(run[0].may_end(run[1]))

    def batch(self, schema: Any, rows: int) -> Any:
        """The same again as a chain, with everything that a decoding loop pays for."""
        chain = processors.load(("json", {"schema": schema, "engine": "table"}), tokenizer=self.vocabulary)
        chain["json"].constraint(self.vocabulary, self.vocabulary.size)
        return [chain, rows, None, None]

    def begin(self, run: Any, logits: Any) -> None:
        run[3] = Context.start(logits, vocabulary=self.vocabulary, donate=True, pool=self.pool)
        run[2] = run[0].init_state(run[3])

    def step(self, run: Any, logits: Any, tokens: list[int]) -> None:
        chain, _, state, context = run
        _, run[2] = chain.process(logits, state, context)
        run[3] = context.accept(tokens)


class LLGuidance:
    name = "llguidance"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance
        import llguidance.numpy

        from logitloom_plugins.grammars.llguidance import engine_tokenizer

        self.module = llguidance
        self.tokenizer = engine_tokenizer(vocabulary, vocabulary.size)
        self.bits = llguidance.numpy.allocate_token_bitmask(64, vocabulary.size)
        self.executor = llguidance.LLExecutor()
        self.apply = applied_bits()

    def start(self, schema: Any) -> Any:
        grammar = self.module.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        matcher = self.module.LLMatcher(self.tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def restart(self, run: Any) -> Any:
        run = run.deep_copy()
        run.reset()
        return run

    def mask(self, run: Any) -> None:
        row = self.bits[0]
        run.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)

    def advance(self, run: Any, token: int) -> bool:
        return run.try_consume_tokens([token]) == 1

    def ends(self, run: Any) -> bool:
        return bool(run.is_accepting())

    def batch(self, schema: Any, rows: int) -> Any:
        first = self.start(schema)
        return [first, [first.deep_copy() for _ in range(rows)]]

    def begin(self, run: Any, logits: Any) -> None:
        for matcher in run[1]:
            matcher.reset()

    def step(self, run: Any, logits: Any, tokens: list[int]) -> None:
        bits = self.bits[: len(tokens)]
        if len(tokens) == 1:
            run[1][0].unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        else:
            work = [(matcher, i) for i, matcher in enumerate(run[1])]
            self.executor.unsafe_compute_mask_ptr(work, bits.ctypes.data, bits.nbytes // len(bits), len(bits))
        self.apply(logits, bits)
        for matcher, token in zip(run[1], tokens, strict=True):
            matcher.consume_token(token)


def applied_bits() -> Any:
    """What writes packed masks into NumPy logits for both peers: the fastest of their kernels on a CPU."""
    import llguidance.torch
    import torch

    apply = llguidance.torch.apply_token_bitmask_inplace
    return lambda logits, bits: apply(torch.from_numpy(logits), torch.from_numpy(bits))


class XGrammar:
    name = "xgrammar"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import xgrammar

        self.module = xgrammar
        texts = [text if text else f"<|{i}|>".encode() for i, text in enumerate(vocabulary.token_bytes)]
        info = xgrammar.TokenizerInfo(texts, stop_token_ids=list(vocabulary.eos))
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=2, cache_enabled=False)
        self.bits = xgrammar.allocate_token_bitmask(64, info.vocab_size)
        self.eos = vocabulary.eos[0]
        self.apply = applied_bits()

    def start(self, schema: Any) -> Any:
        text = json.dumps(schema)
        compiled = self.compiler.compile_json_schema(text, any_whitespace=True, strict_mode=False)
        return [compiled, self.module.GrammarMatcher(compiled)]

    def restart(self, run: Any) -> Any:
        return [run[0], self.module.GrammarMatcher(run[0])]

    def mask(self, run: Any) -> None:
        run[1].fill_next_token_bitmask(self.bits)

    def advance(self, run: Any, token: int) -> bool:
        return bool(run[1].accept_token(token))

    def ends(self, run: Any) -> bool:
        return bool(run[1].accept_token(self.eos))

    def batch(self, schema: Any, rows: int) -> Any:
        compiled, _ = self.start(schema)
        return [compiled, [self.module.GrammarMatcher(compiled) for _ in range(rows)]]

    def begin(self, run: Any, logits: Any) -> None:
        for matcher in run[1]:
            matcher.reset()

    def step(self, run: Any, logits: Any, tokens: list[int]) -> None:
        bits = self.bits[: len(tokens)]
        for i, matcher in enumerate(run[1]):
            matcher.fill_next_token_bitmask(bits, i)
        self.apply(logits, bits.numpy())
        for matcher, token in zip(run[1], tokens, strict=True):
            matcher.accept_token(token)


def tekken() -> Vocabulary:
    from tests.core.automata.vocabularies import tekken as read

    return read()


def quantile(values: list[float], q: float) -> float:
    return float(np.quantile(values, q)) if values else float("nan")


Texts = dict[str, list[tuple[list[int], bool]]]
#: What a mask should not take longer than.
SLOW_MS = 5


def tokenized(rows: list[dict[str, Any]], vocabulary: Vocabulary) -> Texts:
    """Per schema its instances as tokens, and whether they are valid."""
    tokenize = Tokenizer(vocabulary)
    texts: Texts = {}
    for row in rows:
        try:
            machine = compile_schema(row["schema"])
        except LogitloomError:
            machine = None
        texts[row["name"]] = []
        for test in row["tests"]:
            plain = json.dumps(test["data"], ensure_ascii=False, separators=(",", ":"))
            text = serialise(machine, test["data"]) if machine is not None else plain
            texts[row["name"]].append((tokenize(text.encode()), test["valid"]))
    return texts


def once_more(engine: Any, schema: Any, ids: list[int], place: int, clock: Callable[[], float]) -> float:
    """What a mask takes, in ms, of an engine that has seen nothing of the schema but this text."""
    run = engine.start(schema)
    engine.mask(run)
    state = engine.restart(run)
    for token in ids[:place]:
        engine.mask(state)
        engine.advance(state, token)
    begin = clock()
    engine.mask(state)
    return 1e3 * (clock() - begin)


def verdicts(engine: Any, rows: list[dict[str, Any]], texts: Texts, longest: int, clock: Callable[[], float]) -> Any:
    """Compiled, wrong, judged; times to the first mask in ms; of masks, new and again, in us; the slow ones in ms."""
    compiled, wrong, judged = 0, 0, 0
    first, new, again = [], [], []
    slow: dict[str, list[float]] = {}
    for row in rows:
        begin = clock()
        try:
            run = engine.start(row["schema"])
            engine.mask(run)
        except (LogitloomError, ValueError, RuntimeError):
            continue
        first.append(1e3 * (clock() - begin))
        compiled += 1
        for ids, valid in texts[row["name"]]:
            for timed in (new, again) if valid and len(ids) <= longest else (None,):
                state = engine.restart(run)
                accepted = True
                late: list[int] = []
                for place, token in enumerate(ids):
                    if timed is not None:
                        begin = clock()
                        engine.mask(state)
                        timed.append(1e6 * (clock() - begin))
                        if timed is new and new[-1] > 1e3 * SLOW_MS:
                            slow[f"{row['name']} token {place}"] = [new[-1] / 1e3]
                            late.append(place)
                    accepted = engine.advance(state, token)
                    if not accepted:
                        break
                accepted = accepted and engine.ends(state)
                # A machine that others use as well stops now and then; what is slow by itself is so again.
                for place in late:
                    slow[f"{row['name']} token {place}"] += [
                        once_more(engine, row["schema"], ids, place, clock) for _ in range(2)
                    ]
            judged += 1
            wrong += accepted != valid
    return compiled, wrong, judged, first, new, again, slow


def stepping(
    engine: Any,
    rows: list[dict[str, Any]],
    texts: Texts,
    batch: int,
    width: int,
    clock: Callable[[], float],
) -> tuple[float, float, float, float]:
    """Per row and step in us, new and again; the longest step of the batch in ms, once and by medians of three."""
    logits = np.full((batch, width), 1.0, dtype=np.float32)
    spent, steps, longest, longest_again = [0.0, 0.0], 0, 0.0, 0.0

    def pass_through(run: Any, columns: list[list[int]]) -> list[float]:
        engine.begin(run, logits)
        times = []
        for tokens in columns:
            begin = clock()
            engine.step(run, logits, tokens)
            times.append(clock() - begin)
        return times

    for row in rows:
        valid = [ids for ids, right in texts[row["name"]] if right and len(ids) > 1]
        if not valid:
            continue
        try:
            run = engine.batch(row["schema"], batch)
        except (LogitloomError, ValueError, RuntimeError):
            continue
        # Rows follow the instances in turn, as far as the shortest of them goes, so that none has to stop early.
        shortest = min(50, *map(len, valid)) if len(valid) > 1 else min(50, len(valid[0]))
        columns = [[valid[i % len(valid)][at] for i in range(batch)] for at in range(shortest)]
        if not steps:
            # Kernels may be compiled at the first call for a shape.
            other = engine.batch({"type": "object"}, batch)
            engine.begin(other, logits)
            engine.step(other, logits, [columns[0][0]] * batch)
        new = pass_through(run, columns)
        spent[0] += sum(new)
        spent[1] += sum(pass_through(run, columns))
        steps += shortest * batch
        longest = max(longest, *new)
        if max(new) > 1e-3 * SLOW_MS:
            others = [pass_through(engine.batch(row["schema"], batch), columns) for _ in range(2)]
            new = [sorted(times)[1] for times in zip(new, *others, strict=True)]
        longest_again = max(longest_again, *new)
    return 1e6 * spent[0] / steps, 1e6 * spent[1] / steps, 1e3 * longest, 1e3 * longest_again


def table(head: tuple[str, ...], lines: list[list[Any]]) -> str:
    """A table in Markdown."""
    return rows_of([[*head], ["---"] * len(head), *lines])


def rows_of(lines: list[list[Any]]) -> str:
    """Rows of a table in Markdown."""
    shown = [[f"{v:.2f}" if isinstance(v, float) else str(v) for v in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=4, help="take every n-th schema")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--engines", nargs="+", default=["logitloom", "llguidance", "xgrammar"])
    parser.add_argument("--longest", type=int, default=400, help="most tokens of an instance that is timed")
    parser.add_argument("--batch-part", type=int, default=4, help="take every n-th of these schemas for batches")
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 8, 64])
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    given = parser.parse_args()
    clock = time.perf_counter if given.clock == "wall" else time.process_time
    rows = sample()[given.offset :: given.part]
    vocabulary = tekken()
    texts = tokenized(rows, vocabulary)
    print(heading("numba", "torch", "llguidance", "xgrammar", "mistral-common"))
    print(f"{len(rows)} schemas, {sum(map(len, texts.values()))} instances, {vocabulary.size} ids, {given.clock} clock")
    lines, steps, slow = [], [], []
    for kind in (Ours, LLGuidance, XGrammar):
        if kind.name not in given.engines:
            continue
        engine = kind(vocabulary)
        engine.mask(engine.start({"type": "object"}))
        gc.collect()
        gc.disable()
        compiled, wrong, judged, first, new, again, where = verdicts(engine, rows, texts, given.longest, clock)
        quantiles = (quantile(first, 0.5), quantile(first, 0.9))
        masks = (float(np.mean(new)), quantile(new, 0.99), max(new), float(np.mean(again)), quantile(again, 0.99))
        shown = ", ".join(f"{mask}: {' '.join(f'{ms:.1f}' for ms in times)}" for mask, times in where.items())
        always = sum(sorted(times)[1] > SLOW_MS for times in where.values())
        slow.append(
            f"{kind.name}: {len(where)} of {len(new)} new masks over {SLOW_MS} ms, {always} in the median of three "
            f"({shown[:2000] or 'none'})"
        )
        lines.append([kind.name, compiled, wrong, judged, *quantiles, *masks])
        print(lines[-1], flush=True)
        for batch in given.batches:
            found = stepping(engine, rows[:: given.batch_part], texts, batch, vocabulary.size, clock)
            steps.append([kind.name, batch, *found])
            print(steps[-1], flush=True)
        gc.enable()
    head = ("engine", "compiled", "wrong", "judged", "first mask p50 ms", "p90 ms", "mask mean us", "p99", "max")
    print("\n" + table((*head, "again mean us", "again p99"), lines))
    print(
        "\n"
        + table(("engine", "rows", "step per row, new us", "again us", "longest step ms", "median of three"), steps)
    )
    print("\n" + "\n".join(slow))
    for line in lines[1:]:
        print(f"\nfirst mask, p50: {lines[0][0]} takes {lines[0][4] / line[4]:.2f} times as long as {line[0]}")
    for line in steps:
        if line[0] != steps[0][0]:
            ours = next(other for other in steps if other[1] == line[1])
            print(
                f"step, {line[1]} rows: {line[0]} takes {line[2] / ours[2]:.1f} times as long as {ours[0]} (new), "
                f"{line[3] / ours[3]:.1f} times (again)"
            )


if __name__ == "__main__":
    main()
