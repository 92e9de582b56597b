"""The request, the committed context, state, and the effects: commit, state writes, return."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from decgraph.ir import facts, labels
from decgraph.ir.data.dist import Draw, Path
from decgraph.ir.data.tree import Tree
from decgraph.ir.labels import Abs, Checker, TreeAbs
from decgraph.ir.machine import Datum, Machine, Model
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import as_int, need, need_one, need_tokens, plain
from decgraph.ir.ops.draws import must_be_tokens
from decgraph.ir.types import BOOL, INT, TEXT, Dim, Type, join, parse_type
from decgraph.ir.values import Op


@op("context")
class Context:
    """The committed context: prompt and committed tokens (attribute parent: without its last token)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return (Type("node", ("ctx",)),)

    @staticmethod
    def meaning(m: Machine, op: Op) -> tuple[Datum, ...]:
        c = m.context()
        return (c[:-1] if op.attrs.get("parent") else c,)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact:
        return facts.Context(k.version, parent=bool(op.attrs.get("parent")))

    attrs = ("parent?",)
    label, batch, effects = labels.nothing, "ragged", "read"
    samples = (
        ("%z = context()", (1, 0, 2)),
        ("%z = context(parent = true)", (1, 0)),
    )
    refusals = ()


@op("ctx.get")
class CtxGet:
    """A field of a context: token (the last), path (its tokens), length; or its last n tokens (field "last")."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        v = attrs.get("vocab", "V")
        need(
            types[0].elem == "node" and types[0].of[0] == "ctx" and not types[0].dims,
            f".{attrs['field']} needs a context, got {types[0]}",
        )
        for t in types[1:]:
            need_one(t, f".{attrs['field']}")
        d = Dim("k", "", attrs.get("bound"))
        return (
            {"token": Type("token", (v,)), "path": Type("token", (v,), (d,)), "length": INT, "last": Type("token", (v,), (d,))}[
                attrs["field"]
            ],
        )

    @staticmethod
    def meaning(m: Machine, op: Op, ctx: tuple[int | Draw, ...], *n: Datum) -> tuple[Datum, ...]:
        from decgraph.ir.data.dist import resolve_path

        field = op.attrs["field"]
        if field == "length":
            return (len(ctx),)
        if field == "token":
            return (resolve_path(ctx[-1:])[0],)
        tokens = resolve_path(ctx)
        return (np.array(tokens[max(0, len(tokens) - max(0, as_int(n[0]))) :] if n else tokens, dtype=np.int64),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The last tokens of the committed text, or all."""
        place = k.of(op.operands[0])
        if op.attrs["field"] not in ("path", "last") or not isinstance(place, facts.Context) or place.parent:
            return None
        end = k.sizes.context[place.version]
        return facts.Piece(end - k.sizes.length(op.result), end)

    attrs = ("field", "vocab?", "bound?")
    label, batch = labels.joined, "ragged"
    samples = (
        ('%z = ctx.get(%ctx, field = "token")', 2),
        ('%z = ctx.get(%ctx, field = "length")', 3),
        ('%z = ctx.get(%ctx, %i, field = "last", bound = 2)', [0, 2]),
    )
    refusals = (("node<t>", "context", {"field": "token"}),)


@op("request")
class RequestField:
    """A field of the request: prompt (tokens), limit, eos (the first stop token; an OpError where there is
    none), eos_or_none (the same, -1 where there is none, to compare with), pad (that token too, 0 where there is none),
    mask (the mask token), greedy
    (temperature 0), room (tokens that may still be committed)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        v = attrs.get("vocab", "V")
        return (
            {
                "prompt": Type("token", (v,), (Dim("k"),)),
                "limit": INT,
                "room": INT,
                "eos": Type("token", (v,)),
                "eos_or_none": Type("token", (v,)),
                "pad": Type("token", (v,)),
                "mask": Type("token", (v,)),
                "greedy": BOOL,
            }[attrs["field"]],
        )

    @staticmethod
    def meaning(m: Machine, op: Op) -> tuple[Datum, ...]:
        return (m.request_field(op.attrs["field"]),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The committed text begins with the prompt."""
        return facts.Piece(facts.NOTHING, k.sizes.length(op.result)) if op.attrs["field"] == "prompt" else None

    attrs = ("field", "vocab?")
    label, batch, effects = labels.joined, "pointwise", "read"
    samples = (
        ('%z = request(field = "prompt")', [1, 0]),
        ('%z = request(field = "limit")', 9),
        ('%z = request(field = "room")', 7),
        ('%z = request(field = "eos")', 2),
        ('%z = request(field = "eos_or_none")', 2),
        ('%z = request(field = "pad")', 0),
        ('%z = request(field = "greedy")', False),
    )
    refusals = ()


@op("done")
class Done:
    """Whether the stop machine has fired."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return (BOOL,)

    @staticmethod
    def meaning(m: Machine, op: Op) -> tuple[Datum, ...]:
        return (m.done(),)

    label, batch, effects = labels.joined, "pointwise", "read"
    samples = (("%z = done()", False),)
    refusals = ()


@op("commit")
class Commit:
    """Feed tokens to the stop machine one by one; what follows the token at which it fires is dropped. Takes a token, a vector
    of tokens or draws, an accepted path, a node's path (with its tree), a context, or a canvas (its decided prefix)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = types[0]
        ok = t.elem in ("token", "draw", "path", "canvas", "node", "int") or t.elem == "list"
        need(not (t.elem == "node" and t.dims), "commit takes one node, and gets many", "commit best[0]")
        need(
            ok and len(t.dims) <= 1,
            f"commit takes tokens, an accepted path, a node or a canvas, got {t}",
            "sample a distribution first: x ~ p" if t.elem == "dist" else "",
        )
        return ()

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum, tree: Tree | None = None) -> tuple[Datum, ...]:
        if op.operands[0].type.elem == "int":
            must_be_tokens(map(as_int, np.ravel(np.asarray(x))), m.vocab_size)
        m.commit(op, x, tree)
        return ()

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        if op.operands[0].type.elem == "path":
            c.came_by(op.operands[0])
        return []

    batch, effects = "ragged", "commit"
    samples = (
        ("commit(%x)", None),
        ("commit(%toks)", None),
        ("commit(%path)", None),
        ("commit(%c)", None),
    )
    refusals = (("dist<V,shaped>", "x ~ p"),)


@op("ended")
class Ended:
    """Whether the stop machine fires on the way to a node (with its tree), or along a path, tokens or the decided beginning of
    a canvas after the context."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = types[0]
        need(t.elem in ("node", "path", "token", "draw", "list", "canvas"), f"ended needs nodes, a path or a canvas, got {t}")
        return (Type("bool", (), t.dims if t.elem == "node" else ()),)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum, tree: Tree | None = None) -> tuple[Datum, ...]:
        return (m.ended(x, tree),)

    label, batch, effects = labels.joined, "pointwise", "read"
    samples = (
        ("%z = ended(%ns, %t)", [False, False]),
        ("%z = ended(%path)", False),
        ("%z = ended(%c)", False),
    )
    refusals = (("int", "path"),)


@op("state.read")
class StateRead:
    """The value of a state (attribute state)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return (attrs["type"],)

    @staticmethod
    def meaning(m: Machine, op: Op) -> tuple[Datum, ...]:
        return (m.read_state(op.attrs["state"]),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        """A state: draws that were kept are draws of their own."""
        t = op.result.type
        inner = t.of[0] if t.elem == "list" and t.of else t
        sampled = getattr(inner, "elem", "") in ("draw", "tree")
        draws = frozenset({(op.result, None)}) if sampled else labels.NO
        tree = TreeAbs(Abs(draws=draws), Abs(draws=draws), draws) if t.elem == "tree" else None
        return [Abs(labels.NO if sampled else c.stored.get(op.attrs["state"], Abs()).reads, draws, tree=tree)]

    attrs = ("state", "type")
    batch, effects = "pointwise", "read"
    samples = (('%z = state.read(state = "count", type = !int)', 5),)
    refusals = ()


@op("state.write")
class StateWrite:
    """Set a state (attribute state). Session state is written at the step barrier, in request order."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        want = attrs.get("type")
        if want is not None:
            need(join(want, types[0]) is not None, f"state {attrs['state']} holds {want}, not {types[0]}")
        return ()

    @staticmethod
    def meaning(m: Machine, op: Op, value: Datum) -> tuple[Datum, ...]:
        m.write_state(op.attrs["state"], value)
        return ()

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        name = op.attrs["state"]
        c.stored[name] = labels.join(c.stored.get(name, Abs()), replace(c.of(op.operands[0]), tree=None))
        return []

    attrs = ("state", "type?")
    batch, effects = "barrier", "state"
    samples = (('state.write(%i, state = "count", type = !int)', None),)
    refusals = (("text", "state s", {"state": "s", "type": parse_type("int")}),)


@op("return")
class Return:
    """The result of a search: nodes, paths or tokens, best first (n-best)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return ()

    @staticmethod
    def meaning(m: Machine, op: Op, *values: Datum) -> tuple[Datum, ...]:
        m.returned(op, values)
        return ()

    attrs = ("has_tree?",)
    label, batch, effects = labels.joined, "ragged", "return"
    samples = (("return(%path)", None),)
    refusals = ()


@op("note")
class Note:
    """A figure of the run (attribute name; token: it is one), for the listener and the statistics. Nothing depends on it."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = types[0]
        hint = "entropy(p), max(p.raw)" if t.elem == "dist" else "len(xs), sum(xs), mean(xs)" if t.dims else ""
        need((t.is_number or t.is_token or t == BOOL) and not t.dims, f"a note is one number or token, got {t}", hint)
        return ()

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum) -> tuple[Datum, ...]:
        token = bool(op.attrs.get("token"))
        m.note(op.attrs["name"], as_int(x) if token else plain(x), token=token)
        return ()

    attrs = ("name", "token?")
    label, batch, effects = labels.joined, "pointwise", "host"
    samples = (('note(%i, name = "seen")', None), ('note(%x, name = "last", token = true)', None))
    refusals = (("real[k]", "one number"), ("dist<V,shaped>", "entropy"), ("text", "one number"))


@op("completes")
class Completes:
    """Whether the text of a path holds a string."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(
            types[0].elem == "path" and types[1].elem == "text",
            f"completes needs a path and a text, got {types[0]}, {types[1]}",
        )
        return (BOOL,)

    @staticmethod
    def meaning(m: Machine, op: Op, path: Path, s: str) -> tuple[Datum, ...]:
        return (s in m.text(path, None),)

    label, batch, effects = labels.joined, "host", "host"
    samples = (("%z = completes(%path, %word)", False),)
    refusals = (("int, text", "path"),)


@op("vocab_size")
class VocabSize:
    """The number of tokens of the target's vocabulary."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return (INT,)

    @staticmethod
    def meaning(m: Machine, op: Op) -> tuple[Datum, ...]:
        return (m.vocab_size,)

    label, batch = labels.joined, "scalar"
    samples = (("%z = vocab_size()", 3),)
    refusals = ()


@op("token")
class TokenOf:
    """The token of the main model's tokenizer that has a text (attribute text), found when models are bound. In a check it is
    any token, a different one from world to world."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return (Type("token", (attrs["vocab"],)),)

    @staticmethod
    def meaning(m: Machine, op: Op) -> tuple[Datum, ...]:
        return (m.token_of(op.attrs["text"]),)

    attrs = ("text", "vocab")
    label, batch = labels.nothing, "scalar"
    samples = (('%z = token(text = "b", vocab = "V")', 1),)
    refusals = ()


@op("text_of")
class TextOf:
    """The text of tokens, of a path, or of a node's path."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        if types[0].elem != "node":
            need_tokens(types[0], "text_of", "text_of(ctx), text_of(t.leaves), text_of(tokens)")
        return (Type("text", (), types[0].dims if types[0].elem == "node" else ()),)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum, tree: Tree | None = None) -> tuple[Datum, ...]:
        return (m.text(x, tree),)

    label, batch, effects = labels.joined, "host", "host"
    samples = (("%z = text_of(%toks)", "ca"),)
    refusals = (("real", "tokens"),)


@op("retokenize")
class Retokenize:
    """The tokens of a model's vocabulary that have the text of tokens: operands the tokens, a model whose tokens they are, and
    the model. Attribute whole: the text is one from its beginning, to which the tokenizer adds what it puts before a text."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        tokens, source, to = types
        need(
            tokens.elem == "path" or tokens.elem in ("token", "draw", "int") and len(tokens.dims) == 1,
            f"retokenize takes tokens in a row, got {tokens}",
            "retokenize(ctx, drafter), retokenize(xs, target)",
        )
        for model in (source, to):
            need(
                model.elem == "model",
                f"retokenize takes the model whose tokens it makes, got {model}",
                "retokenize(ctx, drafter)",
            )
        return (Type("token", (str(to.of[1]),), (Dim("k"),)),)

    @staticmethod
    def meaning(m: Machine, op: Op, tokens: Datum, source: Model, to: Model) -> tuple[Datum, ...]:
        return (np.array(m.retokenize(tokens, source, to, whole=bool(op.attrs.get("whole"))), dtype=np.int64),)

    attrs = ("whole?",)
    label, batch = labels.joined, "host"
    samples = (
        ("%z = retokenize(%toks, %target, %foreign)", [2, 0]),
        ("%z = retokenize(%path, %target, %foreign, whole = true)", [0, 2]),
    )
    refusals = (
        ("token<V>, model<causal,V,m,causal>, model<causal,W,n,causal>", "in a row"),
        ("token<V>[k], int, model<causal,W,n,causal>", "whose tokens"),
    )


__all__ = ["TEXT"]
