"""Random edits of the text of true programs: one or two changes of kinds that people make, each said in words."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from oracle.bases import TEXTS

Lines = list[str]
INNER = r"[^()\[\]]*(?:\([^()]*\)[^()\[\]]*|\[[^\[\]]*\][^()\[\]]*)*"  # between the brackets of a call
BLOCKS = ("repeat ", "for ", "while ", "if ", "draft ")
MAIN = "    while not done:"

WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "off_by_one": (r"(?<![\w.])(?P<n>\d+)(?![\w.])", ("{n} + 1", "{n} - 1")),
    "longer": (r"repeat (?P<n>[\w.]+)", ("repeat {n} + 1", "repeat {n} + 2", "repeat {n} - 1")),
    "another_number": (r"\b\d+\.\d+", ("0", "1", "0.1", "0.3", "0.9", "0.99", "0.01")),
    "another_model": (r"\b(MODELS)(?=\()", ("MODEL",)),
    "raw": (rf"\b(?P<q>(?:MODELS)\({INNER}\))(?!\.)", ("{q}.raw",)),
    "shaped": (r"\.raw\b", ("",)),
    "another_place": (
        rf"\b(?P<m>MODELS)\({INNER}\)",
        tuple(f"{{m}}({p})" for p in ["ctx", "root", "t.leaves", "t.nodes", "t", "t.frontier", "t.drafted", "ctx.parent"]),
    ),
    "compares": (r" (<=?|>=?|==|!=) ", (" < ", " <= ", " > ", " >= ", " == ", " != ")),
    "arithmetic": (r" [-+*/] ", (" + ", " - ", " * ", " / ")),
    "turned": (r"(?P<a>[\w.]+(?:\[\w+\])?) (?P<op>[-/<>]) (?P<b>[\w.]+(?:\[\w+\])?)", ("{b} {op} {a}",)),
    "another_function": (
        r"\b(max|any|all|relu|sample|distinct|topk|first_max|min)(?=\()",
        ("min", "sum", "all", "any", "abs", "distinct", "topk", "sample", "rank", "max"),
    ),
    "forgotten": (rf"\b(?:normalize|relu|argmax|point)\((?P<inside>{INNER})\)", ("({inside})",)),
    "factor": (
        rf"bernoulli\((?P<inside>{INNER})\)",
        tuple(f"bernoulli(({{inside}}) * {c})" for c in ("2", "0.5", "0.9", "1.1", "1.001", "4")),
    ),
    "always": (
        rf"bernoulli\({INNER}\)",
        ("yes", "no", "p[x] > 0.5", "p[x] > 0", "p[x] >= x.law[x]", "bernoulli(p[x])", "bernoulli(1 - x.law[x])",
         "bernoulli(x.law[x])", "p[x] == max(p)", "bernoulli(0.5)", "max(p) > 0.9 and p[x] == max(p)"),
    ),
    "also_accepts": (
        r"(?<=        if )(?P<test>.+)(?=:$)",
        tuple(f"({{test}}) {word} {test}" for word in ("or", "and", "and not")
              for test in ("p[x] > 0.9", "p[x] > 0.99", "x == 1", "x.law[x] < 0.02", "max(p) > 0.9", "x.law[x] == 1",
                           "len(children) > 1", "p[x] < 0.01")),
    ),
    "another_law": (r"\bx\.law\b", ("onehot(x)", "children[0].law", "uniform(vocab)", "x.law * 2", "p")),
    "some_children": (r"(?<= in )children(?=:)", ("children[1:]", "children[:1]", "children[:2]")),
    "takes_likeliest": (r"(?P<x>\w+) ~ (?P<q>.+?)(?P<rest>$)", ("{x} = argmax({q})",)),
    "as_output": (r"(?P<draw>\w+ ~ .+?)(?: as output)?$", ("{draw} as output", "{draw}")),
    "as_point": (r"(?<=grow )(?P<x>\w+)\b", ("point({x}.token)",)),
    "another_value": (r"(?<![\w.])(OWN)\b(?!\()", ("VALUE",)),
    "another_step": (
        r"(?P<s>STATES) (?P<op>[-+]?=) .*$",
        tuple(f"{{s}} {{op}} {v}" for v in ("t.size", "t.accepted.depth", "t.height", "ctx.length", "0", "1")),
    ),
}  # fmt: skip
"""Edits of words: where one fits, and what may stand there instead."""


def parts(lines: Lines) -> tuple[list[int], list[int]]:
    """The numbers of lines that run, of rules and of the algorithm."""
    head = re.compile(r"(rule|algorithm|refines|keeps|ensures|state)\b")
    of_rules, of_main, inside = [], [], False
    for n, line in enumerate(lines):
        inside = inside or line.startswith("algorithm")
        bare = line.strip()
        if bare and bare != "else:" and not head.match(bare) and line != MAIN:
            (of_main if inside else of_rules).append(n)
    return of_rules, of_main


def block(lines: Lines, n: int) -> int:
    """Where a statement ends, with what is below it and below its `else`."""
    depth, end = len(lines[n]) - len(lines[n].lstrip()), n + 1
    while end < len(lines) and (
        len(lines[end]) - len(lines[end].lstrip()) > depth or lines[end].startswith(" " * depth + "else:")
    ):
        end += 1
    return end


def names(lines: Lines) -> dict[str, list[str]]:
    """The program's models, states and values."""
    text = "\n".join(lines)
    head = next(line for line in lines if line.startswith("algorithm"))
    models = re.findall(r"(\w+): (?:causal|masked)", head)
    states = re.findall(r"state (\w+):", text)
    values = re.findall(r"(\w+) ~ |for (\w+) in", text)
    own = {*states, *re.findall(r"(\w+): (?:int|prob)", head), *(a or b for a, b in values), "p", "x", "y"}
    return {"MODELS": models, "STATES": states or ["none of it"], "OWN": sorted(own)}


def word(kind: str, lines: Lines, r: random.Random) -> str:
    """One place of the program where a kind fits is changed."""
    pattern, instead = WORDS[kind]
    known = names(lines)
    for what, found in known.items():
        pattern = pattern.replace(what, "|".join(found))
    of_rules, of_main = parts(lines)
    where = [(n, m) for n in (*of_rules, *of_main) for m in re.finditer(pattern, lines[n])]
    if kind == "also_accepts":
        where = [(n, m) for n, m in where if n in of_rules]
    if not where:
        return ""
    n, m = r.choice(where)
    new = r.choice(instead).format(**m.groupdict())
    new = r.choice(known["MODELS"]) if new == "MODEL" else r.choice(known["OWN"]) if new == "VALUE" else new
    old, lines[n] = lines[n], lines[n][: m.start()] + new + lines[n][m.end() :]
    return f"`{old.strip()}` is `{lines[n].strip()}`" if lines[n] != old else ""


def condition(lines: Lines, n: int, r: random.Random) -> str:
    """A test that is true only somewhere: of lengths, tokens, probabilities, parameters, depths."""
    c, k, head = r.choice(["0.5", "0.9", "0.99", "0.01", "0.2"]), r.randint(1, 7), "\n".join(lines)
    if n in parts(lines)[0]:
        return r.choice([f"max(p) > {c}", f"min(p) < {c}", "len(children) > 1", "len(children) == 0", "p[0] > p[1]"])
    if "canvas c" in head:
        return r.choice(
            [f"count(c.decided) > {k - 1}", f"count(c.masked) == {k}", f"length > {k}", f"block > {r.randint(1, 3)}"]
        )
    pool = [f"ctx.length > {k}", f"ctx.length == {k}", f"ctx.token == {r.randint(0, 3)}", "ctx.length % 2 == 0", "greedy"]
    pool += ["ctx.length % 3 == 0", "not greedy"]
    pool += [f"{test.format(m)} {c}" for m in names(lines)["MODELS"] for test in ("max({}(ctx).raw) >", "min({}(ctx).raw) <")]
    pool += [f"{q} > {r.randint(int(a), int(b))}" for q, a, b in re.findall(r"(\w+): int in (\d+)\.\.(\d+)", head)]
    pool += [f"{q} > {c}" for q in re.findall(r"(\w+): prob", head)]
    if "draft t:" in head:
        pool += [f"t.height > {r.randint(0, 4)}", f"t.size > {r.randint(0, 5)}", f"t.size < {r.randint(1, 4)}"]
    return r.choice(pool)


def indented(lines: Lines) -> Lines:
    return [f"    {line}" for line in lines]


def moved(kind: str, lines: Lines, r: random.Random) -> str:
    """One statement is dropped, doubled, put elsewhere, or done only under a condition."""
    of_rules, of_main = parts(lines)
    if kind in ("before_loop", "once_more", "shared_noise", "leave") and MAIN not in lines:
        return ""
    n = r.choice(of_main if kind in ("before_loop", "leave") else (*of_rules, *of_main))
    end, depth = block(lines, n), lines[n][: len(lines[n]) - len(lines[n].lstrip())]
    here, said = lines[n:end], lines[n].strip()
    if kind == "drop":
        lines[n:end] = []
    elif kind == "twice":
        lines[n:end] = here * 2
    elif kind == "swap":
        if end >= len(lines) or not lines[end].startswith(f"{depth}") or lines[end][len(depth) :][:1] in (" ", ""):
            return ""
        last = block(lines, end)
        lines[n:last] = [*lines[end:last], *here]
    elif kind == "only_if":
        lines[n:end] = [f"{depth}if {condition(lines, n, r)}:", *indented(here)]
    elif kind == "leave":
        lines[end:end] = [f"{depth}break if {condition(lines, n, r)}"]
    elif kind == "before_loop":
        lines[n:end] = []
        lines[lines.index(MAIN) : lines.index(MAIN)] = [line.removeprefix(depth[4:]) for line in here]
    elif kind == "once_more":
        at = lines.index(MAIN)
        lines[at:at] = [line.removeprefix("    ") for line in lines[at + 1 : block(lines, at)]]
        said = "the loop's lines"
    else:
        draws = [i for i in of_main if " ~ " in lines[i] and not lines[i].endswith("as output")]
        if not draws:
            return ""
        n = r.choice(draws)
        lines[n] += " using g"
        lines.insert(lines.index(MAIN), "    noise g[vocab]: race")
        said = lines[n].strip()
    return f"{kind}: {said}"


def more(kind: str, lines: Lines, r: random.Random) -> str:
    """A further commit, or one of something else; a further draft; a stronger claim; a state of another scope."""
    model, token = r.choice(names(lines)["MODELS"]), r.randint(0, 2)
    if kind in ("stronger", "other_scope"):
        instead = {
            " in distribution": (" in tokens",),
            "keeps support of": ("ensures p[x] > 0",),
            "ensures": tuple(f"ensures {c}" for c in ("p[x] > 0.05", "p[x] > c", "p[x] >= 0.2", "p[x] > 0.001")),
        } if kind == "stronger" else {"per sequence": ("per session",), "per session": ("per sequence",)}  # fmt: skip
        places = [(n, old) for n, line in enumerate(lines) for old in instead if old in line]
        if not places:
            return ""
        n, old = r.choice(places)
        new = r.choice(instead[old])
        lines[n] = lines[n].replace(old, new) if old[:1] == " " or "per" in old else f"    {new}"
        return lines[n].strip()
    found = [n for n in parts(lines)[1] if lines[n].strip().startswith("commit " if kind == "commits" else "grow ")]
    if not found:
        return ""
    n = r.choice(found)
    depth = lines[n][: len(lines[n]) - len(lines[n].lstrip())]
    if kind == "commits":
        new = r.choice([
            [f"commit argmax({model}(ctx))"], [f"z ~ {model}(ctx)", "commit z"], ["commit x"],
            [f"z ~ {model}(ctx) as output", "commit z"],
        ])  # fmt: skip
    else:
        new = [r.choice([
            f"grow topk({model}(t.leaves).raw, 1)", f"grow sample({model}(root), 1) at root", "grow x", "grow point(x.token)",
            f"grow point({token}) at root", f"grow topk({model}(root).raw, 2) at root",
        ])]  # fmt: skip
    where = r.choice(["instead", "before", "after"]) if kind == "commits" else "after"
    lines[n + (where == "after") : n + (where != "before")] = [depth + line for line in new]
    return f"{where} of `{kind}`: {'; '.join(new)}"


MOVES = ("drop", "twice", "swap", "only_if", "leave", "before_loop", "once_more", "shared_noise")
MORE = ("commits", "drafts_more", "stronger", "other_scope")
KINDS: dict[str, Callable[[str, Lines, random.Random], str]] = {
    **dict.fromkeys(WORDS, word), **dict.fromkeys(MOVES, moved), **dict.fromkeys(MORE, more)
}  # fmt: skip


def late(kind: str, lines: Lines, r: random.Random) -> str:
    """An edit of one line, but only where a condition holds, or after some turns: else the line as it was."""
    before = list(lines)
    said = KINDS[kind](kind, lines, r)
    n = next((n for n, pair in enumerate(zip(before, lines, strict=False)) if pair[0] != pair[1]), -1)
    if not said or n < 0 or len(before) != len(lines) or n not in (*parts(before)[0], *parts(before)[1]):
        return ""
    end, depth = block(before, n), before[n][: len(before[n]) - len(before[n].lstrip())]
    counted = n in parts(before)[1] and MAIN in before and r.random() < 0.35
    test = f"late > {r.randint(0, 3)}" if counted else condition(before, n, r)
    lines[n:end] = [f"{depth}if {test}:", *indented(lines[n:end]), f"{depth}else:", *indented(before[n:end])]
    if counted:
        lines[block(lines, lines.index(MAIN)) :] = ["        late += 1", *lines[block(lines, lines.index(MAIN)) :]]
        claim = next(n for n, line in enumerate(lines) if re.match(r"    (refines|keeps|ensures) ", line))
        lines.insert(claim + 1, f"    state late: int per {r.choice(['sequence', 'sequence', 'session'])} = 0")
    return f"if {test}: {said}"


def edited(seed: int, loads: Callable[[str], bool], base: str = "") -> tuple[str, str]:
    """The text of a program that differs from a base in one change or two, and still loads; and what was changed."""
    r = random.Random(f"edit {seed}")
    while True:
        name = base or r.choice(sorted(TEXTS))
        lines, said = TEXTS[name].splitlines(), []
        for _ in range(1 if r.random() < 0.75 else 2):
            kind = r.choice(sorted(KINDS))
            how = late if r.random() < 0.35 and kind in WORDS else KINDS[kind]
            if what := how(kind, lines, r):
                said.append(f"{kind}: {what}")
        text = "\n".join(lines) + "\n"
        if said and text != TEXTS[name] and loads(text):
            return text, f"{name}; " + "; ".join(said)
