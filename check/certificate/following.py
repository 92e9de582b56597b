"""One pass over a function, from top to bottom, that follows what its certificate claims.

Beside the facts it follows the number of the committed context, and on which draws a value depends, which draws decide whether
an op runs at all (`control`), and what states, the caller's functions and the committed context were told (`stored`). A draw of
an earlier iteration is another one than this iteration's. At the head of a loop all of that is as the certificate says, which
has to follow from what holds before the loop and at the end of its body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decgraph.check.certificate.data import (
    HOW,
    NONE,
    Fact,
    Labels,
    Refused,
    follows,
    labels_of,
    moved,
    names_of,
    one_model,
    placed,
    said,
)
from decgraph.check.certificate.numbers import Numbers
from decgraph.check.certificate.ops import concluded, constant, law, same
from decgraph.check.certificate.verification import accepted
from decgraph.ir.values import Function, Module, Op, Region, Value

LOOPS = ("for", "while", "each")
EVER = "ever"
"""In labels the mark of what a shared memory tells: of a draw of any iteration, however long ago it was read."""
SURE = (
    "const context done noise state.read if for break len face tree.nodes tree.size softmax normalize level.get topk head.read "
    "head.score model.eval request beta draw.point"
)
TOTAL = frozenset(SURE.split())
"""Ops of which nothing that was drawn decides whether they end a draft in an error."""


class Follower:
    """What is known at the place where the pass stands."""

    calculus = Numbers

    def __init__(self, module: Module, function: Function, claims: Mapping[str, Any], condition: tuple[Any, ...] = ()) -> None:
        self.module, self.function, self.claims = module, function, claims
        self.mode, self.models = claims["mode"], claims["model"].split(" or ")
        self.tracked = self.mode != "own"  # what chose the drafts of own draws does not matter
        self.names, self.loop_names = names_of(function)
        self.by_name = {name: v for v, name in self.names.items()}
        self.facts: dict[str, Fact] = {}
        self.constants: dict[Value, Any] = {}
        self.depends: dict[Value, Labels] = {}
        self.stored: dict[str, Labels] = {}
        self.told: dict[str, Labels] = {}
        self.control: Labels = NONE
        self.version = self.newest = 0
        self.progress = self.ended = self.output_decides = False
        self.producers: dict[Value, Op] = {}
        self.counters: dict[Value, tuple[Value, ...]] = {}
        self.around: dict[str, tuple[str, ...]] = {}
        self.reads: dict[Value, int] = {}
        self.grown: dict[str, Op] = {}
        self.committed: set[str] = set()
        self.drafting: set[str] | None = None  # in a draft that an error may end: draws that may not be grown in it any more
        self.ends: Labels = NONE
        self.missing = {*claims["facts"], *claims["laws"], *(f"rule {n}" for n in claims["rules"])}
        lasting = [s for s in function.states if s.scope != "sequence"]
        self.texts = {f"state {s.name}" for s in lasting if s.type.elem == "index"}  # they learn what is committed
        self.shared = {"extern", "batch", *(f"state {s.name}" for s in lasting), *(["context"] if self.texts else [])}
        self._place(function.body, (), ())
        ops = list(function.body.walk())
        noises = [op for op in ops if op.opcode == "noise"]
        sites = [op.attrs["site"] for op in noises if op.attrs["kind"] != "output"]
        self.twice = {site for site in sites if sites.count(site) > 1}
        output = {op.result for op in noises if op.attrs["kind"] == "output"}
        self.output_readers = sum(any(v in output for v in op.operands) for op in ops)
        self.numbers = self.calculus(self, condition)

    def _place(self, region: Region, counters: tuple[Value, ...], loops: tuple[str, ...]) -> None:
        for op in region.ops:
            for v in op.results:
                self.producers[v], self.counters[v], self.around[self.names[v]] = op, counters, loops
            for v in op.operands:
                self.reads[v] = self.reads.get(v, 0) + 1
            looped = op.opcode in LOOPS
            for r in op.regions:
                inner = (*counters, r.args[0]) if looped or op.opcode == "tree.walk" else counters
                self._place(r, inner, (*loops, self.loop_names[op]) if looped else loops)

    def run(self) -> None:
        """Raises Refused where something does not follow."""
        governed = {name for name, _ in self.function.policies}
        for p in self.function.params:
            self.numbers.parameter(p)
            known = p.value.type.elem == "model" and p.name not in governed
            self.claim(p.value, ("model", p.name) if known else None, None)
        for state in self.function.states:  # it may begin with what a shared one holds
            asked = [self.remembered(memory(o)) for o in state.init.walk() if o.opcode in MEMORIES]
            self.stored[f"state {state.name}"] = NONE.union(*asked)
        self.region(self.function.body)
        if not self.ended and self.mode != "inside":
            raise Refused(None, "the function may return before the request is done")
        for name, labels in self.told.items() if self.tracked else ():
            if not labels <= self.claims["shared"].get(name, NONE):
                raise Refused(None, f"more is written to {name} than the certificate says")
        if self.missing:
            raise Refused(None, f"claims about values that nothing reaches: {', '.join(sorted(self.missing))}")

    # -- what is known
    def of(self, v: Value) -> Fact | None:
        return self.facts.get(self.names.get(v, ""))

    def claim(self, v: Value, known: Fact | list[Fact | None] | None, at: Op | None, like: Value | None = None) -> None:
        """Enter what the certificate claims of a value, if it follows from what is known (of several facts from each). like: a
        value that it is."""
        name = self.names[v]
        claimed = self.claims["facts"].get(name)
        self.facts.pop(name, None)
        if claimed is not None:
            all_known = known if isinstance(known, list) else [known]
            if not all(follows(x, claimed) or follows(placed(x, name), claimed) for x in all_known):
                raise Refused(at, f"{name}: {said(claimed)} does not follow from {' and '.join(map(said, all_known))}")
            self.facts[name] = claimed
        self.missing.discard(name)
        if name in self.claims["laws"] and not (law(self, v) if like is None else self.names[like] in self.claims["laws"]):
            raise Refused(at, f"{name} is not known to be distributions")

    def depend(self, *values: Value) -> Labels:
        return NONE.union(*(self.depends.get(v, NONE) for v in values))

    def tells(self, labels: Labels, *values: Value) -> bool:
        return bool(labels & self.depend(*values))

    def is_output(self, name: str) -> bool:
        """Whether a noise is the output stream at the row's own position."""
        made = self.producers.get(self.by_name[name])
        return made is not None and made.opcode == "noise" and made.attrs["kind"] == "output" and not made.operands

    def fresh(self, op: Op, noise: Value) -> bool:
        """Whether nothing but this draw reads a noise: made beside it, keyed by all loops, at a site of its own."""
        made, label = self.producers.get(noise), (self.names[noise], None)
        if made is None or made.opcode != "noise" or made.attrs["kind"] == "output" or made.attrs["site"] in self.twice:
            return False
        here = self.counters[noise] == self.counters[op.result] and set(self.counters[noise]) <= set(made.operands)
        return here and self.reads[noise] == 1 and label not in self.control | self.depend(*op.operands)

    def remembered(self, name: str) -> Labels:
        shared = self.claims["shared"]
        told = shared.get(name, NONE) | (shared.get("context", NONE) if name in self.texts else NONE)
        return self.stored.get(name, NONE).union(told, ((noise, EVER) for noise, _ in told))

    def remember(self, name: str, labels: Labels) -> None:
        labels |= self.control
        self.stored[name] = self.stored.get(name, NONE) | labels
        if name in self.shared:  # others of the session or batch have written it too, in this very iteration
            told = labels | self.stored.get("context", NONE)  # steps, lengths and ends tell of the text so far
            self.told[name] = self.told.get(name, NONE) | {(noise, None) for noise, _ in told}

    # -- ops
    def region(self, region: Region) -> None:
        for op in region.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        before = self.depend(*op.operands) | (self.control if op.regions else NONE)
        noises = frozenset((self.names[v], None) for v in op.operands if v.type.elem == "noise")
        self.depends |= dict.fromkeys(op.results, before if op.opcode == "noise" else before | noises)
        facts: Sequence[Any]
        if op.opcode in OWN:
            facts = OWN[op.opcode](self, op) or ()
            if op.opcode in ("const", *MEMORIES):
                self.numbers.note(op)
        else:
            self._absorb(op)
            self.numbers.note(op)
            if (known := constant(op, self.constants)) is not None:
                self.constants[op.result] = known
            facts = (
                accepted(self, op)
                if op.opcode == "tree.walk"
                else sub_run(self, op)
                if op.opcode == "run"
                else concluded(self, op),
            )
            if (alias := same(op, self.constants)) is not None:
                if alias in self.constants:
                    self.constants.setdefault(op.result, self.constants[alias])
                facts = (self.of(alias) or facts[0],)
            self._may_end(op)
        for v, fact in zip(op.results, [*facts, *[None] * len(op.results)]):
            self.claim(v, fact, op)

    def _absorb(self, op: Op) -> None:
        """An op that runs its regions by itself: its results depend on all that is read there, and nothing commits there."""
        inner = [o for r in op.regions for o in r.walk()]
        told = self.depend(*op.results)
        for o in inner:
            if o.opcode in ("commit", "return"):
                raise Refused(o, f"{o.opcode} inside {op.opcode}")
            told |= {(self.names[v], None) for v in o.operands if v.type.elem == "noise"} | self.depend(*o.operands)
            told |= self.remembered(memory(o)) if o.opcode in MEMORIES else NONE
        if op.opcode == "run":  # what it runs may call functions that remember
            told |= self.remembered("extern")
            callee = self.module.functions[op.attrs["callee"]].body
            own = {(self.names[op.result], None)} if any(o.opcode in ("extern", "run") for o in callee.walk()) else NONE
            self.remember("extern", told | own)
        for o in inner:
            if o.opcode in MEMORIES and o.opcode != "state.read":
                self.remember(memory(o), told)
        if op.regions:
            self.depends |= dict.fromkeys(op.results, told)

    def _may_end(self, op: Op) -> None:
        """In a draft an error ends the block: what decides whether there is one decides what follows in it."""
        flat = (
            op.opcode == "map"
            and all(not v.type.dims for v in op.operands)
            and op.attrs["fn"] not in ("div", "mod", "pow", "floor")
        )
        if self.drafting is None or op.opcode in TOTAL or flat:
            return
        decisive = op.operands
        if op.opcode == "tree.grow":
            decisive = op.operands[2:]
        elif op.opcode == "lookup" and op.operands[0].type.vocab == op.operands[1].type.vocab:
            decisive = ()  # a token is one of its vocabulary
        elif op.opcode == "gather" and (x := self.producers.get(op.operands[0])) and x.opcode in ("draw", "draw.many", "topk"):
            decisive = op.operands[1:]  # there are as many draws, whatever they are
        self.ends |= self.depend(*decisive) | self.control
        self.control |= self.ends
        self.drafting |= {noise for noise, past in self.ends if past is None and noise not in self.grown}

    # -- effects
    def commit(self, op: Op) -> None:
        what, one = self.of(op.operands[0]), False
        if self.mode != "inside" or not self._inside(op, what):
            match what:
                case ("nodes", _, v, "root") if v == self.version:
                    return  # the way to the root is empty
                case ("token" | "path" as kind, model, v, how, noises) if len(op.operands) == 1 and model in self.models:
                    one = kind == "token"
                    if v != self.version or one and op.operands[0].type.dims:
                        raise Refused(op, f"commits {said(what)} in context {self.version}")
                    if HOW[how] < HOW[self.mode]:
                        raise Refused(op, f"what is committed is only {how}")
                    if self.mode == "drawn":
                        self._independent(op, how, noises)
                case _:
                    raise Refused(op, f"commits {said(what)}, which is not what the claim is about")
            self.progress = True
        self.remember("context", self.depend(*op.operands))
        self._new_version()

    def _independent(self, op: Op, how: str, noises: Labels) -> None:
        """Whether a draw is committed does not depend on what it is; the output stream's draws and others do not mix."""
        if how == "drawn" and noises & self.control:
            raise Refused(op, "whether it is committed depends on what it is")
        self.committed.add(how)
        self.output_decides |= any(self.is_output(noise) for noise, _ in self.control)
        if len(self.committed) > 1 and (self.output_readers > 1 or self.output_decides):
            raise Refused(op, "draws of the output stream beside draws with other noise")

    def _inside(self, op: Op, what: Fact | None) -> bool:
        """Cells of a canvas with mass, or the way to a node of a tree whose edges have it."""
        match what:
            case ("canvas", model, _) if len(op.operands) == 1:
                return model in ("", *self.models)
            case ("cell tokens", model, canvas, None, _) if len(op.operands) == 1:
                before = self.facts.get(canvas)
                return model in self.models and before is not None and before[0] == "canvas" and before[2] == self.version
        tree = self.of(op.operands[1]) if len(op.operands) == 2 else None
        return tree is not None and tree[0] == "tree" and tree[6] in ("", *self.models) and tree[2] == self.version

    def _new_version(self) -> None:
        self.version = self.newest = self.newest + 1

    def returns(self, op: Op) -> None:
        if self.mode != "inside":
            raise Refused(op, "returns before the request is done")

    def tell(self, op: Op) -> None:
        """What a state holds, or a function of the caller's answers, tells of all that it was told."""
        told = NONE if op.opcode == "state.read" else self.depend(*op.operands)
        if op.opcode != "state.read":
            self.remember(memory(op), told)
        self.depends |= dict.fromkeys(op.results, told | self.remembered(memory(op)))

    def const(self, op: Op) -> None:
        self.constants[op.result] = op.attrs["value"]

    # -- branches
    def branch(self, op: Op) -> Sequence[Any]:
        if "draft" not in op.attrs:
            return self._either(op)
        # a block that an error may end early, with the tree as it was then: nothing but the tree is read after it
        inner = list(op.regions[0].walk())
        if len(op.results) != 1 or any(o.opcode in ("tree.new", "tree.continue", "tree.reroot") for o in inner):
            raise Refused(op, "a draft that is begun anew where an error may end it")
        outer, before, self.drafting, self.ends = self.control, (self.drafting, self.ends), set(), NONE
        facts, name = self._either(op)[0], self.names[op.result]
        early, by_errors = self.drafting or set(), self.ends
        (self.drafting, self.ends), self.control = before, outer
        self.depends[op.result] |= by_errors
        trees = list(facts) if isinstance(facts, list) else [facts]
        if any(t is None or t[0] != "tree" for t in trees):
            return [None]
        nothing = ("tree", name, trees[0][2], NONE, False, NONE, None)
        trees += [self.of(v) or nothing for o in inner for v in o.results if v.type.elem == "tree"]
        within = {self.loop_names[o] for o in inner if o in self.loop_names}
        labels = NONE.union(*(t[3] for t in trees))
        labels |= {(noise, loop) for noise, _ in labels for loop in self.around.get(noise, ()) if loop in within}
        true, inside = all(t[4] for t in trees) and not early & {noise for noise, _ in labels}, trees[0][6]
        for t in trees:
            inside = one_model(inside, t[6])
        return [("tree", name, trees[0][2], labels, true, frozenset({name}), inside)]

    def _either(self, op: Op) -> Sequence[Any]:
        known = self.numbers.decided(op.operands[0])
        if known is not None:
            region = op.regions[0 if known else 1]
            self.region(region)
            for v, y in zip(op.results, region.yields):
                self.alias(v, y)
            return [self.of(y) for y in region.yields]
        decided, outer, entry = self.depend(op.operands[0]), self.control, self.version
        progress, ends = self.progress, []
        for n, region in enumerate(op.regions):
            self.control, self.version, self.progress = outer | decided, entry, progress
            with self.numbers.under(op.operands[0], n == 0):
                self.region(region)
            ends.append((self.version, self.progress, [self.of(y) for y in region.yields]))
        self.control, self.progress, self.version = outer | self.ends, all(made for _, made, _ in ends), entry
        if any(v != entry for v, _, _ in ends):
            self._new_version()
        out = []
        for n, (v, x, y) in enumerate(zip(op.results, *(r.yields for r in op.regions))):
            a, b = (moved(facts[n], version, self.version) for version, _, facts in ends)
            self.depends[v] = self.depend(x, y) | (NONE if x is y else decided | outer)
            out.append([self._chosen(one, other, decided) for one, other in ((a, b), (b, a))])
        return out

    def _chosen(self, fact: Fact | None, other: Fact | None, decided: Labels) -> Fact | None:
        """One of two facts, where the draws `decided` choose: what decides whether it is taken is not what it was."""
        if fact is not None and other is not None and fact[0] == "cell tokens" and fact != other:
            fact, other = fact[4], other[4] if other[0] == "cell tokens" else other
        if fact is None or other is None or other[0] != fact[0]:
            return None
        told = decided & (labels_of(fact) | labels_of(other))
        if fact[0] == "tree":
            return (*fact[:4], fact[4] and not (told and not fact[5] & other[5]), *fact[5:])
        if fact[0] in ("drafts", "path") and told:
            return None
        return (*fact[:3], "inside", NONE) if told and fact[0] == "token" else fact

    def alias(self, v: Value, y: Value) -> None:
        """A value that is another one."""
        self.depends[v] = self.depend(y)
        if y in self.constants:
            self.constants[v] = self.constants[y]
        self.numbers.alias(v, y)

    # -- loops
    def for_loop(self, op: Op) -> Sequence[Any]:
        if op.attrs.get("lanes") and contains(op, "commit"):
            raise Refused(op, "commits in lanes")
        if self.numbers.iterations(op) is None:
            return self._loop(op, op.operands[2:], self.depend(*op.operands[:2]))
        for v, y in zip(op.results, op.operands[2:]):
            self.alias(v, y)
        return [self.of(y) for y in op.operands[2:]]

    def while_loop(self, op: Op) -> Sequence[Any]:
        limited = 1 if op.attrs.get("limited") else 0
        out = self._loop(op, op.operands[limited:], self.depend(*op.operands[:limited]))
        if asks_done(op):
            if op.attrs.get("stops"):
                raise Refused(op, "leaves the loop before the request is done")
            always = any(o is op for o in self.function.body.ops)
            self.ended = self.ended or always and not limited and "fills" not in op.attrs
        return out

    def _loop(self, op: Op, carried: Sequence[Value], bounds: Labels) -> Sequence[Any]:
        """The invariant holds before the loop, and its body keeps it: so it holds afterwards."""
        commits, entry, outer, name = contains(op, "commit"), self.version, self.control, self.loop_names[op]
        loop = self.claims["loops"].get(name) or {"values": (NONE,) * len(carried), "stored": {}, "control": NONE}
        body, stops = op.regions[-1], int(bool(op.attrs.get("stops")))
        if commits:
            self._new_version()
        head, progress = self.version, self.progress
        self._check_invariant(op, loop, [self.depend(v) for v in carried], outer | bounds, self.stored, "before the loop")
        for a, v in zip(body.args[1:], carried):
            self.claim(a, moved(self.of(v), entry, head), op)
        for a, asked in zip(body.args[1:], op.regions[0].args[1:] if len(op.regions) == 2 else ()):
            self.claim(asked, self.of(a), op, a)
        self.stored, self.control, self.progress = dict(loop["stored"]), loop["control"], False
        for region in op.regions:
            self.depends |= dict(zip(region.args[1:], loop["values"]))
        goes_on: Value | None = None
        if len(op.regions) == 2:
            self.region(op.regions[0])
            goes_on = op.regions[0].yields[0]
            self.control |= self.depend(goes_on)
            for a, asked in zip(body.args[1:], op.regions[0].args[1:]):
                self.numbers.alias(a, asked)
        with self.numbers.under(goes_on, True):
            self.region(body)
        if stops or "fills" in op.attrs:  # it may end where no node of a tree can grow, which the drafts say
            self.control |= self.depend(*(body.yields if "fills" in op.attrs else body.yields[:1]))
        for a, y in zip(body.args[1:], body.yields[stops:]):
            claimed, fact = self.claims["facts"].get(self.names[a]), moved(self.of(y), self.version, head)
            if y is not a and fact is not None and fact[0] != "tree" and labels_of(fact):
                fact = (*fact[:4], None) if fact[0] == "cell tokens" else None  # draws of an earlier iteration are not fresh
            if fact is not None and fact[0] == "tree":
                fact = placed((*fact[:3], self._aged(frozenset(fact[3] or ()), name), *fact[4:]), self.names[a])
            if claimed is not None and not follows(fact, claimed):
                raise Refused(op, f"the body does not keep {self.names[a]}: {said(claimed)}")
        now = [self._aged(self.depend(y), name) for y in body.yields[stops:]]
        stored = {k: self._aged(v, name) for k, v in self.stored.items()}
        self._check_invariant(op, loop, now, self._aged(self.control, name), stored, "by its body")
        if asks_done(op) and not self.progress and self.mode != "inside":
            raise Refused(op, "an iteration may commit nothing")
        self.progress, self.control, self.stored, self.version = progress, outer | self.ends, dict(loop["stored"]), head
        if commits:
            self._new_version()
        self.depends |= {v: labels | loop["control"] for v, labels in zip(op.results, loop["values"])}
        return [placed(moved(self.claims["facts"].get(self.names[a]), head, self.version), self.names[v])
                for a, v in zip(body.args[1:], op.results)]  # fmt: skip

    def _check_invariant(
        self, op: Op, loop: Mapping[str, Any], now: Sequence[Labels], control: Labels, stored: Mapping[str, Labels], when: str
    ) -> None:
        """That the invariant allows for all dependences as they are."""
        fits = (
            len(now) == len(loop["values"]) and all(a <= b for a, b in zip(now, loop["values"])) and control <= loop["control"]
        )
        if self.tracked and (not fits or any(v - loop["stored"].get(k, NONE) for k, v in stored.items())):
            raise Refused(op, f"its invariant leaves out draws that something depends on ({when})")

    def _aged(self, labels: Labels, loop: str) -> Labels:
        aged = {(noise, past if past == EVER or loop not in self.around.get(noise, ()) else loop) for noise, past in labels}
        return frozenset(aged | {(noise, None) for noise, past in labels if past == EVER})


def sub_run(k: Follower, op: Op) -> Fact | None:
    """What another algorithm commits that is run from the context, up to wherever it is stopped: its model gives mass to it, or
    it is drawn as the model draws, with noise of its own (`left_when_Law`)."""
    here, model = k.of(op.operands[0]), k.of(op.operands[2])
    shown, function = k.claims["functions"].get(op.attrs["callee"]), k.module.functions[op.attrs["callee"]]
    if here not in (("context", k.version, False), None) and (here[0] != "nodes" or here[2:] != (k.version, "root")):
        return None
    if here is None or shown is None or model is None or model[0] != "model" or (shown["model"],) != tuple(op.attrs["args"]):
        return None
    inner, mode = {o.opcode for o in op.regions[0].walk()}, "inside" if k.mode == "inside" else "own"
    if any(o.opcode == "run" for o in function.body.walk()) or shown["premises"] or shown["mode"] != mode:
        return None
    Follower(k.module, function, shown).run()
    if mode == "inside":
        return ("path", model[1], k.version, "inside", NONE)
    sites = [o.attrs.get("site") for o in k.function.body.walk()]
    fresh = set(k.counters[op.result]) <= set(op.operands) and sites.count(op.attrs["site"]) == 1
    asked = [k.remembered(memory(o)) for o in op.regions[0].walk() if o.opcode == "state.read"]
    fresh &= (k.names[op.result], None) not in k.control.union(k.depend(*op.operands), *asked)
    if not fresh or inner & {"noise", "extern", "run", "commit", "state.write"}:
        return None
    labels: Labels = frozenset({(k.names[op.result], None)})
    k.depends[op.result] |= labels
    return ("path", model[1], k.version, "drawn", labels)


def contains(op: Op, opcode: str) -> bool:
    """Whether an op of that name is inside another."""
    return any(o.opcode == opcode for r in op.regions for o in r.walk())


def memory(op: Op) -> str:
    """Where an op leaves what it was told."""
    if op.opcode in ("batch.fold", "batch.top"):
        return "batch"
    return "extern" if op.opcode in ("extern", "run") else f"state {op.attrs['state']}"


def asks_done(op: Op) -> bool:
    """Whether an op is the loop `while not done`."""
    if op.opcode != "while" or op.attrs.get("bound") != "done":
        return False
    ops, (condition,) = op.regions[0].ops, op.regions[0].yields
    return len(ops) == 2 and ops[0].opcode == "done" and ops[1].attrs.get("fn") == "not" and ops[1].result is condition


MEMORIES = ("extern", "state.read", "state.write", "batch.fold", "batch.top")
OWN: dict[str, Any] = dict.fromkeys(MEMORIES, Follower.tell)
OWN |= {"const": Follower.const, "commit": Follower.commit, "return": Follower.returns}
OWN |= {"if": Follower.branch, "for": Follower.for_loop, "while": Follower.while_loop}
"""Ops with effects or regions."""
