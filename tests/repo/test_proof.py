"""The theorems of proof/: those that docs/proof.md names are proved, nothing is assumed, and Coq says so where it is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lib.repository import ROOT
from lib.waiting import SECONDS

FILES = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "proof").glob("*.v"))}
STATED = re.compile(r"^(?:Theorem|Lemma|Corollary) (\w+)", re.M)
ASSUMED = re.compile(r"\b(?:Admitted|admit|give_up|Axioms?|Parameters?|Conjecture|Abort)\b")
CLOSED = "Closed under the global context"


def code(text: str) -> str:
    """A file without its comments."""
    return re.sub(r"\(\*.*?\*\)", "", text, flags=re.S)


def named() -> list[tuple[str, str]]:
    """(theorem, file) of the tables of docs/proof.md; of a row with two files a theorem stands in one of them."""
    page = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|[^|]*\|([^|]*)\|[^|]*\|((?: `\w+\.v`,?)+) \|", page, re.M)
    sentences = re.findall(r"`(\w+_(?:lossy|lossless))`", page)
    return [(name, files) for names, files in rows for name in re.findall(r"`(\w+)`", names)] + [
        (name, "") for name in sentences
    ]


def proved() -> dict[str, str]:
    """The file of each theorem."""
    return {name: file for file, text in FILES.items() for name in STATED.findall(code(text))}


def compiled(folder: Path, text: str) -> str:
    """What Coq says of a file beside the compiled theorems."""
    (folder / "Asked.v").write_text(text, encoding="utf-8")
    words = ["coqc", "-Q", str(ROOT / "build" / "proof"), "Decoding", "-w", "-all", "Asked.v"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True, timeout=SECONDS).stdout


def test_the_theorems_that_the_page_names_are_proved() -> None:
    there = proved()
    assert len(named()) > 40
    for name, files in named():
        assert name in there, f"{name}: nowhere in proof/"
        assert not files or f"`{there[name]}`" in files, f"{name} stands in {there[name]}"


def test_the_last_file_looks_at_each_of_them() -> None:
    looked_at = re.findall(r"^Print Assumptions (\w+)\.$", FILES["Check.v"], re.M)
    assert len(looked_at) == len(set(looked_at))
    assert {name for name, _ in named()} <= set(looked_at)


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_assumed(file: str) -> None:
    assert not ASSUMED.findall(code(FILES[file]))


def test_an_assumption_would_be_found() -> None:
    assert ASSUMED.findall(code("Lemma x : False. (* Admitted *) Admitted.")) == ["Admitted"]
    assert not ASSUMED.findall(code("Lemma x : True. (* no Axiom *) by []. Qed."))


def test_every_file_is_compiled() -> None:
    project = (ROOT / "proof" / "_CoqProject").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\w+\.v$", project, re.M)) == list(FILES)


def test_make_says_why_it_compiles_nothing(tmp_path: Path) -> None:
    """Without Coq: a notice; in CI, which installs it, an error, unless it could not be installed."""
    for program in ("bash", "make", "sh", "grep", "echo"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    asked = ["make", "--no-print-directory", "proof"]
    for more, code_, said in (
        ({}, 0, "skipped"),
        ({"CI": "true"}, 2, "not installed"),
        ({"CI": "true", "DECGRAPH_WITHOUT_COQ": "1"}, 0, "skipped"),
    ):
        ran = subprocess.run(
            asked, cwd=ROOT, env={"PATH": str(tmp_path), **more}, capture_output=True, text=True, timeout=SECONDS
        )
        assert (ran.returncode, said in ran.stdout) == (code_, True), (more, ran.stdout, ran.stderr)


@pytest.mark.budget()
@pytest.mark.slow
def test_no_theorem_rests_on_an_axiom(tmp_path: Path) -> None:
    if shutil.which("coqc") is None:
        if os.environ.get("CI") and not os.environ.get("DECGRAPH_WITHOUT_COQ"):
            pytest.fail("Coq is not installed")
        pytest.skip("Coq is not installed")
    made = subprocess.run(["make", "proof"], cwd=ROOT, capture_output=True, text=True, timeout=10 * SECONDS)
    assert made.returncode == 0, made.stdout + made.stderr
    said = compiled(tmp_path, FILES["Check.v"])
    assert said.splitlines() == [CLOSED] * FILES["Check.v"].count("Print Assumptions")
    wrong = "Axiom any : forall P : Prop, P.\nLemma wrong : 0 = 1. Proof. apply any. Qed.\nPrint Assumptions wrong.\n"
    said = compiled(tmp_path, wrong)
    assert CLOSED not in said and "any" in said
