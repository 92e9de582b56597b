"""Rows decoded by a pool of Ray actors, a session to each: `map_batches` of Ray Data.

Ray starts a worker that died anew and gives the batch that it had to another; what a batch commits does not depend on who
decodes it (`scale/rows.py`), so a row decoded twice has one record, and the driver writes it once (`scale/output.py`).
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from decgraph import extras
from decgraph.errors import DecError
from decgraph.scale.decoder import Decoder
from decgraph.scale.rows import PromptLine, packed, unpacked

BATCHES = 4
"""A task has at most this many batches of rows, so that the sequences of a batch join and leave, and at least this many tasks
go to every worker, so that all end at about the same time. A task is what is decoded again when its worker dies."""


@dataclass(frozen=True)
class Pool:
    """Where rows are decoded. address: of a cluster ("auto": the one that this machine belongs to), or None for one started on
    this machine for the run. workers: actors, each a process with a copy of the weights. cpus, gpus: of each."""

    workers: int = 2
    address: str | None = None
    cpus: float = 1
    gpus: float = 0


class RecordLines:
    """An actor: packed rows to records as JSON texts. What the session cannot be made of is told in every record, since Ray
    would start an actor whose constructor raises again and again."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.problem = decoder, ""
        try:
            _ = decoder.session
        except DecError as error:
            self.problem = str(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        out: list[str] = []
        if self.problem:
            out.append(json.dumps({"problem": self.problem}))
        else:
            self.decoder.decode([unpacked(text) for text in batch["row"]], lambda record: out.append(json.dumps(record)))
        return {"record": np.array(out, dtype=object)}


def run(decoder: Decoder, rows: Sequence[PromptLine], finished: Callable[[dict[str, Any]], None], pool: Pool) -> None:
    """Decode rows on a cluster and tell `finished` each record as it arrives, a task's together and in no order.

    Raises DecError where Ray is not installed, a cluster cannot be reached, or the workers cannot make their session;
    KeyboardInterrupt after Ctrl-C.
    """
    if not rows:
        return
    with cluster(pool) as ray_data:
        size = task_size(len(rows), decoder.batch, pool.workers)
        tasks = math.ceil(len(rows) / size)
        dataset = ray_data.from_items([{"row": packed(row)} for row in rows], override_num_blocks=tasks)
        records = dataset.map_batches(
            RecordLines,
            fn_constructor_kwargs={"decoder": decoder},
            batch_size=None,  # a block, which is a task
            batch_format="numpy",
            compute=ray_data.ActorPoolStrategy(size=min(pool.workers, tasks), max_tasks_in_flight_per_actor=2),
            num_cpus=pool.cpus,
            num_gpus=pool.gpus or None,
        )
        for batch in records.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=0):
            for text in batch["record"]:
                record = json.loads(text)
                if "problem" in record:
                    raise DecError(record["problem"].removeprefix("error: "))
                finished(record)


def task_size(rows: int, batch: int, workers: int) -> int:
    """Rows of a task: see `BATCHES`."""
    return max(1, min(BATCHES * batch, math.ceil(rows / (BATCHES * workers))))


@contextmanager
def cluster(pool: Pool) -> Iterator[Any]:
    """`ray.data`, connected: to the cluster of this process if there is one, else to `pool.address`, else to one started here
    and ended with the block. Ray's own messages below errors, and its report of use, are off.

    Raises DecError as `run` does, and for more CPUs than the cluster has where it cannot grow.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray warns will be its default
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("ray", "pyarrow", "pandas"):
            raise
        raise extras.needed("models", "ray", first=error.name or "") from error
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, pool)
    quiet = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [logger.level for logger in quiet]
    context = ray.data.DataContext.get_current()
    bars = context.enable_progress_bars
    try:
        for logger in quiet:
            logger.setLevel(logging.ERROR)
        context.enable_progress_bars = False
        yield ray.data
    finally:
        context.enable_progress_bars = bars
        for logger, level in zip(quiet, levels, strict=True):
            logger.setLevel(level)
        if ours:
            ray.shutdown()


PATIENCE = 5.0
"""Seconds in which a cluster's port has to answer: Ray itself tries for minutes and says so in its log alone."""


def _knock(address: str) -> None:
    """Raises DecError where nobody listens at HOST:PORT; other forms of an address are Ray's to read."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise DecError(f"no Ray cluster at {address}: {error}", hint=STARTED) from None


STARTED = "`ray start --head` on one machine, then --address auto there, or HOST:PORT"


def _connect(ray: Any, pool: Pool) -> None:
    asked: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    if pool.address is None and "RAY_ADDRESS" not in os.environ:
        asked |= {"num_cpus": max(math.ceil(pool.workers * pool.cpus), 1), "include_dashboard": False, "address": "local"}
    else:
        asked |= {"address": pool.address or os.environ["RAY_ADDRESS"]}
        _knock(asked["address"])
    try:
        ray.init(**asked)
    except Exception as error:  # Ray raises bare ones too, for a node that was too slow to start
        ray.shutdown()  # what it had started
        if asked["address"] == "local":
            raise DecError(
                f"Ray did not start on this machine: {error}", hint="again, when it is less busy; or without --ray"
            ) from error
        raise DecError(f"no Ray cluster at {asked['address']}: {error}", hint=STARTED) from error
