"""What TAB offers: in a real bash, by shell, and how soon."""

from __future__ import annotations

import os
import pty
import re
import resource
import select
import subprocess
import sys
from pathlib import Path

import pytest
from lib.waiting import SECONDS, started, until

from decgraph import stdlib
from decgraph.cli import completion
from decgraph.dsl import syntax as S
from decgraph.dsl.parse import parse_text

COMMAND = str(Path(sys.executable).parent / "decgraph")


def test_a_real_bash_completes(tmp_path: Path) -> None:
    """Keys are typed into an interactive bash with typer's script, which `decgraph --install-completion` writes."""
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="decgraph", complete_var=completion.VARIABLE, shell="bash")
    (tmp_path / "complete.sh").write_text(script)
    master, slave = pty.openpty()
    environment = {**os.environ, "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}", "PS1": "", "TERM": "dumb",
                   "DECGRAPH_CACHE": str(tmp_path), "INPUTRC": "/dev/null"}  # fmt: skip
    seen = b""

    def shown(words: str) -> bool:
        nonlocal seen
        while select.select([master], [], [], 0.02)[0]:
            seen += os.read(master, 4096)
        return words.encode() in seen

    bash = ["bash", "--norc", "--noprofile", "-i"]
    with started(bash, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True) as shell:
        try:
            os.write(master, f"source {tmp_path}/complete.sh; echo rea''dy\n".encode())
            until("bash is ready", lambda: shown("ready"))
            for typed, rest in (
                ("decgraph run speculative --ga", "mma "),
                ("decgraph zoo fetch sm", "ollm2 "),
                ("decgraph run speculative --model drafter=dra", "fter "),
                ("decgraph che", "ck "),
            ):
                os.write(master, f"{typed}\t".encode())
                until(f"{typed} is completed", lambda wanted=typed + rest: shown(wanted), seconds=60)
                os.write(master, b"\x15")  # empties the line
        finally:
            shell.kill()
            os.close(slave)
            os.close(master)


def answered(shell: str, line: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What a shell is told at the end of a line."""
    words = line.split(" ")
    bash = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    asked = bash if shell == "bash" else {"_TYPER_COMPLETE_ARGS": line}
    environment = {**os.environ, completion.VARIABLE: f"complete_{shell}", **asked, **more}
    return subprocess.run([COMMAND], env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)


def test_zsh_and_fish_are_told_with_help() -> None:
    line = "decgraph run eagle2 --bud"
    assert answered("zsh", line).stdout.startswith("""_arguments '*: :(("--budget":"int in 1..256 = 59"))'""")
    assert answered("zsh", "decgraph run nosuch --zzz").stdout == "_files\n"
    fish = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert answered("fish", line, **fish).stdout == "--budget\tint in 1..256 = 59\n"
    asks = {"_TYPER_COMPLETE_FISH_ACTION": "is-args"}
    assert answered("fish", line, **asks).returncode == 0 and answered("fish", "decgraph run x --zz", **asks).returncode == 1


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("decgraph run mcts --extern ", ["demo:reward"]),
        ("decgraph run speculative --set ", ["gamma=4"]),
        ("decgraph run eagle2 --model hea", ["head=eagle", "head=target"]),
        ("decgraph run speculative --dtype b", ["bfloat16"]),
        ("decgraph list --family he", ["heads"]),
        ("decgraph map x.jsonl -a eagle2 --bu", ["--budget"]),
    ],
)
def test_values_are_offered(line: str, offers: list[str]) -> None:
    words, current = line.split(" ")[1:-1], line.split(" ")[-1]
    found = [word for word, _ in completion.offered(words, current)]
    assert set(offers) <= set(found) and all(word.startswith(current) for word in found)


def test_an_answer_takes_less_than_a_fifth_of_a_second() -> None:
    """Of processor time, with the index in the cache; without torch, typer, and a parse of the library."""
    seconds = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert answered("bash", "decgraph run speculative --ga").stdout == "--gamma\n"
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.2


def test_the_index_follows_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path))
    made: list[int] = []
    described = completion.described
    monkeypatch.setattr(completion, "described", lambda: made.append(1) or described())
    assert completion.index() == completion.index() and len(made) == 1
    copy = tmp_path / "cli"
    copy.mkdir()
    (copy / "run.py").write_text("changed")
    monkeypatch.setattr(completion, "HERE", copy)
    completion.index()
    assert len(made) == 2


def test_parameters_are_those_of_the_parser() -> None:
    """The quick reading of a signature, against the parser, for the whole library."""
    for name in stdlib.names():
        item = parse_text(stdlib.text(name)).named(name)
        assert isinstance(item, S.Algorithm)
        found = completion.parameters(stdlib.path(name))
        assert list(found) == [p.name for p in item.params], name
        models = [p.name for p in item.params if p.type is not None and p.type.name in stdlib.KINDS]
        assert [one for one, kind in found.items() if completion.is_model(kind)] == models, name
        assert all(re.match(r"\w", kind) for kind in found.values()), name
