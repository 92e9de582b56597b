"""Models that a program derives from others (`target.exit(8)`), tried when a session is made: before the first run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from decgraph.errors import DecError
from decgraph.ir.values import Function, Op, Region, Value
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.interface import Model

TRIED = {how: how for how in ("exit", "parallel", "upto", "normed", "head", "bare", "since", "speaking")} | {"adapter": "on"}
"""The derivations that cost nothing to make, by the name that the IR has for them; `quantized` copies the weights."""
LAYERS = ("exit", "skip", "quantized", "upto", "normed", "head", "bare", "parallel", "expert", "since")
"""The derivations that need the layers of a model."""


def check_derivations(function: Function, models: Mapping[str, Model], params: Mapping[str, object]) -> None:
    """Make every derived model of a function whose arguments are known before it runs: parameters and constants.

    Raises DecError for a layer that a model does not have, for layers of a model whose layers decgraph does not reach, and for
    an adapter of other layers. What stands under an `if` may never be made and is left to the run.
    """
    known: dict[Value, object] = {p.value: {**params, **models}.get(p.name) for p in function.params}
    for op in _always(function.body):
        if op.opcode == "const":
            known[op.result] = op.attrs["value"]
        if op.opcode != "model.derive":
            continue
        base, *args = (known.get(value) for value in op.operands)
        how = str(op.attrs["how"])
        try:
            if isinstance(base, Model) and base.unreached is not None and how in LAYERS:
                raise unreached(base.name, f"`{_written(op)}`", base.unreached)
            if how in TRIED and isinstance(base, Model) and all(arg is not None for arg in args):
                known[op.result] = derive(base, TRIED[how], *args)
        except DecError as error:
            text = str(error.diagnostics[0]).removeprefix("error: ")
            raise DecError(f"{function.name}, {op.loc.line}:{op.loc.column}: {text}", hint=error.hint) from error


def unreached(name: str, what: str, reason: DecError) -> DecError:
    """The error where something needs the layers of a model that decgraph runs as a whole. what: needs them."""
    why = str(reason.diagnostics[0]).removeprefix("error: ")
    return DecError(
        f"{what} needs the layers of {name!r}, which decgraph runs as a whole: {why}",
        hint="an algorithm that calls the whole model (prompt_lookup), or one with a drafter of its own (speculative)",
    )


def _written(op: Op) -> str:
    """A derivation as a program writes it, its arguments left out."""
    how = {"bare": "head", "normed": "upto"}.get(str(op.attrs["how"]), op.attrs["how"])
    return f"{op.operands[0].name}.{how}(...)"


def _always(region: Region) -> Iterator[Op]:
    """The ops of a region and of the loops in it, without those under an `if`."""
    for op in region.ops:
        yield op
        if op.opcode != "if":
            for inner in op.regions:
                yield from _always(inner)
