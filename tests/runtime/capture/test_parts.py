"""Parts of a captured forward: exits, states between layers, starts from states, compiled ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.capture.compiled import compiled
from decgraph.runtime.models.capture.make import capture, captured_program
from decgraph.runtime.models.capture.step import CapturedForward


def close(mine: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5 * float(theirs.abs().max()))


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox", "opt", "gemma3_text"])
def test_states_exits_and_starts(name: str, random_model: Callable[..., Any]) -> None:
    model = random_model(name)
    program, runs = captured_program(model)
    step = CapturedForward(program)
    for run in runs:
        ids, *rest = run.before.copy().inputs()
        last, states = step.tapped(0, 2, 3)(ids, *rest)
        close(last, run.recording.outputs)
        for got, layer in zip(states, (0, 2, 3)):
            close(got, run.recording.states[layer])
        for layer in (1, 2):
            low = run.before.copy()
            close(step.upto(layer)(*low.inputs()), run.recording.states[layer])
            for i in range(3):  # layers that did not run wrote nothing
                close(low.keys[i], (run.after if i < layer else run.before).keys[i])
            close(step.upto(layer, norm=True)(*run.before.copy().inputs()), norm_of(model)(run.recording.states[layer]))
        for layer in (0, 1, 2):
            high = run.before.copy()
            close(step.since(layer)(run.recording.states[layer], *high.inputs()[1:]), run.recording.outputs)
            for i in range(3):
                close(high.values[i], (run.after if i >= layer else run.before).values[i])
        middle = step.since(1).upto(2)
        close(middle(run.recording.states[1], *run.before.copy().inputs()[1:]), run.recording.states[2])


def norm_of(model: Any) -> Callable[[Tensor], Tensor]:
    base = model.base_model
    for path in ("norm", "ln_f", "final_layer_norm", "decoder.final_layer_norm"):
        found = base
        for part in path.split("."):
            found = getattr(found, part, None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    raise AssertionError(type(base))


def test_parts_are_made_once(random_model: Callable[..., Any]) -> None:
    step = capture(random_model("llama"))
    assert step is not None and step.upto(1) is step.upto(1) and step.since(1).upto(2) is step.upto(2).since(1)
    assert step.layers == 3 and step.kinds == ("full_attention",) * 3 and step.windows == (None,) * 3


def test_parts_that_do_not_exist(random_model: Callable[..., Any]) -> None:
    step = capture(random_model("llama"))
    assert step is not None
    for wrong in (lambda: step.upto(4), lambda: step.since(-2), lambda: step.since(2).upto(1), lambda: step.since(1).tapped(0)):
        with pytest.raises(DecError, match="layers"):
            wrong()


def test_compiled_gives_the_same(random_model: Callable[..., Any]) -> None:
    program, runs = captured_program(random_model("llama"))
    step, said = CapturedForward(program), list[str]()
    fast = compiled(step, backend="eager", notice=said.append)
    close(fast(*runs[0].before.copy().inputs()), runs[0].recording.outputs)
    close(fast.upto(1)(*runs[0].before.copy().inputs()), runs[0].recording.states[1])
    assert not said


@pytest.mark.nightly
def test_compiled_by_inductor(random_model: Callable[..., Any]) -> None:
    program, runs = captured_program(random_model("gemma3_text"))
    fast = compiled(CapturedForward(program))
    for run in runs:
        close(fast(*run.before.copy().inputs()), run.recording.outputs)


def test_without_a_compiler_the_step_runs_as_it_is(random_model: Callable[..., Any]) -> None:
    def missing(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no C++ compiler")

    program, runs = captured_program(random_model("llama"))
    said = list[str]()
    fast = compiled(CapturedForward(program), backend=missing, notice=said.append)  # type: ignore[arg-type]
    for _ in range(2):
        close(fast(*runs[0].before.copy().inputs()), runs[0].recording.outputs)
    assert len(said) == 1 and "no C++ compiler" in said[0]
