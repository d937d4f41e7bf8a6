"""Stop strings: the text ends as soon as one of them has been written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logitloom.automata import AhoCorasick, Dfa, TokenAutomaton
from logitloom.constraints.constraint_processor import ConstraintProcessor
from logitloom.context import Context
from logitloom.contract import FINISHED, Constraint, State
from logitloom.display.warning import warn
from logitloom.errors import NeedsNotMet, OptionError
from logitloom.host.entry_points import PluginName
from logitloom.host.options import option
from logitloom.vocabulary import Vocabulary

__all__ = ["StopStrings"]

#: The state counts at least so many bytes after a match, for texts that go on all the same.
_FEWEST_COUNTED = 256


@dataclass(frozen=True)
class StopStrings(ConstraintProcessor):
    """After a stop string allow nothing but end-of-sequence, and say where the text ends.

    Loops that end texts themselves put this processor at the end of a chain. Engine adapters that cut texts ask
    this processor for its strings.

    The state is a state of an Aho-Corasick automaton, or, after a match, the number of bytes to cut.

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
        try:
            finder = AhoCorasick(self.strings)
        except OptionError as error:  # an empty list, or an empty string
            raise OptionError(f"Option 'strings' of '{PluginName(type(self))}': {error}") from None
        object.__setattr__(self, "_finder", finder)

    @property
    def _search(self) -> AhoCorasick:
        finder: AhoCorasick = self.__dict__["_finder"]
        return finder

    def stop_strings(self, kept: bool) -> tuple[str, ...]:
        """The strings, if a text keeps them at its end (``kept``) or leaves them out (not ``kept``); otherwise none."""
        return self.strings if self.include == kept else ()

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> TokenAutomaton:
        """The search automaton, then states that count the bytes to cut, then the same after end-of-sequence."""
        self._warn_of_special_tokens(vocabulary)
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

    def _warn_of_special_tokens(self, vocabulary: Vocabulary) -> None:
        for token, text in vocabulary.special_text.items():
            if text in self.strings and token in vocabulary.special and token not in vocabulary.eos:
                warn(
                    f"{PluginName(type(self))} finds {text!r:.80} in the text only, and the special token {token} of "
                    f"this name writes no text. If rows end with the token, give the vocabulary its id: "
                    f"vocabulary.with_eos({[*vocabulary.eos, token]}).",
                )

    def start_states(self, constraint: Constraint, context: Context) -> Sequence[State]:
        """The start, or where the prompt leads (a string that ends in the prompt does not count)."""
        if not self.across_prompt:
            return super().start_states(constraint, context)
        if context.prompt is None:
            raise NeedsNotMet(
                f"{PluginName(type(self))} with across_prompt=True needs the prompt, which the context does not have."
            )
        return [self._after(constraint.vocabulary.text_bytes(prompt)) for prompt in context.prompt]

    def _after(self, text: bytes) -> int:
        """The state after a prompt. Strings that end in the prompt are no match: a match needs a generated byte that
        enters a closing state.
        """
        finder = self._search
        state = 0
        for byte in text[-max(map(len, finder.strings)) :]:
            state = int(finder.next[state, finder.byte_class[byte]])
        return state


def _depths(finder: AhoCorasick) -> list[int]:
    """Per state the number of bytes of a string that have been read, which is the distance of the state from the
    start.
    """
    depth = {0: 0}
    queue = [0]
    for state in queue:
        for following in finder.next[state].tolist():
            if following not in depth:
                depth[following] = depth[state] + 1
                queue.append(following)
    return [depth[state] for state in range(finder.states)]
