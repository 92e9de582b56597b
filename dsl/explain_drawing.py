"""A step as a drawing of a few lines: a chain, a tree, a canvas, or one token after the other."""

from __future__ import annotations

from collections.abc import Iterator

from decgraph.dsl import syntax as S
from decgraph.dsl.printer import expression

WIDE = ("topk", "sample", "distinct", "race")


def drawing(item: S.Algorithm) -> Iterator[str]:
    """The lines of the drawing that fits what an algorithm does."""
    inside = list(S.walk(item))
    kinds = {p.name: p.type.name for p in item.params if p.type is not None}
    kinds |= {s.name: "causal" for s in inside if isinstance(s, S.ModelDecl)}
    drafts = [s for s in inside if isinstance(s, S.Draft)]
    verify = next((s for s in inside if isinstance(s, S.Verify)), None)
    masked = next((name for name, kind in kinds.items() if kind == "masked"), None)
    if masked is not None:
        yield from canvas(masked, verify)
    elif drafts:
        heads = next((s.func for s in inside if isinstance(s, S.Call) and isinstance(s.func, S.Attr)), None)
        by = drafter(drafts, kinds)
        if heads is not None and heads.name == "heads":
            by = f"drafted by the heads of {expression(heads.value)}"
        yield from tree(by, verify) if is_wide(drafts, kinds) else chain(by, verify)
    else:
        model = next((name for name, kind in kinds.items() if kind == "causal"), "the model")
        yield f"context ── y          one call of {model}, one token, again and again"


def is_wide(drafts: list[S.Draft], kinds: dict[str, str]) -> bool:
    """Whether a node may have several children."""
    if "topology" in kinds.values():
        return True
    for draft in drafts:
        leaves = set(names_of_leaves(draft))
        for s in S.walk(draft):
            if isinstance(s, S.Call) and isinstance(s.func, S.Name) and s.func.name in WIDE:
                if not (len(s.args) == 2 and isinstance(s.args[1], S.Number) and s.args[1].value == 1):
                    return True
            if isinstance(s, S.Grow) and s.at is not None and not is_leaf(s.at):
                if expression(s.at) not in leaves:
                    return True
                leaves.remove(expression(s.at))  # grown twice there, a node has two children
    return False


def is_leaf(at: S.Expr) -> bool:
    """Whether an expression is `t.leaves`, or one of them."""
    nodes = at.value if isinstance(at, S.Index) else at
    return isinstance(nodes, S.Attr) and nodes.name == "leaves"


def names_of_leaves(draft: S.Draft) -> Iterator[str]:
    """The names by which a draft calls a leaf: of a loop over the leaves, or assigned one."""
    for s in S.walk(draft):
        if isinstance(s, S.For) and is_leaf(s.iter):
            yield s.names[0].name
        elif isinstance(s, S.Assign) and len(s.targets) == len(s.values) == 1 and isinstance(s.targets[0], S.Name):
            if isinstance(s.values[0], S.Expr) and is_leaf(s.values[0]):
                yield s.targets[0].name


def drafter(drafts: list[S.Draft], kinds: dict[str, str]) -> str:
    """Who guesses: the models that are called while drafting, or what is remembered."""
    called: dict[str, None] = {}
    for draft in drafts:
        for s in S.walk(draft):
            if isinstance(s, S.Call) and isinstance(s.func, S.Name) and kinds.get(s.func.name) in ("causal", "features"):
                called[s.func.name] = None
    return f"drafted by {' and '.join(called)}" if called else "drafted from what is remembered"


def verdict(verify: S.Verify) -> tuple[str, str]:
    """How drafts are tested, and what is committed after the accepted ones."""
    rule = expression(verify.rule.func if isinstance(verify.rule, S.Call) else verify.rule)
    return f"one call of {model_of(verify)} for all of them, then {rule}", "what was accepted, and y of the target's own"


def model_of(verify: S.Verify) -> str:
    """What evaluates the evidence of a verification."""
    call = verify.against
    return expression(call.func) if isinstance(call, S.Call) else "the target"


def chain(drafted: str, verify: S.Verify | None) -> Iterator[str]:
    """A step that drafts one token after the other."""
    if verify is None:
        yield f"context ── x ── x ── x ── x     {drafted}"
        yield "context ── x ── x               committed: those that the program itself keeps; no rule verifies them"
        return
    tested, committed = verdict(verify)
    yield f"context ── x ── x ── x ── x     {drafted}"
    yield f"           ✓    ✓    ✗          {tested}"
    yield f"context ── x ── x ── y          committed: {committed}"


def tree(drafted: str, verify: S.Verify | None) -> Iterator[str]:
    """A step that drafts a tree."""
    if verify is None:  # a search
        yield f"context ─┬─ x ─┬─ x ── x        {drafted}"
        yield "         │     └─ x"
        yield "         ├─ x ─┬─ x ── x        no rule verifies them: the program itself chooses"
        yield "         │     └─ x ── x"
        yield "         └─ x"
        yield "context ─── x ─── x ── x        committed: what it chose"
        return
    tested, committed = verdict(verify)
    yield f"context ─┬─ x ─┬─ x ── x        {drafted}"
    yield "         │     └─ x"
    yield f"         ├─ x ─┬─ x ── x        {tested}"
    yield "         │  ✓  └─ x ── x"
    yield "         └─ x     ✓    ✗"
    yield f"context ─── x ─── x ── y        committed: {committed}"


def canvas(model: str, verify: S.Verify | None) -> Iterator[str]:
    """A step that decides cells of a canvas."""
    how = f"{model} is called; the surest positions are decided"
    if verify is not None:
        rule = expression(verify.rule.func if isinstance(verify.rule, S.Call) else verify.rule)
        how = f"guesses of {model} are verified by {rule}; the accepted ones are decided"
    yield "prompt │ ░ ░ ░ ░ │ ░ ░ ░ ░      everything is masked"
    yield f"prompt │ a ░ ░ b │ ░ ░ ░ ░      {how}"
    yield "prompt │ a c d b │ ░ ░ ░ ░      ... until nothing is masked; then the canvas is committed"
