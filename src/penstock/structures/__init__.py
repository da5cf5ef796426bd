"""Data structures on arrays, independent of joins: sets, heaps, lists, counts, histories."""
