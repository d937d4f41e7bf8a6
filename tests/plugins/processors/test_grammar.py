"""The grammar processor: notations, engines, rows that move, decoding in every way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, Vocabulary, load_backend, processors
from logitloom.errors import (
    BudgetExceeded,
    GenerationError,
    IllegalToken,
    InvalidSignature,
    LogitloomError,
    OptionError,
    UnknownPlugin,
    UnsupportedGrammar,
)
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial
from logitloom.generation.candidates import load as load_candidates
from logitloom.host import registry
from logitloom.rows import tree as state
from tests.oracles.toy_model import ToyModel
from tests.plugins.grammars.languages import ARITHMETIC, BRACKETS, RECURSIVE, are_brackets, is_arithmetic
from tests.plugins.processors.constraining import WIDTH, WORDS, begin, step

#: The same language for the lexer of Lark: every terminal is one character.
LARK_BRACKETS = 'start: "(" start ")" start | "[" start "]" start | ""\n'
ID = {token: i for i, token in reversed(list(enumerate(WORDS.token_bytes)))}


@pytest.fixture(params=["llguidance", pytest.param("llguidance-lark", marks=pytest.mark.extras), "xgrammar"])
def brackets(request: pytest.FixtureRequest) -> Any:
    """The spec of the processor for balanced brackets, on each engine and notation."""
    name, _, syntax = request.param.partition("-")
    pytest.importorskip(name, reason=f"the package {name} is not installed")
    return "grammar", {"grammar": LARK_BRACKETS if syntax else BRACKETS, "engine": name}


def ids(text: str) -> list[int]:
    return [ID[bytes([byte])] for byte in text.encode()]


def test_all_ways_of_stepping_agree_on_every_backend(backend: Backend, brackets: Any) -> None:
    texts = ["([()])", "()[][]", "[[[]]]", "((()))"]
    host = load_backend("numpy")
    chain, context, at = begin(host, brackets, 4)
    masks = [step(host, chain, at, context)[0]]
    for n in range(6):
        allowed, at = step(host, chain, at, context, [[ids(text)[n]] for text in texts])
        masks.append(allowed)
    assert masks[6] == [masks[0][0]] * 4
    assert all(
        (0 in allowed) == are_brackets(t[:n]) for n in range(7) for t, allowed in zip(texts, masks[n], strict=True)
    )
    chain, context, first = begin(backend, brackets, 4)
    allowed, middle = step(
        backend, chain, first, context, [ids(t)[:n] for t, n in zip(texts, (0, 1, 3, 6), strict=True)]
    )
    assert allowed == [masks[0][0], masks[1][1], masks[3][2], masks[6][3]]
    # Rows 1 and 3 are rolled back to the start, then all move.
    mixed = state.select([first, middle], [1, 0, 1, 0])
    order = [3, 2, 2, 0, 1]
    taken = state.concat([state.take(mixed, order), first])
    done = [0, 3, 3, 0, 0, 0, 0, 0, 0]
    rows = [texts[i] for i in order] + texts
    allowed, _ = step(backend, chain, taken, context, [ids(t)[n:5] for t, n in zip(rows, done, strict=True)])
    assert allowed == [masks[5][i] for i in [*order, 0, 1, 2, 3]]
    assert step(backend, chain, first, context)[0] == masks[0]


def test_replaying_equals_having_lived_through(brackets: Any) -> None:
    host = load_backend("numpy")
    chain, context, at = begin(host, brackets, 2)
    walks = [ids("([]"), ids("[(")]
    replayed = chain.replay(walks, context)
    _, lived = step(host, chain, at, context, walks)
    assert step(host, chain, replayed, context, [[], []])[0] == step(host, chain, lived, context, [[], []])[0]


def test_padded_and_special_ids_are_never_allowed_and_padding_is_taken(backend: Backend, brackets: Any) -> None:
    chain, context, at = begin(backend, brackets, 2)
    allowed, at = step(backend, chain, at, context, [ids("()"), ids("(")])
    assert all(token == 0 or (1 < token < WORDS.size) for row in allowed for token in row)
    allowed, at = step(backend, chain, at, context, [[0], ids(")")])
    for pad in (0, 1, 97, WIDTH - 1, -1):
        allowed, at = step(backend, chain, at, context, [[pad], [-1]])
        assert allowed[0] == {0}
        assert 0 in allowed[1]


def test_an_illegal_token_names_row_and_processor(brackets: Any) -> None:
    host = load_backend("numpy")
    chain, context, at = begin(host, brackets, 3)
    for wrong in ([*ids("()"), *ids(")")], [*ids("(["), 0], [WIDTH - 1]):
        with pytest.raises(IllegalToken, match=r"grammar: row 1 accepted token \d+ \(.*roll the row back") as error:
            step(host, chain, at, context, [ids("("), wrong, []])
        assert error.value.row == 1


LEVELS = 'root ::= "[" one "]" | "()"\none ::= two | "()" two? | "(" two "[" two "])"\ntwo ::= "[]"{1,2}'
STRATEGIES = [Greedy(), Multinomial(3), BeamSearch(3, samples=3)]


@pytest.mark.extras
@pytest.mark.parametrize("engine", ["llguidance", "xgrammar"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["greedy", "sampling", "beams"])
@pytest.mark.parametrize("skip", [True, False], ids=["skip", "step"])
def test_every_text_is_finished_within_the_limit_of_the_loop(engine: str, strategy: Any, skip: bool) -> None:
    pytest.importorskip(engine, reason=f"the package {engine} is not installed")
    spec = ("grammar", {"grammar": f"root ::= {WRAPPED}", "engine": engine})
    model = ToyModel(load_backend("numpy"), WIDTH, seed=3)
    for limit in (7, 8, 11):
        generator = Generator(
            model, processors.load(spec, tokenizer=WORDS), strategy, max_tokens=limit, skip_forced=skip
        )
        for result in generator([[300], [301, 302]], seed=4):
            assert result.finish == "eos"
            assert result.text[0] == "["
            assert result.text[-1] == "]"
            assert are_brackets(result.text)


WRAPPED = '"[" "(" in ")" "[" in "]" "]"\nin ::= "(" in ")" in | "[" in "]" in | ""'


@pytest.mark.extras
@pytest.mark.parametrize("engine", ["llguidance", "xgrammar"])
def test_a_limit_that_is_too_small_is_an_error_that_names_the_least(engine: str) -> None:
    pytest.importorskip(engine, reason=f"the package {engine} is not installed")
    spec = ("grammar", {"grammar": f"root ::= {WRAPPED}", "engine": engine})
    model = ToyModel(load_backend("numpy"), WIDTH, seed=3)
    with pytest.raises(
        GenerationError, match=r"Row 0 may generate 3 tokens, but the shortest text .* needs (?:about )?(\d+)"
    ) as error:
        Generator(model, processors.load(spec, tokenizer=WORDS), max_tokens=3)([[300]])
    least = int(re.search(r"needs (?:about )?(\d+)", str(error.value))[1])  # type: ignore[index]
    limited = (spec[0], {**spec[1], "finish_within": least})
    (result,) = Generator(model, processors.load(limited, tokenizer=WORDS), max_tokens=99)([[300]])
    assert (result.finish, result.text) == ("eos", "[()[]]")
    limited = (spec[0], {**spec[1], "finish_within": least - 1})
    generator = Generator(model, processors.load(limited, tokenizer=WORDS), max_tokens=99)
    with pytest.raises(OptionError, match=f"Give at least {least}"):
        generator([[300]])


@pytest.mark.extras
@pytest.mark.parametrize("engine", ["llguidance", "xgrammar"])
def test_combinators_with_a_grammar_are_finished_too(engine: str) -> None:
    pytest.importorskip(engine, reason=f"the package {engine} is not installed")
    inner = ("grammar", {"grammar": f"root ::= {WRAPPED}", "engine": engine})
    thinking = ("thinking", {"budget": 2, "open": "<", "close": ">", "then": inner, "begin": "outside"})
    model = ToyModel(load_backend("numpy"), WIDTH, seed=3)
    for limit in (12, 13, 16):
        generator = Generator(model, processors.load(thinking, tokenizer=WORDS), Multinomial(), max_tokens=limit)
        for result in generator([[300], [301], [302]], seed=5):
            assert result.finish == "eos"
            answer = result.text.rpartition(">")[2]
            assert answer[:1] + answer[-1:] == "[]"
            assert are_brackets(answer)


@pytest.mark.extras
@pytest.mark.parametrize("engine", ["llguidance", "xgrammar"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["greedy", "sampling", "beams"])
@pytest.mark.parametrize("drafts", [False, True], ids=["plain", "drafts"])
def test_every_finished_text_is_recognised(engine: str, strategy: Any, drafts: bool) -> None:
    pytest.importorskip(engine, reason=f"the package {engine} is not installed")
    if drafts and isinstance(strategy, BeamSearch):
        pytest.skip("beam search takes no drafts")
    bounded = ARITHMETIC.replace("term (ws [-+] ws term)*", "term (ws [-+] ws term)?").replace('"-" factor', '"-1"')
    found = 0
    for text, recognised in ((bounded, is_arithmetic), (LEVELS, are_brackets)):
        chain = processors.load(("grammar", {"grammar": text, "engine": engine}), tokenizer=WORDS)
        candidates = load_candidates("prompt_lookup", {}) if drafts else None
        generator = Generator(
            ToyModel(load_backend("numpy"), WIDTH, seed=3), chain, strategy, max_tokens=60, candidates=candidates
        )
        for made in generator([[300, *ids("[[()]]1+2*3"), 301], [302]], seed=2):
            if made.finish == "eos":
                found += 1
                assert recognised(made.text or ""), made.text
    assert found


def test_skipping_forced_tokens_changes_nothing(brackets: Any) -> None:
    text = 'root ::= "([" [01]{3} "][](" [ab] ")"'
    options = {"grammar": text, "engine": brackets[1]["engine"]}
    made = []
    for skip in (True, False):
        model = ToyModel(load_backend("numpy"), WIDTH, seed=5)
        chain = processors.load(("grammar", options), tokenizer=WORDS)
        (found,) = Generator(model, chain, Greedy(), max_tokens=30, skip_forced=skip)([[300]])
        made.append((found.text, found.tokens))
    assert made[0] == made[1]
    assert len(made[0][0]) == 11


@pytest.mark.extras
def test_longest_tokens_write_one_text_in_one_way() -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    host = load_backend("numpy")
    for longest, expected in ((True, [b"foobar"]), (False, [b"f", b"foo", b"foobar"])):
        spec = ("grammar", {"grammar": 'root ::= "foobar"', "longest_tokens": longest})
        chain, context, at = begin(host, spec)
        (allowed,), _ = step(host, chain, at, context)
        assert sorted({WORDS.token_bytes[token] for token in allowed}) == expected
        assert bool((chain.forced_tokens(at, context) or [[]])[0]) == longest


@pytest.mark.extras
def test_lark_takes_the_longest_match_and_gbnf_does_not() -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    host = load_backend("numpy")
    for text, ends in (('start: /[a-z]*/ "b"', False), ('root ::= [a-z]* "b"', True)):
        chain, context, at = begin(host, ("grammar", {"grammar": text}))
        (allowed,), _ = step(host, chain, at, context, [ids("ab")])
        assert (0 in allowed) == ends


# --- what is wrong is said when the processor is made ------------------------------------------------------------


@pytest.mark.extras
@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ('start: "a" foo', 1, 8, "Unknown name"),
        ('start: A\nA: "x" (', 2, 9, "Expected token"),
        ('start: x\nx: /a(?=b)/', 2, 4, "look-around"),
        ('start: A\nA: B\nB: A', 3, 4, "ircular"),
        ('root ::= "a" | b', 1, 16, "defined nowhere"),
    ],
)  # fmt: skip
def test_errors_have_line_column_and_a_caret(text: str, line: int, column: int, reason: str) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    with pytest.raises(UnsupportedGrammar, match=reason) as error:
        processors.load(("grammar", {"grammar": text}))
    assert (error.value.line, error.value.column) == (line, column)
    assert str(error.value).endswith("\n    " + text.split("\n")[line - 1] + "\n    " + " " * (column - 1) + "^")


@pytest.mark.extras
@pytest.mark.parametrize(
    ("options", "kind", "reason"),
    [
        ({"grammar": "no-such-file.gbnf"}, OptionError, "no-such-file.gbnf"),
        ({"grammar": 'root ::= "a"', "syntax": "ebnf"}, OptionError, "one of 'auto', 'gbnf', 'lark'"),
        ({"grammar": 'root ::= "a"', "engine": "llguidanze"}, UnknownPlugin, "Did you mean 'llguidance'"),
        ({"grammar": 'root ::= "a" root'}, UnsupportedGrammar, "is endless"),
        ({"grammar": 'root ::= "a" []'}, UnsupportedGrammar, "has an empty character class"),
        ({"grammar": 'root ::= "a"', "start": "top"}, UnsupportedGrammar, "no rule 'top'"),
        ({"grammar": 'root ::= "a"', "start": ""}, UnsupportedGrammar, "no rule ''"),
        ({"grammar": 'x: "a"', "engine": "llguidance"}, UnsupportedGrammar, "no rule 'start' to start from"),
        ({"grammar": 'x: "a"', "start": "top"}, UnsupportedGrammar, "no rule 'top' to start from"),
        ({"grammar": 'start: x\nx: "a"', "start": "x"}, UnsupportedGrammar, "start is 'x', but .* Rename that rule"),
        ({"grammar": 'root ::= "aaaaaaaaaaa"', "max_size": 10}, OptionError, "max_size is 10"),
        ({"grammar": 'start: "a"', "engine": "xgrammar"}, UnsupportedGrammar, "no lexer"),
    ],
)
def test_what_cannot_be_done_is_an_error_before_decoding(
    options: dict[str, Any], kind: type[LogitloomError], reason: str
) -> None:
    for name in ("llguidance", "xgrammar"):
        pytest.importorskip(name, reason=f"the package {name} is not installed")
    with pytest.raises(kind, match=reason):
        processors.load(("grammar", options))


def test_an_engine_without_the_methods_of_engines_is_named() -> None:
    class Half:
        def lark(self, text: str, *, start: str, max_items: int) -> None: ...

    registry.register("half", Half, kind="grammars")
    try:
        with pytest.raises(InvalidSignature, match="engine 'half' has no method 'json_schema'. Add the methods of"):
            processors.load(("grammar", {"grammar": 'root ::= "a"', "engine": "half"}))
    finally:
        registry.unregister("half", kind="grammars")


def test_a_grammar_that_no_token_can_begin_is_an_error(brackets: Any) -> None:
    from logitloom import Vocabulary

    words = Vocabulary([b"a", b""], eos=[1])
    with pytest.raises(UnsupportedGrammar, match="No token of vocabulary can begin"):
        processors.load(("grammar", {"grammar": 'root ::= "x"', "engine": brackets[1]["engine"]}), tokenizer=words)


@pytest.mark.extras
@pytest.mark.parametrize("text", ["start: x\nx: <tool>", "start: x\nx: <[9999]>"])
def test_tokens_that_the_vocabulary_does_not_have_are_named_with_their_place(text: str) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    processor = processors.load(("grammar", {"grammar": text}))["grammar"]
    with pytest.raises(UnsupportedGrammar, match=r"special token|oken range") as error:
        processor.constraint(WORDS, WIDTH)
    assert (error.value.line, error.value.column) == (2, 4)
    assert str(error.value).endswith("\n    " + text.split("\n")[1] + "\n       ^")


@pytest.mark.extras
def test_grammars_come_from_files_and_their_suffix_decides(tmp_path: Path) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    host = load_backend("numpy")
    for name, text in (("a.gbnf", 'root ::= "ab"'), ("a.lark", 'start: "ab"'), ("a.txt", '# c\nroot ::= "ab"')):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        marked = tmp_path / f"marked-{name}"
        marked.write_text(text, encoding="utf-8-sig")
        # A text that was read in another way than a file begins with the mark itself.
        for source in (path, str(path), marked, *(["\ufeff" + text] if "gbnf" in name else [])):
            chain, context, at = begin(host, ("grammar", {"grammar": source}))
            (allowed,), _ = step(host, chain, at, context)
            assert {WORDS.token_bytes[token] for token in allowed} == {b"a", b"ab"}


@pytest.mark.extras
@pytest.mark.parametrize("text", ['top ::= "b" root\nroot ::= "a"', 'root: "a"\ntop: "b" root'])
def test_the_start_may_be_any_rule(text: str) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    host = load_backend("numpy")
    chain, context, at = begin(host, ("grammar", {"grammar": text, "start": "top"}))
    (allowed,), _ = step(host, chain, at, context)
    assert {WORDS.token_bytes[token] for token in allowed} == {b"b", b"ba"}


@pytest.mark.extras
def test_without_llguidance_gbnf_runs_on_xgrammar(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xgrammar", reason="the package xgrammar is not installed")
    from logitloom.errors import PluginImportError
    from logitloom.host.registry import load_plugin

    def without(kind: str, name: str) -> Any:
        if name == "llguidance":
            raise PluginImportError("llguidance is not installed.")
        return load_plugin(kind, name)

    monkeypatch.setattr("logitloom_plugins.grammars.engine.load_plugin", without)
    chain = processors.load(("grammar", {"grammar": 'root ::= "(" root ")" | "a"'}), tokenizer=WORDS)
    assert type(chain["grammar"].constraint(WORDS, WIDTH)).__module__.endswith("xgrammar")
    with pytest.raises(PluginImportError, match="llguidance"):
        processors.load(("grammar", {"grammar": 'start: "a"'}))


@pytest.mark.extras
@pytest.mark.parametrize("beginning", ["", '"aaa" '])
def test_a_grammar_that_the_engine_gives_up_is_refused_with_a_remedy(beginning: str) -> None:
    """Also where the place that is too much for it comes later in the text."""
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    text = f"start: {beginning}(" + " | ".join(f"r{i}" for i in range(1000)) + ")\n"
    text += "\n".join(f"r{i}: W r{(i * 31 + 7) % 1000} | W" for i in range(1000)) + "\nW: /[ab]/"
    words = Vocabulary([b"", b"a", b"b"], eos=[0])

    def decode() -> None:
        chain = processors.load(("grammar", {"grammar": text, "engine": "llguidance"}), tokenizer=words)
        logits = np.zeros((1, 3), dtype=np.float32)
        context = Context.start(logits, vocabulary=words)
        state = chain.init_state(context)
        for _ in range(8):
            _, state = chain.process(logits, state, context)
            context = context.accept([[1]])

    with pytest.raises(BudgetExceeded, match=r"cannot run the grammar: .* Write fewer alternatives there") as refusal:
        decode()
    assert len(str(refusal.value)) < 500


@pytest.mark.extras
def test_an_engine_that_fails_is_reported_without_a_trace_of_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    llguidance = pytest.importorskip("llguidance", reason="the package llguidance is not installed")

    class Failed:
        """As the matcher of a grammar with more than 65,000 symbols."""

        def __init__(self, *_: object, **__: object) -> None: ...

        def is_error(self) -> bool:
            return True

        def get_error(self) -> str:
            return "Panic: too many symbols\n<backtrace>\n 0: <unknown>\n</backtrace>"

    processor = processors.load(("grammar", {"grammar": RECURSIVE["arithmetic"][0], "engine": "llguidance"}))["grammar"]
    monkeypatch.setattr(llguidance, "LLMatcher", Failed)
    with pytest.raises(UnsupportedGrammar, match=r"too many symbols\. Write fewer rules, or use another engine\.$"):
        processor.constraint(WORDS, WIDTH)


@pytest.mark.extras
def test_a_thousand_terminals_are_read_to_the_end_of_the_text() -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    text = "start: (" + " | ".join(f"T{i}" for i in range(1000)) + ")+\n"
    text += "\n".join(f'T{i}: "{"".join("abc"[i // 3**k % 3] for k in range(7))}"' for i in range(1000))
    words = Vocabulary([b"", b"a", b"b", b"c"], eos=[0])
    chain = processors.load(("grammar", {"grammar": text, "engine": "llguidance"}), tokenizer=words)
    context = Context.start(np.zeros((1, 4), dtype=np.float32), vocabulary=words)
    state = chain.init_state(context)
    terminals = {"".join("abc"[i // 3**k % 3] for k in range(7)) for i in range(1000)}
    written = ""
    for number in range(28):
        masked, state = chain.process(np.zeros((1, 4), dtype=np.float32), state, context)
        allowed = "".join(" abc"[token] for token in np.flatnonzero(np.isfinite(masked[0])) if token)
        begun = written[len(written) // 7 * 7 :]
        assert allowed == "".join(c for c in "abc" if any(word.startswith(begun + c) for word in terminals))
        written += allowed[number % len(allowed)]
        context = context.accept([[" abc".index(written[-1])]])


@pytest.mark.extras
def test_a_parser_that_takes_too_long_is_stopped() -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    text = RECURSIVE["arithmetic"][0]
    chain = processors.load(("grammar", {"grammar": text, "max_items": 3, "engine": "llguidance"}), tokenizer=WORDS)
    context = Context.start(np.zeros((1, WIDTH), dtype=np.float32), vocabulary=WORDS)
    with pytest.raises(BudgetExceeded, match="cannot run the grammar"):
        chain.process(np.zeros((1, WIDTH), dtype=np.float32), chain.init_state(context), context)


@pytest.mark.extras
@pytest.mark.parametrize(
    ("text", "engines"),
    [
        ('root ::= (("a"{1000}){1000}){1000}', ("llguidance", "xgrammar")),
        ('root ::= "b" root | part{0,500}\npart ::= "a"{0,500}', ("xgrammar",)),
        ("root ::= " + " | ".join(f'"w{i}"' for i in range(3000)), ("llguidance",)),
        ('root ::= root root | "a" | "a"*', ("llguidance", "xgrammar")),
    ],
    ids=["nested", "nested by rules", "many", "ambiguous"],
)
def test_hostile_grammars_end_in_an_answer_or_an_error(text: str, engines: tuple[str, ...]) -> None:
    for engine in engines:
        pytest.importorskip(engine, reason=f"the package {engine} is not installed")
        try:
            chain = processors.load(("grammar", {"grammar": text, "engine": engine}), tokenizer=WORDS)
            made = chain["grammar"].constraint(WORDS, WIDTH)
        except (BudgetExceeded, UnsupportedGrammar):
            continue
        state = made.start()
        for _ in range(20):
            state = made.advance(state, ids("a")[0]) or state
        assert made.may_end(state) or len(made.allowed(state).listed(WIDTH))
