"""Links of the pages: each leads to a file that is there, and to a heading that is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lib.repository import ROOT

REPOSITORY = re.compile(r"https://github.com/decgraph/decgraph/(?:blob|tree)/main/")
PAGES = sorted(path for place in ("*.md", "docs/**/*.md", "bench/*.md", "lab/**/*.md", "zoo/*.md") for path in ROOT.glob(place))


def links(text: str) -> list[str]:
    """Targets of inline links and of link definitions, outside fenced blocks and inline code."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    inline = re.findall(r"\]\(([^()\s]+(?:\([^()]*\)[^()\s]*)?)\)", text)
    return [*inline, *re.findall(r"^\[[^\]]+\]: (\S+)$", text, flags=re.M)]


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def fault_of(page: Path, link: str) -> str:
    own = REPOSITORY.match(link)
    if own is None and re.match(r"[a-z]+:", link):
        return ""  # another site: not asked without a network
    path, _, place = (link[own.end() :] if own else link).partition("#")
    found = (ROOT if own else page.parent) / path if path else page
    if not found.exists():
        return f"{link}: there is no {path}"
    if place and place not in {anchor(h) for h in re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.M)}:
        return f"{link}: {found.name} has no heading {place}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    faults = [fault for link in links(page.read_text(encoding="utf-8")) if (fault := fault_of(page, link))]
    assert not faults


def test_readme_links_are_absolute() -> None:
    """The package index shows the README, where a relative link leads nowhere."""
    relative = [link for link in links((ROOT / "README.md").read_text(encoding="utf-8")) if not link.startswith("https://")]
    assert not relative


def test_used_link_names_are_defined() -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.M | re.S)
    used = set(re.findall(r"\]\[([^\]]+)\]", text))
    assert used == set(re.findall(r"^\[([^\]]+)\]: ", text, re.M))


@pytest.mark.parametrize(
    ("link", "word"),
    [
        ("docs/nothing.md", "there is no"),
        ("#nowhere", "no heading"),
        ("https://github.com/decgraph/decgraph/blob/main/x.md", "no x.md"),
    ],
)
def test_the_check_sees_dead_links(link: str, word: str) -> None:
    assert word in fault_of(ROOT / "README.md", link)


MAPS = sorted([ROOT / "CONTRIBUTING.md", ROOT / "docs/architecture.md", *ROOT.glob("docs/decisions/*.md")])
"""Pages that say where in the repository something is."""


def unknown_files(text: str, files: frozenset[str]) -> list[str]:
    """Names of files in inline code that no path of the repository ends in."""
    named = re.findall(r"`([\w/.-]+\.(?:py|dec|lark|tsv|csv|toml))`", text)
    return [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in files)]


@pytest.mark.parametrize("page", MAPS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_files_that_maps_name_are_there(page: Path) -> None:
    rooms = [place for place in ROOT.iterdir() if place.is_dir() and not place.name.startswith(".") and place.name != "build"]
    files = frozenset(p.relative_to(ROOT).as_posix() for room in rooms for p in room.rglob("*.*")) | {"pyproject.toml"}
    assert unknown_files(page.read_text(encoding="utf-8"), files) == []
    assert unknown_files("`engine/nowhere.py` beside `pyproject.toml`", files) == ["engine/nowhere.py"]
