"""What cannot be honoured is refused by its name, with what to do instead, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lib.lazily import processors, transformers
from lib.models.hf_models import MASK, PROMPT, RAGGED, V, llama

import decgraph
from decgraph.errors import DecError
from decgraph.hf import settings

Make = Callable[..., Any]


@pytest.fixture
def backend() -> str:
    """A refusal comes before any backend."""
    return "reference"


BACKENDS = ["reference", "torch"]


def refused(model: Any, door: Any, ids: torch.Tensor = PROMPT, **asked: Any) -> str:
    with pytest.raises(DecError) as caught:
        model.generate(ids, custom_generate=door, **{"max_new_tokens": 8, "do_sample": False, **asked})
    text = str(caught.value)
    assert "= try:" in text or "decoder-only" in text or "batch" in text, f"no hint in {text}"
    return text


@pytest.mark.parametrize(
    "asked",
    [
        {"num_beams": 3},
        {"output_attentions": True},
        {"output_hidden_states": True},
        {"prompt_lookup_num_tokens": 3},
    ],
)
def test_settings(asked: dict[str, Any], target: Any, speculative: Make) -> None:
    text = refused(target, speculative(), **asked)
    assert next(iter(asked)) in text


def test_a_cache_that_changes_answers(target: Any) -> None:
    with pytest.raises(DecError, match="cache_implementation='quantized'"):
        settings.refuse(transformers.GenerationConfig(cache_implementation="quantized"), target)


def test_an_assistant_is_a_drafter(target: Any, drafter: Any, speculative: Make) -> None:
    assert "assistant_model" in refused(target, speculative(), assistant_model=drafter)


def test_guidance_keeps_a_cache(target: Any, speculative: Make) -> None:
    assert "UnbatchedClassifierFreeGuidanceLogitsProcessor keeps state" in refused(target, speculative(), guidance_scale=1.5)


def test_a_watermark_with_a_history(target: Any, speculative: Make) -> None:
    config = transformers.SynthIDTextWatermarkingConfig(ngram_len=3, keys=[1, 2, 3])
    assert "SynthIDTextWatermarkLogitsProcessor keeps state" in refused(target, speculative(), watermarking_config=config)


def closure() -> Callable[..., torch.Tensor]:
    last = 0

    def remember(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        nonlocal last
        last = int(ids[0, -1])
        return scores

    return remember


def noise(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return scores + torch.rand_like(scores)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("Counts", "calls"),
        ("Remembers", "memory"),
        ("Accumulates", "mean"),
        ("Rolls", "generator"),
        ("remember", "last"),
        ("noise", "different scores"),
    ],
)
def test_processors_that_keep_state(name: str, what: str, target: Any, speculative: Make) -> None:
    functions = {"remember": closure, "noise": lambda: noise}
    processor = functions[name]() if name in functions else getattr(processors, name)()
    text = refused(target, speculative(), logits_processor=[processor])
    assert f"{name} keeps state between calls" in text
    assert what in text
    assert "input_ids" in text


def test_state_that_comes_later(target: Any, speculative: Make) -> None:
    text = refused(target, speculative(), logits_processor=[processors.Late()])
    assert "Late keeps state between calls: its longest changed" in text


def test_what_is_prepared_once_is_no_state(target: Any, speculative: Make) -> None:
    asked = {"max_new_tokens": 8, "do_sample": False}
    got = target.generate(PROMPT, custom_generate=speculative(), logits_processor=[processors.Prepares()], **asked)
    assert got.tolist() == target.generate(PROMPT, logits_processor=[processors.Prepares()], **asked).tolist()


def test_processors_that_fail_or_give_nonsense(target: Any, speculative: Make) -> None:
    def broken(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no such token")

    text = refused(target, speculative(), logits_processor=[broken])
    assert "broken raised RuntimeError: no such token" in text
    assert "not scores of shape [1, 61]" in refused(target, speculative(), logits_processor=[lambda i, s: s[:, :5]])
    undefined = [lambda ids, scores: scores.clone().fill_(float("nan"))]
    for backend in BACKENDS:
        door = decgraph.hf("autoregressive", backend=backend)
        assert "<lambda> must return finite scores or -inf" in refused(target, door, logits_processor=undefined)


def test_criteria_that_read_scores(target: Any, speculative: Make) -> None:
    text = refused(target, speculative(), stopping_criteria=[processors.Confident()])
    assert "the stopping criterion Confident raised TypeError" in text
    assert "scores None" in text


def test_a_streamer_shows_one_sequence(target: Any, speculative: Make) -> None:
    sink = processors.Sink()
    assert "streamer shows one sequence" in refused(target, speculative(), RAGGED, attention_mask=MASK, streamer=sink)
    assert sink.ended, "who waits for it is told"


def test_padding_in_the_wrong_place(target: Any, speculative: Make) -> None:
    right = torch.tensor([[1, 1, 1, 1, 0, 0]])
    assert "row 0 of the batch is padded on the right" in refused(target, speculative(), attention_mask=right)
    assert "has no token" in refused(target, speculative(), attention_mask=torch.zeros(1, 6, dtype=torch.long))


def test_what_else_a_forward_would_read(target: Any, speculative: Make) -> None:
    assert "position_ids" in refused(target, speculative(), position_ids=torch.arange(6)[None] + 3)
    cache = target(PROMPT, use_cache=True).past_key_values
    with pytest.raises(DecError, match="past_key_values already holds tokens"):
        target.generate(torch.cat([PROMPT, PROMPT], 1), custom_generate=speculative(), past_key_values=cache, max_new_tokens=4)


def test_rows_of_different_lengths_need_a_pad_token(speculative: Make) -> None:
    model = llama(1, pad_token_id=None, eos_token_id=None)
    ends = [lambda ids, scores: int(ids[0, 0]) == 9 and ids.shape[1] > 8]
    assert "pad_token_id" in refused(model, speculative(), torch.tensor([[9, 5, 9, 11], [1, 7, 7, 7]]), stopping_criteria=ends)


@pytest.mark.parametrize(
    ("name", "given", "word"),
    [
        ("speculativ", {}, "speculative"),
        ("speculative", {}, "needs the model `drafter`"),
        ("speculative", {"target": "target", "drafter": "drafter"}, "on which generate is called"),
        ("speculative", {"drafter": "drafter", "gama": 3}, "did you mean gamma"),
        ("speculative", {"drafter": "drafter", "gamma": 100}, "must be in 1..32"),
        ("autoregressive", {"backend": "fpga"}, "no backend called"),
        ("autoregressive", {"batch": 0}, "batch is 0"),
        ("autoregressive", {"heads": "medusa"}, "uses no heads"),
        ("autoregressive", {"stop_strings": "x"}, "tokenizer"),
    ],
)
def test_arguments_of_the_door(name: str, given: dict[str, Any], word: str) -> None:
    with pytest.raises(DecError, match=word):
        decgraph.hf(name, **given)


def test_models_that_do_not_fit(target: Any) -> None:
    with pytest.raises(DecError, match="speak different vocabularies"):
        target.generate(PROMPT, custom_generate=decgraph.hf("speculative", drafter=llama(1, vocab_size=40)), max_new_tokens=2)
    with pytest.raises(DecError, match="needs Medusa heads"):
        target.generate(PROMPT, custom_generate=decgraph.hf("medusa"), max_new_tokens=2)
    with pytest.raises(DecError, match="is not a folder"):
        target.generate(PROMPT, custom_generate=decgraph.hf("speculative", drafter="/nowhere"), max_new_tokens=2)
    with pytest.raises(DecError, match="the batch is empty"):
        decgraph.hf("autoregressive")(target, PROMPT[:0], generation_config=target.generation_config)
    with pytest.raises(DecError, match="a model of transformers is needed, not object"):
        decgraph.hf("autoregressive")(object(), PROMPT, generation_config=target.generation_config)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_in_a_run_names_the_row(target: Any, backend: str) -> None:
    """Every token of the second row is banned."""
    door = decgraph.hf("autoregressive", backend=backend)
    nothing = [lambda ids, scores: scores - float("inf") if int(ids[0, 3]) == 11 else scores]
    text = refused(target, door, RAGGED, attention_mask=MASK, logits_processor=nothing)
    assert "row 1 of the batch" in text
    assert "left no token that may follow" in text


def mamba() -> Any:
    sizes = {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
    return transformers.MambaForCausalLM(transformers.MambaConfig(**sizes)).eval()


def test_recurrent_caches_count_no_tokens() -> None:
    """Mamba's cache refuses `get_seq_length`; the model runs on either backend."""
    module = mamba()
    for backend in BACKENDS:
        made = module.generate(PROMPT, custom_generate=decgraph.hf("autoregressive", backend=backend), max_new_tokens=4)
        assert made.tolist() == module.generate(PROMPT, do_sample=False, max_new_tokens=4).tolist()
    filled = module(PROMPT, use_cache=True).cache_params
    with pytest.raises(DecError, match="cache_params already holds tokens"):
        module.generate(PROMPT, custom_generate=decgraph.hf("autoregressive"), max_new_tokens=4, cache_params=filled)


def test_embeddings_are_refused_as_such(target: Any, speculative: Make) -> None:
    embedded = target.get_input_embeddings()(PROMPT)
    with pytest.raises(DecError, match="inputs_embeds are not supported"):
        target.generate(inputs_embeds=embedded, custom_generate=speculative(), max_new_tokens=4)


def test_ids_of_the_hub_are_refused_when_the_door_is_made() -> None:
    with pytest.raises(DecError, match="nothing is fetched from the Hub") as caught:
        decgraph.hf("speculative", drafter="HuggingFaceTB/SmolLM2-135M")
    assert "from_pretrained" in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_vision_model_without_images_decodes(backend: str) -> None:
    """generate adds an empty `mm_encoder_outputs` by itself."""
    vision = transformers.CLIPVisionConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8
    )
    module = transformers.LlavaForConditionalGeneration(
        transformers.LlavaConfig(vision_config=vision, text_config=llama(1).config)
    ).eval()
    made = module.generate(PROMPT, custom_generate=decgraph.hf("autoregressive", backend=backend), max_new_tokens=6)
    assert made.tolist() == module.generate(PROMPT, do_sample=False, max_new_tokens=6).tolist()
