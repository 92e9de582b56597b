"""The examples of the design page, word for word."""

from __future__ import annotations

DESIGN = {
    "autoregressive": """
algorithm autoregressive(target: causal):
    while not done:
        x ~ target(ctx) as output
        commit x
""",
    "speculative": """
rule rejection(p: dist, children: draws):
    for x in children:
        if bernoulli(p[x] / x.law[x]):
            accept x
        p = normalize(relu(p - x.law))
    y ~ p
    emit y

algorithm speculative(target: causal, drafter: causal, gamma: int in 1..32 = 4):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by rejection against target(t)
        commit t.accepted
""",
    "eagle2": """
rule match(p: dist, children: draws):
    y ~ p as output
    for x in children:
        if x == y:
            accept x
    emit y

algorithm eagle2(target: causal, head: features(target), depth: int in 1..12 = 6, k: int in 1..32 = 10,
                 budget: int in 1..256 = 59):
    refines autoregressive(target) in tokens
    while not done:
        draft t:
            repeat depth:
                q = head(t.frontier, given = target.memory(ctx.parent))
                grow topk(q.raw, k)                      # deterministic: one-hot, so pruning is safe
                t.frontier = top(t.new, k, by = t.logprob)
            prune t to top(t.drafted, budget, by = t.logprob)
        verify t by match against target(t)
        commit t.accepted
""",
    "token_recycling": """
algorithm token_recycling(target: causal, shape: topology = "recycling_80", k: int in 1..16 = 8):
    refines autoregressive(target) in tokens
    state next: token[vocab, k] per session = 0
    while not done:
        draft t:
            for level in shape:
                grow point(next[t.token[t.frontier]][level.parent, level.rank]) at t.frontier[level.parent]
        p = target(t)
        verify t by match against p
        next[t.token[t.nodes]] = topk(p.raw, k).token    # colliding rows: last node in growth order wins
        commit t.accepted
""",
    "fast_dllm": """
algorithm fast_dllm(model: masked, length: int in 1..1024 = 256, block: int in 1..256 = 32, tau: prob = 0.9):
    canvas c: length
    cache model by dual
    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c, at = b)
            x ~ p
            unmask c[b] where sure(p.raw[x], tau) with x   # >= tau, or the first of the surest: progress is certain
    commit c

policy dual(b: span):
    \"\"\"Fast-dLLM's dual cache: everything once when a block starts, then the block alone.\"\"\"
    on enter b:  recompute all
    otherwise:   recompute b, reuse the rest
""",
}
