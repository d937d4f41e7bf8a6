"""Finding plug-ins by name: entry points, registrations without packaging, blocking, lazy import.

Nothing is imported until it is named. Names are unique per kind; if two distributions claim one, the caller
chooses with ``name@distribution``.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from logitloom.arguments import instance, printable, shown
from logitloom.arrays.backend import Backend, forget_types, load_backends_with
from logitloom.display.warning import warn
from logitloom.errors import (
    BackendMissing,
    DuplicatePlugin,
    DuplicatePluginWarning,
    InterfaceMismatch,
    LogitloomError,
    PluginBlocked,
    PluginImportError,
    UnknownPlugin,
    VocabularyError,
)
from logitloom.host.entry_points import entry_points_of, name_and_version, normalized
from logitloom.host.entry_points import forget as forget_entry_points
from logitloom.host.hookspecs import INTERFACE_VERSIONS
from logitloom.host.loading import is_interruption, rules
from logitloom.host.plugin_manager import PluginManager
from logitloom.host.vocabulary_memory import VocabularyMemory
from logitloom.masks.kernels import KernelsNotReady, MaskKernels, load_kernels_with, look_for_kernels_again
from logitloom.vocabulary import Vocabulary, read_tokenizers_with

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint  # imported where it is used: it costs half as much as NumPy

__all__ = [
    "BLOCK_VARIABLE",
    "BUILT_IN",
    "GROUPS",
    "INTERFACE_GROUP",
    "ROLE_GROUP",
    "TASKS",
    "PluginRecord",
    "Role",
    "TokenizerReaders",
    "available",
    "load_backend",
    "load_plugin",
    "read_vocabulary",
    "refresh",
    "register",
    "role",
    "tokenizer_readers",
    "unregister",
]

#: Kind of plug-in -> entry-point group.
GROUPS: dict[str, str] = {
    "processors": "logitloom.processors",
    "backends": "logitloom.backends",
    "tokenizers": "logitloom.tokenizers",
    "engines": "logitloom.engines",
    "grammars": "logitloom.grammars",
    "candidates": "logitloom.candidates",
    "tool_formats": "logitloom.tool_formats",
    "models": "logitloom.models",
    "kernels": "logitloom.kernels",
}

#: Kind -> description of the object that its entry points name. The readers of tables and hooks check other kinds.
_NAMED: dict[str, str] = {
    "processors": "a processor class, a function of logits, or a configured object",
    "engines": "a function that makes a chain ready for an engine",
    "grammars": "a class of an engine",
    "candidates": "a class of candidate generators",
    "models": "a function that loads a model",
    "kernels": "a class of compiled loops",
}

#: Entry-point group in which a distribution declares the interface it was written for: ``version = "v1"``.
INTERFACE_GROUP = "logitloom.interface"

#: Entry-point group in which a distribution names the processor and option for a task of core, such as
#: ``pattern = "regex:pattern"``.
ROLE_GROUP = "logitloom.roles"

#: The tasks of core that have a role.
TASKS = frozenset({"grammar_text", "healing", "json_schema", "pattern", "stop_strings", "texts"})

#: Distribution whose plug-ins are the built-in ones.
BUILT_IN = "logitloom"

#: Environment variable with names to block, separated by commas: ``regex, backends/jax, top_k@distribution``.
BLOCK_VARIABLE = "LOGITLOOM_BLOCK"

#: (kind, name) -> object given to :func:`register`.
_REGISTERED: dict[tuple[str, str], Any] = {}

_VOCABULARIES = VocabularyMemory()


@dataclass(frozen=True)
class PluginRecord:
    """What is known of a plug-in from metadata alone.

    Attributes:
        name: the name it is loaded by.
        kind: a key of :data:`GROUPS`.
        distribution: the distribution that brings it; ``""`` if it was registered at run time.
        version: that distribution's version.
        value: where its code is, ``module:attribute``.
        missing: requirements of the plug-in's extra that are not installed.
        extra: the distribution's extra that installs these requirements.
        interface: version of the plug-in interface that the distribution declares; 1 if it declares none.
        blocked: whether the environment blocks it.
    """

    name: str
    kind: str
    distribution: str
    version: str
    value: str
    missing: tuple[str, ...] = ()
    extra: str | None = None
    blocked: bool = False
    interface: int = 1

    @property
    def full_name(self) -> str:
        """The name by which this plug-in is loaded, and no other: ``name@distribution``."""
        return f"{self.name}@{self.distribution}" if self.distribution else self.name

    @property
    def fits(self) -> bool:
        """Whether the host has the version of the plug-in interface that the plug-in was written for."""
        return self.interface in INTERFACE_VERSIONS

    @property
    def installed(self) -> bool:
        """Whether everything it requires is installed."""
        return not self.missing

    @property
    def remedy(self) -> str:
        """The command that installs the missing requirements, or a version that fits; empty if none is needed."""
        if not self.fits:
            older = self.interface < min(INTERFACE_VERSIONS)
            return f"pip install --upgrade {self.distribution if older else BUILT_IN}"
        if not self.missing:
            return ""
        target = f"{self.distribution}[{self.extra}]" if self.extra else " ".join(self.missing)
        return f"pip install '{target}'"


@cache
def _entry_points(kind: str) -> dict[str, list[EntryPoint]]:
    """Entry points of a kind by name; one per distribution (an installation may be listed twice on sys.path)."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points_of(_group(kind)):
        found.setdefault(point.name, {}).setdefault(_distribution_of(point), point)
    return {name: list(points.values()) for name, points in sorted(found.items())}


@cache
def _interface_of(distribution_name: str) -> int:
    """The interface version that a distribution declares; 1 if it declares none, 0 if the declaration is no version."""
    declared = [p.value for p in entry_points_of(INTERFACE_GROUP) if _distribution_of(p) == distribution_name]
    if not declared:
        return 1
    found = re.fullmatch(r"v(\d+)", declared[0])
    return int(found[1]) if found else 0


def _group(kind: str) -> str:
    if kind not in GROUPS:
        raise UnknownPlugin(f"There is no kind of plug-in {kind!r}; there are {', '.join(GROUPS)}.")
    return GROUPS[kind]


def refresh() -> None:
    """Look at the installed distributions again (after installing one while Python runs)."""
    _entry_points.cache_clear()
    forget_entry_points()
    _missing_requirements.cache_clear()
    _interface_of.cache_clear()
    role.cache_clear()
    _load_entry_point.cache_clear()
    _forget_loaded()


def _forget_loaded() -> None:
    _backend_plugin.cache_clear()
    forget_types()
    look_for_kernels_again()
    _VOCABULARIES.clear()


def _distribution_of(point: EntryPoint) -> str:
    return name_and_version(point.dist)[0] if point.dist is not None else "unknown"


def _version_of(point: EntryPoint) -> str:
    return name_and_version(point.dist)[1] if point.dist is not None else ""


def _blocked_names(block: Iterable[str]) -> set[str]:
    from_environment = os.environ.get(BLOCK_VARIABLE, "").split(",")
    return {name.strip() for name in (*block, *rules().block, *from_environment) if name.strip()}


def _is_blocked(kind: str, name: str, distribution: str, blocked: set[str]) -> bool:
    """Whether a plug-in is blocked as ``name``, or as ``name@distribution``, either with its kind before it or not."""
    for entry in blocked:
        wanted, _, owner = entry.removeprefix(f"{kind}/").partition("@")
        if wanted == name and (not owner or (distribution and normalized(owner) == normalized(distribution))):
            return True
    return False


@cache
def _missing_requirements(distribution_name: str, extra: str) -> tuple[str, ...]:
    from importlib.metadata import distribution

    from packaging.requirements import InvalidRequirement, Requirement

    absent = []
    try:
        requirements = distribution(distribution_name).requires or ()
    except Exception:  # damaged metadata says nothing
        return ()
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            fits = requirement.specifier.contains(distribution(requirement.name).version, prereleases=True)
        except Exception:  # it is not there, or its metadata are damaged
            fits = False
        if not fits:
            absent.append(text.partition(";")[0].strip())
            continue
        for named in requirement.extras:
            absent += _missing_requirements(requirement.name, named)
    return tuple(dict.fromkeys(absent))


def _record(kind: str, point: EntryPoint, blocked: set[str]) -> PluginRecord:
    # Not EntryPoint.extras, which takes the extra "mlx-lm" for two, "mlx" and "lm".
    value, _, extras = point.value.partition("[")
    extra = extras.strip(" ]").partition(",")[0].strip() or None
    name = _distribution_of(point)
    return PluginRecord(
        name=point.name,
        kind=kind,
        distribution=name,
        version=_version_of(point),
        value=value.strip(),
        missing=_missing_requirements(name, extra) if extra and point.dist is not None else (),
        extra=extra,
        blocked=_is_blocked(kind, point.name, name, blocked),
        interface=_interface_of(name) if point.dist is not None else 1,
    )


def available(kind: str | None = None, *, block: Iterable[str] = ()) -> list[PluginRecord]:
    """All plug-ins of a kind (default: of every kind), from metadata alone; nothing is imported.

    Args:
        kind: one of :data:`GROUPS`.
        block: names to report as blocked, beside those of the environment variable ``LOGITLOOM_BLOCK``.

    Example:
        >>> "temperature" in [p.name for p in available("processors")]
        True
    """
    blocked = _blocked_names(block)
    kinds = [kind] if kind is not None else list(GROUPS)
    records = []
    for k in kinds:
        for points in _entry_points(k).values():
            records += [_record(k, point, blocked) for point in points]
        records += [
            PluginRecord(name, k, "", "", _path_of(plugin), blocked=_is_blocked(k, name, "", blocked))
            for (registered_kind, name), plugin in _REGISTERED.items()
            if registered_kind == k
        ]
    return sorted(records, key=lambda r: (list(GROUPS).index(r.kind), r.name, r.distribution))


def name_problem(name: str) -> str:
    """Why no plug-in can be loaded by a name, as a sentence; empty for a name."""
    if re.fullmatch(r"[\w.-]+", name):
        return ""
    return f"The name {name!r} cannot be loaded: names consist of letters, digits, '_', '-' and '.'."


def register(name: str, plugin: Any, *, kind: str = "processors", replace: bool = False) -> None:
    """Make a plug-in loadable by name without packaging it (tests, notebooks).

    Args:
        name: the name to load it by.
        plugin: what an entry point would point to: a class, a function, or a configured object.
        kind: one of :data:`GROUPS`.
        replace: take the name even if an installed or registered plug-in has it.

    Raises:
        DuplicatePlugin: if the name is taken and ``replace`` is false.
        UnknownPlugin: the name is not valid for a plug-in, or there is no such kind.
    """
    _group(kind)
    problem = name_problem(instance(name, str, "name", UnknownPlugin))
    if problem:
        raise UnknownPlugin(f"{problem} Choose another name.")
    if not replace:
        taken = [_distribution_of(point) for point in _entry_points(kind).get(name, [])]
        if (kind, name) in _REGISTERED:
            taken.append("an earlier registration")
        if taken:
            raise DuplicatePlugin(
                f"The name {name!r} is already taken among {kind} by {' and '.join(taken)}. "
                f"Choose another name, or give replace=True."
            )
    _REGISTERED[kind, name] = plugin
    _forget_loaded()


def unregister(name: str, *, kind: str = "processors") -> None:
    """Undo :func:`register`.

    Raises:
        UnknownPlugin: if nothing was registered under that name.
    """
    if (kind, name) not in _REGISTERED:
        raise UnknownPlugin(f"No plug-in was registered as {name!r} among {kind} in this process.")
    del _REGISTERED[kind, name]
    _forget_loaded()


class Role(NamedTuple):
    """The processor that a command or a decoding loop of core uses for a task.

    Attributes:
        processor: the name of a processor.
        option: the option that takes the input of the task.
    """

    processor: str
    option: str


@cache
def role(task: str) -> Role:
    """The processor for a task of core, such as the one for the pattern of ``logitloom generate --regex``.

    Args:
        task: a name in the entry-point group :data:`ROLE_GROUP`. Of several distributions logitloom's own counts.

    Raises:
        UnknownPlugin: no distribution names a processor for the task.

    Example:
        >>> role("pattern")
        Role(processor='regex', option='pattern')
    """
    named = [point for point in entry_points_of(ROLE_GROUP) if point.name == task]
    if not named:
        raise UnknownPlugin(
            f"No installed distribution names a processor for {task!r} in the group {ROLE_GROUP!r} of its entry "
            f"points. Install logitloom again."
        )
    point = min(named, key=lambda point: _distribution_of(point) != BUILT_IN)
    processor, _, option = (part.strip() for part in point.value.partition(":"))
    return Role(processor, option)


def load_plugin(kind: str, name: str, *, block: Iterable[str] = ()) -> Any:
    """Import the plug-in of a name (``name`` or ``name@distribution``) and return its object.

    Raises:
        UnknownPlugin: no plug-in has the name; the message has near matches and what to install.
        PluginBlocked: the name is blocked.
        DuplicatePlugin: several distributions, none of them logitloom, have a plug-in of the name; the message lists
            the distributions.
        InterfaceMismatch: the plug-in declares a version of the plug-in interface that this logitloom does not have.
        PluginImportError: importing the plug-in failed; the message has the cause and what to install.
    """
    guard = rules().guard
    if guard is not None and kind == "processors":
        guard.require(name)
    bare, owned, wanted = name.partition("@")
    if owned and not wanted:
        raise UnknownPlugin(f"The name {name!r} names no distribution after '@'. Write {bare!r}, or name one.")
    blocked = _blocked_names(block)
    registered = not wanted and (kind, bare) in _REGISTERED
    if registered and not _is_blocked(kind, bare, "", blocked):
        return _REGISTERED[kind, bare]
    points = _entry_points(kind).get(bare, [])
    if wanted:
        points = [point for point in points if normalized(_distribution_of(point)) == normalized(wanted)]
    free = [point for point in points if not _is_blocked(kind, bare, _distribution_of(point), blocked)]
    if not free and (points or registered or _is_blocked(kind, bare, wanted, blocked)):
        raise PluginBlocked(
            f"The plug-in {name!r} ({kind}) is blocked, by the argument 'block' (--block of commands) or by the "
            f"environment variable {BLOCK_VARIABLE}={os.environ.get(BLOCK_VARIABLE, '')!r}."
        )
    if not free:
        raise UnknownPlugin(_unknown_message(kind, bare, wanted))
    return _load_entry_point(kind, free[0] if len(free) == 1 else _preferred(kind, bare, free))


def _preferred(kind: str, name: str, points: list[EntryPoint]) -> EntryPoint:
    """Of several plug-ins of a name the built-in one, with a warning.

    Raises:
        DuplicatePlugin: none of them is built in.
    """
    owners = [_distribution_of(point) for point in points]
    choices = [f"{name}@{owner}" for owner in owners if owner != BUILT_IN]
    if BUILT_IN not in owners:
        versions = [f"{owner} {_version_of(p)}".strip() for owner, p in zip(owners, points, strict=True)]
        raise DuplicatePlugin(
            f"Several distributions have a plug-in {name!r} ({kind}): {' and '.join(versions)}. "
            f"Choose one by loading {' or '.join(choices)}, or uninstall the other."
        )
    warn(
        f"The name {name!r} ({kind}) is that of a built-in plug-in, which is used. Load {' or '.join(choices)} for "
        f"the other, or {name}@{BUILT_IN} for the built-in without this warning.",
        DuplicatePluginWarning,
    )
    return points[owners.index(BUILT_IN)]


@cache
def _load_entry_point(kind: str, point: EntryPoint) -> Any:
    record = _record(kind, point, set())
    if not record.fits:
        asked = (
            f"version {record.interface}" if record.interface else f"no version that can be read in {INTERFACE_GROUP!r}"
        )
        raise InterfaceMismatch(
            f"The plug-in {point.name!r} ({kind}) of {record.distribution} {record.version} declares {asked} of the "
            f"plug-in interface; this logitloom has {', '.join(map(str, INTERFACE_VERSIONS))}. Try: {record.remedy}."
        )
    named = f"The plug-in {point.name!r} ({kind}) of {record.distribution} {record.version}"
    try:
        found = point.load()
    except BaseException as error:  # sys.exit() in a module is no reason to end the program
        if is_interruption(error):
            raise
        remedy = f" It requires {', '.join(record.missing)}: {record.remedy}." if record.missing else ""
        raise PluginImportError(
            f"{named} could not be imported from {record.value}: {type(error).__name__}: "
            f"{_told(error).removesuffix('.')}.{remedy} Other plug-ins are not affected."
        ) from error
    if kind in _NAMED and not callable(found) and not (kind == "processors" and hasattr(found, "process")):
        raise PluginImportError(
            f"{named} is {shown(found)}, found at {record.value}, but must be {_NAMED[kind]}. Correct its entry point."
        )
    return found


def _told(error: BaseException) -> str:
    """The message of an exception in printable characters, or a fixed text if the message cannot be made."""
    try:
        return printable(str(error))
    except Exception:
        return "(its text cannot be told)"


def _unknown_message(kind: str, name: str, wanted: str) -> str:
    singular = kind.removesuffix("s")
    names = sorted({*_entry_points(kind), *(n for k, n in _REGISTERED if k == kind)})
    if wanted:
        owners = [_distribution_of(p) for p in _entry_points(kind).get(name, [])]
        have = f"it is provided by {', '.join(owners)}" if owners else "no distribution provides it"
        return f"The distribution {wanted!r} has no {singular} {name!r}; {have}."
    near = difflib.get_close_matches(name, names, 3, 0.6) or difflib.get_close_matches(name.lower(), names, 3, 0.6)
    hint = (
        f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else " 'logitloom plugins' lists what there is."
    )
    elsewhere = [k for k in GROUPS if k != kind and name in _entry_points(k)]
    also = f" There is a plug-in of that name among {elsewhere[0]}." if elsewhere else ""
    return (
        f"There is no {singular} {shown(name)}.{hint}{also} If it comes in a package of its own, install that with "
        f"pip; the package must have an entry point of this name in the group {GROUPS[kind]!r}."
    )


@cache
def _backend_plugin(library: str) -> Backend | None:
    plugin = load_plugin("backends", library)
    manager = PluginManager()
    manager.add(plugin() if isinstance(plugin, type) else plugin, library, required="backend_adapter")
    backend: Backend | None = manager.hook.backend_adapter(library=library)
    return backend


def load_backend(library: str) -> Backend:
    """The backend for an array library, on its default device. Imports that library and no other.

    Raises:
        BackendMissing: if the library has no backend, or its plug-in declines.
        PluginImportError: if the library is not installed; with what to install.
    """
    if not isinstance(library, str):
        raise BackendMissing(f"A backend is named by its array library, but this is {shown(library)}.")
    try:
        backend = _backend_plugin(library)
    except UnknownPlugin as error:
        raise BackendMissing(str(error)) from error
    if backend is None:
        raise BackendMissing(f"The backend plug-in {library!r} declined to handle {library!r}.")
    return backend


def _first_kernels(wait: bool) -> MaskKernels | None:
    """The kernels of the first plug-in by name that is installed, not blocked, and works; a warning if one does not.

    Args:
        wait: whether to compile and load them first, if the plug-in can.
    """
    for record in available("kernels"):
        if record.installed and not record.blocked:
            try:
                plugin = load_plugin("kernels", record.name)
                if wait and hasattr(plugin, "compile"):
                    plugin.compile()
                kernels: MaskKernels = plugin()
            except KernelsNotReady:
                return None
            except BaseException as error:  # whatever is wrong with them, NumPy can do all that they do
                if is_interruption(error):
                    raise
                told = f"{type(error).__name__}: {_told(error)}"
                warn(f"Going on with NumPy, without compiled kernels. {told}")
                continue
            return kernels
    return None


class TokenizerReaders(NamedTuple):
    """The installed tokenizer readers.

    Attributes:
        manager: knows their hooks.
        names: of all of them.
        broken: the readers that cannot be used, each with the reason.
    """

    manager: PluginManager
    names: tuple[str, ...]
    broken: tuple[str, ...]


def tokenizer_readers() -> TokenizerReaders:
    """The installed tokenizer readers that are not blocked."""
    manager = PluginManager()
    broken = []
    names = tuple(dict.fromkeys(record.name for record in available("tokenizers") if not record.blocked))
    for name in names:
        try:
            reader = load_plugin("tokenizers", name)
            manager.add(reader() if isinstance(reader, type) else reader, name, required="vocabulary")
        except BaseException as error:  # one broken reader is no reason to do without the others
            if is_interruption(error):
                raise
            broken.append(f"{name} ({type(error).__name__}: {_told(error)})")
    return TokenizerReaders(manager, names, tuple(broken))


def read_vocabulary(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a tokenizer of any library, through the installed tokenizer readers.

    Each tokenizer object is read once, and again after it changed (tokens were added, another end was set).

    Args:
        tokenizer: a tokenizer object, a path that a reader knows, a Vocabulary (returned as it is), or an object whose
            attribute ``vocabulary`` is a Vocabulary.

    Raises:
        VocabularyError: if no reader knows the tokenizer.

    Warns:
        LogitloomWarning: if a reader failed on the tokenizer, and another reader knows it.
    """
    if isinstance(tokenizer, Vocabulary):
        return tokenizer
    readers = tokenizer_readers()
    failed: dict[str, Exception] = {}
    found = _first_reading(readers.manager, tokenizer, readers.names, failed)
    broken = [*readers.broken, *(f"{name} ({type(e).__name__}: {_told(e)})" for name, e in failed.items())]
    also = f" These readers could not be used: {'; '.join(broken)}." if broken else ""
    if found is None and not isinstance(tokenizer, (str, os.PathLike)):
        own = getattr(tokenizer, "vocabulary", None)
        found = own if isinstance(own, Vocabulary) else None
    if found is not None:
        if failed:
            warn(
                f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__} was read without readers that failed on "
                f"it.{also} Mend them, or block them ({BLOCK_VARIABLE}=tokenizers/{next(iter(failed))})."
            )
        return found
    cause = next(iter(failed.values()), None)
    if isinstance(tokenizer, (str, os.PathLike)):
        raise VocabularyError(
            f"{shown(tokenizer)} is no file or folder with a tokenizer that an installed reader knows "
            f"({', '.join(readers.names) or 'none is installed'}).{also} Nothing is downloaded by name: give "
            f"the path of a folder that has a tokenizer.json, or load the tokenizer with its library and give the "
            f"object: transformers.AutoTokenizer.from_pretrained(...)."
        ) from cause
    raise VocabularyError(
        f"No tokenizer reader knows {type(tokenizer).__module__}.{type(tokenizer).__qualname__}. Installed "
        f"readers: {', '.join(readers.names) or 'none'}.{also} Give a logitloom.Vocabulary, or install a reader."
    ) from cause


def _first_reading(
    manager: PluginManager, tokenizer: Any, names: tuple[str, ...], failed: dict[str, Exception]
) -> Vocabulary | None:
    """What the first reader that knows a tokenizer reads, or read when the tokenizer was in the same version.

    Args:
        manager: knows the hooks of the readers.
        tokenizer: the tokenizer.
        names: of all readers.
        failed: gets the readers that raise an exception of their own.
    """
    for found in reversed(manager.hook.vocabulary.get_hookimpls()):
        try:
            vocabulary = _reading(manager, found.plugin_name, tokenizer, names)
        except LogitloomError:
            raise
        except Exception as error:  # one broken reader is no reason to do without the others
            failed[found.plugin_name] = error
            continue
        if vocabulary is not None:
            return vocabulary
    return None


def _reading(manager: PluginManager, reader: str, tokenizer: Any, names: tuple[str, ...]) -> Vocabulary | None:
    """What one reader reads, or read when the tokenizer was in the same version; ``None`` for another tokenizer."""
    version_of = manager.implementation(reader, "vocabulary_version")
    version = None if version_of is None else version_of(tokenizer)
    version = None if version is None else (names, reader, version)
    known = None if version is None else _VOCABULARIES.get(tokenizer, version)
    if known is not None:
        return known
    read = manager.implementation(reader, "vocabulary")
    vocabulary = None if read is None else read(tokenizer)
    if vocabulary is None:
        return None
    if not isinstance(vocabulary, Vocabulary):
        raise TypeError(
            f"its method 'vocabulary' must return a logitloom.Vocabulary or None, but returned {shown(vocabulary)}"
        )
    return vocabulary if version is None else _VOCABULARIES.keep(tokenizer, version, vocabulary)


def _path_of(plugin: Any) -> str:
    return f"{getattr(plugin, '__module__', '')}:{getattr(plugin, '__qualname__', type(plugin).__qualname__)}"


# Arrays, masks and vocabularies stand below plug-ins, so they are told here how to find theirs.
load_backends_with(load_backend)
load_kernels_with(_first_kernels)
read_tokenizers_with(read_vocabulary)
