"""``logitloom doctor --server URL``: whether a running server runs the chains that requests ask for.

A server that does not know chains mostly ignores the field and answers freely. So the chain of the
request allows only a random text: a server that answers with this text has run the chain.
"""

from __future__ import annotations

import json
import os
import secrets
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from typing import Any, Final

from logitloom.errors import LogitloomError
from logitloom.host import registry

__all__ = ["KEY_VARIABLE", "ServerCheckFailed", "check_server"]

#: The time for one request.
_SECONDS: Final = 120.0
#: Where servers look for a chain: vLLM's place, and the place of logitloom's own servers.
_PLACES: Final = ("vllm_xargs.logitloom", "logitloom")
#: Fields that may hold the text of an answer; a reasoning parser may take the whole answer for reasoning.
_TEXTS: Final = ("content", "reasoning", "reasoning_content")
#: The environment variable that holds the key of a server that demands one.
KEY_VARIABLE: Final = "LOGITLOOM_SERVER_KEY"


class ServerCheckFailed(LogitloomError):
    """A server could not be asked."""


class _ServerRefused(Exception):
    """The server answered with an error."""


def check_server(url: str, *, model: str | None = None) -> dict[str, Any]:
    """Ask a server with OpenAI's interface for a constrained answer, in each place where a chain may stand.

    Args:
        url: of the server, with or without ``/v1``.
        model: default: the first model that the server names.

    Returns:
        ``url``, ``model``, ``runs_chains``, ``place`` (where the chain has to stand, or None), and ``answers``: per
        place the text, or what the server said against it.

    Raises:
        ServerCheckFailed: it does not answer, demands another key, or names no model.
    """
    base = url.rstrip("/").removesuffix("/v1") + "/v1"
    if model is None:
        try:
            named = _sent(f"{base}/models", None)["data"]
            model = str(named[0]["id"])
        except (_ServerRefused, LookupError, TypeError) as error:
            if str(error).startswith(("HTTP 401", "HTTP 403")):
                raise ServerCheckFailed(f"{base}/models demands a key. Give it in {KEY_VARIABLE}.") from error
            raise ServerCheckFailed(
                f"{base}/models names no model. Name one that the server serves with --model."
            ) from error
    nonce = "".join(secrets.choice("bdfghjkmnpqrstvwz23456789") for _ in range(12))
    one_of = registry.role("texts")
    chain = json.dumps([{"use": one_of.processor, "options": {one_of.option: [nonce]}}])
    answers: dict[str, str] = {}
    for place in _PLACES:
        field = {"vllm_xargs": {"logitloom": chain}} if place.startswith("vllm") else {"logitloom": chain}
        answers[place] = _answer(base, model, field)
        if answers[place] == nonce:
            break
    found = next((place for place, answer in answers.items() if answer == nonce), None)
    return {"url": base, "model": model, "runs_chains": found is not None, "place": found, "answers": answers}


def _answer(base: str, model: str, field: dict[str, Any]) -> str:
    """The text of an answer, or the server's refusal."""
    asked = {"model": model, "max_tokens": 32, "temperature": 0.0, **field}
    messages = [{"role": "user", "content": "Say one word."}]
    try:
        answer = _sent(f"{base}/chat/completions", asked | {"messages": messages})
        message = {**answer["choices"][0]["message"]}
        return next((str(message[name]) for name in _TEXTS if message.get(name)), "")
    except (_ServerRefused, LookupError, TypeError) as refused:
        first = str(refused)
    try:  # models without a chat template
        answer = _sent(f"{base}/completions", asked | {"prompt": "One word: "})
        return str(answer["choices"][0]["text"])
    except (_ServerRefused, LookupError, TypeError):
        return first


def _sent(url: str, body: dict[str, Any] | None) -> Any:
    try:
        known = urllib.parse.urlsplit(url).scheme in ("http", "https")
    except ValueError:  # such as "http://[::1"
        known = False
    if not known:
        raise ServerCheckFailed(f"{url!r:.200} is no address of a server. Give http://HOST:PORT.")
    data = None if body is None else json.dumps(body).encode()
    try:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(url, data, headers)
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        told = error.read(2000).decode(errors="replace")
        raise _ServerRefused(f"HTTP {error.code}: {told}") from error
    except (OSError, ValueError, HTTPException) as error:  # ValueError: the address is none
        raise ServerCheckFailed(f"{url:.200} does not answer: {error!s:.200}. Is the server running?") from error
