"""`verify t by rule against evidence`: the rule's body becomes the region of a walk."""

from __future__ import annotations

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import did_you_mean
from decgraph.dsl.lower.calls import bind
from decgraph.dsl.lower.flow import EXIT, VERDICT, suite
from decgraph.dsl.lower.progress import check_rule
from decgraph.dsl.lower.state import RULE, Lowering
from decgraph.dsl.lower.wording import show
from decgraph.ir.types import INT, NONE, Dim, Type
from decgraph.ir.values import Value


def verify(lw: Lowering, s: S.Verify) -> None:
    """`verify t by rule against evidence`: the rule's body becomes the region of a `tree.walk`."""
    tree = lw.expr(s.tree)
    if tree.type.elem != "tree":
        lw.fail(s.tree.span, f"verify takes a tree, got {show(tree.type)}", code="E210")
    evidence = lw.expr(s.against)
    rule_name = s.rule.func if isinstance(s.rule, S.Call) else s.rule
    rule = lw.items.get(rule_name.name) if isinstance(rule_name, S.Name) else None
    if not isinstance(rule, S.Rule):
        known = [n for n in lw.items if isinstance(lw.items.get(n), S.Rule)]
        lw.fail(
            s.rule.span,
            f"no rule called `{getattr(rule_name, 'name', '?')}`",
            did_you_mean(getattr(rule_name, "name", ""), known, f"rules in reach: {', '.join(sorted(known))}"),
            code="E230",
        )
    given = [lw.expr(a) for a in s.rule.args] if isinstance(s.rule, S.Call) else []
    kwargs = {k.name: lw.expr(k.value) for k in s.rule.kwargs} if isinstance(s.rule, S.Call) else {}
    if len(rule.params) < 2:
        lw.fail(
            s.rule.span, f"rule `{rule.name}` takes no evidence and children", "rule r(p: dist, children: draws):", code="E260"
        )
    whole = rule.params[0].type is not None and rule.params[0].type.name == "tree"
    if tree.type.of[1] != "edit":
        check_rule(lw, rule, whole, s)
    if whole:
        _needs_every_node(lw, rule, s)
    tree_name = str(tree.type.of[0])
    i = Value(INT, "depth")
    if whole:
        first = Value(tree.type, rule.params[0].name)
        second = Value(evidence.type, rule.params[1].name)
    else:
        t = evidence.type
        row = t.of[0] if t.elem == "list" else (t.drop() if t.dims else None)
        if not isinstance(row, Type):
            lw.fail(
                s.against.span,
                f"verify ... against needs evidence at every node, got {show(t)}",
                "evaluate the model at the tree: target(t)",
                code="E210",
            )
        first = Value(row, rule.params[0].name)
        edge = "edit" if tree.type.of[1] == "edit" else "draw"
        second = Value(Type(edge, (tree.type.of[2],), (Dim("k"),)), rule.params[1].name)
    extra = bind(lw, rule, rule.params[2:], given, kwargs, s.rule.span)
    seen = {rule.params[0].name: first, rule.params[1].name: second, **extra}
    with lw.effectless(RULE), lw.called(rule.name, seen, s.span):
        if whole:
            lw.trees.append(rule.params[0].name)
            lw.env[tree_name] = first
            for (t_, c), ty in list(lw.columns.items()):
                if t_ == tree_name:
                    lw.columns[(rule.params[0].name, c)] = ty
        lw.b.open([i, first, second])
        lw.counters.append(i)
        for flag in ("%has_acc", "%has_emit", EXIT):
            lw.env[flag] = lw.const(False)
        for value in ("%acc", "%emit"):
            lw.env[value] = lw.const(None, NONE)
        lw.exits = [VERDICT]
        suite(lw, rule.body)
        region = lw.b.close([lw.env[n] for n in VERDICT])
    path = lw.emit(
        "tree.walk",
        tree,
        evidence,
        regions=(region,),
        span=s.span,
        names=("accepted",),
        scope="tree" if whole else "node",
        rule=rule.name,
        vocab=lw.vocab,
    )[0]
    key = s.tree.name if isinstance(s.tree, S.Name) else tree_name
    lw.env[key + ".accepted"] = path


def _needs_every_node(lw: Lowering, rule: S.Rule, s: S.Verify) -> None:
    """A rule of whole trees reads the evidence of any node, so a call on named nodes, which leaves those out that were grown
    since, does not serve it. A rule of one node's children ends where there is no evidence."""
    asked = s.against.args[0] if isinstance(s.against, S.Call) and s.against.args else None
    if asked is None or asked == s.tree or lw.expr(asked).type.elem != "node":
        return
    lw.fail(
        asked.span,
        f"rule `{rule.name}` reads the evidence after every node, and this call gives it after some nodes alone",
        "evaluate the whole tree, target(t), or take a rule of one node's children, as `rejection` and `match` are",
        code="E210",
    )
