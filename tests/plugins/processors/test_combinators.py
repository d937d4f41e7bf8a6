"""Combinators by name: options, documents, errors before decoding, and what they declare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import MASK, Context, Vocabulary, document, errors, processors
from logitloom.host.hookspecs import TextEnd
from logitloom_plugins.combinators import Between, after, between, budget, until
from tests.core.automata.vocabularies import mixed, small

WORDS = mixed()
DIGITS = ["regex", {"pattern": "[0-9]{2}"}]

JSON_TAG = {"type": "tag", "begin": "<", "content": {"type": "json_schema", "json_schema": True}, "end": ">"}

#: Every way to write what is inside.
SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "together": ("all_of", {"inner": [DIGITS, ["bad_words", {"phrases": ["00"]}], ["top_p", {"p": 0.9}]]}),
    "pair": ("after", {"trigger": "ab", "inner": DIGITS}),
    "name": ("after", {"trigger": ["ab", "Z"], "inner": "json"}),
    "table": ("until", {"trigger": ".com", "inner": {"use": "min_p", "options": {"p": 0.1}}, "then": DIGITS}),
    "list": ("between", {"open": "{", "close": "}", "inner": [["regex", {"pattern": "a*"}], ["top_p", {"p": 0.9}]]}),
    "tables": ("budget", {"n": 3, "inner": [{"use": "json"}, {"use": "top_k", "options": {"k": 4}}], "end": True}),
    "nested": ("budget", {"n": 9, "inner": ["budget", {"n": 3, "text": "!", "then": DIGITS}], "text": "--"}),
    "thinking": ("thinking", {"budget": 5, "then": ["choice", {"choices": ["a", "b"]}], "begin": "outside"}),
    "structural_tag": ("structural_tag", {"tag": {"type": "sequence", "elements": [JSON_TAG, {"type": "any_text"}]}}),
    "tool_call": ("tool_call", {"tools": [{"type": "function", "function": {"name": "now"}}], "choice": "now"}),
}
LABELS = pytest.mark.parametrize("label", SPECS)


def start(spec: Any, vocabulary: Vocabulary = WORDS, rows: int = 1) -> tuple[Any, Context, Any]:
    chain = processors.load(spec, tokenizer=vocabulary, debug=True)
    context = Context.start(
        np.zeros((rows, vocabulary.size), np.float32), vocabulary=vocabulary, prompt=[[]] * rows, max_length=50
    )
    return chain, context, chain.init_state(context)


@LABELS
def test_documents_round_trip(label: str) -> None:
    chain = processors.load(SPECS[label])
    written = document.to_document(chain)
    for again in (
        document.from_document(written),
        document.from_document(document.tomllib.loads(document.to_toml(chain))),
        document.from_document(document.json.loads(document.to_json(chain))),
    ):
        assert document.to_document(again) == written
        assert again[again.labels[0]].needs == chain[chain.labels[0]].needs


OPTIONAL = {"type": "object", "properties": {"a": {"type": ["null", "string"], "default": None}}}


@pytest.mark.parametrize(
    "inner",
    [
        ["json", {"schema": OPTIONAL}],
        {"use": "json", "options": {"schema": OPTIONAL}},
        [["json", {"schema": OPTIONAL}], ["top_k", {"k": 4}]],
        ["tool_call", {"tools": [{"name": "a", "parameters": OPTIONAL}]}],
        ["budget", {"n": 4, "text": "!", "then": ["json", {"schema": OPTIONAL}]}],
        ["structural_tag", {"tag": {"type": "json_schema", "json_schema": OPTIONAL}}],
    ],
    ids=str,
)
def test_what_is_inside_goes_into_documents_as_it_does_outside(inner: Any) -> None:
    """TOML has no null; a chain and the chain of its document are equal, so one continues states of the other."""
    chain = processors.load(("thinking", {"budget": 5, "then": inner}))
    for again in (document.load(document.to_toml(chain)), document.load(document.to_json(chain))):
        assert again.fingerprint == chain.fingerprint


@LABELS
def test_every_form_of_options_starts(label: str) -> None:
    chain, context, state = start(SPECS[label], rows=2)
    logits, _ = chain.process(np.zeros((2, WORDS.size), np.float32), state, context)
    assert (logits > -np.inf).any(-1).all()


def test_objects_are_found_by_their_plugins_and_written_to_documents() -> None:
    chain = processors.load(between("(", ")", *[("regex", {"pattern": "a*"})]))
    assert isinstance(chain["between"], Between)
    assert document.to_document(chain)["processor"][0] == {
        "use": "between",
        "options": {"open": "(", "close": ")", "inner": [["regex", {"pattern": "a*"}]]},
    }


def test_a_chain_or_a_processor_can_be_inside() -> None:
    inside = processors.load(("regex", {"pattern": "a+"}), ("top_k", {"k": 2}))
    for wrapped in (inside, inside["regex"]):
        chain, context, state = start(after("Z", wrapped))
        token = WORDS.token_bytes.index(b"Z")
        logits, _ = chain.process(np.zeros((1, WORDS.size), np.float32), state, context.accept([[token]]))
        assert {WORDS.token_bytes[t] for t in np.flatnonzero(logits[0] > -np.inf)} == {b"a"}


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (("after", {"trigger": "", "inner": DIGITS}), errors.OptionError, "'trigger' of 'after' is ''"),
        (("until", {"trigger": [], "inner": DIGITS}), errors.OptionError, "'trigger' of 'until' is"),
        (("between", {"open": "a", "close": ["b", ""]}), errors.OptionError, "'close' of 'between'"),
        (("after", {"trigger": ["ab", "abc"], "inner": DIGITS}), errors.OptionError, "'abc' of 'after' contains 'ab'"),
        (
            ("after", {"trigger": "x" * 33_000, "inner": DIGITS}),
            errors.OptionError,
            "has 33000 bytes, and texts of at most 8192 are possible",
        ),
        (("budget", {"n": -1}), errors.OptionError, "'n' of 'budget' must be >= 0"),
        (("budget", {"n": 1, "then": DIGITS, "end": True}), errors.OptionError, "Leave out 'then' or 'end'"),
        (("after", {"trigger": "a", "inner": "regex"}), errors.ChainIncomplete, "'regex' inside 'after' misses"),
        (("after", {"trigger": "a", "inner": "no_such"}), errors.UnknownPlugin, "no_such"),
        (("after", {"trigger": "a", "inner": ["regex", {"pattrn": "a"}]}), errors.UnknownOption, "pattrn"),
        (("after", {"trigger": "a", "inner": {"name": "regex"}}), errors.OptionError, "a table with 'use'"),
        (("after", {"trigger": "a", "inner": ["cfg", {"scale": 2.0}]}), errors.StageOrderError, "Guidance cannot"),
        (("thinking", {"open": "x", "close": "x"}), errors.OptionError, "are both 'x'"),
        (("thinking", {"budget": -3}), errors.OptionError, "'budget' of 'thinking' must be >= 0"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(spec: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        processors.load(spec)


class _OtherOrder:
    """The constraint of a regular expression, whose hook takes the width first."""

    stage = "constraint"
    effect = MASK

    def constraint(self, vocab_size: int, vocabulary: Vocabulary) -> Any:
        return processors.load(DIGITS)["regex"].constraint(vocabulary, vocab_size)  # type: ignore[arg-type]

    def process(self, logits: Any) -> Any:
        return logits


class _NoWidth(_OtherOrder):
    """The same, and the hook takes the vocabulary alone."""

    def constraint(self, vocabulary: Vocabulary) -> Any:  # type: ignore[override]
        return super().constraint(vocabulary.size, vocabulary)


class _NoConstraint(_OtherOrder):
    """A hook that answers with something else."""

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Any:
        return vocab_size


@pytest.mark.parametrize("processor", [_OtherOrder(), _NoWidth()])
def test_the_hook_of_a_constraint_takes_any_of_its_arguments_by_name(processor: Any) -> None:
    wanted = processors.load(after("ab", DIGITS), tokenizer=WORDS)["after"].constraint(WORDS, WORDS.size)
    given = processors.load(after("ab", processor), tokenizer=WORDS)["after"].constraint(WORDS, WORDS.size)
    states = [wanted.start(), given.start()]
    for text in (b"ab", b"1"):
        states = [one.advance(s, WORDS.token_bytes.index(text)) for one, s in zip((wanted, given), states, strict=True)]
        assert (
            given.allowed(states[1]).listed(WORDS.size).tolist()
            == wanted.allowed(states[0]).listed(WORDS.size).tolist()
        )


def test_a_hook_that_answers_with_no_constraint_is_named() -> None:
    message = f"'constraint' of _NoConstraint must return a logitloom.constraints.Constraint, but returned {WORDS.size}"
    with pytest.raises(errors.InvalidSignature, match=message):
        start(after("ab", _NoConstraint()))


def _within(inner: Any) -> tuple[str, dict[str, Any]]:
    return "after", {
        "trigger": "a",
        "inner": [["top_k", {"k": 2}], ["until", {"trigger": "b", "inner": [], "then": inner}]],
    }


@pytest.mark.parametrize(
    ("inner", "error", "message"),
    [
        (["top_k", {"k": 0}], errors.OptionError, "Option 'k' of 'top_k' must be >= 1 tokens, but is 0"),
        (["top_k", {"kk": 1}], errors.UnknownOption, "'top_k' has no option 'kk'. Did you mean 'k'?"),
        (["top_kk", {"k": 1}], errors.UnknownPlugin, "There is no processor 'top_kk'. Did you mean"),
        (["regex", {"pattern": "("}], errors.UnsupportedPattern, r"Pattern '\(' is no valid regular expression"),
        (["json", {"schema": {"type": "strin"}}], errors.UnsupportedSchema, "The keyword 'type' at # has the value"),
        ({"use": "top_k", "option": {"k": 1}}, errors.OptionError, "A processor inside another is written as a table"),
        (5, errors.InvalidSignature, "5 is no processor. Give a name"),
    ],
)
def test_errors_say_inside_which_processors_they_are(inner: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^Option 'inner' of 'after': Option 'then' of 'until': {message}"):
        processors.load(_within(inner))


@pytest.mark.parametrize(
    ("inner", "label"), [(["regex", {"pattern": "c"}], "regex"), (["choice", {"choices": ["c"]}], "choice")]
)
def test_errors_of_the_vocabulary_say_which_processor_they_are_of(inner: Any, label: str) -> None:
    words, message = small("a", "b"), "No sequence of tokens of .*'c'. Use a vocabulary that has its bytes"
    with pytest.raises(errors.VocabularyError, match=f"^Processor {label!r}: {message}"):
        processors.load(tuple(inner), tokenizer=words)
    with pytest.raises(errors.VocabularyError, match=f"^Option 'inner' of 'after': Processor {label!r}: {message}"):
        processors.load(after("a", tuple(inner)), tokenizer=words)


def test_a_trigger_that_the_vocabulary_cannot_write_is_refused_before_decoding() -> None:
    words = small("a", "b")
    with pytest.raises(errors.VocabularyError, match="cannot write 'c', which 'after' waits for"):
        start(after("c", ("regex", {"pattern": "a"})), words)
    with pytest.raises(errors.VocabularyError, match="cannot write 'abc'"):
        start(budget(1, text="abc"), words)


def test_missing_resources_are_named() -> None:
    logits = np.zeros((1, WORDS.size), np.float32)
    with pytest.raises(errors.NeedsNotMet, match="'after' needs vocabulary"):
        processors.load(SPECS["pair"]).init_state(Context.start(logits))
    with pytest.raises(errors.NeedsNotMet, match="'thinking' needs prompt"):
        processors.load(("thinking", {}), tokenizer=WORDS).init_state(Context.start(logits))
    chain = processors.load(("until", {"trigger": "a", "inner": ["repetition_penalty", {"penalty": 1.5}]}))
    with pytest.raises(errors.NeedsNotMet, match="'until' needs prompt"):
        chain.configure(tokenizer=WORDS).init_state(Context.start(logits))
    with pytest.raises(errors.NeedsNotMet, match="compiled"):
        processors.load(SPECS["pair"], tokenizer=WORDS).init_state(Context.start(logits, compiled=True))


def test_declarations_follow_what_is_inside() -> None:
    masks = after("a", ("regex", {"pattern": "a"}))
    scales = until("a", ("temperature", {"temperature": 0.5}))
    moves = until("a", lambda logits: logits + 1)
    assert (masks.effect, masks.stage) == (MASK, "constraint")
    assert (scales.effect.forbids_only, scales.effect.keeps_forbidden) == (False, True)
    assert not moves.effect.keeps_forbidden
    assert "history" in until("a", ("no_repeat_ngram", {"n": 2})).needs


@pytest.mark.parametrize(
    ("spec", "tokens", "message"),
    [
        (("after", {"trigger": "b", "inner": DIGITS}), [2 + 256 + 3], r"after: row 1 accepted token 261 \('abc'\)"),
        (("budget", {"n": 0, "text": "Z"}), [5], "budget: row 1 accepted token 5"),
        (("budget", {"n": 0, "end": True}), [5], "budget: row 1 accepted token 5"),
        (("between", {"open": "(", "close": ")", "required": True}), [0], "between: row 1 accepted token 0"),
        (("until", {"trigger": "Z", "inner": DIGITS}), [5], "until: row 1 accepted token 5"),
        (("until", {"trigger": "Z", "inner": [DIGITS, ["min_p", {"p": 0.1}]]}), [5], "until: row 1 accepted token 5"),
    ],
)
def test_illegal_tokens_name_row_and_reason(spec: Any, tokens: list[int], message: str) -> None:
    chain, context, state = start(spec, rows=2)
    with pytest.raises(errors.IllegalToken, match=message) as caught:
        chain.process(np.zeros((2, WORDS.size), np.float32), state, context.accept([[], tokens]))
    assert caught.value.row == 1


def test_shaping_inside_leaves_other_rows_alone_and_scales_the_trigger_too() -> None:
    words = small("a", "b", ";")
    chain, context, state = start(
        ("until", {"trigger": ";", "inner": [["regex", {"pattern": "(ab)*"}], ["temperature", {"temperature": 0.5}]]}),
        words,
        rows=3,
    )
    logits = np.tile(np.arange(words.size, dtype=np.float32), (3, 1))
    found, _ = chain.process(logits, state, context.accept([[], [2], [4]]))
    low = -np.inf
    np.testing.assert_array_equal(found, [[0, low, 4, low, 8], [low, low, low, 6, low], [0, 1, 2, 3, 4]])


def test_an_inner_that_forbids_cannot_be_undone_by_a_later_one() -> None:
    words = small("a", "b", ";")
    chain, context, state = start(until(";", ("regex", {"pattern": "a"}), lambda logits: np.zeros_like(logits)), words)
    found, _ = chain.process(np.zeros((1, words.size), np.float32), state, context)
    assert np.flatnonzero(found[0] > -np.inf).tolist() == [2]


def test_stop_strings_inside_end_the_row_only_there() -> None:
    words = small("a", "x", "(", ")")
    chain, context, state = start(between("(", ")", ("stop", {"strings": ["x"]})), words, rows=3)
    accepted = context.accept([[3], [4, 3], [4, 2]])
    assert chain.text_ends(state, accepted) == [TextEnd(False, 0), TextEnd(True, 1), TextEnd(False, 0)]


def test_minimum_length_counts_from_the_border() -> None:
    words = small("a", ";")
    chain, context, state = start(after(";", ("min_tokens", {"n": 2})), words, rows=2)
    logits = np.zeros((2, words.size), np.float32)
    found, state = chain.process(logits, state, context.accept([[2, 2, 2, 3, 2], [2, 3, 2, 2]]))
    assert (found[:, 0] > -np.inf).tolist() == [False, True]


def test_nested_budgets_count_for_themselves() -> None:
    words = small("a", "!", ".")
    chain, context, state = start(budget(5, budget(2, text="!"), text=".", end=True), words)
    run: list[int] = []
    logits = np.zeros((1, words.size), np.float32)
    logits[0, 2] = 1.0
    found, state = chain.process(logits, state, context)
    while (token := int(found[0].argmax())) != 0:
        run.append(token)
        found, state = chain.process(logits, state, context.accept([[token]]))
    assert words.decode(run) == "aa!aa."
