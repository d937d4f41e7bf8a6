"""Stop strings: the text ends as soon as one of them has been written."""

from __future__ import annotations

from dataclasses import dataclass

from logitloom.constraints import StopStrings

__all__ = ["Stop"]


@dataclass(frozen=True)
class Stop(StopStrings):
    """After a stop string allow nothing but end-of-sequence, and say where the text ends.

    Strings are looked for in the text, so they are found across token borders, inside a token (whatever the token
    writes after them is cut), inside accepted drafts and forced runs, and in characters that are split over tokens.
    The string that ends first counts; of several strings that end together the longest counts.

    The state is a state of an Aho-Corasick automaton, or, after a match, the number of bytes to cut.

    Example:
        >>> import numpy as np
        >>> from logitloom import Context, Vocabulary, processors
        >>> words = Vocabulary([b"</s>", b"st", b"opera", b"a"], eos=[0])
        >>> chain = processors.load(("stop", {"strings": ["stop"]}), tokenizer=words)
        >>> context = Context.start(np.zeros((1, 4), dtype=np.float32), vocabulary=words)
        >>> chain.text_ends(chain.init_state(context), context.accept([[1, 2]]))
        [TextEnd(finished=True, hold=7)]

    References:
        A. V. Aho, M. J. Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
    """
