"""Programs with small mistakes in them: words and expressions exchanged for others of the same or another program."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from decgraph.dsl import syntax as s
from decgraph.dsl.parse import parse_text
from lib.programs.corpus import NAMES, program

WORD = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|\"[^\"]*\"|\S|[ \t]+|\n")


def pieces(text: str) -> list[tuple[int, int]]:
    """Where the expressions of a text stand."""
    return [(n.span.start, n.span.end) for n in s.walk(parse_text(text)) if isinstance(n, s.Expr) and n.span]


def mutants(seed: int, count: int) -> Iterator[str]:
    """`count` texts: most read, and few of those mean something."""
    rng = random.Random(seed)
    texts = [program(n) for n in NAMES if n != "everything"]
    places = [pieces(t) for t in texts]
    exprs = sorted({t[a:b] for t, p in zip(texts, places, strict=True) for a, b in p if b - a < 60})
    names = [e for e in exprs if e.isidentifier()]
    for _ in range(count):
        i = rng.randrange(len(texts))
        text = program_text = texts[i]
        kind = rng.random()
        if kind < 0.7:  # expressions for expressions, from the back, so that places stay right
            chosen = sorted({rng.choice(places[i]) for _ in range(rng.randint(1, 2))}, reverse=True)
            for a, b in chosen:
                x, y = rng.choice(places[i])  # mostly of the same program, whose names are known
                same = program_text[x:y] if y - x < 60 else rng.choice(names)
                other = same if rng.random() < 0.85 else rng.choice(exprs)
                text = text[:a] + other + text[b:]
        elif kind < 0.85:  # lines
            lines = text.split("\n")
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            if rng.random() < 0.5:
                lines[a], lines[b] = lines[b], lines[a]
            else:
                del lines[a]
            text = "\n".join(lines)
        else:  # words
            words = WORD.findall(text)
            at = [j for j, w in enumerate(words) if w.strip()]
            j, k = rng.choice(at), rng.choice(at)
            words[j] = rng.choice([words[k], "", rng.choice(names)])
            text = "".join(words)
        yield text
