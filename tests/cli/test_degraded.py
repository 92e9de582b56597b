"""A run whose drafts all end in errors commits the right tokens at the speed of plain decoding: every door that counts
anything says so, or a table would show a program that never drafted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lib.server import client, served

from decgraph.check.algorithm import check_algorithm
from decgraph.cli.main import main
from decgraph.serve.catalogue import Catalogue

FAILING = """algorithm failing(target: causal, drafter: causal, few: int in 0..8 = 0, k: int in 1..4 = 2):
    refines autoregressive(target) in tokens
    while not done:
        draft t:
            for i in 0..k:
                grow point(int(zeros(few)[i]))
        verify t by match against target(t)
        commit t.accepted
"""
SAYS = "no element"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing.dec").write_text(FAILING)
    (tmp_path / "prompts.txt").write_text("ab\ncab\nb\n")
    return "failing.dec"


def test_map_counts_them_in_records_and_in_the_summary(
    tables: None, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["map", "prompts.txt", "-a", program, "-o", "out.jsonl", "-n", "5"]) == 0
    assert SAYS in capsys.readouterr().err
    for line in (tmp_path / "out.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert record["error"] is None and sum(record["draft_errors"].values()) >= 4
    assert main(["map", "prompts.txt", "-a", program, "-o", "well.jsonl", "-n", "5", "--few", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["draft_errors"] == {}


def test_tune_marks_settings_by_which_drafts_end(tables: None, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", program, "--prompts", "prompts.txt", "-n", "8", "--seconds", "1", "--json", "--search", "few=0..8"]
    assert main(words) == 0
    (load,) = json.loads(capsys.readouterr().out)["loads"]
    assert SAYS in next(iter(next(errors for label, errors in load["draft_errors"].items() if "few=0" in label)))
    assert main([*words[:-2], "--set", "few=8", "--search", "k=1..2"]) == 0
    assert json.loads(capsys.readouterr().out)["loads"][0]["draft_errors"] == {}


@pytest.mark.quick(0)
@pytest.mark.parametrize("few", [0, 4])
def test_bench_has_them_in_its_row_and_below_its_table(program: str, few: int, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", f"{program}:few={few}", "--quick", "-n", "4", "--take", "1", "--baseline", "generate"]
    assert main([*words, "--results", "r.json", "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    (run,) = json.loads(Path("r.json").read_text())["runs"]
    (row,) = [row for row in run["rows"] if row["side"] == "decgraph"]
    assert (SAYS in said) == bool(row["draft_errors"]) == (few == 0)


def test_the_answer_of_a_server_and_its_line_in_the_log(program: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="decgraph.serve")
    with served(Catalogue([program], "target", drafter="drafter")) as server, client(server) as api:
        answer = api.completions.create(model="target", prompt="def", max_tokens=4)
    (more,) = answer.decgraph
    assert more["ended_drafts"] >= 3 and SAYS in next(iter(more["draft_errors"]))
    lines = [fields for record in caplog.records if "drafted" in (fields := getattr(record, "fields", {}))]
    assert [line["ended_drafts"] for line in lines] == [more["ended_drafts"]]


def test_check_says_where_a_draft_ends_in_a_world(program: str) -> None:
    """The claim is proved whatever the drafts are; that there are none is a note."""
    report = check_algorithm(program, params={"few": 0}, models=4)
    assert report.verdict == "proved" and any(f"{program}:6" in note and SAYS in note for note in report.notes)
    assert not check_algorithm(program, params={"few": 8}, models=4).notes
