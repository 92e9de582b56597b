"""How large trees get: the bound of every program whose sizes are known from its parameters' ranges."""

from __future__ import annotations

import pytest
from lib.programs.corpus import program

from decgraph.dsl.lower import load_text
from decgraph.ir.sizes import capacities

BOUNDS = {
    "speculative": 1 + 32,
    "eagle2": 1 + 32 + 11 * 32 * 32,
    "kangaroo": 1 + 16,
    "rsd_s": 1 + 8 * 16,
    "speculative_jacobi": 1 + 96,
    "freedave": 1 + 16,
    "grammar": 1 + 32,
    "tetris": 1 + 16,
    "medusa": None,  # given by the topology
    "pearl": None,  # carried from step to step
}


def bound(text: str) -> int | None:
    """The capacity of the one tree that the program's main algorithm starts."""
    module = load_text(text)
    found = capacities(module.functions[module.main])
    for op, size in found.items():
        assert op.attrs.get("capacity") == size
    return next(iter(found.values()), None)


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_bound_of_a_program(name: str) -> None:
    assert bound(program(name)) == BOUNDS[name]


def draft(*lines: str, head: str = "target: causal, k: int in 1..8 = 4, n: int in 1..100 = 4") -> int | None:
    body = "".join(f"            {line}\n" for line in lines)
    return bound(
        f"algorithm a({head}):\n    while not done:\n        draft t:\n{body}"
        "        verify t by match against target(t)\n        commit t.accepted\n"
    )


@pytest.mark.parametrize(
    ("lines", "size"),
    [
        (("grow topk(target(root).raw, 3)",), 4),
        (("grow topk(target(root).raw, k)", "grow topk(target(t.frontier).raw, 2)"), 1 + 8 + 16),
        (("repeat 3:", "    grow topk(target(t.leaves).raw, 2)"), 1 + 2 + 4 + 8),
        (("repeat n:", "    grow topk(target(t.leaves).raw, 1)"), 101),
        (("repeat n:", "    grow topk(target(root).raw, k)"), 801),
        (("repeat n:", "    grow topk(target(t.leaves).raw, 2)"), None),
        (("if k > 2:", "    grow topk(target(root).raw, 2)", "else:", "    grow topk(target(root).raw, 5)"), 6),
        (("for i in 0..min(k, 3):", "    for j in 0..2:", "        grow topk(target(root).raw, 2)"), 13),
        (("grow topk(target(root).raw, k)", "prune t to t.drafted[:2]", "grow topk(target(t.leaves).raw, 4)"), 1 + 2 + 12),
        # the law is chosen, or mixed: still one draft at every leaf
        (
            (
                "repeat 16:",
                "    if k > 2:",
                "        q = target(t.leaves)",
                "    else:",
                "        q = normalize(target(t.leaves) * 2)",
                "    x ~ q",
                "    grow x",
            ),
            17,
        ),
        (
            (
                "repeat 16:",
                "    q = target(t.leaves)",
                "    if k > 2:",
                "        q = normalize(q + target(t.leaves))",
                "    x ~ q",
                "    grow x",
            ),
            17,
        ),
        (
            (
                "repeat 16:",
                "    if k > 2:",
                "        grow topk(target(t.leaves).raw, 1)",
                "    else:",
                "        grow topk(target(t.leaves).raw, 1)",
            ),
            17,
        ),
        # one leaf of several: the others stay
        (
            (
                "grow topk(target(root).raw, 2)",
                "repeat 2:",
                "    x ~ target(t.leaves)",
                "    grow x[0]",
                "grow topk(target(t.leaves).raw, 1)",
            ),
            1 + 2 + 2 + 4,
        ),
        (("x = topk(target(root).raw, 8)[0]", "grow x at root", "grow chain(topk(target(root).raw, k)) at t.new[0]"), 10),
    ],
)
def test_arithmetic(lines: tuple[str, ...], size: int | None) -> None:
    assert draft(*lines) == size
