"""Profiles: what is written is read again, and what people may get wrong is said with its line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import decgraph
from decgraph import zoo
from decgraph.errors import DecError
from decgraph.passes.plan import Plan
from decgraph.runtime.models import hf
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.placement import Placement, placement_of, placement_of_all
from decgraph.runtime.tune import facts
from decgraph.runtime.tune.profile import Profile, TunedLoad

PLAN = Plan(passes=("simplify",), backend="torch", batch=4)


def made(**changes: object) -> Profile:
    """A profile of two loads; changes: of the first."""
    fields: dict[str, object] = {
        "batch": 1,
        "algorithm": "speculative",
        "program": "abc",
        "params": {"gamma": "6"},
        "models": {"target": {"source": "target", "content": "t1"}, "drafter": {"source": '/models/d é"\\', "content": ""}},
        "figures": {"ratio": 1.25, "complete": True, "tokens_per_second": float("nan")},
        **changes,
    }
    return Profile(
        [TunedLoad(**fields), TunedLoad(8, "prompt_lookup", params={"k": "4"})],  # type: ignore[arg-type]
        PLAN.text(),
        {"temperature": 0.0, "prompts": 3},
        {"device": "cpu: A", "threads": 1, "torch": "2.13"},
        {"notes": ['a "b"', "c\nd"], "ranges": {"gamma": [0.5, 0.25], "a.b": [[1.0], []]}},
    )


def test_round_trip(tmp_path: Path) -> None:
    profile = made()
    profile.write(tmp_path / "p.toml")
    again = Profile.read(tmp_path / "p.toml")
    assert again.path == str(tmp_path / "p.toml")
    again.path, again.loads[0].figures["tokens_per_second"], profile.loads[0].figures["tokens_per_second"] = "", 0, 0
    assert again == profile
    assert Plan.parse(again.plan) == PLAN
    assert [p.name for p in tmp_path.iterdir()] == ["p.toml"]
    assert tomllib.loads(profile.text())["loads"][0]["models"]["drafter"]["source"] == '/models/d é"\\'


def test_values_and_lines(tmp_path: Path) -> None:
    profile = Profile.parse(made().text(), "p.toml")
    first, second = profile.loads
    assert profile.check(first, decgraph.load("speculative").function) == {"gamma": 6}
    lines = made().text().splitlines()
    assert lines[profile.line("loads.params", "gamma", first) - 1] == 'gamma = "6"'
    assert lines[profile.line("loads.params", "k", second) - 1] == 'k = "4"'
    assert lines[profile.line("loads", "algorithm", second) - 1] == 'algorithm = "prompt_lookup"'
    assert lines[profile.line("loads.models.target", of=first) - 1] == "[loads.models.target]"
    assert profile.line("loads.params", "nothing", first) == 1


def test_the_choice_for_a_load() -> None:
    """That of the largest load which is no larger; of an algorithm's own choices, if it is named."""
    profile = made()
    assert [profile.at(n).batch for n in (1, 7, 8, 100)] == [1, 1, 8, 8]
    assert profile.at(1, "prompt_lookup").batch == 8 and profile.at(64, "speculative").batch == 1
    assert made(batch=4).at(1).batch == 4  # the least there is


def changed(old: str, new: str) -> str:
    text = made().text()
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.mark.parametrize(("old", "new", "message"), [
    ("format = 2", "format = 9", "a profile of format 9"),
    ("format = 2\n", "", "a profile of format none"),
    ("format = 2", "format = ", "this is no profile"),
    ('algorithm = "speculative"', "algorithm = 7", "the profile names no algorithm"),
    ('algorithm = "speculative"', 'algorithm = "eagle2"', "a profile of eagle2 and prompt_lookup, not of speculative"),
    ("batch = 1", "batch = 0", "`batch` says how many requests are decoded together"),
    ("batch = 8", 'batch = "8"', "`batch` says how many requests are decoded together"),
    ('gamma = "6"', 'gamma = "99"', "speculative: `gamma` is 99; it must be in 1..32"),
    ('gamma = "6"', 'gamma = "six"', "speculative: `gamma` must be a whole number"),
    ('gamma = "6"', "gamma = [6]", "`gamma` is a word or a number"),
    ('gamma = "6"', 'gamma = "6"\nbeta = 3', "speculative has no parameter `beta`"),
    ('gamma = "6"', 'gamma = "6"\ngamma = "7"', "this is no profile"),
    ('program = "abc"', 'program = "abc"\nplan = 3', "a load has no `plan`"),
    ('program = "abc"', 'program = "abc"\nfigures = 3', "this is no profile"),
    ("[plan]", "[plans]", "a profile has no `plans`"),
    ('content = "t1"', "content = 5", "`models.target` holds source and content"),
    ('source = "target"', 'source = "target", ', "this is no profile"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(DecError) as caught:
        profile = Profile.parse(changed(old, new), "p.toml")
        profile.check(profile.at(1, "speculative"), decgraph.load("speculative").function)
    assert message in str(caught.value) and "try:" in str(caught.value), caught.value
    line = int(str(caught.value).removeprefix("error: p.toml:").partition(":")[0])
    added = next(iter(set(new.splitlines()) - set(old.splitlines())), new.splitlines()[-1] if new else "")
    at = [n for n, one in enumerate(changed(old, new).splitlines(), 1) if added and added in one]
    assert line == 1 or message == "this is no profile" or any(abs(line - n) <= 2 for n in at), (line, at)


def test_a_profile_without_loads() -> None:
    for text in ("format = 2\n", "format = 2\nloads = 3\n", "format = 2\nloads = []\n", "format = 2\n[loads]\nbatch = 1\n"):
        with pytest.raises(DecError, match=r"p.toml:\d: the profile has no \[\[loads\]\]"):
            Profile.parse(text, "p.toml")


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"\x00", b"hello", b"format = 2", b"[[[", b"format = 2\n[[loads]]\nalgorithm = ''"]
)
def test_files_that_are_no_profiles(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes(data)
    with pytest.raises(DecError, match="p.toml"):
        Profile.read(tmp_path / "p.toml")


def test_every_cut_of_a_profile_is_refused_or_whole(tmp_path: Path) -> None:
    """A file that was cut short never gives an exception of another kind."""
    text = made().text()
    for end in range(0, len(text), 7):
        try:
            Profile.parse(text[:end], "p.toml")
        except DecError:
            pass


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(DecError, match="cannot read"):
        Profile.read(tmp_path / "none.toml")
    with pytest.raises(DecError, match="cannot read"):
        Profile.read(tmp_path)
    with pytest.raises(DecError, match="cannot write"):
        made().write(tmp_path / "no" / "p.toml")


def doubts(**changes: object) -> list[str]:
    as_tuned: dict[str, object] = {
        "program": "abc",
        "models": {"target": "t1", "drafter": "d1"},
        "device": {"device": "cpu: A", "threads": 1, "torch": "2.13"},
        "temperature": 0.0,
        **changes,
    }
    profile = made()
    return profile.doubts(profile.loads[0], **as_tuned)  # type: ignore[arg-type]


def test_doubts() -> None:
    assert doubts() == []  # the drafter's content was unknown then
    assert doubts(program="") == [] and doubts(models={"target": ""}) == []
    assert doubts(program="xyz") == ["the text of speculative has changed"]
    assert doubts(models={"target": "t2"}) == ["target is another model"]
    assert doubts(device={"device": "cuda: B", "threads": 2}) == ["it was tuned on cpu: A, this is cuda: B"]
    assert doubts(device={"device": "cpu: A", "threads": 2, "torch": "2.13"}) == ["threads was 1 and is 2"]
    assert doubts(temperature=0.7) == ["it was tuned for greedy requests, and this one is sampled"]
    assert doubts(batch=8) == ["it was tuned for single prompts, and this run decodes 8 prompts at a time"]
    batched = made(batch=8)
    as_tuned = {"program": "abc", "models": {}, "device": batched.device, "temperature": 0.0}
    assert batched.doubts(batched.loads[0], **as_tuned, batch=4) == []  # type: ignore[arg-type]
    alone = batched.doubts(batched.loads[0], **as_tuned)  # type: ignore[arg-type]
    assert alone == ["it was tuned for 8 prompts at a time, and this run decodes single prompts"]


def test_fingerprints_see_what_matters(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    assert facts.fingerprint(folder) == "" == facts.fingerprint(tmp_path / "none")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(300_000))
    seen = {facts.fingerprint(folder)}
    (folder / "README.md").write_text("words")
    assert facts.fingerprint(folder) in seen
    weights = bytes(299_999)
    for name, data in (
        ("config.json", b"{ }"),
        ("model.safetensors", weights),
        ("model.safetensors", weights[1:] + b"x"),
        ("model.safetensors", b"x" + weights),
    ):
        (folder / name).write_bytes(data)
        seen.add(facts.fingerprint(folder))
    assert len(seen) == 5


def test_facts_of_a_device() -> None:
    found = facts.of_placement(placement_of_all({"target": TableModel(4, seed=1)}))
    assert found["device"].startswith("cpu: ") and found["cores"] >= 1
    assert set(found) == {"device", "dtype", "cores", "threads", "torch", "decgraph", "triton"}
    assert found["dtype"] == "float64" and placement_of(TableModel(4, seed=1)) is None


def test_a_models_weights_say_where_and_how_finely_it_computes() -> None:
    """Both kinds of adapter of transformers modules: what decides how near two scores are when they are a tie."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from decgraph.runtime.models.hf_live import from_module

    config = LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    live = from_module(LlamaForCausalLM(config), name="tiny")
    shipped = hf.load_causal(zoo.path("drafter"))
    for model in (live, shipped):
        assert placement_of_all({"a": TableModel(4, seed=1), "b": model}) == Placement("cpu", "float32")
