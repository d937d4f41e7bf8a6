"""A tokenizer of any library encodes prompts and gives text, wherever one is taken."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary, load_backend, processors, read_vocabulary
from logitloom.errors import GenerationError, VocabularyError
from logitloom.generation import Generator, Multinomial, SequenceState
from logitloom.host import registry
from logitloom.host.text_encoder import text_encoder
from logitloom.testing import ToyModel

LETTERS = [chr(97 + i) for i in range(16)]


class Letters:
    """One id per letter, with the bytes of its tokens beside it."""

    vocabulary = Vocabulary([*(letter.encode() for letter in LETTERS), b""], eos=[16])

    def encode(self, text: str) -> list[int]:
        return [LETTERS.index(letter) for letter in text]


def test_an_object_with_a_vocabulary_beside_it_is_taken_for_a_tokenizer() -> None:
    chain = processors.load(("regex", {"pattern": "[a-c]{3}"}), tokenizer=Letters())
    assert chain.vocabulary is Letters.vocabulary


@pytest.mark.parametrize("in_chain", [False, True])
def test_a_generator_with_a_tokenizer_always_gives_text(in_chain: bool) -> None:
    chain = processors.load(("regex", {"pattern": "[a-c]{3}"}))
    chain = chain.configure(tokenizer=Letters()) if in_chain else chain
    generator = Generator(ToyModel(load_backend("numpy")), chain, tokenizer=Letters(), max_tokens=8)
    (found,) = generator("abc")
    assert found.text == Letters.vocabulary.decode(found.tokens)
    assert len(found.text) == 3
    assert "".join(piece.text for piece in generator.stream("abc")) == found.text
    assert pickle.loads(pickle.dumps(generator))("abc") == [found]


def test_a_generator_takes_a_tokenizer_for_its_vocabulary_and_says_that_a_vocabulary_cannot_encode() -> None:
    model = ToyModel(load_backend("numpy"))
    (found,) = Generator(model, vocabulary=Letters(), max_tokens=3)([[1, 2]])
    assert found.text == Letters.vocabulary.decode(found.tokens)
    generator = Generator(model, tokenizer=Letters.vocabulary, max_tokens=3)
    assert generator([[1, 2]]) == [found]
    with pytest.raises(VocabularyError, match="but not the rules by which a tokenizer cuts a text"):
        generator("ab")


class Failing:
    def vocabulary(self, tokenizer: Any) -> None:
        return None

    def encode_text(self, tokenizer: Any, text: str) -> Any:
        return tokenizer.no_such_thing


def test_a_reader_that_fails_on_a_tokenizer_is_named() -> None:
    registry.register("failing", Failing, kind="tokenizers")
    try:
        with pytest.raises(AttributeError) as caught:
            text_encoder(Letters())
    finally:
        registry.unregister("failing", kind="tokenizers")
    assert caught.value.__notes__ == ["Raised by encode_text of the tokenizer reader 'failing'."]


def test_objects_that_encode_nothing_are_told_in_a_sentence() -> None:
    with pytest.raises(VocabularyError, match="it has no method encode"):
        text_encoder(object())
    with pytest.raises(VocabularyError, match="encodes a text as 3, and not as a list of ids"):
        text_encoder(type("Odd", (), {"encode": lambda self, text: 3})()).encode("a")
    with pytest.raises(VocabularyError, match=r"encodes a text as \[1.5\], and not as a list of ids"):
        text_encoder(type("Half", (), {"encode": lambda self, text: [1.5]})()).encode("a")
    with pytest.raises(VocabularyError, match=r"must be an object, but is the class Late\. Make one: Late\(\.\.\.\)"):
        text_encoder(type("Late", (), {"encode": lambda self, text: [1]}))


def test_a_name_that_is_no_path_is_refused_with_what_to_do() -> None:
    for use in (read_vocabulary, text_encoder):
        with pytest.raises(VocabularyError, match="'org/name'"):
            use("org/name")
    with pytest.raises(VocabularyError, match=r"Nothing is downloaded by name: give the path of a folder .*from_pretr"):
        processors.load("temperature", tokenizer="org/name")


def words() -> Any:
    """A byte-level tokenizer of the library tokenizers."""
    lib = pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    alphabet = sorted(lib.pre_tokenizers.ByteLevel.alphabet())
    table = {text: i for i, text in enumerate([*alphabet, "he", "<end>"])}
    tokenizer = lib.Tokenizer(lib.models.BPE(vocab=table, merges=[("h", "e")]))
    tokenizer.pre_tokenizer = lib.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = lib.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    return tokenizer


@pytest.mark.extras
def test_a_folder_with_a_tokenizer_is_read_and_encodes(tmp_path: Path) -> None:
    tokenizer = words()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<end>"}}))
    for path in (tmp_path, str(tmp_path), tmp_path / "tokenizer.json"):
        vocabulary = read_vocabulary(path)
        assert vocabulary.eos == (tokenizer.token_to_id("<end>"),)
        ids = text_encoder(path).encode("hehey<end>")
        assert ids == tokenizer.encode("hehey<end>").ids == text_encoder(tokenizer).encode("hehey<end>")
        assert vocabulary.decode(ids) == "hehey"
    state = SequenceState([()], np.zeros((1, 1)), tokenizer=tokenizer, vocabulary=read_vocabulary(tmp_path))
    assert list(state + "hey") == ["hey"]
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(VocabularyError, match="is no tokenizer"):
        read_vocabulary(tmp_path)


@pytest.mark.extras
def test_a_tokenizer_of_mistral_encodes_after_its_first_token() -> None:
    tekken = pytest.importorskip("mistral_common.tokens.tokenizers.tekken", reason="needs the package mistral-common")
    data = Path(tekken.__file__).parents[2] / "data"
    tokenizer = tekken.Tekkenizer.from_file(sorted(data.glob("tekken_*.json"))[0])
    encoder = text_encoder(tokenizer)
    assert encoder.encode("a cat") == tokenizer.encode("a cat", bos=True, eos=False)


def test_half_a_surrogate_pair_is_refused_before_a_tokenizer_sees_it() -> None:
    generator = Generator(ToyModel(load_backend("numpy")), tokenizer=Letters(), max_tokens=3)
    with pytest.raises(
        VocabularyError, match=r"The text 'ab\\ud800' holds half a surrogate pair at character 2.*whole"
    ):
        generator(["a", "ab\ud800"])


def test_a_class_in_place_of_its_object_is_told_to_be_called() -> None:
    with pytest.raises(GenerationError, match=r"'strategy' must be a Greedy or .* Make one: Multinomial\(\.\.\.\)\."):
        Generator(ToyModel(load_backend("numpy")), strategy=Multinomial)  # type: ignore[arg-type]
