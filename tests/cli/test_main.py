"""The command as a whole: help, speed, exit codes, and what a failing verb shows."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import resource
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from lib.waiting import SECONDS, started

from decgraph import stdlib
from decgraph.cli import completion, output
from decgraph.cli import main as cli
from decgraph.errors import DecError, InternalError

COMMAND = str(Path(sys.executable).parent / "decgraph")


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`verb(error)`: a verb `boom` that raises the error."""

    def install(error: BaseException) -> None:
        module = type(sys)("decgraph.cli.boom")

        def command() -> None:
            raise error

        module.command = command
        monkeypatch.setitem(sys.modules, "decgraph.cli.boom", module)
        monkeypatch.setattr(cli, "verbs", lambda: {"boom": "Fails."})

    return install


def test_help_answers_within_half_a_second() -> None:
    """Processor time: what a wall clock says here depends on what else the machine does."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([COMMAND, "--help"], capture_output=True, text=True, check=True, timeout=SECONDS)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert "zoo" in done.stdout
    assert min(seconds) < 0.5


def test_help_lists_every_verb_and_imports_none() -> None:
    code = "import sys; import decgraph.cli.main as m; m.main(['-h']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=SECONDS)
    for name, line in cli.verbs().items():
        assert name in done.stdout
        assert line.split()[0] in done.stdout
        assert f"decgraph.cli.{name}" not in done.stderr.split()
    for name in ("torch", "transformers", "numpy", "lark"):
        assert name not in done.stderr.split()


def test_every_verb_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in cli.verbs():
        assert cli.main([name, "--help"]) == 0
        assert f"decgraph {name}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == "decgraph 0.1.0\n"


def test_usage_errors_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["nosuch"]) == 2
    assert "nosuch" in capsys.readouterr().err
    assert cli.main(["zoo", "--nosuch"]) == 2


def test_user_errors_exit_1_without_a_traceback(verb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(DecError("gamma is 40; it must be in 1..32", hint="--set gamma=32"))
    assert cli.main(["boom"]) == 2
    assert capsys.readouterr() == ("", "error: gamma is 40; it must be in 1..32\n  = try: --set gamma=32\n")


def test_user_errors_are_json_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.report(DecError("no"), ["run", "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {"error": "error: no", "codes": []}


@pytest.mark.parametrize("error", [InternalError("two owners of %3"), KeyError("x"), AssertionError()])
def test_our_bugs_exit_70_with_a_reproducer(error, verb, capsys: pytest.CaptureFixture[str]) -> None:
    verb(error)
    assert cli.main(["boom"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("internal error: ")
    assert "DECGRAPH_TRACEBACK=1 decgraph boom" in err
    assert "test_main.py" in err
    assert "Traceback" not in err


def test_a_developer_can_see_the_traceback(verb, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(output.TRACEBACK, "1")
    verb(KeyError("x"))
    assert cli.main(["boom"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_interruption_exits_130(verb) -> None:
    verb(KeyboardInterrupt())
    assert cli.main(["boom"]) == 130
    assert output.report(KeyboardInterrupt()) == 130


def test_a_closed_pipe_is_quiet() -> None:
    code = "from decgraph.cli.main import main; import sys; sys.exit(main(['--help']))"
    with started([sys.executable, "-c", code]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_json_knows_what_results_are_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a": np.float64(0.5), "b": np.arange(2), "c": Fraction(1, 3), "d": np.nan, "e": [{"x"}], 3: ()}
    output.emit_json(value)
    expected = {"a": 0.5, "b": [0, 1], "c": "1/3", "d": None, "e": [["x"]], "3": []}
    assert json.loads(capsys.readouterr().out) == expected


def test_tables_keep_their_heading_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("name", "size"), [("target", 5), ("drafter", None)])
    assert capsys.readouterr().out == "name\tsize\ntarget\t5\ndrafter\t\n"


TABLES: dict[str, tuple[tuple[str, ...], list[tuple[str, ...]]]] = {
    "bench": (
        ("method", "tokens/call", "tokens/s", "times generate", "by CPU time", "times its counterpart", "drafting",
         "outside models", "same tokens"),
        [("speculative_jacobi:gamma=6", "1.50", "103.2", "1.04 (1.01 to 1.08)", "1.10 (1.02 to 1.13)", "-", "12%", "9%",
          "10 of 12, 2 near-tie")],
    ),
    "narrow": (("a", "b"), [("1", "2")]),
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("table", TABLES)
def test_no_table_breaks_a_word(
    table: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table as a terminal of this width shows it: within the width, and every word of it whole."""
    columns, rows = TABLES[table]
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.print_table(columns, rows)
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, map(str.rstrip, text.splitlines()))) <= width
    expected = {word for row in rows for cell in row for word in cell.split()}
    assert not expected - set(text.split())


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_shelf_fits_into_a_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert cli.main(["list", "--long"]) == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    # The longest name beside the longest words of a claim and a source takes more than 100 columns: a paragraph a row there.
    assert (lines[0].split()[-2:] == ["claim", "source"]) == (width > 100)
    assert max(map(len, map(str.rstrip, lines))) <= width
    words = set(" ".join(lines).split())
    for entry in map(stdlib.entry, stdlib.names()):
        assert not {*entry.name.split(), *entry.claim.split(), *entry.source.split()} - words


def completed(line: str, shell: str = "bash") -> list[str]:
    """What a shell is offered at the end of a line."""
    words = line.split(" ")
    bash = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    environment = {
        **os.environ,
        "_DECGRAPH_COMPLETE": f"complete_{shell}",
        **(bash if shell == "bash" else {"_TYPER_COMPLETE_ARGS": line}),
    }
    done = subprocess.run([COMMAND], env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert "Traceback" not in done.stderr, done.stderr
    return re.findall(r"[\w-]+", done.stdout) if shell == "zsh" else done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("decgraph ru", ["run"]),
        ("decgraph run specu", [name for name in stdlib.names() if name.startswith("specu")]),
        ("decgraph check eagle", [name for name in stdlib.names() if name.startswith("eagle")]),
        ("decgraph run speculative --top", ["--top-k", "--top-p"]),
        ("decgraph compile speculative --em", ["--emit"]),
        ("decgraph zoo pa", ["path"]),
        ("decgraph run nosuch", []),
    ],
)
def test_shells_complete_verbs_algorithms_and_options(line: str, expected: list[str]) -> None:
    assert sorted(completed(line)) == sorted(expected)


def test_zsh_completes_as_bash_does() -> None:
    assert "speculative" in completed("decgraph run specul", "zsh")


def test_every_verb_that_takes_an_algorithm_completes_it() -> None:
    """By its parameter's name, so that a new verb is seen."""
    for verb in cli.verbs():
        module = importlib.import_module(f"decgraph.cli.{verb}")
        for name, parameter in inspect.signature(getattr(module, "command", lambda: None), eval_str=True).parameters.items():
            if name in ("algorithm", "algorithms"):
                (described,) = parameter.annotation.__metadata__
                assert described.autocompletion is completion.algorithms, verb


def test_python_can_be_asked_for_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "decgraph", "--version"], capture_output=True, text=True, check=True, timeout=SECONDS
    )
    assert done.stdout == "decgraph 0.1.0\n"
