"""What derivations say of numbers and lengths, held against those of runs; and no line runs that was taken for impossible."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import decgraph
from decgraph import stdlib
from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.check.functions import functions_for
from decgraph.check.proof.claims import Open, prove
from decgraph.check.proof.kernel import Kernel
from decgraph.check.proof.terms import PROMPT, ROOM
from decgraph.check.worlds import models_for, params_for
from decgraph.errors import DecError
from decgraph.ir.known_numbers import INDEX
from decgraph.ir.linear import Linear
from decgraph.ir.ops.common import array
from decgraph.ir.settings import of_request, settings
from decgraph.ir.values import Claim, Module, Op, Region, Value
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from tests.check.proof.test_conditions import CASES, program

CLOSE = 1e-9


class Noted:
    """The kernels of a derivation that succeeded last, with the version of the context at each op."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.versions: dict[Op, int] = {}
        self.kernel: Kernel | None = None
        begin, step = Kernel.__post_init__, Kernel.step

        def begins(kernel: Kernel) -> None:
            self.kernel, self.versions = kernel, {}
            begin(kernel)

        def steps(kernel: Kernel, op: Op) -> None:
            self.versions[op] = kernel.version
            step(kernel, op)

        patch.setattr(Kernel, "__post_init__", begins)
        patch.setattr(Kernel, "step", steps)


def followed(region: Region) -> Iterator[Op]:
    """The ops that a kernel goes through one by one."""
    for op in region.ops:
        yield op
        if op.opcode in ("if", "for", "while"):
            for inner in op.regions:
                yield from followed(inner)


def watching(noted: Noted, seen: list[str], wrong: list[str]) -> type[ReferenceMachine]:
    """A machine that holds each value against what is said of it; `seen` is told what was compared, `wrong` what was not so. (A
    failed assertion would be an error of the run.)"""
    kernel, versions = noted.kernel, noted.versions
    assert kernel is not None
    sizes, every = kernel.sizes, set(followed(kernel.function.body))

    class Watched(ReferenceMachine):
        def apply(self, op: Op) -> Any:
            if op in every:
                if op not in versions:
                    wrong.append(f"line {op.loc.line}: {op.opcode} was taken for impossible")
                version, length = versions.get(op, -1), len(self.context())
                self.symbols[("context", version)] = length
                if version in sizes.context and self.sum(sizes.context[version], 0) not in (None, length):
                    wrong.append(f"line {op.loc.line}: the context has {length} tokens")
            out = super().apply(op)
            if op in every:
                for v, value in zip(op.results, out):
                    self.env[v] = value
                for v, value in zip(op.results, out):
                    try:
                        self.compare(op, v, value)
                    except AssertionError as error:
                        wrong.append(str(error).splitlines()[0])
            return out

        def start_run(self) -> None:
            super().start_run()
            self.symbols: dict[Hashable, int] = {PROMPT: len(self.request.prompt), ROOM: self.request.max_tokens}

        def value(self, s: Hashable, j: int) -> Any:
            if s == INDEX:
                return j
            if isinstance(s, Value):
                found = np.asarray(array(self, self.env[s]))
                return found if found.ndim == 0 else found.ravel()[j] if found.size > j else None
            if isinstance(s, tuple) and s[0] == "length":
                return len(self.env[s[1]])
            if isinstance(s, tuple) and s[0] == "vocabulary":
                return self.vocab_size
            if isinstance(s, tuple) and s[0] == "layers":
                return self.env[s[1]].layers
            return self.symbols.get(s)

        def sum(self, linear: Linear, j: int) -> Any:
            total: Any = linear.constant
            for s, f in linear.terms:
                x = self.value(s, j)
                if x is None:
                    return None
                total = total + f * (x if isinstance(x, int | Fraction) else Fraction(float(x)))
            return total

        def compare(self, op: Op, v: Value, value: Any) -> None:
            where = f"line {op.loc.line}: {op.opcode} {op.attrs.get('fn', '')}"
            known = kernel.const(v)
            if isinstance(known, bool | int | float | Fraction) and v.type.elem in ("int", "real", "prob", "bool"):
                assert np.allclose(np.asarray(value, dtype=float), float(known)), f"{where} is {value}, not {known}"
                seen.append("constant")
            length = sizes.lengths.get(v)
            if length is not None and v.type.dims and not kernel.consts.get(v):
                expected = self.sum(length, 0)
                if expected is not None:
                    assert len(value) == expected, f"{where} has {len(value)} elements, not {expected}"
                    seen.append("length")
            numbers = np.asarray(array(self, value)) if v in sizes.sums or v in sizes.facts else np.zeros(0)
            for j, x in enumerate(numbers.ravel()):
                expected = self.sum(sizes.sums[v], j) if v in sizes.sums else None
                if expected is not None:
                    assert abs(float(x) - float(expected)) < CLOSE, f"{where} is {x}, not {expected}"
                    seen.append("sum")
                for atom in sizes.facts.get(v, ()):
                    least = self.sum(atom.sum, j)
                    assert least is None or least > -CLOSE, f"{where} is {x}, beyond {atom}"
                    seen.append("bound")

    return Watched


def run(module: Module, claim: Claim, seed: int, machine: type[ReferenceMachine]) -> None:
    """A run with models, parameters and a request for which the claim speaks."""
    r = random.Random(seed)
    prompt, room, size = r.randrange(1, 5), r.randrange(1, 12), r.randrange(2, 6)
    function = module.entry
    params = params_for(function, seed, vocab=size)
    if claim.setting:
        params |= r.choice(settings(function, claim.setting, of_request(prompt, room)))
    models = models_for(function, size, seed, free=True, layers=r.randrange(3, 6), counted=True)
    request = Request(tuple(r.randrange(size) for _ in range(prompt)), max_tokens=room, seed=seed)
    Session(module, models, params, machine=machine, externs=functions_for(module.externs, {}, size, seed=seed)).run(request)


def derived() -> list[tuple[str, Module, Claim]]:
    """Conditional claims with a derivation, of stdlib and of the programs of test_conditions."""
    out = [(name, program(*case[:3])) for name, case in CASES.items()]
    out += [(name, decgraph.load(name).module) for name in stdlib.names()]
    found = [(name, m, c) for name, m in out for c in m.entry.claims if c.conditional and c.spec == "autoregressive"]
    return [case for case in found if not isinstance(prove(*case[1:]), Open)]


@pytest.mark.budget(14)
def test_numbers_of_derivations_are_those_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ran, seen, wrong = set[str](), list[str](), list[str]()
    for name, module, claim in derived():
        noted = Noted(monkeypatch)
        found = prove(module, claim)
        assert not isinstance(found, Open)
        if found.others:  # the last kernel is that of one of the cases
            continue
        for seed in range(4):
            try:
                run(module, claim, seed, watching(noted, seen, wrong))
            except DecError as refused:  # a model or parameters that a small world has not
                print(name, seed, str(refused)[:200])
                continue
            ran.add(name)
        assert not wrong, f"{name}: {wrong[:5]}"
    assert len(ran) >= 30
    assert all(seen.count(kind) > 1000 for kind in ("constant", "length", "sum", "bound"))
