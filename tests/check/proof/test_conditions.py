"""Claims with a condition: what it makes true is derived, and what looks like it is not. Each wrong program is wrong for some
request and parameters that its condition allows."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from decgraph.check.proof import derive, endings
from decgraph.check.proof.claims import Open, prove
from decgraph.dsl.lower import load_text
from decgraph.ir.values import Module

PARAMETERS = (
    "target: causal, drafter: causal, router: head(target) -> prob, k: int in 0..65536 = 8, n: int in 1..65536 = 8, "
    "x: prob = 0.5, y: prob = 0.5, w: float in 0..4 = 1, more: token[<= 8] = []"
)


def program(when: str, body: str, before: str = "") -> Module:
    """A program with a claim, in tokens if nothing else is said. body: the body of the loop `while not done`; before: what
    stands before it."""
    mode, when = when.split(" when ") if " when " in when else ("in tokens", when)
    return load_text(f"""from autoregressive import autoregressive

algorithm other(target: causal, lean: prob = 0.1):
    while not done:
        z ~ renorm_topp(target(ctx), lean)
        commit z

algorithm program({PARAMETERS}):
    refines autoregressive(target) {mode} when {when}
{indent(dedent(before), "    ")}
    while not done:
{indent(dedent(body), "        ")}
""")


def outcome(when: str, body: str, before: str = "") -> str:
    """`derived`, or why not."""
    module = program(when, body, before)
    found = prove(module, module.entry.claims[0])
    return f"line {found.line}: {found.why}" if isinstance(found, Open) else "derived"


def loop(expression: str, *lines: str) -> str:
    """A loop's body that commits a draw of an expression."""
    return "\n".join([*lines, f"t ~ {expression} as output", "commit t"])


def carried(*lines: str, call: str = "target(ctx, given = m)") -> str:
    """A loop's body that carries a memory m, changed by lines before the call."""
    return "\n".join([*lines, f"t ~ {call} as output", "m = target.memory(ctx, given = m)", "commit t"])


def own(condition: str, *after: str) -> str:
    """A loop's body that commits the target's own draw where a condition holds."""
    lines = [
        f"if {condition}:",
        "    t ~ target(ctx) as output",
        "    commit t",
        "else:",
        "    u ~ drafter(ctx)",
        "    commit u",
    ]
    return "\n".join([*lines, *after])


def other(condition: str) -> str:
    """A loop's body that commits another model's draw where a condition holds."""
    return f"t ~ target(ctx) as output\nu ~ drafter(ctx)\nif {condition}:\n    commit u\nelse:\n    commit t"


def replaced(condition: str) -> str:
    """A loop's body that replaces another model's draw where a condition holds."""
    return f"p = target(ctx)\nt ~ drafter(ctx)\nif {condition}:\n    t ~ p as output\ncommit t"


def left_out(layers: str, condition: str, after: str = "s = s") -> str:
    """A model without those layers of which a condition holds; `after` is what becomes of a counter s."""
    lines = [
        "d = target.layers where target.layers < 0",
        "s = 0",
        f"for l in {layers}:",
        f"    if {condition}:",
        "        d = d ++ [l]",
    ]
    return "\n".join([*lines, f"    {after}", "model small = target.skip(d)"])


def run(*lines: str, model: str = "target", runs: str = "autoregressive") -> str:
    """A loop's body that runs an algorithm, and ends with lines; what it commits is `s`."""
    return "\n".join([f's = run {runs}({model}) from ctx until completes("a") at most n', *lines])


MEMORY = "m = target.memory(ctx.parent)"
ALL = "i = range_(0, ctx.length)"
WINDOW = "m.only(i where i >= ctx.length - n)"
SKIP = "model small = target.skip(target.layers where {})"
TREE = """p = target(ctx)
draft t:
    if max(p.raw) < x:
        grow topk(p.raw, n)
if t.size == 0:
    z ~ p as output
    commit z
else:
    commit t.leaves[0]"""
UNIT = """draft u:
    grow chain(tile(prompt[0], 3))
p = target(u)
d ~ p as output
commit d.token[:1 + leading(p.raw[d][1:] > x)]"""
NODE = """draft t:
    e = [root]
    repeat k:
        u = grow topk(drafter(t.leaves), 1)
        e = t.leaves
r = run autoregressive(target) from e[0] until completes("a") at most n
commit e[0]
commit r"""
BEST = """lanes i in n:
    s[i] = run autoregressive(target) from ctx until completes("a") at most 8
    f[i] = router(s[i])
commit s[argmax(f)]"""
OTHER_TEXT = loop(
    "warp((1 + w) * p.logits - w * q.logits, at = ctx)",
    "p = target(ctx)",
    "q = target(ctx.last(ctx.length - min(k, len(prompt) - 1)))",
)
COIN = """if bernoulli(x):
    z ~ drafter(ctx)
    commit z
else:
    z ~ target(ctx)
    commit z"""
CASES: dict[str, tuple[str, str, str, list[tuple[str, str, str]]]] = {
    # name: (condition, body, before, [wrong: (condition, body, before), "" where it is the right one's])
    "a window": (
        "n >= len(prompt) + room - 1",
        carried(ALL, f"m = {WINDOW}"),
        MEMORY,
        [
            ("n >= len(prompt) + room - 2", "", ""),
            ("n >= len(prompt)", "", ""),
            ("n >= room", "", ""),
            ("n >= 2048", "", ""),
            ("k >= len(prompt) + room", "", ""),
            ("n >= len(prompt) + room or n >= 4096", "", ""),
            ("", carried(ALL, f"m = {WINDOW}", "m = m.only(i where i >= 1)"), ""),
            ("", carried(ALL, "m = m.only(i where i > ctx.length - n)"), ""),
            ("", carried(ALL, "m = m.only(i where i >= ctx.length + 1 - n)"), ""),
            ("", carried(ALL, "m = m.only(i where i * 2 >= ctx.length)"), ""),
            ("", carried(ALL, f"m = {WINDOW}", "if ctx.length > 999:", "    m = m.only(i where i >= 4)"), ""),
            ("", carried(ALL, f"m = {WINDOW}", call="drafter(ctx, given = m)"), ""),
            (
                "",
                "\n".join([ALL, f"m = {WINDOW}", "t ~ target(ctx, given = m) as output", "commit t"]),
                "m = drafter.memory(ctx.parent)",
            ),
            ("", "", "m = target.memory(prompt ++ prompt[:1])"),
            ("", "", "m = target.memory(prompt[1:])"),
            ("", "", "m = target.memory(more ++ prompt)"),
        ],
    ),
    "a memory of a beginning of the prompt": (
        "k == 0",
        carried(),
        "m = target.memory(prompt[:n])",
        [
            ("", "", "m = target.memory(prompt[n:])"),
            ("", "", "m = target.memory(prompt[:n] ++ prompt[:n])"),
            ("", "", "m = target.memory(prompt ++ prompt[:k + 1])"),
            ("", "", "m = target.memory(prompt[:n]).only(range_(1, n))"),
            ("", "", "m = target.memory(prompt[:n]).without([0])"),
            ("", "", "m = target.memory(prompt).without(range_(0, k + 1))"),
            ("", "", "m = target.memory(ctx).quantized(8)"),
            ("", "", "m = target.memory(prompt).merged(range_(0, 2), [0, 0])"),
            ("", "", "other = drafter.memory(prompt[:n])\nm = target.memory(prompt, given = target.memory(prompt[1:]))"),
            ("", "", "model other = target.skip([0])\nm = other.memory(prompt)"),
            ("", carried("m = m.join(target.memory(ctx, given = m).only([0]).quantized(8))"), "m = target.memory(ctx.parent)"),
        ],
    ),
    "rows that are rounded": (
        "n >= len(prompt) + room",
        carried(ALL, "old = i where i < ctx.length - n", "m = m.only(old).quantized(4).join(m.without(old))"),
        MEMORY,
        [
            ("n >= len(prompt)", "", ""),
            ("n >= room", "", ""),
            (
                "",
                carried(ALL, "old = i where i <= ctx.length - n + 1", "m = m.only(old).quantized(4).join(m.without(old))"),
                "",
            ),
            ("", carried(ALL, "old = i where i < ctx.length - n", "m = m.without(old).quantized(4).join(m.only(old))"), ""),
            ("", carried(ALL, "old = i where i < ctx.length - n", "m = m.only(old).quantized(4)"), ""),
            ("", carried(ALL, "old = i where i < ctx.length - n", "m = m.without(old).join(m.only(i).quantized(4))"), ""),
        ],
    ),
    "the heaviest positions": (
        "x == 1",
        loop(
            "target(ctx, given = target.memory(ctx.parent).only(h))",
            ALL,
            "h = top(i, max(n, int(x * ctx.length)), by = target.attention(ctx))",
        ),
        "",
        [
            ("x >= 0.999", "", ""),
            ("n >= len(prompt)", "", ""),
            (
                "",
                loop(
                    "target(ctx, given = target.memory(ctx.parent).only(h))",
                    ALL,
                    "h = top(i, min(n, int(x * ctx.length)), by = target.attention(ctx))",
                ),
                "",
            ),
            (
                "",
                loop(
                    "target(ctx, given = target.memory(ctx.parent).only(h))",
                    "i = range_(1, ctx.length)",
                    "h = top(i, max(n, int(x * ctx.length)), by = target.attention(ctx)[1:])",
                ),
                "",
            ),
            (
                "",
                loop(
                    "target(ctx, given = target.memory(ctx.parent).only(h))",
                    ALL,
                    "h = top(i, int(x * ctx.length) - 2, by = target.attention(ctx))",
                ),
                "",
            ),
        ],
    ),
    "layers": (
        "k == 0",
        loop("small(ctx)"),
        SKIP.format("target.layers < k"),
        [
            ("k <= 1", "", ""),
            ("k < 2", "", ""),
            ("n == 1", "", ""),
            ("", "", SKIP.format("target.layers <= k")),
            ("", "", SKIP.format("target.layers * 2 < k + 1")),
            ("", "", SKIP.format("target.layers - n < k")),
            ("", "", SKIP.format("target.layers >= len(target.layers) - 1 - k")),
            ("", "", SKIP.format("target.layers == k")),
            ("", "", SKIP.format("not (target.layers < k)")),
            ("", "", "model small = target.exit(k + 4)"),
            ("", "", "model small = drafter.skip(drafter.layers where drafter.layers < k)"),
            ("", "", "model small = target.skip(attention = target.layers where target.layers < k, mlp = [0])"),
        ],
    ),
    "layers that a loop leaves out": (
        "x == 0",
        loop("small(ctx)"),
        left_out("0..len(target.layers)", "y < x"),
        [
            ("x <= 0.001", "", ""),
            (
                "",
                "",
                left_out("0..3", "y <= x"),
            ),
            (
                "",
                "",
                left_out("0..3", "s > 1", "s += 1"),
            ),
            (
                "",
                "",
                left_out("0..3", "s + x > 0", "s = 1 - s"),
            ),
        ],
    ),
    "a text before the context": (
        "more == []",
        loop("target(more ++ ctx)"),
        "",
        [
            ("k == 0", "", ""),
            ("k != 1", "", ""),
            ("", loop("target(ctx ++ ctx)"), ""),
            ("", loop("target(more ++ ctx.last(ctx.length - len(prompt)))"), ""),
            ("", loop("target(more ++ prompt[:n] ++ ctx.last(ctx.length - len(prompt)))"), ""),
            ("", loop("target(ctx.last(n))"), ""),
            ("", loop("target(prompt ++ ctx.last(ctx.length - len(prompt) + 1))"), ""),
            ("", loop("drafter(more ++ ctx)"), ""),
        ],
    ),
    "the last tokens": (
        "n >= len(prompt) + room - 1",
        loop("target(ctx.last(n))"),
        "",
        [
            ("n >= len(prompt) + room - 2", "", ""),
            ("n >= room", "", ""),
            ("n >= 1000", "", ""),
            ("", loop("target(ctx.last(n - 1))"), ""),
            ("", loop("target(ctx.last(ctx.length - int(ctx.length / 100)))"), ""),
        ],
    ),
    "a nucleus": (
        "x == 1",
        loop("renorm_topp(target(ctx), x)"),
        "",
        [
            ("x >= 0.99999", "", ""),
            ("y == 1", "", ""),
            ("k >= 48", loop("renorm_topk(target(ctx), k)"), ""),
            ("k == 65536", loop("renorm_topk(target(ctx), k)"), ""),
            ("", loop("renorm_topp(drafter(ctx), x)"), ""),
        ],
    ),
    "tokens that occur too often": (
        "x == 1",
        other("count(ctx.last(n) == t.token) > x * n"),
        "",
        [
            ("x >= 0.99", "", ""),
            (
                "",
                other("count(ctx.last(n) == t.token) >= x * n"),
                "",
            ),
            (
                "",
                other("count(ctx.last(n + 1) == t.token) > x * n"),
                "",
            ),
            (
                "",
                other("count(ctx.last(n) != t.token) < x * n"),
                "",
            ),
        ],
    ),
    "a bound on a probability": (
        "x == 1",
        replaced("max(drafter(ctx).raw) <= x"),
        "",
        [
            ("x >= 0.999", "", ""),
            ("", replaced("max(drafter(ctx).raw) < x"), ""),
            ("", replaced("max(2 * drafter(ctx).raw) <= x"), ""),
            (
                "",
                replaced("max(normalize(2 * p - drafter(ctx))) <= x"),
                "",
            ),
            (
                "",
                replaced("max(drafter(ctx).logits) >= 0 - 100"),
                "",
            ),
            ("", replaced("entropy(p) <= x * 64"), ""),
            (
                "",
                replaced("max(softmax(log(relu(p - p)))) <= x"),
                "",
            ),
            ("", replaced("log(x - 1) - log(x - 1) <= 1"), ""),
        ],
    ),
    "a counter": (
        "n == 1",
        own("i % n == 0", "i += 1"),
        "i = 0",
        [
            ("n <= 2", "", ""),
            ("k == 1", "", ""),
            (
                "",
                own("i % (n + 1) == 0", "i += 1"),
                "",
            ),
            (
                "",
                own("i <= n", "i += 1"),
                "",
            ),
            (
                "",
                own("i == 0", "i += 1"),
                "",
            ),
            (
                "",
                own("i < 1000", "i = ctx.length"),
                "",
            ),
        ],
    ),
    "a text that is never too long": (
        "n >= len(prompt) + room",
        own("ctx.length < n"),
        "",
        [
            ("n >= len(prompt) + room - 1", "", ""),
            ("n >= room", "", ""),
            ("n > len(prompt)", "", ""),
            ("n >= 100", "", ""),
            (
                "",
                "t ~ target(ctx) as output\ncommit t\n" + own("ctx.length < n"),
                "",
            ),
            (
                "",
                own("ctx.length < n - 1"),
                "",
            ),
        ],
    ),
    "a mixture": (
        "w == 0",
        loop("warp((1 + w) * p.logits - w * q.logits, at = ctx)", "p = target(ctx)", "q = drafter(ctx)"),
        "",
        [
            ("w <= 0.001", "", ""),
            ("w == 1", "", ""),
            ("", loop("warp((1 + w) * p.logits + q.logits, at = ctx)", "p = target(ctx)", "q = drafter(ctx)"), ""),
            ("", loop("warp((2 + w) * p.logits, at = ctx)", "p = target(ctx)"), ""),
            ("", loop("warp(p.logits + w * 1 + 1 * q.logits, at = ctx)", "p = target(ctx)", "q = drafter(ctx)"), ""),
        ],
    ),
    "a tree that does not grow": (
        "x == 0",
        TREE,
        "",
        [
            ("x <= 0.1", "", ""),
            ("", TREE.replace("< x", "<= x"), ""),
            ("", TREE.replace("t.size == 0", "t.size <= 1").replace("if max", "grow topk(p.raw, 1)\n    if max"), ""),
            ("", TREE.replace("t.size == 0", "t.size > 0"), ""),
            ("", TREE.replace("p = target(ctx)", "p = target(ctx)\nq = drafter(ctx)").replace("z ~ p", "z ~ q"), ""),
        ],
    ),
    "the first of draws at nodes": (
        "x == 1",
        UNIT,
        "",
        [
            ("x >= 0.99", "", ""),
            ("", UNIT.replace("> x", ">= x"), ""),
            ("", UNIT.replace("1 + leading", "2 + leading"), ""),
            ("", UNIT.replace("[:1 + leading", "[1:1 + leading"), ""),
            ("", UNIT.replace("target(u)", "drafter(u)"), ""),
            ("", UNIT.replace("commit d", "v ~ target(ctx) as output\ncommit v\ncommit d"), ""),
            ("", UNIT.replace("d ~ p as output", "d ~ p"), ""),
        ],
    ),
    "a run of another algorithm": (
        "in distribution when k == 0",
        run("commit s"),
        "",
        [
            ("in tokens when k == 0", "", ""),
            ("", run("commit s", model="drafter"), ""),
            ("", run("commit s", runs="other"), ""),
            ("", run("commit s", "commit s"), ""),
            ("", run("if len(s) > 1:", "    commit s", "else:", "    z ~ target(ctx)", "    commit z"), ""),
            ("", run("z ~ target(ctx)", "commit z", "commit s"), ""),
            ("", run("if k == 0:", "    z ~ target(ctx)", "    commit z", "commit s"), ""),
            (
                "",
                run(
                    "r = run autoregressive(target) from ctx until done at most n",
                    "if len(s) > len(r):",
                    "    commit s",
                    "else:",
                    "    commit r",
                ),
                "",
            ),
            ("", run("commit s[:1]"), ""),
            ("", run("draft t:", "    grow chain(s) at root", "verify t by match against drafter(t)", "commit t.accepted"), ""),
        ],
    ),
    "a run from a node": (
        "in distribution when k == 0",
        NODE,
        "",
        [
            ("k <= 1", "", ""),
            ("", NODE.replace("repeat k", "repeat k + 1"), ""),
            ("", NODE.replace("commit e[0]\n", "").replace("repeat k", "repeat 1"), ""),
            ("", NODE.replace("run autoregressive(target)", "run autoregressive(drafter)"), ""),
        ],
    ),
    "a run that is judged": (
        "in distribution when x == 0",
        run(
            "if router(s) >= x:",
            "    commit s",
            "else:",
            "    commit run autoregressive(drafter) from ctx until done at most n",
        ),
        "",
        [
            ("in distribution when x <= 0.1", "", ""),
            (
                "",
                run(
                    "if router(s) > x:",
                    "    commit s",
                    "else:",
                    "    commit run autoregressive(drafter) from ctx until done at most n",
                ),
                "",
            ),
            (
                "",
                run(
                    "if router(s) > x:",
                    "    commit s",
                    "else:",
                    "    commit run autoregressive(target) from ctx until done at most n",
                ),
                "",
            ),
        ],
    ),
    "the best of one": (
        "in distribution when n == 1",
        BEST,
        "",
        [
            ("in distribution when n <= 2", "", ""),
            ("in distribution when k == 1", "", ""),
            ("", BEST.replace("in n", "in n + 1"), ""),
            ("", BEST.replace("(target)", "(drafter)"), ""),
            ("", BEST.replace("commit s", "if f[0] > 0.5:\n    commit s[0]\nelse:\n    commit s"), ""),
        ],
    ),
    "a coin": (
        "in distribution when x == 0",
        COIN,
        "",
        [
            ("in distribution when x <= 0.01", "", ""),
            ("in distribution when x == 1", "", ""),
            ("in distribution when x == 0", COIN.replace("bernoulli(x)", "bernoulli(1 - x)"), ""),
            ("in distribution when x == 0", COIN.replace("bernoulli(x)", "bernoulli(x + y)"), ""),
        ],
    ),
    "either of two": (
        "k == 0 or x == 1",
        other("k > 0 and max(drafter(ctx).raw) > x"),
        "",
        [
            ("k == 0 or x == 0.5", "", ""),
            ("k == 1 or x == 1", "", ""),
            ("k >= 0 or x == 1", "", ""),
            ("k != 0 or x != 1", "", ""),
            ("not (k == 0 or x == 1)", "", ""),
            (
                "",
                other("k > 0 or max(drafter(ctx).raw) > x"),
                "",
            ),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_condition_makes_true(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that no run ends in an error."""
    monkeypatch.setattr(derive, "errors", endings.errors)
    when, body, before, _ = CASES[name]
    assert outcome(when, body, before) == "derived"


@pytest.mark.parametrize(("name", "place"), [(name, n) for name, case in CASES.items() for n in range(len(case[3]))])
def test_what_looks_like_it(name: str, place: int) -> None:
    *right, wrong = CASES[name]
    when, body, before = (other or own for other, own in zip(wrong[place], right))
    assert outcome(when, body, before) != "derived"


def test_a_text_that_may_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called on it ends the run, also where nothing is done with what it returns."""
    monkeypatch.setattr(derive, "errors", endings.errors)
    last = "ctx.last(ctx.length - min(k, len(prompt) - 1))"
    assert last in OTHER_TEXT and outcome("w == 0", OTHER_TEXT) == "derived"
    for other in (
        last.replace(" - 1))", "))"),
        last.replace("min", "max"),
        last.replace("length - min", "length - 1 - min"),
        "prompt[k:]",
        "more",
        "more ++ more",
        "ctx.last(k)",
    ):
        assert "may be empty" in outcome("w == 0", OTHER_TEXT.replace(last, other)), other
    assert outcome("n >= 1 and w == 0", OTHER_TEXT.replace(last, "ctx.last(n)")) == "derived"
    assert outcome("k >= 1 and w == 0", OTHER_TEXT.replace(last, "ctx.last(k)")) == "derived"
    assert outcome("k < len(prompt) and w == 0", OTHER_TEXT.replace(last, "prompt[k:]")) == "derived"
