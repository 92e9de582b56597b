"""Reads the text of a module (`ir.printing` says how it looks). Comments run from `//` to the line's end.

What a person writes by hand may leave out the types of results: they are then taken from the op table.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NoReturn, TypeVar

from decgraph.errors import DecError
from decgraph.ir.opdef import Attribute, OpError
from decgraph.ir.table import lookup
from decgraph.ir.types import Dim, Type, TypeError_, parse_dim, parse_type
from decgraph.ir.values import NOWHERE, Claim, Function, Loc, Module, Op, Param, Region, StateDecl, Value

SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
WORD = re.compile(r"[^\W\d]\w*")
QUOTED = r'"(?:[^"\\\n]|\\.)*"'
STRING = re.compile(QUOTED)
OPCODE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
VALUE = re.compile(rf"%(?:(?P<number>\d+)|(?P<name>%?[^\W\d]\w*|{QUOTED}))(?:\.(?P<copy>\d+))?(?![\w.])")
NUMBER = re.compile(r"-?(?:inf\b|nan\b|\d+/\d+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)")
PLACE = re.compile(
    rf"loc\((?:(?P<path>[\w./+@<>~-]*)|(?P<quoted>{QUOTED})):(?P<line>\d+):(?P<column>\d+)"
    r"(?:-(?P<end>\d+):(?P<ending>\d+))?\)"
)
TYPE_PIECE = re.compile(rf'{QUOTED}|<=|[<>\[\]]|[^"<>\[\]\n]+')
DIM = re.compile(rf"[^\W\d]\w*(?:\.(?:{QUOTED}|[\w.:/$#~-]+))?(?:<=-?\d+)?")
CONSTANTS = {"none": None, "true": True, "false": False}

T = TypeVar("T")


class IRTextError(DecError):
    """Text that is not a module: `line` and `column` (from 1) say where, the message what was expected."""

    def __init__(self, message: str, line: int, column: int, excerpt: str = "", *, hint: str = "") -> None:
        self.message, self.line, self.column = message, line, column
        width = len(str(line))
        shown = [f"error: {message}", f"{' ' * width}--> IR text, line {line}, column {column}"]
        if excerpt:
            shown += [f"{line} | {excerpt}", f"{' ' * width} | {' ' * (column - 1)}^"]
        super().__init__("\n".join(shown), hint=hint)


class Parser:
    """A recursive-descent reader over one text; `scopes` holds the visible values, innermost last."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.scopes: list[dict[str, Value]] = [{}]
        self.skip()

    # -- characters
    def skip(self) -> None:
        hit = SPACE.match(self.text, self.at)
        self.at = hit.end() if hit else self.at

    def ended(self) -> bool:
        return self.at >= len(self.text)

    def fail(self, message: str, at: int | None = None, hint: str = "") -> NoReturn:
        at = min(self.at if at is None else at, len(self.text))
        start = self.text.rfind("\n", 0, at) + 1
        excerpt = self.text[start:].split("\n", 1)[0]
        raise IRTextError(message, self.text.count("\n", 0, at) + 1, at - start + 1, excerpt, hint=hint)

    def seen(self) -> str:
        """What stands here, for messages."""
        hit = re.compile(r"[%!]?\w+|\S").match(self.text, self.at)
        return f"`{hit.group()}`" if hit else "the end of the text"

    def peek(self, symbol: str) -> bool:
        if not self.text.startswith(symbol, self.at):
            return False
        after = self.text[self.at + len(symbol) : self.at + len(symbol) + 1]
        return not (symbol[-1].isalnum() and (after.isalnum() or after == "_"))

    def accept(self, symbol: str) -> bool:
        """Step over a symbol or keyword if it stands here."""
        if not self.peek(symbol):
            return False
        self.at += len(symbol)
        self.skip()
        return True

    def expect(self, symbol: str, where: str = "") -> None:
        if not self.accept(symbol):
            self.fail(f"expected `{symbol}`{' ' + where if where else ''}, got {self.seen()}")

    def match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        hit = pattern.match(self.text, self.at)
        if not hit:
            self.fail(f"expected {what}, got {self.seen()}")
        self.at = hit.end()
        self.skip()
        return hit

    def several(self, close: str, one: Callable[[], T], where: str) -> list[T]:
        """What `one` reads, between commas (one may trail), up to and including `close`."""
        out = []
        while not self.accept(close):
            out.append(one())
            if not self.accept(","):
                self.expect(close, where)
                break
        return out

    # -- names, types, data
    def string(self) -> str:
        start = self.at
        try:
            return str(json.loads(self.match(STRING, "a string in double quotes").group()))
        except json.JSONDecodeError as error:
            self.fail(f"not a string: {error.msg}", start)

    def name(self, what: str, pattern: re.Pattern[str] = WORD) -> str:
        return self.string() if self.peek('"') else self.match(pattern, what).group()

    def type(self) -> Type:
        start = self.at
        end = self.match(WORD, "a type such as token<V>[k<=4]").end()
        for opening, closing in ("<>", "[]"):
            if self.text.startswith(opening, end):
                depth = 0
                while True:
                    piece = TYPE_PIECE.match(self.text, end)
                    if not piece:
                        self.fail(f"a type's `{opening}` is not closed", start)
                    end = piece.end()
                    depth += {opening: 1, closing: -1}.get(piece.group(), 0)
                    if depth == 0:
                        break
        try:
            found = parse_type(self.text[start:end])
        except TypeError_ as error:
            self.fail(str(error), start)
        self.at = end
        self.skip()
        return found

    def dim(self) -> Dim:
        start = self.at
        try:
            return parse_dim(self.match(DIM, "a dimension such as nodes.t<=31").group())
        except TypeError_ as error:
            self.fail(str(error), start)

    def number(self) -> int | float | Fraction:
        at, text = self.at, self.match(NUMBER, "a number").group()
        try:
            if "/" in text:
                return Fraction(text)
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        except (ValueError, ZeroDivisionError) as error:
            self.fail(f"not a number: {error}", at)

    def data(self) -> Attribute:
        """An attribute's value."""
        if self.peek('"'):
            return self.string()
        if self.accept("!"):
            return self.type()
        if self.accept("["):
            return self.several("]", self.data, "at the end of a list")
        if self.accept("{"):
            return self.table()
        if self.accept("("):
            return tuple(self.several(")", self.data, "at the end of a tuple"))
        if self.accept("dim"):
            return self.dim()
        for word, value in CONSTANTS.items():
            if self.accept(word):
                return value
        if NUMBER.match(self.text, self.at):
            return self.number()
        self.fail(f"expected a constant, a !type, a list or a tuple, got {self.seen()}")

    def table(self) -> Mapping[str, Attribute]:
        at = self.at
        try:
            return dict(self.several("}", self.pair, "at the end of a table"))
        except TypeError:
            self.fail("a key of a table is a constant or a tuple of constants", at)

    def pair(self) -> tuple[Any, Attribute]:
        key = self.data()
        self.expect(":", "after a key")
        return key, self.data()

    def loc(self) -> Loc:
        if not self.peek("loc"):
            return NOWHERE
        hit = self.match(PLACE, "a place: loc(path:line:column)")
        path = json.loads(hit["quoted"]) if hit["quoted"] else hit["path"]
        return Loc(path, int(hit["line"]), int(hit["column"]), int(hit["end"] or 0), int(hit["ending"] or 0))

    # -- values
    def define(self, type: Type | None = None) -> tuple[str, str, int]:
        """The written name of a value being defined, its source name, and where it stands."""
        at = self.at
        hit = self.match(VALUE, "a value such as %x")
        name = hit["name"] or ""
        return hit.group(), json.loads(name) if name.startswith('"') else name, at

    def bind(self, written: str, value: Value, at: int) -> Value:
        if written in self.scopes[-1]:
            self.fail(f"{written} is defined twice", at, "number the second one: " + written + ".1")
        self.scopes[-1][written] = value
        return value

    def argument(self) -> Value:
        written, name, at = self.define()
        self.expect(":", "and a type")
        return self.bind(written, Value(self.type(), name), at)

    def use(self) -> Value:
        at, written = self.at, self.match(VALUE, "a value such as %x").group()
        for scope in reversed(self.scopes):
            if written in scope:
                return scope[written]
        known = [name for scope in self.scopes for name in scope]
        near = difflib.get_close_matches(written, known, 3)
        self.fail(f"{written} is not defined here", at, f"did you mean {', '.join(near)}?" if near else "")

    # -- ops and regions
    def block(self, args: tuple[Value, ...] = ()) -> Region:
        """`{` ops, what is yielded, `}`; the scope is opened by the caller."""
        self.expect("{", "to open a region")
        ops: list[Op] = []
        yields: tuple[Value, ...] = ()
        while not self.accept("}"):
            if self.accept("yield"):
                yields = (self.use(), *[self.use() for _ in iter(lambda: self.accept(","), False)])
                self.expect("}", "after yield, which ends a region")
                break
            if self.ended():
                self.fail("a region is not closed: expected `}`")
            ops.append(self.op())
        return Region(args, tuple(ops), yields)

    def region(self) -> Region:
        """`(args) {...}` or `{...}`, in a scope of its own."""
        self.scopes.append({})
        args = self.several(")", self.argument, "after the region's arguments") if self.accept("(") else []
        region = self.block(tuple(args))
        self.scopes.pop()
        return region

    def op(self) -> Op:
        results: list[tuple[str, str, int]] = []
        types: list[Type] = []
        while self.peek("%"):
            results.append(self.define())
            if self.accept(":"):
                types.append(self.type())
            if not self.accept(","):
                self.expect("=", "after the results")
                break
        if types and len(types) != len(results):
            self.fail("give every result a type, or none of them (they are then inferred)", results[0][2])
        at = self.at
        opcode = self.name('an op such as `map(%a, %b, fn = "add")`', OPCODE)
        try:
            row = lookup(opcode)
        except OpError as error:
            self.fail(str(error), at, error.hint)
        operands, attrs = self.call(opcode)
        loc = self.loc()
        regions = []
        while self.peek("{") or self.peek("("):
            regions.append(self.region())
        if results and not types:
            try:
                types = list(row.type(tuple(v.type for v in operands), attrs, tuple(regions)))
            except (OpError, LookupError, AttributeError, TypeError) as error:
                self.fail(f"{opcode}: {error}", at, getattr(error, "hint", ""))
            if len(types) != len(results):
                self.fail(f"{opcode} has {len(types)} results, {len(results)} are named", results[0][2])
        values = [self.bind(written, Value(t, name), where) for (written, name, where), t in zip(results, types, strict=True)]
        return Op(opcode, tuple(operands), attrs, tuple(regions), tuple(values), loc)

    def call(self, what: str) -> tuple[list[Value], dict[str, Any]]:
        """`(%a, %b, name = data, ...)`."""
        operands: list[Value] = []
        attrs: dict[str, Any] = {}

        def one() -> None:
            if self.peek("%"):
                if attrs:
                    self.fail("operands stand before attributes")
                operands.append(self.use())
                return
            at, key = self.at, self.name('an operand such as %x or an attribute such as fn = "add"')
            if key in attrs:
                self.fail(f"attribute {key} is given twice", at)
            self.expect("=", f"after the attribute {key}")
            attrs[key] = self.data()

        self.expect("(", f"after {what}")
        self.several(")", one, f"at the end of {what}(...)")
        return operands, attrs

    # -- functions and modules
    def param(self) -> Param:
        value = self.argument()
        low = high = None
        default: Any = None  # the verifier sees to it that it is a constant of the type
        if self.accept("in"):
            low = None if self.peek("..") else self.number()
            self.expect("..", "in a range")
            high = self.number() if NUMBER.match(self.text, self.at) else None
        has_default = self.accept("=")
        if has_default:
            default = self.data()
        scope = self.name("a scope") if self.accept("per") else "sequence"
        return Param(value, low, high, default, has_default, scope)

    def function(self) -> tuple[str, Function]:
        self.scopes = [{}]
        key = self.name("a function's name")
        self.expect("(", "before the parameters")
        params = tuple(self.several(")", self.param, "after the parameters"))
        loc = self.loc()
        self.expect("{", "to open the function")
        name, doc, body = key, "", None
        policies: list[tuple[str, str]] = []
        states: list[StateDecl] = []
        claims: list[Claim] = []
        while not self.accept("}"):
            if body is None and self.accept("name"):
                name = self.string()
            elif body is None and self.accept("doc"):
                doc = self.string()
            elif body is None and self.accept("policy"):
                what = self.string()
                self.expect("by", "after what the policy is for")
                policies.append((what, self.string()))
            elif body is None and self.accept("state"):
                states.append(self.state())
            elif body is None and self.accept("claim"):
                claims.append(self.claim())
            elif body is None and self.accept("body"):
                own = not self.peek("(")
                body = self.region()
                if own:
                    body = Region(tuple(p.value for p in params), body.ops, body.yields)
            else:
                self.fail(
                    "expected `}` after the body"
                    if body is not None
                    else f"expected name, doc, policy, state, claim or body, got {self.seen()}"
                )
        if body is None:
            self.fail(f"function {key} has no body")
        return key, Function(name, params, tuple(states), body, tuple(claims), doc, loc, tuple(policies))

    def state(self) -> StateDecl:
        name = self.name("a state's name")
        self.expect(":", "and the state's type")
        type = self.type()
        self.expect("per", "and the state's scope")
        return StateDecl(name, type, self.name("a scope"), self.region())

    def claim(self) -> Claim:
        at, kind = self.at, self.name("a kind of claim")
        operands, fields = self.call(kind)
        unknown = set(fields) - {"text", "spec", "args", "mode", "when", "setting", "models", "bound"}
        if operands or unknown:
            self.fail(
                "a claim takes text, spec, args, mode, when, setting, models and bound"
                + (f", not {', '.join(sorted(unknown))}" if unknown else ", and no operands"),
                at,
            )
        loc = self.loc()
        region = self.region() if self.peek("{") or self.peek("(") else None
        return Claim(kind, fields.pop("text", ""), **fields, region=region, loc=loc)

    def module(self) -> Module:
        at = self.at
        self.expect("module", 'at the start: module(main = "...")')
        operands, head = self.call("module")
        if operands or set(head) - {"main", "path"} or not isinstance(head.get("main"), str):
            self.fail('a module begins with module(main = "name") or with its path too: path = "file"', at)
        externs: dict[str, tuple[tuple[Type, ...], Type]] = {}
        functions: dict[str, Function] = {}
        while not self.ended():
            at = self.at
            if self.accept("extern"):
                name = self.name("an extern's name")
                self.expect("(", "before the types it takes")
                params = tuple(self.several(")", self.type, "after the types it takes"))
                self.expect("->", "and the type it returns")
                externs[name] = (params, self.type())
            elif self.accept("func"):
                key, function = self.function()
                if key in functions:
                    self.fail(f"function {key} is defined twice", at)
                functions[key] = function
            else:
                self.fail(f"expected func or extern, got {self.seen()}")
        return Module(functions, head["main"], head.get("path", ""), externs)
