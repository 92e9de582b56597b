"""Copy and dead-code elimination in a kernel's text: variables of the same value get one name, and unread values are dropped.

The emitter writes every value of the IR as variables of its own (a distribution is four: point, base, mass, slot) and copies
them where branches join, as SSA does. Here the variables of a copy `a = b` that are never live at the same time become one,
constants are propagated, and assignments that no store or condition depends on are dropped. The results of a kernel do not
change.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache

Names = frozenset[str]
PLAIN = (ast.Assign, ast.AugAssign, ast.Expr, ast.If, ast.While, ast.For, ast.AnnAssign, ast.Pass)


@lru_cache(maxsize=256)
def tidied(body: str, taken: frozenset[str]) -> str:
    """The body of a kernel (lines indented by four), tidied; unchanged where it has statements that this module does not
    handle. taken: names that variables leave alone."""
    lines = body.splitlines()
    if any(isinstance(n, ast.stmt) and not isinstance(n, PLAIN) for s in parsed(lines) for n in ast.walk(s)):
        return body
    lines = without_dead(lines)
    while True:
        made = without_dead(renamed(lines, parsed(lines)))
        if made == lines:
            return "\n".join(unnumbered(lines, taken)) + "\n"
        lines = made


def parsed(lines: Sequence[str]) -> list[ast.stmt]:
    """The statements of a kernel's body."""
    return ast.parse(textwrap.dedent("\n".join(lines))).body


def assigned(s: ast.stmt) -> Names:
    """The variables that a statement assigns, those of nested ones not among them."""
    if isinstance(s, ast.Assign):
        targets: Sequence[ast.expr] = s.targets
    elif isinstance(s, ast.AugAssign | ast.AnnAssign | ast.For):
        targets = [s.target]
    else:
        targets = []
    return frozenset(n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))


def read(s: ast.stmt) -> Names:
    """The names that a statement reads, those of nested statements not among them."""
    if isinstance(s, ast.If | ast.While):
        parts: list[ast.AST] = [s.test]
    elif isinstance(s, ast.For):
        parts = [s.iter]
    elif isinstance(s, ast.Pass) or s is None:
        parts = []
    else:
        parts = [s]
    found = {n.id for p in parts for n in ast.walk(p) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return frozenset(found | (assigned(s) if isinstance(s, ast.AugAssign) else set()))


def copied(s: ast.stmt) -> tuple[str, str] | None:
    """(a, b) of a statement `a = b`."""
    if isinstance(s, ast.Assign) and isinstance(s.value, ast.Name) and isinstance(s.targets[0], ast.Name):
        return s.targets[0].id, s.value.id
    return None


def statements(tree: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, nested ones too."""
    for s in tree:
        yield s
        for block in blocks(s):
            yield from statements(block)


def blocks(s: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement."""
    return [s.body, s.orelse] if isinstance(s, ast.If | ast.While | ast.For) else []


class Interference:
    """The interference graph of variables: those in `apart[a]` are live together with a."""

    def __init__(self, tree: Sequence[ast.stmt]) -> None:
        self.apart: defaultdict[str, set[str]] = defaultdict(set)
        self.block(tree, frozenset())

    def block(self, tree: Sequence[ast.stmt], live: Names) -> Names:
        """The variables live before some statements, given those live after them."""
        for s in reversed(tree):
            live = self.statement(s, live)
        return live

    def statement(self, s: ast.stmt, live: Names) -> Names:
        if isinstance(s, ast.If):
            return self.block(s.body, live) | self.block(s.orelse, live) | read(s)
        if isinstance(s, ast.While | ast.For):
            around = live | read(s)
            while True:
                again = self.block(s.body, around - assigned(s)) | around
                self.made(s, again)
                if again == around:
                    return around
                around = again
        self.made(s, live)
        return (live - assigned(s)) | read(s)

    def made(self, s: ast.stmt, live: Names) -> None:
        pair = copied(s)
        for name in assigned(s):
            for other in live - {name} - ({pair[1]} if pair is not None else set()):
                self.apart[name].add(other)
                self.apart[other].add(name)


def renamed(lines: list[str], tree: Sequence[ast.stmt]) -> list[str]:
    """The lines with one name for both variables of a copy, and with constants in the place of constant variables."""
    everything = list(statements(tree))
    times: defaultdict[str, int] = defaultdict(int)
    first: dict[str, int] = {}
    for s in everything:
        for name in assigned(s):
            times[name] += 1
            first.setdefault(name, s.lineno)
    constants = {name for s in tree for name in assigned(s) if times[name] == 1 and is_constant(s)}
    apart = Interference(tree).apart
    now: dict[str, str] = {}

    def called(name: str) -> str:
        while name in now:
            name = now[name]
        return name

    copies = [pair for s in everything if (pair := copied(s)) is not None]
    back = {(b, a) for a, b in copies}
    for a, b in sorted(copies, key=lambda pair: pair not in back):  # loop-carried variables first
        a, b = called(a), called(b)
        if a == b or a in constants:
            continue
        if b in constants:
            if times[a] == 1:
                now[a] = b
        elif times[b] and b not in apart[a]:
            keep, drop = sorted((a, b), key=lambda name: first[name])
            now[drop] = keep
            times[keep] += times[drop]
            apart[keep] |= apart[drop]
            for other in apart[drop]:
                apart[other].add(keep)
    return substituted(lines, {name: called(name) for name in now})


def unnumbered(lines: list[str], taken: Set[str]) -> list[str]:
    """The lines without the numbers of names that are unique without them."""
    words = {w for line in lines for w in re.findall(r"\w+", line.partition("  #")[0])} | taken
    now = {}
    for name in sorted(n for s in statements(parsed(lines)) for n in assigned(s)):
        short = re.sub(r"_\d+(?=_|$)", "", name)
        if short != name and short not in words and not re.fullmatch(r"int_\d+|real_\w+|lane_\d+|int_minus_\d+", name):
            now[name] = short
            words.add(short)
    return substituted(lines, now)


def is_constant(s: ast.stmt) -> bool:
    """Whether a statement assigns a constant."""
    return isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) and ast.unparse(s.value).startswith("tl.full((),")


def substituted(lines: list[str], names: Mapping[str, str]) -> list[str]:
    """The lines with names replaced."""
    if not names:
        return lines
    pattern = re.compile(rf"(?<![\w.])({'|'.join(names)})\b")
    return [pattern.sub(lambda m: names[m[1]], line.partition("  #")[0]) + "".join(line.partition("  #")[1:]) for line in lines]


def without_dead(lines: list[str]) -> list[str]:
    """The lines without assignments that no store, condition or other effect depends on, and without copies of a variable to
    itself."""
    tree = parsed(lines)
    everything = list(statements(tree))
    needed = {n for s in everything if not isinstance(s, ast.Assign | ast.AugAssign) for n in read(s)}
    while True:
        more = needed | {n for s in everything if assigned(s) & needed for n in read(s)}
        if more == needed:
            break
        needed = more
    dead = set()
    for s in everything:
        pair = copied(s)
        gone = isinstance(s, ast.Assign | ast.AugAssign) and not assigned(s) & needed
        if gone or pair is not None and pair[0] == pair[1]:
            dead |= set(range(s.lineno - 1, (s.end_lineno or s.lineno)))
    return without_empty([line if n not in dead else dropped(line) for n, line in enumerate(lines)])


def dropped(line: str) -> str:
    """The rest of a dropped line: the mark of the source line that it was the first for."""
    return line.partition("  #")[2].strip() and "#" + line.partition("  #")[2]


def without_empty(lines: list[str]) -> list[str]:
    """The lines without empty blocks; marks of dropped lines go to the next one."""
    out: list[str] = []
    mark = ""
    for line in lines:
        if not line.strip() or line.startswith("# "):
            mark = line[2:] if line.startswith("# ") else mark
            continue
        if mark and "  # " not in line and not line.strip().startswith("else"):
            line = f"{line}  # {mark}"
        mark = "" if not line.strip().startswith("else") else mark
        out.append(line)
    n = 0
    while n < len(out):
        code = out[n].partition("  #")[0].rstrip()
        depth = len(code) - len(code.lstrip())
        after = out[n + 1] if n + 1 < len(out) else ""
        empty = code.endswith(":") and (not after or len(after) - len(after.lstrip()) <= depth)
        if not empty:
            n += 1
        elif code.strip() == "else:":
            del out[n]
            n = 0
        elif after.strip() == "else:" and len(after) - len(after.lstrip()) == depth and code.strip().startswith("if "):
            out[n] = f"{code[:depth]}if ({code.strip()[3:-1]}) == 0:" + out[n][len(code) :]
            del out[n + 1]
        else:
            del out[n]
            n = 0
    return out
