"""What an algorithm does, in words: its claims, models and parameters, its step line by line, and a drawing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from decgraph.dsl import syntax as S
from decgraph.dsl.explain_drawing import drawing
from decgraph.dsl.lower.library import ItemsInReach
from decgraph.dsl.parse import parse_source
from decgraph.dsl.printer import expression
from decgraph.dsl.source import Source

KINDS = {
    "causal": "a causal model",
    "masked": "a masked model, which sees the whole canvas",
    "features": "a head that reads another model's features",
    "layers": "an adapter between another model's layers",
    "head": "a head that scores another model's states",
}
TYPES = {"int": "a whole number", "prob": "a probability", "float": "a number", "bool": "yes or no", "text": "a text",
         "topology": "a tree's shape"}  # fmt: skip
WIDTH = 100
MARGIN = 7  # before the words of a line: its number


@dataclass(frozen=True)
class ExplainedLine:
    """A line of the step: the source line, how deep it stands, and what happens there."""

    number: int
    depth: int
    words: str


@dataclass(frozen=True)
class Explanation:
    """An algorithm in words. `text()` lays it out; the parts are for programs."""

    name: str
    doc: str
    claims: tuple[tuple[str, str], ...]
    models: tuple[tuple[str, str], ...]
    params: tuple[tuple[str, str], ...]
    externs: tuple[tuple[str, str], ...]
    step: tuple[ExplainedLine, ...]
    drawing: tuple[str, ...]

    def _repr_html_(self) -> str:
        from decgraph.html import fragment

        return fragment(self)

    def text(self, width: int = WIDTH + MARGIN) -> str:
        """The explanation in lines of at most `width` characters, as far as words, claims and the drawing allow."""
        wide, body = max(20, min(WIDTH, width)), WIDTH if width >= WIDTH + MARGIN else min(WIDTH, width - MARGIN - 2)
        out = [self.name, *textwrap.wrap(" ".join(self.doc.split()), wide, initial_indent="  ", subsequent_indent="  ")]
        out += ["", "claims"]
        for claim, meaning in self.claims:
            out += [f"  {claim}", *textwrap.wrap(meaning, wide, initial_indent="      ", subsequent_indent="      ")]
        if not self.claims:
            out.append("  none: there is nothing to prove")
        shown = {"models": self.models, "functions that it calls": self.externs, "parameters": self.params}
        for title, pairs in shown.items():
            longest = max((len(name) for name, _ in pairs), default=0)
            out += ["", title, *(f"  {name:<{longest}}  {words}" for name, words in pairs)] if pairs else []
        out += ["", "line by line"]
        for line in self.step:
            number, indent = str(line.number) if line.number else "", " " * MARGIN + "  " * line.depth
            first, *more = textwrap.wrap(line.words, max(20, body - 2 * line.depth))
            out.append(f"{number:>5}  {'  ' * line.depth}{first}")
            out += [f"{indent}  {rest}" for rest in more]
        out += ["", "a step, drawn", *(f"  {row}".rstrip() for row in self.drawing)]
        return "\n".join(out)


def explain(text: str, path: str = "<text>", name: str = "") -> Explanation:
    """An explanation of the algorithm called `name`, or of the last one in the text. Raises DecError."""
    source = Source(text, path)
    file = parse_source(source).file
    names = ItemsInReach(file, source)
    found = [item for item in file.items if isinstance(item, S.Algorithm)]
    item = next((i for i in found if i.name == name), found[-1])
    claims = tuple((source.text[s.span.start : s.span.end].strip(), meaning(s)) for s in item.body if is_claim(s))
    models = tuple((p.name, KINDS[p.type.name]) for p in item.params if p.type is not None and p.type.name in KINDS)
    params = tuple((p.name, parameter(p)) for p in item.params if p.type is not None and p.type.name not in KINDS)
    externs = tuple(
        (e.name, source.text[e.span.start : e.span.end].removeprefix("extern ").strip())
        for e in file.items
        if isinstance(e, S.Extern)
    )
    body = tuple(s for s in item.body if not is_claim(s))
    lines = tuple(_Teller(names, {m for m, _ in models}).block(body, 0))
    return Explanation(item.name, item.doc or "", claims, models, params, externs, lines, tuple(drawing(item)))


def is_claim(s: S.Stmt) -> bool:
    """Whether a statement claims something of the algorithm and does nothing."""
    return isinstance(s, S.Claim)


def meaning(s: S.Stmt) -> str:
    """A claim in other words."""
    assert isinstance(s, S.Claim)
    when = "" if s.when is None else f", where `{expression(s.when)}`"
    when = ", for requests that are greedy" if s.when == S.Name("greedy") else when
    if isinstance(s, S.Refines):
        spec = expression(s.spec.func)
        if s.mode == "tokens":
            return f"with the same seed it commits exactly the tokens of `{spec}`, whatever is drafted{when}"
        return f"its tokens have exactly the distribution of the tokens of `{spec}`, whatever is drafted{when}"
    if isinstance(s, S.Ensures):
        return f"holds for every token x that is committed where the target's distribution is p{when}"
    if isinstance(s, S.AtMost) and s.what == "remasked":
        return f"no request masks more decided cells again{when}"
    if isinstance(s, S.AtMost):
        return f"no request asks more of the model{' for the tokens that it commits' if s.per else ''}{when}"
    return f"never commits a token that has probability 0 under that model{when}"


def parameter(p: S.Param) -> str:
    """A parameter's type, range and default in words."""
    assert p.type is not None
    words = TYPES.get(p.type.name, p.type.name)
    if p.type.low is not None and p.type.high is not None:
        words += f" in {expression(p.type.low)}..{expression(p.type.high)}"
    return words + (f", {expression(p.default)} unless given" if p.default is not None else ", to be given")


class _Teller:
    """Statements to lines. A statement without words of its own is shown as it is written."""

    def __init__(self, names: ItemsInReach, models: set[str]) -> None:
        self.names, self.models = names, models

    def block(self, body: tuple[S.Stmt, ...], depth: int) -> Iterator[ExplainedLine]:
        for s in body:
            heads = self.head(s)
            for i, (extra, words) in enumerate(heads):
                yield ExplainedLine(s.span.line if i == 0 else 0, depth + extra, words)
            if isinstance(s, S.If):
                yield from self.branches(s, depth)
            else:
                yield from self.block(getattr(s, "body", ()), depth + 1)

    def branches(self, s: S.If, depth: int) -> Iterator[ExplainedLine]:
        for i, branch in enumerate(s.branches):
            word = "if" if i == 0 else "or else, if"
            yield ExplainedLine(branch.span.line or s.span.line, depth, f"{word} {show(branch.cond)}:")
            yield from self.block(branch.body, depth + 1)
        if s.orelse:
            yield ExplainedLine(0, depth, "otherwise:")
            yield from self.block(s.orelse, depth + 1)

    def head(self, s: S.Stmt) -> list[tuple[int, str]]:
        """(extra depth, words) of a statement: its own line, and notes below it."""
        if isinstance(s, S.If):
            return []
        words = WORDS.get(type(s))
        said = [(0, words(s))] if words is not None else [(0, type(s).__name__.lower())]
        if isinstance(s, S.Verify):
            said += self.note("rule", s.rule)
        if isinstance(s, S.CachePolicy):
            said += self.note("policy", s.policy)
        return said

    def note(self, what: str, called: S.Expr) -> list[tuple[int, str]]:
        """The first sentence of a rule's or policy's docstring."""
        name = called.func if isinstance(called, S.Call) else called
        item = self.names.get(name.name) if isinstance(name, S.Name) else None
        doc = " ".join((getattr(item, "doc", None) or "").split())
        first = doc.split(". ")[0].rstrip(".")
        return [(1, f"{what}: {first}")] if first else []


def show(e: S.Expr | S.Grow) -> str:
    """An expression as it is written, or what a `grow` adds where."""
    return grow(e) if isinstance(e, S.Grow) else expression(e)


def grow(s: S.Grow) -> str:
    """What is added to a tree, and where."""
    call = s.what.func.name if isinstance(s.what, S.Call) and isinstance(s.what.func, S.Name) else ""
    args = [expression(a) for a in s.what.args] if isinstance(s.what, S.Call) else []
    what = expression(s.what)
    if call == "topk" and len(args) == 2:
        likeliest = "likeliest token" if args[1] == "1" else f"{args[1]} likeliest tokens"
        what = f"the {likeliest} of {args[0]} (one-hot distributions)"
    elif call in ("sample", "distinct") and len(args) == 2:
        what = f"{args[1]} draws from {args[0]}" + (" without replacement" if call == "distinct" else "")
    elif call == "point":
        what = f"{', '.join(args)}, taken and not drawn (one-hot distributions)"
    elif call == "drawn" and len(args) == 2:
        what = f"{args[0]}, said to be drawn from {args[1]}"
    elif call == "chain":
        what = f"{', '.join(args)}, one below the other"
    where = "" if call == "chain" else " as children of the nodes where it was drawn"  # a chain is no draw
    where = f" as children of {expression(s.at)}" if s.at is not None else where
    columns = f", with {', '.join(k.name for k in s.columns)}" if s.columns else ""
    return f"add {what}{where}{columns}"


def assign(s: S.Assign) -> str:
    """An assignment in words."""
    targets, values = ", ".join(map(expression, s.targets)), ", ".join(map(show, s.values))
    if s.op == "=":
        return f"{targets} is {values}" if not any(isinstance(v, S.Grow) for v in s.values) else f"{values}; call it {targets}"
    verbs = {"+=": "grows by", "-=": "shrinks by", "++=": "is lengthened by"}
    return f"{targets} {verbs[s.op]} {values}"


def draw(s: S.Draw) -> str:
    """A draw in words: from what, with which noise."""
    stream = s.stream.func if isinstance(s.stream, S.Call) else s.stream
    noise = f", with noise of its own called {expression(s.using)}" if s.using is not None else ""
    if isinstance(stream, S.Name) and stream.name == "output":
        noise = ", with the noise that the specification reads at this place"
    return f"draw {', '.join(map(expression, s.targets))} from {expression(s.dist)}{noise}"


def commit(s: S.Commit) -> str:
    """A commit in words."""
    if isinstance(s.value, S.Attr) and s.value.name == "accepted":
        return f"commit the accepted path of {expression(s.value.value)} and what the rule emitted after it"
    return f"commit {expression(s.value)}, up to where the request ends"


def loop(s: S.While) -> str:
    """When a `while` ends, in words."""
    if isinstance(s.cond, S.Unary) and expression(s.cond.operand) == "done":
        return "until the request is finished (a stop token, a stop string, the limit):"
    most = f", at most {expression(s.at_most)} times" if s.at_most is not None else ""
    return f"while {expression(s.cond)}{most}:"


def draft(s: S.Draft) -> str:
    """What a draft starts from, in words."""
    of = f" of edits of the canvas {expression(s.of)}" if s.of is not None else " of guesses below the committed context"
    return f"draft {s.tree}, a tree{of}:"


def state(s: S.State) -> str:
    """What is remembered, for how long, in words."""
    scope = {"session": "across requests", "batch": "for the whole batch"}.get(s.scope or "", "through the request")
    starts = f", first {expression(s.init)}" if s.init is not None else ""
    return f"{s.name} is remembered {scope}{starts}"


def unmask(s: S.Unmask) -> str:
    """Which cells are decided, and as what, in words."""
    where = f" where {expression(s.where)}" if s.where is not None else ""
    return f"decide {expression(s.target)}{where}: it becomes {expression(s.with_)}"


WORDS: dict[type, Callable[..., str]] = {
    S.While: loop,
    S.Loop: lambda s: "again and again" + (f", at most {expression(s.at_most)} times:" if s.at_most is not None else ":"),
    S.Repeat: lambda s: f"{expression(s.count)} times" + (f", while {expression(s.cond)}:" if s.cond is not None else ":"),
    S.For: lambda s: f"for every {', '.join(n.name for n in s.names)} in {expression(s.iter)}:",
    S.Lanes: lambda s: f"in {expression(s.count)} independent lanes ({s.name} counts them):",
    S.Across: lambda s: "once for the whole batch:",
    S.Draft: draft,
    S.Draw: draw,
    S.Grow: grow,
    S.Assign: assign,
    S.Verify: lambda s: f"verify {expression(s.tree)} from its root by {expression(s.rule)}, against {expression(s.against)}",
    S.Prune: lambda s: f"cut {expression(s.tree)} down to {expression(s.to)}",
    S.Commit: commit,
    S.Canvas: lambda s: f"{s.name} is a canvas of {expression(s.length)} masked positions after the prompt",
    S.CachePolicy: lambda s: f"{expression(s.model)} reuses what it computed before, by {expression(s.policy)}",
    S.ModelDecl: lambda s: f"{s.name} is the model {expression(s.value)}, which shares weights",
    S.NoiseDecl: lambda s: f"{s.name} is noise that several draws share",
    S.Note: lambda s: f"note {expression(s.value)} as {s.name}, for the trace and the statistics",
    S.State: state,
    S.Unmask: unmask,
    S.Remask: lambda s: f"mask {expression(s.target)} again" + (f" where {expression(s.where)}" if s.where is not None else ""),
    S.Return: lambda s: f"return {', '.join(map(expression, s.values))} as results",
    S.Break: lambda s: "leave the loop" + (f" if {expression(s.cond)}" if s.cond is not None else ""),
    S.Do: lambda s: expression(s.call),
}  # fmt: skip
