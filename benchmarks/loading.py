"""What a start costs: importing logitloom beside NumPy, and reading a vocabulary beside llguidance.

    python benchmarks/loading.py [--runs 15]

* import: ``import logitloom`` in a fresh interpreter, less ``import numpy`` there, beside ``import numpy``;
* vocabulary: a Hugging Face tokenizer of 131,072 ids (Tekken's, as byte-level BPE without merges), read by each
  library from an object that it has not seen before.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from comparison import Comparison, table
from conditions import heading
from import_time import milliseconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from logitloom import processors
from logitloom_plugins.grammars.llguidance import engine_tokenizer
from logitloom_plugins.tokenizers._token_text import byte_level
from tests.core.automata.vocabularies import tekken


def huggingface_tokenizer() -> Any:
    """The texts of Tekken as a fast tokenizer of transformers."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # The letter of the byte-level alphabet that stands for each byte.
    letters = {data[0]: chr(code) for code in range(0x21, 0x144) if len(data := byte_level([chr(code)])[0]) == 1}
    texts = ["".join(letters[b] for b in text) or f"<|{i}|>" for i, text in enumerate(tekken().token_bytes)]
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|2|>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|2|>")


def imports(runs: int) -> Comparison:
    """Our share of an import beside NumPy's."""
    mine, numpys = [], []
    for statement in ("import logitloom", "import numpy"):
        milliseconds(statement)  # byte code is compiled and files are cached
    for _ in range(runs):
        numpys.append(milliseconds("import numpy"))
        mine.append(max(milliseconds("import logitloom") - numpys[-1], 1e-3))
    return Comparison("import logitloom, less NumPy", "import numpy", "ms", mine, numpys, "loading.py")


def vocabularies(runs: int) -> Comparison:
    """Reading a tokenizer as ``processors.load`` does, beside llguidance's own tokenizer from the same object."""
    import llguidance.hf

    mine, theirs = [], []
    chain = ("regex", {"pattern": "[a-z]+"})
    processors.load(chain, tokenizer=tekken())
    engine_tokenizer(tekken(), tekken().size)
    for turn in range(runs):
        for side in (0, 1) if turn % 2 else (1, 0):
            tokenizer = huggingface_tokenizer()
            begin = time.perf_counter()
            if side:
                llguidance.hf.from_tokenizer(tokenizer)
            else:
                processors.load(chain, tokenizer=tokenizer)
            (theirs if side else mine).append(1e3 * (time.perf_counter() - begin))
    work = "a Hugging Face vocabulary of 131,072 ids"
    return Comparison(work, "llguidance", "ms", mine, theirs, "loading.py")


def comparisons(runs: int = 15) -> Iterator[Comparison]:
    """Both."""
    yield imports(runs)
    yield vocabularies(max(2, runs // 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()
    print(heading("transformers", "tokenizers", "llguidance"))
    print(table(list(comparisons(given.runs))))


if __name__ == "__main__":
    main()
