"""The tokenizer and the chat template in a GGUF file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from logitloom import Vocabulary, read_vocabulary
from logitloom.errors import ModelError, VocabularyError
from logitloom_contrib.llama.gguf_file import GGUFFile, file_vocabulary

__all__ = ["LlamaTokenizer"]

_CONTROL, _USER_DEFINED = 3, 4

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_MESSAGE = "{'role': 'user', 'content': 'text'}"
_NO_MESSAGES = f"A chat template was asked for no messages; give at least one, {_MESSAGE}."


class LlamaTokenizer:
    """Byte-level BPE built from the metadata of a GGUF file.

    Args:
        tokens: texts of the tokens in the byte alphabet, by id.
        kinds: GGUF token types, by id.
        merges: merge rules, two pieces separated by a space, most important first.
        pre_tokenizer: GGUF's name of how text is cut before merging.
        chat_template: Jinja source, or None.
        bos: id that begins a text, or None.
        eos: id that ends a text, or None.
        add_bos: whether texts begin with ``bos``.
        name: the tokenizer's source, for messages.
        path: of the GGUF file, from which the vocabulary is read; None for a tokenizer of other origin.

    Raises:
        ModelError: if the pre-tokenizer is not known, or the package tokenizers is not installed.

    References:
        Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", 2016;
        Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (the byte alphabet).
    """

    def __init__(
        self,
        tokens: Sequence[str],
        kinds: Sequence[int],
        merges: Sequence[str],
        pre_tokenizer: str,
        *,
        chat_template: str | None = None,
        bos: int | None = None,
        eos: int | None = None,
        add_bos: bool = False,
        name: str = "tokenizer",
        path: str | None = None,
    ) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise ModelError(
                "Building the tokenizer of a GGUF file needs the package tokenizers. Install it: "
                "pip install 'logitloom[demo]'."
            ) from error
        self._library = tokenizers
        self._tokens, self._merges, self._pre_tokenizer, self._name = tokens, merges, pre_tokenizer, name
        self._added = [(i, kind) for i, kind in enumerate(kinds) if kind in (_CONTROL, _USER_DEFINED)]
        self.path = path
        self.chat_template, self.bos, self.eos, self.add_bos = chat_template, bos, eos, add_bos
        self.tokenizer: Any = self._build(with_special=True)

    @classmethod
    def from_gguf(cls, file: GGUFFile | str | os.PathLike[str]) -> LlamaTokenizer:
        """The tokenizer of a GGUF file.

        Raises:
            ModelError: if the file's tokenizer is not byte-level BPE, or incomplete.
        """
        file = file if isinstance(file, GGUFFile) else GGUFFile(file)
        fields = {key.removeprefix("tokenizer."): value for key, value in file.metadata.items()}
        model = fields.get("ggml.model")
        if model != "gpt2":
            raise ModelError(
                f"The tokenizer in {file.path!r} is of the kind {model!r}; only byte-level BPE ('gpt2') can be built "
                f"from a GGUF file. Give token ids made by the model's own tokenizer."
            )
        absent = [key for key in ("ggml.tokens", "ggml.token_type", "ggml.merges") if not fields.get(key)]
        if absent:
            raise ModelError(f"The model file {file.path!r} lacks the metadata 'tokenizer.{absent[0]}'.")
        return cls(
            fields["ggml.tokens"],
            fields["ggml.token_type"],
            fields["ggml.merges"],
            fields.get("ggml.pre", "default"),
            chat_template=fields.get("chat_template"),
            bos=fields.get("ggml.bos_token_id"),
            eos=fields.get("ggml.eos_token_id"),
            add_bos=bool(fields.get("ggml.add_bos_token", False)),
            name=file.path,
            path=file.path,
        )

    def __repr__(self) -> str:
        return f"LlamaTokenizer({self._name!r}, {len(self._tokens)} tokens)"

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The bytes of the tokens, and the ids that end a text."""
        if self.path is not None:
            return file_vocabulary(self.path)
        ends = () if self.eos is None else (self.eos,)
        return read_vocabulary(self.tokenizer).with_eos(ends)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of a text.

        Args:
            text: any text.
            special: read ``<|im_end|>`` and the like as the special token of that name, and begin with ``bos`` if the
                model was trained with it. False takes every character literally, as is right for what a user typed.

        Raises:
            VocabularyError: if the text is no string, or has lone surrogates.
        """
        try:
            encoder = self.tokenizer if special else self._literal
            ids: list[int] = encoder.encode(text, add_special_tokens=False).ids
        except TypeError:
            raise VocabularyError(
                f"A tokenizer encodes a text of whole characters, but this is {text!r:.100}."
            ) from None
        if not special:
            return ids
        if self.add_bos and self.bos is not None and ids[:1] != [self.bos]:
            ids = [self.bos, *ids]
        return ids

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of ids; special tokens are written only if ``special``. Incomplete UTF-8 becomes U+FFFD.

        Raises:
            VocabularyError: if an id is no number from 0 to 2**32 - 1.
        """
        try:
            text: str = self.tokenizer.decode([int(i) for i in ids], skip_special_tokens=not special)
        except (TypeError, ValueError, OverflowError):
            raise VocabularyError(f"A tokenizer decodes a list of token ids, but this is {ids!r:.100}.") from None
        return text

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True) -> str:
        """The text of a conversation, as the model was trained to read it; encode it with ``special=True``.

        The file's own template is rendered by Jinja where that is installed. Without Jinja, a template that
        is plain ChatML is written out directly.

        Args:
            messages: ``{"role": "system" | "user" | "assistant", "content": text}`` each, at least one.
            add_generation_prompt: end with the beginning of the assistant's answer.

        Raises:
            ModelError: if there are no messages, or the template cannot be rendered.
        """
        if not messages:
            raise ModelError(_NO_MESSAGES)
        if isinstance(messages, (str, Mapping)) or not all(isinstance(message, Mapping) for message in messages):
            raise ModelError(
                f"A chat template takes a list of messages, {_MESSAGE} each, but this is {messages!r:.100}."
            )
        if self.chat_template is None:
            raise ModelError(f"The tokenizer of {self._name!r} has no chat template; give the prompt as plain text.")
        try:
            return self._rendered(messages, self.chat_template, add_generation_prompt)
        except ModelError:
            raise
        except Exception as error:  # a template is a program, and takes messages of any form for what it knows
            raise ModelError(
                f"The chat template of {self._name!r} could not be rendered for these messages: {error}. Give a list "
                f"of messages, {_MESSAGE} each, in an order that the template takes."
            ) from error

    def _rendered(self, messages: Sequence[Mapping[str, str]], template: str, add_generation_prompt: bool) -> str:
        try:
            from jinja2 import TemplateError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            return _chatml(messages, template, add_generation_prompt, self._name)

        def refuse(message: str) -> str:
            raise TemplateError(message)

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        text: str = environment.from_string(template).render(
            messages=messages,
            add_generation_prompt=add_generation_prompt,
            bos_token=self._text_of(self.bos),
            eos_token=self._text_of(self.eos),
        )
        return text

    def _text_of(self, token: int | None) -> str:
        return "" if token is None else self._tokens[token]

    @cached_property
    def _literal(self) -> Any:
        return self._build(with_special=False)

    def _build(self, with_special: bool) -> Any:
        lib = self._library
        try:
            model = lib.models.BPE(
                vocab={text: i for i, text in enumerate(self._tokens)},
                merges=[tuple(merge.split(" ")) for merge in self._merges],
                # Llama 3 encodes a word that is a token as this token, even if no sequence of merges produces it.
                ignore_merges=self._pre_tokenizer == "llama-bpe",
            )
        except Exception as error:  # the library has no class of its own
            raise ModelError(
                f"The tokens and merges of {self._name!r} do not fit together: {str(error).splitlines()[0]}. Convert "
                f"the model's file again."
            ) from error
        tokenizer = lib.Tokenizer(model)
        tokenizer.pre_tokenizer = self._cutter()
        tokenizer.decoder = lib.decoders.ByteLevel()
        if with_special:
            tokenizer.add_tokens(
                [lib.AddedToken(self._tokens[i], special=kind == _CONTROL, normalized=False) for i, kind in self._added]
            )
        return tokenizer

    def _cutter(self) -> Any:
        pre = self._library.pre_tokenizers
        words = pre.ByteLevel(add_prefix_space=False, use_regex=True)
        if self._pre_tokenizer in ("gpt-2", "default"):
            return words
        if self._pre_tokenizer in ("smollm", "starcoder", "refact", "command-r"):
            return pre.Sequence([pre.Digits(individual_digits=True), words])
        if self._pre_tokenizer == "llama-bpe":
            cut = pre.Split(self._library.Regex(_LLAMA3_WORDS), behavior="isolated")
            return pre.Sequence([cut, pre.ByteLevel(add_prefix_space=False, use_regex=False)])
        raise ModelError(
            f"The tokenizer of {self._name!r} cuts text by {self._pre_tokenizer!r}; known are smollm, starcoder, "
            f"refact, command-r, llama-bpe and gpt-2. Give token ids made by the model's own tokenizer."
        )


def _chatml(messages: Sequence[Mapping[str, str]], template: str, add_generation_prompt: bool, name: str) -> str:
    """ChatML, with the system message that the template itself puts before a conversation without one."""
    if "<|im_start|>" not in template:
        raise ModelError(f"The chat template of {name!r} is not ChatML, so it needs Jinja. pip install jinja2.")
    usual = re.search(r"<\|im_start\|>system\n([^{}]*?)<\|im_end\|>", template)
    turns = [(message["role"], message["content"]) for message in messages]
    if usual and turns[0][0] != "system":
        turns.insert(0, ("system", usual[1]))
    # Concatenation takes texts alone.
    text = "".join("<|im_start|>" + role + "\n" + content + "<|im_end|>\n" for role, content in turns)
    return text + ("<|im_start|>assistant\n" if add_generation_prompt else "")
