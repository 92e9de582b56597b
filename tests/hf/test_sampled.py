"""Sampled calls: repeatable by seed, decgraph's own session run, and the law that transformers' processors give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lib.lazily import transformers as hf
from lib.models.hf_models import MASK, PROMPT, RAGGED, V

import decgraph
from decgraph.hf.prompts import rows_of
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.processors import BatchReading, shaping_of
from decgraph.runtime.request import Request
from decgraph.runtime.shaping import shaped_probs

Make = Callable[..., Any]
SAMPLED = {"do_sample": True, "max_new_tokens": 16, "temperature": 0.9, "top_k": 20, "eos_token_id": None}


def test_torch_seeds_it(target: Any, made: Make) -> None:
    def sample() -> list[list[int]]:
        ids: list[list[int]] = target.generate(PROMPT, custom_generate=made(), **SAMPLED).tolist()
        return ids

    torch.manual_seed(5)
    first, second = sample(), sample()
    torch.manual_seed(5)
    assert [sample(), sample()] == [first, second]
    assert first != second, "the next call draws on"


def test_a_greedy_call_draws_nothing(target: Any, speculative: Make) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    target.generate(PROMPT, custom_generate=speculative(), do_sample=False, max_new_tokens=4)
    assert torch.equal(before, torch.get_rng_state())


def test_a_seed_of_its_own_or_of_the_call(target: Any, speculative: Make) -> None:
    fixed = speculative(seed=11)
    first = target.generate(PROMPT, custom_generate=fixed, **SAMPLED)
    assert target.generate(PROMPT, custom_generate=fixed, **SAMPLED).tolist() == first.tolist()
    free = speculative()
    assert target.generate(PROMPT, custom_generate=free, seed=11, **SAMPLED).tolist() == first.tolist()
    assert target.generate(PROMPT, custom_generate=free, seed=12, **SAMPLED).tolist() != first.tolist()


def test_it_is_the_session_run(target: Any, drafter: Any, backend: str, speculative: Make) -> None:
    """Every row is the run of a request with the seed, the row's number, and the settings as fields."""
    from decgraph.hf.modules import Binder

    algorithm = decgraph.load("speculative")
    models = Binder(algorithm.module, algorithm.function, {"drafter": drafter}, backend)(target)
    session = algorithm.session(models, backend=backend, gamma=3)
    settings = {**SAMPLED, "repetition_penalty": 1.2, "min_p": 0.02, "top_p": 0.9, "suppress_tokens": [7]}
    got = target.generate(RAGGED, attention_mask=MASK, custom_generate=speculative(seed=3), **settings)
    for row, prompt in enumerate([(1, 5, 9), (1, 5, 9, 11, 5, 9), (1, 44, 3, 20)]):
        request = Request(prompt, max_tokens=16, seed=3, request_id=row, temperature=0.9, top_k=20, top_p=0.9, min_p=0.02,
                          repetition_penalty=1.2, bans=frozenset({7}))  # fmt: skip
        assert got[row, RAGGED.shape[1] :].tolist() == list(session.run(request).tokens)


def test_rows_with_one_prompt_differ(target: Any, speculative: Make) -> None:
    got = target.generate(PROMPT, custom_generate=speculative(seed=1), num_return_sequences=4, **SAMPLED)
    assert got.shape[0] == 4
    assert len({tuple(row) for row in got.tolist()}) > 1


def test_what_is_drawn_has_the_law(target: Any, backend: str) -> None:
    """The first token of 400 rows against what transformers' own processors say of it."""
    door = decgraph.hf("autoregressive", backend=backend, seed=2)
    settings = {"do_sample": True, "max_new_tokens": 1, "temperature": 1.4, "top_k": 6, "eos_token_id": None}
    got = target.generate(PROMPT, custom_generate=door, num_return_sequences=400, **settings)
    counts = Counter(got[:, -1].tolist())
    with torch.no_grad():
        logits = target(PROMPT).logits[:, -1].float()
    scores = hf.TopKLogitsWarper(6)(PROMPT, hf.TemperatureLogitsWarper(1.4)(PROMPT, logits))
    law = scores.softmax(-1)[0].double().numpy()
    assert set(counts) <= set(np.flatnonzero(law).tolist())
    expected = 400 * law[law > 0]
    seen = np.array([counts[t] for t in np.flatnonzero(law)])
    assert ((seen - expected) ** 2 / expected).sum() < 20.5  # five degrees of freedom: one seed in a thousand is beyond


# Lists of processors, in the order in which they are applied; what a Request does and what goes into the hook differs.
LISTS: dict[str, Callable[[], list[Any]]] = {
    "all fields": lambda: [hf.RepetitionPenaltyLogitsProcessor(1.3), hf.SuppressTokensLogitsProcessor([3, 9]),
                   hf.TemperatureLogitsWarper(0.7), hf.TopKLogitsWarper(12), hf.TopPLogitsWarper(0.8),
                   hf.MinPLogitsWarper(0.05)],
    "bias before penalty": lambda: [hf.SequenceBiasLogitsProcessor({(5,): 2.0, (9,): -1.0}),
                            hf.RepetitionPenaltyLogitsProcessor(1.6), hf.TemperatureLogitsWarper(1.3)],
    "bias after penalty": lambda: [hf.RepetitionPenaltyLogitsProcessor(1.6),
                           hf.SequenceBiasLogitsProcessor({(5,): 2.0, (9,): -float("inf")})],
    "temperature after top-p": lambda: [hf.TopPLogitsWarper(0.7), hf.TemperatureLogitsWarper(2.0)],
    "two temperatures": lambda: [hf.TemperatureLogitsWarper(2.0), hf.TemperatureLogitsWarper(0.7)],
    "min-p before top-k": lambda: [hf.MinPLogitsWarper(0.2), hf.TopKLogitsWarper(3)],
    "typical": lambda: [hf.TemperatureLogitsWarper(0.9), hf.TypicalLogitsWarper(0.7)],
    "epsilon and eta": lambda: [hf.EpsilonLogitsWarper(0.02), hf.EtaLogitsWarper(0.1), hf.TopKLogitsWarper(9)],
    "top-h": lambda: [hf.TemperatureLogitsWarper(1.5), hf.TopHLogitsWarper(0.4)],
    "top-p of nothing": lambda: [hf.TopPLogitsWarper(0.0)],
    "top-p that keeps three": lambda: [hf.TopPLogitsWarper(0.05, min_tokens_to_keep=3)],
    "a soft top-k": lambda: [hf.TopKLogitsWarper(4, filter_value=-2.0)],
    "least length and then top-k": lambda: [hf.MinLengthLogitsProcessor(40, [2, 5]), hf.TopKLogitsWarper(4)],
    "top-k and then least length": lambda: [hf.TopKLogitsWarper(30), hf.MinNewTokensLengthLogitsProcessor(6, 3, [2, 5])],
    "no repeated pairs and then a ban": lambda: [hf.NoRepeatNGramLogitsProcessor(2), hf.SuppressTokensLogitsProcessor([3, 9]),
                                         hf.TemperatureLogitsWarper(0.5)],
    "least length of another end": lambda: [hf.MinLengthLogitsProcessor(40, [5, 11])],
    "normalised": lambda: [hf.RepetitionPenaltyLogitsProcessor(1.3), hf.LogitNormalization()],
    "normalised before": lambda: [hf.LogitNormalization(), hf.RepetitionPenaltyLogitsProcessor(1.3)],
    "half of the prompt": lambda: [hf.RepetitionPenaltyLogitsProcessor(1.8, prompt_ignore_length=3)],
    "watermark": lambda: [hf.WatermarkLogitsProcessor(V, "cpu", greenlist_ratio=0.4, bias=3.0)],
    "one of one's own": lambda: [lambda ids, scores: scores.roll(1, -1), hf.TemperatureLogitsWarper(0.5)],
    "one of one's own, last": lambda: [hf.SuppressTokensLogitsProcessor([3, 9]), hf.TemperatureLogitsWarper(0.5),
                               lambda ids, scores: scores.roll(int(ids.shape[1]), -1)],
    "by row": lambda: [hf.RepetitionPenaltyLogitsProcessor(1.8, prompt_ignore_length=torch.tensor([3, 0, 2]))],
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_processors_gives_their_law(name: str) -> None:
    """The law of one step of every row, by a Request's shaping and by calling the list as generate does."""
    torch.manual_seed(1)
    try:
        processors = hf.LogitsProcessorList(LISTS[name]())
    except ValueError:
        assert name == "by row"
        pytest.skip("in transformers 5.17 padding counts as text")
    ids = torch.cat([RAGGED, torch.tensor([[4, 5], [4, 9], [9, 44]])], dim=1)
    scores = torch.randn(3, V) * 2
    law = processors(ids, scores.clone()).softmax(-1).double().numpy()
    for row in rows_of(RAGGED, MASK):
        reading = BatchReading(greedy=False, length=RAGGED.shape[1], copies=1, eos=frozenset({2, 5}), width=V, size=V,
                          device=ids.device)  # fmt: skip
        shaping = shaping_of(processors, reading, row)
        hooks = (shaping.hook,) if shaping.hook is not None else ()
        request = Request(row.prompt, eos=reading.eos, processors=hooks, **{"temperature": 1.0, **shaping.fields})
        path = (*row.prompt, *ids[row.index, RAGGED.shape[1] :].tolist())
        mine = shaped_probs(Scores(logits=scores[row.index].double().numpy()), path, request)
        np.testing.assert_allclose(np.asarray(mine, float), law[row.index], atol=2e-6)


def test_what_a_request_can_do_is_left_to_it() -> None:
    """The hook asks Python for every row of scores, so it stays empty where fields do."""
    (row,) = rows_of(PROMPT, None)
    reading = BatchReading(greedy=False, length=6, copies=1, eos=frozenset({2}), width=V, size=V, device=PROMPT.device)
    shaping = shaping_of(LISTS["all fields"](), reading, row)
    assert shaping.hook is None
    filters = {"top_k": 12, "top_p": 0.8, "min_p": 0.05}
    assert shaping.fields == {"repetition_penalty": 1.3, "bans": frozenset({3, 9}), "temperature": 0.7, **filters}
    split = shaping_of(LISTS["bias before penalty"](), reading, row)
    assert [type(step).__name__ for step in split.hook.steps] == ["SequenceBiasLogitsProcessor"]  # type: ignore[union-attr]
    assert split.fields == {"repetition_penalty": 1.6, "temperature": 1.3}


def test_generates_own_defaults_are_honoured(target: Any, backend: str) -> None:
    """do_sample=True alone means top_k=50 in transformers; a configuration object is read like words."""
    door = decgraph.hf("autoregressive", backend=backend, seed=5)
    config = hf.GenerationConfig(do_sample=True, max_new_tokens=12, temperature=3.0)
    by_config = target.generate(PROMPT, custom_generate=door, generation_config=config)
    words = {"do_sample": True, "max_new_tokens": 12, "temperature": 3.0}
    by_words = target.generate(PROMPT, custom_generate=door, top_k=50, **words)
    assert by_words.tolist() != target.generate(PROMPT, custom_generate=door, top_k=4, **words).tolist()
    assert by_config.tolist() == by_words.tolist()
