"""Parameters of any length and spelling reach the generated driver as they are: no line breaks inside a literal."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.ir.data.topology import PUBLISHED, Topology
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

TREES = {**{name: str(Topology.of(name).paths()) for name in (*PUBLISHED, "heads_64")}, "wide": "x".join("1" * 60)}
TEXTS = {
    "long": "word " * 60,
    "one word": "x" * 400,
    "quotes": 'it\'s "so", (he said], {' * 9,
    "backslashes": "\\" * 131 + "'" + "\\n" * 40 + "\\",
    "lines": "first,\nsecond,\n\n" * 12,
    "unicode": "ж,→ 語「」'" * 30,
}
READS = """
algorithm reads(target: causal, mark: text = "{0}"):
    while not done:
        p = target(ctx)
        if mark == "{0}":
            commit argmax(p.raw)
        else:
            commit argmin(p.raw)
"""


def decoded(text: str | None, backend: str, name: str = "", **params: Any) -> tuple[int, ...]:
    algorithm = decgraph.load(name) if text is None else decgraph.parse(text)
    session = algorithm.session(target=TableModel(80, 3, heads=5, name="target"), backend=backend, **params)
    result = session.run(Request((1, 2), max_tokens=4, temperature=0))
    assert result.error is None, result.error
    return result.tokens


@pytest.mark.budget(8)
@pytest.mark.quick("medusa_63", "wide")
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("name", ["medusa", "token_recycling", "sequoia", "tr_jacobi"])
def test_a_tree_spelled_out(name: str, tree: str) -> None:
    models = {"drafter": TableModel(80, 4, name="drafter")} if "drafter" in decgraph.load(name).models else {}
    more: dict[str, Any] = {**models, "shape": TREES[tree], **({"k": 16} if name == "token_recycling" else {})}
    assert decoded(None, "torch", name, **more) == decoded(None, "reference", name, **more)


@pytest.mark.parametrize("words", TEXTS)
def test_a_text(words: str) -> None:
    quoted = TEXTS[words].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    text = READS.replace("{0}", quoted)
    assert decgraph.parse(text).function.param("mark").default == TEXTS[words]
    same, other = decoded(text, "torch", mark=TEXTS[words]), decoded(text, "torch", mark=TEXTS[words][:-1])
    assert same == decoded(text, "torch") == decoded(text, "reference") != other == decoded(text, "reference", mark="")


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    from decgraph.cli.main import main

    assert main(["run", "medusa", "--shape", TREES["medusa_63"], "--prompt", "def", "--max-tokens", "3", "--quiet"]) == 0
    assert capsys.readouterr().out


def test_long_numbers_sets_and_tokens() -> None:
    text = """
algorithm takes(target: causal, many: token[<= 512] = [1], some: set = [1], share: prob = 0.5):
    while not done:
        x ~ target(ctx) as output
        if x in many or 95 in some or share > 2:
            commit x
        else:
            commit argmin(target(ctx).raw)
"""
    given: dict[str, Any] = {"many": [n % 80 for n in range(500)], "some": set(range(90)), "share": 0.1234567890123456789}
    assert decoded(text, "torch", **given) == decoded(text, "reference", **given)


def test_a_type_that_is_spelled_with_quotes() -> None:
    """That of a trunk of a model with heads, in the text of an op that is given its types."""
    text = (
        "algorithm states(target: causal with heads):\n    while not done:\n        commit len(target.upto(1).each(prompt))\n"
    )
    assert decoded(text, "torch") == decoded(text, "reference") == (2, 2, 2, 2)
