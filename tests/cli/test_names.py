"""One name for one thing: options that go by another name elsewhere answer with ours, at every verb and in Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.cli import completion, main, options, parsing
from decgraph.cli.verbs import GROUPS, verbs
from decgraph.runtime.request import DEFAULT_TEMPERATURE

Capture = pytest.CaptureFixture[str]
NAMED = [
    (["run", "speculative", "-p", "a", "--max-new", "4"], "--max-tokens"),
    (["run", "speculative", "-p", "a", "--limit", "4"], "--max-tokens"),
    (["run", "speculative", "-p", "a", "--n-predict=4"], "--max-tokens"),
    (["run", "speculative", "-p", "a", "--trace", "e.json"], "--events"),
    (["run", "speculative", "-p", "a", "--profile", "p.toml"], "--tuned"),
    (["run", "speculative", "-p", "a", "--assistant-model", "drafter"], "--drafter"),
    (["trace", "speculative", "-p", "a", "--output", "t.html"], "--out"),
    (["export", "vllm", "prompt_lookup", "--output", "t.py"], "--out"),
    (["check", "speculative", "--param", "gamma=3"], "--set"),
    (["check", "speculative", "--time", "3"], "--seconds"),
    (["tune", "speculative", "--param", "gamma"], "--search"),
    (["serve", "--max-new", "4"], "--max-tokens"),
    (["map", "x.jsonl", "-a", "speculative", "-o", "y.jsonl", "--max-new", "4"], "--max-tokens"),
]


@pytest.mark.parametrize(("words", "name"), NAMED)
def test_another_name_answers_with_ours(words: list[str], name: str, capsys: Capture) -> None:
    assert main.main(words) == 2
    assert f"it is {name} here" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["max_new_tokens", "max_length"])
def test_python_answers_with_its_own_name(name: str) -> None:
    fields: Any = {name: 4}
    with pytest.raises(decgraph.DecError, match=f"no `{name}`\n.*it is max_tokens here"):
        decgraph.run("speculative", "ab", **fields)


def test_limit_is_read_as_max_tokens() -> None:
    """Scripts of the first months say `limit`: at every door of Python it is what `max_tokens` is."""
    algorithm, ids = decgraph.load("autoregressive"), (5, 9, 12)
    session = algorithm.session(target="target")
    runs = [
        session.run(decgraph.Request(ids, limit=3)),
        *session.generate(["ab"], limit=3),
        algorithm.run("ab", {"target": "target"}, limit=3),
    ]
    assert [len(one.tokens) for one in runs] == [3] * 3
    assert decgraph.Request(ids, limit=3) == decgraph.Request(ids, max_tokens=3)
    changed = replace(decgraph.Request(ids, limit=3), seed=1)
    assert (changed.max_tokens, changed.seed) == (3, 1)
    with pytest.raises(decgraph.DecError, match="which are one thing"):
        session.generate(["ab"], limit=3, max_tokens=4)
    with pytest.raises(decgraph.DecError, match="which are one thing"):
        decgraph.Request(ids, limit=3, max_tokens=4)


def test_a_thing_has_one_name_at_every_verb() -> None:
    """No verb has an option by a name that another option went by, but where it means another thing there."""
    other = {"--json", "--trace", "--profile", "--param"}  # --json FILE of bench is --results; the flag stands everywhere
    for verb, found in completion.described().items():
        for below in [found, *found.get("verbs", {}).values()]:
            known = set(below["options"])
            former = {old: new for new, names in parsing.FORMER.items() for old in names if old not in other}
            assert not known & set(former), f"{verb} has {known & set(former)}"
    shared = {"--set", "--model", "--device", "--dtype", "--seed", "--max-tokens", "--temperature"}
    for verb in ("run", "map", "trace", "profile", "tune", "repl"):
        assert shared <= set(completion.described()[verb]["options"]), verb


def test_every_verb_that_prints_a_result_has_json_and_quiet() -> None:
    found = completion.described()
    leaves = {f"{verb} {below}".strip(): one for verb, top in found.items()
              for below, one in (top.get("verbs") or {"": top}).items()}  # fmt: skip
    assert {verb for verb, one in leaves.items() if "--json" not in one["options"]} == {"lsp"}
    # the others print what was asked for and nothing else
    without = {verb for verb, one in leaves.items() if "--quiet" not in one["options"]}
    assert without <= {"lsp", "explain", "compile", "fmt", "new", "convert", "zoo list", "zoo path", "zoo fetch", "zoo verify",
                       "export hf", "export vllm", "export sglang"}  # fmt: skip


def test_the_verbs_stand_in_groups(capsys: Capture) -> None:
    grouped = [verb for group in GROUPS.values() for verb in group]
    assert sorted(grouped) == sorted(verbs())
    assert main.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n{title}:\n" in out for title in GROUPS) and "Others" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_help_beside_an_algorithm_lists_its_parameters(capsys: Capture) -> None:
    assert main.main(["run", "eagle2", "--help"]) == 0
    out = capsys.readouterr().out
    assert "EAGLE-2" in out and "head    a head that reads another model's features" in out
    assert "--budget  a whole number in 1..256, 59 unless given" in out
    assert main.main(["trace", "mcts", "-h"]) == 0
    assert "reward(text) -> float" in capsys.readouterr().out


def test_the_default_temperature_is_one() -> None:
    assert options.DEFAULT_TEMPERATURE == DEFAULT_TEMPERATURE


def test_functions_have_stand_ins(capsys: Capture, tables: None) -> None:
    assert main.main(["run", "best_of_n", "-p", "ab", "-n", "3"]) == 2
    err = capsys.readouterr().err
    assert "needs the function `reward`: (str) -> float" in err and "--extern demo:reward" in err
    assert main.main(["run", "best_of_n", "-p", "ab", "-n", "3", "--n", "2", "-q", "--extern", "demo:reward"]) == 0
    assert main.main(["run", "best_of_n", "-p", "ab", "--extern", "demo:nothing"]) == 2


def test_every_function_of_the_library_has_a_stand_in() -> None:
    from decgraph import stdlib
    from decgraph.zoo import stand_ins

    called = {name for one in map(stdlib.entry, stdlib.names()) for name in one.externs}
    assert called == set(stand_ins.__all__)


@pytest.mark.filterwarnings("default")
def test_an_option_goes_before_a_parameter_of_its_name(capsys: Capture, tables: None, tmp_path: Path) -> None:
    file = tmp_path / "mine.dec"
    file.write_text(
        "algorithm mine(target: causal, out: int in 1..3 = 2):\n"
        "    while not done:\n        x ~ target(ctx)\n        commit x\n"
    )
    page = str(tmp_path / "x.html")
    assert main.main(["trace", str(file), "-p", "ab", "-n", "2", "--out", page]) == 0
    assert "warning: --out is an option of decgraph trace; the parameter is --set out=..." in capsys.readouterr().err
    assert main.main(["trace", str(file), "-p", "ab", "-n", "2", "-o", page, "--set", "out=3"]) == 0
    assert main.main(["run", str(file), "-p", "ab", "-n", "2", "--out", "3"]) == 0, "run has no such option"
    assert "is an option of decgraph run" not in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_a_folder_called_as_a_shipped_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """It is read where it is named, which is said; a model that is left out is the shipped one."""
    monkeypatch.chdir(tmp_path)
    Path("target").mkdir()
    assert main.main(["run", "autoregressive", "-p", "ab", "-m", "target"]) == 2
    assert capsys.readouterr().err.count("rename it for that one") == 1
    assert main.main(["run", "autoregressive", "-p", "ab", "-n", "1"]) == 0
    assert "rename" not in capsys.readouterr().err
