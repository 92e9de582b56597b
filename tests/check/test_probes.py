"""Programs that are wrong only at sizes, values or steps that no small world has: runs at real sizes refute them. Their twins,
which mix in the target in the place of the drafter, are never refuted."""

from __future__ import annotations

import pytest

from decgraph.backends.exact.coverage import CoveredRun
from decgraph.backends.exact.run import ExactMachine
from decgraph.check import check_algorithm
from decgraph.check.distributions import RunTally
from decgraph.check.exploration import DecidedSettings, Exploration
from decgraph.check.probes import OPS, RUN_OPS, probed
from decgraph.dsl.lower import load_text
from decgraph.ir.values import Op

MIXED = """algorithm mixed(target: causal, drafter: causal{params}):
    refines autoregressive(target) {mode}
{before}
    while not done:
        {share}
        x ~ {evidence}
        {after}commit x
"""
EVIDENCE = "normalize((1 - share) * target(ctx) + share * {other}(ctx))"
STEPS = "    state n: int per sequence = 0"
WHEELS = "    state a: int per sequence = 0\n    state b: int per sequence = 0"
TABLE = "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]"

SHARES = {
    "a long text": {"share": "share = clamp(floor(ctx.length / 900), 0, 1)"},
    "a length among many": {"share": "share = where(len(prompt) % 11 == 7, 1, 0) * where(room > 1, 1, 0)"},
    "many steps": {"share": "share = relu(1 - abs(n - 170))", "before": STEPS, "after": "n += 1\n        "},
    "a table of steps": {"share": f"share = {TABLE}[n % 23]", "before": STEPS, "after": "n += 1\n        "},
    "two counters": {
        "share": "share = where(a == 4, 1, 0) * where(b == 2, 1, 0)",
        "before": WHEELS,
        "after": "a = (a + 1) % 5\n        b = (b + 1) % 9\n        ",
    },
    "two parameters": {
        "share": "share = where(a == 6, 1, 0) * where(b == 2, 1, 0)",
        "params": ", a: int in 1..8 = 1, b: int in 1..8 = 1",
    },
    "one value of a parameter": {"share": f"share = {TABLE}[a]", "params": ", a: int in 0..22 = 3"},
    "a probability among many": {"share": "share = where(int(tau * 20) == 13, 1, 0)", "params": ", tau: prob = 0.5"},
    "much room": {"share": "share = clamp(room - 200, 0, 1)"},
    "many tokens": {"share": "share = clamp(floor(vocab.size / 400), 0, 1)"},
    "a late request": {
        "share": "share = where(before > 5, 1, 0)",
        "before": "    state asked: int per session = 0\n    before = asked\n    asked += 1",
    },
    "a class": {"share": "share = where(route(ctx) == 11, 1, 0)", "params": ", route: head(target) -> int"},
    "masses in between": {"share": "m = max(target(ctx))\n        share = 90 * relu(m - 0.61) * relu(0.64 - m)"},
    "equal tokens": {"share": "share = clamp(floor(ctx.length / 900), 0, 1)", "mode": "in tokens"},
}
OTHERS = {
    "a loop": MIXED.format(
        params="",
        mode="in distribution",
        before="",
        share="w = target(ctx)\n        repeat int(ctx.length / 700):\n            w = normalize(w + drafter(ctx))",
        evidence="w",
        after="",
    ),
    "ids": """algorithm ids(target: causal):
    refines autoregressive(target) in distribution

    while not done:
        x ~ target(ctx)
        commit int(x) % 1024
""",
    "a wide truncation": """algorithm wide(target: causal, k: int in 1..256 = 80):
    refines autoregressive(target) in distribution when k >= 60

    while not done:
        x ~ renorm_topk(target(ctx), k)
        commit x
""",
    "a wide window": """algorithm wide(target: causal, window: int in 1..4096 = 900):
    refines autoregressive(target) in tokens when window >= 700

    while not done:
        x ~ target(ctx.last(min(window, ctx.length))) as output
        commit x
""",
    "support": """algorithm dull(target: causal):
    keeps support of target

    while not done:
        much = floor(ctx.length / 220) / 1000
        x ~ normalize(target(ctx).raw + much * uniform(vocab))
        commit x
""",
    "large blocks": """from static_masked import static_masked

algorithm by_size(model: masked, length: int in 1..1024 = 256, block: int in 1..256 = 32):
    refines static_masked(model, length, block) in distribution
    canvas c: length

    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c, at = b)
            x ~ p as output(count(c.decided))
            unmask c[b] where rank(p.raw[x]) < 1 + floor(len(b) / 24) with x
    commit c
""",
}


def text(kind: str, other: str = "drafter") -> str:
    parts = {"params": "", "mode": "in distribution", "before": "", "after": "", **SHARES[kind]}
    evidence = EVIDENCE.format(other=other)
    if parts["mode"] == "in tokens":
        evidence = f"warp(log({evidence.replace('(ctx)', '(ctx).raw')}), at = ctx) as output"
    return MIXED.format(evidence=evidence, **parts)


@pytest.mark.budget(8)
@pytest.mark.parametrize("kind", [*SHARES, *OTHERS])
def test_what_no_small_world_shows_is_refuted(kind: str) -> None:
    found = check_algorithm(OTHERS[kind] if kind in OTHERS else text(kind))
    assert found.verdict == "refuted" and found.counterexample is not None
    assert found.counterexample.render()


@pytest.mark.budget(14)
@pytest.mark.parametrize("kind", ["many steps", "a late request", "masses in between", "equal tokens"])
def test_their_twins_are_not(kind: str) -> None:
    assert check_algorithm(text(kind, "target"), models=8, derive=False).verdict != "refuted"


def test_the_bound_is_exact() -> None:
    """One token of two in a hundred too often is shown by the runs that say so, not by a frequency."""
    program = text("a long text").replace("floor(ctx.length / 900), 0, 1)", "floor(ctx.length / 900), 0, 1) / 50")
    found = check_algorithm(program)
    assert found.verdict == "refuted" and found.counterexample is not None
    assert found.counterexample.kind == "text" and "probability" in found.counterexample.words


STALE = """from static_masked import static_masked

algorithm stale(model: masked, length: int in 1..1024 = 256, block: int in 1..256 = 32):
    refines static_masked(model, length, block) in distribution
    canvas c: length
    first_ = model.memory(c)

    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c, at = b, given = first_) if count(c.decided) > 9 else model(c, at = b)
            x ~ p as output(count(c.decided))
            e = one(p, x, b where c.masked[b])
            c[e.position] = e.token
    commit c
"""


@pytest.mark.budget(8)
def test_a_memory_that_is_stale_in_large_canvases_is_refuted() -> None:
    """The rows of models that can tell memories apart are certain there, so that one run is enough."""
    assert check_algorithm(STALE).verdict == "refuted"


@pytest.mark.parametrize("text", [text("two counters", "target"), STALE.replace("> 9", "> 9000"), OTHERS["large blocks"]])
def test_all_ops_of_probes_are_counted(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the specification, too, whichever way it is run."""
    module, taken, apply = load_text(text), [0], ExactMachine.apply

    def counted(self: ExactMachine, op: Op) -> object:
        taken[0] += 1
        return apply(self, op)

    monkeypatch.setattr(ExactMachine, "apply", counted)
    claim = module.entry.claims[0]
    probed(Exploration(module, claim, RunTally(), CoveredRun.of(module, module.entry), DecidedSettings()), models=1)
    assert 500 < taken[0] <= OPS + RUN_OPS


AT_ONCE = """algorithm at_once(target: causal):
    draft t:
        repeat room while not ended(t.new[0] if len(t.new) > 0 else root):
            grow topk(target(t.leaves).raw, 1)
    commit t.leaves[0]

algorithm again(target: causal):
    refines at_once(target) in tokens

    draft t:
        repeat room while not ended(t.new[0] if len(t.new) > 0 else root):
            grow topk(target(t.leaves).raw, 1)
    commit t.leaves[0]
"""


def test_a_run_that_is_stopped_refutes_nothing_by_what_it_has_not_committed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both commit the whole text at once."""
    module = load_text(AT_ONCE)
    monkeypatch.setattr("decgraph.check.probes.Counting.most", 40)
    explored = Exploration(module, module.entry.claims[0], RunTally(), CoveredRun.of(module, module.entry), DecidedSettings())
    assert probed(explored, models=4) is None and explored.seen.probes > 5
