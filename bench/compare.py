"""Comparisons: algorithms, baselines and prompts made into contenders, measured, and written down as one run of a result
file."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from decgraph import api
from decgraph.bench import baselines
from decgraph.bench.contenders import Contender, Ours, Theirs, params_for, session_on
from decgraph.bench.machine import load
from decgraph.bench.measure import BenchWork, Measured, MeasureSettings, OnProgress, Row, measured, rows_of
from decgraph.bench.prompts import BenchPrompt
from decgraph.bench.weights import BenchWeights
from decgraph.errors import DecError

THEIRS = "transformers "  # the labels of its loops begin with this: both sides have a prompt_lookup


@dataclass(frozen=True)
class Candidate:
    """An algorithm to be measured. params: those that were given for it; `values` has all of its own."""

    label: str
    algorithm: Any  # Any: a decgraph.Algorithm
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        """Every parameter with its value."""
        return params_for(self.algorithm, self.params)

    @property
    def masked(self) -> bool:
        """Whether it decodes with a masked model."""
        return "masked" in self.algorithm.models.values()

    def facts(self) -> Row:
        """What the result file says of it; sha256 of its text."""
        text = str(self.algorithm.text)
        path = str(self.algorithm.path)
        return {
            "algorithm": self.algorithm.name,
            "file": path,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "params": plain(self.values),
            "claims": [claim.text for claim in self.algorithm.claims],
        }


def candidates(specs: Sequence[str], common: Mapping[str, Any]) -> list[Candidate]:
    """The algorithms of a command line: `speculative`, `mine.dec`, `speculative:gamma=6,...`. common: parameters for all that
    have them; what stands behind a colon goes before.

    Raises DecError for an algorithm that cannot be read, for a parameter that it has not or a value outside its range, for a
    common parameter that none of them has, and for the same algorithm twice.
    """
    out: dict[str, Candidate] = {}
    used: set[str] = set()
    for spec in specs:
        name, own = split_spec(spec)
        algorithm = api.load(name)
        shared = {key: value for key, value in common.items() if key in algorithm.params}
        used |= set(shared)
        for key in own:
            if key not in algorithm.params:
                names = ", ".join(algorithm.params) or "none"
                raise DecError(f"{algorithm.name} has no parameter `{key}`", hint=f"parameters: {names}")
        label = algorithm.name + (":" + ",".join(f"{k}={v}" for k, v in own.items()) if own else "")
        if label in out:
            label = spec
        if label in out:
            raise DecError(f"{spec} is named twice", hint="once, or with other parameters: speculative speculative:gamma=6")
        params_for(algorithm, {**shared, **own})  # values outside their range are refused before models are read
        out[label] = Candidate(label, algorithm, {**shared, **own})
    if unknown := sorted(set(common) - used):
        raise DecError(f"none of {', '.join(out)} has a parameter `{unknown[0]}`", hint="--gamma 6, or speculative:gamma=6")
    return list(out.values())


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """(name or path, parameters) of `name:gamma=6,k=3`. Raises DecError for what stands behind the colon and is none."""
    name, colon, rest = spec.rpartition(":")
    if not colon or "=" not in rest:
        return spec, {}
    own: dict[str, str] = {}
    for item in rest.split(","):
        key, equals, value = item.partition("=")
        if not equals or not key or not value:
            raise DecError(f"{spec}: `{item}` is no parameter with a value", hint=f"{name}:gamma=6")
        own[key] = value
    return name, own


def work_of(prompts: Sequence[BenchPrompt], batch: int) -> BenchWork:
    """Groups of at most `batch` prompts of one kind."""
    groups: list[tuple[tuple[int, ...], ...]] = []
    kinds: list[str] = []
    for kind in dict.fromkeys(prompt.kind for prompt in prompts):
        own = [prompt.tokens for prompt in prompts if prompt.kind == kind]
        for at in range(0, len(own), batch):
            groups.append(tuple(own[at : at + batch]))
            kinds.append(kind)
    return BenchWork(tuple(groups), tuple(kinds))


def prepared(
    algorithms: Sequence[Candidate],
    weights: BenchWeights,
    prompts: Sequence[BenchPrompt],
    settings: MeasureSettings,
    *,
    theirs: BenchWeights | None = None,
    wanted: Sequence[str] | None = None,
) -> Callable[[OnProgress], Row]:
    """A comparison whose models, heads and baselines are bound; called, it measures and gives the run.

    theirs: the copy of the weights that transformers runs on; left out, one is made. wanted: the baselines, as
    `baselines.NAMES` or as names of algorithms, the first being what tokens are compared with; left out: generate, prompt
    lookup, assisted generation where there is a drafter, and the counterparts of the algorithms. An algorithm that lacks a
    model is left out with a warning; the run says why. Raises DecError for a baseline that there is not, and where all
    algorithms lack something.
    """
    theirs = theirs if theirs is not None else weights.copied()
    work = work_of(prompts, settings.batch)
    contenders: list[Contender] = []
    facts: dict[str, Row] = {}
    failed: dict[str, DecError] = {}
    counterparts: dict[str, str] = {}
    loops = Loops(theirs, work, settings)
    rivals = []
    for name in wanted if wanted is not None else usual(weights, settings):
        if name in baselines.NAMES:
            loops.label(name, counterpart_params(name, algorithms))
        else:
            rivals.append(rival(name))
    for one in algorithms:
        name = baselines.USUAL.get(one.algorithm.name, "generate")
        if wanted is None and settings.batch == 1 and (name != "assisted" or weights.drafter is not None):
            counterparts[one.label] = loops.label(name, one.values)
    contenders += loops.contenders.values()
    facts |= {label: loop.baseline.settings for label, loop in loops.contenders.items()}
    for one in [*(r for r in rivals if all(r.label != a.label for a in algorithms)), *algorithms]:
        facts[one.label] = one.facts()
        try:
            session = session_on(one.algorithm, weights, one.values)
        except DecError as error:
            failed[one.label] = error
            continue
        contenders.append(
            Ours(one.label, one.algorithm, one.values, session, work.groups, settings.limit, settings.temperature, weights.eos)
        )
    named = [*loops.contenders, *(r.label for r in rivals)]
    if all(one.label in failed for one in algorithms):
        label, reason = next(iter(failed.items()))
        rest = f" (and {', '.join(list(failed)[1:])} cannot either)" if len(failed) > 1 else ""
        raise DecError(f"{label} cannot be measured: {_text(reason)}{rest}", hint=reason.hint)
    for label, reason in failed.items():
        warnings.warn(f"{label} is not measured: {first_line(reason)}", UserWarning, stacklevel=2)
    first = named[:1]
    against: dict[str, list[str]] = {}
    for label in (contender.label for contender in contenders):
        usually = [*first, *([counterparts[label]] if label in counterparts else [])]
        against[label] = list(dict.fromkeys(usually)) if wanted is None else named

    def run(on_progress: OnProgress) -> Row:
        found = measured(contenders, work, settings, on_progress=on_progress)
        return document(found, against, failed | found.failed, facts, weights.facts(), prompts, settings, target=theirs.target)

    return run


def usual(weights: BenchWeights, settings: MeasureSettings) -> list[str]:
    """The baselines where none are named: those of transformers' loops that these weights and this batch allow."""
    if settings.batch > 1:
        return ["generate"]  # the others take one prompt at a time
    return ["generate", "prompt_lookup", *(["assisted"] if weights.drafter is not None else [])]


def rival(name: str) -> Candidate:
    """An algorithm as a baseline. Raises DecError for a name that is neither an algorithm's nor a loop's of transformers."""
    try:
        (found,) = candidates([name], {})
    except DecError as error:
        raise DecError(f"there is no baseline {name!r}", hint=f"{', '.join(baselines.NAMES)}, or an algorithm") from error
    return found


def counterpart_params(name: str, algorithms: Sequence[Candidate]) -> dict[str, Any]:
    """The parameters of the first algorithm whose counterpart a loop is: its drafts are as long."""
    for one in algorithms:
        if baselines.USUAL.get(one.algorithm.name) == name:
            return one.values
    return {}


class Loops:
    """transformers' loops as contenders, one for every setting: two algorithms with drafts of one length share theirs."""

    def __init__(self, theirs: BenchWeights, work: BenchWork, settings: MeasureSettings) -> None:
        self.theirs, self.work, self.settings = theirs, work, settings
        self.contenders: dict[str, Theirs] = {}

    def label(self, name: str, params: Mapping[str, Any]) -> str:
        """The label of a loop with the draft length of these parameters; the loop is made where it is not there."""
        sampled = self.settings.temperature > 0
        made = baselines.baseline(name, self.theirs, params, temperature=self.settings.temperature or 1.0)
        for label, other in self.contenders.items():
            if (other.baseline.name, other.baseline.settings) == (name, made.settings):
                return label
        label = THEIRS + name
        if label in self.contenders:
            own = made.settings, self.contenders[label].baseline.settings
            differing = [f"{key.split('_')[-1]}={own[0][key]}" for key in own[0] if own[0][key] != own[1].get(key)]
            label += ":" + ",".join(differing)
        self.contenders[label] = Theirs(label, made, self.work.groups, self.settings.limit, sampled)
        return label


def document(
    measured: Measured,
    against: Mapping[str, Sequence[str]],
    failed: Mapping[str, DecError],
    facts: Mapping[str, Row],
    models: Row,
    prompts: Sequence[BenchPrompt],
    settings: MeasureSettings,
    *,
    target: Any = None,
) -> Row:
    """A run of a result file. models: the facts about the weights. target: the module that decides near-ties."""
    lengths = sorted(len(prompt.tokens) for prompt in prompts)
    kinds = [prompt.kind for prompt in prompts]
    return {
        "models": models,
        "settings": vars(settings),
        "prompts": {
            "kinds": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
            "tokens": {"least": lengths[0], "median": lengths[len(lengths) // 2], "most": lengths[-1]},
        },
        "contenders": dict(facts),
        "rows": rows_of(measured, against, settings, target),
        "failed": {label: first_line(error) for label, error in failed.items()},
        "interrupted": measured.times.interrupted,
        "times": {
            "groups": [list(group) for group in measured.times.groups],
            "kinds": list(measured.work.kinds),
            **{clock: {name: [round(s, 6) for s in spent] for name, spent in measured.times.of(clock).items()}
               for clock in ("wall", "cpu")},
            "tokens": measured.times.of("tokens"),
        },
        "load": load(),
    }  # fmt: skip


def first_line(error: DecError) -> str:
    """An error in one line, with what to try."""
    text = _text(error)
    return f"{text} (try: {error.hint})" if error.hint else text


def _text(error: DecError) -> str:
    return str(error).removeprefix("error: ").splitlines()[0]


def wrong(run: Row) -> list[str]:
    """What a run says that must not be: algorithms that claim the target's own greedy tokens and whose float32 tokens differ by
    more than near-ties, and calls that the interpreter does not make."""
    faults = []
    for row in run["rows"]:
        equal, meant = row.get("tokens_equal"), row.get("interpreter")
        exact = row.get("claims_equality") and run["models"]["dtype"] == "float32"
        if exact and equal and equal["different"] and row["kind"] == run["rows"][0]["kind"]:
            many = sum(equal[key] for key in ("same", "near_ties", "different"))
            faults.append(f"{row['algorithm']}: {equal['different']} of {many} texts differ ({equal['first']})")
        if meant and (meant["calls"] != meant["interpreter_calls"] or not meant["tokens_equal"]):
            faults.append(
                f"{row['algorithm']}: {meant['calls']} calls, {meant['interpreter_calls']} by the interpreter"
                + ("" if meant["tokens_equal"] else ", other tokens")
            )
    return faults


def plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON values."""
    return {n: v if isinstance(v, bool | int) else str(getattr(v, "name", "") or v) for n, v in params.items()}
