"""`--passes`, `--no-pass`, `--dump-ir`, `--validate`, `--set` and `--emit passes` of `compile` and `run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lib.programs.for_passes import TEXTS

from decgraph.check import validation
from decgraph.cli.main import main
from decgraph.ir.text import parse_module
from decgraph.passes.manager import ORDER

Capture = pytest.CaptureFixture[str]


def test_the_ir_is_as_lowered_unless_passes_are_asked_for(capsys: Capture) -> None:
    texts = []
    for options in ((), ("--passes", "all"), ("--passes", "simplify"), ("--no-pass", "placement", "--no-pass", "vocabulary")):
        assert main(["compile", "speculative", *options]) == 0
        texts.append(capsys.readouterr().out)
        parse_module(texts[-1])
    assert ["segment" in t for t in texts] == [False, True, False, False]
    assert ["reuse" in t for t in texts] == [False, True, False, True]


def test_parameters_known_at_compile_time(capsys: Capture) -> None:
    assert main(["compile", "speculative", "--set", "gamma=3"]) == 0
    assert "%gamma: int in 3..3 = 3" in capsys.readouterr().out
    assert main(["compile", "speculative", "--set", "gama=3"]) == 2
    assert "did you mean gamma?" in capsys.readouterr().err
    assert main(["compile", "speculative", "--set", "gamma=99"]) == 2
    assert "it must be in 1..32" in capsys.readouterr().err


def test_what_passes_did(capsys: Capture) -> None:
    assert main(["compile", "lookahead", "--emit", "passes"]) == 0
    text = capsys.readouterr().out
    assert "2 calls of target are one (line 23)" in text
    assert "one forward for all sequences that wait for target" in text
    assert main(["compile", "lookahead", "--emit", "passes", "--no-pass", "tree_fusion", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [s["name"] for s in report["steps"]] == [p for p in ORDER if p != "tree_fusion"]


def test_the_cost_is_that_after_the_passes(capsys: Capture) -> None:
    assert main(["compile", "lookahead", "--emit", "cost", "--json"]) == 0
    after = json.loads(capsys.readouterr().out)["calls"]
    assert main(["compile", "lookahead", "--emit", "cost", "--passes", "none", "--json"]) == 0
    before = json.loads(capsys.readouterr().out)["calls"]
    assert (len(before), len(after)) == (2, 1)
    assert after[0]["computed"]
    assert not before[0]["computed"]


def test_names_of_passes_are_checked(capsys: Capture) -> None:
    for verb in (["compile", "speculative"], ["run", "speculative", "-p", "x"]):
        assert main([*verb, "--passes", "simplify,fuse"]) == 2
        assert "there is no pass fuse" in capsys.readouterr().err
        assert main([*verb, "--no-pass", "reus"]) == 2
        assert "did you mean reuse?" in capsys.readouterr().err


def test_dump_and_validate(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "WORLDS", 2)
    folder = tmp_path / "ir"
    assert main(["compile", "token_recycling", "--dump-ir", str(folder), "--validate", "--emit", "passes"]) == 0
    assert "every one of them validated" in capsys.readouterr().out
    assert len(list(folder.iterdir())) == 1 + len(ORDER)


def test_a_wrong_pass_is_a_bug_of_ours_with_a_reproducer(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from decgraph.passes import tree_fusion

    monkeypatch.setattr(tree_fusion, "writes", lambda op: frozenset())
    file = tmp_path / "steps.dec"
    file.write_text(TEXTS["steps"])
    assert main(["compile", str(file), "--validate"]) == 70
    err = capsys.readouterr().err
    assert "pass tree_fusion changed what steps does" in err
    assert "request 0: Request(" in err


def test_run_takes_them_too(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "WORLDS", 2)
    words = ["run", "autoregressive", "-p", "def", "-n", "4", "-q", "--backend", "reference"]
    outputs = []
    for options in ((), ("--passes", "all", "--dump-ir", str(tmp_path / "ir"), "--validate")):
        assert main([*words, *options]) == 0
        outputs.append(capsys.readouterr().out)
    assert len(set(outputs)) == 1
    assert (tmp_path / "ir" / "01-simplify.ir").exists()
