"""``logitloom detect`` reads text or ids, and says what it finds."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from logitloom import processors
from logitloom.cli.main import main
from tests.plugins.processors.test_watermarks import VOCAB, written

KEY = {"key": 77}


@pytest.fixture
def ids(tmp_path: Path) -> str:
    text = written(processors.load(("watermark_greenlist", KEY)), 60)
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(text))
    return str(path)


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    code = main(["detect", *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_mark_is_found_with_its_key_and_not_with_another(capsys: Any, ids: str) -> None:
    size = ("--vocab-size", str(VOCAB))
    code, out, _ = run(capsys, "watermark_greenlist", "--ids", ids, *size, "--set", "key=77", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["marked"] is True
    assert told["p_value"] < 1e-4
    assert told["tokens"] == 60
    code, out, _ = run(capsys, "watermark_greenlist", "--ids", ids, *size, "--set", "key=78")
    assert code == 1
    assert "no" in out.split("marked")[1]


@pytest.mark.extras
def test_a_text_is_read_with_its_tokenizer(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="texts are read with tokenizers")
    letters = {chr(97 + i): i for i in range(26)} | {"?": 26}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr("sys.stdin", io.StringIO("badcab"))
    code, out, err = run(
        capsys, "watermark_gumbel", "--tokenizer", str(tmp_path), "--set", "key=3", "--set", "width=1", "--json"
    )
    assert (code, err) in ((0, ""), (1, ""))
    wanted = processors.load(("watermark_gumbel", {"key": 3, "width": 1}))["watermark_gumbel"]
    found = wanted.detect([1, 0, 3, 2, 0, 1])
    assert json.loads(out)["p_value"] == found.p_value


def test_errors_say_what_is_missing(capsys: Any, ids: str, tmp_path: Path) -> None:
    told = run(capsys, "top_k", "--ids", ids, "--set", "k=3")[2]
    assert "Processor 'top_k' leaves no mark that could be detected: it has no method 'detect'." in told
    told = run(capsys, "watermark_greenlist", "--ids", ids)[2]
    assert "Lists of green tokens depend on the number of logits: give --vocab-size or --tokenizer." in told
    told = run(capsys, "watermark_greenlist", "--vocab-size", "60")[2]
    assert "A text needs the tokenizer that wrote it: give --tokenizer, or --ids with token ids." in told
    (tmp_path / "bad.json").write_text('["a"]')
    told = run(capsys, "watermark_greenlist", "--ids", str(tmp_path / "bad.json"))[2]
    assert "must hold a JSON list of token ids, such as [1, 2]." in told
    told = run(capsys, "watermark_greenlist", "--ids", str(tmp_path / "none.json"))[2]
    assert "none.json cannot be read: No such file or directory." in told
