"""Two processes: a state of any built-in processor goes on in the other one as it would have gone on.

Here from 8 random prefixes of each case; with ``LOGITLOOM_EXHAUSTIVE=1`` from 200.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import load_backend, processors
from logitloom.errors import StateMismatch
from tests.cases import EXHAUSTIVE
from tests.plugins.processors import travelling

ROWS = 200 if EXHAUSTIVE else 8
ROOT = Path(__file__).parents[3]
SUITES = travelling.suites()


#: The cases that travel, by default one in four of those on engines, which are marked, and one in four of the others.
TRAVELLERS = [
    key
    for on_engines in (False, True)
    for key in [key for key in SUITES if (key[0] in travelling.ON_ENGINES) == on_engines][:: 1 if EXHAUSTIVE else 4]
]
KEYS = [pytest.param(*key, marks=[pytest.mark.extras] if key[0] in travelling.ON_ENGINES else []) for key in TRAVELLERS]


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[Any, Any]]:
    """Per case of a suite's kind, on engines or not, the walk, its state, and what the other process gave."""

    @cache
    def found(on_engines: bool) -> dict[Any, Any]:
        keys = [key for key in TRAVELLERS if (key[0] in travelling.ON_ENGINES) == on_engines]
        return _crossed(keys, tmp_path_factory.mktemp("states"))

    return lambda name: found(name in travelling.ON_ENGINES)


def _crossed(keys: list[tuple[str, str]], folder: Path) -> dict[Any, Any]:
    backend = load_backend("numpy")
    walks, sent = {}, {}
    for key in keys:
        suite = SUITES[key]
        made, state = travelling.walk(suite, key[1], backend, ROWS, seed=1)
        chain, _ = travelling.begin(suite, key[1], backend, 1)
        walks[key] = made, state
        sent[key] = made, chain.save_state(state), pickle.dumps(state)
    (folder / "sent").write_bytes(pickle.dumps(sent))
    command = [sys.executable, "-m", travelling.__name__, str(folder / "sent"), str(folder / "back")]
    # Another seed of hashes, so that nothing may depend on the order of sets.
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "77"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    back = pickle.loads((folder / "back").read_bytes())
    return {key: (*walks[key], back[key]) for key in walks}


@pytest.mark.parametrize(("name", "case"), KEYS)
def test_a_state_goes_on_in_another_process(crossed: Any, name: str, case: str) -> None:
    made, state, ways = crossed(name)[name, case]
    expected = travelling.go_on(SUITES[name, case], case, load_backend("numpy"), made, state)
    assert len(ways) == 2
    for found in ways:
        for step, (ours, theirs) in enumerate(zip(expected, found, strict=True)):
            assert np.array_equal(ours > -np.inf, theirs > -np.inf), f"masks differ {step} steps later"
            np.testing.assert_allclose(theirs, ours, rtol=1e-6)


def test_every_built_in_processor_is_among_them() -> None:
    tested = {suite.processor for suite in SUITES.values()}
    installed = {record.name for record in processors.available() if record.distribution == "logitloom"}
    assert tested >= installed - {"grammar", "json"}


@pytest.mark.parametrize(("name", "case"), KEYS)
def test_another_chain_refuses_it(crossed: Any, name: str, case: str) -> None:
    _, state, _ = crossed(name)[name, case]
    backend = load_backend("numpy")
    suite = SUITES[name, case]
    chain, context = travelling.begin(suite, case, backend, 1)
    data = chain.save_state(state)
    (link,) = chain.links
    wrong = processors.load("temperature" if link.plugin != "temperature" else "top_p")
    wrong = wrong.configure(temperature={"temperature": 0.31}) if wrong.labels == ("temperature",) else wrong.configure(
        top_p={"p": 0.31}
    )  # fmt: skip
    with pytest.raises(StateMismatch, match=rf"Its processor number 1 is '{link.label}', and here it is"):
        wrong.load_state(data, context)
