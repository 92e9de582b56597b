"""The kernels of the shipped rules as they are launched with real models, for compilation without a device."""

from __future__ import annotations

from collections.abc import Iterator

from decgraph.backends.triton.cubin import Spec
from decgraph.backends.triton.rules.compile import NODES, ROWS, WALK, CompiledRule

TYPES = {
    "tokens": "*i64",
    "parents": "*i64",
    "live": "*u8",
    "rows": "*i64",
    "prob_points": "*i64",
    "law_rows": "*i32",
    "law_points": "*i64",
    "positions": "*i64",
    "seeds": "*i64",
    "words": "*i32",
    "counters": "*i32",
    "reals": "*fp64",
    "column_prob": "*fp64",
    "column_race": "*fp64",
    "column_point": "*fp64",
    "values": "*fp64",
    "whos": "*i32",
    "packed": "*i64",
}
SIZES = ("N", "R", "M", "V", "S", "C", "L", "D", "BN", "PER")
FORMS = {
    "sampled": {"LIVE": True, "ROWS": True, "POINTS": False, "LAWS": True, "CERTAIN": False},
    "greedy": {"LIVE": True, "ROWS": False, "POINTS": True, "LAWS": True, "CERTAIN": True},
}


def specs_of(rule: CompiledRule, name: str, element: str = "fp32") -> Iterator[Spec]:
    """Every kernel of a rule for trees of 64 nodes, sampled and greedy."""
    for form, flags in FORMS.items():
        for kernel in rule.kernels:
            if form == "greedy" and kernel != rule.name and rule.parts.closed:
                continue
            config = ROWS if kernel != rule.name else WALK if "BLOCK" in rule.parts.parameters[kernel] else NODES
            known = {**flags, "NB": 64, "BLOCK": config.block, "SPLITS": ROWS.splits, "PLACED": False, "PREFIX": 0}
            names = rule.parts.parameters[kernel]
            types = {p: TYPES.get(p, "i32" if p in SIZES else f"*{element}") for p in names if p not in known}
            yield Spec(
                f"{name} {form} {kernel} {element}",
                kernel,
                types,
                {p: known[p] for p in names if p in known},
                rule.source,
                warps=config.warps,
                stages=config.stages,
            )
