"""The pluggy side of the host: which callables of a plug-in implement which hooks, with checked signatures."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

import pluggy

from logitloom.errors import InvalidSignature
from logitloom.host import hookspecs

__all__ = ["HOOKS", "PluginManager", "implementations"]

#: Name of each hook -> names of its arguments, in order.
HOOKS: dict[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(spec).parameters)
    for name, spec in vars(hookspecs).items()
    if hasattr(spec, "logitloom_spec")
}


#: Hooks that are called on several plug-ins, so that ``tryfirst`` and ``trylast`` have an effect.
_ASKED_OF_SEVERAL = frozenset({"encode_text", "vocabulary"})

#: Options of ``@hookimpl`` that cannot be honoured, with the reason and the remedy.
_REFUSED = {
    "wrapper": "a chain calls implementations as plain functions, so nothing wraps them. Write a processor of its own "
    "and put it before or after",
    "hookwrapper": "a chain calls implementations as plain functions, so nothing wraps them. Write a processor of its "
    "own and put it before or after",
    "specname": "a method implements the hook that it is named after. Rename it",
    "tryfirst": "only one plug-in is asked for this hook. The order of processors is that of the chain",
    "trylast": "only one plug-in is asked for this hook. The order of processors is that of the chain",
}


class _Specifications:
    """The specifications and nothing else, since pluggy walks over all attributes of what it is given."""

    def __init__(self) -> None:
        vars(self).update({name: getattr(hookspecs, name) for name in HOOKS})

    def __dir__(self) -> list[str]:
        return list(HOOKS)


_SPECIFICATIONS = _Specifications()


class _Implementations:
    """The hook implementations of one plug-in, and nothing else of it.

    pluggy walks over all attributes of what it registers and compares plug-ins by ``==``; a processor may have
    costly properties, and two equal processors may stand in one chain.
    """

    def __init__(self, plugin: Any) -> None:
        for hook in HOOKS:
            implementation = getattr(plugin, hook, None)
            if isinstance(plugin, type) and isinstance(inspect.getattr_static(plugin, hook, None), FunctionType):
                implementation = MethodType(implementation, plugin)  # type: ignore[arg-type]  # as objects have it
            if implementation is not None and inspect.isroutine(implementation):
                setattr(self, hook, implementation)

    def __dir__(self) -> list[str]:
        return list(vars(self))


class PluginManager(pluggy.PluginManager):
    """A pluggy manager that knows the hooks of logitloom and takes methods named like a hook."""

    def __init__(self) -> None:
        super().__init__("logitloom")
        self.add_hookspecs(_SPECIFICATIONS)  # type: ignore[arg-type]  # any object with attributes will do

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        """pluggy's options of an implementation; the marker is optional."""
        if name not in HOOKS:
            return None
        return super().parse_hookimpl_opts(plugin, name) or {
            "wrapper": False,
            "hookwrapper": False,
            "optionalhook": False,
            "tryfirst": False,
            "trylast": False,
            "specname": None,
        }

    def add(self, plugin: Any, name: str, required: str) -> None:
        """Register a plug-in under a name.

        Args:
            plugin: an object whose methods are named like hooks, or, to check signatures alone, its class.
            name: its name, for messages.
            required: the hook that every plug-in of this kind implements.

        Raises:
            InvalidSignature: if an argument is not the hook's, a marked method is no hook (and not marked with
                ``optionalhook``), an option of the marker cannot be honoured, or ``required`` is not implemented.
        """
        for attribute, value in _static_attributes(plugin).items():
            marked = getattr(value, "logitloom_impl", None)
            if marked:
                _check_marker(name, attribute, marked)
            if attribute not in HOOKS and marked and not marked["optionalhook"]:
                near = difflib.get_close_matches(attribute, HOOKS, 1)
                raise InvalidSignature(
                    f"Plug-in {name!r} marks the method {attribute!r} as a hook, but there is no such hook."
                    + (f" Did you mean {near[0]!r}?" if near else f" The hooks are {', '.join(HOOKS)}.")
                )
        implementations = _Implementations(plugin)
        if not hasattr(implementations, required):
            cls = plugin if isinstance(plugin, type) else type(plugin)
            raise InvalidSignature(
                f"Plug-in {name!r} ({cls.__name__}) has no method {required!r}. "
                f"Add: def {required}(self, {', '.join(HOOKS[required])})."
            )
        for hook, implementation in vars(implementations).items():
            _check_signature(name, hook, implementation)
        try:
            self.register(implementations, name)
        except pluggy.PluginValidationError as error:
            raise InvalidSignature(f"Plug-in {name!r}: {error}") from error

    def implementation(self, name: str, hook: str) -> Callable[..., Any] | None:
        """The hook implementation of one plug-in as a plain function of *all* arguments of the hook."""
        for found in getattr(self.hook, hook).get_hookimpls():
            if found.plugin_name == name:
                return _with_all_arguments(found.function, _taken(found.function, hook), HOOKS[hook])
        return None


def _taken(function: Callable[..., Any], hook: str) -> tuple[str, ...]:
    """The arguments of a hook that an implementation takes."""
    return tuple(p.name for p in _parameters(function) if p.name in HOOKS[hook])


#: Per class: the required hook and the class's methods by which pluggy was asked, and the arguments of each hook's
#: implementation.
_KNOWN: WeakKeyDictionary[type, tuple[Any, dict[str, tuple[str, ...]]]] = WeakKeyDictionary()


def implementations(plugin: Any, name: str, required: str) -> dict[str, Callable[..., Any]]:
    """The hook implementations of one plug-in as plain functions of *all* arguments of their hooks.

    pluggy is asked once per class; what it said of a class's methods holds for all its objects, and assembling a chain
    is part of the time to a first mask.

    Args:
        plugin, name, required: as for :meth:`PluginManager.add`.

    Raises:
        InvalidSignature: as there.
    """
    kind = type(plugin)
    methods = [getattr(kind, hook, None) for hook in HOOKS]
    of_class = all(method is None or isinstance(method, FunctionType) for method in methods) and not _has_own(plugin)
    asked, taken = _KNOWN.get(kind, (None, {})) if of_class else (None, {})
    if asked != (required, methods):
        manager = PluginManager()
        manager.add(plugin, name, required)
        taken = {hook: _taken(getattr(plugin, hook), hook) for hook in HOOKS if manager.implementation(name, hook)}
        if of_class:
            _KNOWN[kind] = (required, methods), taken
    return {hook: _with_all_arguments(getattr(plugin, hook), names, HOOKS[hook]) for hook, names in taken.items()}


def _has_own(plugin: Any) -> bool:
    """Whether an object may have other hooks than the methods of its class."""
    if any({"__getattr__", "__getattribute__"} & vars(owner).keys() for owner in type(plugin).__mro__[:-1]):
        return True
    own = getattr(plugin, "__dict__", {})
    return any(name in HOOKS or getattr(value, "logitloom_impl", None) for name, value in own.items())


def _static_attributes(plugin: Any) -> dict[str, Any]:
    """The attributes of an object, read without evaluating its properties, which may be costly or fail."""
    found: dict[str, Any] = {}
    for owner in (*reversed(type(plugin).__mro__), *reversed(getattr(plugin, "__mro__", ())), plugin):
        found.update(getattr(owner, "__dict__", {}))
    return found


def _check_marker(name: str, method: str, marked: Mapping[str, Any]) -> None:
    for option, reason in _REFUSED.items():
        ordered = option in ("tryfirst", "trylast") and method in _ASKED_OF_SEVERAL
        if marked[option] and not ordered:
            raise InvalidSignature(
                f"Plug-in {name!r} marks the method {method!r} with @hookimpl({option}={marked[option]!r}), "
                f"but {reason}."
            )


def _check_signature(name: str, hook: str, implementation: Callable[..., Any]) -> None:
    wanted = HOOKS[hook]
    function = getattr(implementation, "__func__", None)
    first = _parameters_of(function)[:1] if isinstance(function, FunctionType) else ()
    if first and first[0].name in wanted:
        raise InvalidSignature(
            f"Plug-in {name!r}: the first argument of the method {hook!r} is {first[0].name!r}, which would be the "
            f"plug-in itself. Write def {hook}(self, {', '.join(wanted)})."
        )
    parameters = _parameters(implementation)
    unknown = [p.name for p in parameters if p.name not in wanted and p.default is p.empty]
    # Hooks are called with positional arguments, so arguments of the implementation's own have defaults and come last.
    own_first = [p.name in wanted for p in parameters] != sorted((p.name in wanted for p in parameters), reverse=True)
    if unknown or own_first or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
        raise InvalidSignature(
            f"Plug-in {name!r}: {hook}{inspect.Signature(parameters)} does not fit the hook "
            f"{hook}({', '.join(wanted)})."
            + (f" Unknown arguments: {', '.join(unknown)}." if unknown else "")
            + " An implementation takes any of the hook's arguments, by name, and those of its own last, with "
            "defaults; none is keyword-only."
        )


def _parameters(implementation: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """The arguments that a caller gives; the arguments of a class's methods are read once for all its instances."""
    if isinstance(implementation, MethodType) and isinstance(implementation.__func__, FunctionType):
        found = _parameters_of(implementation.__func__)
        return found if found[0].kind is inspect.Parameter.VAR_POSITIONAL else found[1:]
    return tuple(inspect.signature(implementation).parameters.values())


@lru_cache(maxsize=1024)
def _parameters_of(function: FunctionType) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


def _with_all_arguments(
    function: Callable[..., Any], taken: tuple[str, ...], given: tuple[str, ...]
) -> Callable[..., Any]:
    if taken == given:
        return function
    indices = tuple(given.index(argument) for argument in taken)
    if "state" in given and "state" not in taken and "logits" in given:
        state_at = given.index("state")

        def stateless(*arguments: Any) -> Any:
            return function(*[arguments[i] for i in indices]), arguments[state_at]

        return stateless

    def fewer(*arguments: Any) -> Any:
        return function(*[arguments[i] for i in indices])

    return fewer
