"""``logitloom plugins``: a table or JSON; colours only on terminals."""

from __future__ import annotations

import io
import json
import sys

import pytest

from logitloom import processors
from logitloom.cli.main import main
from logitloom.host import options, registry


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_table_lists_every_processor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "--kind", "processors"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["KIND", "NAME", "DISTRIBUTION", "STATUS"]
    names = [line.split()[1] for line in lines]
    assert {"regex", "choice", "fsm", "stop", "bad_words"} <= set(names)
    assert len({line.index("logitloom") for line in lines if " logitloom " in line}) == 1


def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "--kind", "processors", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert main(["plugins", "--kind", "processors"]) == 0
    assert [r["name"] for r in listed] == [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert all(r["installed"] is True or r["remedy"] for r in listed)


def test_plugins_for_another_interface_are_shown_as_such(installed, capsys: pytest.CaptureFixture[str]) -> None:
    installed("other_interface")
    assert main(["plugins", "--kind", "processors"]) == 0
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    wanted = "needs another version of the plug-in interface: pip install --upgrade logitloom"
    assert lines["from_the_future"].rstrip().endswith(wanted)
    assert lines["from_today"].rstrip().endswith("ready")


def test_one_processor_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "regex"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"regex: {processors.describe('regex').summary}\nstage: constraint\n")
    assert main(["plugins", "regex", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert next(o["name"] for o in described["options"]) == "pattern"
    assert all(o["name"] in text for o in described["options"])


@pytest.mark.parametrize(("given", "kind"), [("early_exit", "candidates"), ("candidates/grammar", "candidates")])
def test_plugins_of_other_kinds_are_described(given: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = given.rpartition("/")[2]
    assert main(["plugins", given]) == 0
    text = capsys.readouterr().out
    plugin = registry.load_plugin(kind, name)
    assert text.splitlines()[0] == f"{name}: {plugin.__doc__.splitlines()[0]}"
    assert main(["plugins", given, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert (described["kind"], described["name"]) == (kind, name)
    assert [option["name"] for option in described["options"]] == [option.name for option in options.declared(plugin)]
    assert all(f"  {option.signature}" in text for option in options.declared(plugin))


def test_a_processor_with_the_name_of_another_plugin_tells_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "grammar"]) == 0
    assert "\nalso: candidates/grammar\n" in capsys.readouterr().out


def test_every_plugin_can_be_described(capsys: pytest.CaptureFixture[str]) -> None:
    for record in registry.available():
        if record.kind in ("processors", "candidates", "tool_formats") and record.installed:
            assert main(["plugins", f"{record.kind}/{record.full_name}"]) == 0
            assert capsys.readouterr().out.startswith(f"{record.full_name}: ")


def test_an_unknown_name_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "regexp"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "regexp" in err


@pytest.mark.parametrize(("variable", "coloured"), [(None, True), ("NO_COLOR", False)])
def test_colours_only_on_a_terminal_that_wants_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str | None, coloured: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["plugins"]) == 0
    assert "\033" not in capsys.readouterr().out
    if variable:
        monkeypatch.setenv(variable, "1")
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["plugins"]) == 0
    assert main(["plugins", "no such name"]) == 1
    assert ("\033[1m" in out.getvalue()) is coloured
    assert ("\033[31m" in err.getvalue()) is coloured


def test_the_version_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith("logitloom ")


def test_an_empty_name_is_no_plug_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", ""]) == 1
    assert "There is no processor ''" in capsys.readouterr().err
