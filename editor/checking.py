"""Checks an algorithm of an unsaved text in a process of its own, so that typing stays fast while worlds are enumerated.

echo '{"text": ..., "path": ..., "name": ...}' | python -m decgraph.editor.checking      # prints the report as JSON
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

LIMIT = 60.0
"""Seconds that a check may take; then it says what is known."""


async def checked(text: str, path: str, name: str) -> dict[str, Any]:
    """The report of `decgraph.check` as plain data; `{"error": ...}` where the text cannot be checked. Ends the process when it
    is cancelled."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "decgraph.editor.checking",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        given = json.dumps({"text": text, "path": path, "name": name}).encode()
        out, problem = await process.communicate(given)
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        return {"error": problem.decode(errors="replace").strip().rpartition("\n")[2] or "the check ended"}
    found: dict[str, Any] = json.loads(out)
    return found


def said(report: dict[str, Any]) -> str:
    """A report in a few words, for a line above the algorithm."""
    if "error" in report:
        return f"not checked: {report['error'].splitlines()[0]}"
    mutants = report["mutants"]
    match report["verdict"]:
        case "proved":
            return f"proved {report['reach']}"
        case "holds":
            return f"holds {report['reach']}; {mutants['killed']} of {mutants['planted']} mutants found"
        case "refuted":
            return "refuted: see the problem at the claim"
        case verdict:
            reasons = report.get("reasons") or [""]
            return f"{verdict}{': ' if reasons[0] else ''}{reasons[0]}"


def main() -> int:
    """Reads a request, prints a report."""
    import decgraph

    given = json.load(sys.stdin)
    try:
        algorithm = decgraph.parse(given["text"], path=given["path"], main=given["name"])
        report = algorithm.check(seconds=given.get("seconds", LIMIT))
        found = report.to_json() | {"shown": report.counterexample.render() if report.counterexample else ""}
    except decgraph.DecError as error:
        found = {"error": str(error)}
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
