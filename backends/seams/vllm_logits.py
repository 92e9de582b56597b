"""vLLM's logits processors: one class for both of its model runners, which have an interface each.

V1 says of each step which rows of its batch were removed, added and moved, and hands over the lists that outputs grow in. V2
has a slot a request and its texts on the device; under speculation it has a row a draft token, and the program draws along them
until it draws something else than the draft.
"""

from __future__ import annotations

from typing import Final

from decgraph.backends.seams.file import Interface

TEMPLATE: Final = '''"""@ALGORITHM@@SOURCE@ as a logits processor of vLLM, by `decgraph export vllm` of decgraph @VERSION@.

Made for @MADE_FOR@: @LINK@
@RAN@

    vllm serve MODEL --logits-processors @NAME@:@CLASS@

This file and decgraph have to be importable where the engine runs (`PYTHONPATH=.`). The program draws
each token itself and lets nothing else through: a request's temperature, truncation and penalties reach the program, which uses
them or refuses them, and the engine's change nothing any more; bias, bans and grammars (on V2 penalties too) come before and
are seen. A request may set the parameters that are named in OPEN, and `seed` and `request_id`, the key of its noise:

    client.completions.create(..., temperature=1, extra_body={"vllm_xargs": {"seed": 5}})    # the API of the server
    SamplingParams(temperature=1, extra_args={"seed": 5})                                    # vllm.LLM

`processed_logprobs` are of the one token that is let through; `raw_logprobs` are the model's.
"""

from functools import cache

import torch
from decgraph.backends.seams.requests import Requests, only
from decgraph.backends.seams.rows import Rows
from decgraph.errors import DecError
from vllm.v1.sample.logits_processor import LogitsProcessor as V1
from vllm.v1.sample.logits_processor import MoveDirectionality
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as V2

PARAMS = @PARAMS@
OPEN = @OPEN@
PROGRAM = @PROGRAM@
PLAIN = {"top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}


def read(params):
    """A request's settings and its own parameters, as decgraph names them."""
    own = {"seed": params.seed, **(params.extra_args or {})}
    noise = {name: own.pop(name) for name in ("seed", "request_id") if own.get(name) is not None}
    own.pop("seed", None)
    shaping = {name: value for name, off in PLAIN.items() if (value := getattr(params, name)) != off}
    if shaping.get("top_k") == -1:  # no limit too
        del shaping["top_k"]
    return {"temperature": params.temperature, **shaping, **noise}, own


@cache
def frontend():
    """The program where requests are checked and nothing is computed."""
    return Rows(PROGRAM, PARAMS, lanes=1, capacity=1, vocab=2, open=OPEN)


class @CLASS@(V1, V2):
    """Of V1, `update_state` and `apply(logits)`; of V2, `add_request`, `apply_staged_writes` and `apply(logits, ctx)`."""

    @classmethod
    def validate_params(cls, params):
        try:
            frontend().check(*read(params))
        except DecError as error:
            raise ValueError(str(error)) from error

    def __init__(self, config, *engine):
        self.state = engine[0] if len(engine) == 1 else None  # V2's
        device = engine[0] if self.state is None else self.state.device
        model, most = config.model_config, config.scheduler_config.max_num_seqs
        rows = Rows(
            PROGRAM, PARAMS, lanes=2 * most + 1, capacity=model.max_model_len, vocab=model.get_vocab_size(), device=device,
            open=OPEN,
        )
        if self.state is not None and config.parallel_config.enable_batch_sharded_sampling and not rows.stateless:
            raise ValueError("@ALGORITHM@ has states: a rank that samples for some requests alone would lose them")
        end = getattr(model.hf_text_config, "eos_token_id", None)
        serial = (1 + config.parallel_config.data_parallel_rank) << 40
        self.requests = Requests(rows, (end[0] if isinstance(end, list) else end) or 0, model.seed or 0, serial)
        self.row = {}  # V1, row of the batch: lane, tokens of the prompt, list of the output
        self.new, self.lane = [], {}  # V2: slots to enter; slot: lane, also of what has left, which V2 does not say
        if self.state is not None:
            self.lane_of = torch.full((self.state.max_num_reqs,), self.requests.spare, dtype=torch.int64, device=device)
            spec = config.speculative_config
            self.width = 1 + (spec.num_speculative_tokens if spec else 0)

    def join(self, params, prompt, output):
        settings, own = read(params)
        if self.state is not None:  # V2 has applied penalties before
            settings = {name: value for name, value in settings.items() if "penalty" not in name}
        return self.requests.join(prompt, output, settings, own, params.eos_token_id)

    # -- V1
    def is_argmax_invariant(self):
        return False

    def update_state(self, update):
        for row in update.removed if update else ():
            if row in self.row:
                self.requests.leave(self.row.pop(row)[0])
        for row, params, prompt, output in update.added if update else ():
            if row in self.row:
                self.requests.leave(self.row.pop(row)[0])
            prompt = prompt or (0,)  # of one that is given as embeddings there are no tokens
            self.row[row] = self.join(params, prompt, output), len(prompt), output
        for one, other, how in update.moved if update else ():
            a, b = self.row.pop(one, None), self.row.pop(other, None)
            if a is not None:
                self.row[other] = a
            if b is not None:
                if how == MoveDirectionality.SWAP:
                    self.row[one] = b
                else:
                    self.requests.leave(b[0])

    # -- V2
    def add_request(self, slot, params):
        self.new.append((slot, params))
        return True

    def apply_staged_writes(self):
        for slot, params in self.new:  # texts are read once, when a request comes
            if slot in self.lane:
                self.requests.leave(self.lane.pop(slot))
            prompt, end = int(self.state.prompt_len.np[slot]), int(self.state.prefill_len.np[slot])
            text = self.state.all_token_ids.gpu[slot, :end].tolist()
            self.lane[slot] = self.lane_of[slot] = self.join(params, text[:prompt], text[prompt:])
        self.new.clear()

    def apply(self, logits, ctx=None):
        if ctx is not None:
            return self.along(logits, ctx)
        if not self.row:
            return logits
        order = sorted(self.row)
        lanes, begins, outputs = zip(*(self.row[row] for row in order))
        numbers = [(row, lane, n + len(o), o[-1] if o else -1) for row, lane, n, o in zip(order, lanes, begins, outputs)]
        rows, at, lengths, last = torch.tensor(numbers).T.to(logits.device)
        tokens = self.requests.draw(at, logits[rows], lengths, last)
        self.requests.report(lanes)
        return only(logits, torch.full_like(logits[:, 0], -1, dtype=torch.int64).index_copy_(0, rows, tokens))

    def along(self, logits, ctx):
        """A row a draft token: the program draws along them as far as it draws what was drafted."""
        slots, requests = ctx.expanded_idx_mapping.long(), ctx.idx_mapping.long()
        count = len(logits)
        width = self.width if count > len(requests) else 1
        place = torch.full((self.state.max_num_reqs, width), count, dtype=torch.int64, device=logits.device)
        place[slots, ctx.expanded_local_pos.long()] = torch.arange(count, device=logits.device)
        chosen = torch.full((count + 1,), -1, dtype=torch.int64, device=logits.device)
        lengths = self.state.total_len.gpu[requests].long()
        last = self.state.all_token_ids.gpu[requests, lengths - 1].long()
        lanes = self.lane_of[requests]
        for depth in range(width):
            row = place[requests, depth]
            there = row.clamp(max=count - 1)
            live = (row < count) & (lanes != self.requests.spare)
            if depth:
                live &= goes_on & (ctx.input_ids[there] == last)
            at = torch.where(live, lanes, self.requests.spare)
            last = self.requests.draw(at, logits[there], lengths + depth, last)
            chosen[torch.where(live, row, count)] = last
            goes_on = live
        self.requests.report(list(self.lane.values()))
        return only(logits, chosen[:count])
'''

INTERFACE: Final = Interface(
    engine="vLLM",
    key="logits",
    core="rows",
    made_for="vLLM 0.32.0, logits processors of model runners V1 and V2",
    link="https://docs.vllm.ai/en/stable/features/custom_logitsprocs/",
    ran="Such files were run inside vLLM 0.32.0 on a CPU (tests/backends/seams/test_inside_vllm.py).",
    template=TEMPLATE,
)
