"""Which text stands for a value of the IR in a generated driver: a variable, a constant, or an expression where it is used."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from decgraph.backends.torch.expressions import expression
from decgraph.backends.torch.lowering import WRITTEN
from decgraph.backends.torch.texts import UniqueNames
from decgraph.ir.table import lookup
from decgraph.ir.values import Function, Op, Region, Value

LATER = ("for", "while")
"""Ops that read values from outside after their results have their first values."""
READ_LATER = {"while", "each", "run", "tree.walk"}
"""Ops that read operands more than once, or after other lines that they write."""
ALWAYS = {"len", "face", "tree.nodes", "tree.get", "canvas.get", "context", "done", "draw.get", "as_int", "request"}
"""Ops whose results are written where they are used even under a name of the author or a pass, if the name is this op's own."""
NESTED = {
    "bernoulli", "compact", "concat", "context", "done", "draw.point", "first_max", "gather", "info", "list", "lookup", "map",
    "memory.only", "normalize", "positions", "rank", "request", "select.top", "slice", "softmax", "take_first", "topk",
}  # fmt: skip
"""Ops whose calls may stand inside other expressions."""
PLAIN = {"len", "face", "tree.nodes", "tree.get", "canvas.get", "context", "done", "draw.get", "map", "const"}
"""Ops that do not fail: they may be written on another source line's line."""
WIDEST = 100


class Uses:
    """The uses of every value in a function: how many, and at which ops of a region (nested ones count for the op they are in;
    what a region yields is used at the place after its last op)."""

    def __init__(self, f: Function) -> None:
        self.total: Counter[Value] = Counter()
        self._places: dict[int, dict[Value, list[int]]] = {}
        for region in (f.body, *(s.init for s in f.states)):
            self._read(region)

    def _read(self, region: Region) -> None:
        places: dict[Value, list[int]] = {}
        for n, op in enumerate((*region.ops, None)):
            used: list[Value] = list(op.operands if op is not None else region.yields)
            self.total.update(used)
            for inner in op.regions if op is not None else ():
                self._read(inner)
                used += self._places[id(inner)]
            for v in used:
                places.setdefault(v, []).append(n)
        self._places[id(region)] = places

    def places(self, region: Region, v: Value) -> list[int]:
        """Where a region uses a value, in order."""
        return self._places[id(region)].get(v, [])

    def once(self, v: Value) -> bool:
        return self.total[v] == 1


class Values:
    """The texts of a function's values while it is written. here: the op that is being written, as its region and index.

    A value that a region yields gets the name that it has after the region, where nothing reads that name any more.
    """

    def __init__(self, f: Function, taken: Iterable[str], same: Mapping[Value, Value]) -> None:
        ops = [*f.body.walk(), *(op for s in f.states for op in s.init.walk())]
        self.producers = {r: op for op in ops for r in op.results}
        self.uses = Uses(f)
        self.same = same
        self.names = UniqueNames()
        self.names.taken |= set(taken)
        self.texts: dict[Value, str] = {}
        self.hint = ""
        """A name for the next value without a name of its own."""
        self.pinned: set[str] = set()
        """Names in use for a second value, which no third may get."""
        self.wishes: dict[Value, str] = {}
        """Names that values get because they are yielded under them."""
        self.holders: dict[str, Value | None] = {}
        """Which value has such a name until then."""
        self.assignable_trees: set[Value] = set()
        """Trees whose variables the blocks that draft them may assign again."""
        self.place: tuple[Region, int] = (f.body, 0)

    # -- texts
    def name(self, v: Value) -> str:
        """The text of a value; one without gets a variable."""
        if v not in self.texts:
            self.texts[v] = self.wishes[v] if v in self.wishes else self.names.fresh(v.name.strip("%") or self.hint)
        return self.texts[v]

    def use(self, v: Value) -> str:
        """The text of a value where it is read."""
        return self.name(self.same.get(v, v))

    def listed(self, vs: Iterable[Value]) -> str:
        """The texts of several values, with commas."""
        return ", ".join(map(self.use, vs))

    def fixed(self, v: Value) -> str | None:
        """The text of a value that is written already, or a constant."""
        made = self.producers.get(v)
        if (
            v not in self.texts
            and made is not None
            and made.opcode == "const"
            and not isinstance(made.attrs["value"], list | tuple)
        ):
            self.constant(made)
        return self.texts.get(v)

    def constant(self, op: Op) -> None:
        """The text of a constant that is no vector."""
        v = op.attrs["value"]
        if v in ("inf", "-inf") and op.attrs["type"].elem != "text":
            v = float(v)
        self.texts[op.result] = literal(v)

    def whole(self, v: Value) -> str:
        """The text of a whole number."""
        text = self.use(v)
        return text if v.type.elem == "int" or text.isdigit() else f"int({text})"

    def yielded(self, region: Region, into: Iterable[tuple[str, Value | None] | None]) -> None:
        """The yields of a region are to have these names after it, which other values have until then."""
        for y, goal in zip(region.yields, into):
            if goal is not None and self.may_take(region, y, goal[1]):
                self.wishes[y], self.holders[goal[0]] = goal

    # -- variables that are assigned again
    def targets(self, op: Op) -> str:
        """The names of an op's results; `_` for one of several that nothing uses."""
        several = len(op.results) > 1
        found = []
        for r in op.results:
            if several and not self.uses.total[r]:
                found.append("_")
                continue
            again = self.reused(op, r)
            if again is not None and r not in self.wishes and r not in self.texts:
                self.texts[r] = again
            found.append(self.name(r))
        return ", ".join(found)

    def reused(self, op: Op, r: Value) -> str | None:
        """The name of an operand that is the same variable of the author's and is not read after this op."""
        region, n = self.place
        for v in op.operands:
            text = self.texts.get(v, "")
            if v.name and v.name == r.name and text.isidentifier() and v not in self.wishes and text not in self.pinned:
                if self.assignable(region, v) and max(self.uses.places(region, v)) <= n:
                    return text
        return None

    def assignable(self, region: Region, v: Value) -> bool:
        """Whether the variable of a value may be assigned again in a region: it is created there, or carried by its loop."""
        made = self.producer(region, v)
        if v in self.assignable_trees:
            return True
        return v in region.args[1:] if made is None else region.ops[made].opcode != "const"

    def producer(self, region: Region, v: Value) -> int | None:
        """The index of the op of a region that produces a value."""
        return next((n for n, op in enumerate(region.ops) if v in op.results), None)

    def may_take(self, region: Region, v: Value, holder: Value | None) -> bool:
        """Whether a yield of a region may be assigned directly to its name after the region, which `holder` has until then:
        nothing reads the holder after the yield is computed."""
        n = self.producer(region, v)
        if n is None:
            return False
        if holder is None:
            return True
        places = self.uses.places(region, holder)
        return all(at <= n for at in places) and not (n in places and region.ops[n].opcode in LATER)

    # -- expressions that stand where they are used
    def inlined(self, op: Op, text: str) -> bool:
        """Whether an op's value is written where it is used, and only there; no line is written for it then."""
        region, n = self.place
        v = op.result
        if v in self.wishes or not self.moves(region, n) or len(text) > WIDEST - 30:
            return False
        self.texts[v] = text
        return True

    def moves(self, region: Region, n: int) -> bool:
        """Whether op n of a region can be written at its only use: no line is written between the two."""
        op = region.ops[n]
        if len(op.results) != 1 or op.regions:
            return False
        v = op.result
        own = (op.opcode, op.opcode.rpartition(".")[2], *map(str, op.attrs.values()))
        if v.name.isidentifier() and not (op.opcode in ALWAYS and v.name in own):
            return False
        if not self.uses.once(v):
            return False
        place = self.uses.places(region, v)
        if len(place) != 1:
            return False
        end = place[0]
        if end < len(region.ops):
            after = region.ops[end]
            if v not in after.operands or after.opcode in READ_LATER:
                return False
            if op.opcode not in PLAIN and (op.loc.path, op.loc.line) != (after.loc.path, after.loc.line):
                return False  # an error names the line that it came from
        return all(self.silent(region, k) or self.passes(op, region.ops[k]) for k in range(n + 1, end))

    def passes(self, op: Op, line: Op) -> bool:
        """Whether an op may be written after another's line: that line has no effects and reassigns no name that the op
        reads."""
        if line.opcode in WRITTEN or line.regions:
            return False
        if lookup(op.opcode).effects or lookup(line.opcode).effects or any(r in self.wishes for r in line.results):
            return False
        return not {r.name for r in line.results if r.name} & self.read(op)

    def read(self, op: Op) -> set[str]:
        """The names that an op reads, those of unnamed operands replaced by the names that they read."""
        out: set[str] = set()
        for v in op.operands:
            made = self.producers.get(v)
            out |= {v.name} if v.name.isidentifier() or made is None else {v.name} | self.read(made)
        return out

    def silent(self, region: Region, n: int) -> bool:
        """Whether no line is written for op n."""
        op = region.ops[n]
        if op.opcode == "const":
            return True
        if not op.results or op.result in self.wishes or op.opcode in WRITTEN or op.regions:
            return False
        return (self.expression(op) is not None or op.opcode in NESTED) and self.moves(region, n)

    def expression(self, op: Op) -> str | None:
        """An op as an expression of operands that have names; None where it is a call."""
        return expression(op, ["x"] * len(op.operands), self.producers) if op.opcode != "const" else ""


def literal(v: object) -> str:
    """A constant as Python text."""
    if isinstance(v, Fraction):
        v = float(v)
    if isinstance(v, float) and (v != v or math.isinf(v)):
        return f'float("{v}")'
    if isinstance(v, tuple | list):
        inner = ", ".join(map(literal, v))
        return f"[{inner}]" if isinstance(v, list) else f"({inner}{',' if len(v) == 1 else ''})"
    return f'"{v}"' if isinstance(v, str) and not re.search(r'["\'\\\n]', v) else repr(v)
