"""The engine of models with recurrent layers (Mamba, RWKV, and hybrids with attention).

Such a layer's state is a sum over all that was read, and cannot be rolled back to an earlier token. Where the layers keep their
states in transformers' cache, `HybridEngine` verifies a draft in one call: see decoder/hybrid.py. Other modules (RWKV) are run
as a whole by `RecurrentEngine`: a prompt in one forward and every later token, a draft like any other, in one of its own, on a
copy of the state before it.
"""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import Counted, Engine, ForwardCall, Output
from decgraph.runtime.models.engine.memories import Memories
from decgraph.runtime.models.engine.nets import fresh_engine
from decgraph.runtime.models.engine.plain import PlainEngine, stacked
from decgraph.runtime.models.forwards import ForwardChoice, note
from decgraph.runtime.models.hf_live import LiveModel
from decgraph.runtime.models.interface import Path, SoftCell, check_path, check_size

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

_log = logging.getLogger("decgraph.engine")
_CACHES = ("past_key_values", "cache_params", "state")  # what transformers calls them
_KEPT = 40  # states of one sequence: its text and a round of drafts
_SAMPLE = 6


def recurrent_engine(model: LiveModel) -> Engine:
    """The engine of a model with recurrent layers. A model whose drafts cannot be verified in one call, or whose state cannot
    even be continued, is logged."""
    try:
        made = fresh_engine(model)
        made.memories = Memories(model)
        return made
    except DecError as error:
        refused = str(error.diagnostics[0])
    from decgraph.runtime.models.decoder.module_parts import base_of

    base = base_of(cast("PreTrainedModel", model.module))
    try:
        gap = _gap(model)
    except Exception as error:  # the library's own code: without a state that can be copied, whole texts are computed
        reason = f"{type(error).__name__}: {error}"
    else:
        if gap <= 1e-3:
            _log.warning(
                "%r has recurrent layers, whose state cannot be rolled back: %s. Tokens are computed one at a time, drafts too",
                model.name,
                refused,
            )
            note(base, ForwardChoice("module", reason="its recurrent layers compute tokens one at a time"))
            return RecurrentEngine(model)
        reason = f"its state continues a text otherwise than a whole forward, by {gap:.1e}"
    _log.warning("%r has recurrent layers, and computes whole texts in every call: %s", model.name, reason)
    note(base, ForwardChoice("module", reason=f"its recurrent layers compute whole texts: {reason}"))
    return PlainEngine(model)


class _State:
    """A module's state after a path, with the name of the argument that takes it, and the scores [V] of the next token."""

    def __init__(self, module: nn.Module, ids: Tensor, before: _State | None) -> None:
        past: dict[str, object] = {} if before is None else {before.name: copy.deepcopy(before.value)}
        out = module(input_ids=ids, use_cache=True, **past)
        name = next((n for n in _CACHES if getattr(out, n, None) is not None), None)
        if name is None:
            raise DecError(f"{type(module).__name__} returns no state")
        self.name: str = name
        self.value: object = getattr(out, name)
        self.scores: Tensor = out.logits[0, -1]


class RecurrentEngine(PlainEngine):
    """See the top of the file. Rows are float64 of the module's own; a token that was computed for a sequence is not again."""

    def __init__(self, model: LiveModel) -> None:
        super().__init__(model)
        self.module, self.counted = model.module, Counted()
        self.device = next(model.module.parameters()).device
        self._states: dict[Hashable, OrderedDict[Path, _State]] = {}

    @torch.no_grad()
    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """See `PlainEngine.compute`: the DecError of a call that fails is its output. Raises DecError in no case."""
        self.counted.calls += 1
        outputs: list[Output] = []
        for call in calls:
            self.counted.sequence_calls += 1
            try:
                if call.memory is not None or call.part != "logits":
                    raise DecError(f"{self.model.name!r} has recurrent layers: it reads no memory and has no heads")
                if call.soft:  # mixtures of embeddings are read in whole texts
                    outputs.append(stacked(self._scores(call), self.model.vocab.size, self.model.name))
                    continue
                states = self._states.setdefault(call.sequence, OrderedDict())
                rows = [self._after(states, path, len(call.context)).scores for path in call.paths()]
                size = self.model.vocab.size
                made = torch.stack(rows)[:, :size].double() if rows else torch.zeros(0, size, dtype=torch.float64)
                check_size(self.model.name, made.shape[1], size)
                if bool(made.isnan().any()):
                    raise DecError(f"{self.model.name!r} gave logits that are not numbers")
                self.counted.rows += len(made)
                outputs.append(made.cpu())
            except DecError as error:
                outputs.append(error)
        return outputs

    def _after(self, states: OrderedDict[Path, _State], path: Path, context: int) -> _State:
        """The state after a path, continued from that of its longest cached prefix; without one, the committed text is read in
        one forward."""
        path = check_path(self.model, path)
        known = next((n for n in range(len(path), 0, -1) if path[:n] in states), 0)
        self.counted.requested += len(path)
        if not known:
            known = min(max(context, 1), len(path))
            states[path[:known]] = _State(self.module, self._ids(path[:known]), None)
            self.counted.computed += known
        states.move_to_end(path[:known])
        for n in range(known, len(path)):
            states[path[: n + 1]] = _State(self.module, self._ids(path[n : n + 1]), states[path[:n]])
            self.counted.computed += 1
        while len(states) > max(_KEPT, 1):
            states.popitem(last=False)
        return states[path]

    def _ids(self, tokens: Sequence[int | SoftCell]) -> Tensor:
        return torch.tensor([tokens], device=self.device)

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence's states."""
        self._states.pop(sequence, None)

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Keep the states of the texts that a new request's prompt begins with."""
        held = self._states.get(sequence, OrderedDict())
        for path in [p for p in held if tuple(context[: len(p)]) != p]:
            del held[path]


@torch.no_grad()
def _gap(model: LiveModel) -> float:
    """How far the scores after single tokens are from those of a whole forward, relative to the largest."""
    ids = torch.arange(_SAMPLE, device=next(model.module.parameters()).device) * 5 % model.vocab.size
    whole = model.module(input_ids=ids[None], use_cache=False).logits[0].double()
    state, gap = _State(model.module, ids[None, :3], None), 0.0
    for n in range(3, _SAMPLE):
        state = _State(model.module, ids[None, n : n + 1], state)
        gap = max(gap, float((state.scores.double() - whole[n]).abs().max()))
    return gap / max(float(whole.abs().max()), 1e-6)
