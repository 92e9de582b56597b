"""One cached forward of the shipped pair: the transformers module, straight eager torch, and the captured graph.

    .venv/bin/python lab/capture.py [--threads 1] [--rounds 60] [--compile]

Three copies of the weights, so that the captured graph's way of storing them helps nobody else. The contenders take
turns; every timing is preceded by an untimed call of the same contender, since copies push each other out of the
processor's cache. Prints medians, quartiles and ratios to the captured step for B sequences of T new cells over S rows
of keys and values, how long capturing took, and the operations of a layer. Writes lab/results/capture.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM

from decgraph.bench.machine import facts
from decgraph.runtime.models.capture.compiled import compiled
from decgraph.runtime.models.capture.make import capture
from decgraph.runtime.models.engine.step import ModuleStep

ROOT = Path(__file__).parent
RESULTS = ROOT / "results" / "capture.json"
SIZES = [(1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (1, 32), (1, 64), (2, 1), (4, 1), (8, 1), (2, 8), (4, 8), (8, 8), (8, 64)]
ROWS = 256

Step = Callable[..., Any]


def straight(base: Any) -> Step:
    """A Llama's cached forward as one would write it by hand in eager torch, over the module's own weights."""
    config = base.config
    heads, size, eps = config.num_attention_heads, config.head_dim, config.rms_norm_eps
    frequencies = base.rotary_emb.inv_freq

    def normed(x: Tensor, weight: Tensor) -> Tensor:
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))

    def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat((-high, low), -1) * sin

    layers = [
        (
            layer.input_layernorm.weight, layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight,
            layer.self_attn.v_proj.weight, layer.self_attn.o_proj.weight, layer.post_attention_layernorm.weight,
            layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight, layer.mlp.down_proj.weight,
        )
        for layer in base.layers
    ]  # fmt: skip

    @torch.no_grad()
    def step(
        ids: Tensor, positions: Tensor, write: Tensor, keys: list[Tensor], values: list[Tensor], masks: dict[str, Tensor]
    ) -> Tensor:
        batch, cells = ids.shape
        x = F.embedding(ids, base.embed_tokens.weight)
        angles = positions[..., None].float() * frequencies
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        at = write[:, None, :, None].expand(batch, heads, cells, size)
        for i, (n1, wq, wk, wv, wo, n2, wg, wu, wd) in enumerate(layers):
            y = normed(x, n1)
            q, k, v = (F.linear(y, w).view(batch, cells, heads, size).transpose(1, 2) for w in (wq, wk, wv))
            q, k = rotated(q, cos, sin), rotated(k, cos, sin)
            if batch == 1:
                keys[i].index_copy_(2, write[0], k)
                values[i].index_copy_(2, write[0], v)
            else:
                keys[i].scatter_(2, at, k)
                values[i].scatter_(2, at, v)
            a = F.scaled_dot_product_attention(q, keys[i], values[i], attn_mask=masks["full_attention"])
            x = x + F.linear(a.transpose(1, 2).reshape(batch, cells, -1), wo)
            y = normed(x, n2)
            x = x + F.linear(F.silu(F.linear(y, wg)) * F.linear(y, wu), wd)
        return normed(x, base.norm.weight)

    return step


def loaded(name: str) -> Any:
    """A shipped model as a transformers module in float32."""
    folder = ROOT.parent / "zoo" / "models" / name
    return (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval().requires_grad_(False)
    )


def inputs(config: Any, batch: int, cells: int) -> tuple[Any, ...]:
    """Cells 100 .. 100 + T - 1 of every sequence, over random keys and values before them."""
    shape = (batch, config.num_key_value_heads, ROWS, config.head_dim)
    at = torch.arange(100, 100 + cells).expand(batch, cells).contiguous()
    mask = (torch.arange(ROWS) <= at[:, :, None])[:, None]
    caches = [[torch.randn(shape) for _ in range(config.num_hidden_layers)] for _ in range(2)]
    return torch.randint(config.vocab_size, (batch, cells)), at, at, *caches, {"full_attention": mask}


def compared(contenders: dict[str, Step], config: Any, rounds: int) -> list[dict[str, Any]]:
    """A row of milliseconds for every size and contender."""
    rows = []
    for batch, cells in SIZES:
        given = inputs(config, batch, cells)
        outs = [step(*given) for step in contenders.values()]
        for out in outs[1:]:
            assert torch.allclose(out, outs[0], rtol=1e-4, atol=1e-4), "the contenders do not agree"
        took: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(max(rounds // (1 + batch * cells // 32), 9)):
            for name, step in contenders.items():
                step(*given)
                started = time.perf_counter()
                step(*given)
                took[name].append(1000 * (time.perf_counter() - started))
        row: dict[str, Any] = {"B": batch, "T": cells, "S": ROWS}
        for name, times in took.items():
            low, middle, high = statistics.quantiles(times, n=4)
            row[name] = {"median_ms": round(middle, 4), "quartiles_ms": [round(low, 4), round(high, 4)], "best_ms": min(times)}
        for name in contenders:
            row[f"{name} / captured"] = round(row[name]["median_ms"] / row["captured"]["median_ms"], 2)
        rows.append(row)
        shown = "  ".join(f"{name} {row[name]['median_ms']:8.3f} ({row[f'{name} / captured']:.2f})" for name in contenders)
        print(f"B {batch} T {cells:3}  {shown}", flush=True)
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--compile", action="store_true", help="also torch.compile the captured graph (minutes)")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    result: dict[str, Any] = {"machine": facts(), "torch_threads": asked.threads, "models": {}}
    for name in ("target", "drafter"):
        plain, by_hand, model = loaded(name), loaded(name), loaded(name)
        seconds, step = list[float](), None
        for _ in range(3):
            started = time.perf_counter()
            step = capture(model)
            seconds.append(round(time.perf_counter() - started, 3))
        assert step is not None
        contenders: dict[str, Step] = {
            "module": torch.no_grad()(ModuleStep(plain.base_model, name)),
            "straight": straight(by_hand.base_model),
            "captured": step,
        }
        if asked.compile:
            contenders["compiled"] = compiled(step, notice=print)
        print(f"{name}: captured in {seconds[0]} s (again: {seconds[1:]}), {step.nodes} operations", flush=True)
        result["models"][name] = {
            "capture_s": seconds,
            "operations": step.nodes,
            "layers": step.layers,
            "steps": compared(contenders, model.config, asked.rounds),
        }
    before = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    before[f"threads_{asked.threads}"] = result
    RESULTS.write_text(json.dumps(before, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
