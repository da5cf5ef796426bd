"""Shared by the states of all operators: snapshots, and checks of restored arrays."""
