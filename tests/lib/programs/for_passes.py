"""Small programs for the tests of passes: each shows one thing.

They load without the label check, since some draw twice on purpose.
"""

from __future__ import annotations

from functools import cache

from decgraph.dsl.lower import load_text
from decgraph.ir.values import Module

TEXTS = {
    "twice": """algorithm twice(target: causal):
    while not done:
        p = target(ctx)
        x ~ p
        y ~ p
        commit x
        commit y
""",
    "steps": """algorithm steps(target: causal):
    while not done:
        x ~ target(ctx) as output
        commit x
        y ~ target(ctx) as output
        commit y
""",
    "beside": """algorithm beside(target: causal, gamma: int in 1..8 = 2):
    state guess: token per sequence = 0

    while not done:
        best = argmax(target(ctx))
        draft t:
            repeat gamma:
                grow point(guess)
        verify t by match against target(t)
        guess = best
        commit t.accepted
""",
    "flags": """algorithm flags(target: causal, deep: bool = no, k: int in 1..4 = 2):
    while not done:
        n = k * 2 + 1
        if deep:
            n = n + 1
        m = 0
        for i in 0..n:
            m = m + k * 2
        x ~ target(ctx) as output
        if m > 100:
            x ~ target(ctx)
        commit x
""",
    "sure": """algorithm sure(target: causal, tau: prob = 0.5):
    while not done:
        p = target(ctx)
        x ~ p
        if p.raw[x] < tau * max(p.raw) and entropy(p) > 0.1:
            x ~ p as output
        commit x
""",
    "chain": """algorithm chain(target: causal, drafter: causal, gamma: int in 1..8 = 3):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by rejection against target(t)
        commit t.accepted
""",
    "early": """algorithm early(target: causal, gamma: int in 1..8 = 3):
    refines autoregressive(target) in tokens

    small = target.exit(1)
    while not done:
        draft t:
            repeat gamma:
                grow point(argmax(small(t.leaves, given = target.memory(ctx.parent))))
        verify t by match against target(t)
        commit t.accepted
""",
    "table": """algorithm table(target: causal, k: int in 1..4 = 2):
    refines autoregressive(target) in tokens
    state next: token[vocab, k] per session = 0

    while not done:
        draft t:
            grow point(next[ctx.token])
        p = target(t)
        verify t by match against p
        next[t.token[t.nodes]] = topk(p.raw, k).token
        commit t.accepted
""",
    "siblings": """rule last(p: dist, children: draws):
    if len(children) > 0:
        accept children[len(children) - 1]
    y ~ p as output
    emit y

algorithm siblings(target: causal):
    while not done:
        draft t:
            grow [point(0), point(0)]
            grow point(1) at t.leaves[1]
        verify t by last against target(t)
        commit t.accepted
""",
    "decided": """algorithm decided(target: causal):
    while not done:
        n = 1 + 1
        x ~ target(ctx) as output
        if n == 2:
            commit x
        else:
            commit 0
""",
    "two_places": """algorithm two_places(target: causal):
    while not done:
        p = target(ctx)
        q = target(ctx.parent)
        x ~ p as output
        if q[0] > p[0]:
            commit x
        else:
            commit argmax(q)
""",
    "two_memories": """algorithm two_memories(model: masked, length: int in 1..16 = 4):
    canvas c: length
    m = model.memory(c)
    while any(c.masked):
        p = model(c)
        fresh = first(c.all where c.masked, 1)
        q = model(c, at = fresh, given = m.only(c.all - fresh))
        x ~ q[fresh]
        unmask c[fresh] where entropy(p[fresh]) >= 0 with x
    commit c
""",
    "learns": """algorithm learns(target: causal):
    state past: suffixes(2) per sequence = prompt
    while not done:
        y = topk(target(ctx).raw, 4)
        commit y[past.matched(ctx)]
        commit y[1 + past.matched(ctx)]
""",
    "reads_in_loop": """algorithm reads_in_loop(target: causal):
    state n: int per sequence = 0
    while not done:
        y = topk(target(ctx).raw, 4)
        a = n
        total = 0
        repeat 2:
            total += n
            n = (n + a + 1) % 3
        commit y[(total + a) % 4]
""",
    "reals": """algorithm reals(target: causal, tau: prob = 0.5):
    while not done:
        x ~ target(ctx)
        if entropy(target(ctx)) > tau * 3 / 7:
            x ~ target(ctx) as output
        commit x
""",
    "decides": """algorithm decides(target: causal, k: int in 1..4 = 2):
    while not done:
        p = target(ctx)
        x ~ p
        if k > 2:
            x ~ p as output
        if entropy(p) > 1:
            x ~ p as output
        commit x
""",
}


@cache
def small(name: str) -> Module:
    """A program by name."""
    return load_text(TEXTS[name], f"{name}.dec", check_labels=False)
