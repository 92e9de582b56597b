"""What is no product: scripts that measure, and that write pages and tables. `python -m lab.gallery`, from a checkout."""
