"""Numbers and lengths. What an op's meaning says of them is linear: atoms `form = 0`, `form >= 0` or `form > 0` over the names of
values, `len` of vectors, `prompt`, `room` and the lengths of contexts; of a vector the name stands for each element. Whether
another atom follows, the certificate shows: multipliers with which atoms and its opposite add up to a contradiction. Where all
symbols of a sum are whole numbers, it is rounded. A real number takes part only where it is finite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from math import floor, gcd, lcm
from typing import TYPE_CHECKING, Any

from decgraph.check.certificate.data import Fact, Refused
from decgraph.ir.values import Constant, Op, Param, Value

if TYPE_CHECKING:
    from decgraph.check.certificate.following import Pass

Form = dict[str, Fraction]
"""A sum of symbols with factors; its constant stands at ""."""
Atom = tuple[Form, str]
INF = float("inf")
NEGATED = {"ge": "lt", "gt": "le", "le": "gt", "lt": "ge"}


def plus(a: Form, b: Form, factor: Fraction | int = 1) -> Form:
    out = {s: a.get(s, Fraction(0)) + factor * b.get(s, Fraction(0)) for s in {*a, *b}}
    return {s: f for s, f in out.items() if f}


def of(x: Any) -> Form:
    return {"": Fraction(str(x))} if x else {}


def text(form: Form, relation: str) -> str:
    return " + ".join(f"{f} {s}".strip() for s, f in sorted(form.items())) + f" {relation} 0"


class Numbers:
    """What is known of numbers at the place where the pass stands."""

    def __init__(self, k: Pass, condition: tuple[Any, ...]) -> None:
        self.k, self.condition = k, condition
        self.known: dict[str, Atom] = {
            "prompt": (plus({"prompt": Fraction(1)}, of(-1)), ">="),
            "room": (plus({"room": Fraction(1)}, of(-1)), ">="),
            "start": ({"context 0": Fraction(1), "prompt": Fraction(-1)}, "=" if k.certificate.claim else ">="),
        }
        self.whole = {"prompt", "room", "context 0"}
        self.compared: dict[Value, tuple[str, Form]] = {}
        self.shares: set[Value] = set()
        self.ranges: dict[Value, tuple[Any, Any]] = {}
        self.finite: set[str] = set()
        self.outside: list[dict[str, Atom]] = []

    # -- what is asked
    def prove(self, at: Op, form: Form, relation: str = ">=") -> bool:
        """Whether an atom follows, by the multipliers that the certificate gives for it."""
        if not set(form) - {""}:
            return form.get("", 0) > 0 or relation == ">=" and not form
        proof = self.proof(f"{self.place(at)}: {text(form, relation)}", form, relation)
        steps = {**self.known, "goal": (plus({}, form, -1), ">" if relation == ">=" else ">=")}
        for n, parts in enumerate(proof or ()):
            total, strict = {}, False
            for name, factor in parts:
                x, how = Fraction(factor), steps[name][1]
                if x < 0 and how != "=":
                    raise Refused(at, f"a multiplier below 0 in the proof of {text(form, relation)}")
                total, strict = plus(total, steps[name][0], x), strict or how == ">"
            steps[f"step {n}"] = self.tight(total, strict)
            if not set(steps[f"step {n}"][0]) - {""}:
                left = steps[f"step {n}"][0].get("", 0)
                return left < 0 or left == 0 and steps[f"step {n}"][1] == ">"
        return False

    def proof(self, key: str, form: Form, relation: str) -> Any:
        return self.k.certificate.numbers.get(key)

    def place(self, at: Op) -> str:
        return self.k.names[at.results[0]] if at.results else self.k.loop_names.get(at, at.opcode)

    def tight(self, form: Form, strict: bool) -> Atom:
        """Of whole numbers with what that allows: 2a >= 1 is a >= 1, and a > 1 is a >= 2."""
        symbols = {s: f for s, f in form.items() if s}
        if not symbols or not all(s in self.whole for s in symbols):
            return form, ">" if strict else ">="
        scale = Fraction(lcm(*(f.denominator for f in symbols.values())), gcd(*(f.numerator for f in symbols.values())))
        c = form.get("", Fraction(0)) * scale
        return {**{s: f * scale for s, f in symbols.items()}, **of(-floor(-c) - 1 if strict else floor(c))}, ">="

    def decided(self, at: Op, v: Value) -> bool | None:
        known = self.k.constants.get(v)
        return known if isinstance(known, bool) else None

    def positive(self, at: Op, v: Value, least: int | None = None) -> bool:
        """Whether a number, or each of a vector, is above 0; or no less than a number."""
        form = self.form(v)
        return form is not None and self.prove(at, plus(form, of(-(least or 0))), ">" if least is None else ">=")

    def empty(self, at: Op, v: Value) -> bool:
        return self.prove(at, plus({}, self.length(v), -1))

    def single(self, at: Op) -> bool:
        length = self.length(at.result)
        return self.prove(at, plus(length, of(-1))) and self.prove(at, plus(of(1), length, -1))

    def low(self, v: Value) -> Any:
        return self.range(v)[0]

    def range(self, v: Value) -> tuple[Any, Any]:
        known = self.k.constants.get(v)
        if isinstance(known, int | float | Fraction) and not isinstance(known, bool):
            return (known, known)
        return (0, 1) if v in self.shares else self.ranges.get(v, (-INF, INF))

    def iterations(self, op: Op) -> int | None:
        """0 or 1, if a `for` loop is known to have no more."""
        low, high = (self.form(v) for v in op.operands[:2])
        if low is None or high is None or any(v.type.elem != "int" for v in op.operands[:2]):
            return None
        if self.prove(op, plus(low, high, -1)):
            return 0
        ends, more = any(op.attrs.get(name) for name in ("stops", "fills")), plus(plus(high, low, -1), of(-1))
        return 1 if not ends and self.prove(op, more) and self.prove(op, plus({}, more, -1)) else None

    def piece(self, op: Op, place: Fact | None) -> Fact | None:
        """The prompt, the committed text, or its end behind the prompt."""
        field = op.attrs["field"]
        if op.opcode == "request":
            return ("piece", "start", "prompt") if field == "prompt" else None
        if place is None or place[0] != "context" or place[2]:
            return None
        if field == "last":
            form, behind = self.form(op.operands[1]), {f"context {place[1]}": Fraction(1), "prompt": Fraction(-1)}
            exact = form is not None and all(self.prove(op, plus({}, plus(form, behind, -1), s)) for s in (1, -1))
            return ("piece", "prompt", ("context", place[1])) if exact else None
        return ("piece", "start", ("context", place[1])) if field == "path" else None

    # -- atoms
    def form(self, v: Value) -> Form | None:
        """A number as a sum; None for what is none, or may be infinite."""
        x, name = self.k.constants.get(v), self.k.names[v]
        if isinstance(x, int | float | Fraction) and not isinstance(x, bool):
            return of(x) if abs(x) < 10**15 else None
        flat = len(v.type.dims) + (v.type.elem == "dist") < 2  # of vectors that share no index nothing is said
        return {name: Fraction(1)} if flat and (v.type.elem == "int" or name in self.finite or v in self.shares) else None

    def length(self, v: Value) -> Form:
        x = self.k.constants.get(v)
        if isinstance(x, list | tuple):
            return of(len(x))
        name = f"len {self.k.names[v]}"
        self.whole.add(name)
        self.known.setdefault(name, ({name: Fraction(1)}, ">="))
        return {name: Fraction(1)}

    def say(self, name: str, form: Form | None, relation: str = ">=") -> None:
        if form is not None:
            self.known[name] = form, relation

    def parameter(self, p: Param) -> None:
        t, v, name = p.value.type, p.value, self.k.names[p.value]
        settings = settings_of(self.condition)
        if p.name in settings:
            self.k.constants[v] = settings[p.name]
        if t.elem in ("int", "prob", "real") and not t.dims:
            low, high = (0, 1) if t.elem == "prob" else (None, None)
            ends = [Fraction(str(x)) if isinstance(x, int | float | Fraction) else d for x, d in ((p.low, low), (p.high, high))]
            self.ranges[v] = (-INF if ends[0] is None else ends[0], INF if ends[1] is None else ends[1])
            if t.elem == "int":
                self.whole.add(name)
            elif None not in ends:
                self.finite.add(name)
            for n, (end, sign) in enumerate(zip(ends, (1, -1))):
                if end is not None and self.form(v) == {name: 1}:
                    self.say(f"{name} {n}", plus({}, plus({name: Fraction(1)}, of(end), -1), sign))
        if p is self.k.function.params[-1]:
            for n, part in enumerate(self.condition[1:] if self.condition[:1] == ("and",) else (self.condition,)):
                self._assume(f"when {n}", part)

    def _assume(self, name: str, part: tuple[Any, ...]) -> None:
        if len(part) == 3 and part[0] in (">=", ">", "<=", "<", "=="):
            a, b = (self._term(x) for x in part[1:])
            if a is not None and b is not None:
                relation = "=" if part[0] == "==" else part[0].replace("<", ">")
                self.say(name, plus(b, a, -1) if part[0][0] == "<" else plus(a, b, -1), relation)

    def _term(self, x: tuple[Any, ...]) -> Form | None:
        match x:
            case ("const", int() | Fraction() | float() as c) if not isinstance(c, bool):
                return of(c)
            case ("param", name):
                return self.form(self.k.function.param(name).value)
            case ("request", ("prompt" | "room") as name):
                return {name: Fraction(1)}
            case (("+" | "-") as sign, one, other):
                a, b = self._term(one), self._term(other)
                return None if a is None or b is None else plus(a, b, 1 if sign == "+" else -1)
        return None

    def note(self, op: Op) -> None:
        """What an op's meaning says of its results."""
        if not op.results:
            return
        v, name, xs, fn = op.result, self.k.names[op.result], op.operands, str(op.attrs.get("fn"))
        if v.type.elem == "int":
            self.whole.add(name)
        forms = [self.form(x) for x in xs]
        a, b = (*forms, None, None)[:2]
        me = {name: Fraction(1)}
        passed = xs and op.opcode in ("face", "lookup", "gather", "slice", "compact", "take_first") and xs[0] in self.shares
        model = op.opcode in ("model.eval", "model.read") and v.type.elem == "dist" or op.opcode in ("model.attention", "beta")
        if model or op.opcode == "head.read" and v.type.elem == "prob" or passed and op.attrs.get("face") != "logits":
            self.shares.add(v)
        match op.opcode, fn:
            case "map", ("eq" | "ne" | "lt" | "le" | "gt" | "ge") if a is not None and b is not None:
                self._compare(op, fn, a, b)
            case "map", "and" if len(xs) == 2 and all(x in self.compared for x in xs):
                with self.under(xs[0], True):
                    atoms = self._atoms(*self.compared[xs[1]], False)
                    if atoms and all(self.prove(op, form, relation) for form, relation in atoms):
                        self.k.constants[v] = False
            case "map", _ if v.type.elem in ("int", "real", "prob") and None not in forms and a is not None:
                self._arithmetic(op, fn, me, a, b)
            case "len", _:
                self.say(name, plus(me, self.length(xs[0]), -1), "=")
            case "ctx.get", _ if (place := self.k.of(xs[0])) is not None and place[0] == "context":
                here = plus({f"context {place[1]}": Fraction(1)}, of(-int(place[2])))
                if op.attrs["field"] == "last" and (count := forms[1]) is not None and self.prove(op, count):
                    self.say(name, plus(count, self.length(v), -1))
                elif op.attrs["field"] in ("length", "path"):
                    self.say(name, plus(me if op.attrs["field"] == "length" else self.length(v), here, -1), "=")
            case "request", _ if op.attrs["field"] == "prompt":
                self.say(name, plus(self.length(v), {"prompt": Fraction(1)}, -1), "=")
            case "model.layers", _:
                self.say(name, me)
            case "vocab_size", _:
                self.say(name, plus(me, of(-1)))
            case "tile", _ if op.attrs["kind"] == "iota" and all(f is not None and x.type.elem == "int" for f, x in zip(forms, xs)):
                low, high = (forms[0], forms[-1]) if len(xs) > 1 else ({}, forms[0])
                self.say(name, plus(me, low or {}, -1))
                self.say(f"{name} below", plus(high or {}, me, -1), ">")
                many = plus(high or {}, low or {}, -1)
                self.say(f"{name} length", plus(self.length(v), many, -1), "=" if self.prove(op, many) else ">=")
            case ("compact" | "slice" | "take_first" | "sort" | "select.top"), _ if v.type.dims and xs[0].type.dims:
                whole, lo = self.length(xs[0]), forms[1] if op.attrs.get("has_lo") else {}
                self.say(f"{name} length", plus(whole, self.length(v), -1))
                none = op.opcode == "compact" and self.k.constants.get(xs[1]) is False
                cut = op.opcode == "slice" and lo is not None and (not lo or self.prove(op, lo))
                if none or cut and op.attrs.get("has_lo") and self.prove(op, plus(lo or {}, whole, -1)):
                    self.say(f"{name} none", self.length(v), "=")
                end = forms[-1] if op.attrs.get("has_hi") else None
                if cut and end is not None and self.prove(op, end):
                    self.say(f"{name} end", plus(end, self.length(v), -1))
            case "concat", _ if v.type.elem != "path" and all(x.type.elem not in ("path", "topology", "node") for x in xs):
                parts = [self.length(x) if x.type.dims or x.type.elem == "list" else of(1) for x in xs]
                self.say(f"{name} length", plus(self.length(v), plus(*parts), -1), "=")
            case "as_int", _ if a is not None and all(s in self.whole for s in a if s) and all(f.denominator == 1 for f in a.values()):
                self.say(name, plus(me, a, -1), "=")
            case "within", _ if a is not None:
                self.say(name, plus(me, a, -1), "=")
            case "tree.size", _ if (tree := self.k.of(xs[0])) is not None and tree[0] == "tree":
                made = self.k.made.get(self.k.by_name[tree[1]])
                self.say(name, me, "=" if made is not None and made.opcode == "tree.new" else ">=")
            case "reduce", "count" if not v.type.dims and len(xs[0].type.dims) == 1:
                self.say(f"{name} low", me)
                self.say(f"{name} high", plus(self.length(xs[0]), me, -1))
            case "reduce", ("max" | "min" | "mean") if not v.type.dims and self._bounded(op, fn, a):
                self._between(op, me, a or {})
            case "bernoulli", _ if a is not None and not set(a) - {""} and not v.type.dims and not 0 < a.get("", 0) < 1:
                self.k.constants[v] = a.get("", 0) >= 1
        if v in self.shares:
            self.say(f"{name} low", me)
            self.say(f"{name} high", plus(of(1), me, -1))
        vectors = [x for x in xs if x.type.dims or x.type.elem in ("dist", "scores")]
        if op.opcode in ("map", "face", "arg", "as_int", "within") and len(v.type.dims) == 1 and len(vectors) == 1:
            self.say(f"{name} long", plus(self.length(v), self.length(vectors[0]), -1), "=")
        if op.opcode == "model.read" and op.attrs.get("each") and len(v.type.dims) == 1:
            self.say(f"{name} long", plus(self.length(v), self.length(xs[1]), -1), "=")

    def _bounded(self, op: Op, fn: str, x: Form | None) -> bool:
        """Whether the largest, smallest or mean of a vector is a finite number: of finite ones, and of some. The mean of none is 0."""
        vector = op.operands[0]
        some = vector.type.elem == "dist" or bool(vector.type.dims) and vector.type.dims[-1].kind == "vocab" or fn == "mean"
        return x is not None and (some or bool(vector.type.dims) and self.prove(op, plus(self.length(vector), of(-1))))

    def _between(self, op: Op, me: Form, x: Form) -> None:
        name = self.k.names[op.result]
        self.finite.add(name)
        if self.prove(op, x):
            self.say(f"{name} low", me)
        if self.prove(op, plus(of(1), x, -1)):
            self.say(f"{name} high", plus(of(1), me, -1))

    def _arithmetic(self, op: Op, fn: str, me: Form, a: Form, b: Form | None) -> None:
        name, constants = self.k.names[op.result], [x for x in (a, b) if x is not None and not set(x) - {""}]
        if op.result.type.elem != "int":
            linear = fn in ("add", "mix", "sub", "contrast", "neg", "minimum", "maximum", "abs", "relu")
            scaled = fn in ("mul", "weigh") or fn == "div" and bool(constants) and constants[-1] is b and bool(b)
            if not linear and not scaled:
                return
            self.finite.add(name)
        match fn:
            case "add" | "mix" | "sub" | "contrast" if b is not None:
                self.say(name, plus(me, plus(a, b, 1 if fn in ("add", "mix") else -1), -1), "=")
            case "neg":
                self.say(name, plus(me, a), "=")
            case "mul" | "weigh" if constants and b is not None:
                c, other = (a, b) if constants[0] is a else (b, a)
                self.say(name, plus(me, other, -c.get("", Fraction(0))), "=")
            case "mul" | "weigh" if b is not None and all(self.prove(op, x) for x in (a, b)):
                self.say(name, me)
            case "div" if b and not set(b) - {""}:
                self.say(name, plus(me, a, -1 / b[""]), "=")
            case "minimum" | "maximum" if b is not None:
                sign = -1 if fn == "minimum" else 1
                for n, (x, y) in enumerate(((a, b), (b, a))):
                    self.say(f"{name} {n}", plus({}, plus(me, x, -1), sign))
                    if self.prove(op, plus({}, plus(x, y, -1), sign)):  # it is x
                        self.say(name, plus(me, x, -1), "=")
                for n, least in enumerate((1, 0)):
                    if all(self.prove(op, plus(x, of(-least))) for x in (a, b)):
                        self.say(f"{name} least {n}", plus(me, of(-least)))
            case "abs" | "relu":
                self.say(name, me)
                self.say(f"{name} above", plus(me, a, -1))
            case "mod" if b and not set(b) - {""} and b[""] > 0 and op.result.type.elem == "int":
                self.say(name, me)
                self.say(f"{name} below", plus(of(b[""] - 1), me, -1))

    def _compare(self, op: Op, fn: str, a: Form, b: Form) -> None:
        """A condition on numbers; whether it is always true, or always false, as far as the certificate shows it."""
        less = plus(b, a, -1)
        self.compared[op.result] = fn, less
        for answer in (True, False):
            atoms = self._atoms(fn, less, answer)
            if atoms and all(self.prove(op, form, relation) for form, relation in atoms):
                self.k.constants[op.result] = answer

    def _atoms(self, fn: str, less: Form, true: bool) -> list[tuple[Form, str]]:
        """What a comparison says where it is true, or false; of `less`, the second operand minus the first."""
        fn = fn if true else NEGATED.get(fn, "")
        more = plus({}, less, -1)
        if fn == "eq":
            return [(less, ">="), (more, ">=")]
        return [(less if fn in ("lt", "le") else more, ">" if fn in ("lt", "gt") else ">=")] if fn in NEGATED else []

    # -- places
    @contextmanager
    def under(self, v: Value | None, true: bool, head: int | None = None) -> Iterator[None]:
        """What is known where a condition is true, or false; after it nothing of that is known."""
        before = dict(self.known)
        if v is not None and v in self.compared:
            for n, (form, relation) in enumerate(self._atoms(*self.compared[v], true)):
                self.say(f"{self.k.names[v]} {true} {n}", form, relation)
        if head is not None:  # the request is not done
            self.say("goes on", plus({"prompt": Fraction(1), "room": Fraction(1), f"context {head}": Fraction(-1)}, of(-1)))
        yield
        self.known = before

    def committed(self, old: int, new: int, one: bool) -> None:
        was, now = {f"context {old}": Fraction(1)}, {f"context {new}": Fraction(1)}
        self.whole.add(f"context {new}")
        self.say(f"context {new}", plus(now, was, -1))
        self.say(f"context {new} most", plus({"prompt": Fraction(1), "room": Fraction(1)}, now, -1))
        if one and "goes on" in self.known and self.known["goes on"][0].get(f"context {old}") == -1:
            self.say(f"context {new}", plus(plus(now, was, -1), of(-1)), "=")

    def alias(self, v: Value, y: Value) -> None:
        """A value that is another one."""
        name = self.k.names[v]
        self.ranges[v] = self.range(y)
        if v.type.elem == "int":
            self.whole.add(name)
        if (form := self.form(y)) is not None and v not in self.k.constants:
            self.finite.add(name)
            self.say(f"{name} alias", plus({name: Fraction(1)}, form, -1), "=")
        if v.type.dims or v.type.elem == "list":
            self.say(f"{name} length", plus(self.length(v), self.length(y), -1), "=")

    def begin(self, op: Op, carried: Sequence[Value], head: int, entry: int) -> None:
        """At the head of a loop: its invariant, atoms over the names of what its body carries."""
        self._holds(op, carried, {f"context {head}": f"context {entry}"})
        self.outside.append(dict(self.known))
        self.whole |= {self.k.names[a] for r in op.regions for a in r.args if a.type.elem == "int"}
        for n, (form, relation) in enumerate(self.invariant(op)):
            self.say(f"{self.k.loop_names[op]} {n}", form, relation)

    def end(self, op: Op, yields: Sequence[Value], head: int, now: int) -> None:
        """At the end of its body the invariant holds again."""
        self._holds(op, yields, {f"context {head}": f"context {now}"})

    def after(self, op: Op, head: int, now: int) -> None:
        self.known, names = self.outside.pop(), {f"context {head}": f"context {now}"}
        for n, (form, relation) in enumerate(self.invariant(op)):
            self.say(f"{self.k.loop_names[op]} after {n}", self.exchanged(form, op, op.results, names), relation)

    def invariant(self, op: Op) -> list[Atom]:
        found = self.k.certificate.numbers.get(self.k.loop_names[op], ())
        return [({s: Fraction(f) for s, f in form}, relation) for form, relation in found]

    def _holds(self, op: Op, values: Sequence[Value], contexts: dict[str, str]) -> None:
        for n, (form, relation) in enumerate(self.invariant(op)):
            now = self.exchanged(form, op, values, contexts)
            for sign in (1, -1) if relation == "=" else (1,):
                if now is None or not self.prove(op, plus({}, now, sign), ">=" if relation == "=" else relation):
                    raise Unkept(op, self.k.loop_names[op], n, text(form, relation))

    def exchanged(self, form: Form, op: Op, values: Sequence[Value], contexts: dict[str, str]) -> Form | None:
        """An atom of a loop's invariant with these values in the place of those that it carries."""
        names = {}
        for a, v in zip(op.regions[-1].args[1:], values):
            names |= {self.k.names[a]: self.form(v), f"len {self.k.names[a]}": self.length(v)}
        out: Form = {}
        for s, f in form.items():
            other = names[s] if s in names else {contexts.get(s, s): Fraction(1)}
            if other is None:
                return None
            out = plus(out, other, f)
        return out


class Unkept(Refused):
    """An atom of a loop's invariant that does not follow: the loop, and which one."""

    def __init__(self, op: Op, loop: str, n: int, atom: str) -> None:
        super().__init__(op, f"{loop} does not keep {atom}")
        self.loop, self.n = loop, n


def settings_of(condition: tuple[Any, ...]) -> dict[str, Constant]:
    """The values of parameters that a condition asks for."""
    match condition:
        case ("and", *parts):
            return {name: value for part in parts for name, value in settings_of(part).items()}
        case ("==", ("param", name), ("const", value)) | ("==", ("const", value), ("param", name)):
            return {name: value}
        case ("not", ("param", name)):
            return {name: False}
        case ("param", name):
            return {name: True}
    return {}
