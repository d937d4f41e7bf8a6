"""The links of a chain: its processors in order, each configured or still waiting for options."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logitloom.arguments import shown
from logitloom.arrays.backend import Array
from logitloom.context import Context
from logitloom.contract import Constraint, check_constraint
from logitloom.display.progress import waiting
from logitloom.effect import Effect
from logitloom.errors import InvalidSignature, LogitloomError, OptionError, StageOrderError
from logitloom.host import options as opts
from logitloom.host.loading import loading
from logitloom.host.plugin_manager import implementations
from logitloom.processor import NEEDS, STAGES, declaration
from logitloom.vocabulary import Vocabulary

__all__ = ["FunctionProcessor", "Link", "check_declarations", "check_order"]

#: Arguments of functions that are written for something else.
_NEITHER = frozenset({"ids", "input_ids", "state", "token_ids", "tokens"})


def _wanted(function: Callable[..., Array]) -> list[inspect.Parameter]:
    """The parameters that a call must give."""
    try:
        wanted = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    except ValueError:  # a built-in function of C
        pass
    else:
        names_none = wanted and all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in wanted)
        # Callable objects of libraries, such as numpy.tanh and modules of PyTorch, may name none of their parameters.
        if inspect.isroutine(function) or not names_none:
            return wanted
    return [inspect.Parameter("logits", inspect.Parameter.POSITIONAL_ONLY)]


class FunctionProcessor:
    """A plain function of ``logits`` or ``(logits, context)`` as a stateless processor."""

    __slots__ = ("_with_context", "function")

    def __init__(self, function: Callable[..., Array]) -> None:
        wanted = _wanted(function)
        names = [p.name for p in wanted]
        positional = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in wanted)
        if not positional or not 1 <= len(names) <= 2 or names[0] == "context" or not _NEITHER.isdisjoint(names):
            raise InvalidSignature(
                f"A processor function takes (logits) or (logits, context), but {_name_of(function)} takes "
                f"({', '.join(names)}). For tokens or state write a class with init_state and process."
            )
        self.function = function
        self._with_context = len(names) == 2

    def process(self, logits: Array, state: Any, context: Context) -> tuple[Array, Any]:
        """Call the function."""
        return (self.function(logits, context) if self._with_context else self.function(logits)), state


@dataclass(frozen=True)
class Link:
    """One processor of a chain, or, until all required options are given, its class and the options so far.

    Attributes:
        label: unique in the chain; the plug-in's name, with ``#2`` and so on where a name is repeated.
        plugin: the name by which the processor was loaded (``name`` or ``name@distribution``), None for objects and
            functions.
        factory: the class, if the processor was loaded by name.
        options: the options given so far, checked.
        processor: the configured processor, or None while required options are missing.
        block: names of plug-ins that must not be loaded when the processor is configured.
    """

    label: str
    plugin: str | None
    factory: Any
    options: dict[str, Any] = field(default_factory=dict)
    processor: Any = None
    block: frozenset[str] = frozenset()

    def given(self, more: Mapping[str, Any]) -> Link:
        """The same link with more, or other, options; configured if nothing is missing."""
        checked = {**self.options, **opts.check(self.factory, more, self.label)}
        ready = not opts.missing(self.factory, checked)
        with loading(block=self.block), waiting(f"compiling {self.label!r}"):
            processor = self._made(checked) if ready else None
        return dataclasses.replace(self, options=checked, processor=processor)

    def _made(self, checked: dict[str, Any]) -> Any:
        """The processor with its options. An exception that the processor's own checks do not cover is reported as an
        error of the options.
        """
        try:
            return self.factory(**checked)
        except LogitloomError:
            raise
        except RecursionError:
            raise OptionError(
                f"An option of the processor {self.label!r} is nested too deeply. Nest it less."
            ) from None
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise OptionError(
                f"Processor {self.label!r} cannot be made with these options: {type(error).__name__}: {error!s:.300}."
            ) from error

    @property
    def told_options(self) -> dict[str, str]:
        """The options as shown to users: the given options, shortened, and ``?`` for missing options."""
        told = {name: shown(value) for name, value in self.options.items()}
        if self.factory is None and self.processor is not None:
            defaults = {o.name: shown(o.default) for o in opts.declared(self.processor) if not o.required}
            values = {name: shown(value) for name, value in opts.values(self.processor).items()}
            told = {name: value for name, value in values.items() if value != defaults.get(name)}
        return told | dict.fromkeys(self.missing, "?")

    @property
    def missing(self) -> tuple[str, ...]:
        """Required options that were not given yet."""
        return opts.missing(self.factory, self.options) if self.processor is None else ()

    @property
    def sees_every_step(self) -> bool:
        """Whether the processor's state depends on more than the tokens: on logits or on probabilities of each step."""
        return bool(self.declared("sees_every_step")) or "chosen_logprob" in self.declared("needs")

    @property
    def effect(self) -> Effect:
        """The declared effect of the processor on a row."""
        found: Effect = self.declared("effect")
        return found

    @property
    def is_constraint(self) -> bool:
        """Whether the processor implements the hook ``constraint``."""
        return getattr(self.processor, "constraint", None) is not None

    def constraint(self, vocabulary: Vocabulary, vocab_size: int) -> Constraint:
        """The answer of the processor to the hook ``constraint``.

        Raises:
            InvalidSignature: if the answer is no :class:`logitloom.constraints.Constraint` for logits of this width.
            LogitloomError: if there is no constraint within the budget, or the vocabulary cannot write its texts.
        """
        find = implementations(self.processor, self.label, required="process")["constraint"]
        found: Constraint = find(vocabulary, vocab_size)
        check_constraint(found, self.label, vocab_size)
        return found

    def declared(self, name: str) -> Any:
        """A declaration (``stage``, ``needs``, ...) of the processor, or of its class while unconfigured."""
        return declaration(self.factory if self.processor is None else self.processor, name)


def check_declarations(links: Sequence[Link]) -> None:
    """Raise unless the declarations of processors have the types that the host reads.

    Raises:
        InvalidSignature: naming the processor, the declaration and the remedy.
    """
    for link in links:
        opts.declared(link.factory if link.processor is None else link.processor)
        needs, effect, branches = (link.declared(name) for name in ("needs", "effect", "branches"))
        declares = f"Processor {link.label!r} declares"
        if isinstance(needs, str) or not isinstance(needs, Iterable):
            name = needs if isinstance(needs, str) else "length"
            raise InvalidSignature(
                f"{declares} the needs {shown(needs)}, which is no set of names. Write frozenset({{{name!r}}})."
            )
        if set(needs) - set(NEEDS):
            raise InvalidSignature(
                f"{declares} the needs {sorted(set(needs) - set(NEEDS))}; known are {sorted(NEEDS)}."
            )
        if not isinstance(effect, Effect):
            raise InvalidSignature(
                f"{declares} the effect {shown(effect)}, which is no logitloom.Effect. Give a preset, such as MASK or "
                f"PENALTY, or leave the declaration out."
            )
        if not isinstance(branches, int) or branches < 1:
            raise InvalidSignature(
                f"{declares} {shown(branches)} branches, but must take a whole number of rows of at least 1."
            )


def check_order(links: Sequence[Link]) -> None:
    """Raise unless guidance comes first, and what takes several branches very first.

    Raises:
        StageOrderError: naming the late processor, the reason and the right order.
    """
    stages = [link.declared("stage") for link in links]
    for link, stage in zip(links, stages, strict=True):
        if stage not in STAGES:
            raise StageOrderError(f"Processor {link.label!r} declares the stage {stage!r}; stages are {STAGES}.")
    leading = next((i for i, stage in enumerate(stages) if stage != "guidance"), len(stages))
    late = [link.label for link, stage in zip(links[leading:], stages[leading:], strict=True) if stage == "guidance"]
    if late:
        order = sorted(links, key=lambda link: link.declared("stage") != "guidance")
        raise StageOrderError(
            f"Guidance must come first, but {late[0]!r} stands after {links[leading].label!r}: what runs before "
            f"guidance acts on one branch only, and the branches could keep different tokens. "
            f"The right order is {', '.join(repr(link.label) for link in order)}."
        )
    branched = [link.label for link in links[1:] if link.declared("branches") > 1]
    if branched:
        raise StageOrderError(
            f"Processor {branched[0]!r} takes several rows of logits per sequence, so it must be the very first."
        )


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", repr(function))
