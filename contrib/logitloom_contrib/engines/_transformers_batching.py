"""transformers' continuous batching: chains per request, and a word where the library would leave a chain out.

The manager of a continuous batch makes its logits processors from the generation config alone. Processors of its own
class, ``ContinuousBatchingLogitsProcessor``, are shown the requests of each step before the call, so a chain knows
which request each row of logits belongs to. :class:`BatchedChains` is such a processor, and is added to a manager
before the manager starts.
"""

from __future__ import annotations

import copy
import functools
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import torch
from transformers import ContinuousBatchingConfig
from transformers.generation.continuous_batching import continuous_api
from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessor

from logitloom import Chain
from logitloom.document import VERSION, from_document, to_json
from logitloom.engines import bind
from logitloom.errors import ChainDocumentError, NeedsNotMet
from logitloom_contrib.requests.chain_cache import CompiledChain
from logitloom_contrib.requests.chain_rows import ChainRows, force_end
from logitloom_contrib.requests.request import Request

__all__ = ["KEYWORD", "BatchedChains", "batch_with", "bind_batched", "refuse_where_ignored"]

#: The name under which ``add_request`` takes a request's own chain.
KEYWORD: Final = "logitloom"
#: The values that continuous batching gives to processors.
GIVES: Final = frozenset({"prompt", "length", "history"})
ENGINE: Final = "transformers' continuous batching"
#: Number of steps without a request after which the request is taken to be gone.
_GONE_AFTER: Final = 256
_FRAMES: Final = 24


class BatchedChains(ContinuousBatchingLogitsProcessor):  # type: ignore[misc]
    """Runs, for each request of a continuous batch, the request's own chain or the chain that all requests share.

    A request names its chain as ``manager.add_request(ids, logitloom=...)``: a chain, its document, or the document as
    JSON; None for no chain. An error of a request ends that request and is the ``error`` of its output.

    Args:
        chain: the chain of requests that name none; None: such requests run no chain.
        vocabulary: for chains that requests bring.
        eos: ids that end a text if the request names none.
        seed: of processors that draw random numbers; each request's own seed is derived from it.
        max_length: most tokens of a request.
    """

    supported_kwargs: Final = {KEYWORD: object}
    ignored_kwargs: Final = ()

    def __init__(self, chain: Chain | None, vocabulary: Any, eos: Collection[int], seed: int, max_length: int) -> None:
        self._shared = None if chain is None else CompiledChain("", chain)
        self._vocabulary, self._eos, self._seed, self._max_length = vocabulary, tuple(eos), seed, max_length
        self._compiled: dict[str, CompiledChain] = {}
        self._groups: dict[tuple[str, int], ChainRows] = {}
        #: Request id -> the request and the last step that it was part of.
        self._known: dict[str, tuple[Request | None, int]] = {}
        self._rows: list[tuple[Any, Request | None]] = []
        self._step = self._begun = 0

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        """Nothing of a chain travels in the library's tensor of arguments."""
        int32_tensor.zero_()

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> torch.Tensor:
        """Note the requests of the next step, in the order of their logits."""
        self._step += 1
        self._rows = [(each.state, self._request(each.state)) for each in requests_with_new_token]
        gone = [name for name, (_, step) in self._known.items() if step + _GONE_AFTER < self._step]
        for name in gone:
            del self._known[name]
        return torch.zeros(len(self._rows), dtype=torch.int32)

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
        """Process scores ``[requests, vocab]``."""
        del tensor_arg
        # Rows behind the rows of the requests belong to unfinished prompts, and to no request.
        wanted: dict[tuple[str, int], list[int]] = {}
        for row, (_, request) in enumerate(self._rows):
            if request is not None and request.failure is None and request.compiled is not None:
                room = request.capacity if "history" in request.compiled.chain.needs else 0
                wanted.setdefault((request.compiled.key, room), []).append(row)
        known = {request for request, _ in self._known.values() if request is not None}
        self._groups = {key: group for key, group in self._groups.items() if key in wanted or group.keep(known)}
        for key, rows in wanted.items():
            scores = self._processed(key, rows, scores)
        for row, (state, request) in enumerate(self._rows):
            if request is not None and request.failure is not None:
                state.error = request.failure
                scores = force_end(scores, row, request)
        return scores

    def _processed(self, key: tuple[str, int], rows: list[int], scores: torch.Tensor) -> torch.Tensor:
        row_of = {request: row for row in rows if (request := self._rows[row][1]) is not None}
        compiled = next(iter(row_of)).compiled
        assert compiled is not None
        if key not in self._groups:
            self._groups[key] = ChainRows(compiled.chain, key[1] or self._max_length)
        group, own = self._groups[key], compiled.key
        away = [r for r, _ in self._known.values() if r and r not in row_of and r.compiled and r.compiled.key == own]
        group.settle(list(row_of), scores, absent=away)
        if not group.requests:
            return scores
        index = torch.tensor([row_of[request] for request in group.requests], device=scores.device)

        def chosen() -> torch.Tensor:
            return scores.index_select(0, index)

        return scores.index_copy(0, index, group.process(chosen(), chosen, True))

    def _request(self, state: Any) -> Request | None:
        """The request of a state, with the tokens that it has now."""
        prompt_length = state._true_initial_tokens or len(state.initial_tokens)
        output = [*state.initial_tokens[prompt_length:], *state.generated_tokens]
        name = state.request_id
        request = self._known[name][0] if name in self._known else self._begin(state, prompt_length, output)
        if request is not None:
            request.output = output
        self._known[name] = request, self._step
        return request

    def _begin(self, state: Any, prompt_length: int, output: Sequence[int]) -> Request | None:
        compiled, error = self._shared, None
        try:
            if KEYWORD in state.logit_processor_kwargs:
                given = state.logit_processor_kwargs[KEYWORD]
                compiled = None if given is None else self._of_request(given)
        except Exception as raised:  # an error ends its own request and no other
            compiled, error = None, raised
        if compiled is None and error is None:
            return None
        told = state.eos_token_id
        ends = [told] if isinstance(told, int) else list(told or ())
        ends = [*(token for token in ends if token >= 0), *self._eos]
        self._begun += 1
        params = SimpleNamespace(seed=self._seed + self._begun, max_tokens=state.max_new_tokens)
        prompt = state.initial_tokens[:prompt_length]
        request = Request(compiled, prompt, output, params, tuple(dict.fromkeys(ends)), self._max_length)
        if error is not None:
            request.fail(error)
        return request

    def _of_request(self, given: Any) -> CompiledChain:
        if not isinstance(given, Chain):
            try:
                read = json.loads(given) if isinstance(given, str) else given
            except ValueError as error:
                raise ChainDocumentError(
                    f"{KEYWORD!r} of the request is no JSON: {error}. Give a chain, or its document or list of "
                    f"processors, as plain data or as JSON."
                ) from error
            listed = isinstance(read, (list, tuple))
            given = from_document({"logitloom": VERSION, "processor": read} if listed else read)
        key = to_json(given)
        if key not in self._compiled:
            chain = given if self._vocabulary is None else given.configure(tokenizer=self._vocabulary)
            self._compiled[key] = CompiledChain(key, bind_batched(chain))
        return self._compiled[key]


def bind_batched(chain: Chain) -> Chain:
    """The chain, after checking that continuous batches can run it.

    Raises:
        NeedsNotMet: the chain needs a value that continuous batches do not give.
    """
    return bind(chain, ENGINE, GIVES)


def _step_by_step(model: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options; where the caller decides neither, steps are neither recorded as graphs nor sent ahead."""
    given = options.get("continuous_batching_config")
    if given is None:
        given = getattr(options.get("generation_config") or model.generation_config, "continuous_batching_config", None)
    config = ContinuousBatchingConfig() if given is None else copy.copy(given)
    for name in ("use_cuda_graph", "use_async_batching"):
        if getattr(config, name) is None:
            setattr(config, name, False)
    return {**options, "continuous_batching_config": config}


@contextmanager
def batch_with(model: Any, chains: BatchedChains, options: dict[str, Any]) -> Iterator[Any]:
    """A started manager of a continuous batch that runs chains.

    Args:
        model: the transformers model.
        chains: of its requests.
        options: those of ``init_continuous_batching``.

    Raises:
        NeedsNotMet: the caller asks for recorded graphs, steps that are sent ahead, or compiled code, in which no
            chain runs.
    """
    manager = model.init_continuous_batching(**_step_by_step(model, options))
    try:
        config = manager.continuous_batching_config
        found = [
            name
            for name, used in (
                ("use_cuda_graph", any(config.cuda_graph_booleans)),
                ("use_async_batching", bool(config.use_async_batching)),
                ("varlen_compile_config", config.varlen_compile_config is not None),
                ("decode_compile_config", config.decode_compile_config is not None),
            )
            if used
        ]
        if found:
            raise NeedsNotMet(
                f"{ENGINE} runs with {', '.join(found)} here: its steps are recorded or sent ahead, and no chain would "
                f"run in them. Pass continuous_batching_config=ContinuousBatchingConfig(use_cuda_graph=False, "
                f"use_async_batching=False), without compile configs."
            )
        listed = manager.logit_processor
        listed.logits_processor.append(chains)
        listed.tensors_required += 1
        listed._retrieve_processors_kwargs()
        listed.do_processing = True
        manager.start()
        yield manager
    finally:
        if manager.is_running():
            manager.stop(block=True, timeout=5)
        manager.destroy()


def refuse_where_ignored(is_chain: Callable[[Any], bool]) -> None:
    """Make continuous batches that were given a chain and would leave it out raise.

    ``generate(..., cache_implementation="paged")`` and ``generate_batch`` take ``logits_processor`` and never look at
    it. Both make their manager with ``init_continuous_batching``, where the argument of the caller can still be seen.

    Args:
        is_chain: whether an argument is, or holds, a chain.
    """
    original = continuous_api.ContinuousMixin.init_continuous_batching
    if hasattr(original, "refuses_chains"):
        return

    @functools.wraps(original)
    def init_continuous_batching(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        for _ in range(_FRAMES):
            for given in (frame.f_locals.get("logits_processor"), _among(frame.f_locals.get("kwargs"))):
                if given is not None and is_chain(given):
                    raise NeedsNotMet(
                        "transformers ignores logits_processor in continuous batches (generate_batch, and generate "
                        "with cache_implementation='paged'), so the chain would silently not run. Use the processor's "
                        "generate_batch(inputs, ...), or another cache."
                    )
            if frame.f_back is None:
                break
            frame = frame.f_back
        return original(*args, **kwargs)

    init_continuous_batching.refuses_chains = True  # type: ignore[attr-defined]
    continuous_api.ContinuousMixin.init_continuous_batching = init_continuous_batching


def _among(arguments: Any) -> Any:
    return arguments.get("logits_processor") if isinstance(arguments, dict) else None
