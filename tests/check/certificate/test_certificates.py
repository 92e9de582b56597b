"""The certificates of what is derived are accepted by a checker that shares nothing with the prover but the IR's reader."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph import stdlib
from decgraph.check.certificate import Refused, check, verify
from decgraph.check.certificate.__main__ import main
from decgraph.check.proof.certificates import certificates
from decgraph.ir.text import print_module

OF_CANVASES = "no rule for claims of this kind yet"
"""What the checker says of claims about schedules of canvases, which are not written into certificates."""
NOT_FOLLOWED = {
    # Lengths of texts, numbers that loops carry, Jacobi iteration, draws of a step before, races, levels, lists, `and`, what is
    # known of numbers where the evidence gives a token no mass.
    "cache_augmentation: refines autoregressive(target) in tokens when latents == 0",
    "contrastive_decoding: refines autoregressive(target) in tokens when alpha == 0 and weight == 0",
    "depth_decay: refines autoregressive(target) in tokens when alpha == 1",
    "direct_multi_token: refines autoregressive(target) in tokens when horizon == 1",
    "dyspec: refines autoregressive(target) in distribution",
    "ffn_skip: refines autoregressive(target) in tokens when skips == 0",
    "first_router: refines autoregressive(target) in tokens when tau == 0",
    "free: refines autoregressive(target) in tokens when tau == 1",
    "generalized_aggressive: refines autoregressive(target) in tokens when beta == 1",
    "gs_jacobi: refines autoregressive(target) in tokens",
    "jacobi: refines autoregressive(target) in tokens",
    "judge_decoding: refines autoregressive(target) in tokens when tau == 1",
    "kv_frequency: refines autoregressive(target) in tokens when capacity >= len(prompt) + room",
    "kv_quantized: refines autoregressive(target) in tokens when residual >= len(prompt) + room",
    "kv_sparse_read: refines autoregressive(target) in tokens when heavy >= len(prompt) + room",
    "lexical_unit: refines autoregressive(target) in tokens when alpha == 1",
    "lookahead_reasoning: refines autoregressive(target) in distribution when depth == 0",
    "parallel_context: refines autoregressive(target) in tokens when shared + question >= len(prompt)",
    "relaxed_acceptance: refines autoregressive(target) in tokens when k == 1",
    "repetition_aware: refines autoregressive(target) in tokens when mass == 1 and most == 1",
    "rsd_s: refines autoregressive(target) in distribution",
    "sequoia: refines autoregressive(target) in distribution",
    "spec_rl: keeps support of target",
    "speculative_jacobi: refines autoregressive(target) in distribution",
    "static_masked: keeps support of model",
    "tr_jacobi: refines autoregressive(target) in tokens",
    "uscd: refines autoregressive(target) in tokens when weight == 0 and least == 0",
}
"""Derived claims whose certificates the checker has no rules for; a rule that is added takes its claims out of the list."""


@cache
def written(name: str) -> dict[str, Any]:
    return json.loads(json.dumps(certificates(decgraph.load(name).module)[0]))  # type: ignore[no-any-return]


@pytest.mark.quick("speculative", "autoregressive", "prompt_lookup", "cfg", "dyspec", "traversal", "a_star")
@pytest.mark.parametrize("name", stdlib.names())
def test_certificates_of_stdlib_are_accepted(name: str) -> None:
    module = decgraph.load(name).module
    for one in written(name)["certificates"]:
        if f"{name}: {one['claim']}" in NOT_FOLLOWED or one["mode"] in ("scheduled", "same", "spends"):
            with pytest.raises(Refused, match=None if one["mode"] in ("own", "drawn", "inside") else OF_CANVASES):
                check(module, one)
        else:
            check(module, one)


@pytest.mark.parametrize("words", [["stdlib/speculative.dec"], ["printed"]])
def test_the_checker_is_a_command_of_its_own(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, program = tmp_path / "proof.json", Path("stdlib/speculative.dec")
    certificate.write_text(json.dumps(written("speculative")))
    if words == ["printed"]:
        program = tmp_path / "speculative.ir"
        program.write_text(print_module(decgraph.load("speculative").module))
    assert main([str(program), str(certificate)]) == 0
    assert "accepted  speculative: refines autoregressive(target) in distribution (premises: errors)" in capsys.readouterr().out
    assert main(["stdlib/mcsd.dec", str(certificate)]) == 1
    assert "another program" in capsys.readouterr().out
    assert main([str(program), str(tmp_path / "nothing.json")]) == 2


@pytest.mark.parametrize("data", [None, [], {}, {"certificates": []}, {"certificates": [1]}, {"certificates": [{"format": 1}]}])
def test_what_is_no_certificate_is_refused(data: Any) -> None:
    lines, well = verify(decgraph.load("speculative").module, data)
    assert not well and lines[0].startswith("refused")


def test_an_older_or_newer_format_is_refused() -> None:
    lines, well = verify(
        decgraph.load("speculative").module, {"certificates": [{**written("speculative")["certificates"][0], "format": 2}]}
    )
    assert not well and "format 2" in lines[0]
