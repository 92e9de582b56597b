"""`decgraph tune` and `decgraph run --tuned`: what they print, write and refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.cli.main import main
from decgraph.cli.tuned import HEADINGS
from decgraph.runtime.trace import Stats
from decgraph.runtime.tune.profile import Profile
from decgraph.runtime.tune.trial import Interrupted, Runner, Trials

Capture = pytest.CaptureFixture[str]
PROMPTS = "def mean(values):\nimport os, sys\nfor i in range(10):\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "prompts.txt").write_text(PROMPTS)
    return tmp_path


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs take a second a target call, 0.1 s a draft call and 0.1 s a draft, and time passes as one asks for it."""
    run = Runner.run

    def made_up(self: Runner, chosen: Any, number: int, **options: Any) -> Any:
        done = run(self, chosen, number, **options)
        return replace(done, seconds=took(done.stats))

    def took(stats: Stats) -> float:
        return 1.0 * stats.target_calls + 0.1 * stats.draft_calls + 0.1 * stats.drafted

    def until(seconds: float) -> Any:
        asked = iter(range(1000))
        return lambda: seconds - next(asked) * seconds / 60

    monkeypatch.setattr(Runner, "run", made_up)
    monkeypatch.setattr(Trials, "lasts", 0.0)
    monkeypatch.setattr(Runner, "settle", lambda self: None)
    monkeypatch.setattr("decgraph.runtime.tune.search.until", until)


@pytest.fixture
def letters(tables: None, timed: None, here: Path) -> None:
    """Table models and prompts for them."""
    (here / "prompts.txt").write_text("ab\ncab\n\nb\n")


def tuned(*arguments: str) -> int:
    return main(["tune", *arguments, "--prompts", "prompts.txt", "-n", "12"])


def table(out: str) -> list[list[str]]:
    """The rows of what was printed, without their heading."""
    heading, *rows = [line.split("\t") for line in out.splitlines() if "\t" in line]
    assert heading == list(HEADINGS)
    return rows


def test_prompts_that_are_decoded_together(letters: None, here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is a batch, which begins with another prompt each time; of every request the tokens are compared."""
    seen: list[tuple[Any, int, Any]] = []
    run, compared = Runner.run, list[tuple[int, Any]]()

    def kept(self: Runner, chosen: Any, number: int, **options: Any) -> Any:
        seen.append((self, number, done := run(self, chosen, number, **options)))
        return done

    def noted(self: Trials, chosen: Any, number: int, ours: Any, theirs: Any) -> None:
        compared.append((number, ours))
        compare(self, chosen, number, ours, theirs)

    compare = Trials.compare
    monkeypatch.setattr(Runner, "run", kept)
    monkeypatch.setattr(Trials, "compare", noted)
    assert tuned("speculative", "--search", "gamma=1..4", "--batch", "3") == 0
    assert Profile.read(here / "speculative.profile.toml").request["batch"] == 3
    runner, number, done = seen[-1]
    assert len(done.each) == 3 and done.tokens == sum(done.each, ()) and {n for _, n, _ in seen} == {0, 1, 2}
    alone = [runner.session(next(iter(runner._open))).run(request).tokens for request in runner.requests]
    assert list(done.each) == [alone[(number + n) % 3] for n in range(3)] and len(set(alone)) == 3
    assert {n for n, _ in compared} == {0, 1, 2} and all(ours == alone[n] for n, ours in compared)
    assert main(["run", "speculative", "--tuned", "speculative.profile.toml", "--prompt", "ab", "-n", "4"]) == 0
    assert "tuned for 3 prompts at a time" in capsys.readouterr().err
    assert tuned("speculative", "--batch", "9") == 2 and "needs as many prompts, and there are 3" in capsys.readouterr().err


def test_table_profile_and_run(letters: None, here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drafter is seldom right, so that short chains are faster."""
    monkeypatch.setattr("decgraph.runtime.progress.EVERY", 0.01)
    assert tuned("speculative", "--search", "gamma=1..12") == 0
    out, err = capsys.readouterr()
    rows = table(out)
    assert rows[0][:2] == ["default", "gamma=4"] and "tune: final rounds" in err
    assert rows[1][0] == "tuned" and float(rows[1][3]) > 1 and rows[1][-1] == "100%"
    gamma = int(rows[1][1].removeprefix("gamma="))
    assert gamma < 4 and "committed the default's tokens" in out
    profile = Profile.read(here / "speculative.profile.toml")
    assert profile.params == {"gamma": str(gamma)} and profile.figures["ratio"] > 1 and not profile.figures["changes_output"]
    assert profile.request["prompts"] == 3
    assert main(["run", "speculative", "-p", "ab", "-n", "8", "--tuned", "speculative.profile.toml", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["params"] == {"gamma": gamma} and err == ""
    said = ("--gamma", "7")  # goes before the profile
    assert main(["run", "speculative", "-p", "ab", "-n", "8", "--tuned", "speculative.profile.toml", *said, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["params"] == {"gamma": 7}


def test_nothing_better_keeps_the_default(letters: None, here: Path, capsys: Capture) -> None:
    assert tuned("speculative", "--search", "gamma=10..12", "--json", "-o", "p.toml") == 0
    got = json.loads(capsys.readouterr().out)
    assert got["kept_default"] and got["chosen"] == {"gamma": "4"} and got["profile"] == "p.toml"
    profile = Profile.read(here / "p.toml")
    assert profile.params == {"gamma": "4"} and profile.figures["kept_default"] and profile.figures["ratio"] == 1
    assert got["promise"] == "tokens"
    assert {row["setting"]["gamma"] for row in got["rows"]} >= {"4", "10", "12"}


def test_shapes(letters: None, here: Path, capsys: Capture) -> None:
    assert tuned("sequoia", "--json") == 0
    got = json.loads(capsys.readouterr().out)
    assert not got["kept_default"] and got["chosen"]["shape"] != "drafter_64"
    assert main(["run", "sequoia", "-p", "ab", "-n", "8", "--tuned", got["profile"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["params"]["shape"] == got["chosen"]["shape"]


def test_lossy_parameters_only_when_named_and_with_agreement(letters: None, here: Path, capsys: Capture) -> None:
    assert tuned("fast_dllm") == 2
    assert "--search NAME=LOW..HIGH (length, block, tau)" in capsys.readouterr().err
    assert tuned("fast_dllm", "--set", "length=6", "--set", "block=3", "--search", "tau=0.1,0.5") == 0
    out = capsys.readouterr().out
    assert "tau may change what is committed" in out and table(out)[1][-1].endswith("%")
    profile = Profile.read(here / "fast_dllm.profile.toml")
    assert profile.params["length"] == "6" and profile.figures["changes_output"] is not profile.figures["kept_default"]
    text = (here / "fast_dllm.profile.toml").read_text().replace("changes_output = false", "changes_output = true")
    (here / "lossy.toml").write_text(text)
    assert main(["run", "fast_dllm", "-p", "ab", "-q", "--tuned", "lossy.toml"]) == 0
    assert "may commit other tokens than the defaults" in capsys.readouterr().err


def test_a_claim_that_does_not_hold_is_an_error(letters: None, here: Path, capsys: Capture) -> None:
    """A text that claims the target's tokens and commits others from gamma 6 on."""
    text = decgraph.load("speculative").text.replace("in distribution", "in tokens")
    assert "algorithm speculative" in text
    text = text.replace("            x ~ drafter(t.leaves)\n", "            x ~ drafter(t.leaves)\n").replace(
        "    verify t by rejection", "    if gamma > 5:\n            commit 0\n        verify t by rejection"
    )
    (here / "wrong.dec").write_text(text)
    assert tuned("wrong.dec", "--search", "gamma=2..9") == 2
    assert "commits other tokens than gamma=4, which its claim rules out" in capsys.readouterr().err
    assert not list(here.glob("*.profile.toml"))


def test_ctrl_c_keeps_what_is_measured(letters: None, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    run, count = Runner.run, iter(range(1000))

    def stopped(self: Runner, *arguments: Any, **options: Any) -> Any:
        if next(count) == 60:
            raise Interrupted
        return run(self, *arguments, **options)

    monkeypatch.setattr(Runner, "run", stopped)
    assert tuned("speculative", "--search", "gamma=1..12") == 130
    out = capsys.readouterr().out
    assert "Interrupted: judged by what was measured until then" in out and table(out)[0][0] == "default"
    if "Written to" in out:
        assert not Profile.read(here / "speculative.profile.toml").figures["complete"]
    else:
        assert "No profile is written" in out and not (here / "speculative.profile.toml").exists()


@pytest.mark.parametrize(("arguments", "message"), [
    (["nothing"], "no algorithm called 'nothing'"),
    (["speculative", "--search", "gama"], "did you mean gamma"),
    (["speculative", "--search", "gamma=2..99"], "must be in 1..32"),
    (["speculative", "--set", "gamma=99"], "must be in 1..32"),
    (["speculative", "--set", "beta=1"], "no parameter `beta`"),
    (["speculative", "--gamma", "3"], "all that may be tuned of speculative is set"),
    (["speculative", "--colour", "3"], "no option --colour"),
    (["speculative", "--seconds", "0"], "--seconds is 0"),
    (["speculative", "--seconds", "nan"], "--seconds is nan"),
    (["speculative", "--clock", "sun"], "wall or cpu"),
    (["speculative", "--model", "verifier=x"], "no model `verifier`"),
    (["speculative", "-o", "/nowhere/at/all.toml"], "cannot write /nowhere/at/all.toml"),
    (["speculative", "-o", "."], "cannot write ."),
    (["speculative", "--backend", "nothing"], "nothing"),
    (["autoregressive"], "no parameters to tune"),
    (["speculative", "--rows"], "--rows measures a model, with no algorithm"),
    ([], "tune needs an algorithm"),
])  # fmt: skip
def test_what_is_refused(arguments: list[str], message: str, letters: None, capsys: Capture) -> None:
    assert tuned(*arguments) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said and "internal error" not in said


@pytest.mark.parametrize("data", [None, b"", b"\n \n", b"\xff\xfe"])
def test_prompts_that_are_none(data: bytes | None, here: Path, capsys: Capture) -> None:
    (here / "prompts.txt").unlink()
    if data is not None:
        (here / "prompts.txt").write_bytes(data)
    assert tuned("speculative") == 2
    assert "prompts.txt" in capsys.readouterr().err
    assert main(["tune", "speculative"]) == 2
    assert "--prompts FILE" in capsys.readouterr().err


def test_profiles_that_do_not_fit(letters: None, here: Path, capsys: Capture) -> None:
    assert tuned("speculative", "--search", "gamma=1..12") == 0
    text = (here / "speculative.profile.toml").read_text()
    gamma = next(line for line in text.splitlines() if line.startswith("gamma"))
    cases = {
        gamma: ('gamma = "99"', "bad.toml:7: speculative: `gamma` is 99"),
        "placement = device": ("placement = moon", "bad.toml:10: line 1 of the plan cannot be read"),
        "[models.drafter]": ("[models.helper]", "bad.toml:16: speculative takes no model `helper`"),
    }
    capsys.readouterr()
    for old, (new, message) in cases.items():
        (here / "bad.toml").write_text(text.replace(old, new))
        assert main(["run", "speculative", "-p", "ab", "--tuned", "bad.toml"]) == 2
        assert message in capsys.readouterr().err
    assert main(["run", "eagle2", "-p", "ab", "--tuned", "speculative.profile.toml"]) == 2
    assert "a profile of speculative, not of eagle2" in capsys.readouterr().err


def test_doubts_are_said_and_the_profile_is_used(letters: None, here: Path, capsys: Capture) -> None:
    assert tuned("speculative", "--search", "gamma=1..12") == 0
    text = (here / "speculative.profile.toml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("device =", "program ="))]
    (here / "p.toml").write_text(
        "\n".join(lines)
        .replace("[device]", '[device]\ndevice = "cuda: H"')
        .replace("algorithm = ", 'program = "x"\nalgorithm = ')
    )
    capsys.readouterr()
    assert main(["run", "speculative", "-p", "ab", "-n", "4", "-t", "1", "--tuned", "p.toml", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["params"] == {"gamma": int(Profile.parse(text).params["gamma"])}
    for word in (
        "the text of speculative has changed",
        "it was tuned on cuda: H, this is cpu",
        "it was tuned for greedy requests",
    ):
        assert f"warning: p.toml: {word}" in err


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["speculative", "prompt_lookup", "sequoia", "eagle2", "medusa_match", "recursive_sd"])
def test_on_the_shipped_models(name: str, here: Path, capsys: Capture) -> None:
    assert tuned(name, "--seconds", "30", "--json", "--clock", "cpu", "--threads", "1") == 0
    got = json.loads(capsys.readouterr().out)
    assert len(got["rows"]) > 2 and got["promise"] == "tokens"
    assert all(row["same_tokens"] == 1 or row["near_ties"] for row in got["rows"])
    if not got["kept_default"]:
        (best,) = [row for row in got["rows"] if row["setting"] == got["chosen"]]
        assert best["ratio"] > 1.01 and best["final"]
        assert main(["run", name, "-p", "import", "-q", "-n", "8", "--tuned", got["profile"]]) == 0
        assert "warning" not in capsys.readouterr().err


def test_shortly_on_the_shipped_models(here: Path, capsys: Capture) -> None:
    """Seconds are real here, and what they show is the machine's business: nothing is asserted of speed."""
    assert tuned("speculative", "--seconds", "2", "--search", "gamma=2..6", "--json", "--threads", "1") == 0
    got = json.loads(capsys.readouterr().out)
    assert got["rows"][0]["tokens_per_second"] > 0
    assert got["device"]["device"].startswith("cpu")


def test_sampled_requests_and_the_reference(letters: None, here: Path, capsys: Capture) -> None:
    assert tuned("speculative", "--search", "gamma=2,6", "-t", "1", "--backend", "reference") == 0
    out = capsys.readouterr().out
    assert "their distribution does not" in out and table(out)[1][-1] == "-"
    profile = Profile.read(here / "speculative.profile.toml")
    assert profile.request["temperature"] == 1.0 and "backend = reference" in profile.plan
    assert main(["run", "speculative", "-p", "ab", "-n", "4", "-t", "1", "--tuned", "speculative.profile.toml"]) == 0
    out, err = capsys.readouterr()
    assert "reference interpreter" in out and not err


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_near_ties_are_judged_by_what_the_token_was_chosen_by(temperature: float, tables: None) -> None:
    """The committed token has the largest score at its place, logits or race."""
    from decgraph.cli.tuning import TuningJob
    from decgraph.models import bind, request_for

    algorithm = decgraph.load("gs_jacobi")  # in tokens: the target's own draw is what is committed
    job = TuningJob(algorithm, ["ab", "cab"], {}, [], {}, {"max_tokens": 20, "temperature": temperature, "seed": 5})
    bound = bind(algorithm.function, {})
    job.models = bound.models
    session = algorithm.session(bound.models, tokenizer=bound.tokenizer)
    requests = [request_for(session, line, request_id=n, **job.fields) for n, line in enumerate(job.lines)]
    for number, request in enumerate(requests):
        tokens = session.run(request).tokens
        for n, token in enumerate(tokens):
            path = [*request.prompt, *tokens[:n]]
            scores, other = job.scores(number, path), (token + 1) % 4
            assert int(scores.argmax()) == token
            assert job.gap(number, path, token, other) == job.gap(number, path, other, token) == scores[token] - scores[other]


def test_rows_are_measured_once_and_kept(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a forward of n rows costs: the same figures the second time, and others only where they are asked for."""
    assert main(["tune", "--rows", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["rows"]
    assert [row["rows"] for row in first] == [1, 2, 5, 11, 16, 64] and all(row["milliseconds"] > 0 for row in first)

    def refused(*_: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("decgraph.runtime.tune.rows._measured", refused)
    assert main(["tune", "--rows", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == first
    assert main(["tune", "--rows"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["1", f"{first[0]['milliseconds']:.2f}", "1.00"]
