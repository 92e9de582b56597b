"""The decoder of a model's folder: safetensors files, mapped and read as they lie, without transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from decgraph.runtime.models.config import whole
from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.decoder.families import shape_of
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.rotary import frequencies
from decgraph.runtime.models.decoder.shape import Shape, UnknownToDecoder, reading_settings
from decgraph.runtime.models.decoder.weights import canonical
from decgraph.runtime.native.decoder import native

OUTPUTS = {"gpt_neox": "embed_out", "gpt_neox_japanese": "embed_out", "biogpt": "output_projection"}
"""What families call the output matrix, the others `lm_head`. It stands beside the base model, whose names have a prefix."""
UNREAD = re.compile(r"rotary_emb\.inv_freq$|rotary\.inv_freq$|\.attn\.(masked_)?bias$|\.attention\.(masked_)?bias$")
"""Tensors of older files that are computed anew."""
EXPERTS = {
    "experts.gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "experts.down_proj": (("down_proj",), ("w2",)),
}
"""What files have by expert and modules in one tensor: [experts, out, in]."""


class FolderSource:
    """The tensors of a folder, by the names of the base module. dtype: what floating-point numbers are read as. quantised:
    whether it reads quantised ones as they are (scaled.py)."""

    quantised = False

    def __init__(self, folder: Path, dtype: torch.dtype, device: str) -> None:
        from safetensors import safe_open

        self._files = {}
        for file in sorted(folder.glob("*.safetensors")):
            if not file.name.startswith("adapter_"):
                handle = safe_open(file, framework="pt")
                self._files.update(dict.fromkeys(handle.keys(), handle))
        self._dtype, self._device = dtype, device
        self.prefix = ""
        self._taken: set[str] = set()

    def begin(self, embedding: str) -> None:
        """Finds the prefix of the base model's names. Raises UnknownToDecoder where no tensor is the embedding."""
        found = [name for name in self._files if name == embedding or name.endswith("." + embedding)]
        if len(found) != 1:
            raise UnknownToDecoder(f"there is no {embedding}" if not found else f"there are several {embedding}")
        self.prefix = found[0][: -len(embedding)]

    def take(self, name: str) -> Tensor | None:
        """See `weights.TensorSource`; "/" begins a name that has no prefix."""
        whole = name[1:] if name.startswith("/") else self.prefix + name
        if whole in self._files:
            return self._read(whole)
        for end, ways in EXPERTS.items():
            if whole.endswith(end):
                return self._experts(whole[: -len(end)], ways)
        if ".mlp.gate" in whole and (old := whole.replace(".mlp.", ".block_sparse_moe.")) in self._files:
            return self._read(old)
        return None

    def _experts(self, at: str, ways: tuple[tuple[str, ...], ...]) -> Tensor | None:
        for start in (at, at.replace(".mlp.", ".block_sparse_moe.")):
            for parts in ways:
                made: list[Tensor] = []
                while f"{start}experts.{len(made)}.{parts[0]}.weight" in self._files:
                    j = len(made)
                    made.append(torch.cat([self._read(f"{start}experts.{j}.{part}.weight") for part in parts]))
                if made:
                    return torch.stack(made)
        return None

    def _read(self, name: str) -> Tensor:
        self._taken.add(name)
        found: Tensor = self._files[name].get_tensor(name)
        return found.to(self._device, self._dtype if found.is_floating_point() else None)

    def rest(self) -> list[str]:
        """See `weights.TensorSource`."""
        return sorted(name for name in set(self._files) - self._taken if not UNREAD.search(name))

    def joined(self, parts: list[Tensor]) -> list[Tensor]:
        """See `weights.TensorSource`, matrices [n, in]: on a CPU mapped ones stay where they lie."""
        return parts if len(parts) == 1 or self._device == "cpu" else [torch.cat(parts)]


def net_of_folder(
    folder: Path, config: Mapping[str, object], dtype: torch.dtype, device: str, source: FolderSource | None = None
) -> Net:
    """The net of a folder. source: of its tensors, if they are not read as they are. Raises UnknownToDecoder where it has
    something that the decoder does not know."""
    if (folder / "adapter_config.json").is_file():
        raise UnknownToDecoder("an adapter of PEFT lies beside its weights")
    if config.get("quantization_config") and not (source is not None and source.quantised):
        raise UnknownToDecoder("its weights are quantised")
    shape, names = shape_of({key: value for key, value in config.items() if key not in ("auto_map", "quantization_config")})
    source = source or FolderSource(folder, dtype, device)
    source.begin(names["embed"])
    names = dict(names)
    output = OUTPUTS.get(str(config.get("model_type")), "lm_head")
    own = source.take(f"/{output}.weight") is not None
    if own and not (shape.tied and _same(source, names["embed"], f"/{output}.weight")):
        names["out"] = f"/{output}"  # whatever the config says: as transformers has it, numbers of its own are not tied
    elif shape.tied:
        names["out"] = "/"
    else:
        raise UnknownToDecoder("there is no output matrix")
    with torch.no_grad(), reading_settings():
        weights, products = canonical(shape, names, source)
        check_shapes(shape, weights, products, config)
        return Net(native(TransformerDecoder(shape, weights, products, frequencies(shape, device))), config)


def _same(source: FolderSource, *names: str) -> bool:
    """Whether two tensors are the same numbers."""
    one, other = map(source.take, names)
    return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)


def check_shapes(
    shape: Shape, weights: Mapping[str, Tensor], products: Mapping[str, Product], config: Mapping[str, object]
) -> None:
    """Raises UnknownToDecoder for a tensor of another shape than the settings say, which transformers then
    refuses by name."""
    value, wide = shape.value or shape.head, shape.width
    inner, vocabulary = whole(config, "intermediate_size", 0), shape.vocabulary
    rows = {"o": wide, "down": wide, "shared_down": wide, "out": vocabulary}
    columns = {"qkv": wide, "up": wide, "shared_up": wide, "out": wide, "o": shape.heads * value}
    if shape.latent is None:
        rows["qkv"] = (shape.heads + 2 * shape.kv_heads) * shape.head
    if inner and all(layer.experts is None for layer in shape.layers):
        rows["up"], columns["down"] = inner * (2 if shape.gated else 1), inner
    for name, product in products.items():
        key = name.rsplit(".", 1)[-1]
        found = product.shape
        if any(b is not None and b.numel() != len(w) for b, w in zip(product.biases, product.matrices, strict=True)):
            raise UnknownToDecoder(f"{name} has a bias of another size")
        if found != (rows.get(key, found[0]), columns.get(key, found[1])):
            raise UnknownToDecoder(f"{name} has the shape {found}")
    table = products["embed"].shape if "embed" in products else tuple(weights["embed"].shape)
    if table != (vocabulary, wide):
        raise UnknownToDecoder(f"the embedding has the shape {table}")
    for name, w in weights.items():
        normal = w.shape == (wide,) or (shape.unit_norms and w.numel() == 1)
        if name.rsplit(".", 1)[-1] in ("attn_in", "attn_out", "mlp_in", "mlp_out", "norm") and not normal:
            raise UnknownToDecoder(f"{name} has the shape {tuple(w.shape)}")
        _check_vector(shape, name, w, weights)


def _check_vector(shape: Shape, name: str, w: Tensor, weights: Mapping[str, Tensor]) -> None:
    """Raises UnknownToDecoder for a norm of heads, or a bias of a norm, of another size than it has by the settings."""
    key = name.rsplit(".", 1)[-1]
    if key in ("q", "k") and w.numel() != 1:
        count = shape.heads if key == "q" else shape.kv_heads
        if w.numel() != (count * shape.head if shape.joined_norms or w.dim() > 1 else shape.head):
            raise UnknownToDecoder(f"{name} has the shape {tuple(w.shape)}")
    if key == "b" and (normed := weights.get(name.removesuffix(".b"))) is not None and w.shape != normed.shape:
        raise UnknownToDecoder(f"{name} has the shape {tuple(w.shape)}")
