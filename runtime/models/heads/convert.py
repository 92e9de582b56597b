"""Conversion of published heads to decgraph's own layout, and what a folder holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from decgraph.runtime.models import hf
from decgraph.runtime.models.heads import load
from decgraph.runtime.models.heads.layout import Part

TAKES: dict[Part, str] = {
    "features": "`head: features(target)`",
    "heads": "the heads of `target: causal with heads` (--model target.heads=FOLDER)",
    "layers": "`adapter: layers(target)`",
}


@dataclass(frozen=True)
class Converted:
    """What a folder holds, and the files that were written. dtype: of most parameters; parameters: how many numbers."""

    layout: str
    part: Part
    model_type: str
    takes: str
    parameters: int
    dtype: str
    files: tuple[Path, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "files": [str(path) for path in self.files]}


def convert(folder: Path, *, out: Path | None = None, target: Path | None = None) -> Converted:
    """Reads a folder of any known layout; writes it to `out` in decgraph's own. With a target, the heads are also bound to it.

    Raises DecError for a folder of no known layout, for tensors that do not make a head, for a head that does not fit the
    target, and for an `out` that has files already.
    """
    folder = folder.expanduser().resolve()
    head = load.read(folder)
    if target is not None:
        base = hf.load_causal(target, reuse=True)
        bind = {"features": hf.load_features, "heads": hf.load_heads, "layers": hf.load_adapter}[head.part]
        bind(folder, base)  # type: ignore[arg-type]  # a target whose states cannot be read is refused by them
    else:
        load.module(head, folder, torch.float32)
    sizes: Counter[str] = Counter()
    for tensor in head.tensors.values():
        sizes[str(tensor.dtype).removeprefix("torch.")] += tensor.numel() if tensor.is_floating_point() else 0
    files = () if out is None else tuple(load.write(head, out.expanduser()))
    dtype = sizes.most_common(1)[0][0] if sizes else "float32"
    return Converted(head.layout, head.part, head.model_type, TAKES[head.part], sizes.total(), dtype, files)
