"""docs/gallery is what `python -m lab gallery` writes."""

from __future__ import annotations

import pytest
from lib.stdlib.table_models import SHELF

from decgraph.check.verdicts import FOR_ALL
from lab import gallery, pages

VERDICTS, FIGURES = gallery.current(pages.read(gallery.VERDICTS)), pages.read(gallery.FIGURES)


@pytest.mark.quick("eagle2", "fast_dllm")
@pytest.mark.parametrize("name", SHELF)
def test_a_page_is_up_to_date(name: str) -> None:
    page = (gallery.FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert page == gallery.page(name, VERDICTS, FIGURES), "python -m lab gallery"


def test_the_index_names_all_and_no_others() -> None:
    assert (gallery.FOLDER / "README.md").read_text(encoding="utf-8") == gallery.index(VERDICTS)
    assert {path.stem for path in gallery.FOLDER.glob("*.md")} == {*SHELF, "README"}


def test_the_index_begins_with_what_is_well_known_and_has_every_family() -> None:
    index = gallery.index(VERDICTS)
    first = index[index.index(f"## {gallery.KNOWN}") :].split("\n## ")
    assert all(f"]({name}.md)" in first[0] for name in gallery.WELL_KNOWN)
    assert {gallery.stdlib.entry(name).family for name in SHELF} <= gallery.FAMILIES.keys(), "a sentence for the new family"


def test_a_row_says_what_an_algorithm_does_and_a_page_where_it_was_published() -> None:
    assert gallery.summary("speculative") == "A chain of gamma draws from a small model, verified in one call of the target"
    assert [name for name in SHELF if not 10 < len(gallery.summary(name)) < 400 or "(Li et al" in gallery.summary(name)] == []
    assert "| A small model drafts, the target verifies |" in gallery.row(gallery.stdlib.entry("speculative"), VERDICTS)
    assert set(gallery.arxiv()) <= set(SHELF)
    assert "https://arxiv.org/abs/2406.16858" in gallery.paper(gallery.stdlib.entry("eagle2"))
    assert "scholar.google.com/scholar?q=%22" in gallery.paper(gallery.stdlib.entry("jakiro"))


@pytest.mark.parametrize(
    ("claim", "few"),
    [
        ("refines autoregressive(target) in tokens", "same tokens"),
        ("refines a(target) in distribution when x == 1; refines a(target) in distribution", "same distribution"),
        ("refines a(target) in tokens when alpha == 0; keeps support of target", "lossless at a setting"),
        ("keeps support of target", "support kept"),
        ("ensures x in items", "a property"),
        ("", "none"),
    ],
)
def test_a_claim_in_few_words(claim: str, few: str) -> None:
    assert gallery.promised(claim) == few


def test_no_verdict_is_a_refutation() -> None:
    assert VERDICTS.keys() <= set(SHELF)
    assert {name for name, found in VERDICTS.items() if found["verdict"] in ("refuted", "error")} == set()


def test_a_page_tells_what_differs_from_its_neighbour() -> None:
    lines = gallery.neighbour("speculative")
    assert any(line.startswith("+") for line in lines) and any(line.startswith("-") for line in lines)
    assert any("SafeAILab/EAGLE" in line for line in gallery.agreement("eagle2"))


def test_a_verdict_is_of_the_text_that_was_checked() -> None:
    report = {
        "name": "speculative", "verdict": "holds", "claims": [{"claim": "c", "stopped": {"line": 7, "why": "why"}}],
        "models": 9, "runs": 1234, "reasons": [],
        "interrupted": False,
    }  # fmt: skip
    kept = gallery.verdict_of(report)
    assert kept["note"] == "9 small models, every outcome of 1,234 runs; no derivation: line 7: why"
    assert "**holds** (9 small models" in gallery.claimed("c", kept)
    proved = gallery.verdict_of(report | {"verdict": "proved", "claims": [], "reach": f"{FOR_ALL}; errors: not derived"})
    assert proved["note"].startswith(f"{FOR_ALL}; errors: not derived; compared in 9 small models")
    old = dict(kept, digest="0" * 16)
    assert gallery.current({"speculative": old, "medusa": kept, "gone": kept}) == {}
    assert gallery.current({"speculative": kept}) == {"speculative": kept}
    undecided = gallery.verdict_of(report | {"verdict": "undecided", "reasons": ["3 worlds could not be decided"]})
    assert undecided["note"].endswith("3 worlds could not be decided")
