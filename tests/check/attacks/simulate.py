"""Whether an attack is wrong, by simulation: many seeds of the reference interpreter in a world that shows it.

Nothing of check/ is used. In tokens and when greedy, program and specification must commit the same tokens for every seed;
in distribution, the samples of both are compared by a chi-square test of homogeneity; `keeps support` and `ensures` are
looked up for every committed token. `python tests/check/attacks/simulate.py [NAME ...]` prints what it finds.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any

from attack_worlds import World, world_of
from lib.stdlib.letters import Letters

from decgraph.backends.registry import machine
from decgraph.dsl.lower import load_text
from decgraph.ir.values import Claim, Module
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from decgraph.runtime.shaping import raw_probs, shaped_probs

FOLDER = Path(__file__).parent

LETTERS = Letters([*(chr(97 + i) for i in range(26)), *(f"<{i}>" for i in range(26, 64))])


@dataclass(frozen=True)
class Finding:
    """What a simulation says of a claim: whether it is false in that world, and by how much."""

    false: bool
    why: str


def models(module: Module, name: str, world: World) -> dict[str, Any]:
    """A model for every model parameter of a function."""
    made: dict[str, Any] = {}
    for i, p in enumerate(p for p in module.functions[name].params if p.value.type.elem == "model"):
        kind, vocab = str(p.value.type.of[0]), str(p.value.type.of[1])
        rows = world.rows.get(p.name)
        window = world.window if kind == "causal" else None
        table: Mapping[Any, Any] = rows if isinstance(rows, Mapping) else {}
        if rows is not None and not isinstance(rows, Mapping):
            window, table = 0, {(): rows}
        if world.layers:
            made[p.name] = FreeModel(
                world.seed * 101 + i,
                world.vocab,
                world.layers,
                name=p.name,
                vocab=vocab,
                visibility="causal" if kind == "causal" else "full",
            )
        else:
            sort: Any = kind
            made[p.name] = TableModel(
                world.vocab, world.seed * 101 + i, table, kind=sort, name=p.name, vocab=vocab, window=window, zeros=world.zeros
            )
    return made


def request(world: World, seed: int, **more: Any) -> Request:
    return Request(**{"prompt": world.prompt, "max_tokens": world.limit, "seed": seed, **world.request, **more})


def tokens_of(session: Session, world: World, seed: int, **more: Any) -> tuple[tuple[int, ...], str]:
    """Tokens and reason of a run; of the last of several where requests go before or beside it. Raises what a run raises."""
    asked = request(world, seed, **more)
    for i in range(world.before):
        session.run(replace(asked, seed=seed + 7919 * (i + 1)))
    if world.batch > 1:
        others = [replace(asked, request_id=i) for i in range(1, world.batch)]
        found = session.generate([*others, asked], batch=world.batch)[-1]
    else:
        found = session.run(asked)
    if found.error is not None:
        raise found.error
    return found.tokens, found.reason


def specification(module: Module, claim: Claim, bound: Mapping[str, Any], world: World) -> Callable[[], Session]:
    """New sessions of what the claim refines, with its arguments."""
    f = module.functions[module.main]
    mine = {**{p.name: p.default for p in f.params if p.has_default}, **world.params}
    given = {k: (bound.get(v, mine.get(v)) if kind == "param" else v) for k, (kind, v) in claim.args}
    wanted = {p.name for p in module.functions[claim.spec].params if p.value.type.elem == "model"}
    return partial(
        Session,
        module,
        {k: v for k, v in given.items() if k in wanted},
        {k: v for k, v in given.items() if k not in wanted},
        machine=machine("reference"),
        name=claim.spec,
        tokenizer=LETTERS,
        externs=world.externs,
    )


def deviation(ours: Counter[Any], theirs: Counter[Any]) -> float:
    """The chi-square statistic of two samples of equal size, in standard deviations (Wilson and Hilferty); outcomes that are
    rare in both are one."""
    cells: list[tuple[int, int]] = []
    rare = (0, 0)
    for key in ours.keys() | theirs.keys():
        pair = (ours[key], theirs[key])
        if sum(pair) >= 16:
            cells.append(pair)
        else:
            rare = (rare[0] + pair[0], rare[1] + pair[1])
    if sum(rare) >= 16:
        cells.append(rare)
    free = len(cells) - 1
    if free < 1:
        return 0.0
    n, m = sum(a for a, _ in cells), sum(b for _, b in cells)
    total = sum(
        (a - (a + b) * n / (n + m)) ** 2 / ((a + b) * n / (n + m)) + (b - (a + b) * m / (n + m)) ** 2 / ((a + b) * m / (n + m))
        for a, b in cells
    )
    return ((total / free) ** (1 / 3) - (1 - 2 / (9 * free))) / sqrt(2 / (9 * free))


FACES: tuple[Callable[[Any], Any], ...] = (
    lambda run: run,
    lambda run: run[0][-1:],
    lambda run: run[0][-2:],
    lambda run: run[0][:2],
    lambda run: run[0].count(0),
    lambda run: (len(run[0]), run[1]),
)
"""What is compared of a run, tokens and reason: all of it, and parts, which show a small difference with fewer samples."""


def seen(runs: Counter[Any], face: Callable[[Any], Any]) -> Counter[Any]:
    """How often each value of a part of a run was seen."""
    out = Counter[Any]()
    for run, times in runs.items():
        out[face(run)] += times
    return out


def judge(path: Path, world: World, *, runs: int | None = None) -> Finding:
    """Look for a difference between the program's first claim and what it does in that world."""
    module = load_text(path.read_text(encoding="utf-8"), str(path), check_labels=False)
    claim, bound = module.entry.claims[0], models(module, module.main, world)
    ours = partial(
        Session, module, bound, dict(world.params), machine=machine(world.backend), tokenizer=LETTERS, externs=world.externs
    )
    if claim.kind != "refines":
        return broken_promise(ours, bound, claim, world)
    theirs = specification(module, claim, bound, world)
    if claim.mode == "distribution":
        n = runs or world.runs
        mine, want = Counter[Any](), Counter[Any]()
        keep = world.before == 0 and not any(s.scope != "sequence" for s in module.entry.states)
        one, other = ours(), theirs()
        for seed in range(n):
            mine[tokens_of(one if keep else ours(), world, seed)] += 1
            want[tokens_of(other, replace(world, before=0, batch=1), seed + 1_000_003)] += 1
            if seed % 200 == 199 and max(deviation(seen(mine, face), seen(want, face)) for face in FACES) > 9:
                break  # more samples could not hide that
        off = max(deviation(seen(mine, face), seen(want, face)) for face in FACES)
        most = f"{mine.most_common(2)} and {want.most_common(2)}"
        return Finding(off > 6, f"{off:.1f} deviations in {sum(mine.values())} runs, {most}")
    more = {"temperature": 0} if claim.mode == "greedy" else {}
    for seed in range(60):
        here = replace(world, seed=world.seed + seed // 2) if claim.mode == "greedy" or seed % 2 else world
        bound = models(module, module.main, here)
        a = tokens_of(
            Session(
                module, bound, dict(world.params), machine=machine(world.backend), tokenizer=LETTERS, externs=world.externs
            ),
            here,
            seed,
            **more,
        )
        b = tokens_of(specification(module, claim, bound, world)(), replace(here, before=0, batch=1), seed, **more)
        if a != b:
            return Finding(True, f"seed {seed}: {a}, not {b}")
    return Finding(False, "60 seeds agree")


PROMISES: dict[str, Callable[[Any, int], bool]] = {
    "ensures p[x] > 0.01": lambda p, x: p[x] > 0.01,
    "ensures p[x] > 0": lambda p, x: p[x] > 0,
    "ensures p[x] >= 0.02 * max(p)": lambda p, x: p[x] >= max(p) / 50,
    "ensures p[x] > 0.33": lambda p, x: p[x] > 0.33,
    "ensures p[x] >= max(p)": lambda p, x: p[x] >= max(p),
    "ensures p[x] > 0.11 or p[x] >= max(p)": lambda p, x: p[x] > 0.11 or p[x] >= max(p),
    "ensures p[x] > 0.1 or p[x] >= max(p)": lambda p, x: p[x] > 0.1 or p[x] >= max(p),
}


def broken_promise(ours: Callable[[], Session], bound: Mapping[str, Any], claim: Claim, world: World) -> Finding:
    """Look for a committed token of which what is claimed is not true."""
    holds = PROMISES["ensures p[x] > 0"] if claim.kind == "keeps_support" else PROMISES[claim.text]
    target = bound[claim.models[0] if claim.models else "target"]
    for seed in range(300):
        asked, (tokens, _) = request(world, seed), tokens_of(ours(), world, seed)
        for i, x in enumerate(tokens):
            path = (*asked.prompt, *tokens[:i])
            face = raw_probs if claim.kind == "keeps_support" else shaped_probs
            p = face(target.eval([path])[0], path, asked)
            if not holds(p, x):
                return Finding(True, f"seed {seed}: token {x} after {path}, p = {[str(w) for w in p]}")
    return Finding(False, "300 runs keep it")


def main(names: Sequence[str]) -> None:
    for path in sorted((FOLDER / "wrong").glob("*.dec")):
        if names and not any(path.stem.startswith(n) for n in names):
            continue
        world = world_of(path.stem)
        if world.by_hand:
            print(f"by hand  {path.stem}: {world.by_hand}")
            continue
        for side in ("wrong", "true"):
            try:
                found = judge(FOLDER / side / path.name, world)
            except Exception as problem:  # what goes wrong with one program shall not hide the others
                found = Finding(side == "true", f"{type(problem).__name__}: {problem}")
            sign = "ok  " if found.false == (side == "wrong") else "XXXX"
            print(f"{sign} {side:5} {path.stem}: {found.why}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
