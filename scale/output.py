"""The file that results are appended to: one JSON record a line, whole or not at all, each id once."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from decgraph.errors import DecError
from decgraph.runtime.json_lines import unbroken
from decgraph.scale.rows import Id, PromptLine, key_of, prompt_digest

SYNC_SECONDS = 1.0
"""What is written reaches the disk at least this often."""


class JsonLinesOutput:
    """Appends records to a .jsonl file. A record is handed to the operating system as it is written, so that it outlives the
    process; it outlives the machine after the next sync (`SYNC_SECONDS`, and `close`).

    file: the results. settings: what decided them (algorithm, models, sampling), kept beside it in `FILE.settings`. With
    `resume`, a file that is there is gone on with: `done` are the keys of its rows, `errors` of those with one, and a last line
    that was cut short is taken away; with `retry` the records with an error are too. Raises DecError for a file that is there
    without `resume`, one written with other settings, one that is no file of results, and one that another process writes.
    """

    def __init__(self, file: Path, settings: Mapping[str, Any], *, resume: bool = False, retry: bool = False) -> None:
        self.file, self.done, self.errors = file, set[str](), set[str]()
        self._prompts: dict[str, str] = {}
        beside = file.with_name(f"{file.name}.settings")
        if file.exists() and not file.is_file():
            raise DecError(
                f"cannot write {file}: it is no regular file", hint="a file of its own, which --resume can read and go on with"
            )
        try:
            there = file.exists() and file.stat().st_size > 0
            if there and not resume:
                raise DecError(f"{file} is there already", hint="--resume goes on with it; or another file, or remove it")
            self._handle: BinaryIO = file.open("a+b")
            try:
                self._lock()
                if there:
                    _compare(file, beside, settings)
                    self._read()
                    if retry and self.errors:
                        self._drop_errors()
                else:
                    _write(beside, json.dumps(settings, indent=1, sort_keys=True).encode() + b"\n")
            except BaseException:
                self._handle.close()
                raise
        except OSError as error:
            raise DecError(f"cannot write {error.filename or file}: {error.strerror or error}") from None
        self._synced = time.monotonic()

    def has(self, id: Id) -> bool:
        """Whether a row's record is written."""
        return key_of(id) in self.done

    def failed(self, id: Id) -> bool:
        """Whether a row's record has an error."""
        return key_of(id) in self.errors

    def check_prompts(self, rows: Iterable[PromptLine]) -> None:
        """Raises DecError where a row's record is of another prompt than the row has now; one with an error is of none."""
        done = (row for row in rows if self.has(row.id) and not self.failed(row.id))
        other = [key_of(row.id) for row in done if self._prompts.get(key_of(row.id)) != prompt_digest(row)]
        if other:
            rest = f" and {len(other) - 1} more" if len(other) > 1 else ""
            raise DecError(f"{self.file} has the result of another prompt for the row {other[0]}{rest}",
                           hint="the prompts as they were, in their order where they have no ids; or another file")  # fmt: skip

    def write(self, record: Mapping[str, Any]) -> bool:
        """Append the record of a row, unless its id has one; whether it was appended."""
        key = key_of(record["id"])
        if key in self.done:
            return False
        try:
            line = unbroken(json.dumps(record, ensure_ascii=False, allow_nan=False)).encode("utf-8")
        except UnicodeEncodeError:  # half of a surrogate pair in an id: JSON escapes it
            line = json.dumps(record, allow_nan=False).encode("ascii")
        try:
            self._handle.write(line + b"\n")
            self._handle.flush()
            self._known(record)
            if time.monotonic() - self._synced > SYNC_SECONDS:
                self._sync()
        except OSError as error:
            self._drop()
            raise self._failure(error) from None
        return True

    def close(self) -> None:
        """Everything on the disk, and the file free for others."""
        if not self._handle.closed:
            try:
                self._sync()
                self._handle.close()
            except OSError as error:
                self._drop()
                raise self._failure(error) from None

    def __enter__(self) -> JsonLinesOutput:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sync(self) -> None:
        os.fsync(self._handle.fileno())
        self._synced = time.monotonic()

    def _drop(self) -> None:
        """Close without what cannot be written: the next try to write it would fail as well."""
        with suppress(OSError):
            self._handle.close()

    def _failure(self, error: OSError) -> DecError:
        hint = "--resume goes on with what is written, when there is room"
        return DecError(f"cannot write {self.file}: {error.strerror or error}", hint=hint)

    def _known(self, record: Mapping[str, Any]) -> None:
        self.done.add(key_of(record["id"]))
        self._prompts[key_of(record["id"])] = record.get("prompt_digest", "")
        if record.get("error") is not None:
            self.errors.add(key_of(record["id"]))

    def _lock(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DecError(f"{self.file} is being written by another process", hint="wait for it, or another file") from None

    def _drop_errors(self) -> None:
        """Take away the records with an error. The file as it was is there until the new one is whole."""
        file = self.file.resolve()
        fresh = file.with_name(f"{file.name}.fresh")
        self._handle.seek(0)
        with fresh.open("wb") as out:
            out.writelines(line for line in self._handle if line.strip() and json.loads(line).get("error") is None)
            out.flush()
            os.fsync(out.fileno())
        shutil.copymode(file, fresh)
        fresh.replace(file)
        with self._handle:
            self._handle = self.file.open("a+b")
        self._lock()
        self.done -= self.errors
        self.errors = set()

    def _read(self) -> None:
        """The ids that are there; a last line without its end is cut off."""
        self._handle.seek(0)
        whole = 0
        for number, line in enumerate(self._handle, 1):
            if not line.endswith(b"\n"):
                self._handle.truncate(whole)
                break
            try:
                if line.strip():
                    self._known(json.loads(line))
            except (ValueError, TypeError, KeyError):
                raise DecError(f"{self.file}:{number} is no record of `decgraph map`", hint="another file") from None
            whole += len(line)
        self._handle.seek(0, os.SEEK_END)


def _compare(file: Path, beside: Path, settings: Mapping[str, Any]) -> None:
    """Raises DecError where a file of results was written with other settings than these."""
    try:
        before = json.loads(beside.read_bytes())
    except (OSError, ValueError):
        raise DecError(f"{beside} cannot be read, so nobody knows what {file} was decoded with", hint="another file") from None
    plain = json.loads(json.dumps(settings))
    if other := [name for name in {**before, **plain} if before.get(name) != plain.get(name)]:
        hint = f"the same settings as before ({beside}), or another file"
        raise DecError(f"{file} was decoded with another {', another '.join(sorted(other))}", hint=hint)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
