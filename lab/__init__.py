"""What is no product: scripts that measure, and that write pages and tables. `python -m lab`, from a checkout, lists them."""
