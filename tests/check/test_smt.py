"""Proofs for all distributions: rules and steps that are right are proved, wrong ones refuted with a model that is checked."""

from __future__ import annotations

import builtins
from fractions import Fraction
from typing import Any

import pytest

from decgraph.backends.exact.choices import runs
from decgraph.backends.exact.world import World
from decgraph.check.distributions import CheckedProgram, execute
from decgraph.check.smt import SmtReport, prove, prove_rule, smt_report
from decgraph.check.smt.field import Field
from decgraph.check.smt.poly import ONE, Poly
from decgraph.check.smt.report import PROVED, REFUTED, UNDECIDED
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

STEP = """
algorithm tried(target: causal, drafter: causal):
    refines autoregressive(target) in {mode}

    while not done:
        draft t:
            {grow}
        verify t by {rule} against target(t)
        commit t.accepted
"""


def step(rule: str, grow: str, mode: str = "distribution") -> str:
    """A text whose step grows drafts and verifies them: `rule` is a name, or a rule's text."""
    name = rule.split("(")[0].removeprefix("rule ") if "\n" in rule else rule
    return (rule if "\n" in rule else "") + STEP.format(mode=mode, grow=grow, rule=name)


IID = "grow sample(drafter(t.leaves), {})"
DIFFERENT = "grow sample(drafter(t.leaves), {}, replace = no)"
POINTS = "grow topk(drafter(t.leaves).raw, {})"
RIGHT = [
    ("rejection", grow, vocab)
    for grow in (IID.format(1), IID.format(2), DIFFERENT.format(2), POINTS.format(1))
    for vocab in (3, 4)
] + [("rejection", POINTS.format(2), 3), ("rejection", POINTS.format(3), 3)]
SLOW = [
    ("rejection", POINTS.format(2), 4),
    ("rejection", IID.format(3), 3),
    ("rejection", DIFFERENT.format(3), 3),
    ("rejection", POINTS.format(3), 4),
]


@pytest.mark.quick((IID.format(1), "3"), (DIFFERENT.format(2), "3"), (POINTS.format(1), "3"))
@pytest.mark.parametrize(("rule", "grow", "vocab"), RIGHT)
def test_right_uses_of_rejection_are_proved(rule: str, grow: str, vocab: int) -> None:
    report = prove(step(rule, grow), vocab=vocab)
    assert report.verdict == PROVED, report.render()


@pytest.mark.nightly
@pytest.mark.parametrize(("rule", "grow", "vocab"), SLOW)
def test_more_siblings_and_tokens(rule: str, grow: str, vocab: int) -> None:
    report = prove(step(rule, grow), vocab=vocab, seconds=240)
    assert report.verdict == PROVED, report.render()


@pytest.mark.parametrize("vocab", [3, 4])
@pytest.mark.parametrize("grow", [IID.format(2), IID.format(3), DIFFERENT.format(2), POINTS.format(2)])
def test_match_commits_the_output_draw(grow: str, vocab: int) -> None:
    report = prove(step("match", grow, "tokens"), vocab=vocab)
    assert report.verdict == PROVED, report.render()


@pytest.mark.slow
def test_a_chain_of_two() -> None:
    assert prove("speculative", vocab=4, params={"gamma": 2}).verdict == PROVED
    report = prove("speculative")
    assert [(o.label, o.verdict) for o in report.obligations] == [("gamma = 1", PROVED), ("gamma = 2", PROVED)]
    assert [o.length for o in report.obligations] == [2, 3]
    assert report.to_json()["verdict"] == PROVED
    assert report.render().startswith(f"{PROVED}: speculative: refines autoregressive(target) in distribution\n")


@pytest.mark.nightly
def test_recursive_rejection_over_a_tree() -> None:
    report = prove("recursive_sd")
    assert [(o.label, o.verdict) for o in report.obligations] == [("shape = 2", PROVED), ("shape = 2x1", PROVED)]


RULE = """rule {name}(p: dist, children: draws):
    for x in children:
        if {test}:
            accept x
{then}    y ~ p
    emit y
"""
TWO = """rule {name}(p: dist, children: draws):
    r = p
    for x in children:
        if bernoulli(r[x] / x.law[x]):
            accept x
        r = normalize(relu({left} - x.law))
    y ~ {last}
    emit y
"""
RESIDUAL = "        p = normalize(relu(p - x.law))\n"


def wrong(name: str, test: str = "bernoulli(p[x] / x.law[x])", then: str = RESIDUAL) -> str:
    return RULE.format(name=name, test=test, then=then)


WRONG = {
    "the residual is forgotten": (wrong("forgets", then=""), IID.format(1)),
    "accepts with q/p": (wrong("upside_down", "bernoulli(x.law[x] / p[x])"), IID.format(1)),
    "accepts where p >= q": (wrong("greedy_test", "p[x] >= x.law[x]"), IID.format(1)),
    "lenience of 2": (wrong("lenient", "bernoulli(2 * p[x] / x.law[x])"), IID.format(1)),
    "the residual is turned round": (wrong("turned", then="        p = normalize(relu(x.law - p))\n"), IID.format(1)),
    "emits from p at a rejection of the second": (TWO.format(name="late", left="r", last="p"), IID.format(2)),
    "the first sibling's law is put back for the second": (TWO.format(name="once", left="p", last="r"), IID.format(2)),
    "siblings without replacement by the rule for independent ones": (
        wrong("independent", "bernoulli(p[x] / x.prob)"),
        DIFFERENT.format(2),
    ),
    "a guess is taken for a draw": (wrong("as_drawn", "bernoulli(p[x] / x.prob)"), POINTS.format(1)),
    "a guess is always accepted": (wrong("trusting", "p[x] > 0"), POINTS.format(1)),
    "a guess is taken for a draw from uniform": (wrong("uniform", "bernoulli(3 * p[x])"), POINTS.format(1)),
}


def laws(text: str, rows: dict[Any, Any], size: int) -> dict[tuple[int, ...], Fraction]:
    """The exact law of what one step commits, in tables with the given rows."""
    module = load_text(text)
    models = {
        p.name: TableModel(
            size, seed=5, table={path: row for (model, path), row in rows.items() if model == p.name}, name=p.name
        )
        for p in module.entry.params
    }
    world = World(coupled=False)
    out: dict[tuple[int, ...], Fraction] = {}
    request = Request(prompt=(0, 1), limit=9)

    def one(choices: Any) -> tuple[int, ...]:
        world.restart(choices)
        return execute(CheckedProgram(module, module.main, models, {}).machine(request, world, 1)).committed_tokens()

    for choices, tokens in runs(one, 5000):
        out[tokens[:1]] = out.get(tokens[:1], Fraction(0)) + choices.weight()
    return out


@pytest.mark.parametrize("what", [pytest.param(w, marks=pytest.mark.nightly) if "without" in w else w for w in WRONG])
def test_wrong_rules_are_refuted(what: str) -> None:
    text = step(*WRONG[what])
    report = prove(text, vocab=3)
    assert report.verdict == REFUTED, report.render()
    model = report.obligations[0].model
    assert model is not None and model.distance > 0
    assert sum(model.ours.values()) == sum(model.theirs.values()) == 1
    for row in model.rows.values():
        assert sum(row) == 1 and min(row) >= 0
    found = laws(text, model.rows, 3)
    target = model.rows["target", (0, 1)]
    assert {(v,): w for v, w in enumerate(target) if w} == model.theirs
    assert {k: v for k, v in found.items() if v} == {k: v for k, v in model.ours.items() if v}
    assert "<-" in report.render() and "target( . | 0 1 ) =" in report.render()


def test_tokens_claims_are_refuted() -> None:
    text = step("rejection", IID.format(1), "tokens")
    report = prove(text)
    assert report.verdict == REFUTED
    assert "with the same noise tried commits" in report.render()


def test_the_example_is_refuted() -> None:
    report = smt_report("examples/forgets_the_residual.dec", 3, {"gamma": 1})
    assert report.verdict == REFUTED
    model = report.obligations[0].model
    assert model is not None
    p, q = model.rows["target", (0, 1)], model.rows["drafter", (0, 1)]
    refused = sum((max(Fraction(0), b - a) for a, b in zip(p, q, strict=True)), Fraction(0))
    for v in range(3):  # by hand: min(p, q), and p again after a refusal
        assert model.ours.get((v,), 0) == min(p[v], q[v]) + refused * p[v]


def test_a_rule_in_all_its_uses() -> None:
    report = prove_rule("match")
    assert report.verdict == PROVED and len(report.obligations) == 5, report.render()
    assert report.claim.endswith("in tokens")


@pytest.mark.nightly
def test_rejection_in_all_its_uses() -> None:
    report = smt_report("rejection", seconds=240)
    assert report.verdict == PROVED, report.render()


def test_a_rule_of_ones_own() -> None:
    report = prove_rule("forgets", WRONG["the residual is forgotten"][0])
    assert report.verdict == REFUTED


def test_what_is_out_of_reach_is_undecided() -> None:
    report = smt_report("typical_longest")
    assert report.verdict == UNDECIDED and "entropy" in report.obligations[0].reason
    assert prove("eesd").obligations[0].reason == "eesd has a state: its steps differ"
    assert smt_report("agreed").verdict == UNDECIDED


OTHERS = {
    "carries values": """
    n = 0
    while not done:
        n += 1
        x ~ target(ctx)
        commit x
""",
    "reads the context itself": """
    while not done:
        if ctx.length > 3:
            x ~ drafter(ctx)
            commit x
        else:
            y ~ target(ctx)
            commit y
""",
    "does something outside": """
    y ~ target(ctx)
    commit y
    while not done:
        x ~ target(ctx)
        commit x
""",
    "claim `in tokens`": """
    while not done:
        x ~ target(ctx) as output
        commit x
""",
}


@pytest.mark.parametrize("why", OTHERS)
def test_one_step_does_not_speak_for_all(why: str) -> None:
    head = "algorithm other(target: causal, drafter: causal):\n    refines autoregressive(target) in distribution\n"
    report = prove(head + OTHERS[why])
    assert report.verdict == UNDECIDED
    assert why in report.obligations[0].reason


def test_time_is_kept() -> None:
    report = prove(step("rejection", IID.format(2)), vocab=4, seconds=0.2)
    assert report.verdict == UNDECIDED and "not decided in 0.2 s" in report.obligations[0].reason
    assert report.seconds < 6


def test_without_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "z3":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(DecError, match="solver z3") as error:
        prove("speculative")
    assert error.value.hint.endswith("[smt]'")


def test_nothing_to_prove() -> None:
    with pytest.raises(DecError, match="claims no"):
        prove("autoregressive")
    with pytest.raises(DecError, match="no rule called"):
        prove_rule("nothing_like_it")


# -- the algebra below
def test_polynomials() -> None:
    x, y = Poly.symbol(0), Poly.symbol(1)
    assert (x + y) * (x - y) == x * x - y * y
    assert (x * x - y * y).divided(x + y) == x - y
    assert (x * x + y).divided(x + y) is None
    assert (x - x).constant == 0 and ONE.constant == 1
    assert (x.scaled(Fraction(2, 3)) + y.scaled(Fraction(4, 3))).primitive == x + y + y
    assert (x * x * y + x * y).monomial_factor() == ((1, 1), (0, 1))
    assert (x * y + ONE).substituted({0: y}) == y * y + ONE


def test_facts() -> None:
    field = Field(3)
    p, q = field.row("p", (0,)), field.row("q", (0,))
    assert sum(p[1:], p[0]) == ONE
    r = field.relu(p[0] - q[0])
    assert field.never_negative(p[2]) and not field.never_negative(p[0] - q[0])
    assert field.possible([(p[v] - q[v], True) for v in range(3)]) is False  # both sum to 1
    assert field.possible([(p[0] - q[0], True), (p[1] - q[1], True)]) is True
    assert field.zero(r * (r - p[0] + q[0]), ()) is True
    assert field.zero(r, ((q[0] - p[0], False),)) is True
    assert field.relu(q[0] - p[0]) == r + q[0] - p[0]
    point = field.zero(r, ())
    assert not isinstance(point, bool) and point is not None and point.value(r) > 0


def test_reports_add_up() -> None:
    assert SmtReport("empty", "").verdict == UNDECIDED
