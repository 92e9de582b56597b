"""A GGUF file as a model: its format (file.py), settings (settings.py), tokenizer (tokens.py). The
decoder of one is in models/decoder/gguf.py."""
