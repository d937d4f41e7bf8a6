"""PyTorch backend: CPU, CUDA and whatever else PyTorch runs on.

No operation waits for the device: there is no boolean indexing, no ``nonzero`` and no ``item``, except on the CPU,
where there is nothing to wait for. Logits that require gradients keep their gradients: nothing is written into such a
tensor, even if it is donated. Thresholds that are only compared with carry no gradients. On machines without an
accelerator, the tests use PyTorch's device ``meta`` instead.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import array_api_compat.torch as compat
import numpy as np
import torch
from numpy.typing import NDArray

from logitloom import Array, Backend
from logitloom.arrays.backend import NEG_INF, BufferPool, SharedMemory, TokenIds
from logitloom.errors import InvalidContext
from logitloom_plugins.backends._highest_logits import kth_largest, survivors
from logitloom_plugins.backends._host_buffer import HostBuffer
from logitloom_plugins.backends._host_rows import mask_host_rows
from logitloom_plugins.backends._log_probability import log_probability
from logitloom_plugins.backends._nucleus import LEAST_VOCAB, mass_threshold, nucleus_threshold
from logitloom_plugins.backends._set_positions import set_positions, set_tokens, spread_positions
from logitloom_plugins.backends.numpy import NumpyBackend

__all__ = ["TorchBackend", "TorchPlugin"]

#: Creation functions of the array API; each backend binds them to its device.
_CREATION = ("arange", "asarray", "empty", "eye", "full", "linspace", "ones", "zeros")

#: Dtypes that NumPy sorts many times faster than PyTorch does on the CPU.
_NUMPY_SORTS = frozenset({torch.float32, torch.float64})

#: Dtypes of 16 bits; PyTorch sorts them on the CPU many times slower than NumPy sorts their numbers in 32 bits.
_HALVES = frozenset({torch.float16, torch.bfloat16})

#: Dtypes of which NumPy writes single entries with less overhead per call.
_SHARED = _NUMPY_SORTS | {torch.bool}

_READ = {"bool": torch.bool, "float32": torch.float32, "int32": torch.int32}

#: The bits of -inf in bfloat16, as a signed integer.
_BFLOAT16_NEG_INF = -128

#: The number of the innermost transform of ``torch.func`` that runs, None outside of all; PyTorch has no public name
#: for it. Tensors of a transform have no memory of their own.
_transform: Callable[[], int | None] = torch._C._functorch.maybe_current_level

#: How many tensors and views hold a storage. PyTorch needs the count for CUDA graphs and has no public name for it;
#: without the count no buffer is used again.
_use_count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)


class TorchBackend(Backend):
    """PyTorch tensors on one device.

    Args:
        device: a ``torch.device``; default: PyTorch's own default.
    """

    name = "torch"
    assignable = True
    int32 = torch.int32
    compiles = True

    def __init__(self, device: torch.device | None = None) -> None:
        device = self._exact_device(torch.get_default_device() if device is None else device)
        super().__init__(device)
        self.on_host = self.uses_buffer_pool = device.type == "cpu"
        #: Kernels (modules ``_torch_masks``, ``_torch_nucleus``); None where Triton compiles for no device.
        self.masks, self.nuclei = _kernels(device, "masks"), _kernels(device, "nucleus")
        self.xp = _namespace(device)
        self._bit = torch.from_numpy((np.uint32(1) << np.arange(32, dtype=np.uint32)).view(np.int32)).to(device)
        # Entry b: 8 bytes, 1 where bit i of b is 0, read as one 64-bit number.
        octets = np.arange(256, dtype=np.uint8)[:, None] >> np.arange(8, dtype=np.uint8)
        self._cleared = torch.from_numpy((octets & 1 == 0).view(np.int64)[:, 0]).to(device)

    def _exact_device(self, device: Any) -> torch.device:
        device = torch.device(device)
        if device.type == "cpu":
            return torch.device("cpu")
        return device if device.index is not None else torch.empty(0, device=device).device

    def device_of(self, array: Array) -> Any:
        """The tensor's ``torch.device``."""
        return array.device

    def asarray(self, host: NDArray[Any] | Sequence[Any], dtype: str | None = None) -> Array:
        """One copy in host memory, or one transfer to the device."""
        if isinstance(host, np.ndarray) and host.dtype.kind == "V" and host.dtype.name == "bfloat16":
            tensor = torch.from_numpy(np.array(host).view(np.int16)).view(torch.bfloat16)
            if dtype is not None:
                tensor = tensor.to(getattr(torch, dtype))
        elif dtype == "bfloat16":
            tensor = torch.from_numpy(np.array(host)).to(torch.bfloat16)
        else:
            tensor = torch.from_numpy(np.array(host, dtype=dtype))
        # A table may be made while a transform runs, and must not belong to it.
        tensor = tensor if self.on_host else tensor.to(self.device)
        return tensor if _transform() is None else _unwrapped(tensor)

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """A view of CPU memory, or a transfer from the device.

        Raises:
            InvalidContext: the array is on the device ``meta``, which holds no values, or ``torch.func.vmap`` maps over
                the array.
        """
        array = _detached(array)
        if array.is_meta:
            raise InvalidContext(
                "A tensor on the device meta has no values, and this step reads some. Give logits on a device that "
                "computes."
            )
        if _transform() is not None:
            return _listed(array)
        if array.dtype is torch.bfloat16:
            array = array.float()
        result: NDArray[Any] = array.cpu().numpy()
        return result

    def has_values(self, array: Array) -> bool:
        """Not on the device ``meta``, and not while a graph is captured or a transform of ``torch.func`` runs."""
        return not (array.is_meta or torch.compiler.is_compiling() or _transform() is not None)

    def is_floating(self, array: Array) -> bool:
        """PyTorch's own test; types of 8 bits are for storage."""
        return bool(array.dtype.is_floating_point and array.dtype.itemsize > 1)

    def cast(self, array: Array, dtype: str) -> Array:
        """The tensor itself if it has the dtype."""
        wanted = getattr(torch, dtype)
        return array if array.dtype is wanted else array.to(wanted)

    def synchronize(self, *arrays: Array) -> None:
        """Wait for the device."""
        if not self.on_host:
            torch.accelerator.synchronize(self.device)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``torch.compile(fullgraph=True)``: one graph, or an error that names the statement that broke the graph."""
        compiled: Callable[..., Any] = torch.compile(function, fullgraph=True)
        return compiled

    def is_view(self, x: Array, of: Array) -> bool:
        """By the first address of both."""
        return not _traced() and bool(x.untyped_storage().data_ptr() == of.untyped_storage().data_ptr())

    def copied(self, x: Array, memory: Array | None = None) -> Array | None:
        """The given memory again, which spares the pages of a fresh tensor; nothing is written into gradients."""
        if x.requires_grad or _traced():
            return None
        copy = torch.empty(x.shape, dtype=x.dtype, device=x.device) if memory is None else memory[: len(x)]
        return copy.copy_(x)

    def masked_fill(self, x: Array, mask: Array, value: float, donate: bool = False) -> Array:
        """In place when donated; on the CPU by NumPy, which takes half the time."""
        if donate and _writable(x):
            if not self._shared(x) or not mask.numel():
                return x.masked_fill_(mask, value)
            np.copyto(x.numpy(), value, where=mask.numpy())
            return _changed(x)
        return torch.where(mask, value, x)

    def scale(self, x: Array, factor: float, donate: bool = False) -> Array:
        """In place when donated."""
        return x.mul_(factor) if donate and _writable(x) else x * factor

    def divide(self, x: Array, divisor: float, donate: bool = False) -> Array:
        """In place when donated."""
        return x.div_(divisor) if donate and _writable(x) else x / divisor

    def add(self, x: Array, y: Array, donate: bool = False) -> Array:
        """In place when donated."""
        y = y.to(x.dtype)
        return x.add_(y) if donate and _writable(x) and not y.requires_grad else x + y

    def softmax(self, x: Array) -> Array:
        """The fused kernel, which widens as it reads; rows of -inf are mended afterwards."""
        return self._mend_dead_rows(torch.softmax(x, -1, dtype=_wide(x)), x, 0.0)

    def log_softmax(self, x: Array) -> Array:
        """The fused kernel, which widens as it reads; rows of -inf are mended afterwards."""
        return self._mend_dead_rows(torch.log_softmax(x, -1, dtype=_wide(x)), x, NEG_INF)

    def _mend_dead_rows(self, result: Array, x: Array, value: float) -> Array:
        # On the CPU a check for dead rows costs less than a pass over the vocabulary; on a device the host would have
        # to wait for it. A dead row is not-a-number throughout, so the check reads the first column alone.
        if self.on_host and not _traced():
            told = float(_detached(result)[..., 0].sum())
            if told == told:
                return result
        dead = x.amax(-1, keepdim=True) == NEG_INF
        return torch.where(dead, value, result) if result.requires_grad else result.masked_fill_(dead, value)

    def sort_descending(self, x: Array) -> Array:
        """The native sort; on the CPU NumPy's vectorised sort, of half types in 32 bits."""
        if not self.on_host or _traced() or x.requires_grad or x.dtype not in _NUMPY_SORTS | _HALVES:
            return torch.sort(x, dim=-1, descending=True).values
        if x.dtype in _HALVES:
            return self.sort_descending(x.float()).to(x.dtype)
        ascending = np.sort(x.numpy(), axis=-1)
        return torch.from_numpy(np.ascontiguousarray(ascending[..., ::-1]))

    def argsort_descending(self, x: Array) -> Array:
        """The native stable sort."""
        return torch.sort(_detached(x), dim=-1, descending=True, stable=True).indices

    def kth_largest(self, x: Array, k: int) -> Array:
        """Selection without ordering the selected; on the CPU NumPy's, on the same memory."""
        x = _detached(x)
        if k == 1:
            return x.amax(-1, keepdim=True)
        if self._shared(x):
            return torch.from_numpy(kth_largest(x.numpy(), k))
        return torch.topk(x, k, dim=-1, sorted=False).values.amin(-1, keepdim=True)

    def nucleus_threshold(self, x: Array, p: float) -> Array:
        """On CUDA one kernel; on the CPU no sort of the vocabulary, if it is large enough for a sort to cost more."""
        x = _detached(x)
        if self.nuclei is not None and x.dtype in self.nuclei.DTYPES and _fits_kernels(x):
            return self.nuclei.nucleus_threshold(x, p)
        if self.on_host and x.dtype in _HALVES and not _traced():
            return self.nucleus_threshold(x.float(), p).to(x.dtype)
        if not self._shared(x) or (x.shape[-1] < LEAST_VOCAB and len(x) > 1):
            return super().nucleus_threshold(x, p)
        return torch.from_numpy(nucleus_threshold(x.numpy(), p))

    def mass_threshold(self, keys: Array, mass: Array, p: float) -> Array:
        """On the CPU without a sort of the vocabulary, where that is large enough to matter."""
        if not self._shared(keys) or keys.shape[-1] < LEAST_VOCAB:
            return super().mass_threshold(keys, mass, p)
        return torch.from_numpy(mass_threshold(_detached(keys).numpy(), _detached(mass).numpy(), p))

    def survivors(self, x: Array, highest: int | None = None) -> Array | None:
        """On the CPU NumPy's, on the same memory."""
        if not self._shared(x):
            return None
        found = survivors(_detached(x).numpy(), highest)
        return None if found is None else torch.from_numpy(found)

    def shared_memory(self, logits: Array) -> SharedMemory | None:
        """On the CPU NumPy's calls cost a third of PyTorch's."""
        return _MEMORY if self._shared(logits) and _writable(logits) else None

    def address(self, array: Array, dtype: str, written: bool = False) -> int | None:
        """The address of the tensor's memory, on the CPU."""
        if not self.on_host or array.dtype is not _READ[dtype] or array.requires_grad or array.is_neg():
            return None
        if _traced() or not array.is_contiguous():
            return None
        return int(array.data_ptr())

    def log_probability(self, x: Array, index: Array) -> Array:
        """The fused sum of exponentials; on the CPU NumPy's, on the same memory."""
        if self._shared(x) and not x.requires_grad:
            return torch.from_numpy(log_probability(x.numpy(), index.numpy()))
        x = x.to(_wide(x))
        total = torch.logsumexp(x, -1, keepdim=True)
        return torch.gather(x, -1, index.long()) - torch.where(total == NEG_INF, 0.0, total)

    def _shared(self, x: Array) -> bool:
        """Whether NumPy can look at the tensor's memory, and is faster at it."""
        return self.on_host and x.dtype in _NUMPY_SORTS and not _traced()

    def top_k(self, x: Array, k: int) -> tuple[Array, Array]:
        """Two selections: of values, then of the first indices that hold the smallest of them."""
        if k == 1:
            values, index = x.max(-1, keepdim=True)
            return values, index
        vocab = x.shape[-1]
        if k * 8 >= vocab:
            values, index = torch.sort(x, dim=-1, descending=True, stable=True)
            return values[..., :k], index[..., :k]
        # topk may select any of several equal values, and in any order. Above the smallest selected value all are
        # selected, so only the order is open; among the smallest take the first.
        values, index = torch.topk(x, k, dim=-1)
        smallest = values[..., -1:]
        ids = torch.arange(vocab, dtype=torch.int32, device=x.device)
        ties = torch.topk(torch.where(x == smallest, ids, vocab - 1), k, dim=-1, largest=False).values.long()
        above = values > smallest
        position = torch.arange(k, device=x.device) - above.sum(-1, keepdim=True)
        index = torch.where(above, index, ties.gather(-1, position.clamp(min=0)))
        index = index.sort(-1).values
        values, order = torch.sort(x.gather(-1, index), dim=-1, descending=True, stable=True)
        return values, index.gather(-1, order)

    def take_rows(self, x: Array, index: Array) -> Array:
        """The native selection, which takes 32-bit indices as they are."""
        if not isinstance(index, torch.Tensor):
            index = self.asarray(index, "int32")
        return torch.index_select(x, 0, index)

    def concat_rows(self, arrays: Sequence[Array]) -> Array:
        """The native concatenation."""
        return torch.cat(list(arrays))

    def gather(self, x: Array, index: Array) -> Array:
        """The native gather."""
        return torch.gather(x, -1, index.long())

    def add_at(self, x: Array, tokens: Array, value: float, donate: bool = False) -> Array:
        """One scatter; skipped tokens add nothing to token 0."""
        if _transform() is not None:
            return super().add_at(x, tokens, value)
        if self._all_valid(tokens, x.shape[-1]):
            amount = torch.full(tokens.shape, value, dtype=x.dtype)
            return _target(x, donate).scatter_add_(1, tokens.long(), amount)
        valid, index = _valid(tokens, x.shape[-1])
        amount = torch.where(valid, value, torch.zeros((), dtype=x.dtype, device=x.device))
        return _target(x, donate).scatter_add_(1, index, amount)

    def set_at(self, x: Array, tokens: Array, value: float | bool, donate: bool = False) -> Array:
        """One scatter; a skipped token repeats the write of another token of its row."""
        # Entries that are written twice would get their gradient twice.
        if x.requires_grad or _transform() is not None:
            return super().set_at(x, tokens, value)
        target = _target(x, donate)
        if tokens.shape[1] == 0:
            return target
        if self.on_host and x.dtype in _SHARED and not _traced():
            set_tokens(target.numpy(), tokens.numpy(), value)
            return _changed(target)
        if self._all_valid(tokens, x.shape[-1]):
            return target.scatter_(1, tokens.long(), value)
        valid, index = _valid(tokens, x.shape[-1])
        anchor = index.amax(1, keepdim=True)
        # index is 0 where it is not valid, so the maximum is a valid index of the row unless the row has none.
        written = torch.where(valid.any(1, keepdim=True), value, target[:, :1])
        return target.scatter_(1, torch.where(valid, index, anchor), written.to(x.dtype).expand(index.shape))

    def update_where(
        self, x: Array, table: Array, function: Callable[[Array, Array], Array], donate: bool = False
    ) -> Array:
        """On the CPU touches only the entries of the table that are set, which NumPy finds in the same memory."""
        if not self.on_host or x.requires_grad or _traced():
            return super().update_where(x, table, function)
        target = _target(x, donate and x.is_contiguous()).contiguous()
        flags = table.reshape(-1).numpy()
        position = set_positions(flags)
        if x.dtype not in _NUMPY_SORTS:
            flat, index = target.view(-1), torch.from_numpy(position)
            changed = function(flat.index_select(0, index), torch.from_numpy(flags.take(position)))
            return flat.index_copy_(0, index, changed.to(x.dtype)).view(target.shape)
        memory = target.numpy().reshape(-1)
        changed = function(torch.from_numpy(memory.take(position)), torch.from_numpy(flags.take(position)))
        memory[position] = changed.numpy()
        _changed(target)
        return target

    def fill_columns(self, x: Array, columns: Array, value: float, donate: bool = False) -> Array:
        """The native fill along an axis."""
        if _transform() is not None:
            return super().fill_columns(x, columns, value)
        return _target(x, donate).index_fill_(-1, columns.long(), value)

    def write_at(self, x: Array, index: Array, values: Array, donate: bool = False) -> Array:
        """One scatter; a skipped entry repeats the write of another entry of its row."""
        if x.requires_grad or values.requires_grad or _transform() is not None:  # as in set_at
            return super().write_at(x, index, values)
        target = _target(x, donate)
        if index.shape[1] == 0:
            return target
        values = values.to(x.dtype).expand(index.shape)
        if self._all_valid(index, x.shape[-1]):
            return target.scatter_(1, index.long(), values)
        valid, position = _valid(index, x.shape[-1])
        if position.shape[1] > 1:
            first = valid.to(torch.int8).argmax(1, keepdim=True)
            position = torch.where(valid, position, position.gather(1, first))
            values = torch.where(valid, values, values.gather(1, first))
            valid = valid.any(1, keepdim=True)
        return target.scatter_(1, position, torch.where(valid, values, target.gather(1, position)))

    def _all_valid(self, tokens: Array, vocab: int) -> bool:
        """Whether no token has to be skipped, where that can be asked without waiting for a device."""
        if not self.on_host or _traced() or tokens.numel() == 0:
            return False
        lowest, highest = tokens.aminmax()
        return bool(lowest >= 0 and highest < vocab)

    def apply_token_mask(self, logits: Array, bits: Array, donate: bool = False) -> Array:
        """On the CPU eight tokens at a time through a table; on CUDA one kernel; else one fusible expression."""
        vocab, (batch, words) = logits.shape[-1], bits.shape
        if self.on_host and _transform() is None:
            octets = bits.reshape(-1).view(torch.uint8).to(torch.int32)
            banned = torch.index_select(self._cleared, 0, octets).view(torch.bool).view(batch, words * 32)
        elif self.masks is not None and _fits_kernels(logits):
            return self.masks.apply_token_mask(logits, bits, donate and _writable(logits))
        else:
            banned = (torch.bitwise_and(bits[:, :, None], self._bit) == 0).view(batch, words * 32)
        return self.masked_fill(logits, banned[:, :vocab], NEG_INF, donate)

    def apply_class_mask(self, logits: Array, allowed: Array, token_class: Array, donate: bool = False) -> Array:
        """On CUDA one kernel."""
        if self.masks is not None and _fits_kernels(logits):
            return self.masks.apply_class_mask(logits, allowed, token_class, donate and _writable(logits))
        return super().apply_class_mask(logits, allowed, token_class, donate)

    def apply_token_rows(
        self, logits: Array, rows: Sequence[TokenIds], donate: bool = False, pool: BufferPool | None = None
    ) -> Array:
        """On the CPU through a NumPy view of the same memory, without PyTorch's cost per call."""
        if not self.on_host:
            return super().apply_token_rows(logits, rows, donate)
        if logits.requires_grad or _transform() is not None:
            return super().apply_token_rows(logits, rows)
        x = logits
        dtype = x.dtype
        narrow = dtype is torch.bfloat16
        # This method is never compiled, so it need not ask whether a compiler runs.
        donate = donate and (not x.is_inference() or torch.is_inference_mode_enabled())
        forbidden = _BFLOAT16_NEG_INF if narrow else NEG_INF
        if pool is not None and _use_count is not None:
            masked = pool.masked(x, rows, forbidden, donate, dtype, _TorchBuffer)
            if masked is not None:
                return masked
        masked = mask_host_rows(_TorchBuffer.view(x), rows, forbidden, donate)
        if donate:
            return x  # written to, through the same memory
        return torch.from_numpy(masked).view(dtype) if narrow else torch.from_numpy(masked)

    def spread(
        self, values: Array, ids: Array, like: Array, donate: bool = False, pool: BufferPool | None = None
    ) -> Array:
        """On the CPU NumPy's, on the same memory."""
        if not isinstance(values, np.ndarray):
            if not self._shared(like) or like.requires_grad or values.requires_grad:
                return super().spread(values, ids, like)
            values, ids = values.numpy(), ids.numpy()
        kept, positions = spread_positions(values, ids, like.shape[1])
        if pool is not None and _use_count is not None:
            out = pool.spread(kept, positions, tuple(like.shape), NEG_INF, like.dtype, _TorchBuffer)
            if out is not None:
                return out
        out = like if donate and like.is_contiguous() and _writable(like) else torch.empty_like(like).contiguous()
        flat = out.fill_(NEG_INF).view(-1)
        flat.index_copy_(0, torch.from_numpy(positions).to(torch.int64), torch.from_numpy(kept))
        return out

    def arange(self, stop: int) -> Array:
        """The native range."""
        return torch.arange(stop, dtype=torch.int32, device=self.device)

    def _scalar(self, value: float | bool, x: Array) -> Array:
        return torch.full((), value, dtype=x.dtype, device=x.device)


class _NumpyMemory:
    """NumPy on the memory of CPU tensors."""

    backend: Backend = NumpyBackend()

    @staticmethod
    def view(array: Any) -> NDArray[Any] | None:
        """None for bfloat16, which NumPy lacks."""
        if not isinstance(array, torch.Tensor) or array.dtype is torch.bfloat16 or array.requires_grad:
            return None
        seen: NDArray[Any] = array.numpy()
        return seen

    @staticmethod
    def array(view: NDArray[Any]) -> Array:
        """A tensor that keeps the memory alive."""
        return torch.from_numpy(view)

    @staticmethod
    def written(array: Array) -> None:
        """PyTorch counts the changes of a tensor."""
        _changed(array)


_MEMORY = _NumpyMemory()


class _TorchBuffer(HostBuffer):
    """A buffer that is handed out as tensors."""

    def __init__(self, rows: int, vocab: int, forbidden: Any, kind: torch.dtype) -> None:
        self._tensor: Array = None
        super().__init__(rows, vocab, forbidden, kind)
        with torch.inference_mode(False):  # tensors of inference mode do not count their changes
            self._tensor = torch.from_numpy(self.memory).view(kind)
        self._storage = self._tensor.untyped_storage()._cdata
        self._version = self._tensor._version
        self._alone = self.holders()

    @staticmethod
    def element(kind: torch.dtype) -> np.dtype[Any]:
        """Bits of bfloat16."""
        return _TorchBuffer.view(torch.empty(0, dtype=kind)).dtype

    @staticmethod
    def view(logits: Array) -> NDArray[Any]:
        """The same memory; bits of bfloat16."""
        seen: NDArray[Any] = (logits.view(torch.int16) if logits.dtype is torch.bfloat16 else logits).numpy()
        return seen

    @staticmethod
    def packed(logits: Array) -> tuple[Array, int]:
        """PyTorch's own address."""
        if not logits.is_contiguous():
            logits = logits.contiguous()
        return logits, logits.data_ptr()

    def holders(self) -> int:
        """All views of a tensor, NumPy's too, hold its storage."""
        return 0 if self._tensor is None or _use_count is None else _use_count(self._storage)

    def lend(self, rows: int) -> Array:
        """A tensor that shares storage and count of changes, but is another object."""
        self._version = self._tensor._version
        return self._tensor[:rows] if rows < len(self.memory) else self._tensor.detach()

    @property
    def is_untouched(self) -> bool:
        """Whether the tensor's count of changes is unchanged."""
        return bool(self._tensor._version == self._version)


def _kernels(device: torch.device, name: str) -> Any:
    # Builds of PyTorch for CUDA or ROCm bring Triton along.
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return None
    return importlib.import_module(f"logitloom_plugins.backends._torch_{name}")


def _fits_kernels(logits: Array) -> bool:
    """Whether kernels may write these logits: a compiler fuses the plain expression, and gradients have to pass it."""
    return not (logits.requires_grad or _traced()) and logits.ndim == 2 and logits.stride(-1) == 1


def _traced() -> bool:
    """Whether tensors stand for others: a graph is captured, or a transform of ``torch.func`` runs."""
    return torch.compiler.is_compiling() or _transform() is not None


def _listed(x: Array) -> NDArray[Any]:
    """The values of a tensor in a transform of ``torch.func``, where each call gives a tensor without memory."""
    try:
        values = x.tolist()
    except RuntimeError as error:
        raise InvalidContext(
            "A tensor that torch.func.vmap maps over has no values, and this step reads some. Start with "
            "Context.start(..., compiled=True), which refuses the processors that read values, or give the chain all "
            "rows at once."
        ) from error
    dtype = "float32" if x.dtype is torch.bfloat16 else str(x.dtype).removeprefix("torch.")
    return np.array(values, dtype).reshape(x.shape)


def _unwrapped(x: Array) -> Array:
    """The tensor inside the wrappers of ``grad``, ``jvp`` and similar transforms of ``torch.func``."""
    while _transform() is not None and torch._C._functorch.is_gradtrackingtensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x


def _detached(x: Array) -> Array:
    return x.detach() if x.requires_grad else x


def _wide(x: Array) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _writable(x: Array) -> bool:
    """Whether a donated tensor can be written to: not with gradients, or from an inference mode that has ended.

    Nor in a transform of ``torch.func``, where a tensor may stand for several.
    """
    if x.requires_grad or _transform() is not None:
        return False
    # A compiler cannot ask; it handles in-position operations by itself.
    return torch.compiler.is_compiling() or not x.is_inference() or torch.is_inference_mode_enabled()


def _target(x: Array, donate: bool) -> Array:
    """The tensor to write to."""
    return x if donate and _writable(x) else x.clone()


def _changed(x: Array) -> Array:
    """The tensor, after NumPy wrote to its memory: PyTorch counts changes."""
    torch.autograd.graph.increment_version(x)
    return x


def _valid(tokens: Array, vocab: int) -> tuple[Array, Array]:
    """Which tokens are in the row, and their 64-bit indices, with 0 in place of all other tokens."""
    tokens = tokens.long()
    valid = (tokens >= 0) & (tokens < vocab)
    return valid, torch.where(valid, tokens, 0)


def _namespace(device: torch.device) -> SimpleNamespace:
    """Array API functions as plain attributes. They are copied, so that a compiler sees no look-ups."""
    names = [name for name in dir(compat) if not name.startswith("_")]
    functions = {name: getattr(compat, name) for name in names}
    functions.update({name: _on_device(functions[name], device) for name in _CREATION})
    functions["where"] = torch.where
    functions["cumulative_sum"] = _cumulative_sum
    functions["take_along_axis"] = _take_along_axis
    return SimpleNamespace(**functions)


def _on_device(create: Callable[..., Any], default: torch.device) -> Callable[..., Any]:
    def creating(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        return create(*args, device=default if device is None else device, **kwargs)

    creating.__name__, creating.__doc__ = create.__name__, create.__doc__
    return creating


def _cumulative_sum(x: Array, /, *, axis: int = 0, dtype: Any = None) -> Array:
    """Running sums along an axis, without the look-up of a namespace that array-api-compat does in each call."""
    return torch.cumsum(x, axis, dtype=dtype)


def _take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """Elements along an axis; unlike PyTorch's function this takes indices of any integer dtype."""
    return torch.take_along_dim(x, indices.long(), axis)


class TorchPlugin:
    """Entry point: makes the PyTorch backend of the default device."""

    def backend_adapter(self, library: str) -> Backend | None:
        """The PyTorch backend for ``"torch"``."""
        return TorchBackend() if library == "torch" else None
