"""Counterexamples that can be read: the smallest world in which a claim fails, with both distributions side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from decgraph.backends.exact.choices import Point, TooMany, answer, runs
from decgraph.backends.exact.reals import NotSeparated
from decgraph.backends.exact.world import Unlikely, World
from decgraph.check.case import Case
from decgraph.check.claims import Failure, decide
from decgraph.check.constants import facts
from decgraph.check.distributions import Distribution, RunTally, execute
from decgraph.check.functions import DrawnFunction
from decgraph.check.worlds import least, models_for
from decgraph.errors import DecError
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.table import TableFeatures, TableModel
from decgraph.runtime.parameters import shown, written
from decgraph.runtime.request import Request

SHOWN = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "eos",
    "bans",
    "min_length",
    "bias",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "stop",
    "allow",
    "until",
)
FEW = 4
"""Rows of a distribution that are shown where fewer differ."""
DECISIONS = {
    "tokens": "drawn",
    "token": "drawn",
    "count": "drawn",
    "error": "drawn",
    "distribution": "drawn, in a run whose tokens come too often",
    "text": "drawn",
    "adversary": "returned",
}


LONG, EDGE = 24, 8  # a text of more words is shortened to this many at either end
ROWS = 32  # rows of a table, and decisions, that are shown


def short(text: str, between: str = " ") -> str:
    """A list of words without its middle, where it is long."""
    words = text.split(between)
    if len(words) <= LONG:
        return text
    return between.join([*words[:EDGE], f"... {len(words) - 2 * EDGE} more ...", *words[-EDGE:]])


def row_of(line: str) -> str:
    """A row of a table, with a long context shortened."""
    context, equals, weights = line.partition(") = ")
    return short(context) + equals + weights if equals else line


def first_of(lines: Sequence[str]) -> list[str]:
    """The first lines, and how many there are besides."""
    return [*lines[:ROWS], f"... and {len(lines) - ROWS} more"] if len(lines) > ROWS else list(lines)


def place_of(failure: Failure) -> tuple[int, ...]:
    """The context after which both sides part."""
    case = failure.case
    if failure.kind in ("distribution", "adversary"):
        first = first_apart(failure.ours, failure.theirs)
        new = first.after if first is not None else case.start.committed
    else:
        texts = [max(d, key=lambda k: d[k])[0] for d in (failure.ours, failure.theirs) if d]
        new = texts[0][: next((n for n, t in enumerate(zip(*texts, strict=False)) if len({*t}) > 1), len(texts[0]) - 1)]
    return (*case.request.prompt, *new)


def from_there(table: str, place: tuple[int, ...]) -> str:
    """The rows of a table, that of a context first and those behind it next: it is there that the sides part."""
    title, *rows = table.splitlines()
    context = f"  p(. | {' '.join(map(str, place))}"
    order = sorted(rows, key=lambda r: 0 if r.startswith(f"{context})") else 1 if r.startswith(f"{context} ") else 2)
    return "\n".join([title, *order])


def parting(ours: Distribution, theirs: Distribution) -> str:
    """Where two long texts part, in words."""
    a, b = ([*max(d, key=lambda k: d[k])[0]] for d in (ours, theirs))
    if a == b:
        return ""
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f", apart first in token {at + 1}" if max(len(a), len(b)) > EDGE else ""


@dataclass
class Counterexample:
    """A claim, a world, and what goes wrong in it."""

    claim: str
    kind: str
    prompt: tuple[int, ...]
    request: str
    params: dict[str, ParamValue]
    tables: list[str]
    decisions: list[str]
    ours: Distribution
    theirs: Distribution
    distance: Fraction
    words: str
    names: tuple[str, str]
    start: str = ""
    functions: tuple[str, ...] = ()

    def render(self, rows: int = 12) -> str:
        """A page of text."""
        out = [f"claim      {self.claim}", f"prompt     [{short(', '.join(map(str, self.prompt)), ', ')}]"]
        if self.start:
            out.append(f"start      {self.start}")
        if self.request:
            out.append(f"request    {self.request}")
        if self.params:
            out.append("parameters " + ", ".join(f"{k} = {shown(v)}" for k, v in self.params.items()))
        out += ["models"] + ["    " + line for t in self.tables for line in first_of([row_of(x) for x in t.splitlines()])]
        if self.functions:
            out += ["functions"] + [f"    {line}" for line in self.functions]
        if self.decisions:
            out += [DECISIONS[self.kind]] + [f"    {d}" for d in first_of(self.decisions)]
        if self.kind == "tokens":
            out.append("with the same noise" + parting(self.ours, self.theirs))
            out.append(f"    {self.names[0]:<24} commits {_one(self.ours)}")
            out.append(f"    {self.names[1]:<24} commits {_one(self.theirs)}")
        elif self.kind == "text":
            out.append(f"{self.words}{parting(self.ours, self.theirs)}")
            out.append(f"    {self.names[0]:<24} commits {_one(self.ours)}")
            mine = max(self.theirs, key=lambda k: self.theirs[k])
            if self.theirs[mine] == 1:
                out.append(f"    {self.names[1]:<24} commits {list(mine[0])}")
        elif self.kind in ("token", "count", "error"):
            out.append(f"    {self.words}")
        else:
            if self.words:
                out.append(f"    {self.words}")
            w = max(14, *(len(n) for n in self.names))
            keys = sorted({*self.ours, *self.theirs}, key=lambda k: (-abs(self.ours.get(k, 0) - self.theirs.get(k, 0)), k))
            apart = sum(self.ours.get(k, 0) != self.theirs.get(k, 0) for k in keys)
            rows = min(rows, max(apart, FEW))  # the equal ones follow, and say nothing
            ends = len({len(k[0]) for k in keys}) > 1
            what = "that draft" if self.kind == "draft" else "the first tokens"
            out.append(f"distribution of {what}: total variation {self.distance} = {float(self.distance):.4f}")
            out.append(f"    {'tokens':<16} {self.names[0]:>{w}}   {self.names[1]:>{w}}")
            for k in keys[:rows]:
                out.append(_row(_spelled(k, ends), self.ours.get(k, Fraction(0)), self.theirs.get(k, Fraction(0)), w))
            if len(keys) > rows:
                equal = ", equal on both sides" if apart <= rows else ""
                out.append(f"    ... and {len(keys) - rows} more{equal}")
            first = first_apart(self.ours, self.theirs)
            if first is not None and first.after:
                after, share = " ".join(map(str, first.after)), _ratio(first.share)
                out.append(f"apart first after {after}, which both commit with probability {share}; there")
                out += [_row(name, a, b, w) for name, a, b in first.rows]
        return "\n".join(out)

    def __repr__(self) -> str:
        return f"<counterexample to `{self.claim}`: total variation {self.distance}>"

    def _repr_html_(self) -> str:
        from decgraph.html import frame

        return frame(self)

    def to_json(self) -> dict[str, object]:

        def listed(d: Distribution) -> dict[str, str]:
            return {_spelled(k, True): str(v) for k, v in sorted(d.items())}

        return {
            "claim": self.claim,
            "kind": self.kind,
            "prompt": list(self.prompt),
            "start": self.start,
            "request": self.request,
            "functions": list(self.functions),
            "params": {k: written(v) for k, v in self.params.items()},
            "models": self.tables,
            "decisions": self.decisions,
            "ours": listed(self.ours),
            "theirs": listed(self.theirs),
            "total_variation": str(self.distance),
            "words": self.words,
        }


@dataclass(frozen=True)
class Apart:
    """Where two distributions of texts part for the first time: after these tokens, of the same probability on both sides;
    what comes next (a token, "end" or "no end") with its conditional probability on either side."""

    after: tuple[int, ...]
    share: Fraction
    rows: tuple[tuple[str, Fraction, Fraction], ...]


def first_apart(ours: Distribution, theirs: Distribution) -> Apart | None:
    """The shortest text after which two distributions differ, and of those the one that says most; None where they are equal
    or have not the same mass."""
    for length in range(max((len(k[0]) for k in (*ours, *theirs)), default=0) + 1):
        after: dict[tuple[int, ...], dict[str, list[Fraction]]] = {}
        for side, d in enumerate((ours, theirs)):
            for (tokens, over), p in d.items():
                if len(tokens) >= length:
                    name = str(tokens[length]) if len(tokens) > length else "end" if over else "no end"
                    both = after.setdefault(tokens[:length], {}).setdefault(name, [Fraction(0), Fraction(0)])
                    both[side] += p
        if not any(a != b for rows in after.values() for a, b in rows.values()):
            continue
        tokens = max(after, key=lambda t: (sum(abs(a - b) for a, b in after[t].values()), t))
        mass = [sum((both[side] for both in after[tokens].values()), Fraction(0)) for side in (0, 1)]
        if mass[0] != mass[1]:
            return None  # a text that is cut short on one side alone
        rows = sorted((name, a / mass[0], b / mass[0]) for name, (a, b) in after[tokens].items())
        return Apart(tokens, mass[0], tuple(rows))
    return None


def _one(d: Distribution) -> str:
    return str(list(next(iter(d), ((), True))[0]))


def _spelled(key: tuple[tuple[int, ...], bool], ends: bool) -> str:
    """Tokens of a distribution, and whether the text ends after them, where that is not plain."""
    tokens, over = key
    return " ".join(map(str, tokens)) + (" end" if over and ends else "")


def _row(name: str, a: Fraction, b: Fraction, width: int) -> str:
    """A line of both distributions, marked where they differ."""
    return f"    {name:<16} {_ratio(a):>{width}}   {_ratio(b):>{width}}{'' if a == b else '   <-'}"


def _ratio(x: Fraction) -> str:
    text = str(x)
    return text if len(text) <= 14 else f"{float(x):.6f}"


def plain_request(r: Request) -> Request:
    """The request with its prompt, limit and temperature alone."""
    return Request(prompt=r.prompt, max_tokens=r.max_tokens, temperature=r.temperature)


SHRINKING = 600  # runs, all tries together


def smaller(failure: Failure) -> Failure:
    """The same failure in a smaller world, as far as a few tries find one: fewer tokens of vocabulary, a plain request, a
    shorter prompt, smaller parameters, simpler tables, a distribution over fewer tokens."""
    if failure.case.sampled:  # check/probes.py has looked
        return failure
    best, spent = failure, RunTally()
    for candidate in _candidates(failure.case):
        if not _size(candidate) < _size(best.case):
            continue
        if spent.runs > SHRINKING:
            break
        try:
            again = decide(replace(candidate, limit=100), spent)
        except (TooMany, Unlikely, NotSeparated, DecError):
            continue
        if again is not None and (again.kind == "error") == (failure.kind == "error"):
            best = again
            break  # candidates come smallest first
    for change in (_short_prompt, _shorter, _plain):
        moved = change(best.case)
        try:
            again = decide(moved, RunTally()) if moved != best.case else None
        except (TooMany, Unlikely, NotSeparated, DecError):
            again = None
        if again is not None and (again.kind == "error") == (failure.kind == "error"):
            best = again
    return best


def _size(case: Case) -> tuple[int, ...]:
    v = next((m.vocab.size for m in case.models.values()), 0)
    p = sum(int(x) for x in case.params.values() if isinstance(x, int) and not isinstance(x, bool))
    free = any(isinstance(m, FreeModel) for m in case.models.values())  # a table can be shown
    return (v, free, p, case.length, len(case.request.prompt), int(case.request != plain_request(case.request)))


def _candidates(case: Case) -> list[Case]:
    size = next((m.vocab.size for m in case.models.values()), 3)
    least_size = facts(case.module, case.function).named + 1
    request = plain_request(replace(case.request, prompt=(0, 1)[: len(case.request.prompt)]))
    small = replace(case, length=min(case.length, 2), request=request)
    return [
        replace(small, models=models_for(case.function, v, 500 + seed, style=style), params=p)
        for style in (None, case.plan.style)
        for v in range(max(2, least_size) if style is None else size, size + 1)
        for p in (least(case, lowest=True).params, case.params)
        for seed in range(6)
    ]


def _short_prompt(case: Case) -> Case:
    return replace(case, request=replace(case.request, prompt=(0,))) if len(case.request.prompt) > 1 else case


def _shorter(case: Case) -> Case:
    return replace(case, length=min(case.length, 1))


def _plain(case: Case) -> Case:
    return replace(case, request=plain_request(case.request))


def explain(failure: Failure) -> Counterexample:
    """A failure as something to show: the tables have only the rows that were read."""
    case = failure.case
    for m in case.models.values():
        if isinstance(m, TableModel | TableFeatures):
            m.forget()
    try:
        again = decide(case, RunTally()) or failure
    except (TooMany, Unlikely, NotSeparated, DecError):
        again = failure
    points = again.points or most_telling(case, again)
    decisions = again.notes or [f"{p.label}: {answer(p.value, token=p.kind == 'chance')}" for p in points]
    names = (case.function.name, case.claim.spec or "the claim")
    return Counterexample(
        case.claim.text,
        again.kind,
        case.request.prompt,
        requested(case.request),
        case.values,
        [from_there(m.describe(), place_of(again)) for m in case.models.values() if hasattr(m, "describe")],
        decisions,
        again.ours,
        again.theirs,
        again.distance,
        again.words,
        names,
        start=str(again.case.start),
        functions=tuple(_asked(case.externs)),
    )


def most_telling(case: Case, failure: Failure) -> list[Point]:
    """What was drawn on the way to the tokens whose probability is most too high that makes it so: with the likelier ones alone
    it is not, as where a draft is accepted as it should be and what follows a refusal is wrong."""
    if failure.kind != "distribution":
        return []
    worst = max(failure.ours, key=lambda k: (failure.ours[k] - failure.theirs.get(k, Fraction(0)), k))
    allowed = failure.theirs.get(worst, Fraction(0))
    ways: list[tuple[Fraction, list[Point]]] = []
    start = case.starts(World(coupled=False), case.steps)
    try:
        for choices, tokens in runs(lambda choices: execute(start(choices)).committed_tokens(), case.limit):
            if worst[0][: len(tokens)] == tokens[: len(worst[0])]:
                ways.append((choices.weight(), choices.points))
    except (TooMany, NotSeparated):
        pass
    had = Fraction(0)
    for weight, points in sorted(ways, key=lambda way: way[0], reverse=True):
        had += weight
        if had > allowed:
            return points
    return max(ways, default=(Fraction(0), []), key=lambda way: way[0])[1]


def _asked(functions: Mapping[str, Callable[..., object]]) -> list[str]:
    """What the functions of the world have returned."""
    return [
        f"{f.name}({args}) = {answer(value)}"
        for f in functions.values()
        if isinstance(f, DrawnFunction)
        for args, value in f.asked.items()
    ]


def requested(r: Request) -> str:
    """What a request asks for beside its prompt."""
    usual = plain_request(replace(r, temperature=1))
    said = [f"{k} = {_value(getattr(r, k))}" for k in SHOWN if getattr(r, k) != getattr(usual, k)]
    return ", ".join([*said, f"max_tokens = {r.max_tokens}"])


def _value(v: object) -> str:
    if isinstance(v, frozenset):
        return "{" + ", ".join(map(str, sorted(v))) + "}"
    return str(getattr(v, "value", v))


__all__ = ["Counterexample", "explain", "requested", "smaller"]
