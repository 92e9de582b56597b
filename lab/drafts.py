"""What drafts over an engine's buffer of token ids cost: CPU time a step here, launches and bytes of a step on a GPU on paper.

A step is one call of `Drafts.draft` (backends/seams/drafts.py). Launches are counted in a recorded step as Inductor would fuse
it; bytes are those that each operation by itself reads and writes, more than what is fused does. The time on paper is that at
the bandwidth of an H200 (4.8 TB/s) and 3 us a launch: no GPU was asked.
"""

from __future__ import annotations

import time
from typing import Annotated

import torch
import typer
from torch import Tensor, fx

from decgraph import api
from decgraph.backends.seams.drafts import Drafts
from decgraph.backends.triton import emit
from decgraph.backends.triton.graph import is_view, traced

SIZES = ((4, 200), (64, 1000), (64, 4000), (64, 8000))
VOCAB, KNOWN, BANDWIDTH = 128_256, 5000, 4.8e12


def texts(rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Random texts int32[rows, length + 2], and their lengths int64[rows]."""
    made = torch.randint(0, KNOWN, (rows, length + 2), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    return made, torch.full((rows,), length)


def measured(name: str, rows: int, length: int, rounds: int) -> float:
    """Milliseconds of CPU time a step takes, at least."""
    drafts, (buffer, lengths) = Drafts(api.load(name).module, rows=rows, vocab=VOCAB), texts(rows, length)
    drafts.draft(buffer, lengths)
    found = []
    for _ in range(rounds):
        began = time.thread_time()
        drafts.draft(buffer, lengths)
        found.append(time.thread_time() - began)
    return 1000 * min(found)


def counted(name: str, rows: int, length: int) -> tuple[int, int]:
    """The launches of a step on a GPU, and the bytes that its operations read and write."""
    drafts, (buffer, lengths) = Drafts(api.load(name).module, rows=rows, vocab=VOCAB), texts(rows, length)
    drafts.draft(buffer, lengths)
    step = drafts._step(rows)
    graph = traced(lambda: drafts.draft(buffer, lengths), step)
    total = sum(moved(node) for node in graph.nodes())
    return len(emit.launches(graph)), total


def moved(node: fx.Node) -> int:
    """The bytes that an operation reads and writes; 0 for one that is none on a device."""
    if node.op != "call_function" or is_view(node):
        return 0
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, Tensor))


def command(
    names: Annotated[list[str] | None, typer.Argument(help="programs; by default prompt_lookup and anpd")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads")] = 1,
    rounds: Annotated[int, typer.Option(help="steps that are measured; the fastest counts")] = 6,
    paper: Annotated[bool, typer.Option(help="count launches and bytes too, which takes triton")] = True,
) -> None:
    torch.set_num_threads(threads)
    for name in names or ["prompt_lookup", "anpd"]:
        for rows, length in SIZES:
            line = f"{name:16} {rows:3} x {length:5,}: {measured(name, rows, length, rounds):6.1f} ms of CPU time"
            if paper and (rows, length) == SIZES[-1]:
                launches, read = counted(name, rows, length)
                paper_us = 3 * launches + 1e6 * read / BANDWIDTH
                line += f"; on a GPU {launches} launches, at most {read / 2**20:.0f} MiB: {paper_us:.0f} us on paper"
            print(line, flush=True)
