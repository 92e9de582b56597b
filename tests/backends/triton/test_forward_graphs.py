"""Programs without a whole step: their forwards are captured, a graph for each shape, and commit the reference's tokens. A tape
of operations stands for the CUDA graph: it has the tensors of the capture, and no Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lib.devices.emulated_cuda import Played, played_cuda
from lib.devices.without_sync import Unread
from lib.lazily import make
from lib.models.hf_models import V, llama
from lib.stdlib.recorded_runs import Pieces
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import decgraph
from decgraph.backends.triton import run
from decgraph.check.validation import outside
from decgraph.check.worlds import params_for
from decgraph.models import request_for
from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.engine import causal, forward_graphs
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.nets import layout_of
from decgraph.runtime.models.engine.of import causal_engine_of
from decgraph.runtime.models.engine.slots import Layout
from decgraph.runtime.models.engine.step import ForwardStep

WITHOUT = ("cfg", "beam", "rest", "suffix_decoding", "assisted", "lattice", "lookahead", "best_of_n", "grammar")


class Tape(TorchDispatchMode):
    """Notes operations, and does them again with the same tensors; what they give is made anew."""

    replays = 0

    def __init__(self, record: Callable[[], object], device: torch.device) -> None:
        super().__init__()
        self.done: list[tuple[Any, Any, Any, Any]] = []
        with self:
            record()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "the host reads a number in a capture"
        out = func(*args, **(kwargs or {}))
        self.done.append((func, args, kwargs or {}, out))
        return out

    def __call__(self) -> None:
        Tape.replays += 1
        made: dict[int, Tensor] = {}
        with torch.inference_mode():
            for func, args, kwargs, out in self.done:
                given, named = tree_map_only(Tensor, lambda t: made.get(id(t), t), (args, kwargs))
                now = func(*given, **named)
                for was, new in zip(*map(_tensors, (out, now)), strict=True):
                    made[id(was)] = new


def _tensors(value: Any) -> list[Tensor]:
    return [t for t in (value if isinstance(value, tuple | list) else [value]) if isinstance(t, Tensor)]


@pytest.fixture(autouse=True)
def as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def graphs_of(step: ForwardStep, layout: Layout) -> forward_graphs.ForwardGraphs | None:
        decoded = forward_graphs.decoder_in(step) is not None
        return forward_graphs.ForwardGraphs(step, Tape, layout.device) if decoded else None

    monkeypatch.setattr(causal, "graphs_of", graphs_of)
    Tape.replays = 0


def session(name: str, backend: str, modules: list[Any]) -> Any:
    algorithm = decgraph.load(name)
    params = algorithm.function.params
    models = [p.name for p in params if p.value.type.elem == "model"]
    asked = {"g"} | {p.name for p in params if p.default is None}
    given: dict[str, Any] = {k: v for k, v in params_for(algorithm.function, 1, vocab=V).items() if k in asked}
    named: dict[str, Any] = {"externs": outside(algorithm.module)["externs"], "tokenizer": Pieces([f"t{n}" for n in range(V)])}
    return algorithm.session(dict(zip(models, modules)), backend=backend, **named, **given)


def modules() -> list[Any]:
    return [llama(seed, eos_token_id=None).double() for seed in (1, 2)]


@pytest.mark.budget(20)
@pytest.mark.quick("cfg", "assisted")
@pytest.mark.parametrize("name", WITHOUT)
def test_recorded_forwards_commit_the_same(name: str) -> None:
    runs = {backend: session(name, backend, modules()) for backend in ("reference", "triton")}
    for temperature in (0.0, 1.0):
        request = request_for(runs["triton"], prompt=[5, 9, 11, 5, 9, 11, 5], max_tokens=16, temperature=temperature, seed=3)
        want, got = (runs[backend].run(request, keep_events=False) for backend in ("reference", "triton"))
        assert got.error is None and got.tokens == want.tokens, got.error
    assert Tape.replays > 10
    assert got.mode.startswith(run.FORWARDS), got.mode


def engine(made: Any) -> CausalEngine:
    found = causal_engine_of(made.models["target"])
    assert isinstance(found, CausalEngine) and found.graphs is not None
    return found


def test_a_text_that_outgrows_its_rows_has_new_graphs_and_few() -> None:
    made, plain = session("cfg", "triton", modules()[:1]), session("cfg", "reference", modules()[:1])
    request = request_for(made, prompt=[5, 9], max_tokens=150)
    assert made.run(request, keep_events=False).tokens == plain.run(request, keep_events=False).tokens
    graphs = engine(made).graphs
    assert graphs is not None and 1 < len(graphs.known) <= 8, "one a size, not one a length"


def test_what_fails_to_be_captured_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session("cfg", "triton", modules()[:1])

    def fails(run: Callable[[], object], device: torch.device) -> Callable[[], None]:
        raise RuntimeError("capture failed")

    graphs = engine(made).graphs
    assert graphs is not None
    monkeypatch.setattr(graphs, "record", fails)
    request = request_for(made, prompt=[5, 9], max_tokens=12)
    got = made.run(request, keep_events=False)
    assert got.tokens == session("cfg", "reference", modules()[:1]).run(request, keep_events=False).tokens
    assert got.mode.startswith(run.EAGER)


def test_the_least_used_graph_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_graphs, "MOST", 2)
    made = session("beam", "triton", modules()[:1])
    request = request_for(made, prompt=[5, 9], max_tokens=24)
    got = made.run(request, keep_events=False)
    assert got.tokens == session("beam", "reference", modules()[:1]).run(request, keep_events=False).tokens
    graphs = engine(made).graphs
    assert graphs is not None and len(graphs.known) == 2


class Watched(Tape):
    """What is captured reads no value, and makes nothing of the host's numbers; the played device finds mixed devices."""

    def __init__(self, record: Callable[[], object], device: torch.device) -> None:
        with Unread(copies=False):
            super().__init__(record, device)


def test_an_engine_on_a_device_captures_what_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # `graphs_of` as it is
    monkeypatch.setattr(forward_graphs, "recorder", Watched)
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)  # whose tensors the played device has not
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (1 << 40, 1 << 40))
    here = make.net_of_module(modules()[0]).decoder

    def engine(decoder: TransformerDecoder) -> CausalEngine:
        return CausalEngine(decoder, layout_of(decoder), decoder.logits, name="target", size=V, context=256)

    with played_cuda() as device:
        weights = {name: w.to(device) for name, w in here.weights.items()}
        products = {name: Product(*(w.to(device) for w in p.weights)) for name, p in here.products.items()}
        ropes = {name: (frequencies.to(device), factor) for name, (frequencies, factor) in here.ropes.items()}
        plain, there = engine(here), engine(TransformerDecoder(here.shape, weights, products, ropes))
        text = [5, 9, 11]
        assert plain.graphs is None and there.graphs is not None
        for _ in range(12):
            call = ForwardCall("text", tuple(text), tokens=[7, 8, 9], parents=[-1, 0, -1], uids=[3, 4, 5], rows=[-1, 1, 2])
            (want,), (got,) = plain.compute([call]), there.compute([call])
            assert isinstance(want, Tensor) and isinstance(got, Played)
            torch.testing.assert_close(got.here, want)
            text.append(int(want[0].argmax()))
            there.rewind("text", text)
            plain.rewind("text", text)
        assert Tape.replays > 5 and there.graphs.used


SHAPES = [(1, 17, 64, (1, 64)), (3, 17, 512, (4, 256)), (33, 300, 512, (64, 512)), (64, 2000, 4096, (64, 2048)),
          (65, 300, 512, (65, 300))]  # fmt: skip


@pytest.mark.parametrize(("width", "rows", "most", "made"), SHAPES)
def test_shapes_are_rounded_up(width: int, rows: int, most: int, made: tuple[int, int]) -> None:
    graphs = engine(session("cfg", "triton", modules()[:1])).graphs
    assert graphs is not None and graphs.rounded(width, rows, most) == made
