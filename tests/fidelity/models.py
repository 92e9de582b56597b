"""The recordings' models: targets, drafters and heads from their folders, in the layouts that their authors publish."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from fidelity.entry import GOLDEN
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from decgraph.runtime.models import hf
from decgraph.runtime.models.hf_heads import HFHeads
from decgraph.runtime.models.interface import Model, Scores, Vocab
from decgraph.runtime.models.interface import Path as Tokens


def folder(name: str) -> Any:
    """A model's folder: "target" of ar/models, or a path under golden/."""
    return GOLDEN / (name if "/" in name else f"ar/models/{name}")


@cache
def causal(name: str) -> Any:
    """A causal model."""
    return hf.load_causal(folder(name))


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


class Same(Model):
    """A causal model with the same scores after every text."""

    def __init__(self, logits: Sequence[float]) -> None:
        self.kind, self.vocab, self.exact, self.context = "causal", Vocab("recorded", len(logits)), False, None
        self.name, self.family, self.visibility = "same", "same", "causal"
        self.scores = Scores(logits=np.array(logits, dtype=np.float64))

    def eval(self, paths: Sequence[Tokens], memory: Any = None) -> list[Scores]:
        """The scores after each path."""
        return [self.scores for _ in paths]


@cache
def denoising(block: int, name: str = "heads/checkpoints/dflash", target: str = "target") -> Any:
    """A DFlash head that denoises blocks of another size than its folder says."""
    made = hf.load_features(folder(name), causal(target))
    made.module.block = block
    return made


@cache
def medusa(name: str = "medusa_heads", target: str = "target") -> Any:
    """The target with Medusa heads, from their authors' folder."""
    model = causal(target)
    return model.with_heads(hf.load_heads(folder(name), model))


@cache
def kangaroo(name: str = "kangaroo_adapter", target: str = "target") -> Any:
    """A Kangaroo adapter, from its authors' folder."""
    return hf.load_adapter(folder(name), causal(target))


class Acceptance(nn.Module):
    """SpecDec++'s head: one block run twice, then a score for "rejected" and one for "accepted", as tokens 0 and 1."""

    own_output = True

    def __init__(self, read: dict[str, Tensor], drafter: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=drafter.width)
        self.blocks = [(read[f"model.{i}.linear.weight"].float(), read[f"model.{i}.linear.bias"].float()) for i in (0, 1)]
        self.last = read["model.2.weight"].double(), read["model.2.bias"].double()
        self.never = torch.full((drafter.vocab.size - 2,), -100.0, dtype=torch.float64)

    def forward(self, hidden: Tensor) -> list[Tensor]:
        """[batch, length, width] -> [batch, length, V]."""
        for a, b in self.blocks:
            hidden = hidden + nn.functional.silu(hidden @ a.T + b)
        two = hidden.double() @ self.last[0].T + self.last[1]
        return [torch.cat([two, self.never.expand(*two.shape[:-1], -1)], dim=-1).float()]


@cache
def acceptance(name: str = "specdecpp_head", drafter: str = "drafter") -> Any:
    """A drafter that says how likely its next draft is accepted."""
    model = causal(drafter)
    return model.with_heads(HFHeads(Acceptance(weights(name)[1], model), model, name))


@cache
def mtp(layers: int, name: str = "ar2/models/mtp_layers", target: str = "target") -> Any:
    """The first of the recorded MTP layers, in the layout in which checkpoints have them."""
    config = json.loads((folder(target) / "config.json").read_text(encoding="utf-8"))
    first = config["num_hidden_layers"]
    with tempfile.TemporaryDirectory() as made:
        own = {}
        for k, t in weights(name)[1].items():
            _, n, part = k.split(".", 2)
            if int(n) < layers:
                part = part.replace("mtp_block.", "").replace("post_norm.", "shared_head.norm.")
                own[f"model.layers.{first + int(n)}.{part}"] = t
        save_file(own, Path(made) / "model.safetensors")
        (Path(made) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return hf.load_features(made, causal(target))


@cache
def features(name: str = "eagle_head", target: str = "target") -> Any:
    """A head that reads the target's features, from its authors' folder."""
    return hf.load_features(folder(name), causal(target))
