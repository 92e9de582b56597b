"""Decoders that stdlib does not have and the language says: the programs are in programs/."""

from __future__ import annotations

from typing import Any

from fidelity import models
from fidelity.causal_trees import beside, ranks
from fidelity.columns import chain_paths
from fidelity.entry import FOLDER, Case, Entry, Outcome

LATE = "drafts that reach into the last place or past it are left out: decgraph makes none"


def text(name: str) -> str:
    """A program of programs/."""
    return (FOLDER / "programs" / f"{name}.dec").read_text(encoding="utf-8")


def eagle1(case: Case, backend: str) -> Outcome:
    both = {"target": models.causal("target"), "head": models.features("heads/checkpoints/eagle1")}
    prompt = [*case["prompt"], case["calls"][1]["fed"][0]]  # the recorded prefill gives the first token
    return beside(case, backend, "", both, prompt=prompt, text=text("eagle1"), shape=ranks(case["tree_parents"]))


def hydra(case: Case, backend: str) -> Outcome:
    both = {"target": models.causal("target"), "head": models.features("heads/checkpoints/hydra")}
    prompt = [*case["prompt"], case["calls"][1]["fed"][0]]
    return beside(case, backend, "", both, prompt=prompt, text=text("eagle1"), shape=ranks(case["tree_parents"]))


def redrafter(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    both = {"target": models.causal("target"), "head": models.features(f"heads/checkpoints/{p['drafter']}")}
    prompt = [*case["prompt"], case["calls"][1]["fed"][0]]
    beams = {"width": p["beam_width"], "length": p["beam_length"]}
    return beside(case, backend, "", both, prompt=prompt, text=text("redrafter"), **beams)


def dflash(case: Case, backend: str) -> Outcome:
    block = case["parameters"]["block_size"]
    both = {"target": models.causal("target"), "head": models.denoising(block)}
    prompt = [*case["prompt"], case["calls"][1]["fed"][0]]
    trees = [{**c, "paths": chain_paths(c["fed"][1:])} for c in case["calls"][1:]]
    return beside(case, backend, "", both, prompt=prompt, trees=trees, text=text("dflash"), block=block)


def mtp(case: Case, backend: str) -> Outcome:
    both = {"target": models.causal("target"), "head": models.mtp()}
    prompt = [*case["prompt"], *case["calls"][0]["committed"]]
    block = case["parameters"]["num_mtp_layers"] + 1
    return beside(case, backend, "", both, prompt=prompt, trees=case["calls"][1:], text=text("dflash"), block=block)


def written(file: str, name: str, replay: Any, **more: Any) -> Entry:
    """An entry whose program is in programs/."""
    return Entry(file, f"[{name}](../tests/fidelity/programs/{name}.dec)", replay, **more)


ENTRIES = [
    written("heads/eagle1", "eagle1", eagle1, triton=1),
    written("heads/hydra_greedy", "eagle1", hydra, note="EAGLE-1's loop with another head"),
    written(
        "heads/redrafter_greedy",
        "redrafter",
        redrafter,
        leaves_out={"4": "its head, without an RNN, is not among the checkpoints here"},
    ),
    written("heads/dflash", "dflash", dflash),
    written(
        "ar2/hf_mtp",
        "dflash",
        mtp,
        leaves_out=dict.fromkeys(("2", "4"), "several MTP layers, each for a depth of its own"),
        note="DFlash's loop, a chain, with another head",
    ),
]
