"""The head of a generated module: its imports, and the ops that are declared with their operand types."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from decgraph.backends.torch.lowering import Lowered, registered
from decgraph.backends.torch.texts import MODULES, UniqueNames, arguments, filled, function_name
from decgraph.ir.table import lookup
from decgraph.ir.types import Dim, Type
from decgraph.ir.values import Op

OPS = "decgraph.backends.torch.ops"
GENERATED = "decgraph.backends.torch.generated"
SUPPORT = ("accept", "emit", "parse_dim", "parse_type", "reject", "typed_op", "until_done", "walk")


class Header:
    """The names that the functions of one generated module use from outside."""

    def __init__(self, titles: Iterable[str] = ()) -> None:
        self.titles = set(titles)  # the names of the module's own functions
        self.imports: dict[str, str] = {}  # name to the module that it comes from; "" for a module of MODULES
        self.declared: dict[str, str] = {}  # the text of a declaration to its name

    def need(self, name: str, module: str = "") -> str:
        """Import a name; returns its local name, which differs where a function of the module has that name."""
        called = f"{name}_" if name in self.titles else name
        self.imports[called] = module
        return called

    def call(self, op: Op, low: Lowered, names: UniqueNames) -> str:
        """The name of an op's lowering in the text."""
        place = imported(op)
        if place is not None and low.fn is registered(op.opcode):
            module, name = place
            if qualified(op, name):
                folder, _, file = module.rpartition(".")
                return f"{self.need(file, folder)}.{name}"
            return self.need(name, module)
        text = declaration(op)
        if text not in self.declared:
            self.declared[text] = names.fresh(function_name(low.name))
        for name in ("typed_op", "parse_type", "parse_dim"):
            if f"{name}(" in text:
                self.need(name, GENERATED)
        return self.declared[text]

    @staticmethod
    def declared_line(name: str, text: str) -> list[str]:
        """A declaration, on several lines where it is long."""
        if len(name) + len(text) < 110:
            return [f"{name} = {text}"]
        head, _, rest = text.partition("(")
        return [f"{name} = {head}(", *filled(arguments(rest[:-1]), 110, "    "), ")"]

    def text(self) -> str:
        """The imports as isort orders them, and the declarations."""
        lines = [MODULES[n] for n in sorted(self.imports) if n in MODULES]
        by_module: dict[str, list[str]] = {}
        for name, module in self.imports.items():
            if module:
                renamed = name.endswith("_") and name[:-1] in self.titles
                by_module.setdefault(module, []).append(f"{name[:-1]} as {name}" if renamed else name)
        if lines and by_module:
            lines.append("")
        lines += [f"from {module} import {', '.join(sorted(found))}" for module, found in sorted(by_module.items())]
        if self.declared:
            lines += ["", *(one for text, name in self.declared.items() for one in self.declared_line(name, text))]
        return "\n".join(lines)


def imported(op: Op) -> tuple[str, str] | None:
    """(module, function) of a lowering that depends on its op's attributes only."""
    fn = registered(op.opcode)
    if fn is None or "op" in inspect.signature(fn).parameters:
        return None
    return fn.__module__, fn.__name__


def qualified(op: Op, name: str) -> bool:
    """Whether a lowering is called by its qualified name: `trees.new`, since `new` alone says too little."""
    return "." in op.opcode and op.opcode.rpartition(".")[2] == name


def reserved(ops: Iterable[Op]) -> set[str]:
    """The names that variables leave to the functions and modules that the ops of a function may need."""
    out = {*SUPPORT, *MODULES, "law", "probability"}
    for op in ops:
        if op.opcode == "each":
            out.add("stacked")
        place = imported(op)
        if place is not None:
            out.add(place[0].rpartition(".")[2] if qualified(op, place[1]) else place[1])
    return out


def declaration(op: Op) -> str:
    """`typed_op(...)` for an op; types are written as the IR prints them."""
    types = tuple(v.type for v in op.operands)
    parts = [f'"{op.opcode}"', *(attribute(str(t)) for t in types)]
    if tuple(lookup(op.opcode).type(types, op.attrs, ())) != tuple(r.type for r in op.results):
        results = ", ".join(attribute(str(r.type)) for r in op.results)
        parts.append(f"results=({results},)")
    parts += [f"{k}={attribute(v)}" for k, v in op.attrs.items() if v is not None]
    return f"typed_op({', '.join(parts)})"


def attribute(v: object) -> str:
    """The text of an attribute."""
    if isinstance(v, tuple):
        return f"({', '.join(map(attribute, v))}{',' if len(v) == 1 else ''})"
    if isinstance(v, list):
        return f"[{', '.join(map(attribute, v))}]"
    if isinstance(v, Type | Dim):
        return f"{'parse_type' if isinstance(v, Type) else 'parse_dim'}({attribute(str(v))})"
    return f'"{v}"' if isinstance(v, str) and '"' not in v and v.isprintable() and "\\" not in v else repr(v)
