"""``stop``: the oracle is a search in the decoded bytes; what is held back or cut is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Backend, Context, Vocabulary, load_backend, processors
from logitloom.errors import NeedsNotMet, OptionError
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial
from logitloom.host.hookspecs import TextEnd
from tests.oracles.toy_model import ToyModel
from tests.plugins.processors.constraining import WIDTH, WORDS, begin, step

SINGLE = {WORDS.token_bytes[t]: t for t in range(2, 258)}
EOS = WORDS.eos[0]
STRINGS = ["ab", "abc", "b", "12", "本", "日本", "aab", "é", "foobar", "ba\n"]
#: Tokens that often begin, continue or end one of these, pieces of characters among them.
USEFUL = [t for t in range(WORDS.size) if t >= 258 or bytes([(t - 2) % 256]) in b"abc12\n\xc3\xa9\xe6\x97\xa5\x9c\xac"]


def first_end(strings: Sequence[str], data: bytes, skip: int = 0) -> tuple[int, int] | None:
    """(start, end) of the match that ends first, of those the longest; it must not end within the first bytes."""
    found = []
    for string in strings:
        sought = string.encode()
        at = data.find(sought, max(0, skip - len(sought) + 1))
        while at >= 0 and at + len(sought) <= skip:
            at = data.find(sought, at + 1)
        if at >= 0:
            found.append((at + len(sought), at))
    return min(found)[::-1] if found else None


def held(strings: Sequence[str], data: bytes) -> int:
    """The longest end of the text with which one of the strings begins."""
    return max((n for s in strings for n in range(len(s.encode())) if data.endswith(s.encode()[:n])), default=0)


def expected_end(strings: Sequence[str], data: bytes, include: bool, skip: int = 0) -> TextEnd:
    match = first_end(strings, data, skip)
    if match is not None:
        return TextEnd(True, len(data) - match[1 if include else 0])
    return TextEnd(False, 0 if include else held(strings, data))


walks = st.lists(st.sampled_from(USEFUL), max_size=12)
string_lists = st.lists(st.sampled_from(STRINGS), min_size=1, max_size=3)


@given(strings=string_lists, walk=walks, cuts=st.lists(st.integers(0, 12), max_size=3), include=st.booleans())
def test_ends_are_those_of_a_search_in_the_text(
    strings: list[str], walk: list[int], cuts: list[int], include: bool
) -> None:
    """However the tokens arrive: one by one, or several at once as drafts do."""
    backend = load_backend("numpy")
    chain, context, at = begin(backend, ("stop", {"strings": strings, "include": include}))
    borders = [0, *sorted(cut for cut in cuts if cut < len(walk)), len(walk)]
    for begin_, end in pairwise(borders):
        after = context.accept([walk[begin_:end]])
        expected = expected_end(strings, WORDS.text_bytes(walk[:end]), include)
        assert chain.text_ends(at, after) == [expected]
        (allowed,), at = step(backend, chain, at, context, [walk[begin_:end]])
        assert chain.text_ends(at, context) == [expected]
        assert allowed == ({EOS} if expected.finished else set(range(WIDTH)))


@given(strings=string_lists, rows=st.lists(walks, min_size=2, max_size=3))
def test_devices_and_compiled_loops_end_alike(strings: list[str], rows: list[list[int]]) -> None:
    for name in ("numpy", "torch"):
        try:
            backend = load_backend(name)
        except ImportError:
            continue
        chain, context, at = begin(backend, ("stop", {"strings": strings}), len(rows), compiled=name == "torch")
        expected = [expected_end(strings, WORDS.text_bytes(row), False) for row in rows]
        assert chain.text_ends(at, context.accept(rows)) == expected
        _, at = step(backend, chain, at, context, rows)
        assert chain.text_ends(at, context) == expected


@given(strings=string_lists, walk=walks, after=st.lists(st.sampled_from([EOS, 97, 300]), max_size=3))
def test_what_follows_end_of_sequence_is_not_text(strings: list[str], walk: list[int], after: list[int]) -> None:
    backend = load_backend("numpy")
    chain, context, at = begin(backend, ("stop", {"strings": strings}))
    expected = expected_end(strings, WORDS.text_bytes(walk), False)
    taken = context.accept([[*walk, EOS, *after]])
    _, later = step(backend, chain, at, context, [[*walk, EOS, *after]])
    for found in (chain.text_ends(at, taken), chain.text_ends(later, context)):
        assert found == [expected if expected.finished else TextEnd(False, 0)]


def test_a_draft_that_goes_on_far_behind_a_match_is_cut_exactly(backend: Backend) -> None:
    chain, context, at = begin(backend, ("stop", {"strings": ["ab"]}))
    long = WORDS.token_bytes.index(b"foobar")
    draft = [SINGLE[b"a"], SINGLE[b"b"], *[long] * 100]
    assert chain.text_ends(at, context.accept([draft])) == [TextEnd(True, 602)]


def test_a_string_may_be_split_within_characters_and_run_over_on_both_sides(backend: Backend) -> None:
    chain, context, at = begin(backend, ("stop", {"strings": ["日本"]}))
    pieces = [WORDS.token_bytes.index(piece) for piece in (b"ab", b"\xe6\x97", b"\xa5\xe6")]
    pieces += [SINGLE[b"\x9c"], SINGLE[b"\xac"]]
    for n in range(len(pieces)):
        assert not chain.text_ends(at, context.accept([pieces[:n]]))[0].finished  # type: ignore[index]
    assert chain.text_ends(at, context.accept([pieces])) == [TextEnd(True, 6)]


@given(strings=string_lists, prompt=walks, walk=walks)
def test_strings_that_begin_in_the_prompt_count_only_when_asked(
    strings: list[str], prompt: list[int], walk: list[int]
) -> None:
    backend = load_backend("numpy")
    before, written = WORDS.text_bytes(prompt), WORDS.text_bytes(walk)
    chain, context, at = begin(backend, ("stop", {"strings": strings}), prompt=[prompt])
    assert chain.text_ends(at, context.accept([walk])) == [expected_end(strings, written, False)]
    spec = ("stop", {"strings": strings, "across_prompt": True})
    chain, context, at = begin(backend, spec, prompt=[prompt])
    ends = chain.text_ends(at, context.accept([walk]))
    assert ends == [expected_end(strings, before + written, False, skip=len(before))]


def test_across_the_prompt_needs_the_prompt() -> None:
    chain, context, _ = begin(load_backend("numpy"), ("stop", {"strings": ["a"]}))
    with pytest.raises(NeedsNotMet, match="prompt"):
        begin(load_backend("numpy"), ("stop", {"strings": ["a"], "across_prompt": True}))
    assert "prompt" not in chain.needs
    assert context.prompt is None


@pytest.mark.parametrize("strings", [[], [""], ["a", ""]])
def test_no_strings_and_empty_strings_are_errors(strings: list[str]) -> None:
    with pytest.raises(OptionError, match="Option 'strings' of 'stop': .*(at least one|empty)"):
        processors.load(("stop", {"strings": strings}))


# --- in the decoding loop ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Script:
    """A sampler that takes given tokens."""

    tokens: tuple[int, ...]
    prompt: int = 1
    samples: int = 1

    def choose(self, backend: Any, logits: Any, seeds: Any, lengths: Any) -> Any:
        at = backend.to_numpy(lengths) - self.prompt
        picked = [self.tokens[min(n, len(self.tokens) - 1)] for n in at]
        return backend.asarray(np.asarray(picked, dtype=np.int32)), backend.asarray(np.zeros(len(picked), np.float32))


def generate(spec: Any, tokens: Sequence[int], prompt: Sequence[int] = (300,), **more: Any) -> tuple[Any, list[Any]]:
    backend = load_backend("numpy")
    chain = processors.load(*spec, tokenizer=WORDS)
    strategy = Script((*tokens, EOS), len(prompt))
    generator = Generator(ToyModel(backend, WIDTH), chain, strategy, max_tokens=len(tokens) + 1, **more)
    (found,) = generator([list(prompt)])
    return found, list(generator.stream([list(prompt)]))


@given(strings=string_lists, walk=walks, include=st.booleans(), skip=st.booleans())
def test_generated_text_ends_where_the_search_says_and_streams_never_show_more(
    strings: list[str], walk: list[int], include: bool, skip: bool
) -> None:
    found, pieces = generate([("stop", {"strings": strings, "include": include})], walk, skip_forced=skip)
    written = WORDS.text_bytes(walk)
    match = first_end(strings, written)
    end = len(written) if match is None else match[1 if include else 0]
    text = written[:end].decode("utf-8", "replace")
    assert found.text == text
    assert found.finish == ("eos" if match is None else "stop")
    assert EOS not in found.tokens
    assert "".join(piece.text for piece in pieces) == text
    shown = ""
    for piece in pieces:
        shown += piece.text
        assert text.startswith(shown)


def test_a_match_that_began_in_the_prompt_leaves_no_text() -> None:
    prompt = [SINGLE[b"f"], SINGLE[b"o"], SINGLE[b"o"]]
    walk = [SINGLE[b"b"], SINGLE[b"a"], SINGLE[b"r"]]
    spec = [("stop", {"strings": ["foobar"], "across_prompt": True})]
    found, pieces = generate(spec, walk, prompt)
    assert (found.text, found.finish) == ("", "stop")
    assert "".join(piece.text for piece in pieces) == ""


@pytest.mark.parametrize("skip", [True, False])
def test_a_string_inside_a_forced_run_ends_the_text_there(skip: bool) -> None:
    spec = [("regex", {"pattern": "[xy]foo bar12-"}), ("stop", {"strings": ["o b"]})]
    backend = load_backend("numpy")
    generator = Generator(
        ToyModel(backend, WIDTH, seed=3), processors.load(*spec, tokenizer=WORDS), Greedy(), max_tokens=20,
        skip_forced=skip,
    )  # fmt: skip
    (found,) = generator([[300]])
    assert found.text in ("xfo", "yfo")
    assert found.finish == "stop"
    assert "".join(piece.text for piece in generator.stream([[300]])) == found.text


@pytest.mark.parametrize("strategy", [Multinomial(3), BeamSearch(3, samples=3)], ids=["sampling", "beams"])
def test_several_sequences_each_end_at_their_own_match(strategy: Any) -> None:
    chain = processors.load(
        ("regex", {"pattern": "[ab12]{1,12}"}), ("stop", {"strings": ["ab", "21"]}), tokenizer=WORDS
    )
    generator = Generator(ToyModel(load_backend("numpy"), WIDTH, seed=1), chain, strategy, max_tokens=12)
    finishes = set()
    for found in generator([[300], [301, 302]], seed=5):
        written = WORDS.text_bytes(found.tokens)
        match = first_end(["ab", "21"], written)
        assert found.text == written[: match[0] if match else None].decode()
        assert (found.finish == "stop") == (match is not None)
        finishes.add(found.finish)
    assert "stop" in finishes


def test_a_string_that_a_special_token_stands_for_is_warned_of() -> None:
    words = Vocabulary([b"</s>", b"a", b"", b"<|end|>"], eos=[0], special=[2], special_text={0: "</s>", 2: "<|end|>"})
    chain = processors.load(("stop", {"strings": ["</s>", "<|end|>"]}))
    with pytest.warns(
        UserWarning, match=r"in the text only, and the special token 2 .*vocabulary.with_eos\(\[0, 2\]\)"
    ):
        chain.configure(tokenizer=words)
    chain = chain.configure(tokenizer=words.with_eos([0, 2]))
    context = Context.start(np.zeros((1, 4), dtype=np.float32), prompt=[[1]])
    state = chain.init_state(context)
    assert chain.text_ends(state, context.accept([[3]])) == [TextEnd(True, 7)]
