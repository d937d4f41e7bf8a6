"""Row trees: moving rows is the same for every state, and obeys a few laws."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitloom import errors, load_backend
from logitloom.rows import tree as state
from logitloom.rows.tree import Rows


class Node(NamedTuple):
    left: Any
    right: Any


@st.composite
def trees(draw, rows=None):
    """A row tree; which sequence a row is of can be told from every leaf."""
    rows = draw(st.integers(1, 5)) if rows is None else rows
    start = draw(st.integers(0, 1000))

    def leaf():
        if draw(st.booleans()):
            return Rows(f"handle {start + i}" for i in range(rows))
        shape = (rows, *draw(st.lists(st.integers(1, 3), max_size=2)))
        dtype = draw(st.sampled_from([np.int32, np.float32, np.float16, np.bool_]))
        values = np.arange(start, start + rows).reshape(rows, *[1] * (len(shape) - 1))
        return np.broadcast_to(values, shape).astype(dtype)

    def tree(depth):
        kind = draw(st.sampled_from(["leaf", "tuple", "node", "dict"])) if depth else "leaf"
        if kind == "tuple":
            return tuple(tree(depth - 1) for _ in range(draw(st.integers(0, 3))))
        if kind == "node":
            return Node(tree(depth - 1), tree(depth - 1))
        if kind == "dict":
            return {key: tree(depth - 1) for key in draw(st.sets(st.sampled_from("abc")))}
        return leaf()

    return rows, tree(2)


def same(a, b):
    left, right = list(state.leaves(a)), list(state.leaves(b))
    assert [path for path, _ in left] == [path for path, _ in right]
    for (path, x), (_, y) in zip(left, right, strict=True):
        if isinstance(x, Rows):
            assert isinstance(y, Rows), path
            assert x == y, path
        else:
            assert x.dtype == y.dtype, path
            np.testing.assert_array_equal(x, y, err_msg=path)


def indices(rows, **sizes):
    return st.lists(st.integers(0, rows - 1), **sizes)


@given(st.data())
def test_taking_twice_is_taking_once(data):
    rows, tree = data.draw(trees())
    first = data.draw(indices(rows, min_size=1, max_size=6))
    second = data.draw(indices(len(first), max_size=6))
    same(state.take(state.take(tree, first), second), state.take(tree, [first[i] for i in second]))


@given(st.data())
def test_taking_all_rows_in_order_changes_nothing(data):
    rows, tree = data.draw(trees())
    same(state.take(tree, list(range(rows))), tree)
    same(state.take(tree, np.arange(rows)), tree)


@given(st.data())
def test_joined_rows_can_be_taken_apart_again(data):
    rows, tree = data.draw(trees())
    cut = data.draw(st.integers(0, rows))
    head, tail = state.take(tree, list(range(cut))), state.take(tree, list(range(cut, rows)))
    same(state.concat([head, tail]), tree)
    same(state.take(state.concat([head, tail]), list(range(cut, rows))), tail)
    same(state.concat([tree]), tree)


@given(st.data())
def test_repeating_puts_copies_side_by_side(data):
    rows, tree = data.draw(trees())
    times = data.draw(st.integers(1, 3))
    same(state.repeat(tree, times), state.take(tree, [i for i in range(rows) for _ in range(times)]))


@given(st.data())
def test_selecting_picks_each_row_from_its_own_version(data):
    rows, tree = data.draw(trees())
    count = data.draw(st.integers(1, 4))
    versions = [state.take(tree, data.draw(indices(rows, min_size=rows, max_size=rows))) for _ in range(count)]
    which = data.draw(st.lists(st.integers(0, count - 1), min_size=rows, max_size=rows))
    selected = state.select(versions, which)
    for row, version in enumerate(which):
        same(state.take(selected, [row]), state.take(versions[version], [row]))


@given(st.data())
def test_moving_rows_leaves_the_old_state_alone(data):
    rows, tree = data.draw(trees())
    kept = state.map_leaves(lambda leaf: leaf if isinstance(leaf, Rows) else leaf.copy(), tree)
    moved = state.take(tree, data.draw(indices(rows, min_size=1, max_size=4)))
    for _, leaf in state.leaves(moved):
        if not isinstance(leaf, Rows):
            leaf[...] = 0
    same(tree, kept)


@given(st.data())
def test_the_row_count_is_that_of_every_leaf(data):
    rows, tree = data.draw(trees())
    if any(True for _ in state.leaves(tree)):
        assert state.row_count(tree) == rows
        state.check_rows(tree, rows, "tree")
    else:
        assert state.row_count(tree) is None
    same(state.map_leaves(lambda leaf: leaf, tree), tree)
    state.check_like(tree, tree, "tree")


def test_structure_survives():
    tree = Node((np.zeros((2, 3)),), {"a": Rows("xy"), "none": ()})
    taken = state.take(tree, [1])
    assert type(taken) is Node
    assert type(taken.right["a"]) is Rows
    assert taken.right == {"a": Rows("y"), "none": ()}
    assert [path for path, _ in state.leaves(tree)] == ["state.left[0]", "state.right['a']"]


def test_leaves_may_bring_their_own_way_to_move():
    class Cache:
        def __init__(self, rows):
            self.rows = rows

        def row_count(self):
            return len(self.rows)

        def take_rows(self, index):
            return Cache([self.rows[int(i)] for i in index])

        def concat_rows(self, others):
            return Cache([r for c in (self, *others) for r in c.rows])

    tree = (Cache([1, 2]), np.array([1, 2]))
    assert state.take(tree, [1, 1])[0].rows == [2, 2]
    assert state.concat([tree, tree])[0].rows == [1, 2, 1, 2]
    assert state.select([tree, state.take(tree, [1, 0])], [0, 1])[0].rows == [1, 1]
    state.check_rows(tree, 2, "cache")


def test_a_stateless_state_has_no_rows_and_moves_anyway():
    assert state.row_count(()) is None
    assert state.take((), [0, 0]) == ()
    assert state.repeat((), 3) == ()
    assert state.concat([(), ()]) == ()


def test_selecting_for_another_number_of_rows_is_refused():
    versions = [(np.array([1, 2, 3]),), (np.array([4, 5, 6]),)]
    for which in ([0, 1], [1, 1]):
        with pytest.raises(errors.StateMismatch, match="2 rows.*3 rows"):
            state.select(versions, which)


@pytest.mark.parametrize("which", [[0, 2], [-1, 0], [2, 2]])
def test_selecting_from_a_state_that_is_not_there_is_refused(which):
    versions = [(np.array([1, 2]),), (np.array([4, 5]),)]
    with pytest.raises(
        errors.StateMismatch, match=r"State (2|-1) was chosen for a row, but there are the states 0 to 1"
    ):
        state.select(versions, which)


@pytest.mark.parametrize("index", [[3], [-1], [0, 7, 1], np.array([-5])])
def test_rows_that_a_state_does_not_have_are_refused(backend, index):
    wrong = next(int(row) for row in index if not 0 <= row < 3)
    leaf = backend.asarray(np.arange(3, dtype=np.float32))
    for tree in ((leaf,), {"rows": Rows("abc")}):
        with pytest.raises(errors.StateMismatch, match=rf"Row {wrong} is to be taken of a state with 3 rows\."):
            state.take(tree, index)
    assert state.take((), index) == ()


@pytest.mark.parametrize(
    "index",
    [1, np.int64(1), slice(0, 1), [0.0], [[0, 1]], "01", None, [2**40], np.zeros((1, 1), np.int32), [[1], [1, 2]]],
)
def test_an_index_that_is_no_list_of_row_numbers_is_refused(index):
    for tree in ((np.array([1, 2]),), (Rows("ab"),)):
        with pytest.raises(errors.StateMismatch, match="Rows are named by a list of their numbers, but the index is "):
            state.take(tree, index)
    with pytest.raises(errors.StateMismatch, match="Rows are named by a list of their numbers"):
        state.select([(np.array([1, 2]),)] * 2, index)


@pytest.mark.parametrize("form", [list, tuple, np.array])
def test_truth_values_are_no_row_numbers(form):
    """As numbers they would be rows 0 and 1, in an order that nobody meant."""
    with pytest.raises(errors.StateMismatch, match=r"numpy\.flatnonzero"):
        state.take((np.array([1, 2]), Rows("ab")), form([True, False]))


@pytest.mark.parametrize(
    "library", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "jax", "mlx")]
)
def test_truth_values_of_a_library_are_no_row_numbers(library):
    backend = load_backend(library)
    with pytest.raises(errors.StateMismatch, match=r"numpy\.flatnonzero"):
        state.take((backend.asarray([1, 2]),), backend.asarray([1, 0]) > 0)


def test_joining_states_of_different_structure_is_refused():
    with pytest.raises(errors.StateMismatch, match="structure"):
        state.concat([{"a": np.zeros(1)}, {"a": np.zeros(1), "b": np.zeros(1)}])
    with pytest.raises(errors.StateMismatch, match="structure"):
        state.concat([(np.zeros(1),), (np.zeros(1), np.zeros(1))])


@pytest.mark.parametrize(
    "library", ["numpy", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "jax", "mlx"))]
)
def test_joining_states_with_other_rows_names_the_leaf_and_the_remedy(library):
    backend = load_backend(library)
    three, four = (Node(backend.asarray(np.zeros((1, width), np.int32)), ()) for width in (3, 4))
    with pytest.raises(errors.StateMismatch, match=rf"state\.left has {library} \[3\] per row .*\[4\].* max_length"):
        state.concat([three, four])
    with pytest.raises(errors.StateMismatch, match="a host object in another"):
        state.concat([three, Node(Rows("a"), ())])


@pytest.mark.parametrize(
    "library", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "jax", "mlx")]
)
def test_what_is_no_array_of_one_library_is_not_converted(library):
    one = (load_backend(library).asarray(np.zeros(1, np.int32)),)
    for joined in ([one, (np.zeros(1, np.int32),)], [(np.zeros(1, np.int32),), one]):
        with pytest.raises(errors.StateMismatch, match=rf"{library} \[\] .*one array library"):
            state.concat(joined)
    host, array = (Rows([1]),), (np.zeros(1, np.int32),)
    for joined in ([host, array], [array, host]):
        with pytest.raises(errors.StateMismatch, match="a host object"):
            state.concat(joined)


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ((5,), r"state\[0\] is of the type int, but every leaf"),
        (([np.zeros(2)],), r"state\[0\] is of the type list"),
        ({"a": np.float32(1)}, r"state\['a'\] is an array without axes"),
        (Node(np.zeros(2), np.zeros(3)), r"state.right has 3 rows, but there are 2 sequences"),
        ((Rows("abc"),), r"state\[0\] has 3 rows"),
    ],
)
def test_what_is_no_row_tree_is_named_with_its_place(tree, text):
    with pytest.raises(errors.StateMismatch, match=text):
        state.check_rows(tree, 2, "mine")


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (
            (np.zeros((2, 3)), Rows("ab")),
            r"state\[0\] is float64\[2, 3\], where init_state made state\[0\] int32\[2, 3\]",
        ),
        ((np.zeros((2, 4), np.int32), Rows("ab")), r"int32\[2, 4\]"),
        ((np.zeros((2, 3), np.int32), Rows("abc")), "Rows of 3"),
        ((np.zeros((2, 3), np.int32),), "1 leaves, where init_state made 2"),
        ({"a": np.zeros((2, 3), np.int32)}, r"state\['a'\]"),
    ],
)
def test_another_form_is_named_with_both(new, text):
    old = (np.zeros((2, 3), np.int32), Rows("ab"))
    with pytest.raises(errors.StateMismatch, match=text):
        state.check_like(new, old, "mine")
