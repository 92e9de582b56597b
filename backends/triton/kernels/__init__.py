"""Kernels written by hand, where Inductor's would be many or slow: each is one custom op of torch with two implementations, a
Triton kernel on a CUDA device and the torch form that says what it means, which runs on a CPU.

They are opaque custom ops and no `triton_op`s: Triton's interpreter cannot be traced through, their scratch memory and sizes
are chosen in Python, and Inductor has nothing to fuse with them.
"""
