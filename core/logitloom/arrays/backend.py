"""Named array operations: an agnostic version of each, which a backend may override natively.

A :class:`Backend` is one array library on one device. Processors get the backend as ``context.backend`` and use
``backend.xp`` (an array API namespace) plus the operations below. The array API standard lacks these operations, or
libraries do them much faster natively. No operation changes library, dtype or device of an array.

Shapes: ``logits, x: [batch, vocab]``, ``tokens, index: [batch, n]``; -1 in ``tokens`` stands for nothing.
Nothing here depends on the values of arrays, so every operation can be traced by a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from logitloom.arguments import shown
from logitloom.errors import BackendMissing

__all__ = [
    "NEG_INF",
    "Array",
    "Backend",
    "BufferPool",
    "HostTable",
    "TokenIds",
    "backend_of",
    "library_of",
    "load_backends_with",
]

#: An array of any supported library. Array libraries share no base class, so the type is open.
Array = Any

#: The logit of a forbidden token: its probability is exactly 0.
NEG_INF = float("-inf")

#: The library by the root module of its array types, where the root module has another name than the library.
_LIBRARY_OF_ROOT = {"jaxlib": "jax"}


def library_of(array: object) -> str:
    """The name of the array library that ``array`` belongs to, by its type alone (nothing is imported).

    >>> library_of(np.zeros(3))
    'numpy'
    """
    return _library_of_type(type(array))


def _library_of_type(kind: type) -> str:
    root = kind.__module__.partition(".")[0]
    return _LIBRARY_OF_ROOT.get(root, root)


class TokenIds(Protocol):
    """A pair ``(allowed, ids)``; see :meth:`Backend.apply_token_rows`."""

    def __iter__(self) -> Iterator[Any]:
        """The two parts."""
        ...


class BufferPool(Protocol):
    """Buffers for masked logits, given by the caller; :class:`logitloom.masks.logits_pool.LogitsPool` is one."""

    def spread(self, values: Any, indices: Any, shape: tuple[int, int], forbidden: Any, kind: Any, make: Any) -> Any:
        """Values at their indices, and -inf everywhere else, in a buffer; None if none is free.

        Args:
            values: ``[n]`` in host memory, of the buffer's elements.
            indices: ``[n]``, of the flat buffer.
            shape: ``(batch, vocab)``.
            forbidden, kind, make: as for :meth:`masked`.
        """
        ...

    def masked(self, logits: Array, rows: Any, forbidden: Any, donate: bool, kind: Any, make: Any) -> Array | None:
        """The masked logits in a buffer, or None where a buffer does not pay or none is free.

        Args:
            logits: ``[batch, vocab]`` in host memory.
            rows: per row a mask, as for :meth:`Backend.apply_token_rows`.
            forbidden: the element that stands for -inf.
            donate: whether the caller may write into the logits instead.
            kind: the library's dtype of the logits.
            make: the type of buffers that the library needs.
        """
        ...


class SharedMemory(Protocol):
    """How NumPy works on the memory of another library's arrays.

    Attributes:
        backend: NumPy's.
    """

    backend: Backend

    def view(self, array: Any) -> NDArray[Any] | None:
        """A NumPy view of an array of the library; None if NumPy lacks the dtype or the argument is no array."""
        ...

    def array(self, view: NDArray[Any]) -> Array:
        """An array of the library in the memory of NumPy's."""
        ...

    def written(self, array: Array) -> None:
        """Tell the library that NumPy has written to an array."""
        ...


class Backend:
    """One array library on one device, with the named operations.

    Subclass it in a plug-in: set ``name`` and ``xp``, implement the placement methods, and override the
    operations for which the library has something faster. Every operation here is written against the array
    API standard, gives the same values as any override, and never modifies its inputs unless ``donate`` is
    true and the library can (donation is a permission, not a request).

    Instances are interned per device (:meth:`at`), so that identity can key caches.

    Args:
        device: the library's own device object, or None if the library has just one device.
    """

    #: The array API namespace of the library (a plain attribute: every processor reads it at every step).
    xp: Any
    #: Name of the library, also the name of the plug-in.
    name: str = ""
    #: The library's int32 dtype, if this object alone distinguishes the library's arrays from all other arrays.
    int32: Any = None
    #: Whether arrays of this backend live in host memory and reading single values is cheap.
    on_host: bool = False
    #: Whether a function can be compiled (:meth:`compile` does more than return it).
    compiles: bool = False
    #: Whether the library compiles each operation for each shape, and keeps it, also outside compiled functions. A
    #: processor of many operations then takes less memory and time as one compiled function.
    compiles_operations: bool = False
    #: Whether ``x[a:b] = y`` and ``x[i, :, j] = y``, with integer arrays ``i`` and ``j``, write into an array ``x``.
    assignable: bool = False
    #: Whether the library computes an array only when its values are read. The chain then computes its states after
    #: every step (:meth:`synchronize`); otherwise the expressions of the states would grow with every token.
    lazy: bool = False
    #: Whether :meth:`apply_token_rows` takes a pool.
    uses_buffer_pool: bool = False

    def __init__(self, device: Any = None) -> None:
        self.device = device
        self._peers: dict[Any, Backend] = {device: self}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{'' if self.device is None else f' on {self.device}'}>"

    def __deepcopy__(self, memo: Any) -> Backend:
        """Itself: it never changes."""
        return self

    def __reduce__(self) -> Any:
        """The pickle holds the name of the library and, if it is not the library's default, the device."""
        if _load_backend is None or not self.name:
            return super().__reduce__()
        default = _load_backend(self.name).device
        return _backend_again, (self.name, None if self.device == default else self.device)

    # -- placement ---------------------------------------------------------------------------------

    def at(self, device: Any) -> Backend:
        """The backend of the same library on another device; always the same object for one device.

        Args:
            device: the library's device object, or any spelling of it that the library knows (``"cuda"``).

        Raises:
            BackendMissing: if the library has no such device.
        """
        peer = self._peers.get(device)
        if peer is None:
            try:
                exact = self._exact_device(device)
                peer = self._peers.get(exact)
                peer = type(self)(exact) if peer is None else peer
            except Exception as error:  # each library has errors of its own
                why = str(error).partition("\n")[0].rstrip(".")
                raise BackendMissing(
                    f"The backend {self.name!r} has no device {shown(device)}: {why:.200}. Name a device that this "
                    f"machine has, or leave it out."
                ) from error
            peer._peers = self._peers
            self._peers[exact] = self._peers[device] = peer
        return peer

    def _exact_device(self, device: Any) -> Any:
        """A device in the spelling that :meth:`device_of` returns."""
        if device is not None and type(self).device_of is Backend.device_of:
            raise ValueError("its arrays have no devices")
        return device

    def device_of(self, array: Array) -> Any:
        """The library's device of an array; None where the library has just one."""
        return None

    def asarray(self, host: NDArray[Any] | Sequence[Any], dtype: str | None = None) -> Array:
        """Upload host data to a new array, so that writing into the array never changes the host's memory.

        Args:
            host: a NumPy array or nested sequence of numbers.
            dtype: an array API name such as ``"int32"``, or ``"bfloat16"``; default: the host data's own. A
                library without 64-bit types stores 64-bit data in 32 bits.
        """
        return self.xp.asarray(np.asarray(host, dtype=dtype), copy=True)

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """Download an array. bfloat16, which NumPy lacks, arrives as float32. Waits for pending work.

        The result may share memory with the array: copy it to keep it beyond the array's next change.
        """
        return np.asarray(array)

    def has_values(self, array: Array) -> bool:
        """Whether an array has values that can be downloaded now. An array that a compiler traces has no values."""
        return True

    def is_floating(self, array: Array) -> bool:
        """Whether the dtype of an array is a real floating one in which the library computes, and that has -inf."""
        return bool(self.xp.isdtype(array.dtype, "real floating"))

    def cast(self, array: Array, dtype: str) -> Array:
        """The array with a dtype given by its array API name; the same array if the dtype is that already."""
        wanted = getattr(self.xp, dtype)
        return array if array.dtype == wanted else self.xp.astype(array, wanted)

    def at_least_float32(self, x: Array) -> Array:
        """``x`` in float32; float64 stays. No decision of a processor depends on rounding to 8 bits."""
        return x if x.dtype == self.xp.float64 else self.cast(x, "float32")

    def synchronize(self, *arrays: Array) -> None:
        """Wait until the arrays are computed (libraries with lazy or asynchronous execution)."""

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function compiled by the library, where it can; else the function itself."""
        return function

    def is_view(self, x: Array, of: Array) -> bool:
        """Whether writing to ``x`` would change ``of``, an array of the same shape."""
        return False

    def copied(self, x: Array, memory: Array | None = None) -> Array | None:
        """A writable copy of an array; None if the library cannot write into arrays, or not into arrays of this kind.

        Args:
            x: ``[n, ...]``.
            memory: an earlier copy of at least as many rows, which is overwritten.
        """
        return None

    # -- named operations ---------------------------------------------------------------------------

    def masked_fill(self, x: Array, mask: Array, value: float, donate: bool = False) -> Array:
        """``x`` with ``value`` where ``mask`` (broadcastable, bool) is true."""
        return self.xp.where(mask, self._scalar(value, x), x)

    def scale(self, x: Array, factor: float, donate: bool = False) -> Array:
        """``x * factor`` for a Python number; the dtype stays."""
        return x * factor

    def divide(self, x: Array, divisor: float, donate: bool = False) -> Array:
        """``x / divisor`` for a Python number; the dtype stays."""
        return x / divisor

    def add(self, x: Array, y: Array, donate: bool = False) -> Array:
        """``x + y`` in the dtype of ``x`` (``y`` is cast)."""
        return x + self._like(y, x)

    def softmax(self, x: Array) -> Array:
        """Probabilities over the last axis, float32 (float64 stays). A row of -inf gives a row of zeros."""
        shifted = self._shifted(x)
        e = self.xp.exp(shifted)
        return e / self._positive(self.xp.sum(e, axis=-1, keepdims=True))

    def log_softmax(self, x: Array) -> Array:
        """Log-probabilities over the last axis, float32 (float64 stays). A row of -inf stays -inf."""
        shifted = self._shifted(x)
        return shifted - self.xp.log(self._positive(self.xp.sum(self.xp.exp(shifted), axis=-1, keepdims=True)))

    def log_probability(self, x: Array, index: Array) -> Array:
        """The log-probabilities of some tokens only, float32 (float64 stays): ``[batch, n]``; of a row of -inf, -inf.

        Args:
            x: ``[batch, vocab]``.
            index: ``[batch, n]``, valid positions.
        """
        shifted = self._shifted(x)
        total = self._positive(self.xp.sum(self.xp.exp(shifted), axis=-1, keepdims=True))
        return self.gather(shifted, index) - self.xp.log(total)

    def sort_descending(self, x: Array) -> Array:
        """The last axis sorted, largest first."""
        return self.xp.flip(self.xp.sort(x, axis=-1), axis=-1)

    def argsort_descending(self, x: Array) -> Array:
        """Order of the last axis, largest first; equal values keep their order (stable)."""
        return self.xp.argsort(-x, axis=-1, stable=True)

    def kth_largest(self, x: Array, k: int) -> Array:
        """The k-th largest value of each row (``1 <= k <= vocab``): ``[batch, 1]``."""
        return self.sort_descending(x)[..., k - 1 : k]

    def nucleus_threshold(self, x: Array, p: float) -> Array:
        """The least logit of each row's nucleus: ``[batch, 1]``, for a vocabulary of two or more.

        In the nucleus are a row's most likely token, and every token with less than ``p`` of the mass before it, from
        the most likely down.
        """
        descending = self.sort_descending(x)
        above = self.xp.cumulative_sum(self.softmax(descending), axis=-1)[:, :-1]
        others = self.masked_fill(descending[:, 1:], above >= p, float("inf"))
        return self.xp.minimum(self.xp.min(others, axis=-1, keepdims=True), descending[:, :1])

    def mass_threshold(self, keys: Array, mass: Array, p: float) -> Array:
        """The largest key of each row such that the entries with this key or a larger key have ``p`` of the mass.

        Args:
            keys: ``[batch, vocab]``; of an entry without mass also -inf.
            mass: ``[batch, vocab]``, not negative.
            p: above 0.

        Returns:
            ``[batch, 1]``; -inf for a row that has less mass in all.
        """
        order = self.argsort_descending(keys)
        descending = self.gather(keys, order)
        upto = self.xp.cumulative_sum(self.gather(mass, order), axis=-1)
        return self.xp.max(self.masked_fill(descending, upto < p, NEG_INF), axis=-1, keepdims=True)

    def top_k(self, x: Array, k: int) -> tuple[Array, Array]:
        """The k largest values of each row, largest first, and their indices: two ``[batch, k]``.

        Among equal values the lower index comes first, on every library. The indices have the library's index
        dtype (a signed integer).
        """
        order = self.argsort_descending(x)[..., :k]
        return self.gather(x, order), order

    def survivors(self, x: Array, highest: int | None = None) -> Array | None:
        """The ids of the tokens that may be among the highest of each row: ``[batch, n]``, ascending.

        Shorter rows are padded with -1 at the end.

        Args:
            x: ``[batch, vocab]``.
            highest: how many of the highest logits survive; ties survive as well, also ties that rounding may make, and
                a few more tokens may survive. None: all that are not -inf.

        Returns:
            None where shapes cannot depend on values (on devices, in compiled loops), or where nothing is gained,
            because a row has a quarter of the vocabulary or more.
        """
        return None

    def shared_memory(self, logits: Array) -> SharedMemory | None:
        """The access of NumPy to the memory of such logits; None if it is impossible or not faster.

        Chains of operations get NumPy's views then.
        """
        return None

    def address(self, array: Array, dtype: str, written: bool = False) -> int | None:
        """The address at which a compiled loop may read the array; None if dtype, layout or device do not permit it.

        Args:
            array: an array of this library. Only C-contiguous arrays without gradients have an address.
            dtype: ``"float32"``, ``"int32"`` or ``"bool"``, the required dtype of the array.
            written: whether the loop writes to the array.
        """
        return None

    def take_rows(self, x: Array, index: Array) -> Array:
        """Rows ``index: [m]`` (host or native integers, never negative) of the leading axis."""
        return self.xp.take(x, self._native_index(index), axis=0)

    def concat_rows(self, arrays: Sequence[Array]) -> Array:
        """The arrays one after the other along the leading axis."""
        return self.xp.concat(list(arrays), axis=0)

    def gather(self, x: Array, index: Array) -> Array:
        """``x[b, index[b, j]]``: ``[batch, n]``. ``index`` holds valid positions (no -1), one row per row of ``x``."""
        return self.xp.take_along_axis(x, index, axis=-1)

    def add_at(self, x: Array, tokens: Array, value: float, donate: bool = False) -> Array:
        """``x`` with ``value`` added at each of a row's ``tokens``, once per occurrence.

        Negative tokens and tokens beyond the row are skipped.
        """
        columns = self.arange(x.shape[-1])[None, :]
        for j in range(tokens.shape[1]):
            hit = columns == tokens[:, j : j + 1]
            x = x + self._like(hit, x) * value
        return x

    def set_at(self, x: Array, tokens: Array, value: float | bool, donate: bool = False) -> Array:
        """``x`` with ``value`` at each of a row's ``tokens``; tokens that are negative or beyond the row are
        skipped.
        """
        columns = self.arange(x.shape[-1])[None, :]
        for j in range(tokens.shape[1]):
            hit = columns == tokens[:, j : j + 1]
            x = self.xp.where(hit, self._scalar(value, x), x)
        return x

    def update_where(
        self, x: Array, table: Array, function: Callable[[Array, Array], Array], donate: bool = False
    ) -> Array:
        """``x`` with ``function(x, table)`` where the table is not 0, or true.

        Args:
            x: ``[batch, vocab]``.
            table: ``[batch, vocab]``, bool or numbers, mostly 0.
            function: takes entries of both, as arrays of one shape, and returns new entries of ``x``, each from the two
                at its index.
            donate: whether ``x`` may be overwritten.
        """
        mask = table if table.dtype == self.xp.bool else table != 0
        return self.xp.where(mask, self._like(function(x, table), x), x)

    def fill_columns(self, x: Array, columns: Array, value: float, donate: bool = False) -> Array:
        """``x`` with ``value`` in the same ``columns: [n]`` (valid, distinct) of every row."""
        rows = self.xp.broadcast_to(columns[None, :], (x.shape[0], columns.shape[0]))
        return self.set_at(x, rows, value, donate)

    def write_at(self, x: Array, index: Array, values: Array, donate: bool = False) -> Array:
        """``x`` with ``x[b, index[b, j]] = values[b, j]``, values cast to the dtype of ``x``.

        An index that is negative or beyond the row is skipped. The other columns of a row are distinct, or their values
        agree: the library chooses which value wins.
        """
        values = self._like(values, x)
        columns = self.arange(x.shape[-1])[None, :]
        for j in range(index.shape[1]):
            hit = columns == index[:, j : j + 1]
            x = self.xp.where(hit, values[:, j : j + 1], x)
        return x

    def apply_token_mask(self, logits: Array, bits: Array, donate: bool = False) -> Array:
        """``logits`` with -inf where a token's bit is 0.

        Args:
            logits: ``[batch, vocab]``.
            bits: ``[batch, ceil(vocab / 32)] int32``; bit ``i % 32`` of word ``i // 32`` stands for token
                ``i``, 1 = allowed. Padding bits are ignored.
        """
        ids = self.arange(logits.shape[-1])
        words = self.xp.take(bits, ids >> 5, axis=1)
        allowed = self.xp.bitwise_and(self.xp.bitwise_right_shift(words, (ids & 31)[None, :]), self._one(words))
        return self.masked_fill(logits, allowed == 0, NEG_INF, donate)

    def apply_token_rows(
        self, logits: Array, rows: Sequence[TokenIds], donate: bool = False, pool: BufferPool | None = None
    ) -> Array:
        """``logits`` with -inf where a row's tokens are forbidden; the lists come from the host.

        Args:
            logits: ``[batch, vocab]``.
            rows: per row ``(allowed, ids)``: host ids that alone are allowed if ``allowed``, else that are
                forbidden. Whichever list is shorter costs less.
            donate: whether to write into ``logits`` where that is cheaper.
            pool: buffers that may hold the result; only for backends that declare ``uses_buffer_pool``.
        """
        forbidden = np.empty(tuple(logits.shape), dtype=np.bool_)
        for line, (allowed, ids) in zip(forbidden, rows, strict=True):
            line.fill(allowed)
            line[ids] = not allowed
        return self.masked_fill(logits, self.asarray(forbidden), NEG_INF, donate)

    def spread(
        self, values: Array, ids: Array, like: Array, donate: bool = False, pool: BufferPool | None = None
    ) -> Array:
        """Values at their ids, and -inf everywhere else.

        Args:
            values: ``[batch, n]``; in host memory, if ``like`` has an address (:meth:`address`) and the ids are there.
            ids: ``[batch, n]``, distinct in each row; -1 for none.
            like: ``[batch, vocab]``, for shape and dtype.
            donate: whether to write into ``like`` where that is cheaper.
            pool: buffers that may hold the result; only for backends that declare ``uses_buffer_pool``.

        Returns:
            ``[batch, vocab]``.
        """
        return self.write_at(self.xp.full_like(like, NEG_INF), ids, values, True)

    def apply_class_mask(self, logits: Array, allowed: Array, token_class: Array, donate: bool = False) -> Array:
        """``logits`` with -inf where the class of a token is not allowed.

        Args:
            logits: ``[batch, vocab]``.
            allowed: ``[batch, classes] bool``.
            token_class: ``[vocab] int32``, the class of each token.
        """
        mask = self.xp.take(allowed, token_class, axis=1)
        return self.masked_fill(logits, self.xp.logical_not(mask), NEG_INF, donate)

    def arange(self, stop: int) -> Array:
        """``0 .. stop - 1`` as int32 on this device."""
        return self.xp.arange(stop, dtype=self.xp.int32)

    # -- helpers for the agnostic versions ------------------------------------------------------------

    def _shifted(self, x: Array) -> Array:
        """``x`` in a wide type, less the largest entry of each row, so that ``exp`` does not overflow."""
        x = self.at_least_float32(x)
        top = self.xp.max(x, axis=-1, keepdims=True)
        return x - self.xp.where(top == NEG_INF, self._scalar(0.0, x), top)

    def _positive(self, total: Array) -> Array:
        """Sums of exponentials, 1 for those of a row of -inf."""
        return self.xp.where(total == 0, self._scalar(1.0, total), total)

    def _like(self, y: Array, x: Array) -> Array:
        return y if y.dtype == x.dtype else self.xp.astype(y, x.dtype)

    def _scalar(self, value: float | bool, x: Array) -> Array:
        return self.xp.full((), value, dtype=x.dtype)

    def _one(self, x: Array) -> Array:
        return self._scalar(1, x)

    def _native_index(self, index: Array) -> Array:
        return self.asarray(index, "int32") if isinstance(index, (np.ndarray, list, tuple)) else index


class HostTable:
    """A read-only host array that is uploaded once per backend and shared by all sequences.

    Tables belong to processors, never to states. ``init_state`` calls :meth:`on` once; ``process`` then finds the
    upload done, also while a compiler traces ``process``.

    Example:
        >>> from logitloom.host.registry import load_backend
        >>> table = HostTable(np.arange(3, dtype=np.int32))
        >>> backend = load_backend("numpy")
        >>> table.on(backend) is table.on(backend)
        True
    """

    __slots__ = ("_placed", "host")

    def __init__(self, host: NDArray[Any]) -> None:
        self.host = np.ascontiguousarray(host)
        self.host.flags.writeable = False
        self._placed: dict[Backend, Array] = {}

    def on(self, backend: Backend) -> Array:
        """The table as an array of that backend."""
        placed = self._placed.get(backend)
        if placed is None:
            placed = self._placed[backend] = backend.asarray(self.host)
        return placed


_BACKEND_OF_TYPE: dict[type, Backend] = {}

#: Gives the backend of a library by the library's name.
_load_backend: Callable[[str], Backend] | None = None


def load_backends_with(load: Callable[[str], Backend]) -> None:
    """Set the function that :func:`backend_of` calls when it sees an array library for the first time.

    :mod:`logitloom.host.registry` sets :func:`~logitloom.host.registry.load_backend` when the module is imported.

    Args:
        load: takes the name of a library; raises :class:`~logitloom.errors.BackendMissing` where there is no backend.
    """
    global _load_backend
    _load_backend = load
    forget_types()


def forget_types() -> None:
    """Ask for the backend of every array type again (after a plug-in was registered or installed)."""
    _BACKEND_OF_TYPE.clear()


def backend_of(array: Array) -> Backend:
    """The backend of an array, on the array's device. The backend is looked up once per array type.

    Raises:
        BackendMissing: if no installed backend handles arrays of that library.
    """
    backend = _BACKEND_OF_TYPE.get(type(array))
    if backend is None:
        backend = _BACKEND_OF_TYPE[type(array)] = _find_backend(type(array))
    return backend.at(backend.device_of(array))


def _backend_again(name: str, device: Any) -> Backend:
    """The backend of this process for the name and device of a pickled backend."""
    assert _load_backend is not None, "Importing logitloom sets it."
    backend = _load_backend(name)
    return backend if device is None else backend.at(device)


def _find_backend(kind: type) -> Backend:
    assert _load_backend is not None, "Importing logitloom sets it."
    refusal: BackendMissing | None = None
    # Array classes can be derived from a library's array type in other modules, so the base classes are examined, too.
    for library in dict.fromkeys(_library_of_type(base) for base in kind.__mro__[:-1] or (kind,)):
        try:
            return _load_backend(library)
        except BackendMissing as error:
            refusal = refusal or error
    raise BackendMissing(
        f"Got an array of type {kind.__module__}.{kind.__qualname__}, which no backend handles. {refusal}"
    )
