"""The trade-offs of lossy programs on causal models: what a value of a knob measures, on the shipped target or SmolLM2.

The sweeps are in causal.toml, the measures in causal_measures.py, the functions that sweeps name in causal_standins.py.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Self

import decgraph
from decgraph.bench.prompts import CODE
from lab.shipped import tasks
from lab.tradeoffs.causal_measures import MEASURES, Ids, Point, Ran
from lab.tradeoffs.causal_standins import FUNCTIONS, Heads
from lab.tradeoffs.sweeps import Sweep, table

X = ("target calls", "tokens/call", "layers", "stored", "repeated-4", "all rows", "rows", "z", "contrast", "all distinct-2")
Y = ("greedy", "reward", "log p", "text log p", "over drafter")
WORDS = {name: words for name, (words, _) in MEASURES.items()}
SEED = 11
LAYERS = {"target": 6, "smollm2": 30}
PROSE = ("The history of the bicycle began", "Last winter our village decided that")
EVIDENCE = (
    ("In this story the capital of France is the city of Oslo. The capital of France is", "Oslo"),
    ("In this tale grass is always as red as blood. The colour of grass is", "red"),
    ("In our play the author of Hamlet is named Jane Austen. The author of Hamlet is", "Austen"),
    ("In this dream the sun rises slowly in the far west. The sun rises in the", "west"),
)


def _tasks() -> list[tuple[str, str]]:
    kinds = ("copy", "sort", "reverse", "add")
    return [(t.prompt, t.answer) for t in islice(tasks.stream(3, held=True, kinds=kinds), 8)]


PROMPTS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "code": lambda: [(CODE[i], "") for i in (0, 2, 4, 6)],
    "long": lambda: [("\n\n".join(CODE[i:] + CODE[:i]), "") for i in (0, 3)],
    "tasks": _tasks,
    "prose": lambda: [(text, "") for text in PROSE],
    "evidence": lambda: list(EVIDENCE),
}
"""Prompts with the answers of those that have one."""


@dataclass(frozen=True)
class Entry(Sweep):
    """A sweep on causal models.

    prompts: a set of `PROMPTS`. limit: of new tokens. heads, externs: by the program's names. answers: externs, given the
    answer of the prompt's task. at: parameters, heads and externs at a value, where that is not the parameter `knob`. eos: a
    text ends with its line. also: measures beside those of the shapes. beside: a program that is compared at the same values.
    score, views, stored, hits: what the measures reward, contrast, stored and z call. min_p: of the requests.
    """

    prompts: str = "code"
    limit: int = 32
    min_p: float | None = None
    heads: Heads = field(default_factory=dict)
    externs: Mapping[str, Any] = field(default_factory=dict)
    answers: Callable[[str], Mapping[str, Any]] | None = None
    at: Callable[[Any], Mapping[str, Mapping[str, Any]]] | None = None
    eos: bool = False
    also: tuple[str, ...] = ()
    beside: str = ""
    score: Callable[[Ran], float] | None = None
    views: Callable[[Ran, Callable[[str], Ids]], tuple[Ids, Ids]] | None = None
    stored: Callable[[Mapping[str, Any], int, int], float] | None = None
    hits: Callable[[Any, Ids, Ids], tuple[int, int]] | None = None

    @classmethod
    def of(cls, sweep: str, **entry: Any) -> Self:
        """An entry of the table, whose functions are named as in causal_standins.py."""
        for field_, functions in FUNCTIONS.items():
            if isinstance(found := entry.get(field_), dict):
                entry[field_] = {name: functions[function] for name, function in found.items()}
            elif found is not None:
                entry[field_] = functions[found]
        return super().of(sweep, **entry)

    @staticmethod
    def value(text: str) -> Any:
        """A number."""
        return json.loads(text)

    def called_with(self, value: Any) -> Entry:
        """The entry with what the program is called with at a value of its knob."""
        more = self.at(value) if self.at else {"fixed": {self.knob: value}}
        changed: dict[str, Any] = {name: {**getattr(self, name), **given} for name, given in more.items()}
        return replace(self, **changed)


SWEEPS, LEFT_OUT = table("causal", Entry.of)


@functools.cache
def _tokenizer(folder: str) -> Any:
    from decgraph.runtime.text import Tokenizer
    from decgraph.zoo import folder_of

    return Tokenizer(folder_of(folder))


@functools.cache
def _line_ends(folder: str) -> frozenset[int]:
    """The tokens that begin a new line: where texts end in sweeps whose texts have to."""
    tokenizer = _tokenizer(folder)
    return frozenset(t for t in range(2048) if tokenizer.decode([t]).startswith("\n"))


def session_of(program: str, entry: Entry, answer: str) -> Any:
    """A session of a program with an entry's parameters, heads and functions."""
    algorithm = decgraph.load(program)
    externs = {**entry.externs, **(entry.answers(answer) if entry.answers else {})}
    if program == "mbr":
        externs.setdefault("utility", lambda a, b: 0.0)
    models = {} if entry.model == "target" else {"target": entry.model}
    session = algorithm.session(models, externs=externs, **entry.fixed)
    if not entry.heads:
        return session
    bound = {**session.models, **{name: make(session.models) for name, make in entry.heads.items()}}
    return algorithm.session(bound, tokenizer=session.tokenizer, externs=externs, **entry.fixed)


def runs_of(program: str, entry: Entry) -> tuple[list[Ran], Mapping[str, Any]]:
    """Every prompt with every seed, and the parameters with their defaults."""
    from decgraph.runtime.trace import Committed, ModelCall

    out, session = [], None
    for prompt, answer in PROMPTS[entry.prompts]():
        if session is None or entry.answers:
            session = session_of(program, entry, answer)
        ids = tuple(_tokenizer(entry.model).encode(prompt))
        for seed in range(entry.seeds):
            eos = _line_ends(entry.model) if entry.eos else frozenset()
            heat, low = entry.temperature, entry.min_p
            request = decgraph.Request(ids, max_tokens=entry.limit, temperature=heat, min_p=low, seed=SEED + seed, eos=eos)
            result = session.run(request)
            if result.error is not None:
                raise result.error
            rows = sum(e.rows for e in result.events if isinstance(e, ModelCall))
            commits = sum(isinstance(e, Committed) for e in result.events)
            tokens = tuple(int(t) for t in result.tokens)
            results = tuple(tuple(int(t) for t in r) for r in result.results or () if not isinstance(r, int))
            out.append(Ran(ids, tokens, result.text or "", results, result.stats, rows, commits, answer))
    assert session is not None
    return out, session.params


class Causal:
    """Measures a value of a sweep's knob."""

    facts: Mapping[str, Any] = {}

    def __call__(self, sweep: Entry, value: Any) -> dict[str, float]:
        """The measures that the sweep's shapes speak of, and those beside them."""
        entry = sweep.called_with(value)
        point = Point(*runs_of(sweep.algorithm, entry), entry, value, LAYERS[sweep.model])
        if sweep.beside:
            point.beside = MEASURES["apart"][1](Point(*runs_of(sweep.beside, entry), entry, value))
        point.encode = lambda text: tuple(_tokenizer(sweep.model).encode(text))
        names = dict.fromkeys([*(shape.measure for shape in sweep.shapes), *sweep.also])
        return {name: round(MEASURES[name][1](point), 4) for name in names}


measurer = Causal

HEADING = """# Trade-offs of lossy programs on causal models

*Generated by `python -m lab tradeoffs causal`; `lab/results/tradeoffs-causal.json` has all figures.*

A lossy program gives up some of the target's text for something else: fewer calls, fewer layers, a smaller cache, more
diversity, more reward. Its paper shows a curve. Here every program is swept over its own knob, and the curve's shape is
tested. The models are small: the shipped target (6 layers, trained on Python code) and, where named, SmolLM2-135M-Instruct.
So the numbers are not those of the papers; only the direction is compared.

- Everything is counted, nothing is timed.
- The text is scored by transformers' own forward of the target, apart from decgraph.
- A trend must have a stated least difference between the first value and the last, and a rank correlation of at least 0.5.
- Prompts are few (2 to 8, some with 2 to 4 seeds) and texts short. A small difference may be chance.
- Safety, factuality and reasoning are not measured: models this small have little of them. What is tested of programs that are
  after these is their mechanism, such as how much likelier a text is under the prompt than without it.
- Trained judges, routers and reward models are not shipped. The table names what stands in for them. It shows what the decoder
  does with a reward, not how good a reward is.

Of {total} sweeps, {shown} show the shape.

## Measures

""" + "".join(f"- **{name}**: {words}.\n" for name, words in WORDS.items())
