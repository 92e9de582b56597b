"""Every lossy program's trade-off: its own knob, swept, against what the paper says the knob trades.

    .venv/bin/python -m lab.tradeoffs [--only NAMES] [--missing] [--page-only]

A sweep (`Sweep`) names a program, its knob, three to six values, what the paper reports and the shape that this should have
(tradeoff_shapes.py). Model calls are counted, nothing is timed, seeds are fixed: the same figures on every run on one machine.
lab/tradeoffs_masked.py holds the sweeps and what measures a point; results are
lab/results/tradeoffs-KIND.json, the page and its plots are generated from these.
"""

from __future__ import annotations

import argparse
import json
import sys

from lab.tradeoff_sweeps import DOCS, KINDS, PAGES, RESULTS, assembled, chosen, kind_of, measured, missing
from lab.tradeoffs_page import page, plots


def main(arguments: list[str] | None = None) -> None:
    """Measure, write results, plots and the page. Raises DecError as the decoders do."""
    parser = argparse.ArgumentParser(prog="python -m lab.tradeoffs", description=__doc__)
    parser.add_argument("--kind", default="masked", choices=KINDS)
    parser.add_argument("--only", default="", help="programs, comma separated; the others' results are kept")
    parser.add_argument("--missing", action="store_true", help="only what the result file lacks")
    parser.add_argument("--page-only", action="store_true", help="judge the stored figures again and write the page")
    given = parser.parse_args(arguments)
    kind, path = kind_of(given.kind), RESULTS / f"tradeoffs-{given.kind}.json"
    old = json.loads(path.read_text("utf-8")) if path.is_file() else {"rows": [], "facts": {}}
    document = assembled(given.kind, kind, old["facts"], old["rows"])
    if not given.page_only:
        asked = chosen(kind, [name for name in given.only.split(",") if name])
        lacking = [sweep.label for sweep in missing(kind, document)]
        asked = [sweep for sweep in asked if sweep.label in lacking] if given.missing else asked
        for facts, row in measured(kind, asked):  # written one by one: a stopped run loses one sweep
            document = assembled(given.kind, kind, facts, [*document["rows"], row])
            path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (DOCS / PAGES[given.kind]).write_text(page(document, kind), encoding="utf-8")
    plots(document, kind, DOCS / "images")
    for row in document["rows"]:
        if not row["shown"] and not row["why"]:
            print(f"{row['algorithm']}.{row['knob']} is not shown, and the table does not say why", file=sys.stderr)


if __name__ == "__main__":
    main()
