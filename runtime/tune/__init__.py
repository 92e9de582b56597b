"""Measuring what a device and prompts are like, and choosing an algorithm's parameters by it (`decgraph tune`)."""
