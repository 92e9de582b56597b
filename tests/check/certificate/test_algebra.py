"""The checker's algebra of lossless rules and the function `accepts` of proof/Accepts.v, which Coq proves right, agree."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from lib.repository import ROOT
from lib.waiting import SECONDS

from decgraph.check.certificate import Refused
from decgraph.check.certificate.verification import Lossless
from decgraph.dsl.lower import load_text

TEXT = '''algorithm drafts(target: causal, drafter: causal):
    """One draft, verified by a rule of its own."""
    while not done:
        draft t:
            x ~ drafter(t.leaves)
            grow x
        verify t by judged against target(t)
        commit t.accepted


rule judged(p: dist, children: draws):
    """Accepts with a chance; else something is owed."""
    for x in children:
        if bernoulli({chance}):
            accept x
        p = {owed}
    y ~ p
    emit y
'''
P, Q, COIN = "Target", "Draft", "Divide (At Target) (At Draft)"
RULES = [  # chance and row of the rule; the same in Coq; whether it is lossless
    ("p[x] / x.law[x]", "normalize(relu(p - x.law))", COIN, f"Normalize (Relu (Sub {P} {Q}))", True),
    ("min(1, p[x] / x.law[x])", "normalize(relu(p - x.law))", f"MinOne ({COIN})", f"Normalize (Relu (Sub {P} {Q}))", True),
    ("p[x] / x.law[x]", "normalize(p - min(p, x.law))", COIN, f"Normalize (Sub {P} (Min {P} {Q}))", True),
    (
        "0.5 * p[x] / x.law[x]",
        "normalize(p - min(0.5 * p, x.law))",
        "Divide (At (Mul (1 / 2%:R) Target)) (At Draft)",
        f"Normalize (Sub {P} (Min (Mul (1 / 2%:R) {P}) {Q}))",
        True,
    ),
    (
        "p[x] / x.law[x]",
        "normalize(relu(2 * p - 2 * x.law))",
        COIN,
        f"Normalize (Relu (Sub (Mul 2%:R {P}) (Mul 2%:R {Q})))",
        True,
    ),
    ("p[x] / x.law[x]", "normalize(p)", COIN, f"Normalize {P}", False),
    ("p[x] / x.law[x]", "normalize(relu(x.law - p))", COIN, f"Normalize (Relu (Sub {Q} {P}))", False),
    ("p[x] / x.law[x]", "normalize(p - x.law)", COIN, f"Normalize (Sub {P} {Q})", False),
    ("p[x] / x.law[x]", "normalize(p + x.law)", COIN, f"Normalize (Add {P} {Q})", False),
    ("2 * p[x] / x.law[x]", "normalize(relu(p - x.law))", f"Mul 2%:R ({COIN})", f"Normalize (Relu (Sub {P} {Q}))", False),
    (
        "x.law[x] / p[x]",
        "normalize(relu(p - x.law))",
        "Divide (At Draft) (At Target)",
        f"Normalize (Relu (Sub {P} {Q}))",
        False,
    ),
]


def accepts(chance: str, owed: str) -> bool:
    """What the checker says of the rule, as the language has it."""
    function = load_text(TEXT.format(chance=chance, owed=owed)).entry
    (walk,) = (op for op in function.body.walk() if op.opcode == "tree.walk")
    nothing = SimpleNamespace(constants={}, numbers=SimpleNamespace(range=lambda v: (float("-inf"), float("inf"))))
    try:
        Lossless(nothing, walk).judge()
    except Refused:
        return False
    return True


@pytest.mark.parametrize(("chance", "owed", "lossless"), [(a, b, e) for a, b, _, _, e in RULES])
def test_the_checker_accepts_what_is_lossless(chance: str, owed: str, lossless: bool) -> None:
    assert accepts(chance, owed) is lossless


@pytest.mark.budget()
@pytest.mark.slow
def test_so_does_the_function_that_coq_proves_right(tmp_path: Path) -> None:
    if shutil.which("coqc") is None:
        pytest.skip("Coq is not installed")
    made = subprocess.run(["make", "proof"], cwd=ROOT, capture_output=True, text=True, timeout=10 * SECONDS)
    assert made.returncode == 0, made.stdout + made.stderr
    terms = "; ".join(f"Toss 0 ({coin}) Accept (GoOn ({row}))" for _, _, coin, row, _ in RULES)
    (tmp_path / "Asked.v").write_text(
        "From mathcomp Require Import all_ssreflect all_algebra.\nFrom Decoding Require Import Accepts.\n"
        f"Import GRing.Theory.\nLocal Open Scope ring_scope.\nCompute map accepts [:: {terms}].\n",
        encoding="utf-8",
    )
    words = ["coqc", "-Q", str(ROOT / "build" / "proof"), "Decoding", "-w", "-all", "Asked.v"]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    assert re.findall(r"true|false", said) == [str(lossless).lower() for *_, lossless in RULES]
