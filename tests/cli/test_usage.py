"""Errors of usage have one form and one exit code at every verb, whoever finds them: typer or a verb."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_args, get_type_hints

import pytest

from decgraph.cli import output
from decgraph.cli.main import main
from decgraph.cli.verbs import verbs

Capture = pytest.CaptureFixture[str]


def numbers(command: Any) -> Iterator[str]:
    """The options of a verb whose values are numbers."""
    for hint in get_type_hints(command, include_extras=True).values():
        if hasattr(hint, "__metadata__") and {int, float} & {hint.__origin__, *get_args(hint.__origin__)}:
            described = hint.__metadata__[0]
            yield from (name for name in (described.default, *(described.param_decls or ())) if str(name).startswith("--"))


def wrong() -> Iterator[list[str]]:
    """Command lines with one mistake each: of every verb an option that there is not, and each number that is none."""
    for verb in verbs():
        module = import_module(f"decgraph.cli.{verb}")
        below = module.app.registered_commands if hasattr(module, "app") else ()
        for words, command in [([verb, one.name], one.callback) for one in below] or [([verb], module.command)]:
            yield [*words, "--no-such-option"]
            yield from ([*words, name, "wrong"] for name in numbers(command))


LINES = [
    ["nosuch"],
    ["--nosuch"],
    ["zoo", "pth"],
    ["run"],
    ["new", "a", "b"],
    ["run", "speculative", "--gamma", "three"],
    ["run", "speculative", "--set", "gamma"],
    ["run", "speculative", "-p", "ab", "--temperature", "-1"],
    ["run", "speculative", "-p", "ab", "--top-p", "7"],
    ["run", "speculative", "-p"],
    ["bench", "--rounds", "0"],
    ["check", "speculative", "--gamma", "99"],
    ["check", "speculative", "--models", "0"],
    ["check", "speculative", "--require", "tested"],
    ["compile", "speculative", "--emit", "poem"],
    ["lsp", "--tcp", "--stdio"],
    ["serve", "--ssl-keyfile", "x.pem"],
    ["tune", "speculative", "--prompts", "x.txt", "--seconds", "0"],
    *wrong(),
]


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_one_form_and_one_code(words: list[str], capsys: Capture) -> None:
    assert main(words) == output.REFUSED
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("error: ") and "Usage" not in said.err and "Error" not in said.err, said
    assert "\n  = try: " in said.err, said.err


def test_what_typer_finds_is_json_too(capsys: Capture) -> None:
    assert main(["list", "--json", "--nosuch"]) == output.REFUSED
    assert "--nosuch" in json.loads(capsys.readouterr().out)["error"]
