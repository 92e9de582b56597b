"""What every program of stdlib/ becomes, and what a decoding step of it costs: one row for each in replay.tsv.

A refactoring changes none of the rows; a change of lowering, of a pass or of the writer shows which programs it touched.

    python tests/replay.py                  which rows differ from the committed ones
    python tests/replay.py --against main   the same, with the texts of that revision beside these, as a diff
    python tests/replay.py --write          commit to what there is now
    python tests/replay.py NAME --write     the same for one program, or several
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from lib.stdlib.requests import V, heard, requests
from lib.stdlib.sessions import session_of
from lib.waiting import SECONDS

from decgraph import stdlib
from decgraph.api import load
from decgraph.backends.torch.program import printed
from decgraph.check.worlds import models_for, params_for
from decgraph.ir.verify import verify
from decgraph.passes.plan import Plan
from decgraph.runtime.session import check_params

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "tests/replay.tsv"
TEXTS = ("ir", "passes", "python")
COLUMNS = ("name", *TEXTS, "tokens", "calls")
REQUESTS = 3
"""How many of worlds.requests are decoded: one drawn, one greedy, one with filters."""


def texts(name: str) -> dict[str, str]:
    """The IR of an algorithm, which is verified, the IR after all passes, and the driver that the torch backend runs."""
    algorithm = load(name)
    verify(algorithm.module, level=2)
    params = check_params(algorithm.function, params_for(algorithm.function, 0))
    optimised = algorithm.optimised(params, Plan())
    after = type(algorithm)(optimised, algorithm.text, algorithm.path)
    return {"ir": algorithm.ir(), "passes": after.ir(), "python": printed(optimised)}


def cost(name: str) -> tuple[int, str]:
    """How many tokens the reference commits for fixed requests on table models, and how often it calls each model for them."""
    algorithm = load(name)
    f = algorithm.function
    session = session_of(algorithm, models_for(f, V, 0, free=False), params_for(f, 0))
    results = [session.run(heard(f, r)) for r in requests(0)[:REQUESTS]]
    calls = sum((Counter(r.stats.calls) for r in results), Counter[str]())
    return sum(len(r.tokens) for r in results), " ".join(f"{model}:{n}" for model, n in sorted(calls.items()))


def row(name: str) -> tuple[str, ...]:
    """The row of an algorithm: digests of its texts, tokens and calls."""
    made = texts(name)
    tokens, calls = cost(name)
    return (name, *(hashlib.sha256(made[kind].encode()).hexdigest()[:12] for kind in TEXTS), str(tokens), calls)


def committed() -> dict[str, tuple[str, ...]]:
    """The rows of the table, by name."""
    rows = [tuple(line.split("\t")) for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    return {r[0]: r for r in rows}


def differences(rows: dict[str, tuple[str, ...]], before: dict[str, tuple[str, ...]]) -> list[str]:
    """A line for each program that has changed, with what of it."""
    lines = []
    for name in sorted({*rows, *before}):
        if name not in before or name not in rows:
            lines.append(f"{name}: {'new' if name in rows else 'gone'}")
        elif rows[name] != before[name]:
            changed = zip(COLUMNS, before[name], rows[name], strict=True)
            lines.append(f"{name}: " + ", ".join(f"{c} {old} -> {new}" for c, old, new in changed if old != new))
    return lines


def dump(folder: Path) -> None:
    """Write the texts of all programs into a folder, a file for each text."""
    for name in stdlib.names():
        for kind, text in texts(name).items():
            (folder / f"{name}.{kind}").write_text(text, encoding="utf-8")


def compare_texts(revision: str) -> list[str]:
    """Unified diffs of the texts of all programs at `revision` and here. Raises CalledProcessError for no such revision."""
    with tempfile.TemporaryDirectory() as made:
        tree, old, new = (Path(made) / n for n in ("tree", "old", "new"))
        subprocess.run(["git", "worktree", "add", "-q", "--detach", tree, revision], cwd=ROOT, check=True, timeout=SECONDS)
        try:
            for root, folder in ((tree, old), (ROOT, new)):
                folder.mkdir()
                paths = os.pathsep.join(str(p) for p in (root, root / "tests"))
                command = [sys.executable, "-P", __file__, "--dump", str(folder)]
                subprocess.run(command, cwd=root, check=True, timeout=SECONDS, env={**os.environ, "PYTHONPATH": paths})
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True, timeout=SECONDS)
        lines: list[str] = []
        for file in sorted({p.name for folder in (old, new) for p in folder.iterdir()}):
            before, after = ((f / file).read_text().splitlines() if (f / file).exists() else [] for f in (old, new))
            lines += difflib.unified_diff(before, after, f"{revision}/{file}", file, lineterm="")
        return lines


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these programs")
    parser.add_argument("--against", metavar="REVISION", help="show the texts that differ from that revision's")
    parser.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("--dump", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.dump:
        return dump(chosen.dump)
    if chosen.against:
        lines = compare_texts(chosen.against)
        files = sum(line.startswith("+++") for line in lines)
        return print("\n".join([*lines, f"{files} of {len(TEXTS) * len(stdlib.names())} texts changed"]))
    before = committed() if TABLE.exists() else {}
    names = chosen.names or stdlib.names()
    rows = {name: row(name) for name in names}
    lines = differences(rows, {name: r for name, r in before.items() if name in rows or not chosen.names})
    print("\n".join([*lines, f"{len(lines)} of {len(rows)} changed"]))
    if chosen.write:
        every = {**before, **rows} if chosen.names else rows
        table = (COLUMNS, *(every[name] for name in stdlib.names() if name in every))
        TABLE.write_text("\n".join("\t".join(r) for r in table) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
