"""Texts whose source is still being read."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, Optional

import torch
from torch import nn

from lab.recordings import Case
from lab.recordings.tables import TableLM, untied
from lab.recordings.upstream import Upstream

WAITK = "examples/waitk/generators/waitk_sequence_generator.py"


class Encoder:
    """Of fairseq's interface: what it says of a source are its tokens."""

    def __call__(self, src_tokens: torch.Tensor, **_: Any) -> torch.Tensor:
        """int64[1, n]: the source."""
        return src_tokens

    def slice_encoder_out(self, out: torch.Tensor, size: int) -> torch.Tensor:
        """Its beginning."""
        return out[:, :size]

    def reorder_encoder_out(self, out: torch.Tensor, _: Any) -> torch.Tensor:
        """There is one beam."""
        return out


class Scored(SimpleNamespace):
    """In the place of a container that only TorchScript compiles: an ended text; there is one."""

    def __init__(self, score: float, elem: Any) -> None:
        super().__init__(score=score, elem=elem)


class Translator(nn.Module):
    """A model of fairseq's interface over a table: a row's text is the source as far as it is read, then what is written. read:
    the texts of all rows."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.lm, self.read = TableLM(untied(case["size"], case["seed"], window=None)), list[list[int]]()
        self.encoder, self.decoder = Encoder(), SimpleNamespace(forward=self.write)

    def write(self, tokens: torch.Tensor, encoder_out: torch.Tensor) -> tuple[torch.Tensor, None]:
        """float32[1, 1, V + 1]: the scores after the last token; the last one is the padding's."""
        self.read.append([*encoder_out[0].tolist(), *tokens[0].tolist()])
        return nn.functional.pad(self.lm.row(self.read[-1]), (0, 1), value=-math.inf)[None, None], None

    def get_normalized_probs(self, out: Any, **_: Any) -> torch.Tensor:
        """Their logarithms."""
        return torch.log_softmax(out[0], -1)

    def max_decoder_positions(self) -> int:
        """As many as there are."""
        return 1024


class Words:
    """A dictionary of fairseq's interface; the padding is behind the table's tokens."""

    def __init__(self, case: Case) -> None:
        self.size, self.end = case["size"], case["eos"][0]

    def __len__(self) -> int:
        return int(self.size) + 1

    def pad(self) -> int:
        """The last one."""
        return int(self.size)

    unk = pad

    def eos(self) -> int:
        """The end."""
        return int(self.end)


def wait_k(upstream: Upstream, case: Case) -> dict[str, Any]:
    sees = {"math": math, "torch": torch, "nn": nn, "Tensor": torch.Tensor, "Optional": Optional, "List": list, "Dict": dict}
    search = SimpleNamespace(**upstream.names("fairseq/search.py", "Search", "BeamSearch", **sees))
    more = {"search": search, "EncoderOut": Any, "FairseqIncrementalDecoder": Words, "BeamContainer": Scored}
    code = upstream.names(WAITK, "WaitkSequenceGenerator", "EnsembleModel", **sees, **more)
    model, source = Translator(case), torch.tensor([case["source"]])
    made = code["WaitkSequenceGenerator"]([model], Words(case), max_len_b=case["limit"], waitk=case["k"])
    sample = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([source.shape[1]])}}
    found = made.generate([model], sample, bos_token=case["prompt"][0])
    return {"tokens": found[0][0]["tokens"].tolist()[: case["limit"]], "read": model.read[: case["limit"]]}


RECORDINGS = {
    "wait_k": wait_k,
}
