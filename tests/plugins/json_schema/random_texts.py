"""Random complete texts of a machine: every byte that is allowed may be taken, and every state must go on."""

from __future__ import annotations

import random

from logitloom_plugins.json_schema.folds.machine import Machine
from logitloom_plugins.json_schema.folds.text_reader import Position


def random_text(machine: Machine, rnd: random.Random, patience: int = 400) -> bytes | None:
    """A text found by a random walk; ``None`` if it got too long. Fails where no byte is allowed."""
    reached = Position(machine.start)
    written = bytearray()
    while len(written) < patience:
        possible = [*machine.codes.every_code(reached.state)]
        if not reached.stack and machine.accepting(reached.state) and (not possible or rnd.random() < 0.5):
            return bytes(written)
        following = None
        while following is None:
            assert possible, f"dead end after {bytes(written)!r}"
            closing = [byte for byte in possible if byte in b'"}]']
            # Prefer endings and plain bytes, or walks would not end.
            plain = [byte for byte in possible if 0x21 <= byte < 0x7F and byte != ord("\\")]
            pick = rnd.choice(
                closing if closing and rnd.random() < 0.4 else plain if plain and rnd.random() < 0.9 else possible
            )
            following = machine.read(reached, bytes([pick]))
            possible.remove(pick)
        written.append(pick)
        reached = following
    return None
