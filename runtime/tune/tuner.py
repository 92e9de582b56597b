"""The whole of tuning: costs, anchors, predictions, a search by measurement, and the final rounds that decide.

What decides is measured only: the best few settings and the default run the same requests in turns, and a setting
wins if it is faster than the default beyond the noise. Ctrl-C ends any phase; what is measured by then is judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from decgraph.errors import DecError
from decgraph.runtime.trace import Committed
from decgraph.runtime.tune import predict, search
from decgraph.runtime.tune.cost import Curve, ladder
from decgraph.runtime.tune.predict import Anchor, Predicted, Unpredictable
from decgraph.runtime.tune.search import Left, moved
from decgraph.runtime.tune.space import Axis, Setting, shown, spelt
from decgraph.runtime.tune.steps import Step, steps_of
from decgraph.runtime.tune.trial import LEAST_PAIRS, Done, Figures, Interrupted, Trials

Costs = Callable[[Sequence[int], Sequence[int]], Mapping[str, Curve]]
GAIN = 1.01  # a gain that is not worth a profile
FINALISTS = 3
PAIRS = 40  # pairs of a finalist and the default after which more would say little


@dataclass
class Outcome:
    """What tuning found. `chosen` is the default where nothing beat it. `finals`: figures of the last rounds, `searched` of
    what came before; `predicted`: tokens a second by setting. `notes`: how it was found, in sentences."""

    default: Setting
    chosen: Setting
    finals: dict[Setting, Figures]
    searched: dict[Setting, Figures]
    predicted: dict[Setting, float]
    costs: dict[str, Curve]
    notes: list[str] = field(default_factory=list)
    acceptance: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def kept(self) -> bool:
        """Whether the default stays."""
        return self.chosen == self.default

    def figures(self, of: Setting) -> Figures:
        """The figures that a setting is judged by: those of the final rounds, if it came that far."""
        last = self.finals.get(of, Figures())
        return last if last.runs or last.failed else self.searched.get(of, Figures())

    @property
    def judged(self) -> bool:
        """Whether there is a judgement to write down: not where Ctrl-C came before anything beat the default."""
        return not (self.interrupted and self.kept)

    @property
    def enough(self) -> bool:
        """Whether the final rounds had time to say anything."""
        return not self.finals or any(len(f.ratios) >= LEAST_PAIRS for f in self.finals.values())


class Tuner:
    """trials: what runs settings and compares tokens. axes: what is searched. costs: gives the curves of the models'
    forwards by name, for contexts and cells. seconds: how long all of it may take. told: hears what is done now."""

    def __init__(
        self,
        trials: Trials,
        axes: Sequence[Axis],
        costs: Costs,
        *,
        seconds: float = 60.0,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.trials, self.axes, self.measure, self.told = trials, list(axes), costs, told
        self.seconds = seconds
        self.left: Left = search.until(seconds)
        self.curves: dict[str, Curve] = {}
        self.predicted: dict[Setting, float] = {}
        self.notes: list[str] = []
        self.acceptance: dict[str, Any] = {}
        self._looked: Done | None = None

    def share(self, part: float) -> Left:
        """What is left of the first `part` of the whole time, and not needed for the final rounds (but never all of it is)."""

        def left() -> float:
            needed = min(0.7 * self.seconds, (LEAST_PAIRS + 2) * (FINALISTS + 1) * self.trials.lasts)
            return self.left() - max((1 - part) * self.seconds, needed)

        return left

    def tune(self) -> Outcome:
        """All phases. Raises DecError for a default that cannot run and for tokens that a claim rules out."""
        began = time.monotonic()
        self.left = search.until(self.seconds)
        default = self.trials.default
        finals = self.trials.again(seed=1)
        interrupted = False
        try:
            self.trials.warm([default])
            found = self.candidates()
            self.decide(finals, found)
        except (Interrupted, KeyboardInterrupt):
            interrupted = True
        judged = finals if any(f.ratios for f in finals.figures.values()) else self.trials
        rivals = [s for s, f in judged.figures.items() if s != default and f.ratios and not f.failed]
        ahead = [s for s in rivals if judged.of(s).surely_above(GAIN, len(rivals))]
        chosen = max(ahead, key=lambda s: judged.of(s).ratio, default=default)
        return Outcome(
            default,
            chosen,
            finals.figures,
            self.trials.figures,
            self.predicted,
            self.curves,
            self.notes,
            self.acceptance,
            interrupted,
            time.monotonic() - began,
        )

    def candidates(self) -> list[Setting]:
        """The settings worth the final rounds."""
        now = self.trials.default
        start: list[Setting] = []
        rest = []
        for axis in self.axes:
            found = self.foretold(axis) if axis.kind in ("int", "topology") and not axis.changes else None
            if found is None:
                rest.append(axis)
                continue
            start += [moved(now, axis.name, p.value) for p in found]
            shapes = tuple(dict.fromkeys([axis.default, *(p.value for p in found)]))
            rest.append(replace(axis, values=shapes, given=True) if axis.kind == "topology" else axis)
        if start:
            self.told(f"running {len(start)} predicted settings")
            ranked = search.halved(self.trials, [now, *start], self.share(0.45))
            now = next((s for s in ranked if self.trials.of(s).runs), now)
        self.told("searching")
        search.descend(self.trials, rest, now, self.share(0.65), told=lambda s: self.told(f"at {shown(s)}"))
        fitting = self.left() / max(1e-9, LEAST_PAIRS * self.trials.lasts) - 1  # of so many there is time for enough pairs
        return search.fastest(self.trials, self.trials.figures, max(1, min(FINALISTS, int(fitting))))

    def decide(self, finals: Trials, found: Sequence[Setting]) -> None:
        """The final rounds: until the time is up, or all is clear."""
        if not found:
            return
        finals.warm(found)
        while self.left() > 0 and min(len(finals.of(s).ratios) for s in found) < PAIRS:
            self.told(f"final rounds: {min(len(finals.of(s).ratios) for s in found)} runs each of {len(found)} and the default")
            finals.once(found)
            found = [s for s in found if not finals.of(s).failed]
            if not found:
                return

    # -- predictions

    def foretold(self, axis: Axis) -> list[Predicted] | None:
        """The values of an axis that promise most, or None where nothing predicts; the notes say why."""
        try:
            return self._chains(axis) if axis.kind == "int" else self._trees(axis)
        except Unpredictable as reason:
            self.notes.append(f"{axis.name} is searched by measurement: {reason}")
        except DecError as error:
            self.notes.append(f"{axis.name} is searched by measurement: {str(error).splitlines()[0].removeprefix('error: ')}")
        return None

    def _chains(self, axis: Axis) -> list[Predicted]:
        """Chains: the run with the longest says what shorter ones accept."""
        values = [int(v) for v in axis.values]
        default = int(axis.default)
        predict.must_be_chains(steps_of(self.look().events), default)
        low, long = values[0], min(values[-1], max(4 * default, 8))
        wanted = sorted({low, default, long})
        if len(wanted) < 2:
            raise Unpredictable("its range is one value")
        anchors = self.anchors(axis, wanted)
        seen = anchors[long]
        if long < values[-1] and seen.steps and sum(len(s.accepted) >= long for s in seen.steps) > 0.15 * len(seen.steps):
            anchors |= self.anchors(axis, [values[-1]])
        every = sorted({*values, *range(values[0], min(values[-1], 16) + 1)})
        found = predict.chains(anchors, self.costs(max(anchors) + 1), every)
        longest = anchors[max(anchors)]
        accepted = [sum(len(s.accepted) > d for s in longest.steps) for d in range(max(anchors))]
        came = [len(longest.steps), *accepted]
        self.acceptance[axis.name] = [round(a / c, 3) for a, c in zip(accepted, came, strict=False) if c]
        self._keep(axis, found)
        return predict.apart(found, 4, lambda v: (float(v), 0.0))

    def _trees(self, axis: Axis) -> list[Predicted]:
        """Trees: acceptance by depth and rank says what every shape accepts, and a dynamic programme finds the best."""
        if axis.given:
            raise Unpredictable("its values are listed")
        if not any(step.drafts for step in steps_of(self.look().events)):
            raise Unpredictable("nothing is drafted")
        of = type(axis.default).of
        wanted = [axis.default]
        for text in ("2x1", "6x2x1x1x1x1"):
            shape = of(text)
            if self.trials.run(moved(self.trials.default, axis.name, shape), 0, limit=6) is not None:
                wanted.append(shape)
        regular = self.levels_only(axis)
        anchors = self.anchors(axis, wanted)
        most = min(256, max(64, max(shape.size for shape in anchors)))
        make = lambda paths: of([list(path) for path in paths])
        found, table = predict.trees(anchors, self.costs(most + 1), lambda paths: _named(make(paths)), most, regular=regular)
        self.acceptance[axis.name] = [[round(p, 3) for p in row] for row in table]
        self._keep(axis, found)
        return predict.apart(found, 5, lambda shape: (float(shape.size), float(len(shape))))

    def levels_only(self, axis: Axis) -> bool:
        """Whether an algorithm gives every node of a level as many children as the widest has (recursive_sd does)."""
        uneven = type(axis.default).of([[0], [1], [0, 0]])
        made = self.trials.run(moved(self.trials.default, axis.name, uneven), 0, events=True, limit=6)
        return made is not None and max((len(s.drafts) for s in steps_of(made.events)), default=0) > uneven.size

    def _keep(self, axis: Axis, found: Sequence[Predicted]) -> None:
        for p in found:
            self.predicted[moved(self.trials.default, axis.name, p.value)] = p.rate
        top = found[0] if found else None
        if top is not None:
            self.notes.append(
                f"{axis.name} is predicted from acceptance: {shown((((axis.name, top.value)),))} promises "
                f"{top.rate:.3g} tokens/s, {top.tokens:.2f} a step"
            )

    def look(self) -> Done:
        """One run of the default with its events. Raises DecError where it cannot run."""
        if self._looked is None:
            made = self.trials.run(self.trials.default, 0, events=True)
            assert made is not None  # the default's errors are raised
            self._looked = made
        return self._looked

    def anchors(self, axis: Axis, values: Sequence[Any]) -> dict[Any, Anchor]:
        """Run a few values of one parameter, timed and with events, over as many requests as there is time for."""
        settings = {value: moved(self.trials.default, axis.name, value) for value in values}
        self.told(f"measuring acceptance at {axis.name} = {', '.join(spelt(v)[:16] for v in values)}")
        self.trials.warm(list(settings.values()))
        left, runs = self.share(0.25), 0
        seen: dict[Any, list[Done]] = {value: [] for value in values}
        while runs < len(self.trials.runner.requests) and (runs < 1 or left() > 0):
            for value, chosen in settings.items():
                made = self.trials.run(chosen, runs, events=True)
                if made is None:
                    raise Unpredictable(f"{axis.name}={spelt(value)} cannot run: {self.trials.of(chosen).failed}")
                seen[value].append(made)
            self.trials.once(list(settings.values()))
            runs += 1
        return {value: self._anchor(done, self.trials.of(settings[value])) for value, done in seen.items()}

    def _anchor(self, done: Sequence[Done], figures: Figures) -> Anchor:
        """The means of a step over runs with events; its seconds are of the runs without."""
        requests = self.trials.runner.requests
        per_run = [steps_of(made.events) for made in done]
        steps: list[Step] = [step for run in per_run for step in run]
        committed = max(1, sum(len(made.tokens) for made in done))
        count = max(1, sum(isinstance(event, Committed) for made in done for event in made.events))
        read = sum(len(requests[n].prompt) - 1 for n in range(len(done)))
        work = {}
        for name in done[0].work:
            calls, cells = (sum(made.work[name][of] for made in done) for of in (0, 1))
            work[name] = (calls / count, max(0.0, cells - (read if calls else 0)) / count)
        context = sum(len(requests[n].prompt) + len(made.tokens) / 2 for n, made in enumerate(done)) / len(done)
        seconds = figures.seconds / max(1, figures.tokens) * committed / count
        return Anchor(steps, work, seconds, context)

    def costs(self, cells: int) -> Mapping[str, Curve]:
        """The curves of the models' forwards, up to so many new cells, measured once."""
        if not self.curves or any(c.cells[-1] < cells for c in self.curves.values()):
            self.told("measuring the cost of forwards")
            lengths = [len(r.prompt) for r in self.trials.runner.requests]
            limit = max(r.limit for r in self.trials.runner.requests)
            contexts = sorted({max(2, min(lengths)), max(lengths) + limit})
            self.curves.update(self.measure(contexts, ladder(max(8, cells))))
        return self.curves


def _named(shape: Any) -> Any:
    """A shape called by its paths, which `Topology.of` reads: what a profile can say."""
    return replace(shape, name=str([list(path) for path in predict.paths_of(shape)]).replace(" ", ""))
