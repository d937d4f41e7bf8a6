"""Lark grammars and the limit of tokens: our reading of them against the engine's, and completions that it accepts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from logitloom import Vocabulary, load_backend, processors
from logitloom.constraints import UNKNOWN
from logitloom.errors import GenerationError, OptionError, UnsupportedGrammar
from logitloom.generation import BeamSearch, Generator, Multinomial
from logitloom.registry import load_plugin
from logitloom_plugins.grammars.lark import parse_lark
from logitloom_plugins.grammars.longest_match import LongestMatch, TerminalRules
from tests.core.automata.vocabularies import mixed, smollm2
from tests.oracles.toy_model import ToyModel
from tests.plugins.grammars.languages import accepts
from tests.plugins.grammars.test_completions import walk

pytestmark = pytest.mark.extras

#: Single letters, and tokens of several.
WORDS = Vocabulary([b"", *(c.encode() for c in "abcd "), b"ab", b"a b", b"bb", b"  ", b"cab"], eos=[0])
SINGLE = {text[0]: token for token, text in enumerate(WORDS.token_bytes) if len(text) == 1}

TERMINALS = st.one_of(
    st.text("abc", min_size=1, max_size=3).map(json.dumps),
    st.sampled_from(
        ["/[ab]+/", "/a+/", "/[^a ]/", "/a|bc/", "/[a-c]{1,3}/", "/b*/", "/a?b/", "/(ab)+c?/", "/[bc]*a/", r"/\w+/",
         "/./", "/[abc ]+/", '"a".."b"', '"B"i', "/a b/", "T", "U", "W"]
    ),
)  # fmt: skip
RULES = st.recursive(
    st.one_of(TERMINALS, st.sampled_from(["x", "y", "start"])),
    lambda inner: st.one_of(
        st.builds("({} | {})".format, inner, inner),
        st.builds("{} {}".format, inner, inner),
        st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "~2"])),
    ),
    max_leaves=5,
)
IGNORED = st.sampled_from(["", "%ignore / /", "%ignore / +/", '%ignore " "', "%ignore /[ d]+/", "%ignore / d?/"])
GRAMMARS = st.builds(
    'start: {} | {}\nx: {} | {}\ny: {} | {}\nT: /[ab]/ "c"?\nU: T+ | "b"\nW: U "a" T\n{}'.format,
    RULES, TERMINALS, RULES, TERMINALS, RULES, TERMINALS, IGNORED,
)  # fmt: skip

CALCULATOR = r"""
start: sum
sum: product | sum "+" product | sum "-" product
product: atom | product "*" atom
atom: NUMBER | "-" atom | NAME | "(" sum ")"
%import common.CNAME -> NAME
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
"""
JSON = r"""
start: value
?value: object | array | string | NUMBER | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: string ":" value
string: ESCAPED_STRING
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?/
ESCAPED_STRING: /"([^"\\\x00-\x1f]|\\["\\\/bfnrt])*"/
%ignore /[ \t\r\n]+/
"""
QUERY = r"""
start: "SELECT"i columns "FROM"i NAME ["WHERE"i condition] ";"
columns: "*" | column ("," column)*
column: NAME ["AS"i NAME]
condition: condition "AND"i condition | "NOT"i condition | operand OPERATOR operand
operand: NAME | STRING | NUMBER
OPERATOR: "=" | "<" | ">" | "<=" | ">=" | "<>"
STRING: /'[^']*'/
NAME: /[a-zA-Z_]\w*/
%import common (NUMBER, WS)
%ignore WS
"""
PROGRAM = r"""
start: statement+
statement: "let" NAME "=" value ";" | "if" "(" value ")" block ["else" block] | "return" value ";"
block: "{" statement* "}"
value: value ("+" | "==" | "&&") value | "!" value | NAME | NUMBER | STRING | NAME "(" [value ("," value)*] ")"
NAME: /[a-zA-Z_][a-zA-Z0-9_]*/
NUMBER: /[0-9]+(\.[0-9]+)?/
STRING: /"([^"\\\n]|\\.)*"/
COMMENT: "//" /[^\n]*/
%ignore /[ \t\n]+/
%ignore COMMENT
"""
THINKING = r"""
start: "<think>" REASON "</think>" "\n" answer
REASON: /[^<]{1,60}/
answer: "yes" | "no" | "answer: " /[a-z ]+/ "."
"""
REAL = {"calculator": CALCULATOR, "json": JSON, "query": QUERY, "program": PROGRAM, "thinking": THINKING}


def engine() -> Any:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    return load_plugin("grammars", "llguidance")()


def read_by_both(text: str) -> tuple[LongestMatch, Any]:
    try:
        made = engine().lark(text)
    except UnsupportedGrammar:
        assume(False)
    assume(not made.unlimited)
    return LongestMatch(TerminalRules(made.rules, SINGLE)), made.bind(WORDS, WORDS.size)


@given(text=GRAMMARS, seed=st.integers(0, 999))
@settings(max_examples=25)
def test_each_byte_is_read_as_the_engine_reads_it(text: str, seed: int) -> None:
    ours, theirs = read_by_both(text)
    dice = np.random.default_rng(seed)
    for _ in range(4):
        at: Any = ours.start()
        state, written = theirs.start(), b""
        for _ in range(8):
            wanted = {token for token in theirs.allowed(state).listed(WORDS.size).tolist() if token in SINGLE.values()}
            following = {token: after for byte, token in SINGLE.items() if (after := ours.read(at, byte)) is not None}
            if not written and "%ignore" in text:  # the engine ignores something at the beginning of some grammars
                for byte in b" d":
                    wanted.discard(SINGLE[byte])
                    following.pop(SINGLE[byte], None)
            assert set(following) == wanted, written
            assert ours.accepts(at) == theirs.may_end(state), written
            if not following:
                break
            token = int(dice.choice(sorted(following)))
            at, state, written = following[token], theirs.advance(state, token), written + WORDS.token_bytes[token]


@given(text=GRAMMARS, seed=st.integers(0, 999))
@settings(max_examples=25)
def test_the_engine_accepts_every_completion(text: str, seed: int) -> None:
    ours, theirs = read_by_both(text)
    dice = np.random.default_rng(seed)
    for _ in range(4):
        at: Any = ours.start()
        written = b""
        while at is not None and len(written) < 8:
            completion, bound = ours.completion(at), ours.bound(at)
            if completion is None:
                assert not written
                break
            assert accepts(theirs, (written + completion).decode())
            assert bound is None or len(completion) <= bound
            if completion:
                assert ours.completion(ours.step(at, completion[0])) == completion[1:]
            written += bytes([int(dice.choice(list(SINGLE)))])
            after = ours.step(at, written[-1])
            if after is None and bound is not None:
                assert ours.read(at, written[-1]) is None  # there is a completion of everything that can be written
            if after is not None and bound is not None and ours.growth is not None:
                assert (ours.bound(after) or 0) <= bound + int(ours.growth[written[-1]])
            at = after


@given(text=GRAMMARS, seed=st.integers(0, 999))
@settings(max_examples=25)
def test_random_grammars_are_finished_within_every_limit(text: str, seed: int) -> None:
    _, theirs = read_by_both(text)
    least = theirs.least_tokens(theirs.start())
    if least is None:
        assert "longest match" in theirs.unlimited_because
        assert theirs.most_after(theirs.start()) == UNKNOWN
        return
    for more in range(6):
        assert accepts(theirs, walk(theirs, least + 1 + more, np.random.default_rng([seed, more])))


@given(text=GRAMMARS)
@settings(max_examples=25)
def test_completions_are_shortest_or_a_few_bytes_longer(text: str) -> None:
    """All texts of up to four bytes are tried; what is sure may need separators, and longer texts."""
    ours, theirs = read_by_both(text)
    completion = ours.completion(ours.start())
    layer = [("", theirs.start())]
    for length in range(5):
        if any(theirs.may_end(state) for _, state in layer):
            assert completion is None or length <= len(completion) <= length + 3
            return
        assert completion is None or len(completion) > length
        steps = [(before + chr(b), theirs.advance(at, token)) for before, at in layer for b, token in SINGLE.items()]
        layer = [(written, at) for written, at in steps if at is not None]


@pytest.mark.parametrize("label", REAL)
@pytest.mark.parametrize("words", [mixed, pytest.param(smollm2, marks=pytest.mark.exhaustive)])
def test_real_grammars_are_finished_within_every_limit(label: str, words: Callable[[], Vocabulary]) -> None:
    vocabulary = words()
    bound = engine().lark(REAL[label]).bind(vocabulary, vocabulary.size)
    least = bound.least_tokens(bound.start())
    for more in (0, 1, 2, 4, 9, 16):
        text = walk(bound, least + 1 + more, np.random.default_rng(more))
        assert accepts(bound, text)
        if label == "json":
            json.loads(text)


@pytest.mark.parametrize(
    ("text", "written", "completion"),
    [
        (QUERY, "SELECT a", " FROM a;"),
        (QUERY, "SELECT a AS", " a FROM a;"),
        (CALCULATOR, "1+(", "a)"),
        (PROGRAM, "if(a){}else", "{}"),
        (PROGRAM, "let", " a=a;"),
        (THINKING, "<think>", "a</think>\nno"),
    ],
)
def test_completions_keep_words_apart(text: str, written: str, completion: str) -> None:
    grammar = LongestMatch(TerminalRules(engine().lark(text).rules, range(256)))
    state: Any = grammar.start()
    for byte in written.encode():
        state = grammar.step(state, byte)
    found = (grammar.completion(state) or b"").decode()
    assert len(found) <= len(completion)
    assert accepts(engine().lark(text).bind(mixed(), mixed().size), written + found)


PATTERNS = {
    r"/\w+/": ["a", "é", "_", "9", "ⓐ", "\u0301", "-", " ", "日"],
    r"/\d/": ["1", "٣", "²", "a"],
    r"/\p{L}\P{Lu}\pN[^\p{Greek}]/": ["aa1a", "éé٣é", "aA1a", "aa1α", "1a1a"],
    r"/\s/": [" ", "\t", "\x1c", "\u2003", "\x85", "a"],
    r"/[^\W\d]/": ["a", "1", "-", "é"],
    r"/[\S]/": ["a", " ", "\x1c"],
    r"/(?i)ks[^k]/": ["KSa", "ks\u212a", "\u212asx", "k\u017fx", "ksK"],
    r"/Ab/i": ["aB", "AB", "ac"],
    r"/(?i:a)b/": ["Ab", "AB"],
    "/.a/s": ["\na", "ba"],
    "/.a/": ["\na", "ba"],
    "/(?s:.)a/": ["\na", "ba"],
    r"/\x{e9}\u0041\x42[\u{43}-\x44]/": ["éABC", "éABD", "éABE"],
    r"/\/\-\.\[\{\^/": ["/-.[{^", "/-x"],
    "/(?P<n>a)(?<m>b)(?:c){2}/": ["abcc", "abc"],
    "/[]a]+/": ["]a", "b"],
    "/[a-]{2}/": ["a-", "ab"],
    "/a{2,}|b{1,2}|c{3}/": ["a", "aaa", "b", "bbb", "ccc"],
    '"a\\x41\\u00e9\\n"': ["aAé\n", "aA"],
    '"ab"i': ["AB", "aB", "a"],
    '"a".."c"': ["b", "d"],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_mean_what_the_engine_means(pattern: str) -> None:
    made = engine().lark(f"start: {pattern}")
    assert not made.unlimited
    bound, (terminal,) = made.bind(mixed(), mixed().size), made.rules.terminals
    for text in PATTERNS[pattern]:
        assert terminal.fullmatch(text) == accepts(bound, text), text


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('start: x "b"\nx[lazy]: /a*b/', 2, "'lazy' ends at the first byte"),
        ('start: x "b"\nx[stop="b"]: /a*/', 2, "'stop' ends where a stop"),
        ('start: x "b"\nx[suffix="c"]: /a*/', 2, "'suffix' ends where"),
        ('start: x "b"\nx[max_tokens=3]: /a*/', 2, "'max_tokens' counts tokens"),
        ('start: x "b"\nx[temperature=0.5]: /a*/', 2, "'temperature' changes how"),
        ('start: "a" %json {"type": "null"}', 1, "A JSON Schema has a lexer of its own"),
        ('start: T\nT: %regex {"substring_chars": "ab"}', 2, "known to the engine alone"),
        ('start: T\nT: /[ab]+/ & /a+/', 2, "intersected"),
        ('start: T\nT: ~/a+/ & /[ab]/', 2, "negated|intersected"),
        ('start: "a"\n%llguidance {"no_forcing": true}', 2, "Options of the engine"),
        ('start: "a" <[5-6]> | "b"', 1, "Special tokens"),
        ('start: x::0x0\nx::_: "a" %if is_ones([0:1]) | "b" x::set_bit(0) %if bit_clear(0)', 2, "Only the engine"),
        (r"start: /[a&&a]/", 1, "within a class"),
        ("start: /É/i", 1, "beyond ASCII"),
        ('start: "a" | x\nx: "b" x', 0, "rule 'x', because it is endless"),
    ],
)  # fmt: skip
def test_what_is_not_read_has_no_limit_and_a_reason(text: str, line: int, reason: str) -> None:
    made = engine().lark(text)  # runs all the same
    from logitloom_plugins.grammars.llguidance import class_members

    with pytest.raises(UnsupportedGrammar, match=reason) as error:
        parse_lark(text, class_members)
    assert made.unlimited == str(error.value)
    assert (error.value.line or 0) == line


def test_a_capture_changes_nothing() -> None:
    assert not engine().lark('start: x "b"\nx[capture="n"]: /a+/').unlimited


def test_no_limit_where_no_text_surely_ends() -> None:
    bound = engine().lark('start: /[a-z]+/ "b" | "b" start').bind(mixed(), mixed().size)
    assert bound.least_tokens(bound.start()) is None
    assert "the longest match may read on" in bound.unlimited_because


def test_longest_tokens_are_finished_within_every_limit() -> None:
    spec = ("grammar", {"grammar": QUERY, "longest_tokens": True})
    chain = processors.load(spec, tokenizer=mixed())
    bound = chain["grammar"].constraint(mixed(), mixed().size)
    least = bound.least_tokens(bound.start()) + 1
    model: Any = ToyModel(load_backend("numpy"), mixed().size, seed=3)
    for limit in (least, least + 1, least + 5, least + 30):
        for result in Generator(model, chain, Multinomial(), max_tokens=limit)([[5], [6, 7], [8]], seed=limit):
            assert result.finish == "eos"
            assert accepts(bound, result.text or "")


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_engines_say_that_they_cannot_limit_a_schema(name: str) -> None:
    pytest.importorskip(name, reason=f"the package {name} is not installed")
    model: Any = ToyModel(load_backend("numpy"), mixed().size, seed=3)

    def generated(**options: Any) -> list[Any]:
        spec = ("json", {"schema": {"type": "integer"}, "engine": name, **options})
        return list(Generator(model, processors.load(spec, tokenizer=mixed()), max_tokens=6)([[5]]))

    with pytest.warns(
        UserWarning, match=rf"may be cut at the limit of 6 tokens.* {name} does not tell.*finish_within=0"
    ):
        generated()
    with pytest.raises(OptionError, match=rf"within 5. The engine {name} does not tell how far the end"):
        generated(finish_within=5)
    generated(finish_within=0)  # no warning


def test_a_limit_for_a_grammar_that_is_not_read_is_refused_with_the_reason() -> None:
    model: Any = ToyModel(load_backend("numpy"), mixed().size, seed=3)
    options = {"grammar": 'start: x "b"\nx[lazy]: /a*b/', "finish_within": 9}
    chain = processors.load(("grammar", options), tokenizer=mixed())
    with pytest.raises(
        OptionError, match=r"within 9. Line 2, column 3 of the grammar: A rule with the attribute 'lazy'"
    ):
        Generator(model, chain, max_tokens=20)([[5]])


@pytest.mark.parametrize("strategy", [Multinomial(), BeamSearch(3)], ids=["sampling", "beams"])
def test_a_loop_finishes_and_names_the_least_limit(strategy: Any) -> None:
    model: Any = ToyModel(load_backend("numpy"), mixed().size, seed=3)
    chain = processors.load(("grammar", {"grammar": PROGRAM}), tokenizer=mixed())
    bound = chain["grammar"].constraint(mixed(), mixed().size)
    least = bound.least_tokens(bound.start()) + 1
    for limit in (least, least + 3, least + 20):
        for result in Generator(model, chain, strategy, max_tokens=limit)([[5], [6]], seed=limit):
            assert result.finish == "eos"
            assert accepts(bound, result.text or "")
    with pytest.raises(GenerationError, match=rf"Allow at least {least} tokens"):
        Generator(model, chain, strategy, max_tokens=least - 1)([[5]])


def test_a_grammar_that_is_too_large_says_so() -> None:
    rules = "\n".join(f"a{i}: a{i + 1} a{i + 1}" for i in range(25))
    bound = engine().lark(f'start: a0\n{rules}\na25: "x"').bind(mixed(), mixed().size)
    assert bound.least_tokens(bound.start()) is None
    assert "too long" in bound.unlimited_because


@pytest.mark.parametrize("label", list(REAL))
def test_far_from_the_limit_no_completion_is_looked_for(label: str) -> None:
    bound = engine().lark(REAL[label]).bind(mixed(), mixed().size)
    state = bound.start()
    assert bound.most_after(state) == UNKNOWN  # at the beginning only
    ids, least = bound.least_after(state)
    for token, needed in zip(ids.tolist(), least.tolist(), strict=True):
        if needed < UNKNOWN:
            assert needed <= bound.most_after(bound.advance(state, token)) < 200


def test_another_start() -> None:
    bound = engine().lark('other: "(" other ")" | "a"', start="other").bind(mixed(), mixed().size)
    assert bound.least_tokens(bound.start()) == 1


def test_where_a_text_leads_to_no_sure_end_each_step_looks_for_completions() -> None:
    """After ``c`` a ``b`` goes on with the terminal, so the other one never comes; after ``a`` it comes."""
    made = engine().lark('start: T "b" | "x" T "b"\nT: /a|cb*/')
    grammar, bound = LongestMatch(TerminalRules(made.rules, range(256))), made.bind(mixed(), mixed().size)
    assert grammar.read(grammar.start(), ord("c")) is not None
    assert grammar.step(grammar.start(), ord("c")) is None
    state = bound.start()
    for letter in (b"x", b"a"):
        assert bound.most_after(state) == UNKNOWN
        state = bound.advance(state, mixed().token_bytes.index(letter))
    for seed in range(5):
        assert walk(bound, 6, np.random.default_rng(seed)) in ("ab", "xab")


def test_what_is_ignored_and_a_terminal_at_once_is_ignored() -> None:
    made = engine().lark('start: "a" BLANK "b" | "a" "c"\nBLANK: " "\n%ignore / +/')
    ours, theirs = LongestMatch(TerminalRules(made.rules, range(256))), made.bind(WORDS, WORDS.size)
    at: Any = ours.start()
    state = theirs.start()
    for byte in b"a ":
        at, state = ours.read(at, byte), theirs.advance(state, SINGLE[byte])
    for byte in b"bc ":
        assert (ours.read(at, byte) is not None) == (SINGLE[byte] in theirs.allowed(state)) == (byte != ord("b"))
