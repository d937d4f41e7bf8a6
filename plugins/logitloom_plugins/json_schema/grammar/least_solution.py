"""Questions whose answers may depend on one another in circles, as what is asked of recursive schemas does."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["Answers", "LeastSolution"]

Question = TypeVar("Question", bound=Hashable)
Found = TypeVar("Found")
#: By question its answer, whose type depends on the question; so ``Any``.
Answers = dict[Hashable, Any]


class LeastSolution:
    """The least answers to such questions.

    A question that is asked again while it is being answered gets the answer that has been found so far. Where that has
    happened, passes are repeated until no answer changes.

    Attributes:
        known: answers that are certain, by question.
        found: what the current passes have found, which later passes may add to.
        unsure: whether the current pass has used such an answer.
    """

    def __init__(self) -> None:
        self.known: Answers = {}
        self.found: Answers = {}
        self.unsure = False
        self._asked: set[Hashable] = set()

    def of(self, question: Question, find: Callable[[Question, Found | None], tuple[Found, bool]]) -> Found:
        """The answer to a question.

        Args:
            question: the question.
            find: takes the question and the earlier answer (``None`` at first); returns an answer, and whether it is
                the largest one, which further passes cannot change. It enters its first answer in ``found``.
        """
        if question in self.known:
            known: Found = self.known[question]
            return known
        if question in self._asked:
            self.unsure = True
            unfinished: Found = self.found[question]
            return unfinished
        outermost = not self._asked
        unsure, self.unsure = self.unsure, False
        try:
            while True:
                before = dict(self.found) if outermost else None
                self._asked.add(question)
                self.found[question], certain = find(question, self.found.get(question))
                certain = certain or not self.unsure
                if certain or not outermost or before == self.found:
                    break
                self._asked.clear()
            result: Found = self.found[question]
            if certain:
                self.known[question] = result
            elif outermost:
                self.known.update(self.found)
            self.unsure = unsure or not certain
            return result
        finally:
            if outermost:
                self._asked, self.found, self.unsure = set(), {}, False

    def certainty(self, find: Callable[[], Found]) -> tuple[Found, bool]:
        """The result of a function, and whether the function used only answers that later passes cannot change."""
        unsure, self.unsure = self.unsure, False
        result = find()
        certain = not self.unsure
        self.unsure = unsure or not certain
        return result, certain
