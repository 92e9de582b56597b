"""Claims, worlds, counterexamples and planted mutants."""
