"""Run queries: their caches under a policy, batches in and rows out."""
