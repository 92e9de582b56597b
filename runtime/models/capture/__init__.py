"""A transformers module's forward as one straight-line graph that passes own (see make.py)."""
