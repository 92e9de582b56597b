"""Sizes of kernels chosen on this device, as `decgraph tune --kernels` does, for the shapes that are timed afterwards.

What is measured is kept where kernels look for their sizes (backends/triton/tuned.py), so the stages after this one run with
the chosen sizes. The result file has every candidate's time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lab.gpu.lab import Lab
from lab.gpu.report import Items, OutOfTime, Row, limited

SECONDS = {"rows": 20.0, "attend": 25.0}


def stage(lab: Lab) -> Items:
    """The items of the stage `tuning`."""
    for family, seconds in SECONDS.items():
        yield family, partial(chosen, lab, family, seconds)


def wanted(lab: Lab, family: str) -> list[Any]:
    """The launches of a family in the order in which they matter here: large vocabularies and models first."""
    from decgraph.backends.triton.families import Shapes, launches

    if lab.sizes.name == "tiny":
        small = Shapes(
            models=(("tiny", 2, 1, 16),),
            cells=(1,),
            cached=(8,),
            vocabularies=(40,),
            rows=(1,),
            dtype=torch.float32,
        )
        return [x for x in launches(small) if x.family == family][:2]
    shapes = Shapes(models=(("8B", 32, 8, 128),), cells=(1, 64), vocabularies=(128256,), rows=(64, 1))
    return [x for x in launches(shapes) if x.family == family]


def chosen(lab: Lab, family: str, seconds: float) -> Row:
    """Measure as many launches of a family as so many seconds allow."""
    from decgraph.backends.triton import families

    clock = None if lab.cuda else lambda work: 1000 * lab.seconds(work, 1, 0).median
    every: Sequence[Any] = wanted(lab, family)
    row: Row = {"launches": []}
    try:
        with limited(seconds), elsewhere(lab):
            for launch in every:
                for asked, found in families.measure(launch, lab.device, fresh=True, clock=clock):
                    row["launches"].append(told(launch.title, asked, found))
    except OutOfTime:
        row["left_out"] = f"after {seconds:g} s"
    gains = [x["usual_ms"] / x["best_ms"] for x in row["launches"] if x["usual_ms"] and x["best_ms"]]
    return {
        **row,
        "says": f"{len(row['launches'])} launches of {len(every)} wanted; what was chosen is up to "
        f"{max(gains, default=1):.2f} times as fast as the usual sizes",
    }


@contextmanager
def elsewhere(lab: Lab) -> Iterator[None]:
    """On the CPU, store measurements in a temporary folder: an interpreter's times must choose nothing."""
    if lab.cuda:
        yield
        return
    before = os.environ.get("DECGRAPH_CACHE")
    with TemporaryDirectory() as folder:
        os.environ["DECGRAPH_CACHE"] = folder
        try:
            yield
        finally:
            os.environ.pop("DECGRAPH_CACHE")
            if before is not None:
                os.environ["DECGRAPH_CACHE"] = before


def told(title: str, asked: Any, found: Any) -> Row:
    """What measuring one launch gave."""
    best, times = found.best, found.milliseconds
    return {
        "launch": title,
        "key": [str(k) for k in asked.key],
        "chosen": vars(best),
        "usual": vars(asked.default),
        "best_ms": times.get(best),
        "usual_ms": times.get(asked.default),
        "failed": {str(vars(c)): why for c, why in found.failed.items()},
        "tried": [{**vars(c), "ms": ms} for c, ms in times.items()],
    }
