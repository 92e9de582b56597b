"""`decgraph tune` and `decgraph run --tuned`: what they print, write and refuse."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import decgraph
from decgraph import stdlib
from decgraph.bench import timing
from decgraph.bench.contenders import Ours
from decgraph.bench.fitting import fitting
from decgraph.cli.main import main
from decgraph.cli.tuned import HEADINGS
from decgraph.cli.tuning import TuningJob
from decgraph.runtime.tune.profile import Profile

Capture = pytest.CaptureFixture[str]
ROW = 0.1
PROMPTS = "def mean(values):\nimport os, sys\nfor i in range(10):\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "prompts.txt").write_text(PROMPTS)
    return tmp_path


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs take a second a target call, 0.1 s a draft call and 0.1 s a row, and time passes as one asks for it."""
    run, clock = Ours.results, SimpleNamespace(now=0.0)
    clock.perf_counter = clock.process_time = lambda: clock.now

    def results(self: Ours, n: int) -> Any:
        done = run(self, n)
        stats = [result.stats for result in done]
        # A forward of a batch costs as much as one and a tenth for each row, as on a device that has other things to wait for.
        rows = sum(one.target_calls + one.drafted for one in stats)
        clock.now += max(one.target_calls for one in stats) + 0.1 * sum(one.draft_calls for one in stats) + ROW * rows
        return done

    def until(seconds: float) -> Any:
        asked = iter(range(1000))
        return lambda: seconds - next(asked) * seconds / 60

    monkeypatch.setattr(Ours, "results", results)
    monkeypatch.setattr("decgraph.bench.race.AlgorithmRace.lasts", 0.0)
    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr("decgraph.bench.search.until", until)


@pytest.fixture
def letters(tables: None, timed: None, here: Path) -> None:
    """Table models and prompts for them."""
    (here / "prompts.txt").write_text("ab\ncab\n\nb\nba\naa\ncb\nbb\nac\n")


def tuned(*arguments: str) -> int:
    return main(["tune", *arguments, "--prompts", "prompts.txt", "-n", "12"])


def table(out: str) -> list[list[str]]:
    """The rows of what was printed, without their heading."""
    heading, *rows = [line.split("\t") for line in out.splitlines() if "\t" in line]
    assert heading == list(HEADINGS)
    return rows


FEW = ("autoregressive", "speculative", "prompt_lookup", "a_star", "beam", "static_masked", "freedave", "llada", "medusa_match")
_entry = lru_cache(stdlib.entry)


@pytest.fixture
def few(letters: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standard library of a few algorithms."""
    entries = [_entry(name) for name in FEW]
    monkeypatch.setattr("decgraph.bench.fitting.stdlib.entries", lambda: entries)


def loads(out: str) -> dict[int, dict[str, Any]]:
    """What `--json` printed, by load."""
    return {one["batch"]: one for one in json.loads(out)["loads"]}


def test_an_algorithm_is_chosen_for_each_load(few: None, here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each load has a choice of its own, with the row of a benchmark; `run` and `map` take what was chosen for theirs."""
    monkeypatch.setitem(globals(), "ROW", 0.15)
    assert tuned("--batch", "1,4", "-o", "p.toml", "--json") == 0
    out, err = capsys.readouterr()
    made = loads(out)
    left = json.loads(out)["left_out"]
    assert "--lossy" in left["beam"] and set(left) == {"a_star", "beam"}
    assert made[1]["algorithm"] in ("speculative", "medusa_match", "prompt_lookup") and not made[1]["kept_base"]
    row = next(row for row in made[1]["rows"] if row["algorithm"] == made[1]["chosen"])
    assert row["ratios"]["autoregressive"]["wall"]["n"] == 8 and row["ratios"]["autoregressive"]["wall"]["low"] > 1
    assert row["tokens_equal"] == {"same": 8, "near_ties": 0, "different": 0} and row["claims_equality"]
    profile = Profile.read(here / "p.toml")
    assert [load.batch for load in profile.loads] == [1, 4]
    assert [profile.at(n).batch for n in (1, 3, 4, 99)] == [1, 1, 4, 4]
    for more in ([], ["--seed", "3"]):
        assert main(["run", "--tuned", "p.toml", "-p", "ab", "-n", "8", "--json", *more]) == 0
        assert json.loads(capsys.readouterr().out)["algorithm"] == made[1]["algorithm"]


TWO_LOADS = """format = 2
[[loads]]
batch = 1
algorithm = "speculative"
params = { gamma = "3" }
[[loads]]
batch = 4
algorithm = "prompt_lookup"
params = { k = "2", reach = "2" }
"""


def test_map_and_run_take_the_choice_for_their_batch(letters: None, here: Path, capsys: Capture) -> None:
    (here / "p.toml").write_text(TWO_LOADS)
    for batch, name in (("1", "speculative"), ("3", "speculative"), ("4", "prompt_lookup"), ("9", "prompt_lookup")):
        out = here / f"{batch}.jsonl"
        assert main(["map", "prompts.txt", "--tuned", "p.toml", "--batch", batch, "-n", "4", "-o", str(out)]) == 0
        assert name in out.read_text() or name in "".join(one.read_text() for one in here.glob(f"{batch}.jsonl*"))
    capsys.readouterr()
    assert main(["run", "--tuned", "p.toml", "--prompts", "prompts.txt", "--batch", "4", "-n", "4", "--json"]) == 0
    assert "prompt_lookup" in capsys.readouterr().out
    assert main(["run", "prompt_lookup", "--tuned", "p.toml", "-p", "ab", "-n", "4", "--json"]) == 0  # tuned for another load
    out, err = capsys.readouterr()
    assert json.loads(out)["params"] == {"k": 2, "reach": 2} and "it was tuned for 4 prompts at a time" in err
    assert main(["run", "--tuned", "p.toml", "--gamma", "5", "-p", "ab", "-n", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["params"] == {"gamma": 5}
    for words, said in (
        (["run", "-p", "ab"], "run needs an algorithm"),
        (["map", "prompts.txt", "-o", "o.jsonl"], "map needs an"),
        (["run", "eagle2", "-p", "a", "--tuned", "p.toml"], "a profile of speculative and prompt_lookup, not of"),
    ):
        assert main(words) == 2 and said in capsys.readouterr().err


def test_nothing_is_faster_than_plain_decoding(few: None, here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROW", 9.0)
    assert tuned("--batch", "1") == 0
    out = capsys.readouterr().out
    assert "Alone: nothing is faster than plain decoding, autoregressive, beyond the noise" in out
    assert "because it may commit other tokens (--lossy)" in out
    (load,) = Profile.read(here / "tuned.profile.toml").loads
    assert load.algorithm == "autoregressive" and load.figures["kept"] is True


def test_what_fits_depends_on_models_settings_and_claims(few: None, here: Path) -> None:
    def fits(kind: str, **more: Any) -> tuple[set[str], dict[str, str]]:
        found, left = fitting(kind, lambda one: given, common={}, **more)
        return {one.label for one in found}, left

    given: dict[str, str] = {}
    assert fits("causal")[0] == {"speculative", "prompt_lookup", "medusa_match"}
    assert fits("causal", temperature=1.0)[0] == {"speculative", "prompt_lookup", "medusa_match"}
    assert "beam" in fits("causal", lossy=True)[0] and "a_star" in fits("causal", lossy=True)[1]
    assert fits("masked")[0] == {"freedave", "llada"}  # llada's condition holds at its defaults
    folder = here / "model"
    folder.mkdir()
    given["target"] = str(folder)  # no drafter and no heads go with another target
    found, left = fits("causal")
    assert found == {"prompt_lookup"} and "needs a model that was not given" in left["speculative"]

    def accepts(one: Any) -> None:
        if one.name == "prompt_lookup":
            raise decgraph.DecError("no such field")

    assert "does not do what is asked for: no such field" in fits("causal", accepts=accepts)[1]["prompt_lookup"]


def test_prompts_that_are_decoded_together(letters: None, here: Path, capsys: Capture) -> None:
    """A run is a batch; of every request the tokens are compared, and each group is another."""
    assert tuned("speculative", "--search", "gamma=1..4", "--batch", "3", "--json") == 0
    (row, *_) = loads(capsys.readouterr().out)[3]["rows"]
    assert row["kind"] == "all" and row["prompts"] >= 8 * 3
    assert Profile.read(here / "speculative.profile.toml").loads[0].batch == 3
    assert main(["run", "speculative", "--tuned", "speculative.profile.toml", "--prompt", "ab", "-n", "4"]) == 0
    assert "tuned for 3 prompts at a time" in capsys.readouterr().err
    assert tuned("speculative", "--batch", "9") == 2 and "needs as many prompts, and there are 8" in capsys.readouterr().err


def test_prompts_made_longer_are_measured_as_well(letters: None, here: Path, capsys: Capture) -> None:
    seen: dict[str, set[int]] = {}
    with pytest.MonkeyPatch.context() as patch:
        made = TuningJob.prompts

        def kept(self: TuningJob, session: Any) -> Any:
            found = made(self, session)
            for one in found:
                seen.setdefault(one.kind, set()).add(len(one.tokens))
            return found

        patch.setattr(TuningJob, "prompts", kept)
        assert tuned("speculative", "--search", "gamma=3,4", "--context", "20", "--context", "50", "--json") == 0
    assert seen == {"prompts": {1, 2, 3}, "20 tokens": {20}, "50 tokens": {50}}
    rows = loads(capsys.readouterr().out)[1]["rows"]
    assert rows[-1]["kind"] == "all" and rows[-1]["prompts"] > 8


def test_table_profile_and_run(letters: None, here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drafter is seldom right, so that short chains are faster."""
    monkeypatch.setattr("decgraph.runtime.progress.EVERY", 0.01)
    assert tuned("speculative", "--search", "gamma=1..12") == 0
    out, err = capsys.readouterr()
    rows = table(out)
    assert rows[0][1:4] == ["compared", "speculative", "gamma=4"] and "final rounds" in err
    assert rows[1][1] == "chosen" and float(rows[1][5].split()[0]) > 1 and rows[1][-1] == "100%"
    gamma = int(rows[1][3].removeprefix("gamma="))
    assert gamma < 4 and "committed the default's tokens" in out
    profile = Profile.read(here / "speculative.profile.toml")
    (load,) = profile.loads
    assert load.params == {"gamma": str(gamma)} and load.figures["ratio"] > 1 and not load.figures["changes_output"]
    assert load.figures["ratio_n"] == profile.request["prompts"] == 8
    assert main(["run", "speculative", "-p", "ab", "-n", "8", "--tuned", "speculative.profile.toml", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["params"] == {"gamma": gamma} and err == ""
    said = ("--gamma", "7")  # goes before the profile
    assert main(["run", "speculative", "-p", "ab", "-n", "8", "--tuned", "speculative.profile.toml", *said, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["params"] == {"gamma": 7}


def test_nothing_better_keeps_the_default(letters: None, here: Path, capsys: Capture) -> None:
    assert tuned("speculative", "--search", "gamma=10..12", "--json", "-o", "p.toml") == 0
    out = capsys.readouterr().out
    got = loads(out)[1]
    assert got["kept_base"] and got["params"] == {"gamma": "4"} and json.loads(out)["profile"] == "p.toml"
    (load,) = Profile.read(here / "p.toml").loads
    assert load.params == {"gamma": "4"} and load.figures["kept"] and load.figures["ratio"] == 1
    assert got["promise"] == "tokens"
    assert {f"speculative:gamma={n}" for n in (4, 10, 12)} <= set(got["ratios"])


def test_shapes(letters: None, here: Path, capsys: Capture) -> None:
    assert tuned("sequoia", "--json") == 0
    got = loads(capsys.readouterr().out)[1]
    assert not got["kept_base"] and got["params"]["shape"] != "drafter_64"
    assert main(["run", "sequoia", "-p", "ab", "-n", "8", "--tuned", "sequoia.profile.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["params"]["shape"] == got["params"]["shape"]


def test_lossy_parameters_only_when_named_and_with_agreement(letters: None, here: Path, capsys: Capture) -> None:
    assert tuned("fast_dllm") == 2
    assert "--search NAME=LOW..HIGH (length, block, tau)" in capsys.readouterr().err
    assert tuned("fast_dllm", "--set", "length=6", "--set", "block=3", "--search", "tau=0.1,0.5") == 0
    out = capsys.readouterr().out
    assert "tau may change what is committed" in out and table(out)[1][-1].endswith("%")
    (load,) = Profile.read(here / "fast_dllm.profile.toml").loads
    assert load.params["length"] == "6" and load.figures["changes_output"] is not load.figures["kept"]
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
    assert "commits other tokens than speculative:gamma=4, which its claim rules out" in capsys.readouterr().err
    assert not list(here.glob("*.profile.toml"))


def test_ctrl_c_keeps_what_is_measured(letters: None, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    run, count = Ours.results, iter(range(1000))

    def stopped(self: Ours, n: int) -> Any:
        if next(count) == 60:
            raise KeyboardInterrupt
        return run(self, n)

    monkeypatch.setattr(Ours, "results", stopped)
    assert tuned("speculative", "--search", "gamma=1..12") == 130
    out = capsys.readouterr().out
    assert "Interrupted: judged by what was measured until then" in out and "speculative" in table(out)[0]
    if "Written to" in out:
        assert not Profile.read(here / "speculative.profile.toml").search["complete"]
    else:
        assert (
            "No profile is written: nothing was surely faster until then" in out
            and not (here / "speculative.profile.toml").exists()
        )


def test_models_that_cannot_be_opened_do_not_fit(few: None, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    opened = TuningJob.session

    def session(self: TuningJob, one: Any) -> Any:
        if one.algorithm == "speculative":
            raise decgraph.DecError("a head of another layer")
        return opened(self, one)

    monkeypatch.setattr(TuningJob, "session", session)
    assert tuned("--batch", "1") == 0
    out = capsys.readouterr().out
    assert "1, because its models do not fit" in out and "a head of another" not in out
    assert "speculative" not in Profile.read(Path("tuned.profile.toml")).search["algorithms"]


def test_what_was_not_measured_is_not_claimed(few: None, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("decgraph.bench.search.until", lambda seconds: lambda: 0.0)
    assert tuned("--batch", "1", "--seconds", "40") == 0
    out = capsys.readouterr().out
    assert "autoregressive alone was measured" in out and "There was no time for 3 of 3 algorithms" in out
    assert "--seconds 120 or more" in out and "No profile is written: nothing was compared" in out
    assert "faster" not in out and not list(Path().glob("*.profile.toml"))

    def stopped(self: TuningJob, one: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(TuningJob, "session", stopped)
    assert tuned() == 130 and "interrupted: nothing was measured yet" in capsys.readouterr().err


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
    (["speculative", "--clock", "sun"], "there is no clock"),
    (["speculative", "--model", "verifier=x"], "no model `verifier`"),
    (["speculative", "-o", "/nowhere/at/all.toml"], "cannot write /nowhere/at/all.toml"),
    (["speculative", "-o", "."], "cannot write ."),
    (["speculative", "--backend", "nothing"], "nothing"),
    (["autoregressive"], "no parameters to tune"),
    (["speculative", "--rows"], "--rows measures a model, with no algorithm"),
    (["--search", "gamma"], "--search (gamma) goes with an algorithm"),
    (["--gamma", "3"], "a parameter (--gamma) goes with an algorithm"),
    (["--set", "colour=3"], "none of the algorithms that fit has a parameter `colour`"),
    (["--model", "head=smollm2_none"], "smollm2_none"),
    (["--model", "target", "--model", "drafter"], "there is one first model"),
    (["--batch", "1,x"], "--batch 1,x is no list of whole numbers"),
    (["--batch", "0"], "--batch 0 is no list of whole numbers"),
])  # fmt: skip
def test_what_is_refused(arguments: list[str], message: str, few: None, capsys: Capture) -> None:
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


def test_profiles_that_do_not_fit(letters: None, here: Path, capsys: Capture) -> None:
    assert tuned("speculative", "--search", "gamma=1..12") == 0
    text = (here / "speculative.profile.toml").read_text()
    gamma = next(line for line in text.splitlines() if line.startswith('gamma = "') and ".." not in line)
    lines = text.splitlines()
    at = {
        word: next(n for n, line in enumerate(lines, 1) if line.startswith(word)) for word in (gamma, "text", "[loads.models.d")
    }
    cases = {
        gamma: ('gamma = "99"', f"bad.toml:{at[gamma]}: speculative: `gamma` is 99"),
        "placement = device": ("placement = moon", f"bad.toml:{at['text']}: line 1 of the plan cannot be read"),
        "[loads.models.drafter]": (
            "[loads.models.helper]",
            f"bad.toml:{at['[loads.models.d']}: speculative takes no model `helper`",
        ),
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
    assert json.loads(out)["params"] == {"gamma": int(Profile.parse(text).loads[0].params["gamma"])}
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
    got = loads(capsys.readouterr().out)[1]
    assert len(got["ratios"]) > 2 and got["promise"] == "tokens"
    assert all(row["same_tokens"] == 1 or row["tokens_equal"]["near_ties"] for row in got["rows"] if "same_tokens" in row)
    if not got["kept_base"]:
        assert got["ratios"][got["chosen"]]["value"] > 1.01 and got["chosen"] in got["final"]
        assert main(["run", name, "-p", "import", "-q", "-n", "8", "--tuned", f"{name}.profile.toml"]) == 0
        assert "warning" not in capsys.readouterr().err


def test_shortly_on_the_shipped_models(here: Path, capsys: Capture) -> None:
    """Seconds are real here, and what they show is the machine's business: nothing is asserted of speed."""
    assert tuned("speculative", "--seconds", "2", "--search", "gamma=2..6", "--json", "--threads", "1") == 0
    out = capsys.readouterr().out
    got = json.loads(out)
    assert loads(out)[1]["rows"][0]["tokens_per_second"] > 0
    assert got["device"]["device"].startswith("cpu")


def test_sampled_requests_and_the_reference(letters: None, here: Path, capsys: Capture) -> None:
    assert tuned("speculative", "--search", "gamma=2,6", "-t", "1", "--backend", "reference") == 0
    out = capsys.readouterr().out
    assert "their distribution is what the claims are about" in out and table(out)[1][-1] == "-"
    profile = Profile.read(here / "speculative.profile.toml")
    assert profile.request["temperature"] == 1.0 and "backend = reference" in profile.plan
    assert main(["run", "speculative", "-p", "ab", "-n", "4", "-t", "1", "--tuned", "speculative.profile.toml"]) == 0
    out, err = capsys.readouterr()
    assert "reference interpreter" in out and not err


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
