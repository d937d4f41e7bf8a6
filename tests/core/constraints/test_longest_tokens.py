"""With the longest tokens alone, the same texts can be written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import TokenAutomaton, compile_pattern
from logitloom.constraints import Constraint, LongestTokens
from logitloom.vocabulary import Vocabulary
from tests.cases import examples


def texts(constraint: Constraint, longest: int) -> set[bytes]:
    """All texts of at most so many bytes that the allowed tokens write."""
    found, waiting = set(), [(constraint.start(), b"")]
    seen = set(waiting)
    while waiting:
        state, text = waiting.pop()
        if constraint.may_end(state):
            found.add(text)
        for token in constraint.allowed(state).listed(constraint.vocab_size).tolist():
            after = constraint.advance(state, token)
            step = after, text + constraint.vocabulary.token_bytes[token]
            if len(step[1]) <= longest and step not in seen:
                seen.add(step)
                waiting.append(step)
    return found


def test_a_shorter_token_that_leads_elsewhere_stays() -> None:
    words = Vocabulary([b"", b"n", b"na", b"b"], eos=[0])
    automaton = TokenAutomaton(compile_pattern("n(a|b)"), words)
    assert LongestTokens(automaton).row(automaton.start()).tolist() == [1, 2]


@examples(150)
@given(
    st.sampled_from(["n(a|b)", "nab|nba", "a(ab|b)*n?", "(nab)+", "na{1,3}b", "nn(a|bb)a", "(na|nb)(ab|n)"]),
    st.sets(st.text("nab", min_size=2, max_size=4), max_size=8),
)
def test_the_same_texts_can_be_written(pattern: str, tokens: set[str]) -> None:
    words = Vocabulary([b"", b"n", b"a", b"b", *sorted(token.encode() for token in tokens)], eos=[0])
    automaton = TokenAutomaton(compile_pattern(pattern), words)
    assert texts(LongestTokens(automaton), 8) == texts(automaton, 8)


@examples(100)
@given(
    st.sampled_from(["n(a|b)", "nab|nba", "(nab)+", "na{1,3}b", "nn(a|bb)a", "(na|nb)(ab|n)"]),
    st.sets(st.text("nab", min_size=1, max_size=4), min_size=3, max_size=8),
)
def test_the_same_texts_can_be_written_with_uneven_vocabularies(pattern: str, tokens: set[str]) -> None:
    words = Vocabulary([b"", *sorted(token.encode() for token in tokens)], eos=[0])
    try:
        automaton = TokenAutomaton(compile_pattern(pattern), words)
    except ValueError:
        return
    assert texts(LongestTokens(automaton), 8) == texts(automaton, 8)


def test_where_the_longest_token_leads_to_more_tokens_the_shorter_way_stays_open_at_the_limit() -> None:
    words = Vocabulary([b"", b"a", b"ab", b"b", b"bcd", b"c", b"d"], eos=[0])
    longest = LongestTokens(TokenAutomaton(compile_pattern("abcd"), words))
    assert longest.allowed(longest.start()).ids.tolist() == [2]
    assert longest.least_tokens(longest.start()) == 2
    ids, least = longest.least_after(longest.start())
    assert dict(zip(ids.tolist(), least.tolist(), strict=True)) == {1: 1, 2: 2}


def test_a_run_of_one_character_is_looked_at_once_for_each_length() -> None:
    spaces = [b" " * n for n in range(1, 65)]
    words = Vocabulary([b"", *spaces, *[bytes([byte]) for byte in range(97, 97 + 100)]], eos=[0])
    longest = LongestTokens(TokenAutomaton(compile_pattern(" {100}"), words))
    assert longest.allowed(longest.start()).ids.tolist() == [64]
