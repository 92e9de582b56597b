"""The page of a run in Chromium: what it shows, its keys, hostile text, a long run."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lib.chromium import browser, page  # noqa: F401  # fixtures
from lib.stdlib.recorded_runs import REVOKING, traced

from decgraph.cli.summary import WHY
from decgraph.views.document import Trace
from decgraph.views.page import fewer, trace_page
from decgraph.views.words import visible

IMAGES = Path(__file__).parents[2] / "docs" / "images"
HOSTILE = ["a", "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!--", "&lt;b&gt;", '"\n\u2028']


def opened(page: Any, tmp_path: Path, *runs: Trace) -> Any:  # noqa: F811
    """The page of runs, loaded from a file."""
    file = tmp_path / "trace.html"
    file.write_text(trace_page(runs), encoding="utf-8")
    page.goto(file.as_uri())
    return page


def test_text_tree_and_line_of_a_step(page: Any, tmp_path: Path) -> None:  # noqa: F811
    run = traced("speculative", max_tokens=30)
    opened(page, tmp_path, run)
    assert page.locator(".text").inner_text().replace("\n", "") == ("ab" + run.detokenizer.text(run.tokens)).replace("\n", "")
    page.keyboard.press("Home")
    for number, step in enumerate(run.steps):
        assert page.inner_text("#count") == f"step {number + 1} of {len(run.steps)}"
        assert page.locator(".text .now").count() == step.count
        assert page.locator("[role=treeitem].rejected").count() == sum(
            n.state == "rejected" for t in step.trees for n in t.nodes
        )
        assert page.inner_text(".source .current").strip() == "commit t.accepted"
        page.keyboard.press("ArrowRight")
    accepted = page.locator(".text [data-i].accepted").count()
    assert accepted == sum(step.origins.count("accepted") for step in run.steps) > 0
    assert {"p (verifier)", "q (draft)"} <= set(page.locator(".tests th").all_inner_texts())


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_lines_that_ran_are_marked(page: Any, tmp_path: Path, backend: str) -> None:  # noqa: F811
    opened(page, tmp_path, traced("speculative", backend))
    marked = [line.strip() for line in page.locator(".source .visited").all_inner_texts()]
    assert marked == [
        "while not done:", "draft t:", "repeat gamma:", "x ~ drafter(t.leaves)", "grow x",
        "verify t by rejection against target(t)", "commit t.accepted"]  # fmt: skip


def test_tree_and_table_have_one_q(page: Any, tmp_path: Path) -> None:  # noqa: F811
    """Of drawn drafts the same number, of chosen ones none."""
    for name, temperature in (("sequoia", 0.6), ("eagle2", 1.0)):
        run = traced(name, temperature=temperature)
        opened(page, tmp_path, run)
        tested = [sum(n.state in ("accepted", "rejected") for t in step.trees for n in t.nodes) for step in run.steps]
        page.evaluate("step => page.go(page.lead, step)", tested.index(max(tested)))
        head = page.locator(".tests th").all_inner_texts()
        column = head.index("score" if name == "eagle2" else "q (draft)") + 1
        told = page.evaluate(f"[...document.querySelectorAll('.tests td:nth-child({column})')].map((cell) => cell.textContent)")
        told = [q for q in told if q]  # a token of the target's own has none
        assert len(told) == max(tested) > 1
        beside = page.locator("[role=treeitem].accepted, [role=treeitem].rejected")
        said = [beside.nth(i).get_attribute("aria-label") for i in range(beside.count())]
        assert ("q (draft)" in head) == (name == "sequoia") and len(said) == len(told)
        for number in told:
            assert any(f"; {'score' if name == 'eagle2' else 'q'} {number}" in words for words in said)
        assert all(("chosen, not drawn" in words) == (name == "eagle2") for words in said)


def test_spaces_are_seen_everywhere(page: Any, tmp_path: Path) -> None:  # noqa: F811
    """A newline and two spaces, or four, are not the same token, in the tree, in the list of events and in the difference."""
    pieces = ["a", "\n    ", "\n  ", "b  c"]
    opened(page, tmp_path, traced("speculative", pieces=pieces, prompt="a", max_tokens=24))
    log = ""
    for _ in range(6):
        log += page.inner_text(".log")
        page.keyboard.press("ArrowRight")
    assert '"⏎····"' in log and '"⏎··"' in log and '"b··c"' in log
    assert page.evaluate('["\\n    x", " a b ", "\\t "].map((t) => visible(t))') == ["⏎····x", "·a b·", "⇥·"]
    texts = ["_", " ", "__", "\t\n", "a  b", " a", "\n \n", ""]
    assert page.evaluate("texts => texts.map((t) => visible(t))", texts) == [visible(text) for text in texts]
    shown = traced("speculative", pieces=["a", "_", "\t", "  "], prompt="a", max_tokens=24)
    opened(page, tmp_path, shown)
    marks = page.evaluate("""['.text .tab', '.text .blank'].map((s) => document.querySelectorAll(s).length)""")
    assert marks == [sum(t == n for t in shown.tokens) for n in (2, 3)] and all(marks)
    bottoms = page.evaluate(
        """[...document.querySelectorAll(".text [data-i]")].map((e) => getComputedStyle(e).paddingBottom)"""
    )
    assert {float(px.removesuffix("px")) >= 2 for px in bottoms} == {True}, "an underscore clears the line below it"


@pytest.mark.quick("mcts")
@pytest.mark.parametrize("name", ["speculative", "mcts", "remdm_loop"])
def test_a_narrow_window_does_not_scroll_sideways(page: Any, tmp_path: Path, name: str) -> None:  # noqa: F811
    page.set_viewport_size({"width": 360, "height": 700})
    run = traced(name)
    opened(page, tmp_path, run)
    for _ in range(3):
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.keyboard.press("ArrowRight")


def test_a_dark_page_is_printed_light(page: Any, tmp_path: Path) -> None:  # noqa: F811
    """Ink is dark on light paper, in the text and in the canvases, and the page is dark again afterwards."""
    page.emulate_media(color_scheme="dark")
    opened(page, tmp_path, traced("remdm_loop", length=8, rounds=4, max_tokens=8))
    paint = "[getComputedStyle(document.body).color, page.views[0].time.toDataURL()]"
    ink, drawn = page.evaluate(paint)
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    printed = page.evaluate(paint)
    assert ink == "rgb(230, 232, 234)" and printed[0] == "rgb(31, 35, 40)" and printed[1] != drawn
    page.emulate_media(media="screen", color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(paint) == [ink, drawn]


def test_a_decided_token_that_is_replaced(page: Any, tmp_path: Path) -> None:  # noqa: F811
    """It is counted and called so: neither a first decision, nor the same token decided again."""
    file = tmp_path / "edits.dec"
    file.write_text(
        "algorithm edits(model: masked, length: int in 1..32 = 8):\n    canvas c: length\n    repeat 4:\n"
        "        p = model(c)\n        x ~ p\n        c[c.all] = x\n    commit c\n"
    )
    run = traced(str(file), max_tokens=8)
    opened(page, tmp_path, run)
    page.keyboard.press("Home")
    cells: dict[int, int] = {}
    total = 0
    for step in run.steps:
        replaced = sum(cells.get(e.position, e.token) != e.token for e in step.edits)
        cells |= {e.position: e.token for e in step.edits}
        said = page.inner_text("section[aria-label=Step]")
        assert f"{8 - replaced} position{'s' * (replaced != 7)} decided, {replaced} replaced, 0 masked again" in said
        assert said.count("replaced by") == replaced
        total += replaced
        page.keyboard.press("ArrowRight")
    assert total


def test_a_cell_that_a_step_changes_twice_shows_both(page: Any, tmp_path: Path) -> None:  # noqa: F811
    """The canvas is red in three rows, the legend says so and has the run's own range, and a touched cell tells its history."""
    file = tmp_path / "revoking.dec"
    file.write_text(REVOKING)
    run = traced(str(file), max_tokens=4)
    opened(page, tmp_path, run)
    legend = page.inner_text(".heat")
    low, high = (f"confidence {float(f'{x:.3f}'):g}" for x in run.sure)
    assert low in legend and high in legend and "changed twice or more" in legend
    places = [step.edits[-1].position for step in run.steps]
    colours = page.evaluate("""places => {
        const { cells, cellSize: { w, h } } = page.views[0], ratio = devicePixelRatio;
        const { data, width } = cells.getContext("2d").getImageData(0, 0, cells.width, cells.height);
        const spot = (x, row) => 4 * (Math.floor((row + 0.7) * h * ratio) * width + Math.floor((LABEL + x * w) * ratio));
        const at = (x, row) => data.slice(spot(x, row), spot(x, row) + 3).join();
        return places.map((place, row) => [at(place + 0.2, row), at(place + 0.75, row)]);
    }""", places)  # fmt: skip
    red = colours[0][1]
    assert [b == red for _, b in colours] == [True] * 3 + [False] * 4 and all(a != red for a, _ in colours)
    page.keyboard.press("Home")
    assert page.locator(".text .again").count() == 1
    assert "1 cell changed twice or more" in page.inner_text("section[aria-label=Step]")
    page.keyboard.press("End")
    assert page.locator(".text .again").count() == 0
    left, wide, high = page.evaluate("(() => { const { w, h } = page.views[0].cellSize; return [LABEL, w, h]; })()")
    page.locator("canvas").first.click(position={"x": left + (places[1] + 0.5) * wide, "y": 1.5 * high})
    assert page.inner_text("#count") == "step 2 of 7"
    assert f"position {places[1]}" in page.inner_text(".drawing + .detail")
    assert "masked again in step 2" in page.inner_text(".drawing + .detail")


def test_the_page_says_how_a_run_ended_as_the_command_line_does(page: Any, tmp_path: Path) -> None:  # noqa: F811
    run = traced("autoregressive", max_tokens=2)
    opened(page, tmp_path, run)
    assert page.evaluate("ENDED") == WHY
    assert f"ended by {WHY[run.reason]}" in page.inner_text("article > div")


def test_one_is_singular(page: Any, tmp_path: Path) -> None:  # noqa: F811
    run = traced("autoregressive", max_tokens=6)
    for same, said in (
        (0, "First difference at token 1"),
        (1, "The first token is the same. "),
        (2, "The first 2 tokens are the same. "),
    ):
        changed = tuple((t + (i == same)) % 4 for i, t in enumerate(run.tokens))
        opened(page, tmp_path, run, replace(run, tokens=changed))
        assert page.inner_text("#difference").startswith(said)
    opened(page, tmp_path, traced("llada", "torch", max_tokens=1, length=1, block=1, steps=1))
    assert "1 token in 1 step, 1 model call, 1 token a call" in page.inner_text("article > div")
    assert "masked: 1 call," in page.locator("section[aria-label='Model calls over time']").inner_text()


def test_the_share_that_was_computed_anew(page: Any, tmp_path: Path) -> None:  # noqa: F811
    """A policy that caches what is outside of a block of four computes four of ten positions in three calls of four."""
    opened(page, tmp_path, traced("fast_dllm", "torch", length=8, block=4, tau=1.0, max_tokens=8))
    shares = page.evaluate("""(() => {
        const { cells, cellSize, run } = page.views[0], ratio = devicePixelRatio, wide = 38 * ratio;
        const bars = cells.getContext("2d").getImageData((LABEL - 44) * ratio, 0, wide, cells.height).data;
        return run.steps.map((_, row) => {
            const at = Math.floor((row + 0.4) * cellSize.h * ratio) * wide;
            return Array.from({ length: wide }, (_, i) => bars[4 * (at + i) + 3] > 128).filter(Boolean).length / wide;
        });
    })()""")
    assert shares == pytest.approx([1, 0.4, 0.4, 0.4] * 2, abs=0.03)


def test_keys(page: Any, tmp_path: Path) -> None:  # noqa: F811
    run = traced("speculative", max_tokens=40)
    opened(page, tmp_path, run)
    said = lambda: page.inner_text("#count")
    last = len(run.steps)
    for key, there in (("End", last), ("ArrowLeft", last - 1), ("Home", 1), ("ArrowLeft", 1), ("ArrowRight", 2)):
        page.keyboard.press(key)
        assert said() == f"step {there} of {last}"
    page.keyboard.press("ArrowUp")
    assert page.inner_text(".source .current").strip() == "verify t by rejection against target(t)"
    page.keyboard.press("/")
    page.keyboard.type(run.detokenizer.text(run.tokens[20:24]))
    found = page.inner_text("#found")
    assert found.startswith("token ") and page.locator(".hit").count() >= 1
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.locator(".text [data-i='0']").click()
    assert said() == f"step 1 of {last}"


def test_every_control_and_drawing_has_a_name(page: Any, tmp_path: Path) -> None:  # noqa: F811
    opened(page, tmp_path, traced("speculative"), traced("llada"))
    unnamed = page.evaluate("""[...document.querySelectorAll(
        "button, input, canvas, section, dialog, svg.fit, [role=group], [role=tree], [role=treeitem]")]
        .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim())).map((e) => e.outerHTML.slice(0, 80))""")
    assert unnamed == []
    assert page.evaluate("document.documentElement.lang") == "en"


def test_a_canvas_is_shown_as_it_was_at_each_step(page: Any, tmp_path: Path) -> None:  # noqa: F811
    run = traced("remdm_loop", length=8, rounds=4, max_tokens=8)
    opened(page, tmp_path, run)
    page.keyboard.press("Home")
    cells: dict[int, int] = {}
    frames = []
    for step in run.steps:
        for edit in step.edits:
            cells[edit.position] = edit.token
        masked = sum(cells.get(i, -1) < 0 for i in range(8))
        frames.append(masked)
        assert page.locator(".text .masked").count() == masked
        page.keyboard.press("ArrowRight")
    assert run.stats.remasked and frames[-1] == 0
    for masked in reversed(frames[:-1]):
        page.keyboard.press("ArrowLeft")
        assert page.locator(".text .masked").count() == masked
    assert "masked again" in page.locator("canvas").first.get_attribute("aria-label")


def test_two_runs_beside_each_other(page: Any, tmp_path: Path) -> None:  # noqa: F811
    one, two = traced("speculative", max_tokens=30), traced("autoregressive", max_tokens=30, seed=3)
    first = next(i for i, (a, b) in enumerate(zip(one.tokens, two.tokens)) if a != b)
    opened(page, tmp_path, one, two)
    assert f"First difference at token {first + 1}" in page.inner_text("#difference")
    marked = page.locator(".differs")
    assert [marked.nth(i).get_attribute("data-i") for i in range(marked.count())] == [str(first)] * 2
    page.keyboard.press("d")
    reached = page.evaluate("page.views.map((v) => v.reached(v.step))")
    assert all(n > first for n in reached)
    page.keyboard.press("ArrowRight")
    a, b = page.evaluate("page.views.map((v) => v.reached(v.step))")
    assert a == b, "one token a step: the other run stops at the same token"
    opened(page, tmp_path, one, one)
    assert "Both commit the same 30 tokens" in page.inner_text("#difference")


def test_a_tree_fits_zooms_and_moves(page: Any, tmp_path: Path) -> None:  # noqa: F811
    """The whole tree first; wheel and keys zoom, the overview comes and moves it; pruned nodes are behind a switch."""
    run = traced("eagle2")
    opened(page, tmp_path, run)
    step = run.steps[page.evaluate("page.lead.step")]
    pruned = sum(node.state == "pruned" for tree in step.trees for node in tree.nodes)
    kept = sum(len(tree.nodes) for tree in step.trees) - pruned
    assert {"accepted", "rejected"} <= {node.state for tree in step.trees for node in tree.nodes}, "it opens on what tells most"
    nodes, overview, box = page.locator("[role=treeitem]"), page.locator(".overview"), page.locator(".tree")
    assert nodes.count() == kept + 1 and not overview.is_visible()
    inside = "[...document.querySelectorAll('[role=treeitem] rect')].map((e) => e.getBoundingClientRect())"
    frame = box.bounding_box()
    for at in page.evaluate(f"{inside}.map((r) => [r.left, r.right, r.top, r.bottom])"):
        assert frame["x"] <= at[0] and at[1] <= frame["x"] + frame["width"] + 1
        assert frame["y"] <= at[2] + 1 and at[3] <= frame["y"] + frame["height"] + 1
    box.hover()
    before = page.evaluate("page.lead.drawn[0].at.k")
    page.mouse.wheel(0, -400)
    page.wait_for_function(f"page.lead.drawn[0].at.k > {before}")
    assert overview.is_visible()
    box.focus()
    page.keyboard.press("0")
    assert page.evaluate("page.lead.drawn[0].at.k") == pytest.approx(before) and not overview.is_visible()
    page.keyboard.press("p")
    assert page.evaluate("page.lead.drawn[0].at.k") == 1
    deepest = [node for tree in step.trees for node in tree.nodes if node.state in ("accepted", "emitted")][-1]
    assert run.piece(deepest.token).strip() in page.inner_text(".detail")
    page.keyboard.press("ArrowLeft")
    active = page.locator(f"#{box.get_attribute('aria-activedescendant')}")
    assert active.get_attribute("aria-label") == page.inner_text(".detail")
    assert page.inner_text("#count").startswith(f"step {page.evaluate('page.lead.step') + 1} of"), (
        "an arrow in the tree is no step"
    )
    page.get_by_role("checkbox", name=f"{pruned} pruned").check()
    assert nodes.count() == kept + pruned + 1


def test_a_box_without_room_is_read_by_a_tap(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    """On a narrow screen the page says so, and a tap beside a box that is three pixels high finds it."""
    phone = browser.new_page(viewport={"width": 400, "height": 800}, has_touch=True)
    run = traced("eagle2")
    opened(phone, tmp_path, run)
    assert "too small for their text: tap" in phone.inner_text(".detail")
    box = phone.locator("[role=treeitem]:not(:has(text.token:not(:empty)))").last
    said = box.get_attribute("aria-label")
    phone.locator(".tree").scroll_into_view_if_needed()
    at = box.locator("rect").bounding_box()
    phone.touchscreen.tap(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
    assert phone.inner_text(".detail").splitlines()[0] == said
    texts = phone.evaluate("""[...document.querySelectorAll("[role=treeitem]")].map((g) => {
        const text = g.querySelector(".token"), box = g.querySelector("rect").getBoundingClientRect();
        return text.textContent ? box.bottom - text.getBoundingClientRect().bottom : 1;
    })""")
    assert min(texts) > 0, "the lowest of a text, an underscore, is inside its box"
    phone.close()


def test_a_search_is_one_tree_with_what_it_searches_by(page: Any, tmp_path: Path) -> None:  # noqa: F811
    run = traced("mcts", max_tokens=6, rolls=9)
    opened(page, tmp_path, run)
    assert page.inner_text("#count") == "step 9 of 9"
    (tree,) = {id(tree): tree for step in run.steps for tree in step.trees}.values()
    answer = [node for node in tree.nodes if node.state == "committed"]
    inside = "page.lead.drawn[0].all.flatMap((d) => d.data.line).filter((node) => node.state === 'committed')"
    shown = page.evaluate(f"{inside}.map((node) => [node.token, node.columns.visits])")
    assert shown == [[node.token, node.columns["visits"][-1][1]] for node in answer] and len(shown) > 1
    said = page.locator("[role=treeitem].committed").first.get_attribute("aria-label")
    assert f"visits {answer[0].columns['visits'][-1][1]:g}" in said
    assert {"visits", "worth", "prior"} <= set(page.locator(".tests th").all_inner_texts())
    whole = page.evaluate("page.lead.drawn[0].nodes.length")
    page.keyboard.press("Home")
    assert page.evaluate("page.lead.drawn[0].nodes.length") == sum(node.born == 0 for node in tree.nodes) < whole
    assert page.locator("[role=treeitem].committed").count() == 0


def test_a_difference_alarms_only_where_tokens_must_be_equal(page: Any, tmp_path: Path) -> None:  # noqa: F811
    one, two = traced("speculative", max_tokens=8), traced("autoregressive", max_tokens=8, seed=3)
    for temperature, must in ((1.0, False), (0.0, True)):
        opened(page, tmp_path, *(replace(run, temperature=temperature) for run in (one, two)))
        assert ("They must be equal" in page.inner_text("#difference")) == must
        assert ("This is expected" in page.inner_text("#difference")) == (not must)
        assert (page.locator("#difference").get_attribute("role") == "alert") == must
    opened(page, tmp_path, traced("beam", max_tokens=4), traced("speculative", max_tokens=4, seed=5))
    assert "No claim says" in page.inner_text("#difference")


def test_a_page_of_a_run_that_goes_on_is_read_again(page: Any, tmp_path: Path) -> None:  # noqa: F811
    """It follows the last step, stays where one has gone, and rests when the run has ended."""
    run = traced("speculative", max_tokens=30)
    opened(page, tmp_path, replace(run, live=True))
    assert page.inner_text("#count") == f"step {len(run.steps)} of {len(run.steps)}" and "still going on" in page.inner_text(
        "article"
    )
    page.keyboard.press("Home")
    (tmp_path / "trace.html").write_text(trace_page([run]), encoding="utf-8")
    page.locator("article > div", has_text="ended by").first.wait_for()
    assert page.inner_text("#count") == f"step 1 of {len(run.steps)}" and "ended by" in page.inner_text("article")


def test_acceptance_has_counts_and_intervals(page: Any, tmp_path: Path) -> None:  # noqa: F811
    run = traced("speculative", max_tokens=30)
    opened(page, tmp_path, run)
    said = page.locator("svg.fit").get_attribute("aria-label")
    for accepted, tested, (low, high) in zip(run.stats.accepted, run.stats.tested, run.stats.intervals, strict=True):
        assert low <= accepted / tested <= high
        assert f"{accepted} of {tested}, 95 % interval {low * 100:.0f} to {high * 100:.0f} %" in said
    bar, token = ("svg.fit .bar", "fill"), (".text .accepted", "border-bottom-color")
    colours = [page.evaluate(f"getComputedStyle(document.querySelector('{s}'))['{p}']") for s, p in (bar, token)]
    assert colours[0] == colours[1], "green is accepted everywhere"


def test_a_notebook_shows_the_page_in_a_frame(page: Any, tmp_path: Path) -> None:  # noqa: F811
    """Without a server and apart from the notebook: its script runs, and cannot reach the page around it."""
    run = traced("speculative", max_tokens=12)
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><title>notebook</title>{run._repr_html_()}", encoding="utf-8")
    page.goto(file.as_uri())
    frame = page.frame_locator("iframe")
    assert frame.locator("#count").inner_text().endswith(f"of {len(run.steps)}")
    frame.locator("#next").click()
    assert frame.locator("[role=treeitem]").count() > 1
    assert repr(run) == f"<trace of speculative: 12 tokens in {len(run.steps)} steps>"


def test_the_vendored_d3_is_the_pinned_one() -> None:
    folder = Path(__file__).parents[2] / "views" / "d3"
    digest = hashlib.sha256((folder / "d3.min.js").read_bytes()).hexdigest()
    assert len(trace_page([traced("eagle2")])) < 250_000, "d3 and the page itself are small"
    assert f"{digest}  d3.min.js" in (folder / "README.md").read_text(encoding="utf-8")
    licence = (folder / "LICENSE").read_text(encoding="utf-8")
    asked = re.findall(r'from "([^"]+)"', (folder / "entry.js").read_text(encoding="utf-8"))
    assert asked and all(f"{name} " in licence for name in asked)


def test_a_page_holds_a_bounded_number_of_pruned_drafts(page: Any, tmp_path: Path) -> None:  # noqa: F811
    tree = [[7, -1, "drafted"], *[[n, parent, "pruned"] for n in range(9) for parent in (-1, 0, 1)], [5, 0, "accepted"]]
    kept = fewer(tree, 4)
    assert [row[2] for row in kept].count("pruned") == 4 and [row[2] for row in kept if row[2] != "pruned"] == [
        "drafted",
        "accepted",
    ]
    assert all(-1 <= row[1] < i for i, row in enumerate(kept)) and kept[-1] == [5, 0, "accepted"]
    assert fewer(tree, 99) == tree
    opened(page, tmp_path, traced("eagle2"))
    assert len({*page.evaluate("page.views[0].run.omitted")}) == 1, "a short run lacks none"


@pytest.mark.parametrize("name", ["speculative", "llada"])
def test_hostile_tokens_are_text(page: Any, tmp_path: Path, name: str) -> None:  # noqa: F811
    run = replace(traced(name, pieces=HOSTILE, prompt="a", max_tokens=24), error="<b id=bold>", models={"<i>": "<script>"})
    assert set(run.tokens) & {1, 2}
    opened(page, tmp_path, run)
    page.keyboard.press("End")
    assert page.locator("img, #bold").count() == 0 and page.locator("script").count() == 2
    shown = page.evaluate("[...document.querySelectorAll('[data-i]')].map((e) => e.textContent).join('')")
    assert shown == "".join(HOSTILE[t] for t in run.tokens)


@pytest.mark.nightly
def test_two_thousand_tokens_stay_fluid(page: Any, tmp_path: Path) -> None:  # noqa: F811
    """A key costs well under 50 ms by the page's own clock; the bound is wide, since this machine has other work."""
    run = traced("speculative", max_tokens=2000)
    assert len(run.tokens) == 2000
    opened(page, tmp_path, run)
    times = []
    for key in ["ArrowRight"] * 30 + ["End"] + ["ArrowLeft"] * 20 + ["Home"] + ["PageDown"] * 10:
        page.keyboard.press(key)
        times.append(float(page.evaluate("document.body.dataset.keyMs")))
    times.sort()
    print(f"a key: median {times[len(times) // 2]:.1f} ms, slowest {times[-1]:.1f} ms")
    assert times[len(times) // 2] < 50


def test_pictures_for_the_documentation(page: Any, tmp_path: Path, pytestconfig: pytest.Config) -> None:  # noqa: F811
    """Written with --update-golden alone: text is drawn a little differently everywhere."""
    if not pytestconfig.getoption("--update-golden"):
        opened(page, tmp_path, traced("sequoia", max_tokens=20))
        assert page.screenshot()[:4] == b"\x89PNG"
        return
    from decgraph.cli.main import main

    for name, words in {
        "trace": ["sequoia", "-t", "0.8"],
        "trace-canvas": ["remdm_loop", "-n", "48"],
        "trace-two": ["speculative", "-t", "0.8", "--against", "sequoia"],
    }.items():
        file = tmp_path / f"{name}.html"
        assert main(["trace", *words, "-p", "def main():", "-o", str(file)]) == 0
        page.goto(file.as_uri())
        page.screenshot(path=IMAGES / f"{name}.png", full_page=True)
