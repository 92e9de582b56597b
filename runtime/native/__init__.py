"""Products and layers in C++ for the CPU: the library (library.py), products (products.py), decoders (decoder.py) and small
weights (blocks.py)."""
