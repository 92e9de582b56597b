"""Control flow of generated drivers: names are shared and values are written where they are used, and random programs of loops,
branches and numbers still give what the reference gives."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.torch.program import program_of
from decgraph.ir.text import parse_module
from decgraph.ir.values import Module, Op
from decgraph.ir.verify import verify
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request


class Writer:
    """Random straight-line and structured IR over whole numbers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def some(self, known: list[str], n: int) -> list[str]:
        return [self.random.choice(known) for _ in range(n)]

    def body(self, known: list[str], depth: int, length: int) -> tuple[list[str], list[str]]:
        """Lines, and the values known after them (the later ones likelier to be used)."""
        known, lines = list(known), list[str]()
        for _ in range(length):
            kind = self.random.choice(["number", "number", "const", "if", "for", "while"] if depth else ["number", "const"])
            recent = known[-6:]
            if kind == "number":
                v = self.fresh()
                fn = self.random.choice(["add", "sub", "minimum", "maximum"])
                lines.append(f'{v} = map({", ".join(self.some(recent, 2))}, fn = "{fn}")')
                known.append(v)
            elif kind == "const":
                v = self.fresh()
                lines.append(f"{v} = const(value = {self.random.randrange(4)}, type = !int)")
                known.append(v)
            else:
                more, made = getattr(self, kind + "_")(recent, depth - 1)
                lines += more
                known += made
        return lines, known

    def region(self, known: list[str], depth: int, args: list[str], yields: int, first: list[str] | None = None) -> list[str]:
        lines, after = self.body([*known, *args], depth, self.random.randint(0, 3))
        head = f"({', '.join(f'{a}: int' for a in args)}) {{" if args else "{"
        out = [*(first or []), *self.some([*after[-4:], *args], yields)]
        return [head, *lines, f"yield {', '.join(out)}", "}"]

    def if_(self, known: list[str], depth: int) -> tuple[list[str], list[str]]:
        n, b = self.random.randint(1, 3), self.fresh()
        made = [self.fresh() for _ in range(n)]
        lines = [f'{b} = map({", ".join(self.some(known, 2))}, fn = "lt")', f"{', '.join(made)} = if({b})"]
        return [*lines, *self.region(known, depth, [], n), *self.region(known, depth, [], n)], made

    def for_(self, known: list[str], depth: int) -> tuple[list[str], list[str]]:
        n, stops = self.random.randint(1, 3), self.random.random() < 0.4
        made, args = [self.fresh() for _ in range(n)], [self.fresh() for _ in range(n + 1)]
        lo, hi, stop = self.fresh(), self.fresh(), self.fresh()
        lines = [f"{lo} = const(value = 0, type = !int)", f"{hi} = const(value = {self.random.randint(0, 4)}, type = !int)"]
        if stops:
            lines.append(f'{stop} = map({", ".join(self.some(known, 2))}, fn = "lt")')
        inner, after = self.body([*known, *args], depth, self.random.randint(0, 3))
        first = []
        if stops:
            inner.append(f'{stop}i = map({", ".join(self.some(after[-5:], 2))}, fn = "lt")')
            first = [f"{stop}i"]
        head = f"{', '.join(made)} = for({lo}, {hi}, {', '.join(self.some(known, n))}{', stops = true' if stops else ''})"
        yields = [*first, *self.some([*after[-4:], *args], n)]
        return [*lines, head, f"({', '.join(f'{a}: int' for a in args)}) {{", *inner, f"yield {', '.join(yields)}", "}"], made

    def while_(self, known: list[str], depth: int) -> tuple[list[str], list[str]]:
        n = self.random.randint(1, 3)
        made, args, again = ([self.fresh() for _ in range(m)] for m in (n, n + 1, n + 1))
        limit, go = self.fresh(), self.fresh()
        cond, after = self.body([*known, *args], 0, self.random.randint(0, 2))
        lines = [
            f"{limit} = const(value = {self.random.randint(0, 4)}, type = !int)",
            f"{', '.join(made)} = while({limit}, {', '.join(self.some(known, n))}, limited = true)",
            f"({', '.join(f'{a}: int' for a in args)}) {{",
            *cond,
            f'{go} = map({", ".join(self.some(after[-4:], 2))}, fn = "le")',
            f"yield {go}",
            "}",
        ]
        return [*lines, *self.region(known, depth, again, n)], made


def program(seed: int) -> Module:
    w = Writer(seed)
    lines, known = w.body(["%a", "%b"], 3, 6)
    text = "\n".join(lines)
    module = parse_module(f'module(main = "f")\nfunc f(%a: int = none, %b: int = none) {{\nbody {{\n{text}\n}}\n}}\n')
    verify(module)
    f = module.functions["f"]
    out = [
        Op("state.write", (r,), {"state": f"out{n}_{i}", "type": r.type}, (), ())
        for n, op in enumerate(f.body.ops)
        for i, r in enumerate(op.results)
    ]
    # some of the values only, so that others are used once or never
    out = [op for op in out if w.random.random() < 0.5] or out
    return replace(module, functions={"f": replace(f, body=replace(f.body, ops=(*f.body.ops, *out)))})


def outcome(cls: Any, module: Module) -> dict[str, Any]:
    class Kept(cls):  # type: ignore[misc]
        outs: dict[str, Any] = {}

        def write_state(self, name: str, value: Any) -> None:
            self.outs[name] = int(value)

        def parameter(self, p: Any) -> Any:
            return {"a": 1, "b": 2}[p.name]

    Kept.outs = {}
    Kept(module, "f", {"target": TableModel(3, 1)}, {}, Request(prompt=(0,))).run()
    return Kept.outs


@pytest.mark.parametrize("seed", range(150))
def test_random_control_flow(seed: int) -> None:
    module = program(seed)
    assert outcome(TorchMachine, module) == outcome(ReferenceMachine, module), program_of(module, "f").source
