"""The entry points of the installed distributions, read so that a damaged distribution breaks no other.

``importlib.metadata.entry_points`` gives up at the first file that it cannot read.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint  # imported where it is used: it costs half as much as NumPy

__all__ = ["Installed", "PluginName", "entry_points_of", "forget", "installed", "name_and_version"]

_FILE: Final = "entry_points.txt"


class Installed(NamedTuple):
    """The entry points of all distributions.

    Attributes:
        points: the readable ones, in the order of ``sys.path``; of a distribution found twice only the first counts.
        damage: per damaged distribution its name, and a sentence with the unreadable part and the remedy.
    """

    points: tuple[EntryPoint, ...]
    damage: tuple[tuple[str, str], ...]


def entry_points_of(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group that can be read."""
    from importlib.metadata import entry_points

    try:
        return tuple(entry_points(group=group))
    except Exception:  # whatever is wrong with one file, each distribution is then read by itself
        return tuple(point for point in installed().points if point.group == group)


@cache
def installed() -> Installed:
    """The entry points of the installed distributions, each read by itself; remembered until :func:`forget`."""
    from importlib.metadata import distributions

    points: list[EntryPoint] = []
    damage: list[tuple[str, str]] = []
    seen: set[str] = set()
    for distribution in distributions():
        name, _ = name_and_version(distribution)
        normal = normalized(name)
        if normal in seen:
            continue
        seen.add(normal)
        try:
            points += distribution.entry_points
        except Exception as error:
            legible, wrong = _legible(distribution, error)
            points += legible
            damage.append((name, wrong))
    return Installed(tuple(points), tuple(damage))


def normalized(distribution_name: str) -> str:
    """The name of a distribution as pip compares it."""
    return re.sub(r"[-_.]+", "-", distribution_name).lower()


def forget() -> None:
    """Look at the installed distributions again."""
    installed.cache_clear()
    name_and_version.cache_clear()


def _legible(distribution: Distribution, error: Exception) -> tuple[list[EntryPoint], str]:
    """The entry points in a file of which some lines cannot be read, and a sentence about these."""
    from importlib.metadata import Distribution as Base

    class Corrected(Base):
        """The distribution without the lines that cannot be read."""

        def read_text(self, filename: str) -> str | None:
            return "\n".join(kept) if filename == _FILE else distribution.read_text(filename)

        def locate_file(self, path: Any) -> Any:
            return distribution.locate_file(path)

    try:
        lines = [line.strip() for line in (distribution.read_text(_FILE) or "").splitlines()]
        wrong = [line for line in lines if line and line[0] not in "#[" and "=" not in line]
        kept = [line for line in lines if line not in wrong]
        points = list(Corrected().entry_points)
    except Exception as other:
        return [], f"Its {_FILE} cannot be read ({type(other).__name__}: {other!s:.200}). Install it again."
    if not wrong:
        return points, f"Its {_FILE} cannot be read ({type(error).__name__}: {error!s:.200}). Install it again."
    return points, f"Its {_FILE} has the line {wrong[0]!r:.100}, which is no 'name = module:attribute'. Correct it."


@cache
def name_and_version(distribution: Distribution) -> tuple[str, str]:
    """What the metadata of a distribution says; ``importlib`` parses the file again at every question.

    Without readable metadata the name is that of the folder, and the version is empty.
    """
    try:
        metadata: Any = distribution.metadata
        name, version = metadata["Name"], metadata["Version"]
    except Exception:
        name = version = None
    if not name:
        folder = str(getattr(distribution, "_path", "unknown"))
        name = re.split(r"[/\\]", folder)[-1].partition("-")[0]
    return str(name), str(version or "")


class PluginName:
    """The name by which a class is loaded, for messages; looked up when a message needs it.

    Args:
        cls: the class of a plug-in; without an entry point its own name stands in the message.
        group: of the entry points.
    """

    def __init__(self, cls: type, group: str = "logitloom.processors") -> None:
        self._class, self._group = cls, group

    def __str__(self) -> str:
        found = [point.name for point in entry_points_of(self._group) if self._is_of(point)]
        return found[0] if found else self._class.__name__

    def _is_of(self, point: EntryPoint) -> bool:
        """Whether an entry point names the class, in the class's own module or in another module of its package."""
        module, _, name = point.value.partition("[")[0].strip().partition(":")
        if name != self._class.__qualname__:
            return False
        own = self._class.__module__
        if module == own:
            return True
        # A module may re-export a class of its package.
        return module.partition(".")[0] == own.partition(".")[0] and getattr(point.load(), "__module__", "") == own

    def __repr__(self) -> str:
        return repr(str(self))
