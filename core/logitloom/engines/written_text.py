"""The text that tokens wrote under a chain: the same for every engine, whatever the engine shows of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

import numpy as np

from logitloom.arguments import ids
from logitloom.arrays.backend import NEG_INF
from logitloom.chain import Chain
from logitloom.context import Context
from logitloom.errors import IllegalToken, InvalidContext, NeedsNotMet
from logitloom.host.hookspecs import TextEnd
from logitloom.vocabulary import Vocabulary

__all__ = ["WrittenText", "stop_strings", "written_text"]


Reason = Literal["eos", "stop", "length"]


class WrittenText(NamedTuple):
    """A text and why it ended.

    Attributes:
        text: without what a chain's ``stop`` leaves out.
        finish: as in :class:`logitloom.generation.Completion`.
    """

    text: str
    finish: Reason


def written_text(
    chain: Chain,
    tokens: Sequence[int],
    *,
    prompt: Sequence[int] = (),
    eos: Collection[int] = (),
    skip: int = 0,
    vocabulary: Vocabulary | None = None,
) -> WrittenText:
    """The text of a row of tokens, as logitloom's own loop would give it.

    Engines stop where the chain allows nothing but end-of-sequence, and give all the tokens before it. These tokens
    still include a stop string that does not belong to the text.

    Args:
        chain: the chain that the tokens were sampled under.
        tokens: what the engine generated, with or without end-of-sequence and padding behind it: ids, as a list or as
            an array of any library. End-of-sequence that the chain forbids is padding behind a text that the engine
            ended by itself.
        prompt: the ids before the tokens, for chains that look at prompts.
        eos: ids that end a text, besides those of the vocabulary.
        skip: bytes at the beginning that are left out: what token healing took from the prompt.
        vocabulary: default: the chain's.

    Raises:
        NeedsNotMet: there is no vocabulary.
        InvalidContext: the tokens are no ids, or the chain does not allow them.

    Example:
        >>> from logitloom import processors
        >>> words = Vocabulary([b"</s>", b"on", b" stop", b" and"], eos=[0])
        >>> chain = processors.load(("stop", {"strings": ["stop"]}), tokenizer=words)
        >>> written_text(chain, [1, 3, 1, 2, 0, 0])
        WrittenText(text='on andon ', finish='stop')
    """
    words = vocabulary or chain.vocabulary
    if words is None:
        raise NeedsNotMet("Tokens have no text without a vocabulary. Configure the chain with a tokenizer.")
    # A set of integers does not find an element of a tensor, although the two are equal.
    tokens, prompt = ids(tokens, "tokens", InvalidContext), ids(prompt, "prompt", InvalidContext)
    ends = {*ids(eos, "eos", InvalidContext), *words.eos}
    at = next((n for n, token in enumerate(tokens) if token in ends), len(tokens))
    taken = tokens[:at]
    data = words.text_bytes(taken)
    reason: Reason = "eos" if at < len(tokens) else "length"
    enders = [link for link in chain.links if hasattr(link.processor, "text_end")]
    if taken and enders:
        # A model may have ids that its tokenizer does not know.
        watching, width = Chain(enders, vocabulary=words), max(words.size, *tokens[: at + 1]) + 1
        out = blank = np.zeros((1, width), np.float32)
        start = Context.start(blank, vocabulary=words, prompt=[list(prompt)], max_length=len(prompt) + len(taken))
        state = watching.init_state(start)
        n = 0
        try:
            for n, token in enumerate(taken, 1):
                context = start.accept([[token]])
                [end] = watching.text_ends(state, context) or [TextEnd(False, 0)]
                if end.finished:
                    data, reason = words.text_bytes(taken[:n]), "stop"
                    data = data[: max(len(data) - end.hold, 0)]
                    break
                out, state = watching.process(blank, state, context)
            if reason == "eos" and tokens[at] in words.eos and out[0, tokens[at]] == NEG_INF:
                reason = "length"  # the engine ended a text that the chain would not have ended, and filled the row
        except IllegalToken as error:
            raise InvalidContext(
                f"Token {taken[n - 1]} ({words.describe(taken[n - 1])}) at place {n - 1} of the given tokens, after "
                f"{words.decode(taken[: n - 1])!r:.200}, is not allowed by the chain ({', '.join(chain.labels)}). Give "
                f"tokens that were sampled under this chain, without the prompt."
            ) from error
    return WrittenText(data[skip:].decode("utf-8", "replace"), reason)


def stop_strings(chain: Chain, *, kept: bool = False) -> list[str]:
    """The strings that a chain stops at (:meth:`.StopStrings.stop_strings`), for engines that cut texts themselves.

    Args:
        chain: the processors.
        kept: whether to list the strings that texts keep at their end, instead of the strings that texts leave out.
    """
    asked = (getattr(link.processor, "stop_strings", None) for link in chain.links)
    return [string for strings in asked if strings is not None for string in strings(kept)]
