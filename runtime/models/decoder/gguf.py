"""The decoder's net of a GGUF file: its blocks as they lie in the mapped file, multiplied as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.decoder.families import shape_of
from decgraph.runtime.models.decoder.folder import check_shapes
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.decoder.rotary import frequencies
from decgraph.runtime.models.decoder.shape import UnknownToDecoder, reading_settings
from decgraph.runtime.models.decoder.weights import canonical
from decgraph.runtime.models.gguf.file import GgufFile
from decgraph.runtime.models.gguf.settings import ARCHITECTURES, INSTEAD, NAMES
from decgraph.runtime.native.decoder import native
from decgraph.runtime.native.formats import QuantizedBlocks
from decgraph.runtime.native.products import Activations

WHOLE = ("embed", "positions", "norm", "out")
"""What is not a layer's."""
FACTORS = "rope_freqs.weight"
"""By what the frequencies of rotary positions are divided: Llama 3.1's scaling."""


class FileSource:
    """The tensors of a file by their names; see `weights.TensorSource`. dtype: on a CPU in float32 matrices are blocks as they
    lie in the file, else all are made numbers of it."""

    def __init__(self, file: GgufFile, dtype: torch.dtype, device: str) -> None:
        self._file, self._dtype, self._device = file, dtype, device
        self._bytes = torch.frombuffer(file.data, dtype=torch.uint8)
        self._taken = {FACTORS}

    def take(self, name: str) -> Tensor | QuantizedBlocks | None:
        """See `weights.TensorSource`."""
        entry = self._file.tensors.get(name)
        if entry is None:
            return None
        self._taken.add(name)
        data = self._bytes[entry.at : entry.at + entry.size]
        if entry.form == "F32":
            return data.view(torch.float32).view(entry.shape).to(self._device, self._dtype)
        made = QuantizedBlocks(data, entry.form, (prod(entry.shape[:-1]), entry.shape[-1]))
        if len(entry.shape) == 2 and self._dtype == torch.float32 and self._device == "cpu":
            return made
        return made.reals().view(entry.shape).to(self._device, self._dtype)

    def rest(self) -> list[str]:
        """See `weights.TensorSource`."""
        return sorted(set(self._file.tensors) - self._taken)

    def joined(self, parts: list[Tensor | QuantizedBlocks]) -> list[Tensor | QuantizedBlocks]:
        """Matrices [n, in] as they are: what is mapped stays where it lies."""
        return parts


def own_dtype(file: GgufFile) -> torch.dtype:
    """What most bytes of a file are numbers of, where these are half as long; else float32, which holds what blocks are."""
    return {"F16": torch.float16, "BF16": torch.bfloat16}.get(file.form, torch.float32)


def net_of_file(
    file: GgufFile, config: Mapping[str, object], dtype: torch.dtype, device: str, activations: Activations = "int16"
) -> Net:
    """The net of a file with these settings. activations: see `NativeProduct`. Raises DecError where it has something that the
    decoder does not know."""
    try:
        shape, theirs = shape_of(config)
        shape = replace(
            shape,
            pairs="kept" if ARCHITECTURES[file.architecture].neighbours else shape.pairs,
            offset=0.0,  # is in the file's norms already
            tied=bool(config["tie_word_embeddings"]),
            biased=None,  # the file's tensors say it
        )
        own = {key: name if key in WHOLE else f"blk.{{i}}.{name}" for key, name in NAMES.items()}
        names = {key: own[key] for key in (*theirs, "out") if key in own}
        source = FileSource(file, dtype, device)
        with torch.no_grad(), reading_settings():
            weights, products = canonical(shape, names, source)
            check_shapes(shape, weights, products, config)
            ropes = frequencies(shape, device)
            if (factors := source.take(FACTORS)) is not None:
                ropes = {kind: (_divided(inverse, factors), scale) for kind, (inverse, scale) in ropes.items()}
        return Net(native(TransformerDecoder(shape, weights, products, ropes), activations), config)
    except (UnknownToDecoder, DecError) as unknown:
        said = unknown.diagnostics[0] if isinstance(unknown, DecError) else unknown
        raise DecError(f"{file.path} is not read as a model: {said}", hint=INSTEAD) from None


def _divided(inverse: Tensor, factors: Tensor | QuantizedBlocks) -> Tensor:
    if not isinstance(factors, Tensor) or factors.shape != inverse.shape:
        raise UnknownToDecoder(f"{FACTORS} are not {len(inverse)} numbers")
    return inverse / factors.float()
