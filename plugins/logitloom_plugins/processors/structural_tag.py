"""Structural tags: text whose parts follow formats, as xgrammar and vLLM take them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logitloom import option
from logitloom.errors import OptionError
from logitloom_plugins.combinators import Combinator, Section
from logitloom_plugins.schema_sources.sources import is_plain
from logitloom_plugins.tool_formats.structural_tags import format_of, sections_of
from logitloom_plugins.tool_formats.value_style import check_style

__all__ = ["StructuralTag"]


@dataclass(frozen=True)
class StructuralTag(Combinator):
    """Text whose parts follow formats: tags with JSON inside that begin at triggers in free text, sequences, choices.

    The formats are those of xgrammar, except the formats that name tokens or write parameters as XML. Objects have no
    members beside their ``properties``, unless the schema says otherwise. Free text between triggers ends with the
    first occurrence of a string that may follow it, and free text in a tag contains none of the strings that end the
    tag. Patterns are those of the processor ``regex``, whose classes (``\\d``, ``\\w``, ``\\s``) have ASCII characters.

    Example:
        >>> import numpy as np
        >>> from logitloom import Context, Vocabulary, processors
        >>> words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
        >>> tag = {"begin": "<now>", "content": {"type": "const_string", "value": "12:00"}, "end": "</now>"}
        >>> form = {"type": "triggered_tags", "triggers": ["<now"], "tags": [tag], "at_least_one": True}
        >>> tag = {"type": "structural_tag", "format": form}
        >>> chain = processors.load(("structural_tag", {"tag": tag}), tokenizer=words)
        >>> context = Context.start(np.zeros((1, 257), dtype=np.float32), vocabulary=words)
        >>> words.decode(chain.forced_tokens(chain.init_state(context), context)[0])
        '<now>12:00</now>'

    References:
        xgrammar 0.2.8, ``xgrammar.structural_tag``; vLLM, structured outputs.
    """

    forces_longest = True

    tag: Any = option(help="A table {'type': 'structural_tag', 'format': {...}}, its older form, or JSON text.")
    json: dict[str, Any] = option({}, help="Options of the processor json for JSON values.")

    @property
    def name(self) -> str:
        """The name of the processor, for messages."""
        return "structural_tag"

    @staticmethod
    def plain_option(name: str, value: Any) -> Any:
        """For documents of chains: a tag that contains ``None`` is written as its JSON text."""
        return value if name != "tag" or is_plain(value) else json.dumps(value)

    def sections(self) -> Sequence[Section]:
        """The sections of the text."""
        given = self.tag
        if isinstance(given, str):
            try:
                given = json.loads(given)
            except (ValueError, RecursionError) as error:
                raise OptionError(f"The text given as option 'tag' of 'structural_tag' is no JSON: {error}.") from error
        check_style(self.json, self.name)
        return sections_of(format_of(given), self.json)
