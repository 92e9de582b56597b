"""What a pass is: a file of this folder that ends in `PASS = Pass(...)`, and a place in `manager.ORDER`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from decgraph.errors import InternalError
from decgraph.ir.values import Module
from decgraph.passes.plan import Plan


def no_notes(before: Module, after: Module) -> list[str]:
    """What a pass reports that counts nothing."""
    return []


@dataclass(frozen=True)
class Pass:
    """One pass.

    name: that of its file. reason: why it is there. precondition: what must hold where it changes something. run: from a module
    to the changed module, or to the same object where there is nothing to do. notes: the lines that the report says of a module
    before and after. options: the fields of a `Plan` that `run` reads, and so what a user can choose.

    Raises InternalError for a reason or a precondition that says nothing, and an option that is no field of a plan.
    """

    name: str
    reason: str
    precondition: str
    run: Callable[[Module, Plan], Module]
    notes: Callable[[Module, Module], list[str]] = no_notes
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what in ("name", "reason", "precondition"):
            if not getattr(self, what).strip():
                raise InternalError(f"pass {self.name or '?'} has no {what}")
        known = [f.name for f in fields(Plan)]
        for option in self.options:
            if option not in known:
                raise InternalError(f"pass {self.name} has the option {option!r}; a plan has {', '.join(known)}")
