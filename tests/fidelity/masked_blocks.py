"""Canvases decided block after block, or all at once: LLaDA, Dream, Fast-dLLM with and without its caches, Prophet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fidelity.canvases import compared, run
from fidelity.entry import Case, Entry, Outcome

Replay = Callable[[Case, str], Outcome]
FACTOR_BUG = (
    "upstream is off by one where all ranks but the last pass: it decides the last as well (llada/generate_baseline.py:374)"
)


def replay(
    program: str,
    model: str,
    named: Mapping[str, str],
    cache: str | None = None,
    repeats: bool = True,
    also: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda p: {},
) -> Replay:
    """A program with the recording's parameters under our names (`named`: official name to ours; also: what else canvases.run
    takes, from the official ones)."""

    def go(case: Case, backend: str) -> Outcome:
        p = case["parameters"]
        length = next(p[name] for name in ("gen_length", "max_gen_length", "max_new_tokens") if name in p)
        params = {**{ours: p[theirs] for theirs, ours in named.items() if theirs in p}, **also(p)}
        return compared(
            case, [run(program, model, row, length, backend, cache=cache, **params) for row in case["prompt"]], repeats=repeats
        )

    return go


def fast(cache: str | None) -> Replay:
    """Fast-dLLM: a quota a call (LLaDA's schedule), a threshold or a factor, under one of its caches."""
    block = {"block_length": "block"}

    def go(case: Case, backend: str) -> Outcome:
        p = case["parameters"]
        if "threshold" in p:
            which: tuple[str, dict[str, Any]] = "fast_dllm" if cache else "fast_dllm_uncached", {"threshold": "tau"}
        elif "factor" in p:
            which = "fast_dllm_factor", {"factor": "factor"}
            return replay(which[0], "llama_bidir", block | which[1], cache or "none")(case, backend)
        else:
            which = "llada", {"steps": "steps"}
        return replay(which[0], "llama_bidir", block | which[1], cache)(case, backend)

    return go


def needs(p: Mapping[str, Any]) -> Mapping[str, Any]:
    """How sure Prophet must be, early and late; and the tokens that it finds on the canvas, side by side."""
    need, pinned = p["early_exit_thresholds"], {int(i): t for i, t in p.get("constraints", {}).items()}
    place = min(pinned, default=0)
    assert sorted(pinned) == list(range(place, place + len(pinned)))
    on_canvas = {"suffix": [pinned[i] for i in sorted(pinned)], "place": place} if pinned else {}
    return {"early": need["early"], "middle": need["mid"], "late": need["late"], **on_canvas}


LLADA = {"block_length": "block", "steps": "steps"}
DREAM = {"steps": "steps", "eps": "eps"}
BUG = {("factor1_upstream_bug", c): FACTOR_BUG for c in ("output", "forwards", "decided", "cells computed", "tokens evaluated")}

ENTRIES = [
    Entry(
        "dllm/prophet",
        "prophet",
        replay("prophet", "llama_bidir", LLADA | {"answer_start_offset": "answer"}, also=needs),
        "masked",
        triton=1,
    ),
    Entry("dllm/llada_low_confidence", "llada", replay("llada", "llama_bidir", LLADA), "masked", triton=1),
    Entry("dllm/dream_entropy", "dream", replay("dream", "qwen2_bidir_shift", DREAM), "masked", triton=1),
    Entry(
        "dllm/dream_maskgit_plus",
        "dream_confidence",
        replay("dream_confidence", "qwen2_bidir_shift", DREAM),
        "masked",
        triton=1,
    ),
    Entry("dllm/dream_topk_margin", "dream_margin", replay("dream_margin", "qwen2_bidir_shift", DREAM), "masked", triton=1),
    *(
        Entry(
            f"dllm/fast_dllm_v1_{kind}",
            f"fast_dllm and llada, cache {kind}",
            fast(None if kind == "none" else kind),
            "masked",
            triton=1,
            differs=BUG,
        )
        for kind in ("none", "prefix", "dual")
    ),
    *(
        Entry(
            f"dllm/fast_dllm_v1_nvlabs_{kind}",
            f"fast_dllm and llada, cache {kind}",
            fast(None if kind == "none" else kind),
            "masked",
            triton=1,
        )
        for kind in ("none", "prefix", "dual")
    ),
    Entry(
        "dllm/dinfer_threshold",
        "fast_dllm_uncached",
        replay("fast_dllm_uncached", "llama_bidir", {"block_length": "block", "threshold": "tau"}),
        "masked",
        triton=1,
        note="dInfer's threshold decoder decides what fast_dllm_uncached does",
    ),
    *(
        Entry(
            f"dllm/freedave_static_{kind}",
            f"static_masked, cache {kind}",
            replay("static_masked", "llama_bidir", {"block_length": "block"}, kind),
            "masked",
            triton=1,
        )
        for kind in ("prefix", "dual")
    ),
    *(
        Entry(
            f"dllm/freedave_{kind}",
            f"freedave, cache {kind}",
            replay("freedave", "llama_bidir", {"block_length": "block", "draft_steps": "d"}, kind, repeats=False),
            "masked",
            triton=1,
        )
        for kind in ("prefix", "dual")
    ),
]
