"""The VS Code extension: manifest, snippets, where it finds decgraph, and its commands (run by Node without VS Code)."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from lib.waiting import SECONDS

from decgraph.editor.analysis import Analyser

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "editor" / "vscode"
MANIFEST = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
SNIPPETS = json.loads((FOLDER / "snippets" / "dec.json").read_text(encoding="utf-8"))
URI = "file:///work/mine.dec"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed: apt-get install -y nodejs")


def played(extension: Path = FOLDER, **scene: Any) -> dict[str, Any]:
    """What the extension does in a scene."""
    given = {"setting": [], "folders": [], "interpreter": None, "commands": [], "cursor": None, **scene}
    harness = Path(__file__).with_name("extension_harness.js")
    command = ["node", str(harness), str(extension), json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def contributed() -> list[str]:
    return [command["command"] for command in MANIFEST["contributes"]["commands"]]


def test_the_manifest_names_what_is_there() -> None:
    contributes = MANIFEST["contributes"]
    paths = [MANIFEST["main"], MANIFEST["icon"], *(x["path"] for x in (*contributes["grammars"], *contributes["snippets"]))]
    for path in (*paths, *(x["configuration"] for x in contributes["languages"])):
        assert (FOLDER / path).is_file(), path
    assert struct.unpack(">II", (FOLDER / MANIFEST["icon"]).read_bytes()[16:24]) == (256, 256)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert MANIFEST["version"] == project["version"]
    for menu in contributes["menus"].values():
        assert {entry["command"] for entry in menu} <= set(contributed())
    lock = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))
    assert lock["packages"][""]["dependencies"] == MANIFEST["dependencies"]


def expanded(body: list[str]) -> str:
    """A snippet as it is inserted, with what stands in its places."""
    text = re.sub(r"\$\{\d+\|([^,|]*)[^|]*\|\}", r"\1", "\n".join(body))
    while re.search(r"\$\{\d+:([^${}]*)\}", text):
        text = re.sub(r"\$\{\d+:([^${}]*)\}", r"\1", text)
    return re.sub(r"\$\{?\d+\}?", "", text) + "\n"


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_is_right_as_it_is_inserted(name: str) -> None:
    found = Analyser().analyse(expanded(SNIPPETS[name]["body"]))
    assert not [d.render() for d in found.diagnostics]
    assert len(found.file.items) == 1


@needs_node
def test_every_command_of_the_palette_is_registered() -> None:
    assert sorted(played()["registered"]) == sorted(contributed())


@needs_node
def test_decgraph_is_found_in_the_workspaces_environment(tmp_path: Path) -> None:
    one, two, chosen = (tmp_path / name for name in ("one", "two", "chosen"))
    for folder in (one, two / "venv" / "bin", chosen / "bin"):
        folder.mkdir(parents=True)
    for program in (two / "venv" / "bin" / "decgraph", chosen / "bin" / "decgraph"):
        program.touch()
    interpreter = str(chosen / "bin" / "python")

    def command(**scene: Any) -> list[str]:
        server = played(**scene)["started"]["server"]
        return [server["command"], *server["args"]]

    assert command() == ["decgraph", "lsp"]  # of the PATH
    assert command(folders=[str(one)]) == ["decgraph", "lsp"]
    assert command(folders=[str(one)], interpreter=interpreter) == [str(chosen / "bin" / "decgraph"), "lsp"]
    assert command(folders=[str(one)], interpreter=str(one / "python")) == ["decgraph", "lsp"]  # which has no decgraph
    assert command(folders=[str(one), str(two)], interpreter=interpreter) == [str(two / "venv/bin/decgraph"), "lsp"]
    assert command(folders=[str(two)], setting=["/a/decgraph", "lsp", "--stdio"]) == ["/a/decgraph", "lsp", "--stdio"]
    assert command(folders=[str(two)], changes=["/b/decgraph", "lsp"]) == ["/b/decgraph", "lsp"]  # without a reload


@needs_node
def test_the_algorithm_at_the_cursor_or_of_a_lens_is_shown_beside() -> None:
    commands = [["decgraph.checkHere"], ["decgraph.explainHere", URI, "mine"], ["decgraph.traceHere"]]
    did = played(cursor=[3, 7], commands=commands, prompt="once upon")
    assert did["asked"] == [
        ["workspace/executeCommand", {"command": "decgraph.show", "arguments": arguments}]
        for arguments in (["check", URI, [3, 7], ""], ["explain", URI, "mine", ""], ["trace", URI, [3, 7], "once upon"])
    ]
    assert did["pages"] == [{"title": "a title", "column": -2, "html": "<p>a page</p>"}] * 3
    buttons = did["started"]["options"]["initializationOptions"]["buttons"]
    assert {name for _, name in buttons} <= set(contributed())


@needs_node
def test_what_goes_wrong_is_said() -> None:
    assert "open a .dec file" in played(commands=[["decgraph.checkHere"]])["said"][0]
    did = played(cursor=[0, 0], commands=[["decgraph.checkHere"]], refused="there is no algorithm here to check")
    assert did["errors"] == ["decgraph: there is no algorithm here to check"] and not did["pages"]
    assert "pip install '.[editor]'" in played(fails="spawn decgraph ENOENT")["errors"][0]


@pytest.mark.nightly
def test_the_package_holds_everything_that_the_manifest_names(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: apt-get install -y npm")
    subprocess.run(["make", "vsix"], cwd=ROOT, check=True, capture_output=True, timeout=SECONDS)
    with zipfile.ZipFile(ROOT / "build" / "decgraph.vsix") as packed:
        packed.extractall(tmp_path)
    inside = tmp_path / "extension"
    manifest = json.loads((inside / "package.json").read_text(encoding="utf-8"))
    assert manifest["contributes"] == MANIFEST["contributes"] and manifest["version"] == MANIFEST["version"]
    for path in (
        manifest["main"],
        manifest["icon"],
        "LICENSE.txt",
        "readme.md",
        "node_modules/vscode-languageclient/package.json",
    ):
        assert (inside / path).is_file(), path
    for part in (*manifest["contributes"]["grammars"], *manifest["contributes"]["snippets"]):
        assert json.loads((inside / part["path"]).read_text(encoding="utf-8")) == json.loads(
            (FOLDER / part["path"]).read_text()
        )
    assert sorted(played(inside)["registered"]) == sorted(contributed())
    client = "require('vscode-languageclient/package.json').version"  # the pinned one
    done = subprocess.run(["node", "-p", client], cwd=inside, capture_output=True, text=True, check=True, timeout=SECONDS)
    assert done.stdout.strip() == MANIFEST["dependencies"]["vscode-languageclient"]
