"""Reads the part of the language that the oracle judges: `.dec` text to the dataclasses of `language.py`."""

from __future__ import annotations

import re
from typing import Any

from oracle import language as L

TOKEN = re.compile(r'\s*(?:(\d+\.\d+|\d+)|("[^"]*")|([A-Za-z_]\w*)|(\+\+|\.\.|<=|>=|==|!=|[-+*/%^()\[\],.:<>=~]))')
WORDS = ("yes", "no", "none", "inf")


class Unreadable(Exception):
    """The text is outside of the part of the language that is read here."""


class Expression:
    """One line's expression, read by precedence."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        self.text, at = text, 0
        while at < len(text.rstrip()):
            found = TOKEN.match(text, at)
            if found is None:
                raise Unreadable(text)
            self.tokens.append(found.group(0).strip())
            at = found.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, token: str = "") -> str:
        got = self.peek()
        if (token and got != token) or not got:
            raise Unreadable(f"{self.text!r}: expected {token!r}, got {got!r}")
        self.at += 1
        return got

    def gone(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def whole(self) -> Any:
        e = self.cond()
        if self.peek():
            raise Unreadable(f"{self.text!r}: {self.peek()!r} was not expected")
        return e

    def cond(self) -> Any:
        e = self.filtered()
        if self.gone("if"):
            test = self.filtered()
            self.take("else")
            return L.Cond(test, e, self.cond())
        return e

    def filtered(self) -> Any:
        e = self.binary(0)
        return L.Where(e, self.binary(0)) if self.gone("where") else e

    ORDER = (("or",), ("and",), ("not",), ("==", "!=", "<", ">", "<=", ">="), ("..",), ("+", "-", "++"), ("*", "/", "%"))

    def binary(self, level: int) -> Any:
        if level == len(self.ORDER):
            return self.unary()
        if self.ORDER[level] == ("not",):
            return L.Un("not", self.binary(level)) if self.gone("not") else self.binary(level + 1)
        e = self.binary(level + 1)
        while self.peek() in self.ORDER[level]:
            e = L.Bin(self.take(), e, self.binary(level + 1))
        return e

    def unary(self) -> Any:
        if self.gone("-"):
            return L.Un("-", self.unary())
        e = self.postfix()
        return L.Bin("^", e, self.unary()) if self.gone("^") else e

    def postfix(self) -> Any:
        e = self.atom()
        while True:
            if self.gone("."):
                e = L.Attr(e, self.take())
            elif self.gone("("):
                e = self.call(e)
            elif self.gone("["):
                subs = [self.sub()]
                while self.gone(","):
                    subs.append(self.sub())
                self.take("]")
                e = L.Index(e, tuple(subs))
            else:
                return e

    def call(self, func: Any) -> Any:
        args, named = [], []
        while not self.gone(")"):
            if self.tokens[self.at + 1] == "=":
                name = self.take()
                self.take("=")
                named.append((name, self.cond()))
            else:
                args.append(self.cond())
            if self.peek() != ")":
                self.take(",")
        return L.Call(func, tuple(args), tuple(named))

    def sub(self) -> Any:
        low = None if self.peek() == ":" else self.cond()
        if not self.gone(":"):
            return low
        return L.Slice(low, None if self.peek() in ("]", ",") else self.cond())

    def atom(self) -> Any:
        token = self.take()
        if token == "(":
            e = self.cond()
            self.take(")")
            return e
        if token == "[":
            return self.listed()
        if token[0].isdigit() or token[0] == '"' or token in WORDS:
            return L.Num(token)
        if not (token[0].isalpha() or token[0] == "_"):
            raise Unreadable(f"{self.text!r}: {token!r} was not expected")
        return L.Name(token)

    def listed(self) -> Any:
        if self.gone("]"):
            return L.Listed(())
        first = self.cond()
        if self.gone("for"):
            name = self.take()
            self.take("in")
            over = self.filtered()
            test = self.filtered() if self.gone("if") else None
            self.take("]")
            return L.Comprehension(first, name, over, test)
        items = [first]
        while self.gone(","):
            items.append(self.cond())
        self.take("]")
        return L.Listed(tuple(items))


def expr(text: str) -> Any:
    """One expression."""
    return Expression(text).whole()


def split(text: str, words: str) -> list[str]:
    """`text` cut at the first ` word ` of each of `words` that it has, outside of brackets; missing ones give ''."""
    out, rest = [], text
    for word in words.split()[::-1]:
        depth = 0
        for i in range(len(rest) - 1, -1, -1):
            depth += (rest[i] in ")]") - (rest[i] in "([")
            if depth == 0 and rest[i:].startswith(f" {word} "):
                out.append(rest[i + len(word) + 2 :])
                rest = rest[:i]
                break
        else:
            out.append("")
    return [rest.strip(), *(o.strip() for o in out[::-1])]


def statement(line: str, body: tuple[Any, ...], other: tuple[Any, ...]) -> Any:
    """One statement; `body` and `other` are the blocks below it and below its `else`."""
    word, _, rest = line.partition(" ")
    plain = rest.rstrip(":").strip()
    if word == "draft":
        name, of = split(plain, "of")
        return L.Draft(name, expr(of) if of else None, body)
    if word == "repeat":
        count, cond = split(plain, "while")
        return L.Repeat(expr(count), expr(cond) if cond else None, body)
    if word == "for":
        name, over = split(plain, "in")
        return L.For(name, expr(over), body)
    if word == "while":
        return L.While(expr(plain), body)
    if word == "if":
        return L.If(expr(plain), body, other)
    if word == "break":
        return L.Break(expr(rest[3:]) if rest.startswith("if ") else None)
    if word == "verify":
        tree, rule, against = split(rest, "by against")
        return L.Verify(expr(tree), expr(rule), expr(against))
    if word in ("commit", "accept", "emit"):
        return {"commit": L.Commit, "accept": L.Accept, "emit": L.Emit}[word](expr(rest))
    if word == "grow":
        value, at = split(rest, "at")
        return L.Grow(expr(value), expr(at) if at else None)
    if word == "canvas":
        name, _, size = rest.partition(":")
        return L.Canvas(name.strip(), expr(size))
    if word == "unmask":
        target, where, value = split(rest, "where with")
        return L.Unmask(expr(target), expr(where) if where else None, expr(value))
    if word == "noise":
        name, _, kind = rest.partition(":")
        e = expr(name)
        return L.Noise(e.value.id, e.subs, kind.strip())
    if " ~ " in line:
        name, _, value = line.partition(" ~ ")
        value, output, using = split(value, "as using")
        spoken = None if not output else True if output == "output" else expr(output).args[0]
        return L.Draw(name.strip(), expr(value), spoken, using)
    found = re.match(r"(.+?) (\+=|-=|\+\+=|=) (.+)$", line)
    if found is None:
        raise Unreadable(line)
    return L.Assign(expr(found[1]), found[2], expr(found[3]))


Lines = list[tuple[int, str]]


def block(rows: Lines, depth: int) -> tuple[Any, ...]:
    """The statements at `depth`, taken from the front of `rows`."""
    out = []
    while rows and rows[0][0] == depth:
        _, line = rows.pop(0)
        body = block(rows, depth + 1) if line.endswith(":") else ()
        other: tuple[Any, ...] = ()
        if rows and rows[0] == (depth, "else:"):
            rows.pop(0)
            other = block(rows, depth + 1)
        out.append(statement(line, body, other))
    return tuple(out)


def param(text: str) -> L.Param:
    """One declared parameter."""
    head, _, default = text.partition(" = ")
    name, _, kind = head.partition(":")
    found = re.match(r"(.+?) in ([-\d.]+?)\.\.([-\d.]+)$", kind.strip())
    if found is None:
        return L.Param(name.strip(), kind.strip(), default=default.strip())
    return L.Param(name.strip(), found[1], found[2], found[3], default.strip())


def params(text: str) -> tuple[L.Param, ...]:
    """Declared parameters, between their brackets."""
    out, depth, start = [], 0, 0
    for i, ch in enumerate(text + ","):
        depth += (ch in "([") - (ch in ")]")
        if ch == "," and depth == 0:
            if text[start:i].strip():
                out.append(param(text[start:i].strip()))
            start = i + 1
    return tuple(out)


def claim(line: str) -> Any:
    """A claim, or None where the line is none."""
    if line.startswith("refines "):
        rest, greedy = line[8:], line.endswith(" when greedy")
        rest = rest[: -len(" when greedy")] if greedy else rest
        spec, mode = split(rest, "in")
        return L.Refines(expr(spec), mode or "distribution", greedy)
    if line.startswith("keeps support of "):
        return L.Keeps(line[17:])
    return L.Ensures(expr(line[8:])) if line.startswith("ensures ") else None


def state(line: str) -> L.State | None:
    """A state, or None where the line is none."""
    found = re.match(r"state (\w+): (.+?) per (\w+) = (.+)$", line)
    return L.State(found[1], found[2], found[3], expr(found[4])) if found else None


def program(text: str) -> L.Program:
    """A whole file: rules, and the algorithm that comes last."""
    rows: Lines = []
    for row in text.splitlines():
        bare = row.split("#")[0].rstrip()
        if bare and not bare.lstrip().startswith('"""'):
            rows.append(((len(bare) - len(bare.lstrip())) // 4, bare.strip()))
    rules, made = [], None
    while rows:
        _, head = rows.pop(0)
        found = re.match(r"(algorithm|rule) (\w+)\((.*)\):$", head)
        if found is None:
            raise Unreadable(head)
        if found[1] == "rule":
            rules.append(L.Rule(found[2], params(found[3]), block(rows, 1)))
            continue
        claims, states = [], []
        while rows and (claim(rows[0][1]) or state(rows[0][1])):
            line = rows.pop(0)[1]
            c = claim(line)
            claims += [c] if c else []
            s = state(line)
            states += [s] if s else []
        made = L.Program(found[2], params(found[3]), tuple(claims), tuple(states), block(rows, 1), tuple(rules))
    if made is None:
        raise Unreadable("there is no algorithm")
    return made
