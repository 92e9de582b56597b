"""A pool of Ray workers on this machine: what one process commits, each row once, also where a worker is killed."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from lib.models.table_decoders import table_decoder

from decgraph.errors import DecError
from decgraph.runtime.prompt_files import Text
from decgraph.scale import local, on_ray
from decgraph.scale.decoder import Decoder
from decgraph.scale.output import JsonLinesOutput
from decgraph.scale.rows import PromptLine

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]
ROWS = [
    PromptLine(f"r{n}", f'{{"id": "r{n}", "ids": [{n % 4}, {n % 3}]}}', Text("prompts", ids=(n % 4, n % 3))) for n in range(40)
]


@pytest.fixture(scope="module")
def ray() -> Any:
    """Two CPUs, so two workers."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error", address="local")
    yield ray
    ray.shutdown()


def told(folder: Path) -> list[list[str]]:
    """The rows that were decoded, a list for every file of a task: which process, and what it got through."""
    return [file.read_text(encoding="utf-8").split() for file in sorted(folder.iterdir()) if file.suffix == ".task"]


@pytest.mark.budget(26)
def test_a_killed_worker_loses_nothing_and_doubles_nothing(ray: Any, tmp_path: Path) -> None:
    """The worker that gets the row r13 kills itself, the first time, when it has decoded half of the rows that it was given."""

    class Killed(Decoder):  # defined here, so that it is pickled by its value
        def decode(self, rows: Any, finished: Any) -> None:
            given = list(rows)
            flag, seen = tmp_path / "killed", 0

            def count(record: dict[str, Any]) -> None:
                nonlocal seen
                seen += 1
                with (tmp_path / f"{os.getpid()}.task").open("a", encoding="utf-8") as out:
                    out.write(f"{record['id']} ")
                if seen > len(given) // 2 and any(row.id == "r13" for row in given) and not flag.exists():
                    flag.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                finished(record)

            super().decode(given, count)

    plain = table_decoder()
    killed = Killed(plain.algorithm, plain.models, plain.params, backend="reference", batch=2, max_tokens=6, temperature=1.0)
    expected: dict[Any, Any] = {}
    local.run(plain, ROWS, lambda record: expected.update({record["id"]: record}))
    records: list[dict[str, Any]] = []
    with JsonLinesOutput(tmp_path / "out.jsonl", {}) as out:
        on_ray.run(killed, ROWS, lambda record: records.append(record) if out.write(record) else None, on_ray.Pool(2))
    assert (tmp_path / "killed").exists()
    assert len(records) == len(ROWS) and {record["id"]: record for record in records} == expected
    workers = told(tmp_path)
    assert len(workers) == 3, "two workers, and one in the place of the killed one"
    assert len(sum(workers, [])) > len(ROWS), "rows of the killed worker were decoded again"


def test_a_decoder_in_a_pipeline_of_ray_data(ray: Any) -> None:
    import ray.data

    plain = table_decoder()
    expected: dict[Any, Any] = {}
    local.run(plain, ROWS, lambda record: expected.update({record["id"]: record}))
    ray.data.DataContext.get_current().enable_progress_bars = False
    items = [{"id": row.id, "ids": list(row.prompt.ids)} for row in ROWS if row.prompt]
    dataset = ray.data.from_items(items, override_num_blocks=5)
    asked: dict[str, Any] = {"algorithm": plain.algorithm, "models": plain.models, "params": plain.params,
                             "backend": "reference", "max_tokens": 6, "temperature": 1.0}  # fmt: skip
    rows = dataset.map_batches(Decoder, fn_constructor_kwargs=asked, batch_size=8, concurrency=2).take_all()
    assert {row["id"]: list(row["tokens"]) for row in rows} == {id: record["tokens"] for id, record in expected.items()}
    assert len(rows) == len(ROWS) and {row["error"] for row in rows} == {""}


def test_what_no_worker_can_make_a_session_of_is_said(ray: Any) -> None:
    decoder = Decoder("speculative", {"target": "/nowhere"}, max_tokens=3)
    with pytest.raises(DecError, match="/nowhere"):
        on_ray.run(decoder, ROWS[:2], lambda record: None, on_ray.Pool(1))
