"""Plans: how a program runs, apart from what it computes. A plan never changes a committed token.

>>> plan = Plan(passes=("simplify", "tree_fusion"), backend="torch", batch=8)
>>> print(plan.text())
passes = simplify, tree_fusion
backend = torch
batch = 8
placement = device
>>> Plan.parse(plan.text()) == plan
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction

from decgraph.errors import DecError, InternalError
from decgraph.ir.values import Module

PLACEMENTS = ("device", "host")


@dataclass(frozen=True)
class Plan:
    """passes: which run, in their own order (None: all). backend: a name of backends/registry.py (None: the default). batch:
    how many sequences a session runs at a time (None: its own default). placement: where pure straight-line work goes.
    capacities: nodes that are set aside for a tree, by its name, where the program's bound is larger or there is none
    (more are drafted all the same, if need be).
    params: values of the algorithm's parameters that are known at compile time.
    """

    passes: tuple[str, ...] | None = None
    backend: str | None = None
    batch: int | None = None
    placement: str = "device"
    capacities: tuple[tuple[str, int], ...] = ()
    params: tuple[tuple[str, object], ...] = ()

    def text(self) -> str:
        """One `name = value` a line; `parse` reads it."""
        lines = [] if self.passes is None else [f"passes = {', '.join(self.passes) or 'none'}"]
        said = {"backend": self.backend, "batch": self.batch}
        lines += [f"{name} = {value}" for name, value in said.items() if value is not None]
        lines.append(f"placement = {self.placement}")
        lines += [f"capacity {name} = {bound}" for name, bound in self.capacities]
        lines += [f"param {name} = {_written(value)}" for name, value in self.params]
        return "\n".join(lines)

    @staticmethod
    def parse(text: str) -> Plan:
        """The plan that a text says; empty lines and what follows # are left out. Raises DecError, with the line."""
        plan = Plan()
        capacities: list[tuple[str, int]] = []
        params: list[tuple[str, object]] = []
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.split("#")[0].strip()
            if not line:
                continue
            name, equals, value = (part.strip() for part in line.partition("="))
            head, _, what = name.partition(" ")
            try:
                if not equals or not value:
                    raise ValueError("name = value")
                match head:
                    case "passes" if not what:
                        plan = replace(plan, passes=() if value == "none" else tuple(p.strip() for p in value.split(",")))
                    case "backend" if not what:
                        plan = replace(plan, backend=value)
                    case "batch" if not what:
                        plan = replace(plan, batch=int(value))
                        if int(value) < 1:
                            raise ValueError("batch is at least 1")
                    case "placement" if not what:
                        if value not in PLACEMENTS:
                            raise ValueError(f"placement is {' or '.join(PLACEMENTS)}")
                        plan = replace(plan, placement=value)
                    case "capacity" if what:
                        capacities.append((what, int(value)))
                        if capacities[-1][1] < 1:
                            raise ValueError("a capacity is at least 1")
                    case "param" if what:
                        params.append((what, _read(value)))
                    case _:
                        raise ValueError("passes, backend, batch, placement, capacity NAME or param NAME")
            except ValueError as error:
                raise DecError(f"line {number} of the plan cannot be read: {raw.strip()!r}", hint=str(error)) from None
        return replace(plan, capacities=tuple(capacities), params=tuple(params))


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset):
        return ",".join(map(str, sorted(value)))
    return str(getattr(value, "name", "") or value)  # a tree shape by its name


def _read(text: str) -> object:
    if text in ("yes", "no"):
        return text == "yes"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return text


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
