"""The words of the decorator style: what Python has, what type checkers see, and what lowering knows are the same."""

from __future__ import annotations

import ast
import builtins as python
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lib.programs import captured_algorithms
from lib.waiting import SECONDS

from decgraph.dsl import prelude
from decgraph.dsl.lower import builtins, expr
from decgraph.ir.table import surface

ROOT = Path(__file__).resolve().parents[2]
STUB = Path(prelude.__file__).with_suffix(".pyi")
INSIDE = {"Called", "Edit", "Level", "Memory", "Number", "Place", "Policy", "Position", "Rule", "Stream", "Vector"}
"""Classes of the stub that only its signatures name."""

USER = """
from decgraph.api import algorithm
from decgraph.dsl.capture import helper, rule
from decgraph.dsl.prelude import *


@helper
def doubt(q: Dist, floor: Prob) -> Value:
    return entropy(q.raw) - floor


@rule
def residual(p: Dist, children: Draws) -> None:
    for x in children:
        if bernoulli(p[x] / x.law[x]):
            accept(x)
        p = normalize(relu(p - x.law))
    y = sample(p)
    emit(y)


@algorithm
def mine(target: Causal, drafter: Causal, gamma: Annotated[int, 1, 32] = 4, floor: Prob = 0.1) -> None:
    refines(autoregressive(target), in_="distribution")
    while not done():
        with draft() as t:
            for _ in repeat(gamma):
                q = drafter(t.leaves)
                if any(doubt(q, floor) > 1):
                    break
                t.grow(sample(drafter(t.leaves)))
        verify(t, by=rejection, against=target(t))
        commit(t.accepted)


@algorithm
def own(target: Causal, drafter: Causal) -> None:
    refines(autoregressive(target), in_="distribution")
    while not done():
        with draft() as t:
            t.grow(sample(drafter(t.leaves)))
        verify(t, by=residual, against=target(t))
        commit(t.accepted)


print(mine.run("a b", backend="reference").tokens, own.check(models=4).verdict)
"""


def declared() -> set[str]:
    """The public names of the stub."""
    found: set[str] = set()
    for node in ast.parse(STUB.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {name for name in found if not name.startswith("_")}


def test_the_stub_has_every_word_and_no_other() -> None:
    words = set(prelude.__all__) - {"Annotated"}
    assert declared() - INSIDE - words == set()
    # A plain op that is new can be called before somebody writes down its types.
    assert words - declared() <= set(surface()), "say in dsl/prelude.pyi what these take and give"


def test_what_can_be_called_is_in_the_prelude() -> None:
    """A function is there by its name in the tables of lowering, or Python has it already."""
    functions = {*builtins.TABLE, *expr.SPECIAL, *surface()}
    assert {name for name in functions if not hasattr(prelude, name)} <= set(dir(python))
    assert not {name for name in prelude.__all__ if hasattr(python, name)}, "import * would hide Python's own"


def checked(checker: list[str], path: Path) -> str:
    """What a type checker says of a file, as a user would run it."""
    where = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [*checker, str(path)], capture_output=True, text=True, check=False, cwd=path.parent, env=where, timeout=SECONDS
    )
    return done.stdout


CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary"],
    "pyright": [sys.executable, "-m", "pyright", "--pythonpath", sys.executable],
}


@pytest.mark.parametrize(
    "checker", [pytest.param("mypy", marks=pytest.mark.nightly), pytest.param("pyright", marks=pytest.mark.slow)]
)
def test_the_decorator_style_has_types(checker: str, tmp_path: Path) -> None:
    # neither checker follows the finder of an editable install
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))
    user, other = tmp_path / "user.py", tmp_path / "other.py"
    user.write_text(USER)
    other.write_text(Path(captured_algorithms.__file__).read_text())
    page = tmp_path / "page.py"
    page.write_text(
        (ROOT / "docs" / "language.md").read_text("utf-8").split("## In Python")[1].split("```python\n")[1].split("```")[0]
    )
    for right in (user, other, page):
        assert "error" not in checked(CHECKERS[checker], right).replace("0 errors", "")
    for line, wrong in (
        ("sample(drafter(t.leaves))", 'sample(3, "x")'),
        ("drafter(t.leaves)", 'drafter("leaves")'),
        ('in_="distribution"', 'in_="distributions"'),
        ("by=rejection", "by=dual"),
        ("t.accepted", "t"),
    ):
        assert line in USER
        user.write_text(USER.replace(line, wrong))
        assert "error" in checked(CHECKERS[checker], user).replace("0 errors", ""), wrong
