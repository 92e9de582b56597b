"""Verification on the device: the tree, the evidence and the laws of the draws as inputs of the kernels of
backends/triton/rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.rules.device import Given
from decgraph.backends.triton.rules.values import Captured
from decgraph.backends.triton.step.effects import last_token
from decgraph.backends.triton.step.evaluate import NotCapturable, device
from decgraph.backends.triton.step.launch import accepted_path
from decgraph.backends.triton.step.machine import take
from decgraph.backends.triton.step.trees import batched, live, probs
from decgraph.backends.triton.step.values import DeviceDist, DeviceDraws, DeviceNoise, DevicePath, DeviceTree


@device("tree.walk")
def walk(s: Any, op: Any, t: DeviceTree, evidence: Any, *more: Any) -> DevicePath:
    """The accepted path."""
    rule, keys = s.rule(op), {}
    for v in rule.captured:
        keys[v] = s.env[v]
    noises = {v: k for v, k in keys.items() if isinstance(k, DeviceNoise)}
    rule = rule.variant({v: Captured(k.kind, len(k.counters), k.index is not None) for v, k in noises.items()})
    if not rule.supported:
        raise NotCapturable("a rule that cannot be a kernel", op)
    if not isinstance(evidence, DeviceDist) or evidence.face != "shaped":
        raise NotCapturable("a verification against something else than a shaped distribution", op)
    token = t.token if op.attrs["scope"] == "node" else torch.cat([last_token(s)[:, None], t.token[:, 1:]], 1)
    given: dict[str, Any] = {
        "token": token,
        "parent": batched(s, t.parent),
        "size": evidence.rows.size,
        **evidence_of(s, t, evidence, op),
    }
    if "laws" in rule.needs:
        given |= laws_of(s, t)
        if "p" in given and "q" in given and given["p"].dtype != given["q"].dtype:
            wide = torch.promote_types(given["p"].dtype, given["q"].dtype)
            given |= {"p": given["p"].to(wide), "q": given["q"].to(wide)}
    if "position" in rule.needs:
        given["position"] = s.length.long()
    if "noise" in rule.needs:
        others = iter([k.site for k in noises.values() if k.kind != "output"])
        sites = tuple(next(others) if name.startswith("captured ") else name for name in rule.sites)
        given |= {"seeds": s.seeds, "words": s.site_words(sites)}
    if rule.ints:
        given["counters"] = torch.stack([counter(s, keys, x, op) for x in rule.ints], 1)
    if rule.reals:
        given["reals"] = torch.stack([number(s, keys[v]).double() for v in rule.reals], 1)
    given["columns"] = {name: named(s, t, name, op) for name in ("prob", "race", "point") if name in rule.needs}
    useful = live(s, t)
    if useful is not None:
        given["live"] = useful.contiguous()
        s.tally.leaves_out(useful, s.began)
    depth = max(1, t.height)
    s.tally.walks(s.began)
    walked = s.walked(rule, Given(**given), depth)
    tokens, count, offered = accepted_path(
        walked.packed, walked.HEAD, depth, t.token, s.done, s.lost, s.tally.tested, s.tally.accepted
    )
    s.unchecked = [] if t.origin is None else s.unchecked  # a token of -1 was marked as lost before
    return DevicePath(t, walked.nodes, count, tokens, offered, walked.node)


def evidence_of(s: Any, t: DeviceTree, q: DeviceDist, op: Any) -> dict[str, Any]:
    """The columns of `Given` for the distributions that a tree is verified against."""
    out: dict[str, Any] = {}
    points = s.points(q.rows, q.face)
    if points is not None:
        out["p_points"] = points.contiguous()
    else:
        out["p"] = s.face(q.rows, q.face).contiguous()
    if isinstance(q.index, Tensor) or q.index.ndim != 1:
        raise NotCapturable("a verification against data-dependent rows", op)
    if q.at is None and len(q.index) == t.size and bool((q.index == np.arange(t.size)).all()) and q.rows.count == t.size:
        return out
    row = np.full(t.size, -1, dtype=np.int64)
    at = np.arange(len(q.index)) if q.at is None else q.at
    row[at] = q.index
    return out | {"row": batched(s, row)}


def laws_of(s: Any, t: DeviceTree) -> dict[str, Any]:
    """The columns of `Given` for the laws of a tree's draws: rows of a call, or separate vectors for those drawn without
    replacement. One-hot laws have none."""
    tables: list[Tensor] = []
    where: list[Tensor] = [batched(s, np.full(1, -1))]
    base = 0
    for g in t.growths:
        d = g.draws
        if d.point or d.rows is None or s.points(d.rows, d.face) is not None:
            where.append(batched(s, np.full(g.count, -1)))
        elif d.rank is None or not isinstance(d.rank, Tensor) and not d.rank.any():
            tables.append(s.face(d.rows, d.face))
            where.append(base + batched(s, d.row))
            base += d.rows.count
        else:
            rows, members = (take(s, a, d.row) for a in (s.face(d.rows, d.face), d.members))
            left = s.kernels.without(rows.flatten(0, 1), members.flatten(0, 1), batched(s, d.rank).reshape(-1))
            tables.append(left.unflatten(0, (s.frame.batch, g.count)))
            where.append(batched(s, base + np.arange(g.count)))
            base += g.count
    if not tables:
        return {}
    row = torch.cat(where, 1)
    row = row if t.origin is None else row.gather(1, t.origin)
    return {"q": (torch.cat(tables, 1) if len(tables) > 1 else tables[0]).contiguous(), "law_row": row.to(torch.int32)}


def named(s: Any, t: DeviceTree, name: str, op: Any) -> Tensor:
    """float64[B, N]: a column that a rule reads of its draws."""
    b = s.frame.batch
    if t.origin is not None:
        raise NotCapturable(f"the {name} of data-dependent draws, in a rule", op)
    if name == "prob":
        return torch.cat([s.constant(np.ones((b, 1))), probs(s, t)], 1)
    if name == "point":
        flags = np.concatenate([[1.0], *[np.full(g.count, float(g.draws.point)) for g in t.growths]])
        out: Tensor = s.constant(np.broadcast_to(flags, (b, t.size)))
        return out
    if all(g.draws.race is not None for g in t.growths):
        return torch.cat([s.constant(np.zeros((b, 1))), *[g.draws.race for g in t.growths]], 1)
    raise NotCapturable(f"the {name} of draws, in a rule", op)


def counter(s: Any, keys: Any, x: Any, op: Any) -> Tensor:
    """int32[B]: an int that a rule captures, or a counter or the index of a captured noise."""
    if not isinstance(x, tuple):
        return number(s, keys[x]).to(torch.int32)
    key = keys[x[0]]
    return number(s, key.index if x[1] == "index" else key.counters[x[1]]).to(torch.int32)


def number(s: Any, v: Any) -> Tensor:
    """[B]: a number for each sequence."""
    if isinstance(v, DeviceDraws):
        return v.tokens
    if isinstance(v, Tensor):
        return v
    out: Tensor = s.constant(np.full(s.frame.batch, v))
    return out
