"""SGLang's registry of speculative algorithms: a name, and a factory of the worker that drafts and verifies.

The exported worker is SGLang's own n-gram worker with other trees, and with the program's verification in the place of the
engine's. That worker's methods are no public interface, so a file is for the version that it names.
"""

from __future__ import annotations

from typing import Final

from decgraph.backends.seams.file import Interface

TEMPLATE: Final = '''"""@ALGORITHM@@SOURCE@ as an algorithm of SGLang, by `decgraph export sglang` of decgraph @VERSION@.

Made for @MADE_FOR@: @LINK@
@RAN@

    python @NAME@.py --model-path MODEL --speculative-algorithm @UPPER@        # and what else `sglang serve` takes

That registers the algorithm in each process of the server, and starts it. (In a package of yours, the entry point
"@NAME@:register" of the group `sglang.srt.plugins` does the same for `sglang serve`.) decgraph has to be installed there.

The target computes up to @ROWS@ nodes a request. What is verified, and by which noise, is the program's: its claim holds from
the second token on; the first one, which comes with the prompt, is SGLang's own draw. Temperature, top-k, top-p, min-p and
penalties are computed by decgraph's rules at every node, exactly. `min_new_tokens` and settings of the server that are about
SGLang's own verification (`--speculative-accept-threshold-*`) are not read.
"""

import sys

import torch
from decgraph.backends.seams.drafts import Asked, Drafts
from decgraph.backends.seams.sglang_logits import asked
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative import ngram_worker
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

NODES, ELSEWHERE = @ROWS@, ("bias", "min_length")
PARAMS = @PARAMS@
PROGRAM = @PROGRAM@


class @CLASS@Algorithm(CustomSpecAlgo):
    """An algorithm that SGLang takes for its n-gram one."""

    def is_ngram(self):
        return True

    def has_draft_kv(self):
        return False

    def handle_server_args(self, server_args):
        if server_args.page_size not in (None, 1) and server_args.attention_backend != "flashinfer":
            raise ValueError("@ALGORITHM@ drafts trees: --page-size 1, or --attention-backend flashinfer")
        server_args.speculative_num_draft_tokens = NODES
        server_args.speculative_eagle_topk = server_args.speculative_ngram_max_bfs_breadth
        server_args.speculative_num_steps = max(1, NODES // server_args.speculative_eagle_topk)
        server_args.max_running_requests = server_args.max_running_requests or 48
        server_args.enable_mixed_chunk = False


class @CLASS@(ngram_worker.NGRAMWorker):
    """The n-gram worker with the trees and the verification of another program."""

    def alloc_memory_pool(self, **kwargs):
        super().alloc_memory_pool(**kwargs)
        model = self.model_runner.model_config
        size = {"rows": self.max_batch_size, "vocab": model.vocab_size, "capacity": model.context_len + NODES}
        self.drafts = Drafts(PROGRAM, PARAMS, device=self.device, **size)
        self.seats, self.asked = {}, None

    def seated(self, batch):
        """The lanes of a batch's requests. One that was not in the last batch begins, with what it has generated so far."""
        n, new = self.draft_token_num, [[] for _ in batch.reqs]
        if self.enable_overlap and not batch.grammar_needs_sync():  # the last step's tokens are not in the requests yet
            rows = batch.spec_info.accept_tokens.reshape(-1, n).tolist()
            new = [row[:length] for row, length in zip(rows, batch.spec_info.accept_lens.tolist(), strict=True)]
        here = {request.rid for request in batch.reqs}
        self.seats = {rid: lane for rid, lane in self.seats.items() if rid in here}
        free = sorted(set(range(self.max_batch_size)) - set(self.seats.values()), reverse=True)
        for request, tokens in zip(batch.reqs, new, strict=True):
            if request.rid not in self.seats:
                lane = self.seats[request.rid] = free.pop()
                text = [*request.output_ids, *tokens]
                self.drafts.enter(lane, list(request.origin_input_ids_unpadded), text, settings=settings(request))
        return [self.seats[request.rid] for request in batch.reqs]

    def _prepare_draft_tokens(self, batch):
        """The draft tokens int64[requests * n], and which of them each one sees, bool[requests * n * n]."""
        self.asked = self.asked or self.drafts.propose(self.seated(batch))
        tokens, seen = self.asked.laid_out(self.draft_token_num)
        return tokens.reshape(-1).cpu().numpy(), seen.reshape(-1).cpu().numpy()

    def _prepare_for_speculative_decoding(self, batch):
        super()._prepare_for_speculative_decoding(batch)
        if batch.forward_mode.is_target_verify():
            batch.spec_info.decgraph = self

    def verified(self, batch, logits_output, grammar_mask):
        """Predicted tokens int32[requests * n], by the node behind which they stand; accepted lengths int32[requests]; their
        nodes int32[requests, n], -1 behind them. A program that calls its target again is given another forward."""
        count, n = len(batch.reqs), self.draft_token_num
        while isinstance(self.asked, Asked):
            logits = logits_output.next_token_logits
            if batch.sampling_info.logit_bias is not None:
                logits = logits + batch.sampling_info.logit_bias.repeat_interleave(n, 0)
            if grammar_mask is not None:
                grammar_mask.apply(logits)
            self.asked = self.drafts.finish(logits.view(count, n, -1)[:, : self.asked.tokens.shape[1]])
            if isinstance(self.asked, Asked):
                if grammar_mask is not None:
                    raise RuntimeError("@ALGORITHM@ calls its target again: start the server with --grammar-backend none")
                batch.forward_mode = ForwardMode.DECODE
                self._prepare_for_speculative_decoding(batch)
                result = self.target_worker.forward_batch_generation(batch, is_verify=True)
                logits_output.next_token_logits = result.logits_output.next_token_logits
        given, self.asked = self.asked, None
        nodes, tokens = given.nodes[:, :n], given.tokens[:, :n].int()
        there = torch.arange(nodes.shape[1], device=nodes.device) < given.counts[:, None]
        predict = torch.zeros((count, n + 1), dtype=torch.int32, device=nodes.device)
        predict = predict.scatter(1, torch.where(there, nodes, n), tokens)[:, :n].reshape(-1)
        rows = torch.arange(count, device=nodes.device)[:, None] * n
        index = torch.nn.functional.pad(torch.where(there, nodes + rows, -1), (0, n - nodes.shape[1]), value=-1)
        return predict, given.counts.int(), index.int()

    def _update_ngram_corpus(self, batch):
        """The n-gram corpus is not used."""


def settings(request):
    """A request's settings as decgraph has them; a bias is added to the logits above."""
    return {name: value for name, value in asked(request.sampling_params, request.rid)[0].items() if name not in ELSEWHERE}


theirs = ngram_worker.eagle_sample


def sample(verify_input, batch, logits_output, grammar_mask=None, *args, **kwargs):
    """SGLang's verification, but for batches of this file's worker."""
    worker = getattr(verify_input, "decgraph", None)
    if worker is None:
        return theirs(verify_input, batch, logits_output, grammar_mask, *args, **kwargs)
    return worker.verified(batch, logits_output, grammar_mask)


ngram_worker.eagle_sample = sample


@SpeculativeAlgorithm.register("@UPPER@", supports_overlap=True, spec_class=@CLASS@Algorithm)
def make_@ALGORITHM@(server_args):
    """The class of the worker."""
    return @CLASS@


def register():
    """What the entry point names: importing the file has registered the algorithm."""


if __name__ == "__main__":  # each process of the server imports this file
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    run_server(prepare_server_args(sys.argv[1:]))
'''

INTERFACE: Final = Interface(
    engine="SGLang",
    key="drafts",
    core="trees",
    made_for="SGLang 0.5.23, SpeculativeAlgorithm.register and the n-gram worker, with overlap scheduling",
    link="https://github.com/sgl-project/sglang/tree/v0.5.23/python/sglang/srt/speculative",
    ran="Such files were tested with a caller that stands for SGLang's worker, and not run inside SGLang.",
    template=TEMPLATE,
)
