"""What canvas programs say: spans inside `unmask`, trees of canvases, masks as indices, loops that decide nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.backends.registry import machine
from decgraph.check.worlds import models_for
from decgraph.errors import DecError
from decgraph.passes.plan import Plan
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

BACKENDS = pytest.mark.parametrize("backend", ["reference", "torch"])
HEAD = "algorithm a(model: masked, length: int in 1..64 = 8, tau: prob = 1.0, n: int in 0..4 = 1):\n    canvas c: length\n"
LOOP = (
    HEAD
    + """
    for b in blocks(c, 4):
        while any(c.masked[b]):
            p = model(c)
            x ~ p
            {}
    commit c
"""
)


def result(text: str, backend: str, **params: Any) -> Any:
    model = TableModel(3, 2, kind="masked", name="model")
    session = decgraph.parse(text).session({"model": model}, plan=Plan(backend=backend), **params)
    return session.run(Request((1, 2), max_tokens=8, eos=frozenset(), temperature=0))


def calls(text: str, backend: str) -> int:
    found = result(text, backend)
    assert found.error is None and len(found.tokens) == 8, found.error
    return int(found.stats.target_calls)


@pytest.mark.quick(first=2)
@BACKENDS
@pytest.mark.parametrize("condition", ["b.start == 0 or b.start == 4", "b.stop == b.start + 4", "b.index < 2", "len(b) == 4"])
def test_a_span_in_unmask_is_itself(condition: str, backend: str) -> None:
    """Also when some of its cells are decided."""
    alone = LOOP.format("unmask c[b] where rank(p.raw[x]) < 1 with x")
    said = LOOP.format(f"unmask c[b] where rank(p.raw[x]) < 1 and ({condition}) with x")
    assert calls(said, backend) == calls(alone, backend) == 8


@BACKENDS
def test_rows_in_unmask_are_those_still_masked(backend: str) -> None:
    alone = result(LOOP.format("unmask c[b] where rank(p.raw[x]) < 1 with x"), backend)
    again = result(LOOP.format("unmask c[b] where rank(p.raw[b][x[b]]) < 1 with x[b]"), backend)
    assert again.error is None and again.tokens == alone.tokens


@pytest.mark.parametrize("condition", ["rank(p.raw[x] - late) < 1", "late < 0.5", "rank(p.raw[x]) < 1 and late < 0.5"])
def test_a_vector_of_unknown_range_is_refused(condition: str) -> None:
    text = LOOP.format(f"late = range_(0, 4) / 4\n            unmask c[b] where {condition} with x")
    with pytest.raises(DecError, match="not known that it ranges over the cells") as error:
        decgraph.parse(text)
    assert "E381" in str(error.value) and "where" in str(error.value)
    indexed = "unmask c[b] where rank(p.raw[x]) < 1 + int(late[0]) with x"
    decgraph.parse(LOOP.format(f"late = range_(0, 4) / 4\n            {indexed}"))


@BACKENDS
def test_a_tree_of_canvases_at_some_cells_keeps_their_places(backend: str) -> None:
    """Rows of a tree's root at the second block are those of the canvas itself, draws and numbers too."""
    text = (
        HEAD
        + """
    b = span(c, 4, 4)
    draft v of c:
        grow edit(0, 1)
    p = model(c, at = b)
    q = model(v, at = b)
    y ~ q
    x ~ p
    for i in 4..8:
        c[span(c, i, 1)] = 1 if q[0][b[i - 4]].raw[0] == p[b[i - 4]].raw[0] and y[0][b[i - 4]] == x[b[i - 4]] else 0
    c[span(c, 0, 4)] = 1
    commit c
"""
    )
    found = result(text, backend)
    assert found.error is None and found.tokens == (1,) * 8, found.error


@BACKENDS
def test_a_mask_beside_an_index_is_a_mask(backend: str) -> None:
    text = (
        HEAD
        + """
    p = model(c)
    x = argmax(p.raw)
    c[span(c, 0, 3)] = 1
    t = zeros(length, vocab)
    t[c.masked, x] += 1.0
    s = t[c.all, x]
    c[c.all where s > 0.5] = 2
    commit c
"""
    )
    found = result(text, backend)
    assert found.error is None and found.tokens == (1, 1, 1, 2, 2, 2, 2, 2), found.error


@BACKENDS
def test_a_loop_that_decides_nothing_ends(backend: str) -> None:
    text = (
        HEAD
        + """
    while any(c.masked):
        p = model(c)
        x ~ p
        if max(p.raw[0]) > 2:
            unmask c with x
    commit c
"""
    )
    found = result(text, backend)
    assert found.error is not None and "decided no cell" in str(found.error) and ":4:" in str(found.error)


@pytest.mark.parametrize("made", ["x ~ p", "x = argmax(p.raw)"])
@pytest.mark.parametrize(("target", "ended"), [("c", "c.masked"), ("c[b]", "c.masked[b]")])
@pytest.mark.parametrize(
    ("condition", "fine"),
    [
        ("p.raw[x] >= tau", False),
        ("tau <= p.raw[x]", False),
        ("rank(p.raw[x]) < n", False),
        ("max(p.raw) >= tau", False),
        ("rank(p.raw[x]) < 1", True),
        ("sure(p.raw[x], tau)", True),
        ("p.raw[x] >= tau or first_max(p.raw[x])", True),
    ],
)
def test_a_threshold_alone_may_choose_nothing(condition: str, fine: bool, target: str, ended: str, made: str) -> None:
    text = (
        HEAD
        + f"""
    for b in blocks(c, 4):
        while any({ended}):
            p = model(c, at = b)
            {made}
            unmask {target} where {condition} with x
    commit c
""".replace("model(c, at = b)", "model(c)")
    )
    if fine:
        decgraph.parse(text)
        return
    with pytest.raises(DecError, match="E420"):
        decgraph.parse(text)


@BACKENDS
def test_delayed_caches_run(backend: str) -> None:
    text = (Path(__file__).parent / "programs" / "dkv_decode.dec").read_text(encoding="utf-8")
    found = result(text, backend, block=4, steps=4)
    assert found.error is None and len(found.tokens) == 8


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("attention = yes", "memory takes at =, given = and queries =, not attention ="),
        ("layers = yes", "not layers ="),
        ("queries = 3", "takes yes or no"),
        ("queries = c", "takes yes or no"),
    ],
)
def test_what_a_memory_cannot_hold_is_refused(said: str, message: str) -> None:
    with pytest.raises(DecError, match=f"E260.*{message}"):
        decgraph.parse(HEAD + f"\n    m = model.memory(c, {said})\n    p = model(c, given = m)\n    commit c\n")


@BACKENDS
def test_queries_change_nothing_else_of_a_memory(backend: str) -> None:
    text = (
        HEAD
        + """
    m = model.memory(c{})
    p = model(c, at = c.all, given = m)
    x ~ p
    unmask c with x
    commit c
"""
    )
    found = [result(text.format(said), backend) for said in ("", ", queries = no", ", queries = yes")]
    assert [r.error for r in found] == [None] * 3 and len({r.tokens for r in found}) == 1


@pytest.mark.parametrize("said", ["at = c.all, queries = yes", "given = m, queries = yes"])
def test_queries_are_those_of_a_whole_canvas(said: str) -> None:
    with pytest.raises(DecError, match="a whole canvas"):
        decgraph.parse(HEAD + f"\n    m = model.memory(c)\n    n = model.memory(c, {said})\n    commit c\n")


def test_scores_are_of_positions() -> None:
    with pytest.raises(DecError, match="E260.*of"):
        decgraph.parse(HEAD + "\n    m = model.memory(c, queries = yes)\n    s = m.scores(c.all, of = c.all)\n    commit c\n")


@BACKENDS
@pytest.mark.parametrize("mixed", ["normalize({} ^ 2)", "softmax(log({} + 0.1) * 3)"])
def test_a_mixture_over_a_span_lines_up_with_its_cells(mixed: str, backend: str) -> None:
    """It is made of numbers, which do not know their cells; in every block but the first, places would be other rows."""
    rows = "unmask c[b] where rank(p.raw[x]) < 1 with x"
    whole = result(LOOP.replace("p = model(c)", f"p = {mixed.format('model(c).raw')}[b]").format(rows), backend)
    part = result(LOOP.replace("p = model(c)", f"p = {mixed.format('model(c, at = b).raw')}").format(rows), backend)
    assert part.error is None and part.tokens == whole.tokens


@pytest.mark.parametrize("value", ["normalize(p.raw ^ 2)[left]", "softmax(p.logits * 2)[left[0]]"])
def test_distributions_that_do_not_know_their_places_take_none(value: str) -> None:
    text = LOOP.replace("p = model(c)", "p = model(c, at = b)").format(
        f"left = b where c.masked[b]\n            v = {value}\n            unmask c[b] with x"
    )
    with pytest.raises(DecError, match="E382"):
        decgraph.parse(text)


@pytest.mark.parametrize(
    "condition",
    [
        "sure(s, 0.5) and c.masked",
        "c.masked and (sure(s, 0.5) or rank(s) < 2)",
        "where(c.decided, no, rank(s) < 2)",
        "(c.token == 0 or rank(s) < 2) and count(c.masked) > 0",
        "rank(s) < 2 and c.masked[c.all[0]] or rank(s) < 1",
    ],
)
def test_what_a_canvas_has_beside_rows_of_open_cells_means_these_cells(condition: str) -> None:
    """`s` has a row for each masked cell there, so `c.masked` has too."""
    head = "algorithm a(model: masked, length: int in 2..8 = 6):\n    canvas c: length\n\n    while any(c.masked):\n"
    body = "        p = model(c)\n        x ~ p\n        s = where(c.masked, p.raw[x], 0)\n"
    text = f"{head}{body}        unmask c where {condition} with x\n    commit c\n"
    module = decgraph.parse(text).module
    models = models_for(module.entry, 5, 1)
    request = Request(prompt=(1, 2), max_tokens=8)
    done = [Session(module, models, {}, machine=machine(backend)).run(request) for backend in ("reference", "torch")]
    assert done[0].error is None, done[0].error
    assert done[0].tokens == done[1].tokens and len(done[0].tokens) == 6


@pytest.mark.parametrize(
    ("condition", "where", "fine"),
    [
        ("any(c.masked)", "c.masked", True),
        ("any(c.masked[b])", "c.masked[b]", True),
        ("any(c.masked)", "c.masked and p.raw[x] >= tau", False),
    ],
)
def test_to_decide_what_the_loop_waits_for_is_to_decide_a_cell(condition: str, where: str, fine: bool) -> None:
    target = "c[b]" if "[b]" in where else "c"
    text = (
        HEAD
        + f"""
    for b in blocks(c, 4):
        while {condition}:
            p = model(c)
            x = argmax(p.raw)
            unmask {target} where {where} with x
    commit c
"""
    )
    if fine:
        decgraph.parse(text)
        return
    with pytest.raises(DecError, match="E420"):
        decgraph.parse(text)


def test_cells_are_decided_first_thing_in_a_branch() -> None:
    body = "p = model(c)\n    x ~ p\n    if n > 2:\n        c[c.all] = x\n    else:\n        c[c.all] = x.token\n    commit c\n"
    assert len(result(HEAD + "    " + body, "reference", n=3).tokens) == 8
