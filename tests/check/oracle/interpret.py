"""An interpreter of the language's part in `language.py`, in plain Python, written from docs/language.md."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from oracle import functions, trees
from oracle import language as L
from oracle.choices import Choices, Output
from oracle.values import (
    Canvas,
    Dist,
    Drawn,
    Many,
    Node,
    Path,
    Stuck,
    Tree,
    combine,
    deep,
    numbers,
    taken,
    token_of,
)
from oracle.worlds import Request, World, ended, raw_of, shaped_of

TURNS = 40


class Left(Exception):
    """A loop was left by `break`."""


class Verdict(Exception):
    """A rule accepted a child or emitted a token."""

    def __init__(self, child: Any, token: int | None) -> None:
        super().__init__()
        self.child, self.token = child, token


class Machine:
    """One request of one run: the text so far, states, local values, and where chance comes from."""

    def __init__(self, program: L.Program, world: World, request: Request, choices: Choices, output: Output) -> None:
        self.program, self.world, self.request = program, world, request
        self.choices, self.output = choices, output
        self.rules = {r.name: r for r in program.rules}
        self.new: tuple[int, ...] = ()
        self.states: dict[str, Any] = {}
        self.env: dict[str, Any] = {}
        self.trees: list[Tree] = []
        self.turn: Any = 0  # tells the noise of one step from that of another

    # ---- the text

    @property
    def context(self) -> tuple[int, ...]:
        return self.request.prompt + self.new

    @property
    def done(self) -> bool:
        return ended(self.new, self.request)

    def commit(self, tokens: list[int]) -> None:
        for t in tokens:
            if self.done:
                break
            self.new += (t,)
            for s in self.program.states:
                if s.type.startswith("suffixes"):
                    self.states[s.name] = (*self.states[s.name], t)

    def start_states(self, kept: dict[str, Any]) -> None:
        """States of the sequence as declared; those of the session as they were left."""
        for s in self.program.states:
            if s.scope == "session" and s.name in kept:
                self.states[s.name] = kept[s.name]
                if isinstance(kept[s.name], Tree):  # drafts below an earlier text are drafts below this one
                    self.states[s.name].base = self.context
            elif s.type.startswith("suffixes"):
                self.states[s.name] = self.request.prompt
            elif s.type.startswith("tree"):
                self.states[s.name] = Tree(self.context)
            elif s.type.startswith("token[vocab"):
                width = self.value(functions.inner(s.type)[1])
                first = self.value(s.init)
                self.states[s.name] = Many([Many([first] * int(width)) for _ in range(self.world.vocab)])
            else:
                self.states[s.name] = self.value(s.init)

    # ---- statements

    def run(self, body: tuple[Any, ...]) -> None:
        for s in body:
            self.one(s)

    def one(self, s: Any) -> None:
        match s:
            case L.Draw(name, value, output, using):
                self.set(name, self.drawn(self.value(value), output, using))
            case L.Assign(target, op, value):
                self.assign(target, op, self.value(value))
            case L.Draft(name, of, body):
                self.draft(name, of, body)
            case L.Grow(value, at):
                self.grow(self.value(value), None if at is None else self.value(at), value)
            case L.Repeat(count, cond, body):
                self.repeat(self.value(count), cond, body)
            case L.For(name, over, body):
                self.loop(name, self.items(over), body)
            case L.While(test, body):
                self.turns(test, body)
            case L.If(test, body, other):
                self.run(body if self.truth(self.value(test)) else other)
            case L.Break(test):
                if test is None or self.truth(self.value(test)):
                    raise Left
            case L.Verify(tree, rule, against):
                trees.verify(self, self.value(tree), rule, self.value(against))
            case L.Commit(value):
                self.committed(self.value(value), value)
            case L.Accept(value):
                raise Verdict(self.value(value), None)
            case L.Emit(value):
                raise Verdict(None, token_of(self.value(value)))
            case L.Canvas(name, size):
                room = self.request.max_tokens - len(self.new)
                self.env[name] = Canvas(self.context, [None] * max(0, min(int(self.value(size)), room)))
            case L.Unmask():
                trees.unmask(self, s)
            case L.Noise(name, _, _):
                self.env[name] = ("noise", name, self.turn if self.inside else "before")
            case _:
                raise Stuck(f"cannot run {s!r}")

    inside = False  # whether the loop of the algorithm has begun

    def truth(self, x: Any) -> bool:
        if isinstance(x, Many) and len(x) == 1:
            return self.truth(x[0])
        if not isinstance(x, bool):
            raise Stuck(f"no truth value: {x!r}")
        return x

    def set(self, name: str, value: Any) -> None:
        (self.states if name in self.states else self.env)[name] = value

    def assign(self, target: Any, op: str, value: Any) -> None:
        if isinstance(target, L.Name):
            old = None if op == "=" else self.value(target)
            self.set(target.id, value if op == "=" else combine(op[:-1], old, value))
            return
        if isinstance(target, L.Index):
            trees.stored(self, target, op, value)
            return
        if isinstance(target, L.Attr) and target.name == "frontier":
            self.value(target.value).new = [n.id for n in trees.nodes(value)]
            return
        raise Stuck(f"cannot assign to {target!r}")

    def repeat(self, count: Any, cond: Any, body: Any) -> None:
        try:
            for _ in range(int(count)):
                if cond is not None and not self.truth(self.value(cond)):
                    break
                self.run(body)
        except Left:
            pass

    def items(self, over: Any) -> list[Any]:
        if isinstance(over, L.Bin) and over.op == "..":
            return list(range(int(self.value(over.left)), int(self.value(over.right))))
        found = self.value(over)
        return functions.levels(found) if isinstance(found, str) else list(found)

    def loop(self, name: str, items: list[Any], body: Any) -> None:
        try:
            for x in items:
                self.env[name] = x
                self.run(body)
        except Left:
            pass

    def turns(self, test: Any, body: Any) -> None:
        try:
            for _ in range(TURNS):
                if not self.truth(self.value(test)):
                    return
                self.run(body)
        except Left:
            return
        raise Stuck("a loop does not end")

    # ---- drawing

    def drawn(self, p: Any, output: Any, using: str, lane: int = 0) -> Any:
        if isinstance(p, Many):
            return Many([self.drawn(x, output, using, i) for i, x in enumerate(p)], p.at)
        if not isinstance(p, Dist):
            raise Stuck(f"a draw from {p!r}")
        if min(p.probs) < 0 or not any(p.probs):
            raise Stuck("a draw from what is no distribution")
        if using:
            place = ("using", self.env[using], lane)
            token = self.output.read(place, p.probs, self.choices)
        elif output is None:
            total = sum(p.probs)
            token = self.choices.of([w / total for w in p.probs])
        else:
            if output is not True:
                place = (int(self.value(output)), p.place)
            elif p.place is None:
                raise Stuck("output noise without a place")
            else:
                place = p.place
            token = self.output.read(place, p.probs, self.choices)
        return Drawn(token, p.probs, p.raw if p.raw is not None else p.probs)

    def coin(self, s: Any) -> Any:
        if isinstance(s, Many):
            return Many([self.coin(x) for x in s], s.at)
        s = min(Fraction(1), max(Fraction(0), s)) if s not in (float("inf"), float("-inf")) else Fraction(int(s > 0))
        return bool(self.choices.of([1 - s, s]))

    # ---- trees

    def draft(self, name: str, of: Any, body: Any) -> None:
        if of is not None:
            raise Stuck("no trees of canvases here")
        if name in self.states:
            tree = self.states[name]
            tree.new = tree.leaves()
        else:
            tree = self.env[name] = Tree(self.context)
        self.trees.append(tree)
        try:
            self.run(body)
        finally:
            self.trees.pop()

    def grow(self, value: Any, at: Any, written: Any) -> None:
        tree = self.trees[-1]
        if isinstance(value, tuple) and value and value[0] == "chain":
            below = 0 if at is None else trees.nodes(at)[0].id
            made = []
            for x in value[1]:
                made.append(trees.hang(tree, below, trees.point(self, x)))
                below = made[-1]
            tree.new = made
            return
        pairs = trees.places(self, tree, value, at)
        tree.new = [trees.hang(tree, parent, x) for parent, x in pairs]

    def committed(self, x: Any, written: Any) -> None:
        if isinstance(x, Path):
            self.commit(list(x.tokens))
            if isinstance(written, L.Attr) and isinstance(written.value, L.Name) and written.value.id in self.states:
                old = self.states[written.value.id]
                self.states[written.value.id] = (
                    Tree(self.context) if x.emitted or self.done else old.below(x.node, self.context)
                )
        elif isinstance(x, Node):
            self.commit(list(x.tree.context(x.id)[len(x.tree.base) :]))
        elif isinstance(x, Canvas):
            ready = []
            for cell in x.cells:
                if cell is None:
                    break
                ready.append(cell)
            self.commit(ready)
        else:
            self.commit([token_of(y) for y in x] if isinstance(x, Many) else [token_of(x)])

    # ---- models and expressions

    def row(self, model: Any, path: tuple[int, ...], *, key: Any = None, place: Any = None) -> Dist:
        raw = raw_of(model.row(path if key is None else key, len(path)), path, self.request)
        return Dist(shaped_of(raw, path, self.request), raw, len(path) if place is None else place)

    def value(self, e: Any) -> Any:
        handler: Callable[[Any], Any] = getattr(self, "_" + type(e).__name__.lower())
        return handler(e)

    def _num(self, e: L.Num) -> Any:
        if e.text in ("yes", "no"):
            return e.text == "yes"
        if e.text[0] == '"':
            return e.text[1:-1]
        if e.text in ("none", "inf"):
            return None if e.text == "none" else float("inf")
        return int(e.text) if "." not in e.text else Fraction(e.text)

    def _name(self, e: L.Name) -> Any:
        for scope in (self.env, self.states, self.world.params, self.world.models):
            if e.id in scope:
                return scope[e.id]
        return functions.word(self, e.id)

    def _bin(self, e: L.Bin) -> Any:
        left = self.value(e.left)
        if e.op in ("and", "or") and isinstance(left, bool):
            return left if left == (e.op == "or") else self.value(e.right)
        return combine(e.op, left, self.value(e.right))

    def _un(self, e: L.Un) -> Any:
        x = self.value(e.value)
        return deep(lambda y: not y, x) if e.op == "not" else deep(lambda y: -numbers(y), x)

    def _cond(self, e: L.Cond) -> Any:
        test = self.value(e.test)
        if isinstance(test, Many):
            raise Stuck("a condition of several")
        return self.value(e.then if test else e.other)

    def _where(self, e: L.Where) -> Any:
        xs, mask = self.value(e.value), self.value(e.mask)
        if len(xs) != len(mask):
            raise Stuck("a filter of another length")
        return Many([x for x, m in zip(xs, mask, strict=True) if m])

    def _listed(self, e: L.Listed) -> Any:
        return Many(map(self.value, e.items))

    def _comprehension(self, e: L.Comprehension) -> Any:
        out = []
        for x in self.value(e.over):
            self.env[e.name] = x
            if e.test is None or self.truth(self.value(e.test)):
                out.append(self.value(e.value))
        return Many(out)

    def _attr(self, e: L.Attr) -> Any:
        return functions.attribute(self, self.value(e.value), e.name)

    def _index(self, e: L.Index) -> Any:
        if isinstance(e.subs[0], L.Slice):
            low, high = (None if x is None else int(self.value(x)) for x in (e.subs[0].low, e.subs[0].high))
            found = self.value(e.value)
            return Many(found[low:high])
        found, subs = self.value(e.value), [self.value(s) for s in e.subs]
        if len(subs) == 2 and isinstance(subs[0], Many) and isinstance(subs[1], Many):
            return Many([taken(taken(found, i), j) for i, j in zip(*subs, strict=True)])
        for s in subs:
            found = taken(found, s)
        return found

    def _call(self, e: L.Call) -> Any:
        return functions.called(self, e)


__all__ = ["Drawn", "Left", "Machine", "Verdict"]
