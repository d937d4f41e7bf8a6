"""JSON Schema on JSONSchemaBench: this library, llguidance and xgrammar in one process, on one vocabulary.

    python benchmarks/json_schema.py [--part 4] [--offset 0] [--engines logitloom llguidance xgrammar]

Takes every fourth schema of the sample (``../shared/data`` or ``LOGITLOOM_TEST_DATA``) and the 131,072 ids of Tekken
(bundled with ``mistral-common``). Per engine: schemas that compile, instances judged wrongly, time from the schema
to the first mask, and time per token (mask, advance) along the valid instances. Instances are written in the order of
members that this library documents, for all engines.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from logitloom import Vocabulary  # noqa: E402
from logitloom.automata import vocabulary_trie  # noqa: E402
from logitloom.errors import LogitloomError  # noqa: E402
from logitloom_plugins.json_schema.compilation import compile_schema  # noqa: E402
from logitloom_plugins.json_schema.pushdown_tokens import PushdownTokens  # noqa: E402
from logitloom_plugins.json_schema.serialisation import serialise  # noqa: E402


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
        vocabulary_trie(vocabulary)

    def start(self, schema: Any) -> Any:
        automaton = PushdownTokens(compile_schema(schema), self.vocabulary)
        return [automaton, automaton.start]

    def restart(self, run: Any) -> Any:
        return [run[0], run[0].start]

    def mask(self, run: Any) -> None:
        run[0].row_kind(run[1])

    def advance(self, run: Any, token: int) -> bool:
        run[1] = run[0].advance(run[1], token)
        return run[1] != -1

    def ends(self, run: Any) -> bool:
        return run[0].advance(run[1], run[0].eos[0]) == -2


class LLGuidance:
    name = "llguidance"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance
        import llguidance.numpy

        from logitloom_plugins.grammar_engines.llguidance import _tokenizer

        self.module = llguidance
        self.tokenizer = _tokenizer(vocabulary, vocabulary.size)
        self.bits = llguidance.numpy.allocate_token_bitmask(1, vocabulary.size)

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


class XGrammar:
    name = "xgrammar"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import xgrammar

        self.module = xgrammar
        texts = [text if text else f"<|{i}|>".encode() for i, text in enumerate(vocabulary.token_bytes)]
        info = xgrammar.TokenizerInfo(texts, stop_token_ids=list(vocabulary.eos))
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=2, cache_enabled=False)
        self.bits = xgrammar.allocate_token_bitmask(1, info.vocab_size)
        self.eos = vocabulary.eos[0]

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


def tekken() -> Vocabulary:
    from tests.core.automata.vocabularies import tekken as read

    return read()


def quantile(values: list[float], q: float) -> float:
    return float(np.quantile(values, q)) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=4)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--engines", nargs="+", default=["logitloom", "llguidance", "xgrammar"])
    parser.add_argument("--longest", type=int, default=400, help="most tokens of an instance that is timed")
    given = parser.parse_args()
    rows = sample()[given.offset :: given.part]
    vocabulary = tekken()
    tokenize = Tokenizer(vocabulary)
    texts: dict[str, list[tuple[list[int], bool]]] = {}
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
    print(f"{len(rows)} schemas, {sum(map(len, texts.values()))} instances, {vocabulary.size} ids")
    head = (
        "engine",
        "compiled",
        "wrong",
        "judged",
        "first p50",
        "first p90",
        "step mean",
        "again mean",
        "p50",
        "p99",
        "max",
    )
    print("".join(f"{name:>12}" for name in head), "(first in ms, steps in us)")
    for kind in (Ours, LLGuidance, XGrammar):
        if kind.name not in given.engines:
            continue
        engine = kind(vocabulary)
        engine.mask(engine.start({"type": "integer"}))
        compiled, wrong, judged = 0, 0, 0
        first, steps, again = [], [], []
        gc.collect()
        gc.disable()
        for row in rows:
            begin = time.perf_counter()
            try:
                run = engine.start(row["schema"])
                engine.mask(run)
            except (LogitloomError, ValueError, RuntimeError):
                continue
            first.append(1e3 * (time.perf_counter() - begin))
            compiled += 1
            for ids, valid in texts[row["name"]]:
                for timed in (steps, again) if valid and len(ids) <= given.longest else (None,):
                    state = engine.restart(run)
                    accepted = True
                    for token in ids:
                        begin = time.perf_counter()
                        if timed is not None:
                            engine.mask(state)
                        accepted = engine.advance(state, token)
                        if timed is not None:
                            timed.append(1e6 * (time.perf_counter() - begin))
                        if not accepted:
                            break
                    accepted = accepted and engine.ends(state)
                judged += 1
                wrong += accepted != valid
        gc.enable()
        line: list[Any] = [engine.name, compiled, wrong, judged, quantile(first, 0.5), quantile(first, 0.9)]
        line += [float(np.mean(steps)), float(np.mean(again)), quantile(again, 0.5), quantile(steps, 0.99), max(steps)]
        print("".join(f"{v:>12.2f}" if isinstance(v, float) else f"{v:>12}" for v in line), flush=True)


if __name__ == "__main__":
    main()
