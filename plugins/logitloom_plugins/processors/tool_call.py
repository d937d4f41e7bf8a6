"""Tool calls: free text in which calls of declared tools have valid arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from logitloom import option
from logitloom.errors import OptionError
from logitloom_plugins.combinators import Combinator, Exit, Inner, Section
from logitloom_plugins.tool_call.formats import FORMATS, Format
from logitloom_plugins.tool_call.tools import Tool, call_schema, chosen, tools_of

__all__ = ["ToolCall"]

#: As chat templates write it: one text per value, so that names and braces are forced.
_JSON: dict[str, Any] = {"whitespace": "one_space", "escapes": "minimal", "additional_properties": False}


@dataclass(frozen=True)
class ToolCall(Combinator):
    """Free text until a call begins; then the name of a tool and arguments that satisfy its JSON Schema.

    Formats are those of the common chat templates: ``hermes`` (also Qwen), ``llama`` (an object after a tag, or as the
    whole message), ``llama_tags`` (``<function=name>``), ``mistral`` (an array), and ``custom``, given by ``begin`` and
    ``end``. A call that was begun is completed before the text may end.

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

    tools: Any = option(help="The tools: a list of functions with name and parameters (a JSON Schema).")
    format: str = option("hermes", help="How calls are written.", choices=(*FORMATS, "custom"))
    choice: Any = option("auto", help="Whether there must be a call: 'auto', 'required', or the name of a tool.")
    parallel: bool = option(True, help="Whether there may be several calls.")
    begin: str | None = option(None, help="What begins a call, instead of the format's; {name} stands for the tool.")
    end: str | None = option(None, help="What ends a call, instead of the format's; empty: the text ends with it.")
    lead: str | None = option(None, help="What stands between the beginning and the value, instead of the format's.")
    name_key: str | None = option(None, help="The member that holds the name, instead of the format's.")
    arguments_key: str | None = option(None, help="The member that holds the arguments, instead of the format's.")
    json: dict[str, Any] = option({}, help="Options of the processor json, instead of the template's style.")

    @property
    def name(self) -> str:
        """The name of the processor, for messages."""
        return "tool_call"

    @property
    def form(self) -> Format:
        """The format, with what the options change in it.

        Raises:
            OptionError: if a beginning is missing.
        """
        names = ("begin", "end", "lead", "name_key", "arguments_key")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.format == "custom" and not given.get("begin"):
            raise OptionError("The format 'custom' of 'tool_call' needs the option 'begin': what a call begins with.")
        if given.get("begin") == "":
            raise OptionError("Option 'begin' of 'tool_call' is empty, so a call could begin anywhere. Give a text.")
        return replace(FORMATS[self.format], **given) if self.format in FORMATS else Format(**given)

    def sections(self) -> Sequence[Section]:
        """Free text, per kind of call its lead and its value, what comes after a call, and the end."""
        form = self.form
        tools, must = chosen(tools_of(self.tools), self.choice)
        kinds = [[tool] for tool in tools] if form.by_name else [tools]
        head, _, tail = form.begin.partition("{name}") if form.by_name else (form.begin, "", "")
        # A beginning that all tools share is waited for; after it only their names can come.
        named = form.by_name and bool(head)
        first = 2 + named
        lead = int(form.lead != "")
        body = [first + 1 + 2 * i for i in range(len(kinds))]
        names = tuple(Exit(kind[0].name + tail, body[i] - lead) for i, kind in enumerate(kinds))
        begins = (Exit(head, 2),) if named else names if form.by_name else (Exit(head, body[0] - lead),)
        plain = (Exit(form.plain, first + 2 * len(kinds), at_start=True),) if form.plain else ()
        sections = [
            Section(exits=begins + plain, budget=0 if must else None),
            # After a call: more of them, or the end.
            Section(exits=begins) if self.parallel and form.end else Section(ends=True),
        ]
        if named:
            sections.append(Section(exits=names, budget=0))
        for i, kind in enumerate(kinds):
            before = Section(exits=(Exit(form.lead, body[i]),), budget=0) if lead else Section(ends=True)
            sections += [before, self._value(form, kind, body[i])]
        if form.plain:
            sections.append(self._value(form, tools, body[0], form.plain))
        return sections

    def _value(self, form: Format, tools: Sequence[Tool], again: int, written: str = "") -> Section:
        schema = call_schema(tools, form, parallel=self.parallel)
        options = {**_JSON, **self.json, "schema": schema}
        inner = Inner(("json", options), self.name, written=written)
        if form.end:
            return Section(inner, exits=(Exit(form.end, 1),), may_end=False)
        if form.separator and self.parallel:
            return Section(inner, exits=(Exit(form.separator, again),))
        return Section(inner)
