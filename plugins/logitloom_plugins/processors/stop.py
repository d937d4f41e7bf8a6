"""Stop strings: the text ends as soon as one of them has been written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logitloom import Context, Vocabulary, option
from logitloom.automata import AhoCorasick, Dfa, TokenAutomaton
from logitloom.constraints import FINISHED, Constraint, ConstraintProcessor, State
from logitloom.errors import NeedsNotMet

__all__ = ["Stop"]

#: The state counts at least so many bytes after a match, for texts that go on all the same.
_FEWEST_COUNTED = 256


@dataclass(frozen=True)
class Stop(ConstraintProcessor):
    """After a stop string allow nothing but end-of-sequence, and say where the text ends.

    Strings are looked for in the text, so they are found across token borders, inside a token (whatever the token
    writes after them is cut), inside accepted drafts and forced runs, and in characters that are split over tokens.
    Of several strings the one that ends first counts, and of those that end together the longest.

    The state is a state of an Aho-Corasick automaton, or, after a match, the number of bytes to cut.

    Example:
        >>> from logitloom import processors
        >>> words = Vocabulary([b"</s>", b"st", b"opera", b"a"], eos=[0])
        >>> chain = processors.load(("stop", {"strings": ["stop"]}), tokenizer=words)
        >>> context = Context.start(np.zeros((1, 4), dtype=np.float32), vocabulary=words)
        >>> chain.text_ends(chain.init_state(context), context.accept([[1, 2]]))
        [TextEnd(finished=True, hold=7)]

    References:
        A. V. Aho, M. J. Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
    """

    strings: tuple[str, ...] = option(help="Texts after which the row ends.")
    include: bool = option(False, help="Whether the text keeps the stop string.")
    across_prompt: bool = option(False, help="Whether strings that begin in the prompt are found, too.")

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """The prompt too, if strings may begin in it."""
        return frozenset({"vocabulary", "prompt"}) if self.across_prompt else frozenset({"vocabulary"})

    def __post_init__(self) -> None:
        super().__post_init__()
        finder = AhoCorasick(self.strings)  # refuses an empty list and empty strings
        object.__setattr__(self, "_finder", finder)

    @property
    def _search(self) -> AhoCorasick:
        finder: AhoCorasick = self.__dict__["_finder"]
        return finder

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> TokenAutomaton:
        """The search automaton, then states that count the bytes to cut, then the same after end-of-sequence."""
        finder = self._search
        most = max(_FEWEST_COUNTED, *map(len, vocabulary.token_bytes)) + max(map(len, finder.strings))
        counts, width = np.arange(most + 1), finder.next.shape[1]
        counting, ended = counts + finder.states, counts + finder.states + most + 1
        found = finder.found[finder.next]
        cut = np.array([0 if self.include else len(string) for string in finder.strings], dtype=np.int32)
        table = np.concatenate(
            [
                np.where(found >= 0, finder.states + cut[found], finder.next),
                np.repeat(np.append(counting[1:], counting[-1])[:, None], width, axis=1),
                np.repeat(ended[:, None], width, axis=1),
            ]
        ).astype(np.int32)
        begun = np.zeros(finder.states, dtype=np.int64) if self.include else np.array(_depths(finder))
        return TokenAutomaton(
            Dfa(finder.byte_class, table, np.ones(len(table), dtype=bool)),
            vocabulary,
            vocab_size,
            restricts=False,
            closing=[*counting, *ended],
            ended=np.concatenate([np.full(finder.states, FINISHED.value), ended, ended]),
            hold=np.concatenate([begun, counts, counts]),
        )

    def start_states(self, constraint: Constraint, context: Context) -> Sequence[State]:
        """The start, or where the prompt leads (a string that ends in the prompt does not count)."""
        if not self.across_prompt:
            return super().start_states(constraint, context)
        if context.prompt is None:
            raise NeedsNotMet("Stop with across_prompt=True needs the prompt, which the context does not have.")
        return [self._after(constraint.vocabulary.text_bytes(prompt)) for prompt in context.prompt]

    def _after(self, text: bytes) -> int:
        """The state after a prompt. Strings that end in it are no match: only entering a state is one."""
        finder = self._search
        state = 0
        for byte in text[-max(map(len, finder.strings)) :]:
            state = int(finder.next[state, finder.byte_class[byte]])
        return state


def _depths(finder: AhoCorasick) -> list[int]:
    """Per state how many bytes of a string it has seen, which is its distance from the start."""
    depth = {0: 0}
    queue = [0]
    for state in queue:
        for following in finder.next[state].tolist():
            if following not in depth:
                depth[following] = depth[state] + 1
                queue.append(following)
    return [depth[state] for state in range(finder.states)]
