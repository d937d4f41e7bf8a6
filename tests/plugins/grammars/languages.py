"""Grammars with independent judges of their texts, and the engines that must agree with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from hypothesis import strategies as st

from logitloom.constraints import FINISHED, Constraint, State
from logitloom.host.registry import load_plugin
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.grammars.context_free import (
    Chars,
    ContextFreeGrammar,
    LiteralText,
    Node,
    Reference,
    RuleChoice,
    RuleRepeat,
    RuleSequence,
)
from tests.core.automata.vocabularies import mixed, smollm2

ENGINES = ("llguidance", "xgrammar")

#: GBNF texts of regular languages, and the same as regular expressions.
REGULAR: dict[str, tuple[str, str]] = {
    "literal": (r'root ::= "foobar" | "日本"', "foobar|日本"),
    "date": (r'root ::= d{4} "-" d d ("-" d{2})?' + "\nd ::= [0-9]", r"[0-9]{4}-[0-9]{2}(-[0-9]{2})?"),
    "greedy": (r'root ::= [a-z]* "end"', "[a-z]*end"),
    "nullable": (r'root ::= ("a" | "b"?)* "é"{2,3}', "(a|b?)*é{2,3}"),
    "others": (r'root ::= [^a-z"\n]+ "\x41\u00e9\U0001F600"?', '[^a-z"\\n]+(Aé😀)?'),
    "any": (r'root ::= . "1" .*', r"(?s:.1.*)"),
    "empty": (r'root ::= | "ab" root2' + '\nroot2 ::= "" | "12"', "(ab(12)?)?"),
    "right recursion": (r'root ::= "a" root | "b" list' + '\nlist ::= item ("," item)*\nitem ::= [0-9]+',
                        "a*b[0-9]+(,[0-9]+)*"),
    "left recursion": (r'root ::= root "-" word | word' + '\nword ::= "the" | [a-f]+', "(the|[a-f]+)(-(the|[a-f]+))*"),
    "keyword": (r'root ::= "let " root | [a-z]+', "(let )*[a-z]+"),
}  # fmt: skip

#: Bodies of rules over the letters a and b, of any structure; the rules are root, x and y.
NODES = st.recursive(
    st.sampled_from(['"a"', '"b"', "[ab]", '"ab"', '""', "root", "x", "y"]),
    lambda inner: st.one_of(
        st.builds("({} | {})".format, inner, inner),
        st.builds("({} {})".format, inner, inner),
        st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])),
    ),
    max_leaves=6,
)

BRACKETS = 'root ::= "(" root ")" root | "[" root "]" root | ""'
ARITHMETIC = r"""
root   ::= sum
sum    ::= term (ws [-+] ws term)*
term   ::= factor (ws [*/] ws factor)*
factor ::= number | "(" ws sum ws ")" | "-" factor
number ::= "0" | [1-9] [0-9]{0,3} ("." [0-9]{1,2})?
ws     ::= " "?
"""
LISTS = r"""
root   ::= value
value  ::= "[" ws (value ("," ws value)*)? "]" ws | string ws | "null" ws
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
ws     ::= [ \n]*
"""


def are_brackets(text: str) -> bool:
    """Whether brackets are balanced, by cancelling pairs."""
    while (shorter := text.replace("()", "").replace("[]", "")) != text:
        text = shorter
    return not text


def is_arithmetic(text: str) -> bool:
    """A recogniser by recursive descent: the places where each part can end."""

    def number(at: int) -> set[int]:
        return {at + n for n in range(1, 8) if re.fullmatch(r"0|[1-9]\d{0,3}(\.\d{1,2})?", text[at : at + n])}

    def spaced(at: int, signs: str) -> set[int]:
        found = re.match(rf" ?[{signs}] ?", text[at:])
        return {at + found.end()} if found else set()

    def factor(at: int) -> set[int]:
        ends = number(at)
        if text[at : at + 1] == "-":
            ends |= factor(at + 1)
        if text[at : at + 1] == "(":
            begins = {at + 1} | ({at + 2} if text[at + 1 : at + 2] == " " else set())
            for end in {e for b in begins for e in total(b)}:
                ends |= {end + 1} if text[end : end + 1] == ")" else set()
                ends |= {end + 2} if text[end : end + 2] == " )" else set()
        return ends

    def chain(at: int, part: Callable[[int], set[int]], signs: str) -> set[int]:
        ends, fresh = set(), part(at)
        while fresh:
            ends |= fresh
            fresh = {e for end in fresh for b in spaced(end, signs) for e in part(b)} - ends
        return ends

    def term(at: int) -> set[int]:
        return chain(at, factor, "*/")

    def total(at: int) -> set[int]:
        return chain(at, term, "+-")

    return len(text) in total(0)


def is_list(text: str) -> bool:
    """JSON of lists, texts and nulls, by the standard library; blanks only where the grammar has them."""
    import json

    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return False

    def fits(part: Any) -> bool:
        return part is None or isinstance(part, str) or (isinstance(part, list) and all(map(fits, part)))

    return fits(value) and "\\u" not in text


RECURSIVE: dict[str, tuple[str, Callable[[str], bool], bytes]] = {
    "brackets": (BRACKETS, are_brackets, b"()[]"),
    "arithmetic": (ARITHMETIC, is_arithmetic, b"0123456789+-*/(). "),
    "lists": (LISTS, is_list, b'[]," \nnulabc\\'),
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Any:
    """Each grammar engine in turn."""
    pytest.importorskip(request.param, reason=f"the package {request.param} is not installed")
    return load_plugin("grammars", request.param)()


@pytest.fixture(params=["mixed", "smollm2"])
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    """A small vocabulary with pieces of characters, and a real one."""
    return mixed() if request.param == "mixed" else smollm2()


def allowed(constraint: Constraint, state: State) -> list[int]:
    """The ids that a host allows in a state: those of the constraint, and the ends where the text may end."""
    if state is FINISHED:
        return []
    mask = constraint.allowed(state).mask(constraint.vocab_size)
    ends = [token for token in constraint.vocabulary.eos if token < constraint.vocab_size]
    assert not mask[ends].any()
    mask[ends] = constraint.may_end(state)
    return mask.nonzero()[0].tolist()  # type: ignore[no-any-return]


def follow(constraint: Constraint, tokens: Iterable[int]) -> State | None:
    """The state after tokens, ``None`` if one of them is not allowed."""
    state: State | None = constraint.start()
    for token in tokens:
        state = None if state is None else constraint.advance(state, token)
    return state


def accepts(constraint: Constraint, text: str) -> bool:
    """Whether a text can be written byte by byte, each allowed, and ended."""
    table = constraint.vocabulary.token_bytes
    single = {token: i for i, token in reversed(list(enumerate(table))) if len(token) == 1}
    state = constraint.start()
    for byte in text.encode():
        token = single[bytes([byte])]
        following = constraint.advance(state, token)
        assert (following is not None) == (token in constraint.allowed(state))
        if following is None:
            return False
        state = following
    return constraint.may_end(state)


def language(grammar: ContextFreeGrammar, letters: str, longest: int) -> set[str]:
    """All texts of a grammar up to a length, by growing what each rule is known to stand for until nothing is new."""
    known: dict[str, set[str]] = {name: set() for name in grammar.rules}

    def joined(left: set[str], right: set[str]) -> set[str]:
        return {a + b for a, b in product(left, right) if len(a) + len(b) <= longest}

    def texts(node: Node) -> set[str]:
        if isinstance(node, Chars):
            return {c for c in letters if any(low <= ord(c) <= high for low, high in node.ranges)}
        if isinstance(node, LiteralText):
            return {node.text} if len(node.text) <= longest else set()
        if isinstance(node, Reference):
            return known[node.name]
        if isinstance(node, RuleChoice):
            return set().union(*map(texts, node.options))
        found = {""}
        if isinstance(node, RuleSequence):
            for part in node.parts:
                found = joined(found, texts(part))
            return found
        assert isinstance(node, RuleRepeat)
        once, total = texts(node.part), set()
        for count in range(longest + 1 if node.most is None else node.most + 1):
            total |= found if count >= node.least else set()
            found = joined(found, once)
        return total

    while True:
        before = {name: len(found) for name, found in known.items()}
        known = {name: found | texts(grammar.rules[name]) for name, found in known.items()}
        if before == {name: len(found) for name, found in known.items()}:
            return known[grammar.start]
