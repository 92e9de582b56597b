"""Medusa heads with an output matrix each, in their layouts: v0.1, v1.0 (merged with the target), vLLM's.

Cai et al., Medusa, 2024. A head is a few residual blocks x + silu(A x + a) on the target's last state, then a matrix.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import whole
from decgraph.runtime.models.heads.base import Head
from decgraph.runtime.models.heads.layout import Config, HeadFolder, HeadLayout, ReadHead
from decgraph.runtime.native.products import NativeLinear

_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)")
_MATRIX = re.compile(r"(\d+)\.(\d+)\.(weight|bias)")
_VLLM = ((re.compile(r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)"), "{}.{}.linear.{}"),
         (re.compile(r"lm_heads\.(\d+)\.(weight|bias)"), "{}.last.{}"))  # fmt: skip


class ResidualBlock(nn.Module):
    """x + silu(A x + a)."""

    def __init__(self, width: int, *, bias: bool = True) -> None:
        super().__init__()
        self.linear = NativeLinear(width, width, bias=bias)

    def forward(self, states: Tensor) -> Tensor:
        """[..., width] -> [..., width]."""
        made: Tensor = states + nn.functional.silu(self.linear(states))
        return made


class Medusa(Head):
    """`forward(hidden)` takes the target's last states after its final norm, [batch, length, hidden], and gives logits
    [batch, length, V] for each head: head i guesses the token i + 1 places after the next one.

    Options: `heads`, `blocks` (of each head), `block_bias`, `output_bias`.
    """

    own_output = True

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        width, options = whole(config, "hidden_size"), self.options
        self.heads = nn.ModuleList(
            nn.Sequential(
                *(ResidualBlock(width, bias=bool(options.get("block_bias", True))) for _ in range(whole(options, "blocks"))),
                NativeLinear(width, self.vocab, bias=bool(options.get("output_bias"))),
            )
            for _ in range(whole(options, "heads"))
        )

    def forward(self, hidden: Tensor) -> list[Tensor]:
        """[batch, length, hidden] -> [batch, length, V] per head."""
        return [head(hidden) for head in self.heads]


class Residual(Head):
    """Medusa heads that the target's own output matrix reads: head i gives h + B silu(A h + a). (The paper's h + silu(A h + a)
    has a matrix per head to take things away again.) Options: `heads`, `inner_size`."""

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        width, inner, heads = (whole(config, key) for key in ("hidden_size", "inner_size", "heads"))
        self.rise = nn.ModuleList(NativeLinear(width, inner) for _ in range(heads))
        self.fall = nn.ModuleList(NativeLinear(inner, width, bias=False) for _ in range(heads))

    def forward(self, hidden: Tensor) -> list[Tensor]:
        """[batch, length, hidden] -> [batch, length, hidden] per head."""
        return [hidden + fall(nn.functional.silu(rise(hidden))) for rise, fall in zip(self.rise, self.fall, strict=True)]


def _is_medusa(config: Config, names: Collection[str]) -> bool:
    return all(_BLOCK.fullmatch(n) or _MATRIX.fullmatch(n) for n in names) or _is_vllm(names) or _merged(names)


def _merged(names: Collection[str]) -> bool:
    return any(name.startswith("medusa_head.") for name in names)


def _is_vllm(names: Collection[str]) -> bool:
    return any(n.startswith("blocks.0.layers.") for n in names) and any(n.startswith("lm_heads.") for n in names)


def _medusa(source: HeadFolder) -> ReadHead:
    merged = _merged(source.tensors.keys())
    prefix = "medusa_head." if merged else ""
    found: dict[str, Tensor] = {}
    stored: dict[str, str] = {}
    for name in source.tensors:
        if name.startswith(prefix):
            ours = _ours(name.removeprefix(prefix))
            if ours is None:
                raise DecError(f"{source.folder} has a tensor {name}, which no part of a Medusa head is made of")
            found[ours] = source.tensors[name]
            stored[ours] = name
    heads, blocks = _counts(found)
    said = source.config.get("medusa_num_heads")
    if merged and isinstance(said, int) and said != heads:
        raise DecError(f"{source.folder} holds {heads} heads, and its config.json says medusa_num_heads {said}")
    for head in range(heads):  # the output matrix comes after the blocks, under the next number
        for kind in ("weight", "bias"):
            for last in (f"{head}.last.{kind}", f"{head}.{blocks}.{kind}"):
                if last in found:
                    found[f"heads.{head}.{blocks}.{kind}"] = found.pop(last)
                    stored[f"heads.{head}.{blocks}.{kind}"] = stored.pop(last)
    found = {name if name.startswith("heads.") else f"heads.{name}": tensor for name, tensor in found.items()}
    stored = {name if name.startswith("heads.") else f"heads.{name}": was for name, was in stored.items()}
    matrix = found.get(f"heads.0.{blocks}.weight")
    if matrix is None or matrix.ndim != 2:
        raise DecError(f"{source.folder} has no output matrix {prefix}0.{blocks}.weight for its first head")
    config = {
        "vocab_size": matrix.shape[0],
        "hidden_size": matrix.shape[1],
        "heads": heads,
        "blocks": blocks,
        "block_bias": any(name.endswith(".linear.bias") for name in found),
        "output_bias": any(name.endswith(f".{blocks}.bias") for name in found),
    }
    stored.setdefault("heads.", prefix)
    return ReadHead("Medusa" + (" v1.0" if merged else ""), "heads", "decgraph_medusa_output", config, found, stored)


def _ours(name: str) -> str | None:
    if _BLOCK.fullmatch(name) or _MATRIX.fullmatch(name):
        return name
    for pattern, form in _VLLM:
        if match := pattern.fullmatch(name):
            return form.format(*match.groups())
    return None


def _counts(names: Collection[str]) -> tuple[int, int]:
    """(heads, residual blocks of a head): heads are numbered from 0, and the blocks of one come first in it."""
    heads = 1 + max((int(name.split(".")[0]) for name in names), default=-1)
    blocks = 1 + max((int(m[2]) for name in names if (m := _BLOCK.fullmatch(name))), default=-1)
    return heads, blocks


LAYOUTS = (
    HeadLayout(
        "Medusa",
        "`0.0.linear.weight` and `0.1.weight` in medusa_lm_head.pt (v0.1), `medusa_head.*` beside the target's weights (v1.0), "
        "or `blocks.0.layers.0.weight` with `lm_heads.0.weight` (vLLM)",
        _is_medusa,
        _medusa,
    ),
)
