"""Vocabulary kernels: generated from chains of ops on rows of distributions."""
