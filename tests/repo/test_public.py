"""The public surface: packages, names, weight at import, sizes of files."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import inspect
import json
import re
import tomllib

import pytest
from tree import LANDED, ROOMS, ROOT, may_be_heavy, module_name, python, room_files

import decgraph

SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
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


def test_packages_lists_every_folder_with_an_init() -> None:
    folders = sorted(module_name(p) for p in room_files() if p.name == "__init__.py")
    assert sorted(SETUPTOOLS["packages"]) == folders


def test_every_folder_with_python_has_an_init() -> None:
    folders = {path.parent for path in room_files()}
    lacking = sorted(str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists())
    assert not lacking


def test_every_package_is_mapped_to_its_folder() -> None:
    expected = {name: "/".join(name.split(".")[1:]) or "decgraph" for name in SETUPTOOLS["packages"]}
    assert SETUPTOOLS["package-dir"] == expected


def test_the_makefile_shows_mypy_every_room() -> None:
    (rooms,) = re.findall(r"^ROOMS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert tuple(rooms.split()) == ROOMS


def test_data_files_reach_the_wheel() -> None:
    """A file that is not Python is installed only if a pattern of package-data names it."""
    tracked = {".dec", ".lark", ".json", ".safetensors", ".typed", ".md", ".txt"}
    left_out = []
    for package, folder in SETUPTOOLS["package-dir"].items():
        inner = {f for f in SETUPTOOLS["package-dir"].values() if f.startswith(f"{folder}/")}
        for path in (ROOT / folder).rglob("*"):
            relative = path.relative_to(ROOT).as_posix()
            if path.suffix not in tracked or any(relative.startswith(f"{f}/") for f in inner):
                continue
            name = path.relative_to(ROOT / folder).as_posix()
            patterns = [p.replace("/**/", "/") for p in SETUPTOOLS["package-data"].get(package, [])]
            if not any(fnmatch.fnmatchcase(name, p) and ("/" in p or "/" not in name) for p in patterns):
                left_out.append(relative)
    assert not left_out


def test_the_facade_is_small_and_lazy() -> None:
    assert len(decgraph.__all__) <= 25
    assert sorted(decgraph.__all__) == decgraph.__all__
    assert set(decgraph._LAZY) <= set(decgraph.__all__)
    files = ["__init__.py", "api.py", "errors.py", "models.py", "testing.py"]
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
        if path.name != "__init__.py" or path.parent.name in {"decgraph", "mutants"}:
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
    modules = [module_name(p) for p in room_files(room) if not may_be_heavy(p) and p.name != "testing.py"]
    assert loaded_by("\n".join(f"import {name}" for name in modules)) == []


def test_the_zoo_knows_its_folders_without_torch() -> None:
    assert loaded_by("import decgraph.zoo") == []


def test_no_file_is_long() -> None:
    """One thing per file: 400 lines is a smell, 500 fails."""
    files = [*room_files(), *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]
    sizes = {p.relative_to(ROOT).as_posix(): len(p.read_text(encoding="utf-8").splitlines()) for p in files}
    assert not {name: size for name, size in sizes.items() if size > 500}


def test_every_module_says_what_it_is() -> None:
    bare = [str(p.relative_to(ROOT)) for p in room_files() if not ast.get_docstring(ast.parse(p.read_text()))]
    assert not bare
