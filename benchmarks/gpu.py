"""Everything that needs a device, in one run: what a step costs there, and which share of its bandwidth a mask reaches.

    python benchmarks/gpu.py [--seconds 0.3] [--vocab 131072] [--batches 1 8 64 256] [--model FOLDER] [--device cpu]

Parts: masks beside xgrammar's and llguidance's, and as a share of the bandwidth of a copy; chains, step by step and
replayed as CUDA graphs in which the host waits for nothing; the border of a nucleus; the named operations on CuPy and
JAX; vLLM's time per token with and without chains, on both of its model runners. A part that cannot run here says why.
``--device cpu`` measures PyTorch's CPU instead, which shows that the parts work and says nothing about a device.
Correctness is tested by ``tests/plugins/test_accelerator.py``; ``tox -e gpu`` runs both.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import logitloom
from logitloom import Context, Vocabulary, backend_of, processors

sys.path.insert(0, str(Path(__file__).parent))

from conditions import heading

Row = dict[str, Any]

REGEX = ("regex", {"pattern": "([a-z]{3,8} ){10}[a-z]{3,8}"})
CHAINS: dict[str, tuple[Any, ...]] = {
    "regex": (REGEX,),
    "repetition_penalty": (("repetition_penalty", {"penalty": 1.3}),),
    "temperature, top_k, top_p": (("temperature", {"temperature": 0.8}), ("top_k", {"k": 50}), ("top_p", {"p": 0.9})),
    "temperature, top_p": (("temperature", {"temperature": 0.8}), ("top_p", {"p": 0.9})),
    "five": (
        ("repetition_penalty", {"penalty": 1.3}), ("min_tokens", {"n": 4}), REGEX,
        ("temperature", {"temperature": 0.8}), ("min_p", {"p": 0.05}),
    ),
}  # fmt: skip
#: Work inside vLLM: name -> its chain.
SERVED: dict[str, list[dict[str, Any]] | None] = {
    "no chain": None,
    "regex": [{"use": "regex", "options": dict(REGEX[1])}],
    "penalties": [{"use": "repetition_penalty", "options": {"penalty": 1.3}}],
}


class Missing(Exception):
    """A part cannot run here."""


class Device:
    """Where PyTorch measures.

    Args:
        name: "cuda" or "cpu".
        seconds: per measurement.
    """

    def __init__(self, name: str, seconds: float) -> None:
        if importlib.util.find_spec("torch") is None:
            raise Missing("PyTorch is not installed")
        import torch

        if name == "cuda" and not torch.cuda.is_available():
            raise Missing(f"PyTorch {torch.__version__} finds no CUDA device")
        self.torch, self.name, self.seconds = torch, name, seconds
        self.title = torch.cuda.get_device_name() if name == "cuda" else "the CPU (no figures of a device)"

    def put(self, host: Any) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(host)).to(self.name)

    def wait(self) -> None:
        if self.name == "cuda":
            self.torch.cuda.synchronize()

    def microseconds(self, call: Callable[[], Any]) -> float:
        """Median time of a call, from many in a row, so that the launches of one overlap with the work of another."""
        for _ in range(3):
            call()
        self.wait()
        many, times, end = 10, [], time.perf_counter() + self.seconds
        while len(times) < 3 or time.perf_counter() < end:
            begin = time.perf_counter()
            for _ in range(many):
                call()
            self.wait()
            times.append((time.perf_counter() - begin) / many)
        return statistics.median(times) * 1e6

    def bandwidth(self, size: int) -> float:
        """Bytes per microsecond of a copy, read and written."""
        source = self.torch.zeros(size, dtype=self.torch.uint8, device=self.name)
        target = self.torch.empty_like(source)
        return 2 * size / self.microseconds(lambda: target.copy_(source))


def masks(device: Device, options: argparse.Namespace) -> Iterator[Row]:
    """Masks of which half is allowed, beside the kernels of grammar engines; the share counts the fewest bytes."""
    peak = device.bandwidth(options.copy)
    for batch in options.batches:
        for name, (call, size) in _masks(device, batch, options.vocab).items():
            took = device.microseconds(call)
            yield {"mask": name, "batch": batch, "us": took, "share of a copy": size / took / peak}


def _masks(device: Device, batch: int, vocab: int) -> dict[str, tuple[Callable[[], Any], int]]:
    """Calls, and the bytes that each has to move: in place the mask and the lines of memory with forbidden logits."""
    rng = np.random.default_rng(0)
    bits = device.put(rng.integers(-(2**31), 2**31, (batch, -(-vocab // 32))).astype(np.int32))
    kind = device.put(rng.integers(0, 100, vocab).astype(np.int32))
    allowed = device.put(rng.integers(0, 2, (batch, 100)).astype(np.bool_))
    x = device.put(rng.normal(size=(batch, vocab)).astype(np.float32))
    backend = backend_of(x)
    packed, classed, logits = bits.numel() * 4, kind.numel() * 4, x.numel() * 4
    calls: dict[str, tuple[Callable[[], Any], int]] = {
        "packed, in place": (lambda: backend.apply_token_mask(x, bits, True), packed + logits),
        "packed, to a copy": (lambda: backend.apply_token_mask(x, bits), packed + 2 * logits),
        "classes, in place": (lambda: backend.apply_class_mask(x, allowed, kind, True), classed + logits),
    }
    return calls | {name: (call, packed + logits) for name, call in _rivals(x, bits)}


def _rivals(x: Any, bits: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    if importlib.util.find_spec("xgrammar") is not None:
        import xgrammar

        yield "xgrammar", lambda: xgrammar.apply_token_bitmask_inplace(x, bits)
    if importlib.util.find_spec("llguidance") is not None:
        from llguidance.torch import apply_token_bitmask_inplace

        yield "llguidance", lambda: apply_token_bitmask_inplace(x, bits)


def _vocabulary(size: int) -> Vocabulary:
    rng = np.random.default_rng(1)
    letters = [bytes([97 + n]) for n in range(26)] + [b" "]
    words = [bytes(rng.integers(97, 123, rng.integers(2, 9)).astype(np.uint8)) for _ in range(size - 1 - len(letters))]
    return Vocabulary([b"", *letters, *words], eos=[0])


def chains(device: Device, options: argparse.Namespace) -> Iterator[Row]:
    """Steps of whole chains, by themselves and as CUDA graphs."""
    words, rng = _vocabulary(options.vocab), np.random.default_rng(2)
    for name, specs in CHAINS.items():
        chain = processors.load(*specs, tokenizer=words, debug=False)
        for batch in options.batches:
            # A model's logits spread wider than those of the other parts: a nucleus holds some hundreds of tokens.
            x = device.put((3 * rng.normal(size=(batch, options.vocab))).astype(np.float32))
            start = Context.start(x, prompt=[[1, 2, 3]] * batch, max_length=256)
            _, state = chain.process(x, chain.init_state(start), start)
            context = start.accept(device.put(np.full((batch, 1), 5, dtype=np.int32)))

            def step(chain: Any = chain, x: Any = x, state: Any = state, context: Any = context) -> Any:
                return chain.process(x, state, context)

            row: Row = {"chain": name, "batch": batch, "us": device.microseconds(step)}
            if device.name == "cuda":
                row["as a graph, us"] = device.microseconds(_recorded(device.torch, step).replay)
            yield row


def nuclei(device: Device, options: argparse.Namespace) -> Iterator[Row]:
    """The border of a nucleus with a mass of 0.9: a sort of the vocabulary, and what the backend does instead."""
    rng = np.random.default_rng(3)
    for batch in options.batches:
        normal = rng.normal(size=(batch, options.vocab)).astype(np.float32)
        border = np.sort(3 * normal, axis=-1)[:, -50:][:, :1]
        cut = np.where(3 * normal < border, -np.inf, 3 * normal).astype(np.float32)
        for name, host in {"cut": cut, "peaked": 3 * normal, "flat": normal}.items():
            x = device.put(host)
            backend = backend_of(x)

            def sorting(x: Any = x, backend: Any = backend) -> Any:
                return logitloom.Backend.nucleus_threshold(backend, x, 0.9)

            def own(x: Any = x, backend: Any = backend) -> Any:
                return backend.nucleus_threshold(x, 0.9)

            took = []
            for call in (sorting, own):
                call()
                took.append(
                    device.microseconds(_recorded(device.torch, call).replay if device.name == "cuda" else call)
                )
            yield {"logits": name, "batch": batch, "sort, us": took[0], "us": took[1], "ratio": took[1] / took[0]}


def _recorded(torch: Any, step: Callable[[], Any]) -> Any:
    """A graph of a step; raises where the host would wait."""
    graph, before = torch.cuda.CUDAGraph(), torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.graph(graph):
            graph.kept = step()
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return graph


def other_libraries(device: Device, options: argparse.Namespace) -> Iterator[Row]:
    """The named operations beside bare calls, on CuPy and JAX."""
    import backends

    ran, why = [], []
    for name in ("cupy", "jax") if options.device == "cuda" else ("jax",):
        try:
            backend = logitloom.load_backend(name)
        except logitloom.errors.LogitloomError as error:
            why.append(f"{name}: {error}")
            continue
        if name == "jax" and options.device == "cuda" and _jax_device() == "cpu":
            why.append("jax: it finds no device")
            continue
        ran.append(name)
        for label, (named, bare) in backends.operations(backend, (8, options.vocab)).items():
            one, other = (backends.median(backend, call, device.seconds) for call in (named, bare))
            yield {"library": name, "operation": label, "us": one, "bare us": other, "ratio": one / other}
    if not ran:
        raise Missing("; ".join(why))


def _jax_device() -> str:
    import jax

    found: str = jax.default_backend()
    return found


def in_vllm(device: Device, options: argparse.Namespace) -> Iterator[Row]:
    """Time per token of each request in vLLM, with and without chains, on both model runners."""
    if importlib.util.find_spec("vllm") is None:
        raise Missing("vLLM is not installed")
    if not options.model:
        raise Missing("no --model FOLDER was given")
    for runner in ("0", "1") if device.name == "cuda" else ("0",):
        environment = {"VLLM_USE_V2_MODEL_RUNNER": runner, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"}
        if device.name == "cpu":
            environment["VLLM_CPU_KVCACHE_SPACE"] = "1"
        batches = [str(batch) for batch in options.batches]
        command = [sys.executable, __file__, "--serve", options.model, "--batches", *batches]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
        told = [line for line in done.stdout.splitlines() if line.startswith("ROWS")]
        if not told:
            yield {"runner": f"V{int(runner) + 1}", "work": f"failed: {done.stderr.strip().splitlines()[-1:]}"}
            continue
        for row in json.loads(told[0].removeprefix("ROWS")):
            yield {"runner": f"V{int(runner) + 1}", **row}


def serve(options: argparse.Namespace) -> list[Row]:
    """What one engine measures, in its own process."""
    from vllm import LLM, SamplingParams

    rows: list[Row] = []
    has_device = importlib.import_module("torch").cuda.is_available()
    # Without asynchronous scheduling, which hides tokens from processors on model runner V1.
    llm = LLM(
        model=options.serve, max_model_len=256, max_num_seqs=max(options.batches), seed=0, disable_log_stats=True,
        enable_prefix_caching=False, async_scheduling=False, enforce_eager=not has_device,
    )  # fmt: skip
    for batch in options.batches:
        plain = 0.0
        for work, chain in SERVED.items():
            extra = None if chain is None else {"logitloom": chain}
            sampling = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=chain is None, extra_args=extra)
            times = []
            for round_ in range(4):
                begin = time.perf_counter()
                outputs = llm.generate(["A list of words: "] * batch, sampling, use_tqdm=False)
                most = max(len(output.outputs[0].token_ids) for output in outputs)
                if round_:
                    times.append((time.perf_counter() - begin) / most * 1e3)
            took = statistics.median(times)
            plain = plain or took
            rows.append({"work": work, "batch": batch, "ms a token": took, "beside no chain": took / plain})
    return rows


PARTS: dict[str, Callable[[Device, argparse.Namespace], Iterator[Row]]] = {
    "masks": masks,
    "chains": chains,
    "nuclei": nuclei,
    "other libraries": other_libraries,
    "vLLM": in_vllm,
}


def table(rows: list[Row]) -> str:
    """Rows as a table in Markdown."""
    columns = list(dict.fromkeys(name for row in rows for name in row))

    def cell(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(cell(row.get(name, "")) for name in columns) + " |" for row in rows)])


def main(arguments: list[str]) -> None:
    """Run every part and print its table, or why it cannot run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="per measurement")
    parser.add_argument("--vocab", type=int, default=131_072)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--copy", type=int, default=1 << 28, help="bytes of the copy that bandwidth is measured with")
    parser.add_argument("--model", help="a folder for vLLM")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        print("ROWS" + json.dumps(serve(options)))
        return
    try:
        device = Device(options.device, options.seconds)
    except Missing as reason:
        print(f"Nothing was measured: {reason}.")
        return
    print(f"Device: {device.title}. PyTorch {device.torch.__version__}, logitloom {logitloom.__version__}.\n")
    print(heading("torch", "triton", "cupy-cuda12x", "cupy-cuda13x", "jax", "vllm", "xgrammar", "llguidance"))
    for name, part in PARTS.items():
        print(f"\n## {name}\n")
        try:
            print(table(list(part(device, options))))
        except Missing as reason:
            print(f"Skipped: {reason}.")


if __name__ == "__main__":
    main(sys.argv[1:])
