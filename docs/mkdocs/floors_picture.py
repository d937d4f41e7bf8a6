"""Draws the floors of core as ``tests/test_architecture.py`` has them. Run it to write ``docs/images/floors.svg``."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

__all__ = ["PICTURE", "draw"]

ROOT: Final = Path(__file__).parent.parent.parent
PICTURE: Final = ROOT / "docs" / "images" / "floors.svg"

_WIDTH: Final = 820
_HEIGHT: Final = 58
#: What each floor is about, from the ground up.
_TITLES: Final = (
    "values without arrays", "arrays and masks", "tokens and rows", "what a processor sees, and the host", "chains",
    "automata", "constraints", "decoding", "for people",
)  # fmt: skip


def _floors() -> tuple[set[str], ...]:
    tree = ast.parse((ROOT / "tests" / "test_architecture.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FLOORS":
            found: tuple[set[str], ...] = ast.literal_eval(node.value)
            return found
    raise LookupError("tests/test_architecture.py defines no FLOORS.")


def draw() -> str:
    """The picture, as SVG."""
    floors, boxes = _floors(), []
    for place, (floor, title) in enumerate(zip(reversed(floors), reversed(_TITLES), strict=True)):
        top = 10 + place * _HEIGHT
        names = "&#160; ".join(sorted(floor))
        boxes += [
            f'<rect x="40" y="{top}" width="{_WIDTH - 50}" height="{_HEIGHT - 8}" rx="6" fill="#eef1fb"/>',
            f'<text x="18" y="{top + 31}" font-weight="bold" fill="#4051b5">{len(floors) - place}</text>',
            f'<text x="52" y="{top + 20}" font-weight="bold" fill="#222">{title}</text>',
            f'<text x="52" y="{top + 39}" font-family="monospace" font-size="11" fill="#222">{names}</text>',
        ]
    height = 12 + len(floors) * _HEIGHT
    size = f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>', *boxes, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
