"""Rules of the kernel, each with programs that it should derive and with wrong ones that look like them."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from decgraph.check.proof.claims import prove
from decgraph.check.proof.derive import Derivation
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.values import Module

HEADS = {
    "tokens": "refines autoregressive(target) in tokens",
    "law": "refines autoregressive(target) in distribution",
    "support": "keeps support of target",
}


def said(module: Module) -> str:
    """What is said of a module's first claim. That a run may end in an error is no matter here: it says nothing of tokens."""
    found = prove(module, module.entry.claims[0])
    return "derived" if isinstance(found, Derivation) or "would end the run in an error" in found.why else found.why


def outcome(claim: str, body: str, states: str = "") -> str:
    """`derived`, or why not."""
    text = f"""from rules import match, rejection
algorithm program(target: causal, drafter: causal, k: int in 1..3 = 2):
    {HEADS.get(claim, claim)}
{indent(dedent(states), "    ")}
    while not done:
{indent(dedent(body), "        ")}
"""
    try:
        module = load_text(text)
    except DecError as refused:
        return f"refused: {refused}"
    return said(module)


CARRIED = "state t: tree[8] per sequence = empty"
KNOWN = """
known = t.nodes
draft t:
    x ~ drafter(t.leaves)
    grow x
verify t by match against target(known)
commit t.accepted
"""


def test_evidence_at_nodes_of_an_earlier_tree() -> None:
    assert outcome("tokens", KNOWN, CARRIED) == "derived"
    assert outcome("tokens", KNOWN.replace("t.nodes", "t.leaves"), CARRIED) != "derived"  # the root may not be among them
    assert outcome("tokens", KNOWN.replace("target(", "drafter("), CARRIED) != "derived"
    assert "earlier decoding step" in outcome("law", KNOWN.replace("match", "rejection"), CARRIED)
    assert outcome("tokens", "draft s:\n    x ~ drafter(ctx)\n    grow x\n" + KNOWN + "t = s\n", CARRIED) != "derived"
    twice = KNOWN.replace("verify", "y ~ target(ctx) as output\ncommit y\nverify")
    assert outcome("tokens", twice, CARRIED) != "derived"


SAMPLED = """
draft t:
    now = tile(root, k)
    repeat room while not all(ended(now)):
        live = now where not ended(now)
        x ~ target(live)
        grow x at live
        now = (now where ended(now)) ++ t.new
commit now[0]
"""
FIRST = """
draft t:
    grow sample(target(ctx), k)
    x ~ target(t.leaves)
    grow x
commit t.leaves[0]
"""
LOOK_ALIKES = {
    "another model's draws": SAMPLED.replace("target(live)", "drafter(live)"),
    "draws grown elsewhere": SAMPLED.replace("grow x at live", "grow x at t.parent[live]"),
    "draws grown in another order": SAMPLED.replace("grow x at live", "grow x at top(live, k, by = t.token[live])"),
    "draws of a mixture": SAMPLED.replace("target(live)", "normalize(target(live) + drafter(live))"),
    "likeliest tokens, of which some may be without mass": SAMPLED.replace("x ~ target(live)", "x = topk(target(live).raw, k)"),
    "first draws of another model": FIRST.replace("target(ctx)", "drafter(ctx)"),
    "first draws below others": FIRST.replace("x ~ target(t.leaves)\n    grow x", "grow sample(target(ctx), k)"),
    "one draw under the other": FIRST.replace("grow sample(target(ctx), k)", "grow chain(sample(target(ctx), k))"),
    "a tree of the context before": FIRST.replace("commit", "y ~ target(ctx)\ncommit y\ncommit"),
    "points at the frontier": SAMPLED.replace("grow x at live", "grow point(x.token)"),
    "draws at a node of the same number": """
draft t:
    u = t
    y ~ target(t.leaves)
    grow y
    n = t.new
    x ~ target(n)
    t = u
    z ~ target(t.leaves)
    grow z
    grow x at n
commit t.leaves[0]
""",
    "a node's draws in another iteration": """
draft t:
    n = t.leaves
    x ~ target(n)
    repeat k:
        grow x at n
        n = t.new
commit t.leaves[0]
""",
    "what an index says comes next": """
n = store.matched(ctx.last(3))
draft t:
    grow best_first(store.after(n, at_most = 3), size = k, above = 0)
commit t.leaves[0]
""",
    "unread draws of an earlier tree": FIRST.replace("x ~ target", "prune t to t.nodes where t.token > 0\n    x ~ drafter"),
}


def test_the_way_to_a_node_of_sampled_tokens() -> None:
    assert outcome("support", SAMPLED) == "derived"
    assert outcome("support", FIRST) == "derived"
    assert outcome("support", SAMPLED.replace("grow x at", "grow point(x.token) at")) == "derived"
    assert outcome("tokens", SAMPLED) != "derived"
    assert outcome("law", FIRST) != "derived"


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_the_way_to_a_node_of_other_tokens(name: str) -> None:
    found = outcome("support", LOOK_ALIKES[name], "state store: suffixes(6) per session")
    assert found != "derived" and "refused" not in found


CUT = """
p = target(ctx)
s = {scores}
x ~ warp(where(p.raw >= 0.1 * max(p.raw), s, -inf), at = ctx)
commit x
"""
ROWS = {
    "(1 + k) * p.logits - k * drafter(ctx).logits": True,
    "log(p.raw) - log(drafter(ctx).raw)": True,
    "p.logits / max(0.01, k * p.raw[0])": True,
    "log(relu(p.raw - k * drafter(ctx).raw))": True,
    "(k - 1) * p.logits - drafter(ctx).logits": False,  # 0 * -inf is 0: nothing is ruled out where k == 1
    "log(relu(k * drafter(ctx).raw - p.raw))": False,
    "log(relu(p.raw - (p.raw[0] - 0.5) * drafter(ctx).raw))": False,
    "log(p.raw + drafter(ctx).raw)": False,
    "p.logits / (p.raw[0] - 0.5)": False,
    "(1 - k) * p.logits": False,
    "where(p.raw > 0.5, p.logits, 0)": False,
    "where(p.raw > 0.5, p.logits, drafter(ctx).logits)": False,
}


@pytest.mark.parametrize("scores", ROWS)
def test_scores_of_minus_infinity_stay(scores: str) -> None:
    assert (outcome("support", CUT.format(scores=scores)) == "derived") == ROWS[scores]
    assert outcome("law", CUT.format(scores=scores)) != "derived"


def test_what_is_put_in_the_place_of_no_mass() -> None:
    body = "p = target(ctx).raw\nx ~ normalize(where(p > 0.1, {}, {}))\ncommit x"
    assert outcome("support", body.format("p", 0)) == "derived"
    assert outcome("support", body.format("p ^ 2", "p")) == "derived"
    assert outcome("support", body.format("p", 0.5)) != "derived"
    assert outcome("support", body.format("p", "drafter(ctx).raw")) != "derived"
    assert outcome("support", body.format("p", "k - 1")) != "derived"


def program(text: str) -> str:
    """`derived`, or why the first claim of the last algorithm is not."""
    try:
        module = load_text("from autoregressive import autoregressive\n" + dedent(text))
    except DecError as refused:
        return f"refused: {refused}"
    return said(module)


CELLS = """
algorithm program(model: masked, other: masked[model.vocab], length: int in 1..8 = 4):
    keeps support of model
    while not done:
        canvas w: length
        p = model(w)
        x ~ p
        commit x[:max(1, leading(p.raw[x] > 0.5))]
"""
CELLS_WRONG = {
    "another model": CELLS.replace("= model(w)", "= other(w)"),
    "not the first cells": CELLS.replace("x[:max", "x[max"),
    "cells after the context before": CELLS.replace("commit x[:max", "commit x[:1]\n        commit x[:max"),
    "cells that were drawn earlier": CELLS.replace("p = model(w)\n", "p = model(w)\n        commit argmax(p.raw)[:1]\n"),
    "the smallest": CELLS.replace("x ~ p", "x = argmax(-p.raw)"),
}


def test_the_first_cells_of_a_canvas() -> None:
    assert program(CELLS) == "derived"
    assert program(CELLS.replace("x ~ p", "x = argmax(p.raw)")) == "derived"
    assert program(CELLS.replace("of model\n", "of model or other\n").replace("x ~ p", "x ~ other(w)")) == "derived"


@pytest.mark.parametrize("name", CELLS_WRONG)
def test_other_cells_of_a_canvas(name: str) -> None:
    found = program(CELLS_WRONG[name])
    assert found != "derived" and "refused" not in found


SOME = """
algorithm program(model: masked, length: int in 1..8 = 4, block: int in 1..4 = 2):
    keeps support of model
    canvas c: length
    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c, at = b)
            y = argmax(p.raw)
            unmask c[b] where first_max(max(p.raw)) with y
    commit c
"""


def test_the_masked_ones_of_some_cells() -> None:
    assert program(SOME) == "derived"
    assert program(SOME.replace("y = argmax(p.raw)", "y = argmax(-p.raw)")) != "derived"
    assert program(SOME.replace("first_max(max(p.raw)) with y", "c.masked[b] with y")) == "derived"
    put = """            left, s = sure(max(p.raw), 0.9), max(p.raw)
            some = b where left
            c[some] = y where {}
"""
    other = SOME.replace("            unmask c[b] where first_max(max(p.raw)) with y\n", put)
    other = other.replace("while any(c.masked[b]):", "repeat 2:")
    assert program(other.format("left")) == "derived"
    assert program(other.format("s > 0.1")) == "nothing is known of what is committed (canvas)"


RUNS = """
algorithm program(target: causal, drafter: causal, gate: prob = 0.5):
    keeps support of target or drafter
    while not done:
        step = run autoregressive(drafter) from ctx until completes(".") at most 4
        if bernoulli(gate):
            commit run autoregressive(target) from ctx until completes(".") at most 4
        else:
            commit step
"""
GREEDY_RUN = """
algorithm odd(target: causal):
    keeps support of target
    while not done:
        commit {}
algorithm program(target: causal):
    keeps support of target
    while not done:
        commit run odd(target) from ctx until done at most 4
"""
RUNS_WRONG = {
    "one of two models": RUNS.replace("target or drafter", "target"),
    "a run from an earlier context": RUNS.replace("if ber", "x ~ target(ctx)\n        commit x\n        if ber"),
    "a part of a run": RUNS.replace("commit step", "commit step[1:]"),
    "an algorithm that commits other tokens": GREEDY_RUN.format("argmin(target(ctx).raw)"),
    "both claims of the distribution": RUNS.replace("keeps support of target or drafter", HEADS["law"]),
}


def test_what_is_run() -> None:
    assert program(RUNS) == "derived"
    assert program(GREEDY_RUN.format("argmax(target(ctx).raw)")) == "derived"


@pytest.mark.parametrize("name", RUNS_WRONG)
def test_what_is_run_wrongly(name: str) -> None:
    found = program(RUNS_WRONG[name])
    assert found != "derived" and "refused" not in found


JACOBI = """
y = tile(pad, min(k, room))
repeat k:
    draft t:
        grow chain(y[:-1])
    z ~ target(t) as output
    same = all(z[:-1] == y[:len(z) - 1])
    y = z.token
    break if same
commit y
"""
JACOBI_WRONG = {
    "one iteration less": JACOBI.replace("repeat k:", "repeat k - 1:"),
    "as many iterations as parameters say": JACOBI.replace("repeat k:", "repeat 2:"),
    "more guesses": JACOBI.replace("min(k, room)", "k + 1"),
    "no fixpoint": JACOBI.replace("all(z[:-1]", "any(z[:-1]"),
    "the last guess too": JACOBI.replace("chain(y[:-1])", "chain(y[:-2])"),
    "all but the first": JACOBI.replace("chain(y[:-1])", "chain(y[1:])"),
    "compared with itself": JACOBI.replace("== y[:len(z) - 1]", "== z[:len(z) - 1]"),
    "compared in part": JACOBI.replace("z[:-1] == y[:len(z) - 1]", "z[:-2] == y[:len(z) - 2]"),
    "where something changes": JACOBI.replace("break if same", "break if not same"),
    "stopped by chance": JACOBI.replace("break if same", "break if bernoulli(0.5)"),
    "another model": JACOBI.replace("target(t)", "drafter(t)"),
    "other noise": JACOBI.replace(" as output", ""),
    "another model's guesses kept": JACOBI.replace("y = z.token", "y = argmax(drafter(t).raw) if k > 1 else z.token"),
    "the guesses before": JACOBI.replace("y = z.token\n    break if same", "break if same\n    y = z.token"),
    "a chain below a guess": JACOBI.replace("    draft t:\n", "    draft t:\n        grow point(pad)\n"),
    "siblings": JACOBI.replace("grow chain(y[:-1])", "grow point(y[:-1])"),
    "after another context": JACOBI.replace("commit y", "x ~ target(ctx) as output\ncommit x\ncommit y"),
    "a part of it": JACOBI.replace("commit y", "commit y[1:]"),
}


def test_jacobi_iteration() -> None:
    assert outcome("tokens", JACOBI) == "derived"
    assert outcome("law", JACOBI) == "derived"
    assert outcome("tokens", JACOBI.replace("    break if same\n", "")) == "derived"
    assert outcome("tokens", JACOBI.replace("min(k, room)", "k")) == "derived"


@pytest.mark.parametrize("name", JACOBI_WRONG)
def test_jacobi_iteration_that_is_not(name: str) -> None:
    found = outcome("tokens", JACOBI_WRONG[name])
    assert found != "derived" and "refused" not in found


MATCH = """
y ~ p
for x in children:
    if x == y:
        accept x
emit y
"""
REJECT = """
for x in children:
    if bernoulli((1 - 0) * p[x] / (x.law[x] + 0 * p[x])):
        accept x
    p = normalize(relu(p - 1 * x.law))
y ~ p
emit y
"""
RULES = {
    MATCH: True,
    MATCH.replace("y ~ p", "y ~ p as output"): True,
    MATCH.replace("accept x", "accept x if bernoulli(0.5) else x"): True,
    MATCH.replace("emit y", "z ~ p\nemit z"): False,
    MATCH.replace("y ~ p\n", "")
    .replace("for x in children:\n", "for x in children:\n    y ~ p\n")
    .replace("emit y", "z ~ p\nemit z"): False,
    MATCH.replace("emit y", "emit argmax(p)"): False,
    MATCH.replace("y ~ p", "y ~ normalize(p * p)"): False,
    MATCH.replace("y ~ p", "y ~ children[0].law"): False,
    MATCH.replace("x == y", "bernoulli(0.5)"): False,
    MATCH.replace("x == y", "x == y or bernoulli(0.5)"): False,
    MATCH.replace("x == y", "x != y"): False,
    MATCH.replace("y ~ p\n", "y ~ p using g\n"): None,
    REJECT: True,
    REJECT.replace("(1 - 0)", "(1 + 1)"): False,
    REJECT.replace("0 * p[x]", "p[x]"): False,
    REJECT.replace("1 * x.law", "0 * x.law"): False,
    REJECT.replace("(1 - 0)", "k"): False,
}


@pytest.mark.parametrize("rule", RULES)
def test_rules(rule: str) -> None:
    """None: the language refuses it."""
    rule_text = f"rule odd(p: dist, children: draws{', k: int' if 'k *' in rule else ''}):\n{indent(rule, '    ')}"
    found = program(f"""
{rule_text}
algorithm program(target: causal, drafter: causal, k: int in 1..2 = 1):
    refines autoregressive(target) in distribution
    while not done:
        draft t:
            repeat 2:
                x ~ drafter(t.leaves)
                grow x
        verify t by odd{"(k = k)" if "k *" in rule else ""} against target(t)
        commit t.accepted
""")
    assert found == "derived" if RULES[rule] else found != "derived" and ("refused" in found) is (RULES[rule] is None), found


PAIR = """
share = {}
x ~ normalize((1 - share) * target(ctx) + share * drafter(ctx))
commit x
"""


@pytest.mark.parametrize(
    ("share", "right"),
    [
        ("clamp(floor(0 / 4), 0, 1)", True),
        ("floor(log(1) / 10)", True),
        ("where(k == 3, 0, 0) * where(k == 1, 1, 0)", True),
        ("3 % 3", True),
        ("floor(0 * ctx.length / 300)", True),
        ("clamp(floor(4 / 4), 0, 1)", False),
        ("floor(ctx.length / 300) / 10", False),
        ("where(k == 3, 1, 0)", False),
        ("4 % 3", False),
        ("floor(exp(0) / 2)", True),
        ("exp(0) - 1", True),
        ("log(2) / 10", False),
        ("int(0.7)", True),
        ("int(1.7)", False),
    ],
)
def test_shares_that_are_nothing(share: str, right: bool) -> None:
    assert (outcome("law", PAIR.format(share)) == "derived") is right


def test_token_numbers() -> None:
    assert outcome("law", "x ~ target(ctx)\ncommit int(x) % vocab.size") == "derived"
    assert outcome("law", "x ~ target(ctx)\ncommit int(x)") == "derived"
    assert outcome("law", "x ~ target(ctx)\ncommit (int(x) + 1) % vocab.size") != "derived"
    assert outcome("law", "x ~ target(ctx)\ncommit int(x) % 512") != "derived"
    assert outcome("law", "x ~ target(ctx)\ncommit vocab.size % int(x)") != "derived"


def test_evidence_at_all_nodes_by_a_condition() -> None:
    body = """
draft t:
    repeat 2:
        x ~ drafter(t.leaves)
        grow x
p = target(t)
verify t by rejection against p[t.nodes where {}]
commit t.accepted
"""
    assert outcome("law", body.format("t.depth >= 0")) == "derived"
    assert outcome("law", body.format("t.depth >= 1")) != "derived"
    assert outcome("law", body.format("t.depth < 2")) != "derived"
    assert outcome("law", body.format("t.token >= 0")) != "derived"


AHEAD = "state ahead: draws[<= 4] per sequence = []\nstate note: int per sequence = 0"
UNREAD = """
ahead = ahead ++ sample(uniform(vocab), 3 - len(ahead))
draft t:
    grow chain(ahead)
p = target(t)
verify t by rejection against p
x ~ p[t.nodes where t.depth > t.accepted.depth]
ahead = x
commit t.accepted
"""
UNREAD_WRONG = {
    "read before the step ends": UNREAD.replace("commit t", "note = int(x.token[0]) if len(x) > 0 else 0\ncommit t"),
    "read before they are grown": UNREAD.replace(
        "draft t:\n", "draft t:\n    ahead = [] if any(ahead.token == 0) else ahead\n"
    ),
    "grown if they are certain tokens": UNREAD.replace(
        "    grow chain(ahead)", "    if ahead[0] == 0:\n        grow chain(ahead)"
    ),
    "kept if they are certain tokens": UNREAD.replace("ahead = x", "ahead = x where x.token > 0"),
    "some of them": UNREAD.replace("ahead = x", "ahead = x[1:]"),
    "kept by what one of them is": UNREAD.replace(
        "ahead = x\n", "if len(x) > 0 and x[0] == 0:\n    ahead = x\nelse:\n    ahead = []\n"
    ),
    "those of the step": UNREAD.replace("ahead = x\n", ""),
    "those of a step before": UNREAD.replace("ahead = x\n", "if k > 1:\n    ahead = x\n"),
    "of half a distribution": UNREAD.replace(
        "x ~ p[t.nodes where t.depth > t.accepted.depth]", "x ~ (p * 0.5)[t.nodes where t.depth > t.accepted.depth]"
    ),
    "grown in two trees": UNREAD.replace("commit t", "draft u:\n    grow chain(x)\ncommit t"),
    "also committed": UNREAD.replace("commit t.accepted", "commit t.accepted\nif len(x) > 0 and not done:\n    commit x[0]"),
    "written in a draft that may end before": UNREAD.replace(
        "commit t", "draft u:\n    grow topk(drafter(u.leaves).raw, 3 % (k - 1))\n    ahead = []\ncommit t"
    ),
    "with the output stream": UNREAD.replace("t.accepted.depth]", "t.accepted.depth] as output"),
    "whether to commit": UNREAD.replace(
        "commit t.accepted", "if len(x) > 0 and x[0] == 0:\n    commit t.accepted\nelse:\n    y ~ target(ctx)\n    commit y"
    ),
}


def test_draws_that_are_left_for_the_next_step() -> None:
    assert outcome("law", UNREAD, AHEAD) == "derived"
    assert outcome("law", UNREAD.replace("ahead = x\n", "ahead = x\nnote += 1\n"), AHEAD) == "derived"
    assert outcome("law", UNREAD, AHEAD.replace("per sequence", "per session", 1)) != "derived"


@pytest.mark.parametrize("name", UNREAD_WRONG)
def test_draws_that_were_read_before_the_next_step(name: str) -> None:
    assert outcome("law", UNREAD_WRONG[name], AHEAD) != "derived"
