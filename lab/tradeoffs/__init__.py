"""Sweep every lossy program over its own knob, by counts, against the shape that its paper leads one to expect.

Model calls are counted, nothing is timed, seeds are fixed: the same figures on every run on one machine. The result file
lab/results/tradeoffs-KIND.json is written after every sweep, and the page and its plots from it.
"""

from __future__ import annotations

import sys
from typing import Annotated

from typer import Argument, Option


def command(
    name: Annotated[str, Argument(metavar="[masked|causal]")] = "masked",
    only: Annotated[str, Option(help="Programs, comma separated; the others' results stay.")] = "",
    missing: Annotated[bool, Option("--missing", help="Only what the result file lacks.")] = False,
    page_only: Annotated[bool, Option("--page-only", help="Judge the stored figures again and write the page.")] = False,
) -> None:
    """Measure, write results, plots and the page. Raises DecError as the decoders do."""
    import torch

    from lab.tradeoffs import sweeps
    from lab.tradeoffs.page import write

    kind, document = sweeps.kind_of(name), sweeps.load(name)
    if not page_only:
        torch.set_num_threads(1)
        chosen, measure = sweeps.chosen(kind, only.split(",") if only else []), kind.measurer()
        absent = sweeps.missing(kind, document["rows"])
        for sweep in (sweep for sweep in chosen if not missing or sweep in absent):
            print(f"{sweep.label} ...", file=sys.stderr, flush=True)
            document["rows"].append(sweeps.measured(sweep, measure))
            document["facts"] = dict(measure.facts)
            sweeps.save(name, document)  # a run that is stopped loses one sweep
    sweeps.save(name, document)
    write(name, document)
    for sweep, row in sweeps.current(kind, document["rows"]):
        if sweep.failed(row) and not sweep.why:
            print(f"{sweep.label} does not show its shape, and the table does not say why", file=sys.stderr)
