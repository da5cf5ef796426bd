"""A query at work: its caches under a policy, batches in and rows out."""
