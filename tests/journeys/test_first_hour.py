"""What a user does first, from the pages where users begin, with the real model."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.journeys.fresh import ROOT, WEIGHTS, blocks, require, run, script

pytestmark = pytest.mark.extras

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}


@pytest.fixture(autouse=True)
def _weights() -> None:
    require(*WEIGHTS)


def test_the_quick_start_of_the_first_page(tmp_path: Path) -> None:
    script(blocks("README.md", "the reference model")[0], tmp_path, anew=True)
    (line,) = re.findall(r"logitloom generate .*", (ROOT / "README.md").read_text(encoding="utf-8"))[:1]
    assert run(shlex.split(line), tmp_path, anew=True) == "14 July 1789"


def test_the_command_of_weighted_decoding_prints_the_likelier_text_first(tmp_path: Path) -> None:
    (line,) = re.findall(r"^logitloom generate .*", (ROOT / "docs/weighted.md").read_text(encoding="utf-8"), re.M)
    told = run(shlex.split(line), tmp_path).splitlines()
    assert told[0].endswith("\tParis.")
    shares = [float(each.split("\t")[0]) for each in told]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0, abs=0.01)
    masked, _ = line.split(" --particles")
    assert run(shlex.split(masked), tmp_path) == "The Hague."


# By default the blocks of this page run in one process with the other pages (tests/test_docs.py).
@pytest.mark.exhaustive
def test_a_class_goes_in_and_an_object_comes_out_in_our_own_loop_also_piece_by_piece(tmp_path: Path) -> None:
    require("pydantic")
    page = blocks("docs/structured-output.md", "pydantic")[0]
    ours = [code for code in blocks("docs/structured-output.md", "the reference model") if "generator" in code.lower()]
    script("\n".join([page, *ours]), tmp_path)


def test_a_class_goes_in_and_an_object_comes_out_in_transformers(tmp_path: Path) -> None:
    require("pydantic", "torch", "transformers", "accelerate")
    from tests.contrib.engines.vllm.smollm2_folder import smollm2_folder

    page = blocks("docs/structured-output.md", "pydantic")[0]
    theirs = next(code for code in blocks("docs/structured-output.md", "hf transformers") if "to_transformers" in code)
    loaded = (
        "import torch\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n"
        f"tokenizer = AutoTokenizer.from_pretrained({str(smollm2_folder())!r})\n"
        f"model = AutoModelForCausalLM.from_pretrained({str(smollm2_folder())!r}, dtype=torch.float32).eval()\n"
    )
    assert "name='" in script("\n".join([page, loaded, theirs, "print(person)"]), tmp_path)


def test_a_database_says_which_queries_are_written(tmp_path: Path) -> None:
    """The page's own query, then one drawn with a seed, and the error of a function that is wrong."""
    told = script(
        blocks("docs/checked.md", "the reference model")[0]
        + """
from logitloom.errors import OptionError

drawn = processors.load(
    ("temperature", {"temperature": 0.7}), ("checked", {"check": query, "sample": True}), tokenizer=model.tokenizer
)
generator = Generator(model, drawn, tokenizer=model.tokenizer, max_tokens=40)
found = [generator(question, seed=seed)[0] for seed in (5, 5)]
assert found[0].text == found[1].text
assert found[0].finish != "eos" or database.execute(found[0].text).fetchall() == []
wrong = processors.load(("checked", {"check": lambda text: True, "sample": True}), tokenizer=model.tokenizer)
try:
    Generator(model, wrong, tokenizer=model.tokenizer)(question)
except OptionError as error:
    print(answer.text, error, sep="\\n")
""",
        tmp_path,
    )
    text, error = told.splitlines()
    assert text.startswith("SELECT ")
    assert "'checked' raised TypeError" in error
    assert "takes 1 positional argument but 2 were given" in error


def test_a_tool_is_called_and_its_result_goes_back(tmp_path: Path) -> None:
    told = script(
        """
import json

from logitloom import processors
from logitloom.generation import Generator, read_value
from logitloom_contrib.llama import load

model = load()
cities = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
tools = [{"type": "function", "function": {"name": "weather", "parameters": cities}}]
options = {"tools": tools, "choice": "required", "parallel": False}
chain = processors.load(("tool_call", options), tokenizer=model.tokenizer)
messages = [{"role": "user", "content": "What is the weather in Rome? Call the tool weather."}]
prompt = model.tokenizer.apply_chat_template(messages)
(answer,) = Generator(model, chain, tokenizer=model.tokenizer, max_tokens=60)(prompt)
(call,) = read_value(chain, answer.text)
assert [call] == read_value(chain, answer.tokens)
messages += [
    {"role": "assistant", "content": answer.text},
    {"role": "user", "content": json.dumps({"city": call["arguments"]["city"], "weather": "sunny"})},
]
(last,) = Generator(model, tokenizer=model.tokenizer, max_tokens=20)(model.tokenizer.apply_chat_template(messages))
print(json.dumps([call, last.text]))
""",
        tmp_path,
    )
    call, last = json.loads(told)
    assert call == {"name": "weather", "arguments": {"city": "Rome"}}
    assert last


def opened(page: Path) -> str:
    """The document of a page after its scripts ran in a browser, which must not complain."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
         f"--user-data-dir={page.parent}/profile", "--virtual-time-budget=2000", f"file://{page}"],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    assert ":CONSOLE" not in done.stderr
    return done.stdout


def test_a_trace_of_json_opens_in_a_browser(tmp_path: Path) -> None:
    (tmp_path / "city.json").write_text(json.dumps(CITY))
    command = ["logitloom", "generate", "Name a city in France, as JSON.", "--json-schema", "city.json"]
    text = run([*command, "--use", "temperature", "--trace", "trace.html"], tmp_path)
    assert json.loads(text)["city"] in ("Paris", "Rome")
    shown = opened(tmp_path / "trace.html")
    assert "Step 1 of" in shown
    assert "temperature" in shown


def test_a_record_of_the_page_about_traces_opens_in_a_browser(tmp_path: Path) -> None:
    code = next(code for code in blocks("docs/trace.md", "the reference model") if "traced.record.save" in code)
    kept = [line for line in code.splitlines() if "plot(" not in line and not line.startswith(("model =", "chain,"))]
    loaded = (
        "from logitloom import processors\nfrom logitloom_contrib.llama import load\nmodel = load()\n"
        "tokenizer = model.tokenizer\n"
        "chain = processors.load(('between', {'open': '(', 'close': ')', 'inner': ['top_k', {'k': 3}]}), "
        "('top_k', {'k': 9}), tokenizer=tokenizer)\n"
    )
    script("\n".join([loaded, *kept]), tmp_path)
    for name in ("trace.html", "two.html"):
        assert "between" in opened(tmp_path / name)


def test_a_chain_goes_into_a_file_and_comes_out(tmp_path: Path) -> None:
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (document,) = re.findall(r"```toml\n(logitloom = 1.*?)```", tutorial, re.DOTALL)
    first = next(code for code in blocks("docs/tutorial.md") if "chain.configure(top_k" in code)
    printing = next(code for code in blocks("docs/tutorial.md") if "to_toml(chain)" in code)
    assert script("\n".join([first, printing]), tmp_path) == document + "\n"
    (tmp_path / "chain.toml").write_text(document)
    command = ["logitloom", "generate", "Tell a story.", "--max-tokens", "8", "--seed", "4", "--sample"]
    options = [
        "--use",
        "frequency_penalty",
        "--set",
        "frequency_penalty.penalty=0.5",
        "--use",
        "top_k",
        "--set",
        "top_k.k=2",
    ]
    assert run([*command, "--chain", "chain.toml"], tmp_path) == run([*command, *options], tmp_path)


def test_a_mark_is_found_in_what_generate_printed_and_in_the_text_alone(tmp_path: Path) -> None:
    key = ["--set", "key=77", "--set", "bias=6.0", "--json"]
    command = [
        "logitloom",
        "generate",
        "Tell a story.",
        "--sample",
        "--max-tokens",
        "40",
        "--use",
        "watermark_greenlist",
    ]
    settings = ["--set", "watermark_greenlist.key=77", "--set", "watermark_greenlist.bias=6.0"]
    told = run([*command, *settings, "--json"], tmp_path)
    (tmp_path / "told.json").write_text(told)
    (tmp_path / "text.txt").write_text(json.loads(told)[0]["text"])
    for source in ("told.json", "text.txt"):
        found = json.loads(run(["logitloom", "detect", "watermark_greenlist", source, *key], tmp_path))
        assert found["p_value"] < 1e-4
        assert 30 <= found["tokens"] <= 41


def test_a_stream_is_the_text_piece_by_piece_whether_the_chain_has_a_vocabulary_or_not(tmp_path: Path) -> None:
    script(
        """
from logitloom import processors
from logitloom.generation import Generator
from logitloom_contrib.llama import load

model = load()
prompt = model.tokenizer.apply_chat_template([{"role": "user", "content": "Count to five."}])
plain = processors.load(("top_k", {"k": 40}))
for chain in (plain, plain.configure(tokenizer=model.tokenizer)):
    generator = Generator(model, chain, tokenizer=model.tokenizer, max_tokens=6)
    pieces = list(generator.stream(prompt))
    (whole,) = generator(prompt)
    assert whole.text and len(pieces) > 3
    assert "".join(piece.text for piece in pieces) == whole.text
""",
        tmp_path,
    )
    command = ["logitloom", "generate", "Count to five.", "--max-tokens", "6"]
    assert run([*command, "--stream"], tmp_path) == run(command, tmp_path)


def test_two_constraints_that_contradict_each_other_are_put_together(tmp_path: Path) -> None:
    """The error says that a combinator satisfies constraints together; the page of combinators has its name."""
    told = script(
        """
from logitloom import processors
from logitloom.errors import NoLegalToken
from logitloom.generation import Generator
from logitloom_contrib.llama import load

model = load()
answer = "choice", {"choices": ["It is a secret", "Ask me later"]}
polite = "bad_words", {"phrases": ["secret", "later"]}
try:
    Generator(model, processors.load(answer, polite), tokenizer=model.tokenizer)("Who knows it?")
except NoLegalToken as error:
    print("one part of a combinator" in str(error))
polite = "bad_words", {"phrases": ["later"]}
chain = processors.load(("all_of", {"inner": [answer, polite]}))
(result,) = Generator(model, chain, tokenizer=model.tokenizer)("Who knows it?")
print(result.text)
""",
        tmp_path,
    )
    assert told.strip().split("\n") == ["True", "It is a secret"]
