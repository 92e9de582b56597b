"""Sizes of kernels that are kept on disk: broken files, folders that cannot be written, several processes, devices."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from waiting import SECONDS, started

from decgraph.backends.triton import families, tuned
from decgraph.backends.triton.tuned import Config, around, config, measure, measured, trying
from decgraph.runtime.tune import kept

SLOW, FAST, BAD = Config(64), Config(128, warps=8), Config(256)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "cache"))
    forget()
    return tmp_path / "cache" / "kernels.json"


def forget() -> None:
    """As another process would find it."""
    tuned._READ.clear()
    tuned._KNOWN.clear()


def clock(launch) -> float:
    """Milliseconds that a launch says it takes."""
    return float(launch())


def run(c: Config) -> float:
    if c == BAD:
        raise RuntimeError("out of resource: shared memory\nand more")
    return {SLOW: 2.0, FAST: 1.0}[c]


def test_the_fastest_is_kept_and_read_again(cache: Path) -> None:
    found = measure("attend", (16, "bf16"), [BAD, SLOW, FAST], run, clock)
    assert found.best == FAST and found.milliseconds == {SLOW: 2.0, FAST: 1.0}
    assert found.failed == {BAD: "RuntimeError: out of resource: shared memory"}
    for _ in range(2):
        assert config("attend", (16, "bf16"), SLOW) == FAST and tuned.is_known("attend", (16, "bf16"))
        assert config("attend", (32, "bf16"), SLOW) == SLOW and not tuned.is_known("attend", (32, "bf16"))
        assert config("rows", (16, "bf16"), SLOW) == SLOW
        forget()
    assert list(json.loads(cache.read_text())) == [f"{tuned.device_name()} | attend | 16 bf16"]


def test_a_candidate_is_what_config_gives_while_it_is_timed() -> None:
    seen = []
    measure("rows", (1,), [SLOW, FAST], lambda c: seen.append((c, config("rows", (1,), BAD))) or 1.0, clock)
    assert seen == [(SLOW, SLOW), (FAST, FAST)]
    with trying("rows", (2,), FAST):
        assert config("rows", (2,), SLOW) == FAST
    assert config("rows", (2,), SLOW) == SLOW


def test_in_the_interpreter_nothing_is_launched_and_nothing_kept(cache: Path) -> None:
    assert measured("rows", (), [SLOW, FAST], lambda c: pytest.fail("launched")) == SLOW
    assert not cache.exists()


def test_where_nothing_can_be_launched_the_first_stays_and_nothing_is_kept(cache: Path) -> None:
    assert measure("rows", (), [BAD], run, clock).best == BAD
    assert not cache.exists() and config("rows", (), SLOW) == SLOW


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", "\x00\xff", '{"a": ' * 2000, '{"x": 1, "y": {"block": "a"}}'])
def test_a_broken_file_counts_as_empty_and_is_mended(text: str, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_bytes(text.encode("latin-1"))
    assert config("rows", (), SLOW) == SLOW
    measure("rows", (), [FAST], run, clock)
    forget()
    assert config("rows", (), SLOW) == FAST


@pytest.mark.parametrize("entry", [
    7, None, {}, {"warps": 4}, {"block": 100}, {"block": 0}, {"block": -64}, {"block": True}, {"block": 64.0},
    {"block": 64, "warps": 3}, {"block": 64, "warps": 64}, {"block": 64, "stages": 99}, {"block": 64, "color": 1},
])  # fmt: skip
def test_one_entry_that_makes_no_sense_does_not_take_the_others_along(entry: object, cache: Path) -> None:
    name = f"{tuned.device_name()} | rows |"
    cache.parent.mkdir()
    cache.write_text(json.dumps({f"{name} 1": entry, f"{name} 2": {"block": 128, "warps": 8}}))
    assert config("rows", (1,), SLOW) == SLOW
    assert config("rows", (2,), SLOW) == FAST


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "file"))
    assert measure("rows", (), [SLOW, FAST], run, clock).best == FAST
    assert config("rows", (), SLOW) == FAST  # in this process it is known all the same
    assert not kept.add(tmp_path / "file" / "x.json", {"a": 1})


def test_a_file_that_may_not_be_replaced_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(kept.os, "replace", refuse)
    assert not kept.add(cache, {"a": 1})
    assert [p.name for p in cache.parent.iterdir()] == ["kernels.json.lock"]


def test_other_devices_and_versions_have_entries_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = {
        "NVIDIA A, 132 processors, triton 3.6.0": SLOW,
        "NVIDIA A, 16 processors, triton 3.6.0": FAST,
        "interpreter, triton 3.6.0": Config(512),
    }
    for name, sizes in devices.items():
        monkeypatch.setattr(tuned, "device_name", lambda name=name: name)
        assert config("rows", (), BAD) == BAD
        measure("rows", (), [sizes], lambda c: 1.0, clock)
        assert config("rows", (), BAD) == sizes


def test_the_device_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Facts:
        name, multi_processor_count = "NVIDIA H", 132

    tuned._name_of.cache_clear()
    monkeypatch.setattr(tuned.torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(tuned, "interpreted", lambda: False)
    monkeypatch.setattr(tuned.torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(tuned.torch.cuda, "get_device_properties", lambda index: Facts() if index == 3 else pytest.fail())
    assert tuned.device_name().startswith("NVIDIA H, 132 processors, triton ")
    tuned._name_of.cache_clear()


def test_two_processes_lose_nothing_of_each_other(cache: Path) -> None:
    """Each adds its entries one by one while the other does."""
    code = (
        "import sys; from pathlib import Path; from decgraph.runtime.tune import kept\n"
        "for n in range(60): assert kept.add(Path(sys.argv[1]), {f'{sys.argv[2]} {n}': {'block': 64}})"
    )
    words = [sys.executable, "-c", code, str(cache)]
    with started([*words, "a"], cwd="/") as one, started([*words, "b"], cwd="/") as other:
        assert [process.wait(SECONDS) for process in (one, other)] == [0, 0]
    assert set(json.loads(cache.read_text())) == {f"{who} {n}" for who in "ab" for n in range(60)}
    assert sorted(p.name for p in cache.parent.iterdir()) == ["kernels.json", "kernels.json.lock"]


def test_candidates() -> None:
    assert around(SLOW) == (SLOW,)
    found = around(SLOW, blocks=(64, 128), warps=(4, 8))
    assert found[0] == SLOW and len(found) == len(set(found)) == 4 and FAST in found


# -- the launches of `decgraph tune --kernels`, at sizes that the interpreter bears

SMALL = families.Shapes((("tiny", 4, 2, 16),), (1, 3), (20,), (50,), (2,), torch.float32)


@pytest.mark.parametrize("launch", list(families.launches(SMALL)), ids=lambda launch: launch.title)
def test_every_launch_asks_for_its_sizes_and_uses_what_it_is_told(launch: families.Launch) -> None:
    run, asked = families.questions(launch, torch.device("cpu"))
    (question,) = asked
    assert question.family == launch.family
    tried = families.candidates(question)
    assert tried[0] == question.default and len(tried) > 3
    usual = run()
    other = next(c for c in tried if c.block != question.default.block)
    with trying(question.family, question.key, other):
        again = run()
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (usual, again)), strict=True):
        assert torch.allclose(a.double(), b.double(), atol=1e-5)


def test_measuring_a_launch_once(cache: Path) -> None:
    launch = next(families.launches(SMALL))
    times = iter(range(1000, 0, -1))
    ((asked, found),) = families.measure(launch, torch.device("cpu"), clock=lambda run: float(next(times)))
    assert found is not None and found.best == families.candidates(asked)[-1]
    ((_, again),) = families.measure(launch, torch.device("cpu"), clock=lambda run: pytest.fail("measured twice"))
    assert again is None
    ((_, anew),) = families.measure(launch, torch.device("cpu"), fresh=True, clock=lambda run: 1.0)
    assert anew is not None and anew.best == asked.default


def test_without_a_device_the_command_says_what_it_would_do(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    from decgraph.cli.main import main

    assert main(["tune", "--kernels"]) == 0
    out = capsys.readouterr().out
    assert "no CUDA device" in out and "attention, 8B, 64 cells after 8192" in out and str(cache) in out
    assert main(["tune", "--kernels", "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["device"] is None and len(got["launches"]) == len(list(families.launches())) and not cache.exists()
