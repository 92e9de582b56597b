"""vLLM's drafters of token ids: a class that is named in the speculative configuration.

Model runner V1 makes `CLASS(vllm_config)` and hands it the texts in the host's memory. V2 has the texts on its device, and
makes its speculators in one function, which knows no classes of others: the file puts its own in front of it.
"""

from __future__ import annotations

from typing import Final

from decgraph.backends.seams.file import Interface

TEMPLATE: Final = '''"""@ALGORITHM@@SOURCE@ as a drafter of vLLM, by `decgraph export vllm` of decgraph @VERSION@.

Made for @MADE_FOR@: @LINK@
@RAN@

    vllm serve MODEL --speculative-config \\
        '{"method": "custom_class", "model": "@NAME@.@CLASS@", "num_speculative_tokens": @MOST@}'

This file and decgraph have to be importable where the engine runs (`PYTHONPATH=.`). That is model
runner V1, which vLLM takes by itself for such a class. V2, whose texts stay on the device, knows no classes of others. It is
started with its own n-gram drafter, whose place this one takes ("drafts by @ALGORITHM@" in its log says so):

    vllm serve MODEL --worker-extension-cls @NAME@.V2 \\
        --speculative-config '{"method": "ngram", "num_speculative_tokens": @MOST@}'

What is left of the program's claim there: greedy texts are those without a drafter, token for token. Where tokens are drawn the
claim `in tokens` is one `in distribution`: vLLM accepts drafts by its rejection sampler, whose noise is not the sampler's, so a
seed gives another text with the drafter than without it. A drafter cannot change that: it only proposes.
"""

import logging
import sys

import torch
from decgraph.backends.seams.drafts import Drafts

PARAMS = @PARAMS@
PROGRAM = @PROGRAM@


class @CLASS@:
    """Drafts over texts in the host's memory, for V1."""

    def __init__(self, vllm_config, device="cpu"):
        model, self.most = vllm_config.model_config, vllm_config.speculative_config.num_speculative_tokens
        self.longest, rows = model.max_model_len, vllm_config.scheduler_config.max_num_seqs
        self.drafts = Drafts(PROGRAM, PARAMS, rows=rows, vocab=model.get_vocab_size(), device=device)
        if self.drafts.reads_prompt and device == "cpu":
            raise ValueError("@ALGORITHM@ reads where a prompt ends, which V1 does not say; V2 does (above)")

    def propose(self, sampled_token_ids, num_tokens_no_spec, token_ids_cpu, slot_mappings=None):
        """Draft token ids of every request, none where nothing was sampled. sampled_token_ids: list[list[int]], of this step.
        num_tokens_no_spec: int[requests], lengths of the texts with them. token_ids_cpu: int[requests, max_model_len]."""
        count = len(sampled_token_ids)
        lengths = torch.from_numpy(num_tokens_no_spec[:count].astype("int64"))
        lengths *= torch.tensor([len(tokens) > 0 for tokens in sampled_token_ids])
        if not lengths.any():
            return [[] for _ in sampled_token_ids]
        tokens, live = self.draft(torch.from_numpy(token_ids_cpu[:count]), lengths, int(lengths.max()))
        return [row[:most] for row, most in zip(tokens.tolist(), live.sum(1).tolist())]

    def draft(self, texts, lengths, width, prompts=None):
        tokens, live = self.drafts.draft(texts, lengths, width, prompts, self.most)
        room = (self.longest - lengths)[:, None]
        return tokens, live & (torch.arange(tokens.shape[1], device=lengths.device) < room)

    def load_model(self, *args, **kwargs):
        """There is no model to load."""


def speculator(vllm_config, device, req_states):
    """The same over texts on the device, for V2."""
    from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

    class Speculator(BaseSpeculator):
        supports_mm_inputs = False
        draft_logits = None

        def __init__(self):
            self.drafter = @CLASS@(vllm_config, device)
            logging.getLogger("vllm.decgraph").info("drafts by @ALGORITHM@")

        def init_cudagraph_manager(self, cudagraph_mode):
            """Nothing is captured."""

        def capture(self):
            """Nothing is captured."""

        @torch.inference_mode()
        def propose(self, input_batch, attn_metadata, slot_mappings, last_hidden_states, aux_hidden_states, num_sampled,
                    num_rejected, last_sampled, *args, dummy_run=False, **kwargs):
            """Drafts int64[requests, num_speculative_tokens]; behind a shorter one the text's last token, to be rejected.
            Nothing is read back: the engine's own bound of the lengths says how many columns are looked at."""
            count, most = input_batch.num_reqs, self.drafter.most
            slots = input_batch.idx_mapping[:count].long()
            out = last_sampled.view(-1)[slots].long()[:, None].repeat(1, most)
            if dummy_run:
                return out
            lengths = torch.where(num_sampled[:count] > 0, req_states.total_len.gpu[slots].long(), 0)
            width = int(input_batch.seq_lens_cpu_upper_bound.numpy()[:count].max()) + 1  # on the host already
            width = min(self.drafter.longest, -(-width // 256) * 256)
            texts, prompts = req_states.all_token_ids.gpu[:, : width + 1][slots], req_states.prompt_len.gpu[slots].long()
            tokens, live = self.drafter.draft(texts, lengths, width, prompts)
            k = tokens.shape[1]
            out[:, :k] = torch.where(live, tokens.long(), out[:, :k])
            return out

    return Speculator()


class V2:
    """For `--worker-extension-cls`: a worker imports this file before it makes its model runner, and that is all."""


def install():
    """Have model runner V2 make this drafter where the worker extension is this file's."""
    from vllm.v1.worker.gpu import spec_decode

    theirs = spec_decode.init_speculator

    def init_speculator(vllm_config, device, req_states):
        ours = vllm_config.parallel_config.worker_extension_cls == "@NAME@.V2"
        return (speculator if ours else theirs)(vllm_config, device, req_states)

    for module in (spec_decode, sys.modules.get("vllm.v1.worker.gpu.model_runner")):
        if module is not None:
            module.init_speculator = init_speculator


install()
'''

INTERFACE: Final = Interface(
    engine="vLLM",
    key="drafts",
    core="drafts",
    made_for="vLLM 0.32.0, method custom_class (model runners V1 and V2)",
    link="https://github.com/vllm-project/vllm/pull/39487",
    ran="Such files were run inside vLLM 0.32.0 on a CPU (tests/backends/seams/test_inside_vllm.py).",
    template=TEMPLATE,
)
