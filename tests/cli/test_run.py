"""`decgraph run`: text, summary, JSON, traces, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.cli import parsing
from decgraph.cli.main import main
from decgraph.errors import DecError

JUDGED = """extern judge(text) -> bool on host

algorithm judged(target: causal):
    while not done:
        x ~ target(ctx)
        if judge(text_of(ctx)):
            commit x
        else:
            commit x
"""


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["run", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_text_then_summary(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "speculative", "--prompt", "ab", "--max-tokens", "12", "-t", "1"]) == 0
    text, _, summary = capsys.readouterr().out.partition("\n\nalgorithm ")
    assert text.startswith("ab")
    assert set(text) <= set("abc\n")
    assert "\x1b" not in text
    for word in (
        *("gamma=4", "12, ended by the limit of new tokens", "tokens per call", "accepted at", "draft calls"),
        "tokens/s on the torch backend",
    ):
        assert word in summary


def test_one_default_of_sampling_in_python_and_here(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    here = as_json(capsys, "autoregressive", "-p", "ab", "-n", "12")["tokens"]
    unsaid, greedy = (decgraph.run("autoregressive", "ab", max_tokens=12, **how).tokens for how in ({}, {"temperature": 0}))
    (many,) = decgraph.load("autoregressive").session().generate(["ab"], max_tokens=12)
    assert tuple(here) == unsaid == greedy == many.tokens
    assert here != as_json(capsys, "autoregressive", "-p", "ab", "-n", "12", "-t", "1")["tokens"], "a table is no point mass"


def test_json_has_what_a_program_needs(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    got = as_json(capsys, "speculative", "-p", "ab", "-n", "12", "-t", "1", "--gamma", "3")
    assert len(got["tokens"]) == 12
    assert len(got["text"]) == 12
    stats = got["stats"]
    assert stats["tokens_per_call"] == 12 / stats["target_calls"]
    assert 3 * (stats["target_calls"] - 1) < stats["draft_calls"] <= 3 * stats["target_calls"]  # none behind the limit
    assert len(stats["acceptance"]) == 3
    assert (got["reason"], got["error"], got["params"]) == ("limit", None, {"gamma": 3})
    assert got["seconds"] >= 0


def test_logprobs(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    got = as_json(capsys, "speculative", "-p", "ab", "-n", "5", "--logprobs", "2")
    assert len(got["logprobs"]) == len(got["top_logprobs"]) == len(got["tokens"])
    for token, logprob, best in zip(got["tokens"], got["logprobs"], got["top_logprobs"], strict=True):
        assert len(best) == 2 and best[0] == [token, logprob], "greedy: the likeliest"
    assert main(["run", "speculative", "-p", "ab", "--logprobs", "2"]) == 2 and "--json" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_tokens(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [as_json(capsys, "speculative", "-p", "ab", "-t", "1", "--seed", seed)["tokens"] for seed in ("3", "3", "4")]
    assert runs[0] == runs[1] != runs[2]


def test_parameters_three_ways(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--set", "gamma=2"], ["--gamma", "2"], ["--gamma=2"]):
        assert as_json(capsys, "speculative", "-p", "a", *words)["params"] == {"gamma": 2}


def test_requests_reach_the_decoder(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    free = as_json(capsys, "autoregressive", "-p", "a", "-t", "1", "-n", "40")
    assert set(free["text"]) == set("abc\n")
    banned = as_json(capsys, "autoregressive", "-p", "a", "-t", "1", "-n", "40", "--ban", "b", "--ban", "3")
    assert set(banned["text"]) == set("ac")
    assert as_json(capsys, "autoregressive", "-p", "a", "-t", "1", "-n", "4", "--ban", "²")[
        "tokens"
    ]  # a text: no id has such digits
    stopped = as_json(capsys, "autoregressive", "-p", "a", "-t", "1", "-n", "40", "--stop", "b")
    assert stopped["reason"] == "stop"
    assert stopped["text"].index("b") == len(stopped["text"]) - 1
    ended = as_json(capsys, "autoregressive", "-p", "a", "-t", "1", "-n", "40", "--eos", "2")
    assert (ended["reason"], ended["tokens"][-1]) == ("eos", 2)
    sharp = as_json(capsys, "autoregressive", "-p", "a", "-t", "1", "-n", "20", "--top-k", "1")
    assert sharp["tokens"] == as_json(capsys, "autoregressive", "-p", "a", "-n", "20")["tokens"]


@pytest.mark.parametrize("name", ["autoregressive", "eagle2", "fast_dllm", "kangaroo", "medusa", "token_recycling"])
def test_kinds_of_algorithms(name: str, tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    small = {
        "eagle2": ["--depth", "2", "--k", "2", "--budget", "4"],
        "fast_dllm": ["--length", "8", "--block", "4"],
        "medusa": ["--shape", "2x2"],
        "token_recycling": ["--shape", "2x2", "--k", "3"],
    }
    got = as_json(capsys, name, "-p", "ab", "-n", "8", *small.get(name, ()))
    assert len(got["tokens"]) == 8
    assert got["error"] is None


def test_prompts_from_files_and_stdin(
    tables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.txt"
    file.write_text("ab\n")
    expected = as_json(capsys, "autoregressive", "-p", "ab", "-n", "5")["tokens"]
    assert as_json(capsys, "autoregressive", "--prompt-file", str(file), "-n", "5")["tokens"] == expected
    monkeypatch.setattr("sys.stdin", io.StringIO("ab\n"))
    assert as_json(capsys, "autoregressive", "-n", "5")["tokens"] == expected


def test_token_ids_are_a_prompt(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    """`ab` is 0 1 in the tables' vocabulary; they are shown as their text."""
    expected = as_json(capsys, "autoregressive", "-p", "ab", "-n", "5")["tokens"]
    for written in ("0 1", "0,1", "[0, 1]"):
        assert as_json(capsys, "autoregressive", "--ids", written, "-n", "5")["tokens"] == expected
    assert main(["run", "autoregressive", "--ids", "0 1", "-n", "5"]) == 0
    assert capsys.readouterr().out.startswith("ab")


@pytest.mark.parametrize("terminal", [True, False])
def test_no_prompt_says_what_to_give(
    terminal: bool, tables: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a terminal, and where stdin is there and empty; before any model is read."""
    stdin = io.StringIO("")
    stdin.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.setattr("decgraph.cli.run.open_session", lambda *_: pytest.fail("models were read"))
    assert main(["run", "prompt_lookup"]) == 2
    err = capsys.readouterr().err
    assert "there is no prompt" in err and all(option in err for option in ("--prompt ", "--prompts ", "--ids ", "stdin"))


def test_quiet_is_the_new_text_alone(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    text = as_json(capsys, "autoregressive", "-p", "ab", "-n", "5")["text"]
    assert main(["run", "autoregressive", "-p", "ab", "-n", "5", "--quiet"]) == 0
    assert capsys.readouterr().out == text + "\n"


def test_trace(tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    got = as_json(capsys, "speculative", "-p", "ab", "-n", "6", "--events", str(file))
    trace = json.loads(file.read_text())
    assert trace["tokens"] == got["tokens"]
    committed = [t for e in trace["events"] if e["event"] == "Committed" for t in e["tokens"]]
    assert committed == got["tokens"]
    assert {"Drafted", "ModelCall", "Stopped"} <= {e["event"] for e in trace["events"]}


def test_externs(tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "j.dec").write_text(JUDGED)
    (tmp_path / "mine.py").write_text("def judge(text):\n    return len(text) > 3\n")
    (tmp_path / "bad.py").write_text("def judge(text):\n    raise ValueError('no opinion')\n")
    file = str(tmp_path / "j.dec")
    got = as_json(capsys, file, "-p", "ab", "-n", "4", "--extern", f"{tmp_path}/mine.py:judge")
    assert len(got["tokens"]) == 4
    assert main(["run", file, "-p", "ab"]) == 2
    assert "needs the function `judge`" in capsys.readouterr().err
    assert main(["run", file, "-p", "ab", "--extern", f"{tmp_path}/bad.py:judge"]) == 1
    assert "no opinion" in capsys.readouterr().err
    (tmp_path / "script.py").write_text("import sys\nsys.exit(0)\n")
    assert main(["run", file, "-p", "ab", "--extern", f"{tmp_path}/script.py:judge"]) == 2
    assert "script.py raised SystemExit: 0" in capsys.readouterr().err
    for wrong in ("mine.py", f"{tmp_path}/mine.py:other", f"{tmp_path}/none.py:judge"):
        assert main(["run", file, "-p", "ab", "--extern", wrong]) == 2


def test_what_was_produced_is_kept_when_a_run_fails(tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "j.dec").write_text(JUDGED)
    (tmp_path / "late.py").write_text("def judge(text):\n    return len(text) < 5 or 1 / 0\n")
    arguments = ["run", str(tmp_path / "j.dec"), "-p", "ab", "--extern", f"{tmp_path}/late.py:judge"]
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out.startswith("ab")
    assert "3, ended by an error" in out
    assert "ZeroDivisionError" in err
    assert main([*arguments, "--json"]) == 1
    got = json.loads(capsys.readouterr().out)
    assert (len(got["tokens"]), got["reason"]) == (3, "error")
    assert "ZeroDivisionError" in got["error"]


def test_an_interruption_shows_what_there_is(tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "j.dec").write_text(JUDGED)
    (tmp_path / "stop.py").write_text("def judge(text):\n    if len(text) == 5: raise KeyboardInterrupt\n    return True\n")
    assert main(["run", str(tmp_path / "j.dec"), "-p", "ab", "--extern", f"{tmp_path}/stop.py:judge"]) == 130
    assert "3, ended by an interruption" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["speculativ", "-p", "a"], "did you mean speculative"),
        (["./none.dec", "-p", "a"], "No such file"),
        (["speculative", "-p", "a", "--gamma", "77"], "must be in 1..32"),
        (["speculative", "-p", "a", "--gamma", "many"], "a whole number"),
        (["speculative", "-p", "a", "--gama", "3"], "did you mean --gamma?"),
        (["speculative", "-p", "a", "--temprature", "3"], "did you mean --temperature?"),
        (["speculative", "-p", "a", "--gamma"], "has no value"),
        (["speculative", "once upon"], "a prompt is an option: --prompt 'once upon'"),
        (["speculative", "-p", "a", "more"], "no argument more"),
        (["speculative", "-p", "a", "--set", "gamma"], "--set name=value"),
        (["speculative", "-p", "a", "-t", "-1"], "temperature"),
        (["speculative", "-p", "a", "-n", "0"], "max_tokens"),
        (["speculative", "-p", "a", "--eos", "ab"], "2 tokens, not one"),
        (["speculative", "-p", "a", "--backend", "torhc"], "no backend called"),
        (["speculative", "-p", ""], "prompt is empty"),
        (["speculative", "-p", "a", "--prompt-file", "b"], "two prompts"),
        (["speculative", "-p", "a", "--ids", "1"], "two prompts"),
        (["speculative", "-p", "a", "--events", "/nowhere/t.json"], "cannot write"),
        (["speculative", "-p", "a", "--model", "target="], "--model target=FOLDER"),
        (["speculative", "--ids", "1 x"], "'x' is no token id"),
        (["speculative", "--ids", "-1"], "'-1' is no token id"),
        (["speculative", "--ids", " "], "there are no ids"),
        (["speculative", "--ids", "0 4"], "4 is no token: the vocabulary has 4"),
        (["speculative", "--ids", "0 1", "--chat"], "leave --chat out"),
        (["speculative", "--prompt-file", "none.txt"], "cannot read none.txt"),
    ],
)
def test_refusals(arguments: list[str], word: str, tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *arguments]) == 2
    out, err = capsys.readouterr()
    assert word in err
    assert "Traceback" not in err
    assert out == ""


@pytest.mark.parametrize(
    ("model", "word"),
    [
        ("drafter=masked", "is not a causal model"),
        ("drafter=/nowhere", "is not a folder"),
        ("draft=drafter", "takes no model `draft`"),
        ("target.heads=medusa", "uses no heads"),
        ("drafter=smollm", "did you mean smollm2"),
        ("drafter=smollm2", "decgraph zoo fetch smollm2"),
        ("/nowhere", "is not a folder"),
    ],
)
def test_wrong_models(
    model: str, word: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path))  # another test may have fetched smollm2
    assert main(["run", "speculative", "-p", "a", "--model", model]) == 2
    assert word in capsys.readouterr().err


def test_a_drafter_of_another_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = shutil.copytree(decgraph.zoo.path("drafter"), tmp_path / "other")
    for file in other.glob("tokenizer*"):
        file.unlink()
    assert main(["run", "speculative", "-p", "a", "--model", f"drafter={other}"]) == 2
    err = capsys.readouterr().err
    assert "`target` was left out, and no shipped model goes with the `drafter`" in err
    assert "--model target=FOLDER" in err
    assert main(["run", "speculative", "-p", "a", "--model", f"drafter={other}", "--model", "target=target"]) == 2
    assert "speak different vocabularies" in capsys.readouterr().err


def test_logits_that_are_not_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import load_file, save_file

    sick = shutil.copytree(decgraph.zoo.path("drafter"), tmp_path / "sick")
    weights = load_file(sick / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] * float("nan")
    save_file(weights, sick / "model.safetensors", metadata={"format": "pt"})
    assert main(["run", "autoregressive", "-p", "a", "--model", f"target={sick}"]) == 1
    out, err = capsys.readouterr()
    assert "0, ended by an error" in out
    assert "'sick' gave logits that are not numbers" in err


def test_prompts_longer_than_the_context(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "autoregressive", "-p", "x = 1\n" * 1200]) == 2
    assert "context length is 1024" in capsys.readouterr().err


def test_the_shipped_models_decode(capsys: pytest.CaptureFixture[str]) -> None:
    one = as_json(capsys, "speculative", "-p", "import os\n", "-n", "12")
    two = as_json(capsys, "autoregressive", "-p", "import os\n", "-n", "12")
    assert one["tokens"] == two["tokens"]
    assert one["stats"]["target_calls"] <= two["stats"]["target_calls"] == len(two["tokens"])
    assert one["models"] == {"target": "target", "drafter": "drafter"}


def test_models_by_folder_and_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("autoregressive", "-p", "import os\n", "-n", "4", "--model")
    by_folder = as_json(capsys, *arguments, f"target={decgraph.zoo.path('target')}")
    assert by_folder["tokens"] == as_json(capsys, *arguments, "target=target")["tokens"]
    assert as_json(capsys, *arguments, "target=drafter")["models"] == {"target": "drafter"}


def test_a_model_without_its_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "autoregressive", "-p", "ab", "--model", "="]) == 2
    assert "--model target=FOLDER" in capsys.readouterr().err


def test_a_folder_alone_is_the_first_models(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for model in ("drafter", "target=drafter"):
        assert main(["run", "autoregressive", "-p", "ab", "-n", "6", "--model", model, "--json"]) == 0
        said.append(json.loads(capsys.readouterr().out)["tokens"])
    assert said[0] == said[1]
    assert main(["run", "llada", "-p", "a", "--length", "8", "--model", "masked"]) == 0  # whatever it is called


@pytest.mark.filterwarnings("default:masked says")
def test_a_shipped_models_own_setting_is_not_overridden_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["run", "fast_dllm", "-p", "a", "--length", "8", "--block", "4"]
    assert main([*common, "-m", "model.mask_token=7"]) == 0
    assert "masked says that its mask_token is 2, and it is read with mask_token=7" in capsys.readouterr().err
    assert main([*common, "-m", "model.mask_token="]) == 2
    assert "has no value" in capsys.readouterr().err


def test_warnings_are_sentences(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def warned(*_: object, **__: object) -> None:
        warnings.warn("this was assumed", UserWarning, stacklevel=1)
        raise decgraph.DecError("enough")

    monkeypatch.setattr("decgraph.load", warned)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["run", "autoregressive", "-p", "ab"]) == 2
    assert capsys.readouterr().err.startswith("warning: this was assumed\nerror: enough")


def test_words_that_are_not_options() -> None:
    with pytest.raises(DecError, match="gives a twice"):
        parsing.pairs(["a=1", "a=2"], "--set")


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_the_summary_names_the_backend(backend: str, tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", "autoregressive", "-p", "ab", "-n", "2", "--backend", backend])
    shown = capsys.readouterr()
    assert code == 0 and f"on the {backend} backend" in shown.out + shown.err


def test_half_of_a_surrogate_pair_is_no_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    """A command line that is no UTF-8 has them; JSON can."""
    assert main(["run", "autoregressive", "-p", os.fsdecode(b"a\xffb"), "--max-tokens", "2"]) == 2
    out, err = capsys.readouterr()
    assert "half of a surrogate pair" in err and "internal error" not in err and not out


def test_what_is_never_verified_is_not_called_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "jacobi", "--length", "4", "-p", "import", "--max-tokens", "4"]) == 0
    shown = " ".join(capsys.readouterr())
    assert " drafted" in shown and "accepted" not in shown
