"""The part of the language that the oracle can judge, as plain dataclasses, and how it is printed as `.dec` text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

INDENT = "    "


# ---- expressions


@dataclass(frozen=True)
class Num:
    """A number, a word with a value, or a text, as it is written."""

    text: str


@dataclass(frozen=True)
class Name:
    id: str


@dataclass(frozen=True)
class Attr:
    value: Any
    name: str


@dataclass(frozen=True)
class Slice:
    low: Any
    high: Any


@dataclass(frozen=True)
class Index:
    value: Any
    subs: tuple[Any, ...]


@dataclass(frozen=True)
class Call:
    func: Any
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Bin:
    op: str
    left: Any
    right: Any


@dataclass(frozen=True)
class Un:
    op: str
    value: Any


@dataclass(frozen=True)
class Cond:
    test: Any
    then: Any
    other: Any


@dataclass(frozen=True)
class Where:
    value: Any
    mask: Any


@dataclass(frozen=True)
class Listed:
    items: tuple[Any, ...]


@dataclass(frozen=True)
class Comprehension:
    value: Any
    name: str
    over: Any
    test: Any = None


# ---- statements


@dataclass(frozen=True)
class Draw:
    name: str
    value: Any
    output: Any = None  # None: noise of its own; True: `as output`; an expression: `as output(expression)`
    using: str = ""


@dataclass(frozen=True)
class Assign:
    target: Any
    op: str
    value: Any


@dataclass(frozen=True)
class Grow:
    value: Any
    at: Any = None


@dataclass(frozen=True)
class Draft:
    name: str
    of: Any
    body: tuple[Any, ...]


@dataclass(frozen=True)
class Repeat:
    count: Any
    cond: Any
    body: tuple[Any, ...]


@dataclass(frozen=True)
class For:
    name: str
    over: Any
    body: tuple[Any, ...]


@dataclass(frozen=True)
class While:
    test: Any
    body: tuple[Any, ...]


@dataclass(frozen=True)
class If:
    test: Any
    body: tuple[Any, ...]
    other: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Break:
    test: Any = None


@dataclass(frozen=True)
class Verify:
    tree: Any
    rule: Any
    against: Any


@dataclass(frozen=True)
class Commit:
    value: Any


@dataclass(frozen=True)
class Accept:
    value: Any


@dataclass(frozen=True)
class Emit:
    value: Any


@dataclass(frozen=True)
class Canvas:
    name: str
    size: Any


@dataclass(frozen=True)
class Unmask:
    target: Any
    where: Any
    value: Any


@dataclass(frozen=True)
class Noise:
    name: str
    dims: tuple[Any, ...]
    kind: str = "race"


# ---- definitions


@dataclass(frozen=True)
class Param:
    name: str
    type: str
    low: str = ""
    high: str = ""
    default: str = ""

    @property
    def model(self) -> bool:
        return self.type.split(" ")[0] in ("causal", "masked")


@dataclass(frozen=True)
class State:
    name: str
    type: str
    scope: str
    init: Any


@dataclass(frozen=True)
class Refines:
    spec: Any
    mode: str = "distribution"
    greedy: bool = False


@dataclass(frozen=True)
class Keeps:
    models: str


@dataclass(frozen=True)
class Ensures:
    condition: Any


@dataclass(frozen=True)
class Rule:
    name: str
    params: tuple[Param, ...]
    body: tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """An algorithm with the rules of its file."""

    name: str
    params: tuple[Param, ...]
    claims: tuple[Any, ...]
    states: tuple[State, ...]
    body: tuple[Any, ...]
    rules: tuple[Rule, ...] = field(default=())

    def text(self) -> str:
        """The program as `.dec` text."""
        parts = [_definition("rule", r.name, r.params, list(map(line_of, r.body)), r.body) for r in self.rules]
        head = [claim_text(c) for c in self.claims] + [state_text(s) for s in self.states]
        parts.append(_definition("algorithm", self.name, self.params, head, self.body, loose=True))
        return "\n".join(parts)


LEVELS = {"or": 2, "and": 3, "==": 5, "!=": 5, "<": 5, ">": 5, "<=": 5, ">=": 5, "..": 6, "+": 7, "-": 7, "++": 7}
LEVELS |= {"*": 8, "/": 8, "%": 8, "^": 10}


def show(e: Any, level: int = 0) -> str:
    """An expression as text; brackets where it binds less tightly than `level`."""
    text, own = _shown(e)
    return f"({text})" if own < level else text


def _shown(e: Any) -> tuple[str, int]:
    match e:
        case Num(text):
            return text, 12
        case Name(name):
            return name, 12
        case Attr(value, name):
            return f"{show(value, 11)}.{name}", 11
        case Index(value, subs):
            return f"{show(value, 11)}[{', '.join(map(show, subs))}]", 11
        case Slice(low, high):
            return f"{'' if low is None else show(low)}:{'' if high is None else show(high)}", 0
        case Call(func, args, named):
            inner = [*map(show, args), *(f"{n}={show(v)}" if n == "replace" else f"{n} = {show(v)}" for n, v in named)]
            return f"{show(func, 11)}({', '.join(inner)})", 11
        case Bin(op, left, right):
            own = LEVELS[op]
            gap = "" if op == ".." else " "
            tight = 1 if own in (5, 6) else 0
            return f"{show(left, own + tight)}{gap}{op}{gap}{show(right, own + 1)}", own
        case Un("not", value):
            return f"not {show(value, 4)}", 4
        case Un("-", value):
            return f"-{show(value, 9)}", 9
        case Cond(test, then, other):
            return f"{show(then, 1)} if {show(test, 1)} else {show(other)}", 0
        case Where(value, mask):
            return f"{show(value, 2)} where {show(mask, 2)}", 1
        case Listed(items):
            return f"[{', '.join(map(show, items))}]", 12
        case Comprehension(value, name, over, test):
            only = "" if test is None else f" if {show(test, 1)}"
            return f"[{show(value)} for {name} in {show(over, 1)}{only}]", 12
    raise TypeError(f"no expression: {e!r}")


def line_of(s: Any) -> str:
    """The (first) line of a statement."""
    match s:
        case Draw(name, value, output, using):
            tail = "" if output is None else " as output" if output is True else f" as output({show(output)})"
            return f"{name} ~ {show(value)}{tail}" + (f" using {using}" if using else "")
        case Assign(target, op, value):
            return f"{show(target)} {op} {show(value)}"
        case Grow(value, at):
            return f"grow {show(value)}" + ("" if at is None else f" at {show(at)}")
        case Draft(name, of, _):
            return f"draft {name}:" if of is None else f"draft {name} of {show(of)}:"
        case Repeat(count, cond, _):
            return f"repeat {show(count)}:" if cond is None else f"repeat {show(count)} while {show(cond)}:"
        case For(name, over, _):
            return f"for {name} in {show(over)}:"
        case While(test, _):
            return f"while {show(test)}:"
        case If(test, _, _):
            return f"if {show(test)}:"
        case Break(test):
            return "break" if test is None else f"break if {show(test)}"
        case Verify(tree, rule, against):
            return f"verify {show(tree)} by {show(rule)} against {show(against)}"
        case Commit(value):
            return f"commit {show(value)}"
        case Accept(value):
            return f"accept {show(value)}"
        case Emit(value):
            return f"emit {show(value)}"
        case Canvas(name, size):
            return f"canvas {name}: {show(size)}"
        case Unmask(target, where, value):
            return f"unmask {show(target)}" + (f" where {show(where, 2)}" if where is not None else "") + f" with {show(value)}"
        case Noise(name, dims, kind):
            return f"noise {name}[{', '.join(map(show, dims))}]: {kind}"
    raise TypeError(f"no statement: {s!r}")


def lines(body: tuple[Any, ...], depth: int) -> list[str]:
    """The lines of a block."""
    out = []
    for s in body:
        out.append(INDENT * depth + line_of(s))
        if isinstance(s, Draft | Repeat | For | While | If):
            out += lines(s.body, depth + 1)
        if isinstance(s, If) and s.other:
            out.append(INDENT * depth + "else:")
            out += lines(s.other, depth + 1)
    return out


def param_text(p: Param) -> str:
    """A parameter as it is declared."""
    span = f" in {p.low}..{p.high}" if p.low else ""
    return f"{p.name}: {p.type}{span}" + (f" = {p.default}" if p.default else "")


def claim_text(c: Any) -> str:
    """A claim as it is declared."""
    if isinstance(c, Refines):
        return f"refines {show(c.spec)}" + (" when greedy" if c.greedy else f" in {c.mode}")
    return f"keeps support of {c.models}" if isinstance(c, Keeps) else f"ensures {show(c.condition)}"


def state_text(s: State) -> str:
    """A state as it is declared."""
    return f"state {s.name}: {s.type} per {s.scope} = {show(s.init)}"


def _definition(word: str, name: str, params: Any, head: list[str], body: Any, loose: bool = False) -> str:
    first = f"{word} {name}({', '.join(map(param_text, params))}):"
    middle = [INDENT + h for h in head] if loose else []
    return "\n".join([first, *middle, *([""] if middle else []), *lines(body, 1), ""])
