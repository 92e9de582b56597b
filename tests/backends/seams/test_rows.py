"""One-call programs over rows of logits: tokens of `decgraph.run`, in batches that come and go, with draws thrown away."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from lib.devices.without_sync import nothing_read
from transformers import LlamaConfig, LlamaForCausalLM

import decgraph
from decgraph import DecError
from decgraph.backends.seams.fits import trial
from decgraph.backends.seams.rows import Rows
from decgraph.backends.seams.seam import carried

VOCAB = 97
OPEN = {
    "autoregressive": {},
    "bregman_topk": {},
    "dynamic_temperature": {},
    "frustratingly_simple": {},
    "mirostat": {"tau": (2.0, 5.0), "eta": (0.1, 0.3)},
    "mirostat_v1": {"tau": (2.0, 5.0), "eta": (0.1, 0.3)},
    "momentum": {},
    "repetition_aware": {},
    "top_n_sigma": {"n": (0.5, 1.0, 2.0)},
    "typical": {"mass": (0.5, 0.9)},
    "windowed_penalties": {},
    "xtc": {"chance": (0.2, 0.8), "threshold": (0.01, 0.05)},
}
"""Programs, and numbers that their requests set for themselves."""


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=VOCAB, num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3, **sizes)
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
def row(model: LlamaForCausalLM, text: list[int]) -> torch.Tensor:
    return model(torch.tensor([text])).logits[0, -1]


@dataclass
class Asked:
    prompt: list[int]
    fields: dict[str, Any]
    params: dict[str, float]
    length: int
    output: list[int] = field(default_factory=list)
    lost: bool = False


def asked(name: str, rng: random.Random, count: int) -> list[Asked]:
    """Requests of different settings, where the program reads any."""
    reads = not decgraph.load(name).function.name.startswith(RAW)
    shaping: list[dict[str, Any]] = [
        {"temperature": 1}, {"temperature": 0.7, "top_k": 20}, {"temperature": 1.3, "top_p": 0.9},
        {"temperature": 0}, {"temperature": 1, "repetition_penalty": 1.2, "min_p": 0.05},
    ]  # fmt: skip
    out = []
    for i in range(count):
        fields = shaping[i % len(shaping)] if reads else {"temperature": 1}
        prompt = [rng.randrange(VOCAB) for _ in range(rng.randrange(2, 9))]
        params = {k: rng.choice(v) for k, v in OPEN[name].items()}
        out.append(Asked(prompt, {"seed": 100 + i, "request_id": 3 * i, **fields}, params, rng.randrange(6, 20)))
    return out


RAW = ("bregman_topk", "mirostat", "frustratingly_simple", "momentum", "repetition_aware")


@pytest.mark.quick(("mirostat", "eager"), ("xtc", "recorded"))
@pytest.mark.parametrize("records", [False, True], ids=["eager", "recorded"])
@pytest.mark.parametrize("name", sorted(OPEN))
def test_tokens_are_those_of_a_run(name: str, records: bool, model: LlamaForCausalLM) -> None:
    """A batch that comes and goes, in any order, whose lanes and rows have nothing to do with each other; a fifth of the draws
    is thrown away, as those of a part of a prompt. Also where steps are recorded, as on a device."""
    rng = random.Random(3)
    rows = Rows(carried(decgraph.load(name).module), lanes=14, capacity=200, vocab=VOCAB, open=tuple(OPEN[name]))
    rows.records = records
    requests = asked(name, rng, 14)
    wait, live, free = list(requests), dict[int, Asked](), list(range(14))
    thrown = 0
    while wait or live:
        while wait and len(live) < 11:
            lane = free.pop(rng.randrange(len(free)))
            live[lane] = r = wait.pop(0)
            rows.enter(lane, r.prompt, settings=r.fields, params=r.params)
        order = rng.sample(sorted(live), rng.randrange(1, len(live) + 1))
        undo = torch.tensor([lane in live and live[lane].lost and lane in order for lane in range(14)])
        thrown += int(undo.sum())
        logits = torch.stack([row(model, live[lane].prompt + live[lane].output) for lane in order])
        tokens = rows.step(torch.tensor(order), logits, undo).tolist()
        assert not rows.failed(torch.tensor(order)).any()
        for lane, token in zip(order, tokens, strict=True):
            live[lane].lost = rng.random() < 0.2
            if not live[lane].lost:
                live[lane].output.append(token)
        for lane in order:
            if len(live[lane].output) == live[lane].length:
                free.append(lane)
                live.pop(lane)
    assert thrown > 5
    for r in requests:
        run = decgraph.run(
            name, models={"target": model}, prompt=r.prompt, max_tokens=r.length, eos=(), params=r.params, **r.fields
        )
        assert r.output == list(run.tokens)


@pytest.mark.quick("mirostat", "windowed_penalties")
@pytest.mark.parametrize("name", sorted(OPEN))
def test_nothing_is_read_back(name: str) -> None:
    """So a step does not wait for the device, and can be recorded."""
    rows = Rows(carried(decgraph.load(name).module), lanes=4, capacity=64, vocab=VOCAB, open=tuple(OPEN[name]))
    at, logits = torch.tensor([1, 0, 3]), torch.randn(3, VOCAB)
    for lane in range(4):
        rows.enter(lane, [3, 4, 5], settings={"seed": lane})
    rows.step(at, logits)
    for step in rows.lanes.steps.values():
        step.recording = True
    with nothing_read():
        rows.step(at, logits, torch.zeros(4, dtype=torch.bool))


def refused(rows: Rows, word: str, *given: dict[str, Any]) -> None:
    with pytest.raises(DecError, match=word):
        rows.check(*given)


def test_a_request_is_checked_by_the_program_s_own_rules() -> None:
    rows = Rows(carried(decgraph.load("mirostat").module), lanes=2, capacity=8, vocab=VOCAB, open=("tau",))
    refused(rows, "top_k would change nothing", {"top_k": 5})
    refused(rows, "no parameter `eta` of a request's own", {}, {"eta": 0.1})
    refused(rows, "must be in 0..20", {}, {"tau": 99.0})
    with pytest.raises(DecError, match="has states, which are not in the text"):
        rows.enter(0, [1, 2], [3])
    rows.check({"temperature": 1}, {"tau": 3.0})


def test_a_lane_without_a_token_to_draw_has_failed() -> None:
    rows = Rows(carried(decgraph.load("autoregressive").module), lanes=2, capacity=8, vocab=VOCAB)
    for lane in range(2):
        rows.enter(lane, [1])
    logits = torch.randn(2, VOCAB)
    logits[1] = -torch.inf
    rows.step(torch.tensor([0, 1]), logits)
    assert rows.failed(torch.tensor([0, 1])).tolist() == [False, True]


def test_two_commits_or_calls_in_a_step_are_refused_with_their_line() -> None:
    text = decgraph.load("autoregressive").text
    twice = text.rstrip() + "\n        y ~ target(ctx)\n        commit y\n"
    (found,) = trial(decgraph.parse(twice).module, {}, "rows").misfits
    assert "called again after a commit" in found.why
    assert found.line == 1 + next(n for n, line in enumerate(twice.splitlines()) if "y ~" in line)


def test_what_no_program_of_the_kind_can_do_is_refused_and_numbers_are_numbers() -> None:
    rows = Rows(carried(decgraph.load("mirostat").module), lanes=1, capacity=8, vocab=VOCAB, open=("tau",))
    refused(rows, "temperature 0 would not make it greedy", {"temperature": 0})
    for value in ("0.3", True, None):
        refused(rows, "must be a number", {}, {"tau": value})
    typical = Rows(carried(decgraph.load("typical").module), lanes=1, capacity=8, vocab=VOCAB, open=("mass",))
    refused(typical, r"`mass` is 1\.5; it must be in 0\.\.1", {}, {"mass": 1.5})
    typical.check({"temperature": 0}, {"mass": 0.5})
    likeliest = "algorithm likeliest(target: causal):\n    while not done:\n        commit argmax(target(ctx).raw)\n"
    Rows(decgraph.parse(likeliest).module, lanes=1, capacity=8, vocab=VOCAB).check({"temperature": 0})  # has no chance in it


def test_each_request_is_a_session_of_its_own(model: LlamaForCausalLM) -> None:
    """What a session remembers of one request is nothing to the next one, as in `decgraph serve`."""
    text = decgraph.load("mirostat").text.replace("per sequence", "per session")
    assert "per session" in text
    mine = decgraph.parse(text, path="mine.dec")
    rows = Rows(carried(mine.module), lanes=2, capacity=64, vocab=VOCAB)
    outputs = []
    for lane in (0, 0, 1):
        rows.enter(lane, [3, 4, 5], settings={"seed": 7})
        output: list[int] = []
        for _ in range(8):
            output += rows.step(torch.tensor([lane]), row(model, [3, 4, 5, *output])[None]).tolist()
        outputs.append(output)
    fields = {"models": {"target": model}, "prompt": [3, 4, 5], "max_tokens": 8, "eos": (), "seed": 7, "temperature": 1}
    assert outputs == [list(decgraph.run(mine, **fields).tokens)] * 3


AGAIN = """algorithm again(target: causal):
    while not done:
        p = target(ctx)
        if p.raw[ctx.token] > 0.5:
            commit ctx.token
        else:
            x ~ p as output
            commit x
"""


def test_a_text_that_outgrows_its_lane_fails_alone(model: LlamaForCausalLM) -> None:
    again = decgraph.parse(AGAIN, path="again.dec")
    rows = Rows(carried(again.module), lanes=3, capacity=6, vocab=VOCAB)
    with pytest.raises(DecError, match="a text of 7 tokens: there is room for 6"):
        rows.enter(0, [1] * 7)
    prompts = {0: [1, 2, 3, 4, 5], 1: [7], 2: [1] * 6}
    for lane, prompt in prompts.items():
        rows.enter(lane, prompt, settings={"seed": 3, "temperature": 1})
    at, output, failed = torch.tensor([0, 1, 2]), list[int](), []
    for _ in range(4):
        logits = torch.stack([row(model, prompts[0]), row(model, [7, *output]), row(model, prompts[2])])
        output.append(rows.step(at, logits).tolist()[1])
        failed.append(rows.failed(at).tolist())
    assert failed == [[False, False, True], *[[True, False, True]] * 3]
    fields = {"models": {"target": model}, "prompt": [7], "max_tokens": 4, "eos": (), "seed": 3, "temperature": 1}
    assert output == list(decgraph.run(again, **fields).tokens)
