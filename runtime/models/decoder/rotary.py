"""Frequencies of rotary positions, from a config's settings.

Su et al., RoFormer, 2021. Peng et al., YaRN, 2023. Llama 3.1's: Meta, 2024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from decgraph.runtime.models.config import number, whole
from decgraph.runtime.models.decoder.shape import Rope, Shape, UnknownToDecoder


def frequencies(shape: Shape, device: str) -> dict[str, tuple[Tensor, float]]:
    """By kind of layer the frequencies float32[r / 2] and the factor that `inverse_frequencies` gives, on a device."""
    kinds = {layer.rope for layer in shape.layers if layer.rope}
    found = {kind: inverse_frequencies(shape.rope[kind], shape.rotary or shape.head) for kind in kinds}
    return {kind: (inverse.to(device), factor) for kind, (inverse, factor) in found.items()}


def inverse_frequencies(r: Rope, size: int) -> tuple[Tensor, float]:
    """The frequencies float32[size / 2] of heads of which `size` numbers are turned, and the factor of their cosines and sines.
    r: settings as `llama.rotary` gives them. Raises UnknownToDecoder for kinds that transformers alone computes."""
    inverse = 1.0 / (r["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.float32) / size))
    match r["rope_type"]:
        case "default":
            return inverse, 1.0
        case "linear":
            return inverse / r["factor"], 1.0
        case "llama3":
            return _llama3(inverse, r), 1.0
        case "yarn":
            return _yarn(inverse, r, size)
        case other:
            raise UnknownToDecoder(f"rotary frequencies of kind {other}")


def _llama3(inverse: Tensor, r: Mapping[str, object]) -> Tensor:
    """Long waves are slowed down, short ones are not, and those between in part."""
    length = whole(r, "original_max_position_embeddings")
    least, most, factor = (number(r, key, 0.0) for key in ("low_freq_factor", "high_freq_factor", "factor"))
    waves = 2 * torch.pi / inverse
    part = (length / waves - least) / (most - least)
    between = (1 - part) * inverse / factor + part * inverse
    slow = torch.where(waves > length / least, inverse / factor, inverse)
    middle = ~(waves < length / most) & ~(waves > length / least)
    return torch.where(middle, between, slow)


def _yarn(inverse: Tensor, r: Mapping[str, object], size: int) -> tuple[Tensor, float]:
    """Pairs that turn fewer than `beta_slow` times over the first length are slowed down, those that turn more than `beta_fast`
    times are not, and those between in part."""
    if r.get("factor") is None:
        raise UnknownToDecoder("rotary frequencies of kind yarn without a factor")
    factor, length = number(r, "factor", 1.0), whole(r, "original_max_position_embeddings")
    place = lambda turns: size * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(number(r, "rope_theta", 10000.0)))
    low, high = place(number(r, "beta_fast", 0) or 32), place(number(r, "beta_slow", 0) or 1)
    if r.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    slowed = ((torch.arange(size // 2, dtype=torch.float32) - low) / ((high - low) or 0.001)).clamp(0, 1)
    grown = lambda scale: 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0
    scale, among = number(r, "mscale", 0.0), number(r, "mscale_all_dim", 0.0)
    attention = number(r, "attention_factor", grown(scale) / grown(among) if scale and among else grown(1.0))
    return inverse / factor * slowed + inverse * (1 - slowed), attention
