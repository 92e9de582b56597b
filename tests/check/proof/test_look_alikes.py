"""Rules of the kernel, each with programs that it should derive and with wrong ones that look like them."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from decgraph.check.proof.claims import Open, prove
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError

HEADS = {
    "tokens": "refines autoregressive(target) in tokens",
    "law": "refines autoregressive(target) in distribution",
    "support": "keeps support of target",
}


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
    found = prove(module, module.entry.claims[0])
    return found.why if isinstance(found, Open) else "derived"


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
