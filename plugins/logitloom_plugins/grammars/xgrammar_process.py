"""A worker process that compiles grammars for xgrammar, and is ended when a limit is exceeded.

The library cannot be interrupted, and a short grammar can take it minutes. The compiled grammar comes back from the
process as the library's own JSON. One worker process serves all grammars of the main process, and ends with it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from typing import IO, Any, Final

from logitloom.errors import BudgetExceeded, UnsupportedGrammar
from logitloom.process_memory import ProcessLock

__all__ = ["Compiler", "compile_beside"]

#: Bytes of memory that a compilation may take, beyond the memory of the loaded library.
MOST_BYTES: Final = 2 << 30
#: Real time per second of processor time, and to start, after which a process that does not answer is ended.
_PATIENCE: Final = 20.0
_START_SECONDS: Final = 120.0


class Compiler:
    """The worker process.

    Args:
        command: starts a process that reads and writes as :func:`main` does.
    """

    def __init__(self, command: list[str] | None = None) -> None:
        self._command = command or [sys.executable, "-m", "logitloom_plugins.grammars.xgrammar_process"]
        self._process: subprocess.Popen[bytes] | None = None
        #: Whether the process may have an answer that was not read, which would be given to the next grammar.
        self._waits = False
        self._owner = os.getpid()
        self._tokenizer: str | None = None
        self._lock = ProcessLock()

    def compiled(self, grammar: str, tokenizer: str, seconds: float) -> str:
        """A compiled grammar.

        Args:
            grammar: the JSON of a grammar.
            tokenizer: the JSON of a ``TokenizerInfo``.
            seconds: most processor time, of all threads together.

        Raises:
            BudgetExceeded: the compilation takes more time or memory.
            UnsupportedGrammar: the library refuses the grammar, or ended its process.
        """
        with self._lock:
            process = self._running()
            told: dict[str, Any] = {"seconds": seconds, "grammar": grammar}
            if tokenizer != self._tokenizer:
                told["tokenizer"] = tokenizer
            self._waits = True
            answer = self._asked(process, told, _PATIENCE * (seconds + 1.0))
            if answer is None:
                raise _ended(process.wait(), seconds)
            self._waits, self._tokenizer = False, tokenizer
        if "compiled" in answer:
            return str(answer["compiled"])
        kind = BudgetExceeded if answer["memory"] else UnsupportedGrammar
        raise kind(f"The engine xgrammar cannot compile the grammar: {answer['error']:.300}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid():
            if not self._waits and self._process.poll() is None:
                return self._process
            _end(self._process)
        self._tokenizer, self._owner, self._waits = None, os.getpid(), True
        process = self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(process.kill)
        if self._asked(process, None, _START_SECONDS) is None:
            raise UnsupportedGrammar(
                f"The process that compiles grammars for xgrammar did not start (exit status {process.wait()}). Make "
                f"the grammar smaller, so that it is compiled in this process, or use the engine 'llguidance'."
            )
        return process

    @staticmethod
    def _asked(process: subprocess.Popen[bytes], told: dict[str, Any] | None, seconds: float) -> dict[str, Any] | None:
        """The answer of the process; ``None`` if it ends, or has to be ended after so much real time."""
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        line = b""
        try:
            timer.start()
            with contextlib.suppress(BrokenPipeError):
                if told is not None:
                    process.stdin.write(json.dumps(told).encode() + b"\n")
                    process.stdin.flush()
            line = process.stdout.readline()
        finally:
            timer.cancel()
            if not line.endswith(b"\n"):
                _end(process)
        if not line.endswith(b"\n"):
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and give back what the system holds for it."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # what was not written yet
            if pipe is not None:
                pipe.close()
    process.wait()
    atexit.unregister(process.kill)


def _ended(status: int, seconds: float) -> BudgetExceeded | UnsupportedGrammar:
    limits = {-int(getattr(signal, name, 0)) for name in ("SIGPROF", "SIGKILL", "SIGXCPU")}
    if status in limits or os.name == "nt":
        return BudgetExceeded(
            f"Compiling the grammar with the engine xgrammar takes longer than {seconds:.3g} seconds. Write it with "
            f"smaller repeat counts or fewer alternatives, raise max_seconds, or use the engine 'llguidance'."
        )
    return UnsupportedGrammar(
        f"The engine xgrammar ended its process (exit status {status}) on the grammar, which may be nested too deeply "
        f"or take too much memory. Make it smaller, or use the engine 'llguidance'."
    )


_COMPILER: Final = Compiler()


def compile_beside(grammar: str, tokenizer: str, seconds: float) -> str:
    """As :meth:`Compiler.compiled`, with the one compiler process of this Python process."""
    return _COMPILER.compiled(grammar, tokenizer, seconds)


def main(source: IO[bytes], target: IO[bytes]) -> None:
    """Compile the grammars that come, one per line, until ``source`` ends."""
    import xgrammar

    _limit_memory()
    compiler = None

    def answer(told: dict[str, Any]) -> None:
        target.write(json.dumps(told).encode() + b"\n")
        target.flush()

    answer({})
    for line in source:
        told = json.loads(line)
        _limit_time(told["seconds"])
        try:
            if "tokenizer" in told:
                information = xgrammar.TokenizerInfo.deserialize_json(told["tokenizer"])
                compiler = xgrammar.GrammarCompiler(information, max_threads=1, cache_enabled=False)
            assert compiler is not None
            compiled = compiler.compile_grammar(xgrammar.Grammar.deserialize_json(told["grammar"])).serialize_json()
        except (RuntimeError, ValueError, MemoryError) as error:
            _limit_time(0.0)
            answer({"error": str(error), "memory": isinstance(error, MemoryError) or "bad_alloc" in str(error)})
        else:
            _limit_time(0.0)
            answer({"compiled": compiled})


def _limit_time(seconds: float) -> None:
    """End this process after some seconds of processor time; 0 removes the limit."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        taken = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        resource.setrlimit(resource.RLIMIT_DATA, (taken + MOST_BYTES, taken + MOST_BYTES))


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
