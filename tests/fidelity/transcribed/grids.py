"""Decoders of images and actions: which cells of a grid a call decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.canvases import run
from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared
from fidelity.transcribed.masks import Watch, masked
from lib.stdlib.letters import Letters

from lab.recordings.grids import SIZE, drawn, liked, rows, table, uniforms


def stored(program: str, *names: str, sites: Mapping[str, str]) -> Any:
    """Ours: the groups of a program that keeps decided cells alone, whose every second call stores what was decided."""

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        made = masked(program, *names, sites=sites)(case, backend)
        prompt = set(range(len(case["prompt"])))
        asked = [sorted(set(c) - prompt) for c in made["computed"][::2]]
        assert [sorted(set(c) - prompt) for c in made["computed"][1::2]] == asked
        assert [sorted(i for i, _ in d) for d in made["decided"][::2]] == asked
        return {"output": made["output"], "groups": asked}

    return ours


def code_var(case: Mapping[str, Any]) -> Columns:
    """Scale after scale, the first ones by the large model and hotter ones first."""
    seed, w = case["seed"], Watch(case["prompt"], sum(s * s for s in (1, 2, 3, 4)[: case["scales"]]))
    large, small = table(seed), table(seed + 50, name="refiner")
    start = w.start
    for k, side in enumerate((1, 2, 3, 4)[: case["scales"]]):
        end = start + side * side
        w.call(range(end))
        p = rows(large if k < case["drafted"] else small, {i: w.cells[i] for i in range(end)}, end, range(start, end))
        for lane, i in enumerate(range(start, end)):
            q = p[i] ** (1 / case["hot"]) if k < case["coarse"] else p[i]
            w.cells[i] = drawn(q / q.sum(), uniforms(seed, len(w.computed) - 1, (lane,), SIZE))
        start = end
    return w.done()


def code_var_ours(case: Mapping[str, Any], backend: str) -> Columns:
    """With the small model beside the large one."""
    others = {"refiner": table(case["seed"] + 50, name="refiner")}
    length = sum(s * s for s in (1, 2, 3, 4)[: case["scales"]])
    return masked("code_var", "scales", "drafted", "hot", "coarse", others=others)({**case, "length": length}, backend)


def soft_value(case: Mapping[str, Any], backend: str) -> Columns:
    """A proposal's draws are known by its step and number; a canvas that was just computed is not computed again."""

    def given(key: Any, n: int) -> Any:
        return uniforms(case["seed"], key.counters[0], (key.counters[1], *key.lane), n)

    params = {name: case[name] for name in ("steps", "m", "eps")}
    model = table(case["seed"], 4)
    done = run(
        "soft_value", model, case["prompt"], case["length"], backend,
        shaping={"temperature": 1}, noise=given, externs={"reward": liked}, tokenizer=Letters(), **params,
    )  # fmt: skip
    return {"output": done.output, "canvases": sorted({c.cells for c in done.calls})}


def recap(case: Mapping[str, Any], backend: str) -> Columns:
    """Their picture has 256 cells; with how many are computed."""
    read = {name: case[name] for name in ("seed", "prompt", "steps", "alone", "cheap", "heat", "cool")}
    sites = {"recap.1": "guess", "recap.2": "choice", "recap.6": "token"}
    made = masked("recap", "steps", "alone", "cheap", "heat", "cool", sites=sites)
    found = made({**read, "length": 256, "sampled": True}, backend)
    start = len(read["prompt"])
    computed = [sum(i >= start for i in call) for call in found["computed"]]
    return {"output": found["output"], "decided": found["decided"], "computed": computed}


def grid(program: str, *names: str, only: tuple[str, ...] = ("output", "decided"), **more: Any) -> Any:
    """Ours, sampled: these columns."""
    made = more.pop("made", masked)(program, *names, **more)

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        read = {name: case[name] for name in ("seed", "prompt", *(n for n in names if n in case))}
        sizes = case.get("sizes", ())
        length = case["frames"] * case["books"] if "frames" in case else sum(sizes) or case["length"]
        found = made({"steps": len(sizes), **read, "length": length, "sampled": True}, backend)
        return {name: found[name] for name in only}

    return ours


GROUPS = {"lpd.3": "order", "lpd.5": "token"}
REMASKED = {"secondary_remask.1": "token", "secondary_remask.2": "choice"}
ENTRIES = [
    recorded("secondary_remask", grid("secondary_remask", "steps", "heat", "again", sites=REMASKED), kind="masked"),
    recorded(
        "arpg",
        grid("arpg", "steps", made=stored, only=("output", "groups"), sites={"arpg.0": "order", "arpg.3": "token"}),
        kind="masked",
    ),
    recorded(
        "lpd",
        grid(
            "lpd", "width", "steps", "near", "apart", made=stored, only=("groups",), sites={"lpd.3": "order", "lpd.5": "token"}
        ),
        kind="masked",
    ),
    recorded("soft_value", soft_value, kind="masked"),
    recorded("recap", recap, kind="masked"),
    recorded("codebook_delay", grid("codebook_delay", "frames", "books", "delay"), kind="masked"),
]
COMPARED = [
    Compared(
        "code_var",
        "czg1225/CoDe bfb204d, models/var.py, autoregressive_infer_cfg_draft and autoregressive_infer_cfg_refine",
        code_var,
        code_var_ours,
        {
            f"seed{s} {drafted} of {scales}": {
                "seed": s, "prompt": (1, s), "scales": scales, "drafted": drafted, "hot": hot, "coarse": coarse,
                "sampled": True,
            }
            for s, scales, drafted, hot, coarse in ((1, 3, 2, 1.1, 1), (2, 4, 3, 1.5, 2), (3, 3, 0, 0.7, 3), (4, 3, 3, 1.1, 0))
        },
        "the picture that earlier scales are read as, and guidance by a class, are the model's",
    ),
]  # fmt: skip
