"""Model adapters: table, free, tiny, and Hugging Face models."""
