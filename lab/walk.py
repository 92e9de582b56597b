"""Count how much Python a thing crosses: functions called and files entered, on the shipped models.

token: one decoded token of a warm session, of five algorithms. program: a `.dec` text to its program. request: a
request through the server, to the end of its answer, warm. model: the name of a model to its decoder's first forward, and how
many modules of decgraph a new process has loaded after a first token. With
--list the functions of decgraph that were called, file after file as they were entered.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from typer import Argument, Option

import decgraph
from decgraph import stdlib

TOKENS = 48
ROOT = str(Path(__file__).resolve().parents[1])
OWN = re.compile(rf"<decgraph|{re.escape(ROOT)}/[^.]")  # what was generated, or lies in the checkout but not in its .venv
Seen = Counter[tuple[str, str]]
"""How often a function was called, by its file and name; in C, the file is empty. In the order of the first calls."""


@contextmanager
def counted() -> Iterator[Seen]:
    """Counts the calls of this thread, and of threads that are started meanwhile, C's as well. What was set with
    sys.setprofile is set again."""
    seen: Seen = Counter()
    before = sys.getprofile()

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            seen[frame.f_code.co_filename, frame.f_code.co_qualname] += 1
        elif event == "c_call":
            seen["", argument.__qualname__] += 1

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        yield seen
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


def token(name: str) -> tuple[Seen, int]:
    """The third run of a session, and its tokens."""
    session = decgraph.load(name).session(backend="torch")
    assert session.tokenizer is not None
    request = decgraph.Request(tuple(session.tokenizer.encode("def main():")), TOKENS, temperature=0)
    for _ in range(2):
        session.run(request, keep_events=False)
    with counted() as seen:
        result = session.run(request, keep_events=False)
    return seen, len(result.tokens)


def program() -> tuple[Seen, int]:
    """speculative.dec, after it was read once: the grammar's tables and the rules of the library are there."""
    for _ in range(2):
        with counted() as seen:
            decgraph.parse(stdlib.text("speculative"), path="speculative.dec")
    return seen, 1


def request() -> tuple[Seen, int]:
    """A completion of eight tokens, after another one; in all threads of the server."""
    from starlette.testclient import TestClient

    from decgraph.serve.app import app_of
    from decgraph.serve.catalogue import Catalogue
    from decgraph.serve.service import Service

    body = {"model": "decgraph", "prompt": "def main():", "max_tokens": 8, "temperature": 0}
    with counted() as seen:
        service = Service(Catalogue(["speculative"]))
        with TestClient(app_of(service)) as client:
            for _ in range(2):
                seen.clear()
                client.post("/v1/completions", json=body).raise_for_status()
            answered = seen.copy()
    return answered, 1


def model() -> tuple[Seen, int]:
    """The shipped target by its name, after it was read and forgotten, to its scores of one token."""
    from decgraph.models import bind
    from decgraph.runtime.models import sharing

    function = decgraph.load("autoregressive").function
    for _ in range(2):
        sharing.forget()
        with counted() as seen:
            target = bind(function, {"target": "target"}).models["target"]
            target.eval([(1,)])
    return seen, 1


WALKS: dict[str, Callable[[], tuple[Seen, int]]] = {
    "a token, autoregressive": partial(token, "autoregressive"),
    "a token, speculative": partial(token, "speculative"),
    "a token, eagle2": partial(token, "eagle2"),
    "a token, medusa": partial(token, "medusa"),
    "a token, llada": partial(token, "llada"),
    "a .dec text to its program": program,
    "a request through the server": request,
    "a model's name to its forward": model,
}


def modules() -> int:
    """How many modules of decgraph a process loads for the first token of the shipped target."""
    run = "import sys, decgraph; decgraph.load('autoregressive').session().run(decgraph.Request((1,), 1))"
    count = "print(sum(name.startswith('decgraph') for name in sys.modules))"
    return int(subprocess.run([sys.executable, "-c", f"{run}; {count}"], capture_output=True, text=True, check=True).stdout)


def command(
    walk: Annotated[str, Argument(help="token, program, request or model; all, where left out.")] = "",
    list_: Annotated[bool, Option("--list", help="The functions of decgraph, file by file.")] = False,
) -> None:
    """Print the counts of the walks."""
    print(f"{'':36} {'calls of decgraph':>18} {'its files':>10} {'calls of Python':>16} {'all files':>10}")
    for label in (label for label in WALKS if walk in label):
        seen, times = WALKS[label]()
        python: Seen = Counter({at: n for at, n in seen.items() if at[0]})
        own: Seen = Counter({at: n for at, n in python.items() if OWN.match(at[0])})
        counts = [(sum(some.values()) / times, len(steady(some, times))) for some in (own, python)]
        print(f"{label:36} {counts[0][0]:18,.0f} {counts[0][1]:10} {counts[1][0]:16,.0f} {counts[1][1]:10}")
        for file in dict.fromkeys(file for file, _ in own) if list_ else ():
            names = ", ".join(f"{name} {n / times:.3g}" for (at, name), n in own.items() if at == file)
            print(f"  {file.removeprefix(ROOT + '/')}: {names}")
    if walk in "a model's name to its first token":
        print(f"{'its first token, modules loaded':36} {modules():18,}")


def steady(seen: Seen, times: int) -> set[str]:
    """The files that are entered in a tenth of all tokens or more: others are of the run's beginning and end."""
    files: Counter[str] = Counter()
    for (file, _), n in seen.items():
        files[file] += n
    return {file for file, n in files.items() if n > times / 10}
