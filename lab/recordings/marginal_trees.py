"""Trees of what a head says of every place of a block: DDTree, CaDDTree, JetSpec."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from lab.recordings import Case
from lab.recordings.states import CroppedCache, StatedLM, States, TableHead, drafted_below, drawn_by_place
from lab.recordings.tables import untied
from lab.recordings.upstream import Upstream


def models(case: Case) -> dict[str, Any]:
    """A target and a head of its features."""
    target = untied(case["size"], case["seed"], window=None)
    return {"target": target, "head": TableHead(target, case["seed"] + 5, below=0)}


class BlockHead:
    """DFlash's head: behind the target's features, some of them in its cache, it reads a block of noise, the last token and
    masks, and says something of every place but the first. A mask is no token of the vocabulary; a row's path has padding."""

    def __init__(self, head: TableHead, states: States, mask: int) -> None:
        self.states, self.mask, self.device = states, mask, torch.device("cpu")
        self.target_layer_ids = [0]
        states.readers["head"] = head.row

    def __call__(
        self,
        target_hidden: torch.Tensor,
        noise_embedding: torch.Tensor,
        position_ids: torch.Tensor,
        past_key_values: Any,
        **_: Any,
    ) -> torch.Tensor:  # fmt: skip
        many = target_hidden.shape[1]
        rows = torch.cat([target_hidden, noise_embedding], dim=1)[:, None]
        places = torch.stack([position_ids[0], (torch.arange(rows.shape[2]) >= many).long()], -1)[None, None]
        keys, values = past_key_values.update(rows, places.float(), 0)
        at = [(int(p), int(noise), k) for k, (p, noise) in zip(keys[0, 0], values[0, 0].tolist(), strict=True)]
        assert at == sorted(at, key=lambda a: a[:2]) and [a[0] for a in at] == list(range(len(at)))
        features = self.states.read(torch.stack([k for _, noise, k in at if not noise]))
        assert all(text == features[-1][1][: i + 1] for i, (_, text) in enumerate(features)), "features of another text"
        block = [int(k[0]) for _, noise, k in at if noise]
        assert block[1:] == [self.mask] * (len(block) - 1)
        known = features[-1][1]
        return self.states.of([("head", known, (block[0], *[0] * max(0, i - 1))) for i in range(len(block))])[None]


def said(target: StatedLM, accepted: list[int], output: list[int]) -> dict[str, Any]:
    """The columns: what the first call, of the prompt, and those of trees drafted, and what was accepted."""
    calls = [drafted_below(texts, len(texts[0])) for (texts,) in target.calls[1:]]
    return {"tokens": output, "drafted": [[], *calls], "accepted": [0, *accepted]}


def diffusion_tree(upstream: Upstream, case: Case, file: str, how: Any) -> dict[str, Any]:
    """DDTree's loop, or CaDDTree's."""
    made, states = models(case), States()
    target = StatedLM(made["target"], states)
    head = BlockHead(made["head"], states, case["size"])
    noise = drawn_by_place(target, case["seed"]) if case["temperature"] else nullcontext()
    with mock.patch.object(torch.cuda, "synchronize", lambda *_: None), noise:
        module = upstream.module(file, absent=("loguru", "datasets"))
        module.DynamicCache = CroppedCache  # type: ignore[attr-defined]
        generate, more = how(module)
        done = generate(
            head, target, torch.tensor([case["prompt"]]), mask_token_id=case["size"], max_new_tokens=case["limit"],
            block_size=case["block"], stop_token_ids=[*case["eos"]] or None, temperature=case["temperature"], **more,
        )  # fmt: skip
    return said(target, [n - 1 for n in done.acceptance_lengths], done.output_ids[0].tolist())


def ddtree(upstream: Upstream, case: Case) -> dict[str, Any]:
    return diffusion_tree(upstream, case, "ddtree.py", lambda m: (m.ddtree_generate, {"tree_budget": case["budget"]}))


def caddtree(upstream: Upstream, case: Case) -> dict[str, Any]:
    takes = [1 + case["each"] * max(0, n - case["free"]) for n in range(case["most"] + 2)]
    made = upstream.module("cost_model.py").ConvexCostModel
    costs = made([0], list(range(len(takes))), {0: takes}, case["drafting"])
    more = {"cost_model": costs, "max_tree_budget": case["most"]}
    return diffusion_tree(upstream, case, "caddtree.py", lambda m: (m.caddtree_generate, more))


def jetspec(upstream: Upstream, case: Case) -> dict[str, Any]:
    made, states = models(case), States()
    target = StatedLM(made["target"], states)
    target.register_parameter("weight", torch.nn.Parameter(torch.zeros(1)))  # whose type is asked for
    head = made["head"]

    def propose(committed: torch.Tensor, places: int, target_hidden: torch.Tensor) -> torch.Tensor:
        known = states.read(target_hidden)[-1][1]
        root = int(committed[0, -1])
        assert (*known, root) == tuple(committed[0].tolist())
        states.readers["head"] = head.row
        return states.scores(states.of([("head", known, (root, *[0] * i)) for i in range(places)])[None])

    noise = drawn_by_place(target, case["seed"]) if case["temperature"] else nullcontext()
    with upstream.importable(absent=("triton",)), noise:
        from jetspec.core import llm  # type: ignore[import-not-found]
        from jetspec.core.model_runner import ModelRunner  # type: ignore[import-not-found]

        engine = llm.LLM.__new__(llm.LLM)
        engine.model, engine.runner, engine.device = target, ModelRunner(target), "cpu"
        engine.eos_token_ids = {*case["eos"]}
        done = engine.generate_tree(
            torch.tensor([case["prompt"]]), SimpleNamespace(propose_logits=propose), case["block"], case["width"],
            case["budget"], target_layer_ids=[0], return_stats=True, return_text=False,
            sampling_params=llm.SamplingParams(case["temperature"], case["limit"]),
        )  # fmt: skip
    return said(target, [n - 1 for n in done["accept_lengths"]], [*case["prompt"], *done["token_ids"]])


RECORDINGS = {
    "ddtree": ddtree,
    "caddtree": caddtree,
    "jetspec": jetspec,
}
