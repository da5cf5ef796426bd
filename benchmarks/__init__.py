"""Benchmarks of Penstock: `make bench` runs them all and keeps the figures as JSON under `out/`."""
