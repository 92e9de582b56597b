"""A model's weights by the decoder's names, from a live module or from a folder, as they lie there: nothing is copied but small
vectors, and where several matrices of one input become one.

A parameter or tensor that no part of the decoder reads is an error (`UnknownToDecoder`): then the model has something that the
decoder does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.products import Product, adjacent, laid_together
from decgraph.runtime.models.decoder.shape import Shape, UnknownToDecoder
from decgraph.runtime.native.formats import QuantizedBlocks
from decgraph.runtime.native.products import BlockProduct, product

if TYPE_CHECKING:
    from torch import nn

Names = Mapping[str, str]
Taken = TypeVar("Taken", bound="Tensor | QuantizedBlocks")
"""What a source gives: tensors alone, or matrices in blocks too."""


class TensorSource(Protocol[Taken]):
    """Where tensors come from. Each name is taken once or more; `rest` are the names that never were."""

    def take(self, name: str) -> Taken | None:
        """The tensor of this name, if there is one; a matrix may be blocks."""
        ...

    def rest(self) -> list[str]:
        """The names that nobody took."""
        ...

    def joined(self, parts: list[Taken]) -> list[Taken]:
        """Matrices [n_i, in] of one input as one [sum n_i, in], where their owner allows it; else as they are."""
        ...


class ModuleSource:
    """The parameters and persistent buffers of a transformers base module. owned: nobody else has the module, so that its
    matrices may become views of joined ones."""

    def __init__(self, base: nn.Module, *, owned: bool) -> None:
        self._named = dict(base.named_parameters(remove_duplicate=False))
        for at, module in base.named_modules():  # biases of routers are buffers, which files have as well
            kept = {
                name: b for name, b in module.named_buffers(recurse=False) if name not in module._non_persistent_buffers_set
            }
            self._named |= {f"{at}.{name}" if at else name: b for name, b in kept.items()}
        self._owned = owned
        self._places = Counter(t.data_ptr() for t in self._named.values())
        self._taken: set[str] = set()

    def take(self, name: str) -> Tensor | None:
        """See `TensorSource`."""
        found = self._named.get(name)
        if found is None:
            return None
        self._taken.add(name)
        return found

    def rest(self) -> list[str]:
        """See `TensorSource`."""
        return sorted(set(self._named) - self._taken)

    def joined(self, parts: list[Tensor]) -> list[Tensor]:
        """See `TensorSource`. The parameters become views of the joined matrix [sum n_i, in]; a shared one stays."""
        if len(parts) == 1 or any(p.is_inference() or type(p) is not torch.nn.Parameter for p in parts):
            return parts
        if (whole := adjacent(parts)) is not None:  # an earlier decoder's
            return [whole]
        if not self._owned or any(self._places[p.data_ptr()] > 1 for p in parts):
            return parts
        return [laid_together(parts)]


NORMS = ("attn_in", "feature_in", "attn_out", "attn_sub", "mlp_in", "mlp_out", "mlp_sub", "q", "k", "q_latent", "kv_latent")
VECTORS = ("sinks", "attn_taps", "mlp_taps", "router_bias", "alpha_p", "alpha_n", "beta", "eps",
           "lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")  # fmt: skip
MATRICES = ("o", "head_gate", "attn_conv", "mlp_conv", "down", "shared_down", "q_down", "q_up", "kv_down", "kv_up")
JOINED = {"qkv": ("wq", "wk", "wv"), "up": ("gate", "up"), "shared_up": ("shared_gate_proj", "shared_up_proj")}


def canonical(shape: Shape, names: Names, source: TensorSource[Taken]) -> tuple[dict[str, Tensor], dict[str, Product]]:
    """The tensors and products [out, in] of a model by the decoder's names. names: from these to the source's, `{i}` for the
    layer's number; "0.attn_in" says that layer 0 has none; see `llama.LLAMA`. Raises UnknownToDecoder for a tensor that is
    missing or that nobody reads."""
    weights: dict[str, Tensor] = {}
    products: dict[str, Product] = {}
    transposed = "transposed" in names

    def vector(to: str, name: str) -> None:
        found = source.take(name)
        if found is not None:
            weights[to] = found.reals() if isinstance(found, QuantizedBlocks) else found.detach()

    def biased(part: str, name: str) -> bool:
        """Whether a bias is read: what a config does not declare is left, for `rest`, and what it declares is there."""
        if shape.biased is not None and part in shape.biased and source.take(name) is None:
            raise UnknownToDecoder(f"there is no {name}")
        return shape.biased is None or part in shape.biased

    def norm(to: str, name: str) -> None:
        vector(to, name + ".weight")
        if to in weights and biased("norms", name + ".bias"):
            vector(to + ".b", name + ".bias")

    def matrix(to: str, *from_: str, bias: str | None = None) -> bool:
        found = [source.take(f"{name}.weight") for name in from_]
        if all(f is None for f in found):
            return False
        parts = [f for f in found if f is not None]
        if len(parts) < len(from_):
            raise UnknownToDecoder(f"{to} has no {from_[found.index(None)]}")
        key = to.rsplit(".", 1)[-1]
        at = [f"{name}.bias" for name in from_] if bias is None else [bias]
        biases = [source.take(name) if bias or biased(key, name) else None for name in at]
        if transposed and any(isinstance(p, QuantizedBlocks) for p in parts):
            raise UnknownToDecoder(f"{to} is transposed, and stands in blocks")
        whole = [p.t() for p in parts] if transposed else source.joined(parts)  # type: ignore[union-attr]  # no blocks
        some = [b for b in biases if isinstance(b, Tensor)]
        if some and len(some) < len(biases):
            some = [b if isinstance(b, Tensor) else some[0].new_zeros(len(parts[n])) for n, b in enumerate(biases)]
        if len(whole) < len(parts) and some:
            some = [torch.cat(some)]
        given = tuple(b.detach() for b in some)
        made = product(*(w if isinstance(w, QuantizedBlocks) else w.detach() for w in whole), biases=given)
        made.owners = tuple(w for w in whole if type(w) is torch.nn.Parameter)
        products[to] = made
        return True

    for key in ("embed", "positions"):
        if key in names:
            found = source.take(names[key])
            if found is None:
                raise UnknownToDecoder(f"there is no {names[key]}")
            if isinstance(found, QuantizedBlocks) and key == "embed":
                products[key] = BlockProduct(found)
            else:
                vector(key, names[key])
    for key in ("norm", "embed_norm"):
        if key in names:
            norm(key, names[key])
    if "out" in names:
        if not matrix("out", names["out"]):
            products["out"] = products["embed"] if "embed" in products else Product(weights["embed"])
    for i, layer in enumerate(shape.layers):
        at, here = f"{i}.", {key: name.format(i=i) for key, name in names.items()}
        for key in NORMS:
            if key in here:
                norm(at + key, here[key])
                _per_head(at + key, here[key], source, weights)
        for key in VECTORS:
            if key in here:
                vector(at + key, here[key])
        for key in MATRICES:
            if key in here:
                matrix(at + key, here[key], bias=here.get(key + ".b"))
        for key, parts in JOINED.items():
            if key in here and key not in parts:
                matrix(at + key, here[key])
            else:
                matrix(at + key, *(here[part] for part in parts if part in here))
        if layer.experts is not None:
            for key in ("router", "shared_gate"):
                if key in here:
                    vector(at + key, here[key] + ".weight")
                    if biased(key, here[key] + ".bias"):
                        vector(at + key + ".b", here[key] + ".bias")
            for key in ("experts_up", "experts_down"):
                vector(at + key, here[key])
                if biased(key, here[key] + "_bias"):
                    vector(at + key + ".b", here[key] + "_bias")
                if len(weights.get(at + key, ())) not in (0, layer.experts.count):
                    raise UnknownToDecoder(f"there are {len(weights[at + key])} of {layer.experts.count} {here[key]}")
                if layer.experts.columns and at + key in weights:
                    weights[at + key] = weights[at + key].transpose(1, 2)
    if shape.offset:
        weights = {k: w + shape.offset if k.rsplit(".", 1)[-1] in (*NORMS, "norm") else w for k, w in weights.items()}
    if shape.unit_norms:
        some = next(iter(weights.values())).new_ones(())
        for key in NORMS:
            weights |= {f"{i}.{key}": some for i in range(len(shape.layers)) if key in names}
        weights |= {key: some for key in ("norm", "embed_norm") if key in names}
    for i, layer in enumerate(shape.layers):
        _check_whole(i, shape, names, {*weights, *products})
        if layer.difference is not None:
            q1, k1, q2, k2 = (weights.pop(f"{i}.{key}") for key in VECTORS[-4:])
            weights[f"{i}.difference"] = (q1 * k1).sum().exp() - (q2 * k2).sum().exp() + layer.difference
    if "norm" in names and "norm" not in weights:
        raise UnknownToDecoder(f"there is no {names['norm']}")
    if source.rest():
        raise UnknownToDecoder(f"nothing reads {', '.join(source.rest()[:3])}")
    return weights, products


def _check_whole(i: int, shape: Shape, names: Names, stored: Set[str]) -> None:
    """Raises UnknownToDecoder where layer i lacks a tensor that its family has: transformers would draw one."""
    sparse = f"{i}.router" in stored
    joined = {part: to for to, parts in JOINED.items() for part in parts}
    whole = {"norm", "embed_norm", "embed", "positions", "out"}
    mixture = {"router", "router_bias", "shared_gate", "experts_up", "experts_down", "shared_up", "shared_down"}
    least = {"attn_in", "o", *(() if shape.bare else ("up", "down")), *(() if shape.bare or shape.parallel else ("mlp_in",))}
    for key in names:
        if key in whole or not key.isidentifier() or not names[key] or f"{i}.{key}" in names:
            continue
        to = joined.get(key, key)
        if to in (("up", "down") if sparse else mixture) or f"{i}.{to}" in stored:
            continue
        if shape.biased is not None or to in least:  # of a head, or a GGUF file, nothing says what else it has
            raise UnknownToDecoder(f"there is no {names[key].format(i=i)}")


def _per_head(to: str, name: str, source: TensorSource[Taken], weights: dict[str, Tensor]) -> None:
    """Norms with a weight a head, in a list of modules."""
    found: list[Tensor] = []
    while (one := source.take(f"{name}.norms.{len(found)}.weight")) is not None:
        assert isinstance(one, Tensor), "norms stand in no blocks"
        found.append(one)
    if found:
        weights[to] = torch.stack([w.detach() for w in found])
