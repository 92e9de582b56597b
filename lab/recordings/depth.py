"""Fewer layers for some tokens: Unified Layer Skipping, DEL, FREE."""

from __future__ import annotations

import ast
import datetime
import time
from collections import defaultdict
from types import SimpleNamespace
from typing import Any, Optional, Union

import torch

from decgraph.runtime.models.free import FreeModel
from lab.recordings import Case
from lab.recordings.states import States
from lab.recordings.upstream import Upstream


def models(case: Case) -> dict[str, Any]:
    """A free model, whose every state is a hash of what it was computed from."""
    return {"target": FreeModel(case["seed"], case["size"], case["layers"])}


class Block:
    """A layer of a free model as BLOOM calls its own: states in, states and keys out."""

    def __init__(self, model: FreeModel, layer: int, states: States) -> None:
        self.model, self.layer, self.states = model, layer, states

    def __call__(self, hidden_states: torch.Tensor, layer_past: Any, use_cache: bool, **_: Any) -> Any:
        keys = [] if layer_past is None else [key[1] for key in self.states.read(layer_past[0].transpose(1, 2))]
        before, out = len(keys), []
        asked = [key[1] for key in self.states.read(hidden_states)]
        keys += [self.model._keys_values(self.layer, before + i, state) for i, state in enumerate(asked)]
        for i, state in enumerate(asked):
            out.append(self.model._attend(self.layer, before + i, state, keys[: before + i + 1]))
        kept = self.states.of([("keys", key) for key in keys])[None].transpose(1, 2)
        return self.states.of([("state", state) for state in out])[None], (kept, kept)


def unified_skip(upstream: Upstream, case: Case) -> dict[str, Any]:
    model, states, layers = models(case)["target"], States(), case["layers"]
    # their choice of layers stands in the middle of a function
    script = ast.parse(upstream.text("codes/run_clm_llms.py"))
    chosen = next(
        node
        for node in ast.walk(script)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("target_speedup is not None")
    )
    holder = SimpleNamespace()
    given = {"model_args": SimpleNamespace(target_speedup=case["speedup"]), "config": SimpleNamespace(n_layer=layers)}
    exec(compile(ast.Module([chosen], []), "codes/run_clm_llms.py", "exec"), {**given, "model": holder})
    as_it_is = lambda *_, **__: lambda function: function
    of = upstream.names(
        "codes/modeling_bloom.py", "BloomModel", BloomPreTrainedModel=torch.nn.Module, torch=torch, BloomConfig=None,
        add_start_docstrings=as_it_is, add_start_docstrings_to_model_forward=as_it_is, add_code_sample_docstrings=as_it_is,
        BLOOM_START_DOCSTRING="", BLOOM_INPUTS_DOCSTRING="", _CHECKPOINT_FOR_DOC="", _CONFIG_FOR_DOC="", nn=torch.nn,
        Tuple=tuple, Optional=Optional, Union=Union, BaseModelOutputWithPastAndCrossAttentions=SimpleNamespace, time=time,
    )["BloomModel"]  # fmt: skip
    flags = {"output_attentions": False, "output_hidden_states": False, "use_cache": True, "use_return_dict": True}
    bloom = SimpleNamespace(
        config=SimpleNamespace(n_layer=layers, **flags), h=[Block(model, i, states) for i in range(layers)], num_heads=1,
        training=False, gradient_checkpointing=False, get_head_mask=lambda mask, n: [None] * n,
        word_embeddings=lambda ids: states.of([("state", model._embed(t, i)) for i, t in enumerate(ids[0].tolist())])[None],
        word_embeddings_layernorm=lambda x: x, build_alibi_tensor=lambda *_, **__: None,
        _prepare_attn_mask=lambda *_, **__: None,
    )  # fmt: skip
    text, past, new = list(case["prompt"]), None, list(case["prompt"])
    while len(text) < len(case["prompt"]) + case["limit"] and text[-1:] != [*case["eos"]][:1]:
        done = of.forward(bloom, torch.tensor([new]), past, skip_decode_reserved_layers=holder.skip_decode_reserved_layers)
        ((_, state),) = states.read(done.last_hidden_state[:, -1])
        row = model.read_out(state).weights
        past, new = done.past_key_values, [row.index(max(row))]
        text += new
    return {"tokens": text}


class Legacy:
    """A cache of keys and values by layer, as transformers had it before version 5."""

    def __init__(self) -> None:
        self.kept: dict[int, Any] = {}

    @classmethod
    def from_legacy_cache(cls, past: Any) -> Legacy:
        """From pairs by layer."""
        made = cls()
        made.kept = dict(enumerate(past or ()))
        return made

    def to_legacy_cache(self) -> Any:
        """Pairs by layer."""
        return tuple(self.kept[i] for i in range(len(self.kept)))

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, layer: int) -> Any:
        return self.kept[layer]


class Layer:
    """A layer of a free model as Llama's are called."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def __call__(self, hidden_states: torch.Tensor, position_ids: torch.Tensor, past_key_value: Legacy, **_: Any) -> Any:
        held = past_key_value.kept.get(self.block.layer)
        past = None if held is None else (held[0][:, 0].transpose(1, 2),) * 2
        assert position_ids[0].tolist() == [*range(int(0 if held is None else held[0].shape[2]), int(position_ids[0, -1]) + 1)]
        out, (kept, _) = self.block(hidden_states, past, True)
        past_key_value.kept[self.block.layer] = (kept.transpose(1, 2)[:, None],) * 2
        return out, past_key_value


class Head:
    """A head that reads states, with a weight whose device is asked for."""

    weight = torch.zeros(1)

    def __init__(self, states: States) -> None:
        self.states = states

    def __call__(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.states.scores(hidden_states)


def del_(upstream: Upstream, case: Case) -> dict[str, Any]:
    model, states = models(case)["target"], States()
    states.readers["state"] = lambda state: model.read_out(state).weights or ()
    inner = SimpleNamespace(
        layers=[Layer(Block(model, i, states)) for i in range(case["layers"])], norm=lambda x: x,
        embed_tokens=lambda ids: states.of([("state", model._embed(t, i)) for i, t in enumerate(ids[0].tolist())])[None],
    )  # fmt: skip
    llama = SimpleNamespace(model=inner, lm_head=Head(states), device=torch.device("cpu"))
    drafted, accepted = list[Any](), list[int]()
    with upstream.importable(absent=("lxml", "colorama", "matplotlib", "self_speculation.speculative_streamer")):
        from self_speculation import DEL_speculation_generator, llama_model_utils  # type: ignore[import-not-found]

        llama_model_utils.transformers = SimpleNamespace(cache_utils=SimpleNamespace(DynamicCache=Legacy))
        of = DEL_speculation_generator.DELSpeculativeGenerationStrategy

        class Noted(of):  # type: ignore[misc,valid-type]
            def single_step_speculation(self, **more: Any) -> Any:
                """A round, of which the drafts are noted."""
                found = super().single_step_speculation(**more)
                drafted.append(found[-1])
                accepted.append(found[-2])
                return found

        verify = DEL_speculation_generator.forward_remainder_DEL
        chains = list[list[int]]()

        def noted(model: Any, tokens: torch.Tensor, *more: Any) -> Any:
            chains.append(tokens[0].tolist())
            return verify(model, tokens, *more)

        DEL_speculation_generator.forward_remainder_DEL = noted
        settings = SimpleNamespace(
            max_steps=case["limit"], sample=False, temperature=0.0, top_k=0, top_p=1.0, enable_fly=False, fly_win_len=0
        )
        done = Noted().generate_token_ids(llama, [*case["prompt"]], [*case["eos"]], settings)
    paths = [[tuple(c[-n:][: i + 1]) for i in range(n)] for c, n in zip(chains, drafted, strict=True)]
    return {
        "tokens": [*case["prompt"], *done.predicted_tokens[: case["limit"]]],
        "drafted": paths,
        "accepted": accepted,
    }


class Ignored:
    """A time that nobody reads."""

    def __add__(self, other: Any) -> Ignored:
        return self

    def __getitem__(self, index: Any) -> Ignored:
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        """Forgotten."""


class T5Layer:
    """A layer of a free model as the decoder's of FREE's T5 are called, without an encoder."""

    key_value_gen_time, attn_time, ffn_time = (), (), 0

    def __init__(self, block: Block) -> None:
        self.block = block
        bias = lambda queries, keys, device: torch.zeros(1, 1, queries, keys)
        self.layer = [SimpleNamespace(SelfAttention=SimpleNamespace(compute_bias=bias))]

    def gen_cross_attn_key_value(self, *_: Any, **__: Any) -> Any:
        """No keys yet."""
        return None, None

    def __call__(self, hidden_states: torch.Tensor, past_key_value: Any, skip_mask: bool, **_: Any) -> Any:
        assert not skip_mask
        held = None if past_key_value is None or past_key_value[0] is None else (past_key_value[0][:, 0].transpose(1, 2),) * 2
        out, (kept, _) = self.block(hidden_states, held, True)
        return out, (kept.transpose(1, 2)[:, None],) * 2, None


def free(upstream: Upstream, case: Case) -> dict[str, Any]:
    model, states, n = models(case)["target"], States(), case["layers"]
    states.readers["state"] = lambda state: model.read_out(state).weights or ()
    conf = upstream.names(
        "util/skip_conf.py", "softmax_confidence", "meta_confidence", "get_confidence_class", "get_skip_mask", torch=torch,
        np=None, AutoConfig=None,
    )  # fmt: skip
    of = upstream.names(
        "models/deploying_t5.py", "DeployT5Stack", T5Stack=object, T5Config=None, torch=torch, datetime=datetime,
        get_skip_mask=conf["get_skip_mask"], BaseModelOutputWithPastAndCrossAttentions=SimpleNamespace,
    )["DeployT5Stack"]  # fmt: skip
    config = SimpleNamespace(
        use_synchronize=False, use_cache=True, output_attentions=False, output_hidden_states=False, use_return_dict=True,
        num_layers=n, static_exit_layer=None, tie_word_embeddings=False, exit_conf_type=None, parallel_gen_token=True,
        shallow2deep_conf_type="softmax", shallow2deep_conf_threshold=case["tau"], copy_skipped_hidden_states=False,
        use_adapt_threshold=False, parallel_causal_mask=True, use_early_exit=False, use_shallow_deep=True,
    )  # fmt: skip

    class Stack:
        is_decoder, gradient_checkpointing, training = True, False, False
        use_shallow_deep, use_early_exit, shallow_exit_layer, bmm_threshold = True, False, case["exit"], None
        deploy_time, block_op = defaultdict[str, Any](Ignored), [0] * n
        parallel_tokens_shallow = parallel_tokens_deep = 0
        block = [T5Layer(Block(model, i, states)) for i in range(n)]
        forward, parallel_gen_token = of.forward, of.parallel_gen_token
        dropout = final_layer_norm = staticmethod(lambda x: x)
        get_head_mask = staticmethod(lambda mask, n: [None] * n)
        get_extended_attention_mask = staticmethod(lambda mask, shape: torch.zeros(1, 1, shape[1], mask.shape[-1]))
        embed_tokens = staticmethod(
            lambda ids: states.of([("state", model._embed(t, i)) for i, t in enumerate(ids[0].tolist())])[None]
        )

    Stack.config = config  # type: ignore[attr-defined]
    stack, text, deep, past = Stack(), list(case["prompt"]), list[int](), None
    while len(text) < len(case["prompt"]) + case["limit"] and text[-1] not in case["eos"]:
        done = stack.forward(torch.tensor([text[-1:]]), past_key_values=past, lm_head=states.scores)
        logits = stack.lm_logits  # type: ignore[attr-defined]
        if logits is None:
            deep.append(len(text))
            logits = states.scores(done.last_hidden_state)
        past = done.past_key_values
        text.append(int(logits[0, -1].argmax()))
    return {"tokens": text, "deep": deep}


RECORDINGS = {
    "free": free,
    "del": del_,
    "unified_skip": unified_skip,
}
