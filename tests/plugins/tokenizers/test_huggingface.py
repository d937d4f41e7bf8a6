from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom.errors import VocabularyError
from logitloom.vocabulary import Vocabulary
from logitloom_plugins.tokenizers.huggingface import HuggingFaceReader
from logitloom_plugins.tokenizers.sentencepiece import SentencePieceReader

tokenizers = pytest.importorskip("tokenizers", reason="needs the tokenizers library")
from tokenizers import (  # noqa: E402 - after the skip
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

pytestmark = pytest.mark.extras

Check = Any

BYTES = [f"<0x{b:02X}>" for b in range(256)]
LLAMA = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def read(tokenizer: Any) -> Vocabulary:
    vocabulary = HuggingFaceReader().vocabulary(tokenizer)
    assert vocabulary is not None
    return vocabulary


def byte_level(corpus: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def unigram(corpus: Iterable[str], decoder: Any) -> Tokenizer:
    """A trained Unigram model, given the byte pieces that the trainer cannot make."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    described = json.loads(tokenizer.to_str())
    described["model"]["vocab"] += [[byte, -20.0] for byte in BYTES]
    described["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.decoder = decoder
    return tokenizer


def fallback_bpe(corpus: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(LLAMA)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        limit_alphabet=60,
        special_tokens=["<unk>", "<s>", "</s>", *BYTES],
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    described = json.loads(tokenizer.to_str())
    # The trainer can only be told to keep the byte pieces by calling them special.
    described["added_tokens"] = described["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(described))


def metaspace_bpe(corpus: Iterable[str], scheme: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def word_piece(corpus: Iterable[str], cleanup: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=cleanup)
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", "[SEP]"], show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_tokens(["n't", "'s", "."])
    return tokenizer


def suffix_bpe(corpus: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def words(corpus: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


KINDS: dict[str, Callable[[list[str]], Any]] = {
    "byte level": byte_level,
    "unigram, byte fallback": lambda corpus: unigram(corpus, decoders.Sequence(LLAMA)),
    "unigram, metaspace": lambda corpus: unigram(corpus, decoders.Metaspace()),
    "bpe, byte fallback": fallback_bpe,
    "metaspace always": lambda corpus: metaspace_bpe(corpus, "always"),
    "metaspace first": lambda corpus: metaspace_bpe(corpus, "first"),
    "metaspace never": lambda corpus: metaspace_bpe(corpus, "never"),
    "word piece": lambda corpus: word_piece(corpus, False),
    "word piece, clean-up": lambda corpus: word_piece(corpus, True),
    "word suffix": suffix_bpe,
    "words without decoder": words,
}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, corpus: list[str]) -> Any:
    return KINDS[request.param](corpus)


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Any) -> Vocabulary:
    return read(tokenizer)


def decode_with(tokenizer: Any) -> Callable[[list[int]], str]:
    return lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False))


def letter(vocabulary: Vocabulary) -> int:
    """An ordinary token of letters, and no byte token, to stand before the token that is looked at."""
    table = vocabulary.token_bytes
    words = [i for i, data in enumerate(table) if data.isascii() and data.strip(b" ").isalpha()]
    return max(words, key=lambda i: len(table[i]))


# ---- the whole vocabulary, one id at a time


def test_every_token_of_a_trained_tokenizer_agrees_with_decode(
    tokenizer: Any, vocabulary: Vocabulary, check_every_token: Check
) -> None:
    anchor = letter(vocabulary)
    end: tuple[int, ...] = ()
    if isinstance(tokenizer.decoder, decoders.BPEDecoder):
        # The last token of a text loses the space of its suffix; a token without suffix goes behind it.
        end = (next(i for i, d in enumerate(vocabulary.token_bytes) if d.isalpha() and d.isascii()),)
    asked = check_every_token(vocabulary, decode_with(tokenizer), anchor=anchor, end=end)
    assert asked == vocabulary.size - len(vocabulary.special) > 60


def test_every_token_of_a_real_model_agrees_with_decode(
    smollm2_tokenizer: Any, check_every_token: Check, utf8_parts: Callable[[Iterable[bytes]], int]
) -> None:
    vocabulary = read(smollm2_tokenizer)
    decode = decode_with(smollm2_tokenizer.backend_tokenizer)
    assert check_every_token(vocabulary, decode, anchor=letter(vocabulary)) == 49_152 - 17
    assert utf8_parts(vocabulary.token_bytes) > 300


@pytest.mark.parametrize("version", ["tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"])
@pytest.mark.long
def test_a_converted_sentencepiece_model_has_the_table_of_the_original(
    version: str, mistral_data: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    spm = pytest.importorskip("sentencepiece", reason="needs the sentencepiece library")
    path = tmp_path / "tokenizer.model"
    path.write_bytes((mistral_data / version).read_bytes())
    converted = read(transformers.LlamaTokenizer.from_pretrained(str(tmp_path)))
    original = SentencePieceReader().vocabulary(spm.SentencePieceProcessor(model_file=str(path)))
    assert original is not None
    # The conversion makes special tokens of user-defined pieces, which SentencePiece writes out as text.
    assert original.special <= converted.special
    text = [i for i in range(original.size) if i not in converted.special]
    assert len(text) > 31_000
    assert [converted.token_bytes[i] for i in text] == [original.token_bytes[i] for i in text]
    assert converted.eos == original.eos
    assert converted.size == original.size


# ---- random text


@given(text=st.text())
def test_encoded_text_is_written_as_the_tokenizer_writes_it(tokenizer: Any, vocabulary: Vocabulary, text: str) -> None:
    ids = [i for i in tokenizer.encode(text, add_special_tokens=False).ids if i not in vocabulary.special]
    own = tokenizer.decode(ids, skip_special_tokens=False)
    assert vocabulary.decode(ids).strip(" ") == own.strip(" ")


@given(data=st.data())
def test_random_tokens_are_written_as_the_tokenizer_writes_them(
    tokenizer: Any, vocabulary: Vocabulary, data: st.DataObject
) -> None:
    text = [i for i in range(vocabulary.size) if i not in vocabulary.special]
    if any(len(b) == 1 and b >= b"\x80" for b in vocabulary.token_bytes) and "ByteLevel" not in str(tokenizer.decoder):
        # Broken UTF-8 has as many substitutes as bytes in byte fallback, not as many as Python writes.
        text = [i for i in text if vocabulary.token_bytes[i].isascii()]
    ids = [letter(vocabulary), *data.draw(st.lists(st.sampled_from(text))), letter(vocabulary)]
    own = tokenizer.decode(ids, skip_special_tokens=False)
    assert vocabulary.decode(ids).strip(" ") == own.strip(" ")


@given(text=st.text())
def test_byte_level_text_comes_back(smollm2_tokenizer: Any, smollm2_vocabulary: Vocabulary, text: str) -> None:
    ids = smollm2_tokenizer.encode(text, add_special_tokens=False)
    assert smollm2_vocabulary.decode(ids) == smollm2_tokenizer.decode(ids)
    if all(bytes([byte]) in smollm2_vocabulary.token_bytes for byte in text.encode()):
        # This tokenizer has no token for some bytes of rare scripts and leaves them out when it encodes.
        assert smollm2_vocabulary.decode(ids) == text


@pytest.fixture(scope="module")
def smollm2_vocabulary(smollm2_tokenizer: Any) -> Vocabulary:
    return read(smollm2_tokenizer)


# ---- added tokens, holes, duplicates


def test_a_leading_space_belongs_to_the_token(corpus: list[str]) -> None:
    tokenizer: Any = metaspace_bpe(corpus, "always")
    the = tokenizer.token_to_id("▁and")
    assert read(tokenizer).token_bytes[the] == b" and"
    assert tokenizer.decode([the]) == "and"


def test_special_added_tokens_write_nothing_and_others_their_text(corpus: list[str]) -> None:
    tokenizer = byte_level(corpus)
    size = tokenizer.get_vocab_size()
    tokenizer.add_special_tokens([AddedToken("<|tool|>")])
    tokenizer.add_tokens([AddedToken("<think>"), AddedToken(" two words"), AddedToken("日本語")])
    vocabulary = read(tokenizer)
    assert vocabulary.token_bytes[size:] == (b"", b"<think>", b" two words", "日本語".encode())
    assert size in vocabulary.special
    assert vocabulary.describe(size) == "<|tool|>"
    assert not {size + 1, size + 2, size + 3} & vocabulary.special
    for i in range(size + 1, size + 4):
        assert tokenizer.decode([i]) == vocabulary.decode([i])


def test_ids_without_token_are_special(check_every_token: Check) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 7, "<unk>": 3}, unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    vocabulary = read(tokenizer)
    assert vocabulary.token_bytes == (b"a", b"", b"", b"", b"", b"", b"", b"b")
    assert vocabulary.special == {1, 2, 3, 4, 5, 6}
    assert vocabulary.special_text == {3: "<unk>"}
    assert check_every_token(vocabulary, decode_with(tokenizer), anchor=0) == 2


def test_two_ids_may_write_the_same_bytes() -> None:
    tokenizer = Tokenizer(models.BPE({"<0x41>": 0, "A": 1, "▁": 2, " ": 3}, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(LLAMA)
    assert read(tokenizer).token_bytes == (b"A", b"A", b" ", b" ")


def test_two_texts_with_one_id_are_read_as_decode_reads_them() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 1}, unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    assert read(tokenizer).token_bytes == (b"a", tokenizer.decode([1]).encode())


@pytest.mark.parametrize("named", [True, False])
def test_unknown_tokens_are_special(named: bool) -> None:
    model: Any
    if named:
        model = models.BPE({"?": 0, "a": 1}, [], unk_token="?")
    else:
        model = models.Unigram([("a", -1.0), ("?", 0.0)], unk_id=1, byte_fallback=False)
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.Fuse()
    assert read(tokenizer).special == {0 if named else 1}


# ---- which ids end a sequence


def fast(tokenizer: Any, **options: Any) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)


def saved(folder: Path, tokenizer: Any, ends: object) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    fast(tokenizer, eos_token="<|end|>").save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return transformers.AutoTokenizer.from_pretrained(str(folder))


def test_the_end_token_of_the_tokenizer_is_eos(corpus: list[str]) -> None:
    tokenizer = byte_level(corpus)
    assert read(fast(tokenizer, eos_token="<|end|>")).eos == (tokenizer.token_to_id("<|end|>"),)
    assert read(fast(tokenizer)).eos == ()
    assert read(tokenizer).eos == ()


@pytest.mark.parametrize(("ends", "expected"), [(5, (0, 5)), ([7, 0, 5], (0, 7, 5)), (None, (0,)), ([9_999], (0,))])
def test_the_generation_config_adds_ends(
    ends: object, expected: tuple[int, ...], corpus: list[str], tmp_path: Path
) -> None:
    vocabulary = read(saved(tmp_path, byte_level(corpus), ends))
    assert vocabulary.eos == expected
    assert all(vocabulary.token_bytes[i] == b"" for i in expected)


def test_a_damaged_generation_config_is_an_error(corpus: list[str], tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, byte_level(corpus), 0)
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(VocabularyError, match=r"generation_config\.json could not be read"):
        HuggingFaceReader().vocabulary(tokenizer)


def test_the_generation_config_is_found_in_the_local_cache(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs huggingface_hub")
    model = tmp_path / "models--someone--model"
    snapshot = model / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0" * 40)
    (snapshot / "generation_config.json").write_text('{"eos_token_id": [0, 4]}')
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    tokenizer = fast(byte_level(corpus), eos_token="<|end|>")
    tokenizer.name_or_path = "someone/model"
    assert read(tokenizer).eos == (0, 4)
    tokenizer.name_or_path = "someone/other"
    assert read(tokenizer).eos == (0,)


# ---- what else holds a tokenizer


def test_the_transformers_tokenizer_has_the_table_of_what_it_runs_on(tokenizer: Any, vocabulary: Vocabulary) -> None:
    assert read(fast(tokenizer)).fingerprint == vocabulary.fingerprint


def test_ready_made_tokenizers_of_the_library_are_read(corpus: list[str]) -> None:
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(corpus, vocab_size=400, show_progress=False)
    assert read(tokenizer).size == tokenizer.get_vocab_size()


def test_other_objects_of_the_library_are_not_tokenizers() -> None:
    assert HuggingFaceReader().vocabulary(models.BPE()) is None
    assert HuggingFaceReader().vocabulary(decoders.ByteLevel()) is None


def on_sentencepiece(folder: Path, corpus: list[str], **options: Any) -> Any:
    """A transformers tokenizer that runs on a SentencePiece model trained for it."""
    spm = pytest.importorskip("sentencepiece", reason="needs the sentencepiece library")
    generation = pytest.importorskip("transformers.models.bert_generation", reason="needs transformers")
    path = folder / "tokenizer.model"
    with path.open("wb") as file:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus),
            model_writer=file,
            vocab_size=400,
            minloglevel=2,
            hard_vocab_limit=False,
            **options,
        )
    return generation.BertGenerationTokenizer(str(path), pad_token="<unk>")


def test_a_tokenizer_on_a_sentencepiece_model_is_read_with_its_added_tokens(
    corpus: list[str], tmp_path: Path, check_every_token: Check
) -> None:
    tokenizer = on_sentencepiece(tmp_path, corpus)
    size = len(tokenizer)
    tokenizer.add_tokens(["<think>", AddedToken("<|tool|>", special=True)])
    vocabulary = read(tokenizer)
    assert vocabulary.token_bytes[size:] == (b"<think>", b"")
    assert vocabulary.describe(size + 1) == "<|tool|>"
    assert vocabulary.eos == (2,)
    anchor = letter(vocabulary)
    # transformers strips the end of such a text, so a word goes behind each token.
    asked = check_every_token(vocabulary, decode_with(tokenizer), anchor=anchor, end=(anchor,))
    assert asked == vocabulary.size - len(vocabulary.special) > 80


def test_byte_pieces_that_transformers_writes_out_are_refused(corpus: list[str], tmp_path: Path) -> None:
    tokenizer = on_sentencepiece(tmp_path, corpus, byte_fallback=True)
    assert tokenizer.decode([tokenizer.convert_tokens_to_ids("<0x41>")]) == "<0x41>"
    with pytest.raises(VocabularyError, match="not the concatenation of its tokens"):
        HuggingFaceReader().vocabulary(tokenizer)


# ---- what has no exact bytes


class Shouting:
    def decode_chain(self, tokens: list[str]) -> list[str]:
        return [token.upper() for token in tokens]


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (decoders.CTC(), "stage CTC"),
        (decoders.Replace(Regex("a+"), "b"), "stage Replace"),
        (
            decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", "c")]),
            "Replace after the tokens are joined",
        ),
        (decoders.Sequence([decoders.ByteFallback(), decoders.WordPiece()]), "WordPiece after byte fallback"),
        (decoders.Decoder.custom(Shouting()), "cannot be described"),
    ],
    ids=["ctc", "pattern", "joined", "bytes then words", "python"],
)
def test_decoders_that_look_at_several_tokens_are_refused(decoder: Any, message: str) -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "<0x0A>": 2}, []))
    tokenizer.decoder = decoder
    with pytest.raises(VocabularyError, match=message):
        HuggingFaceReader().vocabulary(tokenizer)


def test_stripping_single_tokens_is_exact() -> None:
    tokenizer = Tokenizer(models.BPE({"_a_": 0, "__b__": 1, "_": 2}, []))
    tokenizer.decoder = decoders.Strip("_", 1, 2)
    assert read(tokenizer).token_bytes == (b"a", b"_b", b"")


def test_cleaning_up_spaces_across_tokens_is_refused(corpus: list[str]) -> None:
    tokenizer = fast(word_piece(corpus, True), clean_up_tokenization_spaces=True)
    with pytest.raises(VocabularyError, match="clean_up_tokenization_spaces = False"):
        HuggingFaceReader().vocabulary(tokenizer)
    tokenizer.clean_up_tokenization_spaces = False
    assert read(tokenizer).size == len(tokenizer)


def test_cleaning_up_that_transformers_ignores_is_ignored(corpus: list[str]) -> None:
    tokenizer = fast(byte_level(corpus), clean_up_tokenization_spaces=True)
    assert read(tokenizer).size == len(tokenizer)


def test_a_decode_that_rewrites_the_text_is_refused(corpus: list[str]) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")

    class Shouter(transformers.PreTrainedTokenizerFast):  # type: ignore[misc, name-defined]
        def decode(self, *args: Any, **options: Any) -> str:
            return str(super().decode(*args, **options)).upper()

    with pytest.raises(VocabularyError, match="not the concatenation of its tokens"):
        HuggingFaceReader().vocabulary(Shouter(tokenizer_object=byte_level(corpus)))


def test_a_tokenizer_in_python_is_refused() -> None:
    byt5 = pytest.importorskip("transformers.models.byt5", reason="needs transformers")
    with pytest.raises(VocabularyError, match="runs on Python code"):
        HuggingFaceReader().vocabulary(byt5.ByT5Tokenizer())


# ---- reading once


def renamed_end(tokenizer: Any) -> None:
    tokenizer.eos_token = "<unused>"


def another_decoder(tokenizer: Any) -> None:
    tokenizer.backend_tokenizer.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda tokenizer: tokenizer.add_tokens(["<a new word>"]),
        lambda tokenizer: tokenizer.add_special_tokens({"additional_special_tokens": ["the"]}),
        renamed_end,
        another_decoder,
    ],
    ids=["a token", "a special token", "the end", "the decoder"],
)
def test_a_tokenizer_is_read_once_and_again_after_each_change(change: Callable[[Any], Any], corpus: list[str]) -> None:
    from logitloom import read_vocabulary

    tokenizer = fast(byte_level(corpus), eos_token="<|end|>")
    tokenizer.add_tokens(["<unused>"])
    before = read_vocabulary(tokenizer)
    assert read_vocabulary(tokenizer) is before
    change(tokenizer)
    after = read_vocabulary(tokenizer)
    assert after.fingerprint == read(tokenizer).fingerprint != before.fingerprint


def test_tokenizers_of_mlx_lm_have_the_table_of_what_they_wrap_and_ends_of_their_own(corpus: list[str]) -> None:
    wrapper = pytest.importorskip("mlx_lm.tokenizer_utils", reason="needs mlx-lm").TokenizerWrapper
    from logitloom import read_vocabulary

    inner = fast(byte_level(corpus), eos_token="<|end|>")
    inner.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    tokenizer, plain = wrapper(inner), read(inner)
    vocabulary = read_vocabulary(tokenizer)
    assert (vocabulary.token_bytes, vocabulary.eos) == (plain.token_bytes, plain.eos)
    assert read_vocabulary(tokenizer) is vocabulary
    tokenizer.add_eos_token("<|turn|>")
    assert read_vocabulary(tokenizer).eos == (*plain.eos, inner.convert_tokens_to_ids("<|turn|>"))
