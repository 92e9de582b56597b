"""The kernels of the shipped rules as they are launched with real models, for compilation without a device."""
from __future__ import annotations

from collections.abc import Iterator

from decgraph import stdlib
from decgraph.backends.triton.cubin import Spec
from decgraph.backends.triton.rules.compile import NODES, ROWS, WALK, CompiledRule, rule_of
from decgraph.dsl.lower import load_text
from decgraph.passes.manager import optimise

TYPES = {"tokens": "*i64", "parents": "*i64", "live": "*u8", "rows": "*i64", "prob_points": "*i64", "law_rows": "*i32",
         "law_points": "*i64", "positions": "*i64", "seeds": "*i64", "words": "*i32", "counters": "*i32", "reals": "*fp64",
         "column_prob": "*fp64", "column_race": "*fp64", "column_point": "*fp64", "values": "*fp64", "whos": "*i32",
         "packed": "*i64"}
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
            yield Spec(f"{name} {form} {kernel} {element}", kernel, types, {p: known[p] for p in names if p in known},
                       rule.source, warps=config.warps, stages=config.stages)


def specs() -> list[Spec]:
    """The kernels of every algorithm of stdlib/ that verifies, once for each text."""
    out: dict[tuple[str, str], Spec] = {}
    for name in stdlib.names():
        module = optimise(load_text(stdlib.text(name), f"stdlib/{name}.dec"))[0]
        for function in module.functions.values():
            for op in function.body.walk():
                rule = rule_of(op, function.body) if op.opcode == "tree.walk" else None
                if rule is not None and rule.supported:
                    for element in ("fp32", "fp64"):
                        for spec in specs_of(rule, name, element):
                            text = "\n".join(line.split("  # ")[0] for line in spec.text.splitlines())
                            out.setdefault((text, spec.name.split(" ", 1)[1]), spec)
    return list(out.values())
