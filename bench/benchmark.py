"""What `decgraph bench` measures: a benchmark as a value, and the result file that it makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from decgraph import api, stdlib
from decgraph.bench import compare, loading, prompts
from decgraph.bench import masked as another
from decgraph.bench.compare import Candidate
from decgraph.bench.machine import facts, load
from decgraph.bench.measure import MeasureSettings, OnProgress, Row, silent
from decgraph.bench.prompts import BenchPrompt, PromptSource, Text
from decgraph.bench.weights import BenchWeights
from decgraph.errors import DecError
from decgraph.runtime.placement import Placement

VERSION = 2
"""Of the result file's form."""


@dataclass(frozen=True)
class Benchmark:
    """Algorithms to be measured on one model, and how.

    target, drafter: folders or names; without a target, the shipped models. parts: folders of heads and further models by the
    name of an algorithm's parameter. baselines: None for the usual ones. file: of prompts; None for the built-in ones. most:
    prompts of each kind. shared: transformers runs on the modules that decgraph laid out, not on a copy of its own.
    """

    algorithms: tuple[Candidate, ...]
    settings: MeasureSettings = field(default_factory=MeasureSettings)
    target: str | None = None
    drafter: str | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    baselines: tuple[str, ...] | None = None
    file: Path | None = None
    chat: bool = False
    most: int | None = None
    placed: Placement = field(default_factory=Placement)
    ends: bool = True
    shared: bool = False

    @property
    def source(self) -> PromptSource:
        """Where the prompts come from. Raises DecError for a file that cannot be used."""
        if self.file is not None:
            return prompts.read(self.file)
        chats = self.chat or (self.target is not None and self.target not in loading.SIZES)
        return prompts.built_in() if chats else prompts.code()

    def runs(self, on_progress: OnProgress = silent) -> list[Row]:
        """The runs of a result file: one of the algorithms on causal models, one of those on masked ones. All models and
        baselines are bound before anything is measured: minutes of measuring never end in a refusal."""
        source = self.source
        texts = prompts.taken(source.texts, self.most)
        causal = [one for one in self.algorithms if not one.masked]
        masked = [one for one in self.algorithms if one.masked]
        check_parts(self.parts, self.algorithms)
        prepared: list[Callable[[OnProgress], Row]] = []
        if causal:
            weights = loading.loaded(self.target, self.drafter, self.parts, self.placed, eos=self.ends)
            theirs = weights if self.shared else None
            tokens = self.encoded(weights, texts)
            prepared.append(compare.prepared(causal, weights, tokens, self.settings, theirs=theirs, wanted=self.baselines))
        if masked:
            prepared.append(
                another.prepared(masked, texts, self.settings, folder=self.target, wanted=self.baselines, placed=self.placed)
            )
        out: list[Row] = []
        for measure in prepared:
            run = measure(on_progress)
            run["digests"] = loading.digests(run["models"]["folders"])
            out.append(self.described(run, source))
            if run["interrupted"]:
                break
        return out

    def encoded(self, weights: BenchWeights, texts: Sequence[Text]) -> list[BenchPrompt]:
        """The prompts as tokens; of random ids for a model without a tokenizer that was never trained. Raises DecError
        where such a model is to read texts."""
        if weights.name in loading.SIZES:
            if self.file is not None or self.chat:
                raise DecError(f"{weights.name} reads random tokens, no texts", hint="leave --prompts and --chat out")
            return [BenchPrompt("random", tokens) for tokens in prompts.of_ids(weights.size, self.most or 4)]
        return prompts.encoded(texts, Path(weights.folders["target"]), chat=self.chat, size=weights.size)

    def described(self, run: Row, source: PromptSource) -> Row:
        """A run with where its prompts came from."""
        run["prompts"] |= {"source": source.name, "sha256": source.digest, "chat": self.chat}
        return run


def check_parts(parts: Mapping[str, str], algorithms: Sequence[Candidate]) -> None:
    """Raises DecError for a model that no algorithm takes."""
    takes = {name for one in algorithms for name in one.algorithm.models} | {
        f"{name}.heads" for one in algorithms for name in one.algorithm.models
    }
    for name in parts:
        if name not in takes and name != "heads":
            raise DecError(
                f"none of the algorithms takes a model `{name}`", hint=f"they take {', '.join(sorted(takes)) or 'none'}"
            )


def document(make: Callable[[], list[Row]], *, command: str = "") -> Row:
    """A result file: what was measured, on what, when, and by which command."""
    before, started = facts(), time.strftime("%Y-%m-%dT%H:%M:%S%z")
    made = make()
    return {
        "version": VERSION,
        "command": command,
        "started": started,
        "machine": {**before, "load_after": load()},
        "runs": made,
    }


def causal() -> list[str]:
    """The algorithms of the standard library that decode with causal models and need no function of the caller."""
    loaded = [api.load(name) for name in stdlib.names()]
    return [a.name for a in loaded if "masked" not in a.models.values() and not a.module.externs]
