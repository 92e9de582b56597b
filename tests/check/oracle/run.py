"""Judges random edits: `python tests/check/oracle/run.py --edits 200 --seed 0` prints oracle verdicts beside the checker's."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from oracle.edits import edited
from oracle.judge import Verdict, judge
from oracle.reading import program


@dataclass
class Row:
    """One edit: what the oracle and the checker say."""

    seed: int
    said: str
    text: str
    oracle: Verdict
    checker: str
    notes: str = ""
    seconds: float = 0.0

    @property
    def unsound(self) -> bool:
        return self.oracle.verdict == "refuted" and self.checker in ("proved", "holds")


def loads(text: str) -> bool:
    """Whether decgraph reads a program."""
    from decgraph.dsl.lower import load_text
    from decgraph.errors import DecError

    try:
        load_text(text)
    except DecError:
        return False
    return True


class Late(BaseException):
    """The checker took longer than it may."""


def _late(*_: Any) -> None:
    raise Late


def checked(text: str, limit: float = 60.0, **options: Any) -> tuple[str, str]:
    """The checker's verdict and its first notes; a refusal to run, and more than `limit` seconds
    of processor time, are verdicts of their own."""
    import decgraph
    from decgraph.errors import DecError

    before = signal.signal(signal.SIGVTALRM, _late)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        report = decgraph.check(text, **options)
    except Late:
        return "late", f"more than {limit:g} s"
    except DecError as error:
        return "refused", str(error)
    except Exception as error:  # a checker that crashes is what is looked for
        return "crashed", f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return report.verdict, "; ".join(map(str, report.notes[:2]))


def row(seed: int, *, seconds: float = 1.0, base: str = "", refuted: bool = False, **options: Any) -> Row:
    """Make an edit, and ask both; with `refuted` the checker only where the oracle refutes."""
    text, said = edited(seed, loads, base)
    found = judge(program(text), seconds=seconds)
    if refuted and found.verdict != "refuted":
        return Row(seed, said, text, found, "not asked")
    started = time.process_time()
    verdict, notes = checked(text, **options)
    return Row(seed, said, text, found, verdict, notes, time.process_time() - started)


def table(rows: list[Row]) -> str:
    """The counts of verdicts, the oracle's down and the checker's across, and the share undecided."""
    seen = Counter((x.oracle.verdict, x.checker) for x in rows)
    across = sorted({x.checker for x in rows})
    out = [" " * 10 + "".join(f"{c:>12}" for c in across)]
    out += [f"{o:10}" + "".join(f"{seen[o, c]:12}" for c in across) for o in ("refuted", "holds", "unknown")]
    for name, some in (("all", rows), ("never fail at run time", [x for x in rows if not x.oracle.fails])):
        undecided = sum(x.checker in ("undecided", "late") for x in some)
        out.append(f"{name}: undecided or late {undecided} of {len(some)} ({undecided / max(1, len(some)):.1%})")
    out.append(f"unsound {sum(x.unsound for x in rows)}; checker {sum(x.seconds for x in rows):.0f} s")
    return "\n".join(out)


def main() -> int:
    """Judge the edits and print the table and every failure; 1 where the checker proved what the oracle refutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0, help="of the oracle, per program")
    parser.add_argument("--base", default="", help="edit this program only")
    parser.add_argument("--every", action="store_true", help="print every edit")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of the checker, per program")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so many")
    parser.add_argument("--refuted", action="store_true", help="ask the checker only about what the oracle refutes")
    given = parser.parse_args()
    rows, until = [], time.monotonic() + 60 * given.minutes
    for seed in range(given.seed, given.seed + given.edits):
        rows.append(x := row(seed, seconds=given.seconds, base=given.base, refuted=given.refuted, limit=given.limit))
        if time.monotonic() > until:
            print(f"the time is over after seed {seed}")
            break
        odd = x.checker not in ("proved", "holds", "refuted", "not asked") or (x.oracle.verdict, x.checker) == (
            "holds",
            "refuted",
        )
        if given.every or x.unsound or odd:
            fails = ", fails" if x.oracle.fails else ""
            found = f"oracle {x.oracle.verdict}{fails}, checker {x.checker} ({x.seconds:.1f} s)"
            print(f"--- seed {x.seed}: {found}: {x.said} {x.notes}", flush=True)
        if x.unsound and x.oracle.world is not None:
            print(x.text, x.oracle.why, x.oracle.world.describe(), sep="\n", flush=True)
    print(table(rows))
    return int(any(x.unsound for x in rows))


if __name__ == "__main__":
    sys.exit(main())
