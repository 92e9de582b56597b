"""Checks, explains and traces an algorithm of an unsaved text in a process of its own, so that typing stays fast meanwhile.

echo '{"what": "check", "text": ..., "path": ..., "name": ...}' | python -m decgraph.editor.checking    # prints JSON
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from decgraph.api import Algorithm, parse
from decgraph.errors import DecError

LIMIT = 60.0
"""Seconds that a check may take; then it says what is known."""
PROMPT = "def main():\n"
"""What a trace begins with where nothing is said."""
WHAT = ("check", "trace", "explain")


async def asked(what: str, text: str, path: str, name: str, prompt: str = "") -> dict[str, Any]:
    """What is found of an algorithm, as plain data: `page`, a page of HTML, and of a check the report of `decgraph.check`;
    `{"error": ...}` where the text cannot be read. Ends the process when it is cancelled."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "decgraph.editor.checking",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        given = json.dumps({"what": what, "text": text, "path": path, "name": name, "prompt": prompt}).encode()
        out, problem = await process.communicate(given)
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        return {"error": problem.decode(errors="replace").strip().rpartition("\n")[2] or f"the {what} ended"}
    found: dict[str, Any] = json.loads(out)
    return found


def said(report: dict[str, Any]) -> str:
    """A report in a few words, for a line above the algorithm."""
    if "error" in report:
        return f"not checked: {report['error'].splitlines()[0]}"
    match report["verdict"]:
        case "proved":
            return f"proved {report['reach']}"
        case "holds":
            return f"holds {report['reach']}"
        case "refuted":
            return "refuted: see the problem at the claim"
        case verdict:
            reasons = report.get("reasons") or [""]
            return f"{verdict}{': ' if reasons[0] else ''}{reasons[0]}"


def check(algorithm: Algorithm, seconds: float = LIMIT) -> dict[str, Any]:
    """The report of a check that may take so many seconds, with its page."""
    from decgraph.views.counterexample import report_page

    report = algorithm.check(seconds=seconds)
    shown = report.counterexample.render() if report.counterexample else ""
    return report.to_json() | {"shown": shown, "page": report_page([(report, algorithm.text)])}


def explain(algorithm: Algorithm) -> dict[str, Any]:
    """What an algorithm does, line by line, and what its step costs, as a page."""
    from decgraph.editor.fragments import fragment
    from decgraph.views.counterexample import page_of

    parts = "\n".join(fragment(part) for part in (algorithm.explanation(), algorithm.cost()))
    return {"page": page_of(f"{algorithm.name}: explained", f"<main>{parts}</main>")}


def trace(algorithm: Algorithm, prompt: str) -> dict[str, Any]:
    """The page of `decgraph trace`, run by the shipped models."""
    with tempfile.TemporaryDirectory() as folder:
        file, page = Path(folder, f"{algorithm.name}.dec"), Path(folder, "page.html")
        file.write_text(last(algorithm), encoding="utf-8")
        command = [sys.executable, "-m", "decgraph", "trace", str(file), "-p", prompt or PROMPT, "-o", str(page)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if not page.is_file():
            return {"error": (done.stderr or done.stdout).replace(str(file), algorithm.path).strip()}
        return {"page": page.read_text(encoding="utf-8")}


def last(algorithm: Algorithm) -> str:
    """The text with the algorithm as its last definition, which is the one that a file is run for."""
    from decgraph.dsl.parse import parse_text

    text, file = algorithm.text, parse_text(algorithm.text, algorithm.path)
    item = file.named(algorithm.name)
    if item is None or item is file.items[-1]:
        return text
    inside = text[item.span.start : item.span.end]
    return f"{text[: item.span.start]}{text[item.span.end :]}\n\n\n{inside}\n"


def main() -> int:
    """Reads a request, prints what is found."""
    given = json.load(sys.stdin)
    try:
        algorithm = parse(given["text"], path=given["path"], main=given["name"])
        match given["what"]:
            case "check":
                found = check(algorithm)
            case "explain":
                found = explain(algorithm)
            case _:
                found = trace(algorithm, given["prompt"])
    except DecError as error:
        found = {"error": str(error)}
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
