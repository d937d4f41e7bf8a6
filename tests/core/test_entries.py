"""Every public entry of a program x every kind of wrong argument: taken or a sentence, never a traceback."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import logitloom
from logitloom import Chain, Context, Vocabulary, backend_of, document, generation, load_backend, processors
from logitloom.errors import LogitloomError
from logitloom.rows import tree as state
from logitloom.testing import ToyModel
from logitloom.trace import RecordedChain, TracedChain

ROOT = Path(__file__).parents[2]
WIDTH = 16
WORDS = Vocabulary([b"", *[bytes([97 + i]) for i in range(15)]], eos=[0])
BYTES = Vocabulary([*[bytes([i]) for i in range(256)], b""], eos=[256])
LOGITS = np.zeros((2, WIDTH), dtype=np.float32)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class SeveralLines:
    """Shown as models of PyTorch are."""

    def __repr__(self) -> str:
        return "Model(\n  (layer): Linear\n)"


#: Wrong values of every kind. Some are right for some arguments.
VALUES: dict[str, Any] = {
    "None": None, "True": True, "-1": -1, "0": 0, "2**63": 2**63, "10**400": 10**400, "a half": 0.5,
    "NaN": float("nan"), "infinity": float("inf"), "an empty text": "", "a text": "x",
    "half a surrogate pair": "\ud800", "bytes": b"x", "an empty list": [], "a list of an empty list": [[]],
    "a list of None": [None], "a list of texts": ["x"], "a list of -1": [-1], "a list of large numbers": [2**70],
    "a list of NaN": [float("nan")], "an empty table": {}, "a table": {"a": {}}, "a table by numbers": {-1: 1},
    "an object": object(), "a class": type, "a function": len, "an array": np.zeros(3),
    "an array of texts": np.array(["a"]), "a tuple": (1, 2), "a set": {1, 2}, "a range": range(3),
    "an exception": ValueError("x"), "lines": SeveralLines(), "a deep list": nested(3000),
    "a list of lists of texts": [["x"]],
}  # fmt: skip


class Entry(NamedTuple):
    """A public function or class.

    Attributes:
        call: what is called.
        given: arguments that it takes; each in turn is replaced.
    """

    call: Callable[..., Any]
    given: Mapping[str, Any]


def model() -> Any:
    return ToyModel(load_backend("numpy"), WIDTH)


def chain() -> Chain:
    return processors.load(("regex", {"pattern": "[a-e]+"}), ("top_k", {"k": 3}), tokenizer=WORDS)


def plain() -> Chain:
    return processors.load(("top_k", {"k": 3}))


def context() -> Context:
    return Context.start(LOGITS, prompt=[[1], [2]], max_length=30, vocabulary=WORDS)


def generated(**settings: Any) -> Any:
    prompts, seed = settings.pop("prompts", [[1, 2]]), settings.pop("seed", 0)
    return generation.Generator(**{"model": model(), "max_tokens": 3, "chain": chain(), **settings})(prompts, seed=seed)


def streamed(**settings: Any) -> Any:
    prompts, seed = settings.pop("prompts"), settings.pop("seed")
    return list(generation.Generator(model(), chain(), max_tokens=3, **settings).stream(prompts, seed=seed))


def recorded(tokens: Any, prompt: Any) -> Any:
    made = RecordedChain(plain())
    begun = made.init_state(context())
    made.process(LOGITS, begun, context())
    return made.sampled(tokens, prompt=prompt)


def hidden_model() -> Any:
    from logitloom_contrib.llama import random_model

    return random_model("numpy")


def searched(**options: Any) -> Any:
    settings = generation.ContrastiveSearch(**options)
    return generation.Generator(hidden_model(), strategy=settings, max_tokens=2, eos=())([5, 6])


def beams(**options: Any) -> Any:
    return generated(strategy=generation.BeamSearch(**options))


def weighted(**options: Any) -> Any:
    return generated(strategy=generation.Particles(**options), chain=plain())


class Letters:
    """A tokenizer of the words."""

    vocabulary = WORDS

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - 96 for letter in text]


def continuing() -> Any:
    return generation.continuous(generation.Generator(model(), tokenizer=Letters(), vocabulary=WORDS, max_tokens=3))


def continued(prompt: Any = "ab", **more: Any) -> Any:
    return continuing()(prompt, **more)


LOOP: dict[str, Any] = {"prompts": [[1, 2]], "max_tokens": 3, "seed": 0, "eos": (0,)}
ENTRIES: dict[str, Entry] = {
    # Names and chains.
    "logitloom.processors.load": Entry(
        lambda spec, **more: processors.load(spec, **more),
        {"spec": "top_k", "options": {"top_k": {"k": 2}}, "tokenizer": WORDS, "model": 0, "block": (), "debug": False},
    ),
    "logitloom.processors.available": Entry(processors.available, {}),
    "logitloom.processors.describe": Entry(processors.describe, {"name": "top_k"}),
    "logitloom.document.from_document": Entry(
        document.from_document,
        {"document": {"logitloom": 1, "processor": [{"use": "top_k", "options": {"k": 2}}]}, "tokenizer": WORDS},
    ),
    "logitloom.document.load": Entry(document.load, {"source": str(ROOT / "nothing.toml")}),
    "logitloom.document.to_document": Entry(document.to_document, {"chain": plain()}),
    "logitloom.document.to_json": Entry(document.to_json, {"chain": plain()}),
    "logitloom.document.to_toml": Entry(document.to_toml, {"chain": plain()}),
    "logitloom.Vocabulary": Entry(Vocabulary, {"token_bytes": [b"", b"a"], "eos": [0], "special": []}),
    "logitloom.Vocabulary.with_eos": Entry(WORDS.with_eos, {"eos": [1]}),
    "logitloom.Vocabulary.text_bytes": Entry(WORDS.text_bytes, {"tokens": [1, 2]}),
    "logitloom.Vocabulary.decode": Entry(WORDS.decode, {"tokens": [1, 2]}),
    "logitloom.Vocabulary.describe": Entry(WORDS.describe, {"token": 1}),
    "logitloom.read_vocabulary": Entry(logitloom.read_vocabulary, {"tokenizer": WORDS}),
    "logitloom.backend_of": Entry(backend_of, {"array": LOGITS}),
    "logitloom.load_backend": Entry(lambda name: load_backend(name), {"name": "numpy"}),
    # One step.
    "logitloom.Context.start": Entry(
        Context.start,
        {"logits": LOGITS, "prompt": [[1], [2]], "max_length": 30, "vocabulary": WORDS, "seed": 0, "max_new_tokens": 9},
    ),
    "logitloom.Context.accept": Entry(lambda tokens: context().accept(tokens), {"tokens": [[1], [2]]}),
    "logitloom.Chain.init_state": Entry(lambda context: chain().init_state(context), {"context": context()}),
    "logitloom.Chain.process": Entry(
        lambda **given: chain().process(**given),
        {"logits": LOGITS, "state": chain().init_state(context()), "context": context()},
    ),
    "logitloom.Chain.replay": Entry(
        lambda **given: chain().replay(**given), {"tokens": [[1], [2, 3]], "context": context()}
    ),
    "logitloom.Chain.score": Entry(
        lambda **given: plain().score(**given),
        {"logits": np.zeros((2, 3, WIDTH), np.float32), "tokens": [[1, 2, 3]] * 2, "context": context(), "kept": None},
    ),
    "logitloom.Chain.configure": Entry(lambda top_k: plain().configure(top_k=top_k), {"top_k": {"k": 2}}),
    "logitloom.Chain.forced_tokens": Entry(
        lambda **given: chain().forced_tokens(**given), {"state": chain().init_state(context()), "context": context()}
    ),
    "logitloom.Chain.__getitem__": Entry(lambda label: plain()[label], {"label": "top_k"}),
    "logitloom.Chain.save_state": Entry(
        lambda state: chain().save_state(state), {"state": chain().init_state(context())}
    ),
    "logitloom.Chain.load_state": Entry(
        lambda **given: chain().load_state(**given),
        {"data": chain().save_state(chain().init_state(context())), "context": context()},
    ),
    "logitloom.rows.tree.take": Entry(state.take, {"state": (np.arange(3),), "index": [0, 2]}),
    "logitloom.rows.tree.repeat": Entry(state.repeat, {"state": (np.arange(3),), "times": 2}),
    "logitloom.rows.tree.concat": Entry(state.concat, {"states": [(np.arange(3),), (np.arange(2),)]}),
    # Texts.
    "logitloom.generation.Generator": Entry(
        generated,
        {
            "prompts": [[1, 2]], "seed": 0, "chain": chain(), "model": model(), "strategy": generation.Greedy(),
            "max_tokens": 3, "tokenizer": None, "vocabulary": WORDS, "eos": (0,), "skip_forced": True,
            "candidates": None, "on_round": None, "on_emission": None, "record": True, "heal": False, "avoid": None,
        },
    ),
    "logitloom.generation.Generator.stream": Entry(streamed, {"prompts": [[1, 2]], "seed": 0, "record": True}),
    "logitloom.generation.Multinomial": Entry(
        lambda **given: generated(strategy=generation.Multinomial(**given)), {"samples": 2}
    ),
    "logitloom.generation.Greedy": Entry(lambda **given: generated(strategy=generation.Greedy(**given)), {}),
    "logitloom.generation.BeamSearch": Entry(
        beams, {"beams": 3, "length_penalty": 1.0, "early_stopping": False, "samples": 2}
    ),
    "logitloom.generation.ContrastiveSearch": Entry(searched, {"k": 3, "penalty_alpha": 0.6, "samples": 1}),
    "logitloom.generation.Particles": Entry(weighted, {"samples": 3, "resample_below": 0.5}),
    "logitloom.generation.posterior": Entry(generation.posterior, {"found": []}),
    "logitloom.generation.decode": Entry(
        lambda **given: list(generation.decode(model(), chain=plain(), sampler=generation.Greedy(), **given)), LOOP
    ),
    "logitloom.generation.beam_search": Entry(
        lambda **given: generation.beam_search(model(), chain=plain(), settings=generation.BeamSearch(2), **given), LOOP
    ),
    "logitloom.generation.decode_weighted": Entry(
        lambda **given: generation.decode_weighted(
            model(), chain=plain(), settings=generation.Particles(2), **given
        ),
        LOOP,
    ),
    "logitloom.generation.contrastive_search": Entry(
        lambda **given: list(
            generation.contrastive_search(
                hidden_model(), chain=plain(), settings=generation.ContrastiveSearch(k=2), **given
            )
        ),
        {**LOOP, "record": True},
    ),
    "logitloom.generation.heal": Entry(
        generation.heal, {"chain": chain(), "prompts": [[1, 2]], "vocabulary": WORDS, "in_order": True}
    ),
    "logitloom.generation.read_value": Entry(
        generation.read_value,
        {
            "chain": processors.load(("json", {"schema": {"type": "object"}}), tokenizer=BYTES),
            "text": list(b"{}"),
        },
    ),
    "logitloom.generation.SoftBan": Entry(generation.SoftBan, {"phrases": ["ab"]}),
    "logitloom.generation.continuous": Entry(
        generation.continuous, {"generator": generation.Generator(model(), vocabulary=WORDS)}
    ),
    "logitloom.generation.ContinuousGenerator": Entry(
        continued, {"prompt": "ab", "max_tokens": 3, "stop_at": "b", "seed": 0}
    ),
    "logitloom.generation.SequenceState.__getitem__": Entry(lambda index: continued()[index], {"index": 0}),
    "logitloom.generation.SequenceState.fork": Entry(lambda samples: continued().fork(samples), {"samples": 2}),
    "logitloom.generation.SequenceState.load": Entry(
        generation.SequenceState.load, {"path": "nothing", "generator": continuing().generator}
    ),
    # Records.
    "logitloom.trace.RecordedChain": Entry(RecordedChain, {"chain": plain(), "limit": 9, "first": True}),
    "logitloom.trace.RecordedChain.sampled": Entry(recorded, {"tokens": [1], "prompt": [1]}),
    "logitloom.trace.TracedChain": Entry(TracedChain, {"chain": plain(), "top": 3, "limit": 9}),
}  # fmt: skip

#: Exceptions of what is called back are the caller's own.
OWN = {("logitloom.generation.Generator", "on_emission", kind) for kind in ("a function", "its class")}


@pytest.mark.parametrize("name", ENTRIES)
def test_the_right_arguments_are_taken(name: str) -> None:
    if name not in ("logitloom.document.load", "logitloom.generation.SequenceState.load"):
        ENTRIES[name].call(**ENTRIES[name].given)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "argument"), [(name, argument) for name, entry in ENTRIES.items() for argument in entry.given]
)
@pytest.mark.long
def test_any_argument_is_taken_or_refused_with_a_sentence(name: str, argument: str) -> None:
    raw = {}
    for kind, value in {**VALUES, "its class": type(ENTRIES[name].given[argument])}.items():
        try:
            ENTRIES[name].call(**{**ENTRIES[name].given, argument: value})
        except LogitloomError as error:
            if not re.search(r"[a-z]{2,} .*", str(error)) or "\n" in str(error):
                raw[kind] = f"no sentence: {error}"
        except Exception as error:
            if (name, argument, kind) in OWN:
                continue
            raw[kind] = f"{type(error).__name__}: {error!s:.80}"
    assert not raw, raw


#: Modules of the reference whose names programs call; each name has rows above or stands in ``OTHERS``.
CALLED = (
    "logitloom", "logitloom.processors", "logitloom.document", "logitloom.generation", "logitloom.rows.tree",
    "logitloom.trace",
)  # fmt: skip
OTHERS: dict[str, str] = {
    "a protocol": """Array Cache CandidateGenerator HiddenStateModel ModelAdapter ModelLoader RowLeaf Sampler
        ValueReader""",
    "a record that the library makes": """Carried Change Description Distribution DraftRequest Drafts Emission Generated
        Healed Hypothesis LoadedModel Partial Particle Piece Policy Posterior Progress Record Round Sampled Schedule
        Statistics Step TracedSequence""",
    "a class that authors of plug-ins derive from": "LogitloomError HostTable Backend Processor",
    "for authors of plug-ins, whose types mypy checks (tests/types)": """Effect hookimpl option register unregister
        carry draw legal_prefix until_end Configured map_leaves leaves is_row_leaf check_handles check_like check_rows
        first_array row_count select Rows""",
    "made by processors.load, Context.start and init_state; the methods have rows": "Chain ChainState Context",
    "takes a chain alone": "to_document to_json to_toml",
    "tests of their own in tests/core/generation": """ContinuousGenerator continuous SequenceState speculate
        decode_avoiding""",
}
#: Modules of the reference that authors of plug-ins import, or that are read and not called.
OF_AUTHORS = {
    "logitloom.context.padded", "logitloom.chain.links.Link", "logitloom.rows.tree_format", "logitloom.host.options",
    "logitloom.processor.STAGES", "logitloom.processor.Stage", "logitloom.processor.NEEDS", "logitloom.processor.Need",
    "logitloom.processor.Processing", "logitloom.arrays.rng", "logitloom.host.loading", "logitloom.host.fingerprint",
    "logitloom.rows.atomic_file", "logitloom.constraints", "logitloom.state_memory",
    "logitloom.process_memory", "logitloom.display.warning",
    "logitloom_plugins.combinators.finish_within.FinishWithin", "logitloom_plugins.processors.checked.Checked",
    "logitloom.arrays.backend.NEG_INF", "logitloom.arrays.backend.TokenIds", "logitloom.arrays.backend.BufferPool",
    "logitloom.arrays.backend.SharedMemory", "logitloom.host.registry", "logitloom.MASK", "logitloom.BIAS",
    "logitloom.PENALTY", "logitloom.SCALE", "logitloom.TRUNCATION", "logitloom.REWEIGHT",
    "logitloom.host.text_encoder", "logitloom.display.progress", "logitloom_plugins.json_text.json_reader",
    "logitloom.host.hookspecs", "logitloom.engines", "logitloom.engines.written_text.written_text",
    "logitloom.generation.dead_ends", "logitloom.masks.logits_pool",
    "logitloom.generation.partial_values", "logitloom.generation.sampled.sampled",
    "logitloom.generation.soft_ban", "logitloom_contrib.row_tracking", "logitloom.errors", "logitloom.testing",
    "logitloom.vocabulary.kept_with_vocabulary", "logitloom_plugins.engine_texts",
    "logitloom.testing.array_namespace", "logitloom.testing.row_operations", "logitloom.arrays.row_operations",
}  # fmt: skip


def public_callables() -> Iterator[tuple[str, str]]:
    for module_name in CALLED:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            if callable(getattr(module, name)) and not inspect.ismodule(getattr(module, name)):
                yield module_name, name


def test_every_public_callable_has_rows_or_a_reason() -> None:
    with_rows = {part for entry in ENTRIES for part in (entry, entry.rpartition(".")[0])}
    others = {name for names in OTHERS.values() for name in names.split()}
    missing = [
        f"{module}.{name}"
        for module, name in public_callables()
        if f"{module}.{name}" not in with_rows and name not in others
    ]
    assert not missing
    assert others <= {name for _, name in public_callables()}


def test_every_part_of_the_reference_is_for_programs_or_for_authors() -> None:
    parts = re.findall(r"^::: (\S+)", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    known = {*CALLED, *OF_AUTHORS, *(f"{module}.{name}" for module, name in public_callables())}
    # Parts of automata and masks are for authors, too.
    parts = [part for part in parts if not part.startswith(("logitloom.automata", "logitloom.masks"))]
    # A function of the package generation stands once more with its own module.
    callables = {name for _, name in public_callables()}
    assert not [part for part in parts if part not in known and part.rpartition(".")[2] not in callables]


def test_the_wrong_values_are_of_every_kind() -> None:
    kinds = {type(value) for value in VALUES.values()}
    assert {type(None), bool, int, float, str, bytes, list, dict, tuple, set, range, np.ndarray, type} <= kinds
    assert sum(len(entry.given) for entry in ENTRIES.values()) > 80
