"""Beam search: several hypotheses per prompt, extended together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import MOST_ROWS, id_lists, number, optional_ids, shown, whole
from logitloom.arrays import rng
from logitloom.arrays.backend import NEG_INF, Array
from logitloom.chain import Chain, ChainState
from logitloom.context import Context
from logitloom.errors import GenerationError
from logitloom.generation.dead_ends import invalid_logits, no_legal_token
from logitloom.generation.loop import FinishReason, start_context
from logitloom.generation.model import ModelAdapter
from logitloom.generation.rows import ModelRows
from logitloom.masks.logits_pool import LogitsPool
from logitloom.rows import tree as row_state
from logitloom.vocabulary import Vocabulary

__all__ = ["BeamSearch", "Carried", "Hypothesis", "beam_search"]


#: The length of any text to this power is a finite number.
_MOST_LENGTH_PENALTY: Final = 50


@dataclass(frozen=True)
class BeamSearch:
    """Keep the ``beams`` best unfinished hypotheses per prompt at every step.

    The score of a hypothesis is the sum of the processed log-probabilities of its tokens. When the hypothesis ends, the
    sum is divided by its length to the power ``length_penalty``. The input of the chain is log-probabilities, and its
    output is not normalised again, so allowed tokens keep the model's own probability.

    References:
        Y. Wu et al., "Google's neural machine translation system", 2016, section 7 (length normalisation).
    """

    #: Hypotheses kept per prompt.
    beams: int = 4
    #: Exponent of the length; above 0 favours long sequences.
    length_penalty: float = 1.0
    #: ``True``: stop when ``beams`` hypotheses have ended; ``False``: stop when no unfinished hypothesis would win at
    #: its current length; ``"never"``: stop only when none can win at any length.
    early_stopping: bool | Literal["never"] = False
    #: Sequences returned per prompt, best first.
    samples: int = 1

    def __post_init__(self) -> None:
        whole(self.beams, "beams", GenerationError, most=MOST_ROWS)
        if abs(number(self.length_penalty, "length_penalty", GenerationError)) > _MOST_LENGTH_PENALTY:
            raise GenerationError(
                f"length_penalty is an exponent from -{_MOST_LENGTH_PENALTY} to {_MOST_LENGTH_PENALTY}, but is "
                f"{self.length_penalty}."
            )
        early = self.early_stopping
        if not isinstance(early, (bool, np.bool_)) and not (isinstance(early, str) and early == "never"):
            raise GenerationError(
                f"The argument 'early_stopping' must be True, False or 'never', but is {shown(early)}."
            )
        whole(self.samples, "samples", GenerationError, most=MOST_ROWS)
        if self.beams < 1:
            raise GenerationError(f"beams must be at least 1, but is {self.beams}.")
        if not 1 <= self.samples <= self.beams:
            raise GenerationError(
                f"A beam search with {self.beams} beams can return 1 to {self.beams} sequences per prompt, "
                f"not {self.samples}."
            )


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished sequence.

    Attributes:
        tokens: new tokens, without the end-of-sequence token.
        logprob: sum of the processed log-probabilities, end-of-sequence included.
        score: ``logprob / length ** length_penalty``.
        finish: why it ended.
        cut: with ``finish="stop"``: number of bytes at the end of its text that do not belong to it.
        beginning: with several start sequences per prompt: the number of the start sequence that it continues.
    """

    tokens: tuple[int, ...]
    logprob: float
    score: float
    finish: FinishReason
    cut: int = 0
    beginning: int = 0


class Carried(NamedTuple):
    """Scores of hypotheses from an earlier search, so that whole sequences are optimised.

    Attributes:
        logprobs: ``[prompts, beginnings]`` host floats; -inf for a start sequence that is ignored.
        lengths: ``[prompts, beginnings]`` host integers: number of tokens in each sum of log-probabilities.
    """

    logprobs: NDArray[np.float64]
    lengths: NDArray[np.int64]


@dataclass
class _Prompt:
    """The search of one prompt."""

    number: int
    length: int
    #: The length of the longest prompt of its branches, which limits the number of new tokens.
    longest: int
    #: Per start sequence, the number of tokens in its carried score.
    scored: list[int]
    finished: list[Hypothesis] = field(default_factory=list)

    def add(
        self, line: list[int], total: float, step: int, settings: BeamSearch, finish: FinishReason, cut: int = 0
    ) -> None:
        """Record a hypothesis that ended; ``line`` is the number of its start sequence, then its new tokens."""
        beginning, *tokens = line
        score = _score(total, self.scored[beginning] + step, settings)
        self.finished.append(Hypothesis(tuple(tokens), total, score, finish, cut, beginning))
        self.finished.sort(key=lambda h: -h.score)
        del self.finished[settings.beams :]


class _Continuation(NamedTuple):
    """A hypothesis with one more token.

    Attributes:
        total: sum of the log-probabilities, this token included.
        beam: the number of the hypothesis that it continues.
        token: its next token.
    """

    total: float
    beam: int
    token: int


def beam_search(
    model: ModelAdapter,
    prompts: Sequence[Sequence[int]],
    chain: Chain,
    settings: BeamSearch,
    *,
    max_tokens: int,
    seed: int = 0,
    eos: Sequence[int] | None = None,
    vocabulary: Vocabulary | None = None,
    carried: Carried | None = None,
) -> list[list[Hypothesis]]:
    """Search all prompts together.

    Args:
        model: any model adapter.
        prompts: token ids per prompt, ragged.
        chain: processors, possibly none.
        settings: beams and scoring.
        max_tokens: most new tokens.
        seed: seed of processors that draw random numbers.
        eos: ids that end a sequence; default: the vocabulary's.
        vocabulary: bytes of the tokens; default: the chain's.
        carried: if given, ``prompts`` are the start sequences of all prompts, prompt by prompt. The start sequences of
            one prompt are searched together.

    Returns:
        Per prompt ``settings.samples`` hypotheses, best first.

    Raises:
        NoLegalToken: if no hypothesis of a prompt can be continued or end.
        GenerationError: if there are more start sequences than beams, or not one for each carried score.
    """
    prompts = id_lists(prompts, "prompts", GenerationError)
    if not prompts:
        return []
    vocabulary = vocabulary if vocabulary is not None else chain.vocabulary
    seed, eos = whole(seed, "seed", GenerationError), optional_ids(eos, "eos", GenerationError)
    whole(max_tokens, "max_tokens", GenerationError)
    stop_ids = frozenset(eos if eos is not None else vocabulary.eos if vocabulary is not None else ())
    beams = settings.beams
    if carried is None:
        carried = Carried(np.zeros((len(prompts), 1)), np.zeros((len(prompts), 1), dtype=np.int64))
    count, each = carried.logprobs.shape
    if each > beams or count * each != len(prompts):
        raise GenerationError(
            f"A search with {beams} beams got {len(prompts)} beginnings and carried scores of shape "
            f"{[count, each]}; give [prompts, beginnings], at most {beams} beginnings each."
        )
    expanded = [tuple(prompts[p * each + index]) for p in range(count) for index in _beginnings(beams, each)]
    context = start_context(
        model, expanded, max_tokens=max_tokens, vocabulary=vocabulary,
        seeds=np.repeat(rng.row_seeds(seed, count), beams).tolist(), donate=False,
    )  # fmt: skip
    # The log-probabilities are a new array that the chain may overwrite, and its result is read only once.
    context = context.with_fields(donate=not chain.debug, pool=LogitsPool())
    search = _Search(model, expanded, chain, settings, context, carried, stop_ids, max_tokens)
    for step in range(1, max_tokens + 1):
        if not search.extend(step):
            break
        search.feed()
    return [prompt.finished[: settings.samples] for prompt in search.prompts]


def _beginnings(beams: int, each: int) -> list[int]:
    """The number of the start sequence of each beam. Beams without a start sequence of their own copy the first."""
    return [beam if beam < each else 0 for beam in range(beams)]


class _Search:
    """The search of all prompts, with ``settings.beams`` consecutive rows of the model for each.

    Args:
        model: any model adapter.
        expanded: token ids per row.
        chain: processors, possibly none.
        settings: beams and scoring.
        context: the context of the start.
        carried: scores of the start sequences.
        stop_ids: ids that end a sequence.
        max_tokens: most new tokens.
    """

    def __init__(
        self,
        model: ModelAdapter,
        expanded: list[tuple[int, ...]],
        chain: Chain,
        settings: BeamSearch,
        context: Context,
        carried: Carried,
        stop_ids: frozenset[int],
        max_tokens: int,
    ) -> None:
        count, each = carried.logprobs.shape
        beams = settings.beams
        self._model, self._chain, self._settings = model, chain, settings
        self._stop_ids, self._max_tokens = stop_ids, max_tokens
        self._ends_texts = any(hasattr(link.processor, "text_end") for link in chain.links)
        branches: list[Sequence[Sequence[int]]] = [expanded, *chain.branch_prompts(context)]
        longest = [max(len(prompt) for prompt in row) for row in zip(*branches, strict=True)]
        groups = [slice(p * beams, (p + 1) * beams) for p in range(count)]
        rooms = [min(max_tokens, model.max_length - max(longest[group])) for group in groups for _ in range(beams)]
        self._start = self._context = context.with_fields(max_new_tokens=tuple(rooms))
        self._state = chain.init_state(self._context)
        self._rows = ModelRows(model, branches)
        self.prompts = [
            _Prompt(p, max(map(len, expanded[group])), max(longest[group]), carried.lengths[p].tolist())
            for p, group in enumerate(groups)
        ]
        #: The unfinished prompts. The following attributes have one entry per unfinished prompt, or per row of these.
        self._active = list(self.prompts)
        #: ``[prompts, beams]``: sums of log-probabilities; -inf for a row that is ignored.
        self._scores = np.full((count, beams), NEG_INF)
        self._scores[:, :each] = carried.logprobs
        #: Per prompt and beam the number of its start sequence, then its new tokens.
        self._lines: list[list[list[int]]] = [[[index] for index in _beginnings(beams, each)] for _ in self._active]
        #: Per row its latest token, and the log-probability that this token added to the score.
        self._latest: list[int] = []
        self._gained: list[float] = []

    def extend(self, step: int) -> bool:
        """Choose the next tokens. Returns whether the search of any prompt continues.

        Raises:
            NoLegalToken: if no hypothesis of a prompt can be continued or end.
            InvalidLogits: if the processed logits of a hypothesis have NaN or +inf.
        """
        before = self._state
        log_probs = self._model.backend.log_softmax(self._rows.logits)
        logits, self._state = self._chain.process(log_probs, before, self._context)
        self._check_logits(logits, before, step)
        ranked = self._best_candidates(logits)
        ends = self._text_ends(ranked)
        going: list[tuple[int, list[_Continuation]]] = []
        for p, prompt in enumerate(self._active):
            picked = _continuations(prompt, ranked[p], ends[p], self._lines[p], self._settings, step, self._stop_ids)
            if not picked and not prompt.finished:
                best = int(np.argmax(self._scores[p]))
                raise no_legal_token(
                    self._chain, before, self._context, p * self._settings.beams + best,
                    name=f"every hypothesis of prompt {prompt.number} (the best is beam {best})",
                    position=prompt.length + step - 1, tokens=self._lines[p][best][1:],
                )  # fmt: skip
            if self._goes_on(prompt, picked, self._lines[p], step):
                going.append((p, picked))
        if going:
            self._choose(going)
        return bool(going)

    def _check_logits(self, logits: Array, before: ChainState, step: int) -> None:
        """Raise an error for NaN and +inf, with which the choice of candidates would be arbitrary."""
        backend, beams = self._model.backend, self._settings.beams
        highest = backend.to_numpy(backend.xp.max(logits, axis=-1)).reshape(len(self._active), beams)
        for p, beam in np.argwhere(~(highest < np.inf) & (self._scores > NEG_INF)).tolist():
            prompt = self._active[p]
            invalid = invalid_logits(
                self._chain, logits, before, self._context, p * beams + beam,
                name=f"prompt {prompt.number}, beam {beam}",
                position=prompt.length + step - 1, tokens=self._lines[p][beam][1:],
            )  # fmt: skip
            if invalid is not None:
                raise invalid

    def _best_candidates(self, logits: Array) -> list[list[_Continuation]]:
        """Per prompt the best possible continuations of all beams, best first.

        The number of continuations is large enough that at least ``beams`` remain without the end-of-sequence tokens.
        """
        backend, beams = self._model.backend, self._settings.beams
        wide = _wide(self._settings, self._stop_ids)
        values, index = backend.top_k(logits, min(wide, logits.shape[-1]))
        shape = (len(self._active), beams, -1)
        totals = self._scores[:, :, None] + backend.to_numpy(values).astype(np.float64).reshape(shape)
        tokens = backend.to_numpy(index).reshape(len(self._active), -1)
        width = totals.shape[-1]
        ranked: list[list[_Continuation]] = []
        for flat, ids in zip(totals.reshape(len(self._active), -1), tokens, strict=True):
            order = np.argsort(-flat, kind="stable")[:wide]
            order = order[flat[order] > NEG_INF]
            ranked.append([_Continuation(float(flat[at]), int(at) // width, int(ids[at])) for at in order])
        return ranked

    def _text_ends(self, ranked: list[list[_Continuation]]) -> list[dict[int, int]]:
        """Which candidates the chain ends the text of: per prompt the rank -> number of bytes that are cut."""
        found: list[dict[int, int]] = [{} for _ in ranked]
        if not self._ends_texts:
            return found
        asked = [
            (p, rank, p * self._settings.beams + beam, token)
            for p, candidates in enumerate(ranked)
            for rank, (_, beam, token) in enumerate(candidates)
            if token not in self._stop_ids
        ]
        if not asked:
            return found
        state = row_state.take(self._state, np.asarray([row for _, _, row, _ in asked], dtype=np.int32))
        ends = self._chain.text_ends(state, self._start.accept([[token] for *_, token in asked]))
        for (p, rank, _, _), end in zip(asked, ends or (), strict=ends is not None):
            if end.finished:
                found[p][rank] = end.hold
        return found

    def _goes_on(self, prompt: _Prompt, picked: list[_Continuation], lines: list[list[int]], step: int) -> bool:
        """Whether the search of a prompt continues. Hypotheses at the token limit are recorded."""
        if not picked:
            return False
        best = picked[0]
        if _is_done(prompt, best.total, lines[best.beam][0], step, self._max_tokens, self._settings):
            return False
        if step < self._max_tokens and prompt.longest + step < self._model.max_length:
            return True
        for total, beam, token in picked:
            prompt.add([*lines[beam], token], total, step, self._settings, "length")
        return False

    def _choose(self, going: list[tuple[int, list[_Continuation]]]) -> None:
        """Keep the given continuations of the given prompts, and drop all other prompts."""
        beams = self._settings.beams
        # With fewer legal continuations than beams, the remaining rows get the score -inf and are never chosen.
        filled = [(p, [*picked, *[picked[0]._replace(total=NEG_INF)] * (beams - len(picked))]) for p, picked in going]
        chosen = [(p, continuation) for p, picked in filled for continuation in picked]
        self._latest = [continuation.token for _, continuation in chosen]
        self._gained = [total - self._scores[p, beam] for p, (total, beam, _) in chosen]
        self._lines = [[[*self._lines[p][beam], token] for _, beam, token in picked] for p, picked in filled]
        self._scores = np.asarray([[total for total, _, _ in picked] for _, picked in filled])
        self._active = [self._active[p] for p, _ in going]
        self._move(np.asarray([p * beams + beam for p, (_, beam, _) in chosen], dtype=np.int32))

    def _move(self, order: NDArray[np.int32]) -> None:
        """Keep the rows ``order`` of the chain's state and of the model, and accept their latest tokens."""
        self._state = row_state.take(self._state, order)
        self._rows.take(order)
        gained = self._gained if "chosen_logprob" in self._chain.needs else None
        self._context = self._start.accept(self._latest, chosen_logprob=gained)

    def feed(self) -> None:
        """Feed the latest token of each row to the model."""
        self._rows.feed([[token] for token in self._latest])


def _wide(settings: BeamSearch, eos: frozenset[int]) -> int:
    """The number of candidates per prompt for which at least ``beams`` remain without the end-of-sequence tokens."""
    return max(2, 1 + len(eos)) * settings.beams


def _continuations(
    search: _Prompt,
    ranked: list[_Continuation],
    ends: dict[int, int],
    lines: list[list[int]],
    settings: BeamSearch,
    step: int,
    eos: frozenset[int],
) -> list[_Continuation]:
    """The best unfinished continuations of one prompt, best first; finished ones are recorded."""
    picked: list[_Continuation] = []
    for rank, continuation in enumerate(ranked):
        total, beam, token = continuation
        if token in eos or rank in ends:
            # Only an end among the best ``beams`` candidates is recorded.
            if rank < settings.beams and token in eos:
                search.add(lines[beam], total, step, settings, "eos")
            elif rank < settings.beams:
                search.add([*lines[beam], token], total, step, settings, "stop", ends[rank])
        elif len(picked) < settings.beams:
            picked.append(continuation)
    return picked


def _score(total: float, length: int, settings: BeamSearch) -> float:
    return float(total / length**settings.length_penalty)


def _is_done(search: _Prompt, best: float, beginning: int, step: int, max_tokens: int, settings: BeamSearch) -> bool:
    """Whether no unfinished hypothesis can displace a finished one."""
    if len(search.finished) < settings.beams:
        return False
    if settings.early_stopping and settings.early_stopping != "never":
        return True
    worst, carried = search.finished[-1].score, search.scored[beginning]
    if settings.early_stopping == "never" and settings.length_penalty > 0.0:
        return worst >= _score(best, carried + max_tokens, settings)
    return worst >= _score(best, carried + step, settings)
