"""Every hook is specified completely, and works through its own name."""

from __future__ import annotations

import inspect

import pytest

from logitloom.host import hookspecs
from logitloom.host.plugin_manager import HOOKS, PluginManager


def test_the_hooks_are_those_that_the_module_exports():
    exported = {name for name in hookspecs.__all__ if inspect.isfunction(getattr(hookspecs, name))}
    assert set(HOOKS) == exported
    assert {"init_state", "process", "backend_adapter", "vocabulary", "forced_tokens"} <= exported


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_every_hook_documents_its_arguments_and_result(hook):
    spec = getattr(hookspecs, hook)
    doc = inspect.getdoc(spec)
    assert doc.partition("\n")[0].endswith(".")
    for section in ("Args:", "Returns:"):
        assert section in doc
    for argument in HOOKS[hook]:
        assert f"\n    {argument}:" in doc
    assert "return" in spec.__annotations__


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_every_hook_is_called_with_all_its_arguments_by_place(hook):
    seen = []
    arguments = HOOKS[hook]
    namespace: dict[str, object] = {"seen": seen}
    exec(f"def {hook}(self, {', '.join(arguments)}):\n    seen.append(({', '.join(arguments)},))\n", namespace)
    plugin = type("Plugin", (), {hook: namespace[hook]})()
    manager = PluginManager()
    manager.add(plugin, "mine", required=hook)
    manager.implementation("mine", hook)(*range(len(arguments)))
    assert seen == [tuple(range(len(arguments)))]
    assert manager.implementation("other", hook) is None


def test_equal_plugins_stand_side_by_side():
    class Equal:
        def __eq__(self, other):
            return True

        __hash__ = None

        def process(self, logits):
            return logits

    manager = PluginManager()
    manager.add(Equal(), "one", required="process")
    manager.add(Equal(), "two", required="process")
    assert manager.implementation("one", "process") is not None
    assert manager.implementation("two", "process") is not None


def test_costly_properties_of_a_plugin_are_not_touched():
    class Costly:
        @property
        def table(self):
            raise AssertionError("computed")

        def process(self, logits):
            return logits

    PluginManager().add(Costly(), "costly", required="process")
