"""vLLM's own server as a process, for as long as a test needs it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["serving"]


@contextmanager
def serving(model: Path, log: Path, *options: str, **environment: str) -> Iterator[str]:
    """Start a server for a model and give its address.

    Args:
        model: the model's folder.
        log: where its output goes.
        options: of its command line.
        environment: variables, besides those of this process.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "LOGITLOOM_SERVER_SECONDS": "20",  # test machines may be busy
        "LOGITLOOM_SERVER_ENGINE_SECONDS": "20",
    }
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--host", "127.0.0.1",
        "--port", str(port), "--enforce-eager", "--max-num-seqs", "16", "--seed", "0", *options,
    ]  # fmt: skip
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | variables | environment
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until_ready(process, address, log)
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: Any, address: str, log: Path) -> None:
    for _ in range(900):
        if process.poll() is not None:
            pytest.fail(f"The server ended: {log.read_text(errors='replace')[-4000:]}", pytrace=False)
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    pytest.fail(f"The server did not start: {log.read_text(errors='replace')[-4000:]}", pytrace=False)
