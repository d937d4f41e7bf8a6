"""JSON texts of a real model within a limit of tokens: how many are finished, and how many of them valid.

    python benchmarks/token_limits.py [--schemas 100] [--tokens 128] [--walks 400] [--patterns 200] [--budgets 8]

SmolLM2-135M-Instruct writes one document per schema of JSONSchemaBench, greedily, in four ways: with any whitespace and
without the limit, as logitloom did before; with one of the two; with the whitespace of ``json.dumps`` and within the
limit, as by default. "least" counts schemas of which no document fits into the limit, so that decoding is refused.

The second table has random walks: uniformly drawn allowed tokens of the same vocabulary, for each schema, pattern and
set of tools with budgets from the least upwards. Every text must be finished and valid.

The last three tables have milliseconds of processor time for one step of one row on the ids of Tekken, with a limit
and for the same tokens without one: of random texts within 1, 1.2, 2 and 8 times the fewest tokens for each schema, of
documents of schemas for which far limits were slow, and of random texts of each kind of other subjects (``--kinds``).
The steps of all four limits with more than twice the fewest tokens to the end left have a line of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import gzip
import itertools
import json
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.conditions import heading  # noqa: E402
from logitloom import Chain, Context, processors  # noqa: E402
from logitloom.constraints import lift  # noqa: E402
from logitloom.errors import GenerationError, LogitloomError  # noqa: E402
from logitloom_contrib.llama import load  # noqa: E402
from logitloom_plugins.grammars.byte_rules import ByteRules  # noqa: E402
from logitloom_plugins.grammars.context_free import pruned  # noqa: E402
from logitloom_plugins.grammars.gbnf import parse_gbnf  # noqa: E402
from logitloom_plugins.grammars.recogniser import Recogniser  # noqa: E402
from tests.core.automata.vocabularies import tekken  # noqa: E402
from tests.plugins.json_schema.schema_data import benchmark, data_folder  # noqa: E402

_MOST_STATES = 500
#: Subjects of random walks that take more seconds are named.
_SLOW = 10
#: Limits of timed texts, in times of the fewest tokens.
FACTORS = (1.0, 1.2, 2.0, 8.0)

WAYS: dict[str, dict[str, Any]] = {
    "any whitespace, no limit (before)": {"whitespace": "flexible", "finish_within": 0},
    "any whitespace, within the limit": {"whitespace": "flexible"},
    "json.dumps, no limit": {"finish_within": 0},
    "json.dumps, within the limit (default)": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--walks", type=int, default=400, help="schemas of random walks")
    parser.add_argument("--patterns", type=int, default=200)
    parser.add_argument("--tools", type=int, default=50, help="sets of tools")
    parser.add_argument("--grammars", type=int, default=2 * len(GRAMMARS), help="grammars, each on two engines")
    parser.add_argument("--states", type=int, default=100, help="states of each grammar in the third table")
    parser.add_argument("--budgets", type=int, default=8)
    parser.add_argument("--timed", type=int, default=600, help="schemas whose steps are timed")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=[*KINDS], help="other subjects that are timed")
    parser.add_argument("--timed-kinds", type=int, default=100, help="subjects of each of them")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of each, to run in parts")
    parser.add_argument("--rows", type=int, default=32, help="texts that the model writes at a time")
    parser.add_argument("--backend", default="numpy")
    parser.add_argument(
        "--ways", type=int, nargs="*", default=[*range(len(WAYS))], help="which rows of the first table"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(heading("jsonschema", "transformers"))
    model = load(backend=given.backend)
    if given.schemas:
        ways = [list(WAYS)[place] for place in given.ways]
        with_model(model, given.skip, given.schemas, given.tokens, ways, given.rows)
    vocabulary = model.vocabulary
    print("\n| random walks | subjects | texts | finished | valid | refused |\n| --- | --- | --- | --- | --- | --- |")
    rows: list[tuple[str, Iterator[Any], int]] = [
        ("schemas", schemas(), given.walks), ("patterns", patterns(), given.patterns),
        ("sets of tools", tool_sets(), given.tools),
        ("grammars and engines", grammars(vocabulary), given.grammars),
    ]  # fmt: skip
    for name, subjects, count in rows:
        counts = walked(subjects, given.skip, count, given.budgets, vocabulary)
        shown = " | ".join(str(counts[each]) for each in ("subjects", "texts", "finished", "valid", "refused"))
        print(f"| {name} | {shown} |", flush=True)
    if given.timed:
        times_of_steps(given.skip, given.timed)
    if given.timed_kinds:
        times_of_kinds(given.kinds, given.skip, given.timed_kinds)
    if given.states:
        print("\n| grammar | states | fewest tokens | one more | two more | three or more | too many ways to try |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for name, above in above_fewest(vocabulary, given.states):
            more = sum(count for size, count in above.items() if size is not None and size > 2)
            shown = above.total(), above[0], above[1], above[2], more, above[None]
            print(f"| {name} | {' | '.join(map(str, shown))} |", flush=True)


def with_model(model: Any, skip: int, count: int, tokens: int, ways: list[str], rows: int) -> None:
    """The first table."""
    import jsonschema

    counts = {way: Counter[str]() for way in ways}
    begun = time.perf_counter()
    places = iter(model_subjects(model, skip, count, ways))
    while batch := list(itertools.islice(places, rows)):
        for (way, schema, _, _), text in zip(batch, greedy_texts(model, batch, tokens), strict=True):
            counts[way]["schemas"] += 1
            if text is None:
                counts[way]["least"] += 1
                continue
            counts[way]["finished"] += text.finished
            try:
                jsonschema.Draft202012Validator(schema).validate(json.loads(text.text))
                counts[way]["valid"] += 1
            except (ValueError, jsonschema.ValidationError):
                pass
        print(f"# {time.perf_counter() - begun:.0f} s: {dict(counts)}", file=sys.stderr, flush=True)
    names = ("schemas", "finished", "valid", "least")
    print("| way | " + " | ".join(names) + " |\n|" + " --- |" * (len(names) + 1))
    for way, found in counts.items():
        print(f"| {way} | " + " | ".join(str(found[name]) for name in names) + " |", flush=True)


class Document(NamedTuple):
    """A text of the model, and whether it ended by itself."""

    text: str
    finished: bool


ModelSubject = tuple[str, Any, Chain, list[int]]


def model_subjects(model: Any, skip: int, count: int, ways: list[str]) -> Iterator[ModelSubject]:
    """Way, schema, chain and prompt for each schema that the table takes, ``skip`` of these left out."""
    done = 0
    for row in benchmark():
        if done == skip + count:
            return
        schema = row["schema"]
        try:
            chains = {
                way: processors.load(
                    ("json", {"schema": schema, "engine": "table", **WAYS[way]}), tokenizer=model.vocabulary
                )
                for way in ways
            }
        except LogitloomError:
            continue
        done += 1
        if done > skip:
            prompt = model.tokenizer.encode(f"JSON for the schema {json.dumps(schema)[:200]}:\n")
            yield from ((way, schema, chain, prompt) for way, chain in chains.items())


def greedy_texts(model: Any, batch: list[ModelSubject], most: int) -> list[Document | None]:
    """One greedy text per prompt, in one batch, each with a chain of its own; ``None`` where no text is so short."""
    width, ends = model.vocab_size, set(model.vocabulary.eos)
    blank = np.zeros((1, width), dtype=np.float32)
    found: list[Document | None] = [None] * len(batch)
    live: list[tuple[int, Context, Any, list[int]]] = []
    for place, (_, _, chain, prompt) in enumerate(batch):
        context = Context.start(blank, vocabulary=model.vocabulary, prompt=[prompt])
        context = context.with_fields(max_new_tokens=most)
        with contextlib.suppress(GenerationError):
            live.append((place, context, chain.init_state(context), []))
    cache, new = model.empty_cache(len(live)), [batch[place][3] for place, *_ in live]
    while live:
        widest = max(map(len, new))
        given = np.array([[*row, *[-1] * (widest - len(row))] for row in new], dtype=np.int32)
        logits, cache = model.forward(given, cache)
        host, going, new = model.backend.to_numpy(logits), list[int](), []
        for row, (place, context, state, taken) in enumerate(live):
            masked, state = batch[place][2].process(np.array(host[row : row + 1]), state, context)
            token = int(masked[0].argmax())
            if token in ends or len(taken) + 1 == most:
                taken += [] if token in ends else [token]
                found[place] = Document(model.vocabulary.decode(taken), token in ends)
                continue
            taken.append(token)
            live[row] = place, context.accept([[token]]), state, taken
            going.append(row)
            new.append([token])
        live, cache = [live[row] for row in going], cache.take_rows(going)
    return found


Subject = tuple[Any, Callable[[str], bool]]


def schemas() -> Iterator[Subject]:
    """``json`` processors, and whether a text is valid."""
    import jsonschema

    for row in benchmark():

        def valid(text: str, schema: Any = row["schema"]) -> bool:
            return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)))

        yield ("json", {"schema": row["schema"], "engine": "table"}), valid


def patterns() -> Iterator[Subject]:
    """``regex`` processors of the patterns in the data, as far as they are regular."""
    with gzip.open(data_folder("regex-patterns") / "patterns.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            pattern = json.loads(line)["pattern"]
            yield ("regex", {"pattern": pattern}), lambda text, pattern=pattern: bool(re.fullmatch(pattern, text))


def tool_sets() -> Iterator[Subject]:
    """``tool_call`` processors that require a call of one of two tools, with parameters of the schemas."""
    rows = [row["schema"] for row in benchmark() if row["schema"].get("type") == "object"]
    for one, other in zip(rows[::2], rows[1::2], strict=False):
        tools = [{"name": "first", "parameters": one}, {"name": "second", "parameters": other}]

        def valid(text: str) -> bool:
            calls = re.findall(r"<tool_call>\n(.*?)\n</tool_call>", text, re.DOTALL)
            return bool(calls) and all(json.loads(call)["name"] in ("first", "second") for call in calls)

        yield ("tool_call", {"tools": tools, "choice": "required"}), valid


GRAMMARS: dict[str, str] = {
    "brackets": 'root ::= "(" root ")" root | "[" root "]" root | ""',
    "arithmetic": r"""
root   ::= sum
sum    ::= term (" "? [-+] " "? term)*
term   ::= factor (" "? [*/] " "? factor)*
factor ::= number | "(" sum ")" | "-" factor | name "(" sum ("," sum)* ")"
number ::= "0" | [1-9] [0-9]{0,3} ("." [0-9]{1,2})?
name   ::= [a-z] [a-z0-9_]*
""",
    "json": r"""
root   ::= value
value  ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair ("," ws pair)*)? "}"
pair   ::= string ":" ws value
array  ::= "[" ws (value ("," ws value)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
ws     ::= [ \n]{0,8}
""",
    "statements": r"""
root  ::= block
block ::= "{\n" stmts "}\n"
stmts ::= stmts stmt | stmt
stmt  ::= name " = " expr ";\n" | "return " expr ";\n" | "while (" expr ") " block
        | "if (" expr ") " block ("else " block)?
expr  ::= expr " " op " " atom | atom
atom  ::= name | [0-9]+ | "(" expr ")"
op    ::= "+" | "-" | "*" | "<" | "==" | "&&"
name  ::= [a-z_] [a-z0-9_]*
""",
    "query": r"""
root   ::= select ";"
select ::= "SELECT " names " FROM " (name | "(" select ")") (" WHERE " cond)? (" ORDER BY " name)?
names  ::= name ", " names | name | "*"
cond   ::= cond " AND " cond | cond " OR " cond | "(" cond ")" | name " = " literal | name " IN (" select ")"
literal ::= [0-9]+ | "'" [^'\n]* "'"
name   ::= [a-z_]+
""",
    "markup": r"""
root ::= "<page>" part+ "</page>"
part ::= "<b>" part* "</b>" | "<i>" part* "</i>" | "<list>" item{2,5} "</list>" | text
item ::= "<item>" part* "</item>"
text ::= [^<>&]+ | "&lt;" | "&gt;" | "&amp;"
""",
    "palindromes": 'root ::= "a" root "a" | "b" root "b" | "c" root "c" | [abc]?',
    "lambda": r"""
root ::= term
term ::= "\\" name ". " term | term " " atom | atom
atom ::= name | "(" term ")"
name ::= [a-z] [0-9]*
""",
}  # fmt: skip


def grammars(vocabulary: Any) -> Iterator[Subject]:
    """``grammar`` processors on each engine; the other engine tells whether a text is valid."""
    engines = ("llguidance", "xgrammar")
    for text in GRAMMARS.values():
        for engine, other in (engines, engines[::-1]):
            judge = processors.load(("grammar", {"grammar": text, "engine": other}), tokenizer=vocabulary)["grammar"]
            spec = ("grammar", {"grammar": text, "engine": engine, "max_items": 500_000})
            yield spec, accepted_by(judge, vocabulary)


def accepted_by(judge: Any, vocabulary: Any) -> Callable[[str], bool]:
    """Whether a processor's constraint allows a text, cut into tokens greedily."""
    constraint = judge.constraint(vocabulary, vocabulary.size)

    def valid(written: str) -> bool:
        state = constraint.start()
        for token in greedily(vocabulary, written.encode()):
            state = None if state is None else constraint.advance(state, token)
        return state is not None and bool(constraint.may_end(state))

    return valid


def greedily(vocabulary: Any, text: bytes) -> Iterator[int]:
    """A text cut into tokens, the longest first."""
    ids = {each: token for token, each in reversed([*enumerate(vocabulary.token_bytes)]) if each}
    while text:
        size = next(size for size in range(min(len(text), 32), 0, -1) if text[:size] in ids)
        yield ids[text[:size]]
        text = text[size:]


def above_fewest(vocabulary: Any, states: int, steps: int = 24) -> Iterator[tuple[str, Counter[int | None]]]:
    """Per grammar, by how many tokens the bound is above the fewest that end a text, at states of random texts."""
    longest = max(map(len, vocabulary.token_bytes))
    singles = {text[0] for text in vocabulary.token_bytes if len(text) == 1}
    recognisers = {name: Recogniser(ByteRules(pruned(parse_gbnf(text)), singles)) for name, text in GRAMMARS.items()}
    for name, recogniser in recognisers.items():
        texts, dice, counts = lift(recogniser, vocabulary), np.random.default_rng(1), Counter[int | None]()
        while counts.total() < states:
            state: Any = texts.start()
            for _ in range(steps):
                counts[tokens_above(texts, recogniser, state, longest)] += 1
                ids = texts.allowed(state).listed(vocabulary.size)
                if counts.total() == states or not len(ids):
                    break
                state = texts.advance(state, int(dice.choice(ids)))
        yield name, counts


def tokens_above(texts: Any, recogniser: Any, state: Any, longest: int) -> int | None:
    """By how many tokens the bound of a state is above the fewest, found by trying all tokens, layer by layer.

    ``None`` if there are too many ways.
    """
    bound = texts.least_tokens(state)
    layer = {state}
    for taken in range(bound):
        if any(texts.may_end(each) for each in layer):
            return int(bound - taken)
        after = set()
        for each in layer:
            # A state is left out where even the longest tokens would take as many as the bound.
            if taken + -(-len(recogniser.completion(each)) // longest) < bound:
                after.update(texts._successors_of(each)[2])
        if len(after) > _MOST_STATES:
            return None
        layer = after
    return 0


def walked(subjects: Iterator[Subject], skip: int, count: int, budgets: int, vocabulary: Any) -> Counter[str]:
    """Random texts of some subjects, with budgets from the least upwards."""
    counts: Counter[str] = Counter()
    blank = np.zeros((1, vocabulary.size), dtype=np.float32)
    for number, (spec, valid) in enumerate(itertools.islice(subjects, skip, skip + count)):
        dice, begun = np.random.default_rng([skip + number]), time.perf_counter()
        try:
            chain = processors.load(spec, tokenizer=vocabulary)
            context = Context.start(blank, vocabulary=vocabulary, prompt=[[1]])
            constraint = chain.links[0].processor.constraint_for(context)
            least = constraint.least_tokens(constraint.start())
        except LogitloomError:
            least = None
        if least is None:
            counts["refused"] += 1
            continue
        counts["subjects"] += 1
        for more in range(budgets):
            counts["texts"] += 1
            text = random_text(chain, context.with_fields(max_new_tokens=least + 1 + more * more), blank, dice)
            finished = text is not None
            fits = text is not None and valid(text)
            counts["finished"] += finished
            counts["valid"] += fits
            if not fits:
                print(f"# finished: {finished}, within {least + 1 + more * more}: {spec} {text!r}", file=sys.stderr)
        seconds = time.perf_counter() - begun
        if seconds > _SLOW:
            print(f"# {skip + number}: {seconds:.0f} s, least {least}: {str(spec)[:200]}", file=sys.stderr, flush=True)
    return counts


def words(dice: random.Random, least: int, most: int) -> str:
    """Some words, cut to a length within bounds."""
    return " ".join(dice.choices(["the", "road", "house", "grey", "sun", "tall"], k=most))[: dice.randint(least, most)]


def documents() -> Iterator[tuple[str, Any, Any, int]]:
    """Names, schemas, values and limits."""
    dice = random.Random(1)
    strings = {name: {"type": "string", "minLength": 60, "maxLength": 100} for name in "abcd"}
    closed = {"type": "object", "additionalProperties": False}
    value: Any = {name: words(dice, 60, 100) for name in strings}
    yield "4 long strings", {**closed, "properties": strings, "required": [*strings]}, value, 500
    members = {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 30}, "ok": {"type": "boolean"}}
    item = {**closed, "properties": members, "required": [*members]}
    value = [{"id": dice.randrange(10000), "name": words(dice, 5, 30), "ok": True} for _ in range(9)]
    yield "8 objects and more", {"type": "array", "minItems": 8, "items": item}, value, 500
    value = [words(dice, 3, 20) for _ in range(61)]
    yield "60 strings", {"type": "array", "minItems": 60, "items": {"type": "string", "maxLength": 20}}, value, 500
    value = dice.sample(range(80), 79)
    several = {"type": "array", "minItems": 79, "uniqueItems": True, "items": {"enum": [*range(80)]}}
    yield "79 different numbers", several, value, 600


def lark_grammars() -> Iterator[Subject]:
    """Lark grammars whose shortest texts are known."""
    numbers = 'start: "[" number ("," number)* "]"\nnumber: /-?[0-9]{1,6}/'
    for text in (numbers, 'start: pair+\npair: NAME "=" /[a-z ]{5,60}/ ";"\nNAME: /[a-z]{1,9}/'):
        yield ("grammar", {"grammar": text}), bool


def thinking() -> Iterator[Subject]:
    """A span of any text, then a text of a pattern or a schema."""
    answers = [spec for kind in (patterns, schemas) for spec, _ in itertools.islice(kind(), 20)]
    for answer in answers:
        yield ("thinking", {"then": answer, "budget": 20, "required": True}), bool


def combinators() -> Iterator[Subject]:
    """Each combinator around patterns and schemas."""
    answers = [spec for kind in (patterns, schemas) for spec, _ in itertools.islice(kind(), 8)]
    for answer in answers:
        yield ("between", {"open": "{", "close": "}", "inner": [answer]}), bool
        yield ("after", {"trigger": "the", "inner": [answer]}), bool
        yield ("until", {"trigger": "the", "inner": [answer]}), bool
        yield ("budget", {"n": 9, "inner": [answer]}), bool


#: What is timed beside schemas.
KINDS: dict[str, Callable[[], Iterator[Subject]]] = {
    "patterns": patterns,
    "grammars": lambda: ((("grammar", {"grammar": text, "max_items": 500_000}), bool) for text in GRAMMARS.values()),
    "Lark grammars": lark_grammars,
    "tool calls": tool_sets,
    "thinking": thinking,
    "combinators": combinators,
}


class Times(NamedTuple):
    """Milliseconds of steps by limit, in times of the fewest tokens, and of the same steps without a limit."""

    within: dict[float, list[float]]
    without: dict[float, list[float]]
    #: By limit the slowest step and the number of its subject.
    slowest: dict[float, tuple[float, int]]
    #: Subjects of which the fewest tokens are known.
    known: list[int]
    #: By limit which steps have more than twice the fewest tokens to the end left.
    far: dict[float, list[bool]]


def times_of(subjects: Iterator[Subject], skip: int, count: int, vocabulary: Any) -> Times:
    """The times of steps of random texts of some subjects."""
    times = Times({factor: [] for factor in FACTORS}, {factor: [] for factor in FACTORS},
                  dict.fromkeys(FACTORS, (0.0, -1)), [], {factor: [] for factor in FACTORS})  # fmt: skip
    blank = np.zeros((1, vocabulary.size), dtype=np.float32)
    for number, (spec, _) in itertools.islice(enumerate(subjects), skip, skip + count):
        try:
            chain = processors.load(spec, tokenizer=vocabulary)
            context = Context.start(blank, vocabulary=vocabulary, prompt=[[1]])
            constraint = chain.links[0].processor.constraint_for(context)
            least = constraint.least_tokens(constraint.start())
        except LogitloomError:
            continue
        if least is None:
            continue
        times.known.append(number)
        for factor in FACTORS:
            limit = int(np.ceil(factor * (least + 1)))
            # What a vocabulary remembers is there in both of the runs that count.
            taken, _ = timed_steps(spec, vocabulary, limit, None, number)
            times.without[factor] += timed_steps(spec, vocabulary, None, taken, number)[1]
            within = timed_steps(spec, vocabulary, limit, taken, number)[1]
            times.within[factor] += within
            times.slowest[factor] = max(times.slowest[factor], (max(within), number))
            states = itertools.accumulate(taken, constraint.advance, initial=constraint.start())
            fewest = [constraint.least_tokens(state) for state in states]
            times.far[factor] += [
                each is not None and limit - step > 2 * (each + 1) for step, each in enumerate(fewest)
            ]
    return times


def rows_of(times: Times) -> Iterator[str]:
    """The limit and the other cells of each row of the tables; at last those of the steps far from any limit."""
    for factor in FACTORS:
        slowest, subject = times.slowest[factor]
        yield f"{factor:g} | {cells(times.within[factor], times.without[factor])} | {slowest:.0f} | {subject}"
    is_far = [*itertools.chain.from_iterable(times.far.values())]
    chosen = [
        [*itertools.compress(itertools.chain.from_iterable(steps.values()), is_far)]
        for steps in (times.within, times.without)
    ]
    if all(chosen):
        yield f"more than twice the least is left | {cells(*chosen)} | {max(chosen[0]):.0f} | "


def cells(within: list[float], without: list[float]) -> str:
    """The number of steps, and their median and p99 with a limit and without one."""
    shown = [f"{np.percentile(each, q):.2f}" for q in (50, 99) for each in (within, without)]
    return f"{len(within)} | {' | '.join(shown)}"


def times_of_kinds(kinds: list[str], skip: int, count: int) -> None:
    """The table of other subjects than schemas."""
    vocabulary = tekken()
    print(
        "\n| subjects | known | limit, times the least | steps | median | without | p99 | without | slowest | subject |"
    )
    print("|" + " --- |" * 10)
    for kind in kinds:
        times = times_of(KINDS[kind](), skip, count, vocabulary)
        for row in rows_of(times) if times.known else ():
            print(f"| {kind} | {len(times.known)} | {row} |", flush=True)


def times_of_steps(skip: int, count: int) -> None:
    """The tables of schemas and of documents."""
    vocabulary = tekken()
    times = times_of(schemas(), skip, count, vocabulary)
    print("\n| limit, times the least | steps | median | without | p99 | without | slowest | schema of the slowest |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows_of(times) if times.known else ():
        print(f"| {row} |", flush=True)
    print("\n| document | limit | steps | median | without | mean | without | slowest | without |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, schema, value, limit in documents():
        tokens = [*greedily(vocabulary, json.dumps(value).encode())]
        spec = ("json", {"schema": schema})
        _, without_limit, with_it = (timed_steps(spec, vocabulary, each, tokens, 0)[1] for each in (None, None, limit))
        both = with_it, without_limit
        shown = [f"{found(times):.2f}" for found in (np.median, np.mean, np.max) for times in both]
        print(f"| {name} | {limit} | {len(tokens) + 1} | {' | '.join(shown)} |", flush=True)


def timed_steps(
    spec: Any, vocabulary: Any, limit: int | None, tokens: list[int] | None, seed: int
) -> tuple[list[int], list[float]]:
    """The tokens of a text, by default uniformly drawn ones, and the milliseconds of each step of a new chain."""
    chain = processors.load(spec, tokenizer=vocabulary)
    blank, dice = np.zeros((1, vocabulary.size), dtype=np.float32), np.random.default_rng([seed])
    context = Context.start(blank, vocabulary=vocabulary, prompt=[[1]])
    context = context if limit is None else context.with_fields(max_new_tokens=limit)
    state, now, taken, times = chain.init_state(context), context, list[int](), list[float]()
    while True:
        # A collection of garbage takes up to 160 ms here and belongs to no step.
        gc.disable()
        logits, begun = blank.copy(), time.process_time()
        logits, state = chain.process(logits, state, now)
        times.append(1000 * (time.process_time() - begun))
        gc.enable()
        if tokens is not None and len(taken) == len(tokens):
            return taken, times
        token = int(dice.choice(np.flatnonzero(np.isfinite(logits[0])))) if tokens is None else tokens[len(taken)]
        if token in vocabulary.eos:
            return taken, times
        taken.append(token)
        now = context.accept([[token]])


def random_text(chain: Chain, context: Context, blank: Any, dice: np.random.Generator) -> str | None:
    """A text of uniformly drawn allowed tokens; ``None`` if the limit came before its end."""
    state, taken, now = chain.init_state(context), list[int](), context
    vocabulary = context.vocabulary
    assert vocabulary is not None
    for _ in range(int(context.max_new_tokens)):  # type: ignore[arg-type]
        logits, state = chain.process(blank, state, now)
        token = int(dice.choice(np.flatnonzero(np.isfinite(logits[0]))))
        if token in vocabulary.eos:
            return vocabulary.decode(taken)
        taken.append(token)
        now = context.accept([[token]])
    return None


if __name__ == "__main__":
    main()
