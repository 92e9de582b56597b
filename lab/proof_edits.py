"""Random edits of programs that have a derivation, in the text of their IR and in their own text.

An edit of IR exchanges values of equal type, drops, doubles and moves operations, changes constants, functions, noises and
other attributes, and exchanges branches and yields; it touches rules as well, which stand in the program as regions.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from dataclasses import dataclass, field

from decgraph.ir.text import print_module
from decgraph.ir.values import Module

NAME = re.compile(r"%[%\w.]+")
MADE = re.compile(r"(%[%\w.]+): ([^=(){}]+?)(?=, %| = |\)|$)")
ATTR = re.compile(r'(\w+) = ("[^"]*"|true|false|none|-?\d+(?:/\d+)?(?:\.\d+)?)')
KEPT = ("text", "spec", "mode", "main", "path", "callee", "tree", "vocab", "type", "rule", "bound", "capacity")
"""Attributes that say what a value is called, which no edit changes."""


@dataclass
class Pool:
    """Lines of a function's body, and what stands in several programs: the values that an attribute of an operation takes."""

    values: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))

    def learn(self, module: Module) -> None:
        """Note the attributes of a module's operations."""
        for line in print_module(module).splitlines():
            code = opcode(line)
            for name, value in ATTR.findall(line) if code else ():
                self.values[code, name].add(value)


def opcode(line: str) -> str:
    """The operation of a line of IR, or ""."""
    found = re.match(r"\s*(?:%.*? = )?([a-z][\w.]*)\(", line)
    return found.group(1) if found and found.group(1) not in ("func", "module", "claim") else ""


def types_of(lines: list[str]) -> dict[str, str]:
    """The type of each value that a function's lines define."""
    return {name: kind.strip() for line in lines for name, kind in MADE.findall(line)}


def edited(rng: random.Random, text: str, function: str, pool: Pool) -> str:
    """The text of a module with one random edit in a function's body. It need not be a module any more."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"func {function}("))
    end = next(n for n in range(start, len(lines)) if lines[n] == "}")
    first = next(n for n in range(start, end) if lines[n] == "  body {") + 1
    body, types = lines[first : end - 1], types_of(lines[start:end])
    for _ in range(20):  # many places have nothing that a kind of edit could change
        rng.choices(EDITS, WEIGHTS)[0](rng, body, types, pool)
        if body != lines[first : end - 1]:
            break
    return "\n".join([*lines[:first], *body, *lines[end - 1 :]]) + "\n"


def _at(rng: random.Random, body: list[str], what: str = "%") -> int:
    """A random line with something in it."""
    found = [n for n, line in enumerate(body) if what in line]
    return rng.choice(found) if found else 0


def _uses(line: str) -> list[re.Match[str]]:
    """The values that a line reads."""
    head, mark, rest = line.partition(" = ") if re.match(r"\s*%", line) and " = " in line else ("", "", line)
    shift = len(head) + len(mark)
    inner = rest.split(") (")[0] if rest.rstrip().endswith("{") else rest
    return list(NAME.finditer(line, shift, shift + len(inner)))


def another_value(rng: random.Random, body: list[str], types: dict[str, str], pool: Pool) -> None:
    """A value in the place of another of its type."""
    n = _at(rng, body)
    if not (uses := _uses(body[n])):
        return
    use = rng.choice(uses)
    later = types_of(body[n:])
    same = [v for v, t in types.items() if t == types.get(use.group()) and v != use.group() and v not in later]
    if same:
        body[n] = body[n][: use.start()] + rng.choice(same) + body[n][use.end() :]


def exchanged_operands(rng: random.Random, body: list[str], types: dict[str, str], pool: Pool) -> None:
    """Two values of a line in each other's place: operands, or what a branch yields."""
    n = _at(rng, body)
    uses = _uses(body[n])
    pairs = [(a, b) for i, a in enumerate(uses) for b in uses[i + 1 :] if types.get(a.group()) == types.get(b.group())]
    if pairs:
        a, b = rng.choice(pairs)
        body[n] = body[n][: a.start()] + b.group() + body[n][a.end() : b.start()] + a.group() + body[n][b.end() :]


def dropped(rng: random.Random, body: list[str], types: dict[str, str], pool: Pool) -> None:
    """A line without what it says: another value of the type stands for what it made."""
    n = _at(rng, body)
    if body[n].rstrip().endswith("{") or "yield" in body[n]:
        return
    for name, kind in MADE.findall(body[n].split(" = ")[0]) if " = " in body[n] else ():
        same = [v for v, t in types.items() if t == kind.strip() and v != name]
        if not same:
            return
        other = rng.choice([v for v in same if v in body[n]] or same)
        body[:] = [re.sub(re.escape(name) + r"(?![\w.])", other, line) for line in body]
    del body[n]


def doubled(rng: random.Random, body: list[str], types: dict[str, str], pool: Pool) -> None:
    """An operation twice; one reader of what it made reads the copy."""
    n = _at(rng, body)
    if body[n].rstrip().endswith("{") or "yield" in body[n]:
        return
    copy = body[n]
    for name, _ in MADE.findall(copy.split(" = ")[0]) if " = " in copy else ():
        copy = re.sub(re.escape(name) + r"(?![\w.])", name + ".again", copy, count=1)
        reads = [m for m in range(n + 1, len(body)) if re.search(re.escape(name) + r"(?![\w.])", body[m])]
        if reads:
            m = rng.choice(reads)
            body[m] = re.sub(re.escape(name) + r"(?![\w.])", name + ".again", body[m])
    body.insert(n + 1, copy)


def moved(rng: random.Random, body: list[str], types: dict[str, str], pool: Pool) -> None:
    """A line elsewhere: across others, a commit, or the beginning or end of a loop."""
    n = _at(rng, body)
    if body[n].rstrip().endswith("{") or "yield" in body[n]:
        return
    line = body.pop(n)
    body.insert(min(max(0, n + rng.choice((-8, -4, -2, -1, 1, 2, 4, 8, 16))), len(body)), line)


def another_attribute(rng: random.Random, body: list[str], types: dict[str, str], pool: Pool) -> None:
    """Another constant, function, noise, column or flag, of those that such an operation has anywhere."""
    n = _at(rng, body, " = ")
    code = opcode(body[n])
    places = [m for m in ATTR.finditer(body[n]) if m.group(1) not in KEPT]
    if not places:
        return
    place = rng.choice(places)
    values = sorted(pool.values.get((code, place.group(1)), ()))
    if code == "const":
        values = {"true": ["false"], "false": ["true"]}.get(place.group(2), ["0", "1", "2", "3"])
    if code == "noise" and place.group(1) == "site":  # the noise of another draw of this program
        values = sorted({m.group() for line in body for m in re.finditer(r'(?<=site = )"[^"]*"', line)})
    if values:
        body[n] = body[n][: place.start(2)] + rng.choice(values) + body[n][place.end(2) :]


def another_noise(rng: random.Random, body: list[str], types: dict[str, str], pool: Pool) -> None:
    """A noise keyed by fewer loops, or of the output stream."""
    n = _at(rng, body, "= noise(")
    if rng.random() < 0.5:
        body[n] = re.sub(r"noise\(.*\)", 'noise(kind = "output", site = "output")', body[n])
    elif uses := _uses(body[n]):
        gone = rng.choice(uses).group()
        body[n] = re.sub(re.escape(gone) + r"(?![\w.])(, )?", "", body[n])


def exchanged_branches(rng: random.Random, body: list[str], types: dict[str, str], pool: Pool) -> None:
    """What is done where a condition holds is done where it does not."""
    n = _at(rng, body, "if(")
    indent = len(body[n]) - len(body[n].lstrip())
    same = [m for m in range(n + 1, len(body)) if len(body[m]) - len(body[m].lstrip()) == indent]
    if "if(" in body[n] and len(same) > 1:
        middle, last = same[:2]
        body[n + 1 : last] = [*body[middle + 1 : last], body[middle], *body[n + 1 : middle]]


def exchanged_lines(rng: random.Random, body: list[str], types: dict[str, str], pool: Pool) -> None:
    """Two lines of the same region in each other's place."""
    n = _at(rng, body)
    same = [
        m
        for m in range(len(body))
        if abs(m - n) < 12 and len(body[m]) - len(body[m].lstrip()) == len(body[n]) - len(body[n].lstrip())
    ]
    m = rng.choice(same)
    if not any(line.rstrip().endswith("{") or "yield" in line or "}" in line for line in (body[n], body[m])):
        body[n], body[m] = body[m], body[n]


EDITS = (
    another_value,
    exchanged_operands,
    dropped,
    doubled,
    moved,
    another_attribute,
    another_noise,
    exchanged_branches,
    exchanged_lines,
)
WEIGHTS = (6, 3, 4, 2, 3, 5, 2, 1, 1)


def edited_text(rng: random.Random, text: str) -> str:
    """A program with one random edit in its own text: a line doubled, dropped, moved or indented, or a word exchanged."""
    lines = text.splitlines()
    conditions = [n for n, line in enumerate(lines) if " when " in line and re.match(r"\s*(refines|keeps) ", line)]
    if conditions and rng.random() < 0.5:
        chosen = rng.choice(conditions)
        lines[chosen] = edited_condition(rng, lines[chosen])
        return "\n".join(lines) + "\n"
    first = max((n for n, line in enumerate(lines) if re.match(r"\s*(refines|keeps|ensures) ", line)), default=0) + 1
    n = rng.randrange(min(first, len(lines) - 1), len(lines))
    kind = rng.randrange(5)
    if kind == 0:
        lines.insert(n, lines[n])
    elif kind == 1:
        del lines[n]
    elif kind == 2:
        lines.insert(rng.randrange(first, len(lines)), lines.pop(n))
    elif kind == 3:
        lines[n] = ("    " + lines[n]) if rng.random() < 0.5 else lines[n].removeprefix("    ")
    else:
        words = sorted({w for line in lines[first:] for w in re.findall(r"[A-Za-z_]\w*|\d+|[-+*/<>=]+", line)})
        places = list(re.finditer(r"[A-Za-z_]\w*|\d+|[-+*/<>=]+", lines[n]))
        if places and words:
            place = rng.choice(places)
            lines[n] = lines[n][: place.start()] + rng.choice(words) + lines[n][place.end() :]
    return "\n".join(lines) + "\n"


def edited_condition(rng: random.Random, line: str) -> str:
    """A claim with another number or comparison in its condition, or with one more than it asks for."""
    claim, when, condition = line.partition(" when ")
    places = list(re.finditer(r"\d+|[<>=]=?|\bor\b|\band\b", condition))
    if not places or rng.random() < 0.3:
        return f"{claim}{when}{condition} {rng.choice(('+', '-'))} 1"
    place = rng.choice(places)
    number = place.group().isdigit()
    other = (
        str(max(0, int(place.group()) + rng.choice((-1, 1))))
        if number
        else rng.choice((">=", "<=", "==", "<", ">", "or", "and"))
    )
    return claim + when + condition[: place.start()] + other + condition[place.end() :]
