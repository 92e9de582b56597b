"""Lazy enumeration with rational probabilities."""
