"""Options that would take all memory, leave no token or overflow a half type are refused, or do what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom import Context, load_backend, processors
from logitloom.errors import LogitloomError, OptionError
from logitloom.testing import ToyModel

VOCAB = 12


def begun(name: str, options: dict[str, Any], **more: Any) -> tuple[Any, Any, Context]:
    chain = processors.load((name, options), **more)
    logits = np.zeros((2, VOCAB), dtype=np.float32)
    context = Context.start(logits, prompt=[[1, 2], [3]], max_length=20)
    return chain, chain.init_state(context), context


@pytest.mark.parametrize(
    ("name", "options", "option"),
    [
        ("watermark_delta", {"key": 1, "width": 2**31 - 1}, "width"),
        ("watermark_dipmark", {"key": 1, "width": 2**31 - 1}, "width"),
        ("watermark_greenlist", {"width": 2**31 - 1}, "width"),
        ("watermark_gumbel", {"key": 1, "width": 2**31 - 1}, "width"),
        ("watermark_synthid", {"keys": [1], "ngram_len": 2**31 - 1}, "ngram_len"),
        ("watermark_synthid", {"keys": [1], "history_size": 2**31 - 1}, "history_size"),
        ("watermark_synthid", {"keys": [1], "table_size": 2**30}, "table_size"),
        ("watermark_greenlist", {"bias": 3.39e38}, "bias"),
        ("repetition_penalty", {"penalty": 1.1, "window": 2**31 - 1}, "window"),
    ],
)
def test_sizes_beyond_any_use_are_refused(name: str, options: dict[str, Any], option: str) -> None:
    with pytest.raises(OptionError, match=rf"Option '{option}' of '{name}' must be >.* <= \d+"):
        processors.load((name, options))


@pytest.mark.parametrize("offset", [VOCAB - 2, VOCAB, 2**31 - 1, 2**63])
def test_codebooks_beyond_the_logits_are_refused(offset: int) -> None:
    with pytest.raises(LogitloomError, match=r"second codebook from id \d+ .* ids 0 to 11|offset"):
        begun("alternating_codebooks", {"offset": offset, "size": 2})
    begun("alternating_codebooks", {"offset": VOCAB - 3, "size": 2})


def test_time_stamps_need_an_end_below_them() -> None:
    with pytest.raises(OptionError, match=r"'eos' .* is 65000, but must lie below no_timestamps, which is 6"):
        begun("whisper_timestamps", {"no_timestamps": 6, "eos": 65000})


@pytest.mark.parametrize(
    ("name", "options", "option"),
    [
        ("cfg", {"scale": 2.0, "negative_prompt": [VOCAB]}, "negative_prompt"),
        ("context_aware", {"question": [4, 2**15]}, "question"),
    ],
)
def test_prompts_of_a_second_branch_have_ids_of_the_model(name: str, options: dict[str, Any], option: str) -> None:
    model = ToyModel(load_backend("numpy"), vocab=VOCAB)
    with pytest.raises(OptionError, match=rf"Option '{option}' of '{name}' names the token \d+, but the logits"):
        begun(name, options, model=model)


@pytest.mark.parametrize("model", [True, 5, [[]], "gpt2"])
@pytest.mark.parametrize("name", ["cfg", "contrastive"])
def test_what_is_no_model_is_refused_when_the_chain_is_made(name: str, model: Any) -> None:
    with pytest.raises(OptionError, match=rf"Option 'model' of '{name}' must be a model adapter with vocab_size"):
        processors.load((name, {"model": model}))


@pytest.mark.parametrize("backend", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_a_contrast_that_half_types_cannot_hold_keeps_its_order(backend: str) -> None:
    """Scores of some hundred thousands: the best one is still the best, and nothing is infinite that was not."""
    place = load_backend(backend)
    amateur = ToyModel(place, vocab=VOCAB, seed=3)
    chain = processors.load(
        ("contrastive", {"model": amateur, "amateur_temperature": 1e-4, "beta": 100.0, "alpha": 0.0})
    )
    wide = np.random.default_rng(1).normal(size=(2, VOCAB)).astype(np.float32)
    wide[:, 4] = -np.inf
    found = {}
    for dtype in ("float32", "float16"):
        logits = place.asarray(wide, dtype)
        context = Context.start(logits, prompt=[[1, 2], [3]], max_length=20)
        found[dtype] = place.to_numpy(chain.process(logits, chain.init_state(context), context)[0]).astype(np.float64)
    assert found["float32"].max() > 65504
    assert np.isfinite(np.delete(found["float16"], 4, axis=1)).all()
    assert np.isneginf(found["float16"][:, 4]).all()
    assert found["float16"].argmax(axis=1).tolist() == found["float32"].argmax(axis=1).tolist()
