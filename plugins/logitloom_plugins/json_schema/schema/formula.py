"""Boolean formulas over atoms (demands of single keywords): hashable tuples, simplified as they are made.

``True``, ``False``, ``("&", parts)``, ``("|", parts)``, ``("1", parts)`` (exactly one), ``("!", part)``, and selections
(:class:`Selection`); every other tuple is an atom.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeGuard, TypeVar, cast

__all__ = [
    "NAMED",
    "Atom",
    "Formula",
    "ManyParts",
    "Names",
    "Selection",
    "after_name",
    "atoms",
    "conjunction",
    "disjunction",
    "exactly_one",
    "factored",
    "holds_at_end",
    "is_atom",
    "listed",
    "memberships",
    "negation",
    "nodes_in",
    "of_one_member",
    "only_listed",
    "operands",
    "parts_of",
    "substitute",
    "without_parts",
]

#: A keyword with its operands (an atom), or an operator with its parts. The types of the other entries depend on the
#: first entry, so ``Any``.
Atom = tuple[Any, ...]
Formula = bool | Atom
Element = TypeVar("Element", bound=Hashable)
#: The elements of lists are strings or numbers, as the kind of the list says; so ``Any``.
Elements = frozenset[Any]
#: Names of members whose atoms a function replaces; ``None`` stands for the atoms about no certain member.
Names = tuple[str | None, ...]
#: The operators that demand all parts, at least one part, or exactly one part.
_JOINING: Final = frozenset("&|1")
_OPERATORS: Final = _JOINING | frozenset("!?")
#: The kinds of atoms about one member, which the atom names.
NAMED: Final = frozenset(("prop", "req"))
#: From this number of parts on, it pays to remember which parts mention a name.
_MANY: Final = 8


class Selection(NamedTuple):
    """A discriminated union: one member of an object, or one item of an array, selects some of several alternatives.

    The alternatives are divided into numbered groups. A value of the member belongs to one group, or to none. The
    number of the group is asked bit by bit, so a thousand groups take ten questions. As a formula a selection is the
    tuple of ``"?"`` and a frozen set with the selection, because a frozen set remembers its hash.

    Attributes:
        member: the name of the member, or the index of the item.
        bits: formulas over nodes; the member's value satisfies entry ``i`` if bit ``i`` of its group's number is 1.
        cases: by group the rest of the alternatives, if the member has one of the group's values.
        whole: the alternatives as a formula over other atoms.
    """

    member: str | int
    bits: tuple[Formula, ...]
    cases: tuple[Formula, ...]
    whole: Formula

    @property
    def formula(self) -> Formula:
        """The selection as a formula."""
        if not any(case is not False for case in self.cases) and self.whole is False:
            return False
        return ("?", frozenset([self]))

    @staticmethod
    def of(formula: Formula) -> Selection:
        """The selection that a formula is."""
        assert not isinstance(formula, bool)
        found: Selection = next(iter(formula[1]))
        return found

    def replaced(self, value: Callable[[Atom], Formula], names: Names | None = None) -> Selection:
        """The selection with its atoms replaced, as by :func:`substitute`; the selection itself if no atom changes."""
        cases = tuple([substitute(case, value, names) for case in self.cases])
        whole = substitute(self.whole, value, names)
        if whole is self.whole and all(map(operator.is_, cases, self.cases)):
            return self
        return self._replace(cases=cases, whole=whole)


class ManyParts(tuple[Formula, ...]):
    """The parts of a long formula: a tuple that remembers its hash, and which parts mention the name of a member.

    Of many alternatives a name concerns a few. Only these change when the member is left out or has come.
    """

    #: The indices of the parts that may add something at the end of an object, ascending; all others are known to add
    #: nothing, there and after parts have been left out. ``None``: no part has been looked at.
    unsure: Sequence[int] | None = None
    _hash: int
    #: These parts are left of an earlier formula, or made from its parts; a place is an index in the earlier formula.
    #: By the name of a member the places of the parts that mention the name; ``None``: atoms about no certain member.
    _mentioning: dict[str | int | None, list[int]]
    #: By the name of a member the places of the parts that allow only listed members, this member among them; under
    #: ``None`` the places of the parts that may allow any member. Parts that are made from a part keep to its list.
    _allowing: dict[str | None, list[int]]
    #: The place of each part, ascending.
    _places: Sequence[int]

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = super().__hash__()
            return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (tuple(self),)

    def state_parts(self) -> tuple[object, ...]:
        """The value that :meth:`logitloom.Linked.save_state` writes."""
        return tuple(self)

    @staticmethod
    def from_state_parts(*parts: Formula) -> tuple[Formula, ...]:
        """The parts as a tuple."""
        return parts

    def concerned(self, *names: str | int | None) -> list[int]:
        """The indices of the parts that mention one of some names, ascending; ``None``: of atoms about no member."""
        self._look_at_parts()
        return self._indices({place for name in names for place in self._mentioning.get(name, ())})

    def allowing(self, name: str) -> Sequence[int]:
        """The indices of the parts that may be true of an object with a member, ascending.

        If most parts may allow any member, the result is the indices of all parts.
        """
        self._look_at_parts()
        if 2 * len(self._allowing.get(None, ())) > len(self):
            return range(len(self))
        return self._indices({place for key in (name, None) for place in self._allowing.get(key, ())})

    def _indices(self, places: set[int]) -> list[int]:
        found: list[int] = []
        for place in sorted(places):
            found += range(bisect_left(self._places, place), bisect_right(self._places, place))
        return found

    def _look_at_parts(self) -> None:
        if "_mentioning" not in vars(self):
            self._mentioning, self._allowing, self._places = {}, {}, range(len(self))
            for index, part in enumerate(self):
                for name in dict.fromkeys(_names_in(part)):
                    self._mentioning.setdefault(name, []).append(index)
                for allowed in _listed_members(part):
                    self._allowing.setdefault(allowed, []).append(index)

    def changed(self, by: Mapping[int, Sequence[Formula]]) -> tuple[Formula, ...]:
        """The parts after some are replaced, by index. A replacement mentions no name that the old part does not."""
        self._look_at_parts()
        parts, places = list(self), list(self._places)
        # For each of the changed parts, whether it may add something at the end of an object.
        open_ones = None if self.unsure is None else frozenset(self.unsure)
        unsure = None if open_ones is None else [index in open_ones for index in range(len(self))]
        for index in sorted(by, reverse=True):
            parts[index : index + 1] = by[index]
            places[index : index + 1] = [places[index]] * len(by[index])
            if unsure is not None:
                unsure[index : index + 1] = [True] * len(by[index])
        if len(parts) < _MANY:
            return tuple(parts)
        found = ManyParts(parts)
        found._mentioning, found._allowing, found._places = self._mentioning, self._allowing, places
        found.unsure = None if unsure is None else [index for index, is_unsure in enumerate(unsure) if is_unsure]
        return found


def _names_in(formula: Formula) -> Iterator[str | int | None]:
    """Yield the names of the members that the atoms of a formula are about, some of them several times."""
    pending = [formula]
    while pending:
        part = pending.pop()
        if isinstance(part, bool):
            continue
        kind = part[0]
        if kind not in _OPERATORS:
            yield part[1] if kind in NAMED else None
        elif kind == "!":
            pending.append(part[1])
        elif kind == "?":
            selection = Selection.of(part)
            yield selection.member
            pending += [selection.whole, *selection.cases]
        else:
            pending += part[1]


def _listed_members(formula: Formula) -> Iterable[str | None]:
    """The names of all members that a formula allows, if the formula lists them; otherwise only ``None``."""
    closed = next((part for part in parts_of(formula) if part[0] == "addl" and part[3] is False and not part[2]), None)
    return (None,) if closed is None else closed[1]


def after_name(formula: Formula, name: str | None) -> Formula:
    """A formula after a member with a name has come, without the alternatives that do not allow the member.

    Of many alternatives with ``additionalProperties: false`` few allow the member. The time to find these few does not
    grow with the number of alternatives. Without a name the formula stays as it is.
    """
    if name is None or isinstance(formula, bool):
        return formula
    kind, parts = formula[0], formula[1] if formula[0] in _JOINING else ()
    if not isinstance(parts, ManyParts):
        left = [after_name(part, name) for part in parts] if kind == "&" else parts
        return formula if all(map(operator.is_, left, parts)) else conjunction(left)
    if kind == "&":
        # Many conditions side by side: a look at each takes longer than what it saves.
        return formula
    indices = parts.allowing(name)
    if len(indices) == len(parts):
        return formula
    if len(indices) < _MANY:
        return _of_parts(kind, tuple([parts[index] for index in indices]), False)
    allowing = frozenset(indices)
    return _of_parts(kind, parts.changed({at: () for at in range(len(parts)) if at not in allowing}), False)


def of_one_member(formula: Formula) -> tuple[Atom, ...]:
    """The atoms that say the same as a formula about one member of an object; none of any other formula."""
    names = _names_in(formula)
    name = next(names, None)
    # In an array there are indices.
    if not isinstance(name, str) or any(other != name for other in names):
        return ()

    def present(atom: Atom) -> Formula:
        if atom[0] == "?":
            return substitute(Selection.of(atom).whole, present)
        return atom[2] if atom[0] == "prop" else True

    def absent(atom: Atom) -> Formula:
        return substitute(Selection.of(atom).whole, absent) if atom[0] == "?" else bool(atom[0] == "prop")

    required = () if substitute(formula, absent) is True else (("req", name),)
    return ("prop", name, substitute(formula, present)), *required


def conjunction(parts: Iterable[Formula]) -> Formula:
    """All of the parts."""
    return _joined("&", parts, True)


def disjunction(parts: Iterable[Formula]) -> Formula:
    """At least one of the parts."""
    return _joined("|", parts, False)


def _joined(kind: str, parts: Iterable[Formula], neutral: bool) -> Formula:
    found: dict[Atom, None] = {}
    for part in parts:
        if isinstance(part, bool):
            if part is neutral:
                continue
            return part
        if part[0] == kind:
            found.update(dict.fromkeys(part[1]))
        else:
            found[part] = None
    for part in found:
        if part[0] == "!" and part[1] in found:
            return not neutral
    if len(found) < 2:
        return next(iter(found), neutral)
    return (kind, tuple(found) if len(found) < _MANY else ManyParts(found))


def negation(part: Formula) -> Formula:
    """Not the part."""
    if isinstance(part, bool):
        return not part
    return part[1] if part[0] == "!" else ("!", part)


def exactly_one(parts: Iterable[Formula]) -> Formula:
    """One of the parts and no other."""
    left = [part for part in parts if part is not False]
    certain = sum(part is True for part in left)
    if certain > 1:
        return False
    left = [part for part in left if part is not True]
    if certain:
        return conjunction([negation(part) for part in left])
    if len(left) < 2:
        return left[0] if left else False
    return ("1", tuple(left) if len(left) < _MANY else ManyParts(left))


def factored(formulas: tuple[Formula, ...]) -> tuple[list[Atom], list[Formula]]:
    """The common parts of several conjunctions, and the rest of each conjunction.

    At least one of the conjunctions holds if the common parts hold, and at least one of the rests. The same is true of
    exactly one.
    """
    first, *others = [dict.fromkeys(parts_of(formula)) for formula in formulas]
    common = [part for part in first if all(part in other for other in others)]
    if not common:
        return [], list(formulas)
    return common, [conjunction([part for part in parts_of(formula) if part not in common]) for formula in formulas]


def parts_of(formula: Formula) -> tuple[Atom, ...]:
    """The parts of a conjunction; the formula itself if it is none; no parts of ``True``."""
    if formula is True:
        return ()
    if formula is not False and formula[0] == "&":
        parts: tuple[Atom, ...] = formula[1]
        return parts
    # No caller looks into ``False``.
    return (cast("Atom", formula),)


def operands(formula: Formula) -> tuple[Formula, ...]:
    """The parts that an operator joins; none of any other formula."""
    return formula[1] if not isinstance(formula, bool) and formula[0] in _JOINING else ()


def is_atom(formula: Formula) -> TypeGuard[Atom]:
    """Whether a formula is one atom."""
    return not isinstance(formula, bool) and formula[0] not in _OPERATORS


def listed(parts: Iterable[Formula], kind: str) -> Elements | None:
    """The elements that conjuncts leave, as far as the conjuncts are lists or negated lists; ``None`` without a list.

    Args:
        parts: the conjuncts. A disjunction of lists is a list, too.
        kind: of the atoms that are lists.
    """
    held, refused = [], []
    for part in parts:
        if not isinstance(part, bool):
            elements = _elements(part, kind)
            if elements is not None:
                held.append(elements)
            elif part[0] == "!" and part[1][0] == kind:
                refused.append(part[1][1])
    return frozenset.intersection(*held).difference(*refused) if held else None


def only_listed(formula: Formula, kind: str) -> Elements | None:
    """The elements that satisfy a formula of nothing but lists and negated lists; ``None`` for any other formula."""
    parts = parts_of(formula)
    left = listed(parts, kind)
    if left is None:
        return None
    others = [part for part in parts if _elements(part, kind) is None]
    return left if all(part[0] == "!" and part[1][0] == kind for part in others) else None


def _elements(part: Atom, kind: str) -> Elements | None:
    """The elements of a list, or of a disjunction of lists; ``None`` of any other formula."""
    if part[0] == kind:
        elements: Elements = part[1]
        return elements
    if part[0] == "|" and all(not isinstance(each, bool) and each[0] == kind for each in part[1]):
        return frozenset().union(*[each[1] for each in part[1]])
    return None


def memberships(finite: Iterable[tuple[Atom, Iterable[Element]]]) -> dict[Element, frozenset[Atom]]:
    """For each element of the sets of some atoms, such as ``("any", texts)``, the atoms whose sets have it."""
    found: dict[Element, list[Atom]] = {}
    for atom, elements in finite:
        for element in elements:
            found.setdefault(element, []).append(atom)
    return {element: frozenset(members) for element, members in found.items()}


def atoms(formula: Formula, member: str | int | None = None, names: Names | None = None) -> tuple[Atom, ...]:
    """Every atom, once; of a selection by a given member or item the selection itself, and the atoms of its cases.

    With ``names`` the parts of long formulas that mention none of them are left out; see :meth:`ManyParts.concerned`.
    """
    if isinstance(formula, bool):
        return ()
    if formula[0] not in _OPERATORS:
        return (formula,)
    found: dict[Atom, None] = {}
    # Visited formulas are known by identity, because hashing a long formula takes as long as visiting its parts.
    seen: set[int] = set()
    stack: list[Formula] = [formula]
    while stack:
        part = stack.pop()
        if isinstance(part, bool):
            continue
        kind = part[0]
        if kind not in _OPERATORS:
            found[part] = None
            continue
        if id(part) in seen:
            continue
        seen.add(id(part))
        if kind == "!":
            stack.append(part[1])
        elif kind == "?":
            selection = Selection.of(part)
            if selection.member == member:
                found[part] = None
                stack.extend(reversed(selection.cases))
            else:
                stack.append(selection.whole)
        elif names is not None and isinstance(part[1], ManyParts):
            stack.extend([part[1][index] for index in reversed(part[1].concerned(*names))])
        else:
            stack.extend(reversed(part[1]))
    return tuple(found)


def nodes_in(part: object) -> list[int]:
    """The numbers of the nodes in a formula over nodes; none of anything else."""
    if not isinstance(part, tuple) or not part or not isinstance(part[0], str):
        return []
    if part[0] == "s":
        return [part[1]]
    return [atom[1] for atom in atoms(part) if atom[0] == "s"] if part[0] in _OPERATORS else []


def substitute(formula: Formula, value: Callable[[Atom], Formula], names: Names | None = None) -> Formula:
    """The formula with every atom replaced by a formula.

    ``value`` is called with a selection first. If ``value`` returns the selection itself, the atoms in the selection
    are replaced. With ``names`` only atoms about these members are replaced; see :meth:`ManyParts.concerned`.
    """
    if formula is True or formula is False:
        return formula
    kind = formula[0]
    if kind not in _OPERATORS:
        return value(formula)
    if kind == "?":
        selected = value(formula)
        if selected is not formula:
            return selected
        selection = Selection.of(formula)
        replaced = selection.replaced(value, names)
        return formula if replaced is selection else replaced.formula
    if kind == "!":
        result = substitute(formula[1], value, names)
        return formula if result is formula[1] else negation(result)
    parts = formula[1]
    connected, neutral = _CONNECTED[kind]
    concerned: Sequence[int] = range(len(parts))
    if names is not None and isinstance(parts, ManyParts):
        concerned = parts.concerned(*names)
    changed: dict[int, Formula] = {}
    for index in concerned:
        part = parts[index]
        result = substitute(part, value, names) if part[0] in _OPERATORS else value(part)
        if result is not part:
            if isinstance(result, bool) and kind != "1" and result is not neutral:
                return result
            changed[index] = result
    if not changed:
        return formula
    if names is not None and isinstance(parts, ManyParts):
        if kind != "1":
            return _replaced(kind, parts, changed, neutral)
        if True not in changed.values():
            return _of_parts(kind, parts.changed({at: [new] if new else () for at, new in changed.items()}), neutral)
    return connected([changed.get(index, part) for index, part in enumerate(parts)])


def _replaced(kind: str, parts: ManyParts, changed: Mapping[int, Formula], neutral: bool) -> Formula:
    """A long conjunction or disjunction of which some parts are replaced, with what is known of the other parts."""
    by: dict[int, list[Formula]] = {index: [] for index in changed}
    new = [(index, result) for index, result in changed.items() if not isinstance(result, bool)]
    if new:
        kept = [part for index, part in enumerate(parts) if index not in changed]
        for index, result in new:
            for part in result[1] if result[0] == kind else (result,):
                if negation(part) in kept:
                    return not neutral
                if part not in kept:
                    kept.append(part)
                    by[index].append(part)
    return _of_parts(kind, parts.changed(by), neutral)


def _of_parts(kind: str, parts: tuple[Formula, ...], neutral: bool) -> Formula:
    return (kind, parts) if len(parts) > 1 else parts[0] if parts else neutral


def without_parts(formula: Formula, indices: Iterable[int]) -> Formula:
    """A conjunction without the parts at some indices."""
    parts = parts_of(formula)
    if isinstance(parts, ManyParts):
        return _of_parts("&", parts.changed(dict.fromkeys(indices, ())), True)
    excluded = frozenset(indices)
    return conjunction([part for index, part in enumerate(parts) if index not in excluded])


#: For each operator the function that joins parts, and the neutral part.
_CONNECTED: Final = {"&": (conjunction, True), "|": (disjunction, False), "1": (exactly_one, False)}


def holds_at_end(formula: Formula, truth: Callable[[Atom], bool], names: Names = ()) -> bool:
    """Whether a formula holds of an object or array that ends.

    Args:
        formula: the formula that is left at the end.
        truth: of atoms and selections; of an atom about one member always the same, as long as the member has not come.
        names: of the members that have come; ``None``: atoms about no certain member may have another truth, too.
    """
    if isinstance(formula, bool):
        return formula
    kind = formula[0]
    if kind == "!":
        return not holds_at_end(formula[1], truth, names)
    if kind == "?" or kind not in _OPERATORS:
        return bool(truth(formula))
    parts: tuple[Formula, ...] = formula[1]
    neutral = bool(kind == "&")
    many = parts if isinstance(parts, ManyParts) else None
    asked: Iterable[Formula] = parts
    if many is not None and many.unsure is not None:
        asked = [many[index] for index in {*many.unsure, *(many.concerned(*names) if names else ())}]
    others = [found for found in (holds_at_end(part, truth, names) for part in asked) if found is not neutral]
    if many is not None and not names and not others and not many.concerned(None):
        many.unsure = ()
    return len(others) == 1 if kind == "1" else bool(others) is not neutral
