"""The model card, zoo/models/README.md: card_template.md filled with training.json and measured figures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from lab import pages
from lab.shipped.data import VOCAB_SIZE

MODELS = pages.ROOT / "zoo" / "models"
TEMPLATE = Path(__file__).parent / "card_template.md"
ORDER = ("target", "drafter", "medusa", "eagle", "exit", "masked", "smollm2_eagle", "tokenizer")


def _table(rows: dict[str, Any]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())])


def _parameters(folder: Path) -> int:
    from safetensors import safe_open

    with safe_open(str(folder / "model.safetensors"), "pt") as tensors:
        return sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118 - not a mapping


def keep_figures(figures: dict[str, dict[str, float]]) -> None:
    """Merge measured figures into models/measured.json, model by model."""
    file = MODELS / "measured.json"
    file.write_text(json.dumps({**pages.read(file), **figures}, indent=2) + "\n", encoding="utf-8")


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
    if training := pages.read(folder / "training.json"):
        rows = {"seed": training["seed"], "steps": training["steps"], "minutes": round(training["seconds"] / 60, 1)}
        rows |= {"training loss (mean of the last 50 steps)": training["loss"]}
        rows |= {key: value for key, value in training["settings"].items() if key not in ("seed", "minutes", "steps")}
    rows |= pages.read(MODELS / "measured.json").get(name, {})
    table = _table({key.replace("_", " "): value for key, value in rows.items()})
    return f"## {name}\n\n{text.format(parameters=f'{_parameters(folder):,}')}\n\n{table}\n"


def text() -> str:
    """The card of the models that are there."""
    present = [n for n in ORDER if (MODELS / n / ("tokenizer.json" if n == "tokenizer" else "config.json")).exists()]
    texts = template()
    return "\n".join([texts[""] + "\n", *(section(name, texts[name]) for name in present)])


def write() -> None:
    """Write models/README.md."""
    (MODELS / "README.md").write_text(text(), encoding="utf-8")
