"""Verification rules as kernels: a program per sequence verifies its tree on the device."""
