"""The page of `decgraph check --html`: a counterexample in Chromium, and what hostile words become."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lib.chromium import browser, page, picture  # noqa: F401  # fixtures

import decgraph
from decgraph.cli.main import main
from decgraph.views.counterexample import lines_of, report_page

ROOT = Path(__file__).parents[2]
BROKEN = ROOT / "examples" / "forgets_the_residual.dec"


def test_a_counterexample_can_be_read(page: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    file = tmp_path / "check.html"
    assert main(["check", str(BROKEN), "--html", str(file), "--json"]) == 1
    page.goto(file.as_uri())
    found = decgraph.load(BROKEN).check().counterexample
    assert found is not None
    assert page.inner_text(".verdict") == "refuted"
    marked = page.locator(".source .current").all_inner_texts()
    assert [line.strip() for line in marked] == ["if bernoulli(p[x] / x.law[x]):", "y ~ p", "x ~ drafter(t.leaves)"]
    assert page.locator("ol li").all_inner_texts() == found.decisions
    said = [bar.get_attribute("aria-label") for bar in page.locator(".pair").all()]
    assert said == ["0: broken_speculative 4/7, autoregressive 1/2", "1: broken_speculative 3/7, autoregressive 1/2"]
    widths = [page.locator(".pair i").nth(i).bounding_box()["width"] for i in range(2)]
    assert widths[0] / widths[1] == pytest.approx((4 / 7) / (1 / 2), rel=0.02)
    before = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != before


def test_picture_for_the_documentation(page: Any, tmp_path: Path, pytestconfig: pytest.Config) -> None:  # noqa: F811
    file = tmp_path / "check.html"
    assert main(["check", str(BROKEN), "--html", str(file), "--json"]) == 1
    page.goto(file.as_uri())
    picture(page, "counterexample", pytestconfig, full_page=True)


def test_words_of_a_program_are_text(page: Any, tmp_path: Path) -> None:  # noqa: F811
    report = decgraph.load(BROKEN).check()
    assert report.counterexample is not None
    bad = "</pre><img src=x onerror=alert(1)>"
    worse = replace(
        report.counterexample, words=bad, request=bad, decisions=[bad], tables=[bad], names=(bad, "'><b>"), functions=(bad,)
    )
    file = tmp_path / "check.html"
    file.write_text(report_page([(replace(report, name=bad, counterexample=worse), bad)]), encoding="utf-8")
    page.goto(file.as_uri())
    assert page.locator("img").count() == 0
    assert page.locator("pre").all_inner_texts().count(bad) >= 2


def test_a_notebook_shows_it_in_a_frame(page: Any, tmp_path: Path) -> None:  # noqa: F811
    found = decgraph.load(BROKEN).check().counterexample
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><title>notebook</title>{found._repr_html_()}", encoding="utf-8")
    page.goto(file.as_uri())
    frame = page.frame_locator("iframe")
    assert frame.locator("ol li").all_inner_texts() == found.decisions and frame.locator(".pair").count() == 2
    titles = frame.locator("section").evaluate_all("all => all.map((one) => [one.ariaLabel, one.getBoundingClientRect().top])")
    assert [name for name, _ in sorted(titles, key=lambda one: one[1])][0] == "What each side commits", "the answer first"
    assert len(repr(found)) < 120


def test_lines_of_other_files_are_not_marked() -> None:
    assert lines_of(["x, line 18 (iteration 1): token 0", "y, rules.dec line 6 (iteration 1): yes", "start: 3"]) == {18}


def test_a_proved_algorithm_has_a_page_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "check.html"
    assert main(["check", "autoregressive", "--models", "2", "--html", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert "autoregressive" in text and "What each side commits" not in text
    assert main(["check", "autoregressive", "--html", str(tmp_path / "no" / "check.html")]) == 2
    assert "cannot write" in capsys.readouterr().err
