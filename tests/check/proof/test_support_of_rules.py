"""`keeps support` of rules that an author writes: what accepts and emits only tokens with mass is derived, whatever the coin,
the threshold or the row afterwards; a variation that does not is not, and a world refutes it at once."""

from __future__ import annotations

import re

import pytest

import decgraph
from decgraph.check.proof.claims import Open, prove
from decgraph.check.proof.masses import Number, mapped
from decgraph.ir.data.numbers import FLOAT

DECLARED = {"c": "c: prob = 0.5", "least": "least: prob in 0.1..1 = 0.5", "a": "a: float in 0.1..4 = 0.5"}
DECLARED |= {"lenience": "lenience: float in 0..16 = 1.5", "d": "d: float in -20..0 = -2.0"}
DRAFTS = {
    "one each": "x ~ drafter(t.leaves)\n                grow x",
    "siblings": "grow sample(drafter(t.leaves), 2)",
    "the best": "grow topk(drafter(t.leaves), 1)",
}
COIN, SMALL, REST = "if bernoulli({}):", "min(1, p[x] / x.law[x])", "y ~ p\nemit y"


def rule(condition: str, rest: str = REST, before: str = "", after: str = "") -> str:
    """A rule for one node, which accepts a child on a condition."""
    lines = [before, "for x in children:", f"    {condition}", "        accept x", f"    {after}" if after else "", rest]
    return "rule r(p: dist, children: draws{}):\n" + "\n".join(line for line in lines if line)


def whole(good: str, emit: str = "emit y[n]", before: str = "") -> str:
    """A rule for the whole tree, which accepts the longest path of good drafts."""
    lines = [before, "y ~ p", f"n = argmax(t.nodes where {good}, by = t.depth)", "accept n", emit]
    return "rule r(t: tree, p: dist[t.nodes]{}):\n" + "\n".join(line for line in lines if line)


RESIDUAL = rule(COIN.format(SMALL), "y ~ r\nemit y", before="r = p", after="r = normalize({})")
WORTH = rule(COIN.format("w"), before="w = 1.0").replace("    if", "    w = {}\n    if")
PATH = "down(t, {}, all)"
RIGHT = {
    "leniently": rule(COIN.format("min(1, lenience * p[x] / x.law[x])")),
    "a share": rule(COIN.format(f"c * {SMALL}")),
    "a power": rule(COIN.format("p[x] ^ a")),
    "a root": rule(COIN.format("sqrt(p[x])")),
    "of the best": rule(COIN.format("p[x] / max(p)")),
    "a mixture of chances": rule(COIN.format(f"c * {SMALL} + (1 - c) * p[x]")),
    "a mixture of rules": rule(f"if bernoulli({SMALL}) or p[x] > c:"),
    "near the best": rule("if p[x] > c * max(p):"),
    "as good as a part of the best": rule("if p[x] >= least * max(p):"),
    "a ratio": rule("if p[x] / x.law[x] > c:"),
    "a ratio of the whole model": rule("if p.raw[x] > c * x.law[x]:"),
    "logarithms": rule("if log(p[x]) - log(x.law[x]) > d:"),
    "more afterwards": RESIDUAL.replace("{}):", "):", 0).replace("normalize({})", "normalize(p + relu(p - x.law))"),
    "no more than p afterwards": RESIDUAL.replace("normalize({})", "normalize(p * (1 - c) + c * min(p, x.law))"),
    "the best afterwards": rule("if p[x] > c:", "y ~ normalize(where(p >= c * max(p), p, 0))\nemit y"),
    "sharper afterwards": rule("if p[x] > c:", "y ~ normalize(p ^ a)\nemit y"),
    "the likeliest of what is sharper": rule("if p[x] > c:", "emit argmax(normalize(p * p))"),
    "worth that is carried": WORTH.replace("w = {}\n", "w = min(1, w * p[x])\n"),
    "paths by ratios": whole(PATH.format("p[t.parent][t.token] / t.prob > c")),
    "paths near the best": whole(PATH.format("p[t.parent][t.token] > c * best[t.parent]"), before="best = max(p)"),
    "paths by coins": whole(PATH.format("bernoulli(p[t.parent][t.token])")),
    "paths by thresholds": whole(PATH.format("p[t.parent][t.token] > c"), "emit argmax(p[n])"),
}
WRONG = {
    "of the draft": rule(COIN.format("x.law[x]")),
    "a power that may be 0": rule(COIN.format("p[x] ^ c")),
    "a little more": rule(COIN.format(f"min(1, {SMALL} + 0.1)")),
    "a mixture with the draft": rule(COIN.format(f"c * {SMALL} + (1 - c) * x.law[x]")),
    "the larger": rule(COIN.format("max(c, p[x])")),
    "what is left": rule(COIN.format("1 - p[x]")),
    "one rule of the draft": rule(f"if bernoulli({SMALL}) or x.law[x] > c:"),
    "as good as nothing": rule("if p[x] >= c * max(p):"),
    "above a negative number": rule("if p[x] > d:"),
    "a logarithm below": rule("if log(p[x]) < d:"),
    "logarithms the other way": rule("if log(x.law[x]) - log(p[x]) > d:"),
    "more than p afterwards": RESIDUAL.replace("normalize({})", "normalize(p + relu(x.law - p))"),
    "the draft afterwards": RESIDUAL.replace("normalize({})", "normalize(p + 0.1 * x.law)"),
    "others afterwards": rule("if p[x] > c:", "y ~ normalize(where(p >= c * max(p), p, 0.01))\nemit y"),
    "worth that is never nothing": WORTH.replace("w = {}\n", "w = min(1, w * p[x] + 0.1)\n"),
    "paths of the draft": whole(PATH.format("t.prob > c")),
    "paths of no mass": whole(PATH.format("p[t.parent][t.token] >= c")),
    "paths by their own rows": whole(PATH.format("p[t.nodes][t.token] > c")),
}


def program(text: str, draft: str = DRAFTS["one each"]) -> str:
    """A program with a rule, and with the parameters that the rule reads."""
    names = [name for name in DECLARED if re.search(rf"\b{name}\b", text.split(":\n", 1)[1])]
    own = "".join(f", {DECLARED[name]}" for name in names)
    head, _, body = text.replace("{}):", f"{own}):", 1).partition("\n")
    called = f"r({', '.join(names)})" if names else "r"
    return (
        head
        + "".join(f"\n    {line}" for line in body.splitlines())
        + f"""
algorithm program(target: causal, drafter: causal, gamma: int in 1..4 = 2{own}):
    keeps support of target
    while not done:
        draft t:
            repeat gamma:
                {draft}
        verify t by {called} against target(t)
        commit t.accepted
"""
    )


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("name", [*RIGHT, *WRONG])
def test_what_is_derived_has_mass(name: str, draft: str) -> None:
    module = decgraph.parse(program((RIGHT | WRONG)[name], DRAFTS[draft])).module
    found = prove(module, module.entry.claims[0])
    assert isinstance(found, Open) is (name in WRONG), found


@pytest.mark.quick("a power that may be 0", "more than p afterwards", "paths of no mass")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refuted_at_once(name: str) -> None:
    """With a budget of seconds, where the search for worlds may take a minute."""
    assert decgraph.check(program(WRONG[name]), seconds=10).verdict == "refuted"


VALUES = [-float("inf"), -1.5, -0.5, 0.0, 0.25, 1.0, 3.0, float("inf"), float("nan")]


def known(x: float, nothing: bool) -> Number:
    """All that is so of a number; nothing: of one that is what it is because a token has no mass."""
    nan = x != x
    here = 7 if nothing else None
    return Number(
        here if x == 0 or nan else None,
        here if x <= 0 or nan else None,
        here if x == -float("inf") or nan else None,
        low=x >= 0 or nan,
        above=x > 0 or nan,
        some=x > 0,
        share=x <= 1 or nan,
        finite=abs(x) < float("inf"),
    )


ONE, TWO = ["relu", "abs", "sqrt", "log", "exp", "neg"], ["mul", "div", "pow", "add", "sub", "minimum", "maximum"]


@pytest.mark.parametrize("fn", ONE + TWO)
def test_what_is_said_of_numbers_is_what_the_ops_make_of_them(fn: str) -> None:
    one = fn in ONE
    for a in VALUES:
        for b in [a] if one else VALUES:
            made = float(FLOAT.fn(fn)(*([a] if one else [a, b])))
            for here in (False, True):
                for other in (False, True):
                    xs = [known(a, here)] if one else [known(a, here), known(b, other)]
                    said, so = mapped(fn, xs), known(made, True)
                    for what in ("nothing", "under", "never"):
                        assert getattr(said, what) in (None, getattr(so, what)), (fn, a, b, what, made)
                    for what in ("low", "above", "share", "finite"):
                        assert not getattr(said, what) or getattr(so, what), (fn, a, b, what, made)
