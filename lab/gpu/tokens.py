"""Tokens: the reference's on table models, and `generate`'s on random models in float32."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Any

import torch

import decgraph
from decgraph import stdlib
from decgraph.bench.agreement import NEAR_TIE
from decgraph.check.validation import outside
from decgraph.check.worlds import models_for, params_for
from decgraph.hf.generate import custom_generate
from decgraph.runtime.request import Request
from decgraph.runtime.text import detokenizer_of
from lab.gpu.lab import Lab
from lab.gpu.report import Items, Row

V = 512
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.4,
}
SPECIAL = {"vocab_size": V, "max_position_embeddings": 128, "pad_token_id": 1, "bos_token_id": 3, "eos_token_id": 0}
# family: (configuration, class, sizes)
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", SMALL),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", SMALL),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "initializer_range": 0.4}),
    "gemma3": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {
            **SMALL,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
}
SHAPE = "[[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]]"


def stage(lab: Lab) -> Items:
    """Chains, trees, lookup and a head against `generate(do_sample=False)`."""
    for family in FAMILIES if lab.cuda else ("llama",):
        yield f"{family} against generate", partial(against_generate, lab, family)
    yield "llama, eagle2", partial(eagle, lab)


def tables(lab: Lab, tried: str, only: Collection[str] = (), seconds: float = 140) -> Row:
    """Every algorithm of stdlib/ on table models (or some), a backend and the reference, greedy and drawn; how many of the runs
    were in graph mode, and why the others were not."""
    names = [name for name in stdlib.names() if not only or name in only]
    found = lab.spread(compared_tables, [(name, tried) for name in names], seconds)
    wrong, modes = [], Counter[str]()
    for name, told in zip(names, found, strict=True):
        differs, ran = ([told], []) if isinstance(told, str) else told
        wrong += [f"{name}: {what}" for what in differs]
        modes.update(ran)
    graph = modes.pop("graph mode", 0)
    says = f"{len(names)} algorithms, {len(wrong)} of {2 * len(names)} runs differ from the reference"
    if tried == "triton":
        says += f"; {graph} runs in graph mode, {modes.total()} by the driver, most often: "
        says += "; ".join(f"{n} {mode.removeprefix('eager mode: ')}" for mode, n in modes.most_common(3))
    return {"algorithms": len(names), "backend": tried, "graph_mode": graph, "driver": dict(modes.most_common()),
            "wrong": wrong, "right": not wrong, "says": says}  # fmt: skip


def compared_tables(_: Lab | None, task: tuple[str, str]) -> tuple[list[str], list[str]]:
    """The runs of an algorithm by a backend that differ from the reference's, and the modes of all."""
    name, tried = task
    seed, wrong, modes = stdlib.names().index(name), list[str](), list[str]()
    algorithm = decgraph.load(name)
    models, params = models_for(algorithm.function, 7, seed), params_for(algorithm.function, seed)
    given: dict[str, Any] = {"tokenizer": LETTERS, "externs": outside(algorithm.module)["externs"], **params}
    for temperature in (0, 1):
        request = Request((1, 2, 3, 1, 2), limit=10, temperature=temperature, seed=seed)
        made = [
            algorithm.session(models, backend=backend, **given).run(request, keep_events=False)
            for backend in ("reference", tried)
        ]
        # The line that an error is at; backends say why in other words.
        ends = [str(r.error).split(" request ")[0] for r in made]
        modes.append(re.sub(r"^(eager mode: )\d+:\d+: ", r"\1", made[1].mode))
        if made[0].tokens != made[1].tokens or ends[0] != ends[1]:
            wrong.append(f"at {temperature}: {[str(r.error) if r.error else r.tokens for r in made]}")
    return wrong, modes


class Letters:
    """A tokenizer of a letter a token, for programs that read text."""

    def __init__(self, size: int) -> None:
        self.pieces = [chr(ord("a") + n) for n in range(size)]
        self.detokenizer = detokenizer_of(self.pieces)

    def encode(self, text: str) -> tuple[int, ...]:
        """Token 0 for what is no letter of these."""
        return tuple(self.pieces.index(c) if c in self.pieces else 0 for c in text)

    def decode(self, tokens: tuple[int, ...]) -> str:
        """The text of tokens."""
        return self.detokenizer.text(tokens)

    def token(self, text: str) -> int | None:
        """The token of a text, if there is one."""
        return self.pieces.index(text) if text in self.pieces else None

    def spelled(self, token: int) -> str | None:
        """None: no token has another spelling."""
        return None


LETTERS = Letters(7)


def module(family: str, device: torch.device, seed: int = 11) -> Any:
    """A random module of a family in float32, made on the CPU so that it is the same on every device."""
    import transformers

    config, kind, sizes = FAMILIES[family]
    torch.manual_seed(seed)
    return getattr(transformers, kind)(getattr(transformers, config)(**{**SPECIAL, **sizes})).eval().to(device)


@torch.no_grad()
def noisy(model: Any, amount: float = 0.02) -> Any:
    """A drafter: the same weights with noise, so that some guesses are right."""
    made = torch.Generator().manual_seed(7)
    for p in model.parameters():
        p.add_((torch.randn(p.shape, generator=made) * amount).to(p))
    return model


def asked(device: torch.device, rows: int = 3) -> dict[str, Any]:
    """Ragged prompts, padded on the left, as `generate` takes them."""
    made = torch.Generator().manual_seed(4)
    ids = torch.randint(5, V, (rows, 9), generator=made)
    for row in range(rows):
        ids[row, : (2 * row) % 5] = 1
    return {
        "input_ids": ids.to(device),
        "attention_mask": (ids != 1).long().to(device),
        "do_sample": False,
        "max_new_tokens": 24,
        "eos_token_id": None,
    }


def against_generate(lab: Lab, family: str, backend: str = "triton") -> Row:
    """Chains, a tree and lookup against `generate(do_sample=False)`, through decgraph.hf."""
    target, drafter = module(family, lab.device), noisy(module(family, lab.device))
    return compared(
        target,
        asked(lab.device),
        {
            "speculative": {"drafter": drafter, "gamma": 3},
            "sequoia": {"drafter": drafter, "shape": SHAPE},
            "prompt_lookup": {"k": 4},
        },
        backend,
    )


def eagle(lab: Lab, backend: str = "triton") -> Row:
    """A tree drafted by a head that reads the target's states; its module lies on the device."""
    from decgraph.zoo.modeling import EagleConfig, EagleHead

    torch.manual_seed(12)
    made: Any = EagleHead(EagleConfig(**{**SPECIAL, **SMALL, "num_hidden_layers": 1}))
    head = made.eval().to(lab.device)
    return compared(
        module("llama", lab.device), asked(lab.device), {"eagle2": {"head": head, "depth": 3, "k": 3, "budget": 8}}, backend
    )


def compared(target: Any, given: dict[str, Any], algorithms: dict[str, dict[str, Any]], backend: str) -> Row:
    """Rows whose tokens are those of `generate`, by algorithm; where one differs, how near the tie was."""
    plain = target.generate(**given)
    row: Row = {"rows": len(plain), "algorithms": {}}
    start, wrong = given["input_ids"].shape[1], []
    for name, parts in algorithms.items():
        custom = custom_generate(name, backend=backend, **parts)
        got = target.generate(**given, custom_generate=custom)
        gaps = [gap(target, mine, theirs, start) for mine, theirs in zip(got, plain)]
        row["algorithms"][name] = {
            "same": sum(g is None for g in gaps),
            "first_gaps": [g for g in gaps if g is not None],
            "tokens_per_call": round(custom.last[0].stats.tokens_per_call, 3),
            "mode": custom.last[0].mode,
        }
        wrong += [f"{name}: logits {g:.2g} apart" for g in gaps if g is not None and g > NEAR_TIE]
    told = [f"{name} {found['same']}/{len(plain)} the same, {found['mode']}" for name, found in row["algorithms"].items()]
    return {**row, "wrong": wrong, "right": not wrong, "says": "; ".join(told)}


@torch.no_grad()
def gap(target: Any, mine: torch.Tensor, theirs: torch.Tensor, start: int) -> float | None:
    """None where two rows int64[n] are equal; else how far apart the module has the logits of the first two tokens
    that differ."""
    differ = (mine != theirs).nonzero().view(-1)
    if not len(differ):
        return None
    at = int(differ[0])
    path = theirs[:at]
    path = path[int((path[:start] == SPECIAL["pad_token_id"]).sum()) :]
    scores = target(input_ids=path[None], use_cache=False).logits[0, -1].double()
    return float((scores[mine[at]] - scores[theirs[at]]).abs())
