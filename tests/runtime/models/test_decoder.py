"""The decoder gives what transformers' own module gives, in float64, for every entry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lib.lazily import make
from lib.models.family_configs import CONFIGS, random_model
from torch import Tensor
from torch.overrides import TorchFunctionMode

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.shape import FULL, SLIDING, UnknownToDecoder

ROWS, LENGTH, BATCH = 48, 20, 2
CHUNKS = (5, 1, 1, 8, 5)
PARENTS = (-1, -1, 0, 0, 1, 3, 5, 2, 7)
"""A tree of nine nodes below a context; -1: the context's last token."""
NEAR = 1e-12


class Wide(TorchFunctionMode):
    """What modules compute in float32 whatever their weights are, they compute in float64."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.float:
            return args[0].double()
        wide = {key: torch.float64 if value is torch.float32 else value for key, value in (kwargs or {}).items()}
        return function(*(torch.float64 if a is torch.float32 else a for a in args), **wide)


def exact(base: Any, decoder: TransformerDecoder) -> None:
    """The module's angles in float64, where it computes them anew or has them as a table."""
    for kind, (frequencies, factor) in decoder.ropes.items():
        r = decoder.shape.rope[kind]
        if r["rope_type"] == "default" and base.config.model_type in ("gptj", "codegen", "phimoe"):
            halves = torch.arange(len(frequencies), dtype=torch.float64) / len(frequencies)
            decoder.ropes[kind] = r["rope_theta"] ** -halves, factor
    for module in base.modules():
        if "embed_positions" in dict(module.named_buffers(recurse=False)):
            angles = torch.arange(len(module.embed_positions))[:, None] * decoder.ropes[FULL][0]
            module.embed_positions = torch.cat([angles.sin(), angles.cos()], -1)


class Cells:
    """A decoder over keys and values at scattered rows, other ones for each sequence."""

    def __init__(self, decoder: TransformerDecoder, batch: int = BATCH) -> None:
        s = decoder.shape
        self.decoder, self.batch = decoder, batch
        heads = s.heads if s.latent else s.kv_heads
        self.keys = [torch.zeros(batch, heads, ROWS, s.head, dtype=torch.float64) for _ in s.layers]
        self.values = [torch.zeros(batch, heads, ROWS, s.value or s.head, dtype=torch.float64) for _ in s.layers]
        self.rows = torch.stack([torch.randperm(ROWS) for _ in range(batch)])
        self.positions: list[int] = []
        self.seen: list[list[int]] = []

    def run(self, ids: Tensor, parents: list[int], decoder: TransformerDecoder | None = None) -> Any:
        """Tokens [B, T] (or states) whose parents are these cells, -1 for none."""
        first = len(self.positions)
        for parent in parents:
            self.positions.append(self.positions[parent] + 1 if parent >= 0 else 0)
            self.seen.append([*(self.seen[parent] if parent >= 0 else []), len(self.seen)])
        now = range(first, len(self.positions))
        masks = {}
        for kind, window in ((FULL, None), *((SLIDING, w) for w in self.decoder.windows if w)):
            sees = torch.zeros(self.batch, 1, len(now), ROWS, dtype=torch.bool)
            for t, cell in enumerate(now):
                far = self.positions[cell] - (window or ROWS)
                near = [other for other in self.seen[cell] if self.positions[other] > far]
                for b in range(self.batch):
                    sees[b, 0, t, self.rows[b, near]] = True
            masks[kind] = sees
        at = torch.tensor([self.positions[cell] for cell in now]).expand(self.batch, -1)
        return (decoder or self.decoder)(ids, at, self.rows[:, first : first + len(now)], self.keys, self.values, masks)


def far(mine: Tensor, theirs: Tensor) -> float:
    return float((mine - theirs).abs().max() / theirs.abs().max())


def theirs(model: Any, ids: Tensor) -> tuple[list[Tensor], Tensor]:
    """The states that enter each layer, the last after the final norm; and logits."""
    torch.set_default_dtype(torch.float64)
    try:
        with Wide(), torch.no_grad():
            out = model(input_ids=ids, use_cache=False, output_hidden_states=True)
    finally:
        torch.set_default_dtype(torch.float32)
    return list(out.hidden_states), out.logits


@pytest.fixture(scope="module")
def pair() -> Callable[[str], tuple[Any, TransformerDecoder]]:
    def of_name(name: str) -> tuple[Any, TransformerDecoder]:
        model = random_model(name)
        decoder = make.of_module(model.base_model)
        exact(model.base_model, decoder)
        torch.manual_seed(1)
        return model, decoder

    return of_name


@pytest.mark.budget()
@pytest.mark.parametrize("name", CONFIGS)
def test_states_are_the_modules(name: str, pair: Callable[[str], tuple[Any, TransformerDecoder]]) -> None:
    model, decoder = pair(name)
    ids = torch.randint(97, (BATCH, LENGTH))
    states, logits = theirs(model, ids)

    # At once, with the states between the layers, and the logits of the last.
    whole, between = Cells(decoder).run(ids, list(range(-1, LENGTH - 1)), decoder.tapped(*range(len(states) - 1)))
    assert far(whole, states[-1]) < NEAR
    assert all(far(mine, own) < NEAR for mine, own in zip(between, states, strict=False))
    out = model.get_output_embeddings()
    decoder.products["out"] = Product(out.weight, biases=(out.bias,))
    assert far(decoder.logits(whole.flatten(0, 1)), logits.flatten(0, 1)) < NEAR

    # In chunks, then a tree below them.
    cells, done = Cells(decoder), 0
    for count in CHUNKS:
        got = cells.run(ids[:, done : done + count], list(range(done - 1, done + count - 1)))
        assert far(got, states[-1][:, done : done + count]) < NEAR
        done += count
    nodes = torch.randint(97, (BATCH, len(PARENTS)))
    got = cells.run(nodes, [LENGTH - 1 if p < 0 else LENGTH + p for p in PARENTS])
    for leaf in set(range(len(PARENTS))) - set(PARENTS):
        path = [cell - LENGTH for cell in cells.seen[LENGTH + leaf] if cell >= LENGTH]
        own = theirs(model, torch.cat([ids, nodes[:, path]], 1))[0][-1]
        assert far(got[:, path], own[:, LENGTH:]) < NEAR


@pytest.mark.parametrize("name", ["llama", "gemma3_text, scaled", "gpt2", "cohere2", "deepseek_v3", "ministral3, temperature"])
def test_parts_are_the_whole(name: str, pair: Callable[[str], tuple[Any, TransformerDecoder]]) -> None:
    model, decoder = pair(name)
    ids, parents = torch.randint(97, (BATCH, LENGTH)), list(range(-1, LENGTH - 1))
    states = theirs(model, ids)[0]
    for layer in range(len(states)):
        cells = Cells(decoder)
        entering = cells.run(ids, parents, decoder.using(decoder.uses[:layer]).without_norm())
        if layer < len(states) - 1:
            assert far(entering, states[layer]) < NEAR
            early = Cells(decoder).run(ids, parents, decoder.using(decoder.uses[:layer]))
            norm = next(m for at, m in model.base_model.named_modules() if at in ("norm", "ln_f"))
            with Wide():
                assert far(early, norm(entering)) < NEAR
        cells.positions, cells.seen = [], []
        assert far(cells.run(entering, parents, decoder.since(layer)), states[-1]) < NEAR
    last, (tapped,) = Cells(decoder).run(ids, parents, decoder.tapped(decoder.layers))
    assert far(last, states[-1]) < NEAR and far(tapped, entering) < NEAR
    for wrong in (
        lambda: decoder.since(9),
        lambda: decoder.since(2).tapped(1),
        lambda: decoder.using(decoder.uses[:1]).since(2),
    ):
        with pytest.raises(DecError, match="layers"):
            wrong()


def test_positions_past_the_first_table(pair: Callable[[str], tuple[Any, TransformerDecoder]]) -> None:
    """Cosines are looked up in a table that grows."""
    _, decoder = pair("llama")
    frequencies, _ = decoder.ropes[FULL]
    for reach in (3, 700, 5):
        cos, sin = decoder.rotations(torch.tensor([[reach]]))[FULL][:2]
        angle = torch.cat([reach * frequencies.double()] * 2)
        assert far(cos[0, 0, 0], angle.cos()) < NEAR and far(sin[0, 0, 0], angle.sin()) < NEAR


@pytest.mark.parametrize("name", ["llama", "gemma2", "mixtral", "deepseek_v3", "gpt2"])
def test_float32_is_as_near_as_the_module(name: str) -> None:
    """The decoder's error beside float64 is about the module's own."""
    model = random_model(name, torch.float32)
    ids = torch.randint(97, (1, LENGTH))
    with torch.no_grad():
        own = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    decoder = make.of_module(model.base_model)
    cells = Cells(decoder, 1)
    cells.keys, cells.values = [k.float() for k in cells.keys], [v.float() for v in cells.values]
    mine = cells.run(ids, list(range(-1, LENGTH - 1)))
    assert mine.dtype == torch.float32
    true = theirs(model.double(), ids)[0][-1]
    assert far(mine.double(), true) < 3 * far(own.double(), true) + 1e-7


@pytest.mark.parametrize("where", ["layers.1.mlp.gate_proj", "layers.0.self_attn", ""])
def test_a_tensor_that_nothing_reads_is_refused(where: str) -> None:
    base = random_model("llama").base_model
    base.get_submodule(where).register_parameter("more", torch.nn.Parameter(torch.ones(2)))
    with pytest.raises(UnknownToDecoder, match=f"nothing reads {f'{where}.' if where else ''}more"):
        make.of_module(base)


def test_a_buffer_that_files_have_and_nothing_reads_is_refused() -> None:
    base = random_model("llama").base_model
    base.layers[1].register_buffer("scalar", torch.ones(1), persistent=False)
    make.of_module(base)  # files have no such thing: it is the module's own
    base.layers[1].register_buffer("factor", torch.ones(1))
    with pytest.raises(UnknownToDecoder, match=r"nothing reads layers\.1\.factor"):
        make.of_module(base)


@pytest.mark.parametrize(
    "gone",
    [
        "layers.1.input_layernorm",
        "layers.2.post_attention_layernorm",
        "norm",
        "layers.0.self_attn.o_proj",
        "layers.0.mlp.up_proj",
    ],
)
def test_a_tensor_that_is_missing_is_named(gone: str) -> None:
    base = random_model("llama").base_model
    at, _, last = gone.rpartition(".")
    setattr(base.get_submodule(at), last, torch.nn.Identity())
    with pytest.raises(UnknownToDecoder, match=gone.replace(".", r"\.")):
        make.of_module(base)


def test_router_biases_choose_experts(pair: Callable[[str], tuple[Any, TransformerDecoder]]) -> None:
    """They are buffers, which `named_parameters` does not list: another bias is another model."""
    model, decoder = pair("glm4_moe")
    ids, parents = torch.randint(97, (BATCH, LENGTH)), list(range(-1, LENGTH - 1))
    before = Cells(decoder).run(ids, parents)
    for at, bias in model.named_buffers():
        if at.endswith("e_score_correction_bias"):
            bias.copy_(torch.tensor([3.0, -3.0, 3.0, -3.0]))
    after = Cells(make.of_module(model.base_model)).run(ids, parents)
    assert far(after, theirs(model, ids)[0][-1]) < NEAR < 1e-3 < far(after, before)


def test_queries_grow_with_their_positions(pair: Callable[[str], tuple[Any, TransformerDecoder]]) -> None:
    _, decoder = pair("ministral3, temperature")
    grown = decoder.rotations(torch.tensor([[7, 8, 24]]))[FULL][2].flatten()
    assert grown.tolist() == pytest.approx([1.0, 1 + 0.3 * math.log(2), 1 + 0.3 * math.log(4)])
