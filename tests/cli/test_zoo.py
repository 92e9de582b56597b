"""`decgraph zoo`: names and folders, as text and as JSON."""

from __future__ import annotations

import io
import json

import pytest
from lib.waiting import until

import decgraph
from decgraph.cli.main import main
from decgraph.runtime.progress import shown

NAMES = ("target", "drafter", "medusa")


@pytest.fixture(autouse=True)
def models(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models are here; a third is known and lacks its folder, and a fourth can be fetched and was not."""

    def path(name: str):
        if name in ("medusa", "chat"):
            raise decgraph.DecError("the model medusa is not here", hint="train it")
        if name not in NAMES:
            raise decgraph.DecError(f"no model {name}")
        return tmp_path / name

    monkeypatch.setattr("decgraph.zoo.names", lambda: list(NAMES))
    monkeypatch.setattr("decgraph.zoo.fetchable", lambda: ["chat"])
    monkeypatch.setattr("decgraph.zoo.path", path)


def test_list(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "list"]) == 0
    heading, *lines = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert heading == ["model", "what it is", "folder"]
    places = [f"{tmp_path}/target", f"{tmp_path}/drafter", "(not on this machine)", "(decgraph zoo fetch chat)"]
    assert [(line[0], line[2]) for line in lines] == list(zip([*NAMES, "chat"], places, strict=True))
    assert "5.3M parameters" in lines[0][1]
    assert main(["zoo", "list", "--json"]) == 0
    first, _, third, fourth = json.loads(capsys.readouterr().out)
    assert (first["name"], first["path"], first["fetchable"]) == ("target", f"{tmp_path}/target", False)
    assert (third["path"], third["fetchable"], fourth["path"], fourth["fetchable"]) == (None, False, None, True)


def test_path_alone_on_its_line(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "path", "drafter"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/drafter\n"
    assert main(["zoo", "path", "drafter", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "drafter", "path": f"{tmp_path}/drafter"}


def test_a_model_that_is_not_there_is_a_user_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "path", "medusa"]) == 2
    assert capsys.readouterr().err == "error: the model medusa is not here\n  = try: train it\n"
    assert main(["zoo", "path", "nosuch"]) == 2


def test_a_terminal_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thing that is done has a line of its own: what has no size does not keep that of the one before."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr", screen)
    seen: list[str] = []
    with shown("fetch:", bytes=True) as hear:
        for what, done, of in (("downloading", 1_000_000, 93_000_000), ("unpacking", 0, 0)):
            hear(what, done, of)
            drawn = "1.0/93.0 MB" if of else what
            until(f"a frame shows {drawn}", lambda drawn=drawn: drawn in screen.getvalue()[sum(map(len, seen)) :])
            seen.append(screen.getvalue()[sum(map(len, seen)) :])
    assert "1.0/93.0 MB" in seen[0]
    assert "93.0" not in seen[1].split("unpacking")[-1]
