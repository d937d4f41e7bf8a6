"""llama-cpp-python's own HTTP server with chains by name.

    python -m logitloom_contrib.servers.llama_cpp --model FILE.gguf [options of llama_cpp.server]

The server ignores fields of a request that it does not know, and its requests name no logits processors. Here its
application is called through :class:`Chains`, which reads what a request asks for (``logitloom``, ``response_format``,
``tools``), checks it, and hands the chain on; the model that the library's handler gets for such a request runs it, and
the tool calls of the answer are read from its text. Everything else is the library's.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import llama_cpp
from llama_cpp import llama_chat_format
from llama_cpp.server import app as server

from logitloom import Chain, read_vocabulary
from logitloom.errors import LogitloomError, NeedsNotMet
from logitloom.masks.kernels import load_kernels
from logitloom_contrib.engines.llama_cpp import MOST_TOKENS, LlamaCppProcessor, to_llama_cpp
from logitloom_contrib.requests.chain_cache import ChainCache
from logitloom_contrib.requests.permissions import Permissions
from logitloom_contrib.servers.request_body import asked_chain
from logitloom_contrib.servers.tool_calls import CallsInText, numbered

__all__ = ["ChainedLlama", "Chains", "create_app", "install", "main"]

#: What the request that is being served asks for.
_CHAIN: Final[contextvars.ContextVar[Chain | None]] = contextvars.ContextVar("logitloom_chain", default=None)
#: The routes that generate text.
_ROUTES: Final = ("/completions",)
#: Forms of chats of the library that read and constrain tool calls themselves.
_OWN_TOOLS: Final = ("functionary", "chatml-function-calling")


class Chains:
    """The server's application, with the chains of requests.

    A wrong chain is answered with 400 before the application sees the request, streams included.

    Args:
        app: the library's application.
        proxy: the library's table of models; chains run with the one that the server was started with first.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], proxy: Any) -> None:
        self._app, self._models = app, list(proxy)
        llama = proxy(None)
        vocabulary = read_vocabulary(llama.model_path)
        permissions = Permissions.read(os.environ, None)
        permissions = dataclasses.replace(permissions, allow=permissions.allow | {"structural_tag", "tool_call"})
        self._template = (getattr(llama, "metadata", None) or {}).get("tokenizer.chat_template")
        self._own_tools = str(getattr(llama, "chat_format", None)).startswith(_OWN_TOOLS)
        width = max(llama.n_vocab(), vocabulary.size)
        self._chains = ChainCache(permissions, vocabulary, width, engine="llama-cpp-python's server")

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].endswith(_ROUTES):
            await self._app(scope, receive, send)
            return
        parts: list[bytes] = []
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        data = b"".join(parts)
        try:
            chain, data = self._asked(data, scope["path"])
        except LogitloomError as error:
            await _refuse(send, str(error))
            return
        given = iter([{"type": "http.request", "body": data, "more_body": False}])

        async def again() -> Any:
            found = next(given, None)
            return await receive() if found is None else found

        mark = _CHAIN.set(chain)
        try:
            await self._app(scope, again, send)
        finally:
            _CHAIN.reset(mark)

    def _asked(self, data: bytes, path: str) -> tuple[Chain | None, bytes]:
        """The chain that a body asks for, and the body without what the chain stands for."""
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            return None, data  # told of by the library
        if not isinstance(body, dict):
            return None, data
        meant = {name: value for name, value in body.items() if not (name == "tools" and self._own_tools)}
        asked = asked_chain(meant, chat_template=self._template, permissions=self._chains.permissions)
        if asked is None:
            return None, data
        if body.get("grammar") is not None:
            raise NeedsNotMet(
                "The request asks for a chain and for a constraint in 'grammar'. llama.cpp aborts where the two "
                "have no token in common: put the constraint into the chain ('json', 'grammar')."
            )
        if len(self._models) > 1 and body.get("model") in self._models[1:]:
            raise NeedsNotMet(f"Chains run with the model {self._models[0]!r} alone, not with {body['model']!r:.100}.")
        chain = self._chains.get(asked).chain
        method = "create_chat_completion" if path.endswith("/chat/completions") else "create_completion"
        most = body.get("max_tokens", MOST_TOKENS[method])
        if isinstance(most, int) and most > 0:
            self._chains.require_room(chain, most)
        # The library would follow grammars of its own.
        body.pop("response_format", None)
        if meant.get("tools"):
            body["tool_choice"] = "none" if body.get("tool_choice") == "none" else "auto"
        return chain, json.dumps(body).encode()


class ChainedLlama:
    """A ``Llama`` whose completions run a chain; everything else is the ``Llama``'s own.

    Args:
        llama: the model.
        processor: the chain for it.
    """

    def __init__(self, llama: Any, processor: LlamaCppProcessor) -> None:
        self._llama, self._processor = llama, processor
        if CallsInText.of(processor.chain) is not None:
            self.chat_handler = self._read_calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llama, name)

    def __call__(self, prompt: Any, **options: Any) -> Any:
        """As ``Llama.__call__``."""
        return self.create_completion(prompt, **options)

    def create_completion(self, prompt: Any, **options: Any) -> Any:
        """As ``Llama.create_completion``, which the library's forms of chats call too."""
        return self._processor.complete(prompt, **options)

    def create_chat_completion(self, messages: Any, **options: Any) -> Any:
        """As ``Llama.create_chat_completion``."""
        return llama_cpp.Llama.create_chat_completion(self, messages, **options)

    def _read_calls(self, **asked: Any) -> Any:
        """What the library's form of chats answers, with the tool calls that its text says."""
        llama, calls = self._llama, CallsInText.of(self._processor.chain)
        assert calls is not None
        form = llama.chat_handler or llama._chat_handlers.get(llama.chat_format)
        form = form or llama_chat_format.get_chat_completion_handler(llama.chat_format)
        with _special_tokens_written(llama):
            answer = form(**asked)
            if not asked.get("stream"):
                return _with_calls(answer, calls)
        return self._streamed(answer, calls)

    def _streamed(self, pieces: Iterator[Any], calls: CallsInText) -> Iterator[Any]:
        with _special_tokens_written(self._llama):
            yield from (_piece_with_calls(piece, calls) for piece in pieces)


@contextmanager
def _special_tokens_written(llama: Any) -> Iterator[None]:
    """While it lasts, special tokens are part of the text: formats of tool calls begin and end with them."""
    original = llama.detokenize
    llama.detokenize = functools.partial(original, special=True)
    try:
        yield
    finally:
        del llama.detokenize


def _with_calls(answer: Any, calls: CallsInText) -> Any:
    """A whole answer whose calls stand in ``tool_calls``."""
    [choice] = answer["choices"]
    content = calls.add(choice["message"].get("content") or "")
    last = calls.end()
    choice["message"]["content"] = (content + last.content) or None
    if last.calls:
        choice["message"]["tool_calls"] = last.calls
        choice["finish_reason"] = "tool_calls" if choice["finish_reason"] == "stop" else choice["finish_reason"]
    return answer


def _piece_with_calls(piece: Any, calls: CallsInText) -> Any:
    """A piece of an answer; calls stand in the last one."""
    [choice] = piece["choices"]
    delta = choice["delta"]
    if delta.get("content"):
        delta["content"] = calls.add(delta["content"])
    if choice["finish_reason"] is not None:
        last = calls.end()
        if last.content:
            delta["content"] = (delta.get("content") or "") + last.content
        if last.calls:
            delta["tool_calls"] = numbered(last.calls)
            choice["finish_reason"] = "tool_calls" if choice["finish_reason"] == "stop" else choice["finish_reason"]
    return piece


def install() -> None:
    """Let the library's handlers get a model that runs the chain of the request; more than once does nothing more."""
    original: Callable[..., Any] = server.prepare_request_resources
    if hasattr(original, "adds_chains"):
        return

    @functools.wraps(original)
    def prepared(*given: Any, **more: Any) -> Any:
        llama, chain = original(*given, **more), _CHAIN.get()
        return llama if chain is None else ChainedLlama(llama, to_llama_cpp(chain, llama))

    prepared.adds_chains = True  # type: ignore[attr-defined]
    server.prepare_request_resources = prepared


def create_app(*given: Any, **more: Any) -> Chains:
    """``llama_cpp.server.app.create_app`` with chains. Compiled kernels are loaded before the first request."""
    install()
    load_kernels()
    app = server.create_app(*given, **more)
    return Chains(app, server._llama_proxy)


async def _refuse(send: Any, message: str) -> None:
    body = json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}})
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})


def main() -> None:
    """``llama_cpp.server`` with chains, and with its own options."""
    from llama_cpp.server import __main__ as program

    program.create_app = create_app
    program.main()


if __name__ == "__main__":
    main()
