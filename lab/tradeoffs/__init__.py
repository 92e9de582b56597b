"""Lossy programs swept over their knobs: `python -m lab.tradeoffs masked` or `causal`."""
