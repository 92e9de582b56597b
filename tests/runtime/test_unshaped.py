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
from decgraph.cli.options import AlgorithmOptions, Models, OutputOptions, PromptOptions, RequestOptions
from decgraph.dsl.lower.module import SETTINGS
from decgraph.errors import DecError
from decgraph.runtime.keywords import keywords_of
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
@pytest.mark.parametrize("name", ["best_first_beam", "mirostat", "entropy_renoise", *BEAMS])
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
    assert main([verb, *given, "--max-tokens", "2", "--repetition-penalty", "1.3"]) == 2
    assert "repetition_penalty would change nothing" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("asked", [{"temperature": 0.7}, {"temperature": 100}, {"top_p": 0.5}])
def test_every_door_refuses_what_the_caller_said(asked: dict[str, Any]) -> None:
    """A temperature, too: mirostat draws from what it computes of the unshaped distribution, as at temperature 1."""
    algorithm = decgraph.load("mirostat")
    session = Session(algorithm.module, models_for(algorithm.function, V, 1, free=True), {}, machine=machine("reference"))
    (name,) = asked
    doors: list[Any] = [
        lambda: session.run((6, 7), max_tokens=2, **asked),
        lambda: list(session.stream((6, 7), max_tokens=2, **asked)),
        lambda: session.generate([(6, 7)], max_tokens=2, **asked),
        lambda: decgraph.run("mirostat", (6, 7), session.models, max_tokens=2, **asked),
    ]
    for door in doors:
        with pytest.raises(DecError, match=f"mirostat reads .*: {name} would change nothing"):
            door()
    for none in (0, 1):
        assert len(session.run((6, 7), max_tokens=2, temperature=none).tokens) == 2


def test_a_models_own_temperature_is_nobodys_request() -> None:
    """Sampling that generation settings ask for is left out where nothing reads it."""
    models = models_for(decgraph.load("mirostat").function, V, 1, free=True)
    next(iter(models.values())).generation = {"do_sample": True, "temperature": 0.6, "top_p": 0.9}
    assert len(decgraph.run("mirostat", (6, 7), models, max_tokens=2).tokens) == 2


def test_no_parameter_is_called_as_an_option_of_a_request_or_an_argument_of_a_session() -> None:
    options = {
        name
        for group in (RequestOptions, PromptOptions, Models, AlgorithmOptions, OutputOptions)
        for name in group.__dataclass_fields__
    }
    options = {name.rstrip("_") for name in options} - {"model", "drafter"}
    arguments = set(keywords_of(decgraph.Algorithm.session)) - {"params"}
    assert options | arguments <= SETTINGS


HEATED = """algorithm heated(target: causal, temperature: float = 0.7):
    while not done:
        x ~ softmax(target(ctx).logits / temperature)
        commit x
"""


def test_a_parameter_that_a_setting_would_hide_is_refused_with_its_place(tmp_path: Path) -> None:
    """`--temperature 100` was the request's, which the program does not read, and said nothing."""
    file = tmp_path / "heated.dec"
    file.write_text(HEATED)
    doors: list[Any] = [
        lambda: decgraph.load(file).run("def", temperature=100.0),
        lambda: decgraph.load(file).session(),
        lambda: decgraph.load(file).check(),
        lambda: decgraph.check(str(file)),
        lambda: decgraph.hf(str(file)),
    ]
    for door in doors:
        with pytest.raises(DecError, match=r"heated\.dec:1:34\n.*\n.*\^") as told:
            door()
        assert told.value.codes == ("E360",) or list(told.value.codes) == ["E360"]
    for verb in (
        ["run", str(file), "--temperature", "100"],
        ["explain", str(file)],
        ["compile", str(file)],
        ["check", str(file)],
    ):
        assert main(verb) == 2
