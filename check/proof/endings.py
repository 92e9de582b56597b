"""Errors in a derivation: in a draft they end the draft, which must not tell of draws that are not grown yet; everywhere else
they would end the run, so nothing there may fail. A part of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from decgraph.check.proof.environment import Environment
from decgraph.check.proof.invariants import DerivationStopped
from decgraph.check.proof.unread import written
from decgraph.ir.draft_ends import decisive
from decgraph.ir.facts import NONE, Fact, Row, Rows, Tree, one_model
from decgraph.ir.failing import Failing
from decgraph.ir.failing_trees import without_place
from decgraph.ir.values import Module, Op

MADE_ANEW = ("tree.new", "tree.continue", "tree.reroot")


def may_end(k: Environment, op: Op) -> None:
    """An error in a draft ends the block: what decides that there is one controls what follows in it (`told`). Draws among
    that which are not grown yet (`drafting`) must not be grown after it."""
    inner = (op, *(o for r in op.regions for o in r.walk()))
    if k.drafting is None or not any(k.failing.why(o) for o in inner if o not in k.sound):
        return
    k.ends_draft |= k.taint(*decisive(op, k.producers), *(op.results if op.regions else ())) | k.control
    k.control |= k.ends_draft
    k.drafting |= {v for v, past in k.ends_draft if past is None and v not in k.grown}


def draft(k: Environment, op: Op, block: Callable[[], list[Fact | None]]) -> list[Fact | None]:
    """A block that an error may end early, with the tree as it was then: nothing but the tree is read after it.
    block: the pass over it."""
    outer, before = k.control, (k.drafting, k.ends_draft)
    if len(op.results) != 1 or any(o.opcode in MADE_ANEW for o in op.regions[0].walk()):
        raise DerivationStopped(op, "a draft that is begun anew where an error may end it")
    k.drafting, k.ends_draft = set(), NONE
    (tree,) = block()
    for name in written(op):  # whichever of several values an error leaves in a state
        k.unread.pop(name, None)
    by_errors, early = k.ends_draft, k.drafting
    (k.drafting, k.ends_draft), k.control = before, outer
    k.taints[op.result] |= by_errors
    if not isinstance(tree, Tree):
        return [None]
    for made in _trees(k, op):  # an error leaves the tree that was made last, also one that the block would have put aside
        tree = replace(
            tree, noises=tree.noises | made.noises, fault=tree.fault or made.fault, inside=one_model(tree.inside, made.inside)
        )
    kept_out = early & {v for v, _ in tree.noises}
    fault = f"what is drawn may decide that an error keeps it out (line {op.loc.line})" if kept_out else ""
    return [replace(tree, tree=op.result, grown=frozenset({op.result}), fault=tree.fault or fault)]


def _trees(k: Environment, op: Op) -> list[Tree]:
    """What is known of each tree that is made in a block, with its draws as those of its own and of earlier iterations."""
    found = []
    within = {o for o in op.regions[0].walk() if o.opcode in ("for", "while", "each")}
    for v in (v for o in op.regions[0].walk() for v in o.results if v.type.elem == "tree"):
        made = k.facts.get(v)
        if isinstance(made, Tree):
            past = {(noise, loop) for noise, _ in made.noises for loop in k.around.get(noise, ()) if loop in within}
            found.append(replace(made, noises=made.noises | past))
        elif v.type == op.result.type:
            found.append(Tree(k.version, v, fault=f"a tree of which nothing is known (line {op.loc.line})"))
    return found


def errors(k: Environment) -> list[tuple[int, str]]:
    """After the pass: the lines where an error may end a run, and what may fail there. A lossless rule has mass to draw from
    and shares for its coins (`sound`); a computed row that is known to be a model's has mass and holds numbers. Errors of an
    algorithm that is run are found where it is run."""
    found = [(op.loc.line, why) for op, why in k.failing.outside_drafts(k.sound) if not of_model(k, op)]
    for op in k.function.body.walk():
        if op.opcode == "run" and (inner := k.inside.get(op, _inside(k.module, op))):
            line, why = inner[0]
            found.append((op.loc.line, f"{why} in `{op.attrs['callee']}` (its line {line})"))
    return found


def _inside(module: Module, run: Op, seen: frozenset[str] = frozenset()) -> tuple[tuple[int, str], ...]:
    """The errors of an algorithm that is run, of which nothing else is known, and of those that it runs."""
    name = str(run.attrs["callee"])
    function = module.functions[name]
    inner = [op for op in function.body.walk() if op.opcode == "run" and name not in seen]
    free = replace(function, params=tuple(replace(p, low=None, high=None) for p in function.params))  # no door asks for ranges
    found = [(op.loc.line, why) for op, why in Failing(free).outside_drafts()]
    return (*found, *(e for op in inner for e in _inside(module, op, seen | {name})))


def of_model(k: Environment, op: Op) -> bool:
    """Whether what an op draws from or computes is known to be a model's row, or a walk's evidence to be of its tree."""
    if op.opcode == "tree.walk":
        tree, rows = (k.facts.get(v) for v in op.operands[:2])
        return isinstance(tree, Tree) and isinstance(rows, Rows) and rows.tree is tree.tree
    row = k.facts.get(op.operands[0] if op.opcode == "draw" else op.result) if op.results else None
    whole = isinstance(row, Row) and row.face in ("shaped", "raw", "logits", "logs")
    placed = op.opcode != "draw" or not without_place(k.failing, op)
    return whole and placed and op.opcode in ("draw", "warp", "adjust", "renorm")
