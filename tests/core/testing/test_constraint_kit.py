"""Each check of the suite for constraints finds a fault that is sown into a sound constraint, and passes without it."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest

from logitloom import Vocabulary
from logitloom.automata import TokenAutomaton, compile_pattern
from logitloom.constraints import ByteAutomaton, Constraint, LiftedAutomaton, State, TokenSet, lift
from logitloom.testing import ConstraintConformance
from tests.core.testing.failing import SKIPPED, checks_of, failure

WORDS = Vocabulary([b"", *(bytes([n]) for n in b"()ab"), b"()", b"((", b"ab"], eos=[0], special=[])
WIDTH = WORDS.size + 2


class Brackets(ByteAutomaton):
    """Brackets, each pair with an ``a`` inside, at most four deep: ``(a)``, ``(a(a))``."""

    fingerprint = b"brackets"

    def start(self) -> State:
        return (0, False)

    def step(self, state: Any, byte: int) -> State | None:
        depth, wanting = state
        if byte == ord("(") and depth < 4 and not wanting:
            return depth + 1, True
        if byte == ord("a") and depth and wanting:
            return depth, False
        if byte == ord(")") and depth and not wanting:
            return depth - 1, False
        return None

    def accepts(self, state: Any) -> bool:
        return bool(state == (0, False))


class Lifted(LiftedAutomaton):
    """A sound constraint whose methods can be replaced."""

    def __init__(self) -> None:
        super().__init__(Brackets(), WORDS, WIDTH)


class Dense(TokenAutomaton):
    """A sound constraint with tables."""

    def __init__(self) -> None:
        super().__init__(compile_pattern("(a|bb){2,4}"), WORDS, WIDTH)


class OfLifted(ConstraintConformance):
    cases = {"default": Lifted}  # noqa: RUF012

    def constraint(self, case: str) -> Constraint:
        return self.cases[case]()  # type: ignore[no-any-return]


class OfDense(OfLifted):
    cases = {"default": Dense}  # noqa: RUF012


class TakingMore(Lifted):
    def advance(self, state: State, token: int) -> State | None:
        return state if token == 3 else super().advance(state, token)


class TakingLess(Lifted):
    def advance(self, state: State, token: int) -> State | None:
        return None if token == 1 else super().advance(state, token)


class AllowingTheEnd(Lifted):
    def allowed(self, state: State) -> TokenSet:
        ids = super().allowed(state).listed(WIDTH)
        ids = np.union1d(ids, [0]).astype(np.int32)
        ids.flags.writeable = False
        return TokenSet(True, ids)


class Unsorted(Lifted):
    def allowed(self, state: State) -> TokenSet:
        ids = super().allowed(state).listed(WIDTH)[::-1].copy()
        ids.flags.writeable = False
        return TokenSet(True, np.concatenate([ids, ids]) if len(ids) == 1 else ids)


class Writable(Lifted):
    def allowed(self, state: State) -> TokenSet:
        return TokenSet(True, super().allowed(state).listed(WIDTH).copy())


class Hopeless(Lifted):
    """It allows tokens after which nothing can come."""

    def allowed(self, state: State) -> TokenSet:
        members = super().allowed(state)
        none = TokenSet(True, members.ids[:0])
        return none if state == (2, True) else members


class Numbering(Lifted):
    """Its states are numbered as they are visited, after some that this object alone has seen."""

    objects = itertools.count()

    def __init__(self) -> None:
        self.known: list[State] = [(0, True)] * next(self.objects)
        super().__init__()

    def start(self) -> State:
        return self._number(super().start())

    def _number(self, state: Any) -> int:
        if state not in self.known:
            self.known.append(state)
        return self.known.index(state)

    def advance(self, state: Any, token: int) -> State | None:
        after = super().advance(self.known[state], token)
        return None if after is None else self._number(after)

    def allowed(self, state: Any) -> TokenSet:
        if state >= len(self.known):
            return TokenSet(True, np.zeros(0, np.int32))
        return super().allowed(self.known[state])

    def may_end(self, state: Any) -> bool:
        return state < len(self.known) and super().may_end(self.known[state])


class Local:
    """A state that knows no other one as equal."""


class Nameless(Lifted):
    def start(self) -> State:
        return (0, Local())

    def advance(self, state: Any, token: int) -> State | None:
        return None

    def allowed(self, state: Any) -> TokenSet:
        return TokenSet(True, np.zeros(0, np.int32))

    def may_end(self, state: Any) -> bool:
        return True


class OtherFingerprint(Lifted):
    numbers = itertools.count()

    @property
    def fingerprint(self) -> bytes:
        return bytes([next(self.numbers) % 256])


class Overwriting(Lifted):
    """All its sets share one array."""

    def __init__(self) -> None:
        self.array = np.zeros(WIDTH, np.int32)
        super().__init__()

    def allowed(self, state: State) -> TokenSet:
        ids = super().allowed(state).listed(WIDTH)
        self.array[: len(ids)] = ids
        return TokenSet(True, self.array[: len(ids)])


class Ageing(Lifted):
    """It ends nowhere any more once it was asked often."""

    def __init__(self) -> None:
        self.asked = 0
        super().__init__()

    def may_end(self, state: State) -> bool:
        self.asked += 1
        return super().may_end(state) and self.asked < 4


class Shuffling(Lifted):
    def allowed_many(self, states: Any) -> list[TokenSet]:
        return [self.allowed(state) for state in sorted(states)]


class Eager(Lifted):
    def forced(self, state: State) -> list[int]:
        ids = self.allowed(state).listed(WIDTH)
        return ids[:1].tolist()  # type: ignore[no-any-return]


class OtherTables(Dense):
    def tables(self) -> Any:
        tables = super().tables()
        return tables._replace(allowed=np.roll(tables.allowed, 1, axis=0))


class OtherSteps(Dense):
    def tables(self) -> Any:
        tables = super().tables()
        return tables._replace(next=np.where(tables.next >= 0, 0, tables.next))


class TablesWithoutStates(Dense):
    def __init__(self) -> None:
        super().__init__()
        self.states = None


class OtherAutomaton(Lifted):
    class Longer(Brackets):
        def accepts(self, state: Any) -> bool:
            return bool(state == (0, False)) or state == (1, False)

    def automaton(self) -> ByteAutomaton:
        return self.Longer()


class TooNear(Lifted):
    def least_tokens(self, state: State) -> int | None:
        return 0 if self.may_end(state) else 1


class NeverAtTheEnd(Lifted):
    def least_tokens(self, state: State) -> int | None:
        return 2


CHECKS = [
    name for name in checks_of(ConstraintConformance) if "case" in inspect.signature(getattr(OfLifted, name)).parameters
]
FAULTS: list[tuple[str, type[Constraint]]] = [
    ("test_steps_and_masks_agree", TakingMore),
    ("test_steps_and_masks_agree", TakingLess),
    ("test_token_sets_are_well_formed", AllowingTheEnd),
    ("test_token_sets_are_well_formed", Unsorted),
    ("test_token_sets_are_well_formed", Writable),
    ("test_every_state_has_a_way_on", Hopeless),
    ("test_states_are_values", Numbering),
    ("test_states_are_values", Nameless),
    ("test_states_are_values", OtherFingerprint),
    ("test_states_never_change", Overwriting),
    ("test_states_never_change", Ageing),
    ("test_many_states_at_once", Shuffling),
    ("test_forced_tokens_are_the_only_ones", Eager),
    ("test_tables_are_the_methods", OtherTables),
    ("test_tables_are_the_methods", OtherSteps),
    ("test_tables_are_the_methods", TablesWithoutStates),
    ("test_tokens_lead_where_their_bytes_lead", OtherAutomaton),
    ("test_the_way_to_an_end_is_no_longer_than_told", TooNear),
    ("test_the_way_to_an_end_is_no_longer_than_told", NeverAtTheEnd),
]


@pytest.mark.parametrize(("check", "faulty"), FAULTS, ids=lambda value: getattr(value, "__name__", None))
def test_faults_are_found(check: str, faulty: type[Constraint]) -> None:
    class OfFaulty(OfLifted):
        cases = {"default": faulty}  # noqa: RUF012

    error = failure(OfFaulty, check, case="default")
    assert error is not None
    control = OfDense if issubclass(faulty, Dense) else OfLifted
    assert failure(control, check, case="default") is None, "the check fails without the fault, too"


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("suite", [OfLifted, OfDense])
def test_sound_constraints_pass(check: str, suite: type[ConstraintConformance]) -> None:
    if suite is OfLifted and check == "test_tables_are_the_methods":
        with pytest.raises(SKIPPED, match="no tables"):
            suite().test_tables_are_the_methods("default")
    else:
        assert failure(suite, check, case="default") is None


def test_every_check_is_proven_able_to_fail() -> None:
    assert {check for check, _ in FAULTS} == set(CHECKS)


def test_a_lifted_automaton_is_what_lift_makes() -> None:
    made = lift(Brackets(), WORDS, WIDTH)
    assert made.allowed(made.start()).listed(WIDTH).tolist() == Lifted().allowed((0, False)).listed(WIDTH).tolist()
