"""The suite for processors: say how to build one, and get every property that chains and engines rely on."""

from __future__ import annotations

from logitloom.testing._array_checks import ArrayChecks
from logitloom.testing._declaration_checks import DeclarationChecks, OptionChecks
from logitloom.testing._row_checks import RowChecks
from logitloom.testing._width_checks import WidthChecks

__all__ = ["ProcessorConformance"]


class ProcessorConformance(ArrayChecks, RowChecks, WidthChecks, DeclarationChecks, OptionChecks):
    """Tests of one processor with each of several options, on every installed backend.

    Attributes:
        processor: the name it is loaded by (or, before it is packaged, its class).
        cases: label -> options. The more ways through the code they take, the better.
        vocabulary: a :class:`logitloom.Vocabulary`, for processors that need one.
        vocab_size: columns of the logits; more than the vocabulary has ids, as padded models have, is best.
        max_length: room for the tokens of a row.
        prompt_lengths: number of tokens of each row's prompt, for at least four rows. Two more rows begin as the first
            two rows do, with the same prompts, and go on differently.
        has_effect: whether the logits change in the stories of each case.
        in_documents: whether the options can stand in a chain document.
        backends: names of the backends to test on; None for all that are installed.

    Override ``model`` for processors that run a model, and ``choose`` to lead rows to where something happens. A
    check that does not apply is overridden and marked with ``pytest.mark.skip(reason=...)``.

    Example:
        >>> from logitloom.testing import ProcessorConformance
        >>> class TestTopK(ProcessorConformance):
        ...     processor = "top_k"
        ...     cases = {"three": {"k": 3}, "all": {"k": 1000}}
        ...     has_effect = False  # of the second case
    """
