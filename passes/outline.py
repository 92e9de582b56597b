"""Outlining: ops that stand in one straight run are taken together into a `segment`. The passes vocabulary and placement use
it.

A run is a stretch of ops without regions, model calls and effects, so the ops in it may be reordered as their operands allow.
A group is a set of ops of a run that can stand in one place: whatever else lies between them needs nothing of the group, or
nothing in the group needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from decgraph.ir.values import Function, Module, Op, Region, Value
from decgraph.ir.walk import EXITS, Dependences, free_values, map_functions, rebuild, substitute, used_by
from decgraph.passes.dead import without_dead
from decgraph.passes.motion import CALLS, writes

Test = Callable[[Op], bool]
LEAST = 2


@dataclass(frozen=True)
class Outliner:
    """wanted: ops that belong into segments of this kind. joins: whether a wanted op goes with a group (given the values that
    the group uses and makes). absorbs: ops that may be drawn in where they lie between members. counts: of these a segment
    holds at least two. fits: whether ops may be one segment."""

    kind: str
    wanted: Test
    joins: Callable[[Op, set[Value], set[Value]], bool]
    absorbs: Test
    counts: Test
    fits: Callable[[Sequence[Op]], bool] = lambda ops: True

    def module(self, module: Module) -> Module:
        """The module with segments in the bodies of its functions."""
        return map_functions(module, self.function)

    def function(self, f: Function) -> Function:
        names = Namer({str(op.attrs["name"]) for op in f.body.walk() if op.opcode == "segment"})
        constants = {op.result: op for op in f.body.walk() if op.opcode == "const"}
        body = _Body(self, names, constants).region(f.body)
        return f if body is f.body else replace(f, body=without_dead(body))

    def groups(self, run: Sequence[Op]) -> list[set[int]]:
        """Groups of a run, as places in it. An op goes with all groups that it joins, if they may be one, else with the first
        that it may join."""
        found: list[set[int]] = []
        graph = Dependences(run)
        for n, op in enumerate(run):
            if not self.wanted(op):
                continue
            near = [g for g in found if self.joined(run, g, op)]
            for chosen in (near, *([g] for g in near)):
                whole = self.whole(run, graph, chosen, n, found) if chosen else None
                if whole is not None:
                    found = [g for g in found if g not in chosen] + [whole]
                    break
            else:
                found.append({n})
        return sorted(found, key=min)

    def joined(self, run: Sequence[Op], g: set[int], op: Op) -> bool:
        used = {v for m in g for v in used_by(run[m])}
        made = {v for m in g for v in run[m].results}
        return self.joins(op, used, made)

    def whole(
        self, run: Sequence[Op], graph: Dependences, groups: Sequence[set[int]], n: int, existing: Sequence[set[int]]
    ) -> set[int] | None:
        """The groups and op n as one, with what has to come along; None where that cannot be."""
        members = set().union(*groups, {n})
        others = [g for g in existing if g not in groups]
        between = graph.descendants(members) & graph.ancestors(members) - members
        if any(m in g for g in others for m in between) or not all(self.absorbs(run[m]) for m in between):
            return None
        members |= between
        if not self.fits([run[m] for m in sorted(members)]):
            return None
        if any(graph.descendants(members) & g and graph.descendants(g) & members for g in others):
            return None  # each would need the other
        return members


def runs(ops: Sequence[Op]) -> Iterator[list[Op]]:
    """The ops in order, cut into runs; what is in no run stands alone."""
    now: list[Op] = []
    for op in ops:
        if straight(op):
            now.append(op)
            continue
        if now:
            yield now
        now = []
        yield [op]
    if now:
        yield now


def straight(op: Op) -> bool:
    """Whether an op may stand in a run: it has no regions (segments aside), calls no model, ends nothing and has no effect."""
    called = op.opcode in (*CALLS, "head.read", "head.score", "model.attention", "model.states")
    return (op.opcode == "segment" or not op.regions) and not called and op.opcode not in EXITS and not writes(op)


def closed(region: Region) -> Region:
    """The region with the operands of its segments as they have to be after values in them were replaced or dropped."""

    def refreshed(op: Op) -> tuple[tuple[Op, ...], tuple[Value, ...]] | None:
        if op.opcode != "segment" or op.operands == (free := tuple(free_values(op.regions[0]))):
            return None
        return (replace(op, operands=free),), op.results

    return rebuild(region, refreshed)


@dataclass
class Namer:
    """Names of segments, each once in a function: what they make, and the source line."""

    taken: set[str]

    def of(self, members: Sequence[Op], yields: Sequence[Value]) -> str:
        word = next((v.name for v in reversed(yields) if v.name), "") or members[-1].opcode
        line = next((op.loc.line for op in members if op.loc.line), 0)
        base = re.sub(r"\W+", "_", word).strip("_") + (f"_{line}" if line else "")
        name, n = base, 1
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        return name


@dataclass
class _Body:
    """One function's body while its segments are built."""

    how: Outliner
    names: Namer
    constants: dict[Value, Op]

    def region(self, region: Region) -> Region:
        """A region, and those in it, with segments. What already is a segment stays as it is."""
        ops: list[Op] = []
        for op in region.ops:
            inner = op.regions if op.opcode == "segment" else tuple(map(self.region, op.regions))
            same = all(a is b for a, b in zip(inner, op.regions, strict=True))
            ops.append(op if same else Op(op.opcode, op.operands, op.attrs, inner, op.results, op.loc))
        users: dict[Value, list[Op | None]] = {}
        for op in ops:
            for v in used_by(op):
                users.setdefault(v, []).append(op)
        for v in region.yields:
            users.setdefault(v, []).append(None)
        made: list[Op] = []
        for run in runs(ops):
            made += self.outlined(run, users)
        if len(made) == len(region.ops) and all(a is b for a, b in zip(made, region.ops, strict=True)):
            return region
        return Region(region.args, tuple(made), region.yields)

    def outlined(self, run: Sequence[Op], users: dict[Value, list[Op | None]]) -> list[Op]:
        """A run with its groups as segments."""
        if sum(map(self.how.counts, run)) < LEAST:
            return list(run)
        inside: set[Op | None] = set(run)
        leaving = {v for op in run for v in op.results if any(u not in inside for u in users.get(v, ()))}
        ops = list(run)
        for g in self.how.groups(run):
            if sum(self.how.counts(run[n]) for n in g) >= LEAST:
                ops = self.gathered(ops, [run[n] for n in sorted(g)], leaving)
        return ops

    def gathered(self, ops: list[Op], members: list[Op], leaving: set[Value]) -> list[Op]:
        """The ops with `members` as one segment; what needs them and stood between them comes after it."""
        chosen = set(members)
        own = {n for n, op in enumerate(ops) if op in chosen}
        first, last = min(own), max(own)
        graph = Dependences(ops)
        needing = graph.descendants(own)
        others = [n for n in range(first, last) if n not in own]
        ahead, later = ([ops[n] for n in others if (n in needing) is late] for late in (False, True))
        outside = {v for op in ops if op not in chosen for v in used_by(op)}
        yields = tuple(v for op in members for v in op.results if v in outside or v in leaving)
        # nothing to yield: dead, and not ours to drop; needs what needs it: groups of three in a ring, so this one stays open
        if not yields or needing & graph.ancestors(own) - own:
            return ops
        return [*ops[:first], *ahead, self.segment(members, yields), *later, *ops[last + 1 :]]

    def segment(self, members: Sequence[Op], yields: tuple[Value, ...]) -> Op:
        """The op. What leaves it is the same value as before; inside a new one stands for it. Constants are copied in."""
        used = {v for op in members for v in used_by(op)} - {v for op in members for v in op.results}
        copies = [self.constants[v] for v in self.constants if v in used]
        inside = {v: replace(v) for v in (*yields, *(c.result for c in copies))}
        ops = tuple(
            Op(op.opcode, op.operands, op.attrs, op.regions, tuple(inside.get(v, v) for v in op.results), op.loc)
            for op in (*copies, *members)
        )
        body = substitute(Region((), ops, yields), inside)
        attrs = {"kind": self.how.kind, "name": self.names.of(members, yields)}
        return Op("segment", tuple(free_values(body)), attrs, (body,), yields, members[0].loc)
