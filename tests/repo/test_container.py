"""The container file and the compose file: what they name is there, and every command line is one that decgraph takes."""

from __future__ import annotations

import json
import re
import shlex
from fnmatch import fnmatch
from typing import Any

import pytest
import yaml
from lib.repository import ROOT
from typer.main import get_command

from decgraph.cli import application
from decgraph.cli.verbs import verbs

KNOWN = ("FROM", "ARG", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD")


def instructions() -> list[tuple[str, str]]:
    """Instruction and rest, in order, of the container file."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return [(found[0], found[2]) for line in lines if line and not line.startswith("#") for found in [line.partition(" ")]]


def parsed(words: list[str]) -> None:
    """The command line, read and not run: raises for what the command would refuse."""
    app: Any = get_command(application.of(words, verbs()))
    context = app.make_context("decgraph", list(words))
    name, verb, rest = app.resolve_command(context, words)
    verb.make_context(name, rest, parent=context)


def test_the_container_file_says_what_there_is() -> None:
    found = instructions()
    assert {name for name, _ in found} == set(KNOWN)
    stages = {rest.partition(" AS ")[2] for name, rest in found if name == "FROM"}
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for name, rest in found:
        if name == "COPY":
            flags, sources = [w for w in rest.split() if w[:2] == "--"], [w for w in rest.split()[:-1] if w[:2] != "--"]
            assert all(flag.removeprefix("--from=") in stages for flag in flags)
            assert flags or all((ROOT / source).exists() for source in sources)
    assert (ROOT / ".ci/requirements.py").is_file()
    needed = ("decgraph", "zoo", "stdlib", "pyproject.toml", "README.md", "docs", ".ci")
    assert not [path for path in needed for pattern in ignored if fnmatch(path, pattern)]


def test_the_container_serves_as_a_user_without_rights_and_says_when_it_is_ready() -> None:
    last = dict(instructions())
    assert last["USER"] == "decgraph" and f"-o {last['USER']} {last['VOLUME']}" in " ".join(r for _, r in instructions())
    check = json.loads(last["HEALTHCHECK"].partition(" CMD ")[2])
    assert check[0] == "python" and f"http://127.0.0.1:{last['EXPOSE']}/ready" in check[2]
    compile(check[2], "HEALTHCHECK", "exec")
    assert json.loads(last["ENTRYPOINT"]) == ["decgraph"]
    words = json.loads(last["CMD"])
    assert words[:3] == ["serve", "--host", "0.0.0.0"]
    parsed(words)


def test_the_compose_file_publishes_the_port_to_this_machine_alone() -> None:
    last = dict(instructions())
    made = yaml.safe_load((ROOT / "compose.yml").read_text(encoding="utf-8"))
    (service,) = made["services"].values()
    assert service["ports"] == [f"127.0.0.1:{last['EXPOSE']}:{last['EXPOSE']}"]
    assert service["build"] == "." and "command" not in service
    volume, _, place = service["volumes"][0].partition(":")
    assert volume in made["volumes"] and place == last["VOLUME"] and f"DECGRAPH_CACHE={place}" in last["ENV"].split()


def test_what_the_page_types_is_read() -> None:
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    typed = re.findall(r"^\$ docker run (?:-\S+ (?:\S+:\S+ )?)*decgraph (.*)$", page, re.M)
    assert len(typed) == 3
    for line in typed:
        parsed(shlex.split(line))
    with pytest.raises(Exception, match="--hots"):
        parsed(["serve", "--hots", "0.0.0.0"])
