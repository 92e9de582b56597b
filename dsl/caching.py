"""Another cache policy for an algorithm, from outside: what `decgraph run --cache NAME` does to the program.

A policy changes results, so it is part of the program: this rewrites the syntax tree, and the result is lowered and checked
like any other.
"""

from __future__ import annotations

from dataclasses import replace

from decgraph.dsl import syntax as S
from decgraph.dsl.source import Source
from decgraph.errors import DecError
from decgraph.ir.values import Module


def with_policy(file: S.File, name: str, policy: str) -> S.File:
    """The file with `cache model by policy` in algorithm `name`, for its first masked model, in place of the policy it has.

    The line stands after the first canvas; policy "none" is no line. Raises DecError where there is no masked model or no
    canvas to cache.
    """
    item = file.named(name)
    if not isinstance(item, S.Algorithm):
        raise DecError(f"there is no algorithm `{name}` here")
    masked = next((p.name for p in item.params if p.type is not None and p.type.name == "masked"), None)
    if masked is None:
        raise DecError(
            f"`{name}` has no masked model, so it has nothing to cache by a policy",
            hint="what a causal model computed before is reused without asking: that reuse is exact",
        )
    body: list[S.Stmt] = []
    placed = False
    for stmt in item.body:
        if isinstance(stmt, S.CachePolicy) and isinstance(stmt.model, S.Name) and stmt.model.name == masked:
            continue
        body.append(stmt)
        if isinstance(stmt, S.Canvas) and not placed:
            placed = True
            if policy == "none":
                continue
            line = S.CachePolicy(S.Name(masked, span=stmt.span), S.Name(policy, span=stmt.span), span=stmt.span)
            body.append(line)
    if not placed and policy != "none":
        raise DecError(f"`{name}` declares no canvas at its top level, where a cache policy could stand")
    changed = replace(item, body=tuple(body))
    return replace(file, items=tuple(changed if i is item else i for i in file.items))


def lowered_with_policy(text: str, path: str, name: str, policy: str) -> Module:
    """Parse a text and lower it with another cache policy. Raises DecError."""
    from decgraph.dsl.lower import lower_file
    from decgraph.dsl.parse import parse_text

    return lower_file(with_policy(parse_text(text, path), name, policy), Source(text, path))
