"""How a query is run: the order of joins, which caches there are, and where each condition is checked."""
