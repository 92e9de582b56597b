"""Drafts that a masked model fills in at once: generalized aggressive decoding."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.tables import TableLM, chains, untied
from lab.recordings.upstream import Upstream


def models(case: Case) -> dict[str, TableModel]:
    """A target, and a table that fills masks."""
    size, seed = case["size"], case["seed"]
    return {
        "target": untied(size, seed, window=None),
        "drafter": untied(size, seed + 7, window=None, name="drafter", kind="masked"),
    }


class Fairseq:
    """A table as a model of fairseq's interface: its encoder gives the input back, and its decoder continues this, or fills in
    the tokens `unknown`. calls: what each call of the decoder that continues reads."""

    def __init__(self, table: TableModel, unknown: int) -> None:
        self.table, self.unknown, self.calls = table, unknown, list[list[list[tuple[int, ...]]]]()
        self.encoder = SimpleNamespace(forward=lambda tokens, lengths: tokens[0, :-1].tolist())
        self.decoder = self

    def __call__(self, normalize: bool, prev_output_tokens: torch.Tensor, encoder_out: list[int]) -> torch.Tensor:
        """float[1, T, V]: the scores at every place of a text with masks."""
        cells = [MASK if x == self.unknown else x for x in prev_output_tokens[0].tolist()]
        whole = (*encoder_out, *cells)
        rows = self.table.eval_canvas(whole, range(len(encoder_out), len(whole)))
        return torch.tensor([[[float(w) for w in row.weights or ()] for row in rows]])

    def forward(self, tokens: torch.Tensor, encoder_out: list[int], **_: Any) -> Any:
        """float[1, T, V]: the scores behind every token of an output, the first of which stands for its beginning."""
        output = tokens[0, 1:].tolist()
        rows = [(*encoder_out, *output[:i]) for i in range(len(output) + 1)]
        self.calls.append([rows])
        return torch.stack([TableLM(self.table).row(row) for row in rows])[None], None


def gad(upstream: Upstream, case: Case) -> dict[str, Any]:
    module: Any = upstream.module("decoding/GAD/inference.py", absent=("fairseq", "tqdm"))
    module.tqdm, module.device = lambda x: x, "cpu"
    module.utils.apply_to_sample = lambda change, batch: batch
    eos, unknown, pad = (*case["eos"], case["size"])[0], case["size"] + 1, case["size"] + 2
    strings = list[list[int]]()

    def string(tokens: list[int]) -> str:
        strings.append(tokens)
        return ""

    words = SimpleNamespace(
        encode_line=lambda line, **_: torch.tensor([*line, eos]), eos=lambda: eos, unk=lambda: unknown, pad=lambda: pad,
        string=string,
    )  # fmt: skip
    batch = {"id": torch.tensor([0]), "net_input": {"src_tokens": torch.tensor([[*case["prompt"], eos]]), "src_lengths": None}}
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    task.build_dataset_for_inference = lambda ids, lengths: SimpleNamespace(collater=lambda _: batch)
    both = {name: Fairseq(table, unknown) for name, table in models(case).items()}
    block, beta, tau = case["block"], case["beta"], case["tau"]
    module.gad_generate([case["prompt"]], both["drafter"], both["target"], task, block, 1, "cpu", beta, tau)
    text = [*case["prompt"], *strings[0], *case["eos"]]  # the end token is left out, or there is none in 200 tokens
    calls = [[rows[-block - 1 :]] for (rows,) in both["target"].calls]
    return chains(calls, text, case["prompt"], case["limit"], case["eos"])


RECORDINGS = {
    "generalized_aggressive": gad,
}
