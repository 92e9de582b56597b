"""Verification on the device: the kernels of backends/triton/rules are given the tree, the evidence and the laws of the draws."""
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.rules.device import Given
from decgraph.backends.triton.step.evaluate import NotStatic, device
from decgraph.backends.triton.step.machine import take
from decgraph.backends.triton.step.values import Dist, Path, Tree


@device("tree.walk")
def walk(s: Any, op: Any, t: Tree, evidence: Any, *more: Any) -> Path:
    """The accepted path."""
    rule = s.rule(op)
    if not isinstance(evidence, Dist) or evidence.face != "shaped":
        raise NotStatic("a verification against something else than a distribution's shaped face", op)
    given = dict(token=t.token, parent=batched(s, t.parent), size=evidence.rows.size, **evidence_of(s, t, evidence, rule.needs))
    if "laws" in rule.needs:
        given |= laws_of(s, t, op)
    if "noise" in rule.needs:
        given |= {"seeds": s.seeds, "words": s.site_words(tuple(rule.sites)), "position": s.length.long()}
    elif "position" in rule.needs:
        given["position"] = s.length.long()
    columns = {name: named(s, t, name) for name in ("prob", "race", "point") if name in rule.needs}
    if rule.ints:
        given["counters"] = torch.stack([counter(s, v) for v in rule.ints], 1)
    if rule.reals:
        given["reals"] = torch.stack([real(s, v) for v in rule.reals], 1)
    depth = max(1, t.height)
    walked = rule.on_device(Given(**given, columns=columns), depth=depth)
    s.flag(walked.fault != 0)
    count_tests(s, walked.tests, depth)
    nodes, count = walked.nodes, walked.count
    emits = walked.emitted >= 0
    steps = s.steps(depth + 1)
    tokens = torch.cat([t.token.gather(1, nodes.clamp(min=0)), walked.emitted[:, None]], 1)
    tokens = torch.where(steps == count[:, None], walked.emitted[:, None], tokens)
    return Path(t, nodes, count.to(torch.int32), tokens, (count + emits).to(torch.int32), walked.node)


def batched(s: Any, a: Any) -> Tensor:
    """int64[B, N] of what is the same for all sequences, or is theirs already."""
    if isinstance(a, Tensor):
        return a.contiguous()
    out: Tensor = s.constant(np.broadcast_to(a, (s.frame.batch, len(a))))
    return out


def evidence_of(s: Any, t: Tree, q: Dist, needs: Any) -> dict[str, Any]:
    """The columns of `Given` for the distributions that a tree is verified against."""
    if "p" not in needs:
        return {}
    out: dict[str, Any] = {}
    points = s.points(q.rows, q.face)
    if points is not None:
        out["p_points"] = points.contiguous()
    else:
        out["p"] = s.face(q.rows, q.face).contiguous()
    if isinstance(q.index, Tensor) or q.index.ndim != 1:
        raise NotStatic("a verification against rows that data chose")
    if q.at is None and len(q.index) == t.size and bool((q.index == np.arange(t.size)).all()) and q.rows.count == t.size:
        return out
    row = np.full(t.size, -1, dtype=np.int64)
    at = np.arange(len(q.index)) if q.at is None else q.at
    row[at] = q.index
    return out | {"row": batched(s, row)}


def laws_of(s: Any, t: Tree, op: Any) -> dict[str, Any]:
    """The columns of `Given` for the laws of a tree's draws."""
    if all(g.draws.point or g.draws.rows is None for g in t.growths):
        return {}
    tables: list[Tensor] = []
    where = np.full(t.size, -1, dtype=np.int64)
    points = []
    base = 0
    for g in t.growths:
        d = g.draws
        if d.point or d.rows is None:
            continue
        if isinstance(d.row, Tensor):
            raise NotStatic("the laws of draws that data chose", op)
        certain = s.points(d.rows, d.face)
        ranked = d.rank is not None and bool(np.any(d.rank))
        if certain is not None and not ranked:
            points.append(certain)
            where[g.first:g.first + g.count] = base + d.row
            base += d.rows.count
            continue
        table = s.face(d.rows, d.face)
        if not ranked:
            tables.append(table)
            where[g.first:g.first + g.count] = base + d.row
            base += d.rows.count
            continue
        rows = take(s, table, d.row)
        members = take(s, d.members, d.row)
        count = batched(s, d.rank)
        flat = s.laws.without(rows.flatten(0, 1), members.flatten(0, 1), count.reshape(-1))
        tables.append(flat.unflatten(0, (s.frame.batch, g.count)))
        where[g.first:g.first + g.count] = base + np.arange(g.count)
        base += g.count
    if points and tables:
        raise NotStatic("laws of which some are certain and some are not", op)
    row = where if t.origin is None else s.constant(where)[t.origin]
    row = batched(s, row).to(torch.int32)
    if points:
        return {"q_points": torch.cat(points, 1).contiguous(), "law_row": row}
    return {"q": (torch.cat(tables, 1) if len(tables) > 1 else tables[0]).contiguous(), "law_row": row}


def named(s: Any, t: Tree, name: str) -> Tensor:
    """float64[B, N]: a column that a rule reads of its draws."""
    from decgraph.backends.triton.step.trees import probs
    if name == "prob":
        return torch.cat([s.constant(np.ones((s.frame.batch, 1))), probs(s, t)], 1)
    if name == "race" and all(g.draws.race is not None for g in t.growths):
        return torch.cat([s.constant(np.zeros((s.frame.batch, 1))), *[g.draws.race for g in t.growths]], 1)
    raise NotStatic(f"the {name} of draws in a rule")


def counter(s: Any, value: Any) -> Tensor:
    """int32[B]: an int that a rule captures."""
    v = s.env[value]
    if isinstance(v, Tensor):
        return v.to(torch.int32)
    out: Tensor = s.constant(np.full(s.frame.batch, int(v), dtype=np.int32))
    return out


def real(s: Any, value: Any) -> Tensor:
    """float64[B]: a number that a rule captures."""
    v = s.env[value]
    if isinstance(v, Tensor):
        return v.double()
    out: Tensor = s.constant(np.full(s.frame.batch, float(v)))
    return out


def count_tests(s: Any, tests: Tensor, depth: int) -> None:
    """Add to the statistics what was tested and accepted at every depth, but for sequences that are over."""
    live = (~s.over())[:, None].long()
    s.tally.tested[:, :depth] += tests[..., 0] * live
    s.tally.accepted[:, :depth] += tests[..., 1] * live

