"""The passes in their order, run one after the other: the verifier checks the result of each, and a report says what it did.

A module goes through the passes that a plan names. Each is a `Pass` (plan.py) in the file of its name. Running a pass on
what it gave changes nothing (tests/passes/ holds that), and no pass changes a committed token (`--validate` looks).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path

from decgraph.errors import DecError, InternalError
from decgraph.ir.values import Module
from decgraph.ir.verify import verify
from decgraph.passes.plan import Pass, Plan

ORDER = ("simplify", "tree_fusion", "reuse", "vocabulary", "placement", "batching")
"""Every pass, in the order in which they run; each is the file of that name."""

Validate = Callable[[Module, Module, str], None]
"""Called with the module before and after a pass, and its name; raises where they differ (check/validation.py)."""


@cache
def load(name: str) -> Pass:
    """The pass of a name. Raises DecError for an unknown name, InternalError where its file does not declare it."""
    check_names((name,))
    try:
        found = getattr(import_module(f"decgraph.passes.{name}"), "PASS", None)
    except ModuleNotFoundError as error:
        if error.name != f"decgraph.passes.{name}":
            raise
        raise InternalError(f"ORDER names the pass {name}, and there is no file passes/{name}.py") from error
    if not isinstance(found, Pass):
        wanted = f"PASS = Pass(name={name!r}, reason=..., precondition=..., run=..., notes=...)"
        raise InternalError(f"passes/{name}.py declares no pass; it ends in {wanted}")
    if found.name != name:
        raise InternalError(f"passes/{name}.py declares a pass called {found.name!r}; a pass has the name of its file")
    return found


def pipeline() -> tuple[Pass, ...]:
    """Every pass, in order."""
    return tuple(map(load, ORDER))


def check_names(names: Collection[str]) -> None:
    """Raises DecError for a name that is no pass."""
    for name in names:
        if name not in ORDER:
            import difflib

            near = difflib.get_close_matches(name, ORDER, 1)
            hint = f"did you mean {near[0]}?" if near else f"passes: {', '.join(ORDER)}"
            raise DecError(f"there is no pass {name}", hint=hint)


@dataclass(frozen=True)
class PassRun:
    """What one pass did."""

    name: str
    changed: bool
    ops: int
    seconds: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PassReport:
    """What the passes did, in order. `text()` is for people, `to_json()` for programs."""

    name: str
    plan: Plan
    ops: int
    steps: tuple[PassRun, ...] = ()
    validated: bool = False

    def text(self) -> str:
        out = [f"{self.name}: passes"]
        for s in self.steps:
            out.append(f"  {s.name}{'' if s.changed else ': nothing to do'}")
            out += [f"    {line}" for line in s.notes]
        if not self.steps:
            out.append("  none")
        if self.validated:
            out.append("  every one of them validated: the same tokens before and after, computed from the same things")
        return "\n".join(out)

    def to_json(self) -> dict[str, object]:
        steps = [{"name": s.name, "changed": s.changed, "ops": s.ops, "notes": list(s.notes)} for s in self.steps]
        return {"name": self.name, "plan": self.plan.text(), "ops": self.ops, "validated": self.validated, "steps": steps}


def chosen(plan: Plan, only: Sequence[str] | None = None, without: Collection[str] = ()) -> tuple[str, ...]:
    """The passes that run, in their order. Raises DecError for unknown names."""
    wanted = plan.passes if only is None else tuple(only)
    check_names((*(wanted or ()), *without))
    return tuple(name for name in ORDER if (wanted is None or name in wanted) and name not in without)


def optimise(
    module: Module,
    params: Mapping[str, object] | None = None,
    *,
    only: Sequence[str] | None = None,
    without: Collection[str] = (),
    plan: Plan | None = None,
    dump: Path | str | None = None,
    validate: Validate | None = None,
) -> tuple[Module, PassReport]:
    """The module after the passes, and what they did.

    params: values of parameters that are known at compile time. only, without: names of passes. dump: a folder that gets the
    IR before the first pass and after each, in numbered files. validate: see `Validate`.
    Raises DecError for unknown names and for a folder that cannot be written, InternalError where a pass breaks the IR.
    """
    plan = plan or Plan()
    if params:
        plan = replace(plan, params=tuple(params.items()))
    names = chosen(plan, only, without)
    plan = replace(plan, passes=names)
    folder = Path(dump) if dump is not None else None
    write(folder, 0, "source", module)
    report = PassReport(module.main, plan, size(module))
    for number, name in enumerate(names, 1):
        started = time.perf_counter()
        made = load(name).run(module, plan)
        if made is not module:
            verify(made)
        seconds = time.perf_counter() - started
        write(folder, number, name, made)
        if validate is not None and made is not module:
            validate(module, made, name)
        notes = load(name).notes(module, made) if made.main in made.functions else []
        step = PassRun(name, made is not module, size(made), seconds, tuple(notes))
        report = replace(report, steps=(*report.steps, step), validated=validate is not None)
        module = made
    return module, report


def size(module: Module) -> int:
    """How many ops the algorithm has."""
    return sum(1 for _ in module.entry.body.walk()) if module.main in module.functions else 0


def write(folder: Path | None, number: int, name: str, module: Module) -> None:
    """`02-tree_fusion.ir` in the folder. Raises DecError where it cannot be written."""
    if folder is None:
        return
    from decgraph.ir.text import print_module

    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:02}-{name}.ir").write_text(print_module(module), encoding="utf-8")
    except OSError as error:
        raise DecError(f"cannot write into {folder}: {error.strerror or error}") from None
