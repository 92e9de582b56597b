"""Benchmarks: what `decgraph bench` runs, and scripts. Never tests: they print figures and write bench/results/*.json."""
