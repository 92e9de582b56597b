"""The kernel: checks a derivation of one claim over one function, in one pass from top to bottom, without search.

It walks the IR with the facts of ir/facts.py. A loop needs an invariant, which the derivation brings along
(check/proof/derive.py finds it): the kernel checks that it holds before the loop and is kept by the body. Three things are
followed beside the facts:

- the *version* of the committed context: a commit begins a new one, and facts about an earlier one prove nothing;
- *taints*: on which draws a value depends. A draw made in an earlier iteration of a loop is another draw than this
  iteration's, so labels carry the loop around which they lie in the past, as in ir/labels.py;
- *control*: the draws that decide whether an op runs at all.

Three modes. `own`: what is committed is the target's own draw, whatever chose the drafts. `drawn`: it has the target's
distribution given all that was read before, so noise must be fresh, read once, and must not decide whether its draw is
committed. `inside`: the target gives it mass. An op without a rule gives no fact, which is always sound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import decgraph.ir.table  # noqa: F401  (the ops' rules)
from decgraph.check.proof import unread
from decgraph.check.proof.endings import draft, may_end
from decgraph.check.proof.environment import EVER, Environment
from decgraph.check.proof.folding import FOLDS, constant, same
from decgraph.check.proof.invariants import (
    COMMITS,
    WORDS,
    DerivationStopped,
    Invariant,
    NotKept,
    Step,
    as_wide,
    asks_done,
    contains,
    memory_of,
    moved,
    placed,
    weakest,
)
from decgraph.check.proof.jacobi import iterated
from decgraph.ir.facts import (
    NONE,
    RANK,
    Canvas,
    CellTokens,
    Context,
    Drafts,
    Fact,
    Memory,
    ModelIs,
    Nodes,
    Path,
    Piece,
    Rows,
    Token,
    Tree,
    Unfit,
    joined,
    one_of,
)
from decgraph.ir.labels import Labels
from decgraph.ir.linear import Linear, at_least, negated
from decgraph.ir.opdef import TABLE
from decgraph.ir.values import Module, Op, Region, Value

PAID = ("draw", "bernoulli")
"""Ops of a lossless rule of which the judgment says that they do not fail: coins are shares, and what is owed has mass."""


def accepted(k: Environment, op: Op) -> Fact:
    """What a verification accepts: by the judgment on its rule, the evidence and the tree."""
    for inner in op.regions[0].walk():
        if inner.opcode in ("commit", "return", "state.write", "run"):
            raise DerivationStopped(inner, f"{inner.opcode} inside a rule")
    tree, rows = k.of(op.operands[0]), k.of(op.operands[1])
    made_here = {v for inner in op.regions[0].walk() for v in inner.operands if v.type.elem == "noise"}
    noises = frozenset((v, None) for v in made_here)
    k.taints[op.result] |= noises | (tree.noises if isinstance(tree, Tree) else NONE)
    if not isinstance(tree, Tree):
        return Unfit("verifies a tree that is not known to stand on the context")
    if not isinstance(rows, Rows) or rows.tree is not tree.tree:
        return Unfit("the evidence is not known to be the target's distribution at the nodes of this very tree")
    kind, why = k.judge(k, op)
    rule = op.attrs.get("rule") or "a rule"
    if kind == "matching":
        k.say(op, f"`{rule}` accepts and emits own draws of `{rows.model}` alone, whatever was drafted", "rule-matching")
        return Path(rows.model, tree.version, "own")
    if kind == "lossless":
        why = tree.fault or _weighed(k, op, rows, made_here)
        if not why:
            whole = op.attrs["scope"] == "tree"  # of which a lemma knows every op
            k.sound |= {o for o in op.regions[0].walk() if whole or o.opcode in PAID}
            k.say(op, f"`{rule}` is lossless for drafts with these distributions", "rule-lossless")
            return Path(rows.model, tree.version, "drawn", tree.noises | noises)
        return Unfit(why)
    if kind == "support" and k.mode == "inside":
        k.say(op, f"`{rule}` accepts and emits tokens that `{rows.model}` gives mass to", "rule-support")
        return Path(rows.model, tree.version, "inside")
    return Unfit(f"`{rule}` is not known to be right: {why}")


def committed(k: Environment, op: Op) -> Fact | None:
    """What an algorithm commits that is run from the context, up to wherever it is stopped: its model gives mass to that, or
    it is drawn as the model draws, with noise of its own that nothing else reads (`left_when_Law`, proof/Walk.v). Its noise has
    sites of its own, so that draws of the output stream are not the caller's own ones."""
    model, place = k.of(op.operands[2]), k.of(op.operands[0])
    root = isinstance(place, Nodes) and place.which == "root" and place.version == k.version
    if not isinstance(model, ModelIs) or len(op.attrs["args"]) != 1 or not (root or place == Context(k.version)):
        return None
    kind, _ = k.judge(k, op)
    if k.mode == "inside":
        return Path(model.name, k.version, "inside") if kind == "inside" else None
    asks = {inner.opcode for inner in op.regions[0].walk()}
    sites = [o.attrs.get("site") for o in k.function.body.walk()]
    fresh = set(k.loops[op.result]) <= set(op.operands) and sites.count(op.attrs["site"]) == 1
    asked = [k.remembered(memory_of(inner)) for inner in op.regions[0].walk() if inner.opcode == "state.read"]
    fresh &= (op.result, None) not in k.control.union(k.taint(*op.operands), *asked)
    if kind != "own" or not fresh or asks & {"noise", "extern", "run", "commit", "state.write"}:
        return None
    k.say(op, f"runs `{op.attrs['callee']}`, which draws as `{model.name}`, until a condition holds of that", "run-drawn")
    noises: Labels = frozenset({(op.result, None)})
    k.taints[op.result] |= noises
    return Path(model.name, k.version, "drawn", noises)


def _weighed(k: Environment, op: Op, rows: Rows, noises: set[Value]) -> str:
    """Why a lossless rule does not keep the target's distribution here, or ""."""
    if str(op.operands[0].type.of[0]) in k.mislabelled:
        return "the label check finds a draft that was chosen by what it is"
    if not rows.all:
        return "evidence at some of the nodes only: where it is must not depend on drafts"
    if k.output_readers:
        return "the output stream is read elsewhere"
    if k.tells(frozenset((v, None) for v in noises), *op.operands) or {(v, None) for v in noises} & k.control:
        return "a shared memory tells of the rule's own noise, which other requests may have read, before it is drawn"
    for noise in noises:
        made = k.producers.get(noise)
        if made is None or made.opcode != "noise" or made.attrs["site"] in k.shared_sites:
            return "a noise of the rule that is not its own"
        if not set(k.loops[noise]) <= set(made.operands):
            return "a noise of the rule that is not keyed by all loops around it"
    return ""


def unfit(k: Environment, op: Op, drafts: Drafts) -> str:
    """Why sampled draws may not be grown here, or "": each is grown by one op, in the loops that it was drawn in, before
    anything that decides where it grows, or what the context is, depends on it."""
    place = op.operands[2:3] if op.attrs.get("has_at") else ()
    if k.tells(drafts.noises, op.operands[0], *place) or drafts.noises & (k.control | k.in_context()):
        return f"a draft that was read before it is grown (line {op.loc.line})"
    for noise, past in drafts.noises:
        if past is not None:
            return f"a draft that was drawn in an earlier iteration (line {op.loc.line})"
        if k.grown.setdefault(noise, op) is not op:
            return f"a draft that is grown twice (line {op.loc.line})"
        if k.loops[noise] != k.loops[op.result]:
            return f"a draft that is grown in another loop than it is drawn in (line {op.loc.line})"
        if not k.loops[noise]:
            return f"a draft that is drawn before the loop (line {op.loc.line})"
    return ""


def inside(k: Environment, op: Op) -> tuple[str, str] | None:
    """Why what a commit adds is inside the support of the claim's models, where it is no token and no path, with the rule."""
    what = k.of(op.operands[0])
    canvas = k.of(what.canvas) if isinstance(what, CellTokens) and what.at is None else what
    if isinstance(canvas, Canvas):
        model = what.model if isinstance(what, CellTokens) else canvas.model
        if model in ("", *k.models) and (canvas is what or canvas.begun == k.version):
            return f"commits cells of a canvas, each with a token that `{k.model}` gave mass to", "commit-inside"
    tree = k.of(op.operands[1]) if len(op.operands) == 2 else None
    if isinstance(tree, Tree) and tree.inside in ("", *k.models):
        if tree.version != k.version:
            raise DerivationStopped(op, "commits the way to a node of a tree that stands on another context")
        return f"commits the way to a node of a tree of tokens that `{k.model}` gives mass to", "tree-inside"
    return None


def _calls(module: Module, name: str, seen: frozenset[str] = frozenset()) -> bool:
    """Whether an algorithm, or one that it runs, calls functions of the caller's."""
    ops = list(module.functions[name].body.walk())
    inner = {str(op.attrs["callee"]) for op in ops if op.opcode == "run"} - seen
    return any(op.opcode == "extern" for op in ops) or any(_calls(module, n, seen | {name}) for n in inner)


class Kernel(Environment):
    """One pass over a function: checks that what it commits is what the claim says."""

    # -- the pass
    def run(self) -> list[Step]:
        """The steps of the derivation. Raises Stopped where nothing follows, NotKept for a loop without a true invariant."""
        for state in self.function.states:  # a state may begin with what a shared one holds
            asked = [self.remembered(memory_of(op)) for op in state.init.walk() if op.opcode in MEMORIES]
            self.states[f"state {state.name}"] = NONE.union(*asked)
        self.region(self.function.body)
        if not self.ended and self.mode != "inside":
            raise DerivationStopped(None, "the function may return before the request is done")
        if any(labels - self.others.get(name, NONE) for name, labels in self.told.items()):
            found = {name: labels | self.others.get(name, NONE) for name, labels in self.told.items()}
            raise NotKept(None, Invariant((), (), tuple(sorted({**self.others, **found}.items()))))
        return self.steps

    def region(self, region: Region) -> list[Fact | None]:
        for op in region.ops:
            self.step(op)
        return [self.facts.get(v) for v in region.yields]

    def step(self, op: Op) -> None:
        before = self.taint(*op.operands) | (self.control if op.regions else NONE)
        for v in op.results:
            self.taints[v] = before
        rule = OWN_RULES.get(op.opcode)
        if rule is not None:
            found = rule(self, op)
            if op.opcode in MEMORIES:
                self.sizes.note(op, self.version)
        else:
            self._absorb(op)
            self.sizes.note(op, self.version)
            if self.failing.why(op) and self.sizes.safe(op):
                self.sound.add(op)
            given = TABLE[op.opcode].fact
            found = self._folded(op) or (given(self, op) if given is not None else None)
        if rule is None:
            may_end(self, op)
        facts = found if isinstance(found, list) else [found]
        for v, fact in zip(op.results, [*facts, *[None] * len(op.results)]):
            if isinstance(fact, Piece):
                self.sizes.pieces[v] = fact
            if fact is None or isinstance(fact, Piece):
                self.facts.pop(v, None)
            else:
                self.facts[v] = fact
            if op.opcode in TOLD and (isinstance(fact, ModelIs) or isinstance(fact, Memory) and fact.whole):
                self.say(op, *TOLD[op.opcode])
            if op.opcode in ("for", "while"):
                self.sizes.carried(v)
        if op.opcode == "if" and op.operands[0] not in self.consts:
            condition = self.sizes.conditions.get(op.operands[0])
            for v, x, y in zip(op.results, *(r.yields for r in op.regions)):
                self.sizes.chosen(v, condition, x, y)

    def _folded(self, op: Op) -> Fact | None:
        """Note the constant that an op makes; the fact of the value that it gives back unchanged."""
        if op.opcode not in FOLDS or not op.operands and op.opcode != "tile":
            return None
        endless = op.attrs.get("fn") == "mul" and not self.sizes.ints  # 0 times the largest of nothing is no number
        if not endless and (value := constant(op, self.consts)) is not None:
            self.consts[op.result] = value
            return None
        operand = same(op, self.consts, self.sizes.sums) if op.opcode == "map" else None
        if operand is None and op.opcode == "map" and op.attrs["fn"] == "select":
            a, b = (self.of(v) for v in op.operands[1:])
            return one_of(a, b) if a == b or not op.operands[0].type.dims else None
        if operand is None:
            return None
        if operand in self.consts:
            self.consts[op.result] = self.consts[operand]
        return self.of(operand) if as_wide(op.result, operand) else None

    def _absorb(self, op: Op) -> None:
        """An op with regions and no rule of its own: its results depend on all that is read in it; what it tells externs and
        states is remembered; nothing in it may commit."""
        for inner in (o for r in op.regions for o in r.walk()):
            if inner.opcode in ("commit", "return"):
                raise DerivationStopped(inner, f"{inner.opcode} inside {op.opcode}")
            noises: Labels = frozenset((v, None) for v in inner.operands if v.type.elem == "noise")
            if inner.opcode in MEMORIES:
                noises |= self.remembered(memory_of(inner))
            for v in op.results:
                self.taints[v] |= noises | self.taint(*inner.operands)
        if op.opcode == "run":  # what it calls may call functions that remember, or keep a state of the session
            self.taints[op.result] |= self.remembered("extern")
            own = {(op.result, None)} if _calls(self.module, op.attrs["callee"]) else NONE
            self._remember(op, self.taints[op.result] | own)
        for inner in (o for r in op.regions for o in r.walk()):
            if inner.opcode in MEMORIES and inner.opcode != "state.read":
                self.unread.pop(memory_of(inner), None)
                self._remember(inner, frozenset().union(*(self.taints[v] for v in op.results)) | self.taint(*inner.operands))

    # -- what ops' rules ask
    def grows(self, op: Op, drafts: Drafts) -> str:
        return unfit(self, op, drafts)

    def walk(self, op: Op) -> Fact:
        return accepted(self, op)

    def run_of(self, op: Op) -> Fact | None:
        return committed(self, op)

    # -- effects
    def _const(self, op: Op) -> None:
        self.consts[op.result] = op.attrs["value"]

    def _commit(self, op: Op) -> None:
        what = self.of(op.operands[0])
        if self.mode == "inside" and (found := inside(self, op)) is not None:
            self.say(op, *found)
            return self._new_context(op)
        if isinstance(what, Nodes) and what.which == "root" and what.version == self.version:
            return None  # the way to the root is empty
        if len(op.operands) != 1:
            raise DerivationStopped(op, "commits the way to a node")
        if isinstance(what, Unfit):
            raise DerivationStopped(op, what.why)
        if (
            not isinstance(what, Token | Path)
            or what.model not in self.models
            or isinstance(what, Token)
            and op.operands[0].type.dims
        ):
            raise DerivationStopped(op, f"nothing is known of what is committed ({op.operands[0].type.elem})")
        if what.version != self.version:
            raise DerivationStopped(op, "what is committed was drawn after another context")
        if RANK[what.how] < RANK[self.mode]:
            raise DerivationStopped(op, f"what is committed is known to be {WORDS[what.how].format(self.model)} only")
        if self.mode == "drawn":
            self._independent(op, what)
        kind = "the accepted path" if isinstance(what, Path) else "a token"
        self.say(op, f"commits {kind}: {WORDS[what.how].format(self.model)}", COMMITS[what.how])
        self._new_context(op, one=isinstance(what, Token))
        self.progress = True

    def _independent(self, op: Op, what: Token | Path) -> None:
        """Whether a draw is committed must not depend on what it is; own draws and others may stand side by side only where
        nothing else reads the `output` stream."""
        if what.how == "drawn" and what.noises & self.control:
            raise DerivationStopped(op, "whether it is committed depends on what it is")
        self.committed.add(what.how)
        self.output_decides |= any(self.is_output(v) for v, _ in self.control)
        if len(self.committed) > 1 and (len(self.output_readers) > 1 or self.output_decides):
            raise DerivationStopped(op, "draws of the output stream beside draws with other noise")

    def _new_version(self, one: bool | None = None) -> None:
        """The context is another one now; one: after a commit of a single token, or of any number (None: by more than that)."""
        old, self.newest = self.version, self.newest + 1
        self.version = self.newest
        self.sizes.committed(old, self.version, bool(one))

    def _new_context(self, op: Op, one: bool | None = None) -> None:
        self._remember(op, self.taint(*op.operands))
        self._new_version(one)

    def _remember(self, op: Op, taint: Labels) -> None:
        name, labels = memory_of(op), taint | self.control
        self.states[name] = self.states.get(name, NONE) | labels
        if name in self.shared:
            self.told[name] = self.told.get(name, NONE) | {(v, None) for v, _ in labels | self.in_context()}

    def _state_write(self, op: Op) -> None:
        self._remember(op, self.taint(*op.operands))
        unread.write(self, op)

    def _state_read(self, op: Op) -> Fact | None:
        self.taints[op.result] = self.remembered(memory_of(op))
        return self.unread.get(memory_of(op))

    def _extern(self, op: Op) -> None:
        """A function of the caller's may remember what it was given: its answers tell of all of that. So do the sequences
        beside this one, of what they were told across the batch."""
        self._remember(op, self.taint(*op.operands))
        self.taints[op.result] |= self.remembered(memory_of(op))

    def _return(self, op: Op) -> None:
        if self.mode != "inside":
            raise DerivationStopped(op, "returns")

    # -- control flow
    def _if(self, op: Op) -> list[Fact | None]:
        return draft(self, op, lambda: self.either(op)) if "draft" in op.attrs else self.either(op)

    def either(self, op: Op) -> list[Fact | None]:
        known = self.consts.get(op.operands[0])
        if isinstance(known, bool):
            region = op.regions[0 if known else 1]
            if op.operands[0] in self.sizes.conditions:
                self.say(op, f"this is always {'true' if known else 'false'}", "condition")
            facts = self.region(region)
            for v, y in zip(op.results, region.yields):
                self.taints[v] = self.taint(y)
                self.sizes.same(v, y)
            return facts
        decided_by, outer, entry = self.taint(op.operands[0]), self.control, self.version
        progress, ends, alive, left = self.progress, [], self.sizes.alive, []
        before = self.unread
        condition = self.sizes.conditions.get(op.operands[0])
        for region, known_here in zip(op.regions, (condition, negated(condition))):
            self.control, self.version, self.progress, self.unread = outer | decided_by, entry, progress, dict(before)
            with self.sizes.under(known_here, alive):
                facts = self.region(region)
                facts = [
                    self.sizes.now(f, self.version) or self.sizes.size(y, self.version) for y, f in zip(region.yields, facts)
                ]
            ends.append((self.version, self.progress, facts, region.yields))
            left.append(self.unread)
        self.control, self.progress = outer | self.ends_draft, all(made for _, made, _, _ in ends)
        self.version, self.sizes.alive = entry, alive
        self.unread = {name: fact for name, fact in left[0].items() if left[1].get(name) == fact}
        if any(version != entry for version, _, _, _ in ends):
            self._new_version()
        out = []
        for n, v in enumerate(op.results):
            (a, b), (x, y) = ([moved(e[2][n], e[0], self.version) for e in ends], [e[3][n] for e in ends])
            if isinstance(a, Tree) and isinstance(b, Tree) and decided_by & (a.noises | b.noises):
                if self._root_of(x, op) is not self._root_of(y, op):
                    a = replace(a, fault=a.fault or f"which tree goes on depends on its draws (line {op.loc.line})")
            self.taints[v] = self.taint(x, y) | (NONE if x is y else decided_by | outer)
            out.append(joined(a, b, v, decided_by))
        return out

    def _root_of(self, v: Value, branch: Op) -> Value | Op:
        """The tree from outside of a branch that a tree made in it was grown and pruned from."""
        inside = {o for r in branch.regions for o in r.walk()}
        while (made := self.producers.get(v)) in inside:
            assert made is not None
            trees = [x for x in made.operands if x.type == v.type]
            if made.opcode not in GROWING or len(trees) != 1:
                return made
            v = trees[0]
        return v

    def _for(self, op: Op) -> list[Fact | None]:
        if op.attrs.get("lanes") and contains(op, "commit"):
            raise DerivationStopped(op, "commits in lanes")
        low, high = (self.sizes.end(op.regions[0].args[0], v) for v in op.operands[:2])
        if low is not None and high is not None and self.sizes.proves(at_least(low, high)):
            self.sound.add(op)
            for v, first in zip(op.results, op.operands[2:]):
                self.taints[v] = self.taint(first)
                self.sizes.same(v, first)
            return [self.of(v) for v in op.operands[2:]]
        ends = {"stops", "fills"} & {name for name, value in op.attrs.items() if value}
        if low is not None and high is not None and not ends and self.sizes.equal(high, low + 1):
            return self._once(op, low)
        found = self._loop(op, op.operands[2:], self.taint(*op.operands[:2]))
        own = {} if contains(op, "commit") else iterated(self, op)
        for path in own.values():
            self.say(op, f"after so many iterations, or where nothing changes, all are own draws of `{path.model}`", "jacobi")
        return [own.get(v, fact) for v, fact in zip(op.results, found)]

    def _once(self, op: Op, counter: Linear) -> list[Fact | None]:
        """A loop of one iteration is its body."""
        body = op.regions[0]
        self.sizes.sums[body.args[0]] = counter
        for a, v in zip(body.args[1:], op.operands[2:]):
            self.taints[a] = self.taint(v)
            self.sizes.same(a, v)
            if (fact := self.facts.get(v)) is not None:
                self.facts[a] = fact
        facts = self.region(body)
        for v, y in zip(op.results, body.yields):
            self.taints[v] = self.taint(y)
            self.sizes.same(v, y)
        return facts

    def _while(self, op: Op) -> list[Fact | None]:
        limited = 1 if op.attrs.get("limited") else 0
        out = self._loop(op, op.operands[limited:], self.taint(*op.operands[:limited]))
        if asks_done(op):
            if op.attrs.get("stops"):
                raise DerivationStopped(op, "leaves the loop before the request is done")
            always = any(o is op for o in self.function.body.ops)
            self.ended = self.ended or always and not limited and "fills" not in op.attrs
        return out

    def _loop(self, op: Op, carried: Sequence[Value], bounds: Labels) -> list[Fact | None]:
        """The invariant holds before the loop, the body keeps it, so it holds afterwards."""
        commits, entry, outer, alive = contains(op, "commit"), self.version, self.control, self.sizes.alive
        before = [self.sizes.now(self.facts.get(v), entry) or self.sizes.size(v, entry) for v in carried]
        if commits:
            self._new_version()
        head = self.version
        first = Invariant(
            tuple(placed(moved(fact, entry, head), a) for fact, a in zip(before, op.regions[-1].args[1:])),
            tuple(self.taint(v) for v in carried),
            tuple(sorted(self.states.items())),
            outer | bounds,
            unread.candidates(self, op),
        )
        inv = self.invariants.get(op)
        if inv is None:
            raise NotKept(op, first)
        self._check_invariant(op, inv, first)
        body, stops = op.regions[-1], bool(op.attrs.get("stops"))
        self.states, self.control = dict(inv.states), inv.control
        unread.begin(self, op, inv.unread)
        progress, self.progress = self.progress, False
        for region in op.regions:
            for v, fact, taint in zip(region.args[1:], inv.facts, inv.taints):
                self.facts.pop(v, None)
                if fact is not None:
                    self.facts[v] = fact if region is body else placed(fact, v)  # type: ignore[assignment]
                self.taints[v] = taint
                self.sizes.carried(v)
            self.sizes.counter(region.args[0], op)
        for v, asked in zip(body.args[1:], op.regions[0].args[1:]):
            self.sizes.same(v, asked)  # in one iteration
        goes_on = None
        if len(op.regions) == 2:
            self.region(op.regions[0])
            self.control |= self.taint(op.regions[0].yields[0])
            goes_on = self.sizes.condition(op.regions[0].yields[0])
        if goes_on is False:  # it does not begin
            self.say(op, "this is false at once", "condition")
            self.sound.update(body.ops)
            self.control, self.progress = outer, progress
            for v, taint in zip(op.results, inv.taints):
                self.taints[v] = taint
            return [placed(fact, v) for v, fact in zip(op.results, inv.facts)]
        with self.sizes.under(goes_on, False):
            if asks_done(op):
                self.sizes.goes_on(head)
            found = self.region(body)
            found = [
                self.sizes.now(fact, self.version) or self.sizes.size(y, self.version, known)
                for y, fact, known in zip(body.yields[stops:], found[stops:], inv.facts)
            ]
        if stops:
            self.control |= self.taint(body.yields[0])
        if "fills" in op.attrs:  # it ends where no node of a tree can grow, which the drafts say
            self.control |= self.taint(*body.yields)
        kept = []
        for a, y, fact in zip(body.args[1:], body.yields[stops:], found):
            fact = placed(moved(fact, self.version, head), a)
            if y is not a and isinstance(fact, Token | Drafts | Path) and fact.noises:
                fact = None  # draws of an earlier iteration are not fresh
            if y is not a and isinstance(fact, CellTokens):
                fact = replace(fact, drafts=None)
            if isinstance(fact, Tree):
                fact = replace(fact, noises=self._aged(fact.noises, op))
            kept.append(fact)
        left = unread.end(self, op, inv.unread)
        after = Invariant(
            tuple(kept),
            tuple(self._aged(self.taint(y), op) for y in body.yields[stops:]),
            tuple(sorted((name, self._aged(taint, op)) for name, taint in self.states.items())),
            self._aged(self.control, op),
            left,
        )
        self._check_invariant(op, inv, after)
        if asks_done(op) and not self.progress and self.mode != "inside":
            raise DerivationStopped(op, "an iteration may commit nothing")
        self.progress = progress
        self.control = outer | self.ends_draft
        self.states = dict(inv.states)
        unread.begin(self, op, ())
        if commits:
            self._new_version()
        else:
            self.version, self.sizes.alive = entry, alive
        for v, taint in zip(op.results, inv.taints):
            self.taints[v] = taint | inv.control
        return [placed(moved(fact, head, self.version), v) for v, fact in zip(op.results, inv.facts)]

    def _aged(self, labels: Labels, loop: Op) -> Labels:
        """Draws of an iteration, as those of some iteration in the past."""
        aged = {(v, past if past is EVER or loop not in self.around.get(v, ()) else loop) for v, past in labels}
        return frozenset(aged | {(v, None) for v, past in labels if past is EVER})

    def _check_invariant(self, op: Op, inv: Invariant, now: Invariant) -> None:
        """Raises NotKept, with a weaker invariant, unless `inv` follows from `now`."""
        args = op.regions[-1].args[1:]
        facts = tuple(weakest(a, b, v) for a, b, v in zip(inv.facts, now.facts, args))
        taints = tuple(a | b for a, b in zip(inv.taints, now.taints))
        old, new = dict(inv.states), dict(now.states)
        states = tuple(sorted((name, old.get(name, NONE) | new.get(name, NONE)) for name in old.keys() | new.keys()))
        left = tuple(name for name in inv.unread if name in now.unread)
        weaker = Invariant(facts, taints, states, inv.control | now.control, left)
        if weaker != inv:
            raise NotKept(op, weaker)


OWN_RULES: dict[str, Callable[[Kernel, Op], Fact | list[Fact | None] | None]] = {
    "const": Kernel._const,
    "commit": Kernel._commit,
    "return": Kernel._return,
    "extern": Kernel._extern,
    "batch.fold": Kernel._extern,
    "batch.top": Kernel._extern,
    "state.read": Kernel._state_read,
    "state.write": Kernel._state_write,
    "if": Kernel._if,
    "for": Kernel._for,
    "while": Kernel._while,
}
"""Ops with effects or regions: they change what the kernel follows beside facts."""

MEMORIES = ("state.read", "state.write", "extern", "batch.fold", "batch.top")
"""Ops that ask what was told to others, or tell it."""
TOLD = {
    "memory.only": ("no row that a call on the memory reads is left out", "whole-memory"),
    "model.derive": ("no layer is left out", "whole-model"),
}
"""What is said of values that are what they were."""
GROWING = ("tree.grow", "tree.set", "tree.front", "tree.keep", "tree.best_first", "for", "while")
