"""What a request asks for and a program never reads is refused at every door; what it reads changes the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decgraph
from decgraph import stdlib
from decgraph.backends.registry import machine
from decgraph.check.validation import outside
from decgraph.check.worlds import models_for, params_for
from decgraph.cli.main import main
from decgraph.errors import DecError
from decgraph.runtime.refused import ADJUSTING, unread
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

V = 8


def tokens(name: str, **asked: Any) -> tuple[int, ...]:
    algorithm = decgraph.load(name)
    f = algorithm.function
    externs = outside(algorithm.module)["externs"]
    s = Session(
        algorithm.module, models_for(f, V, 1, free=True), params_for(f, 1), machine=machine("reference"), externs=externs
    )
    return s.run(Request(prompt=(6, 7), max_tokens=6, temperature=0, **asked)).tokens


ASKED: dict[str, Any] = {
    "top_k": 3,
    "top_p": 0.5,
    "min_p": 0.1,
    "repetition_penalty": 1.3,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "bias": {5: 40.0},
    "processors": (lambda path, scores: np.where(np.arange(len(scores)) == 5, scores + 40, scores),),
}
BEAMS = ("beam", "beam_patience", "constrained_beam", "diverse_beam", "poisson_beam")


@pytest.mark.parametrize("name", ["autoregressive", "speculative", "llada", *BEAMS])
@pytest.mark.parametrize("field", ["bias", "processors"])
def test_what_is_read_changes_the_text(name: str, field: str) -> None:
    plain, biased = tokens(name), tokens(name, **{field: ASKED[field]})
    assert plain != biased
    assert name == "constrained_beam" or set(biased) == {5}  # its words occur, whatever the scores


@pytest.mark.budget(12)
@pytest.mark.parametrize("field", ASKED)
@pytest.mark.parametrize("name", ["best_first_beam", "mirostat", "entropy_renoise", "pc_sampler", "saber", *BEAMS])
def test_what_is_not_read_is_refused(name: str, field: str) -> None:
    if name in BEAMS and field in ADJUSTING:
        assert len(tokens(name, **{field: ASKED[field]}))
        return
    with pytest.raises(DecError, match=f"{name} reads .*: {field} would change nothing"):
        tokens(name, **{field: ASKED[field]})


def test_it_is_a_minority_that_does() -> None:
    found = {name for name in stdlib.names() if unread(decgraph.load(name).function)}
    assert {"mirostat", "entropy_renoise", *BEAMS} <= found and len(found) < 32
    assert found.isdisjoint({"autoregressive", "eagle2", "static_masked", "fast_dllm", "cfg", "contrastive_decoding"})
    for name in found:  # passes put ops in segments, which read nothing themselves
        algorithm = decgraph.load(name)
        assert unread(algorithm.optimised().functions[name]) == unread(algorithm.function), name


def test_the_message_names_all_that_was_asked() -> None:
    with pytest.raises(DecError) as told:
        tokens("best_first_beam", top_k=3, repetition_penalty=1.2)
    assert (
        "best_first_beam reads unshaped distributions (.raw, .logits): repetition_penalty, top_k would change nothing"
        in str(told.value)
    )


@pytest.mark.parametrize("verb", ["run", "map"])
def test_the_command_line_refuses(verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    prompts, out = tmp_path / "prompts.txt", tmp_path / "out.jsonl"
    prompts.write_text("a\n")
    given = ["best_first_beam", "--prompt", "a"] if verb == "run" else [str(prompts), "-a", "best_first_beam", "-o", str(out)]
    assert main([verb, *given, "--max-tokens", "2", "--repetition-penalty", "1.3"]) == 1
    assert "repetition_penalty would change nothing" in capsys.readouterr().err
    assert not out.exists()
