"""The exact backend: the reference interpreter over rationals, with every random choice enumerated."""
