"""Every lossy program's trade-off: its own knob, swept, against what its paper leads one to expect.

    python -m lab.tradeoffs [masked|causal] [--only NAMES] [--missing] [--page-only]

Model calls are counted, nothing is timed, seeds are fixed: the same figures on every run on one machine. The result file
lab/results/tradeoffs-KIND.json is written after every sweep, and the page and its plots from it.
"""

from __future__ import annotations

import argparse
import sys

import torch

from lab.tradeoffs.page import write
from lab.tradeoffs.sweeps import KINDS, chosen, current, kind_of, load, measured, missing, save


def main(arguments: list[str] | None = None) -> None:
    """Measure, write results, plots and the page. Raises DecError as the decoders do."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.tradeoffs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", nargs="?", default="masked", choices=KINDS)
    parser.add_argument("--only", default="", help="programs, comma separated; the others' results are kept")
    parser.add_argument("--missing", action="store_true", help="only what the result file lacks")
    parser.add_argument("--page-only", action="store_true", help="judge the stored figures again and write the page")
    options = parser.parse_args(arguments)
    kind, document = kind_of(options.kind), load(options.kind)
    if not options.page_only:
        torch.set_num_threads(1)
        sweeps, measure = chosen(kind, [name for name in options.only.split(",") if name]), kind.measurer()
        absent = missing(kind, document["rows"])
        for sweep in (sweep for sweep in sweeps if not options.missing or sweep in absent):
            print(f"{sweep.label} ...", file=sys.stderr, flush=True)
            document["rows"].append(measured(sweep, measure))
            document["facts"] = dict(measure.facts)
            save(options.kind, document)  # a run that is stopped loses one sweep
    save(options.kind, document)
    write(options.kind, document)
    for sweep, row in current(kind, document["rows"]):
        if sweep.failed(row) and not sweep.why:
            print(f"{sweep.label} does not show its shape, and the table does not say why", file=sys.stderr)


if __name__ == "__main__":
    main()
