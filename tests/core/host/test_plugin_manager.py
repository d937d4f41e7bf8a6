"""What is known of a class is used again, and only as long as it is true of the object at hand."""

from __future__ import annotations

from typing import Any

import pytest

from logitloom import Vocabulary, hookimpl, read_vocabulary
from logitloom.errors import InvalidSignature
from logitloom.host.plugin_manager import implementations


class Plain:
    def __init__(self, add: int) -> None:
        self.add = add

    def process(self, logits: Any, context: Any) -> Any:
        return logits + self.add


def result(plugin: Any) -> Any:
    return implementations(plugin, "plugin", "process")["process"](10, "state", None)


def test_every_object_of_a_class_has_its_own_implementations() -> None:
    assert [result(Plain(n)) for n in (1, 2, 3)] == [(11, "state"), (12, "state"), (13, "state")]
    assert set(implementations(Plain(4), "plugin", "process")) == {"process"}


def test_a_hook_of_the_object_itself_counts() -> None:
    assert result(Plain(1)) == (11, "state")
    special = Plain(1)
    special.process = lambda logits: logits * 2  # type: ignore[method-assign, assignment]
    assert result(special) == (20, "state")
    assert result(Plain(1)) == (11, "state")


def test_a_class_that_changes_is_asked_again() -> None:
    class Changing:
        def process(self, logits: Any) -> Any:
            return logits

    assert result(Changing()) == (10, "state")

    def negated(self: Any, context: Any, logits: Any) -> Any:
        return -logits

    Changing.process = negated  # type: ignore[method-assign, assignment]
    assert result(Changing()) == (-10, "state")

    def wrong(self: Any, scores: Any) -> Any:
        return scores

    Changing.process = wrong  # type: ignore[method-assign, assignment]
    with pytest.raises(InvalidSignature, match="scores"):
        result(Changing())


def test_hooks_that_depend_on_options_are_asked_of_each_object() -> None:
    class Optional:
        def __init__(self, forces: bool) -> None:
            self.forces = forces

        def process(self, logits: Any) -> Any:
            return logits

        @property
        def forced_tokens(self) -> Any:
            if not self.forces:
                raise AttributeError("forced_tokens")
            return self._forced

        def _forced(self, state: Any, context: Any) -> Any:
            return [[1]]

    found = [set(implementations(Optional(forces), "plugin", "process")) for forces in (True, False, True, False)]
    assert found == [{"process", "forced_tokens"}, {"process"}] * 2


def test_a_plug_in_without_its_main_hook_is_refused_every_time() -> None:
    class Nothing:
        pass

    for _ in range(2):
        with pytest.raises(InvalidSignature, match="has no method 'process'"):
            implementations(Nothing(), "plugin", "process")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"wrapper": True}, "so nothing wraps them. Write a processor of its own and put it before or after."),
        ({"hookwrapper": True}, "so nothing wraps them. Write a processor of its own and put it before or after."),
        ({"specname": "process"}, "a method implements the hook that it is named after. Rename it."),
        ({"tryfirst": True}, "only one plug-in is asked for this hook. The order of processors is that of the chain."),
        ({"trylast": True}, "only one plug-in is asked for this hook. The order of processors is that of the chain."),
    ],
)
def test_options_of_the_marker_that_cannot_be_honoured_are_refused(options: dict[str, Any], reason: str) -> None:
    class Marked:
        @hookimpl(**options)
        def process(self, logits: Any) -> Any:
            yield logits

    ((option, value),) = options.items()
    with pytest.raises(InvalidSignature) as caught:
        implementations(Marked(), "mine", "process")
    message = str(caught.value)
    assert message.startswith(f"Plug-in 'mine' marks the method 'process' with @hookimpl({option}={value!r}), but ")
    assert message.endswith(reason)


def test_a_method_under_another_name_is_refused_with_the_reason() -> None:
    class Renamed(Plain):
        @hookimpl(specname="forced_tokens")
        def ahead(self, state: Any) -> Any:
            return None

    with pytest.raises(InvalidSignature, match="'ahead' with @hookimpl\\(specname='forced_tokens'\\)"):
        implementations(Renamed(1), "mine", "process")


def test_a_hook_of_a_later_version_is_ignored_where_it_is_marked_as_optional() -> None:
    class Newer(Plain):
        @hookimpl(optionalhook=True)
        def rest_of_text(self, state: Any, speed: Any) -> Any:
            return None

    assert set(implementations(Newer(2), "mine", "process")) == {"process"}
    assert result(Newer(2)) == (12, "state")


class _Source:
    """Something that two tokenizer readers know."""


def _reader(name: str, **options: Any) -> Any:
    class Reader:
        @hookimpl(**options)
        def vocabulary(self, tokenizer: Any) -> Vocabulary | None:
            return Vocabulary([b"a"], name=name) if isinstance(tokenizer, _Source) else None

    return Reader


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({"one": {"tryfirst": True}, "two": {}}, "one"),
        ({"one": {}, "two": {"tryfirst": True}}, "two"),
        ({"one": {"trylast": True}, "two": {}}, "two"),
        ({"one": {}, "two": {"trylast": True}}, "one"),
    ],
)
def test_readers_are_asked_in_the_order_that_their_marks_say(
    register: Any, marks: dict[str, dict[str, bool]], expected: str
) -> None:
    for name, options in marks.items():
        register(name, _reader(name, **options), kind="tokenizers")
    assert read_vocabulary(_Source()).name == expected


def test_implementations_of_a_deprecated_hook_are_told_what_to_use(monkeypatch):
    from logitloom.errors import LogitloomDeprecationWarning
    from logitloom.host import hookspecs, plugin_manager

    class Specification:
        @staticmethod
        @hookspecs.hookspec(warn_on_impl=LogitloomDeprecationWarning("The hook 'mask' goes; implement 'process'."))
        def mask(state, context):
            """A hook of an earlier version."""

    class Old:
        def mask(self, state):
            return state

    monkeypatch.setitem(plugin_manager.HOOKS, "mask", ("state", "context"))
    manager = plugin_manager.PluginManager()
    manager.add_hookspecs(Specification)
    with pytest.warns(LogitloomDeprecationWarning, match="'mask' goes; implement 'process'") as caught:
        manager.add(Old(), "old", required="mask")
    assert caught[0].filename == __file__
    assert manager.implementation("old", "mask")(1, None) == 1
