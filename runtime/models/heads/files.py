"""The files of a head's folder: its configuration and its tensors by name. Nothing in a folder is run.

safetensors files are read as they are, `.bin` and `.pt` files with torch's loader for weights only, which refuses a pickle that
holds anything but tensors. Indexed folders (`*.index.json`) are read shard by shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.folders import shards
from decgraph.runtime.models.unreadable import unreadable

# In this order: a file that is named after heads comes before one that may hold a whole model.
_NAMED = ("medusa_lm_head", "hydra_lm_head", "model", "pytorch_model")
_ENDINGS = (".safetensors", ".bin", ".pt")
_WRAPPERS = ("module.", "model.", "eagle_module.")  # what wrapping a module for training puts before every name


class Tensors(Mapping[str, Tensor]):
    """The tensors of some files by name, read when they are asked for. Raises DecError for a file that cannot be read."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files
        self._at: dict[str, tuple[Path, str]] = {}
        self._read: dict[Path, dict[str, Tensor]] = {}
        for file in files:
            names = _names(file) if file.suffix == ".safetensors" else self._whole(file)
            self._at.update({name: (file, name) for name in names})
        self._unwrap()

    def __getitem__(self, name: str) -> Tensor:
        file, stored = self._at[name]
        if file.suffix != ".safetensors":
            return self._whole(file)[stored]
        try:
            with safe_open(file, framework="pt") as handle:
                found: Tensor = handle.get_tensor(stored)
        except (SafetensorError, OSError) as error:
            raise unreadable(file, error) from error
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)

    def _whole(self, file: Path) -> dict[str, Tensor]:
        if file not in self._read:
            self._read[file] = _weights_only(file)
        return self._read[file]

    def _unwrap(self) -> None:
        for prefix in _WRAPPERS:
            if self._at and all(name.startswith(prefix) for name in self._at):
                self._at = {name.removeprefix(prefix): at for name, at in self._at.items()}
        # What Domino's and DSpark's first folders put before the names of what corrects scores.
        self._at = {name.removeprefix("logit_head."): at for name, at in self._at.items()}


def tensors(folder: Path) -> Tensors:
    """The tensors in a folder. Raises DecError for a folder without weights, or with several files and no index."""
    return Tensors(_files(folder))


def _files(folder: Path) -> list[Path]:
    found = sorted(p for p in folder.iterdir() if p.suffix in _ENDINGS and p.is_file())
    for name in _NAMED:
        for ending in _ENDINGS:
            index, whole = folder / f"{name}{ending}.index.json", folder / f"{name}{ending}"
            named = shards(index) if index.is_file() else [whole] if whole in found else []
            if named:
                others = [p.name for p in found if p.suffix == ".safetensors" and p not in named]
                if others := [name for name in others if not name.startswith((*_NAMED, "consolidated"))]:
                    beside = index if index.is_file() else whole
                    raise DecError(f"{folder} has {', '.join(others)} beside {beside.name}, and no index that names it",
                                   hint="keep one, or name its tensors in model.safetensors.index.json")  # fmt: skip
                return named
    if len(found) == 1:
        return found
    if not found:
        raise DecError(f"{folder} has no weights", hint="a .safetensors, .bin or .pt file beside its config.json")
    raise DecError(f"{folder} has {len(found)} files of weights and no index: {', '.join(p.name for p in found)}",
                   hint="keep one, or add model.safetensors.index.json")  # fmt: skip


def _names(file: Path) -> list[str]:
    try:
        with safe_open(file, framework="pt") as handle:
            return list(handle.keys())
    except (SafetensorError, OSError) as error:
        raise unreadable(file, error) from error


def _weights_only(file: Path) -> dict[str, Tensor]:
    import pickle

    try:
        read = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DecError(
            f"{file} is refused: it holds more than tensors, and code in a folder is never run",
            hint="save its state dict: torch.save(module.state_dict(), FILE), or use safetensors",
        ) from error
    except Exception as error:  # torch raises what its zip reader, its unpickler or the file system raise
        raise unreadable(file, error) from error
    if isinstance(read, dict) and set(read) == {"state_dict"}:
        read = read["state_dict"]
    if not isinstance(read, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in read.items()):
        raise DecError(f"{file} is no state dict: it must hold tensors by name")
    return dict(read)
