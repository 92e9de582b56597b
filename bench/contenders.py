"""The two sides of a comparison as contenders: decgraph's sessions and transformers' loops, on groups of prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from decgraph.bench.baselines import Baseline, counting
from decgraph.bench.weights import BenchWeights
from decgraph.errors import DecError
from decgraph.hf import modules
from decgraph.ir.settings import holds_for
from decgraph.runtime.prompts import request_for
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session, check_params
from decgraph.runtime.sources import main_parameter
from decgraph.runtime.trace import Stats

Group = Sequence[Sequence[int]]  # prompts that are decoded together; one in most comparisons


def params_for(algorithm: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the given parameters that an algorithm has, all of its own filled in. Raises DecError for bad values."""
    values: dict[str, Any] = check_params(algorithm.function, {n: v for n, v in params.items() if n in algorithm.params})
    return values


def session_on(algorithm: Any, weights: BenchWeights, params: Mapping[str, Any], backend: str = "torch") -> Session:
    """A session on modules that are in memory already; heads and adapters come from their folders.

    Raises DecError for an algorithm that needs a part which these weights do not have.
    """
    function = algorithm.function
    given: dict[str, Any] = {}
    main = main_parameter(function)
    for p in function.params:
        if p.value.type.elem != "model":
            continue
        kind = str(p.value.type.of[0])
        if p.value.type.of[3] == "causal+heads":
            given[f"{p.name}.heads"] = part(weights, f"{p.name}.heads", "heads", algorithm.name)
        if p.name != main:
            given[p.name] = part(weights, p.name, kind, algorithm.name)
    models = modules.Binder(algorithm.module, function, given, backend)(weights.target)
    made: Session = algorithm.session(models, tokenizer=weights.tokenizer, backend=backend, **params)
    return made


def part(weights: BenchWeights, name: str, kind: str, algorithm: str) -> Any:  # Any: a folder or a module
    """What is bound to an algorithm's parameter beside its target: the part of that name, of that kind, or the drafter. Raises
    DecError where there is none."""
    for key in (name, kind):
        if key in weights.parts:
            return weights.parts[key]
    if kind == "causal" and weights.drafter is not None:
        return weights.drafter
    if kind == "causal":
        raise DecError(f"{algorithm} needs a drafter (`{name}`), and {weights.name} has none", hint="--drafter FOLDER")
    option = "heads" if kind == "heads" else name
    raise DecError(
        f"{algorithm} needs {kind} trained on {weights.name} (`{name}`), and none were given",
        hint=f"--model {option}=FOLDER, or measure on the shipped models",
    )


def promised(algorithm: Any, params: Mapping[str, Any], *, spec: str = "autoregressive", temperature: float = 0.0) -> str:
    """What it claims of another algorithm's output with these parameters and the others at their defaults: "tokens", the same;
    "distribution", the same distribution; or "", nothing."""
    if algorithm.name == spec:
        return "tokens"
    held = [c for c in algorithm.claims if c.kind == "refines" and c.spec == spec and holds_for(c, algorithm.function, params)]
    if any(not temperature or (c.mode == "tokens" and not c.for_greedy) for c in held):
        return "tokens"
    return "distribution" if any(c.mode == "distribution" and not c.for_greedy for c in held) else ""


def greedy_is_exact(algorithm: Any, params: Mapping[str, Any]) -> bool:
    """Whether it claims the target's own tokens at temperature 0, with these parameters and the others at their defaults."""
    return promised(algorithm, params) == "tokens"


def request_of(
    prompt: Sequence[int],
    max_tokens: int,
    *,
    sampled: bool = False,
    seed: int = 0,
    number: int = 0,
    temperature: float = 1.0,
    eos: frozenset[int] = frozenset(),
) -> Request:
    """A request that ends at its limit, or at a token of `eos`. temperature: of sampled ones."""
    return Request(
        tuple(prompt), max_tokens=max_tokens, temperature=temperature if sampled else 0, seed=seed, request_id=number, eos=eos
    )


def run(session: Session, request: Request) -> Result:
    """One run, without an event listener. Raises its error."""
    result = session.run(request, keep_events=False)
    if result.error is not None:
        raise result.error
    return result


@dataclass
class ContenderRun:
    """What one run of a group made: the new tokens of every prompt, calls of the target, and statistics of the drafts, which
    transformers' loops do not give."""

    tokens: list[tuple[int, ...]]
    calls: int
    stats: list[Stats] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many tokens it made in all."""
        return sum(map(len, self.tokens))


class Contender(Protocol):
    """Runs group number n."""

    @property
    def label(self) -> str: ...

    def __call__(self, n: int) -> int:
        """Runs it and returns how many tokens that made: what is timed."""
        ...

    def observed(self, n: int) -> ContenderRun:
        """Runs it and says what happened; not timed."""
        ...


@dataclass
class Ours:
    """An algorithm's session. temperature 0 is greedy; a sampled run differs from the one before by its seed. fields: of every
    request instead, as `decgraph run` makes it from its options; states of the session then begin anew with every run."""

    label: str
    algorithm: Any
    params: Mapping[str, Any]
    session: Session
    groups: Sequence[Group]
    limit: int
    temperature: float = 0.0
    eos: frozenset[int] = frozenset()
    runs: int = 0
    fields: Mapping[str, Any] | None = None

    def requests(self, n: int) -> list[Request]:
        """The requests of a group."""
        self.runs += 1
        if self.fields is not None:
            self.session.shared.clear()
            first, own = n * len(self.groups[0]), {**self.fields, "max_tokens": self.limit}
            return [request_for(self.session, prompt, **own, request_id=i) for i, prompt in enumerate(self.groups[n], first)]
        sampled = self.temperature > 0
        return [
            request_of(
                prompt, self.limit, sampled=sampled, seed=self.runs, number=i, temperature=self.temperature, eos=self.eos
            )
            for i, prompt in enumerate(self.groups[n])
        ]

    def results(self, n: int) -> list[Result]:
        """Runs a group, all of its prompts at a time. Raises the error of a run, KeyboardInterrupt as such."""
        requests = self.requests(n)
        if len(requests) == 1:
            results = [self.session.run(requests[0], keep_events=False)]
        else:
            results = self.session.generate(requests, batch=len(requests), keep_events=False)
        for result in results:
            if result.reason == "interrupted":
                raise KeyboardInterrupt
            if result.error is not None:
                raise result.error
        return results

    def __call__(self, n: int) -> int:
        return sum(len(result.tokens) for result in self.results(n))

    def observed(self, n: int) -> ContenderRun:
        """The tokens and statistics of a run."""
        results = self.results(n)
        return ContenderRun(
            [result.tokens for result in results], sum(r.stats.target_calls for r in results), [r.stats for r in results]
        )


@dataclass
class Theirs:
    """A loop of transformers on its own copy of the weights."""

    label: str
    baseline: Baseline
    groups: Sequence[Group]
    limit: int
    sampled: bool = False
    runs: int = 0

    def generate(self, n: int) -> list[list[int]]:
        """The new tokens of a group. Raises DecError for what transformers cannot do with these weights."""
        self.runs += 1
        try:
            return self.baseline(self.groups[n], self.limit, sampled=self.sampled, seed=self.runs)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise DecError(f"transformers' {self.baseline.name} raised {type(error).__name__}: {error}") from error

    def __call__(self, n: int) -> int:
        return sum(map(len, self.generate(n)))

    def observed(self, n: int) -> ContenderRun:
        """The tokens and forwards of a run."""
        with counting(self.baseline.weights.target) as seen:
            made = self.generate(n)
        # A forward of a batch is a call for each of its prompts, as in decgraph's statistics.
        return ContenderRun([tuple(tokens) for tokens in made], seen.calls * len(made))
