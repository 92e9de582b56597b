"""From the syntax tree to the IR: names, types and lowering in one walk (an op's type rule is the type check)."""

from decgraph.dsl.lower.module import load_text, lower_file, refuse_settings, warnings_of

__all__ = ["load_text", "lower_file", "refuse_settings", "warnings_of"]
