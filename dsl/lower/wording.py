"""Types as an author would say them, in messages."""

from __future__ import annotations

import re

from decgraph.ir.types import Type, TypeError_, join, parse_type

_IR_TYPE = re.compile(r"\b[a-z]+(?:<[^<> ]*>(?:\[[^\] ]*\])?|\[[a-z][^\] ]*\])")


FLOAT_IN_INT = "`int(x)` cuts a float off; or declare it as float"


def unfit(declared: Type, got: Type) -> bool:
    """Whether a value of a type is no value of a declared one: of another kind, or a float for an int. Vectors of floats fit
    where ints are declared: `zeros(16)` is one."""
    return join(declared, got) is None or (declared.elem == "int" and not got.dims and got.elem == "real")


def show(t: Type) -> str:
    """A type as an author would say it."""
    names = {"k": "", "nodes": "nodes of", "part": "part of", "cells": "cells of", "vocab": "vocabulary", "layers": "layers"}
    base = {"list": "a list", "real": "float"}.get(t.elem, t.elem)
    if t.elem in ("token", "dist", "draw") and t.of and t.of[0] != "V":
        base += f"[{t.of[0]}]"
    dims = [f"{names[d.kind]} {d.of}".strip() or "many" for d in t.dims]
    return base + (f" over {', '.join(dims)}" if dims else "")


def spoken(message: str) -> str:
    """A message of the op table with its types as an author would say them."""

    def said(hit: re.Match[str]) -> str:
        try:
            return show(parse_type(hit.group()))
        except TypeError_:
            return hit.group()

    return _IR_TYPE.sub(said, message)
