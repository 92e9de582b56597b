"""DiffusionGemma's sampler on its recorded scores: the model, with an encoder and self-conditioning, is not one of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from fidelity.canvases import run
from fidelity.entry import GOLDEN, Case, Entry, Outcome
from fidelity.recorded_noise import Recorded
from safetensors.numpy import load_file

from decgraph.runtime.models.interface import Cell, Memory, Model, Scores, Vocab

VOCAB, CANVAS = 96, 12


class OfScores(Model):
    """The recorded scores of one row, found by the canvas that they were computed for; another canvas is an error."""

    def __init__(self, prompt: int, scores: dict[tuple[int, ...], np.ndarray]) -> None:
        self.kind, self.name, self.family, self.vocab = "masked", "recorded", "recorded", Vocab("recorded", VOCAB)
        self.visibility, self.layers, self.prompt, self.scores = "full", 1, prompt, scores

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], memory: Memory | None = None) -> list[Scores]:
        """The rows of the last canvas."""
        begin = len(cells) - CANVAS
        found = self.scores[tuple(c for c in cells[begin:] if isinstance(c, int))]
        return [Scores(logits=found[i - begin].astype(np.float64)) for i in at]


def entropy_renoise(case: Case, backend: str) -> Outcome:
    """Every row alone, up to where it ended; what upstream's rows do while they wait for others changes nothing of theirs."""
    p, made = case["parameters"], []
    scores = load_file(GOLDEN / "dllm/diffusion_gemma_logits.safetensors")[case["id"]]
    for row, prompt in enumerate(case["prompt"]):
        steps = own_steps(case, row)
        table = {tuple(s["canvas_in"][row]): scores[n][row] for n, s in steps}
        done = run(
            "entropy_renoise",
            OfScores(len(prompt), table),
            prompt,
            p["max_new_tokens"],
            backend,
            shaping={"temperature": 1},
            noise=Draws([s for _, s in steps], row),
            eos=p["eos_token_id"],
            block=CANVAS,
            steps=p["max_denoising_steps"],
            bound=p["entropy_bound"],
            cold=p["t_min"],
            hot=p["t_max"],
            calm=p["stability_threshold"],
            sure_=p["confidence_threshold"],
        )
        asked = [c.cells[-CANVAS:] for c in done.calls]
        text = (*prompt, *done.result.tokens)
        pads = len(case["output"][row]) - len(text)
        made.append(((*text, *[p["pad_token_id"]] * pads), asked, [tuple(s["canvas_in"][row]) for _, s in steps]))
    return Outcome(
        {"output": tuple(map(tuple, case["output"])), "canvases": [m[2] for m in made]},
        {"output": tuple(m[0] for m in made), "canvases": [m[1] for m in made]},
    )


def own_steps(case: Case, row: int) -> list[tuple[int, dict[str, Any]]]:
    """The steps of a row, with their places in the recording: those before it finished its canvas, and no canvas behind the
    end of its text."""
    found, ended, over = [], False, False
    eos = case["parameters"]["eos_token_id"]
    for n, s in enumerate(case["steps"]):
        if s["steps_remaining"] == case["parameters"]["max_denoising_steps"]:
            over, ended = over or bool(n) and eos in case["steps"][n - 1]["argmax"][row], False
        if not ended and not over:
            found.append((n, s))
        ended = s["finished"][row]
    return found


SITES = {"entropy_renoise.1": "canvas_in", "entropy_renoise.3": "draw", "entropy_renoise.4": "noise"}
"""The program's draws by their places: a canvas that begins, its tokens, and what takes the place of those not kept."""


class Draws:
    """The recorded tokens as uniforms that make them win their races."""

    def __init__(self, steps: list[dict[str, Any]], row: int) -> None:
        self.steps, self.row = steps, row

    def __call__(self, key: Recorded, n: int) -> Any:
        what = SITES[key.site]
        step = self.steps[key.call + 1 if what == "canvas_in" else key.call]
        u = np.full(n, 0.5)
        u[step[what][self.row][key.lane[0]]] = 1 - 1e-14
        return u


ENTRIES = [
    Entry(
        "dllm/diffusion_gemma",
        "entropy_renoise",
        entropy_renoise,
        "masked",
        note="the recorded scores of every canvas stand for the model, the recorded tokens for the draws",
    )
]
