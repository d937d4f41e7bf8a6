"""A traced chain changes nothing, and its record says what happened."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from logitloom import Context, Vocabulary, load_backend, processors
from logitloom.errors import GenerationError, OptionError, SequenceIndexError
from logitloom.generation import BeamSearch, Generator, Greedy, Multinomial, continuous, heal
from logitloom.generation.candidates import load as load_candidates
from logitloom.trace import RecordedChain, TracedChain
from tests.oracles.toy_model import ToyModel

EOS = 16
VOCABULARY = Vocabulary([bytes([97 + i]) for i in range(EOS)] + [b""], eos=[EOS], special_text={EOS: "</script>"})
PROMPTS = [[1, 2, 3, 1, 2], [4], [5, 6, 7, 8, 9]]
CHAIN = (
    ("repetition_penalty", {"penalty": 1.3}),
    ("regex", {"pattern": "[a-h]{3}(ping|pong)?[a-p]{2,30}"}),
    ("top_k", {"k": 4}),
)


def traced(*specs, **options):
    chain = processors.load(*(specs or CHAIN), tokenizer=VOCABULARY)
    return chain, TracedChain(chain, **options)


def generated(chain, strategy, **more):
    return Generator(ToyModel(load_backend("numpy")), chain, strategy, max_tokens=20, **more)(PROMPTS, seed=5)


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(2), BeamSearch(3, samples=2)])
def test_a_traced_chain_gives_the_same_sequences_and_its_record_leads_along_them(strategy):
    chain, tracing = traced()
    expected, found = generated(chain, strategy), generated(tracing, strategy)
    assert found == expected
    tracing.record.attach(found)
    for sequence, told in zip(tracing.record.sequences, found, strict=True):
        tokens = [*sequence.leading, *(token for each in sequence.chosen for token in each)]
        assert tuple(tokens) == told.tokens
        assert sequence.text == told.text
        assert sequence.finish == told.finish
        assert list(sequence.prompt) == PROMPTS[told.prompt]
        for step, chosen in zip(sequence.steps, sequence.chosen, strict=True):
            legal = step.after.legal
            assert len(step.changes) == 3
            assert 1 <= legal <= 4
            if chosen:
                assert chosen[0] in [token for token, _ in step.after.top]


def test_every_step_of_a_row_follows_the_one_before():
    _, tracing = traced()
    generated(tracing, Multinomial(1))
    for step in tracing.record.steps:
        assert step.parent < step.number
        assert step.accepted or step.parent < 0, "without forced tokens at the start every later step has new tokens"
    roots = [step.parent for step in tracing.record.steps if step.parent < 0]
    assert sorted(roots) == [-3, -2, -1]


def test_the_figures_are_those_of_the_distributions():
    logits = np.log(np.array([[0.5, 0.25, 0.125, 0.125]], dtype=np.float32))
    specs = ("suppress_tokens", {"tokens": [1]}), ("temperature", {"temperature": 0.5}), ("top_k", {"k": 2})
    chain = TracedChain(processors.load(*specs), top=2)
    context = Context.start(logits)
    chain.process(logits, chain.init_state(context), context)
    (step,) = chain.record.steps
    assert step.before.legal == 4
    assert step.before.entropy == pytest.approx(1.75)
    assert step.before.top == ((0, pytest.approx(0.5)), (1, pytest.approx(0.25)))
    suppressed, warped, cut = step.changes
    assert (suppressed.removed, suppressed.after.legal) == (1, 3)
    assert suppressed.mass == pytest.approx(0.25)
    assert suppressed.shift == pytest.approx(0.25)
    assert suppressed.after.entropy == pytest.approx(-(2 / 3) * np.log2(2 / 3) - (1 / 3) * np.log2(1 / 6))
    assert (warped.removed, warped.mass) == (0, 0.0)
    # Probabilities 4 : 1 : 1 go to 16 : 1 : 1.
    assert warped.after.top[0] == (0, pytest.approx(16 / 18))
    assert warped.shift == pytest.approx(16 / 18 - 4 / 6)
    assert cut.after.legal == 3, "equal logits stay together"
    assert cut.mass == 0.0


def test_rows_without_legal_tokens_and_infinite_logits_are_described():
    logits = np.array([[-np.inf] * 3, [np.inf, 1.0, np.inf], [np.nan, 0.0, 0.0]], dtype=np.float32)
    chain = TracedChain(processors.load(("temperature", {"temperature": 1.0})))
    context = Context.start(logits)
    chain.process(logits, chain.init_state(context), context)
    dead, infinite, undefined = (step.before for step in chain.record.steps)
    assert (dead.legal, dead.entropy, dead.top) == (0, 0.0, ())
    assert infinite.top == ((0, 0.5), (2, 0.5))
    assert infinite.entropy == 1.0
    assert undefined.top == ((1, 0.5), (2, 0.5))
    assert undefined.legal == 2


def test_the_callers_logits_stay_and_one_row_without_batch_axis_is_recorded():
    logits = np.linspace(0, 1, 5, dtype=np.float32)
    chain = TracedChain(processors.load(("top_k", {"k": 1})))
    context = Context.start(logits)
    kept = logits.copy()
    processed, _ = chain.process(logits, chain.init_state(context), context)
    assert processed.shape == (5,)
    assert np.array_equal(logits, kept)
    assert chain.record.steps[0].changes[0].removed == 4


def test_one_pass_guidance_is_recorded_per_sequence():
    logits = np.log(np.array([[0.5, 0.5], [0.2, 0.8]], dtype=np.float32))
    chain = TracedChain(processors.load(("cfg", {"scale": 2.0, "form": "one_pass"})))
    context = Context.start(logits, prompt=[[0, 1]], branches=chain.branches)
    chain.process(logits, chain.init_state(context), context)
    (step,) = chain.record.steps
    assert step.before.top == ((0, 0.5), (1, 0.5))
    assert step.changes[0].after.top[0] == (0, pytest.approx(0.8))


def test_forced_and_drafted_tokens_are_told_apart_from_sampled_ones(monkeypatch):
    # Few drafts are accepted here; on a host they would not pay.
    monkeypatch.setattr("logitloom.generation.schedules._HOST_PASS_COST", 0.0)
    chain, tracing = traced(("regex", {"pattern": "[a-p]{4}ponging[a-p]{8,30}"}))
    drafts = load_candidates("prompt_lookup", {})
    found = generated(tracing, Greedy(), candidates=drafts, on_emission=tracing.record.note)
    plain = generated(chain, Greedy())
    assert [g.tokens for g in found] == [g.tokens for g in plain]
    tracing.record.attach(found)
    origins = [[o for each in s.origins for o in each] for s in tracing.record.sequences]
    assert [row.count("forced") for row in origins] == [g.forced for g in found]
    assert all(row.count("forced") >= len("ponging") for row in origins)
    assert any("drafted" in row for row in origins)
    # The forced run is where the pattern says.
    assert all(row[4:11] == ["forced"] * 7 for row in origins)


def test_rejected_drafts_are_counted_as_abandoned():
    _, tracing = traced(("repetition_penalty", {"penalty": 1.5}))
    found = generated(tracing, Multinomial(1), candidates=load_candidates("prompt_lookup", {}))
    tracing.record.attach(found)
    page = tracing.record.to_dict()
    assert page["abandoned"] == len(tracing.record) - len(page["steps"])
    assert [len(s["steps"]) for s in page["sequences"]] == [len(s.steps) for s in tracing.record.sequences]


def test_only_the_distributions_of_the_target_are_recorded_beside_drafts_of_a_model():
    assistant = load_candidates("assistant", {"model": ToyModel(load_backend("numpy"), seed=3)})
    _, tracing = traced()
    generated(tracing, Multinomial(1), candidates=assistant)
    steps, target = tracing.record.steps, ToyModel(load_backend("numpy"))
    for step in steps:
        row, at = [*step.accepted], step
        while at.parent >= 0:
            at = steps[at.parent]
            row = [*at.accepted, *row]
        row = [*PROMPTS[-1 - at.parent], *row]
        logits = target.row_logits(row).astype(np.float64)
        wanted = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        assert [p for _, p in step.before.top] == pytest.approx(sorted(wanted)[: -len(step.before.top) - 1 : -1])


#: Two letters are a token, so a prompt that ends with the first of them is healed.
PAIRS = Vocabulary([bytes([97 + i]) for i in range(EOS - 1)] + [b"ab", b""], eos=[EOS])


@pytest.mark.parametrize("strategy", [Greedy(), Multinomial(2), BeamSearch(3, samples=2)])
@pytest.mark.parametrize("specs", [(("regex", {"pattern": "[a-h]{3,30}"}),), (("top_k", {"k": 4}),)])
def test_a_healed_generation_is_recorded(specs, strategy):
    chain = processors.load(*specs, tokenizer=PAIRS)
    tracing = TracedChain(chain)
    prompts = [[2, 0], [5, 6]]
    expected, found = (
        Generator(ToyModel(load_backend("numpy")), each, strategy, max_tokens=9, heal=True)(prompts)
        for each in (chain, tracing)
    )
    assert found == expected
    assert max(each.healed for each in found) == 1
    tracing.record.attach(found)
    for sequence, told in zip(tracing.record.sequences, found, strict=True):
        assert (*sequence.leading, *(token for each in sequence.chosen for token in each)) == told.tokens
        assert all(len(step.changes) == len(tracing.record.labels) for step in sequence.steps)


def test_a_round_that_stops_at_a_text_is_recorded():
    chain, tracing = traced(("temperature", {"temperature": 0.5}))
    states = [
        continuous(Generator(ToyModel(load_backend("numpy")), each, Multinomial(), eos=()))([1], stop_at="a")
        for each in (chain, tracing)
    ]
    assert states[1].rows == states[0].rows
    assert tracing.record.labels == ("temperature", "stop")
    assert len(tracing.record) == len(states[1].rows[0]) - 1


def test_the_record_of_a_healed_chain_is_that_of_the_chain():
    recorded = RecordedChain(processors.load(("regex", {"pattern": "[a-h]{3,30}"}), tokenizer=PAIRS))
    healed = heal(recorded, [[2, 0]])
    (found,) = Generator(ToyModel(load_backend("numpy")), healed.chain, max_tokens=9, skip_forced=False)(healed.prompts)
    known = recorded.sampled(found.tokens, prompt=healed.prompts[0])
    assert [each.token for each in known] == list(found.tokens)
    assert sum(each.logprob for each in known) <= 0


@pytest.mark.parametrize("inner", [TracedChain, RecordedChain])
@pytest.mark.parametrize("outer", [TracedChain, RecordedChain])
def test_a_recorded_chain_is_not_recorded_again(outer, inner):
    chain, _ = traced()
    with pytest.raises(OptionError, match=f"^A {outer.__name__} cannot record a {inner.__name__}: .*'unrecorded'"):
        outer(inner(chain))
    assert outer(inner(chain).unrecorded).unrecorded is chain


def test_automata_are_recorded_with_the_states_that_were_visited():
    _, tracing = traced()
    tracing.record.attach(generated(tracing, Greedy()))
    page = tracing.record.to_dict()
    states = page["automata"]["regex"]
    dfa = tracing["regex"].constraint_for(Context.start(np.zeros((1, 17)), vocabulary=VOCABULARY)).dfa
    for sequence in tracing.record.sequences:
        state = dfa.start
        text = b""
        for step, chosen in zip(sequence.steps, sequence.chosen, strict=True):
            assert step.changes[1].state == (state if text == b"" else dfa.walk(text))
            text += VOCABULARY.text_bytes(chosen)
    assert states[dfa.start]["edges"] == [["a-h", dfa.walk(b"a")]]


def test_a_full_record_counts_what_it_misses():
    chain, tracing = traced(limit=7)
    assert generated(tracing, Greedy()) == generated(chain, Greedy())
    assert len(tracing.record) == 7
    assert tracing.record.missed > 0
    assert tracing.record.to_dict()["missed"] == tracing.record.missed


def test_without_being_told_the_sequences_are_the_rows():
    _, tracing = traced()
    found = generated(tracing, Greedy())
    rows = tracing.record.sequences
    assert [r.name for r in rows] == ["row 0", "row 1", "row 2"]
    for row in rows:
        tokens = (*row.leading, *(token for each in row.chosen for token in each))
        assert any(g.tokens[: len(tokens)] == tokens for g in found)


def test_one_sequence_may_be_attached_and_nothing_else_than_sequences():
    _, tracing = traced()
    found = generated(tracing, Greedy())
    tracing.record.attach(found[1])
    (sequence,) = tracing.record.sequences
    assert (sequence.name, sequence.text, sequence.finish) == ("prompt 1", found[1].text, found[1].finish)
    for wrong in (None, [1, 2], "text"):
        with pytest.raises(GenerationError, match="'generated' must be a Generated, .* list that the generator"):
            tracing.record.attach(wrong)


def test_what_is_no_record_cannot_stand_beside_one(tmp_path):
    _, tracing = traced()
    with pytest.raises(OptionError, match="'beside' must be a StepTree, but is 'other.html'. Give the record"):
        tracing.record.save(tmp_path / "trace.html", beside="other.html")
    assert not (tmp_path / "trace.html").exists()


def test_the_page_holds_the_record_and_nothing_from_elsewhere(tmp_path):
    _, tracing = traced()
    tracing.record.attach(generated(tracing, Greedy()))
    tracing.record.save(tmp_path / "trace.html")
    page = (tmp_path / "trace.html").read_text(encoding="utf-8")
    begin = page.index('id="trace">') + len('id="trace">')
    held = json.loads(page[begin : page.index("</script>", begin)])
    assert held == json.loads(json.dumps(tracing.record.to_dict()))
    assert held["tokens"][str(EOS)] == "</script>", "the test means to hold what would end the element"
    assert "http:" not in page
    assert "https:" not in page
    assert "src=" not in page


@pytest.mark.parametrize(("name", "message"), [("trace.txt", "ends in .html"), ("none/trace.html", "does not exist")])
def test_pages_go_into_html_files_of_folders_that_exist(tmp_path, name, message):
    _, tracing = traced()
    with pytest.raises(OptionError, match=message):
        tracing.record.save(tmp_path / name)


def test_what_was_chosen_is_recorded_with_its_probability_and_rank():
    _, tracing = traced()
    found = generated(tracing, Greedy())
    tracing.record.attach(found)
    for sequence in tracing.record.sequences:
        assert len(sequence.choices) == len(sequence.steps)
        for step, ids, choice in zip(sequence.steps, sequence.chosen, sequence.choices, strict=True):
            if not ids:
                assert choice is None
                continue
            assert choice is not None
            before, after = dict(step.before.top), dict(step.after.top)
            assert choice.token == ids[0]
            assert choice.rank == 1  # greedy
            assert np.exp(choice.logprob) == pytest.approx(after[ids[0]], rel=1e-5)
            if ids[0] in before:
                assert np.exp(choice.logprob_before) == pytest.approx(before[ids[0]], rel=1e-5)
                assert choice.rank_before == 1 + sum(p > before[ids[0]] for p in before.values())


def test_negative_limits_are_refused():
    with pytest.raises(OptionError, match="top"):
        traced(top=-1)


@pytest.mark.extras
def test_the_plot_shows_every_processor_and_step():
    pytest.importorskip("matplotlib")
    _, tracing = traced()
    tracing.record.attach(generated(tracing, Greedy()))
    figure = tracing.record.plot(1)
    steps = len(tracing.record.sequences[1].steps)
    heat, entropy = figure.axes[:2]
    assert heat.images[0].get_array().shape == (3, steps)
    assert [len(line.get_xdata()) for line in entropy.lines] == [steps, steps]
    with pytest.raises(SequenceIndexError, match="3 sequences"):
        tracing.record.plot(3)


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

#: Presses keys, and leaves in the title what the page then shows.
PRESSING = """
<script>
  const press = key => dispatchEvent(new KeyboardEvent("keydown", {key, cancelable: true}));
  const seen = [];
  const look = () => seen.push([document.getElementById("step-title").textContent.split(":")[0],
    document.querySelector("tr.now").firstChild.textContent, document.getElementById("sequence").value].join("/"));
  look(); press("ArrowRight"); look(); press("ArrowDown"); look(); press("End"); look(); press("]"); look();
  press("m"); press("t"); press("ArrowLeft"); look();
  press("["); press("m"); press("j");
  seen.push(document.getElementById("jumped").textContent.split(":")[0], document.getElementById("choice").textContent);
  document.title = seen.join("|") + "|" + document.documentElement.dataset.theme;
</script>
"""


#: Leaves in the title what the page shows of another run.
COMPARING = """
<script>
  const other = [...document.querySelectorAll("#beside-text .token")];
  const ours = [...document.querySelectorAll("#text .token")], same = e => !e.classList.contains("differs");
  document.title = [document.getElementById("beside-title").textContent, other.length, other.filter(same).length,
    ours.filter(same).length, document.getElementById("beside-step").textContent].join("|");
</script>
"""


def title_of(page: str, folder: Path) -> str:
    """The title of a page after its scripts ran in a browser, which must not complain."""
    assert CHROMIUM is not None
    (folder / "opened.html").write_text(page, encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
         f"--user-data-dir={folder}/profile", "--virtual-time-budget=2000", f"file://{folder}/opened.html"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert ":CONSOLE" not in done.stderr
    return done.stdout[done.stdout.index("<title>") + 7 : done.stdout.index("</title>")]


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_two_runs_are_shown_side_by_side_from_their_first_difference_on(tmp_path):
    records = []
    for strategy in (Greedy(), Multinomial(1)):
        _, tracing = traced()
        tracing.record.attach(generated(tracing, strategy))
        records.append(tracing.record)
    records[0].save(tmp_path / "two.html", beside=records[1])
    page = (tmp_path / "two.html").read_text(encoding="utf-8").replace("</body>", COMPARING + "</body>")
    about, count, theirs, ours, step = title_of(page, tmp_path).split("|")
    texts = [[*s.leading, *(t for each in s.chosen for t in each)] for s in (r.sequences[0] for r in records)]
    assert texts[0] != texts[1]
    same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    assert (int(count), int(theirs), int(ours)) == (len(texts[1]), same, same)
    assert about.endswith(f"another text from token {same + 1} on")
    choice = records[1].sequences[0].choices[0]
    assert choice is not None
    assert f"rank {choice.rank} after its chain, {choice.rank_before} of the model" in step


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_page_works_by_keyboard_and_logs_no_error(tmp_path):
    _, tracing = traced()
    tracing.record.attach(generated(tracing, Greedy()))
    tracing.record.save(tmp_path / "trace.html")
    page = (tmp_path / "trace.html").read_text(encoding="utf-8").replace("</body>", PRESSING + "</body>")
    steps = len(tracing.record.sequences[0].steps)
    title = title_of(page, tmp_path)
    *seen, jumped, choice, theme = title.split("|")
    first = tracing.record.sequences[0]
    masses = [change.mass for step in first.steps for change in step.changes]
    assert jumped == f"Change 1 of {sum(mass > 0 for mass in masses)}"
    largest = next(n for n, step in enumerate(first.steps) if any(c.mass == max(masses) for c in step.changes))
    told = first.choices[largest]
    assert told is not None
    assert f"log-probability {told.logprob:.3f} after the chain, {told.logprob_before:.3f} of the model" in choice
    assert f"rank {told.rank} after the chain, {told.rank_before} of the model" in choice
    assert seen == [
        f"Step 1 of {steps}/repetition_penalty/0",
        f"Step 2 of {steps}/repetition_penalty/0",
        f"Step 2 of {steps}/regex/0",
        f"Step {steps} of {steps}/regex/0",
        f"Step 1 of {len(tracing.record.sequences[1].steps)}/regex/1",
        f"Step 1 of {len(tracing.record.sequences[1].steps)}/regex/1",
    ]
    assert theme == "dark"


def test_a_configured_chain_writes_into_the_same_record():
    _, tracing = traced()
    again = tracing.configure(tokenizer=VOCABULARY, top_k={"k": 2})
    generated(again, Greedy())
    assert tracing.record.steps
    assert {step.after.legal for step in tracing.record.steps} <= {1, 2}


@pytest.mark.parametrize("kind", [TracedChain, RecordedChain])
@pytest.mark.parametrize(
    "specs",
    [
        (("repetition_penalty", {"penalty": 1.3}), ("top_k", {"k": 9})),
        (("temperature", {"temperature": 0.7}), ("top_k", {"k": 20}), ("top_p", {"p": 0.8}), ("min_p", {"p": 0.05})),
        (("top_k", {"k": 5}), "temperature"),
    ],
)
def test_rows_of_a_real_width_are_recorded_as_a_chain_without_checks_gives_them(kind, specs):
    chain = processors.load(*specs, debug=False)
    recording, width = kind(chain), 50_000
    dice = np.random.default_rng(3)
    context = Context.start(np.zeros((2, width), np.float32), prompt=[[1], [2, 3]], max_length=16)
    other, states = context, [recording.init_state(context), chain.init_state(context)]
    for _ in range(3):
        logits = dice.normal(size=(2, width), scale=3.0).astype(np.float32)
        found, states[0] = recording.process(logits.copy(), states[0], context)
        expected, states[1] = chain.process(logits.copy(), states[1], other)
        assert np.array_equal(found > -np.inf, expected > -np.inf)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        if kind is TracedChain:
            last = recording.record.steps[-1]
            assert len(last.changes) == len(specs)
            assert last.after.legal == int((found[1] > -np.inf).sum())
            assert last.before.legal == width
        chosen = found.argmax(axis=1)[:, None].tolist()
        context, other = context.accept(chosen), other.accept(chosen)
