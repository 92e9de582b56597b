"""SGLang's dLLM algorithms: a class whose `step` is called after every forward at a block, and decides positions of it.

What was read in the source of the version that is named below:
- A request has a state object that `init_step_state` makes and SGLang keeps until its block is over; so blocks are kept there,
  and nothing is left of a request that is aborted.
- `prepare_inputs` comes before every forward: what a program changes before its first call is written there.
- A block is over when `step` says so after a forward that has seen its last tokens; their keys and values stay.
- `validate_request` sees every request before its first step. What it refuses is an HTTP 400; what it has seen tells the
  settings, which SGLang hands to no dLLM algorithm.
- Under FDFO, first done, first out (the default), requests of one batch are in different iterations.
"""

from __future__ import annotations

from typing import Final

from decgraph.backends.seams.file import Interface

TEMPLATE: Final = '''"""@ALGORITHM@@SOURCE@ as a dLLM algorithm of SGLang, by `decgraph export sglang` of decgraph @VERSION@.

Made for @MADE_FOR@: @LINK@
@RAN@

    python @NAME@.py --model-path MODEL --dllm-algorithm @CLASS@        # and what else `sglang serve` takes

That registers the algorithm in each process of the server, and starts it. (In a package of yours, the entry point
"@NAME@:register" of the group `sglang.srt.plugins` does the same for `sglang serve`.) decgraph has to be installed there.

Tokens of a block are those of `decgraph.run` with the text before it as the prompt and the block's number as `request_id`. A
request may set `temperature`, `top_k`, `top_p`, `min_p`, `sampling_seed` (else the seed is made of its id), and in
`custom_params` the parameters that are named in OPEN. What the program would not read is refused with an HTTP 400; SGLang's own
dLLM algorithms ignore it. Parameters that say how long a canvas or a block is, or how many steps it has, are the engine's block
size unless PARAMS has them.
"""

import sys
from http import HTTPStatus
from weakref import WeakValueDictionary

import torch
from decgraph.backends.seams.blocks import Blocks
from decgraph.backends.seams.sglang_logits import asked
from decgraph.errors import DecError
from sglang.srt.dllm.algorithm import algo_name_to_cls
from sglang.srt.dllm.algorithm.base import DllmAlgorithm
from sglang.srt.managers.schedule_batch import FINISH_ABORT

PARAMS = @PARAMS@
OPEN = @OPEN@
PROGRAM = @PROGRAM@


class @CLASS@(DllmAlgorithm):
    requests = WeakValueDictionary()  # SGLang's, by id
    check = None

    def __init__(self, config):
        super().__init__(config)
        self.blocks = None
        known = Blocks(PROGRAM, PARAMS, block=self.block_size, vocab=self.mask_id + 1, mask=self.mask_id, open=OPEN)
        @CLASS@.check = known.check

    @classmethod
    def validate_request(cls, req):
        params = req.sampling_params
        if any(getattr(params, name, None) for name in ("json_schema", "regex", "ebnf", "structural_tag")):
            return "@ALGORITHM@ decides positions in an order of its own: a grammar follows the text from left to right"
        try:
            cls.check(*asked(params, req.rid))
        except DecError as error:
            return str(error)
        cls.requests[req.rid] = req
        return None

    def init_step_state(self, forward_batch):
        return [{} for _ in range(forward_batch.batch_size)]

    def max_steps(self, block_size):
        return 4096  # the program says when it is over

    def prepare_inputs(self, model_runner, forward_batch, states):
        new = [row for row, state in enumerate(states) if not state]
        if not new:
            return
        cells = forward_batch.input_ids.view(len(states), self.block_size)
        if self.blocks is None:
            self.blocks = Blocks(
                PROGRAM, PARAMS, block=self.block_size, vocab=model_runner.model_config.vocab_size, mask=self.mask_id,
                device=cells.device, open=OPEN,
            )
        first = forward_batch.positions.view(len(states), self.block_size)[:, 0]
        settings, own = [], []
        for row in new:
            req = self.requests[forward_batch.rids[row]]
            chosen, params = asked(req.sampling_params, req.rid)
            settings.append({**chosen, "eos": req.eos_token_ids or ()})
            own.append(params)
        prompt = forward_batch.dllm_prompt_mask
        blocks, shown = self.blocks.enter(first[new], cells[new], settings, own, None if prompt is None else prompt[new])
        for row, block in zip(new, blocks):
            states[row]["block"] = block
        cells[new] = shown.to(cells.dtype)

    def step(self, forward_batch, full_logits, states):
        cells = forward_batch.input_ids.view(len(states), self.block_size)
        logits = full_logits.view(len(states), self.block_size, -1)
        new, over, failed = self.blocks.step([state["block"] for state in states], cells, logits)
        forward_batch.input_ids.copy_(new.view(-1))
        done, errors = torch.stack([over, failed]).tolist()
        for rid, wrong in zip(forward_batch.rids, errors):
            if wrong:
                why = "@ALGORITHM@ has met an error, which decgraph.run with the same text and seed words"
                self.requests[rid].to_finish = FINISH_ABORT(why, HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError")
        return done


def register():
    """Importing the file has put it there."""
    algo_name_to_cls["@CLASS@"] = @CLASS@


register()
if __name__ == "__main__":  # each process of the server imports this file
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    run_server(prepare_server_args(sys.argv[1:]))
'''

INTERFACE: Final = Interface(
    engine="SGLang",
    key="dllm",
    core="blocks",
    made_for="SGLang 0.5.23, dLLM algorithms (LLaDA2 and SDAR models)",
    link="https://github.com/sgl-project/sglang/tree/v0.5.23/python/sglang/srt/dllm",
    ran="Such a file (llada, at an SDAR model) was run inside SGLang 0.5.23 on a CPU.",
    template=TEMPLATE,
)
