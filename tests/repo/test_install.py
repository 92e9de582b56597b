"""What pages and messages say about installing works: decgraph is on no package index."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from lib.repository import ROOT
from lib.waiting import SECONDS

from decgraph import extras

# `pip install decgraph`, with extras or a version or without, but not `decgraph[models] @ git+https://...`.
BY_NAME = re.compile(r"pip3? install (?:-\S+ )*['\"]?decgraph(?!\w|[^\s'\"]* @ )")
SUFFIXES = {".py", ".md", ".js", ".html", ".toml", ".yml", ".json", ""}


ONCE = "once it is published, `"
"""What makes such a command true before the package is anywhere."""


def told() -> list[Path]:
    """Files whose text a user may read: pages, sources with messages, the editor's extension, the Makefile."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    files = [ROOT / name for name in listed.splitlines() if not name.startswith(("tests/", "lab/results/"))]
    return [path for path in files if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink()]


def test_nothing_says_to_install_by_name() -> None:
    found = []
    for path in told():
        text = path.read_text(encoding="utf-8", errors="ignore")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in BY_NAME.finditer(text.replace(ONCE + "pip", ""))]
    assert not found, "docs/install.md says what works:\n" + "\n".join(found)


@pytest.mark.parametrize("text", ["pip install decgraph", "pip install 'decgraph[serve]'", "pip install -U decgraph>=0.1"])
def test_the_check_sees_it(text: str) -> None:
    assert BY_NAME.search(text)


@pytest.mark.parametrize("text", ["pip install '.[serve]'", f"pip install '{extras.requirement('serve')}'"])
def test_the_check_lets_what_works_pass(text: str) -> None:
    assert not BY_NAME.search(text)


def test_extras_are_those_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = project["optional-dependencies"]
    assert set(extras.PACKAGES) == set(known) - {"dev", "site", "notebook"}
    for extra, names in extras.PACKAGES.items():
        words = " ".join(known[extra]).replace("-", "_")
        assert all(name in words for name in names), extra
    assert project["urls"]["Homepage"] == extras.REPOSITORY


def test_in_a_checkout_the_command_names_it() -> None:
    assert extras.command("models", "serve") == f"pip install -e '{ROOT}[models,serve]'"


class Installed:
    def __init__(self, origin: dict[str, Any] | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, "pip install 'decgraph[plots] @ git+https://github.com/decgraph/decgraph'"),  # a wheel
        ({"url": "file:///nowhere/decgraph-0.1.0.whl", "archive_info": {}}, "pip install 'decgraph[plots] @ git+https"),
        ({"url": "https://github.com/decgraph/decgraph", "vcs_info": {}}, "pip install 'decgraph[plots] @ git+https"),
        ({"url": "file:///gone", "dir_info": {}}, "pip install 'decgraph[plots] @ git+https"),
        ({"url": ROOT.as_uri(), "dir_info": {}}, f"pip install -e '{ROOT}[plots]'"),  # `pip install .`
    ],
)
def test_an_installed_package_says_where_it_came_from(
    origin: dict[str, Any] | None, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages" / "decgraph" / "extras.py"))
    monkeypatch.setattr(extras, "distribution", lambda name: Installed(origin))
    assert extras.command("plots").startswith(expected)


def test_a_folder_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none(name: str) -> Installed:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "__file__", str(tmp_path / "decgraph" / "extras.py"))
    monkeypatch.setattr(extras, "distribution", none)
    assert extras.command() == "pip install 'decgraph @ git+https://github.com/decgraph/decgraph'"


def test_an_exported_repository_says_what_works() -> None:
    """transformers reads `name>=version`; a person reads the line above it."""
    from decgraph.hf.repository import _REQUIREMENTS

    first, second = _REQUIREMENTS.splitlines()
    assert first == f"# pip install '{extras.requirement()}'" and re.fullmatch(r"decgraph>=[\d.]+", second)
