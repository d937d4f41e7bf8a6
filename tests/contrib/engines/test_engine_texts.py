"""Texts inside transformers and mlx-lm, compared with those of logitloom's own loop on the same model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from logitloom import Chain, Vocabulary
from logitloom_plugins.engine_texts import CHAINS, Answer, EngineTextConformance
from tests.contrib.engines.conftest import VOCABULARY, tensor
from tests.contrib.engines.text_differences import (
    PAGES,
    MlxLmTexts,
    TransformersTexts,
    VllmTexts,
    difference_table,
    with_table,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")


class Tiny(EngineTextConformance):
    """On a tiny random model, whose letters are tokens."""

    vocabulary: Vocabulary = VOCABULARY  # type: ignore[assignment]
    native: Any

    @cached_property
    def adapter(self) -> Any:
        raise NotImplementedError

    def model(self) -> Any:
        return self.adapter


@pytest.mark.extras
class TestTransformersTexts(Tiny, TransformersTexts):
    @pytest.fixture(autouse=True)
    def _model(self, tiny_transformers: Any) -> None:
        self.native = tiny_transformers()

    @cached_property
    def adapter(self) -> Any:
        from logitloom_contrib.engines.transformers import TransformersModel

        return TransformersModel(self.native)

    def answer(self, chain: Chain, prompt: Sequence[int], max_tokens: int) -> Answer:
        import torch

        from logitloom_contrib.engines.transformers import to_transformers

        processor, ids = to_transformers(chain, self.native), tensor([list(prompt)])
        out = self.native.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=max_tokens,
            logits_processor=processor,
        )  # fmt: skip
        [text] = processor.texts(out, ids.shape[1])
        return Answer(text.text, text.finish)


@pytest.mark.extras
class TestMlxLmTexts(Tiny, MlxLmTexts):
    @pytest.fixture(autouse=True)
    def _model(self, tiny_mlx: Any) -> None:
        self.native = tiny_mlx()

    @cached_property
    def adapter(self) -> Any:
        from logitloom_contrib.engines.mlx_lm import MlxModel

        return MlxModel(self.native)

    def answer(self, chain: Chain, prompt: Sequence[int], max_tokens: int) -> Answer:
        import mlx.core as mx
        from mlx_lm.generate import generate_step

        from logitloom_contrib.engines.mlx_lm import to_mlx_lm

        processor, tokens = to_mlx_lm(chain, max_new_tokens=max_tokens), []
        for token, _ in generate_step(
            mx.array(list(prompt)), self.native, max_tokens=max_tokens, logits_processors=[processor]
        ):
            tokens.append(int(token))
            if tokens[-1] in VOCABULARY.eos:
                break
        text = processor.text(tokens)
        return Answer(text.text, text.finish)


def test_there_are_forty_chains_of_most_processors() -> None:
    assert len(CHAINS) == 40
    used = {plugin for specs in CHAINS.values() for plugin, _ in specs}
    assert len(used) >= 17


def test_the_table_of_differences_names_each() -> None:
    class Alike(VllmTexts):
        alike = "one reason"

    told = difference_table(Alike)
    assert told.count("\n| ") == len(VllmTexts.forced) + 1
    assert difference_table(MlxLmTexts).startswith("None in 40 chains.\n")


def test_the_table_says_where_nothing_is_recorded() -> None:
    class Silent(MlxLmTexts):
        unrecorded = "it samples elsewhere"

    assert "(4 chains): not recorded: it samples elsewhere." in difference_table(Silent)
    assert "(4 chains): the same as our own loop records." in difference_table(MlxLmTexts)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_of_each_engine_has_the_table_of_its_suite(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == with_table(page), "run: python -m tests.contrib.engines.text_differences"
