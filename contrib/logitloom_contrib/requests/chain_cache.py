"""Chains compiled once and shared by all requests that ask for the same one."""

from __future__ import annotations

import re
import time
import warnings
from collections import OrderedDict
from collections.abc import Collection
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from logitloom import Chain, Context, Vocabulary
from logitloom.automata import at_most, compiled_in
from logitloom.document import from_document
from logitloom.engines import bind
from logitloom.errors import BudgetExceeded, ChainDocumentError, GenerationError, LogitloomError
from logitloom.host.loading import loading
from logitloom.host.registry import load_plugin
from logitloom.process_memory import ProcessLock, forgotten_after
from logitloom.processors import load
from logitloom_contrib.requests.permissions import SAFE, Permissions
from logitloom_contrib.requests.request_document import LIMITED, RequestDocument, RequestGuard, read

__all__ = ["ChainCache", "CompiledChain", "prepare"]

#: The values that the engine gives, except the vocabulary.
_GIVES: Final = frozenset({"prompt", "length", "history"})
#: Constraints whose first use computes the values that all later constraints of their kind share.
_FIRST_USED: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("regex", {"pattern": r"\w+ \bx"}),
    ("json", {"schema": {"properties": {"a": {"pattern": "a", "format": "date"}, "b": {"type": "number"}}}}),
    ("json", {"schema": {"const": 1}, "engine": "llguidance"}),
)
_PREPARED: Final[WeakSet[Vocabulary]] = WeakSet()
#: Steps of a text that are tried before a request is admitted.
_STEPS: Final = 4
#: For how long it is remembered that a chain cannot be had, since finding out may take seconds.
_REFUSED_SECONDS: Final = 60.0


class CompiledChain(NamedTuple):
    """A chain that requests share.

    Attributes:
        key: the canonical text of the requests that share the chain.
        chain: the processors.
        first: a bit per token: the tokens that the chain's constraints allow at the beginning of a text; ``None`` if
            the chain was not tried.
    """

    key: str
    chain: Chain
    first: bytes | None = None


class _RefusedChain(NamedTuple):
    message: str
    until: float


class ChainCache:
    """A bounded store of compiled chains, and of refusals.

    Args:
        permissions: the limits of requests.
        vocabulary: of the served model, if the engine has a tokenizer.
        vocab_size: width of the logits.
        shared: a folder in which the processes of a server keep compiled results: the engine's process does not repeat
            a compilation of the API server's process.
        engine: the name of the engine, for messages.

    Example:
        >>> words = Vocabulary([b"", b"a"], eos=[0])
        >>> store = ChainCache(Permissions(), words, 2, engine="a server")
        >>> same = [{"use": "regex", "options": {"pattern": "a+"}}]
        >>> store.get(same).chain is store.get(same).chain
        True
    """

    def __init__(
        self,
        permissions: Permissions,
        vocabulary: Vocabulary | None,
        vocab_size: int,
        shared: Path | None = None,
        *,
        engine: str,
    ) -> None:
        self.permissions, self.vocabulary, self.vocab_size = permissions, vocabulary, vocab_size
        self.shared, self.engine = shared, engine
        self._entries: OrderedDict[str, CompiledChain | _RefusedChain] = OrderedDict()
        self._lock = ProcessLock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, given: Any, admitting: bool = False, tried: bool = False) -> CompiledChain:
        """The chain that a request asks for, compiled, bound to the engine, and tried on one row.

        Args:
            given: ``extra_args["logitloom"]``.
            admitting: whether another process will make the chain, too. The permitted seconds then cover both
                processes: compilations stored in the shared folder count once, and all other work, reading included,
                twice.
            tried: whether another process has tried the chain, so that this process need not.

        Raises:
            ChainDocumentError: in one sentence, whatever the reason is.
        """
        if self.vocabulary is not None:
            prepare(self.vocabulary, self.permissions.allow)
        with at_most(self.permissions.seconds):
            known = self._found(given, admitting, tried)
        if isinstance(known, _RefusedChain):
            raise ChainDocumentError(known.message)
        return known

    def _found(self, given: Any, admitting: bool, tried: bool) -> CompiledChain | _RefusedChain:
        """The stored result for a request; computed and stored if there is none.

        Raises:
            ChainDocumentError: the request is no chain document.
        """
        begin = time.thread_time()
        try:
            request = read(given, self.permissions)
        except ChainDocumentError:
            raise
        except Exception as error:  # a plug-in may raise anything, and the engine must not fall over it
            raise ChainDocumentError(_sentence(error)) from error
        reading = time.thread_time() - begin
        with self._lock:
            known = self._entries.get(request.key)
            outdated = isinstance(known, _RefusedChain) and known.until < time.monotonic()
            if outdated or (isinstance(known, CompiledChain) and known.first is None and not tried):
                known = None
            elif known is not None:
                self._entries.move_to_end(request.key)
        if known is None:
            known = self._keep(request.key, self._compiled(request, admitting, tried, reading))
        return known

    def _keep(self, key: str, made: CompiledChain | _RefusedChain) -> CompiledChain | _RefusedChain:
        with self._lock:
            known = self._entries.get(key)
            if not isinstance(known, CompiledChain) or known.first is None:
                # Another thread may have been faster: requests should share one chain.
                known = self._entries[key] = made
            self._entries.move_to_end(key)
            while len(self._entries) > self.permissions.chains:
                self._entries.popitem(last=False)
        return known

    def _compiled(
        self, request: RequestDocument, admitting: bool, tried: bool, reading: float
    ) -> CompiledChain | _RefusedChain:
        try:
            guard = RequestGuard(self.permissions)
            begin = time.thread_time()
            # Otherwise a reworded copy of a request that was refused for its time would use the remembered results of
            # the first attempt, and be admitted.
            memory = forgotten_after() if admitting else nullcontext()
            with compiled_in(self.shared) as stored, loading(guard=guard), memory:
                chain = from_document(request.document, tokenizer=self.vocabulary)
                if chain.missing:
                    chain.require(_GIVES, engine=self.engine, setting=_as_entry)
                chain = bind(chain, self.engine, _GIVES)
                compiling = time.thread_time() - begin
                stored_seconds = stored.seconds
                if admitting:
                    self._run(chain)
                stepping = time.thread_time() - begin - compiling
                first = None if tried else self._try(chain)
            taken = time.thread_time() - begin
            if admitting:
                # The other process reads the document too, does not compile what was stored, and decodes.
                again = reading + max(compiling - stored_seconds, 0.0) + stepping
                self._require_time(chain, reading + taken, again)
        except Exception as error:  # as above
            message = _with_settings(_sentence(error), request.key, self.permissions)
            return _RefusedChain(message, time.monotonic() + _REFUSED_SECONDS)
        return CompiledChain(request.key, chain, first)

    def _require_time(self, chain: Chain, taken: float, again: float) -> None:
        """Check the time of a chain: all seconds so far, and the seconds that the engine's process will take again.

        Raises:
            BudgetExceeded: it is longer than permitted.
        """
        seconds, engine_seconds = self.permissions.seconds, self.permissions.engine_seconds
        if taken + again > seconds:
            limit, name = f"the {seconds:.3g} seconds that requests to this server may take", "SECONDS"
        elif again > engine_seconds:
            limit = f"the {engine_seconds:.3g} seconds for which a request may keep all others waiting"
            name = "ENGINE_SECONDS"
        else:
            return
        lists = [link.processor.tools for link in chain.links if hasattr(link.processor, "tools")]
        tools = sum(len(tools) for tools in lists if isinstance(tools, (list, tuple)))
        fewer = f", give fewer than its {tools} tools" if tools > 1 else ""
        raise BudgetExceeded(
            f"Reading and compiling the request's chain ({', '.join(chain.labels)}) takes longer than {limit}, "
            f"with what the engine's process does again and the first steps. Simplify its patterns or schemas{fewer}, "
            f"or raise the operator's setting LOGITLOOM_SERVER_{name}."
        )

    def _try(self, chain: Chain) -> bytes:
        """Run one row on the host, so that a chain that cannot start is refused before the request is admitted."""
        if not self._allowed(chain).any():
            raise ChainDocumentError(
                f"The request's chain ({', '.join(chain.labels)}) allows no token at all to begin with. Loosen one of "
                f"its constraints."
            )
        constraints = [link for link in chain.links if link.declared("stage") == "constraint"]
        return np.packbits(self._allowed(Chain(constraints, vocabulary=chain.vocabulary))).tobytes()

    def _run(self, chain: Chain) -> None:
        """Do the work of the first steps of a text, with the distances to the end that a token limit needs."""
        with warnings.catch_warnings(), suppress(GenerationError):  # the limit is too small for any text
            warnings.simplefilter("ignore")
            self.require_room(chain, 1)
        logits = np.zeros((1, self.vocab_size), dtype=np.float32)
        context = Context.start(logits, prompt=[[0]], max_length=8)
        ends = () if self.vocabulary is None else self.vocabulary.eos
        state = chain.init_state(context)
        for _ in range(_STEPS):
            processed, state = chain.process(logits, state, context)
            allowed = np.isfinite(processed)[0]
            allowed[[token for token in ends if token < len(allowed)]] = False
            tokens = np.flatnonzero(allowed)
            if not len(tokens):
                return
            context = context.accept([[int(tokens[len(tokens) // 2])]])

    def require_room(self, chain: Chain, most: int) -> None:
        """Check that a chain allows a text of at most ``most`` tokens.

        Raises:
            GenerationError: saying how many tokens the chain needs.
        """
        logits = np.zeros((1, self.vocab_size), dtype=np.float32)
        chain.init_state(Context.start(logits, prompt=[[0]], max_length=8, max_new_tokens=most))

    def _allowed(self, chain: Chain) -> NDArray[np.bool_]:
        logits = np.zeros((1, self.vocab_size), dtype=np.float32)
        context = Context.start(logits, prompt=[[0]], max_length=8)
        processed, _ = chain.process(logits, chain.init_state(context), context)
        found: NDArray[np.bool_] = np.isfinite(processed)[0]
        return found


def prepare(vocabulary: Vocabulary, allowed: Collection[str] = SAFE) -> None:
    """Make the objects that this process needs once (modules), or once per vocabulary (trie, compiled loops, the
    tokenizer of a grammar engine); no request pays for them.

    Args:
        vocabulary: of the served model.
        allowed: the processors that requests may name; no other is imported.
    """
    if vocabulary in _PREPARED:
        return
    _PREPARED.add(vocabulary)
    logits = np.zeros((1, vocabulary.size), dtype=np.float32)
    for name in sorted(allowed):
        with suppress(LogitloomError):  # a request that names it hears why
            load_plugin("processors", name)
    for name, options in _FIRST_USED:
        if name not in allowed:
            continue
        with suppress(LogitloomError):  # not installed, or the vocabulary lacks its characters
            chain = load(name, options={name: options}, tokenizer=vocabulary)
            context = Context.start(logits, prompt=[[0]], max_length=8)
            chain.process(logits, chain.init_state(context), context)


def _as_entry(name: str, option: str) -> str:
    """An option of a processor, as requests give it."""
    return f"{{'use': {name!r}, 'options': {{{option!r}: ...}}}}"


def _sentence(error: Exception) -> str:
    if isinstance(error, LogitloomError):
        return str(error)
    return f"The request's chain could not be made: {type(error).__name__}: {error}."[:500]


def _with_settings(message: str, key: str, permissions: Permissions) -> str:
    """The message with the operator's setting in place of an option that it says to raise and the request may not.

    Args:
        message: of an error.
        key: the canonical text of the request.
        permissions: the limits of requests.
    """
    for option, name in LIMITED.items():
        given = map(float, re.findall(rf'"{option}":([0-9.e+-]+)', key))
        if all(value >= getattr(permissions, name) for value in given):
            setting = f"the operator's setting LOGITLOOM_SERVER_{name.upper()}"
            message = re.sub(rf"(\braise [^.]*?)\b{option}\b", rf"\1{setting}", message)
    return message
