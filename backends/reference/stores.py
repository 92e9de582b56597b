"""Indexes, automata, externs and the batch, as the reference runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import cast

import numpy as np

from decgraph.backends import automata
from decgraph.backends.automata import ids_of
from decgraph.backends.indexes import ROOM, Continuations, Lru
from decgraph.backends.reference.calls import model_of
from decgraph.backends.reference.protocols import Machine
from decgraph.backends.reference.together import A, B
from decgraph.backends.reference.values import ReferenceMemory, SuffixSearch
from decgraph.errors import DecError
from decgraph.ir import machine
from decgraph.ir.data.dist import Draws, Path, resolve_path
from decgraph.ir.data.tree import Tree
from decgraph.ir.machine import Datum, Index, Table, Vector
from decgraph.ir.ops.common import as_int, plain
from decgraph.ir.ops.draws import pad, point
from decgraph.ir.ops.host import folded, shares
from decgraph.ir.ops.selection import ranked
from decgraph.ir.table import lookup
from decgraph.ir.values import Op
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.models.speaking import spelling_of
from decgraph.runtime.models.spelling import retokenized


def new_index(m: Machine, op: Op, sizes: Sequence[Datum]) -> Index:
    """An empty index."""
    kind = op.attrs["kind"]
    n = as_int(sizes[0]) if sizes else 0
    return Lru(n or 1) if kind == "lru" else SuffixSearch(n or 64, as_int(sizes[1]) if len(sizes) > 1 else ROOM)


def ask(m: Machine, op: Op, index: Index, args: Sequence[Datum]) -> Datum:
    """Query an index; see the op index.ask. Raises DecError for a query that the index does not have."""
    what = op.attrs["what"]
    named = op.attrs.get("named", ())
    options = dict(zip(named, args[len(args) - len(named) :]))
    key = args[0]
    if isinstance(index, Table):
        if what == "get":
            return [np.array(e, dtype=np.int64) for e in index.get(as_int(key))]
        raise DecError(f"an index has no `{what}`")
    if what == "has":
        return index.has(ids_of(key))
    if what == "matched":
        return index.matched(ids_of(key))
    if what == "after":
        most = options.get("at_most")
        return Continuations(index, context_key(m, key), as_int(most) if most is not None else None)
    if what == "path":
        found = index.path(
            ids_of(key),
            as_int(options.get("at_least", 1)),
            as_int(options.get("at_most", 16)),
            str(options.get("pick", "last")),
        )
        return Draws(pad([[point(m, t, tag="index") for t in found]], (), len(found)))
    if what == "score":
        ids = ids_of(key)
        counts: dict[int, int] = {}
        for n in range(min(len(ids), index.depth), -1, -1):
            counts = index.counts(ids[len(ids) - n :])
            if counts:
                break
        total = sum(counts.values())
        return m.reals([m.num.const(Fraction(counts.get(v, 0), total or 1)) for v in range(m.vocab_size)])
    raise DecError(f"an index has no `{what}`")


def context_key(m: Machine, key: Datum) -> tuple[int, ...]:
    """The tokens that an index is looked up by: those given, or so many of the context's last."""
    if np.ndim(np.asarray(key)) == 0 and not isinstance(key, tuple | Path | Draws):
        n, tokens = as_int(key), resolve_path(m.context())
        return tokens[-n:] if n > 0 else ()
    return ids_of(key)


def learn(m: Machine, op: Op, index: Index, args: Sequence[Datum]) -> Index:
    """An index that has also seen this."""
    return index.store(as_int(args[0]), ids_of(args[1])) if isinstance(index, Table) else index.learn(ids_of(args[0]))


def automaton(m: Machine, op: Op, g: machine.Automaton, args: Sequence[Datum]) -> Datum:
    """Query an automaton; see the op automaton."""
    return automata.ask(op.attrs["what"], cast(Automaton, g), args, base=m.base, vocab_size=m.vocab_size)


# -- the batch
def meet(m: Machine, op: Op, mine: A, of_all: Callable[[list[A]], list[B]]) -> B:
    """This sequence's part of what `of_all` makes of the values of all that come to an op; alone, a batch of one."""
    meeting = m.whole.meeting
    if meeting is None:
        return of_all([mine])[0]
    return meeting(f"{m.function.name}:{op.loc.line}:{op.loc.column}", mine, of_all)


def batch_top(m: Machine, op: Op, x: Vector | Draws, k: Datum, by: Sequence[Datum]) -> Datum:
    """Of the candidates of all sequences, those among the k best that are this one's."""
    best = [keys for _, keys in ranked(m, x, by)[: max(0, as_int(k))]]
    found: Datum = lookup("select.top").meaning(m, op, x, m.meet(op, (best, as_int(k)), shares), *by)[0]
    return found


def batch_fold(m: Machine, op: Op, x: Datum) -> Datum:
    """One number of each sequence, folded."""
    found: Datum = m.meet(op, plain(x), partial(folded, op.attrs["fn"]))
    return found


# -- the host
def text(m: Machine, x: Datum, tree: Tree | None) -> str | list[str]:
    """The text of tokens, or of nodes' paths. Raises DecError without a tokenizer."""
    if m.detokenizer is None:
        raise DecError("this program reads text, and no tokenizer was given")
    if tree is None:
        return m.detokenizer.text(ids_of(x))
    ids = np.asarray(x)
    texts = [m.detokenizer.text(ids_of(Path(tree.tokens(int(i))))) for i in ids.ravel()]
    return texts if ids.ndim else texts[0]


def retokenize(m: Machine, tokens: Datum, source: machine.Model, to: machine.Model, *, whole: bool) -> tuple[int, ...]:
    """The meaning of `retokenize`."""
    return retokenized(ids_of(tokens), spelling_of(model_of(source)), spelling_of(model_of(to)), whole=whole)


def host(m: Machine, what: str, *args: Datum) -> Datum:
    """A layer of a memory, a memory with one replaced, or what its queries look at. Raises DecError for others."""
    memory: object = args[0]
    if isinstance(memory, ReferenceMemory):
        if what == "layer":
            return memory.layer(as_int(args[1]))
        if what == "put":
            return memory.put(cast(machine.Memory, args[1]), as_int(args[2]))
        if what == "scores":
            return m.reals(memory.scores(args[1], args[2]))
    raise DecError(f"the reference cannot `{what}` with this model", hint="table models do not expose their states")
