"""Assisted decoding through text: a smaller model with another tokenizer drafts, and its text is encoded anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from logitloom import Context, Vocabulary, option
from logitloom.errors import GenerationError
from logitloom.generation import Cache, DraftRequest, Drafts, until_end
from logitloom.host.registry import read_vocabulary
from logitloom.host.text_encoder import text_encoder
from logitloom.rows.tree import Rows
from logitloom_plugins.candidates._model_drafts import DraftOptions, forward_shared
from logitloom_plugins.candidates._retokenization import join, shown

__all__ = ["AssistantRetokenized"]


class Window(NamedTuple):
    """How far the assistant followed one row.

    Attributes:
        seen: how many of the row's tokens its cache stands for (a length; the ids are not kept).
        tail: the last ids in its cache.
        confidences: the probability of each of the target's tokens that are being verified.
    """

    seen: int = 0
    tail: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()


class RetokenizedState(NamedTuple):
    """State of the generator.

    Attributes:
        cache: the assistant's: accepted text only, never drafts.
        windows: per row a :class:`Window`.
        policies: per row how it drafts.
    """

    cache: Cache
    windows: Rows
    policies: Rows


@dataclass(frozen=True, kw_only=True)
class AssistantRetokenized(DraftOptions):
    """Draft with a smaller model of any other tokenizer, through text.

    New text is encoded for the assistant together with a few tokens before it, and joined to the ids it has read
    along the longest diagonal of equal ids; its draft comes back the same way. The assistant drafts its most likely
    tokens. A drafted token is accepted if the target chooses the same token, also when sampling. The assistant knows
    nothing of the target's processors.

    References:
        J. Mamou et al., "Universal assisted generation: faster decoding with any assistant model", 2024.
    """

    model: Any = option(help="The drafting model: any model adapter.")
    tokenizer: Any = option(help="The drafting model's tokenizer, of any library.")
    target_tokenizer: Any = option(help="The target's tokenizer, of any library.")
    vocabulary: Any = option(
        None, help="The drafting model's tokenizer (of any library) or Vocabulary; default: model.vocabulary."
    )
    target_lookbehind: int = option(
        10, help="Tokens of the target that are encoded again before new ones.", ge=1, unit="tokens"
    )
    assistant_lookbehind: int = option(
        10, help="Tokens of the assistant that are encoded again before a draft.", ge=1, unit="tokens"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.vocabulary if self.vocabulary is not None else getattr(self.model, "vocabulary", None)
        object.__setattr__(self, "_encode", text_encoder(self.tokenizer).encode)
        object.__setattr__(self, "_encode_target", text_encoder(self.target_tokenizer).encode)
        object.__setattr__(self, "_own", read_vocabulary(self.tokenizer if given is None else given))

    def init_state(self, context: Context) -> RetokenizedState:
        """An empty cache."""
        if context.vocabulary is None:
            raise GenerationError(
                "'assistant_retokenized' goes through text, but the target's vocabulary is unknown: load the chain "
                "with tokenizer=..., or give the generator one."
            )
        rows = context.batch
        return RetokenizedState(self.model.empty_cache(rows), Rows([Window()] * rows), self.start_policies(rows))

    def propose(self, state: RetokenizedState, request: DraftRequest) -> tuple[Drafts, RetokenizedState]:
        """Let the assistant read what is new, draft, and encode its text for the target."""
        target = request.context.vocabulary
        assert target is not None
        rows = len(request.sequences)
        held = state.cache.lengths.copy()
        fresh: list[list[int]] = [[] for _ in range(rows)]
        windows, limits = list(state.windows), [0] * rows
        for i, sequence in enumerate(request.sequences):
            if request.limits[i] <= 0:
                continue
            dropped, added = self._new_ids(sequence, state.windows[i], target, int(held[i]))
            room = self.model.max_length - int(held[i]) + dropped - len(added) + 1
            limit = min(request.limits[i], state.policies[i].num_tokens, room)
            if added and limit > 0:
                tail = (*windows[i].tail[: len(windows[i].tail) - dropped], *added)
                keep = 4 * max(self.target_lookbehind, self.assistant_lookbehind)
                windows[i] = Window(len(sequence), tail[-keep:])
                held[i] -= dropped
                fresh[i], limits[i] = added, limit
        cache = state.cache.crop(held) if (held < state.cache.lengths).any() else state.cache
        own, sure, cache = self._follow(fresh, limits, cache, [policy.threshold for policy in state.policies])
        cache = cache.crop(held + np.asarray([len(new) for new in fresh], dtype=np.int32))

        drafts = []
        for i, sequence in enumerate(request.sequences):
            ids = self._back(sequence, windows[i].tail, own[i]) if own[i] else []
            draft = until_end(ids, request.eos)[: request.limits[i]]
            # Places in the two tokenizations do not correspond; the schedule needs their number only.
            windows[i] = windows[i]._replace(confidences=(min(sure[i], default=1.0),) * len(draft))
            drafts.append(draft)
        return Drafts(drafts), RetokenizedState(cache, Rows(windows), state.policies)

    def update(self, state: RetokenizedState, accepted: Sequence[int]) -> RetokenizedState:
        """Follow the schedule; the cache holds accepted text only, so there is nothing to forget."""
        drafts = [window.confidences for window in state.windows]
        return state._replace(policies=self.verified(state.policies, drafts, accepted))

    def _new_ids(self, sequence: Sequence[int], window: Window, target: Vocabulary, held: int) -> tuple[int, list[int]]:
        """How many of the assistant's last ids no longer hold, and the ids that come after the others."""
        if not window.seen:
            return 0, self.__dict__["_encode"](shown(target, sequence))
        start = max(window.seen - self.target_lookbehind, 0)
        joined = join(window.tail, self.__dict__["_encode"](shown(target, sequence[start:])))
        if joined is None or joined.dropped >= held:
            return 0, self.__dict__["_encode"](shown(target, sequence[window.seen :]))
        return joined.dropped, [*joined.replacements, *joined.new]

    def _follow(
        self, fresh: Sequence[Sequence[int]], limits: Sequence[int], cache: Cache, thresholds: Sequence[float]
    ) -> tuple[list[list[int]], list[list[float]], Cache]:
        """The assistant's most likely tokens."""
        backend, own = self.model.backend, self.__dict__["_own"]
        drafts: list[list[int]] = [[] for _ in fresh]
        confidences: list[list[float]] = [[] for _ in fresh]
        going = [i for i, limit in enumerate(limits) if limit > 0]
        feed = list(fresh)
        while going:
            logits, cache = forward_shared(self.model, feed, cache)
            p = backend.softmax(logits)
            chosen = backend.xp.argmax(p, axis=-1)
            sure = backend.to_numpy(backend.gather(p, chosen[:, None])[:, 0]).tolist()
            picked = backend.to_numpy(chosen).tolist()
            going = [i for i in going if picked[i] not in own.eos]
            for i in going:
                drafts[i].append(picked[i])
                confidences[i].append(sure[i])
            going = [i for i in going if len(drafts[i]) < limits[i] and sure[i] >= thresholds[i]]
            goes = set(going)
            feed = [[picked[i]] if i in goes else [] for i in range(len(fresh))]
        return drafts, confidences, cache

    def _back(self, sequence: Sequence[int], tail: Sequence[int], draft: Sequence[int]) -> list[int]:
        """A draft in the target's ids, to follow a sequence."""
        own: Vocabulary = self.__dict__["_own"]
        window = [*tail[-self.assistant_lookbehind :], *draft]
        encoded = self.__dict__["_encode_target"](shown(own, window))
        # As many of the last tokens are compared as the window has in the target's ids.
        joined = join(sequence[-len(encoded) :], encoded) if encoded else None
        if joined is None:
            return list(self.__dict__["_encode_target"](shown(own, draft)))
        return list(joined.new)
