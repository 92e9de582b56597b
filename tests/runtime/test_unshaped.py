"""Programs that read unshaped distributions alone say so where a request asks for a penalty: it would change nothing."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph import stdlib
from decgraph.backends.registry import machine
from decgraph.check.validation import outside
from decgraph.check.worlds import models_for, params_for
from decgraph.cli.main import main
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from decgraph.runtime.unshaped import reads_unshaped, without_effect

V = 8


def tokens(name: str, **asked: Any) -> tuple[int, ...]:
    algorithm = decgraph.load(name)
    f = algorithm.function
    externs = outside(algorithm.module)["externs"]
    s = Session(
        algorithm.module, models_for(f, V, 1, free=True), params_for(f, 1), machine=machine("reference"), externs=externs
    )
    return s.run(Request(prompt=(6, 7), limit=6, temperature=0, **asked)).tokens


@pytest.mark.parametrize(
    "name", ["autoregressive", "speculative", "beam", "lattice", "pc_sampler", "saber", "llada", "diverse_beam"]
)
def test_what_is_said_to_change_nothing_changes_nothing(name: str) -> None:
    plain, biased = tokens(name), tokens(name, bias=((5, 40.0),))
    if reads_unshaped(decgraph.load(name).function):
        assert plain == biased
    elif name != "diverse_beam":  # its groups hand distributions on, and nothing is said of those
        assert set(biased) == {5} and plain != biased


def test_it_is_a_minority_that_does() -> None:
    found = {name for name in stdlib.names() if reads_unshaped(decgraph.load(name).function)}
    assert {"beam", "mirostat", "entropy_renoise"} <= found
    assert found.isdisjoint({"autoregressive", "eagle2", "static_masked", "fast_dllm", "cfg", "contrastive_decoding"})
    for name in found:  # passes put ops in segments, which read nothing themselves
        assert reads_unshaped(decgraph.load(name).optimised().functions[name]), name


def test_the_note_names_what_was_asked() -> None:
    beam = decgraph.load("beam").function
    assert without_effect(beam, Request(prompt=(1,), limit=4, temperature=0)) == ""
    said = without_effect(beam, Request(prompt=(1,), limit=4, top_k=3, repetition_penalty=1.2))
    assert said == "beam reads unshaped distributions (.raw, .logits): top_k, repetition_penalty change nothing"
    speculative = decgraph.load("speculative").function
    assert without_effect(speculative, Request(prompt=(1,), limit=4, repetition_penalty=1.2)) == ""


def test_the_command_line_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "beam", "--prompt", "a", "--max-new", "2", "--repetition-penalty", "1.3", "--quiet"]) == 0
    assert (
        "note: beam reads unshaped distributions (.raw, .logits): repetition_penalty changes nothing" in capsys.readouterr().err
    )
