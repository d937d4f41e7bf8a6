"""State files: whatever is damaged or forged in them is told in a sentence, and nothing damaged is used."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import load_backend
from logitloom.errors import GenerationError, ModelError, WriteError
from logitloom.generation import Generator, Multinomial, SequenceState, continuous, state_file
from logitloom.testing import ToyModel
from tests.core.generation.words import generator, tiny_model

safetensors = pytest.importorskip("safetensors.numpy", reason="state files need the package safetensors")

pytestmark = pytest.mark.extras


@pytest.fixture(scope="module")
def made() -> Any:
    return generator(tiny_model(), eos=())


@pytest.fixture(scope="module")
def state(made: Any) -> SequenceState:
    return continuous(made)(["the cat ", "the"], max_tokens=3)


@pytest.fixture
def path(tmp_path: Path, state: SequenceState) -> Path:
    state.save(tmp_path / "state")
    return tmp_path / "state"


def cache_bytes(state: SequenceState) -> dict[str, bytes]:
    assert state.kv_cache is not None
    return {name: np.ascontiguousarray(array).tobytes() for name, array in state.kv_cache.to_host().items()}


def the_same(read: SequenceState, state: SequenceState) -> bool:
    return (
        read.rows == state.rows
        and np.array_equal(read.weights, state.weights)
        and np.array_equal(read.scored, state.scored)
        and cache_bytes(read) == cache_bytes(state)
    )


def test_a_flipped_bit_anywhere_is_found_or_changes_nothing(path: Path, state: SequenceState, made: Any) -> None:
    good = path.read_bytes()
    refused = 0
    draw = np.random.default_rng(22)
    header = 8 + struct.unpack("<Q", good[:8])[0]
    places = {*range(0, header, 3), *draw.integers(header, len(good), 400).tolist()}
    for place in places:
        bit = 1 << int(draw.integers(8))
        path.write_bytes(good[:place] + bytes([good[place] ^ bit]) + good[place + 1 :])
        try:
            read = SequenceState.load(path, made)
        except GenerationError:
            refused += 1
        else:
            assert the_same(read, state), place
    assert refused > 0.9 * len(places)


def test_a_flipped_bit_in_the_cache_is_called_damage(path: Path, made: Any) -> None:
    good = path.read_bytes()
    path.write_bytes(good[:-40] + bytes([good[-40] ^ 1]) + good[-39:])
    with pytest.raises(GenerationError, match="is damaged: its content does not have the checksum"):
        SequenceState.load(path, made)


def test_a_file_that_was_cut_is_refused(path: Path, made: Any) -> None:
    good = path.read_bytes()
    for end in range(0, len(good), max(len(good) // 97, 1)):
        path.write_bytes(good[:end])
        with pytest.raises(GenerationError, match="state' "):
            SequenceState.load(path, made)


def forge(path: Path, header: Any = None, **changes: Any) -> None:
    """The file with other content and the checksum that belongs to it."""
    import safetensors as library

    with library.safe_open(str(path), framework="numpy") as file:
        told = json.loads(file.metadata()["logitloom"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    for name, change in changes.items():
        key = name.replace("__", ".")
        if change is None:
            del tensors[key]
        else:
            tensors[key] = np.ascontiguousarray(change(tensors[key]))
    told = {k: v for k, v in told.items() if k != "checksum"} | (header or {})
    told["checksum"] = state_file._checksum(told, tensors)
    safetensors.save_file(tensors, str(path), metadata={"logitloom": json.dumps(told)})


@pytest.mark.parametrize(
    "changes",
    [
        {"header": {"batch": 3}}, {"header": {"batch": -1, "samples": -2}}, {"header": {"batch": "2"}},
        {"header": {"samples": None}}, {"header": {"batch": 0}}, {"header": {"batch": 1e9}},
        {"tokens": lambda a: a[:-1]}, {"tokens": lambda a: a.astype(np.float32)}, {"tokens": lambda a: a * 0 - 1},
        {"tokens": lambda a: a + 10_000}, {"tokens": None}, {"lengths": lambda a: -a}, {"lengths": None},
        {"lengths": lambda a: a[:, None]}, {"weights": lambda a: a[:, :0]},
        {"weights": None}, {"scored": None}, {"scored": lambda a: a.astype(np.float64)},
        {"weights": lambda a: a.astype(np.int32)}, {"cache_lengths": lambda a: a + 100},
        {"cache_lengths": lambda a: a[:1]}, {"cache_lengths": lambda a: -a}, {"cache__keys.0": lambda a: a[:1]},
        {"cache__keys.0": None}, {"cache__keys.0": lambda a: a * np.nan}, {"cache__keys.0": lambda a: a[..., :1]},
    ],
)  # fmt: skip
def test_forged_content_is_refused_with_a_sentence(path: Path, made: Any, changes: dict[str, Any]) -> None:
    forge(path, **changes)
    with pytest.raises((GenerationError, ModelError), match=r"[a-z] .*\.$"):
        SequenceState.load(path, made)


HEADERS = [
    "", "null", "[]", "7", '"text"', "{", "{}", "[" * 100_000, '{"kind": "logitloom sequence state"}',
    '{"kind": ["logitloom sequence state"], "version": 2}', '{"kind": "logitloom sequence state", "version": 2}',
    '{"kind": "logitloom sequence state", "version": "2"}', '{"kind": "logitloom sequence state", "version": 2.5}',
    '{"kind": "logitloom sequence state", "version": 2, "checksum": null}', "NaN", "\ud800", "1e999", "9" * 5000,
    '{"kind": "logitloom sequence state", "version": 2, "checksum": 5, "batch": []}', "\x00",
]  # fmt: skip


@pytest.mark.parametrize("text", HEADERS)
def test_damaged_headers_are_told_in_a_sentence(path: Path, made: Any, text: str) -> None:
    raw = json.dumps({"__metadata__": {"logitloom": text}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})
    data = raw.encode("utf-8", "replace")
    path.write_bytes(struct.pack("<Q", len(data)) + data + bytes(4))
    with pytest.raises(GenerationError, match=r"state' (is|cannot|contradicts) .*\.$"):
        SequenceState.load(path, made)


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F8_E5M2", "C64", "F4", "Q9"])
def test_types_that_numpy_lacks_are_told(path: Path, made: Any, dtype: str) -> None:
    told = json.dumps({"kind": state_file.KIND, "version": state_file.VERSION})
    raw = json.dumps(
        {"__metadata__": {"logitloom": told}, "tokens": {"dtype": dtype, "shape": [8], "data_offsets": [0, 8]}}
    ).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(8))
    with pytest.raises(GenerationError, match=r"state' (is|cannot) "):
        SequenceState.load(path, made)


def test_a_file_that_is_not_there_or_a_folder_is_told(tmp_path: Path, made: Any) -> None:
    for place in (tmp_path / "nothing", tmp_path):
        with pytest.raises(GenerationError, match="cannot be read"):
            SequenceState.load(place, made)


def test_saving_that_fails_leaves_the_file_as_it_was(
    path: Path, state: SequenceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = path.read_bytes()

    def full(tensors: Any, filename: str, metadata: Any = None) -> None:
        Path(filename).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors, "save_file", full)
    with pytest.raises(WriteError, match="No space left"):
        state.save(path)
    assert path.read_bytes() == good
    assert [entry.name for entry in path.parent.iterdir()] == ["state"]


def toy(seed: int) -> Generator:
    """A generator with a model whose cache has arrays of two dimensions."""
    return Generator(ToyModel(load_backend("numpy"), seed=seed), strategy=Multinomial(2), max_tokens=5)


def test_caches_of_any_shape_are_saved_and_compared(tmp_path: Path) -> None:
    state = continuous(toy(0))([[1, 2], [3]], seed=1)
    state.save(tmp_path / "state")
    again = SequenceState.load(tmp_path / "state", toy(0))
    assert again.rows == state.rows
    assert again.held_cache is not None
    assert again.held_cache.rows == state.held_cache.rows
    with pytest.raises(GenerationError, match="made by another model"):
        SequenceState.load(tmp_path / "state", Generator(Marked(load_backend("numpy"))))


class Marked(ToyModel):
    """Its cache holds other numbers than that of the toy model."""

    def cache_from_host(self, arrays: Any, lengths: Any) -> Any:
        return super().cache_from_host({"tokens": arrays["tokens"] + 1}, lengths)
