"""Conversion of published heads to decgraph's own layout, and what a folder holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.heads import load
from decgraph.runtime.models.heads.layout import Part, ReadHead
from decgraph.runtime.placement import AUTO, Placement

if TYPE_CHECKING:
    from decgraph.runtime.models.hf_causal import HFCausal

TAKES: dict[Part, str] = {
    "features": "`head: features(target)`",
    "heads": "the heads of `target: causal with heads` (--model target.heads=FOLDER)",
    "layers": "`adapter: layers(target)`",
    "head": "`judge: head(target) -> prob`",
}

_MATRIX = "output.matrix.weight"


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

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "files": [str(path) for path in self.files]}


def convert(
    folder: Path,
    *,
    out: Path | None = None,
    target: Path | None = None,
    share_output: bool = False,
    placed: Placement | None = None,
) -> Converted:
    """Reads a folder of any known layout; writes it to `out` in decgraph's own. With a target, the heads are also bound to it.
    share_output: leave out an output matrix whose rows are the target's, which are then read from the target. placed: where the
    target is loaded, and in which dtype.

    Raises DecError for a folder of no known layout, for tensors that do not make a head, for a head that does not fit the
    target, for an `out` that has files already, and for a matrix to leave out that is not the target's.
    """
    folder = folder.expanduser().resolve()
    head = load.read(folder)
    if share_output and target is None:
        raise DecError("whether an output matrix is the target's is seen on the target", hint="--target FOLDER")
    if share_output and placed is not None and placed.dtype not in (AUTO, "float32"):
        raise DecError(
            f"in {placed.dtype} the target's rows may be rounded, so they cannot be compared", hint="leave dtype out"
        )
    if target is not None:
        base = hf.load_causal(target, placed=placed)
        reading = lambda path, target: hf.load_reading(path, target, "prob")
        bind = {"features": hf.load_features, "heads": hf.load_heads, "layers": hf.load_adapter, "head": reading}[head.part]
        bind(folder, base)  # type: ignore[arg-type]  # a target whose states cannot be read is refused by them
        if share_output:
            from decgraph.runtime.models.hf_causal import HFCausal

            assert isinstance(base, HFCausal), "another's states cannot be read"
            head = _sharing(head, folder, base)
    else:
        load.module(head, folder, torch.float32)
    sizes: Counter[str] = Counter()
    for tensor in head.tensors.values():
        sizes[str(tensor.dtype).removeprefix("torch.")] += tensor.numel() if tensor.is_floating_point() else 0
    files = () if out is None else tuple(load.write(head, out.expanduser()))
    dtype = sizes.most_common(1)[0][0] if sizes else "float32"
    return Converted(head.layout, head.part, head.model_type, TAKES[head.part], sizes.total(), dtype, files)


def _sharing(head: ReadHead, folder: Path, target: HFCausal) -> ReadHead:
    """A head without its output matrix. Raises DecError unless the matrix holds the target's rows, in the precision of its
    file."""
    matrix = head.tensors.get(_MATRIX)
    if head.model_type not in ("decgraph_eagle2", "decgraph_eagle3") or matrix is None:
        raise DecError(f"{folder} has no output matrix to leave out", hint="EAGLE's heads may have one")
    rows = target.net.output
    tokens = head.tensors.get("output.tokens")
    rows = rows[: len(matrix)] if tokens is None else rows[tokens.to(rows.device)]
    if rows.shape != matrix.shape or not torch.equal(rows.to(matrix.dtype).cpu(), matrix):
        raise DecError(f"{folder}: {head.name(_MATRIX)} is not the target's output matrix, so it cannot be left out")
    tensors = {name: tensor for name, tensor in head.tensors.items() if name != _MATRIX}
    return replace(head, config={**head.config, "output": False}, tensors=tensors)
