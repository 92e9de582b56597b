"""Writes the page of launches beside it: of each algorithm's step on small Llamas, how many there are:
`python docs/reference/launches.py`, in some minutes; with names of algorithms it counts those alone and keeps the other rows.

The page is a limit: a test counts again and fails where a step has more launches than the page says. With `--check` nothing is
written, and the exit code is 1 where the page says otherwise. It needs torch and triton; no GPU.
"""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from decgraph import api
from decgraph.backends.triton import emit
from decgraph.backends.triton.listing import graphs_of
from decgraph.backends.triton.support import NotSteppable
from decgraph.check.worlds import params_for
from decgraph.errors import DecError
from decgraph.models import bind
from decgraph.runtime.models.decoder.make import net_of_module
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import Vocab
from decgraph.runtime.models.watch import shadow
from decgraph.zoo.modeling import EagleConfig, EagleHead, ExitAdapter, ExitConfig, MedusaConfig, MedusaHeads

PAGE = Path(__file__).with_suffix(".md")
LAYERS, DEEP, REACH, SIZE = 2, 6, 1024, 61
"""Layers of the models; of those of algorithms that read deeper ones; their positions; their tokens."""
SHAPE = {
    "vocab_size": SIZE, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": REACH, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
HEAD = f"""# Launches of a step

*Made by `python docs/reference/launches.py`, from steps recorded on Llamas of {LAYERS} layers ({DEEP} where more
are read) as they are on CUDA. `tests/backends/triton/test_launches.py` fails where a step has more launches than here.*

A launch is a product, a sort, a kernel by hand, or one of those that Inductor writes for what is between them (`--emit triton`
prints them). They are for compute capability 9.0, whatever is there.
Models are handed over from Python, with q, k, v and gate, up apart; a folder's take as many launches. Parameters are the
defaults. The unit is a whole decoding step, or one iteration of the innermost loop where the host runs loops. Layers are
those that are run in a unit, of all models together (each is one call of the kernel `attend`); launches a layer are those
from one layer's attention to that of the next (0 where no model runs two layers), and those outside are all others:
embeddings and output matrices are among them.
"""
TABLE = """| algorithm | unit | launches | outside layers | layers | a layer | sorts | kernels by hand |
|---|---|--:|--:|--:|--:|--:|--:|"""
UNITS = {"one decoding step": "step", "one iteration of the innermost loop": "iteration"}


@dataclass(frozen=True)
class Row:
    """The launches of an algorithm's step. layers: that are run. each: launches of one, 0: not known. why: why there is no
    graph."""

    name: str
    unit: str = ""
    launches: int = 0
    layers: int = 0
    each: int = 0
    sorts: int = 0
    kernels: int = 0
    why: str = ""

    @property
    def outside(self) -> int:
        """Launches outside of layers."""
        return self.launches - self.layers * self.each

    def __str__(self) -> str:
        numbers = (self.launches, self.outside, self.layers, self.each, self.sorts, self.kernels)
        return f"| `{self.name}` | {self.unit} | {' | '.join(map(str, numbers))} |"


def models_of(function: Any, layers: int) -> dict[str, Any]:
    """Small models for all model parameters, as bound. layers: of each causal or masked one."""
    given: dict[str, Any] = {}
    for n, p in enumerate(p for p in function.params if p.value.type.elem == "model"):
        kind, vocab, _, gives = (str(part) for part in p.value.type.of)
        torch.manual_seed(n)
        module: Any = None
        if kind in ("causal", "masked"):
            module = LlamaForCausalLM(LlamaConfig(**SHAPE, num_hidden_layers=layers)).eval()
            net, module = net_of_module(shadow(module), p.name), None
            named: dict[str, Any] = {"name": p.name, "vocab": Vocab("ids" if vocab == "V" else vocab, SIZE), "context": REACH}
            masked = {"family": "llada", "mask": SIZE - 1}
            given[p.name] = HFCausal(net, **named, family="llama") if kind == "causal" else HFMasked(net, **named, **masked)
        elif kind == "features":
            module = EagleHead(EagleConfig(**SHAPE, num_hidden_layers=1))
        elif kind == "layers":
            module = ExitAdapter(ExitConfig(**SHAPE, num_hidden_layers=1, exit_layer=2))
        if gives == "causal+heads":
            heads = MedusaHeads(MedusaConfig(hidden_size=SHAPE["hidden_size"], inner_size=48, heads=4))
            given[f"{p.name}.heads"] = heads.eval().requires_grad_(False)
        if module is not None:
            given[p.name] = module.eval().requires_grad_(False)
    return bind(function, given, device="cpu").models


def recorded(name: str, layers: int) -> tuple[str, list[emit.Launch]]:
    """The unit of an algorithm's step, and its launches, on models of so many layers. Raises NotSteppable, and DecError for an
    algorithm that these models do not fit."""
    algorithm = api.load(name)
    function = algorithm.function
    wanted = {p.name for p in function.params if p.default is None}
    params = {k: v for k, v in params_for(function, 1, vocab=SIZE).items() if k in wanted}
    session = algorithm.session(models_of(function, layers), backend="triton", **params)
    title, graph = next(iter(graphs_of(session.module, session.function.name, session.models, session.params)))
    return UNITS[title], emit.launches(graph)


def row(name: str, record: Callable[[str, int], tuple[str, list[emit.Launch]]] = recorded) -> Row:
    """An algorithm's row."""
    why = ""
    for depth in (LAYERS, DEEP):
        try:
            unit, found = record(name, depth)
        except NotSteppable as error:
            return Row(name, why=error.why)
        except DecError as error:
            why = str(error).splitlines()[0].removeprefix("error: ")
            continue
        count = emit.totals(found)[0]
        layers = [n for n, made in enumerate(found) if "attend" in made.names]
        return Row(name, unit, count.total(), len(layers), between(found, layers), count["sort"], count["kernel"])
    return Row(name, why=why)


def between(found: list[emit.Launch], layers: list[int]) -> int:
    """The launches of one layer: from its attention to that of the layer above it, which is the next nearest. layers: the
    places of attention in the list."""
    return min((sum(made.count for made in found[a:b]) for a, b in pairwise(layers)), default=0)


def names() -> list[str]:
    """The algorithms that have a whole step."""
    steps = runpy.run_path(str(PAGE.parent / "steps.py"))["PAGE"].read_text(encoding="utf-8")
    return re.findall(r"`(\w+)`", steps.split("## ")[1])


def read() -> dict[str, Row]:
    """The rows of the page, by name."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = {}
    for cells in re.findall(r"^\| `(\w+)` \| (\w+) \| (\d+) \| -?\d+ \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.M):
        name, unit, total, layers, each, sorts, kernels = cells
        found[name] = Row(name, unit, int(total), int(layers), int(each), int(sorts), int(kernels))
    found |= {name: Row(name, why=why) for name, why in re.findall(r"^\| `(\w+)` \| (\D[^|]*) \|$", text, re.M)}
    return found


def page(rows: Iterable[Row]) -> str:
    """The whole page."""
    rows = sorted(rows, key=lambda r: r.name)
    lines = [HEAD, TABLE, *(str(r) for r in rows if not r.why)]
    lines += [
        "",
        "## Without a graph\n",
        "Their steps run operation by operation on these models.\n",
        "| algorithm | because of |",
        "|---|---|",
    ]
    lines += [f"| `{r.name}` | {r.why} |" for r in rows if r.why]
    left = sorted(set(names()) - {r.name for r in rows})
    if left:
        lines += ["", "## Not counted yet\n", ", ".join(f"`{name}`" for name in left)]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, all of it or the rows of some algorithms, or with `--check` say whether it is up to date."""
    known, every = read(), names()
    chosen = [a for a in arguments if a != "--check"]
    if set(chosen) - set(every):
        print(f"usage: python docs/reference/launches.py [--check] [NAME ...]; no step: {', '.join(set(chosen) - set(every))}")
        return 2
    rows = {name: known[name] for name in every if name in known and chosen}
    for name in chosen or every:
        rows[name] = row(name)
        print(rows[name] if not rows[name].why else f"| `{name}` | {rows[name].why} |", flush=True)
    text = page(rows.values())
    if "--check" in arguments:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE} is {'up to date' if same else 'out of date: run python docs/reference/launches.py'}")
        return 0 if same else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
