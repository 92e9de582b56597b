"""No test waits for ever: whatever can wait without an end has a bound, or is in tests/lib/waiting.py, which has bounds."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from lib.repository import ROOT
from lib.waiting import SECONDS

TESTS = ROOT / "tests"
WAITING = TESTS / "lib" / "waiting.py"
# Calls that take a bound as `timeout`, and wait without end where it is not given; httpx gives up after five seconds, which a
# loaded machine may take.
TIMEOUT = {
    "subprocess.run", "subprocess.check_output", "subprocess.check_call", "urllib.request.urlopen", "httpx.get", "httpx.post",
    "httpx.stream", "httpx.Client", "openai.OpenAI", "ray.get", "ray.wait",
}  # fmt: skip
# Methods whose first argument is the bound.
FIRST = {"join", "wait", "result", "acquire", "communicate", "get"}


def faults_of(text: str) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) of what waits without a bound."""
    tree = ast.parse(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    bounded_by_asyncio = [arg for call in calls if ast.unparse(call.func) == "asyncio.wait_for" for arg in call.args]
    for node in ast.walk(tree):
        if isinstance(node, ast.While) and "sleep(" in ast.unparse(node):
            yield node.lineno, "a loop that sleeps: waiting.until(what, holds)"
        if not isinstance(node, ast.Call) or node in bounded_by_asyncio:
            continue
        name, given = ast.unparse(node.func), {word.arg for word in node.keywords}
        bounded = "timeout" in given or None in given
        if name in TIMEOUT and not bounded or name.endswith(".create_connection") and not bounded and len(node.args) < 2:
            yield node.lineno, f"{name} without timeout"
        elif isinstance(node.func, ast.Attribute) and node.func.attr in FIRST and not node.args and not bounded:
            if not name.endswith("._value.get") and not name.startswith("self.w"):  # a counter, and a method of a test
                yield node.lineno, f"{name}() without a bound: waiting.ended(what, thread) for threads"
        elif name == "subprocess.Popen":
            yield node.lineno, "subprocess.Popen: waiting.started(words) ends it in time"
        elif name == "threading.Thread" and "daemon" not in given:
            yield node.lineno, "a thread that outlives a failed test keeps the interpreter: daemon=True"
        elif name == "asyncio.run" and "wait_for" not in ast.unparse(node):
            yield node.lineno, "asyncio.run(asyncio.wait_for(..., SECONDS))"


def test_no_test_waits_for_ever() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in sorted(TESTS.rglob("*.py"))
        if path != WAITING
        for line, what in faults_of(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "while len(server.connections) < 2:\n    time.sleep(0.01)",
        "subprocess.run(['x'], check=True)",
        "socket.create_connection(address)",
        "httpx.stream('POST', url)",
        "thread.join()",
        "process.communicate()",
        "done.wait()",
        "queue.get()",
        "subprocess.Popen(['x'])",
        "threading.Thread(target=f).start()",
        "asyncio.run(session())",
    ],
)
def test_the_check_sees_a_wait_without_a_bound(line: str) -> None:
    assert [where for where, _ in faults_of(line)] == [1]


@pytest.mark.parametrize(
    "line",
    [
        "', '.join(words)",
        "settings.get('x')",
        "while todo:\n    todo.pop()",
        "subprocess.run(['x'], timeout=3)",
        "subprocess.run(['x'], **given)",
        "process.wait(60)",
    ],
)
def test_the_check_lets_bounded_waits_pass(line: str) -> None:
    assert list(faults_of(line)) == []


def test_a_wait_that_does_not_end_says_what_it_was_for() -> None:
    import threading

    from lib.waiting import ended, started, until

    with pytest.raises(pytest.fail.Exception, match="until the moon is full"):
        until("the moon is full", lambda: False, seconds=0.05)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, args=(60,), daemon=True)
    thread.start()
    with pytest.raises(pytest.fail.Exception, match="until the sleeper ended"):
        ended("the sleeper", thread, seconds=0.05)
    stop.set()
    ended("the sleeper", thread)
    with pytest.raises(pytest.fail.Exception, match="for sleep 60"), started(["sleep", "60"], seconds=0.05) as process:
        assert process.stdout is not None and process.stdout.read() == ""


def test_a_test_that_hangs_ends_alone_and_shows_where(tmp_path: Path) -> None:
    """As pyproject.toml limits tests, with a shorter limit: pytest-xdist's workers go on, and the stacks are printed."""
    (tmp_path / "test_hangs.py").write_text(
        "import threading\n\ndef test_waits(): threading.Event().wait()\n\ndef test_works(): pass\n", encoding="utf-8"
    )
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    limits = {name: options[name] for name in options if "timeout" in name} | {"timeout": 3}
    (tmp_path / "pytest.ini").write_text("[pytest]\n" + "".join(f"{k} = {v}\n" for k, v in limits.items()), encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert "1 failed, 1 passed" in done.stdout and "Timeout (>3.0s)" in done.stdout, done.stdout + done.stderr
    assert "in wait" in done.stdout or "threading.py" in done.stdout
