"""One comparison with a peer: paired figures, their quantiles, and where logitloom is behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

QUANTILES = (0.5, 0.9, 0.99, 1.0)


class Comparison(NamedTuple):
    """Figures of the same pieces of work, ours and a peer's. Less is better.

    Attributes:
        work: what was measured, as a line of a table names it.
        peer: the name of the peer.
        unit: of all figures.
        ours: a figure of each piece of work.
        theirs: the peer's figure of the same piece of work.
        script: the benchmark that measures it, below ``benchmarks/``.
    """

    work: str
    peer: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float]
    script: str

    def ratios(self) -> list[float]:
        """Our figure over the peer's: median, p90, p99 and worst over the pieces of work."""
        return quantiles(np.divide(self.ours, self.theirs))

    def behind(self) -> list[str]:
        """In what logitloom is behind: in the median, or in the tail."""
        median, _, tail, _ = self.ratios()
        return [f"{name} {ratio:.2g} times" for name, ratio in (("median", median), ("p99", tail)) if ratio > 1.0]


def quantiles(values: Sequence[float] | np.ndarray) -> list[float]:
    """Median, p90, p99 and the greatest."""
    return [float(value) for value in np.quantile(values, QUANTILES)]


def shown(values: Sequence[float]) -> str:
    """Quantiles as a cell of a table, with three digits that matter."""
    return " / ".join(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values)


HEAD = ("work", "count", "ours: p50 / p90 / p99 / max", "theirs", "ours over theirs", "peer", "script")


def table(comparisons: Sequence[Comparison]) -> str:
    """All comparisons as a table in Markdown."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for each in comparisons:
        figures = (shown(quantiles(each.ours)), shown(quantiles(each.theirs)), shown(each.ratios()))
        name = f"{each.work}, {each.unit}"
        lines.append((name, str(len(each.ours)), *figures, each.peer, f"`{each.script}`"))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def losses(comparisons: Sequence[Comparison]) -> str:
    """The comparisons in which logitloom is behind, a line each; a sentence where there is none."""
    found = [f"- {each.work} ({each.peer}): {', '.join(each.behind())}" for each in comparisons if each.behind()]
    return "\n".join(found) or "In none of these."
