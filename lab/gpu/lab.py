"""The device, the sizes, models of those sizes created on the device, clocks, and processes to spread checks over."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import torch

from decgraph.bench.timing import Spread
from decgraph.bench.weights import Weights, count, paired
from lab.gpu.report import Row

Work = Callable[[], object]
CACHE = 128 << 20
"""Bytes that launches go over before one comes back to memory that another has used; more than any cache holds."""


@dataclass(frozen=True)
class Sizes:
    """What is measured. target, masked: configurations of Llamas, the second of LLaDA's shape. below: layers of the drafter, which
    is the target's first ones. prompt: tokens of a request; steps: how many decoding steps are timed one after the other.
    canvas, block, before: cells of a canvas, of its blocks, and tokens before it. copied: bytes of the copy that bandwidth is
    measured with. contexts: of the kernels' times."""

    name: str
    target: dict[str, Any]
    masked: dict[str, Any]
    dtype: torch.dtype
    below: int
    prompt: int
    steps: int
    canvas: int
    block: int
    before: int
    copied: int
    contexts: tuple[int, ...]


SIZES = {
    # Llama 3.1 8B and LLaDA 8B; three layers and the output matrix are 1.2e9 parameters, as a 1B drafter reads
    "8b": Sizes(
        "8b",
        {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192},
        {"vocab_size": 126464, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096},
        torch.bfloat16, below=3, prompt=1024, steps=24, canvas=64, block=32, before=448, copied=4 << 30, contexts=(1024, 8192)),
    "tiny": Sizes(
        "tiny",
        {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 512},
        {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 4, "max_position_embeddings": 256},
        torch.float32, below=1, prompt=24, steps=2, canvas=8, block=4, before=8, copied=1 << 22, contexts=(32,)),
}  # fmt: skip
COMMON: dict[str, Any] = {"tie_word_embeddings": False, "bos_token_id": 3, "eos_token_id": None, "pad_token_id": 1,
                          "attn_implementation": "sdpa"}  # fmt: skip


class Lab:
    """A device and sizes; creates models once and can release them."""

    def __init__(self, device: torch.device, sizes: Sizes) -> None:
        self.device, self.sizes = device, sizes
        self.bandwidth: float | None = None
        self._made: dict[str, Any] = {}

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def sync(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def seconds(self, work: Work, rounds: int, warm: int = 3) -> Spread:
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

    def launch_ms(self, works: Sequence[Work], rounds: int = 20) -> Spread:
        """Milliseconds of a launch, the mean over the works in a row: one CUDA graph, so that the host's time is left out."""

        def every() -> None:
            for work in works:
                work()

        replay = every
        if self.cuda:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # everything is compiled before it is captured
                every()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                every()
            replay = graph.replay
        took = self.seconds(replay, rounds if self.cuda else 1, 3 if self.cuda else 0)
        return Spread(*(1000 * s / len(works) for s in (took.median, took.low, took.high)))

    def copies(self, each: int) -> int:
        """Into how many pieces of memory of so many bytes launches are spread."""
        return max(2, min(64, -(-CACHE // max(each, 1)))) if self.cuda else 1

    def copy_bandwidth(self) -> float:
        """Bytes read and written a second by a large copy on the device; measured once."""
        if self.bandwidth is None:
            source = torch.empty(self.sizes.copied, dtype=torch.uint8, device=self.device).fill_(1)
            target = torch.empty_like(source)
            self.bandwidth = 2 * self.sizes.copied / self.seconds(lambda: target.copy_(source), 9).median
        return self.bandwidth

    def weights(self) -> Weights:
        """The target, the drafter, which is its first layers, and an EAGLE head; what the layers above add is scaled down until
        target and drafter agree on three tokens of four. Random weights cost what any do."""
        if "weights" not in self._made:
            self.forget()
            from decgraph.zoo.modeling import EagleConfig, EagleHead

            sizes = self.sizes.target
            target = self.made("LlamaForCausalLM", sizes)
            drafter = self.made("LlamaForCausalLM", {**sizes, "num_hidden_layers": self.sizes.below})
            self._made["agreement"] = paired(target, drafter, self.sizes.below)
            with _default(self.sizes.dtype), self.device:
                config = EagleConfig(**{**COMMON, **sizes, "num_hidden_layers": 1})  # type: ignore[arg-type]
                head = EagleHead(config).to(self.device).eval().requires_grad_(False)
            size = int(target.config.vocab_size)
            self._made["weights"] = Weights(f"llama-{self.sizes.name}", target, drafter, size, parts={"features": head})
        made: Weights = self._made["weights"]
        return made

    def building(self) -> Row:
        """The item that makes them."""
        made = self.weights()
        sizes = f"target {count(made.target) / 1e9:.3f}e9, drafter {count(made.drafter) / 1e9:.3f}e9 parameters"
        agreement = self._made["agreement"]
        found: Row = {**made.facts(), "agreement": agreement, "floor_ms": self.floor(made.target)}
        return {**found, "says": f"{sizes}; they agree on {agreement:.0%}"}

    def masked(self) -> Any:
        """A model of LLaDA's shape, whose last token is the mask, as one that is read from a folder of LLaDA: a Llama where every
        cell sees every other. One of it and the target is kept at a time."""
        if "masked" not in self._made:
            self.forget()
            self._made["masked"] = masked(self.made("LlamaForCausalLM", self.sizes.masked))
        return self._made["masked"]

    def made(self, kind: str, sizes: dict[str, Any], seed: int = 0) -> Any:
        """A module of a transformers class with random weights, on the device from the start."""
        import transformers

        torch.manual_seed(seed)
        with _default(self.sizes.dtype), self.device:
            module = getattr(transformers, kind)(transformers.LlamaConfig(**{**COMMON, **sizes}))
        return module.to(self.device).eval().requires_grad_(False)

    def alive(self) -> bool:
        """Whether the device still works: after an access to memory that is not there it never does, in this process."""
        try:
            self.sync()
            return float(torch.ones(2, device=self.device).sum()) == 2
        except Exception:  # CUDA's errors have many classes
            return False

    def forget(self) -> None:
        """Free all models."""
        self._made.clear()
        self.tidy()

    def tidy(self) -> None:
        """Free what nobody has any more."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()

    def floor(self, module: Any, cells: int = 0) -> float:
        """Milliseconds that reading the weights of a forward, and the keys and values of `cells` cells, takes at the bandwidth of a
        copy. The table of embeddings is not read but for a few rows."""
        own = [p for name, p in module.named_parameters() if not name.endswith("embed_tokens.weight")]
        read = sum(p.numel() * p.element_size() for p in own)
        if cells:
            config = module.config
            heads, size = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
            read += 2 * cells * config.num_hidden_layers * heads * size * own[0].element_size()
        return 1000 * read / self.copy_bandwidth()

    def profiled(self, work: Work, rows: int = 18) -> Row:
        """The costliest operations of a run, by the device's time (on the CPU, by its own); the device's time in all."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.cuda else [])]) as seen:
            took = self.seconds(work, 1, 0).median
        found = seen.key_averages()
        # A kernel's time is also that of the operation that started it; count the kernels.
        kernels = [e for e in found if str(e.device_type) != "DeviceType.CPU" and not e.is_user_annotation]
        busy = sum(event.self_device_time_total for event in kernels) / 1e6
        order = "self_device_time_total" if self.cuda else "self_cpu_time_total"
        table = found.table(sort_by=order, row_limit=rows, max_name_column_width=60)
        return {"seconds": took, "device_seconds": busy, "kernels": sum(e.count for e in kernels), "table": table}

    def spread(self, work: Callable[[Lab, Any], Any], tasks: Sequence[Any], seconds: float, processes: int = 8) -> list[Any]:
        """`work` of every task, in order, in processes of their own; an exception is the task's result, as text, and so is that there
        was no time. On the CPU nothing is started."""
        if not self.cuda:
            return [told(work, self, task) for task in tasks]
        given = (str(self.device), self.sizes.name)
        pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _start, given)
        try:
            futures = [pool.submit(_work, work, task) for task in tasks]
            wait(futures, seconds)
            return [f.result() if f.done() and not f.exception() else f"no time: {f!r}" for f in futures]
        finally:  # a kernel that never ends must not keep the device from what comes next
            for process in multiprocessing.active_children():
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)


class _default:
    """While it is entered, floating-point numbers have a dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype, self.before = dtype, torch.get_default_dtype()

    def __enter__(self) -> None:
        torch.set_default_dtype(self.dtype)

    def __exit__(self, *_: object) -> None:
        torch.set_default_dtype(self.before)


def masked(module: Any) -> Any:
    """A masked model on the layers of a Llama; its module is `module`."""
    from decgraph.runtime.models.decoder.make import net_of_module
    from decgraph.runtime.models.hf_masked import HFMasked
    from decgraph.runtime.models.interface import Vocab

    size, reach = module.config.vocab_size, module.config.max_position_embeddings
    return HFMasked(
        net_of_module(module, "llada"), name="llada", vocab=Vocab("llada", size), context=reach, family="llada", mask=size - 1
    )


_HERE: list[Lab] = []


def _start(device: str, sizes: str) -> None:
    _HERE[:] = [Lab(torch.device(device), SIZES[sizes])]


def _work(work: Callable[[Lab, Any], Any], task: Any) -> Any:
    return told(work, _HERE[0], task)


def told(work: Callable[[Lab, Any], Any], lab: Lab, task: Any) -> Any:
    """What a task gives, or the exception as text."""
    try:
        out = work(lab, task)
        lab.sync()
        return out
    except Exception as error:  # it is what there is to tell about this task
        return f"{type(error).__name__}: {error}"[:600]
