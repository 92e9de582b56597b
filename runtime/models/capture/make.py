"""Capturing a transformers module: record, merge, improve, check."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from decgraph.runtime.collecting import uncollected
from decgraph.runtime.models.capture.activations import activations
from decgraph.runtime.models.capture.clean import clean
from decgraph.runtime.models.capture.cuts import cuts
from decgraph.runtime.models.capture.drop import PassFailed, without_faults
from decgraph.runtime.models.capture.groups import groups
from decgraph.runtime.models.capture.heads import heads
from decgraph.runtime.models.capture.judge import Judge, Run
from decgraph.runtime.models.capture.layout import layout
from decgraph.runtime.models.capture.masks import masks
from decgraph.runtime.models.capture.merge import merge
from decgraph.runtime.models.capture.norms import norms
from decgraph.runtime.models.capture.products import products
from decgraph.runtime.models.capture.program import CapturedGraph, Refused
from decgraph.runtime.models.capture.projections import projections
from decgraph.runtime.models.capture.record import callings, record
from decgraph.runtime.models.capture.residual import residual
from decgraph.runtime.models.capture.rotary import rotary
from decgraph.runtime.models.capture.rows import rows
from decgraph.runtime.models.capture.samples import SIZES, samples
from decgraph.runtime.models.capture.step import CapturedForward
from decgraph.runtime.models.capture.tables import tables
from decgraph.runtime.models.capture.verdicts import Verdict
from decgraph.runtime.models.forwards import Forward, note
from decgraph.runtime.models.hf_net import is_recorder
from decgraph.runtime.models.packs import Packs
from decgraph.runtime.models.shadow import borrows
from decgraph.runtime.models.shards import ranks_of
from decgraph.runtime.models.watch import runs_others

_log = logging.getLogger("decgraph.capture")

# Each pass, in order, with the name it is switched off by.
PASSES: dict[str, Callable[[CapturedGraph, frozenset[int]], None]] = {
    "cuts": lambda program, tied: cuts(program),
    "norms": lambda program, tied: norms(program),
    "activations": lambda program, tied: activations(program),
    "rotary": lambda program, tied: rotary(program),
    "layout": lambda program, tied: layout(program),
    "tables": lambda program, tied: tables(program),
    "projections": projections,
    "heads": lambda program, tied: heads(program),
    "rows": lambda program, tied: rows(program),
    "residual": residual,
    "products": products,
    "masks": lambda program, tied: masks(program),
    "groups": lambda program, tied: groups(program),
}


def capture(
    module: Any, *, without: frozenset[str] = frozenset(), notice: Callable[[str], None] = _log.warning
) -> CapturedForward | None:
    """A causal or masked transformers model, or its base module, as a captured step; None if it cannot be had.

    The step was found to be about as near to float64 of the module as the module itself is (judge.py). A pass that is at
    fault on this module is left out and named in `step.program.dropped` (drop.py). `without` names passes to leave out
    anyway (see `PASSES`). `notice` gets the reason when a pass was dropped, or when the module cannot be captured and so
    runs slower; by default it is logged as a warning. The module's joined parameters become views of shared storage, with
    the same values, unless they are a caller's (shadow.py); weights changed or moved afterwards need a new capture.
    """
    base = getattr(module, "base_model", module)
    try:
        with uncollected():  # it would walk the graphs, of some thousand nodes each, again and again
            step = _captured(module, without, notice)
        note(base, Forward("captured", step.program.dropped), step.program.packs)
        return step
    except Refused as refused:
        reason = str(refused)
    except Exception as error:  # the module's own code, or torch's, run in a way that they may not expect
        reason = f"{type(error).__name__}: {error}"
    note(base, Forward("module", reason=reason))
    notice(f"{type(base).__name__} runs unmodified, its forward could not be captured: {reason}")
    return None


def captured_program(module: Any, without: frozenset[str] = frozenset()) -> tuple[CapturedGraph, list[Run]]:
    """The program of a module after passes, and the module's own runs that it was recorded from. Raises Refused."""
    recorded = Recorded(module)
    return recorded.program(name for name in PASSES if name not in without), recorded.runs


class Recorded:
    """The recordings of a module's forward, from which graphs with any passes are made. Raises Refused."""

    def __init__(self, module: Any) -> None:
        self.base = base = getattr(module, "base_model", module)
        self.layers = layers_of(base)
        if base.training:
            raise Refused("it is in training mode")
        if any(runs_others(part, is_recorder) for part in base.modules()):
            raise Refused("it has hooks, or a `forward` of an object's own, whose code may do something else in every call")
        if len({t.device for t in base.parameters()}) != 1:
            raise Refused("it lies on several devices")
        self.reach = int(getattr(base.config.get_text_config(), "max_position_embeddings", 0) or 0)
        self.tied = _tied(module)
        self.runs: list[Run] = []
        ways = callings(base, self.layers)
        for n, (self.calling, self.shapes) in enumerate(ways):
            try:
                self._record()
                return
            except Refused:
                if n == len(ways) - 1:
                    raise

    def _record(self) -> None:
        self.runs = []
        for before in samples(self.base, self.shapes, self.reach):
            after = before.copy()
            self.runs.append(Run(before.copy(), after, record(self.base, self.layers, after, self.calling)))
            before.keys[:], before.values[:] = after.keys, after.values

    def program(self, names: Iterable[str] | None = None) -> CapturedGraph:
        """The graph after these passes; by default after all. Raises PassFailed."""
        recordings = [run.recording for run in self.runs]
        program = merge(recordings, SIZES, self.base)
        program.device, program.dtype = next(self.base.parameters()).device, recordings[0].outputs.dtype
        program.reach, program.heads = self.reach, [h for h, _, _ in self.shapes]
        program.caches = tuple(self.shapes)
        program.packs = Packs(list(self.base.parameters()))
        program.borrowed = borrows(self.base)
        clean(program)
        for name in PASSES if names is None else names:
            try:
                PASSES[name](program, self.tied)
                clean(program)
            except Exception as error:
                raise PassFailed(name) from error
        return program


def _captured(module: Any, without: frozenset[str], notice: Callable[[str], None]) -> CapturedForward:
    recorded = Recorded(module)
    names = [name for name in PASSES if name not in without]
    # One rank's cache may have a verdict that another's has not, and judging is done by all or by none.
    verdict = Verdict(recorded.runs, names, kept=ranks_of(recorded.base) is None)
    program, dropped = _known(recorded, verdict)
    if program is None:
        judge = Judge(recorded.base, recorded.layers, recorded.runs, recorded.calling)
        program, dropped = without_faults(names, recorded.program, judge.fault)
        verdict.keep(program, dropped)
    if dropped:
        left = "; ".join(f"{name}: {wrong}" for name, wrong in dropped.items())
        notice(f"{type(recorded.base).__name__} is captured without some passes, which are at fault on it ({left})")
    program.dropped = dropped
    return CapturedForward(program)


def _known(recorded: Recorded, verdict: Verdict) -> tuple[CapturedGraph | None, dict[str, str]]:
    """The graph that an earlier start found right, with what it left out; no graph where none did."""
    dropped = verdict.dropped()
    if dropped is None:
        return None, {}
    try:
        program = recorded.program(name for name in verdict.names if name not in dropped)
    except PassFailed:
        return None, {}
    return (program, dropped) if verdict.holds(program) else (None, {})


def layers_of(base: Any) -> list[nn.Module]:
    """The layers of a base module, in order. Raises Refused if there is no such list."""
    count = int(base.config.get_text_config().num_hidden_layers)
    for found in base.modules():
        if isinstance(found, nn.ModuleList) and len(found) == count:
            return list(found)
    for found in base.modules():  # a derived model keeps its configuration
        if isinstance(found, nn.ModuleList) and 0 < len(found) < count:
            return list(found)
    raise Refused("it has no list of layers")


def _tied(module: Any) -> frozenset[int]:
    """Ids of parameters that the module has under more than one name."""
    seen: set[int] = set()
    twice: set[int] = set()
    for _, tensor in module.named_parameters(remove_duplicate=False):
        (twice if id(tensor) in seen else seen).add(id(tensor))
    return frozenset(twice)
