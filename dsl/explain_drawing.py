"""A step as a drawing of a few lines: chains, trees and canvases, by what the statements do and in which branch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from decgraph.dsl import syntax as S
from decgraph.dsl.printer import expression

WIDE = ("topk", "sample", "distinct", "race")


def drawing(item: S.Algorithm) -> Iterator[str]:
    """The lines of a drawing of what an algorithm's statements do: what is drafted, decided, masked again and committed, with
    the conditions of the branches that they stand in."""
    inside = list(S.walk(item))
    kinds = {p.name: p.type.name for p in item.params if p.type is not None}
    kinds |= {s.name: "causal" for s in inside if isinstance(s, S.ModelDecl)}
    drafts = [s for s in inside if isinstance(s, S.Draft)]
    verify = next((s for s in inside if isinstance(s, S.Verify)), None)
    masked = next((name for name, kind in kinds.items() if kind == "masked"), None)
    steps = list(in_branches(item.body))
    if masked is not None:
        yield from canvas(masked, verify, steps)
    elif drafts:
        heads = next((s.func for s in inside if isinstance(s, S.Call) and isinstance(s.func, S.Attr)), None)
        by = drafter(drafts, kinds)
        if heads is not None and heads.name == "heads":
            by = f"drafted by the heads of {expression(heads.value)}"
        grown = [(s, when) for s, when in steps if isinstance(s, S.Grow)]
        if len({when for _, when in grown}) > 1:
            yield from alternatives(grown, Origins(item, kinds), verify)
        else:
            yield from tree(by, verify) if is_wide(drafts, kinds) else chain(by, verify)
    else:
        model = next((name for name, kind in kinds.items() if kind == "causal"), "the model")
        yield f"context ── y          one call of {model}, one token, again and again"
    for s, when in steps:
        if isinstance(s, S.Commit) and when:
            yield f"{'context ── y':<{31 if drafts or masked else 21}} {conditional(when)}committed: {expression(s.value)}"


Branches = tuple[str, ...]
"""The conditions of the branches that a statement stands in, the outermost first."""


def in_branches(body: tuple[S.Stmt, ...], when: Branches = ()) -> Iterator[tuple[S.Stmt | S.Grow, Branches]]:
    """The statements of a block and of the blocks in it, with their branches; the value of an assignment that grows is one."""
    for s in body:
        if isinstance(s, S.If):
            for n, branch in enumerate(s.branches):
                yield from in_branches(branch.body, (*when, f"{'or else, ' * (n > 0)}if {expression(branch.cond)}"))
            yield from in_branches(s.orelse, (*when, "otherwise"))
            continue
        yield s, when
        if isinstance(s, S.Assign):
            yield from ((value, when) for value in s.values if isinstance(value, S.Grow))
        yield from in_branches(getattr(s, "body", ()), when)


def conditional(when: Branches) -> str:
    """The conditions before what happens then; long ones are cut, since the lines have them in full."""
    return ", ".join(one if len(one) <= 48 else one[:46] + " .." for one in when) + ": " * bool(when)


class Origins:
    """What the values of an algorithm are made of, whatever the branch."""

    def __init__(self, item: S.Algorithm, kinds: dict[str, str]) -> None:
        self.kinds = kinds
        self.states = {s.name for s in S.walk(item) if isinstance(s, S.State)}
        self.made: dict[str, list[S.Node]] = {}
        for s in S.walk(item):
            if isinstance(s, S.Assign | S.Draw | S.For):
                values = s.values if isinstance(s, S.Assign) else (s.iter if isinstance(s, S.For) else s.dist,)
                for name in s.names if isinstance(s, S.For) else s.targets:
                    self.made.setdefault(expression(name), []).extend(values)

    def of(self, grown: list[S.Node]) -> list[S.Node]:
        """The parts of some values, and of what their names stand for."""
        found, todo, seen = [], list(grown), set()
        while todo:
            for node in S.walk(todo.pop(0)):
                found.append(node)
                if isinstance(node, S.Name) and node.name not in seen:
                    seen.add(node.name)
                    todo += self.made.get(node.name, ())
        return found

    def words(self, parts: list[S.Node]) -> str:
        """Who drafts: the models that are called, or what is remembered."""
        models = [
            n.func.name for n in parts if isinstance(n, S.Call) and isinstance(n.func, S.Name) and n.func.name in self.kinds
        ]
        states = [n.name for n in parts if isinstance(n, S.Name) and n.name in self.states]
        names = " and ".join(dict.fromkeys(models or states))
        return f"drafted {'by' if models else 'from'} {names or 'what is committed'}"


def alternatives(grown: Sequence[tuple[S.Stmt | S.Grow, Branches]], origins: Origins, verify: S.Verify | None) -> Iterator[str]:
    """A step that drafts in several branches: a chain or a fork for each."""
    by_branch: dict[Branches, list[S.Node]] = {}
    for s, when in grown:
        by_branch.setdefault(when, []).append(s)
    for when, grows in by_branch.items():
        parts = origins.of(grows)
        words = conditional(when) + origins.words(parts)
        if is_wide(parts, origins.kinds) and not all(is_chain(s) for s in grows):
            yield f"context ─┬─ x ── x ── x         {words}"
            yield "         └─ x ── x"
        else:
            yield f"context ── x ── x ── x ── x     {words}"
    yield from list(chain("", verify))[1:]


def is_wide(drafts: Sequence[S.Node], kinds: dict[str, str]) -> bool:
    """Whether a node may have several children, in draft blocks or in statements that grow."""
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


def is_chain(s: S.Node) -> bool:
    """Whether a statement grows `chain(xs)`, one token below the other."""
    return isinstance(s, S.Grow) and isinstance(s.what, S.Call) and expression(s.what.func) == "chain"


def is_leaf(at: S.Expr) -> bool:
    """Whether an expression is `t.leaves`, or one of them."""
    nodes = at.value if isinstance(at, S.Index) else at
    return isinstance(nodes, S.Attr) and nodes.name == "leaves"


def names_of_leaves(draft: S.Node) -> Iterator[str]:
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


def canvas(model: str, verify: S.Verify | None, steps: list[tuple[S.Stmt | S.Grow, Branches]]) -> Iterator[str]:
    """A step that decides cells of a canvas."""
    yield "prompt │ ░ ░ ░ ░ │ ░ ░ ░ ░      everything is masked"
    changes = [(s, when) for s, when in steps if isinstance(s, S.Unmask | S.Remask)]
    unmasked = [when for s, when in changes if isinstance(s, S.Unmask)]
    if not unmasked or len(changes) == 1 and unmasked == [()]:
        how = f"{model} is called; the surest positions are decided"
        if verify is not None:
            rule = expression(verify.rule.func if isinstance(verify.rule, S.Call) else verify.rule)
            how = f"guesses of {model} are verified by {rule}; the accepted ones are decided"
        yield f"prompt │ a ░ ░ b │ ░ ░ ░ ░      {how}"
        changes = [] if unmasked else changes
    for s, when in changes:
        again = isinstance(s, S.Remask)
        where = f" where {expression(s.where)}" if s.where is not None else ""
        where = where if len(where) <= 64 else where[:62] + " .."
        words = f"{conditional(when)}{expression(s.target)} is {'masked again' if again else 'decided'}{where}"
        yield f"prompt │ a ░ ░ {'✗' if again else 'b'} │ ░ ░ ░ ░      {words}"
    yield "prompt │ a c d b │ ░ ░ ░ ░      ... until nothing is masked; then the canvas is committed"
