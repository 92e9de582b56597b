"""Programs inside transformers' continuous batching: `put(manager, "mirostat")`, before `manager.start()`.

A processor of a `ContinuousBatchingManager` sees whose each row of scores is: the request, its settings, how many tokens were
read. A program that draws one token from one row (`backends/seams/rows.py`) draws there; the row lets that token alone through.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList
from transformers.generation.continuous_batching import cb_logits_processors as theirs

from decgraph.backends.seams.rows import Rows
from decgraph.backends.seams.seam import carried
from decgraph.errors import DecError
from decgraph.runtime.arguments import AlgorithmLike, ParamValue
from decgraph.runtime.session import check_params

log = logging.getLogger("decgraph")
SETTINGS = {"seed": int, "number": int, "temperature": float, "top_k": int, "top_p": float, "min_p": float}
"""What `manager.add_request` may set beside open parameters. number: `request_id` of `decgraph.run`, whose tokens these are;
without one it is how many requests were computed before."""


def put(
    manager: Any, algorithm: AlgorithmLike, *, lanes: int, capacity: int, open: tuple[str, ...] = (), **params: ParamValue
) -> None:
    """Have the requests of a manager that was not started decoded by an algorithm. lanes: most requests in flight, preempted
    ones among them. capacity: tokens of a text. open: parameters that a request may set: `manager.add_request(ids, tau=2.0)`.
    Raises NotSteppable for programs that do not draw one token from one row, DecError for values and a manager that runs."""
    from decgraph import api

    c = manager.continuous_batching_config
    recorded = any(c.cuda_graph_booleans) or c.varlen_compile_config or c.decode_compile_config
    if manager.batch_processor is not None or recorded:
        hint = "call put before manager.start(), with ContinuousBatchingConfig(use_cuda_graph=False) and nothing compiled"
        raise DecError("the manager runs already, or its steps would be recorded", hint=hint)
    if manager.logit_processor.logits_processor or manager.num_return_sequences > 1:
        hint = "GenerationConfig(do_sample=False), and settings with each request: manager.add_request(ids, temperature=0.7)"
        raise DecError("the manager's generation_config has settings that shape draws, or several texts of a prompt", hint=hint)
    program, vocab = carried(api.of(algorithm).module), manager.model.config.get_text_config().vocab_size
    rows = Rows(program, params, lanes=lanes + 1, capacity=capacity, vocab=vocab, device=manager.model.device, open=open)
    manager.logit_processor = Processors(LogitsProcessorList([Drawing(manager, rows, lanes)]))
    manager.logit_processor.tensors_required = 1  # for the rows' lanes: it counts those of its own processors alone


class Processors(theirs.ContinuousBatchingLogitsProcessorList):
    """A program alone. A request whose settings it does not take fails by itself, with the reason as its error."""

    def check_kwargs(self, kwargs: dict[str, Any]) -> None:
        super().check_kwargs(kwargs)
        rows, (settings, own) = self.logits_processor[0].rows, self.logits_processor[0].told(kwargs)
        rows.check(settings, own)
        check_params(rows.module.entry, {**rows.params, **own})


class Drawing(theirs.ContinuousBatchingLogitsProcessor):
    """The program's draws. held: by a request's id its lane, the length of its prompt and how many tokens it has drawn. spare:
    the last lane of `rows`, for rows of which no token is taken, such as those of parts of prompts."""

    ignored_kwargs = ()

    def __init__(self, manager: Any, rows: Rows, lanes: int) -> None:
        self.manager, self.rows, self.free, self.spare = manager, rows, list(range(lanes)), lanes
        self.count, ends = 0, manager.generation_config.eos_token_id
        self.end = (ends[0] if isinstance(ends, list) else ends) if ends not in (None, []) else -1
        rows.enter(lanes, (0,))
        self.held: dict[str, tuple[int, int, int]] = {}
        self.undo = torch.zeros(lanes + 1, dtype=torch.bool, device=rows.device)
        self.supported_kwargs = {**SETTINGS, **dict.fromkeys(rows.open, float)}

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        int32_tensor.fill_(self.spare)

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        """The lanes int32[n] of this step's requests. Raises DecError where none is free, and for wrong settings."""
        self.undo.zero_()
        self.undo[self.spare] = True
        return torch.tensor([self.lane(one.state) for one in requests_with_new_token], dtype=torch.int32)

    def told(self, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
        """A request's settings, and its parameters."""
        settings = {"temperature": 1.0, **{n: v for n, v in kwargs.items() if n not in self.rows.open and n != "number"}}
        numbered = {"request_id": kwargs["number"]} if "number" in kwargs else {}
        return {**settings, **numbered}, {n: kwargs[n] for n in self.rows.open if n in kwargs}

    def lane(self, state: Any) -> int:
        name = state.request_id
        if name not in self.held:
            gone = self.manager.batch_processor.scheduler.request_is_cancelled
            self.free += [self.held.pop(n)[0] for n in list(self.held) if gone(n)]
            if not self.free:
                raise DecError(f"there is no lane for the request {name}", hint="put(..., lanes=) with more of them")
            settings, own = self.told(state.logit_processor_kwargs)
            settings = {"request_id": self.count, **settings}  # two samples of a prompt are two
            self.count += 1
            try:
                self.rows.enter(self.free[0], state.initial_tokens, settings=settings, params=own)
            except DecError as error:  # its prompt is too long; the others go on
                self.rows.enter(self.free[0], (0,), settings=settings, params=own)
                self.rows.lanes.table.lost[self.free[0]] = True
                log.error("the request %s: %s", name, error)
            self.held[name] = self.free.pop(0), len(state.initial_tokens), 0
        lane, prompt, drawn = self.held[name]
        place = state.position_offset - prompt  # the token to be drawn: a preemption loses the one that was in flight
        assert drawn - 1 <= place <= drawn, f"{name} goes on at its token {place}, and {drawn} were drawn"
        self.undo[lane], self.held[name] = place < drawn, (lane, prompt, place + 1)
        return lane

    def __call__(self, scores: Tensor, tensor_arg: Tensor) -> Tensor:
        """Scores [n, V] in which the drawn tokens alone are possible. A request that met an error ends by its end token. Raises
        DecError where there is none, which the manager makes the error of the whole batch."""
        at = tensor_arg[: len(scores)].long()
        drawn = self.rows.step(at, scores, self.undo)
        failed = self.rows.failed(at) & (at != self.spare)
        if bool(failed.any()):
            lanes = set(at[failed].tolist())
            names = ", ".join(name for name, (lane, *_) in self.held.items() if lane in lanes)
            why = f"{self.rows.module.main} met an error in {names}"
            if self.end < 0:
                raise DecError(why, hint="decgraph.run on the prompt says which")
            log.error("%s, which ends there: decgraph.run on the prompt says which", why)
            drawn = torch.where(failed, self.end, drawn)
        return torch.full_like(scores, -torch.inf).scatter_(1, drawn[:, None], 0.0)
