"""What an exported file carries."""
from __future__ import annotations
from dataclasses import replace
from decgraph.ir.text import print_module
from decgraph.ir.values import Module


def carried(module: Module) -> str:
    """The text of what an exported file carries of a module: its algorithm without claims, and nothing else."""
    return print_module(Module({module.main: replace(module.entry, claims=())}, module.main, module.path))
