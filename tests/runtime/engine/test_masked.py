"""The engine of masked models against the models themselves: whatever is asked, with whomever, in whatever order."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from lib.lazily import make, transformers
from lib.models.tiny import TinyModel

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.engine.canvas_call import CanvasCall, CanvasOutput
from decgraph.runtime.models.engine.masked import HFMaskedEngine
from decgraph.runtime.models.engine.masked_memory import CachedMemory
from decgraph.runtime.models.engine.masked_plain import PlainMaskedEngine
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import MASK, Memory, Model, Scores, SoftCell, Visibility, Vocab
from decgraph.runtime.models.masked_load import load_masked
from decgraph.runtime.models.table import TableModel

V, MASK_ID, CONTEXT = 23, 22, 48
SHIPPED = Path(__file__).parents[3] / "zoo" / "models" / "masked"
SIZES = {
    "vocab_size": V + 2,  # two rows of padding, which are no tokens
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
}


IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": MASK_ID}


def module(kind: str) -> Any:
    torch.manual_seed(5)
    if kind == "modernbert":
        config = transformers.ModernBertConfig(
            **SIZES,
            initializer_cutoff_factor=2.0,
            local_attention=6,
            global_attn_every_n_layers=2,
            **IDS,
            cls_token_id=1,
            sep_token_id=2,
        )
        return transformers.ModernBertForMaskedLM(config)
    if kind == "llama":  # a decoder's layers: who sees whom is ours to say
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2))
    config = transformers.EuroBertConfig(**SIZES, num_key_value_heads=4, **IDS)
    return transformers.EuroBertForMaskedLM(config)


def masked(kind: str, visibility: Visibility = "full", shift: bool = False, *, entry: bool = True) -> HFMasked:
    return HFMasked(
        make.net_of_module(module(kind), entry=entry),
        name=kind,
        vocab=Vocab("test", V),
        context=CONTEXT,
        family=f"{kind} {visibility}",
        mask=MASK_ID,
        visibility=visibility,
        shift=shift,
    )


MODELS: dict[str, Any] = {
    "eurobert": lambda **given: masked("eurobert", **given),
    "eurobert by blocks": lambda **given: masked("eurobert", ("block", 4), **given),
    "modernbert": lambda **given: masked("modernbert", **given),
    "modernbert by blocks": lambda **given: masked("modernbert", ("block", 5), **given),
    "llama": lambda **given: masked("llama", **given),
    "llama by blocks": lambda **given: masked("llama", ("block", 3), **given),
    "llama, causal": lambda **given: masked("llama", "causal", **given),
    "llama by blocks after the prompt": lambda **given: masked("llama", ("prompt+block", 4), **given),
    "llama with an open window": lambda **given: masked("llama", ("window", 5), **given),
    "llama shifted": lambda **given: masked("llama", shift=True, **given),
    "modernbert by blocks, shifted": lambda **given: masked("modernbert", ("block", 5), shift=True, **given),
    "shipped": lambda **_: load_masked(SHIPPED),
}


def reference_rows(scores: list[Scores]) -> np.ndarray:
    return np.stack([s.to_float().logits for s in scores]) if scores else np.zeros((0, 0))


def same(a: np.ndarray, b: np.ndarray, tolerance: float = 1e-4) -> bool:
    """Equal where they are finite, and not finite in the same places."""
    held = np.isfinite(a)
    near = np.allclose(a[held], b[held], atol=tolerance, rtol=tolerance)
    return a.shape == b.shape and bool((held == np.isfinite(b)).all()) and near


def same_memory(kept: CachedMemory, memory: Memory) -> bool:
    assert kept.length == memory.length and set(kept.positions.tolist()) == memory.positions
    for layer, held in enumerate(memory.layers):
        rows = kept.rows(layer)
        assert set(rows) == set(held.kv), f"layer {layer}"
        for i, (key, value) in held.kv.items():
            if not (torch.allclose(rows[i][0], key, atol=1e-4) and torch.allclose(rows[i][1], value, atol=1e-4)):
                return False
    return True


@dataclass
class Player:
    """A sequence that asks at random, and what the model itself says to the same."""

    name: str
    model: Model
    mask: int
    rng: Random
    base: int = 0
    cells: list[Any] = field(default_factory=list)
    kept: Any = None
    memory: Memory | None = None
    older: Any = None
    expected: Any = None

    def start(self) -> None:
        size = self.model.vocab.size
        self.base = self.rng.randint(1, 6)
        prompt = [self.rng.randrange(size) for _ in range(self.base)]
        self.cells = [MASK if c == self.model.mask else c for c in prompt] + [MASK] * self.rng.randint(4, 24)
        self.kept = self.memory = self.older = None

    def edit(self) -> None:
        for _ in range(self.rng.randint(0, 3)):
            i = self.rng.randrange(self.base, len(self.cells))
            token = self.rng.randrange(self.model.vocab.size)
            self.cells[i] = MASK if token == self.model.mask else token
        if self.rng.random() < 0.1:
            self.cells += [MASK] * self.rng.randint(1, 4)
        elif self.rng.random() < 0.1 and len(self.cells) > self.base + 6:
            del self.cells[-self.rng.randint(1, 4) :]  # a memory may be longer than what it is read for

    @property
    def here(self) -> Model:
        """The model for canvases behind this prompt."""
        return self.model.after(self.base)

    def tensor(self, cells: list[Any]) -> torch.Tensor:
        return torch.tensor([self.mask if not isinstance(c, int) else c for c in cells])

    def call(self) -> CanvasCall:
        """A random ask; `expected` is then what the model says: rows, and the memory if it is kept."""
        if not self.cells or self.rng.random() < 0.05:
            self.start()
        self.edit()
        rng, length = self.rng, len(self.cells)
        kind = rng.choice(["whole", "block", "block", "prefix", "scattered", "candidates", "rows"])
        if self.memory is None and kind in ("block", "prefix", "scattered"):
            kind = "whole"
        if kind == "candidates":
            return self._candidates()
        cells = list(self.cells)
        soft = self._soften(cells) if rng.random() < 0.25 else None
        if kind in ("whole", "rows"):
            rows = list(range(length)) if kind == "whole" else sorted(rng.sample(range(length), rng.randint(0, length)))
            keep = kind == "whole" and rng.random() < 0.8
            scores = self.here.eval_canvas(tuple(cells), rows)
            self.expected = (reference_rows(scores), self.here.memory(tuple(cells)) if keep else None)
            return CanvasCall(self.name, self.tensor(cells), soft=soft, rows=rows, keep=keep, prompt=self.base)
        fresh = self._fresh(kind)
        self._cut(fresh)
        keep = rng.random() < 0.7
        rows = fresh if rng.random() < 0.7 else rng.sample(fresh, rng.randint(0, len(fresh)))
        try:
            scores = dict(zip(fresh, self.here.eval_canvas(tuple(cells), fresh, self.memory), strict=True))
        except DecError as refused:  # a shift reads a state that was evicted
            self.expected = refused
            return CanvasCall(self.name, self.tensor(cells), soft, fresh, self.kept, fresh, keep, prompt=self.base)
        memory = self.here.memory(tuple(cells), fresh, self.memory) if keep else None
        self.expected = (reference_rows([scores[i] for i in rows]), memory)
        return CanvasCall(self.name, self.tensor(cells), soft, fresh, self.kept, rows, keep, prompt=self.base)

    def _candidates(self) -> CanvasCall:
        rng, length = self.rng, len(self.cells)
        canvases = []
        for _ in range(rng.randint(1, 4)):
            cells = list(self.cells)
            cells[rng.randrange(self.base, length)] = 0
            canvases.append(cells)
        fresh = self._fresh("block") if self.memory is not None and rng.random() < 0.5 else None
        rows = list(range(length)) if fresh is None else fresh
        given = None if fresh is None else self.memory
        kept = None if fresh is None else self.kept
        cells = torch.stack([self.tensor(c) for c in canvases])
        try:
            each = [reference_rows(self.here.eval_canvas(tuple(c), rows, given)) for c in canvases]
            self.expected = (np.stack(each), None)
        except DecError as refused:
            self.expected = refused
        return CanvasCall(self.name, cells, None, fresh, kept, rows, prompt=self.base)

    def _fresh(self, kind: str) -> list[int]:
        length, rng = len(self.cells), self.rng
        if kind == "scattered":
            return sorted(rng.sample(range(length), rng.randint(1, length)))
        first = rng.randrange(self.base, length)
        return list(range(first, length if kind == "prefix" else min(length, first + 4)))

    def _cut(self, fresh: list[int]) -> None:
        """Evicts, in all layers or in one, or joins with what was held before."""
        assert self.memory is not None
        some = [i for i in range(len(self.cells)) if self.rng.random() < 0.4]
        layer = self.rng.randrange(self.model.layers)
        match self.rng.randrange(8):
            case 0:
                self.kept, self.memory = self.kept.only(some), self.memory.only(some)
            case 1:
                self.kept, self.memory = self.kept.without(some), self.memory.without(some)
            case 2:
                self.kept = self.kept.with_layer(layer, self.kept[layer].only(some))
                self.memory = self.memory.with_layer(layer, self.memory[layer].only(some))
            case 3:
                self.kept = self.kept.only(some).join(self.kept.without(some))
                self.memory = self.memory.only(some).join(self.memory.without(some))
            case 4:
                self.kept, self.memory = self.kept.without(fresh), self.memory.without(fresh)
            case 5 if self.older is not None:
                kept, memory = self.older
                self.kept, self.memory = kept.join(self.kept.only(some)), memory.join(self.memory.only(some))

    def _soften(self, cells: list[Any]) -> tuple[list[int], torch.Tensor, torch.Tensor]:
        at = sorted(self.rng.sample(range(self.base, len(cells)), self.rng.randint(1, 2)))
        weights = torch.tensor([[self.rng.random() / 4 for _ in range(self.model.vocab.size)] for _ in at])
        shares = torch.tensor([self.rng.random() for _ in at])
        for i, w, m in zip(at, weights.tolist(), shares.tolist(), strict=True):
            cells[i] = SoftCell(tuple(w), m)
        return at, weights, shares

    def check(self, output: CanvasOutput | DecError, exact: bool) -> None:
        if isinstance(self.expected, DecError):
            assert isinstance(output, DecError) and output.hint == self.expected.hint, str(output)
            return
        assert isinstance(output, CanvasOutput), str(output)
        rows, memory = self.expected
        got = output.logits.double().numpy()
        assert got.shape[:-1] == rows.shape[:-1]
        assert rows.size == 0 or same(rows, got, 0.0 if exact else 1e-4), np.nanmax(np.abs(np.nan_to_num(rows - got)))
        assert (output.memory is None) == (memory is None)
        if memory is not None:
            assert output.memory == memory if exact else same_memory(output.memory, memory)
            self.older = None if self.memory is None else (self.kept, self.memory)
            self.kept, self.memory = output.memory, memory


@pytest.mark.quick(first=1, each="decoder")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("decoder", [False, True], ids=["module", "decoder"])
def test_any_asks_are_answered_as_the_model_itself_answers(name: str, decoder: bool) -> None:
    model = MODELS[name](entry=decoder)
    engine = HFMaskedEngine(model)
    assert isinstance(model.net.decoder, TransformerDecoder) == (decoder or name == "shipped")
    rng = Random(7)
    players = [Player(f"s{n}", model, engine.mask, Random(n)) for n in range(4)]
    for _ in range(10 if name == "shipped" else 50):
        asking = rng.sample(players, rng.randint(1, len(players)))
        calls = [p.call() for p in asking]
        for player, output in zip(asking, engine.compute(calls), strict=True):
            player.check(output, exact=False)
    assert engine.counted.calls > 0 and engine.counted.computed <= engine.counted.requested


@pytest.mark.parametrize(
    "model",
    [
        TableModel(4, 3, kind="masked"),
        TableModel(4, 3, kind="masked", visibility=("block", 3)),
        FreeModel(2, 4, 2, visibility="full"),
        TinyModel(1, 5, 2, visibility="full"),
    ],
    ids=["table", "table by blocks", "free", "tiny"],
)
def test_models_that_are_not_hugging_face_answer_bit_for_bit(model: Model) -> None:
    engine = engine_of(model)
    assert isinstance(engine, PlainMaskedEngine) and engine_of(model) is engine
    players = [Player(f"s{n}", model, engine.mask, Random(n)) for n in range(2)]
    for _ in range(12):
        calls = [p.call() for p in players]
        for player, output in zip(players, engine.compute(calls), strict=True):
            player.check(output, exact=True)


def test_joined_memories_predict_from_the_states_of_the_rows_that_they_have() -> None:
    """Of a model whose scores stand one position before the one that they are about."""
    model = masked("llama", shift=True)
    engine, cells, block = HFMaskedEngine(model), [3, 5, 2, 7, *[MASK] * 8], range(4, 8)
    tokens = torch.tensor([engine.mask if c is MASK else c for c in cells])
    changed, new = tokens.clone(), list(cells)
    changed[4] = new[4] = 9
    (first,) = engine.compute([CanvasCall("s", tokens, keep=True)])
    assert isinstance(first, CanvasOutput)
    (second,) = engine.compute([CanvasCall("s", changed, None, block, first.memory, block, keep=True)])
    assert isinstance(second, CanvasOutput)
    before = model.memory(tuple(cells))
    after = model.memory(tuple(new), list(block), before)
    for mine, theirs in (
        (first.memory.join(second.memory.without([4])), before.join(after.without([4]))),
        (second.memory.join(first.memory.without([4])), after.join(before.without([4]))),
    ):
        (got,) = engine.compute([CanvasCall("s", tokens, None, [5], mine, [5])])
        assert isinstance(got, CanvasOutput)
        want = reference_rows(model.eval_canvas(tuple(cells), [5], theirs))
        assert same(want, got.logits.double().numpy())


def test_a_canvas_of_one_of_the_last_two_calls_is_remembered() -> None:
    """A program that masks a cell again comes back to the canvas before the last."""
    engine = engine_of(TableModel(4, 1, kind="masked", name="model"))
    first, second, third = ([0, engine.mask], [0, 1], [1, 1])
    computed = [
        engine.compute([CanvasCall("s", torch.tensor(cells), None, None, None, [0, 1], False)])[0].computed  # type: ignore[union-attr]
        for cells in (first, second, first, third, second)
    ]
    assert computed == [2, 2, 0, 2, 2]
