"""Side effects: commits, the stop machine, states, sub-runs, events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from decgraph.backends.reference.calls import Calls
from decgraph.backends.run import Stop
from decgraph.errors import DecError
from decgraph.ir.data.canvas import Canvas, Edit
from decgraph.ir.data.dist import Draw, Draws, Path, resolve_path
from decgraph.ir.data.topology import Level, Topology
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.values import Op
from decgraph.runtime import trace
from decgraph.runtime.stop import StopMachine


class Effects(Calls):
    """Effects of a run."""

    # -- commits
    def commit(self, op: Op, x: Any, tree: Any) -> None:
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
            raise Stop

    def commit_tokens(self, x: Any, tree: Any) -> list[Any]:
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
            return list(tree.path_edges(int(x)))
        if isinstance(x, list):
            return [t for part in x for t in self.commit_tokens(part, None)]
        return [int(t) for t in np.ravel(np.asarray(x))]

    def returned(self, op: Op, values: Sequence[Any]) -> None:
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

    def ended(self, x: Any, tree: Any) -> Any:
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

    def fits(self, tree: Tree, parent: int) -> bool:
        """Whether a node under `parent` can be of use: inside the context window, before the tree's end, not after an end
        token."""
        if not isinstance(tree.base, tuple):
            return True
        longest = len(tree.base) + tree.nodes[parent].depth + 1
        window = None if self.window is None else self.window + tree.unread
        inside = all(n is None or longest <= n for n in (window, tree.extent))
        return inside and not (parent != 0 and tree.closes and edge_token(tree.nodes[parent].edge) in tree.closes)

    def full(self, tree: Tree | None, which: str) -> bool:
        """Whether nothing fits under the leaves, the frontier or the new nodes of a tree."""
        if tree is None:
            return False
        nodes = tree.leaves() if which == "leaves" else getattr(tree, which)
        return not any(self.fits(tree, int(n)) for n in nodes)

    def last_token(self, tree: Tree) -> int:
        if isinstance(tree.base, tuple) and tree.base:
            return resolve_path(tree.base[-1:])[0]
        return 0

    def root_draw(self, tree: Tree) -> Draw:
        from decgraph.ir.ops.draws import point

        return point(self, self.last_token(tree))

    def add_log(self, logprob: Any, edge: Any) -> Any:
        """A node's cumulative log-probability: its parent's and its token's, under the raw distribution it was drawn from."""
        if not isinstance(edge, Draw):
            inner = edge.value if isinstance(edge, Edit) else None
            return self.lazy_log(logprob, inner) if isinstance(inner, Draw) else logprob
        return self.lazy_log(logprob, edge)

    def lazy_log(self, logprob: Any, edge: Draw) -> Any:
        p = edge.source.face("raw")[edge.token]
        return logprob + float(np.log(p)) if p > 0 else -np.inf

    # -- sub-runs
    def sub_run(self, op: Op, start: Any, bound: int, args: dict[str, Any], tree: Any, counters: Sequence[Any]) -> Path:
        """Run another function on a scratch context until its condition holds."""
        if isinstance(start, tuple):
            base = resolve_path(start)
        else:
            base = self.context()
            for e in tree.path_edges(int(start)):
                base += tuple(e.tokens) if isinstance(e, Path) else (e,)
            base = resolve_path(base)
        sub = self.inner_run(op.attrs["callee"], op.attrs["site"], base, bound, args, counters)
        sub.adopt(self)

        def until(m: Any) -> bool:
            return bool(self.num.truth(self.region(op.regions[0], (Path(m.tokens[m.base :], base=m.base),))[0]))

        sub.until = until
        try:
            sub.run()
        except Stop:
            pass
        main = next(iter(sub.models.values()), None)
        tokens = [self.path_draw(main, tuple(sub.tokens[: sub.base + i]), t) for i, t in enumerate(sub.tokens[sub.base :])]
        return Path(tokens, base=len(base))

    def path_draw(self, model: Any, path: tuple[Any, ...], token: Any) -> Any:
        """A token of a sub-run, with its raw probability under the model that drew it, computed only when read."""
        row = self.model_row(model, lambda: model.eval([resolve_path(path)], None)[0], path, None, None)
        return Draw(int(token), row, "raw", source=row)

    def adopt(self, parent: Any) -> None:
        """Take what a sub-run shares with the run it belongs to."""

    def grew(self, tree: Tree, node: int, edge: Any) -> None:
        if self.listener is None:
            return
        draw = edge.value if isinstance(edge, Edit) else edge
        if not isinstance(draw, Draw):
            if isinstance(edge, Edit):
                self.emit_event(trace.Drafted(node, tree.nodes[node].parent, edge.token, 1.0, "point", drawn=False))
            return
        self.emit_event(
            trace.Drafted(
                node,
                tree.nodes[node].parent,
                draw.token,
                float(draw.law_vector()[draw.token]),
                draw.source.label or "point",
                float(draw.source.face("raw")[draw.token]),
                not draw.point,
            )
        )

    def columns_of(self, tree: Tree) -> Mapping[str, Sequence[Any]]:
        names = dict.fromkeys(name for node in tree.nodes for name in node.columns)
        return {
            **{name: [node.columns.get(name) for node in tree.nodes] for name in names},
            "logprob": [node.logprob for node in tree.nodes],
        }

    def pruned(self, before: Tree, kept: Sequence[int]) -> None:
        """A tree was cut to those of its nodes, the root among them."""
        gone = set(range(1, len(before))) - set(kept)
        self.emit_event(trace.Pruned(tuple(kept), sum(isinstance(before.nodes[n].edge, Draw) for n in gone)))

    def unmasked(self, c: Canvas, positions: list[int], values: list[Any]) -> None:
        self.decided += len(positions)
        if self.recorder is not None:
            self.recorder.canvas(len(c.base), len(c))
        if self.listener is None:
            return
        for i, v in zip(positions, values):
            token = edge_token(v)
            score = float(v.source.face("raw")[token]) if isinstance(v, Draw) else 1.0
            self.emit_event(trace.Unmasked(i, token, score))

    def masked_again(self, c: Canvas, positions: list[int]) -> None:
        if self.recorder is not None:
            self.recorder.canvas(len(c.base), len(c))
        for i in positions:
            self.emit_event(trace.Remasked(i))

    def level_field(self, level: Level, field: str) -> Any:
        if isinstance(level, Topology):
            return level.width
        v = getattr(level, field)
        return np.array(v, dtype=np.int64) if isinstance(v, tuple) else v
