"""Trees of drafts: Medusa, EAGLE-2, Token Recycling, drafters' trees. The recorded loops overshoot their limit, so ours runs
with room to spare and what both have is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fidelity import models
from fidelity.columns import chain_paths, compared, cut, tree_paths
from fidelity.entry import Case, Entry, Outcome
from fidelity.watched import Path, run

ROOM = 24


def ranks(parents: Sequence[int]) -> list[list[int]]:
    """The shape of a recorded tree: the path of child ranks of every node but the root."""
    paths: list[list[int]] = [[]]
    for node, parent in enumerate(parents[1:], 1):
        paths.append([*paths[parent], sum(p == parent for p in parents[1:node])])
    return paths[1:]


def beside(
    case: Case,
    backend: str,
    program: str,
    bound: Mapping[str, Any],
    *,
    prompt: Sequence[int] | None = None,
    before: int = 0,
    trees: Sequence[dict[str, Any]] | None = None,
    **params: Any,
) -> Outcome:
    """A program run past the recorded end, and as many of its calls as were recorded. before: calls of ours before the first
    recorded tree."""
    trees = [c for c in case["calls"] if not c.get("prefill")] if trees is None else trees
    prompt = case["prompt"] if prompt is None else prompt
    done = run(program, prompt, bound, backend, max_tokens=len(case["output"]) - len(prompt) + ROOM, **params)
    cut(done, case, trees[-1])
    return compared(case, done, calls=trees, target=before + len(trees), skip=before, length=len(case["output"]))


def medusa(case: Case, backend: str, heads: str, typical: bool = False) -> Outcome:
    p = case["parameters"]
    rule = {"temperature": p["temperature"]}
    if typical:
        rule |= {"epsilon": p["posterior_threshold"], "delta": p["posterior_alpha"]}
    shape = ranks(case["tree_parents"])
    return beside(case, backend, "medusa", {"target": models.medusa(heads)}, before=1, shape=shape, **rule)


def eagle2(case: Case, backend: str, head: str, target: str = "target") -> Outcome:
    p = case["parameters"]
    both = {"target": models.causal(target), "head": models.features(head, target)}
    return beside(case, backend, "eagle2", both, before=1, depth=p["depth"] + 1, k=p["top_k"], budget=p["total_token"] - 1)


def recycling(case: Case, backend: str) -> Outcome:
    bound = {"target": models.causal("target")}
    return beside(case, backend, "token_recycling", bound, shape=ranks(case["tree_parents"]))


def level_tree(call: dict[str, Any], config: Sequence[int]) -> set[Path]:
    """MCSD's drafts: level by level, parents first; or a row for each path."""
    fed = call["fed"]
    if isinstance(fed[0], list):
        return {p for row in fed for p in chain_paths(row[-len(config) :])}
    parents, first, width = [-1], 0, 1
    for k in config:
        parents += [first + i // k for i in range(width * k)]
        first, width = first + width, width * k
    return tree_paths([0, *fed[1 - len(parents) :]], parents)


def sequoia(case: Case, backend: str) -> Outcome:
    both = {"target": models.causal("target"), "drafter": models.causal("drafter")}
    trees = [{**c, "paths": tree_paths(c["tree_tokens"], case["tree_parents"])} for c in case["calls"]]
    return beside(case, backend, "sequoia", both, trees=trees, shape=ranks(case["tree_parents"]))


ENTRIES = [
    Entry("ar/medusa_greedy", "medusa", partial(medusa, heads="medusa_heads")),
    Entry("ar/medusa_typical", "medusa", partial(medusa, heads="medusa_heads", typical=True), triton=1),
    Entry("heads/medusa_greedy", "medusa", partial(medusa, heads="heads/checkpoints/medusa")),
    Entry(
        "ar/eagle2",
        "eagle2",
        partial(eagle2, head="eagle_head"),
        triton=1,
        note="total_token counts the root, depth the levels after the first",
    ),
    Entry("heads/eagle2", "eagle2", partial(eagle2, head="heads/checkpoints/eagle1")),
    Entry(
        "heads/eagle3",
        "eagle2",
        partial(eagle2, head="heads/checkpoints/eagle3", target="heads/checkpoints/target8"),
        note="EAGLE-3's decoding loop is EAGLE-2's: what is new is the head",
    ),
    Entry("ar/token_recycling", "token_recycling", recycling),
    Entry("ar2/sequoia_greedy", "sequoia", sequoia, triton=1),
]
