"""The suite for constraints: the properties that all users of constraints rely on."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest

from logitloom.constraints import ByteAutomaton, Constraint, State
from logitloom.host import registry
from logitloom.rows.tree import Rows
from logitloom.rows.tree_format import decode, encode
from logitloom.testing.conformance import Conformance

__all__ = ["ConstraintConformance"]

#: Walks per case, and ids that are tried in each visited state.
WALKS, TRIED = 12, 48
#: States that a search for an end visits.
SEARCHED = 400


class ConstraintConformance(Conformance):
    """Tests of one constraint with each of several options. Implement :meth:`constraint`.

    Attributes:
        cases: label -> the input from which :meth:`constraint` makes a constraint.
        steps: tokens of a random walk.
        follows_only_allowed: whether ``advance`` takes no id that ``allowed`` lacks. Constraints that only watch, or
            that leave out tokens to make texts unambiguous, may follow more.

    Example:
        >>> from logitloom import Vocabulary
        >>> from logitloom.automata import TokenAutomaton, compile_pattern
        >>> class TestYears(ConstraintConformance):
        ...     cases = {"four": "[0-9]{4}", "two": "'[0-9]{2}"}
        ...     def constraint(self, case):
        ...         words = Vocabulary([b"", *(bytes([n]) for n in range(32, 127))], eos=[0])
        ...         return TokenAutomaton(compile_pattern(self.cases[case]), words, words.size + 2)
    """

    kind = "constraints"
    steps: ClassVar[int] = 7
    follows_only_allowed: ClassVar[bool] = True

    def constraint(self, case: str) -> Constraint:
        """A new constraint of a case: equal to any other one of the case, but another object."""
        raise NotImplementedError(f"{type(self).__name__} must define constraint(case).")

    # --- walks ----------------------------------------------------------------------------------------------------

    def walk(self, constraint: Constraint, seed: int) -> Iterator[tuple[State, int | None]]:
        """The states of a random walk through allowed tokens, each with the token that is taken next, if any."""
        dice, state = np.random.default_rng(seed), constraint.start()
        for _ in range(self.steps):
            ids = constraint.allowed(state).listed(constraint.vocab_size)
            token = int(dice.choice(ids)) if len(ids) else None
            yield state, token
            if token is None:
                return
            after = constraint.advance(state, token)
            assert after is not None, f"After {state!r:.200} token {token} is allowed and advance does not take it."
            state = after
        yield state, None

    def visited(self, constraint: Constraint) -> list[State]:
        """The states of several walks, each once."""
        return list(dict.fromkeys(state for seed in range(WALKS) for state, _ in self.walk(constraint, seed)))

    def ids(self, constraint: Constraint, state: State, seed: int) -> list[int]:
        """Ids to try in a state: some that are allowed, and some of all."""
        dice, ends = np.random.default_rng(seed), set(constraint.vocabulary.eos)
        members = constraint.allowed(state).listed(constraint.vocab_size)
        some = dice.permutation(members.tolist())[:TRIED].tolist()
        tried = {*some, *dice.integers(0, constraint.vocab_size, TRIED).tolist()}
        return sorted(token for token in tried if token not in ends)

    # --- checks ---------------------------------------------------------------------------------------------------

    def test_steps_and_masks_agree(self, case: str) -> None:
        """Every allowed id leads to a state, and (if it follows only those) no other id does.

        Troubleshooting: ``allowed`` and ``advance`` are two answers to one question; make one of the other.
        """
        constraint = self.constraint(case)
        for state in self.visited(constraint):
            members = constraint.allowed(state)
            for token in self.ids(constraint, state, 0):
                taken = constraint.advance(state, token) is not None
                if token in members:
                    assert taken, f"After {state!r:.200} token {token} is allowed, but advance does not take it"
                elif self.follows_only_allowed:
                    assert not taken, f"After {state!r:.200} advance takes token {token}, which is not allowed"

    def test_token_sets_are_well_formed(self, case: str) -> None:
        """Ids are int32, sorted, distinct, within the width, cannot be written to, and no end-of-sequence ids.

        Troubleshooting: the host adds end-of-sequence where ``may_end`` says so.
        """
        constraint = self.constraint(case)
        for state in self.visited(constraint):
            ids = constraint.allowed(state).ids
            assert ids.dtype == np.int32, f"The ids of {state!r:.200} are {ids.dtype}, and should be int32"
            assert not ids.flags.writeable, f"The ids of {state!r:.200} can be written to"
            assert np.array_equal(np.unique(ids), ids), f"The ids of {state!r:.200} are not sorted and distinct"
            inside = not len(ids) or (ids[0] >= 0 and ids[-1] < constraint.vocab_size)
            assert inside, f"The ids of {state!r:.200} are not all below {constraint.vocab_size}"
            ends = [token for token in constraint.vocabulary.eos if token in constraint.allowed(state)]
            assert not ends, f"After {state!r:.200} the end-of-sequence id {ends[0]} is among the allowed ids"

    def test_every_state_has_a_way_on(self, case: str) -> None:
        """Where no token is allowed the text may end.

        Troubleshooting: a token must be allowed only if the text can still be completed after it.
        """
        constraint = self.constraint(case)
        for state in self.visited(constraint):
            left = len(constraint.allowed(state).listed(constraint.vocab_size))
            assert left or constraint.may_end(state), f"After {state!r:.200} nothing is allowed, and it is no end"

    def test_states_are_values(self, case: str) -> None:
        """States are hashable, come back from a pickle and from ``save_state`` equal, and mean the same elsewhere.

        Troubleshooting: a state is a number that does not depend on what was visited, a tuple, or an object with
        ``__eq__``, ``__hash__``, ``state_parts`` and ``from_state_parts``.
        """
        constraint, other = self.constraint(case), self.constraint(case)
        assert constraint.fingerprint == other.fingerprint, "Two constraints of one case have different fingerprints"
        self.visited_elsewhere(other)
        from_numpy = registry.load_backend("numpy")
        packages = {type(constraint).__module__.partition(".")[0], "logitloom", "logitloom_plugins"}
        for state in self.visited(constraint):
            pickled = pickle.loads(pickle.dumps(state))
            packages.add(type(state).__module__.partition(".")[0])
            (saved,) = decode(encode(Rows([state])), from_numpy, packages=packages)
            for how, found in (("pickled", pickled), ("saved", saved)):
                assert found == state, f"{state!r:.200} is another state after it was {how}"
                assert hash(found) == hash(state), f"{state!r:.200} has another hash after it was {how}"
                here, there = constraint.allowed(state), other.allowed(found)
                assert np.array_equal(here.listed(constraint.vocab_size), there.listed(other.vocab_size)), (
                    f"{state!r:.200} allows other tokens in an equal constraint"
                )
                assert constraint.may_end(state) == other.may_end(found), f"{state!r:.200} ends only in one constraint"
                for token in self.ids(constraint, state, 1)[: TRIED // 4]:
                    assert constraint.advance(state, token) == other.advance(found, token), (
                        f"Token {token} leads {state!r:.200} to another state in an equal constraint"
                    )  # fmt: skip

    def visited_elsewhere(self, constraint: Constraint) -> None:
        """Visit states in another order, so that numbers given in the order of visits differ."""
        for seed in range(100, 103):
            list(self.walk(constraint, seed))

    def test_states_never_change(self, case: str) -> None:
        """The allowed tokens of a state, and the start state, stay the same when other states are visited.

        Troubleshooting: ``advance`` makes a new state, and ``allowed`` an array that nobody writes to later.
        """
        constraint = self.constraint(case)
        size = constraint.vocab_size
        held = [(state, constraint.allowed(state)) for state in self.visited(constraint)]
        known = [(state, constraint.allowed(state).listed(size).copy(), constraint.may_end(state)) for state, _ in held]
        self.visited_elsewhere(constraint)
        assert constraint.start() == self.constraint(case).start(), "The start is another state later"
        for (state, members), (_, ids, _) in zip(held, known, strict=True):
            assert np.array_equal(members.listed(size), ids), f"The set of {state!r:.200} was written to later"
        for state, ids, ends in known:
            for token in self.ids(constraint, state, 2)[:4]:
                constraint.advance(state, token)
            now = constraint.allowed(state).listed(size)
            assert np.array_equal(now, ids), f"{state!r:.200} allows other tokens than before"
            assert constraint.may_end(state) == ends, f"{state!r:.200} is an end at one time and none at another"

    def test_many_states_at_once(self, case: str) -> None:
        """``allowed_many`` gives the result of ``allowed`` for each state, also for equal states and for an empty list.

        Troubleshooting: keep the order, and one answer for each state that was given.
        """
        constraint = self.constraint(case)
        states = self.visited(constraint)
        states = [*states, *states[:2]]
        together = constraint.allowed_many(states)
        assert list(constraint.allowed_many([])) == [], "allowed_many of no states is not empty"
        assert len(together) == len(states), f"allowed_many gave {len(together)} sets for {len(states)} states"
        for state, members in zip(states, together, strict=True):
            alone = constraint.allowed(state).listed(constraint.vocab_size)
            assert np.array_equal(members.listed(constraint.vocab_size), alone), (
                f"{state!r:.200} allows other tokens among others than alone"
            )  # fmt: skip

    def test_forced_tokens_are_the_only_ones(self, case: str) -> None:
        """Each token of a forced run is the one allowed id at its position, where the text may not end.

        Troubleshooting: leave ``forced`` out; the default asks ``allowed``.
        """
        constraint = self.constraint(case)
        for state in self.visited(constraint):
            at: State | None = state
            for token in constraint.forced(state):
                assert at is not None, f"The forced run of {state!r:.200} leads nowhere"
                ids = constraint.allowed(at).listed(constraint.vocab_size).tolist()
                assert ids == [token], f"Token {token} is said to be forced after {at!r:.200}, where {ids[:5]} may come"
                assert not constraint.may_end(at), f"Token {token} is said to be forced where the text may end"
                at = constraint.advance(at, token)

    def test_tables_are_the_methods(self, case: str) -> None:
        """The tables of a finite constraint say what its methods say; without tables states are no numbers.

        Troubleshooting: the rows of the tables are the states, then one finished and one dead row.
        """
        constraint = self.constraint(case)
        tables = constraint.tables()
        assert (tables is None) == (constraint.states is None), "A constraint has tables exactly if it says its states"
        if tables is None:
            pytest.skip("the constraint has no tables")
        assert tables.start == constraint.start(), "The tables start in another state"
        for state in self.visited(constraint):
            assert isinstance(state, int), (
                f"The constraint says how many states it has, but {state!r:.200} is no number"
            )
            members = constraint.allowed(state)
            assert bool(tables.accepting[state]) == constraint.may_end(state), f"State {state!r} ends in one of the two"
            for token in self.ids(constraint, state, 3):
                column = tables.token_class[token]
                assert bool(tables.allowed[state, column]) == (token in members), (
                    f"In state {state!r} token {token} is allowed in the tables or in the method, not in both"
                )  # fmt: skip
                if token in members:
                    assert tables.next[state, column] == constraint.advance(state, token), (
                        f"From state {state!r} token {token} leads elsewhere in the tables"
                    )  # fmt: skip

    def test_tokens_lead_where_their_bytes_lead(self, case: str) -> None:
        """The automaton over bytes reads every allowed text, and accepts exactly where the text may end.

        Troubleshooting: ``automaton`` returns the automaton that the constraint lifts, from its start.
        """
        constraint = self.constraint(case)
        automaton = constraint.automaton()
        if automaton is None:
            pytest.skip("the constraint is not made of an automaton over bytes")
        for seed in range(WALKS):
            at: State | None = automaton.start()
            for state, token in self.walk(constraint, seed):
                assert at is not None, f"The automaton does not read a text that leads to {state!r:.200}"
                assert automaton.accepts(at) == constraint.may_end(state), (
                    f"At {state!r:.200} the text may end for the constraint or for its automaton, not for both"
                )  # fmt: skip
                text = b"" if token is None else constraint.vocabulary.text_bytes([token])
                if not text:
                    break  # an id without text may count as a token, which no automaton over bytes sees
                at = _read(automaton, at, text)

    def test_the_way_to_an_end_is_no_longer_than_told(self, case: str) -> None:
        """``least_tokens`` is a number of tokens after which the text can have ended, 0 exactly where it may end.

        Troubleshooting: return ``None`` where the number is not known.
        """
        constraint = self.constraint(case)
        for state in self.visited(constraint):
            least = constraint.least_tokens(state)
            if constraint.may_end(state):
                assert least == 0, f"At {state!r:.200} the text may end, and least_tokens says {least}"
            elif least is not None:
                assert least > 0, f"At {state!r:.200} the text may not end, and least_tokens says {least}"
                found = _nearest_end(constraint, state)
                if found is not None:
                    assert least >= found, f"From {state!r:.200} no end is {least} tokens away, but {found}"


def _read(automaton: ByteAutomaton, state: State, data: bytes) -> State | None:
    at: State | None = state
    for byte in data:
        at = None if at is None else automaton.step(at, byte)
    return None if at is None else automaton.token_border(at)


def _nearest_end(constraint: Constraint, state: State) -> int | None:
    """The exact distance to the nearest end, if a small search finds it."""
    layer, seen, distance = [state], {state}, 0
    while layer and len(seen) < SEARCHED:
        if any(constraint.may_end(at) for at in layer):
            return distance
        following: dict[State, None] = {}
        for at in layer:
            for token in constraint.allowed(at).listed(constraint.vocab_size).tolist():
                after = constraint.advance(at, token)
                if after is not None and after not in seen:
                    following[after] = None
            if len(seen) + len(following) > SEARCHED:
                return None
        seen.update(following)
        layer, distance = list(following), distance + 1
    return None
