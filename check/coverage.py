"""Whether everything in a program has run: the outcomes that its ops must have come to in decided worlds, and the lines
of those that none has.

Demanded are both sides of every condition and comparison, of every minimum, maximum, `relu` and `clamp`, a truncation that cuts
and one that does not, draws that could have been another token, loops that run as seldom and as often as their bounds allow and
at least once where these are computed, and numbers that are not the same in all worlds: arithmetic that turns wrong beyond them
is constant in them. Conditions into which lowering turned `accept`, `break` and `emit` are not the author's and are left out;
so are what ranges exclude, and what neither tokens that are committed nor an error of the program depend on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from decgraph.backends.exact.coverage import LOGIC, PICKS, CoveredRun, Outcome, outcomes, user_condition
from decgraph.ir.failing import Failing
from decgraph.ir.intervals import End
from decgraph.ir.ranges import impossible
from decgraph.ir.settings import alternatives
from decgraph.ir.values import Function, Op, Value
from decgraph.passes.dead import Liveness
from decgraph.runtime.arguments import ParamValue

WORDS = {
    ("if", "true"): "was never true",
    ("if", "false"): "was always true",
    ("map", "true"): "was never true",
    ("map", "false"): "was always true",
    ("renorm", "cut"): "never cut a token off",
    ("renorm", "whole"): "always cut a token off",
    ("each", "ran"): "never ran",
    ("draw", "open"): "could never have been another token",
    ("draw.many", "open"): "could never have been other tokens",
}
FORCEABLE = frozenset({"true", "false", "left", "right"})


@dataclass(frozen=True)
class Missing:
    """Something that no decided world has shown: the op, what it never came to, and the line; `path` of another file than the
    program's. Of a rule or helper of another file the line is the program's own, `inside` says where it stands there. value:
    what a number always was."""

    op: Op
    outcome: str
    line: int
    path: str = ""
    inside: str = ""
    value: str = ""

    @property
    def key(self) -> Outcome:
        return (id(self.op), self.outcome)

    @property
    def forceable(self) -> bool:
        """Whether the op can be made to come to it."""
        return self.outcome in FORCEABLE

    def __str__(self) -> str:
        op = self.op
        where = _line(self.line, self.path) + (f" ({self.inside})" if self.inside else "")
        if self.value:
            name = op.results[0].name or f"this {op.attrs.get('fn', 'number')}"
            return f"{where}: {name} was {self.value} in every world"
        if op.opcode in ("for", "while"):
            times = {
                "never": "always ran at least once",
                "once": "never ran exactly once",
                "again": "never ran more than once",
                "ran": "never ran",
            }[self.outcome]
            return f"{where}: this loop {times}"
        what = {
            "if": "this condition",
            "renorm": "this truncation",
            "each": "what stands here",
            "draw": "this draw",
            "draw.many": "this draw",
            "map": "this condition" if op.attrs.get("fn") in ("and", "or", "not") else "this comparison",
        }.get(op.opcode, "this comparison")
        if self.outcome in ("left", "right", "above", "zero", "low", "inside", "high"):
            fn = op.attrs["fn"]
            return f"{where}: this {fn} was never decided by its {self.outcome} side"
        return f"{where}: {what} {WORDS.get((op.opcode, self.outcome), 'was never ' + self.outcome)}"


def pinned(f: Function, fixed: Mapping[str, ParamValue] | None) -> Function:
    """The function with the ranges of parameters that are given narrowed to their values: what needs
    others is not asked for."""
    numbers: dict[str, End] = {n: v for n, v in (fixed or {}).items() if isinstance(v, int | float | Fraction)}
    exact = {n: v for n, v in numbers.items() if not isinstance(v, bool)}
    return replace(
        f, params=tuple(replace(p, low=exact[p.name], high=exact[p.name]) if p.name in exact else p for p in f.params)
    )


def demanded(f: Function, ran: CoveredRun) -> list[tuple[Op, str]]:
    """The outcomes that must be seen before a claim is said to hold: those that can happen (ir/ranges.py)."""
    setting = f.claims[0].setting if f.claims else ()
    cannot = frozenset.intersection(*(impossible(g, outcomes) for g in alternatives(f, setting)))
    made: dict[Value, Op] = {v: op for op in ran.watched.values() for v in op.results}
    for op in f.body.walk():
        made.update(dict.fromkeys(op.results, op))
    ranges = {p.value: (p.low, p.high) for p in f.params}
    chance = any(c.kind != "ensures" and not c.for_greedy for c in f.claims)
    needed = Liveness(f.body, {op for op, _ in Failing(f).outside_drafts()}).live_ops
    useless = {id(op) for op in f.body.walk() if op not in needed}
    out: list[tuple[Op, str]] = []
    for op in ran.watched.values():
        kinds = outcomes(op)
        if op.opcode == "if":
            if user_condition(op.operands[0], made):
                out += [(op, k) for k in kinds]
        elif op.opcode in ("for", "while"):
            out += [(op, k) for k in iterations_of(op, made, ranges)]
        elif op.opcode in ("draw", "draw.many"):
            if chance:
                out.append((op, "open"))
        elif op.opcode == "map" and op.attrs["fn"] in PICKS:
            if not _fixed(op, made):
                out += [(op, k) for k in kinds]
        elif op.opcode == "map" and op.attrs["fn"] in LOGIC and not any(user_condition(o, made) for o in op.operands):
            continue
        elif kinds and not _fixed(op, made):
            out += [(op, k) for k in kinds]
    return [(op, k) for op, k in out if (id(op), k) not in cannot and id(op) not in useless]


def _fixed(op: Op, producers: dict[Value, Op]) -> bool:
    """Whether an op works on constants alone, or is a part of lowered control flow."""
    if any(v.name.startswith("%") for v in (*op.operands, *op.results)):
        return True
    return bool(op.operands) and all(
        (by := producers.get(o)) is not None and (by.opcode == "const" or by.opcode == "map" and _fixed(by, producers))
        for o in op.operands
    )


def iterations_of(op: Op, producers: dict[Value, Op], ranges: dict[Value, tuple[End | None, End | None]]) -> list[str]:
    """How many iterations of a loop must be seen: as its bounds say where they are constants or parameters, else one."""
    if op.opcode == "while":
        return ["again"] if op.attrs.get("bound") == "done" else ["once"] if op.attrs.get("limited") else ["again"]
    bounds = [_range(v, producers, ranges) for v in op.operands[:2]]
    if any(b is None for b in bounds):
        return ["once"]
    low = max(0, bounds[1][0] - bounds[0][1])  # type: ignore[index]
    high = bounds[1][1] - bounds[0][0]  # type: ignore[index]
    return [k for k, n in (("never", 0), ("once", 1)) if low <= n <= high] + (["again"] if high > 1 else [])


def _range(v: Value, producers: dict[Value, Op], ranges: dict[Value, tuple[End | None, End | None]]) -> tuple[int, int] | None:
    low, high = ranges.get(v, (None, None))
    if low is not None and high is not None:
        return int(low), int(high)
    op = producers.get(v)
    if op is not None and op.opcode == "const" and isinstance(op.attrs["value"], int | Fraction):
        return int(op.attrs["value"]), int(op.attrs["value"])
    return None


def missing(f: Function, ran: CoveredRun, path: str, harmless: Iterable[Outcome] = ()) -> list[Missing]:
    """What was demanded and not seen, in the order of lines."""
    known = ran.seen | set(harmless)
    loops = {id(op) for op in ran.watched.values() if op.opcode == "for" and (id(op), "again") in known}
    made = {v: op for op in ran.watched.values() if op.opcode == "bernoulli" for v in op.results}

    def coin(op: Op) -> Op | None:
        return op if op.opcode == "bernoulli" else made.get(op.operands[0]) if op.opcode == "if" else None

    # A coin of a rule that came up in every world has one side only: a draft from the target itself is always accepted.
    sure = {
        id(op)
        for op in ran.watched.values()
        if (c := coin(op)) is not None
        and c.loc.called is not None
        and (id(c), "varies") not in known
        and (id(c), "true") in known
    }
    numbers: Counter[int] = Counter(i for i, kind in known if kind.startswith("= "))
    out = []
    for op, kind in demanded(f, ran):
        if id(op) in sure or (id(op), kind) in known or (id(op) in loops and kind == "once"):
            continue
        if kind == "open" and (id(op), "certain") not in known:  # nothing reads its token
            continue
        value = ""
        if kind == "varies":
            if numbers[id(op)] != 1:  # none, as the op never ran: other outcomes say so
                continue
            value = next(kind for i, kind in known if i == id(op) and kind.startswith("= ")).removeprefix("= ")
        at = op.loc.called or op.loc
        inside = "" if op.loc.called is None else _line(op.loc.line, op.loc.path)
        out.append(Missing(op, kind, at.line, "" if at.path in ("", path) else at.path, inside, value))
    out.sort(key=lambda m: (m.path, m.line))
    return out


def _line(line: int, path: str) -> str:
    """A line in words, with its file unless that is the program's (`path` empty)."""
    return f"{path.rsplit('/', 1)[-1]} line {line}" if path else f"line {line}"


def marked(text: str, f: Function, ran: CoveredRun, path: str, harmless: Iterable[Outcome] = ()) -> str:
    """The program with a mark before every line of which something was never seen: `!` where nothing has run that way, `~`
    where it was forced and made no difference."""
    known = set(harmless)
    open_: dict[int, list[Missing]] = {}
    for m in missing(f, ran, path):
        if not m.path:
            open_.setdefault(m.line, []).append(m)
    out = []
    for n, line in enumerate(text.splitlines(), 1):
        found = open_.get(n, [])
        hard = [m for m in found if m.key not in known]
        sign = "!" if hard else "~" if found else " "
        said = "; ".join(dict.fromkeys(str(m).split(": ", 1)[1] for m in (hard or found)))
        out.append(f"{sign} {n:>3}  {line}" + (f"    # {said}" if said else ""))
    return "\n".join(out)


__all__ = ["Missing", "demanded", "marked", "missing"]
