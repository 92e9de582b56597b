"""Signatures, hints, and hover on types, stores and their methods, on a text with a cursor (`|`)."""

from __future__ import annotations

from pathlib import Path

import pytest

import decgraph
import decgraph.stdlib
from decgraph.dsl import syntax as S
from decgraph.dsl.lower.access import TREE_SETS
from decgraph.editor.analysis import Analyser, Analysis
from decgraph.editor.hints import hints
from decgraph.editor.hover import hover
from decgraph.editor.signatures import signature

PROGRAM = '''\
def near(x: prob, tau: prob) -> bool:
    """Whether x is at least tau."""
    return x >= tau


algorithm f(target: causal, k: int in 1..3 = 2):
    """Drafts what followed."""
    refines autoregressive(target) in tokens
    state past: suffixes(4, 1000) per session

    while not done:
        p = target(ctx, given = target.memory(ctx.parent).only(range_(0, 3)))
        xs = topk(p.raw, k)
        for x in xs:
            ok = near(x.prob, tau = 0.25)
        draft t:
            grow chain(past.path(ctx, at_least = 1, pick = "first"))
        verify t by match against target(t)
        commit t.accepted
'''


def at(text: str) -> tuple[Analysis, int]:
    """A text, analysed, and the offset of its `|`."""
    offset = text.index("|")
    return Analyser().analyse(text[:offset] + text[offset + 1 :], "x.dec"), offset


def put(word: str, rest: str | None = None) -> str:
    """The program with a cursor after a word; with `rest` in place of what follows on that line."""
    before, after = PROGRAM.split(word, 1)
    return before + word + "|" + (after if rest is None else rest + after[after.index("\n") :])


@pytest.mark.parametrize(
    ("text", "label", "param"),
    [
        (put("topk("), "topk(p, k)", "p"),
        (put("topk(p.raw, "), "topk(p, k)", "k"),
        (put("topk(p.raw, ", ""), "topk(p, k)", "k"),  # half a line
        (put("topk(p.ra"), "topk(p, k)", "p"),
        (put("= near("), "near(x: prob, tau: prob) -> bool", "x: prob"),
        (put("near(x.prob, tau = "), "near(x: prob, tau: prob) -> bool", "tau: prob"),
        (put("= near(", ""), "near(x: prob, tau: prob) -> bool", "x: prob"),
        (put("autoregressive("), "autoregressive(target: causal)", "target: causal"),
        (put("past.path("), 'past.path(ctx, at_least = m, at_most = k, pick = "first")', "ctx"),
        (put("at_least = 1, "), 'past.path(ctx, at_least = m, at_most = k, pick = "first")', "at_most = k"),
        (put("at_least = 1, pick = "), 'past.path(ctx, at_least = m, at_most = k, pick = "first")', 'pick = "first"'),
        (put("past.path(", ""), 'past.path(ctx, at_least = m, at_most = k, pick = "first")', "ctx"),
        (put("path(ctx, at_least = 1"), 'past.path(ctx, at_least = m, at_most = k, pick = "first")', "at_least = m"),
        (put("given = "), "target(ns, given = m)", "given = m"),
        (put("target.memory("), "target.memory(ctx.parent)", "ctx.parent"),
        (put(".only("), "m.only(ps)", "ps"),
        (put("past: suffixes("), "suffixes(n, room)", "n"),
        (put("suffixes(4, "), "suffixes(n, room)", "room"),
    ],
)  # fmt: skip
def test_the_call_that_is_open(text: str, label: str, param: str) -> None:
    found = signature(*at(text))
    assert found is not None
    form = found.forms[found.form]
    assert form.label == label and form.doc
    start, end = form.params[found.param]
    assert label[start:end] == param


@pytest.mark.parametrize("text", [put("def near("), put("while not"), put("commit t.accepted"), put("verify t"), put("grow")])
def test_no_call_is_open(text: str) -> None:
    assert signature(*at(text)) is None


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("past: suff", ("suffixes(n, room)", "at most `room` tokens")),
        ("state pas", ("state past: suffixes(4, 1000)", 'past.path(ctx, at_least = m, at_most = k, pick = "first")')),
        ("past.pa", ("at_least = m, at_most = k", '`"likeliest"`')),
        ("target.mem", ("target.memory(ctx.parent)", "keys, values and features")),
        (".on", ("m.only(ps)", "some of its positions")),
        ("target: cau", ("causal", "models")),
        ("x: pro", ("prob", "numbers")),
        ("near(x.prob, ta", ("tau: prob",)),
        ("p.ra", ("p.raw: dist", "not shaped by it")),
    ],
)
def test_hover_on_types_stores_and_methods(word: str, said: tuple[str, ...]) -> None:
    found = hover(*at(put(word)))
    assert found is not None
    for part in said:
        assert part in found[0]


POOL = """\
rule careful(t: tree, p: dist[t.nodes]):
    y ~ p as output
    live = down(t, y[t.parent] == t.token, all)
    n = argmax(t.nodes where live, by = [t.depth])
    accept n
    emit y[n]

algorithm f(target: causal):
    state pool: lru[token, 4] -> token[2] per session

    while not done:
        draft t:
            grow chain(pool[ctx.token][0])
        verify t by careful against target(t)
        last = ctx.last(1)
        commit t.accepted
"""


@pytest.mark.parametrize(
    ("word", "said", "lacks"),
    [
        ("y[t.par", "the one above it", "token"),
        ("t.tok", "its token", "above"),
        ("(t.nod", "all nodes", "root"),
        ("state poo", "pool[x] += entry", "at_least"),
        ("lr", "were stored last under it", "suffixes"),
        ("ctx.la", "the last n committed tokens", "parent"),
        ("ctx.tok", "the last committed token", "length"),
    ],
)
def test_hover_in_rules_on_tables_and_on_the_context(word: str, said: str, lacks: str) -> None:
    before, after = POOL.split(word, 1)
    found = hover(*at(f"{before}{word}|{after}"))
    assert found is not None and said in found[0] and lacks not in found[0].partition("```\n")[2]


def test_nothing_that_the_language_has_is_silent() -> None:
    """Every attribute in some programs of the library, save the columns that they make themselves."""
    silent = []
    for path in sorted((Path(decgraph.stdlib.FOLDER)).glob("*.dec"))[::12]:
        found = Analyser().analyse(path.read_text(encoding="utf-8"), str(path))
        for item in found.file.items:
            for node in S.walk(item):
                if isinstance(node, S.Attr) and node.name in (
                    *TREE_SETS,
                    "token",
                    "parent",
                    "depth",
                    "logprob",
                    "law",
                    "raw",
                    "last",
                ):
                    if hover(found, node.name_span.start + 1) is None:
                        silent.append((path.name, node.name_span.line, node.name))
                if isinstance(node, S.TypeExpr) and hover(found, node.span.start) is None:
                    silent.append((path.name, node.span.line, node.name))
    assert not silent


def test_hints_are_of_names_without_a_written_type_and_of_claims() -> None:
    found = Analyser().analyse(PROGRAM)
    shown = hints(found, 0, len(PROGRAM), {"f": "proved for all models"})
    text = PROGRAM
    for hint in reversed(shown):
        text = f"{text[: hint.offset]}<{hint.text}>{text[hint.offset :]}"
    for part in ("p<: dist> = ", "xs<: draw over many> = ", "ok<: bool> = ", "in tokens<proved>\n", "past: suffixes", "k: int"):
        assert part in text
    assert len(shown) == 5 and "for x<: draw> in" in text
    line = PROGRAM.index("ok = ")
    assert [h.text for h in hints(found, line, line + 10, {"f": "proved"})] == [": bool"]
    assert all(h.is_type for h in hints(found, 0, len(PROGRAM), {}))  # nothing is known of the claim
