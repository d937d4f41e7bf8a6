"""Questions whose answers may depend on one another in cycles, as answers about recursive schemas do."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeVar

__all__ = ["Answer", "Find", "Inquiry", "LeastSolution", "TakesLong"]

Found = TypeVar("Found")
#: The type of an answer depends on the question; so ``Any``.
Answer = Any
#: A generator that yields questions, gets their answers, and returns the answer to its own question.
Inquiry = Generator[Hashable, Answer, Found]
#: A function of a question and the earlier answer to it (``None`` at first). Before the function asks other questions,
#: it enters the earlier answer in ``found``. The function returns the answer, and whether the answer is the largest
#: one, which further passes cannot change; or the function is a generator that yields other questions first. An answer
#: that is returned at once to a yielded question must be the largest one.
Find = Callable[[Any, Answer], tuple[Answer, bool] | Inquiry[tuple[Answer, bool]]]


class TakesLong(Exception):
    """Finding answers, or what is made of answers, takes longer than it may."""


class LeastSolution:
    """The least answers to questions that may depend on one another.

    If a question is asked again while it is being answered, the answer is the one found so far, and passes are repeated
    until no answer changes. Yielded questions are answered without recursion, so that schemas may be nested deeply.

    Attributes:
        known: answers that are certain, by question.
        found: the answers that the current passes have found; later passes may add to them.
        unsure: whether the current pass has used an answer that later passes may change.
        deadline: the processor time of this thread, in seconds, from which on :class:`TakesLong` is raised. Answers
            that are certain by then are kept.
    """

    def __init__(self) -> None:
        self.known: dict[Hashable, Answer] = {}
        self.found: dict[Hashable, Answer] = {}
        self.unsure = False
        self.deadline = math.inf
        self._asked: set[Hashable] = set()

    def check_time(self) -> None:
        """Check the time.

        Raises:
            TakesLong: if it is over.
        """
        if self.deadline < math.inf and time.thread_time() > self.deadline:
            raise TakesLong

    def of(self, question: Hashable, find: Find) -> Answer:
        """The answer to a question, which a function finds.

        Raises:
            TakesLong: if the time is over.
        """
        if question in self.known:
            return self.known[question]
        if question in self._asked:
            self.unsure = True
            return self.found[question]
        outermost = not self._asked
        unsure, self.unsure = self.unsure, False
        try:
            while True:
                before = dict(self.found) if outermost else None
                certain = self._passed(question, find)
                if certain or not outermost or before == self.found:
                    break
                self._asked.clear()
            result = self.found[question]
            if certain:
                self.known[question] = result
            elif outermost:
                self.known.update(self.found)
            self.unsure = unsure or not certain
            return result
        finally:
            if outermost:
                self._asked, self.found, self.unsure = set(), {}, False

    def _passed(self, question: Hashable, find: Find) -> bool:
        """Answer a question and those that are yielded on the way, and tell whether the answer is certain."""
        self._asked.add(question)
        first = find(question, self.found.get(question))
        if isinstance(first, tuple):
            self.found[question], certain = first
            return bool(certain or not self.unsure)
        #: The open questions, each with whether the one before was unsure.
        open_ones = [(question, first, False)]
        answer: Answer = None
        while True:
            asked, inquiry, unsure = open_ones[-1]
            self.check_time()
            try:
                following = inquiry.send(answer)
            except StopIteration as end:
                open_ones.pop()
                answer, certain = end.value
                self.found[asked] = answer
                certain = certain or not self.unsure
                if not open_ones:
                    return bool(certain)
                if certain:
                    self.known[asked] = answer
                self.unsure = unsure or not certain
                continue
            if following in self.known:
                answer = self.known[following]
            elif following in self._asked:
                self.unsure, answer = True, self.found[following]
            else:
                more = find(following, self.found.get(following))
                if isinstance(more, tuple):
                    answer, _ = more
                    continue
                self._asked.add(following)
                open_ones.append((following, more, self.unsure))
                self.unsure, answer = False, None

    def certainty(self, find: Callable[[], Found]) -> tuple[Found, bool]:
        """The result of a function, and whether the function used only answers that later passes cannot change."""
        unsure, self.unsure = self.unsure, False
        result = find()
        certain = not self.unsure
        self.unsure = unsure or not certain
        return result, certain
