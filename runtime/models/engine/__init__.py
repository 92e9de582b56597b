"""Engines run the forward passes of decoding: they keep KV caches and batch over sequences."""
