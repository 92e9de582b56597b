"""Every vocabulary segment, and every op on rows that stands alone, of every algorithm in stdlib: what torch's segment gives,
over logits and probabilities of several dtypes and requests of several sorts."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from shelf import NAMES

import decgraph
from decgraph.backends.registry import machine as backend
from decgraph.backends.torch.draws import TorchDraws
from decgraph.backends.torch.lowering import lower
from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.torch.rows import Rows, Sparse, TorchDist, TorchVectors
from decgraph.backends.torch.segments import segment_call
from decgraph.backends.triton.rows.segment import vocabulary
from decgraph.backends.triton.rows.shown import shown
from decgraph.check.worlds import models_for, params_for
from decgraph.ir.ops.draws import NoiseKey
from decgraph.ir.types import Type
from decgraph.ir.values import Op
from decgraph.passes.plan import Plan
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from lab.gpu.specs.rows import ops_on_rows

V, N = 9, 3
PROMPT = (1, 2, 3)
REQUESTS = {
    "plain": Request(prompt=PROMPT, seed=2**33 + 7, request_id=3),
    "greedy": Request(prompt=PROMPT, temperature=0, repetition_penalty=1.4),
    "cut": Request(prompt=PROMPT, temperature=0.7, top_k=5, top_p=0.8, min_p=0.05),
    "constrained": Request(
        prompt=PROMPT,
        bans={4},
        eos={0},
        min_length=9,
        bias={2: 1.5},
        frequency_penalty=0.3,
        presence_penalty=0.2,
        temperature=1.3,
    ),
}


def machine(request: Request) -> Any:
    """As much of the torch machine as ops on rows ask for."""
    m = SimpleNamespace(
        request=request,
        vocab_size=V,
        site_prefix="",
        counter_prefix=(),
        num=TorchMachine.num,
        context=lambda: SimpleNamespace(ids=lambda: PROMPT),
        paths=lambda at, n: [(*PROMPT, 1, row) for row in range(n)],
    )
    for name in ("key", "flip", "above"):
        setattr(m, name, getattr(TorchMachine, name).__get__(m))
    return m


class Operands:
    """Values of a type: rows of one call, tokens, numbers; the same ones for the same seed."""

    def __init__(self, request: Request, kind: torch.dtype, seed: int, *, values: bool = False) -> None:
        self.request, self.kind, self.values = request, kind, values
        self.g = np.random.default_rng(seed)

    def rows(self) -> Rows:
        logits = torch.from_numpy(self.g.normal(size=(N + 1, V)) * 2).to(self.kind)
        if self.values:
            p = torch.softmax(logits.to(torch.float64 if self.kind == torch.float64 else torch.float32), -1)
            return TorchVectors(p, self.request)
        path = tuple(int(t) for t in self.g.integers(0, V, 4))
        return Rows(
            logits, self.request, positions=np.arange(N + 1) + 7, nodes=np.arange(N + 1), path=lambda r: (*PROMPT, *path, r)
        )

    def of(self, t: Type) -> Any:
        g = self.g
        shape = (N,) * len([d for d in t.dims if d.kind != "vocab"])
        if t.elem in ("dist", "scores"):
            rows = self.rows()
            index = g.permutation(N + 1)[: int(np.prod(shape))].reshape(shape)
            return TorchDist(rows, index, t.of[1] if t.elem == "dist" else "logits")
        if t.elem == "draw":
            rows, row = self.rows(), g.integers(0, N + 1, shape)
            tokens = g.integers(0, V, shape)
            if shape and not self.values:
                return TorchDraws(tokens, rows, row, "raw" if g.integers(2) else "shaped", point=bool(g.integers(2)))
            members = np.array([[3, 1, int(x)] for x in tokens.reshape(-1)])
            group = np.arange(tokens.size).reshape(shape)
            return TorchDraws(tokens, rows, row, rank=np.full(shape, 2), group=group, members=members)
        if t.elem == "noise":
            return NoiseKey("a site", (4, 1))
        if t.dims and t.dims[-1].kind == "vocab":
            a = torch.from_numpy(np.abs(g.normal(size=(*shape, V))))
            return a if self.kind == torch.float64 else a.float()
        if t.elem in ("real", "prob"):
            a = g.uniform(0.1, 0.9, shape)
            return a if shape else float(a)
        if t.elem == "bool":
            return g.integers(0, 2, shape) > 0 if shape else True
        a = g.integers(0, V if t.elem == "token" else N, shape)
        return a if shape else int(2 if t.elem == "int" else a)


@cache
def ops(name: str) -> list[Op]:
    """The vocabulary segments and lone ops on rows of an algorithm, rules included."""
    a = decgraph.load(name)
    return [op for op in ops_on_rows(a.optimised(params_for(a.function, 0), Plan())) if op.opcode not in ("warp", "face")]


def torch_call(op: Op) -> Any:
    if op.opcode == "segment":
        return segment_call(op)
    low = lower(op)
    return lambda m, *xs: low.fn(m, *xs, **{k: v for k, v in low.kwargs.items() if v is not None})


def same(got: Any, want: Any, kind: torch.dtype) -> None:
    """Equal tokens, places and faces; numbers close."""
    near = 1e-12 if kind == torch.float64 else 2e-5
    if isinstance(want, tuple):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b, kind)
    elif isinstance(want, TorchDist):
        assert isinstance(got, TorchDist) and got.shape == want.shape and got.face == want.face
        assert got.rows.nodes is None and want.rows.nodes is None or np.array_equal(got.rows.nodes, want.rows.nodes)
        assert got.points() is None and want.points() is None or np.array_equal(got.points(), want.points())
        torch.testing.assert_close(got.vector().double(), want.vector().double(), atol=near, rtol=near)
    elif isinstance(want, Sparse):
        assert got.entries == want.entries
    elif isinstance(want, TorchDraws):
        assert isinstance(got, TorchDraws) and got.tokens.dtype == want.tokens.dtype
        for field in ("tokens", "row", "rank", "group", "members"):
            a, b = getattr(got, field), getattr(want, field)
            assert (a is None) == (b is None) and (a is None or np.array_equal(a, b)), field
        assert (got.face, got.point) == (want.face, want.point)
        if want.race is not None:
            np.testing.assert_allclose(got.race, want.race, atol=near, rtol=near)
    elif isinstance(want, torch.Tensor):
        assert got.shape == want.shape
        torch.testing.assert_close(got.double(), want.double(), atol=near, rtol=near)
    else:
        assert np.shape(got) == np.shape(want) and np.asarray(got).dtype.kind == np.asarray(want).dtype.kind
        assert isinstance(want, np.ndarray) == isinstance(got, np.ndarray)
        if np.asarray(want).dtype.kind == "f":
            np.testing.assert_allclose(got, want, atol=near, rtol=near)
        else:
            assert np.array_equal(got, want)


def compare(name: str, kind: torch.dtype, request: str, seed: int, *, values: bool = False) -> int:
    n = 0
    for op in ops(name):
        m = machine(REQUESTS[request])
        operands = [Operands(REQUESTS[request], kind, seed + 100 * i, values=values) for i in range(len(op.operands))]
        try:
            want = torch_call(op)(m, *(o.of(v.type) for o, v in zip(operands, op.operands, strict=True)))
        except (ValueError, decgraph.DecError) as error:
            want = error
        operands = [Operands(REQUESTS[request], kind, seed + 100 * i, values=values) for i in range(len(op.operands))]
        call = vocabulary(op)
        if isinstance(want, Exception):
            with pytest.raises(type(want)):
                call.call(m, *(o.of(v.type) for o, v in zip(operands, op.operands, strict=True)))
            continue
        got = call.call(m, *(o.of(v.type) for o, v in zip(operands, op.operands, strict=True)))
        same(got, want, kind)
        n += len(call.made)
    return n


FEW = ("medusa", "prophet", "beam_patience", "kangaroo", "fast_dllm_uncached", "sequoia")


@pytest.mark.parametrize("name", FEW)
def test_gives_what_torch_gives(name: str) -> None:
    kind, request = (torch.float64, "plain") if FEW.index(name) % 2 else (torch.float32, "cut")
    assert compare(name, kind, request, 1)


NEW = """
def apart(p: dist, q: dist) -> real:
    return max(abs(p - q)) + kl(p, q) * exp(-entropy(p))

algorithm careful(target: causal, drafter: causal, gamma: int in 1..8 = 3):
    while not done:
        draft t:
            repeat gamma:
                q = drafter(t.leaves)
                x ~ q
                grow x
                break if any(apart(q, q.raw) > 0.2)
        verify t by rejection against target(t)
        commit t.accepted
"""


def test_a_new_def_becomes_one_kernel_with_no_python_written(tmp_path: Any) -> None:
    path = tmp_path / "careful.dec"
    path.write_text(NEW)
    a = decgraph.load(str(path))
    module = a.optimised(params_for(a.function, 0), Plan())
    texts = [text for op in ops_on_rows(module) for text in shown(op, 1000).values()]
    made = [text for text in texts if "tl.abs(" in text]
    assert len(made) == 1 and made[0].count("@triton.jit") == 1
    assert "tl.log(" in made[0] and "# careful.dec:3" in made[0] and made[0].count("tl.load(") <= 6
    models = models_for(a.function, 5, 0, free=False)
    params = params_for(a.function, 0)
    for r in (Request(prompt=(1, 2), limit=5, seed=3, temperature=0.6), Request(prompt=(3,), limit=4, seed=4, top_k=3)):
        want = Session(a.module, models, params, machine=backend("reference")).run(r)
        got = Session(module, models, params, machine=backend("triton")).run(r)
        assert got.error is None and want.error is None, got.error
        assert got.tokens == want.tokens


@pytest.mark.nightly
@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_gives_what_torch_gives_in_every_form(name: str, kind: torch.dtype, request_: str, values: bool) -> None:
    for seed in range(3):
        compare(name, kind, request_, seed, values=values)
