"""Files are written whole or not at all, whatever goes wrong on the way."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Context, Vocabulary, processors
from logitloom.errors import WriteError
from logitloom.rows.atomic_file import replacing, write_whole
from logitloom.trace import TracedChain

WORDS = Vocabulary([b"", b"a", b"b"], eos=[0])


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every write of a file fail after half of it, as on a full disk."""
    real = Path.write_bytes

    def half(self: Path, data: bytes) -> int:
        real(self, bytes(data)[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)


def _fails_in_between(place: Path) -> None:
    with replacing(place) as new:
        new.write_bytes(b"half")
        raise KeyError


def test_what_fails_half_way_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "page"
    write_whole(place, b"before")
    with monkeypatch.context() as patched:
        full_disk(patched)
        with pytest.raises(WriteError, match=r"page' cannot be written: No space left on device\. It is as it was\."):
            write_whole(place, b"after, and longer")
    assert place.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["page"]
    with pytest.raises(KeyError):
        _fails_in_between(place)
    assert place.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["page"]


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    place, link = tmp_path / "page", tmp_path / "link"
    place.write_bytes(b"before")
    place.chmod(0o640)
    link.symlink_to(place)
    write_whole(link, b"after")
    assert link.is_symlink()
    assert place.read_bytes() == b"after"
    assert stat.S_IMODE(place.stat().st_mode) == 0o640


@pytest.mark.parametrize("place", ["nowhere/page", "", "a\0b"])
def test_a_place_that_cannot_be_is_told(tmp_path: Path, place: str) -> None:
    with pytest.raises(WriteError, match="cannot be written"):
        write_whole(f"{tmp_path}/{place}", b"x")


def test_devices_are_written_to_directly() -> None:
    write_whole(os.devnull, b"x")
    assert Path(os.devnull).is_char_device()


def traced() -> Any:
    chain = TracedChain(processors.load(("temperature", {"temperature": 0.5}), tokenizer=WORDS))
    logits = np.zeros((1, 3), dtype=np.float32)
    context = Context.start(logits, vocabulary=WORDS)
    chain.process(logits, chain.init_state(context), context)
    return chain.record


def saving_a_trace(path: Path) -> None:
    traced().save(path)


def saving_a_picture(path: Path) -> None:
    from logitloom.automata import compile_pattern
    from logitloom.cli import drawing

    pytest.importorskip("matplotlib", reason="drawing needs matplotlib")
    drawing._with_matplotlib(compile_pattern("ab"), path, "svg")


@pytest.mark.parametrize("save", [saving_a_trace, pytest.param(saving_a_picture, marks=pytest.mark.extras)])
def test_a_full_disk_leaves_pages_and_pictures_as_they_were(
    save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "page.html"
    place.write_text("before")
    save(place)
    assert place.read_text() != "before"
    place.write_text("before")
    full_disk(monkeypatch)
    with pytest.raises(WriteError, match="No space left"):
        save(place)
    assert place.read_text() == "before"
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_full_disk_leaves_no_half_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from logitloom.cli import new

    real, count = Path.write_text, [0]

    def third_fails(self: Path, *given: Any, **named: Any) -> int:
        count[0] += 1
        if count[0] == 3:
            raise OSError(28, "No space left on device")
        return real(self, *given, **named)

    monkeypatch.setattr(Path, "write_text", third_fails)
    with pytest.raises(WriteError, match=r"No space left on device\. Nothing was made\."):
        new.write("processor", "half_written", tmp_path)
    assert not os.listdir(tmp_path)


def test_no_module_writes_files_in_another_way() -> None:
    """Files are opened for writing in one place, so that the promise holds for all of them."""
    import ast

    root = Path(__file__).parents[3]
    writers = ("write_text", "write_bytes", "tofile", "savefig", "save_file")
    found = []
    for folder in ("core", "plugins", "contrib/logitloom_contrib"):
        for path in (root / folder).rglob("*.py"):
            code = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(code)) if any(name in code for name in writers) else ():
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in writers:
                    found.append((str(path.relative_to(root)), node.func.attr))
    allowed = {
        ("core/logitloom/rows/atomic_file.py", "write_bytes"),
        ("core/logitloom/cli/drawing.py", "savefig"),  # into memory
        ("core/logitloom/cli/new.py", "write_text"),  # into a folder that is moved
        ("core/logitloom/cli/own_environment.py", "write_text"),  # into a temporary folder
        ("core/logitloom/generation/state_file.py", "save_file"),  # inside replacing()
        ("core/logitloom/testing/suites.py", "write_text"),  # into a folder of the test run
        ("plugins/logitloom_plugins/conformance/tokenizers.py", "write_bytes"),  # the same
    }
    assert set(found) == allowed
