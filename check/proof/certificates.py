"""Writing certificates: what the kernel knew in its last pass over a program, as data that check/certificate checks.

The prover takes no part in that: a derivation is followed once more with its invariants, and the kernel's tables are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from decgraph.check.certificate.claims import check
from decgraph.check.certificate.data import Refused, digest, names_of
from decgraph.check.certificate.following import Follower
from decgraph.check.certificate.numbers import Atom, Form, Numbers, plus
from decgraph.check.certificate.verification import MissingState
from decgraph.check.proof.claims import Open, alternatives, prove
from decgraph.check.proof.derive import Derivation, derive, judged
from decgraph.check.proof.environment import EVER, Environment, sums_to_one
from decgraph.check.proof.invariants import DerivationStopped
from decgraph.check.proof.kernel import Kernel
from decgraph.check.proof.terms import PROMPT
from decgraph.ir import facts
from decgraph.ir.facts import Certainty, Fact
from decgraph.ir.labels import Labels
from decgraph.ir.linear import Inequality, Linear, Row, refutation
from decgraph.ir.values import Claim, Function, Module, Op, Value

FORMAT = 1
RULES = {
    "matching": ("rule-matching", "follow_owned"),
    "support": ("rule-support", "walk_inside"),
    "lossless": ("rule-lossless", "siblings_lossless"),
}
LEMMAS = {"block_rejection": "grown_block_Law", "traverse": "grown_traverse_Law"}
MOST_ROUNDS = 200


def certificates(module: Module) -> tuple[dict[str, Any], list[str]]:
    """The certificates of all claims of a module's entry that are derived; and what is to be said of the others."""
    made, notes = [], []
    for claim in module.entry.claims:
        found = prove(module, claim)
        if isinstance(found, Open):
            notes.append(f"no derivation, so no certificate: {claim.text}")
            continue
        made.append(certificate(module, claim, found))
        try:
            check(module, made[-1])
        except Refused as refused:
            notes.append(f"the checker does not follow the certificate of: {claim.text} ({refused})")
    return {"format": FORMAT, "program": module.main, "certificates": made}, notes


def certificate(module: Module, claim: Claim, derivation: Derivation) -> dict[str, Any]:
    """The certificate of a claim's derivation, as JSON."""
    first, *others = (
        _case(module, claim, part, condition)
        for part, condition in zip((derivation, *derivation.others), alternatives(claim.setting), strict=True)
    )
    whole = {**first, "cases": others}
    for _ in range(MOST_ROUNDS):
        proofs: dict[int, dict[str, Any]] = {}
        try:
            check(module, whole, _proving(proofs))
        except MissingState as missing:
            for part in (whole, *others):
                if missing.walk in part.get("rules", ()):
                    states = part["rules"][missing.walk]["states"][missing.loop]
                    if (state := _listed(missing.state)) not in states:
                        states.append(state)
            continue
        except Refused:
            pass
        for part, found in zip((whole, *others), proofs.values()):
            part["numbers"] |= found
        return whole
    return whole


def _proving(proofs: dict[int, dict[str, Any]]) -> type[Follower]:
    """The checker's pass, with proofs of linear facts that are found where they are asked for; by pass."""

    class Finding(Numbers):
        def proof(self, key: str, form: Form, relation: str) -> Any:
            found = _multipliers(self, (plus({}, form, -1), ">" if relation == ">=" else ">="))
            if found is not None:
                proofs.setdefault(id(self), {})[key] = found
            return found

    class Proving(Follower):
        calculus = Finding

        def run(self) -> None:
            proofs.setdefault(id(self.numbers), {})
            super().run()

    return Proving


def _multipliers(numbers: Numbers, goal: Atom) -> list[Any] | None:
    """Steps, each a list of [name, multiplier], that add up to a contradiction of the known atoms and the goal's opposite."""
    rows, seen, taken = [("goal", 1, goal)], goal[0].keys() - {""}, set[str]()
    while new := [n for n, (form, _) in numbers.known.items() if n not in taken and seen & form.keys()]:
        taken |= set(new)
        for name in new:
            seen |= numbers.known[name][0].keys() - {""}
            rows += [(name, sign, numbers.known[name]) for sign in ((1, -1) if numbers.known[name][1] == "=" else (1,))]
    found = refutation(
        (Inequality(_sum(x).times(sign), how == ">") for _, sign, (x, how) in rows), numbers.whole.__contains__, str
    )
    if found is None:
        return None
    last, made = found
    steps: dict[Row, list[list[str]]] = {}

    def add(row: Row) -> None:
        for part, _ in made[row]:
            if not isinstance(part, int) and part not in steps:
                add(part)
        names = [
            (f"step {list(steps).index(p)}", f) if not isinstance(p, int) else (rows[p][0], f * rows[p][1])
            for p, f in made[row]
        ]
        steps[row] = [[name, str(f)] for name, f in names]

    add(last)
    return list(steps.values())


def _sum(form: Form) -> Linear:
    return Linear(frozenset((s, f) for s, f in form.items() if s), form.get("", Fraction(0)))


def _listed(x: Any) -> Any:
    return [_listed(y) for y in x] if isinstance(x, tuple) else x


def _case(module: Module, claim: Claim, derivation: Derivation, condition: Any) -> dict[str, Any]:
    errors = ["errors"] if derivation.mode != "inside" else []
    if derivation.mode in ("scheduled", "same", "spends"):  # schedules of canvases and what is spent are not written yet
        head = {"claim": claim.text, "ir": digest(module), "model": derivation.model, "mode": derivation.mode, "facts": {}}
        return {"format": FORMAT, **head, "condition": repr(condition), "premises": errors}
    callees = {str(op.attrs["callee"]) for op in module.entry.body.walk() if op.opcode == "run"}
    shown: dict[str, Certainty] = dict.fromkeys(callees, "inside" if derivation.mode == "inside" else "own")
    if claim.kind == "refines":
        shown[claim.spec] = "own"
    return {
        "format": FORMAT,
        "claim": claim.text,
        "ir": digest(module),
        "model": derivation.model,
        "mode": derivation.mode,
        "greedy": derivation.greedy,
        "condition": repr(condition),
        "premises": [*errors, *derivation.premises],
        "functions": {name: data for name, mode in shown.items() if (data := _of_function(module, name, mode)) is not None},
        **_Writer(module, module.entry, derivation).data(),
    }


def _of_function(module: Module, name: str, mode: Certainty) -> dict[str, Any] | None:
    """Of the specification, or of an algorithm that is run: that all it commits is so."""
    function = module.functions[name]
    models = [p.name for p in function.params if p.value.type.elem == "model"]
    try:
        made = derive(module, function, models[0], mode)
    except (DerivationStopped, IndexError):
        return None
    return {"model": models[0], "mode": mode, **_Writer(module, function, made).data()}


class _Writer:
    """The tables of one pass, and which of its facts what is committed depends on."""

    def __init__(self, module: Module, function: Function, derivation: Derivation) -> None:
        self.module, self.function, self.derivation = module, function, derivation
        self.judgments: dict[Op, str] = {}
        self.names, self.loops = names_of(function)

        def noted(k: Environment, op: Op) -> tuple[str, str]:
            found = judged(k, op)
            self.judgments[op] = found[0]
            return found

        d = derivation
        assert d.mode in ("own", "drawn", "inside")
        self.kernel = Kernel(
            *(module, function, d.model, d.mode, noted, d.invariants, d.greedy, dict(d.settings), d.condition),
            lambda: "log-probabilities" in d.premises,
        )
        self.kernel.run()
        self.args = {a: (op, n) for op in function.body.walk() for r in op.regions for n, a in enumerate(r.args)}

    def data(self) -> dict[str, Any]:
        tracked = self.derivation.mode != "own"
        needed = self._needed()
        laws = self._laws(needed) if tracked else set[Value]()
        walks = [op for op in self.function.body.walk() if op.opcode == "tree.walk" and op.result in needed]
        out = {
            "facts": {self.names[v]: self.json(self.fact(v)) for v in self.names if v in needed},
            "loops": {
                name: self._invariant(op) for op, name in self.loops.items() if tracked and op in self.derivation.invariants
            },
            "rules": {self.names[op.result]: self._judgment(op) for op in walks},
            "laws": {"set": sorted(self.names[v] for v in laws)},
            "numbers": {},
            "shared": {name: self.labels(labels) for name, labels in self.kernel.others.items()} if tracked else {},
        }
        return out

    # -- which facts are needed
    def fact(self, v: Value) -> tuple[Any, ...] | None:
        return self.written(self.kernel.of(v))

    def _needed(self) -> set[Value]:
        todo = [v for op in self.function.body.walk() if op.opcode == "commit" for v in op.operands]
        todo += [v for op in self.function.body.walk() if op.opcode == "state.write" for v in op.operands[:1]]
        found: set[Value] = set()
        while todo:
            v = todo.pop()
            if v in found or v not in self.names or self.fact(v) is None:
                continue
            found.add(v)
            todo.extend(self._from(v))
        return found

    def _from(self, v: Value) -> Iterator[Value]:
        """What the fact of a value may follow from."""
        op, n = self.args.get(v, (None, 0))
        if op is None:
            op = self.kernel.producers.get(v)
            if op is None:
                return
            n = op.results.index(v) + 1
            if op.opcode not in ("for", "while", "if"):
                yield from op.operands
                for made in (self.kernel.producers.get(x) for x in op.operands if op.opcode == "map"):
                    yield from made.operands if made is not None and made.opcode == "map" else ()
                return
        if op.opcode == "if":
            yield from (r.yields[n - 1] for r in op.regions)
            if "draft" in op.attrs:
                yield from (x for o in op.regions[0].walk() for x in o.results if x.type.elem == "tree")
        elif op.opcode in ("for", "while") and n:
            many = len(op.results)
            yield op.operands[len(op.operands) - many + n - 1]
            yield op.regions[-1].yields[n - 1 - many]
            yield from (r.args[n] for r in op.regions)

    def _laws(self, needed: set[Value]) -> set[Value]:
        """The values that are distributions by what made them, as far as the drafts need it."""
        laws = set[Value]()
        drawn = [v for v in needed if (fact := self.fact(v)) and (fact[0] == "drafts" or fact[0] == "cell tokens" and fact[4])]
        todo = [op.operands[0] for v in drawn if (op := self.kernel.producers.get(v)) and op.opcode in ("draw", "draw.many")]
        while todo:
            v = todo.pop()
            if v not in laws and sums_to_one(self.kernel, v):
                laws.add(v)
                todo.extend(self._from(v))
        return laws

    # -- as data
    def _invariant(self, op: Op) -> dict[str, Any]:
        inv = self.derivation.invariants[op]
        return {
            "values": [self.labels(x) for x in inv.taints],
            "stored": {name: self.labels(x) for name, x in inv.states},
            "control": self.labels(inv.control),
        }

    def _judgment(self, op: Op) -> dict[str, Any]:
        """The judgment on a rule; by cases with the states of its loops, which are found as the checker misses them."""
        rule, theorem = RULES[self.judgments[op]]
        if rule == "rule-lossless":
            return {"rule": rule, "theorem": LEMMAS.get(op.attrs.get("rule", ""), theorem)}
        many = sum(o.opcode == "for" for o in op.regions[0].walk())
        return {"rule": rule, "theorem": theorem, "states": [[] for _ in range(many)]}

    def label(self, label: tuple[Value, Op | None]) -> list[Any]:
        past = label[1]
        return [self.names[label[0]], None if past is None else "ever" if past is EVER else self.loops[past]]

    def labels(self, labels: Labels) -> dict[str, Any]:
        return {"set": sorted((self.label(x) for x in labels), key=str)}

    def name(self, v: Any) -> Any:
        return self.names[v] if isinstance(v, Value) else [self.name(x) for x in v] if isinstance(v, tuple) else v

    def written(self, fact: Fact | None) -> tuple[Any, ...] | None:
        """A fact of the kernel as one of certificates, without what this mode does not need."""
        own = self.derivation.mode == "own"
        match fact:
            case facts.ModelIs(name):
                return ("model", name)
            case facts.Context(version, parent):
                return ("context", version, parent)
            case facts.Memory(model, version, _, _, _):
                return ("memory", model, version) if fact.whole else None
            case facts.Row(model, version, face):
                return ("row", model, version, face)
            case facts.Rows(model, tree, all_):
                return ("rows", model, self.names[tree], all_)
            case facts.Nodes(tree, version, which):
                return ("nodes", self.names[tree], version, which)
            case facts.Piece(start, end):
                return self.piece(start, end)
            case facts.Column(tree, holds):
                return ("column", self.names[tree], holds)
            case facts.Token(model, version, how, noises):
                return ("token", model, version, how, noises if how == "drawn" else facts.NONE)
            case facts.Path(model, version, how, noises):
                return ("path", model, version, how, noises if how == "drawn" else facts.NONE)
            case facts.Tokens(model, tree):
                return ("tokens", model, self.names[tree])
            case facts.Drafts(noises, race, one, after):
                return None if own or race or one else ("drafts", noises, after)
            case facts.Tree(version, tree, noises, fault, grown, inside):
                if own:
                    return ("tree", self.names[tree], version, facts.NONE, False, frozenset[str](), None)
                return ("tree", self.names[tree], version, noises, not fault, frozenset(self.names[v] for v in grown), inside)
            case facts.Canvas(model, begun):
                return ("canvas", model, begun)
            case facts.CellRows(model, canvas, at, face):
                return None if own else ("cell rows", model, self.names[canvas], self.name(at), face)
            case facts.CellTokens(model, canvas, at, drafts):
                return None if own else ("cell tokens", model, self.names[canvas], self.name(at), self.written(drafts))
            case facts.Picked(of, keys, tokens):
                return ("picked", self.names[of], self.name(keys), self.written(tokens))
            case facts.CellEdit(model, canvas, edit):
                return ("edit", model, self.names[canvas], self.names[edit])
            case facts.Alone(of):
                inner = self.written(of)
                return None if inner is None else ("alone", inner)
        return None

    def piece(self, start: Linear, end: Linear) -> tuple[Any, ...] | None:
        """A piece of the text between places that a certificate has words for."""
        places: dict[Linear, Any] = {Linear(): "start", Linear.of(PROMPT): "prompt"}
        places = {x: ("context", n) for n, x in self.kernel.sizes.context.items()} | places
        return ("piece", places[start], places.get(end, "some")) if start in places else None

    def json(self, x: Any) -> Any:
        if isinstance(x, frozenset):
            return self.labels(x) if any(isinstance(y, tuple) for y in x) else {"set": sorted(x)}
        return [self.json(y) for y in x] if isinstance(x, tuple) else x
