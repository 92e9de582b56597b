"""Drafters whose first layers are models of their own."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any, Optional, Union

import torch

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.tables import untied
from lab.recordings.upstream import Upstream

LAYERS = 3
"""Of the drafter: models end behind the first, the second and the last."""


def models(case: Case) -> dict[str, TableModel]:
    """A target, and a drafter of tables that agrees with it on most tokens; so do its first layers."""
    size, seed = case["size"], case["seed"]
    return {"target": untied(size, seed, window=None), "drafter": Layered(size, seed, case["blend"])}


class Layered(TableModel):
    """A drafter, or its first layers: the fewer, the less they agree with the target."""

    def __init__(self, size: int, seed: int, blend: float, end: int = LAYERS) -> None:
        super().__init__(size, seed, window=None, vocab="t", name=f"drafter{end}")
        self._table = untied(size, seed, blend=(seed + end, blend * (1 + LAYERS - end)))._table
        self.made = (size, seed, blend)

    def derive(self, how: str, *args: object) -> Any:
        """The first layers."""
        assert how == "exit"
        return Layered(*self.made, int(str(args[0])))


class Output(dict[str, Any]):
    """What a module of transformers 4.3x returns."""

    __getattr__ = dict.__getitem__


class Nested:
    """What published code calls `self`. A token's state, and its key in every layer, is the token, so that a model reads what
    its last layer has kept. astray: whether that was another text than was written."""

    def __init__(self, drafter: TableModel, thresholds: tuple[float, ...]) -> None:
        self.parts = {i: drafter if i == LAYERS else drafter.derive("exit", i) for i in range(1, LAYERS + 1)}
        self.intermediate_layers, self.intermediate_thresholds = [*self.parts], [*thresholds, 0]
        self.config = SimpleNamespace(is_encoder_decoder=False)
        self.generation_config = SimpleNamespace(
            pad_token_id=0, eos_token_id=None, output_scores=True, output_attentions=False, output_hidden_states=True,
            return_dict_in_generate=True,
        )  # fmt: skip
        self.ids, self.astray = list[int](), False

    def prepare_inputs_for_generation(self, input_ids: Any, past_key_values: Any = None, **_: Any) -> dict[str, Any]:
        self.ids = input_ids[0].tolist()
        start = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        return {"input_ids": input_ids[:, start:], "past_key_values": past_key_values}

    def _update_model_kwargs_for_generation(self, outputs: Any, kwargs: Any, **_: Any) -> dict[str, Any]:
        return {**kwargs, "past_key_values": outputs["past_key_values"]}

    def soft_llamaForCausalLM_forward(
        self, input_ids: Any = None, inputs_embeds: Any = None, past_key_values: Any = None, draft_target: str = "draft",
        submodel_layer: int = LAYERS, adaptive_layer: int = 0, **_: Any,
    ) -> Output:  # fmt: skip
        state = input_ids[0] if inputs_embeds is None else inputs_embeds[0, :, 0]
        held = [k[0, 0, :, 0] for k, _ in past_key_values or ()] + [state[:0]] * LAYERS
        for i in range(0 if draft_target == "draft" else adaptive_layer, submodel_layer):
            held[i] = torch.cat((held[i].long(), state.long()))
        text = held[submodel_layer - 1].tolist()
        self.astray |= text != self.ids
        row = self.parts[submodel_layer].eval([tuple(text)])[0].weights or ()
        logits = torch.tensor([float(w) for w in row], dtype=torch.float64).log().float()[None, None]
        kept = tuple((x[None, None, :, None], x[None, None, :, None]) for x in held[:LAYERS])
        return Output(logits=logits, past_key_values=kept, hidden_states=(state[None, :, None],) * 2)


def s2d(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Its drafting, by rounds; a draft is verified here, and the caches are cut as its candidate generator cuts them."""
    seen = {
        "torch": torch,
        "Optional": Optional,
        "Union": Union,
        "List": list,
        "warnings": warnings,
        "LogitsProcessorList": Free,
    }
    seen |= {"StoppingCriteriaList": Free, "GenerateNonBeamOutput": Any, "GenerateDecoderOnlyOutput": SimpleNamespace}
    names = ("adaptive_greedy_search", "adjust_submodels_hiddenstates")
    code = upstream.names("inference/model/sd2/decoding.py", *names, **seen)
    target, this = models(case)["target"], Nested(models(case)["drafter"], (case["tau"], case["tau_middle"]))
    this.adjust_submodels_hiddenstates = lambda: code[names[1]](this)  # type: ignore[attr-defined]
    text, kept, drafted, accepted = [*case["prompt"]], None, list[Any](), list[int]()
    end = len(text) + case["limit"]
    while len(text) < end:
        if kept is not None:
            cut = len(text) - 2
            kept = tuple((k[:, :, :cut], v[:, :, :cut]) for k, v in kept)
        ends = Free(len(text) + case["gamma"])
        found = code[names[0]](this, torch.tensor([text]), stopping_criteria=ends, past_key_values=kept)
        assert not this.astray, f"a layer has kept another text, after {len(text) - len(case['prompt'])} tokens"
        kept, chain = found.past_key_values, found.sequences[0, len(text) :].tolist()
        count = 0
        while True:
            weights = target.eval([(*text, *chain[:count])])[0].weights or ()
            token = max(range(len(weights)), key=lambda x: weights[x])
            if count == len(chain) or chain[count] != token:
                break
            count += 1
        drafted.append(chain)
        accepted.append(count)
        text += [*chain[:count], token]
    return {"tokens": text[:end], "drafted": drafted, "accepted": accepted}


class Free:
    """A list of processors that changes nothing; or of the criterion that a text has a length."""

    def __init__(self, reach: int = 0) -> None:
        self.reach = reach

    def __call__(self, ids: Any, scores: Any) -> Any:
        return ids.shape[1] >= self.reach if self.reach else scores


RECORDINGS = {
    "s2d": s2d,
}
