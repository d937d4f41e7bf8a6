"""How texts of a grammar are completed, against all texts of random grammars, and with the engines behind it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Context, processors
from logitloom.constraints import UNKNOWN, TokenSet, lift
from logitloom.host.registry import load_plugin
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.grammars.byte_rules import ByteRules
from logitloom_plugins.grammars.completions import TokenCompletions
from logitloom_plugins.grammars.context_free import ContextFreeGrammar, pruned
from logitloom_plugins.grammars.gbnf import parse_gbnf
from logitloom_plugins.grammars.recogniser import Recogniser, _measured_in_rounds
from logitloom_plugins.grammars.tokens_read import NOTHING_READ, TokensRead
from tests.cases import examples
from tests.core.automata.vocabularies import mixed, smollm2
from tests.plugins.grammars.languages import ENGINES, NODES, RECURSIVE, allowed, engine, language, vocabulary

__all__ = ["engine", "vocabulary"]  # fixtures

GRAMMARS = st.builds('root ::= {} | "ba"\nx ::= {}\ny ::= {}'.format, NODES, NODES, NODES).map(
    lambda text: pruned(parse_gbnf(text))
)
#: Tokens of one to three letters.
AB = Vocabulary([b"", b"a", b"b", b"ab", b"ba", b"bb", b"aba", b"bbb", b"x"], eos=[0])
TEXTS = [format(i, f"0{n}b").translate({48: "a", 49: "b"}) if n else "" for n in range(7) for i in range(2**n)]


def reached(recogniser: Recogniser, text: str) -> Any:
    state: Any = recogniser.start()
    for byte in text.encode():
        state = None if state is None else recogniser.step(state, byte)
    return state


@given(grammar=GRAMMARS)
@examples(60)
def test_random_grammars_have_exactly_their_texts_and_the_shortest_completions(grammar: ContextFreeGrammar) -> None:
    recogniser, texts = Recogniser(ByteRules(grammar, range(256))), language(grammar, "ab", 6)
    for text in TEXTS:
        state = reached(recogniser, text)
        assert (state is not None and recogniser.accepts(state)) == (text in texts)
        rests = [each[len(text) :] for each in texts if each.startswith(text)]
        if state is None:
            assert not rests
            continue
        completion = (recogniser.completion(state) or b"").decode()
        if rests:
            assert completion == min(rests, key=lambda rest: (len(rest), rest))
        else:
            assert len(text) + len(completion) > 6


@given(grammar=GRAMMARS, text=st.text("ab", max_size=12))
@examples(100)
def test_a_completion_counts_down_and_bounds_hold(grammar: ContextFreeGrammar, text: str) -> None:
    rules = ByteRules(grammar, range(256))
    recogniser = Recogniser(rules)
    assert rules.growth is not None
    state: Any = recogniser.start()
    for before, byte in pairwise([256, *text.encode()]):
        completion, bound = recogniser.completion(state), recogniser.bound(state)
        assert completion is not None
        assert bound is not None
        assert len(completion) <= bound
        if completion:
            following = recogniser.step(state, completion[0])
            assert following is not None
            assert recogniser.completion(following) == completion[1:]
        state = recogniser.step(state, byte)
        if state is None:
            return
        after = recogniser.bound(state)
        assert after is not None
        assert after <= bound + int(rules.growth[before, byte])


def fewest(completions: Recogniser, words: Vocabulary, most: int) -> int | None:
    """The least number of tokens of a text, by trying all of them."""
    layer = {completions.start()}
    for count in range(most + 1):
        if any(completions.accepts(state) for state in layer):
            return count
        after = set()
        for state in layer:
            for text in filter(None, words.token_bytes):
                at: Any = state
                for byte in text:
                    at = None if at is None else completions.step(at, byte)
                if at is not None:
                    after.add(at)
        layer = after
    return None


@given(grammar=GRAMMARS)
@examples(30)
def test_tokens_are_few(grammar: ContextFreeGrammar) -> None:
    """At most one more than the fewest, in these grammars: the shortest text by bytes may have more tokens."""
    least = TokenCompletions(grammar, AB, AB.size).least(NOTHING_READ)
    wanted = fewest(Recogniser(ByteRules(grammar, range(256))), AB, 8)
    assert least is not None
    assert wanted is not None
    assert wanted <= least <= wanted + 1


def walk(bound: Any, budget: int, dice: np.random.Generator) -> str:
    """A random text of a constraint that is complete within a number of tokens, end-of-sequence included."""
    state, written = bound.start(), list[int]()
    for left in range(budget, 0, -1):
        most = bound.most_after(state)
        ids, least = bound.least_after(state)
        assert least.max(initial=0) <= bound.most_after(state) <= most
        needed = bound.least_tokens(state)
        assert needed == 0 or least.min() <= needed - 1
        kept = ids[least <= left - 2]
        if bound.may_end(state) and (not len(kept) or dice.random() < 0.1):
            return str(bound.vocabulary.decode(written))
        written.append(int(dice.choice(kept)))
        state = bound.advance(state, written[-1])
    raise AssertionError(f"not finished within {budget} tokens: {bound.vocabulary.decode(written)!r}")


def bound_to(engine: Any, text: str, words: Vocabulary) -> Any:
    return engine.context_free(pruned(parse_gbnf(text)), max_items=50_000).bind(words, words.size)


@pytest.mark.parametrize("label", RECURSIVE)
def test_every_text_of_an_engine_is_finished(engine: Any, vocabulary: Vocabulary, label: str) -> None:
    text, recognised, _ = RECURSIVE[label]
    bound, dice = bound_to(engine, text, vocabulary), np.random.default_rng(3)
    least = bound.least_tokens(bound.start())
    small = vocabulary.size < 1000
    for more in (0, 1, 2, 5, 12) if small else (1, 7):
        for _ in range(10 if small else 2):
            assert recognised(walk(bound, least + 1 + more, dice))


@pytest.mark.extras
@pytest.mark.parametrize("name", ENGINES)
@given(grammar=GRAMMARS, seed=st.integers(0, 99))
@examples(25)
def test_random_grammars_are_finished_on_engines(name: str, grammar: ContextFreeGrammar, seed: int) -> None:
    pytest.importorskip(name, reason=f"the package {name} is not installed")
    made = load_plugin("grammars", name)().context_free(grammar, max_items=50_000)
    bound, recogniser = made.bind(AB, AB.size), Recogniser(ByteRules(grammar, range(256)))
    for more in range(5):
        text = walk(bound, bound.least_tokens(bound.start()) + 1 + more, np.random.default_rng([seed, more]))
        assert recogniser.accepts(reached(recogniser, text))


def states_of(bound: Any, count: int) -> Iterator[TokensRead]:
    dice, state = np.random.default_rng(5), bound.start()
    for _ in range(count):
        yield state
        ids = [token for token in allowed(bound, state) if token not in bound.vocabulary.eos]
        state = bound.advance(state, int(dice.choice(ids)))


def test_what_is_forgotten_is_found_again(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bound_to(engine, RECURSIVE["arithmetic"][0], mixed())
    states = list(states_of(bound, 12))
    before = [(bound.least_tokens(state), bound.most_after(state)) for state in states]
    monkeypatch.setattr("logitloom_plugins.grammars.completions._MOST_MADE", 1)
    monkeypatch.setattr("logitloom_plugins.grammars.completions._MOST_REMEMBERED", 1)
    assert [(bound.least_tokens(state), bound.most_after(state)) for state in reversed(states)] == before[::-1]


def test_a_text_that_needs_missing_bytes_has_no_completion() -> None:
    words = Vocabulary([b"", b"a", b"(", b")", b"(("], eos=[0])
    completions = TokenCompletions(pruned(parse_gbnf('root ::= "(" root ")" | "(" "é" | "a"')), words, words.size)
    assert completions.least(NOTHING_READ) == 1
    members = TokenSet(True, np.array([1, 2, 4], dtype=np.int32))
    assert [found.tolist() for found in completions.after(NOTHING_READ, members)] == [[1, 2, 4], [0, 2, 3]]
    assert completions.most_after(NOTHING_READ, TokenSet(False, np.zeros(0, dtype=np.int32))) == UNKNOWN


def test_deep_texts_are_completed_level_by_level() -> None:
    words = mixed()
    opened = words.token_bytes.index(b"(")
    completions = TokenCompletions(pruned(parse_gbnf('root ::= "(" root ")" | ""')), words, words.size)
    state = TokensRead.of([opened] * 3000)
    assert completions.least(state) == 3000
    assert completions.least(state.then(words.token_bytes.index(b")"))) == 2999


def test_what_goes_on_with_a_number_or_a_name_leads_no_further_from_the_end() -> None:
    growth = ByteRules(pruned(parse_gbnf(RECURSIVE["arithmetic"][0])), range(256)).growth
    assert growth is not None
    digits = growth[np.ix_([*b"0123456789"], [*b"0123456789"])]
    assert digits.max() == 0
    assert growth[256, ord("(")] > 0
    assert growth[ord("-"), ord("-")] == 0


@pytest.mark.extras
def test_far_from_a_limit_no_token_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although tokens have up to a hundred bytes that could open something elsewhere: spaces, hyphens, digits."""
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    words, text = smollm2(), RECURSIVE["arithmetic"][0]
    chain = processors.load(("grammar", {"grammar": text, "engine": "llguidance"}), tokenizer=words)
    context = Context.start(np.zeros((1, words.size), dtype=np.float32), vocabulary=words)
    searched, single = list[int](), {each: token for token, each in reversed([*enumerate(words.token_bytes)])}
    after = TokenCompletions.after
    monkeypatch.setattr(TokenCompletions, "after", lambda *given: searched.append(1) or after(*given))
    for limit, found in ((30, 0), (12, 1)):
        now = context.with_fields(max_new_tokens=limit)
        state = chain.init_state(now)
        searched.clear()
        for byte in b"(12+-(3":
            _, state = chain.process(np.zeros((1, words.size), dtype=np.float32), state, now)
            now = now.accept([[single[bytes([byte])]]])
        assert bool(searched) == bool(found)


def test_an_engine_is_asked_once_for_the_mask_of_a_text(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bound_to(engine, RECURSIVE["arithmetic"][0], mixed())
    asked, fill = list[Any](), type(bound).fill
    monkeypatch.setattr(type(bound), "fill", lambda self, work, buffer: asked.extend(work) or fill(self, work, buffer))
    one, other = [*states_of(bound, 2)]
    asked.clear()
    bound.memory.clear()
    bound.most_after(one)
    bound.least_after(one)
    found = bound.allowed_many([one, other, one])
    assert found[0] is found[2] is bound.allowed(one)
    assert len(asked) == 2


@pytest.mark.extras
@pytest.mark.parametrize("label", RECURSIVE)
def test_every_text_is_finished_where_masks_are_given_up(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although most shortest texts need tokens of several bytes."""
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    text, recognised, _ = RECURSIVE[label]
    bound, dice = bound_to(load_plugin("grammars", "llguidance")(), text, mixed()), np.random.default_rng(3)
    fill, least = type(bound).fill, bound.least_tokens(bound.start())

    def given_up(self: Any, work: list[Any], buffer: Any) -> list[int]:
        fill(self, work, buffer)
        return [row for matcher, row in work if self is bound and matcher is not bound._first]

    monkeypatch.setattr(type(bound), "fill", given_up)
    with pytest.warns(UserWarning, match="Only tokens of one byte"):
        texts = [walk(bound, least + 1 + more, dice) for more in (0, 1, 2, 5, 12) for _ in range(4)]
    assert all(map(recognised, texts))


def test_inside_a_string_a_limit_is_looked_at_once(engine: Any) -> None:
    words = mixed()
    bound = bound_to(engine, RECURSIVE["lists"][0], words)
    state, letter = bound.start(), words.token_bytes.index(b"a")
    for token in (words.token_bytes.index(b'"'), letter):
        state = bound.advance(state, token)
    ids, least = bound.least_after(state)
    again = bound.advance(state, letter)
    assert bound.most_after(again) == least.max()
    assert bound.least_after(again)[1] is least
    assert bound.least_after(again)[0] is ids


@pytest.mark.parametrize("most", [0, 10**6])
def test_wider_logits_have_the_same_limits(engine: Any, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where most tokens are allowed, the ids above the vocabulary are listed with those that are not."""
    monkeypatch.setattr("logitloom_plugins.grammars.completions._FEW", most)
    words, text = mixed(), 'root ::= "(" root ")" | [^()]+'
    narrow, wide = (
        engine.context_free(pruned(parse_gbnf(text)), max_items=50_000).bind(words, words.size + more)
        for more in (0, words.size // 4)
    )
    at, other = narrow.start(), wide.start()
    for token in (words.token_bytes.index(b"("), words.token_bytes.index(b"a")):
        assert narrow.most_after(at) == wide.most_after(other)
        assert not wide.allowed(other).allowed
        for one, same in zip(narrow.least_after(at), wide.least_after(other), strict=True):
            assert one.tolist() == same.tolist()
        at, other = narrow.advance(at, token), wide.advance(other, token)


def test_what_tokens_open_is_the_sum_over_their_bytes() -> None:
    words = mixed()
    completions = TokenCompletions(pruned(parse_gbnf(RECURSIVE["arithmetic"][0])), words, words.size + 3)
    growth = completions._rules.growth
    assert growth is not None
    wanted = [
        int(growth[:, text[0]].max()) + sum(int(growth[pair]) for pair in pairwise(text)) if text else 0
        for text in words.token_bytes
    ]
    assert completions._growth.tolist() == [*wanted, 0, 0, 0]
    some = np.flatnonzero(np.diff(words.offsets))[::7].astype(np.int32)
    assert completions._growth_of(some).tolist() == [wanted[token] for token in some.tolist()]


#: After each of its texts many rules may begin, all of which may be empty and begin with each other.
AMBIGUOUS = 'root ::= {} | "(" root ")"\n'.format(" ".join(f"o{letter}" for letter in "abcdef")) + "\n".join(
    f'o{letter} ::= "{letter}"? root? "." | ""' for letter in "abcdef"
)


def test_a_mask_near_a_limit_takes_a_bounded_amount_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = [bytes([each]) for each in b"abcdef.()"]
    words = Vocabulary([b"", *letters, *[a + b for a in letters for b in letters]], eos=[0])
    most = 600
    monkeypatch.setattr("logitloom.automata.lift.lifted_automaton._MOST_WORK_NEAR", most)
    completions = TokenCompletions(pruned(parse_gbnf(AMBIGUOUS)), words, words.size)
    visited, dice = completions._texts.memory.visited, np.random.default_rng(1)
    recogniser, text, cut = completions._recogniser, NOTHING_READ, 0
    whole = lift(Recogniser(completions._rules), words)
    for _ in range(12):
        state, before = completions._state(text), visited.work
        every = whole.allowed(reached(whole.automaton(), words.decode(text.tokens())))
        ids, least = completions.after(text, every)
        assert visited.work - before <= most
        here = completions.least(text)
        assert ids.tolist() == every.listed(words.size).tolist()
        assert not here or here - 1 in least, "a token leads nearer"
        for token, needed in zip(ids.tolist(), least.tolist(), strict=True):
            after: Any = completions._texts.advance(state, token)
            assert needed >= completions._texts.least_tokens(after)
            cut += needed > recogniser.bound(after)
        text = text.then(int(dice.choice(ids)))
    assert cut, "tokens that were left out have the bound of any token"


def test_work_counts_the_rules_that_are_measured_in_rounds() -> None:
    """Rules that begin with each other, and those that these begin with; not a rule that begins with one of them."""
    grammar = pruned(parse_gbnf('root ::= one\none ::= two "a" | "x"\ntwo ::= one "b" | end\nend ::= "c" root?'))
    rules = ByteRules(grammar, range(256))
    assert {[*grammar.rules][rule] for rule in _measured_in_rounds(rules)} == {"one", "two", "end"}
    right = pruned(parse_gbnf('root ::= "a" root | end\nend ::= "c" root?'))
    assert not _measured_in_rounds(ByteRules(right, range(256)))


def test_rules_that_begin_with_each_other_are_measured_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def noted(self: Recogniser, frames: Any) -> bool:
        measured.append(1)
        return measure(self, frames)

    measure = Recogniser._measure
    monkeypatch.setattr(Recogniser, "_measure", noted)
    counts = []
    for rules in (10, 20):
        left = [f'l{n} ::= l{(n + 1) % rules} "{n}" | "x"' for n in range(rules)]
        recogniser = Recogniser(ByteRules(pruned(parse_gbnf("\n".join(["root ::= l0", *left]))), range(256)))
        measured.clear()
        assert recogniser.step(recogniser.start(), ord("x")) is not None
        counts.append(len(measured))
    assert counts[1] <= 2.5 * counts[0], "the work grows with the number of rules"
