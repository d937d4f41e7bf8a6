"""Every built-in processor with options under which it works, of which one or two are replaced by hostile values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from logitloom import Context, load_backend, processors
from logitloom.arrays.backend import NEG_INF
from logitloom.testing import ProcessorConformance
from logitloom.testing.stories import accepting
from tests.plugins.processors.travelling import suites

#: What takes the place of a number, beside the bounds that its option declares.
NUMBERS: list[Any] = [
    -(2**31), -1, 0, 1, 2, 3, 40, 2**15, 2**31 - 1, 2**31, 2**32 + 1, 2**63 - 1, 2**63, 10**400, 0.5, 5e-324, 1e-45,
    1e-8, 6.5e4, 1e38, 3.4e38, 1.7e308, -1e30, float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
#: What takes the place of any value.
VALUES: list[Any] = [
    None, True, "", "a", "[a-e]+", "(", "\ud800", b"a", [], ["a", "b"], [1], [[1]], [[]], {}, {"1": 2.0}, (1, 2),
    object(), {"use": "top_k", "options": {"k": 2}}, ["regex", {"pattern": "a+"}], {"type": "string"}, "x" * 5000,
]  # fmt: skip
TEXTS = ["a", "ab", "12", '{"', ""]
#: Built-ins that may allow what others forbade, as they say.
ALLOWING = {"remove_invalid"}
CASES = [(suite, case) for (_, case), suite in suites().items()]
BUILT_INS = sorted({str(suite.processor) for suite, _ in CASES})
STEPS = 4


def pick(draw: np.random.Generator, items: Any) -> Any:
    """One of some items."""
    return items[int(draw.integers(len(items)))]


def hostile(draw: np.random.Generator, option: Any, value: Any) -> Any:
    """Another value for an option: a number, a bound or what lies beside it, alone or among others, or anything."""
    if draw.random() < 0.2:
        return pick(draw, VALUES)
    if option.choices or option.type_text.startswith(("bool", "str")):
        return pick(draw, option.choices or ([True, False] if option.type_text.startswith("bool") else TEXTS))
    beside = [bound + step for _, bound in option.bounds for step in (0, 1, -1, 1e-7, -1e-7)]
    number = pick(draw, NUMBERS + beside)
    if "int" in option.type_text and isinstance(number, float) and math.isfinite(number):
        number = int(number)
    if isinstance(value, dict) and value:
        key = number if draw.random() < 0.3 else pick(draw, list(value))
        return {**value, key: pick(draw, NUMBERS)}
    if isinstance(value, (list, tuple)) and value:
        return [[number, *value[0]] if isinstance(value[0], (list, tuple)) else number, *value[1:]]
    return number


def started(suite: ProcessorConformance, options: dict[str, Any]) -> tuple[Any, Context]:
    """A chain of the suite's processor with some options, and the start of two rows."""
    backend = load_backend("numpy")
    chain = processors.load((suite.processor, options), tokenizer=suite.vocabulary, model=suite.model(backend))
    blank = np.zeros((2 * chain.branches, suite.vocab_size), np.float32)
    prompt, seed = [[1], [2, 3]], [0, 1]
    return chain, Context.start(blank, prompt=prompt, max_length=suite.max_length, seed=seed, branches=chain.branches)


def extreme_options(draw: np.random.Generator, folder: Path) -> bool:
    """Run one built-in; whether its rows came out as logits, in their dtype, and forbade what was forbidden."""
    del folder
    name = pick(draw, BUILT_INS)
    suite, case = pick(draw, [(suite, case) for suite, case in CASES if suite.processor == name])
    given = dict(suite.options(case, load_backend("numpy")))
    declared = processors.describe(name).options
    for option in (pick(draw, declared) for _ in range(int(draw.integers(1, 3)) if declared else 0)):
        given[option.name] = hostile(draw, option, given.get(option.name, option.default))
    chain, context = started(suite, given)
    state, dtype = chain.init_state(context), pick(draw, ["float32", "float16", "float64"])
    for _ in range(STEPS):
        # As large as models give them; float16 reaches 65,504, and penalties multiply by up to 100.
        logits = (draw.normal(size=(2 * chain.branches, suite.vocab_size)) * pick(draw, [1, 30, 100])).astype(dtype)
        if chain.branches == 1:
            logits[:, -1] = NEG_INF
        before, (out, state) = state, chain.process(logits.copy(), state, context)
        if out.dtype != logits.dtype or np.isnan(out).any() or np.isposinf(out).any():
            return False
        closed = np.isneginf(out).all(axis=1)
        if closed.any():
            # A constraint of ids may leave but the one that was forbidden before it.
            free, _ = chain.process(np.zeros_like(logits), before, context)
            return chain.branches == 1 and bool(np.isneginf(free[closed, :-1]).all() and (free[closed, -1] == 0).all())
        if chain.branches == 1 and name not in ALLOWING and not np.isneginf(out[:, -1]).all():
            return False
        allowed = [np.flatnonzero(row > NEG_INF).tolist() for row in out]
        context = accepting(chain, context, [[suite.choose(ids, draw) if ids else -1] for ids in allowed])
    return True
