"""Drafts over texts are those of the reference interpreter; steps with a program's own verification give the tokens of
`decgraph.run`, with requests that come and go, in an engine that has keys and values of what it was asked about alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from lib.devices.without_sync import nothing_read
from transformers import LlamaConfig, LlamaForCausalLM

import decgraph
from decgraph.backends.seams.drafts import Asked, Drafts, NewTokens
from decgraph.backends.triton.support import NotSteppable
from decgraph.check.worlds import models_for
from decgraph.errors import DecError
from decgraph.runtime import trace
from decgraph.runtime.request import Request

VOCAB, CAPACITY = 61, 200
CHAINS = ("anpd", "ems_sd", "input_guided_aggressive", "predicted_outputs", "prompt_lookup")
PREDICTION: dict[str, dict[str, Any]] = {"predicted_outputs": {"prediction": [1, 2, 3, 4, 1, 2, 0, 3]}}
QUICK = ("lexical_unit", "prompt_lookup")
BY_DAY = ("jacobi", "pass", "token_recycling")
TREES: dict[str, dict[str, Any]] = {
    "anpd": {},
    "ems_sd": {},
    "fastcot": {"window": 4, "rounds": 5},
    "flexdraft": {"gamma": 4},
    "jacobi": {"length": 6},
    "lexical_unit": {"alpha": 0.02},
    "pass": {},
    "ppd": {},
    "predicted_outputs": PREDICTION["predicted_outputs"],
    "prompt_lookup": {},
    "space": {"gamma": 3},
    "token_recycling": {"shape": "[[0],[1],[0,0],[0,1],[1,0]]"},
}
"""Programs, and parameters with which a test sees more of them."""


class Model:
    """A tiny model, and what it was asked before."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = LlamaConfig(
            vocab_size=VOCAB, num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.3, **sizes
        )
        self.whole, self.known = LlamaForCausalLM(config).eval(), dict[tuple[int, ...], torch.Tensor]()

    @torch.no_grad()
    def after(self, text: list[int]) -> torch.Tensor:
        key = tuple(text)
        if key not in self.known:
            self.known[key] = self.whole(torch.tensor([text])).logits[0, -1]
        return self.known[key]


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


# -- over texts
def drafted(name: str, rng: random.Random) -> list[tuple[list[int], int, list[int]]]:
    """Texts, the lengths of their prompts, and what the reference interpreter drafts after them."""
    algorithm, out = decgraph.load(name), []
    session = algorithm.session(models_for(algorithm.function, 8, 3), **PREDICTION.get(name, {}), backend="reference")
    for _ in range(8):
        text = [rng.randrange(rng.choice((2, 8))) for _ in range(rng.randrange(1, 24))]
        base, limit, events = len(text), 48, list[Any]()
        session.run(Request(prompt=tuple(text), max_tokens=limit, temperature=1), listener=events.append)
        tokens = list[int]()
        for event in events:
            if isinstance(event, trace.Drafted):
                tokens.append(event.token)
            elif isinstance(event, trace.Committed):
                if len(text) + 24 < base + limit:  # near its limit a run drafts no more than it can commit
                    out.append((list(text), base, tokens))
                text, tokens = [*text, *event.tokens], []
    return out


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CHAINS])
def test_drafts_are_the_reference_interpreters(name: str) -> None:
    known = drafted(name, random.Random(5))
    texts = torch.zeros((len(known), 72), dtype=torch.int32)
    for row, (text, _, _) in enumerate(known):
        texts[row, : len(text)] = torch.tensor(text)
    lengths, bases = (torch.tensor([k[i] if i else len(k[0]) for k in known]) for i in (0, 1))
    drafts = Drafts(decgraph.load(name).module, PREDICTION.get(name, {}), rows=len(known), vocab=8)
    assert drafts.reads_prompt == (name not in ("anpd", "prompt_lookup"))
    tokens, live = drafts.draft(texts, lengths, prompts=bases)
    got = [row[there].tolist() for row, there in zip(tokens, live, strict=True)]
    assert got == [k[2] for k in known]
    assert sum(len(k[2]) > 0 for k in known) > 5
    first, _ = drafts.draft(texts, lengths, prompts=bases, most=2)
    assert first.shape[1] == min(2, tokens.shape[1]) and first.equal(tokens[:, :2])


def test_rows_without_a_text_and_full_ones_get_no_drafts_and_no_other_column_is_read() -> None:
    drafts = Drafts(decgraph.load("prompt_lookup").module, rows=4, vocab=8)
    texts = torch.tensor([[1, 2, 1, 2, 7, 7], [1, 2, 1, 2, 1, 2], [1, 2, 1, 2, 1, 2], [3, 1, 3, 7, 7, 7]])
    tokens, live = drafts.draft(texts, torch.tensor([4, 0, 6, 3]), 4)
    assert [row[there].tolist() for row, there in zip(tokens, live, strict=True)] == [[1, 2], [], [], [1, 3]]
    assert drafts.draft(texts.int(), torch.tensor([4, 0, 6, 3]), 4)[1].equal(live)


@pytest.mark.parametrize("name", ["anpd", "prompt_lookup"])
def test_nothing_is_read_back(name: str) -> None:
    drafts = Drafts(decgraph.load(name).module, rows=3, vocab=VOCAB)
    texts, lengths = torch.randint(0, 4, (3, 41), dtype=torch.int32), torch.tensor([20, 7, 30])
    want = drafts.draft(texts, lengths)
    drafts._step(3).recording = True
    with nothing_read():
        got = drafts.draft(texts, lengths)
    there = want[1]
    assert got[1].equal(there) and got[0][there].equal(want[0][there])


def test_refusals_name_their_operation() -> None:
    texts, lengths = torch.zeros((2, 9), dtype=torch.int64), torch.tensor([3, 4])
    for name, why in {
        "pass": "calls the target once more",
        "token_recycling": "remembers more than the text",
        "rest": "an index of what a session has read",
        "lookahead": "a table of entries",
    }.items():
        with pytest.raises(NotSteppable, match=why):
            Drafts(decgraph.load(name).module, rows=2, vocab=8).draft(texts, lengths)
    with pytest.raises(DecError, match="reads where a prompt ends"):
        Drafts(decgraph.load("ems_sd").module, rows=2, vocab=8).draft(texts, lengths)


# -- with verification
@dataclass
class Asking:
    """A request in an engine. kept: the tokens whose keys and values the engine has."""

    prompt: list[int]
    fields: dict[str, Any]
    length: int
    output: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)


def computed(model: Model, asked: Asked, requests: list[Asking]) -> torch.Tensor:
    """The engine's logits at nodes, by the keys and values that it has."""
    logits = torch.randn((*asked.tokens.shape, VOCAB)) * 9  # of what is not there: anything
    for row, request in enumerate(requests):
        tokens, parents = asked.tokens[row].tolist(), asked.parents[row].tolist()
        assert tokens[0] == [*request.prompt, *request.output][-1]
        for node in torch.arange(len(tokens))[asked.live[row]].tolist():
            path, up = list[int](), node
            while up:
                path, up = [tokens[up], *path], parents[up]
            logits[row, node] = model.after([*request.kept, tokens[0], *path])
    return logits


def accept(request: Asking, asked: Asked, given: NewTokens, row: int) -> None:
    """The engine keeps the keys and values of accepted nodes, and gives out the tokens."""
    count = int(given.counts[row])
    nodes, tokens = given.nodes[row, :count].tolist(), given.tokens[row, :count].tolist()
    assert count >= 1 and nodes[0] == 0 and bool(asked.live[row, nodes].all())
    request.kept += asked.tokens[row, nodes].tolist()
    request.output += tokens
    assert request.kept == [*request.prompt, *request.output][:-1]


@pytest.mark.parametrize(
    "name",
    [
        n if n in QUICK else pytest.param(n, marks=pytest.mark.slow if n in BY_DAY else pytest.mark.nightly)
        for n in sorted(TREES)
    ],
)
def test_tokens_are_those_of_a_run(name: str, model: Model) -> None:
    """Requests that come and go, whose lanes, rows and settings have nothing to do with each other."""
    rng = random.Random(2)
    drafts = Drafts(decgraph.load(name).module, TREES[name], rows=4, vocab=VOCAB, capacity=CAPACITY)
    settings: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 1},
        {"temperature": 0.8, "top_k": 9},
        {"temperature": 1.5},
    ]
    requests = []
    for i in range(6):
        prompt = [rng.randrange(5) for _ in range(rng.randrange(2, 12))]
        fields = {"seed": 4, "request_id": i, **settings[i % len(settings)]}
        requests.append(Asking(prompt, fields, rng.randrange(6, 18), kept=prompt[:-1]))
    waiting, live, free, steps = list(requests), dict[int, Asking](), [2, 0, 3, 1], 0
    lanes: list[int] = []
    while waiting or live:
        while waiting and len(live) < 3:
            lane = free.pop()
            live[lane] = request = waiting.pop(0)
            drafts.enter(lane, request.prompt, settings=request.fields)
        if steps % 3 == 0 or not set(lanes) <= set(live):
            lanes = rng.sample(sorted(live), len(live))
        here = [live[lane] for lane in lanes]
        x: Asked | NewTokens = drafts.propose(lanes)
        while isinstance(x, Asked):
            asked, x = x, drafts.finish(computed(model, x, here))
        assert not drafts.failed().any()
        for row, lane in enumerate(lanes):
            accept(live[lane], asked, x, row)
            if len(live[lane].output) >= live[lane].length:
                free.append(lane)
                del live[lane]
        steps += 1
    for request in requests:
        run = decgraph.run(
            name, models={"target": model.whole}, prompt=request.prompt, max_tokens=request.length, eos=(), params=TREES[name],
            **request.fields,
        )  # fmt: skip
        assert request.output[: request.length] == list(run.tokens)


def test_what_a_node_sees_is_itself_and_what_is_above() -> None:
    asked = Asked(
        torch.tensor([[9, 1, 2, 3, 4]]), torch.tensor([[0, 0, 1, 2, 0]]), torch.tensor([[True, True, True, True, False]]), 3
    )
    tokens, seen = asked.laid_out(6)
    assert tokens.tolist() == [[9, 1, 2, 3, 4, 0]]
    above = {0: {0}, 1: {0, 1}, 2: {0, 1, 2}, 3: {0, 1, 2, 3}, 4: {0, 4}, 5: {0, 5}}
    assert {n: set(torch.arange(6)[seen[0, n]].tolist()) for n in range(6)} == above
