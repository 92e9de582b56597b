"""The logits of published heads, recorded with their authors' loaders: the same from the folder and from a converted one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.models import plain_heads
from lib.repository import ROOT

from decgraph.runtime.models import hf, hf_heads
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.heads import load
from decgraph.runtime.models.heads.base import OUTSIDE
from decgraph.runtime.models.heads.convert import convert
from decgraph.runtime.models.heads.medusa import Medusa
from decgraph.runtime.models.hf_causal import HFCausal

GOLDEN = ROOT / "tests" / "fidelity" / "golden"
FOLDERS = GOLDEN / "heads" / "checkpoints"
WITHIN = 2e-4  # of logits up to 15, recorded with five digits
Row = tuple[np.ndarray, list[float]]


def target(name: str) -> Any:
    return hf.load_causal(GOLDEN / "ar/models/target" if name == "target" else FOLDERS / name)


def rows_of_features(folder: Path, base: HFCausal, said: dict[str, Any]) -> list[Row]:
    """Row i: after the token i + 1, with the target's memory up to i; then one more level."""
    head: Any = hf.load_features(folder, base)
    ids, first = tuple(said["input"]), said["logits"][0] if isinstance(said["logits"][0][0], list) else said["logits"]
    kept = getattr(getattr(head.module, "output", None), "tokens", None)
    kept = np.arange(base.vocab.size) if kept is None else kept.numpy()
    out = [(head.eval([ids[: i + 2]], base.memory(ids[: i + 1]))[0].logits, row) for i, row in enumerate(first)]
    if "second_level_token" in said:
        path = (*ids, said["second_level_token"])
        out.append((head.eval([path], base.memory(ids[:-1]))[0].logits, said["second_level_logits"][0]))
    rest = np.setdiff1d(np.arange(base.vocab.size), kept)
    assert all((logits[rest] <= OUTSIDE).all() for logits, _ in out), "tokens outside of the draft vocabulary have no mass"
    return [(logits[kept], row) for logits, row in out]


def rows_of_hydra(folder: Path, base: HFCausal, said: dict[str, Any]) -> list[Row]:
    head, ids = hf.load_features(folder, base), tuple(said["input"])
    return [
        (head.eval([ids[: p + 2 + h]], base.memory(ids[: p + 1]))[0].logits, row[n])
        for h, row in enumerate(said["logits"])
        for n, p in enumerate(said["positions"])
    ]


def rows_of_redrafter(folder: Path, base: HFCausal, said: dict[str, Any]) -> list[Row]:
    """Logits less their maximum, and log-probabilities along the beams."""
    head, ids = hf.load_features(folder, base), tuple(said["input"])
    memory = base.memory(ids)
    first = head.eval([(*ids, said["init_token"])], memory)[0].logits
    out = [(first - first.max(), said["first_step_logits"])]
    for beam, probs in zip(said["beams"], said["log_probs"], strict=True):
        for n, row in enumerate(probs, 1):
            logits = torch.from_numpy(head.eval([(*ids, *beam[:n])], memory)[0].logits)
            out.append((logits.log_softmax(-1).numpy(), row))
    return out


def rows_of_dflash(folder: Path, base: HFCausal, said: dict[str, Any]) -> list[Row]:
    """Slots 1, 2, ... of a block; they do not depend on the tokens drafted before."""
    head, ids = hf.load_features(folder, base), tuple(said["input"])
    return [
        (head.eval([(*ids[: a + 1], *[5] * (slot - 1))], base.memory(ids[:a]))[0].logits, rows[slot])
        for a, rows in zip(said["anchors"], said["logits"], strict=True)
        for slot in range(1, len(rows))
    ]


def rows_of_medusa(folder: Path, base: HFCausal, said: dict[str, Any]) -> list[Row]:
    both, ids = base.with_heads(hf.load_heads(folder, base)), tuple(said["input"])
    return [(row.logits, said["logits"][h][n]) for n, p in enumerate(said["positions"])
            for h, row in enumerate(both.heads(ids[: p + 1]))]  # fmt: skip


def rows_of_kangaroo(folder: Path, base: HFCausal, said: dict[str, Any]) -> list[Row]:
    adapter = hf.load_adapter(folder, base)
    small, ids = derive(base, "head", derive(adapter, "on", derive(base, "upto", 2))), tuple(said["input"])
    return [(small.eval([ids[: n + 1]])[0].logits, row) for n, row in enumerate(said["logits"])]


CASES: dict[str, tuple[str, Callable[..., list[Row]], str]] = {
    "eagle1": ("target", rows_of_features, "EAGLE-1/2"),
    "eagle3": ("target8", rows_of_features, "EAGLE-3"),
    "speculators_eagle3": ("target8", rows_of_features, "speculators EAGLE-3"),
    "hydra": ("target", rows_of_hydra, "Hydra"),
    "redrafter": ("target", rows_of_redrafter, "ReDrafter"),
    "dflash": ("target", rows_of_dflash, "DFlash"),
    "speculators_dflash": ("target", rows_of_dflash, "speculators DFlash"),
    "medusa": ("target", rows_of_medusa, "Medusa"),
    "kangaroo": ("target", rows_of_kangaroo, "Kangaroo"),
}


@pytest.mark.parametrize("name", CASES)
def test_recorded_logits(name: str, tmp_path: Path) -> None:
    """From the authors' folder within the rounding of the record; from the converted one the very same."""
    of, rows, layout = CASES[name]
    base, said = target(of), json.loads((FOLDERS / name / "logits_check.json").read_text(encoding="utf-8"))
    assert load.read(FOLDERS / name).layout == layout
    published = rows(FOLDERS / name, base, said)
    assert published
    for mine, theirs in published:
        np.testing.assert_allclose(mine, theirs, atol=WITHIN, rtol=1e-5)
    found = convert(FOLDERS / name, out=tmp_path / "converted")
    assert found.layout == layout and {path.name for path in found.files} == {"config.json", "model.safetensors"}
    assert load.read(tmp_path / "converted").layout == "decgraph"
    for (mine, _), (again, _) in zip(published, rows(tmp_path / "converted", target(of), said), strict=True):
        np.testing.assert_allclose(mine, again, atol=1e-4)  # other alignment of the weights in memory: another order of sums


def test_later_steps_of_the_speculators_recording() -> None:
    """Their record of steps 1 and 2 was taken with eager attention, which added the boolean mask of the draft columns as zeros
    and ones, so that every row saw all rows of its own step. With that mask the module gives the recorded numbers."""
    base = target("target8")
    said = json.loads((FOLDERS / "speculators_eagle3" / "logits_check.json").read_text(encoding="utf-8"))
    head: Any = hf.load_features(FOLDERS / "speculators_eagle3", base)
    ids = said["input"]
    count, memory = len(ids) - 1, base.memory(tuple(ids))
    causal = torch.zeros(count, count).masked_fill(~torch.ones(count, count, dtype=torch.bool).tril(), float("-inf"))
    features = [
        head.module.project(torch.stack([hf_heads.state_of(memory, n, head.module.reads, base.layers) for n in range(count)]))
    ]
    tokens = torch.tensor([*ids[1:], 0, 0])
    with torch.no_grad():
        for step, rows in enumerate(said["logits"]):
            blocks = [torch.cat([causal, *(torch.eye(count) if s <= k else torch.full((count, count), float("-inf"))
                                           for s in range(1, step + 1))], 1) for k in range(step + 1)]  # fmt: skip
            entering = head.module.enter(torch.cat([tokens[k : k + count] for k in range(step + 1)]), torch.cat(features))
            positions = torch.cat([torch.arange(count) + k for k in range(step + 1)])
            layers = plain_heads.layers(
                head.module.state_dict(),
                entering,
                head.module.config.num_attention_heads,
                positions=positions,
                added=torch.cat(blocks),
            )
            made = layers[-count:].float()
            logits = head.module.output.matrix(head.module.norm(made))
            np.testing.assert_allclose(logits[: len(rows)], rows, atol=WITHIN)
            features.append(made)


def test_medusas_heads_are_separate() -> None:
    """Each has a matrix of its own."""
    module = load.module(load.read(FOLDERS / "medusa"), FOLDERS / "medusa", torch.float32)
    assert isinstance(module, Medusa) and module.own_output
    assert len({head[-1].weight.data_ptr() for head in module.heads}) == 5  # type: ignore[index, union-attr]
