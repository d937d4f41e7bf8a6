"""A processor's step as one compiled function, for libraries that compile and keep each operation for each shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

from logitloom import Array, Backend, Context, Vocabulary

__all__ = ["as_one_function"]

S = TypeVar("S")
P = TypeVar("P")

#: The fields of a context that are arrays, and so arguments of a compiled step.
_ARRAYS = ("tokens", "chosen_logprob", "sequence", "length", "prompt_length")
#: How many compiled steps are kept, a few megabytes each.
_MOST_STEPS = 128

Process = Callable[[P, Array, S, Context], tuple[Array, S]]


def as_one_function(process: Process[P, S]) -> Process[P, S]:
    """A decorator for ``process`` of a processor with many operations.

    Where the backend says ``compiles_operations``, and outside compiled functions, the step runs as one compiled
    function for each shape of its arrays; the last 128 are kept. Elsewhere the step runs as it is.

    The processor must be hashable. Of the context ``process`` may read the arrays, ``vocab_size``, and the vocabulary
    (where the processor needs one).
    """

    @wraps(process)
    def step(self: P, logits: Array, state: S, context: Context) -> tuple[Array, S]:
        backend = context.backend
        if not backend.compiles_operations or context.compiled or not backend.has_values(logits):
            return process(self, logits, state, context)
        arrays = [getattr(context, name) for name in _ARRAYS]
        shapes = tuple(None if array is None else (array.shape, str(array.dtype)) for array in (logits, *arrays))
        needs: frozenset[str] = self.needs  # type: ignore[attr-defined]
        vocabulary = context.vocabulary if "vocabulary" in needs else None
        compiled = _compiled(process, self, backend, vocabulary, context.vocab_size, shapes)
        out, after = compiled(logits, state, *arrays)
        return out, after

    return step


@lru_cache(maxsize=_MOST_STEPS)
def _compiled(
    process: Process[Any, Any],
    processor: Any,
    backend: Backend,
    vocabulary: Vocabulary | None,
    vocab_size: int,
    shapes: tuple[Any, ...],
) -> Callable[..., tuple[Array, Any]]:
    """A separate function for each combination of shapes, so that its compiled code is dropped together with it."""
    del shapes
    inside = Context(backend=backend, batch=0, vocab_size=vocab_size, vocabulary=vocabulary, compiled=True)

    def run(logits: Array, state: Any, *arrays: Array | None) -> tuple[Array, Any]:
        return process(processor, logits, state, inside.with_fields(**dict(zip(_ARRAYS, arrays, strict=True))))

    return backend.compile(run)
