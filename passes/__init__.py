"""Module to module: one pass per file."""
