"""Reads tokenizers of Hugging Face's ``transformers`` and ``tokenizers``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

from logitloom import Vocabulary
from logitloom.errors import VocabularyError
from logitloom_plugins.tokenizers._agreement import require_agreement
from logitloom_plugins.tokenizers._origin import comes_from
from logitloom_plugins.tokenizers._token_text import byte_fallback, byte_level
from logitloom_plugins.tokenizers._tokenizer_file import end_ids, ends_beside, opened, tokenizer_file
from logitloom_plugins.tokenizers.sentencepiece import SentencePieceReader

__all__ = ["HuggingFaceReader"]

#: How many tokens of a table are compared to find out whether it was replaced by another of its size.
_SAMPLED = 256


class HuggingFaceReader:
    """Turns a Hugging Face tokenizer into a vocabulary.

    Takes ``tokenizers.Tokenizer``, every transformers tokenizer that runs on a ``tokenizers.Tokenizer``
    (``PreTrainedTokenizerFast``) or on a SentencePiece model, transformers' processors that hold a tokenizer, and
    mlx-lm's ``TokenizerWrapper``, whose own end-of-sequence ids count as well. A token's bytes are what the tokenizer's
    decoder writes for it in the middle of a text: ``▁the``, ``Ġthe`` and a WordPiece ``the`` are all ``b" the"``,
    although most decoders drop that space where a text begins.

    Special added tokens, unknown tokens and ids without a token are special; other added tokens are text, as
    the decoder writes it. The ids that end a sequence are the tokenizer's end-of-sequence token and those in
    the model's ``generation_config.json``, where the tokenizer was loaded from a folder or from the local
    cache (no network is used). A bare ``tokenizers.Tokenizer`` does not know which token ends a sequence; for
    the path of a ``tokenizer.json``, or of its folder, the files beside the ``tokenizer.json`` name this token.

    Byte-level BPE, byte fallback, Metaspace, WordPiece and word-suffix decoders are exact. A decoder whose
    output for a token depends on other tokens (CTC, Python code, ``clean_up_tokenization_spaces``) is
    refused.
    """

    def vocabulary(self, tokenizer: Any) -> Vocabulary | None:
        """Read a tokenizer.

        Args:
            tokenizer: any object.

        Returns:
            The vocabulary, or None if the object is no tokenizer of these libraries.

        Raises:
            VocabularyError: if the tokenizer does not decode token by token, so that its tokens have no
                bytes of their own, or if it runs on Python code alone.
        """
        if comes_from(tokenizer, "transformers", "MistralCommonBackend", "MistralCommonTokenizer"):
            return None  # transformers' face of a mistral-common tokenizer, which has a reader of its own
        if comes_from(tokenizer, "transformers", "PreTrainedTokenizerBase"):
            return _transformers_vocabulary(tokenizer)
        if comes_from(tokenizer, "transformers", "ProcessorMixin"):
            inner = getattr(tokenizer, "tokenizer", None)
            return None if inner is None else self.vocabulary(inner)
        if comes_from(tokenizer, "mlx_lm", "TokenizerWrapper"):
            return _wrapped_vocabulary(self.vocabulary(tokenizer._tokenizer), tokenizer.eos_token_ids)
        if comes_from(tokenizer, "tokenizers", "Tokenizer"):
            return _fast_vocabulary(tokenizer, lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False)))
        if comes_from(tokenizer, "tokenizers", "BaseTokenizer"):
            return self.vocabulary(tokenizer._tokenizer)
        file = tokenizer_file(tokenizer)
        return None if file is None else _file_vocabulary(file)

    def encode_text(self, tokenizer: Any, text: str) -> list[int] | None:
        """The ids of a text, with the special tokens that the tokenizer adds.

        Args:
            tokenizer: any object.
            text: any text.

        Returns:
            The ids, or None if the object is no tokenizer of these libraries.
        """
        if comes_from(tokenizer, "transformers", "MistralCommonBackend", "MistralCommonTokenizer"):
            return None
        if comes_from(tokenizer, "transformers", "PreTrainedTokenizerBase"):
            ids: list[int] = tokenizer.encode(text)
            return ids
        if comes_from(tokenizer, "transformers", "ProcessorMixin"):
            return self.encode_text(getattr(tokenizer, "tokenizer", None), text)
        if comes_from(tokenizer, "mlx_lm", "TokenizerWrapper"):
            return self.encode_text(tokenizer._tokenizer, text)
        if comes_from(tokenizer, "tokenizers", "Tokenizer", "BaseTokenizer"):
            return list(tokenizer.encode(text).ids)
        file = tokenizer_file(tokenizer)
        return None if file is None else list(opened(file).encode(text).ids)

    def vocabulary_version(self, tokenizer: Any) -> Hashable | None:
        """What the table depends on and users change: added tokens, ends, the decoder, and a sample of the tokens.

        Args:
            tokenizer: any object.

        Returns:
            The version, or None if the object is no tokenizer that runs on the ``tokenizers`` library.
        """
        if comes_from(tokenizer, "transformers", "PreTrainedTokenizerBase"):
            backend = getattr(tokenizer, "backend_tokenizer", None)
            if not comes_from(backend, "tokenizers", "Tokenizer"):
                return None
            clean_up = getattr(tokenizer, "clean_up_tokenization_spaces", False)
            ends = (*_end_ids(tokenizer), None, *tokenizer.all_special_ids)
            return (_fast_version(backend), clean_up, ends, getattr(tokenizer, "name_or_path", ""))
        if comes_from(tokenizer, "transformers", "ProcessorMixin"):
            return self.vocabulary_version(getattr(tokenizer, "tokenizer", None))
        if comes_from(tokenizer, "mlx_lm", "TokenizerWrapper"):
            inner = self.vocabulary_version(tokenizer._tokenizer)
            return None if inner is None else (inner, frozenset(tokenizer.eos_token_ids))
        if comes_from(tokenizer, "tokenizers", "Tokenizer"):
            return _fast_version(tokenizer)
        if comes_from(tokenizer, "tokenizers", "BaseTokenizer"):
            return _fast_version(tokenizer._tokenizer)
        return None


def _fast_version(backend: Any) -> Hashable:
    """What tells whether a ``tokenizers.Tokenizer`` changed."""
    size = backend.get_vocab_size(with_added_tokens=True)
    sample = tuple(backend.id_to_token(i) for i in range(0, size, max(1, size // _SAMPLED)))
    added = tuple((i, t.content, t.special) for i, t in sorted(backend.get_added_tokens_decoder().items()))
    model, decoder = backend.model, backend.decoder
    # A repr and not the state, because a decoder written in Python has none.
    return (size, sample, added, type(model).__name__, getattr(model, "unk_token", None), repr(decoder))


def _wrapped_vocabulary(inner: Vocabulary | None, ends: Iterable[int]) -> Vocabulary | None:
    """The table with the ends of a wrapper after those of the tokenizer inside it."""
    if inner is None:
        return None
    more = sorted(i for i in set(ends) - set(inner.eos) if i < inner.size)
    return inner.with_eos([*inner.eos, *more]) if more else inner


def _file_vocabulary(file: Path) -> Vocabulary:
    """The vocabulary of a ``tokenizer.json``, with the end tokens that the files beside it name."""
    tokenizer = opened(file)
    known = (tokenizer.token_to_id(end) if isinstance(end, str) else end for end in ends_beside(file))
    return _fast_vocabulary(
        tokenizer,
        lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False)),
        eos=[end for end in dict.fromkeys(known) if end is not None],
        name=str(file),
    )


def _transformers_vocabulary(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a transformers tokenizer, read according to the library that runs the tokenizer."""

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    special = [i for i in tokenizer.all_special_ids if i is not None]
    eos = _end_ids(tokenizer)

    if hasattr(tokenizer, "backend_tokenizer"):
        backend = tokenizer.backend_tokenizer
        # transformers ignores the clean-up for BPE unless it is forced, because it destroys text.
        forced = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
        ignored = type(backend.model).__name__ == "BPE" and not getattr(tokenizer, forced, False)
        if getattr(tokenizer, "clean_up_tokenization_spaces", False) and not ignored:
            raise VocabularyError(
                f"{name}: clean_up_tokenization_spaces is on, so decode rewrites spaces across tokens and no "
                f"token has exact bytes. Set tokenizer.clean_up_tokenization_spaces = False."
            )
        return _fast_vocabulary(backend, decode, eos=eos, special=special, name=name)
    if hasattr(tokenizer, "sp_model"):
        base = SentencePieceReader().vocabulary(tokenizer.sp_model)
        if base is not None:
            return require_agreement(_with_added(base, tokenizer, eos, special, name), decode)
    raise VocabularyError(
        f"{name}: {type(tokenizer).__name__} runs on Python code, whose token bytes cannot be known. Load "
        f"the model's fast tokenizer, transformers.AutoTokenizer.from_pretrained(..., use_fast=True)."
    )


def _end_ids(tokenizer: Any) -> list[int]:
    """The ids that end a sequence: the tokenizer's own, and those of the model's generation configuration."""
    text = tokenizer.special_tokens_map.get("eos_token")
    own = None if text is None else tokenizer.convert_tokens_to_ids(str(text))
    return [*([] if own is None else [own]), *_generation_eos(tokenizer)]


def _with_added(base: Vocabulary, tokenizer: Any, eos: list[int], special: list[int], name: str) -> Vocabulary:
    """A SentencePiece table with the tokens that transformers adds to it."""
    added: dict[int, Any] = tokenizer.added_tokens_decoder
    size = max([base.size, *(i + 1 for i in added)])
    table = [*base.token_bytes, *([b""] * (size - base.size))]
    texts = dict(base.special_text)
    specials = {*base.special, *special, *(i for i in range(base.size, size) if i not in added)}
    for i, token in added.items():
        if token.special or i in specials:
            specials.add(i)
            texts[i] = token.content
        else:
            table[i] = token.content.encode()
    ends = [i for i in (*eos, *base.eos) if i < size]
    return Vocabulary(table, eos=ends, special=specials, special_text=texts, name=name)


def _fast_vocabulary(
    backend: Any,
    decode: Callable[[list[int]], str],
    *,
    eos: Iterable[int] = (),
    special: Iterable[int] = (),
    name: str = "tokenizers.Tokenizer",
) -> Vocabulary:
    """The table of a ``tokenizers.Tokenizer``, checked against a decode function."""
    added: dict[int, Any] = backend.get_added_tokens_decoder()
    size = 1 + max([*backend.get_vocab(with_added_tokens=True).values(), *added], default=-1)
    # Texts are looked up by id, as decode does: one text may have two ids, and one id two texts.
    texts: list[str | None] = [backend.id_to_token(i) for i in range(size)]
    specials = {i for i, text in enumerate(texts) if text is None}
    specials.update(i for i, token in added.items() if token.special)
    specials.update(i for i in special if i < size)
    specials.update(_unknown_ids(backend, texts))
    # End ids of the model that this tokenizer does not have are left out, because it could not decode them.
    ends = [i for i in eos if i < size]
    vocabulary = Vocabulary(
        _written([text or "" for text in texts], _decoder_stages(backend, name), name),
        eos=ends,
        special=specials,
        special_text={i: text for i in sorted({*specials, *ends}) if (text := texts[i]) is not None},
        name=name,
    )
    return require_agreement(vocabulary, decode)


def _unknown_ids(backend: Any, texts: Sequence[str | None]) -> set[int]:
    """The id of the unknown token, if the model has one."""
    model = backend.model
    if type(model).__name__ == "Unigram":
        unknown = json.loads(model.__getstate__())["unk_id"]
        return set() if unknown is None else {unknown}
    text = getattr(model, "unk_token", None)
    number = None if text is None else backend.token_to_id(text)
    return set() if number is None or texts[number] != text else {number}


def _decoder_stages(backend: Any, name: str) -> list[dict[str, Any]] | None:
    """The decoder as a flat list of its stages' JSON descriptions; None for a tokenizer without decoder."""
    decoder = backend.decoder
    if decoder is None:
        return None
    try:
        described = json.loads(decoder.__getstate__())
    except Exception as error:
        # The library raises plain Exception here; a decoder without description is one written in Python.
        raise VocabularyError(
            f"{name}: its decoder cannot be described ({error}), as happens with decoders written in Python. "
            f"Use a decoder of the tokenizers library."
        ) from error

    def flat(stage: dict[str, Any]) -> list[dict[str, Any]]:
        inner = stage["decoders"] if stage["type"] == "Sequence" else None
        return [stage] if inner is None else [leaf for part in inner for leaf in flat(part)]

    return flat(described)


def _written(texts: list[str], stages: list[dict[str, Any]] | None, name: str) -> list[bytes]:
    """What each token adds to the middle of a text, when it goes through the stages of a decoder."""
    if stages is None:
        return [b" " + text.encode() for text in texts]
    raw: dict[int, bytes] = {}
    whole = False
    for stage in stages:
        kind = stage["type"]
        if whole:
            # The tokens are joined. Stripping acts at both ends of the text, never in its middle.
            if kind not in ("Fuse", "Strip"):
                raise _not_token_by_token(name, f"{kind} after the tokens are joined")
        elif kind == "Fuse":
            whole = True
        elif kind == "ByteLevel" and not raw:
            raw = dict(enumerate(byte_level(texts)))
            whole = True
        elif kind == "ByteFallback":
            found = ((i, byte_fallback(text)) for i, text in enumerate(texts))
            raw = {i: byte for i, byte in found if byte is not None}
        elif kind == "Metaspace":
            texts = [text.replace(stage["replacement"], " ") for text in texts]
        elif kind == "Replace" and "String" in stage["pattern"]:
            texts = [text.replace(stage["pattern"]["String"], stage["content"]) for text in texts]
        elif kind == "BPEDecoder" and not raw:
            texts = [text.replace(stage["suffix"], " ") for text in texts]
        elif kind == "WordPiece" and not raw:
            texts = [_word_piece(text, stage["prefix"], stage["cleanup"]) for text in texts]
        elif kind == "Strip" and not raw:
            texts = [_stripped(text, stage["content"], stage["start"], stage["stop"]) for text in texts]
        else:
            raise _not_token_by_token(name, kind + (" after byte fallback" if raw else ""))
    return [raw[i] if i in raw else text.encode() for i, text in enumerate(texts)]


def _not_token_by_token(name: str, stage: str) -> VocabularyError:
    return VocabularyError(
        f"{name}: its decoder has the stage {stage}, for which the bytes of a token are not known on their "
        f"own. Use a tokenizer with a ByteLevel, ByteFallback, Metaspace or WordPiece decoder, or build a "
        f"logitloom.vocabulary.Vocabulary by hand."
    )


_CONTRACTIONS = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


def _word_piece(text: str, prefix: str, cleanup: bool) -> str:
    """A WordPiece that is not the first of its text; the clean-up looks at one piece at a time."""
    text = text.removeprefix(prefix) if text.startswith(prefix) else " " + text
    if cleanup:
        for before, after in _CONTRACTIONS:
            text = text.replace(before, after)
    return text


def _stripped(text: str, content: str, start: int, stop: int) -> str:
    """A token without up to ``start`` leading and ``stop`` trailing occurrences of a character."""
    left = len(text) - len(text.lstrip(content))
    text = text[min(left, start) :]
    right = len(text) - len(text.rstrip(content))
    return text[: len(text) - min(right, stop)]


def _generation_eos(tokenizer: Any) -> list[int]:
    """The end ids in the ``generation_config.json`` of the tokenizer's folder or of the local cache."""
    source = getattr(tokenizer, "name_or_path", "")
    if not source:
        return []
    path: str | None = os.path.join(source, "generation_config.json")
    if not os.path.isdir(source):
        if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source):
            return []
        from huggingface_hub import try_to_load_from_cache  # transformers cannot be installed without it

        revision = getattr(tokenizer, "init_kwargs", {}).get("_commit_hash")
        found = try_to_load_from_cache(source, "generation_config.json", revision=revision)
        path = found if isinstance(found, str) else None
    return [] if path is None else end_ids(Path(path))
