"""The record of a generation: its tree of steps, shown as a page, a figure or plain data."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from logitloom.arguments import instance
from logitloom.display.html_table import html_table
from logitloom.errors import OptionError
from logitloom.trace import page, plot
from logitloom.trace.step_tree import StepTree

__all__ = ["Record"]


class Record(StepTree):
    """Everything that a traced chain saw.

    Rows are recorded as a tree (:class:`~logitloom.trace.step_tree.StepTree`).
    """

    def _repr_html_(self) -> str:
        """The sequences, as notebooks show the record; :meth:`save` writes the whole page."""
        rows = [(each.name, each.text, len(each.steps), each.finish or "") for each in self.sequences]
        title = escape(f"{len(self)} steps through {' -> '.join(self.labels) or 'an empty chain'}")
        return f"<p>{title}</p>" + html_table(["sequence", "text", "steps", "finish"], rows)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data, the same that the page shows."""
        return page.data(self)

    def save(self, path: str | Path, *, beside: StepTree | None = None) -> None:
        """Write the page: one file of HTML that needs nothing else.

        Args:
            path: the file.
            beside: the record of another run (another chain, another seed), which the page shows below this one, from
                the first difference on.

        Raises:
            OptionError: for a file that does not end in ``.html``, or a folder that does not exist; or if the other
                run is no record.
        """
        if beside is not None:
            instance(beside, StepTree, "beside", OptionError, "Give the record of the other run.")
        page.write(self, Path(path), beside)

    def plot(self, sequence: int = 0) -> Any:
        """A matplotlib figure: probability mass removed per processor and step, and the entropy before and after.

        Args:
            sequence: which of :attr:`sequences`.

        Raises:
            BackendMissing: if matplotlib is not installed.
            SequenceIndexError: if there is no such sequence.
        """
        return plot.plot(self, sequence)
