"""The reference interpreter: NumPy float64, slow and obvious."""
