"""Contenders measured in one interleaved run: what each made, how long each took, and the rows of the result."""

from __future__ import annotations

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
    time. temperature: 0 is greedy. seed: of the order within rounds, of the noise and of the bootstrap."""

    limit: int = 64
    rounds: int = 5
    batch: int = 1
    temperature: float = 0.0
    seed: int = 0


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
    """What contenders did. ran: by label and group, of the last run that says so. failed: why a contender has no times."""

    work: BenchWork
    contenders: dict[str, Contender]
    ran: dict[str, dict[int, ContenderRun]] = field(default_factory=dict)
    times: Times = field(default_factory=Times)
    failed: dict[str, DecError] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)

    def ratios(self, slow: str, fast: str, kind: str, *, cpu: bool) -> list[list[float]]:
        """By group of a kind, how many times as long a token took `slow` in each turn in which both made some."""
        out: dict[int, list[float]] = {}
        for (_, group), turn in zip(self.times.groups, self.times.runs, strict=True):
            both = [turn[name] for name in (slow, fast) if name in turn and turn[name].tokens]
            if len(both) == 2:
                each = [(one.cpu if cpu else one.wall) / one.tokens for one in both]
                out.setdefault(group, []).append(each[0] / max(each[1], 1e-9))
        return [out[n] for n in self.work.of(kind) if n in out]

    def noted(self, label: str) -> Callable[[int], int]:
        """A contender's run whose tokens and statistics are kept."""

        def run(n: int) -> int:
            made = self.contenders[label].observed(n)
            self.ran.setdefault(label, {})[n] = made
            return made.count

        return run


OnProgress = Callable[[str, float], None]
"""Called with what is being done, and how much of a run is over (0 to 1)."""


def silent(what: str, done: float) -> None:
    """Says nothing."""


def measured(
    contenders: Sequence[Contender],
    work: BenchWork,
    settings: MeasureSettings,
    *,
    on_progress: OnProgress = silent,
    warm: bool = False,
    enough: Callable[[], bool] = lambda: False,
) -> Measured:
    """Every contender runs every group once, which warms it up and says what it makes; then the timed rounds.

    warm: they have run before, and the timed runs say what they make. enough: as in `alternated`. A contender that fails is
    left out of the rest. Raises KeyboardInterrupt where nothing was timed yet.
    """
    out = Measured(work, {c.label: c for c in contenders})
    cuda = torch.cuda.is_initialized()  # something of this process lies on a GPU
    passes = settings.rounds + (not warm)
    for number, contender in enumerate(() if warm else contenders):
        on_progress(f"{contender.label}, tokens", number / len(contenders) / passes)
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        try:
            out.ran[contender.label] = {n: contender.observed(n) for n in range(len(work.groups))}
        except DecError as error:
            out.failed[contender.label] = error
            continue
        if cuda:
            out.memory[contender.label] = torch.cuda.max_memory_allocated() / 2**20
    going = {c.label: out.noted(c.label) if warm else c for c in contenders if c.label not in out.failed}

    def over(round_: int, group: int) -> None:
        done = (not warm) + round_ + (group + 1) / len(work.groups)
        on_progress(f"round {round_ + 1} of {settings.rounds}", done / passes)

    out.times = alternated(
        going,
        len(work.groups),
        settings.rounds,
        seed=settings.seed,
        waited=torch.cuda.synchronize if cuda else bool,
        on_progress=over,
        enough=enough,
    )
    out.failed |= out.times.failed
    if not out.times.groups:
        raise KeyboardInterrupt
    return out


def rows_of(
    measured: Measured,
    against: Mapping[str, Sequence[str]],
    settings: MeasureSettings,
    target: Any,
    *,
    shares_too: bool = True,
) -> list[Row]:
    """A row for every contender that did not fail and every kind of prompt. against: by label, those it is compared with; of
    those, the first's greedy tokens are compared with. target: what decides near-ties, None where tokens are not compared.
    shares_too: whether groups run once more, to say which part of the time models take."""
    rows = []
    for label in measured.contenders:
        if label in measured.failed:
            continue
        shared = time_shares(measured, label) if shares_too else {}
        for kind in measured.work.every_kind:
            if any(group in measured.work.of(kind) for _, group in measured.times.groups):
                row = _row(measured, label, kind, against[label], settings, target)
                rows.append({**row, **({"time": shared} if shared else {})})
    return rows


def _row(measured: Measured, label: str, kind: str, against: Sequence[str], settings: MeasureSettings, target: Any) -> Row:
    contender = measured.contenders[label]
    groups = [n for n in measured.work.of(kind) if n in measured.ran.get(label, {})]
    ran = [measured.ran[label][n] for n in groups]
    turns = zip(measured.times.groups, measured.times.runs, strict=True)
    timed = [turn[label] for (_, group), turn in turns if group in groups and label in turn]
    tokens, calls = sum(one.count for one in ran), sum(one.calls for one in ran)
    made, wall = sum(one.tokens for one in timed), sum(one.wall for one in timed)
    row: Row = {
        "algorithm": label,
        "side": "decgraph" if isinstance(contender, Ours) else "transformers",
        "kind": kind,
        "prompts": sum(len(measured.work.groups[n]) for n in groups),
        "timed": len(timed),
        "tokens": tokens,
        "calls": calls,
        "tokens_per_call": digits(tokens / calls) if calls else None,
        "tokens_per_second": digits(made / wall) if wall else None,
        "ms_per_call": digits(1000 * wall / made * tokens / calls) if calls and made else None,
        "ratios": {
            other: ratio_of(measured, other, label, kind, settings.seed)
            for other in against
            if other not in measured.failed and other != label and measured.ratios(other, label, kind, cpu=False)
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
            if n not in measured.ran[reference]:  # Ctrl-C came between the two
                continue
            agreement.compare_all(measured.work.groups[n], measured.ran[label][n].tokens, measured.ran[reference][n].tokens)
        row |= {"tokens_equal": agreement.to_json(), "same_tokens": digits(agreement.share)}
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
