"""A call on a given memory is what a plain transformer computes on the same keys and values, on every backend.

The truth is tests/lib/models/plain_transformer.py: the target's rows by layer and position, computed from its weights, handed
to a computation of the layers that the derived model keeps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.engines.random_loop import run
from lib.lazily import modeling
from lib.models.hf_modules import LAYER, large, module
from lib.models.plain_transformer import Half, Plain, Rows, fresh_of, of_module, skipping

from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.decoder.shape import UnknownToDecoder
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.engine.forward_call import ForwardCall, Remembered
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFAdapter, HFFeatures
from decgraph.runtime.models.interface import Memory

V, LAYERS = 61, 4
Logits = Callable[[Sequence[int], "Rows | None"], Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "llama"
    module("llama", num_hidden_layers=LAYERS).save_pretrained(path)
    return path


@pytest.fixture
def target(folder: Path) -> HFCausal:
    made = hf.load_causal(folder)
    assert isinstance(made, HFCausal)
    return made


@pytest.fixture(scope="module")
def plain() -> Plain:
    return of_module(module("llama", num_hidden_layers=LAYERS))


@pytest.fixture(params=["decoder", "module"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With decoders, and with the unmodified modules."""
    if request.param == "module":
        monkeypatch.setattr(hf, "decoder_net", lambda *_: UnknownToDecoder("a reason"))
        monkeypatch.setattr("decgraph.runtime.models.decoder.make.decoder_of", lambda *_: None)
        monkeypatch.setattr("decgraph.runtime.models.decoder.layers.decoder_of_layers", lambda *_: None)
    return str(request.param)


Kept = dict[int, Half]
DERIVED: dict[str, tuple[tuple[Any, ...], Kept | None, int | None]] = {
    "whole": ((), None, None),
    "exit 1": (("exit", 1), {0: Half()}, None),
    "exit 3": (("exit", 3), {k: Half() for k in range(3)}, None),
    "skip 1": (("skip", {1}), skipping(LAYERS, {1}, {1}), None),
    "skip 0": (("skip", {0}), skipping(LAYERS, {0}, {0}), None),
    "skip 1 2": (("skip", {1, 2}), skipping(LAYERS, {1, 2}, {1, 2}), None),
    "skip 3": (("skip", {3}), skipping(LAYERS, {3}, {3}), None),
    "attention 2": (("skip", {2}, ()), skipping(LAYERS, {2}, ()), None),
    "mlp 1": (("skip", (), {1}), skipping(LAYERS, (), {1}), None),
    "attention 1 3 mlp 0 3": (("skip", {1, 3}, {0, 3}), skipping(LAYERS, {1, 3}, {0, 3}), None),
    "attention 2 3": (("skip", {2, 3}, ()), skipping(LAYERS, {2, 3}, ()), None),
    "all attention": (("skip", range(LAYERS), ()), skipping(LAYERS, range(LAYERS), ()), None),
    "quantized 4": (("quantized", 4), None, 4),
}


def made(target: HFCausal, plain: Plain, name: str) -> tuple[Any, Plain, Kept | None]:
    """A derived model, and the plain weights and halves that it runs."""
    how, halves, bits = DERIVED[name]
    weights = plain if bits is None else of_module(module("llama", num_hidden_layers=LAYERS), bits)
    return (derive(target, *how) if how else target), weights, halves


def close(got: Any, want: Any) -> None:
    assert np.allclose(np.asarray(got, dtype=np.float64), want, atol=2e-3, rtol=1e-3), np.abs(np.asarray(got) - want).max()


def both(
    model: Any,
    calls: Sequence[ForwardCall],
    value: Callable[[ForwardCall], Memory | None],
    want: Callable[[ForwardCall, Any], Any],
) -> None:
    """The engine and the reference model give what `want` says of every path."""
    for call, output in zip(calls, engine_of(model).compute(list(calls)), strict=True):
        assert isinstance(output, torch.Tensor), output
        rows = [want(call, path) for path in call.paths()]
        for row, expected in zip(output, rows, strict=True):
            close(row.double().cpu(), expected)
        for score, expected in zip(model.eval(call.paths(), value(call)), rows, strict=True):
            close(score.to_float().logits, expected)


@pytest.mark.quick(first=5)
@pytest.mark.parametrize("name", DERIVED)
def test_the_targets_memory_while_decoding(form: str, target: HFCausal, plain: Plain, name: str) -> None:
    """Sequences of different lengths in changing company: trees grow, paths are accepted, the memory covers more each time or
    less, its end before the context's last token or with it."""
    model, weights, halves = made(target, plain, name)
    rng = random.Random(5)
    known: dict[tuple[int, ...], Rows] = {}
    values: dict[tuple[int, ...], Memory] = {}

    def remembered(call: ForwardCall) -> ForwardCall:
        length = len(call.context)
        covered = max(0, length - rng.choice([0, 1, 1, 1, 1, 2, 5]))
        given = Remembered(target, list(call.context), covered) if covered else None
        return ForwardCall(
            call.sequence, call.context, call.marks, call.tokens, call.parents, call.uids, call.rows, memory=given
        )

    def want(call: ForwardCall, path: tuple[int, ...]) -> Any:
        if call.memory is None:
            return weights.logits(path, halves=halves)
        if call.memory.path not in known:
            known[call.memory.path] = plain.memory(call.memory.path)
        return weights.logits(path, known[call.memory.path], halves=halves)

    def value(call: ForwardCall) -> Memory | None:
        if call.memory is None:
            return None
        return values.setdefault(call.memory.path, target.memory(call.memory.path))

    def output(calls: list[ForwardCall]) -> None:
        both(model, [remembered(call) for call in calls], value, want)
        for call, rows in zip(calls[:1], engine_of(target).compute(calls[:1]), strict=True):  # and the target verifies
            assert isinstance(rows, torch.Tensor)
            close(rows[0].double().cpu(), plain.logits(call.paths()[0]))

    run(7, V, 24, 5, output, lambda n: [engine_of(m).close(n) for m in (model, target)] and None, sequences=3)


CONTEXT = [5, 9, 2, 44, 31, 7, 7]
TREE = ([8, 3, 19], [-1, 0, -1], [1, 2, 3])


def asked(memory: Remembered, context: Sequence[int] = CONTEXT) -> ForwardCall:
    tokens, parents, uids = TREE
    return ForwardCall("s", list(context), (), tokens, parents, uids, [-1, 0, 1, 2], memory=memory)


@pytest.mark.parametrize("covered", [0, 1])
def test_drafts_are_computed_again_where_the_memory_has_grown_below_them(target: HFCausal, plain: Plain, covered: int) -> None:
    """What was drafted below an accepted token stood on rows of the model's own, which the memory has now. covered: how many
    tokens of the context's end the second memory lacks."""
    model, weights, halves = made(target, plain, "skip 1")
    first = asked(Remembered(target, CONTEXT, len(CONTEXT) - 1))
    grown = [*CONTEXT, TREE[0][0]]
    then = Remembered(target, grown, len(grown) - covered)
    second = ForwardCall("s", grown, (*(-1 for _ in CONTEXT), 1), [3], [-1], [2], [-1, 0], memory=then)
    for call in (first, second):
        assert call.memory is not None
        memory, rows = target.memory(call.memory.path), plain.memory(call.memory.path)
        both(model, [call], lambda _, m=memory: m, lambda _, path, r=rows: weights.logits(path, r, halves=halves))


@pytest.mark.quick(first=5)
@pytest.mark.parametrize("name", DERIVED)
def test_memories_of_every_other_kind(form: str, target: HFCausal, plain: Plain, name: str) -> None:
    """Restricted, joined, made on top of another, made by the derived model itself or by a third one, of a path that goes on
    below the context."""
    model, weights, halves = made(target, plain, name)
    third = skipping(LAYERS, {2}, {2})
    whole = Remembered(target, CONTEXT, 6)
    rows = plain.memory(CONTEXT[:6])
    other = Remembered(derive(target, "skip", {2}), CONTEXT, 6)
    others = plain.memory(CONTEXT[:6], halves=third)
    short, shorts = Remembered(target, CONTEXT, 3), plain.memory(CONTEXT[:3])
    own = weights.memory(CONTEXT[:6], halves=halves)
    beyond = [*CONTEXT, 8, 3]
    cases: list[tuple[Remembered, Rows]] = [
        (whole.restrict([0, 2, 5], "only"), rows.only([0, 2, 5])),
        (whole.restrict([1, 4], "without"), rows.only([0, 2, 3, 5])),
        (Remembered(model, CONTEXT, 6), own),
        (other, others),
        (whole.restrict([0, 1], "only").join(other.restrict([1, 3], "only")), others.only([1, 3]).over(rows.only([0, 1]))),
        (Remembered(target, CONTEXT, 6, short.restrict([0, 2], "only")), plain.memory(CONTEXT[:6], shorts.only([0, 2]))),
        (Remembered(other.model, CONTEXT, 5, short), plain.memory(CONTEXT[:5], shorts, halves=third)),
        (Remembered(target, beyond, 9), plain.memory(beyond)),
        (Remembered(target, [5, 9, 1, 1, 1], 5), plain.memory([5, 9, 1, 1, 1])),
    ]
    for given, expected in cases:
        both(model, [asked(given)], lambda call: call.memory.value if call.memory else None,
             lambda call, path, r=expected: weights.logits(path, r, halves=halves))  # fmt: skip


@pytest.mark.parametrize("name", ["skip 1", "quantized 4", "whole", "exit 3"])
def test_a_memory_of_another_family_is_refused(target: HFCausal, plain: Plain, name: str, tmp_path: Path) -> None:
    module("llama", seed=1, num_hidden_layers=LAYERS).save_pretrained(tmp_path / "other")
    stranger = hf.load_causal(tmp_path / "other")
    model, _, _ = made(target, plain, name)
    output, fine = engine_of(model).compute([asked(Remembered(stranger, CONTEXT, 6)), ForwardCall("t", [1, 2])])
    assert isinstance(output, DecError) and "do not share keys and values" in str(output)
    assert isinstance(fine, torch.Tensor)
    with pytest.raises(DecError, match="do not share keys and values"):
        model.eval([tuple(CONTEXT)], stranger.memory(tuple(CONTEXT[:6])))


def adapter_states(adapter: Plain, states: dict[int, Any]) -> dict[int, Any]:
    """One layer over states by position, each of which sees those before it that are there."""
    at = sorted(states)
    kv = {i: adapter.key_value(0, i, states[i]) for i in at}
    out = {i: adapter.attention(0, i, states[i], [kv[j] for j in at if j <= i]) for i in at}
    return {i: adapter.mlp(0, x) for i, x in out.items()}


def layer_of(made: Any) -> Plain:
    """The single layer of a head as plain weights."""
    named = {f"layers.0.{k}": w.double().numpy() for k, w in made.layer.state_dict().items()}
    return Plain(named, {**made.config.to_dict(), "num_hidden_layers": 1})


@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize("adapted", [False, True])
def test_the_head_over_lower_layers(form: str, target: HFCausal, plain: Plain, layer: int, adapted: bool) -> None:
    """`target.head(target.upto(l))` and Kangaroo's adapter between: states that enter the layer come from the memory where it
    holds them. What it does not hold has no state, and so no keys and values in the adapter."""
    of = large(modeling.ExitAdapter(modeling.ExitConfig(exit_layer=layer, **LAYER)))
    inner = derive(target, "upto", layer)
    model = derive(target, "head", derive(HFAdapter(of, target, "exit"), "on", inner) if adapted else inner)
    lower = {k: Half() for k in range(layer + 1)}

    def want(path: tuple[int, ...], memory: Rows) -> Any:
        fresh = fresh_of(path, memory)
        rows = plain.run(path, fresh, memory, halves=lower)
        held = {i: x for (of, i), x in memory.states.items() if of == layer and i < fresh.start}
        states = {**held, **{i: rows.states[layer, i] for i in fresh}}
        if adapted:
            states = adapter_states(layer_of(of), states)
        return plain.read(plain.norm(states[len(path) - 1], "norm"))

    whole, rows = Remembered(target, CONTEXT, 6), plain.memory(CONTEXT[:6])
    exact = Remembered(derive(target, "exit", layer + 1), CONTEXT, 6) if layer + 1 < LAYERS else whole
    third = Remembered(derive(target, "skip", {0}), CONTEXT, 6)
    for given, expected in (
        (whole, rows),
        (exact, rows),
        (Remembered(target, CONTEXT, 7), plain.memory(CONTEXT)),
        (third, plain.memory(CONTEXT[:6], halves=skipping(LAYERS, {0}, {0}))),
        (whole.restrict([0, 3, 4], "only"), rows.only([0, 3, 4])),
    ):
        both(model, [asked(given)], lambda call: call.memory.value if call.memory else None,
             lambda call, path, r=expected: want(path, r))  # fmt: skip


def test_a_features_head_reads_the_memory_that_it_is_given(form: str, target: HFCausal, plain: Plain) -> None:
    """An EAGLE head on the target's features, on those of a derived model, and on a memory that lost some: one layer over slots
    of (feature of j - 1, token j)."""
    of = large(modeling.EagleHead(modeling.EagleConfig(**LAYER)))
    head, layer = HFFeatures(of, target, "eagle"), layer_of(of)
    embed, fc = (w.detach().double().numpy() for w in (of.embed_tokens.weight, of.fc.weight))

    def want(path: tuple[int, ...], memory: Rows) -> Any:
        known = min(memory.length, len(path) - 1)
        slots = {j - 1: (memory.last[j - 1], path[j]) for j in range(1, known + 1) if j - 1 in memory.last}
        made: dict[int, Any] = {}
        inputs: dict[int, Any] = {}
        for position in sorted({*slots, *range(known - 1, len(path) - 1)}):
            feature = slots[position][0] if position in slots else made[position - 1]
            inputs[position] = fc @ np.concatenate([embed[path[position + 1]], feature])
            made = adapter_states(layer, inputs)
        return plain.read(made[len(path) - 2])

    whole, rows = Remembered(target, CONTEXT, 6), plain.memory(CONTEXT[:6])
    for given, expected in (
        (whole, rows),
        (Remembered(target, CONTEXT, 7), plain.memory(CONTEXT)),
        (Remembered(target, CONTEXT, 4), plain.memory(CONTEXT[:4])),
        (Remembered(derive(target, "skip", {1}), CONTEXT, 6), plain.memory(CONTEXT[:6], halves=skipping(LAYERS, {1}, {1}))),
        (whole.restrict([0, 3, 5], "only"), rows.only([0, 3, 5])),
    ):
        both(head, [asked(given)], lambda call: call.memory.value if call.memory else None,
             lambda call, path, r=expected: want(path, r))  # fmt: skip
    (output,) = engine_of(head).compute([asked(whole.restrict([0, 3], "only"))])
    assert isinstance(output, DecError) and "evicted" in str(output)
