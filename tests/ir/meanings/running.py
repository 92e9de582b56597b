"""Runs a sample on the reference and on the torch backend, and holds what its last op gives against what it should."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

from lib.ops.torch_values import plain, torch_value
from meanings.registry import Raises, Sample, V

from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.backends.torch.machine import TorchMachine
from decgraph.errors import DecError
from decgraph.ir.text import parse_module
from decgraph.ir.values import Module, Op, Region, Value
from decgraph.ir.walk import free_values
from decgraph.passes.outline import straight
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request

REQUEST = Request(prompt=(1, 0, 2), max_tokens=9, seed=5, eos=frozenset({2}))


class Letters:
    """A tokenizer's half: tokens are letters."""

    def text(self, tokens: Any) -> str:
        return "".join("abc"[int(t)] for t in tokens)


class _Kept:
    """Gives operands as they are and keeps what is written into `out` states."""

    def parameter(self: Any, p: Any) -> Any:
        return self.operands[p.name]

    def write_state(self: Any, name: str, value: Any) -> None:
        self.outs[name] = value

    def start(self: Any, operands: dict[str, Any]) -> list[Any]:
        self.operands, self.outs = operands, {}
        self.run()
        return [shown(plain(self.outs[f"out{n}"])) for n in range(len(self.outs))]


class Reference(_Kept, ReferenceMachine):
    """The reference over a sample."""


class Torch(_Kept, TorchMachine):
    """The torch backend over a sample."""


def module_of(sample: Sample) -> Module:
    """The sample as a function whose parameters are its operands, the results written into states."""
    used = [n for n in sample.operands if re.search(rf"%{n}\b", sample.text)]
    params = ", ".join(f"%{n}: {sample.operands[n][0]} = none" for n in used)
    taken = "int[k]" if "(!int[k])" in sample.text else "int"
    externs = "".join(f"extern {name}({taken}) -> int\n" for name, _ in sample.externs)
    module = parse_module(f'module(main = "f")\n{externs}func f({params}) {{\nbody {{\n{sample.text}\n}}\n}}\n')
    f = module.functions["f"]
    kept = [Op("state.write", (r,), {"state": f"out{i}", "type": r.type}, (), ()) for i, r in enumerate(f.body.ops[-1].results)]
    return _with_ops(module, (*f.body.ops, *kept))


def _with_ops(module: Module, ops: tuple[Op, ...]) -> Module:
    f = module.functions["f"]
    return replace(module, functions={"f": replace(f, body=replace(f.body, ops=ops))})


def in_a_segment(module: Module) -> Module | None:
    """The same with the sample's ops in one segment; None where they may not stand in one."""
    every = module.functions["f"].body.ops
    ops = [op for op in every if op.opcode != "state.write"]
    if not all(straight(op) for op in ops):
        return None
    results = ops[-1].results
    region = Region((), tuple(ops), results)
    given = tuple(Value(r.type, r.name) for r in results)
    segment = Op("segment", tuple(free_values(region)), {"kind": "device", "name": "sample"}, (region,), given)
    writes = [op for op in every if op.opcode == "state.write"]
    return _with_ops(module, (segment, *(replace(w, operands=(given[i],)) for i, w in enumerate(writes))))


def outcome(cls: Any, module: Module, sample: Sample, *, tensors: bool | None) -> Any:
    """What the results are, or the error. tensors: vectors as tensors; None: the reference's own values."""
    bound = {}
    models = {name: value for name, (_, value) in sample.operands.items() if isinstance(value, Model)}
    for p in module.functions["f"].params:
        value = sample.operands[p.name][1]
        vocab = any(d.kind == "vocab" for d in p.value.type.dims)
        bound[p.name] = value if tensors is None else torch_value(value, REQUEST, tensors=tensors and vocab)
    machine = cls(
        module,
        "f",
        {"target": FreeModel(3, V, 2, name="target"), **models},
        {},
        REQUEST,
        externs=dict(sample.externs),
        detokenizer=Letters(),
    )
    machine.vocab_size, machine.mask_token = V, V
    try:
        return machine.start(bound)
    except DecError as error:
        return error


def check(sample: Sample) -> None:
    """All ways of running a sample give what it should."""
    module = module_of(sample)
    segment = in_a_segment(module)
    ways = [("reference", outcome(Reference, module, sample, tensors=None))]
    for tensors in (False, True):
        ways.append((f"torch, tensors {tensors}", outcome(Torch, module, sample, tensors=tensors)))
        if segment is not None:
            ways.append((f"torch in a segment, tensors {tensors}", outcome(Torch, segment, sample, tensors=tensors)))
    for name, got in ways:
        if isinstance(sample.want, Raises):
            assert isinstance(got, DecError) and sample.want.word in str(got), (name, got)
            continue
        assert not isinstance(got, DecError), (name, str(got))
        assert len(got) == len(sample.want) and all(map(same, got, sample.want)), (name, got, sample.want)


def shown(value: Any) -> Any:
    """Plain data with distributions as their rows and draws as their tokens."""
    if isinstance(value, tuple) and value and value[0] == "dist":
        return value[1]
    if isinstance(value, tuple) and value and value[0] == "draw":
        return value[1]
    return [shown(v) for v in value] if isinstance(value, list) else value


def same(got: Any, want: Any) -> bool:
    """Equal; numbers to nine digits, numbers that are none among themselves."""
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(map(same, got, want))
    if isinstance(want, bool) or want is None or isinstance(want, str | tuple | frozenset):
        return bool(got == want)
    if isinstance(got, list | tuple | str) or got is None:
        return False
    a, b = float(got), float(want)
    if isinstance(want, int) and not math.isclose(a, round(a)):
        return False
    return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-11)
