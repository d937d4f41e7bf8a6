"""What each built-in does to one small distribution, drawn when the documentation is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Context, Vocabulary, load_backend, processors
from logitloom.automata import compile_pattern

__all__ = ["EFFECTS", "WITHOUT_PICTURE", "Effect", "draw", "probabilities", "style"]

TOKENS: Final = (
    "the", "cat", "dog", "sat", "on", "mat", "a", "1", "20", "yes", "no", "bad", ".", "{", '"', "}", "end",
)  # fmt: skip
VOCABULARY: Final = Vocabulary([t.encode() for t in TOKENS[:-1]] + [b""], eos=[len(TOKENS) - 1], name="example")
#: What the model says: about exponential, as real ones do.
LOGITS: Final = np.array(
    [3.0, 2.8, 2.3, 2.0, 1.7, 1.5, 1.3, 1.0, 0.8, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.6], dtype=np.float32
)
#: What another model, or the same without the prompt, says.
OTHER: Final = np.array(
    [3.2, 1.2, 2.6, 1.9, 1.8, 0.6, 1.4, 0.4, 0.7, 0.6, 0.4, 0.2, 0.3, 0.0, -0.2, -0.4, -0.7], dtype=np.float32
)


@dataclass(frozen=True)
class Effect:
    """Options and a situation in which a processor shows what it does.

    Attributes:
        options: of the processor.
        says: the situation, for the caption.
        prompt: tokens before the generation.
        written: tokens that the row wrote so far.
        other: whether a second row of logits comes along (guidance in one pass).
    """

    options: dict[str, Any] = field(default_factory=dict)
    says: str = ""
    prompt: tuple[str, ...] = ("the",)
    written: tuple[str, ...] = ()
    other: bool = False


class _Cache:
    """A model of one answer remembers nothing but how long its rows are."""

    def __init__(self, lengths: NDArray[np.int32]) -> None:
        self.lengths = lengths

    def row_count(self) -> int:
        return len(self.lengths)

    def take_rows(self, index: Any) -> _Cache:
        return _Cache(self.lengths[np.asarray(index)])

    def concat_rows(self, others: Sequence[_Cache]) -> _Cache:
        return _Cache(np.concatenate([self.lengths, *(other.lengths for other in others)]))

    def crop(self, lengths: Any) -> _Cache:
        return _Cache(np.asarray(lengths, dtype=np.int32))


class _Other:
    """A model adapter that always says the same."""

    vocab_size, max_length = len(TOKENS), 64

    @cached_property
    def backend(self) -> Any:
        return load_backend("numpy")

    def empty_cache(self, rows: int) -> _Cache:
        return _Cache(np.zeros(rows, dtype=np.int32))

    def first_layers(self, layers: int) -> _Other:
        """What early layers say."""
        del layers
        return self

    def forward(self, tokens: Any, cache: _Cache, *, all_positions: bool = False) -> tuple[Any, _Cache]:
        fed = (np.asarray(tokens) >= 0).sum(axis=1).astype(np.int32)
        shape = (*tokens.shape, len(OTHER)) if all_positions else (len(fed), len(OTHER))
        return np.broadcast_to(OTHER, shape).copy(), _Cache(cache.lengths + fed)


def _repeats_or_ends(row: int, ids: NDArray[np.int32]) -> list[int]:
    del row
    return [*ids.tolist(), len(TOKENS) - 1]


def _is_number(text: str, ends: bool) -> bool:
    del ends
    return text.isdigit()


_REPEATED: Final = ("the", "cat", "sat", "on", "the")

EFFECTS: Final = {
    "adaptive_p": Effect({"target": 0.1}),
    "alternating_codebooks": Effect({"offset": 0, "size": 8}, "the first step, with a first codebook of eight ids"),
    "bad_words": Effect({"phrases": ("cat", "the bad")}, "“cat” and “the bad” banned, nothing written yet"),
    "bad_words_ids": Effect({"sequences": ((1,), (0, 2))}, "after “the”", written=("the",)),
    "cfg": Effect({"scale": 2.0, "form": "one_pass"}, "with the logits of a second branch", other=True),
    "checked": Effect({"check": _is_number, "sample": False}, "a function that accepts numbers, nothing written yet"),
    "choice": Effect({"choices": ("yes", "no", "no.")}, "nothing written yet"),
    "context_aware": Effect({"alpha": 1.0, "form": "one_pass"}, "with the logits of a second branch", other=True),
    "contrastive": Effect({"model": _Other(), "alpha": 0.1}, "with the logits of a weaker model"),
    "dola": Effect({"layers": (1,)}, "with the logits of an early layer"),
    "dry": Effect({"allowed_length": 1}, "after “the cat sat on the”", written=_REPEATED),
    "dynamic_temperature": Effect({"low": 0.2, "high": 0.8}),
    "encoder_no_repeat_ngram": Effect(
        {"n": 2}, "after the prompt “the cat” and the text “the”", prompt=("the", "cat"), written=("the",)
    ),
    "encoder_repetition_penalty": Effect(
        {"penalty": 1.5}, "after the prompt “the cat sat”", prompt=("the", "cat", "sat")
    ),
    "eos_above": Effect({"p": 0.005}),
    "epsilon_cutoff": Effect({"epsilon": 0.03}),
    "eta_cutoff": Effect({"epsilon": 0.03}),
    "exponential_decay_length_penalty": Effect({"start": 0, "factor": 1.6}, "after five tokens", written=_REPEATED),
    "force_tokens": Effect({"tokens": {0: 2}}, "“dog” at the first step"),
    "forced_eos": Effect({"max_length": 2}, "after one token", written=("the",)),
    "frequency_penalty": Effect({"penalty": 0.8}, "after “the cat sat on the”", written=_REPEATED),
    "fsm": Effect({"automaton": compile_pattern("(cat|dog)s?")}, "the automaton of (cat|dog)s?, nothing written yet"),
    "heal": Effect({"removed": ((6,),)}, "“a” taken from the end of the prompt"),
    "json": Effect({}, "nothing written yet"),
    "logit_bias": Effect({"bias": {1: -3.0, 8: 2.0}}, "−3 for “cat”, +2 for “20”"),
    "min_p": Effect({"p": 0.2}),
    "min_tokens": Effect({"n": 5}, "after one token", written=("the",)),
    "mirostat": Effect({"tau": 1.2}),
    "mirostat_v2": Effect({"tau": 1.6}),
    "no_repeat_ngram": Effect({"n": 2}, "after “the cat sat on the”", written=_REPEATED),
    "p_less": Effect({}),
    "prefix_allowed_tokens": Effect(
        {"function": _repeats_or_ends}, "ids seen before, or the end, after “the cat”", written=("the", "cat")
    ),
    "presence_penalty": Effect({"penalty": 0.8}, "after “the cat sat on the”", written=_REPEATED),
    "quadratic": Effect({"factor": 0.4}),
    "regex": Effect({"pattern": "[a-z]+"}, "nothing written yet"),
    "repetition_penalty": Effect({"penalty": 1.5}, "after “the cat sat on the”", written=_REPEATED),
    "sequence_bias": Effect(
        {"sequences": ((8,), (0, 1)), "biases": (2.0, -3.0)},
        "after “the”: +2 for “20”, −3 for “the cat”",
        written=("the",),
    ),
    "stop": Effect({"strings": ("catdog",)}, "after “cat” and “dog”", written=("cat", "dog")),
    "stop_repetition": Effect({"times": 3}, "after “no no no”", written=("no", "no", "no")),
    "suppress_tokens": Effect({"tokens": [0, 2]}, "“the” and “dog” suppressed"),
    "temperature": Effect({"temperature": 0.5}),
    "top_a": Effect({"a": 0.5}),
    "top_h": Effect({"h": 0.5}),
    "top_k": Effect({"k": 5}),
    "top_n_sigma": Effect({"n": 1.0}),
    "top_p": Effect({"p": 0.6}),
    "typical_p": Effect({"p": 0.5}),
    "watermark_delta": Effect({"key": 1, "width": 1}, "after “the”"),
    "watermark_dipmark": Effect({"key": 1, "width": 1}, "after “the”"),
    "watermark_greenlist": Effect({"ratio": 0.5}, "after “the”"),
    "watermark_gumbel": Effect({"key": 1, "width": 1}, "after “the”"),
    "watermark_synthid": Effect({"keys": (654, 400, 836), "ngram_len": 2}, "nothing written yet"),
    "whisper_no_speech": Effect({"token": 9, "eos": 16, "threshold": 0.01}, "with “yes” in the place of no speech"),
    "whisper_timestamps": Effect(
        {"no_timestamps": 8, "eos": 7, "max_initial": 3}, "the first step, with “yes” and the rest as time stamps"
    ),
    "xtc": Effect({"threshold": 0.08, "probability": 1.0}),
}

#: Processors that do nothing by themselves, or only with libraries that a build of the documentation lacks.
WITHOUT_PICTURE: Final = frozenset(
    (
        "after", "all_of", "between", "budget", "grammar", "normalize", "remove_invalid", "structural_tag", "thinking",
        "tool_call", "until",
    )
)  # fmt: skip


def probabilities(name: str, effect: Effect) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``[tokens]`` before and after."""
    logits = np.stack([LOGITS, OTHER]) if effect.other else LOGITS[None].copy()
    chain = processors.load((name, effect.options), tokenizer=VOCABULARY, model=_Other())
    prompt = [[TOKENS.index(t) for t in effect.prompt]]
    context = Context.start(logits, prompt=prompt, max_length=64, branches=chain.branches, vocabulary=VOCABULARY)
    state = chain.init_state(context)
    if effect.written:
        context = context.accept([[TOKENS.index(t) for t in effect.written]])
    after, _ = chain.process(logits, state, context)
    return _softmax(LOGITS), _softmax(np.asarray(after)[0])


def _softmax(row: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    e = np.exp(row.astype(np.float64) - row.max())
    return np.asarray(e / e.sum())


_WIDTH, _HEIGHT, _COLUMN, _TOP = 720, 150, 42, 12

_STYLE: Final = """<style>
.effect .was { fill: #b8bfc8 }
.effect .is { fill: #0969da }
.effect text { fill: #57606a; font: 11px system-ui, sans-serif }
.effect .gone { fill: #cf222e }
[data-md-color-scheme="slate"] .effect .was { fill: #545d68 }
[data-md-color-scheme="slate"] .effect .is { fill: #4493f8 }
[data-md-color-scheme="slate"] .effect text { fill: #9198a1 }
[data-md-color-scheme="slate"] .effect .gone { fill: #ff7b72 }
</style>"""


def style() -> str:
    """The drawings' style sheet, once per page."""
    return _STYLE


def draw(name: str, effect: Effect) -> str:
    """The picture: grey bars before, blue ones after, a cross for what is forbidden."""
    before, after = probabilities(name, effect)
    scale = (_HEIGHT - _TOP - 28) / max(before.max(), after.max())
    base = _HEIGHT - 28
    shown = ", ".join(f"{key}={_short(value)}" for key, value in effect.options.items() if key != "automaton")
    caption = "; ".join(filter(None, (shown, effect.says)))
    title = f"Probabilities of {len(TOKENS)} tokens before (grey) and after (blue) {name}"
    parts = [
        f'<svg class="effect" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" role="img" aria-label="{title}: '
        f'{escape(caption, quote=True)}" xmlns="http://www.w3.org/2000/svg">'
    ]
    for i, (token, was, now) in enumerate(zip(TOKENS, before, after, strict=True)):
        x = 4 + i * _COLUMN
        parts.append(_bar("was", x, base, was * scale))
        if now > 0:
            parts.append(_bar("is", x + 15, base, now * scale))
        else:
            parts.append(f'<text class="gone" x="{x + 22}" y="{base - 2}" text-anchor="middle">×</text>')
        parts.append(f'<text x="{x + 15}" y="{base + 14}" text-anchor="middle">{escape(token)}</text>')
    note = f"<em>{escape(caption)}</em>" if caption else ""
    return "".join([*parts, "</svg>"]) + (f"\n\n{note}" if note else "")


def _bar(kind: str, x: float, base: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x}" y="{base - height:.1f}" width="14" height="{max(height, 0.3):.1f}"/>'


def _short(value: Any) -> str:
    return "another model" if isinstance(value, _Other) else repr(value)
