"""Plots: that what they draw are the figures of the result file, under the right names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lib.bench_runs import document, run_of_two

from decgraph.bench import plots
from decgraph.errors import DecError


@pytest.fixture
def axes() -> Any:
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as pyplot

    figure, made = pyplot.subplots()
    yield made
    pyplot.close(figure)


def test_bars_are_as_high_as_the_tokens_a_call(axes: Any) -> None:
    assert plots.tokens_per_call(axes, run_of_two(("chat", "code")))
    (bars,) = axes.containers
    assert [bar.get_height() for bar in bars] == [2.5, 3.5, 4.5] and bars.get_label() == "speculative"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["all", "chat", "code"]
    assert "tokens per call" in axes.get_ylabel() and "kind of prompt" in axes.get_xlabel()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["speculative"]


def test_ratios_stand_in_their_intervals(axes: Any) -> None:
    assert plots.ratios(axes, run_of_two(("chat", "code")))
    assert [container.get_label() for container in axes.containers] == ["all", "chat", "code"]
    points, caps, (bar,) = axes.containers[1]
    assert list(points.get_xdata()) == [pytest.approx(2.9)]  # processor time, on a CPU
    ((low, _), (high, _)) = bar.get_segments()[0]
    assert (low, high) == (pytest.approx(2.4), pytest.approx(3.4))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["speculative"]
    assert "times as fast as transformers generate" in axes.get_xlabel() and "95%" in axes.get_xlabel()


def test_few_prompts_have_no_whiskers(axes: Any) -> None:
    run = run_of_two(("chat", "code"))
    run["rows"][3]["ratios"]["transformers generate"]["cpu"].update(n=2, low=None, high=None)
    assert plots.ratios(axes, run)
    assert [container.get_label() for container in axes.containers] == ["all (n=2, no interval)", "chat", "code"]
    drawn = [[segment for segment in bars.get_segments() if len(segment)] for _, _, (bars,) in axes.containers]
    assert [len(whiskers) for whiskers in drawn] == [0, 1, 1]
    assert [list(points.get_xdata()) for points, _, _ in axes.containers][0] == [pytest.approx(1.9)]


def test_acceptance_is_by_depth_and_leaves_out_what_was_not_tested(axes: Any) -> None:
    assert plots.acceptance(axes, run_of_two(("chat", "code")))
    (line,) = axes.get_lines()
    assert list(line.get_xdata()) == [1, 2] and list(line.get_ydata()) == [0.5, 0.75]
    assert line.get_label() == "speculative" and "depth" in axes.get_xlabel()
    assert [text.get_text() for text in axes.texts] == ["20/40", "15/20"]


def test_what_drafts_nothing_has_no_plot_of_acceptance(axes: Any) -> None:
    run = run_of_two()
    run["rows"][1]["acceptance"] = {"tested": [], "accepted": []}
    assert not plots.acceptance(axes, run)


def test_methods_have_colours_and_markers_of_their_own() -> None:
    assert len(set(plots.COLOURS)) == len(plots.COLOURS) == len(set(plots.MARKERS)) == 8
    assert plots.colours_of(run_of_two())["speculative"] != plots.colours_of(run_of_two())["transformers generate"]


def test_files_are_written_with_model_and_setting(tmp_path: Path) -> None:
    other = run_of_two()
    other["rows"] = []
    found = plots.draw(document(run_of_two(("chat", "code")), other), tmp_path)
    assert sorted(path.name for path in found) == sorted(f"{n}.{e}" for n in plots.PLOTS for e in ("png", "svg"))
    for path in found:
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG") if path.suffix == ".png" else b"<svg" in data
    svg = (tmp_path / "ratios.svg").read_text()
    assert "tiny (0.0M parameters)" in svg and "speculative" in svg


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DecError, match="cannot make the folder"):
        plots.check(tmp_path / "file" / "plots")


def test_without_matplotlib_there_is_a_way_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DecError, match=r"need matplotlib, which is not installed\n.*\[plots\]'"):
        plots.check(tmp_path)
