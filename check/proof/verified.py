"""What may be committed: what a verification accepts, what another algorithm commits, and tokens inside a model's support."""

from __future__ import annotations

from decgraph.check.proof.environment import Environment
from decgraph.check.proof.invariants import DerivationStopped
from decgraph.ir.facts import NONE, Canvas, CellTokens, Context, Drafts, Fact, ModelIs, Nodes, Path, Rows, Tree, Unfit
from decgraph.ir.labels import Labels
from decgraph.ir.values import Op, Value


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
            k.sound.add(op)
            k.say(op, f"`{rule}` is lossless for drafts with these distributions", "rule-lossless")
            return Path(rows.model, tree.version, "drawn", tree.noises | noises)
        return Unfit(why)
    if kind == "support":
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
    for noise in noises:
        made = k.made.get(noise)
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
