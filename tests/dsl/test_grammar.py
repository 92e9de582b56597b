"""The grammar has no conflicts, its table is cached, and every rule is built and used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lark.exceptions import GrammarError
from lib.programs.corpus import NAMES, program
from lib.repository import ROOT
from lib.waiting import SECONDS

from decgraph.dsl import parse as grammar
from decgraph.dsl.build import BUILD
from decgraph.dsl.lexer import BLOCKS, CLAUSES, DECLARING, ITEMS, JOINTS, RESERVED, STATEMENTS, UNLIKELY
from decgraph.dsl.mistakes import known
from decgraph.dsl.parse import parse_partly
from decgraph.dsl.source import Source


def test_the_grammar_has_no_conflict() -> None:
    grammar.make((ROOT / "dsl/grammar.lark").read_text("utf-8"), strict=True)
    dangling = 'start: "if" start ["else" start] | NAME\nNAME: /[a-z]+/\n'
    with pytest.raises(GrammarError, match="Shift/Reduce"):
        grammar.make(dangling, strict=True)


def test_every_builder_is_of_a_rule() -> None:
    """That every rule has a builder is shown where every alternative is read."""
    assert set(BUILD) <= {r.alias or r.origin.name for r in grammar.parser().rules}


def test_every_word_is_in_the_grammar() -> None:
    literals = grammar.literals()
    words = {*ITEMS, *STATEMENTS, *CLAUSES, *JOINTS, *RESERVED, *DECLARING, *BLOCKS, *UNLIKELY}
    assert words <= set(literals)
    assert {word for word in literals if word.isalpha()} - words == {"run"}


def test_every_alternative_of_the_grammar_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the programs and the examples of mistakes: what no test reaches is found here."""
    used: set[Any] = set()

    class Watched(dict[Any, Any]):
        def __getitem__(self, rule: Any) -> Any:
            used.add(rule)
            return super().__getitem__(rule)

    loop = grammar.parser().parser.parser.parser
    monkeypatch.setattr(loop, "callbacks", Watched(loop.callbacks))
    for text in [*map(program, NAMES), *(m.example for m in known()), "", "\n", *_SMALL]:
        parse_partly(Source(text))
    assert not [r for r in grammar.parser().rules if r not in used]


_SMALL = (
    "extern f() -> a\nextern g() -> a on b\nextern h(x: a,) -> a?\nextern i(a,b,) -> c\nextern j(a, b, c) -> d\n",
    "def f(a, b,) -> a:\n    return [1,], [1, 2,], f(1,), f(1, 2,), f(), x[1:2], a or b or c\n",
    "rule f(a,): emit run g() until a at most b\n",
    "rule g(a: b per batch, c per batch = 1, d per batch, e = 1):\n    emit x\n",
    (
        "rule h(a: b -> c in 1..2?, d: e -> f in 1..2, g: h -> i?, j: k(1, 2, 3)[1, 2, 3] with l and m and n,"
        " o: p(1) with q):\n"
        "    refines f() when x\n    ensures a when b\n    keeps support of a when b\n"
        "    state s: a.b.c.d[1] with e\n    noise g[a]: race\n    note h = a\n    grow x with y = 1, z = 2, w = 3\n"
        "    draft t of c over steps: grow x\n    for a, b, c in d: grow x\n"
        "    if a: emit b\n    elif c: emit d\n    elif e: emit f\n    elif g: emit h\n"
    ),
    "rule i():\n"
    + "".join(
        f"    at most a calls{of}{per}{when}\n" for of in ("", " of b") for per in ("", " a token") for when in ("", " when c")
    ),
    "policy p():\n    otherwise:\n        reuse a, reuse b\n        reuse c\n        forget d, reuse e\n",
)


def run(code: str, **env: str) -> str:
    command = [sys.executable, "-c", code]
    environment = {**os.environ, **env}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS, env=environment)
    return done.stdout.strip()


def test_parsing_loads_lark_alone() -> None:
    loaded = "[m for m in ('lark', 'torch', 'numpy', 'typer', 'rich') if m in sys.modules]"
    assert run(f"import sys; import decgraph; print({loaded})") == "[]"
    assert (
        run(f"import sys; from decgraph.dsl.parse import parse_text; parse_text('from a import b'); print({loaded})")
        == "['lark']"
    )


def test_the_table_is_cached_and_a_broken_or_forbidden_cache_is_done_without(tmp_path: Path) -> None:
    code = "from decgraph.dsl.parse import parse_text; print(len(parse_text('from a import b').items))"
    kept = tmp_path / "cache/grammar.table"
    assert run(code, DECGRAPH_CACHE=str(kept.parent)) == "1"
    made = kept.stat().st_mtime_ns
    assert run(code, DECGRAPH_CACHE=str(kept.parent)) == "1"
    assert kept.stat().st_mtime_ns == made
    kept.write_bytes(kept.read_bytes()[:1000])
    assert run(code, DECGRAPH_CACHE=str(kept.parent)) == "1"
    assert kept.stat().st_size > 1000
    assert run(code, DECGRAPH_CACHE="/dev/null/nowhere") == "1"
