"""The most bytes that the end of an object with open formulas takes, read off the formulas.

To look at every frame that an object can reach takes as many steps as there are combinations of members. A formula
tells at once which members its truth can require: a conjunction requires the members of all its parts, and alternatives
require the members of the part that requires most. The rest of a formula after more members requires no more than the
formula.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logitloom.errors import BudgetExceeded
from logitloom_plugins.json_schema.grammar.keys import Label
from logitloom_plugins.json_schema.grammar.members import ValueConstraint
from logitloom_plugins.json_schema.grammar.objects import ObjectFrame
from logitloom_plugins.json_schema.schema.formula import Atom, Formula, Selection

__all__ = ["AnyDemands", "asked_atoms", "most_for"]

#: The most formulas about one value. Short values are found for all of them together, in quadratic time.
_MOST_ASKED: Final = 384
_TOO_MANY: Final = "The value of a member may be compared with too many others."
#: The kinds of atoms that hold of an object without members, and that one member can make false.
_OF_ABSENCE: Final = ("prop", "patp", "addl", "names")


def asked_atoms(frame: ObjectFrame) -> list[Atom]:
    """The selections of the open formulas, and the atoms that members can still be asked about, each once.

    Raises:
        BudgetExceeded: if very many cases are told apart by the value of a member.
    """
    found: dict[Atom, None] = {}
    seen: set[tuple[int, frozenset[str | int]]] = set()
    #: Formulas, each with the members whose atoms do not count there.
    pending = [(formula, frozenset[str | int]()) for formula in frame.open_formulas]
    while pending:
        formula, decided = pending.pop()
        if isinstance(formula, bool) or (id(formula), decided) in seen:
            continue
        seen.add((id(formula), decided))
        if formula[0] == "!":
            pending.append((formula[1], decided))
        elif formula[0] == "?":
            found[formula] = None
            selection = Selection.of(formula)
            if len(selection.cases) > _MOST_ASKED:
                raise BudgetExceeded(_TOO_MANY)
            # The value of the member selects a case. The alternatives as a whole matter without the member.
            pending.append((selection.whole, decided | {selection.member}))
            pending += [(case, decided) for case in selection.cases]
        elif formula[0] in "&|1":
            pending += [(part, decided) for part in formula[1]]
        elif formula[0] not in ("prop", "item") or formula[1] not in decided:
            found[formula] = None
    return [*found]


class AnyDemands:
    """The demands that the formulas of an object can make on its members' values, whichever atoms hold.

    Args:
        frame: the object.
    """

    def __init__(self, frame: ObjectFrame) -> None:
        self._plan = frame.plan
        self._named: dict[str | int, list[Formula]] = {}
        self._others: list[Atom] = []
        for atom in asked_atoms(frame):
            if atom[0] == "?":
                self._named.setdefault(Selection.of(atom).member, []).extend(Selection.of(atom).bits)
            elif atom[0] == "prop":
                self._named.setdefault(atom[1], []).append(atom[2])
            elif atom[0] in ("patp", "addl") and not isinstance(atom[-1], bool):
                self._others.append(atom)

    def of(self, label: Label) -> ValueConstraint:
        """The constraint on the value of a member with a label: what must hold, and what may hold.

        Raises:
            BudgetExceeded: if very many formulas may be asked about.
        """
        plan = self._plan
        asked = dict.fromkeys(self._named.get(label[1], ()) if label[0] == "name" else ())
        for atom in self._others:
            is_patp = atom[0] == "patp"
            if plan.keys.matches(label, atom[1]) if is_patp else plan.is_additional(label, atom[1], atom[2]):
                asked[atom[-1]] = None
        extras = tuple([each for each in asked if not isinstance(each, bool)])
        if len(extras) > _MOST_ASKED:
            raise BudgetExceeded(_TOO_MANY)
        return ValueConstraint(plan.hard_child(label), extras)


def most_for(frame: ObjectFrame, size: Callable[[str | None], int]) -> int | None:
    """The most bytes of the members that the open formulas can still ask for; ``None`` if that is not known.

    Args:
        frame: the object.
        size: the most bytes of a member with a name, whatever is asked of its value; of ``None`` those of any member.
    """
    known: dict[tuple[int, bool], int | None] = {}

    def most(formula: Formula, holds: bool) -> int | None:
        if isinstance(formula, bool):
            return 0
        # By identity, because the hash of a long formula takes as long as a visit to its parts.
        key = id(formula), holds
        if key not in known:
            known[key] = found(formula, holds)
        return known[key]

    def found(formula: Atom, holds: bool) -> int | None:
        kind = formula[0]
        if kind == "!":
            return most(formula[1], not holds)
        if kind == "?":
            selection = Selection.of(formula)
            return _largest([most(part, holds) for part in (selection.whole, *selection.cases)])
        if kind == "1":
            # If the formula holds, one part holds and the others do not. Otherwise the parts may hold in any other
            # combination.
            pairs = [(most(part, True), most(part, False)) for part in formula[1]]
            return _total([_largest(pair) for pair in pairs])
        if kind in ("&", "|"):
            return (_total if (kind == "&") == holds else _largest)([most(part, holds) for part in formula[1]])
        if kind == "req":
            return size(formula[1]) if holds else 0
        if kind in _OF_ABSENCE:
            return 0 if holds else size(formula[1] if kind == "prop" else None)
        # Of bounds on the number of members, only an upper bound holds without further members.
        return 0 if (kind == "maxp") == holds else None

    extras = [_largest([most(extra, holds) for holds in (True, False)]) for extra in frame.extras]
    return _total([most(frame.soft, True), *extras])


def _total(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _largest(sizes: list[int | None] | tuple[int | None, ...]) -> int | None:
    known = [size for size in sizes if size is not None]
    return max(known, default=0) if len(known) == len(sizes) else None
