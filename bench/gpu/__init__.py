"""One script for a machine with a GPU: what is due there, checked and measured (README.md)."""
