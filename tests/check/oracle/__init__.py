"""A judge of the checker that shares no code with it, and the programs it judges; `python tests/check/oracle/run.py` runs it."""
