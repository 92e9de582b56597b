"""Runs of a result file, written down by hand: what renderers and plots are tested on."""

from __future__ import annotations

from typing import Any


def ratio(value: float, low: float, high: float) -> dict[str, Any]:
    """A ratio by both clocks; the processor's is a tenth less."""
    spread = {"median": value, "low": low, "high": high}
    wall = {"value": value, "low": low, "high": high, "n": 8, "quartiles": spread}
    cpu = {"value": value - 0.1, "low": low - 0.1, "high": high - 0.1, "n": 8, "quartiles": spread}
    return {"wall": wall, "cpu": cpu}


def row(
    algorithm: str, side: str, kind: str, per_call: float, speed: float, ratios: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """A row without the figures that no table shows."""
    return {"algorithm": algorithm, "side": side, "kind": kind, "prompts": 2, "timed": 4, "tokens": 100, "calls": 40,
            "tokens_per_call": per_call, "tokens_per_second": speed, "ratios": ratios, **more}  # fmt: skip


def run_of_two(kinds: tuple[str, ...] = ("code",), **more: Any) -> dict[str, Any]:
    """Two methods on prompts of some kinds. The second's ratio is 2 on the first kind and grows by 1 with each further one."""
    names = ["all", *kinds] if len(kinds) > 1 else list(kinds)
    rows = [row("transformers generate", "transformers", kind, 1.0, 60.0, {}) for kind in names]
    for n, kind in enumerate(names):
        found = {"transformers generate": ratio(2.0 + n, 1.5 + n, 2.5 + n)}
        rows.append(
            row(
                "speculative",
                "decgraph",
                kind,
                2.5 + n,
                120.0 + n,
                found,
                claims_equality=True,
                acceptance={"tested": [40, 20, 0], "accepted": [20, 15, 0]},
                draft_calls_per_call=4.0,
                time={"target": 0.5, "draft": 0.3, "outside": 0.2},
                tokens_equal={"same": 3, "near_ties": 1, "different": 0},
            )  # fmt: skip
        )
    return {
        "models": {"name": "tiny", "target": 5000, "dtype": "float32", "device": "cpu", "eos": [], "folders": {}},
        "settings": {"limit": 16, "rounds": 2, "batch": 1, "temperature": 0.0, "seed": 7},
        "prompts": {"kinds": dict.fromkeys(kinds, 2), "tokens": {"least": 5, "median": 6, "most": 9},
                    "source": "p_1.jsonl", "sha256": "ab" * 32, "chat": False},
        "contenders": {"transformers generate": {}, "speculative": {"sha256": "cd" * 32}},
        "rows": rows, "failed": {}, "interrupted": False, "times": {"groups": [[0, 0], [1, 0]]}, "load": 0.5,
        "digests": {"target": {"model.safetensors": "ef" * 32, "config.json": "01" * 32}}, **more,
    }  # fmt: skip


def document(*runs: dict[str, Any]) -> dict[str, Any]:
    """A result file with these runs."""
    machine = {"processor": "Abacus_2 & Co", "cores": 2, "threads": 1, "load": 0.25, "python": "3.11.7",
               "versions": {"torch": "2.13.0"}}  # fmt: skip
    return {
        "version": 2,
        "command": "decgraph bench speculative",
        "started": "2026-11-22T10:00:00",
        "machine": machine,
        "runs": list(runs),
    }
