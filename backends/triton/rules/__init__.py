"""Verification rules as kernels: a program per sequence walks its tree on the device."""
