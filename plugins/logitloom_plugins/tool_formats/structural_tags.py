"""Structural tags, as xgrammar and vLLM take them, as sections of a text.

A format is compiled with the strings that may come after it; each string leads to the section that begins after the
string. An empty string stands for a section that may begin at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from logitloom.automata.patterns.pattern import parse_pattern
from logitloom.errors import OptionError
from logitloom_plugins.combinators import Exit, Section, SharedInners

__all__ = ["format_of", "sections_of"]

#: Strings that may come next, with the number of the section that each begins.
_Next = list[tuple[str, int]]

#: By type of a format the required entries, and the optional entries.
_ENTRIES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "any_text": ((), ("excludes", "max_chars", "max_tokens")),
    "const_string": (("value",), ()),
    "dispatch": (("rules",), ("excludes", "loop")),
    "grammar": (("grammar",), ()),
    "json_schema": (("json_schema",), ("any_order", "excludes", "max_whitespace_cnt", "style")),
    "optional": (("content",), ()),
    "or": (("elements",), ()),
    "plus": (("content",), ()),
    "regex": (("pattern",), ()),
    "repeat": (("content", "max", "min"), ()),
    "sequence": (("elements",), ()),
    "star": (("content",), ()),
    "tag": (("begin", "content", "end"), ()),
    "tags_with_separator": (("separator", "tags"), ("at_least_one", "stop_after_first")),
    "triggered_tags": (("tags", "triggers"), ("at_least_one", "excludes", "stop_after_first")),
}
_TYPES: Final[dict[str, type]] = {
    "any_order": bool, "at_least_one": bool, "content": Mapping, "elements": Sequence, "excludes": Sequence,
    "grammar": str, "loop": bool, "max": int, "max_chars": int, "max_tokens": int, "min": int, "pattern": str,
    "rules": Sequence, "separator": str, "stop_after_first": bool, "tags": Sequence, "triggers": Sequence, "value": str,
}  # fmt: skip
#: Entries that may be ``None``, as if they were left out.
_LIMITS: Final = ("max_chars", "max_tokens")
_NAMED: Final = {bool: "true or false", int: "an integer", str: "a text", Mapping: "a table", Sequence: "a list"}
#: The section in which the text begins, and the section in which the text ends.
_START: Final = 0
_END: Final = 1
_MOST_SECTIONS: Final = 4096
#: A flag before patterns: classes (``\d``, ``\w``, ``\s``) have ASCII characters, as xgrammar's ``\d`` and ``\w`` have.
_ASCII: Final = "(?a)"


def format_of(given: Any) -> Mapping[str, Any]:
    """The format of a structural tag.

    Args:
        given: ``{"type": "structural_tag", "format": {...}}``, its older form ``{"type": "structural_tag",
            "structures": [{"begin", "schema", "end"}, ...], "triggers": [...]}``, or a format alone.

    Raises:
        OptionError: if the given value has none of these forms.

    Example:
        >>> old = {"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f"]}
        >>> format_of(old)["tags"]
        [{'begin': '<f>', 'content': {'type': 'json_schema', 'json_schema': {}}, 'end': '</f>'}]
    """
    if isinstance(given, Mapping) and isinstance(given.get("structures"), Sequence):
        tags = [_old_tag(one, f"structures/{i}") for i, one in enumerate(given["structures"])]
        return {"type": "triggered_tags", "triggers": given.get("triggers", ()), "tags": tags}
    found = given.get("format") if isinstance(given, Mapping) and given.get("type") == "structural_tag" else given
    if not isinstance(found, Mapping):
        raise OptionError(
            f"Option 'tag' of 'structural_tag' is {given!r:.200}. Give {{'type': 'structural_tag', 'format': "
            f"{{...}}}}, or {{'type': 'structural_tag', 'structures': [...], 'triggers': [...]}}."
        )
    return found


def _old_tag(given: Any, pointer: str) -> dict[str, Any]:
    if not isinstance(given, Mapping) or {"begin", "schema", "end"} - set(given):
        raise OptionError(f"{pointer} of a structural tag is {given!r:.100}. It needs 'begin', 'schema' and 'end'.")
    content = {"type": "json_schema", "json_schema": given["schema"]}
    return {"begin": given["begin"], "content": content, "end": given["end"]}


def sections_of(given: Mapping[str, Any], style: Mapping[str, Any]) -> Sequence[Section]:
    """The sections of a text in a format.

    Args:
        given: the format.
        style: options of the processor ``json`` for JSON values.

    Raises:
        OptionError: naming the pointer of the entry that is wrong, or that cannot be enforced.
    """
    made = _SectionBuilder(style)
    made.nodes[_START] = _OpenSection(made.compile(given, "format", [("", _END)], _TagEnd()), forced=True)
    return made.sections()


def _check_value(value: Any, entry: str, where: str) -> None:
    """Check the value of an entry of a format.

    Args:
        value: the value.
        entry: the name of the entry.
        where: the JSON pointer of the value.

    Raises:
        OptionError: if the value has another type, is empty or too small, or holds half a surrogate pair.
    """
    wanted, texts = _TYPES.get(entry, object), entry in ("excludes", "triggers")
    number_fits = isinstance(value, bool) == (wanted is bool) or wanted not in (bool, int)
    list_fits = wanted is not Sequence or (_texts(value) if texts else not isinstance(value, str))
    fits = isinstance(value, wanted) and number_fits and list_fits
    limit = entry in _LIMITS
    if limit and value is None:
        return
    if not fits or (limit and value < 0):
        what = "a list of texts" if texts else _NAMED[wanted] + (", at least 0" if limit else "")
        raise OptionError(f"{where} of a structural tag is {value!r:.100}. Give {what}.")
    if entry in ("elements", "rules", "tags") and not value:
        raise OptionError(f"{where} of a structural tag is empty. Give at least one entry.")
    if entry == "triggers" and "" in value:
        raise OptionError(
            f"{where} of a structural tag is {value!r:.100}, and an empty text is found before anything is written. "
            f"Leave it out."
        )
    _check_characters(value, where)


def _check_characters(value: Any, where: str) -> None:
    """Raise if a text, or one of a list of texts, cannot be written as UTF-8."""
    for text in [value] if isinstance(value, str) else value if _texts(value) else ():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise OptionError(
                f"{where} of a structural tag is {value!r:.100}, which holds half a surrogate pair. Give whole "
                f"characters."
            ) from None


def _texts(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(text, str) for text in value)


@dataclass(frozen=True)
class _OpenSection:
    """An unfinished section: the strings after the section may not be known yet.

    Attributes:
        next: the strings that may come after the section.
        inner: its processors; ``None`` for free text, and where a string is forced.
        forced: whether one of ``next`` must come at once.
        budget: the largest number of tokens.
        pointer: the JSON pointer of the section's format, for messages.
    """

    next: _Next
    inner: Any = None
    forced: bool = False
    budget: int | None = None
    pointer: str = ""


@dataclass(frozen=True)
class _TagEnd:
    """How a tag ends.

    Attributes:
        texts: the strings that end the tag; empty outside of tags, and if a tag may end with nothing.
        next: the strings that may come after the content: ``texts``, each perhaps with the text that must follow it.
    """

    texts: tuple[str, ...] = ()
    next: _Next = field(default_factory=list)

    def comes_next(self, after: _Next) -> bool:
        """Whether the strings that may come after a format are those that end the tag, and not longer ones."""
        return after == self.next and {string for string, _ in after} == set(self.texts)


class _SectionBuilder:
    def __init__(self, style: Mapping[str, Any]) -> None:
        self.style = style
        self.nodes: list[_OpenSection] = [_OpenSection([]), _OpenSection([])]
        self._inners = SharedInners("structural_tag")

    # --- formats ----------------------------------------------------------------------------------------------------

    def compile(self, given: Any, pointer: str, after: _Next, tag: _TagEnd) -> _Next:
        """The strings that begin a format.

        Args:
            given: the format.
            pointer: the JSON pointer of the format.
            after: the strings that may come after the format.
            tag: the end of the innermost tag, whose strings no free text in the tag contains.
        """
        kind = self._checked(given, pointer)
        if kind == "const_string":
            return self._before(given["value"], after)
        if kind == "regex":
            parse_pattern(given["pattern"], re.ASCII)  # errors quote the pattern as it was given
            return self._text(("regex", {"pattern": _ASCII + given["pattern"]}), after, pointer)
        if kind == "grammar":
            return self._text(("grammar", {"grammar": given["grammar"], "syntax": "gbnf"}), after, pointer)
        if kind == "json_schema":
            return self._text(("json", self._json(given, pointer)), after, pointer)
        if kind == "any_text":
            return self._any_text(given, pointer, after, tag)
        if kind == "tag":
            return self._tag(given, pointer, after)
        if kind in ("triggered_tags", "dispatch"):
            return (
                self._triggered(given, pointer, after, tag)
                if kind == "triggered_tags"
                else self._rules(given, pointer, after)
            )
        if kind == "tags_with_separator":
            return self._separated(given, pointer, after)
        if kind in ("sequence", "or"):
            parts = [(part, f"{pointer}/elements/{i}") for i, part in enumerate(given["elements"])]
            if kind == "or":
                return [pair for part, where in parts for pair in self.compile(part, where, after, tag)]
            for part, where in parts[::-1]:
                after = self.compile(part, where, after, tag)
            return after
        return self._repeated(given, kind, f"{pointer}/content", after, tag)

    def _checked(self, given: Any, pointer: str) -> str:
        """The type of a format whose entries are right."""
        kind = given.get("type") if isinstance(given, Mapping) else None
        if not isinstance(kind, str) or kind not in _ENTRIES:
            raise OptionError(
                f"{pointer} of a structural tag is {given!r:.100}. Supported are the types {', '.join(_ENTRIES)}; "
                f"write special tokens as their text, and parameters as XML with the processor 'tool_call'."
            )
        must, may = _ENTRIES[kind]
        for entry in (*must, *(entry for entry in given if entry not in (*must, "type"))):
            if entry not in given or entry not in (*must, *may):
                raise OptionError(
                    f"{pointer} of a structural tag, of the type {kind!r}, {'has' if entry in given else 'lacks'} the "
                    f"entry {entry!r}. It needs: {', '.join(must) or 'nothing'}; it may have: "
                    f"{', '.join(may) or 'nothing else'}."
                )
            _check_value(given[entry], entry, f"{pointer}/{entry}")
        return kind

    def _json(self, given: Mapping[str, Any], pointer: str) -> dict[str, Any]:
        for entry, only in (("style", "json"), ("any_order", False), ("excludes", [])):
            if given.get(entry, only) != only:
                raise OptionError(
                    f"{pointer}/{entry} of a structural tag is {given[entry]!r:.100}, which cannot be enforced. Leave "
                    f"it out" + ("; the processor 'tool_call' writes parameters as XML." if entry == "style" else ".")
                )
        most = given.get("max_whitespace_cnt")
        blanks = {} if most is None else {"whitespace": "flexible", "max_whitespace": most}
        return {"additional_properties": False, **blanks, **self.style, "schema": given["json_schema"]}

    def _any_text(self, given: Mapping[str, Any], pointer: str, after: _Next, tag: _TagEnd) -> _Next:
        excluded, most = [*given.get("excludes", ())], given.get("max_chars")
        free = tag.comes_next(after) or all(string == "" and section == _END for string, section in after)
        inner: list[Any] = []
        if most is not None or not free:
            count = "*" if most is None else f"{{0,{int(most)}}}"
            inner.append(("regex", {"pattern": rf"[\s\S]{count}"}))
            excluded += tag.texts
        if excluded:
            inner.append(("bad_words", {"phrases": tuple(excluded)}))
        return self._text(inner or None, after, pointer, given.get("max_tokens"))

    def _tag(self, given: Mapping[str, Any], pointer: str, after: _Next) -> _Next:
        begin, ends = given["begin"], given["end"]
        ends = [ends] if isinstance(ends, str) else ends
        if not isinstance(begin, str) or not _texts(ends) or not ends:
            raise OptionError(
                f"{pointer} of a structural tag begins with {begin!r:.60} and ends with {given['end']!r:.60}. Give "
                f"texts; a special token is written as its text."
            )
        following = [pair for end in ends for pair in self._before(end, after)]
        end = _TagEnd(tuple(ends) if all(ends) else (), following)
        return self._before(begin, self.compile(given["content"], f"{pointer}/content", following, end))

    def _tags(self, given: Mapping[str, Any], pointer: str, after: _Next) -> list[tuple[str, _Next]]:
        """The beginnings of tags, each with the strings that may come after it."""
        tags = []
        for i, tag in enumerate(given["tags"]):
            where = f"{pointer}/tags/{i}"
            whole = {"type": "tag", **tag} if isinstance(tag, Mapping) else tag
            if (kind := self._checked(whole, where)) != "tag":
                raise OptionError(
                    f"{where} of a structural tag is of the type {kind!r}. Give a format of the type 'tag'."
                )
            if not isinstance(whole["begin"], str):
                self._tag(whole, where, after)  # says what is wrong
            tags.append((whole["begin"], self._tag({**whole, "begin": ""}, where, after)))
        return tags

    def _triggered(self, given: Mapping[str, Any], pointer: str, after: _Next, tag: _TagEnd) -> _Next:
        free = self._reserve(pointer)
        tags = self._tags(given, pointer, after if given.get("stop_after_first") else [("", free)])
        triggers = given["triggers"]
        for i, (begin, _) in enumerate(tags):
            if sum(begin.startswith(trigger) for trigger in triggers) != 1:
                raise OptionError(
                    f"{pointer}/tags/{i}/begin of a structural tag is {begin!r:.60}, which begins with none or with "
                    f"several of the triggers {list(triggers)!r:.100}. Give one trigger for each tag."
                )
        rules = [
            (trigger, [pair for begin, rest in tags if begin.startswith(trigger)
                       for pair in self._before(begin[len(trigger) :], rest)])
            for trigger in triggers
        ]  # fmt: skip
        self._free(free, given, rules, after, pointer, () if tag.comes_next(after) else tag.texts)
        if not given.get("at_least_one"):
            return [("", free)]
        return [pair for begin, rest in tags for pair in self._before(begin, rest)]

    def _rules(self, given: Mapping[str, Any], pointer: str, after: _Next) -> _Next:
        free = self._reserve(pointer)
        following: _Next = [("", free)] if given.get("loop", True) else after
        rules = []
        for i, rule in enumerate(given["rules"]):
            if not isinstance(rule, Sequence) or len(rule) != 2 or not isinstance(rule[0], str) or not rule[0]:
                raise OptionError(f"{pointer}/rules/{i} of a structural tag is {rule!r:.100}. Give [text, format].")
            _check_characters(rule[0], f"{pointer}/rules/{i}")
            rules.append((rule[0], self.compile(rule[1], f"{pointer}/rules/{i}/1", following, _TagEnd())))
        self._free(free, given, rules, after, pointer)
        return [("", free)]

    def _free(
        self, number: int, given: Mapping[str, Any], rules: list[tuple[str, _Next]], after: _Next, pointer: str,
        more: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Free text in which strings begin something, and which contains none of ``more``."""
        begun = [(string, self.choice(rest)) for string, rest in rules if rest]
        excluded = (*given.get("excludes", ()), *more)
        inner = [("bad_words", {"phrases": excluded})] if excluded else None
        self.nodes[number] = _OpenSection([*begun, *after], inner, pointer=pointer)

    def _separated(self, given: Mapping[str, Any], pointer: str, after: _Next) -> _Next:
        again = self._reserve(pointer)
        more = [] if given.get("stop_after_first") else self._before(given["separator"], [("", again)])
        begins = [
            pair for begin, rest in self._tags(given, pointer, [*more, *after]) for pair in self._before(begin, rest)
        ]
        self.nodes[again] = _OpenSection(begins, forced=True)
        return begins if given.get("at_least_one") else [*begins, *after]

    def _repeated(self, given: Mapping[str, Any], kind: str, pointer: str, after: _Next, tag: _TagEnd) -> _Next:
        least, most = {"optional": (0, 1), "star": (0, -1), "plus": (1, -1)}.get(
            kind, (given.get("min", 0), given.get("max", 0))
        )
        if least < 0 or (most != -1 and most < least):
            raise OptionError(
                f"{pointer} of a structural tag is repeated {least} to {most} times. Give 0 <= min <= max."
            )
        content = given["content"]
        if most == -1:
            again = self._reserve(pointer)
            begin = self.compile(content, pointer, [("", again)], tag)
            self.nodes[again] = _OpenSection([*begin, *after], forced=True)
            following: _Next = [("", again)]
        else:
            following = after
            for _ in range(most - least):
                following = [*self.compile(content, pointer, following, tag), *after]
        for _ in range(least):
            following = self.compile(content, pointer, following, tag)
        return following

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _reserve(self, pointer: str) -> int:
        if len(self.nodes) == _MOST_SECTIONS:
            raise OptionError(f"{pointer} of a structural tag needs more than {_MOST_SECTIONS} sections. Repeat less.")
        self.nodes.append(_OpenSection([], pointer=pointer))
        return len(self.nodes) - 1

    def _text(self, inner: Any, after: _Next, pointer: str, budget: int | None = None) -> _Next:
        number = self._reserve(pointer)
        self.nodes[number] = _OpenSection(after, inner, budget=budget, pointer=pointer)
        return [("", number)]

    def choice(self, after: _Next) -> int:
        """The number of a section in which one of several things must come at once."""
        if len(after) == 1 and not after[0][0] and after[0][1] != _END:
            return after[0][1]
        number = self._reserve("format")
        self.nodes[number] = _OpenSection(after, forced=True)
        return number

    def _before(self, string: str, after: _Next) -> _Next:
        if len(after) == 1:
            return [(string + after[0][0], after[0][1])]
        return [(string, self.choice(after))] if string else after

    # --- sections ---------------------------------------------------------------------------------------------------

    def sections(self) -> list[Section]:
        """All sections, by their numbers."""
        found: list[Section] = []
        for number, node in enumerate(self.nodes):  # grows on the way
            found.append(Section(ends=True) if number == _END else self._section(number, node))
        return found

    def _section(self, number: int, node: _OpenSection) -> Section:
        following = node.next if node.forced else self._expanded(number)
        targets: dict[str, list[int]] = {}
        for string, section in following:
            if section not in targets.setdefault(string, []):
                targets[string].append(section)
        exits = tuple(Exit(string, self._one(sections)) for string, sections in targets.items() if string)
        follows = tuple(section for section in targets.get("", ()) if node.forced or section != _END)
        if node.forced:
            return Section(exits=exits, follows=follows, budget=0, may_end=False)
        inner = None if node.inner is None else self._inners.of(node.inner)
        free = inner is None or all(link.label == "bad_words" for link in inner.links)
        if follows and (free or node.budget is not None):
            raise OptionError(
                f"{node.pointer} of a structural tag is free text, and what follows it begins with no text by which "
                f"the end of the free text could be found. Put a const_string between them, or the free text "
                f"into a tag."
            )
        after = _END if node.budget is not None and not exits else None
        may_end = _END in targets.get("", ())
        return Section(inner, exits, node.budget, after, may_end, follows=follows)

    def _one(self, sections: list[int]) -> int:
        return sections[0] if len(sections) == 1 else self.choice([("", section) for section in sections])

    def _expanded(self, number: int) -> _Next:
        """The strings that may come after a section, with each forced choice replaced by its alternatives."""
        found: dict[tuple[str, int], None] = {}
        seen, stack = set[int](), self.nodes[number].next[::-1]
        while stack:
            string, section = stack.pop()
            if string or not self.nodes[section].forced:
                found[string, section] = None
            elif section not in seen:
                seen.add(section)
                stack += self.nodes[section].next[::-1]
        return list(found)
