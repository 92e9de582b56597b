"""Model calls of the reference: every call is computed from the whole state at its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from decgraph.backends.reference.randomness import Randomness
from decgraph.backends.reference.soft import is_soft, read_path, tokens_of
from decgraph.backends.reference.states import HeadsOfStates, read_states, text_of, texts
from decgraph.backends.reference.values import ReferenceMemory
from decgraph.errors import DecError
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.canvas import Soft as SoftCell
from decgraph.ir.data.dist import Dist, Draw, Draws, Path, Row, resolve_path
from decgraph.ir.data.hidden import states_value
from decgraph.ir.data.tree import Tree
from decgraph.ir.drafting import drafting
from decgraph.ir.values import Op
from decgraph.runtime import trace
from decgraph.runtime.models.attention_logits import logits_of_queries
from decgraph.runtime.models.derive import derive, halves
from decgraph.runtime.models.interface import MASK, LayerMemory, Memory, Model, Scores, Soft, check_size, mixture
from decgraph.runtime.models.reading import valued
from decgraph.runtime.request import Request
from decgraph.runtime.shaping import adjusted, raw_probs, shaped_probs


class Calls(HeadsOfStates, Randomness):
    """Model calls of a run."""

    joined: list[tuple[int, int, int | None]] | None = None
    """Rows, positions and computed positions of the parts of a combined call; None outside of one."""

    def start_run(self) -> None:
        super().start_run()
        self.last_canvases: dict[int, list[tuple[set[Any], Any]]] = {}
        """What the last two calls of each masked model computed, and on which memory, by the model's id: see `made`."""

    def count_call(self, model: Model, rows: int, cells: int, computed: int | None = None, *, drafts: bool = False) -> None:
        """Count a call, unless it is of nothing or all of its positions were cached (`computed` 0). drafts: the
        model drafts for itself."""
        if self.joined is not None:
            self.joined.append((rows, cells, computed))
            return
        if computed == 0 or rows == cells == 0:
            return
        role: Literal["target", "draft"] = "target" if model is self.whole.main and not drafts else "draft"
        if role == "target":
            self.whole.note_call()
        self.emit_event(trace.ModelCall(drafting(model.name) if drafts else model.name, rows, cells, role, computed))

    # -- places
    def place_states(self, place: Any, extra: dict[str, Any]) -> tuple[list[Any], tuple[int, ...], Any]:
        """(states, shape, node ids) of a place: paths or canvases, in order."""
        if isinstance(place, Tree):
            ids = np.arange(len(place))
            return [place.state(int(i)) for i in ids], (len(ids),), None
        if isinstance(place, tuple):
            return [place], (), None
        if isinstance(place, Canvas):
            return [place], (), None
        if isinstance(place, Path):
            return [self.context() + tuple(place.tokens)], (), None
        tree = extra["tree"]
        ids = np.asarray(place, dtype=np.int64)
        return [tree.state(int(i)) for i in ids.ravel()], ids.shape, (ids if ids.ndim == 1 else None)

    def evaluate(self, op: Op, model: Model, place: Any, extra: dict[str, Any]) -> Dist:
        """The meaning of `model.eval`."""
        given = extra.get("given")
        if op.attrs.get("part") == "heads":
            return self.eval_heads(op, model, place, extra)
        if isinstance(place, Canvas) or (isinstance(place, Tree) and isinstance(place.base, Canvas)):
            return self.eval_canvases(op, model, place, extra)
        states, shape, ids = self.place_states(place, extra)
        nodes = (
            list(range(len(states)))
            if isinstance(place, Tree)
            else ([int(i) for i in np.asarray(place).ravel()] if "tree" in extra else [0] * len(states))
        )
        scores, computed = self.reached(op, model, states, given.memory if isinstance(given, ReferenceMemory) else given)
        self.count_call(model, len(states), sum(len(s) for s in states), computed, drafts=bool(op.attrs.get("drafts")))
        allow = extra.get("allow")
        rows = np.empty(len(states), dtype=object)
        for i, s in enumerate(states):
            rows[i] = self.model_row(model, scores[i], s, nodes[i], self.allow_at(allow, i, shape))
        if shape == ():
            out = np.empty((), dtype=object)
            out[()] = rows[0]
            return Dist(out)
        return Dist(rows.reshape(shape), "shaped", ids)

    def text_of_place(self, tokens: Any) -> tuple[int, ...]:
        """The tokens that stand in the place of a context."""
        read: Any = tokens.tokens if isinstance(tokens, Path) else tokens.items if isinstance(tokens, Draws) else tokens
        return tuple(resolve_path(read))

    def path_of_place(self, place: Any, extra: dict[str, Any]) -> tuple[int, ...]:
        """The tokens of a context, of a node (with `tree`), or in the place of a context."""
        if isinstance(place, tuple) or "tree" in extra:
            return tuple(resolve_path(self.place_states(place, extra)[0][0]))
        return self.text_of_place(place)

    def read_tokens(self, op: Op, model: Model, tokens: Any, given: ReferenceMemory | None = None) -> Dist:
        """The meaning of `model.read`. Constraints and shaping are those after the committed context, whatever was read: they
        are the request's, and what is drawn may be committed."""
        text = self.text_of_place(tokens)
        each = bool(op.attrs.get("each"))
        paths = [text[: i + 1] for i in range(len(text))] if each else [text]
        self.count_call(model, len(paths), len(text))
        rows = np.empty(len(paths), dtype=object)
        for i, scores in enumerate(self.score_paths(model, paths, None if given is None else given.memory)):
            rows[i] = self.model_row(model, partial(_value, scores), self.context(), i, None)
        if each:
            return Dist(rows)
        out = np.empty((), dtype=object)
        out[()] = rows[0]
        return Dist(out)

    def evaluate_parts(self, op: Op, model: Model, parts: Sequence[tuple[Any, dict[str, Any]]]) -> list[Dist]:
        """The meaning of `model.evals`: every part as if alone, counted as one call."""
        self.joined = []
        try:
            out = [self.evaluate(op, model, place, extra) for place, extra in parts]
        finally:
            counts, self.joined = self.joined, None
        cached = any(computed is not None for _, _, computed in counts)
        new = sum(cells if computed is None else computed for _, cells, computed in counts) if cached else None
        self.count_call(model, sum(c[0] for c in counts), sum(c[1] for c in counts), new)
        return out

    def store(self, op: Op, model: Model) -> Any:
        """The KV cache that a call continues; None where it computes from scratch. The exact checker always does: it must not
        read a draw before the program does."""
        name = op.attrs.get("reuse")
        return self.kept.of(name, model) if name and not self.num.exact else None

    def reached(
        self, op: Op, model: Model, states: Sequence[tuple[Any, ...]], given: Any
    ) -> tuple[list[Callable[[], Scores]], int | None]:
        """The scores after each path, and how many positions were computed for them (None: all)."""
        store = self.store(op, model)
        if store is None or any(map(is_soft, states)):
            return self.score_paths(model, states, given), None
        paths = [resolve_path(s) for s in states]
        scores, computed = store.scores(paths, given) if given is not None else store.scores(paths)
        return [partial(Scores.to_float, s) for s in scores], computed

    def allow_at(self, allow: Any, i: int, shape: tuple[int, ...]) -> Any:
        if allow is None:
            return None
        a = np.asarray(allow, dtype=bool)
        return a if a.ndim == 1 else a[i]

    def score_paths(self, model: Model, states: Sequence[tuple[Any, ...]], given: Any) -> list[Callable[[], Scores]]:
        """The scores after each path; together, since a real model batches them."""
        paths = [read_path(s) for s in states]
        distinct = list(dict.fromkeys(paths))
        got = dict(zip(distinct, [s.to_float() for s in model.eval(distinct, given)], strict=True))
        return [partial(got.__getitem__, p) for p in paths]

    def model_row(
        self,
        model: Model | None,
        scores: Callable[[], Scores],
        path: tuple[Any, ...],
        node: int | None,
        allow: Any,
        position: int | None = None,
    ) -> Row:
        """A row whose views are computed from a model's scores and the request; without a model, from the scores passed to
        `warp`."""
        label = "warp" if model is None else model.name
        own = model is None or self.main is None or model.vocab == self.main.vocab
        asked = self.request if own else self.request.elsewhere

        def face(name: str) -> Any:
            s = scores()
            if model is not None:
                check_size(model.name, s.size, model.vocab.size)
            tokens = tokens_of(path)
            request = without_texts(asked) if is_soft(path) else asked
            if name == "raw":
                return self.vector(raw_probs(s, tokens, request, allow=self.ids(allow)))
            if name == "logits":
                return self.logits(s, raw_probs(s, tokens, request, allow=self.ids(allow)))
            return self.vector(shaped_probs(s, tokens, request, allow=self.ids(allow)))

        return Row(face, position=len(path) if position is None else position, node=node, path=path, label=label)

    def ids(self, allow: Any) -> Any:
        return None if allow is None else [int(i) for i in np.flatnonzero(allow)]

    def vector(self, probs: Any) -> Any:
        """Probabilities as the machine's vectors."""
        if self.num.exact:
            out = np.empty(len(probs), dtype=object)
            out[:] = list(probs)
            return out
        return np.asarray(probs, dtype=np.float64)

    def logits(self, scores: Scores, raw: Any) -> Any:
        with np.errstate(divide="ignore"):
            if scores.logits is not None:
                return np.where(np.asarray(raw, dtype=np.float64) > 0, scores.logits, -np.inf)
            return self.num.fn("log")(self.vector(raw))

    def eval_heads(self, op: Op, model: Model, place: Any, extra: dict[str, Any]) -> Dist:
        states, shape, ids = self.place_states(place, extra)
        store = self.store(op, model)
        allow = extra.get("allow")
        found: list[list[Any]] = []
        new: int | None = 0
        for i, state in enumerate(states):
            path = resolve_path(state)
            got, computed = store.heads(path) if store is not None else (model.heads(path), None)
            new = None if new is None or computed is None else new + computed
            scores = [s if self.num.exact else s.to_float() for s in got]
            found.append(
                [
                    self.model_row(model, known(s), state, None, self.allow_at(allow, i, shape), position=len(path) + 1 + h)
                    for h, s in enumerate(scores)
                ]
            )
        if new != 0:
            self.emit_event(trace.ModelCall(model.name + ".heads", len(states), sum(len(s) for s in states), "draft", new))
        rows = np.empty((len(states), len(found[0]) if found else 0), dtype=object)
        for i, here in enumerate(found):
            rows[i] = here
        return Dist(rows.reshape(rows.shape[1:])) if shape == () else Dist(rows.reshape(*shape, -1), "shaped", ids)

    def states(self, op: Op, trunk: Any, place: Any, extra: dict[str, Any]) -> Any:
        """The meaning of `model.states`."""
        if isinstance(place, Canvas):
            cells, at = self.cells(place), extra.get("at")
            which = [int(i) for i in np.ravel(np.asarray(at))] if at is not None else range(len(place))
            self.count_call(trunk, len(which), len(cells))
            base = len(cells) - len(place)
            return states_value(trunk.after(base).canvas_states(cells, [base + i for i in which]), (len(which),))
        text = text_of(place, extra)
        found, shape, _ = self.place_states(place, extra) if text is None else texts(text, bool(op.attrs.get("each")))
        return read_states(self, trunk, [resolve_path(s) for s in found], shape, extra.get("given"))

    def read_head(self, op: Op, head: Model, place: Any, tree: Any) -> Any:
        """The meaning of `head.read`."""
        states, shape, _ = self.place_states(place, {"tree": tree})
        values = self.head_values(head, [resolve_path(s) for s in states])
        self.emit_event(trace.ModelCall(head.name, len(states), sum(len(s) for s in states), "draft", None))
        return valued(self, op.result.type.elem, values, shape)

    def head_values(self, head: Model, paths: list[tuple[int, ...]]) -> list[Any]:
        """What a head says after each path."""
        return head.read(paths)

    # -- canvases
    def cells(self, c: Canvas, after: Any = None) -> tuple[Any, ...]:
        """The cells that a masked model reads: the context, or the tokens in its place, then the canvas."""
        out: list[Any] = list(resolve_path(c.base))
        if after is not None:
            out = [MASK if t == self.mask_token else t for t in self.text_of_place(after)]
        for x in c.cells:
            if x is None:
                out.append(MASK)
            elif isinstance(x, SoftCell):
                out.append(mixture(x.value))
            else:
                out.append(x.token if isinstance(x, Draw) else int(x))
        return tuple(out)

    def fresh(self, c: Canvas, at: Any, given: ReferenceMemory | None) -> tuple[list[int] | None, Any]:
        """Absolute positions that a call computes (None: all), and the memory it sees: on a memory it computes its cells, and
        the context where that is not cached. Where that is everything, the memory is not used."""
        base = len(c.base)
        wanted = [base + int(i) for i in (range(len(c)) if at is None else np.ravel(np.asarray(at)))]
        if given is None:
            return (None if at is None or len(set(wanted)) == len(c) else wanted), None
        held = given.memory.positions
        fresh = sorted({*wanted, *(i for i in range(base) if i not in held)})
        return (None, None) if len(fresh) == base + len(c) else (fresh, given.memory)

    def eval_canvases(self, op: Op, model: Model, place: Any, extra: dict[str, Any]) -> Dist:
        states, shape, _ = self.place_states(place, extra)
        at = extra.get("at")
        n = len(states[0])
        which = [int(i) for i in np.ravel(np.asarray(at))] if at is not None else list(range(n))
        out = np.empty((len(states), len(which)), dtype=object)
        memo: dict[Any, Any] = {}
        store, new = self.store(op, model), 0
        if store is not None and not self.joined:  # the parts of one call belong together
            store.begin()
        for s, c in enumerate(states):
            cells = self.cells(c, extra.get("after"))
            base = len(cells) - n
            fresh, given = self.fresh(c, None if "after" in extra else at, extra.get("given"))
            key = cells
            if key not in memo:
                rows = [base + i for i in which]
                if store is not None:
                    computed, cost = store.scores(cells, rows, fresh, given, base)
                    new += cost
                else:
                    at_once = rows if fresh is None or given is None else fresh
                    computed = model.after(base).eval_canvas(cells, at_once, given) if rows else []
                computed = [x if self.num.exact else x.to_float() for x in computed]
                if given is not None and store is None:
                    assert fresh is not None
                    place_of = {p: i for i, p in enumerate(fresh)}
                    computed = [computed[place_of[p]] for p in rows]
                memo[key] = computed
            computed = memo[key]
            before = resolve_path(c.base) if "after" in extra else cells[:base]
            for j, i in enumerate(which):
                path = tuple(
                    self.mask_token if x is MASK or isinstance(x, Soft) else x for x in (*before, *cells[base : base + i])
                )
                out[s, j] = self.model_row(model, known(computed[j]), path, i, None)
        fresh, given = self.fresh(states[0], None if "after" in extra else at, extra.get("given"))
        if store is None and given is not None and fresh is not None:
            new = len(memo) * len(fresh)
        made = {self.made(cells, fresh, given) for cells in memo}
        scored = {(one, int(i)) for one in made for i in which}  # scores elsewhere in the same canvas are another call
        again = not self.made_of_canvases(model, made | scored, given) and not self.num.exact
        computed_of = 0 if again else None if store is None and given is None else new
        self.count_call(model, len(which) * len(memo), sum(map(len, memo)), computed_of)
        if shape == ():
            return Dist(out[0], "shaped", np.array(which, dtype=np.int64) if at is not None else None)
        return Dist(out, inner=None if at is None else np.array(which, dtype=np.int64))

    def made(self, cells: tuple[Any, ...], fresh: list[int] | None, given: Any) -> Any:
        """What a call of one canvas computed, as a key. Engines identify a memory by its storage and not by its numbers."""
        return (cells, None if given is None or fresh is None else tuple(fresh), id(given))

    def made_of_canvases(self, model: Model, keys: set[Any], given: Any) -> bool:
        """Whether none of the model's last two calls computed all of `keys`, which become the last call's."""
        if self.num.exact:
            return False
        before = self.last_canvases.setdefault(id(model), [])
        new = not keys <= {key for made, _ in before for key in made}
        self.last_canvases[id(model)] = [*before, (keys, given)][-2:]
        return new

    # -- memories and derived models
    def memory(self, op: Op, model: Model, place: Any, extra: dict[str, Any]) -> ReferenceMemory:
        """The meaning of `model.memory`. That of an empty context (`ctx.parent` after a prompt of one token) holds nothing."""
        given = extra.get("given")
        if isinstance(place, Canvas):
            at = extra.get("at")
            if at is not None and len(at) == 0 and given is None:
                empty = Memory(model.family, len(place.base) + len(place), (LayerMemory({}, {}),) * model.layers)
                return ReferenceMemory(empty, len(place.base))
            fresh, seen = self.fresh(place, at, given)
            cells = self.cells(place)
            # Usually the call before computed it. Otherwise this is a model call like any other.
            made = self.made(cells, fresh, seen)
            if self.made_of_canvases(model, {made}, seen):
                count = len(cells) if seen is None or fresh is None else len(fresh)
                self.count_call(model, 0, len(cells), count)
                if not self.num.exact:  # a call of the same canvas right after it is this forward
                    self.last_canvases[id(model)][-1][0].update((made, i) for i in range(len(place)))
            here = model.after(len(place.base))
            attention_logits = logits_of_queries(here, cells) if extra.get("queries") else None
            return ReferenceMemory(here.memory(cells, fresh, seen), len(place.base), attention_logits)
        path = self.path_of_place(place, extra)
        if not path and given is not None:
            return ReferenceMemory(given.memory, 0)
        store = self.store(op, model)
        if store is not None and given is None:
            got, computed = store.memory(path)
            if computed:
                self.count_call(model, 0, len(path), computed)
            return ReferenceMemory(got, 0)
        return ReferenceMemory(model.memory(path, None, given.memory if given is not None else None), 0)

    def attention(self, model: Model, place: Any, extra: dict[str, Any]) -> Any:
        """The meaning of `model.attention`. It is no call of its own: the forward that computes a position has its weights.
        Raises DecError for an empty context."""
        path, given = self.path_of_place(place, extra), extra.get("given")
        if not path:
            raise DecError("nothing attends in an empty context", hint="ctx.parent exists for prompts of two tokens or more")
        values = model.attention(path, None if given is None else given.memory, int(extra.get("last", 1)))
        return valued(self, "prob", values, (len(values),))

    def restrict(self, mem: ReferenceMemory, positions: Any, kind: str) -> ReferenceMemory:
        return mem.restrict([int(i) for i in np.ravel(np.asarray(positions))], kind)

    def derive(self, op: Op, base: Any, args: tuple[Any, ...]) -> Any:
        """The meaning of `model.derive`."""
        how = "on" if op.attrs["how"] == "adapter" else str(op.attrs["how"])
        args = halves(args, op.attrs.get("named", ()))
        key = (how, id(base), tuple(id(a) if isinstance(a, Model) else str(a) for a in args))
        if key not in self.memo:
            self.memo[key] = (derive(base, how, *[a if isinstance(a, Model) else plain(a) for a in args]), base, args)
        return self.memo[key][0]

    def warp_row(self, values: Any, path: Any, is_probs: bool, old: Row | None) -> Row:
        """A row that the request shapes: scores or probabilities of the token after `path`."""
        path = path if path is not None else self.context()
        scores = self.as_scores(values, is_probs)
        return self.model_row(None, lambda: scores, tuple(path), old.node if old is not None else None, None)

    def adjusted_row(self, values: Any, path: Any) -> Any:
        """Scores of the token after `path` with what the request asks of them before temperature and truncation."""
        tokens, request = tokens_of(tuple(path)), without_texts(self.request) if is_soft(path) else self.request
        if not self.num.exact:
            return adjusted(Scores(logits=np.asarray(values, dtype=np.float64)), tokens, request)
        weights = self.vector([self.num.scalars["exp"](x) for x in values])
        return self.num.fn("log")(self.vector(adjusted(Scores(weights=tuple(weights)), tokens, request)))

    def as_scores(self, values: Any, is_probs: bool) -> Scores:
        if self.num.exact:
            return Scores(weights=tuple(self.num.weights(values, is_probs)))
        with np.errstate(divide="ignore"):
            return Scores(logits=np.log(values) if is_probs else np.asarray(values, dtype=np.float64))

    def paths(self, at: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
        """The paths of a place that `warp` names."""
        if isinstance(at[0], tuple):
            return [at[0]] * (int(np.prod(shape)) if shape else 1)
        states, _, _ = self.place_states(at[0], {"tree": at[1]} if len(at) > 1 else {})
        return states


def without_texts(request: Request) -> Request:
    """The request at a soft node, where no text stands that a grammar or a minimum length could read."""
    return replace(request, allow=None, min_length=0) if request.allow is not None or request.min_length else request


def _value(scores: Callable[[], Scores]) -> Scores:
    """Scores that are computed when they are read."""
    return scores()


def known(scores: Scores) -> Callable[[], Scores]:
    """Scores that are computed already."""
    return lambda: scores


def plain(a: Any) -> Any:
    """NumPy's whole numbers as Python's; all else as it is."""
    return int(a) if isinstance(a, (int, np.integer)) else a
