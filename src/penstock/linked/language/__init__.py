"""What a user writes: the text of a query, its nodes, and what a query must be to make sense."""
