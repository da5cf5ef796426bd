"""Numba functions on arrays: where the loops over single tuples live.

They import NumPy and Numba only and validate nothing. `layout` says what the memory of an operator
looks like; `hooks` what a policy can hook into; `drive`, `ticks` and `many` are the three drivers;
`exact` counts what unlimited memory would have given. The rest are the data structures they use.
"""
