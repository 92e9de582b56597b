"""Modules under transformers' tensor parallelism, as plain modules of this rank's shards.

transformers keeps the whole matrix's shape (a DTensor) and converts at every layer's border. Here a rank's module has its
own shards as plain parameters, fewer heads in every attention, and sums over ranks: two a layer, one of the embeddings.

All ranks decode the same requests in step: noise is keyed by seed and request, and what a rank decides depends on states that
are the same on all. Megatron-LM (Shoeybi et al., 2019) cuts matrices like this.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor

COLUMNS, ROWS, GATHERED, VOCABULARY = "colwise", "rowwise", "colwise_gather_output", "embedding_rowwise"
"""transformers' names of the ways in which a matrix may be cut here: linear maps by their outputs, by their inputs (and the
results summed), by their outputs (and those gathered), embeddings by tokens (and the vectors summed)."""


def _summed(x: Tensor, ranks: ProcessGroup) -> Tensor:
    """The sum over ranks of a tensor [...]."""
    out = x.clone()
    torch.distributed.all_reduce(out, group=ranks)
    return out


class RowShard(nn.Module):
    """A linear map of which this rank has some inputs: [..., in / n] to [..., out], the same on all ranks."""

    def __init__(self, linear: nn.Linear, ranks: ProcessGroup) -> None:
        super().__init__()
        self.weight, self.bias, self.ranks = linear.weight, linear.bias, ranks

    def forward(self, x: Tensor) -> Tensor:
        out = _summed(F.linear(x, self.weight), self.ranks)
        return out if self.bias is None else out + self.bias


class VocabularyShard(nn.Module):
    """An embedding of which this rank has some tokens: ids int64[...] to [..., width], the same on all ranks."""

    def __init__(self, embedding: nn.Embedding, ranks: ProcessGroup) -> None:
        super().__init__()
        self.weight, self.ranks = embedding.weight, ranks
        self.first = torch.distributed.get_rank(ranks) * len(embedding.weight)

    def forward(self, ids: Tensor) -> Tensor:
        place = ids - self.first
        mine = (place >= 0) & (place < self.weight.shape[0])
        vectors = F.embedding(torch.where(mine, place, 0), self.weight)
        return _summed(vectors * mine.unsqueeze(-1).to(vectors.dtype), self.ranks)


class GatheredOutput(nn.Module):
    """An output matrix of which this rank has some rows: [..., width] to logits [..., V] of all ranks."""

    def __init__(self, linear: nn.Linear, ranks: ProcessGroup) -> None:
        super().__init__()
        self.weight, self.bias, self.ranks = linear.weight, linear.bias, ranks

    def forward(self, x: Tensor) -> Tensor:
        mine = F.linear(x, self.weight, self.bias).contiguous()
        parts = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size(self.ranks))]
        torch.distributed.all_gather(parts, mine, group=self.ranks)
        return torch.cat(parts, -1)


_SHARDS: dict[str, Callable[..., nn.Module]] = {  # of the module that is cut so, and the ranks
    ROWS: RowShard,
    VOCABULARY: VocabularyShard,
    GATHERED: GatheredOutput,
}


def _is_cut(p: Tensor) -> TypeGuard[DTensor]:
    return hasattr(p, "device_mesh")


def is_sharded(module: nn.Module) -> bool:
    """Whether a module has parameters that are cut over ranks."""
    return any(_is_cut(p) for p in module.parameters())


def of_this_rank(module: nn.Module) -> nn.Module | None:
    """A module on this rank's shards, which are shared with the module; None where it is cut in a way that is not known here
    (experts, sequences, fused or quantised matrices, sizes that the number of ranks does not divide)."""
    plan: dict[str, str] = getattr(module, "tp_plan", None) or {}
    names = {name: plan.get(re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name), "") for name, _ in module.named_modules()}
    styles = {name: style for name, style in names.items() if style}
    modules = dict(module.named_modules())
    cut = {id(p): p for p in module.parameters() if _is_cut(p)}
    meshes = {id(p.device_mesh): p.device_mesh for p in cut.values()}
    if len(meshes) != 1 or next(iter(meshes.values())).ndim != 1:
        return None
    mesh = next(iter(meshes.values()))
    for name, style in styles.items():
        one = modules[name]
        if type(one) is not (nn.Embedding if style == VOCABULARY else nn.Linear) or style not in {COLUMNS, *_SHARDS}:
            return None
        if any(size % mesh.size() for size in one.weight.shape[:1] + one.weight.shape[1:] * (style == ROWS)):
            return None
    known = {id(p) for name in styles for p in modules[name].parameters(recurse=False)}
    others = {name for name, one in modules.items() if "forward" in vars(one)} - styles.keys()
    if cut.keys() - known or others or any(vars(m).get("_hf_quantized_needs_local_tp") for m in modules.values()):
        return None
    memo: dict[int, object] = {id(t): t for t in (*module.parameters(), *module.buffers(), mesh)}
    memo |= {key: nn.Parameter(p.to_local().detach(), requires_grad=False) for key, p in cut.items()}
    memo |= {
        id(value): value for one in modules.values() for value in vars(one).values() if type(value).__name__ == "DeviceMesh"
    }
    made = copy.deepcopy(module, memo)
    for name, style in styles.items():
        one = made.get_submodule(name)
        if "forward" in vars(one):
            del one.forward  # transformers' own, which converts; the class has the module's
        if style in _SHARDS:
            home, _, last = name.rpartition(".")
            setattr(made.get_submodule(home), last, _SHARDS[style](one, mesh.get_group()))
    return made.eval()
