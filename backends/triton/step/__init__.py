"""Steps that run on the device as a whole: every value a tensor of static shape, nothing read back."""
