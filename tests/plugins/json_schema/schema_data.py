"""Where the test data of JSON Schema lies, and how two peers judge an instance."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def data_folder(name: str) -> Path:
    """The folder of some test data, or a skip with the reason."""
    for base in (os.environ.get("LOGITLOOM_TEST_DATA"), ROOT.parent / "shared" / "data"):
        if base and (Path(base) / name).is_dir():
            return Path(base) / name
    pytest.skip(f"the test data {name} is not here; set LOGITLOOM_TEST_DATA to the folder that has it")


def suite(folder: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """``(keyword, group)`` of JSON-Schema-Test-Suite, draft 2020-12."""
    for path in sorted((data_folder("json-schema-test-suite") / folder).glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            yield path.stem, group


def benchmark() -> list[dict[str, Any]]:
    """The schemas and instances of the sample of JSONSchemaBench."""
    with gzip.open(data_folder("jsonschemabench") / "sample.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
