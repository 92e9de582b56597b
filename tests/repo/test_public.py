"""The public surface: packages, names, weight at import, sizes of files."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from lib.repository import LANDED, ROOMS, ROOT, may_be_heavy, module_name, python, room_files
from lib.waiting import SECONDS

import decgraph

DATA = {
    ".csv",
    ".dec",
    ".lark",
    ".json",
    ".jsonl",
    ".safetensors",
    ".toml",
    ".md",
    ".txt",
    ".pyi",
    ".js",
    ".css",
    ".html",
    ".cpp",
    ".h",
    ".png",
}
HEAVY = ("torch", "transformers", "tokenizers", "triton", "typer", "rich", "pytest", "hypothesis")


def loaded_by(statement: str) -> list[str]:
    """Which heavy libraries a fresh interpreter holds after the statement."""
    ask = f"import json, sys\nprint(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    return json.loads(python(f"{statement}\n{ask}"))


def resolves(name: str) -> bool:
    try:
        return getattr(decgraph, name) is not None
    except (ImportError, AttributeError):
        return False


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=SECONDS).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the sdist of the tracked files as they are now."""
    folder = tmp_path_factory.mktemp("built")
    copy, out = folder / "copy", folder / "out"
    for name in git("ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if not (ROOT / name).exists():
            continue  # deleted, not yet committed
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    code = f"from setuptools import build_meta as b; b.build_sdist({str(out)!r}); b.build_wheel({str(out)!r})"
    out.mkdir()
    done = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def test_every_folder_with_python_has_an_init() -> None:
    folders = {path.parent for path in room_files()}
    lacking = sorted(str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists())
    assert not lacking


def test_every_room_is_a_link_in_the_package() -> None:
    """What Python, editors and setuptools follow. A room without a link vanishes from the wheel in silence."""
    links = {path.name: path.readlink().as_posix() for path in (ROOT / "decgraph").iterdir() if path.is_symlink()}
    assert links == {**{room: f"../{room}" for room in ROOMS}, "error_pages": "../docs/errors"}


@pytest.mark.slow
def test_the_wheel_holds_every_package_and_data_file(built: dict[str, Path]) -> None:
    """Each once, and nothing else (so nothing of lab/): a second copy of a file would be a link that was packed twice."""
    packed = set(zipfile.ZipFile(built["wheel"]).namelist())
    files = [*room_files(), *(p for room in ROOMS for p in (ROOT / room).rglob("*") if p.suffix in DATA)]
    names = {p.relative_to(ROOT).as_posix() for p in files}
    expected = {name if name.startswith("decgraph/") else f"decgraph/{name}" for name in names}
    expected.add("decgraph/views/d3/LICENSE")
    expected |= {f"decgraph/error_pages/{p.name}" for p in (ROOT / "docs" / "errors").glob("*.md")} | {"decgraph/py.typed"}
    assert {name for name in packed if name.startswith("decgraph/")} == expected
    assert {name.split("/")[0] for name in packed if not name.startswith("decgraph-")} == {"decgraph"}


@pytest.mark.slow
def test_the_wheel_explains_error_codes(built: dict[str, Path], tmp_path: Path) -> None:
    """From the wheel's own files: pages beside the repository would hide that they were not packed."""
    zipfile.ZipFile(built["wheel"]).extractall(tmp_path)
    words = [sys.executable, "-P", "-m", "decgraph", "explain", "E031"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "errors" / "E031.md").read_text(encoding="utf-8").rstrip()
    assert done.stdout.rstrip() == page.replace("```dec broken E031", "```dec")


def test_the_sdist_holds_tests_and_docs_and_no_file_twice(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = [m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()]
    assert len(names) == len(set(names))
    tracked = git("ls-files", "tests", "docs", "examples", "lab", "proof", "Makefile", "README.md", ".ci").split()
    assert not set(tracked) - set(names)
    rooms = {name.split("/")[0] for name in names}
    assert not rooms & set(ROOMS), "the rooms are packed as decgraph/<room>; at the top they would lie there twice"


def test_the_facade_is_small_and_lazy() -> None:
    assert len(decgraph.__all__) <= 25
    assert sorted(decgraph.__all__) == decgraph.__all__
    assert set(decgraph._LAZY) <= set(decgraph.__all__)
    files = [
        "__init__.py",
        "__main__.py",
        "api.py",
        "cache.py",
        "errors.py",
        "extras.py",
        "html.py",
        "models.py",
        "strategies.py",
        "testing.py",
        "version.py",
    ]
    assert sorted(p.name for p in (ROOT / "decgraph").glob("*.py")) == files
    assert loaded_by("import decgraph") == []
    with pytest.raises(AttributeError, match="no attribute 'prase'"):
        decgraph.prase  # noqa: B018


def test_every_public_name_resolves_and_says_what_it_is() -> None:
    for name in decgraph.__all__:
        if not LANDED and not resolves(name):
            continue
        assert inspect.getdoc(getattr(decgraph, name)), f"decgraph.{name} has no docstring"


def test_every_public_name_stands_in_the_docs() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(p.read_text(encoding="utf-8") for p in pages if "internals" not in p.parts)
    expected = [name for name in decgraph.__all__ if LANDED or resolves(name)]
    missing = [name for name in expected if not re.search(rf"\bdecgraph\.{name}\b", text)]
    assert not missing, f"no page mentions {missing}"


def test_what_rooms_export_is_documented() -> None:
    bare = []
    for path in room_files():
        if path.name != "__init__.py" or path.parent.name == "decgraph":
            continue
        module = importlib.import_module(module_name(path))
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isroutine(value)) and not inspect.getdoc(value):
                bare.append(f"{module.__name__}.{name}")
    assert not bare


@pytest.mark.parametrize("room", ["dsl", "ir", "passes", "check", "stdlib", "backends", "runtime"])
def test_a_room_loads_without_torch_and_terminal(room: str) -> None:
    """Parsing and checking need lark, numpy and networkx: every module of a room, but for torch's folders."""
    modules = [module_name(p) for p in room_files(room) if not may_be_heavy(p)]
    assert loaded_by("\n".join(f"import {name}" for name in modules)) == []


def test_the_zoo_knows_its_folders_without_torch() -> None:
    assert loaded_by("import decgraph.zoo") == []


def test_no_file_is_long() -> None:
    """A file is one thing, and its length follows; beyond 650 lines it is hardly one."""
    files = [*room_files(), *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "lab").rglob("*.py"))]
    sizes = {p.relative_to(ROOT).as_posix(): len(p.read_text(encoding="utf-8").splitlines()) for p in files}
    assert not {name: size for name, size in sizes.items() if size > 650}


def test_every_module_says_what_it_is() -> None:
    bare = [str(p.relative_to(ROOT)) for p in room_files() if not ast.get_docstring(ast.parse(p.read_text()))]
    assert not bare
