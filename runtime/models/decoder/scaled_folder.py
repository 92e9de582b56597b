"""Folders in FP8 whose matrices have a scale a row and whose states get one a token: fbgemm's ("fbgemm_fp8"), and those of
compressed-tensors with dynamic activations. They stay in FP8."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from decgraph.runtime.models.config import mapping
from decgraph.runtime.models.decoder.folder import FolderSource
from decgraph.runtime.models.decoder.scaled import FP8, ScaledRows
from decgraph.runtime.models.decoder.shape import UnknownToDecoder


class ScaledSource(FolderSource):
    """The tensors of a folder in FP8. Raises UnknownToDecoder for a folder whose numbers are quantised in another way."""

    def __init__(self, folder: Path, config: Mapping[str, object], dtype: torch.dtype, device: str) -> None:
        self._bound = bound_of(mapping(config, "quantization_config"))
        if why := unmultiplied(device):
            raise UnknownToDecoder(f"its weights are in FP8, which torch does not multiply on {device}: {why}")
        super().__init__(folder, dtype, device)

    def _read(self, name: str) -> Tensor:
        found: Tensor = self._files[name].get_tensor(name)
        if found.dtype != FP8:
            return super()._read(name)
        if name + "_scale" not in self._files or any(n % 16 for n in found.shape):
            raise UnknownToDecoder(f"{name} {list(found.shape)} is in FP8 without a scale a row, or its sizes are odd")
        scale = super()._read(name + "_scale").float().reshape(-1).expand(len(found)).contiguous()
        self._taken.add(name)
        made = ScaledRows(found.to(self._device), "F8_E4M3", (found.shape[0], found.shape[1]), scale, self._bound)
        return cast(Tensor, made)  # `canonical` knows both

    def _experts(self, at: str, ways: tuple[tuple[str, ...], ...]) -> Tensor | None:
        raise UnknownToDecoder("its experts are quantised")

    def joined(self, parts: list[Tensor]) -> list[Tensor]:
        """See `weights.TensorSource`: FP8 matrices [n, in] too, elsewhere than on a CPU."""
        rows = [p for p in parts if isinstance(p, ScaledRows)]
        if len(rows) < 2 or len(rows) < len(parts) or self._device == "cpu":
            return parts if rows else super().joined(parts)
        data, scale = torch.cat([r.data for r in rows]), torch.cat([r.scale for r in rows])
        return [cast(Tensor, ScaledRows(data, "F8_E4M3", (data.shape[0], data.shape[1]), scale, self._bound))]


def unmultiplied(device: str) -> str:
    """Why torch does not multiply FP8 on a device, where it does not: one product is tried."""
    try:
        one, ones = torch.ones(16, 16, device=device).to(FP8), torch.ones(16, 1, device=device)
        torch._scaled_mm(one, one.t(), ones, ones.t(), out_dtype=torch.bfloat16)
    except (RuntimeError, NotImplementedError) as error:
        return str(error).partition("\n")[0]
    return ""


def bound_of(quantised: Mapping[str, object]) -> float:
    """How large states count at most (0: as large as they are), by a folder's `quantization_config`. Raises UnknownToDecoder
    where that is not FP8 with a scale a row and a token."""
    method = str(quantised.get("quant_method"))
    if method == "fbgemm_fp8":
        return float(cast(float, quantised.get("activation_scale_ub") or 0.0))
    groups = mapping(quantised, "config_groups")
    for name in groups:
        weights, states = (mapping(mapping(groups, name), part) for part in ("weights", "input_activations"))
        eights = all((part.get("type"), part.get("num_bits")) == ("float", 8) for part in (weights, states))
        fits = weights.get("strategy") in ("channel", "tensor") and states.get("strategy") == "token" and states.get("dynamic")
        if not (eights and fits):
            break
    else:
        if groups and method == "compressed-tensors" and not quantised.get("kv_cache_scheme"):
            return 0.0
    raise UnknownToDecoder(f"its weights are quantised ({method}) in a way that the decoder does not multiply")
