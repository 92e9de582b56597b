"""The reference machine over rationals, with choices instead of noise. A draw is split when its token is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from decgraph.backends.exact.choices import Choices
from decgraph.backends.exact.numbers import EXACT
from decgraph.backends.exact.races import Race
from decgraph.backends.exact.reals import Log, NotSeparated, real, shares, signature
from decgraph.backends.exact.states import Signer, Unknown, live_values, settled_walks
from decgraph.backends.reference.machine import Machine
from decgraph.errors import DecError
from decgraph.ir.data.dist import Draw, Draws, Row, resolve_path
from decgraph.ir.ops.draws import NoiseKey
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.stop import StopMachine


class Enough(Exception):
    """Raised to leave a run after the steps that are wanted."""


class Unlikely(Exception):
    """The law of this program needs the joint law of races that is not worked out here (undecided, not wrong)."""


class BetaVariable:
    """A Beta(a, b) variable known through its Bernoulli events (a Polya urn)."""

    def __init__(self, a: Fraction, b: Fraction) -> None:
        self.a, self.b = a, b


class RaceKey:
    """The race key of a token among its siblings: which row, and its place in the row's order."""

    def __init__(self, row: Row, rank: int) -> None:
        self.row, self.rank = row, rank


class World:
    """What runs of one check share: the choices of the run, the noise read so far, and rows already computed.

    ran: takes note of the branches that are taken (backends/exact/coverage.py), or None. enough: how many new tokens a claim
    looks at; what is committed behind them is not followed where nothing else depends on it (None: everything is).
    """

    def __init__(self, coupled: bool, ran: Any = None) -> None:
        self.choices = Choices(())
        self.coupled = coupled
        self.ran = ran
        self.enough: int | None = None
        self.races: dict[Any, Race] = {}
        self.groups: dict[Any, list[int]] = {}
        self.units: dict[Any, tuple[Fraction, Fraction]] = {}
        self.adversary: dict[Any, Any] = {}
        self.rows: dict[Any, Any] = {}
        self.kept: list[Any] = []
        self.log: list[str] = []

    def restart(self, choices: Choices) -> None:
        """Forget a run; computed rows stay."""
        self.choices = choices
        self.races, self.groups, self.units, self.adversary, self.log = {}, {}, {}, {}, []


def said(op: Any, place: Any, path: str, output: bool = False) -> str:
    """A draw in the author's words: its name, its line (and file, if that is not `path`), and the turns of the loops."""
    name = (op.results[0].name if op.results else "") or op.opcode
    file = "" if op.loc.path in ("", path) else op.loc.path.rsplit("/", 1)[-1] + " "
    line = f", {file}line {op.loc.line}" if op.loc.line else ""
    if output:
        return f"{name}{line} (output noise, position {place.counters[-1] if place.counters else '?'})"
    turns = list(place.counters)
    words = ([f"step {turns[0]}"] if turns else []) + ([f"turn {'.'.join(map(str, turns[1:]))}"] if turns[1:] else [])
    lane = [f"lane {place.lane[0]}"] if len(place.lane) and place.lane[0] else []
    inside = ", ".join([*words, *lane])
    return f"{name}{line}" + (f" ({inside})" if inside else "")


class ExactMachine(Machine):
    """A machine whose noise is unknown: every draw is a choice of `world`."""

    num = EXACT
    world: World
    steps: int | None = None
    full_support = False
    faults = (LookupError, ValueError, TypeError, ZeroDivisionError, AttributeError, OverflowError)
    begin: Any = None  # gives states and carried values their start (check/states.py); None: the program's own
    # called with a canvas before cells are decided on it; what it returns is kept in found_on_canvas
    watch_canvas: Any = None
    step = 0  # turn of the outer `while not done`
    # Sites whose noise an earlier step has read, from what law, and what came of it: the text has told.
    read_before: list[tuple[str, tuple[Fraction, ...], int]] = []

    def on(self, world: World, steps: int | None = None) -> ExactMachine:
        """Set the world, and how many turns of the outer `while not done` to run (None: all)."""
        self.world, self.steps, self.read_before = world, steps, []
        self.found_on_canvas: list[int] = []
        return self

    def bounds(self, until: Sequence[str]) -> tuple[int | None, frozenset[int]]:
        """Drafts that are of no use are tried as well: they must do no harm, and their tokens would have to be looked at."""
        return None, frozenset()

    def adopt(self, parent: Any) -> None:
        self.world = parent.world

    def turn(self, op: Any, i: int, values: tuple[Any, ...] = ()) -> None:
        if op.attrs.get("bound") == "done" and self.parent is None:
            self.step = i
            if self.steps is not None and i >= self.steps:
                self.left(op, values)
                raise Enough
        super().turn(op, i, values)
        if i and self.parent is None and self.world.choices.known is not None:
            self.arrive(op, i, values)

    def left(self, op: Any, values: tuple[Any, ...]) -> None:
        """Called before the step that is not run any more, with what would be carried into it."""
        if self.begin is not None:
            self.begin.left(self, op, values)

    most_turns = 2_000

    def start_states(self) -> None:
        super().start_states()
        if self.begin is not None and self.parent is None:
            self.begin.states(self)

    def carried(self, op: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.begin is not None and self.parent is None and op.attrs.get("bound") == "done":
            return tuple(self.begin.carried(self, op, values))
        return super().carried(op, values)

    def apply(self, op: Any) -> Any:
        ran = self.world.ran
        return super().apply(op) if ran is None else ran.apply(self, op, super().apply)

    def region(self, region: Any, args: Any) -> list[Any]:
        if self.world.ran is not None:
            self.world.ran.entered(region)
        try:
            return super().region(region, args)
        except NotSeparated as error:  # with the line of the op that asked
            raise error.at(self.op.loc if self.op is not None else "") from None

    def decide(self, op: Any, cond: Any) -> bool:
        ran = self.world.ran
        found = bool(super().decide(op, cond))
        return found if ran is None else bool(ran.decided(self, op, found))

    # -- states that were enumerated before
    def future(self) -> tuple[Any, ...]:
        """What the rest of the run depends on besides values: committed tokens, states, what is known of the output noise and
        of functions."""
        reads = {k: tuple((signature(q), y) for q, y in r.reads) for k, r in self.world.races.items() if k.site == "output"}
        output = frozenset((k, r) for k, r in reads.items() if r)
        return (tuple(self.committed_tokens()), output, frozenset(self.world.adversary.items()))

    def arrive(self, op: Any, i: int, values: tuple[Any, ...]) -> None:
        """Say in which state a while loop begins its next turn."""
        live = live_values(self.function).get(id(op))
        if live is None:
            return
        signer = Signer(self.world.races)
        try:
            state = (
                id(op),
                i,
                signer.of(list(values)),
                signer.of([self.env[v] for v in live if v in self.env]),
                signer.of(self.own),
                signer.of({str(k): v for k, v in self.shared.items()}),
                self.future(),
            )
        except Unknown:
            return
        self.kept_alive.append((signer, values))
        self.world.choices.arrive(state)

    def walked_enough(self, op: Any, t: Any, evidence: Any, node: int, depth: int) -> bool:
        """A walk may end where what follows cannot be seen any more, and where the same subtree was walked before."""
        if id(op) not in settled_walks(self.function) or self.parent is not None:
            return False
        last = self.steps is not None and self.step >= self.steps - 1
        if not last and (self.function.states or any(o.results for o in self.function.body.ops if o.opcode == "while")):
            return False
        enough = self.world.enough
        if depth and enough is not None and self.committed() + depth >= enough:
            return True
        if depth and self.world.choices.known is not None and type(self).key is ExactMachine.key:
            signer = Signer(self.world.races)
            try:
                below = signer.tree(t, node)
                rows = [signer.of(self.evidence_at(evidence, n)) for n in range(len(t)) if self.under(t, n, node)]
                path = resolve_path(t.path_edges(node))
                state = (id(op), self.step, depth, path, below, tuple(rows), self.future())
            except (Unknown, LookupError, IndexError):
                return False
            self.kept_alive.append((signer, t))
            self.world.choices.arrive(state)
        return False

    @staticmethod
    def under(t: Any, n: int, node: int) -> bool:
        """Whether node n stands below `node`, or is it."""
        while n > node:
            n = t.nodes[n].parent
        return n == node

    @property
    def kept_alive(self) -> list[Any]:
        """Things whose ids stand in the states of this enumeration."""
        return self.world.kept

    def run_function(self) -> Any:
        """As the reference. Values are let go at the end: they lie in NumPy arrays, which the garbage collector does not look
        into, and they lead back here, so that nothing of a run would ever be freed."""
        try:
            return super().run_function()
        finally:
            self.env = {p.value: self.env[p.value] for p in self.function.params}
            self.own, self.memo = {}, {}

    # -- draws
    def draw(self, op: Any, row: Row, face: str, key: NoiseKey, lane: int, index: Any) -> Draw:
        place = self.key(key, (lane,), row, index)
        name = said(op, place, self.module.path, key.kind == "output")
        return Draw(None, row, face, resolve=partial(self.late_token, op, place, row, face, name))

    def said(self, op: Any, place: Any) -> str:
        return said(op, place, self.module.path)

    def late_token(self, op: Any, place: Any, row: Row, face: str, name: str) -> int:
        if self.world.ran is not None:
            self.world.ran.looked_at(op, row.face(face))
        return self.race_token(place, row.face(face), name)

    def race_token(self, place: Any, q: Any, name: str) -> int:
        """The token of a race at a key."""
        q = tuple([real(x) for x in q])
        if not any(x > 0 for x in q):
            raise DecError(f"{name} is drawn from a distribution without mass")
        race = self.world.races.get(place)
        if race is None:
            race = self.world.races[place] = Race(len(q))
            for site, law, token in self.read_before:
                if place.site == site and len(law) == len(q):
                    race.read(law, token)
        known = race.known(q)
        if known is not None:
            return known
        if sum(x > 0 for x in q) == 1:  # certain: it says nothing about the noise, and is no read of it
            only = next(v for v, x in enumerate(q) if x > 0)
            if only not in race.told:
                race.told.add(only)
                self.world.choices.choose([Fraction(1)], [only], name)
            return only
        options = race.possible(q)
        if self.world.coupled and race.reads:
            weights = [Fraction(1, len(options))] * len(options)  # only what is possible matters to a claim in tokens
        else:
            given = race.weights(q)
            if given is None:
                raise Unlikely(f"three different draws read the noise of {name}")
            weights = [given[y] for y in options]
        y = self.world.choices.choose(weights, options, name)
        race.read(q, y)
        return int(y)

    def draw_many(self, op: Any, row: Row, face: str, k: int, replace: bool, key: NoiseKey, lane: int) -> list[Draw]:
        if replace:
            out = []
            for j in range(k):
                place = self.key(key, (lane, j), row)
                resolve = partial(self.late_token, op, place, row, face, f"{self.said(op, place)}, number {j}")
                out.append(Draw(None, row, face, group=lane, rank=j, resolve=resolve))
            return out
        if not self.full_support:
            k = min(k, sum(1 for x in row.face(face) if x > 0))
        else:
            k = min(k, self.vocab_size)
        return self.siblings(op, row, face, self.key(key, (lane,), row), k, lane)

    def siblings(self, op: Any, row: Row, face: str, place: Any, k: int, lane: int, race: bool = False) -> list[Draw]:
        """k draws without replacement, each lazily, in order."""
        group = self.world.groups.setdefault(place, [])
        name = self.said(op, place)
        out: list[Draw] = []
        for j in range(k):
            law = (
                row
                if j == 0
                else Row(
                    partial(self.law_after, group, row, face, j, name), position=row.position, node=row.node, path=row.path
                )
            )
            out.append(
                Draw(
                    None,
                    law,
                    face,
                    source=row,
                    group=lane,
                    rank=j,
                    race=RaceKey(row, j) if race else None,
                    resolve=partial(self.sibling, group, row, face, j, name),
                )
            )
        return out

    def law_after(self, group: list[int], row: Row, face: str, j: int, name: str, asked: str) -> Any:
        """The law of the j-th token of a group: the distribution less the ones before it."""
        return self.less(row.face(face), tuple(self.sibling(group, row, face, i, name) for i in range(j)))

    def sibling(self, group: list[int], row: Row, face: str, j: int, name: str) -> int:
        """The j-th token of a group in its order."""
        while len(group) <= j:
            q = [Fraction(0) if v in group else real(x) for v, x in enumerate(row.face(face))]
            if not any(x > 0 for x in q):
                raise DecError("more draws without replacement than the distribution has tokens")
            group.append(self.world.choices.choose(shares(q), list(range(len(q))), f"{name}, number {len(group)}"))
        return group[j]

    def less(self, q: Any, gone: tuple[int, ...]) -> Any:
        left = np.empty(len(q), dtype=object)
        left[:] = shares([Fraction(0) if v in gone else real(x) for v, x in enumerate(q)])
        return left

    def draw_race(self, op: Any, row: Row, face: str, key: NoiseKey, lane: int, under: Any) -> list[Draw]:
        k = sum(1 for x in row.face(face) if x > 0)
        return self.siblings(op, row, face, self.key(key, (lane,), row), k, lane, race=True)

    def select_race(self, x: Draws, k: int) -> Draws:
        """The k candidates with the highest race keys, given the order of their rows' own keys: leaves are drawn without
        replacement over all rows; a row's first candidate may only come after the first of the row before it."""
        rows: dict[int, list[Draw]] = {}
        for d in x.items.ravel():
            if d is not None:
                rows.setdefault(id(d.source), []).append(d)
        lists = list(rows.values())
        mass = [self.path_mass(r[0]) for r in lists]
        left = [Fraction(1)] * len(lists)
        at = [0] * len(lists)
        seen, total_outside = 1, 1 - sum(mass, Fraction(0))
        out: list[Draw] = []
        first = True
        while len(out) < k and any(at[i] < len(r) for i, r in enumerate(lists)):
            if first:
                pick, first = 0, False
            else:
                options = [i for i in range(seen) if at[i] < len(lists[i])]
                weights = [mass[i] * left[i] for i in options]
                if seen < len(lists):
                    options.append(seen)
                    weights.append(sum(mass[seen:], Fraction(0)) + total_outside)
                total = sum(weights)
                if not options or total == 0:
                    break
                pick = self.world.choices.choose([w / total for w in weights], options, "race")
                if pick == seen:
                    seen += 1
            d = lists[pick][at[pick]]
            at[pick] += 1
            left[pick] -= real(d.source.face(d.law_face)[d.token])
            out.append(d)
        items = np.empty(len(out), dtype=object)
        items[:] = out
        return Draws(items)

    def path_mass(self, d: Draw) -> Fraction:
        mass = Fraction(1)
        for e in d.source.path or ():
            if isinstance(e, Draw):
                mass *= real(e.source.face(e.law_face)[e.token])
        return mass

    def flip(self, op: Any, p: Any, key: NoiseKey, lane: int) -> bool:
        if isinstance(p, BetaVariable):
            odds = [p.a / (p.a + p.b), p.b / (p.a + p.b)]
            hit = self.world.choices.choose(odds, [True, False], self.said(op, self.key(key, (lane,))))
            p.a, p.b = (p.a + 1, p.b) if hit else (p.a, p.b + 1)
            return bool(hit)
        if p != p:
            raise DecError("bernoulli of a number that is none (0 / 0)")
        p = Fraction(int(p > 0)) if isinstance(p, float) else real(p)
        p = min(Fraction(1), max(Fraction(0), p))
        place = self.key(key, (lane,))
        lo, hi = self.world.units.get(place, (Fraction(0), Fraction(1)))
        below = max(Fraction(0), min(hi, p) - lo) / (hi - lo)
        hit = self.world.choices.choose([below, 1 - below], [True, False], f"{self.said(op, place)} with probability {p}")
        self.world.units[place] = (lo, min(hi, p)) if hit else (max(lo, p), hi)
        return bool(hit)

    def beta(self, op: Any, a: Any, b: Any, key: NoiseKey) -> Any:
        return BetaVariable(real(a), real(b))

    def unmasked(self, c: Any, positions: list[int], values: list[Any]) -> None:
        if self.watch_canvas is not None:
            self.found_on_canvas += self.watch_canvas(c, positions, values)
        super().unmasked(c, positions, values)

    def committed_context(self) -> tuple[int, ...]:
        """The prompt and the committed tokens."""
        return resolve_path(self.tokens)

    def resume(self, tokens: Sequence[int]) -> ExactMachine:
        """Start with tokens already committed."""
        for t in tokens:
            self.tokens.append(int(t))
            if not self.stop_state.done:
                self.stop_state = StopMachine.feed(self.stop_state, int(t))
        return self

    # -- models: a row is computed when it is looked at, once for all runs
    def score_paths(self, model: Any, states: Sequence[tuple[Any, ...]], given: Any) -> list[Callable[[], Scores]]:
        return [partial(self.score_path, model, s, given) for s in states]

    def score_path(self, model: Any, state: tuple[Any, ...], given: Any) -> Scores:
        return model.eval([resolve_path(state)], given)[0]

    def model_row(
        self,
        model: Any,
        scores: Callable[[], Scores],
        path: tuple[Any, ...],
        node: int | None,
        allow: Any,
        position: int | None = None,
    ) -> Row:
        row = super().model_row(model, scores, path, node, allow, position)
        slow, request = row.face, self.request
        by_path = request.penalised or request.min_length or request.allow is not None

        def face(name: str) -> Any:
            s = scores()
            key = (id(s), id(request), name, None if allow is None else allow.tobytes(), resolve_path(path) if by_path else 0)
            found = self.world.rows.get(key)
            if found is None:
                found = self.world.rows[key] = (slow(name), s, request)  # what has its id in the key is kept alive
            return found[0]

        plain = allow is None and isinstance(scores, partial) and len(scores.args) == 3 and scores.args[2] is None
        return Row(face, position=row.position, node=node, path=path, label=row.label, origin=(model,) if plain else None)

    def lazy_log(self, logprob: Any, edge: Draw) -> Any:
        return logprob + Log(lambda: real(edge.source.face("raw")[edge.token]))

    def reals(self, values: Sequence[Any]) -> Any:
        out = np.empty(len(values), dtype=object)
        out[:] = list(values)
        return out

    def no_mass(self, op: Any, weights: Any) -> Any:
        return np.array([Fraction(0)] * len(weights), dtype=object)

    # -- the host: an adversary who answers equal questions equally
    def extern_once(self, name: str, f: Any, args: tuple[Any, ...]) -> Any:
        key = (name, tuple(str(a) for a in args))
        if key not in self.world.adversary:
            options = getattr(f, "answers", None) if not callable(f) else None
            if options is None:
                return super().extern_once(name, f, args)
            self.world.adversary[key] = self.world.choices.choose(
                [Fraction(0)] * len(options), options, f"{name}{args}", "adversary"
            )
        return self.world.adversary[key]

    others: Sequence[Any] | None = None  # scores of other sequences' candidates; None: an adversary's

    def batch_top(self, op: Any, x: Any, k: Any, by: Sequence[Any]) -> Any:
        """Of the batch's best k candidates those that are this sequence's: its own best few, as many as the others leave."""
        from decgraph.ir.table import lookup

        best = lookup("select.top").meaning(self, op, x, k, *by)[0]
        count = len(best.items) if isinstance(best, Draws) else len(best)
        if self.others is None:
            line = f", line {op.loc.line}" if op.loc.line else ""
            where = f"how many candidates of this sequence are among the batch's best{line}"
            mine = int(self.world.choices.choose([Fraction(0)] * (count + 1), list(range(count + 1)), where, "adversary"))
        else:
            keys = sorted((v for v in np.ravel(np.asarray(by[0], dtype=object))), reverse=True)
            mine = min(count, sum(1 for n, s in enumerate(keys[:count]) if sum(1 for o in self.others if o > s) + n < int(k)))
        return Draws(best.items[:mine], None if best.at is None else best.at[:mine]) if isinstance(best, Draws) else best[:mine]


def exact_machine(
    module: Any,
    function: str,
    models: Mapping[str, Any],
    params: Mapping[str, Any],
    request: Any,
    world: World,
    steps: int | None = None,
    **more: Any,
) -> ExactMachine:
    """A machine ready to run one function over rationals."""
    m = ExactMachine(module, function, models, params, request, **more)
    m.on(world, steps)
    return m
