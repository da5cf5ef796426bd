"""Query plans: the order of joins, the caches, and where each condition is checked."""
