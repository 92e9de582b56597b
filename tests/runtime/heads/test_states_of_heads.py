"""The states of heads on features as values: what a second head reads beside the distributions, with the token before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from lib.models import published_heads as heads
from lib.models.published_heads import WIDTH, written
from torch import Tensor, nn

import decgraph
from decgraph.runtime.models import hf
from decgraph.runtime.models.hf_causal import HFCausal

PROGRAM = """algorithm confident(target: causal, head: features(target), sure: head(head) -> prob, eta: prob = 0.5):
    refines autoregressive(target) in tokens
    while not done:
        m = target.memory(ctx.parent)
        draft t:
            repeat 3:
                break if any(sure(head.states(t.leaves, given = m), token = t.token[t.leaves]) < eta)
                grow topk(head(t.leaves, given = m).raw, 1)
        verify t by match against target(t)
        commit t.accepted
"""

KINDS: dict[str, Any] = {
    "eagle1": heads.eagle1,
    "eagle3": lambda: heads.eagle3(reads=[0, 2, 4]),
    "dflash": lambda: heads.dflash(reads=[0, 2]),
}


class Confidence(nn.Module):
    """Reads a state and the embedding of the token before it; notes what it was asked, also of copies that are made of it."""

    asked: ClassVar[list[tuple[Tensor, Tensor]]] = []

    def __init__(self, vocab: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.before, self.out = nn.Embedding(vocab, 4), nn.Linear(WIDTH + 4, 1)

    def forward(self, states: Tensor, tokens: Tensor) -> Tensor:
        self.asked.append((states, tokens))
        made: Tensor = self.out(torch.cat((states, self.before(tokens)), -1))
        return made


@pytest.mark.parametrize("name", KINDS)
def test_scores_are_made_of_the_states(name: str, target: HFCausal, tmp_path: Path) -> None:
    """Read out, the state at a path is the distribution there; on a memory, and below several drafted tokens."""
    head: Any = hf.load_features(written(tmp_path / name, *KINDS[name]()), target)
    path, memory = (1, 5, 9, 11, 3, 7), target.memory((1, 5, 9))
    states = head.states(path, memory)
    assert sorted(states) == [3, 4, 5]
    for i, state in states.items():
        (row,) = head.eval([path[: i + 1]], memory)
        np.testing.assert_allclose(head.read_state(np.asarray(state)).logits, row.logits, atol=1e-4)


@pytest.mark.parametrize("name", ["eagle1", "dflash"])
def test_a_second_head_reads_state_and_token(name: str, target: HFCausal, tmp_path: Path) -> None:
    """The reference and torch ask it the same, the drafts end by it, and the tokens are the target's."""
    folder, found = written(tmp_path / name, *KINDS[name]()), {}
    for backend in ("reference", "torch"):
        sure = Confidence(target.vocab.size)
        sure.asked.clear()
        done = decgraph.parse(PROGRAM).run(
            [1, 5, 9], models={"target": target, "head": folder, "sure": sure}, backend=backend, max_tokens=8, temperature=0
        )
        assert done.error is None
        found[backend] = (done.tokens, torch.cat([t for _, t in sure.asked]), torch.cat([s for s, _ in sure.asked]))
    plain = decgraph.load("autoregressive").run([1, 5, 9], models={"target": target}, max_tokens=8, temperature=0)
    (a, tokens, states), (b, tokens_, states_) = found.values()
    assert a == b == plain.tokens and tokens.tolist() == tokens_.tolist() and len(tokens) > 3
    torch.testing.assert_close(states, states_, atol=1e-4, rtol=1e-3)


def test_what_has_no_state_to_read_says_so(target: HFCausal, tmp_path: Path) -> None:
    folder = written(tmp_path / "redrafter", *heads.redrafter())
    with pytest.raises(decgraph.DecError, match="no state that it could give"):
        models = {"target": target, "head": folder, "sure": Confidence(target.vocab.size)}
        done = decgraph.parse(PROGRAM).run([1, 5, 9], models=models, max_tokens=4, temperature=0)
        raise done.error or AssertionError("it ran")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("sure(t.leaves)", "sure(head.states"),
        ("sure(head.states(t.leaves))", "given = target.memory"),
        ("sure(head.states(t.leaves, given = m), token = 1)", "beside each hidden state"),
        ("sure(target.states(t.leaves))", "states"),
    ],
)
def test_what_is_no_state_of_a_head(wrong: str, said: str) -> None:
    right = "sure(head.states(t.leaves, given = m), token = t.token[t.leaves])"
    with pytest.raises(decgraph.DecError) as caught:
        decgraph.parse(PROGRAM.replace(right, wrong))
    assert said in str(caught.value)
