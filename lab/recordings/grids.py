"""Decoders of images, sound and actions: which cells of a grid a call decides, in which order.

Draws are known by the number of the last call, their row and how many numbers they read, and where a decoder has several by
what is drawn; so both sides read the same numbers, in whatever order they are drawn.
"""

from __future__ import annotations

import logging
import math
import os
import random
import sys
import tempfile
import typing
import warnings
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from decgraph.runtime.models.interface import MASK as MASKED
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.upstream import Upstream

SIZE = 7
MASK = 127
"""The mask, in columns."""


class Entries:
    """A table's entries, with so many different weights that two cells are equally sure by chance alone never."""

    def __init__(self, seed: int, size: int) -> None:
        self.seed, self.size = seed, size
        self.touched: dict[Any, Scores] = {}
        self.zeros, self.power = False, 1

    def __call__(self, key: Any, name: str) -> Scores:
        if key not in self.touched:
            drawn_ = random.Random(f"{self.seed}:{key!r}")
            weights = [drawn_.randint(1, 1 << 20) ** 2 for _ in range(self.size)]
            self.touched[key] = Scores(weights=tuple(Fraction(w, sum(weights)) for w in weights))
        return self.touched[key]


def table(seed: int, size: int = SIZE, name: str = "model") -> TableModel:
    """A masked table."""
    made = TableModel(size, seed, kind="masked", vocab="t", name=name)
    made._table = Entries(seed, size)  # type: ignore[assignment]
    return made


def rows(model: Any, seen: Mapping[int, int], length: int, at: Iterable[int]) -> dict[int, np.ndarray]:
    """float64[V] for each of these positions, of a call that sees these cells (MASK where one is masked) and no others."""
    cells = tuple(MASKED if seen.get(i, MASK) == MASK else seen[i] for i in range(length))
    at = list(at)
    given = model.memory(cells, at=sorted(seen)) if len(seen) < length else None
    found = model.eval_canvas(cells, at, given) if given is None or at else []
    return {i: np.asarray([float(w) for w in s.weights]) for i, s in zip(at, found, strict=True)}


def uniforms(seed: int, call: int, lane: Sequence[int], n: int, what: str = "") -> np.ndarray:
    """The numbers that a draw after a call reads, which both sides are given: float64[n]. what: which of several draws."""
    return np.random.default_rng((seed, call + 1, n, *lane, *what.encode())).random(n)


def drawn(p: np.ndarray, u: np.ndarray) -> int:
    """The token that wins the race of these numbers."""
    with np.errstate(divide="ignore"):
        return int(np.argmin(np.where(p > 0, -np.log(u) / p, np.inf)))


@contextmanager
def races(numbers: Callable[[int], np.ndarray | None]) -> Iterator[None]:
    """torch.multinomial draws each row by these numbers; a row without numbers is not used."""

    def multinomial(p: torch.Tensor, num_samples: int, **_: Any) -> torch.Tensor:
        found = [numbers(i) for i in range(len(p))]
        assert num_samples == 1
        return torch.tensor([[0 if u is None else drawn(row, u)] for row, u in zip(p.double().numpy(), found, strict=True)])

    with mock.patch.object(torch, "multinomial", multinomial):
        yield


def logits(found: Mapping[int, np.ndarray]) -> torch.Tensor:
    """float32[n, V] of rows."""
    return torch.tensor(np.stack([*found.values()])).log().float()


class Canvas:
    """A prompt and cells behind it, as a decoder's calls see them; decided: by call what it changed."""

    def __init__(self, case: Case, length: int) -> None:
        self.model, self.start = table(case["seed"]), len(case["prompt"])
        self.total = self.start + length
        self.cells, self.decided = [*case["prompt"], *[MASK] * length], list[list[tuple[int, int]]]()
        self.called = False

    def now(self, cells: Mapping[int, int]) -> None:
        """What these cells are before the next call, or at the end; what changed was decided after the call before."""
        changed = sorted((i, x) for i, x in cells.items() if x != self.cells[i])
        if self.called:
            self.decided.append(changed)
        for i, x in changed:
            self.cells[i] = x
        self.called = True


def permuted(seed: int, call: int, n: int) -> np.ndarray:
    """int64[n]: a random order of n things, by the numbers that are read for it."""
    return np.argsort(-uniforms(seed, call, (0,), n, "order"), kind="stable")


def arpg(upstream: Upstream, case: Case) -> dict[str, Any]:
    sees = {"np": np, "torch": torch, "math": math, "F": torch.nn.functional}
    generate = upstream.names("models/arpg.py", "generate", of="Transformer", **sees)["generate"]
    length, seed, canvas = case["length"], case["seed"], Canvas(case, case["length"])
    groups = list[list[int]]()

    def forward(input_ids: torch.Tensor, places: torch.Tensor, n: int) -> torch.Tensor:
        at = [canvas.start + int(i) - 1 for i in places[0]]
        if groups:
            canvas.now(dict(zip(at[: len(at) - n], input_ids[0].tolist(), strict=True)))
        groups.append(at[len(at) - n :])
        seen = {i: x for i, x in enumerate(canvas.cells) if x != MASK or i in groups[-1]}
        return logits(rows(canvas.model, seen, canvas.total, groups[-1]))[None].repeat(2, 1, 1)

    model = SimpleNamespace(
        freqs_cis=torch.arange(length + 1), preprocess_condition=lambda x, **_: x[:, None], none_conds_id=0,
        setup_kv_cache=lambda **_: None, forward_shared=forward,
    )  # fmt: skip
    order = torch.from_numpy(-uniforms(seed, -1, (0,), length, "order"))
    numbers = lambda lane: uniforms(seed, 2 * (len(groups) - 1), (lane,), SIZE, "token")
    with races(numbers), mock.patch.object(torch, "rand", lambda *_, **__: order):
        found = generate(model, torch.tensor([3]), seq_len=length, num_iter=case["steps"])
    return {"output": [*case["prompt"], *found[0].tolist()], "groups": [sorted(g) for g in groups]}


def lpd(upstream: Upstream, case: Case) -> dict[str, Any]:
    width, seed, keys = case["width"], case["seed"], list[dict[tuple[int, ...], int]]()

    def begin() -> dict[tuple[int, ...], int]:
        order = permuted(seed, 2 * len(keys) - 1, width * width)
        keys.append({(i // width, i % width): int(order[i]) for i in range(width * width)})
        return keys[-1]

    def one_of(n: int) -> int:
        points = sys._getframe(1).f_locals["candidates_np"]
        return max(range(n), key=lambda i: keys[-1][tuple(map(int, points[i]))])

    def shuffle(candidates: list[Any]) -> None:
        key = begin()
        candidates.sort(key=lambda scored: -key[tuple(scored[1])])

    def choice(grid: list[Any]) -> Any:
        key = begin()
        return max(grid, key=lambda place: key[tuple(place)])

    far = lambda a, b: np.sqrt(((np.asarray(a)[:, None] - np.asarray(b)[None]) ** 2).sum(-1).astype(float))
    code = upstream.names(
        "orders/lpd_order.py", "lpd_order_schedule", "farthest_point_sampling", np=np, cdist=far, euclidean=math.dist,
        random=SimpleNamespace(shuffle=shuffle, choice=choice),
    )  # fmt: skip
    with mock.patch.object(np.random, "randint", one_of):
        order = code["lpd_order_schedule"]([*case["sizes"]], width, case["near"], case["apart"])
    ends = np.cumsum([0, *case["sizes"]])
    start = len(case["prompt"])
    return {"groups": [sorted(start + i for i in order[a:b]) for a, b in zip(ends, ends[1:], strict=False)]}


def codebook_delay(upstream: Upstream, case: Case) -> dict[str, Any]:
    books, frames, seed = case["books"], case["frames"], case["seed"]
    sees = {"tp": typing, "torch": torch, "dataclass": dataclass, "lru_cache": lru_cache, "namedtuple": namedtuple}
    sees |= {"ABC": ABC, "abstractmethod": abstractmethod, "logger": logging.getLogger("audiocraft")}
    names = ("LayoutCoord", "PatternLayout", "Pattern", "CodebooksPatternProvider", "DelayedPatternProvider")
    pattern = upstream.names("audiocraft/modules/codebooks_patterns.py", *names, **sees)
    provider = pattern["DelayedPatternProvider"](books, delays=[case["delay"] * k for k in range(books)])
    draws = SimpleNamespace(**upstream.names("audiocraft/utils/utils.py", "multinomial", torch=torch))
    hints: dict[str, Any] = dict.fromkeys(("CFGConditions", "State", "ConditioningAttributes"), Any)
    loop = upstream.names(
        "audiocraft/models/lm.py",
        "generate",
        "_sample_next_token",
        of="LMModel",
        torch=torch,
        tp=typing,
        utils=draws,
        **hints,
    )
    canvas, steps, calls, told = Canvas(case, books * frames), list[int](), list[int](), dict[int, int]()
    layout = [[c for c in step if c.t < frames] for step in provider.get_pattern(frames).layout]

    class Streamed:
        """Their model, which is given the tokens of a step after the other."""

        training, special_token_id, card, num_codebooks, pattern_provider = False, SIZE, SIZE, books, provider
        cfg_coef, cfg_coef_beta, two_step_cfg, _fsdp = 1.0, None, False, None
        parameters = lambda self: iter([torch.zeros(1)])
        streaming = lambda self: nullcontext()
        get_streaming_state: Callable[..., dict[str, Any]] = lambda self: {}
        generate, _sample_next_token = loop["generate"], loop["_sample_next_token"]

        def at(self) -> list[int]:
            """The cells of this step."""
            return [canvas.start + c.t * books + c.q for c in layout[len(steps)]]

        def __call__(self, sequence: torch.Tensor, **_: Any) -> torch.Tensor:
            coords = layout[len(steps)] if steps else []
            told.update({canvas.start + c.t * books + c.q: int(sequence[0, c.q, -1]) for c in coords})
            steps.append(sequence.shape[-1])
            if not self.at():  # nobody reads this call
                return torch.zeros(1, books, 1, SIZE)
            canvas.now(told)
            told.clear()
            calls.append(len(steps))
            begun = canvas.start + books * min(frames, len(steps))
            seen = {i: canvas.cells[i] for i in range(begun)}
            found = rows(canvas.model, seen, begun, sorted(self.at()))
            out = torch.zeros(1, books, 1, SIZE)
            for i, row in zip(found, logits(found), strict=True):
                out[0, (i - canvas.start) % books, 0] = row
            return out

    model = Streamed()

    def numbers(book: int) -> np.ndarray | None:
        at = sorted(model.at())
        lanes = [lane for lane, i in enumerate(at) if (i - canvas.start) % books == book]
        return uniforms(seed, len(calls) - 1, (lanes[0],), SIZE) if lanes else None

    with races(numbers):
        codes = model.generate(max_gen_len=frames, top_k=0)
    output = [*case["prompt"], *codes[0].T.flatten().tolist()]
    canvas.now(dict(enumerate(output)))
    return {"output": output, "decided": canvas.decided}


def secondary_remask(upstream: Upstream, case: Case) -> dict[str, Any]:
    schedule = lambda ratio, *_: torch.cos(ratio * math.pi / 2).clamp(min=1e-6)
    code = upstream.names(
        "prismatic/discrete_flow/parallel_decode.py", "mask_by_random_topk", "decode", torch=torch, math=math,
        F=torch.nn.functional, mask_schedule=schedule,
    )  # fmt: skip
    canvas, length, seed = Canvas(case, case["length"]), case["length"], case["seed"]
    calls, last = list[int](), list[int]()

    def scores(cells: torch.Tensor) -> tuple[torch.Tensor, None]:
        calls.append(0)
        canvas.now({canvas.start + i: MASK if x == SIZE else x for i, x in enumerate(cells[0].tolist())})
        found = rows(canvas.model, dict(enumerate(canvas.cells)), canvas.total, range(canvas.start, canvas.total))
        p = [*found.values()]
        last[:] = [drawn(p[i], uniforms(seed, len(calls) - 1, (i,), SIZE, "token")) for i in range(length)]
        return logits(found)[None], None

    def noise(x: torch.Tensor, **_: Any) -> torch.Tensor:
        u = [uniforms(seed, len(calls) - 1, (i,), SIZE, "choice")[last[i]] for i in range(length)]
        return torch.tensor([u], dtype=x.dtype)

    numbers = lambda lane: uniforms(seed, len(calls) - 1, (lane,), SIZE, "token")
    with races(numbers), mock.patch.object(torch, "rand_like", noise):
        found, _ = code["decode"](
            torch.full((1, length), SIZE), scores, SIZE, num_iter=case["steps"], choice_temperature=case["heat"],
            use_remask=case["again"],
        )  # fmt: skip
    output = [*case["prompt"], *found[0, -1].tolist()]
    canvas.now(dict(enumerate(output)))
    return {"output": output, "decided": canvas.decided}


def liked(text: str) -> float:
    """A reward: letters early in the text that are early in the alphabet."""
    return sum((i + 3) * -ord(letter) % 23 for i, letter in enumerate(text)) / 7


def soft_value(upstream: Upstream, case: Case) -> dict[str, Any]:
    names = ["controlled_sample_tweedie", "_ddpm_update_finetune_controlled_twedie", "forward", "_process_sigma"]
    names += ["_subs_parameterization", "_sample_prior"]
    path, draw = "diffusion_gosai.py", "_sample_categorical"
    drawing = {draw: upstream.names(path, draw, torch=torch)[draw]}
    code = upstream.names(path, *names, of="Diffusion", torch=torch, **drawing)
    model, length, size, seed = table(case["seed"], 4), case["length"], 4, case["seed"]
    prompt, seen = list(case["prompt"]), list[list[int]]()
    draws = list[int]()

    def network(x: torch.Tensor, _: Any) -> torch.Tensor:
        cells = [*prompt, *(MASK if int(i) == size else int(i) for i in x[0])]
        seen.append(cells)
        found = rows(model, dict(enumerate(cells)), len(cells), range(len(prompt), len(cells)))
        return torch.cat([logits(found), torch.zeros(length, 1)], 1)[None].repeat(2, 1, 1)

    def race(q: torch.Tensor) -> torch.Tensor:
        step, proposal = divmod(len(draws), case["m"])
        draws.append(0)
        out = torch.zeros_like(q)
        for lane, row in enumerate(q[0]):
            out[:, lane, :size] = torch.from_numpy(uniforms(seed, step, (proposal, lane), size))
            moves = uniforms(seed, step, (proposal, lane), 1)[0] < float(row[:size].sum() / row.sum())
            out[:, lane, size] = math.inf if moves else 1.0  # the mask loses its race, or wins it
        return out

    class Denoiser:
        """Their module, without its network."""

        parameterization, sampler, device, mask_index, neg_infinity = "subs", "ddpm", "cpu", size, -1000000.0
        time_conditioning = False
        config = SimpleNamespace(model=SimpleNamespace(length=length), sampling=SimpleNamespace(noise_removal=True))
        noise = staticmethod(lambda t: (-torch.log1p(-(1 - 1e-3) * t), None))
        backbone = staticmethod(network)

    for name in names:
        setattr(Denoiser, name, code[name])

    def scored(onehot: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[liked("".join("abcd"[int(i)] for i in row.argmax(0)))] for row in onehot])

    with mock.patch.object(torch, "rand_like", race), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = getattr(Denoiser(), names[0])(scored, case["steps"], case["eps"], 2, case["m"], "True")
    return {"output": [*prompt, *found[0].tolist()], "canvases": sorted({tuple(s) for s in seen})}


def recap(upstream: Upstream, case: Case) -> dict[str, Any]:
    length, seed, canvas, start = 256, case["seed"], Canvas(case, 256), len(case["prompt"])
    calls, kind, group = list[int](), [""], dict[str, Any]()

    def network(x: torch.Tensor, past_kvs: Any, use_cache: bool, position_ids: Any = None, **_: Any) -> Any:
        at = list(range(length)) if position_ids is None else position_ids[0].tolist()
        told = dict(zip((start + i for i in at), (MASK if c == SIZE else c for c in x[0].tolist()), strict=True))
        canvas.now(told)
        calls.append(len(at))
        seen = dict(enumerate(case["prompt"])) | told
        if past_kvs is not None:
            seen |= {start + int(i): MASK if int(c) == SIZE else int(c) for c, i in past_kvs[0][0][0].tolist()}
        kind[0] = "guess" if position_ids is None else "token"
        group.update(lanes=[i for i in at if told[start + i] == MASK], done=sum(told[start + i] != MASK for i in at), last=[])
        stored = torch.tensor([[[-1, -1], *([c, i] for i, c in enumerate(x[0].tolist()))]]) if use_cache else None
        return logits(rows(canvas.model, seen, canvas.total, [start + i for i in at]))[None], [(stored, stored)]

    class Categorical:
        """A draw for each row that is read."""

        def __init__(self, logits: torch.Tensor) -> None:
            self.p = torch.softmax(logits[0].double(), -1).numpy()

        def sample(self) -> torch.Tensor:
            """int64[1, n]."""
            call, guess = len(calls) - 1, kind[0] == "guess"
            where = {i: lane for lane, i in enumerate(group["lanes"])} if guess else {}
            out = []
            for i, p in enumerate(self.p):
                lane = where.get(i, 0) if guess else i - (0 if calls[-1] == length else group["done"])
                out.append(drawn(p, uniforms(seed, call, (max(0, lane),), SIZE, kind[0])))
            kind[0], group["last"] = "token", out
            return torch.tensor([out])

    def gumbel(size: Any) -> np.ndarray:
        call, last = len(calls) - 1, group["last"]
        lanes = {i: lane for lane, i in enumerate(group["lanes"])}
        u = [uniforms(seed, call, (lanes.get(i, 0),), SIZE, "choice")[last[i]] for i in range(length)]
        return -np.log(-np.log(np.array([u])))

    anything = mock.MagicMock()
    logger = SimpleNamespace(catch=lambda: lambda f: f, add=lambda *_, **__: None, info=lambda *_: None)
    device = SimpleNamespace(device="cpu", is_main_process=False, process_index=0, num_processes=1)
    accelerator = SimpleNamespace(**vars(device), wait_for_everyone=lambda: None, prepare=lambda x: x)
    quantizer = mock.MagicMock(n_embed=SIZE)
    images = list[list[int]]()

    def picture(z: torch.Tensor) -> torch.Tensor:
        images.append(z.flatten().tolist())
        return torch.zeros(1, 3, 1, 1)

    quantizer.decode_code = picture
    net = mock.MagicMock(side_effect=network)
    code = upstream.names(
        "examples/MaskGIT+ReCAP/cache_decoding.py", "decode", os=os, np=np, einops=anything, cv2=anything, logger=logger,
        accelerate=SimpleNamespace(Accelerator=lambda: accelerator, utils=anything), UViT=lambda **_: net,
        models=SimpleNamespace(vqgan=SimpleNamespace(get_model=lambda: quantizer)), tqdm=lambda x, **_: x,
        rearrange=lambda x, *_, **__: x, torch=torch,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), ExitStack() as patched:
        warnings.simplefilter("ignore")
        patched.enter_context(mock.patch.object(torch, "load", lambda *_, **__: None))
        patched.enter_context(mock.patch.object(torch.distributions, "Categorical", Categorical))
        patched.enter_context(mock.patch.object(np.random, "gumbel", gumbel))
        settings = SimpleNamespace(
            output_dir=folder, benchmark=0, seed=1, test_bsz=1, gen_step=case["steps"], cfg=False, eval_n=1,
            pre_full_iters=case["alone"], num_cache_iters=case["cheap"], samp_temp=case["cool"], conf_temp=case["heat"],
        )  # fmt: skip
        code["decode"](SimpleNamespace(nnet=type("Settings", (dict,), {"pretrained_path": ""})()), settings)
    output = [*case["prompt"], *images[0]]
    canvas.now(dict(enumerate(output)))
    return {"output": output, "decided": canvas.decided, "computed": calls}


RECORDINGS = {
    "arpg": arpg,
    "lpd": lpd,
    "codebook_delay": codebook_delay,
    "secondary_remask": secondary_remask,
    "soft_value": soft_value,
    "recap": recap,
}
