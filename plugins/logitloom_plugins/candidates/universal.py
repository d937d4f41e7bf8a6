"""Universal assisted decoding: a model with another tokenizer drafts the tokens that both vocabularies have."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitloom import Array, Backend, Context, HostTable, Vocabulary, option
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import GenerationError
from logitloom.generation import carry
from logitloom.host.registry import read_vocabulary
from logitloom.host.text_encoder import TextEncoder, text_encoder
from logitloom_plugins.candidates._model_drafts import ModelDrafts, ModelState
from logitloom_plugins.candidates._retokenization import shown

__all__ = ["Translation", "Universal", "translation"]


class Translation:
    """Which tokens of an assistant's vocabulary are tokens of a target's, by their bytes.

    Of several ids with the same bytes the lowest counts. The first end-of-sequence tokens are one token.

    Args:
        target: the target's vocabulary.
        assistant: the assistant's.
        target_width: width of the target's logits.
        assistant_width: width of the assistant's logits.

    Example:
        >>> t = Translation(Vocabulary([b"a", b"b", b"c"]), Vocabulary([b"c", b"x", b"a"]), 3, 4)
        >>> t.to_target.tolist(), t.to_assistant.tolist()
        ([2, -1, 0, -1], [2, -1, 0])
    """

    def __init__(self, target: Vocabulary, assistant: Vocabulary, target_width: int, assistant_width: int) -> None:
        self._ids = _ids_by_bytes(assistant)
        self._longest = max(map(len, self._ids))
        target_ids = _ids_by_bytes(target)
        #: ``[assistant_width]``: the target's id of each assistant id, or -1.
        self.to_target: NDArray[np.int32] = np.full(assistant_width, -1, dtype=np.int32)
        #: ``[target_width]``: the assistant's id of each target id, or -1.
        self.to_assistant: NDArray[np.int32] = np.full(target_width, -1, dtype=np.int32)
        pairs = [(own, target_ids[text]) for text, own in self._ids.items() if text in target_ids]
        if target.eos and assistant.eos:
            pairs.append((assistant.eos[0], target.eos[0]))
        for own, other in pairs:
            if own < assistant_width and other < target_width:
                self.to_target[own], self.to_assistant[other] = other, own
        self._known = HostTable(np.maximum(self.to_assistant, 0))
        self._missing = HostTable(self.to_assistant < 0)

    def laid_out(self, logits: Array, backend: Backend) -> Array:
        """Assistant logits ``[rows, assistant_width]`` as ``[rows, target_width]``, -inf for missing tokens."""
        spread = backend.xp.take(logits, self._known.on(backend), axis=1)
        return backend.masked_fill(spread, self._missing.on(backend)[None, :], NEG_INF)

    def spelled(self, text: bytes) -> list[int]:
        """A text in assistant tokens, always the longest that fits; bytes it has no token for are left out."""
        out, start = [], 0
        while start < len(text):
            for end in range(min(len(text), start + self._longest), start, -1):
                token = self._ids.get(text[start:end])
                if token is not None:
                    out.append(token)
                    start = end
                    break
            else:
                start += 1
        return out


def _ids_by_bytes(vocabulary: Vocabulary) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for token, text in enumerate(vocabulary.token_bytes):
        if text:
            found.setdefault(text, token)
    return found


#: Target vocabulary -> assistant vocabulary -> widths -> translation. No value holds a key, so entries are freed.
_TRANSLATIONS: Any = weakref.WeakKeyDictionary()


def translation(target: Vocabulary, assistant: Vocabulary, target_width: int, assistant_width: int) -> Translation:
    """The translation between two vocabularies, built once for as long as both live."""
    by_assistant = _TRANSLATIONS.setdefault(target, weakref.WeakKeyDictionary())
    by_width = by_assistant.setdefault(assistant, {})
    widths = target_width, assistant_width
    found: Translation | None = by_width.get(widths)
    if found is None:
        found = by_width[widths] = Translation(target, assistant, target_width, assistant_width)
    return found


@dataclass(frozen=True, kw_only=True)
class Universal(ModelDrafts):
    """Draft with a model of another tokenizer, in the tokens that both vocabularies have.

    The assistant's logits are laid out over the target's vocabulary, tokens without a counterpart are suppressed, and
    what it then draws goes through exact speculative sampling: lossless. The assistant itself is only read.

    References:
        N. Timor et al., "Accelerating LLM inference with lossless speculative decoding algorithms for heterogeneous
        vocabularies", 2025 (token-level intersection).
    """

    model: Any = option(help="The drafting model: any model adapter.")
    vocabulary: Any = option(
        None, help="The drafting model's tokenizer (of any library) or Vocabulary; default: model.vocabulary."
    )
    tokenizer: Any = option(
        None, help="The drafting model's tokenizer, of any library; default: texts are spelled greedily."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.vocabulary if self.vocabulary is not None else getattr(self.model, "vocabulary", None)
        given = given if given is not None else self.tokenizer
        if given is None:
            raise GenerationError(
                "'universal' compares two vocabularies, but the drafting model has none: give vocabulary=..."
            )
        object.__setattr__(self, "_vocabulary", read_vocabulary(given))
        object.__setattr__(self, "_encoder", None if self.tokenizer is None else text_encoder(self.tokenizer))

    def init_state(self, context: Context) -> ModelState:
        """An empty cache, after comparing the vocabularies."""
        if (self.translation(context).to_target < 0).all():
            raise GenerationError(
                "The vocabularies of target and assistant have no token in common, so 'universal' cannot draft. Use "
                "'assistant_retokenized', which goes through text."
            )
        return super().init_state(context)

    def translation(self, context: Context) -> Translation:
        """Between the target's vocabulary and the assistant's."""
        if context.vocabulary is None:
            raise GenerationError(
                "'universal' compares two vocabularies, but the target's is unknown: load the chain with "
                "tokenizer=..., or give the generator one."
            )
        own: Vocabulary = self.__dict__["_vocabulary"]
        return translation(context.vocabulary, own, context.vocab_size, self.model.vocab_size)

    def unseen(self, sequence: Sequence[int], seen: int, context: Context) -> list[int]:
        """The assistant's ids of the new tokens: the counterpart of a token, or ids that spell a token without one.

        If there is a tokenizer, it encodes the whole sequence when the assistant has read nothing yet.
        """
        assert context.vocabulary is not None
        known, target = self.translation(context), context.vocabulary
        encoder: TextEncoder | None = self.__dict__["_encoder"]
        if not seen and encoder is not None:
            start = encoder.encode(shown(target, sequence))
            if start:
                return start
        out: list[int] = []
        for token in sequence[seen:]:
            own = int(known.to_assistant[token])
            out += [own] if own >= 0 else known.spelled(target.text_bytes([token]))
        # A model needs something to continue from.
        return out or ([] if seen else [0])

    def own_id(self, token: int, context: Context) -> int:
        """The counterpart, which a drafted token has."""
        return int(self.translation(context).to_assistant[token])

    def laid_out(self, logits: Array, context: Context) -> Array:
        """The logits over the target's vocabulary."""
        return self.translation(context).laid_out(carry(logits, context.backend), context.backend)
