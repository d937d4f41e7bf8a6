"""Answers of llama-cpp-python, cut behind the stop strings that a chain keeps in its texts.

The library cuts texts before stop strings only. The token that completes a kept stop string may have text after the
string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["StopKeeper"]


class StopKeeper:
    """Cuts one text behind the first of some strings, whole or in pieces.

    Args:
        strings: the stop strings that stay.
        begin: letters before the text that are not part of it (an echoed prompt).

    Example:
        >>> keeper = StopKeeper(["on"])
        >>> keeper.cut("no"), keeper.cut("nsense"), keeper.cut("!")
        ('no', 'n', '')
    """

    def __init__(self, strings: Sequence[str], begin: int = 0) -> None:
        self._strings, self._begin = strings, begin
        self._text, self._over = "", False

    def cut(self, piece: str) -> str:
        """The part of the next piece that belongs to the text."""
        if self._over:
            return ""
        before = len(self._text)
        self._text += piece
        ends = [at + len(s) for s in self._strings if (at := self._text.find(s, self._begin)) >= 0]
        if not ends:
            return piece
        self._over = True
        return piece[: max(min(ends) - before, 0)]

    def cut_answer(self, answer: Any) -> Any:
        """An answer or a piece of one, as ``create_completion`` or ``create_chat_completion`` gives it."""
        for choice in answer["choices"] if self._strings else ():
            message = choice.get("message") or choice.get("delta")
            holder, key = (choice, "text") if message is None else (message, "content")
            if isinstance(holder.get(key), str):
                holder[key] = self.cut(holder[key])
        return answer
