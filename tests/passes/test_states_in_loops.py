"""Passes keep what programs do that read states, variables and the context's end before, inside and behind the loops and
branches that write them, leave early, or commit.

Few programs of the standard library do, and none of the texts that other tests draw: a pass that took what was read before a
loop for what is read inside of it changed none of them.
"""

from __future__ import annotations

import random

import pytest

from decgraph.check.validation import Validation
from decgraph.dsl.lower import load_text
from decgraph.passes.manager import optimise

STATES = ("n", "m")
ENDS = ("ctx.length % 5", "room % 5")
KINDS = ("leave", "read", "read", "write", "write", "write", "commit", "loop", "branch")
HEAD = """algorithm counts(target: causal):
    state n: int per sequence = 0
    state m: int per sequence = 1
    while not done:
        y = topk(target(ctx).raw, 4)
"""


class StatefulText:
    """Draws the statements of a step: reads, writes, commits, loops that are left and branches, in any order and nested."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.lines: list[str] = []
        self.names = 0

    def number(self, known: list[str]) -> str:
        """A whole number from 0 to 4."""
        a, b = (self.draw.choice([*STATES, *STATES, *ENDS, *known]) for _ in range(2))
        return self.draw.choice([a, f"({a} + {b}) % 5", f"({a} * 2 + {b} + 1) % 5", f"max({a}, {b})", f"({a} + 1) % 5"])

    def suite(self, known: list[str], depth: int, indent: int, *, looped: bool = False) -> None:
        """A few statements. known: names that have a value here."""
        known = list(known)
        for _ in range(self.draw.randint(2, 4)):
            pad, kind = " " * indent, self.draw.choice(KINDS if looped else KINDS[1:])
            if kind == "read" or (depth == 0 and kind in ("loop", "branch")):
                self.names += 1
                self.lines.append(f"{pad}v{self.names} = {self.number(known)}")
                known.append(f"v{self.names}")
            elif kind == "write":
                self.lines.append(f"{pad}{self.draw.choice([*STATES, *known])} = {self.number(known)}")
            elif kind == "commit":
                self.lines.append(f"{pad}commit y[{self.number(known)} % 4]")
            elif kind == "leave":
                self.lines.append(f"{pad}if {self.number(known)} > {self.draw.randint(0, 3)}:")
                self.lines.append(f"{pad}    {self.draw.choice([*STATES, *known])} = {self.number(known)}")
                self.lines.append(f"{pad}    break")
            elif kind == "loop":
                self.lines.append(f"{pad}repeat {self.draw.randint(1, 3)}:")
                self.suite(known, depth - 1, indent + 4, looped=True)
            else:
                self.lines.append(f"{pad}if {self.number(known)} > {self.draw.randint(0, 3)}:")
                self.suite(known, depth - 1, indent + 4)
                self.lines.append(f"{pad}else:")
                self.suite(known, depth - 1, indent + 4)
        if indent == 8:
            self.lines.append(f"        commit y[({' + '.join([*STATES, *known])}) % 4]")


def text(seed: int) -> str:
    """A program."""
    step = StatefulText(seed)
    step.suite([], 2, 8)
    return HEAD + "\n".join(step.lines) + "\n"


@pytest.mark.quick(1)
@pytest.mark.parametrize("group", range(6))
def test_passes_keep_what_a_program_with_states_does(group: int) -> None:
    for seed in range(10 * group, 10 * group + 10):
        optimise(load_text(text(seed), f"seed{seed}.dec"), validate=Validation(count=2))
