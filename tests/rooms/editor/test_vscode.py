"""The VS Code extension's folder: what its files name is there, and says what the language says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import decgraph
from decgraph.cli.main import verbs

FOLDER = Path(__file__).parents[3] / "editor" / "vscode"
PACKAGE = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))


def test_what_the_manifest_names_is_there() -> None:
    given = PACKAGE["contributes"]
    paths = [PACKAGE["main"], given["languages"][0]["configuration"], *(g["path"] for g in given["grammars"])]
    assert all((FOLDER / path).is_file() for path in paths)
    for grammar in given["grammars"]:
        assert json.loads((FOLDER / grammar["path"]).read_text(encoding="utf-8"))["scopeName"] == grammar["scopeName"]
    assert given["languages"][0]["extensions"] == [".dec"]
    assert PACKAGE["version"] == decgraph.__version__


def test_it_starts_a_verb_that_there_is() -> None:
    program, verb = PACKAGE["contributes"]["configuration"]["properties"]["decgraph.command"]["default"]
    assert program == "decgraph" and verb in verbs()
    assert set(re.findall(r'require\("([^"]+)"\)', (FOLDER / "extension.js").read_text(encoding="utf-8"))) <= {
        "vscode", *(f"{name}/node" for name in PACKAGE["dependencies"]),
    }  # fmt: skip


def test_lines_that_end_in_a_colon_indent_the_next() -> None:
    rules = json.loads((FOLDER / "language-configuration.json").read_text(encoding="utf-8"))["indentationRules"]
    more = re.compile(rules["increaseIndentPattern"])
    assert more.search("    while not done:  # go on") and more.search("algorithm f(target: causal):")
    assert not more.search("    state n: int per session = 0")


def test_code_blocks_of_markdown_are_found() -> None:
    block = json.loads((FOLDER / "syntaxes" / "markdown.json").read_text(encoding="utf-8"))["repository"]["block"]
    begin = re.compile(block["begin"].replace("\\G", "^").replace("(?i:", "(?:"))
    assert begin.search("```dec") and begin.search("```dec broken E031") and not begin.search("```decimal")
