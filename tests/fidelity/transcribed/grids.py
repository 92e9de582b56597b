"""Decoders of images and actions: which cells of a grid a call decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.canvases import MASK, run
from fidelity.transcribed.compared import Columns, Compared
from fidelity.transcribed.masks import SIZE, Watch, drawn, masked, rows, table, uniforms
from lib.stdlib.letters import Letters


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


def secondary_remask(case: Mapping[str, Any]) -> Columns:
    """Of all cells the least probable are masked next; those decided before count less and less, or never."""
    seed, steps = case["seed"], case["steps"]
    model, w = table(seed), Watch(case["prompt"], case["length"])
    total = len(w.cells)
    for step in range(steps):
        w.call(range(total))
        ratio = (step + 1) / steps
        p = rows(model, dict(enumerate(w.cells)), total, range(w.start, total))
        again = min(max(int(case["length"] * np.cos(np.pi / 2 * ratio)), 1), case["length"] - 1)
        tokens, confidence = {}, {}
        for lane, i in enumerate(p):
            x = drawn(p[i], uniforms(seed, step, (lane,), SIZE, "token"))
            noise = case["heat"] * (1 - ratio) * gumbel(uniforms(seed, step, (lane,), SIZE, "choice")[x])
            known = w.cells[i] != MASK
            tokens[i] = w.cells[i] if known else x
            s = p[i][tokens[i]] * (1 - ratio if known else 1)
            confidence[i] = np.inf if known and not case["again"] else np.log(s + 1e-20) + noise
        least = sorted(confidence.values())[again]
        for i, x in tokens.items():
            w.cells[i] = MASK if confidence[i] < least and step < steps - 1 else x
    return w.done()


def groups(w: Watch, order: Mapping[int, list[int]]) -> Columns:
    """The output, and the cells of every group in the order in which they were taken."""
    return {"output": tuple(w.cells), "groups": [sorted(g) for g in order.values()]}


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


def ask(w: Watch, model: Any, seed: int, group: list[int], call: int) -> None:
    """Draw a group from a call that sees decided cells and the group's masks, nothing else."""
    total = len(w.cells)
    seen = {i: x for i, x in enumerate(w.cells) if x != MASK or i in group}
    p = rows(model, seen, total, group)
    for lane, i in enumerate(group):
        w.cells[i] = drawn(p[i], uniforms(seed, call, (lane,), SIZE, "token"))


def permuted(seed: int, call: int, n: int) -> list[int]:
    """A random order of n things, by the numbers that are read for it."""
    u = uniforms(seed, call, (0,), n, "order")
    return sorted(range(n), key=lambda i: -u[i])


def arpg(case: Mapping[str, Any]) -> Columns:
    """A random order, and by the arccosine's share how many of it a call takes."""
    seed, length, model, w = case["seed"], case["length"], table(case["seed"]), Watch(case["prompt"], case["length"])
    order, last, taken = permuted(seed, -1, length), 0, {}
    for step in range(case["steps"]):
        left = max(1, min(length - last - 1, int(length * np.arccos((step + 1) / case["steps"]) / (np.pi * 0.5))))
        n = length - last - (left if step < case["steps"] - 1 else 0)
        if n:
            taken[step] = [w.start + i for i in order[last : last + n]]
            ask(w, model, seed, taken[step], 2 * (len(taken) - 1))
            last += n
    return groups(w, taken)


def lpd(case: Mapping[str, Any]) -> Columns:
    """Groups of cells near decided ones and apart from one another; what is missing is taken far from the group."""
    seed, width, model, w = case["seed"], case["width"], table(case["seed"]), Watch(case["prompt"], case["length"])
    grid = [(i // width, i % width) for i in range(case["length"])]
    done: list[tuple[int, int]] = []
    taken: dict[int, list[int]] = {}
    for step, size in enumerate(case["sizes"]):
        order = permuted(seed, 2 * step - 1, len(grid))
        key = {place: order[i] for i, place in enumerate(grid)}
        score = {}
        for place in grid:
            if place not in done:
                gaps = [(abs(place[0] - d[0]), abs(place[1] - d[1])) for d in done]
                score[place] = sum(1.0 / float(np.hypot(*g)) for g in gaps if max(g) == 1)
        ranked = sorted(score, key=lambda place: (-score[place], -key[place]))
        near = [place for place in ranked if score[place] >= case["near"]]
        rest = [place for place in ranked if score[place] < case["near"]]
        if not done:
            near, rest = [], ranked
        group: list[tuple[int, int]] = []
        passed = []
        while len(group) < size and near:
            place = near.pop(0)
            close = any(max(abs(place[0] - g[0]), abs(place[1] - g[1])) <= case["apart"] for g in group)
            (passed if close else group).append(place)
        rest += passed + near
        if not group:
            rest.sort(key=lambda place: -key[place])  # one of them all, by chance
        while len(group) < size:
            far = [min(((p[0] - g[0]) ** 2 + (p[1] - g[1]) ** 2 for g in group), default=1) for p in rest]
            group.append(rest.pop(int(np.argmax(far))))
        done += group
        taken[step] = [w.start + grid.index(place) for place in group]
        ask(w, model, seed, taken[step], 2 * step)
    return groups(w, taken)


def pattern(case: Mapping[str, Any]) -> Columns:
    """A step decides the cell of every codebook whose frame it is by the delays; what has not begun is a special token."""
    books, frames, model = case["books"], case["frames"], table(case["seed"])
    w = Watch(case["prompt"], books * frames)
    delays = [k * case["delay"] for k in range(books)]
    for step in range(frames + max(delays)):
        begun = w.start + books * min(frames, step + 1)
        at = [w.start + books * (step - d) + k for k, d in enumerate(delays) if 0 <= step - d < frames]
        if not at:
            continue
        at.sort()
        w.call(range(begun))
        p = rows(model, {i: w.cells[i] for i in range(begun)}, begun, at)
        for lane, i in enumerate(at):
            w.cells[i] = drawn(p[i], uniforms(case["seed"], len(w.computed) - 1, (lane,), SIZE))
    return w.done()


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
        "secondary_remask",
        "Liang-ZX/DiscreteDiffusionVLA f87c72f, prismatic/discrete_flow/parallel_decode.py, decode",
        secondary_remask,
        masked(
            "secondary_remask",
            *("steps", "heat", "again"),
            sites={"secondary_remask.1": "token", "secondary_remask.2": "choice"},
        ),
        {
            f"seed{s} {'again' if again else 'once'}": {
                "seed": s, "prompt": (1, s), "length": 9, "steps": steps, "heat": heat, "again": again, "sampled": True,
            }
            for s, steps, heat in ((1, 4, 1.0), (2, 7, 1.0), (3, 12, 0.3), (4, 5, 2.0))
            for again in (True, False)
        },
        "use_remask is again, choice_temperature heat; without the trained critic",
    ),
    Compared(
        "arpg",
        "hp-l33/ARPG 1a1758c, models/arpg.py, generate",
        arpg,
        stored("arpg", "steps", sites={"arpg.0": "order", "arpg.3": "token"}),
        {
            f"seed{s} {length} in {steps}": {
                "seed": s, "prompt": (1, s), "length": length, "steps": steps, "sampled": True,
            }
            for s, length, steps in ((1, 8, 3), (2, 16, 9), (3, 13, 5), (4, 7, 12))
        },
        "guidance, and queries that are blind to one another, are the model's; calls that ask for nothing are not made",
    ),
    Compared(
        "lpd",
        "mit-han-lab/lpd f447b83, orders/lpd_order.py, lpd_order_schedule, and models/lpd.py, sample_tokens",
        lpd,
        stored("lpd", "width", "steps", "near", "apart", sites={"lpd.3": "order", "lpd.5": "token"}),
        {
            f"seed{s} near{near} apart{apart}": {
                "seed": s, "prompt": (1, s), "length": sum(sizes), "width": width, "steps": len(sizes), "sizes": sizes,
                "near": near, "apart": apart, "sampled": True,
            }
            for s, width, sizes, near, apart in (
                (1, 4, (1, 2, 4, 4, 5), 1.0, 1), (2, 4, (1, 2, 4, 4, 5), 1.0, 2), (3, 4, (1, 2, 4, 4, 5), 0.5, 0),
                (4, 5, (1, 2, 3, 4, 5, 5, 5), 1.0, 2), (5, 5, (1, 2, 3, 4, 5, 5, 5), 2.0, 1),
            )
        },
        "group sizes are those of a table there; guidance by a class is the model's",
    ),
    Compared(
        "codebook_delay",
        "facebookresearch/audiocraft 896ec7c, modules/codebooks_patterns.py, DelayedPatternProvider, and models/lm.py",
        pattern,
        masked("codebook_delay", "frames", "books", "delay"),
        {
            f"seed{s} {frames}x{books} delay{delay}": {
                "seed": s, "prompt": (1, s), "length": frames * books, "frames": frames, "books": books, "delay": delay,
                "sampled": True,
            }
            for s, frames, books, delay in ((1, 4, 3, 1), (2, 5, 2, 2), (3, 3, 4, 1), (4, 2, 3, 3), (5, 4, 2, 0))
        },
        "a call sees the frames that have begun, and a mask for their books that have not; guidance is the model's",
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
