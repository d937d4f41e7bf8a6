"""Row trees as bytes, in a format that can say nothing but values.

A document is a program for a machine with one stack: each instruction pushes a value, or puts the values on top
together. Nothing is imported, and nothing is called but this:

* the constructors of named tuples and enumerations, and
* ``from_state_parts`` of classes that have it,

each only of classes in modules that are loaded already and belong to packages that the reader names. So a document from
an unknown source can be wrong, large or slow to read, but it cannot run code of its author's choice; see
``docs/security.md``.

A class of states that is no tuple of plain values has two methods: ``state_parts(self) -> tuple``, the values that make
up the object, and the static method ``from_state_parts(*parts)``, which checks them.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final

import numpy as np

from logitloom.arrays.backend import Backend, backend_of
from logitloom.errors import StateMismatch
from logitloom.rows.tree import Rows, is_row_leaf

__all__ = ["decode", "encode"]

#: A limit for the size of a document with every shared part written out: comparing and hashing its values takes time in
#: proportion to this size.
_MOST_VALUES: Final = 1 << 26
#: Deeper tuples exhaust the interpreter's stack when they are hashed.
_MOST_NESTED: Final = 5_000

_CacheFromHost = Callable[[Mapping[str, Any], Any], Any]


# --- writing --------------------------------------------------------------------------------------------------------


def encode(tree: Any) -> bytes:
    """A row tree as bytes; shared parts are written once.

    Args:
        tree: tuples, named tuples and dictionaries of arrays, :class:`~logitloom.rows.tree.Rows` and model caches that
            have ``to_host``. The values in ``Rows`` are ``None``, booleans, integers, floats, decimals, fractions,
            strings, bytes, tuples, frozen sets, named tuples, members of enumerations, and objects with
            ``state_parts``.

    Raises:
        StateMismatch: naming the type of a value that has no form here.

    Example:
        >>> decode(encode((Rows([(1, b"a"), None]),)), Backend(), packages=())
        (Rows((1, b'a'), None),)
    """
    out = bytearray()
    numbers: dict[int, int] = {}
    kept: list[Any] = []  # values in ``numbers`` stay alive, so that no other object gets the identity of one of them
    todo: list[tuple[Any, bytes | None]] = [(tree, None)]
    while todo:
        value, instruction = todo.pop()
        if instruction is not None:
            out += instruction
            numbers[id(value)] = len(kept)
            kept.append(value)
        elif id(value) in numbers:
            out += b"g" + _size(numbers[id(value)])
        elif (plain := _plain(value)) is not None:
            out += plain
        else:
            instruction, parts = _composite(value)
            todo.append((value, instruction))
            todo.extend((part, None) for part in reversed(parts))
    return bytes(out)


def _size(number: int) -> bytes:
    return struct.pack("<I", number)


def _block(data: bytes) -> bytes:
    return _size(len(data)) + data


def _text(text: str) -> bytes:
    return _block(text.encode("utf-8", "surrogatepass"))


def _plain(value: Any) -> bytes | None:
    kind = type(value)
    if value is None:
        return b"N"
    if kind is bool or kind is np.bool_:
        return b"T" if value else b"F"
    if kind is int or isinstance(value, np.integer):
        number = int(value)
        return b"i" + _block(number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True))
    if kind is float:
        return b"f" + struct.pack("<d", value)
    if kind is str:
        return b"s" + _text(value)
    if kind is bytes:
        return b"b" + _block(value)
    if kind is Decimal:
        return b"m" + _text(str(value))
    if kind is Fraction:
        return b"q" + _text(str(value))
    if isinstance(value, Enum):
        return b"e" + _text(_class_name(kind)) + _text(value.name)
    return None


def _composite(value: Any) -> tuple[bytes, list[Any]]:
    """The instruction that makes a composite value, and the values that must be on the stack before the instruction."""
    kind = type(value)
    if kind is Rows:
        return b"r" + _size(len(value)), list(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return b"n" + _text(_class_name(kind)) + _size(len(value)), list(value)
    if kind is tuple:
        return b"t" + _size(len(value)), list(value)
    if kind is frozenset:
        # Sorted by the written form, so that equal sets give equal bytes.
        return b"z" + _size(len(value)), sorted(value, key=encode)
    if kind is dict:
        return b"d" + _size(len(value)), [part for item in value.items() for part in item]
    parts = getattr(value, "state_parts", None)
    if parts is not None:
        found = tuple(parts())
        return b"o" + _text(_class_name(kind)) + _size(len(found)), list(found)
    if hasattr(value, "to_host") and is_row_leaf(value):
        leaf: Any = value
        arrays = {"lengths": np.asarray(leaf.lengths), **{f".{name}": a for name, a in leaf.to_host().items()}}
        return b"c" + _size(len(arrays)) + b"".join(_text(name) + _array(a) for name, a in arrays.items()), []
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return b"a" + _text(str(value.dtype).rpartition(".")[2]) + _array(backend_of(value).to_numpy(value)), []
    raise StateMismatch(
        f"A state holds a {kind.__module__}.{kind.__qualname__}, which cannot be saved. Give the class the methods "
        f"state_parts and from_state_parts (see logitloom.rows.tree_format), or keep it in the processor."
    )


def _array(array: Any) -> bytes:
    host = np.ascontiguousarray(array)
    if host.dtype.kind not in "biufc":
        raise StateMismatch(f"A state holds an array of {host.dtype}, which cannot be saved. Use an array of numbers.")
    host = host.astype(host.dtype.newbyteorder("<"), copy=False)
    shape = b"".join(_size(n) for n in array.shape)
    return _text(host.dtype.str) + _size(len(array.shape)) + shape + _block(host.tobytes())


def _class_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


# --- reading --------------------------------------------------------------------------------------------------------


def decode(
    data: bytes, backend: Backend, *, packages: Collection[str], cache_from_host: _CacheFromHost | None = None
) -> Any:
    """The row tree that :func:`encode` wrote.

    Args:
        data: from :func:`encode`.
        backend: where arrays go.
        packages: top-level packages whose classes of states may be used.
        cache_from_host: a model's method that makes a cache of arrays and lengths; needed if the tree holds one.

    Raises:
        StateMismatch: if the bytes are no such document, or name a class that may not be used.
    """
    try:
        return _TreeReader(data, backend, frozenset(packages), cache_from_host).tree()
    except (struct.error, LookupError, ValueError, TypeError, ArithmeticError, MemoryError) as error:
        raise StateMismatch(f"The saved state cannot be read: {error}. Save it again.") from error


class _TreeReader:
    def __init__(
        self, data: bytes, backend: Backend, packages: frozenset[str], cache_from_host: _CacheFromHost | None
    ) -> None:
        self._data, self._at = memoryview(data), 0
        self._backend, self._packages, self._cache_from_host = backend, packages, cache_from_host

    def tree(self) -> Any:
        # Each value comes with how many values it is when shared parts are written out, and how deep it is nested.
        stack: list[tuple[Any, int, int]] = []
        made_before: list[tuple[Any, int, int]] = []
        while self._at < len(self._data):
            code = bytes(self._take(1))
            if code == b"g":
                stack.append(made_before[self._number()])
            elif code in b"NTFifsbmqe":
                stack.append((self._plain(code), 1, 0))
            elif code in b"rntzdoac":
                make, count = self._composite(code)
                if count > len(stack):
                    raise ValueError("it puts more values together than there are")
                parts = stack[len(stack) - count :]
                del stack[len(stack) - count :]
                total = 1 + sum(size for _, size, _ in parts)
                depth = 0 if code == b"o" else 1 + max((deep for _, _, deep in parts), default=0)
                if total > _MOST_VALUES or depth > _MOST_NESTED:
                    raise ValueError(f"it comes to {total} values, nested {depth} deep, which is too much")
                made = make([value for value, _, _ in parts]), total, depth
                stack.append(made)
                made_before.append(made)
            else:
                raise ValueError(f"it has an instruction {code!r}")
        if len(stack) != 1:
            raise ValueError(f"it leaves {len(stack)} values")
        return stack[0][0]

    def _take(self, size: int) -> memoryview:
        if size > len(self._data) - self._at:
            raise ValueError("it ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self) -> int:
        return int(struct.unpack("<I", self._take(4))[0])

    def _block(self) -> bytes:
        return bytes(self._take(self._number()))

    def _text(self) -> str:
        return self._block().decode("utf-8", "surrogatepass")

    def _plain(self, code: bytes) -> Any:
        if code in b"NTF":
            return {b"N": None, b"T": True, b"F": False}[code]
        if code == b"i":
            return int.from_bytes(self._block(), "little", signed=True)
        if code == b"f":
            return float(struct.unpack("<d", self._take(8))[0])
        if code == b"e":
            kind = self._class(self._text(), "an enumeration", lambda found: issubclass(found, Enum))
            return kind[self._text()]
        if code in b"mq":
            return Decimal(self._text()) if code == b"m" else Fraction(self._text())
        return self._text() if code == b"s" else self._block()

    def _composite(self, code: bytes) -> tuple[Callable[[list[Any]], Any], int]:
        """The function that makes a composite value from its parts, and the number of parts."""
        if code in b"rtz":
            return {b"r": Rows, b"t": tuple, b"z": frozenset}[code], self._number()
        if code == b"d":
            return lambda parts: dict(zip(parts[::2], parts[1::2], strict=True)), 2 * self._number()
        if code == b"n":
            kind = self._class(
                self._text(), "a named tuple", lambda found: issubclass(found, tuple) and hasattr(found, "_fields")
            )
            return lambda parts: kind(*parts), self._number()
        if code == b"o":
            kind = self._class(self._text(), "a class of states", lambda found: hasattr(found, "from_state_parts"))
            return lambda parts: kind.from_state_parts(*parts), self._number()
        if code == b"a":
            name, array = self._text(), self._array()
            made = self._backend.asarray(array, name)
            return lambda parts: made, 0
        if self._cache_from_host is None:
            raise StateMismatch(
                "The saved state holds a cache of a model, and there is no model here that can take one. Give the "
                "context, or the chain, a model with the method cache_from_host."
            )
        arrays = {self._text(): self._array() for _ in range(self._number())}
        lengths = arrays.pop("lengths")
        cache = self._cache_from_host({name.removeprefix("."): array for name, array in arrays.items()}, lengths)
        return lambda parts: cache, 0

    def _array(self) -> Any:
        dtype = np.dtype(self._text())
        if dtype.kind not in "biufc" or dtype.hasobject:
            raise ValueError(f"it has an array of {dtype}")
        shape = tuple(self._number() for _ in range(self._number()))
        return np.frombuffer(self._block(), dtype=dtype).reshape(shape).astype(dtype.newbyteorder("="))

    def _class(self, name: str, what: str, fits: Callable[[type], bool]) -> Any:
        module, _, qualname = name.partition(":")
        found: Any = sys.modules.get(module) if module.partition(".")[0] in self._packages else None
        for part in qualname.split("."):
            found = None if found is None else vars(found).get(part)
        if not isinstance(found, type) or not fits(found) or _class_name(found) != name:
            raise StateMismatch(
                f"The saved state needs {name!r}, which is not {what} of the packages that this chain uses "
                f"({', '.join(sorted(self._packages))}). Load it with a chain equal to that which made it."
            )
        return found
