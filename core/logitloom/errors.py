"""Every error that logitloom raises on purpose, and every warning.

Each class derives from :class:`LogitloomError` and, where one fits, from the built-in error that a
caller without knowledge of logitloom would catch. Messages are sentences that say what was given, where it was given,
and what to do about it.
"""

from __future__ import annotations

__all__ = [
    "BackendMissing",
    "BackendUnsupported",
    "BatchMismatchError",
    "BudgetExceeded",
    "ChainDocumentError",
    "ChainIncomplete",
    "ContextLengthExceeded",
    "DuplicatePlugin",
    "DuplicatePluginWarning",
    "GenerationError",
    "IllegalToken",
    "InterfaceMismatch",
    "InvalidContext",
    "InvalidLogits",
    "InvalidResult",
    "InvalidSignature",
    "LogitloomDeprecationWarning",
    "LogitloomError",
    "LogitloomWarning",
    "MissingOption",
    "ModelError",
    "NeedsNotMet",
    "NoLegalToken",
    "OptionError",
    "OptionTypeError",
    "PluginBlocked",
    "PluginImportError",
    "PromptTypeError",
    "SampleMismatchError",
    "ScaffoldError",
    "SequenceIndexError",
    "SlicingError",
    "StageOrderError",
    "StateMismatch",
    "UnknownOption",
    "UnknownPlugin",
    "UnsupportedGrammar",
    "UnsupportedPattern",
    "UnsupportedSchema",
    "VocabularyError",
    "WriteError",
]


class LogitloomError(Exception):
    """Base class of all errors raised by logitloom."""


class LogitloomWarning(UserWarning):
    """logitloom goes on, perhaps not in the way that the caller intended; base class of all such warnings."""


class UnknownPlugin(LogitloomError, LookupError):
    """No plug-in of that kind has that name."""


class DuplicatePlugin(LogitloomError, ValueError):
    """Two distributions (or two registrations) claim one plug-in name."""


class DuplicatePluginWarning(LogitloomWarning):
    """A distribution has a plug-in of a built-in's name. The built-in is used; the other is ``name@distribution``."""


class LogitloomDeprecationWarning(DeprecationWarning):
    """Something still works and will not after the next version of the plug-in interface; the text says what to use."""


class InterfaceMismatch(LogitloomError, ImportError):
    """A plug-in was written for a version of the plug-in interface that this logitloom does not have."""


class PluginBlocked(LogitloomError, LookupError):
    """The plug-in exists but was blocked by an argument or by the environment."""


class PluginImportError(LogitloomError, ImportError):
    """A plug-in could not be imported; ``__cause__`` is the reason."""


class InvalidSignature(LogitloomError, TypeError):
    """A hook implementation does not fit its hook specification."""


class InvalidResult(LogitloomError, ValueError):
    """A processor returned values that no processor may return, or changed what it was given."""


class OptionError(LogitloomError, ValueError):
    """An option of a plug-in has a value outside its range."""


class UnknownOption(OptionError):
    """A plug-in has no option of that name."""


class MissingOption(OptionError):
    """A plug-in was built without an option that it requires."""


class OptionTypeError(OptionError, TypeError):
    """An option of a plug-in has a value of the wrong type."""


class StageOrderError(LogitloomError, ValueError):
    """The processors of a chain stand in an order that gives wrong results."""


class ChainIncomplete(LogitloomError, ValueError):
    """A chain was started while options or resources were still missing."""


class ChainDocumentError(LogitloomError, ValueError):
    """A chain cannot be written as, or read from, a TOML or JSON document."""


class NeedsNotMet(LogitloomError, ValueError):
    """A processor needs something that the caller or the engine does not give."""


class InvalidContext(LogitloomError, ValueError):
    """A context record contradicts itself or the logits it came with."""


class StateMismatch(LogitloomError, ValueError):
    """A state has another structure, shape or dtype than ``init_state`` fixed."""


class BackendMissing(LogitloomError, LookupError):
    """No backend plug-in handles arrays of that library."""


class BackendUnsupported(LogitloomError, NotImplementedError):
    """The array library of this backend does not support the requested operation."""


class VocabularyError(LogitloomError, ValueError):
    """A tokenizer could not be read, or a vocabulary contradicts itself."""


class ModelError(LogitloomError, ValueError):
    """A model file could not be read, or a model was called with arguments it cannot take."""


class GenerationError(LogitloomError, ValueError):
    """A decoding loop was given arguments that contradict each other."""


class NoLegalToken(LogitloomError, RuntimeError):
    """Every token of a row is forbidden; names the row and the processor that closed it."""


class InvalidLogits(LogitloomError, ValueError):
    """The processed logits of a row are no distribution: one of them is NaN or +inf; names row and step."""


class IllegalToken(LogitloomError, ValueError):
    """A row accepted a token that a constraint forbids.

    Attributes:
        row: the index of the row in the batch.
        rows: all rows that accepted a forbidden token, ``row`` among them.
    """

    def __init__(self, message: str, row: int, rows: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.row = row
        self.rows = rows or (row,)

    def __reduce__(self) -> tuple[type[IllegalToken], tuple[str, int, tuple[int, ...]]]:
        """All arguments: engines send errors between processes, and an exception tells only of its first."""
        return type(self), (str(self), self.row, self.rows)


class UnsupportedGrammar(LogitloomError, ValueError):
    """A grammar is malformed, or has constructs that its engine cannot enforce; shows the line.

    Attributes:
        line: line of the grammar's text, from 1; ``None`` if the error belongs to no line.
        column: column of that line, from 1.
    """

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class UnsupportedPattern(LogitloomError, ValueError):
    """A pattern uses a construct that is not regular; names construct and position."""


class UnsupportedSchema(LogitloomError, ValueError):
    """A schema is malformed, or has keywords that cannot be enforced; names each keyword and its JSON pointer.

    Attributes:
        problems: keyword, JSON pointer and reason of each keyword that cannot be enforced, where that is known.
    """

    problems: tuple[tuple[str, str, str], ...] = ()


class BudgetExceeded(LogitloomError, RuntimeError):
    """A compilation needed more states, bytes or seconds than its budget allows."""


class WriteError(LogitloomError, OSError):
    """A file cannot be written; its previous content is unchanged."""


class BatchMismatchError(GenerationError):
    """Sequences, or a sequence and texts, were added whose numbers of prompts differ."""


class ContextLengthExceeded(GenerationError):
    """A sequence already fills the model's context, so it cannot be continued."""


class PromptTypeError(LogitloomError, TypeError):
    """A continuation was asked of something that is neither text, token ids nor a sequence state."""


class SampleMismatchError(GenerationError):
    """Two sequence states, or a state and a generator, have different numbers of samples per prompt."""


class SequenceIndexError(LogitloomError, IndexError):
    """A sequence state was indexed with the wrong number of axes, or outside one of them."""


class ScaffoldError(LogitloomError, ValueError):
    """A new distribution cannot be written: its name will not do, or something is there already."""


class SlicingError(GenerationError):
    """A slice of a sequence leaves nothing that its key-value cache could keep; handled inside."""
