"""The state of a chain: which chain the state belongs to, and how the state is sent to another process."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from logitloom.arguments import instance, shown
from logitloom.arrays.backend import Backend
from logitloom.chain.links import FunctionProcessor, Link
from logitloom.context import Context
from logitloom.errors import StateMismatch
from logitloom.host.fingerprint import fingerprint_of
from logitloom.rows import tree as rows
from logitloom.rows import tree_format as state_format
from logitloom.vocabulary import Vocabulary

__all__ = ["ChainFingerprint", "ChainState", "check_owner", "load_state", "save_state", "state_type"]

_MAGIC: Final = b"logitloom state\n"
#: Raised whenever a state of a built-in processor comes to mean something else.
_VERSION: Final = 1
_DIGEST: Final = 16


class ChainFingerprint(NamedTuple):
    """The properties that two chains must share so that one can continue a state of the other.

    Attributes:
        vocabulary: the fingerprint of the vocabulary; ``None`` if the chain has none of its own.
        processors: label and digest of each processor, in order. Labels are for messages.
        constraints: for each processor that is a constraint, as far as it was made, a width of the logits and the
            fingerprint of the constraint there. Equal options can give another one: another version may number the
            states otherwise.
    """

    vocabulary: str | None
    processors: tuple[tuple[str, str], ...]
    constraints: tuple[tuple[int, str] | None, ...] = ()

    @classmethod
    def of(cls, links: Sequence[Link], vocabulary: Vocabulary | None) -> ChainFingerprint:
        """The fingerprint of processors with a vocabulary.

        Raises:
            StateMismatch: naming a processor that has no fingerprint.
        """
        words = None if vocabulary is None else vocabulary.fingerprint
        return cls(words, tuple((link.label, _digest(link)) for link in links))

    @classmethod
    def now(cls, chain: _Owner, context: Any = None) -> ChainFingerprint:
        """The fingerprint of a chain in a context, with the constraints that were made."""
        words, width = _resources(chain, context)
        found = chain.fingerprint if words is None else chain.fingerprint._replace(vocabulary=words.fingerprint)
        return found._replace(constraints=tuple(_constraint(link, words, width) for link in chain.links))

    def check(self, chain: _Owner, context: Any, what: str, remedy: str) -> None:
        """Raise if this is not the fingerprint of a chain.

        Raises:
            StateMismatch: saying in what the chains differ.
        """
        words, _ = _resources(chain, context)
        ours = chain.fingerprint if words is None else chain.fingerprint._replace(vocabulary=words.fingerprint)
        difference = ours.difference(self)
        for link, theirs in zip(chain.links, self.constraints, strict=False):
            if difference is None and theirs is not None and words is not None:
                found = _constraint(link, words, theirs[0])
                if found is not None and found[1] != theirs[1]:
                    difference = (
                        f"Its processor {link.label!r} has another constraint, although the options are equal: another "
                        f"version compiles them otherwise, or a file that they name has changed."
                    )
        if difference is not None:
            raise StateMismatch(f"{what} {difference} {remedy}")

    def difference(self, other: ChainFingerprint) -> str | None:
        """In what another chain differs, as a sentence; ``None`` if the chains are equal."""
        mine, theirs = ([label for label, _ in found.processors] for found in (self, other))
        if len(mine) != len(theirs):
            return f"It has the processors {', '.join(theirs) or '(none)'}, this one {', '.join(mine) or '(none)'}."
        for n, ((label, digest), (name, found)) in enumerate(zip(self.processors, other.processors, strict=True), 1):
            if digest != found:
                if name == label:
                    return f"Its processor {name!r} has other options, or is of another class."
                return f"Its processor number {n} is {name!r}, and here it is {label!r}."
        if self.vocabulary is not None and other.vocabulary is not None and self.vocabulary != other.vocabulary:
            return "It has another vocabulary, so its ids mean something else."
        return None


class _Owner(Protocol):
    """A chain."""

    links: tuple[Link, ...]
    vocabulary: Vocabulary | None
    model: Any

    @property
    def fingerprint(self) -> ChainFingerprint: ...

    def state(self, position: Any, processors: tuple[Any, ...]) -> ChainState: ...


def _resources(chain: _Owner, context: Any) -> tuple[Vocabulary | None, int | None]:
    """The vocabulary and the width of the logits, from the context if it is a :class:`Context`, else from the chain."""
    given = context if isinstance(context, Context) else None
    words = None if given is None else given.vocabulary
    return chain.vocabulary if words is None else words, None if given is None else given.vocab_size


def _constraint(link: Link, vocabulary: Vocabulary | None, width: int | None) -> tuple[int, str] | None:
    told = getattr(link.processor, "constraint_fingerprint", None)
    found = None if told is None else told(vocabulary, width)
    return None if found is None else (found[0], found[1].hex())


def _digest(link: Link) -> str:
    processor = link.processor
    if isinstance(processor, FunctionProcessor):
        processor = processor.function
    return fingerprint_of(processor, f"processor {link.label!r}")


class ChainState(NamedTuple):
    """State of a chain: a row tree.

    Each chain makes a subclass of this class for its states. So the type of a state identifies the chain, and the row
    tree needs no leaf for the chain. A pickled state carries the chain's fingerprint, and a chain that is not equal
    refuses the state. States inside compiled loops are plain arrays and cannot carry it.

    Attributes:
        position: lengths and history per row, as far as a processor needs them.
        processors: one state per processor, in order.
    """

    position: Any
    processors: tuple[Any, ...]


class _OwnedState(ChainState):
    """A state that knows which chain it belongs to."""

    __slots__ = ()
    chain: ClassVar[_Owner | None] = None
    made_by: ClassVar[ChainFingerprint | None] = None

    @classmethod
    def owner(cls) -> ChainFingerprint:
        if cls.chain is not None:
            return ChainFingerprint.now(cls.chain)
        assert cls.made_by is not None
        return cls.made_by

    def __reduce__(self) -> Any:
        return _from_elsewhere, (self.owner(), self.position, self.processors)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __copy__(self) -> ChainState:
        return self

    def __deepcopy__(self, memo: Any) -> ChainState:
        return tuple.__new__(type(self), (copy.deepcopy(self.position, memo), copy.deepcopy(self.processors, memo)))


def state_type(chain: _Owner) -> type[ChainState]:
    """The class of the states that a chain makes."""
    return _subclass({"chain": chain})


def _subclass(own: dict[str, Any]) -> type[ChainState]:
    return type("ChainState", (_OwnedState,), {"__slots__": (), "__module__": __name__, **own})


def _from_elsewhere(made_by: ChainFingerprint, position: Any, processors: tuple[Any, ...]) -> ChainState:
    """The unpickled state, before a chain has taken it."""
    return tuple.__new__(_subclass({"made_by": ChainFingerprint(*made_by)}), (position, processors))


def check_owner(chain: _Owner, state: Any, context: Context | None = None) -> None:
    """Raise if a state is known to belong to a chain that is not equal.

    Raises:
        StateMismatch: saying in what the chains differ.
    """
    if not isinstance(state, _OwnedState) or len(state.processors) != len(chain.links):
        return
    theirs = type(state).chain
    if theirs is not None and all(a.processor is b.processor for a, b in zip(chain.links, theirs.links, strict=True)):
        return
    try:
        made_by = type(state).owner()
        _ = chain.fingerprint
    except StateMismatch:
        if theirs is not None:
            return  # of this process, with an option that has no fingerprint: nothing contradicts the state
        raise
    remedy = "Take the state from this chain's init_state or process, or replay the tokens."
    made_by.check(chain, context, "The state was made by another chain.", remedy)


def save_state(chain: _Owner, state: Any, context: Context | None = None) -> bytes:
    """See :meth:`logitloom.Chain.save_state`."""
    check_owner(chain, state, context)
    if not isinstance(state, tuple) or len(state) != 2 or not isinstance(state[1], tuple):
        raise StateMismatch(f"No state of a chain can be saved from {shown(state)}. Give what init_state returned.")
    header = json.dumps({"version": _VERSION, **ChainFingerprint.now(chain, context)._asdict()})
    body = state_format.encode((state[0], tuple(state[1])))
    content = struct.pack("<I", len(header.encode())) + header.encode() + body
    return _MAGIC + _checksum(content) + content


def load_state(chain: _Owner, data: bytes, context: Context | Backend) -> ChainState:
    """See :meth:`logitloom.Chain.load_state`."""
    instance(data, (bytes, bytearray), "data", StateMismatch)
    instance(context, (Context, Backend), "context", StateMismatch)
    start = len(_MAGIC) + _DIGEST
    if not data.startswith(_MAGIC) or len(data) < start + 4:
        raise StateMismatch(f"These {len(data)} bytes are no saved state. Give what Chain.save_state returned.")
    content = bytes(data[start:])
    if _checksum(content) != data[len(_MAGIC) : start]:
        raise StateMismatch("The saved state is damaged: its checksum is another. Save it again.")
    body = 4 + struct.unpack("<I", content[:4])[0]
    try:
        header = json.loads(content[4:body])
        version = header["version"]
        constraints = tuple(None if one is None else (int(one[0]), str(one[1])) for one in header["constraints"])
        labelled = tuple((str(a), str(b)) for a, b in header["processors"])
        made_by = ChainFingerprint(header["vocabulary"], labelled, constraints)
    except (ValueError, TypeError, LookupError) as error:
        raise StateMismatch(f"The saved state has no header that can be read: {error}. Save it again.") from error
    if version != _VERSION:
        raise StateMismatch(
            f"The saved state has version {version!r:.20}, and this logitloom reads version {_VERSION}. Replay the "
            f"tokens instead."
        )
    made_by.check(chain, context, "The state was saved by another chain.", "Load the chain that made it.")
    given = context if isinstance(context, Context) else None
    backend = context.backend if isinstance(context, Context) else context
    model = chain.model if given is None or given.model is None else given.model
    packages = {"logitloom", *(type(link.processor).__module__.partition(".")[0] for link in chain.links)}
    position, processors = state_format.decode(
        content[body:], backend, packages=packages, cache_from_host=getattr(model, "cache_from_host", None)
    )
    if not isinstance(processors, tuple) or len(processors) != len(chain.links):
        raise StateMismatch("The saved state does not hold one state for each processor. Save it again.")
    for link, state in zip(chain.links, processors, strict=True) if given is not None and given.compiled else ():
        if any(isinstance(leaf, rows.Rows) for _, leaf in rows.leaves(state)):
            raise StateMismatch(
                f"The saved state of {link.label!r} was begun without compiled=True: it holds host objects, which "
                f"a compiled step cannot read. Begin with compiled=True, or make it from the tokens with Chain.replay."
            )
    if _resources(chain, context)[0] is None:
        # The first step checks everything that depends on the vocabulary, because its context has a vocabulary.
        return _from_elsewhere(made_by, position, processors)
    return chain.state(position, processors)


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()
