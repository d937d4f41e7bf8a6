"""Pictures of byte automata: by Graphviz where its program ``dot`` is installed, else by matplotlib."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np

from logitloom.automata import DEAD, Dfa
from logitloom.automata.deterministic.edges import edges, label
from logitloom.errors import BackendMissing, OptionError
from logitloom.rows.atomic_file import write_whole

__all__ = ["MOST_STATES", "SMALLER", "draw"]

MOST_STATES: Final = 150
"""Larger graphs are refused: nobody could read them."""
SMALLER: Final = r"Draw a smaller pattern (fewer repeats, ASCII classes instead of \w and \d)."
"""What to do about a larger graph."""


def draw(dfa: Dfa, path: Path) -> None:
    """Draw an automaton into a file.

    Args:
        dfa: the automaton; its accepting states get two circles.
        path: ends in ``.svg`` or ``.png``.

    Raises:
        OptionError: for other files, automata of more than ``MOST_STATES`` states, and folders that do not exist.
        WriteError: the file cannot be written.
        BackendMissing: if neither Graphviz nor matplotlib is installed.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise OptionError(f"--draw writes .svg or .png files, but got {str(path)!r}.")
    if not path.parent.is_dir():
        raise OptionError(f"The folder {str(path.parent)!r} does not exist, so nothing can be drawn there. Create it.")
    if dfa.states > MOST_STATES:
        raise OptionError(
            f"The automaton has {dfa.states} states, and a picture of more than {MOST_STATES} cannot be read. {SMALLER}"
        )
    if shutil.which("dot") is not None and _with_graphviz(dfa, path, kind):
        return
    _with_matplotlib(dfa, path, kind)


def _with_graphviz(dfa: Dfa, path: Path, kind: str) -> bool:
    try:
        import graphviz
    except ImportError:
        return False
    graph = graphviz.Digraph(graph_attr={"rankdir": "LR"}, node_attr={"shape": "circle"})
    graph.node("start", "", shape="point")
    graph.edge("start", str(dfa.start))
    for state in range(dfa.states):
        graph.node(str(state), shape="doublecircle" if dfa.accepting[state] else "circle")
    for (state, after), values in edges(dfa).items():
        graph.edge(str(state), str(after), label=graphviz.escape(label(values)))
    write_whole(path, graph.pipe(format=kind))
    return True


def _with_matplotlib(dfa: Dfa, path: Path, kind: str) -> None:
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Circle, FancyArrowPatch
    except ImportError as error:
        raise BackendMissing(
            "Drawing needs Graphviz (its program 'dot' and the Python package) or matplotlib, and neither is "
            "installed: pip install 'logitloom[draw]'."
        ) from error
    coordinates = _layers(dfa)
    columns, rows = coordinates.max(axis=0) - coordinates.min(axis=0) + 2
    figure = Figure(figsize=(1.6 * columns + 0.5, 1.2 * rows + 0.5))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    for state, (x, y) in enumerate(coordinates.tolist()):
        for radius in (0.2, 0.16) if dfa.accepting[state] else (0.2,):
            axes.add_patch(Circle((x, y), radius, fill=False))
        axes.text(x, y, str(state), ha="center", va="center", fontsize=8)
    x, y = coordinates[dfa.start].tolist()
    axes.add_patch(FancyArrowPatch((x - 0.6, y), (x - 0.2, y), arrowstyle="-|>", mutation_scale=10))
    for (state, after), values in edges(dfa).items():
        _arrow(axes, FancyArrowPatch, coordinates[state].tolist(), coordinates[after].tolist(), label(values))
    axes.set_xlim(coordinates[:, 0].min() - 0.8, coordinates[:, 0].max() + 0.8)
    axes.set_ylim(coordinates[:, 1].min() - 0.8, coordinates[:, 1].max() + 0.8)
    axes.set_aspect("equal")
    axes.axis("off")
    picture = io.BytesIO()
    figure.savefig(picture, format=kind)
    write_whole(path, picture.getvalue())


def _layers(dfa: Dfa) -> Any:
    """``[states, 2]``: the distance from the start to the right, states of one distance above each other."""
    depth = {dfa.start: 0}
    order = [dfa.start]
    table = dfa.by_byte
    for state in order:
        for after in dict.fromkeys(table[state].tolist()):
            if after != DEAD and after not in depth:
                depth[after] = depth[state] + 1
                order.append(after)
    coordinates = np.zeros((dfa.states, 2))
    height: dict[int, int] = {}
    for state in [*order, *(s for s in range(dfa.states) if s not in depth)]:
        column = depth.get(state, 0)
        level = height[column] = height.get(column, -1) + 1
        coordinates[state] = column, (level + 1) // 2 * (-1) ** level
    return coordinates


def _arrow(axes: Any, patch: Any, begin: list[float], end: list[float], text: str) -> None:
    if begin == end:
        x, y = begin
        arrow = patch((x - 0.1, y + 0.18), (x + 0.1, y + 0.18), connectionstyle="arc3,rad=-1.8", arrowstyle="-|>",
                      mutation_scale=8)  # fmt: skip
        axes.text(x, y + 0.5, text, ha="center", fontsize=6)
    else:
        bend = 0.0 if begin[0] + 1 == end[0] else 0.3
        arrow = patch(begin, end, connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>", mutation_scale=8,
                      shrinkA=15, shrinkB=15)  # fmt: skip
        middle = [(a + b) / 2 for a, b in zip(begin, end, strict=True)]
        axes.text(middle[0], middle[1] + 0.06 - bend / 2, text, ha="center", fontsize=6)
    axes.add_patch(arrow)
