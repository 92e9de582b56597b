"""The options `--passes`, `--no-pass`, `--dump-ir` and `--validate` of `compile` and `run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from decgraph.cli import output
from decgraph.cli.options import option
from decgraph.ir.values import Module
from decgraph.passes.manager import PassReport, check_names, optimise
from decgraph.passes.plan import Plan

if TYPE_CHECKING:
    from decgraph.passes.manager import Validate


@dataclass(frozen=True)
class Wishes:
    """What the options say. Raises DecError for names that are no passes."""

    passes: Annotated[
        str | None, option("--passes", help="Only these passes: simplify,reuse. `all` and `none` are names too.")
    ] = None
    no_pass: Annotated[list[str] | None, option("--no-pass", help="Not this pass.")] = None
    dump_ir: Annotated[
        Path | None, option("--dump-ir", help="Write the IR before the passes and after each into this folder.")
    ] = None
    validate: Annotated[
        bool, option("--validate", help="Run the program before and after every pass on small worlds; differences are errors.")
    ] = False

    @property
    def any(self) -> bool:
        """Whether an option was given at all."""
        return self.passes is not None or bool(self.no_pass) or self.dump_ir is not None or self.validate

    @property
    def names(self) -> tuple[str, ...] | None:
        """The passes given; None: all of them."""
        if self.passes is None or self.passes == "all":
            return None
        return () if self.passes == "none" else tuple(name.strip() for name in self.passes.split(",") if name.strip())

    def plan(self) -> Plan:
        """The plan of these options."""
        from decgraph.passes.manager import chosen

        check_names((*(self.names or ()), *(self.no_pass or ())))
        return Plan(passes=chosen(Plan(), self.names, self.no_pass or ()))

    def run(self, module: Module, params: Mapping[str, Any] | None = None) -> tuple[Module, PassReport]:
        """The module after the passes, dumped and validated where the options say so."""
        output.check_folder(self.dump_ir)
        plan = self.plan()
        validate: Validate | None = None
        if self.validate:
            from decgraph.check.validation import Validation

            validate = Validation(params)
        return optimise(module, params, plan=plan, dump=self.dump_ir, validate=validate)
