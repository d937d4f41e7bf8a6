"""mlx-lm's own HTTP server with chains: by name, from ``response_format``, and from ``tools``.

    python -m logitloom_contrib.servers.mlx_lm --model FOLDER [options of mlx_lm.server]

The server takes no logits processors from requests. Here its handler reads the chain from the body before it admits the
request, and the function that makes the processors of a request adds the chain. So requests with different chains run
in one batch. Everything else is the library's.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import mlx.core as mx
from huggingface_hub.errors import CacheNotFound
from mlx_lm import server

from logitloom import Array, Chain, read_vocabulary
from logitloom.engines import stop_strings
from logitloom.errors import LogitloomError, NeedsNotMet
from logitloom.masks.kernels import load_kernels
from logitloom.trace import RecordedChain
from logitloom_contrib.engines.mlx_lm import MlxProcessor, to_mlx_lm
from logitloom_contrib.requests.chain_cache import ChainCache
from logitloom_contrib.requests.permissions import Permissions
from logitloom_contrib.requests.request_record import RECORD_KEY, admitted_record, write_record
from logitloom_contrib.servers.request_body import asked_chain
from logitloom_contrib.servers.tool_calls import CallsInText, numbered

__all__ = ["ChainHandler", "install", "main", "run"]

LOG: Final = logging.getLogger("logitloom.mlx_lm")
#: The logarithm of the probability that a forbidden token is said to have.
_LEAST_LOGPROB: Final = -9999.0
#: Fields whose type the library does not check before it begins to answer -> the type, and its name in messages.
_KINDS: Final[dict[str, tuple[type, str]]] = {
    "messages": (list, "a list of at least one message"),
    "draft_model": (str, "a text"),
    "stream_options": (dict, "a table"),
    "chat_template_kwargs": (dict, "a table"),
}
#: What stands between the headers and the body of an answer.
_BEFORE_BODY: Final = b"\r\n\r\n"
#: Seconds for which a request waits for the model to be loaded.
_PATIENCE: Final = 600


class ChainHandler(server.APIHandler):  # type: ignore[misc]
    """The library's handler, which also reads the chain of a request. An error of the chain is answered with 400."""

    wfile: Any
    stream_options: Any

    def __init__(self, response_generator: Any, *args: Any, **more: Any) -> None:
        self.chain: Chain | None = None
        #: The error that has ended the text of the request, if one has.
        self.errors: list[Exception] = []
        self.record: str | None = None
        self._calls: CallsInText | None = None
        super().__init__(_Carrier(response_generator, self), *args, **more)

    def validate_model_parameters(self) -> None:
        """Check the request, its chain included.

        Raises:
            ValueError: in a sentence.
        """
        _require_servable(self.body)
        if isinstance(self.stream_options, dict):
            self.stream_options = {"include_usage": False, **self.stream_options}
        super().validate_model_parameters()
        self.chain = self.record = self._calls = None
        self.errors = []
        try:
            own = self._own_model()
            if self.path.endswith("/v1/completions"):
                _require_prompt(self.body.get("prompt", "none"), own.tokenizer)
            provider = self.response_generator.model_provider
            is_own = self.requested_model in self.own_names()
            if is_own:
                _require_tokens(self.logit_bias or (), own.width)
            template = getattr(own.tokenizer, "chat_template", None)
            asked = asked_chain(
                self.body,
                chat_template=template if isinstance(template, str) else None,
                permissions=_permissions(),
            )
            extra = {**(self.body.get("vllm_xargs") or {}), **self.body}
            if asked is None:
                if extra.get(RECORD_KEY) is not None:
                    raise NeedsNotMet(f"The request has {RECORD_KEY!r} and no chain: records are written by chains.")
                return
            if not is_own or provider.is_distributed:
                raise NeedsNotMet("Chains run with the model that the server was started with, on one machine.")
            chains = _chains_for(own)
            self.record = admitted_record(extra, chains.permissions.record)
            chain = chains.get(asked).chain
            chains.require_room(chain, self.max_tokens)
            self.chain = chain if self.record is None else RecordedChain(chain)
            if not getattr(own.tokenizer, "has_tool_calling", False):
                self._calls = CallsInText.of(chain)  # the library has no parser for this model
        except LogitloomError as error:
            raise ValueError(str(error)) from error
        # The server cuts texts before its stop strings, as a chain's texts are.
        stop = self.body.get("stop") or []
        self.body["stop"] = [*([stop] if isinstance(stop, str) else stop), *stop_strings(self.chain)]

    def own_names(self) -> tuple[str, ...]:
        """The names of the model that the server was started with; the last one is that of the list of models."""
        model = self.response_generator.model_provider.cli_args.model
        if model is None:
            return ()
        return "default_model", model, str(Path(model).resolve()) if Path(model).exists() else model

    def handle_models_request(self) -> None:
        """The library's list of models, with the server's own model first: clients ask the first one."""
        file, self.wfile = self.wfile, BytesIO()
        try:
            super().handle_models_request()
            listed = json.loads(self.wfile.getvalue().partition(_BEFORE_BODY)[2])
        except CacheNotFound:  # nothing was ever downloaded
            listed = {"object": "list", "data": []}
        finally:
            head, self.wfile = self.wfile.getvalue().partition(_BEFORE_BODY)[0], file
        own = [{"id": name, "object": "model", "created": self.created} for name in self.own_names()[-1:]]
        listed["data"] = [*own, *(each for each in listed["data"] if each["id"] not in self.own_names())]
        self.wfile.write(head + _BEFORE_BODY + json.dumps(listed).encode())

    def _set_completion_headers(self, status_code: int = 200) -> None:
        super()._set_completion_headers(status_code)
        if status_code >= 400:
            self.wfile = _ErrorBody(self.wfile)

    def completion_usage_response(self, *counts: Any) -> Any:
        """The library's last piece of a stream, marked as a piece: clients ignore pieces marked as whole answers."""
        return super().completion_usage_response(*counts) | {"object": self.object_type}

    def generate_response(self, text: str, finish_reason: Any, *given: Any, **more: Any) -> Any:
        """An answer of the library, or a piece of one; tool calls are read from the text if the library reads none.

        The reason of the end is ``error`` if an error of the chain has ended the text, which may then be cut.
        """
        if finish_reason is not None and self.errors:
            finish_reason = "error"
        # JSON has no infinity, and the protocol writes this number for tokens that do not occur.
        more["top_tokens"] = [
            tuple({**each, "logprob": max(each["logprob"], _LEAST_LOGPROB)} for each in place)
            for place in more.get("top_tokens") or ()
        ]
        if self._calls is None or not self.object_type.startswith("chat.completion"):
            return super().generate_response(text, finish_reason, *given, **more)
        text = self._calls.add(text)
        if finish_reason is not None:
            last = self._calls.end()
            text += last.content
            if last.calls:
                more["tool_calls"] = numbered(last.calls) if self.stream else last.calls
                finish_reason = "tool_calls" if finish_reason == "stop" else finish_reason
        return super().generate_response(text, finish_reason, *given, **more)

    def recorded(self, prompt: list[int], responses: Iterator[Any]) -> Iterator[Any]:
        """The responses, and after the last one the record of their tokens is written."""
        tokens = []
        try:
            for response in responses:
                tokens.append(int(response.token))
                yield response
        finally:
            if tokens and self.record is not None and isinstance(self.chain, RecordedChain):
                folder = Permissions.read(os.environ, None).record
                try:
                    write_record(folder, self.record, self.chain.sampled(tokens, prompt=prompt))
                except (OSError, LogitloomError) as error:
                    LOG.error("logitloom could not write the record %r: %s", self.record, error)

    def _own_model(self) -> _OwnModel:
        """The parts that chains need of the model that the server was started with; waits until the library has loaded
        it.
        """
        provider, until = self.response_generator.model_provider, time.monotonic() + _PATIENCE
        if provider.cli_args.model is None:
            return _OwnModel(None, None)
        while (own := _OWN.get(provider)) is None and time.monotonic() < until:
            if not self.response_generator.generation_available():
                break
            time.sleep(0.05)
        if own is None:
            raise NeedsNotMet("The server has no model yet. See whether its --model exists, or ask again.")
        return own


class _OwnModel(NamedTuple):
    """What chains need of the model that a server was started with.

    The library lets go of a model when a request names another one, and may then have none.

    Attributes:
        tokenizer: None if the server was started without a model.
        width: of the logits; None if the model does not say it.
    """

    tokenizer: Any
    width: int | None


#: Provider of models -> the model that its server was started with, once this model has been loaded.
_OWN: Final[WeakKeyDictionary[Any, _OwnModel]] = WeakKeyDictionary()


class _ErrorBody:
    """The file of an error response; it writes the error in the form that clients of the protocol read.

    The library writes ``{"error": "..."}``, of which the client ``openai`` shows the status alone.
    """

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> Any:
        if data.startswith(b'{"error"'):
            told = {"message": json.loads(data)["error"], "type": "invalid_request_error", "param": None, "code": None}
            data = json.dumps({"error": told}).encode()
        return self._file.write(data)


class _Carrier:
    """The library's generator, with the request's chain added to the arguments of the request."""

    def __init__(self, generator: Any, handler: ChainHandler) -> None:
        self._generator, self._handler = generator, handler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    def generate(self, request: Any, arguments: Any, *args: Any, **more: Any) -> Any:
        if arguments.model.model in self._handler.own_names()[-1:]:
            arguments.model.model = "default_model"  # not to be loaded again
        arguments.logits.chain, arguments.logits.errors = self._handler.chain, self._handler.errors
        context, responses = self._generator.generate(request, arguments, *args, **more)
        return context, responses if self._handler.record is None else self._handler.recorded(context.prompt, responses)


class _Contained:
    """A chain whose errors end its own text: an exception here would end the server's thread, with all requests.

    Args:
        processor: the chain.
        errors: a list, to which the error that ends the text is appended.
    """

    def __init__(self, processor: MlxProcessor, errors: list[Exception]) -> None:
        self._processor, self._errors = processor, errors
        vocabulary = processor.chain.vocabulary
        self._eos = list(vocabulary.eos) if vocabulary is not None else []

    def __call__(self, tokens: Array, logits: Array) -> Array:
        if not self._errors:
            try:
                return self._processor(tokens, logits)
            except Exception as error:  # whatever a plug-in raises concerns this request alone
                self._errors.append(error)
                LOG.error("logitloom ends a request after %d tokens: %s: %s", tokens.size, type(error).__name__, error)
        ended = mx.full(logits.shape, -mx.inf, dtype=logits.dtype)
        ended[:, mx.array(self._eos)] = 0
        return ended


def _require_servable(body: dict[str, Any]) -> None:
    """Refuse what would end the library's thread, which serves all requests, or would leave a request unanswered.

    Raises:
        ValueError: naming the field.
    """
    for name, (kind, told) in _KINDS.items():
        value = body.get(name)
        if value is not None and not (isinstance(value, kind) and (value or name != "messages")):
            raise ValueError(f"{name!r} of a request is {value!r:.100}. Give {told}.")
    numbers: dict[str, Any] = {name: value for name, value in body.items() if isinstance(value, (int, float))}
    bias = body.get("logit_bias")
    for token, value in bias.items() if isinstance(bias, dict) else ():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"'logit_bias' of a request is {value!r:.60} for the token {token!r:.60}. Give a number.")
        numbers[f"logit_bias/{token:.60}"] = value
    for name, value in numbers.items():
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{name!r} of a request is {value!r:.60}. Give a finite number of at most 64 bits.")
    if numbers.get("seed", 0) < 0:
        raise ValueError(f"'seed' of a request is {body['seed']!r}. Give a whole number that is not negative.")
    if isinstance(body.get("top_logprobs"), bool):
        raise ValueError(f"'top_logprobs' of a request is {body['top_logprobs']!r}. Give a whole number.")
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(each, str) for each in stop):
        raise ValueError(f"'stop' of a request is a text or a list of texts, but is {stop!r:.100}.")
    if any("\ud800" <= letter <= "\udfff" for each in stop for letter in each):
        raise ValueError("'stop' of a request holds half a surrogate pair, which is no character. Leave it out.")


def _require_prompt(prompt: Any, tokenizer: Any) -> None:
    """Refuse prompts at which the library's thread ends: several, and one of no tokens.

    Raises:
        ValueError: in a sentence.
    """
    if not isinstance(prompt, str):
        raise ValueError(f"'prompt' of a request is a text, but is {prompt!r:.100}. Send one text per request.")
    if not prompt and (tokenizer is None or not tokenizer.encode(prompt)):
        raise ValueError("'prompt' of a request is empty, and the model's tokenizer puts no token before it. Give one.")


def _require_tokens(tokens: Iterable[int], width: int | None) -> None:
    """Refuse ids that the model does not have: the library would write beside its logits.

    Raises:
        ValueError: if there is such an id; the message names it.
    """
    wrong = next((token for token in tokens if not 0 <= token < (2**31 if width is None else width)), None)
    if wrong is not None:
        raise ValueError(
            f"'logit_bias' of a request has the token {wrong}, but the model has {width} tokens. Give ids of its own "
            f"tokenizer."
        )


def _permissions() -> Permissions:
    """What requests may ask for; ``response_format`` and ``tools`` stand for two processors more."""
    permissions = Permissions.read(os.environ, None)
    return dataclasses.replace(permissions, allow=permissions.allow | {"structural_tag", "tool_call"})


@functools.lru_cache(maxsize=4)
def _chains_for(own: _OwnModel) -> ChainCache:
    vocabulary = read_vocabulary(own.tokenizer)
    return ChainCache(_permissions(), vocabulary, max(own.width or 0, vocabulary.size), engine="mlx-lm's server")


def _remember_own(provider: Any) -> None:
    """Let a provider say what its own model was when the model is first loaded."""
    original: Callable[[], None] = provider.load_default

    def load_default() -> None:
        original()
        if provider.tokenizer is not None:
            width = getattr(getattr(provider.model, "args", None), "vocab_size", None)
            _OWN[provider] = _OwnModel(provider.tokenizer, width)

    provider.load_default = load_default


def install() -> None:
    """Let the server's processors of a request include its chain; more than once does nothing more."""
    original: Callable[[Any], Any] = server._make_logits_processors
    if hasattr(original, "adds_chains"):
        return

    @functools.wraps(original)
    def made(arguments: Any) -> Any:
        found, chain = original(arguments) or [], getattr(arguments.logits, "chain", None)
        if chain is None:
            return found
        return [*found, _Contained(to_mlx_lm(chain, max_new_tokens=arguments.max_tokens), arguments.logits.errors)]

    made.adds_chains = True  # type: ignore[attr-defined]
    server._make_logits_processors = made


def run(host: str, port: int, model_provider: Any, **more: Any) -> None:
    """``mlx_lm.server.run`` with chains. Compiled kernels are loaded before the first request."""
    install()
    _remember_own(model_provider)
    load_kernels()
    cache = server.LRUPromptCache(model_provider.cli_args.prompt_cache_size)
    generator = server.ResponseGenerator(model_provider, cache)
    if mx.distributed.init().rank() == 0:
        server._run_http_server(host, port, generator, handler_class=ChainHandler, **more)
    else:
        generator.join()


def main() -> None:
    """``mlx_lm.server`` with chains, and with its own options."""
    server.run = run
    server.main()


if __name__ == "__main__":
    main()
