"""What happens besides values in the torch machine: commits, the stop machine, states, sub-runs, events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.torch.draws import Draws, Mixed
from decgraph.backends.torch.rows import Rows
from decgraph.backends.torch.stores import Suffixes, ids_of
from decgraph.backends.torch.transfer import number
from decgraph.backends.torch.trees import Context, Path, Tree
from decgraph.errors import DecError
from decgraph.ir.opdef import OpError
from decgraph.runtime import trace
from decgraph.runtime.faults import title_of
from decgraph.runtime.stop import StopMachine, StopState


class Effects:
    """The part of the machine that has effects."""

    def start_effects(self: Any) -> None:
        self.title = title_of(self.request)
        self.syncs = 0  # how often the run waited for the device; see transfer.py
        self.tokens: list[int] = list(self.request.prompt)
        self.marks: list[int] = [-1] * len(self.tokens)
        self.base = len(self.tokens)
        self._stop = StopMachine.start(self.request, self.detokenizer)
        # Without stop strings and conditions of the caller the machine only counts, and looks for ends: it is asked when it
        # may fire, and its state is made when somebody looks.
        self.counts_only = not self.request.stop and not self.request.until
        self.own: dict[str, Any] = {}
        self.until: Callable[[Any], bool] | None = None
        self.engines: dict[Any, Any] = {}
        windows = [m.context for m in self.models.values() if m.context is not None]
        self.window = min(windows) if windows else None
        if self.window is not None and len(self.tokens) > self.window:
            raise DecError(
                f"the prompt has {len(self.tokens)} tokens, the context length is {self.window}", hint="shorten the prompt"
            )

    def host(self: Any, what: str, *args: Any) -> Any:
        """What only some models could do. Raises OpError: none of them is asked for it yet."""
        raise OpError(
            f"the torch backend has no way to ask a model for `{what}`",
            "models give distributions, memories and canvases' memories restricted; their layers stay their own",
        )

    # -- context and commits
    def context(self: Any, parent: bool = False) -> Context:
        return Context(self.tokens, len(self.tokens) - parent)

    @property
    def stop_state(self: Any) -> StopState:
        """Where the stop machine stands."""
        if self._stop.count != len(self.tokens) - self.base:
            self._stop = replace(self._stop, count=len(self.tokens) - self.base)
        return self._stop

    def feed(self: Any, token: int) -> None:
        """Commit one token."""
        self.tokens.append(token)
        count = len(self.tokens) - self.base
        if not self.counts_only or token in self.request.eos or count >= self.request.limit:
            state = self._stop if self._stop.count == count - 1 else replace(self._stop, count=count - 1)
            self._stop = StopMachine.feed(state, token)

    def committed(self: Any) -> int:
        return len(self.tokens) - self.base

    def committed_tokens(self: Any) -> tuple[int, ...]:
        return tuple(self.tokens[self.base :])

    def done(self: Any) -> bool:
        return bool(self._stop.done) or (self.window is not None and len(self.tokens) > self.window)

    def context_full(self: Any) -> bool:
        """Whether the text holds a token at every position of the context. One more can be committed, which no model reads."""
        return self.window is not None and len(self.tokens) >= self.window

    def commit(self: Any, x: Any, tree: Any = None) -> None:
        """Feed tokens to the stop machine; cut exactly where it fires."""
        fed: list[int] = []
        tokens, marks = self.commit_tokens(x, tree)
        for token, mark in zip(tokens, marks):
            if self.done():
                break
            self.feed(token)
            self.marks.append(mark)
            fed.append(token)
            if self.until is not None and self.until(self):
                break
        cut = len(tokens) - len(fed)
        self.tally.commit(len(fed), cut > 0)
        self.learn_committed(fed)
        if (fed or cut) and self.listener is not None:
            self.emit_event(trace.Committed(tuple(fed), cut))
        if self.until is not None and self.until(self):
            from decgraph.backends.torch.machine import Stop

            raise Stop

    def commit_tokens(self: Any, x: Any, tree: Any) -> tuple[Sequence[int], Sequence[int]]:
        """What a commit commits: tokens, and the tree node each came from (-1: none)."""
        if isinstance(x, Path):
            return x.tokens, x.uids or (-1,) * len(x.tokens)
        if isinstance(x, Tree):
            raise DecError("commit takes a node or an accepted path, not a whole tree", hint="commit t.accepted")
        if isinstance(x, Canvas):
            tokens: Sequence[int] = x.decided_prefix()[max(0, len(self.tokens) - x.base.length) :]
        elif isinstance(x, Context):
            tokens = x.ids()[len(self.tokens) :]
        elif tree is not None:
            path = path_of(tree, int(np.ravel(np.asarray(x))[0]))
            return path.tokens, path.uids
        elif isinstance(x, list):
            parts = [self.commit_tokens(part, None) for part in x]
            return [t for p in parts for t in p[0]], [u for p in parts for u in p[1]]
        else:
            tokens = ids_of(x)
        return tokens, (-1,) * len(tokens)

    def finish(self: Any) -> None:
        state = self.stop_state
        self.reason = self.tally.stopped = str(state.reason if state.done else "context" if self.context_full() else "end")
        self.emit_event(trace.Stopped(self.reason))

    def returned(self: Any, values: Sequence[Any], has_tree: bool) -> None:
        """n-best results: paths of tokens."""
        values = list(values)
        tree = values.pop() if has_tree else None
        for v in values:
            if tree is not None and not isinstance(v, Path | list):
                self.results += [path_of(tree, int(n)).tokens for n in np.ravel(np.asarray(v))]
            elif isinstance(v, list):
                self.results += [tuple(self.commit_tokens(p, None)[0]) for p in v]
            else:
                self.results.append(tuple(self.commit_tokens(v, None)[0]))

    def ended(self: Any, x: Any, tree: Any = None) -> Any:
        """The stop machine along a path from the committed context."""

        def fires(tokens: Sequence[int]) -> bool:
            state = self.stop_state
            for t in tokens:
                if state.done:
                    return True
                state = StopMachine.feed(state, int(t))
            return bool(state.done) or (self.window is not None and len(self.tokens) + len(tokens) > self.window)

        if isinstance(x, Path):
            return fires(x.tokens)
        if isinstance(x, Context):
            return fires(x.ids()[len(self.tokens) :])
        if tree is not None:
            ids = np.asarray(x)
            if ids.ndim == 0:
                return fires(path_of(tree, int(ids)).tokens)
            return np.array([fires(path_of(tree, int(i)).tokens) for i in ids], dtype=bool)
        return fires(self.commit_tokens(x, None)[0])

    def request_field(self: Any, field: str) -> Any:
        r = self.request
        if field == "prompt":
            return np.array(r.prompt, dtype=np.int64)
        if field == "limit":
            return r.limit
        if field == "room":
            return r.limit - self.committed()
        if field == "greedy":
            return r.greedy
        if field == "mask":
            return self.mask_token
        return min(r.eos) if r.eos else 0

    def room(self: Any, tree: Tree) -> int:
        """How deep a tree may grow."""
        ends = [n for n in (self.window, tree.extent) if n is not None]
        return int(min(ends)) - tree.base.length if ends else 1 << 30

    def full(self: Any, tree: Tree | None, which: str) -> bool:
        """Whether nothing fits under the leaves, the frontier or the new nodes of a tree."""
        if tree is None or not isinstance(tree.base, Context):
            return False
        nodes = None if which == "leaves" else getattr(tree, which)
        if nodes is not None and not len(nodes):
            return True
        if not tree.closes and len(tree) <= self.room(tree):  # not even a chain is that deep
            return False
        nodes = tree.leaves() if nodes is None else nodes
        open_ = tree.depth[nodes] < self.room(tree)
        if tree.closes:
            open_ &= ~tree.closed(nodes)
        return not bool(open_.any())

    def bounds(self: Any, until: Sequence[str]) -> tuple[int | None, frozenset[int]]:
        """The longest text that a tree drafts, with the prompt, and the tokens below which it drafts nothing (attribute until
        of tree.new)."""
        place = "place" in until or ("greedy place" in until and self.request.greedy)
        return (
            self.base + self.request.limit - place if "limit" in until else None,
            frozenset(self.request.eos) if "ends" in until else frozenset(),
        )

    def canvas_room(self: Any) -> int:
        left = self.request.limit - self.committed()
        return max(0, left if self.window is None else min(left, self.window - len(self.tokens)))

    # -- states
    def start_states(self: Any, values: Sequence[Any]) -> None:
        for s in self.function.states:
            store = self.own if s.scope == "sequence" else self.shared
            key = s.name if s.scope == "sequence" else (self.function.name, s.name)
            if key not in store:
                store[key] = self.program.starts[s.name](self, *values)

    def _state(self: Any, name: str) -> tuple[dict[Any, Any], Any]:
        for s in self.function.states:
            if s.name == name:
                return (self.own, name) if s.scope == "sequence" else (self.shared, (self.function.name, name))
        raise KeyError(name)

    def read_state(self: Any, name: str) -> Any:
        store, key = self._state(name)
        return store[key]

    def write_state(self: Any, name: str, value: Any) -> None:
        store, key = self._state(name)
        store[key] = value

    def learn_committed(self: Any, tokens: Sequence[int]) -> None:
        """Indexes learn on commit: what a request's text continues with."""
        for s in self.function.states if tokens else ():
            if s.type.elem == "index" and s.type.of[0] in ("suffixes", "ngrams"):
                value: Suffixes = self.read_state(s.name)
                if s.scope == "sequence":
                    self.write_state(s.name, value.extend(tokens))
                else:
                    key = ("learning", self.function.name, s.name, self.request.request_id)
                    started = self.own.get(key)
                    self.write_state(s.name, value.extend(tokens) if started else value.learn(tokens))
                    self.own[key] = True

    # -- sub-runs
    def run(
        self: Any,
        callee: str,
        site: str,
        start: Any,
        bound: int,
        args: dict[str, Any],
        tree: Any,
        counters: Sequence[Any],
        until: Callable[[Path], Any],
    ) -> Any:
        """Run another function on a scratch context until its condition holds: a generator of its model calls."""
        from decgraph.backends.torch.machine import Stop

        base = start.ids() if isinstance(start, Context) else (*self.tokens, *path_of(tree, int(start)).tokens)
        f = self.module.functions[callee]
        models = {k: v for k, v in args.items() if f.param(k).value.type.elem == "model"}
        params = {p.name: p.default for p in f.params if p.has_default}
        params.update({k: v for k, v in args.items() if k not in models})
        request = replace(self.request, prompt=base, limit=max(1, bound), stop=self.request.stop)
        sub = type(self)(
            self.module,
            f.name,
            models,
            params,
            request,
            listener=self.sub_listener(),
            shared=self.shared,
            externs=self.externs,
            detokenizer=self.detokenizer,
            parent=self,
        )
        sub.site_prefix = f"{self.site_prefix}{site}:"
        sub.counter_prefix = self.counter_prefix + tuple(int(c) for c in counters)
        sub.until = lambda m: bool(until(Path(tuple(m.tokens[m.base :]), base=m.base)))
        try:
            yield from sub.steps()
        except Stop:
            pass
        finally:
            sub.release()
            self.tally.called(sub.tally)
        tokens = sub.committed_tokens()
        main = next(iter(models.values()), None)
        draws = tuple(_Later(self, main, base + tokens[:i], t) for i, t in enumerate(tokens))
        return Path(tokens, base=len(base), uids=(-1,) * len(tokens), draws=draws)

    def sub_listener(self: Any) -> Any:
        if self.listener is None:
            return None
        return lambda e: self.listener(e) if isinstance(e, trace.ModelCall) else None

    # -- events
    def emit_event(self: Any, event: Any) -> None:
        if self.listener is not None:
            self.listener(event)

    def grew(self: Any, tree: Tree, ids: Any, draws: Any, places: Any) -> None:
        if self.listener is None:
            return
        probs = draws.prob()  # of the whole growth at once
        mixed = isinstance(draws, Mixed)
        for n, i in zip(ids.tolist(), places.tolist()):
            rows = draws.items[i].rows if mixed else draws.rows
            label = rows.label if rows is not None else ""
            self.emit_event(trace.Drafted(n, int(tree.parent[n]), int(tree.token[n]), float(probs[i]), label or "point"))

    def grew_edits(self: Any, tree: Tree, ids: Any) -> None:
        """The events of edits that were drafted."""
        for n in ids.tolist():
            value = tree.edges[n].value
            drawn = isinstance(value, Draws)
            label = value.rows.label if drawn and value.rows is not None else ""
            self.emit_event(
                trace.Drafted(
                    n, int(tree.parent[n]), int(tree.token[n]), float(value.prob()) if drawn else 1.0, label or "point"
                )
            )

    def pruned(self: Any, before: Tree, kept: Sequence[int]) -> None:
        """A tree was cut to those of its nodes, the root among them."""
        gone = set(range(1, len(before))) - set(kept)
        dropped = len(gone) if len(before.edges) == 1 else sum(before.edges[n] is None for n in gone)  # others are no draws
        self.tally.drafted -= dropped
        self.emit_event(trace.Pruned(tuple(kept), dropped))

    def unmasked(self: Any, positions: Sequence[int], tokens: Sequence[int], draws: Any) -> None:
        self.decided += len(positions)
        self.tally.unmasked += len(positions)
        if self.listener is None:
            return
        for n, (i, t) in enumerate(zip(positions, tokens)):
            d = None if draws is None else draws.pick(n) if draws.shape else draws
            self.emit_event(trace.Unmasked(int(i), int(t), 1.0 if d is None else float(d.prob())))

    def masked_again(self: Any, positions: Sequence[int]) -> None:
        self.tally.remasked += len(positions)
        for i in positions:
            self.emit_event(trace.Remasked(int(i)))

    def level_field(self: Any, level: Any, field: str) -> Any:
        v = getattr(level, field)
        return np.array(v, dtype=np.int64) if isinstance(v, tuple) else v


class _Later:
    """A token of a sub-run as a draw: its raw probability under the model that made it is read only if asked for."""

    def __init__(self, machine: Any, model: Any, path: tuple[int, ...], token: int) -> None:
        self.machine, self.model, self.path, self.token = machine, model, path, token

    def prob(self) -> float:
        import torch

        scores = torch.from_numpy(np.asarray(self.model.eval([self.path], None)[0].to_float().logits))[None]
        rows = Rows(scores, self.machine.request, path=lambda i: self.path)
        return number(rows.face("raw")[0, self.token])


def path_of(tree: Tree, node: int, emitted: int | None = None, draw: Any = None) -> Path:
    """The tokens from the root down to a node, and what was emitted there."""
    tokens: list[int] = []
    uids: list[int] = []
    draws: list[Any] = []
    steps = len(tree.edges) == len(tree) and len(tree) > 1
    for n in tree.path_nodes(node)[1:]:
        edge = tree.edges[n] if steps else None
        if isinstance(edge, Path):
            tokens += edge.tokens
            uids += [-1] * len(edge.tokens)
            draws += edge.draws or [None] * len(edge.tokens)
        else:
            tokens.append(int(tree.token[n]))
            uids.append(int(tree.uid[n]))
            draws.append(tree.draw(n))
    if emitted is not None:
        tokens.append(emitted)
        uids.append(-1)
        draws.append(draw)
    return Path(tuple(tokens), node, int(tree.depth[node]), emitted, tuple(uids), tuple(draws))


__all__ = ["Draws", "Effects", "Mixed", "path_of"]
