"""Adapters of PEFT in a folder of their own: the matrices of the model that they belong to, with low-rank additions.

Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2022. Matrices that no addition names stay mapped where they lie,
so that a model and its adapters share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.config import number
from decgraph.runtime.models.decoder.folder import FolderSource
from decgraph.runtime.models.folders import settings

_BEFORE, _A, _B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
_OTHERS = {
    "use_dora": "DoRA",
    "modules_to_save": "modules saved whole",
    "alpha_pattern": "a scale for each matrix",
    "lora_bias": "biases",
    "layer_replication": "repeated layers",
}
MERGE = "merge it into its model and give that folder, or give the loaded module in Python"


class Adapted(FolderSource):
    """The tensors of a model's folder with the additions of an adapter's. Raises DecError for an adapter of another kind."""

    def __init__(self, folder: Path, adapter: Path, dtype: torch.dtype, device: str) -> None:
        from safetensors.torch import load_file

        super().__init__(folder, dtype, device)
        said = settings(adapter / "adapter_config.json")
        kind = str(said.get("peft_type", "LORA"))
        refused = [what for key, what in _OTHERS.items() if said.get(key)] + ([] if kind == "LORA" else [kind])
        refused += ["biases"] if said.get("bias", "none") != "none" else []
        if refused:
            raise DecError(f"{adapter} is an adapter with {refused[0]}, and only low-rank additions are read", hint=MERGE)
        self._adapter, self._turned = adapter, bool(said.get("fan_in_fan_out"))
        self._parts: Mapping[str, Tensor] = load_file(adapter / "adapter_model.safetensors")
        self._scale = _scale(said)
        self._added: set[str] = set()

    def _read(self, name: str) -> Tensor:
        found = super()._read(name)
        at = _BEFORE + name.removesuffix(".weight")
        if at + _A not in self._parts:
            return found
        self._added |= {at + _A, at + _B}
        a, b = (self._parts[at + end].to(found.device, torch.float32) for end in (_A, _B))
        more = b @ a * self._scale(len(a))
        if (more.T if self._turned else more).shape != found.shape:
            raise DecError(
                f"{self._adapter} adds {list(more.shape)} to {name}, which is {list(found.shape)}: it belongs to another model",
                hint="base_model_name_or_path in its adapter_config.json says which",
            )
        return (found.float() + (more.T if self._turned else more)).to(found.dtype)

    def check_used(self) -> None:
        """Raises DecError for a tensor of the adapter that no matrix of the model took."""
        if left := sorted(set(self._parts) - self._added):
            raise DecError(f"{self._adapter} has {left[0]}, which is no addition to a matrix of its model", hint=MERGE)


def _scale(said: Mapping[str, object]) -> Callable[[int], float]:
    """From a rank to what an addition is multiplied with."""
    alpha, root = number(said, "lora_alpha", 8), bool(said.get("use_rslora"))
    return lambda rank: alpha / (rank**0.5 if root else rank)
