"""What the parts of the reference see of the machine that runs, beside what the ops' meanings call of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from decgraph.backends.reference.cells import LastCanvases, Sequences
from decgraph.backends.reference.together import A, B, Meeting
from decgraph.ir import machine
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Dist, Draw, NoiseKey, Path, Row, Symbol
from decgraph.ir.data.numbers import Number
from decgraph.ir.data.tree import Edge, State, Tree
from decgraph.ir.machine import Datum, Vector
from decgraph.ir.values import Function, Op
from decgraph.runtime import noise
from decgraph.runtime.models.interface import Cell, Memory, Model, Scores
from decgraph.runtime.request import Request
from decgraph.runtime.stop import StopState
from decgraph.runtime.text import Detokenizer
from decgraph.runtime.trace import Event, Timing

Context = tuple[Symbol, ...]
"""What stands from the first position on."""
States = tuple[Sequence[State], tuple[int, ...], np.ndarray | None]
"""The states of a place in order, their shape, and the ids of the nodes where they are some of a tree's."""


@dataclass(frozen=True)
class RowSource:
    """What a row is computed from: the scores of a model, or without a model those that a program passes to `warp`, of the
    token after `path`, at a node of a tree or a cell of a canvas. allow[vocab] says which tokens the call allows. `position`
    is that of the token, where it is not the next one (Medusa's heads look further ahead)."""

    model: Model | None
    scores: Callable[[], Scores]
    path: Context
    node: int | None = None
    allow: np.ndarray | None = None
    position: int | None = None


class Machine(machine.Machine, Protocol):
    """A run of one request: `Run` (backends/run.py) and `ReferenceMachine` say what each of these is."""

    request: Request
    function: Function
    models: dict[str, Model]
    main: Model | None
    detokenizer: Detokenizer | None
    window: int | None
    tokens: list[int]
    base: int
    until: Callable[[Self], bool] | None
    results: list[tuple[int, ...]]
    decided: int
    noise_id: int
    site_prefix: str
    counter_prefix: tuple[int, ...]
    memo: dict[object, Any]  # Any: each user has values of its own
    listener: Callable[[Event], None] | None
    recorder: Timing | None
    joined: list[tuple[int, int, int | None]] | None
    caches: Sequences
    last_canvases: LastCanvases
    meeting: Meeting | None

    @property
    def stop_state(self) -> StopState: ...
    @stop_state.setter
    def stop_state(self, state: StopState, /) -> None: ...
    @property
    def whole(self) -> Self: ...
    def run(self) -> tuple[int, ...]: ...
    def committed(self) -> int: ...
    def learn_committed(self, tokens: Sequence[int]) -> None: ...
    def note_call(self) -> None: ...
    def emit_event(self, event: Event) -> None: ...
    def tell_emitted(self, token: int, depth: int, tested: bool, p: float | None = ..., raw: float | None = ..., /) -> None: ...
    def inner_run(
        self, callee: str, site: str, base: tuple[int, ...], bound: int, args: dict[str, Datum], counters: Sequence[Datum]
    ) -> Self: ...
    def adopt(self, parent: Self) -> None: ...
    def meet(self, op: Op, mine: A, of_all: Callable[[list[A]], list[B]]) -> B: ...

    # draws
    def key(self, key: NoiseKey, lane: tuple[int, ...], row: Row | None = None, index: int | None = None) -> noise.Key: ...
    def group(self, row: Row, face: str, tokens: list[int], lane: int, race: np.ndarray | None = None) -> list[Draw]: ...
    def less(self, q: np.ndarray, gone: tuple[int, ...]) -> np.ndarray: ...

    # rows of distributions
    def vector(self, probs: Vector) -> np.ndarray: ...
    def scores_of_values(self, values: np.ndarray, is_probs: bool) -> Scores: ...
    def score_paths(self, model: Model, states: Sequence[Context], memory: Memory | None) -> list[Callable[[], Scores]]: ...
    def model_row(self, source: RowSource) -> Row: ...

    # calls of models
    def count_call(self, model: Model, rows: int, cells: int, computed: int | None = None, *, drafts: bool = False) -> None: ...
    def place_states(self, place: Datum, extra: dict[str, Datum]) -> States: ...
    def head_values(self, head: Model, paths: list[tuple[int, ...]]) -> Sequence[Number]: ...
    def state_values(self, head: Model, rows: np.ndarray, layer: int | None, tokens: list[int] | None) -> Sequence[Number]: ...
    def cells(self, c: Canvas, after: Datum = None) -> tuple[Cell, ...]: ...
    def eval_canvases(self, op: Op, model: Model, place: Datum, extra: dict[str, Datum]) -> Dist: ...

    # commits, trees and verification
    def commit_tokens(self, x: Datum, tree: Tree | None) -> list[Symbol]: ...
    def lazy_log(self, logprob: Number, edge: Draw) -> Number: ...
    def walked_enough(self, op: Op, t: Tree, evidence: Datum, node: int, depth: int) -> bool: ...
    def evidence_at(self, evidence: Datum, node: int) -> Datum: ...
    def walked(self, op: Op, t: Tree, node: int, emitted: Edge | None) -> Path | Canvas: ...
