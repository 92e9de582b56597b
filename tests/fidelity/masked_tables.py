"""Masked programs on tables, as lab/recordings/canvases.py recorded their authors' code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fidelity.canvases import MASK, run
from fidelity.entry import Case, Columns, Entry, recorded
from fidelity.recorded_noise import Recorded

from lab.recordings.canvases import canvas, uniforms
from lab.recordings.masked_blocks import known
from lab.recordings.tables import untied

First = Callable[[Recorded, Mapping[str, Any]], int]
"""The cell of a draw's first lane, counted from the prompt's first token, of its key and a case."""


def in_block(key: Recorded, case: Mapping[str, Any]) -> int:
    """Lanes are cells of a block, and the outermost loop counts the blocks."""
    return len(case["prompt"]) + int(key.counters[0]) * int(case["block"])


def in_canvas(key: Recorded, case: Mapping[str, Any]) -> int:
    """Lanes are the canvas's cells."""
    return len(case["prompt"])


def as_computed(key: Recorded, case: Mapping[str, Any]) -> int:
    """Lanes are what the last call computed behind the prompt."""
    return max(key.computed[0], len(case["prompt"]))


def in_computed(key: Recorded, case: Mapping[str, Any]) -> int:
    """Lanes are what the last call computed; where that is everything, what is masked."""
    whole = key.computed[0] < len(case["prompt"])
    return key.cells.index(MASK) if whole else key.computed[0]


def in_turn() -> First:
    """Lanes are a block's, which begins at the first mask when the outermost loop takes its turn."""
    begun: dict[int, int] = {}

    def first(key: Recorded, case: Mapping[str, Any]) -> int:
        turn, *inner = key.counters
        if not inner:
            begun[turn] = key.cells.index(MASK)
        return begun[turn]

    return first


def filled(
    program: str,
    *names: str,
    cache: str | None = None,
    first: First = in_block,
    blocks: bool = False,
    externs: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    **more: Any,
) -> Entry:
    """An entry of a decoder that fills its canvas. names: the program's parameters that a case has, besides the length; blocks:
    its model is block-causal; externs: functions that a case's program calls."""

    def ours(case: Case, backend: str) -> Columns:
        def races(key: Recorded, n: int) -> Any:
            return uniforms(case["seed"], key.call, first(key, case) + key.lane[0], n)

        shaping = {name: case[name] for name in ("temperature", "top_k", "top_p") if case.get(name) is not None}
        drawn = {"noise": races, "shaping": shaping} if case["temperature"] else {}
        params = {name: case[name] for name in (*names, *({"eos"} & {*case}))}
        params |= {} if externs is None else {"externs": externs(case)}
        table = canvas(case["size"], case["seed"], ("block", case["block"]) if blocks else "full")
        found = run(program, table, case["prompt"], case["length"], backend, cache=cache, **drawn, **params)
        canvases = [[-1 if cell == MASK else cell for cell in call.cells] for call in found.calls]
        if blocks:
            return {"output": found.output, "canvases": [known(c) for c in canvases]}
        return {"output": found.output, "canvases": canvases, "computed": [call.computed for call in found.calls]}

    return recorded(program, ours, kind="masked", **more)


def guided(case: Case, backend: str) -> Columns:
    """Every second call is that behind masks."""

    def races(key: Recorded, n: int) -> Any:
        return uniforms(case["seed"], key.call, in_block(key, case) + key.lane[0], n)

    drawn = {"noise": races, "shaping": {"temperature": case["temperature"]}} if case["temperature"] else {}
    params = {name: case[name] for name in ("block", "steps", "scale")}
    table = canvas(case["size"], case["seed"])
    found = run("llada_guided", table, case["prompt"], case["length"], backend, **drawn, **params)
    asked = [[-1 if cell == MASK else cell for cell in call.cells] for call in found.calls]
    return {"output": found.output, "canvases": asked[::2]}


def fast_diffuser(case: Case, backend: str) -> Columns:
    """Blocks lie on a grid, so the canvas of a call ends where its block does."""
    begin, block = len(case["prompt"]), case["block"]

    def races(key: Recorded, n: int) -> Any:
        return uniforms(case["seed"], key.call, max(begin, len(key.cells) - block) + key.lane[0], n)

    drawn = {"noise": races, "shaping": {"temperature": case["temperature"]}} if case["temperature"] else {}
    table, length = canvas(case["size"], case["seed"]), case["blocks"] * block + begin // block * block - begin
    found = run("fast_diffuser", table, case["prompt"], length, backend, block=block, tau=case["tau"], **drawn)
    canvases = [[-1 if cell == MASK else cell for cell in call.cells] for call in found.calls]
    return {"output": found.output, "canvases": canvases}


def pangu_block(case: Case, backend: str) -> Columns:
    """Both ways of reading the model; its calls are those about masks. A recorded text ends at its end token."""
    table, other = canvas(case["size"], case["seed"]), untied(case["size"], case["seed"], window=None)
    params = {name: case[name] for name in ("block", "small", "tau", "entropies")}
    length, ends = case["blocks"] * case["block"], {"eos": case["eos"]} if case["eos"] else {}
    found = run("pangu_block", table, case["prompt"], length, backend, others={"target": other}, **ends, **params)
    calls = [[-1 if cell == MASK else cell for cell in call.cells] for call in found.calls]
    return {"output": [*case["prompt"], *found.result.tokens], "canvases": [cells for cells in calls if -1 in cells]}


def frequencies(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """How often a token occurs, as the recording has it."""
    size = case["size"]
    return {"frequency": lambda token: 2 * (token + 1) / (size * (size + 1))}


ORDER = "upstream cuts by top_p before top_k, a request here by top_k first (generation_utils/dream_generation_utils.py:65)"
ENTRIES = [
    recorded("fast_diffuser", fast_diffuser, kind="masked"),
    recorded("pangu_block", pangu_block, kind="masked"),
    filled("fast_dllm_plusplus", "block", "margin"),
    filled("fast_dllm_prefix", "block", "tau"),
    filled("fast_dllm_factor", "block", "factor"),
    recorded("llada_guided", guided, kind="masked"),
    filled("fast_dllm_dream", "block", "tau"),
    filled("fast_dllm_dream_quota", "steps", "tau", first=in_canvas),
    filled("adablock_dream", "block", "tau", "trust", first=in_computed),
    filled(
        "dkv_prefill",
        "steps",
        "alg",
        first=in_canvas,
        differs={("12 1.0 4 0.9", column): ORDER for column in ("output", "canvases")},
    ),
    filled("sdar", "block", "steps", "tau", "order", first=as_computed, blocks=True),
    filled("fast_dllm_v2", "block", "small", "tau", "hold", first=as_computed, blocks=True),
    filled("fast_dllm", "block", "tau"),
    filled("fast_dllm_uncached", "block", "tau"),
    filled("adablock", "block", "tau", "marks", "trust", first=in_turn()),
    filled("dparallel", "block", "tau"),
    filled("d3llm", "block", "tau", "add", first=in_canvas),
    filled("prophet", "block", "steps", "answer", "early", "middle", "late", "suffix", "place", first=in_canvas),
    filled("saber", "block", "n", first=in_canvas),
    filled("eoser", "block", "steps", "least", "most"),
    filled("eoser_ass", "steps", "groups", "least", "most", first=in_canvas),
    filled("slow_fast", "block", "explore", "far", "window", "calm", "tau", first=in_canvas),
    filled("dinfer_hierarchy", "block", "tau", "low"),
    filled("credit_decoding", "block", "tau", "alpha", "gamma", "beta"),
    filled("eb_sampler", "gamma", first=in_canvas),
    filled("pc_sampler", "block", "steps", "lam", "alpha", externs=frequencies),
    filled("remdm_loop", "k", "start", "rounds", first=in_canvas),
]
