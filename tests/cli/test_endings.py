"""No verb writes one format into a file, or a folder, whose name says another; what would write that is said. Nothing is
loaded or written before."""

from __future__ import annotations

from pathlib import Path

import pytest

from decgraph.cli.main import main

RUN = ("speculative", "-p", "ab")
WRONG: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "trace as pdf": (("trace", *RUN, "-o", "x.pdf"), ("a page", "x.html", "--plot x.pdf", "--chrome")),
    "trace as json": (("trace", *RUN, "--out", "x.json"), ("a page", "x.html", "--chrome")),
    "trace as text": (("trace", *RUN, "-o", "x.TXT"), ("a page", "x.html")),
    "chrome": (("trace", *RUN, "--chrome", "x.html"), ("JSON", "x.json")),
    "plot": (("trace", *RUN, "--plot", "x.html"), ("cannot draw", ".png")),
    "events": (("run", *RUN, "--events", "x.html"), ("JSON", "x.json", "decgraph trace")),
    "dumped": (("run", *RUN, "--dump-ir", "x.json"), ("a folder",)),
    "dumped by compile": (("compile", "speculative", "--dump-ir", "x.txt"), ("a folder",)),
    "verdicts": (("check", "speculative", "--html", "x.json"), ("a page", "x.html", "--json")),
    "time line": (("profile", *RUN, "--chrome", "x.csv"), ("JSON", "x.json")),
    "rows": (("map", "prompts.txt", "-a", "speculative", "-o", "x.csv"), ("a record a line", "x.jsonl")),
    "profile": (("tune", "speculative", "--prompts", "prompts.txt", "-o", "x.json"), ("a profile", "x.toml")),
    "proposer": (("export", "vllm", "prompt_lookup", "-o", "x.json"), ("Python", "x.py")),
    "worker": (("export", "sglang", "prompt_lookup", "-o", "x.dec"), ("Python", "x.py")),
    "repository": (("export", "hf", "speculative", "-o", "x.py"), ("a folder",)),
    "heads": (("convert", ".", "-o", "x.safetensors"), ("a folder",)),
    "table as csv": (("bench", "speculative", "-o", "x.csv"), ("--format table", "--format csv")),
    "csv as tex": (("bench", "speculative", "--format", "csv", "-o", "x.tex"), ("--format csv", "--format latex")),
    "table as picture": (("bench", "speculative", "-o", "x.png"), ("--format table", "--plot FOLDER or FILE.pdf")),
    "measured": (("bench", "speculative", "--results", "x.csv"), ("JSON", "x.json")),
    "drawn": (("bench", "speculative", "--plot", "x.jpg"), ("a folder",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_ending_of_another_format_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.txt").write_text("ab\n")
    words, said = WRONG[name]
    assert main(words) == 2
    heard = capsys.readouterr().err
    assert all(one in heard for one in said), heard
    assert [path.name for path in Path().iterdir()] == ["prompts.txt"]


def test_a_name_without_an_ending_fits(tables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["trace", *RUN, "-n", "2", "-o", "page"]) == 0
    assert Path("page").read_text().lstrip().startswith("<!doctype html>")
    assert main(["trace", *RUN, "-n", "2", "-o", "page.HTM"]) == 0
