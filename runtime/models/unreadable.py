"""What to say of a file that could not be read."""

from __future__ import annotations

from pathlib import Path

from decgraph.errors import DecError

_POINTER = b"version https://git-lfs.github.com/spec/"


def is_pointer(file: Path) -> bool:
    """Whether a file is what Git keeps in the place of a large one."""
    try:
        with file.open("rb") as stream:
            return stream.read(len(_POINTER)) == _POINTER
    except OSError:  # what reads it next says why
        return False


def unreadable(file: Path, error: Exception) -> DecError:
    """The error of a file that could not be read."""
    if is_pointer(file):
        return DecError(f"{file} cannot be read: it is a Git LFS pointer, in the place of a file that was not downloaded",
                        hint=f"git -C {file.parent} lfs pull, or hf download")  # fmt: skip
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return DecError(f"{file} cannot be read: {said}", hint="it may be cut off: compare its size with the original's")
