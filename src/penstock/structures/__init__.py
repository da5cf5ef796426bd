"""Data structures on arrays that know nothing of joins: sets, heaps, lists, counts, histories."""
