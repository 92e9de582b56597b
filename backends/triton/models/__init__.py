"""Models as whole steps on a device use them: forwards over buffers of a fixed size, for all lanes at once (interface.py)."""
