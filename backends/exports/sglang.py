"""SGLang's registry of speculative algorithms: a name, and a factory of the worker that drafts and verifies.

The exported worker is SGLang's own n-gram worker, which verifies trees of token ids, with another source of drafts: chains of
the program. That worker's methods are no public interface, so a file is for the version that it names. What is said of the
interface here was read in the source of that version, not tried.
"""

from __future__ import annotations

from decgraph.backends.exports.file import Seam

TEMPLATE = '''"""@ALGORITHM@@SOURCE@ as an algorithm of SGLang, written by `decgraph export sglang` of decgraph @VERSION@.

Made for @MADE_FOR@: @LINK@
@RUN@

Import this file, and so register the algorithm, in each process of the server before its arguments are read: as an entry point
of the group `sglang.srt.plugins`, "@NAME@:register". decgraph has to be installed there (NumPy is all that it takes):

    pip install 'decgraph @ git+https://github.com/decgraph/decgraph'

Then:

    --speculative-algorithm @UPPER@ --speculative-num-draft-tokens @ROWS@ --speculative-ngram-max-bfs-breadth 1

@ALGORITHM@ drafts @LENGTH@; the first of SGLang's draft tokens is the last token of the text. Where less is
drafted, zeros follow: the verification accepts only what the model says, whatever was drafted.
"""

import numpy as np
from decgraph.backends.exports.drafter import Drafter
from sglang.srt.speculative.ngram_worker import NGRAMWorker
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

PARAMS = @PARAMS@
PROGRAM = @PROGRAM@


class @CLASS@Algorithm(CustomSpecAlgo):
    """Verified as SGLang verifies its n-gram drafts."""

    def is_ngram(self):
        return True

    def has_draft_kv(self):
        return False

    def handle_server_args(self, server_args):
        SpeculativeAlgorithm.NGRAM.handle_server_args(server_args)


class @CLASS@Proposer(NGRAMWorker):
    """The n-gram worker with drafts of another program."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.drafter = Drafter(PROGRAM, PARAMS)

    def _prepare_draft_tokens(self, batch):
        """The draft tokens int64 [requests * n], and which of them each one sees, bool [requests * n * n]: those before it."""
        n = self.draft_token_num
        new = [[] for _ in batch.reqs]
        if self.enable_overlap and not batch.grammar_needs_sync():  # the last step's tokens are not in the requests yet
            rows = batch.spec_info.accept_tokens.reshape(-1, n).tolist()
            new = [row[:length] for row, length in zip(rows, batch.spec_info.accept_lens.tolist(), strict=True)]
        drafts = np.zeros((len(batch.reqs), n), dtype=np.int64)
        for row, request in enumerate(batch.reqs):
            text = [*request.origin_input_ids_unpadded, *request.output_ids, *new[row]]
            chain = [text[-1], *self.drafter.propose(text, n - 1)]
            drafts[row, : len(chain)] = chain
        seen = np.tril(np.ones((n, n), dtype=bool))
        return drafts.reshape(-1), np.tile(seen.reshape(-1), len(batch.reqs))

    def _update_ngram_corpus(self, batch):
        """The n-gram corpus is not used: what the program knows is in the texts."""


@SpeculativeAlgorithm.register("@UPPER@", supports_overlap=True, spec_class=@CLASS@Algorithm)
def make_@ALGORITHM@(server_args):
    """The class of the worker."""
    return @CLASS@Proposer


def register():
    """What the entry point names: importing the file has registered the algorithm."""
'''

SGLANG = Seam(
    "SGLang",
    "SGLang 0.5.23, SpeculativeAlgorithm.register and the n-gram worker, with overlap scheduling",
    "https://github.com/sgl-project/sglang/tree/v0.5.23/python/sglang/srt/speculative",
    "It was tested against that interface and not run inside SGLang.",
    TEMPLATE,
)
