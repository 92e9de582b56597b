"""What stands between the large kernels of a step: noise keys, bits of trees, gathers of accepted paths, verifications."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.runtime import noise
from lab.gpu import attention, exact
from lab.gpu.clocks import launch_ms
from lab.gpu.lab import Lab
from lab.gpu.poison import poisoned
from lab.gpu.pool import Check, judged
from lab.gpu.report import Items, Row


def keys(lab: Lab, seed: int) -> str:
    """step/keys.py against runtime/noise.py: what differs, or nothing."""
    from decgraph.backends.triton.step.keys import int32_words, site_word, words_for

    made = np.random.default_rng(seed)
    batch, rows = 3, 70 if lab.cuda else 2
    requests = [int(n) for n in made.integers(0, 2**63, batch)]
    turns, counters = made.integers(0, 1000, batch), made.integers(-5, 2**31, (batch, rows, 2))
    lanes = made.integers(0, 99, (1, rows, 1))
    put = lambda a, t: torch.from_numpy(np.array(a)).to(dtype=t, device=lab.device)
    with poisoned():
        out = torch.empty((batch, rows, 3), dtype=torch.int32, device=lab.device)
    ids = torch.stack([torch.from_numpy(int32_words(r)) for r in requests]).to(lab.device)
    words_for(
        out,
        ids,
        put([site_word("f.dec:3")], torch.int64),
        put(turns, torch.int32),
        put(counters, torch.int64),
        put(lanes, torch.int64),
        iteration_at=0,
    )
    got = out.cpu().numpy().view(np.uint32)
    for b in range(batch):
        for r in range(rows):
            due = noise.Key(0, requests[b], "f.dec:3", (int(turns[b]), int(counters[b, r, 1])), (int(lanes[0, r, 0]),)).words()
            if tuple(got[b, r].tolist()) != due:
                return f"key of row {r} of sequence {b}: {got[b, r].tolist()}, not {due}"
    return ""


def words(lab: Lab, seed: int) -> str:
    """exact.py's words of noise, which draws are judged by, as the device computes them, against runtime/noise.py."""
    for key in (noise.Key(2**63 + seed, 2**40 + 1, "stdlib/speculative.dec:11", (7, 2), (3,)), noise.output_key(seed, 4, 31)):
        for n in (1, 3, 257, 128256):
            if (exact.words(key, n, lab.device).cpu().numpy() != noise.words(key, n).astype(np.int64)).any():
                return f"words of {key}"
    return ""


def trees(lab: Lab, seed: int) -> str:
    """attention/tree.py against sets of ancestors."""
    from decgraph.backends.triton.attention.tree import ancestors

    g = torch.Generator().manual_seed(seed)
    nodes, offset = (150, 9) if lab.cuda else (6, 2)
    parent = torch.stack(
        [
            torch.tensor([int(torch.randint(max(-1, n - 20), max(n, 1), (), generator=g)) if n else -1 for n in range(nodes)])
            for _ in range(2)
        ]
    )
    seen = torch.zeros((2, nodes, offset + nodes), dtype=torch.bool)
    seen[..., :offset] = True
    for b in range(2):
        for n in range(nodes):
            above = int(parent[b, n])
            if above >= 0:
                seen[b, n] |= seen[b, above]
            seen[b, n, offset + n] = True
    words = -(-(offset + nodes) // 32)
    with poisoned():
        out = ancestors(parent.to(lab.device), words, offset)
    return "" if torch.equal(out.cpu(), attention.as_bits(seen, words)) else "bits of a tree differ"


def moves(lab: Lab, seed: int) -> str:
    """attention/move.py against indexing; rows after the accepted ones may have any value."""
    from decgraph.backends.triton.attention.move import move

    g = torch.Generator().manual_seed(seed)
    caches = [torch.randn((2, 3, 60, 24), generator=g).to(lab.device, dtype) for dtype in (torch.bfloat16, torch.float32)]
    held, count = torch.tensor([7, 20], dtype=torch.int32), torch.tensor([5, 2], dtype=torch.int32)
    source = torch.stack([torch.randperm(25, generator=g)[:6].sort().values for _ in range(2)])
    due = [c.clone() for c in caches]
    for c in due:
        for b in range(2):
            n, k = int(held[b]), int(count[b])
            c[b, :, n : n + k] = c[b][:, (n + source[b, :k]).to(c.device)]
    move(caches, held.to(lab.device), source.to(lab.device), count.to(lab.device))
    for mine, right in zip(caches, due):
        for b in range(2):
            n = int(held[b] + count[b])
            if not torch.equal(mine[b, :, :n], right[b, :, :n]):
                return f"rows that were moved, {mine.dtype}"
    return ""


def walks(lab: Lab, seed: int) -> str:
    """`match` over random trees: every node draws the target's own token from the stream `output` and goes on with the first
    child that carries it."""
    size, nodes, depth = (128256 if lab.cuda else 40), (64 if lab.cuda else 6), 8
    rule, given, host = matching(lab, seed, size, nodes)
    with poisoned():
        walked = rule.on_device(given, depth=depth)
    for b, (parent, token, p, key) in enumerate(host):
        at, path = 0, list[int]()
        while True:
            times = noise.exponentials(noise.output_key(key[0], key[1], 11 + len(path)), size)
            drawn = noise.race(p[at], times)
            below = [n for n in range(1, nodes) if parent[n] == at and token[n] == drawn]
            if not below:
                break
            at = below[0]
            path.append(at)
        mine = walked.nodes[b, : len(path)].tolist(), int(walked.count[b]), int(walked.emitted[b]), int(walked.fault[b])
        if mine != (path, len(path), drawn, 0):
            return f"match went {mine}, not {(path, len(path), drawn, 0)}"
    return ""


def matching(lab: Lab, seed: int, size: int, nodes: int, batch: int = 2) -> tuple[Any, Any, list[Any]]:
    """The rule `match`, what it reads, and the same for the host. Trees follow the drawn tokens for a while."""
    from decgraph import stdlib
    from decgraph.backends.triton.rules.compile import rule_of
    from decgraph.backends.triton.rules.device import Given, seed_words, site_words
    from decgraph.dsl.lower import load_text
    from decgraph.passes.manager import optimise

    name = "token_recycling"
    module = optimise(load_text(stdlib.text(name), f"stdlib/{name}.dec"))[0]
    op = next(op for op in module.entry.body.walk() if op.opcode == "tree.walk")
    rule = rule_of(op, module.entry.body)
    made = np.random.default_rng(seed)
    ids, seeds = [int(n) for n in made.integers(0, 2**40, batch)], [int(n) for n in made.integers(0, 2**60, batch)]
    host = []
    for b in range(batch):
        parent = np.array([0] + [int(made.integers(max(0, n - 6), n)) for n in range(1, nodes)])
        p = made.dirichlet(np.full(size, 0.02), nodes) if size < 1000 else made.random((nodes, size)) ** 40
        p = (p / p.sum(-1, keepdims=True)).astype(np.float64)
        token, above = made.integers(0, size, nodes), np.zeros(nodes, np.int64)
        for n in range(1, nodes):
            above[n] = above[parent[n]] + 1
            if made.random() < 0.6:  # what will be drawn above it
                times = noise.exponentials(noise.output_key(seeds[b], ids[b], 10 + int(above[n])), size)
                token[n] = noise.race(p[parent[n]], times)
        host.append((parent, token, p, (seeds[b], ids[b])))
    put = lambda i, t: torch.from_numpy(np.stack([h[i] for h in host])).to(lab.device, t)
    given = Given(
        token=put(1, torch.int64),
        parent=put(0, torch.int64),
        p=put(2, torch.float64),
        position=torch.full((batch,), 11, dtype=torch.int64, device=lab.device),
        seeds=seed_words(seeds, lab.device),
        words=site_words(ids, rule.sites, lab.device),
    )
    return rule, given, host


CHECKS = {"noise keys": keys, "words of draws": words, "bits of trees": trees, "gather of a path": moves, "match": walks}


def checked(lab: Lab, task: tuple[str, int]) -> list[Check]:
    """One of the checks with a seed. Raises ValueError with what it found wrong."""
    if found := CHECKS[task[0]](lab, task[1]):
        raise ValueError(found)
    return [(task[0], 0.0, 0.0)]


def checks(lab: Lab) -> Row:
    """All of them with several seeds."""
    return judged(lab, checked, [(name, seed) for name in CHECKS for seed in range(4 if lab.cuda else 1)])


def stage(lab: Lab) -> Items:
    """Timings, for the stage `timings`."""
    yield "match over 64 nodes", partial(timed_match, lab)
    yield "gather in 64 caches", partial(timed_move, lab)


def timed_match(lab: Lab) -> Row:
    """Microseconds of a verification of a tree of 64 nodes, rows of a large vocabulary."""
    size, nodes = (128256, 65) if lab.sizes.name != "tiny" else (40, 6)
    rule, given, _ = matching(lab, 1, size, nodes, 1)
    took = launch_ms(lab, [lambda: rule.on_device(given, depth=8)])
    return {"ms": took.to_json(), "says": f"{1000 * took.median:.0f} us"}


def timed_move(lab: Lab) -> Row:
    """Microseconds of the gather of five cells in every layer's keys and values of an 8B model."""
    from decgraph.backends.triton.attention.move import Mover

    layers, shape = (64, (1, 8, 1100, 128)) if lab.sizes.name != "tiny" else (2, (1, 2, 40, 16))
    caches: list[Tensor] = [torch.randn(shape, device=lab.device).to(torch.bfloat16) for _ in range(layers)]
    mover = Mover(caches)
    put = lambda a, t: torch.tensor(a, dtype=t, device=lab.device)
    held, source, count = put([20], torch.int32), put([[1, 3, 4, 8, 9]], torch.int64), put([5], torch.int32)
    took = launch_ms(lab, [lambda: mover(held, source, count)])
    return {"ms": took.to_json(), "launches": mover.launches, "says": f"{1000 * took.median:.0f} us"}
