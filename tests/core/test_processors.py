"""The facade: what describe tells, and what its doctests show."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from logitloom import MASK, Processor, errors, option, processors


def test_describe_tells_summary_options_and_declarations():
    told = processors.describe("top_k")
    assert told.name == "top_k"
    assert told.summary
    assert told.doc.startswith(told.summary)
    assert [(o.name, o.required, o.type_text, o.range_text) for o in told.options] == [("k", True, "int", ">= 1")]
    assert (told.stage, told.effect, told.branches) == ("warp", None, 1)


def test_declarations_that_depend_on_options_are_told_as_unknown_until_configured(register):
    @dataclass(frozen=True)
    class Depends(Processor):
        """Depends."""

        history: bool = option(False, help="Whether to look back.")

        @property
        def needs(self):
            return frozenset({"history"} if self.history else ())

        def process(self, logits):
            return logits

    register("depends", Depends)
    assert processors.describe("depends").needs == frozenset()
    assert processors.load(("depends", {"history": True})).needs == {"history"}


def test_describe_takes_functions_and_objects(register):
    def halved(logits):
        """Half the logits."""
        return logits / 2

    register("halved", halved)
    told = processors.describe("halved")
    assert (told.summary, told.options, told.stage) == ("Half the logits.", (), "warp")


def test_a_processor_without_a_docstring_is_not_described_by_that_of_its_base_class(register):
    class Undocumented(Processor):
        def process(self, logits):
            return logits

    register("undocumented", Undocumented)
    assert processors.describe("undocumented").doc == ""


def test_a_wrong_declaration_is_told_when_describing(register):
    register("odd", type("Odd", (), {"needs": 5, "process": lambda self, logits: logits}))
    with pytest.raises(errors.InvalidSignature, match="'odd' declares the needs 5"):
        processors.describe("odd")


def test_describing_an_unknown_or_blocked_name_is_refused(monkeypatch):
    with pytest.raises(errors.UnknownPlugin):
        processors.describe("top_kk")
    monkeypatch.setenv("LOGITLOOM_BLOCK", "top_k")
    with pytest.raises(errors.PluginBlocked):
        processors.describe("top_k")


def test_specs_of_all_forms_stand_in_one_chain():
    from logitloom_plugins.processors.temperature import Temperature

    chain = processors.load(
        "temperature", ("top_k", {"k": 3}), Temperature(0.5), Temperature, (Temperature, {"temperature": 3}), abs
    )
    assert chain.labels == ("temperature", "top_k", "temperature#2", "temperature#3", "temperature#4", "abs")
    assert chain["temperature#4"].temperature == 3.0


def test_given_options_are_overridden_by_those_of_the_call():
    chain = processors.load(("top_k", {"k": 3}), options={"top_k": {"k": 5}})
    assert chain["top_k"].k == 5


def test_a_broken_plugin_does_not_disturb_loading_others(installed):
    installed("import_error")
    assert processors.load("sound", "temperature").labels == ("sound", "temperature")


def test_what_only_forbids_keeps_what_is_forbidden():
    class Masking:
        effect = MASK

        def process(self, logits):
            return logits

    class Unknown:
        process = Masking.process

    assert [processors.load(one()).links[0].effect.keeps_forbidden for one in (Masking, Unknown)] == [True, False]


def test_a_class_with_an_entry_point_has_the_name_by_which_it_is_loaded():
    cls = type(processors.load(("top_k", {"k": 3}))["top_k"])
    assert processors.load((cls, {"k": 3}), (cls, {"k": 2})).labels == ("top_k", "top_k#2")
    with pytest.raises(errors.OptionError, match="Option 'k' of 'top_k' must be"):
        processors.load((cls, {"k": 0}))
