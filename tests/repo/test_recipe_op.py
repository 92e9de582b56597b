"""What docs/recipes/op.md says of parts that are left out; test_recipes.py follows the page as it stands."""

from __future__ import annotations

import ast
import textwrap

import pytest
from recipes import ROOT, read

from decgraph.ir.ops import distributions
from decgraph.ir.table import TABLE

RECIPE = read(ROOT / "docs" / "recipes" / "op.md")


def added(file: str) -> str:
    """The lines that the page puts into a file."""
    (block,) = (b for b in RECIPE.blocks if b.value("edit") == file)
    return textwrap.dedent("".join(f"{line[1:]}\n" for line in block.body.splitlines() if line.startswith("+")))


def without(source: str, part: str) -> str:
    """The op's class without a part; what it is assigned together with stays."""
    tree = ast.parse(source)
    (cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    kept: list[ast.stmt] = []
    for node in cls.body:
        if isinstance(node, ast.FunctionDef) and node.name == part:
            continue
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            assert isinstance(node.value, ast.Tuple)
            pairs = zip(node.targets[0].elts, node.value.elts, strict=True)
            kept += [ast.Assign([t], v) for t, v in pairs if isinstance(t, ast.Name) and t.id != part]
        elif not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == part):
            kept.append(node)
    cls.body = kept
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize("part", ["type", "meaning", "label", "batch", "samples", "refusals"])
def test_a_part_that_is_left_out_is_named_with_its_file(part: str) -> None:
    source = without(added("ir/ops/distributions.py"), part)
    with pytest.raises(TypeError, match=rf"op collision \(ir/ops/distributions.py\) lacks: {part}$"):
        exec(compile(source, "<page>", "exec"), dict(vars(distributions)))
    assert "collision" not in TABLE


def test_it_touches_four_files() -> None:
    assert RECIPE.files == {
        "ir/ops/distributions.py",
        "backends/torch/ops/distributions.py",
        "tests/ir/meanings/distributions.py",
        "docs/functions.md",
    }
