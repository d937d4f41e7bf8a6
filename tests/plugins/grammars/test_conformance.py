"""What every grammar engine must do, whatever library is behind it."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.automata import compile_pattern
from logitloom.errors import LogitloomError, StateMismatch, VocabularyError
from logitloom.host.registry import load_plugin
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.grammars.context_free import RuleChoice, pruned
from logitloom_plugins.grammars.gbnf import parse_gbnf
from tests.cases import examples
from tests.core.automata.vocabularies import mixed, smollm2
from tests.forks import forks, in_child
from tests.oracles.walk import walked
from tests.plugins.grammars.languages import (
    ENGINES,
    NODES,
    RECURSIVE,
    REGULAR,
    accepts,
    allowed,
    engine,
    follow,
    language,
    vocabulary,
)

__all__ = ["engine", "vocabulary"]  # fixtures

PADDING = 37


def bound_to(engine: Any, text: str, vocabulary: Vocabulary, width: int | None = None) -> Any:
    grammar = engine.context_free(pruned(parse_gbnf(text)), max_items=50_000)
    return grammar.bind(vocabulary, width or vocabulary.size)


@pytest.mark.long
@pytest.mark.parametrize("label", REGULAR)
def test_allowed_tokens_are_those_of_the_automaton(engine: Any, vocabulary: Vocabulary, label: str) -> None:
    text, pattern = REGULAR[label]
    width = vocabulary.size + PADDING
    bound = bound_to(engine, text, vocabulary, width)
    automaton = walked(compile_pattern(pattern), vocabulary, vocab_size=width)
    random = np.random.default_rng(0)
    for _ in range(4):
        read, state = bound.start(), automaton.start
        for _ in range(10):
            row = automaton.row(state).tolist()
            assert allowed(bound, read) == sorted(row)
            short = [t for t in row if len(vocabulary.text_bytes([t])) < 4]
            token = int(random.choice(short if short and random.random() < 0.8 else row))
            if token in vocabulary.eos:
                break
            read, state = bound.advance(read, token), automaton.advance(state, token)


@pytest.mark.parametrize("label", RECURSIVE)
def test_random_texts_of_recursive_grammars_are_recognised(engine: Any, label: str) -> None:
    text, recognised, letters = RECURSIVE[label]
    words = mixed()
    bound = bound_to(engine, text, words)
    single = [i for i, token in enumerate(words.token_bytes) if len(token) == 1 and token in letters]
    random = np.random.default_rng(1)
    finished = 0
    for _ in range(30):
        state, written = bound.start(), []
        for _ in range(60):
            row = allowed(bound, state)
            assert row, "a dead end"
            if words.eos[0] in row and random.random() < 0.3:
                finished += 1
                assert recognised(words.decode(written)), words.decode(written)
                break
            row = [t for t in row if t not in words.eos]
            likely = [t for t in row if t in single]
            written.append(int(random.choice(likely if likely and random.random() < 0.9 else row)))
            state = bound.advance(state, written[-1])
    assert finished > 3


@pytest.mark.parametrize("label", RECURSIVE)
def test_random_letters_are_accepted_exactly_if_recognised(engine: Any, label: str) -> None:
    text, recognised, letters = RECURSIVE[label]
    bound = bound_to(engine, text, mixed())
    random = np.random.default_rng(2)
    tried = ["".join(map(chr, random.choice(list(letters), size=n))) for n in (0, 1, 2, 2, 3, 4, 5) for _ in range(12)]
    if label == "lists":
        tried = [t for t in tried if t == t.lstrip(" \n")]
        tried += ['["a" , null]', '["a", null]', '["\\n",[],[ [ ] ]]', '["\\x"]', '["a\n"]', "[null,]"]
        tried.remove('["a" , null]')  # the grammar takes blanks behind a value, as the recogniser does
    for tried_text in tried:
        assert accepts(bound, tried_text) == recognised(tried_text), tried_text


@pytest.mark.extras
@pytest.mark.parametrize("name", ENGINES)
@given(rules=st.tuples(NODES, NODES, NODES))
@examples(40)
def test_random_grammars_have_exactly_their_texts(name: str, rules: tuple[str, str, str]) -> None:
    pytest.importorskip(name, reason=f"the package {name} is not installed")
    grammar = parse_gbnf(f'root ::= {rules[0]} | "ba"\nx ::= {rules[1]}\ny ::= {rules[2]}')
    texts = language(grammar, "ab", 4)
    made = load_plugin("grammars", name)().context_free(pruned(grammar), max_items=50_000)
    bound = made.bind(mixed(), mixed().size)
    every = [format(i, f"0{n}b").translate({48: "a", 49: "b"}) if n else "" for n in range(5) for i in range(2**n)]
    assert {text for text in every if accepts(bound, text)} == texts


def test_special_and_padded_ids_are_never_allowed(engine: Any) -> None:
    words = Vocabulary([b"a", b"", b"b", b"", b"c"], eos=[3, 1], special=[4])
    for width in (5, 31, 32, 33, 70):
        bound = bound_to(engine, "root ::= .+", words, width)
        start = bound.start()
        assert allowed(bound, start) == [0, 2]
        for token in (4, 5, width - 1, width, -5):
            assert bound.advance(start, token) is None or token in (0, 2)
        assert allowed(bound, bound.advance(start, 0)) == [0, 1, 2, 3]


def test_where_everything_is_allowed_nothing_is_listed(engine: Any) -> None:
    words = Vocabulary([b"a", b"b", b"c", b"d", b""], eos=[4])
    bound = bound_to(engine, "root ::= .*", words)
    assert bound.may_end(bound.start())
    members = bound.allowed(bound.start())
    assert (members.allowed, members.ids.tolist()) == (False, [4])
    assert not members.ids.flags.writeable


def test_states_never_change(engine: Any) -> None:
    words = mixed()
    bound = bound_to(engine, RECURSIVE["arithmetic"][0], words)
    single = {token: i for i, token in reversed(list(enumerate(words.token_bytes)))}
    start = bound.start()
    kept = [(start, allowed(bound, start))]
    for text in (b"(1+2)*", b"-3", b"((0"):
        state = start
        for byte in text:
            state = bound.advance(state, single[bytes([byte])])
            kept.append((state, allowed(bound, state)))
    # Every way on was tried from every state; each still says what it said.
    for state, _ in kept:
        for token in range(0, words.size, 3):
            bound.advance(state, token)
    assert all(allowed(bound, state) == before for state, before in kept)


def test_states_are_values_that_any_equal_constraint_takes(engine: Any) -> None:
    words = mixed()
    bound, other = (bound_to(engine, RECURSIVE["arithmetic"][0], words) for _ in range(2))
    single = {token: i for i, token in reversed(list(enumerate(words.token_bytes)))}
    ids = [single[bytes([byte])] for byte in b"(1+2)*(3"]
    state = follow(bound, ids)
    travelled = pickle.loads(pickle.dumps(state))
    assert travelled == state == follow(other, ids)
    assert hash(travelled) == hash(state)
    assert state != follow(bound, ids[:-1])
    assert bound.fingerprint == other.fingerprint
    assert bound.fingerprint != bound_to(engine, RECURSIVE["lists"][0], words).fingerprint
    assert allowed(other, travelled) == allowed(bound, state)
    # A constraint that remembers nothing reads the tokens again.
    bound.forget()
    assert allowed(bound, state) == allowed(other, travelled)


def test_long_texts_are_states_like_short_ones(engine: Any) -> None:
    words = mixed()
    bound = bound_to(engine, "root ::= [ab]*", words)
    ids = [words.token_bytes.index(b"a"), words.token_bytes.index(b"b")] * 3000
    state = follow(bound, ids)
    data = pickle.dumps(state)
    assert len(data) < 5 * len(ids)
    assert pickle.loads(data) == state
    assert allowed(bound, copy.deepcopy(state)) == allowed(bound, bound.start())


def test_the_memory_of_matchers_is_bounded(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitloom_plugins.grammars.matcher_constraint._CAPACITY", 1 << 15)
    words = mixed()
    small, bound = bound_to(engine, RECURSIVE["brackets"][0], words), None
    monkeypatch.undo()
    bound = bound_to(engine, RECURSIVE["brackets"][0], words)
    single = {token: i for i, token in reversed(list(enumerate(words.token_bytes)))}
    texts = [b"(" * n + b"[" * m for n in range(8) for m in range(8)]
    states = [follow(small, [single[bytes([byte])] for byte in text]) for text in texts]
    assert len(small._readers) < len(states)
    assert [allowed(small, state) for state in states] == [allowed(bound, state) for state in states]


def test_one_matcher_reads_a_text_and_another_one_each_text_that_branches_off(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = mixed()
    bound, fresh = (bound_to(engine, RECURSIVE["arithmetic"][0], words) for _ in range(2))
    made, copied = list[None](), type(bound).copied
    single = {token: i for i, token in reversed(list(enumerate(words.token_bytes)))}
    ids = [single[bytes([byte])] for byte in b"(1+2)*(3-(4+" * 20]
    with monkeypatch.context() as counting:
        counting.setattr(type(bound), "copied", lambda *given: made.append(None) or copied(*given))
        states = [bound.start()]
        for token in ids:
            assert token in bound.allowed(states[-1])
            bound.may_end(states[-1])
            states.append(bound.advance(states[-1], token))
        assert len(made) == 1
        # A second text leaves the first one in its middle; both go on.
        one, other = states[-1], bound.advance(states[96], single[b"-"])
        for token in ids:
            one, other = bound.advance(one, token), bound.advance(other, token)
            assert allowed(bound, one)
            assert allowed(bound, other)
        assert len(made) == 2
    for state in (states[0], states[50], states[-1], one, other):
        assert allowed(bound, state) == allowed(fresh, state)


def test_states_with_equal_masks_share_a_token_set(engine: Any) -> None:
    words = mixed()
    bound = bound_to(engine, RECURSIVE["brackets"][0], words)
    single = {token: i for i, token in reversed(list(enumerate(words.token_bytes)))}
    states = [follow(bound, [single[b"("]] * count) for count in (1, 2, 3)]
    assert len({id(bound.allowed(state)) for state in states}) == 1


def test_a_state_of_another_grammar_is_refused(engine: Any) -> None:
    words = mixed()
    state = follow(bound_to(engine, "root ::= [ab]*", words), [words.token_bytes.index(b"a")])
    with pytest.raises(StateMismatch, match=r"does not allow them: 'a'"):
        bound_to(engine, 'root ::= "b"', words).allowed(state)
    with pytest.raises(StateMismatch, match="but got 3"):
        bound_to(engine, 'root ::= "b"', words).allowed(3)


def test_many_sets_at_once_are_those_of_each(engine: Any) -> None:
    bound = bound_to(engine, RECURSIVE["lists"][0], smollm2(), smollm2().size + PADDING)
    single = {token: i for i, token in reversed(list(enumerate(smollm2().token_bytes)))}
    states = [bound.start()]
    for byte in b'["a",':
        states.append(bound.advance(states[-1], single[bytes([byte])]))
    states = [*states, *states[::-1], bound.start()]
    together = bound.allowed_many(states)
    assert bound.allowed_many([]) == []
    assert len(together) == len(states)
    for state, members in zip(states, together, strict=True):
        alone = bound.allowed(state)
        assert members.allowed == alone.allowed
        assert np.array_equal(members.ids, alone.ids)
        assert np.array_equal(np.unique(members.ids), members.ids)


def test_threads_do_not_disturb_each_other(engine: Any) -> None:
    words = mixed()
    bound = bound_to(engine, RECURSIVE["brackets"][0], words)
    single = {token: i for i, token in reversed(list(enumerate(words.token_bytes)))}
    found: dict[str, list[bool]] = {}

    def work(text: str) -> None:
        found[text] = []
        for _ in range(30):
            state = bound.start()
            for letter in text:
                found[text].append(single[letter.encode()] in bound.allowed(state))
                state = bound.advance(state, single[letter.encode()])
            bound.forget()

    threads = [threading.Thread(target=work, args=(text,)) for text in ("(([[]]))", "[][()]", "()()()")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(all(right) and len(right) == 30 * len(text) for text, right in found.items())
    assert len(found) == 3


@forks
def test_a_forked_child_goes_on_with_what_its_parent_stepped(engine: Any) -> None:
    words = mixed()
    bound = bound_to(engine, RECURSIVE["brackets"][0], words)
    single = {token: i for i, token in reversed(list(enumerate(words.token_bytes)))}
    states = [follow(bound, [single[bytes([byte])] for byte in text]) for text in (b"(", b"([")]

    def found() -> tuple[list[list[int]], list[int]]:
        sets = [members.listed(words.size).tolist() for members in bound.allowed_many(states)]
        return sets, allowed(bound, bound.advance(states[0], single[b")"]))

    expected = found()
    assert in_child(found) == expected


@pytest.mark.parametrize("label", ["literal", "date", "empty"])
def test_forced_tokens_are_those_that_stand_alone(engine: Any, label: str) -> None:
    words = Vocabulary([bytes([byte]) for byte in range(256)] + [b""], eos=[256])
    bound = bound_to(engine, REGULAR[label][0], words)
    automaton = walked(compile_pattern(REGULAR[label][1]), words)
    read, state = bound.start(), automaton.start
    random = np.random.default_rng(3)
    while state >= 0:
        assert bound.forced(read) == [token for token in automaton.forced_tokens(state) if token != 256]
        token = int(random.choice(automaton.row(state)))
        if token == 256:
            break
        read, state = bound.advance(read, token), automaton.advance(state, token)


def test_a_vocabulary_without_an_end_is_refused(engine: Any) -> None:
    with pytest.raises(VocabularyError, match="end-of-sequence"):
        bound_to(engine, 'root ::= "a"', Vocabulary([b"a"]))


@pytest.mark.parametrize("rules", ["root ::= root?", 'root ::= x root | ""\nx ::= root'])
def test_a_grammar_of_the_empty_text_alone_ends_at_once(engine: Any, rules: str) -> None:
    made = engine.context_free(pruned(parse_gbnf(rules))).bind(mixed(), mixed().size)
    assert allowed(made, made.start()) == sorted(mixed().eos)
    assert made.least_tokens(made.start()) == 0


def test_what_goes_on_for_ever_is_cut_away() -> None:
    grammar = pruned(parse_gbnf('root ::= "a" | "b" loop | "c" loop* | unused2\nloop ::= "x" loop\nunused2 ::= [0-9]'))
    assert language(grammar, "abcx0", 3) == {"a", "c", "0"}
    assert set(grammar.rules) == {"root", "unused2"}
    assert pruned(parse_gbnf('root ::= "a" root')).rules["root"] == RuleChoice(())


SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "yé"]}}, "required": ["b"],
     "additionalProperties": False},
    {"type": "array", "items": {"type": "string", "maxLength": 2}, "minItems": 1, "maxItems": 2},
    {"type": "array", "prefixItems": [{"type": "null"}, {"const": "é\""}], "items": False, "minItems": 2},
    {"anyOf": [{"const": 12}, {"$ref": "#/$defs/t"}],
     "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}},
]  # fmt: skip
INSTANCES: list[str] = [
    '{"b":"x"}', '{"a":true,"b":"yé"}', "{}", '{"a":true}', '{"b":"z"}', '{"b":"x","c":1}', '["ab"]', '["abc"]', "[]",
    '["a","b"]', '["a","b","c"]', '["é",""]', '[null,"é\\""]', "[null]", '[null,"é\\"",1]', "12", "13", "[[],[[]]]",
    "[1]", "[[12]]", "null",
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_engines_agree_with_the_table_on_schemas_that_they_take(engine: Any, number: int) -> None:
    from logitloom_plugins.json_schema.folds.machine import accepts as accepts_bytes
    from logitloom_plugins.json_schema.folds.schema_compilation import SchemaOptions, compile_schema
    from logitloom_plugins.json_schema.grammar.layout import Whitespace

    schema = SCHEMAS[number]
    machine = compile_schema(schema, SchemaOptions(Whitespace("compact", 0)))
    grammar = engine.json_schema(schema, whitespace="compact", formats=True, strict=True)
    words = Vocabulary([*[bytes([byte]) for byte in range(256)], b""], eos=[256])
    bound = grammar.bind(words, 300)
    verdicts = {text: accepts_bytes(machine, text) for text in INSTANCES}
    assert len(set(verdicts.values())) == 2
    for text, verdict in verdicts.items():
        state = follow(bound, text.encode())
        assert (state is not None and bound.may_end(state)) == verdict, text


def test_what_an_engine_cannot_do_is_an_error(engine: Any) -> None:
    with pytest.raises(LogitloomError):
        engine.json_schema({"not": {"type": "string"}}, whitespace="flexible", formats=True, strict=True)
