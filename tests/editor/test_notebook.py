"""Notebooks: the cell magic in IPython's shell and in a kernel, and the HTML of values."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from lib.lazily import ipython, ipython_capture
from lib.repository import ROOT
from lib.stdlib.recorded_runs import open_tables, recorded
from lib.waiting import SECONDS

import decgraph
from decgraph.check.algorithm import check_all
from decgraph.editor import fragments, notebook
from decgraph.passes.calls import calls_of
from decgraph.runtime import trace
from decgraph.views.steps import origins_of

PROGRAM = """\
algorithm mine(target: causal, drafter: causal, gamma: int in 1..4 = 2):
    \"\"\"Chains of drafts, <b>verified</b>.\"\"\"
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by {rule} against target(t)
        commit t.accepted
"""
GOOD = PROGRAM.format(rule="rejection")
BAD = """\
algorithm mine(target: causal):
    refines autoregressive(target) in distribution

    while not done:
        commit argmax(target(ctx))
"""


class Wellformed(HTMLParser):
    """Raises where a tag is closed that is not open; keeps the text and the names of tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def shell() -> Iterator[ipython.InteractiveShell]:
    before = sys.modules["__main__"]  # a shell puts a module of its own there
    made = ipython.InteractiveShell.instance()
    made.run_line_magic("load_ext", "decgraph")
    yield made
    made.reset(new_session=False)
    ipython.InteractiveShell.clear_instance()
    sys.modules["__main__"] = before


def cell(shell: ipython.InteractiveShell, line: str, text: str) -> Any:
    """What a cell displays."""
    with ipython_capture.capture_output() as captured:
        shell.run_cell(f"%%dec {line}\n{text}")
    return captured


def test_the_cell_of_the_page_is_proved(shell: ipython.InteractiveShell) -> None:
    (text,) = re.findall(r"```text\n%%dec\n(.*?)```", (ROOT / "docs/editors.md").read_text(encoding="utf-8"), re.S)
    (shown,) = cell(shell, "--check --seconds 20", text).outputs
    assert shown.data["text/plain"] == "proved mine"


def test_programs_are_checked_side_by_side_after_a_reset(shell: ipython.InteractiveShell) -> None:
    shell.reset(new_session=False)
    reports = list(check_all(["jacobi", "jacobi"], jobs=2, models=1))
    assert [r.name for r in reports] == ["jacobi", "jacobi"]


def test_a_terminal_shows_the_counterexample(shell: ipython.InteractiveShell) -> None:
    text = "algorithm mine(target: causal):\n    refines autoregressive(target) in tokens\n    while not done:\n"
    (shown,) = cell(shell, "--check", text + "        x ~ target(ctx)\n        commit x\n").outputs
    assert shown.data["text/plain"].startswith("refuted mine\n\n") and "target" in shown.data["text/plain"]


def test_a_cell_is_bound_to_its_name_and_shown(shell: ipython.InteractiveShell) -> None:
    (shown,) = cell(shell, "", GOOD).outputs
    page = Wellformed(shown.data["text/html"])
    assert "refines autoregressive(target) in distribution" in page.text
    assert "script" not in page.tags and "b" in page.tags
    assert "<b>verified</b>" not in shown.data["text/html"]
    assert isinstance(shell.user_ns["mine"], decgraph.Algorithm)
    assert shown.data["text/plain"].startswith("<algorithm mine(")
    assert not cell(shell, "--quiet --name other", GOOD).outputs
    assert shell.user_ns["other"].name == "mine"


def test_two_algorithms_of_a_cell(shell: ipython.InteractiveShell) -> None:
    cell(shell, "--quiet", GOOD.replace("algorithm mine", "algorithm first") + "\n\n" + GOOD)
    assert (shell.user_ns["first"].name, shell.user_ns["mine"].name) == ("first", "mine")


@pytest.mark.parametrize(
    ("line", "text", "said"),
    [
        ("", GOOD.replace("by rejection", "by rejektion"), "did you mean rejection"),
        ("--chek", GOOD, "unrecognized"),
        ("--name 3x", GOOD, "cannot be a name"),
        ("--name 'x", GOOD, "No closing quotation"),
        ("", "def h(x: prob) -> prob:\n    return x\n", "no algorithm"),
    ],
)
def test_what_is_wrong_is_shown_with_its_caret_and_no_traceback(
    shell: ipython.InteractiveShell, line: str, text: str, said: str
) -> None:
    captured = cell(shell, line, text)
    (shown,) = captured.outputs
    assert said in Wellformed(shown.data["text/html"]).text
    assert "Traceback" not in captured.stdout + captured.stderr
    if "rejektion" in text:
        assert "^^^" in shown.data["text/html"] and "cell" in shown.data["text/html"]


def test_an_error_outside_of_the_magic_has_no_traceback_either(shell: ipython.InteractiveShell) -> None:
    with ipython_capture.capture_output() as captured:
        shell.run_cell("import decgraph\ndecgraph.load('speculativ')")
    assert "Traceback" not in captured.stdout + captured.stderr
    assert "did you mean" in captured.outputs[0].data["text/plain"]


@pytest.mark.budget(12)
def test_a_checked_cell_shows_the_verdict_and_the_counterexample(shell: ipython.InteractiveShell) -> None:
    (shown,) = cell(shell, "--check", BAD).outputs
    page = Wellformed(shown.data["text/html"])
    assert "refuted" in page.text and "total variation" in page.text
    assert shown.data["text/plain"].startswith("refuted mine\n\n")


def test_values_show_themselves() -> None:
    algorithm = decgraph.parse(GOOD)
    for value, said in [
        (algorithm, "gamma = 2"),
        (algorithm.cost(), "drafter"),
        (algorithm.explanation(), "verified"),
        (decgraph.parse(BAD).check(models=1), "refuted"),
    ]:
        assert said in Wellformed(value._repr_html_()).text
    with pytest.raises(TypeError):
        fragments.fragment(3)


@pytest.mark.budget(10)
def test_a_result_is_coloured_by_origin() -> None:
    result = decgraph.run("speculative", "def main():", max_tokens=12, temperature=0, backend="reference")
    assert "".join(result.pieces) == result.text
    html = result._repr_html_()
    page = Wellformed(html)
    assert result.text.split()[0] in page.text
    assert "accepted draft" in page.text and f"{result.stats.target_calls}, " in page.text
    origins = origins_of(result.events)
    assert len(origins) == len(result.tokens)
    assert origins.count("accepted") > 0
    assert {"accepted"} < set(origins) <= set(fragments.ORIGINS)


def test_origins_of_a_step_that_is_cut() -> None:
    events = [trace.Accepted(1, 7, 1), trace.Accepted(2, 8, 2), trace.Emitted(9, "bonus"), trace.Committed((7, 8, 9)),
              trace.Emitted(3, "residual"), trace.Committed((3,)), trace.Accepted(1, 4, 1), trace.Committed((4,), 1),
              trace.Committed((5,))]  # fmt: skip
    assert origins_of(events) == ["accepted", "accepted", "bonus", "residual", "accepted", "plain"]


def test_a_text_with_marks_keeps_its_characters() -> None:
    page = Wellformed(fragments.source(GOOD + "  $ é", [(3, 8)]))
    assert page.text == GOOD + "  $ é"


def test_options_are_read_like_a_command_line() -> None:
    assert notebook.options("--check --seconds 2").seconds == 2.0


@pytest.mark.slow
@pytest.mark.budget(14)
def test_a_notebook_runs_in_a_kernel() -> None:
    import nbformat
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(text) for text in ("%load_ext decgraph", "%%dec\n" + GOOD, "mine.cost()", "mine")]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=SECONDS, kernel_name="python3").execute()
    outputs = [c.outputs for c in book.cells]
    assert outputs[0] == []
    for out, said in zip(outputs[1:], ("refines", "static cost", "gamma"), strict=True):
        assert said in out[0]["data"]["text/html"]


@pytest.mark.nightly
def test_the_notebook_of_the_examples_runs_from_top_to_bottom() -> None:
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells)  # what is committed has none
    NotebookClient(book, timeout=SECONDS, kernel_name="python3").execute()  # raises where a cell does
    shown = [
        "".join(out.get("data", {}).get("text/html", "") or out.get("data", {}).get("text/plain", "") for out in cell.outputs)
        for cell in book.cells
        if cell.cell_type == "code"
    ]
    for out, said in zip(
        shown, ("", "proved", "accepted draft", ".", "static cost", "refuted", "did you mean argmax"), strict=True
    ):
        assert said in out


def test_a_verdict_says_what_it_covers() -> None:
    """As the command line does: a derivation, or the worlds and the line at which there was none."""
    proved = decgraph.load("speculative").check(models=2)
    page = Wellformed(proved._repr_html_())
    assert proved.verdict == "proved" and proved.reach() in page.text and "`rejection` is lossless" in page.text
    report = decgraph.load("beam_patience").check(models=2)
    page = Wellformed(report._repr_html_())
    assert report.verdict == "holds" and report.tried.words()
    assert all(words in page.text for words in (report.reach(), *report.stopped(), *report.tried.words()))
    assert f"{report.runs:,} in" in page.text and "0 of them" not in page.text


@pytest.mark.parametrize("name", ["speculative", "lookahead"])
def test_the_model_calls_of_a_step_are_shown(name: str) -> None:
    report = calls_of(decgraph.load(name).module)
    page = Wellformed(report._repr_html_())
    shown = "".join(page.text.split())
    for line in report.text().splitlines():
        assert "".join(line.split()) in shown, line


@pytest.mark.parametrize(("name", "said"), [("beam", "no verified draft"), ("speculative", "accepted draft")])
def test_a_result_calls_nothing_verified_that_was_not(name: str, said: str) -> None:
    session = open_tables(name)
    result, _ = recorded(session, max_tokens=6)
    page = Wellformed(result._repr_html_())
    assert said in page.text
    assert (name == "beam") == ("the target's own token" not in page.text and "bonus" not in page.text)
