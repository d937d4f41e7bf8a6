"""Arrays that are views, of another library, or no plain arrays are taken, or refused with a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from logitloom import Backend, Chain, Context, Vocabulary, backend_of, load_backend, processors
from logitloom.engines import written_text
from logitloom.errors import InvalidContext, LogitloomError, StateMismatch
from logitloom.generation import Generator
from logitloom.testing import ToyModel

WORDS = Vocabulary([b"a", b"b", b"c", b"{", b"}", b"1", b"</s>"], eos=[6])
CHAINS: list[list[Any]] = [
    [("temperature", {"temperature": 0.5})],
    [("regex", {"pattern": "[ab]+"})],
    [("top_k", {"k": 2}), ("regex", {"pattern": "[ab]+"})],
    [("suppress_tokens", {"tokens": [1]})],
    [("logit_bias", {"bias": {1: 2.0}})],
    [("repetition_penalty", {"penalty": 1.5})],
]


def first(chain: Chain, logits: Any, **fields: Any) -> Any:
    rows = logits.shape[0] if len(logits.shape) == 2 else 1
    context = Context.start(logits, prompt=[[0]] * rows, max_length=20).with_fields(**fields)
    return chain.process(logits, chain.init_state(context), context)[0]


def views(library: str) -> list[Any]:
    """Arrays of which several entries are at one place."""
    line = np.arange(9, dtype=np.float32)
    if library == "numpy":
        return [as_strided(line[:7].copy(), (3, 7), (0, 4)), as_strided(line.copy(), (3, 7), (4, 4))]
    torch = pytest.importorskip("torch")
    return [torch.from_numpy(line[:7].copy()).expand(3, -1), torch.from_numpy(line.copy()).as_strided((3, 7), (1, 1))]


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
@pytest.mark.parametrize("specs", CHAINS, ids=lambda specs: "-".join(name for name, _ in specs))
def test_donated_views_whose_entries_share_a_place_are_not_written_to(specs: list[Any], library: str) -> None:
    chain = processors.load(*specs, tokenizer=WORDS, debug=False)
    for view in views(library):
        backend = backend_of(view)
        before = np.array(backend.to_numpy(view))
        expected = first(chain, before.copy())
        assert np.array_equal(backend.to_numpy(first(chain, view, donate=True)), expected)
        assert np.array_equal(backend.to_numpy(view), before)


@pytest.mark.parametrize("specs", [CHAINS[5], [("stop", {"strings": ["ab"]}), *CHAINS[5]]], ids=["array", "later"])
def test_a_state_of_another_library_is_refused(specs: list[Any], backend: Backend) -> None:
    if backend.name == "numpy":
        pytest.skip("the other library is NumPy")
    chain = processors.load(*specs, tokenizer=WORDS)
    pair = [np.zeros((1, 7), np.float32), backend.asarray(np.zeros((1, 7), np.float32))]
    for logits, other in (pair, pair[::-1]):
        state = chain.init_state(Context.start(other, prompt=[[0]]))
        context = Context.start(logits, prompt=[[0]])
        names = [backend_of(array).name for array in (other, logits)]
        with pytest.raises(
            StateMismatch, match="arrays of {}, .* array of {}.*save_state and load_state".format(*names)
        ):
            chain.process(logits, state, context)
        out, _ = chain.process(logits, chain.load_state(chain.save_state(state), context), context)
        assert type(out) is type(logits)


@pytest.mark.torch
@pytest.mark.parametrize("compiled", [False, True])
def test_tokens_of_another_library_are_taken(backend: Backend, compiled: bool) -> None:
    torch = pytest.importorskip("torch")
    logits = backend.asarray(np.zeros((2, 7), np.float32))
    context = Context.start(logits, compiled=compiled)
    chain = processors.load(("frequency_penalty", {"penalty": 1.0}))
    expected, _ = chain.process(logits, chain.init_state(context), context.accept([[1], [2]]))
    for tokens in (torch.tensor([1, 2]), torch.tensor([[1], [2]], dtype=torch.int32)):
        out, _ = chain.process(logits, chain.init_state(context), context.accept(tokens))
        assert np.array_equal(backend.to_numpy(out), backend.to_numpy(expected))


@pytest.mark.jax
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_floating_numbers_of_8_bits_are_refused(dtype: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(InvalidContext, match=f"have the type {dtype}.*16 bits or more"):
        Context.start(jnp.zeros((1, 7), dtype=dtype))


@pytest.mark.jax
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_numpy_arrays_of_a_type_from_elsewhere_are_refused(dtype: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(InvalidContext, match=f"have the type {dtype}.*in a type of numpy itself.*float32"):
        Context.start(np.asarray(jnp.zeros((1, 7), dtype=dtype)))


@pytest.mark.torch
@pytest.mark.parametrize("specs", CHAINS, ids=lambda specs: "-".join(name for name, _ in specs))
def test_logits_of_another_library_on_a_later_step_are_refused(specs: list[Any]) -> None:
    torch = pytest.importorskip("torch")
    chain = processors.load(*specs, tokenizer=WORDS, debug=False)
    pair = [np.zeros((1, 7), dtype=np.float32), torch.zeros(1, 7)]
    for one, other in (pair, pair[::-1]):
        context = Context.start(one, prompt=[[0]], max_length=20)
        _, state = chain.process(one, chain.init_state(context), context)
        with pytest.raises(InvalidContext, match=r"array of \w+, but the generation began with \w+"):
            chain.process(other, state, context.accept([[0]]))


@pytest.mark.torch
@pytest.mark.parametrize("specs", CHAINS, ids=lambda specs: "-".join(name for name, _ in specs))
def test_ids_of_another_library_are_taken(specs: list[Any]) -> None:
    torch = pytest.importorskip("torch")
    chain = processors.load(*specs, tokenizer=WORDS, debug=False)
    for logits, ids in (
        (np.zeros((1, 7), dtype=np.float32), torch.tensor([[0]])),
        (np.zeros((1, 7), dtype=np.float32), [torch.tensor([0])]),
        (np.zeros((1, 7), dtype=np.float32), [np.array([0])]),
        (np.zeros((1, 7), dtype=np.float32), [torch.tensor(0)]),
        (torch.zeros(1, 7), np.array([[0]])),
        (torch.zeros(1, 7), [np.array([0])]),
    ):
        backend = backend_of(logits)
        context = Context.start(logits, prompt=[[0]], max_length=20)
        _, state = chain.process(logits, chain.init_state(context), context)
        found, _ = chain.process(logits, state, context.accept(ids))
        expected, _ = chain.process(logits, state, context.accept([[0]]))
        assert np.array_equal(backend.to_numpy(found), backend.to_numpy(expected))


def test_a_row_that_is_an_array_of_the_id_0_is_not_an_empty_row() -> None:
    context = Context.start(np.zeros((2, 3), dtype=np.float32))
    assert context.accept([np.array([0]), np.array([], dtype=np.int64)]).tokens.tolist() == [[0], [-1]]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("make", "said"),
    [
        ("torch.zeros(1, 7).to_sparse()", "sparse tensor"),
        ("torch.zeros((), dtype=torch.float32)", "have shape"),
        ("np.zeros((1, 7), dtype=np.float32).view(np.matrix)", "a matrix of NumPy"),
        ("np.ma.masked_array(np.zeros((1, 7), dtype=np.float32))", "a MaskedArray of NumPy"),
        ("np.zeros((1, 1), dtype=np.float32)", "is less than the 7 ids"),
    ],
)
def test_other_logits_are_refused_with_a_sentence(make: str, said: str) -> None:
    torch = pytest.importorskip("torch")
    logits = eval(make, {"torch": torch, "np": np})
    chain = processors.load(("json", {"schema": {}}), tokenizer=WORDS, debug=False)
    with pytest.raises(LogitloomError, match=said):
        first(chain, logits)


LIBRARIES = ["numpy", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "mlx", "jax"))]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_text_ends_where_its_tokens_say_whatever_array_holds_them(library: str) -> None:
    """A number of a tensor is equal to no other one as a member of a set, so the end was not seen."""
    backend = load_backend(library)
    texts = [([0, 1, 6, 1], [], ("ab", "eos")), ([0, 1, 2, 1], [2], ("ab", "eos")), ([0, 1, 1], [], ("abb", "length"))]
    for spec in CHAINS[:2]:
        chain = processors.load(*spec, tokenizer=WORDS)
        for tokens, eos, wanted in texts:
            held, ends = backend.asarray(tokens, "int32"), backend.asarray(eos, "int32")
            for given in (tokens, held, list(held)):
                assert written_text(chain, given, eos=ends) == written_text(chain, given, eos=eos) == wanted
    with pytest.raises(InvalidContext, match="'tokens' must be token ids"):
        written_text(chain, backend.asarray([0.5]))


def test_a_text_that_the_chain_would_not_have_ended_was_cut() -> None:
    chain = processors.load(("regex", {"pattern": "ab{2,3}"}), tokenizer=WORDS)
    ends = [written_text(chain, [0, *[1] * n, 6, 6]).finish for n in range(4)]
    assert ends == ["length", "length", "eos", "eos"]


class _Scalar:
    """An element of an array, as MLX before 0.33 has it: it is no index by itself."""

    shape = ()

    def __init__(self, value: int) -> None:
        self._value = value

    def item(self) -> int:
        return self._value


def test_elements_of_arrays_are_ids() -> None:
    chain = processors.load(*CHAINS[0], tokenizer=WORDS)
    assert written_text(chain, [_Scalar(0), 1, _Scalar(6)]) == ("ab", "eos")


@pytest.mark.parametrize("library", LIBRARIES)
def test_one_prompt_may_be_an_array_of_any_library(library: str) -> None:
    backend = load_backend(library)
    generator = Generator(ToyModel(backend), max_tokens=4)
    assert generator(backend.asarray([1, 2, 3], "int32")) == generator([1, 2, 3])
    assert generator(backend.asarray([[1, 2], [3, 4]], "int32")) == generator([[1, 2], [3, 4]])
