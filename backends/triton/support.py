"""What has no whole step on the device, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decgraph.ir.values import Op


class NotSteppable(Exception):
    """A program, a model or a request has no step: the torch backend's schedule runs it. why: the reason, for people. op: the
    operation of the program that it is about, if it is about one."""

    def __init__(self, why: str, op: Op | None = None) -> None:
        super().__init__(why)
        self.why, self.op = why, op

    def __str__(self) -> str:
        where = "" if self.op is None else f"{self.op.loc.line}:{self.op.loc.column}: "
        return f"{where}{self.why}"
