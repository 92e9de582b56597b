"""Capturing a transformers module: record, merge, improve, check."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from decgraph.runtime.models.capture.activations import activations
from decgraph.runtime.models.capture.clean import clean
from decgraph.runtime.models.capture.cuts import cuts
from decgraph.runtime.models.capture.groups import groups
from decgraph.runtime.models.capture.heads import heads
from decgraph.runtime.models.capture.layout import layout
from decgraph.runtime.models.capture.masks import masks
from decgraph.runtime.models.capture.merge import merge
from decgraph.runtime.models.capture.norms import norms
from decgraph.runtime.models.capture.products import products
from decgraph.runtime.models.capture.program import CapturedGraph, Refused
from decgraph.runtime.models.capture.projections import projections
from decgraph.runtime.models.capture.record import Sample, probe, record
from decgraph.runtime.models.capture.residual import residual
from decgraph.runtime.models.capture.rotary import rotary
from decgraph.runtime.models.capture.rows import rows
from decgraph.runtime.models.capture.step import CapturedForward
from decgraph.runtime.models.capture.tables import tables
from decgraph.runtime.models.packs import Packs

# Sizes (B, T, S) of the recordings: several tokens of several sequences twice, and one of one, because that is where
# code branches. No two of B, T, S and B T agree in all three.
SIZES = ((2, 3, 11), (3, 5, 17), (1, 1, 7))
# Over the largest entry; in other dtypes _COARSE. Sums taken in another order differ by 1e-6 in a small model and by more
# in a deep one; a pass that is wrong differs by far more.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_COARSE = 5e-2

_log = logging.getLogger("decgraph.capture")

# Each pass, in order, with the name it is switched off by.
PASSES: dict[str, Callable[[CapturedGraph, frozenset[int]], None]] = {
    "cuts": lambda program, tied: cuts(program),
    "norms": lambda program, tied: norms(program),
    "activations": lambda program, tied: activations(program),
    "rotary": lambda program, tied: rotary(program),
    "layout": lambda program, tied: layout(program),
    "tables": lambda program, tied: tables(program),
    "projections": projections,
    "heads": lambda program, tied: heads(program),
    "rows": lambda program, tied: rows(program),
    "residual": residual,
    "products": products,
    "masks": lambda program, tied: masks(program),
    "groups": lambda program, tied: groups(program),
}


def capture(
    module: Any, *, without: frozenset[str] = frozenset(), notice: Callable[[str], None] = _log.warning
) -> CapturedForward | None:
    """A causal or masked transformers model, or its base module, as a captured step; None if it cannot be had.

    The step's results equal the module's: both were run on the same random inputs when this returns (float32: within
    1e-4 of the largest entry). `without` names passes to leave out (see `PASSES`). `notice` gets the reason when the
    module cannot be captured and so runs slower; by default it is logged as a warning. The module's joined parameters
    become views of shared storage, with the same values; weights changed or moved afterwards need a new capture.
    """
    try:
        return _captured(module, without)
    except Refused as refused:
        reason = str(refused)
    except Exception as error:  # the module's own code, or torch's, run in a way that they may not expect
        reason = f"{type(error).__name__}: {error}"
    base = getattr(module, "base_model", module)
    notice(f"{type(base).__name__} runs unmodified, its forward could not be captured: {reason}")
    return None


@dataclass(frozen=True)
class Run:
    """One run of the module: a sample before and after, its last hidden states and those between layers."""

    before: Sample
    after: Sample
    last: Tensor
    states: list[Tensor]


def captured_program(module: Any, without: frozenset[str] = frozenset()) -> tuple[CapturedGraph, list[Run]]:
    """The program of a module after passes, and the module's own runs to compare it with. Raises Refused."""
    base = getattr(module, "base_model", module)
    layers = layers_of(base)
    tensors = list(base.parameters())
    if base.training:
        raise Refused("it is in training mode")
    if len({t.device for t in tensors}) != 1:
        raise Refused("it lies on several devices")
    shapes = probe(base, layers)
    before, after, recordings = [], [], []
    made = torch.Generator().manual_seed(0)
    reach = int(getattr(base.config.get_text_config(), "max_position_embeddings", 0) or 0)
    for size in SIZES:
        sample = _sample(base, shapes, size, reach, made)
        before.append(sample.copy())
        recordings.append(record(base, layers, sample))
        after.append(sample)
    program = merge(recordings, SIZES, base)
    program.device, program.dtype, program.reach = tensors[0].device, recordings[0].outputs.dtype, reach
    program.heads, program.packs = [h for h, _, _ in shapes], Packs(tensors)
    clean(program)
    tied = _tied(module)
    for name, improve in PASSES.items():
        if name not in without:
            improve(program, tied)
            clean(program)
    return program, [Run(b, a, r.outputs, r.states) for b, a, r in zip(before, after, recordings)]


def _captured(module: Any, without: frozenset[str]) -> CapturedForward:
    program, runs = captured_program(module, without)
    step = CapturedForward(program)
    every = step.tapped(*range(step.layers + 1))
    for place, run in enumerate(runs):
        fresh = run.before.copy()
        pairs = [*zip(fresh.keys, run.after.keys), *zip(fresh.values, run.after.values)]
        if place == 0:  # once with all states between layers: a large model's forwards take time
            got, tapped = every(*fresh.inputs())
            pairs += [(got, run.last), *zip(tapped, run.states)]
        else:
            pairs.append((step(*fresh.inputs()), run.last))
        for mine, theirs in pairs:
            gap = float((mine - theirs).abs().max() / theirs.abs().max().clamp_min(1e-6))
            if mine.shape != theirs.shape or not gap <= _TOLERANCE.get(theirs.dtype, _COARSE):
                raise Refused(f"the captured graph differs from it by {gap:.1e}")
    return step


def layers_of(base: Any) -> list[nn.Module]:
    """The layers of a base module, in order. Raises Refused if there is no such list."""
    count = int(base.config.get_text_config().num_hidden_layers)
    for found in base.modules():
        if isinstance(found, nn.ModuleList) and len(found) == count:
            return list(found)
    for found in base.modules():  # a derived model keeps its configuration
        if isinstance(found, nn.ModuleList) and 0 < len(found) < count:
            return list(found)
    raise Refused("it has no list of layers")


def _sample(
    base: Any, shapes: list[tuple[int, int, int]], size: tuple[int, int, int], reach: int, made: torch.Generator
) -> Sample:
    """Random tokens, caches and masks; every token attends to itself."""
    count, cells, rows = size
    first = next(base.parameters())
    device, dtype = first.device, first.dtype
    config = base.config.get_text_config()
    ids = torch.randint(int(config.vocab_size), (count, cells), generator=made)
    positions = torch.randint(min(reach or 64, 64), (count, cells), generator=made)
    write = torch.stack([torch.randperm(rows, generator=made)[:cells] for _ in range(count)])
    seen = {}
    for kind in ("full_attention", "sliding_attention"):
        mask = torch.rand(count, 1, cells, rows, generator=made) < 0.5
        seen[kind] = mask.scatter(3, write[:, None, :, None], True).to(device)
    keys = [torch.randn(count, h, rows, k, generator=made).to(device, dtype) for h, k, _ in shapes]
    values = [torch.randn(count, h, rows, v, generator=made).to(device, dtype) for h, _, v in shapes]
    return Sample(ids.to(device), positions.to(device), write.to(device), keys, values, seen)


def _tied(module: Any) -> frozenset[int]:
    """Ids of parameters that the module has under more than one name."""
    seen: set[int] = set()
    twice: set[int] = set()
    for _, tensor in module.named_parameters(remove_duplicate=False):
        (twice if id(tensor) in seen else seen).add(id(tensor))
    return frozenset(twice)
