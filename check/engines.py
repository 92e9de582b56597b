"""What is left of a program's claims inside an engine: derived from the program and from facts of the engine
(engine_facts.py).

A program goes in by an interface that takes it (backends/seams/fits.py). Where its own rule decides there, its claims go
with it. Where the engine verifies, they are the engine's to keep: what is committed is drawn from the target, whatever the
program's rule would do. No program is known here by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from decgraph.check.constants import facts
from decgraph.check.engine_facts import OWN, VERSIONS, WAYS, EngineFact, Kind, Way
from decgraph.check.stated import CLAIM, SECONDS, Stated, stated, verifications
from decgraph.errors import DecError
from decgraph.ir.settings import holds, names
from decgraph.ir.values import Claim, Function, Module
from decgraph.runtime.arguments import ParamValue

ENGINES = tuple(VERSIONS)
Verdict = Literal["kept", "weaker", "lost", "silent", "not run"]
Refused = tuple[str, int]
"""Why an interface does not take a program, and the line that it is about (0: none)."""


@dataclass(frozen=True)
class Left:
    """What is left of a claim. verdict: `kept`; `weaker`: what `why` says; `lost`; `silent`: it says nothing of these
    values of the parameters; `not run`: no interface takes the program."""

    claim: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Through:
    """A program in an interface of an engine."""

    way: Way
    claims: tuple[Left, ...]
    broken_by: tuple[EngineFact, ...]


@dataclass(frozen=True)
class InEngine:
    """A program in an engine. through: by the interfaces that take it; refused: by name of those that do not, why; claims:
    where none takes it; drafts: what is known of what they state."""

    engine: str
    through: tuple[Through, ...]
    refused: Mapping[str, tuple[Refused, ...]]
    claims: tuple[Left, ...]
    drafts: Stated

    def lines(self) -> Iterator[tuple[str, str]]:
        """A word and a text each: by which interface, whose verification, noise and settings, what is left of each claim,
        what breaks it, and what is known of the drafts."""
        for t in self.through:
            yield "inside", f"{VERSIONS[self.engine]}, as {t.way.name}"
            yield "", f"verification: {t.way.verification}"
            yield "", f"noise: {t.way.noise}"
            yield "", f"settings: {t.way.settings}"
        if not self.through:
            yield "inside", f"{VERSIONS[self.engine]}: no interface takes it"
        if not any(t.way.core for t in self.through):
            for name, ((why, line), *_) in self.refused.items():
                yield "", f"not as {name}: {f'line {line}: ' if line else ''}{why}"
        for found in (*(found for t in self.through for found in t.claims), *self.claims):
            yield found.verdict, f"{found.claim}: {found.why}"
        for fact in dict.fromkeys(fact for t in self.through for fact in t.broken_by):
            yield "broken by" if fact.breaks else "note", f"{fact.setting}: {fact.says} ({fact.where})"
        if self.drafts.verdict != "none":
            yield self.drafts.verdict, f"{CLAIM}: {self.drafts.reach()}"

    def to_json(self) -> dict[str, object]:
        """Plain data for `--json`."""
        return {
            "engine": VERSIONS[self.engine],
            "interfaces": [
                {
                    "name": t.way.name,
                    "verification": t.way.verification,
                    "noise": t.way.noise,
                    "settings": t.way.settings,
                    "claims": [asdict(left) for left in t.claims],
                    "broken_by": [asdict(fact) for fact in t.broken_by],
                }
                for t in self.through
            ],
            "refused": {name: [{"why": why, "line": line} for why, line in found] for name, found in self.refused.items()},
            "claims": [asdict(left) for left in self.claims],
            "drafts": self.drafts.to_json(),
        }


def inside(
    module: Module,
    engine: str,
    given: Mapping[str, ParamValue] | None = None,
    *,
    seconds: float = SECONDS,
    wrong: Collection[int] = (),
) -> InEngine:
    """What is left of the claims of a module's algorithm in an engine, "vllm" or "sglang".

    given: values of parameters; those that are not given have their defaults. seconds: of processor time, for drafts of
    which nothing is derived. wrong: the places of claims that a check has refuted. Raises DecError for another engine.
    """
    if engine not in VERSIONS:
        raise DecError(f"--engine is {engine}", hint=f"one of {', '.join(ENGINES)}")
    f, given = module.entry, given or {}
    drafts = stated(module, given, seconds=seconds)
    found = {way: tried(module, given, way.core) for way in WAYS if way.engine == engine}
    ways = [way for way, why in found.items() if not why]
    if not ways and verifications(module):
        tree = branched(module)
        found |= {way: (("its drafts are a tree", tree),) * bool(way.chain and tree) for way in OWN if way.engine == engine}
        ways = [way for way, why in found.items() if not why]
    through = tuple(through_way(module, way, given, drafts, wrong) for way in ways)
    claims = () if through else tuple(Left(c.text, "not run", f"no interface of {VERSIONS[engine]} takes it") for c in f.claims)
    return InEngine(engine, through, {way.name: why for way, why in found.items() if why}, claims, drafts)


def tried(module: Module, given: Mapping[str, ParamValue], core: str) -> tuple[Refused, ...]:
    """Why an interface does not take a program, by trying it there: () where it does."""
    from decgraph.backends.seams.fits import trial  # loads torch

    try:
        return tuple((m.why, m.line) for m in trial(module, given, core).misfits)
    except DecError as error:  # a parameter without a value
        return ((str(error).splitlines()[0].removeprefix("error: "), 0),)


SIZES, BLOCK = ("length", "block", "steps"), 32
"""Parameters that are the engine's block size where nobody sets them (backends/seams/blocks.py), and a block size."""
BRANCHING = ("tree.best_first", "tree.keep", "tree.set", "tree.front")


def branched(module: Module) -> int:
    """The line at which drafts become a tree, 0 where they are one chain: drafters of engines that state distributions give
    chains."""
    for op in module.entry.body.walk():
        grown = op.opcode == "tree.grow" and op.operands[1].type.elem == "draw"
        siblings = grown and not op.attrs.get("chain") and any(d.kind == "k" and d.bound != 1 for d in op.operands[1].type.dims)
        if op.opcode in BRANCHING or siblings or grown and op.attrs.get("has_at"):
            return op.loc.line
    return 0


def through_way(
    module: Module, way: Way, given: Mapping[str, ParamValue], drafts: Stated, wrong: Collection[int] = ()
) -> Through:
    """What is left of a program's claims by one way in; the arguments are as in `inside`."""
    f, known = module.entry, facts(module, module.entry)
    values: dict[str, Any] = {p.name: p.default for p in f.params if p.has_default}
    sizes = {*SIZES, known.length, known.block} - given.keys() if way.blocks else set[str]()
    values |= {p.name: BLOCK for p in f.params if p.name in sizes} | dict(given)
    if branched(module):
        drafts = Stated("none")  # no engine reads distributions of a tree's drafts
    claims = tuple(
        Left(claim.text, "lost", "the check above refutes it")
        if place in wrong and way.own_rule
        else left(f, claim, way, values, sizes, drafts)
        for place, claim in enumerate(f.claims)
    )
    kept = {kind for claim, found in zip(f.claims, claims, strict=True) for kind in _kept(claim, found)}
    shared = [state.name for state in f.states if state.scope == "session" and way.core]
    anew = "it begins anew with each request"
    notes = (EngineFact(f"state {name} per session", anew, "docs/engines.md", ()) for name in shared)
    return Through(way, claims, (*notes, *(fact for fact in way.facts if not fact.breaks or kept & set(fact.breaks))))


def _kept(claim: Claim, found: Left) -> tuple[Kind, ...]:
    """What of a claim a setting may still break."""
    if found.verdict not in ("kept", "weaker"):
        return ()
    return ("distribution", "greedy") if found.verdict == "weaker" else (kind_of(claim),)


def kind_of(claim: Claim) -> Kind:
    """What a claim is about."""
    if claim.kind != "refines":
        return "support" if claim.kind == "keeps_support" else "ensures"
    return "greedy" if claim.for_greedy else "tokens" if claim.mode == "tokens" else "distribution"


def left(f: Function, claim: Claim, way: Way, values: Mapping[str, ParamValue], sizes: Collection[str], drafts: Stated) -> Left:
    """What is left of one claim by one way in. sizes: parameters that are the engine's block size, whatever it is."""
    known = {name: value for name, value in values.items() if name in names(claim.setting)}
    if claim.setting and len(known) == len(names(claim.setting)) and not holds(claim.setting, known):
        said = ", ".join(f"{name} = {value}" for name, value in known.items() if name not in sizes)
        return Left(claim.text, "silent", f"with {said or 'canvases of the size of a block'} it says nothing")
    if claim.bound:
        return Left(claim.text, "lost", "an engine calls its models, and runs blocks, by a schedule of its own")
    if way.own_rule and not way.first and kind_of(claim) == "tokens":
        return Left(claim.text, "weaker", "in tokens from the second on, where logits are equal; in distribution altogether")
    if way.own_rule:
        return Left(claim.text, "kept", _by_own_rule(claim, way))
    return Left(claim.text, *_by_the_engine(f, claim, way, drafts))


def _by_own_rule(claim: Claim, way: Way) -> str:
    where = ", block by block: of each block, after the text before it" if way.blocks else ""
    if kind_of(claim) in ("tokens", "greedy"):
        return f"the noise is the program's, so tokens are equal where logits are, and in distribution without that{where}"
    return f"the program's own rule decides{where}"


def _by_the_engine(f: Function, claim: Claim, way: Way, drafts: Stated) -> tuple[Verdict, str]:
    """... where the engine verifies: its tokens are draws of its own from the target's distribution, if it may take drafts
    as it does."""
    target = next((p.name for p in f.params if p.value.type.elem == "model"), "")
    lossless = claim.kind == "refines" and claim.spec == "autoregressive" and ("param", target) in dict(claim.args).values()
    kind = kind_of(claim)
    if not lossless and not (kind == "support" and target in claim.models):
        return "lost", "it is about the program's own verification, and the engine's stands in its place"
    if kind == "greedy":
        return "kept", "at temperature 0 a draft is accepted where it is the target's likeliest token"
    if not way.core and drafts.verdict in ("refuted", "undecided") and kind != "support":
        told = "not drawn from what they state" if drafts.verdict == "refuted" else "not known to be drawn from what they state"
        return (
            "lost",
            f"its drafts are {told}; without stated distributions (one token for each draft) it would be in distribution",
        )
    if kind == "support":
        return "kept", f"what is committed is a draw from the distribution of `{target}`, or a draft that it gives mass to"
    if kind == "tokens":
        return "weaker", "in distribution: its verification draws with other noise than its sampler; in tokens at temperature 0"
    return "kept", "its verification keeps the target's distribution" + (
        ", since drafts are drawn from what they state" * (not way.core and drafts.verdict != "none")
    )


__all__ = ["ENGINES", "InEngine", "Left", "Through", "inside", "through_way"]
