"""Decoders that stdlib does not have and the language says: the programs are in programs/."""

from __future__ import annotations

from typing import Any

from fidelity import models
from fidelity.causal_trees import beside, ranks
from fidelity.columns import chain_paths, compared, cut, stands
from fidelity.entry import FOLDER, Case, Entry, Outcome
from fidelity.watched import run

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


def halves(case: Case) -> dict[str, list[int]]:
    """The sublayers that a drafter skips."""
    p = case["parameters"]
    return {"attention": p["skip_attention_layers"], "mlp": p["skip_mlp_layers"]}


def draft_and_verify(case: Case, backend: str) -> Outcome:
    p, calls = case["parameters"], case["calls"][1:]
    prompt = [*case["prompt"], calls[0]["fed"][0]]
    end = len(case["prompt"]) + p["max_new_tokens"]
    done = run(
        "",
        prompt,
        {"target": models.causal("target")},
        backend,
        text=text("self_speculative"),
        limit=p["max_new_tokens"] - 1,
        gamma=p["max_step_draft"],
        eta=p["th_stop_draft"],
        adapts=p["auto_th_stop_draft"],
        **halves(case),
    )
    assert case["drafter_forwards"] == sum(len(c["proposed"]) for c in calls)
    drafts = sum(min(len(c["proposed"]), end - stands(case, c) - 1) for c in calls)  # ours drafts nothing into the last place
    return compared(case, done, calls=calls, target=len(calls), end=end, drafter=drafts)


def swift(case: Case, backend: str) -> Outcome:
    calls = case["calls"][1:]
    prompt = [*case["prompt"], calls[0]["fed"][0]]
    done = run(
        "",
        prompt,
        {"target": models.causal("target")},
        backend,
        text=text("swift"),
        limit=len(case["output"]) - len(prompt) + 40,
        **halves(case),
    )
    cut(done, case, calls[-1])
    return compared(case, done, calls=calls, target=len(calls), length=len(case["output"]))


def written(file: str, name: str, replay: Any, **more: Any) -> Entry:
    """An entry whose program is in programs/."""
    return Entry(file, f"[{name}](../tests/fidelity/programs/{name}.dec)", replay, **more)


ENTRIES = [
    written("ar/self_speculative", "self_speculative", draft_and_verify, note=LATE),
    written("ar/swift_fixed_layers", "swift", swift, triton=1),
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
