"""Token healing: continue a prompt that ends within a token as if prompt and continuation had been one text.

The tokens at the end of a prompt that a longer token could have covered are removed, and the model writes their text
again, in tokens of its own choice. The removed text is the shortest that misses no token: the longest end of the
prompt's text with which a longer token begins, rounded up to whole tokens of the prompt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from logitloom import processors
from logitloom.arguments import flag, id_lists, instance
from logitloom.automata.lift.trie import vocabulary_trie
from logitloom.automata.lift.trie_walk import begins_longer_token
from logitloom.chain import Chain
from logitloom.chain.links import Link
from logitloom.errors import GenerationError
from logitloom.host.registry import role
from logitloom.vocabulary import Vocabulary

__all__ = ["Healed", "heal", "removed_tokens"]


class Healed(NamedTuple):
    """The result of :func:`heal`.

    Attributes:
        prompts: the shortened prompts.
        chain: the chain for the shortened prompts: each new text begins with the text removed from its prompt.
        removed: per prompt the ids that were removed from its end.
        texts: per prompt the text of the removed ids; the new text begins with it, perhaps in other tokens.
    """

    prompts: list[list[int]]
    chain: Chain
    removed: list[list[int]]
    texts: list[bytes]


def heal(
    chain: Chain, prompts: Sequence[Sequence[int]], *, vocabulary: Vocabulary | None = None, in_order: bool = False
) -> Healed:
    """Shorten prompts that may end within a token, and make the chain write the removed text.

    Constraints of the chain begin where the whole prompt ends. The first bytes of a token across that place must fit to
    the prompt, and its other bytes to the constraint. Other processors see the shortened prompts.

    Args:
        chain: the processors.
        prompts: token ids per prompt.
        vocabulary: bytes of the tokens; default: the chain's.
        in_order: whether rows will always stand in the order of the prompts, equally many for each. Otherwise a row is
            recognised by the ids of its prompt, in any order and number.

    Raises:
        GenerationError: without a vocabulary, for a combinator with inner processors that are no constraints, or if
            rows are not in order and two prompts can then not be told apart.

    Example:
        >>> words = Vocabulary([b"</s>", b"see ", b"http", b":", b"://", b"/"], eos=[0])
        >>> healed = heal(Chain([], vocabulary=words), [[1, 2, 3]])
        >>> healed.prompts, healed.texts, healed.chain
        ([[1, 2]], [b':'], <Chain heal(removed=((3,),))>)

    References:
        S. Lundberg, "The art of prompt design: prompt boundaries and token healing", 2023;
        T. Vieira et al., "From language models over tokens to language models over characters", 2024.
    """
    instance(chain, Chain, "chain", GenerationError)
    words = vocabulary if vocabulary is not None else chain.vocabulary
    if words is not None:
        instance(words, Vocabulary, "vocabulary", GenerationError)
    in_order = flag(in_order, "in_order", GenerationError)
    if words is None:
        raise GenerationError(
            "Prompts are healed by the bytes of their tokens, and no vocabulary is known. Give one, or load the chain "
            "with tokenizer=..."
        )
    whole = [list(prompt) for prompt in id_lists(prompts, "prompts", GenerationError)]
    counts = [removed_tokens(prompt, words) for prompt in whole]
    kept = [prompt[: len(prompt) - count] for prompt, count in zip(whole, counts, strict=True)]
    removed = [prompt[len(prompt) - count :] for prompt, count in zip(whole, counts, strict=True)]
    texts = [words.text_bytes(end) for end in removed]
    if not any(removed):
        return Healed(kept, chain, removed, texts)
    options: dict[str, Any] = {"removed": removed}
    if len(kept) > 1:
        options |= {"prompts": kept, "in_order": in_order}
    if not in_order:
        _check_distinct(kept, removed)
    name = role("healing").processor
    links = [_healed(link, name, options) for link in chain.links]
    if not any(link is not before for link, before in zip(links, chain.links, strict=True)):
        at = next((i for i, link in enumerate(links) if link.declared("stage") == "warp"), len(links))
        links[at:at] = processors.load([name, options]).links
    return Healed(kept, chain.part(links), removed, texts)


def removed_tokens(prompt: Sequence[int], vocabulary: Vocabulary) -> int:
    """The number of tokens at the end of a prompt that token healing takes away.

    Tokens without text (special tokens), all tokens before them, and the first token of the prompt are never removed.

    Args:
        prompt: token ids.
        vocabulary: bytes of the tokens.

    Example:
        >>> words = Vocabulary([b"<s>", b"a", b"b", b"c", b"abcd"], special=[0])
        >>> removed_tokens([0, 1, 2, 3], words), removed_tokens([1, 2, 3], words), removed_tokens([0, 1, 1], words)
        (3, 0, 1)
    """
    first = len(prompt)
    while first > 1 and 0 <= prompt[first - 1] < vocabulary.size and vocabulary.token_bytes[prompt[first - 1]]:
        first -= 1
    ends = [vocabulary.token_bytes[token] for token in prompt[first:]]
    text = b"".join(ends)
    trie = vocabulary_trie(vocabulary)
    longest = min(len(text), int(np.diff(vocabulary.offsets).max()) - 1)
    length = next((n for n in range(longest, 0, -1) if begins_longer_token(trie, text[len(text) - n :])), 0)
    count = 0
    while length > 0:
        count += 1
        length -= len(ends[-count])
    return count


def _healed(link: Link, name: str, options: dict[str, Any]) -> Link:
    """The link inside the processor ``name``, which begins the link's constraint where the whole prompt ends. A link
    without a constraint is returned unchanged.
    """
    missing = object()
    constraint = getattr(link.processor, "constraint", missing)
    if constraint is missing:
        return link
    if constraint is None:
        raise GenerationError(
            f"Token healing cannot start {link.label!r} within a token, because it has inner processors that are no "
            f"constraints. Put those into the chain itself, or leave healing out."
        )
    (healed,) = processors.load([name, {**options, "inner": [link]}]).links
    return dataclasses.replace(healed, label=link.label)


def _check_distinct(kept: Sequence[Sequence[int]], removed: Sequence[Sequence[int]]) -> None:
    ends: dict[tuple[int, ...], tuple[int, Sequence[int]]] = {}
    for number, (prompt, end) in enumerate(zip(kept, removed, strict=True)):
        first, other = ends.setdefault(tuple(prompt), (number, end))
        if other != end:
            raise GenerationError(
                f"Prompts {first} and {number} differ only in the tokens that healing takes from their ends, so their "
                f"rows cannot be told apart. Generate them in separate calls."
            )
