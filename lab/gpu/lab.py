"""The device, the sizes, and models of those sizes created on the device: weights never touch a disk or the host."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from decgraph.bench.timing import Spread
from decgraph.bench.weights import Weights, count, paired
from lab.gpu.report import Row


@dataclass(frozen=True)
class Sizes:
    """What is measured. target, masked: configurations of a Llama and a EuroBERT. below: layers of the drafter, which is
    the target's first ones. prompt, limit: tokens of a request; short: the limit of the run that is taken off, so that a
    step is (limit - short)th of the difference. batch, batch_prompt, batch_limit: of the batched requests. canvas, block:
    cells of the masked model's; canvas_prompt: tokens before it."""

    name: str
    target: dict[str, Any]
    masked: dict[str, Any]
    dtype: torch.dtype
    below: int
    prompt: int
    limit: int
    short: int
    rounds: int
    batch: int
    batch_prompt: int
    batch_limit: int
    canvas: int
    block: int
    canvas_prompt: int
    copied: int  # bytes of the copy that bandwidth is measured with


SIZES = {
    # Llama 3.1 8B and LLaDA 8B; three layers and the output matrix are 1.2e9 parameters, as a 1B drafter reads
    "8b": Sizes(
        "8b",
        {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192},
        {"vocab_size": 126464, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096, "mask_token_id": 126336},
        torch.bfloat16, below=3, prompt=1024, limit=72, short=8, rounds=3, batch=8, batch_prompt=256, batch_limit=48,
        canvas=64, block=32, canvas_prompt=448, copied=4 << 30),
    "tiny": Sizes(
        "tiny",
        {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 512},
        {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 4, "max_position_embeddings": 256, "mask_token_id": 511},
        torch.float32, below=1, prompt=24, limit=12, short=4, rounds=1, batch=3, batch_prompt=16, batch_limit=6,
        canvas=8, block=4, canvas_prompt=8, copied=1 << 22),
}  # fmt: skip


COMMON: dict[str, Any] = {"tie_word_embeddings": False, "bos_token_id": 3, "eos_token_id": None, "pad_token_id": 1,
                          "attn_implementation": "sdpa"}  # fmt: skip


class Lab:
    """A device and sizes; creates models once and can release them."""

    def __init__(self, device: torch.device, sizes: Sizes) -> None:
        self.device, self.sizes = device, sizes
        self.bandwidth: float | None = None  # bytes a second that a copy reads and writes
        self._weights: Weights | None = None
        self._masked: Any = None
        self.agreement = 0.0

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def sync(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def seconds(self, work: Callable[[], object], rounds: int, warm: int = 3) -> Spread:
        """Wall-clock seconds of a call, the device waited for before and after it."""
        took = []
        for n in range(warm + rounds):
            self.sync()
            started = time.perf_counter()
            work()
            self.sync()
            if n >= warm:
                took.append(time.perf_counter() - started)
        return Spread.of(took)

    def copy_bandwidth(self) -> float:
        """Bytes read and written a second by a large copy on the device; measured once."""
        if self.bandwidth is None:
            source = torch.empty(self.sizes.copied, dtype=torch.uint8, device=self.device).fill_(1)
            target = torch.empty_like(source)
            took = self.seconds(lambda: target.copy_(source), 9)
            self.bandwidth = 2 * self.sizes.copied / took.median
        return self.bandwidth

    def weights(self) -> Weights:
        """The target and the drafter, which is its first layers; what the layers above add is scaled down until the two
        agree on three tokens of four. Random weights cost what any do; a row says how many drafts are accepted."""
        if self._weights is None:
            self.forget()
            target = causal({**self.sizes.target}, self.device, self.sizes.dtype)
            drafter = causal({**self.sizes.target, "num_hidden_layers": self.sizes.below}, self.device, self.sizes.dtype)
            self.agreement = paired(target, drafter, self.sizes.below)
            self._weights = Weights(f"llama-{self.sizes.name}", target, drafter, int(target.config.vocab_size))
        return self._weights

    def building(self) -> Row:
        """The item that makes the target and the drafter."""
        made = self.weights()
        sizes = f"target {count(made.target) / 1e9:.3f}e9, drafter {count(made.drafter) / 1e9:.3f}e9 parameters"
        found: Row = {**made.facts(), "agreement": self.agreement, "floor_ms": self.floor(made.target)}
        return {**found, "says": f"{sizes}; they agree on {self.agreement:.0%}"}

    def building_masked(self) -> Row:
        """The item that makes the masked model."""
        made = self.masked()
        found: Row = {"parameters": count(made), "floor_ms": self.floor(made)}
        return {**found, "says": f"{count(made) / 1e9:.3f}e9 parameters"}

    def masked(self) -> Any:
        """The masked model. One of it and the target is kept at a time."""
        if self._masked is None:
            self.forget()
            self._masked = masked({**self.sizes.masked}, self.device, self.sizes.dtype)
        return self._masked

    def alive(self) -> bool:
        """Whether the device still works: after an access to memory that is not there it never does, in this process."""
        try:
            self.sync()
            return float(torch.ones(2, device=self.device).sum()) == 2
        except Exception:  # CUDA's errors have many classes
            return False

    def forget(self) -> None:
        """Free all models."""
        self._weights = self._masked = None
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()

    def floor(self, module: Any, cells: int = 0, *, base: bool = False) -> float:
        """Milliseconds that reading the weights of a forward, and the keys and values of `cells` cells, takes at the
        bandwidth of a copy. base: without the output matrix. The table of embeddings is not read but for a few rows."""
        parts = module.base_model if base else module
        table = module.get_input_embeddings().weight
        tied = not base and module.get_output_embeddings().weight is table
        read = sum(p.numel() * p.element_size() for p in parts.parameters())
        read -= 0 if tied else table.numel() * table.element_size()
        config = module.config
        heads, size = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        read += 2 * cells * config.num_hidden_layers * heads * size * table.element_size()
        return 1000 * read / self.copy_bandwidth()


def made(kind: Any, config: Any, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Any:
    """A module of a transformers class with random weights, on the device from the start."""
    torch.manual_seed(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            module = kind(config)
    finally:
        torch.set_default_dtype(before)
    return module.to(device).eval().requires_grad_(False)


def causal(sizes: dict[str, Any], device: torch.device, dtype: torch.dtype, seed: int = 0) -> Any:
    """A Llama of these sizes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return made(LlamaForCausalLM, LlamaConfig(**{**COMMON, **sizes}), device, dtype, seed)


def masked(sizes: dict[str, Any], device: torch.device, dtype: torch.dtype, seed: int = 0) -> Any:
    """A EuroBERT of these sizes: Llama's layers with full attention."""
    from transformers import EuroBertConfig, EuroBertForMaskedLM

    return made(EuroBertForMaskedLM, EuroBertConfig(**{**COMMON, "eos_token_id": 2, **sizes}), device, dtype, seed)
