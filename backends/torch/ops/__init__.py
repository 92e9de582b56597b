"""Lowerings: one file for each file of ir/ops, a function for each op that touches the vocabulary, draws, trees or models."""
