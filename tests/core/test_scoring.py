"""``chain.score`` gives the log-probabilities that decoding sees, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Chain, Context, Vocabulary, load_backend, processors
from logitloom.chain import scoring
from logitloom.errors import IllegalToken, InvalidContext, NeedsNotMet

VOCAB, TIME = 24, 70
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9], []]

POOL: list[Any] = [
    ("temperature", {"temperature": 0.7}), ("top_k", {"k": 12}), ("top_p", {"p": 0.9}), ("min_p", {"p": 0.02}),
    ("repetition_penalty", {"penalty": 1.3}), ("frequency_penalty", {"penalty": 0.4}), ("typical_p", {"p": 0.95}),
    ("presence_penalty", {"penalty": 0.5, "window": 5}), ("no_repeat_ngram", {"n": 3}),
    ("logit_bias", {"bias": {2: 1.0}}),
    ("dry", {"breakers": [], "allowed_length": 1}), ("xtc", {"threshold": 0.1, "probability": 0.5}),
    ("min_tokens", {"n": 5, "eos": [0]}), ("sequence_bias", {"sequences": [[1], [2, 3]], "biases": [0.5, 2.0]}),
    ("dynamic_temperature", {}), ("quadratic", {"factor": 0.1}), ("watermark_greenlist", {"ratio": 0.5}),
    ("top_h", {"h": 0.9}), ("suppress_tokens", {"tokens": [5], "begin": True}),
]  # fmt: skip


def start(backend: Backend, prompts: Any = PROMPTS) -> Context:
    blank = backend.asarray(np.zeros((len(prompts), VOCAB), np.float32))
    return Context.start(blank, prompt=prompts, max_length=TIME + 8, seed=3)


def step_by_step(
    chain: Chain, backend: Backend, logits: np.ndarray, dice: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Sampled tokens and their log-probabilities, as decoding has them, ``[batch, time]`` each."""
    context = start(backend)
    state, given = chain.init_state(context), context
    tokens, found = [], []
    for t in range(logits.shape[1]):
        out, state = chain.process(backend.asarray(np.ascontiguousarray(logits[:, t])), state, given)
        line = backend.to_numpy(backend.log_softmax(out)).astype(np.float64)
        p = np.exp(line) / np.exp(line).sum(-1, keepdims=True)
        token = np.asarray([dice.choice(VOCAB, p=row) for row in p], dtype=np.int32)
        logprob = np.take_along_axis(line, token[:, None], 1)[:, 0]
        tokens.append(token)
        found.append(logprob)
        chosen = backend.asarray(logprob[:, None].astype(np.float32)) if "chosen_logprob" in chain.needs else None
        given = context.accept(token[:, None], chosen_logprob=chosen)
    return np.stack(tokens, 1), np.stack(found, 1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.long
def test_scores_are_those_of_decoding_for_random_chains(backend: Backend, seed: int) -> None:
    dice = np.random.default_rng(seed)
    time = 20 if backend.name == "jax" else TIME
    chain = processors.load(*(POOL[i] for i in dice.choice(len(POOL), 5, replace=False)))
    logits = dice.normal(scale=2.0, size=(len(PROMPTS), time, VOCAB)).astype(np.float32)
    tokens, wanted = step_by_step(chain, backend, logits, dice)
    ends = [time, time - 3, 1, 7]
    found = backend.to_numpy(
        chain.score(backend.asarray(logits), [list(r[:n]) for r, n in zip(tokens, ends, strict=True)], start(backend))
    )
    for row, (n, line) in enumerate(zip(ends, found, strict=True)):
        np.testing.assert_allclose(line[:n], wanted[row, :n], atol=1e-5)
        assert (line[n:] == 0).all()


@pytest.mark.parametrize("observe", ["own", "chosen"])
def test_processors_that_must_see_every_step_are_scored_step_by_step(backend: Backend, observe: str) -> None:
    chain = processors.load(("temperature", {"temperature": 1.5}), ("mirostat_v2", {"tau": 1.5, "observe": observe}))
    logits = np.random.default_rng(0).normal(scale=2.0, size=(len(PROMPTS), 12, VOCAB)).astype(np.float32)
    tokens, wanted = step_by_step(chain, backend, logits, np.random.default_rng(1))
    found = backend.to_numpy(chain.score(backend.asarray(logits), tokens, start(backend)))
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_a_truncation_behind_a_processor_that_sees_every_step_counts(backend: Backend) -> None:
    chain = processors.load(("mirostat_v2", {"tau": 1.5}), ("top_k", {"k": 2}))
    logits = np.random.default_rng(0).normal(scale=2.0, size=(len(PROMPTS), 12, VOCAB)).astype(np.float32)
    tokens, wanted = step_by_step(chain, backend, logits, np.random.default_rng(1))
    found = backend.to_numpy(chain.score(backend.asarray(logits), tokens, start(backend)))
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_no_sequences_have_no_scores() -> None:
    logits = np.zeros((0, 4, VOCAB), np.float32)
    chain = processors.load(("repetition_penalty", {"penalty": 1.3}), ("top_k", {"k": 2}))
    assert chain.score(logits, [], Context.start(logits[:, 0], prompt=[])).shape == (0, 4)


def test_constraints_are_scored_and_illegal_tokens_named(backend: Backend) -> None:
    letters = Vocabulary([b"", *(bytes([97 + i]) for i in range(VOCAB - 1))], eos=[0])
    chain = processors.load(("regex", {"pattern": "(ab|c)+"}), tokenizer=letters)
    logits = np.zeros((2, 5, VOCAB), np.float32)
    found = backend.to_numpy(chain.score(backend.asarray(logits), [[1, 2, 3, 0], [3]], start(backend, [[], []])))
    # First a or c; after a only b; then a, c or the end.
    wanted = -np.log(np.asarray([[2, 1, 3, 3, 1], [2, 1, 1, 1, 1]]))
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    wrong = [[1, 2, 3, 0], [3, 2, 1]]
    if backend.on_host:
        with pytest.raises(IllegalToken, match=r"Sequence 1, before its position 2: "):
            chain.score(backend.asarray(logits), wrong, start(backend, [[], []]))
    else:  # nothing is read back to find it, and it scores what it is worth
        found = backend.to_numpy(chain.score(backend.asarray(logits), wrong, start(backend, [[], []])))
        assert found[1, 1] == -np.inf


@pytest.mark.parametrize("last", [0, 5])
def test_the_last_token_of_a_sequence_scores_in_a_batch_as_alone(backend: Backend, last: int) -> None:
    """A constraint forbids this token, and no token follows it, however long other sequences are."""
    letters = Vocabulary([b"", *(bytes([97 + i]) for i in range(VOCAB - 1))], eos=[0])
    chain = processors.load(("regex", {"pattern": "(ab|c){2,9}"}), tokenizer=letters)
    logits = np.random.default_rng(3).normal(size=(3, 6, VOCAB)).astype(np.float32)
    lines = [[1, 2, 3, 3, 1, 2], [3, last], [1, last]]
    found = backend.to_numpy(chain.score(backend.asarray(logits), lines, start(backend, [[]] * 3)))
    for n, line in enumerate(lines):
        alone = chain.score(backend.asarray(logits[n : n + 1, : len(line)]), [line], start(backend, [[]]))
        np.testing.assert_allclose(found[n, : len(line)], backend.to_numpy(alone)[0], atol=1e-6)
    assert (found[1:, 1] == -np.inf).all()


def test_sequences_end_and_go_on_where_positions_are_processed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "_MOST_POSITIONS", 64)
    letters = Vocabulary([b"", *(bytes([97 + i]) for i in range(VOCAB - 1))], eos=[0])
    chain = processors.load(("regex", {"pattern": "(ab)*"}), tokenizer=letters)
    context = start(load_backend("numpy"))
    lines = [[1, 2] * 31 + [0], [1, 2] * 32, [1, 2] * 32 + [0], [1, 2] * 70]
    found = chain.score(np.zeros((4, 140, VOCAB), np.float32), lines, context)
    for line, row in zip(lines, found, strict=True):
        # After a only b; else a or the end.
        wanted = [0.0 if token == 2 else -np.log(2.0) for token in line]
        np.testing.assert_allclose(row, [*wanted, *[0.0] * (140 - len(line))], atol=1e-6)
    lines[3][63] = 1  # the last position of the first 64
    with pytest.raises(IllegalToken, match=r"Sequence 3, before its position 64: "):
        chain.score(np.zeros((4, 140, VOCAB), np.float32), lines, context)


def test_recorded_masks_stand_for_those_of_the_chain(backend: Backend) -> None:
    dice = np.random.default_rng(2)
    chain = processors.load(("temperature", {"temperature": 0.6}), ("top_p", {"p": 0.7}))
    logits = dice.normal(scale=2.0, size=(2, 9, VOCAB)).astype(np.float32)
    flat = backend.asarray(logits.reshape(-1, VOCAB))
    context = Context.start(flat)
    out = backend.to_numpy(chain.process(flat, chain.init_state(context), context)[0]).reshape(logits.shape)
    left = np.isfinite(out)
    tokens = np.where(left, dice.random(out.shape), -1).argmax(-1)
    words = np.zeros((2, 9, 1), np.uint32)
    words[..., 0] = (left.astype(np.uint32) << np.arange(VOCAB, dtype=np.uint32)).sum(-1)
    bits = backend.asarray(words.view(np.int32))
    # Other logits, of which top_p would keep other tokens.
    other = (logits + dice.normal(scale=0.5, size=logits.shape)).astype(np.float32)
    found = backend.to_numpy(chain.score(backend.asarray(other), tokens, start(backend, [[], []]), kept=bits))
    cooled = np.where(left, other / np.float32(0.6), -np.inf)
    wanted = np.take_along_axis(cooled - np.log(np.exp(cooled).sum(-1, keepdims=True)), tokens[..., None], -1)[..., 0]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    for truth in (backend.asarray(left), left):
        same = chain.score(backend.asarray(other), tokens, start(backend, [[], []]), kept=truth)
        np.testing.assert_array_equal(backend.to_numpy(same), found)


def test_errors_say_what_does_not_fit() -> None:
    chain = processors.load(("top_k", {"k": 3}))
    logits = np.zeros((2, 4, 8), np.float32)
    context = Context.start(logits[:, 0])
    with pytest.raises(InvalidContext, match=r"for the 2 rows of the context, but the logits have the shape \[2, 8\]"):
        chain.score(logits[:, 0], [[1], [2]], context)
    with pytest.raises(InvalidContext, match=r"those of 2 sequences of 4 tokens at most, but 1 sequences of up to 5"):
        chain.score(logits, [[1] * 5], context)
    with pytest.raises(
        InvalidContext, match=r"Sequence 1 has no token at position 0, but one behind it\. Close the gap"
    ):
        chain.score(logits, [[1, 2], [-1, 2]], context)
    for wrong in (8, -2):
        with pytest.raises(InvalidContext, match=f"The id {wrong} is to be scored, and ids are from 0 to 7"):
            chain.score(logits, [[1, 2], [wrong]], context)
    guided = processors.load(("cfg", {"form": "one_pass", "scale": 2.0}))
    with pytest.raises(NeedsNotMet, match=r"takes 2 rows of logits per sequence, and sequences are scored with one"):
        guided.score(logits, [[1], [2]], context)


@pytest.mark.parametrize("seed", range(3))
def test_the_survivors_of_a_wide_vocabulary_score_as_the_whole_row_does(seed: int) -> None:
    backend, dice, vocab = load_backend("numpy"), np.random.default_rng(seed), 3000
    chain = processors.load(
        ("repetition_penalty", {"penalty": 1.3}), ("temperature", {"temperature": 0.7}), ("top_k", {"k": 20}),
        ("top_p", {"p": 0.9}), ("typical_p", {"p": 0.95}), ("xtc", {"probability": 0.5}),
    )  # fmt: skip
    logits = dice.normal(scale=3.0, size=(2, 40, vocab)).astype(np.float32)
    tokens = np.argsort(-logits, -1)[..., 0]
    context = Context.start(logits[:, 0], prompt=[[1], [2, 3]], seed=seed)
    found = chain.score(logits, tokens, context)
    state, given = chain.init_state(context), context
    for place in range(40):
        out, state = chain.process(logits[:, place], state, given)
        wanted = backend.log_softmax(out)[[0, 1], tokens[:, place]]
        np.testing.assert_allclose(found[:, place], wanted, atol=1e-5)
        given = context.accept(tokens[:, place : place + 1])


WIDE_PROMPTS = [[1, 2, 3, 2999], [4], []]


def in_decoding(chain: Chain, logits: Any, tokens: np.ndarray, context: Context) -> list[Any]:
    """The log-probabilities of given tokens, step by step: ``[batch, 1]`` each."""
    backend, state, given, found = context.backend, chain.init_state(context), context, []
    for place in range(tokens.shape[1]):
        out, state = chain.process(logits[:, place], state, given)
        now = tokens[:, place : place + 1]
        found.append(backend.gather(backend.log_softmax(out), backend.asarray(now)))
        given = context.accept(now)
    return found


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_scores_over_a_wide_vocabulary_are_those_of_decoding_for_random_chains(backend: Backend, seed: int) -> None:
    dice, vocab, time = np.random.default_rng(100 + seed), 3000, 9
    chain = processors.load(*(POOL[i] for i in dice.choice(len(POOL), 5, replace=False)))
    host = dice.normal(scale=3.0, size=(len(WIDE_PROMPTS), time, vocab)).astype(np.float32)
    # Few tokens, so that they come again, and mostly likely ones, so that they survive truncations.
    tokens = np.where(dice.random(host.shape[:2]) < 0.5, dice.integers(1, 6, host.shape[:2]), host.argmax(-1))
    host[..., 1:6] += 9
    logits = backend.asarray(host)
    context = Context.start(logits[:, 0], prompt=WIDE_PROMPTS, max_length=time + 8, seed=3)
    wanted = np.concatenate([backend.to_numpy(line) for line in in_decoding(chain, logits, tokens, context)], axis=1)
    found = backend.to_numpy(chain.score(logits, tokens, context))
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    assert np.isfinite(wanted).any()
    np.testing.assert_allclose(found[np.isfinite(wanted)], wanted[np.isfinite(wanted)], atol=1e-5)
    assert (backend.to_numpy(logits) == host).all()


@pytest.mark.torch
def test_gradients_of_scores_are_those_of_decoding() -> None:
    torch = pytest.importorskip("torch", reason="gradients are those of PyTorch")
    chain = processors.load(
        ("repetition_penalty", {"penalty": 1.3}), ("frequency_penalty", {"penalty": 0.4}), ("min_p", {"p": 1e-6})
    )
    host = np.random.default_rng(4).normal(size=(2, 6, 3000)).astype(np.float32)
    tokens = np.array([[3, 3, 4, 3, 9, 9], [2999, 1, 1, 1, 5, 1]])
    given = [torch.tensor(host, requires_grad=True) for _ in range(2)]
    context = Context.start(given[0][:, 0].detach(), prompt=[[1, 2], []], max_length=9)
    chain.score(given[0], tokens, context).sum().backward()
    torch.cat(in_decoding(chain, given[1], tokens, context)).sum().backward()
    np.testing.assert_allclose(given[0].grad.numpy(), given[1].grad.numpy(), atol=1e-6)


LOGITS = np.zeros((2, 3, 4), dtype=np.float32)
WRONG = {
    "logits": [
        LOGITS.tolist(),
        None,
        "x",
        1.0,
        LOGITS[0],
        LOGITS.astype(int),
        LOGITS.astype(bool),
        LOGITS.astype(object),
    ],
    "tokens": [None, 5, "ab", [["a"]] * 2, [[[1]]] * 2, [[2**40]] * 2, [[1, 2, 3, 1]] * 2, [[1]]],
    "context": [None, 5, "x"],
    "kept": [
        5,
        "x",
        np.ones((2, 2), np.int32),
        [[1]],
        LOGITS,
        LOGITS.astype(int),
        LOGITS[..., :1] > 0,
        LOGITS[..., :1],
    ],
}


@pytest.mark.parametrize(("name", "place"), [(name, place) for name in WRONG for place in range(len(WRONG[name]))])
def test_wrong_values_are_refused_with_a_sentence(name: str, place: int) -> None:
    from logitloom.errors import InvalidContext

    chain = processors.load(("temperature", {"temperature": 0.7}))
    given = {"logits": LOGITS, "tokens": [[1, 2, 1]] * 2, "context": Context.start(LOGITS[:, 0]), "kept": None}
    given[name] = WRONG[name][place]
    with pytest.raises(InvalidContext, match=r"[a-z]+ .*\."):
        chain.score(given["logits"], given["tokens"], given["context"], kept=given["kept"])
