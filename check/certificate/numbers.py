"""Numbers and lengths. What an op's meaning says of them is linear: atoms `form = 0`, `form >= 0` or `form > 0` over the names
of values and `len` of vectors; of a vector the name stands for each element. Whether another atom follows, the certificate
shows: multipliers with which atoms and its opposite add up to a contradiction. Where all symbols of a sum are whole numbers, it
is rounded. A real number takes part only where it is finite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from math import floor, gcd, lcm
from typing import Any

from decgraph.check.certificate.data import Known, Refused
from decgraph.ir.values import Op, Param, Value

Form = dict[str, Fraction]
"""A sum of symbols with factors; its constant stands at ""."""
Atom = tuple[Form, str]
INF, LARGE = float("inf"), 10**15
OPPOSITE = {"ge": "lt", "gt": "le", "le": "gt", "lt": "ge"}
LINEAR = ("add", "mix", "sub", "contrast", "minimum", "maximum", "abs", "relu", "mul", "weigh")


def plus(a: Form, b: Form, factor: Fraction | int = 1) -> Form:
    """a + factor * b."""
    out = {s: a.get(s, Fraction(0)) + factor * b.get(s, Fraction(0)) for s in {*a, *b}}
    return {s: f for s, f in out.items() if f}


def of(x: Any) -> Form:
    """A symbol, or a number, as a sum."""
    return {x: Fraction(1)} if isinstance(x, str) else {"": Fraction(str(x))} if x else {}


def number(form: Form | None) -> Fraction | None:
    """The constant that a sum is, if it is one."""
    return form.get("", Fraction(0)) if form is not None and not form.keys() - {""} else None


def text(form: Form, relation: str) -> str:
    """An atom as messages write it."""
    return " + ".join(f"{f} {s}".strip() for s, f in sorted(form.items())) + f" {relation} 0"


class Numbers:
    """What is known of numbers at the place where the pass stands."""

    def __init__(self, k: Known, condition: tuple[Any, ...]) -> None:
        self.k, self.condition, self.whole = k, condition, set[str]()
        self.known: dict[str, Atom] = {}
        self.compared: dict[Value, tuple[str, Form]] = {}
        self.ranges: dict[Value, tuple[Any, Any]] = {}
        self.finite: set[str] = set()

    # -- what is asked
    def prove(self, at: Op, form: Form, relation: str = ">=") -> bool:
        """Whether an atom follows, by the multipliers that the certificate gives for it."""
        if (known := number(form)) is not None:
            return bool(known > 0 or relation != ">" and known == 0)
        if relation == "=":
            return self.prove(at, form) and self.prove(at, plus({}, form, -1))
        place = self.k.names[at.results[0]] if at.results else self.k.loop_names.get(at, at.opcode)
        steps = {**self.known, "goal": (plus({}, form, -1), ">" if relation == ">=" else ">=")}
        proof: Any = self.proof(f"{place}: {text(form, relation)}", form, relation) or ()
        for n, parts in enumerate(proof):
            total, strict = Form(), False
            for name, factor in parts:
                if Fraction(factor) < 0 and steps[name][1] != "=":
                    raise Refused(at, f"a multiplier below 0 in the proof of {text(form, relation)}")
                total, strict = (
                    plus(total, steps[name][0], Fraction(factor)),
                    strict or steps[name][1] == ">" and Fraction(factor) > 0,
                )
            now, relation_now = steps[f"step {n}"] = self.tight(total, strict)
            if (left := number(now)) is not None:
                return left < 0 or left == 0 and relation_now == ">"
        return False

    def proof(self, key: str, form: Form, relation: str) -> Any:
        return self.k.claims["numbers"].get(key)

    def tight(self, form: Form, strict: bool) -> Atom:
        """Of whole numbers with what that allows: 2a >= 1 is a >= 1, and a > 1 is a >= 2."""
        symbols = {s: f for s, f in form.items() if s}
        if not symbols or symbols.keys() - self.whole:
            return form, ">" if strict else ">="
        scale = Fraction(lcm(*(f.denominator for f in symbols.values())), gcd(*(f.numerator for f in symbols.values())))
        c = form.get("", Fraction(0)) * scale
        return {**{s: f * scale for s, f in symbols.items()}, **of(-floor(-c) - 1 if strict else floor(c))}, ">="

    def decided(self, v: Value) -> bool | None:
        known = self.k.constants.get(v)
        return known if isinstance(known, bool) else None

    def positive(self, at: Op, v: Value, least: int | None = None) -> bool:
        """Whether a number, or each of a vector, is above 0; or no less than a number."""
        form = self.form(v)
        return form is not None and self.prove(at, plus(form, of(-(least or 0))), ">" if least is None else ">=")

    def empty(self, at: Op, v: Value) -> bool:
        return self.prove(at, plus({}, self.length(v), -1))

    def range(self, v: Value) -> tuple[Any, Any]:
        known = self.k.constants.get(v)
        if isinstance(known, int | float | Fraction) and not isinstance(known, bool):
            return (known, known)
        return self.ranges.get(v, (-INF, INF))

    def iterations(self, op: Op) -> int | None:
        """0, if a `for` loop is known to have none."""
        low, high = (self.k.constants.get(v) if v.type.elem == "int" else None for v in op.operands[:2])
        return 0 if isinstance(low, int) and isinstance(high, int) and high <= low else None

    # -- atoms
    def form(self, v: Value) -> Form | None:
        """A number as a sum; None for what is none or may be infinite, and for vectors that share no index."""
        x, name = self.k.constants.get(v), self.k.names[v]
        if isinstance(x, int | float | Fraction) and not isinstance(x, bool):
            return of(x) if -LARGE < x < LARGE else None
        flat = len(v.type.dims) + (v.type.elem == "dist") < 2
        return of(name) if flat and (v.type.elem == "int" or name in self.finite) else None

    def length(self, v: Value) -> Form:
        x, name = self.k.constants.get(v), f"len {self.k.names[v]}"
        if isinstance(x, list | tuple):
            return of(len(x))
        self.whole.add(name)
        self.known.setdefault(name, (of(name), ">="))
        return of(name)

    def parameter(self, p: Param) -> None:
        t, v, name = p.value.type, p.value, self.k.names[p.value]
        settings = settings_of(self.condition)
        self.k.constants |= {v: settings[p.name]} if p.name in settings else {}
        if t.elem in ("int", "prob", "real") and not t.dims:
            given = [Fraction(str(x)) if isinstance(x, int | float | Fraction) else None for x in (p.low, p.high)]
            low: Any
            high: Any
            low, high = (x if x is not None else d if t.elem == "prob" else s for x, d, s in zip(given, (0, 1), (-INF, INF)))
            self.ranges[v] = low, high
            (self.whole if t.elem == "int" else self.finite if max(abs(low), abs(high)) < INF else set[str]()).add(name)
            if self.form(v) == of(name):
                self.known |= {f"{name} low": (plus(of(name), of(low), -1), ">=")} if low > -INF else {}
                self.known |= {f"{name} high": (plus(of(high), of(name), -1), ">=")} if high < INF else {}
        for n, part in enumerate(self.condition[1:] if self.condition[:1] == ("and",) else (self.condition,)):
            a, b = (
                (self._term(x) for x in part[1:])
                if len(part) == 3 and part[0] in (">=", ">", "<=", "<", "==")
                else (None, None)
            )
            if a is not None and b is not None:
                form = plus(b, a, -1) if part[0][0] == "<" else plus(a, b, -1)
                self.known[f"when {n}"] = form, "=" if part[0] == "==" else part[0].replace("<", ">")

    def _term(self, x: tuple[Any, ...]) -> Form | None:
        match x:
            case ("const", int() | Fraction() | float() as c) if not isinstance(c, bool):
                return of(c)
            case ("param", name):
                return self.form(self.k.function.param(name).value)
        return None

    def note(self, op: Op) -> None:
        """What an op's meaning says of its result."""
        if op.results:
            name = self.k.names[op.result]
            if op.result.type.elem == "int":
                self.whole.add(name)
            self._share(op, name)
            for n, (form, relation) in enumerate(self._atoms_of(op, op.result, of(name))):
                self.known[f"{name} {n}"] = form, relation

    def _share(self, op: Op, name: str) -> None:
        """Probabilities of models, heads and weights lie between 0 and 1, and so does what is taken from them."""
        v, first = op.result, self.range(op.operands[0]) if op.operands else (-INF, INF)
        passed = (
            op.opcode in ("face", "lookup", "gather", "slice", "compact", "take_first") and op.attrs.get("face") != "logits"
        )
        model = op.opcode in ("model.eval", "model.read", "head.read") and v.type.elem in ("dist", "prob")
        if model or op.opcode in ("model.attention", "beta") or passed and first[0] >= 0 and first[1] <= 1:
            self._between(op, name, 0, 1)

    def _between(self, op: Op, name: str, low: int | None, high: int | None) -> None:
        self.ranges[op.result] = -INF if low is None else low, INF if high is None else high
        self.finite.add(name)
        self.known |= {f"{name} low": (plus(of(name), of(low), -1), ">=")} if low is not None else {}
        self.known |= {f"{name} high": (plus(of(high), of(name), -1), ">=")} if high is not None else {}

    def _atoms_of(self, op: Op, v: Value, me: Form) -> Iterator[Atom]:
        xs, fn = op.operands, str(op.attrs.get("fn"))
        forms = [self.form(x) for x in xs]
        a, b = (*forms, None, None)[:2]
        vectors = [x for x in xs if x.type.dims or x.type.elem in ("dist", "scores", "list")]
        place = self.k.of(xs[0]) if xs else None
        match op.opcode:
            case "map" if a is not None and (len(xs) == 1 or b is not None) and fn in ("eq", "ne", *OPPOSITE):
                self._compare(op, fn, a, b or {})
            case "map" if v.type.elem in ("int", "real", "prob") and a is not None and None not in forms:
                yield from self._arithmetic(op, fn, me, a, b)
            case "model.layers" | "vocab_size":
                yield plus(me, of(-1 if op.opcode == "vocab_size" else 0)), ">="
            case "tree.size" if place is not None and place[0] == "tree":
                made = self.k.producers.get(self.k.by_name[place[1]])
                yield me, "=" if made is not None and made.opcode == "tree.new" else ">="
            case "compact" | "slice" if v.type.dims and vectors:
                none = op.opcode == "compact" and self.k.constants.get(xs[-1]) is False
                yield (self.length(v), "=") if none else (plus(self.length(vectors[0]), self.length(v), -1), ">=")
            case "reduce" if fn in ("max", "min", "mean") and not v.type.dims and a is not None:
                some = (
                    fn == "mean" or xs[0].type.elem == "dist" or bool(xs[0].type.dims) and xs[0].type.dims[-1].kind == "vocab"
                )
                if some:  # the largest of nothing is -inf, its mean 0
                    low, high = self.prove(op, a), self.prove(op, plus(of(1), a, -1))
                    self._between(op, self.k.names[v], 0 if low else None, 1 if high else None)
            case "bernoulli" if not v.type.dims and (share := number(a)) is not None and not 0 < share < 1:
                self.k.constants[v] = share >= 1

    def _arithmetic(self, op: Op, fn: str, me: Form, a: Form, b: Form | None) -> Iterator[Atom]:
        p, q = number(a), number(b)
        if op.result.type.elem != "int":
            if fn not in LINEAR:
                return
            self.finite.add(self.k.names[op.result])
        if fn in ("add", "mix", "sub", "contrast") and b is not None:
            yield plus(me, plus(a, b, 1 if fn in ("add", "mix") else -1), -1), "="
        elif fn in ("mul", "weigh") and b is not None and (p is not None or q is not None):
            yield plus(me, b if p is not None else a, -(p if p is not None else q or 0)), "="
        elif fn in ("mul", "weigh") and b is not None and self.prove(op, a) and self.prove(op, b):
            yield me, ">="
        elif fn in ("minimum", "maximum") and b is not None:
            sign = -1 if fn == "minimum" else 1
            yield from ((plus({}, plus(me, x, -1), sign), ">=") for x in (a, b))
        elif fn in ("abs", "relu"):
            yield from ((me, ">="), (plus(me, a, -1), ">="))

    def _compare(self, op: Op, fn: str, a: Form, b: Form) -> None:
        """A condition on numbers; whether it is always true, or always false, as far as the certificate shows it."""
        self.compared[op.result] = fn, plus(b, a, -1)
        for answer in (True, False):
            atoms = self._said(fn, plus(b, a, -1), answer)
            if atoms and all(self.prove(op, *atom) for atom in atoms):
                self.k.constants[op.result] = answer

    def _said(self, fn: str, less: Form, true: bool) -> list[Atom]:
        """What a comparison says where it is true, or false; of `less`, the second operand minus the first."""
        fn = fn if true else OPPOSITE.get(fn, "eq" if fn == "ne" else "")
        if fn == "eq":
            return [(less, "=")]
        return (
            [(less if fn in ("lt", "le") else plus({}, less, -1), ">" if fn in ("lt", "gt") else ">=")]
            if fn in OPPOSITE
            else []
        )

    # -- places
    @contextmanager
    def under(self, v: Value | None, true: bool) -> Iterator[None]:
        """What is known where a condition is true, or false; after it nothing of that is known."""
        before = dict(self.known)
        for n, atom in enumerate(self._said(*self.compared[v], true) if v is not None and v in self.compared else ()):
            self.known[f"{self.k.names[v]} {true} {n}"] = atom
        yield
        self.known = before

    def alias(self, v: Value, y: Value) -> None:
        """A value that is another one."""
        name, form = self.k.names[v], self.form(y)
        self.ranges[v] = self.range(y)
        (self.whole if v.type.elem == "int" else self.finite if form is not None else set[str]()).add(name)
        if form is not None and v not in self.k.constants:
            self.known[f"{name} alias"] = plus(of(name), form, -1), "="


def settings_of(condition: tuple[Any, ...]) -> dict[str, Any]:
    """The values of parameters that a condition asks for."""
    match condition:
        case ("and", *parts):
            return {name: value for part in parts for name, value in settings_of(part).items()}
        case ("==", ("param", name), ("const", value)) | ("==", ("const", value), ("param", name)):
            return {str(name): value}
        case ("not", ("param", name)) | ("param", name):
            return {str(name): condition[0] == "param"}
    return {}
