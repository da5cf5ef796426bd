"""What a running query finds and loses: totals, advice, the terminal, and metrics for Prometheus."""
