"""The text of a module. Total: whatever a module holds has a text, and `ir.parsing` reads it back.

    module(main = "speculative", path = "stdlib/speculative.dec")

    func speculative(%target: model<causal,V,target,causal>, %gamma: int in 1..32 = 4) {
      body {
        while(bound = "done") (%i: int) {
          %done: bool = done()
          yield %done
        } (%i.1: int) {
          ...
        }
      }
    }

Values carry the names of the source; a number is put after a name only where it is taken (`%x.1`), and
stands alone where there is no name (`%0`). Both leave when the text is read. An attribute is `name = data`;
a type among the data is written `!token<V>`, a dimension `dim k<=4`, an exact fraction `1/3`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from decgraph.errors import InternalError
from decgraph.ir.types import Dim, Type
from decgraph.ir.values import NOWHERE, Claim, Function, Loc, Module, Op, Param, Region, StateDecl, Value

PLAIN_NAME = re.compile(r"[^\W\d]\w*")
PLAIN_PATH = re.compile(r"[\w./+@<>~-]+")
RESERVED = frozenset({"true", "false", "none", "inf", "nan", "dim", "in", "per", "loc", "yield"})
INDENT = "  "


def quoted(text: str) -> str:
    """A string in double quotes; letters of any script stay, what cannot be seen is escaped."""
    visible = all(c.isprintable() or c in "\n\t" for c in text)
    return json.dumps(text, ensure_ascii=not visible)


def bare(name: str) -> str:
    """A name as it is, or in quotes where it is not a plain one."""
    return name if PLAIN_NAME.fullmatch(name) and name not in RESERVED else quoted(name)


def data(value: object) -> str:
    """The text of an attribute: constants, exact fractions, types, dimensions; tuples, lists, dicts of these.

    Raises InternalError for anything else: attributes are plain data.
    """
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)) and type(value) in (int, float):
        return repr(value)
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Type):
        return f"!{value}"
    if isinstance(value, Dim):
        return f"dim {value}"
    if type(value) is tuple:
        return f"({', '.join(map(data, value))}{',' if len(value) == 1 else ''})"
    if type(value) is list:
        return f"[{', '.join(map(data, value))}]"
    if type(value) is dict:
        return "{" + ", ".join(f"{data(k)}: {data(v)}" for k, v in value.items()) + "}"
    raise InternalError(f"a {type(value).__name__} is not plain data and has no text in the IR: {value!r}")


def loc_text(loc: Loc) -> str:
    """`loc(path:line:column)`, with the end after a dash where it is known."""
    path = loc.path if PLAIN_PATH.fullmatch(loc.path) else quoted(loc.path)
    end = f"-{loc.end_line}:{loc.end_column}" if loc.end_line or loc.end_column else ""
    return f"loc({path}:{loc.line}:{loc.column}{end})"


class Names:
    """Names of the values of one function. With `plain`, only parameters keep theirs."""

    def __init__(self, plain: bool = False) -> None:
        self.plain = plain
        self.names: dict[Value, str] = {}
        self.taken: dict[str, int] = {}

    def sign(self, name: str) -> str:
        """A name after its `%`; names that lowering made up begin with another."""
        return f"%{name}" if PLAIN_NAME.fullmatch(name.removeprefix("%")) else f"%{quoted(name)}"

    def define(self, value: Value, *, keep: bool = False) -> str:
        """The name of a value, chosen at its definition."""
        if value not in self.names:
            name = value.name if keep or not self.plain else ""
            number = self.taken.get(name, 0)
            self.taken[name] = number + 1
            if not name:
                self.names[value] = f"%{number}"
            else:
                self.names[value] = self.sign(name) + (f".{number}" if number else "")
        return self.names[value]

    def use(self, value: Value) -> str:
        """The name of a value where it is used; one that nothing defined is shown as such."""
        return self.names.get(value) or f"{self.sign(value.name or '_')}.undefined"


class Printer:
    """Prints functions, line by line, and remembers on which line an op begins."""

    def __init__(self, *, locs: bool = False, plain: bool = False) -> None:
        self.locs, self.plain = locs, plain
        self.lines: list[str] = []
        self.line_of: dict[Op, int] = {}
        self.names = Names(plain)

    def put(self, depth: int, text: str) -> None:
        self.lines.append(INDENT * depth + text if text else "")

    def place(self, loc: Loc) -> str:
        return f" {loc_text(loc)}" if self.locs and loc != NOWHERE else ""

    def typed(self, value: Value, *, keep: bool = False) -> str:
        return f"{self.names.define(value, keep=keep)}: {value.type}"

    def attrs(self, attrs: Mapping[str, object]) -> Iterator[str]:
        for key in sorted(attrs) if self.plain else attrs:
            yield f"{bare(key)} = {data(attrs[key])}"

    def region(self, region: Region, head: str, depth: int) -> None:
        """`head (args) {`, the ops and what is yielded; the closing brace stays on a line of its own."""
        args = f"({', '.join(map(self.typed, region.args))}) " if region.args else ""
        self.put(depth, f"{head}{args}{{")
        self.inside(region, depth + 1)

    def inside(self, region: Region, depth: int) -> None:
        for op in region.ops:
            self.op(op, depth)
        if region.yields:
            self.put(depth, "yield " + ", ".join(map(self.names.use, region.yields)))

    def op(self, op: Op, depth: int) -> None:
        """One op with its regions."""
        self.line_of[op] = len(self.lines)
        inside = [self.names.use(v) for v in op.operands] + list(self.attrs(op.attrs))
        call = f"{bare_opcode(op.opcode)}({', '.join(inside)})"
        # before the regions: results are written first, so their names are chosen first
        results = ", ".join(self.typed(v) for v in op.results)
        head = (f"{results} = " if results else "") + call + self.place(op.loc)
        if not op.regions:
            self.put(depth, head)
            return
        head += " "
        for region in op.regions:
            self.region(region, head, depth)
            head = "} "
        self.put(depth, "}")

    def param(self, p: Param) -> str:
        text = self.typed(p.value, keep=True)
        if p.low is not None or p.high is not None:
            text += f" in {'' if p.low is None else data(p.low)}..{'' if p.high is None else data(p.high)}"
        if p.has_default:
            text += f" = {data(p.default)}"
        return text if p.scope == "sequence" else f"{text} per {bare(p.scope)}"

    def function(self, key: str, f: Function) -> None:
        self.names = Names(self.plain)
        head = f"func {bare(key)}({', '.join(map(self.param, f.params))})"
        self.put(0, f"{head}{self.place(f.loc)} {{")
        if f.name != key:
            self.put(1, f"name {quoted(f.name)}")
        if f.doc and not self.plain:
            self.put(1, f"doc {quoted(f.doc)}")
        for what, by in f.policies:
            self.put(1, f"policy {quoted(what)} by {quoted(by)}")
        for state in f.states:
            self.state(state)
        for claim in f.claims:
            self.claim(claim)
        own = f.body.args == tuple(p.value for p in f.params)
        self.put(1, "body {" if own else f"body ({', '.join(self.typed(a) for a in f.body.args)}) {{")
        self.inside(f.body, 2)
        self.put(1, "}")
        self.put(0, "}")

    def state(self, s: StateDecl) -> None:
        self.region(s.init, f"state {bare(s.name)}: {s.type} per {bare(s.scope)} ", 1)
        self.put(1, "}")

    def claim(self, c: Claim) -> None:
        fields: dict[str, object] = {
            "text": c.text,
            "spec": c.spec,
            "args": c.args,
            "mode": c.mode,
            "when": c.when,
            "setting": c.setting,
            "models": c.models,
            "bound": c.bound,
        }
        if self.plain:
            del fields["text"]
        inside = ", ".join(f"{k} = {data(v)}" for k, v in fields.items() if v)
        head = f"claim {bare(c.kind)}({inside}){self.place(c.loc)}"
        if c.region is None:
            self.put(1, head)
        else:
            self.region(c.region, head + " ", 1)
            self.put(1, "}")

    def module(self, m: Module) -> str:
        head = {"main": m.main} | ({"path": m.path} if m.path and not self.plain else {})
        self.put(0, f"module({', '.join(f'{k} = {data(v)}' for k, v in head.items())})")
        if m.externs:
            self.put(0, "")
        for name, (params, returns) in m.externs.items():
            self.put(0, f"extern {bare(name)}({', '.join(map(str, params))}) -> {returns}")
        for key, f in m.functions.items():
            self.put(0, "")
            self.function(key, f)
        return "\n".join(self.lines) + "\n"


def bare_opcode(name: str) -> str:
    """An opcode: plain names with dots between them; anything else in quotes."""
    return name if all(PLAIN_NAME.fullmatch(part) for part in name.split(".")) else quoted(name)


def print_op(op: Op, names: Sequence[Value] = ()) -> str:
    """One op alone, its operands shown with their names (for messages)."""
    printer = Printer()
    for value in (*names, *op.operands):
        printer.names.define(value)
    printer.op(op, 0)
    return "\n".join(printer.lines)
