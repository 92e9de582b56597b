"""vLLM's custom proposer: a class that is named in the speculative configuration and proposes token ids on the CPU.

The engine makes `CLASS(vllm_config)` and calls `propose` after each step; it verifies by its own rejection sampler. That is
model runner V1, which vLLM takes by itself for such a class. Runner V2 builds its speculators in one function, which knows no
classes of others; the exported `install` puts the same drafts there.
"""

from __future__ import annotations

from decgraph.backends.exports.file import Seam

TEMPLATE = '''"""@ALGORITHM@@SOURCE@ as a proposer of vLLM, written by `decgraph export vllm` of decgraph @VERSION@.

Made for @MADE_FOR@: @LINK@
@RUN@

The file has to be importable where the engine runs, and so has decgraph (NumPy is all that it takes):

    pip install 'decgraph @ git+https://github.com/decgraph/decgraph'

Then:

    vllm serve MODEL --speculative-config \\
        '{"method": "custom_class", "model": "@NAME@.@CLASS@Proposer", "num_speculative_tokens": @MOST@}'

It proposes what @ALGORITHM@ drafts, @LENGTH@, and at most `num_speculative_tokens` of it; vLLM verifies it.

That is model runner V1, which vLLM takes for such a class. On V2 (VLLM_USE_V2_MODEL_RUNNER=1) `install` has to run in every
process before: as an entry point of the group `vllm.general_plugins`, "@NAME@:install".
"""

from decgraph.backends.exports.drafter import Drafter

PARAMS = @PARAMS@
PROGRAM = @PROGRAM@


class @CLASS@Proposer:
    """Drafts of every request of a batch, from its token ids alone."""

    def __init__(self, vllm_config):
        self.most = vllm_config.speculative_config.num_speculative_tokens
        self.longest = vllm_config.model_config.max_model_len
        self.drafter = Drafter(PROGRAM, PARAMS)

    def propose(self, sampled_token_ids, num_tokens_no_spec, token_ids_cpu, slot_mappings=None):
        """A list of draft token ids for every request; an empty one where nothing was sampled, or nothing is known.

        sampled_token_ids: list[list[int]], of this step. num_tokens_no_spec: int [requests], the length of each text with them.
        token_ids_cpu: int [requests, max_model_len], the texts.
        """
        drafts = []
        for row, sampled in enumerate(sampled_token_ids):
            length = int(num_tokens_no_spec[row])
            most = min(self.most, self.longest - length)
            drafts.append(self.drafter.propose(token_ids_cpu[row][:length].tolist(), most) if sampled and length else [])
        return drafts

    def load_model(self, *args, **kwargs):
        """There is no model to load."""


def speculator(vllm_config, device, req_states):
    """The same drafts for model runner V2. Texts are copied from the device, which waits for the step."""
    import torch
    from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

    class @CLASS@Speculator(BaseSpeculator):
        supports_mm_inputs = False
        draft_logits = None

        def __init__(self):
            self.proposer = @CLASS@Proposer(vllm_config)

        def init_cudagraph_manager(self, cudagraph_mode):
            """Nothing is captured."""

        def capture(self):
            """Nothing is captured."""

        def propose(self, input_batch, attn_metadata, slot_mappings, last_hidden_states, aux_hidden_states, num_sampled,
                    num_rejected, last_sampled, *args, dummy_run=False, **kwargs):
            """Drafts int64 [requests, num_speculative_tokens]; behind a shorter one its text's last token, to be rejected."""
            count, most = input_batch.num_reqs, self.proposer.most
            if dummy_run:
                return torch.zeros((count, most), dtype=torch.int64, device=device)
            rows = input_batch.idx_mapping[:count]
            lengths = req_states.total_len.gpu[rows].cpu().numpy()
            texts = req_states.all_token_ids.gpu[rows, : max(lengths, default=0)].cpu().numpy()
            sampled = [[0] * int(n) for n in num_sampled[:count].tolist()]
            drafts = last_sampled.reshape(-1)[rows].cpu().to(torch.int64)[:, None].repeat(1, most)
            for row, chain in enumerate(self.proposer.propose(sampled, lengths, texts)):
                drafts[row, : len(chain)] = torch.tensor(chain, dtype=torch.int64)
            return drafts.to(device)

    return @CLASS@Speculator()


def install():
    """Has model runner V2 take these drafts where the speculative configuration names this file's class."""
    from vllm.v1.worker.gpu import model_runner

    theirs = model_runner.init_speculator

    def init_speculator(vllm_config, device, req_states):
        ours = vllm_config.speculative_config.model == "@NAME@.@CLASS@Proposer"
        return (speculator if ours else theirs)(vllm_config, device, req_states)

    model_runner.init_speculator = init_speculator
'''

VLLM = Seam(
    "vLLM",
    "vLLM 0.33.0, method custom_class (model runner V1, or V2 by a plugin)",
    "https://github.com/vllm-project/vllm/pull/39487",
    "Such files were run inside vLLM 0.32.0 on a CPU, on runner V1; V2's part was tested against its interface alone.",
    TEMPLATE,
)
