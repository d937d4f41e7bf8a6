"""Long formulas, of which only the parts that a name concerns are looked at: the same as if all parts were."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable, Sequence

import pytest

from logitloom_plugins.json_schema.schema.formula import (
    Atom,
    Formula,
    ManyParts,
    Selection,
    atoms,
    conjunction,
    disjunction,
    exactly_one,
    holds_at_end,
    listed,
    negation,
    of_one_member,
    substitute,
)

NAMES = [f"n{index}" for index in range(20)]


def random_formula(dice: random.Random, depth: int, every: Sequence[str] = NAMES) -> Formula:
    if not depth or dice.random() < 0.2:
        name, node = dice.choice(every), dice.randrange(9)
        return dice.choice(
            [("prop", name, ("s", node)), ("req", name), ("prop", name, ("s", node)), ("req", name), ("minp", node)]
        )
    if dice.random() < 0.1:
        return negation(random_formula(dice, depth - 1, every))
    if dice.random() < 0.1:
        cases = tuple([random_formula(dice, 1, every) for _ in range(2)])
        return Selection(dice.choice(every), (("s", 1),), cases, disjunction(cases)).formula
    join = dice.choice([conjunction, disjunction, exactly_one])
    return join([random_formula(dice, depth - 1, every) for _ in range(dice.choice([2, 3, 24]))])


def after(dice: random.Random, name: str) -> dict[str, Formula]:
    """Replacements of the atoms about a name, and of those about none."""
    outcomes: list[Formula] = [True, False, False, ("req", "new")]
    return {kind: dice.choice(outcomes) for kind in ("prop", "req")}


def replaced(formula: Formula, name: str, by: dict[str, Formula], named: bool) -> Formula:
    def value(atom: Atom) -> Formula:
        if atom[0] == "?":
            return substitute(Selection.of(atom).whole, value) if Selection.of(atom).member == name else atom
        return by[atom[0]] if atom[0] in by and atom[1] == name else atom

    return substitute(formula, value, (name,)) if named else substitute(formula, value)


def short(formula: Formula) -> Formula:
    """The same formula of tuples that remember nothing."""
    if isinstance(formula, bool) or formula[0] not in ("&", "|", "1", "!", "?"):
        return formula
    if formula[0] == "!":
        return ("!", short(formula[1]))
    if formula[0] == "?":
        return formula
    return (formula[0], tuple([short(part) for part in formula[1]]))


@pytest.mark.parametrize("seed", range(40))
def test_a_name_changes_the_same_in_a_long_formula_as_in_one_that_remembers_nothing(seed: int) -> None:
    dice = random.Random(seed)
    formula = random_formula(dice, 3)
    plain = short(formula)
    for name in dice.sample(NAMES, 12):
        by = after(dice, name)
        formula, plain = replaced(formula, name, by, True), short(replaced(plain, name, by, False))
        assert formula == plain
        assert hash(formula) == hash(plain)
        about = [atom for atom in atoms(plain) if atom[0] == "minp" or atom[1] == name]
        assert [atom for atom in atoms(formula, None, (None, name)) if atom in about] == about
        bound = dice.randrange(9)

        def truth(atom: Atom, bound: int = bound) -> bool:
            if atom[0] == "?":
                return holds_at_end(Selection.of(atom).whole, truth)
            return bool(atom[1] <= bound) if atom[0] == "minp" else atom[0] == "prop"

        assert holds_at_end(formula, truth) is substitute(plain, truth)
        assert holds_at_end(formula, truth) is holds_at_end(formula, truth)


def test_of_many_alternatives_a_name_that_is_left_out_takes_a_look_at_its_own() -> None:
    formula = disjunction([conjunction([("prop", name, ("s", 1)), ("req", name)]) for name in NAMES])
    asked: list[Atom] = []

    def value(atom: Atom) -> Formula:
        asked.append(atom)
        return atom[1] != "n7"

    left = substitute(formula, value, ("n7",))
    assert asked == [("prop", "n7", ("s", 1))]
    assert left == disjunction([part for part in formula[1] if part[1][1] != ("req", "n7")])


def test_a_long_formula_travels_as_tuples() -> None:
    formula = conjunction([("req", name) for name in NAMES])
    assert isinstance(formula, tuple)
    assert type(formula[1]) is ManyParts
    read = pickle.loads(pickle.dumps(formula))
    assert read == formula
    assert type(read[1]) is tuple


def truth(name: str, is_present: bool, nodes: tuple[bool, ...]) -> Callable[[Atom], bool]:
    """Of atoms over an object with at most one member, whose value satisfies some of two nodes."""

    def holds(atom: Atom) -> bool:
        if atom[0] == "?":
            return substitute(Selection.of(atom).whole, holds) is True
        assert atom[1] == name
        if atom[0] == "req":
            return is_present
        return not is_present or substitute(atom[2], lambda node: nodes[node[1] % 2]) is True

    return holds


@pytest.mark.parametrize("seed", range(40))
def test_a_formula_about_one_member_says_the_same_as_its_atoms(seed: int) -> None:
    dice = random.Random(seed)
    formula = random_formula(dice, 2, ("one",))
    found = of_one_member(formula)
    mentions = {atom[0] for atom in atoms(formula)}
    assert bool(found) == (bool(mentions) and "minp" not in mentions)
    assert {atom[0] for atom in found} <= {"prop", "req"}
    for is_present, *nodes in itertools.product((False, True), repeat=3) if found else ():
        holds = truth("one", is_present, tuple(nodes))
        assert all(map(holds, found)) == (substitute(formula, holds) is True)


def test_a_formula_about_several_members_has_no_such_atoms() -> None:
    assert not of_one_member(disjunction([("req", "one"), ("prop", "other", ("s", 1))]))
    assert not of_one_member(True)


def test_lists_and_negated_lists_leave_elements() -> None:
    all_of_them = ("any", frozenset("abc")), ("any", frozenset("bcd")), negation(("any", frozenset("c"))), ("len", 1, 2)
    assert listed(all_of_them, "any") == {"b"}
    assert listed(all_of_them[2:], "any") is None
    assert listed(all_of_them, "eq") is None
