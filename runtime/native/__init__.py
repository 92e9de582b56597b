"""Products and layers in C++ for the CPU: the library (library.py), products (products.py), decoders (decoder.py) and small
weights (blocks.py)."""

FORMATS = {
    "Q8_0": (1, 32, 34), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q4_K": (4, 256, 144),
    "Q5_0": (5, 32, 22), "Q5_1": (6, 32, 24), "Q5_K": (7, 256, 176), "Q6_K": (8, 256, 210),
    "F16": (9, 1, 2), "BF16": (10, 1, 2),
}  # fmt: skip
"""By name: the number of the library (`Format` in native.cpp), and how many numbers and bytes a block has."""
