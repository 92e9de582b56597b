"""Contenders measured in one interleaved run: what each made, how long each took, and the rows of the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from decgraph.bench import bootstrap, shares
from decgraph.bench.agreement import Agreement
from decgraph.bench.contenders import Contender, ContenderRun, Group, Ours, greedy_is_exact
from decgraph.bench.timing import Spread, Times, alternated
from decgraph.errors import DecError
from decgraph.runtime.trace import Stats

Row = dict[str, Any]  # what was measured of one contender on the prompts of one kind, as JSON
ALL = "all"  # the kind of a row about prompts of every kind


@dataclass(frozen=True)
class MeasureSettings:
    """How long and how often. limit: new tokens of a request. rounds: timed runs of each group. batch: prompts decoded at a
    time. temperature: 0 is greedy. seed: of the order within rounds, of the noise and of the bootstrap. slowest: how many times
    as long as the first contender one may take for a group before it is left out."""

    limit: int = 64
    rounds: int = 5
    batch: int = 1
    temperature: float = 0.0
    seed: int = 0
    slowest: float = math.inf


@dataclass(frozen=True)
class BenchWork:
    """The groups of prompts that every contender decodes, and the kind of each."""

    groups: tuple[Group, ...]
    kinds: tuple[str, ...]

    def of(self, kind: str) -> list[int]:
        """The numbers of a kind's groups."""
        return [n for n, k in enumerate(self.kinds) if kind in (ALL, k)]

    @property
    def every_kind(self) -> list[str]:
        """The kinds in their order, and `ALL` before them where there is more than one."""
        kinds = list(dict.fromkeys(self.kinds))
        return [ALL, *kinds] if len(kinds) > 1 else kinds


@dataclass
class Measured:
    """What contenders did. ran: by label and group, of one run that was not timed. failed: why a contender has no times."""

    work: BenchWork
    contenders: dict[str, Contender]
    ran: dict[str, list[ContenderRun]] = field(default_factory=dict)
    times: Times = field(default_factory=Times)
    failed: dict[str, DecError] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)

    def ratios(self, slow: str, fast: str, kind: str, *, cpu: bool) -> list[list[float]]:
        """By group of a kind, how many times as long a token took `slow` in each round."""
        clock = self.times.cpu if cpu else self.times.wall
        out: dict[int, list[float]] = {}
        for i, (_, group) in enumerate(self.times.groups):
            each = [clock[name][i] / max(self.times.tokens[name][i], 1) for name in (slow, fast)]
            out.setdefault(group, []).append(each[0] / max(each[1], 1e-9))
        return [out[n] for n in self.work.of(kind) if n in out]


OnProgress = Callable[[str, float], None]
"""Called with what is being done, and how much of a run is over (0 to 1)."""


def silent(what: str, done: float) -> None:
    """Says nothing."""


def measured(
    contenders: Sequence[Contender], work: BenchWork, settings: MeasureSettings, *, on_progress: OnProgress = silent
) -> Measured:
    """Every contender runs every group once, which warms it up and says what it makes; then the timed rounds.

    A contender that fails is left out of the rest. Raises KeyboardInterrupt where nothing was timed yet.
    """
    out = Measured(work, {c.label: c for c in contenders})
    cuda = torch.cuda.is_initialized()  # something of this process lies on a GPU
    passes = 1 + settings.rounds
    usual: list[float] = []
    for number, contender in enumerate(contenders):
        on_progress(f"{contender.label}, tokens", number / len(contenders) / passes)
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        try:
            out.ran[contender.label] = observed(contender, len(work.groups), usual, settings.slowest)
        except DecError as error:
            out.failed[contender.label] = error
            continue
        if cuda:
            out.memory[contender.label] = torch.cuda.max_memory_allocated() / 2**20
    going = {c.label: c for c in contenders if c.label not in out.failed}

    def over(round_: int, group: int) -> None:
        on_progress(f"round {round_ + 1} of {settings.rounds}", (1 + round_ + (group + 1) / len(work.groups)) / passes)

    out.times = alternated(
        going,
        len(work.groups),
        settings.rounds,
        seed=settings.seed,
        waited=torch.cuda.synchronize if cuda else lambda: None,
        on_progress=over,
    )
    out.failed |= out.times.failed
    if not out.times.groups:
        raise KeyboardInterrupt
    return out


def observed(contender: Contender, groups: int, usual: list[float], slowest: float) -> list[ContenderRun]:
    """What a contender makes of every group. usual: the processor seconds that the first contender took for each, which are
    noted where there are none yet. Raises DecError for one that takes `slowest` times as long."""
    first, ran = not usual, []
    for n in range(groups):
        began = time.process_time()
        ran.append(contender.observed(n))
        took = time.process_time() - began
        if first:
            usual.append(took)
        elif took > slowest * usual[n]:
            raise DecError(f"it takes {took:.0f} s of processor time for {usual[n]:.1f} s of the first one's")
    return ran


def rows_of(measured: Measured, against: Mapping[str, Sequence[str]], settings: MeasureSettings, target: Any) -> list[Row]:
    """A row for every contender that did not fail and every kind of prompt. against: by label, those it is compared with; of
    those, the first's greedy tokens are compared with. target: the module that decides near-ties, None where tokens are
    not compared."""
    rows = []
    for label in measured.contenders:
        if label in measured.failed:
            continue
        shared = time_shares(measured, label)
        for kind in measured.work.every_kind:
            if any(group in measured.work.of(kind) for _, group in measured.times.groups):
                row = _row(measured, label, kind, against[label], settings, target)
                rows.append({**row, **({"time": shared} if shared else {})})
    return rows


def _row(measured: Measured, label: str, kind: str, against: Sequence[str], settings: MeasureSettings, target: Any) -> Row:
    contender, groups = measured.contenders[label], measured.work.of(kind)
    ran = [measured.ran[label][n] for n in groups]
    timed = [i for i, (_, group) in enumerate(measured.times.groups) if group in groups]
    tokens, calls = sum(len(t) for one in ran for t in one.tokens), sum(one.calls for one in ran)
    made = sum(measured.times.tokens[label][i] for i in timed)
    wall = sum(measured.times.wall[label][i] for i in timed)
    row: Row = {
        "algorithm": label,
        "side": "decgraph" if isinstance(contender, Ours) else "transformers",
        "kind": kind,
        "prompts": sum(len(measured.work.groups[n]) for n in groups),
        "timed": len(timed),
        "tokens": tokens,
        "calls": calls,
        "tokens_per_call": digits(tokens / calls) if calls else None,
        "tokens_per_second": digits(made / wall),
        "ms_per_call": digits(1000 * wall / made * tokens / calls) if calls and made else None,
        "ratios": {
            other: ratio_of(measured, other, label, kind, settings.seed)
            for other in against
            if other not in measured.failed and other != label
        },
    }
    if isinstance(contender, Ours):
        row |= {"claims_equality": greedy_is_exact(contender.algorithm, contender.params), **drafts_of(ran)}
    if label in measured.memory:
        row["peak_memory_mb"] = digits(measured.memory[label])
    reference = next((other for other in against if other not in measured.failed), None)
    if target is not None and settings.temperature == 0 and reference is not None and reference != label:
        agreement = Agreement(target)
        for n in groups:
            pairs = zip(measured.work.groups[n], measured.ran[label][n].tokens, measured.ran[reference][n].tokens, strict=True)
            for prompt, ours, theirs in pairs:
                agreement.compare(prompt, ours, theirs)
        row["tokens_equal"] = agreement.to_json()
    return row


def ratio_of(measured: Measured, slow: str, fast: str, kind: str, seed: int) -> Row:
    """How many times faster `fast` made a token, by the wall clock and by the processor's: the figure with its interval, and
    the quartiles over all pairs of runs."""
    out: Row = {}
    for clock, cpu in (("wall", False), ("cpu", True)):
        pairs = measured.ratios(slow, fast, kind, cpu=cpu)
        flat = Spread.of([ratio for rounds in pairs for ratio in rounds])
        out[clock] = {**bootstrap.ratio(pairs, seed=seed).to_json(), "quartiles": flat.to_json()}
    return out


def drafts_of(ran: Sequence[ContenderRun]) -> Row:
    """What happened to drafts: calls of drafters and drafts a target call, and by depth how often one was accepted."""
    stats = [one for group in ran for one in group.stats]
    calls = max(sum(s.target_calls for s in stats), 1)
    deepest = max((len(s.tested) for s in stats), default=0)
    tested, accepted = (
        [sum(getattr(s, name)[d] for s in stats if d < len(s.tested)) for d in range(deepest)]
        for name in ("tested", "accepted")
    )
    return {
        "draft_calls_per_call": digits(sum(s.draft_calls for s in stats) / calls),
        "drafted_per_call": digits(sum(s.drafted for s in stats) / calls),
        "acceptance": {"tested": tested, "accepted": accepted},
        "draft_errors": Stats.errors_of(stats),
    }


def time_shares(measured: Measured, label: str) -> Row:
    """Shares of the processor's time in the target, in drafters and outside models, over the first group of each kind."""
    contender = measured.contenders[label]
    if not isinstance(contender, Ours) or measured.times.interrupted:
        return {}
    firsts = [measured.work.kinds.index(kind) for kind in dict.fromkeys(measured.work.kinds)]
    seen = [shares.split(contender.session, lambda n=n: contender.results(n)) for n in firsts]  # type: ignore[misc]
    whole = sum(sum(one.values()) for one in seen)
    return {name: digits(sum(one[name] for one in seen) / whole) for name in ("target", "draft", "outside")}


def digits(value: float) -> float:
    """Four of them."""
    return float(f"{value:.4g}")
