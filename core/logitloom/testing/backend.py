"""The suite for array backends: placement, every named operation dtype by dtype, donation, devices, compilation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from logitloom.arrays.backend import Array, Backend, HostTable, backend_of, library_of
from logitloom.host import registry
from logitloom.masks.logits_pool import LogitsPool
from logitloom.masks.mask_row import MaskRow
from logitloom.testing._namespace_checks import FUNCTION_CHECKS, OPERATOR_CHECKS
from logitloom.testing._samples import (
    DONATING,
    INF,
    OPERATIONS,
    TOKENS,
    TOLERANCE,
    VOCAB,
    Agnostic,
    Host,
    added,
    masked_by_hand,
    order_of,
    packed,
    sample,
    softmax,
    written,
)
from logitloom.testing._tiny_model import tiny_logits, tiny_logits_by_hand
from logitloom.testing.array_namespace import FUNCTIONS, OPERATORS, missing_names
from logitloom.testing.compilation import compiled
from logitloom.testing.conformance import Conformance, backend_names, host, same

__all__ = ["BackendConformance"]


class BackendConformance(Conformance):
    """Tests of an array backend: each named operation against a plain oracle, the agnostic version, and NumPy.

    Attributes:
        backends: the names of the backends to test; None for all that are installed.
        devices: further devices (the library's spelling) on which placement is tested where they exist.

    Example:
        >>> from logitloom.testing import BackendConformance
        >>> class TestNumpy(BackendConformance):
        ...     backends = ("numpy",)
    """

    devices: ClassVar[tuple[Any, ...]] = ()
    cases: ClassVar[dict[str, Any]] = {}
    kind = "backends"

    _parameters = {  # noqa: RUF012 - read only
        "dtype": ("float32", "float16", "bfloat16"),
        "operation": tuple(OPERATIONS),
        "donating": tuple(DONATING),
        "batch": (0, 1, 4),
        "tokens": tuple(TOKENS),
        "function": tuple(FUNCTIONS),
        "operator": tuple(OPERATORS),
    }

    @classmethod
    def subjects(cls) -> list[str]:
        """The backends."""
        return backend_names() if cls.backends is None else list(cls.backends)

    # -- placement --------------------------------------------------------------------------------------

    def test_the_backend_knows_its_arrays(self, backend: Backend) -> None:
        """Arrays of a backend are of its library and device, and ``backend_of`` finds the backend of an array."""
        array = backend.asarray(np.zeros((2, 3), dtype=np.float32))
        assert library_of(array) == backend.name, f"An array of {backend.name!r} is of {library_of(array)!r}."
        assert backend_of(array) is backend
        assert backend.at(backend.device) is backend
        assert backend.at(backend.device_of(array)) is backend
        for made in (backend.xp.zeros((2,)), backend.xp.arange(3), backend.xp.asarray([1.0]), backend.arange(3)):
            assert backend_of(made) is backend, "A function of the namespace makes arrays on another device."

    def test_uploads_are_copies_of_their_dtype(self, backend: Backend) -> None:
        """``asarray`` and ``to_numpy`` keep values and dtypes and share no memory with the host's array."""
        for dtype in ("float32", "float16", "int32", "int8", "uint8", "bool"):
            if not hasattr(backend.xp, dtype):
                continue  # half types are not in the standard
            given = np.ones((8, 8), dtype=dtype)
            array = backend.asarray(given)
            given[:] = 0
            assert array.dtype == getattr(backend.xp, dtype), f"{dtype} became {array.dtype}."
            plain = host(backend, array)
            assert plain.dtype == given.dtype, f"{dtype} came back as {plain.dtype}."
            assert plain.all(), f"The uploaded {dtype} array changed with the host's array."
            assert backend.asarray([[0, 1], [1, 0]], dtype).dtype == getattr(backend.xp, dtype)
        fixed = np.arange(6, dtype=np.float32)
        fixed.flags.writeable = False
        same(host(backend, backend.asarray(fixed)), fixed, "A read-only array, uploaded")

    def test_arrays_can_be_assigned_to_where_that_is_declared(self, backend: Backend) -> None:
        """A slice, and entries that integer arrays name, are written into the very array; others stay.

        Troubleshooting: leave ``assignable`` false if the library's arrays cannot be written, or give copies.
        """
        if not backend.assignable:
            pytest.skip("the backend does not declare that arrays can be assigned to")
        expected = np.zeros((2, 3, 4), dtype=np.float32)
        array, new = backend.asarray(expected), np.arange(6, dtype=np.float32).reshape(2, 3)
        rows, columns = np.asarray([0, 1], dtype=np.int32), np.asarray([3, 1], dtype=np.int32)
        expected[:, :, :2] = 7.0
        expected[rows, :, columns] = new
        array[:, :, :2] = backend.asarray(np.full((2, 3, 2), 7.0, dtype=np.float32))
        array[backend.asarray(rows), :, backend.asarray(columns)] = backend.asarray(new)
        same(host(backend, array), expected, "An array after assignments to a slice and to entries")

    def test_dtypes_are_told_and_changed(self, backend: Backend) -> None:
        """``cast`` and ``is_floating`` know the floating dtypes; bfloat16 is downloaded as float32."""
        array = backend.asarray(np.zeros(3, dtype=np.float32))
        assert backend.cast(array, "float32") is array, "cast to the own dtype made another array."
        if hasattr(backend.xp, "float16"):
            assert backend.cast(array, "float16").dtype == backend.xp.float16
        assert backend.is_floating(array)
        assert not backend.is_floating(backend.cast(array, "int32"))
        if hasattr(backend.xp, "bfloat16"):
            array = backend.asarray([1.0, -2.5, -INF], "bfloat16")
            assert array.dtype == backend.xp.bfloat16
            assert backend.is_floating(array)
            assert backend.to_numpy(array).dtype == np.float32
            same(host(backend, array), [1.0, -2.5, -INF], "bfloat16 values, downloaded")

    def test_tables_are_uploaded_once(self, backend: Backend) -> None:
        """A ``HostTable`` has one array per backend, with the values of the table."""
        table = HostTable(np.arange(5, dtype=np.int32))
        assert table.on(backend) is table.on(backend)
        same(host(backend, table.on(backend)), table.host, "The table")

    def test_other_devices_have_backends_of_their_own(self, backend: Backend) -> None:
        """``at`` gives one backend per device, whose arrays are on that device."""
        for device in self.devices:
            there = backend.at(device)
            assert backend.at(device) is there
            assert there.at(backend.device) is backend
            assert backend_of(there.asarray(np.zeros(2, dtype=np.float32))) is there
            assert backend_of(there.xp.zeros((2,))) is there

    # -- the namespace ----------------------------------------------------------------------------------

    def test_the_namespace_has_every_name(self, backend: Backend) -> None:
        """``xp`` has the functions and dtypes that core, processors and the reference model use.

        Troubleshooting: all that are missing are named at once. ``xp`` may be any object with these names: a namespace
        of your own can take what the library has, and define the rest.
        """
        missing = missing_names(backend.xp)
        assert not missing, f"The namespace of {backend.name!r} lacks {len(missing)} names: {', '.join(missing)}."

    def test_functions_of_the_namespace_give_what_the_standard_says(self, backend: Backend, function: str) -> None:
        """Each function in the forms that are used: values, shapes, dtypes, broadcasting.

        Troubleshooting: ``logitloom.testing.array_namespace.FUNCTIONS`` tells the forms. Where the library
        differs, give ``xp`` a function of your own that calls the library's.
        """
        if function in missing_names(backend.xp):
            pytest.skip(f"the namespace has no {function}, as test_the_namespace_has_every_name says")
        self._as_told(backend, FUNCTION_CHECKS[function])

    def test_operators_of_arrays_give_what_the_standard_says(self, backend: Backend, operator: str) -> None:
        """Arithmetic, comparisons, indexing and attributes: ``logitloom.testing.array_namespace.OPERATORS``."""
        self._as_told(backend, OPERATOR_CHECKS[operator])

    def test_a_tiny_model_gives_its_logits(self, backend: Backend) -> None:
        """A block of a transformer with buffers for keys and values, for rows of different lengths."""
        tokens = np.asarray([[1, 5, 10, 0, 3], [7, 7, -1, -1, -1], [2, -1, -1, -1, -1]], dtype=np.int32)
        lengths = np.asarray([5, 2, 1], dtype=np.int32)
        found = host(backend, tiny_logits(backend, tokens, lengths, capacity=8))
        same(found, tiny_logits_by_hand(tokens, lengths), "The logits of a tiny model", 1e-4)

    # -- operations -------------------------------------------------------------------------------------

    def test_arithmetic_keeps_the_dtype(self, backend: Backend, dtype: str, batch: int) -> None:
        """``masked_fill``, ``scale``, ``divide`` and ``add``."""
        x, plain = self._exact(backend, sample(batch), dtype)
        mask = np.random.default_rng(1).random(plain.shape) < 0.5
        for value in (-INF, 0.0, 1.5):
            found = self._unchanged(backend, partial(backend.masked_fill, mask=backend.asarray(mask), value=value), x)
            self._agree(backend, found, np.where(mask, value, plain), dtype, f"masked_fill with {value}")
        for row in (np.arange(VOCAB) % 3 == 0)[None], np.arange(batch)[:, None] % 2 == 0:
            found = backend.masked_fill(x, backend.asarray(row), 7.0)
            self._agree(backend, found, np.where(row, 7.0, plain), dtype, "masked_fill with a mask to broadcast")
        found = self._unchanged(backend, lambda a: backend.scale(a, 0.7), x)
        self._agree(backend, found, plain * 0.7, dtype, "scale")
        found = self._unchanged(backend, lambda a: backend.divide(a, 0.7), x)
        self._agree(backend, found, plain / 0.7, dtype, "divide")
        other = np.random.default_rng(2).normal(size=plain.shape).astype(np.float32)
        found = self._unchanged(backend, lambda a: backend.add(a, backend.asarray(other)), x)
        self._agree(backend, found, plain + other, dtype, "add")

    def test_probabilities_are_float32(self, backend: Backend, dtype: str, batch: int) -> None:
        """``softmax`` and ``log_softmax`` widen; a row of -inf gives zeros, or stays."""
        x, plain = self._exact(backend, sample(batch), dtype)
        few = np.asarray([[0, VOCAB - 1]] * batch, dtype=np.int32).reshape(batch, 2)
        told = backend.log_probability(x, backend.asarray(few))
        for found in (backend.softmax(x), backend.log_softmax(x), told):
            assert found.dtype == backend.xp.float32, f"Probabilities are {found.dtype}."
        self._agree(backend, backend.softmax(x), softmax(plain), "float32", "softmax")
        with np.errstate(divide="ignore"):
            logs = np.log(softmax(plain))
        self._agree(backend, backend.log_softmax(x), logs, "float32", "log_softmax")
        self._agree(backend, told, np.take_along_axis(logs, few, axis=1), "float32", "log_probability")

    def test_probabilities_survive_large_logits(self, backend: Backend) -> None:
        """Logits of any size give numbers."""
        x = backend.asarray(np.asarray([[1e38, 1e38, -1e38], [-1e38, -INF, -1e38]], dtype=np.float32))
        same(host(backend, backend.softmax(x)), [[0.5, 0.5, 0], [0.5, 0, 0.5]], "softmax of large logits", 1e-6)

    def test_marked_entries_are_updated(self, backend: Backend, dtype: str, batch: int) -> None:
        """``update_where`` changes the entries that a table of flags or counts marks, by the function it gets."""
        x, plain = self._exact(backend, sample(batch), dtype)
        counts = np.random.default_rng(8).integers(-9, 3, size=plain.shape).clip(min=0)
        for table in (counts > 0, counts.astype(np.float32)):
            marks = backend.asarray(table)
            change = partial(_lowered, backend)
            found = self._unchanged(backend, partial(backend.update_where, table=marks, function=change), x)
            self._agree(backend, found, np.where(counts > 0, plain - table * 1.0, plain), dtype, "update_where")

    def test_survivors_are_the_highest(self, backend: Backend, dtype: str, batch: int) -> None:
        """``survivors`` leaves out no token that is among the highest, and none that is possible at all."""
        _, plain = self._exact(backend, np.tile(sample(batch), (1, 30)), dtype)
        plain[:, 5 * VOCAB :] -= 10  # so that most of a row is below the highest
        plain[plain < -6] = -INF
        x = backend.asarray(plain.astype(np.float32))
        for highest in (1, 3, 40, None):
            found = backend.survivors(x, highest)
            if found is None:
                continue
            for line, ids in zip(plain, host(backend, found), strict=True):
                kept = ids[ids >= 0]
                assert (ids[: len(kept)] >= 0).all(), "A row of survivors has a gap."
                assert (np.diff(kept) > 0).all(), "Survivors are not in order of their ids."
                least = -INF if highest is None else -np.sort(-line)[highest - 1]
                lost = set(np.flatnonzero((line >= least) & (line > -INF))) - set(kept)
                assert not lost, f"With highest = {highest}, {len(lost)} survivors are missing."

    def test_the_border_of_a_mass_is_found(self, backend: Backend, dtype: str, batch: int) -> None:
        """``mass_threshold`` is the largest key such that the keys at least as large have the given mass; else -inf."""
        x, plain = self._exact(backend, sample(batch), dtype)
        share = np.full(plain.shape, 1.0 / 64, dtype=np.float32)  # adds up exactly
        mass = backend.asarray(share)
        for count in (1, 3, VOCAB):
            found = self._unchanged(backend, partial(backend.mass_threshold, mass=mass, p=count / 64), x)
            wanted = -np.sort(-plain, axis=-1)[:, count - 1 : count]
            self._agree(backend, found, wanted, dtype, "mass_threshold")
        least = host(backend, backend.mass_threshold(x, mass, (VOCAB + 1) / 64))
        assert (least == -INF).all(), "A row without enough mass has a border."

    def test_values_are_spread_over_a_row(self, backend: Backend, dtype: str, batch: int) -> None:
        """``spread`` writes values at their ids, and -inf everywhere else; ids of -1 are skipped."""
        x, plain = self._exact(backend, sample(batch), dtype)
        ids = np.asarray([[1, 4, VOCAB - 1], [0, 2, -1], [-1, -1, -1]] * 3, dtype=np.int32)[:batch]
        wanted = np.full_like(plain, -INF)
        for line, before, row in zip(wanted, plain, ids, strict=True):
            line[row[row >= 0]] = before[row[row >= 0]]
        values = backend.gather(x, backend.asarray(np.maximum(ids, 0)))
        values = backend.masked_fill(values, backend.asarray(ids < 0), -INF)
        found = self._unchanged(backend, lambda a: backend.spread(values, backend.asarray(ids), a), x)
        self._agree(backend, found, wanted, dtype, "spread")
        for pool in (None, LogitsPool()):
            given = backend.xp.asarray(x, copy=True)
            out = backend.spread(values, backend.asarray(ids), given, True, pool)
            self._agree(backend, out, wanted, dtype, "spread with donated logits")

    def test_order_is_stable(self, backend: Backend, dtype: str, batch: int) -> None:
        """``sort_descending``, ``argsort_descending``, ``kth_largest`` and ``top_k``: ties in order of their index."""
        x, plain = self._exact(backend, sample(batch), dtype)
        orders = np.asarray([order_of(line) for line in plain], dtype=np.int64).reshape(plain.shape)
        descending = -np.sort(-plain, axis=-1)
        same(host(backend, backend.argsort_descending(x)), orders, "argsort_descending")
        same(host(backend, self._unchanged(backend, backend.sort_descending, x)), descending, "sort_descending")
        for k in (1, 2, 7, 35, VOCAB):
            found = self._unchanged(backend, partial(backend.kth_largest, k=k), x)
            same(host(backend, found), descending[:, k - 1 : k], f"kth_largest with k = {k}")
            values, index = backend.top_k(x, k)
            assert values.dtype == x.dtype, f"top_k turned {x.dtype} into {values.dtype}."
            assert host(backend, index).dtype.kind == "i", "The indices of top_k are no signed integers."
            same(host(backend, index), orders[:, :k], f"The indices of top_k with k = {k}")
            same(host(backend, values), np.take_along_axis(plain, orders[:, :k], axis=-1), f"top_k with k = {k}")

    def test_top_k_of_a_wide_row_of_ties_takes_the_first(self, backend: Backend) -> None:
        """Also where a library selects among many equal values."""
        x = np.zeros((2, 5000), dtype=np.float32)
        x[1, ::7] = 1.0
        _, index = backend.top_k(backend.asarray(x), 40)
        same(host(backend, index), [np.arange(40), np.arange(40) * 7], "The indices of top_k among ties")

    def test_the_nucleus_is_the_least_set_of_its_mass(self, backend: Backend) -> None:
        """``nucleus_threshold``, also of wide rows, of ties, and of rows that are -inf or have one token left."""
        x = np.random.default_rng(4).normal(size=(5, 5000)).astype(np.float32) * np.float32(3)
        x[1] = np.round(x[1])
        x[2], x[3, 1:] = -INF, -INF
        before = backend.asarray(x)
        for p in (0.0, 0.3, 0.9, 0.999):
            found = host(backend, self._unchanged(backend, partial(backend.nucleus_threshold, p=p), before))
            assert found.shape == (5, 1), f"nucleus_threshold of 5 rows has the shape {found.shape}."
            kept = x.astype(np.float64) >= found
            for row in (0, 1, 3, 4):
                mass = np.exp(x[row].astype(np.float64) - x[row].max())
                mass /= mass.sum()
                inside = mass[kept[row]]
                least = x[row][kept[row]].min()
                assert inside.sum() >= p - 1e-4, f"The nucleus of {p} has a mass of {inside.sum()} only."
                assert mass[x[row] > least].sum() <= p + 1e-4, f"The nucleus of {p} is larger than it has to be."
                assert least == found[row, 0], "The threshold is not the least logit of the nucleus."

    def test_rows_move(self, backend: Backend, dtype: str) -> None:
        """``take_rows`` with host and native indices, ``concat_rows``, ``gather``; rows of other dtypes, too."""
        x, plain = self._exact(backend, sample(4), dtype)
        for rows in ([], [0], [3, 0, 0, 2]):
            index = np.asarray(rows, np.int32)
            for given in (rows, index, backend.asarray(index)):
                found = self._unchanged(backend, partial(backend.take_rows, index=given), x)
                same(host(backend, found), plain[index], f"take_rows with {rows}")
        columns = np.random.default_rng(3).integers(0, VOCAB, (4, 5))
        for kind in (np.int32, np.int64):
            given = backend.asarray(columns.astype(kind))
            found = self._unchanged(backend, partial(backend.gather, index=given), x)
            same(host(backend, found), np.take_along_axis(plain, columns, axis=-1), "gather")
        for other in ("int32", "bool"):
            given = np.arange(12).reshape(4, 3).astype(other)
            rows_of = backend.asarray(given)
            joined = backend.concat_rows([rows_of, backend.take_rows(rows_of, [2])])
            assert joined.dtype == rows_of.dtype, f"Rows of {other} became {joined.dtype}."
            same(host(backend, joined), np.concatenate([given, given[[2]]]), f"concat_rows of {other}")

    def test_scattered_writes_skip_what_is_no_token(self, backend: Backend, dtype: str, tokens: str) -> None:
        """``add_at`` (once per occurrence), ``set_at`` and ``write_at``, with -1 and ids beyond the row."""
        x, plain = self._exact(backend, sample(3), dtype)
        ids = TOKENS[tokens].astype(np.int32)
        native = backend.asarray(ids)
        for given in (native, backend.asarray(ids.astype(np.int64))):
            found = self._unchanged(backend, partial(backend.add_at, tokens=given, value=-1.5), x)
            self._agree(backend, found, added(plain, ids, -1.5), dtype, "add_at")
        for value in (-INF, 2.0):
            found = self._unchanged(backend, partial(backend.set_at, tokens=native, value=value), x)
            same(host(backend, found), written(plain, ids, np.full(ids.shape, value)), f"set_at with {value}")
        seen = backend.set_at(backend.asarray(np.zeros((3, VOCAB), dtype=bool)), native, True)
        assert seen.dtype == backend.xp.bool, f"set_at turned bool into {seen.dtype}."
        marks = written(np.zeros((3, VOCAB), dtype=bool), ids, np.ones(ids.shape, dtype=bool))
        same(host(backend, seen), marks, "set_at on bool")
        if tokens == "duplicates":
            return  # which of several values wins is the library's choice
        values = np.random.default_rng(4).integers(-9, 9, ids.shape)
        history = np.full((3, VOCAB), -1, dtype=np.int32)
        given = backend.asarray(values.astype(np.int32))
        found = self._unchanged(backend, lambda a: backend.write_at(a, native, given), backend.asarray(history))
        same(host(backend, found), written(history, ids, values), "write_at on a history")
        found = backend.write_at(x, native, backend.asarray(values.astype(np.float32)))
        assert found.dtype == x.dtype, f"write_at turned {x.dtype} into {found.dtype}."
        same(host(backend, found), written(plain, ids, values), "write_at on logits")

    def test_writes_take_empty_and_single_batches(self, backend: Backend) -> None:
        """No row and one row are batches like any other; ``fill_columns`` touches its columns alone."""
        for batch in (0, 1, 4):
            x, ids = sample(batch), np.full((batch, 3), 2, dtype=np.int32)
            values = np.full((batch, 3), 7, dtype=np.float32)
            a, t = backend.asarray(x), backend.asarray(ids)
            same(host(backend, backend.add_at(a, t, 1.0)), added(x, ids, 1.0), "add_at")
            same(host(backend, backend.set_at(a, t, 7.0)), written(x, ids, values), "set_at")
            same(host(backend, backend.write_at(a, t, backend.asarray(values))), written(x, ids, values), "write_at")
            expected = x.copy()
            expected[:, [2, 40, VOCAB - 1]] = 7.0
            columns = backend.asarray(np.array([2, 40, VOCAB - 1], dtype=np.int32))
            same(host(backend, backend.fill_columns(a, columns, 7.0)), expected, "fill_columns")

    # -- token masks ------------------------------------------------------------------------------------

    def test_token_masks_of_any_width(self, backend: Backend, dtype: str) -> None:
        """``apply_token_mask`` reads bit ``i % 32`` of word ``i // 32``; padding bits do not matter."""
        for vocab, batch in ((1, 1), (31, 3), (32, 1), (33, 0), (64, 3), (VOCAB, 3)):
            dice = np.random.default_rng(vocab)
            x, plain = self._exact(backend, dice.normal(size=(batch, vocab)).astype(np.float32), dtype)
            allowed = dice.random((batch, vocab)) < 0.5
            bits = backend.asarray(packed(allowed))
            found = self._unchanged(backend, partial(backend.apply_token_mask, bits=bits), x)
            same(host(backend, found), np.where(allowed, plain, -INF), f"apply_token_mask over {vocab} tokens")

    def test_token_rows_are_masked_as_by_hand(self, backend: Backend, dtype: str) -> None:
        """``apply_token_rows`` with short and long lists of allowed and of forbidden ids, bare and prepared."""
        dice = np.random.default_rng(9)
        sizes = [0, 1, 3, 20, VOCAB]
        rows = [
            (bool(n % 2), sorted(dice.choice(VOCAB, size=sizes[n % 5], replace=False).tolist())) for n in range(9)
        ]  # fmt: skip
        lines = dice.normal(size=(9, VOCAB)).astype(np.float32)
        lines[:, 3:6] = -INF, INF, -0.0
        bare = [(allowed, np.array(ids, dtype=np.int32)) for allowed, ids in rows]
        for given in (bare, [MaskRow(allowed, ids, VOCAB) for allowed, ids in rows]):
            x, plain = self._exact(backend, lines, dtype)
            expected = masked_by_hand(plain, rows)
            found = self._unchanged(backend, partial(backend.apply_token_rows, rows=given), x)
            same(host(backend, found), expected, "apply_token_rows")
            found = backend.apply_token_rows(x, given, True)
            same(host(backend, found), expected, "apply_token_rows with donation")

    def test_class_masks_are_masked_as_by_hand(self, backend: Backend, dtype: str) -> None:
        """``apply_class_mask`` allows a token where its class is allowed."""
        dice = np.random.default_rng(5)
        classes = dice.integers(0, 6, size=VOCAB).astype(np.int32)
        allowed = dice.random((4, 6)) < 0.5
        x, plain = self._exact(backend, sample(4), dtype)
        tables = backend.asarray(allowed), backend.asarray(classes)
        found = self._unchanged(backend, lambda a: backend.apply_class_mask(a, *tables), x)
        same(host(backend, found), np.where(allowed[:, classes], plain, -INF), "apply_class_mask")

    # -- donation, the agnostic version, NumPy, compilation -----------------------------------------------

    def test_donation_changes_no_value(self, backend: Backend, dtype: str, donating: str) -> None:
        """An operation gives the same values whether or not it may overwrite its first argument."""
        x, _ = self._exact(backend, sample(3), dtype)
        expected = host(backend, DONATING[donating](backend, backend.asarray, x, False))
        found = DONATING[donating](backend, backend.asarray, backend.asarray(sample(3), dtype), True)
        assert found.dtype == x.dtype, f"{donating} turned {x.dtype} into {found.dtype} with donation."
        same(host(backend, found), expected, f"{donating} with donation")

    def test_native_equals_agnostic(self, backend: Backend, dtype: str, operation: str) -> None:
        """The library's own version of an operation gives what the one written on the array API gives."""
        x, _ = self._exact(backend, sample(3), dtype)
        native = self._downloaded(backend, OPERATIONS[operation](backend, backend.asarray, x))
        plain = self._downloaded(backend, OPERATIONS[operation](Agnostic(backend), backend.asarray, x))
        for one, other in zip(native, plain, strict=True):
            same(one.astype(np.float64), other.astype(np.float64), f"The native {operation}", TOLERANCE[dtype])

    def test_every_operation_equals_numpy(self, backend: Backend, operation: str) -> None:
        """Every backend gives what the reference gives."""
        reference = registry.load_backend("numpy")
        expected = self._downloaded(reference, OPERATIONS[operation](reference, reference.asarray, sample(3)))
        found = self._downloaded(backend, OPERATIONS[operation](backend, backend.asarray, backend.asarray(sample(3))))
        for one, other in zip(found, expected, strict=True):
            same(one, other, f"{operation} on {backend.name}, compared with NumPy", 1e-6)

    def test_compiled_equals_eager(self, backend: Backend, operation: str) -> None:
        """A compiled operation gives the same result as the operation without the compiler, with donation, too."""
        if not backend.compiles:
            pytest.skip(f"{backend.name} has no compiler")
        uploads: list[Array] = []

        def remember(given: Host) -> Array:
            uploads.append(backend.asarray(given))
            return uploads[-1]

        x = backend.asarray(sample(3))
        eager = self._downloaded(backend, OPERATIONS[operation](backend, remember, x))

        def step(x: Array, *tables: Array) -> Any:
            placed = iter(tables)
            return OPERATIONS[operation](backend, lambda given: next(placed), x)

        def donating(x: Array, *tables: Array) -> Any:
            placed = iter(tables)
            return DONATING[operation](backend, lambda given: next(placed), backend.scale(x, 1.0), True)

        for function in (step, donating) if operation in DONATING else (step,):
            found = self._downloaded(backend, compiled(backend, function)(x, *uploads))
            for one, other in zip(found, eager, strict=True):
                same(one, other, f"{operation} inside the compiler", 1e-6)
        same(host(backend, x), sample(3), f"The input of {operation} after the compiled function")

    # -- how it is compared -------------------------------------------------------------------------------

    def _exact(self, backend: Backend, given: Host, dtype: str) -> tuple[Array, Host]:
        """The array, and its values as the dtype holds them, in double precision."""
        if not hasattr(backend.xp, dtype):
            pytest.skip(f"{backend.name} has no {dtype}")
        array = backend.asarray(given, dtype)
        return array, np.array(backend.to_numpy(array), dtype=np.float64)

    def _as_told(self, backend: Backend, check: Callable[[Backend], Any]) -> None:
        """Compare the results of a check of the namespace with the expected results, dtypes included."""
        for what, found, wanted in check(backend):
            expected = np.asarray(wanted)
            if not hasattr(found, "dtype"):  # a Python value
                assert found == wanted, f"{what} gives {found!r} instead of {wanted!r}."
                continue
            assert library_of(found) == backend.name, f"{what} gives an array of {library_of(found)}."
            plain = host(backend, found)
            if expected.dtype == np.int64:
                assert plain.dtype.kind == "i", f"{what} gives {plain.dtype}, not a signed integer."
            else:
                assert plain.dtype == expected.dtype, f"{what} gives {plain.dtype} instead of {expected.dtype}."
            half = expected.dtype == np.float16 or "float16" in what
            wide = np.float64 if expected.dtype.kind == "f" else expected.dtype
            same(plain.astype(wide), expected.astype(wide), what, TOLERANCE["bfloat16" if half else "float32"])

    def _unchanged(self, backend: Backend, operation: Callable[[Array], Array], array: Array) -> Array:
        """The result of an operation without donation, after checking that the input array is unchanged."""
        before = host(backend, array)
        result = operation(array)
        same(host(backend, array), before, "The input of an operation without donation, afterwards")
        assert library_of(result) == backend.name, f"The result is an array of {library_of(result)}."
        assert result.dtype == array.dtype, f"{array.dtype} became {result.dtype}."
        assert backend.device_of(result) == backend.device_of(array), "The result is on another device."
        return result

    def _agree(self, backend: Backend, result: Array, expected: Host, dtype: str, what: str) -> None:
        same(host(backend, result).astype(np.float64), expected, what, TOLERANCE[dtype])

    def _downloaded(self, backend: Backend, result: Any) -> list[Host]:
        parts = result if isinstance(result, (tuple, list)) else [result]
        return [host(backend, part) for part in parts]


def _lowered(backend: Backend, x: Array, table: Array) -> Array:
    """``x`` less the table."""
    return x - (backend.cast(table, "float32") if table.dtype == backend.xp.bool else table)
