"""`decgraph map`: a file of prompts to a file of results, and on with it after it was stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.waiting import SECONDS

from decgraph.cli.main import main
from decgraph.runtime.models.table import TableModel

WORDS = ["ab", "ba", "cab", "bb", "abc", "ca"]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    rows = [{"id": f"r{n}", "prompt": word} for n, word in enumerate(WORDS)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def asked(prompts: Path, out: Path, *more: str) -> list[str]:
    return ["map", str(prompts), "-a", "speculative", "-o", str(out), "--max-tokens", "7", "-t", "1", "--batch", "2", *more]


def records(file: Path) -> dict[Any, dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len({record["id"] for record in found}) == len(found)
    return {record["id"]: record for record in found}


def test_rows_without_ids_commit_what_run_commits(tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "p.txt", tmp_path / "o.jsonl"
    file.write_text("\n".join(WORDS), encoding="utf-8")
    assert main(asked(file, out, "--gamma", "2", "--seed", "3")) == 0
    assert "6 rows, 42 tokens; " in capsys.readouterr().out
    same = ["--gamma", "2", "--seed", "3", "-t", "1", "--max-tokens", "7", "--json"]
    assert main(["run", "speculative", "--prompts", str(file), *same]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [records(out)[n]["tokens"] for n in range(6)] == [result["tokens"] for result in results]


def test_a_run_that_was_cut_short_is_gone_on_with(
    tables: None, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of the lines, and a quarter of the next: the records are those of a run that was not cut short."""
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    assert main(asked(prompts, whole)) == 0
    assert main(asked(prompts, cut)) == 0
    data = cut.read_bytes()
    end = sum(len(line) for line in data.splitlines(keepends=True)[:3])
    cut.write_bytes(data[: end + 20])
    capsys.readouterr()
    assert main(asked(prompts, cut, "--resume", "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["skipped"], told["left"]) == (3, 3, 0)
    assert records(cut) == records(whole)
    assert main(asked(prompts, cut, "--resume", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 0


def test_bad_rows_are_rows_with_an_error(
    tables: None, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with prompts.open("a", encoding="utf-8") as file:
        file.write('{"prompt": 7}\n{"id": "big", "ids": [1, 99]}\n{"id": "good", "prompt": "a"}\n')
    assert main(asked(prompts, tmp_path / "o.jsonl")) == 1
    assert "9 rows, 2 with an error" in capsys.readouterr().out
    found = records(tmp_path / "o.jsonl")
    assert {id: bool(record["error"]) for id, record in found.items() if record["error"]} == {"line 7": True, "big": True}
    assert "prompts.jsonl:7" in found["line 7"]["error"] and len(found["good"]["tokens"]) == 7
    assert main(asked(prompts, tmp_path / "o.jsonl", "--resume")) == 1, "they are not tried again, and not forgotten"
    assert "0 rows, 9 were there (2 with an error; --retry-errors decodes them again)" in capsys.readouterr().out


def test_errors_can_be_tried_again(tables: None, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row whose cause is mended; one whose line had no id that could be read; one that stays wrong. The others are kept."""
    good = prompts.read_text()
    wrong = ['{"id": "torn", "prompt": "a', '{"prompt": 7}', '{"id": 2, "ids": [1, 99]}']
    prompts.write_text(good + "\n".join(wrong) + "\n")
    out = tmp_path / "o.jsonl"
    assert main(asked(prompts, out)) == 1
    assert {id for id, record in records(out).items() if record["error"]} == {"torn", "line 8", 2}
    kept = [line for line in out.read_bytes().splitlines() if b'"error": null' in line]
    prompts.write_text(good + '{"id": "torn", "prompt": "ab"}\n{"prompt": "b"}\n' + wrong[2] + "\n")
    os.chmod(out, 0o600)
    capsys.readouterr()
    assert main(asked(prompts, out, "--retry-errors")) == 1
    assert "3 rows, 6 were there, 1 with an error" in capsys.readouterr().out
    found = records(out)
    assert {id for id, record in found.items() if record["error"]} == {2} and len(found) == 9
    assert len(found["torn"]["tokens"]) == len(found[7]["tokens"]) == 7
    assert out.read_bytes().splitlines()[:6] == kept and out.stat().st_mode & 0o777 == 0o600
    prompts.write_text(good)
    assert main(asked(prompts, out, "--retry-errors")) == 0, "a row that is no longer asked for is not waited for"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.jsonl", "o.jsonl.settings", "prompts.jsonl"]


@pytest.mark.parametrize("id", ["long", 7])
def test_messages_name_the_row(id: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text(json.dumps({"id": id, "ids": [5] * 5000}) + "\n")
    assert main(["map", str(prompts), "-a", "autoregressive", "-o", str(tmp_path / "o.jsonl"), "-n", "4"]) == 1
    error = records(tmp_path / "o.jsonl")[id]["error"]
    assert f"row {json.dumps(id)}: " in error and "request" not in error, error


def test_ctrl_c_keeps_what_is_done(
    tables: None, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "o.jsonl"
    assert main(asked(prompts, whole)) == 0
    evaluate, calls = TableModel.eval, 0

    def interrupted(self: TableModel, *given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 40:
            raise KeyboardInterrupt
        return evaluate(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(TableModel, "eval", interrupted)
        assert main(asked(prompts, out, "--backend", "reference")) == 130
    assert "left; --resume goes on" in capsys.readouterr().err
    before = len(records(out))
    assert 0 < before < 6
    assert main(asked(prompts, out, "--backend", "reference", "--resume")) == 0
    assert records(out) == records(whole)


@pytest.mark.slow
def test_a_driver_that_was_killed_is_gone_on_with(tables: None, prompts: Path, tmp_path: Path) -> None:
    """The process kills itself as it is told of the fourth result."""
    whole, out = tmp_path / "whole.jsonl", tmp_path / "o.jsonl"
    assert main(asked(prompts, whole)) == 0
    code = f"""
import os, signal, sys
sys.path[:0] = {[str(Path(__file__).parent)]!r}
import conftest
import decgraph.models
from decgraph.cli.main import main
from decgraph.scale.output import Output

decgraph.models.bind = conftest.bind_tables
write, seen = Output.write, []

def killed(self, record):
    seen.append(record["id"])
    if len(seen) == 4:
        self._handle.write(b'{{"id": "r')
        self._handle.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return write(self, record)

Output.write = killed
main({asked(prompts, out)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=SECONDS, check=False, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(out.read_bytes().splitlines()) == 4
    assert main(asked(prompts, out, "--resume")) == 0
    assert records(out) == records(whole)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--workers", "2"], "--workers and --address go with --ray"),
        (["--system", "x"], "--system goes with --chat"),
        (["--gama", "2"], "did you mean --gamma?"),
        (["-t", "-1"], "temperature"),
        (["--top-p", "2"], "top_p"),
        (["--regex", "("], "cannot be read"),
        (["-a", "mcts"], "needs the function `reward`"),
    ],
)
def test_what_does_not_go_together_is_said_before_anything_is_written(
    more: list[str], words: str, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked(prompts, tmp_path / "o.jsonl"), *more]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [prompts]


def test_another_file_of_results_is_not_written_over(
    tables: None, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o.jsonl"
    assert main(asked(prompts, out)) == 0
    before = out.read_bytes()
    assert main(asked(prompts, out)) == 2
    assert "--resume goes on with it" in capsys.readouterr().err
    assert main(asked(prompts, out, "--seed", "1", "--resume")) == 2
    assert "another seed" in capsys.readouterr().err
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "device"),
    [(["--address", "10.0.0.1:1", "--gpus", "1"], "cuda"), (["--address", "10.0.0.1:1"], "cpu"), ([], "cpu")],
)
def test_workers_load_models_where_ray_reserves(
    words: list[str], device: str, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --gpus on the CPU, though a worker may see GPUs: nobody reserved one for it."""
    from decgraph.scale import on_ray

    made: list[Any] = []
    monkeypatch.setattr(on_ray, "run", lambda decoder, *_: made.append(decoder.placed))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert (
        main(["map", str(prompts), "-a", "speculative", "-o", str(tmp_path / "out"), "--ray", "--dtype", "bfloat16", *words])
        == 0
    )
    assert [(one.device, one.dtype) for one in made] == [(device, "bfloat16")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpus", "1"], "there is no device cuda here"),
        (["--device", "cuda"], "no GPU is reserved"),
        (["--device", "cpu", "--gpus", "1", "--address", "10.0.0.1:1"], "1 GPUs are reserved for each worker"),
    ],
)
def test_a_gpu_that_is_not_reserved_or_in_vain(
    words: list[str], said: str, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["map", str(prompts), "-a", "speculative", "-o", str(tmp_path / "out"), "--ray", *words]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_cluster_that_is_not_there_is_said_at_once(prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    assert main(asked(prompts, tmp_path / "o.jsonl", "--ray", "--address", "127.0.0.1:1")) == 2
    assert "no Ray cluster at 127.0.0.1:1: " in capsys.readouterr().err


@pytest.mark.parametrize("error", [Exception, RuntimeError, OSError])
def test_ray_that_does_not_start_is_no_bug_of_ours(
    error: type[Exception], prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray = pytest.importorskip("ray")

    def slow(**_: Any) -> None:
        raise error("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", slow)
    assert main(asked(prompts, tmp_path / "o.jsonl", "--ray")) == 2
    said = capsys.readouterr().err
    assert "Ray did not start on this machine: The current node timed out" in said and "a bug in decgraph" not in said


def test_ray_that_is_not_installed_is_said(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(asked(prompts, tmp_path / "o.jsonl", "--ray")) == 2
    assert "[ray]'" in capsys.readouterr().err


def test_what_was_changed_between_a_run_and_its_resume_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights of the same size in the same folder; a row before the others, which have no ids; a blank line is nothing."""
    import torch
    from lib.models.hf_models import llama

    module, folder, out = llama(1), tmp_path / "model", tmp_path / "o.jsonl"
    module.save_pretrained(folder)
    rows = [json.dumps({"ids": [n + 3, 9, 27]}) for n in range(4)]
    prompts = tmp_path / "p.jsonl"

    def decode(lines: list[str], *more: str) -> tuple[int, str]:
        prompts.write_text("\n".join(lines), encoding="utf-8")
        code = main(["map", str(prompts), "-a", "autoregressive", "-m", str(folder), "-o", str(out), "-n", "3", "-q", *more])
        return code, capsys.readouterr().err

    assert decode(rows)[0] == 0
    out.write_text("\n".join(["", *out.read_text().splitlines()[:2], ""]))
    code, said = decode([rows[3], *rows], "--resume")
    assert code == 2 and "another prompt for the row 0 and 1 more" in said
    assert decode(rows, "--resume")[0] == 0 and len(records_of(out)) == 4
    with torch.no_grad():
        module.lm_head.weight[7] *= -1
    module.save_pretrained(folder)
    code, said = decode(rows, "--resume")
    assert code == 2 and "another content of target" in said
    assert main(["map", str(prompts), "-a", "autoregressive", "-o", str(tmp_path / "p.out")]) == 2
    assert str(prompts) not in capsys.readouterr().err


def records_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]
