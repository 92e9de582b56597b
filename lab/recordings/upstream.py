"""The authors' code, read from a snapshot of their repository: modules and single functions, as they are."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, patch


@dataclass(frozen=True)
class Upstream:
    """A repository's files at a commit, in a folder."""

    folder: Path

    @classmethod
    def of(cls, snapshots: Path, repo: str, commit: str, into: Path) -> Upstream | None:
        """The files of "owner/name" at a commit, unpacked into a folder; None if the snapshots lack it. A folder
        `owner+name/COMMIT` has files of it alone, such as a release's libraries. A release `vVERSION` of a package that is
        installed here is what is installed."""
        owner, _, name = repo.partition("/")
        if (spec := importlib.util.find_spec(name)) and commit.startswith("v") and commit[1:] == version(name):
            return cls(Path(str(spec.origin)).parent)
        if (alone := snapshots / f"{owner}+{name}" / commit).is_dir():
            return cls(alone)
        for folder in (snapshots / f"{owner}+{name}" / "repo", snapshots / name):
            git = ["git", "-C", str(folder)]
            listed = subprocess.run([*git, "ls-tree", "-r", "-z", commit], capture_output=True, timeout=300)
            if listed.returncode:
                continue
            blobs = [line.split(None, 2)[2].split(b"\t", 1) for line in listed.stdout.split(b"\0") if b" blob " in line]
            asked = b"\n".join(name for name, _ in blobs)
            found = subprocess.run([*git, "cat-file", "--batch"], input=asked, capture_output=True, check=True, timeout=600)
            _unpack(found.stdout, [into / os.fsdecode(path) for _, path in blobs])
            return cls(into)
        return None

    def text(self, path: str) -> str:
        """A file."""
        return (self.folder / path).read_text("utf-8")

    @contextmanager
    def importable(self, root: str = "", absent: tuple[str, ...] = ()) -> Iterator[None]:
        """While this holds, modules below a folder can be imported by their own names; packages in `absent`, and what is below
        them, are mocks. What was imported is forgotten at the end."""
        before, mocks = dict(sys.modules), [Mocks(absent), *sys.meta_path]
        with (
            patch.object(sys, "path", [str(self.folder / root), *sys.path]),
            patch.object(sys, "meta_path", mocks),
        ):
            try:
                yield
            finally:
                here = [
                    n for n, m in sys.modules.items() if n not in before and (isinstance(m, Mock) or _below(m, self.folder))
                ]
                for name in here:
                    del sys.modules[name]

    def module(self, path: str, root: str = "", absent: tuple[str, ...] = (), **names: Any) -> ModuleType:
        """A file as a module, whole. root: what its own imports are relative to; absent: packages to be mocked; names: globals
        that are there before it runs."""
        spec = importlib.util.spec_from_file_location(Path(path).stem, self.folder / path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        module.__dict__.update(names)
        with self.importable(root or str(Path(path).parent), absent):
            spec.loader.exec_module(module)
        return module

    def names(self, path: str, *wanted: str, of: Any = "", **given: Any) -> Mapping[str, Any]:
        """Functions, classes and constants of a file that cannot be imported whole, compiled as they stand there, and what they
        see: `given` and one another. of: a class, then these are its methods. Raises KeyError if the file has no such name."""
        body = ast.parse(self.text(path)).body
        if of:
            (body,) = [node.body for node in body if isinstance(node, ast.ClassDef) and node.name == of]
        kept = [node for node in body if {*_named(node)} & {*wanted}]
        if missing := {*wanted} - {n for node in kept for n in _named(node)}:
            raise KeyError(f"{path} has no {', '.join(sorted(missing))}")
        scope: dict[str, Any] = {"__name__": Path(path).stem, **given}
        exec(compile(ast.Module(kept, []), str(self.folder / path), "exec", dont_inherit=True), scope)
        return scope


def _unpack(batch: bytes, paths: list[Path]) -> None:
    """Write what `git cat-file --batch` printed; a snapshot lacks its largest files."""
    at = 0
    for path in paths:
        end = batch.index(b"\n", at)
        said, at = batch[at:end].split(), end + 1
        if said[-1] != b"missing":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(batch[at : at + int(said[2])])
            at += int(said[2]) + 1


def _named(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [t.id for t in targets if isinstance(t, ast.Name)]


def _below(module: ModuleType, folder: Path) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(str(folder))


class Mock(ModuleType):
    """A package that is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, MagicMock(name=name))
        return self.__dict__[name]


class Mocks:
    """Finds these packages, and what is below them, as mocks."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        mine = any(name == n or name.startswith(f"{n}.") for n in self.names)
        return ModuleSpec(name, self, is_package=True) if mine else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> Mock:
        """See importlib.abc.Loader."""
        return Mock(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""
