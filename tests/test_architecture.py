"""The folder tree is the architecture: imports run one way, entry points are the modules, nothing leaks."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import re
import tomllib
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from logitloom import errors, processors
from logitloom.automata.lift.trie import NODE
from logitloom.constraints import ByteAutomaton, Constraint, ConstraintProcessor
from logitloom.host import registry

ROOT = Path(__file__).parent.parent
CORE, PLUGINS, CONTRIB = ROOT / "core", ROOT / "plugins", ROOT / "contrib"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = PROJECT["project"]["entry-points"]
ENTRY_POINTS = {
    k.removeprefix("logitloom."): v
    for k, v in GROUPS.items()
    if k.startswith("logitloom.") and k != registry.ROLE_GROUP
}

#: Where each kind of built-in plug-in lives; engines are modules of contrib.
FOLDERS = {
    "processors": PLUGINS / "logitloom_plugins" / "processors",
    "backends": PLUGINS / "logitloom_plugins" / "backends",
    "tokenizers": PLUGINS / "logitloom_plugins" / "tokenizers",
    "candidates": PLUGINS / "logitloom_plugins" / "candidates",
    "kernels": PLUGINS / "logitloom_plugins" / "kernels",
    "engines": CONTRIB / "logitloom_contrib" / "engines",
}

ARRAY_LIBRARIES = {"torch", "mlx", "jax", "jaxlib", "cupy", "array_api_compat", "tensorflow", "dask"}


def modules(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def nodes_of(code: str) -> list[ast.AST]:
    """The nodes of the syntax tree of code."""
    return list(ast.walk(ast.parse(code)))


@functools.cache
def nodes_in(path: Path) -> list[ast.AST]:
    """The nodes of a file's syntax tree: most tests read those of all files."""
    return nodes_of(path.read_text(encoding="utf-8"))


@functools.cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The statements by which a module imports, anywhere in it: lazily and for types, too."""
    return [node for node in nodes_in(path) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    found = set()
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        else:
            assert node.level == 0, f"{name_of(path)} imports relatively"
            found.add((node.module or "").partition(".")[0])
    return found


def found_in(folders: Sequence[Path], look: Callable[[Path], set[str]]) -> dict[str, set[str]]:
    """What ``look`` finds in the modules of folders, by module; the others are left out."""
    return {name_of(path): found for path in modules(*folders) if (found := look(path))}


# -- imports ------------------------------------------------------------------------------------------


def test_core_imports_neither_plugins_nor_contrib():
    assert found_in([CORE], lambda path: imported(path) & {"logitloom_plugins", "logitloom_contrib"}) == {}


def test_core_imports_no_array_library_but_numpy():
    assert found_in([CORE], lambda path: imported(path) & ARRAY_LIBRARIES) == {}


def test_plugins_never_import_contrib():
    assert found_in([PLUGINS], lambda path: imported(path) & {"logitloom_contrib"}) == {}


def test_processors_are_written_for_no_array_library():
    assert found_in([FOLDERS["processors"]], lambda path: imported(path) & ARRAY_LIBRARIES) == {}


def test_array_libraries_that_are_imported_are_found():
    backends = found_in([FOLDERS["backends"]], lambda path: imported(path) & ARRAY_LIBRARIES)
    assert {"torch", "mlx", "jax"} <= set().union(*backends.values())


@pytest.mark.parametrize("path", modules(CONTRIB / "example-processor" / "src"), ids=name_of)
def test_the_example_uses_only_what_is_documented(path):
    allowed = set(__import__("logitloom").__all__)
    for node in nodes_in(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("logitloom"):
            assert node.module == "logitloom"
            assert {alias.name for alias in node.names} <= allowed
        assert not (isinstance(node, ast.Attribute) and node.attr.startswith("_") and not _is_self(node))


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


# -- public names ---------------------------------------------------------------------------------------


def object_named(name: str) -> object:
    """The object with a dotted name: a module, or what stands in one."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(object_named(module), attribute)


@functools.cache
def documented() -> dict[str, object]:
    """The objects that ``docs/reference.md`` shows, by dotted name: those listed, and the ``__all__`` of modules."""
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    shown = {name: object_named(name) for name in re.findall(r"^::: (logitloom\S*)$", page, re.M)}
    for name, value in list(shown.items()):
        if isinstance(value, ModuleType):
            shown |= {f"{name}.{public}": getattr(value, public) for public in value.__all__}
    return shown


def names_of_core(nodes: list[ast.AST]) -> set[str]:
    """The dotted names that a module takes from core: by imports, and as attributes of the modules it imports."""
    taken, aliases = set(), {}
    for node in nodes:
        if isinstance(node, ast.Import):
            taken |= {alias.name for alias in node.names if alias.name.partition(".")[0] == "logitloom"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "logitloom":
            taken |= {f"{node.module}.{alias.name}" for alias in node.names}
            aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    modules = {alias: name for alias, name in aliases.items() if isinstance(object_named(name), ModuleType)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            taken.add(f"{modules[node.value.id]}.{node.attr}")
    return taken


def test_names_of_core_are_found_wherever_they_stand():
    code = (
        "from logitloom import errors as e, Chain\ndef f():\n    from logitloom.arrays.rng import fold\n"
        "    raise e.Oops\n"
    )
    assert names_of_core(nodes_of(code)) == {
        "logitloom.errors",
        "logitloom.errors.Oops",
        "logitloom.Chain",
        "logitloom.arrays.rng.fold",
    }


def test_plugins_and_contrib_use_documented_names_of_core():
    listed = documented().keys()
    assert found_in([PLUGINS, CONTRIB], lambda path: names_of_core(nodes_in(path)) - listed) == {}, (
        "list them in docs/reference.md, or do without them"
    )


def test_functions_named_as_their_module_are_listed_themselves():
    """The reference leaves out a name of a package that a module in it has, too."""
    listed = documented()
    hidden = {
        f"{name}.{name.rpartition('.')[2]}"
        for name, value in listed.items()
        if isinstance(value, FunctionType) and f"{value.__module__}" == name
    }
    assert hidden
    assert hidden - listed.keys() == set()


def test_everything_documented_says_what_it_is():
    silent = [
        name
        for name, value in documented().items()
        if isinstance(value, ModuleType | FunctionType | type) and "logitloom" in repr(value) and not value.__doc__
    ]
    assert silent == []


# -- floors and cycles ---------------------------------------------------------------------------------

#: The rooms of core, and the modules that every plug-in names, from the ground up: each imports from its own floor and
#: from those below.
FLOORS = (
    {"errors", "arguments", "display"},
    {"arrays", "masks"},
    {"vocabulary", "rows", "effect", "state_memory", "process_memory"},
    {"context", "contract", "processor", "host"},
    {"chain", "processors", "document"},
    {"automata"},
    {"constraints"},
    {"generation", "engines"},
    {"trace", "testing", "cli", "__main__"},
)
#: The rooms of ``automata``, likewise.
AUTOMATA_FLOORS = (
    {"array_ranges", "automaton_kernels", "compilation_budget", "small_cache"},
    {"patterns"},
    {"deterministic"},
    {"lift"},
    {"catalogues", "store"},
    {"algebra", "cache", "compilation"},
)
#: Generated for type checkers: the names and options of the built-in processors.
LISTS_BUILT_INS = "core/logitloom/host/option_types.py"


def import_graph(folder: Path) -> dict[str, set[str]]:
    """Module -> the modules of the same folder that it imports, anywhere in it: lazily and for types, too."""
    names = {}
    for path in modules(folder):
        parts = path.relative_to(folder).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        found = set()
        for node in import_statements(path):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            else:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {module if module in names else node.module or "" for module in whole}
        graph[name] = (found & names.keys()) - {name}
    return graph


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one module."""
    below: dict[str, set[str]] = {}
    for name in graph:
        seen, waiting = set(), [name]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        below[name] = seen
    knots = {frozenset({name} | {other for other in below[name] if name in below[other]}) for name in graph}
    return [set(knot) for knot in sorted(knots, key=sorted) if len(knot) > 1]


def test_a_cycle_is_found_and_its_neighbours_are_not():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert cycles(graph) == [{"b", "c"}]


@pytest.mark.parametrize("folder", [CORE, PLUGINS, CONTRIB], ids=lambda p: p.name)
def test_no_modules_import_each_other_in_a_circle(folder):
    graph = import_graph(folder)
    assert any(graph.values()), "the names of the modules are not those that imports use"
    assert cycles(graph) == []


def floor_of(floors: Sequence[set[str]], part: str) -> int:
    return next(number for number, floor in enumerate(floors, 1) if part in floor)


def upward_imports(package: str, floors: Sequence[set[str]]) -> list[str]:
    """The imports between the parts of a package that go to a higher floor."""
    depth_of_parts = package.count(".") + 1
    found = []
    for name, targets in import_graph(CORE).items():
        if not name.startswith(f"{package}.") or name == "logitloom.cli.main":  # the command that tells the version
            continue
        here = floor_of(floors, name.split(".")[depth_of_parts])
        for target in targets:
            if target == package:
                found.append(f"{name} imports {target}")
            elif target.startswith(f"{package}."):
                there = floor_of(floors, target.split(".")[depth_of_parts])
                found += [f"{name} (floor {here}) imports {target} (floor {there})"] if there > here else []
    return found


@pytest.mark.parametrize(("package", "floors"), [("logitloom", FLOORS), ("logitloom.automata", AUTOMATA_FLOORS)])
def test_every_room_of_core_has_a_floor_and_imports_go_down(package, floors):
    parts = {name.removeprefix(f"{package}.").partition(".")[0] for name in import_graph(CORE) if f"{package}." in name}
    assert parts == set().union(*floors)
    assert upward_imports(package, floors) == []


def test_rooms_of_core_do_not_import_each_other():
    rooms: dict[str, set[str]] = {}
    for name, targets in import_graph(CORE).items():
        if name.startswith("logitloom.") and name != "logitloom.cli.main":
            here = name.split(".")[1]
            rooms.setdefault(here, set()).update({t.split(".")[1] for t in targets if "." in t} - {here})
    assert cycles(rooms) == []


#: Where a word in core is the name of a built-in processor and means something else.
OTHER_MEANINGS = {
    "core/logitloom/automata/__init__.py": {"choice"},  # the operation on automata
    "core/logitloom/automata/algebra.py": {"choice"},
    "core/logitloom/automata/compilation_budget.py": {"budget"},  # the limits of a compilation
    "core/logitloom/automata/deterministic/finite_language.py": {"choice"},
    "core/logitloom/automata/store/array_file.py": {"checked"},  # a function that looks at bytes
    "core/logitloom/chain/score_arguments.py": {"checked"},  # a function that looks at arguments
    "core/logitloom/cli/check.py": {"json"},  # the form of what a command prints
    "core/logitloom/cli/server_check.py": {"temperature"},  # a field of requests
    "core/logitloom/engines/written_text.py": {"stop"},  # why a text ended
    "core/logitloom/generation/__init__.py": {"heal"},  # the function, and the argument of generators
    "core/logitloom/generation/beam_search.py": {"stop"},
    "core/logitloom/generation/continuous.py": {"stop"},
    "core/logitloom/generation/generator.py": {"heal"},
    "core/logitloom/generation/healing.py": {"heal"},
    "core/logitloom/generation/loop.py": {"stop"},
    "core/logitloom/generation/particles.py": {"stop"},
    "core/logitloom/testing/_samples.py": {"top_k"},  # the operation of backends
}


def processors_named(nodes: list[ast.AST]) -> set[str]:
    """The built-in processors whose names are texts of a module, documentation apart."""
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str)} & ENTRY_POINTS["processors"].keys()


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ('processors.load(("stop", {"strings": strings}))', {"stop"}),
        ('given = {"regex": {"pattern": pattern}}', {"regex"}),
        ('name, source = ("grammar", "grammar") if flag else ("json", "schema")', {"grammar", "json"}),
        ('"""Loads "top_k"."""\nprocessors.load(name)\njson.load(file)', set()),
    ],
)
def test_names_of_processors_are_found_wherever_they_stand(source, named):
    assert processors_named(nodes_of(source)) == named


def test_core_names_no_processor():
    """Core asks for the processor of a task (``registry.role``); its words that are names, too, mean something else."""
    named = found_in([CORE], lambda path: processors_named(nodes_in(path)))
    del named[LISTS_BUILT_INS]
    assert named == OTHER_MEANINGS


#: Functions that take the name of a plug-in.
LOADS = {"load_plugin", "import_plugin"}


def plugins_named(nodes: list[ast.AST]) -> set[str]:
    """The built-in plug-ins of other kinds that a module loads by a name that stands in the call."""
    named = set()
    for node in nodes:
        function = getattr(node, "func", None)
        if isinstance(node, ast.Call) and getattr(function, "attr", getattr(function, "id", "")) in LOADS:
            named |= {
                each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
            }
    return named & set().union(*(points.keys() for points in ENTRY_POINTS.values()))


def test_names_of_plugins_in_calls_are_found():
    code = 'registry.load_plugin("models", "llama")\nload_plugin("models", name)'
    assert plugins_named(nodes_of(code)) == {"llama"}


def test_core_loads_no_plugin_by_name():
    assert found_in([CORE], lambda path: plugins_named(nodes_in(path))) == {}


#: The floors of contrib, from the ground up.
CONTRIB_FLOORS = ({"llama", "response_format", "row_tracking"}, {"requests"}, {"engines"}, {"conformance", "servers"})


def test_imports_of_contrib_go_down():
    floors = {part: number for number, parts in enumerate(CONTRIB_FLOORS) for part in parts}
    graph = {
        tuple(name.split(".")[1:]): {tuple(target.split(".")[1:]) for target in targets}
        for name, targets in import_graph(CONTRIB).items()
        if name.startswith("logitloom_contrib.")
    }
    assert {name[0] for name in graph} == floors.keys()
    upward = [
        f"{'.'.join(name)} imports {'.'.join(target)}"
        for name, targets in graph.items()
        for target in targets
        if target and floors[target[0]] > floors[name[0]]
    ]
    assert upward == []


def depth(graph: dict[str, set[str]]) -> int:
    """How many modules the longest chain of imports has, of a graph without cycles."""

    @functools.cache
    def below(name: str) -> int:
        return 1 + max(map(below, graph[name]), default=0)

    return max(map(below, graph))


def test_the_depth_of_a_graph_is_its_longest_chain():
    assert depth({"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "d": set(), "e": set()}) == 4


@pytest.mark.parametrize(
    ("stages", "most"), [(("schema", "values"), 4), (("schema", "values", "grammar", "folds", "tokens"), 15)]
)
def test_the_chains_of_imports_in_json_schema_are_short(stages, most):
    folder = PLUGINS / "logitloom_plugins" / "json_schema"
    graph = import_graph(PLUGINS)
    names = {
        ".".join(path.relative_to(PLUGINS).with_suffix("").parts)
        for stage in stages
        for path in modules(folder / stage)
    }
    assert depth({name: targets & names for name, targets in graph.items() if name in names}) <= most


# -- size ------------------------------------------------------------------------------------------------


def long_functions(nodes: list[ast.AST], most: int) -> list[tuple[str, int]]:
    """The functions with more lines than ``most``, docstrings not counted, each with its number of lines."""
    found = []
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            told = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            documented = (first.end_lineno or 0) - first.lineno + 1 if told else 0
            lines = (node.end_lineno or 0) - node.lineno + 1 - documented
            found += [(node.name, lines)] if lines > most else []
    return found


def test_long_functions_are_found_and_their_docstrings_are_not_counted():
    code = 'def f():\n    """Two\n    lines."""\n    return 1\n\n\ndef g():\n    a = 1\n    return a\n'
    assert long_functions(nodes_of(code), 2) == [("g", 3)]


def test_functions_fit_on_a_screen():
    """At most 60 lines; the linter holds their cyclomatic complexity at 20 (``pyproject.toml``)."""
    long = [
        f"{name_of(path)}: {name} has {lines} lines"
        for path in modules(CORE, PLUGINS, CONTRIB)
        for name, lines in long_functions(nodes_in(path), 60)
    ]
    assert long == []


# -- constraints ----------------------------------------------------------------------------------------


#: The arrays of a trie with an entry for each node, and the views of these arrays.
NODE_ARRAYS = {*(NODE.names or ()), "parent", "levels", "views", "records"}


def node_reads(nodes: list[ast.AST]) -> list[str]:
    """The places at which code reads a trie's nodes: attributes of a trie, and attributes that only a trie has."""
    found = []
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in NODE_ARRAYS:
            owner = ast.unparse(node.value).rpartition(".")[2]
            if "trie" in owner.lower() or node.attr in ("child_start", "child_count"):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom) and node.module == "logitloom.automata.lift.trie":
            names = {alias.name for alias in node.names} - {"Trie", "vocabulary_trie"}
            found += [f"{node.lineno}: imports {name}" for name in sorted(names)]
    return found


def test_reads_of_nodes_are_found():
    code = (
        "from logitloom.automata.lift.trie import HIGH_WORD, Trie\n"
        "def f(words, interval):\n"
        "    trie = words.trie\n"
        "    return trie.first, words.trie.own, words.child_start, trie.order, trie.longest, interval.first\n"
    )
    assert node_reads(nodes_of(code)) == [
        "1: imports HIGH_WORD",
        "4: trie.first",
        "4: words.trie.own",
        "4: words.child_start",
    ]


def test_nodes_of_tries_are_read_by_the_lift_and_its_kernels_alone():
    readers = CORE / "logitloom" / "automata" / "lift", FOLDERS["kernels"]
    read = {}
    for path in [*modules(CORE, PLUGINS, CONTRIB), *(ROOT / "benchmarks").glob("*.py")]:
        if path.parent not in readers and (found := node_reads(nodes_in(path))):
            read[name_of(path)] = found
    assert read == {}


#: Functions that remember every result, because their arguments are names of plug-ins, distributions and formats,
#: dtypes, or texts of our own: there are only so many in a process.
REMEMBER_ALL = {
    "_ascii_category",
    "_ascii_letters_equal_to",
    "_backend_plugin",
    "_category",
    "_contexts",
    "_entry_points",
    "_interface_of",
    "_load_entry_point",
    "_missing_requirements",
    "_set_of_text",
    "bits_of",
    "format_automaton",
    "most_characters",
    "name_and_version",
    "role",
}


def unbounded_caches(code: str) -> set[str]:
    """The functions of a module that have arguments and remember every result."""
    module = ast.parse(code)
    return {
        node.name
        for node in module.body
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.args)
        for decorator in node.decorator_list
        if re.fullmatch(r"(functools\.)?(cache|lru_cache\((maxsize=)?None\))", ast.unparse(decorator))
    }


def test_what_is_remembered_of_given_values_is_bounded():
    assert unbounded_caches("@cache\ndef f(x): ...\n@lru_cache(maxsize=None)\ndef g(x): ...\n@cache\ndef h(): ...") == {
        "f",
        "g",
    }
    found = {
        name_of(path): unbounded_caches(path.read_text(encoding="utf-8")) for path in modules(CORE, PLUGINS, CONTRIB)
    }
    assert {path: names - REMEMBER_ALL for path, names in found.items() if names - REMEMBER_ALL} == {}
    assert set().union(*found.values()) == REMEMBER_ALL


def asked_classes(path: Path) -> list[tuple[int, str]]:
    """The names that a file gives to ``isinstance`` and ``issubclass`` as classes, each with its line."""
    found = []
    for node in nodes_in(path):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("isinstance", "issubclass"):
            found += [(node.lineno, name) for name in re.findall(r"[\w.]+", ast.unparse(node.args[1]))]
    return found


def means_a_constraint(module: str, name: str) -> bool:
    """Whether a name in a module is a class of constraints, of automata over bytes or of processors that are one."""
    value: object = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return isinstance(value, type) and issubclass(value, (Constraint, ByteAutomaton, ConstraintProcessor))


def test_classes_of_constraints_are_told_from_others():
    assert means_a_constraint("logitloom_plugins.processors.regex", "LimitedProcessor")
    assert means_a_constraint("logitloom.automata.lift.token_automaton", "TokenAutomaton")
    assert not means_a_constraint("logitloom_plugins.processors.regex", "Dfa")


def test_nobody_asks_for_the_class_of_a_constraint():
    asked = []
    for package in (CORE / "logitloom", PLUGINS / "logitloom_plugins", CONTRIB / "logitloom_contrib"):
        for path in modules(package):
            module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            for line, name in asked_classes(path):
                with contextlib.suppress(ImportError):  # of a library that is not installed
                    if means_a_constraint(module, name):
                        asked.append(f"{module}:{line} asks for {name}")
    assert asked == []


def test_what_is_checked_exists():
    assert len(modules(CORE)) > 10
    assert len(modules(PLUGINS)) > 10
    assert modules(CONTRIB / "example-processor" / "src")


# -- names -----------------------------------------------------------------------------------------------

#: Folders whose modules bear the name of what they test, print or serve.
NAMED_AFTER_SUBJECTS = {"testing", "conformance", "cli", "servers"}


def is_only_an_entry_point(path: Path) -> bool:
    """Whether a module says by which name something is loaded that is written elsewhere."""
    module = nodes_in(path)[0]
    assert isinstance(module, ast.Module)
    return not any(isinstance(node, ast.ClassDef | ast.FunctionDef) for node in module.body)


def test_each_class_has_a_name_of_its_own():
    homes: dict[str, list[str]] = {}
    for path in modules(CORE, PLUGINS, CONTRIB / "logitloom_contrib"):
        for node in nodes_in(path):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(f"{name_of(path)}:{node.lineno}")
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_each_module_has_a_name_of_its_own():
    homes: dict[str, list[str]] = {}
    for path in modules(CORE, PLUGINS, CONTRIB / "logitloom_contrib"):
        shares = NAMED_AFTER_SUBJECTS & {path.parent.name, path.stem} or is_only_an_entry_point(path)
        if path.stem != "__init__" and not shares:
            homes.setdefault(path.stem.lstrip("_"), []).append(name_of(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


# -- entry points ---------------------------------------------------------------------------------------


def plugin_modules(folder: Path) -> set[str]:
    """Public modules and packages directly in a folder (folders named ``*_kernels`` are parts of a neighbour)."""
    found = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    return {name for name in found if not name.startswith("_") and not name.endswith("_kernels")}


@pytest.mark.parametrize("kind", sorted(FOLDERS))
def test_the_modules_of_a_kind_are_exactly_its_entry_points(kind):
    folder = FOLDERS[kind]
    package = ".".join(folder.relative_to(folder.parent.parent).parts)
    targets = {value.partition("[")[0].partition(":")[0].strip() for value in ENTRY_POINTS.get(kind, {}).values()}
    assert all(target.startswith(f"{package}.") for target in targets)
    assert {target.removeprefix(f"{package}.").partition(".")[0] for target in targets} == plugin_modules(folder)


def test_models_are_packages_of_contrib():
    for value in ENTRY_POINTS.get("models", {}).values():
        package, _, module = value.partition("[")[0].partition(":")[0].strip().partition(".")
        assert package == "logitloom_contrib"
        assert (CONTRIB / package / module.replace(".", "/")).is_dir()


def test_groups_of_entry_points_are_those_of_the_registry():
    assert set(ENTRY_POINTS) <= set(registry.GROUPS)
    assert set(GROUPS) - {"vllm.logits_processors", "vllm.general_plugins", registry.ROLE_GROUP} == {
        registry.GROUPS[kind] for kind in ENTRY_POINTS
    }


def test_the_roles_of_core_are_options_of_built_in_processors():
    for task in GROUPS[registry.ROLE_GROUP]:
        name, option = registry.role(task)
        assert option in {declared.name for declared in processors.describe(name).options}
    with pytest.raises(errors.UnknownPlugin, match="names a processor for 'nothing'"):
        registry.role("nothing")


def test_the_installed_entry_points_are_those_of_the_project():
    installed = {
        (kind, point.name, point.value)
        for kind, group in registry.GROUPS.items()
        for point in entry_points(group=group)
        if point.dist is not None and point.dist.name == "logitloom"
    }
    declared = {(kind, name, value) for kind, points in ENTRY_POINTS.items() for name, value in points.items()}
    plain = {(kind, name, re.sub(r"\s+", "", value)) for kind, name, value in installed}
    assert plain == {(kind, name, re.sub(r"\s+", "", value)) for kind, name, value in declared}, (
        "the installed metadata is older than pyproject.toml: run pip install -e . again"
    )


@pytest.mark.parametrize("kind", sorted(ENTRY_POINTS))
def test_entry_points_stand_in_alphabetical_order(kind):
    assert list(ENTRY_POINTS[kind]) == sorted(ENTRY_POINTS[kind])


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, points in sorted(ENTRY_POINTS.items()) for name in sorted(points)]
)
def test_every_plugin_loads_or_names_the_extra_that_is_missing(kind, name):
    record = next(r for r in registry.available(kind) if (r.name, r.distribution) == (name, "logitloom"))
    if record.installed:
        assert registry.load_plugin(kind, f"{name}@logitloom") is not None
        return
    assert record.extra in PROJECT["project"]["optional-dependencies"]
    with contextlib.suppress(errors.PluginImportError):  # the library may be there, only older than required
        registry.load_plugin(kind, f"{name}@logitloom")
        pytest.skip(f"{kind}/{name} loads, with another version than {', '.join(record.missing)}")
    with pytest.raises(errors.PluginImportError, match=re.escape(f"pip install 'logitloom[{record.extra}]'")):
        registry.load_plugin(kind, f"{name}@logitloom")


# -- types ------------------------------------------------------------------------------------------------


def uses_of_any(nodes: list[ast.AST]) -> int:
    """How often code says that a type is ``Any``."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)


def test_uses_of_any_are_counted_without_imports_and_texts():
    assert uses_of_any(nodes_of('from typing import Any\nx: dict[str, Any] = {"Any": 1}\ny: Any = x\n')) == 2


def test_json_schema_leaves_few_types_open_and_says_why():
    uses = {path: uses_of_any(nodes_in(path)) for path in modules(PLUGINS / "logitloom_plugins" / "json_schema")}
    assert sum(uses.values()) <= 10
    using = [path.read_text(encoding="utf-8") for path, count in uses.items() if count]
    assert all("so ``Any``" in re.sub(r"\n#: ", " ", source) for source in using)


# -- traps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [CORE, PLUGINS, CONTRIB], ids=lambda p: p.name)
def test_folders_on_the_path_hide_no_library(folder):
    """In a development installation these folders are on sys.path; whatever lies in them can be imported."""
    names = {path.name for path in folder.iterdir() if path.is_dir() and path.name.isidentifier()} - {"__pycache__"}
    assert all(name.startswith("logitloom") for name in names), names


def test_the_top_level_stays_small():
    tracked = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    assert tracked <= {"core", "plugins", "contrib", "tests", "docs", "benchmarks"} | {
        "build",
        "dist",
        "site",
        "shared",
    }


#: Written in pieces, so that this file does not contain what it forbids.
FORBIDDEN = [re.compile("/" + word) for word in ("root/", "opt/" + "dev", "work/", "home/[a-z]+/")]


def test_no_file_names_a_place_on_somebodys_machine():
    suffixes = {".py", ".md", ".toml", ".ini", ".txt", ".yml", ".svg", ".json", ".cfg", ".sh"}
    folders = [CORE, PLUGINS, CONTRIB, ROOT / "tests", ROOT / "docs", ROOT / "benchmarks", ROOT / ".ci"]
    files = [p for f in folders for p in f.rglob("*") if p.suffix in suffixes or p.name == "run"]
    files = [path for path in files if "__pycache__" not in path.parts]
    files += [path for path in ROOT.iterdir() if path.suffix in suffixes]
    for path in files:
        if path.is_file() and path.stat().st_size < 2_000_000:
            text = path.read_text(encoding="utf-8", errors="replace")
            found = [pattern.pattern for pattern in FORBIDDEN if pattern.search(text)]
            assert not found, f"{name_of(path)} mentions {found}"


def test_packages_are_typed():
    for package in ("core/logitloom", "plugins/logitloom_plugins", "contrib/logitloom_contrib"):
        assert (ROOT / package / "py.typed").is_file()


def test_no_package_of_plugins_imports_a_private_module_of_another() -> None:
    private = re.compile(r"^\s*from (logitloom_plugins\.\w+)\.(_\w+) import", re.MULTILINE)
    found = [
        f"{path}: {package}.{name}"
        for path in sorted((ROOT / "plugins" / "logitloom_plugins").rglob("*.py"))
        for package, name in private.findall(path.read_text())
        if path.relative_to(ROOT / "plugins").parts[1] != package.split(".")[1]
    ]
    assert not found
