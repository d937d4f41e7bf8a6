"""llama-cpp-python's own HTTP server with chains by name.

    python -m logitloom_contrib.servers.llama_cpp --model FILE.gguf [options of llama_cpp.server]

The server ignores fields of a request that it does not know, and its requests name no logits processors. Here
:class:`Chains` wraps the server's application: it reads the chain of a request (``logitloom``, ``response_format``,
``tools``), checks the chain, and passes it on. The library's handler then gets a model that runs the chain, and the
tool calls of the answer are read from its text. An error within a stream is its last event, where the library would end
the stream without a word. Everything else is the library's.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import functools
import hmac
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import llama_cpp
from llama_cpp import llama_chat_format
from llama_cpp.server import app as server
from llama_cpp.server.errors import RouteErrorHandler

from logitloom import Chain, read_vocabulary
from logitloom.errors import LogitloomError, NeedsNotMet
from logitloom.masks.kernels import load_kernels
from logitloom_contrib.engines._llama_cpp_sampling import bias_of
from logitloom_contrib.engines.llama_cpp import MOST_TOKENS, LlamaCppProcessor, to_llama_cpp
from logitloom_contrib.requests.chain_cache import ChainCache
from logitloom_contrib.requests.permissions import Permissions
from logitloom_contrib.requests.request_record import RECORD_KEY
from logitloom_contrib.servers.request_body import asked_chain
from logitloom_contrib.servers.tool_calls import CallsInText, numbered

__all__ = ["ChainedLlama", "Chains", "create_app", "install", "main"]

#: The chain of the request that is being served.
_CHAIN: Final[contextvars.ContextVar[Chain | None]] = contextvars.ContextVar("logitloom_chain", default=None)
#: The beginnings of the chains' errors for which the request is to blame, and which only its first or last token
#: reveals. The library knows errors by their messages.
_WRONG_REQUESTS: Final = re.compile("^Row 0 may generate .* but the shortest text|^No token is legal for the chain")
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
        api_key: the key that requests must have; None if they need none.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], proxy: Any, api_key: str | None = None) -> None:
        self._app, self._models, self._api_key = app, list(proxy), api_key
        llama = proxy(None)
        vocabulary = read_vocabulary(llama.model_path)
        permissions = Permissions.read(os.environ, None)
        permissions = dataclasses.replace(permissions, allow=permissions.allow | {"structural_tag", "tool_call"})
        self._template = (getattr(llama, "metadata", None) or {}).get("tokenizer.chat_template")
        self._own_tools = str(getattr(llama, "chat_format", None)).startswith(_OWN_TOOLS)
        self._ids = int(llama.n_vocab())
        width = max(self._ids, vocabulary.size)
        self._chains = ChainCache(permissions, vocabulary, width, engine="llama-cpp-python's server")

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].endswith(_ROUTES):
            await self._app(scope, receive, send)
            return
        if self._api_key is not None and not _has_key(scope, self._api_key):
            await _refuse(send, "The request has not the API key of this server.", 401)
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
            chain, data = await asyncio.to_thread(self._asked, data, scope["path"])
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
        except ValueError as error:
            raise NeedsNotMet(f"The body of the request is no JSON: {error!s:.100}. Send a JSON object.") from error
        except RecursionError as error:
            raise NeedsNotMet("The body of the request is nested too deeply. Nest less.") from error
        if not isinstance(body, dict):
            raise NeedsNotMet(f"The body of the request is {body!r:.60}. Send a JSON object.")
        _refuse_records(body)
        kept = ("grammar", *(("tools", "tool_choice", "functions") if self._own_tools else ()))
        meant = {name: value for name, value in body.items() if name not in kept}
        asked = asked_chain(meant, chat_template=self._template, permissions=self._chains.permissions)
        if asked is None:
            return None, json.dumps(body).encode() if _mended(body) else data
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
        if body.get("logit_bias_type") != "tokens":
            bias_of(body.get("logit_bias"), self._ids)
        # The library would follow grammars of its own.
        body.pop("response_format", None)
        if meant.get("tools"):
            body["tool_choice"] = "none" if body.get("tool_choice") == "none" else "auto"
        _mended(body)
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
        """The answer of the library's chat handler, with the tool calls that are read from its text."""
        llama, calls = self._llama, CallsInText.of(self._processor.chain)
        assert calls is not None
        form = llama.chat_handler or llama._chat_handlers.get(llama.chat_format)
        answer = (form or llama_chat_format.get_chat_completion_handler(llama.chat_format))(**asked)
        if asked.get("stream"):
            return (_piece_with_calls(piece, calls) for piece in answer)
        return _with_calls(answer, calls)


class _WithSpecialTokens(llama_cpp.Llama):  # type: ignore[misc]  # the library is not typed here
    """A view of a ``Llama`` that shares its attributes and includes special tokens in texts.

    Formats of tool calls begin and end with special tokens.
    """

    def __init__(self, llama: llama_cpp.Llama) -> None:
        self.__dict__ = llama.__dict__

    def detokenize(self, tokens: Any, prev_tokens: Any = None, special: bool = True) -> bytes:
        del special
        return bytes(super().detokenize(tokens, prev_tokens=prev_tokens, special=True))

    def __del__(self) -> None:
        """The model stays open."""


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
    prepare: Callable[..., Any] = server.prepare_request_resources
    publish: Callable[..., Awaitable[None]] = server.get_event_publisher
    if hasattr(prepare, "adds_chains"):
        return

    @functools.wraps(prepare)
    def prepared(*given: Any, **more: Any) -> Any:
        llama, chain = prepare(*given, **more), _CHAIN.get()
        if chain is None:
            return llama
        if CallsInText.of(chain) is not None:
            llama = _WithSpecialTokens(llama)
        return ChainedLlama(llama, to_llama_cpp(chain, llama))

    @functools.wraps(publish)
    async def published(*given: Any, llama_call: Any, **more: Any) -> None:
        await publish(*given, llama_call=functools.partial(_pieces, llama_call), **more)

    prepared.adds_chains = True  # type: ignore[attr-defined]
    server.prepare_request_resources = prepared
    server.get_event_publisher = published
    RouteErrorHandler.pattern_and_formatters[_WRONG_REQUESTS] = lambda body, found: (400, _told(found.string)["error"])


def _pieces(call: Callable[..., Iterator[Any]], llama: Any, **asked: Any) -> Iterator[Any]:
    """The pieces of a stream; an error is the last of them."""
    try:
        yield from call(llama, **asked)
    except Exception as error:
        yield _told(str(error) or type(error).__name__)


def create_app(*given: Any, **more: Any) -> Chains:
    """``llama_cpp.server.app.create_app`` with chains. Compiled kernels are loaded before the first request."""
    install()
    load_kernels()
    app = server.create_app(*given, **more)
    return Chains(app, server._llama_proxy, server._server_settings.api_key)


def _has_key(scope: Any, api_key: str) -> bool:
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    scheme, _, key = given.decode("latin-1").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(key.encode(), api_key.encode())


def _told(message: str) -> dict[str, Any]:
    """An error in the form of OpenAI's protocol."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


def _refuse_records(body: dict[str, Any]) -> None:
    extra = body.get("vllm_xargs")
    if any(fields.get(RECORD_KEY) is not None for fields in (body, extra) if isinstance(fields, dict)):
        raise NeedsNotMet(
            f"The request has {RECORD_KEY!r}, but llama.cpp's server writes no records. Leave it out, or record in "
            f"logitloom's own loop."
        )


def _mended(body: dict[str, Any]) -> bool:
    """Give messages of tool calls without a text an empty text, which the library requires; returns whether there was
    such a message.
    """
    messages = body.get("messages")
    empty = [
        message
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict) and message.get("tool_calls") and message.get("content") is None
    ]
    for message in empty:
        message["content"] = ""
    return bool(empty)


async def _refuse(send: Any, message: str, status: int = 400) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(_told(message)).encode()})


def main() -> None:
    """``llama_cpp.server`` with chains, and with its own options."""
    from llama_cpp.server import __main__ as program

    program.create_app = create_app
    program.main()


if __name__ == "__main__":
    main()
