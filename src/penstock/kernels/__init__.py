"""Numba functions on arrays: where the loops over single tuples live.

They import NumPy and Numba only and validate nothing. `layout` says what the memory of an operator is like,
and `hooks` what a policy can hook into. `drive` is the loop over arrivals; `pairs`, `stream`, `many` and
`many_stream` are its indexes. `ticks` and `linked` are drivers of their own. `exact` counts what unlimited
memory would have given. The rest are the data structures they use.
"""
