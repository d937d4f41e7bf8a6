"""The key under which a request brings its chain; a misspelt key is refused, because no code would read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any, Final

from logitloom.errors import NeedsNotMet
from logitloom_contrib.requests.request_document import KEY
from logitloom_contrib.requests.request_record import RECORD_KEY

__all__ = ["is_alike", "require_right_fields", "require_right_key"]

#: From this share of equal letters on, a key is taken for a misspelling.
_ALIKE: Final = 0.8
#: Other fields of a body that a misspelling keeps from being read.
_FIELDS: Final = ("vllm_xargs", "response_format", "tool_choice")
#: Fields with which other servers and protocols ask for a constraint -> the fields that say the same here.
_FOREIGN: Final[Mapping[str, str]] = {
    **dict.fromkeys(("guided_json", "json_schema", "format"), "'response_format'"),
    **dict.fromkeys(("guided_choice", "guided_regex", "guided_grammar", "structured_outputs"), f"a chain in {KEY!r}"),
    **dict.fromkeys(("regex", "grammar", "ebnf", "structural_tag"), f"a chain in {KEY!r}"),
    "functions": "'tools' and 'tool_choice'",
}


def require_right_key(keys: Iterable[str]) -> None:
    """Refuse keys of ``extra_args`` that look like a misspelt key of a chain.

    Raises:
        NeedsNotMet: naming the key.

    Example:
        >>> require_right_key(["logitloom", "seed_of_mine"])
        >>> require_right_key(["logit_loom"])
        Traceback (most recent call last):
        ...
        logitloom.errors.NeedsNotMet: The request has the key 'logit_loom', ... Write 'logitloom'.
    """
    for key in keys:
        if key not in (KEY, RECORD_KEY) and is_alike(key):
            raise NeedsNotMet(
                f"The request has the key {key!r:.100}, which nobody reads, so its answer would not be constrained. "
                f"Write {KEY!r}."
            )


def require_right_fields(body: Mapping[str, Any]) -> None:
    """Refuse fields of a body over HTTP that nobody reads although they ask for a constraint.

    Args:
        body: the fields at the top that no other code reads, with their values.

    Raises:
        NeedsNotMet: naming the field.

    Example:
        >>> require_right_fields({"response_format": None, "temperature": 1.0})
        >>> require_right_fields({"extra_body": {"logitloom": []}})
        Traceback (most recent call last):
        ...
        logitloom.errors.NeedsNotMet: The request has the field 'extra_body', ... to the top of the request.
    """
    require_right_key(body)
    for name, value in body.items():
        if name == "extra_body":
            raise NeedsNotMet(
                "The request has the field 'extra_body', which nobody reads: it is an argument of the Python client, "
                "which puts its content to the top of the request. Put the content to the top of the request."
            )
        alike = (repr(field) for field in _FIELDS if name != field and _alike(name, field))
        meant = (_FOREIGN.get(name) if value else None) or next(alike, None)
        if meant is not None:
            raise NeedsNotMet(
                f"The request has the field {name!r:.100}, which nobody reads, so its answer would not be constrained. "
                f"Write {meant}."
            )
        inside = next((key for key in value if is_alike(key)), None) if isinstance(value, Mapping) else None
        if inside is not None and name != "vllm_xargs":
            raise NeedsNotMet(
                f"The request has {inside!r:.100} inside the field {name!r:.100}, where nobody reads it. Put the chain "
                f"into 'vllm_xargs': {{'vllm_xargs': {{{KEY!r}: ...}}}}."
            )


def is_alike(key: Any) -> bool:
    """Whether a key is the key of a chain or resembles it.

    Example:
        >>> is_alike("logit_loom"), is_alike("logit_bias")
        (True, False)
    """
    return _alike(key, KEY)


def _alike(key: Any, wanted: str) -> bool:
    if not isinstance(key, str) or len(key) > 4 * len(wanted):
        return False
    plain, letters = ("".join(each for each in word.lower() if each.isalpha()) for word in (key, wanted))
    return SequenceMatcher(None, plain, letters).ratio() >= _ALIKE
