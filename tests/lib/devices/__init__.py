"""Devices that this machine does not have, as far as a CPU can stand in for them."""
