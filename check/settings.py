"""Where claims with a condition are decided: which claims go together, and the parameter values that satisfy a condition.

A claim `when delta == 0` is decided in worlds whose parameters satisfy the condition, and in no others; where it reads the
request (`when window >= len(prompt) + room`), in worlds whose parameters satisfy it for their requests. What must have run
before it is said to hold is what can run there, so every such claim has a coverage of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from decgraph.backends.exact.coverage import CoveredRun
from decgraph.errors import DecError
from decgraph.ir.settings import holds, names, narrowed, of_request, plain, settings
from decgraph.ir.values import Claim, Constant, Function, Module
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.request import Request

SMALL = 8  # larger whole numbers are tried only in every fourth world
WORLDS = 8  # how many settings get a world of their own


@dataclass
class Group:
    """Claims that are decided together: all those without a condition on parameters, or one with a condition.

    function: the entry with these claims alone, its parameters' ranges narrowed by the condition. indices: the claims' places
    among all of the entry. ran: what of the program ran in their worlds. skipped: why parameter values that were given make a
    claim say nothing."""

    function: Function
    indices: tuple[int, ...]
    ran: CoveredRun
    skipped: str = ""

    @property
    def claims(self) -> tuple[Claim, ...]:
        return self.function.claims

    @property
    def when(self) -> str:
        """The condition, "" for the claims without one."""
        return self.claims[0].when if self.claims[0].setting else ""


def groups(module: Module, ran: CoveredRun, fixed: Mapping[str, ParamValue]) -> list[Group]:
    """The claims of a module's entry in groups, those without a condition first."""
    f = module.entry
    plainly = tuple(i for i, c in enumerate(f.claims) if not c.setting)
    out = [Group(replace(f, claims=tuple(f.claims[i] for i in plainly)), plainly, ran)] if plainly else []
    for i, c in enumerate(f.claims):
        if c.setting:
            g = Group(replace(narrowed(f, c.setting), claims=(c,)), (i,), ran if not out else ran.fresh())
            if not possible(f, c, fixed):
                g.skipped = f"with the parameters given nothing is said by: {c.text}"
            out.append(g)
    return out


def restricted(module: Module, group: Group) -> Module:
    """A module of which the entry has a group's claims alone; its own module is any that was made of the same text."""
    f = module.entry
    if len(group.indices) == len(f.claims):
        return module
    kept = replace(f, claims=tuple(f.claims[i] for i in group.indices))
    return replace(module, functions={**module.functions, f.name: kept})


def possible(f: Function, claim: Claim, fixed: Mapping[str, ParamValue]) -> bool:
    """Whether a claim says anything where some parameters have given values."""
    return not claim.setting or any(_agrees(s, fixed) for s in settings(f, claim.setting, fixed))


def _agrees(setting: Mapping[str, ParamValue], values: Mapping[str, ParamValue]) -> bool:
    return all(plain(values[n]) == plain(v) for n, v in setting.items() if n in values)


def at_setting(
    f: Function,
    claim: Claim,
    params: Mapping[str, ParamValue],
    fixed: Collection[str],
    wished: Collection[str],
    n: int,
    request: Request,
    committed: int = 0,
) -> dict[str, ParamValue]:
    """The parameters of a world, changed as little as satisfies a claim's condition for its request. fixed: those that stay.
    wished: those that stay where the condition lets them. n: the world's number; where several settings are equally near,
    worlds take them by turns. committed: as in `speaks`. Raises DecError where none is left."""
    out = dict(params)
    if speaks(claim, out, request, committed):
        return out
    kept = {k: v for k, v in params.items() if k in fixed}
    known = {**params, **sizes_of(request)}
    found = [s for s in settings(f, claim.setting, known) if _agrees(s, kept) and speaks(claim, s, request, committed)]
    found = [s for s in found if _agrees(s, {k: v for k, v in params.items() if k in wished})] or found
    if not found:
        raise DecError(f"the parameters of this world cannot satisfy `{claim.when}`")

    def changed(s: Mapping[str, ParamValue]) -> int:
        return sum(plain(out[k]) != plain(v) for k, v in s.items())

    least = min(map(changed, found))
    nearest = [s for s in found if changed(s) == least]
    few = [s for s in nearest if all(isinstance(v, bool) or not isinstance(v, int) or v <= SMALL for v in s.values())]
    chosen = nearest if n % 4 == 3 or not few else few
    return {**out, **chosen[n % len(chosen)]}


def sizes_of(request: Request, committed: int = 0) -> dict[str, int]:
    """What conditions read of a request, with so many committed tokens counted as part of its prompt."""
    return of_request(len(request.prompt) + committed, request.max_tokens - committed)


def speaks(claim: Claim, params: Mapping[str, ParamValue], request: Request, committed: int = 0) -> bool:
    """Whether a claim says anything of a request with these parameters. committed: tokens that a step begins after. What is
    computed before the loop takes them for the prompt's there, so the claim must speak of such a request, too."""
    return all(holds(claim.setting, {**params, **sizes_of(request, n)}) for n in {0, committed})


def own_worlds(
    f: Function, claim: Claim, fixed: Mapping[str, ParamValue], left_out: Collection[str]
) -> list[dict[str, Constant]]:
    """Settings that have a world of their own: the first and the last ones, and some between. left_out: parameters whose values
    the worlds choose."""
    found = [s for s in settings(f, claim.setting, fixed) if _agrees(s, fixed)] if claim.setting else []
    found = [{k: v for k, v in s.items() if k not in left_out} for s in found]
    found = [s for i, s in enumerate(found) if s and s not in found[:i]] if len(found) < 200 else [s for s in found if s]
    if len(found) <= WORLDS:
        return found
    step = (len(found) - 1) / (WORLDS - 1)
    return [found[round(i * step)] for i in range(WORLDS)]


def speaks_of(f: Function, claim: Claim, values: Mapping[str, ParamValue]) -> bool:
    """Whether a claim's condition can hold with these values of some parameters."""
    asked = {k: v for k, v in values.items() if k in names(claim.setting)}
    return not asked or possible(f, claim, asked)
