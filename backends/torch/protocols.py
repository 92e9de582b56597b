"""What the parts of the torch backend see of a run, and its callers of what runs many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, Self, TypeVar

import numpy as np
from torch import Tensor

from decgraph.backends.torch.engines import Engines, SecondContexts
from decgraph.backends.torch.pending import Steps
from decgraph.backends.torch.prefixes import CommittedText
from decgraph.backends.torch.trees import TorchTree
from decgraph.ir.data.numbers import Numbers
from decgraph.ir.ops.draws import NoiseKey
from decgraph.ir.values import Loc, StateDecl
from decgraph.runtime.models.interface import Model
from decgraph.runtime.noise import Key
from decgraph.runtime.request import Request
from decgraph.runtime.stop import StopState
from decgraph.runtime.text import Detokenizer
from decgraph.runtime.trace import Event, Tally, Timing


class Machine(Protocol):
    """A run of one request: what is committed, its models and their engines, its statistics, and who hears of it. `machine.py`
    has the run itself, and says what each of these is."""

    num: Numbers
    request: Request
    title: str
    models: dict[str, Model]
    main: Model | None
    vocab_size: int
    mask_token: int
    window: int | None
    detokenizer: Detokenizer | None
    engines: Engines
    second_contexts: SecondContexts
    uncounted: bool
    tokens: list[int]
    base: int
    marks: list[int]
    text: CommittedText
    until: Callable[[Machine], bool] | None
    results: list[tuple[int, ...]]
    decided: int
    noise_id: int
    site_prefix: str
    counter_prefix: tuple[int, ...]
    tally: Tally
    learning: list[StateDecl]
    listener: Callable[[Event], None] | None
    recorder: Timing | None
    part: str
    syncs: int

    parent: Self | None
    second_call: tuple[float, int] | None

    @property
    def stop_state(self) -> StopState: ...

    @property
    def whole(self) -> Self: ...

    def steps(self) -> Steps[None]: ...

    def release(self) -> None: ...

    def waited(self, copy: Callable[[], Tensor]) -> Tensor: ...

    def reals(self, values: object) -> np.ndarray: ...

    def committed(self) -> int: ...

    def committed_tokens(self) -> tuple[int, ...]: ...

    def done(self) -> bool: ...

    def check_progress(self, where: str, i: int) -> None: ...

    def feed(self, token: int) -> None: ...

    def learn_committed(self, tokens: Sequence[int]) -> None: ...

    def read_state(self, name: str) -> object: ...

    def write_state(self, name: str, value: object) -> None: ...

    def request_field(self, field: str) -> object: ...

    def bounds(self, until: Sequence[str]) -> tuple[int | None, frozenset[int]]: ...

    def canvas_room(self) -> int: ...

    def key(
        self,
        key: NoiseKey,
        lane: tuple[int, ...],
        position: int | None = None,
        node: int | None = None,
        index: int | None = None,
    ) -> Key: ...

    def flip(self, p: float, key: NoiseKey, lane: int) -> bool: ...

    def note(self, name: str, value: object, /, *, token: bool) -> None: ...

    def token_of(self, text: str) -> int: ...

    def next_uids(self, n: int) -> np.ndarray: ...

    def places(self) -> Iterable[Loc]: ...

    def now(self, tree: TorchTree) -> None: ...

    def note_call(self, *, answered: bool = False) -> None: ...

    def emit_event(self, event: Event) -> None: ...

    def tell_emitted(self, token: int, depth: int, tested: bool, p: float | None = ..., raw: float | None = ..., /) -> None: ...

    def inner_run(
        self, callee: str, site: str, base: tuple[int, ...], bound: int, args: Mapping[str, object], counters: Sequence[object]
    ) -> Self: ...


M = TypeVar("M", contravariant=True)


class Schedule(Protocol[M]):
    """Runs in flight, for a caller that advances them by itself; see schedule.py."""

    def __len__(self) -> int: ...

    def join(self, number: int, machine: M) -> None: ...

    def drives(self, machine: M) -> bool: ...

    def cancel(self, number: int) -> bool: ...

    def advance(self) -> bool: ...

    def close(self, stop: BaseException | None = None) -> None: ...
