"""Whisper's detection of silence: the probability of "no speech" at the first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logitloom import MASK, Array, Context, Processor, option
from logitloom.arrays.backend import NEG_INF
from logitloom_plugins.processors._token_table import check_ids

__all__ = ["WhisperNoSpeech", "WhisperNoSpeechState"]


class WhisperNoSpeechState(NamedTuple):
    """State: a row tree.

    Attributes:
        probability: ``[rows] float32``, of no speech; -1 before the first step.
    """

    probability: Array


@dataclass(frozen=True)
class WhisperNoSpeech(Processor):
    """Note in the state how likely the token for "no speech" was at the first step, and end silent rows if asked.

    ``state.probability`` is the softmax of the row's first logits at ``token``: the logits after the prompt, which
    should be the token that starts a transcript. With ``threshold`` rows above it may only end. Put it first in a
    chain, or the others' masks count.

    Example:
        >>> import numpy as np
        >>> from logitloom import processors
        >>> chain = processors.load(("whisper_no_speech", {"token": 1, "threshold": 0.6, "eos": 0}))
        >>> logits = np.log(np.array([[0.1, 0.7, 0.2], [0.5, 0.1, 0.4]], dtype=np.float32))
        >>> context = Context.start(logits)
        >>> out, state = chain.process(logits, chain.init_state(context), context)
        >>> np.isfinite(out[0]), np.isfinite(out[1]), state.processors[0].probability.round(2)
        (array([ True, False, False]), array([ True,  True,  True]), array([0.7, 0.1], dtype=float32))

    References:
        A. Radford et al., "Robust speech recognition via large-scale weak supervision", 2022, section 4.5.
    """

    stage = "constraint"
    needs = frozenset({"length"})
    sees_every_step = True
    effect = MASK.but(reads=("distribution", "ids", "seen"))

    token: int = option(help="The id for no speech.", ge=0, unit="id")
    eos: int = option(help="The id that ends a sequence.", ge=0, unit="id")
    threshold: float | None = option(
        None, help="Probability of no speech above which a row may only end; default: no row is ended.", ge=0.0, le=1.0
    )

    def init_state(self, context: Context) -> WhisperNoSpeechState:
        """Nothing known.

        Raises:
            OptionError: if an id lies outside the logits.
        """
        check_ids([self.token], context.vocab_size, "token", "whisper_no_speech")
        check_ids([self.eos], context.vocab_size, "eos", "whisper_no_speech")
        unknown = np.full(context.batch, -1.0, dtype=np.float32)
        return WhisperNoSpeechState(context.backend.asarray(unknown))

    def process(
        self, logits: Array, state: WhisperNoSpeechState, context: Context
    ) -> tuple[Array, WhisperNoSpeechState]:
        """A softmax at the first step, and a masked fill."""
        backend, xp = context.backend, context.backend.xp
        begins = context.step == 0
        now = backend.cast(backend.softmax(logits)[:, self.token], "float32")
        probability = xp.where(begins, now, state.probability)
        if self.threshold is not None:
            others = backend.arange(logits.shape[-1])[None, :] != self.eos
            silent = (begins & (probability > self.threshold))[:, None]
            logits = backend.masked_fill(logits, silent & others, NEG_INF, context.donate)
        return logits, WhisperNoSpeechState(probability)
