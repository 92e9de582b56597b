"""Captured Python functions make the IR of the .dec texts, and their errors point into the Python file."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from lib.programs import captured_algorithms as captured
from lib.programs.corpus import program
from lib.programs.design_examples import DESIGN

import decgraph
from decgraph import Algorithm
from decgraph.dsl.lower import load_text
from decgraph.dsl.prelude import rejection
from decgraph.errors import DecError
from decgraph.ir.text import difference
from decgraph.ir.verify import verify

CAPTURED = sorted(n for n, c in vars(captured).items() if isinstance(c, Algorithm))

TEXTS = {
    "speculative": DESIGN["speculative"],
    "eagle2": DESIGN["eagle2"],
    "token_recycling": DESIGN["token_recycling"],
    "fast_dllm": DESIGN["fast_dllm"],
    **{n: program(n) for n in ("kangaroo", "apd", "freedave", "tetris", "pearl", "tli")},
    "noted": """
algorithm noted(target: causal, drafter: causal, gamma: int in 1..32 = 4):
    refines autoregressive(target) in distribution
    while not done:
        draft t:
            repeat gamma:
                q = drafter(t.leaves)
                note colon = max(q.raw[":"])
                x ~ q
                grow x
        verify t by rejection against target(t)
        if t.accepted.token[0] in ["the", " the"]:
            note taken = len(t.accepted)
        commit t.accepted
""",
    "medusa": """
rule typical(t: tree, p: dist[t.nodes], epsilon: prob = 0.09, delta: prob = 0.3):
    above = p[t.parent]
    ok = above[t.token] > min(epsilon, delta * exp(-entropy(above)))
    live = down(t, ok, all)
    like = down(t, log(above[t.token]), sum)
    n = argmax(t.nodes where live, by = [t.depth, like])
    accept n
    emit argmax(p[n])

algorithm medusa(target: causal with heads, shape: topology = "medusa_63", epsilon: prob = 0.09, delta: prob = 0.3):
    commit argmax(target(ctx))
    while not done:
        h = target.heads(ctx.parent)
        draft t:
            for level in shape:
                grow topk(h[level.index].raw, shape.width)[level.rank] at t.frontier[level.parent]
        verify t by typical(epsilon, delta) against target(t)
        commit t.accepted
""",
    "with_helper": """
def surest(s: prob, tau: prob) -> bool:
    return s >= tau or first_max(s)

algorithm with_helper(model: masked, length: int in 1..64 = 8, tau: prob = 0.9):
    canvas c: length
    while any(c.masked):
        p = model(c)
        x ~ p
        unmask c where surest(p.raw[x], tau) with x
    commit c
""",
    "reward_guided": """
algorithm reward_guided(target: causal, drafter: causal, budget: int in 1..64 = 8, steps: int in 1..100 = 10):
    repeat steps while not done:
        s = run autoregressive(drafter) from ctx until completes("\\n") at most budget
        if s.length > 3:
            s = run autoregressive(target) from ctx until completes("\\n") at most budget
        commit s
""",
    "grown": """
algorithm grown(target: causal, k: int in 1..4 = 2):
    state past: suffixes(64) per session
    state count_: int = 1
    while not done:
        draft t:
            new = grow topk(target(root).raw, k) with u = 0.5
            for _ in 1..k:
                grow point(t.token[new[0]]) at new[0]
            for leaf in t.leaves:
                grow chain(past.path(leaf, at_least = 2, at_most = 3)) at leaf
        verify t by match against target(t)
        count_ += t.accepted.depth
        commit t.accepted
""",
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_captured_equals_text(name: str) -> None:
    found = getattr(captured, name).module
    verify(found, level=2)
    assert difference(found, load_text(TEXTS[name])) == ""


@pytest.mark.parametrize("name", [n for n in CAPTURED if n not in ("medusa", "with_helper", "apd")])  # their rules stand before
def test_places_are_in_the_python_file(name: str) -> None:
    module = getattr(captured, name).module
    own = [op.loc for op in module.functions[name].body.walk() if op.loc.path == captured.__file__]
    text = Path(captured.__file__).read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(text, 1) if line.startswith(f"def {name}("))
    assert own and all(loc.line > first for loc in own)


def test_it_is_read_and_not_called() -> None:
    with pytest.raises(DecError, match="an algorithm, not a function"):
        captured.speculative(1, 2)
    with pytest.raises(DecError, match="only inside a function"):
        rejection()
    with pytest.raises(DecError, match="a rule of decgraph"):
        captured.typical(1)
    assert repr(captured.typical) == "<decgraph rule typical>"
    assert repr(captured.kangaroo) == "<algorithm kangaroo(target, adapter, exit=2, gamma=6, eta=3/5)>"


def written(tmp_path: Path, body: str, head: str = "target: Causal, k: Annotated[int, 1, 8] = 4") -> Callable[[], ModuleType]:
    """A module with one captured function `a`."""
    path = tmp_path / "mine.py"
    lines = "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    path.write_text(
        f"from decgraph import algorithm\nfrom decgraph.dsl.prelude import *\n\n@algorithm\ndef a({head}):\n{lines}",
        encoding="utf-8",
    )

    def load() -> ModuleType:
        spec = importlib.util.spec_from_file_location("mine", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


WRONG = {
    "lambda": "x = lambda q: q\ncommit(x)",
    "try": "try:\n    x = 1\nfinally:\n    x = 2",
    "chained": "if 1 < k < 3:\n    commit(argmax(target(ctx)))",
    "dict": "x = {1: 2}",
    "floor_division": "x = k // 2",
    "draw_in_loop_head": "while sample(target(ctx)) == 3:\n    commit(argmax(target(ctx)))",
    "draw_in_condition": "x = 1 if k > 2 else sample(target(ctx))",
    "star": "commit(*k)",
    "grow_outside": "t.grow(point(3))",
    "grow_another": "with draft() as t:\n    with draft() as u:\n        t.grow(point(3))",
    "while_else": "while not done():\n    commit(argmax(target(ctx)))\nelse:\n    pass",
    "bare_name": "k",
    "verify_without_rule": "with draft() as t:\n    t.grow(topk(target(root), 1))\nverify(t, against=target(t))",
    "with_open": "with open('x') as f:\n    pass",
    "state_scope": "n: State[int, 'galaxy'] = 0",
    "type_error": "while not done():\n    x = sample(target)\n    commit(x)",
    "unknown_name": "while not done():\n    commit(argmax(targt(ctx)))",
    "wide_text": "x = 'ÄÖ…'; y = target(k)",
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_errors_point_into_python(name: str, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    load = written(tmp_path, WRONG[name])
    with pytest.raises(DecError) as caught:
        load()  # where it is defined, not where it is used
    golden(f"{name}.txt", str(caught.value).replace(str(tmp_path), "tmp") + "\n")


@pytest.mark.parametrize("head", ["target", "target: int", "*target", "target: Causal, k: Annotated[int, 1, 8] = f"])
def test_parameters_must_say_what_they_are(head: str, tmp_path: Path) -> None:
    with pytest.raises((DecError, NameError)):
        written(tmp_path, "commit(argmax(target(ctx)))", head)()


def test_source_that_is_not_there() -> None:
    space: dict[str, object] = {}
    with pytest.raises(DecError, match="cannot be read"):
        exec("from decgraph import algorithm\n@algorithm\ndef a(target): pass", space)


@pytest.mark.parametrize("name", sorted(CAPTURED))
def test_its_text_says_the_same(name: str) -> None:
    """The .dec text of a captured algorithm holds the rules and helpers that it names."""
    found = getattr(captured, name)
    assert difference(found.module, load_text(found.text)) == ""


def test_it_is_an_algorithm() -> None:
    """It runs and is checked like one that was loaded, and other captured functions can name it."""
    mine: Algorithm = captured.speculative
    theirs = decgraph.load("speculative")
    options = {"max_tokens": 6, "seed": 3, "temperature": 1.0}
    assert mine.run("a b", backend="reference", **options).tokens == theirs.run("a b", backend="reference", **options).tokens
    assert mine.session(backend="reference", gamma=2).params["gamma"] == 2
    assert mine.check(models=1).verdict == "proved"
    assert mine.explain().startswith("speculative")
