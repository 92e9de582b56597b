"""How ops become calls of Python functions: the registry of lowerings.

Every op of ir/ops/<topic>.py is registered in backends/torch/ops/<topic>.py, which is imported where a program has such an op,
in one of three ways; `load` imports all of them and reports missing ones:

- `@lowering("op")` above a function `f(m, *operands, **attributes)`: `m` is the machine; of the op's attributes it gets those
  that it names as keywords, the op itself as `op` where it has that keyword (for types), and `numbers` where its first operand
  is numbers that are to be tokens. One result is returned as it is,
  several as a tuple. `@planned("op")` above one that builds such a function from the op. - `on_host("op", ..., why=...)`: it
  runs its NumPy meaning of the op table, over host values.

Loops, branches and model calls are `written`: program.py has the Python for each. Ops that no backend has (`unavailable` in
ir/ops) are not registered.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import TypeAlias, TypeVar

from decgraph.backends.torch.data import host
from decgraph.backends.torch.protocols import Machine
from decgraph.errors import DecError
from decgraph.ir.opdef import OpDef
from decgraph.ir.table import TABLE, lookup
from decgraph.ir.values import Op

T = TypeVar("T")
Computes: TypeAlias = Callable[..., object]
"""A function that computes an op; every op has operands and results of its own types."""
Constant: TypeAlias = str | float | tuple["Constant", ...] | None
"""An attribute of an op that its lowering takes as a keyword."""
Plan: TypeAlias = Callable[[Op], Computes]
C = TypeVar("C", bound=Computes)
P = TypeVar("P", bound=Plan)

LOWERINGS: dict[str, Computes] = {}
PLANS: dict[str, Plan] = {}
HOSTED: dict[str, str] = {}
WRITTEN: set[str] = set()


def _once(opcode: str) -> str:
    if any(opcode in table for table in (LOWERINGS, PLANS, HOSTED, WRITTEN)):
        raise TypeError(f"op {opcode} stands in backends/torch/ops twice")
    return opcode


def planned(opcode: str) -> Callable[[P], P]:
    """Register the function below as the builder of an op's lowering: for ops that run often and depend on their types, which
    are then examined once and not on every call."""

    def register(f: P) -> P:
        PLANS[_once(opcode)] = f
        return f

    return register


def lowering(*opcodes: str) -> Callable[[C], C]:
    """Register the function below as the lowering of ops. Raises TypeError for an op lowered twice."""

    def register(f: C) -> C:
        LOWERINGS.update((_once(name), f) for name in opcodes)
        return f

    return register


def on_host(*opcodes: str, why: str) -> None:
    """Ops that run their NumPy meaning. why: one clause, for docs/reference/ops.md."""
    HOSTED.update((_once(name), why) for name in opcodes)


def written(*opcodes: str) -> None:
    """Ops that writer.py writes Python for."""
    WRITTEN.update(map(_once, opcodes))


@cache
def _imported(topic: str) -> None:
    """Register the lowerings of a topic, if it has any beside what is written."""
    module = f"decgraph.backends.torch.ops.{topic}"
    if find_spec(module) is not None:
        import_module(module)


def registered(opcode: str) -> Computes | None:
    """The function that computes an op, where one is registered that depends on the op's attributes only."""
    if opcode not in WRITTEN and opcode in TABLE:
        _imported(TABLE[opcode].topic)
    return LOWERINGS.get(opcode)


@lru_cache(maxsize=1)
def load() -> dict[str, Computes]:
    """All lowerings. Raises TypeError for an op of the table that is not registered, and for a registered name that is none."""
    import_module("decgraph.backends.torch.program")  # the forms that are written
    for topic in sorted({row.topic for row in TABLE.values()}):
        _imported(topic)
    known = {*LOWERINGS, *PLANS, *HOSTED, *WRITTEN}
    if missing := [row for row in TABLE.values() if row.name not in known and not row.unavailable]:
        raise TypeError("\n".join(_lacks(row) for row in missing))
    if strange := sorted(known - TABLE.keys()):
        raise TypeError(f"backends/torch/ops has {', '.join(strange)}, which ir/ops has not")
    return LOWERINGS


def _lacks(row: OpDef) -> str:
    return (
        f"op {row.name} (ir/ops/{row.topic}.py) lacks a torch lowering: in backends/torch/ops/{row.topic}.py write a function "
        f'under @lowering("{row.name}"), or on_host("{row.name}", why=...) if it shall run its NumPy meaning'
    )


def supports(opcode: str) -> str | None:
    """None for an op that torch or generated Python computes; else a sentence that says what happens instead. Raises OpError
    for a name that is no op."""
    row = lookup(opcode)
    registered(opcode)
    return row.unavailable or (f"its NumPy meaning runs on the host: {HOSTED[opcode]}" if opcode in HOSTED else None)


@cache
def _keywords(f: Computes) -> tuple[tuple[str, ...], bool]:
    names = [p.name for p in inspect.signature(f).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return tuple(n for n in names if n != "op"), "op" in names


_INFIX: dict[str, Computes] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_SCALARS = ("int", "real", "prob", "bool", "position")


def not_(a: object) -> bool:
    """`not a`, of a Python bool."""
    return not a


def and_(a: object, b: object) -> bool:
    """`a and b`; both are computed."""
    return bool(a and b)


def or_(a: object, b: object) -> bool:
    """`a or b`; both are computed."""
    return bool(a or b)


def select(c: object, a: T, b: T) -> T:
    """`a` where `c` holds, else `b`; both are computed."""
    return a if c else b


def minimum(a: float, b: float) -> float:
    """The smaller of two numbers; a NaN where either is one."""
    return min(b, a) if a == a else a  # Python returns a NaN only where it is the first argument


def maximum(a: float, b: float) -> float:
    """The larger of two numbers; a NaN where either is one."""
    return max(b, a) if a == a else a


def weigh(a: float, b: float) -> float:
    """`a * b`, where 0 times anything is 0."""
    return a * b if a and b else 0.0


_PLAIN: dict[str, Computes] = {
    "not": not_,
    "and": and_,
    "or": or_,
    "select": select,
    "minimum": minimum,
    "maximum": maximum,
    "weigh": weigh,
}


class Lowered:
    """One op as a call: `fn(*args, **kwargs)`, with the machine as first argument where `machine` is set."""

    __slots__ = ("fn", "name", "kwargs", "machine")

    def __init__(self, fn: Computes, name: str, kwargs: Mapping[str, Constant], machine: bool = True):
        self.fn, self.name, self.kwargs, self.machine = fn, name, kwargs, machine


def lower(op: Op) -> Lowered:
    """The call that computes an op. Raises DecError for one that this backend does not implement."""
    if op.opcode == "map" and all(not v.type.dims and v.type.elem in _SCALARS for v in op.operands):
        fn = op.attrs["fn"]
        if fn in _INFIX:
            return Lowered(_INFIX[fn], fn, {}, machine=False)
        if fn in _PLAIN:
            return Lowered(_PLAIN[fn], fn, {}, machine=False)
    f = registered(op.opcode)
    if op.opcode in PLANS:
        return Lowered(_called(PLANS[op.opcode](op), _name(op)), _name(op), {})
    if f is not None:
        names, wants_op = _keywords(f)
        usual = {p.name: p.default for p in inspect.signature(f).parameters.values()}
        kwargs: dict[str, Constant] = {n: op.attrs[n] for n in names if n in op.attrs and op.attrs[n] != usual[n]}
        if "numbers" in names and any(v.type.elem == "int" for v in op.operands[:1]):
            kwargs["numbers"] = True
        if wants_op:
            return Lowered(_bound(f, op), _name(op), kwargs)
        return Lowered(f, op.opcode.replace(".", "_"), kwargs)
    if op.opcode in HOSTED or op.opcode in TABLE and TABLE[op.opcode].unavailable:  # the machine says so when it is reached
        return Lowered(_hosted(op), _name(op), {})
    raise DecError(f"the torch backend cannot run `{op.opcode}`")


def _name(op: Op) -> str:
    """A readable name: the opcode and its distinguishing attribute."""
    for a in ("fn", "field", "which", "what", "kind"):
        if a in op.attrs:
            return f"{op.opcode}_{op.attrs[a]}".replace(".", "_")
    return op.opcode.replace(".", "_")


def _called(f: Computes, name: str) -> Computes:
    """A function under the name that profiles and tracebacks show."""
    assert isinstance(f, FunctionType)
    f.__name__ = f.__qualname__ = name
    return f


def _bound(f: Computes, op: Op) -> Computes:
    def call(m: Machine, *operands: object, **kwargs: object) -> object:
        return f(m, *operands, op=op, **kwargs)

    call.__name__ = call.__qualname__ = _name(op)
    return call


def _hosted(op: Op) -> Computes:
    """The op's NumPy meaning, over host values."""
    meaning, single = lookup(op.opcode).meaning, len(op.results) == 1

    def call(m: Machine, *operands: object) -> object:
        out = meaning(m, op, *map(host, operands))
        return out[0] if single else out

    call.__name__ = call.__qualname__ = _name(op)
    return call
