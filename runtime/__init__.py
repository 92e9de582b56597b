"""Requests, noise, shaping, the stop machine, sessions and traces."""
