"""vLLM's custom proposer: a class that is named in the speculative configuration and proposes token ids on the CPU.

The engine makes `CLASS(vllm_config)` and calls `propose` after each step; it verifies by its own rejection sampler. Model
runner V1 only. What is said of the interface here was read in the public source, not tried.
"""

from __future__ import annotations

from decgraph.backends.exports.file import Seam

TEMPLATE = '''"""@ALGORITHM@@SOURCE@ as a proposer of vLLM, written by `decgraph export vllm` of decgraph @VERSION@.

Made for @MADE_FOR@: @LINK@
It was tested against that interface and not run inside vLLM.

The file has to be importable where the engine runs, and so has decgraph (NumPy is all that it takes):

    pip install 'decgraph @ git+https://github.com/decgraph/decgraph'

Then:

    vllm serve MODEL --speculative-config \\
        '{"method": "custom_class", "model": "@NAME@.@CLASS@Proposer", "num_speculative_tokens": @MOST@}'

It proposes what @ALGORITHM@ drafts, @LENGTH@, and at most `num_speculative_tokens` of it; vLLM verifies it.
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
'''

VLLM = Seam(
    "vLLM",
    "vLLM 0.28.0, method custom_class (model runner V1)",
    "https://github.com/vllm-project/vllm/pull/39487",
    TEMPLATE,
)
