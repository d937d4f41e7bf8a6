"""N-gram cache: draft the token that most often followed the last tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from logitloom import Context, option
from logitloom.generation import Configured, DraftRequest, Drafts, legal_prefix, until_end
from logitloom.rows.tree import Rows

__all__ = ["NgramCache"]


@dataclass(frozen=True)
class NgramCache(Configured):
    """Draft token by token what most often followed the last n-gram, in the row's own text and in a given corpus.

    Longer n-grams go before shorter ones, the row's own text before the corpus, and of equally frequent tokens the
    one seen last is taken. A round counts the tokens accepted since the previous round, so its cost is
    proportional to the number of these tokens.

    Example:
        >>> cache = NgramCache(max_ngram=2, corpus=((1, 2, 3), (9, 2, 4), (9, 2, 4)))
        >>> cache.following([7, 2], 1), cache.following([1, 2], 1)
        ([4], [3])
    """

    max_ngram: int = option(3, help="Length of the longest n-gram that is looked up.", ge=1, unit="tokens")
    min_ngram: int = option(1, help="Length of the shortest n-gram that is looked up.", ge=1, unit="tokens")
    num_tokens: int = option(8, help="Most tokens of a draft.", ge=1, unit="tokens")
    corpus: tuple[tuple[int, ...], ...] = option((), help="Token ids of texts that are counted beforehand.")

    def __post_init__(self) -> None:
        super().__post_init__()
        table = _Counts(self.min_ngram, self.max_ngram)
        for text in self.corpus:
            table = table.with_text(text, 0)
        object.__setattr__(self, "_corpus", table)

    def init_state(self, context: Context) -> Rows:
        """Empty counts for each row."""
        return Rows([_Counts(self.min_ngram, self.max_ngram)] * context.batch)

    def propose(self, state: Rows, request: DraftRequest) -> tuple[Drafts, Rows]:
        """Count what is new, then draft."""
        known = Rows(
            counts.with_text(sequence, counts.length) for counts, sequence in zip(state, request.sequences, strict=True)
        )
        drafts = []
        for row, (counts, sequence) in enumerate(zip(known, request.sequences, strict=True)):
            draft = self._follow(counts, sequence, min(self.num_tokens, request.limits[row]))
            drafts.append(legal_prefix(request, row, until_end(draft, request.eos)) if draft else [])
        return Drafts(drafts), known

    def update(self, state: Rows, accepted: Sequence[int]) -> Rows:
        """Nothing to learn: the next round counts what was accepted."""
        del accepted
        return state

    def following(self, sequence: Sequence[int], limit: int) -> list[int]:
        """What is drafted after a text."""
        counts = _Counts(self.min_ngram, self.max_ngram).with_text(sequence, 0)
        return self._follow(counts, sequence, limit)

    def _follow(self, counts: _Counts, sequence: Sequence[int], limit: int) -> list[int]:
        corpus: _Counts = self.__dict__["_corpus"]
        last, draft = list(sequence[-self.max_ngram :]), list[int]()
        while len(draft) < limit:
            token = counts.most_frequent(last)
            token = corpus.most_frequent(last) if token is None else token
            if token is None:
                break
            draft.append(token)
            last = [*last[1 - self.max_ngram :], token] if self.max_ngram > 1 else [token]
        return draft


class _Counts:
    """What followed each n-gram of a text: an immutable handle.

    Handles that grew from one another share a table as long as only the newest is extended. Extending an older one
    counts anew, which happens only if a row was forked and both go on.
    """

    __slots__ = ("_owner", "_table", "length", "longest", "shortest")

    def __init__(self, shortest: int, longest: int) -> None:
        self.shortest, self.longest, self.length = shortest, longest, 0
        self._table: dict[tuple[int, ...], Counter[int]] = {}
        #: The newest handle of the table.
        self._owner: list[object] = [self]

    def with_text(self, text: Sequence[int], start: int) -> _Counts:
        """These counts together with the counts of ``text[start:]``; ``text[:start]`` is counted already."""
        if start == len(text) and start:
            return self
        grown = _Counts(self.shortest, self.longest)
        if self._owner[0] is self:
            grown._table, grown._owner, first = self._table, self._owner, start
            grown._owner[0] = grown
        else:
            first = 0
        for position in range(first, len(text)):
            token = text[position]
            for n in range(self.shortest, min(self.longest, position) + 1):
                followers = grown._table.setdefault(tuple(text[position - n : position]), Counter())
                # The token is removed and inserted again, so it stands behind equally frequent tokens.
                followers[token] = followers.pop(token, 0) + 1
        grown.length = len(text)
        return grown

    def most_frequent(self, last: Sequence[int]) -> int | None:
        """The most frequent token after the longest known n-gram at the end of some tokens."""
        for n in range(min(self.longest, len(last)), self.shortest - 1, -1):
            followers = self._table.get(tuple(last[-n:]))
            if followers:
                most = max(followers.values())
                return next(token for token, times in reversed(followers.items()) if times == most)
        return None
