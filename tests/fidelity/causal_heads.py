"""Drafting heads other than Medusa's and EAGLE-2's, and tokens behind the text at which the target itself guesses. The recorded
prefills give the first token, as the programs' first lines do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from fidelity import models
from fidelity.causal_trees import beside, ranks
from fidelity.columns import chain_paths, compared, stands
from fidelity.entry import Case, Columns, Entry, Outcome, recorded
from fidelity.given_noise import given
from fidelity.watched import Path, run

from lab.recordings.heads import Rounds


def heads(folder: str) -> dict[str, Any]:
    """The target and a head on its features."""
    return {"target": models.causal("target"), "head": models.features(f"heads/checkpoints/{folder}")}


def eagle1(case: Case, backend: str) -> Outcome:
    return beside(case, backend, "eagle1", heads("eagle1"), before=1, shape=ranks(case["tree_parents"]))


def hydra(case: Case, backend: str) -> Outcome:
    shape = ranks(case["tree_parents"])
    return beside(case, backend, "hydra", heads("hydra"), before=1, shape=shape, temperature=case["parameters"]["temperature"])


def redrafter(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    both = heads(p["drafter"])
    return beside(case, backend, "redrafter", both, before=1, width=p["beam_width"], length=p["beam_length"])


def dflash(case: Case, backend: str) -> Outcome:
    block = case["parameters"]["block_size"]
    both = {"target": models.causal("target"), "head": models.denoising(block)}
    trees = [{**c, "paths": chain_paths(c["fed"][1:])} for c in case["calls"][1:]]
    return beside(case, backend, "dflash", both, before=1, trees=trees, block=block)


def mtp(case: Case, backend: str) -> Outcome:
    both = {"target": models.causal("target"), "head": models.mtp(case["parameters"]["num_mtp_layers"])}
    trees = case["calls"][1:]
    found = beside(case, backend, "mtp", both, before=1, trees=trees, gamma=case["parameters"]["num_mtp_layers"])
    *calls, last = found.ours["accepted"]  # of its last drafts the recording accepts as many as the limit leaves room for
    room = len(case["output"]) - stands(case, trees[-1]) - 1
    return Outcome(found.recorded, {**found.ours, "accepted": [*calls, min(last, room)]})


def groups(fed: list[int], masks: int) -> set[Path]:
    """SPACE's drafts: a chain of candidates behind the last token, and a group of masks behind each."""
    rows = [fed[i : i + masks + 1] for i in range(0, len(fed), masks + 1)]
    chains = ([*(row[0] for row in rows[1 : n + 1]), *rows[n][1:]] for n in range(len(rows)))
    return {path for chain in chains for path in chain_paths(chain)}


def space(case: Case, backend: str) -> Outcome:
    p, start = case["parameters"], len(case["prompt"])
    many = p["MASK_NUM"]
    fed = [case["calls"][0]["fed"][start - 1 :], *(c["fed"] for c in case["calls"][1:])]
    lengths = case["accept_length_list"]
    calls = [{**c, "paths": groups(f, many), "accepted": n - 1} for c, f, n in zip(case["calls"], fed, lengths, strict=True)]
    bound = {"target": models.causal("target")}
    done = run("space", case["prompt"], bound, backend, max_tokens=p["max_new_tokens"], mask=3, gamma=many)
    return compared(case, done, calls=calls)


def drafts(*parts: str, **names: str) -> Callable[[Case, str], Columns]:
    """A program on the target and a head's folder, whose other parts are given the same folder. names: its parameters, by those
    of the case. Calls are those behind which there is room for a whole block."""

    def ours(case: Case, backend: str) -> Columns:
        program, at = case["program"], models.folder(f"heads/checkpoints/{case['folder']}")
        bound = {"target": models.folder("target"), **dict.fromkeys(("head", *parts), at)}
        params, noise = {ours: case[theirs] for ours, theirs in names.items()}, Rounds(case["seed"])
        assert "eta" in params or not case.get("eta"), "a threshold is looked at"
        with given(noise) if case["temperature"] else nullcontext():
            done = run(program, case["prompt"], bound, backend, max_tokens=case["limit"] + 16,
                       temperature=case["temperature"], eos=case["eos"], **params)  # fmt: skip
        end, start = len(case["prompt"]) + case["limit"], len(case["prompt"])
        calls = [done.calls[0], *(c for c in done.calls[1:] if c.past + case["block"] + 1 <= end)]
        kept = [min(c.accepted, len(done.tokens) - c.past) for c in calls]  # behind an end nothing counts
        found = [sorted(map(list, c.drafted), key=len) for c in calls]
        return {"tokens": done.tokens[: start + sum(kept) + len(kept)], "drafted": found, "accepted": kept}

    return ours


ENTRIES = [
    Entry("heads/eagle1", "eagle1", eagle1, triton=1),
    Entry("heads/hydra_greedy", "hydra", hydra),
    Entry(
        "heads/redrafter_greedy",
        "redrafter",
        redrafter,
        leaves_out={
            "4": "its head, without an RNN (recurrent_drafting/modeling_drafter.py:195), is not among the checkpoints here"
        },
    ),
    Entry("heads/dflash", "dflash", dflash),
    Entry(
        "ar2/hf_mtp",
        "mtp",
        mtp,
    ),
    Entry("ar/space", "space", space),
    recorded("dflash2", drafts("selector", block="block", k="k"), triton=3),
    recorded("domino", drafts("correction", block="block", pure="pure"), triton=3),
    recorded("dspark", drafts("markov", block="block"), triton=1),
    recorded("dspark_confident", drafts("markov", "sure", block="block", eta="eta"), triton=1),
    recorded("dspark_rnn", drafts("markov", block="block"), triton=3),
]
