"""The model card, zoo/models/README.md: card_template.md filled with training.json and measured figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from decgraph.zoo.data import VOCAB_SIZE

MODELS = Path(__file__).parent / "models"
TEMPLATE = Path(__file__).parent / "card_template.md"
ORDER = ("target", "drafter", "medusa", "eagle", "exit", "masked", "smollm2_eagle", "tokenizer")


def _table(rows: dict[str, Any]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())])


def _parameters(folder: Path) -> int:
    from safetensors import safe_open

    with safe_open(str(folder / "model.safetensors"), "pt") as tensors:
        total = 0
        for name in tensors.keys():  # noqa: SIM118 - not a mapping
            size = 1
            for length in tensors.get_slice(name).get_shape():
                size *= length
            total += size
    return total


def keep_figures(figures: dict[str, dict[str, float]]) -> None:
    """Merge measured figures into models/measured.json, model by model."""
    file = MODELS / "measured.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps({**known, **figures}, indent=2) + "\n", encoding="utf-8")


def template() -> dict[str, str]:
    """The card's opening under `""`, and the text about each model under its name."""
    opening, *parts = TEMPLATE.read_text(encoding="utf-8").split("\n## ")
    texts = {"": opening.strip()}
    for part in parts:
        name, _, text = part.partition("\n")
        texts[name] = text.strip()
    return texts


def section(name: str, text: str) -> str:
    """One model's part of the card: `text`, then how it was trained and what was measured."""
    folder = MODELS / name
    if name == "tokenizer":
        return f"## tokenizer\n\n{text.format(vocabulary=VOCAB_SIZE)}\n"
    rows: dict[str, Any] = {}
    training = folder / "training.json"
    if training.exists():
        told = json.loads(training.read_text(encoding="utf-8"))
        rows = {"seed": told["seed"], "steps": told["steps"], "minutes": round(told["seconds"] / 60, 1)}
        rows |= {"training loss (mean of the last 50 steps)": told["loss"]}
        rows |= {key: value for key, value in told["settings"].items() if key not in ("seed", "minutes", "steps")}
    measured = MODELS / "measured.json"
    if measured.exists():
        rows |= json.loads(measured.read_text(encoding="utf-8")).get(name, {})
    table = _table({key.replace("_", " "): value for key, value in rows.items()})
    told_text = text.format(parameters=f"{_parameters(folder):,}")
    return f"## {name}\n\n{told_text}\n\n{table}\n"


def write() -> Path:
    """Write models/README.md for the models that are there; its path."""
    present = [n for n in ORDER if (MODELS / n / ("tokenizer.json" if n == "tokenizer" else "config.json")).exists()]
    texts = template()
    card = MODELS / "README.md"
    card.write_text("\n".join([texts[""] + "\n", *(section(name, texts[name]) for name in present)]), encoding="utf-8")
    return card
