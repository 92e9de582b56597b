"""One pass over a function, from top to bottom, that follows what its certificate claims.

Beside the facts it follows the number of the committed context, and where a claim is about distributions also on which draws a
value depends, which draws decide whether an op runs at all (`control`), and what states, the caller's functions and the
committed context were told (`stored`). A draw of an earlier iteration is another one than this iteration's. At the head of a
loop all of that is as the certificate says, which has to follow from what holds before the loop and at the end of its body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decgraph.check.certificate.data import (
    HOW,
    NONE,
    Certificate,
    Fact,
    Labels,
    Loop,
    Refused,
    follows,
    labels_of,
    moved,
    names_of,
    one_model,
    placed,
)
from decgraph.check.certificate.numbers import Numbers
from decgraph.check.certificate.ops import RULES, constant, positive_rule, reads_noises, same, sums_rule
from decgraph.check.certificate.verification import accepted
from decgraph.ir.values import Constant, Function, Module, Op, Region, Value

LOOPS = ("for", "while", "each")
TOTAL = frozenset(
    "const context done noise state.read if for break len face tree.nodes tree.size tree.new softmax normalize map "
    "level.get reduce topk head.read head.score model.eval request beta draw.point rank scan slice take_first tree.set".split()
)
"""Ops of which nothing that was drawn decides whether they end a draft in an error: defined for all operands, or failing, as a
model does, whatever was drafted."""
ENDLESS = ("tree.new", "tree.continue", "tree.reroot")


class Pass:
    """What is known at the place where the pass stands."""

    def __init__(
        self, module: Module, function: Function, certificate: Certificate, condition: tuple[Any, ...] = ()
    ) -> None:
        self.module, self.function, self.certificate = module, function, certificate
        self.mode, self.models = certificate.mode, certificate.model.split(" or ")
        self.names, self.loop_names = names_of(function)
        self.by_name = {name: v for v, name in self.names.items()}
        self.facts: dict[str, Fact] = {}
        self.constants: dict[Value, Constant] = {}
        self.depends: dict[Value, Labels] = {}
        self.stored: dict[str, Labels] = {}
        self.told: dict[str, Labels] = {}
        self.control: Labels = NONE
        self.version = self.newest = 0
        self.progress = self.ended = self.output_decides = False
        self.made: dict[Value, Op] = {}
        self.counters: dict[Value, tuple[Value, ...]] = {}
        self.around: dict[str, tuple[str, ...]] = {}
        self.reads: dict[Value, int] = {}
        self.grown: dict[str, Op] = {}
        self.committed: set[str] = set()
        self.drafting: set[str] | None = None  # in a draft that an error may end: draws that must not be grown in it any more
        self.ends: Labels = NONE
        self.unread: dict[str, Fact] = {}
        self.missing = {*certificate.facts, *certificate.laws, *certificate.positive}
        self.missing |= {f"{name} (rule)" for name in certificate.rules}
        self.shared = {f"state {s.name}" for s in function.states if s.scope != "sequence"} | {"extern"}
        self._place(function.body, (), ())
        ops = list(function.body.walk())
        self.noise_ops = [op for op in ops if op.opcode == "noise"]
        sites = [op.attrs["site"] for op in self.noise_ops if op.attrs["kind"] != "output"]
        self.twice = {site for site in sites if sites.count(site) > 1}
        output = {op.result for op in self.noise_ops if op.attrs["kind"] == "output"}
        self.output_readers = sum(any(v in output for v in op.operands) for op in ops)
        self.tracked = self.mode != "own"  # what chose the drafts of own draws does not matter
        self.numbers = Numbers(self, condition)
        for s in function.states:
            empty = all(op.opcode == "list" and not op.operands for op in s.init.ops)
            if s.scope == "sequence" and s.type.elem == "draw" and empty:
                self.unread[f"state {s.name}"] = ("drafts", NONE, False, False, None)

    def _place(self, region: Region, counters: tuple[Value, ...], loops: tuple[str, ...]) -> None:
        for op in region.ops:
            for v in op.results:
                self.made[v], self.counters[v], self.around[self.names[v]] = op, counters, loops
            for v in op.operands:
                self.reads[v] = self.reads.get(v, 0) + 1
            looped = op.opcode in LOOPS
            for r in op.regions:
                inner = (*counters, r.args[0]) if looped or op.opcode == "tree.walk" else counters
                self._place(r, inner, (*loops, self.loop_names[op]) if looped else loops)

    # -- facts
    def run(self) -> None:
        """Raises Refused where something does not follow."""
        governed = {name for name, _ in self.function.policies}
        settings = self.numbers.settings
        for p in self.function.params:
            known = p.value.type.elem == "model" and p.name not in governed
            self.claim(p.value, ("model", p.name) if known else None, None)
            self.numbers.parameter(p)
            if p.name in settings:
                self.constants[p.value] = settings[p.name]
        self.region(self.function.body)
        if not self.ended and self.mode != "inside":
            raise Refused(None, "the function may return before the request is done")
        for name, labels in self.told.items():
            if self.tracked and not labels <= self.certificate.shared.get(name, NONE):
                raise Refused(None, f"more is written to {name} than the certificate says")
        if self.missing:
            raise Refused(None, f"facts of values that nothing reaches: {', '.join(sorted(self.missing))}")

    def of(self, v: Value) -> Fact | None:
        return self.facts.get(self.names.get(v, ""))

    def claim(self, v: Value, known: Fact | None, at: Op | None) -> None:
        """Enter what the certificate claims of a value, if it follows from what is known."""
        name = self.names[v]
        claimed = self.certificate.facts.get(name)
        self.facts.pop(name, None)
        if claimed is None:
            return
        if not follows(known, claimed):
            raise Refused(at, f"{name}: {said(claimed)} does not follow" + (f" from {said(known)}" if known else ""))
        self.facts[name] = claimed
        self.missing.discard(name)

    def depend(self, *values: Value) -> Labels:
        return frozenset().union(*(self.depends.get(v, NONE) for v in values))

    def is_output(self, name: str) -> bool:
        """Whether a noise is the output stream at the row's own position."""
        made = self.made.get(self.by_name[name]) if name in self.by_name else None
        return made is not None and made.opcode == "noise" and made.attrs["kind"] == "output" and not made.operands

    def fresh(self, op: Op, noise: Value) -> bool:
        """Whether nothing but this draw reads a noise, nor can have: made beside it, keyed by all loops, at a site of its own."""
        made, label = self.made.get(noise), (self.names[noise], None)
        if made is None or made.opcode != "noise" or made.attrs["kind"] == "output" or made.attrs["site"] in self.twice:
            return False
        here = self.counters[noise] == self.counters[op.result] and set(self.counters[noise]) <= set(made.operands)
        return here and self.reads[noise] == 1 and label not in self.control | self.depend(*op.operands)

    def tells(self, labels: Labels, *values: Value) -> bool:
        return bool(labels & self.depend(*values))

    def remembered(self, name: str) -> Labels:
        return self.stored.get(name, NONE) | self.certificate.shared.get(name, NONE)

    def remember(self, name: str, labels: Labels) -> None:
        labels |= self.control
        self.stored[name] = self.stored.get(name, NONE) | labels
        if name in self.shared:  # others of the session have written it too, in this very iteration
            self.told[name] = self.told.get(name, NONE) | {(noise, None) for noise, _ in labels}

    # -- ops
    def region(self, region: Region) -> None:
        for op in region.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        before = self.depend(*op.operands) | (self.control if op.regions else NONE)
        for v in op.results:
            self.depends[v] = before
        own = OWN.get(op.opcode)
        if own is not None:
            found = own(self, op)
            if op.opcode in ("state.read", "extern"):
                self.numbers.note(op)
        else:
            self._absorb(op)
            self.numbers.note(op)
            reads_noises(self, op)
            known = constant(op, self.constants, self.numbers)
            if known is not None:
                self.constants[op.result] = known
            rule = BESIDE.get(op.opcode) or RULES.get(op.opcode)
            found = None if rule is None else rule(self, op)
            if (alias := same(op, self.constants)) is not None:
                if alias in self.constants:
                    self.constants.setdefault(op.result, self.constants[alias])
                found = self.of(alias) or found
            self._may_end(op)
        facts = found if isinstance(found, list) else [found]
        for v, fact in zip(op.results, [*facts, *[None] * len(op.results)]):
            self.claim(v, fact, op)
            self.share(v, op)

    def share(self, v: Value, op: Op | None) -> None:
        """That a value is distributions, or not negative, as claimed."""
        name = self.names[v]
        for claimed, rule, what in (
            (self.certificate.laws, sums_rule, "is not known to be distributions"),
            (self.certificate.positive, positive_rule, "is not known to be not negative"),
        ):
            if name in claimed:
                if not rule(self, v):
                    raise Refused(op, f"{name} {what}")
                self.missing.discard(name)

    def _absorb(self, op: Op) -> None:
        """An op that runs its regions by itself: its results depend on all that is read there, and nothing commits there."""
        told: Labels = self.depend(*op.results)
        inner = [o for r in op.regions for o in r.walk()]
        for o in inner:
            if o.opcode in ("commit", "return"):
                raise Refused(o, f"{o.opcode} inside {op.opcode}")
            told |= {(self.names[v], None) for v in o.operands if v.type.elem == "noise"} | self.depend(*o.operands)
        if op.opcode == "run":
            told |= self.remembered("extern")
            self.remember("extern", told)
        for o in inner:
            if o.opcode in ("state.write", "extern"):
                self.unread.pop(memory(o), None)
                self.remember(memory(o), told)
                told |= self.remembered(memory(o))
        if op.regions or op.opcode == "run":
            for v in op.results:
                self.depends[v] = told

    def _may_end(self, op: Op) -> None:
        """In a draft an error ends the block: what decides whether there is one decides what follows in it."""
        if self.drafting is None or op.opcode in TOTAL:
            return
        decisive = op.operands
        if op.opcode == "tree.grow":
            decisive = op.operands[2:]
        elif op.opcode == "lookup":  # a token is one of its vocabulary
            decisive = op.operands[1:] if op.operands[0].type.vocab != op.operands[1].type.vocab else ()
        elif op.opcode == "gather" and op.operands[0].type.elem == "draw" and self._counted(op.operands[0]):
            decisive = op.operands[1:]
        elif op.opcode in ("draw", "draw.many", "gather", "warp", "renorm", "draw.get", "tree.get", "bernoulli", "arg"):
            decisive = op.operands
        self._ends_by(self.depend(*decisive))

    def _counted(self, v: Value) -> bool:
        """Whether a value is draws, as many as there are whatever they are."""
        op = self.made.get(v)
        if op is not None and op.opcode == "if":
            return all(self._counted(r.yields[op.results.index(v)]) for r in op.regions)
        return op is not None and op.opcode in ("draw", "draw.many", "topk")

    def _ends_by(self, labels: Labels) -> None:
        self.ends |= labels | self.control
        self.control |= self.ends
        if self.drafting is not None:
            self.drafting |= {noise for noise, past in self.ends if past is None and noise not in self.grown}

    # -- effects
    def commit(self, op: Op) -> None:
        what, one = self.of(op.operands[0]), False
        if self.mode == "inside" and self._inside(op, what):
            return self._new_context(op)
        match what:
            case ("nodes", _, v, "root") if v == self.version:
                return  # the way to the root is empty
            case ("token" | "path" as kind, model, v, how, noises) if len(op.operands) == 1:
                one = kind == "token"
                if one and op.operands[0].type.dims or model not in self.models:
                    raise Refused(op, f"commits {said(what)}, which is not what the claim is about")
                if v != self.version:
                    raise Refused(op, f"what is committed is of context {v}, and this is context {self.version}")
                if HOW[how] < HOW[self.mode]:
                    raise Refused(op, f"what is committed is only {how}")
                if self.mode == "drawn":
                    self._independent(op, how, noises)
            case _:
                raise Refused(op, "nothing is claimed of what is committed")
        self._new_context(op, one)
        self.progress = True

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
            case ("cell tokens", model, canvas, None, _) if len(op.operands) == 1 and model in self.models:
                before = self.facts.get(canvas)
                return before is not None and before[0] == "canvas" and before[2] == self.version
        tree = self.of(op.operands[1]) if len(op.operands) == 2 else None
        if tree is None or tree[0] != "tree" or tree[6] not in ("", *self.models):
            return False
        if tree[2] != self.version:
            raise Refused(op, "commits the way to a node of a tree on another context")
        return True

    def _new_context(self, op: Op, one: bool = False) -> None:
        self.remember("context", self.depend(*op.operands))
        self._new_version(one)

    def _new_version(self, one: bool = False) -> None:
        old, self.newest = self.version, self.newest + 1
        self.version = self.newest
        self.numbers.committed(old, self.version, one)

    def returns(self, op: Op) -> None:
        if self.mode != "inside":
            raise Refused(op, "returns before the request is done")

    def state_write(self, op: Op) -> None:
        name, fact = memory(op), self.of(op.operands[0])
        self.remember(name, self.depend(*op.operands))
        self.unread.pop(name, None)
        if fact is not None and fact[0] == "drafts" and not fact[2] and not fact[3]:
            self.unread[name] = (*fact[:4], None)

    def state_read(self, op: Op) -> Fact | None:
        self.depends[op.result] = self.remembered(memory(op))
        return self.unread.get(memory(op))

    def extern(self, op: Op) -> None:
        """A function of the caller's may remember what it was told: its answers tell of all of that."""
        self.remember("extern", self.depend(*op.operands))
        self.depends[op.result] = self.remembered("extern")

    def const(self, op: Op) -> None:
        self.constants[op.result] = op.attrs["value"]

    def sub_run(self, op: Op) -> Fact | None:
        """What another algorithm commits that is run from the context, up to wherever it is stopped: its model gives mass to it, or
        it is drawn as the model draws, with noise of its own (`left_when_Law`)."""
        model, callee = self.of(op.operands[2]), str(op.attrs["callee"])
        shown, function = self.certificate.functions.get(callee), self.module.functions[callee]
        here = self.of(op.operands[0])
        if here != ("context", self.version, False) and (here is None or here[0] != "nodes" or here[2:] != (self.version, "root")):
            return None
        inner = {o.opcode for o in op.regions[0].walk()}
        if model is None or model[0] != "model" or shown is None or (shown.model,) != tuple(op.attrs["args"]):
            return None
        if any(o.opcode == "run" for o in function.body.walk()) or shown.premises:
            return None
        mode = "inside" if self.mode == "inside" else "own"
        if shown.mode != mode:
            return None
        Pass(self.module, function, shown).run()
        if mode == "inside":
            return ("path", model[1], self.version, "inside", NONE)
        sites = [o.attrs.get("site") for o in self.function.body.walk()]
        fresh = set(self.counters[op.result]) <= set(op.operands) and sites.count(op.attrs["site"]) == 1
        if not fresh or inner & {"noise", "extern", "run", "commit", "state.write"}:
            return None
        labels: Labels = frozenset({(self.names[op.result], None)})
        self.depends[op.result] |= labels
        return ("path", model[1], self.version, "drawn", labels)

    # -- branches
    def branch(self, op: Op) -> list[Fact | None]:
        return self._draft(op) if "draft" in op.attrs else self._either(op)

    def _either(self, op: Op) -> list[Fact | None]:
        known = self.numbers.decided(op.operands[0])
        if known is not None:
            region = op.regions[0 if known else 1]
            self.region(region)
            for v, y in zip(op.results, region.yields):
                self._alias(v, y)
            return [self.of(y) for y in region.yields]
        decided, outer, entry, unread = self.depend(op.operands[0]), self.control, self.version, self.unread
        progress, ends, left = self.progress, [], []
        for n, region in enumerate(op.regions):
            self.control, self.version, self.progress, self.unread = outer | decided, entry, progress, dict(unread)
            with self.numbers.under(op.operands[0], n == 0):
                self.region(region)
            ends.append((self.version, self.progress, [self.of(y) for y in region.yields], region.yields))
            left.append(self.unread)
        self.control, self.progress = outer | self.ends, all(made for _, made, _, _ in ends)
        self.version, self.unread = entry, {n: f for n, f in left[0].items() if left[1].get(n) == f}
        if any(v != entry for v, _, _, _ in ends):
            self._new_version()
        out = []
        for n, v in enumerate(op.results):
            (a, b), (x, y) = ([moved(e[2][n], e[0], self.version) for e in ends], [e[3][n] for e in ends])
            self.depends[v] = self.depend(x, y) | (NONE if x is y else decided | outer)
            out.append(joined(a, b, self.names[v], decided))
        return out

    def _alias(self, v: Value, y: Value) -> None:
        self.depends[v] = self.depend(y)
        if y in self.constants:
            self.constants[v] = self.constants[y]
        self.numbers.alias(v, y)

    def _draft(self, op: Op) -> list[Fact | None]:
        """A block that an error may end early, with the tree as it was then: nothing but the tree is read after it."""
        inner = [o for o in op.regions[0].walk()]
        if len(op.results) != 1 or any(o.opcode in ENDLESS for o in inner):
            raise Refused(op, "a draft that is begun anew where an error may end it")
        outer, before = self.control, (self.drafting, self.ends)
        self.drafting, self.ends = set(), NONE
        (tree,) = self._either(op)
        for o in inner:
            if o.opcode == "state.write":
                self.unread.pop(memory(o), None)
        early, by_errors = self.drafting, self.ends
        (self.drafting, self.ends), self.control = before, outer
        self.depends[op.result] |= by_errors
        if tree is None or tree[0] != "tree":
            return [None]
        _, _, version, noises, true, _, inside = tree
        for o in inner:  # an error leaves the tree that was made last, also one that the block would have put aside
            for v in (v for v in o.results if v.type.elem == "tree"):
                made = self.of(v)
                if made is None or made[0] != "tree":
                    true, inside = False, None
                    continue
                within = {self.loop_names[x] for x in inner if x in self.loop_names}
                aged = {(noise, loop) for noise, _ in made[3] for loop in self.around.get(noise, ()) if loop in within}
                noises, true, inside = noises | made[3] | aged, true and made[4], one_model(inside, made[6])
        name = self.names[op.result]
        kept_out = (early or set()) & {noise for noise, _ in noises}
        return [("tree", name, version, noises, true and not kept_out, frozenset({name}), inside)]

    # -- loops
    def for_loop(self, op: Op) -> list[Fact | None]:
        if op.attrs.get("lanes") and contains(op, "commit"):
            raise Refused(op, "commits in lanes")
        how = self.numbers.iterations(op)
        if how == 0:
            for v, first in zip(op.results, op.operands[2:]):
                self._alias(v, first)
            return [self.of(v) for v in op.operands[2:]]
        if how == 1:
            body = op.regions[0]
            for a, v in zip(body.args, (op.operands[0], *op.operands[2:])):
                self._alias(a, v)
                if a is not body.args[0]:
                    self.claim(a, self.of(v), op)
            self.region(body)
            for v, y in zip(op.results, body.yields):
                self._alias(v, y)
            return [self.of(y) for y in body.yields]
        return self._loop(op, op.operands[2:], self.depend(*op.operands[:2]))

    def while_loop(self, op: Op) -> list[Fact | None]:
        limited = 1 if op.attrs.get("limited") else 0
        out = self._loop(op, op.operands[limited:], self.depend(*op.operands[:limited]))
        if asks_done(op):
            if op.attrs.get("stops"):
                raise Refused(op, "leaves the loop before the request is done")
            always = any(o is op for o in self.function.body.ops)
            self.ended = self.ended or always and not limited and "fills" not in op.attrs
        return out

    def _loop(self, op: Op, carried: Sequence[Value], bounds: Labels) -> list[Fact | None]:
        """The invariant holds before the loop, and its body keeps it: so it holds afterwards."""
        commits, entry, outer = contains(op, "commit"), self.version, self.control
        loop = self.certificate.loops.get(self.loop_names[op], Loop())
        body, stops = op.regions[-1], int(bool(op.attrs.get("stops")))
        if len(loop.values) not in (0, len(carried)):
            raise Refused(op, "its invariant speaks of other values than the loop carries")
        values = loop.values or (NONE,) * len(carried)
        before = [self.of(v) for v in carried]
        if commits:
            self._new_version()
        head = self.version
        unread = dict(self.unread)
        self.numbers.begin(op, carried, entry)
        for a, fact in zip(body.args[1:], before):
            self.claim(a, placed(moved(fact, entry, head), self.names[a]), op)
        for a, asked in zip(body.args[1:], op.regions[0].args[1:] if len(op.regions) == 2 else ()):
            self.claim(asked, placed(self.of(a), self.names[asked]), op)
        self._kept(op, loop, values, [self.depend(v) for v in carried], outer | bounds, self.stored, "before the loop")
        for name in loop.unread:
            whole = asks_done(op) and any(o is op for o in self.function.body.ops) and len(loop.unread) == 1
            if not whole or unread.get(name) != ("drafts", NONE, False, False, None):
                raise Refused(op, f"{name} is not known to begin without draws")
        self.stored, self.control = dict(loop.stored), loop.control
        self._hand_over(op, loop.unread)
        progress, self.progress = self.progress, False
        for region in op.regions:
            for a, labels in zip(region.args[1:], values):
                self.depends[a] = labels
                self.share(a, op)
        goes_on: Value | None = None
        if len(op.regions) == 2:
            self.region(op.regions[0])
            goes_on = op.regions[0].yields[0]
            self.control |= self.depend(goes_on)
            for a, asked in zip(body.args[1:], op.regions[0].args[1:]):
                self.numbers.alias(a, asked)
        with self.numbers.under(goes_on, True, head if asks_done(op) else None):
            self.region(body)
            self.numbers.end(op, body.yields[stops:])
        if stops:
            self.control |= self.depend(body.yields[0])
        if "fills" in op.attrs:  # it ends where no node of a tree can grow, which the drafts say
            self.control |= self.depend(*body.yields)
        name = self.loop_names[op]
        for n, (a, y) in enumerate(zip(body.args[1:], body.yields[stops:])):
            claimed = self.certificate.facts.get(self.names[a])
            if claimed is None:
                continue
            fact = placed(moved(self.of(y), self.version, head), self.names[a])
            if y is not a and fact is not None and fact[0] != "tree" and labels_of(fact):
                fact = (*fact[:4], None) if fact[0] == "cell tokens" else None  # draws of an earlier iteration are not fresh
            if fact is not None and fact[0] == "tree":
                fact = (*fact[:3], self._aged(fact[3], name), *fact[4:])
            if not follows(fact, claimed):
                raise Refused(op, f"the body does not keep {self.names[a]}: {said(claimed)}")
        self._left(op, loop.unread, body)
        now = [self._aged(self.depend(y), name) for y in body.yields[stops:]]
        stored = {k: self._aged(v, name) for k, v in self.stored.items()}
        self._kept(op, loop, values, now, self._aged(self.control, name), stored, "by its body")
        if asks_done(op) and not self.progress and self.mode != "inside":
            raise Refused(op, "an iteration may commit nothing")
        self.progress, self.control, self.stored = progress, outer | self.ends, dict(loop.stored)
        self._hand_over(op, ())
        if commits:
            self._new_version()
        else:
            self.version = entry
        for v, labels in zip(op.results, values):
            self.depends[v] = labels | loop.control
        args = [self.certificate.facts.get(self.names[a]) for a in body.args[1:]]
        self.numbers.after(op, carried)
        return [placed(moved(fact, head, self.version), self.names[v]) for v, fact in zip(op.results, args)]

    def _kept(
        self, op: Op, loop: Loop, values: Sequence[Labels], now: Sequence[Labels], control: Labels, stored: Any, when: str
    ) -> None:
        """That the invariant allows for all dependences as they are."""
        if not self.tracked:
            return
        within = all(a <= b for a, b in zip(now, values)) and control <= loop.control
        if not within or any(labels - loop.stored.get(name, NONE) for name, labels in stored.items()):
            raise Refused(op, f"its invariant leaves out draws that something depends on ({when})")

    def _aged(self, labels: Labels, loop: str) -> Labels:
        return frozenset((noise, loop if loop in self.around.get(noise, ()) else past) for noise, past in labels)

    def _hand_over(self, op: Op, carried: Sequence[str]) -> None:
        """At the head of a loop: the draws that a state holds unread count as drawn where they are first read."""
        counter = self.names[op.regions[-1].args[0]]
        for o in (o for r in op.regions for o in r.walk() if o.opcode == "state.write"):
            self.unread.pop(memory(o), None)
        for name in carried:
            drawn: Labels = frozenset({(counter, None)})
            self.unread[name] = ("drafts", drawn, False, False, None)
            self.stored[name] = self.stored.get(name, NONE) | drawn
            value = op.regions[-1].args[0]
            self.counters[value], self.around[counter] = (value,), (self.loop_names[op],)

    def _left(self, op: Op, carried: Sequence[str], body: Region) -> None:
        """At the end of an iteration such a state holds draws that were made in it and read by nothing."""
        for name in carried:
            fact = self.unread.get(name)
            others = [labels for other, labels in self.stored.items() if other != name]
            read = self.control | self.ends | self.depend(*body.yields) | NONE.union(*others)
            counter = body.args[0]
            here = fact is not None and all(
                past is None
                and self.counters[self.by_name[noise]] == (counter,)
                and self.by_name[noise] is not counter
                and noise not in self.grown
                for noise, past in fact[1]
            )
            if fact is None or not here or fact[1] & read:
                raise Refused(op, f"{name} is not known to hold draws that nothing has read")
            self.stored[name] -= fact[1]


def joined(a: Fact | None, b: Fact | None, name: str, decided: Labels) -> Fact | None:
    """What follows of a value that is one of two; which of them depends on the draws `decided`."""
    if a != b:
        a, b = (x[4] if x is not None and x[0] == "cell tokens" else x for x in (a, b))
    if a is None or b is None:
        return None
    out: Fact | None = None
    match a, b:
        case ("tree", _, v, n, true, grown, inside), ("tree", _, w, o, so, also, less) if v == w:
            chosen = decided & (n | o) and not grown & also
            out = ("tree", name, v, n | o, true and so and not chosen, grown & also | {name}, one_model(inside, less))
            return a if a == b and not chosen else out
        case ("drafts", n, False, one, after), ("drafts", o, False, also, less):
            out = ("drafts", n | o, False, one or also, after if after == less else None)
        case ("token" | "path" as kind, m, v, how, n), (other, k, w, also, o) if (kind, m, v) == (other, k, w):
            out = (kind, m, v, how if how == also else "inside", n | o)
        case ("canvas", m, v), ("canvas", n, w) if (model := one_model(m, n)) is not None:
            out = ("canvas", model, v if v == w else -1)
        case (("row", m, v, f), ("row", n, w, g)) if {f, g} == {"logits", "logs"} and (m, v) == (n, w):
            out = ("row", m, v, "logs")
        case (kind, *_), (other, *_) if kind == other and kind in ("row", "cell rows", "memory", "rows", "nodes"):
            for face in ("", "mass", "scores") if kind in ("row", "cell rows") else ("",):
                weak = (*a[:-1], face) if face else a
                if follows(a, weak) and follows(b, weak):
                    out = weak
                    break
    out = a if a == b else out
    if out is not None and out[0] in ("token", "path", "drafts") and labels_of(out) & decided:
        return (*out[:3], "inside", NONE) if out[0] == "token" else None
    return out


def said(fact: Fact | None) -> str:
    """A fact as a person reads it."""
    return "nothing" if fact is None else "(" + " ".join(_word(x) for x in fact) + ")"


def _word(x: object) -> str:
    if isinstance(x, frozenset):
        return "{" + ", ".join(sorted(map(_word, x))) + "}"
    return said(x) if isinstance(x, tuple) and x and isinstance(x[0], str) else str(x)


def contains(op: Op, opcode: str) -> bool:
    return any(o.opcode == opcode for r in op.regions for o in r.walk())


def memory(op: Op) -> str:
    """Where an op leaves what it was told."""
    return "extern" if op.opcode in ("extern", "run") else f"state {op.attrs['state']}"


def asks_done(op: Op) -> bool:
    """Whether an op is the loop `while not done`."""
    if op.opcode != "while" or op.attrs.get("bound") != "done":
        return False
    ops, (condition,) = op.regions[0].ops, op.regions[0].yields
    return len(ops) == 2 and ops[0].opcode == "done" and ops[1].attrs.get("fn") == "not" and ops[1].result is condition


OWN = {
    "const": Pass.const,
    "commit": Pass.commit,
    "return": Pass.returns,
    "extern": Pass.extern,
    "state.read": Pass.state_read,
    "state.write": Pass.state_write,
    "if": Pass.branch,
    "for": Pass.for_loop,
    "while": Pass.while_loop,
}
"""Ops with effects or regions."""
BESIDE = {"tree.walk": accepted, "run": Pass.sub_run}
