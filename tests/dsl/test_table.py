"""The grammar has no conflicts, its table is the committed one, and every rule is built and used."""

from __future__ import annotations

import subprocess
import sys

import pytest
from grammar_table import GRAMMAR, as_text, make_table
from lark.exceptions import GrammarError
from programs import NAMES, program
from waiting import SECONDS

from decgraph.dsl import parse as parser
from decgraph.dsl import table as tables
from decgraph.dsl.build import BUILD
from decgraph.dsl.lexer import lex
from decgraph.dsl.mistakes import known
from decgraph.dsl.source import Source
from decgraph.dsl.words import BLOCKS, CLAUSES, DECLARING, ITEMS, JOINTS, RESERVED, STATEMENTS, UNLIKELY


def test_the_committed_table_is_that_of_the_grammar_which_has_no_conflict() -> None:
    made = as_text(make_table(GRAMMAR.read_text("utf-8")))  # strict: any conflict raises
    committed = GRAMMAR.with_suffix(".json").read_text("utf-8")
    assert made == committed, "the grammar has changed: python tests/grammar_table.py"
    dangling = 'start: "if" start ["else" start] | NAME\nNAME: /[a-z]+/\n'
    with pytest.raises(GrammarError, match="Shift/Reduce"):
        make_table(dangling)


def test_every_rule_is_built_and_nothing_else() -> None:
    built = {shape.build for shape in tables.load_table().shapes if shape.kind == tables.NODE}
    assert built == set(BUILD)


def test_every_word_is_in_the_grammar() -> None:
    literals = tables.load_table().literals
    words = {*ITEMS, *STATEMENTS, *CLAUSES, *JOINTS, *RESERVED, *DECLARING, *BLOCKS, *UNLIKELY}
    assert words <= set(literals)
    assert {word for word in literals if word.isalpha()} - words == {"run"}


def test_every_alternative_of_the_grammar_is_used() -> None:
    """By the programs and the examples of mistakes: what no test reaches is found here."""
    table = tables.load_table()
    used: set[int] = set()

    class Watched(list):  # type: ignore[type-arg]
        def __getitem__(self, index: int) -> tables.Shape:  # type: ignore[override]
            used.add(index % len(self))
            return super().__getitem__(index)  # type: ignore[no-any-return]

    watched = tables.Table(table.actions, table.gotos, Watched(table.shapes), table.literals, table.start, table.end)
    for text in [*map(program, NAMES), *(m.example for m in known()), "", "\n", *_SMALL]:
        source = Source(text)
        parser._parse(watched, source, lex(source, table.literals))
    unused = [table.shapes[i] for i in range(len(table.shapes)) if i not in used]
    assert not unused


_SMALL = (
    "extern f() -> a\nextern g() -> a on b\nextern h(x: a,) -> a?\nextern i(a,b,) -> c\nextern j(a, b, c) -> d\n",
    "def f(a, b,) -> a:\n    return [1,], [1, 2,], f(1,), f(1, 2,), f(), x[1:2], a or b or c\n",
    "rule f(a,): emit run g() until a at most b\n",
    "rule g(a: b per batch, c per batch = 1, d per batch, e = 1):\n    emit x\n",
    (
        "rule h(a: b -> c in 1..2?, d: e -> f in 1..2, g: h -> i?, j: k(1, 2, 3)[1, 2, 3] with l and m and n,"
        " o: p(1) with q):\n"
        "    refines f() when x\n    ensures a when b\n    keeps support of a when b\n"
        "    state s: a.b.c.d[1] with e\n    noise g[a]: race\n    grow x with y = 1, z = 2, w = 3\n"
        "    draft t of c over steps: grow x\n    for a, b, c in d: grow x\n"
        "    if a: emit b\n    elif c: emit d\n    elif e: emit f\n    elif g: emit h\n"
    ),
    "policy p():\n    otherwise:\n        reuse a, reuse b\n        reuse c\n        forget d, reuse e\n",
)


def test_parsing_loads_no_library() -> None:
    code = (
        "import sys; from decgraph.dsl.parse import parse_text; parse_text('from a import b');"
        "print([m for m in ('lark', 'torch', 'numpy', 'typer', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=SECONDS)
    assert done.stdout.strip() == "[]"
