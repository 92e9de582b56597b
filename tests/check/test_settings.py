"""Claims at a setting: `when` and a condition over parameters. Decided and used where it is true, and nowhere else."""

from __future__ import annotations

import re

import numpy as np
import pytest

import decgraph
from decgraph.bench.contenders import greedy_is_exact
from decgraph.check import check_algorithm
from decgraph.check.report import Report
from decgraph.dsl.lower import load_text
from decgraph.dsl.prelude import *  # noqa: F403
from decgraph.errors import DecError
from decgraph.ir.places import _how
from decgraph.ir.settings import holds, holds_for, narrowed, of_request, quantities, settings
from decgraph.ir.text import parse_module, print_module
from decgraph.passes.batching import distribution_only
from decgraph.runtime.tune.space import guarantee, safe

BIASED = """algorithm biased(target: causal, delta: float in 0..4 = 2.0, k: int in 1..64 = 2, calm: bool = no):
    refines autoregressive(target) in tokens when {when}
    while not done:
        p = target(ctx)
        x ~ {drawn} as output
        commit x
"""
RAISED = "warp(p.logits + delta * onehot(argmax(p)), at = ctx)"


def raised(sound: str) -> str:
    """The target's distribution where a condition is true, and another one elsewhere."""
    return f"warp(p.logits + (0.0 if {sound} else 1.0) * onehot(argmax(p)), at = ctx)"


DRAFTED = """algorithm drafted(target: causal, drafter: causal, gamma: int in 0..4 = 2, bound: prob = 0.5):
    refines autoregressive(target) in {mode} when {when}
    while not done:
        draft t:
            repeat gamma:
                q = drafter(t.leaves)
                x ~ q
                grow x
        verify t by {rule} against target(t)
        commit t.accepted
"""
NEAR = """rule near(t: tree, p: dist[t.nodes], bound: prob):
    y ~ p as output
    n = argmax(t.nodes where down(t, y[t.parent] == t.token or p[t.parent][t.token] > bound, all), by = [t.depth])
    accept n
    emit y[n]

"""


def biased(when: str, drawn: str = RAISED) -> str:
    return BIASED.format(when=when, drawn=drawn)


def check(text: str, **options: object) -> Report:
    return check_algorithm(decgraph.parse(text), **{"models": 3, "derive": False, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("when", ["delta == 0", "not delta > 0", "delta <= 0 and k < 9", "delta * k == 0 and calm", "greedy"])
def test_what_holds_at_a_setting_holds(when: str) -> None:
    found = check(biased(when))
    assert (found.verdict, found.claims) == ("holds", [f"refines autoregressive(target) in tokens when {when}"])


@pytest.mark.parametrize(
    ("when", "drawn"),
    [
        ("delta <= 1", RAISED),
        ("delta == 0 or calm", RAISED),
        ("calm", raised("calm and delta < 4")),  # wrong at an end of a range
        ("delta <= 3", raised("delta < 3")),  # wrong at a constant of the condition
        ("k >= 3 and delta == 0", raised("k != 4")),
        ("k > 1", raised("k < 64")),
    ],
)
def test_what_fails_somewhere_in_a_setting_is_refuted_there(when: str, drawn: str) -> None:
    module = load_text(biased(when, drawn))
    found = check(biased(when, drawn))
    assert found.verdict == "refuted" and found.counterexample is not None
    assert holds(module.entry.claims[0].setting, found.counterexample.params)


def test_parameters_that_are_given_may_leave_nothing_to_say() -> None:
    found = check(biased("delta == 0"), params={"delta": 1.0})
    assert found.verdict == "undecided" and "nothing is said by" in found.reasons[0]
    assert check(biased("delta == 0"), params={"delta": 0.0}).verdict == "holds"


@pytest.mark.budget(14)
def test_a_branch_that_only_other_claims_reach_is_not_asked_for() -> None:
    """At the setting one side of the condition cannot run; without a condition both must have."""
    text = biased("k == 1", raised("k == 1")).replace("    while", "    keeps support of target\n    while")
    assert check(text).verdict == "holds"


@pytest.mark.budget(14)
def test_a_lossy_rule_at_its_exact_setting() -> None:
    text = NEAR + DRAFTED.format(mode="tokens", when="bound == 1", rule="near(bound)")
    assert check(text).verdict == "holds"
    assert check(text.replace("bound == 1", "bound >= 0.5")).verdict == "refuted"


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("delta == 5", "no value was found that satisfies `delta == 5`"),
        ("delta == 0 and delta > 1", "no value was found"),
        ("1 == 1", "is a constant"),
        ("delta == 0 and yes", "is a constant"),
        ("delta == limit", "not `limit`"),
        ("len(prompt) == 3", "reads no parameter"),
        ("delta >= len(prompt) * ctx.length", "`len(prompt)`, `room` and `greedy`, not `ctx.length`"),
        ("target == 3", "not `target`"),
        ("delta == 0 or greedy", "joined to a condition by `and`"),
        ("not greedy", "joined to a condition by `and`"),
        ("k", "`k` is no condition"),
        ("detla == 0", "not `detla`"),
    ],
)
def test_conditions_that_say_nothing_are_errors_with_a_place(when: str, told: str) -> None:
    with pytest.raises(DecError) as error:
        load_text(biased(when))
    said = error.value.diagnostics[0]
    assert said.code == "E411" and told in said.message and said.help
    assert said.span.start > 0 and "^" in str(error.value)


def test_the_condition_goes_through_the_text_of_the_ir() -> None:
    module = load_text(biased("delta * 2 == 1 / 2 or (k > 3 and not calm)"))
    assert print_module(parse_module(print_module(module))) == print_module(module)
    assert parse_module(print_module(module)).entry.claims[0].setting == module.entry.claims[0].setting


def test_values_that_satisfy_a_condition() -> None:
    f = load_text(biased("delta > 1 and k == 3")).entry
    found = settings(f, f.claims[0].setting)
    assert {s["k"] for s in found} == {3} and max(s["delta"] for s in found) == 4 and min(s["delta"] for s in found) < 1.05
    there = narrowed(f, f.claims[0].setting)
    assert (there.param("k").low, there.param("k").high, there.param("delta").low) == (3, 3, 1)
    assert holds_for(f.claims[0], f, {"k": 3})
    assert not holds_for(f.claims[0], f, {}) and not holds_for(f.claims[0], f, {"delta": "?"})


def test_no_one_takes_it_for_a_claim_about_all_values() -> None:
    a = decgraph.parse(biased("delta == 0"))
    assert guarantee(a.function, 0.0) == ("", frozenset()) and safe(a.function, 0.0) == []
    assert _how(a.function.claims) == ""
    assert greedy_is_exact(a, {"delta": 0}) and not greedy_is_exact(a, {})
    shared = DRAFTED.format(mode="tokens", when="gamma == 0", rule="match").replace(
        "    while", "    state n: int per session = 0\n    while", 1
    )
    assert distribution_only(load_text(shared).entry) != ""


@pytest.mark.budget(14)
def test_required_proofs_look_at_the_values() -> None:
    text = biased("delta == 0")
    with pytest.raises(DecError, match="not known to keep the target's distribution"):
        decgraph.parse(text).require("holds", {})
    with pytest.raises(DecError, match="not known to keep"):
        decgraph.parse(text).require("holds", {"delta": 0.5})
    decgraph.parse(text).require("holds", {"delta": 0})
    with pytest.raises(DecError, match="not known to keep"):
        decgraph.parse(biased("delta == 0 and greedy")).require("holds", {"delta": 0})


def test_in_python() -> None:
    @decgraph.algorithm
    def raised(target: Causal, delta: Annotated[float, 0, 4] = 2.0) -> None:  # noqa: F405
        refines(autoregressive(target), in_="tokens", when=delta == 0 and greedy())  # noqa: F405
        while not done():  # noqa: F405
            p = target(ctx)  # noqa: F405
            x = sample(warp(p.logits + delta * onehot(argmax(p)), at=ctx), as_=output)  # noqa: F405
            commit(x)  # noqa: F405

    claim = raised.claims[0]
    assert (claim.mode, claim.for_greedy, claim.setting) == ("greedy", True, ("==", ("param", "delta"), ("const", 0)))
    assert "where `delta == 0 and greedy`" in raised.explain()


def test_conditions_are_said_of_the_values_that_runs_hold() -> None:
    """A session's parameters are arrays and numbers as backends hold them, not what was written."""
    algorithms = [decgraph.load(n) for n in decgraph.stdlib.names() if " when " in decgraph.stdlib.entry(n).claim]
    for algorithm in algorithms:
        given = {p.name: p.default for p in algorithm.params.values() if p.has_default}
        held = {name: np.asarray(v) if isinstance(v, list | tuple) else v for name, v in given.items()}
        for claim in algorithm.function.claims:
            assert holds_for(claim, algorithm.function, held) == holds_for(claim, algorithm.function, given)
    assert len(algorithms) > 40


RECENT = """algorithm recent(target: causal, window: int in 1..4096 = 512):
    refines autoregressive(target) in tokens when {when}
    n = ctx.length
    m = target.memory(ctx.parent)

    while not done:
        i = range_(0, ctx.length - 1)
        m = m.only(i where i >= {first})
        x ~ target(ctx, given = m) as output
        m = target.memory(ctx, given = m)
        commit x
"""


@pytest.mark.budget(36)
@pytest.mark.parametrize(
    ("when", "first", "verdict"),
    [
        ("window >= len(prompt) + room", "ctx.length - window", "proved"),
        ("window >= len(prompt)", "ctx.length - window", "refuted"),  # what was generated evicts the prompt
        ("window >= room", "ctx.length - window", "refuted"),
        ("window >= room", "n - 1 and i >= ctx.length - window", "refuted"),
        ("len(prompt) + room - 3 <= window", "ctx.length - window", "refuted"),  # the last token reads two positions fewer
        ("window >= room", "min(n, ctx.length - window)", "refuted"),  # evicts the prompt
        ("window >= len(prompt) and window > 2 * room", "ctx.length - len(prompt) - window", "proved"),
    ],
)
def test_conditions_on_the_size_of_the_request(when: str, first: str, verdict: str) -> None:
    found = decgraph.check(RECENT.format(when=when, first=first), derive=verdict == "proved")
    assert found.verdict == verdict, found.reasons
    if verdict == "refuted":
        case = found.counterexample
        assert case is not None
        claim = load_text(RECENT.format(when=when, first=first)).entry.claims[0]
        asked = re.search(r"max_tokens = (\d+)", case.request)
        assert asked and holds(claim.setting, {**case.params, **of_request(len(case.prompt), int(asked[1]))})


def test_a_claim_about_requests_is_no_claim_where_none_is_known() -> None:
    f = load_text(RECENT.format(when="window >= len(prompt) + room", first="0")).entry
    assert quantities(f.claims[0].setting) == ("prompt", "room")
    assert not holds_for(f.claims[0], f, {"window": 4096})
    assert holds_for(f.claims[0], f, {"window": 12, **of_request(4, 8)})
    assert not holds_for(f.claims[0], f, {"window": 11, **of_request(4, 8)})
    assert [s["window"] for s in settings(f, f.claims[0].setting, of_request(4, 8))][0] == 12
    assert narrowed(f, f.claims[0].setting) == f
