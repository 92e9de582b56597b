"""Indexes, automata, externs and the batch, as the reference runs them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from decgraph.backends.reference.values import Asked, Lru, Suffixes
from decgraph.errors import DecError
from decgraph.ir.data.dist import Draw, Draws, Path, resolve_path, tokens_of
from decgraph.ir.ops.draws import pad, point


def ids_of(x: Any) -> tuple[int, ...]:
    """Token ids of a vector, a path or a context."""
    if isinstance(x, tuple):
        return resolve_path(x)
    if isinstance(x, Path):
        return resolve_path(x.tokens)
    if isinstance(x, list):
        return tuple(int(tokens_of(i)) for i in x)
    return tuple(int(t) for t in np.ravel(np.asarray(tokens_of(x))))


class Stores:
    """The part of the machine that keeps indexes and talks to the host."""

    def new_index(self: Any, op: Any, sizes: Sequence[Any]) -> Any:
        kind = op.attrs["kind"]
        n = int(sizes[0]) if sizes else 0
        return Lru(n or 1) if kind == "lru" else Suffixes(n or 64)

    def ask(self: Any, op: Any, index: Any, args: Sequence[Any]) -> Any:
        what = op.attrs["what"]
        named = op.attrs.get("named", ())
        options = dict(zip(named, args[len(args) - len(named) :]))
        plain = args[: len(args) - len(named)]
        if what == "get":
            return [np.array(e, dtype=np.int64) for e in index.get(int(tokens_of(plain[0])))]
        if what == "has":
            return index.find(ids_of(plain[0]), "last") is not None
        if what == "after":
            return Asked(index, self.context_key(plain[0]))
        if what == "path":
            found = index.path(
                ids_of(plain[0]),
                int(options.get("at_least", 1)),
                int(options.get("at_most", 16)),
                str(options.get("pick", "last")),
            )
            return Draws(pad([[point(self, t, tag="index") for t in found]], (), len(found)))
        if what == "score":
            ids = ids_of(plain[0])
            counts: dict[int, int] = {}
            for n in range(min(len(ids), index.depth), -1, -1):
                counts = index.counts(ids[len(ids) - n :])
                if counts:
                    break
            total = sum(counts.values())
            return self.reals([self.num.const(Fraction(counts.get(v, 0), total or 1)) for v in range(self.vocab_size)])
        raise DecError(f"an index cannot be asked for `{what}`")

    def context_key(self: Any, m: Any) -> tuple[int, ...]:
        if np.ndim(m) == 0 and not isinstance(m, (tuple, Path, Draws)):
            tokens = resolve_path(self.context())
            return tokens[-int(m) :] if int(m) > 0 else ()
        return ids_of(m)

    def learn(self: Any, op: Any, index: Any, args: Sequence[Any]) -> Any:
        if isinstance(index, Lru):
            return index.store(int(tokens_of(args[0])), ids_of(args[1]))
        return index.learn(ids_of(args[0]))

    def learn_committed(self: Any, tokens: Sequence[int]) -> None:
        """Indexes learn on commit: what a request's text continues with."""
        if not tokens:
            return
        for s in self.function.states:
            if s.type.elem == "index" and s.type.of[0] in ("suffixes", "ngrams"):
                value = self.read_state(s.name)
                if s.scope == "sequence":
                    self.write_state(s.name, value.extend(tokens))
                else:
                    key = ("learning", self.function.name, s.name, self.request.request_id)
                    started = self.own.get(key)
                    self.write_state(s.name, value.extend(tokens) if started else value.learn(tokens))
                    self.own[key] = True

    def best_first(self: Any, asked: Asked, size: int, above: Any) -> Path:
        """The `size` likeliest continuations by the index's counts, as one tree is grown: here its best path."""
        heap: list[tuple[float, tuple[int, ...]]] = [(-1.0, ())]
        best: tuple[int, ...] = ()
        seen = 0
        while heap and seen < size:
            score, path = heapq.heappop(heap)
            if path:
                seen += 1
                best = max(best, path, key=len)
            counts = asked.index.counts(asked.key + path)
            total = sum(counts.values())
            for t, c in sorted(counts.items()):
                p = -score * c / total
                if p >= float(above):
                    heapq.heappush(heap, (-p, (*path, t)))
        return Path([point(self, t, tag="index") for t in best])

    def automaton(self: Any, op: Any, g: Any, args: Sequence[Any]) -> Any:
        what = op.attrs["what"]
        if what == "start":
            return g.start
        if what == "step":
            state, token = args
            if isinstance(state, np.ndarray) and state.ndim:
                toks = np.ravel(np.asarray(tokens_of(token)))
                out = np.empty(len(state), dtype=object)
                out[:] = [g.step(s, int(t)) for s, t in zip(state, toks)]
                return out
            return g.step(state, int(np.ravel(np.asarray(tokens_of(token)))[0]))
        if what == "state":
            s = g.start
            for t in resolve_path(args[0])[self.base :]:
                s = g.step(s, t)
            return s
        if what == "run":
            s = args[0]
            for t in ids_of(args[1]):
                s = g.step(s, t)
            return s
        if what == "allowed":

            def mask(s: Any) -> np.ndarray:
                out = np.zeros(self.vocab_size, dtype=bool)
                out[[int(t) for t in g.allowed(s)]] = True
                return out

            if isinstance(args[0], np.ndarray) and args[0].ndim:
                return np.stack([mask(s) for s in args[0]])
            return mask(args[0])
        raise DecError(f"an automaton cannot be asked for `{what}`")

    def extern(self: Any, op: Any, args: Sequence[Any]) -> Any:
        """Call what the caller handed over, once per distinct arguments."""
        name = op.attrs["extern"]
        f = self.externs.get(name)
        if f is None:
            raise DecError(f"the program needs the function `{name}`", hint=f"hand it over: externs={{{name!r}: f}}")
        vector = next((a for a in args if isinstance(a, (list, np.ndarray)) and np.ndim(a)), None)
        if vector is not None:
            return np.array(
                [self.extern_once(name, f, tuple(a[i] if a is vector else a for a in args)) for i in range(len(vector))]
            )
        return self.extern_once(name, f, tuple(args))

    def extern_once(self: Any, name: str, f: Any, args: tuple[Any, ...]) -> Any:
        key = ("extern", name, tuple(str(a) for a in args))
        if key not in self.memo:
            try:
                self.memo[key] = f(*args)
            except Exception as error:  # the caller's function: whatever it raises is the caller's to read
                raise DecError(f"`{name}` raised {type(error).__name__}: {error}") from error
        return self.memo[key]

    def batch_top(self: Any, op: Any, x: Any, k: Any, by: Sequence[Any]) -> Any:
        """Alone, a batch of one: the k best of this sequence."""
        from decgraph.ir.table import lookup

        return lookup("select.top").meaning(self, op, x, k, *by)[0]

    def text(self: Any, x: Any, tree: Any) -> Any:
        """The text of tokens, or of nodes' paths."""
        if self.detokenizer is None:
            raise DecError("this program reads text, and no tokenizer was given")
        if tree is not None:
            ids = np.asarray(x)
            texts = [self.detokenizer.text(ids_of(Path(tree.path_edges(int(i))))) for i in ids.ravel()]
            return texts if ids.ndim else texts[0]
        return self.detokenizer.text(ids_of(x))

    def host(self: Any, what: str, *args: Any) -> Any:
        raise DecError(f"the reference cannot `{what}` with this model", hint="table models keep their states to themselves")


__all__ = ["Draw", "Stores"]
