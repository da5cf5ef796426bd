"""What a user writes: the text of a pattern, its nodes, and errors that show the place."""
