"""Modules with recurrent layers (Mamba, Gated DeltaNet, short convolutions ...) with the interface of `TransformerDecoder`.

A recurrent layer keeps one state a text, which cannot be taken back to an earlier token. So only the state after the committed
tokens is kept, and beside it what entered the layer for every draft token. A draft is then verified in one call, a tree too:
the layer runs along every path of the tree from the state where it begins, all paths at once. Of an accepted draft the next
call runs the recurrent layers again, on what had entered them; a rejected one costs nothing more.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.module import _CALL, TOLERANCE, ModuleDecoder, ShapeProbe, Written, _Found
from decgraph.runtime.models.decoder.module_parts import Numbered, gap
from decgraph.runtime.models.decoder.shape import FULL, SLIDING
from decgraph.runtime.models.decoder.states import Work, Works
from decgraph.runtime.models.tape import Tape

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedModel
    from transformers.cache_utils import LinearAttentionLayer

_LEAVES = 4  # paths whose last state is kept for drafts that go on
_NOT_IN_LINE = 1e-3  # of the largest output: a layer that continues several tokens otherwise than one at a time


class Mixer(nn.Module):
    """A recurrent layer of a module, which reads its states from the current call and leaves the new ones there. number: its
    place among the recurrent layers."""

    def __init__(self, inner: nn.Module, number: int, states: int) -> None:
        super().__init__()
        self.inner, self.number, self.states = inner, number, states
        self.layer_idx = cast("Numbered", inner).layer_idx
        self.several = True  # it continues a state by several tokens at once
        named = list(inspect.signature(inner.forward).parameters)
        self.cache = next(n for n in ("cache_params", "past_key_values") if n in named)

    def forward(self, hidden_states: Tensor, *args: object, **more: object) -> Tensor | tuple[Tensor, None]:
        going = _CALL.get(None)
        call = None if going is None else going.works
        if call is None:
            if isinstance(going, ShapeProbe):
                more, args = {name: value for name, value in more.items() if value is not going}, ()
            return self.inner(hidden_states, *args, **more)
        out, m = torch.zeros_like(hidden_states), self.number
        for rows in _alike([(len(w.pending) + w.chain, w.state is None) for w in call.works]):
            works = [call.works[row] for row in rows]
            if not len(works[0].pending) + works[0].chain:
                for work in works:
                    work.after[m] = None if work.state is None else work.state[m]
                continue
            given = [torch.cat([*(d.entered[m][None] for d in w.pending), hidden_states[row, : w.chain]])
                     for row, w in zip(rows, works, strict=True)]  # fmt: skip
            made, state = self.run(torch.stack(given), [None if w.state is None else w.state[m] for w in works])
            for n, (row, work) in enumerate(zip(rows, works, strict=True)):
                out[row, : work.chain] = made[n, len(work.pending) :]
                work.after[m] = _one(state, n)
        for row, work in enumerate(call.works):
            for n, drafted in enumerate(work.drafted):
                drafted.entered[m] = hidden_states[row, work.chain + n].clone()
        for paths in call.paths:
            if paths:
                self._along(paths, call.works, out)
        return out if not self.pair else (out, None)

    pair = False  # whether the layer returns more than its output

    def _along(self, paths: Sequence[tuple[int, int, list[int]]], works: Sequence[Work], out: Tensor) -> None:
        """Runs all paths at once, padded at their ends, and fills in the outputs of new draft tokens."""
        m, longest = self.number, max(len(path) for _, _, path in paths)
        rows: list[Tensor] = []
        begun: list[LinearAttentionLayer | None] = []
        for row, start, path in paths:
            work = works[row]
            nodes = [*work.known, *work.drafted]
            given = torch.stack([nodes[n].entered[m] for n in path])
            rows.append(torch.nn.functional.pad(given, (0, 0, 0, longest - len(path))))
            before = work.known[start].state if start >= 0 else None
            begun.append(before[m] if before is not None else work.after[m])
        made, state = self.run(torch.stack(rows), begun)
        for n, (row, _, path) in enumerate(paths):
            work = works[row]
            for at, place in enumerate(path):
                if place >= len(work.known):
                    out[row, work.chain + place - len(work.known)] = made[n, at]
            if len(path) == longest and len(paths) <= _LEAVES * len(works):
                leaf = work.drafted[path[-1] - len(work.known)]
                leaf.state = {**(leaf.state or {}), m: _one(state, n)}

    def run(self, inputs: Tensor, begun: Sequence[LinearAttentionLayer | None]) -> tuple[Tensor, LinearAttentionLayer]:
        """Outputs [n, T, width] of what enters [n, T, width], after states of one sequence each, or all None; and the state of
        all n after it."""
        from transformers.cache_utils import LinearAttentionLayer

        known = [one for one in begun if one is not None]
        state = _joined(known) if known else LinearAttentionLayer(number_of_states=self.states)
        cache = Cache(layers=[state for _ in range(self.layer_idx + 1)])
        whole = self.several or begun[0] is None or inputs.shape[1] == 1
        parts = [inputs] if whole else list(inputs.split(1, dim=1))
        made = []
        for part in parts:
            got = self.inner(part, **{self.cache: cache})
            self.pair = isinstance(got, tuple)
            made.append(got[0] if self.pair else got)
        return torch.cat(made, dim=1), state

    @torch.no_grad()
    def check(self, width: int, like: Tensor) -> None:
        """Finds out whether several tokens continue a state. Raises DecError where not even single ones do."""
        given = torch.sin(torch.arange(6 * width, device=like.device, dtype=torch.float32)).view(1, 6, width).to(like.dtype)
        whole = self.run(given, [None])[0]
        self.several = False
        first, state = self.run(given[:, :2], [None])
        off = gap(torch.cat([first, self.run(given[:, 2:], [state])[0]], 1), whole)
        close = _NOT_IN_LINE if like.dtype.itemsize >= 4 else 0.1
        if off > close:
            raise DecError(f"{type(self.inner).__name__} continues a text otherwise than it reads a whole one, by {off:.1e}")
        for tensor in (t for name in _TENSORS for t in getattr(state, name).values() if t is not None):
            tensor.add_(1)  # a state that is forgotten makes a difference then
        single = self.run(given[:, 2:], [state])[0]
        self.several = True
        self.several = gap(self.run(given[:, 2:], [state])[0], single) <= close


def close(one: Tensor, other: Tensor) -> bool:
    """Whether two forwards' states [B, T, width] are the same but for rounding."""
    return gap(one, other) <= TOLERANCE.get(one.dtype, 0.1)


def _alike(keys: Sequence[Hashable]) -> list[list[int]]:
    """The places of equal keys together."""
    return [[n for n, key in enumerate(keys) if key == kind] for kind in dict.fromkeys(keys)]


_TENSORS = ("conv_states", "recurrent_states")


def _joined(states: Sequence[LinearAttentionLayer]) -> LinearAttentionLayer:
    """One state of several sequences, whose tensors are copies."""
    made = copy.copy(states[0])
    for name in _TENSORS:
        parts = [getattr(state, name) for state in states]
        setattr(made, name, {i: None if one is None else torch.cat([p[i] for p in parts]) for i, one in parts[0].items()})
    return made


def _one(state: LinearAttentionLayer, n: int) -> LinearAttentionLayer:
    """The state of the n-th sequence alone."""
    made = copy.copy(state)
    made.has_previous_state = dict(state.has_previous_state)
    for name in _TENSORS:
        setattr(made, name, {i: None if t is None else t[n : n + 1].clone() for i, t in getattr(state, name).items()})
    return made


class HybridDecoder(ModuleDecoder):
    """The base module of a causal language model with recurrent layers. Raises DecError for a module whose recurrent layers
    keep no states in transformers' cache, do more with it than that, or need to know positions."""

    recurrent = True

    def __init__(
        self, base: PreTrainedModel, name: str = "", *, encoder: bool = False, plain: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__(base, name, encoder=encoder, plain=plain)
        parts = list(base.modules())
        self.mixers = [part for part in parts if isinstance(part, Mixer)]
        if not self.mixers:
            found = _recurrent_parts(base, self.name)
            kept = DynamicCache(config=self.config).layers
            self.mixers = [
                Mixer(part, n, getattr(kept[cast("Numbered", part).layer_idx], "number_of_states", 1))
                for n, part in enumerate(found)
            ]
            made = _replaced(base, dict(zip(map(id, found), self.mixers, strict=True)), {})
            self.base = self.whole = cast("PreTrainedModel", made)  # a copy of it
        named = inspect.signature(type(base).forward).parameters
        self._cache = next(n for n in ("past_key_values", "cache_params") if n in named)
        self._positions = "position_ids" in named

    @torch.no_grad()
    def run(self, cells: Tensor, tape: Tape) -> Tensor:
        """States [n, width] of cells int64[n], as `ModuleDecoder.run`. Raises DecError for a tape with rows of earlier
        calls, which say nothing of states."""
        if tape.held or int(tape.positions[0]):
            raise DecError(f"{self.name!r} has recurrent layers: it reads no memory")
        tape.works = Works([Work(None, [], 0, [], [], list(range(-1, len(cells) - 1)))])
        return super().run(cells, tape)

    @torch.no_grad()
    def check_taped(self, count: int = 5, wanted: Tensor | None = None) -> None:
        """Raises DecError for a module without a list of layers, and where a tape gives other states than its own forward, or
        than `wanted` [1, count, width]."""
        ids = self._numbers(count)
        if len(self.listed) != self.layers or not close(self.causally(ids), self.plain(ids) if wanted is None else wanted):
            raise DecError(f"{type(self.base).__name__} is not supported: its layers are more than attention and states")

    @cached_property
    def _types(self) -> list[str]:
        return sorted({kind for kind in super()._types if kind in (FULL, SLIDING)}) or [FULL]

    def _given(self, cache: Written, positions: Tensor, masks: Mapping[str, Tensor]) -> dict[str, object]:
        """See `ModuleDecoder`: masks go to attention alone, so that recurrent layers meet none. Raises DecError for a forward
        without states."""
        if cache.works is None and not isinstance(cache, ShapeProbe):
            raise DecError(f"{self.name!r} has recurrent layers, and is given no states")
        given: dict[str, object] = {self._cache: cache, "use_cache": True}
        return given | {"position_ids": positions} if self._positions else given

    def _kind(self, layer: int, masks: Mapping[str, Tensor], seen: ShapeProbe) -> tuple[str, int | None]:
        window = seen.windows.get(layer)
        return (FULL, None) if window is None else (SLIDING, int(window))

    def _compare(self, layout: _Found, committed: int = 2) -> None:
        """Finds out how the recurrent layers continue a state. Then compares a tree below a prompt, and what follows the end of
        its second branch, with the module's own forward of each path."""
        for mixer in self.mixers:
            mixer.check(layout.width, next(self.base.parameters()))
        tokens = [1, 2, 3, 5, 7, 11, 13, 17, 19]
        caches = [[torch.zeros(1, shape[0], 16, shape[side], dtype=layout.dtype, device=self.device) for shape in layout.caches]
                  for side in (1, 2)]  # fmt: skip
        window = next((w for w in layout.windows if w is not None), 16)
        work = Work(None, [], 3, [], [], [-1, 0, -1, 2])
        # By token its row, and the rows of its path.
        tree = {0: [0], 1: [0, 1], 2: [0, 1, 2], 3: [0, 1, 2, 3], 4: [0, 1, 2, 3, 4], 5: [0, 1, 2, 5], 6: [0, 1, 2, 5, 6]}
        for more in ({}, {7: [0, 1, 2, 5, 6, 7], 8: [0, 1, 2, 5, 6, 7, 8]}):
            if more:
                tree, work = more, Work(work.state_after(), work.drafted[2:], 1, [], [], [-1])
            full = torch.zeros(1, 1, len(tree), 16, dtype=torch.bool)
            near = full.clone()
            for n, path in enumerate(tree.values()):
                full[0, 0, n, path], near[0, 0, n, path[-window:]] = True, True
            ids, write = (torch.tensor([[of(n) % int(self.config.vocab_size) for n in tree]], device=self.device)
                          for of in (lambda n: tokens[n], int))  # fmt: skip
            at = torch.tensor([[len(path) - 1 for path in tree.values()]], device=self.device)
            out = self(
                ids, at, write, caches[0], caches[1], {FULL: full.to(self.device), SLIDING: near.to(self.device)}, [work]
            )
            mine = (out[0] if self.part.taps else out)[0]
            for leaf in (path for path in tree.values() if not any(path == other[:-1] for other in tree.values())):
                read = torch.tensor([[tokens[n] % int(self.config.vocab_size) for n in leaf]], device=self.device)
                places = [(list(tree).index(n), at) for at, n in enumerate(leaf) if n in tree]
                theirs = self.plain(read)[0, [at for _, at in places]]
                if not close(mine[[n for n, _ in places]], theirs):
                    raise DecError(
                        f"{self.name!r} is not supported: {type(self.base).__name__} with states differs from itself"
                    )


@torch.no_grad()
def _recurrent_parts(base: PreTrainedModel, name: str) -> list[nn.Module]:
    """The modules that keep states in transformers' cache, in the order in which they run. Raises DecError where a module does
    that in another way than decgraph follows."""
    running: list[nn.Module] = []
    found: dict[int, nn.Module] = {}
    attends: set[int] = set()

    def begin(part: nn.Module, _: object) -> None:
        running.append(part)

    def end(*_: object) -> None:
        running.pop()

    layers = [part for part in base.modules() if isinstance(getattr(part, "layer_idx", None), int)]
    hooks: list[RemovableHandle] = [part.register_forward_pre_hook(begin) for part in layers]
    hooks += [part.register_forward_hook(end) for part in layers]
    cache = DynamicCache(config=base.config.get_text_config())
    keep, write = {n: getattr(cache, n) for n in ("update_conv_state", "update_recurrent_state")}, cache.update

    def noting(method: str) -> Callable[..., object]:
        def note(*args: object, **kwargs: object) -> object:
            if not running:
                raise DecError(f"{name!r} keeps a state outside of its layers")
            found[id(running[-1])] = running[-1]
            return keep[method](*args, **kwargs)

        return note

    def attend(
        key_states: Tensor, value_states: Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        attends.add(id(running[-1]) if running else 0)
        return write(key_states, value_states, layer_idx, *args, **kwargs)

    for method in keep:
        setattr(cache, method, noting(method))
    cache.update = attend
    named = inspect.signature(type(base).forward).parameters
    try:
        base(input_ids=torch.zeros(1, 2, dtype=torch.long, device=next(base.parameters()).device), use_cache=True,
             **{next(n for n in ("past_key_values", "cache_params") if n in named): cache})  # fmt: skip
    except DecError:
        raise
    except Exception as error:  # the module's own code, with a cache that it may not take
        raise DecError(f"{name!r} takes no cache of transformers ({type(error).__name__}: {error})") from error
    finally:
        for hook in hooks:
            hook.remove()
    if not found or attends & set(found):
        raise DecError(f"{name!r} keeps {'keys beside its states' if found else 'no states'} in transformers' cache")
    return list(found.values())


def _replaced(whole: nn.Module, by: Mapping[int, nn.Module], known: dict[int, nn.Module]) -> nn.Module:
    """A module with some parts replaced, by their ids; everything else is shared."""
    if id(whole) in by:
        return by[id(whole)]
    if id(whole) not in known:
        parts = {name: part if part is None else _replaced(part, by, known) for name, part in whole._modules.items()}
        made = whole
        if any(parts[name] is not part for name, part in whole._modules.items()):
            made = copy.copy(whole)
            made._modules = parts
        known[id(whole)] = made
    return known[id(whole)]
