"""What a weakened kernel derives of a false claim has a certificate that the checker refuses: it is a second reading."""

from __future__ import annotations

import json

import pytest
from proof.test_kernel_mutants import MUTANTS, programs
from proof.test_memories import PROGRAMS, text

import decgraph
from decgraph.check.certificate import Refused, check
from decgraph.check.proof import derive
from decgraph.check.proof.certificates import certificate
from decgraph.check.proof.claims import Open, prove
from decgraph.check.proof.environment import Environment
from decgraph.ir.facts import NONE
from decgraph.ir.values import Module


@pytest.fixture(scope="module")
def wrong() -> dict[str, Module]:
    return programs()


@pytest.mark.quick(first=8)
@pytest.mark.parametrize("name", MUTANTS)
def test_certificates_of_false_claims_are_refused(name: str, wrong: dict[str, Module], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive, "errors", lambda kernel: [])
    change, program = MUTANTS[name]
    change(monkeypatch)
    made = []
    for claim in wrong[program].entry.claims:
        found = prove(wrong[program], claim)
        if not isinstance(found, Open):
            made.append(json.loads(json.dumps(certificate(wrong[program], claim, found))))
    monkeypatch.undo()
    assert made
    for one in made:
        with pytest.raises(Refused):
            check(wrong[program], one)


def test_without_a_mutant_the_same_certificates_are_of_true_claims() -> None:
    """A checker that refuses everything would pass the test above."""
    module = decgraph.load("speculative").module
    (claim,) = module.entry.claims
    found = prove(module, claim)
    assert not isinstance(found, Open)
    check(module, json.loads(json.dumps(certificate(module, claim, found))))


@pytest.mark.quick(first=2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_memories_tell_the_checker_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel for which memories tell of nothing derives what is wrong where others have written them (decision 0016)."""
    module = decgraph.parse(text(name, own=False)).module
    (claim,) = module.entry.claims
    monkeypatch.setattr(derive, "errors", lambda kernel: [])
    monkeypatch.setattr(Environment, "remembered", lambda self, name: NONE)
    found = prove(module, claim)
    assert not isinstance(found, Open)
    made = json.loads(json.dumps(certificate(module, claim, found)))
    monkeypatch.undo()
    with pytest.raises(Refused):
        check(module, made)
