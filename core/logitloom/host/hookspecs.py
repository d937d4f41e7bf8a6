"""Every hook of logitloom. An implementation may take fewer of the arguments than the specification names.

A method (or module function) named like a hook implements it; the ``@hookimpl`` marker is optional and only
needed to give pluggy options. Signatures are checked when a plug-in is loaded.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import pluggy

from logitloom.arrays.backend import Array, Backend
from logitloom.context import Context
from logitloom.vocabulary import Vocabulary

__all__ = [
    "INTERFACE_VERSIONS",
    "TextEnd",
    "backend_adapter",
    "branch_prompts",
    "constraint",
    "encode_text",
    "forced_tokens",
    "hookimpl",
    "hookspec",
    "init_state",
    "process",
    "states_after",
    "text_end",
    "vocabulary",
    "vocabulary_version",
]


class TextEnd(NamedTuple):
    """Where the text of one row ends.

    Attributes:
        finished: the row must not go on.
        hold: number of bytes at the end of the row's output so far that do not belong to its text (if it is
            finished), or may turn out not to belong to it (a stream must not show these bytes yet).
    """

    finished: bool
    hold: int


#: The versions of this interface that the host can work with. Additions (a hook, an argument at the end, a need) do not
#: make a new version; removals and changed meanings do, a version after they were deprecated.
INTERFACE_VERSIONS = (1,)

#: Marks the specification of a hook.
hookspec = pluggy.HookspecMarker("logitloom")
#: Marks the implementation of a hook. The marker is optional and takes options of pluggy.
hookimpl = pluggy.HookimplMarker("logitloom")


@hookspec
def init_state(context: Context) -> Any:
    """Make the state of a new generation (processors; optional, default: no state).

    Called once per generation, before the first step. Everything that varies per sequence goes into the
    state; tables shared by all sequences stay in the processor.

    Args:
        context: has ``backend``, ``batch``, ``vocab_size`` and, as far as the caller gave them,
            ``vocabulary``, ``prompt``, ``max_length``, ``seed``, ``model``. ``tokens`` is None.

    Returns:
        A row tree (tuples, named tuples, dictionaries) whose leaves are arrays ``[batch, ...]`` on
        ``context.backend`` or :class:`logitloom.rows.tree.Rows`. Structure, shapes and dtypes stay fixed from
        here on. ``()`` for no state.

    Raises:
        LogitloomError: if the context lacks something, with a sentence that says what.
    """


@hookspec
def process(logits: Array, state: Any, context: Context) -> tuple[Array, Any]:  # type: ignore[empty-body]
    """Advance the state by the newly accepted tokens, then change the logits (processors).

    A pure function: the same arguments give the same results, nothing outside is changed, and the inputs are
    left as they were unless ``context.donate`` is true. Every row is computed from that row alone, so rows may be
    reordered, duplicated, dropped, joined and rolled back between calls.

    Args:
        logits: ``[rows, vocab]``, any floating dtype (``[branches * rows, vocab]`` if the processor declares
            ``branches``).
        state: what ``init_state`` or an earlier ``process`` returned, after any movement of rows.
        context: ``context.tokens`` is ``[rows, n]`` integers, the tokens each row accepted since its state
            was made (-1 = none, anywhere in the row), or None on the first call.

    Returns:
        The logits (``[rows, vocab]``, same library, dtype and device; the very input or a fresh array, never one
        that the state holds) and the new state. An implementation that does not take ``state`` returns the
        logits alone.

    Raises:
        LogitloomError: if a row cannot go on; names the row.
    """


@hookspec
def states_after(state: Any, context: Context) -> Any:
    """The states after none, one, two, ... of the accepted tokens (processors; optional).

    Asked where many positions of known sequences are processed at once, as when they are scored. Without it
    the tokens before each position are accepted anew.

    Args:
        state: from ``init_state`` or ``process``.
        context: ``context.tokens`` is ``[rows, n]``, what each row accepted since (-1 = none).

    Returns:
        A state of ``(n + 1) * rows`` rows: first all rows before the tokens, then all rows after the first token of
        each, and so on; each as ``process`` would return it for these tokens.

    Raises:
        IllegalToken: if a token is not allowed; its ``row`` is the row of the result.
    """


@hookspec
def branch_prompts(context: Context) -> list[list[list[int]]]:  # type: ignore[empty-body]
    """The prompts of the further branches of each sequence (guidance that declares several ``branches``).

    Asked once, at the start. The loop feeds all branches in one pass, each with its own prompt, and every accepted
    token to all of them. ``process`` then gets ``[branches * rows, vocab]`` logits: first the logits of all rows after
    their own prompts, then the logits of all rows after the prompts of the first further branch, and so on.
    ``process`` returns one row of logits per sequence.

    Args:
        context: as for :func:`init_state`.

    Returns:
        Per further branch (``branches - 1`` of them) the token ids of each row's prompt, at least one id each.

    Raises:
        LogitloomError: if the context lacks something, with a sentence that says what.
    """


@hookspec(firstresult=True)
def backend_adapter(library: str) -> Backend | None:
    """The backend for an array library (array backends). The first result that is not None wins.

    Args:
        library: name of the library (``"torch"``), equal to the plug-in's own name.

    Returns:
        A :class:`logitloom.arrays.backend.Backend` on the library's default device, or None.
    """


@hookspec(firstresult=True)
def vocabulary(tokenizer: Any) -> Vocabulary | None:
    """Read a tokenizer (tokenizer readers). The first result that is not None wins.

    Must be cheap for tokenizers of other libraries and import nothing to find that out.

    Args:
        tokenizer: a tokenizer object of any library, or a path.

    Returns:
        The exact bytes of every token, or None if the tokenizer is of another kind.

    Raises:
        VocabularyError: if the tokenizer is of this reader's kind but its bytes cannot be told exactly.
    """


@hookspec(firstresult=True)
def vocabulary_version(tokenizer: Any) -> Hashable | None:
    """What tells whether a tokenizer changed since it was read (tokenizer readers; optional, default: read each time).

    Asked of the same tokenizer object again and again, so it must be much cheaper than reading. An object whose
    version is the same as before is not read again.

    Args:
        tokenizer: as for :func:`vocabulary`.

    Returns:
        A value that changes whenever ``vocabulary`` would give another result for this object, such as its number of
        tokens, its added tokens and its end-of-sequence ids. None to have the object read each time, and for
        tokenizers of another kind.
    """


@hookspec(firstresult=True)
def encode_text(tokenizer: Any, text: str) -> list[int] | None:
    """The ids of a text as the prompt of a model (tokenizer readers; optional, default: ``tokenizer.encode(text)``).

    Args:
        tokenizer: as for :func:`vocabulary`.
        text: any text; the host passes an empty text to find the reader that knows the tokenizer.

    Returns:
        The ids, with the special tokens that the tokenizer puts around a text; None for tokenizers of another kind.

    Raises:
        VocabularyError: if the tokenizer is of this reader's kind and cannot encode.
    """


@hookspec
def constraint(vocabulary: Vocabulary, vocab_size: int) -> Any:
    """The constraint that the processor is (constraints; optional).

    Combinators, decoding loops and engines that must know which tokens a processor allows call this hook, also for
    processors of other distributions. The processor's masks are those of the constraint, and it changes no other
    logits. In host memory the processor raises :class:`logitloom.errors.IllegalToken` for a row that was fed a token
    which the constraint does not allow, before it writes anything.

    Args:
        vocabulary: the bytes of each id.
        vocab_size: width of the model's logits.

    Returns:
        A :class:`logitloom.constraints.Constraint`.

    Raises:
        LogitloomError: if there is none within the budget, or the vocabulary cannot write its texts.
    """


@hookspec
def forced_tokens(state: Any, context: Context) -> list[list[int]] | None:
    """The tokens that must come next in each row (constraints; optional).

    A question, asked between two steps; it changes nothing.

    Args:
        state: from ``init_state`` or ``process``.
        context: ``context.tokens`` holds what each row accepted since the state was made, as for ``process``
            (None = nothing); the answer is about what comes after those tokens.

    Returns:
        Per row, the run of tokens that every legal continuation starts with (possibly empty), or None if
        nothing is known. Only tokens that are the *one* legal token at their position may be given. An
        end-of-sequence token can only be the last of a run.
    """


@hookspec
def text_end(state: Any, context: Context) -> list[TextEnd] | None:
    """Where the text of each row ends, or may turn out to end (constraints that stop; optional).

    A question, asked between two steps like :func:`forced_tokens`; it changes nothing.

    Args:
        state: from ``init_state`` or ``process``.
        context: ``context.tokens`` holds what each row accepted since the state was made.

    Returns:
        Per row a :class:`TextEnd`, or None if this processor never ends a text.
    """
