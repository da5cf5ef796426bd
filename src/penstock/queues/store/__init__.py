"""Items in memory and on disk: chunks in segment files, what is confirmed, and recovery."""
