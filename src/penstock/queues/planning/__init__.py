"""Decide which items to write and read: the algorithms of the paper, their costs, and their simulation."""
