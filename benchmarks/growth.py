"""How the cost of a JSON Schema grows with its size: this library and llguidance in one process, on one vocabulary.

    python benchmarks/growth.py [--curves properties enums ...] [--near-limits conditions ...] [--budget 20]
        [--curve-seconds 120] [--write]

Curves whose name begins with ``grammar`` are families of GBNF grammars: rules, alternatives, depth of rules, letters of
a literal, of a count and of brackets in the text, rows. There our time to compile has the bound for the tokens to the
end of the text, which a limit needs.

Each other curve is a family of schemas with one size that grows: properties, required properties, listed strings,
numbers and objects, alternatives, those of several names, tagged alternatives, unique items, dependent names,
consequences, a kind declared last, contained items, alternative patterns, nesting, lengths of strings, rows of a
batch, and ids of the vocabulary.
Per size and engine: time to compile, from there to the first mask, and the mean and the longest step (mask and advance)
along one valid document, in ms of processor time; the median of three runs. The last column is the time of this library
in parts of that of llguidance, for all of it together: compile, first mask and the steps of the document. An engine
that refuses a schema, or takes more than ``--budget`` seconds, is left out from that size on, with the reason. The
sizes that are left when a curve has taken ``--curve-seconds`` are left out. Each curve is printed as soon as it is
measured. Tables of the vocabulary are made before, by both engines.

A second table has steps of this library near a token limit: per family and size the time until the limit is known, and
the median and the longest step of a random text within the fewest tokens that the schema allows, and one and a half
times as many. The text goes on for 60 steps at most. A step is the chain's, accepting a token included.

With ``--write`` the page goes to ``benchmarks/results/growth.md``, too, each curve as soon as it is measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from conditions import heading
from json_schema import LLGuidance, Ours, Tokenizer, rows_of, table, tekken

from logitloom import Chain, Context, Vocabulary, processors
from logitloom.errors import LogitloomError

_RUNS = 3
_PAGE = Path(__file__).parent / "results" / "growth.md"
_RANDOM = random.Random(4)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TEXT = {"type": "string"}
_WHOLE = {"type": "integer"}


class Case(NamedTuple):
    """A schema, or a grammar, and a valid document with members in schema order, or a text of the grammar."""

    schema: Any
    document: Any
    rows: int = 1


class OurGrammars(Ours):
    """The processor ``grammar`` on the engine that it chooses."""

    def start(self, schema: Any) -> Any:
        processor = processors.load(("grammar", {"grammar": schema, "max_items": 500_000}))["grammar"]
        constraint = processor.constraint(self.vocabulary, self.vocabulary.size)
        constraint.most_after(constraint.start())
        return [constraint, constraint.start()]


class TheirGrammars(LLGuidance):
    """llguidance's translation of GBNF, and its parser."""

    def start(self, schema: Any) -> Any:
        from llguidance.gbnf_to_lark import gbnf_to_lark

        grammar = self.module.LLMatcher.grammar_from_lark(gbnf_to_lark(schema))
        limits = self.module.LLParserLimits(max_items_in_row=500_000)
        matcher = self.module.LLMatcher(self.tokenizer, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher


def words(count: int) -> list[str]:
    """Different words of 4 to 12 letters."""
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(_RANDOM.choices(_LETTERS, k=_RANDOM.randint(4, 12)))] = None
    return list(found)


def names(count: int) -> list[str]:
    return [f"name{index}" for index in range(count)]


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def tagged(index: int) -> dict[str, Any]:
    return closed({"kind": {"const": f"kind{index}"}, f"value{index}": _TEXT}, required=["kind", f"value{index}"])


def nested(depth: int) -> Case:
    schema: Any = closed({"end": _WHOLE}, required=["end"])
    document: Any = {"end": 1}
    for _ in range(depth):
        schema, document = closed({"in": schema}, required=["in"]), {"in": document}
    return Case(schema, document)


def members(count: int, every: int = 1, **more: Any) -> Case:
    """An object with many properties, of which the document has some."""
    every_name = names(count)
    return Case(closed(dict.fromkeys(every_name, _WHOLE), **more), dict.fromkeys(every_name[::every], 1))


def listed_objects(count: int) -> Case:
    values = [{"id": index, "name": f"name{index}"} for index in range(count)]
    return Case({"enum": values}, values[count // 2])


def alternatives(count: int) -> Case:
    branches = [{"type": "object", "properties": {name: _TEXT}, "required": [name]} for name in names(count)]
    return Case({"anyOf": branches}, {f"name{count // 2}": "text"})


def several_names(index: int) -> dict[str, Any]:
    properties = {f"a{index}": _TEXT, f"b{index}": _WHOLE, f"c{index}": {"type": "boolean"}}
    return closed(properties, required=[*properties][:2])


def consequences(count: int) -> Case:
    """Names of which each asks for another one if its value is true."""
    asked = [
        {"if": {"properties": {name: {"const": True}}, "required": [name]}, "then": {"required": [f"then {name}"]}}
        for name in names(count)
    ]
    return Case({"type": "object", "allOf": asked}, {"name3": True, "other": 2, "then name3": 1})


def declared_last(count: int) -> Case:
    """A member that is declared last, of which each value asks for one of the other members."""
    every = names(count)
    asked = [{"if": {"properties": {"kind": {"const": name}}}, "then": {"required": [f"of {name}"]}} for name in every]
    members = {f"of {name}": _WHOLE for name in every} | {"kind": {"enum": every}}
    schema = {"type": "object", "properties": members, "required": ["kind"], "allOf": asked}
    return Case(schema, {"of name3": 1, "kind": "name3"})


def contained(count: int) -> Case:
    return Case({"type": "array", "allOf": [{"contains": {"const": each}} for each in range(count)]}, [*range(count)])


def patterns(count: int) -> Case:
    """Alternative patterns that may match anywhere in a string."""
    return Case({"type": "string", "anyOf": [{"pattern": f"x{each}y"} for each in range(count)]}, "some x3y text")


def dependent(count: int) -> Case:
    every = names(count)
    wanted = {name: [following] for name, following in zip(every, [*every[1:], every[0]], strict=True)}
    return Case(closed(dict.fromkeys(every, _WHOLE), dependentRequired=wanted), dict.fromkeys(every, 1))


def grammar_rules(count: int) -> Case:
    lines = ["root ::= " + " | ".join(f"rule{i}" for i in range(count))]
    lines += [f'rule{i} ::= "name{i}(" root? ")"' for i in range(count)]
    return Case("\n".join(lines), f"name{count // 2}(name{count // 3}(name0()))")


def grammar_depth(count: int) -> Case:
    lines = ["root ::= rule0", *(f'rule{i} ::= "a" rule{i + 1} "b"' for i in range(count))]
    return Case("\n".join([*lines, f'rule{count} ::= "x" | "(" root ")"']), "a" * count + "x" + "b" * count)


GRAMMARS: dict[str, tuple[tuple[int, ...], Callable[[int], Case]]] = {
    "grammar rules": ((10, 100, 1000), grammar_rules),
    "grammar alternatives": (
        (10, 100, 1000, 4000),
        lambda n: (lambda w: Case(f'root ::= "(" root ")" | {" | ".join(map(json.dumps, w))}', f"(({w[n // 2]}))"))(
            words(n)
        ),
    ),
    "grammar depth": ((10, 100, 400), grammar_depth),
    "grammar literal": (
        (100, 1000, 10_000),
        lambda n: Case(f'root ::= "(" root ")" | "{"word " * (n // 5)}"', f"(({'word ' * (n // 5)}))"),
    ),
    "grammar count": (
        (10, 100, 1000),
        lambda n: Case(f'root ::= "(" root ")" | ([a-z]{{1,9}} " "){{1,{n}}}', f"(({'word ' * 9}))"),
    ),
    "grammar brackets": ((10, 100, 1000), lambda n: Case('root ::= "[" root? "]" root?', "[" * n + "]" * n)),
    "grammar list": (
        (10, 100, 1000),
        lambda n: Case('root ::= "(" (root ("," root)*)? ")" | [a-z]+', f"({','.join(words(n))})"),
    ),
    "grammar rows": (
        (1, 8, 64),
        lambda n: Case('root ::= "(" (root ("," root)*)? ")" | [a-z]+', f"({','.join(words(20))})", n),
    ),
}
CURVES: dict[str, tuple[tuple[int, ...], Callable[[int], Case]]] = {
    "properties": ((10, 100, 1000), lambda n: members(n, 10)),
    "required properties": ((10, 100, 1000), lambda n: members(n, required=names(n))),
    "listed strings": ((100, 1000, 10000), lambda n: (lambda w: Case({"enum": w}, w[n // 2]))(words(n))),
    "listed numbers": ((100, 800, 10000), lambda n: Case({"type": "integer", "enum": [*range(n)]}, n // 2)),
    "listed objects": ((10, 100, 1000, 3000), listed_objects),
    "alternatives": ((8, 32, 128), alternatives),
    "alternatives of several names": (
        (8, 32, 128),
        lambda n: Case({"anyOf": [*map(several_names, range(n))]}, {f"a{n // 2}": "text", f"b{n // 2}": 1}),
    ),
    "tagged alternatives": (
        (8, 32, 128, 512),
        lambda n: Case({"anyOf": [*map(tagged, range(n))]}, {"kind": f"kind{n // 2}", f"value{n // 2}": "text"}),
    ),
    "unique items": (
        (10, 40, 160),
        lambda n: Case({"type": "array", "items": _WHOLE, "uniqueItems": True}, [*range(n)]),
    ),
    "dependent names": ((10, 50, 100), dependent),
    "names with consequences": ((10, 50, 100), consequences),
    "kind declared last": ((10, 50, 100), declared_last),
    "contained items": ((10, 50, 100), contained),
    "alternative patterns": ((5, 20, 80), patterns),
    "nesting": ((5, 20, 80), nested),
    "longest string": ((100, 10_000, 1_000_000), lambda n: Case({"type": "string", "maxLength": n}, "word " * 19)),
    "constant string": ((500, 2000), lambda n: Case({"const": "word " * (n // 5)}, "word " * (n // 5))),
    "rows": ((1, 8, 64), lambda n: members(20, required=names(20))._replace(rows=n)),
}


def references(count: int) -> Any:
    """Objects of which each refers to the next one."""
    chain = {
        f"d{index}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{index + 1}"}, "y": _WHOLE}}
        for index in range(count)
    }
    return {"$defs": chain | {f"d{count}": _WHOLE}, "$ref": "#/$defs/d0"}


def conditions(count: int) -> Any:
    """A member of which each value asks for another member."""
    asked = [
        {"if": {"properties": {"kind": {"const": f"kind{index}"}}}, "then": {"required": [f"value{index}"]}}
        for index in range(count)
    ]
    kinds = {"enum": [f"kind{index}" for index in range(count)]}
    return {"type": "object", "properties": {"kind": kinds}, "required": ["kind"], "allOf": asked}


#: Schemas of a size, of which the table of steps near a limit has a line per size.
NEAR_LIMITS: dict[str, Callable[[int], Any]] = {
    "properties": lambda n: members(n).schema,
    "required properties": lambda n: members(n, required=names(n)).schema,
    "listed strings": lambda n: {"enum": words(n)},
    "listed numbers": lambda n: {"enum": [index * 7919 % 100003 for index in range(n)]},
    "listed objects": lambda n: listed_objects(n).schema,
    "listed arrays": lambda n: {"enum": [[index] for index in range(n)]},
    "alternatives": lambda n: alternatives(n).schema,
    "closed alternatives": lambda n: {"anyOf": [closed({name: _WHOLE}, required=[name]) for name in names(n)]},
    "tagged alternatives": lambda n: {"anyOf": [*map(tagged, range(n))]},
    "dependent names": lambda n: dependent(n).schema,
    "conditions": conditions,
    "exactly one length": lambda n: {"oneOf": [{**_TEXT, "minLength": at, "maxLength": at} for at in range(1, n + 1)]},
    "patterns of names": lambda n: {
        "type": "object",
        "patternProperties": {f"^a{index}_": _WHOLE for index in range(n)},
        "minProperties": 3,
    },
    "listed items": lambda n: {"type": "array", "prefixItems": [_WHOLE] * n, "items": False, "minItems": n},
    "unique strings": lambda n: {
        "type": "array",
        "items": {**_TEXT, "maxLength": 5},
        "minItems": n,
        "uniqueItems": True,
    },
    "items that are contained": lambda n: {
        "type": "array",
        "items": _WHOLE,
        "contains": {"const": 5},
        "minContains": n,
    },
    "bounded string": lambda n: {**_TEXT, "minLength": n, "maxLength": 2 * n},
    "nesting": lambda n: nested(n).schema,
    "references": references,
}
NEAR_SIZES = (30, 100, 300)
_MOST_STEPS = 60


#: Sizes of the curve ``vocabulary``.
VOCABULARIES = (2**14, 2**15, 2**16, 2**17)


class Found(NamedTuple):
    """Times of one run in ms: to compile, of the first mask, and of each step along the document."""

    compiled: float
    first: float
    steps: tuple[float, ...]

    @property
    def whole(self) -> float:
        return self.compiled + self.first + sum(self.steps)


def run(engine: Any, case: Case, ids: list[int], budget: float) -> Found:
    """One run along the document, from nothing known of the schema.

    Raises:
        TimeoutError: after some seconds.
        ValueError: if a token of the document is refused.
    """
    clock = time.process_time
    begin = clock()
    first = engine.start(case.schema)
    compiled = clock()
    engine.mask(first)
    masked = clock()
    rows = [engine.restart(first) for _ in range(case.rows)]
    steps = []
    for token in ids:
        start = clock()
        for row in rows:
            engine.mask(row)
            if not engine.advance(row, token):
                raise ValueError("refuses the document")
        steps.append(1e3 * (clock() - start))
        if clock() - begin > budget:
            raise TimeoutError(f"more than {budget:g} s")
    return Found(1e3 * (compiled - begin), 1e3 * (masked - compiled), tuple(steps))


def measured(engine: Any, case: Case, ids: list[int], budget: float) -> Found | str:
    """The median of some runs by their whole time, or why there is none."""
    runs = []
    for _ in range(_RUNS):
        gc.collect()
        try:
            runs.append(run(engine, case, ids, budget))
        except (LogitloomError, ValueError, RuntimeError, TimeoutError) as error:
            return f"{error}".partition("\n")[0][:90]
    return sorted(runs, key=lambda found: found.whole)[_RUNS // 2]


def smaller(vocabulary: Vocabulary, size: int) -> Vocabulary:
    """The first ids of a vocabulary, the single bytes and end-of-sequence among them."""
    texts = [text if index < size else b"" for index, text in enumerate(vocabulary.token_bytes)]
    return Vocabulary(texts[:size], eos=vocabulary.eos, name=f"{vocabulary.name} of {size}")


def line_pair(
    curve: str, size: int, engines: list[Any], case: Case, ids: list[int], budget: float, refused: dict[str, str]
) -> list[list[Any]]:
    """One line per engine for one size; ``refused`` gets the engines that are left out of larger sizes."""
    whole: dict[str, float] = {}
    lines = []
    for engine in engines:
        found = refused.get(engine.name) or measured(engine, case, ids, budget)
        if isinstance(found, str):
            refused[engine.name] = found
            lines.append([curve, size, engine.name, found, "", "", "", ""])
            continue
        whole[engine.name] = found.whole
        mean, worst = float(np.mean(found.steps)), max(found.steps)
        lines.append([curve, size, engine.name, found.compiled, found.first, mean, worst, ""])
    if len(whole) == len(engines):
        lines[0][-1] = whole[engines[0].name] / whole[engines[1].name]
    return lines


def written(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def lines_of(
    curve: str,
    engines: list[Any],
    grammars: list[Any],
    vocabulary: Vocabulary,
    tokenize: Tokenizer,
    budget: float,
    seconds: float,
) -> Iterator[list[Any]]:
    """One line per size and engine, for ``seconds`` of processor time and the size that is measured then."""
    until = time.process_time() + seconds
    refused: dict[str, str] = {}
    sizes = VOCABULARIES if curve == "vocabulary" else {**CURVES, **GRAMMARS}[curve][0]
    for size in sizes:
        if time.process_time() > until:
            yield [curve, size, "both", f"not measured: the curve took more than {seconds:g} s", "", "", "", ""]
            continue
        if curve in GRAMMARS:
            case = GRAMMARS[curve][1](size)
            yield from line_pair(curve, size, grammars, case, tokenize(case.document.encode()), budget, refused)
            continue
        if curve in CURVES:
            case = CURVES[curve][1](size)
            yield from line_pair(curve, size, engines, case, tokenize(written(case.document)), budget, refused)
            continue
        part = vocabulary if size >= vocabulary.size else smaller(vocabulary, size)
        case, own = members(20), [Ours(part), LLGuidance(part)]
        ids = Tokenizer(part)(written(case.document))
        for engine in own:
            run(engine, case, ids, budget)
        yield from line_pair(curve, part.size, own, case, ids, budget, refused)


def near_limits(name: str, vocabulary: Vocabulary) -> Iterator[list[Any]]:
    """One line per size of the table of steps near a limit."""
    for size in NEAR_SIZES:
        try:
            chain = processors.load(("json", {"schema": NEAR_LIMITS[name](size)}), tokenizer=vocabulary)
            context = Context.start(np.zeros((1, vocabulary.size), dtype=np.float32), vocabulary=vocabulary)
            constraint = chain.links[0].processor.constraint_for(context)
            begin = time.process_time()
            least = constraint.least_tokens(constraint.start())
            constraint.most_after(constraint.start())
            known = 1e3 * (time.process_time() - begin)
            if least is None:
                yield [name, size, "", known, "", "", "", ""]
                continue
            found = []
            for limit in (least + 1, least + 1 + (least + 1) // 2):
                steps = steps_within(chain, context.with_fields(max_new_tokens=limit), vocabulary)
                found += [float(np.median(steps)), max(steps)]
            yield [name, size, str(least + 1), known, *found]
        except LogitloomError as error:
            yield [name, size, f"{error}".partition("\n")[0][:90], "", "", "", "", ""]


def steps_within(chain: Chain, context: Context, vocabulary: Vocabulary) -> list[float]:
    """The times of the steps of a random text, in ms."""
    state, steps, dice = chain.init_state(context), [], np.random.default_rng(0)
    while len(steps) < min(context.max_new_tokens, _MOST_STEPS):
        logits = dice.normal(size=(1, vocabulary.size)).astype(np.float32)
        begin = time.process_time()
        logits, state = chain.process(logits, state, context)
        steps.append(1e3 * (time.process_time() - begin))
        token = int(logits.argmax())
        if token in vocabulary.eos:
            break
        context = context.accept([[token]])
    return steps


def main() -> None:
    every = (*CURVES, *GRAMMARS, "vocabulary")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", nargs="*", choices=every, default=every)
    parser.add_argument("--near-limits", nargs="*", choices=NEAR_LIMITS, default=[*NEAR_LIMITS])
    parser.add_argument("--budget", type=float, default=20.0, help="most seconds of a run")
    parser.add_argument("--curve-seconds", type=float, default=120.0, help="seconds after which no size is begun")
    parser.add_argument("--write", action="store_true", help=f"write {_PAGE.name} beside the other results")
    given = parser.parse_args()
    vocabulary = tekken()
    shown: list[str] = []

    def show(text: str) -> None:
        print(text, flush=True)
        shown.append(text)
        if given.write:
            _PAGE.write_text("\n".join(shown) + "\n", encoding="utf-8")

    show("# How the cost of a JSON Schema grows with its size\n")
    show(heading("numba", "torch", "llguidance", "mistral-common"))
    tokenize = Tokenizer(vocabulary)
    engines: list[Any] = [Ours(vocabulary), LLGuidance(vocabulary)]
    grammars: list[Any] = [OurGrammars(vocabulary), TheirGrammars(vocabulary)]
    usual, simple = members(20), GRAMMARS["grammar list"][1](9)
    for engine in grammars:
        run(engine, simple, tokenize(simple.document.encode()), given.budget)
    for engine in engines:
        run(engine, usual, tokenize(written(usual.document)), given.budget)
    gc.disable()
    show(table(("curve", "size", "engine", "compile ms", "first mask ms", "step ms", "longest step ms", "times"), []))
    last: dict[str, float] = {}
    for curve in given.curves:
        lines = [*lines_of(curve, engines, grammars, vocabulary, tokenize, given.budget, given.curve_seconds)]
        show(rows_of(lines))
        last |= {str(line[0]): line[-1] for line in lines if line[-1] != ""}
    above = [f"{curve} ({times:.1f})" for curve, times in last.items() if times > 3]
    show(f"\nAt their largest size above three times llguidance's time: {', '.join(above) or 'none'}.")
    if given.near_limits:
        show("\n# Steps near a token limit\n")
        least = "step at the least ms", "longest ms", "at 1.5 times the least ms", "longest ms"
        show(table(("family", "size", "fewest tokens", "until known ms", *least), []))
    for name in given.near_limits:
        show(rows_of([*near_limits(name, vocabulary)]))


if __name__ == "__main__":
    main()
