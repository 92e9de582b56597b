"""What `decgraph tune --kernels` does: sizes of the Triton kernels, measured on the device that is here, or what would be."""

from __future__ import annotations

import sys
import time
from typing import Any

from decgraph import extras
from decgraph.cli import output
from decgraph.runtime.placement import Placement

HEADINGS = ("launch", "sizes", "default", "microseconds", "times the default", "tried", "failed")


def tune_kernels(placed: Placement, *, seconds: float, fresh: bool, as_json: bool) -> None:
    """Measure every launch whose sizes are not known for a device (all of them with `fresh`), for as long as `seconds`, and
    print what was chosen.

    Raises DecError where torch or Triton is not installed, and for a device that is not there. On the CPU nothing is measured.
    """
    extras.check("models", also="triton", what="the kernels need")
    from decgraph.backends.triton import families, tuned  # this decides how Triton runs, before it is imported

    import torch  # isort: skip

    every = list(families.launches())
    device = torch.device(placed.found().device)
    if device.type == "cpu":
        say_what_would_be(every, tuned.cache_file(), as_json=as_json)
        return
    rows: list[tuple[str, ...]] = []
    found: list[dict[str, Any]] = []
    end, left = time.monotonic() + seconds, 0
    try:
        for n, launch in enumerate(every):
            if time.monotonic() > end:
                left = len(every) - n
                break
            if sys.stderr.isatty():
                print(f"measuring {launch.title}", file=sys.stderr)
            for asked, measured in families.measure(launch, device, fresh=fresh):
                sizes = tuned.config(asked.family, asked.key, asked.default) if measured is None else measured.best
                times = {} if measured is None else measured.milliseconds
                failed = {} if measured is None else measured.failed
                best, usual = times.get(sizes), times.get(asked.default)
                rows.append(
                    (
                        launch.title,
                        words(sizes),
                        words(asked.default),
                        f"{1000 * best:.1f}" if best else "kept",
                        f"{usual / best:.2f}" if best and usual else "-",
                        str(len(times)),
                        str(len(failed)),
                    )
                )
                found.append(
                    {
                        "launch": launch.title,
                        "family": asked.family,
                        "key": [str(k) for k in asked.key],
                        "sizes": vars(sizes),
                        "default": vars(asked.default),
                        "milliseconds": best,
                        "default_milliseconds": usual,
                        "kept": measured is None,
                        "failed": {words(c): why for c, why in failed.items()},
                    }
                )
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept", file=sys.stderr)
        raise
    finally:
        if as_json:
            output.emit_json({"device": tuned.device_name(), "file": str(tuned.cache_file()), "launches": found, "left": left})
        else:
            output.print_table(HEADINGS, rows)
            print(f"{tuned.device_name()}; kept in {tuned.cache_file()}")
            if left:
                print(f"The time was up with {left} launches to go: run it again to go on, or with more --seconds")


def words(sizes: Any) -> str:
    """A launch's sizes on one line."""
    return " ".join(f"{name}={value}" for name, value in vars(sizes).items())


def say_what_would_be(every: list[Any], file: Any, *, as_json: bool) -> None:
    """Without a device: what would be measured, and where it would be kept."""
    if as_json:
        output.emit_json({"device": None, "file": str(file), "launches": [{"launch": launch.title} for launch in every]})
        return
    print(
        "There is no CUDA device here, and the interpreter's times say nothing: nothing is measured. On a device, sizes for "
        f"these {len(every)} launches would be, and kept in {file}:"
    )
    for launch in every:
        print(f"  {launch.title}")
