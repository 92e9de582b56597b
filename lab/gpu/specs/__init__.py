"""The kernels at the sizes that real models launch, to be compiled for devices that are not there (cubins.py)."""
