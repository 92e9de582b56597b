"""Graph mode: whole decoding steps on the device, every value a tensor of static shape, nothing read back."""
