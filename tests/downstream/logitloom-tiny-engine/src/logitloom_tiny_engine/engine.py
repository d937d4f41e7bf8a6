"""An inference engine: continuous batching and greedy decoding. It knows nothing of chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Engine", "Request"]


@dataclass(eq=False)
class Request:
    """A prompt and what was written after it."""

    prompt: list[int]
    limit: int
    output: list[int] = field(default_factory=list)


class Engine:
    """Runs requests in batches; the newest stand first, and a request leaves when it has its tokens."""

    def __init__(self, logits_of: Callable[[Sequence[int]], NDArray[np.float32]], most: int = 3) -> None:
        self.logits_of, self.most = logits_of, most
        self.hook: Callable[[Sequence[Request], NDArray[np.float32]], NDArray[np.float32]] = lambda _, logits: logits
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    def run(self, requests: Sequence[Request]) -> None:
        """Until all are done; one that waits joins as soon as there is room."""
        self.waiting += requests
        while self.waiting or self.running:
            while self.waiting and len(self.running) < self.most:
                self.running.insert(0, self.waiting.pop(0))
            logits = np.stack([self.logits_of(request.prompt + request.output) for request in self.running])
            for request, row in zip(self.running, self.hook(self.running, logits), strict=True):
                request.output.append(int(np.argmax(row)))
            self.running = [request for request in self.running if len(request.output) < request.limit]
