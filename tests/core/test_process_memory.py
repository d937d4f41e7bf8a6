"""What a process remembers goes on in a forked child, where the parent's threads do not."""

from __future__ import annotations

import itertools
import sys
import threading

from logitloom import Vocabulary
from logitloom.automata import AutomatonCache
from logitloom.vocabulary import kept_with_vocabulary
from tests.forks import forks, in_child


def words() -> Vocabulary:
    return Vocabulary([b"", *(bytes([letter]) for letter in b"abc0123456789")], eos=[0])


@forks
def test_a_child_makes_what_a_thread_of_its_parent_was_making() -> None:
    makes, made = threading.Event(), threading.Event()

    @kept_with_vocabulary
    def size(vocabulary: Vocabulary) -> int:
        if threading.current_thread() is thread:
            makes.set()
            made.wait(20)
        return vocabulary.size

    given = words()
    thread = threading.Thread(target=size, args=(given,))
    thread.start()
    makes.wait()
    try:
        assert in_child(lambda: size(given)) == 14
    finally:
        made.set()
        thread.join()


@forks
def test_children_compile_while_threads_of_their_parent_do() -> None:
    cache, given, ended = AutomatonCache(capacity=2), words(), threading.Event()
    errors: list[Exception] = []

    def least_tokens(pattern: str) -> int | None:
        automaton = cache.pattern(pattern, given)
        return automaton.least_tokens(automaton.start())

    def work(letter: str) -> None:
        lengths = itertools.cycle(range(1, 9))
        while not ended.is_set():
            try:
                least_tokens(f"{letter}{{{next(lengths)}}}")
            except Exception as error:
                errors.append(error)

    # Python's own locks of modules are not renewed: what compiles imports the last modules here.
    least_tokens("c")
    threads = [threading.Thread(target=work, args=(letter,)) for letter in "abc"]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for length in range(1, 11):
            assert in_child(lambda length=length: least_tokens(f"a{{{length}}}")) == length
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not errors
