"""Engines of the heads that read a target's last states: Medusa's and EAGLE's.

They read the states of the target's own engine, so nothing that the target computed is computed again.

Cai et al., Medusa, 2024. Li, Wei, Zhang and Zhang, EAGLE: Speculative Sampling Requires Rethinking Feature
Uncertainty, 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.layers import DraftLayers, decoder_of_layers
from decgraph.runtime.models.engine.batch import Batch
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import Counted, ForwardCall, Output, OverCore
from decgraph.runtime.models.engine.given import features_of, inside, strange
from decgraph.runtime.models.engine.plain import PlainEngine
from decgraph.runtime.models.engine.slots import FULL, Layout, SlotPlan, SlotStates
from decgraph.runtime.models.engine.step import ForwardStep
from decgraph.runtime.models.engine.taps import columns
from decgraph.runtime.models.heads.base import DraftOutput
from decgraph.runtime.models.hf_heads import HFFeatures
from decgraph.runtime.native.products import output_of

if TYPE_CHECKING:
    from torch import nn

    from decgraph.runtime.models.heads.chained import Chained


class HeadsEngine(OverCore[CausalEngine]):
    """A target with Medusa heads. Calls of the part "heads" return [rows * heads, V], row by row; the others are the
    target's. `only` makes every call one of heads (an `HFHeads` model has nothing else)."""

    def __init__(self, core: CausalEngine, module: nn.Module, *, only: bool = False) -> None:
        self.core, self.module, self.only = core, module, only
        self.counted = Counted()

    @torch.no_grad()
    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Logits float32 [rows, V], or [rows * heads, V] of a call of heads."""
        if any(call.given is not None for call in calls):  # not of heads: those are read off the target's own states
            assert self.core.memories is not None, "a target's engine reads memories"
            return self.core.memories.compute(calls, self._compute, self.counted)
        return self._compute(calls)

    def _compute(self, calls: list[ForwardCall]) -> list[Output]:
        before = replace(self.core.counted)
        states = self.core.states(calls)
        of_heads = [n for n, call in enumerate(calls) if self.only or call.part == "heads"]
        plain = [n for n in range(len(calls)) if n not in set(of_heads)]
        outputs = list(states)
        for n, made in zip(plain, self.core.read([calls[n] for n in plain], [states[n] for n in plain])):
            outputs[n] = made
        for n, made in self._guessed([(n, calls[n], s) for n in of_heads if isinstance(s := states[n], Tensor)]):
            outputs[n] = made
        self.counted.add(self.core.counted.since(before))
        return outputs

    def _guessed(self, wanted: Sequence[tuple[int, ForwardCall, Tensor]]) -> list[tuple[int, Output]]:
        """The heads' logits of calls by number, given their states [rows, width]: the heads and the read-out once for all."""
        if not wanted:
            return []
        rows = [len(state) for _, _, state in wanted]
        states = torch.cat([state for _, _, state in wanted]) if len(wanted) > 1 else wanted[0][2]
        guesses = torch.stack([head[0] for head in self.module(states[None, :, : self.core.width])], dim=1)
        # A head's NaN is reported at the row that the head reads.
        calls = [replace(call, rows=[row for row in call.rows for _ in range(guesses.shape[1])]) for _, call, _ in wanted]
        head = _as_it_is if self.module.own_output else None
        made = self.core.read(calls, [part.flatten(0, 1) for part in guesses.split(rows)], head)
        return [(n, output) for (n, _, _), output in zip(wanted, made)]


def _as_it_is(logits: Tensor) -> Tensor:
    """The read-out of heads that give logits."""
    return logits


def chained(model: HFFeatures) -> Chained:
    """The module of a head that reads features."""
    return cast("Chained", model.module)  # or a module of the zoo that has as much


def layer_step(module: DraftLayers) -> tuple[ForwardStep, Layout]:
    """The step of a head's layers on states: the decoder, or else the module as it is."""
    made = decoder_of_layers(module)
    if made is not None:
        return made, Layout(made.caches, (FULL,) * len(made.caches), None, made.width, made.dtype, made.device)
    from decgraph.runtime.models.engine.head_module import LayerStep

    plain = LayerStep(module)
    return plain, plain.layout


def head_of(model: HFFeatures, target: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The function from a head's own outputs [n, hidden] to logits: its norm, then its own output matrix or the target's. A
    head with a draft vocabulary gets the logits of that vocabulary alone."""
    module = model.module
    output, norm = getattr(module, "output", None), getattr(module, "norm", None)
    matrix = target if output is None else output_of(output.matrix)
    if norm is None:
        return matrix

    def read(states: Tensor) -> Tensor:
        return matrix(norm(states))

    return read


class FeaturesEngine(CausalEngine):
    """An EAGLE head. Its input i pairs the target's feature of position i with the token at i + 1, so its chain is
    the context from the second token on, and is cached. A draft token is paired with the head's own prediction of the
    feature before it; once it is committed its feature is the target's, so its cached row is dropped then.

    Each new level of the tree is one forward. Calls that no program of the standard library makes (features of the target
    below the context, or none for the context's last tokens) are computed by the model without a cache.
    """

    def __init__(self, model: HFFeatures, target: CausalEngine, head: Callable[[Tensor], Tensor]) -> None:
        self.module = chained(model)
        step, layout = layer_step(self.module)
        context = None if model.context is None else model.context - 1
        super().__init__(step, layout, head, name=model.name, size=model.vocab.size, context=context)
        self.model, self.target = model, target
        output = getattr(model.module, "output", None)
        self._draft: DraftOutput | None = output if isinstance(output, DraftOutput) and output.tokens is not None else None
        self._plain = PlainEngine(model)
        self._known: dict[Hashable, tuple[Tensor | None, bool]] = {}  # the target's features; whether of the end too

    @torch.no_grad()
    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Logits float32 [rows, V] per call, or its DecError. The cached path needs a `given` of the context's length or one
        less."""
        outputs: list[Output | None] = [None] * len(calls)
        mine: list[tuple[int, ForwardCall, ForwardCall]] = []
        missing: list[tuple[int, ForwardCall]] = []
        for n, call in enumerate(calls):
            length = len(call.context)
            known = length - 1 if call.given is None else min(call.given.length, length)
            if call.given is not None and call.given.model.family != self.model.family:
                outputs[n] = strange(self.model, call.given)
            elif self._usual(call, known):
                wanting = ForwardCall(call.sequence, call.context[:known], call.marks, name=call.name)
                mine.append((n, call, wanting))
                if known and not self.target.caches(wanting, known):
                    missing.append((n, wanting))
            else:
                rows = self._plain.compute([call])[0]
                outputs[n] = rows.float().to(self.layout.device) if isinstance(rows, Tensor) else rows
        if missing:
            for (n, _), made in zip(missing, self.target.states([wanting for _, wanting in missing])):
                outputs[n] = made if isinstance(made, DecError) else None
            mine = [one for one in mine if outputs[one[0]] is None]
        shifted: list[ForwardCall] = []
        for _, call, wanting in mine:  # after all of the target's work is done: these are views of its cache
            length = len(wanting.context)
            self._open(call, self.target.features(wanting, length) if length else None)
            # A prompt of one token has no feature before it: the token itself, with zeros, is the chain.
            shifted.append(replace(call, context=call.context[1:] if len(call.context) > 1 else call.context, marks=()))
        for (n, _, _), made in zip(mine, self.read([call for _, call, _ in mine], self.states(shifted))):
            outputs[n] = made
        return cast("list[Output]", outputs)

    def read(
        self, calls: Sequence[ForwardCall], states: Sequence[Output], head: Callable[[Tensor], Tensor] | None = None
    ) -> list[Output]:
        """The logits [rows, V], as `CausalEngine.read` gives them. Those over a draft vocabulary are checked before they are
        spread over the target's."""
        made = super().read(calls, states, head)
        if self._draft is None:
            return made
        return [self._draft.spread(rows)[:, : self.size] if isinstance(rows, Tensor) else rows for rows in made]

    def logits(self, states: Tensor, head: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Logits float32 [n, V] of last states [n, width]; of a head with a draft vocabulary those of its rows."""
        return super().logits(states, head) if self._draft is None else self.head(states).float()

    def _usual(self, call: ForwardCall, known: int) -> bool:
        """Whether the target's engine has the features that a call wants, those of the context's first `known` positions."""
        length = len(call.context)
        if call.given is not None and not (features_of(call.given, self.model.target) and inside(call, call.given)):
            return False
        if not length or (call.given is None or (length == 1 and call.given.length >= 1)) and max(call.rows, default=-1) >= 0:
            return False
        return known >= length - 1

    def _open(self, call: ForwardCall, known: Tensor | None) -> None:
        """Drops cached rows that were computed from other features than these."""
        late = known is not None and len(known) == len(call.context)
        before = self._known.get(call.sequence)
        slot = self._slots.get(call.sequence)
        if slot is not None and before is not None:
            if (before[0] is None) != (known is None):
                slot.forget()
            elif before[1] != late:
                slot.drop_tail()
        self._known[call.sequence] = (known, late)

    def _take(self, p: SlotPlan) -> int:
        """How many tokens of the chain the next forward takes, or how many draft tokens whose parents' features are there."""
        split = len(p.fresh)
        if p.done < split:
            return min(split - p.done, self.chunk)
        cached = len(p.slot.uids)
        ready = 0
        for parent in p.parents[p.done - split :]:
            if parent >= cached or ready == self.chunk:
                break
            ready += 1
        return ready

    def _features(self, rows: Tensor) -> Tensor:
        """Features [n, hidden] of the target's rows [n, ...]."""
        module = self.module
        return module.project(columns(self.target, rows, module.reads, self.model.target.layers))

    def _run(self, batch: Batch, part: SlotStates, plans: Sequence[SlotPlan], takes: Sequence[int]) -> Tensor:
        module, (count, width) = self.module, batch.ids.shape
        ids = batch.ids if module.mask is None else batch.ids.clone()
        paired = [self._paired(p, take, row) for p, take, row in zip(plans, takes, ids)]
        if count == 1 and takes[0] == width:
            features = paired[0][None].to(self.layout.dtype)
        else:
            features = self.layout.zeros(count, width, self.layout.width)
            for row, some in zip(features, paired):
                row[: len(some)] = some
        entering = module.enter(ids, features)
        return self._stepped(self.step, entering, batch, part, plans, takes)

    def _paired(self, p: SlotPlan, take: int, ids: Tensor) -> Tensor:
        """The features [take, width] that a plan's next tokens are paired with. Of a head that drafts in parallel neither the
        tokens after the context nor their features are known: its mask is put into `ids`."""
        module, first = self.module, p.done - len(p.fresh)
        known, late = self._known[p.call.sequence]
        if first < 0:
            at = p.start + p.done
            return self.layout.zeros(take, self.layout.width) if known is None else self._features(known[at : at + take])
        parents = p.parents[first : first + take]
        if module.mask is None:
            made: Tensor = module.back(self.store.states(p.slot.number, [p.base + max(parent, -1) for parent in parents]))
        else:
            made = self.layout.zeros(take, self.layout.width)
            unknown = [n for n, parent in enumerate(parents) if parent >= 0 or not late or known is None]
            made[unknown], ids[unknown] = module.unknown(), module.mask
        if late and known is not None and -1 in parents:
            made[[n for n, parent in enumerate(parents) if parent < 0]] = self._features(known[-1])
        return made

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Forget the head's own rows, each of which belongs to a feature and the token after it; the target keeps its own."""
        super().close(sequence)
        self._known.pop(sequence, None)
        self.target.rewind(sequence, context)

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence, also in the target's cache."""
        super().close(sequence)
        self._known.pop(sequence, None)
        self.target.close(sequence)
