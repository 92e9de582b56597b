"""The operands of the ops' samples, and what compares values of two backends."""
