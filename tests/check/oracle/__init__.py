"""A judge of the checker that shares no code with it, and the programs it judges: `oracle/run.py`."""
