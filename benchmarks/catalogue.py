"""One of a million items: seconds to build, bytes an item, and steps of 256 rows.

    python benchmarks/catalogue.py [--items 1000000] [--rows 256] [--ids 131072]

Texts are random words of 6 to 20 letters, lists of ids are four codes of 256, as semantic ids are. Rows take random
allowed tokens until their items are written; each is then looked up among the items. Times are those of the clock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from logitloom import Context, Vocabulary, processors
from logitloom.automata import Catalogue
from logitloom.automata.trie import vocabulary_trie


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


def run(items: Catalogue, vocabulary: Vocabulary, rows: int, dice: np.random.Generator) -> tuple[list[float], int]:
    """Seconds of each step, and how many rows wrote something that is no item."""
    chain = processors.load(("choice", {"choices": items}), tokenizer=vocabulary, debug=False)
    logits = np.zeros((rows, vocabulary.size), dtype=np.float32)
    context = Context.start(logits, vocabulary=vocabulary)
    state, times = chain.init_state(context), []
    written: list[list[int]] = [[] for _ in range(rows)]
    while True:
        spent, (out, state) = seconds(lambda s=state, c=context: chain.process(logits, s, c))  # type: ignore[misc]
        times.append(spent)
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


def main() -> None:
    """Print one line for texts and one for lists of ids."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--ids", type=int, default=131_072)
    arguments = parser.parse_args()
    dice = np.random.default_rng(0)
    vocabulary = vocabulary_of(dice, arguments.ids)
    print(f"vocabulary of {vocabulary.size} ids, its trie in {seconds(lambda: vocabulary_trie(vocabulary))[0]:.1f} s")
    texts = random_words(dice, arguments.items, 6, 20)
    codes = dice.integers(0, 256, size=(arguments.items, 4)) + np.arange(257, 257 + 4 * 256, 256)
    for name, make in (("texts", lambda: Catalogue.of_texts(texts)), ("ids", lambda: Catalogue.of_ids(codes))):
        built, items = seconds(make)
        times, illegal = run(items, vocabulary, arguments.rows, dice)
        steps = ", ".join(f"{1000 * spent:.1f}" for spent in times)
        print(
            f"{name}: {len(items)} items in {built:.1f} s, {items.nbytes / len(items):.1f} bytes an item; "
            f"steps of {arguments.rows} rows in ms: {steps}; {illegal} illegal items"
        )


if __name__ == "__main__":
    main()
