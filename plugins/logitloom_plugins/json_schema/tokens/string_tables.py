"""What the tokens of a vocabulary do inside a JSON string that may hold anything: found once per vocabulary.

Each token either stays inside (and writes so many characters), or ends the string after so many characters and goes on
with a *rest*, or is not allowed. The row of any place in any free string, with or without bounds on its length, is put
together from these; what depends on the schema is only which rests may follow, and tokens have few different ones.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logitloom import Vocabulary
from logitloom.automata.trie import Trie, joined, members, vocabulary_trie
from logitloom_plugins.json_schema.structure.acceptance import read
from logitloom_plugins.json_schema.structure.compilation import SchemaOptions, compile_schema
from logitloom_plugins.json_schema.structure.stacks import EMPTY
from logitloom_plugins.json_schema.structure.whitespace import Whitespace
from logitloom_plugins.json_schema.tokens.name_ends import may_name_again
from logitloom_plugins.json_schema.tokens.token_walk import TokenWalk, Words

__all__ = ["StringTables", "string_tables", "words_of"]

_CACHE: Final[weakref.WeakKeyDictionary[Vocabulary, dict[Any, Any]]] = weakref.WeakKeyDictionary()
_LOCK: Final = threading.RLock()
_LEADS: Final = np.array([not 0x80 <= byte < 0xC0 for byte in range(256)])


def words_of(vocabulary: Vocabulary) -> Words:
    """The trie of a vocabulary, prepared for walks; made once."""
    with _LOCK:
        known = _CACHE.setdefault(vocabulary, {})
        if "words" not in known:
            known["words"] = Words(vocabulary_trie(vocabulary))
            _walk_once(known["words"])
        words: Words = known["words"]
        return words


def _walk_once(words: Words) -> None:
    """Do what takes milliseconds the first time in a process: better here than in somebody's first mask."""
    machine = compile_schema({"type": ["string", "integer"], "pattern": "^[a-z]+$", "not": {"pattern": "^b"}})
    begun = machine.stacks.applied(machine.code(machine.start, ord('"')), EMPTY)
    TokenWalk(machine).from_root(words, *begun)


def string_tables(vocabulary: Vocabulary, escapes: str, names: bool) -> StringTables:
    """The tables of a vocabulary, made once.

    Args:
        vocabulary: the tokens.
        escapes: how characters may be written: ``any``, ``minimal`` or ``ascii``.
        names: whether the string is the name of a member, in which only what must be is escaped.
    """
    words = words_of(vocabulary)
    with _LOCK:
        known = _CACHE[vocabulary]
        if (escapes, names) not in known:
            known[escapes, names] = StringTables(words.trie, vocabulary.token_bytes, escapes, names)
        tables: StringTables = known[escapes, names]
        return tables


class StringTables:
    """The tokens of a vocabulary, as seen from inside a free string.

    Attributes:
        dead: ids that are not allowed whatever comes.
        inside, needs: ids that stay inside, and the characters that the string must still have room for; those that
            need least come first.
        ending: ids that end the string.
        lengths: the characters of each before the quote.
        rest: of each, the number of its rest.
        rests: the bytes of each rest; number 0 is the empty one.
        place: per id its place in ``ending``, -1 for others.
        longest: most characters that any token takes.
        escaped: places in ``ending`` where something before the quote is escaped.
        naming: places in ``ending`` where the rest may end another name.
        rest_words: the trie of the rests, whose words are their numbers; ``None`` if only the empty one is there.
    """

    def __init__(self, trie: Trie, token_bytes: tuple[bytes, ...], escapes: str, names: bool) -> None:
        # The machine of a free string says what every byte does, so no rule of JSON is written down twice.
        machine = compile_schema(
            {"type": "object" if names else "string"}, SchemaOptions(Whitespace("compact"), escapes)
        )
        begun = read(machine, b'{"' if names else b'"')
        assert begun is not None
        texts: list[bool] = []
        ends: list[bool] = []
        nodes = np.arange(1, 1 + int(trie.child_count[0]))
        states = np.full(len(nodes), begun.state, dtype=np.int32)
        counts = np.zeros(len(nodes), dtype=np.int32)
        dead, inside, needs = [], [], []
        ending, lengths, rests = [], [], []
        number: dict[bytes, int] = {b"": 0}
        depth = 1
        while len(nodes):
            table = machine.rows(states)
            codes = table.ravel().take(states.astype(np.int64) * 256 + trie.byte.take(nodes))
            for state in machine.states[len(texts) :]:
                texts.append(state[0] == "text")
                ends.append(state[0] == "colon")
            is_text, is_end = np.array(texts), np.array(ends)
            gone = codes == -1
            dead.append(_tokens(trie, nodes[gone], trie.last))
            closed = (codes < -1) | is_end.take(np.maximum(codes, 0))
            for node, count in zip(nodes[closed].tolist(), counts[closed].tolist(), strict=True):
                for token in trie.order[trie.first[node] : trie.last[node]].tolist():
                    ending.append(token)
                    lengths.append(count)
                    rests.append(number.setdefault(token_bytes[token][depth:], len(number)))
            kept = (~gone & ~closed).nonzero()[0]
            nodes, codes, states, counts = nodes.take(kept), codes.take(kept), states.take(kept), counts.take(kept)
            # A character counts from its first byte on, an escaped one when it is complete.
            inside_text = is_text.take(codes)
            counts = counts + (inside_text & (~is_text.take(states) | _LEADS.take(trie.byte.take(nodes))))
            here = trie.own.take(nodes) - trie.first.take(nodes)
            inside.append(trie.order.take(members(trie.first.take(nodes), here)))
            needs.append((counts + ~inside_text).repeat(here))
            below = trie.child_count.take(nodes)
            nodes = members(trie.child_start.take(nodes), below)
            states, counts = codes.repeat(below), counts.repeat(below)
            depth += 1
        self.dead: NDArray[np.int32] = joined(dead).astype(np.int32)
        order = joined(needs).argsort(kind="stable")
        self.inside: NDArray[np.int32] = joined(inside)[order].astype(np.int32)
        self.needs: NDArray[np.int32] = joined(needs)[order].astype(np.int32)
        self.ending: NDArray[np.int32] = np.array(ending, dtype=np.int32)
        self.lengths: NDArray[np.int32] = np.array(lengths, dtype=np.int32)
        self.rest: NDArray[np.int32] = np.array(rests, dtype=np.int32)
        self.rests = list(number)
        self.place: NDArray[np.int32] = np.full(len(token_bytes), -1, dtype=np.int32)
        self.place[self.ending] = np.arange(len(ending))
        self.longest = int(max(self.needs.max(initial=0), self.lengths.max(initial=0)))
        before = (token_bytes[t].removesuffix(self.rests[r]) for t, r in zip(ending, rests, strict=True))
        self.escaped: NDArray[np.intp] = np.array([b"\\" in text for text in before], dtype=bool).nonzero()[0]
        again = np.array([may_name_again(rest) for rest in self.rests], dtype=bool)
        self.naming: NDArray[np.intp] = again[self.rest].nonzero()[0]
        self.rest_words = Words(Trie(Vocabulary(self.rests, name="rests"))) if len(self.rests) > 1 else None


def _tokens(trie: Trie, nodes: NDArray[Any], stop: NDArray[np.int32]) -> NDArray[np.int32]:
    first = trie.first.take(nodes)
    return trie.order.take(members(first, stop.take(nodes) - first))
