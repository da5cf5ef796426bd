"""Conditions on pairs beyond the keys, `where=`: their language, their types, and how they are evaluated."""
