"""From an automaton over bytes to a constraint over tokens."""

from __future__ import annotations

from logitloom.arguments import shown
from logitloom.automata.deterministic.dfa import Dfa
from logitloom.automata.lift.lifted_automaton import LiftedAutomaton
from logitloom.automata.lift.token_automaton import TokenAutomaton
from logitloom.contract import ByteAutomaton
from logitloom.errors import InvalidSignature
from logitloom.vocabulary import Vocabulary

__all__ = ["lift"]


def lift(
    automaton: ByteAutomaton | Dfa, vocabulary: Vocabulary, vocab_size: int | None = None, *, restricts: bool = True
) -> LiftedAutomaton:
    """The constraint that allows a token exactly if the automaton can read its bytes.

    Args:
        automaton: the automaton over bytes; of a whole table the constraint is a :class:`.TokenAutomaton`.
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits, at least ``vocabulary.size``, which is the default.
        restricts: whether the text is restricted to the automaton's language. If not, ids without text (special tokens,
            the padding of a vocabulary) are allowed and do not change the state.

    Raises:
        VocabularyError: if the width is too small, or no sequence of tokens writes an accepted text.
        InvalidSignature: if the automaton is none over bytes.

    Example:
        >>> class Brackets(ByteAutomaton):
        ...     fingerprint = b"brackets"
        ...     def start(self): return 0
        ...     def step(self, depth, byte):
        ...         depth += {ord("("): 1, ord(")"): -1}.get(byte, 0)
        ...         return depth if depth >= 0 else None
        ...     def accepts(self, depth): return depth == 0
        >>> words = Vocabulary([b"</s>", b"(", b")", b"))", b"x"], eos=[0])
        >>> constraint = lift(Brackets(), words)
        >>> constraint.allowed(1).listed(5).tolist(), constraint.advance(2, 3), constraint.may_end(0)
        ([1, 2, 4], 0, True)
    """
    if isinstance(automaton, Dfa):
        return TokenAutomaton(automaton, vocabulary, vocab_size, restricts=restricts)
    if isinstance(automaton, type) or not all(hasattr(automaton, name) for name in ("start", "step", "token_border")):
        raise InvalidSignature(
            f"lift takes a logitloom.constraints.ByteAutomaton or a logitloom.automata.Dfa, but got {shown(automaton)}."
        )
    return LiftedAutomaton(automaton, vocabulary, vocab_size, restricts=restricts)
