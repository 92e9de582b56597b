"""Engines: how models are asked while decoding. They keep what they computed and batch over sequences."""
