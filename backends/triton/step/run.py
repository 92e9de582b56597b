"""The entry point of graph mode: decodes requests of machines on the device, a batch at a time.

    left = run_steps(machines)       # backends/torch Machines (or the triton backend's), each with its request

decodes every machine that it can to its end and sets its results as the driver would: `committed_tokens()`, `reason`, `tally`
(the statistics), and a session's states. Other machines are not changed and are returned with the reason: the driver
(`machine.run()` or `run_many`, eager mode) runs them. These are:

- programs whose steps have no static shape, or with models that are not implemented on the device (why.py has the reason);
- machines whose listener hears every event, sub-runs, and requests with penalties, automata, processors, stop strings, `until`,
  a least length (distributions.py, `Shape.of`), or so close to the context's end that a tree would not fit;
- requests with a case that only the driver handles: a draw without mass, a Bernoulli draw of 0 / 0, an iteration that commits
  nothing. The driver raises the error, or continues where a step cannot.

Requests of one program, the same parameters and the same shaping share a batch and captured iterations: programs are cached
with the main model (`KEPT` of them, since their KV caches take memory), and freed with it or by `forget`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from decgraph.backends.triton.placement import home
from decgraph.backends.triton.step.distributions import Shape
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.backends.triton.step.machine import Frame
from decgraph.backends.triton.step.program import Outcome, StepProgram, device_models
from decgraph.backends.triton.step.why import Needs, needs_of
from decgraph.errors import DecError
from decgraph.ir.drafting import drafting
from decgraph.ir.memo import memo_of
from decgraph.runtime.trace import Commits

EVERY_EVENT = "its listener hears of every draft, and only what is committed leaves the device"
KEPT = 2
"""Programs cached with a model, each with its models' KV caches."""


class CachedStep:
    """The programs cached with a main model, and the modules and models whose ids are in keys, so that ids stay unique."""

    def __init__(self) -> None:
        self.programs: OrderedDict[Any, tuple[Any, StepProgram]] = OrderedDict()
        self.needs: OrderedDict[Any, tuple[Any, Needs | NotCapturable]] = OrderedDict()


def kept(model: Any) -> CachedStep:
    """The programs cached with a main model."""
    return memo_of(model).once("steps", CachedStep)


def forget(model: Any) -> None:
    """Free the memory of the programs that are cached with a main model."""
    memo_of(model).forget("steps")


def run_steps(
    machines: Sequence[Any], *, width: int = 8, every: int | None = None, device: torch.device | str | None = None
) -> list[tuple[Any, str]]:
    """Decode machines on the device, at most `width` at a time; returns those left to the driver, with the reason.

    every: iterations between two reads of the flags (None: program.py's). device: of table models (None: that of the other
    models, or where kernels run).
    """
    left: list[tuple[Any, str]] = []
    groups: dict[Any, list[Any]] = {}
    for machine in machines:
        try:
            groups.setdefault(_group(machine), []).append(machine)
        except NotCapturable as error:
            left.append((machine, str(error)))
    for members in groups.values():
        sessions = any(s.scope != "sequence" for s in members[0].function.states)
        many = 1 if sessions else max(1, width)  # a session's states go from one request to the next
        sizes = (
            min(many, len(members)),
            max(len(m.request.prompt) + m.request.limit for m in members),
            max(1, *(len(m.request.eos) for m in members)),
        )
        for first in range(0, len(members), many):
            part = members[first : first + many]
            try:
                left += _decode(part, sizes, every, device)
            except NotCapturable as error:
                left += [(m, str(error)) for m in part]
    return left


def _group(m: Any) -> Any:
    """The key that machines in one batch share. Raises NotCapturable for one that cannot run in graph mode."""
    if m.main is None:
        raise NotCapturable("no model is called")
    if not (m.listener is None or isinstance(m.listener, Commits)):
        raise NotCapturable(EVERY_EVENT)
    if m.parent is not None or m.until is not None or m.externs:
        raise NotCapturable("it is a sub-run, or calls functions of the caller")
    shape = Shape.of(m.request)
    return (
        id(m.module),
        m.function.name,
        tuple(sorted((n, id(v)) for n, v in m.models.items())),
        tuple(sorted((n, str(v)) for n, v in m.params.items())),
        shape,
    )


def needs(m: Any) -> Needs:
    """The sizes that the steps of a machine's program need; cached. Raises NotCapturable."""
    key, known = _group(m), kept(m.main).needs
    if key not in known:
        models = {p.name: m.models[p.name] for p in m.function.params if p.value.type.elem == "model"}
        try:
            found: Needs | NotCapturable = needs_of(m.module, m.function.name, models, m.params, key[-1])
        except NotCapturable as error:
            found = error
        known[key] = ((m.module, m.models), found)
        while len(known) > 64:
            known.popitem(last=False)
    out = known[key][1]
    if isinstance(out, NotCapturable):
        raise out
    return out


def _decode(machines: list[Any], sizes: tuple[int, int, int], every: int | None, device: Any) -> list[tuple[Any, str]]:
    """Decode machines of one group in one batch; returns those that are left. sizes: the most sequences of a batch, and the
    most tokens of a sequence and ends of a request in the group."""
    need = needs(machines[0])
    left, fit = [], []
    for m in machines:
        room = len(m.request.prompt) + m.request.limit + need.ahead
        if m.window is not None and room > m.window:
            left.append((m, f"a tree may not fit into the context of {m.window} tokens"))
        else:
            fit.append(m)
    if not fit:
        return left
    program = _program(fit[0], need, sizes, every, device)
    try:
        outcomes = program.run([m.request for m in fit], fit[0].shared, [m.listener for m in fit])
    except DecError as error:  # a prompt that a model refuses: the driver raises the same error for that request alone
        return left + [(m, str(error)) for m in fit]
    for b, (m, outcome) in enumerate(zip(fit, outcomes, strict=True)):
        if outcome.lost:
            left.append((m, "a case came up that only the driver handles"))
        else:
            fill(m, outcome, told=not program.interrupted)
            for state in m.function.states:
                if state.scope != "sequence":
                    m.shared[(m.function.name, state.name)] = program.states(b)[state.name].numpy()
    if program.interrupted:
        raise KeyboardInterrupt
    return left


def _program(m: Any, need: Needs, sizes: tuple[int, int, int], every: int | None, device: Any) -> StepProgram:
    """A cached program, or a new one; sizes are rounded up, so that there are few."""
    batch, capacity, ends = sizes
    places = 1 << (batch - 1).bit_length()
    size = 1 << max(6, (capacity - 1).bit_length())
    if m.window is not None:
        size = max(capacity, min(size, m.window + 1))
    slots = 1 << (ends - 1).bit_length()
    key = (_group(m), places, size, slots, every, str(device))
    programs = kept(m.main).programs
    if key in programs:
        programs.move_to_end(key)
        return programs[key][1]
    while len(programs) >= KEPT:
        programs.popitem(last=False)
    models = {p.name: m.models[p.name] for p in m.function.params if p.value.type.elem == "model"}
    made = device_models(models, need, places, size, home(models) if device is None else device)
    where = torch.device(next(iter(made.values())).device)
    frame = Frame(places, size, Shape.of(m.request), where, slots)
    program = StepProgram(m.module, m.function.name, made, m.params, frame, need, every=every)
    programs[key] = ((m.module, m.models), program)
    return program


def fill(m: Any, outcome: Outcome, *, told: bool = True) -> None:
    """Set a machine's results as its driver would. told: its listener hears of them."""
    for token in outcome.tokens:
        m.feed(token)
        m.marks.append(-1)
    m.tally.tokens += len(outcome.tokens)
    for name, n in outcome.calls.items():
        parameter, dot, part = name.partition(".")
        model = m.models[parameter]
        for _ in range(n):
            m.tally.call(drafting(model.name) if part == "drafting" else model.name + dot + part, model is m.main and not part)
    m.tally.drafted += outcome.drafted
    for depth, (tested, accepted) in enumerate(zip(outcome.tested, outcome.accepted, strict=True), 1):
        m.tally.tested[depth] = m.tally.tested.get(depth, 0) + tested
        if accepted:
            m.tally.accepted[depth] = m.tally.accepted.get(depth, 0) + accepted
    if told:
        if m.listener is not None:
            m.listener.so_far(outcome.tokens)
        m.finish()
