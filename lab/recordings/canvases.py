"""Masked tables as what the authors' code calls: a masked language model with a cache of keys and values, whose slots are
tokens and their positions; and decoders that fill a canvas block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Optional, Union
from unittest import mock
from unittest.mock import MagicMock

import numpy as np
import torch

from decgraph.runtime.models.interface import MASK, Visibility
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.tables import TableLM, untied
from lab.recordings.upstream import Upstream


def canvas(size: int, seed: int, visibility: Visibility = "full") -> TableModel:
    """A masked table without equal weights: a row depends on its position and on every cell that its call sees."""
    made = TableModel(size, seed, kind="masked", visibility=visibility, vocab="t", name="model")
    rows = untied(size, seed, sharp=2.0)._table
    made._table = lambda key, name: rows(repr(key), name)  # type: ignore[assignment, arg-type]
    return made


class MaskedLM:
    """The authors' model, by a table. Logits are float32, the logarithms of its probabilities; the mask's id is the table's
    size.

    shift: the row of a cell predicts the next one. axis: of the slots in a cache, 2 as in Llama or 1 as in Dream. more: columns
    of the logits behind the tokens, without mass. canvases: of each call the canvas that the code had decided by then, -1 where
    masked; computed: the positions of its rows.
    """

    def __init__(self, table: TableModel, length: int, shift: bool = False, axis: int = 2, more: int = 0) -> None:
        self.table, self.length, self.shift, self.axis, self.more = table, length, shift, axis, more
        self.dtype = torch.float32
        self.device, self.config = torch.device("cpu"), SimpleNamespace(vocab_size=table.vocab.size, num_hidden_layers=1)
        self.canvases, self.computed = list[list[int]](), list[list[int]]()

    def eval(self) -> MaskedLM:
        """As of a module."""
        return self

    def __call__(
        self,
        x: torch.Tensor,
        *_: Any,
        past_key_values: Any = None,
        use_cache: bool = False,
        replace_position: Any = None,
        **__: Any,
    ) -> Any:
        """x: int64[1, n], behind the cached slots or, with replace_position bool[1, length], in the place of these."""
        held = None if past_key_values is None else past_key_values[0][0].reshape(-1, 2)
        slots = [] if held is None else [tuple(map(int, s)) for s in held.tolist()]
        at = list(range(len(slots), len(slots) + x.shape[1]))
        if replace_position is not None:
            at = torch.nonzero(replace_position[0]).flatten().tolist()
        seen = {position: token for token, position in slots} | dict(zip(at, x[0].tolist(), strict=True))
        kept = torch.tensor([[float(seen[i]), float(i)] for i in sorted(seen)])
        kept = kept[None] if self.axis == 1 else kept[None, None]
        return SimpleNamespace(logits=self.answered(seen, at), past_key_values=[(kept, kept)])

    def answered(self, seen: dict[int, int], at: Sequence[int]) -> torch.Tensor:
        """float32[1, n, V] for these positions; a call that computes them, and sees these cells, is noted."""
        known = [*self.canvases[-1]] if self.canvases else [-1] * self.length
        for position in at:
            known[position] = -1 if seen[position] == self.table.vocab.size else seen[position]
        self.canvases.append(known)
        self.computed.append([*at])
        return self.rows(seen, at)

    def rows(self, seen: dict[int, int], at: Sequence[int]) -> torch.Tensor:
        """float32[1, n, V] for these positions, of a call that sees these cells and no others."""
        cells = tuple(
            MASK if seen.get(i, self.table.vocab.size) == self.table.vocab.size else seen[i] for i in range(self.length)
        )
        given = self.table.memory(cells, at=sorted(seen)) if len(seen) < self.length else None
        found = self.table.eval_canvas(cells, [min(i + self.shift, self.length - 1) for i in at], given)
        rows = [[*(float(w) for w in s.weights or ()), *[0.0] * self.more] for s in found]
        return torch.tensor([rows], dtype=torch.float64).log().float()


def uniforms(seed: int, call: int, position: int, n: int) -> np.ndarray:
    """float64[n]: what the race of a cell's tokens reads after a call."""
    return np.random.default_rng((seed, call, position, n)).uniform(1e-9, 1 - 1e-9, n)


def computed(model: MaskedLM, n: int) -> Sequence[int]:
    """The cells of a draw of n rows: those that the last call computed, or the masked ones of them."""
    at = model.computed[-1]
    return at if n == len(at) else [i for i in at if model.canvases[-1][i] < 0]


@contextmanager
def races(model: MaskedLM, seed: int, cells: Callable[[MaskedLM, int], Sequence[int]] = computed) -> Iterator[None]:
    """What the authors' code draws is won by the races of cells: torch.rand_like of a call's rows, and torch.multinomial of one
    token a row, which Categorical calls. cells: of which cells the rows of a draw are."""

    def read(rows: int, size: int) -> np.ndarray:
        at = cells(model, rows)
        assert len(at) == rows, f"{rows} rows are drawn, of {len(at)} cells"
        found = np.full((rows, size), 0.5)
        for row, i in zip(found, at, strict=True):
            row[: model.table.vocab.size] = uniforms(seed, len(model.computed) - 1, i, model.table.vocab.size)
        return found

    def like(x: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.from_numpy(read(*x.shape[-2:])).reshape(x.shape)

    def multinomial(p: torch.Tensor, num_samples: int, replacement: bool = False, **_: Any) -> torch.Tensor:
        assert num_samples == 1 and p.dim() == 2
        with np.errstate(divide="ignore"):
            times = -np.log(read(*p.shape)) / p.detach().double().numpy()
        return torch.from_numpy(times.argmin(1))[:, None]

    with mock.patch.object(torch, "rand_like", like), mock.patch.object(torch, "multinomial", multinomial):
        yield


def filled(case: Case, decode: Callable[..., torch.Tensor], **settings: Any) -> dict[str, Any]:
    """What `decode` makes of a prompt: the canvas at the end; by call the canvas before it and the positions it computes."""
    model = MaskedLM(canvas(case["size"], case["seed"]), len(case["prompt"]) + case["length"])
    with races(model, case["seed"]):
        out = decode(
            model, torch.tensor([case["prompt"]]), gen_length=case["length"], block_length=case["block"],
            temperature=case["temperature"], mask_id=case["size"], **settings,
        )  # fmt: skip
    return {"output": out[0].tolist(), "canvases": model.canvases, "computed": model.computed}


def fast_dllm_plusplus(upstream: Upstream, case: Case) -> dict[str, Any]:
    decode = upstream.module("v1/llada/generate.py", absent=("transformers", "model")).generate_with_dual_cache
    return filled(case, lambda *a, **k: decode(*a, **k)[0], steps=case["length"], frechet_margin=case["margin"])


class Runner(MaskedLM):
    """SGLang's model runner, of one request: a forward is about a block behind the text. target: what reads it from left to
    right, where the batch asks for that; its scores, and these alone, have a column for the mask."""

    def __init__(self, table: TableModel, text: list[int], target: TableLM | None = None) -> None:
        super().__init__(table, 0)
        self.text, self.target = text, target
        self.model_config = SimpleNamespace(hf_config=SimpleNamespace(eos_token_id=None))

    def forward(self, batch: Any, pp_proxy_tensors: Any = None) -> Any:
        """full_logits: float32[block, V]."""
        block, mask = batch.input_ids.tolist(), self.table.vocab.size
        states = getattr(batch, "model_specific_states", None) or {}
        shifted = "attention_mask" in states  # a row predicts the next cell
        if self.target is not None and (batch.dllm_causal_kv_update or states.get("attention_mask") is not None):
            whole = block[: block.index(mask)] if mask in block else block  # no text goes on behind a mask
            read = [self.target.row([*self.text, *whole[: i + 1]]) for i in range(len(whole))]
            rows = torch.stack([*read, *[torch.zeros(mask)] * (len(block) - len(whole))])
        else:
            seen = dict(enumerate([*self.text, *block]))
            self.length = len(seen)
            at = list(range(len(self.text), self.length))
            rows = self.rows(seen, at)[0].roll(-int(shifted), 0)
            if mask in block:  # a call of a full block is for its keys and values
                self.canvases.append([-1 if token == mask else token for token in seen.values()])
                self.computed.append(at)
        if self.target is not None and not shifted:
            rows = torch.cat([rows, torch.zeros(len(block), 1)], dim=1)
        scores = SimpleNamespace(full_logits=rows, next_token_logits=None)
        return SimpleNamespace(logits_output=scores, can_run_graph=False)


def sglang(upstream: Upstream, file: str, name: str, case: Case, *more: str, **settings: Any) -> Any:
    """An algorithm of SGLang's for masked models."""

    class DllmAlgorithm:
        def __init__(self, config: Any) -> None:
            self.block_size, self.max_steps, self.mask_id = case["block"], case["block"], case["size"]

    unread = dict.fromkeys(("DllmConfig", "ModelRunner", "ForwardBatch", "LogitsProcessorOutput"), object)
    typed = {"Dict": dict, "List": list, "Tuple": tuple, "Optional": Optional, "Union": Union}
    given = {"torch": torch, "np": np, "F": torch.nn.functional, "logger": MagicMock(), "DllmAlgorithm": DllmAlgorithm}
    made = upstream.names(file, name, *more, **unread, **typed, **given)[name]
    return made(SimpleNamespace(causal_context=True, pad_id=None, algorithm_config=settings))


def fast_diffuser(upstream: Upstream, case: Case) -> dict[str, Any]:
    settings = {"temperature": case["temperature"], "threshold": case["tau"]}
    algorithm = sglang(upstream, "fastdiffuser.py", "FastDiffuser", case, "add_gumbel_noise", **settings)
    text, size = [*case["prompt"]], case["size"]
    runner = Runner(canvas(size, case["seed"]), text)
    with races(runner, case["seed"]):
        for _ in range(case["blocks"]):
            behind = len(text) % case["block"]
            block = torch.tensor([*text[len(text) - behind :], *[size] * (case["block"] - behind)])
            runner.text = text[: len(text) - behind]
            batch = SimpleNamespace(input_ids=block, dllm_causal_kv_update=False)
            text = [*runner.text, *text[len(text) - behind :], *algorithm.run(runner, batch)[1].tolist()]
    return {"output": text, "canvases": runner.canvases}


def linear_spec(upstream: Upstream, case: Case) -> dict[str, Any]:
    algorithm = sglang(upstream, "linear_spec.py", "LinearSpec", case)
    target = TableLM(untied(case["size"], case["seed"], window=None))
    runner = Runner(canvas(case["size"], case["seed"]), [*case["prompt"][:-1]], target)
    algorithm._seed_tokens["r"] = case["prompt"][-1]
    drafted, committed = [], []
    for _ in range(case["calls"]):
        block = torch.full((case["block"],), case["size"])
        batch = SimpleNamespace(input_ids=block, batch_size=1, rids=["r"], dllm_causal_kv_update=False)
        ((out,), _) = algorithm.run(runner, batch)[1], None
        drafted.append(block.tolist()[1:])
        committed.append([*out.tolist()[1:], algorithm._seed_tokens["r"]])
        runner.text += out.tolist()
    return {"drafted": drafted, "committed": committed}


def pangu_block(upstream: Upstream, case: Case) -> dict[str, Any]:
    settings = {
        "threshold": case["tau"],
        "num_small_blocks": case["block"] // case["small"],
        "alg": "entropy" if case["entropies"] else "confidence_threshold",
        "eos_token_id": case["eos"],
    }
    algorithm = sglang(upstream, "shift_confidence.py", "ShiftConfidence", case, "sample_tokens", **settings)
    text, target = [*case["prompt"]], TableLM(untied(case["size"], case["seed"], window=None))
    runner = Runner(canvas(case["size"], case["seed"]), [], target)

    def call(block: list[int]) -> Any:
        batch = SimpleNamespace(
            input_ids=torch.tensor(block), positions=[len(runner.text)], seq_lens=[len(runner.text) + len(block)],
            model_specific_states=None, dllm_causal_kv_update=False,
        )  # fmt: skip
        return algorithm.run(runner, batch)[1]

    algorithm.pad_id, algorithm.fia_length = -1, 256
    call(text)
    for _ in range(case["blocks"]):
        runner.text = [*text]
        (out,) = call([case["size"]] * case["block"])
        text += out.tolist()
        if case["eos"] in text[-case["block"] :]:
            text = text[: len(text) - case["block"] + text[-case["block"] :].index(case["eos"]) + 1]
            break
    return {"output": text, "canvases": runner.canvases}


RECORDINGS = {
    "fast_dllm_plusplus": fast_dllm_plusplus,
    "fast_diffuser": fast_diffuser,
    "pangu_block": pangu_block,
    "linear_spec": linear_spec,
}
