"""A Python environment for one package: it sees the packages installed here, and nothing is installed here."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from logitloom.errors import PluginImportError

__all__ = ["OwnEnvironment", "own_environment"]


class OwnEnvironment:
    """A virtual environment with one package.

    Args:
        folder: where it lies.
        distributions: the names of the distributions that were installed into it.
    """

    def __init__(self, folder: Path, distributions: Sequence[str]) -> None:
        self.folder, self.distributions = folder, tuple(distributions)

    def run(self, *arguments: str) -> int:
        """Run ``logitloom`` in the environment, with the output streams of this process. Returns the exit code."""
        return subprocess.run([_python(self.folder), "-m", "logitloom", *arguments], check=False).returncode


@contextmanager
def own_environment(what: str) -> Iterator[OwnEnvironment]:
    """A virtual environment in which a package is installed, until the end of the block.

    The new environment sees the packages of this process's environment, so that pip installs only missing packages.

    Args:
        what: the package for pip: a folder, a wheel, a requirement. Settings of pip hold (``PIP_NO_INDEX`` and others).

    Raises:
        PluginImportError: if pip cannot install it, or nothing was installed.
    """
    with tempfile.TemporaryDirectory(prefix="logitloom-check-") as home:
        folder = Path(home) / "environment"
        venv.EnvBuilder(with_pip=False, symlinks=sys.platform != "win32").create(folder)
        site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
        # addsitedir also reads the *.pth files of a folder, such as the files of editable installations.
        lines = [f"import site; site.addsitedir({path!r})" for path in sys.path if Path(path).is_dir()]
        (site / "host.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
        ran = subprocess.run(
            [_python(folder), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ran.returncode != 0:
            raise PluginImportError(f"pip cannot install {what!r}: {ran.stderr.strip() or ran.stdout.strip()}")
        names = sorted(found.name for found in metadata.distributions(path=[str(site)]))
        if not names:
            raise PluginImportError(f"pip installed nothing for {what!r}. Name a folder, a wheel or a distribution.")
        yield OwnEnvironment(folder, names)


def _python(folder: Path) -> str:
    return str(folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
