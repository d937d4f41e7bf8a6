"""Chains as TOML or JSON documents: what is loaded, in which order, with which options.

A document holds a version and a list of processors::

    logitloom = 1

    [[processor]]
    use = "top_k"

    [processor.options]
    k = 40

Tokenizer and model are not part of it; they are given when it is read.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from logitloom import processors
from logitloom.arguments import instance, shown
from logitloom.chain import Chain
from logitloom.chain.links import Link
from logitloom.errors import ChainDocumentError
from logitloom.host import options as opts
from logitloom.host import registry

__all__ = ["VERSION", "from_document", "load", "to_document", "to_json", "to_toml"]

#: Version of the document format.
VERSION = 1


def to_document(chain: Chain) -> dict[str, Any]:
    """The chain as plain data: dictionaries, lists, texts, numbers.

    A processor class with options that plain data cannot hold, such as classes, may have a static method
    ``plain_option(name, value)``, which returns an equal value in plain data.

    Raises:
        ChainDocumentError: if a processor was not loaded by name and no installed plug-in is its class, or an
            option's value has no plain form.

    Example:
        >>> to_document(processors.load(("top_k", {"k": 5})))
        {'logitloom': 1, 'processor': [{'use': 'top_k', 'options': {'k': 5}}]}
    """
    links = instance(chain, Chain, "chain", ChainDocumentError).links
    return {"logitloom": VERSION, "processor": [_entry(link) for link in links]}


def _entry(link: Link) -> dict[str, Any]:
    """A processor of a document."""
    name = link.plugin or _name_of_class(link.factory or type(link.processor))
    if name is None:
        raise ChainDocumentError(
            f"Processor {link.label!r} is not an installed or registered plug-in, so a document cannot name it. "
            f"Give it an entry point, or call processors.register({link.label!r}, ...) first."
        )
    values = link.options
    if link.factory is None and link.plugin is None:
        arguments = () if is_dataclass(link.processor) else opts.arguments_of(link.processor)
        if arguments:
            raise ChainDocumentError(
                f"The class of processor {link.label!r} takes {', '.join(arguments)}, but declares no options, so a "
                f"document cannot hold what the object was made with. Make the class a frozen dataclass with options "
                f"(logitloom.option)."
            )
        values = opts.values(link.processor)
    defaults = {o.name: o.default for o in opts.declared(link.factory or link.processor) if not o.required}
    plain_option = getattr(link.factory or link.processor, "plain_option", lambda name, value: value)
    plain = {
        key: _plain(plain_option(key, value), f"{link.label}.{key}")
        for key, value in values.items()
        if not (key in defaults and type(value) is type(defaults[key]) and value == defaults[key])
    }
    return {"use": name, "options": plain} if plain else {"use": name}


def to_toml(chain: Chain) -> str:
    """The chain as a TOML document.

    Example:
        >>> print(to_toml(processors.load("normalize", ("top_k", {"k": 5}))), end="")
        logitloom = 1
        <BLANKLINE>
        [[processor]]
        use = "normalize"
        <BLANKLINE>
        [[processor]]
        use = "top_k"
        <BLANKLINE>
        [processor.options]
        k = 5
    """
    import tomli_w

    document = to_document(chain)
    parts = [tomli_w.dumps({"logitloom": document["logitloom"]})]
    for entry in document["processor"]:
        # Each entry is written alone, because the writer puts a list of small tables on one line.
        parts.append("[[processor]]\n" + tomli_w.dumps({"use": entry["use"]}))
        if "options" in entry:
            parts.append(_toml_options(entry["options"]))
    return "\n".join(parts)


def _toml_options(options: dict[str, Any]) -> str:
    """The options of a processor as TOML; keys in option values keep their order, as the properties of a schema must.

    In TOML, tables under headers come after all plain values. If this would change the order, each option is written on
    one line.
    """
    import tomli_w

    told = tomli_w.dumps({"processor": {"options": options}})
    again = tomllib.loads(told)["processor"]["options"]
    if all(json.dumps(again[key]) == json.dumps(value) for key, value in options.items()):
        return told
    return "[processor.options]\n" + "".join(f"{_toml_pair(key, value)}\n" for key, value in options.items())


def _toml_pair(key: str, value: Any) -> str:
    """``key = value`` on one line."""
    import tomli_w

    if isinstance(value, dict):
        text = f"{{ {', '.join(_toml_pair(*item) for item in value.items())} }}" if value else "{}"
        return f"{_toml_pair(key, 0)[:-1]}{text}"
    if isinstance(value, list):
        items = (_toml_pair("x", item).removeprefix("x = ") for item in value)
        return f"{_toml_pair(key, 0)[:-1]}[{', '.join(items)}]"
    return tomli_w.dumps({key: value}).removesuffix("\n")


def to_json(chain: Chain) -> str:
    """The chain as a JSON document."""
    return json.dumps(to_document(chain), indent=2, ensure_ascii=False)


def from_document(
    document: Mapping[str, Any], *, tokenizer: Any = None, model: Any = None, block: Iterable[str] = ()
) -> Chain:
    """The chain that a document describes; all checks of :func:`logitloom.processors.load` apply.

    Raises:
        ChainDocumentError: if the document has another form.
    """
    return processors.load(*_specs(document), tokenizer=tokenizer, model=model, block=block)


def _specs(document: Mapping[str, Any]) -> list[Any]:
    """The specification of each processor in a document, in the form that :func:`logitloom.processors.load` takes."""
    if not isinstance(document, Mapping):
        raise ChainDocumentError(f"A chain document is a table, but this one is {shown(document)}.")
    if document.get("logitloom") != VERSION:
        raise ChainDocumentError(
            f"A chain document starts with logitloom = {VERSION}; this one has {shown(document.get('logitloom'))}. "
            f"Write 'logitloom = {VERSION}' in its first line, as 'to_toml' of a chain does."
        )
    extra = set(document) - {"logitloom", "processor"}
    if extra:
        raise ChainDocumentError(
            f"A chain document has the keys 'logitloom' and 'processor' alone, but this one has "
            f"{min(map(str, extra))!r}. In TOML each processor begins with [[processor]]."
        )
    entries = document.get("processor", [])
    if not isinstance(entries, list):
        raise ChainDocumentError("'processor' in a chain document is a list: write [[processor]] in TOML.")
    specs: list[Any] = []
    for i, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("use"), str) or set(entry) - {"use", "options"}:
            raise ChainDocumentError(
                f"Processor {i} of the chain document must have 'use' (a name) and may have 'options': {shown(entry)}."
            )
        given = entry.get("options", {})
        if not isinstance(given, Mapping):
            raise ChainDocumentError(
                f"Processor {i} of the chain document ({entry['use']}) has options that are no table: {shown(given)}."
            )
        specs.append((entry["use"], given))
    return specs


def load(
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    model: Any = None,
    block: Iterable[str] = (),
) -> Chain:
    """The chain that a document describes, wherever the document is.

    Args:
        source: the path of a ``.toml`` or ``.json`` file; the text of such a document (a text of several lines, an
            empty one, or one that begins with ``{``, as JSON does); or the document as a table.
        tokenizer: as in :func:`logitloom.processors.load`.
        model: likewise.
        block: likewise.

    Raises:
        ChainDocumentError: if the source cannot be read as a chain document; names the file.

    Example:
        >>> load(to_toml(processors.load(("top_k", {"k": 5}))))["top_k"].k
        5
    """
    if isinstance(source, Mapping):
        return from_document(source, tokenizer=tokenizer, model=model, block=block)
    instance(source, (str, os.PathLike, Mapping), "source", ChainDocumentError)
    beginning = "".join(source.split())[:2] if isinstance(source, str) else "path"
    is_json = beginning.startswith("{") or beginning == "[{"
    if isinstance(source, str) and ("\n" in source or is_json or not beginning):
        what, text = "The chain document", source
    else:
        path = Path(source)
        what, is_json = f"The chain file {str(path)!r}", path.suffix == ".json"
        try:
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise ChainDocumentError(
                f"{what} could not be read: {error.strerror} (in {str(Path.cwd())!r}). Check the path. The text that "
                f"'to_toml' of a chain gives is such a file."
            ) from error
        except ValueError as error:
            raise ChainDocumentError(f"{what} could not be read: {error}. Write it in UTF-8.") from error
    try:
        document = json.loads(text) if is_json else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        form = "JSON" if is_json else "TOML"
        raise ChainDocumentError(
            f"{what} could not be read as {form}: {error}. Mend the text, or let 'to_{form.lower()}' write it."
        ) from error
    if not isinstance(document, dict):
        raise ChainDocumentError(
            f"{what} holds a {type(document).__name__}, not a table. A table begins with logitloom = {VERSION}."
        )
    try:
        specs = _specs(document)
    except ChainDocumentError as error:
        raise ChainDocumentError(f"{what} describes no chain. {error}") from None
    return processors.load(*specs, tokenizer=tokenizer, model=model, block=block)


def _name_of_class(cls: type) -> str | None:
    # A module may offer a class that is written elsewhere, so only the class's name is compared before loading.
    wanted = f":{cls.__qualname__}"
    records = registry.available("processors")
    for record in records:
        if record.value.endswith(wanted) and not record.blocked:
            shared = record.distribution and sum(other.name == record.name for other in records) > 1
            name = f"{record.name}@{record.distribution}" if shared else record.name
            if registry.load_plugin("processors", name) is cls:
                return name
    return None


def _plain(value: Any, option: str) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value, option)
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Link):
        return _entry(value)
    if isinstance(value, Mapping):
        return {str(_plain(k, option)): _plain(v, option) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(v, option) for v in value), key=lambda plain: (type(plain).__name__, plain))
    if isinstance(value, (list, tuple)):
        return [_plain(v, option) for v in value]
    raise ChainDocumentError(f"Option {option} is a {type(value).__name__}, which a TOML or JSON document cannot hold.")
