"""The storage of queues: items in memory, chunks in segment files, confirmations, and recovery."""
