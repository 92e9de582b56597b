"""Well-typed programs made of every builtin: an expression over atoms of every type, and a use that turns it into a token.

A text is given with what makes it: many do not pass the type check, and only those that do are programs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

ATOMS = {
    "real": ["0.5", "n * 0.3", "entropy(p)", "p.raw[0]"],
    "int": ["n", "2", "0", "len(xs)", "-1", "ctx.length"],
    "bool": ["n > 1", "p.raw[0] > 0.2", "greedy"],
    "reals": ["rs", "p.raw[xs]", "t.prob", "t.logprob", "[0.5, 0.25]"],
    "ints": ["xs", "range_(3)", "t.depth", "[2, 0, 1]", "range_(0)"],
    "bools": ["xs > 1", "t.depth > 0", "p.raw > 0.2", "target(t).raw > 0.2", "rs > 2", "[yes, no]"],
    "law": ["p", "p.raw", "p.logits", "normalize(p)", "uniform(vocab)", "onehot(x)", "q"],
    "laws": ["target(t)", "target(t).raw", "target(t.leaves)", "ps"],
    "table": ["target(t).raw * 2", "zeros(2, vocab)", "p.raw * 1", "log(target(t).raw)"],
    "token": ["x", "ctx.token", "pad", "argmax(p)"],
    "tokens": ["ctx.last(3)", "t.token", "topk(p.raw, 2)", "sample(p, 2)", "prompt", "[x, x]", "ds"],
    "nodes": ["t.nodes", "t.leaves", "t.drafted", "root", "t.frontier", "ctx", "t.leaves[0]", "t.children[root]"],
    "list": ["[xs, rs]", "[[1], [1, 2]]", "[p, p]", "[]"],
    "other": ["t", "vocab", "none", "inf", '"ab"', "shape", "seen", "yes"],
}
CALLS = [
    "exp({0})",
    "log({0})",
    "sqrt({0})",
    "abs({0})",
    "floor({0})",
    "relu({0})",
    "clamp({0}, 0, 1)",
    "clamp({0}, {1}, {2})",
    "int({0})",
    "min({0}, {1})",
    "max({0}, {1})",
    "min({0})",
    "max({0})",
    "any({0})",
    "all({0})",
    "count({0})",
    "sum({0})",
    "mean({0})",
    "ratio({0})",
    "softmax({0})",
    "normalize({0})",
    "entropy({0})",
    "kl({0}, {1})",
    "onehot({0})",
    "renorm_topk({0}, 2)",
    "renorm_topp({0}, 0.5)",
    "renorm_topk({0}, {1})",
    "warp({0}, at = ctx)",
    "warp({0})",
    "argmax({0})",
    "argmin({0})",
    "argmax({0}, by = {1})",
    "argmin({0}, by = [{1}, {2}])",
    "top({0}, 2)",
    "top({0}, 2, by = {1})",
    "top({0}, {1})",
    "sort({0})",
    "sort({0}, by = {1})",
    "sort({0}, by = {1}, descending = yes)",
    "rank({0})",
    "first({0})",
    "first({0}, 2)",
    "first({0}, {1})",
    "first_max({0})",
    "last({0})",
    "len({0})",
    "cumsum({0})",
    "leading({0})",
    "cycle({0}, 3)",
    "cycle({0}, {1})",
    "tile({0}, 2)",
    "tile({0}, {1})",
    "zeros({0})",
    "zeros({0}, 2)",
    "range_({0})",
    "range_({0}, {1})",
    "shuffle({0})",
    "where({0}, {1}, {2})",
    "counts({0})",
    "spread({0}, {1})",
    "maxpool({0}, 3)",
    "maxpool({0}, {1})",
    "point({0})",
    "topk({0}, 2)",
    "topk({0}, {1})",
    "sample({0}, 2)",
    "sample({0}, {1})",
    "sample({0}, 2, replace = no)",
    "bernoulli({0})",
    "race({0})",
    "distinct({0}, 2)",
    "ended({0})",
    "only({0})",
    "down(t, {0}, sum)",
    "down(t, {0}, all)",
    "up(t, {0}, max)",
    "one({0})",
    "sure({0}, 0.5)",
    "margin({0})",
    "by_factor({0}, 1)",
    "target({0})",
    "target({0}).raw",
    "{0}[{1}]",
    "{0}[0]",
    "{0}[-1]",
    "{0}[5]",
    "{0}[1:]",
    "{0}[:{1}]",
    "{0}[{1}, {2}]",
    "{0} where {1}",
    "{0} ++ {1}",
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "{0} / {1}",
    "{0} % {1}",
    "{0} ^ {1}",
    "{0} ^ 2",
    "-{0}",
    "not {0}",
    "{0} and {1}",
    "{0} or {1}",
    "{0} == {1}",
    "{0} < {1}",
    "{0} in {1}",
    "{0} if {1} else {2}",
    "[{0}, {1}]",
    "[{0}]",
    "[i for i in {0}]",
    "[i for i in {0} if {1}]",
    "{0}.token",
    "{0}.law",
    "{0}.prob",
    "{0}.raw",
    "{0}.length",
    "t.children[{0}]",
    "t.token[{0}]",
    "t.law[{0}]",
    "t.depth[{0}]",
    "seen.has({0})",
    "seen.path({0}, at_least = 1, at_most = 2)",
    "seen.after({0})",
    "shape[{0}]",
]
USES = [
    "int(sum(v))",
    "int(sum(v * 1))",
    "int(v * 3)",
    "1 if v else 0",
    "int(max(v))",
    "count(v)",
    "int(sum(log(v + 1)))",
    "v.token",
    "sum(v.token)",
    "len(v)",
    "1 if v == v else 0",
]
HEAD = """algorithm fuzzed(target: causal, n: int in 0..4 = 2, shape: topology = "2x1"):
    state seen: suffixes(2) per sequence = prompt

    while not done:
        p = target(ctx)
        q = normalize(p * 0.5 + uniform(vocab))
        x ~ p as output
        xs = [2, 0, 1]
        rs = [0.5, 2.0, 2.5]
        ds = sample(p, 3)
        ps = [target(ctx), q]
        draft t:
            grow topk(p.raw, 2)
            grow topk(target(t.leaves).raw, 1)
"""


def expression(rng: random.Random, depth: int) -> str:
    """A call over atoms, or over other calls."""

    def part() -> str:
        if depth > 1 and rng.random() < 0.35:
            return f"({expression(rng, depth - 1)})"
        return rng.choice(ATOMS[rng.choice(KINDS)])

    return rng.choice(CALLS).format(part(), part(), part())


KINDS = list(ATOMS)


def program(value: str, use: str) -> str:
    """A program that commits what a use makes of a value."""
    return HEAD + f"        v = {value}\n        k = {use}\n        commit x\n        commit 1 if k > 1 else 0\n"


def programs(seed: int) -> Iterator[list[str]]:
    """Texts of one expression after the other, for each all its uses."""
    rng = random.Random(seed)
    while True:
        value = expression(rng, 2)
        yield [program(value, use) for use in USES]


__all__ = ["programs"]
