"""The law of a sampled token: transformers' own list of processors, in transformers' own order, against decgraph's shaping.

Exactly, on random scores under random settings; and by counting, `generate(do_sample=True)` with and without decgraph.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lib.lazily import transformers
from lib.models.hf_models import PROMPT, V, llama
from quick import examples

import decgraph
from decgraph.backends.torch.rows import Rows
from decgraph.hf.prompts import rows_of
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.processors import BatchReading, shaping_of
from decgraph.runtime.request import Request
from decgraph.runtime.shaping import shaped_probs

SIZE = 12
TOKEN = st.integers(0, SIZE - 1)


@st.composite
def configurations(draw: Any) -> dict[str, Any]:
    """Settings of a transformers.GenerationConfig, any of them together."""
    fields: dict[str, Any] = {"do_sample": True, "max_new_tokens": 5, "eos_token_id": 2, "pad_token_id": 0}
    maybe = {
        "temperature": st.sampled_from([0.3, 0.7, 1.3, 2.5]),
        "top_k": st.integers(1, SIZE + 3),
        "top_p": st.sampled_from([0.05, 0.3, 0.62, 0.9, 0.99]),
        "min_p": st.sampled_from([0.02, 0.1, 0.35, 0.8]),
        "repetition_penalty": st.sampled_from([0.6, 1.2, 2.0]),
        "sequence_bias": st.dictionaries(TOKEN, st.sampled_from([-3.0, -0.5, 1.5]), min_size=1, max_size=3),
        "suppress_tokens": st.lists(TOKEN, min_size=1, max_size=3, unique=True),
        "bad_words_ids": st.lists(TOKEN.filter(lambda t: t != 2), min_size=1, max_size=2, unique=True),
        "min_new_tokens": st.integers(1, 3),
        "no_repeat_ngram_size": st.integers(1, 3),
        "renormalize_logits": st.just(True),
    }
    for name, values in maybe.items():
        if draw(st.booleans()):
            fields[name] = draw(values)
    if "top_k" not in fields:
        fields["top_k"] = 0
    if "sequence_bias" in fields:
        fields["sequence_bias"] = [[[t], amount] for t, amount in fields["sequence_bias"].items()]
    if "bad_words_ids" in fields:
        fields["bad_words_ids"] = [[t] for t in fields["bad_words_ids"]]
    return fields


@cache
def model() -> Any:
    return llama(1, vocab_size=SIZE)


def theirs(fields: dict[str, Any], prompt: torch.Tensor) -> Any:
    """The list that `generate` makes of a configuration, in its order."""
    config = transformers.GenerationConfig(**fields)
    model()._prepare_special_tokens(config, device="cpu")
    return model()._get_logits_processor(
        generation_config=config, input_ids_seq_length=prompt.shape[1], encoder_input_ids=prompt, device="cpu"
    )


@settings(max_examples=examples(300))
@given(configurations(), st.lists(TOKEN, min_size=1, max_size=6), st.lists(TOKEN, max_size=3), st.integers(0, 2**32 - 1))
def test_processed_probabilities_are_equal(fields: dict[str, Any], prompt: list[int], new: list[int], seed: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 2.5, SIZE)
    ids = torch.tensor([prompt])
    processors = theirs(fields, ids)
    want = processors(torch.tensor([[*prompt, *new]]), torch.from_numpy(logits.copy())[None])[0].softmax(-1).numpy()
    assume(np.isfinite(want).all())  # all tokens banned: transformers gives NaN, decgraph an error
    if "top_p" in fields:  # a sum that is p to the last digits may be on either side
        before = [p for p in processors if type(p).__name__ not in ("TopPLogitsWarper", "MinPLogitsWarper")]
        left = torch.from_numpy(logits.copy())[None]
        for p in before:
            left = p(torch.tensor([[*prompt, *new]]), left)
        sums = np.cumsum(np.sort(left[0].softmax(-1).numpy())[::-1])
        assume((np.abs(sums - fields["top_p"]) > 1e-9).all())
    (row,) = rows_of(ids, None)
    reading = BatchReading(greedy=False, length=len(prompt), copies=1, eos=frozenset({2}), width=SIZE, size=SIZE, device="cpu")
    shaping = shaping_of(processors, reading, row)
    hooks = (shaping.hook,) if shaping.hook is not None else ()
    request = Request(row.prompt, max_tokens=9, eos=frozenset({2}), processors=hooks, **{"temperature": 1.0, **shaping.fields})
    path = (*prompt, *new)
    reference = shaped_probs(Scores(logits=logits), path, request)
    np.testing.assert_allclose(reference, want, rtol=1e-9 if not hooks else 1e-5, atol=1e-12 if not hooks else 1e-7)
    rows = Rows(torch.from_numpy(logits)[None], request, path=lambda i: path, positions=np.array([len(path)]))
    np.testing.assert_allclose(rows.face("shaped")[0].numpy(), reference, rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(150))
@given(
    st.fixed_dictionaries({"temperature": st.sampled_from([0.4, 1.0, 1.9])}, optional={
        "top_k": st.integers(1, SIZE), "top_p": st.sampled_from([0.3, 0.62, 0.93]), "min_p": st.sampled_from([0.05, 0.4]),
        "repetition_penalty": st.sampled_from([0.7, 1.3]),
        "bias": st.dictionaries(TOKEN, st.sampled_from([-2.0, 1.5]), max_size=3), "bans": st.frozensets(TOKEN, max_size=3)}),
    st.lists(TOKEN, min_size=1, max_size=6), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_a_requests_own_order(fields: dict[str, Any], prompt: list[int], seed: int) -> None:
    """Bans and penalty, bias, temperature, top-k, top-p, min-p: each of transformers' steps on what the one before left."""
    import transformers as hf

    logits = np.random.default_rng(seed).normal(0, 2.5, SIZE)
    steps: list[Any] = []
    if fields.get("bans"):
        steps.append(hf.SuppressTokensLogitsProcessor(sorted(fields["bans"])))
    if "repetition_penalty" in fields:
        steps.append(hf.RepetitionPenaltyLogitsProcessor(fields["repetition_penalty"]))
    if fields.get("bias"):
        steps.append(hf.SequenceBiasLogitsProcessor([[[t], b] for t, b in fields["bias"].items()]))
    steps.append(hf.TemperatureLogitsWarper(fields["temperature"]))
    for name, warper in (("top_k", hf.TopKLogitsWarper), ("top_p", hf.TopPLogitsWarper), ("min_p", hf.MinPLogitsWarper)):
        if name in fields:
            steps.append(warper(fields[name]))
    scores = torch.from_numpy(logits.copy())[None]
    for step in steps:
        scores = step(torch.tensor([prompt]), scores)
    want = scores[0].softmax(-1).numpy()
    request = Request(tuple(prompt), max_tokens=9, **fields)
    got = shaped_probs(Scores(logits=logits), tuple(prompt), request)
    if ((got > 0) != (want > 0)).any():
        assume("top_p" not in fields or not np.isclose(np.cumsum(np.sort(got)[::-1]), fields["top_p"], atol=1e-9).any())
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-9)  # SequenceBias and bans are float32 in transformers
    rows = Rows(torch.from_numpy(logits)[None], request, path=lambda i: tuple(prompt), positions=np.array([len(prompt)]))
    np.testing.assert_allclose(rows.face("shaped")[0].numpy(), got, rtol=1e-9, atol=1e-12)


# --- by counting


def p_value(a: Counter[Any], b: Counter[Any]) -> float:
    """That two samples have one law: chi-square of a table of two rows, rare outcomes put together."""
    n, m = sum(a.values()), sum(b.values())
    cells: list[tuple[int, int]] = []
    rest = [0, 0]
    for outcome in sorted(set(a) | set(b)):
        if (a[outcome] + b[outcome]) * min(n, m) / (n + m) >= 5:
            cells.append((a[outcome], b[outcome]))
        else:
            rest[0] += a[outcome]
            rest[1] += b[outcome]
    if sum(rest):
        cells.append((rest[0], rest[1]))
    if len(cells) < 2:
        return 1.0
    table = np.array(cells, dtype=float)
    expected = table.sum(1, keepdims=True) * np.array([[n, m]]) / (n + m)
    far = torch.tensor(((table - expected) ** 2 / expected).sum() / 2)
    return float(torch.special.gammaincc(torch.tensor((len(cells) - 1) / 2, dtype=far.dtype), far))


COUNTED: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 1.0, "top_k": 0},
    "cold": {"temperature": 0.6, "top_k": 0},
    "hot": {"temperature": 1.7, "top_k": 0},
    "top-k": {"temperature": 0.9, "top_k": 7},
    "top-p": {"temperature": 1.2, "top_k": 0, "top_p": 0.8},
    "min-p": {"temperature": 1.2, "top_k": 0, "min_p": 0.1},
    "together": {"temperature": 1.1, "top_k": 30, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 1.3},
    "all": {"temperature": 1.4, "top_k": 40, "top_p": 0.97, "min_p": 0.01, "repetition_penalty": 1.2, "suppress_tokens": [3, 7],
            "sequence_bias": [[[5], 1.0], [[9], -1.0]], "no_repeat_ngram_size": 2, "min_new_tokens": 2},
}  # fmt: skip
COUNT, BATCH = 1200, 200


def sample(model: Any, custom: Any, fields: dict[str, Any]) -> Counter[Any]:
    """The two new tokens of many texts."""
    found: Counter[Any] = Counter()
    for _ in range(COUNT // BATCH):
        ids = model.generate(PROMPT, do_sample=True, max_new_tokens=2, num_return_sequences=BATCH, custom_generate=custom,
                             pad_token_id=0, **fields)  # fmt: skip
        found.update(tuple(row) for row in ids[:, PROMPT.shape[1] :].tolist())
    return found


def alike(own: Counter[Any], ours: Counter[Any]) -> float:
    """The smaller of two p-values: of both tokens together, and of the first by itself."""
    firsts = [Counter({t: sum(n for row, n in c.items() if row[0] == t) for t in range(V)}) for c in (own, ours)]
    return min(p_value(own, ours), p_value(*firsts))


@pytest.mark.quick(first=2)
@pytest.mark.parametrize("name", sorted(COUNTED))
def test_generate_and_decgraph_draw_from_one_law(name: str) -> None:
    model = llama(11, initializer_range=0.4)
    torch.manual_seed(1)
    own = sample(model, None, COUNTED[name])
    ours = sample(model, decgraph.hf("autoregressive", backend="torch", batch=BATCH), COUNTED[name])
    assert len(own) >= 10
    assert alike(own, ours) > 1e-4


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("more", [{"temperature": 1.4}, {"repetition_penalty": 3.0}, {"top_k": 5}])
def test_another_law_is_told_apart(more: dict[str, Any]) -> None:
    """The test above can fail: with one setting another, it does."""
    model = llama(11, initializer_range=0.4)
    torch.manual_seed(1)
    own = sample(model, None, COUNTED["together"])
    off = sample(model, decgraph.hf("autoregressive", backend="torch", batch=BATCH), {**COUNTED["together"], **more})
    assert alike(own, off) < 1e-4
