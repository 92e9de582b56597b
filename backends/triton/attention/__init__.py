"""Attention over committed keys and values with a tail of tree or canvas positions, and the moving of accepted keys and
values."""
