"""From a rule's region to the text of a kernel: scalars, control flow, draws of children. Rows are in emit_rows.py, numbers
over nodes in emit_columns.py, the code around the rule in frames.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import isfinite
from typing import Any

from decgraph.backends.triton.rules.values import (
    Children,
    Column,
    Draw,
    Feature,
    Nodes,
    Nothing,
    Row,
    RuleNoise,
    Scalar,
    Unsupported,
    Vec,
    fresh_name,
    variables,
)
from decgraph.backends.triton.source import Text
from decgraph.ir.types import Type
from decgraph.ir.values import Op, Region, Value
from decgraph.runtime.noise import OUTPUT

PARAMETERS = (
    "tokens",
    "parents",
    "live",
    "rows",
    "probs",
    "prob_points",
    "law_rows",
    "laws",
    "law_points",
    "positions",
    "seeds",
    "words",
    "counters",
    "reals",
    "column_prob",
    "column_race",
    "column_point",
    "values",
    "whos",
    "scratch",
    "packed",
    "N",
    "R",
    "M",
    "V",
    "S",
    "C",
    "L",
    "D",
    "BN",
    "PER",
)
SIZES = ("NB", "BLOCK", "SPLITS", "LIVE", "ROWS", "POINTS", "LAWS", "CERTAIN", "PLACED", "PREFIX")
HELPERS = ("chunk", "coin", "depth_of", "depths_of", "drawn", "entry", "hashed", "logarithm", "prefixed", "race", "ratio")
INFIX = {"add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
CALLS = {
    "exp": "tl.exp({})",
    "log": "logarithm({})",
    "sqrt": "tl.sqrt({})",
    "abs": "tl.abs({})",
    "neg": "-{}",
    "relu": "tl.maximum({}, 0.0)",
    "minimum": "tl.minimum({}, {})",
    "maximum": "tl.maximum({}, {})",
    "clamp": "tl.minimum(tl.maximum({}, {}), {})",
    "weigh": "tl.where({0} == 0, 0.0, tl.where({1} == 0, 0.0, {0} * {1}))",
    "mix": 'tl.where({0} == float("-inf"), {0}, tl.where({1} == float("-inf"), {1}, {0} + {1}))',
    "contrast": 'tl.where({0} == float("-inf"), {0}, tl.where({1} == float("-inf"), {1}, {0} - {1}))',
}
CHOSEN = ("draw", "token", "edit")
"""Types that rules take and return: draws below a node, tokens, edits (numbers here, see device.py)."""


class Again(Exception):
    """An assumption about a loop-carried value was wrong; the kernel is written again."""


def kind_of(t: Type, op: Op | None = None) -> str:
    """The kind ("i", "f", "b") of one number of a type in a kernel. Raises Unsupported for other types."""
    if t.elem in ("int", "token", "node", "position", "draw", "edit"):
        return "i"
    if t.elem in ("real", "prob"):
        return "f"
    if t.elem == "bool":
        return "b"
    raise Unsupported(f"a value of type {t} is not supported in a kernel", op)


class Emitter:
    """Writes one kernel's body. `env` maps each value to its representation. Mixed with emit_rows.Rows and
    emit_columns.Columns."""

    # written by emit_rows.py and emit_columns.py
    vec_map: Callable[[Op, Sequence[Any]], None]
    column_map: Callable[[Op, Sequence[Any]], None]
    column_arg: Callable[[Op], None]
    column_reduce: Callable[[Op], None]
    column_lookup: Callable[[Op, Any, Any], None]
    column_draw: Callable[[Op, Any, str], None]
    column_feature: Callable[[Op, str, Any, Nodes], None]

    def __init__(self, captured: dict[Value, Any], sites: list[str], guesses: dict[Value, bool]) -> None:
        self.text = Text()
        self.taken = {
            *PARAMETERS,
            *SIZES,
            *HELPERS,
            "hash_end",
            "b",
            "index",
            "exists",
            "above",
            "node",
            "depth",
            "row",
            "walking",
            "emitted",
            "fault",
            "ended_slot",
            "ended_mass",
            "children",
            "order",
            "width",
            "path",
            "tests",
            "ELEM",
            "k0",
            "k1",
            "state",
            "start",
            "at",
            "inside",
            "split",
            "lo",
            "hi",
            "n",
            "lane",
            "here",
            "child",
            "visited",
            "child_tokens",
            "at_depth",
            "below",
            "depths",
            "height",
            "up",
            "leaf",
            "inner",
            "other",
            "level",
            "back",
        }
        self.env: dict[Value, Any] = dict(captured)
        self.sites, self.guesses = sites, guesses
        self.pool: dict[str, str] = {}  # constants, defined once at the top of the kernel
        self.needs: set[str] = set()
        self.features: list[Feature] = []
        self.slots = 0  # scratch rows
        self.args: dict[str, Value] = {}  # the region's own arguments: depth, p, ...
        self.loops: list[bool] = []  # for every enclosing loop: whether it carries a distribution

    # -- names and constants
    def fresh(self, wish: str) -> str:
        return fresh_name(self.taken, wish)

    def named(self, v: Value, op: Op) -> str:
        return self.fresh(v.name or op.attrs.get("fn") or op.opcode.split(".")[-1])

    def constant(self, value: Any, kind: str) -> Scalar:
        """A constant as a variable at the top of the kernel."""
        if kind == "b":
            text, name = f"tl.full((), {int(value)}, tl.int1)", "yes" if value else "no"
        elif kind == "i":
            text, name = f"tl.full((), {int(value)}, tl.int64)", f"int_{value}".replace("-", "minus_")
        else:
            spelt = repr(float(value)) if isfinite(value) else f'float("{float(value)}")'
            text, name = f"tl.full((), {spelt}, tl.float64)", f"real_{float(value):g}"
            name = name.replace("-", "m").replace(".", "_").replace("+", "")
        if text not in self.pool:
            self.pool[text] = self.fresh(name)
        return Scalar(self.pool[text], kind, value, fixed=True)

    def scalar(self, v: Value, op: Op) -> Scalar:
        """A value as one number: a draw is its token. Raises Unsupported for other values."""
        x = self.env.get(v)
        if isinstance(x, Draw):
            return x.token
        if isinstance(x, Scalar):
            return x
        raise Unsupported(f"`{op.opcode}` of {v.type} is not implemented in a kernel", op)

    def put(self, v: Value, expression: str, kind: str, op: Op) -> None:
        """Assign one number."""
        name = self.named(v, op)
        self.text.line(f"{name} = {expression}")
        self.env[v] = Scalar(name, kind)

    # -- regions and control flow
    def region(self, region: Region) -> list[Any]:
        """Write a region's ops; returns its yields."""
        for op in region.ops:
            self.text.mark(op)
            self.op(op)
        return [self.env[y] for y in region.yields]

    def op(self, op: Op) -> None:
        write: Callable[[Op], None] | None = getattr(self, "op_" + op.opcode.replace(".", "_"), None)
        if write is None:
            raise Unsupported(f"`{op.opcode}` is not implemented in a kernel", op)
        write(op)

    def op_segment(self, op: Op) -> None:
        for r, made in zip(op.results, self.region(op.regions[0]), strict=True):
            self.env[r] = made

    def op_const(self, op: Op) -> None:
        value, t = op.attrs["value"], op.attrs["type"]
        if t.elem == "none":
            self.env[op.result] = Nothing()
            return
        if isinstance(value, list | tuple) or t.elem == "text":
            raise Unsupported(f"a constant of type {t}", op)
        kind = kind_of(t, op)
        self.env[op.result] = self.constant(
            float(Fraction(value)) if isinstance(value, Fraction) else float(value) if kind == "f" else value, kind
        )

    def template(self, v: Value, now: Any, op: Op, *more: Any) -> Any:
        """The variables of a value where branches join. now, more: the values of the branches."""
        if v.type.elem == "none":
            return Nothing()
        if v.type.elem in CHOSEN and not v.type.dims:  # a token may be a draw in one branch
            child = self.guesses.get(v, True)
            return Draw(self.named(v, op), child)
        if v.type.elem == "dist" and not v.type.dims:
            return Row(self.named(v, op))
        if v.type.dims:
            if all(x == now for x in more) and isinstance(now, Column | Children):
                return now
            raise Unsupported("a vector that differs between two branches", op)
        return Scalar(self.named(v, op), kind_of(v.type, op))

    def join(self, into: Any, x: Any, v: Value, op: Op) -> None:
        """Assign a value to the variables of a template."""
        if isinstance(into, Nothing | Column | Children):
            if into != x:
                raise Unsupported("a value that differs between two branches", op)
        elif isinstance(into, Scalar):
            if isinstance(x, Draw):
                x = x.token
            if isinstance(x, Nothing) and into.kind == "i":
                x = self.constant(-1, "i")
            if not isinstance(x, Scalar):
                raise Unsupported(f"{v.type} and nothing join", op)
            self.text.line(f"{into.text} = {x.real() if into.kind == 'f' else x.text}")
        elif isinstance(into, Draw):
            if isinstance(x, Nothing):
                none = self.constant(-1, "i").text
                parts = {"token": none, "node": none, "slot": self.constant(-3, "i").text, "mass": self.one()}
            elif isinstance(x, Draw):
                if into.child and not x.child:
                    self.guesses[v] = False
                    raise Again
                parts = {part: f"{x.name}_{part}" for part in Draw.PARTS}
            elif isinstance(x, Scalar):
                parts = {
                    "token": x.text,
                    "node": self.constant(-1, "i").text,
                    "slot": self.constant(-4, "i").text,
                    "mass": self.one(),
                }
            else:
                raise Unsupported(f"{v.type} is joined with a value that is no token", op)
            if isinstance(x, Scalar) and into.child:
                self.guesses[v] = False
                raise Again
            for part, text in parts.items():
                self.text.line(f"{into.name}_{part} = {text}")
        elif isinstance(into, Row):
            if not isinstance(x, Row):
                raise Unsupported("a loop carries numbers over the vocabulary that are no distribution", op)
            for part in Row.PARTS:
                self.text.line(f"{into.name}_{part} = {x.name}_{part}")

    def one(self) -> str:
        """The number one in the type of rows."""
        text = "tl.full((), 1.0, ELEM)"
        if text not in self.pool:
            self.pool[text] = self.fresh("one")
        return self.pool[text]

    def op_if(self, op: Op) -> None:
        condition = self.scalar(op.operands[0], op)
        into: list[Any] = []
        with self.text.block(f"if {condition.text}:"):
            made = self.region(op.regions[0])
            into = [self.template(r, x, op, x) for r, x in zip(op.results, made, strict=True)]
            for r, name, x in zip(op.results, into, made, strict=True):
                self.join(name, x, r, op)
            if not made:
                self.text.line("pass")
        with self.text.block("else:"):
            made = self.region(op.regions[1])
            for r, name, x in zip(op.results, into, made, strict=True):
                self.join(name, x, r, op)
            if not made:
                self.text.line("pass")
        self.env.update(zip(op.results, into, strict=True))

    def op_for(self, op: Op) -> None:
        lo, hi, *init = op.operands
        if op.attrs.get("lanes"):
            raise Unsupported("lanes", op)
        region, stops = op.regions[0], bool(op.attrs.get("stops"))
        rows = sum(v.type.elem == "dist" for v in init)
        if rows and (rows > 1 or any(self.loops)):
            raise Unsupported("a loop carries more than one distribution", op)  # see Rows.materialised
        into = [self.template(r, self.env[v], op) for r, v in zip(op.results, init, strict=True)]
        for r, name, v in zip(op.results, into, init, strict=True):
            self.join(name, self.env[v], r, op)
        counter, *carried = region.args
        n = self.fresh(counter.name or "i")
        end, going = self.fresh(f"{n}_end"), self.fresh(f"{n}_on")
        self.text.line(f"{n} = {self.scalar(lo, op).text}")
        self.text.line(f"{end} = {self.scalar(hi, op).text}")
        self.text.line(f"{going} = {n} < {end}")
        self.env[counter] = Scalar(n, "i")
        self.env.update(zip(carried, into, strict=True))
        self.loops.append(bool(rows))
        with self.text.block(f"while {going}:"):
            made = self.region(region)
            stop = made.pop(0) if stops else None
            self.together(op, into, made)
            self.text.line(f"{n} += 1")
            self.text.line(f"{going} = {n} < {end}")
            if isinstance(stop, Scalar) and stop.known is not False:
                self.text.line(f"{going} = {going} & ({stop.text} == 0)")
        self.loops.pop()
        self.env.update(zip(op.results, into, strict=True))

    def together(self, op: Op, into: Sequence[Any], made: Sequence[Any]) -> None:
        """Assign an iteration's yields in parallel: a value that another one takes over is read before it is written."""
        saved: list[tuple[Any, Any, Value]] = []
        for i, (r, name, x) in enumerate(zip(op.results, into, made, strict=True)):
            if variables(x) & {v for j, other in enumerate(into) if j != i for v in variables(other)}:
                copy: Any = self.template(r, x, op, x)
                self.join(copy, x, r, op)
                x = copy
            saved.append((name, x, r))
        for name, x, r in saved:
            if x != name:
                self.join(name, x, r, op)

    # -- numbers
    def op_map(self, op: Op) -> None:
        xs = [self.env.get(v) for v in op.operands]
        if any(isinstance(x, Vec | Row) for x in xs):
            self.vec_map(op, xs)
        elif any(isinstance(x, Column | Children) for x in xs):
            self.column_map(op, xs)
        elif op.attrs["fn"] in ("eq", "ne") and any(isinstance(x, Nothing) for x in xs):
            self.none_map(op, xs)
        else:
            text, kind = self.formula(op, [self.scalar(v, op) for v in op.operands])
            self.put(op.result, text, kind, op)

    def none_map(self, op: Op, xs: Sequence[Any]) -> None:
        """x == none: the representation of a draw tells."""
        other = [x for x in xs if not isinstance(x, Nothing)]
        if other and not isinstance(other[0], Draw):
            raise Unsupported("only draws are compared with none", op)
        same = f"({other[0].name}_token < 0)" if other else self.constant(True, "b").text
        self.put(op.result, same if op.attrs["fn"] == "eq" else f"({same} == 0)", "b", op)

    def formula(self, op: Op, xs: Sequence[Any]) -> tuple[str, str]:
        """An elementwise function of numbers (Scalars, or Columns): the expression and its kind."""
        fn = op.attrs["fn"]
        if fn == "not":
            return f"({xs[0].text} == 0)", "b"
        if fn in ("and", "or"):
            return f"({xs[0].text} {'&' if fn == 'and' else '|'} {xs[1].text})", "b"
        if fn == "select":
            real = "f" in (xs[1].kind, xs[2].kind)
            a, c = (x.real() if real else x.text for x in xs[1:])
            return f"tl.where({xs[0].text}, {a}, {c})", "f" if real else xs[1].kind
        real = fn in ("div", "exp", "log", "sqrt", "floor") or any(x.kind == "f" for x in xs)
        args = [x.real() if real else f"{x.text}.to(tl.int64)" if x.kind == "b" else x.text for x in xs]
        if fn in INFIX:
            kind = "b" if fn in ("eq", "ne", "lt", "le", "gt", "ge") else "f" if real else "i"
            return f"({args[0]} {INFIX[fn]} {args[1]})", kind
        if fn == "div":
            return f"ratio({args[0]}, {args[1]})", "f"
        if fn == "mod" and not real:
            return f"((({args[0]} % {args[1]}) + {args[1]}) % {args[1]})", "i"
        if fn == "floor":
            return f"tl.floor({args[0]}).to(tl.int64)", "i"
        if fn in CALLS:
            return "(" + CALLS[fn].format(*args) + ")" if fn == "neg" else CALLS[fn].format(*args), "f" if real else "i"
        raise Unsupported(f"the function {fn}", op)

    def op_as_int(self, op: Op) -> None:
        x = self.scalar(op.operands[0], op)
        self.put(op.result, f"{x.text}.to(tl.int64)" if x.kind != "i" else x.text, "i", op)

    # -- noise
    def op_noise(self, op: Op) -> None:
        kind = op.attrs["kind"]
        numbers = tuple(self.scalar(v, op) for v in op.operands)
        if kind == OUTPUT:
            self.env[op.result] = RuleNoise(kind, self.site(OUTPUT), (), numbers[0] if numbers else None)
        else:
            self.env[op.result] = RuleNoise(kind, self.site(str(op.attrs["site"])), numbers)

    def site(self, name: str) -> int:
        if name not in self.sites:
            self.sites.append(name)
        return self.sites.index(name)

    def noise(self, v: Value, op: Op) -> RuleNoise:
        x = self.env.get(v)
        if not isinstance(x, RuleNoise):
            raise Unsupported("a noise from outside of the rule", op)
        self.needs.add("noise")
        return x

    def keys(self, noise: RuleNoise, op: Op, row: Row | None, name: str) -> str:
        """The five uint32 words of a key, as the arguments of a race or a Bernoulli draw; writes the lines that compute
        them."""
        c0, c1 = self.fresh(f"{name}_c0"), self.fresh(f"{name}_c1")
        self.text.line(f"{c0} = tl.load(words + b * S + {noise.site}).to(tl.uint32)")
        if noise.kind != OUTPUT:
            counters, lane = [c.text for c in noise.counters], self.lane("0")
        elif noise.index is not None:
            if row is None or not row.node:
                raise Unsupported("`as output(index)` of a distribution that is not the evidence", op)
            counters, lane = [noise.index.text], f"hash_end(hashed(tl.full((), 0, tl.uint32), {row.node}), 1)"
        else:
            if row is None or not row.node:
                raise Unsupported("`as output` of a distribution without a position", op)
            self.needs.add("position")
            counters, lane = [self.position(row)], self.lane("")
        state = "state"
        for c in counters:
            state = f"hashed({state}, {c})"
        self.text.line(f"{c1} = hash_end({state}, PREFIX + {len(counters)})")
        return f"{c0}, {c1}, {lane}, k0, k1"

    def lane(self, which: str) -> str:
        """The word c2 of stream (0,) or of no stream: a constant."""
        from decgraph.runtime.noise import hash32

        text = f"tl.full((), {hash32((0,) if which else ())}, tl.uint32)"
        if text not in self.pool:
            self.pool[text] = self.fresh("lane_0" if which else "no_lane")
        return self.pool[text]

    def position(self, row: Row) -> str:
        """The position of a token drawn from evidence: the root's position plus the node's depth, or the node's own."""
        if row.node not in ("node", "here"):
            raise Unsupported("the position of a node other than the current one")
        return "here_position" if row.node == "here" else "node_position"

    # -- the children
    def op_len(self, op: Op) -> None:
        x = self.env.get(op.operands[0])
        if isinstance(x, Children):
            self.put(op.result, "tl.sum(children.to(tl.int64))", "i", op)
        elif isinstance(x, Column):
            self.put(op.result, f"tl.sum(({x.mask or 'exists'}).to(tl.int64))", "i", op)
        else:
            raise Unsupported(f"the length of {op.operands[0].type}", op)

    def child_at(self, op: Op, node: str, name: str) -> None:
        """A draw for the child at a node id (int64; not below N: none)."""
        t = self.text
        t.line(f"{name}_node = {node}")
        t.line(f"{name}_node = tl.where({name}_node < N, {name}_node, -1)")
        t.line(f"{name}_token = tl.load(tokens + b * N + {name}_node, mask={name}_node >= 0, other=-1)")
        t.line(f"{name}_slot = -16 - 2 * {name}_node")
        t.line(f"{name}_mass = {self.one()}")
        self.env[op.result] = Draw(name, child=True)


__all__ = ["Again", "Emitter", "HELPERS", "PARAMETERS", "SIZES", "kind_of"]
