"""Attention over committed keys and values with a tail of tree or canvas cells, and the moving of accepted cells."""
