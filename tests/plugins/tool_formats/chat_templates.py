"""Chat templates of models, where packages hold them, and functions in their place: what they write to call tools.

Templates are read from the installed packages trl and axolotl, and from the folders that ``LOGITLOOM_CHAT_TEMPLATES``
names (separated as in ``PATH``): wheels and source distributions, unpacked, of these and of vLLM and llama-cpp-python.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from logitloom_plugins.tool_formats.tool_format import tool_format
from tests.plugins.tool_formats.tool_texts import (
    Call,
    Tools,
    constraint_of,
    random_calls,
    random_tools,
    reader_of,
    refused_at,
)

#: By source, where its templates lie.
PLACES: Final = {
    "llama.cpp": "models/templates/*.jinja",
    "trl": "trl/chat_templates/*.jinja",
    "axolotl": "axolotl/utils/chat_templates/templates/*.jinja",
    "vllm": "examples/tool_chat_template_*.jinja",
}


_TABLE: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
#: The format of each template.
EXPECTED: Final[dict[str, str]] = {
    f"{source} {name}": form
    for form, sources in _TABLE["formats"].items()
    for source, names in sources.items()
    for name in names
}
#: Why calls of a template are not allowed, and why a template shows no format.
REFUSED: Final[dict[str, str]] = _TABLE["refused"]
UNKNOWN: Final[dict[str, str]] = _TABLE["unknown"]


@dataclass(frozen=True)
class LeftOut:
    """What is left out of calls, because a template renders it otherwise than its format has it.

    Attributes:
        why: in words.
        types: JSON types.
        text: a pattern that is found in strings.
        most: most calls; 0: any number.
        filled: whether calls without arguments are left out.
    """

    why: str
    types: frozenset[str] = frozenset()
    text: str = ""
    most: int = 0
    filled: bool = False


LEFT_OUT: Final = {
    name: LeftOut(**{key: value for key, value in row.items() if key != "templates"})
    for row in _TABLE["left_out"]
    for name in row["templates"]
}


@cache
def chat_templates() -> dict[str, Path]:
    """The files of the templates that are there, by source and name."""
    folders = [Path(folder) for folder in os.environ.get("LOGITLOOM_CHAT_TEMPLATES", "").split(os.pathsep) if folder]
    found: dict[str, Path] = {}
    for source, place in PLACES.items():
        files = [file for folder in folders for file in folder.rglob(place)]
        package = importlib.util.find_spec(source) if source in ("trl", "axolotl") else None
        if package is not None:
            files += Path(next(iter(package.submodule_search_locations or [""]))).parent.glob(place)
        for file in sorted(files):
            name = file.stem.removeprefix("tool_chat_template_").removesuffix("_training")
            found.setdefault(f"{source} {name}", file)
    return found


def check_calls(name: str, render: Renderer, seeds: Iterable[int]) -> None:
    """Assert that rendered calls of random tools are allowed and read as they were meant, or that the table says no."""
    for wrong in wrong_calls(name, render, seeds):
        if name in REFUSED and wrong:
            return
        assert name in REFUSED or not wrong, wrong
    assert name not in REFUSED, f"The calls of {name} are allowed and read now: {REFUSED[name]}."


def wrong_calls(name: str, render: Renderer, seeds: Iterable[int]) -> Iterator[str]:
    """For each set of tools what is wrong with the text of calls: empty if it is allowed, and read as it was meant."""
    form, left_out = tool_format(format_of(name)), LEFT_OUT.get(name, LeftOut(""))
    for seed in seeds:
        random = np.random.default_rng(seed)
        tools = random_tools(form, random, left_out.types)
        for tool in tools:
            _describe(tool["function"])
        most = left_out.most or (3 if form.parallel else 1)
        calls = random_calls(form, tools, random, most, lambda text: not re.search(left_out.text or "(?!)", text))
        calls = [call for call in calls if call[1] or not left_out.filled]
        if calls:
            yield _wrong(format_of(name), render, tools, calls)


def format_of(name: str) -> str:
    """The format of a template or of a function."""
    return EXPECTED[name] if name in EXPECTED else ENCODERS[name].format


def _wrong(form: str, render: Renderer, tools: Tools, calls: list[Call]) -> str:
    try:
        texts = rendered(render, tools, calls, _ids(tool_format(form).call, calls))
    except NoCall as error:
        return str(error)
    constraint = constraint_of(form, tools)
    for text in texts:
        if refused_at(constraint, text) is None:
            found = read(form, tools, text)
            return "" if found == calls else f"{found} is read in {text!r}"
    return f"refused at {refused_at(constraint, texts[-1])}: {texts[-1]!r}"


def read(form: str, tools: Tools, text: str) -> list[Call]:
    """The calls that our own reader reads."""
    reader = reader_of(form, tools)
    reader.add(text)
    return [(call["name"], call["arguments"]) for call in reader.end().value]


def _describe(function: dict[str, Any]) -> None:
    """Add what some templates take for granted."""
    function["description"] = "Does something."
    parameters = function["parameters"]
    parameters["properties"] = {key: {**one, "description": "What."} for key, one in parameters["properties"].items()}


def _ids(call: str, calls: list[Call]) -> list[str]:
    """Identifiers of calls, as the models of a format know them."""
    if "functions.{name}:{index}" in call:
        return [f"functions.{name}:{i}" for i, (name, _) in enumerate(calls)]
    return [str(i) if "tool_call_id" in call else f"abcdefgh{i}" for i, _ in enumerate(calls)]


#: A tag, white space or a character.
_PART: Final = r"<[^<>]*>|\[[^\[\]]*\]|\s+|."


Messages = list[dict[str, Any]]
#: Renders messages with tools, and with the beginning of an answer or without.
Renderer = Callable[[Messages, Tools, bool], str]


class NoCall(Exception):
    """The template does not render calls."""


def rendered(render: Renderer, tools: Tools, calls: list[Call], ids: list[str]) -> list[str]:
    """What a model writes from the generation prompt on to call tools, as its template says.

    Templates do not tell what of this ends the turn, which models write as end-of-sequence tokens: there are several
    readings, the longest first.

    Raises:
        NoCall: if the template fails, or leaves the calls out.
    """
    user = {"role": "user", "content": "Hi"}
    reasons = []
    for as_text in (False, True):
        for content in ("", None):
            message = {"role": "assistant", "content": content, "tool_calls": _tool_calls(calls, ids, as_text)}
            try:
                prompt = render([user], tools, True)
                whole = render([user, message], tools, False)
                plain = render([user, {"role": "assistant", "content": "XYZZY"}], tools, False)
            except Exception as error:
                reasons.append(f"{type(error).__name__}: {error}")
                continue
            text = _behind(whole, prompt)
            if all(name in text for name, _ in calls) and (as_text or not _is_repr(text, calls)):
                return _without_end(text, plain.rpartition("XYZZY")[2])
            reasons.append(f"no call in {text!r}")
    raise NoCall("; ".join(dict.fromkeys(reasons)))


def _is_repr(text: str, calls: list[Call]) -> bool:
    return any(arguments and str(arguments) in text for _, arguments in calls)


def _tool_calls(calls: list[Call], ids: list[str], as_text: bool) -> list[dict[str, Any]]:
    return [
        {
            "id": id,
            "type": "function",
            "function": {
                "name": name,
                "arguments": json.dumps(arguments, ensure_ascii=False) if as_text else arguments,
            },
        }
        for id, (name, arguments) in zip(ids, calls, strict=True)
    ]


def _behind(whole: str, prompt: str) -> str:
    """The text behind the prompt; where another prompt stands before calls, from the first difference on."""
    if whole.startswith(prompt):
        return whole[len(prompt) :]
    same = whole[: next((i for i, (one, other) in enumerate(zip(whole, prompt, strict=False)) if one != other), 0)]
    # A tag that has begun is not cut.
    cut = max(same.rfind("<"), same.rfind("["))
    return whole[cut if cut >= 0 and ">" not in same[cut:] and "]" not in same[cut:] else len(same) :]


def _without_end(text: str, end: str) -> list[str]:
    """The text, and the text without parts of what ends a turn."""
    parts = re.findall(_PART, end)
    found = [text, *(text.removesuffix("".join(parts[i:])) for i in range(len(parts)))]
    found += [text.partition(part)[0] for part in parts if len(part) > 3]
    while tag := re.search(rf"(?:{_PART})\Z", text := text.rstrip()):
        if len(tag[0]) < 3:
            break
        text = text[: tag.start()]
        found.append(text)
    return sorted({*found, *map(str.rstrip, found)}, key=len, reverse=True)


def renderer(template: str) -> Renderer:
    """What renders a conversation in the words of a template."""

    def render(messages: Messages, tools: Tools, prompt: bool) -> str:
        text: str = _compiled(template).render(
            messages=messages, tools=tools, add_generation_prompt=prompt, bos_token="<BOS>", eos_token="<EOS>",
            unk_token="", pad_token="", functions=json.dumps(tools), datetime="2026-01-02",
        )  # fmt: skip
        return text

    return render


@cache
def _compiled(template: str) -> Any:
    from jinja2.sandbox import SandboxedEnvironment

    def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    def raise_exception(message: str) -> Iterator[None]:
        raise NoCall(message)

    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], autoescape=False
    )
    environment.filters.update(tojson=to_json, from_json=json.loads, fromjson=json.loads)
    environment.globals.update(
        raise_exception=raise_exception, strftime_now=lambda form: datetime.date(2026, 1, 2).strftime(form)
    )
    # What marks the texts of the assistant for training.
    return environment.from_string(re.sub(r"\{%-?\s*(?:end)?generation\s*-?%\}", "", template))


# --- functions that stand in the place of a template ------------------------------------------------------------------


class Encoder(NamedTuple):
    """A function of a package that writes conversations.

    Attributes:
        module: where it is.
        format: the format of its calls.
        made: makes the renderer from the module.
    """

    module: str
    format: str
    made: Callable[[Any], Renderer]


def _deepseek(module: Any) -> Renderer:
    def render(messages: Messages, tools: Tools, prompt: bool) -> str:
        text: str = module.encode_messages(messages, "chat")
        return text

    return render


def _inkling(module: Any) -> Renderer:
    class Text:
        """Ids that are the characters; those of special tokens begin behind."""

        special: Final = list[str]()

        def encode_text(self, text: str) -> list[int]:
            return list(map(ord, text))

        def encode_special(self, token: str) -> int:
            self.special.append(token)
            return 0x110000 + len(self.special) - 1

    def render(messages: Messages, tools: Tools, prompt: bool) -> str:
        words = Text()
        ids = module.render_inkling_messages(messages, words, add_generation_prompt=prompt, tools=tools)
        return "".join(chr(id) if id < 0x110000 else words.special[id - 0x110000] for id in ids)

    return render


def _melody(preset: str) -> Callable[[Any], Renderer]:
    def made(module: Any) -> Renderer:
        def render(messages: Messages, tools: Tools, prompt: bool) -> str:
            text: str = getattr(module, f"render_{preset}")({"messages": list(map(_of_cohere, messages))})
            return text

        return render

    return made


def _of_cohere(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "user":
        return {"role": "user", "content": [{"type": "text", "text": message["content"]}]}
    if "tool_calls" not in message:
        return {"role": "chatbot", "content": [{"type": "text", "text": message["content"]}]}
    calls = [(call["id"], call["function"]) for call in message["tool_calls"]]
    return {
        "role": "chatbot",
        "tool_calls": [{"id": id, "name": one["name"], "parameters": one["arguments"]} for id, one in calls],
    }


ENCODERS: Final = {
    "mlx_lm deepseek_v32": Encoder("mlx_lm.chat_templates.deepseek_v32", "deepseek_v32", _deepseek),
    "vllm deepseek_v32": Encoder("vllm.tokenizers.deepseek_v32_encoding", "deepseek_v32", _deepseek),
    "vllm deepseek_v4": Encoder("vllm.tokenizers.deepseek_v4_encoding", "deepseek_v4", _deepseek),
    "vllm deepseek_v41": Encoder("vllm.tokenizers.deepseek_v41_encoding", "deepseek_v41", _deepseek),
    "vllm inkling": Encoder("vllm.renderers.inkling_encoding", "inkling", _inkling),
    "melody cmd3": Encoder("cohere_melody", "cohere", _melody("cmd3")),
    "melody cmd4": Encoder("cohere_melody", "cohere", _melody("cmd4")),
    "melody cmd5": Encoder("cohere_melody", "cohere_xml", _melody("cmd5")),
}
