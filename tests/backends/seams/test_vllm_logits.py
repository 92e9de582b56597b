"""Exported logits processors of vLLM under faked callers of both model runners: tokens of `decgraph.run` whatever the engine
does with its batch; what is refused; how an error of one request ends it and no other."""

from __future__ import annotations

import ast
import inspect
import logging
import random
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from lib.engines import fake_vllm as fake
from lib.engines.published_seams import VLLM_CONTEXT, VLLM_LOGITS, VLLM_LOGITS_V2, VLLM_STATE, VLLM_UPDATE
from transformers import LlamaConfig, LlamaForCausalLM

import decgraph
from decgraph.backends.seams.file import Exported, exported
from decgraph.backends.seams.requests import Requests
from decgraph.backends.seams.rows import Rows
from decgraph.backends.seams.seam import carried

VOCAB, MOST = 97, 4
PROGRAMS = ("mirostat", "typical", "windowed_penalties", "xtc")


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=VOCAB, num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3, **sizes)
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
def logits_of(model: LlamaForCausalLM, text: list[int]) -> torch.Tensor:
    return model(torch.tensor([text])).logits[0, -1]


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    fake.install(monkeypatch)


@cache
def made_of(name: str) -> Exported:
    return exported("vllm", decgraph.load(name).module, {}, key="logits")


def file_of(name: str) -> Any:
    """The class of an exported file."""
    made = made_of(name)
    module = ModuleType(made.name)
    exec(compile(made.text, made.name, "exec"), vars(module))
    return getattr(module, made.class_name)


def requests(name: str, model: LlamaForCausalLM, count: int, rng: random.Random, **last: float) -> list[fake.Asked]:
    """Requests with settings and parameters of their own, and what `decgraph.run` gives them. last: the fourth's settings."""
    own = {"mirostat": {"tau": 3.0}, "typical": {"mass": 0.6}, "xtc": {"chance": 0.9}}.get(name, {})
    shaping: list[dict[str, Any]] = [{}, {"temperature": 0.7, "top_k": 20}, {"temperature": 0}, last]
    out = []
    for i in range(count):
        settings = {"temperature": 1} if name == "mirostat" else {"temperature": 1, **shaping[i % 4]}
        prompt = [rng.randrange(2, VOCAB) for _ in range(rng.randrange(2, 14))]
        params = own if i % 2 else {}
        length = rng.randrange(6, 14)
        result = decgraph.run(
            name, models={"target": model}, prompt=prompt, max_tokens=length, eos=(), seed=50 + i, params=params, **settings
        )
        extra = {"seed": 50 + i, **params}
        out.append(fake.Asked(prompt, fake.params(**settings, extra_args=extra), length, expected=list(result.tokens)))
    return out


@pytest.mark.parametrize("methods", [VLLM_LOGITS, VLLM_LOGITS_V2], ids=["V1", "V2"])
def test_methods_take_what_the_engine_hands_over(methods: dict[str, tuple[str, ...]]) -> None:
    made = file_of("typical")
    for name, given in methods.items():
        inspect.signature(getattr(made, name)).bind(*given)
    assert made.is_argmax_invariant(object()) is False  # greedy requests are drawn for too


@pytest.mark.parametrize(
    ("name", "published"),
    [("ctx", VLLM_CONTEXT), ("self.state", VLLM_STATE), ("update", VLLM_UPDATE)],
    ids=lambda v: str(v)[:10],
)
def test_what_is_read_is_published(name: str, published: tuple[str, ...]) -> None:
    tree = ast.parse(made_of("typical").text)
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name}
    assert read
    assert read <= {*published}


def equal(asked: list[fake.Asked]) -> list[bool]:
    return [r.output == r.expected for r in asked]


@pytest.mark.parametrize("late", [False, True], ids=["at once", "a step late"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_tokens_in_v1(name: str, late: bool, model: LlamaForCausalLM) -> None:
    rng = random.Random(7)
    asked = requests(name, model, 8, rng, repetition_penalty=1.3)
    processor = file_of(name)(fake.config(MOST, VOCAB), torch.device("cpu"), False)
    runner = fake.V1(processor, lambda text: logits_of(model, text), MOST, rng, late=late)
    runner.run(asked)
    assert equal(asked) == [True] * len(asked)
    assert min(runner.counts[what] for what in ("preempted", "discarded", "moved")) > 1, runner.counts


@pytest.mark.parametrize("drafts", [0, 3], ids=["plain", "speculation"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_tokens_in_v2(name: str, drafts: int, model: LlamaForCausalLM) -> None:
    rng = random.Random(5)
    asked = requests(name, model, 7, rng)
    twin = asked[1]  # the same request once more: a preempted one of the two must not take the other's lane
    asked.append(fake.Asked(twin.prompt, twin.params, twin.most, expected=twin.expected))
    config = fake.config(MOST, VOCAB, drafts=drafts)
    state = fake.slots(MOST, VOCAB, 96)
    processor = file_of(name)(config, state)
    runner = fake.V2(processor, lambda text: logits_of(model, text), MOST, rng, state=state, drafts=drafts)
    runner.run(asked)
    assert equal(asked) == [True] * len(asked)
    wanted = ("preempted", "discarded", *(["accepted"] if drafts else []))
    assert min(runner.counts[what] for what in wanted) > 1, runner.counts


def test_penalties_of_v2_are_not_applied_again(model: LlamaForCausalLM) -> None:
    rng = random.Random(6)
    settings: dict[str, Any] = {"temperature": 1, "repetition_penalty": 2, "frequency_penalty": 1, "presence_penalty": 1}
    asked = []
    for seed in range(3):
        fields = {"prompt": [3, 4, 5, seed + 6], "max_tokens": 24, "eos": (), "seed": seed}
        result = decgraph.run("autoregressive", models={"target": model}, **fields, **settings)
        given = fake.params(**settings, extra_args={"seed": seed})
        asked.append(fake.Asked(fields["prompt"], given, 24, expected=list(result.tokens)))
    state = fake.slots(MOST, VOCAB, 96)
    processor = file_of("autoregressive")(fake.config(MOST, VOCAB), state)
    fake.V2(processor, lambda text: logits_of(model, text), MOST, rng, state=state).run(asked)
    assert equal(asked) == [True] * 3


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("mirostat", {"temperature": 1, "top_k": 5}, "top_k would change nothing"),
        ("mirostat", {"temperature": 0.5}, "temperature would change nothing"),
        ("mirostat", {"extra_args": {"tua": 3}}, "no parameter `tua`.*\n.*tau, eta"),
        ("mirostat", {"presence_penalty": -1.0}, "presence_penalty would change nothing"),
        ("typical", {"extra_args": {"mass": 7}}, "mass"),
        ("typical", {"extra_args": {"seed": "x"}}, "seed"),
    ],
)
def test_what_would_change_nothing_is_refused(name: str, params: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        file_of(name).validate_params(fake.params(**params))


def test_what_is_read_is_not_refused() -> None:
    file_of("typical").validate_params(fake.params(temperature=0.5, top_k=5, extra_args={"mass": 0.4, "request_id": 3}))
    file_of("mirostat").validate_params(fake.params(top_k=-1, seed=4))  # vLLM's word for no limit


def rows(name: str, lanes: int) -> Requests:
    return Requests(Rows(carried(decgraph.load(name).module), lanes=lanes, capacity=40, vocab=VOCAB), end=1)


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def test_an_error_ends_its_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    held = rows("typical", 3)
    a, b = (held.join([5, 6, 7], [], {"seed": n}, {}) for n in (11, 12))
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(0))
    logits[0] = -torch.inf  # everything is banned
    with caplog.at_level(logging.ERROR, "decgraph"):
        tokens = held.draw(numbers(a, b), logits, numbers(3, 3), numbers(7, 7))
        held.report([a, b])
        held.report([a, b])
    assert int(tokens[0]) == 1  # the end token
    assert held.rows.failed(numbers(a, b)).tolist() == [True, False]
    assert len(caplog.messages) == 1
    assert "typical ends request 0 (seed 11, prompt of 3 tokens [5, 6, 7]" in caplog.text
    assert "no token was left" in caplog.text


def test_another_token_than_was_drawn_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    held = rows("typical", 2)
    lane = held.join([5, 6, 7], [], {"seed": 1}, {})
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0))
    token = int(held.draw(numbers(lane), logits, numbers(3), numbers(7))[0])
    with caplog.at_level(logging.ERROR, "decgraph"):
        held.draw(numbers(lane), logits, numbers(4), numbers((token + 1) % VOCAB))
        held.report([lane])
    assert "another token than was drawn" in caplog.text


def test_states_that_are_gone_end_the_request(caplog: pytest.LogCaptureFixture) -> None:
    held = rows("mirostat", 2)
    with caplog.at_level(logging.ERROR, "decgraph"):
        lane = held.join([5, 6], [7], {"seed": 1}, {})
    assert "has states" in caplog.text
    assert held.rows.failed(numbers(lane)).tolist() == [True]
    caplog.clear()
    rows("typical", 2).join([5, 6], [7], {"seed": 1}, {})  # goes on from its text
    assert not caplog.messages


def test_the_lane_that_was_left_first_is_taken_first() -> None:
    held = rows("mirostat", 4)
    first, second = held.join([5, 6], [], {"seed": 1}, {}), held.join([5, 6], [], {"seed": 2}, {})
    held.leave(second)
    held.leave(first)
    others = [held.join([9], [], {"seed": n}, {}) for n in (3, 4)]
    assert others == [2, second]  # the third lane had no request yet


def test_noise_without_a_seed_is_the_same_on_every_rank() -> None:
    made = []
    for _ in range(2):
        held = rows("typical", 3)
        lanes = numbers(*(held.join([5, 6], [], {}, {}) for _ in range(2)))
        logits = torch.zeros(2, VOCAB)
        made.append(held.draw(lanes, logits, numbers(2, 2), numbers(6, 6)).tolist())
    assert made[0] == made[1]
    assert made[0][0] != made[0][1]  # and not that of another request


def test_samplers_that_share_out_requests_are_refused_for_states() -> None:
    config = fake.config(MOST, VOCAB)
    config.parallel_config.enable_batch_sharded_sampling = True
    state = fake.slots(MOST, VOCAB, 96)
    with pytest.raises(ValueError, match="mirostat has states"):
        file_of("mirostat")(config, state)
    file_of("typical")(config, state)


def test_rows_that_are_no_requests_stay_as_they_are() -> None:
    state = fake.slots(MOST, VOCAB, 96)
    processor = file_of("typical")(fake.config(MOST, VOCAB), state)
    logits = torch.randn(2, VOCAB)
    ctx = SimpleNamespace(
        expanded_idx_mapping=numbers(0, 1), idx_mapping=numbers(0, 1), idx_mapping_np=numbers(0, 1).numpy(),
        expanded_local_pos=numbers(0, 0), input_ids=numbers(3, 3),
    )  # fmt: skip
    state.total_len.np[:] = 1
    assert torch.equal(processor.apply(logits.clone(), ctx), logits)


def test_an_error_that_is_known_late_names_the_request_that_it_was_of(caplog: pytest.LogCaptureFixture) -> None:
    """On an accelerator flags come when a step is over; the lane may be another request's then."""
    held = rows("typical", 2)
    lane = held.join([5, 6, 7], [], {"seed": 11}, {})
    over = [False, True]
    ready = SimpleNamespace(query=lambda: over.pop(0))
    held.late.append((numbers(1, 0).bool(), [(lane, held.entered[lane])], ready))
    held.leave(lane)
    assert held.join([8, 9], [], {"seed": 12}, {}) == lane
    with caplog.at_level(logging.ERROR, "decgraph"):
        held.report([lane])
        assert not caplog.messages
        held.report([lane])
    assert len(caplog.messages) == 1
    assert "(seed 11, prompt of 3 tokens" in caplog.text


def test_twins_without_a_seed_stay_two_draws_when_one_comes_back() -> None:
    """A preempted request whose text another one has as well, in an engine that does not say what left."""
    rows = Rows(carried(decgraph.load("autoregressive").module), lanes=4, capacity=32, vocab=VOCAB)
    requests = Requests(rows, end=0)
    flat = torch.zeros(3, VOCAB)
    first, twin = (requests.join([5, 6], (), {"temperature": 1}, {}) for _ in range(2))
    rows.lanes.table.tokens[[first, twin], 2] = 9  # both have drawn the same
    rows.lanes.table.length[[first, twin]] = 3
    back = requests.join([5, 6], [9], {"temperature": 1}, {})
    assert back not in (first, twin)
    drawn = []
    for n in range(6):
        at = torch.tensor([first, twin, back])
        drawn.append(requests.draw(at, flat, torch.full((3,), 3 + n), torch.full((3,), -1)).tolist())
    assert len({*zip(*drawn, strict=True)}) == 3
    seeded = [requests.rows.lanes.table.settings.seed[lane].tolist() for lane in (first, back)]
    assert seeded[0] == seeded[1], "the engine's seed, and another number of the request"
