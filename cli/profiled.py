"""A profile of `decgraph tune` applied to a run: its parameters, plan and models, and what is not as it was tuned."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime.models.masked_settings import model_of
from decgraph.runtime.session import Session
from decgraph.runtime.tune import facts
from decgraph.runtime.tune.profile import Profile
from decgraph.zoo import folder_of


def contents_of(sources: Mapping[str, str]) -> dict[str, str]:
    """The fingerprints of models by parameter; a setting of a masked model (`model.shift`) is its own."""
    return {n: s if model_of(n)[1] else facts.fingerprint(folder_of(s)) for n, s in sources.items()}


@dataclass(frozen=True)
class AppliedProfile:
    """params: values by name. models: sources by parameter, as given to `tune`. plan: how it ran there."""

    profile: Profile
    params: dict[str, Any]
    models: dict[str, str]
    plan: Plan

    def warn(
        self, algorithm: decgraph.Algorithm, session: Session, models: dict[str, str], temperature: float, batch: int
    ) -> None:
        """Say on stderr what is not as it was tuned. `models` are the sources of this run, `batch` how many prompts it decodes
        together."""
        contents = contents_of(models)
        doubts = self.profile.doubts(
            program=facts.digest(algorithm.text),
            models=contents,
            temperature=temperature,
            batch=batch,
            device=facts.of_placement(session.placement),
        )
        for doubt in doubts:
            print(f"warning: {self.profile.path}: {doubt}; tune again for what is fastest here", file=sys.stderr)
        if self.profile.figures.get("changes_output") is True:
            share = self.profile.figures.get("same_tokens_as_default")
            said = f" ({share:.1%} of the tokens when it was tuned)" if isinstance(share, int | float) else ""
            print(f"warning: {self.profile.path}: it may commit other tokens than the defaults{said}", file=sys.stderr)


def read(path: Path, algorithm: decgraph.Algorithm) -> AppliedProfile:
    """A profile for an algorithm. Raises DecError, with file and line, for one that cannot be applied to it."""
    profile = Profile.read(path)
    params = profile.check(algorithm.function)
    models = {name: str(held.get("source", "")) for name, held in profile.models.items() if held.get("source")}
    for name in models:
        if name.removesuffix(".heads") not in algorithm.models:
            raise decgraph.DecError(
                f"{path}:{profile.line(f'models.{name}')}: {algorithm.name} takes no model `{name}`",
                hint="the algorithm has changed: tune it again",
            )
    try:
        plan = Plan.parse(profile.plan)
    except decgraph.DecError as error:
        message = str(error).splitlines()[0].removeprefix("error: ")
        raise decgraph.DecError(f"{path}:{profile.line('plan', 'text')}: {message}", hint="tune it again") from None
    return AppliedProfile(profile, params, models, plan)
