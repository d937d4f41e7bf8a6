"""``prefix_allowed_tokens``: what the function names, for the row it was asked about, as transformers has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Backend, Context, Vocabulary, load_backend, processors
from logitloom.errors import OptionError, OptionTypeError
from logitloom.rows.tree import take

WIDTH = 12


def some(row: int, ids: np.ndarray) -> list[int]:
    """Ids that depend on the row, on the number of ids and on each of them."""
    first = (5 * row + 3 * len(ids) + int(sum((place + 1) * int(token) for place, token in enumerate(ids)))) % WIDTH
    return [first, (first + 4) % WIDTH, (first + 5) % WIDTH]


def run(backend: Backend, options: dict[str, Any], prompt: list[list[int]], taken: list[list[int]]) -> list[np.ndarray]:
    """The logits of each step, after no tokens, one, two and so on."""
    chain = processors.load(("prefix_allowed_tokens", options))
    given = np.random.default_rng(1).normal(size=(len(prompt), WIDTH)).astype(np.float32)
    context = Context.start(backend.asarray(given), prompt=prompt, max_length=16)
    out, state = chain.process(backend.asarray(given), chain.init_state(context), context)
    results = [backend.to_numpy(out)]
    for tokens in taken:
        out, state = chain.process(backend.asarray(given), state, context.accept([[token] for token in tokens]))
        results.append(backend.to_numpy(out))
    return results


@pytest.mark.extras
@pytest.mark.parametrize("beams", [1, 2])
def test_it_agrees_with_transformers(backend: Backend, beams: int) -> None:
    torch = pytest.importorskip("torch", reason="the peer is transformers, which needs torch")
    peers = pytest.importorskip("transformers.generation.logits_process", reason="the peer is transformers")
    theirs = peers.PrefixConstrainedLogitsProcessor(lambda row, ids: some(row, ids.numpy()), beams)
    given = np.random.default_rng(1).normal(size=(4, WIDTH)).astype(np.float32)
    prompt, taken = [[1, 2], [3, 4], [5, 5], [0, 9]], [[3, 1, 2, 2], [7, 8, 0, 1]]
    ids = [list(row) for row in prompt]
    for step, ours in enumerate(run(backend, {"function": some, "beams": beams}, prompt, taken)):
        if step:
            ids = [[*row, token] for row, token in zip(ids, taken[step - 1], strict=True)]
        np.testing.assert_array_equal(ours, theirs(torch.tensor(ids), torch.tensor(given)).numpy())


def test_prompts_of_several_lengths_are_given_without_fill(backend: Backend) -> None:
    asked = []

    def remember(row: int, ids: np.ndarray) -> list[int]:
        asked.append((row, ids.tolist()))
        return [0]

    run(backend, {"function": remember}, [[1], [2, 3, 4]], [[5, 6]])
    assert asked == [(0, [1]), (1, [2, 3, 4]), (0, [1, 5]), (1, [2, 3, 4, 6])]


class OnADevice:
    """An array as a device has it: NumPy cannot read it, nor its elements."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __iter__(self) -> Any:
        return map(OneOnADevice, self.ids)

    def tolist(self) -> list[int]:
        return self.ids


class OneOnADevice:
    """An element of such an array."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def item(self) -> int:
        return self.token


def test_the_ids_may_be_an_array_on_a_device(backend: Backend) -> None:
    prompt, taken = [[1, 2], [3, 4]], [[3, 1]]
    expected = run(backend, {"function": some}, prompt, taken)
    ways: list[Any] = [lambda ids: backend.asarray(np.array(ids)), OnADevice, lambda ids: [*OnADevice(ids)], tuple, set]
    for way in ways:
        found = run(backend, {"function": lambda row, ids, way=way: way(some(row, ids))}, prompt, taken)
        for ours, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, wanted)


def test_copies_of_a_row_keep_its_number() -> None:
    backend, asked = load_backend("numpy"), []

    def remember(row: int, ids: np.ndarray) -> list[int]:
        asked.append((row, ids.tolist()))
        return [0]

    chain = processors.load(("prefix_allowed_tokens", {"function": remember}))
    logits = np.zeros((2, WIDTH), dtype=np.float32)
    context = Context.start(logits, prompt=[[1], [2]], max_length=8)
    state = take(chain.process(logits, chain.init_state(context), context)[1], [1, 1])
    asked.clear()
    chain.process(backend.asarray(logits), state, context.accept([[3], [4]]))
    assert asked == [(1, [2, 3]), (1, [2, 4])]


def test_the_function_cannot_change_the_history() -> None:
    def spoil(row: int, ids: np.ndarray) -> list[int]:
        ids[:] = 0
        return [row]

    first, second = run(load_backend("numpy"), {"function": spoil}, [[1]], [[2]])
    np.testing.assert_array_equal(first, second)


def test_rows_that_have_ended_are_not_asked_about() -> None:
    words = Vocabulary([b"", b"a", b"b"], eos=[0])
    chain = processors.load(("prefix_allowed_tokens", {"function": lambda row, ids: [1]}), tokenizer=words)
    logits = np.zeros((2, 3), dtype=np.float32)
    context = Context.start(logits, prompt=[[0], [0]], max_length=8, vocabulary=words)
    state = chain.process(logits, chain.init_state(context), context)[1]
    out, _ = chain.process(logits, state, context.accept([[0], [2]]))
    assert np.isfinite(out).tolist() == [[True, True, True], [False, True, False]]


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        ([], OptionError, r"allows no id for row 0 after the ids \[1, 2\]. Return end-of-sequence"),
        ([3, WIDTH], OptionError, "names the id 12 for row 0; ids of these logits are 0 to 11"),
        ([-1], OptionError, "names the id -1 for row 0"),
        (None, OptionTypeError, "must return a list of ids, but for row 0 after 2 ids it returned None"),
        ([0.5], OptionTypeError, r"must return a list of ids, .* it returned \[0.5\]"),
        ([True], OptionTypeError, r"must return a list of ids, .* it returned \[True\]"),
        ([[1], [2, 3]], OptionTypeError, r"must return a list of ids, .* it returned \[\[1\], \[2, 3\]\]"),
    ],
    ids=["none", "too large", "negative", "nothing", "no integer", "a truth value", "lists"],
)
def test_what_is_no_list_of_ids_is_an_error(returned: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(load_backend("numpy"), {"function": lambda row, ids: returned}, [[1, 2]], [])


def test_an_exception_of_the_function_is_told_with_the_row_and_its_ids() -> None:
    with pytest.raises(OptionError, match=r"raised KeyError \(2\) for row 0 after the ids \[1, 2\]") as raised:
        run(load_backend("numpy"), {"function": lambda row, ids: {1: [3]}[int(ids[-1])]}, [[1, 2]], [])
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_document_cannot_give_a_function() -> None:
    with pytest.raises(OptionTypeError, match=r"Option 'function' of 'prefix_allowed_tokens' must be .*Callable"):
        processors.load(("prefix_allowed_tokens", {"function": "os.getcwd"}))
