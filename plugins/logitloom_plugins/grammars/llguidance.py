"""The engine llguidance: an Earley parser over lexemes.

References:
    M. Moskal et al., "LLGuidance: making structured outputs go brrr", 2025; https://github.com/guidance-ai/llguidance.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any, Final

import llguidance
import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata import Budget, BudgetTracker
from logitloom.constraints import TokenSet
from logitloom.display.warning import warn
from logitloom.errors import BudgetExceeded, LogitloomError, UnsupportedGrammar, UnsupportedSchema
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.grammars.context_free import ContextFreeGrammar
from logitloom_plugins.grammars.lexemes import lexed
from logitloom_plugins.grammars.matcher_constraint import MatcherConstraint
from logitloom_plugins.grammars.notation import to_lark
from logitloom_plugins.grammars.source_text import refusal_at
from logitloom_plugins.grammars.tokens_read import TokensRead

__all__ = ["LLGuidance", "LLGuidanceGrammar", "engine_tokenizer"]

_NAME: Final = f"The engine llguidance {version('llguidance')}"
_UNLIMITED_SCHEMA: Final = (
    "The engine llguidance does not tell how far the end of a JSON text is; the engine 'table' does, where it runs a "
    "schema."
)
_UNLIMITED_LARK: Final = (
    "The engine llguidance does not tell how far the end of a text of a Lark grammar is. Write the grammar in GBNF, "
    "which has a limit."
)
_LOCATION: Final = re.compile(r"^(?:at )?(\d+)\((\d+)\): (.*)$", re.DOTALL)
_EXCERPT: Final = re.compile(r"\n +\d+ \| .*", re.DOTALL)
_START_RULE: Final = re.compile(r"^[ \t]*[?!]?start\b[^:\n\"/]*:", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^\s*%llguidance\b", re.MULTILINE)
#: What the engine tells of its own state and code after the reason of a failure.
_INTERNALS: Final = re.compile("<state>|<backtrace>")

#: The most remainders of ``multipleOf`` that the engine is given. The engine visits each, and cannot be interrupted.
_MOST_REMAINDERS: Final = 300_000
#: The most seconds of processor time that the engine takes per character of usual schemas, without interruption.
_SECONDS_PER_CHARACTER: Final = 8e-6


class LLGuidance:
    """The engine plug-in."""

    def json_schema(
        self, schema: Any, *, whitespace: str = "flexible", formats: bool = True, strict: bool = True
    ) -> LLGuidanceGrammar:
        """The grammar of a JSON Schema.

        Args:
            schema: a JSON value.
            whitespace: ``flexible``, ``compact`` or ``one_space``; ``json_dumps`` is ``one_space`` here, because the
                engine has one form of separators.
            formats: whether ``format`` is enforced; the engine can do no other.
            strict: refuse what the engine does not enforce, rather than warn.

        Raises:
            UnsupportedSchema: with the engine's own words.
            BudgetExceeded: the engine would follow too many remainders of numbers, or take longer than is left of the
                time of :func:`logitloom.automata.compilation_budget.at_most`.
        """
        if not formats and _mentions(schema, "format"):
            raise UnsupportedSchema(
                f"{_NAME} always enforces format. Use another engine, or load with formats='assert'."
            )
        if (remainders := _remainders(schema)) > _MOST_REMAINDERS:
            raise BudgetExceeded(
                f"{_NAME} would follow {min(remainders, 10**300):.4g} remainders of multipleOf, and is given at "
                f"most {_MOST_REMAINDERS}. Use smaller values, or fewer that have no common divisor."
            )
        options: dict[str, Any] = {"whitespace_flexible": whitespace == "flexible", "lenient": not strict}
        if whitespace != "flexible":
            space = "" if whitespace == "compact" else " "
            options |= {"item_separator": "," + space, "key_separator": ":" + space}
        text = json.dumps(schema if isinstance(schema, dict) else {} if schema else {"not": {}})
        if len(text) * _SECONDS_PER_CHARACTER > (left := BudgetTracker(Budget(seconds=math.inf)).remaining):
            raise BudgetExceeded(
                f"{_NAME} may take {len(text) * _SECONDS_PER_CHARACTER:.2g} seconds for a schema of {len(text)} "
                f"characters, and {max(left, 0):.2g} are left. Shorten the schema, or raise max_seconds."
            )
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(text, overrides=options)
        except ValueError as error:
            raise UnsupportedSchema(f"{_NAME} refuses the schema: {error!s:.380}. Use the engine 'table'.") from None
        wrong = llguidance.LLMatcher.validate_grammar(grammar).strip()
        if wrong.startswith("WARNING") and not strict:
            warn(f"{_NAME} does not enforce all of the schema: {wrong:.400}")
        elif wrong:
            does = "would not enforce all of" if wrong.startswith("WARNING") else "refuses"
            raise UnsupportedSchema(f"{_NAME} {does} the schema: {wrong:.380}. Use the engine 'table'.")
        return LLGuidanceGrammar(grammar, unlimited=_UNLIMITED_SCHEMA)

    def lark(self, text: str, *, start: str = "start", max_items: int = 50_000) -> LLGuidanceGrammar:
        """The grammar that a text in the engine's dialect of Lark describes; its lexer takes the longest match.

        Args:
            text: the grammar.
            start: the rule that a whole text follows.
            max_items: most items of the parser in one step.

        Raises:
            UnsupportedGrammar: with line, column, and the engine's own words.
        """
        if start != "start" and _START_RULE.search(text):
            raise UnsupportedGrammar(
                f"The option start is {start!r}, but the grammar has a rule 'start', with which llguidance begins. "
                f"Rename that rule, or leave the option out."
            )
        whole = text if start == "start" else f"{text}\nstart: {start}"
        # The directive is appended, so that line numbers stay the same. A text with a directive of its own gets no
        # other directive.
        if not _DIRECTIVE.search(text):
            whole += '\n%llguidance {"no_forcing": true}'
        grammar = self._checked(whole, text, start, max_items)
        return LLGuidanceGrammar(grammar, max_items, unlimited=_UNLIMITED_LARK)

    def context_free(self, grammar: ContextFreeGrammar, *, max_items: int = 50_000) -> LLGuidanceGrammar:
        """The grammar that rules over characters describe, exactly. The engine checks it when a matcher is made."""
        text = f'{to_lark(lexed(grammar))}\n%llguidance {{"no_forcing": true}}'
        return LLGuidanceGrammar(llguidance.LLMatcher.grammar_from_lark(text), max_items, grammar)

    def _checked(self, whole: str, text: str, start: str, max_items: int) -> str:
        """The engine's grammar of a Lark text.

        Args:
            whole: the text for the engine.
            text: the beginning of ``whole``, which the user has written.
            start: the rule that a whole text follows.
            max_items: the most items of the parser in one step.
        """
        grammar: str = llguidance.LLMatcher.grammar_from_lark(whole)
        wrong = llguidance.LLMatcher.validate_grammar(grammar, limits=_limits(max_items)).strip()
        if wrong.startswith("WARNING"):
            raise UnsupportedGrammar(f"{_NAME} would not enforce all of the grammar: {wrong}")
        if wrong.startswith("no start rule") or f'unknown name: "{start}"' in wrong.partition("\n")[0]:
            raise UnsupportedGrammar(
                f"The grammar has no rule {start!r:.60} to start from. Name the rule of the whole text 'start', or "
                f"give its name as the option start."
            )
        if wrong:
            raise _located(wrong, text) or UnsupportedGrammar(f"{_NAME} refuses the grammar: {_sentence(wrong)}")
        return grammar


def _mentions(schema: Any, keyword: str) -> bool:
    if isinstance(schema, dict):
        return keyword in schema or any(_mentions(part, keyword) for part in schema.values())
    return isinstance(schema, list) and any(_mentions(part, keyword) for part in schema)


def _remainders(schema: Any) -> int:
    """The least common multiple of all values of ``multipleOf``, in units of their smallest common part.

    The multiple is the number of states of the automaton of the common multiples, all of which the engine visits. The
    values are taken together even if no number of the schema has to be a multiple of all of them.

    Example:
        >>> _remainders({"properties": {"a": {"multipleOf": 0.5}, "b": {"multipleOf": 3}}})
        6
    """
    steps = [Fraction(str(step)) for step in _values_of(schema, "multipleOf")]
    unit = math.lcm(*(step.denominator for step in steps))
    return math.lcm(*(int(step * unit) for step in steps))


def _values_of(schema: Any, keyword: str) -> Iterator[float]:
    """The positive numbers that a keyword has anywhere in a schema."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += part.values()
            value = part.get(keyword)
            if isinstance(value, int | float) and 0 < value < math.inf:
                yield value
        elif isinstance(part, list):
            waiting += part


def _limits(max_items: int) -> Any:
    """The engine's limits for ``max_items`` items in one step, in the proportions of its own limits for 50,000."""
    return llguidance.LLParserLimits(
        step_max_items=max_items,
        max_items_in_row=max(2_000, max_items // 25),
        step_lexer_fuel=max(200_000, 4 * max_items),
    )


def _located(wrong: str, text: str) -> UnsupportedGrammar | None:
    """The engine's message about a place of a Lark text; ``None`` if the message names no place."""
    located = _LOCATION.match(wrong)
    if located is None:
        return None
    line, column, reason = int(located[1]), int(located[2]), _EXCERPT.sub("", located[3])
    # An error at the end of the text is reported in the line behind the end, or in a line that was appended.
    return refusal_at(text, min(line, text.count("\n") + 1), column, f"{_NAME} says: {_sentence(reason)}")


def _sentence(text: str) -> str:
    text = re.sub(r"\s*\n\s*", " ", text.strip())
    return text[:1].upper() + text[1:].rstrip(".") + "."


class LLGuidanceGrammar:
    """A grammar that the engine has accepted, and its rules, or the reason why the rules are not known."""

    def __init__(
        self, grammar: str, max_items: int = 50_000, rules: ContextFreeGrammar | None = None, unlimited: str = ""
    ) -> None:
        self.grammar = grammar
        self.max_items = max_items
        self.rules = rules
        self.unlimited = unlimited

    def bind(self, vocabulary: Vocabulary, vocab_size: int) -> _LLGuidanceConstraint:
        """The grammar for a vocabulary and a width of logits."""
        return _LLGuidanceConstraint(self, vocabulary, vocab_size)


class _Wrapped:
    """A vocabulary as the engine reads tokenizers."""

    def __init__(self, vocabulary: Vocabulary, vocab_size: int) -> None:
        self.eos_token_id = vocabulary.eos[0]
        self.bos_token_id = None
        texts = [*vocabulary.token_bytes[:vocab_size], *[b""] * (vocab_size - vocabulary.size)]
        # Ids without text must look special to the engine: an empty token would be allowed everywhere.
        self.tokens = [text if text else b"\xff" + f"<|{token}|>".encode() for token, text in enumerate(texts)]
        self.special_token_ids = [token for token, text in enumerate(texts) if not text]
        longest: dict[bytes, int] = {}
        for token, text in enumerate(texts):
            if text:
                longest.setdefault(text, token)
        self._ids = longest
        self._longest = max(map(len, longest))

    def __call__(self, text: bytes | str) -> list[int]:
        data = text.encode() if isinstance(text, str) else bytes(text)
        ids, start = [], 0
        while start < len(data):
            for end in range(min(len(data), start + self._longest), start, -1):
                token = self._ids.get(data[start:end])
                if token is not None:
                    ids.append(token)
                    start = end
                    break
            else:
                start += 1
        return ids


@kept_with_vocabulary
def engine_tokenizer(vocabulary: Vocabulary, vocab_size: int) -> Any:
    """The engine's own tokenizer for a vocabulary, which takes hundreds of milliseconds to make."""
    wrapper = llguidance.TokenizerWrapper(_Wrapped(vocabulary, vocab_size))
    eos = [token for token in vocabulary.eos if token < vocab_size]
    return llguidance.LLTokenizer(wrapper, eos_token=eos)


@cache
def _bytes() -> Vocabulary:
    """The bytes as tokens, and an end-of-sequence id."""
    return Vocabulary([*(bytes((byte,)) for byte in range(256)), b""], eos=[256], name="bytes")


class _LLGuidanceConstraint(MatcherConstraint):
    """A grammar of the engine over the tokens of a vocabulary.

    The engine gives a mask up that takes too much work, for example where hundreds of terminals begin alike. Only the
    tokens of one byte are allowed then: the engine finds the bytes that may come next with much less work.
    """

    def __init__(self, read: LLGuidanceGrammar, vocabulary: Vocabulary, vocab_size: int) -> None:
        self._read = read
        self._grammar = read.grammar
        self._limits = _limits(read.max_items)
        super().__init__(
            vocabulary, vocab_size, f"{_NAME}, {read.max_items}: {read.grammar}", read.rules, read.unlimited
        )

    def start_threads(self) -> Any:
        return llguidance.LLExecutor()

    def first_matcher(self) -> Any:
        tokenizer = engine_tokenizer(self.vocabulary, self.vocab_size)
        matcher = llguidance.LLMatcher(tokenizer, self._grammar, log_level=0, limits=self._limits)
        self._check(matcher)
        return matcher

    def accepting(self, matcher: Any) -> bool:
        return bool(matcher.is_accepting())

    def copied(self, matcher: Any) -> Any:
        return matcher.deep_copy()

    def read(self, matcher: Any, tokens: Sequence[int]) -> bool:
        if matcher.try_consume_tokens(tokens) == len(tokens):
            return True
        self._check(matcher)
        return False

    def go_back(self, matcher: Any, count: int) -> bool:
        if not matcher.rollback(count):
            return False
        # The engine keeps the results that it cached for the removed bytes, and uses them for other bytes at the same
        # positions, until it computes a mask.
        nothing = np.empty(self.words, dtype=np.int32)
        matcher.unsafe_compute_mask_ptr(nothing.__array_interface__["data"][0], nothing.nbytes)
        return not matcher.is_error()

    def fill(self, work: list[tuple[Any, int]], buffer: NDArray[np.int32]) -> list[int]:
        address, nbytes = buffer.__array_interface__["data"][0], 4 * self.words
        if len(work) == 1:
            work[0][0].unsafe_compute_mask_ptr(address + nbytes * work[0][1], nbytes)
        else:
            self.threads.unsafe_compute_mask_ptr(work, address, nbytes, len(buffer))
        given_up = []
        for matcher, row_number in work:
            if matcher.is_error():
                buffer[row_number] = 0
                refusal = self._refusal(matcher)
                if isinstance(refusal, BudgetExceeded):
                    given_up.append(row_number)
                elif refusal is not None:
                    raise refusal
        return given_up

    def less_work(self, state: TokensRead, matcher: Any) -> TokenSet:
        """The allowed tokens that consist of one byte. A grammar whose first mask is given up is refused."""
        found = None if state.before is None or self.vocabulary is _bytes() else self._single_bytes(state)
        if found is None:
            raise self._refusal(matcher) or AssertionError("A matcher that gives a mask up says why.")
        return found

    def _single_bytes(self, state: TokensRead) -> TokenSet | None:
        """The tokens of one byte that may come next; ``None`` if the engine cannot tell, or if there are none and the
        text may not end.
        """
        try:
            reached = TokensRead.of(self.vocabulary.text_bytes(state.tokens()))
            members = self._over_bytes.allowed(reached)
            ends = self._over_bytes.may_end(reached)
        except LogitloomError:
            return None
        lengths = np.diff(self.vocabulary.offsets)[: self.vocab_size]
        ids = (lengths == 1).nonzero()[0].astype(np.int32)
        ids = ids[members.mask(_bytes().size).take(self.vocabulary.flat_bytes.take(self.vocabulary.offsets.take(ids)))]
        return TokenSet(True, ids) if len(ids) or ends else None

    @cached_property
    def _over_bytes(self) -> _LLGuidanceConstraint:
        """The same grammar over bytes as tokens."""
        warn(
            f"{_NAME} finds too much possible at a place of the text. Only tokens of one byte are allowed there, which "
            f"is slow and may not be what the model writes best. Write fewer alternatives, or terminals that differ "
            f"from their beginning on, or raise the option 'max_items' above {self._read.max_items}.",
        )
        return self._read.bind(_bytes(), _bytes().size)

    def _check(self, matcher: Any) -> None:
        """Raise if the matcher has failed, unless it only found that no token can follow."""
        refusal = self._refusal(matcher)
        if refusal is not None:
            raise refusal

    def _refusal(self, matcher: Any) -> LogitloomError | None:
        """Why a matcher has failed; ``None`` if it has not, or only found that no token can follow."""
        said = matcher.get_error() if matcher.is_error() else ""
        if not said or said.startswith("NoExtension"):
            return None
        if self._read.unlimited == _UNLIMITED_LARK and (located := _located(said, self._grammar)):
            return located
        reason = f"{_NAME} cannot run the grammar: {_sentence(_INTERNALS.split(said, 1)[0])}"
        if "TooComplex" not in said:
            return UnsupportedGrammar(f"{reason} Write fewer rules, or use another engine.")
        return BudgetExceeded(
            f"{reason} Too much is possible at this place of the text. Write fewer alternatives there, or terminals "
            f"that differ from their beginning on, or raise max_items above {self._read.max_items}."
        )
