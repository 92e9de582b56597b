"""Bugs of engines below the language, looked for in ours: small random models, held against transformers or against one
request alone. docs/museum.md says which bug each test stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from lib.lazily import transformers
from lib.models.hf_models import V, gpt2, llama, noisy
from lib.stdlib.table_models import layered, tables

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

PROMPTS = ((1, 5, 9, 11, 5, 9), (1, 5), (1, 44, 3, 20, 7, 9, 13, 2, 5, 8, 31), (1, 60, 5, 9))
TREE = "[[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]]"


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def module(name: str) -> Any:
    """Small models: a target, and one that guesses some of its tokens."""
    made = {
        "target": lambda: llama(1),
        "twin": lambda: llama(1),
        "near": lambda: noisy(llama(1), 0.02),
        "gpt2": lambda: gpt2(3),
        "gpt2 near": lambda: noisy(gpt2(3), 0.02),
        "short": lambda: noisy(llama(1, max_position_embeddings=24), 0.02),
    }
    return made[name]()


@cache
def model(name: str) -> Any:
    return from_module(module(name), name=name)


def session(algorithm: str, target: str = "target", drafter: str | None = "near", **params: Any) -> Session:
    models = {"target": model(target)} | ({"drafter": model(drafter)} if drafter else {})
    return decgraph.load(algorithm).session(models=models, backend="torch", **params)


def greedy(of: Any, prompt: Sequence[int], max_tokens: int) -> tuple[int, ...]:
    """What transformers' own loop says."""
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = of.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=max_tokens,
            eos_token_id=None,
            pad_token_id=0,
        )
    return tuple(out[0, len(prompt) :].tolist())


def ask(s: Session, prompt: Sequence[int] = PROMPTS[0], **request: Any) -> Result:
    result = s.run(Request(prompt=tuple(prompt), **{"max_tokens": 24, "temperature": 0, **request}))
    if result.error is not None:
        raise result.error
    return result


def many(s: Session, requests: Sequence[Request], **how: Any) -> list[tuple[int, ...]]:
    results = s.generate(requests, **how)
    assert [r.error for r in results] == [None] * len(results)
    return [r.tokens for r in results]


# ------------------------------------------------------------ what the cache holds


@pytest.mark.parametrize("gamma", [1, 2, 4, 5, 8, 16])
def test_any_number_of_drafts(gamma: int) -> None:
    """Rejections at every depth, the last one and none; no size of a block is special."""
    s = session("speculative", gamma=gamma)
    results = [ask(s, p) for p in PROMPTS]
    assert [r.tokens for r in results] == [greedy(module("target"), p, 24) for p in PROMPTS]
    assert any(sum(r.stats.accepted) for r in results) and any(r.stats.drafted > sum(r.stats.accepted) for r in results)


def test_the_drafter_has_read_the_bonus_token() -> None:
    """A drafter that is the target is never rejected: not after a block of which everything was accepted, either."""
    result = ask(session("speculative", drafter="twin", gamma=3), max_tokens=25)
    counts = (result.stats.target_calls, result.stats.accepted, result.stats.tested)
    assert counts == (7, (6, 6, 6), (6, 6, 6)), "the last step has room for one token, and drafts none"


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_the_last_draft_alone_is_rejected(gamma: int) -> None:
    """A table that follows the target's greedy text and errs at the end of every block."""
    from decgraph.runtime.models.table import TableModel

    text = PROMPTS[0] + greedy(module("target"), PROMPTS[0], 24)
    table: dict[tuple[int, ...], list[int]] = {}
    at = len(PROMPTS[0])
    while at < len(text):
        for i in range(gamma):  # the step that begins at `at` commits gamma - 1 drafts and the correction
            right = text[at + i] if at + i < len(text) else 0
            guess = right if i < gamma - 1 else (right + 1) % V
            table[text[: at + i]] = [int(v == guess) for v in range(V)]
        at += gamma
    drafter = TableModel(V, seed=1, table=table, name="table", vocab=model("target").vocab.name)
    models = {"target": model("target"), "drafter": drafter}
    s = decgraph.load("speculative").session(models=models, backend="torch", gamma=gamma)
    result = ask(s)
    assert result.tokens == text[len(PROMPTS[0]) :]
    assert result.stats.accepted[gamma - 1] == 0 and sum(result.stats.accepted) == (gamma - 1) * (24 // gamma)


@pytest.mark.parametrize("target", ["target", "gpt2"])
def test_paths_of_trees(target: str) -> None:
    """Second and later branches are accepted: positions by depth, masks by ancestors, rows gathered."""
    s = session("sequoia", target, "near" if target == "target" else "gpt2 near", shape=TREE)
    branches = 0
    for p in PROMPTS:
        result = s.generate([Request(prompt=p, max_tokens=24, temperature=0)], keep_events=True)[0]
        assert result.error is None and result.tokens == greedy(module(target), p, 24)
        steps = [e for e in result.events if type(e).__name__ == "Accepted" and e.depth == 1]
        branches += sum(e.node > 1 for e in steps)
    assert branches


def test_a_window_is_left() -> None:
    """Texts past a sliding window, with rejections: keys that the window has left are not asked for again, nor lost."""
    torch.manual_seed(5)
    config = transformers.MistralConfig(
        vocab_size=V,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        sliding_window=5,
        initializer_range=0.4,
    )
    of = transformers.MistralForCausalLM(config).eval()
    models = {"target": from_module(of, name="windowed"), "drafter": model("near")}
    s = decgraph.load("speculative").session(models=models, backend="torch", gamma=4)
    assert [ask(s, p, max_tokens=30).tokens for p in PROMPTS] == [greedy(of, p, 30) for p in PROMPTS]


def test_a_recurrent_state_is_not_taken_back() -> None:
    """Rejected drafts leave no trace in a recurrent state: greedy tokens are the module's own."""
    torch.manual_seed(3)
    config = transformers.MambaConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2, state_size=4, initializer_range=0.4)
    of = transformers.MambaForCausalLM(config).eval()
    models = {"target": from_module(of, name="odd"), "drafter": model("near")}
    s = decgraph.load("speculative").session(models=models, backend="torch", gamma=3)
    for prompt in PROMPTS:
        result, path = ask(s, prompt, max_tokens=12), list(prompt)
        for _ in range(12):  # without a cache
            path.append(int(of(torch.tensor([path]), use_cache=False).logits[0, -1].argmax()))
        assert result.tokens == tuple(path[len(prompt) :]) and result.stats.drafted > sum(result.stats.accepted)


def test_requests_of_all_lengths_in_one_session() -> None:
    """A short request, a long one, a short one again: storage that was made for one serves the others."""
    s = session("speculative", gamma=4)
    for limit, prompt in ((3, PROMPTS[1]), (100, PROMPTS[0]), (5, PROMPTS[2]), (60, PROMPTS[3])):
        assert ask(s, prompt, max_tokens=limit).tokens == greedy(module("target"), prompt, limit)


def test_left_in_the_middle() -> None:
    """A run that its listener ends, at each of its events in turn: the next one is right."""

    class Enough(Exception):
        pass

    s = session("speculative", gamma=3)
    right = greedy(module("target"), PROMPTS[0], 12)
    for n in range(0, 30, 3):
        heard = 0

        def listener(number: int, event: Any, n: int = n) -> None:
            nonlocal heard
            heard += 1
            if heard > n:
                raise Enough

        (left,) = s.generate([Request(prompt=PROMPTS[0], max_tokens=12, temperature=0)], listener=listener)
        assert left.error is None or isinstance(left.error.__cause__, Enough)
        assert (left.error is None) == (heard <= n) and left.tokens == right[: len(left.tokens)]
        assert ask(s, max_tokens=12).tokens == right


def test_the_same_prompt_again() -> None:
    """What a session keeps of an earlier request changes nothing, drafts included."""
    s = session("speculative", gamma=3)
    first, other, again = ask(s), ask(s, PROMPTS[2]), ask(s)
    assert (first.tokens, first.stats) == (again.tokens, again.stats)
    assert other.tokens == greedy(module("target"), PROMPTS[2], 24)
    longer = ask(s, PROMPTS[0] + first.tokens[:7], max_tokens=17)
    assert longer.tokens == first.tokens[7:]


def test_drafts_are_those_of_the_reference() -> None:
    """What a head drafts from is the target's own state, after every step: both backends draft and accept alike."""
    models = layered("tiny")
    wanted = {k: models[k] for k in ("target", "head")}
    runs = [
        decgraph.load("eagle2")
        .session(models=wanted, backend=b, depth=2, k=2, budget=4)
        .run(Request(prompt=(2, 1, 0, 3), max_tokens=20, temperature=0))
        for b in ("reference", "torch")
    ]
    assert runs[0].tokens == runs[1].tokens and runs[0].stats == runs[1].stats
    assert sum(runs[0].stats.accepted) and runs[0].stats.drafted > sum(runs[0].stats.accepted)


def test_draft_rows_are_those_of_the_reference() -> None:
    """Positions of drafts: a model with rotary positions drafts the same tokens on both backends."""
    models = {k: v for k, v in layered("tiny").items() if k in ("target", "drafter")}
    runs = [
        decgraph.load("speculative")
        .session(models=models, backend=b, gamma=4)
        .run(Request(prompt=(0, 1, 2), max_tokens=24, temperature=1, seed=5))
        for b in ("reference", "torch")
    ]
    assert runs[0].tokens == runs[1].tokens and runs[0].stats == runs[1].stats


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_both_ways_of_attention(attention: str) -> None:
    of = llama(1, attn_implementation=attention)
    models = {"target": from_module(of, name=attention), "drafter": model("near")}
    s = decgraph.load("sequoia").session(models=models, backend="torch", shape=TREE)
    assert [ask(s, p).tokens for p in PROMPTS] == [greedy(of, p, 24) for p in PROMPTS]


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_shared_key_heads(heads: int) -> None:
    """Several query tokens at a time, with one key head for all query heads, for two, and for one each."""
    of = llama(2, num_key_value_heads=heads)
    near = noisy(llama(2, num_key_value_heads=heads), 0.02)
    models = {"target": from_module(of, name=f"{heads} heads"), "drafter": from_module(near, name="near")}
    s = decgraph.load("speculative").session(models=models, backend="torch", gamma=6)
    assert [ask(s, p).tokens for p in PROMPTS] == [greedy(of, p, 24) for p in PROMPTS]


@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize("name", ["autoregressive", "speculative", "prompt_lookup"])
def test_the_end_of_the_context(name: str, backend: str) -> None:
    """A request for more than the context holds: the text ends there, with a reason and the tokens made so far."""
    of = llama(1, max_position_embeddings=40)
    models = {"target": from_module(of, name="forty")} | ({"drafter": model("near")} if name == "speculative" else {})
    result = (
        decgraph.load(name)
        .session(models=models, backend=backend)
        .run(Request(prompt=PROMPTS[0], max_tokens=100, temperature=0))
    )
    assert result.error is None and result.reason == "context"
    assert len(result.tokens) >= 34 and result.tokens[:34] == greedy(of, PROMPTS[0], 34)


@pytest.mark.parametrize(("length", "limit"), [(900, 130), (1022, 8), (1023, 8)])
def test_a_long_prompt_to_the_end_of_the_context(length: int, limit: int) -> None:
    """A prompt of hundreds of tokens, and as many new ones as fit behind it in the shipped model's 1024 positions."""
    result = decgraph.run("autoregressive", [3 + i % 50 for i in range(length)], max_tokens=limit, temperature=0)
    assert (result.error, result.reason) == (None, "context") and 1024 - length <= len(result.tokens) <= 1025 - length


def test_a_drafter_with_a_shorter_context() -> None:
    """Nothing is read past the end of the drafter's positions: the text ends there, and says so."""
    result = ask(session("speculative", drafter="short", gamma=4), max_tokens=60)
    assert result.reason == "context" and len(result.tokens) >= 18
    assert result.tokens == greedy(module("target"), PROMPTS[0], len(result.tokens))


# ------------------------------------------------------------ many at a time


def mixed() -> list[Request]:
    """Requests that differ in everything that one can ask for."""
    how: list[dict[str, Any]] = [
        {"temperature": 1},
        {"temperature": 0},
        {"temperature": 0.7, "top_k": 5},
        {"temperature": 1, "repetition_penalty": 1.5},
        {"temperature": 1.3, "top_p": 0.8, "bans": {5, 9}},
        {"temperature": 1, "min_length": 6, "eos": {3, 5, 9, 11, 20}},
        {"temperature": 1, "frequency_penalty": 0.8, "bias": {7: 2.0}},
        {"temperature": 1, "max_tokens": 3},
    ]
    return [
        Request(**{"prompt": PROMPTS[i % 4], "max_tokens": 16 + i, "seed": 3, "request_id": i, **h}) for i, h in enumerate(how)
    ]


@pytest.mark.quick(first=2)
@pytest.mark.parametrize("name", ["speculative", "sequoia", "prompt_lookup", "block_verification"])
def test_batch_equals_alone(name: str) -> None:
    """Ragged prompts and limits, other shaping for each, requests that join and leave: each gets what it gets alone."""
    given: dict[str, Any] = {"sequoia": {"shape": TREE}, "prompt_lookup": {"k": 4}}
    params = given.get(name, {"gamma": 3})
    drafter = None if name == "prompt_lookup" else "near"
    alone = [many(session(name, drafter=drafter, **params), [r])[0] for r in mixed()]
    s = session(name, drafter=drafter, **params)
    assert many(s, mixed(), batch=8) == alone
    assert many(s, mixed(), batch=3) == alone


def test_long_and_short_together() -> None:
    long = tuple(1 + (7 * i) % 59 for i in range(150))
    requests = [
        Request(prompt=long, max_tokens=20, temperature=0),
        Request(prompt=(1, 5), max_tokens=40, temperature=0, request_id=1),
    ]
    got = many(session("speculative", gamma=4), requests, batch=2)
    assert got == [greedy(module("target"), long, 20), greedy(module("target"), (1, 5), 40)]


def test_memory_is_taken_away_and_given_back() -> None:
    """Less memory than all need at once: what waits or is computed again gets the same tokens."""
    store = engine_of(model("target")).store
    before = store.budget
    free = many(session("speculative", gamma=3), mixed(), batch=8)
    try:
        few = 3 * 128 * store.layout.cell_bytes
        store.__init__(store.layout, few)
        assert many(session("speculative", gamma=3), mixed(), batch=8, budget=few) == free
    finally:
        store.__init__(store.layout, before)


def test_seeds() -> None:
    """A seed and a request's number are all that its noise depends on."""
    s = session("speculative", gamma=3)

    def drawn(seed: int, number: int) -> tuple[int, ...]:
        return ask(s, temperature=1, seed=seed, request_id=number).tokens

    assert drawn(1, 0) == drawn(1, 0)
    assert len({drawn(1, 0), drawn(2, 0), drawn(1, 1), drawn(2, 1)}) == 4


def test_a_row_without_drafts_draws_what_it_draws_alone() -> None:
    """Prompt lookup in a batch: one prompt repeats itself, the other gives no draft at all."""
    requests = [
        Request(prompt=prompt, max_tokens=16, seed=9, request_id=i)
        for i, prompt in enumerate(((1, 5, 9, 5, 9, 5, 9), tuple(range(10, 20))))
    ]
    plain = many(session("autoregressive", drafter=None), requests, batch=2)
    assert many(session("prompt_lookup", drafter=None, k=4), requests, batch=2) == plain


# ------------------------------------------------------------ where texts end


@pytest.mark.parametrize("name", ["speculative", "sequoia", "block_verification"])
def test_an_end_inside_a_block(name: str) -> None:
    params: dict[str, Any] = {"shape": TREE} if name == "sequoia" else {"gamma": 4}
    text = greedy(module("target"), PROMPTS[0], 24)
    s = session(name, **params)
    for end in sorted(set(text)):
        result = ask(s, eos={end})
        assert (result.tokens, result.reason) == (text[: text.index(end) + 1], "eos")


def test_any_condition_inside_a_block() -> None:
    text = greedy(module("target"), PROMPTS[0], 24)
    s = session("speculative", drafter="twin", gamma=6)
    for n in range(1, 20):
        result = ask(s, until=(lambda path, n=n: len(path) >= len(PROMPTS[0]) + n,))
        assert (result.tokens, result.reason) == (text[:n], "until")


def test_a_drafted_end_is_no_end() -> None:
    """The drafter ends the text again and again, the target never does."""
    s = session("speculative", gamma=4)
    ends = set(range(V)) - set(greedy(module("target"), PROMPTS[0], 24))
    assert ask(s, eos=ends).tokens == greedy(module("target"), PROMPTS[0], 24)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7, 11])
def test_never_more_than_asked_for(limit: int) -> None:
    for drafter in ("twin", "near"):
        result = ask(session("speculative", drafter=drafter, gamma=5), max_tokens=limit)
        assert (result.tokens, result.reason) == (greedy(module("target"), PROMPTS[0], limit), "limit")


def test_numbers_of_a_run() -> None:
    """Tokens are those that were committed, also where the text ends inside a block: then what was accepted behind the end is
    counted as neither tested nor accepted."""
    text = greedy(module("target"), PROMPTS[0], 24)
    s = session("speculative", drafter="twin", gamma=6)
    for n in (1, 3, 5, 9, 24):
        stats = ask(s, eos={text[n - 1]}).stats
        assert stats.tokens == text.index(text[n - 1]) + 1
        assert sum(stats.accepted) <= stats.drafted and set(stats.acceptance) == {1.0}
        assert stats.tokens - stats.target_calls <= sum(stats.accepted) <= stats.tokens


def test_log_probabilities_are_those_of_their_rows() -> None:
    """With drafts accepted and rejected on the way, and a penalty that shapes what is drawn; a program's own are its laws'."""
    s = session("speculative", gamma=4)
    result = s.run(Request(prompt=PROMPTS[0], max_tokens=30, temperature=0, repetition_penalty=1.4, logprobs=1))
    assert result.logprobs is not None and 0 < sum(result.stats.accepted) < result.stats.drafted
    with torch.no_grad():
        rows = module("target")(torch.tensor([[*PROMPTS[0], *result.tokens]])).logits[0, len(PROMPTS[0]) - 1 : -1]
    rows = rows.double().log_softmax(-1)
    got = torch.tensor(result.logprobs.tokens, dtype=torch.float64)
    assert torch.allclose(got, rows[range(30), list(result.tokens)], atol=1e-4)
    assert [next(iter(best)) for best in result.logprobs.top] == rows.argmax(-1).tolist()
    text = """
algorithm likeliest(target: causal):
    while not done:
        draft t:
            grow topk(target(root).raw, 1) at root
        n = t.drafted[0]
        if exp(t.logprob[n]) * 2 > max(target(ctx).raw) and exp(t.logprob[n]) < max(target(ctx).raw) * 2:
            commit n
        else:
            commit 0
"""
    models = {"target": tables()["target"]}
    request = Request(prompt=(0, 1), max_tokens=12, temperature=0)
    right = decgraph.load("autoregressive").session(models=models).run(request)
    assert decgraph.parse(text).session(models=models).run(request).tokens == right.tokens


# ------------------------------------------------------------ constraints and shaping at drafted nodes


class Cycle:
    """Tokens go round in sevens: after i comes one that is 1 more, modulo 7."""

    def __call__(self, generated: Sequence[int]) -> list[int]:
        want = len(generated) % 7
        return [t for t in range(V) if t % 7 == want]


@pytest.mark.parametrize("name", ["speculative", "sequoia", "block_verification"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_what_is_allowed_at_every_node(name: str, temperature: float) -> None:
    params: dict[str, Any] = {"shape": TREE} if name == "sequoia" else {"gamma": 4}
    result = ask(session(name, **params), allow=Cycle(), temperature=temperature)
    assert [t % 7 for t in result.tokens] == [i % 7 for i in range(24)]
    assert sum(result.stats.accepted)


SHAPING: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.4},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.9},
    "bias": {"bias": {5: 3.0, 9: -2.0}},
    "bans": {"bans": {37, 46, 27}},
    "least": {"min_length": 9, "eos": set(range(20, 50))},
}


@pytest.mark.parametrize("asked", SHAPING.values(), ids=SHAPING)
def test_shaping_counts_each_nodes_path(asked: dict[str, Any]) -> None:
    """Greedy and shaped: the tokens of plain decoding, with rejected drafts in between."""
    plain = ask(session("autoregressive", drafter=None), **asked).tokens
    free = ask(session("autoregressive", drafter=None)).tokens
    assert plain != free[: len(plain)], "the request makes a difference"
    for name, params in (("speculative", {"gamma": 4}), ("sequoia", {"shape": TREE})):
        assert ask(session(name, **params), **asked).tokens == plain


# ------------------------------------------------------------ coins and vocabularies


def test_a_coin_of_probability_nothing() -> None:
    """The target excludes what the drafter drafts: not one draft is accepted, whatever the uniform is."""
    s = session("speculative", drafter="twin", gamma=2)
    target = ask(s, temperature=1, top_k=1, max_tokens=20)
    assert target.tokens == greedy(module("target"), PROMPTS[0], 20)
    from decgraph.runtime.models.table import TableModel

    never = TableModel(3, table={(): (0, 1, 1)}, window=0, name="never")
    always = TableModel(3, table={(): (1, 0, 0)}, window=0, name="always")
    for backend in ("reference", "torch"):
        only = decgraph.load("speculative").session(models={"target": never, "drafter": always}, backend=backend, gamma=2)
        for seed in range(40):
            result = only.run(Request(prompt=(1,), max_tokens=8, seed=seed))
            assert result.error is None and 0 not in result.tokens and sum(result.stats.accepted) == 0


@pytest.mark.quick("speculative")
@pytest.mark.parametrize("name", ["speculative", "block_verification"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_nothing_is_left_of_p(name: str, temperature: float) -> None:
    """p is q, so that the residual would be 0/0: every draft is accepted, and nothing is no number."""
    for seed in range(10):
        result = ask(session(name, drafter="twin", gamma=3), temperature=temperature, seed=seed, max_tokens=16)
        assert result.stats.acceptance == (1.0, 1.0, 1.0)


def test_another_vocabulary_is_refused() -> None:
    models = {"target": model("target"), "drafter": from_module(llama(1, vocab_size=50), name="fifty")}
    with pytest.raises(DecError, match="vocabular"):
        decgraph.load("speculative").session(models=models, backend="torch")
