"""The public functions on Spark, one per file."""
