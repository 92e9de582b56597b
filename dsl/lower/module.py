"""A file to a module: algorithms, their parameters, states and claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import Diagnostic, did_you_mean, failure
from decgraph.dsl.lower.calls import ACCEPTS
from decgraph.dsl.lower.declare import SCALARS, WORDS, at_most, literal, type_of
from decgraph.dsl.lower.expr import expr
from decgraph.dsl.lower.flow import suite
from decgraph.dsl.lower.labels import findings
from decgraph.dsl.lower.library import ItemsInReach
from decgraph.dsl.lower.progress import check_drafts, check_progress
from decgraph.dsl.lower.sizes import refuse_too_large
from decgraph.dsl.lower.state import FLOAT_IN_INT, Lowering, StateInfo, show, unfit
from decgraph.dsl.lower.statements import statement
from decgraph.dsl.lower.targets import roomy
from decgraph.dsl.parse import parse_text
from decgraph.dsl.printer import expression
from decgraph.dsl.source import Source, Span
from decgraph.errors import DecError
from decgraph.ir.drafting import note_drafting
from decgraph.ir.places import note_places
from decgraph.ir.settings import ARITHMETIC, COMPARES, REQUEST, Condition, names, quantities, settings
from decgraph.ir.sizes import note_capacities
from decgraph.ir.types import ANY, BOOL, NONE, Dim, Type, join, listing
from decgraph.ir.values import Claim, Constant, Function, Module, Param, Region, StateDecl, Value

if TYPE_CHECKING:
    from decgraph.ir.draft_ends import Block
    from decgraph.ir.intervals import End

CODE = "E411"
USAGE = "when delta == 0, when tau >= 1 and greedy"
COMPARED = ("int", "real", "prob", "bool", "text", "set", "token")


def setting_of(lw: Lowering, e: S.Expr, params: Sequence[Param]) -> tuple[Condition, bool]:
    """(the condition on parameters and the request, whether it asks for greedy requests). Fails where it reads anything else,
    reads no parameter, or where no value was found that satisfies it."""
    known = {p.name: p for p in params if p.value.type.elem != "model"}
    parts = e.values if isinstance(e, S.BoolOp) and e.op == "and" else (e,)
    rest = [p for p in parts if not (isinstance(p, S.Name) and p.name == "greedy" and "greedy" not in known)]
    made = tuple(_truth(lw, p, known) for p in rest)
    for part, c in zip(rest, made, strict=True):
        if not names(c):
            what = "reads no parameter" if quantities(c) else "is a constant"
            lw.fail(part.span, f"`{expression(part)}` {what}", f"a condition reads a parameter: {USAGE}", code=CODE)
    condition: Condition = () if not made else made[0] if len(made) == 1 else ("and", *made)
    if condition and not settings(Function(lw.function, tuple(params), (), Region((), (), ())), condition):
        ranges = "; ".join(f"{n} is {_range(known[n])}" for n in names(condition))
        lw.fail(e.span, f"no value was found that satisfies `{expression(e)}`", ranges, code=CODE)
    return condition, len(rest) < len(parts)


def bound_of(lw: Lowering, e: S.Expr, params: Sequence[Param]) -> Condition:
    """The number of an `at most`. Fails where it is none, or reads anything but parameters and the size of the request."""
    known = {p.name: p for p in params if p.value.type.elem != "model"}
    made = _number(lw, e, known)
    types = [known[name].value.type for name in names(made)]
    literal = made[0] != "const" or isinstance(made[1], int | Fraction) and not isinstance(made[1], bool)
    if not literal or any(t.elem not in ("int", "real", "prob") or t.dims for t in types):
        lw.fail(e.span, f"`{expression(e)}` is no number", "at most 1 call a token, at most budget remasked", code="E410")
    return made


def _range(p: Param) -> str:
    t = p.value.type.elem
    if p.low is not None and p.high is not None:
        return f"in {p.low}..{p.high}"
    return "in 0..1" if t == "prob" else "yes or no" if t == "bool" else f"a {t}"


def _truth(lw: Lowering, e: S.Expr, known: dict[str, Param]) -> Condition:
    """A part that is true or false."""
    if isinstance(e, S.BoolOp):
        return (e.op, *(_truth(lw, v, known) for v in e.values))
    if isinstance(e, S.Unary) and e.op == "not":
        return ("not", _truth(lw, e.operand, known))
    if isinstance(e, S.Compare) and e.op in COMPARES:
        return (e.op, _number(lw, e.left, known), _number(lw, e.right, known))
    if isinstance(e, S.Name) and e.name == "greedy" and e.name not in known:
        lw.fail(e.span, "`greedy` is joined to a condition by `and`", USAGE, code=CODE)
    if isinstance(e, S.Name) and e.name in ("yes", "no", "true", "false") and e.name not in known:
        return ("const", e.name in ("yes", "true"))
    if isinstance(e, S.Name) and e.name in known and known[e.name].value.type.elem != "bool":
        lw.fail(e.span, f"`{e.name}` is no condition", f"compare it: {e.name} == 1", code=CODE)
    made = _number(lw, e, known)
    if made[0] not in ("param", "const"):
        lw.fail(e.span, f"`{expression(e)}` is no condition", USAGE, code=CODE)
    return made


def _number(lw: Lowering, e: S.Expr, known: dict[str, Param]) -> Condition:
    """A part that is compared."""
    if isinstance(e, S.Name) and e.name in known:
        if known[e.name].value.type.elem not in COMPARED:
            lw.fail(e.span, f"`{e.name}` does not compare", "conditions compare numbers, yes or no, texts and sets", code=CODE)
        return ("param", e.name)
    spelt = expression(e)
    quantity = next((q for q, words in REQUEST.items() if words == spelt), None)
    if quantity is not None and quantity not in known:
        return ("request", quantity)
    if isinstance(e, S.Binary) and e.op in ARITHMETIC:
        return (e.op, _number(lw, e.left, known), _number(lw, e.right, known))
    if isinstance(e, S.Unary) and e.op == "-":
        return ("neg", _number(lw, e.operand, known))
    if isinstance(e, S.Number | S.String | S.ListExpr) or (isinstance(e, S.Name) and e.name in ("yes", "no", "inf", "none")):
        return ("const", literal(lw, e, "what a claim's condition compares with"))
    near = did_you_mean(getattr(e, "name", ""), sorted(known), f"its parameters are {', '.join(known) or 'none'}")
    reads = "parameters, constants, `len(prompt)`, `room` and `greedy`"
    lw.fail(e.span, f"a claim reads {reads}, not `{spelt}`", near, code=CODE)


__all__ = ["setting_of"]


SETTINGS = frozenset(
    (
        *("max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "strict", "stop", "regex"),
        *("json_schema", "grammar", "prompt", "prompt_file", "ids", "chat", "system", "device", "dtype", "set", "extern"),
        *("backend", "quiet", "json", "models", "tokenizer", "externs", "plan", "compile"),
    )
)
"""What options of the command line and arguments of a session are called; --model and --drafter are parameters themselves."""


class ModuleLowering:
    """Lowers the algorithms of a file, and those they run or refine."""

    def __init__(self, names: ItemsInReach) -> None:
        self.names = names
        self.functions: dict[str, Function] = {}
        self.externs: dict[str, tuple[tuple[Type, ...], Type]] = {}
        self.bounds: dict[Value, int] = {}
        self.signed: dict[Value, int] = {}  # parameters whose range begins below 0: how far from 0 they may be
        self.open: list[str] = []
        self.drafts: list[Block] = []
        self.keep: list[object] = []

    def lowering(self, source: Source, name: str) -> Lowering:
        return Lowering(source, self.names, name, self, expr, statement)

    def need(self, name: str, lw: Lowering | None = None, span: Span | None = None) -> None:
        """Lower an algorithm that another one runs or refines, once."""
        if name in self.functions:
            return
        if name in self.open:
            if lw is not None and span is not None:
                lw.fail(span, f"`{name}` runs itself", "an algorithm may run others, not itself", code="E390")
            return
        item = self.names.get(name)
        source = self.names.source(name)
        assert isinstance(item, S.Algorithm) and source is not None
        self.open.append(name)
        try:
            self.functions[name] = self.algorithm(item, source)
        finally:
            self.open.pop()

    def algorithm(self, item: S.Algorithm, source: Source) -> Function:
        lw = self.lowering(source, item.name)
        self.keep.append(lw)
        params: list[Param] = []
        for p in item.params:
            if p.name in lw.env:
                lw.fail(p.span, f"two parameters are called `{p.name}`", code="E360")
            params.append(self.param(lw, p))
        lw.b.open([p.value for p in params])
        claims: list[Claim] = []
        states: list[StateDecl] = []
        body: list[S.Stmt] = []
        for s in item.body:
            if isinstance(s, S.State):
                states.append(self.state(lw, s))
            elif isinstance(s, S.Claim):
                claims.append(self.claim(lw, s, tuple(params)))
            else:
                body.append(s)

        drafts = Counter(n.tree for s in body for n in S.walk(s) if isinstance(n, S.Draft))
        lw.continued = {n for n, times in drafts.items() if times > 1 and n in lw.states}
        suite(lw, tuple(body))
        region = lw.b.close()
        states = [StateDecl(s.name, lw.states[s.name].type, s.scope, s.init) for s in states]
        check_progress(lw, item)
        check_drafts(lw, item.body)
        return Function(
            item.name,
            tuple(params),
            tuple(states),
            region,
            tuple(claims),
            item.doc or "",
            lw.loc(item.span),
            tuple((k, v[0].name) for k, v in lw.policies.items()),
        )

    def param(self, lw: Lowering, p: S.Param) -> Param:
        if p.type is None:
            lw.fail(
                p.span, f"parameter `{p.name}` needs a type", f"{p.name}: causal, {p.name}: int in 1..32 = 4, ...", code="E370"
            )
        t = at_most(type_of(lw, p.type, p.name), p.type)
        low, high = (None if e is None else self.end(lw, e) for e in (p.type.low, p.type.high))
        if (low is not None or high is not None) and not t.is_number:
            lw.fail(p.type.span, f"a range is for numbers, not for {show(t)}", code="E370")
        if low is not None and high is not None and low > high:
            lw.fail(p.type.span, f"the range {low}..{high} is empty", code="E370")
        default, has = None, p.default is not None
        if p.default is not None:
            default = literal(lw, p.default, "a default")
            self.check_default(lw, p, t, default, low, high)
        v = Value(t, p.name)
        if t.elem == "int" and not t.dims and high is not None and (low is None or low >= 0):
            self.bounds[v] = int(high)
        elif t.elem == "int" and low is not None and high is not None:
            self.signed[v] = max(-int(low), int(high))
        lw.env[p.name] = v
        if low is not None and high is not None:
            lw.finite[v] = 0.0
        if low is not None:
            lw.lows[p.name] = float(low)
        return Param(v, low, high, default, has, p.scope or "sequence")

    def end(self, lw: Lowering, e: S.Expr) -> int | Fraction:
        """An end of a range."""
        v = literal(lw, e, "a range")
        if isinstance(v, bool) or not isinstance(v, (int, Fraction)):
            lw.fail(e.span, "a range goes from a number to a number", "gamma: int in 1..32 = 4", code="E370")
        return v

    def check_default(self, lw: Lowering, p: S.Param, t: Type, v: Constant, low: End | None, high: End | None) -> None:
        span = p.default.span if p.default is not None else p.span
        ok = {
            "int": isinstance(v, int) and not isinstance(v, bool),
            "bool": isinstance(v, bool),
            "text": isinstance(v, str),
            "topology": isinstance(v, (str, tuple)),
            "set": isinstance(v, (tuple, str)),
        }
        if t.elem in ok and not ok[t.elem]:
            lw.fail(span, f"`{p.name}` is {show(t)}, its default is {v!r}", code="E370")
        if t.elem in ("real", "prob") and (isinstance(v, (str, bool)) and v not in ("inf", "-inf")):
            lw.fail(span, f"`{p.name}` is a number, its default is {v!r}", code="E370")
        if t.is_number and isinstance(v, int | float | Fraction):
            if (low is not None and v < low) or (high is not None and v > high):
                near = low if low is not None and v < low else high
                message = f"the default of `{p.name}` is outside its range {low}..{high}"
                lw.fail(span, message, f"the nearest value in it is {near}", code="E370")
            if t.elem == "prob" and not 0 <= v <= 1:
                lw.fail(span, f"`{p.name}` is a probability, its default is {float(v):g}", "a number in 0..1", "E370")

    def state(self, lw: Lowering, s: S.State) -> StateDecl:
        if s.name in lw.env or s.name in lw.states:
            lw.fail(s.span, f"`{s.name}` is already taken", code="E360")
        t = type_of(lw, s.type, s.name)
        scope = s.scope or "sequence"
        if scope not in ("sequence", "session", "batch"):
            lw.fail(s.span, f"a state is per sequence, per session or per batch, not per {scope}", code="E370")
        lw.b.open()
        saved = dict(lw.env)
        if t.elem == "index":
            sizes = [lw.expr(a) for a in s.type.args] or [lw.expr(d) for d in s.type.dims[1:]]
            init = lw.one("index.new", *sizes, span=s.span, kind=t.of[0], vocab=lw.vocab)
            if s.init is not None:
                init = lw.one("index.learn", init, lw.expr(s.init), span=s.span)
        elif t.elem == "tree":
            init = lw.const(None, NONE)
        elif t.elem == "astate":
            init = lw.expr(s.init) if s.init is not None else lw.const(None, NONE)
        elif s.init is not None:
            init = lw.token(lw.expr(s.init)) if t.elem == "token" else lw.expr(s.init)
            if t.dims and not init.type.dims and init.type.elem in ("int", "real", "bool", "prob"):
                init = self.filled(lw, s, t, init)
        elif t.dims and not any(isinstance(d, S.UpTo) for d in s.type.dims):
            init = self.filled(lw, s, t, lw.const(0))
        elif t.dims or t.elem == "list":
            init = lw.emit("list", span=s.span)[0]
        elif t.is_number:
            init = lw.const(0)
        elif t == BOOL:
            init = lw.const(False)
        else:
            init = lw.const(None, NONE)
        if init.type.dims and init not in lw.filled or init.type.elem == "list" and init.type != listing(ANY):
            init = roomy(lw, s.name, t, self.room(lw, s, t), init, s.span)
        region = lw.b.close([init])
        lw.env = saved
        if t.elem == "token" and init.type.is_number:
            pass
        elif t.elem not in ("index", "tree", "astate") and unfit(t, init.type):
            help = FLOAT_IN_INT if join(t, init.type) is not None else ""
            lw.fail(s.span, f"state `{s.name}` is {show(t)}, it starts as {show(init.type)}", help, code="E220")
        lw.states[s.name] = StateInfo(t, scope, s.span, self.room(lw, s, t))
        return StateDecl(s.name, t, scope, region)

    def room(self, lw: Lowering, s: S.State, t: Type) -> tuple[Value, ...]:
        """What a state has room for in each dimension, of the outermost ones that were declared with a number."""
        dims = list(s.type.dims)
        if t.elem == "list":
            inner = dims[0].subs if dims and isinstance(dims[0], S.Index) else ()
            dims = [*dims[1:2], *inner] if len(dims) > 1 else []
        elif t.elem in ("index", "tree", "astate"):
            dims = []
        out = []
        for d in dims:
            if isinstance(d, S.Name) and d.name == "vocab" and "vocab" not in lw.env:
                break
            out.append(lw.expr(d.bound if isinstance(d, S.UpTo) else d))
        return tuple(out)

    def filled(self, lw: Lowering, s: S.State, t: Type, value: Value) -> Value:
        sizes = [lw.expr(d.bound if isinstance(d, S.UpTo) else d) for d, dim in zip(s.type.dims, t.dims) if dim.kind != "vocab"]
        zero = lw.emit(
            "tile",
            *sizes,
            span=s.span,
            kind="zeros",
            dims=tuple(Dim(d.kind, d.of, d.bound) for d in t.dims),
            elem="int" if t.elem in ("int", "token") else "real",
        )[0]
        out = lw.one("map", zero, value, span=s.span, fn="add")
        lw.filled.add(out)
        return out

    def claim(self, lw: Lowering, s: S.Stmt, params: tuple[Param, ...]) -> Claim:
        text = lw.source.text[s.span.start : s.span.end].strip() if s.span else ""
        if isinstance(s, S.Refines):
            return self.refines(lw, s, text, params)
        assert isinstance(s, S.KeepsSupport | S.Ensures | S.AtMost)
        when, setting, _ = self.condition(lw, s.when, params)
        if isinstance(s, S.AtMost):
            counted, of = "remasked" if s.what == "remasked" else "calls", self.counted(lw, s, params)
            bound = bound_of(lw, s.bound, params)
            return Claim(
                counted, text, mode=s.per or "", when=when, models=of, loc=lw.loc(s.span), setting=setting, bound=bound
            )
        if isinstance(s, S.KeepsSupport):
            names = []
            for m in s.models:
                if not isinstance(m, S.Name) or lw.env.get(m.name) is None or lw.env[m.name].type.elem != "model":
                    lw.fail(m.span, "keeps support of which model?", "keeps support of target", code="E410")
                names.append(m.name)
            return Claim("keeps_support", text, when=when, models=tuple(names), loc=lw.loc(s.span), setting=setting)
        model = next((v for v in lw.env.values() if v.type.elem == "model" and v.type.of[0] == "causal"), None)
        vocab = model.type.vocab if model is not None else lw.vocab
        p, x = Value(Type("dist", (vocab, "shaped")), "p"), Value(Type("token", (vocab,)), "x")
        region = lw.region([p, x], s.expr, p=p, x=x)
        if (found := region.yields[0].type) != BOOL:
            lw.fail(s.span, f"ensures needs a condition on p and x, got {show(found)}", "ensures p[x] > 0.1", code="E210")
        return Claim("ensures", text, when=when, region=region, loc=lw.loc(s.span), setting=setting)

    def counted(self, lw: Lowering, s: S.AtMost, params: tuple[Param, ...]) -> tuple[str, ...]:
        """The model whose calls a claim counts: the first one, where it names none."""
        models = [p.name for p in params if p.value.type.elem == "model" and p.value.type.of[0] != "layers"]
        masked = any(p.value.type.elem == "model" and p.value.type.of[0] == "masked" for p in params)
        if s.what == "remasked":
            if not masked:
                lw.fail(s.span, "nothing is masked here", "leave it out: no parameter is a masked model", code="E410")
            return ()
        name = s.model.name if s.model is not None else models[0] if models else ""
        if name not in models:
            advice = f"at most 1 call of {models[0]} a token" if models else "its parameters are no models"
            lw.fail(s.model.span if s.model is not None else s.span, "calls of which model?", advice, code="E410")
        return (name,)

    def condition(self, lw: Lowering, when: S.Expr | None, params: tuple[Param, ...]) -> tuple[str, Condition, bool]:
        """The condition of a claim as it is written, its part over the parameters, and whether it asks for greedy requests."""
        return ("", (), False) if when is None else (expression(when), *setting_of(lw, when, params))

    def refines(self, lw: Lowering, s: S.Refines, text: str, params: tuple[Param, ...]) -> Claim:
        f = s.spec.func
        spec = lw.items.get(f.name) if isinstance(f, S.Name) else None
        if not isinstance(spec, S.Algorithm):
            name = getattr(f, "name", "?")
            advice = lw.items.near(name, S.Algorithm, "refines autoregressive(target) in distribution")
            lw.fail(s.spec.span, f"refines names an algorithm; `{name}` is none that is in reach", advice, code="E230")
        if spec.name == lw.function:
            lw.fail(
                s.spec.span,
                f"`{spec.name}` claims to refine itself, which every program does",
                "name another algorithm: refines autoregressive(target) in distribution",
                code="E410",
            )
        if s.mode not in ("tokens", "distribution", None):
            lw.fail(s.span, f"refines ... in tokens or in distribution, not in {s.mode}", code="E410")
        args: list[tuple[str, tuple[str, Constant]]] = []
        pairs = list(zip([p.name for p in spec.params], s.spec.args)) + [(k.name, k.value) for k in s.spec.kwargs]
        if len(s.spec.args) > len(spec.params):
            lw.fail(s.spec.span, f"{spec.name} takes {len(spec.params)} parameters", code="E260")
        for name, a in pairs:
            if name not in (has := [p.name for p in spec.params]):
                advice = did_you_mean(name, has, f"it has {', '.join(has)}")
                lw.fail(s.spec.span, f"{spec.name} has no parameter `{name}`", advice, code="E260")
            if isinstance(a, S.Name) and a.name not in WORDS and a.name not in lw.env:
                advice = did_you_mean(a.name, lw.env, "a parameter of the algorithm, or a constant")
                lw.fail(a.span, f"`{a.name}` is not defined", advice, code="E230")
            if isinstance(a, S.Name) and a.name in lw.env:
                args.append((name, ("param", a.name)))
            else:
                args.append((name, ("const", literal(lw, a, "an argument of a claim"))))
        given = {n for n, _ in args}
        for p in spec.params:
            if p.default is None and p.name not in given:
                lw.fail(s.spec.span, f"{spec.name} needs `{p.name}`", code="E260")
        when, setting, greedy = self.condition(lw, s.when, params)
        mode = "greedy" if greedy and s.mode in (None, "tokens") else s.mode or "distribution"
        if spec.name != lw.function:
            self.need(spec.name, lw, s.span)
        return Claim(
            "refines", text, spec=spec.name, args=tuple(args), mode=mode, when=when, loc=lw.loc(s.span), setting=setting
        )


def meant_as_algorithms(file: S.File, source: Source) -> list[Diagnostic]:
    """Helpers that commit tokens, in a file without an algorithm."""
    if any(isinstance(item, S.Algorithm) for item in file.items):
        return []
    out: list[Diagnostic] = []
    for item in file.items:
        if isinstance(item, S.Def) and any(isinstance(n, S.Commit) for n in S.walk(item)):
            help = f"a decoder begins with `algorithm`: algorithm {item.name}(target: causal):"
            message = f"`{item.name}` commits tokens, and a `def` is a helper"
            out += failure(source, item.name_span, message, help, "E300").diagnostics
    return out


def lower_file(file: S.File, source: Source, check_labels: bool = True, names: ItemsInReach | None = None) -> Module:
    """Lower every algorithm of a file (and what they use). `main` is the last one. Raises DecError with all that is wrong:
    at most one thing an algorithm and, unless `check_labels` is off, what its draws must not depend on.
    `names`: what the file can name, where that is more than its text says."""
    names = names or ItemsInReach(file, source)
    lowering = ModuleLowering(names)
    main, found = "", meant_as_algorithms(file, source)
    for item in file.items:
        try:
            if isinstance(item, S.Algorithm):
                main = item.name
                lowering.need(item.name)
            elif isinstance(item, (S.Rule, S.Def, S.Policy)):
                check_item(lowering, item, source)
        except DecError as error:
            found += [d for d in error.diagnostics if d not in found]
        except RecursionError:
            assert isinstance(item, S.Item)
            found.append(
                Diagnostic(
                    "E007",
                    f"`{item.name}` is nested too deeply",
                    item.name_span or item.span,
                    why="what follows a `break` stands in a branch of its own",
                    source=source,
                    help="move parts of it into a `def`, or use fewer early exits",
                )
            )
    if found:
        raise DecError(found)
    return finished(lowering, file, source, main, check_labels)


def finished(lowering: ModuleLowering, file: S.File, source: Source, main: str, check_labels: bool = True) -> Module:
    """The module of what was lowered, with its bounds and places noted. Raises DecError for what is too large and, unless
    `check_labels` is off, for what draws must not depend on."""
    externs: dict[str, tuple[tuple[Type, ...], Type]] = {}
    for item in file.items:
        if isinstance(item, S.Extern):
            lw = lowering.lowering(source, item.name)
            externs[item.name] = (
                tuple(type_of(lw, p.type, p.name) for p in item.params if p.type is not None),
                at_most(type_of(lw, item.returns, item.name), item.returns),
            )
    module = Module(lowering.functions, main, source.path, externs)
    note_capacities(module)
    note_places(module)
    note_drafting(module)
    if lowering.drafts:
        from decgraph.ir.draft_ends import end_drafts
        from decgraph.ir.last_place import note_last_places

        note_last_places(module)
        end_drafts(module, lowering.drafts)
    refuse_too_large(module, source)
    if check_labels:
        wrong = [d for d in findings(module, lowering.names, source) if d.severity == "error"]
        if wrong:
            raise DecError(wrong)
    return module


def settings_taken(item: S.Algorithm, source: Source | None) -> list[Diagnostic]:
    """Errors about an algorithm's parameters that are called as a setting of every request or session: an option or argument of
    that name is never the parameter's."""
    message = "`{}` is a setting of every request or session, so a parameter of that name could not be set beside it"
    return [
        Diagnostic("E360", message.format(p.name), p.span, help=f"another name: own_{p.name}", source=source)
        for p in item.params
        if p.name in SETTINGS
    ]


def refuse_settings(module: Module, text: str) -> None:
    """Raises DecError for such parameters of the main algorithm, at their places in the text. Algorithms that only others run
    may have some."""
    if any(p.name in SETTINGS for p in module.entry.params):
        items = parse_text(text, module.path).items
        (item,) = [i for i in items if isinstance(i, S.Algorithm) and i.name == module.main]
        raise DecError(settings_taken(item, Source(text, module.path)))


def warnings_of(module: Module, file: S.File, source: Source) -> list[Diagnostic]:
    """What is worth knowing of a module that was lowered from this file: the label check's warnings, and confidences that are
    read before the request shapes what is drawn."""
    from decgraph.dsl.lower.confidence import confidences  # for who asks for warnings; a run does not

    said = [d for d in findings(module, ItemsInReach(file, source), source) if d.severity != "error"]
    return [*said, *confidences(module, source)]


def check_item(lowering: ModuleLowering, item: S.Item, source: Source) -> None:
    """What can be said of a rule, helper or policy that nothing uses yet: its parameters' types exist."""
    lw = lowering.lowering(source, item.name)
    if isinstance(item, (S.Rule, S.Def)):
        for p in item.params:
            if p.type is not None and p.type.name not in ACCEPTS and p.type.name not in SCALARS and p.type.name != "list":
                type_of(lw, p.type, p.name)


def load_text(text: str, path: str = "<text>", check_labels: bool = True) -> Module:
    """Parse and lower. Raises DecError."""
    return lower_file(parse_text(text, path), Source(text, path), check_labels)
