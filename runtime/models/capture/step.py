"""A captured forward as a function, and the parts of it that other algorithms want."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from decgraph.errors import DecError
from decgraph.runtime.models.capture.masks import addable, added, unmask
from decgraph.runtime.models.capture.packing import matrices, pack
from decgraph.runtime.models.capture.program import EFFECTS, CapturedGraph, is_op, shape_of
from decgraph.runtime.models.capture.single import single
from decgraph.runtime.models.capture.writes import writes


class Variant(NamedTuple):
    """What is known of a call before it runs, for which there is code of its own. one: there is one sequence. single: there
    is one token; None: packed matrices are not wanted, for one or many. added: masks are numbers to add to scores. open: the
    kinds of masks that hide nothing."""

    one: bool
    single: bool | None = None
    added: bool = False
    open: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """Which part of a forward: layers `first` .. `last - 1`; whether the final norm follows; the layers whose entering
    states are wanted beside the result. `first` -1 takes token ids; from 0 on, the states entering that layer."""

    first: int = -1
    last: int = -1
    norm: bool = True
    taps: tuple[int, ...] = ()


class CapturedForward:
    """One cached forward of a causal or masked model as straight-line code over its weights.

    `kinds` and `windows` say which mask each layer uses and how wide its sliding window is (None: none); `width` is
    the size of a state. `step.graph` and `step.code` show what runs. Not to be used while gradients are wanted.
    """

    def __init__(self, program: CapturedGraph, part: Part | None = None) -> None:
        self.program = program
        self.kinds, self.windows = tuple(program.kinds), tuple(program.windows)
        self.layers = len(program.kinds)
        self.part = replace(part or Part(), last=self.layers if part is None or part.last < 0 else part.last)
        self._runs: dict[Variant, Any] = {}
        self._additive: bool | None = None
        self._dropped = 0  # `Packs.dropped` when `_runs` were made
        self._derived: dict[Part, CapturedForward] = {}

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Mapping[str, Tensor | None],
    ) -> Any:
        """The last hidden states [B, T, width] of tokens int64[B, T] at positions int64[B, T].

        write: int64[B, T], each new token's row in the caches. keys, values: per layer of the whole model, [B, H, S, D],
        written in place. masks: bool[B, 1, T, S] by kind, the rows that each token attends to after the write, or numbers to
        add to scores, in the model's dtype (see `additive`); None where every token attends to all S rows. With taps, a pair
        of the result and the tuple of states [B, T, width]. Any: one or the other. Results are inference tensors (gradient
        bookkeeping would take a tenth of a small model's step): to change one in place, clone it.
        """
        hidden = [mask for mask in masks.values() if mask is not None]
        variant = Variant(
            len(positions) == 1,
            positions.numel() == 1,
            bool(hidden) and hidden[0].is_floating_point(),
            tuple([kind for kind, mask in masks.items() if mask is None]),
        )
        dropped = self.program.packs.dropped()
        if dropped != self._dropped:
            self._runs, self._dropped = {}, dropped
        run = self._runs.get(variant)
        if run is None:
            run = self._runs[variant] = self._made(variant)
        with torch.inference_mode():
            return run(ids, positions, write, keys, values, masks)

    def tapped(self, *layers: int) -> CapturedForward:
        """The same forward, giving also the states that enter these layers (`self.layers`: that leave the last)."""
        return self._derive(replace(self.part, taps=layers))

    def upto(self, layer: int, *, norm: bool = False) -> CapturedForward:
        """Only the layers before this one: the states entering it; with `norm`, after the model's final norm (an exit)."""
        return self._derive(replace(self.part, last=layer, norm=norm))

    def since(self, layer: int) -> CapturedForward:
        """The layers from this one on; called with the states [B, T, width] that enter it in place of token ids.

        `since(0)` takes embeddings.
        """
        return self._derive(replace(self.part, first=layer))

    def _derive(self, part: Part) -> CapturedForward:
        low = max(part.first, 0)
        if not (-1 <= part.first <= self.layers and low <= part.last <= self.layers):
            raise DecError(f"a model of {self.layers} layers has no layers {low}..{part.last - 1}")
        if any(not low <= tap <= part.last for tap in part.taps):
            raise DecError(f"layers {low}..{part.last - 1} do not pass all of the states {list(part.taps)}")
        if part not in self._derived:
            self._derived[part] = self._like(part)
            self._derived[part]._derived = self._derived
        return self._derived[part]

    def _like(self, part: Part) -> CapturedForward:
        return CapturedForward(self.program, part)

    @property
    def additive(self) -> bool:
        """Whether masks may be numbers to add to scores, 0 or the dtype's lowest: a step then converts none."""
        if self._additive is None:
            self._additive = addable(self.program)
        return self._additive

    @property
    def graph(self) -> fx.GraphModule:
        """The graph for many sequences as a module, with the weights it shares with the captured one."""
        return self.module(one=False)

    @property
    def code(self) -> str:
        """The Python that runs for one sequence."""
        return _source(self._specialised(Variant(True)))

    @property
    def nodes(self) -> int:
        """Operations in the graph for one sequence, weights and sizes aside."""
        calls = [n for n in self._specialised(Variant(True)).graph.nodes if n.op in ("call_function", "call_method")]
        return sum(not is_op(n, "input", "item", "size", "numel") for n in calls)

    def module(self, *, one: bool) -> fx.GraphModule:
        return self._module(Variant(one))

    def _module(self, variant: Variant) -> fx.GraphModule:
        program = self._specialised(variant)
        return fx.GraphModule(program.tensors, program.graph, class_name="Captured")

    def _specialised(self, variant: Variant) -> CapturedGraph:
        program = _copied(self.program)
        _cut(program, self.part)
        self._adapt(program)
        writes(program, one=variant.one)
        unmask(program, variant.open)
        if variant.added:
            added(program)
        if variant.one and variant.single:
            single(program)
        _near_use(program)
        return program

    def _adapt(self, program: CapturedGraph) -> None:
        """What else is to be done to a part of the forward, before it is said how caches are written."""

    def _made(self, variant: Variant) -> Any:
        program = _direct(self._specialised(variant))
        if variant.single is not None:
            found = matrices(self.program)
            if found and self.program.packs.allowed(found):
                pack(program, one_row=variant.single)
        made = program.graph.python_code("self")
        space: dict[str, Any] = dict(made.globals)
        exec(compile(made.src, "<captured forward>", "exec"), space)
        # A plain object: a module's attribute look-up costs as much as a small operation.
        return space["forward"].__get__(SimpleNamespace(**program.tensors))


def _direct(program: CapturedGraph) -> CapturedGraph:
    """Splits by widths and lookups as torch's own functions: what is in Python around them costs as much as they do."""
    made = _copied(program)
    for node in made.graph.nodes:
        if is_op(node, "embedding"):
            node.target, node.args = torch.embedding, (node.args[1], node.args[0])
        elif node.op == "call_method" and node.target == "split" and isinstance(node.args[1], tuple | list):
            node.op, node.target = "call_function", torch.split_with_sizes
    return made


def _source(program: CapturedGraph) -> str:
    return str(program.graph.python_code("self").src).strip()


def _copied(program: CapturedGraph) -> CapturedGraph:
    graph = fx.Graph()
    places: dict[fx.Node, fx.Node] = {}
    for node in program.graph.nodes:
        places[node] = graph.node_copy(node, lambda n: places[n])
        places[node].meta = dict(node.meta)
    made = copy.copy(program)
    made.graph, made.tensors = graph, dict(program.tensors)
    made.dims = {dim: places[n] for dim, n in program.dims.items()}
    made.named = {name: places[n] for name, n in program.named.items()}
    return made


def _cut(program: CapturedGraph, part: Part) -> None:
    """Leaves of a whole forward what `part` names."""
    result, entering = program.output.args[0]
    entering = list(entering)
    if part.last < len(program.kinds):
        if part.norm:
            _instead(program, entering[-1], entering[part.last])
            result, _ = program.output.args[0]
    if not part.norm:
        result = entering[part.last]
    program.output.args = ((result, tuple(entering[tap] for tap in part.taps)) if part.taps else result,)
    for node in list(program.graph.nodes):
        if node.meta.get("op") in EFFECTS and not max(part.first, 0) <= node.meta["layer"] < part.last:
            program.replace(node, node.args[0])
    if part.first >= 0:
        _given(program, entering[part.first])
    program.sweep()


def _instead(program: CapturedGraph, old: fx.Node, new: fx.Node) -> None:
    """Every use of one state becomes a use of another, as rows and as [B, T, width]."""
    inner, outer = rows_of(old), rows_of(new)
    if inner is not None and outer is None:
        shape = shape_of(inner)
        assert shape is not None
        with program.before(inner):
            outer = program.make("reshape", (new, (-1, shape[1])), shape=shape, dtype=inner.meta["dtype"])
    if inner is not None and outer is not None:
        inner.replace_all_uses_with(outer, delete_user_cb=lambda user: user is not old)
    old.replace_all_uses_with(new)


def rows_of(state: fx.Node) -> fx.Node | None:
    """The matrix that this state is a view of, if it is one."""
    inner = state.args[0] if is_op(state, "view") else None
    shape = shape_of(inner)
    return inner if isinstance(inner, fx.Node) and shape is not None and shape[0] == "BT" else None


def _given(program: CapturedGraph, state: fx.Node) -> None:
    """Makes a state the graph's input in place of token ids."""
    ids = program.input("ids")
    with program.before(ids):
        states = program.graph.placeholder("states")
    shape, dtype = shape_of(state), state.meta["dtype"]
    assert shape is not None
    states.meta.update(op="input", shape=shape, dtype=dtype, layer=-1)
    inner = rows_of(state)
    if inner is not None:
        with program.before(inner):
            flat = program.make("reshape", (states, (-1, shape[-1])), shape=shape_of(inner), dtype=dtype)
        inner.replace_all_uses_with(flat, delete_user_cb=lambda user: user is not state)
    state.replace_all_uses_with(states)
    program.sweep()  # what led to the state
    if ids.users:
        raise DecError("this model's layers read token ids, so they cannot start from states")
    program.graph.erase_node(ids)


def _near_use(program: CapturedGraph) -> None:
    """Every weight and input is read where it is first used, for a reader's sake."""
    order = {node: place for place, node in enumerate(program.graph.nodes)}
    for node in list(program.graph.nodes):
        if (node.op == "get_attr" or is_op(node, "input", "size", "numel")) and node.op != "placeholder" and node.users:
            min(node.users, key=lambda user: order[user]).prepend(node)
