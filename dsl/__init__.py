"""The language: text and decorated Python functions, to the IR."""
