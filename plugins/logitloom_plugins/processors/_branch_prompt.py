"""Prompts of a second branch, as an option gives them: text or ids, one for all rows or one per prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from logitloom import Context
from logitloom.errors import InvalidContext, ModelError, OptionError
from logitloom.host.text_encoder import text_encoder
from logitloom_plugins.processors._token_table import check_ids

__all__ = ["BranchPrompt", "Prompt", "has_text", "normalized", "per_row", "shared_out"]

#: A text or its ids; a list of either; or a tokenizer's ``{"input_ids": ..., "attention_mask": ...}``.
BranchPrompt: TypeAlias = str | tuple[int, ...] | tuple[str | tuple[int, ...], ...] | Mapping[str, Any]

Prompt: TypeAlias = str | tuple[int, ...]

Value = TypeVar("Value")


def normalized(given: BranchPrompt, option: str, owner: str) -> tuple[Prompt, ...]:
    """The prompts as a ragged tuple, without the padding on either side.

    Raises:
        OptionError: if a prompt has no tokens, or ids and mask do not fit each other.
    """
    if isinstance(given, Mapping):
        prompts: list[Prompt] = list(_unpadded(given, option, owner))
    elif isinstance(given, str):
        prompts = [given]
    elif all(isinstance(part, int) for part in given):
        prompts = [tuple(part for part in given if isinstance(part, int) and part != -1)]
    else:
        prompts = [
            part if isinstance(part, str) else tuple(i for i in part if i != -1)
            for part in given
            if not isinstance(part, int)
        ]
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise OptionError(
                f"Option {option!r} of {owner!r}: prompt {number} has no tokens. A model needs at least one to "
                f"continue from, for example its beginning-of-sequence token."
            )
        if not isinstance(prompt, str) and min(prompt) < 0:
            raise OptionError(f"Option {option!r} of {owner!r} has the id {min(prompt)}; ids are never negative.")
    return tuple(prompts)


def _unpadded(given: Mapping[str, Any], option: str, owner: str) -> list[tuple[int, ...]]:
    if "input_ids" not in given:
        raise OptionError(
            f"Option {option!r} of {owner!r} is a table with {', '.join(map(repr, given)) or 'nothing'}; it needs "
            f"'input_ids', and where they are padded 'attention_mask'."
        )
    ids = _lists(given["input_ids"])
    mask = given.get("attention_mask")
    kept: list[list[int]] = [[token != -1 for token in row] for row in ids] if mask is None else _lists(mask)
    if [len(row) for row in ids] != [len(row) for row in kept]:
        raise OptionError(
            f"Option {option!r} of {owner!r}: input_ids have rows of {[len(row) for row in ids]} ids, but "
            f"attention_mask of {[len(row) for row in kept]}. Give both as the tokenizer returned them."
        )
    return [
        tuple(int(token) for token, real in zip(row, marks, strict=True) if real)
        for row, marks in zip(ids, kept, strict=True)
    ]


def _lists(table: Any) -> list[list[int]]:
    """Rows of integers from nested lists, or from an array of any library."""
    rows = table.tolist() if hasattr(table, "tolist") else list(table)
    if not rows or not hasattr(rows[0], "__iter__"):
        rows = [rows]
    return [[int(value) for value in row] for row in rows]


def has_text(prompts: Sequence[Prompt]) -> bool:
    """Whether a tokenizer is needed."""
    return any(isinstance(prompt, str) for prompt in prompts)


def per_row(prompts: Sequence[Prompt], context: Context, model: Any, option: str, owner: str) -> list[list[int]]:
    """The prompts as ids, one per row of the context.

    Raises:
        InvalidContext: as :func:`shared_out`, or if a text meets a model without tokenizer.
        OptionError: if an id lies outside the logits, or a prompt fills the model's context.
    """
    encoded = [_encoded(prompt, model, option, owner) for prompt in prompts]
    longest, most = max(map(len, encoded)), getattr(model, "max_length", None)
    if most is not None and longest >= most:
        raise OptionError(
            f"Option {option!r} of {owner!r} has a prompt of {longest} tokens, but the model takes {most} at most and "
            f"needs room to generate. Shorten the prompt."
        )
    check_ids([token for prompt in encoded for token in prompt], context.vocab_size, option, owner)
    return shared_out(encoded, context, option, owner)


def shared_out(values: Sequence[Value], context: Context, option: str, owner: str) -> list[Value]:
    """One value per row of the context.

    One value serves all rows. Several values serve as many prompts of the generation, in order; all beams or samples of
    a prompt stand side by side and share its value.

    Raises:
        InvalidContext: if the rows cannot be shared out among the values.
    """
    if len(values) == 1:
        return list(values) * context.batch
    each, left = divmod(context.batch, len(values))
    alike = context.prompt is None or all(
        len(set(context.prompt[i * each : (i + 1) * each])) <= 1 for i in range(len(values))
    )
    if left or not each or not alike:
        raise InvalidContext(
            f"Option {option!r} of {owner!r} has {len(values)} entries, but the generation has {context.batch} rows. "
            f"Give one for all, or one per prompt of the generation."
        )
    return [value for value in values for _ in range(each)]


def _encoded(prompt: Prompt, model: Any, option: str, owner: str) -> list[int]:
    if not isinstance(prompt, str):
        return list(prompt)
    tokenizer = None
    with suppress(ModelError):  # a model that was not loaded from a file
        tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise InvalidContext(
            f"Option {option!r} of {owner!r} is text, but the model has no tokenizer to encode it. Give token ids, "
            f"or the adapter of the engine its tokenizer."
        )
    return text_encoder(tokenizer).encode(prompt)
