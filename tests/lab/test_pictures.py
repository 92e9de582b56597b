"""docs/gallery/steps.json has a step of each program that drafts or decides a canvas, and it is drawn for pages and README."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from lib.stdlib.table_models import SHELF

from lab import gallery, pages, pictures

STEPS = pages.read(pictures.STEPS)


def test_steps_are_of_the_programs_of_today() -> None:
    assert set(SHELF) >= STEPS.keys()
    assert [name for name, step in STEPS.items() if step["digest"] != gallery.digest(name)] == [], "python -m lab pictures NAME"
    drafting = {
        "speculative",
        "eagle1",
        "eagle2",
        "eagle3",
        "medusa",
        "lookahead",
        "prompt_lookup",
        "llada",
        "dream",
        "fast_dllm",
        "beam",
    }
    assert drafting <= STEPS.keys() and len(STEPS) > 120


def test_every_picture_is_drawn_with_what_it_shows() -> None:
    for name, step in STEPS.items():
        root = ET.fromstring(pictures.drawing(step))
        boxes = [g for g in root.iter("{http://www.w3.org/2000/svg}g") if g.get("transform")]
        assert len(boxes) == (len(step["nodes"]) + 1 if "nodes" in step else sum(map(len, step["rows"]))), name
        assert float(root.attrib["width"]) < 1100 and root.attrib["aria-label"], name


def test_a_tree_says_what_became_of_its_drafts() -> None:
    step = {"root": "a<b", "nodes": [["<x>", -1, "accepted", "", 0.5, 0.25, None], ["\n", 0, "rejected", "", 0.1, 0.9, None]]}
    drawn = pictures.drawing(step)
    assert "1 accepted draft, 1 rejected draft" in drawn
    assert "✓ &lt;x&gt;" in drawn and "✗ ⏎" in drawn and "q 0.25 · p 0.5" in drawn
    assert drawn.count('path class="accepted"') == 1
    assert "accepted draft" in drawn and "own token" not in drawn  # the legend has what is there


def test_a_picture_of_another_text_is_not_shown() -> None:
    assert "<svg" in pictures.figure("eagle2", STEPS)
    assert pictures.figure("eagle2", {"eagle2": STEPS["eagle2"] | {"digest": "0" * 16}}) == ""
    assert pictures.figure("eagle2", {}) == ""


@pytest.mark.parametrize("scheme", pictures.COLOURS)
def test_the_picture_of_readme_is_the_step(scheme: str) -> None:
    written = (pictures.IMAGES / f"step-{scheme}.svg").read_text(encoding="utf-8")
    assert written == pictures.drawing(STEPS[pictures.README], pictures.styled("svg", pictures.COLOURS[scheme])) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eagle2", "fast_dllm"])
def test_a_step_is_one_of_a_run(name: str) -> None:
    """Tokens and what became of them; probabilities are rounded, and may round otherwise elsewhere."""
    found, kept = pictures.record(name), STEPS[name]
    assert found is not None and found["command"] == kept["command"]
    if "nodes" in kept:
        assert [node[:4] for node in found["nodes"]] == [node[:4] for node in kept["nodes"]]
    else:
        assert [[cell[:2] for cell in row] for row in found["rows"]] == [[cell[:2] for cell in row] for row in kept["rows"]]
