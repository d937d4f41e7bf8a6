"""JSON numbers as texts: ranges, multiples and equality decided digit by digit.

Every number can be written without an exponent, and constrained numbers are: comparing ``m e x`` with a bound for
arbitrary ``m`` and ``x`` is not regular. Beside these, the two forms in which programs print very large and very small
numbers are read (one digit before the point, ``e+16`` and up, ``e-05`` and down) wherever their size alone
decides. Numbers without any constraint may be written in every form of RFC 8259.

References:
    T. Bray (ed.), "The JavaScript Object Notation (JSON) Data Interchange Format", RFC 8259, 2017, section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any, Final, NamedTuple

from logitloom.automata import BudgetTracker
from logitloom_plugins.json_schema.schema.formula import Formula, atoms, parts_of
from logitloom_plugins.json_schema.values.moore_machine import Label, MooreMachine, explored

__all__ = ["number_automaton"]

_ALPHABET: Final = "0123456789-+.eE"
_NONE: Final = [-1] * 10
_ANY_DIGIT: Final = [0] * 10
#: Bounds, and on which sides of them a number must not be.
_BROKEN: Final = {"ge": "<", "gt": "<", "le": ">", "lt": ">", "eq": "<>"}
_BIG: Final = 16
_TINY: Final = 5
#: The largest exponent that is read: that of the largest double, less one.
_MOST_EXPONENT: Final = 307


@cache
def _signs(phase: str) -> list[int]:
    """What may follow in a phase but digits, as :func:`explored` wants it; both letters mean the same."""
    signs = {"s": "-", "0": ".e", "i": ".e", "f": "e", "e": "+-", "E": "+-"}.get(phase, "")
    places = [at if _ALPHABET[at] in signs else -1 for at in range(10, 14)]
    return [*places, places[-1]]


@cache
def _alike(least: int) -> list[int]:
    """For each printed exponent one that stands for its kind: whether it is large enough, and what may follow."""
    found = list(range(_MOST_EXPONENT + 1))
    alike: dict[Any, int] = {}
    # Longer ones come first: what a number says depends on those that it can become.
    for value in reversed(found):
        following = tuple(found[value * 10 : value * 10 + 10])
        if value:
            found[value] = alike.setdefault((value >= least, following), value)
    return found


@cache
def _digits_alike(least: int, exponent: int) -> list[int]:
    """Which digits after an exponent lead where an earlier one does, as :func:`explored` wants it."""
    following = _alike(least)[exponent * 10 : exponent * 10 + 10]
    return [following.index(value) for value in following] + [-1] * (10 - len(following))


class _Threshold(NamedTuple):
    """A magnitude to compare with: digits before and after the point, without superfluous zeros."""

    whole: str
    fraction: str


class _Multiple(NamedTuple):
    """``digits * 10**places`` must be a multiple of ``modulus``."""

    modulus: int
    places: int


class _State(NamedTuple):
    """What matters of the digits so far.

    ``phase``: ``s`` start, ``-``, ``0`` a leading zero, ``i`` whole digits, ``.``, ``f`` fraction digits; then ``e``,
    ``+``/``m`` (signed exponent), ``x`` exponent digits; for the two printed forms ``B``/``b``, ``T``/``t``.
    """

    phase: str
    negative: bool = False
    length: int = 0
    fraction: int = 0
    order: tuple[int, ...] = ()
    residues: tuple[int, ...] = ()
    exact: tuple[bool, ...] = ()
    whole: bool = True
    single: bool = False
    exponent: int = 0


def number_automaton(
    formulas: list[Formula], label: Callable[[Callable[[Formula], bool]], Label], tracker: BudgetTracker
) -> MooreMachine:
    """The automaton of JSON numbers, automaton by which formulas hold.

    Args:
        formulas: over the atoms ``int ge gt le lt mult eq``.
        label: from a function that says whether an atom holds to the label.
        tracker: the budget.
    """
    return _Reader(formulas, label, tracker).automaton()


def _threshold(value: Decimal) -> _Threshold:
    whole, _, fraction = format(abs(value), "f").partition(".")
    return _Threshold(whole.lstrip("0") or "0", fraction.rstrip("0"))


class _Reader:
    def __init__(
        self, formulas: list[Formula], label: Callable[[Callable[[Formula], bool]], Label], tracker: BudgetTracker
    ) -> None:
        self.label_of = label
        self.tracker = tracker
        self.atoms = list(dict.fromkeys(atom for formula in formulas for atom in atoms(formula)))
        bounds = [atom[1] for atom in self.atoms if atom[0] in _BROKEN]
        for bound in bounds:
            tracker.check_states(abs(bound.adjusted()), "digits")
        #: Only bounds are about magnitudes and signs; the first threshold tells what is zero.
        self.signed = bool(bounds)
        self.thresholds = list(dict.fromkeys([_Threshold("0", ""), *map(_threshold, bounds)])) if bounds else []
        self.place = {threshold: i for i, threshold in enumerate(self.thresholds)}
        self.multiples = []
        for atom in self.atoms:
            if atom[0] == "mult":
                self.multiples.append(_multiple(atom[1]))
                tracker.check_states(self.multiples[-1].modulus, "remainders")
        self.multiple_of = {atom: i for i, atom in enumerate([a for a in self.atoms if a[0] == "mult"])}
        self._printed: dict[tuple[bool, bool], bool] = {}
        # Digits are compared with those of the thresholds; those that lie between the same two are alike, but
        # for zero, which may not come first.
        compared = {digit for t in self.thresholds for digit in t.whole + t.fraction}
        digits = [d for d in range(10) if self.multiples or d < 2 or {_ALPHABET[d], _ALPHABET[d - 1]} & compared]
        self._digits = [max(d for d in digits if d <= i) for i in range(10)]
        self.most_whole = max([len(t.whole) for t in self.thresholds], default=0) + 1
        self.most_fraction = max([0, *[len(t.fraction) for t in self.thresholds], *[m.places for m in self.multiples]])
        # A whole number is written with at most one zero after the point; where it is known that only whole
        # numbers are wanted, longer fractions would lead nowhere useful.
        wanted = parts_of(formulas[0]) if formulas else ()
        #: Bounds that every number must keep, each with its threshold.
        self.hard = [(a[0], a[1], self.place[_threshold(a[1])]) for a in wanted if a[0] in _BROKEN]
        self.plain_integer = ("int", True) in wanted
        self.integer = ("int", False) in wanted or self.plain_integer
        sizes = [abs(bound) for bound in bounds if bound]
        self.big = all(size < Decimal(10) ** _BIG for size in sizes) and all(
            (1 / factor).denominator == 1 for _, factor in [a for a in self.atoms if a[0] == "mult"]
        )
        self.tiny = all(size >= Decimal(10) ** (1 - _TINY) for size in sizes) and all(
            factor >= Fraction(1, 10 ** (_TINY - 1)) for _, factor in [a for a in self.atoms if a[0] == "mult"]
        )

    def automaton(self) -> MooreMachine:
        start = _State(
            "s",
            order=(0,) * len(self.thresholds),
            residues=(0,) * len(self.multiples),
            exact=(True,) * len(self.multiples),
        )
        return explored(start, self.step, self.label, _ALPHABET, self.tracker, self.alike)

    def alike(self, s: _State) -> list[int]:
        """Which characters a state need not be asked for, because they lead where an earlier one does."""
        if s.phase in "BbTt":
            digits = _digits_alike(_BIG if s.phase in "Bb" else _TINY, s.exponent)
        else:
            digits = _NONE if s.phase in "0E" else _ANY_DIGIT if s.phase in "e+mx" else self._digits
        return digits + _signs(s.phase)

    def step(self, s: _State, c: str) -> _State | None:
        phase = s.phase
        if c.isdigit():
            if phase in "s-":
                return self.digit(s, c, "0" if c == "0" else "i", c != "0")
            if phase == "i":
                return self.digit(s, c, "i", False)
            if phase in ".f":
                return self.digit(self.ended(s), c, "f", s.single)
            if phase in "e+mx":
                return s._replace(phase="x")
            if phase in "BbTt":
                value = s.exponent * 10 + int(c)
                if value > _MOST_EXPONENT:
                    return None
                return s._replace(phase=phase.lower(), exponent=_alike(_BIG if phase in "Bb" else _TINY)[value])
            return None
        if c == "-" and phase == "s":
            return s._replace(phase="-", negative=self.signed)
        if c == "." and phase in "0i":
            return None if self.plain_integer else s._replace(phase=".")
        if c in "eE" and phase in "0if":
            if not self.atoms:
                return _State("e")
            return _State("E", s.negative) if s.single else None
        if phase == "e" and c in "+-":
            return s._replace(phase="m")
        # Where printed numbers would not be wanted whatever their exponent, there are none.
        if phase == "E" and c in "+-" and self.printed(s.negative, c == "+"):
            return s._replace(phase="B" if c == "+" else "T")
        return None

    def ended(self, s: _State) -> _State:
        """The order of magnitudes once the number of whole digits is known."""
        return s._replace(order=self.lengths(s), length=0) if s.phase == "." else s

    def lengths(self, s: _State) -> tuple[int, ...]:
        return tuple(
            [
                order if s.length == len(t.whole) else -1 if s.length < len(t.whole) else 1
                for t, order in zip(self.thresholds, s.order, strict=True)
            ]
        )

    def digit(self, s: _State, c: str, phase: str, single: bool) -> _State | None:
        fraction = phase == "f"
        if fraction and self.integer and (c != "0" or s.fraction):
            return None
        at = s.fraction if fraction else s.length
        order = []
        for t, known in zip(self.thresholds, s.order, strict=True):
            text = t.fraction if fraction else t.whole
            if at >= len(text) and not fraction:
                # More digits make it larger, whatever they are.
                known = 1
            elif known == 0:
                other = text[at] if at < len(text) else "0"
                known = 0 if other == c else 1 if c > other else -1
            order.append(known)
        residues, exact = list(s.residues), list(s.exact)
        for i, (modulus, places) in enumerate(self.multiples):
            if fraction and at >= places:
                exact[i] = exact[i] and c == "0"
            else:
                residues[i] = (residues[i] * 10 + int(c)) % modulus
        if fraction:
            most = max(self.most_fraction, 1)
            place, count = min(s.fraction + 1, most), 0
        else:
            place, count = 0, min(s.length + 1, self.most_whole)
        whole = s.whole and (not fraction or c == "0")
        read = _State(*(phase, s.negative, count, place, tuple(order), tuple(residues), tuple(exact), whole, single))
        return None if self.hopeless(read) else read

    def hopeless(self, s: _State) -> bool:
        """Whether a bound is broken already, whatever follows."""
        if s.single and (self.printed(s.negative, True) or self.printed(s.negative, False)):
            return False
        for kind, bound, place in self.hard:
            order = s.order[place]
            if s.phase == "f":
                above, below = order == 1, order == -1
            else:
                # More digits may come, and only make it larger.
                above, below = order == 1 and s.length >= len(self.thresholds[place].whole), False
            if s.negative == (bound < 0):
                larger, smaller = (below, above) if s.negative else (above, below)
            elif s.negative:
                # At most zero: smaller than any other bound, and not larger than zero.
                larger, smaller = False, above or bound > 0 or kind == "gt"
            else:
                larger, smaller = True, False
            if (larger and ">" in _BROKEN[kind]) or (smaller and "<" in _BROKEN[kind]):
                return True
        return False

    def label(self, s: _State) -> Label:
        if s.phase in "s-.e+mEBT":
            return None
        if s.phase == "x":
            return self.label_of(lambda atom: False)
        if s.phase == "b":
            return None if s.exponent < _BIG else self.label_printed(s.negative, True)
        if s.phase == "t":
            return None if s.exponent < _TINY else self.label_printed(s.negative, False)
        order = s.order if s.phase == "f" else self.lengths(s)
        at = s.fraction if s.phase == "f" else 0
        order = tuple(
            [-1 if o == 0 and at < len(t.fraction) else o for t, o in zip(self.thresholds, order, strict=True)]
        )
        return self.label_of(lambda atom: self.holds(atom, s, order))

    def printed(self, negative: bool, big: bool) -> bool:
        """Whether printed numbers of a sign and a kind are wanted at all."""
        known = self._printed.get((negative, big))
        if known is None:
            possible = self.big if big else self.tiny
            known = self._printed[negative, big] = possible and self.label_printed(negative, big) is not None
        return known

    def label_printed(self, negative: bool, big: bool) -> Label:
        return self.label_of(lambda atom: self.holds_printed(atom, negative, big))

    def holds(self, atom: Any, s: _State, order: tuple[int, ...]) -> bool:
        if atom[0] == "int":
            return s.phase != "f" if atom[1] else s.whole
        if atom[0] == "mult":
            i = self.multiple_of[atom]
            modulus, places = self.multiples[i]
            at = min(s.fraction, places) if s.phase == "f" else 0
            return s.exact[i] and s.residues[i] * 10 ** (places - at) % modulus == 0
        bound = atom[1]
        compared = order[self.place[_threshold(bound)]]
        zero = order[0] == 0
        if bound < 0:
            sign = -compared if s.negative and not zero else 1
        else:
            sign = -1 if s.negative and not zero else compared
        return _compares(atom[0], sign)

    def holds_printed(self, atom: Any, negative: bool, big: bool) -> bool:
        if atom[0] == "int":
            return big and not atom[1]
        if atom[0] == "mult":
            return big
        bound = atom[1]
        size = 1 if big or bound == 0 else -1
        if bound == 0 or big:
            return _compares(atom[0], -1 if negative else 1)
        above = 1 if bound < 0 else size
        return _compares(atom[0], above)


def _compares(kind: str, sign: int) -> bool:
    return {"ge": sign >= 0, "gt": sign > 0, "le": sign <= 0, "lt": sign < 0, "eq": sign == 0}[kind]


def _multiple(factor: Fraction) -> _Multiple:
    places = 0
    while (10**places * factor).denominator != 1:
        places += 1
    return _Multiple(int(10**places * factor), places)
