"""Every program lowers to IR that the verifier takes, fast, and in time linear in its length."""

from __future__ import annotations

import time
from importlib import resources

import pytest
from programs import NAMES, program

from decgraph.dsl.lower import load_text, lower_file
from decgraph.dsl.parse import parse_text
from decgraph.dsl.source import Source
from decgraph.errors import DecError
from decgraph.ir.text import equal, parse_module, print_module
from decgraph.ir.verify import verify

LATER = {"clasp", "elastic_cache", "lookahead_reasoning"}
"""docs/decisions/0002-later.md says what each of them needs."""

WHOLE = [n for n in NAMES if n not in LATER | {"everything"}]
STDLIB = sorted(p.name[:-4] for p in resources.files("decgraph.stdlib").iterdir() if p.name.endswith(".dec"))

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
                grow topk(q.raw, k)                      # deterministic: point masses, so pruning is safe
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
"""The examples of shared/DESIGN.md §2, word for word."""


@pytest.mark.parametrize("name", WHOLE)
def test_program_lowers(name: str) -> None:
    module = load_text(program(name), f"{name}.dec")
    verify(module, level=2)
    assert name in module.functions or module.functions or name == "choices"


@pytest.mark.parametrize("name", STDLIB)
def test_stdlib_lowers(name: str) -> None:
    text = (resources.files("decgraph.stdlib") / f"{name}.dec").read_text(encoding="utf-8")
    verify(load_text(text, f"stdlib/{name}.dec"), level=2)


@pytest.mark.parametrize("name", sorted(DESIGN))
def test_design_examples_lower(name: str) -> None:
    module = load_text(DESIGN[name])
    verify(module, level=2)
    assert module.main == name
    assert equal(parse_module(print_module(module)), module)


@pytest.mark.parametrize("name", sorted(LATER))
def test_what_comes_later_is_refused_by_name(name: str) -> None:
    with pytest.raises(DecError) as caught:
        load_text(program(name), f"{name}.dec")
    assert f"{name}.dec:" in str(caught.value)


def test_spaces_and_comments_do_not_change_the_ir() -> None:
    text = DESIGN["speculative"]
    loose = text.replace("    ", "        ").replace("grow x", "grow x  # a draw").replace("in 1..32 = 4", "in 1 .. 32=4")
    assert equal(load_text(text), load_text(loose))


def seconds(text: str) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        lower_file(parse_text(text), Source(text))
        best = min(best, time.perf_counter() - start)
    return best


@pytest.mark.parametrize("name", STDLIB)
def test_stdlib_is_quick_to_read(name: str) -> None:
    text = (resources.files("decgraph.stdlib") / f"{name}.dec").read_text(encoding="utf-8")
    load_text(text)  # the tables are read once
    assert seconds(text) < 0.2  # it takes less than 0.05 where nothing else runs


def test_five_thousand_lines_lower_in_linear_time() -> None:
    small = "\n".join(DESIGN["eagle2"].split("algorithm")[0:1])
    body = "algorithm" + DESIGN["eagle2"].split("algorithm")[1]
    texts = [small + "\n".join(body.replace("eagle2", f"a{i}") for i in range(n)) for n in (80, 400)]
    assert texts[1].count("\n") > 5_000
    quick, slow = (seconds(t) for t in texts)
    assert slow < 10
    assert slow < 5 * 3 * quick


def test_one_long_algorithm_takes_linear_time() -> None:
    head = "algorithm a(target: causal):\n    while not done:\n        x ~ target(ctx)\n        v0 = 1\n"

    def text(n: int) -> str:
        return head + "".join(f"        v{i} = v{i - 1} + {i}\n" for i in range(1, n)) + "        commit x\n"

    quick, slow = seconds(text(500)), seconds(text(2500))
    assert slow < 5 * 3 * quick
