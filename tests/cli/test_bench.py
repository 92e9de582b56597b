"""`decgraph bench`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.bench import weights
from decgraph.cli.main import main

Capture = pytest.CaptureFixture[str]
SHORT = ("--take", "1", "--max-tokens", "6", "--rounds", "1")
EARLY_EXIT = '''algorithm early(target: causal, layer: int in 1..64 = 1, gamma: int in 1..16 = 2):
    """The target's first layers draft."""
    refines autoregressive(target) in tokens

    while not done:
        draft t:
            repeat gamma:
                x ~ target.exit(layer)(t.leaves)
                grow x
        verify t by match against target(t)
        commit t.accepted
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama in a folder, with the shipped tokenizer and a chat template; its drafter beside it."""
    home = tmp_path_factory.mktemp("own")
    shape = weights.LlamaSize(32, 3, 1, 4, decgraph.load("autoregressive").session().models["target"].vocab.size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(weights.SIZES, "tiny", shape)
        made = weights.random_llama("tiny")
    template = "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}<assistant> "
    for name, module in (("model", made.target), ("small", made.drafter)):
        module.save_pretrained(home / name)
        shipped = decgraph.zoo.path("target")
        for file in shipped.glob("tokenizer*"):
            (home / name / file.name).write_bytes(file.read_bytes())
        (home / name / "chat_template.jinja").write_text(template)
    (home / "early.dec").write_text(EARLY_EXIT)
    return home


def rows_of(file: Path) -> tuple[dict[str, Any], dict[tuple[str, str], dict[str, Any]]]:
    """A result file's only run, and its rows by method and kind."""
    made = json.loads(file.read_text())
    (run,) = made["runs"]
    return {**made, **run}, {(row["algorithm"], row["kind"]): row for row in run["rows"]}


def test_the_shipped_models(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decgraph.runtime.progress.EVERY", 0.01)
    out = tmp_path / "made.json"
    assert main(["bench", "speculative", *SHORT, "--gamma", "2", "--results", str(out)]) == 0
    said = capsys.readouterr()
    assert "\nmeasuring: " in f"\n{said.err}"  # also where nobody sits at a terminal: the table comes at the end
    heading, *printed = said.out.splitlines()
    assert heading.split("\t")[:3] == ["method", "tokens/call", "tokens/s"]
    assert [line.split("\t")[0] for line in printed[:4]] == [
        "transformers generate", "transformers prompt_lookup", "transformers assisted", "speculative",
    ]  # fmt: skip
    assert "1 threads" in said.out and "float32" in said.out
    (command,) = [line for line in said.out.splitlines() if line.startswith("Command: decgraph bench speculative")]
    assert all(words in command for words in ("--gamma 2", "--take 1", "--max-tokens 6", "--rounds 1"))
    assert "--seed" not in command
    run, rows = rows_of(out)
    assert run["contenders"]["speculative"]["params"] == {"gamma": 2}
    assert rows["speculative", "code"]["tokens_equal"] == {"same": 1, "near_ties": 0, "different": 0}
    assert run["models"]["target"] > run["models"]["drafter"] and run["machine"]["threads"] == 1
    assert len(run["digests"]["target"]["model.safetensors"]) == 64


@pytest.mark.filterwarnings("default:eagle2 is not measured")
def test_an_own_model_with_own_prompts_drafter_and_program(folder: Path, capsys: Capture, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    lines = [
        {"prompt": "def f(x):", "kind": "code"},
        {"messages": [{"role": "user", "content": "Hello there"}], "kind": "talk"},
        {"prompt": "Say it again", "kind": "talk"},
    ]
    prompts.write_text("\n".join(map(json.dumps, lines)))
    out, table, drawn = tmp_path / "made.json", tmp_path / "table.tex", tmp_path / "plots"
    words = ["bench", f"{folder}/early.dec:gamma=3", "speculative", "eagle2", "--model", str(folder / "model"), "--drafter",
             str(folder / "small"), "--prompts", str(prompts), "--chat", "-n", "6", "--rounds", "2", "--format", "latex",
             "--out", str(table), "--results", str(out), "--plot", str(drawn)]  # fmt: skip
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.out == "" and "drawn" in said.err
    run, rows = rows_of(out)
    assert run["prompts"]["kinds"] == {"code": 1, "talk": 2} and run["prompts"]["chat"] is True
    assert {kind for _, kind in rows} == {"all", "code", "talk"}
    for name in ("early:gamma=3", "speculative", "transformers assisted"):
        assert rows[name, "all"]["tokens_equal"]["same"] + rows[name, "all"]["tokens_equal"]["near_ties"] == 3
    assert run["contenders"]["early:gamma=3"]["file"] == f"{folder}/early.dec"
    assert "needs features" in run["failed"]["eagle2"]
    text = table.read_text()
    assert "early:gamma=3 & " in text and "\\toprule" in text and "% Not measured: eagle2" in text
    assert {path.name for path in drawn.iterdir()} >= {"ratios.png", "tokens_per_call.svg", "acceptance.png"}


@pytest.mark.slow
@pytest.mark.parametrize("format", ["md", "csv", "json", "table"])
def test_every_form_goes_to_stdout_or_a_file(format: str, capsys: Capture, tmp_path: Path) -> None:
    words = ["bench", "autoregressive", *SHORT, "--baseline", "generate", "--format", format]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert main([*words, "--out", str(tmp_path / "file")]) == 0
    assert capsys.readouterr().out == ""
    for text in (shown, (tmp_path / "file").read_text()):
        assert "autoregressive" in text and "transformers generate" in text
        if format == "csv":
            assert [row["algorithm"] for row in csv.DictReader(text.splitlines())] == [
                "transformers generate",
                "autoregressive",
            ]
        if format == "json":
            assert json.loads(text)["runs"][0]["rows"][1]["side"] == "decgraph"


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--batch", "2"), ("--temperature", "0.7"), ("--dtype", "bfloat16"), ("--one-copy",)])
def test_settings_reach_the_run(words: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "made.json"
    common = ["bench", "prompt_lookup", "--model", str(folder / "model"), *SHORT, "--take", "2", "--results", str(out)]
    assert main([*common, *words]) == 0
    run, rows = rows_of(out)
    assert run["settings"]["batch"] == (2 if "--batch" in words else 1)
    assert run["settings"]["temperature"] == (0.7 if "--temperature" in words else 0)
    assert run["models"]["dtype"] == ("bfloat16" if "--dtype" in words else "float32")
    assert ("tokens_equal" in rows["prompt_lookup", "chat"]) == ("--temperature" not in words)


def test_ctrl_c_keeps_what_was_measured(capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It comes in the second timed run of four; the table is of the first, and the exit code that of an interruption."""
    from decgraph.bench.contenders import Ours

    plain, count = Ours.__call__, [0]

    def interrupted(self: Ours, n: int) -> int:
        count[0] += 1
        if count[0] == 2:
            raise KeyboardInterrupt
        return plain(self, n)

    monkeypatch.setattr(Ours, "__call__", interrupted)
    out = tmp_path / "made.json"
    words = ["bench", "autoregressive", "--take", "1", "--max-tokens", "6", "--rounds", "4", "--baseline", "generate"]
    assert main([*words, "--results", str(out)]) == 130
    run, rows = rows_of(out)
    assert run["interrupted"] and rows["autoregressive", "code"]["timed"] == 1
    assert "Interrupted: 1 groups" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "message"), [
    (["nothing"], "no algorithm called 'nothing'"),
    (["speculative", "--baseline", "nothing"], "no baseline 'nothing'"),
    (["speculative:gamma=99"], "must be in 1..32"),
    (["speculative", "--gama", "3"], "did you mean --gamma"),
    (["autoregressive", "--gamma", "3"], "there is no option --gamma"),
    (["autoregressive", "--format", "html"], "no format 'html'"),
    (["autoregressive", "--model", "a", "--model", "b"], "two models"),
    (["speculative", "--drafter", "a", "--model", "drafter=b"], "two drafters"),
    (["autoregressive", "--model", "/nowhere/at/all"], "is not a folder with a model"),
    (["autoregressive", "--model", "head=/nowhere"], "none of the algorithms takes a model `head`"),
    (["autoregressive", "--prompts", "/nowhere.txt"], "cannot read"),
    (["autoregressive", "--dtype", "int3"], "dtype is 'int3'"),
    (["autoregressive", "--device", "abacus"], "device is 'abacus'"),
    (["autoregressive", "--results", "/nowhere/at/all.json"], "cannot write"),
    (["autoregressive", "--out", "/tmp"], "cannot write"),
    (["autoregressive", "--chat"], "no chat template"),
    (["fast_dllm", "--baseline", "speculative"], "does not decode with a masked model"),
])  # fmt: skip
def test_what_is_refused(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(["bench", *arguments, *SHORT]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def test_a_drafter_of_another_vocabulary_is_refused(folder: Path, capsys: Capture, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(weights.SIZES, "other", weights.LlamaSize(32, 2, 1, 4, 77))
        weights.random_llama("other").target.save_pretrained(tmp_path / "other")
    words = ["bench", "speculative", "--model", str(folder / "model"), "--drafter", str(tmp_path / "other"), *SHORT]
    assert main(words) == 2
    assert "does not speak the vocabulary" in capsys.readouterr().err


def test_a_run_in_which_every_algorithm_lacks_something_is_refused(folder: Path, capsys: Capture) -> None:
    for algorithms in (["speculative"], ["speculative", "eagle2"]):
        assert main(["bench", *algorithms, "--model", str(folder / "model"), *SHORT]) == 2
        said = capsys.readouterr()
        assert "speculative cannot be measured: speculative needs a drafter" in said.err and said.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ("speculative", "--model", "{model}"),
        ("eagle2", "--model", "head={model}"),  # a whole model, no head
        ("eagle2", "--model", "{model}", "--model", "head={shipped}"),  # a head of another width
        ("early.dec:layer=9", "--model", "{model}"),
        ("autoregressive", "fast_dllm", "--baseline", "generate"),
        ("autoregressive", "--baseline", "generate", "--baseline", "assisted", "--model", "{model}"),
    ],
)
def test_nothing_is_measured_before_everything_is_bound(
    words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    from decgraph.bench import compare, masked

    def measuring(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was measured")

    monkeypatch.setattr(compare, "measured", measuring)
    monkeypatch.setattr(masked, "measured", measuring)
    monkeypatch.chdir(folder)
    places = {"model": folder / "model", "shipped": decgraph.zoo.path("eagle")}
    assert main(["bench", *(word.format(**places) for word in words), *SHORT]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.filterwarnings("default:eagle2 is not measured")
def test_what_cannot_be_measured_beside_others_is_said_at_once(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decgraph.runtime.progress.EVERY", 0.01)
    assert main(["bench", "autoregressive", "eagle2", "--model", str(folder / "model"), "--baseline", "generate", *SHORT]) == 0
    err = capsys.readouterr().err
    assert err.index("eagle2 is not measured: eagle2 needs features") < err.index("measuring: au")
