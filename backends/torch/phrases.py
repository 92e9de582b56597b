"""Lines, names and expressions of a generated driver; writer.py adds the control flow."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from decgraph.backends.torch.expressions import expression
from decgraph.backends.torch.header import GENERATED, OPS, Header
from decgraph.backends.torch.kit import Kit
from decgraph.backends.torch.names import Names
from decgraph.backends.torch.texts import closing, folded
from decgraph.backends.torch.uses import Uses
from decgraph.ir.table import lookup
from decgraph.ir.values import Function, Op, Region, Value

READ_LATER = {"while", "each", "run", "tree.walk"}
"""Ops that read operands more than once, or after other lines that they write."""
ALWAYS = {"len", "face", "tree.nodes", "tree.get", "canvas.get", "context", "done", "draw.get", "as_int", "request"}
"""Ops whose results are written where they are used even under a name of the author or a pass, if the name is this op's own."""
NESTED = {
    *("bernoulli", "compact", "concat", "context", "done", "draw.point", "first_max", "gather", "list", "lookup", "map"),
    *(
        "memory.only",
        "normalize",
        "positions",
        "request",
        "select.top",
        "slice",
        "softmax",
        "take_first",
        "topk",
        "info",
        "rank",
    ),
}
"""Ops whose calls may stand inside other expressions."""
PLAIN = {"len", "face", "tree.nodes", "tree.get", "canvas.get", "context", "done", "draw.get", "map", "const"}
"""Ops that do not fail: they may be written on another source line's line."""
WIDEST, LONGEST = 100, 110


class Phrases:
    """Builder of a module's text: lines, names, and whether an op is written on a line or where it is used.

    State of the function that is being written: env (the text of each value), wishes (names that values get because they are
    yielded under them), holders (which value has such a name until then), pinned (names in use for a second value). here: the
    op that is being written, as its region and index.
    """

    f: Function
    env: dict[Value, str]
    depth: int
    marked: tuple[str, int]
    hint: str
    flow: Uses
    names: Names
    producers: dict[Value, Op]
    origin: dict[Op, Op]
    same: dict[Value, Value]
    wishes: dict[Value, str]
    holders: dict[str, Value | None]
    pinned: set[str]
    given: set[Value]
    here: tuple[Region, int]

    def __init__(self, header: Header, kit: Kit) -> None:
        self.header, self.kit = header, kit
        self.out: list[str] = []
        self.lines: dict[int, Op] = {}
        self.shared = Names()

    def written(self, op: Op) -> str | None:
        """An op as an expression of named operands; None where it is a call."""
        return expression(op, ["x"] * len(op.operands), self.producers) if op.opcode != "const" else ""

    def line(self, text: str, op: Op | None = None) -> None:
        mark = ""
        if op is not None and op.loc.line:
            here = (op.loc.path, op.loc.line)
            if here != self.marked:
                mark = f"  # {op.loc.path.rsplit('/', 1)[-1]}:{op.loc.line}"
                self.marked = here
        for n, part in enumerate(self.wrapped(text)):
            self.out.append("    " * self.depth + part + (mark if n == 0 else ""))
            if op is not None:
                self.lines[len(self.out)] = op

    def wrapped(self, text: str) -> list[str]:
        """A statement; where it is long and ends with a call, the arguments on a line of their own."""
        if 4 * self.depth + len(text) <= LONGEST or not text.endswith(")"):
            return [text]
        for at in (n for n, c in enumerate(text) if c == "("):
            if closing(text, at) == len(text) - 1:
                return [text[: at + 1], "    " + text[at + 1 : -1], ")"]
        return [text]

    def name(self, v: Value) -> str:
        if v not in self.env:
            self.env[v] = self.wishes[v] if v in self.wishes else self.names.fresh(v.name.strip("%") or self.hint)
        return self.env[v]

    def use(self, v: Value) -> str:
        v = self.same.get(v, v)
        return self.env[v] if v in self.env else self.name(v)

    def uses(self, vs: Any) -> str:
        return ", ".join(self.use(v) for v in vs)

    def support(self, name: str) -> str:
        """A name of generated.py, imported."""
        return self.header.need(name, GENERATED)

    def docstring(self, text: str) -> None:
        lines = textwrap.wrap(text.replace("\\", "\\\\").replace('"""', "''"), 110, break_long_words=False)
        self.line('"""' + lines[0] + ('"""' if len(lines) == 1 and not lines[0].endswith('"') else ""))
        for text in lines[1:]:
            self.line(text)
        if len(lines) > 1 or lines[0].endswith('"'):
            self.line('"""')

    def inlined(self, op: Op, text: str) -> bool:
        """Whether an op's value is written where it is used, and only there; no line is written for it then."""
        region, n = self.here
        v = op.result
        if v in self.wishes or not self.moves(region, n) or len(text) > WIDEST - 30:
            return False
        self.env[v] = text
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
        if not self.flow.once(v):
            return False
        place = self.flow.places(region, v)
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
        if hasattr(self, "op_" + line.opcode.replace(".", "_")) or line.regions:
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
        if op.result in self.wishes if op.results else True:
            return False
        special = hasattr(self, "op_" + op.opcode.replace(".", "_")) or op.regions
        return not special and (self.written(op) is not None or op.opcode in NESTED) and self.moves(region, n)

    def assign(self, targets: list[str], values: list[str], op: Op | None = None) -> None:
        pairs = [(t, v) for t, v in zip(targets, values, strict=True) if t != v]
        if pairs:
            self.line(f"{', '.join(t for t, _ in pairs)} = {', '.join(v for _, v in pairs)}", op)

    def plain(self, op: Op) -> None:
        """An op as an expression, or as a call of its lowering."""
        low = self.kit.lower(self.origin.get(op, op))
        args = [self.use(v) for v in op.operands]
        if op.opcode == "map" and (
            known := folded(str(op.attrs["fn"]), args) if op.attrs["fn"] in ("not", "and", "or") else None
        ):
            self.env[op.result] = known
            return
        text = None if low.own else expression(op, args, self.producers)
        if text is not None:
            text = self.imports_of(text)
            if self.inlined(op, text):
                return
        else:
            text = self.called(op, args)
            if op.opcode in NESTED and not low.own and self.inlined(op, text):
                return
        self.line(f"{self.targets(op)} = {text}" if op.results else text, op)

    def called(self, op: Op, args: Sequence[str]) -> str:
        """An op as a call of its lowering."""
        low = self.kit.lower(self.origin.get(op, op))
        name = self.header.call(op, low, self.names)
        typed = name in self.header.declared.values()
        kwargs = [] if typed else [f"{k}={self.literal(v)}" for k, v in low.kwargs.items()]
        return f"{name}({', '.join(['m', *args, *kwargs])})"

    def imports_of(self, text: str) -> str:
        """Import the functions that an expression calls; returns the expression."""
        for word in re.findall(r"\b(np|torch)\.", text):
            self.header.need(word)
        for name, module in {"law": "draws", "probability": "distributions"}.items():
            if text.startswith(f"{name}("):
                text = self.header.need(name, f"{OPS}.{module}") + text[len(name) :]
        return text

    def literal(self, v: Any) -> str:
        """A constant as Python text."""
        if isinstance(v, Fraction):
            v = float(v)
        if isinstance(v, float) and (v != v or math.isinf(v)):
            return f'float("{v}")'
        if isinstance(v, tuple | list):
            inner = ", ".join(self.literal(x) for x in v)
            return f"[{inner}]" if isinstance(v, list) else f"({inner}{',' if len(v) == 1 else ''})"
        return f'"{v}"' if isinstance(v, str) and not re.search(r'["\'\\\n]', v) else repr(v)

    def targets(self, op: Op) -> str:
        """The names of an op's results; `_` for one of several that nothing uses."""
        several = len(op.results) > 1
        found = []
        for r in op.results:
            if several and not self.flow.total[r]:
                found.append("_")
                continue
            again = self.reused(op, r)
            if again is not None and r not in self.wishes and r not in self.env:
                self.env[r] = again
            found.append(self.name(r))
        return ", ".join(found)

    def reused(self, op: Op, r: Value) -> str | None:
        """The name of an operand that is the same variable of the author's and is not read after this op."""
        region, n = self.here
        for v in op.operands:
            known = self.env.get(v, "")
            if v.name and v.name == r.name and known.isidentifier() and v not in self.wishes and known not in self.pinned:
                if self.own(region, v) and max(self.flow.places(region, v)) <= n:
                    return known
        return None

    def own(self, region: Region, v: Value) -> bool:
        """Whether the variable of a value may be assigned again in a region: it is created there, or carried by its loop."""
        made = self.flow.producer(region, v)
        if v in self.given:
            return True
        return v in region.args[1:] if made is None else region.ops[made].opcode != "const"

    def op_const(self, op: Op) -> None:
        v = op.attrs["value"]
        if v in ("inf", "-inf") and op.attrs["type"].elem != "text":
            v = float(v)
        if isinstance(v, list | tuple):
            text = "[]"
            if v:
                text = f"{self.header.need('np')}.array({self.literal(list(v))})"
        else:
            text = self.literal(v)
        self.env[op.result] = text

    def _int(self, v: Value) -> str:
        text = self.use(v)
        return text if v.type.elem == "int" or text.isdigit() else f"int({text})"

    @staticmethod
    def words(text: str) -> set[str]:
        """The names in a text."""
        return set(re.findall(r"\w+", text))

    @staticmethod
    def effects(op: Op) -> bool:
        """Whether an op, or one inside it, has side effects."""
        return bool(lookup(op.opcode).effects not in ("", "read")) or any(Phrases.effects(o) for r in op.regions for o in r.ops)
