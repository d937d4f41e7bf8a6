"""The ordinary chain, and single samplers, beside transformers' own: 131,072 ids, float32, one thread.

    OMP_NUM_THREADS=1 python benchmarks/samplers.py [--rows 1 8 64] [--turns 15] [--library numpy torch]

The chain is repetition_penalty, temperature, top_k, top_p and min_p after a text of 200 tokens. A step of ours takes
logits that it may write into, and a pool of buffers, as decoding loops give them; transformers' processors get the same
tensor. Every step reads new logits: their copy is made before the clock runs, and timed on a line of its own. The
results of both are compared before. Steps of the two alternate.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from comparison import Comparison, table
from conditions import heading

from logitloom import Context, load_backend, processors
from logitloom.masks.logits_pool import LogitsPool

WIDTH, LENGTH = 131_072, 200
ORDINARY = "ordinary chain"
#: Our processors, and how transformers names the same.
CHAINS: dict[str, list[tuple[tuple[str, dict[str, Any]], tuple[str, tuple[Any, ...]]]]] = {
    name: [
        ((ours, {option: value}), (f"{theirs}Logits{kind}", (value,)))
        for ours, option, value, theirs, kind in steps
    ]
    for name, steps in {
        ORDINARY: [
            ("repetition_penalty", "penalty", 1.2, "RepetitionPenalty", "Processor"),
            ("temperature", "temperature", 0.8, "Temperature", "Warper"),
            ("top_k", "k", 50, "TopK", "Warper"),
            ("top_p", "p", 0.9, "TopP", "Warper"),
            ("min_p", "p", 0.05, "MinP", "Warper"),
        ],
        "repetition_penalty": [("repetition_penalty", "penalty", 1.2, "RepetitionPenalty", "Processor")],
        "no_repeat_ngram": [("no_repeat_ngram", "n", 3, "NoRepeatNGram", "Processor")],
        "temperature": [("temperature", "temperature", 0.8, "Temperature", "Warper")],
        "top_k": [("top_k", "k", 50, "TopK", "Warper")],
        "top_p": [("top_p", "p", 0.9, "TopP", "Warper")],
        "min_p": [("min_p", "p", 0.05, "MinP", "Warper")],
        "typical_p": [("typical_p", "p", 0.9, "Typical", "Warper")],
        "epsilon_cutoff": [("epsilon_cutoff", "epsilon", 3e-4, "Epsilon", "Warper")],
        "eta_cutoff": [("eta_cutoff", "epsilon", 3e-4, "Eta", "Warper")],
    }.items()
}  # fmt: skip
#: Keys of a watermark.
KEYS = [654, 400, 836, 123, 340, 443, 597, 160, 57, 29, 590, 639, 13, 715, 468, 990, 966, 226, 324, 585]
CHAINS |= {
    "watermark_greenlist": [(("watermark_greenlist", {}), ("WatermarkLogitsProcessor", (WIDTH, "cpu")))],
    "watermark_synthid": [
        (
            ("watermark_synthid", {"keys": KEYS}),
            ("SynthIDTextWatermarkLogitsProcessor", (5, KEYS, 2**16, 0, 1024, "cpu")),
        )
    ],
}


class OurStep:
    """A step that accepts one token in each row and masks logits in place or in a buffer."""

    def __init__(self, specs: Sequence[tuple[str, dict[str, Any]]], library: str, ids: np.ndarray) -> None:
        self.backend = load_backend(library)
        self.chain = processors.load(*specs, debug=False)
        first = self.backend.asarray(np.zeros((len(ids), WIDTH), dtype=np.float32))
        self.context = Context.start(
            first, prompt=ids[:, :-1].tolist(), max_length=ids.shape[1] + 500, donate=True, donate_state=True,
            pool=LogitsPool(),
        )  # fmt: skip
        self.state = self.chain.init_state(self.context)
        self.out: Any = None

    def __call__(self, logits: Any, tokens: np.ndarray) -> Any:
        self.context = self.context.accept(tokens)
        self.out, self.state = self.chain.process(logits, self.state, self.context)
        return self.out


def their_step(specs: Sequence[tuple[str, tuple[Any, ...]]]) -> Callable[[Any, Any], Any]:
    import transformers

    names = vars(transformers.generation.logits_process)
    chain = transformers.LogitsProcessorList(names[name](*values) for name, values in specs)
    return lambda ids, logits: chain(ids, logits)


def compare(
    name: str, library: str, rows: int, turns: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of a step, ours and theirs, and of a copy."""
    rng = np.random.default_rng(rows)
    ids = rng.integers(0, WIDTH, size=(rows, LENGTH))
    ours = OurStep([spec for spec, _ in CHAINS[name]], library, ids)
    theirs = their_step([spec for _, spec in CHAINS[name]])
    ms: tuple[list[float], list[float], list[float]] = ([], [], [])
    for turn in range(-2, turns):
        host = rng.normal(scale=3, size=(rows, WIDTH)).astype(np.float32)
        seen = torch.from_numpy(ids)
        begin = clock()
        fresh = host.copy()
        ms[2].append(1e3 * (clock() - begin))
        for side in (0, 1) if turn % 2 else (1, 0):
            fresh = host.copy()
            logits = torch.from_numpy(fresh) if side or library == "torch" else fresh
            begin = clock()
            if side:
                expected = theirs(seen, logits)
            else:
                found = ours(logits, ids[:, -1:].astype(np.int32))
            ms[side].append(1e3 * (clock() - begin))
        same = np.isneginf(np.asarray(found)) == np.isneginf(expected.numpy())
        assert same.mean() > 0.9999, f"{name} keeps other tokens than transformers"
        ids = np.concatenate([ids, rng.integers(0, WIDTH, size=(rows, 1))], axis=1)
    return ms[0][2:], ms[1][2:], ms[2][2:]


def comparisons(
    rows: Sequence[int] = (1, 8, 64),
    turns: int = 15,
    libraries: Sequence[str] = ("numpy", "torch"),
    names: Sequence[str] = tuple(CHAINS),
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Comparison]:
    """Every chain beside transformers', and the ordinary chain beside a copy of its logits."""
    torch.set_num_threads(1)
    for name in names:
        for library in libraries:
            for batch in rows:
                ours, theirs, copies = compare(name, library, batch, turns, clock)
                work = f"{name}, {library}, {batch} rows"
                yield Comparison(work, "transformers", "ms", ours, theirs, "samplers.py")
                if name == ORDINARY:
                    yield Comparison(work, "a copy of the logits", "ms", ours, copies, "samplers.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--library", nargs="+", default=["numpy", "torch"])
    parser.add_argument("--names", nargs="+", default=list(CHAINS), choices=list(CHAINS))
    parser.add_argument("--processor-time", action="store_true", help="for a machine that does other work")
    given = parser.parse_args()
    clock = time.process_time if given.processor_time else time.perf_counter
    print(heading("numba", "torch", "transformers"))
    print(table(list(comparisons(given.rows, given.turns, given.library, given.names, clock))))


if __name__ == "__main__":
    main()
