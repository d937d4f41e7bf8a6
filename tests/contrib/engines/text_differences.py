"""What each engine forces on texts, and the table of it in the engine's page. Run it to write the tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar, Final

from logitloom_plugins.engine_texts import CHAINS, RECORDED, EngineTextConformance

__all__ = [
    "PAGES",
    "LlamaCppTexts",
    "MlxLmTexts",
    "OnnxGenAiTexts",
    "TransformersTexts",
    "VllmTexts",
    "difference_table",
    "with_table",
]

_DOCS: Final = Path(__file__).parents[3] / "docs" / "engines"
_MARKED: Final = re.compile(r"(<!-- differences -->\n).*?(<!-- end of differences -->)", re.DOTALL)


class TransformersTexts(EngineTextConformance):
    engine = "transformers"


class MlxLmTexts(EngineTextConformance):
    engine = "mlx-lm"


class OnnxGenAiTexts(EngineTextConformance):
    engine = "ONNX Runtime GenAI"


class LlamaCppTexts(EngineTextConformance):
    engine = "llama-cpp-python"
    alike = "`finish_reason` is `stop` for end-of-sequence and for stop strings"


class VllmTexts(EngineTextConformance):
    engine = "vLLM"
    forced: ClassVar = {
        "contradiction at the start": "the request is refused before it begins (HTTP 400, `VLLMValidationError` in "
        "Python), in place of `NoLegalToken`",
        "contradiction later": "a processor cannot end a request with an error: its text ends there, as with "
        "end-of-sequence, and the log says why",
    }


#: Page -> its suite.
PAGES: Final[dict[Path, type[EngineTextConformance]]] = {
    _DOCS / "transformers.md": TransformersTexts,
    _DOCS / "mlx_lm.md": MlxLmTexts,
    _DOCS / "onnx_genai.md": OnnxGenAiTexts,
    _DOCS / "llama_cpp.md": LlamaCppTexts,
    _DOCS / "vllm.md": VllmTexts,
}


def difference_table(suite: type[EngineTextConformance]) -> str:
    """The differences that an engine forces, as a table in Markdown."""
    rows = ({"every one": suite.alike} if suite.alike else {}) | dict(suite.forced)
    records = f"not recorded: {suite.unrecorded}" if suite.unrecorded else "the same as our own loop records"
    sampled = f"What tokens were chosen from ({len(RECORDED)} chains): {records}.\n"
    if not rows:
        return f"None in {len(CHAINS)} chains.\n\n{sampled}"
    lines = [f"| chain (of {len(CHAINS)}) | what {suite.engine} forces |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {reason} |" for name, reason in rows.items()), "", sampled])


def with_table(page: Path) -> str:
    """The text of a page with the table that belongs there."""
    text = page.read_text(encoding="utf-8")
    assert _MARKED.search(text), f"{page} has no place for the differences between <!-- differences --> and its end."
    return _MARKED.sub(lambda found: f"{found[1]}\n{difference_table(PAGES[page])}\n{found[2]}", text)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_table(path), encoding="utf-8")
