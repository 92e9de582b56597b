"""Bugs planted in every pass: a mutated copy of it changes what some program does, and validation says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from lib.programs.for_passes import small

import decgraph
from decgraph.backends.reference import cells
from decgraph.check.validation import NotTheSame, Validation
from decgraph.ir.values import Function, Module, Op, Region, Value
from decgraph.ir.walk import map_bodies, rebuild
from decgraph.passes import batching, folding, manager, motion, outline, reuse, simplify, tree_fusion
from decgraph.passes.manager import ORDER, load, optimise
from decgraph.passes.plan import Plan

Patch = pytest.MonkeyPatch
Rewritten = tuple[tuple[Op, ...], tuple[Value, ...]] | None


# -- simplify
def merges_draws(patch: Patch) -> None:
    """Equal draws are one edge."""
    patch.setattr(motion, "EDGES", frozenset())


def forgets_sites(patch: Patch) -> None:
    """Noises that differ in their sites or counters alone are merged."""
    whole = folding.Merger.key

    def key(self: folding.Merger, op: Op) -> folding.Key:
        return ("noise", op.attrs["kind"]) if op.opcode == "noise" else whole(self, op)

    patch.setattr(folding.Merger, "key", key)


def reads_across_commits(patch: Patch) -> None:
    """A context that was read before a commit stands for one read after it."""
    patch.setattr(folding, "reads", lambda op: frozenset())


def reads_into_loops(patch: Patch) -> None:
    """What was read before a loop stands for what is read inside of it, where the loop writes it."""
    patch.setattr(folding, "writes", lambda op: frozenset() if op.opcode == "for" else motion.writes(op))


def forgets_learning(patch: Patch) -> None:
    """An index that was read before a commit stands for one read after it, which has learnt what was committed."""
    patch.setattr(folding, "reads", lambda op: motion.reads(op) - {"learned"})


def hoists_reads(patch: Patch) -> None:
    """The context is read once, before the loop that commits."""
    patch.setattr(simplify, "reads", lambda op: frozenset())


def drops_writes(patch: Patch) -> None:
    """State writes are dead: nobody uses their results."""
    from decgraph.passes import dead

    patch.setattr(dead, "fixed", lambda op: motion.fixed(op) and op.opcode != "state.write")


def takes_the_other_branch(patch: Patch) -> None:
    """A decided branch is decided the wrong way."""
    whole = folding.ConstantFolder.branch

    def branch(self: folding.ConstantFolder, op: Op) -> Any:
        return whole(self, replace(op, regions=op.regions[::-1]) if op.operands[0] in self.known else op)

    patch.setattr(folding.ConstantFolder, "branch", branch)


def minus_for_plus(patch: Patch) -> None:
    """Whole numbers are added wrongly at compile time."""
    whole = folding.ConstantFolder.computed

    def computed(self: folding.ConstantFolder, op: Op) -> Any:
        return whole(self, replace(op, attrs={"fn": "maximum"}) if op.attrs["fn"] == "add" else op)

    patch.setattr(folding.ConstantFolder, "computed", computed)


# -- tree_fusion
def crosswise(patch: Patch) -> None:
    """The parts of a joined call get each other's results."""
    whole = tree_fusion.join

    def join(ops: Any, a: int, b: int) -> list[Op]:
        made = whole(ops, a, b)
        call = next(op for op in made if op.opcode == "model.evals")
        return [replace(op, results=call.results[::-1]) if op is call else op for op in made]

    patch.setattr(tree_fusion, "join", join)


def over_commits(patch: Patch) -> None:
    """Calls on both sides of a commit are joined: the later context is read too early."""
    patch.setattr(tree_fusion, "writes", lambda op: frozenset())


def one_place_for_both(patch: Patch) -> None:
    """Parts at two places are taken for one: what stands at the second is merged into the first."""
    whole = tree_fusion.join

    def join(ops: Any, a: int, b: int) -> list[Op]:
        made = whole(ops, a, b)
        call = next(op for op in made if op.opcode == "model.evals")
        twice = (*call.operands[:2], call.operands[1])
        return [replace(op, operands=twice) if op is call else op for op in made]

    patch.setattr(tree_fusion, "join", join)


# -- reuse
def keeps_the_rejected_path(patch: Patch) -> None:
    """A cell is found by its place and token, whatever stands before it: the rejected path serves the accepted one."""

    def find(self: Any, above: Any, path: Any) -> Any:
        return self.__dict__.setdefault("flat", {}).get((len(path), path[-1]))

    def keep(self: Any, above: Any, path: Any, cell: Any) -> None:
        self.__dict__.setdefault("flat", {})[len(path), path[-1]] = cell

    patch.setattr(cells.CausalCells, "find", find)
    patch.setattr(cells.CausalCells, "keep", keep)


def one_store(patch: Patch) -> None:
    """Drafter and target continue one store."""
    patch.setattr(reuse.Stores, "name", lambda self, model: "store")


def takes_memories_for_exact(patch: Patch) -> None:
    """A call on a memory that its author chose continues a store as if it were exact."""
    whole = reuse.Stores.exact

    def exact(self: reuse.Stores, op: Op) -> bool:
        return op.operands[0].type.of[0] == "masked" or whole(self, op)

    def key(self: Any, cells: Any, fresh: Any, memory: Any) -> Any:
        return cells

    patch.setattr(reuse.Stores, "exact", exact)
    patch.setattr(cells.CanvasCells, "key", key)


def heads_keep_the_rejected_path(patch: Patch) -> None:
    """A head's cells are found by their place and token alone."""
    patch.setattr(cells.FeatureCells, "key", lambda self, path, known: (len(path), path[-1]))


# -- vocabulary and placement
def stale(patch: Patch) -> None:
    """Segments in loops see what a carried value was before the loop."""
    whole = outline.Outliner.function

    def function(self: outline.Outliner, f: Function) -> Function:
        made = whole(self, f)
        return replace(made, body=rebuild(made.body, lambda op: captured(op, self.kind)))

    patch.setattr(outline.Outliner, "function", function)


def captured(op: Op, kind: str) -> Rewritten:
    if op.opcode != "for":
        return None
    body = op.regions[0]
    first = dict(zip(body.args[1:], op.operands[2:], strict=True))
    ops = tuple(
        outline.closed(Region((), (rebuilt(o, first),), ())).ops[0]
        if o.opcode == "segment" and o.attrs["kind"] == kind and any(v in first for v in o.operands)
        else o
        for o in body.ops
    )
    if all(a is b for a, b in zip(ops, body.ops, strict=True)):
        return None
    return (replace(op, regions=(replace(body, ops=ops),)),), op.results


def rebuilt(op: Op, mapping: dict[Value, Value]) -> Op:
    fits = {a: b for a, b in mapping.items() if a.type == b.type}
    return replace(op, regions=tuple(rebuild(r, lambda _: None, fits) for r in op.regions))


def yields_too_early(patch: Patch) -> None:
    """A segment gives the first value of a type that it makes in place of the last."""
    whole = outline._Body.segment

    def segment(self: Any, members: Any, yields: Any) -> Op:
        op = whole(self, members, yields)
        body = op.regions[0]
        made = [v for o in body.ops for v in o.results]
        early = tuple(next(w for w in made if w.type == v.type) for v in body.yields)
        return outline.closed(Region((), (replace(op, regions=(replace(body, yields=early),)),), ())).ops[0]

    patch.setattr(outline._Body, "segment", segment)


# -- batching
def one_group(patch: Patch) -> None:
    """Calls of different models are one group."""
    patch.setattr(batching, "Stores", type("One", (reuse.Stores,), {"name": lambda self, model: "any"}))


def joins_across_the_barrier(patch: Patch) -> None:
    """Sequences that share a state do not wait for each other before a step."""
    patch.setattr(batching, "meets", lambda function: False)


PLANTED: list[tuple[str, Callable[[Patch], None], str]] = [
    ("simplify", merges_draws, "siblings"),
    ("simplify", forgets_sites, "twice"),
    ("simplify", reads_across_commits, "steps"),
    ("simplify", reads_into_loops, "reads_in_loop"),
    ("simplify", forgets_learning, "learns"),
    ("simplify", hoists_reads, "speculative"),
    ("simplify", drops_writes, "beside"),
    ("simplify", takes_the_other_branch, "decided"),
    ("simplify", minus_for_plus, "decided"),
    ("tree_fusion", crosswise, "two_places"),
    ("tree_fusion", over_commits, "steps"),
    ("tree_fusion", one_place_for_both, "two_places"),
    ("reuse", keeps_the_rejected_path, "speculative"),
    ("reuse", one_store, "speculative"),
    ("reuse", takes_memories_for_exact, "two_memories"),
    ("reuse", heads_keep_the_rejected_path, "eagle2"),
    ("vocabulary", stale, "recursive_sd"),
    ("vocabulary", yields_too_early, "medusa"),
    ("placement", stale, "speculative"),
    ("placement", yields_too_early, "lookahead"),
    ("batching", one_group, "speculative"),
    ("batching", joins_across_the_barrier, "token_recycling"),
]


def program(name: str) -> Module:
    try:
        return small(name)
    except KeyError:
        return decgraph.load(name).module


@pytest.mark.parametrize(("name", "bug", "where"), PLANTED, ids=[f"{n}-{b.__name__}" for n, b, _ in PLANTED])
def test_a_planted_bug_is_found(name: str, bug: Callable[[Patch], None], where: str, monkeypatch: Patch) -> None:
    before, _ = optimise(program(where), only=ORDER[: ORDER.index(name)])
    optimise(before, only=(name,), validate=Validation(count=4))  # as it is, the pass is right
    bug(monkeypatch)
    with pytest.raises(NotTheSame) as caught:
        optimise(before, only=(name,), validate=Validation())
    words = str(caught.value)
    assert f"pass {name} changed what {where} does" in words
    for part in ("world ", "request 0: Request(", "difference of the two modules", "\nbefore\nmodule(", "\nafter\nmodule("):
        assert part in words


@pytest.mark.parametrize("name", ORDER)
def test_a_pass_that_commits_twice_is_found(name: str, monkeypatch: Patch) -> None:
    """The bug that needs no knowledge of a pass, planted in each of them: an effect happens twice."""
    declared = load(name)

    def twice(op: Op) -> Rewritten:
        return ((op, op), op.results) if op.opcode == "commit" else None

    def commits_twice(module: Module, plan: Plan) -> Module:
        return map_bodies(declared.run(module, plan), lambda body: rebuild(body, twice))

    monkeypatch.setattr(manager, "load", lambda _: replace(declared, run=commits_twice))
    before = program("autoregressive")
    with pytest.raises(NotTheSame) as caught:
        optimise(before, only=(name,), validate=Validation(count=4))
    assert f"pass {name} changed what autoregressive does" in str(caught.value)


def test_planted_bugs_say_what_is_wrong() -> None:
    assert {name for name, _, _ in PLANTED} <= set(ORDER)
    assert all(bug.__doc__ for _, bug, _ in PLANTED)
    assert simplify.MOST_ROUNDS > 1
