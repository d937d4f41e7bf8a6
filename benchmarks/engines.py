"""What the engine adapters cost: per step beside the chain they call, and constrained tokens per second.

The first table calls each adapter as its engine does. The chain is a regular expression over a vocabulary as wide as
SmolLM2's. "chain" is the same chain called directly on the same array library, with its state at hand, and evaluated
where arrays are lazy; "added" is the difference: what recognising rows costs. transformers takes all rows in one call;
mlx-lm and llama-cpp-python call once per sequence, so that their times are for all sequences of a step. "moves": rows
change places and are duplicated, as beams do. Times are lower quartiles in microseconds.

The second table generates with a small random model in transformers and mlx-lm, the same model, prompt and pattern,
with no constraint, with logitloom and with outlines-core's processor (of outlines; on MLX it needs Metal), in turn;
medians.

Run: ``OMP_NUM_THREADS=1 python benchmarks/engines.py [--engines transformers] [--steps-only]``.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from conditions import heading

from logitloom import Chain, Context, Vocabulary, processors

WIDTH, STEPS, ROUNDS, TOKENS = 49_152, 60, 7, 64


def vocabulary() -> Vocabulary:
    rng = np.random.default_rng(0)
    tokens = [b"", *(bytes([c]) for c in range(97, 123))]
    tokens += [bytes(rng.integers(97, 123, size=int(n)).tolist()) for n in rng.integers(2, 9, WIDTH - len(tokens))]
    return Vocabulary(tokens, eos=[0])


def chain() -> Chain:
    return processors.load(("regex", {"pattern": "[a-z]*"}), tokenizer=vocabulary(), debug=False)


def microseconds(function: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    function()
    return (time.perf_counter() - begin) * 1e6


def quartile(times: list[float]) -> float:
    return statistics.quantiles(times, n=4)[0]


def direct(loaded: Chain, scores: Any, finish: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The chain alone: takes ``[rows, 1]`` new tokens, host integers."""
    context = Context.start(scores)
    state = loaded.process(scores, loaded.init_state(context), context)[1]

    def step(new: Any) -> None:
        nonlocal state
        out, state = loaded.process(scores, state, context.accept(new))
        finish(out)

    return step


def engine_calls(name: str, loaded: Chain, rows: int, host: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """What an engine does in a step, given all ids ``[rows, length]`` as it has them; and the chain alone."""
    if name == "transformers":
        from logitloom_contrib.engines.transformers import to_transformers

        scores = torch.from_numpy(host)
        (processor,) = to_transformers(loaded, eos=[0])  # what generate takes of the list, and calls
        return lambda ids: processor(ids, scores), direct(loaded, scores, lambda out: out)
    if name == "mlx-lm":
        import mlx.core as mx

        from logitloom_contrib.engines.mlx_lm import to_mlx_lm

        lines, native = [mx.array(line[None]) for line in host], mx.array(host)
        each = [to_mlx_lm(loaded) for _ in range(rows)]

        def call(ids: Any) -> None:
            mx.eval([one(mx.array(row), line) for one, row, line in zip(each, ids, lines, strict=True)])

        return call, direct(loaded, native, mx.eval)
    from logitloom_contrib.engines.llama_cpp import to_llama_cpp

    records = np.zeros((rows, WIDTH, 3), dtype=np.float32)
    own = [to_llama_cpp(loaded) for _ in range(rows)]

    def call_each(ids: Any) -> None:
        for one, row, record in zip(own, ids, records, strict=True):
            one(row, record[:, 1])

    return call_each, direct(loaded, host, lambda out: out)


def overhead(name: str, loaded: Chain, rows: int, length: int, moves: bool) -> tuple[float, float]:
    rng = np.random.default_rng(1)
    host = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    ids = rng.integers(1, 65, size=(rows, length), dtype=np.int64)
    call, alone = engine_calls(name, loaded, rows, host)
    shown = torch.from_numpy if name == "transformers" else np.asarray
    call(shown(ids))
    for token in range(1, 65):  # what a first meeting of a token costs is the chain's affair
        alone(np.full((rows, 1), token, dtype=np.int32))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(STEPS):
        parents = rng.integers(0, rows, size=rows) if moves else np.arange(rows)
        new = rng.integers(1, 65, size=(rows, 1))
        ids = np.concatenate([ids[parents], new], axis=1)
        given = shown(ids)
        times[0].append(microseconds(lambda given=given: call(given)))
        times[1].append(microseconds(lambda new=new: alone(new.astype(np.int32))))
    return quartile(times[0]), quartile(times[1])


#: Engine -> the lengths of texts that are measured, and whether rows move.
CASES = {
    "transformers": [(64, False), (1024, False), (64, True)],
    "mlx-lm": [(64, False)],
    "llama-cpp-python": [(64, False)],
}


def print_overhead(loaded: Chain, engines: list[str]) -> None:
    print(f"{'engine':<18} {'rows':>5} {'length':>7} {'moves':>6} {'adapter':>9} {'chain':>8} {'added':>8}")
    for name in engines:
        for rows in (1, 8, 64):
            for length, moves in CASES[name]:
                adapter, alone = overhead(name, loaded, rows, length, moves)
                line = f"{name:<18} {rows:>5} {length:>7} {'yes' if moves else 'no':>6} {adapter:>9.0f} {alone:>8.0f}"
                print(f"{line} {adapter - alone:>8.0f}", flush=True)


# -- tokens per second --------------------------------------------------------------------------------


def outlines_processors(known: Vocabulary, pattern: str, library: str) -> Callable[[], Any]:
    import outlines_core
    from outlines.backends.outlines_core import OutlinesCoreLogitsProcessor

    table: dict[bytes, list[int]] = {}
    for token, text in enumerate(known.token_bytes):
        if text:
            table.setdefault(text, []).append(token)
    index = outlines_core.Index(pattern, outlines_core.Vocabulary(0, table))
    return lambda: OutlinesCoreLogitsProcessor(index, library)


SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}


def transformers_runs(rows: int) -> Callable[[Any], int]:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WIDTH, num_key_value_heads=4, eos_token_id=0, pad_token_id=0, bos_token_id=1, **SIZES
    )
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.arange(rows * 8).reshape(rows, 8) + 5

    def run(processor: Any) -> int:
        given = {} if processor is None else {"logits_processor": processor}
        if processor is not None and not isinstance(processor, transformers.LogitsProcessorList):
            given["logits_processor"] = transformers.LogitsProcessorList([processor])
        out = model.generate(ids, do_sample=False, max_new_tokens=TOKENS, **given)
        return int((out.shape[1] - ids.shape[1]) * rows)

    return run


def mlx_runs() -> Callable[[Any], int]:
    import mlx.core as mx
    from mlx_lm.generate import generate_step
    from mlx_lm.models import llama

    mx.random.seed(0)
    args = llama.ModelArgs(model_type="llama", num_key_value_heads=4, rms_norm_eps=1e-5, vocab_size=WIDTH, **SIZES)
    model = llama.Model(args)
    mx.eval(model.parameters())

    def run(processor: Any) -> int:
        given = {} if processor is None else {"logits_processors": [processor]}
        return sum(1 for _ in generate_step(mx.array(list(range(5, 13))), model, max_tokens=TOKENS, **given))

    return run


def print_rates(known: Vocabulary) -> None:
    import mlx.core as mx

    from logitloom_contrib.engines.mlx_lm import to_mlx_lm
    from logitloom_contrib.engines.transformers import to_transformers

    pattern = "[a-z]{400,600}"
    print(
        f"\n{'engine':<14} {'rows':>5} {'free':>8} {'logitloom':>10} {'outlines':>9} {'ratio':>6}   tokens per second"
    )
    # The texts are cut, and outlines does not see to it that they are complete.
    loaded = processors.load(("regex", {"pattern": pattern, "finish_within": 0}), tokenizer=known, debug=False)
    for name, rows, library in (("transformers", 1, "torch"), ("transformers", 8, "torch"), ("mlx-lm", 1, "mlx")):
        run = transformers_runs(rows) if library == "torch" else mlx_runs()
        ours = to_transformers(loaded, eos=[0]) if library == "torch" else to_mlx_lm(loaded)
        kinds: dict[str, Any] = {"free": lambda: None, "logitloom": lambda ours=ours: ours}
        if library == "torch" or mx.metal.is_available():  # outlines masks MLX logits with a Metal kernel
            kinds["outlines"] = outlines_processors(known, pattern, library)
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(ROUNDS):
            for kind, make in kinds.items():
                processor = make()
                begin = time.perf_counter()
                made = run(processor)
                times[kind].append(made / (time.perf_counter() - begin))
        free, own, *other = (statistics.median(rates[1:]) for rates in times.values())
        compared = f"{other[0]:>9.0f} {own / other[0]:>6.2f}" if other else f"{'-':>9} {'-':>6}"
        print(f"{name:<14} {rows:>5} {free:>8.0f} {own:>10.0f} {compared}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engines", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--steps-only", action="store_true", help="leave out the tokens per second")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(heading("torch", "mlx", "transformers", "mlx-lm", "llama-cpp-python", "outlines", "outlines-core"))
    print_overhead(chain(), options.engines)
    if not options.steps_only:
        print_rates(vocabulary())


if __name__ == "__main__":
    main()
