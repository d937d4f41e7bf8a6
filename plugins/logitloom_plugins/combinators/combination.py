"""A combination of constraints as one constraint."""

# ruff: noqa: D102 - the methods of Constraint are documented there

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.constraints import FINISHED, UNKNOWN, Constraint, LiftedAutomaton, State, TokenSet, lift
from logitloom.errors import VocabularyError
from logitloom.host.hookspecs import TextEnd
from logitloom.vocabulary import kept_with_vocabulary
from logitloom_plugins.combinators.allowed_sets import difference, nothing, selected, union
from logitloom_plugins.combinators.characters import missing_by_token
from logitloom_plugins.combinators.section_automaton import (
    CombinedAutomaton,
    Crossing,
    CrossingAutomaton,
    SectionAutomaton,
    SectionConfiguration,
    States,
)
from logitloom_plugins.combinators.section_distances import Distances
from logitloom_plugins.combinators.triggers import TriggerMatcher, textless_ids, token_texts

__all__ = ["Combination"]

#: By position in a string the length of a part that is written as a special token, and the ids of such tokens.
Tags = dict[int, tuple[int, tuple[int, ...]]]

#: Tokens, distinct states, and per token the index of the state after it.
TokensByState = tuple[NDArray[np.int32], list[States], NDArray[np.intp]]

_NO_IDS: Final = nothing().ids
_NOWHERE: Final[States] = frozenset()
#: If at most this many tokens complete a string, or begin with the rest of one, they are read one by one. Otherwise one
#: walk of all tokens finds them.
_FEW_CROSSING: Final = 512


class Combination(Constraint):
    """The exact constraint of a text whose sections have a constraint each.

    The constraint of a section gives the tokens that stay inside the section. This class adds the tokens that cross the
    border of a section. A walk finds these tokens among the tokens in which a string that ends the section begins.

    Args:
        parts: the sections, with the automata of the constraints.
        constraints: per section its constraint, or ``None`` for free text.
        vocabulary: the bytes of each id.
        vocab_size: width of the logits.
        owner: name of the processor, for messages.
        decided: see :class:`CombinedAutomaton`.
        first: likewise.
        longest: whether a forced string must be written with its longest tokens.

    Raises:
        VocabularyError: if the vocabulary's tokens cannot write a string, or no text at all.
    """

    exact_least = False

    def __init__(
        self,
        parts: Sequence[SectionAutomaton],
        constraints: Sequence[Constraint | None],
        vocabulary: Vocabulary,
        vocab_size: int,
        *,
        owner: str,
        decided: bool = False,
        first: int = 0,
        longest: bool = False,
    ) -> None:
        self.vocabulary, self.vocab_size = vocabulary, vocab_size
        self.constraints, self.owner, self.longest = tuple(constraints), owner, longest
        self.ends_texts = any(inner is not None and inner.ends_texts for inner in constraints)
        self._automaton = CombinedAutomaton(parts, decided=decided, first=first)
        self._texts = token_texts(vocabulary)
        shown: dict[bytes, list[int]] = {}
        for token, text in vocabulary.special_text.items():
            if token in vocabulary.special and token not in vocabulary.eos and token < vocab_size:
                shown.setdefault(text.encode(), []).append(token)
        #: Per section the special ids whose text is one of the section's end strings, with the number of the string.
        self._special = [
            {token: exit for exit, (text, _) in enumerate(part.exits) for token in shown.get(text, ())}
            for part in parts
        ]
        #: Per section and string the special ids whose text is a part of the string, by its position.
        named = sorted(filter(None, shown), key=len, reverse=True)
        of_longest_first = re.compile(b"|".join(map(re.escape, named)) if named else b"(?!)")
        tags_of = cache(lambda text: _tags_in(text, of_longest_first, shown))
        self._tags = [[tags_of(text) for text, _ in part.exits] for part in parts]
        #: Per section, string and position in the string the longest token that continues the string.
        self._pieces = [
            [self._spelling(text, tags[exit]) for exit, (text, _) in enumerate(part.exits)]
            for part, tags in zip(parts, self._tags, strict=True)
        ]
        #: Per section the strings that end the section anywhere, and whether they begin at the borders of tokens alone.
        self._anywhere = [(_anywhere(part), part.at_tokens) for part in parts]
        self.gives_way = any(inner is not None and inner.gives_way for inner in constraints)
        self.of_configuration = self.memory.remembering("token sets of configurations", self._of_configuration)
        self._of_state = self.memory.remembering("token sets", self._of_states)
        self._within = self.memory.remembering("tokens within limits", self._find_within)
        self.crossing = self.memory.remembering("tokens that end sections", self._find_crossing)
        self.settled = self.memory.remembering("tokens of which all readings decide", self._find_settled)
        self._lifted_crossing = self.memory.remembering("automata of tokens that end sections", self._lift_crossing)
        if not any(self._viable(config) for config in self._automaton.start()):
            raise VocabularyError(
                f"No sequence of tokens of {vocabulary.name} writes a text that {owner!r} allows. Use a vocabulary "
                f"that has its bytes."
            )

    def _spelling(self, text: bytes, tags: Tags) -> list[bytes]:
        """The longest tokens, none of them across the border of a part that is a special token."""
        borders = sorted({0, len(text), *tags, *(start + length for start, (length, _) in tags.items())})
        found: list[bytes] = []
        for start, end in pairwise(borders):
            try:
                found += self._texts.spelling(text[start:end], self.owner)
            except VocabularyError:
                if start not in tags:
                    raise
                found += [b""] * (end - start)
        return found

    # --- methods of Constraint ------------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> bytes:
        digest = hashlib.blake2b(self._automaton.fingerprint, digest_size=16, person=b"combination")
        for inner in self.constraints:
            digest.update(b"free text......." if inner is None else inner.fingerprint)
        special: list[Any] = sorted((i, *pair) for i, found in enumerate(self._special) for pair in found.items())
        special += self._tags if any(map(any, self._tags)) else []
        digest.update(repr((self.vocabulary.fingerprint, self.vocab_size, self.longest, special)).encode())
        return digest.digest()

    def automaton(self) -> CombinedAutomaton:
        return self._automaton

    @cached_property
    def _lifted(self) -> LiftedAutomaton:
        return lift(self._automaton, self.vocabulary, self.vocab_size)

    def start(self) -> States:
        return self._automaton.start()

    def start_in(self, section: int, state: State = None) -> States:
        """The start state of a text that begins in another section or in another state of the inner constraint."""
        return frozenset(self._automaton.enter(section, state))

    def advance(self, state: State, token: int) -> States | None:
        return self.read(_configs(state), token)[0] or None

    def read(self, state: Iterable[SectionConfiguration], token: int) -> tuple[States, bool | None]:
        """The configurations after a token, and whether a section ended in it: ``None`` if only at the token's end."""
        text = self.vocabulary.token_bytes[token] if 0 <= token < self.vocabulary.size else b""
        if not text:
            return self._read_textless(state, token)
        automaton = self._automaton
        whole = {config: self._inside(config, token) for config in state if not self._may_cross(config, token)}
        reached: Iterable[SectionConfiguration] = [config for config in state if config not in whole]
        moved: bool | None = False
        for n, byte in enumerate(text):
            reached, entered = automaton.read(reached, byte)
            if entered:
                moved = None if n + 1 == len(text) else True
            if not reached:
                break
        ended = [after for config in reached for after in automaton.at_border(config) if self._viable(after)]
        if not (automaton.decided and moved is not False):
            ended += [after for found in whole.values() for after in found]
        found = frozenset(ended)
        if not found and any(automaton._text_end(config).finished for config in state):
            # The text has ended, but the engine continues to generate. Count the bytes that do not belong to the text.
            found = frozenset(
                SectionConfiguration(config.section, hold=end.hold + len(text))
                for config in state
                if (end := automaton._text_end(config)).finished
            )
        return found, moved

    def rest_within(self, state: Iterable[SectionConfiguration], token: int) -> bytes:
        """The bytes of a token behind the last string in it that ends a section."""
        text, rest, reached = self.vocabulary.token_bytes[token], 0, state
        for n, byte in enumerate(text, 1):
            reached, entered = self._automaton.read(reached, byte)
            rest = n if entered else rest
        return text[rest:]

    def _read_textless(self, state: Iterable[SectionConfiguration], token: int) -> tuple[States, bool | None]:
        found: list[SectionConfiguration] = []
        entered: list[SectionConfiguration] = []
        for config in state:
            exit = self._special[config.section].get(token, -1)
            if config.hold >= 0:
                found.append(config)
            elif exit >= 0 and self._is_trigger(config, exit):
                entered += self._automaton.enter(self._automaton.parts[config.section].exits[exit][1])
            elif (after := self._after_tag(config, token)) is not None:
                for one, new in after:
                    (entered if new else found).append(one)
            elif config.exit >= 0:
                found += [config] if config.node is not None else []
            elif not (config.over or self._automaton.parts[config.section].ends or token >= self.vocab_size) and (
                exit < 0 or self.constraints[config.section] is not None
            ):
                found += self._inside(config, token)
        if self._automaton.decided and entered:
            return frozenset(entered), None
        return frozenset(found + entered), None if entered else False

    def _after_tag(self, config: SectionConfiguration, token: int) -> list[tuple[SectionConfiguration, bool]] | None:
        """The configurations after a special token that is a part of strings, and whether each entered a section.

        ``None`` if the token is no part of a string that is being written, or that may begin here.
        """
        part, all_tags = self._automaton.parts[config.section], self._tags[config.section]
        if part.automaton is None and config.exit < 0:
            return self._after_free_tag(config, token)
        begun = [(config.exit, config.written)] if config.exit >= 0 else [(exit, 0) for exit in range(len(all_tags))]
        found: list[tuple[SectionConfiguration, bool]] = []
        for exit, written in begun:
            length, ids = all_tags[exit].get(written, (0, ()))
            if token not in ids or (config.exit < 0 and not self._may_begin(config, exit)):
                continue
            text, following = part.exits[exit]
            if written + length == len(text):
                found += ((one, True) for one in self._automaton.enter(following))
            else:
                found.append((SectionConfiguration(config.section, exit=exit, written=written + length), False))
        return found or None

    def _after_free_tag(
        self, config: SectionConfiguration, token: int
    ) -> list[tuple[SectionConfiguration, bool]] | None:
        """The same in free text, in which the text of the token is searched like any other."""
        part = self._automaton.parts[config.section]
        texts = {
            part.exits[exit][0][start : start + length]
            for exit, tags in enumerate(self._tags[config.section])
            for start, (length, ids) in tags.items()
            if token in ids
        }
        if not texts or part.matcher is None or config.node is None:
            return None
        (text,) = texts
        node = config.node
        for n, byte in enumerate(text):
            node, done = part.matcher.step(node, byte)
            if done >= 0:
                return (
                    [(one, True) for one in self._automaton.enter(part.exits[done][1])] if n + 1 == len(text) else None
                )
        config = config._replace(node=node)
        if part.budget is not None:
            config = config._replace(spent=config.spent + 1, counted=True)
        return [(after, False) for after in self._automaton.at_border(config)]

    def _may_begin(self, config: SectionConfiguration, exit: int) -> bool:
        """Whether a string may begin here."""
        part = self._automaton.parts[config.section]
        if part.at_start[exit]:
            return False  # a configuration of its own stands for it
        return part.automaton is None or part.automaton.accepts(config.state)

    def _tokens_of_tags(self, config: SectionConfiguration) -> list[int]:
        """The special tokens that are the next part of a string."""
        tags = self._tags[config.section]
        at = [tags[config.exit].get(config.written)] if config.exit >= 0 else [found.get(0) for found in tags]
        ids = {token for one in at if one is not None for token in one[1]}
        return sorted(token for token in ids if self._after_tag(config, token))

    def _is_trigger(self, config: SectionConfiguration, exit: int) -> bool:
        part = self._automaton.parts[config.section]
        if config.exit >= 0:
            return config.exit == exit and config.written == 0
        if part.automaton is not None and not part.automaton.accepts(config.state):
            return False
        return not part.at_start[exit] or (config.node is not None and config.node == (b"", True))

    def _may_cross(self, config: SectionConfiguration, token: int) -> bool:
        """Whether a token must be read byte by byte because a string that ends the section may begin in it."""
        part = self._automaton.parts[config.section]
        if config.exit >= 0 or config.over or config.hold >= 0 or part.matcher is not None or part.automaton is None:
            return True
        if part.follows:
            return True
        return bool(part.exits) and token in _begun_set(self.vocabulary, *self._anywhere[config.section])

    def _inside(self, config: SectionConfiguration, token: int) -> Iterable[SectionConfiguration]:
        """The configurations after a token inside a section."""
        part, inner = self._automaton.parts[config.section], self.constraints[config.section]
        if inner is not None:
            state = inner.advance(config.state, token)
            if state is None:
                return ()
            config = config._replace(state=state)
        if part.budget is not None:
            config = config._replace(spent=config.spent + 1, counted=True)
        return self._automaton.at_border(config, inner=False)

    def allowed(self, state: State) -> TokenSet:
        return self._of_state(_configs(state))

    def may_end(self, state: State) -> bool:
        return self._automaton.accepts(state)

    def finish(self, state: State) -> State:
        end = self._automaton.text_end(state)
        if not end.finished and not self._automaton.decided:
            return FINISHED
        section = min(config.section for config in _configs(state))
        return frozenset({SectionConfiguration(section, hold=end.hold if end.finished else 0)})

    def text_end(self, state: State) -> TextEnd:
        return self._automaton.text_end(state)

    def _find_within(self, at: tuple[States, int]) -> TokenSet | None:
        return self._distances.within(*at)

    # --- distance to the end --------------------------------------------------------------------------------------

    @cached_property
    def _distances(self) -> Distances:
        return Distances(self)

    def least_tokens(self, state: State) -> int | None:
        """An upper bound: the inner texts and the strings after them, each with tokens of its own.

        ``None`` if an inner constraint cannot tell: its section could never be entered within a limit.
        """
        found = self._distances.least(_configs(state)) if self._distances.tells else UNKNOWN
        return None if found == UNKNOWN else found

    def least_after(self, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return self._distances.after(_configs(state))

    def allowed_within(self, state: State, most: int) -> TokenSet | None:
        """The tokens of free text are found together, as are the tokens of constraints that find them together; tokens
        that end a section are checked one by one.
        """
        return self._within((_configs(state), most))

    def most_after(self, state: State, enough: int = 0) -> int:
        return self._distances.most_after(_configs(state), enough)

    def pieces_left(self, section: int, exit: int) -> list[int]:
        """Per position in a string that ends a section the number of longest tokens that write the rest."""
        pieces = self._pieces[section][exit]
        count = [*[UNKNOWN] * len(pieces), 0]
        for position in reversed(range(len(pieces))):
            piece = self.piece_at(section, exit, position)
            if piece and count[position + len(piece)] < UNKNOWN:
                count[position] = 1 + count[position + len(piece)]
        return count

    def piece_at(self, section: int, exit: int, written: int) -> bytes:
        """The text of :meth:`pieces_at`."""
        tags = self._tags[section][exit]
        if written in tags:
            return self._automaton.parts[section].exits[exit][0][written : written + tags[written][0]]
        return self._pieces[section][exit][written]

    def pieces_at(self, section: int, exit: int, written: int) -> list[int]:
        """The ids of the longest token that continues a string that ends a section; empty without such a token."""
        pieces = self._pieces[section][exit]
        if written in self._tags[section][exit]:
            return [*self._tags[section][exit][written][1]]
        piece = pieces[written] if written < len(pieces) else b""
        return self._texts.ids_of(piece)[:1] if piece else []

    def nodes_of_tokens(self, section: int) -> tuple[tuple[NDArray[np.int32], TriggerMatcher.Node], ...]:
        """The tokens that lead the trigger matcher of a section from its root to another node, grouped by this node."""
        return _ending_in(self.vocabulary, self._anywhere[section][0])

    def tokens_within(self, section: int, begun: Iterable[tuple[int, int]]) -> list[tuple[int, bytes]]:
        """The tokens, with their texts, that write the next part of a begun string that ends the section."""
        part, found = self._automaton.parts[section], {}
        for exit, written in begun:
            if written or part.at_start[exit]:
                rest = part.exits[exit][0][written:][: self._texts.longest]
                for n in range(1, len(rest) + 1):
                    found.update(dict.fromkeys(self._texts.ids_of(rest[:n]), rest[:n]))
        return [*found.items()]

    def in_a_token(self, section: int, target: int) -> bool:
        """Whether some token contains a string that ends a section and leads to the section ``target``."""
        exits = self._automaton.parts[section].exits
        return len(_holding(self.vocabulary, tuple(text for text, following in exits if following == target))) > 0

    def successors(self, config: SectionConfiguration) -> TokensByState:
        """The tokens that continue a configuration, the distinct states after them, and per token the state's index."""
        return self._lifted.successors(frozenset({config}))  # type: ignore[return-value]

    def inside(self, config: SectionConfiguration) -> TokenSet:
        """The tokens that stay in the section of a configuration, without special tokens that are strings."""
        return self._of_text(config, self._automaton.parts[config.section])

    def _find_crossing(self, config: SectionConfiguration) -> TokensByState:
        """The tokens that complete a string that ends free text, in which such a string begins in other text, or that
        write the next part of a string; the states after them, and per token a state's index.

        Special tokens that write a string or a part of a string are not included: see :meth:`special_tokens`.
        """
        part = self._automaton.parts[config.section]
        if config.exit >= 0:
            return self._writing_on(config, part)
        if not part.exits or config.hold >= 0:
            return _grouped({})
        return self._ending_free_text(config, part) if part.automaton is None else self._leaving(config, part)

    def _ending_free_text(self, config: SectionConfiguration, part: SectionAutomaton) -> TokensByState:
        """The tokens that complete a string that ends free text, and the readings after each."""
        ids = self._completing(config, part)
        if len(ids) > _FEW_CROSSING and self._texts.every_byte:
            # One walk of all tokens reads each shared prefix only once.
            crosses = np.zeros(self.vocab_size, dtype=bool)
            crosses[ids] = True
            walked, states, which = self.successors(config)
            kept = crosses[walked]
            return walked[kept], states, which[kept]
        known, found = dict[tuple[int, bytes], States](), dict[States, list[int]]()
        for token in ids.tolist():
            # The string and the bytes after it decide, and many tokens have the same bytes there.
            key = self._found_in(config, part, self.vocabulary.token_bytes[token])
            if key not in known:
                known[key] = self.read([config], token)[0]
            found.setdefault(known[key], []).append(token)
        return _grouped(found)

    @staticmethod
    def _found_in(config: SectionConfiguration, part: SectionAutomaton, text: bytes) -> tuple[int, bytes]:
        """The string that a text completes first in free text, by number, and the rest of the text after it."""
        assert part.matcher is not None
        assert config.node is not None
        node = config.node
        for size, byte in enumerate(text, 1):
            node, done = part.matcher.step(node, byte)
            if done >= 0:
                return done, text[size:]
        return -1, text

    def _find_settled(self, state: States) -> TokensByState:
        """If only one reading is followed: the tokens in which a string may end a section, the states after them (empty
        after a forbidden token), and per token a state's index. All readings together decide about these tokens.
        """
        automaton, found, special = self._automaton, list[NDArray[np.int32]](), set[int]()
        for config in state if automaton.decided else ():
            part = automaton.parts[config.section]
            special.update(self.special_tokens(config))
            if part.matcher is None and config.exit < 0:
                found.append(_holding(self.vocabulary, self._anywhere[config.section][0]))
            elif len(state) > 1 and config.exit >= 0:
                rest = part.exits[config.exit][0][config.written :]
                found.append(self._texts.order[self._texts.range_of(rest)])
            elif len(state) > 1 and config.node is not None:
                found.append(self._completing(config, part))
        ids = _together(found)
        if len(ids) > _FEW_CROSSING and self._texts.every_byte:
            walked, states, which = self._lifted.successors(state)
            after = np.full(self.vocab_size, len(states))
            after[walked] = which
            return ids, [*states, frozenset()], after[ids]  # type: ignore[list-item]
        ids = _together([ids, selected(special).ids])
        numbers = dict[States, int]()
        places = np.array(
            [numbers.setdefault(self.read(state, token)[0], len(numbers)) for token in ids.tolist()], dtype=np.intp
        )
        return ids, [*numbers], places

    def special_tokens(self, config: SectionConfiguration) -> list[int]:
        """The special tokens that write a whole end string of the section, or the next part of an end string."""
        special = [token for token, exit in self._special[config.section].items() if self._is_trigger(config, exit)]
        return special + self._tokens_of_tags(config)

    # --- token sets -----------------------------------------------------------------------------------------------

    def _of_states(self, state: States) -> TokenSet:
        forced = self.forced_pieces(state)
        if forced is not None:
            return forced
        found = union([self.of_configuration(config) for config in state], self.vocab_size)
        ids, states, which = self.settled(state)
        lost = ids[[not states[at] for at in which.tolist()]]
        return difference(found, lost, self.vocab_size) if len(lost) else found

    def _of_configuration(self, config: SectionConfiguration) -> TokenSet:
        """The allowed tokens of a single configuration."""
        if config.hold >= 0:
            return nothing()
        if config.exit >= 0:
            return self._of_exit(config)
        part = self._automaton.parts[config.section]
        if part.ends:
            return nothing()
        if part.follows and part.automaton is not None:
            return self._lifted.allowed(frozenset({config}))  # a token may cross to the next section anywhere
        found = [self._of_text(config, part), selected(self.crossing(config)[0])]
        return union([*found, selected(self.special_tokens(config))], self.vocab_size)

    def _of_exit(self, config: SectionConfiguration) -> TokenSet:
        textless = _NO_IDS if config.node is None else textless_ids(self.vocabulary, self.vocab_size)
        special = np.array(self.special_tokens(config), dtype=np.int32)
        return selected(np.concatenate([self.crossing(config)[0], special, textless]))

    def _writing_on(self, config: SectionConfiguration, part: SectionAutomaton) -> TokensByState:
        """The tokens that write the next part of a begun string, with what follows the string."""
        rest = part.exits[config.exit][0][config.written :]
        longer = self._texts.range_of(rest)
        if longer.stop - longer.start > _FEW_CROSSING and self._texts.every_byte:
            return self.successors(config)
        texts = [rest[:n] for n in range(1, len(rest) + 1) if self._texts.ids_of(rest[:n])]
        texts += [text for text in self._texts.beginning_with(rest) if len(text) > len(rest)]
        found = dict[States, list[int]]()
        for text, reached in self._leading_on(config, texts):
            found.setdefault(reached, []).extend(self._texts.ids_of(text))
        return _grouped(found)

    def _leading_on(self, config: SectionConfiguration, texts: Iterable[bytes]) -> Iterator[tuple[bytes, States]]:
        """The given texts of tokens that continue a begun string, and the readings after each; a prefix that several
        texts share is read once.
        """
        automaton, before = self._automaton, b""
        #: The configurations after each beginning of a text, as far as there are any.
        after: list[States] = [frozenset({config})]
        for text in sorted(texts):
            apart = (at for at, pair in enumerate(zip(before, text, strict=False)) if pair[0] != pair[1])
            del after[next(apart, min(len(before), len(text))) + 1 :]
            while after[-1] and len(after) <= len(text):
                after.append(automaton.read(after[-1], text[len(after) - 1])[0])
            if ended := self._ended(after[-1]):
                yield text, ended
            before = text

    def _of_text(self, config: SectionConfiguration, part: SectionAutomaton) -> TokenSet:
        """The tokens that continue the inner text and complete no string that ends the section."""
        inner = self.constraints[config.section]
        if config.over:
            return nothing()
        if inner is None:
            ends = [token for token in self.vocabulary.eos if token < self.vocab_size]
            base = TokenSet(False, selected([*ends, *self._special[config.section]]).ids)
        else:
            base = inner.allowed(config.state)
        removed: list[NDArray[Any]] = []
        if part.matcher is not None:
            removed.append(self._completing(config, part))
        if part.budget is not None and not part.restricts and part.budget - config.spent <= 3:
            left = max(part.budget - config.spent - 1, 0)
            missing = missing_by_token(self.vocabulary)[config.missing]
            removed.append((missing > left).nonzero()[0])
            if config.missing > left:
                removed.append(np.arange(self.vocabulary.size, self.vocab_size))
        return difference(base, np.concatenate(removed), self.vocab_size) if removed else base

    def _completing(self, config: SectionConfiguration, part: SectionAutomaton) -> NDArray[np.int32]:
        """The tokens that complete a string that ends the section for the first time, in order."""
        assert part.matcher is not None
        assert config.node is not None
        found = [_holding(self.vocabulary, self._anywhere[config.section][0])]
        for exit, written in part.matcher.rests(config.node):
            if written or part.at_start[exit]:
                rest = part.matcher.strings[exit][written:]
                found.append(self._texts.order[self._texts.range_of(rest)])
        return _together(found)

    def _leaving(self, config: SectionConfiguration, part: SectionAutomaton) -> TokensByState:
        """The tokens in which a string that ends a constrained section begins, and the readings after each."""
        assert part.automaton is not None
        if part.at_tokens and not part.automaton.accepts(config.state):
            return _grouped({})
        strings = self._anywhere[config.section]
        ids = _begun(self.vocabulary, *strings)
        if not len(ids):
            return _grouped({})
        walked, states, which = self._lifted_crossing(strings).successors(Crossing(config))
        crossed = [after.crossed for after in states]  # type: ignore[attr-defined]
        ended, number = {readings: self._ended(readings) for readings in set(crossed)}, dict[States, int]()
        at = np.array([number.setdefault(ended[readings], len(number)) for readings in crossed], dtype=np.intp)
        which = at.take(which)
        kept = which != number.get(_NOWHERE, -1)
        return ids[walked[kept]], [*number], which[kept]

    def _lift_crossing(self, strings: tuple[tuple[bytes, ...], bool]) -> LiftedAutomaton:
        return lift(CrossingAutomaton(self._automaton), _begun_words(self.vocabulary, *strings))

    def _ended(self, configs: Iterable[SectionConfiguration]) -> States:
        """The readings after the border of a token from which tokens can complete the text."""
        after = (one for config in configs for one in self._automaton.at_border(config))
        return frozenset(one for one in after if self._viable(one))

    def _viable(self, config: SectionConfiguration) -> bool:
        """Whether tokens can complete the text from a configuration; ``True`` wherever each byte is a token."""
        if self._texts.every_byte or config.hold >= 0:
            return True
        if config.exit >= 0:
            special = config.written in self._tags[config.section][config.exit]
            return special or bool(self._pieces[config.section][config.exit][config.written])
        inner = self.constraints[config.section]
        if inner is None or self._automaton.parts[config.section].ends or inner.may_end(config.state):
            return True
        members = inner.allowed(config.state)
        return not members.allowed or len(members.ids) > 0

    def forced_pieces(self, state: States) -> TokenSet | None:
        """The longest tokens that continue a forced string; ``None`` if shorter tokens or other texts are allowed."""
        if not self.longest:
            return None
        ids: set[int] = set()
        for config in state:
            part, inner = self._automaton.parts[config.section], self.constraints[config.section]
            if self._automaton.may_end(config):
                return None
            begun = [(config.exit, config.written)]
            if config.exit < 0:
                if inner is None or not part.exits or part.follows:
                    return None
                if not config.over:
                    if not inner.may_end(config.state):
                        return None
                    members = inner.allowed(config.state)
                    if not members.allowed or len(members.ids):
                        return None
                begun = [(exit, 0) for exit, first in enumerate(part.at_start) if not first]
            for exit, written in begun:
                special = self._tags[config.section][exit].get(written)
                piece = self._pieces[config.section][exit][written]
                if special is not None:
                    ids.update(special[1])
                elif piece:
                    ids.add(self._texts.ids_of(piece)[0])
                else:
                    return None
        return selected(ids)


def _configs(state: State) -> States:
    return state  # type: ignore[return-value]


def _anywhere(part: SectionAutomaton) -> tuple[bytes, ...]:
    """The strings that end a section at any place, not only at the start of the section."""
    return tuple(text for (text, _), first in zip(part.exits, part.at_start, strict=True) if not first)


@kept_with_vocabulary
def _holding(vocabulary: Vocabulary, strings: tuple[bytes, ...]) -> NDArray[np.int32]:
    """The tokens that contain one of several strings."""
    return vocabulary.tokens_holding(strings)[0]


@kept_with_vocabulary
def _ending_in(
    vocabulary: Vocabulary, strings: tuple[bytes, ...]
) -> tuple[tuple[NDArray[np.int32], TriggerMatcher.Node], ...]:
    """The tokens that contain none of the strings and end with a prefix of one, grouped by the longest such prefix."""
    texts = token_texts(vocabulary)
    left = np.ones(vocabulary.size, dtype=bool)
    left[_holding(vocabulary, strings)] = False
    begun = {text[:size] for text in strings for size in range(1, min(len(text), texts.longest + 1))}
    by_last = {byte: texts.ending_with(bytes([byte])) for byte in {prefix[-1] for prefix in begun}}
    found: list[tuple[NDArray[np.int32], TriggerMatcher.Node]] = []
    for prefix in sorted(begun, key=lambda prefix: (-len(prefix), prefix)):
        ids = texts.ending_with(prefix, by_last[prefix[-1]])
        ids = ids[left[ids]]
        if len(ids):
            left[ids] = False
            found.append((ids, (prefix, False)))
    return tuple(found)


def _tags_in(text: bytes, named: re.Pattern[bytes], shown: Mapping[bytes, Sequence[int]]) -> Tags:
    """The special tokens whose texts are parts of a string, by position: from the left, of several the longest."""
    return {part.start(): (len(part[0]), tuple(shown[part[0]])) for part in named.finditer(text)}


def _together(ids: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """The ids of several arrays, each once, in order."""
    return selected(np.concatenate([_NO_IDS, *ids])).ids


@kept_with_vocabulary
def _begun(vocabulary: Vocabulary, strings: tuple[bytes, ...], first_only: bool) -> NDArray[np.int32]:
    """The tokens in which one of several strings begins (with ``first_only`` at their first byte)."""
    return token_texts(vocabulary).begun_in(strings, first_only)


@kept_with_vocabulary
def _begun_set(vocabulary: Vocabulary, strings: tuple[bytes, ...], first_only: bool) -> frozenset[int]:
    return frozenset(_begun(vocabulary, strings, first_only).tolist())


@kept_with_vocabulary
def _begun_words(vocabulary: Vocabulary, strings: tuple[bytes, ...], first_only: bool) -> Vocabulary:
    """The tokens of :func:`_begun` as a vocabulary of their own."""
    ids = _begun(vocabulary, strings, first_only).tolist()
    return Vocabulary([vocabulary.token_bytes[token] for token in ids], name=vocabulary.name)


def _grouped(found: Mapping[States, Sequence[int]]) -> TokensByState:
    """Tokens by the readings after them as arrays, without the tokens after which there is no reading."""
    states = [state for state in found if state]
    ids = np.array([token for state in states for token in found[state]], dtype=np.int32)
    return ids, states, np.arange(len(states)).repeat([len(found[state]) for state in states])
