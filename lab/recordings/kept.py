"""Decoders that keep, read or round a part of the keys and values, on a model of one layer and one head: published code chooses
for each head of each layer, a program for all of them."""

from __future__ import annotations

import copy
import math
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional, Union
from unittest.mock import patch

import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv

from lab.recordings import Case
from lab.recordings.upstream import Upstream


@cache
def llama(seed: int, kind: str = "") -> Any:
    """A random Llama of one layer with one head. kind: "own", where queries are keys, so that a token attends to itself most;
    "even", where a second layer, without queries, attends to all alike; "deep", of five layers; "still", of two layers that do
    not know positions: no dimension turns but a pair that queries leave out."""
    torch.manual_seed(seed)
    layers, size = {"even": 2, "deep": 5, "still": 2}.get(kind, 1), 23
    turning = {"rope_type": "default", "rope_theta": 1e60 if kind == "still" else 1e4}
    config = LlamaConfig(
        vocab_size=size, hidden_size=16, intermediate_size=24, num_hidden_layers=layers, num_attention_heads=1,
        num_key_value_heads=1, max_position_embeddings=512, initializer_range=0.6, bos_token_id=None, eos_token_id=None,
        rope_parameters=turning,
    )  # fmt: skip
    made = LlamaForCausalLM(config).eval()
    first, last = made.model.layers[0].self_attn, made.model.layers[-1].self_attn
    with torch.no_grad():
        if kind in ("own", "even"):  # weights of many positions, which say more than the token
            first.k_proj.weight.mul_(0.4)
            first.v_proj.weight.mul_(4)
        if kind == "still":
            for each in made.model.layers:
                each.self_attn.q_proj.weight[[0, config.hidden_size // 2]] = 0
                each.self_attn.v_proj.weight.mul_(3)
        if kind == "own":
            first.q_proj.weight.copy_(first.k_proj.weight)
        if kind == "even":
            last.q_proj.weight.zero_()
            last.v_proj.weight.mul_(4)
    return made


@cache
def loaded(seed: int, kind: str = "") -> Any:
    """The same model, read from a folder by decgraph."""
    from decgraph.runtime.models.hf import load_causal
    from decgraph.runtime.placement import Placement

    with tempfile.TemporaryDirectory() as folder:
        llama(seed, kind).config.save_pretrained(folder)
        save_file(llama(seed, kind).state_dict(), Path(folder, "model.safetensors"))
        return load_causal(Path(folder), placed=Placement("cpu", "float32"))


class Kept:
    """A cache of transformers 4.4x: keys and values by layer, which published code replaces."""

    def __init__(self, layers: int) -> None:
        self.key_cache: list[Any] = [None] * layers
        self.value_cache: list[Any] = [None] * layers

    def get_usable_length(self, new: int, layer: int) -> int:
        return 0 if self.key_cache[layer] is None else int(self.key_cache[layer].shape[-2])

    get_seq_length = get_usable_length

    def update(self, keys: Any, values: Any, layer: int, more: Any = None) -> Any:
        for held, new in ((self.key_cache, keys), (self.value_cache, values)):
            held[layer] = new if held[layer] is None else torch.cat((held[layer], new), 2)
        return self[layer]

    def __getitem__(self, layer: int) -> Any:
        return self.key_cache[layer], self.value_cache[layer]


def attending(model: Any, layer: int, **more: Any) -> SimpleNamespace:
    """What published attention calls `self`: the layer's projections and sizes, and settings of its own in the config."""
    attention, config = model.model.layers[layer].self_attn, model.config
    return SimpleNamespace(
        config=SimpleNamespace(pretraining_tp=1, num_hidden_layers=config.num_hidden_layers, **more), num_heads=1,
        num_key_value_heads=1, num_key_value_groups=1, head_dim=config.hidden_size, hidden_size=config.hidden_size,
        layer_idx=layer, attention_dropout=0.0, training=False, q_proj=attention.q_proj, k_proj=attention.k_proj,
        v_proj=attention.v_proj, o_proj=attention.o_proj, rotary_emb=model.model.rotary_emb,
    )  # fmt: skip


@torch.no_grad()
def written(model: Any, attend: Callable[..., Any], prompt: tuple[int, ...], limit: int) -> list[int]:
    """Greedy decoding: the prompt in one call, then token by token. attend: from a layer, its normed states, a causal mask,
    positions and rotary factors to what attention adds."""
    text, start = [*prompt], 0
    while len(text) < len(prompt) + limit:
        positions = torch.arange(start, len(text))[None]
        state = model.model.embed_tokens(torch.tensor([text[start:]]))
        turned = model.model.rotary_emb(state, positions)
        mask = torch.full((len(text) - start, len(text)), torch.finfo(state.dtype).min).triu(1 + start)[None, None]
        for i, layer in enumerate(model.model.layers):
            state = state + attend(i, layer.input_layernorm(state), mask, positions, turned)
            state = state + layer.mlp(layer.post_attention_layernorm(state))
        start = len(text)
        text.append(int(model.lm_head(model.model.norm(state[:, -1])).argmax()))
    return text


TYPES = {"torch": torch, "nn": nn, "math": math, "Optional": Optional, "Tuple": tuple, "Cache": Any, "logger": None}
ATTENTION = {"LlamaRotaryEmbedding": Any, "LlamaConfig": Any, "F": nn.functional, "pseudo_quantize": None}
TURN = {"apply_rotary_pos_emb": apply_rotary_pos_emb, "repeat_kv": repeat_kv}


def scope(upstream: Upstream, case: Case) -> dict[str, Any]:
    """The metric `slide` behind a prompt that is kept whole."""
    model, held = llama(case["seed"]), Kept(1)
    kept = upstream.names("model/kv_utils.py", "ALLKVCluster", "init_ALLKV", **TYPES)
    name = "llama_attn_forward_ALLKV"
    forward = upstream.names("model/llama_model.py", name, **TYPES, **TURN, init_ALLKV=kept["init_ALLKV"])[name]
    settings = {"decoding_window_size": case["heavy"] + case["recent"], "decoding_recent_size": case["recent"]}
    this = attending(model, 0, decoding_metric="slide", delta=15, **settings)

    def attend(i: int, state: Any, mask: Any, positions: Any, turned: Any) -> Any:
        if state.shape[1] == 1:
            mask = None
        return forward(this, state, mask, positions, held, position_embeddings=turned)[0]

    return {"tokens": written(model, attend, case["prompt"], case["limit"])}


def double_sparsity(upstream: Upstream, case: Case) -> dict[str, Any]:
    """The attention of a layer behind the first two, which read everything, with all channels of a key."""
    model, held = llama(case["seed"], "own"), Kept(3)
    layer = upstream.names("evaluation/modify_llama.py", "LlamaAttention_heavy_hitter", **TYPES, **TURN, **ATTENTION)
    this = attending(model, 0, group_factor=1)
    vars(this).update(layer_idx=2, sorted_channel=None, heavy_const=case["heavy"], group_factor=1, label_bits=16)

    def attend(i: int, state: Any, mask: Any, positions: Any, turned: Any) -> Any:
        forward = layer["LlamaAttention_heavy_hitter"].forward
        return forward(this, state, mask, positions, held, position_embeddings=turned)[0]

    return {"tokens": written(model, attend, case["prompt"], case["limit"])}


def read_by(this: Any, state: Any, turned: Any, held: Kept) -> tuple[Any, Any, Any]:
    """Queries, and the keys and values so far, of a layer: [1, 1, T, C]."""
    q, k, v = (project(state)[:, None] for project in (this.q_proj, this.k_proj, this.v_proj))
    q, k = apply_rotary_pos_emb(q, k, *turned)
    return q, *held.update(k, v, this.layer_idx)


def plain(q: Any, k: Any, v: Any, causal: bool = True) -> Any:
    """Attention of the last queries, as flash attention aligns them."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
    return scores.masked_fill(~mask, -math.inf).softmax(-1) @ v


def critiprefill(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Segments and blocks of one token, whose largest and smallest keys are the key."""
    model, held = llama(case["seed"], "even"), Kept(2)
    module = upstream.module("criti_prefill/ops.py")

    def flash(q: Any, k: Any, v: Any, causal: bool) -> Any:
        return plain(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)

    def attend(i: int, state: Any, mask: Any, positions: Any, turned: Any) -> Any:
        this = attending(model, i)
        q, k, v = read_by(this, state, turned, held)
        if q.shape[2] == 1:
            return this.o_proj(plain(q, k, v)[:, 0])
        this.layer_fusion = False
        sizes = (case["segment"], case["dense"], case["budget"], case["block"])
        with patch.dict(sys.modules, flash_attn=SimpleNamespace(flash_attn_func=flash)):
            return this.o_proj(module.eattention(this, *sizes, *(x.transpose(1, 2) for x in (q, k, v)))[:, :, 0])

    return {"tokens": written(model, attend, tuple(case["prompt"]), case["limit"])}


def gear(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Values by token; keys as they are."""
    model, held = llama(case["seed"]), Kept(1)
    path, name = "GenerationBench/GenerationTest/GEARLM/Simulated/compress_function.py", "token_asymmetric_quantization"
    rounded = upstream.names(path, f"fake_groupwise_{name}", torch=torch, F=nn.functional)[f"fake_groupwise_{name}"]

    def attend(i: int, state: Any, mask: Any, positions: Any, turned: Any) -> Any:
        this = attending(model, i)
        q, k, v = read_by(this, state, turned, held)
        old = max(0, k.shape[2] - case["residual"])
        if old:
            v = torch.cat((rounded(v[:, :, :old], case["bits_v"], v.shape[-1]), v[:, :, old:]), 2)
        return this.o_proj(plain(q, k, v)[:, 0])

    return {"tokens": written(model, attend, case["prompt"], case["limit"])}


def overfill(upstream: Upstream, case: Case) -> dict[str, Any]:
    """The student is the target without the MLPs of its middle layers: narrower there, to nothing."""
    kind = upstream.names(
        "overfill/models/separate_models.py", "TwoStageModel", "EMBEDDING_TRANSFORM_STRATEGIES", nn=nn, torch=torch,
        PyTorchModelHubMixin=Hub, transformers=transformers, DynamicCache=DynamicCache, Dict=dict, Union=Union, List=list,
        **{name: TYPES[name] for name in ("Optional", "Tuple", "Cache")},
    )["TwoStageModel"]  # fmt: skip
    target, student, prompt = llama(case["seed"], "deep"), llama(case["seed"], "deep"), torch.tensor([case["prompt"]])
    student = copy.deepcopy(student)
    with torch.no_grad():
        for i in case["cut"]:
            student.model.layers[i].mlp.down_proj.weight.zero_()
    two = kind.__new__(kind)
    nn.Module.__init__(two)
    vars(two).update(freeze_teacher=True, kept_layers=[*range(len(target.model.layers))], embedding_proj=None)
    two.teacher, two.student = Teacher(target), student
    seen = {"teacher_input_ids": prompt, "teacher_attention_mask": torch.ones_like(prompt)}
    with torch.no_grad():
        first, _ = two.prefill_and_project(*seen.values(), batch_size=1)
        new = [int(first["logits"][0, -1].argmax())]
        while len(new) < case["limit"]:
            read = torch.tensor([new])
            new.append(int(two(read, torch.ones_like(read), **seen).logits[0, -1].argmax()))
    return {"tokens": [*case["prompt"], *new]}


def ape(upstream: Upstream, case: Case) -> dict[str, Any]:
    """The shared tokens, the contexts side by side on them, then the question and what is written, on all keys and values."""
    model, (shared, length, question) = llama(case["seed"], "still"), (case["shared"], case["length"], case["question"])

    def flash(q: Any, k: Any, v: Any, causal: bool, softmax_scale: Any = None, return_attn_probs: bool = False) -> Any:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = q @ k.transpose(-1, -2) * (softmax_scale or 1 / math.sqrt(q.shape[-1]))
        if causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
            scores = scores.masked_fill(~mask, -math.inf)
        out = (scores.softmax(-1) @ v).transpose(1, 2)
        return (out, scores.logsumexp(-1), None) if return_attn_probs else out

    def turned(q: Any, k: Any, cos: Any, sin: Any, at: Any) -> Any:
        return apply_rotary_pos_emb(q, k, cos, sin)

    names = [f"llama_attention_prefill_{part}" for part in ("prefix", "context", "query")]
    given = {**TYPES, "repeat_kv": repeat_kv, "apply_rotary_pos_emb": turned, "flash_attn_func": flash}
    attend = upstream.names("ape/ape_llama.py", *names, **given)
    layers = [attending(model, i) for i in range(len(model.model.layers))]

    def passed(name: str, tokens: Any, start: int, kept: Any) -> Any:
        state, found = model.model.embed_tokens(torch.tensor(tokens)), []
        at = torch.arange(start, start + state.shape[1])[None]
        for this, layer, past in zip(layers, model.model.layers, kept or [None] * len(layers), strict=True):
            normed = layer.input_layernorm(state)
            out, _, new = attend[name](this, normed, None, at, past, use_cache=True)
            state = state + out
            state = state + layer.mlp(layer.post_attention_layernorm(state))
            found.append(new)
        return int(model.lm_head(model.model.norm(state[-1, -1])).argmax()), found

    prompt = case["prompt"]
    contexts = [prompt[i : i + length] for i in range(shared, len(prompt) - question, length)]
    with torch.no_grad():
        _, kept = passed(names[0], [prompt[:shared]], 0, None)
        kept = [(k.repeat(len(contexts), 1, 1, 1), v.repeat(len(contexts), 1, 1, 1), at) for k, v, at in kept]
        _, kept = passed(names[1], contexts, shared, kept)
        joined = []
        for k, v, at in kept:
            row = [torch.cat((x[:1, :, :shared], *x[:, :, shared:].split(1)), 2) for x in (k, v)]
            joined.append((*row, at, len(contexts)))
        token, kept = passed(names[2], [prompt[-question:]], shared, joined)
        new = [token]
        while len(new) < case["limit"]:
            token, kept = passed(names[2], [new[-1:]], 0, kept)
            new.append(token)
    return {"tokens": [*prompt, *new]}


class Hub:
    """What a class with `push_to_hub` inherits."""

    def __init_subclass__(cls, **_: Any) -> None: ...


class Teacher(nn.Module):
    """A model whose keys and values come as tuples, as in transformers 4.4x."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model

    def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> dict[str, Any]:
        found = self.inner(input_ids, attention_mask=attention_mask, use_cache=True)
        layers = found.past_key_values.layers
        return {"logits": found.logits, "past_key_values": [(layer.keys, layer.values) for layer in layers]}


PROMPT = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
RECORDINGS = {
    "kv_evict": scope,
    "kv_sparse_read": double_sparsity,
    "sparse_prefill": critiprefill,
    "kv_quantized": gear,
    "overfill": overfill,
    "parallel_context": ape,
}
