"""Decoders of images and actions: which cells of a grid a call decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.canvases import MASK, run
from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared
from fidelity.transcribed.masks import Watch, masked
from lib.stdlib.letters import Letters

from lab.recordings.grids import SIZE, drawn, rows, table, uniforms


def gumbel(u: float) -> float:
    """Of a uniform number."""
    return float(-np.log(-np.log(u)))


def recap(case: Mapping[str, Any]) -> Columns:
    """A full call ranks the masked cells by a draw's confidence; the first of that order are decided by fresh draws of the full
    call, the next ones by those of each call of the group alone, in which all other cells are as the full call saw them."""
    seed, steps, length = case["seed"], case["steps"], case["length"]
    model, w = table(seed), Watch(case["prompt"], length)
    total = len(w.cells)
    kept = [int(np.floor((1 - (i / steps) ** 2.5) * length)) for i in range(steps)]
    counts = [a - b for a, b in zip(kept, kept[1:], strict=False)]
    counts.append(length - sum(counts))
    for i, n in enumerate(counts):
        if n == 0:
            counts[i], counts[-1] = 1, counts[-1] - 1
    warm = [case["cool"] + (1 - np.sqrt(i / (steps - 1))) * (1 - case["cool"]) for i in range(steps)]
    groups, i = [], 0
    while i < steps:
        many = 1 if i < case["alone"] else 1 + case["cheap"]
        groups.append(list(zip(counts[i : i + many], warm[i : i + many], strict=True)))
        i += many
    for g, group in enumerate(groups):
        seen = {i: w.cells[i] for i in range(total)}
        w.call(range(total))
        p = rows(model, seen, total, [i for i in range(w.start, total) if w.cells[i] == MASK])
        call, heat, confidence = len(w.computed) - 1, case["heat"] * (1 - (g + 1) / len(groups)), {}
        for lane, i in enumerate(p):
            x = drawn(p[i], uniforms(seed, call, (lane,), SIZE, "guess"))
            confidence[i] = np.log(p[i][x]) + heat * gumbel(uniforms(seed, call, (lane,), SIZE, "choice")[x])
        order = sorted(p, key=lambda i: -confidence[i])[: sum(n for n, _ in group)]
        done = 0
        for n, heat in group:
            if done:
                seen.update({i: w.cells[i] for i in order})
                w.call(order)
                p = rows(model, seen, total, order)
            for lane, i in enumerate(order[done : done + n]):
                q = p[i] ** (1 / heat)
                w.cells[i] = drawn(q / q.sum(), uniforms(seed, len(w.computed) - 1, (lane,), SIZE, "token"))
            done += n
    return w.done()


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


def liked(text: str) -> float:
    """A reward: letters early in the text that are early in the alphabet."""
    return sum((i + 3) * -ord(letter) % 23 for i, letter in enumerate(text)) / 7


def soft_value(case: Mapping[str, Any]) -> Columns:
    """Of m steps that the model alone could make the one is kept whose expected end is liked most."""
    seed, model, w = case["seed"], table(case["seed"]), Watch(case["prompt"], case["length"])
    total, eps, seen = len(w.cells), case["eps"], []
    cells = range(w.start, total)
    for i in range(case["steps"]):
        time, after = 1 - i * (1 - eps) / case["steps"], 1 - (i + 1) * (1 - eps) / case["steps"]
        p = rows(model, dict(enumerate(w.cells)), total, cells)
        seen.append(tuple(w.cells))
        proposals = []
        for j in range(case["m"]):
            made = list(w.cells)
            for lane, n in enumerate(cells):
                token = drawn(p[n], uniforms(seed, i, (j, lane), SIZE))
                moves = uniforms(seed, i, (j, lane), 1)[0] < (time - after) / time
                made[n] = token if made[n] == MASK and moves else made[n]
            q = rows(model, dict(enumerate(made)), total, cells)
            seen.append(tuple(made))
            end = [int(np.argmax(q[n])) if made[n] == MASK else made[n] for n in cells]
            proposals.append((liked("".join("abcdefg"[x] for x in end)), made))
        w.cells = max(proposals, key=lambda scored: scored[0])[1]
    if MASK in w.cells:
        p = rows(model, dict(enumerate(w.cells)), total, cells)
        seen.append(tuple(w.cells))
        w.cells = [int(np.argmax(p[n])) if x == MASK else x for n, x in enumerate(w.cells)]
    return {"output": tuple(w.cells), "canvases": sorted(set(seen))}


def soft_value_ours(case: Mapping[str, Any], backend: str) -> Columns:
    """A proposal's draws are known by its step and number; a canvas that was just computed is not computed again."""

    def given(key: Any, n: int) -> Any:
        return uniforms(case["seed"], key.counters[0], (key.counters[1], *key.lane), n)

    params = {name: case[name] for name in ("steps", "m", "eps")}
    model = table(case["seed"])
    done = run(
        "soft_value", model, case["prompt"], case["length"], backend,
        shaping={"temperature": 1}, noise=given, externs={"reward": liked}, tokenizer=Letters(), **params,
    )  # fmt: skip
    return {"output": done.output, "canvases": sorted({c.cells for c in done.calls})}


SHAPED = ((1, 8, 4, 0, 1), (2, 12, 5, 1, 1), (3, 16, 8, 2, 2), (4, 16, 6, 6, 1), (5, 12, 6, 0, 3))


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
    recorded("codebook_delay", grid("codebook_delay", "frames", "books", "delay"), kind="masked"),
]
COMPARED = [
    Compared(
        "recap",
        "liebenxj/ReCAP 4d1da38, examples/MaskGIT+ReCAP/cache_decoding.py, decode",
        recap,
        masked(
            "recap",
            *("steps", "alone", "cheap", "heat", "cool"),
            sites={"recap.1": "guess", "recap.2": "choice", "recap.6": "token"},
        ),
        {
            f"seed{s} alone{alone} cheap{cheap}": {
                "seed": s, "prompt": (1, s), "length": length, "steps": steps, "alone": alone, "cheap": cheap,
                "heat": 5.5 if s % 2 else 0.7, "cool": 0.75, "sampled": True,
            }
            for s, length, steps, alone, cheap in SHAPED
        },
        "gen_step is steps, pre_full_iters alone, num_cache_iters cheap, conf_temp heat, samp_temp cool; without guidance",
    ),
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
    Compared(
        "soft_value",
        "masa-ue/SVDD 5ce225a, diffusion_gosai.py, controlled_sample_tweedie",
        soft_value,
        soft_value_ours,
        {
            f"seed{s} {m} of {steps} to {eps}": {
                "seed": s, "prompt": (1, s), "length": length, "steps": steps, "m": m, "eps": eps,
            }
            for s, length, steps, m, eps in ((1, 6, 4, 3, 0.1), (2, 5, 3, 2, 0.4), (3, 8, 5, 4, 1e-5), (4, 6, 2, 3, 0.3))
        },
        "sample_M is m; their last call, which fills what is left, is not made where nothing is",
    ),
]  # fmt: skip
