"""A process that reads the real model once and forks for each program: reading takes longer than most programs run.

It reads requests from standard input, each a line of JSON, and answers each with the exit code of the program.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from functools import wraps
from pathlib import Path
from typing import Any

import logitloom_contrib.llama as llama


def main() -> None:
    """Answer requests until there are no more."""
    sys.path.remove(os.getcwd())
    read, model = llama.load, llama.load()
    assert model.tokenizer.encode("read now")

    @wraps(read)
    def load(path: Any = None, backend: Any = "numpy", device: Any = None, dtype: str = "float32") -> Any:
        usual = (path, backend, device, dtype) == (None, "numpy", None, "float32")
        return model if usual else read(path, backend, device, dtype)

    llama.load = load
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(_run(**json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(arguments: list[str], folder: str, printed: str, complained: str) -> int:
    """Run what an interpreter with these arguments would run.

    Args:
        arguments: of the interpreter: the path of a program, or ``-m`` and a module, and their arguments.
        folder: the current one.
        printed, complained: files for standard output and standard error.
    """
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, printed), (2, complained)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    code: Any = 0
    try:
        sys.path.insert(0, folder)
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            runpy.run_path(str(Path(folder) / arguments[0]), run_name="__main__")
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    main()
