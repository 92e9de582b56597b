"""A model that is not there is refused in a second: nothing of torch is imported to say so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lib.waiting import SECONDS

RUN = """
import sys
from decgraph.cli.main import main
code = main(sys.argv[1:])
print("torch" in sys.modules, file=sys.stdout)
sys.exit(code)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "autoregressive", "--prompt", "a", "--model", "{none}"],
        ["trace", "autoregressive", "--prompt", "a", "--model", "target={none}"],
        ["map", "{prompts}", "--algorithm", "autoregressive", "--out", "{out}", "--model", "{none}"],
        ["profile", "autoregressive", "--prompt", "a", "--model", "{none}"],
        ["serve", "--port", "0", "--model", "{none}"],
        ["serve", "--port", "0", "--drafter", "{none}"],
    ],
    ids=lambda a: " ".join(a[:1] + [one for one in a if one in ("--drafter",)]),
)
def test_before_torch(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "a"}\n', encoding="utf-8")
    places = {"none": tmp_path / "none", "prompts": tmp_path / "prompts.jsonl", "out": tmp_path / "out.jsonl"}
    said = subprocess.run(
        [sys.executable, "-c", RUN, *(one.format_map(places) for one in arguments)],
        capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert said.returncode == 2, said
    assert f"{tmp_path / 'none'} is not a folder with a model in it" in said.stderr and "try: " in said.stderr, said.stderr
    assert said.stdout.strip() == "False", said.stdout


def test_what_is_nearly_a_name() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "decgraph", "run", "autoregressive", "--prompt", "a", "--model", "smollm"],
        capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert said.returncode == 2 and "did you mean smollm2?" in said.stderr, said.stderr
