"""Trees of a head on the target's features, in forks of EAGLE-2's code: Gumiho, Jakiro."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from lab.recordings import Case, Recording, tabled
from lab.recordings.states import HeadNet, KeptLM, States, TableHead, told
from lab.recordings.tables import untied
from lab.recordings.upstream import Upstream

PACKAGES = ("loguru", "addict", "accelerate", "huggingface_hub", "fastchat")


def gumiho_models(case: Case) -> dict[str, Any]:
    """A target, a head that makes levels one after the other, and one that does not see what stands below the last of them."""
    target = untied(case["size"], case["seed"], window=None)
    serial, parallel = TableHead(target, case["seed"] + 20), TableHead(target, case["seed"] + 50, below=case["early"])
    return {"target": target, "serial": serial, "parallel": parallel}


def jakiro_models(case: Case) -> dict[str, Any]:
    """A target, and the two mixtures of the draft layer's experts."""
    target = untied(case["size"], case["seed"], window=None)
    return {"target": target, "head": TableHead(target, case["seed"] + 20), "ahead": TableHead(target, case["seed"] + 50)}


def decoded(case: Case, model: Any, loop: str, target: KeptLM) -> dict[str, Any]:
    """Run a fork's loop: `model` is its class, made without what loads weights."""
    model.base_model, model.config = target, target.config
    model.tokenizer = SimpleNamespace(eos_token_id=next(iter(case["eos"]), -1))
    ids = getattr(model, loop)(torch.tensor([case["prompt"]]), max_new_tokens=case["limit"])
    return told(target.calls, case, ids[0].tolist())


def bare(kind: Any) -> Any:
    """A module of a class whose __init__ loads weights."""
    made = kind.__new__(kind)
    torch.nn.Module.__init__(made)
    return made


class GumihoNet(HeadNet):
    """With heads beside each other, which go on from the path of the last level's token. mlp_num: how many."""

    mlp_num: int

    def __call__(self, hidden_states: torch.Tensor, input_ids: torch.Tensor, *more: Any, mode: str = "", **others: Any) -> Any:
        if mode != "mlp_generate":
            return super().__call__(hidden_states, input_ids, *more, **others)
        paths = self.paths(hidden_states[:, -1], input_ids[:, -1])
        return [
            self.states.of([("parallel", known, (*path, *[0] * j)) for known, path in paths])[:, None]
            for j in range(self.mlp_num)
        ]


class JakiroNet(HeadNet):
    """With a second mixture in the call before the last."""

    def __call__(self, *args: Any, penult_forward: bool = False, **more: Any) -> Any:
        states, past = super().__call__(*args, **more)
        if penult_forward:
            ahead = self.states.of([("ahead", *key[1:]) for key in self.states.read(states)])[None]
            states = torch.stack([states, ahead])
        return states, past


def jakiro(upstream: Upstream, case: Case) -> dict[str, Any]:
    made, states = jakiro_models(case), States()
    target = KeptLM(made["target"], states)
    with upstream.importable(
        absent=(*PACKAGES, *(f"jakiro.model.modeling_{name}_kv" for name in ("llama", "mixtral", "qwen2")))
    ):
        from jakiro.model import cnets, ea_model  # type: ignore[import-not-found]

        class Net(JakiroNet):
            topK_genrate, init_tree = cnets.Model.topK_genrate, cnets.Model.init_tree

        model = bare(ea_model.EaModel)
        heads = {"head": made["head"], "ahead": made["ahead"]}
        model.ea_layer = Net(heads, states, top_k=case["k"], depth=case["depth"], total_tokens=case["budget"])
        model.ea_layer.init_tree()
        return decoded(case, model, "eagenerate", target)


def gumiho(upstream: Upstream, case: Case) -> dict[str, Any]:
    made, states = gumiho_models(case), States()
    target = KeptLM(made["target"], states)
    args = SimpleNamespace(
        total_tokens=case["budget"] + 1, top_k=case["k"], depth=case["early"] - 1 + case["late"], mlptopk=case["offers"],
        pruning=case["width"], complete_mask=0,
    )  # fmt: skip
    with upstream.importable(absent=(*PACKAGES, "gumiho.model.modeling_llama_kv")):
        from gumiho.model import cnets, gumiho_model  # type: ignore[import-not-found]

        class Net(GumihoNet):
            topK_genrate = cnets.Model.topK_genrate

        model = bare(gumiho_model.GumihoModel)
        model.gumiho_layer = Net(
            {"head": made["serial"], "parallel": made["parallel"]}, states, masked=False, args=args, mlp_num=case["late"],
            config=SimpleNamespace(hidden_size=2, vocab_size=case["size"]), total_tokens=case["budget"],
            position_ids=torch.zeros(case["k"], dtype=torch.long),
        )  # fmt: skip
        return decoded(case, model, "gumihoGenerate", target)


RECORDINGS = [
    Recording(
        "gumiho",
        "AMD-AIG-AIMA/Gumiho",
        "9a1bc87cd18e702399c3be697b2683d7e9567105",
        "gumiho/model/gumiho_model.py, GumihoModel.gumihoGenerate; cnets.py, Model.topK_genrate",
        gumiho,
        tabled(
            "{seed} {early} {late} {k} {offers} {width} {budget}",
            "seed size prompt early late k offers width budget limit eos",
            (
                (1, 10, (1, 2, 3), 2, 3, 3, 5, 4, 9, 16, ()),
                (2, 10, (4,), 3, 2, 4, 2, 6, 8, 20, ()),
                (3, 10, (1, 2), 2, 2, 3, 2, 2, 10, 16, (3,)),
                (4, 36, (3, 2, 1, 0, 5), 2, 5, 14, 35, 35, 63, 6, ()),
                (5, 10, (7, 7, 2), 2, 1, 5, 3, 3, 6, 24, (2,)),
            ),
        ),
        "greedy",
        "early = depth - mlp_num + 1, late = mlp_num, offers = mlptopk, width = pruning, budget = total_tokens - 1; "
        "complete_mask = 0, since branches that it fills are not lossless; a head's row is of its own path: published serial "
        "levels have no tree mask, and parallel heads read the first level's tokens in the order before the last choice",
    ),
    Recording(
        "jakiro",
        "haiduo/Jakiro",
        "f8b018d307b827ed186ddb4e83cfd9d861f91c69",
        "jakiro/model/ea_model.py, EaModel.eagenerate; cnets.py, Model.topK_genrate",
        jakiro,
        tabled(
            "{seed} {depth} {k} {budget}",
            "seed size prompt depth k budget limit eos",
            (
                (1, 10, (1, 2, 3), 3, 3, 12, 16, ()),
                (2, 10, (4,), 2, 4, 7, 20, ()),
                (3, 10, (1, 2), 4, 3, 20, 16, (6,)),
                (4, 12, (3, 2, 1, 0, 5), 5, 10, 59, 6, ()),
                (5, 10, (1, 2), 2, 3, 19, 16, ()),
                (6, 10, (7, 7, 2), 3, 3, 28, 24, ()),
            ),
        ),
        "greedy",
        "budget = total_tokens - 1",
    ),
]
