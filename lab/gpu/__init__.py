"""One script for a machine with a GPU, with all its checks and measurements (README.md)."""
