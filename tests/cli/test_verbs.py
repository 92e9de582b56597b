"""`list`, `check`, `compile`, `explain` and `new`: what they print, as text and as JSON, and their exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from lib.stdlib.table_models import NAMES

from decgraph import stdlib
from decgraph.cli import new
from decgraph.cli.main import main
from decgraph.ir.text import parse_module, print_module

FORGETS = """rule forgets(p: dist, children: draws):
    for x in children:
        if bernoulli(p[x] / x.law[x]):
            accept x
    y ~ p
    emit y

algorithm broken(target: causal, drafter: causal, gamma: int in 1..8 = 2):
    refines autoregressive(target) in distribution
    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by forgets against target(t)
        commit t.accepted
"""
Capture = pytest.CaptureFixture[str]


def as_json(capsys: Capture, *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def broken(tmp_path: Path) -> str:
    (tmp_path / "broken.dec").write_text(FORGETS)
    return str(tmp_path / "broken.dec")


def test_list(capsys: Capture) -> None:
    entries = {e["name"]: e for e in as_json(capsys, "list")}
    assert set(entries) == set(stdlib.names())
    one = entries["speculative"]
    known = ["name", "family", "claim", "source", "file", "title", "wave", "status", "code", "note"]
    assert list(one) == [*known, "about", "searched", "kinds", "externs", "promises"]
    assert one["claim"] == "refines autoregressive(target) in distribution"
    assert "Leviathan" in one["source"]
    assert Path(one["file"]).read_text().startswith("algorithm speculative")
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("name\tfamily\twhat it does\tclaims\n")
    assert "speculative\tmodel drafter\ta small model drafts, the target verifies\tdistribution\n" in out
    assert "mcts *\tsearch\t" in out  # it calls a function of its user's
    assert main(["list", "--long"]) == 0
    assert "speculative\tmodel drafter\trecorded\ta small model drafts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("filters", "found", "lacks"),
    [
        (["--kind", "masked"], "fast_dllm", "speculative"),
        (["--claim", "distribution"], "speculative", "eagle2"),
        (["--claim", "none"], "autoregressive", "speculative"),
        (["TREE", "heads"], "eagle2", "recursive_sd"),
        (["leviathan"], "speculative", "eagle2"),
    ],
)
def test_list_filters(filters: list[str], found: str, lacks: str, capsys: Capture) -> None:
    assert main(["list", *filters, "--quiet"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert found in names and lacks not in names and set(names) < set(stdlib.names())
    assert main(["list", "--kind", "maksed"]) == 2
    assert "one of causal" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("autoregressive", "baseline"),
        ("eagle2", "heads"),
        ("fast_dllm", "diffusion"),
        ("kangaroo", "self"),
        ("medusa", "heads"),
        ("recursive_sd", "tree"),
        ("token_recycling", "retrieval"),
    ],
)
def test_families(name: str, family: str) -> None:
    assert stdlib.entry(name).family == family


def test_check_proves(capsys: Capture) -> None:
    got = as_json(capsys, "check", "speculative", "--gamma", "2", "--models", "3", "--compare")
    assert got["verdict"] == "proved"
    assert got["claim"] == "refines autoregressive(target) in distribution"
    assert got["tried"]["kinds"] == {"base": 3}
    assert got["models"] == 3  # beside a derivation there are no more
    assert got["runs"] > got["models"]
    assert got["seconds"] >= 0
    assert got["counterexample"] is None
    assert main(["check", "speculative", "--set", "gamma=1", "--models", "2"]) == 0
    assert capsys.readouterr().out.startswith("proved    speculative: refines")


def test_check_refutes_with_both_laws(broken: str, capsys: Capture) -> None:
    got = as_json(capsys, "check", broken, code=1)
    assert got["verdict"] == "refuted"
    assert got["counterexample"]["ours"] != got["counterexample"]["theirs"]
    assert main(["check", broken]) == 1
    out = capsys.readouterr().out
    assert out.startswith("refuted   broken: ")
    for word in ("prompt", "p(. |", "total variation", "autoregressive"):
        assert word in out


def test_check_of_what_claims_nothing(capsys: Capture) -> None:
    assert as_json(capsys, "check", "autoregressive", "--models", "1")["verdict"] == "none"
    assert main(["check", "autoregressive", "--models", "1"]) == 0
    assert "nothing to prove" in capsys.readouterr().out


def test_check_all_goes_over_the_shelf(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(stdlib, "names", lambda: ("autoregressive", "speculative"))
    got = as_json(capsys, "check", "--all", "--models", "1", "--jobs", "1")
    assert [(r["name"], r["verdict"]) for r in got] == [("autoregressive", "none"), ("speculative", "proved")]
    assert main(["check", "--all", "--models", "1", "--jobs", "1"]) == 0
    assert "1 proved, 1 without a claim" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["check"], "check what?"),
        (["check", "speculative", "--all"], "check what?"),
        (["check", "nosuch"], "no algorithm called"),
        (["check", "speculative", "--gamma", "99"], "must be in 1..32"),
        (["check", "speculative", "--modles", "3"], "did you mean --models?"),
        (["check", "speculative", "--models", "0"], "at least"),
        (["compile", "nosuch"], "no algorithm called"),
        (["explain", "nosuch"], "no algorithm called"),
        (["explain", "E999"], "no page about E999"),
        (["new", "not a name"], "decgraph new not_a_name"),
        (["new", "/nowhere/mine"], "cannot write"),
    ],
)
def test_refusals(arguments: list[str], word: str, capsys: Capture) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert word in err
    assert out == ""


def test_diagnostics_of_a_file_have_place_and_caret(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "wrong.dec"
    file.write_text("algorithm wrong(target: causal):\n    while not done:\n        commit y\n")
    for verb in (["check"], ["compile"], ["explain"]):
        assert main([*verb, str(file)]) == 2
        err = capsys.readouterr().err
        assert f"{file}:3:16" in err
        assert "^" in err


def test_compile_ir_reads_back(capsys: Capture) -> None:
    assert main(["compile", "speculative"]) == 0
    text = capsys.readouterr().out
    assert print_module(parse_module(text)).strip() == text.strip()
    assert as_json(capsys, "compile", "speculative", "--emit", "ir")["ir"].strip() == text.strip()


def test_compile_cost_counts_calls_per_step(capsys: Capture) -> None:
    cost = as_json(capsys, "compile", "speculative", "--emit", "cost")
    calls = {c["model"]: (c["times"], c["most"]) for c in cost["calls"]}
    assert calls == {"drafter": ("gamma", 32), "target": ("1", 1)}
    assert main(["compile", "eagle2", "--emit", "cost"]) == 0
    out = capsys.readouterr().out
    assert "depth x the frontier of t, on what the target remembers, at most 12" in out
    assert "waits for the host" in out


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_has_cost_graph_and_words(name: str, capsys: Capture) -> None:
    assert as_json(capsys, "compile", name, "--emit", "cost")["calls"]
    graph = as_json(capsys, "compile", name, "--emit", "graph")
    kinds = {node["opcode"] for node in graph["nodes"]}
    assert {"model.eval", "commit"} <= kinds
    assert "const" not in kinds
    known = {node["id"] for node in graph["nodes"]}
    assert all({a, b} <= known for a, b in graph["edges"])
    words = as_json(capsys, "explain", name)
    assert [claim for claim, _ in words["claims"]] == [c for c in [stdlib.entry(name).claim] if c] or len(words["claims"]) > 1
    assert words["step"]
    assert len(words["drawing"]) >= 1


def test_graphs_are_dot_or_mermaid(capsys: Capture) -> None:
    assert main(["compile", "speculative", "--emit", "graph"]) == 0
    text = capsys.readouterr().out
    assert text.startswith('digraph "speculative" {')
    assert text.count("{") == text.count("}")
    assert (
        main(["compile", "secondary_remask", "--emit", "graph"]) == 0 and "canvas.put masked again" in capsys.readouterr().out
    )
    assert main(["compile", "jump_forward", "--emit", "graph"]) == 0
    out = capsys.readouterr().out
    assert re.search(r'label="line \d+/if, line \d+"', out) and re.search(r'label="line \d+/else, line \d+"', out)
    assert main(["compile", "speculative", "--emit", "graph", "--form", "mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart TD\n")


def test_explain_tells_lines_and_draws(capsys: Capture) -> None:
    assert main(["explain", "speculative"]) == 0
    out = capsys.readouterr().out
    for word in ("gamma times:", "draw x from drafter(t.leaves)", "in 1..32, 4 unless given", "──", "exactly the distribution"):
        assert word in out


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.slow) if k == "search" else k for k in new.KINDS])
def test_new_writes_a_file_that_checks_out(
    kind: str, tables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "own", "--kind", kind]) == 0
    assert "wrote own.dec; next: decgraph run own.dec --prompt" in capsys.readouterr().out
    assert "mine" not in Path("own.dec").read_text() and main(["fmt", "--check", "own.dec"]) == 0
    few = ["--set", "length=2"] * (kind == "masked") + ["--set", "k=2"] * (kind == "search")
    got = as_json(capsys, "check", "own.dec", "--models", "2", *few)
    assert (got["name"], got["verdict"]) == ("own", "holds" if kind == "search" else "proved")
    assert main(["run", "own.dec", "--prompt", "ab", "-n", "3", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["new", "own", "--kind", kind]) == 2 and "--force" in capsys.readouterr().err
    assert as_json(capsys, "new", "own.dec", "--force") == {"name": "own", "file": "own.dec"}
    assert main(["new", "own", "--kind", "none"]) == 2 and "head, masked, rule, search, speculative" in capsys.readouterr().err


def test_kernels_and_how_steps_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "autoregressive", "--emit", "triton"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith('"""autoregressive: one decoding step. ') and compile(shown, "shown", "exec")
    assert "def step(tensors):" in shown and "    # autoregressive.dec:" in shown and " launches: " in shown
    assert "def triton_" in shown and "def race_kernel(" in shown, "Inductor's kernels, and those by hand"
    assert main(["compile", "autoregressive", "--emit", "triton", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["eager"] is None and told["graphs"][0]["launches"] and "def step(tensors):" in told["graphs"][0]["text"]
    assert main(["compile", "kgw_watermark", "--emit", "triton"]) == 0
    assert "# kgw_watermark: eager mode" in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 100, 120])
def test_verdicts_break_no_word(width: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Wrapped at spaces and indented beside the verdict, where a terminal would cut words at its edge."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["check", "hyperschedule", "--models", "1", "--seconds", "0.2"]) == 3
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, map(str.rstrip, lines))) <= width
    assert all(line.startswith(" " * 10) for line in lines[1:])
    words = lambda text: set(text.replace(";", "").split())
    assert words(stdlib.entry("hyperschedule").claim) <= words(" ".join(lines))
