"""Load processors by name and chain them: the facade that applications use.

Example:
    >>> from logitloom import processors
    >>> chain = processors.load(("top_k", {"k": 5}), "temperature", options={"temperature": {"temperature": 0.7}})
    >>> chain
    <Chain top_k(k=5) -> temperature(temperature=0.7)>
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Never

from logitloom.arguments import flag, instance, shown
from logitloom.chain import Chain
from logitloom.chain.links import FunctionProcessor, Link, check_declarations
from logitloom.effect import Effect
from logitloom.errors import InvalidSignature, OptionTypeError, UnknownOption, UnknownPlugin
from logitloom.host import options as opts
from logitloom.host import registry
from logitloom.host.entry_points import PluginName
from logitloom.host.loading import Rules, loading
from logitloom.host.option_types import BuiltInName, BuiltInOptions
from logitloom.host.registry import register, unregister
from logitloom.processor import Processing, declaration

__all__ = ["Description", "Spec", "available", "describe", "load", "register", "unregister"]

#: A name, a configured processor, a class, a function of logits, a link of another chain, or a pair of one of them and
#: its options. Type checkers know the names and options of the built-in processors in pairs; to them, options of others
#: stand in ``options``, or in a list, ``["theirs", {...}]``.
Spec = (
    str
    | Processing
    | type[Any]
    | Callable[..., Any]
    | Link
    | list[Any]
    | tuple[BuiltInName | Processing | type[Any] | Callable[..., Any] | Link, BuiltInOptions]
)


@dataclass(frozen=True)
class Description:
    """The declarations, options and documentation of one processor.

    Attributes:
        name: the plug-in's name.
        summary: the first line of its documentation.
        doc: the whole of it.
        options: its options, with type, range, default and help.
        stage: where it runs in a chain; ``None`` if the stage depends on the options.
        needs, branches: its declarations.
        effect: how the processor changes a row of logits; None if the effect depends on the options.
    """

    name: str
    summary: str
    doc: str
    options: tuple[opts.Option, ...]
    stage: str | None
    needs: frozenset[str]
    branches: int
    effect: Effect | None


def available(*, block: Iterable[str] = ()) -> list[registry.PluginRecord]:
    """The installed and registered processors, from metadata alone; see :func:`logitloom.host.registry.available`."""
    return registry.available("processors", block=block)


def describe(name: str) -> Description:
    """Import one processor and tell its summary, options and declarations.

    Raises:
        UnknownPlugin, PluginBlocked, DuplicatePlugin, PluginImportError: as :func:`load`.
        InvalidSignature: a declaration has another type.

    Example:
        >>> [o.signature for o in describe("top_k").options]
        ['k: int']
    """
    plugin = registry.load_plugin("processors", instance(name, str, "name", UnknownPlugin))
    check_declarations([Link(name, name, plugin)])
    doc = inspect.cleandoc(plugin.__doc__ or "")  # its own: a base class describes something else
    return Description(
        name=name,
        summary=doc.partition("\n")[0],
        doc=doc,
        options=opts.declared(plugin),
        stage=_declared_by_class(plugin, "stage"),
        needs=frozenset(declaration(plugin, "needs")),
        branches=declaration(plugin, "branches"),
        effect=_declared_by_class(plugin, "effect"),
    )


def _declared_by_class(plugin: Any, name: str) -> Any:
    """A declaration of a processor; ``None`` if it depends on the options, and on loaded processors alone is known."""
    return None if isinstance(getattr(plugin, name, None), property) else declaration(plugin, name)


def _unknown_argument(specs: tuple[Any, ...], named: dict[str, Any]) -> UnknownOption:
    """The error for arguments that :func:`load` does not take."""
    given = ", ".join(f"{name}={shown(value)}" for name, value in named.items())
    if next(iter(named)).startswith(("vocab", "tokeni")):
        return UnknownOption(f"load() takes no argument {given}. Vocabularies and tokenizers stand in tokenizer=.")
    pairs = ", ".join(f"{option!r}: {shown(value)}" for option, value in named.items())
    first = next((spec for spec in specs if isinstance(spec, str)), "NAME")
    return UnknownOption(
        f"load() takes no argument {given}. Options stand with the name of their processor: "
        f"load(({first!r}, {{{pairs}}}))."
    )


def load(
    *specs: Spec,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    tokenizer: Any = None,
    model: Any = None,
    block: Iterable[str] = (),
    debug: bool | None = None,
    **unexpected: Never,
) -> Chain:
    """A chain of processors, in the given order.

    Args:
        specs: each a name (``"regex"``, or ``"regex@distribution"``), a pair ``(name, options)``, a configured
            processor, a processor class, a function of ``logits`` or ``(logits, context)``, or one of the ``links`` of
            another chain, which keeps its options: so chains are reordered, shortened and changed.
        options: options by label. A processor's label is its name; the second of a name is ``name#2``. Type checkers
            accept the options of processors of other packages here, and refuse their names in pairs.
        tokenizer: a tokenizer of any library, or a Vocabulary, for processors that need one.
        model: a model adapter, for processors that need one.
        block: names (``name``, ``kind/name``, ``name@distribution``) that must not be loaded, at any depth, beside
            those in the environment variable ``LOGITLOOM_BLOCK``.
        debug: at every step, check the result of each processor, and that no processor changed its inputs (default:
            environment variable ``LOGITLOOM_DEBUG``).

    Returns:
        A chain. Options that are still missing are given later with :meth:`Chain.configure`.

    Raises:
        UnknownPlugin, PluginBlocked, DuplicatePlugin, PluginImportError: a name cannot be loaded.
        InvalidSignature: a plug-in's methods do not fit the hooks.
        UnknownOption, OptionTypeError, OptionError: an option is wrong, or stands beside the names.
        StageOrderError: guidance is not first.
    """
    if unexpected:
        raise _unknown_argument(specs, dict(unexpected))
    if options is not None and not isinstance(options, Mapping):
        raise OptionTypeError(
            f"'options' must be a table, label to options, but is {shown(options)}. Write, for example, "
            f"options={{'top_k': {{'k': 5}}}}."
        )
    debug = None if debug is None else flag(debug, "debug", OptionTypeError)
    with loading(block=block) as rules:
        links = _links(specs, dict(options or {}), rules)
        vocabulary = registry.read_vocabulary(tokenizer) if tokenizer is not None else None
    return Chain(links, vocabulary=vocabulary, model=model, debug=debug)


def _links(specs: Iterable[Any], by_label: dict[str, Any], rules: Rules) -> list[Link]:
    links: list[Link] = []
    counts: dict[str, int] = {}
    for spec in specs:
        name, given = spec if _is_pair(spec) else (spec, {})
        base = name.partition("@")[0] if isinstance(name, str) else _label_of(name)
        counts[base] = counts.get(base, 0) + 1
        label = base if counts[base] == 1 else f"{base}#{counts[base]}"
        more = by_label.pop(label, {})
        given = {**given, **more} if isinstance(more, Mapping) else more
        if isinstance(name, Link):
            links.append(_moved(name, label, given))
            continue
        plugin = registry.load_plugin("processors", name) if isinstance(name, str) else name
        if rules.guard is not None and isinstance(name, str):
            given = rules.guard.options(name, plugin, given)
        links.append(_link(label, name if isinstance(name, str) else None, plugin, given, rules.block))
    if by_label:
        labels = ", ".join(link.label for link in links) or "no processor"
        raise UnknownPlugin(
            f"Options were given for {', '.join(map(repr, by_label))}, but the chain has {labels}. Options do not add "
            f"their processor: name it as well."
        )
    return links


def _moved(link: Link, label: str, given: Mapping[str, Any]) -> Link:
    """A link of another chain under its label in this chain, with more options."""
    link = replace(link, label=label)
    if not given:
        return link
    if link.factory is None:
        raise InvalidSignature(f"Processor {label!r} is already configured, so it takes no options.")
    return link.given(given)


def _is_pair(spec: Any) -> bool:
    return isinstance(spec, (tuple, list)) and len(spec) == 2 and isinstance(spec[1], Mapping)


def _link(label: str, name: str | None, plugin: Any, given: Mapping[str, Any], block: frozenset[str]) -> Link:
    if isinstance(plugin, type):
        return Link(label, name, plugin, block=block).given(given)
    if given:
        opts.check(plugin if name is None else None, given, label)
        raise InvalidSignature(f"Processor {label!r} is already configured, so it takes no options.")
    if hasattr(plugin, "process"):
        opts.check_object(plugin, label)
        return Link(label, name, None, processor=plugin)
    if callable(plugin):
        return Link(label, name, None, processor=FunctionProcessor(plugin))
    listed = isinstance(plugin, (list, tuple)) and all(isinstance(part, (str, list, tuple)) for part in plugin)
    several = " Give several processors as several arguments." if listed else ""
    raise InvalidSignature(
        f"{shown(plugin)} is no processor.{several} Give a name, a pair such as ('top_k', {{'k': 5}}), an object or "
        f"class with a method process(self, logits, state, context), or a function of logits."
    )


def _label_of(plugin: Any) -> str:
    if isinstance(plugin, Link):
        return plugin.label.partition("#")[0]
    if isinstance(plugin, type):
        return str(PluginName(plugin))
    return str(plugin.__name__ if hasattr(plugin, "__name__") else PluginName(type(plugin)))
