"""A check with vocabularies of realistic width: ids that are computed in too small a type collide with other ids."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from logitloom.chain import Chain
from logitloom.context import Context
from logitloom.errors import LogitloomError
from logitloom.host import registry
from logitloom.testing._subject import ProcessorSubject
from logitloom.testing.stories import telling

__all__ = ["WIDTHS", "WidthChecks"]

#: bfloat16 and one byte cannot hold all ids of either width exactly, float16 and two bytes not those of the second.
WIDTHS = (300, 70_000)

#: Pairs of neighbouring ids: low ids, which small types hold, and high ids (from the end), which they do not hold.
_LOW, _FROM_END = ((60, 61), (100, 101)), ((5, 4), (12, 11))


class WidthChecks(ProcessorSubject):
    """Ids of wide vocabularies."""

    _parameters = {"width": WIDTHS}  # noqa: RUF012 - read only

    def test_neighbouring_ids_of_wide_vocabularies_are_told_apart(self, case: str, width: int) -> None:
        """If the rows after two neighbouring low ids differ in the columns of these ids alone, the same holds for high
        ids, in float32 and in float16.

        Troubleshooting: compute ids in int32, not in the dtype of the logits: ``backend.arange``, ``context.tokens``.
        float16 holds integers exactly up to 2,048, bfloat16 up to 256.
        """
        chain = self.chain(case, registry.load_backend("numpy"))
        if chain.vocabulary is not None or "model" in chain.needs or chain.branches > 1:
            pytest.skip("the processor's vocabulary or model has a width of its own, or it takes several branches")
        told = False
        for dtype in ("float32", "float16"):
            try:
                if any(self._differing(chain, width, dtype, pair) != set(pair) for pair in _LOW):
                    continue
            except LogitloomError:
                continue  # the options do not let a row accept these
            told = True
            for below in _FROM_END:
                pair = (width - below[0], width - below[1])
                found = self._differing(chain, width, dtype, pair)
                assert found == set(pair), (
                    f"Rows of {dtype} over {width} ids that accepted {pair[0]} and {pair[1]} differ in the columns "
                    f"{sorted(found)[:6]} instead of {list(pair)}; with {_LOW[0][0]} and {_LOW[0][1]} they differ in "
                    f"these."
                )
        if not told:
            pytest.skip("no token changes its own column alone, so nothing is told by ids")

    def _differing(self, chain: Chain, width: int, dtype: str, pair: tuple[int, int]) -> set[int]:
        """The columns in which a row after the first id differs from a row after the second id."""
        one, other = (self._after(chain, width, dtype, token) for token in pair)
        return set(np.flatnonzero((one != other) & ~(np.isnan(one) & np.isnan(other))).tolist())

    def _after(self, chain: Chain, width: int, dtype: str, token: int) -> NDArray[np.float64]:
        """The logits of a row that accepted an id, ``[width]``; the incoming logits are the same for every id."""
        given = (np.random.default_rng(width).integers(-12, 12, (1, width)) / 4).astype(dtype)
        context = Context.start(given, prompt=[[1, 2]], seed=[7], max_length=self.max_length)
        _, state = chain.process(given.copy(), chain.init_state(context), context)
        processed, _ = chain.process(given.copy(), state, telling(chain, context.accept([[token]])))
        plain: NDArray[np.float64] = np.asarray(processed)[0].astype(np.float64)
        return plain
