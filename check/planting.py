"""A program as a syntax tree that can be rewritten. Its rules and helpers are copied in, so that no patch reaches the
specification."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar, overload

from decgraph.dsl import syntax as S
from decgraph.dsl.format import format_tree
from decgraph.dsl.lower import load_text
from decgraph.dsl.lower.library import ItemsInReach
from decgraph.dsl.parse import parse_text
from decgraph.dsl.source import Source
from decgraph.ir.values import Module

Rewritten = S.Node | tuple[S.Node, ...]
Rewrite = Callable[[S.Node], Rewritten]
"""What stands for a node: another one, and for a statement also several or none."""
T = TypeVar("T", bound=S.Node)
MARK = "planted_"
CLAIMS = (S.Refines, S.Ensures, S.KeepsSupport)


@overload
def rewrite(node: tuple[T, ...], f: Rewrite) -> tuple[T, ...]: ...
@overload
def rewrite(node: T, f: Rewrite) -> T: ...
def rewrite(node: Rewritten, f: Rewrite) -> Rewritten:
    """A tree with `f` applied to every node, inner ones first."""
    if isinstance(node, tuple):
        out: list[S.Node] = []
        for item in node:
            new = _rewritten(item, f)
            out.extend(new if isinstance(new, tuple) else (new,))
        return tuple(out)
    return _rewritten(node, f)


def _rewritten(node: S.Node, f: Rewrite) -> Rewritten:
    changed: dict[str, Any] = {}  # fields by name
    for part in fields(node):
        old = getattr(node, part.name)
        if part.name in ("span", "name_span") or not isinstance(old, tuple | S.Node):
            continue
        new = rewrite(old, f)
        if new is not old and new != old:
            changed[part.name] = new
    return f(replace(node, **changed) if changed else node)


@dataclass(frozen=True)
class Planting:
    """One algorithm's text, ready for patches. `patched` returns the module of a patch, or None where it changes nothing."""

    text: str
    path: str

    @cached_property
    def tree(self) -> S.File:
        """The file with copies, under names of their own, of every rule and helper that its algorithm uses."""
        file = parse_text(self.text, self.path)
        names = ItemsInReach(file, Source(self.text, self.path))
        entry = next(i for i in reversed(file.items) if isinstance(i, S.Algorithm))
        copies: dict[str, S.Item] = {}
        self._collect(entry, names, copies)
        rename = _renamed(set(copies))
        items: list[S.Item | S.Import] = [rewrite(i, rename) if i is entry else i for i in file.items]
        items += [replace(rewrite(i, rename), name=MARK + i.name) for i in copies.values()]
        return replace(file, items=tuple(items))

    def _collect(self, item: S.Item, names: ItemsInReach, out: dict[str, S.Item]) -> None:
        for node in _used(item):
            name = node.name
            found = names.get(name)
            if isinstance(found, S.Rule | S.Def) and name not in out:
                out[name] = found
                self._collect(found, names, out)

    @cached_property
    def entry(self) -> S.Algorithm:
        return next(i for i in reversed(self.tree.items) if isinstance(i, S.Algorithm))

    def patched(self, f: Rewrite) -> str | None:
        """The text with `f` applied to the algorithm and to its copies of rules and helpers; None if that changes nothing."""
        items = tuple(
            rewrite(i, f) if i is self.entry or (isinstance(i, S.Item) and i.name.startswith(MARK)) else i
            for i in self.tree.items
        )
        if items == self.tree.items:
            return None
        return format_tree(replace(self.tree, items=items))

    def load(self, text: str) -> Module:
        """The module of a patched text, unseen by the label check: here the exact check is the judge. Raises DecError where the
        compiler refuses it."""
        return load_text(text, self.path, check_labels=False)


def _used(item: S.Item) -> Iterator[S.Name]:
    """Names in the places of calls and rules, claims left out."""
    for part in S.children(item):
        for node in () if isinstance(part, CLAIMS) else S.walk(part):
            if isinstance(node, S.Call) and isinstance(node.func, S.Name):
                yield node.func
            if isinstance(node, S.Verify) and isinstance(node.rule, S.Name):
                yield node.rule


def _renamed(names: set[str]) -> Rewrite:
    def f(node: S.Node) -> S.Node:
        if isinstance(node, S.Call) and isinstance(node.func, S.Name) and node.func.name in names:
            return replace(node, func=S.Name(MARK + node.func.name))
        if isinstance(node, S.Verify) and isinstance(node.rule, S.Name) and node.rule.name in names:
            return replace(node, rule=S.Name(MARK + node.rule.name))
        return node

    return f
