"""Lowerings of ir/ops/parts.py: none yet; layers and attention scores have no adapter (the machine says so)."""
