"""Device models give what the models themselves give after every path: ragged lanes, trees, moves, windows, prefixes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, cast

import pytest
import torch
from lib.engines.device_calls import Walk, gives
from lib.lazily import make, modeling
from lib.models.hf_modules import LAYER, large, logits, module
from lib.models.masked_models import masked
from lib.models.tiny import TinyModel
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from transformers import Qwen2Config, Qwen2ForCausalLM

import decgraph
from decgraph.backends.triton.models import interface
from decgraph.backends.triton.models.device import step_model
from decgraph.backends.triton.models.interface import Seen
from decgraph.backends.triton.pages import Pages
from decgraph.backends.triton.support import NotSteppable
from decgraph.check.table_models import Style, StyledModel
from decgraph.errors import DecError
from decgraph.runtime.models.engine.plain import stacked
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFFeatures
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.models.interface import Vocab
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

CLOSE = {"atol": 3e-4, "rtol": 1e-4}  # of logits of size about 10: sums are taken in another order

TABLES = [
    *(TableModel(4, 11, window=w, zeros=w > 1, heads=2) for w in (0, 1, 2, 3)),
    TableModel(3, 7),
    StyledModel(4, 5, Style(sort="mixed"), heads=2),
    StyledModel(4, 5, Style(window=2), heads=2),
    FreeModel(3, 4),
    TinyModel(3, 5),
]


def exactly(model: Any, made: Any) -> Any:
    return gives(made, lambda paths: stacked(model.eval(paths), model.vocab.size))


@pytest.mark.parametrize("model", TABLES, ids=lambda m: f"{m.name}-{getattr(m, 'window', None)}")
def test_tables_to_the_last_bit(model: Any) -> None:
    made = step_model(model, Pages(3, 40))
    assert made.exact and made.kind == "causal"
    walk = Walk(made, model.vocab.size, 3, exactly(model, made))
    walk.run([1, 2, 6], steps=4)
    if getattr(model, "heads_count", 0):
        for got, path in walk.heads():
            assert torch.equal(got, stacked(model.heads(path), model.vocab.size))


def small(kind: str, lanes: int, pages: Pages | None = None) -> tuple[Any, int, Any]:
    """A device model of a page a lane, its vocabulary's size and what compares states with the model's own."""
    pages = pages or Pages(lanes, 30)
    tables = {"window": TableModel(4, 11, window=2), "path": TableModel(4, 11)}
    if kind in tables:
        made = step_model(tables[kind], pages)
        return made, 4, exactly(tables[kind], made)
    if kind == "masked":
        return step_model(masked(3)[0], pages), 23, None
    of = module("llama" if kind == "eagle" else kind)
    if kind == "eagle":
        target = HFCausal(make.net_of_module(of), name="target", vocab=Vocab("ids", 61), context=96, family="t")
        head = HFFeatures(large(modeling.EagleHead(modeling.EagleConfig(**LAYER))), target, "eagle")
        return step_model(head, pages, target=step_model(target, pages)), 61, None
    made = step_model(from_module(of, name=kind), pages)
    return made, 61, closely(of, made)


def closely(of: Any, made: Any) -> Any:
    return gives(made, lambda paths: logits(of, paths), **CLOSE)


KINDS = ("llama", "qwen2-windows", "gpt2", "gemma2", "gemma3", "gpt_oss", "opt", "granite", "cohere")


KERNELS = dict.fromkeys(("llama", "qwen2-windows", "gpt2", "gemma2", "gemma3", "granite"), (True, True))
KERNELS |= {"cohere": (True, False), "opt": (None, None)}
"""Whether attention is a kernel's (of other architectures it is torch's), and rotation with the writing of keys too."""


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_architectures_over_random_trees(kind: str, kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decgraph.backends.triton.models.decoder.uses_kernels", lambda made: kernels)
    of = module(kind)
    made = step_model(from_module(of, name=kind), Pages(3, 60))
    Walk(made, 61, 3, closely(of, made)).run([1, 9, 4], steps=3)
    step = made.weights.last
    if kernels:
        assert (getattr(step, "kernel", None), getattr(step, "fused", None)) == KERNELS.get(kind, (False, False)), kind


@pytest.mark.parametrize("kind", [*KINDS, "gpt2 as it is"])
def test_a_lane_that_is_over_may_ask_for_any_position(kind: str) -> None:
    """A table of learned positions has no such row: on a CPU that is an error, on a GPU the end of the process."""
    of = module(kind.split()[0])
    if kind == "gpt2 as it is":
        of.config.num_key_value_heads = 2  # a setting that the decoder does not know
    made = step_model(from_module(of, name=kind), Pages(1, 30))
    assert (type(made.weights.last).__name__ == "SlotDecoder") is (kind not in ("opt", "gpt2 as it is"))
    last = torch.tensor([[29, 29]])
    made.forward(torch.tensor([[1, 1]]), torch.tensor([[-3, 5000]]), last, Seen(torch.ones_like(last)))


@pytest.mark.parametrize("kind", ["llama", "gemma3", "window", "path"])
def test_prompts_in_chunks_on_prefixes_and_copies_of_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane is filled in parts, another one shares its beginning, and a third one is filled anew with less, on pages that lie
    anywhere and of which there are more in between."""
    monkeypatch.setattr(interface, "CHUNK", 50)
    pages = Pages(3, 90, pooled=True)
    pages.grow(5)
    pages.unused = OrderedDict.fromkeys([4, 1, 3, 5, 2])
    made, size, check = small(kind, 3, pages)
    same = [n * n % 4 for n in range(64)]
    texts = [[*same, 1, 2, 3, 0, 2, 1], [*same, 3, 0, 2, 0, 0, 2, 1], [3, 2, 1]]
    for lane in (0, 2):
        pages.take(lane, 90)
    pages.take(2, 64)
    made.fill(0, texts[0], 0, 33)
    made.fill(0, texts[0], 33, 36)
    made.fill(2, [3, 3, 0, 1, 3, 3, 3, 3] * 9, 0, 72)
    pages.note(0, texts[0], 64)
    assert pages.share(1, texts[1], len(texts[1]) - 1) == 64 and pages.lanes == [[4, 1], [4], [3, 5]]
    pages.grow(2)
    pages.take(1, 90)
    made.fill(1, texts[1], 64, 6)
    made.fill(2, texts[2], 0, 2)
    at = torch.tensor([[len(t) - 1] for t in texts])
    states = made.forward(torch.tensor([[t[-1]] for t in texts]), at, at, Seen(at + 1))
    for lane, text in enumerate(texts):
        check([tuple(text)], states[lane], lane)
    with pytest.raises(DecError, match="more than the 128 slots"):
        made.fill(0, [1] * 129, 0, 129)
    with pytest.raises(DecError, match=f"token {size} is not in the vocabulary"):
        made.fill(0, [size], 0, 1)


@pytest.mark.parametrize("kind", ["llama", "qwen2-windows", "gemma3", "opt", "window", "path", "eagle", "masked"])
def test_a_forward_is_a_graph_without_reads(kind: str) -> None:
    """Traced with tensors that have no values, it gives a graph that computes the same."""
    made, _, _ = small(kind, 2)
    for lane, text in enumerate(([1, 2, 3], [3, 1, 0])):
        for each in (getattr(made, "target", None), made):
            if each is not None:
                each.fill(lane, text, 0, 3)

    def step(tokens: Tensor, positions: Tensor, tail: Tensor) -> Tensor:
        seen = Seen(positions[:, :1].expand(-1, 2), tail, positions[:, 0])
        states = made.forward(tokens, positions, positions, seen, known=positions[:, 0])
        made.move(positions, positions)
        return made.read(states)

    given = torch.tensor([[1, 2], [3, 0]]), torch.tensor([[3, 4], [3, 4]]), torch.ones(2, 2, dtype=torch.bool).tril()[None]
    graph = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*given)
    names = {str(node.target) for node in graph.graph.nodes}
    assert not {n for n in names if "_local_scalar" in n or "nonzero" in n}, names
    with torch.no_grad():
        step(*given)  # a head reads what is there of the token before
        assert torch.allclose(graph(*given), step(*given), **CLOSE)


def test_a_module_that_reads_values_back_has_no_step() -> None:
    of = module("opt")
    had = of.model.decoder.final_layer_norm.forward
    of.model.decoder.final_layer_norm.forward = lambda states: had(states) * (1.0 if float(states.sum()) < 1e30 else 2.0)
    with pytest.raises(NotSteppable, match="'reads'.*reads a tensor's values"):
        step_model(from_module(of, name="reads"), Pages(1, 40))


def test_a_module_that_fails_without_values_has_no_step() -> None:
    """As kernels do whose shapes torch computes for some types alone (grouped products in float32)."""
    of = module("opt")
    had = of.model.decoder.final_layer_norm.forward

    def only_real(states: Tensor) -> Tensor:
        if isinstance(states, FakeTensor):
            raise RuntimeError("Expected inputs of BF16 type")
        return cast("Tensor", had(states))

    of.model.decoder.final_layer_norm.forward = only_real
    with pytest.raises(NotSteppable, match="'fails'.*cannot be tried without values: Expected inputs of BF16"):
        step_model(from_module(of, name="fails"), Pages(1, 40))


@pytest.mark.budget(8)
def test_a_window_that_is_shorter_than_a_tree_is_deep() -> None:
    """There the position of a slot is not its number: nodes of a level stand side by side."""
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    sizes = {"vocab_size": 23, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    windows = {"layer_types": ["sliding_attention"] * 2, "use_sliding_window": True, "sliding_window": 2}
    config = Qwen2Config(**sizes, **windows, **ends, num_hidden_layers=2, max_position_embeddings=256)
    torch.manual_seed(1)
    target, drafter = (Qwen2ForCausalLM(config).eval() for _ in range(2))
    with torch.no_grad():
        for mine, theirs in zip(drafter.parameters(), target.parameters(), strict=True):
            mine.copy_(theirs + 0.02 * torch.randn_like(theirs))
    asked = [
        Request(tuple((3 * k + n) % 23 for k in range(9 + n)), 24, seed=n, temperature=n % 2, request_id=n) for n in range(4)
    ]
    models = {"target": target, "drafter": drafter}
    steps, driven = (decgraph.load("sequoia").session(models, backend=b).generate(asked, batch=4) for b in ("triton", "torch"))
    assert {r.mode for r in steps} == {"graph mode"} and max(len(r.stats.accepted) for r in steps) > 5
    assert [r.tokens for r in steps] == [r.tokens for r in driven]
