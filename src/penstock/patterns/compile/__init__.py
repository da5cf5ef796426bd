"""Compile pattern nodes to what strategies search with: slots, alternatives and tables."""
