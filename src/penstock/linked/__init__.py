"""Linked-data streams: continuous queries over timed triples in a fixed amount of memory."""
