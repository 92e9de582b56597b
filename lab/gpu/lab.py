"""The device, the sizes, models of those sizes created on the device, clocks, and processes to spread checks over."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM

from decgraph.bench.machine import facts
from decgraph.bench.weights import BenchWeights, paired
from decgraph.runtime.models.decoder.make import net_of_module
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import Vocab
from decgraph.zoo.modeling import EagleConfig, EagleHead
from lab.gpu.first import Items, Row

Work = Callable[[], object]
CACHE = 128 << 20  # bytes that launches go over before one comes back to what may still be in a cache


def _llama(vocabulary: int, width: int, inner: int, layers: int, heads: int, groups: int, reach: int) -> dict[str, Any]:
    return {"vocab_size": vocabulary, "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": groups, "max_position_embeddings": reach,
            "tie_word_embeddings": False, "bos_token_id": 3, "eos_token_id": None, "pad_token_id": 1,
            "attn_implementation": "sdpa"}  # fmt: skip


# target, masked: configurations of Llamas, the second of LLaDA's shape. below: layers of the drafter, the target's first (three
# and the output matrix are 1.2e9 parameters, as a 1B drafter reads). prompt: tokens of a request; steps: timed one after the
# other. canvas, block, before: cells, and tokens before them. copied: bytes by which bandwidth is measured.
SIZES: dict[str, Any] = {
    "8b": SimpleNamespace(
        target=_llama(128256, 4096, 14336, 32, 32, 8, 8192), masked=_llama(126464, 4096, 12288, 32, 32, 32, 4096), below=3,
        dtype=torch.bfloat16, prompt=1024, steps=24, canvas=64, block=32, before=448, copied=4 << 30, contexts=(1024, 8192)),
    "tiny": SimpleNamespace(
        target=_llama(512, 64, 128, 4, 4, 2, 512), masked=_llama(512, 64, 128, 3, 4, 4, 256), below=1,
        dtype=torch.float32, prompt=24, steps=2, canvas=8, block=4, before=8, copied=1 << 22, contexts=(32,)),
}  # fmt: skip


def stage(lab: Lab) -> Items:
    """1. Versions, a copy's bandwidth, and what an operation costs."""
    yield "costs", lab.costs


class Lab:
    """A device and sizes; creates models once and can release them."""

    def __init__(self, device: torch.device, sizes: Any) -> None:
        self.device, self.sizes, self.cuda = device, sizes, device.type == "cuda"
        self.agreement = 0.0
        self._large: BenchWeights | None = None

    def sync(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def alive(self) -> bool:
        """Whether the device still works: after an access to memory that is not there it never does, in this process."""
        try:
            return float(torch.ones(2, device=self.device).sum()) == 2
        except Exception:  # CUDA's errors have many classes
            return False

    def seconds(self, work: Work, rounds: int, warm: int = 3, calls: int = 1) -> float:
        """Wall-clock seconds of a call, the median of rounds of some calls; the device is waited for before and after each."""
        took = []
        for _ in range(warm + rounds):
            self.sync()
            started = time.perf_counter()
            for _ in range(calls):
                work()
            self.sync()
            took.append((time.perf_counter() - started) / calls)
        return statistics.median(took[warm:])

    def launch_ms(self, works: Sequence[Work]) -> float:
        """Milliseconds of a launch, the mean over the works in a row: one CUDA graph, so that the host's time is left out."""

        def every() -> None:
            for work in works:
                work()

        every()  # everything is compiled before it is captured
        if not self.cuda:
            return 1000 * self.seconds(every, 1, 0) / len(works)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            every()
        return 1000 * self.seconds(graph.replay, 20) / len(works)

    def copies(self, each: int) -> range:
        """Pieces of memory of so many bytes, over which launches are spread."""
        return range(max(2, min(64, -(-CACHE // max(each, 1)))) if self.cuda else 1)

    @cached_property
    def bandwidth(self) -> float:
        """Bytes read and written a second by a large copy on the device."""
        source = torch.empty(self.sizes.copied, dtype=torch.uint8, device=self.device).fill_(1)
        target = torch.empty_like(source)
        return 2 * self.sizes.copied / self.seconds(lambda: target.copy_(source), 9)

    def costs(self, count: int = 1000) -> Row:
        """Gigabytes a second of a copy; microseconds to issue an operation, of a node of a graph, and to read one value."""
        x, gbs = torch.zeros(16, device=self.device), self.bandwidth / 1e9
        node = 1000 * self.launch_ms([lambda: x.add_(1)] * (count if self.cuda else 10))
        issue = 1e6 * self.seconds(lambda: x.add_(1), 5, 1, count)
        read = 1e6 * self.seconds(lambda: float(x[0]), 5, 1, 100)
        row = {**facts(), "gb_per_s": gbs, "node_us": node, "issue_us": issue, "read_us": read}
        row["right"] = bool((x == x[0]).all())
        row["gpu"] = str(torch.cuda.get_device_properties(self.device)) if self.cuda else row["processor"]
        told = f"a copy {gbs:.0f} GB/s; an operation {issue:.1f} us, a node {node:.2f} us, one value {read:.1f} us"
        return {**row, "says": f"{told}; {row['gpu']}; torch {torch.__version__}, triton {triton.__version__}"}

    def weights(self) -> BenchWeights:
        """The target, the drafter, which is its first layers, and an EAGLE head. What the layers above add is scaled down until
        target and drafter agree on three tokens of four. Random weights cost what any do."""
        if self._large is None:
            target, drafter = (self.made(LlamaConfig, LlamaForCausalLM, layers) for layers in (None, self.sizes.below))
            self.agreement = paired(target, drafter, self.sizes.below)
            parts = {"features": self.made(EagleConfig, EagleHead, 1)}
            self._large = BenchWeights("llama", target, drafter, target.config.vocab_size, parts=parts)
        return self._large

    def masked(self) -> Any:
        """A masked model of LLaDA's shape, as read from a folder of LLaDA: a Llama where every cell sees every other. Its last
        token is the mask. The target is released."""
        self._large = None
        gc.collect()
        size, reach = (int(self.sizes.masked[key]) for key in ("vocab_size", "max_position_embeddings"))
        net = net_of_module(self.made(LlamaConfig, LlamaForCausalLM, None, self.sizes.masked), "llada")
        return HFMasked(net, name="llada", vocab=Vocab("llada", size), context=reach, family="llada", mask=size - 1)

    def made(self, config: Any, module: Any, layers: int | None, sizes: Any = None) -> Any:
        """A module with random weights, on the device from the start."""
        given, before = dict(sizes or self.sizes.target), torch.get_default_dtype()
        given["num_hidden_layers"] = layers or given["num_hidden_layers"]
        torch.manual_seed(0)
        torch.set_default_dtype(self.sizes.dtype)
        try:
            with self.device:
                return module(config(**given)).to(self.device).eval().requires_grad_(False)
        finally:
            torch.set_default_dtype(before)

    def floor(self, module: Any, cells: int = 0) -> float:
        """Milliseconds that reading a module's weights, and keys and values of `cells` cells, takes at the bandwidth of a copy.
        The table of embeddings is not read but for a few rows."""
        own = [p for name, p in module.named_parameters() if not name.endswith("embed_tokens.weight")]
        read = sum(p.numel() * p.element_size() for p in own)
        if cells:
            config = module.config
            size = config.num_key_value_heads * config.hidden_size // config.num_attention_heads
            read += 2 * cells * config.num_hidden_layers * size * own[0].element_size()
        return 1000 * read / self.bandwidth

    def profiled(self, work: Work) -> Row:
        """The costliest kernels of a run (on the CPU, operations), and all of them together."""
        with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.cuda else [])]) as seen:
            took = self.seconds(work, 1, 0)
        # A kernel's time is also that of the operation that started it; count the kernels.
        found = [e for e in seen.key_averages() if not (self.cuda and "CPU" in str(e.device_type)) and not e.is_user_annotation]
        spent = sorted(((e.self_device_time_total or e.self_cpu_time_total, e.count, e.key[:90]) for e in found), reverse=True)
        busy, launches = (sum(each[n] for each in spent) for n in (0, 1))
        return {"us": 1e6 * took, "busy_us": busy, "launches": launches, "us_count_name": spent[:25]}

    def spread(self, work: Callable[[Lab, Any], Any], tasks: Sequence[Any], seconds: float, processes: int = 8) -> list[Any]:
        """`work` of every task, in order, in processes of their own; an exception is the task's result, as text, and so is that
        there was no time. On the CPU nothing is started."""
        if not self.cuda:
            return [_told(work, self, task) for task in tasks]
        until, mine, found = time.monotonic() + seconds, Lab(self.device, self.sizes), list[Any]()
        with multiprocessing.get_context("spawn").Pool(processes) as pool:  # which is terminated at its end
            for made in [pool.apply_async(_told, (work, mine, task)) for task in tasks]:
                try:
                    found.append(made.get(max(until - time.monotonic(), 0.01)))
                except multiprocessing.TimeoutError:
                    found.append("no time, or its process ended")
        return found


def _told(work: Callable[[Lab, Any], Any], lab: Lab, task: Any) -> Any:
    try:
        out = work(lab, task)
        lab.sync()
        return out
    except Exception as error:  # it is what there is to tell about this task
        return f"{type(error).__name__}: {error}"[:600]
