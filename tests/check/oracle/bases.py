"""True programs from which the edits start: everything here is proved by the checker and holds for the oracle."""

from __future__ import annotations

from functools import cache

from oracle.language import Program
from oracle.reading import program

REJECT = """rule reject(p: dist, children: draws):
    for x in children:
        if bernoulli(p[x] / x.law[x]):
            accept x
        p = normalize(relu(p - x.law))
    y ~ p
    emit y

"""
SAME = """rule same(p: dist, children: draws):
    y ~ p as output
    for x in children:
        if x == y:
            accept x
    emit y

"""
LIKELY = """rule likely(p: dist, children: draws, c: prob = 0.2):
    for x in children:
        if p[x] > c:
            accept x
    y ~ p
    emit y

"""
LAW = "    refines autoregressive(target) in distribution\n"
TOKENS = "    refines autoregressive(target) in tokens\n"
CHAIN = """        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by reject against target(t)
        commit t.accepted
"""
TWO = "target: causal, drafter: causal"
GAMMA = "gamma: int in 1..6 = 3"
LOOP = "\n    while not done:\n"

TEXTS = {
    "chain": f"{REJECT}algorithm chain({TWO}, {GAMMA}):\n{LAW}{LOOP}{CHAIN}",
    "short_chain": f"""{REJECT}algorithm short_chain({TWO}, gamma: int in 1..4 = 2):
{LAW}{LOOP}        draft t:
            repeat gamma:
                q = drafter(t.leaves)
                x ~ q
                grow x
                break if all(max(q.raw) < 0.5)
        verify t by reject against target(t)
        commit t.accepted
""",
    "siblings": f"""{REJECT}algorithm siblings({TWO}, k: int in 1..3 = 2):
{LAW}{LOOP}        draft t:
            grow sample(drafter(t.leaves), k)
        verify t by reject against target(t)
        commit t.accepted
""",
    "others": f"""{REJECT}algorithm others({TWO}, k: int in 1..3 = 2):
{LAW}{LOOP}        draft t:
            grow distinct(drafter(t.leaves), k)
        verify t by reject against target(t)
        commit t.accepted
""",
    "two_drafters": f"""{REJECT}algorithm two_drafters(target: causal, one: causal, other: causal):
{LAW}{LOOP}        draft t:
            x ~ one(root)
            grow x
            y ~ other(root)
            grow y at root
        verify t by reject against target(t)
        commit t.accepted
""",
    "tree": f"""{REJECT}algorithm tree({TWO}, shape: topology = "2x1"):
{LAW}{LOOP}        draft t:
            for level in shape:
                grow distinct(drafter(t.frontier), level.width)
        verify t by reject against target(t)
        commit t.accepted
""",
    "points": f"""{SAME}algorithm points({TWO}, depth: int in 1..4 = 2, k: int in 1..3 = 2):
{TOKENS}{LOOP}        draft t:
            repeat depth:
                grow topk(drafter(t.frontier).raw, k)
        verify t by same against target(t)
        commit t.accepted
""",
    "points_refused": f"""{REJECT}algorithm points_refused({TWO}, k: int in 1..3 = 2):
{LAW}{LOOP}        draft t:
            grow topk(drafter(t.leaves).raw, k)
        verify t by reject against target(t)
        commit t.accepted
""",
    "matched": f"""{SAME}algorithm matched({TWO}, {GAMMA}):
{TOKENS}{LOOP}        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by same against target(t)
        commit t.accepted
""",
    "counted": f"""{REJECT}algorithm counted({TWO}, gamma: int in 1..4 = 2):
{LAW}    state n: int per sequence = 0
{LOOP}        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
                break if n > 1
        verify t by reject against target(t)
        n += 1
        commit t.accepted
""",
    "adaptive": f"""{REJECT}algorithm adaptive({TWO}, most: int in 1..4 = 3):
{LAW}    state good: int per sequence = 1
{LOOP}        draft t:
            repeat min(most, good + 1):
                x ~ drafter(t.leaves)
                grow x
        verify t by reject against target(t)
        good = t.accepted.depth
        commit t.accepted
""",
    "session_counted": f"""{REJECT}algorithm session_counted({TWO}, gamma: int in 1..3 = 2):
{LAW}    state calls: int per session = 0
{LOOP}        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
                break if calls > 2
        verify t by reject against target(t)
        calls += 1
        commit t.accepted
""",
    "mixed": f"""{REJECT}algorithm mixed(target: causal, one: causal, other: causal, w: prob = 0.5):
{LAW}{LOOP}        draft t:
            x ~ w * one(root) + (1 - w) * other(root)
            grow x at root
        verify t by reject against target(t)
        commit t.accepted
""",
    "guess": f"""{REJECT}algorithm guess(target: causal, k: int in 1..3 = 2):
{LAW}{LOOP}        draft t:
            grow sample(uniform(vocab), k) at root
        verify t by reject against target(t)
        commit t.accepted
""",
    "lookup": f"""{SAME}algorithm lookup(target: causal, k: int in 1..6 = 3):
{TOKENS}    state seen: suffixes(2) per sequence = prompt
{LOOP}        draft t:
            grow chain(seen.path(ctx, at_least = 1, at_most = k, pick = "first"))
        verify t by same against target(t)
        commit t.accepted
""",
    "table": f"""{SAME}algorithm table(target: causal, depth: int in 1..4 = 2):
{TOKENS}    state next: token[vocab, 2] per session = 0
{LOOP}        draft t:
            repeat depth:
                grow point(next[t.token[t.leaves]])
        p = target(t)
        verify t by same against p
        next[t.token[t.nodes]] = topk(p.raw, 2).token
        commit t.accepted
""",
    "heads": f"""{SAME}algorithm heads(target: causal with heads, k: int in 1..2 = 2):
{TOKENS}
    x ~ target(ctx) as output
    commit x
    while not done:
        h = target.heads(ctx.parent)
        draft t:
            for i in 0..2:
                grow topk(h[i].raw, k) at t.frontier
        verify t by same against target(t)
        commit t.accepted
""",
    "pearl": f"""{REJECT}algorithm pearl({TWO}, gamma: int in 1..3 = 2):
{LAW}    state t: tree[2 * gamma] per sequence = empty
{LOOP}        known = t.nodes
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by reject against target(known)
        commit t.accepted
""",
    "pending": f"""{SAME}algorithm pending(target: causal):
{TOKENS}
    guess = argmax(target(ctx).raw).token
    while not done:
        draft t:
            grow point(guess) at root
        p = target(t)
        verify t by same against p
        guess = argmax(p.raw)[0].token
        commit t.accepted
""",
    "long_text": f"""{REJECT}algorithm long_text({TWO}, gamma: int in 1..4 = 2, n: int in 1..8 = 4):
{LAW}{LOOP}        if ctx.length > n:
            draft t:
                repeat gamma:
                    x ~ drafter(t.leaves)
                    grow x
            verify t by reject against target(t)
            commit t.accepted
        else:
            y ~ target(ctx)
            commit y
""",
    "first_alone": f"""{REJECT}algorithm first_alone({TWO}, {GAMMA}):
{LAW}
    y ~ target(ctx)
    commit y
    while not done:
{CHAIN}""",
    "two_a_turn": f"""{REJECT}algorithm two_a_turn({TWO}):
{LAW}{LOOP}        draft t:
            x ~ drafter(t.leaves)
            grow x
        verify t by reject against target(t)
        commit t.accepted
        y ~ target(ctx)
        commit y
""",
    "sometimes": f"""{REJECT}algorithm sometimes({TWO}, tau: prob = 0.5):
{LAW}{LOOP}        q = drafter(ctx)
        if max(q.raw) >= tau:
            draft t:
                x ~ q
                grow x at root
            verify t by reject against target(t)
            commit t.accepted
        else:
            y ~ target(ctx)
            commit y
""",
    "greedy_only": f"""{SAME}algorithm greedy_only({TWO}, gamma: int in 1..4 = 2):
    refines autoregressive(target) when greedy
{LOOP}        draft t:
            repeat gamma:
                grow topk(drafter(t.leaves).raw, 1)
        verify t by same against target(t)
        commit t.accepted
""",
    "lenient": f"""{LIKELY}algorithm lenient({TWO}, {GAMMA}):
    keeps support of target
{LOOP}        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by likely(0.2) against target(t)
        commit t.accepted
""",
    "positive": f"""{LIKELY}algorithm positive({TWO}, c: prob = 0.1):
    ensures p[x] > 0
{LOOP}        draft t:
            repeat 2:
                x ~ drafter(t.leaves)
                grow x
        verify t by likely(c) against target(t)
        commit t.accepted
""",
    "jacobi": f"""algorithm jacobi(target: causal, length: int in 1..6 = 3):
{TOKENS}{LOOP}        y = tile(pad, length)
        repeat length:
            draft t:
                grow chain(y[:-1])
            z ~ target(t) as output
            same = all(z == y[:len(z)])
            y = z.token
            break if same
        commit y
""",
    "one_a_time": """algorithm one_a_time(model: masked, length: int in 1..8 = 3, block: int in 1..4 = 2):
    refines static_masked(model, length, block) in tokens

    canvas c: length
    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c, at = b)
            x ~ p as output(count(c.decided))
            unmask c[b] where rank(p.raw[x]) < 1 with x
    commit c
""",
    "cells_drawn": """algorithm cells_drawn(model: masked, length: int in 1..8 = 2, block: int in 1..4 = 2):
    refines static_masked(model, length, block) in distribution

    canvas c: length
    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c)
            x ~ p
            unmask c[b] where first_max(p.raw[x]) with x
    commit c
""",
    "likeliest_cell": """algorithm likeliest_cell(model: masked, length: int in 1..8 = 3, block: int in 1..4 = 2):
    refines static_masked(model, length, block) when greedy

    canvas c: length
    for b in blocks(c, block):
        repeat len(b):
            p = model(c, at = b)
            x = argmax(p)
            unmask c[b] where rank(p.raw[x]) < 1 with x
    commit c
""",
}


@cache
def bases() -> dict[str, Program]:
    """The programs by name."""
    return {name: program(text) for name, text in TEXTS.items()}
