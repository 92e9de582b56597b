"""One decoder for many families of transformers (decoder.py), its families (families.py) and their weights (weights.py)."""
