"""Grammars made to hurt, and random ones: each ends in a constraint or in a sentence, within its time and memory."""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Vocabulary, processors
from logitloom.errors import BudgetExceeded, LogitloomError
from logitloom.masks.kernels import load_kernels
from tests.cases import examples

pytestmark = pytest.mark.extras

SECONDS = 0.4
#: What a look at the clock may be late by, llguidance with its limits included, where memory is slow.
LATE = 0.3
ENGINES = ("llguidance", "xgrammar")


def chain_of_rules(count: int, body: str) -> str:
    """Rules that each name the next one."""
    rules = [f"r{i} ::= {body.format(f'r{i + 1}')}" for i in range(count)]
    return "\n".join(["root ::= r0", *rules, f'r{count} ::= "a"'])


CHARACTERS = [chr(0x4E00 + 2 * i) for i in range(3000)]
ADVERSARIAL = {
    "doubling rules": chain_of_rules(3000, "{0} {0}"),
    "a long chain": chain_of_rules(3000, '"a" {0}'),
    "a long chain backwards": "\n".join(reversed(chain_of_rules(3000, '"a" {0} | {0} "b"').split("\n"))),
    "a circle of many rules": chain_of_rules(2000, '"a" {0} root | "b"'),
    "many alternatives": f"root ::= {' | '.join(f'{c!r}'.replace(chr(39), chr(34)) for c in CHARACTERS)}",
    "lexemes that are hard": "\n".join(
        ['root ::= "(" root ")" | ' + " | ".join(f"r{i}" for i in range(60))]
        + [f'r{i} ::= ([a-z] | [a-z]{{2,{90 + i}}} "x")* [b-z]{{{i}}} [^a]{{0,{i}}}' for i in range(60)]
    ),
    "repeats within repeats": 'root ::= (("a" | "b"){0,1000}){0,1000}',
    "deep brackets": f"root ::= {'(' * 99}{chr(34)}a{chr(34)}{')?' * 99}",
    "too deep brackets": f"root ::= {'(' * 5000}{chr(34)}a{chr(34)}{')?' * 5000}",
    "left recursion": "\n".join(['root ::= root root | root "a" | ""', *(f'x{i} ::= x{i} | "b"' for i in range(500))]),
    "no text": "\n".join(["root ::= r0", *(f"r{i} ::= r{(i + 1) % 2000}" for i in range(2000))]),
    "very many words": f"root ::= {' | '.join(f'{chr(34)}{i:07d}word{i * 7919}{chr(34)}' for i in range(15000))}",
    "rules that are much alike": "\n".join(
        ["root ::= r0"]
        + [f'r{i} ::= "a{i}" r{(i + 1) % 400} [a-z]* | r{(i * 7) % 400} "b{i}" | "c"' for i in range(400)]
    ),
    "overlapping sets": f"root ::= {' '.join(f'[{chr(0x4E00 + i)}-{chr(0x4E02 + 3 * i)}]*' for i in range(900))}",
}


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> Iterator[None]:
    load_kernels()  # loading them belongs to the installation, not to a grammar
    for engine in ENGINES:
        pytest.importorskip(engine)
        processors.load(("grammar", {"grammar": 'root ::= "a" root | [a-z]', "engine": engine}))
    gc.collect()
    gc.freeze()  # what other tests have left takes the garbage collector's time, which is not the grammar's
    yield
    gc.unfreeze()


WORDS = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])


def check_time(grammar: str, engine: str) -> None:
    """Reading a grammar, and making its constraint, each end in time."""
    message, chain, begin = "", None, time.process_time()
    try:
        chain = processors.load(("grammar", {"grammar": grammar, "engine": engine, "max_seconds": SECONDS}))
        read, begin = time.process_time() - begin, time.process_time()
        chain["grammar"].constraint(WORDS, WORDS.size)
    except LogitloomError as error:
        message = str(error)
    taken = time.process_time() - begin
    assert taken < 1.2 * SECONDS + LATE
    assert chain is None or read < 1.2 * SECONDS + LATE
    assert len(message) < 500


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.long
def test_adversarial_grammars_end_in_time(name: str, engine: str) -> None:
    check_time(ADVERSARIAL[name], engine)


def made_up(dice: random.Random) -> str:
    """Rules that name each other at random, with sets, repeats and brackets."""
    names = [f"r{i}" for i in range(dice.choice([1, 5, 30, 120]))]

    def part(depth: int) -> str:
        kind = dice.randrange(7 if depth else 4)
        if kind < 2:
            return dice.choice(names)
        if kind == 2:
            return dice.choice(['"ab"', '""', '"é"', '"("', "[a-z]", "[^x]", "[а-я0-9]", "[a-zA-Z_ ]"])
        if kind == 3:
            return dice.choice(["[a-f]{2,40}", "[^\\n]*", "[0-9]+", '"x"?'])
        inner = dice.choice([" ", " | "]).join(part(depth - 1) for _ in range(dice.randrange(1, 4)))
        return f"({inner})" + dice.choice(["", "*", "+", "?", "{0,9}", "{3}"])

    bodies = [" ".join(part(2) for _ in range(dice.randrange(1, 4))) for _ in names]
    ends = [f"{name} ::= {body} | {dice.choice(['[a-z]', names[0]])}" for name, body in zip(names, bodies, strict=True)]
    return "\n".join(["root ::= r0", *ends])


@examples(10)
@given(st.integers(0, 10**9))
def test_random_grammars_end_in_time(seed: int) -> None:
    for engine in ENGINES:
        check_time(made_up(random.Random(seed)), engine)


@pytest.mark.parametrize("name", ["a circle of many rules", "no text"])
def test_circles_that_would_take_an_engine_all_its_stack_are_refused(name: str) -> None:
    with pytest.raises(LogitloomError, match=r"name each other too deeply: at most 500|No text follows the rule"):
        processors.load(("grammar", {"grammar": ADVERSARIAL[name], "engine": "llguidance"}))


def test_lark_grammars_of_very_many_rules_are_refused() -> None:
    rules = [f'r{i}: "a" r{i + 1} start | "b"' for i in range(3000)]
    with pytest.raises(BudgetExceeded, match="more than 1500 rules, and the engine may run out of stack"):
        processors.load(("grammar", {"grammar": "\n".join(["start: r0", *rules, 'r3000: "a"']), "syntax": "lark"}))


def test_grammars_that_are_too_large_written_out_say_so() -> None:
    with pytest.raises(BudgetExceeded, match=r"more than 1000000 characters where every rule is written out"):
        processors.load(("grammar", {"grammar": ADVERSARIAL["doubling rules"]}))


@pytest.mark.parametrize("name", ["doubling rules", "a circle of many rules", "lexemes that are hard"])
def test_memory_is_bounded(name: str) -> None:
    tracemalloc.start()
    try:
        processors.load(("grammar", {"grammar": ADVERSARIAL[name], "max_seconds": SECONDS}))
    except LogitloomError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 100 << 20
