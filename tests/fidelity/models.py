"""The recordings' models: targets and drafters from their folders, heads from the layouts that their authors publish.

decgraph reads heads of its own layout. Here published weights become objects of the same interface, by exact algebra: a
vocabulary of 32 is smaller than the width 64, so every row of logits is what the target's output matrix makes of some state.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from fidelity.entry import GOLDEN
from safetensors.torch import load_file
from torch import Tensor, nn

from decgraph.runtime.models import hf
from decgraph.runtime.models.hf_heads import HFAdapter, HFHeads
from decgraph.runtime.models.interface import Model, Path, Scores, Vocab
from decgraph.zoo.modeling import ExitAdapter, ExitConfig


def folder(name: str) -> Any:
    """A model's folder: "target" of ar/models, or a path under golden/."""
    return GOLDEN / (name if "/" in name else f"ar/models/{name}")


@cache
def causal(name: str) -> Any:
    """A causal model."""
    return hf.load_causal(folder(name), reuse=True)


@cache
def exit_of(name: str, layers: int) -> Any:
    """The first layers of a model, with its norm and matrix."""
    return causal(name).derive("exit", layers)


def weights(name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights in a folder, by their published names."""
    at = folder(name)
    files = sorted(p for p in at.iterdir() if p.suffix in (".safetensors", ".bin", ".pt"))
    read = load_file(files[0]) if files[0].suffix == ".safetensors" else torch.load(files[0], weights_only=True)
    return json.loads((at / "config.json").read_text(encoding="utf-8")), dict(read)


def output_matrix(target: Any) -> Tensor:
    """The target's output matrix [V, width]."""
    found: Tensor = target.net._out.weight.detach()
    return found


class Same(Model):
    """A causal model with the same scores after every text."""

    def __init__(self, logits: Sequence[float]) -> None:
        self.kind, self.vocab, self.exact, self.context = "causal", Vocab("recorded", len(logits)), False, None
        self.name, self.family, self.visibility = "same", "same", "causal"
        self.scores = Scores(logits=np.array(logits, dtype=np.float64))

    def eval(self, paths: Sequence[Path], given: Any = None) -> list[Scores]:
        """The scores after each path."""
        return [self.scores for _ in paths]


class MedusaHeads(nn.Module):
    """Heads x + silu(A x + a) with an output matrix each: the states that the target's matrix reads as their logits."""

    def __init__(self, read: dict[str, Tensor], count: int, target: Any) -> None:
        super().__init__()
        back = torch.linalg.pinv(output_matrix(target).double())
        names = [f"{i}.0.linear" for i in range(count)]
        self.config = target.net.base.config
        self.inner = [(read[f"{n}.weight"].float(), read[f"{n}.bias"].float()) for n in names]
        self.outer = [(back @ read[f"{i}.1.weight"].double()).float() for i in range(count)]

    def forward(self, hidden: Tensor) -> list[Tensor]:
        """[batch, length, width] -> one of that shape per head."""
        both = zip(self.inner, self.outer, strict=True)
        return [(hidden + nn.functional.silu(hidden @ a.T + b)) @ out.T for (a, b), out in both]


@cache
def medusa(name: str = "medusa_heads", target: str = "target") -> Any:
    """The target with Medusa heads of the published layout."""
    read = {key.removeprefix("medusa_head."): value for key, value in weights(name)[1].items()}
    model = causal(target)
    count = len({key.split(".")[0] for key in read})
    return model.with_heads(HFHeads(MedusaHeads(read, count, model), model, name))


class Acceptance(nn.Module):
    """SpecDec++'s head: one block run twice, then a score for "rejected" and one for "accepted", as tokens 0 and 1."""

    def __init__(self, read: dict[str, Tensor], drafter: Any) -> None:
        super().__init__()
        self.config = drafter.net.base.config
        self.blocks = [(read[f"model.{i}.linear.weight"].float(), read[f"model.{i}.linear.bias"].float()) for i in (0, 1)]
        self.last = read["model.2.weight"].double(), read["model.2.bias"].double()
        self.back = torch.linalg.pinv(output_matrix(drafter).double())
        self.never = torch.full((self.back.shape[1] - 2,), -100.0, dtype=torch.float64)

    def forward(self, hidden: Tensor) -> list[Tensor]:
        """[batch, length, width] -> one of that shape."""
        for a, b in self.blocks:
            hidden = hidden + nn.functional.silu(hidden @ a.T + b)
        two = hidden.double() @ self.last[0].T + self.last[1]
        scores = torch.cat([two, self.never.expand(*two.shape[:-1], -1)], dim=-1)
        return [(scores @ self.back.T).float()]


@cache
def acceptance(name: str = "specdecpp_head", drafter: str = "drafter") -> Any:
    """A drafter that says how likely its next draft is accepted."""
    model = causal(drafter)
    return model.with_heads(HFHeads(Acceptance(weights(name)[1], model), model, name))


@cache
def features(name: str = "eagle_head", target: str = "target") -> Any:
    """A head that reads the target's features, from its authors' folder."""
    return hf.load_features(folder(name), causal(target))


_LLAMA = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "hidden_act",
    "attention_bias",
    "mlp_bias",
)


class Renormed(nn.Module):
    """A layer whose states are handed on so that the target's norm and matrix give the logits that another norm would.

    Of all states with those logits under the target's matrix the shortest has some length; what the matrix does not see is
    added until it has the length that the norm leaves alone.
    """

    def __init__(self, layer: nn.Module, gain: Tensor, eps: float, target: Any) -> None:
        super().__init__()
        self.layer, self.eps = layer, eps
        read = (output_matrix(target) * target.net.norm.weight.detach()).double()  # what reads a state after the plain norm
        back = torch.linalg.pinv(read)
        self.to = (back @ output_matrix(target).double()) * gain.double()
        self.unseen = torch.linalg.svd(read).Vh[-1]
        self.width = read.shape[1]

    def forward(self, states: Tensor, *args: Any, **how: Any) -> Tensor:
        """The layer, then the change of norm."""
        y = self.layer(states, *args, **how).double()
        shortest = (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)) @ self.to.T
        rest = self.width * (1 - self.eps) - shortest.pow(2).sum(-1, keepdim=True)
        return (shortest + rest.sqrt() * self.unseen).float()


@cache
def kangaroo(name: str = "kangaroo_adapter", target: str = "target") -> Any:
    """A Kangaroo adapter: attention alone, and a final norm of its own."""
    config, read = weights(name)
    model = causal(target)
    width = config["hidden_size"]
    made = ExitConfig(
        exit_layer=config["exit_layer"],
        vocab_size=model.vocab.size,
        intermediate_size=8,
        num_hidden_layers=1,
        num_key_value_heads=config["num_attention_heads"],
        **{k: v for k, v in config.items() if k in _LLAMA},
    )
    made._attn_implementation = "eager"
    module = ExitAdapter(made)
    with torch.no_grad():
        module.layer.mlp.down_proj.weight.zero_()
    named = {k.removeprefix("layers.0."): v.float() for k, v in read.items()}
    gain = named.pop("norm.weight")
    missing, unexpected = module.layer.load_state_dict(named, strict=False)
    assert not unexpected and all("mlp" in k or "post_attention" in k for k in missing), (missing, unexpected)
    assert gain.shape == (width,)
    module.layer = Renormed(module.layer, gain, config["rms_norm_eps"], model)
    return HFAdapter(module.eval().requires_grad_(False), model, name)
