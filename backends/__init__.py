"""What runs a module: reference (the meaning), exact (the proof)."""
