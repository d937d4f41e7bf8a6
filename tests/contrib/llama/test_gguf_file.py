"""The container: what gguf's own reader finds is found, and damage is named."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from logitloom.errors import ModelError
from logitloom_contrib.llama.gguf_file import GGUFFile


@pytest.mark.extras
@pytest.mark.parametrize("quantisation", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_tensors_are_those_that_ggufs_own_reader_finds(write_model, tiny_tensors, quantisation):
    gguf = pytest.importorskip("gguf")
    path = write_model(tiny_tensors, quantisation=quantisation)
    file = GGUFFile(path)
    reader = gguf.GGUFReader(path)
    assert set(file.tensors) == {tensor.name for tensor in reader.tensors} == set(tiny_tensors)
    for tensor in reader.tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        found = file.tensor(tensor.name)
        assert found.dtype == np.float32
        assert found.shape == tiny_tensors[tensor.name].shape
        np.testing.assert_array_equal(found, expected)


@pytest.mark.extras
def test_pages_that_were_read_do_not_stay_in_memory(write_model, tiny_tensors):
    maps = Path("/proc/self/smaps")
    if not maps.exists():
        pytest.skip("the system does not tell which pages are in memory")
    path = write_model({**tiny_tensors, "token_embd.weight": np.zeros((2048, 512), dtype=np.float32)})
    file = GGUFFile(path)
    assert file.tensor("token_embd.weight").nbytes == 4 << 20
    resident = re.findall(rf"{re.escape(str(path))}$.*?^Rss: *(\d+) kB", maps.read_text(), re.MULTILINE | re.DOTALL)
    assert sum(map(int, resident)) < 1 << 10


@pytest.mark.extras
def test_metadata_is_that_which_ggufs_own_reader_finds(write_model, tiny_tensors):
    gguf = pytest.importorskip("gguf")
    path = write_model(tiny_tensors, notes="größer", numbers=[1, 2, 3], texts=["a", "", "ü"], fraction=0.25)
    reader = gguf.GGUFReader(path)
    expected = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert GGUFFile(path).metadata == expected
    assert expected["llama.texts"] == ["a", "", "ü"]


def test_a_missing_file_is_named(tmp_path):
    path = tmp_path / "none.gguf"
    with pytest.raises(ModelError, match=r"There is no model file '.*none\.gguf'. Give the path of a GGUF file"):
        GGUFFile(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 this is an archive"])
def test_another_file_is_no_gguf_file(tmp_path, content):
    path = tmp_path / "other.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"other\.gguf.* (Give a whole GGUF file|Give the path of one)\.$"):
        GGUFFile(path)


@pytest.mark.extras
def test_an_unknown_version_is_named(tmp_path, write_model, tiny_tensors):
    content = bytearray(write_model(tiny_tensors).read_bytes())
    content[4] = 9
    path = tmp_path / "future.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="version 9 of the GGUF format"):
        GGUFFile(path)


@pytest.mark.extras
def test_a_header_cut_anywhere_is_an_error_that_names_the_file(tmp_path, write_model, tiny_tensors):
    content = write_model(tiny_tensors, texts=["some", "texts"]).read_bytes()
    header = content.index(b"blk.1.ffn_down.weight") if b"blk.1.ffn_down.weight" in content else 1000
    path = tmp_path / "cut.gguf"
    for length in range(5, header, 7):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"cut\.gguf"):
            GGUFFile(path)


@pytest.mark.extras
def test_a_tensor_cut_off_is_named(tmp_path, write_model, tiny_tensors):
    path = tmp_path / "cut.gguf"
    path.write_bytes(write_model(tiny_tensors).read_bytes()[:-64])
    last = list(tiny_tensors)[-1]
    with pytest.raises(ModelError, match=rf"cut\.gguf' ends before its tensor '{last}' does.* Download it again"):
        GGUFFile(path).tensor(last)


@pytest.mark.extras
def test_a_tensor_that_is_not_there_is_named(write_model, tiny_tensors):
    with pytest.raises(ModelError, match=r"has no tensor 'output\.weight'"):
        GGUFFile(write_model(tiny_tensors)).tensor("output.weight")
