"""``logitloom detect`` reads text or ids, and says what it finds."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from logitloom import processors
from logitloom.cli.main import main
from tests.core.cli.test_generate import prompts
from tests.plugins.processors.test_watermarks import VOCAB, written

__all__ = ["prompts"]  # a fixture

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


def test_a_text_too_short_to_score_is_not_said_to_bear_no_mark(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "short.json"
    path.write_text("[3]")
    given = ("watermark_greenlist", "--ids", str(path), "--vocab-size", str(VOCAB), "--set", "key=77")
    code, out, _ = run(capsys, *given)
    assert code == 1
    assert "not known" in out.split("marked")[1]
    code, out, _ = run(capsys, *given, "--json")
    told = json.loads(out)
    assert (code, told["scored"], told["marked"]) == (1, 0, None)


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
    told = run(capsys, "top_k", "--ids", ids)[2]  # not: give --set k=VALUE
    assert "Processor 'top_k' leaves no mark that could be detected: it has no method 'detect'." in told
    told = run(capsys, "watermark_gumbel", "--ids", ids)[2]
    assert "The chain misses options (watermark_gumbel: key). Give them: --set key=VALUE." in told
    told = run(capsys, "watermark_greenlist", "--ids", ids, "--vocab-size", "0")[2]
    assert "--vocab-size must be the number of logits, from 1 to 16777216, but is 0." in told
    told = run(capsys, "watermark_greenlist", "--ids", ids, "--tokenizer", str(tmp_path / "none"))[2]
    assert "is no file or folder with a tokenizer that an installed reader knows" in told
    (tmp_path / "bad.json").write_text('["a"]')
    told = run(capsys, "watermark_greenlist", "--ids", str(tmp_path / "bad.json"))[2]
    assert "must hold a JSON list of token ids, such as [1, 2], or what generate --json printed." in told
    told = run(capsys, "watermark_greenlist", "--ids", str(tmp_path / "none.json"))[2]
    assert "none.json cannot be read: No such file or directory. Give a file in UTF-8." in told


def test_a_byte_order_mark_is_no_part_of_a_file(capsys: Any, ids: str) -> None:
    size = ("--vocab-size", str(VOCAB), "--set", "key=77", "--json")
    found = run(capsys, "watermark_greenlist", "--ids", ids, *size)
    path = Path(ids)
    path.write_text(path.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert run(capsys, "watermark_greenlist", "--ids", ids, *size) == found


MARK = (
    "--use",
    "watermark_greenlist",
    "--set",
    "watermark_greenlist.key=77",
    "--set",
    "watermark_greenlist.bias=20.0",
)


@pytest.mark.usefixtures("prompts")
@pytest.mark.parametrize("way", [[], ["--stream"]])
def test_what_generate_printed_is_read_with_the_same_model(capsys: Any, tmp_path: Path, way: list[str]) -> None:
    main(["generate", "ab", "--raw", "--loader", "toy", "--max-tokens", "40", "--sample", "--json", *MARK, *way])
    (tmp_path / "told.json").write_text(capsys.readouterr().out)
    told = str(tmp_path / "told.json")
    options = ["--loader", "toy", "--set", "key=77", "--json"]
    for given in (["--ids", told, *options], [told, *options], [*options, told]):
        code, out, _ = run(capsys, "watermark_greenlist", *given)
        found = json.loads(out)
        assert code == 0
        assert found["tokens"] == 40
        assert found["p_value"] < 1e-4


@pytest.mark.usefixtures("prompts")
def test_a_text_is_encoded_by_the_model_that_wrote_it_and_several_are_told_apart(capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("abcdefgh")
    found = run(capsys, "watermark_greenlist", str(tmp_path / "text"), "--loader", "toy", "--set", "key=77", "--json")
    assert json.loads(found[1])["tokens"] == 8
    main(["generate", "a", "b", "--raw", "--loader", "toy", "--max-tokens", "9", "--json"])
    (tmp_path / "told.json").write_text(capsys.readouterr().out)
    told = str(tmp_path / "told.json")
    found = run(capsys, "watermark_greenlist", told, "--loader", "toy", "--set", "key=77", "--json")
    assert [each["tokens"] for each in json.loads(found[1])] == [9, 9]
