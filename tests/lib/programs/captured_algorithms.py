"""Algorithms written as Python functions; tests/dsl/test_capture.py compares them with the .dec texts of stdlib/."""
# ruff: noqa: F403, F405, UP037

from decgraph.api import algorithm
from decgraph.dsl.capture import helper, rule
from decgraph.dsl.prelude import *


@algorithm
def autoregressive_py(target: Causal) -> None:
    """One token at a time."""
    while not done():
        x = sample(target(ctx), as_=output)
        commit(x)


@algorithm
def speculative(target: Causal, drafter: Causal, gamma: Annotated[int, 1, 32] = 4) -> None:
    """Speculative decoding."""
    refines(autoregressive(target), in_="distribution")

    while not done():
        with draft() as t:
            for _ in repeat(gamma):
                t.grow(sample(drafter(t.leaves)))
        verify(t, by=rejection, against=target(t))
        commit(t.accepted)


@algorithm
def tli(target: Causal, drafter: Annotated[Causal, "W"], gamma: Annotated[int, 1, 32] = 4) -> None:
    refines(autoregressive(target), in_="distribution")
    small: Model = drafter.speaking(target)
    while not done():
        with draft() as t:
            for _ in repeat(gamma):
                x = sample(small(t.leaves))
                t.grow(x)
        verify(t, by=rejection, against=target(t))
        commit(t.accepted)


@algorithm
def eagle2(
    target: Causal,
    head: Annotated[Features, "target"],
    depth: Annotated[int, 1, 12] = 6,
    k: Annotated[int, 1, 32] = 10,
    budget: Annotated[int, 1, 256] = 59,
) -> None:
    refines(autoregressive(target), in_="tokens")
    while not done():
        with draft() as t:
            for _ in repeat(depth):
                q = head(t.frontier, given=target.memory(ctx.parent))
                t.grow(topk(q.raw, k))
                t.frontier = top(t.new, k, by=t.logprob)
            prune(t, to=top(t.drafted, budget, by=t.logprob))
        verify(t, by=match, against=target(t))
        commit(t.accepted)


@algorithm
def token_recycling(target: Causal, shape: Topology = "recycling_80", k: Annotated[int, 1, 16] = 8) -> None:
    refines(autoregressive(target), in_="tokens")
    next: State[PerSession[Annotated[Token, "vocab", "k"]]] = 0
    while not done():
        with draft() as t:
            for level in shape:
                t.grow(point(next[t.token[t.frontier]][level.parent, level.rank]), at=t.frontier[level.parent])
        p = target(t)
        verify(t, by=match, against=p)
        next[t.token[t.nodes]] = topk(p.raw, k).token
        commit(t.accepted)


@algorithm
def fast_dllm(
    model: Masked, length: Annotated[int, 1, 1024] = 256, block: Annotated[int, 1, 256] = 32, tau: Prob = 0.9
) -> None:
    c = canvas(length)
    cache(model, by=dual)
    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c, at=b)
            x = sample(p)
            unmask(c[b], where=sure(p.raw[x], tau), with_=x)
    commit(c)


@rule
def typical(t: Tree, p: Annotated[Dist, "t.nodes"], epsilon: Prob = 0.09, delta: Prob = 0.3) -> None:
    """Medusa's rule, as a rule of our own."""
    above = p[t.parent]
    ok = above[t.token] > min(epsilon, delta * exp(-entropy(above)))
    live = down(t, ok, all)
    like = down(t, log(above[t.token]), sum)
    n = argmax(where(t.nodes, live), by=[t.depth, like])
    accept(n)
    emit(argmax(p[n]))


@algorithm
def medusa(target: Annotated[Causal, "heads"], shape: Topology = "medusa_63", epsilon: Prob = 0.09, delta: Prob = 0.3) -> None:
    commit(argmax(target(ctx)))
    while not done():
        h = target.heads(ctx.parent)
        with draft() as t:
            for level in shape:
                t.grow(topk(h[level.index].raw, shape.width)[level.rank], at=t.frontier[level.parent])
        verify(t, by=typical(epsilon, delta), against=target(t))
        commit(t.accepted)


@algorithm
def kangaroo(
    target: Causal,
    adapter: Annotated[Layers, "target"],
    exit: Annotated[int, 1, 8] = 2,
    gamma: Annotated[int, 1, 16] = 6,
    eta: Prob = 0.6,
) -> None:
    refines(autoregressive(target), in_="tokens")
    small: Model = target.head(adapter(target.upto(exit)))
    while not done():
        with draft() as t:
            for _ in repeat(gamma):
                q = small(t.leaves)
                t.grow(topk(q.raw, 1))
                if all(max(q.raw) < eta):
                    break
        verify(t, by=match, against=target(t))
        commit(t.accepted)


@helper
def surest(s: Prob, tau: Prob) -> Bool:
    return s >= tau or first_max(s)


@algorithm
def with_helper(model: Masked, length: Annotated[int, 1, 64] = 8, tau: Prob = 0.9) -> None:
    c = canvas(length)
    while any(c.masked):
        p = model(c)
        x = sample(p)
        unmask(c, where=surest(p.raw[x], tau), with_=x)
    commit(c)


@algorithm
def reward_guided(
    target: Causal, drafter: Causal, budget: Annotated[int, 1, 64] = 8, steps: Annotated[int, 1, 100] = 10
) -> None:
    for _ in repeat(steps, while_=not done()):
        s = run(autoregressive(drafter), from_=ctx, until=completes("\n"), at_most=budget)
        if s.length > 3:
            s = run(autoregressive(target), until=completes("\n"), at_most=budget)
        commit(s)


@algorithm
def grown(target: Causal, k: Annotated[int, 1, 4] = 2) -> None:
    past: State[PerSession[Annotated[Suffixes, 64]]] = fresh
    count_: State[int] = 1
    while not done():
        with draft() as t:
            new = t.grow(topk(target(root).raw, k), u=0.5)
            for _ in range(1, k):
                t.grow(point(t.token[new[0]]), at=new[0])
            for leaf in t.leaves:
                t.grow(chain(past.path(leaf, at_least=2, at_most=3)), at=leaf)
        verify(t, by=match, against=target(t))
        count_ += t.accepted.depth
        commit(t.accepted)


@helper
def product(d: Dist, a: Dist, r: Prob) -> Dist:
    return softmax(r * log(d) + (1 - r) * log(a))


@algorithm
def apd(model: Masked, verifier: Causal, r: Prob = 0.5, look: Annotated[int, 1, 256] = 64) -> None:
    while not done():
        w = canvas(look)
        g: Annotated[Noise, "w", "vocab"] = fresh
        d = model(w)
        x = sample(d, using=g)
        with draft() as t:
            t.grow(chain(x))
        y = sample(product(d, verifier(t)[: len(w)], r), using=g)
        n = 1 + leading(x[1:] == y[1:])
        commit(x[:n])


@algorithm
def freedave(
    model: Masked, length: Annotated[int, 1, 1024] = 256, block: Annotated[int, 1, 256] = 32, d: Annotated[int, 1, 16] = 4
) -> None:
    refines(static_masked(model, length, block), in_="tokens")
    c = canvas(length)
    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c)
            x = sample(p, as_=output(count(c.decided)))
            order = sort(where(b, c.masked[b]), by=-p.raw[x])
            with draft(c) as v:
                for j in range(0, min(d, len(order))):
                    v.grow(edit(order[j], x[order[j]]))
            q = model(v)
            y = sample(q, as_=output(count(v.decided)))
            then = [one(q[n], y[n], where(b, v.masked[n][b])) if any(v.masked[n][b]) else None for n in v.nodes]
            verify(v, by=agreed, against=then)
            c = v.accepted
    commit(c)


@algorithm
def tetris(target: Causal, drafter: Causal, gamma: Annotated[int, 1, 16] = 6, capacity: Annotated[int, 1, 4096] = 256) -> None:
    refines(autoregressive(target), in_="tokens")
    while not done():
        with draft() as t:
            for _ in repeat(gamma):
                t.grow(topk(drafter(t.leaves).raw, 1))
        with across_batch():
            keep = top(t.drafted, capacity, by=t.logprob)
        t.prune(to=keep)
        verify(t, by=match, against=target(t))
        commit(t.accepted)


@algorithm
def pearl(target: Causal, drafter: Causal, gamma: Annotated[int, 1, 32] = 4) -> None:
    refines(autoregressive(target), in_="distribution")
    t: State[PerSequence[Annotated[Tree, "2 * gamma"]]] = empty
    while not done():
        known = t.nodes
        with draft() as t:
            for _ in repeat(gamma):
                t.grow(sample(drafter(t.leaves)))
        verify(t, by=rejection, against=target(known))
        commit(t.accepted)


@algorithm
def cntp(
    target: Causal,
    lo: Float = 0.01,
    hi: Float = 1.5,
    most: Annotated[int, 1, 64] = 40,
    marks: Set = [],
    reach: Annotated[int, 1, 256] = 128,
) -> None:
    while not done():
        p = target(ctx)
        n = 1 + int((most - 1) * clamp((entropy(p) - lo) / (hi - lo), 0, 1))
        if n == 1:
            commit(sample(p))
        else:
            s: Listing[Path] = fresh
            ppl: Listing[Value] = fresh
            for i in lanes(n):
                s[i] = run(
                    autoregressive(target),
                    from_=ctx,
                    until=any(path.token in marks) or ended(path),  # type: ignore
                    at_most=reach,
                )
                ppl[i] = exp(-mean(log(s[i].prob)))
            commit(s[argmin(ppl)])


@algorithm
def noted(target: Causal, drafter: Causal, gamma: Annotated[int, 1, 32] = 4) -> None:
    refines(autoregressive(target), in_="distribution")
    while not done():
        with draft() as t:
            for _ in repeat(gamma):
                q = drafter(t.leaves)
                note(colon=max(q.raw[":"]))
                t.grow(sample(q))
        verify(t, by=rejection, against=target(t))
        if t.accepted.token[0] in ["the", " the"]:
            note(taken=len(t.accepted))
        commit(t.accepted)
