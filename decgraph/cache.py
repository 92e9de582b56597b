"""The user's cache: the folder that everything kept between runs lies in, and measurements in it, as JSON files of one object
each, which several processes may add to at the same time.

They are caches. A file that is missing, broken or of another kind counts as empty, a folder that cannot be written is done
without, and everything may be deleted at any time. `DECGRAPH_CACHE` moves the folder.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def folder() -> Path:
    """Where measurements and fetched models are kept: `DECGRAPH_CACHE`, or `decgraph` in `XDG_CACHE_HOME` (an absolute path, as
    its specification demands), or `.cache/decgraph` at home."""
    said = os.environ.get("DECGRAPH_CACHE")
    if said:
        return Path(said)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():
        return shared / "decgraph"
    try:
        return Path.home() / ".cache" / "decgraph"
    except RuntimeError:  # nobody's home is known
        return Path(tempfile.gettempdir()) / ".cache" / "decgraph"


def read(path: Path) -> dict[str, Any]:
    """A file's JSON object; empty if it is missing, cannot be read, or is no JSON object."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # a JSON error and one of UTF-8 are ValueErrors
        return {}
    return held if isinstance(held, dict) else {}


def add(path: Path, entries: Mapping[str, Any]) -> bool:
    """Put entries into a file, over older ones of the same names and beside those that others put there meanwhile.

    The file is replaced atomically, so that no reader sees half of it. False where it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path):
            _write(path, {**read(path), **entries})
    except OSError:
        return False
    return True


def replace(path: Path, entries: Mapping[str, Any]) -> bool:
    """Put entries into a file in place of what it had, atomically. False where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, entries)
    except OSError:
        return False
    return True


def _write(path: Path, entries: Mapping[str, Any]) -> None:
    number, part = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump(entries, file, indent=1, sort_keys=True)
            file.write("\n")
        os.replace(part, path)
    except BaseException:  # Ctrl-C as well: what is half written goes
        os.unlink(part)
        raise


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process at a time, so that none overwrites what another has just added. The lock is a file beside `path`; it goes
    with its process."""
    try:
        import fcntl
    except ImportError:  # not a Unix: the last one to write wins, which a cache can bear
        yield
        return
    with path.with_name(f"{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
