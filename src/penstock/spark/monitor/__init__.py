"""Monitoring of running queries: totals, advice, the terminal view, and Prometheus metrics."""
