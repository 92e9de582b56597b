"""Rules as kernels against the torch backend's walk: the same path, token, statistics and events, over random trees."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from walked_rules import Case, Host, captured_values, case, module_of, on_host, walk_of

from decgraph.backends.triton.rules.compile import CompiledRule, rule_of
from decgraph.backends.triton.rules.walk import called
from decgraph.errors import DecError
from decgraph.ir.values import Module

ODD = {
    # a residual against the smaller of two, an entropy that decides, an index of the output stream
    "half(tau)": """rule half(p: dist, children: draws, tau: float):
    h = entropy(p)
    first = p
    for x in children:
        if p[x] > min(tau, 0.9 * exp(-h)) and bernoulli(min(1, p[x] / x.law[x])):
            accept x
        p = normalize(relu(min(p, first * 0.75) - x.law * 0.5))
    y ~ p
    emit y
""",
    # accepts and emits at once, by a draw's own fields; what is left over is the best token
    "greedily(tau)": """rule greedily(p: dist, children: draws, tau: float):
    for x in children:
        if x.prob > tau or x == argmax(p):
            accept x
            emit x
    emit argmax(p)
""",
    # the children as a vector
    "likeliest": """rule likeliest(p: dist, children: draws):
    if len(children) > 0:
        best = argmax(children, by = p[children])
        if p[best] > 0.1:
            accept best
    y ~ p as output
    emit y
""",
    # the law of what was drawn here, and a draw that is one of two
    "twice": """rule twice(p: dist, children: draws):
    y ~ p
    q = y.law
    for x in children:
        if x == y or q[x] >= 0.45:
            accept x
    z ~ normalize(p * p)
    if bernoulli(0.5):
        z = y
    emit z
""",
    # the last child, and a sum over the vocabulary
    "last": """rule last(p: dist, children: draws):
    n = len(children)
    if n > 1 and sum(p * p) < 0.9:
        accept children[n - 1]
    y ~ p as output
    emit y
""",
    # numbers and tokens that change places as they go around
    "swaps": """rule swaps(p: dist, children: draws):
    a = 1
    b = 0
    best = argmax(p)
    last = argmax(p * p)
    for x in children:
        c = a
        a = b
        b = c + 1
        if p[last] < p[x] and a > 0:
            accept x
        last = best
        best = x.token
    y ~ p as output
    emit y
""",
    # ties: all typical, so the deepest node, and of equal ones the first
    "deepest": """rule deepest(t: tree, p: dist[t.nodes]):
    ok = t.depth >= 0
    n = argmax(t.nodes where down(t, ok, all), by = [t.depth])
    accept n
    emit argmax(p[n])
""",
    # folds up and down, over sums and the best below
    "heaviest(tau)": """rule heaviest(t: tree, p: dist[t.nodes], tau: float):
    above = p[t.parent]
    weight = up(t, above[t.token], max)
    total = down(t, weight, sum)
    n = argmax(t.drafted where above[t.token] > 0.05, by = [total, -t.depth])
    accept n
    emit argmax(p[n])
""",
    # leaves, vectors of children with their laws, sizes, an early end
    "leafy": """rule leafy(t: tree, p: dist[t.nodes]):
    above = p[t.parent]
    n = argmax(t.leaves, by = [above[t.token], t.depth])
    accept n
    emit argmax(p[n])
""",
    "vector": """rule vector(p: dist, children: draws):
    y ~ p as output
    if any(children == y) and y in children and max(p[children]) > 0.01:
        best = argmax(children, by = [children == y])
        accept best
    emit y
""",
    "laws": """rule laws(p: dist, children: draws):
    if len(children) > 0:
        r = p[children] / children.law[children]
        best = argmax(children, by = r)
        if sum(p[children]) > 0.1 and min(r) < 4:
            accept best
    y ~ p
    emit y
""",
    "sized": """rule sized(t: tree, p: dist[t.nodes]):
    n = argmax(t.drafted where t.depth <= t.height, by = [t.prob])
    if t.size > 2:
        accept n
        emit argmax(p[n])
    emit argmax(p[0])
""",
    "early": """rule early(p: dist, children: draws):
    if entropy(p) > 1.2:
        y ~ p
        emit y
    m = max(p)
    for x in children:
        if p[x] >= m * 0.8:
            accept x
    emit argmax(p)
""",
}
SHIPPED = ("rejection", "match", "typical_longest", "typical_longest(0.3, 0.8)")


def dead_after_two(generated: tuple[int, ...]) -> list[int]:
    """Nothing may follow the token 2, or follow 4 at any distance: rows that are errors where a walk comes to them."""
    return [] if 2 in generated[-1:] or 4 in generated else [0, 1, 2, 3, 4, 5, 6]


FORMS: dict[str, dict[str, Any]] = {
    "sampled": {},
    "greedy": {"temperature": 0},
    "warm": {"temperature": 0.6, "top_p": 0.8},
    "float32": {"dtype": torch.float32},
    "parts": {"part": True},
    "points": {"how": "points"},
    "without": {"how": "without", "shape": (4, 2)},
    "three": {"size": 3},
    "root": {"shape": ()},
    "wide": {"size": 133, "shape": (5, 1, 1, 1)},
    "chain": {"shape": (1, 1, 1, 1, 1)},
    "dead": {"allow": dead_after_two},
}
ALL = [(rule, form) for rule in (*SHIPPED, *ODD) for form in FORMS]
QUICK = [(rule, form) for rule, form in ALL if rule in SHIPPED[:3] or form in ("sampled", "greedy")]


@cache
def compiled(rule: str, whole: bool = True) -> tuple[Module, CompiledRule]:
    """A rule's program and its kernels; `whole`: knowing what is captured."""
    module = module_of(rule, ODD.get(rule, ""))
    made = rule_of(walk_of(module), module.entry.body if whole else None)
    assert made.supported, made.unsupported
    return module, made


def on_kernels(module: Module, rule: CompiledRule, c: Case, events: list[Any], turn: int = 5) -> tuple[Any, Any]:
    """The kernels' walk, as a driver calls it: the path and the machine."""
    m = c.machine(module, events)
    given = captured_values(Host(m, module, {"turn": turn, "tau": 0.25, "turns": 3}), rule.captured)
    return called(rule, m, c.tree, c.evidence, *given), m


def outcome(walk: Any) -> Any:
    """What a walk gave, as plain data, or the error that it raised."""
    events: list[Any] = []
    try:
        path, m = walk(events)
    except (DecError, LookupError, ValueError) as error:
        what = "outside the part" if isinstance(error, LookupError) else str(error)
        return f"{type(error).__name__}: {what}"
    emitted = path.draws[-1] if path.emitted is not None else None
    prob = None if emitted is None else round(float(emitted.prob()), 6)
    return (path.tokens, path.node, path.depth, path.emitted, path.uids, prob, m.tally.tested, m.tally.accepted, events)


def compare(rule: str, form: str, seeds: range) -> set[str]:
    """Hold the kernels against torch's walk; what there was."""
    module, made = compiled(rule)
    seen = set()
    for seed in seeds:
        c = case(seed, **FORMS[form])
        want = outcome(lambda events, c=c: on_host(module, c, events))
        assert outcome(lambda events, c=c: on_kernels(module, made, c, events)) == want, (rule, form, seed)
        seen.add(str(want))
    return seen


@pytest.mark.quick(first=1, each="rule")
@pytest.mark.parametrize(("rule", "form"), QUICK)
def test_kernels_walk_as_torch_does(rule: str, form: str) -> None:
    seen = compare(rule, form, range(5) if rule == "rejection" and form in ("without", "dead") else range(1))
    if (rule, form) == ("rejection", "dead"):
        assert 1 <= sum("leave no token" in s for s in seen) < len(seen)


@pytest.mark.nightly
@pytest.mark.parametrize(("rule", "form"), ALL)
def test_kernels_walk_as_torch_does_on_more_trees(rule: str, form: str) -> None:
    assert len(compare(rule, form, range(1, 9))) > (1 if form not in ("parts", "root") else 0)


@pytest.mark.parametrize("rule", ["rejection", "match"])
def test_captured_constants_and_noises_may_be_unknown(rule: str) -> None:
    module, made = compiled(rule, whole=False)
    assert len(made.captured) > len(compiled(rule)[1].captured) or rule == "match"
    c = case(11)
    assert outcome(lambda events: on_kernels(module, made, c, events)) == outcome(lambda events: on_host(module, c, events))


def test_loop_counters_outside_are_part_of_the_keys() -> None:
    module, made = compiled("rejection")
    seen = set()
    for turn in range(4):
        c = case(3, shape=(2,))
        want = outcome(lambda events, c=c, turn=turn: on_host(module, c, events, turn))
        assert outcome(lambda events, c=c, turn=turn: on_kernels(module, made, c, events, turn)) == want
        seen.add(str(want))
    assert len(seen) > 1


def test_a_sub_run_has_its_callers_site_and_counters() -> None:
    for rule in ("rejection", "match"):
        module, made = compiled(rule)
        seen = set()
        for counters in ((), (4,), (4, 2**32 - 7)):

            def below(walk: Any, counters: Any = counters, module: Any = module) -> Any:
                c = case(5, shape=(2, 1))
                old = Case.machine

                def machine(self: Case, *args: Any) -> Any:
                    m = old(self, *args)
                    m.site_prefix, m.counter_prefix = ("outer.3:", counters) if counters else ("", ())
                    return m

                Case.machine = machine  # type: ignore[method-assign]
                try:
                    return outcome(lambda events: walk(c, events))
                finally:
                    Case.machine = old  # type: ignore[method-assign]

            want = below(lambda c, events, module=module: on_host(module, c, events))
            assert below(lambda c, events, module=module, made=made: on_kernels(module, made, c, events)) == want
            seen.add(str(want))
        assert len(seen) > 1


def test_a_coin_of_nothing_and_a_draw_from_nothing_are_errors() -> None:
    odd = """rule odd(p: dist, children: draws):
    for x in children:
        if bernoulli((p[x] - p[x]) / (p[x] - p[x])):
            accept x
    y ~ p
    emit y
"""
    module = module_of("odd", odd)
    made = rule_of(walk_of(module), module.entry.body)
    found = outcome(lambda events: on_kernels(module, made, case(1), events))
    assert found == outcome(lambda events: on_host(module, case(1), events))
    assert "0 / 0" in found
    none = "rule none(p: dist, children: draws):\n    y ~ normalize(p * 0)\n    emit y\n"
    module = module_of("none", none)
    made = rule_of(walk_of(module), module.entry.body)
    found = outcome(lambda events: on_kernels(module, made, case(1), events))
    assert found == outcome(lambda events: on_host(module, case(1), events))
    assert "without mass" in found


def test_what_is_no_kernel_says_why_and_where() -> None:
    text = """rule ranked(p: dist, children: draws):
    q = topk(p, 2)
    for x in children:
        if x == q[0]:
            accept x
    emit argmax(p)
"""
    module = module_of("ranked", text)
    made = rule_of(walk_of(module), module.entry.body)
    assert not made.supported
    assert "topk" in str(made.unsupported)
    assert "walks.dec:2" in str(made.unsupported)
    with pytest.raises(DecError, match="cannot be a kernel"):
        _ = made.source


def test_source_is_readable_and_marked() -> None:
    source = compiled("rejection")[1].source
    assert "# walks.dec:5" in source
    assert "acc_node" in source and "acc_token" not in source, "only the child itself is read after the loop"
    assert all(len(line) <= 160 for line in source.splitlines())


@pytest.mark.parametrize("form", ["sampled", "dead"])
@pytest.mark.parametrize("rule", SHIPPED)
def test_memory_that_nobody_wrote_is_not_reckoned_with(rule: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = torch.empty

    def littered(*shape: Any, **how: Any) -> torch.Tensor:
        made = empty(*shape, **how)
        return made.fill_(-1e30 if made.is_floating_point() else 1)

    monkeypatch.setattr(torch, "empty", littered)
    compare(rule, form, range(2))
