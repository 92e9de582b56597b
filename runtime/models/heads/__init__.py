"""Drafting heads in the layouts that their authors publish: how a folder is read, and the modules that it becomes."""
