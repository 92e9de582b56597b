"""Indexes, automata, externs and the batch, as the reference runs them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from decgraph.backends import automata
from decgraph.backends.automata import ids_of
from decgraph.backends.indexes import ROOM, Continuations, Lru
from decgraph.backends.reference.effects import Effects
from decgraph.backends.reference.together import Meeting
from decgraph.backends.reference.values import Suffixes
from decgraph.errors import DecError
from decgraph.ir.data.dist import Draws, Path, resolve_path, tokens_of
from decgraph.ir.ops.common import as_int, plain
from decgraph.ir.ops.draws import pad, point
from decgraph.ir.ops.host import folded, shares
from decgraph.ir.ops.selection import ranked
from decgraph.ir.table import lookup
from decgraph.ir.values import Op
from decgraph.runtime.models.spelling import retokenized
from decgraph.runtime.models.vocabularies import spelling_of


class Stores(Effects):
    """Indexes, automata, the batch and texts in a run."""

    def new_index(self, op: Op, sizes: Sequence[Any]) -> Any:
        kind = op.attrs["kind"]
        n = int(sizes[0]) if sizes else 0
        return Lru(n or 1) if kind == "lru" else Suffixes(n or 64, int(sizes[1]) if len(sizes) > 1 else ROOM)

    def ask(self, op: Op, index: Any, args: Sequence[Any]) -> Any:
        what = op.attrs["what"]
        named = op.attrs.get("named", ())
        options = dict(zip(named, args[len(args) - len(named) :]))
        plain = args[: len(args) - len(named)]
        if what == "get":
            return [np.array(e, dtype=np.int64) for e in index.get(int(tokens_of(plain[0])))]
        if what == "has":
            return index.has(ids_of(plain[0]))
        if what == "matched":
            return index.matched(ids_of(plain[0]))
        if what == "after":
            return Continuations(index, self.context_key(plain[0]), options.get("at_most") and int(options["at_most"]))
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
        raise DecError(f"an index has no `{what}`")

    def context_key(self, m: Any) -> tuple[int, ...]:
        if np.ndim(m) == 0 and not isinstance(m, (tuple, Path, Draws)):
            tokens = resolve_path(self.context())
            return tokens[-int(m) :] if int(m) > 0 else ()
        return ids_of(m)

    def learn(self, op: Op, index: Any, args: Sequence[Any]) -> Any:
        if isinstance(index, Lru):
            return index.store(int(tokens_of(args[0])), ids_of(args[1]))
        return index.learn(ids_of(args[0]))

    def best_first(self, asked: Continuations, size: int, above: Any) -> Path:
        """The `size` likeliest continuations by the index's counts, as one tree is grown: here its best path."""
        heap: list[tuple[float, tuple[int, ...]]] = [(-1.0, ())]
        best: tuple[int, ...] = ()
        seen = 0
        while heap and seen < size:
            score, path = heapq.heappop(heap)
            if path:
                seen += 1
                best = max(best, path, key=len)
            counts = asked.counts(path)
            total = asked.total(path)
            for t, c in sorted(counts.items()):
                p = -score * c / total
                if p >= float(above):
                    heapq.heappush(heap, (-p, (*path, t)))
        return Path([point(self, t, tag="index") for t in best])

    def automaton(self, op: Op, g: Any, args: Sequence[Any]) -> Any:
        """Query an automaton; see the op automaton."""
        return automata.ask(op.attrs["what"], g, args, base=self.base, vocab_size=self.vocab_size)

    meeting: Meeting | None = None
    """Where the sequences of a batch wait for one another (together.py); None: this one is alone."""

    def meet(self, op: Op, mine: Any, of_all: Callable[[list[Any]], list[Any]]) -> Any:
        """This sequence's part of what `of_all` makes of the values of all that come to an op; alone, a batch of one."""
        outer: Any = self
        while outer.parent is not None:
            outer = outer.parent
        if outer.meeting is None:
            return of_all([mine])[0]
        return outer.meeting(f"{self.function.name}:{op.loc.line}:{op.loc.column}", mine, of_all)

    def batch_top(self, op: Op, x: Any, k: Any, by: Sequence[Any]) -> Any:
        """Of the candidates of all sequences, those among the k best that are this one's."""
        best = [keys for _, keys in ranked(self, x, by)[: max(0, as_int(k))]]
        return lookup("select.top").meaning(self, op, x, self.meet(op, (best, as_int(k)), shares), *by)[0]

    def batch_fold(self, op: Op, x: Any) -> Any:
        """One number of each sequence, folded."""
        return self.meet(op, plain(x), partial(folded, op.attrs["fn"]))

    def text(self, x: Any, tree: Any) -> Any:
        """The text of tokens, or of nodes' paths. Raises DecError without a tokenizer."""
        if self.detokenizer is None:
            raise DecError("this program reads text, and no tokenizer was given")
        if tree is not None:
            ids = np.asarray(x)
            texts = [self.detokenizer.text(ids_of(Path(tree.path_edges(int(i))))) for i in ids.ravel()]
            return texts if ids.ndim else texts[0]
        return self.detokenizer.text(ids_of(x))

    def retokenize(self, tokens: Any, source: Any, to: Any, *, whole: bool) -> tuple[int, ...]:
        """The meaning of `retokenize`."""
        return retokenized(ids_of(tokens), spelling_of(source), spelling_of(to), whole=whole)

    def host(self, what: str, *args: Any) -> Any:
        """A layer of a memory, a memory with one replaced, or what its queries look at. Raises DecError for others."""
        if what in ("layer", "put", "scores") and hasattr(args[0], what):
            found = getattr(args[0], what)
            return self.reals(found(*args[1:])) if what == "scores" else found(*args[1:-1], int(args[-1]))
        raise DecError(f"the reference cannot `{what}` with this model", hint="table models do not expose their states")
