"""Heads and early exits on the device give what the models without caches give."""

from __future__ import annotations

import random
from pathlib import Path as File
from typing import Any

import pytest
import torch
from hf_modules import LAYER, large, module
from lockstep import Lane, Lockstep, Path
from torch import Tensor
from unread import nothing_read

from decgraph.backends.triton.step.causal import CausalOnDevice, device_model
from decgraph.backends.triton.step.causal_graph import kernel_attention
from decgraph.backends.triton.step.heads import FeaturesOnDevice
from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.engine.plain import stacked
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFAdapter, HFFeatures, HFHeads
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableFeatures, TableModel
from decgraph.zoo import modeling

V, WIDTH = 61, 32
# Of float32 logits of size about 10: sums are taken in another order over other numbers of slots.
_CLOSE = {"atol": 3e-4, "rtol": 1e-4}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> HFCausal:
    path = tmp_path_factory.mktemp("models") / "llama"
    module("llama").save_pretrained(path)
    made = hf.load_causal(File(path), reuse=True)
    assert isinstance(made, HFCausal)
    return made


def on_device(model: Model, batch: int, capacity: int, tail: int) -> CausalOnDevice:
    made = device_model(model, batch, capacity, tail)
    assert isinstance(made, CausalOnDevice)
    return made


def check(model: Model) -> Any:
    def compare(paths: list[Path], scores: Tensor) -> None:
        want = stacked(model.eval(paths), V)
        assert torch.allclose(scores.double(), want, **_CLOSE), (scores - want).abs().max()

    return compare


@pytest.mark.parametrize("how", [(), ("exit", 1), ("exit", 3), ("skip", {0}), ("skip", {1, 2}), ("quantized", 4)])
def test_loaded_and_derived_models(target: HFCausal, how: Any) -> None:
    model = derive(target, *how) if how else target
    run = Lockstep(on_device(model, 2, 60, 20), V, 2, check(model))
    run.run([5, 1], steps=4, nodes=7)
    assert max(run.moved) > 1


@pytest.mark.parametrize("layer", [1, 2])
def test_early_exits_with_and_without_an_adapter(target: HFCausal, layer: int) -> None:
    adapter = HFAdapter(large(modeling.ExitAdapter(modeling.ExitConfig(exit_layer=layer, **LAYER))), target, "exit")
    upto = derive(target, "upto", layer)
    for drafter in (derive(target, "head", upto), derive(target, "head", derive(adapter, "on", upto))):
        made = on_device(drafter, 2, 60, 20)
        assert len(made.keys) == layer + (drafter.inner is not upto)
        Lockstep(made, V, 2, check(drafter)).run([5, 1], steps=3, nodes=7)


def test_medusa_heads(target: HFCausal) -> None:
    medusa = HFHeads(large(modeling.MedusaHeads(modeling.MedusaConfig(hidden_size=WIDTH, inner_size=48, heads=3))), target, "m")
    both = target.with_heads(medusa)
    made, counted = on_device(both, 2, 70, 20), []

    rng = random.Random(3)

    def heads(lanes: list[Lane], cells: int) -> None:
        reach = [lane.held + min(cells, len(lane.committed) - lane.held) for lane in lanes]
        slots = torch.tensor([rng.randrange(n) for n in reach])  # moved ones among them
        with nothing_read():
            got = made.heads(slots)
        for lane, slot, row in zip(lanes, slots, got, strict=True):
            want = stacked(both.heads(tuple(lane.committed[: int(slot) + 1])), V)
            assert row.shape == (3, V) and torch.allclose(row.double(), want, **_CLOSE)
            counted.append(int(slot))

    run = Lockstep(made, V, 4, check(target), reads=heads)
    run.run([6, 2], steps=6, nodes=8)
    assert len(set(counted)) > 4 and run.shifted > 2
    with pytest.raises(DecError, match="no heads"):
        on_device(target, 1, 40, 8).heads(torch.tensor([0]))


class Drafting:
    """EAGLE's way: committed tokens that the head has not read yet, then a tree below the last one, level by level."""

    def __init__(self, model: HFFeatures, target: CausalOnDevice, made: FeaturesOnDevice, seed: int) -> None:
        self.model, self.target, self.made, self.rng = model, target, made, random.Random(seed)
        self.most = 0

    def run(self, prompts: list[int], steps: int) -> None:
        rng = self.rng
        texts = [[rng.randrange(V) for _ in range(n)] for n in prompts]
        self.target.begin(texts)
        self.made.begin(texts)
        held = [n - 1 for n in prompts]
        for _ in range(steps):
            held = self.step(texts, held)

    def step(self, texts: list[list[int]], held: list[int]) -> list[int]:
        rng, batch = self.rng, len(texts)
        pending = [len(t) - h for t, h in zip(texts, held)]
        span = max(pending)
        # Padding comes first, so that what is kept has to be moved.
        skip = [span - n for n in pending]
        bits = [[(2 << j) - (1 << n) if j >= n else 0 for j in range(span)] for n in skip]
        tokens = [[t[h + j - n] if j >= n else 1 << 40 for j in range(span)] for t, h, n in zip(texts, held, skip)]
        positions = [[h + j - n for j in range(span)] for h, n in zip(held, skip)]
        rows = [[span - 1]] * batch
        got = self.forward(texts, held, tokens, positions, 0, bits, rows)
        self.compare(texts, [[()] for _ in texts], got)
        # A tree of three levels below the root, the same shape everywhere.
        paths: list[list[tuple[int, ...]]] = [[()] for _ in texts]
        sees = [[one[-1]] for one in bits]
        first = span
        for width in (2, 3, 2):
            parents = [rng.randrange(len(paths[0])) for _ in range(width)]
            new = [[rng.randrange(V) for _ in range(width)] for _ in texts]
            bits = [[sees[b][p] | 1 << (first + j) for j, p in enumerate(parents)] for b in range(batch)]
            positions = [[len(t) + len(paths[0][p]) for p in parents] for t in texts]
            got = self.forward(texts, held, new, positions, first, bits, None)
            below = [[(*paths[b][p], new[b][j]) for j, p in enumerate(parents)] for b in range(batch)]
            self.compare(texts, below, got)
            for b in range(batch):
                paths[b] += below[b]
                sees[b] += bits[b]
            first += width
        kept = torch.tensor(pending, dtype=torch.int32)
        cells = torch.tensor([[n + j if j < span - n else 0 for j in range(span)] for n in skip])
        at = torch.tensor(held, dtype=torch.int32)
        with nothing_read():
            self.made.move(at, cells, kept)
        held = [len(t) for t in texts]
        before = torch.tensor([h - 1 for h in held], dtype=torch.int32)  # what the target holds
        more = [rng.randint(1, 4) for _ in texts]
        self.most = max(self.most, *more)
        for text, n in zip(texts, more):
            text += [rng.randrange(V) for _ in range(n)]
        # The target computes what was committed, but the last token.
        wide = max(more)
        tokens = [[t[h - 1 + j] if j < n else 0 for j in range(wide)] for t, h, n in zip(texts, held, more)]
        bits = [[(2 << j) - 1 if j < n else 0 for j in range(wide)] for n in more]
        at = before.long()[:, None] + torch.arange(wide)
        words = torch.tensor(bits, dtype=torch.int32)[..., None]
        self.target.forward(torch.tensor(tokens), at, 0, before, words, None)
        self.target.move(before, torch.arange(wide).expand(batch, -1), torch.tensor(more, dtype=torch.int32))
        return held

    def forward(self, texts: Any, held: Any, tokens: Any, positions: Any, first: int, bits: Any, rows: Any) -> Tensor:
        given = (torch.tensor(tokens), torch.tensor(positions), first, torch.tensor(held, dtype=torch.int32),
                 torch.tensor(bits, dtype=torch.int32)[..., None], None if rows is None else torch.tensor(rows),
                 torch.tensor([len(t) - 1 for t in texts]))  # fmt: skip
        with nothing_read():
            return self.made.forward(*given)

    def compare(self, texts: list[list[int]], below: list[list[tuple[int, ...]]], got: Tensor) -> None:
        for text, paths, rows in zip(texts, below, got, strict=True):
            memory = self.model.target.memory(tuple(text[:-1]))
            want = stacked(self.model.eval([(*text, *path) for path in paths], given=memory), V)
            assert torch.allclose(rows.double(), want, **_CLOSE), (rows - want).abs().max()


@pytest.mark.parametrize("attention", [None, kernel_attention])
def test_features_are_the_targets_where_it_has_them_and_the_heads_own_below(target: HFCausal, attention: Any) -> None:
    model = HFFeatures(large(modeling.EagleHead(modeling.EagleConfig(**LAYER))), target, "eagle")
    whole = on_device(target, 2, 60, 20)
    made = FeaturesOnDevice(model, whole, 20, attention=attention)
    assert not made.keeps_paths
    run = Drafting(model, whole, made, 5)
    run.run([7, 2], steps=4 if attention is None else 1)
    assert run.most > 1


def test_refusals(target: HFCausal) -> None:
    whole = on_device(target, 1, 60, 20)
    with pytest.raises(DecError, match="TableFeatures"):
        FeaturesOnDevice(TableFeatures(TableModel(3, 1, window=1), 2), whole, 8)
    sizes = {**LAYER, "hidden_size": 16}
    with pytest.raises(DecError, match="belongs to another target"):
        HFFeatures(large(modeling.EagleHead(modeling.EagleConfig(**sizes))), target, "eagle")
    made = FeaturesOnDevice(HFFeatures(large(modeling.EagleHead(modeling.EagleConfig(**LAYER))), target, "eagle"), whole, 8)
    with pytest.raises(DecError, match="at least two tokens"):
        made.begin([[1]])
