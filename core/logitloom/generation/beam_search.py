"""Beam search: several hypotheses per prompt, extended together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitloom import rng
from logitloom import state as row_state
from logitloom.backend import NEG_INF
from logitloom.chain import Chain
from logitloom.context import Context
from logitloom.errors import GenerationError
from logitloom.generation.dead_ends import no_legal_token
from logitloom.generation.loop import FinishReason, start_context
from logitloom.generation.model import ModelAdapter
from logitloom.generation.rows import ModelRows
from logitloom.masks.logits_pool import LogitsPool
from logitloom.vocabulary import Vocabulary

__all__ = ["BeamSearch", "Carried", "Hypothesis", "beam_search"]


@dataclass(frozen=True)
class BeamSearch:
    """Keep the ``beams`` best unfinished hypotheses per prompt at every step.

    A hypothesis' score is the sum of its tokens' processed log-probabilities, divided by its length to the power
    ``length_penalty`` once it ends. The chain works on log-probabilities and its result is not normalised again,
    so what a mask leaves keeps the model's own probability.

    References:
        Y. Wu et al., "Google's neural machine translation system", 2016, section 7 (length normalisation).
    """

    #: Hypotheses kept per prompt.
    beams: int = 4
    #: Exponent of the length; above 0 favours long sequences.
    length_penalty: float = 1.0
    #: ``True``: stop when ``beams`` hypotheses ended; ``False``: when no other seems able to win at its present
    #: length; ``"never"``: only when none can win at any length.
    early_stopping: bool | Literal["never"] = False
    #: Sequences returned per prompt, best first.
    samples: int = 1

    def __post_init__(self) -> None:
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
        cut: with ``finish="stop"``: bytes at the end of its text that do not belong to it.
        beginning: with several beginnings per prompt: which one it goes on from.
    """

    tokens: tuple[int, ...]
    logprob: float
    score: float
    finish: FinishReason
    cut: int = 0
    beginning: int = 0


class Carried(NamedTuple):
    """Scores that hypotheses bring from an earlier search, so that whole sequences are optimised.

    Attributes:
        logprobs: ``[prompts, beginnings]`` host floats; -inf for a beginning that shall not count.
        lengths: ``[prompts, beginnings]`` host integers: how many tokens each of them is the sum of.
    """

    logprobs: NDArray[np.float64]
    lengths: NDArray[np.int64]


@dataclass
class _Prompt:
    """The search of one prompt."""

    number: int
    length: int
    #: The longest prompt of its branches, which decides how much room the model has left.
    longest: int
    #: Per beginning, how many tokens its carried score is the sum of.
    scored: list[int]
    finished: list[Hypothesis] = field(default_factory=list)

    def add(
        self, line: list[int], total: float, step: int, settings: BeamSearch, finish: FinishReason, cut: int = 0
    ) -> None:
        """Record a hypothesis that ended: the number of its beginning, then its new tokens."""
        beginning, *tokens = line
        score = _score(total, self.scored[beginning] + step, settings)
        self.finished.append(Hypothesis(tuple(tokens), total, score, finish, cut, beginning))
        self.finished.sort(key=lambda h: -h.score)
        del self.finished[settings.beams :]


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
        seed: of processors that draw random numbers.
        eos: ids that end a sequence; default: the vocabulary's.
        vocabulary: bytes of the tokens; default: the chain's.
        carried: if given, ``prompts`` are the beginnings of each prompt one after the other, and searched together.

    Returns:
        Per prompt ``settings.samples`` hypotheses, best first.

    Raises:
        NoLegalToken: a prompt has no hypothesis left that can go on or end.
        GenerationError: there are more beginnings than beams, or not one for each carried score.
    """
    if not prompts:
        return []
    vocabulary = vocabulary if vocabulary is not None else chain.vocabulary
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
    places = [beam if beam < each else 0 for beam in range(beams)]
    expanded = [tuple(prompts[p * each + place]) for p in range(count) for place in places]
    context = start_context(
        model, expanded, max_tokens=max_tokens, vocabulary=vocabulary,
        seeds=np.repeat(rng.row_seeds(seed, count), beams).tolist(), donate=False,
    )  # fmt: skip
    # The log-probabilities that the chain gets are ours, and its result is read once.
    context = context.with_fields(donate=not chain.debug, pool=LogitsPool())
    backend = model.backend
    state = chain.init_state(context)
    branches: list[Sequence[Sequence[int]]] = [expanded, *chain.branch_prompts(context)]
    rows = ModelRows(model, branches)
    longest = [max(len(prompt) for prompt in each) for each in zip(*branches, strict=True)]
    searches = [
        _Prompt(p, max(map(len, group)), max(longest[p * beams : (p + 1) * beams]), carried.lengths[p].tolist())
        for p, group in enumerate(expanded[p * beams : (p + 1) * beams] for p in range(count))
    ]
    active = list(searches)
    # A beam for each beginning; what fills the rest of them is like the first, and does not count.
    scores = np.full((count, beams), NEG_INF)
    scores[:, :each] = carried.logprobs
    #: Per prompt and beam the number of its beginning, then its new tokens.
    tokens: list[list[list[int]]] = [[[place] for place in places] for _ in active]
    step_context = context
    wide = max(2, 1 + len(stop_ids)) * beams
    for step in range(1, max_tokens + 1):
        before = state
        logits, state = chain.process(backend.log_softmax(rows.logits), before, step_context)
        values, index = backend.top_k(logits, min(wide, logits.shape[-1]))
        totals = scores[:, :, None] + backend.to_numpy(values).astype(np.float64).reshape(len(active), beams, -1)
        candidates = backend.to_numpy(index).reshape(len(active), beams, -1)
        last = step == max_tokens
        going: list[int] = []
        parents: list[int] = []
        new_tokens: list[int] = []
        gained: list[float] = []
        next_scores: list[list[float]] = []
        next_lists: list[list[list[int]]] = []
        for p, search in enumerate(active):
            picked = _extend(search, totals[p], candidates[p], tokens[p], settings, step, stop_ids, wide)
            if not picked and not search.finished:
                best_beam = int(np.argmax(scores[p]))
                raise no_legal_token(
                    chain, before, step_context, p * beams + best_beam,
                    name=f"every hypothesis of prompt {search.number} (the best is beam {best_beam})",
                    position=search.length + step - 1, tokens=tokens[p][best_beam][1:],
                )  # fmt: skip
            limit = last or search.longest + step >= model.max_length
            best = picked[0][0] if picked else NEG_INF
            done = not picked or _is_done(search, best, tokens[p][picked[0][1]][0], step, max_tokens, settings)
            if done or limit:
                for total, beam, token in picked if not done else ():
                    search.add([*tokens[p][beam], token], total, step, settings, "length")
                continue
            gained += [total - scores[p, beam] for total, beam, _ in picked]
            gained += [NEG_INF] * (beams - len(picked))
            while len(picked) < beams:  # fewer legal continuations than beams: the rest can never be chosen
                picked.append((NEG_INF, picked[0][1], picked[0][2]))
            going.append(p)
            parents += [p * beams + beam for _, beam, _ in picked]
            new_tokens += [token for _, _, token in picked]
            next_scores.append([total for total, _, _ in picked])
            next_lists.append([[*tokens[p][beam], token] for _, beam, token in picked])
        active = [active[p] for p in going]
        if not active:
            break
        scores, tokens = np.asarray(next_scores), next_lists
        order: NDArray[np.int32] = np.asarray(parents, dtype=np.int32)
        state = row_state.take(state, order)
        rows.take(order)
        step_context = _accepted(context, chain, new_tokens, gained)
        ends = chain.text_ends(state, step_context)
        if ends is not None:
            for i, end in enumerate(ends):
                p, beam = divmod(i, beams)
                if end.finished and scores[p, beam] > NEG_INF:
                    total = float(scores[p, beam])
                    active[p].add(tokens[p][beam], total, step, settings, "stop", end.hold)
                    scores[p, beam] = NEG_INF
            closed = [p for p in range(len(active)) if not (scores[p] > NEG_INF).any()]
            if closed:
                open_ = [p for p in range(len(active)) if p not in closed]
                if not open_:
                    break
                kept = np.concatenate([np.arange(p * beams, (p + 1) * beams, dtype=np.int32) for p in open_])
                active = [active[p] for p in open_]
                scores, tokens = scores[open_], [tokens[p] for p in open_]
                new_tokens = [new_tokens[i] for i in kept]
                gained = [gained[i] for i in kept]
                state = row_state.take(state, kept)
                rows.take(kept)
                step_context = _accepted(context, chain, new_tokens, gained)
        rows.feed([[token] for token in new_tokens])
    return [search.finished[: settings.samples] for search in searches]


def _accepted(context: Context, chain: Chain, tokens: list[int], gained: list[float]) -> Context:
    """The context after a token per row, and what each added to its hypothesis' score if a processor needs that."""
    return context.accept(tokens, chosen_logprob=gained if "chosen_logprob" in chain.needs else None)


def _extend(
    search: _Prompt,
    totals: NDArray[np.float64],
    candidates: NDArray[np.integer],
    tokens: list[list[int]],
    settings: BeamSearch,
    step: int,
    eos: frozenset[int],
    wide: int,
) -> list[tuple[float, int, int]]:
    """The best unfinished continuations (total, beam, token) of one prompt; finished ones are recorded."""
    flat = totals.ravel()
    order = np.argsort(-flat, kind="stable")[:wide]
    width = totals.shape[1]
    picked: list[tuple[float, int, int]] = []
    for rank, place in enumerate(order):
        total = float(flat[place])
        if not total > NEG_INF:
            break
        beam, token = int(place) // width, int(candidates.ravel()[place])
        if token in eos:
            # An end that ranks below the beams would not have been kept either.
            if rank < settings.beams:
                search.add(tokens[beam], total, step, settings, "eos")
        elif len(picked) < settings.beams:
            picked.append((total, beam, token))
    return picked


def _score(total: float, length: int, settings: BeamSearch) -> float:
    return float(total / length**settings.length_penalty)


def _is_done(search: _Prompt, best: float, beginning: int, step: int, max_tokens: int, settings: BeamSearch) -> bool:
    """Whether no unfinished hypothesis can displace a finished one."""
    if len(search.finished) < settings.beams:
        return False
    if settings.early_stopping is True:
        return True
    worst, carried = search.finished[-1].score, search.scored[beginning]
    if settings.early_stopping == "never" and settings.length_penalty > 0.0:
        return worst >= _score(best, carried + max_tokens, settings)
    return worst >= _score(best, carried + step, settings)
