"""`decgraph zoo`: names and folders, as text and as JSON."""

from __future__ import annotations

import json

import pytest

import decgraph
from decgraph.cli.main import main

NAMES = ("target", "drafter", "medusa")


@pytest.fixture(autouse=True)
def shelf(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models on the shelf; a third is known and lacks its folder."""

    def path(name: str):
        if name == "medusa":
            raise decgraph.DecError("the model medusa is not here", hint="train it")
        if name not in NAMES:
            raise decgraph.DecError(f"no model {name}")
        return tmp_path / name

    monkeypatch.setattr("decgraph.zoo.names", lambda: list(NAMES))
    monkeypatch.setattr("decgraph.zoo.path", path)


def test_list(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "list"]) == 0
    assert capsys.readouterr().out == f"model\tfolder\ntarget\t{tmp_path}/target\ndrafter\t{tmp_path}/drafter\nmedusa\t\n"
    assert main(["zoo", "list", "--json"]) == 0
    first, _, third = json.loads(capsys.readouterr().out)
    assert first == {"name": "target", "path": f"{tmp_path}/target"}
    assert third == {"name": "medusa", "path": None}


def test_path_alone_on_its_line(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "path", "drafter"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/drafter\n"
    assert main(["zoo", "path", "drafter", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "drafter", "path": f"{tmp_path}/drafter"}


def test_a_model_that_is_not_there_is_a_user_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "path", "medusa"]) == 1
    assert capsys.readouterr().err == "error: the model medusa is not here\n  = try: train it\n"
    assert main(["zoo", "path", "nosuch"]) == 1
