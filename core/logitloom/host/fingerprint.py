"""Fingerprints of configured processors: equal in every process for equal classes with equal options."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from logitloom.errors import StateMismatch

__all__ = ["fingerprint_of"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def fingerprint_of(value: Any, what: str) -> str:
    """Hex digest of a value: a processor, or the value of an option.

    The digest of an object covers its class and the first of these that it has: an attribute ``fingerprint``, the
    fields of a dataclass, what ``__getstate__`` returns, other attributes. The digest of a function covers its name and
    code, not its closure.

    Args:
        value: anything.
        what: what the value is, for the message.

    Raises:
        StateMismatch: if the value is an object that cannot be told from others of its class, or nested too deeply.

    Example:
        >>> fingerprint_of({"k": [1, 2]}, "option") == fingerprint_of({"k": (1, 2)}, "option")
        True
        >>> fingerprint_of({"k": 1}, "option") == fingerprint_of({"k": 1.0}, "option")
        False
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        text = _text_of(value, what)
    except RecursionError:
        raise StateMismatch(
            f"The {what} is nested too deeply for a fingerprint, so states of its chain cannot be saved. Nest it less."
        ) from None
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _text_of(value: Any, what: str) -> str:
    """An unambiguous text of a value."""
    kind = type(value)
    if kind in _PLAIN:
        return f"{kind.__name__} {value!r}"
    if isinstance(value, Enum):
        return f"{_name(kind)}.{value.name}"
    if isinstance(value, PurePath):
        return f"path {str(value)!r}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text_of(part, what) for part in value)}]"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(_text_of(part, what) for part in value))}}}"
    if isinstance(value, Mapping):
        items = (f"{_text_of(key, what)}: {_text_of(part, f'{what}[{key!r}]')}" for key, part in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind != "O":
        host = np.ascontiguousarray(value)
        return f"array {host.dtype.str} {host.shape} {hashlib.blake2b(host.tobytes(), digest_size=16).hexdigest()}"
    if isinstance(value, type):
        members = [(member.name, member.value) for member in value] if issubclass(value, Enum) else ()
        return f"class {_name(value)} {vars(value).get('__annotations__', {})} {_text_of(list(members), what)}"
    if isinstance(value, FunctionType):
        return f"function {_name(value)} {hashlib.blake2b(value.__code__.co_code, digest_size=16).hexdigest()}"
    if isinstance(value, BuiltinFunctionType):
        return f"function {_name(value)}"
    if isinstance(value, MethodType):
        return f"method {value.__func__.__qualname__} {_text_of(value.__self__, what)}"
    own = getattr(value, "fingerprint", None)
    if isinstance(own, (str, bytes)):
        return f"{_name(kind)} {own!r}"
    if dataclasses.is_dataclass(value):
        plain = getattr(kind, "plain_option", lambda name, given: given)  # as in documents of chains
        names = [field.name for field in dataclasses.fields(kind) if field.init]
        options = {name: plain(name, getattr(value, name)) for name in names}
        return f"{_name(kind)} {[(name, _text_of(given, f'{name} of {what}')) for name, given in options.items()]}"
    if hasattr(value, "__dict__"):
        # A class that says what is pickled of its objects leaves out what they remember.
        says = any("__getstate__" in vars(base) for base in kind.__mro__[:-1])
        told = value.__getstate__() if says else vars(value)
        return f"{_name(kind)} {_text_of(told, what)}"
    raise StateMismatch(
        f"The {what} is a {_name(kind)}, which has no fingerprint, so it is unknown whether another chain is "
        f"equal, and states of this one cannot be saved. Give the class an attribute 'fingerprint', a text or bytes."
    )


def _name(what: Any) -> str:
    return f"{getattr(what, '__module__', '')}:{what.__qualname__}"
