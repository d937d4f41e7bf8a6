"""The record as a static figure, for notebooks and papers."""

from __future__ import annotations

from typing import Any

import numpy as np

from logitloom.errors import BackendMissing, SequenceIndexError
from logitloom.trace.step_tree import StepTree

__all__ = ["plot"]


def plot(record: StepTree, sequence: int = 0) -> Any:
    """A figure of one sequence: mass removed per processor and step above, entropy before and after below.

    Raises:
        BackendMissing: if matplotlib is not installed.
        SequenceIndexError: if there is no such sequence.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendMissing("Plotting a trace needs matplotlib: pip install 'logitloom[draw]'.") from error
    sequences = record.sequences
    if not 0 <= sequence < len(sequences):
        raise SequenceIndexError(f"The record has {len(sequences)} sequences, so there is none with number {sequence}.")
    steps = sequences[sequence].steps
    mass = np.array([[change.mass for change in step.changes] for step in steps]).reshape(len(steps), -1).T
    height = 2.2 + 0.35 * max(len(record.labels), 1)
    figure = Figure(figsize=(min(4 + 0.12 * len(steps), 14), height), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(max(len(record.labels), 1), 3))
    image = upper.imshow(mass, aspect="auto", cmap="magma_r", vmin=0, vmax=1, interpolation="nearest")
    upper.set_yticks(range(len(record.labels)), record.labels)
    figure.colorbar(image, ax=upper, label="mass removed")
    lower.plot([step.before.entropy for step in steps], label="before the chain")
    lower.plot([step.after.entropy for step in steps], label="after it")
    lower.set_xlabel("step")
    lower.set_ylabel("entropy, bits")
    lower.set_ylim(bottom=0)
    lower.legend(frameon=False)
    return figure
