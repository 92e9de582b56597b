"""Small models: random weights in the layouts of transformers and of authors, and plain models to compare with."""
