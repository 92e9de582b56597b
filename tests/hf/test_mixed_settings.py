"""Programs that mix distributions, and searches that add up scores, under `generate`'s logits processors.

Processors are applied once, to the mixed scores or to a beam's: transformers' own `generate` is the oracle where it has the
method, elsewhere a plain loop over transformers' module and processors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lib.lazily import processors
from lib.lazily import transformers as hf
from lib.models.hf_models import PROMPT

import decgraph
from decgraph.errors import DecError

SETTINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "bias": lambda: {"sequence_bias": [[[12], 2.0], [[31], -1.5], [[8, 50], 3.0]]},
    "length penalty": lambda: {"exponential_decay_length_penalty": (2, 1.3)},
    "no pair twice": lambda: {"no_repeat_ngram_size": 2},
    "penalty and triples": lambda: {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
    "at least six": lambda: {"min_new_tokens": 6, "repetition_penalty": 1.2},
    "suppressed": lambda: {"suppress_tokens": [50, 12, 31, 7]},
    "own": lambda: {"logits_processor": hf.LogitsProcessorList([processors.Sinking()])},
    "normalised": lambda: {"renormalize_logits": True, "repetition_penalty": 1.2},
    "prefix": lambda: {"prefix_allowed_tokens_fn": lambda batch, ids: list(range(int(ids[-1]) % 3, 60, 2))},
}
PROMPTS = [PROMPT, PROMPT[:, :4], PROMPT.flip(1)]


@pytest.mark.budget(12)
@pytest.mark.quick("bias", "own")
@pytest.mark.parametrize("name", SETTINGS)
def test_guidance_is_that_of_transformers(name: str, target: Any, backend: str) -> None:
    door = decgraph.hf("cfg", scale=2.0, backend=backend)
    for ids in PROMPTS:
        fixed = {"do_sample": False, "max_new_tokens": 16}
        wanted = target.generate(ids, guidance_scale=2.0, **fixed, **SETTINGS[name]())
        assert target.generate(ids, custom_generate=door, **fixed, **SETTINGS[name]()).tolist() == wanted.tolist()


@pytest.mark.budget(14)
@pytest.mark.quick("no pair twice", "at least six")
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("stops", [True, False], ids=["first k", "patient"])
def test_a_beam_is_that_of_transformers(name: str, stops: bool, target: Any, backend: str) -> None:
    door = decgraph.hf("beam", k=3, patient=not stops, backend=backend)
    for ids in PROMPTS:
        fixed = {"do_sample": False, "max_new_tokens": 12}
        wanted = target.generate(ids, num_beams=3, early_stopping=stops, **fixed, **SETTINGS[name]())
        assert target.generate(ids, custom_generate=door, **fixed, **SETTINGS[name]()).tolist() == wanted.tolist()


def scores_of(model: Any, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[:, -1].float()


def looped(mixed: Callable[[list[int], int], torch.Tensor], processors: list[Any], prompt: list[int], new: int) -> list[int]:
    """The likeliest tokens of mixed scores, each after the processors, in their order."""
    out = list(prompt)
    for _ in range(new):
        scores = mixed(out, len(prompt))
        for processor in processors:
            scores = processor(torch.tensor([out]), scores)
        out.append(int(scores.argmax()))
    return out


MIXES: dict[str, tuple[dict[str, Any], Callable[[Any, Any], Callable[[list[int], int], torch.Tensor]]]] = {
    "instructive_decoding": (
        {"epsilon": 0.3},
        lambda target, other: lambda text, n: scores_of(target, text) - 0.3 * scores_of(target, text[n - 1 :]),
    ),
    "adversarial_contrastive": (
        {"alpha": 0.4, "guard": [5, 9], "adversary": [31, 2, 40]},
        lambda target, other: lambda text, n: scores_of(target, [5, 9, *text]) - 0.4 * scores_of(target, [31, 2, 40, *text]),
    ),
    "context_aware_decoding": (
        {"context": 3, "alpha": 0.5},
        lambda target, other: lambda text, n: 1.5 * scores_of(target, text) - 0.5 * scores_of(target, text[3:]),
    ),
    "contrastive_decoding": (
        {"alpha": 0.1, "weight": 0.5, "tau": 1.0},
        lambda target, other: lambda text, n: plausible(scores_of(target, text), scores_of(other, text), 0.1, 0.5),
    ),
    "alignment_enhanced": (
        {"preamble": [5, 9], "shown": 2, "bias": 1.0},
        lambda target, other: lambda text, n: refined(scores_of(target, text), scores_of(target, [5, 9, *text[n - 2 :]])),
    ),
}


def plausible(p: torch.Tensor, q: torch.Tensor, alpha: float, weight: float) -> torch.Tensor:
    p, q = p.log_softmax(-1), q.log_softmax(-1)
    return (p - weight * q).masked_fill(p.exp() < alpha * p.exp().max(), -torch.inf)


def refined(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    sizes = [int((row.softmax(-1).sort(descending=True).values.cumsum(-1) < 0.9).sum()) + 1 for row in (p, q)]
    w = torch.sigmoid(torch.tensor(float(sizes[0] - sizes[1]) - 1.0))
    return (1 - w) * p + w * q


PROCESSORS: dict[str, Callable[[], list[Any]]] = {
    "bias": lambda: [hf.SequenceBiasLogitsProcessor([[[12], 2.0], [[31], -1.5], [[8, 50], 3.0]])],
    "penalty and triples": lambda: [
        hf.RepetitionPenaltyLogitsProcessor(1.3),
        hf.NoRepeatNGramLogitsProcessor(3),
    ],
    "own": lambda: [processors.Sinking()],
}


@pytest.mark.budget(12)
@pytest.mark.quick("own")
@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("name", MIXES)
def test_processors_see_the_mixed_scores_once(name: str, processors: str, target: Any, drafter: Any, backend: str) -> None:
    given, mix = MIXES[name]
    models = {"drafter": drafter} if "drafter" in decgraph.load(name).models else {}
    door = decgraph.hf(name, backend=backend, **models, **given)
    for ids in PROMPTS:
        wanted = looped(mix(target, drafter), PROCESSORS[processors](), ids[0].tolist(), 12)
        settings = {
            "max_new_tokens": 12,
            "do_sample": False,
            "eos_token_id": None,
            "logits_processor": PROCESSORS[processors](),
        }
        assert target.generate(ids, custom_generate=door, **settings)[0].tolist() == wanted


@pytest.mark.parametrize(
    "setting", [{"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.3}, {"sequence_bias": [[[12], 2.0]]}]
)
@pytest.mark.parametrize("name", ["best_first_beam", "mirostat"])
def test_what_a_program_does_not_read_is_refused(name: str, setting: dict[str, Any], target: Any, backend: str) -> None:
    door = decgraph.hf(name, backend=backend)
    with pytest.raises(DecError, match=f"{name} reads unshaped distributions .*would change nothing"):
        target.generate(PROMPT, custom_generate=door, do_sample=False, max_new_tokens=4, **setting)


def test_a_beam_refuses_truncation(target: Any) -> None:
    with pytest.raises(DecError, match="beam reads scores before truncation: top_k would change nothing"):
        target.generate(PROMPT, custom_generate=decgraph.hf("beam"), do_sample=True, top_k=5, max_new_tokens=4)
