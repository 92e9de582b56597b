"""Fewer layers for some tokens: Unified Layer Skipping."""

from __future__ import annotations

import ast
import time
from types import SimpleNamespace
from typing import Any, Optional, Union

import torch

from decgraph.runtime.models.free import FreeModel
from lab.recordings import Case, Recording, tabled
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


RECORDINGS = [
    Recording(
        "unified_skip",
        "Adaxry/Unified_Layer_Skipping",
        "ad84c1e041c5cf6ec54e3036ed4d0649be6d9306",
        "codes/modeling_bloom.py, BloomModel.forward; codes/run_clm_llms.py, main, the choice of layers",
        unified_skip,
        tabled(
            "{seed} {layers} layers by {speedup}",
            "seed size prompt layers speedup limit eos",
            (
                (1, 11, (1, 2, 3), 6, 2.0, 12, ()),
                (2, 11, (4,), 9, 1.5, 12, ()),
                (3, 11, (1, 2), 10, 3.0, 16, (5,)),
                (4, 11, (3, 2, 1, 0, 5), 30, 5.0, 8, ()),
                (5, 11, (1, 2), 8, 1.0, 8, ()),
                (7, 11, (1, 2), 11, 2.9, 12, ()),
                (8, 11, (1, 2), 32, 2.0, 8, ()),
            ),
        ),
        "greedy",
        "the layers are a free model's, whose states are hashes; the loop around the calls is generate's, greedy",
    ),
]
