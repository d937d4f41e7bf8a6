"""Documents of schemas, written by a model in four ways of decoding, and what the jsonschema package says of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from logitloom import processors
from logitloom.generation import BeamSearch, Generated, Generator, Greedy, Multinomial
from logitloom.host.registry import load_plugin
from logitloom_plugins.json_schema.folds.machine import Machine, read

#: What ends things is favoured, because a small model left alone goes on and on.
_ENDS = (b'"', b'",', b'"}', b"}", b"]", b'"]', b"}}", b",", b',"')
_FAVOUR = 5.0
PROMPT = "A short JSON document:\n"
WAYS: dict[str, dict[str, Any]] = {
    "beam search": {"strategy": BeamSearch(beams=3, samples=3), "skip_forced": False},
    "several samples": {"strategy": Multinomial(samples=3), "skip_forced": False},
    "prompt lookup": {"strategy": Greedy(), "skip_forced": False},
    "forced tokens": {"strategy": Greedy(), "skip_forced": True},
}


class Written(NamedTuple):
    """A document: its text, whether it is complete, how many of its tokens were forced, and what is wrong with it."""

    way: str
    text: str
    complete: bool
    forced: int
    wrong: str | None


def shortest_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The schemas with the shortest valid instances first."""
    lengths = {}
    for i, row in enumerate(rows):
        valid = [len(json.dumps(test["data"])) for test in row["tests"] if test["valid"]]
        if valid and isinstance(row["schema"], dict):
            lengths[i] = min(valid)
    return [rows[i] for i in sorted(lengths, key=lambda i: (lengths[i], i))]


def written(model: Any, schema: Any, way: str, tokens: int) -> Iterator[Written]:
    """The documents that a model writes for a schema; nothing if the schema does not run as a table.

    Args:
        model: a model with tokenizer and vocabulary.
        schema: a JSON Schema.
        way: one of :data:`WAYS`.
        tokens: most tokens of a document.

    Raises:
        LogitloomError: if the schema is refused.
    """
    vocabulary = model.vocabulary
    bias = {i: _FAVOUR for i, text in enumerate(vocabulary.token_bytes) if text in _ENDS}
    chain = processors.load(
        ("logit_bias", {"bias": bias}),
        ("json", {"schema": schema, "engine": "table", "whitespace": "compact"}),
        tokenizer=vocabulary,
    )
    more: dict[str, Any] = dict(WAYS[way])
    if way == "prompt lookup":
        more["candidates"] = load_plugin("candidates", "prompt_lookup")(num_tokens=4)
    # Drafts come from what is in the prompt, so that some are right and others are not.
    prompt = PROMPT + (json.dumps(schema)[:200] + "\n" if way == "prompt lookup" else "")
    generator = Generator(model, chain, max_tokens=tokens, **more)
    machine = chain["json"].machine
    for found in generator([model.tokenizer.encode(prompt)], seed=len(prompt)):
        yield _judged(found, schema, way, machine)


def _judged(found: Generated, schema: Any, way: str, machine: Machine) -> Written:
    text = found.text or ""
    complete = found.finish == "eos"
    if not complete:
        # The last character may be cut in the middle.
        whole = text.rstrip("\ufffd").encode()
        wrong = None if read(machine, whole) is not None else "no document begins like this"
        return Written(way, text, complete, found.forced, wrong)
    return Written(way, text, complete, found.forced, validity(schema)(text))


def validity(schema: Any) -> Callable[[str], str | None]:
    """What the jsonschema package says against a text, ``None`` if nothing."""
    import jsonschema

    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator = kind(schema)

    def said(text: str) -> str | None:
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            return str(error)
        error = next(validator.iter_errors(value), None)
        return None if error is None else error.message

    return said
