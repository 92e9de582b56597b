"""What may end a run in an error is no proof, and names its line; what cannot fail, or fails in a draft, is one. Each wrong
program here looks like one that is right, and would be derived if an op were thought to be safe."""

from __future__ import annotations

import pytest

from decgraph.check.proof.claims import Open, prove
from decgraph.dsl.lower import load_text
from decgraph.ir.text import parse_module, print_module

TEXT = """extern f(i: int) -> int

algorithm tried(target: causal, drafter: causal, k: int in 0..8 = 2, xs: token[<= 8] = [1]):
    refines autoregressive(target) in tokens
    state seen: token[<= 4] per sequence = {start}
    state n: int per sequence = 0

    while not done:
{before}
        draft t:
{draft}
        verify t by match against target(t)
{after}
        commit t.accepted
"""
FIRST = 9
"""The line of the first statement of the loop."""


def written(
    before: str = "y = 0", draft: str = "grow topk(drafter(t.leaves).raw, 1)", after: str = "n += 1", start: str = "[]"
) -> str:
    """A program with these parts."""

    def lines(text: str, depth: int) -> str:
        return "\n".join(" " * depth + line for line in text.splitlines())

    return TEXT.format(before=lines(before, 8), draft=lines(draft, 12), after=lines(after, 8), start=start)


FAILING = {  # by what fails: the part, its text, and words of the reason
    "an index that is too large": ("before", "y = xs[ctx.length]", "index"),
    "an index that a function gives": ("before", "y = xs[f(1)]", "index"),
    "the counter of another vector": ("before", "for i in 0..len(prompt):\n    n = int(xs[i])", "index"),
    "the counter one too far": ("before", "for i in 0..len(xs):\n    n = int(xs[i + 1])", "index"),
    "between ends of nothing": ("before", "y = xs[clamp(k, 0, len(xs) - 1)]", "index"),
    "modulo of nothing": ("before", "y = xs[k % len(xs)]", "divisor"),
    "modulo of what may be 0": ("before", "y = ctx.length % k", "divisor"),
    "a state that fills up": ("after", "seen = seen ++ [prompt[0]]", "small"),
    "a state that is too small": ("after", "seen = first(prompt, k)", "small"),
    "a start that is too long": ("start", "prompt", "small"),
    "the best of what may be nothing": ("before", "y = argmax(xs, by = xs)", "nothing"),
    "the best of those that are left": ("after", "y = argmax(t.nodes where t.depth > 1, by = [t.depth])", "nothing"),
    "the largest of nothing": ("before", "y = max([i for i in 0..k])", "nothing"),
    "an infinity as a number": ("before", "y = int(ctx.length / k)", "infinity"),
    "vectors of two lengths": ("before", "y = sum(zeros(k) + zeros(3))", "length"),
    "vectors of one bound": ("before", "y = sum(first(zeros(9), k) + first(zeros(9), k - 1))", "length"),
    "mass that may be gone": ("before", "x ~ normalize(target(ctx) * (k - 1))", "mass"),
    "a layer of the text": ("before", "y = argmax(target.exit(ctx.length)(ctx).raw)", "layer"),
    "a loop without an end": ("before", "while n < 3:\n    n += where(prompt[0] == 0, 0, 1)", "end"),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_may_fail_is_named_with_its_line(name: str) -> None:
    part, text, word = FAILING[name]
    found = prove_text(written(**{part: text}))
    assert isinstance(found, Open) and word in found.why and "end the run in an error" in found.why
    source = written(**{part: text}).splitlines()
    assert any(line in source[found.line - 1] for line in text.splitlines())


SAFE = {
    "the counter of this vector": ("before", "for i in 0..len(xs):\n    n = int(xs[i])"),
    "modulo of a prompt's length": ("before", "y = prompt[ctx.length % len(prompt)]"),
    "between ends": ("before", "y = prompt[clamp(ctx.length, 0, len(prompt) - 1)]"),
    "a state that is cut": ("after", "seen = first(seen ++ [prompt[0]], 4)"),
    "a column of this tree": ("after", "y = t.depth[t.leaves]"),
    "the best with the root among them": ("after", "y = argmax(t.nodes where down(t, t.depth >= 0, all), by = [t.depth])"),
    "a number of whole ones": ("before", "y = int(ctx.length / (k + 1))"),
    "vectors of one length": ("before", "y = sum(zeros(k) + range_(0, k))"),
    "a bounded loop": ("before", "while n < 3 at most 9:\n    n += where(prompt[0] == 0, 0, 1)"),
    "nodes that a loop grows at": ("draft", "tip = t.leaves\nrepeat 2:\n    tip = grow topk(drafter(tip).raw, 2) at tip"),
    "a draft that fails": ("draft", "y = xs[ctx.length]\ngrow point(y)"),
    "a draft that fails in a loop": ("draft", "for i in 0..4:\n    grow point(xs[i])"),
}


def test_a_row_that_is_a_models_stands_nowhere_once_it_is_computed() -> None:
    text = """def tossed(p):
    y ~ p as output
    return y

algorithm computed(target: causal):
    refines autoregressive(target) in distribution

    while not done:
        y = tossed({row})
        x ~ target(ctx)
        commit x
        if not done and int(y) > 0:
            z ~ target(ctx)
            commit z
"""
    found = prove_text(text.format(row="1.0 * target(ctx)"))
    assert isinstance(found, Open) and "end the run in an error" in found.why
    assert not isinstance(prove_text(text.format(row="target(ctx)")), Open)


@pytest.mark.parametrize("name", SAFE)
def test_what_cannot_fail_or_fails_in_a_draft_is_proved(name: str) -> None:
    part, text = SAFE[name]
    found = prove_text(written(**{part: text}))
    assert not isinstance(found, Open), found


def prove_text(text: str) -> object:
    """What the prover says of the one claim of a program."""
    module = load_text(text)
    return prove(module, module.entry.claims[0])


COIN = """algorithm coin(target: causal, gate: prob = 0.5):
    refines autoregressive(target) in tokens
    while not done:
        if bernoulli(gate):
            x ~ target(ctx) as output
            commit x
        else:
            y ~ target(ctx) as output
            commit y
"""


def test_a_coin_has_no_place_in_the_output_stream() -> None:
    """No program is lowered to such a coin, which fails wherever it is tossed; IR text may have it."""
    module = load_text(COIN)
    right = prove(module, module.entry.claims[0])
    assert not isinstance(right, Open) and not right.errors
    text = print_module(module)
    (noise,) = [line for line in text.splitlines() if 'kind = "unit"' in line]
    coin = f'{noise.partition("= noise(")[0]}= noise(kind = "output", site = "output")'
    wrong = parse_module(text.replace(noise, coin))
    found = prove(wrong, wrong.entry.claims[0])
    assert isinstance(found, Open) or found.errors
