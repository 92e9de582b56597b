"""The verifier: what every module promises, checked after lowering and after every pass.

Values are defined once and used where they are visible; operands, attributes, regions and results are those
that the op table says; loops carry what their bodies yield; noise is keyed by every loop around it; names of
states, externs, callees and specifications are names of something. A failure is a bug of ours, so it is an
InternalError that shows the offending op among its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

from decgraph.errors import InternalError
from decgraph.ir.opdef import OpDef, OpError
from decgraph.ir.printing import Printer
from decgraph.ir.settings import names
from decgraph.ir.table import lookup
from decgraph.ir.types import Type, join
from decgraph.ir.values import NOWHERE, Claim, Function, Module, Op, Region, Value
from decgraph.ir.walk import EXITS

AROUND = 3
"""How many lines before and after the offending op a message shows."""

COUNTED = ("for", "while", "each", "lanes", "tree.walk")
"""Ops whose regions run many times; the first argument of each says which time."""

CLAIM_KINDS = ("refines", "ensures", "keeps_support", "calls", "remasked")
SCOPES = ("sequence", "session", "batch")


def verify(module: Module, level: int = 1) -> None:
    """Raise InternalError unless `module` keeps what this file promises.

    Level 2 also wants every attribute to be one that the op table names, and prints the module, reads it back
    and compares.
    """
    Verifier(module, strict=level >= 2).module_()
    if level >= 2:
        _round_trip(module)


def fits(got: Type, wanted: Type) -> bool:
    """Whether a value of type `got` may stand where `wanted` is declared: an int for a real, a draw for a
    token."""
    return join(got, wanted) == wanted


def unbounded(t: Type) -> Type:
    """The type without the bounds of its dimensions (and of a list)."""
    of = tuple(unbounded(a) if isinstance(a, Type) else a for a in t.of)
    if t.elem == "list":
        of = (*of[:1], -1)
    return Type(t.elem, of, tuple(replace(d, bound=None) for d in t.dims))


def _round_trip(module: Module) -> None:
    from decgraph.ir.text import IRTextError, difference, parse_module, print_module

    text = print_module(module, locs=True)
    try:
        again = parse_module(text)
    except IRTextError as error:
        raise InternalError(f"the text of this module does not read back\n{error}") from None
    if print_module(again, locs=True) != text or difference(module, again):
        raise InternalError(f"the text of this module reads back as another\n{difference(module, again)}")


class Verifier:
    """Checks one module; `defined` holds every value met so far."""

    def __init__(self, module: Module, *, strict: bool = False) -> None:
        self.module, self.strict = module, strict
        self.defined: set[Value] = set()
        self.key = ""
        self.function: Function | None = None

    # -- failures
    def fail(self, message: str, op: Op | None = None) -> NoReturn:
        text = f"the IR is not valid: {op.opcode + ': ' if op else ''}{message}"
        if self.function is not None:
            text += f"\n  in function {self.key}"
            if op is not None:
                text += f", {op.loc}" if op.loc != NOWHERE else ""
                text += "\n" + self.context(op)
        raise InternalError(text)

    def context(self, op: Op) -> str:
        """The op with a few lines around it, as `print_module` shows them."""
        assert self.function is not None
        printer = Printer()
        try:
            printer.function(self.key, self.function)
        except InternalError as error:  # an attribute without text is an offence of its own
            return f"  ({error.args[0]})"
        at = printer.line_of.get(op, 0)
        lines = enumerate(printer.lines[max(0, at - AROUND) : at + AROUND + 1], max(0, at - AROUND))
        return "\n".join(f"{'>' if n == at else ' '} {n + 1:4} | {line}" for n, line in lines)

    # -- modules and functions
    def module_(self) -> None:
        known = ", ".join(self.module.functions)
        if self.module.main not in self.module.functions and (known or self.module.main):  # libraries have none
            self.fail(f"main is {self.module.main!r}, which is not one of its functions ({known})")
        for key, function in self.module.functions.items():
            self.key, self.function = key, function
            if function.name != key:
                self.fail(f"function {function.name} is filed under {key}")
            self.function_(function)

    def function_(self, f: Function) -> None:
        self.unique([p.name for p in f.params], "parameter")
        self.unique([s.name for s in f.states], "state")
        params = tuple(p.value for p in f.params)
        for value in params:
            self.define(value, None)
        visible = set(params)
        for scope, what in [*((p.scope, p.name) for p in f.params), *((s.scope, s.name) for s in f.states)]:
            if scope not in SCOPES:
                self.fail(f"{what} has scope {scope!r}, not one of {', '.join(SCOPES)}")
        for state in f.states:
            self.region(state.init, visible, (), None)
            if len(state.init.yields) != 1:
                self.fail(f"the start of state {state.name} yields {len(state.init.yields)} values, not one")
        for claim in f.claims:
            self.claim(claim, f, visible)
        if f.body.args not in ((), params):
            self.fail("the arguments of the body are not the parameters")
        self.region(Region((), f.body.ops, f.body.yields), visible, (), None)
        self.exits(f.body, None, None)

    def exits(self, region: Region, loop: Op | None, rule: Op | None) -> None:
        """What ends a loop or a rule stands last in a branch inside it, and has the values that it ends with."""
        for n, op in enumerate(region.ops):
            if op.opcode in EXITS:
                around = loop if op.opcode == "break" else rule
                if around is None or n + 1 < len(region.ops):
                    self.fail("does not stand at the end of a branch of what it ends", op)
                wanted = [v.type for v in around.results] if around is loop else [v.type for v in around.regions[0].yields]
                if len(wanted) != len(op.operands):
                    self.fail(f"has {len(op.operands)} values, not {len(wanted)}", op)
                for v, want in zip(op.operands, wanted, strict=True):
                    if not fits(unbounded(v.type), unbounded(want)):
                        self.fail(f"has a value {v!r} for one of type {want}", op)
            for inner in op.regions:
                if op.opcode in ("for", "while"):
                    self.exits(inner, op if inner is op.regions[-1] else None, rule)
                elif op.opcode == "if":
                    self.exits(inner, loop, rule)
                else:
                    self.exits(inner, None, op if op.opcode == "tree.walk" else None)

    def claim(self, claim: Claim, f: Function, visible: set[Value]) -> None:
        if claim.kind not in CLAIM_KINDS:
            self.fail(f"a claim is {claim.kind!r}, not one of {', '.join(CLAIM_KINDS)}")
        if claim.kind == "refines":
            spec = self.module.functions.get(claim.spec)
            if spec is None:
                self.fail(f"a claim refers to {claim.spec!r}, which is not a function of this module")
            self.arguments(claim.spec, spec, [name for name, _ in claim.args], "the claim")
        for name in claim.models:
            if name not in {p.name for p in f.params}:
                self.fail(f"a claim names {name}, which is not a parameter")
        for name in (*names(claim.setting), *names(claim.bound)):
            if name not in {p.name for p in f.params if p.value.type.elem != "model"}:
                self.fail(f"a claim reads {name}, which is no parameter")
        if claim.region is not None:
            self.region(claim.region, visible, (), None)

    def arguments(self, callee: str, function: Function, names: list[str], what: str, op: Op | None = None) -> None:
        """Arguments by name: only the callee's parameters, each once, and all that have no default."""
        known = {p.name for p in function.params}
        self.unique(names, f"argument of {callee}", op)
        if extra := [n for n in names if n not in known]:
            self.fail(f"{what} gives {callee} {', '.join(extra)}, which it does not take", op)
        if missing := [p.name for p in function.params if not p.has_default and p.name not in names]:
            self.fail(f"{what} does not give {callee} its {', '.join(missing)}", op)

    def unique(self, names: list[str], what: str, op: Op | None = None) -> None:
        for name in names:
            if names.count(name) > 1:
                self.fail(f"{what} {name} appears twice", op)

    # -- regions and ops
    def define(self, value: Value, op: Op | None) -> None:
        if value in self.defined:
            self.fail(f"{value!r} is defined a second time", op)
        self.defined.add(value)

    def region(self, region: Region, visible: set[Value], counters: tuple[Value, ...], owner: Op | None) -> None:
        """A region sees what is visible around it; nothing that it defines is visible after it."""
        inside = set(visible)
        for value in region.args:
            self.define(value, owner)
            inside.add(value)
        for op in region.ops:
            self.op(op, inside, counters)
            inside.update(op.results)
        self.seen(region.yields, inside, owner, "yields")

    def seen(self, values: Iterable[Value], visible: set[Value], op: Op | None, what: str) -> None:
        for n, value in enumerate(values):
            if value not in visible:
                why = "is defined in a region that does not reach here" if value in self.defined else "is not defined before"
                self.fail(f"{what} {n} ({value!r}) {why}", op)

    def op(self, op: Op, visible: set[Value], counters: tuple[Value, ...]) -> None:
        try:
            row = lookup(op.opcode)
        except OpError as error:
            self.fail(f"{error}{'; ' + error.hint if error.hint else ''}", op)
        self.seen(op.operands, visible, op, "operand")
        self.attributes(op, row)
        self.arity(op, row)
        for region in op.regions:
            counted = op.opcode in COUNTED and region.args
            self.region(region, visible, (*counters, region.args[0]) if counted else counters, op)
        self.types(op, row)
        self.carried(op)
        self.ends(op)
        self.keys(op, counters)
        self.names(op)
        for value in op.results:
            self.define(value, op)

    def attributes(self, op: Op, row: OpDef) -> None:
        if missing := [a for a in row.required if a not in op.attrs]:
            self.fail(f"attribute {', '.join(missing)} is missing", op)
        known = {a.rstrip("?") for a in row.attrs}
        if self.strict and (unknown := [a for a in op.attrs if a not in known]):
            legal = ", ".join(row.attrs) or "none"
            self.fail(f"attribute {', '.join(unknown)} is not one of the op table ({legal})", op)

    def arity(self, op: Op, row: OpDef) -> None:
        """As many regions, with as many arguments of such types, as the op table says."""
        if row.regions is None:
            if op.regions:
                self.fail(f"takes no regions, has {len(op.regions)}", op)
            return
        try:
            wanted = row.regions(tuple(v.type for v in op.operands), op.attrs)
        except (OpError, LookupError, AttributeError, TypeError, ValueError) as error:
            self.fail(f"its operands do not say what its regions take: {error!r}", op)
        if len(wanted) != len(op.regions):
            self.fail(f"has {len(op.regions)} regions, not {len(wanted)}", op)
        for n, (types, region) in enumerate(zip(wanted, op.regions, strict=True)):
            if len(types) != len(region.args):
                self.fail(f"region {n} has {len(region.args)} arguments, not {len(types)}", op)
            for want, arg in zip(types, region.args, strict=True):
                if not fits(unbounded(want), unbounded(arg.type)):
                    self.fail(f"region {n} has an argument {arg!r} for a value of type {want}", op)

    def types(self, op: Op, row: OpDef) -> None:
        operands = tuple(v.type for v in op.operands)
        try:
            results = row.type(operands, op.attrs, op.regions)
        except OpError as error:
            self.fail(f"{error}{' (' + error.hint + ')' if error.hint else ''}", op)
        except (LookupError, AttributeError, TypeError, ValueError) as error:
            shown = ", ".join(map(str, operands)) or "nothing"
            self.fail(f"its type rule cannot take {shown} with these attributes: {error!r}", op)
        if len(results) != len(op.results):
            self.fail(f"has {len(op.results)} results, not {len(results)}", op)
        for n, (got, value) in enumerate(zip(results, op.results, strict=True)):
            if not fits(got, value.type):
                self.fail(f"result {n} is declared {value.type}; its operands give {got}", op)

    def carried(self, op: Op) -> None:
        """The values that a loop's body yields are those that its next iteration and its condition take."""
        if op.opcode not in ("for", "while"):
            return
        body = op.regions[-1]
        yields = body.yields[1:] if op.attrs.get("stops") else body.yields
        for arg, value in zip(body.args[1:], yields, strict=True):
            if not fits(unbounded(value.type), unbounded(arg.type)):
                self.fail(f"the body takes {arg!r} and yields {value!r} for it", op)
        for cond, arg in zip(op.regions[0].args, body.args, strict=True):
            if unbounded(cond.type) != unbounded(arg.type):
                self.fail(f"the condition takes {cond!r} where the body takes {arg!r}", op)

    def ends(self, op: Op) -> None:
        """A loop that is said to end with the text has that for its condition."""
        if op.opcode != "while" or op.attrs.get("bound") != "done":
            return
        made = {v: o for o in op.regions[0].ops for v in o.results}
        asked = made.get(op.regions[0].yields[0]) if op.regions[0].yields else None
        done = made.get(asked.operands[0]) if asked is not None and asked.attrs.get("fn") == "not" else None
        if done is None or done.opcode != "done":
            self.fail('has bound = "done", and another condition than `not done`', op)

    def keys(self, op: Op, counters: tuple[Value, ...]) -> None:
        """Noise in a loop is keyed by its iteration, outermost loop first; else every iteration would read the
        same."""
        if op.opcode == "noise" and op.attrs["kind"] == "output":
            if len(op.operands) > 1:
                self.fail("the output stream takes at most an index", op)
            return
        if op.opcode not in ("noise", "run"):
            return
        left = iter(op.operands)
        for counter in counters:
            if not any(value is counter for value in left):
                self.fail(f"{counter!r}, the counter of a loop around it, is not among its keys in order", op)

    def names(self, op: Op) -> None:
        """States, externs and callees are names of something."""
        assert self.function is not None
        if op.opcode in ("state.read", "state.write"):
            if op.attrs["state"] not in {s.name for s in self.function.states}:
                self.fail(f"no state {op.attrs['state']} is declared", op)
        elif op.opcode == "extern":
            declared = self.module.externs.get(op.attrs["extern"])
            if declared != (tuple(op.attrs["params"]), op.attrs["returns"]):
                self.fail(f"extern {op.attrs['extern']} is not declared with these types", op)
        elif op.opcode == "run":
            callee = self.module.functions.get(op.attrs["callee"])
            if callee is None:
                self.fail(f"runs {op.attrs['callee']!r}, which is not a function of this module", op)
            self.arguments(op.attrs["callee"], callee, list(op.attrs["args"]), "it", op)
