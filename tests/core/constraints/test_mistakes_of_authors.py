"""What an author of a constraint gets wrong is told with the remedy."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Processor, Vocabulary, option, processors
from logitloom.automata import TokenAutomaton, compile_pattern
from logitloom.constraints import ByteAutomaton, Constraint, ConstraintProcessor, LimitedProcessor, TokenSet, lift
from logitloom.errors import GenerationError, InvalidSignature, LogitloomWarning, NeedsNotMet

WORDS = Vocabulary([b"", b"a", b"b", b"ab"], eos=[0])


class Letters(ByteAutomaton):
    """Up to four letters; a state is made by ``first``."""

    def __init__(self, first: Any) -> None:
        self.first = first

    @property
    def fingerprint(self) -> bytes:
        return b"letters"

    def start(self) -> Any:
        return self.first

    def step(self, state: Any, byte: int) -> Any:
        return state

    def accepts(self, state: Any) -> bool:
        return True


class Anything(Constraint):
    """Answers the questions that the page names, and no more."""

    fingerprint = b"anything"

    def start(self) -> Any:
        return 0

    def advance(self, state: Any, token: int) -> Any:
        return 0

    def allowed(self, state: Any) -> Any:
        raise NotImplementedError

    def may_end(self, state: Any) -> bool:
        return True


def started(make: Callable[[Vocabulary, int], Any], base: Any = ConstraintProcessor, **more: Any) -> Any:
    @dataclass(frozen=True)
    class Mine(base):
        def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Any:
            return make(vocabulary, vocab_size)

    context = Context.start(np.zeros((1, 4), np.float32), vocabulary=WORDS, **more)
    return processors.load(Mine()).init_state(context)


class NoDataclass(ConstraintProcessor):
    """Allows up to four of a letter."""

    letter = "a"

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Any:
        return TokenAutomaton(compile_pattern(f"{self.letter}{{1,4}}"), vocabulary, vocab_size)


class OwnInit(NoDataclass):
    def __init__(self, letter: str) -> None:
        self.letter = letter


@dataclass(frozen=True)
class OwnPostInit(NoDataclass):
    letter: str = option("a", help="The letter.", choices=("a", "b"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "told", f"only {self.letter}")


@pytest.mark.parametrize("made", [NoDataclass(), OwnInit("a"), OwnPostInit("a")], ids=lambda made: type(made).__name__)
def test_a_constraint_may_have_a_constructor_of_its_own(made: Any) -> None:
    context = Context.start(np.zeros((1, 4), np.float32), vocabulary=WORDS)
    # After the first step the processor that is copied remembers its constraint.
    for copied in (lambda each: each, lambda each: pickle.loads(pickle.dumps(each)), copy.copy, copy.deepcopy):
        chain = processors.load(copied(made))
        logits, _ = chain.process(np.zeros((1, 4), np.float32), chain.init_state(context), context)
        assert np.flatnonzero(logits[0] == 0).tolist() == [WORDS.token_bytes.index(b"a")]
        saved = chain.save_state(chain.replay([[1]], context), context)
        again = processors.load(pickle.loads(pickle.dumps(made)))
        assert again.load_state(saved, context).processors[0] == chain.replay([[1]], context).processors[0]


@pytest.mark.parametrize("returned", [None, Letters(0), Constraint, "text"])
def test_what_is_no_constraint_is_refused(returned: Any) -> None:
    with pytest.raises(InvalidSignature, match=r"'constraint' of .*Mine.* must return .*lift\(automaton"):
        started(lambda vocabulary, vocab_size: returned)


def test_a_constraint_keeps_what_it_is_over() -> None:
    with pytest.raises(InvalidSignature, match="The constraint Anything of .*Mine.* no attribute 'vocabulary'. Keep"):
        started(lambda vocabulary, vocab_size: Anything())


def test_a_constraint_of_another_width_is_refused() -> None:
    words = Vocabulary([*WORDS.token_bytes, b"ba"], eos=[0])
    with pytest.raises(
        InvalidSignature, match=r"LiftedAutomaton of .*Mine.* of 5 columns, but there are 4\. Make it for"
    ):
        started(lambda vocabulary, vocab_size: lift(Letters(0), words))


@pytest.mark.parametrize("given", [["a+b"], "a+b", Letters])
def test_what_is_no_automaton_over_bytes_is_not_lifted(given: Any) -> None:
    with pytest.raises(InvalidSignature, match=r"lift takes a .*ByteAutomaton or a .*Dfa, but got "):
        lift(given, WORDS, 4)


def test_states_that_are_no_numbers_are_refused_in_compiled_loops() -> None:
    with pytest.raises(
        NeedsNotMet, match=r"cannot run .*Mine.*: its constraint \w+ has no tables.*'compilable = False'"
    ):
        started(lambda vocabulary, vocab_size: lift(Letters(0), vocabulary, vocab_size), compiled=True)
    pattern = compile_pattern("[ab]{4}")
    started(lambda vocabulary, vocab_size: TokenAutomaton(pattern, vocabulary, vocab_size), compiled=True)


class Pair(Anything):
    """``ab``: a state is the number of letters."""

    def __init__(self, vocabulary: Vocabulary, vocab_size: int) -> None:
        self.vocabulary, self.vocab_size = vocabulary, vocab_size

    def advance(self, state: Any, token: int) -> Any:
        return state + 1 if token == state + 1 else None

    def allowed(self, state: Any) -> TokenSet:
        return TokenSet(True, np.array([state + 1] if state < 2 else [], np.int32))

    def may_end(self, state: Any) -> bool:
        return bool(state == 2)


class TellingPair(Pair):
    def least_tokens(self, state: Any) -> int:
        return int(2 - state)


def test_a_constraint_that_does_not_tell_how_far_its_end_is_warns_where_the_tokens_are_limited() -> None:
    with pytest.warns(
        LogitloomWarning, match=r"limit of 2 tokens.* Pair does not define the method 'least_tokens'\. Set "
    ):
        started(Pair, max_new_tokens=2)


def test_the_remedy_for_a_limit_that_is_too_small_is_what_the_processor_has() -> None:
    with pytest.raises(GenerationError, match=r"needs 3,.* or set 'finish_within' in the class of .*Mine.* to 0 for"):
        started(TellingPair, max_new_tokens=2)
    with pytest.raises(GenerationError, match=r"needs 3,.* or set the option 'finish_within' of .*Mine.* to 0 for"):
        started(TellingPair, LimitedProcessor, max_new_tokens=2)
    for make in (Pair, TellingPair):
        started(make, type("Cutting", (ConstraintProcessor,), {"finish_within": 0}), max_new_tokens=2)


@pytest.mark.parametrize("state", [[0], {}, set(), np.zeros(2)])
def test_states_without_a_hash_are_refused(state: Any) -> None:
    with pytest.raises(InvalidSignature, match="A state of the automaton Letters is .*immutable values with a hash"):
        started(lambda vocabulary, vocab_size: lift(Letters(state), vocabulary, vocab_size))


def test_a_none_of_the_authors_own_is_not_taken_for_one_of_the_context() -> None:
    class Own(Processor):
        def process(self, logits: Any, context: Context) -> Any:
            return logits * self.factor(None)

        @staticmethod
        def factor(number: Any) -> Any:
            return number[0]

    logits = np.zeros((1, 4), np.float32)
    chain, start = processors.load(Own()), Context.start(logits)
    with pytest.raises(TypeError) as caught:
        chain.process(logits, chain.init_state(start), start)
    assert caught.value.__notes__ == ["Raised by process of the processor 'Own', before the first token."]
