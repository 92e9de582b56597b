"""What is looked at of a module is longer than its windows: a small copy is compared with itself, once for each config."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import transformers as T
from lib.models.hf_models import llama

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models.decoder import small
from decgraph.runtime.models.decoder.make import net_of_module
from decgraph.runtime.models.decoder.module import ModuleDecoder

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
KINDS = {"sliding_window": 8, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
GPT_NEO = {"vocab_size": 97, "hidden_size": 32, "num_layers": 4, "num_heads": 4, "bos_token_id": 1, "eos_token_id": 2,
           "attention_types": [[["global", "local"], 2]], "pad_token_id": 0}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_neo": ("GPTNeo", {**GPT_NEO, "window_size": 8}),
    "modernbert-decoder": ("ModernBertDecoder", {**SIZES, "local_attention": 8}),
    "exaone4": ("Exaone4", {**SIZES, **KINDS}),
    "gemma2": ("Gemma2", {**SIZES, **KINDS, "head_dim": 8}),
    "cohere2": ("Cohere2", {**SIZES, **KINDS}),
    "olmo3": ("Olmo3", {**SIZES, **KINDS}),
    "ministral": ("Ministral", {**SIZES, **KINDS, "head_dim": 8}),
    "mistral": ("Mistral", {**SIZES, "sliding_window": 8}),
    "starcoder2": ("Starcoder2", {**SIZES, "sliding_window": 8}),
    "smollm3": ("SmolLM3", {**SIZES, "sliding_window": 8, "use_sliding_window": True}),
    "cwm": ("Cwm", {**SIZES, **KINDS}),
    "granite": ("Granite", {**SIZES, "logits_scaling": 4.0}),
    "bert-generation": ("BertGenerationDecoder", {**SIZES, "is_decoder": True}),
}
IDS = torch.tensor([[*range(5, 30), *range(9, 20)]])
GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": None, "pad_token_id": 0}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without verdicts."""
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def module(name: str) -> Any:
    """A module with matrices so large that a wrong mask shows."""
    family, config = FAMILIES[name]
    torch.manual_seed(3)
    kind = getattr(T, family if hasattr(T, family) else f"{family}ForCausalLM")
    made = kind(kind.config_class(**config)).eval().requires_grad_(False)
    for weight in made.parameters():
        if weight.dim() > 1:
            weight.copy_(torch.randn(weight.shape) * 1.5 * weight.shape[-1] ** -0.5)
    return made


@pytest.mark.quick("gpt_neo", "modernbert-decoder")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.budget(6)
@pytest.mark.parametrize("name", FAMILIES)
def test_modules_and_folders_past_their_windows(name: str, tmp_path: Path) -> None:
    """`generate`'s tokens in both ways, and the module's log-probabilities."""
    made = module(name)
    wanted = made.generate(IDS, **GREEDY)[0, IDS.shape[1] :].tolist()
    for algorithm in ("autoregressive", "prompt_lookup"):
        assert made.generate(IDS, custom_generate=decgraph.hf(algorithm), **GREEDY)[0, IDS.shape[1] :].tolist() == wanted
    made.save_pretrained(tmp_path)
    asked = {"max_tokens": 12, "temperature": 0, "eos": (), "logprobs": 0}
    result = decgraph.run("autoregressive", IDS[0].tolist(), {"target": str(tmp_path)}, **asked)
    assert list(result.tokens) == wanted
    scores = made(input_ids=torch.cat([IDS, torch.tensor([wanted])], 1)).logits[0, IDS.shape[1] - 1 : -1].double()
    assert result.logprobs is not None
    assert torch.tensor(result.logprobs.tokens) == pytest.approx(scores.log_softmax(-1)[range(12), wanted], abs=1e-4)


def test_a_window_longer_than_the_tokens_that_are_tried_is_seen(cache: Path) -> None:
    """GPT-Neo's window of 256 stands in a buffer of its attention, which counts rows of keys."""
    torch.manual_seed(3)
    made = T.GPTNeoForCausalLM(T.GPTNeoConfig(**GPT_NEO)).eval()
    for _ in range(2):  # by comparison, and by what is kept of it
        with pytest.raises(DecError, match="GPTNeoModel with a cache differs from itself"):
            ModuleDecoder(made.base_model, "neo").probed()


@pytest.mark.filterwarnings("ignore")
def test_a_window_that_is_read_with_a_cache_alone_is_seen(cache: Path) -> None:
    """Moshi's forward looks at all tokens, and its cache keeps those of a window."""
    made = T.MoshiForCausalLM(T.MoshiConfig(**SIZES, ffn_dim=96)).eval()
    with pytest.raises(DecError, match="MoshiModel with a cache differs from itself"):
        made.generate(IDS, custom_generate=decgraph.hf("autoregressive"), **GREEDY)


def test_a_copy_is_compared_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    copied = small.small_copy
    monkeypatch.setattr(small, "small_copy", lambda base: seen.append(base) or copied(base))
    for _ in range(2):
        ModuleDecoder(llama(1).base_model, "one").probed()
    assert len(seen) == 1
    ModuleDecoder(module("mistral").base_model, "another").probed()
    assert len(seen) == 2


def test_the_state_of_torch_s_generator_stays(cache: Path) -> None:
    made = llama(1)
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    net_of_module(made)
    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("CpmAnt", {"vocab_size": 60, "hidden_size": 32, "num_attention_heads": 4, "dim_head": 8, "dim_ff": 48,
                    "num_hidden_layers": 2}),
        ("OpenAIGPTLMHead", {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    ],
)  # fmt: skip
def test_what_a_module_s_own_code_raises_is_a_refusal(kind: str, config: dict[str, Any], tmp_path: Path) -> None:
    kind = f"{kind}ForCausalLM" if hasattr(T, f"{kind}ForCausalLM") else f"{kind}Model"
    made = getattr(T, kind)(getattr(T, kind).config_class(**config)).eval()
    with pytest.raises(DecError, match="is not supported: .*cannot be run on a mask"):
        made.generate(torch.tensor([[5, 6, 7]]), custom_generate=decgraph.hf("autoregressive"), **GREEDY)
    made.save_pretrained(tmp_path)
    with pytest.raises(DecError, match="is not supported: .*cannot be run on a mask"):
        decgraph.run("autoregressive", [5, 6, 7], {"target": str(tmp_path)}, max_tokens=4)


def test_hooks_that_transformers_leaves_are_no_caller_s() -> None:
    made, door = llama(1), decgraph.hf("autoregressive")
    for use in (
        lambda: None,
        lambda: made(IDS % 60, output_hidden_states=True),
        lambda: made(IDS % 60, output_attentions=True),
    ):
        use()
        made.generate(IDS % 60, custom_generate=door, **GREEDY)
        assert door.last[0].forwards["target"].way == "decoder"
    made.base_model.layers[0].register_forward_hook(lambda *_: None)
    made.generate(IDS % 60, custom_generate=door, **GREEDY)
    assert door.last[0].forwards["target"].way == "module"


def test_tokens_masked_between_others_are_left_out_where_nothing_counts_them() -> None:
    made, mask = llama(1), torch.ones(1, 12, dtype=torch.long)
    mask[0, [0, 3, 4, 9]] = 0
    ids = IDS[:, :12] % 60
    wanted = made.generate(ids, attention_mask=mask, **GREEDY)
    assert torch.equal(made.generate(ids, attention_mask=mask, custom_generate=decgraph.hf("prompt_lookup"), **GREEDY), wanted)
    for other, more in ((module("mistral"), {}), (made, {"repetition_penalty": 1.3})):
        with pytest.raises(DecError, match="padded in the middle"):
            other.generate(ids, attention_mask=mask, custom_generate=decgraph.hf("autoregressive"), **more, **GREEDY)
    with pytest.raises(DecError, match="padded on the right"):
        made.generate(ids, attention_mask=mask.flip(1), custom_generate=decgraph.hf("autoregressive"), **GREEDY)


def test_a_module_goes_when_only_its_sessions_have_it() -> None:
    made, door = llama(1), decgraph.hf("prompt_lookup")
    made.generate(IDS % 60, custom_generate=door, **GREEDY)
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None and door.last


def test_a_caller_goes_on_from_the_cache_of_a_returned_dict() -> None:
    made, ids = llama(1), torch.tensor([[0, 0, 7, 8, 9], [4, 5, 6, 7, 8]])
    given = {**GREEDY, "attention_mask": (ids != 0).long(), "return_dict_in_generate": True}
    ours, theirs = (made.generate(ids, **given, **more) for more in ({"custom_generate": decgraph.hf("autoregressive")}, {}))
    assert ours.past_key_values.get_seq_length() == theirs.past_key_values.get_seq_length()
    for mine, other in zip(ours.past_key_values.layers, theirs.past_key_values.layers, strict=True):
        torch.testing.assert_close(mine.keys[:, :, 2:], other.keys[:, :, 2:], rtol=1e-4, atol=1e-5)
