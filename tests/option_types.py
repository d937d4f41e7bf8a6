"""The types of names and options of the built-in processors, made from their declarations.

``python -m tests.option_types`` writes them anew.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from logitloom import processors

TARGET: Final = Path(__file__).parent.parent / "core" / "logitloom" / "host" / "option_types.py"

_HEAD: Final = '''"""Names and options of the built-in processors, for type checkers and editors.

Made from the declarations of the processors by ``python -m tests.option_types``; do not edit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

__all__ = ["BuiltInName", "BuiltInOptions"]

'''

_PLAIN: Final = {str: "str", bool: "bool", int: "int", float: "float", type(None): "None", Any: "Any"}


def generated() -> str:
    """The module's text."""
    names = sorted({record.name for record in processors.available() if record.distribution == "logitloom"})
    found: dict[str, set[str]] = {}
    for name in names:
        for each in processors.describe(f"{name}@logitloom").options:
            found.setdefault(each.name, set()).update(_written(each.type))
    lines = [f"    {name!r}," for name in names]
    members = [f"    {key}: {_union(found[key])}" for key in sorted(found)]
    doc = '    """Every option of any of them, with the types that it has there."""'
    return (
        _HEAD
        + "#: Every built-in processor.\nBuiltInName = Literal[\n"
        + "\n".join(lines).replace("'", '"')
        + "\n]\n\n\nclass BuiltInOptions(TypedDict, total=False):\n"
        + "\n".join([doc, "", *members])
        + "\n"
    )


def _union(parts: set[str]) -> str:
    if "Any" in parts:
        return "Any"
    kept = parts - {"int"} if "float" in parts else parts
    return " | ".join(sorted(kept, key=lambda part: (part == "None", part)))


def _written(kind: Any) -> Iterator[str]:
    """A type as what may be given for it: any sequence for a tuple, any mapping for a dictionary."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        for part in arguments:
            yield from _written(part)
    elif origin is Literal:
        yield f"Literal[{', '.join(map(repr, arguments))}]".replace("'", '"')
    elif origin is tuple:
        yield f"Sequence[{_union({text for part in arguments if part is not ... for text in _written(part)})}]"
    elif origin in (dict, Mapping):
        yield f"Mapping[{', '.join(_union(set(_written(part))) for part in arguments)}]"
    elif kind is Path:
        yield "os.PathLike[str]"
    else:
        yield _PLAIN.get(kind, "Any")


if __name__ == "__main__":
    TARGET.write_text(generated(), encoding="utf-8")
