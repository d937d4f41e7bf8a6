"""Hugging Face transformers: a chain inside ``generate``, and causal models inside logitloom's own loop.

``generate`` calls its processors with all ids of all rows, prompts and left padding included, and tells neither which
row a beam came from nor when drafts were rejected. :class:`~logitloom.engines.RowTracker` recovers both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LogitsProcessorList

from logitloom.chain import Chain
from logitloom.engines import RowTracker, bind
from logitloom.errors import NeedsNotMet
from logitloom.registry import read_vocabulary
from logitloom_contrib.engines._transformers_model import TransformersModel

__all__ = ["TransformersModel", "TransformersProcessor", "to_transformers"]

#: What ``generate`` gives to processors.
GIVES: Final = frozenset({"prompt", "length", "history", "every_step"})
ENGINE: Final = "transformers' generate"


def to_transformers(
    chain: Chain,
    model: Any = None,
    tokenizer: Any = None,
    *,
    eos: Sequence[int] | None = None,
    padding: int | None = None,
    seed: int = 0,
    max_length: int | None = None,
) -> TransformersProcessor:
    """A chain as the ``logits_processor`` of ``generate``: greedy, sampling, beams, drafts; for any number of calls.

    Pass the result itself, ``model.generate(..., logits_processor=processor)``: each call of ``generate`` then keeps
    its rows apart from all others. Inside a list, ``LogitsProcessorList([processor, ...])``, calls are told apart by
    their ids: a call whose rows are not those of an earlier one, or those and one token more, begins a new generation,
    and its rows are the prompts.

    Args:
        chain: the processors.
        model: the transformers model that will generate: for its end-of-sequence and padding ids, and for processors
            that run a model (guidance). Or a logitloom model adapter.
        tokenizer: any tokenizer, for processors that need a vocabulary; default: the chain's.
        eos: ids that end a row; default: those of the model's generation config and of the vocabulary.
        padding: the id that fills rows; default: that of the generation config or of the tokenizer, else the first of
            ``eos``. Rows that begin with it, more often than any other row of the batch, are taken to be left-padded.
        seed: of processors that draw random numbers.
        max_length: most tokens of a row, if a chain that keeps history should allocate it at once.

    Returns:
        A ``LogitsProcessorList``.

    Raises:
        NeedsNotMet: the chain needs what ``generate`` does not give, or ``generate`` would not call it.
        ChainIncomplete: options are missing.
    """
    config = getattr(model, "generation_config", None)
    if config is not None:
        _require_called(config.cache_implementation)
    adapter = TransformersModel(model) if config is not None and "model" in chain.needs else model
    chain = bind(chain, ENGINE, GIVES, tokenizer=tokenizer, model=adapter)
    ends = eos if eos is not None else (*_ids(getattr(config, "eos_token_id", None)), *_eos_of(chain))
    if padding is None:
        known = (getattr(config, "pad_token_id", None), getattr(tokenizer, "pad_token_id", None), *ends)
        padding = next((int(token) for token in known if token is not None), None)
    return TransformersProcessor(
        _Binding(chain, tuple(ends), padding, seed, max_length, adapter if "model" in chain.needs else None), model
    )


class _Binding:
    """What all generations with one processor share."""

    def __init__(
        self, chain: Chain, eos: tuple[int, ...], padding: int | None, seed: int, max_length: int | None, model: Any
    ) -> None:
        self.chain, self.eos, self.padding, self.seed, self.max_length = chain, eos, padding, seed, max_length
        self.context = {} if model is None else {"model": model}

    def tracker(self) -> RowTracker:
        return RowTracker(
            self.chain,
            eos=self.eos,
            padding=() if self.padding is None else (self.padding,),
            seed=self.seed,
            max_length=self.max_length,
            context=self.context,
        )


class _Rows:
    """The processor of one call of ``generate``, or of several that are told apart by their ids."""

    def __init__(self, binding: _Binding) -> None:
        self.padding = binding.padding
        self.tracker = binding.tracker()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        ids = input_ids.detach().cpu().numpy()

        def tentative() -> bool:
            # Drafts are verified with one slice of a larger tensor per position; beams with log-probabilities.
            sliced = scores.untyped_storage().nbytes() > scores.numel() * scores.element_size()
            return sliced or bool((scores <= 0).all())

        out: torch.Tensor = self.tracker.process(scores, ids, _starts(ids, self.padding), tentative=tentative)
        return out


class TransformersProcessor(LogitsProcessorList):  # type: ignore[misc]
    """A chain for ``generate``; made by :func:`to_transformers`.

    ``generate`` copies the list it is given. Each time it does, it gets a member of its own, so that calls share
    nothing but the chain, whether they run one after the other, interleaved or in threads.
    """

    def __init__(self, binding: _Binding, model: Any) -> None:
        self._binding, self._model = binding, model
        self._shared = _Rows(binding)
        #: How many times a call of ``generate`` took its member.
        self._taken = 0
        super().__init__([self._shared])

    def __iter__(self) -> Iterator[_Rows]:
        self._taken += 1
        yield _Rows(self._binding)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Process scores ``[rows, vocab]`` after ids ``[rows, length]``; generations are told apart by their ids."""
        return self._shared(input_ids, scores)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._binding.chain!r}>"

    @property
    def chain(self) -> Chain:
        """The chain that is called."""
        return self._binding.chain

    def generate(self, *inputs: Any, **options: Any) -> Any:
        """``model.generate`` with this processor, refused where ``generate`` would silently leave it out.

        Args:
            inputs, options: those of ``generate``.

        Raises:
            NeedsNotMet: with the paged cache (continuous batching), which calls no processors; if ``generate`` left
                the processor out for another reason; or without a model.
        """
        if not hasattr(self._model, "generate"):
            raise NeedsNotMet("No transformers model is bound: give to_transformers(chain, model=...).")
        config = options.get("generation_config", self._model.generation_config)
        _require_called(options.get("cache_implementation", config.cache_implementation))
        before = self._taken
        out = self._model.generate(*inputs, logits_processor=self, **options)
        if self._taken == before:
            raise NeedsNotMet(
                f"{ENGINE} did not look at the logits processor it was given, so the chain did not run on what it "
                f"returned. Another way of decoding was chosen by its options or by the model's generation config."
            )
        return out


def _require_called(cache_implementation: str | None) -> None:
    if cache_implementation == "paged":
        raise NeedsNotMet(
            "transformers ignores logits processors with cache_implementation='paged' (continuous batching), so the "
            "chain would silently not run. Use another cache."
        )


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return (int(value),) if isinstance(value, int) else tuple(int(token) for token in value)


def _eos_of(chain: Chain) -> tuple[int, ...]:
    return () if chain.vocabulary is None else read_vocabulary(chain.vocabulary).eos


def _starts(ids: NDArray[Any], padding: int | None) -> NDArray[np.int64] | None:
    """Where each row's own ids begin, behind padding on the left; None if no row is padded.

    At least one row of a batch is not padded. What every row begins with belongs to the rows: the
    beginning-of-sequence token may be the padding token.
    """
    rows, width = ids.shape
    if padding is None or not width or rows == 1 or padding not in ids[:, 0].tolist():
        return None
    starts: NDArray[np.int64] = np.argmax(ids != padding, axis=1)
    starts -= starts.min()
    return starts
