"""One of a million items, beside what peers can do: seconds to build, memory an item, and steps of 256 rows and beams.

    python benchmarks/catalogue.py [--items 1000000] [--rows 256] [--ids 131072] [--limit 60]

Texts are random words of 6 to 20 letters, lists of ids are four codes of 256, as semantic ids are. Rows take random
allowed tokens until their items are written; each is then looked up among the items. Then 256 beams search the lists
of ids, with random logits. Peers get 1,000 items, then ten times as many as long as building takes less than the limit
of seconds; each runs in a process of its own, which is ended at the limit. Building is timed by the clock, steps by the
processor: rows take other tokens in each of four runs, the first of which loads kernels and maps memory and does not
count, and of the others the shortest time of each step does.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from conditions import heading
from numpy.typing import NDArray

from logitloom import Chain, Context, Vocabulary, load_backend, processors
from logitloom.automata import Catalogue
from logitloom.automata.lift.trie import vocabulary_trie
from logitloom.generation import BeamSearch, Generator
from logitloom.testing import ToyModel


def random_words(dice: np.random.Generator, count: int, shortest: int, longest: int) -> list[bytes]:
    """Words of letters, repetitions included."""
    letters = dice.integers(97, 123, size=(count, longest), dtype=np.uint8).tobytes()
    lengths = dice.integers(shortest, longest + 1, size=count).tolist()
    return [letters[longest * row : longest * row + length] for row, length in enumerate(lengths)]


def vocabulary_of(dice: np.random.Generator, size: int) -> Vocabulary:
    """End-of-sequence, all bytes, and words of two to six letters."""
    words: dict[bytes, None] = {}
    while len(words) < size - 257:
        words.update(dict.fromkeys(random_words(dice, size, 2, 6)))
    return Vocabulary([b"", *(bytes((byte,)) for byte in range(256)), *list(words)[: size - 257]], eos=[0])


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes, and what it returns."""
    begin = time.perf_counter()
    result = function()
    return time.perf_counter() - begin, result


def shortest(steps: Callable[[np.random.Generator], list[float]]) -> list[float]:
    """Seconds of each step, of the runs that count."""
    runs = [steps(np.random.default_rng(seed)) for seed in range(4)][1:]
    return [min(run[step] for run in runs if step < len(run)) for step in range(max(map(len, runs)))]


def run(items: Catalogue, vocabulary: Vocabulary, rows: int) -> tuple[list[float], int]:
    """Seconds of each step, and how many rows wrote something that is no item."""
    wrong = 0

    def steps(dice: np.random.Generator) -> list[float]:
        nonlocal wrong
        times, found = steps_of(chain, items, vocabulary, rows, dice)
        wrong += found
        return times

    chain = processors.load(("choice", {"choices": items}), tokenizer=vocabulary, debug=False)
    return shortest(steps), wrong


def steps_of(
    chain: Chain, items: Catalogue, vocabulary: Vocabulary, rows: int, dice: np.random.Generator
) -> tuple[list[float], int]:
    """The same of one run."""
    logits = np.zeros((rows, vocabulary.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=vocabulary)
    state, times = chain.init_state(context), []
    written: list[list[int]] = [[] for _ in range(rows)]
    while True:
        started = time.process_time()
        out, state = chain.process(logits, state, context)
        times.append(time.process_time() - started)
        allowed = [np.flatnonzero(row > -np.inf) for row in out]
        tokens = [int(dice.choice(row)) if len(row) else -1 for row in allowed]
        for taken, token in zip(written, tokens, strict=True):
            taken += [token] if token > 0 else []
        if all(token <= 0 for token in tokens):
            break
        context = context.accept([[token] for token in tokens])
    if items.holds_ids:
        known = {tuple(items.item(index)) for index in range(len(items))}
        return times, sum(tuple(taken) not in known for taken in written)
    texts = {items.rest(index, 0).tobytes() for index in range(len(items))}
    return times, sum(vocabulary.text_bytes(taken) not in texts for taken in written)


class RandomModel(ToyModel):
    """A model without tables: the logits of a row are random numbers that depend on its last token and its length."""

    def __init__(self, vocab: int) -> None:
        self.backend, self.vocab_size, self.max_length, self.calls = load_backend("numpy"), vocab, 64, 0

    def row_logits(self, row: Sequence[int]) -> NDArray[np.float32]:
        """``[vocab]``."""
        return np.random.default_rng([row[-1], len(row)]).standard_normal(self.vocab_size, dtype=np.float32)


def beams(items: Catalogue, vocabulary: Vocabulary, count: int) -> tuple[float, float, int]:
    """Seconds of a search without a chain and with ``choice``, and how many hypotheses are no items."""
    chain = processors.load(("choice", {"choices": items}), tokenizer=vocabulary, debug=False)
    strategy = BeamSearch(beams=count, samples=count, early_stopping=True)
    known = {tuple(items.item(index)) for index in range(len(items))}
    model = RandomModel(vocabulary.size)
    free, _ = seconds(lambda: Generator(model, strategy=strategy, max_tokens=5, eos=())([[1]]))
    ruled, found = seconds(lambda: Generator(model, chain, strategy, max_tokens=5)([[1]]))
    assert len(found) == count
    return free, ruled, sum(g.tokens not in known for g in found)


# --- peers ------------------------------------------------------------------------------------------------------------

#: A row's matcher: the ids that may come next, and a function that reads one of them.
Row = tuple[Callable[[], NDArray[np.int64]], Callable[[int], Any]]


def _unpacked(words: NDArray[Any], size: int) -> NDArray[np.int64]:
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[:size])


def llguidance_rows(items: Sequence[bytes], vocabulary: Vocabulary) -> Callable[[], Row]:
    """A regular expression of all items."""
    import llguidance

    from logitloom_plugins.grammars.llguidance import engine_tokenizer

    tokenizer = engine_tokenizer(vocabulary, vocabulary.size)
    grammar = llguidance.LLMatcher.grammar_from_regex("|".join(item.decode() for item in items))

    def begin() -> Row:
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        if matcher.get_error():
            raise ValueError(matcher.get_error())
        return (
            lambda: _unpacked(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), vocabulary.size),
            lambda token: matcher.consume_tokens([token]),
        )

    return begin


def xgrammar_rows(items: Sequence[bytes], vocabulary: Vocabulary) -> Callable[[], Row]:
    """A rule with an alternative for each item."""
    import xgrammar

    texts: list[str | bytes] = list(vocabulary.token_bytes)
    info = xgrammar.TokenizerInfo(texts, vocab_size=vocabulary.size, stop_token_ids=list(vocabulary.eos))
    rule = "root ::= " + " | ".join(f'"{item.decode()}"' for item in items)
    compiled = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False).compile_grammar(rule)

    def begin() -> Row:
        matcher = xgrammar.GrammarMatcher(compiled)
        bits = xgrammar.allocate_token_bitmask(1, vocabulary.size)

        def allowed() -> NDArray[np.int64]:
            matcher.fill_next_token_bitmask(bits)
            return _unpacked(bits.numpy(), vocabulary.size)

        return allowed, matcher.accept_token

    return begin


def outlines_rows(items: Sequence[bytes], vocabulary: Vocabulary) -> Callable[[], Row]:
    """An index of a regular expression of all items."""
    import outlines_core

    table: dict[bytes, list[int]] = {}
    for token, text in enumerate(vocabulary.token_bytes):
        if text:
            table.setdefault(text, []).append(token)
    words = outlines_core.Vocabulary(vocabulary.eos[0], table)
    index = outlines_core.Index("|".join(item.decode() for item in items), words)

    def begin() -> Row:
        guide = outlines_core.Guide(index)
        return lambda: np.asarray(guide.get_tokens()), guide.advance

    return begin


def trie_rows(items: NDArray[np.int64], vocabulary: Vocabulary) -> Callable[[], Row]:
    """A trie of dictionaries over ids, for ``prefix_allowed_tokens_fn`` of transformers (as De Cao et al. have it)."""
    root: dict[int, Any] = {}
    for item in items.tolist():
        node = root
        for token in item:
            node = node.setdefault(token, {})
        node[vocabulary.eos[0]] = {}

    def begin() -> Row:
        at = [root]
        return lambda: np.fromiter(at[0], dtype=np.int64), lambda token: at.__setitem__(0, at[0][token])

    return begin


PEERS: dict[str, Callable[[Any, Vocabulary], Callable[[], Row]]] = {
    "texts, llguidance": llguidance_rows,
    "texts, xgrammar": xgrammar_rows,
    "texts, outlines-core": outlines_rows,
    "ids, transformers' prefix function over a trie": trie_rows,
}


def peer_steps(begin: Callable[[], Row], rows: int, vocabulary: Vocabulary, dice: np.random.Generator) -> list[float]:
    """Seconds of each step of some rows: the allowed ids of each row, and a masked array of logits."""
    matchers, times = [begin() for _ in range(rows)], []
    taken: list[int | None] = [None] * rows
    while True:
        started = time.process_time()
        out = np.full((rows, vocabulary.size), -np.inf, dtype=np.float32)
        allowed: list[NDArray[np.int64]] = []
        for row, (ask, read) in enumerate(matchers):
            token = taken[row]
            if token == vocabulary.eos[0]:
                allowed.append(np.asarray(vocabulary.eos))
                continue
            if token is not None:
                read(token)
            allowed.append(ask())
            out[row, allowed[-1]] = 0.0
        times.append(time.process_time() - started)
        taken = [int(dice.choice(ids)) for ids in allowed]
        if all(token == vocabulary.eos[0] for token in taken):
            return times


def _peer(name: str, items: Any, vocabulary: Vocabulary, rows: int, answer: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        built, begin = seconds(lambda: PEERS[name](items, vocabulary))
        first, _ = seconds(lambda: begin()[0]())  # some compile when they are first asked
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        answer.send((built + first, grown, shortest(lambda dice: peer_steps(begin, rows, vocabulary, dice))))
    except Exception as error:
        answer.send(f"{type(error).__name__}: {error!s:.200}")


def peers(texts: Sequence[bytes], codes: NDArray[np.int64], vocabulary: Vocabulary, rows: int, limit: float) -> None:
    """Print a line per peer and number of items, up to the number that takes longer than the limit."""
    spawned = multiprocessing.get_context("fork")
    for name in PEERS:
        count = 1000
        while count <= len(texts):
            items: Any = codes[:count] if name.startswith("ids") else texts[:count]
            receiver, sender = spawned.Pipe(duplex=False)
            process = spawned.Process(target=_peer, args=(name, items, vocabulary, rows, sender))
            process.start()
            told = receiver.recv() if receiver.poll(limit) else f"not ready after {limit:.0f} s"
            process.kill()
            process.join()
            if isinstance(told, str):
                print(f"{name}: {count} items: {told}", flush=True)
                break
            built, grown, times = told
            steps = ", ".join(f"{1000 * spent:.1f}" for spent in times[:8])
            print(
                f"{name}: {count} items in {built:.2f} s, {grown / count:.0f} bytes an item; steps of {rows} rows in "
                f"ms: {steps}",
                flush=True,
            )
            count *= 10


def main() -> None:
    """Print a line for texts and one for lists of ids, then the beams and the peers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--ids", type=int, default=131_072)
    parser.add_argument("--limit", type=float, default=60.0)
    arguments = parser.parse_args()
    print(heading("llguidance", "xgrammar", "outlines-core", "transformers"))
    dice = np.random.default_rng(0)
    vocabulary = vocabulary_of(dice, arguments.ids)
    print(f"vocabulary of {vocabulary.size} ids, its trie in {seconds(lambda: vocabulary_trie(vocabulary))[0]:.1f} s")
    texts = random_words(dice, arguments.items, 6, 20)
    codes = dice.integers(0, 256, size=(arguments.items, 4)) + np.arange(257, 257 + 4 * 256, 256)
    for name, make in (("texts", lambda: Catalogue.of_texts(texts)), ("ids", lambda: Catalogue.of_ids(codes))):
        built, items = seconds(make)
        times, illegal = run(items, vocabulary, arguments.rows)
        steps = ", ".join(f"{1000 * spent:.1f}" for spent in times)
        print(
            f"{name}: {len(items)} items in {built:.1f} s, {items.nbytes / len(items):.1f} bytes an item; "
            f"steps of {arguments.rows} rows in ms: {steps}; {illegal} illegal items",
            flush=True,
        )
    free, ruled, illegal = beams(items, vocabulary, arguments.rows)
    print(
        f"beam search, {arguments.rows} beams over the ids: {ruled:.1f} s, {free:.1f} s without the chain; {illegal} "
        f"illegal items",
        flush=True,
    )
    peers(texts, codes, vocabulary, arguments.rows, arguments.limit)


if __name__ == "__main__":
    main()
