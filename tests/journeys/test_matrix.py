"""Every built-in processor in every public entry point that takes a chain: a cell works, or is refused with a sentence.

The table is printed with ``pytest -s tests/journeys/test_matrix.py``.
"""

from __future__ import annotations

import copy
import functools
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from numpy.typing import NDArray

from logitloom import Chain, Context, Vocabulary, document, load_backend
from logitloom.arrays.backend import NEG_INF
from logitloom.errors import LogitloomError
from logitloom.generation import (
    BeamSearch,
    ContrastiveSearch,
    Generated,
    Generator,
    Greedy,
    Multinomial,
    SequenceState,
    SoftBan,
    continuous,
)
from logitloom.host import registry
from logitloom.testing import EngineConformance, ProcessorConformance, ToyModel, suites
from logitloom.trace import TracedChain
from logitloom_contrib.llama import random_model
from logitloom_plugins.candidates.prompt_lookup import PromptLookup
from tests.cases import EXHAUSTIVE

NUMPY = load_backend("numpy")
#: Longest message of a refusal, in characters.
LONGEST = 600
#: Tokens that a text may take: few, so that the limit is near, and many.
LIMITS = {"near": 6, "far": 90}


def _suites() -> dict[str, ProcessorConformance]:
    """The first suite of the kit for each built-in processor, if possible one that needs no optional package."""
    found, _ = suites.find([r for r in registry.available("processors") if r.distribution == "logitloom"], ["numpy"])
    by_name: dict[str, ProcessorConformance] = {}
    for suite in sorted(found.values(), key=lambda suite: hasattr(suite, "pytestmark")):
        assert issubclass(suite, ProcessorConformance)
        if isinstance(suite.processor, str):
            by_name.setdefault(suite.processor, suite())
    return by_name


SUITES = _suites()


@dataclass
class Cell:
    """One processor in one entry point, with one limit.

    Attributes:
        suite: the kit's suite of the processor.
        folder: for files.
        limit: the most tokens of a text; ``None``: the engine tells no limit.
    """

    suite: ProcessorConformance
    folder: Path
    limit: int | None = None
    chain: Chain = field(init=False)

    def __post_init__(self) -> None:
        self.chain = self.again()

    def again(self) -> Chain:
        """A chain of the processor; an equal one at each call."""
        return self.suite.chain(next(iter(self.suite.cases)), NUMPY)

    @property
    def prompt(self) -> list[int]:
        return list(self.suite.stories(next(iter(self.suite.cases)))[0].prompt)

    @property
    def model(self) -> Any:
        return self.suite.model(NUMPY) or ToyModel(NUMPY, vocab=self.suite.vocab_size, max_length=96)

    @property
    def vocabulary(self) -> Vocabulary:
        texts = [b""] + [f"t{i}".encode() for i in range(1, self.suite.vocab_size)]
        return self.suite.vocabulary or Vocabulary(texts, eos=[0])

    def context(self, rows: int = 2, chain: Chain | None = None) -> Context:
        more: dict[str, Any] = {} if self.limit is None else {"max_new_tokens": self.limit}
        return Context.start(
            self.logits(rows, chain), prompt=[self.prompt] * rows, seed=list(range(rows)), max_length=96,
            vocabulary=(chain or self.chain).vocabulary or self.vocabulary, **more,
        )  # fmt: skip

    def logits(self, rows: int = 2, chain: Chain | None = None) -> NDArray[np.float32]:
        dice = np.random.default_rng(7)
        return dice.normal(size=((chain or self.chain).branches * rows, self.suite.vocab_size)).astype(np.float32)

    def generator(self, **more: Any) -> Generator:
        settings: dict[str, Any] = {"max_tokens": self.limit or 90, "vocabulary": self.vocabulary, "chain": self.chain}
        return Generator(**{"model": self.model, **settings, **more})


def legal(logits: Any) -> list[int]:
    """The first tokens of each row that are not forbidden; every row has one."""
    assert (np.asarray(logits) > NEG_INF).any(axis=1).all()
    return [int(np.argmax(row)) for row in np.asarray(logits)]


def lived(cell: Cell, chain: Chain, steps: int = 3) -> tuple[Any, Any, list[list[int]], Any]:
    """Some steps of two rows: the context, the state, the tokens of each row, and the last processed logits."""
    context = cell.context(chain=chain)
    state, tokens = chain.init_state(context), [[], []]  # type: tuple[Any, list[list[int]]]
    processed, state = chain.process(cell.logits(chain=chain), state, context)
    for _ in range(steps):
        chosen = legal(processed)
        for row, token in zip(tokens, chosen, strict=True):
            row.append(token)
        if any(token in cell.vocabulary.eos for token in chosen):
            break
        context = context.accept([[token] for token in chosen])
        processed, state = chain.process(cell.logits(chain=chain), state, context)
    return context, state, tokens, processed


def equal(cell: Cell, one: Chain, other: Chain) -> None:
    """Two chains give the same logits, step by step."""
    assert np.array_equal(lived(cell, one)[3], lived(cell, other)[3])


def generated(found: Sequence[Generated]) -> None:
    assert found
    assert all(one.tokens or one.finish == "eos" for one in found)
    assert all(one.text is not None for one in found)


# -- entry points ------------------------------------------------------------------------------------------

ENTRIES: dict[str, Callable[[Cell], None]] = {}


def entry(function: Callable[[Cell], None]) -> Callable[[Cell], None]:
    ENTRIES[function.__name__] = function
    return function


@entry
def steps(cell: Cell) -> None:
    legal(lived(cell, cell.chain)[3])


@entry
def shown(cell: Cell) -> None:
    assert cell.chain.labels[0] in repr(cell.chain)


@entry
def pickled(cell: Cell) -> None:
    equal(cell, cell.chain, pickle.loads(pickle.dumps(cell.chain)))


@entry
def copied(cell: Cell) -> None:
    equal(cell, cell.chain, copy.deepcopy(cell.chain))


@entry
def documented(cell: Cell) -> None:
    read = document.from_document(
        document.to_document(cell.chain), tokenizer=cell.chain.vocabulary, model=cell.chain.model
    )
    equal(cell, cell.chain, read)


@entry
def fingerprints(cell: Cell) -> None:
    assert cell.chain.fingerprint == cell.again().fingerprint


@entry
def saved_states(cell: Cell) -> None:
    context, state, _, processed = lived(cell, cell.chain)
    again = cell.again()
    back = again.load_state(cell.chain.save_state(state), context)
    ids = legal(processed)
    if any(token in cell.vocabulary.eos for token in ids):
        return
    after = context.accept([[token] for token in ids])
    logits = cell.logits()
    assert np.array_equal(cell.chain.process(logits.copy(), state, after)[0], again.process(logits, back, after)[0])


@entry
def replayed(cell: Cell) -> None:
    context, state, tokens, processed = lived(cell, cell.chain)
    if any(row[-1] in cell.vocabulary.eos for row in tokens):
        return
    start = cell.context()
    back = cell.chain.replay(tokens, start)
    logits = cell.logits()
    after = context.accept([[token] for token in legal(processed)])
    later = start.accept([*tokens]).accept([[token] for token in legal(processed)])
    assert np.allclose(
        cell.chain.process(logits.copy(), state, after)[0], cell.chain.process(logits, back, later)[0], atol=1e-4
    )


@entry
def forced_tokens(cell: Cell) -> None:
    context, state, _, _ = lived(cell, cell.chain)
    for run in cell.chain.forced_tokens(state, context) or []:
        assert len(run) <= 96


@entry
def text_ends(cell: Cell) -> None:
    context, state, _, _ = lived(cell, cell.chain)
    cell.chain.text_ends(state, context)


@entry
def scored(cell: Cell) -> None:
    _, _, tokens, _ = lived(cell, cell.chain)
    time = max(map(len, tokens))
    logits = np.repeat(cell.logits()[: cell.chain.branches * 2, None], time, axis=1)
    assert np.isfinite(cell.chain.score(logits, tokens, cell.context())).all()


@entry
def traced(cell: Cell) -> None:
    chain = TracedChain(cell.chain)
    generated(cell.generator(chain=chain)([cell.prompt]))
    page = cell.folder / "trace.html"
    chain.record.save(page)
    assert page.stat().st_size > 1000
    assert pickle.loads(pickle.dumps(chain.record)).to_dict() == chain.record.to_dict()


@entry
def recorded(cell: Cell) -> None:
    found = cell.generator(record=True)([cell.prompt])
    generated(found)
    # The end of the sequence is sampled, too.
    assert all(len(one.sampled) - len(one.tokens) in (0, 1) for one in found)


@entry
def greedy(cell: Cell) -> None:
    generated(cell.generator(strategy=Greedy())([cell.prompt, cell.prompt[:1]]))


@entry
def sampled(cell: Cell) -> None:
    generated(cell.generator(strategy=Multinomial(samples=2))([cell.prompt], seed=3))


@entry
def streamed(cell: Cell) -> None:
    assert [*cell.generator().stream([cell.prompt])]


@entry
def beams(cell: Cell) -> None:
    generated(cell.generator(strategy=BeamSearch(beams=3))([cell.prompt]))


@entry
def contrastive_search(cell: Cell) -> None:
    model = random_model(NUMPY, vocab=cell.suite.vocab_size)
    prompt = cell.prompt or [1]
    generated(cell.generator(model=model, strategy=ContrastiveSearch(k=2))([prompt]))


@entry
def drafts(cell: Cell) -> None:
    plain = cell.generator()([cell.prompt])
    drafted = cell.generator(candidates=PromptLookup())([cell.prompt])
    assert [one.tokens for one in plain] == [one.tokens for one in drafted]


@entry
def soft_bans(cell: Cell) -> None:
    generated(cell.generator(avoid=SoftBan(("zz",)))([cell.prompt]))


@entry
def sequence_states(cell: Cell) -> None:
    state = continuous(cell.generator())([cell.prompt or [1]], max_tokens=cell.limit or 90)
    if find_spec("safetensors") is None:
        return
    path = cell.folder / "state.safetensors"
    state.save(path)
    back = SequenceState.load(path, cell.generator())
    assert back.rows == state.rows


def _followed(engine: str, cell: Cell) -> None:
    """A row of an engine follows the chain over the engine's own protocol, as the kit opens its adapter."""
    suite = ENGINES[engine]()
    call = suite.open(cell.chain)
    row = cell.prompt or [1]
    for _ in range(3):
        (token,) = legal(call([row], cell.logits(1)[:1]))
        if token in cell.vocabulary.eos:
            return
        row = [*row, token]


def _engines() -> dict[str, type[EngineConformance]]:
    """The first suite of the kit for each adapter."""
    found, _ = suites.find([r for r in registry.available("engines") if r.distribution == "logitloom"])
    by_name: dict[str, type[EngineConformance]] = {}
    for suite in found.values():
        assert issubclass(suite, EngineConformance)
        by_name.setdefault(suite.engine, suite)
    return by_name


ENGINES = _engines()


# -- the table ---------------------------------------------------------------------------------------------

#: Refusals that are right, by entry point: part of the sentence.
RIGHT = {
    "documented": "which a TOML or JSON document cannot hold",
    "replayed": "cannot be rebuilt from tokens",
    "engine": "cannot run this chain|must see the logits of every step|cannot keep",
}
#: A limit that is too small for the shortest text.
TOO_NEAR = "the shortest text that .* needs"
TABLE: dict[str, dict[str, str]] = {}


def outcome(run: Callable[[], None]) -> str:
    """``works``, or the sentence of a refusal. Any other exception passes."""
    try:
        run()
    except LogitloomError as error:
        sentence = str(error)
        assert 20 < len(sentence) < LONGEST, f"a refusal is a sentence or two: {sentence}"
        return sentence
    return "works"


def check(cell: Cell, entry_point: str, run: Callable[[Cell], None]) -> None:
    """Enter the outcome of a cell in the table; a refusal is one of those that are right."""
    found = outcome(lambda: run(cell))
    right = [RIGHT[kind] for kind in RIGHT if entry_point.startswith(kind)]
    if cell.limit == LIMITS["near"]:
        right.append(TOO_NEAR)
    row = TABLE.setdefault(str(cell.suite.processor), {})
    name = f"{entry_point}, limit {cell.limit}"
    if found == "works":
        row[name] = "+"
        return
    assert any(re.search(pattern, found) for pattern in right), f"{cell.suite.processor}, {name}: {found}"
    row[name] = "-"


def _listed(marks: Any) -> list[Any]:
    """The marks of a class: pytest makes a list of the one mark of a class that it has collected."""
    return marks if isinstance(marks, list) else [marks]


@pytest.mark.parametrize("limit", [None, *LIMITS.values()], ids=["no limit", *LIMITS])
@pytest.mark.parametrize(
    "processor",
    [
        pytest.param(name, marks=[*_listed(suite.pytestmark), pytest.mark.extras])
        if hasattr(suite, "pytestmark")
        else name
        for name, suite in SUITES.items()
    ],
)
@pytest.mark.long
def test_every_entry_point_takes_a_processor_or_says_why_not(processor: str, limit: int | None, tmp_path: Path) -> None:
    names = [*ENTRIES]
    # By default one entry point in three, in turn over the cells.
    for name in names if EXHAUSTIVE else names[crc32(f"{processor} {limit}".encode()) % 3 :: 3]:
        check(Cell(SUITES[processor], tmp_path, limit), name, ENTRIES[name])


@pytest.mark.extras
@pytest.mark.parametrize("engine", ENGINES)
def test_every_adapter_takes_a_processor_or_says_why_not(engine: str, tmp_path: Path) -> None:
    for suite in SUITES.values():
        check(Cell(suite, tmp_path), f"engine {engine}", functools.partial(_followed, engine))


def test_the_table_has_a_cell_for_each_processor_and_entry_point() -> None:
    """Prints the table: ``+`` works, ``-`` is refused with a sentence."""
    assert len(SUITES) >= 60
    for processor, cells in TABLE.items():
        refused = [name for name, mark in cells.items() if mark == "-"]
        print(f"{processor:34} {''.join(cells.values())}" + (f"  refused: {'; '.join(refused)}" if refused else ""))
    print(f"{'entry points:':34} {', '.join(ENTRIES)}")
