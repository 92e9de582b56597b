"""What happens besides values: commits, the stop machine, states, sub-runs, events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from decgraph.errors import DecError
from decgraph.ir.data.canvas import Canvas, Edit
from decgraph.ir.data.dist import Draw, Draws, Path, resolve_path
from decgraph.ir.data.topology import Level, Topology
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.runtime import trace
from decgraph.runtime.stop import StopMachine


class Effects:
    """The part of the machine that has effects."""

    def start_effects(self: Any) -> None:
        self.tokens: list[Any] = list(self.request.prompt)
        self.base = len(self.tokens)
        self.stop_state = StopMachine.start(self.request, self.detokenizer)
        self.own: dict[str, Any] = {}
        self.until: Callable[[Any], bool] | None = None
        windows = [m.context for m in self.models.values() if m.context is not None]
        self.window = min(windows) if windows else None
        if self.window is not None and len(self.tokens) > self.window:
            raise DecError(
                f"the prompt has {len(self.tokens)} tokens, the context length is {self.window}", hint="shorten the prompt"
            )

    # -- context and commits
    def context(self: Any) -> tuple[Any, ...]:
        return tuple(self.tokens)

    def committed(self: Any) -> int:
        return len(self.tokens) - self.base

    def committed_tokens(self: Any) -> tuple[int, ...]:
        return resolve_path(self.tokens[self.base :])

    def done(self: Any) -> bool:
        return bool(self.stop_state.done) or (self.window is not None and len(self.tokens) > self.window)

    def context_full(self: Any) -> bool:
        """Whether the text holds a token at every position of the context. One more can be committed, which no model reads."""
        return self.window is not None and len(self.tokens) >= self.window

    def commit(self: Any, op: Any, x: Any, tree: Any) -> None:
        """Feed tokens to the stop machine; cut exactly where it fires."""
        fed: list[int] = []
        tokens = self.commit_tokens(x, tree)
        for token in tokens:
            if self.done():
                break
            t = token.token if isinstance(token, Draw) else int(token)
            self.tokens.append(t)
            fed.append(t)
            self.stop_state = StopMachine.feed(self.stop_state, t)
            if self.until is not None and self.until(self):
                break
        self.learn_committed(fed)
        cut = len(tokens) - len(fed)
        if fed or cut:
            self.emit_event(trace.Committed(tuple(fed), cut))
        if self.until is not None and self.until(self):
            from decgraph.backends.reference.machine import Stop

            raise Stop

    def commit_tokens(self: Any, x: Any, tree: Any) -> list[Any]:
        if isinstance(x, Path):
            return list(x.tokens)
        if isinstance(x, Canvas):
            return x.decided_prefix()[max(0, len(self.tokens) - len(x.base)) :]
        if isinstance(x, tuple):
            return list(x[len(self.tokens) :])
        if isinstance(x, Tree):
            raise DecError("commit takes a node or an accepted path, not a whole tree", hint="commit t.accepted")
        if isinstance(x, Draws):
            return list(x.items.ravel())
        if tree is not None:
            return tree.path_edges(int(x))
        if isinstance(x, list):
            return [t for part in x for t in self.commit_tokens(part, None)]
        return [int(t) for t in np.ravel(np.asarray(x))]

    def finish(self: Any) -> None:
        state = self.stop_state
        reason = state.reason if state.done else "context" if self.context_full() else "end"
        self.emit_event(trace.Stopped(str(reason)))
        self.reason = str(reason)

    def returned(self: Any, op: Any, values: Sequence[Any]) -> None:
        """n-best results: paths of tokens."""
        values = list(values)
        tree = values.pop() if op.attrs.get("has_tree") else None
        for v in values:
            if tree is not None and not isinstance(v, (Path, list)):
                self.results += [tuple(edge_token(e) for e in tree.path_edges(int(n))) for n in np.ravel(np.asarray(v))]
            elif isinstance(v, list):
                self.results += [tuple(int(t) for t in self.commit_tokens(p, None)) for p in v]
            else:
                self.results.append(tuple(edge_token(t) for t in self.commit_tokens(v, None)))

    def ended(self: Any, x: Any, tree: Any) -> Any:
        """The stop machine along a path from the committed context."""

        def fires(tokens: Sequence[Any]) -> bool:
            state = self.stop_state
            for t in tokens:
                if state.done:
                    return True
                state = StopMachine.feed(state, edge_token(t) if not isinstance(t, int) else t)
            return bool(state.done) or (self.window is not None and len(self.tokens) + len(tokens) > self.window)

        if isinstance(x, Path):
            return fires(x.tokens)
        if isinstance(x, tuple):
            return fires(x[len(self.tokens) :])
        if tree is not None:

            def along(n: int) -> list[Any]:
                out: list[Any] = []
                for e in tree.path_edges(n):
                    out += e.tokens if isinstance(e, Path) else [e]
                return out

            ids = np.asarray(x)
            if ids.ndim == 0:
                return fires(along(int(ids)))
            return np.array([fires(along(int(i))) for i in ids], dtype=bool)
        return fires(self.commit_tokens(x, None))

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
        return min(r.eos) if r.eos else 0

    def fits(self: Any, tree: Tree, parent: int) -> bool:
        """Whether a node under `parent` is of use: inside the context window, before the tree's end, not behind an end."""
        if not isinstance(tree.base, tuple):
            return True
        longest = len(tree.base) + tree.nodes[parent].depth + 1
        inside = all(n is None or longest <= n for n in (self.window, tree.extent))
        return inside and not (parent != 0 and tree.closes and edge_token(tree.nodes[parent].edge) in tree.closes)

    def full(self: Any, tree: Tree | None, which: str) -> bool:
        """Whether nothing fits under the leaves, the frontier or the new nodes of a tree."""
        if tree is None:
            return False
        nodes = tree.leaves() if which == "leaves" else getattr(tree, which)
        return not any(self.fits(tree, int(n)) for n in nodes)

    def bounds(self: Any, until: Sequence[str]) -> tuple[int | None, frozenset[int]]:
        """The longest text that a tree drafts, with the prompt, and the tokens below which it drafts nothing (attribute until
        of tree.new)."""
        place = "place" in until or ("greedy place" in until and self.request.greedy)
        return (
            self.base + self.request.limit - place if "limit" in until else None,
            frozenset(self.request.eos) if "ends" in until else frozenset(),
        )

    def canvas_room(self: Any) -> int:
        room = self.request.limit - self.committed()
        if self.window is not None:
            room = min(room, self.window - len(self.tokens))
        return max(0, room)

    def last_token(self: Any, tree: Tree) -> int:
        if isinstance(tree.base, tuple) and tree.base:
            return resolve_path(tree.base[-1:])[0]
        return 0

    def root_draw(self: Any, tree: Tree) -> Draw:
        from decgraph.ir.ops.draws import point

        return point(self, self.last_token(tree))

    def add_log(self: Any, logprob: Any, edge: Any) -> Any:
        """A node's cumulative log-probability: its parent's and its token's, under the raw face it was taken from."""
        if not isinstance(edge, Draw):
            inner = getattr(edge, "value", None)
            return self.add_log(logprob, inner) if isinstance(inner, Draw) else logprob
        return self.lazy_log(logprob, edge)

    def lazy_log(self: Any, logprob: Any, edge: Draw) -> Any:
        p = edge.source.face("raw")[edge.token]
        return logprob + float(np.log(p)) if p > 0 else -np.inf

    # -- states
    def start_states(self: Any) -> None:
        for s in self.function.states:
            store = self.own if s.scope == "sequence" else self.shared
            key = s.name if s.scope == "sequence" else (self.function.name, s.name)
            if key not in store:
                store[key] = self.region(s.init, ())[0]

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

    # -- sub-runs
    def run(self: Any, op: Any, start: Any, bound: int, args: dict[str, Any], tree: Any, counters: Sequence[Any]) -> Path:
        """Run another function on a scratch context until its condition holds."""
        from dataclasses import replace

        from decgraph.backends.reference.machine import Stop

        if isinstance(start, tuple):
            base = resolve_path(start)
        else:
            base = self.context()
            for e in tree.path_edges(int(start)):
                base += tuple(e.tokens) if isinstance(e, Path) else (e,)
            base = resolve_path(base)
        callee = self.module.functions[op.attrs["callee"]]
        models = {k: v for k, v in args.items() if callee.param(k).value.type.elem == "model"}
        params = {p.name: p.default for p in callee.params if p.has_default}
        params.update({k: v for k, v in args.items() if k not in models})
        request = replace(self.request, prompt=base, limit=max(1, bound), stop=self.request.stop)
        sub = type(self)(
            self.module,
            callee.name,
            models,
            params,
            request,
            listener=self.sub_listener(),
            shared=self.shared,
            externs=self.externs,
            detokenizer=self.detokenizer,
            parent=self,
        )
        sub.adopt(self)
        sub.site_prefix = f"{self.site_prefix}{op.attrs['site']}:"
        sub.counter_prefix = self.counter_prefix + tuple(int(c) for c in counters)

        def until(m: Any) -> bool:
            return self.num.truth(self.region(op.regions[0], (Path(m.tokens[m.base :], base=m.base),))[0])

        sub.until = until
        try:
            sub.run_function()
        except Stop:
            pass
        main = next(iter(models.values()), None)
        tokens = [self.path_draw(main, tuple(sub.tokens[: sub.base + i]), t) for i, t in enumerate(sub.tokens[sub.base :])]
        return Path(tokens, base=len(base))

    def path_draw(self: Any, model: Any, path: tuple[Any, ...], token: Any) -> Any:
        """A token of a sub-run, with its raw probability under the model that made it, read only if asked for."""
        row = self.model_row(model, lambda: model.eval([resolve_path(path)], None)[0], path, None, None)
        return Draw(int(token), row, "raw", source=row)

    def adopt(self: Any, parent: Any) -> None:
        """What a sub-run takes from the run it belongs to."""

    def sub_listener(self: Any) -> Any:
        if self.listener is None:
            return None
        return lambda e: self.listener(e) if isinstance(e, trace.ModelCall) else None

    # -- events
    def emit_event(self: Any, event: Any) -> None:
        if self.listener is not None:
            self.listener(event)

    def grew(self: Any, tree: Tree, node: int, edge: Any) -> None:
        if self.listener is None:
            return
        if isinstance(edge, Edit):
            drawn = isinstance(edge.value, Draw)
            score = float(edge.value.source.face("raw")[edge.token]) if drawn else 1.0
            label = edge.value.source.label if drawn else ""
            self.emit_event(trace.Drafted(node, tree.nodes[node].parent, edge.token, score, label or "point"))
        if not isinstance(edge, Draw):
            return
        self.emit_event(
            trace.Drafted(
                node,
                tree.nodes[node].parent,
                edge.token,
                float(edge.source.face("raw")[edge.token]),
                edge.source.label or "point",
            )
        )

    def pruned(self: Any, before: Tree, kept: Sequence[int]) -> None:
        """A tree was cut to those of its nodes, the root among them."""
        gone = set(range(1, len(before))) - set(kept)
        self.emit_event(trace.Pruned(tuple(kept), sum(isinstance(before.nodes[n].edge, Draw) for n in gone)))

    def unmasked(self: Any, c: Canvas, positions: list[int], values: list[Any]) -> None:
        self.decided += len(positions)
        if self.listener is None:
            return
        for i, v in zip(positions, values):
            token = edge_token(v)
            score = float(v.source.face("raw")[token]) if isinstance(v, Draw) else 1.0
            self.emit_event(trace.Unmasked(i, token, score))

    def masked_again(self: Any, c: Canvas, positions: list[int]) -> None:
        for i in positions:
            self.emit_event(trace.Remasked(i))

    def level_field(self: Any, level: Level, field: str) -> Any:
        if isinstance(level, Topology):
            return level.width
        v = getattr(level, field)
        return np.array(v, dtype=np.int64) if isinstance(v, tuple) else v
