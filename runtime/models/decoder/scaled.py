"""Matrices in FP8 with a scale a row, and products with them: `torch._scaled_mm`, of states that get a scale a token. Such have
folders of fbgemm ("fbgemm_fp8"), and of compressed-tensors with dynamic activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from decgraph.runtime.models.config import mapping
from decgraph.runtime.models.decoder.folder import FolderSource
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.shape import UnknownToDecoder
from decgraph.runtime.native.formats import QuantizedBlocks

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class ScaledRows(QuantizedBlocks):
    """A matrix whose row n is data[n] times scale[n]. data: float8_e4m3fn [outputs, inputs]. scale: float32[outputs]. bound:
    states count as at most so large, where that is not 0."""

    scale: Tensor
    bound: float

    def __post_init__(self) -> None:
        if self.data.dtype != FP8 or self.data.shape != self.shape or self.scale.shape != self.shape[:1]:
            raise UnknownToDecoder(f"a matrix {list(self.data.shape)} in FP8 has scales {list(self.scale.shape)}")

    def reals(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """The matrix's rows float32[n, inputs]."""
        return self.data.float()[rows] * self.scale[rows, None]


class ScaledProduct(Product):
    """y = x W' + b of matrices in FP8 and states that are rounded to FP8, each row by its largest number; see `Product`."""

    def __init__(self, *matrices: Tensor | QuantizedBlocks, biases: tuple[Tensor | None, ...] = ()) -> None:
        super().__init__(biases=biases or (None,) * len(matrices))
        self.matrices, self._scaled = matrices, [m for m in matrices if isinstance(m, ScaledRows)]
        if len(self._scaled) < len(matrices):
            raise UnknownToDecoder("of matrices of one input some are in FP8")

    by_native = False

    def by_torch(self) -> Product:
        """It is by torch's operations."""
        return self

    def dequantised(self) -> list[Tensor]:
        """The matrices [out, in] in float32 that the product is with."""
        return [m.reals() for m in self._scaled]

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """[n, out]; with `added` [n, out], the sum of both."""
        top = torch.finfo(FP8).max
        most = x.abs().amax(-1, keepdim=True).float()
        if self._scaled[0].bound:
            most = most.clamp(max=self._scaled[0].bound)
        scale = most.clamp(min=1e-12) / top
        rounded = (x.float() / scale).clamp(-top, top).to(FP8)
        parts = []
        for matrix, bias in zip(self._scaled, self.biases, strict=True):
            y = torch._scaled_mm(rounded, matrix.data.t(), scale, matrix.scale[None], out_dtype=torch.bfloat16).to(x.dtype)
            parts.append(y if bias is None else y + bias)
        y = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        return y if added is None else y + added


ScaledRows.multiplied = ScaledProduct


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


class ScaledSource(FolderSource):
    """The tensors of a folder in FP8. Raises UnknownToDecoder for a folder whose numbers are quantised in another way."""

    quantised = True

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
