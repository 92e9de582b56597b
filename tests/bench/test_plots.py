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

    with plots.styled():
        figure, made = pyplot.subplots()
        yield made
        pyplot.close(figure)


def legend_of(axes: Any) -> list[str]:
    return [text.get_text() for legend in axes.figure.legends for text in legend.get_texts()]


def test_bars_are_as_high_as_the_tokens_a_call(axes: Any) -> None:
    run = run_of_two(("chat", "code"))
    assert "in a call" in plots.tokens_per_call(axes, run)
    (bars,) = axes.containers
    assert [bar.get_height() for bar in bars] == [2.5, 3.5, 4.5] and bars.get_label() == "speculative"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["all", "chat", "code"]
    assert legend_of(axes) == []  # there is one method
    run["rows"] += [{**row, "algorithm": f"method {n}"} for n in range(20) for row in run["rows"][1:4:2]]
    axes.clear()
    assert "The 8 of 21 methods" in plots.tokens_per_call(axes, run) and len(set(legend_of(axes))) == 8


def test_ratios_stand_in_their_intervals(axes: Any) -> None:
    said = plots.ratios(axes, run_of_two(("chat", "code")))
    assert "processor time" in said and "95%" in said and "fewer" not in said
    assert [container.get_label() for container in axes.containers] == legend_of(axes) == ["all", "chat", "code"]
    points, caps, (bar,) = axes.containers[1]
    assert list(points.get_xdata()) == [pytest.approx(2.9)]  # processor time, on a CPU
    ((low, _), (high, _)) = bar.get_segments()[0]
    assert (low, high) == (pytest.approx(2.4), pytest.approx(3.4))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["speculative"]
    assert axes.get_xlabel() == "times as fast as transformers generate"


def test_few_prompts_have_no_whiskers_in_plot_or_legend(axes: Any) -> None:
    run = run_of_two(("chat", "code"))
    for row in run["rows"][3:4]:
        row["ratios"]["transformers generate"]["cpu"].update(n=2, low=None, high=None)
    said = plots.ratios(axes, run)
    assert "95%" in said and "without a bar: fewer than 5 prompts" in said
    assert [container.get_label() for container in axes.containers] == ["chat", "code"]
    assert legend_of(axes) == ["all", "chat", "code"]
    assert [list(line.get_xdata()) for line in axes.get_lines() if line.get_label() == "all"] == [[pytest.approx(1.9)]]
    few = run_of_two()
    few["rows"][1]["ratios"]["transformers generate"]["cpu"].update(n=2, low=None, high=None)
    assert "95%" not in plots.ratios(axes, few)


def test_acceptance_is_by_depth_and_leaves_out_what_was_not_tested(axes: Any) -> None:
    said = plots.acceptance(axes, run_of_two(("chat", "code")))
    ((line, caps, (bars,)),) = axes.containers
    assert list(line.get_xdata()) == [1, 2] and list(line.get_ydata()) == [0.5, 0.75]
    assert bars.get_segments()[1][:, 1] == pytest.approx([0.531, 0.888], abs=1e-3)  # Wilson's interval of 15 of 20
    assert "speculative 20/40 15/20" in said and not list(axes.texts)


def test_what_drafts_nothing_has_no_plot_of_acceptance(axes: Any) -> None:
    run = run_of_two()
    run["rows"][1]["acceptance"] = {"tested": [], "accepted": []}
    assert plots.acceptance(axes, run) == ""


def crowded() -> dict[str, Any]:
    """Eight methods on five kinds, their points close together."""
    run = run_of_two(("chat", "code", "copy-edit", "summary", "json"))
    run["rows"] += [
        {**row, "algorithm": f"a_long_name:budget={n}"} for n in range(7) for row in run["rows"] if row["side"] == "decgraph"
    ]
    return run


@pytest.mark.parametrize("name", plots.PLOTS)
def test_no_text_lies_on_another(name: str) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as pyplot

    plot, height = plots.PLOTS[name]
    with plots.styled():
        figure, axes = plots._axes(height(crowded()))
        assert plot(axes, crowded())
        figure.canvas.draw()
        boxes = {}
        for text in figure.findobj(pyplot.Text):
            box = text.get_window_extent()
            if text.get_visible() and text.get_text() and box.width:
                boxes[text.get_text(), round(box.x0), round(box.y0)] = box
        width, top = figure.canvas.get_width_height()
        shown = {key: box for key, box in boxes.items() if box.x0 >= 0 and box.x1 <= width and box.y1 <= top}
        assert len(shown) > 10
        found = list(shown.items())
        assert not [(a, b) for n, (a, one) in enumerate(found) for b, other in found[n + 1 :] if one.overlaps(other)]
        pyplot.close(figure)


def test_a_folder_gets_pictures_and_a_name_its_format(tmp_path: Path) -> None:
    other = run_of_two()
    other["rows"] = []
    found = plots.draw(document(run_of_two(("chat", "code")), other), tmp_path)
    names = [f"{n}.{e}" for n in plots.PLOTS for e in ("png", "svg")]
    assert sorted(path.name for path in found) == sorted([*names, "captions.txt"])
    for path in found:
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG") if path.suffix == ".png" else b"<svg" in data or path.suffix == ".txt"
    assert "ratios: Times as fast" in (said := found[-1].read_text()) and "tiny (0.0M parameters)" in said
    assert "tiny" not in (tmp_path / "ratios.svg").read_text()
    *drawn, tex = plots.draw(document(run_of_two(("chat", "code"))), tmp_path / "fig.pdf")
    assert [path.name for path in drawn] == [f"fig-{name}.pdf" for name in plots.PLOTS]
    assert all(path.read_bytes().startswith(b"%PDF") for path in drawn) and tex.name == "fig.tex"
    assert "\\includegraphics{fig-ratios.pdf}\n  \\caption{Times as fast" in tex.read_text() and "95\\%" in tex.read_text()


def test_a_style_lies_over_that_of_the_package(tmp_path: Path) -> None:
    style = tmp_path / "mine.mplstyle"
    style.write_text("figure.figsize: 4, 3\nsavefig.dpi: 50\n")
    (first, *_) = plots.draw(document(run_of_two()), tmp_path / "fig.png", str(style))
    assert int.from_bytes(first.read_bytes()[16:20], "big") == 200  # pixels across
    with pytest.raises(DecError, match=r"cannot read the style none\.mplstyle\n.*ggplot"):
        plots.check(tmp_path, "none.mplstyle")


def test_one_picture_is_for_pages_of_either_scheme(tmp_path: Path) -> None:
    plots.one(lambda axes: axes.set_xlabel("calls"), tmp_path / "images" / "x.svg")
    text = (tmp_path / "images" / "x.svg").read_text()
    assert "prefers-color-scheme:dark" in text and "currentColor" in text and "#1a1a1b" not in text.split("</style>", 1)[1]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DecError, match="cannot make the folder"):
        plots.check(tmp_path / "file" / "plots")


def test_without_matplotlib_there_is_a_way_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DecError, match=r"need matplotlib, which is not installed\n.*\[plots\]'"):
        plots.check(tmp_path)
