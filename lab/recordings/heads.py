"""Heads of 2026 whose drafts know one another, in the folders that their authors' classes write: DFlash 2, Domino, DSpark.

The folders are data (tests/fidelity/golden/heads/checkpoints): `write` draws small weights, fits them for a minute to what the
target says, so that drafts are accepted here and refused there, and saves them with the authors' `save_pretrained`; beside them
are the authors' logits of several places, also behind a draft of which a part was accepted. The recordings are their own loops.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lab.recordings import GOLDEN, Case
from lab.recordings.tables import Stream
from lab.recordings.upstream import Upstream

FOLDERS = GOLDEN.parent / "heads" / "checkpoints"
TARGET = GOLDEN.parent / "ar" / "models" / "target"
MASK = 3
IDS = [25, 7, 8, 28, 7, 17, 11, 9, 14, 6, 19, 13, 4, 20, 9, 11]
SHAPE: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 64, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "num_target_layers": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


class Rounds(Stream):
    """Noise by what is drawn: the n-th draft of a round, its n-th coin, the target's draw that ends it (round -1: the one
    before all drafts), or the target's at a position. It does not matter how many more drafts and coins a side draws."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seed, self.round, self.coins = seed, -1, 0

    def numbers(self, *place: int, n: int = 1) -> np.ndarray:
        """float64[n]: uniforms of a place."""
        return np.random.default_rng([self.seed, *(x + 1 for x in place)]).uniform(1e-9, 1 - 1e-9, n)

    def at(self, number: int) -> None:
        """Coins are of this round."""
        if number != self.round:
            self.round, self.coins = number, 0

    def drafted(self, number: int, place: int, n: int) -> np.ndarray:
        """float64[n]: the waiting times of a round's draft."""
        self.at(number)
        return -np.log(self.numbers(0, number, place, n=n))

    def decided(self, place: int, n: int) -> np.ndarray:
        """float64[n]: those of the target's draw."""
        return -np.log(self.numbers(1, place, n=n))

    def coin(self, key: Any = None) -> float:
        """The next coin of a round."""
        self.coins += 1
        return float(self.numbers(2, self.round, self.coins)[0])

    def flip(self, p: float) -> bool:
        """True with probability p."""
        return self.coin() < p

    def waits(self, key: Any, n: int) -> np.ndarray:
        """float64[n]: of a draw of ours: drafts stand in a loop in the loop of rounds, and what is read as output has a
        position."""
        if key.site == "output" or len(key.counters) < 3:
            return self.decided(key.counters[0] if key.counters else -1, n)
        return self.drafted(key.counters[0], key.counters[1], n)


class Watch:
    """The target, and what the authors' loop gives it: by call the first position, and the tokens. noise: None, greedy.
    positions: the target draws at every position that it verifies, and a draw's noise is the position's."""

    def __init__(self, target: nn.Module, head: Any, noise: Rounds | None, *, positions: bool) -> None:
        self.fed, self.noise, self.positions = list[tuple[int, list[int]]](), noise, positions
        self.drafts: int | None = None  # of this round so far; None: the target was called last
        self.few: Tensor | None = None  # the tokens among which drafts are drawn, by place; None: all
        self.hooks = [
            target.register_forward_pre_hook(self._called, with_kwargs=True),
            head.fc.register_forward_pre_hook(self._drafting),
        ]

    def _called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        ids = args[0] if args else kwargs["input_ids"]
        self.fed.append((int(kwargs["position_ids"][0, 0]), ids[0].tolist()))
        self.drafts = None

    def _drafting(self, *_: Any) -> None:
        self.drafts = 0

    def _times(self, row: int, n: int) -> np.ndarray:
        assert self.noise is not None
        if self.drafts is not None:
            self.drafts += 1
            of = torch.arange(n) if self.few is None else self.few[0, self.drafts - 1]
            return self.noise.drafted(len(self.fed) - 1, self.drafts - 1, SHAPE["vocab_size"])[of.numpy()]
        if not self.positions:
            return self.noise.decided(len(self.fed) - 2, n)
        at, ids = self.fed[-1]
        return self.noise.decided(at + 1 + row if len(self.fed) > 1 else at + len(ids), n)

    def _multinomial(self, p: Tensor, n: int = 1, **named: Any) -> Tensor:
        assert named.get("num_samples", n) == 1
        rows = p.double().reshape(-1, p.shape[-1]).numpy()
        timed = ((self._times(i, len(row)), row) for i, row in enumerate(rows))
        out = [int(np.argmin([t / q if q > 0 else np.inf for t, q in zip(times, row, strict=True)])) for times, row in timed]
        return torch.tensor(out).reshape(*p.shape[:-1], 1)

    def _topk(self, *args: Any, **named: Any) -> Any:
        found = self.topk(*args, **named)
        self.few = found.indices
        return found

    def _coins(self, like: Tensor, **_: Any) -> Tensor:
        assert self.noise is not None
        self.noise.at(len(self.fed) - 2)
        return torch.tensor([self.noise.coin() for _ in range(like.numel())], dtype=like.dtype).reshape(like.shape)

    @contextmanager
    def draws(self) -> Iterator[None]:
        """The authors' draws read the noise."""
        with cropping(), ExitStack() as patched:
            if self.noise is not None:
                patched.enter_context(mock.patch.object(torch, "multinomial", self._multinomial))
                patched.enter_context(mock.patch.object(torch, "rand_like", self._coins))
                self.topk = torch.topk
                patched.enter_context(mock.patch.object(torch, "topk", self._topk))
            yield
        for hook in self.hooks:
            hook.remove()

    def columns(self, prompt: int, output: Sequence[int], block: int, limit: int) -> dict[str, Any]:
        """The text, and by call what was drafted and accepted, of the calls behind which there is room for a whole block."""
        last, ids = self.fed[-1]  # an end may stand in its drafts
        whole = next((n for n, (a, b) in enumerate(zip(ids[1:], output[last + 1 :], strict=False)) if a != b), len(ids) - 1)
        starts = [prompt, *(at for at, _ in self.fed[2:]), last + 1 + min(whole, len(output) - last - 1)]
        drafted: list[list[list[int]]] = [[]]
        accepted, text = [0], [*output[: prompt + 1]]
        for n, (at, ids) in enumerate(self.fed[1:]):
            if at + block + 2 > prompt + limit:
                break
            drafted.append([ids[1 : i + 2] for i in range(len(ids) - 1)])
            accepted.append(starts[n + 1] - at - 1)
            text = [*output[: starts[n + 1] + 1]]
        return {"tokens": text, "drafted": drafted, "accepted": accepted}


@contextmanager
def cropping() -> Iterator[None]:
    """Caches are cropped to a length, as in the versions of transformers that Domino and DeepSpec were written for; later ones
    take how many to remove."""
    from transformers import DynamicCache

    crop = DynamicCache.crop

    def to(cache: Any, length: int) -> None:
        crop(cache, length if length <= 0 else length - cache.get_seq_length())

    with mock.patch.object(DynamicCache, "crop", to):
        yield


def target() -> Any:
    """The recordings' target, by transformers."""
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(TARGET, attn_implementation="sdpa").eval()


@dataclass(frozen=True)
class Kind:
    """A layout: a module's class from the authors' code, its configuration, and what they compute with it.

    states: of a block behind some features of the target [1, block, width], on a cache (None: none). scores: logits
    [1, places, V] of states, given the token before each place, teacher-forced."""

    load: Callable[[Upstream], SimpleNamespace]
    config: Mapping[str, Any]
    anchor: bool
    reads: tuple[int, ...]
    block: int
    states: Callable[..., Tensor]
    scores: Callable[..., Tensor]


def _features(hidden: Sequence[Tensor], reads: Sequence[int]) -> Tensor:
    return torch.cat([hidden[n + 1] for n in reads], -1)


def _zlab(upstream: Upstream) -> SimpleNamespace:
    module = upstream.module("dflash/model.py", ".")
    return SimpleNamespace(module=module, kind=module.DFlash2DraftModel)


def _domino(upstream: Upstream) -> SimpleNamespace:
    module = upstream.module("code/dflash.py", "code", absent=("accelerator",))
    return SimpleNamespace(module=module, kind=module.DFlashDraftModel)


_ABSENT = ("prettytable", "matplotlib", "tensorboard", "wandb", "datasets", "hfai", "torch.utils.tensorboard")


def _deepspec(upstream: Upstream) -> SimpleNamespace:
    with upstream.importable(".", _ABSENT):
        from importlib import import_module

        evaluator = import_module("deepspec.eval.dspark.evaluator")
        kind = import_module("deepspec.modeling.dspark.qwen3").Qwen3DSparkModel
    return SimpleNamespace(module=evaluator, kind=kind)


def _flash_states(model: Any, noise: Tensor, features: Tensor, at: Tensor, cache: Any) -> Tensor:
    named = {} if hasattr(model, "candidate_selector") else {"is_causal": False}
    made: Tensor = model(target_hidden=features, noise_embedding=noise, position_ids=at, past_key_values=cache, **named)
    return made


def _spark_states(model: Any, noise: Tensor, features: Tensor, at: Tensor, cache: Any) -> Tensor:
    made: Tensor = model._forward_backbone(
        target_hidden_states=features, noise_embedding=noise, position_ids=at, past_key_values=cache, is_causal=False
    )
    return made


def _selected(model: Any, of: Any, states: Tensor, before: Tensor) -> Tensor:
    """Of all tokens; the loop reads those of the likeliest ones."""
    s = model.candidate_selector
    pairs = (s.predecessor_codebook(before) * s.hidden_projection(states)) @ s.successor_codebook.weight.T
    made: Tensor = model.compute_logits(states, of.lm_head) + pairs
    return made


def _recurrent(model: Any, of: Any, states: Tensor, before: Tensor) -> Tensor:
    through, _ = model.prefix_gru(of.model.embed_tokens(before))
    bias = model.embed_proj(torch.cat([states, through], -1))
    bias[:, : model.pure_draft_prefix_len] = 0
    made: Tensor = of.lm_head(states) + bias
    return made


def _markov(model: Any, of: Any, states: Tensor, before: Tensor) -> Tensor:
    base = model.compute_logits(states)[:, None]
    made: Tensor = model.markov_head.apply_block_logits(base, token_ids=before[:, None], hidden_states=states[:, None])
    return made[:, 0]


def _spark(form: str, reads: tuple[int, ...]) -> Kind:
    config = {**SHAPE, "num_hidden_layers": 1, "layer_types": ["full_attention"], "block_size": 4, "mask_token_id": MASK,
              "target_layer_ids": list(reads), "num_anchors": 1, "markov_rank": 6, "markov_head_type": form,
              "enable_confidence_head": True, "confidence_head_with_markov": form != "rnn",
              "architectures": ["Qwen3DSparkModel"]}  # fmt: skip
    return Kind(_deepspec, config, True, reads, 4, _spark_states, _markov)


_BLOCK = {"mask_token_id": MASK, "target_layer_ids": [0, 2]}
KINDS: dict[str, Kind] = {
    "dflash2": Kind(
        _zlab,
        {**SHAPE, "num_hidden_layers": 2, "is_causal": False, "sliding_window": 6, "use_sliding_window": True,
         "max_window_layers": 2, "layer_types": ["sliding_attention", "full_attention"],
         "dflash_config": {**_BLOCK, "block_size": 5, "conv_group_size": 16, "conv_kernel_size": 2, "selector_rank": 8,
                           "selector_top_k": 4, "final_logit_softcapping": 20.0, "output_multiplier": 0.5}},
        False, (0, 2), 5, _flash_states, _selected,
    ),
    "domino": Kind(
        _domino,
        {**SHAPE, "num_hidden_layers": 1, "layer_types": ["full_attention"], "block_size": 4,
         "dflash_config": {**_BLOCK, "projector_type": "domino", "pure_draft_prefix_len": 1, "emb_dim": 12,
                           "gru_hidden_dim": 16, "shift_label": True}},
        True, (0, 2), 4, _flash_states, _recurrent,
    ),
    "dspark": _spark("vanilla", (0, 2)),
    "dspark_gated": _spark("gated", (-1, 1)),
    "dspark_rnn": _spark("rnn", (0, 2)),
}  # fmt: skip


def drawn(kind: Kind, upstream: Upstream, seed: int) -> Any:
    """A module of the authors' class with small weights by a seed, and the target's embeddings where it has a copy of them."""
    import transformers

    torch.manual_seed(seed)
    model, of = kind.load(upstream).kind(transformers.Qwen3Config(**kind.config, attn_implementation="sdpa")), target()
    for name, p in model.named_parameters():
        nn.init.normal_(p, float("norm" in name and p.ndim == 1), 0.1)
    if hasattr(model, "initialize_embeddings_and_head"):
        model.initialize_embeddings_and_head(embed_tokens=of.model.embed_tokens, lm_head=of.lm_head)
    return model


def fitted(kind: Kind, model: Any, steps: int, seed: int) -> Any:
    """The module after some steps towards the target's own likeliest texts."""
    of, block = target(), kind.block
    torch.manual_seed(seed)
    with torch.no_grad():
        texts = of.generate(torch.randint(4, 32, (48, 4)), max_new_tokens=36, do_sample=False, pad_token_id=0)
        hidden = of(texts, output_hidden_states=True).hidden_states
    learned = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.Adam(learned, 4e-3)
    for _ in range(steps):
        at = int(torch.randint(2, texts.shape[1] - block - 1, ()))
        features = _features(hidden, kind.reads)[:, :at]
        ids = torch.full((len(texts), block), MASK)
        ids[:, 0] = texts[:, at]
        places = torch.arange(at + block)[None]
        states = kind.states(model, of.model.embed_tokens(ids).detach(), features, places, None)
        states = states if kind.anchor else states[:, 1:]
        count = states.shape[1]
        logits = kind.scores(model, of, states, texts[:, at : at + count])
        loss = F.cross_entropy(logits.flatten(0, 1), texts[:, at + 1 : at + count + 1].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return model.requires_grad_(False).eval()


@torch.no_grad()
def rounds_of(name: str, upstream: Upstream, **changed: Any) -> list[dict[str, Any]]:
    """The authors' logits in the places of a block behind a root, given the drafts before each, and of the next block, when one
    draft was accepted and another token came: their cache of the first call goes on, cropped as their loops do. changed:
    settings of the folder that are others."""
    import transformers

    kind, of = KINDS[name], target()
    code, config = kind.load(upstream), transformers.Qwen3Config.from_pretrained(FOLDERS / name)
    for key, value in changed.items():
        setattr(config, key, value)
    how = {"config": config, "dtype": torch.float32, "attn_implementation": "sdpa"}
    model, ids = code.kind.from_pretrained(FOLDERS / name, **how).eval(), torch.tensor([IDS])
    hidden = of(ids, output_hidden_states=True).hidden_states
    make = getattr(code.module, "_make_cache", lambda config: transformers.DynamicCache())
    cache, known, rounds = make(model.config), 0, list[dict[str, Any]]()
    for start in (6, 8):  # the second: one draft accepted, and the next token the target's
        noise = torch.full((1, kind.block), MASK)
        noise[0, 0] = ids[0, start]
        features, at = _features(hidden, kind.reads)[:, known:start], torch.arange(known, start + kind.block)[None]
        embedded = getattr(model, "embed_tokens", of.model.embed_tokens)(noise)
        states = kind.states(model, embedded, features, at, cache)
        with cropping():
            cache.crop(start)
        known, states = start, states if kind.anchor else states[:, 1:]
        before = ids[:, start : start + states.shape[1]]
        rows = kind.scores(model, of, states, before)[0]
        one: dict[str, Any] = {"start": start, "logits": rows.tolist()}
        if name == "dflash2":
            base = model.compute_logits(states, of.lm_head)[0]
            one["candidates"] = base.topk(model.candidate_selector.top_k).indices.sort().values.tolist()
        if name.startswith("dspark"):
            one["confidence"] = model.predict_confidence_step(states, prev_token_ids=before)[0].tolist()
        rounds.append(one)
    return rounds


def logits_of(name: str, upstream: Upstream) -> dict[str, Any]:
    """What is beside a folder's weights; of DFlash 2 also with layers that see other places."""
    what = "logits in a block's places, given the tokens of input before them; two rounds on one cache"
    made = {"what": what, "input": IDS, "rounds": rounds_of(name, upstream)}
    kinds = [["sliding_attention"] * 2, ["full_attention", "sliding_attention"]]
    changes = [{"is_causal": causal, "layer_types": k, "sliding_window": 4} for causal in (None, True, False) for k in kinds]
    if name == "dflash2":
        made["masks"] = [{"changed": change, "rounds": rounds_of(name, upstream, **change)} for change in changes]
    return made


def write(snapshots: Path, into: Path, names: Sequence[str] = tuple(KINDS), steps: int = 800) -> None:
    """The folders and their logits, in bfloat16: as the authors' classes save them. steps: 0, the logits alone."""
    for n, name in enumerate(names):
        kind = KINDS[name]
        repo, commit = SOURCES[name]
        upstream = Upstream.of(snapshots, repo, commit, into / name)
        assert upstream is not None, f"{snapshots} has no {repo}"
        if steps:
            fitted(kind, drawn(kind, upstream, n), steps, n).to(torch.bfloat16).save_pretrained(FOLDERS / name)
        made = json.dumps(logits_of(name, upstream), separators=(",", ":"))
        (FOLDERS / name / "logits_check.json").write_text(made + "\n", "utf-8")


ZLAB = ("z-lab/dflash", "10129599dffb338ff38cfd235a53ca6d3667b4dd")
DOMINO = ("jianuo-huang/Domino", "1e0fbf8759423a9cd052fe4a0fba18ace254ab38")
DEEPSPEC = ("deepseek-ai/DeepSpec", "afdfa7c9382a3341a3e6f17756dd816da79f132c")
SOURCES = {"dflash2": ZLAB, "domino": DOMINO, "dspark": DEEPSPEC, "dspark_gated": DEEPSPEC, "dspark_rnn": DEEPSPEC}


def _stops(case: Case) -> list[int] | None:
    return [*case["eos"]] or None


def _run(upstream: Upstream, case: Case, name: str, decode: Callable[[SimpleNamespace, Any, Any, Tensor], Tensor]) -> Any:
    """A loop of the authors' on the target and a folder, watched."""
    kind, of = KINDS[name], target()
    code = kind.load(upstream)
    model = code.kind.from_pretrained(FOLDERS / name, dtype=torch.float32, attn_implementation="sdpa").eval()
    noise = Rounds(case["seed"]) if case["temperature"] else None
    watch = Watch(of, model, noise, positions=name == "domino")
    with watch.draws():
        out = decode(code, model, of, torch.tensor([case["prompt"]]))
    return watch.columns(len(case["prompt"]), out[0].tolist(), kind.block, case["limit"])


def dflash2(upstream: Upstream, case: Case) -> Any:
    decode = lambda code, model, of, ids: code.module.dflash_generate(
        model, of, ids, case["limit"], _stops(case), temperature=case["temperature"]
    )
    return _run(upstream, case, "dflash2", decode)


def domino(upstream: Upstream, case: Case) -> Any:
    decode = lambda code, model, of, ids: model.spec_generate(
        ids, of, case["limit"], temperature=case["temperature"], stop_token_ids=_stops(case)
    )
    return _run(upstream, case, "domino", decode)


def dspark(upstream: Upstream, case: Case) -> Any:
    def decode(code: SimpleNamespace, model: Any, of: Any, ids: Tensor) -> Tensor:
        loop = object.__new__(code.module.Qwen3DSparkEvaluator)
        asked = {"max_new_tokens": case["limit"], "temperature": case["temperature"], "confidence_threshold": case["eta"]}
        loop.__dict__ |= {"draft_model": model, "target_model": of, "args": SimpleNamespace(**asked)}
        loop.confidence_head_recorder = None
        made: Tensor = loop.generate_one_sample(input_ids=ids, stop_token_ids=_stops(case)).output_ids
        return made

    return _run(upstream, case, case["folder"], decode)


RECORDINGS = {
    "dflash2": dflash2,
    "domino": domino,
    "dspark": dspark,
    "dspark_confident": dspark,
    "dspark_rnn": dspark,
}
