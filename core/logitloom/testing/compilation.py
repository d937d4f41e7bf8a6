"""Steps inside a compiler: every state is flattened to arrays, so that any tree goes through any compiler."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from logitloom.arrays.backend import Array, Backend
from logitloom.chain import Chain, ChainState
from logitloom.context import Context
from logitloom.rows import tree as row_state
from logitloom.testing.stories import telling

__all__ = ["compiled", "compiled_step"]

Step = Callable[[Array, ChainState, Array], tuple[Array, ChainState]]


def compiled(backend: Backend, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled as a whole, as cheaply as the library can.

    A library that first captures a graph and then makes machine code of it is asked for the graph alone: whether one
    graph without breaks comes out is what a plug-in can get wrong, and machine code takes seconds per function.
    """
    if backend.name == "torch":
        torch = importlib.import_module("torch")
        torch.compiler.reset()  # checks compile other things under one function's name
        found: Callable[..., Any] = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=False)
        return found
    return backend.compile(function)


def compiled_step(chain: Chain, state: ChainState, context: Context) -> Step:
    """``chain.process`` compiled for states like ``state`` and tokens of one shape."""

    def step(logits: Array, leaves: list[Array], tokens: Array) -> tuple[Array, list[Array]]:
        given = iter(leaves)
        after: list[Array] = []
        at = row_state.map_leaves(lambda _: next(given), state)
        logits, at = chain.process(logits, at, telling(chain, context.with_fields(tokens=tokens)))
        row_state.map_leaves(after.append, at)
        return logits, after

    inside = compiled(context.backend, step)

    def call(logits: Array, at: ChainState, tokens: Array) -> tuple[Array, ChainState]:
        leaves: list[Array] = []
        row_state.map_leaves(leaves.append, at)
        out, after = inside(logits, leaves, tokens)
        found = iter(after)
        return out, row_state.map_leaves(lambda _: next(found), at)

    return call
