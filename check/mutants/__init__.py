"""Planted bugs: each must be refuted by the checker."""
