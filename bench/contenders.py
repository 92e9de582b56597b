"""decgraph's side: an algorithm's session on the modules that the baseline runs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from decgraph.bench.weights import Prompts, Weights
from decgraph.errors import DecError
from decgraph.hf import modules
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session, check_params

NEAR_TIE = 1e-3  # of two logits in float32: below this, which one is larger is the order of additions


def params_for(algorithm: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the given parameters that an algorithm has, all of its own filled in. Raises DecError for bad values."""
    known: dict[str, Any] = check_params(algorithm.function, {n: v for n, v in given.items() if n in algorithm.params})
    return known


def session_on(algorithm: Any, weights: Weights, params: Mapping[str, Any], backend: str = "torch") -> Session:
    """A session on modules that are in memory already; heads and adapters come from the shipped folders.

    Raises DecError for an algorithm that needs a part which these weights do not have.
    """
    function = algorithm.function
    given: dict[str, Any] = {}
    main = modules.main_parameter(function)
    for p in function.params:
        if p.value.type.elem != "model":
            continue
        kind = str(p.value.type.of[0])
        if p.value.type.of[3] == "causal+heads":
            given[f"{p.name}.heads"] = part(weights, "heads", algorithm.name)
        if p.name == main:
            continue
        given[p.name] = weights.drafter if kind == "causal" else part(weights, kind, algorithm.name)
    models = modules.Binder(algorithm.module, function, given, backend)(weights.target)
    made: Session = algorithm.session(models, tokenizer=weights.tokenizer, backend=backend, **params)
    return made


def part(weights: Weights, kind: str, name: str) -> str:
    """The folder of a part trained on these weights. Raises DecError where there is none."""
    if weights.parts is None or kind not in weights.parts:
        raise DecError(f"{name} needs {kind} trained on {weights.name}, and there are none", hint="use the shipped models")
    return weights.parts[kind]


def greedy_is_exact(algorithm: Any) -> bool:
    """Whether it claims the target's own tokens at temperature 0."""
    return algorithm.name == "autoregressive" or any(
        claim.kind == "refines" and claim.spec == "autoregressive" for claim in algorithm.claims
    )


def request_of(prompt: Sequence[int], limit: int, *, sampled: bool = False, seed: int = 0, number: int = 0) -> Request:
    """A request that ends at its limit only."""
    return Request(tuple(prompt), limit=limit, temperature=1 if sampled else 0, seed=seed, request_id=number)


def run(session: Session, request: Request) -> Result:
    """One run, without an event listener. Raises its error."""
    result = session.run(request, keep_events=False)
    if result.error is not None:
        raise result.error
    return result


class Other:
    """Another algorithm in a baseline's place: `--baseline autoregressive`."""

    def __init__(self, algorithm: Any, weights: Weights, given: Mapping[str, Any]) -> None:
        self.name, params = algorithm.name, params_for(algorithm, given)
        self.settings = {name: str(value) for name, value in params.items()}
        self.session = session_on(algorithm, weights, params)

    def __call__(self, prompts: Prompts, limit: int, *, sampled: bool = False, seed: int = 0) -> list[list[int]]:
        """The new tokens of every prompt, one prompt after the other."""
        return [list(run(self.session, request_of(p, limit, sampled=sampled, seed=seed)).tokens) for p in prompts]

    def calls(self, prompt: Sequence[int], limit: int) -> int:
        """How many target calls one greedy run takes."""
        return run(self.session, request_of(prompt, limit)).stats.target_calls


class Agreement:
    """Counts runs whose tokens are equal, differ from a near-tie on, or differ."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.same = self.near_ties = self.different = 0
        self.first: str = ""

    def compare(self, prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int]) -> None:
        """Compares two greedy continuations. After a near-tie each goes its own way, so the first difference decides."""
        if list(ours) == list(theirs):
            self.same += 1
            return
        at = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
        gap = self.gap([*prompt, *ours[:at]], ours[at], theirs[at]) if at < min(len(ours), len(theirs)) else float("inf")
        if gap < NEAR_TIE:
            self.near_ties += 1
            return
        self.different += 1
        self.first = (
            self.first or f"token {at}: {list(ours[at : at + 1])} and {list(theirs[at : at + 1])}, logits {gap:.3g} apart"
        )

    def gap(self, path: Sequence[int], one: int, other: int) -> float:
        """How far apart the logits of two tokens are, by the module's own forward."""
        with torch.inference_mode():
            row = self.weights.target(torch.tensor([list(path)]), use_cache=False, logits_to_keep=1).logits[0, -1].double()
        return abs(float(row[one] - row[other]))

    def to_json(self) -> dict[str, object]:
        """same, near_ties, different; `first` describes the first difference that is no near-tie."""
        out: dict[str, object] = {"same": self.same, "near_ties": self.near_ties, "different": self.different}
        return {**out, "first": self.first} if self.first else out
