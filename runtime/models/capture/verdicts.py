"""Verdicts about captured graphs, kept in the user's cache, so that a second start need not judge again.

Judging (judge.py) runs layers of the module in float64 and compares; recording and passes, which must be repeated anyway, say
what the graph is. A verdict names the passes that were left out, and belongs to all that it depends on:

- what the judge was shown: the samples, the module's own states, keys and values for them, and the constants in its code;
- the graph after passes, operation by operation, with a checksum of each of its tensors;
- the code in this folder, the versions of Python, torch and transformers, the processor's features, torch's settings, and
  the environment variables that change arithmetic.

Where any of these differs the graph is judged. An entry is a small JSON file, written atomically; one that is broken or says
something else counts as none, all may be deleted at any time, and the oldest go where there are more than `MOST`. Nothing in
an entry is run. Only processors' results are the same from run to run, so graphs on other devices are always judged.
`DECGRAPH_VERDICTS=0` keeps and reads none; `DECGRAPH_CACHE` moves the cache (`runtime/tune/kept.py`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from decgraph.runtime.models.capture.drop import RAISED
from decgraph.runtime.models.capture.judge import Run
from decgraph.runtime.models.capture.program import CapturedGraph
from decgraph.runtime.models.processor import features
from decgraph.runtime.tune import kept as kept_files

MOST = 256
"""Entries that are kept."""
_ARITHMETIC = ("DECGRAPH_", "DNNL_", "ONEDNN_", "MKL_", "OMP_", "KMP_", "ATEN_", "TORCH_", "PYTORCH_")
_NO_ARITHMETIC = ("DECGRAPH_CACHE", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")


class Verdict:
    """The place of the verdict about one module's captures. names: the passes in question, in order. kept: False where none is
    to be read or written."""

    def __init__(self, runs: Sequence[Run], names: Sequence[str], *, kept: bool = True) -> None:
        self.names = list(names)
        self.path: Path | None = None
        if (
            not kept
            or os.environ.get("DECGRAPH_VERDICTS") == "0"
            or any(run.recording.outputs.device.type != "cpu" for run in runs)
        ):
            return
        try:
            self.path = kept_files.folder() / "verdicts" / f"{_digest(self._shown(runs))}.json"
        except (TypeError, RuntimeError, ValueError):  # tensors without plain storage
            pass

    def dropped(self) -> dict[str, str] | None:
        """The passes that were found at fault, with what was wrong; None where there is no entry."""
        made = self._read().get("dropped")
        if not isinstance(made, dict) or not all(n in self.names and isinstance(wrong, str) for n, wrong in made.items()):
            return None
        return made

    def holds(self, program: CapturedGraph) -> bool:
        """Whether it is about this very graph."""
        said = self._read().get("graph")
        return isinstance(said, str) and said == graph_digest(program)

    def keep(self, program: CapturedGraph, dropped: Mapping[str, str]) -> None:
        """Keeps that a graph was found right; a folder that cannot be written is done without. Where a pass raised nothing is
        kept: it may not raise again."""
        lasting = self.path is not None and not any(wrong.startswith(RAISED) for wrong in dropped.values())
        digest = graph_digest(program) if lasting else None
        if self.path is None or digest is None:
            return
        kept_files.replace(self.path, {"graph": digest, "dropped": dict(dropped)})
        _bound(self.path.parent)

    def _read(self) -> dict[str, Any]:
        return {} if self.path is None else kept_files.read(self.path)

    def _shown(self, runs: Sequence[Run]) -> Iterator[str]:
        yield from (_surroundings(), repr(_settings()), repr(self.names))
        for run in runs:
            made, before = run.recording, run.before
            yield repr((made.kinds, made.windows, [layer for layer, _ in made.chosen]))
            yield from map(_summed, (before.ids, before.positions, before.write, *before.keys, *before.values))
            yield from map(_summed, (*run.after.keys, *run.after.values, made.outputs, *made.states))
            for tensors in (before.masks, made.loose):
                yield from (f"{name} {_summed(tensor)}" for name, tensor in sorted(tensors.items()))


def graph_digest(program: CapturedGraph) -> str | None:
    """A digest of a graph and its tensors; None for tensors without plain storage."""
    try:
        return _digest(_lines(program))
    except (TypeError, RuntimeError, ValueError):
        return None


def _lines(program: CapturedGraph) -> Iterator[str]:
    for node in program.graph.nodes:
        known = [node.meta.get(name) for name in ("op", "shape", "dtype", "layer")]
        yield repr((node.op, node.name, _named(node.target), _plain(node.args), _plain(node.kwargs), known))
    yield repr((program.kinds, program.windows, program.heads, program.caches, program.reach, program.dtype))
    for name, tensor in sorted(program.tensors.items()):
        yield f"{name} {_summed(tensor)}"


def _named(target: Any) -> str:
    """The name of what a node calls: never an address. Raises TypeError for what has none."""
    if isinstance(target, str):
        return target
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(f"{target!r} has no name")
    return f"{getattr(target, '__module__', '')}.{name}"


def _plain(value: Any) -> Any:
    """Arguments with nodes by name. Raises TypeError for what is no plain value: its text may hold an address."""
    if isinstance(value, fx.Node):
        return ("node", value.name)
    if isinstance(value, tuple | list):
        return [type(value).__name__, *map(_plain, value)]
    if isinstance(value, dict):
        return sorted((str(name), _plain(item)) for name, item in value.items())
    if isinstance(value, slice):
        return ("slice", _plain(value.start), _plain(value.stop), _plain(value.step))
    if value is None or isinstance(value, str | int | float | bool | torch.dtype | torch.device):
        return value
    if value is ...:
        return "..."
    raise TypeError(f"{type(value).__name__} is no plain value")


def _summed(tensor: Tensor) -> str:
    """The form of a tensor and a checksum of its numbers. Raises TypeError or RuntimeError where they do not lie plainly."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        raise TypeError(f"{type(tensor).__name__} has no plain storage")
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
    there = tensor.detach().permute(order).contiguous()  # a transposed matrix is read as it lies
    count = zlib.crc32(memoryview(there.reshape(-1).view(torch.uint8).numpy())) if there.numel() else 0
    return f"{tensor.dtype} {tuple(tensor.shape)} {order} {count:08x}"


def _digest(lines: Iterable[str]) -> str:
    made = hashlib.sha256()
    for line in lines:
        made.update(line.encode() + b"\n")
    return made.hexdigest()


@lru_cache(maxsize=1)
def _surroundings() -> str:
    """A digest of the code that captures and judges, and of what runs it."""
    import transformers

    here = Path(__file__).parent
    sources = sorted([*here.glob("*.py"), here.parent / "packs.py", here.parent / "hf_net.py"])
    return _digest(
        [
            *(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in sources),
            sys.version,
            torch.__version__,
            transformers.__version__,
            torch.__config__.show(),
            platform.machine(),
            features(),
        ]
    )


def _settings() -> dict[str, Any]:
    """What may change in a process and changes arithmetic."""
    return {
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "denormals": float(torch.tensor(1e-40) * 1.0) == 0.0,
        "environment": sorted((k, v) for k, v in os.environ.items() if k.startswith(_ARITHMETIC) and k not in _NO_ARITHMETIC),
    }


def _bound(folder: Path) -> None:
    """Deletes the oldest entries above `MOST`."""
    try:
        found = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in found[:-MOST]:
            path.unlink(missing_ok=True)
    except OSError:  # another process deletes too
        pass
