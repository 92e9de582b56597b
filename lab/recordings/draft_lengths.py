"""Chains whose length follows the drafter's signals."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import torch

from lab.recordings import Case
from lab.recordings.chains import models
from lab.recordings.tables import TableLM
from lab.recordings.upstream import Upstream


def accepted(mean: float, high: float, confidence: float, low: float, level: float, gamma: float) -> float:
    """What stands for the trained network, from entropies in bits and confidences: every length is chosen now and then."""
    wave = math.sin(3.1 * mean + 1.7 * high + 2.3 * confidence + 1.9 * low + level)
    return math.exp(-gamma / (5 + 4 * wave))


class Words:
    """A tokenizer whose text is the list of its tokens."""

    eos_token_id = -1

    def encode(self, text: list[int], **_: Any) -> torch.Tensor:
        return torch.tensor([text])

    def decode(self, tokens: torch.Tensor, **_: Any) -> list[int]:
        return [int(t) for t in tokens]


class Network:
    """A predictor of scikit-learn's interface."""

    def predict(self, features: np.ndarray) -> list[float]:
        mean, confidence, high, low, level, gamma = features[0]
        return [accepted(mean, high, confidence, low, level, gamma)]


def cells(upstream: Upstream, path: str, *wanted: str, **given: Any) -> Any:
    """Functions of a notebook, as they stand there."""
    for cell in json.loads(upstream.text(path))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code" and any(f"def {name}(" in text for name in wanted):
            (upstream.folder / "cell.py").write_text(text, "utf-8")
            given |= upstream.names("cell.py", *(name for name in wanted if f"def {name}(" in text), **given)
    return given


def speckv(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Each step is the first of a run of the decoder with a fixed length; the length is that which the policy gives for the
    signals of the step before."""
    both = {name: TableLM(table) for name, table in models(case).items()}
    decode = cells(
        upstream, "notebooks/Phase2_Compression_Profiling.ipynb", "speculative_generate", torch=torch, np=np, DEVICE="cpu"
    )
    policy = cells(upstream, "notebooks/Phase4_Final_Evaluation.ipynb", "select_gamma", np=np)
    text, gamma = [*case["prompt"]], 4
    out: dict[str, Any] = {"drafted": [], "accepted": []}
    while len(text) < len(case["prompt"]) + case["limit"]:
        said, _, logs = decode["speculative_generate"](*both.values(), Words(), text, gamma, gamma + 1)
        step = logs[0]
        text += said[: step["tokens_produced"]]
        out["drafted"].append(gamma)
        out["accepted"].append(step["accepted"])
        names = ("mean_draft_entropy", "mean_draft_confidence", "max_draft_entropy", "min_draft_confidence")
        signals = np.array([*(step[name] for name in names), case["level"]], dtype=float)
        gamma, _ = policy["select_gamma"](Network(), signals, [2, 4, 6, 8])
    return {"tokens": text[: len(case["prompt"]) + case["limit"]], **out}


RECORDINGS = {
    "speckv": speckv,
}
