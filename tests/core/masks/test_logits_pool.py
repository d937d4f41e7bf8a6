"""Buffers that are used again: results equal to fresh ones, and never while somebody holds or changed them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import Context, Vocabulary, load_backend, processors
from logitloom.arrays.backend import Backend
from logitloom.masks.logits_pool import LogitsPool
from logitloom.masks.mask_row import MaskRow

VOCAB = 160

#: Ids per mask: few, a pass over the row (allowed and forbidden), few forbidden with a long run.
MASKS = [
    (True, [3]),
    (True, [0, 7, 159]),
    (True, []),
    (True, list(range(0, 150, 2))),
    (False, list(range(0, 150, 3))),
    (False, [5, 6]),
    (False, list(range(16))),
]


def masked_by_hand(logits: np.ndarray, masks: list[int]) -> np.ndarray:
    out = logits.copy()
    for line, mask in zip(out, masks, strict=True):
        allowed, ids = MASKS[mask]
        inside = np.isin(np.arange(VOCAB), ids)
        line[inside != allowed] = -np.inf
    return out


def prepared(masks: list[int]) -> list[MaskRow]:
    return [MaskRow(allowed, ids, VOCAB) for allowed, ids in (MASKS[mask] for mask in masks)]


def host_backend(name: str) -> Backend:
    if name == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    backend = load_backend(name)
    assert backend.uses_buffer_pool
    return backend


def wide(backend: Backend, array: Any) -> np.ndarray:
    return backend.to_numpy(array).astype(np.float32, copy=True)


KINDS = [("numpy", "float32"), ("numpy", "float64"), ("numpy", "float16")]
KINDS += [("torch", "float32"), ("torch", "bfloat16"), ("torch", "float16")]


@pytest.mark.parametrize(("library", "dtype"), KINDS)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, len(MASKS) - 1), min_size=1, max_size=4), st.booleans(), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_masks_in_buffers_equal_masks_in_fresh_arrays(
    library: str, dtype: str, steps: list[tuple[list[int], bool, bool]]
) -> None:
    backend, pool = host_backend(library), LogitsPool()
    kept: list[tuple[Any, np.ndarray]] = []
    out = None
    for number, (masks, donate, keep) in enumerate(steps):
        values = np.random.default_rng(number).normal(size=(len(masks), VOCAB)).astype(np.float32)
        values[0, :3] = np.nan, -0.0, np.inf
        values[-1, 4] = -np.nan
        logits = backend.asarray(values, dtype=dtype)
        expected = masked_by_hand(wide(backend, logits), masks)
        before = wide(backend, logits)
        out = backend.apply_token_rows(logits, prepared(masks), donate, pool)
        assert out.dtype == logits.dtype
        np.testing.assert_array_equal(wide(backend, out), expected)
        if not donate:
            np.testing.assert_array_equal(wide(backend, logits), before)
        if keep:
            kept.append((out[0], expected[0]))
        for line, as_it_was in kept:
            np.testing.assert_array_equal(wide(backend, line), as_it_was)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_memory_is_used_again_once_nobody_holds_it(library: str) -> None:
    backend, pool = host_backend(library), LogitsPool()
    logits = backend.asarray(np.zeros((2, VOCAB), np.float32))
    places = set()
    for step in range(6):
        out = backend.apply_token_rows(logits, prepared([step % 2, 1]), False, pool)
        places.add(backend.to_numpy(out).ctypes.data)
        del out
    assert len(places) == 1
    assert pool.nbytes == 2 * VOCAB * 4


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_view_of_a_view_keeps_its_values(library: str) -> None:
    backend, pool = host_backend(library), LogitsPool()
    logits = backend.asarray(np.arange(2 * VOCAB, dtype=np.float32).reshape(2, VOCAB))
    held = backend.to_numpy(backend.apply_token_rows(logits, prepared([0, 0]), False, pool)[1][2:][:2])
    for _ in range(4):
        backend.apply_token_rows(logits, prepared([1, 2]), False, pool)
    assert held.tolist() == [-np.inf, VOCAB + 3.0]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_without_a_free_buffer_results_are_fresh_or_in_place(library: str) -> None:
    backend, pool = host_backend(library), LogitsPool()
    logits = backend.asarray(np.zeros((1, VOCAB), np.float32))
    held = [backend.apply_token_rows(logits, prepared([0]), False, pool) for _ in range(5)]
    assert pool.nbytes == 2 * VOCAB * 4
    assert all((wide(backend, out) == masked_by_hand(np.zeros((1, VOCAB), np.float32), [0])).all() for out in held)
    places = {backend.to_numpy(out).ctypes.data for out in held}
    assert len(places) == 5


def test_what_numpy_hands_out_cannot_be_written_to() -> None:
    backend, pool = host_backend("numpy"), LogitsPool()
    out = backend.apply_token_rows(np.zeros((1, VOCAB), np.float32), prepared([0]), False, pool)
    with pytest.raises(ValueError, match="read-only"):
        out[0, 0] = 1.0


@pytest.mark.torch
@pytest.mark.parametrize("inference", [False, True])
def test_changes_of_a_tensor_are_noticed(inference: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    backend, pool = host_backend("torch"), LogitsPool()
    with torch.inference_mode(inference):
        logits = torch.zeros((2, VOCAB))
        for _ in range(3):
            out = backend.apply_token_rows(logits, prepared([0, 1]), False, pool)
            assert (out.numpy() == masked_by_hand(np.zeros((2, VOCAB), np.float32), [0, 1])).all()
            out[1].fill_(3.0)
            del out


@pytest.mark.parametrize(("library", "dtype"), KINDS)
def test_logits_of_other_strides_are_read_as_they_are(library: str, dtype: str) -> None:
    backend, pool = host_backend(library), LogitsPool()
    values = np.random.default_rng(0).normal(size=(6, VOCAB + 3)).astype(np.float32)
    large = backend.asarray(values, dtype=dtype)[::2, :VOCAB]
    out = backend.apply_token_rows(large, prepared([1, 5, 0]), False, pool)
    np.testing.assert_array_equal(wide(backend, out), masked_by_hand(wide(backend, large), [1, 5, 0]))


WORDS = Vocabulary([b"", b"a", b"b", b"ab", *[b"c" * n for n in range(1, 61)]], eos=[0])


def run(chain: Any, pool: LogitsPool | None, donate: bool = True) -> list[list[float]]:
    logits = np.linspace(0, 1, WORDS.size, dtype=np.float32)[None]
    context = Context.start(logits, donate=donate, pool=pool)
    state = chain.init_state(context)
    tokens, seen = None, []
    for _ in range(4):
        step = context if tokens is None else context.accept([[tokens]])
        out, state = chain.process(logits.copy(), state, step)
        tokens = int(np.argmax(out))
        seen.append(out[0].tolist())
    return seen


def overwrite(logits: np.ndarray) -> np.ndarray:
    if logits.flags.writeable:
        logits[:] = 0.5  # allowed where logits are donated
    return np.full_like(logits, 0.5)


def test_a_chain_gives_the_same_with_a_pool() -> None:
    regex = ("regex", {"pattern": "(ab)+c{5}"})
    for others in ([], ["temperature"], [overwrite], ["regex"]):
        options = [(name, {"pattern": "[abc]+"}) if name == "regex" else name for name in others]
        chain = processors.load(regex, *options, tokenizer=WORDS)
        assert run(chain, LogitsPool()) == run(chain, None)
        assert run(chain, LogitsPool(), donate=False) == run(chain, None)


def test_only_the_last_processor_gets_the_pool() -> None:
    regex = ("regex", {"pattern": "(ab)+c{5}"})
    last, first = LogitsPool(), LogitsPool()
    run(processors.load("temperature", regex, tokenizer=WORDS), last)
    run(processors.load(regex, "temperature", tokenizer=WORDS), first)
    assert last.nbytes > 0
    assert first.nbytes == 0


def test_the_last_processor_of_a_chain_in_a_chain_gets_the_pool_if_it_is_the_last_of_all() -> None:
    inner = processors.load(("regex", {"pattern": "(ab)+c{5}"}), tokenizer=WORDS)
    last, first = LogitsPool(), LogitsPool()
    run(processors.load("temperature", inner, tokenizer=WORDS), last)
    run(processors.load(inner, "temperature", tokenizer=WORDS), first)
    assert last.nbytes > 0
    assert first.nbytes == 0
