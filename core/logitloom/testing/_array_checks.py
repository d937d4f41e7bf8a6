"""Checks of a processor's arrays: its results, its unchanged inputs, and its reads from a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logitloom.arrays.backend import NEG_INF, Array, Backend, library_of
from logitloom.errors import StateMismatch
from logitloom.rows import tree as row_state
from logitloom.testing._subject import STEPS, TOLERANCE, ProcessorSubject
from logitloom.testing.compilation import compiled_step
from logitloom.testing.conformance import host, host_leaves, same, watched
from logitloom.testing.stories import StoryRun, telling

#: Spacing of the numbers around 1.
_EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


class ArrayChecks(ProcessorSubject):
    """Shape, dtype, device, library; inputs, donation, compilation; narrow dtypes, -inf, small batches."""

    _parameters = {"dtype": ("float32", "float16", "bfloat16")}  # noqa: RUF012 - read only

    def test_logits_keep_shape_dtype_device_and_library(self, backend: Backend, case: str, dtype: str) -> None:
        """The result is ``[rows, vocab]`` of the dtype, device and library of the given logits, and no view of them.

        No result is +inf; float16 and bfloat16 give no not-a-number, and come close to the results of float32.
        Troubleshooting: NumPy functions called on other libraries' arrays; Python numbers in arrays that widen half
        types; a state that holds the very array that is returned.
        """
        if not hasattr(backend.xp, dtype):
            pytest.skip(f"{backend.name} has no {dtype}")
        chain, stories = self.chain(case, backend), self.stories(case)[:4]
        run = self.run(chain, backend, stories, dtype=dtype)
        for step in range(3 if dtype == "float32" else 2):
            logits, context, before = run.logits(), run.step_context(), run.state
            out, run.state = chain.process(logits, before, context)
            run.age += 1
            assert library_of(out) == library_of(logits), f"The logits became an array of {library_of(out)}."
            wanted = (len(stories), self.vocab_size)
            assert tuple(out.shape) == wanted, f"The logits have the shape {tuple(out.shape)} instead of {wanted}."
            assert out.dtype == logits.dtype, f"The logits became {out.dtype}, but they were {logits.dtype}."
            assert backend.device_of(out) == backend.device_of(logits), "The logits moved to another device."
            plain = host(backend, out)
            assert not np.isnan(plain).any(), f"Step {step}: the logits have not-a-numbers."
            assert not np.isposinf(plain).any(), (
                f"Step {step}: the logits have +inf. To make a token certain, forbid all others with -inf."
            )
            self._check_no_view(backend, out, logits, run.state)
            if dtype != "float32":
                widened = backend.asarray(host(backend, logits).astype(np.float32))
                single = host(backend, chain.process(widened, before, context)[0])
                self._check_close(plain.astype(np.float32), single, case, dtype)

    def _check_no_view(self, backend: Backend, out: Array, logits: Array, state: Any) -> None:
        if not backend.on_host:
            return
        plain = np.asarray(backend.to_numpy(out))
        if out is not logits:
            whole = np.asarray(backend.to_numpy(logits))
            part = np.shares_memory(plain, whole) and plain.shape != whole.shape
            assert not part, "The logits are a view of a part of the input; return the input itself or a fresh array."
        for path, leaf in row_state.leaves(state):
            if hasattr(leaf, "dtype"):
                held = np.shares_memory(plain, np.asarray(backend.to_numpy(leaf)))
                assert not held, (
                    f"The state ({path}) holds the logits that are returned; the next processor writes them."
                )

    def _check_close(self, half: Any, single: Any, case: str, dtype: str) -> None:
        if self.declared(case, "effect").forbids_only:
            same(half > NEG_INF, single > NEG_INF, f"What {dtype} logits allow, compared with float32")
            return
        both = (half > NEG_INF) & (single > NEG_INF)
        top = float(np.abs(single[both]).max(initial=1.0))
        apart = np.abs(half[both] - single[both]).max(initial=0.0)
        assert apart <= 8 * _EPS[dtype] * top, f"{dtype} logits come out up to {apart:.3g} away from float32."

    def test_inputs_stay_untouched(self, backend: Backend, case: str) -> None:
        """Logits, state and tokens that were not donated are the same bytes after the call.

        Troubleshooting: an operation in place (``+=``, ``out=``, ``x[...] = ``); pass ``context.donate`` for logits
        and ``context.donate_state`` for states, and nothing else, as ``donate``.
        """
        chain = self.chain(case, backend)
        run = self.run(chain, backend, self.stories(case)[:4], kind="holes")
        for step in range(STEPS):
            logits, context, state = run.logits(), run.step_context(), run.state
            before = host(backend, logits), host_leaves(backend, state)
            tokens = None if context.tokens is None else host(backend, context.tokens)
            run.step()
            chain.process(logits, state, context)
            same(host(backend, logits), before[0], f"Step {step}: the logits after the call")
            for (path, now), (_, then) in zip(host_leaves(backend, state), before[1], strict=True):
                if isinstance(then, np.ndarray):
                    same(now, then, f"Step {step}: {path} after the call")
            if tokens is not None:
                same(host(backend, context.tokens), tokens, f"Step {step}: the tokens after the call")

    def test_donation_changes_no_result(self, backend: Backend, case: str) -> None:
        """Logits and states that are given up may be overwritten; the results are the same.

        Troubleshooting: after an operation with ``donate`` only its result may be used.
        """
        stories = self.stories(case)[:4]
        kept = self.run(self.chain(case, backend), backend, stories, kind="holes")
        given = self.run(self.chain(case, backend), backend, stories, kind="holes", donate=True, donate_state=True)
        for step in range(STEPS):
            expected = host(backend, kept.step())
            same(host(backend, given.step()), expected, f"Step {step} with donation", TOLERANCE)

    def test_the_structure_of_the_state_is_fixed(self, backend: Backend, case: str) -> None:
        """Every state has the structure, shapes and dtypes that ``init_state`` made, and one row per sequence.

        Host objects of a state are none that can be changed in place.
        Troubleshooting: make room for everything in ``init_state``; mark what is not used with -1.
        """
        chain = self.chain(case, backend)
        run = self.run(chain, backend, self.stories(case)[:4])
        first = run.state
        try:
            row_state.check_rows(first, 4, chain.labels[0])
            row_state.check_handles(first, chain.labels[0])
            for _ in range(STEPS + 1):
                run.step()
                row_state.check_like(run.state, first, chain.labels[0])
                row_state.check_handles(run.state, chain.labels[0])
        except StateMismatch as error:
            raise AssertionError(str(error)) from error

    def test_compiled_equals_eager(self, backend: Backend, case: str) -> None:
        """A step compiled by the library, in one graph, gives the results of the eager step.

        If the library has no compiler, the processor's code for compiled loops runs without compilation.
        Troubleshooting: a value of an array decides in Python (``if``, ``float``, ``np.asarray``); an array is made
        on the host in ``process`` (upload tables in ``init_state`` with a ``HostTable``). If the processor works on
        host objects, declare ``compilable = False``.
        """
        if not self.declared(case, "compilable"):
            pytest.skip("the processor declares that it works on the host")
        chain, stories = self.chain(case, backend), self.stories(case)[:4]
        run = self.run(chain, backend, stories, compiled=True)
        lines, columns = self._one_by_one(run)
        at = run.state
        eager = self.run(chain, backend, stories)
        state = eager.state

        def plainly(logits: Array, at: Any, tokens: Array) -> tuple[Array, Any]:
            return chain.process(logits, at, telling(chain, run.context.with_fields(tokens=tokens)))

        step = compiled_step(chain, at, run.context) if backend.compiles else plainly
        for number, (line, tokens) in enumerate(zip(lines, columns, strict=True)):
            logits = backend.asarray(line)
            expected, state = chain.process(logits, state, telling(chain, eager.context.with_fields(tokens=tokens)))
            found, at = step(logits, at, tokens)
            same(host(backend, found), host(backend, expected), f"Step {number} of a compiled loop", TOLERANCE)

    def test_no_value_is_read_back(self, backend: Backend, case: str) -> None:
        """In a compiled loop nothing is moved between host and device.

        Troubleshooting: ``backend.to_numpy`` or ``backend.asarray`` in ``process`` (upload tables in ``init_state``
        with a ``HostTable``). If the processor works on host objects, declare ``compilable = False``.
        """
        if not self.declared(case, "compilable"):
            pytest.skip("the processor declares that it works on the host")
        chain, stories = self.chain(case, backend), self.stories(case)[:4]
        run = self.run(chain, backend, stories, compiled=True)
        lines, columns = self._one_by_one(run)
        at, uploaded = run.state, [backend.asarray(line) for line in lines]
        with watched(backend, "to_numpy", "asarray") as moved:
            for logits, tokens in zip(uploaded, columns, strict=True):
                _, at = chain.process(logits, at, telling(chain, run.context.with_fields(tokens=tokens)))
        assert not moved, f"process called backend.{moved[0]}, {len(moved)} times in {len(uploaded)} steps."

    def _one_by_one(self, run: StoryRun) -> tuple[list[Any], list[Array]]:
        """Logits and tokens ``[rows, 1]`` of steps in which each row accepts one token of its story, or none."""
        backend, tokens = run.backend, [[-1, *story.tokens][:4] for story in run.stories]
        lines = []
        for _ in range(3):
            lines.append(host(backend, run.logits()))
            run.age += 1
        columns = [
            backend.asarray(np.asarray([row[n : n + 1] or [-1] for row in tokens], dtype=np.int32)) for n in range(3)
        ]
        return lines, columns

    def test_forbidden_entries_and_dead_rows_are_taken(self, backend: Backend, case: str) -> None:
        """Logits with -inf give no not-a-number; a row of nothing else changes nothing for its neighbours.

        Troubleshooting: ``-inf - -inf``, ``0 * inf``; use ``backend.softmax`` and ``backend.log_softmax``, which take
        such rows.
        """
        chain = self.chain(case, backend)
        run = self.run(chain, backend, self.stories(case)[:4], kind="holes")
        for step in range(3):
            state, context, lines = run.state, run.step_context(), host(backend, run.logits())
            expected = host(backend, run.step())
            assert not np.isnan(expected).any(), f"Step {step}: -inf among the logits gave not-a-numbers."
            lines[1::4] = NEG_INF
            out = host(backend, chain.process(backend.asarray(lines), state, context)[0])
            assert not np.isnan(out).any(), f"Step {step}: a row of -inf gave not-a-numbers."
            same(out[[0, 2, 3]], expected[[0, 2, 3]], f"Step {step}: the neighbours of a row of -inf", TOLERANCE)
            if self.declared(case, "effect").keeps_forbidden:
                assert (out[1] == NEG_INF).all(), f"Step {step}: a row of -inf came back with something allowed."

    def test_batches_of_one_and_of_none_are_taken(self, backend: Backend, case: str) -> None:
        """One row, and no row at all, are batches like any other.

        Troubleshooting: a reduction over rows, ``logits[0]``, ``squeeze``.
        """
        chain = self.chain(case, backend)
        one = self.run(chain, backend, self.stories(case)[:1])
        assert tuple(one.step().shape) == (1, self.vocab_size)
        empty = self.run(chain, backend, [])
        tokens = backend.asarray(np.zeros((0, 1), dtype=np.int32))
        for context in (empty.context, telling(chain, empty.context.with_fields(tokens=tokens))):
            out, state = chain.process(empty.logits(), empty.state, context)
            assert tuple(out.shape) == (0, self.vocab_size), f"No rows became {tuple(out.shape)}."
            row_state.check_rows(state, 0, chain.labels[0])
