"""Hover, completion, definition, references, rename, outline and lenses, on texts with a cursor (`|`)."""

from __future__ import annotations

import re

import pytest

from decgraph.dsl.lower.builtins import METHODS
from decgraph.editor import function_lines
from decgraph.editor.analysis import Analyser, Analysis
from decgraph.editor.completion import complete
from decgraph.editor.hover import hover
from decgraph.editor.navigation import definition, lenses, outline, references, renamed
from decgraph.editor.words import STATEMENT_LINES, TYPES, VALUES, WORD_LINES, functions, helpers
from decgraph.errors import DecError

PROGRAM = '''\
from autoregressive import autoregressive


def near(x: prob, tau: prob) -> bool:
    """Whether x is at least tau."""
    return x >= tau


algorithm f(target: causal, g: int in 1..3 = 2):
    """Drafts with itself."""
    refines autoregressive(target) in distribution
    state seen: int per session = 0

    while not done:
        p = target(ctx)
        draft t:
            repeat g:
                x ~ target(t.leaves)
                grow x
        ok = near(0.5, tau = 0.25)
        best = max([x * 2 for x in [1, 2]])
        seen += 1
        verify t by rejection against target(t)
        commit t.accepted
'''


def at(text: str) -> tuple[Analyser, Analysis, int]:
    """A text, analysed, and the offset of its `|`."""
    offset = text.index("|")
    analyser = Analyser()
    return analyser, analyser.analyse(text[:offset] + text[offset + 1 :], "x.dec"), offset


def put(word: str, more: str = "|") -> str:
    return PROGRAM.replace(word, word + more, 1)


def labels(text: str) -> list[str]:
    return [choice.label for choice in complete(*at(text))]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("x ~ target", "target: causal"),
        ("t.leav", "t.leaves: node over part of t"),
        ("by reje", "rule rejection(p: dist, children: draws):"),
        ("refines autoreg", "algorithm autoregressive(target: causal):"),
        ("ok = ne", "Whether x is at least tau."),
        ("best = ma", "max(a, b, ..)"),
        ("not do", "whether a stop criterion"),
        ("see", "seen: int per session = 0"),
        ("        veri", "which nodes are accepted"),
        ("        p", "p: dist"),
        ("repeat ", "g: int in 1..3 = 2"),
    ],
)
def test_hover(word: str, said: str) -> None:
    found = hover(*at(put(word))[1:])
    assert found is not None and said in found[0]


@pytest.mark.parametrize(
    ("text", "has", "lacks"),
    [
        (PROGRAM.replace("by rejection", "by |"), {"rejection", "match"}, {"target", "argmax"}),
        (PROGRAM.replace("commit t.accepted", "commit t.|"), {"accepted", "leaves", "size"}, {"target"}),
        (PROGRAM.replace("commit t.accepted", "commit t.acc|"), {"accepted"}, {"target"}),
        (PROGRAM.replace("ok = near", "q = target(ctx).|"), {"raw", "logits"}, {"accepted"}),
        (PROGRAM.replace("ok = near", "q = target.|"), {"exit", "skip"}, {"raw"}),
        (PROGRAM.replace("ok = near(", "ok = near(|"), {"tau", "x", "p", "argmax", "ctx"}, {"while"}),
        (PROGRAM.replace("best = max(", "best = sort(p, |"), {"by", "descending"}, set()),
        (PROGRAM.replace("from autoregressive import", "from |"), {"rules", "speculative"}, {"argmax"}),
        ("from rules import |", {"rejection"}, {"argmax"}),
        (PROGRAM.replace("g: int", "g: |"), {"int", "topology"}, {"argmax"}),
        (PROGRAM + "\n|", {"algorithm", "rule"}, {"while"}),
        (PROGRAM.replace("        verify", "        |\n        verify"), {"commit", "while", "seen", "sure"}, {"algorithm"}),
    ],
)
def test_completion(text: str, has: set[str], lacks: set[str]) -> None:
    found = labels(text)
    assert has <= set(found), has - set(found)
    assert not lacks & set(found)
    assert len(found) == len(set(found))


def test_definition_here_and_in_the_library() -> None:
    _, found, offset = at(put("repeat "))
    here = definition(found, offset)
    assert here is not None and here.path is None and found.source.text[here.span.start :].startswith("g: int")
    for word, file, line in [
        ("by reje", "rules.dec", "rejection"), ("refines autoreg", "autoregressive.dec", "autoregressive"),
        ("from auto", "autoregressive.dec", ""),
    ]:  # fmt: skip
        there = definition(*at(put(word))[1:])
        assert there is not None and there.path is not None and there.path.name == file
        assert there.source.text[there.span.start : there.span.end] == line
    assert definition(*at(put("best = m"))[1:]) is None


def test_references_follow_scopes() -> None:
    _, found, offset = at(put("x ~", "|").replace("x ~|", "|x ~"))
    text = found.source.text
    assert [text.count("\n", 0, s.start) + 1 for s in references(found, offset)] == [18, 19]
    _, found, offset = at(PROGRAM.replace("[x * 2", "[|x * 2"))
    assert len(references(found, offset)) == 2
    _, found, offset = at(PROGRAM.replace("tau = 0.25", "|tau = 0.25"))
    assert len(references(found, offset)) == 3


def test_a_renamed_text_means_the_same() -> None:
    for name in ("g", "tau", "near", "seen", "t", "f"):
        first = {
            "g": "g: int",
            "tau": "tau: prob",
            "near": "near(x",
            "seen": "seen:",
            "t": "t:\n            repeat",
            "f": "f(target",
        }
        place = PROGRAM.index(first[name])
        found = Analyser().analyse(PROGRAM)
        text = PROGRAM
        for span in reversed(renamed(found, place, "renamed_")):
            text = text[: span.start] + "renamed_" + text[span.end :]
        assert not Analyser().analyse(text).diagnostics
        assert text.replace("renamed_", name) == PROGRAM


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("repeat ", "target"),
        ("repeat ", "while"),
        ("repeat ", "3x"),
        ("by reje", "mine"),
        ("from auto", "mine"),
        ("ok = ne", "f"),
    ],
)
def test_what_cannot_be_renamed_is_refused(word: str, name: str) -> None:
    _, found, offset = at(put(word))
    with pytest.raises(DecError):
        renamed(found, offset, name)


def test_outline_and_lenses() -> None:
    found = Analyser().analyse(PROGRAM)
    assert [(o.name, o.kind, [i.name for i in o.inside]) for o in outline(found)] == [
        ("near", "def", ["x", "tau"]),
        ("f", "algorithm", ["target", "g", "seen"]),
    ]
    claim, cost = lenses(found, {})
    assert (claim.title, claim.check) == ("check the claim", "f")
    assert "g x target (at most 3)" in cost.title
    assert lenses(found, {"f": "proved"})[0].title == "proved"


def test_every_function_and_word_has_a_line() -> None:
    assert function_lines.FILE.read_text(encoding="utf-8") == function_lines.text()
    assert functions() - set(helpers()) <= set(function_lines.function_lines())
    assert set(TYPES) - {"set_block_lm"} <= set(function_lines.type_lines())
    for kind, said in METHODS.items():
        assert {f"{kind}.{name}" for name in re.findall(r"\.(\w+)", said)} <= set(function_lines.method_lines())
    assert set(VALUES) <= set(WORD_LINES)
    assert STATEMENT_LINES
