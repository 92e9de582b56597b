"""What `decgraph tune` does between its options and its table: models, requests, near-ties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import decgraph
from decgraph.cli.profiled import contents_of
from decgraph.models import request_for, shipped
from decgraph.passes.plan import Plan
from decgraph.runtime.arguments import Prompt
from decgraph.runtime.models.interface import Model
from decgraph.runtime.placement import Placement, placement_of_all
from decgraph.runtime.request import DEFAULT_TEMPERATURE
from decgraph.runtime.session import Session
from decgraph.runtime.tune import facts, space
from decgraph.runtime.tune.space import Setting
from decgraph.runtime.tune.trial import HALF, NEAR_TIES, Runner, Trials
from decgraph.runtime.tune.tuner import Tuner, TuningOutcome


class TuningJob:
    """One algorithm on one set of models and prompts. Raises DecError for what does not fit, before models are read."""

    def __init__(
        self,
        algorithm: decgraph.Algorithm,
        lines: Sequence[Prompt],
        fixed: Mapping[str, Any],
        wishes: Sequence[str],
        models: Mapping[str, str],
        fields: Mapping[str, Any],
        *,
        externs: Mapping[str, Any] | None = None,
        backend: str | None = None,
        clock: str = "wall",
        threads: int | None = None,
        batch: int = 1,
        placed: Placement | None = None,
    ) -> None:
        self.algorithm, self.lines, self.fixed, self.fields = algorithm, list(lines), dict(fixed), dict(fields)
        self.name = algorithm.spec
        self.externs = dict(externs or {})
        self.backend, self.clock, self.threads, self.batch = backend, clock, threads, batch
        self.placement = placed or Placement()  # once the models are read, theirs
        if len(self.lines) < batch:
            raise decgraph.DecError(f"--batch {batch} needs as many prompts, and there are {len(self.lines)}",
                                    hint=f"more prompts, or --batch {len(self.lines)}")  # fmt: skip
        function = algorithm.function
        self.promise, _ = space.guarantee(function, float(fields.get("temperature", DEFAULT_TEMPERATURE)))
        self.axes = space.axes(function, self.fixed, wishes, float(fields.get("temperature", DEFAULT_TEMPERATURE)))
        changing = [axis.name for axis in self.axes if axis.changes]
        if changing:
            self.promise = ""
        missing = [
            p.name
            for p in function.params
            if p.value.type.elem != "model"
            and not p.has_default
            and p.name not in self.fixed
            and p.name not in {a.name for a in self.axes}
        ]
        if missing:
            raise decgraph.DecError(f"{function.name} needs a value for `{missing[0]}`", hint=f"--set {missing[0]}=...")
        for name in models:
            if name.removesuffix(".heads") not in algorithm.models:
                raise decgraph.DecError(
                    f"{function.name} takes no model `{name}`", hint=f"it takes {', '.join(algorithm.models)}"
                )
        self.sources = {**shipped(function), **models}
        self.changing = changing
        values = {a.name: a.values[0] if a.default is None else a.default for a in self.axes}
        self.default: Setting = space.setting(function, values)
        self.models: dict[str, Model] = {}
        self.device: dict[str, Any] = {}
        # The defaults of `session`: all passes, none on the reference
        self.plan = Plan(passes=() if self.backend == "reference" else None, backend=self.backend)

    def run(self, seconds: float, report_progress: Callable[[str], None]) -> TuningOutcome:
        """Read the models and tune for so many seconds. Raises DecError."""
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)
        from decgraph.models import bind

        report_progress("reading the models")
        bound = bind(self.algorithm.function, self.sources, device=self.placement.device, dtype=self.placement.dtype)
        self.models, tokenizer = bound.models, bound.tokenizer
        self.placement = placement_of_all(self.models)
        self.device = facts.of_placement(self.placement)

        def make(values: Mapping[str, Any]) -> Session:
            params = {**self.fixed, **values}
            how: dict[str, Any] = {"externs": self.externs, "backend": self.backend, "plan": self.plan}
            return self.algorithm.session(self.models, tokenizer=tokenizer, **how, **params)

        first = make(dict(self.default))
        requests = [request_for(first, line, request_id=n, **self.fields) for n, line in enumerate(self.lines)]
        runner = Runner(make, requests, self.clock, self.batch)
        trials = Trials(runner, self.default, promise=self.promise, gap=self.gap, tie=self.tie())
        return Tuner(trials, self.axes, seconds=seconds, told=report_progress).tune()

    # -- models

    def contents(self) -> dict[str, str]:
        """The models' fingerprints by parameter."""
        return contents_of(self.sources)

    def tie(self) -> float:
        """How near two scores of the target are when the order of additions decides between them."""
        return NEAR_TIES.get(self.placement.dtype, HALF)

    def gap(self, number: int, path: Sequence[int], one: int, other: int) -> float:
        """How far apart two tokens' scores are after a path of a request; infinite for masked models."""
        scores = self.scores(number, path)
        return float("inf") if scores is None else abs(float(scores[one] - scores[other]))

    def scores(self, number: int, path: Sequence[int]) -> np.ndarray | None:
        """The scores [V] of which a request's next token has the largest: the target's logits, for sampled requests over the
        temperature and with the noise of the draw. None for masked models. Raises what the model raises."""
        from decgraph.runtime.models.engine.forward_call import ForwardCall
        from decgraph.runtime.models.engine.of import causal_engine_of
        from decgraph.runtime.noise import exponentials, output_key

        target = next(iter(self.models.values()))
        if target.kind != "causal":
            return None
        engine = causal_engine_of(target)
        (row,) = engine.compute([ForwardCall("decgraph tune: a tie", list(path))])
        engine.close("decgraph tune: a tie")
        if isinstance(row, decgraph.DecError):
            raise row
        scores = row[0].double().cpu().numpy()
        temperature = float(self.fields.get("temperature", DEFAULT_TEMPERATURE))
        if temperature:
            times = exponentials(output_key(int(self.fields.get("seed", 0)), number, len(path)), len(scores))
            scores = scores / temperature - np.log(times)
        return scores
