"""A profile of `decgraph tune` applied to a run: its algorithm, parameters, plan, models, and what is not as it was tuned."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import decgraph
from decgraph.models import shipped
from decgraph.passes.plan import Plan
from decgraph.runtime.models.masked_settings import model_of
from decgraph.runtime.session import Session
from decgraph.runtime.tune import facts
from decgraph.runtime.tune.profile import Profile, TunedLoad
from decgraph.zoo import folder_of


def contents_of(sources: Mapping[str, str]) -> dict[str, str]:
    """The fingerprints of models by parameter; a setting of a masked model (`model.shift`) is its own."""
    return {n: s if model_of(n)[1] else facts.fingerprint(folder_of(s)) for n, s in sources.items()}


@dataclass(frozen=True)
class AppliedProfile:
    """What a profile says for one load. params: values by name. models: sources by parameter, as given to `tune`. plan: how it
    ran there."""

    profile: Profile
    load: TunedLoad
    algorithm: decgraph.Algorithm
    params: dict[str, Any]
    models: dict[str, str]
    plan: Plan

    @property
    def foreign(self) -> dict[str, str]:
        """The models that are not what would stand in for them."""
        usual = shipped(self.algorithm.function)
        return {name: source for name, source in self.models.items() if usual.get(name) != source}

    def warn(self, session: Session, models: Mapping[str, str], temperature: float, batch: int) -> None:
        """Say on stderr what is not as it was tuned. `models` are the sources of this run, `batch` how many prompts it decodes
        together."""
        doubts = self.profile.doubts(
            self.load,
            program=facts.digest(self.algorithm.text),
            models=contents_of(models),
            temperature=temperature,
            batch=batch,
            device=facts.of_placement(session.placement),
        )
        for doubt in doubts:
            print(f"warning: {self.profile.path}: {doubt}; tune again for what is fastest here", file=sys.stderr)
        if self.load.figures.get("changes_output") is True:
            share = self.load.figures.get("same_tokens")
            said = f" ({share:.1%} of the tokens when it was tuned)" if isinstance(share, int | float) else ""
            print(f"warning: {self.profile.path}: it may commit other tokens than the defaults{said}", file=sys.stderr)


def read(path: Path, batch: int, name: str | None = None) -> AppliedProfile:
    """What a profile says where so many prompts are decoded together; name: of this algorithm, a name or a file. Raises
    DecError, with file and line, for one that cannot be applied."""
    profile = Profile.read(path)
    return applied(profile, profile.at(batch, None if name is None else decgraph.load(name).name), name)


def applied(profile: Profile, load: TunedLoad, name: str | None = None) -> AppliedProfile:
    """One of a profile's loads. Raises DecError as `read`."""
    path = profile.path
    algorithm = decgraph.load(name or load.file or load.algorithm)
    params = profile.check(load, algorithm.function)
    models = {name: str(held.get("source", "")) for name, held in load.models.items() if held.get("source")}
    for name in models:
        if name.split(".")[0] not in algorithm.models:
            raise decgraph.DecError(
                f"{path}:{profile.line(f'loads.models.{name}', of=load)}: {algorithm.name} takes no model `{name}`",
                hint="the algorithm has changed: tune it again",
            )
    try:
        plan = Plan.parse(profile.plan)
    except decgraph.DecError as error:
        message = str(error).splitlines()[0].removeprefix("error: ")
        raise decgraph.DecError(f"{path}:{profile.line('plan', 'text')}: {message}", hint="tune it again") from None
    return AppliedProfile(profile, load, algorithm, params, models, plan)
