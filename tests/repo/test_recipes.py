"""Every page of docs/recipes is followed, word for word, in a copy of the repository: page and test cannot differ."""

from __future__ import annotations

from pathlib import Path

import pytest
import recipes
from recipes import Fault, Recipe, copy_repository, edited, follow, read

PAGES = sorted((recipes.ROOT / "docs" / "recipes").glob("*.md"))


@pytest.mark.budget(70)
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_recipe_does_what_it_says(page: Path, tmp_path: Path) -> None:
    recipe = read(page)
    assert len(recipe.files) == recipe.touches
    follow(recipe, copy_repository(tmp_path / "copy"))


def page_of(folder: Path, text: str) -> Recipe:
    page = folder / "page.md"
    page.write_text(f"Touches 1 file: `a/b.py` or `page.md`.\n\n{text}")
    return read(page)


def test_files_are_made_and_changed_and_commands_run(tmp_path: Path) -> None:
    recipe = page_of(
        tmp_path,
        "```python new=a/b.py\nx = 1\n\ny = 2\n```\n"
        "```diff edit=a/b.py\n x = 1\n+z = 5\n@@\n-y = 2\n+y = 3\n```\n"
        "```console output\n$ python -c \"exec(open('a/b.py').read()); print(x, y, z)\"\n1 ... 5\n```\n"
        "```console exit=4\n$ python -c 'raise SystemExit(4)'\n```\n",
    )
    assert recipe.files == {"a/b.py"}
    follow(recipe, tmp_path)
    assert (tmp_path / "a" / "b.py").read_text() == "x = 1\nz = 5\n\ny = 3\n"


@pytest.mark.parametrize(
    "block, says",
    [
        ("```python new=page.md\n1\n```\n", r"page.md:4: page.md is there already"),
        ("```diff edit=page.md\n nowhere\n+1\n```\n", r"page.md:4: page.md: these lines stand there 0 times"),
        ("```console\n$ python -c 'raise SystemExit(3)'\n```\n", r"page.md:4: `python .*` exits 3"),
        ("```console output\n$ python -c 'print(1)'\n2\n```\n", r"page.md:4: `python .*` prints\n1"),
        ("```console\n$ rm page.md\n```\n", r"a command begins with python, decgraph"),
    ],
)
def test_what_does_not_go_as_said_names_its_line(tmp_path: Path, block: str, says: str) -> None:
    with pytest.raises(Fault, match=says):
        follow(page_of(tmp_path, block), tmp_path)


def test_a_block_without_an_instruction_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fault, match=r"page.md:4: a block with neither"):
        page_of(tmp_path, "```python\nx = 1\n```\n")


def test_a_file_that_the_text_does_not_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fault, match=r"page.md:4: .* name `c.py`"):
        page_of(tmp_path, "```python new=c.py\nx = 1\n```\n")


def test_an_edit_needs_one_place() -> None:
    assert edited("ab\nb\n", " b\n+c\n", "x") == "ab\nb\nc\n"
    with pytest.raises(Fault, match="2 times"):
        edited("b\nb\n", " b\n+c\n", "x")
