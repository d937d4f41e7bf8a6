"""JSON texts of a real model within a limit of tokens: how many are finished, and how many of them valid.

    python benchmarks/token_limits.py [--schemas 100] [--tokens 128] [--walks 400] [--patterns 200] [--budgets 8]

SmolLM2-135M-Instruct writes one document per schema of JSONSchemaBench, greedily, in four ways: with any whitespace and
without the limit, as logitloom did before; with one of the two; with the whitespace of ``json.dumps`` and within the
limit, as by default. "least" counts schemas of which no document fits into the limit, so that decoding is refused.

The second table has random walks: uniformly drawn allowed tokens of the same vocabulary, for each schema, pattern and
set of tools with budgets from the least upwards. Every text must be finished and valid.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.conditions import heading  # noqa: E402
from logitloom import Chain, Context, processors  # noqa: E402
from logitloom.errors import GenerationError, LogitloomError  # noqa: E402
from logitloom.generation import Generator, Greedy  # noqa: E402
from logitloom_contrib.llama import load  # noqa: E402
from tests.plugins.json_schema.schema_data import benchmark, data_folder  # noqa: E402

WAYS: dict[str, dict[str, Any]] = {
    "any whitespace, no limit (before)": {"whitespace": "flexible", "finish_within": 0},
    "any whitespace, within the limit": {"whitespace": "flexible"},
    "json.dumps, no limit": {"finish_within": 0},
    "json.dumps, within the limit (default)": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--walks", type=int, default=400, help="schemas of random walks")
    parser.add_argument("--patterns", type=int, default=200)
    parser.add_argument("--tools", type=int, default=50, help="sets of tools")
    parser.add_argument("--budgets", type=int, default=8)
    parser.add_argument("--backend", default="numpy")
    parser.add_argument(
        "--ways", type=int, nargs="*", default=[*range(len(WAYS))], help="which rows of the first table"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(heading("jsonschema", "transformers"))
    model = load(backend=given.backend)
    if given.schemas:
        with_model(model, given.schemas, given.tokens, [list(WAYS)[place] for place in given.ways])
    vocabulary = model.vocabulary
    print("\n| random walks | subjects | texts | finished | valid | refused |\n| --- | --- | --- | --- | --- | --- |")
    rows: list[tuple[str, Iterator[Any], int]] = [
        ("schemas", schemas(), given.walks), ("patterns", patterns(), given.patterns),
        ("sets of tools", tool_sets(), given.tools),
    ]  # fmt: skip
    for name, subjects, count in rows:
        counts = walked(subjects, count, given.budgets, vocabulary)
        shown = " | ".join(str(counts[each]) for each in ("subjects", "texts", "finished", "valid", "refused"))
        print(f"| {name} | {shown} |", flush=True)


def with_model(model: Any, count: int, tokens: int, ways: list[str]) -> None:
    """The first table."""
    import jsonschema

    counts = {way: Counter[str]() for way in ways}
    begun, done = time.perf_counter(), 0
    for row in benchmark():
        if done == count:
            break
        schema = row["schema"]
        prompt = model.tokenizer.encode(f"JSON for the schema {json.dumps(schema)[:200]}:\n")
        try:
            chains = {
                way: processors.load(
                    ("json", {"schema": schema, "engine": "table", **options}), tokenizer=model.vocabulary
                )
                for way, options in WAYS.items()
                if way in ways
            }
        except LogitloomError:
            continue
        done += 1
        for way, chain in chains.items():
            counts[way]["schemas"] += 1
            try:
                text = Generator(model, chain, Greedy(), max_tokens=tokens)([prompt])[0]
            except GenerationError:
                counts[way]["least"] += 1
                continue
            counts[way]["finished"] += text.finish == "eos"
            try:
                jsonschema.Draft202012Validator(schema).validate(json.loads(text.text or ""))
                counts[way]["valid"] += 1
            except (ValueError, jsonschema.ValidationError):
                pass
        if done % 2 == 0:
            print(f"# {done} schemas, {time.perf_counter() - begun:.0f} s: {dict(counts)}", file=sys.stderr, flush=True)
    names = ("schemas", "finished", "valid", "least")
    print("| way | " + " | ".join(names) + " |\n|" + " --- |" * (len(names) + 1))
    for way, found in counts.items():
        print(f"| {way} | " + " | ".join(str(found[name]) for name in names) + " |", flush=True)


Subject = tuple[Any, Callable[[str], bool]]


def schemas() -> Iterator[Subject]:
    """``json`` processors, and whether a text is valid."""
    import jsonschema

    for row in benchmark():

        def valid(text: str, schema: Any = row["schema"]) -> bool:
            return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)))

        yield ("json", {"schema": row["schema"], "engine": "table"}), valid


def patterns() -> Iterator[Subject]:
    """``regex`` processors of the patterns in the data, as far as they are regular."""
    with gzip.open(data_folder("regex-patterns") / "patterns.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            pattern = json.loads(line)["pattern"]
            yield ("regex", {"pattern": pattern}), lambda text, pattern=pattern: bool(re.fullmatch(pattern, text))


def tool_sets() -> Iterator[Subject]:
    """``tool_call`` processors that require a call of one of two tools, with parameters of the schemas."""
    rows = [row["schema"] for row in benchmark() if row["schema"].get("type") == "object"]
    for one, other in zip(rows[::2], rows[1::2], strict=False):
        tools = [{"name": "first", "parameters": one}, {"name": "second", "parameters": other}]

        def valid(text: str) -> bool:
            calls = re.findall(r"<tool_call>\n(.*?)\n</tool_call>", text, re.DOTALL)
            return bool(calls) and all(json.loads(call)["name"] in ("first", "second") for call in calls)

        yield ("tool_call", {"tools": tools, "choice": "required"}), valid


def walked(subjects: Iterator[Subject], count: int, budgets: int, vocabulary: Any) -> Counter[str]:
    """Random texts of some subjects, with budgets from the least upwards."""
    counts: Counter[str] = Counter()
    dice = np.random.default_rng(0)
    blank = np.zeros((1, vocabulary.size), dtype=np.float32)
    for spec, valid in subjects:
        if counts["subjects"] == count:
            break
        try:
            chain = processors.load(spec, tokenizer=vocabulary)
            context = Context.start(blank, vocabulary=vocabulary, prompt=[[1]])
            constraint = chain.links[0].processor.constraint_for(context)
            least = constraint.least_tokens(constraint.start())
        except LogitloomError:
            least = None
        if least is None:
            counts["refused"] += 1
            continue
        counts["subjects"] += 1
        for more in range(budgets):
            counts["texts"] += 1
            text = random_text(chain, context.with_fields(max_new_tokens=least + 1 + more * more), blank, dice)
            counts["finished"] += text is not None
            counts["valid"] += text is not None and valid(text)
    return counts


def random_text(chain: Chain, context: Context, blank: Any, dice: np.random.Generator) -> str | None:
    """A text of uniformly drawn allowed tokens; ``None`` if the limit came before its end."""
    state, taken, now = chain.init_state(context), list[int](), context
    vocabulary = context.vocabulary
    assert vocabulary is not None
    for _ in range(int(context.max_new_tokens)):  # type: ignore[arg-type]
        logits, state = chain.process(blank, state, now)
        token = int(dice.choice(np.flatnonzero(np.isfinite(logits[0]))))
        if token in vocabulary.eos:
            return vocabulary.decode(taken)
        taken.append(token)
        now = context.accept([[token]])
    return None


if __name__ == "__main__":
    main()
