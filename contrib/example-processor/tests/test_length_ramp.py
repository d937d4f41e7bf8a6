"""What the processor promises, tested through its name as an application would load it."""

import numpy as np
import pytest

from logitloom import Context, LogitloomError, Vocabulary, errors, processors

EOS = 2


def chain(**options):
    return processors.load(("length_ramp", {"eos": [EOS], **options}))


def bonuses(loaded, steps, rows=1, vocabulary=None):
    """What is added to the end-of-sequence logit after 0, 1, 2, ... tokens."""
    logits = np.zeros((rows, 5), dtype=np.float32)
    context = Context.start(logits, prompt=[[1]] * rows, vocabulary=vocabulary)
    state = loaded.init_state(context)
    out, state = loaded.process(logits, state, context)
    found = [out[:, EOS]]
    for _ in range(steps):
        out, state = loaded.process(logits, state, context.accept([1] * rows))
        found.append(out[:, EOS])
    return np.stack(found, axis=1)


def test_the_ramp_is_the_documented_formula():
    n = np.arange(13)
    t = np.clip((n / 8 - 0.25) / 0.75, 0, 1)
    expected = 6.0 * t**2 * (3 - 2 * t)
    np.testing.assert_allclose(bonuses(chain(target=8, strength=6.0, start=0.25), 12)[0], expected, rtol=1e-6)


def test_the_ramp_never_falls_and_ends_at_its_strength():
    ramp = bonuses(chain(target=10, strength=3.0), 15)[0]
    assert ramp[0] == 0
    assert (np.diff(ramp) >= 0).all()
    assert ramp[-1] == pytest.approx(3.0)


def test_no_other_logit_changes():
    logits = np.arange(10, dtype=np.float32).reshape(2, 5)
    loaded = chain(target=1)
    context = Context.start(logits)
    out, _ = loaded.process(logits, loaded.init_state(context), context.accept([1, 1]))
    others = [i for i in range(5) if i != EOS]
    np.testing.assert_array_equal(out[:, others], logits[:, others])
    assert (out[:, EOS] > logits[:, EOS]).all()


def test_a_forbidden_end_stays_forbidden():
    logits = np.zeros((1, 5), dtype=np.float32)
    logits[0, EOS] = -np.inf
    loaded = chain(target=1)
    context = Context.start(logits)
    assert loaded.process(logits, loaded.init_state(context), context.accept([1]))[0][0, EOS] == -np.inf


def test_rows_have_lengths_of_their_own():
    logits = np.zeros((2, 5), dtype=np.float32)
    loaded = chain(target=2, start=0.0, strength=1.0)
    context = Context.start(logits)
    state = loaded.init_state(context)
    out, _ = loaded.process(logits, state, context.accept([[1, 1], []]))
    assert out[0, EOS] == pytest.approx(1.0)
    assert out[1, EOS] == 0


def test_float16_logits_stay_float16():
    logits = np.zeros((1, 5), dtype=np.float16)
    loaded = chain(target=1)
    context = Context.start(logits)
    assert loaded.process(logits, loaded.init_state(context), context)[0].dtype == np.float16


def test_the_tokenizer_tells_the_end_if_no_option_does():
    vocabulary = Vocabulary([b"a", b"b", b"", b"c", b"d"], eos=[EOS])
    loaded = processors.load(("length_ramp", {"target": 1}), tokenizer=vocabulary)
    assert bonuses(loaded, 1)[0, 1] == pytest.approx(10.0)


def test_without_tokenizer_and_ids_the_need_is_named():
    loaded = processors.load(("length_ramp", {"target": 1}))
    with pytest.raises(errors.NeedsNotMet, match="'length_ramp' needs vocabulary"):
        loaded.init_state(Context.start(np.zeros((1, 5))))


def test_a_tokenizer_without_an_end_is_refused():
    loaded = processors.load(("length_ramp", {"target": 1}), tokenizer=Vocabulary([b"a"]))
    with pytest.raises(errors.NeedsNotMet, match="give length_ramp the option eos"):
        loaded.init_state(Context.start(np.zeros((1, 5))))


def test_an_end_beyond_the_logits_is_refused():
    loaded = chain(target=1, eos=[9])
    with pytest.raises(errors.OptionError, match="id 9 is beyond the 5 columns"):
        loaded.init_state(Context.start(np.zeros((1, 5))))


@pytest.mark.parametrize(("options", "text"), [({"target": 0}, ">= 1"), ({"target": 5, "start": 1.0}, "< 1")])
def test_options_out_of_range_are_refused(options, text):
    with pytest.raises(LogitloomError, match=text):
        chain(**options)
