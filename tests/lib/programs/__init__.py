"""Programs to test the language, the IR and the passes with: committed ones, and generators of them."""
