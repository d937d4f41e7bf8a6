"""Finding plug-ins: by name, lazily, one at a time; every error says what to do."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from importlib.metadata import Distribution, distributions

import numpy as np
import pytest

from logitloom import Vocabulary, errors, processors, read_vocabulary
from logitloom.arrays.backend import Backend, backend_of
from logitloom.cli.doctor import mistaken
from logitloom.document import from_document
from logitloom.host import registry


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter with the same paths prints."""
    import os

    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Doubling:
    """Twice the logits."""

    def process(self, logits):
        return logits * 2


class Tripling:
    def process(self, logits):
        return logits * 3


def outcome(chain, value=1.0):
    from logitloom import Context

    logits = np.full((1, 3), value, dtype=np.float32)
    context = Context.start(logits)
    return float(chain.process(logits, chain.init_state(context), context)[0][0, 0])


def test_metadata_of_a_distribution_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Distribution.metadata.fget
    parsed: list[Distribution] = []
    monkeypatch.setattr(Distribution, "metadata", property(lambda self: [parsed.append(self), read(self)][1]))
    registry.refresh()
    found = registry.available("processors")
    once = len(parsed)
    assert once < len(found)
    processors.load("temperature", "top_k")
    assert registry.available("processors") == found
    assert len(parsed) == once
    registry.refresh()
    registry.available("processors")
    assert len(parsed) == 2 * once


# -- what is imported ----------------------------------------------------------------------------------

ARRAY_LIBRARIES = ["torch", "mlx", "jax", "jaxlib", "cupy", "tensorflow", "array_api_compat"]


def test_importing_logitloom_imports_no_array_library_but_numpy():
    loaded = json.loads(python("import sys, json, logitloom; print(json.dumps(sorted(sys.modules)))"))
    roots = {name.partition(".")[0] for name in loaded}
    assert not roots & set(ARRAY_LIBRARIES)
    assert "numpy" in roots


def test_importing_logitloom_imports_numpy_and_pluggy_and_no_other_package():
    code = """
import sys
before = set(sys.modules)
import json, logitloom
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""
    from_distributions = {
        path.parts[0].removesuffix(".py")
        for found in distributions()
        for path in found.files or ()
        if path.suffix == ".py" and path.parts[0] not in ("..", ".")
    }
    third_party = {name for name in json.loads(python(code)) if name in from_distributions}
    assert third_party - {"logitloom", "_virtualenv", "__editable___logitloom"} <= {"numpy", "pluggy"}


def test_importing_logitloom_imports_no_plugin():
    loaded = json.loads(python("import sys, json, logitloom; print(json.dumps(sorted(sys.modules)))"))
    assert not [name for name in loaded if name.startswith(("logitloom_plugins", "logitloom_contrib"))]


def test_listing_imports_no_plugin():
    code = """
import sys, json
from logitloom import processors
from logitloom.host import registry
assert processors.available() and registry.available()
print(json.dumps(sorted(sys.modules)))
"""
    loaded = json.loads(python(code))
    assert not [name for name in loaded if name.startswith(("logitloom_plugins", "logitloom_contrib"))]
    assert not {name.partition(".")[0] for name in loaded} & set(ARRAY_LIBRARIES)


def test_loading_imports_only_the_named_plugin():
    code = """
import sys, json
from logitloom import processors
processors.load("temperature")
names = [m for m in sys.modules if m.startswith("logitloom_plugins.") and m.count(".") == 2 and "._" not in m]
print(json.dumps(sorted(names)))
"""
    assert json.loads(python(code)) == ["logitloom_plugins.processors.temperature"]


def test_describing_imports_only_the_named_plugin():
    code = """
import sys, json
from logitloom import processors
processors.describe("top_k")
print(json.dumps(sorted(m for m in sys.modules if m.startswith("logitloom_plugins.") and m.count(".") == 2)))
"""
    assert json.loads(python(code)) == ["logitloom_plugins.processors.top_k"]


# -- listing ------------------------------------------------------------------------------------------


def test_available_tells_name_kind_distribution_and_version():
    record = next(r for r in processors.available() if r.name == "temperature")
    from importlib.metadata import version

    assert (record.kind, record.distribution) == ("processors", "logitloom")
    assert record.version == version("logitloom")
    assert record.value == "logitloom_plugins.processors.temperature:Temperature"
    assert record.installed
    assert record.remedy == ""
    assert not record.blocked


def test_available_is_sorted_by_kind_and_name():
    records = registry.available()
    kinds = list(registry.GROUPS)
    assert [(kinds.index(r.kind), r.name) for r in records] == sorted((kinds.index(r.kind), r.name) for r in records)


def test_available_tells_which_requirements_of_the_extra_are_missing(installed):
    installed("missing_extra")
    by_name = {r.name: r for r in processors.available()}
    assert by_name["heavy"].missing == ("no-such-library>=3", "numpy>=999")
    assert by_name["heavy"].remedy == "pip install 'loom-heavy[fast]'"
    assert not by_name["heavy"].installed
    assert by_name["light"].installed


def test_an_extra_that_names_another_extra_of_its_distribution_is_followed(installed):
    installed("missing_extra")
    by_name = {r.name: r for r in processors.available()}
    assert by_name["heavier"].missing == ("no-such-library>=3", "numpy>=999")
    assert by_name["heavier"].remedy == "pip install 'loom-heavy[more]'"


def test_an_extra_may_have_a_hyphen_in_its_name(installed):
    installed("missing_extra")
    by_name = {r.name: r for r in processors.available()}
    assert by_name["heaviest"].missing == ("no-such-other",)
    assert by_name["heaviest"].remedy == "pip install 'loom-heavy[fast-and-more]'"


def test_registered_plugins_are_listed_without_distribution(register):
    register("doubling", Doubling)
    record = next(r for r in processors.available() if r.name == "doubling")
    assert (record.distribution, record.version) == ("", "")
    assert record.value.endswith(":Doubling")


def test_an_unknown_kind_is_refused():
    with pytest.raises(errors.UnknownPlugin, match="no kind of plug-in 'processor'.*processors, backends"):
        registry.available("processor")
    with pytest.raises(errors.UnknownPlugin, match="no kind of plug-in 'processor'"):
        registry.register("x", Doubling, kind="processor")


# -- unknown names --------------------------------------------------------------------------------------


def test_an_unknown_name_comes_with_near_matches():
    with pytest.raises(errors.UnknownPlugin, match="There is no processor 'temperatur'.*'temperature'"):
        processors.load("temperatur")


def test_an_unknown_name_comes_with_what_is_installed_and_what_to_install():
    with pytest.raises(errors.UnknownPlugin) as caught:
        processors.load("zzz")
    text = str(caught.value)
    assert "Did you mean" not in text
    assert "'logitloom plugins' lists what there is" in text
    assert len(text) < 300
    assert "entry point of this name in the group 'logitloom.processors'" in text


def test_a_name_of_another_kind_is_pointed_out():
    with pytest.raises(errors.UnknownPlugin, match="There is a plug-in of that name among backends"):
        processors.load("numpy")


def test_unknown_names_are_lookup_errors():
    with pytest.raises(LookupError):
        processors.describe("zzz")


# -- duplicates -----------------------------------------------------------------------------------------


def test_two_distributions_with_one_name_are_both_named(installed):
    installed("duplicate_name")
    with pytest.raises(errors.DuplicatePlugin) as caught:
        processors.load("twin")
    text = str(caught.value)
    assert "loom-twin-a 1.0" in text
    assert "loom-twin-b 2.0" in text
    assert "twin@loom-twin-a" in text
    assert "twin@loom-twin-b" in text


@pytest.mark.parametrize(("wanted", "doc"), [("loom-twin-a", "Twin a."), ("loom-twin-b", "Twin b.")])
def test_the_distribution_is_chosen_with_an_at_sign(installed, wanted, doc):
    installed("duplicate_name")
    chain = processors.load(f"twin@{wanted}")
    assert type(chain["twin"]).__doc__ == doc


def test_distribution_names_are_compared_as_pip_does(installed):
    installed("duplicate_name")
    assert type(processors.load("twin@Loom_Twin.A")["twin"]).__doc__ == "Twin a."


def test_a_distribution_without_that_name_is_told_who_has_it(installed):
    installed("duplicate_name")
    with pytest.raises(errors.UnknownPlugin, match="'logitloom' has no processor 'twin'.*loom-twin-a, loom-twin-b"):
        processors.load("twin@logitloom")
    with pytest.raises(errors.UnknownPlugin, match="no distribution provides it"):
        processors.load("nobody@logitloom")


def test_duplicates_elsewhere_do_not_disturb_other_names(installed):
    installed("duplicate_name")
    assert processors.load(("top_k", {"k": 2})).labels == ("top_k",)
    assert [r.distribution for r in processors.available() if r.name == "twin"] == ["loom-twin-a", "loom-twin-b"]


def test_a_built_in_keeps_its_name_with_a_warning(installed):
    installed("shadowing")
    with pytest.warns(errors.DuplicatePluginWarning, match=r"'temperature' .* temperature@loom-shadow for"):
        chain = processors.load("temperature")
    assert type(chain["temperature"]).__module__ == "logitloom_plugins.processors.temperature"


@pytest.mark.parametrize(("owner", "name"), [("loom-shadow", "Shadow"), ("logitloom", "Temperature")])
def test_who_has_the_name_of_a_built_in_is_reached_through_its_distribution(installed, owner, name):
    installed("shadowing")
    assert type(processors.load(f"temperature@{owner}")["temperature"]).__name__ == name


def test_a_blocked_built_in_leaves_its_name_to_others(installed):
    installed("shadowing")
    chain = processors.load("temperature", block=["temperature@logitloom"])
    assert type(chain["temperature"]).__name__ == "Shadow"


# -- the version of the plug-in interface ------------------------------------------------------------------


def test_a_plugin_for_another_interface_is_refused_before_it_is_imported(installed):
    installed("other_interface")
    text = r"'from_the_future' .* loom-newer 3\.0 declares version 99 .* has 1\. Try: pip install --upgrade logitloom\."
    with pytest.raises(errors.InterfaceMismatch, match=text):
        processors.load("from_the_future")
    assert "loom_newer" not in sys.modules


def test_a_plugin_for_this_interface_is_loaded(installed):
    installed("other_interface")
    assert processors.load("from_today").labels == ("from_today",)


def test_a_declaration_that_is_no_version_is_refused(installed):
    installed("other_interface")
    with pytest.raises(errors.InterfaceMismatch, match=r"no version that can be read in 'logitloom\.interface'"):
        processors.load("from_somewhere")


def test_a_plugin_for_an_interface_that_was_removed_is_to_be_upgraded(installed, monkeypatch):
    monkeypatch.setattr(registry, "INTERFACE_VERSIONS", (2, 3))
    installed("other_interface")
    with pytest.raises(errors.InterfaceMismatch, match=r"version 1 .* has 2, 3\. Try: .*--upgrade loom-same\."):
        processors.load("from_today")


def test_the_interface_is_known_without_importing(installed):
    installed("other_interface")
    known = {r.name: (r.interface, r.fits) for r in processors.available()}
    assert known["from_the_future"] == (99, False)
    assert known["from_today"] == known["temperature"] == (1, True)


# -- entry points that nothing can find -------------------------------------------------------------------


def test_mistaken_groups_and_names_are_found(installed):
    assert mistaken() == []
    installed("mistaken_names")
    found = {group: (name, owner, text) for group, name, owner, text in mistaken()}
    assert set(found) == {"logitloom.procesors", "logitlom.backends", "logitloom.plugins", "logitloom.processors"}
    assert found["logitloom.procesors"][:2] == ("unseen", "loom-mistaken")
    assert "Did you mean 'logitloom.processors'?" in found["logitloom.procesors"][2]
    assert "Did you mean 'logitloom.backends'?" in found["logitlom.backends"][2]
    assert "The groups are logitloom.backends, " in found["logitloom.plugins"][2]
    assert "The name 'a@b' cannot be loaded" in found["logitloom.processors"][2]


# -- plug-ins that cannot be imported ----------------------------------------------------------------------


def test_a_failing_import_is_reported_with_its_cause(installed):
    installed("import_error")
    with pytest.raises(errors.PluginImportError) as caught:
        processors.load("broken")
    assert "'broken' (processors) of loom-broken 1.0" in str(caught.value)
    assert "RuntimeError: the license server does not answer" in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(("name", "cause"), [("gone", ModuleNotFoundError), ("absent", AttributeError)])
def test_a_missing_module_or_attribute_is_an_import_error_too(installed, name, cause):
    installed("import_error")
    with pytest.raises(ImportError) as caught:
        processors.load(name)
    assert isinstance(caught.value.__cause__, cause)


def test_a_broken_plugin_leaves_the_others_of_its_distribution_alone(installed):
    installed("import_error")
    with pytest.raises(errors.PluginImportError):
        processors.load("broken")
    assert outcome(processors.load("sound")) == 2.0
    assert "broken" in [r.name for r in processors.available()]


def test_a_failing_import_says_what_to_install(installed):
    installed("missing_extra")
    with pytest.raises(
        errors.PluginImportError, match=r"requires no-such-library>=3.*pip install 'loom-heavy\[fast\]'"
    ):
        processors.load("heavy")


# -- blocking -------------------------------------------------------------------------------------------


def test_a_name_is_blocked_by_argument():
    with pytest.raises(errors.PluginBlocked, match="'temperature'.*is blocked"):
        processors.load("temperature", block=["temperature"])
    assert [r.blocked for r in processors.available(block=["temperature"]) if r.name == "temperature"] == [True]


@pytest.mark.parametrize("value", ["temperature", "top_k , temperature", "processors/temperature"])
def test_a_name_is_blocked_by_the_environment(monkeypatch, value):
    monkeypatch.setenv("LOGITLOOM_BLOCK", value)
    with pytest.raises(errors.PluginBlocked, match=f"LOGITLOOM_BLOCK='{value}'"):
        processors.load("temperature")
    assert [r.blocked for r in processors.available() if r.name == "temperature"] == [True]


def test_blocking_another_kind_of_that_name_blocks_nothing(monkeypatch):
    monkeypatch.setenv("LOGITLOOM_BLOCK", "backends/temperature")
    assert processors.load("temperature").labels == ("temperature",)


def test_a_blocked_name_cannot_be_reached_through_its_distribution():
    with pytest.raises(errors.PluginBlocked):
        processors.load("temperature@logitloom", block=["temperature"])


def test_a_registered_plugin_can_be_blocked(register):
    register("doubling", Doubling)
    with pytest.raises(errors.PluginBlocked):
        processors.load("doubling", block=["doubling"])


# -- registering without packaging ---------------------------------------------------------------------------


def test_a_registered_class_is_loaded_by_name(register):
    register("doubling", Doubling)
    assert outcome(processors.load("doubling", "temperature")) == 2.0
    assert processors.describe("doubling").summary == "Twice the logits."


def test_a_registered_function_and_object_are_loaded_by_name(register):
    register("tripled", lambda logits: logits * 3)
    register("doubled", Doubling())
    assert outcome(processors.load("tripled", "doubled")) == 6.0


def test_a_taken_name_is_not_registered_twice(register):
    register("doubling", Doubling)
    with pytest.raises(errors.DuplicatePlugin, match="'doubling' is already taken.*an earlier registration"):
        processors.register("doubling", Tripling)
    with pytest.raises(errors.DuplicatePlugin, match=r"'top_k' is already taken .*by logitloom\..*replace=True"):
        processors.register("top_k", Tripling)


@pytest.mark.parametrize("name", ["", " ", "two words", "a@b", "a#2", "kind/a", "a\n"])
def test_a_name_that_cannot_be_loaded_is_not_registered(name):
    with pytest.raises(errors.UnknownPlugin) as caught:
        processors.register(name, Doubling, replace=True)
    assert str(caught.value) == (
        f"The name {name!r} cannot be loaded: names consist of letters, digits, '_', '-' and '.'. Choose another name."
    )
    with pytest.raises(errors.UnknownPlugin, match="'name' must be a str, but is 3"):
        processors.register(3, Doubling)


def test_a_builtin_is_replaced_and_comes_back(register):
    register("temperature", Tripling, replace=True)
    assert outcome(processors.load("temperature")) == 3.0
    registry.unregister("temperature")
    assert outcome(processors.load(("temperature", {"temperature": 0.5}))) == 2.0
    register("temperature", Tripling, replace=True)


def test_a_replaced_builtin_is_still_reached_through_its_distribution(register):
    register("temperature", Tripling, replace=True)
    assert outcome(processors.load(("temperature@logitloom", {"temperature": 0.5}))) == 2.0


@pytest.mark.parametrize(("written", "meant"), [("TopK", "top_k"), ("TOP_P", "top_p"), ("TypicalP", "typical_p")])
def test_a_name_in_other_letters_is_recognised(written, meant):
    with pytest.raises(errors.UnknownPlugin, match=f"no processor '{written}'. Did you mean '{meant}'"):
        processors.load(written)


def test_what_was_not_registered_cannot_be_unregistered():
    with pytest.raises(errors.UnknownPlugin, match="No plug-in was registered as 'top_k'"):
        processors.unregister("top_k")


# -- backends -------------------------------------------------------------------------------------------


def test_a_library_without_backend_is_named():
    with pytest.raises(errors.BackendMissing, match=r"builtins\.list, which no backend handles"):
        backend_of([1.0])
    with pytest.raises(errors.BackendMissing, match="no backend 'nosuch'"):
        registry.load_backend("nosuch")


def test_a_backend_may_decline(register):
    class Declining:
        def backend_adapter(self, library):
            return None

    register("strange", Declining, kind="backends")
    with pytest.raises(errors.BackendMissing, match="declined to handle 'strange'"):
        registry.load_backend("strange")


def test_a_replaced_backend_is_used_from_then_on(register):
    assert backend_of(np.zeros(1)).name == "numpy"
    original = registry.load_backend("numpy")

    class Marked(type(original)):
        mark = True

    class Plugin:
        def backend_adapter(self):
            return Marked()

    register("numpy", Plugin, kind="backends", replace=True)
    assert isinstance(backend_of(np.zeros(1)), Marked)
    registry.unregister("numpy", kind="backends")
    assert backend_of(np.zeros(1)) is original or not isinstance(backend_of(np.zeros(1)), Marked)
    register("numpy", Plugin, kind="backends", replace=True)


def test_backends_are_one_object_per_device():
    backend = registry.load_backend("numpy")
    assert registry.load_backend("numpy") is backend
    assert backend.at(None) is backend
    assert isinstance(backend, Backend)


# -- tokenizer readers ------------------------------------------------------------------------------------


def test_a_vocabulary_is_read_as_itself():
    vocabulary = Vocabulary([b"a"])
    assert read_vocabulary(vocabulary) is vocabulary


def test_a_tokenizer_nobody_knows_is_named_with_the_installed_readers():
    with pytest.raises(errors.VocabularyError, match=r"No tokenizer reader knows .*\.Doubling.*Installed readers: "):
        read_vocabulary(Doubling())


def test_a_registered_reader_is_asked(register):
    class Reader:
        def vocabulary(self, tokenizer):
            return Vocabulary([b"x"], name="mine") if isinstance(tokenizer, Doubling) else None

    register("mine", Reader, kind="tokenizers")
    assert read_vocabulary(Doubling()).name == "mine"


def test_a_broken_reader_is_mentioned_only_if_no_other_reads(register):
    class Unfit:
        def read(self, tokenizer):
            return None

    class Reader:
        def vocabulary(self, tokenizer):
            return Vocabulary([b"x"], name="mine") if isinstance(tokenizer, Doubling) else None

    register("unfit", Unfit, kind="tokenizers")
    with pytest.raises(errors.VocabularyError, match="could not be used: .*unfit"):
        read_vocabulary(Tripling())
    register("mine", Reader, kind="tokenizers")
    assert read_vocabulary(Doubling()).name == "mine"


class AnswersLists:
    def vocabulary(self, tokenizer):
        return [b"a"]


class RaisesReading:
    def vocabulary(self, tokenizer):
        raise RuntimeError("no such file")


class RaisesVersions:
    def vocabulary(self, tokenizer):
        return None

    def vocabulary_version(self, tokenizer):
        return tokenizer.version


FAILING = {
    AnswersLists: r"unfit \(TypeError: its method 'vocabulary' must return .* or None, but returned \[b'a'\]\)",
    RaisesReading: r"unfit \(RuntimeError: no such file\)",
    RaisesVersions: r"unfit \(AttributeError: .*no attribute 'version'\)",
}


@pytest.mark.parametrize("reader", FAILING)
def test_a_reader_that_fails_on_a_tokenizer_is_named(reader, register):
    register("mine", Versioned(), kind="tokenizers")
    register("unfit", reader, kind="tokenizers")
    with pytest.raises(
        errors.VocabularyError, match=f"No tokenizer reader knows .*Tripling.*{FAILING[reader]}"
    ) as caught:
        read_vocabulary(Tripling())
    assert isinstance(caught.value.__cause__, Exception)
    with pytest.warns(errors.LogitloomWarning, match=f"Doubling was read .*{FAILING[reader]}.*tokenizers/unfit"):
        assert read_vocabulary(lettered("ab")).token_bytes == (b"a", b"b")


def test_a_reader_whose_error_says_why_is_not_passed_over(register):
    class Refusing:
        def vocabulary(self, tokenizer):
            raise errors.VocabularyError("Its bytes are not known.")

    register("mine", Versioned(), kind="tokenizers")
    register("refusing", Refusing, kind="tokenizers")
    with pytest.raises(errors.VocabularyError, match=r"^Its bytes are not known\.$"):
        read_vocabulary(lettered("ab"))


class Versioned:
    """A reader that counts what it reads; a tokenizer's letters may be changed."""

    def __init__(self):
        self.read = 0

    def vocabulary(self, tokenizer):
        if not isinstance(tokenizer, Doubling):
            return None
        self.read += 1
        return Vocabulary([letter.encode() for letter in tokenizer.letters], name="mine")

    def vocabulary_version(self, tokenizer):
        return tokenizer.letters if isinstance(tokenizer, Doubling) else None


def lettered(letters):
    tokenizer = Doubling()
    tokenizer.letters = letters
    return tokenizer


def test_a_tokenizer_is_read_once_and_again_after_it_changed(register):
    reader = Versioned()
    register("mine", reader, kind="tokenizers")
    tokenizer = lettered("ab")
    first = read_vocabulary(tokenizer)
    assert (read_vocabulary(tokenizer) is first, reader.read) == (True, 1)
    tokenizer.letters = "abc"
    assert (read_vocabulary(tokenizer).size, read_vocabulary(tokenizer).size, reader.read) == (3, 3, 2)


def test_tokenizers_of_equal_content_have_one_vocabulary(register):
    register("mine", Versioned(), kind="tokenizers")
    one, two, other = lettered("ab"), lettered("ab"), lettered("ba")
    assert read_vocabulary(one) is read_vocabulary(two)
    assert read_vocabulary(one) is not read_vocabulary(other)


def test_a_reader_without_versions_is_asked_each_time(register):
    class Unversioned(Versioned):
        vocabulary_version = None

    reader = Unversioned()
    register("mine", reader, kind="tokenizers")
    tokenizer = lettered("ab")
    assert [read_vocabulary(tokenizer).size, read_vocabulary(tokenizer).size, reader.read] == [2, 2, 2]


def test_neither_tokenizers_nor_their_vocabularies_are_kept_alive(register):
    register("mine", Versioned(), kind="tokenizers")
    tokenizer = lettered("ab")
    ends = weakref.ref(tokenizer), weakref.ref(read_vocabulary(tokenizer))
    del tokenizer
    gc.collect()
    assert [end() for end in ends] == [None, None]


def test_what_a_blocked_or_replaced_reader_read_is_not_remembered(register, monkeypatch):
    register("mine", Versioned(), kind="tokenizers")
    tokenizer = lettered("ab")
    assert read_vocabulary(tokenizer).size == 2
    with monkeypatch.context() as patch:
        patch.setenv(registry.BLOCK_VARIABLE, "tokenizers/mine")
        with pytest.raises(errors.VocabularyError, match="No tokenizer reader knows"):
            read_vocabulary(tokenizer)
    other = Versioned()
    register("mine", other, kind="tokenizers", replace=True)
    assert (read_vocabulary(tokenizer).size, other.read) == (2, 1)


# -- what is blocked is blocked at every depth ------------------------------------------------------------


@pytest.mark.parametrize(
    "entry", ["temperature", "processors/temperature", "temperature@logitloom", "processors/temperature@LogitLoom"]
)
@pytest.mark.parametrize("name", ["temperature", "temperature@logitloom"])
def test_every_way_to_write_a_blocked_name_has_an_effect(entry, name, monkeypatch):
    with pytest.raises(errors.PluginBlocked, match="is blocked"):
        processors.load(name, block=[entry])
    monkeypatch.setenv("LOGITLOOM_BLOCK", f"other, {entry}")
    with pytest.raises(errors.PluginBlocked, match="is blocked"):
        processors.load(name)
    assert next(r for r in processors.available() if r.name == "temperature").blocked


@pytest.mark.parametrize("entry", ["temperature@other", "backends/temperature", "temperatures"])
def test_what_is_blocked_of_others_has_none(entry):
    assert processors.load(("temperature", {"temperature": 0.5}), block=[entry]).labels == ("temperature",)


NESTED = {
    "after": {"trigger": "a", "inner": ["top_k", {"k": 2}]},
    "all_of": {"inner": [["top_k", {"k": 2}], "json"]},
    "between": {"open": "a", "close": "b", "inner": {"use": "top_k", "options": {"k": 2}}},
    "budget": {"n": 3, "then": [{"use": "top_k", "options": {"k": 2}}]},
    "until": {"trigger": "a", "inner": [], "then": ["top_k", {"k": 2}]},
    "thinking": {"then": ["after", {"trigger": "x", "inner": ["top_k", {"k": 2}]}]},
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("entry", ["top_k", "top_k@logitloom"])
def test_a_blocked_processor_is_blocked_inside_others(name, entry, monkeypatch):
    with pytest.raises(errors.PluginBlocked, match="'top_k'"):
        processors.load((name, NESTED[name]), block=[entry])
    with pytest.raises(errors.PluginBlocked, match="'top_k'"):
        from_document({"logitloom": 1, "processor": [{"use": name, "options": NESTED[name]}]}, block=[entry])
    monkeypatch.setenv("LOGITLOOM_BLOCK", entry)
    with pytest.raises(errors.PluginBlocked, match="'top_k'"):
        processors.load((name, NESTED[name]))


def test_what_was_blocked_stays_blocked_when_a_chain_is_configured_later():
    chain = processors.load("after", block=["top_k"])
    with pytest.raises(errors.PluginBlocked, match="'top_k'"):
        chain.configure(after=NESTED["after"])
    assert processors.load("after").configure(after=NESTED["after"]).labels == ("after",)


@pytest.mark.extras
def test_what_an_engine_of_a_processor_is_can_be_blocked():
    pytest.importorskip("llguidance")
    with pytest.raises(errors.PluginBlocked, match="'llguidance'"):
        processors.load(("grammar", {"grammar": 'root ::= "a"', "engine": "llguidance"}), block=["grammars/llguidance"])


def test_a_text_as_block_is_refused_rather_than_read_as_letters():
    with pytest.raises(errors.OptionTypeError, match=r"block=\['top_k'\]"):
        processors.load("temperature", block="top_k")
