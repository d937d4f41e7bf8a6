"""Which library an object comes from, found without importing that library."""

from __future__ import annotations

__all__ = ["comes_from"]


def comes_from(thing: object, library: str, *class_names: str) -> bool:
    """Whether a class of ``thing`` (or a base of it) is defined in a library, under one of some names.

    Args:
        thing: any object.
        library: a top-level module name, ``"tiktoken"``.
        class_names: names to look for; without any, every class of the library counts.

    Returns:
        True if so. Costs a walk over the method resolution order, nothing is imported.

    >>> comes_from({}, "builtins", "dict")
    True
    >>> comes_from({}, "tiktoken")
    False
    """
    return any(
        kind.__module__.partition(".")[0] == library and (not class_names or kind.__name__ in class_names)
        for kind in type(thing).__mro__
    )
