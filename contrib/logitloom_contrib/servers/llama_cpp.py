"""llama-cpp-python's own HTTP server with chains by name.

    python -m logitloom_contrib.servers.llama_cpp --model FILE.gguf [options of llama_cpp.server]

The server ignores fields of a request that it does not know, and its requests name no logits processors. Here its
application is called through :class:`Chains`, which reads the field ``logitloom`` of a request, checks it, and
hands the chain on; the model that the library's handler gets for such a request runs it. Everything else is the
library's.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import llama_cpp
from llama_cpp.server import app as server

from logitloom import Chain, read_vocabulary
from logitloom.errors import LogitloomError, NeedsNotMet
from logitloom_contrib.engines.llama_cpp import LlamaCppProcessor, to_llama_cpp
from logitloom_contrib.requests.chain_cache import ChainCache
from logitloom_contrib.requests.permissions import Permissions
from logitloom_contrib.requests.request_key import require_right_key

__all__ = ["ChainedLlama", "Chains", "create_app", "install", "main"]

#: What the request that is being served asks for.
_CHAIN: Final[contextvars.ContextVar[Chain | None]] = contextvars.ContextVar("logitloom_chain", default=None)
#: The routes that generate text.
_ROUTES: Final = ("/completions",)
#: Fields with which the library constrains a text itself.
_OWN: Final = ("grammar", "response_format")


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
        permissions = dataclasses.replace(permissions, allow=permissions.allow | {"structural_tag"})
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
            chain = self._asked(data)
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

    def _asked(self, data: bytes) -> Chain | None:
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            return None  # told of by the library
        if not isinstance(body, Mapping):
            return None
        extra = body.get("vllm_xargs")
        require_right_key([*body, *(extra if isinstance(extra, Mapping) else ())])
        asked = body.get("logitloom") or (extra.get("logitloom") if isinstance(extra, Mapping) else None)
        if asked is None:
            return None
        form = body.get("response_format")
        plain = form is None or (isinstance(form, Mapping) and form.get("type", "text") == "text")
        for name in _OWN:
            if body.get(name) is not None and not (name == "response_format" and plain):
                raise NeedsNotMet(
                    f"The request asks for a constraint in 'logitloom' and in {name!r}. llama.cpp aborts where the two "
                    f"have no token in common: put the constraint into the chain ('json', 'grammar')."
                )
        if len(self._models) > 1 and body.get("model") in self._models[1:]:
            raise NeedsNotMet(f"Chains run with the model {self._models[0]!r} alone, not with {body['model']!r:.100}.")
        return self._chains.get(asked).chain


class ChainedLlama:
    """A ``Llama`` whose completions run a chain; everything else is the ``Llama``'s own.

    Args:
        llama: the model.
        processor: the chain for it.
    """

    def __init__(self, llama: Any, processor: LlamaCppProcessor) -> None:
        self._llama, self._processor = llama, processor

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
    """``llama_cpp.server.app.create_app`` with chains."""
    install()
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
