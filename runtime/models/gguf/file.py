"""A GGUF file (versions 2 and 3), mapped: settings by name, and where tensors lie. Each number that the file gives is compared
with the bytes that are left, so that a spoilt file ends in an error and not in a large allocation.

The format: "GGUF", version, counts of tensors and settings; settings, each a name, a type and a value; tensors, each a name,
dimensions (the fastest first), a type and an offset into what follows at the next multiple of `general.alignment`.
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TypeAlias

from decgraph.errors import DecError
from decgraph.runtime.models.unreadable import unreadable
from decgraph.runtime.native import FORMATS

_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
KINDS = {
    0: "F32", 1: "F16", 30: "BF16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K"
}  # fmt: skip
"""Forms of tensors that are read, by their number."""
_OTHERS = {
    10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
    39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True)
class TensorEntry:
    """A tensor: the form of its blocks, its shape (the fastest dimension last), and its bytes in the file."""

    form: str
    shape: tuple[int, ...]
    at: int
    size: int


Value: TypeAlias = "str | int | float | list[str | int | float] | memoryview[int] | memoryview[float]"
"""Of a setting; arrays of numbers as they lie in the file."""


@dataclass(frozen=True)
class GgufFile:
    """What a file says. settings: by whole name ("llama.block_count"). data: the mapped file, private to this process."""

    path: Path
    settings: dict[str, Value]
    tensors: dict[str, TensorEntry]
    data: mmap.mmap

    @property
    def form(self) -> str:
        """The form of most bytes of tensors."""
        sizes: Counter[str] = Counter()
        for entry in self.tensors.values():
            sizes[entry.form] += entry.size
        return max(sizes, key=lambda form: sizes[form], default="")

    @property
    def architecture(self) -> str:
        """What the file says that the model is."""
        return str(self.settings.get("general.architecture", ""))


def read(path: Path) -> GgufFile:
    """The file at a path. Raises DecError for one that is no GGUF, is cut off or spoilt, is a part of a model, or has blocks of
    a kind that is not read."""
    try:
        found = path.stat()
        return _read(path.resolve(), (found.st_ino, found.st_mtime_ns, found.st_size))
    except (OSError, ValueError, struct.error) as error:
        raise unreadable(path, error) from None


@lru_cache(maxsize=4)
def _read(path: Path, state: tuple[int, int, int]) -> GgufFile:
    """The file in this state."""
    with path.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ValueError("it does not begin as a GGUF file does")
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    reader = _Reader(data)
    version = reader.whole("I")
    if version not in (2, 3):
        big = "" if version not in (2 << 24, 3 << 24) else ": its numbers are big-endian"
        raise ValueError(f"it is of version {version} of the format, and 2 and 3 are read{big}")
    count, named = reader.whole("Q"), reader.whole("Q")
    settings: dict[str, Value] = {}
    for _ in range(reader.some(named, 13)):
        name = reader.string()
        if name in settings:
            raise ValueError(f"it has {name} twice")
        settings[name] = reader.value(reader.whole("I"))
    if (parts := settings.get("split.count", 1)) not in (0, 1):
        raise DecError(f"{path} is one of {parts} files of a model", hint="llama-gguf-split --merge FIRST WHOLE")
    entries = [reader.tensor() for _ in range(reader.some(count, 28))]
    unit = settings.get("general.alignment", 32)
    if type(unit) is not int or unit < 1 or unit & (unit - 1):
        raise ValueError(f"general.alignment is {unit!r}")
    begin = -(-reader.at // unit) * unit
    tensors: dict[str, TensorEntry] = {}
    for name, shape, kind, offset in entries:
        if kind not in KINDS:
            raise DecError(
                f"{path} has {name} in the form {_OTHERS.get(kind, kind)}, which is not read",
                hint=f"another file of the model: {', '.join(KINDS.values())} are read",
            )
        form, count = KINDS[kind], prod(shape)
        _, numbers, size = FORMATS.get(form, (0, 1, 4))
        entry = tensors[name] = TensorEntry(form, shape, begin + offset, count // numbers * size)
        if not count or shape[-1] % numbers or offset % unit or name in settings:
            raise ValueError(f"{name} of shape {list(shape)} at {offset} is no tensor of {form}")
        if entry.at + entry.size > len(data):
            raise ValueError(f"it has {len(data)} bytes, and {name} ends at {entry.at + entry.size}")
    if len(tensors) != len(entries):
        raise ValueError("it has two tensors of one name")
    return GgufFile(path, settings, tensors, data)


class _Reader:
    """What is read one after the other. Raises ValueError where the file ends before."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self.at = data, 4

    def whole(self, kind: str) -> int:
        found = self.number(kind)
        assert isinstance(found, int), "the kinds of whole numbers are I and Q"
        return found

    def number(self, kind: str) -> int | float:
        try:
            (found,) = struct.unpack_from(f"<{kind}", self._data, self.at)
        except struct.error:
            raise ValueError("it ends before its tensors begin") from None
        self.at += struct.calcsize(f"<{kind}")
        assert isinstance(found, int | float)
        return found

    def some(self, count: int, least: int) -> int:
        """A number of things of at least so many bytes each, if there is room for them."""
        if count * least > len(self._data) - self.at:
            raise ValueError("it ends before its tensors begin")
        return count

    def string(self) -> str:
        length = self.some(self.whole("Q"), 1)
        self.at += length
        return self._data[self.at - length : self.at].decode("utf-8", "replace")

    def value(self, kind: int) -> Value:
        if kind != _ARRAY:
            return self._one(kind)
        kind, count = self.whole("I"), self.whole("Q")
        if kind not in _SCALARS:
            return [self._one(kind) for _ in range(self.some(count, 8))]
        size = struct.calcsize(f"<{_SCALARS[kind]}")
        begin, self.at = self.at, self.at + self.some(count, size) * size
        return memoryview(self._data)[begin : self.at].cast(_SCALARS[kind])  # type: ignore[call-overload]  # as they lie

    def _one(self, kind: int) -> str | int | float:
        if kind not in (*_SCALARS, _STRING):
            raise ValueError(f"it has a setting of type {kind}")
        return self.string() if kind == _STRING else self.number(_SCALARS[kind])

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self.string(), self.whole("I")
        if not 1 <= dimensions <= 4:
            raise ValueError(f"{name} has {dimensions} dimensions")
        shape = tuple(reversed([self.whole("Q") for _ in range(dimensions)]))
        return name, shape, self.whole("I"), self.whole("Q")
