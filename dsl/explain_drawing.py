"""A step as a drawing of a few lines: chains, trees and canvases, by what the statements do and in which branch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from decgraph.dsl import syntax as S
from decgraph.dsl.printer import expression

MODELS = ("causal", "masked", "features", "layers", "head")
WIDE = ("topk", "sample", "distinct", "race")


def drawing(item: S.Algorithm) -> Iterator[str]:
    """The lines of a drawing of what an algorithm's statements do: what is drafted, decided, masked again and committed, with
    the conditions of the branches that they stand in."""
    inside = list(S.walk(item))
    kinds = {p.name: p.type.name for p in item.params if p.type is not None}
    kinds |= {s.name: "causal" for s in inside if isinstance(s, S.ModelDecl)}
    verify = next((s for s in inside if isinstance(s, S.Verify)), None)
    masked = next((name for name, kind in kinds.items() if kind == "masked"), None)
    steps = list(in_branches(item.body))
    grown = [(s, when) for s, when in steps if isinstance(s, S.Grow)]
    if masked is not None:
        yield from canvas(masked, verify, steps)
    elif grown:
        yield from drafts(grown, Origins(inside, kinds), verify)
    else:
        model = next((name for name, kind in kinds.items() if kind == "causal"), "the model")
        yield f"context ── y                    one call of {model}, one token, again and again"
    for s, when in steps:
        if isinstance(s, S.Commit) and when:
            yield f"context ── y                    {conditional(when)}committed: {expression(s.value)}"


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

    def __init__(self, inside: list[S.Node], kinds: dict[str, str]) -> None:
        self.kinds = kinds
        self.states = {s.name for s in inside if isinstance(s, S.State)}
        self.made: dict[str, list[S.Node]] = {}
        for s in inside:
            if isinstance(s, S.Assign | S.Draw | S.For):
                values = s.values if isinstance(s, S.Assign) else (s.iter if isinstance(s, S.For) else s.dist,)
                for target in s.names if isinstance(s, S.For) else s.targets:
                    whole = target.value if isinstance(target, S.Index) else target  # `x[i] = y` makes a part of x
                    self.made.setdefault(expression(whole), []).extend(values)

    def of(self, grown: list[S.Node]) -> list[S.Node]:
        """The parts of some values, and of what their names stand for; of a state its name, whoever filled it."""
        found, todo, seen = [], list(grown), set()
        while todo:
            for node in S.walk(todo.pop(0)):
                found.append(node)
                if isinstance(node, S.Name | S.Attr) and (name := expression(node)) not in seen:
                    seen.add(name)
                    todo += self.made.get(name, ()) if name not in self.states else ()
        return found

    def words(self, grown: list[S.Node]) -> str:
        """Who drafts: the models that are called, or run by another algorithm, or what is remembered."""
        parts = self.of(grown)
        called = [f for n in parts if isinstance(n, S.Call) for f in (n.func, *n.args)]
        models = [f.name for f in called if isinstance(f, S.Name) and self.kinds.get(f.name) in MODELS]
        models += [f"the heads of {expression(f.value)}" for f in called if isinstance(f, S.Attr) and f.name == "heads"]
        states = [n.name for n in parts if isinstance(n, S.Name) and n.name in self.states]
        names = " and ".join(dict.fromkeys(models or states))
        return f"drafted {'by' if models else 'from'} {names or 'what is committed'}"


def drafts(grown: Sequence[tuple[S.Node, Branches]], origins: Origins, verify: S.Verify | None) -> Iterator[str]:
    """A step that drafts: a chain or a fork for each branch that does, then how it is tested."""
    by_branch: dict[Branches, list[S.Node]] = {}
    for s, when in grown:
        by_branch.setdefault(when, []).append(s)
    for when, grows in by_branch.items():
        words = conditional(when) + origins.words(grows)
        if is_wide(grows, origins):
            yield f"context ─┬─ x ── x ── x         {words}"
            yield "         └─ x ── x"
        else:
            yield f"context ── x ── x ── x ── x     {words}"
    if verify is None:
        yield "context ── x ── x               committed: what the program itself chooses; no rule verifies them"
        return
    model = expression(verify.against.func) if isinstance(verify.against, S.Call) else "the target"
    yield f"           ✓    ✓    ✗          one call of {model} for all of them, then {rule_of(verify)}"
    yield "context ── x ── x ── y          committed: what was accepted, and y of the target's own"


def is_wide(grows: Sequence[S.Node], origins: Origins) -> bool:
    """Whether a node that statements grow below may get several children."""
    leaves = {name for name, made in origins.made.items() if any(map(is_leaf, made))}
    for s in grows:
        if isinstance(s, S.Grow) and s.at is not None and not is_leaf(s.at):
            if expression(s.at) not in leaves:
                return True
            leaves.remove(expression(s.at))  # grown twice there, a node has two children
    rows = [
        s for s in grows if not (isinstance(s, S.Grow) and isinstance(s.what, S.Call) and expression(s.what.func) == "chain")
    ]
    for s in origins.of(rows):
        if isinstance(s, S.Call) and isinstance(s.func, S.Name) and s.func.name in WIDE:
            if not (len(s.args) == 2 and isinstance(s.args[1], S.Number) and s.args[1].value == 1):
                return True
    return "topology" in origins.kinds.values()


def is_leaf(at: S.Node) -> bool:
    """Whether an expression is `t.leaves`, or one of them."""
    nodes = at.value if isinstance(at, S.Index) else at
    return isinstance(nodes, S.Attr) and nodes.name == "leaves"


def rule_of(verify: S.Verify) -> str:
    """The name of the rule of a verification."""
    return expression(verify.rule.func if isinstance(verify.rule, S.Call) else verify.rule)


def canvas(model: str, verify: S.Verify | None, steps: list[tuple[S.Stmt | S.Grow, Branches]]) -> Iterator[str]:
    """A step that decides cells of a canvas."""
    yield "prompt │ ░ ░ ░ ░ │ ░ ░ ░ ░      everything is masked"
    changes = [(s, when) for s, when in steps if isinstance(s, S.Unmask | S.Remask)]
    unmasked = [when for s, when in changes if isinstance(s, S.Unmask)]
    if not unmasked or len(changes) == 1 and unmasked == [()]:
        how = f"{model} is called; the surest positions are decided"
        if verify is not None:
            how = f"guesses of {model} are verified by {rule_of(verify)}; the accepted ones are decided"
        yield f"prompt │ a ░ ░ b │ ░ ░ ░ ░      {how}"
        changes = [] if unmasked else changes
    for s, when in changes:
        again = isinstance(s, S.Remask)
        where = f" where {expression(s.where)}" if s.where is not None else ""
        where = where if len(where) <= 64 else where[:62] + " .."
        words = f"{conditional(when)}{expression(s.target)} is {'masked again' if again else 'decided'}{where}"
        yield f"prompt │ a ░ ░ {'✗' if again else 'b'} │ ░ ░ ░ ░      {words}"
    yield "prompt │ a c d b │ ░ ░ ░ ░      ... until nothing is masked; then the canvas is committed"
