"""Experiments: the streams, and what the policies make of them."""
