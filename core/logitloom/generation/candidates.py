"""The protocol of candidate generators, which draft tokens that the target model then verifies in one pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple, Protocol

import numpy as np

from logitloom.arrays.backend import NEG_INF, Array, Backend, backend_of
from logitloom.chain import Chain, ChainState
from logitloom.chain.links import Link
from logitloom.context import Context
from logitloom.errors import InvalidSignature
from logitloom.host import options as opts
from logitloom.host import registry
from logitloom.host.entry_points import PluginName
from logitloom.host.loading import loading
from logitloom.rows import tree as row_state

__all__ = [
    "CandidateGenerator",
    "ChainPart",
    "Configured",
    "DraftRequest",
    "Drafts",
    "carry",
    "legal_prefix",
    "load",
    "require_methods",
    "until_end",
]


class ChainPart:
    """A subset of the processors of a chain, which runs on states of the whole chain.

    Args:
        chain: the whole chain.
        keep: selects the processors of the subset.
    """

    def __init__(self, chain: Chain, keep: Callable[[Link], bool]) -> None:
        # What records the chain records no drafts.
        chain = chain.unrecorded
        self._indices = [i for i, link in enumerate(chain.links) if keep(link)]
        self._chain = chain.part([chain.links[i] for i in self._indices])

    def __len__(self) -> int:
        return len(self._indices)

    def state_of(self, state: ChainState) -> ChainState:
        """The states of the subset's processors in a state of the whole chain."""
        return ChainState(state.position, tuple(state.processors[i] for i in self._indices))

    def process(self, logits: Array, state: ChainState, context: Context) -> tuple[Array, ChainState]:
        """As :meth:`logitloom.chain.Chain.process`, for the subset alone."""
        return self._chain.process(logits, state, context)


@dataclass(frozen=True, slots=True, eq=False)
class DraftRequest:
    """The request for drafts: the unfinished rows, with their sequences and states.

    Rows that have ended are removed, so the rows are the rows of the generator's current state, not of the start.

    Attributes:
        context: the context of the next step; ``context.tokens`` holds each row's ``pending`` tokens.
        chain: the target's processors.
        chain_state: the state of the chain before the pending tokens; never modified, because processing makes new
            states.
        constraints: the constraints of the chain; may be empty.
        unguided: the chain without guidance, which would need the logits of several prompts, and without processors
            that must see every step of the target or its probabilities; may be empty.
        sequences: per row, the prompt and all accepted tokens, pending ones included. Read only.
        pending: per row, the accepted tokens that the chain's state has not seen.
        limits: per row, the largest useful number of drafted tokens.
        sampling: whether tokens are drawn from the processed distribution (otherwise drafts are compared with the
            sampler's choice).
        seeds: ``[rows] int32``: the seeds of the rows' random draws.
        eos: ids that end a row.
    """

    context: Context
    chain: Chain
    chain_state: ChainState
    constraints: ChainPart
    unguided: ChainPart
    sequences: Sequence[Sequence[int]]
    pending: Sequence[Sequence[int]]
    limits: Sequence[int]
    sampling: bool
    seeds: Array
    eos: frozenset[int]


class Drafts(NamedTuple):
    """Drafted tokens.

    Attributes:
        tokens: per row the drafted tokens, at most its limit; may be empty.
        probs: per position of the longest draft the probabilities from which the tokens there were drawn,
            ``[rows, vocab]`` floating on the target's backend (undefined in rows without a token there). With them,
            sampling accepts a token with the probability ``min(1, p / q)``; they must be those of the draw, or texts
            do not follow the model's distribution. None: a token is accepted if the sampler chooses it, which is exact
            for any drafts.
    """

    tokens: list[list[int]]
    probs: Sequence[Array] | None = None


class CandidateGenerator(Protocol):
    """Drafts tokens. A generator is immutable; its state is a row tree, as for processors."""

    def init_state(self, context: Context) -> Any:
        """The state of a new generation, with ``context.batch`` rows.

        Raises:
            LogitloomError: if the generator cannot draft for this model or chain; the message has the reason.
        """
        ...

    def propose(self, state: Any, request: DraftRequest) -> tuple[Drafts, Any]:
        """Draft tokens for each row.

        Args:
            state: the state of the unfinished rows, from :meth:`init_state` or :meth:`update`.
            request: the rows.

        Returns:
            The drafts, and a state for :meth:`update`.
        """
        ...

    def update(self, state: Any, accepted: Sequence[int]) -> Any:
        """The state after the target has verified the drafts.

        Args:
            state: the state that :meth:`propose` returned.
            accepted: per row, the number of accepted drafted tokens.
        """
        ...


class Configured:
    """Base class of candidate generators that are frozen dataclasses of options; checks them on construction.

    Deriving from it is optional.
    """

    def __post_init__(self) -> None:
        opts.settle(self, PluginName(type(self), "logitloom.candidates"))


def load(name: str, options: Mapping[str, Any] | None = None, *, block: Iterable[str] = ()) -> CandidateGenerator:
    """A candidate generator by name.

    Args:
        name: the name of the plug-in (``name`` or ``name@distribution``).
        options: its options.
        block: names that must not be loaded.

    Raises:
        UnknownPlugin, PluginBlocked, DuplicatePlugin, PluginImportError: the name cannot be loaded.
        MissingOption, UnknownOption, OptionTypeError, OptionError: an option is missing or wrong.
        InvalidSignature: the plug-in has not the methods of a :class:`CandidateGenerator`.

    Example:
        >>> load("prompt_lookup", {"max_ngram": 3}).max_ngram
        3
    """
    with loading(block=block):
        factory = registry.load_plugin("candidates", name)
        checked = opts.check(factory, options or {}, name)
        opts.require(factory, checked, name)
        made: CandidateGenerator = factory(**checked)
        require_methods(made, name)
    return made


def require_methods(plugin: Any, name: str) -> None:
    """Raise unless a candidate generator, or its class, has the methods of :class:`CandidateGenerator`.

    Raises:
        InvalidSignature: naming the method that is missing, or that cannot be called as the loops call it.
    """
    for method in ("init_state", "propose", "update"):
        arguments = tuple(inspect.signature(getattr(CandidateGenerator, method)).parameters)[1:]
        wanted = f"def {method}(self, {', '.join(arguments)})"
        found = getattr(plugin, method, None)
        if not callable(found):
            raise InvalidSignature(f"The candidate generator {name!r} has no method {method!r}. Add: {wanted}.")
        unbound = isinstance(plugin, type) and isinstance(inspect.getattr_static(plugin, method), FunctionType)
        try:
            inspect.signature(found).bind(*("self",) * unbound, *arguments)
        except TypeError as error:
            raise InvalidSignature(
                f"The candidate generator {name!r} has a method {method!r} that cannot be called with "
                f"({', '.join(arguments)}): {error}. Write {wanted}."
            ) from None


def carry(array: Array, backend: Backend) -> Array:
    """The array on a backend: itself if it is there, else a copy by way of host memory (half types become float32)."""
    source = backend_of(array)
    return array if source is backend else backend.asarray(source.to_numpy(array))


def until_end(tokens: Sequence[int], eos: frozenset[int]) -> list[int]:
    """The tokens up to and including the first end-of-sequence token.

    >>> until_end([4, 0, 5], frozenset({0}))
    [4, 0]
    """
    end = next((n + 1 for n, token in enumerate(tokens) if token in eos), len(tokens))
    return list(tokens[:end])


def legal_prefix(request: DraftRequest, row: int, tokens: Sequence[int]) -> list[int]:
    """The longest prefix of ``tokens`` that the chain's constraints allow in a row.

    The check is cheap compared with a forward pass of the model, because constraints need no logits.
    """
    if not len(request.constraints):
        return list(tokens)
    backend = request.context.backend
    state = row_state.take(request.constraints.state_of(request.chain_state), [row])
    new = list(request.pending[row])
    for n, token in enumerate(tokens):
        context = request.context.with_fields(batch=1, donate=True, donate_state=False, tokens=None)
        blank = backend.asarray(np.zeros((1, context.vocab_size), dtype=np.float32))
        logits, state = request.constraints.process(blank, state, context.accept([new]) if new else context)
        if not float(logits[0, token]) > NEG_INF:
            return list(tokens[:n])
        new = [token]
    return list(tokens)
