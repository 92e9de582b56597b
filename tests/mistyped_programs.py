"""Programs that read and mean nothing, by what is wrong with them. tests/dsl/test_mistyped.py says what is said of each."""

from __future__ import annotations

MISTYPED = {
    "draw_from_model": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        x ~ target
        commit x
""",
    "draw_from_number": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        x ~ k
        commit x
""",
    "commit_a_distribution": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        commit target(ctx)
""",
    "unknown_name": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        x ~ target(ctx)
        commit y
""",
    "unknown_function": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        commit armax(target(ctx))
""",
    "unknown_type": """\
algorithm a(target: casual):
    commit argmax(target(ctx))
""",
    "no_type": """\
algorithm a(target):
    commit argmax(target(ctx))
""",
    "default_out_of_range": """\
algorithm a(target: causal, k: int in 1..8 = 9):
    commit argmax(target(ctx))
""",
    "empty_range": """\
algorithm a(target: causal, k: int in 8..1 = 4):
    commit argmax(target(ctx))
""",
    "probability_above_one": """\
algorithm a(target: causal, tau: prob = 1.5):
    commit argmax(target(ctx))
""",
    "grow_a_token": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            grow argmax(drafter(root))
        verify t by match against target(t)
        commit t.accepted
""",
    "grow_a_distribution": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            grow drafter(root)
        verify t by match against target(t)
        commit t.accepted
""",
    "grow_with_too_many_values": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            t.race[root] = 0.0
            xs = race(drafter(t.frontier), under = t.race[t.frontier])
            grow top(xs, k, by = xs.race) with race = xs.race
        verify t by rejection against target(t)
        commit t.accepted
""",
    "grow_outside": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        x ~ target(ctx)
        grow x
""",
    "node_of_another_tree": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft u:
            grow topk(target(root), 1)
        draft t:
            grow topk(target(root), 1) at u.new
        verify t by match against target(t)
        commit t.accepted
""",
    "node_after_prune": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            new = grow topk(target(root).raw, 4)
            prune t to top(t.drafted, 2, by = t.logprob)
            grow topk(target(new).raw, 2)
        verify t by match against target(t)
        commit t.accepted
""",
    "evidence_of_one_node": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            grow topk(target(root), 1)
        verify t by match against target(ctx)
        commit t.accepted
""",
    "other_vocabulary_draft": """\
algorithm a(target: causal, small: causal[W], k: int in 1..8 = 4):
    while not done:
        draft t:
            x ~ small(t.leaves)
            grow x
        verify t by rejection against target(t)
        commit t.accepted
""",
    "other_vocabulary_difference": """\
algorithm a(target: causal, small: causal[W], k: int in 1..8 = 4):
    while not done:
        x ~ normalize(relu(target(ctx) - small(ctx)))
        commit x
""",
    "other_vocabulary_lookup": """\
algorithm a(target: causal, small: causal[W], k: int in 1..8 = 4):
    while not done:
        x ~ small(ctx)
        if target(ctx)[x] > 0.5:
            commit argmax(target(ctx))
        commit argmax(target(ctx))
""",
    "other_vocabulary_compare": """\
algorithm a(target: causal, small: causal[W], k: int in 1..8 = 4):
    while not done:
        x ~ small(ctx)
        y ~ target(ctx)
        commit y if x == y else argmax(target(ctx))
""",
    "features_without_given": """\
algorithm a(target: causal, head: features(target)):
    while not done:
        x ~ head(ctx)
        commit x
""",
    "given_is_no_memory": """\
algorithm a(target: causal, head: features(target)):
    while not done:
        x ~ head(ctx, given = ctx.parent)
        commit x
""",
    "features_of_nothing": """\
algorithm a(head: features(target), target: causal):
    commit argmax(target(ctx))
""",
    "heads_without_capability": """\
algorithm a(target: causal):
    h = target.heads(ctx.parent)
    commit argmax(h[0])
""",
    "masked_model_at_context": """\
algorithm a(model: masked, n: int in 1..64 = 8):
    x ~ model(ctx)
    commit x
""",
    "causal_model_on_canvas": """\
algorithm a(model: causal, n: int in 1..64 = 8):
    canvas c: n
    x ~ model(c)
    unmask c with x
    commit c
""",
    "cell_takes_a_distribution": """\
algorithm a(model: masked, n: int in 1..64 = 8):
    canvas c: n
    c[c.all] = model(c)
    commit c
""",
    "where_needs_condition": """\
algorithm a(model: masked, n: int in 1..64 = 8):
    canvas c: n
    p = model(c)
    x ~ p
    unmask c where max(p.raw) with x
    commit c
""",
    "unmask_no_canvas": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    p = target(ctx)
    x ~ p
    unmask p with x
""",
    "vector_condition": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            grow topk(drafter(t.frontier), 2)
            if t.logprob[t.new] > -1:
                grow topk(drafter(t.frontier), 2)
        verify t by match against target(t)
        commit t.accepted
""",
    "number_condition": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        if k:
            commit argmax(target(ctx))
        commit argmax(target(ctx))
""",
    "changes_type_in_loop": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    y = 1
    repeat k:
        y = target(ctx)
    commit argmax(y)
""",
    "changes_type_in_branch": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    y = 1
    if k > 2:
        y = target(ctx)
    commit argmax(target(ctx))
""",
    "defined_in_one_branch": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    if k > 2:
        y = argmax(target(ctx))
    commit y
""",
    "unknown_column": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            grow topk(drafter(root).raw, k)
            t.frontier = top(t.new, 1, by = t.score)
        verify t by match against target(t)
        commit t.accepted
""",
    "column_of_two_types": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            grow topk(drafter(root).raw, k) with u = 1
            t.u[root] = target(root)
        verify t by match against target(t)
        commit t.accepted
""",
    "unknown_attribute": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        commit argmax(target(ctx).rawer)
""",
    "unknown_method": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        commit argmax(target.tail(3)(ctx))
""",
    "accepted_before_verify": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            grow topk(target(root), 1)
        commit t.accepted
""",
    "unknown_rule": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            grow topk(target(root), 1)
        verify t by mach against target(t)
        commit t.accepted
""",
    "rule_argument": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            grow topk(target(root), 1)
        verify t by match(3) against target(t)
        commit t.accepted
""",
    "refines_nothing": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    refines autoregresive(target) in tokens
    commit argmax(target(ctx))
""",
    "refines_arguments": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    refines autoregressive(target, k) in tokens
    commit argmax(target(ctx))
""",
    "state_type": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    state n: int = 0
    while not done:
        n = target(ctx)
        commit argmax(n)
""",
    "state_start": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    state n: int = "none"
    commit argmax(target(ctx))
""",
    "no_progress": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        x ~ target(ctx)
        if k > 2:
            commit x
""",
    "never_left": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    loop:
        x = 1
""",
    "condition_never_changes": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    y = 1
    while y < 3:
        x ~ target(ctx)
    commit argmax(target(ctx))
""",
    "break_outside": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    break
    commit argmax(target(ctx))
""",
    "emit_outside": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    emit argmax(target(ctx))
""",
    "lanes_carry": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    y = 0
    lanes i in k:
        y = y + i
    commit argmax(target(ctx))
""",
    "runs_itself": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    s = run a(target, drafter) from ctx until done at most 8
    commit s
""",
    "run_of_a_rule": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    s = run match(target) from ctx until done at most 8
    commit s
""",
    "helper_calls_itself": """\
def f(x: int) -> int:
    return f(x - 1)

algorithm a(target: causal):
    y = f(3)
    commit argmax(target(ctx))
""",
    "helper_argument": """\
def f(p: dist) -> prob:
    return max(p)

algorithm a(target: causal):
    y = f(3)
    commit argmax(target(ctx))
""",
    "extern_argument": """\
extern judge(text) -> bool on host

algorithm a(target: causal):
    if judge(3):
        commit argmax(target(ctx))
    commit argmax(target(ctx))
""",
    "policy_unknown": """\
algorithm a(model: masked, n: int in 1..64 = 8):
    canvas c: n
    cache model by duel
    p = model(c)
    x ~ p
    unmask c with x
    commit c
""",
    "policy_of_causal": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    cache target by dual
    commit argmax(target(ctx))
""",
    "unknown_module": """\
from shelf import match

algorithm a(target: causal):
    commit argmax(target(ctx))
""",
    "unknown_import": """\
from rules import rejecton

algorithm a(target: causal):
    commit argmax(target(ctx))
""",
    "stream_unknown": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        x ~ target(ctx) as input
        commit x
""",
    "keyword_of_call": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        commit argmax(target(ctx, before = 3))
""",
    "too_many_arguments": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        commit argmax(target(ctx), 2, 3)
""",
    "rule_decides_nothing": """\
rule lazy(p: dist, children: draws):
    y ~ p as output

algorithm a(target: causal):
    while not done:
        draft t:
            grow topk(target(root), 1)
        verify t by lazy against target(t)
        commit t.accepted
""",
    "rule_may_stop": """\
rule shy(p: dist, children: draws):
    for x in children:
        if p[x] > 0.5:
            accept x

algorithm a(target: causal):
    while not done:
        draft t:
            grow topk(target(root), 1)
        verify t by shy against target(t)
        commit t.accepted
""",
    "may_decide_nothing": """\
algorithm a(model: masked, n: int in 1..64 = 8):
    canvas c: n
    while any(c.masked):
        p = model(c)
        x ~ p
        unmask c where p.raw[x] > 0.9 with x
    commit c
""",
    "two_mistakes": """\
algorithm a(target: causal):
    commit target

algorithm b(target: causal):
    commit argmx(target(ctx))
""",
    "sort_of_draws": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            xs = sample(drafter(root), 2)
            grow sort(xs, by = xs.prob)
        verify t by rejection against target(t)
        commit t.accepted
""",
    "grow_after_the_draft": """\
algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            grow topk(target(root), 1)
        grow topk(target(t.leaves), 1)
        verify t by match against target(t)
        commit t.accepted
""",
    "helper_grows": """\
def more(t: tree, x: draws) -> tree:
    grow x
    return t

algorithm a(target: causal, drafter: causal, k: int in 1..8 = 4):
    while not done:
        draft t:
            x = topk(target(root), 1)
            u = more(t, x)
        verify t by match against target(t)
        commit t.accepted
""",
    "beta_of_one": """\
algorithm a(target: causal):
    while not done:
        theta ~ beta(3)
        commit argmax(target(ctx))
""",
}
