"""Training text on disk: token files with digests, and the target's hidden states beside the tokens.

The states cost disk (2 bytes each) and save the target's forward in every epoch, which on SmolLM2 is more work than
the head's own forward and backward. A file is complete or not there: it is written aside and renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from decgraph.errors import DecError

# Tokens in one file.
PART = 16_384


@dataclass(frozen=True)
class StoredRow:
    """One row: token ids int64[n], the place where the answer begins, states bfloat16[n, layers * width] of all tokens.

    The state of the last token is zero in text that a model wrote, since it was never fed; nothing is learnt there.
    """

    ids: torch.Tensor
    answer: int
    states: torch.Tensor

    def to(self, device: torch.device) -> StoredRow:
        """The same text on a device."""
        return StoredRow(self.ids.to(device), self.answer, self.states.to(device))


class TokenStore:
    """The token files in a folder, and `manifest.json` with their digests and what they were made from."""

    def __init__(self, folder: Path, origin: dict[str, Any]) -> None:
        self.folder, self.file = folder, folder / "manifest.json"
        self.parts: list[dict[str, Any]] = []
        self.done = False
        folder.mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            try:
                told = json.loads(self.file.read_text(encoding="utf-8"))
                self.parts, self.done, kept = told["parts"], told["done"], told["origin"]
            except (json.JSONDecodeError, KeyError) as error:
                raise DecError(f"{self.file} is not a manifest of training text", hint="remove the folder") from error
            if kept != json.loads(json.dumps(origin)):
                raise DecError(f"the text in {folder} was made from something else", hint="give another --work folder")
        self.origin = origin
        self.waiting: list[StoredRow] = []

    @property
    def tokens(self) -> int:
        """Tokens in the files and in memory."""
        return sum(part["tokens"] for part in self.parts) + sum(len(text.ids) for text in self.waiting)

    def __len__(self) -> int:
        """Rows in the files."""
        return sum(part["rows"] for part in self.parts)

    def add(self, text: StoredRow) -> None:
        """Take one row; a file is written whenever enough have come."""
        self.waiting.append(text)
        if sum(len(text.ids) for text in self.waiting) >= PART:
            self.flush()

    def flush(self, *, done: bool = False) -> None:
        """Write the pending texts; `done`: no more will come."""
        if self.waiting:
            name = f"part-{len(self.parts):04d}.safetensors"
            tensors = {
                "ids": torch.cat([text.ids.int() for text in self.waiting]),
                "lengths": torch.tensor([len(text.ids) for text in self.waiting]),
                "answers": torch.tensor([text.answer for text in self.waiting]),
                "states": torch.cat([text.states.bfloat16() for text in self.waiting]),
            }
            aside = self.folder / (name + ".partial")
            save_file(tensors, aside)
            os.replace(aside, self.folder / name)
            part = {"file": name, "sha256": digest(self.folder / name), "rows": len(self.waiting)}
            self.parts.append({**part, "tokens": len(tensors["ids"])})
            self.waiting = []
        self.done = self.done or done
        told = {"origin": self.origin, "done": self.done, "parts": self.parts}
        aside = self.file.with_suffix(".partial")
        aside.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        os.replace(aside, self.file)

    def texts(self) -> list[StoredRow]:
        """Every row of the files. Raises DecError for a file that was changed or is missing."""
        found: list[StoredRow] = []
        for part in self.parts:
            path = self.folder / part["file"]
            if not path.exists() or digest(path) != part["sha256"]:
                raise DecError(f"{path} is not the file that was written there", hint=f"remove {self.folder} and begin again")
            try:
                found += split(load_file(path))
            except SafetensorError as error:
                raise DecError(f"{path} cannot be read: {error}", hint=f"remove {self.folder} and begin again") from error
        return found

    def sha256(self) -> str:
        """One digest of all files."""
        return hashlib.sha256("".join(part["sha256"] for part in self.parts).encode()).hexdigest()


def split(tensors: dict[str, torch.Tensor]) -> Iterable[StoredRow]:
    """The rows of one file's tensors: `ids` [tokens], `states` [tokens, width], `lengths` and `answers` [rows]."""
    ends = tensors["lengths"].cumsum(0).tolist()
    for start, end, answer in zip([0, *ends], ends, tensors["answers"].tolist(), strict=False):
        yield StoredRow(tensors["ids"][start:end].long(), answer, tensors["states"][start:end])


def digest(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
