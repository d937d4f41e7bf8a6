"""What other libraries call our processors, and what we have instead of those that have no counterpart."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["COUNTERPARTS", "Counterpart", "table"]


class Counterpart(NamedTuple):
    """What stands for a sampler or processor of another library.

    Attributes:
        ours: names of processors; none if something else does the same, or nothing does.
        note: how it is had, or how it differs.
    """

    ours: tuple[str, ...] = ()
    note: str = ""


def _same(*ours: str, note: str = "") -> Counterpart:
    return Counterpart(ours, note)


def _instead(note: str) -> Counterpart:
    return Counterpart((), note)


_CHANNELS: Final = (
    "none: its channels are rows that read each other; a row of ours depends on itself alone. Keep the original beside "
    "the chain."
)

COUNTERPARTS: Final[dict[str, dict[str, Counterpart]]] = {
    "transformers": {
        "AlternatingCodebooksLogitsProcessor": _same("alternating_codebooks"),
        "BarkEosPrioritizerLogitsProcessor": _same("eos_above"),
        "ClassifierFreeGuidanceLogitsProcessor": _same("cfg", note='`form = "one_pass"`'),
        "DiaClassifierFreeGuidanceLogitsProcessor": _same(
            "cfg", note='`center = "conditional"`, `top_k`, `form = "one_pass"`'
        ),
        "DiaEOSChannelFilterLogitsProcessor": _instead(_CHANNELS),
        "DiaEOSDelayPatternLogitsProcessor": _instead(_CHANNELS),
        "EncoderNoRepeatNGramLogitsProcessor": _same("encoder_no_repeat_ngram"),
        "EncoderRepetitionPenaltyLogitsProcessor": _same("encoder_repetition_penalty"),
        "EpsilonLogitsWarper": _same("epsilon_cutoff"),
        "EtaLogitsWarper": _same("eta_cutoff"),
        "ExponentialDecayLengthPenalty": _same("exponential_decay_length_penalty"),
        "ForcedBOSTokenLogitsProcessor": _same("force_tokens", note="`tokens = {0 = id}`"),
        "ForcedEOSTokenLogitsProcessor": _same("forced_eos", note="`include_prompt = true`"),
        "InfNanRemoveLogitsProcessor": _same("remove_invalid", note="`keep_forbidden = false`"),
        "LogitNormalization": _same("normalize"),
        "MinLengthLogitsProcessor": _same("min_tokens", note="`include_prompt = true`"),
        "MinNewTokensLengthLogitsProcessor": _same("min_tokens"),
        "MinPLogitsWarper": _same("min_p"),
        "NoBadWordsLogitsProcessor": _same("bad_words_ids", "bad_words", note="by ids; by text, however it is split"),
        "NoRepeatNGramLogitsProcessor": _same("no_repeat_ngram"),
        "PrefixConstrainedLogitsProcessor": _same(
            "prefix_allowed_tokens", "choice", note="`beams` for its number of beams; a list instead of a function"
        ),
        "RepetitionPenaltyLogitsProcessor": _same("repetition_penalty"),
        "SequenceBiasLogitsProcessor": _same("sequence_bias"),
        "SuppressTokensAtBeginLogitsProcessor": _same("suppress_tokens", note="`begin = true`"),
        "SuppressTokensLogitsProcessor": _same("suppress_tokens"),
        "SynthIDTextWatermarkLogitsProcessor": _same("watermark_synthid"),
        "TemperatureLogitsWarper": _same("temperature"),
        "TopHLogitsWarper": _same("top_h"),
        "TopKLogitsWarper": _same("top_k"),
        "TopPLogitsWarper": _same("top_p"),
        "TypicalLogitsWarper": _same("typical_p"),
        "UnbatchedClassifierFreeGuidanceLogitsProcessor": _same("cfg"),
        "WatermarkLogitsProcessor": _same("watermark_greenlist"),
        "WhisperNoSpeechDetection": _same(
            "whisper_no_speech", note="read after the prompt, which ends with the token that starts a transcript"
        ),
        "WhisperTimeStampLogitsProcessor": _same("whisper_timestamps"),
    },
    "transformers, `GenerationMode`": {
        "assisted_generation": _instead("`Generator(candidates=...)` of `logitloom.generation`, with `assistant`"),
        "beam_sample": _instead(
            "none: `BeamSearch` takes the best hypotheses and draws none; `Multinomial(samples=n)` draws n texts"
        ),
        "beam_search": _instead("`BeamSearch` of `logitloom.generation`"),
        "constrained_beam_search": _instead("`BeamSearch` of `logitloom.generation`, with a constraint in the chain"),
        "contrastive_search": _instead("`ContrastiveSearch` of `logitloom.generation`"),
        "dola_generation": _same("dola"),
        "greedy_search": _instead("`Greedy` of `logitloom.generation`"),
        "group_beam_search": _instead("none: beams form one group; `Multinomial(samples=n)` gives texts that differ"),
        "sample": _instead("`Multinomial` of `logitloom.generation`"),
    },
    "llama.cpp": {
        "adaptive_p": _same("adaptive_p"),
        "dist": _instead("`Multinomial` of `logitloom.generation`, or the engine's own sampling"),
        "dry": _same("dry"),
        "grammar": _same("grammar", "json", "regex"),
        "grammar_lazy": _same("after", "tool_call", note="a grammar from a trigger on"),
        "greedy": _instead("`Greedy` of `logitloom.generation`, or the engine's own"),
        "ignore_eos": _same("suppress_tokens", note="the ids of end-of-sequence"),
        "infill": _instead(
            "none: it merges tokens by common beginnings for fill-in-the-middle; `top_k` and `top_p` truncate"
        ),
        "logit_bias": _same("logit_bias"),
        "min_p": _same("min_p"),
        "mirostat": _same("mirostat"),
        "mirostat_v2": _same("mirostat_v2"),
        "penalties": _same("repetition_penalty", "frequency_penalty", "presence_penalty"),
        "reasoning_budget": _same("thinking"),
        "temp": _same("temperature"),
        "temp_ext": _same("dynamic_temperature", note="`low`, `high` = temperature less, and plus, range"),
        "top_k": _same("top_k"),
        "top_n_sigma": _same("top_n_sigma"),
        "top_p": _same("top_p"),
        "typical": _same("typical_p"),
        "xtc": _same("xtc"),
    },
    "mlx-lm": {
        "apply_min_p": _same("min_p"),
        "apply_top_k": _same("top_k"),
        "apply_top_p": _same("top_p"),
        "apply_xtc": _same("xtc"),
        "categorical_sampling": _instead("`Multinomial` of `logitloom.generation`, with `temperature` in the chain"),
        "greedy_sampler": _instead("`Greedy` of `logitloom.generation`"),
        "make_frequency_penalty": _same("frequency_penalty", note="`window = 20`, `include_prompt = true`"),
        "make_logits_processors": _instead("a chain: `processors.load`"),
        "make_presence_penalty": _same("presence_penalty", note="`window = 20`, `include_prompt = true`"),
        "make_repetition_penalty": _same("repetition_penalty", note="`window = 20`"),
        "make_sampler": _instead("a chain: `processors.load`"),
    },
    "vLLM": {
        "allowed_token_ids": _same("logit_bias", "suppress_tokens", note="the others at -inf"),
        "bad_words": _same("bad_words", "bad_words_ids"),
        "frequency_penalty": _same("frequency_penalty"),
        "ignore_eos": _same("suppress_tokens", note="the ids of end-of-sequence"),
        "logit_bias": _same("logit_bias"),
        "min_p": _same("min_p"),
        "min_tokens": _same("min_tokens"),
        "presence_penalty": _same("presence_penalty"),
        "repetition_detection": _same("stop_repetition"),
        "repetition_penalty": _same("repetition_penalty"),
        "seed": _instead("`seed` of `logitloom.generation`, or the engine's own"),
        "stop": _same("stop"),
        "stop_token_ids": _instead("`eos` of `logitloom.generation`, or the engine's own"),
        "structured_outputs": _same("json", "regex", "choice", "grammar", "structural_tag"),
        "temperature": _same("temperature"),
        "thinking_token_budget": _same("thinking"),
        "top_k": _same("top_k"),
        "top_p": _same("top_p"),
        "trace_decode_token_ids": _same("force_tokens"),
        "watermarking": _same(
            "watermark_gumbel", note="the same method; vLLM's keyed numbers are others, so neither detects the other's"
        ),
    },
    "SGLang": {
        "DisallowedTokensLogitsProcessor": _same("suppress_tokens"),
        "ThinkingBudgetLogitProcessor": _same("thinking"),
        "frequency_penalty": _same("frequency_penalty"),
        "ignore_eos": _same("suppress_tokens", note="the ids of end-of-sequence"),
        "json_schema, regex, ebnf, structural_tag": _same("json", "regex", "grammar", "structural_tag"),
        "logit_bias": _same("logit_bias"),
        "min_new_tokens": _same("min_tokens"),
        "min_p": _same("min_p"),
        "presence_penalty": _same("presence_penalty"),
        "repetition_penalty": _same("repetition_penalty"),
        "sampling_seed": _instead("`seed` of `logitloom.generation`, or the engine's own"),
        "stop": _same("stop"),
        "stop_regex": _same("until", note="the pattern ends a part of the text"),
        "stop_token_ids": _instead("`eos` of `logitloom.generation`, or the engine's own"),
        "temperature": _same("temperature"),
        "top_k": _same("top_k"),
        "top_p": _same("top_p"),
    },
    "ExLlama": {
        "SS_AdaptiveP": _same("adaptive_p"),
        "SS_Argmax": _instead("`Greedy` of `logitloom.generation`"),
        "SS_BanTokens": _same("suppress_tokens"),
        "SS_DRY": _same("dry"),
        "SS_Fused": _instead("a chain of `min_p`, `top_k`, `top_p` and `temperature`, whose steps it joins"),
        "SS_LogitBias": _same("logit_bias"),
        "SS_MinP": _same("min_p"),
        "SS_Normalize": _same("normalize"),
        "SS_PresFreqP": _same(
            "presence_penalty", "frequency_penalty", note="`window` for `sustain_range`; none for `decay_range`"
        ),
        "SS_RepP": _same("repetition_penalty", note="`window` for `sustain_range`; none for `decay_range`"),
        "SS_Sample": _instead("`Multinomial` of `logitloom.generation`"),
        "SS_Sort": _instead("none: no processor needs tokens in order"),
        "SS_Temperature": _same("temperature"),
        "SS_TopK": _same("top_k"),
        "SS_TopP": _same("top_p"),
        "SS_XTC": _same("xtc", note="it draws, as llama.cpp does; ExLlamaV3 takes the mean of both outcomes"),
        "mirostat": _same("mirostat_v2"),
        "smoothing_factor": _same("quadratic"),
        "temperature_last": _instead("the order of the chain"),
        "top_a": _same("top_a"),
        "typical": _same("typical_p"),
    },
}


def table() -> str:
    """The section of the page of built-ins, in Markdown."""
    lines = [
        "## In other libraries { #counterparts }",
        "What stands for the samplers and processors of other libraries.",
    ]
    for library, entries in COUNTERPARTS.items():
        rows = [f"| {library} | logitloom | |", "| --- | --- | --- |"]
        for theirs, found in entries.items():
            links = ", ".join(f"[`{name}`](#{name})" for name in found.ours) or "–"
            rows.append(f"| `{theirs}` | {links} | {found.note} |")
        lines.append("\n".join(rows))
    return "\n\n".join(lines)
