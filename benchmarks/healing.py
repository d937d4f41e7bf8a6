"""Token healing with a real model: prompts that end at random characters, continued with and without it.

    python benchmarks/healing.py [--cuts 5] [--seed 0]

Sentences that the model knows are cut at random characters of their second half. A continuation is right if it begins
with the rest of the word that was cut, or with the next word. "Spanning tokens only" leaves out tokens that write a
part of what was removed, which ``heal`` allows. Runs SmolLM2-135M in llama.cpp, greedily, six tokens each.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

import llama_cpp
import numpy as np
from conditions import heading

from logitloom import processors
from logitloom.constraints import State, TokenSet
from logitloom.generation import Generator
from logitloom_contrib.engines.llama_cpp import LlamaCppModel
from logitloom_contrib.llama import default_weights
from logitloom_plugins.processors._after_prompt import AfterPrompt, Rest

SENTENCES = (
    "The capital of France is Paris, and the capital of Germany is Berlin.",
    "Water is made of hydrogen and oxygen.",
    "The first president of the United States was George Washington.",
    "To be, or not to be, that is the question.",
    "The quick brown fox jumps over the lazy dog.",
    "Once upon a time there was a little girl who lived in a village.",
    "All men are created equal, that they are endowed by their Creator with certain unalienable rights.",
    "The mitochondria is the powerhouse of the cell.",
    "Photosynthesis is the process by which plants convert sunlight into energy.",
    "The Earth revolves around the Sun, and the Moon revolves around the Earth.",
    "Please visit our website at http://www.example.com for more information.",
    "def fibonacci(n):\n    if n <= 1:\n        return n\n    return fibonacci(n-1) + fibonacci(n-2)\n",
    "The theory of relativity was developed by Albert Einstein.",
    "Four score and seven years ago our fathers brought forth on this continent a new nation.",
    "The largest ocean on Earth is the Pacific Ocean.",
    "Romeo and Juliet is a tragedy written by William Shakespeare.",
    "The human body has two hundred and six bones.",
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday.",
    "January, February, March, April, May, June, July, August, September.",
    "one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.",
)


def next_word(rest: str) -> str:
    """The rest of the word, or the space and the next word."""
    begun = rest[:1] == " "
    return rest[: begun + len(rest[begun:].split(" ")[0])]


def spanning_only(plain: Callable[[Any, State], TokenSet]) -> Callable[[Any, State], TokenSet]:
    """``AfterPrompt.allowed`` without tokens that write a part of the rest, where others reach its end."""

    def allowed(self: AfterPrompt, state: State) -> TokenSet:
        found = plain(self, state)
        if not isinstance(state, Rest):
            return found
        texts = self.vocabulary.token_bytes
        kept = [token for token in found.listed(self.vocab_size).tolist() if texts[token].startswith(state.text)]
        return TokenSet(True, np.asarray(kept, dtype=np.int32)) if kept else found

    return allowed


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=5, help="cuts of each sentence")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(heading("llama-cpp-python"))
    llama = llama_cpp.Llama(str(default_weights()), n_threads=1, n_threads_batch=1, n_ctx=512, verbose=False)
    model = LlamaCppModel(llama, rows=4, cells=1024)
    chain = processors.load(tokenizer=str(default_weights()))

    class Tokenizer:
        def encode(self, text: str) -> list[int]:
            return list(llama.tokenize(text.encode(), add_bos=False, special=False))

    dice = random.Random(arguments.seed)
    places = [(s, dice.randrange(len(s) // 2, len(s) - 2)) for s in SENTENCES for _ in range(arguments.cuts)]
    ways: dict[str, dict[str, Any]] = {"as it is": {}, "healed": {"heal": True}, "spanning tokens only": {"heal": True}}
    for way, options in ways.items():
        if way.startswith("spanning"):
            AfterPrompt.allowed = spanning_only(AfterPrompt.allowed)  # type: ignore[method-assign]
        generator = Generator(model, chain, max_tokens=6, tokenizer=Tokenizer(), **options)
        right = sum((generator(s[:at])[0].text or "").startswith(next_word(s[at:])) for s, at in places)
        print(f"{way}: {right} of {len(places)} right", flush=True)


if __name__ == "__main__":
    main()
