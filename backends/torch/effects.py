"""Side effects in the torch machine: commits, the stop machine, states, sub-runs, events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from decgraph.backends.run import Run, Stop
from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.torch.draws import Mixed, TorchDraws
from decgraph.backends.torch.prefixes import CommittedText
from decgraph.backends.torch.stores import ids_of
from decgraph.backends.torch.trees import Context, TorchPath, TorchTree, path_of
from decgraph.errors import DecError
from decgraph.ir.opdef import OpError
from decgraph.runtime import trace
from decgraph.runtime.stop import StopMachine, StopState
from decgraph.runtime.trace import Stats, Tally


class Effects(Run):
    """Effects of a run."""

    counts = True

    def start_run(self) -> None:
        super().start_run()
        self.marks: list[int] = [-1] * len(self.tokens)
        """For every token of the context the id of the tree node it came from, or -1."""
        # Without stop strings and conditions of the caller the stop machine only counts tokens and finds ends: it is run when
        # it may fire, and its state is computed when it is read.
        self.counts_only = not self.request.stop and not self.request.until
        self.tally = Tally()
        self.text = CommittedText(self.tokens, self.request.begins)
        self.syncs = 0
        """Device-to-host synchronisations of the run; see transfer.py."""

    def waited(self, copy: Callable[[], Any]) -> Any:
        """What a copy from a device gives, which waits for it."""
        return copy()

    def host(self, what: str, *args: Any) -> Any:
        """A layer of a canvas's memory, a memory with one replaced, or what its queries look at. Raises OpError for others."""
        if what in ("layer", "put", "scores") and hasattr(args[0], what):
            found = getattr(args[0], what)
            return np.array(found(*args[1:]), np.float64) if what == "scores" else found(*args[1:-1], int(args[-1]))
        raise OpError(
            f"the torch backend cannot read `{what}` of a model",
            "models expose distributions, memories and canvases' memories restricted to positions, but no layers",
        )

    # -- context and commits
    def context(self, parent: bool = False) -> Context:
        return Context(self.tokens, len(self.tokens) - parent)

    @property
    def stop_state(self) -> StopState:
        """The state of the stop machine."""
        if self._stop.count != len(self.tokens) - self.base:
            self._stop = replace(self._stop, count=len(self.tokens) - self.base)
        return self._stop

    @stop_state.setter
    def stop_state(self, state: StopState) -> None:
        self._stop = state

    def feed(self, token: int) -> None:
        """Commit one token."""
        self.tokens.append(token)
        count = len(self.tokens) - self.base
        if not self.counts_only or token in self.request.eos or count >= self.request.max_tokens:
            state = self._stop if self._stop.count == count - 1 else replace(self._stop, count=count - 1)
            self._stop = StopMachine.feed(state, token)

    def done(self) -> bool:
        return bool(self._stop.done) or (self.window is not None and len(self.tokens) > self.window)

    def commit(self, x: Any, tree: Any = None) -> None:
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
            raise Stop

    def commit_tokens(self, x: Any, tree: Any) -> tuple[Sequence[int], Sequence[int]]:
        """What a commit commits: tokens, and the tree node each came from (-1: none). Raises DecError for a whole tree."""
        if isinstance(x, TorchPath):
            return x.tokens, x.uids or (-1,) * len(x.tokens)
        if isinstance(x, TorchTree):
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

    def returned(self, values: Sequence[Any], has_tree: bool) -> None:
        """n-best results: paths of tokens."""
        values = list(values)
        tree = values.pop() if has_tree else None
        for v in values:
            if tree is not None and not isinstance(v, TorchPath | list):
                self.results += [path_of(tree, int(n)).tokens for n in np.ravel(np.asarray(v))]
            elif isinstance(v, list):
                self.results += [tuple(self.commit_tokens(p, None)[0]) for p in v]
            else:
                self.results.append(tuple(self.commit_tokens(v, None)[0]))

    def ended(self, x: Any, tree: Any = None) -> Any:
        """The stop machine along a path from the committed context."""

        def fires(tokens: Sequence[int]) -> bool:
            state = self.stop_state
            for t in tokens:
                if state.done:
                    return True
                state = StopMachine.feed(state, int(t))
            return bool(state.done) or (self.window is not None and len(self.tokens) + len(tokens) > self.window)

        if isinstance(x, TorchPath):
            return fires(x.tokens)
        if isinstance(x, Context):
            return fires(x.ids()[len(self.tokens) :])
        if tree is not None:
            ids = np.asarray(x)
            if ids.ndim == 0:
                return fires(path_of(tree, int(ids)).tokens)
            return np.array([fires(path_of(tree, int(i)).tokens) for i in ids], dtype=bool)
        return fires(self.commit_tokens(x, None)[0])

    def request_field(self, field: str) -> Any:
        r = self.request
        if field == "prompt":
            return np.array(r.prompt, dtype=np.int64)
        if field == "limit":
            return r.max_tokens
        if field == "room":
            return r.max_tokens - self.committed()
        if field == "greedy":
            return r.greedy
        if field == "mask":
            return self.mask_token
        if field == "eos" and not r.eos:
            raise OpError("the request has no end token", "ask before: if eos >= 0; x == eos is never true without one")
        return min(r.eos, default=-1 if field == "eos_or_none" else 0)

    def room(self, tree: TorchTree) -> int:
        """How deep a tree may grow."""
        window = None if self.window is None else self.window + tree.unread
        ends = [n for n in (window, tree.extent) if n is not None]
        return int(min(ends)) - tree.base.length if ends else 1 << 30

    def full(self, tree: TorchTree | None, which: str) -> bool:
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

    def bounds(self, until: Sequence[str]) -> tuple[int | None, frozenset[int]]:
        """The longest text that a tree drafts, with the prompt, and the tokens below which it drafts nothing (attribute until
        of tree.new)."""
        place = "place" in until or ("greedy place" in until and self.request.greedy)
        return (
            self.base + self.request.max_tokens - place if "limit" in until else None,
            frozenset(self.request.eos) if "ends" in until else frozenset(),
        )

    def canvas_room(self) -> int:
        left = self.request.max_tokens - self.committed()
        return max(0, left if self.window is None else min(left, self.window - len(self.tokens)))

    def finish(self) -> None:
        super().finish()
        self.tally.stopped = self.reason

    def end_draft(self, event: trace.DraftEnded) -> None:
        self.tally.errors[event.error] = self.tally.errors.get(event.error, 0) + 1
        super().end_draft(event)

    def stats(self) -> Stats:
        """The statistics of the run."""
        return self.tally.stats()

    # -- events
    def grew(self, tree: TorchTree, ids: Any, draws: Any, places: Any) -> None:
        if self.listener is None:
            return
        scores, probs = draws.prob(), draws.law_prob(self.request, self.vocab_size)  # of the whole growth at once
        mixed = isinstance(draws, Mixed)
        for n, i in zip(ids.tolist(), places.tolist()):
            drawn = draws.items[i] if mixed else draws
            self.emit_event(
                trace.Drafted(
                    n,
                    int(tree.parent[n]),
                    int(tree.token[n]),
                    float(probs[i]),
                    (drawn.rows.label if drawn.rows is not None else "") or "point",
                    float(scores[i]),
                    not drawn.point,
                )
            )

    def grew_edits(self, tree: TorchTree, ids: Any) -> None:
        """The events of edits that were drafted."""
        for n in ids.tolist():
            value, parent, token = tree.edges[n].value, int(tree.parent[n]), int(tree.token[n])
            if not isinstance(value, TorchDraws):
                self.emit_event(trace.Drafted(n, parent, token, 1.0, "point", drawn=False))
                continue
            label = value.rows.label if value.rows is not None else ""
            prob = float(value.law_prob(self.request, self.vocab_size))
            self.emit_event(trace.Drafted(n, parent, token, prob, label or "point", float(value.prob()), not value.point))

    def columns_of(self, tree: TorchTree) -> Mapping[str, Sequence[Any]]:
        return {**tree.columns, "logprob": tree.logprobs().tolist()}

    def pruned(self, before: TorchTree, kept: Sequence[int]) -> None:
        """A tree was cut to those of its nodes, the root among them."""
        dropped = len(before) - len(kept)
        if len(before.edges) > 1:  # some of its nodes are no draws
            dropped = sum(before.edges[n] is None for n in set(range(len(before))) - set(kept))
        self.tally.drafted -= dropped
        if self.listener is not None:
            self.emit_event(trace.Pruned(tuple(kept), dropped))

    def unmasked(self, positions: Sequence[int], tokens: Sequence[int], draws: Any) -> None:
        self.decided += len(positions)
        self.tally.unmasked += len(positions)
        if self.listener is None:
            return
        for n, (i, t) in enumerate(zip(positions, tokens)):
            d = None if draws is None else draws.pick(n) if draws.shape else draws
            self.emit_event(trace.Unmasked(int(i), int(t), 1.0 if d is None else float(d.prob())))

    def masked_again(self, positions: Sequence[int]) -> None:
        self.tally.remasked += len(positions)
        for i in positions:
            self.emit_event(trace.Remasked(int(i)))

    def level_field(self, level: Any, field: str) -> Any:
        v = getattr(level, field)
        return np.array(v, dtype=np.int64) if isinstance(v, tuple) else v
