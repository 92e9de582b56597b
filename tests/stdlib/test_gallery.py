"""docs/gallery is what `python -m decgraph.bench.gallery` writes."""

from __future__ import annotations

import pytest
from shelf import SHELF

from decgraph.bench import gallery

VERDICTS, FIGURES = gallery.known(gallery.VERDICTS), gallery.known(gallery.FIGURES)


@pytest.mark.quick("eagle2", "fast_dllm")
@pytest.mark.parametrize("name", SHELF)
def test_a_page_is_up_to_date(name: str) -> None:
    page = (gallery.FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert page == gallery.page(name, VERDICTS, FIGURES), "python -m decgraph.bench.gallery"


def test_the_index_names_all_and_no_others() -> None:
    assert (gallery.FOLDER / "README.md").read_text(encoding="utf-8") == gallery.index(VERDICTS)
    assert {path.stem for path in gallery.FOLDER.glob("*.md")} == {*SHELF, "README"}


def test_no_verdict_is_a_refutation() -> None:
    assert VERDICTS.keys() <= set(SHELF)
    assert {name for name, found in VERDICTS.items() if found["verdict"] in ("refuted", "error")} == set()


def test_a_page_tells_what_differs_from_its_neighbour() -> None:
    lines = gallery.neighbour("speculative")
    assert any(line.startswith("+") for line in lines) and any(line.startswith("-") for line in lines)
    assert any("SafeAILab/EAGLE" in line for line in gallery.agreement("eagle2"))
