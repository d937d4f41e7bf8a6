"""Adapters of engines x every kind of wrong argument (of ``tests/core/test_entries.py``): taken or a sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from logitloom import processors
from logitloom.errors import InvalidContext, LogitloomError
from logitloom_contrib.engines.vllm import to_vllm
from logitloom_contrib.llama import load
from tests.contrib.engines.conftest import EOS, PAD, VOCABULARY, WIDTH, tensor
from tests.core.test_entries import VALUES

pytestmark = pytest.mark.extras


def plain() -> Any:
    return processors.load(("regex", {"pattern": "[a-z]{2}"}), tokenizer=VOCABULARY)


def guided() -> Any:
    return processors.load(("cfg", {"scale": 1.5}))


SETTINGS: dict[str, Any] = {"tokenizer": VOCABULARY, "eos": [EOS], "padding": PAD, "seed": 0, "max_length": 9}


def transformers_entries(tiny: Any) -> dict[str, tuple[Callable[..., Any], Mapping[str, Any]]]:
    torch = pytest.importorskip("torch", reason="the package torch is not installed")
    pytest.importorskip("transformers", reason="the package transformers is not installed")
    from logitloom_contrib.engines.transformers import TransformersModel, to_transformers

    model, ids = tiny(), tensor([[2, 3]])
    made = to_transformers(plain(), model, VOCABULARY)
    return {
        "to_transformers": (to_transformers, {"chain": plain(), "model": model, **SETTINGS}),
        "to_transformers, guided": (to_transformers, {"chain": guided(), "model": model}),
        "TransformersModel": (TransformersModel, {"model": model}),
        "call": (to_transformers(plain(), model, VOCABULARY), {"input_ids": ids, "scores": torch.zeros((1, WIDTH))}),
        "texts": (made.texts, {"sequences": ids, "prompt_length": 1}),
        "heal": (made.heal, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}),
        "sampled": (made.sampled, {"generated": None}),
    }


def mlx_entries(tiny: Any) -> dict[str, tuple[Callable[..., Any], Mapping[str, Any]]]:
    mlx = pytest.importorskip("mlx.core", reason="the package mlx is not installed")
    pytest.importorskip("mlx_lm", reason="the package mlx_lm is not installed")
    from logitloom_contrib.engines.mlx_lm import MlxModel, to_mlx_lm

    ids = mlx.array([2, 3])
    settings = {name: value for name, value in SETTINGS.items() if name not in ("eos", "padding")}
    return {
        "to_mlx_lm": (to_mlx_lm, {"chain": plain(), "max_new_tokens": 5, **settings}),
        "MlxModel": (MlxModel, {"model": tiny()}),
        "call": (to_mlx_lm(plain()), {"tokens": ids, "logits": mlx.zeros((1, WIDTH))}),
    }


OTHERS: dict[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "to_vllm": (to_vllm, {"chain": plain()}),
    "llama.load": (load, {"path": "nothing.gguf", "backend": "numpy"}),
}


def refused_without_a_sentence(
    entries: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]],
) -> Iterator[tuple[str, str, str, str]]:
    for name, (call, given) in entries.items():
        for argument in given:
            for kind, value in {**VALUES, "its class": type(given[argument])}.items():
                try:
                    call(**{**given, argument: value})
                except LogitloomError as error:
                    if not re.search(r"[a-z]{2,} .*", str(error)) or "\n" in str(error):
                        yield name, argument, kind, f"no sentence: {error}"
                except Exception as error:
                    yield name, argument, kind, f"{type(error).__name__}: {error!s:.80}"


@pytest.mark.filterwarnings("ignore")
def test_transformers_takes_or_refuses_any_argument(tiny_transformers: Any) -> None:
    assert not list(refused_without_a_sentence(transformers_entries(tiny_transformers)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.mlx
def test_mlx_lm_takes_or_refuses_any_argument(tiny_mlx: Any) -> None:
    assert not list(refused_without_a_sentence(mlx_entries(tiny_mlx)))


@pytest.mark.parametrize("engine", ["transformers", "mlx_lm"])
@pytest.mark.parametrize("seed", ["9", 1.5])
def test_a_seed_that_is_no_number_is_refused_when_the_chain_is_bound(engine: str, seed: Any) -> None:
    pytest.importorskip({"mlx_lm": "mlx"}.get(engine, engine), reason=f"the package {engine} is not installed")
    adapters = pytest.importorskip(f"logitloom_contrib.engines.{engine}", reason=f"{engine} is not installed")
    with pytest.raises(InvalidContext, match=r"'seed' must be a whole number, but is a"):
        getattr(adapters, f"to_{engine}")(plain(), seed=seed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.weights
def test_other_entries_take_or_refuse_any_argument() -> None:
    assert not list(refused_without_a_sentence(OTHERS))
