"""Constrained decoding step by step on a vocabulary of 131,072 ids, beside four other engines in the same process.

    OMP_NUM_THREADS=1 python benchmarks/fsm.py [--batches 1 8 64] [--passes 7] [--engines NAME] [--cpu] [--memory]

Every engine works through the same random legal walks, each through its own fastest documented interface, and masks
the same float32 PyTorch tensor. The others write -inf into it in place. logitloom may do that, or return another
tensor, from a pool such as its own decoding loops use (``--in-place`` leaves it out). Printed are median microseconds:

* first mask: pattern text to the first applied mask (compilation included, nothing cached; what belongs to the
  vocabulary alone is built before);
* step: every row takes a token, its mask is found and applied. One walk warms up; those that are timed are others,
  so states that are visited for the first time are included as they come.

"fill" is what the machine needs to write -inf over the whole tensor, measured between the steps. A dash means that the
engine refused the pattern, or rejected a legal walk, or needs more than ``--limit`` seconds for its first mask (tried
in a child process). With ``--memory`` each engine instead runs all patterns at batch 1 in a process of its own, and
the growth of its peak memory is printed.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from automata import PATTERNS, tekken
from conditions import heading

from logitloom import Context, processors
from logitloom.automata import TokenAutomaton, compile_pattern, default_cache
from logitloom.masks.logits_pool import LogitsPool
from logitloom.vocabulary import Vocabulary

STEPS = 12
POOL = True
CLOCK: Callable[[], float] = time.perf_counter
Walks = list[list[int]]


class Ours:
    """The ``regex`` processor through a chain, as an application uses it."""

    name = "logitloom"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.chain = processors.load("regex", tokenizer=vocabulary, debug=False)
        self.vocabulary = vocabulary
        # One for all, as a loop keeps it: it belongs to the logits, not to a pattern.
        self.pool = LogitsPool() if POOL else None

    def compile(self, pattern: str) -> Any:
        default_cache().clear()
        return self.chain.configure(regex={"pattern": pattern})

    def start(self, chain: Any, logits: torch.Tensor) -> Callable[[Sequence[int] | None], None]:
        context = Context.start(logits, vocabulary=self.vocabulary, donate=True, pool=self.pool)
        state = chain.init_state(context)

        def step(tokens: torch.Tensor | None) -> None:
            nonlocal state
            _, state = chain.process(logits, state, context if tokens is None else context.accept(tokens))

        return step

    prepare = staticmethod(lambda tokens: torch.tensor(tokens, dtype=torch.int32)[:, None])


class LlGuidance:
    """Matchers, masks by the parallel executor, and the library's own compiled kernel."""

    name = "llguidance"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance
        import llguidance.torch as kernels

        from logitloom_plugins.grammars.llguidance import engine_tokenizer

        self.library, self.kernels = llguidance, kernels
        self.tokenizer = engine_tokenizer(vocabulary, vocabulary.size)
        self.executor = llguidance.LLExecutor(num_threads=1) if CLOCK is time.process_time else llguidance.LLExecutor()
        self.size = vocabulary.size

    def compile(self, pattern: str) -> Any:
        matcher = self.library.LLMatcher(self.tokenizer, self.library.LLMatcher.grammar_from_regex(pattern))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def start(self, matcher: Any, logits: torch.Tensor) -> Callable[[Sequence[int] | None], None]:
        kernels, rows = self.kernels, [matcher.deep_copy() for _ in range(len(logits))]
        bits = kernels.allocate_token_bitmask(len(logits), self.size)
        numbered = [(row, i) for i, row in enumerate(rows)]

        def step(tokens: Sequence[int] | None) -> None:
            if len(rows) == 1:
                if tokens is not None and not rows[0].consume_token(tokens[0]):
                    raise ValueError("rejected a token")
                kernels.fill_next_token_bitmask(rows[0], bits)
            else:
                if tokens is not None:
                    taken = [(row, token) for row, token in zip(rows, tokens, strict=True)]
                    if not all(kernels.consume_token_par(self.executor, taken)):
                        raise ValueError("rejected a token")
                kernels.fill_next_token_bitmask_par(self.executor, numbered, bits)
            kernels.apply_token_bitmask_inplace(logits, bits)

        return step

    prepare = staticmethod(list)


class XGrammar:
    """Compiled grammars, the batched matcher, and the library's own kernel for the CPU."""

    name = "xgrammar"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import xgrammar

        table = [b or f"<special_{i}>".encode() for i, b in enumerate(vocabulary.token_bytes)]
        info = xgrammar.TokenizerInfo(table, vocab_size=vocabulary.size, stop_token_ids=list(vocabulary.eos))
        self.library, self.size = xgrammar, vocabulary.size
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.batch = xgrammar.BatchGrammarMatcher(max_threads=1)

    def compile(self, pattern: str) -> Any:
        return self.compiler.compile_regex(pattern)

    def start(self, grammar: Any, logits: torch.Tensor) -> Callable[[Sequence[int] | None], None]:
        library, rows = self.library, [self.library.GrammarMatcher(grammar) for _ in range(len(logits))]
        bits = library.allocate_token_bitmask(len(logits), self.size)

        def step(tokens: Sequence[int] | None) -> None:
            if len(rows) == 1:
                if tokens is not None and not rows[0].accept_token(tokens[0]):
                    raise ValueError("rejected a token")
                rows[0].fill_next_token_bitmask(bits)
            else:
                if tokens is not None and not all(self.batch.batch_accept_token(rows, tokens)):
                    raise ValueError("rejected a token")
                self.batch.batch_fill_next_token_bitmask(rows, bits)
            library.apply_token_bitmask_inplace(logits, bits)

        return step

    prepare = staticmethod(list)


class OutlinesCore:
    """An index, a guide per row, masks written into one tensor, and the library's own compiled kernel."""

    name = "outlines-core"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import outlines_core
        import outlines_core.kernels.torch as kernels

        by_bytes: dict[bytes, list[int]] = {}
        for token, text in enumerate(vocabulary.token_bytes):
            if text:
                by_bytes.setdefault(text, []).append(token)
        self.library, self.kernels = outlines_core, kernels
        self.vocabulary = outlines_core.Vocabulary(vocabulary.eos[0], by_bytes)
        self.size = vocabulary.size

    def compile(self, pattern: str) -> Any:
        return self.library.Index(pattern, self.vocabulary)

    def start(self, index: Any, logits: torch.Tensor) -> Callable[[Sequence[int] | None], None]:
        rows = [self.library.Guide(index) for _ in range(len(logits))]
        bits = torch.full((len(logits), (self.size + 31) // 32), -1, dtype=torch.int32)
        lines = [bits[i : i + 1] for i in range(len(logits))]

        def step(tokens: Sequence[int] | None) -> None:
            for i, (row, line) in enumerate(zip(rows, lines, strict=True)):
                if tokens is not None:
                    row.advance(tokens[i], False)
                self.kernels.fill_next_token_bitmask(row, line)
            self.kernels.apply_token_bitmask_inplace(logits, bits)

        return step

    prepare = staticmethod(list)


class FormatEnforcer:
    """A token enforcer over all rows (its cache is by prefix), lists of ids, and masks that are added."""

    name = "lm-format-enforcer"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import lmformatenforcer

        regular = []
        for token, text in enumerate(vocabulary.token_bytes):
            if text:
                shown = text.decode("utf-8", "replace")
                regular.append((token, shown, shown.startswith(" ")))
        self.library = lmformatenforcer
        self.data = lmformatenforcer.TokenEnforcerTokenizerData(
            regular, vocabulary.decode, vocabulary.eos[0], False, vocabulary.size
        )

    def compile(self, pattern: str) -> Any:
        return self.library.TokenEnforcer(self.data, self.library.RegexParser(pattern))

    def start(self, enforcer: Any, logits: torch.Tensor) -> Callable[[Sequence[int] | None], None]:
        prefixes: list[list[int]] = [[] for _ in range(len(logits))]
        masks = torch.empty_like(logits)

        def step(tokens: Sequence[int] | None) -> None:
            for i, prefix in enumerate(prefixes):
                if tokens is not None:
                    prefix.append(tokens[i])
                allowed = enforcer.get_allowed_tokens(prefix).allowed_tokens
                # As its own engine integrations do: a mask that is kept, and added to the scores.
                masks[i].fill_(-math.inf)
                masks[i][allowed] = 0
                logits[i].add_(masks[i])

        return step

    prepare = staticmethod(list)


ENGINES: dict[str, Any] = {e.name: e for e in (Ours, LlGuidance, XGrammar, OutlinesCore, FormatEnforcer)}


def random_walks(pattern: str, vocabulary: Vocabulary, rows: int, seed: int) -> Walks:
    """The longest of some random legal walks, cut to one length; no end-of-sequence in them."""
    random = np.random.default_rng(seed)
    automaton = TokenAutomaton(compile_pattern(pattern), vocabulary)
    ascii_only = np.array([text.isascii() for text in vocabulary.token_bytes])
    first = next(i for i, text in enumerate(vocabulary.token_bytes) if text)
    walks = []
    for _ in range(2 * rows):
        state, walk = automaton.start(), []
        while len(walk) < STEPS:
            tokens = automaton.row(state)
            tokens = tokens[tokens != vocabulary.eos[0]]
            if not len(tokens):
                break
            # Plain ASCII where there is a choice: engines differ in what their \w and \d are beyond it.
            plain = tokens[ascii_only[tokens]]
            tokens = plain if len(plain) else tokens
            # A tokenizer's ids are in the order of its merges, so this is about how often text has them.
            weights = 1 / (tokens - (first - 2.7)) ** 1.1
            walk.append(int(random.choice(tokens, p=weights / weights.sum())))
            state = automaton.advance(state, walk[-1])
        walks.append(walk)
    walks = sorted(walks, key=len, reverse=True)[:rows]
    return [walk[: len(walks[-1])] for walk in walks]


def refused(engine: Any, pattern: str, walks: Walks, logits: torch.Tensor, limit: float) -> str:
    """Why an engine cannot take part with a pattern, found out in a child process; empty if it can."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(max(1, math.ceil(limit)))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        said = ""
        try:
            begin = CLOCK()
            step = engine.start(engine.compile(pattern), logits)
            step(None)
            if CLOCK() - begin > limit:
                said = f"over {limit:.0f} s"
            for token in walks[0]:
                step(engine.prepare([token]))
        except BaseException as error:  # whatever a library raises (or panics with) is its refusal
            said = f"{type(error).__name__}: {error}".splitlines()[0][:60]
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    return said or ("" if status == 0 else f"over {limit:.0f} s, or crashed")


def first_masks(engine: Any, pattern: str, logits: torch.Tensor, runs: int) -> list[float]:
    gc.collect()
    times: list[float] = []
    while len(times) < runs + 1 and sum(times) < 1e6:
        begin = CLOCK()
        engine.start(engine.compile(pattern), logits)(None)
        times.append((CLOCK() - begin) * 1e6)
    return times[1:] or times


def step_time(engine: Any, compiled: Any, all_walks: list[Walks], logits: torch.Tensor, fills: list[float]) -> float:
    """Median over passes of the mean time of a step; the first pass warms up."""
    passes = []
    for walks in all_walks:
        columns = [engine.prepare(column) for column in zip(*walks, strict=True)]
        step = engine.start(compiled, logits)
        step(None)
        spent = 0.0
        for tokens in columns:
            begin = CLOCK()
            step(tokens)
            spent += CLOCK() - begin
            begin = CLOCK()
            logits.fill_(0.5)
            fills.append((CLOCK() - begin) * 1e6)
        passes.append(spent / len(columns) * 1e6)
    return statistics.median(passes[1:])


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def table(title: str, results: dict[str, dict[str, float]], notes: dict[str, str]) -> None:
    """Times by pattern, the ratio of the best peer to ours, and geometric means."""
    names = list(ENGINES)
    print(f"\n## {title}\n\n| pattern |" + "".join(f" {n} |" for n in names) + " best peer / ours | |")
    print("|---|" + "---:|" * (len(names) + 1) + "---|")
    ratios = []
    for pattern, times in results.items():
        ours, peers = times["logitloom"], [t for n, t in times.items() if n != "logitloom"]
        cells = "".join(f" {times[n]:,.0f} |" if n in times else " - |" for n in names)
        ratios.append(min(peers, default=math.nan) / ours)
        print(f"| {pattern} |{cells} {ratios[-1]:.1f} | {notes.get(pattern, '')} |")
    whole = [r for r in ratios if not math.isnan(r)]
    print(f"| **geometric mean** |{''.join(mean_cell(results, n) for n in names)} **{geometric_mean(whole):.1f}** | |")
    for name in names[1:]:
        both = [t[name] / t["logitloom"] for t in results.values() if name in t]
        if both:
            print(f"\n{name} / logitloom over their {len(both)} common patterns: {geometric_mean(both):.2f}", end="")
            print(f" (least {min(both):.2f}, most {max(both):,.2f})")


def mean_cell(results: dict[str, dict[str, float]], name: str) -> str:
    return f" {geometric_mean([t[name] for t in results.values() if name in t]):,.0f} |"


def compare(patterns: dict[str, str], options: argparse.Namespace) -> None:
    vocabulary = tekken()
    print(f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}, ", end="")
    print(f"{torch.get_num_threads()} thread, {CLOCK.__name__}; vocabulary {vocabulary.size:,} ids\n")
    engines = {}
    for name in options.engines:
        make = ENGINES[name]
        try:
            begin = CLOCK()
            engine = engines[name] = make(vocabulary)
            for batch in (1, *options.batches):  # also compiles the kernels that are compiled
                engine.start(engine.compile("a+"), torch.zeros((batch, vocabulary.size)))(None)
            print(f"- {name}: vocabulary prepared in {CLOCK() - begin:.2f} s")
        except ImportError as error:
            print(f"- {name}: not installed ({error})")
    able: dict[str, list[str]] = {}
    single = torch.zeros((1, vocabulary.size))
    for name, pattern in patterns.items():
        walks = random_walks(pattern, vocabulary, 1, 0)
        able[name] = []
        for engine_name, engine in engines.items():
            said = "" if engine_name == "logitloom" else refused(engine, pattern, walks, single, options.limit)
            if said:
                print(f"- {engine_name} leaves out {name!r}: {said}")
            else:
                able[name].append(engine_name)
    taken: dict[str, dict[str, list[float]]] = {name: {e: [] for e in able[name]} for name in patterns}
    # The speed of a machine changes from second to second: who is measured three times meets several of its moods.
    for _ in range(3):
        for name, pattern in patterns.items():
            for e, times in taken[name].items():
                times += first_masks(engines[e], pattern, single, -(-options.runs // 3))
    firsts = {name: {e: statistics.median(times) for e, times in of.items()} for name, of in taken.items()}
    table("time to first mask, microseconds", firsts, {})
    for batch in options.batches:
        logits = torch.zeros((batch, vocabulary.size))
        results: dict[str, dict[str, float]] = {}
        notes = {}
        fills: list[float] = []
        for name, pattern in patterns.items():
            results[name] = {}
            all_walks = [random_walks(pattern, vocabulary, batch, seed) for seed in range(options.passes + 1)]
            for engine_name in able[name]:
                if engine_name == "lm-format-enforcer" and firsts[name][engine_name] * batch > 1e6:
                    continue  # every state costs it a first mask
                engine = engines[engine_name]
                compiled = engine.compile(pattern)
                try:
                    results[name][engine_name] = step_time(engine, compiled, all_walks, logits, fills)
                except Exception as error:
                    print(f"- {engine_name} leaves out {name!r} at batch {batch}: {error}")
            notes[name] = describe_rows(pattern, vocabulary, all_walks[-1])
        table(f"step at batch {batch}, microseconds", results, notes)
        bare = statistics.median(fills)
        rate = logits.nbytes / bare / 1e3
        print(f"\nbare fill of the tensor: {bare:,.0f} us, {rate:.1f} GB/s")
        narrow = [bare / results[n]["logitloom"] for n in results if "restrictive" in notes[n]]
        if narrow:
            print(f"\nlogitloom with restrictive masks: {min(narrow):.0%} to {max(narrow):.0%} of that, ", end="")
            print(f"median {statistics.median(narrow):.0%}")


def describe_rows(pattern: str, vocabulary: Vocabulary, walks: Walks) -> str:
    """What most masks of the walks look like."""
    automaton = TokenAutomaton(compile_pattern(pattern), vocabulary)
    sizes = []
    for walk in walks[:4]:
        state = automaton.start()
        for token in walk:
            state = automaton.advance(state, token)
            sizes.append(len(automaton.row(state)))
    middle = statistics.median(sizes)
    kind = (
        "restrictive" if middle * 16 <= vocabulary.size else "permissive" if middle * 2 >= vocabulary.size else "mixed"
    )
    return f"{kind}, {middle:,.0f} allowed"


def resident(field: str) -> float:
    """MiB of this process, now (``VmRSS``) or at most since the last reset (``VmHWM``)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def memory(name: str, patterns: dict[str, str], walks: dict[str, Walks], limit: float) -> None:
    """In this process: peak growth while one engine works through all patterns.

    The walks come from outside: making them here would leave our own tables, and a high peak, in the base.
    """
    vocabulary = tekken()
    logits = torch.zeros((1, vocabulary.size))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts again from here
    base = resident("VmRSS")
    engine = ENGINES[name](vocabulary)
    engine.start(engine.compile("a+"), logits)(None)
    ready, ready_peak = resident("VmRSS"), resident("VmHWM")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    kept = []
    for label, pattern in patterns.items():
        if name != "logitloom" and refused(engine, pattern, walks[label], logits, limit):
            continue
        compiled = engine.compile(pattern)
        step = engine.start(compiled, logits)
        step(None)
        for token in walks[label][0]:
            step(engine.prepare([token]))
        kept.append((compiled, step))
    grown, peak = resident("VmRSS") - ready, resident("VmHWM") - ready
    cells = f"{ready - base:,.0f} | {ready_peak - base:,.0f} | {grown:,.0f} | {peak:,.0f}"
    print(f"| {name} | {cells} | {len(kept)} |", flush=True)


#: What a page of results names beside NumPy.
DISTRIBUTIONS = ("numba", "torch", "llguidance", "xgrammar", "outlines-core", "lm-format-enforcer", "mistral-common")


def main() -> None:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--limit", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES), metavar="NAME")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cpu", action="store_true", help="CPU time, everybody on one thread (busy machines)")
    parser.add_argument("--in-place", action="store_true", help="no pool of buffers for logitloom")
    options = parser.parse_args()
    global CLOCK, POOL
    POOL = not options.in_place
    if options.cpu:
        CLOCK = time.process_time
    patterns = {n: p for n, p in PATTERNS.items() if not options.names or n in options.names}
    if options.memory_of:
        memory(options.memory_of, patterns, json.load(sys.stdin), options.limit)
    elif options.memory:
        print(heading(*DISTRIBUTIONS), flush=True)
        vocabulary = tekken()
        walks = json.dumps({n: random_walks(p, vocabulary, 1, 0) for n, p in patterns.items()})
        print("| engine | vocabulary, MiB | its peak | all patterns, MiB | their peak | patterns |", flush=True)
        print("|---|---:|---:|---:|---:|---:|", flush=True)
        for name in options.engines:
            command = [sys.executable, __file__, "--memory-of", name, "--limit", str(options.limit), *options.names]
            subprocess.run(command, input=walks, text=True, check=False)
    else:
        print(heading(*DISTRIBUTIONS), flush=True)
        compare(patterns, options)


if __name__ == "__main__":
    main()
