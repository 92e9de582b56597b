"""Products with a model's matrices as they lie in its file, and whole layers, in C++ for x86-64 (native.cpp, kernels.h).

The library is built with the C++ compiler of this machine when it is first wanted and kept in the user's cache, under what it
was built from. Where there is no such compiler or processor, or where the environment variable DECGRAPH_NATIVE is 0, `library`
is None and torch's products are used. DECGRAPH_NATIVE_ISA is avx2 or avx512 where the best is not wanted."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache as once
from pathlib import Path

import torch

from decgraph import cache
from decgraph.errors import DecError

ISAS = {"": 0, "avx2": 2, "avx512": 5}
_FLAGS = ("-O3", "-fno-math-errno", "-std=c++17", "-shared", "-fPIC", "-Wno-psabi")
_SOURCES = ("native.cpp", "kernels.h")
_log = logging.getLogger("decgraph.native")


@once
def library() -> ctypes.CDLL | None:
    """The library, built where it is not yet; None where it cannot be. Raises DecError where DECGRAPH_NATIVE_ISA names no
    instruction set that this processor has."""
    if os.environ.get("DECGRAPH_NATIVE") == "0" or platform.machine() not in ("x86_64", "AMD64"):
        return None
    path = built()
    if path is None:
        return None
    found = ctypes.CDLL(str(path))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.native_product.argtypes = [pointer, pointer, number, number, pointer, number]
    found.native_reals.argtypes = [pointer, number, number, pointer]
    found.native_layer.argtypes = [pointer, pointer]
    found.native_threads.argtypes = [pointer]
    for function in (found.native_product, found.native_reals, found.native_layer, found.native_threads):
        function.restype = None
    wanted = os.environ.get("DECGRAPH_NATIVE_ISA", "")
    if not found.native_isa(ISAS.get(wanted, -1) if wanted else 0):
        if wanted:
            raise DecError(f"DECGRAPH_NATIVE_ISA is {wanted}, which this processor or the library does not have")
        return None
    # A symbol of a library that torch depends on: its threads, and no second pool beside them.
    pool = getattr(ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")), "GOMP_parallel", None)
    found.native_threads(ctypes.cast(pool, pointer) if pool is not None else None)
    os.register_at_fork(after_in_child=lambda: found.native_threads(None))  # OpenMP's threads do not live in a fork's child
    return found


def built() -> Path | None:
    """The library's file, built where it is not there yet; None where that fails, and the log says why."""
    here = Path(__file__).parent
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    if compiler is None:
        _log.warning("there is no C++ compiler (g++), so models run by torch's products, slower and without int8 and int4")
        return None
    stat = Path(compiler).resolve().stat()
    key = hashlib.sha256(repr((compiler, stat.st_size, stat.st_mtime_ns, _FLAGS)).encode())
    for name in _SOURCES:
        key.update((here / name).read_bytes())
    folder = cache.folder() / "native"
    path, failed = (folder / f"{key.hexdigest()[:16]}.{end}" for end in ("so", "failed"))
    if path.exists():
        return path
    if failed.exists():
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            target = Path(made) / path.name
            command = [compiler, *_FLAGS, "-o", str(target), str(here / _SOURCES[0])]
            run = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if run.returncode:
                _log.warning("%s could not build the products of runtime/native: torch's are used\n%s", compiler, run.stderr)
                failed.write_text(run.stderr, encoding="utf-8")
                return None
            target.replace(path)
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("the products of runtime/native could not be built: %s", error)
        return None
    return path
