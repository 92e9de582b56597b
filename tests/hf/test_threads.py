"""Threads: one session, sessions over the same modules, first uses, and `generate` of transformers beside a first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from lib.lazily import modeling, transformers
from lib.models.hf_models import llama, noisy

import decgraph
from decgraph.hf import modules

THREADS = 4


def together(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each gives, all begun at once; the first exception is raised."""
    made: list[Any] = [None] * len(works)
    begin = threading.Barrier(len(works))

    def work(n: int) -> None:
        begin.wait(timeout=60)
        try:
            made[n] = works[n]()
        except BaseException as error:
            made[n] = error

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
        assert not thread.is_alive(), "a thread hangs"
    for one in made:
        if isinstance(one, BaseException):
            raise one
    return made


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    torch.manual_seed(0)
    bert = transformers.BertConfig(
        vocab_size=61,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=96,
        initializer_range=0.4,
    )
    return {
        "target": llama(1),
        "drafter": noisy(llama(1), 0.03),
        "heads": modeling.MedusaHeads(modeling.MedusaConfig(hidden_size=32, inner_size=16, heads=2)).eval(),
        "masked": transformers.BertForMaskedLM(bert).eval(),
    }


def session_of(kind: str, models: dict[str, Any]) -> Any:
    target = {"target": models["target"]}
    match kind:
        case "causal":
            return decgraph.load("autoregressive").session(target)
        case "tree":
            return decgraph.load("token_recycling").session(target, shape="2x2", k=2)
        case "head":
            return decgraph.load("medusa").session({**target, "target.heads": models["heads"]}, shape="2x2")
        case "masked":
            how = {"model.mask_token": 60, "model.shift": False, "model.visibility": "full"}
            return decgraph.load("llada").session({"model": models["masked"], **how}, length=8, block=4, steps=8)
        case "lookup":
            return decgraph.load("prompt_lookup").session(target)
        case _:
            return decgraph.load("speculative").session({**target, "drafter": models["drafter"]}, gamma=3)


KINDS = ("causal", "tree", "head", "masked", "lookup", "sampled")


def request_of(kind: str, n: int) -> decgraph.Request:
    prompt = (5 + n % 40, 9, 50, 5 + n % 40, 9)
    return decgraph.Request(prompt, max_tokens=8, temperature=float(kind == "sampled"), eos=(), seed=n, request_id=n)


@pytest.mark.budget(16)
@pytest.mark.quick(("4",))
@pytest.mark.parametrize("prompts", [4, 40])
@pytest.mark.parametrize("sessions", ["one session", "four sessions"])
@pytest.mark.parametrize("kind", KINDS)
def test_threads_commit_what_one_thread_does(kind: str, sessions: str, prompts: int, models: dict[str, Any]) -> None:
    """On one session, and on four over the same modules, some of them used for the first time."""
    alone = session_of(kind, models)
    wanted = [alone.run(request_of(kind, n)).tokens for n in range(prompts)]
    assert len(set(wanted)) > 1
    used = [alone] * THREADS if sessions == "one session" else [session_of(kind, models) for _ in range(THREADS)]

    def work(thread: int) -> Any:
        order = [(n + thread) % prompts for n in range(prompts)]
        made = {n: used[thread].run(request_of(kind, n)) for n in order}
        return [made[n].tokens for n in range(prompts)]

    assert together([lambda t=t: work(t) for t in range(THREADS)]) == [wanted] * THREADS  # type: ignore[misc]


def test_different_algorithms_over_the_same_modules(models: dict[str, Any]) -> None:
    kinds = ("causal", "head", "lookup", "sampled")
    wanted = [[session_of(kind, models).run(request_of(kind, n)).tokens for n in range(4)] for kind in kinds]
    used = [session_of(kind, models) for kind in kinds]
    works = [lambda k=k, s=s: [s.run(request_of(k, n)).tokens for n in range(4)] for k, s in zip(kinds, used, strict=True)]
    assert together(works) == wanted


PROMPT = torch.tensor([[5, 9, 50, 5, 9]])
GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": None, "pad_token_id": 0}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.quick(("True",))
def test_first_uses_of_a_module(shared: bool) -> None:
    """Of one object of `decgraph.hf`, and of one for each thread; and the module has no trace of it."""
    m = llama(7)
    m.train()
    wanted, attention = llama(7).generate(input_ids=PROMPT, **GREEDY).tolist(), m.config._attn_implementation
    doors = [decgraph.hf("prompt_lookup")] * THREADS if shared else [decgraph.hf("prompt_lookup") for _ in range(THREADS)]
    made = together([lambda d=d: m.generate(input_ids=PROMPT, custom_generate=d, **GREEDY).tolist() for d in doors])  # type: ignore[misc]
    assert made == [wanted] * THREADS
    assert m.config._attn_implementation == attention and all(part.training for part in m.modules())
    assert m.eval().generate(input_ids=PROMPT, **GREEDY).tolist() == wanted


def test_their_generate_beside_first_uses() -> None:
    """transformers decodes with the module in one thread while others make models of it, again and again."""
    m = llama(8)
    wanted = m.generate(input_ids=PROMPT, **GREEDY).tolist()
    ended = threading.Event()

    def theirs() -> list[Any]:
        made = []
        while not ended.is_set() and len(made) < 200:
            made.append(m.generate(input_ids=PROMPT, **GREEDY).tolist())
        return made

    def ours() -> list[Any]:
        try:
            return [m.generate(input_ids=PROMPT, custom_generate=decgraph.hf(name), **GREEDY).tolist()
                    for name in ("autoregressive", "prompt_lookup", "token_recycling")]  # fmt: skip
        finally:
            ended.set()

    for made in together([theirs, ours]):
        assert all(one == wanted for one in made)


def test_a_module_that_fails_leaves_no_trace() -> None:
    class Failing(torch.nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Failing.calls += 1
            if Failing.calls > 2:
                raise ValueError("no more")
            return x

    m = llama(9)
    m.model.layers[1].mlp = Failing()
    attention = m.config._attn_implementation
    with pytest.raises(decgraph.DecError, match="no more"):
        m.generate(input_ids=PROMPT, custom_generate=decgraph.hf("autoregressive"), **GREEDY)
    assert m.config._attn_implementation == attention
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in m.modules())


def test_a_module_in_training_mode_stays_in_evaluation_until_the_last_thread_ends() -> None:
    """The first to end would else turn on the dropout of the others."""
    module = torch.nn.Sequential(torch.nn.Dropout(0.5)).train()
    entered, both, left = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with modules.evaluating([module]):
            entered.set()
            assert both.wait(timeout=60)
        left.set()

    def second() -> bool:
        assert entered.wait(timeout=60)
        with modules.evaluating([module]):
            both.set()
            assert left.wait(timeout=60)
            return module.training or module[0].training

    assert together([first, second])[1] is False
    assert module.training and module[0].training
