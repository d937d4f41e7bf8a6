"""``logitloom doctor --server``: against servers that run chains, ignore them and refuse them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from logitloom.cli.doctor import examine
from logitloom.cli.main import main


@contextmanager
def serving(
    place: str | None,
    *,
    refuses: bool = False,
    models: Any = ("tiny",),
    chat: bool = True,
    told: str = "content",
    key: str | None = None,
) -> Iterator[str]:
    """A server that runs ``choice`` where ``place`` says, and ignores or refuses a chain elsewhere."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def answer(self, code: int, body: Any) -> None:
            if key is not None and self.headers["Authorization"] != f"Bearer {key}":
                code, body = 401, {"error": "Unauthorized"}
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.answer(200, {"data": [{"id": name} for name in models]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not chat and "messages" in asked:
                return self.answer(404, {"error": "no such path"})
            found = {"vllm_xargs": asked.get("vllm_xargs", {}).get("logitloom"), "top": asked.get("logitloom")}
            text = "Hello."
            if place is not None and found[place]:
                text = json.loads(found[place])[0]["options"]["choices"][0]
            elif refuses:
                return self.answer(400, {"error": "unknown field"})
            self.answer(200, {"choices": [{"message": {"content": None, told: text}, "text": text}]})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize(("place", "told"), [("vllm_xargs", "vllm_xargs.logitloom"), ("top", "logitloom")])
def test_a_server_that_runs_chains_is_told_with_the_place(
    capsys: pytest.CaptureFixture[str], place: str, told: str, chat: bool
) -> None:
    with serving(place, chat=chat) as url:
        assert main(["doctor", "--server", url + "/v1/"]) == 0
    out = capsys.readouterr().out
    assert f"/v1 (tiny) runs chains. Requests bring them as {told}." in out


@pytest.mark.parametrize("told", ["reasoning", "reasoning_content"])
def test_an_answer_that_a_parser_took_for_reasoning_is_heard(capsys: pytest.CaptureFixture[str], told: str) -> None:
    with serving("vllm_xargs", told=told) as url:
        assert main(["doctor", "--server", url]) == 0
    assert "runs chains" in capsys.readouterr().out


@pytest.mark.parametrize(("refuses", "shown"), [(False, "gave: Hello."), (True, "gave: HTTP 400: ")])
def test_a_server_that_ignores_or_refuses_chains_fails_the_check(
    capsys: pytest.CaptureFixture[str], refuses: bool, shown: str
) -> None:
    with serving(None, refuses=refuses) as url:
        assert main(["doctor", "--server", url]) == 1
        out = capsys.readouterr().out
        assert main(["doctor", "--server", url, "--json", "--model", "other"]) == 1
    assert "does not run chains: answers are not constrained" in out
    assert shown in out
    report = json.loads(capsys.readouterr().out)
    assert (report["runs_chains"], report["place"], report["model"]) == (False, None, "other")


def test_a_server_with_a_key_is_asked_with_that_of_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOGITLOOM_SERVER_KEY", raising=False)
    with serving("top", key="secret") as url:
        assert main(["doctor", "--server", url]) != 0
        assert "/v1/models demands a key. Give it in LOGITLOOM_SERVER_KEY." in capsys.readouterr().err
        monkeypatch.setenv("LOGITLOOM_SERVER_KEY", "secret")
        assert main(["doctor", "--server", url]) == 0
    assert "LOGITLOOM_SERVER_KEY" not in examine()["environment"]


def test_what_cannot_be_asked_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(None, models=()) as url:
        assert main(["doctor", "--server", url]) != 0
        assert "names no model. Name one that the server serves with --model." in capsys.readouterr().err
    assert main(["doctor", "--server", url]) != 0
    assert "does not answer" in capsys.readouterr().err
    assert main(["doctor", "--server", "localhost:8000"]) != 0
    assert "is no address of a server. Give http://HOST:PORT." in capsys.readouterr().err
