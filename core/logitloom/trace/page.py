"""The record as a page: one file of HTML with its data, scripts and styles inside."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any, Final

from logitloom.errors import OptionError
from logitloom.rows.atomic_file import write_whole
from logitloom.trace.automaton_states import AutomatonState
from logitloom.trace.distribution import Change, ChosenToken, Distribution
from logitloom.trace.step_tree import Step, StepTree, TracedSequence

__all__ = ["check_target", "data", "write"]

#: Characters shown of one token.
_MOST_CHARACTERS: Final = 40


def check_target(path: Path) -> None:
    """Raise unless a page can be written there.

    Raises:
        OptionError: for a file that does not end in ``.html``, or a folder that does not exist.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise OptionError(f"A trace is written as a page, a file that ends in .html, but got {str(path)!r}.")
    if not path.parent.is_dir():
        raise OptionError(f"The folder {str(path.parent)!r} does not exist, so no trace can be written. Create it.")


def write(record: StepTree, path: Path, beside: StepTree | None = None) -> None:
    """Write the page.

    Args:
        record: the record to show.
        path: the file.
        beside: another run to compare with.

    Raises:
        OptionError: as :func:`check_target`.
        WriteError: the page cannot be written; an existing file is unchanged.
    """
    check_target(path)
    template = resources.files("logitloom.trace").joinpath("page.html").read_text(encoding="utf-8")
    # "<" could end the script element that holds the data.
    shown = data(record) | ({} if beside is None else {"beside": data(beside)})
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    # Half a surrogate pair, which some tokens are, is written as JSON's escape for it.
    write_whole(path, template.replace("__TRACE__", text).encode("utf-8", "backslashreplace"))


def data(record: StepTree) -> dict[str, Any]:
    """What the page shows, as plain data."""
    sequences = record.sequences
    followed = {step.number: step for sequence in sequences for step in sequence.steps}
    others: dict[int, list[list[int]]] = {}
    for step in record.steps:
        if step.number not in followed and step.parent in followed and step.accepted:
            others.setdefault(step.parent, []).append(list(step.accepted))
    index = {number: i for i, number in enumerate(followed)}
    return {
        "labels": list(record.labels),
        "steps": [_step(step, others.get(number, [])) for number, step in followed.items()],
        "sequences": [_sequence(record, sequence, index) for sequence in sequences],
        "missed": record.missed,
        "abandoned": len(record.steps) - len(followed),
        "tokens": _tokens(record, followed.values(), sequences, others),
        "automata": _automata(record, followed.values()),
    }


def _step(step: Step, others: list[list[int]]) -> dict[str, Any]:
    found: dict[str, Any] = {"before": _distribution(step.before), "changes": [_change(c) for c in step.changes]}
    return found | ({"others": others} if others else {})


def _distribution(d: Distribution) -> dict[str, Any]:
    return {"legal": d.legal, "entropy": round(d.entropy, 4), "top": [[i, _rounded(p)] for i, p in d.top]}


def _change(c: Change) -> dict[str, Any]:
    found = _distribution(c.after) | {
        "removed": c.removed, "mass": _rounded(c.mass), "shift": _rounded(c.shift), "ms": round(c.seconds * 1e3, 3),
    }  # fmt: skip
    return found if c.state is None else found | {"state": c.state}


def _rounded(p: float) -> float:
    return float(f"{p:.4g}")


def _sequence(record: StepTree, sequence: TracedSequence, index: dict[int, int]) -> dict[str, Any]:
    return {
        "name": sequence.name,
        "prompt": record.vocabulary.decode(sequence.prompt) if record.vocabulary is not None else None,
        "steps": [index[step.number] for step in sequence.steps],
        "chosen": [list(each) for each in sequence.chosen],
        "origins": ["".join(origin[0] for origin in each) for each in sequence.origins],
        "choices": [_choice(choice) for choice in sequence.choices],
        "leading": list(sequence.leading),
        "finish": sequence.finish,
        "text": sequence.text,
    }


def _choice(choice: ChosenToken | None) -> list[Any] | None:
    """Log-probability after and before the chain (none for a forbidden token), rank after and before."""
    if choice is None:
        return None
    logs = [round(x, 4) if math.isfinite(x) else None for x in (choice.logprob, choice.logprob_before)]
    return [*logs, choice.rank, choice.rank_before]


def _tokens(
    record: StepTree, steps: Any, sequences: list[TracedSequence], others: dict[int, list[list[int]]]
) -> dict[int, str]:
    """The text of each id that occurs."""
    ids = {i for step in steps for d in (step.before, *(c.after for c in step.changes)) for i, _ in d.top}
    ids |= {i for sequence in sequences for each in (sequence.leading, *sequence.chosen) for i in each}
    ids |= {i for lists in others.values() for each in lists for i in each}
    return {i: _shown(record, i) for i in sorted(ids)}


def _shown(record: StepTree, token: int) -> str:
    vocabulary = record.vocabulary
    if vocabulary is None or token >= vocabulary.size:
        return f"#{token}"
    if token in vocabulary.special_text:
        return vocabulary.special_text[token]
    data = vocabulary.token_bytes[token]
    if not data:
        return f"#{token}"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = " ".join(f"0x{byte:02x}" for byte in data)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _automata(record: StepTree, steps: Iterable[Step]) -> dict[str, dict[int, Any]]:
    """Per constraint of the chain, the states visited at these steps, with the bytes that lead on from each state."""
    steps = list(steps)
    found: dict[str, dict[int, Any]] = {}
    for index, name in enumerate(record.labels):
        if name in record.automata:
            numbers = {step.changes[index].state for step in steps}
            states = record.automata[name]
            found[name] = {number: _state(states[number]) for number in sorted(states) if number in numbers}
    return found


def _state(state: AutomatonState) -> dict[str, Any]:
    return {"accepting": state.accepting, "edges": [list(edge) for edge in state.edges], "more": state.more}
