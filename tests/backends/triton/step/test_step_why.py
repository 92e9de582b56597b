"""Which programs run as steps, and what their steps need; which do not, and why."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import shelf
from step_runs import CANVASES, STATIC, Runs, V, optimised, parameters, tables

from decgraph.backends.triton.step.distributions import Shape
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.backends.triton.step.why import static_reason
from decgraph.check.worlds import models_for
from decgraph.cli.main import main
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request


def reason(name: str, request: Request | None = None) -> str | None:
    module = optimised(name)
    known: dict[str, Any] = {**shelf.tables(), **tables(1)}
    models = {p.name: known[p.name] for p in module.entry.params if p.value.type.elem == "model"}
    return static_reason(module, module.main, request, models, parameters(name))


@pytest.mark.budget(50)
@pytest.mark.quick("medusa", "dola", "dyspec", "hydra", "jakiro", "fast_dllm", "eagle2", "bregman_topk", "constrained_beam")
@pytest.mark.parametrize("name", shelf.SHELF)
def test_every_program_says_in_words_why_it_is_in_eager_mode(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As `decgraph compile` prints it; with small parameters and five tokens too. What is raised and is no declared refusal is
    an error of this test."""
    assert main(["compile", name, "--emit", "triton", "--json"]) == 0
    why = json.loads(capsys.readouterr().out)["step"]
    assert (why is None) == (name in STATIC or name in CANVASES), why
    entry = optimised(name).entry
    if any(str(p.value.type.of[0]) == "masked" for p in entry.params if p.value.type.elem == "model"):
        small = why
    else:
        models = models_for(entry, V, 1)
        small = static_reason(optimised(name), optimised(name).main, None, models, parameters(name))
    for said in (why, small):
        assert said is None or not re.search(r"Error|object|numpy|NoneType|<class|\bmeta\b|coordinates|argument", said), said


def test_reasons_say_where() -> None:
    assert "the request's pad (stdlib/gs_jacobi.dec" in str(reason("gs_jacobi"))
    assert "the state `t`" in str(reason("pearl"))
    assert "fills canvases" in str(reason("llada"))
    assert "derived from another" in str(reason("kangaroo"))
    assert "races of a greedy request" in str(reason("rsd_s", Request(prompt=(0,), temperature=0)))


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"repetition_penalty": 1.1}, "penalties"),
        ({"frequency_penalty": 0.1}, "penalties"),
        ({"stop": ("a",)}, "stop strings"),
        ({"allow": lambda path: range(V)}, "an automaton"),
        ({"until": (lambda path: False,)}, "until"),
        ({"processors": (lambda path, logits: logits,)}, "processors"),
        ({"min_length": 2, "eos": {1}}, "a least length"),
    ],
)
def test_requests_that_a_step_does_not_shape(more: dict[str, Any], what: str) -> None:
    with pytest.raises(NotCapturable, match=what):
        Shape.of(Request(prompt=(0, 1), **more))


def test_pending_tokens_and_cells() -> None:
    """A drafter is one cell behind after a whole chain was accepted; a head makes the cells of all accepted tokens anew."""
    speculative = Runs("speculative", params=parameters("speculative", gamma=4)).needs(Shape())
    assert speculative.uncached == {"target": 1, "drafter": 2}
    assert speculative.tails == {"target": 5, "drafter": 5} and speculative.ahead == 5
    eagle = Runs("eagle2", params=parameters("eagle2", depth=3, k=2, budget=5)).needs(Shape())
    assert eagle.uncached == {"target": 1, "head": 4}
    assert eagle.tails == {"target": 6, "head": 4 + 2 * 2}
    recycling = Runs("token_recycling").needs(Shape())
    assert recycling.uncached == {"target": 1}


def test_more_choices_than_there_are_tokens() -> None:
    """An index that is outside is a reason: on the device it would read what is behind."""
    module = optimised("medusa")
    usual = {p.name: p.default for p in module.entry.params if p.value.type.elem != "model"}
    assert "the index 9 of 5 elements" in str(static_reason(module, module.main, None, {"target": tables(1)["target"]}, usual))


def test_a_model_without_heads() -> None:
    module = optimised("medusa_match")
    target = TableModel(V, 1, name="target", window=2)
    assert "no heads" in str(static_reason(module, module.main, None, {"target": target}, parameters("medusa_match")))
