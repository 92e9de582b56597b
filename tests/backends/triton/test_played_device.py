"""Whole steps on an emulated CUDA device (tests/lib/devices/emulated_cuda.py): every algorithm of docs/reference/steps.md runs
there, its recorded steps are replayed, and nothing in a step reads a value, mixes devices or is made on the host."""

from __future__ import annotations

import re
import runpy
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lib.devices.emulated_cuda import Capture, Played, Refused, played_cuda
from lib.devices.without_sync import READS
from lib.lazily import make
from lib.models.hf_models import V, llama
from lib.repository import ROOT
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from decgraph.api import load
from decgraph.backends.triton import lanes, program, replay
from decgraph.backends.triton.bodies import Bodies
from decgraph.backends.triton.evaluate import Evaluator
from decgraph.backends.triton.state import Step
from decgraph.check.worlds import models_for, params_for
from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.interface import Vocab
from decgraph.runtime.request import Request
from decgraph.runtime.result import Result

STEPS = runpy.run_path(str(ROOT / "docs" / "reference" / "steps.py"))
NAMES = re.findall(r"`(\w+)`", STEPS["PAGE"].read_text(encoding="utf-8").split("## ")[1])


class Watch(TorchDispatchMode):
    """Raises AssertionError where a value comes to the host or goes from there to the device, and where a tensor is on the
    host. on: False where a step may."""

    on = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if Watch.on:
            self.check(func, args, kwargs or {}, out)
        return out

    def check(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """One operation, and what it gave."""
        name = func.overloadpacket.__name__
        places = name in ("index", "index_put", "index_put_")
        small = places or name == "_to_copy"  # what copies single numbers too, which others take as the host's
        masks = places and any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        sized = torch.Tag.dynamic_output_shape in func.tags and name != "index"
        if name in READS or masks or sized or torch.Tag.data_dependent_output in func.tags:
            raise AssertionError(f"{func} in a step reads a value ({place()})")
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor) and t.device.type != "meta"]
        sides = {isinstance(t, Played) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and (t.ndim or small)}
        sides |= {isinstance(t, Played) for t in made} if name == "_to_copy" else set()
        if (small or name == "copy_") and len(sides) > 1:
            raise AssertionError(f"{func} in a step copies between the devices ({place()})")
        if any(t.ndim and not isinstance(t, Played) for t in made):
            raise AssertionError(f"{func} in a step makes a tensor on the CPU ({place()})")


def place() -> str:
    """The line of the backend that runs an operation."""
    here = [f for f in traceback.extract_stack() if "backends/triton/" in f.filename and "test" not in f.filename]
    return f"{here[-1].filename.rsplit('/', 1)[-1]}:{here[-1].lineno}" if here else "?"


@contextmanager
def watching(on: bool) -> Iterator[None]:
    """Whether `Watch` looks at what is run in a step."""
    had, Watch.on = Watch.on, on
    try:
        yield
    finally:
        Watch.on = had


class Bodily(replay.Replayed):
    """A recorded body of a loop, which is watched while it is recorded."""

    def __init__(self, body: Callable[[], list[Tensor]], step: Step) -> None:
        def run() -> list[Tensor]:
            with watching(True):
                return body()

        with watching(False), Capture.begun():  # what the graph becomes is no part of the step
            super().__init__(run, step, step.device)

    def __call__(self) -> None:
        with watching(False):
            super().__call__()


def alone(run: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """A recording that is replayed by running the function: begun alone, as on a device."""
    with Capture.begun():
        return run


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """The played device, on which programs run as on a real one, and their steps are watched."""
    with played_cuda() as made:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (1 << 40, 1 << 40))
        monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda: None, synchronize=lambda: None))
        monkeypatch.setattr(replay, "aside", lambda run, device: run())
        monkeypatch.setattr(replay, "captured", alone)
        for where in (lanes, program):
            monkeypatch.setattr(where, "home", lambda models: made)
        monkeypatch.setattr(program, "recorded", Bodily)
        monkeypatch.setenv("DECGRAPH_COMPILE", "0")
        for name in ("prologue", "body"):
            monkeypatch.setattr(Step, name, watched(getattr(Step, name)))
        monkeypatch.setattr(Evaluator, "reads", allowed(Evaluator.reads))
        monkeypatch.setattr(Step, "fill", allowed(Step.fill))
        monkeypatch.setattr(Step, "constant", constant(Step.constant))
        monkeypatch.setattr(program.Program, "__init__", recording(program.Program.__init__))
        yield made


def watched(method: Any) -> Any:
    def inner(self: Any, *args: Any) -> Any:
        with Watch():
            return method(self, *args)

    return inner


def allowed(method: Any) -> Any:
    def inner(self: Any, *args: Any) -> Any:
        with watching(False):
            return method(self, *args)

    return inner


def constant(method: Any) -> Any:
    """Constants are made before a step is recorded."""

    def inner(self: Step, *args: Any) -> Any:
        if self.recording:
            return method(self, *args)
        with watching(False):
            return method(self, *args)

    return inner


def recording(method: Any) -> Any:
    """Tables of whole paths are an operation here, which a graph may have."""

    def inner(self: Any, *args: Any) -> None:
        method(self, *args)
        self.records = not self.loops
        if self.loops and self.step.bodies is None:
            self.step.bodies = Bodies(self.step, Bodily)

    return inner


REQUESTS = [
    Request((1, 2, 3, 1, 2), max_tokens=8, seed=9, temperature=1, eos=frozenset({4})),
    Request((3, 1), max_tokens=6, seed=8, temperature=0, request_id=1),
]


def ran(name: str) -> tuple[list[Result], list[Result]]:
    """What the reference makes of the requests, and what the played device does."""
    algorithm = load(name)
    models = models_for(algorithm.function, STEPS["VOCAB"], STEPS["SEED"])
    params = params_for(algorithm.function, STEPS["SEED"], vocab=STEPS["VOCAB"])
    reference, steps = (algorithm.session(models, backend=backend, **params) for backend in ("reference", "triton"))
    return [reference.run(r) for r in REQUESTS], steps.generate(REQUESTS, batch=2)


@pytest.mark.budget(12)
@pytest.mark.quick("autoregressive", "eagle2", "fast_dllm")
@pytest.mark.parametrize("name", NAMES)
def test_steps_stay_on_the_device(name: str, device: torch.device) -> None:
    want, got = ran(name)
    assert {g.mode for g in got} == {"graph mode"}
    assert [(g.tokens, g.reason) for g in got] == [(w.tokens, w.reason) for w in want]


FAULTS: dict[str, tuple[Callable[[Step], Tensor], str]] = {
    "a tensor without a device": (lambda s: s.done | torch.zeros(2, dtype=torch.bool), "makes a tensor on the CPU"),
    "a number of the host's": (lambda s: s.done | torch.tensor(False, device=s.device), "copies between the devices"),
    "a tensor of before": (lambda s: s.done | BEFORE, "tensors of two devices"),
    "a number that is read": (lambda s: s.done if bool(s.done.all()) else s.done | s.lost, "reads a value"),
    "a list that is read": (lambda s: s.done if s.done.tolist() else s.lost, "copies between the devices"),
    "a mask as an index": (lambda s: s.done | s.done[s.done].any(), "reads a value"),
    "a number at places": (lambda s: s.done.index_put((s.steps(1),), torch.tensor(False)), "copies between the devices"),
}
BEFORE = torch.zeros(2, dtype=torch.bool)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_leaves_the_device_is_found(fault: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    over, said = FAULTS[fault]
    monkeypatch.setattr(Step, "over", over)
    _, got = ran("autoregressive")
    assert all(said in g.mode for g in got), [g.mode for g in got]


REFUSALS: dict[str, tuple[Callable[[torch.device], object], str]] = {
    "bools that are reduced": (lambda d: flags(d).scatter_reduce(0, flags(d).long(), flags(d), "amax"), "not implemented for"),
    "the largest of bools": (lambda d: flags(d).topk(1), "not implemented for"),
    "a product of integers": (lambda d: torch.mm(flags(d).long()[None], flags(d).long()[:, None]), "not implemented for"),
    "a mask within a word": (lambda d: attended(flags(d).float()[1:]), "misaligned address"),
}


def flags(device: torch.device) -> Tensor:
    return torch.ones(33, dtype=torch.bool, device=device)


def attended(mask: Tensor) -> Tensor:
    """Attention of one query over as many keys as a mask has."""
    x = torch.ones((1, 1, len(mask), 16), device=mask.device)
    return torch.ops.aten._scaled_dot_product_efficient_attention(x[:, :, :1], x, x, mask[None, None, None], False)[0]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_cuda_refuses_is_refused(refusal: str, device: torch.device) -> None:
    call, said = REFUSALS[refusal]
    with pytest.raises(Refused, match=said):
        call(device)


def test_a_capture_within_a_capture_is_refused(device: torch.device) -> None:
    with Capture.begun(), pytest.raises(Refused, match="another capture"):
        alone(lambda: None, device)


def test_no_operator_writes_an_optional_argument() -> None:
    """Which torch 2.11 cannot call (found on a device)."""
    for file in ("attend", "race", "truncate"):
        import_module(f"decgraph.backends.triton.kernels.{file}")
    found = [getattr(torch.ops.decgraph, name) for name in dir(torch.ops.decgraph)]
    schemas = {op.default._schema for op in found if isinstance(op, torch._ops.OpOverloadPacket)}
    assert {"decgraph::attend", "decgraph::draw"} <= {s.name for s in schemas}
    written = [(s.name, a) for s in schemas for a in s.arguments if a.alias_info is not None and a.alias_info.is_write]
    assert written and not [(name, a.name) for name, a in written if isinstance(a.type, torch.OptionalType)]


def on_device(module: Any, device: torch.device) -> HFCausal:
    """A model whose decoder has its weights on the played device."""
    net = make.net_of_module(module)
    here = net.decoder
    weights = {name: w.to(device) for name, w in here.weights.items()}
    products = {name: Product(*(w.to(device) for w in p.weights)) for name, p in here.products.items()}
    ropes = {name: (frequencies.to(device), factor) for name, (frequencies, factor) in here.ropes.items()}
    there = Net(TransformerDecoder(here.shape, weights, products, ropes), net.config)
    return HFCausal(there, name="target", vocab=Vocab("ids", V), context=512, family="llama")


@pytest.mark.budget(14)
@pytest.mark.parametrize("name", ["autoregressive", "speculative"])
def test_pages_and_chunks_of_prompts_stay_on_the_device(
    name: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests of all lengths, greedy and drawn, that arrive one after the other: their pages, and chunks of their prompts in
    the steps of others."""
    chunks, run = list[Any](), program.Program.run_with_chunk
    monkeypatch.setattr(program.Program, "run_with_chunk", lambda *args: chunks.append(args) or run(*args))
    modules = [llama(n) for n in range(2)][: 1 + (name == "speculative")]
    roles = ("target", "drafter")
    asked = [
        Request(tuple((7 * n + 3 * k) % V for k in range(size)), max_tokens=9, seed=n, temperature=n % 2, request_id=n)
        for n, size in enumerate((5, 90, 40, 130))
    ]
    plain = load(name).session(dict(zip(roles, modules)), backend="torch")
    want = [plain.run(r).tokens for r in asked]
    with watching(False):
        played = {role: on_device(module, device) for role, module in zip(roles, modules)}
        session = load(name).session(played, backend="triton")
        results: dict[int, Any] = {}
        flight = lanes.Steps(
            lambda n, m, e: results.update({n: e or m}), lambda *why: pytest.fail(str(why)), width=4, chunk=32, more=True
        )
        for n, request in enumerate(asked):
            flight.join(n, session.begin(request).machine)
            flight.advance()
            flight.advance()
        while flight.advance():
            pass
    assert [tuple(results[n].committed_tokens()) for n in range(len(asked))] == want
    assert len(chunks) > 4 and {p.pages.pooled for p, *_ in chunks} == {True}
