"""A small model drafts: transformers' assisted generation with its schedules, SpecDec++, MCSD, OPT-Tree."""

from __future__ import annotations

from fidelity import models
from fidelity.causal_trees import beside, level_tree
from fidelity.columns import compared, stands
from fidelity.entry import Case, Entry, Outcome, recording
from fidelity.watched import run

LATE = "drafts that reach into the last place or past it are left out: decgraph makes none"


def assisted(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    both = {"target": models.causal("target"), "drafter": models.causal("drafter")}
    done = run(
        "assisted",
        case["prompt"],
        both,
        backend,
        max_tokens=p["max_new_tokens"],
        gamma=p["num_assistant_tokens"],
        confidence=p["assistant_confidence_threshold"],
        schedule=p["num_assistant_tokens_schedule"] != "constant",  # a transient one is the same in a run of its own
    )
    return compared(case, done, drafter=case["drafter_forwards"])


def specdecpp(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    least, most = p["bound"]
    both = {"target": models.causal("target"), "drafter": models.acceptance()}
    done = run(
        "specdec_pp",
        case["prompt"],
        both,
        backend,
        max_tokens=p["max_new_tokens"],
        least=least,
        most=most,
        risk=p["stop_threshold"],
    )
    end = len(case["prompt"]) + p["max_new_tokens"]
    behind = sum(max(0, stands(case, c) + len(c["proposed"]) + 1 - end) for c in case["calls"])
    return compared(case, done, drafter=case["drafter_forwards"] - behind, end=end)


def mcsd(case: Case, backend: str) -> Outcome:
    config = case["parameters"]["k_config"]
    both = {"target": models.causal("target"), "drafter": models.causal("drafter")}
    trees = [{**c, "paths": level_tree(c, config)} for c in case["calls"]]
    shape = "x".join(map(str, config))
    return beside(case, backend, "mcsd", both, trees=trees, shape=shape, replace=False, eta=0.0)


def opt_tree(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    both = {"target": models.causal("target"), "drafter": models.causal("drafter")}
    prompt = [*case["prompt"], case["calls"][1]["fed"][0]]  # the recorded prefill gives the first token
    more = {"budget": p["nodes"], "depth": p["max_depth"] - 1, "delta": p["threshold"]}
    return beside(case, backend, "opt_tree", both, prompt=prompt, **more)


def cascade(case: Case, backend: str) -> Outcome:
    """The statistical model's pairs of tokens are of the file; a single row without a drafter is that model alone."""
    wanted, size = case["parameters"]["k_matrix"][0], len(case["output"])
    done = run(
        "cs_drafting",
        case["prompt"],
        {"target": models.causal("target"), "drafter": models.causal("drafter")},
        backend,
        max_tokens=2 * size,
        settings={"until": (lambda path: len(path) >= size,)},
        near=wanted[0] if len(wanted) > 1 else 0,
        far=wanted[-1],
        leniency=case["parameters"]["leniency"],
        pairs=recording("ar2/cs_drafting")["bigram"],
    )
    return compared(case, done, drafter=case["drafter_forwards"])


ENTRIES = [
    Entry("ar/hf_assisted_schedules", "assisted", assisted, triton=1),
    Entry("ar/specdecpp", "specdec_pp", specdecpp, triton=1, note=LATE),
    Entry(
        "ar/mcsd_greedy",
        "mcsd",
        mcsd,
        triton=1,
        note="both models greedy: the drafter's likeliest tokens are its draws; the code has no early stop",
    ),
    Entry(
        "ar/opt_tree",
        "opt_tree",
        opt_tree,
        differs={
            (
                "0",
                "drafted",
            ): "in the last call the recorded tree keeps a node of probability 0.0432 and leaves out one of 0.0435, "
            "so it is not the best one; ours is: a level's mask keeps the parents of "
            "earlier levels (opt_classic/tree.py:45)"
        },
        note="max_depth counts the root",
    ),
    Entry(
        "ar2/cs_drafting",
        "cs_drafting",
        cascade,
        triton=1,
    ),
]
