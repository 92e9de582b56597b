"""Model calls: pure functions of (memory, cells). The only ops that cost a forward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from decgraph.ir import facts, labels
from decgraph.ir.data.dist import Ints
from decgraph.ir.labels import Abs, Checker
from decgraph.ir.linear import at_least
from decgraph.ir.machine import Datum, Machine, Memory, Model
from decgraph.ir.opdef import TABLE, Attrs, Regions, Types, op
from decgraph.ir.ops.common import array, is_text, need, need_whole_memory, numeric
from decgraph.ir.types import Dim, Type
from decgraph.ir.values import Op


def _model(t: Type, what: str) -> Type:
    need(t.elem == "model", f"{what} needs a model, got {t}")
    return t


@op("model.eval")
class ModelEval:
    """Distributions of a model at a place: after a context, at nodes of a tree (place, then the tree), at positions of a
    canvas, or at every node and position of a tree of canvases. Attribute with: the names of the further operands, of
    "tree", "at" (positions), "given" (a memory), "allow" (tokens), "after" (the tokens that a canvas stands after in the place
    of the context; the request shapes the result as it does after the context), in this order; part: "heads" for Medusa's
    heads; drafts: the target's own drafts on a memory, which do not count as its calls (ir/drafting.py)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        model, place = types[0], types[1]
        _model(model, "a model call")
        extra = dict(zip(attrs.get("with", ()), types[2:]))
        kind, vocab = model.of[0], str(model.of[1])
        masked = kind == "masked"
        if "given" in extra:
            need_whole_memory(extra["given"], "given =")
        if "allow" in extra:
            allow = extra["allow"]
            need(
                allow.elem == "bool" and bool(allow.dims) and allow.dims[-1].kind == "vocab",
                f"allow = needs a condition for every token of the vocabulary, got {allow}",
                "allow = g.allowed(s), or a comparison of a distribution: allow = p.raw > 0.1",
            )
        if "after" in extra:
            need(
                masked and place.elem == "canvas" and "given" not in extra,
                f"after = is for a call that computes a whole canvas, got {place}",
                "model(c, after = other); another context of a causal model is its place: target(other ++ ctx)",
            )
            need(is_text(extra["after"]), f"a canvas stands after a vector of tokens, got {extra['after']}", "after = other")
        out = Type("dist", (vocab, "shaped"))
        need(
            kind == "masked" or "at" not in extra,
            "at = names positions of a canvas, and this model reads none",
            "call it at a context or at nodes: model(ctx), model(t.leaves)",
        )
        need(
            kind != "masked" or "allow" not in extra,
            "allow = restricts the next token, and a canvas has many",
            "put what must not be drawn to 0: x ~ p where ...",
        )
        if attrs.get("part") == "heads":
            need(place.elem == "node", f"heads are read at a node, got {place}")
            need("given" not in extra, "heads are read off the model's own last state, not off a memory", "leave out given =")
            return (out.with_dims(place.dims + (Dim("k", "", attrs.get("heads")),)),)
        if masked:
            need(
                place.elem in ("canvas", "tree"),
                f"a masked model is evaluated on a canvas, got {place}",
                "declare one with `canvas c: length` and call model(c)",
            )
            if place.elem == "tree":
                need(place.of[1] == "edit", "a masked model is evaluated on canvases; this is a tree of tokens")
            c = str(place.of[2 if place.elem == "tree" else 0])
            cells = Dim("cells", c)
            if "at" in extra:
                need(extra["at"].elem == "position", f"at = needs positions of the canvas, got {extra['at']}")
                cells = Dim("part", c, extra["at"].dims[0].bound if extra["at"].dims else 1)
            return (out.with_dims((Dim("nodes", str(place.of[0])), cells) if place.elem == "tree" else (cells,)),)
        need(
            place.elem in ("node", "tree"),
            f"a {kind} model is evaluated at a context or at nodes of a tree, got {place}",
            "say model(ctx), model(t) or model(t.leaves), or model(tokens) for a vector of tokens",
        )
        if kind == "features":
            need(
                "given" in extra,
                "a head that reads the target's features needs to be told where they come from",
                "say head(ns, given = target.memory(ctx.parent))",
            )
        if place.elem == "tree":
            need(place.of[1] != "step" or True, "")
            return (out.with_dims((Dim("nodes", str(place.of[0])),)),)
        return (out.with_dims(place.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, model: Model, place: Datum, *rest: Datum) -> tuple[Datum, ...]:
        return (m.evaluate(op, model, place, dict(zip(op.attrs.get("with", ()), rest))),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        place = c.of(op.operands[1])
        rest = frozenset().union(
            *(c.of(v).reads for v, n in zip(op.operands[2:], op.attrs.get("with", ()), strict=False) if n != "tree")
        )
        if op.operands[1].type.elem == "tree":
            return [Abs(rest, place.draws, column=True)]
        return [Abs(place.reads | rest)]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The model's distribution where nothing but its own memory of the very text is given."""
        given = dict(zip(op.attrs.get("with", ()), op.operands[2:]))
        model, place = k.of(op.operands[0]), k.of(op.operands[1])
        if not isinstance(model, facts.ModelIs) or op.attrs.get("part"):
            return None
        if op.operands[1].type.elem == "canvas":
            return facts.CellRows(model.name, op.operands[1], given.get("at")) if not given.keys() - {"at"} else None
        tree = k.of(given["tree"]) if "tree" in given else place  # nodes are looked up in the tree that is given
        version = tree.version if isinstance(tree, facts.Context | facts.Tree) else -1
        if given.keys() - {"tree", "given"} or not facts.remembers(k, model, given.get("given"), version):
            return None
        match place, tree:
            case (facts.Context(parent=False), _) | (facts.Nodes(which="root"), facts.Tree()):
                return facts.Row(model.name, version)
            case facts.Tree(), facts.Tree():
                return facts.Rows(model.name, tree.tree)
            case facts.Nodes(), facts.Tree():
                return facts.Rows(model.name, tree.tree, all=place.which == "all" and place.tree is tree.tree)
            case _, facts.Tree():
                return facts.CellRows(model.name, tree.tree, op.operands[1])
        return None

    attrs = ("with?", "part?", "heads?", "reuse?", "joint?", "drafts?")
    batch = "ragged"
    samples = (
        ("%z = model.eval(%target, %ctx)", ...),
        ("%z = model.eval(%target, %t)", ...),
        ('%z = model.eval(%target, %ns, %t, with = ("tree",))', ...),
        ('%z = model.eval(%head, %ctx, %mem, with = ("given",))', ...),
        ('%z = model.eval(%target, %ctx, part = "heads", heads = 4)', ...),
        ("%z = model.eval(%masked, %c)", ...),
        ('%z = model.eval(%masked, %c, %ps, with = ("at",))', ...),
        ('%z = model.eval(%masked, %c, %toks, with = ("after",))', ...),
    )
    refusals = (
        ("int, node<ctx>", "model"),
        ("model<masked,V,m,full>, node<ctx>", "canvas c: length"),
        ("model<features,V,m,causal>, node<ctx>", "given"),
        ("model<causal,V,m,causal>, int", "model(ctx)"),
        ("model<causal,V,m,causal>, node<ctx>, token<V>[k]", "target(other ++ ctx)", {"with": ("after",)}),
        ("model<masked,V,m,full>, canvas<c,V>, token<V>", "vector of tokens", {"with": ("after",)}),
    )


@op("model.read")
class ModelRead:
    """The distribution of a causal model after other tokens than the request's: a second context. Attribute each: after
    every one of the tokens. given: a memory of the tokens' beginning is the third operand. The request constrains and shapes
    the result as it does the token after the committed context."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        model, tokens = _model(types[0], "a model call"), types[1]
        need(
            model.of[0] == "causal",
            f"a {model.of[0]} model does not read a second context",
            "a causal model does: target(prompt ++ tokens)",
        )
        need(
            is_text(tokens),
            f"a second context is a vector of tokens, got {tokens}",
            "target(prompt ++ tokens), target(ctx.last(8))",
        )
        if attrs.get("given"):
            need_whole_memory(types[2], "given =")
        out = Type("dist", (str(model.of[1]), "shaped"))
        if not attrs.get("each"):
            return (out,)
        return (out.with_dims(tokens.dims or (Dim("k"),)),)

    @staticmethod
    def meaning(m: Machine, op: Op, model: Model, tokens: Datum, given: Memory | None = None) -> tuple[Datum, ...]:
        return (m.read_tokens(op, model, tokens, given),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """Of the committed text itself it is the model's distribution after the context."""
        model, text = (k.of(v) for v in op.operands[:2])
        whole = isinstance(text, facts.Piece) and k.sizes.is_context(text.start, text.end, k.version)
        if not isinstance(model, facts.ModelIs) or not whole or op.attrs.get("each"):
            return None
        given = op.operands[2] if op.attrs.get("given") else None
        return facts.Row(model.name, k.version) if facts.remembers(k, model, given, k.version) else None

    attrs = ("each?", "given?", "joint?")
    label, batch = labels.joined, "ragged"
    samples = (
        ("%z = model.read(%target, %toks)", ...),
        ("%z = model.read(%target, %path)", ...),
        ("%z = model.read(%target, %toks, each = true)", ...),
    )
    refusals = (
        ("int, token<V>[k]", "model"),
        ("model<features,V,m,causal>, token<V>[k]", "second context"),
        ("model<causal,V,m,causal>, token<V>", "vector of tokens"),
        ("model<causal,V,m,causal>, token<V>[k], int", "memory", {"given": True}),
    )


@op("model.memory")
class ModelMemory:
    """What a model computed up to a context or node, of other tokens, or on a canvas: K/V and features by layer and position,
    immutable. Attributes reuse and joint as in model.eval; queries: of a canvas that is computed whole, what memory.scores
    reads."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        model = _model(types[0], ".memory")
        place, names = types[1], attrs.get("with", ())
        text = is_text(place) and model.of[0] == "causal"
        need(
            place.elem in ("node", "canvas") or text,
            f"memory is of a context, a node, a vector of tokens or a canvas, got {place}",
        )
        need(
            not place.dims or text,
            f"memory is of one node, got {place}",
            "say target.memory(ctx.parent), or index one: target.memory(t.leaves[0])",
        )
        need(
            place.elem == "canvas" or "at" not in names,
            "at = names positions of a canvas; a memory of a context is of all of it",
            "keep some of its positions with .only(...)",
        )
        for name, t in zip(names, types[2:]):
            if name == "given":
                need_whole_memory(t, "given =")
            need(
                name != "at" or t.elem == "position" and len(t.dims) == 1,
                f"at = needs positions of the canvas, got {t}",
                "a block, or first(c.all, 1) for one of them",
            )
        need(
            not attrs.get("queries") or place.elem == "canvas" and not names,
            "queries are those of a call that computes a whole canvas",
            "m = model.memory(c, queries = yes)",
        )
        return (Type("memory", (model.of[2],)),)

    @staticmethod
    def meaning(m: Machine, op: Op, model: Model, place: Datum, *rest: Datum) -> tuple[Datum, ...]:
        more = {"queries": True} if op.attrs.get("queries") else {}
        return (m.memory(op, model, place, {**dict(zip(op.attrs.get("with", ()), rest)), **more}),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The model's own of a beginning of the text, computed whole or on its own of a beginning of that one."""
        model, place = (k.of(v) for v in op.operands[:2])
        given = dict(zip(op.attrs.get("with", ()), op.operands[2:]))
        if not isinstance(model, facts.ModelIs) or given.keys() - {"given"} or op.operands[0].type.of[0] != "causal":
            return None
        if not facts.remembers(k, model, given.get("given"), k.version):
            return None
        if isinstance(place, facts.Piece) and place.start == facts.NOTHING:
            short = k.sizes.context[k.version] - place.end
        elif isinstance(place, facts.Context) and place.version == k.version:
            short = facts.NOTHING + int(place.parent)
        else:
            return None
        before = k.of(given["given"]) if "given" in given else None
        if isinstance(before, facts.Memory) and short != facts.NOTHING:  # which may be the longer one
            ends = (
                None
                if before.short is None
                else (k.sizes.context[before.version] - before.short, k.sizes.context[k.version] - short)
            )
            return facts.Memory(
                model.name, k.version, short if ends is not None and k.sizes.proves(at_least(ends[1], ends[0])) else None
            )
        return facts.Memory(model.name, k.version, short)

    attrs = ("with?", "reuse?", "joint?", "queries?")
    label, batch = labels.joined, "ragged"
    samples = (
        ("%z = model.memory(%target, %ctx)", [0, 1, 2]),
        ("%z = model.memory(%target, %toks)", ...),
    )
    refusals = (("model<causal,V,m,causal>, int", "memory"),)


@op("model.derive")
class ModelDerive:
    """A model derived from another: attribute how, one of exit (its first n layers), skip (without the layers of a set or
    vector), upto (the states entering a layer), normed (those after the model's last
    norm), head (a trunk read with its norm and output), bare (with its output alone),
    since (its layers from a number on, and its head, over a trunk or a head's features), adapter (over a trunk), quantized
    (weights in n bits), expert (each mixture of experts is the one of rank n alone), parallel (in groups of n layers, whose
    attentions all read the state that enters the group), speaking (on the text of another model's tokens, over those that both
    have). named, with skip: which halves of a layer the operands are of, of "attention" and "mlp", in order; left out, one
    operand, of whole layers."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        base = _model(types[0], attrs["how"])
        how, given = attrs["how"], types[1:]
        if how == "skip":
            names = tuple(attrs.get("named", ())) or ("layers",)
            need(
                len(given) == len(names) and set(names) <= {"attention", "mlp"} or names == ("layers",) and len(given) == 1,
                "skip takes layers, or attention = and mlp =",
                "target.skip([1, 2]), target.skip(attention = [1], mlp = [2])",
            )
            for t in given:
                need(
                    t.elem == "set" or t.elem == "int" and len(t.dims) == 1,
                    f"skip needs layers, a set or a vector, got {t}",
                    "target.skip([1, 2]), or a parameter of type set",
                )
        elif how in ("exit", "upto", "normed", "quantized", "parallel", "expert"):
            need(
                len(given) == 1 and given[0].elem == "int" and not given[0].dims,
                f"{'upto' if how == 'normed' else how} needs one whole number, got {', '.join(map(str, given))}",
                "target.quantized(4)" if how == "quantized" else f"target.{'upto' if how == 'normed' else how}(2)",
            )
        kind, vocab, family, vis = base.of
        if how == "since":
            need(
                len(given) == 2 and given[0].elem == "int" and not given[0].dims and given[1].elem == "model",
                f"since needs a layer and states, got {', '.join(map(str, given))}",
                "target.since(2, adapter(target.upto(2)))",
            )
            need(
                given[1].of[0] in ("trunk", "features"),
                f"layers go on from states, got a {given[1].of[0]} model",
                "target.since(2, adapter(target.upto(2))), or a head: features(target)",
            )
            return (Type("model", ("causal", vocab, family, vis)),)
        if how == "adapter":
            up = _model(types[1], "an adapter's input")
            return (Type("model", ("trunk", up.of[1], up.of[2], up.of[3])),)
        if how in ("head", "bare"):
            need(
                types[1].elem == "model" and types[1].of[0] == "trunk",
                f"head needs a trunk of layers, got {f'a {types[1].of[0]} model' if types[1].elem == 'model' else types[1]}",
                "target.head(target.upto(2)), target.head(adapter(target.upto(2)))",
            )
            return (Type("model", ("causal", vocab, family, vis)),)
        if how in ("upto", "normed"):
            return (Type("model", ("trunk", vocab, family, vis)),)
        if how == "speaking":
            need(
                len(given) == 1 and given[0].elem == "model" and given[0].of[0] in ("causal", "masked"),
                f"speaking needs the model whose tokens are spoken, got {', '.join(map(str, given))}",
                "model small = drafter.speaking(target)",
            )
            need(kind == "causal", f"a {kind} model does not speak another vocabulary", "a causal model does")
            return (Type("model", (kind, given[0].of[1], f"{family}'", "causal")),)
        need(how in ("exit", "skip", "quantized", "parallel", "expert"), f"no derived model {how}")
        return (Type("model", (kind, vocab, family, vis)),)

    @staticmethod
    def meaning(m: Machine, op: Op, base: Model, *args: Datum) -> tuple[Datum, ...]:
        return (m.derive(op, base, args),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """A model of which no layer is left out is the model."""
        none = op.attrs["how"] == "skip" and all(v.type.elem != "set" and k.sizes.empty(v) for v in op.operands[1:])
        return k.of(op.operands[0]) if none else None

    attrs = ("how", "named?")
    label, batch = labels.joined, "scalar"
    samples = (
        ('%z = model.derive(%target, %n, how = "exit")', ...),
        ('%z = model.derive(%target, %n, how = "expert")', ...),
        ('%z = model.derive(%target, %trunk, how = "head")', ...),
        ('%z = model.derive(%target, %n, %trunk, how = "since")', ...),
        ('%z = model.derive(%foreign, %target, how = "speaking")', ...),
    )
    refusals = (
        ("int", "model", {"how": "exit"}),
        ("model<causal,V,m,causal>", "paint", {"how": "paint"}),
        ("model<causal,V,m,causal>, int, model<causal,V,m,causal>", "states", {"how": "since"}),
        ("model<causal,W,m,causal>, int", "whose tokens", {"how": "speaking"}),
        ("model<masked,W,m,full>, model<causal,V,m,causal>", "does not speak", {"how": "speaking"}),
    )


@op("model.layers")
class ModelLayers:
    """The layers of a model: 0, 1, ..."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        _model(types[0], ".layers")
        return (Type("int", (), (Dim("layers"),)),)

    @staticmethod
    def meaning(m: Machine, op: Op, model: Model) -> tuple[Datum, ...]:
        import numpy as np

        return (np.arange(model.layers),)

    label, batch = labels.joined, "scalar"
    samples = (("%z = model.layers(%target)", [0, 1]),)
    refusals = (("int", "model"),)


@op("memory.only")
class MemoryOnly:
    """A memory restricted to positions (kind "only") or rid of them ("without"): positions of a canvas, of a context's memory
    whole numbers from 0 on. Numbers past its end name no row."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "memory", f".{attrs['kind']} needs a memory, got {types[0]}")
        need(
            types[1].elem in ("position", "any") or types[1].elem == "int" and len(types[1].dims) == 1,
            f"a memory is restricted to positions, got {types[1]}",
            f"one of them as a vector: m.{attrs['kind']}([i])"
            if types[1].elem == "int" and not types[1].dims
            else f"m.{attrs['kind']}(b) of a canvas, m.{attrs['kind']}(range_(0, 4)) of a context",
        )
        return (types[0],)

    @staticmethod
    def meaning(m: Machine, op: Op, mem: Memory, ps: Datum) -> tuple[Datum, ...]:
        return (m.restrict(mem, ps, op.attrs["kind"]),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """All of its positions, or none; or all from some position on."""
        memory, (_, positions) = k.of(op.operands[0]), op.operands
        if not isinstance(memory, facts.Memory) or positions.type.elem != "int" or memory.short is None:
            return None
        length = k.sizes.context[memory.version] - memory.short
        if op.attrs["kind"] == "only":
            if k.sizes.covers(positions, length):
                return memory
            return replace(memory, empty=True) if k.sizes.empty(positions) else None
        if k.sizes.empty(positions):
            return memory
        below = k.sizes.below(positions)
        return replace(memory, first=below) if below is not None and memory.whole else None

    attrs = ("kind",)
    label, batch = labels.joined, "ragged"
    samples = (
        ('%z = memory.only(%mem, %ps, kind = "only")', [0, 2]),
        ('%z = memory.only(%mem, %ps, kind = "without")', [1]),
    )
    refusals = (("int, int", "memory", {"kind": "only"}),)


@op("memory.join")
class MemoryJoin:
    """Two memories of one family together; where both hold a position the right one wins."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        a, b = types
        need(a.elem == "memory" and b.elem == "memory" and a.of == b.of, f"memories of one family join, got {a} and {b}")
        return (a,)

    @staticmethod
    def meaning(m: Machine, op: Op, a: Memory, b: Memory) -> tuple[Datum, ...]:
        return (a.join(b),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """Of a model's own memories of beginnings of the text, where no row is missing in what they cover together."""
        a, b = (k.of(v) for v in op.operands)
        if not isinstance(a, facts.Memory) or not isinstance(b, facts.Memory) or a.model != b.model:
            return None
        if a.whole and b.whole:
            return facts.Memory(a.model, max(a.version, b.version))
        if a.short is None or b.short is None:
            return None
        ends = [k.sizes.context[m.version] - m.short for m in (a, b) if m.short is not None]
        longer, reaches = k.sizes.proves(at_least(ends[1], ends[0])), k.sizes.proves(at_least(ends[0], b.first))
        if longer and not b.empty and (b.whole or a.whole and reaches):
            return replace(b, first=facts.NOTHING)
        return a if a.whole and b.empty and k.sizes.proves(at_least(ends[0], ends[1])) else None

    label, batch = labels.joined, "ragged"
    samples = (("%z = memory.join(%mem, %mem2)", [0, 1, 2, 3]),)
    refusals = (("memory<a>, memory<b>", "one family"),)


@op("memory.quantized")
class MemoryQuantized:
    """A memory whose keys and values are rounded: every row, head by head, to the nearest of 2**bits evenly spaced levels from
    its least value to its greatest. Two numbers are the bits of keys and of values. Features and states stay as they are."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "memory", f".quantized needs a memory, got {types[0]}")
        need(
            types[1].elem == "int" and len(types[1].dims) <= 1,
            f".quantized needs a whole number of bits, or two, for keys and for values, got {types[1]}",
            "target.memory(ctx.parent).quantized(4)",
        )
        return (types[0],)

    @staticmethod
    def meaning(m: Machine, op: Op, mem: Memory, bits: Ints) -> tuple[Datum, ...]:
        return (mem.quantized(bits),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """Where there is no row, none is rounded."""
        memory = k.of(op.operands[0])
        return memory if isinstance(memory, facts.Memory) and memory.empty else None

    label, batch = labels.joined, "ragged"
    samples = (("%z = memory.quantized(%mem, %three)", [0, 1, 2]),)
    refusals = (("memory<a>, text", "bits"),)


@op("model.embed")
class ModelEmbed:
    """Embeddings of tokens, or mixtures of all tokens' under weights over the vocabulary. Their values are coordinates: the
    weight of each token's embedding, then that of the mask's."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        model = _model(types[0], ".embed")
        t = types[1]
        over_vocab = numeric(t).is_number and bool(numeric(t).dims) and numeric(t).dims[-1].kind == "vocab"
        need(t.is_token or t.elem == "int" or over_vocab, f".embed needs tokens or weights over the vocabulary, got {t}")
        dims = t.dims[:-1] if t.dims and t.dims[-1].kind == "vocab" else t.dims
        return (Type("embedding", (model.of[2],), dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, model: Model, x: Datum) -> tuple[Datum, ...]:
        import numpy as np

        a = array(m, x)
        dims = numeric(op.operands[1].type).dims
        if dims and dims[-1].kind == "vocab":
            return (np.concatenate((a, np.zeros((*a.shape[:-1], 1), dtype=a.dtype)), axis=-1),)
        n = m.vocab_size
        out = np.zeros((a.size, n + 1), dtype=object if m.num.exact else np.float64)
        for row, t in enumerate(np.ravel(a)):
            out[row, n if int(t) == m.mask_token else int(t)] = 1
        return (out.reshape(*a.shape, n + 1),)

    label, batch = labels.joined, "pointwise"
    samples = (
        ("%z = model.embed(%target, %toks)", [[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]),
        ("%z = model.embed(%target, %w)", [1.0, 3.0, 0.0, 0.0]),
        ("%z = model.embed(%masked, %tok)", [0.0, 1.0, 0.0, 0.0]),
    )
    refusals = (
        ("int, int", "model"),
        ("model<causal,V,m,causal>, text", "weights"),
    )


T = TypeVar("T")


def split(parts: Iterable[Sequence[str]], operands: Sequence[T]) -> list[tuple[T, dict[str, T]]]:
    """(place, further operands by name) of each part, from the operands that follow the model."""
    out, at = [], 0
    for names in parts:
        out.append((operands[at], dict(zip(names, operands[at + 1 : at + 1 + len(names)]))))
        at += 1 + len(names)
    return out


@op("model.evals")
class ModelEvals:
    """Several `model.eval`s of one model in one call: operands the model, then for each part its place and further operands.
    Attribute parts: for each part the names of its further operands, as in `with`. One result for each part, the same as if it
    were evaluated alone; contexts that parts share are computed once, and it counts as one call. Attributes reuse and joint
    as in model.eval."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        wanted = sum(1 + len(names) for names in attrs["parts"])
        need(
            len(types) == 1 + wanted,
            f"{len(attrs['parts'])} parts take {wanted} operands after the model, got {len(types) - 1}",
        )
        out: list[Type] = []
        for place, extra in split(attrs["parts"], types[1:]):
            out += TABLE["model.eval"].type((types[0], place, *extra.values()), {"with": tuple(extra)}, ())
        return tuple(out)

    @staticmethod
    def meaning(m: Machine, op: Op, model: Model, *rest: Datum) -> tuple[Datum, ...]:
        return tuple(m.evaluate_parts(op, model, split(op.attrs["parts"], rest)))

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        out: list[Abs] = []
        at = 1
        for names in op.attrs["parts"]:
            attrs, end = {"with": names}, at + 1 + len(names)
            part = Op("model.eval", (op.operands[0], *op.operands[at:end]), attrs, (), (op.results[len(out)],), op.loc)
            out += ModelEval.label(c, part)
            at = end
        return out

    attrs = ("parts", "reuse?", "joint?")
    batch = "ragged"
    samples = (
        ('%z, %y = model.evals(%target, %ctx, %ns, %t, parts = ((), ("tree",)))', ...),
        ('%z, %y = model.evals(%target, %t, %ctx, parts = ((), ()), reuse = "target")', ...),
    )
    refusals = (("model<causal,V,m,causal>, node<ctx>", "2 parts", {"parts": ((), ())}),)
