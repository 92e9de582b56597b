"""Rows of text on disk, with the target's hidden states beside the tokens.

The states cost disk (2 bytes each) and save the target's forward in every epoch. A file is complete or not there: it is
written aside and renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from decgraph.errors import DecError

# Places at the very beginning have too little context to be worth imitating.
FROM = 4


@dataclass(frozen=True)
class Rows:
    """Rows of one length: `ids` int64[rows, length], `states` bfloat16[rows, length, layers * width] of all tokens."""

    ids: torch.Tensor
    states: torch.Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, which: slice) -> Rows:
        return Rows(self.ids[which], self.states[which])

    @property
    def asked(self) -> torch.Tensor:
        """The places after which a token is guessed, bool[rows, length]: the token after the last one is unknown."""
        asked = torch.zeros_like(self.ids, dtype=torch.bool)
        asked[:, FROM:-1] = True
        return asked


class RowStore:
    """The files of rows in a folder, and `manifest.json` with their digests and what they were made from."""

    def __init__(self, folder: Path, origin: dict[str, Any]) -> None:
        self.folder, self.file, self.origin = folder, folder / "manifest.json", origin
        self.parts: list[dict[str, Any]] = []
        folder.mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            kept = json.loads(self.file.read_text(encoding="utf-8"))
            if kept["origin"] != origin:
                raise DecError(f"the rows in {folder} were made from something else", hint="give another --work folder")
            self.parts = kept["parts"]

    def __len__(self) -> int:
        """Rows in the files."""
        return sum(part["rows"] for part in self.parts)

    def add(self, rows: Rows) -> None:
        """Write one file of rows."""
        name = f"part-{len(self.parts):04d}.safetensors"
        aside = self.folder / (name + ".partial")
        save_file({"ids": rows.ids.int(), "states": rows.states}, aside)
        os.replace(aside, self.folder / name)
        self.parts.append({"file": name, "sha256": digest(self.folder / name), "rows": len(rows)})
        aside = self.file.with_suffix(".partial")
        aside.write_text(json.dumps({"origin": self.origin, "parts": self.parts}, indent=1) + "\n", encoding="utf-8")
        os.replace(aside, self.file)

    def rows(self) -> Rows:
        """Every row of the files. Raises DecError for a file that was changed or is missing."""
        found = []
        for part in self.parts:
            path = self.folder / part["file"]
            if not path.exists() or digest(path) != part["sha256"]:
                raise DecError(f"{path} is not the file that was written there", hint=f"remove {self.folder} and begin again")
            found.append(load_file(path))
        return Rows(
            torch.cat([tensors["ids"] for tensors in found]).long(), torch.cat([tensors["states"] for tensors in found])
        )


def digest(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
