"""Tool calls: free text in which calls of declared tools have valid arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from logitloom import Vocabulary, option
from logitloom.errors import OptionError, UnsupportedSchema
from logitloom.generation.partial_values import ValueReader
from logitloom.host.loading import making_parts
from logitloom_plugins.combinators import Combinator, Inner, Section
from logitloom_plugins.tool_formats.call_reader import CallMeaning, CallReader
from logitloom_plugins.tool_formats.call_sections import call_sections
from logitloom_plugins.tool_formats.tool_format import ToolFormat, find_format, tool_format
from logitloom_plugins.tool_formats.tools import chosen, plain_tools, tools_of
from logitloom_plugins.tool_formats.value_style import check_style

__all__ = ["ToolCall"]

#: Every byte is a token.
_BYTES: Final = Vocabulary([bytes([byte]) for byte in range(256)] + [b""], eos=[256], name="all bytes")
#: The JSON style of chat templates: one spelling per value, so that names and braces are forced tokens.
_JSON: dict[str, Any] = {"whitespace": "one_space", "escapes": "minimal", "additional_properties": False}
#: Options of ``json`` for strings, arrays, objects and integers.
_LAYOUT: Final = frozenset({"additional_properties", "escapes", "formats", "integers", "max_whitespace", "whitespace"})


@dataclass(frozen=True)
class ToolCall(Combinator):
    """Free text until a call begins; then the name of a tool and arguments that satisfy its JSON Schema.

    Formats are plug-ins of the group ``logitloom.tool_formats``: the formats of the common models, such as ``hermes``,
    ``llama``, ``mistral_v11``, ``qwen3_coder``, ``deepseek_v31``, ``kimi_k2``, ``glm45``, ``gpt_oss``, and the formats
    of other packages. A format is data; a table makes one for this chain. A call that was begun is completed before the
    text may end. Parameters that are written one by one come in the order of the schema, in some formats of their
    names.

    Example:
        >>> import numpy as np
        >>> from logitloom import Context, Vocabulary, processors
        >>> words = Vocabulary([b"", *[bytes([byte]) for byte in range(256)]], eos=[0])
        >>> tools = [{"type": "function", "function": {"name": "now"}}]
        >>> chain = processors.load(("tool_call", {"tools": tools, "choice": "required"}), tokenizer=words)
        >>> context = Context.start(np.zeros((1, 257), dtype=np.float32), vocabulary=words)
        >>> words.decode(chain.forced_tokens(chain.init_state(context), context)[0])
        '<tool_call>\\n{"name": "now", "arguments": {}}\\n</tool_call>'

    References:
        JSON Schema, draft 2020-12; https://json-schema.org/specification.
    """

    forces_longest = True

    tools: Any = option(
        help="The tools: a list, or JSON text, of tables with name and parameters (a JSON Schema), functions, classes."
    )
    format: Any = option("hermes", help="How calls are written: the name of a format, a table, or 'auto'.")
    choice: Any = option("auto", help="Whether there must be a call: 'auto', 'required', 'none', or a tool's name.")
    parallel: bool = option(True, help="Whether there may be several calls.")
    reasoning: str | None = option(None, help="What ends the reasoning, such as '</think>'; no calls before it.")
    chat_template: str | None = option(None, help="The chat template from which the format 'auto' is found.")
    json: dict[str, Any] = option(
        {}, help="Options of the processor json, instead of the template's style; for formats that write JSON."
    )

    @staticmethod
    def plain_option(name: str, value: Any) -> Any:
        """For documents of chains: tools that hold a class, a function or ``None`` are written as their JSON text."""
        return plain_tools(value) if name == "tools" else value

    @property
    def name(self) -> str:
        """The name of the processor, for messages."""
        return "tool_call"

    @property
    def form(self) -> ToolFormat:
        """The format.

        Raises:
            OptionError: if no format has this name, or no format is found for the chat template.
        """
        if self.format != "auto":
            return tool_format(self.format)
        if not self.chat_template:
            raise OptionError(
                "The format 'auto' of 'tool_call' needs the option 'chat_template': the chat template of the model, as "
                "tokenizer.chat_template has it."
            )
        return tool_format(find_format(self.chat_template))

    def sections(self) -> Sequence[Section]:
        """Free text, the beginning of a call, its name and arguments, and the text after the call."""
        with making_parts():
            try:
                return self._sections_and_meaning()[0]
            except UnsupportedSchema:
                self._check_each_tool()
                raise

    def value_reader(self) -> ValueReader | None:
        """A reader of the calls in the text so far; ``None`` if a grammar engine constrains their arguments."""
        automaton = self.constraint(_BYTES, _BYTES.size).automaton()
        if any(part.at_tokens for part in automaton.parts):
            return None
        return CallReader(automaton, self._sections_and_meaning()[1])

    def _check_each_tool(self) -> None:
        """Compile the parameters of each tool alone.

        Raises:
            UnsupportedSchema: naming the tool, and the place in the schema of its parameters.
        """
        for tool in chosen(tools_of(self.tools), self.choice).tools:
            try:
                Inner(("json", {**self._style, "schema": tool.parameters}), self.name)
            except UnsupportedSchema as error:
                error.args = (f"The parameters of the tool {tool.name!r:.60}: {error}",)
                raise

    @property
    def _style(self) -> dict[str, Any]:
        """The options of the processor ``json`` for values that are JSON."""
        return {**_JSON, **(self.form.json or {}), **self.json}

    def _sections_and_meaning(self) -> tuple[Sequence[Section], CallMeaning]:
        form = self.form
        check_style(self.json, self.name)
        layout = [name for name in self.json if name in _LAYOUT]
        if layout and not form.writes_json:
            raise OptionError(
                f"Option 'json' of 'tool_call' has {layout[0]!r}, but the format {self.format!r:.60} writes strings, "
                f"arrays and objects without JSON, so it would be ignored. Leave it out, or use a format that writes "
                f"JSON."
            )
        return call_sections(
            form,
            chosen(tools_of(self.tools), self.choice),
            parallel=self.parallel,
            reasoning=self.reasoning,
            style=self._style,
            owner=self.name,
        )
