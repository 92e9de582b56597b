"""Errors of ours inside a check. A program may end with an error of its own, which names its line and says what to try; any
other exception is a fault of decgraph. It must never pass for a world that was merely not decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decgraph.errors import DecError, InternalError
from decgraph.ir.opdef import OpError
from decgraph.runtime.value_errors import reworded


def internal(error: BaseException, externs: Mapping[str, Any] | None = None) -> str:
    """What went wrong inside decgraph, in a line with the place in its code; "" for an error of the program, and for one that a
    function of the caller raised (externs)."""
    root: BaseException | None = error
    while isinstance(root, DecError):
        root = root.__cause__
    if root is None or isinstance(root, OpError | MemoryError | RecursionError) or reworded(root) is not None:
        return ""
    theirs = {f.__code__.co_filename for f in (externs or {}).values() if hasattr(f, "__code__")}
    place, trace = "", root.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename in theirs:
            return ""
        if "decgraph" in code.co_filename or not place:
            place = f"{'/'.join(code.co_filename.split('/')[-3:])}:{trace.tb_lineno}"
        trace = trace.tb_next
    said = str(root).splitlines()[0] if str(root) else ""
    name = "" if isinstance(root, InternalError) else f"{type(root).__name__}: "
    return f"{name}{said} ({place})"
