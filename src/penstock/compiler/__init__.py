"""Run kernels: compiled by Numba or interpreted, cached on disk, and bound to policies.

A kernel is a function on arrays under `jit`, or under `driver` where it is given a policy and items slice by
slice. Kernels import NumPy and Numba only and validate nothing.
"""
