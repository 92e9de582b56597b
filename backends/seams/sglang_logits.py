"""SGLang's custom logit processors: a class that the server makes of a text in the request, and calls with rows of logits.

What was read in the source of the version that is named below:
- An instance is made for every batch that begins, and batches are merged: what has to last is the class's.
- There is no word of a request's end: a lane is found by the request's id, and the one that was used longest ago is given
  away.
- `__req__` in the request's `custom_params` is the request itself. Under overlap scheduling its `output_ids` lag; how many
  tokens the forward has read is `kv.kv_committed_len`, in every mode. Less than the text: a part of a prompt, whose draw nobody
  takes. One less than the lane has: the last draw was thrown away, as that of a request that was retracted meanwhile.
- Temperature 0 comes as top_k = 1. Penalties, bias and grammars come before, and are seen; all else comes after.
- Nothing validates a request for a processor: `to_finish` ends it with an HTTP 400 at its first token.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from decgraph.backends.seams.file import Interface

NEUTRAL: Final = {
    "top_k": 1 << 30, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "logit_bias": None, "min_new_tokens": 0,
}  # fmt: skip
"""SGLang's numbers that change nothing."""
NAMES: Final = {"logit_bias": "bias", "min_new_tokens": "min_length"}


def asked(params: Any, rid: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A request's settings as fields of `Request`, and numbers for parameters of the program, of SGLang's `SamplingParams`.
    rid: its id, which the seed is made of where it has none."""
    seed = params.sampling_seed
    seed = int.from_bytes(sha256(rid.encode()).digest()[:8], "big") if seed is None else seed % 2**64
    own: Mapping[str, Any] = params.custom_params or {}
    settings = {NAMES.get(n, n): getattr(params, n) for n, off in NEUTRAL.items() if getattr(params, n, off) not in (off, None)}
    if "bias" in settings:
        settings["bias"] = {int(token): amount for token, amount in settings["bias"].items()}
    if settings.get("top_k") == 1:
        del settings["top_k"]
        settings["temperature"] = 0
    else:
        settings["temperature"] = params.temperature
    return {**settings, "seed": seed}, {name: value for name, value in own.items() if name != "__req__"}


TEMPLATE: Final = '''"""@ALGORITHM@@SOURCE@ as a logit processor of SGLang, by `decgraph export sglang` of decgraph @VERSION@.

Made for @MADE_FOR@: @LINK@
@RAN@

    PYTHONPATH=. sglang serve --model-path MODEL --enable-custom-logit-processor
    python @NAME@.py > @NAME@.json        # what requests name it by, made once

A request has that text as `custom_logit_processor`, and `custom_params`, which may be empty but must be there: SGLang tells the
processor of no request without. In them it sets the parameters that are named in OPEN:

    {"text": "...", "custom_logit_processor": <@NAME@.json>,
     "sampling_params": {"temperature": 1, "sampling_seed": 5, "custom_params": {}}}

--enable-custom-logit-processor lets every client run code of its own on the server: let in only clients that you trust.
This file and decgraph have to be importable where the server runs. The program draws each token itself and lets nothing else
through. A request that it refuses ends with its first token, as an HTTP 400. Not with speculation.
"""

import logging
from http import HTTPStatus

import torch
from decgraph.backends.seams.rows import Rows
from decgraph.backends.seams.sglang_logits import asked
from decgraph.errors import DecError
from sglang.srt.managers.schedule_batch import FINISH_ABORT
from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor

LANES, CAPACITY = 64, 32768  # requests at once, those that wait after a retraction among them; tokens of a text
PARAMS = @PARAMS@
OPEN = @OPEN@
PROGRAM = @PROGRAM@
SEEN = ("repetition_penalty", "presence_penalty", "frequency_penalty", "bias", "min_length")  # in the logits already


class Lane:
    def __init__(self, number):
        self.number, self.req, self.drawn = number, None, 0


class @CLASS@(CustomLogitProcessor):
    rows, late = None, []
    lanes = {}  # by a request's id, the one that was used longest ago in front

    def __call__(self, logits, custom_param_list=None):
        cls, out, reqs = type(self), logits.clone(), []
        if cls.rows is None:
            cls.rows = Rows(
                PROGRAM, PARAMS, lanes=LANES, capacity=CAPACITY, vocab=logits.shape[1], device=logits.device, open=OPEN
            )
        self.report()
        for place, params in enumerate(custom_param_list or ()):
            if params is None:
                logging.error("@CLASS@: a request without custom_params is drawn as if it had not named the processor")
                continue
            req = params["__req__"]
            count = req.kv.kv_committed_len - len(req.origin_input_ids)
            if count >= len(req.output_ids):  # else a part of the text
                reqs.append((place, req, count))
        for _, req, _ in reqs:
            if req.rid in cls.lanes:
                cls.lanes[req.rid] = cls.lanes.pop(req.rid)
        rows, undo = [], torch.zeros(LANES, dtype=torch.bool)
        for place, req, count in reqs:
            try:
                lane = self.lane_of(req, count)
                if any(lane is other for _, other in rows):
                    raise DecError(f"several rows of a request, as under speculation, or over {LANES} requests in a batch")
            except DecError as error:
                req.to_finish = FINISH_ABORT(str(error), HTTPStatus.BAD_REQUEST, "BadRequestError")
                continue
            undo[lane.number] = lane.drawn == count + 1
            lane.drawn = count + 1
            rows.append((place, lane))
        if rows:
            places = torch.tensor([place for place, _ in rows], device=logits.device)
            at = torch.tensor([lane.number for _, lane in rows], device=logits.device)
            tokens = cls.rows.step(at, logits[places], undo.to(logits.device))
            out[places] = torch.full_like(logits[places], -torch.inf).scatter(1, tokens[:, None], 0.0)
            event = None if logits.device.type == "cpu" else torch.Event(logits.device)
            cls.late.append(([lane.req for _, lane in rows], cls.rows.failed(at).to("cpu", non_blocking=True), event))
            if event is not None:
                event.record()
        return out

    def lane_of(self, req, count):
        """The lane of a request that has `count` tokens. Raises DecError for one that the program refuses."""
        lanes = type(self).lanes
        lane = lanes.get(req.rid)
        if lane is not None and lane.req is req and lane.drawn in (count, count + 1):
            return lane
        settings, own = asked(req.sampling_params, req.rid)
        settings = {name: value for name, value in settings.items() if name not in SEEN}
        self.rows.check(settings, own)
        if lane is None:
            lane = Lane(len(lanes)) if len(lanes) < LANES else lanes.pop(next(iter(lanes)))
        lanes[req.rid] = lane
        lane.req, lane.drawn = req, -1
        self.rows.enter(lane.number, req.origin_input_ids, req.output_ids, settings=settings, params=own)
        lane.drawn = count
        return lane

    def report(self):
        """End requests with an error, a step late: nothing waits for the device."""
        late = type(self).late
        while late and (late[0][2] is None or late[0][2].query()):
            requests, flags, _ = late.pop(0)
            for req, wrong in zip(requests, flags.tolist()):
                if wrong:
                    why = "@ALGORITHM@ has met an error, which decgraph.run with the same text and seed words"
                    try:
                        req.to_finish = FINISH_ABORT(why, HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError")
                    except ReferenceError:
                        pass  # it has ended


if __name__ == "__main__":
    from @NAME@ import @CLASS@ as named  # by its module's name, as the server finds it

    print(named.to_str())
'''

INTERFACE: Final = Interface(
    engine="SGLang",
    key="logits",
    core="rows",
    made_for="SGLang 0.5.23, custom logit processors",
    link="https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang/srt/sampling/custom_logit_processor.py",
    ran="Such files (mirostat, top_n_sigma) were run inside SGLang 0.5.23 on a CPU.",
    template=TEMPLATE,
)
