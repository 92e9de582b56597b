"""A GGUF file as a model: its format (file.py), settings (settings.py), tokenizer (tokens.py), and weights (net.py)."""
